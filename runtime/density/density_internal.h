/* runtime/density/density_internal.h - what the files of density_units.h share. */
#ifndef SL_DENSITY_INTERNAL_H
#define SL_DENSITY_INTERNAL_H

#include "runtime/density/density_units.h"
#include "runtime/sl_base.h"

#include <assert.h>

/* Values are computed anew after so many references. */
#define SETTLE_REFERENCES UINT64_C(1000)
/* What was seen counts half when memory was filled anew so often, but not before and not after so many
 * references. */
#define HALVE_FILLED UINT64_C(16)
#define HALVE_LEAST  UINT64_C(50000)
#define HALVE_MOST   UINT64_C(150000)
/* So many calls of sl_density_fetch it takes until a place of the table is here. */
#define DENSITY_FETCH_AHEAD 2u
#define RANK_WORDS          ((SL_DENSITY_TURNS + 63u) / 64u)

/* SUNK and KEPT are in memory, too. NAMED: others follow it, and it did not come yet. DISK: on disk
 * alone. The last three: in memory, on disk alone or a ghost before a restart. */
enum unit_state {
    UNIT_FREE,
    UNIT_HERE,
    UNIT_SUNK,
    UNIT_KEPT,
    UNIT_GHOST,
    UNIT_NAMED,
    UNIT_DISK,
    UNIT_RESTORED,
    UNIT_RESTORED_DISK,
    UNIT_RESTORED_GHOST
};
struct pair {
    uint32_t older, newer;
};

/* A unit is a number: what is known of it lies in two tables, by what is used together. */

/* What all uses ask for, two to a line. */
struct density_aged {
    uint64_t hash;
    struct pair turn; /* in the row by turn that it is in */
    uint32_t user;
    uint32_t cohort; /* with which it gets older; 0: with none */
    uint32_t at;     /* when it was used last, in references, modulo 2^32 */
    uint8_t class_index, use_count;
    uint8_t state : 4;
    uint8_t weight : 2;  /* of its hits: 0 low, 1 normal, 2 high */
    uint8_t counted : 1; /* it came for a use that its reader will tell of again */
};
static_assert(sizeof(struct density_aged) == 32, "two to a line");

/* Its chain, and what is kept. */
struct density_unit {
    uint32_t parent;
    uint32_t
        child;     /* of those in memory the one used last; the ring of siblings goes on; 0: none */
    uint32_t walk; /* the last one that gave it and was told that it goes */
    struct pair siblings;
    uint32_t keep_end_s;      /* until when it was said to be kept; 0: it was not */
    uint32_t keep_pages : 30; /* 0: it is not to be kept */
    uint32_t keep_once : 1;   /* for its next use: then it is over */
    uint32_t keep_used : 1;   /* that was, and what comes behind it in its chain is not used yet */
};
static_assert(sizeof(struct density_unit) + sizeof(struct density_aged) <= 64,
              "what a unit costs stands in the README, with two places of the table");

struct row {
    uint32_t oldest, newest;
};

/* Units of one class and weight that were used within a short time get older as one: each does so some
 * twenty times while it is known. A cohort has one unit, or more. */
struct density_cohort {
    struct pair in;   /* the row of its cell by age; newer alone: of those that are free */
    struct pair turn; /* in the row of its turn, while it has units in memory */
    struct row here;  /* these */
    uint32_t at;      /* when the first of its units was used, as of a unit */
    uint32_t count, disk_count; /* units, and those on disk alone */
    uint8_t class_index, age, weight;
};
static_assert(SL_DENSITY_CLASSES <= 64, "classes are bits of a word");

