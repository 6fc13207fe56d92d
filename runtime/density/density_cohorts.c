/* runtime/density/density_cohorts.c - units that get older as one, and the rows of what is in memory.
 *
 * By age a cohort stands with those of its cell, by when they were used; by turn with those of its cell
 * and weight, while it has units in memory, and there its units stand one behind the other. So what
 * a unit costs that gets older is shared by its cohort. */
#include "runtime/density/density_internal.h"

/* Of an age so much, and so many references at least, are between the first and the last of a cohort. */
#define SPAN_SHARE 8u
#define SPAN_LEAST 8u
/* Blocks of a request stay together for so many times as long: the end of a chain is found at once. */
#define CHAIN_SPANS 8u

/* ---- rows of cohorts ---- */

static struct row *age_row(struct sl_density *density, const struct density_cohort *at)
{
    return &density->by_age[at->age][at->class_index];
}

static void age_append(struct sl_density *density, uint32_t cohort)
{
    struct density_cohort *cohorts = density->cohorts;
    struct density_cohort *at = &cohorts[cohort];
    struct row *row = age_row(density, at);
    density->aged[at->age] |= UINT64_C(1) << at->class_index;
    at->in = (struct pair){.older = row->newest};
    if (row->newest != 0) {
        cohorts[row->newest].in.newer = cohort;
    } else {
        row->oldest = cohort;
    }
    row->newest = cohort;
}

static void age_remove(struct sl_density *density, uint32_t cohort)
{
    struct density_cohort *cohorts = density->cohorts;
    struct row *row = age_row(density, &cohorts[cohort]);
    struct pair out = cohorts[cohort].in;
    if (out.older != 0) {
        cohorts[out.older].in.newer = out.newer;
    } else {
        row->oldest = out.newer;
    }
    if (out.newer != 0) {
        cohorts[out.newer].in.older = out.older;
    } else {
        row->newest = out.older;
    }
}

static void turn_append(struct sl_density *density, uint32_t cohort)
{
    struct density_cohort *cohorts = density->cohorts;
    uint32_t turn = density_turn_of(&cohorts[cohort]);
    struct row *row = &density->by_turn[turn];
    cohorts[cohort].turn = (struct pair){.older = row->newest};
    if (row->newest != 0) {
        cohorts[row->newest].turn.newer = cohort;
    } else {
        row->oldest = cohort;
    }
    row->newest = cohort;
    density_turn_mark(density, turn);
}

static void turn_prepend(struct sl_density *density, uint32_t cohort)
{
    struct density_cohort *cohorts = density->cohorts;
    uint32_t turn = density_turn_of(&cohorts[cohort]);
    struct row *row = &density->by_turn[turn];
    cohorts[cohort].turn = (struct pair){.newer = row->oldest};
    if (row->oldest != 0) {
        cohorts[row->oldest].turn.older = cohort;
    } else {
        row->newest = cohort;
    }
    row->oldest = cohort;
    density_turn_mark(density, turn);
}

static void turn_remove(struct sl_density *density, uint32_t cohort)
{
    struct density_cohort *cohorts = density->cohorts;
    uint32_t turn = density_turn_of(&cohorts[cohort]);
    struct row *row = &density->by_turn[turn];
    struct pair out = cohorts[cohort].turn;
    if (out.older != 0) {
        cohorts[out.older].turn.newer = out.newer;
    } else {
        row->oldest = out.newer;
    }
    if (out.newer != 0) {
        cohorts[out.newer].turn.older = out.older;
    } else {
        row->newest = out.older;
    }
    density_turn_mark(density, turn);
}

/* ---- cohorts ---- */

/* The number of a new one; there are as many as units, so one is always left. */
static uint32_t cohort_new(struct sl_density *density)
{
    uint32_t cohort = density->cohort_vacant;
    if (cohort != 0) {
        density->cohort_vacant = density->cohorts[cohort].in.newer;
    } else {
        cohort = density->cohort_high++;
        SL_ASSERT(cohort < density->capacity);
    }
    density->cohorts[cohort] = (struct density_cohort){0};
    return cohort;
}

