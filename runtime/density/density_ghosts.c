/* runtime/density/density_ghosts.c - ghosts that outlive the process: what left is given out in
 * lots, and the next registrar is told of those.
 *
 * Without them a short history is forgotten with each restart: on the first 2,500 requests of the
 * conversation trace, 15,000 blocks, one restart in the middle costs 1.7 points of 25.2. */
#include "runtime/density/density_internal.h"

#include <string.h>

#define GONE_OF_FEW \
    6u /* ghosts a unit: with three, 2,000 and 5,000 blocks of that trace lose half a point by kills, or more */

static_assert(sizeof(struct sl_density_ghost) == 16, "a ghost's note has no gaps");

void density_ghost_note(struct sl_density *density, uint32_t unit)
{
    const struct density_aged *at = &density->ages[unit];
    if (density->gone_count == SL_DENSITY_GONE_LOT) {
        density->gone_count = 0; /* nobody takes them */
    }
    density->gone[density->gone_count++] = (struct sl_density_ghost){
        .hash = density->ages[unit].hash,
        .at = at->at,
        .class_index = at->class_index,
        .use_count = at->use_count,
    };
}

bool sl_density_gone_due(const struct sl_density *density)
{
    return density->gone_count == SL_DENSITY_GONE_LOT;
}

uint32_t sl_density_gone(struct sl_density *density, struct sl_density_ghost *out)
{
    uint32_t count = density->gone_count;
    if (count < SL_DENSITY_GONE_LOT) {
        return 0;
    }
    memcpy(out, density->gone, sizeof(density->gone));
    density->gone_count = 0;
    return count;
}

uint64_t sl_density_gone_lots(const struct sl_density *density)
{
    uint64_t units = density->unit_count;
    uint64_t of_few = SL_MIN(units * GONE_OF_FEW, density->set.ghosts_min);
    return SL_MAX(SL_MAX(units, of_few) / SL_DENSITY_GONE_LOT, units > 0);
}

/* A place for it among those that count when all is restored. 0: no memory, or more is known. */
static uint32_t ghost_place(struct sl_density *density, uint64_t hash)
{
    uint32_t unit = density_unit_of(density, hash);
    if (unit == 0) {
        return density_unit_new(density, hash);
    }
    if (density->ages[unit].state != UNIT_NAMED) {
        return 0;
    }
    density_row_remove(density, &density->ghosts, unit);
    density->ghost_count--;
    return unit;
}

void sl_density_ghosts_restore(struct sl_density *density, const void *bytes, uint32_t length_bytes)
{
    for (uint32_t at = length_bytes / sizeof(struct sl_density_ghost); at-- > 0;) {
        struct sl_density_ghost ghost;
        memcpy(&ghost, (const unsigned char *)bytes + at * sizeof(ghost), sizeof(ghost));
        uint32_t unit = ghost_place(density, ghost.hash);
        if (unit == 0) {
            continue;
        }
        const struct sl_density_note note = {
            .at = ghost.at, .class_index = ghost.class_index, .use_count = ghost.use_count};
        density_note_take(&density->ages[unit], &note);
        density->ages[unit].state = UNIT_RESTORED_GHOST;
        density_row_append(density, &density->restored, unit);
    }
}

void density_ghost_restored(struct sl_density *density, uint32_t unit, uint32_t age)
{
    density->ages[unit].state = UNIT_GHOST;
    density_cohort_join(density, unit, age);
    density_row_append(density, &density->ghosts, unit);
    density->ghost_count++;
}