struct sl_density {
    struct sl_rates rates;
    struct sl_density_options set;
    struct density_aged *ages; /* by unit; number 0 is none */
    struct density_unit *units;
    struct density_cohort *cohorts; /* as many as units at most; number 0 is none */
    uint32_t cohort_high,
        cohort_vacant;              /* from high on none was ever taken; the first that is free */
    uint32_t capacity, high, taken; /* numbers; from high on none was ever taken */
    uint64_t *vacant;               /* a bit for each number */
    uint32_t hand;                  /* where the next number is looked for */
    uint64_t *table;                /* by hash: its fold << 32 | a unit's number; 0: empty */
    uint32_t table_mask;
    uint64_t unit_count, ghost_count, disk_count;
    uint64_t on_disk[SL_DENSITY_CELLS]; /* units on disk alone */
    uint64_t references, settle_at, halved_at;
    bool learnt;                                      /* values were computed from what was seen */
    uint64_t older_at, older_age_at[SL_DENSITY_AGES]; /* the first of them, and each age's */
    uint64_t aged[SL_DENSITY_AGES]; /* by age: a bit for each class whose row may have cohorts */
    struct row by_age[SL_DENSITY_AGES][SL_DENSITY_CLASSES]; /* cohorts */
    struct row by_turn[SL_DENSITY_TURNS];                   /* those of cells by weight */
    uint16_t turn_order[SL_DENSITY_TURNS], turn_rank[SL_DENSITY_TURNS]; /* as of cells */
    struct row sunk;                                                    /* go before all cells */
    struct row
        kept; /* and these behind them; a clock: whose turn it is to be looked at is oldest */
    struct row ghosts;
    struct row restored;         /* between restore and restored */
    uint64_t filled[RANK_WORDS]; /* by rank: turns with a unit in memory */
    bool weighted;               /* some unit had a weight that is not 1 */
    uint32_t now_s;
    uint64_t kept_count, kept_pages, kept_pages_max;
    /* As of a cell, of what is kept; and what that was worth that went last. */
    double kept_exposure, kept_wanted, edge;
    /* the walk: the unit of a row that it stands at, what it gave for it, and where it goes on */
    uint32_t walk_base, walk_given, walk_next;
    uint32_t walk_number;                  /* 1 and on */
    uint64_t fetched[DENSITY_FETCH_AHEAD]; /* hashes that are asked for soon */
    uint32_t fetch_count;
    struct sl_density_ghost gone[SL_DENSITY_GONE_LOT];
    uint32_t gone_count;
};

/* What is known of a unit is fetched from memory, since it is asked for soon. */
static inline void density_unit_fetch(const struct sl_density *density, uint32_t unit)
{
    __builtin_prefetch(&density->ages[unit], 1);
    __builtin_prefetch(&density->units[unit], 1);
}

static inline uint32_t density_age_of(const struct sl_density *density,
                                      const struct density_aged *at)
{
    return density->cohorts[at->cohort].age;
}

static inline uint32_t density_cell_of(const struct sl_density *density,
                                       const struct density_aged *at)
{
    return sl_rates_cell(at->class_index, density_age_of(density, at));
}

static inline uint32_t density_turn_of(const struct density_cohort *cohort)
{
    return cohort->weight * SL_DENSITY_CELLS + sl_rates_cell(cohort->class_index, cohort->age);
}

static inline bool density_in_memory(const struct density_aged *at)
{
    return at->state == UNIT_HERE || at->state == UNIT_SUNK || at->state == UNIT_KEPT ||
           at->state == UNIT_RESTORED;
}

static inline uint64_t density_age_references(const struct sl_density *density,
                                              const struct density_aged *at)
{
    return (uint32_t)density->references - at->at;
}

/* ---- rows by turn ---- */

static inline void density_row_append(struct sl_density *density, struct row *row, uint32_t unit)
{
    struct density_aged *ages = density->ages;
    ages[unit].turn = (struct pair){.older = row->newest};
    if (row->newest != 0) {
        ages[row->newest].turn.newer = unit;
    } else {
        row->oldest = unit;
    }
    row->newest = unit;
}

static inline void density_row_remove(struct sl_density *density, struct row *row, uint32_t unit)
{
    struct density_aged *ages = density->ages;
    struct pair out = ages[unit].turn;
    if (out.older != 0) {
        ages[out.older].turn.newer = out.newer;
    } else {
        row->oldest = out.newer;
    }
    if (out.newer != 0) {
        ages[out.newer].turn.older = out.older;
    } else {
        row->newest = out.older;
    }
    ages[unit].turn = (struct pair){0};
}

/* The cells in their order, once for each weight. */
void density_turns_all(struct sl_density *density);

