/* runtime/density/density_disk.c - units that are on disk alone.
 *
 * They are ghosts that nobody forgets: in the rows by age, so that what becomes of them teaches,
 * and counted by cell, so that it is known which of them are worth most. */
#include "runtime/density/density_internal.h"

void density_note_take(struct density_aged *at, const struct sl_density_note *note)
{
    at->at = note->at;
    at->use_count = (uint8_t)SL_MAX(note->use_count, 1);
    at->class_index = note->class_index < SL_DENSITY_CLASSES ? note->class_index : 0;
}

/* Nothing is known of it, but that it was stored once. */
static void unknown_take(struct sl_density *density, struct density_aged *at)
{
    at->at = (uint32_t)density->references;
    at->use_count = 1;
    at->class_index = (uint8_t)sl_rates_class(1, 1, false, REG_HINT_NONE);
}

void density_disk_count(struct sl_density *density, uint32_t unit)
{
    struct density_aged *at = &density->ages[unit];
    at->state = UNIT_DISK;
    density->cohorts[at->cohort].disk_count++;
    density->on_disk[density_cell_of(density, at)]++;
}

void sl_density_disk_enter(struct sl_density *density, uint64_t hash,
                           const struct sl_density_note *note)
{
    uint32_t unit = density_unit_of(density, hash);
    if (unit == 0) {
        unit = density_unit_new(density, hash);
        if (unit == 0) {
            return; /* no memory: nothing is known of it */
        }
    } else if (density->ages[unit].state == UNIT_GHOST || density->ages[unit].state == UNIT_NAMED) {
        density_row_remove(density, &density->ghosts, unit);
        density->ghost_count--;
    } else {
        return; /* another record has this hash */
    }
    struct density_aged *at = &density->ages[unit];
    density->disk_count++;
    if (at->state != UNIT_GHOST && note != NULL) { /* its row follows when all are there */
        density_note_take(at, note);
        at->state = UNIT_RESTORED_DISK;
        density_row_append(density, &density->restored, unit);
        return;
    }
    if (at->state != UNIT_GHOST) {
        unknown_take(density, at);
        density_cohort_join(density, unit, density->rates.start);
    }
    density_disk_count(density, unit);
}

void density_disk_leave(struct sl_density *density, uint32_t unit)
{
    struct density_aged *at = &density->ages[unit];
    if (at->state == UNIT_RESTORED_DISK) {
        density_row_remove(density, &density->restored, unit);
    } else {
        density->cohorts[at->cohort].disk_count--;
        density->on_disk[density_cell_of(density, at)]--;
    }
    density->disk_count--;
}

void sl_density_disk_leave(struct sl_density *density, uint64_t hash)
{
    uint32_t unit = density_unit_of(density, hash);
    struct density_aged *at = &density->ages[unit];
    if (unit == 0 || (at->state != UNIT_DISK && at->state != UNIT_RESTORED_DISK)) {
        return;
    }
    density_disk_leave(density, unit);
    at->state = at->state == UNIT_DISK ? UNIT_GHOST : UNIT_NAMED;
    if (at->state == UNIT_GHOST) {
        density_ghost_note(density, unit);
    }
    density_row_append(density, &density->ghosts, unit);
    density->ghost_count++;
    density_ghosts_bound(density);
}

/* It stays where it is by age. */
static uint32_t return_unwanted(struct sl_density *density, uint32_t unit, uint32_t user,
                                uint64_t parent_hash)
{
    density_row_remove(density, &density->ghosts, unit);
    density->ghost_count--;
    density->unit_count++;
    density_parent_find(density, unit, parent_hash);
    struct density_aged *at = &density->ages[unit];
    at->user = user;
    density->units[unit].keep_pages = 0;
    density->units[unit].keep_end_s = 0;
    at->state = UNIT_HERE;
    density_turn_enter(density, unit, 0);
    density_ghosts_bound(density);
    return unit;
}

uint32_t sl_density_return(struct sl_density *density, uint64_t hash, uint32_t user,
                           const struct reg_wanted *how, bool wanted)
{
    uint32_t unit = density_unit_of(density, hash);
    if (unit != 0 && density->ages[unit].state == UNIT_GHOST && !wanted) {
        return return_unwanted(density, unit, user, how->parent_hash);
    }
    unit = sl_density_enter(density, hash, user, how);
    if (unit != 0) {
        density->ages[unit].counted = wanted;
    }
    return unit;
}

double sl_density_value(const struct sl_density *density, uint64_t hash)
{
    uint32_t unit = density_unit_of(density, hash);
    const struct density_aged *at = &density->ages[unit];
    return unit == 0 || at->state == UNIT_NAMED
               ? 0.0
               : density->rates.value[density_cell_of(density, at)];
}

uint32_t sl_density_uses(const struct sl_density *density, uint64_t hash)
{
    uint32_t unit = density_unit_of(density, hash);
    return unit == 0 ? 0 : density->ages[unit].use_count;
}

double sl_density_disk_cut(const struct sl_density *density, double share)
{
    double left = share * (double)density->disk_count;
    for (uint32_t place = SL_DENSITY_CELLS; place-- > 0;) {
        uint32_t cell = density->rates.order[place];
        left -= (double)density->on_disk[cell];
        if (left < 0) {
            return density->rates.value[cell];
        }
    }
    return 0.0;
}

double sl_density_likely(const struct sl_density *density, uint64_t hash)
{
    uint32_t unit = density_unit_of(density, hash);
    const struct density_aged *at = &density->ages[unit];
    if (!density->learnt) {
        return 1.0;
    }
    return unit == 0 || at->state == UNIT_NAMED
               ? 0.0
               : density->rates.chance[density_cell_of(density, at)];
}

void sl_density_horizon(struct sl_density *density, uint64_t references)
{
    density->rates.horizon = references;
}
