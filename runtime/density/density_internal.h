/* runtime/density/density_internal.h - what the files of density.h share. */
#ifndef SL_DENSITY_INTERNAL_H
#define SL_DENSITY_INTERNAL_H

#include "runtime/density/density.h"
#include "runtime/sl_base.h"

#include <assert.h>

/* Of so many hashes that were named first the head of the table is fetched, and then the unit. */
#define FETCH_AHEAD 2u

/* A chain is followed so far at most. */
#define CHAIN_MAX 65536u

/* Values are computed again after so many references. */
#define SETTLE_REFERENCES UINT64_C(1000)

/* FREE and the last two are not in memory; DISK: on disk alone. A ghost that was never used is one that
 * others name as their parent. */
enum unit_state { UNIT_FREE, UNIT_HERE, UNIT_SUNK, UNIT_KEPT, UNIT_GHOST, UNIT_DISK };

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
    uint32_t keep_pages : 30; /* 0: it is not to be kept */
    uint32_t keep_once : 1;   /* for its next use: then it is over */
    uint32_t keep_used : 1;   /* that was, and what comes behind it in its chain is not used yet */
    uint8_t class_index, use_count;
    uint8_t state : 4;
    uint8_t weight : 2;  /* of its hits: 0 low, 1 normal, 2 high */
    uint8_t counted : 1; /* it came for a use that its reader will tell of again */
    uint8_t aged : 1;    /* it counts in its cell */
};
static_assert(sizeof(struct unit) == 64, "a unit is a line of the processor's cache");

/* The lists of a cell, one for each weight, and three more. Their heads are the first units. */
#define LISTS (SL_DENSITY_CELLS * SL_DENSITY_PRIORITIES)
enum { HEAD_FIRST = 1, HEAD_SUNK = HEAD_FIRST + (int)LISTS, HEAD_KEPT, HEAD_GHOSTS, UNIT_FIRST };
#define RANK_WORDS ((LISTS + 63u) / 64u)

struct sl_density {
    struct sl_rates rates;
    struct sl_density_options set;
    struct unit *units;              /* by number; 0 is none */
    uint32_t *table;                 /* by hash: the first unit */
    uint32_t capacity, high, vacant; /* from high on none was ever taken; the first that is free */
    uint64_t unit_count, ghost_count, disk_count;
    uint64_t seen;                      /* a bit for each class that ever had units */
    uint32_t known[SL_DENSITY_CELLS];   /* units in the cell, wherever they are */
    uint32_t on_disk[SL_DENSITY_CELLS]; /* of these, on disk alone */
    uint64_t references, counted_at, settle_at,
        halved_at;                      /* exposure is complete up to counted_at */
    bool learnt;                        /* values were computed from what was seen */
    uint16_t order[LISTS], rank[LISTS]; /* lists, the least valued first */
    uint32_t order_count;
    uint64_t filled[RANK_WORDS]; /* by rank: lists that may have units */
    uint32_t now_s;
    uint64_t kept_count, kept_pages, kept_pages_max;
    /* As of a cell, of what is kept; and what that was worth that went last. */
    double kept_exposure, kept_wanted, edge;
    /* the walk: the unit that it stands at, what it gave for it, and where it goes on */
    uint32_t walk_base, walk_given, walk_next, walk_number;
    uint64_t fetched[FETCH_AHEAD];
    uint32_t fetch_count;
    struct sl_density_ghost gone[SL_DENSITY_GONE_LOT];
    uint32_t gone_count;
};

static inline bool density_in_memory(const struct unit *at)
{
    return at->state == UNIT_HERE || at->state == UNIT_SUNK || at->state == UNIT_KEPT;
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

/* ---- density.c ---- */

uint32_t density_unit_new(struct sl_density *density, uint64_t hash); /* 0: no memory */
/* A unit for what comes to memory, in no list, and what its ghost knew; 0: no memory. unit: that of the
 * hash. */
uint32_t density_unit_come(struct sl_density *density, uint64_t hash, uint32_t unit, uint32_t user);
uint8_t density_weight_of(const struct unit *at, enum reg_priority priority);
void density_parent_find(struct sl_density *density, uint32_t unit, uint64_t parent_hash);
/* Where its class and age count it. */
uint32_t density_cell_of(const struct sl_density *density, const struct unit *at);
void density_cell_join(struct sl_density *density, uint32_t unit);
void density_cell_leave(struct sl_density *density, uint32_t unit);
double density_exposure_of(const struct sl_density *density, uint32_t cell);
void density_exposure_complete(struct sl_density *density);
void density_settle(struct sl_density *density); /* values, from what was seen */
/* To the list of its cell, which counts it, or to what is kept. */
void density_turn_enter(struct sl_density *density, uint32_t unit);
/* Out of the list of what is in memory, wherever it waits. */
void density_turn_remove(struct sl_density *density, uint32_t unit);
void density_ghosts_append(struct sl_density *density, uint32_t unit);
/* What left, or was on disk: the next registrar is told of it. */
void density_ghost_become(struct sl_density *density, uint32_t unit);
void density_ghosts_remove(struct sl_density *density, uint32_t unit);
void density_ghosts_bound(struct sl_density *density);

/* ---- density_kept.c ---- */

void density_kept_enter(struct sl_density *density, uint32_t unit);
/* The unit was used, and is in no list. */
void density_kept_used(struct sl_density *density, uint32_t unit);
/* A reference came: one of those that are kept is looked at. */
void density_kept_reference(struct sl_density *density);

#endif
