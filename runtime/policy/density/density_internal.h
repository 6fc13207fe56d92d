/* runtime/policy/density/density_internal.h - what the files of density.h share: units, and where
 * they stand. */
#ifndef SL_DENSITY_INTERNAL_H
#define SL_DENSITY_INTERNAL_H

#include "runtime/base/sl_base.h"
#include "runtime/policy/density/density.h"

#include <assert.h>

/* Of so many hashes that were named first the head of the table is fetched, and then the unit. */
#define FETCH_AHEAD 2u
/* Values are computed again after so many references. */
#define SETTLE_REFERENCES UINT64_C(1000)

/* DISK: on disk alone, and in no list. A ghost that was never used is one that others name as their
 * parent. */
enum unit_state { UNIT_FREE, UNIT_HERE, UNIT_SUNK, UNIT_KEPT, UNIT_GHOST, UNIT_DISK, UNIT_STATES };

struct pair {
    uint32_t older, newer;
};

struct unit {
    uint64_t hash;
    struct pair in; /* its list, a ring with its head; alone in it: in no list */
    uint32_t next;  /* of the same head of the table, or of those that are free */
    uint32_t user;
    uint32_t at; /* when it was used last, in references, modulo 2^32 */
    uint32_t parent;
    uint32_t
        child; /* of those in memory the one used last; the ring of siblings goes on; 0: none */
    struct pair siblings;
    uint32_t walk;            /* the last one that gave it, twice; and one more if it goes */
    uint32_t keep_end_s;      /* until when it was said to be kept; 0: it was not */
    uint32_t keep_pages : 31; /* 0: it is not to be kept */
    uint32_t keep_once : 1;   /* for its next use: then it is over */
    uint8_t class_index, use_count;
    uint8_t state : 4;
    uint8_t weight : 2;  /* of its hits: 0 low, 1 normal, 2 high */
    uint8_t counted : 1; /* it came for a use that its reader will tell of again */
    uint8_t aged : 1;    /* it counts in its cell */
};
static_assert(sizeof(struct unit) == 64, "a unit is a line of the processor's cache");

/* The lists of a cell, one for each weight, and one of each state but HERE. Their heads are the
 * first units. */
#define WEIGHTS             3u
#define LISTS               (SL_DENSITY_CELLS * WEIGHTS)
#define HEAD_FIRST          1u
#define HEAD_OF(state)      (HEAD_FIRST + LISTS + (uint32_t)(state)-UNIT_SUNK)
#define UNIT_FIRST          HEAD_OF(UNIT_DISK)
#define RANK_WORDS          ((LISTS + 63u) / 64u)
#define DENSITY_HEADS       4u /* of the table, for each unit: then few units share one */
#define DENSITY_HEADS_BYTES (DENSITY_HEADS * sizeof(uint32_t))

struct sl_density {
    double exposure[SL_DENSITY_CELLS]; /* references that units spent in the cell */
    double wanted[SL_DENSITY_CELLS];   /* of them, units that were wanted there */
    double rate[SL_DENSITY_CELLS];     /* hits a reference of one that is there, smoothed */
    int16_t step[SL_DENSITY_CELLS];    /* log2 of the value, in steps */
    double steps;                      /* of an octave */
    uint64_t seen;                     /* a bit for each class that ever had units */
    struct sl_density_options set;
    struct unit *units;              /* by number; 0 is none */
    uint32_t *table;                 /* by hash: the first unit; it grows one head at a time */
    uint32_t heads, round;           /* in use; a power of two: heads when they doubled last */
    uint32_t capacity, high, vacant; /* from high on none was ever taken; the first that is free */
    uint64_t count[UNIT_STATES];
    uint32_t known[SL_DENSITY_CELLS];   /* units in the cell, wherever they are */
    uint32_t on_disk[SL_DENSITY_CELLS]; /* of these, on disk alone */
    uint64_t references, counted_at, settle_at,
        halved_at;                      /* exposure is complete up to counted_at */
    bool learnt;                        /* values were computed from what was seen */
    uint16_t order[LISTS], rank[LISTS]; /* lists, the least valued first */
    uint64_t filled[RANK_WORDS];        /* by rank: lists that may have units */
    uint32_t now_s;
    uint64_t kept_pages, kept_pages_max;
    /* the walk: the unit that it stands at, what it gave for it, and where it goes on */
    uint32_t walk_base, walk_given, walk_next, walk_number;
    uint64_t fetched[FETCH_AHEAD];
    uint32_t fetch_count;
};

static inline bool density_in_memory(const struct unit *at)
{
    return at->state == UNIT_HERE || at->state == UNIT_SUNK || at->state == UNIT_KEPT;
}

static inline uint64_t density_memory_count(const struct sl_density *density)
{
    return density->count[UNIT_HERE] + density->count[UNIT_SUNK] + density->count[UNIT_KEPT];
}

static inline uint64_t density_age_references(const struct sl_density *density,
                                              const struct unit *at)
{
    return (uint32_t)density->references - at->at;
}

/* Right before this one, which is younger; a head: as the youngest. */
static inline void density_list_insert(struct sl_density *density, uint32_t newer, uint32_t unit)
{
    struct unit *units = density->units;
    uint32_t older = units[newer].in.older;
    units[unit].in = (struct pair){older, newer};
    units[older].in.newer = unit;
    units[newer].in.older = unit;
}

static inline void density_list_remove(struct sl_density *density, uint32_t unit)
{
    struct unit *units = density->units;
    struct pair in = units[unit].in;
    units[in.older].in.newer = in.newer;
    units[in.newer].in.older = in.older;
    units[unit].in = (struct pair){unit, unit};
}

static inline uint32_t density_oldest_of(const struct sl_density *density, uint32_t head)
{
    uint32_t unit = density->units[head].in.newer;
    return unit != head ? unit : 0;
}

static inline bool density_goes_with(const struct unit *at, const struct unit *parent)
{
    return parent->state == UNIT_HERE && parent->aged && parent->class_index == at->class_index &&
           parent->weight == at->weight;
}

/* ---- density_cells.c ---- */

uint32_t *density_table_head(const struct sl_density *density, uint64_t hash);
sl_err density_units_grow(struct sl_density *density);
uint32_t density_unit_new(struct sl_density *density, uint64_t hash); /* 0: no memory */
void density_unit_free(struct sl_density *density, uint32_t unit);
/* The oldest unit of the first list from this rank on; behind all of them those that are kept. */
uint32_t density_oldest_from(struct sl_density *density, uint32_t rank);
/* The unit that goes after this one, chains aside; 0: none. */
uint32_t density_turn_after(struct sl_density *density, uint32_t unit);
/* References go on: ages end, and values are computed again. */
void density_older(struct sl_density *density);
void density_settle(struct sl_density *density);
/* used: with what a use teaches. */
void density_cell_leave(struct sl_density *density, uint32_t unit, bool used);
/* Out of its list. */
void density_unit_take(struct sl_density *density, uint32_t unit);
/* To the list of its state, and with aged into its cell. A unit that is restored waits for that. */
void density_unit_put(struct sl_density *density, uint32_t unit, enum unit_state state, bool aged);

#endif
