/* runtime/density/density_restart.c - what the next registrar is told, and how it goes on. */
#include "runtime/density/density_internal.h"

#include <stdlib.h>
#include <string.h>

#define LEARNT_MAX 1e15f
/* A note of the last registrar is at most so far behind what it knew. */
#define CLOCK_AHEAD_MAX (UINT32_C(1) << 30)

void sl_density_note(const struct sl_density *density, uint32_t unit, struct sl_density_note *out)
{
    const struct density_aged *at = &density->ages[unit];
    const struct density_unit *kept = &density->units[unit];
    *out = (struct sl_density_note){
        .at = at->at,
        .class_index = at->class_index,
        .use_count = at->use_count,
        .priority = (enum reg_priority)(at->weight + 1u),
        .keep = {.end_s = kept->keep_end_s, .pages = kept->keep_pages, .once = kept->keep_once},
    };
}

uint32_t sl_density_restore(struct sl_density *density, uint64_t hash, uint32_t user,
                            uint64_t parent_hash, const struct sl_density_note *note)
{
    uint32_t unit = density_unit_of(density, hash);
    if (density_in_memory(&density->ages[unit])) {
        return 0;
    }
    unit = density_unit_come(density, hash, unit, user);
    if (unit == 0) {
        return 0;
    }
    density_parent_find(density, unit, parent_hash);
    struct density_aged *at = &density->ages[unit];
    density_note_take(at, note);
    if (note->priority > REG_PRIORITY_NONE && note->priority < REG_PRIORITY_COUNT) {
        at->weight = ((uint32_t)note->priority - 1u) & 3u;
    }
    density->units[unit].keep_end_s = note->keep.end_s;
    density->units[unit].keep_pages = note->keep.pages & REG_KEEP_PAGES_MAX;
    density_row_append(density, &density->restored, unit);
    at->state = UNIT_RESTORED;
    return unit;
}

static int restored_compare(const void *left, const void *right, void *context)
{
    const struct sl_density *density = context;
    uint64_t a = density_age_references(density, &density->ages[*(const uint32_t *)left]);
    uint64_t b = density_age_references(density, &density->ages[*(const uint32_t *)right]);
    return a > b ? -1 : a < b;
}

/* The clock goes on from the last use that anybody noted. */
static uint32_t restored_clock(struct sl_density *density)
{
    uint32_t count = 0;
    for (uint32_t unit = density->restored.oldest; unit != 0;
         unit = density->ages[unit].turn.newer) {
        uint32_t ahead = density->ages[unit].at - (uint32_t)density->references;
        density->references += ahead < CLOCK_AHEAD_MAX ? ahead : 0;
        count++;
    }
    return count;
}

/* Gives whether it is one of those that are not in memory. */
static bool restored_away(struct sl_density *density, uint32_t unit, uint32_t age)
{
    const struct density_aged *at = &density->ages[unit];
    if (at->state == UNIT_RESTORED_GHOST) {
        density_ghost_restored(density, unit, age);
        return true;
    }
    if (at->state != UNIT_RESTORED_DISK) {
        return false;
    }
    density_cohort_join(density, unit, age);
    density_disk_count(density, unit);
    return true;
}

static uint32_t restored_age(const struct sl_density *density, const struct density_aged *at)
{
    uint64_t references = density_age_references(density, at);
    uint32_t age = density->rates.start;
    while (age + 1u < SL_DENSITY_AGES && references >= density->rates.end[age]) {
        age++;
    }
    return age;
}

void sl_density_restored(struct sl_density *density)
{
    uint32_t count = restored_clock(density);
    uint32_t *sorted = count > 0 ? malloc(count * sizeof(*sorted)) : NULL;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t unit = density->restored.oldest;
        density_row_remove(density, &density->restored, unit);
        if (sorted != NULL) {
            sorted[i] = unit;
        } else if (!restored_away(
                       density, unit,
                       density->rates.start)) { /* no memory: in the order of the records */
            density->ages[unit].state = UNIT_HERE;
            density_cell_enter(density, unit, density->rates.start);
        }
    }
    if (sorted != NULL) {
        qsort_r(sorted, count, sizeof(*sorted), restored_compare, density);
    }
    for (uint32_t i = 0; sorted != NULL && i < count; i++) {
        struct density_aged *at = &density->ages[sorted[i]];
        uint32_t age = restored_age(density, at);
        if (restored_away(density, sorted[i], age)) {
            continue;
        }
        at->state = UNIT_HERE; /* not before: who follows it looks for it in its row */
        density_cell_enter(density, sorted[i], age);
    }
    free(sorted);
    density_ghosts_bound(density);
    density->older_at = density->references;
    if (density->learnt) {
        density_settle(density);
    }
}

/* What is learnt, in bytes: its length in cells, the references, and floats. */
struct learnt {
    uint64_t references;
    uint32_t cell_count;
    uint16_t ages, start;
    float exposure[SL_DENSITY_CELLS], wanted[SL_DENSITY_CELLS];
};
static_assert(sizeof(struct learnt) == SL_DENSITY_LEARNT_BYTES, "what is learnt has no gaps");

uint32_t sl_density_learnt(const struct sl_density *density, void *out)
{
    struct learnt *learnt = out;
    learnt->references = density->references;
    learnt->cell_count = SL_DENSITY_CELLS;
    learnt->ages = SL_DENSITY_AGES;
    learnt->start = (uint16_t)density->rates.start;
    for (uint32_t cell = 0; cell < SL_DENSITY_CELLS; cell++) {
        learnt->exposure[cell] = (float)density->rates.exposure[cell];
        learnt->wanted[cell] = (float)density->rates.wanted[cell];
    }
    return sizeof(*learnt);
}

bool sl_density_learn(struct sl_density *density, const void *bytes, uint32_t length_bytes)
{
    struct learnt learnt;
    if (length_bytes != sizeof(learnt)) {
        return false;
    }
    memcpy(&learnt, bytes, sizeof(learnt));
    bool fine = learnt.cell_count == SL_DENSITY_CELLS && learnt.ages == SL_DENSITY_AGES &&
                learnt.start < SL_DENSITY_AGES;
    for (uint32_t cell = 0; fine && cell < SL_DENSITY_CELLS; cell++) {
        fine = learnt.exposure[cell] >= 0 && learnt.exposure[cell] < LEARNT_MAX &&
               learnt.wanted[cell] >= 0 && learnt.wanted[cell] < LEARNT_MAX;
    }
    if (!fine) {
        return false;
    }
    for (uint32_t cell = 0; cell < SL_DENSITY_CELLS; cell++) {
        density->rates.exposure[cell] = (double)learnt.exposure[cell];
        density->rates.wanted[cell] = (double)learnt.wanted[cell];
    }
    density->rates.start = learnt.start;
    density->references = learnt.references;
    density->settle_at = density->references + SETTLE_REFERENCES;
    density->halved_at = density->references;
    density->older_at = density->references;
    density_settle(density);
    density->learnt = true;
    return true;
}