/* Something came to the row of this turn, or left it. */
static inline void density_turn_mark(struct sl_density *density, uint32_t turn)
{
    if (!density->weighted && turn / SL_DENSITY_CELLS != 1) {
        density->weighted = true;
        density_turns_all(density);
    }
    uint32_t rank = density->turn_rank[turn];
    uint64_t bit = UINT64_C(1) << (rank % 64);
    if (density->by_turn[turn].oldest != 0) {
        density->filled[rank / 64] |= bit;
    } else {
        density->filled[rank / 64] &= ~bit;
    }
}

/* ---- density_cohorts.c ---- */

/* A unit that is in none gets older from this age on, with those of its class and weight that were used
 * when it was. */
void density_cohort_join(struct sl_density *density, uint32_t unit, uint32_t age);
/* It is in no row by turn of its cohort. */
void density_cohort_leave(struct sl_density *density, uint32_t unit);
/* The next age begins for it. */
void density_cohort_older(struct sl_density *density, uint32_t cohort);
/* Into the row of what is in memory, at its young end: or before this unit of the same cohort. */
void density_turn_enter(struct sl_density *density, uint32_t unit, uint32_t before);
/* At its old end. */
void density_turn_first(struct sl_density *density, uint32_t unit);
/* Out of it. */
void density_turn_leave(struct sl_density *density, uint32_t unit);
/* ---- density_units.c ---- */
/* Out of the row of what is in memory, wherever it waits. */
void density_turn_remove(struct sl_density *density, uint32_t unit);
/* ---- density_keep.c ---- */
void density_kept_enter(struct sl_density *density, uint32_t unit);
void density_kept_leave(struct sl_density *density, uint32_t unit);
/* The unit was used, and is in no row. */
void density_kept_used(struct sl_density *density, uint32_t unit);
/* A reference came: one of those that are kept is looked at. */
void density_kept_look(struct sl_density *density);
/* The unit that goes after this one, chains aside; 0: none. */
uint32_t density_turn_after(const struct sl_density *density, uint32_t unit);
/* A place for what comes to memory, in no row yet, with what its ghost knew; 0: no memory. unit: that
 * of the hash. */
uint32_t density_unit_come(struct sl_density *density, uint64_t hash, uint32_t unit, uint32_t user);
void density_parent_find(struct sl_density *density, uint32_t unit, uint64_t parent_hash);
/* To the young end of the cell of this age, when it is in none. */
void density_cell_enter(struct sl_density *density, uint32_t unit, uint32_t age);
void density_ghosts_bound(struct sl_density *density);
/* What tells the number of this hash is fetched from memory. */
void density_place_fetch(const struct sl_density *density, uint64_t hash);
/* The unit of this hash, wherever it is; 0: it is not known. */
uint32_t density_unit_of(const struct sl_density *density, uint64_t hash);
uint32_t density_unit_new(struct sl_density *density, uint64_t hash); /* 0: no memory */
void density_unit_free(struct sl_density *density, uint32_t unit);    /* it is in no row */
/* Gives its number from now on: beside those of the units that were wanted just before it, where that
 * can be done in a few steps. It is in no row. */
uint32_t density_unit_move(struct sl_density *density, uint32_t unit);
sl_err density_grow(struct sl_density *density); /* room for units; SL_ERR_NO_MEMORY */
/* Out of its cell, with what a use taught. */
void density_used(struct sl_density *density, uint32_t unit);
/* A unit is wanted: time goes on. */
void density_reference(struct sl_density *density);
/* What a registrar before noted, of which nothing is believed but what can be. */
void density_note_take(struct density_aged *at, const struct sl_density_note *note);
/* It is on disk alone from now on, in its cohort. */
void density_disk_count(struct sl_density *density, uint32_t unit);
/* From disk alone to none of the rows that only such units are in. */
void density_disk_leave(struct sl_density *density, uint32_t unit);
/* ---- density_ghosts.c ---- */
/* It became one. */
void density_ghost_note(struct sl_density *density, uint32_t unit);
/* One of before a restart counts from now on: in the cell of this age, at the young end. */
void density_ghost_restored(struct sl_density *density, uint32_t unit, uint32_t age);
/* Values anew. */
void density_settle(struct sl_density *density);

#endif
