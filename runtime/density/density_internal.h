/* runtime/density/density_internal.h - what the files of density_units.h share. */
#ifndef SL_DENSITY_INTERNAL_H
#define SL_DENSITY_INTERNAL_H

#include "runtime/density/density_units.h"
#include "runtime/sl_base.h"

#include <assert.h>

/* Values are computed anew after so many references, and what was seen counts half after so many. */
#define SETTLE_REFERENCES UINT64_C(1000)
#define HALVE_REFERENCES  UINT64_C(150000)
#define RANK_WORDS        ((SL_DENSITY_TURNS + 63u) / 64u)

/* SUNK and KEPT are in memory, too. NAMED: others follow it, and it did not come yet. DISK: on disk
 * alone. The last two: in memory or on disk alone before a restart. */
enum unit_state {
    UNIT_FREE,
    UNIT_HERE,
    UNIT_SUNK,
    UNIT_KEPT,
    UNIT_GHOST,
    UNIT_NAMED,
    UNIT_DISK,
    UNIT_RESTORED,
    UNIT_RESTORED_DISK
};
enum row_kind { ROW_AGE, ROW_TURN, ROW_SIBLINGS, ROW_COUNT };

struct pair {
    uint32_t older, newer;
};

struct density_unit {
    uint64_t hash;
    uint32_t user;
    uint32_t at; /* when it was used last, in references, modulo 2^32 */
    uint32_t parent;
    uint32_t
        child; /* of those in memory the one used last; the ring of siblings goes on; 0: none */
    struct pair in[ROW_COUNT]; /* of a free one: the next is in[ROW_TURN].newer */
    uint8_t class_index, age, use_count;
    uint8_t state : 7;
    uint8_t counted : 1; /* it came for a use that its reader will tell of again */
    uint32_t walk;       /* the last one that gave it and was told that it goes */
    uint32_t keep_end_s;
    uint32_t keep_pages : 30; /* 0: it is not to be kept */
    uint32_t weight : 2;      /* of its hits: 0 low, 1 normal, 2 high */
};
static_assert(sizeof(struct density_unit) == 64, "what a unit costs stands in the README");

struct row {
    uint32_t oldest, newest;
};

struct sl_density {
    struct sl_rates rates;
    struct sl_density_options set;
    struct density_unit *units; /* number 0 is none */
    uint32_t capacity, high, free;
    uint32_t *table; /* numbers by hash; 0: empty */
    uint32_t table_mask;
    uint64_t unit_count, ghost_count, disk_count;
    uint64_t on_disk[SL_DENSITY_CELLS]; /* units on disk alone */
    uint64_t references, settle_at, halve_at;
    bool learnt;                                      /* values were computed from what was seen */
    uint64_t older_at, older_age_at[SL_DENSITY_AGES]; /* the first of them, and each age's */
    struct row by_age[SL_DENSITY_CELLS];
    struct row by_turn[SL_DENSITY_TURNS];                               /* cells by weight */
    uint16_t turn_order[SL_DENSITY_TURNS], turn_rank[SL_DENSITY_TURNS]; /* as of cells */
    struct row sunk;                                                    /* go before all cells */
    struct row
        kept; /* and these behind them; a clock: whose turn it is to be looked at is oldest */
    struct row ghosts;
    struct row restored;         /* between restore and restored */
    uint64_t filled[RANK_WORDS]; /* by rank: turns with a unit in memory */
    uint32_t now_s;
    uint64_t kept_count, kept_pages, kept_pages_max;
    /* As of a cell, of what is kept; and what that was worth that went last. */
    double kept_exposure, kept_wanted, edge;
    /* the walk: the unit of a row that it stands at, what it gave for it, and where it goes on */
    uint32_t walk_base, walk_given, walk_next;
    uint32_t walk_number; /* 1 and on */
};

static inline uint32_t density_cell_of(const struct density_unit *unit)
{
    return sl_rates_cell(unit->class_index, unit->age);
}

static inline uint32_t density_turn_of(const struct density_unit *unit)
{
    return unit->weight * SL_DENSITY_CELLS + density_cell_of(unit);
}

static inline bool density_in_memory(const struct density_unit *unit)
{
    return unit->state == UNIT_HERE || unit->state == UNIT_SUNK || unit->state == UNIT_KEPT ||
           unit->state == UNIT_RESTORED;
}

static inline uint64_t density_age_references(const struct sl_density *density,
                                              const struct density_unit *unit)
{
    return (uint32_t)density->references - unit->at;
}

void density_row_append(struct sl_density *density, struct row *row, enum row_kind kind,
                        uint32_t unit);
void density_row_remove(struct sl_density *density, struct row *row, enum row_kind kind,
                        uint32_t unit);
/* Out of the row of what is in memory. */
void density_turn_remove(struct sl_density *density, uint32_t unit);
/* Into that of its turn: before the others of its cell when it waited elsewhere. */
void density_turn_first(struct sl_density *density, uint32_t unit);
/* ---- density_keep.c ---- */
void density_kept_enter(struct sl_density *density, uint32_t unit);
void density_kept_leave(struct sl_density *density, const struct density_unit *unit);
/* A reference came: one of those that are kept is looked at. */
void density_kept_look(struct sl_density *density);
/* The unit that goes after this one, chains aside; 0: none. */
uint32_t density_turn_after(const struct sl_density *density, uint32_t unit);
/* A place for what comes to memory, in no row yet, with what its ghost knew; 0: no memory. */
uint32_t density_unit_come(struct sl_density *density, uint64_t hash, uint32_t user);
void density_parent_find(struct sl_density *density, uint32_t unit, uint64_t parent_hash);
/* To the young end of its cell, whose rows it is not in. */
void density_cell_enter(struct sl_density *density, uint32_t unit);
void density_ghosts_bound(struct sl_density *density);
/* The place of the table where it is, or would be: 0. */
uint32_t *density_table_place(const struct sl_density *density, uint64_t hash);
uint32_t density_unit_new(struct sl_density *density, uint64_t hash); /* 0: no memory */
/* Out of its cell, with what a use taught. */
void density_used(struct sl_density *density, uint32_t unit);
/* A unit is wanted: time goes on. */
void density_reference(struct sl_density *density);
/* In memory, at the young end of the turns of the cell where it is by age already. */
void density_turn_enter(struct sl_density *density, uint32_t unit);
/* From disk alone to none of the rows that only such units are in. */
void density_disk_leave(struct sl_density *density, uint32_t unit);
/* Values anew. */
void density_settle(struct sl_density *density);

#endif