static uint32_t span(const struct sl_density *density, uint32_t age)
{
    uint64_t width =
        density->rates.end[age] - (age > density->rates.start ? density->rates.end[age - 1] : 0);
    return (uint32_t)SL_MIN(SL_MAX(width / SPAN_SHARE, (uint64_t)SPAN_LEAST), (uint64_t)INT32_MAX);
}

/* One of the last of the cell that a unit of this weight, used then, gets older with; 0: none. */
static uint32_t cohort_find(const struct sl_density *density, uint32_t number, uint32_t age)
{
    const struct density_aged *unit = &density->ages[number];
    uint32_t most = span(density, age);
    const struct density_aged *parent = &density->ages[density->units[number].parent];
    const struct density_cohort *with = &density->cohorts[parent->cohort];
    if (parent->state == UNIT_HERE && with->age == age && with->class_index == unit->class_index &&
        with->weight == unit->weight && unit->at - with->at < most * CHAIN_SPANS) {
        return parent->cohort;
    }
    uint32_t cohort = density->by_age[age][unit->class_index].newest;
    for (uint32_t steps = 0; cohort != 0 && steps < SL_DENSITY_PRIORITIES; steps++) {
        const struct density_cohort *at = &density->cohorts[cohort];
        if (at->weight == unit->weight && unit->at - at->at < most) {
            return cohort;
        }
        cohort = at->in.older;
    }
    return 0;
}

void density_cohort_join(struct sl_density *density, uint32_t unit, uint32_t age)
{
    struct density_aged *at = &density->ages[unit];
    uint32_t cohort = cohort_find(density, unit, age);
    if (cohort == 0) {
        cohort = cohort_new(density);
        struct density_cohort *fresh = &density->cohorts[cohort];
        fresh->at = at->at;
        fresh->class_index = at->class_index;
        fresh->age = (uint8_t)age;
        fresh->weight = at->weight;
        age_append(density, cohort);
    }
    at->cohort = cohort;
    density->cohorts[cohort].count++;
}

void density_cohort_leave(struct sl_density *density, uint32_t unit)
{
    uint32_t cohort = density->ages[unit].cohort;
    struct density_cohort *at = &density->cohorts[cohort];
    density->ages[unit].cohort = 0;
    if (--at->count > 0) {
        return;
    }
    age_remove(density, cohort);
    at->in = (struct pair){.newer = density->cohort_vacant};
    density->cohort_vacant = cohort;
}

void density_cohort_older(struct sl_density *density, uint32_t cohort)
{
    struct density_cohort *at = &density->cohorts[cohort];
    bool here = at->here.oldest != 0;
    age_remove(density, cohort);
    if (here) {
        turn_remove(density, cohort);
    }
    at->age++;
    age_append(density, cohort);
    if (here) {
        turn_append(density, cohort);
    }
}

/* ---- units in memory ---- */

void density_turn_enter(struct sl_density *density, uint32_t unit, uint32_t before)
{
    struct density_aged *ages = density->ages;
    uint32_t cohort = ages[unit].cohort;
    struct row *row = &density->cohorts[cohort].here;
    bool first = row->oldest == 0;
    if (before == 0) {
        density_row_append(density, row, unit);
    } else {
        uint32_t older = ages[before].turn.older;
        ages[unit].turn = (struct pair){.older = older, .newer = before};
        ages[before].turn.older = unit;
        *(older != 0 ? &ages[older].turn.newer : &row->oldest) = unit;
    }
    if (first) {
        turn_append(density, cohort);
    }
}

void density_turn_first(struct sl_density *density, uint32_t unit)
{
    uint32_t cohort = density->ages[unit].cohort;
    const struct row *row = &density->cohorts[cohort].here;
    if (row->oldest != 0) {
        density_turn_enter(density, unit, row->oldest);
        return;
    }
    density_row_append(density, &density->cohorts[cohort].here, unit);
    turn_prepend(density, cohort);
}

void density_turn_leave(struct sl_density *density, uint32_t unit)
{
    uint32_t cohort = density->ages[unit].cohort;
    struct row *row = &density->cohorts[cohort].here;
    density_row_remove(density, row, unit);
    if (row->oldest == 0) {
        turn_remove(density, cohort);
    }
}
