/* runtime/policy/density/density_internal.h - shared by density's files: units and lists. */
#ifndef SL_DENSITY_INTERNAL_H
#define SL_DENSITY_INTERNAL_H

#include "runtime/base/sl_base.h"
#include "runtime/policy/density/density.h"

#include <assert.h>

/* sl_density_fetch prefetches the head of a hash first, and its unit this number of calls later. */
#define FETCH_AHEAD 2u
/* Values are computed again after this number of references. */
#define SETTLE_REFERENCES UINT64_C(1000)

/* DISK: only on disk, in no list. A ghost with use_count 0 is known only as a parent of others. */
enum unit_state {
    UNIT_FREE,
    UNIT_HERE,
    UNIT_EVICT_FIRST,
    UNIT_KEPT,
    UNIT_GHOST,
    UNIT_DISK,
    UNIT_STATES
};

struct pair {
    uint32_t older, newer;
};

struct unit {
    uint64_t hash;
    struct pair in; /* neighbours in its list, a ring with its head; itself: in no list */
    uint32_t next;  /* next in its hash bucket, or in the list of free units */
    uint32_t user;
    uint32_t at; /* reference number of its last use, modulo 2^32 */
    uint32_t parent;
    uint32_t
        child; /* the most recently used child in memory, first of the ring of siblings; 0: none */
    struct pair siblings;
    uint32_t walk;            /* number of the last walk that returned it, plus one if it leaves */
    uint32_t keep_end_s;      /* end of the requested retention; 0: not requested */
    uint32_t keep_pages : 31; /* 0: not retained */
    uint32_t keep_once : 1;   /* ends with the next use */
    uint8_t class_index, use_count;
    uint8_t state : 4;
    uint8_t weight : 2;  /* value of its hits: 0 low, 1 normal, 2 high */
    uint8_t counted : 1; /* entered for a use that its reader will report again */
    uint8_t aged : 1;    /* counts in its cell */
};
static_assert(sizeof(struct unit) == 64, "a unit is a line of the processor's cache");

/* Each cell has a list per weight, and each state but HERE has one. Their heads are the first
 * units. */
#define WEIGHTS             3u
#define LISTS               (SL_DENSITY_CELLS * WEIGHTS)
#define HEAD_FIRST          1u
#define HEAD_OF(state)      (HEAD_FIRST + LISTS + (uint32_t)(state)-UNIT_EVICT_FIRST)
#define UNIT_FIRST          HEAD_OF(UNIT_DISK)
#define RANK_WORDS          ((LISTS + 63u) / 64u)
#define DENSITY_HEADS       4u /* of the table, per unit: few units share a head */
#define DENSITY_HEADS_BYTES (DENSITY_HEADS * sizeof(uint32_t))

struct sl_density {
    double exposure[SL_DENSITY_CELLS]; /* references that units spent in the cell */
    double wanted[SL_DENSITY_CELLS];   /* units that were used in the cell */
    double rate[SL_DENSITY_CELLS];     /* hits per reference of a unit in the cell, smoothed */
    int16_t step[SL_DENSITY_CELLS];    /* log2 of the value, in steps */
    double steps;                      /* per octave */
    uint64_t seen;                     /* a bit for each class that ever had units */
    struct sl_density_options set;
    struct unit *units; /* by number; 0 is none */
    uint32_t *table;    /* heads by hash; grows one head at a time */
    uint32_t heads,
        round; /* heads: in use; round: power of two, the heads when they last doubled */
    uint32_t capacity, high, vacant; /* high: first number never used; vacant: first free unit */
    uint64_t count[UNIT_STATES];
    uint32_t known[SL_DENSITY_CELLS];   /* units in the cell, in memory or not */
    uint32_t on_disk[SL_DENSITY_CELLS]; /* of these, only on disk */
    uint64_t references, counted_at, settle_at,
        halved_at;                      /* exposure is complete up to counted_at */
    bool learnt;                        /* values were computed from observations */
    uint16_t order[LISTS], rank[LISTS]; /* lists, least value first */
    uint64_t filled[RANK_WORDS];        /* by rank: lists that may have units */
    uint32_t now_s;
    uint64_t kept_pages, kept_pages_max;
    /* the walk: its present unit, the unit returned for it, and the next one */
    uint32_t walk_base, walk_given, walk_next, walk_number;
    uint64_t fetched[FETCH_AHEAD];
    uint32_t fetch_count;
};

static inline bool density_in_memory(const struct unit *at)
{
    return at->state == UNIT_HERE || at->state == UNIT_EVICT_FIRST || at->state == UNIT_KEPT;
}

static inline uint64_t density_memory_count(const struct sl_density *density)
{
    return density->count[UNIT_HERE] + density->count[UNIT_EVICT_FIRST] + density->count[UNIT_KEPT];
}

static inline uint64_t density_age_references(const struct sl_density *density,
                                              const struct unit *at)
{
    return (uint32_t)density->references - at->at;
}

/* Inserts the unit before `newer`, its younger neighbour; a head: as the youngest. */
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

static inline bool density_same_list(const struct unit *at, const struct unit *parent)
{
    return parent->state == UNIT_HERE && parent->aged && parent->class_index == at->class_index &&
           parent->weight == at->weight;
}

/* ---- density_cells.c ---- */

uint32_t *density_table_head(const struct sl_density *density, uint64_t hash);
sl_err density_units_grow(struct sl_density *density);
uint32_t density_unit_new(struct sl_density *density, uint64_t hash); /* 0: no memory */
void density_unit_free(struct sl_density *density, uint32_t unit);
/* The oldest unit of the first non-empty list from this rank on; after all, of the retained
 * ones. */
uint32_t density_oldest_from(struct sl_density *density, uint32_t rank);
/* The unit that is evicted after this one, ignoring chains; 0: none. */
uint32_t density_evict_after(struct sl_density *density, uint32_t unit);
/* Called after a reference: moves units to older ages and recomputes values when due. */
void density_age(struct sl_density *density);
void density_update_values(struct sl_density *density);
/* Stops counting the unit in its cell; used: also records a use there. */
void density_cell_leave(struct sl_density *density, uint32_t unit, bool used);
/* Removes the unit from its list. */
void density_unit_take(struct sl_density *density, uint32_t unit);
/* Adds the unit to the list of its state, and with `aged` to its cell. Units being restored are
 * added to cells later. */
void density_unit_put(struct sl_density *density, uint32_t unit, enum unit_state state, bool aged);

#endif
