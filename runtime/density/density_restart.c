/* runtime/density/density_restart.c - what the next registrar is told, and how it goes on. */
#include "runtime/density/density_internal.h"

#include <stdlib.h>
#include <string.h>

#define LEARNT_MAX 1e15f
/* A note of the last registrar is at most so far behind what it knew. */
#define CLOCK_AHEAD_MAX (UINT32_C(1) << 30)

void sl_density_note(const struct sl_density *density, uint32_t unit, struct sl_density_note *out)
{
    const struct density_unit *at = &density->units[unit];
    *out = (struct sl_density_note){
        .at = at->at,
        .class_index = at->class_index,
        .use_count = at->use_count,
        .priority = (enum reg_priority)(at->weight + 1u),
        .keep = {.end_s = at->keep_end_s, .pages = at->keep_pages},
    };
}

uint32_t sl_density_restore(struct sl_density *density, uint64_t hash, uint32_t user,
                            uint64_t parent_hash, const struct sl_density_note *note)
{
    uint32_t unit = density_unit_come(density, hash, user);
    if (unit == 0) {
        return 0;
    }
    density_parent_find(density, unit, parent_hash);
    struct density_unit *at = &density->units[unit];
    at->at = note->at;
    at->use_count = (uint8_t)SL_MAX(note->use_count, 1);
    at->class_index = note->class_index < SL_DENSITY_CLASSES ? note->class_index : 0;
    if (note->priority > REG_PRIORITY_NONE && note->priority < REG_PRIORITY_COUNT) {
        at->weight = ((uint32_t)note->priority - 1u) & 3u;
    }
    at->keep_end_s = note->keep.end_s;
    at->keep_pages = note->keep.pages & REG_KEEP_PAGES_MAX;
    density_row_append(density, &density->restored, ROW_TURN, unit);
    at->state = UNIT_RESTORED;
    return unit;
}

static int restored_compare(const void *left, const void *right, void *context)
{
    const struct sl_density *density = context;
    uint64_t a = density_age_references(density, &density->units[*(const uint32_t *)left]);
    uint64_t b = density_age_references(density, &density->units[*(const uint32_t *)right]);
    return a > b ? -1 : a < b;
}

/* The clock goes on from the last use that anybody noted. */
static uint32_t restored_clock(struct sl_density *density)
{
    uint32_t count = 0;
    for (uint32_t unit = density->restored.oldest; unit != 0;
         unit = density->units[unit].in[ROW_TURN].newer) {
        uint32_t ahead = density->units[unit].at - (uint32_t)density->references;
        density->references += ahead < CLOCK_AHEAD_MAX ? ahead : 0;
        count++;
    }
    return count;
}

static void restored_to_disk(struct sl_density *density, uint32_t unit)
{
    uint32_t cell = density_cell_of(&density->units[unit]);
    density->units[unit].state = UNIT_DISK;
    density_row_append(density, &density->by_age[cell], ROW_AGE, unit);
    density->on_disk[cell]++;
}

void sl_density_restored(struct sl_density *density)
{
    uint32_t count = restored_clock(density);
    uint32_t *sorted = count > 0 ? malloc(count * sizeof(*sorted)) : NULL;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t unit = density->restored.oldest;
        density_row_remove(density, &density->restored, ROW_TURN, unit);
        if (density->units[unit].state == UNIT_RESTORED_DISK && sorted == NULL) {
            restored_to_disk(density, unit);
        } else if (sorted != NULL) {
            sorted[i] = unit;
        } else { /* no memory: in the order of the records */
            density->units[unit].state = UNIT_HERE;
            density_cell_enter(density, unit);
        }
    }
    if (sorted != NULL) {
        qsort_r(sorted, count, sizeof(*sorted), restored_compare, density);
    }
    for (uint32_t i = 0; sorted != NULL && i < count; i++) {
        struct density_unit *at = &density->units[sorted[i]];
        uint64_t age = density_age_references(density, at);
        while (at->age + 1u < SL_DENSITY_AGES && age >= density->rates.end[at->age]) {
            at->age++;
        }
        if (at->state == UNIT_RESTORED_DISK) {
            restored_to_disk(density, sorted[i]);
            continue;
        }
        at->state = UNIT_HERE; /* not before: who follows it looks for it in its row */
        density_cell_enter(density, sorted[i]);
    }
    free(sorted);
    density->older_at = density->references;
}

/* What is learnt, in bytes: its length in cells, the references, and floats. */
struct learnt {
    uint64_t references;
    uint32_t cell_count, ages;
    float exposure[SL_DENSITY_CELLS], wanted[SL_DENSITY_CELLS];
};
static_assert(sizeof(struct learnt) == SL_DENSITY_LEARNT_BYTES, "what is learnt has no gaps");

uint32_t sl_density_learnt(const struct sl_density *density, void *out)
{
    struct learnt *learnt = out;
    learnt->references = density->references;
    learnt->cell_count = SL_DENSITY_CELLS;
    learnt->ages = SL_DENSITY_AGES;
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
    bool fine = learnt.cell_count == SL_DENSITY_CELLS && learnt.ages == SL_DENSITY_AGES;
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
    density->references = learnt.references;
    density->settle_at = density->references + SETTLE_REFERENCES;
    density->halve_at = density->references + HALVE_REFERENCES;
    density->older_at = density->references;
    density_settle(density);
    density->learnt = true;
    return true;
}
