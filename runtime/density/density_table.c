/* runtime/density/density_table.c - the memory of units, and which unit a hash has. */
#include "runtime/density/density_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define UNITS_FIRST 1024u
#define UNITS_MAX   (UINT32_C(1) << 30)

/* What a place of the table says of a hash: of places that are passed by no unit is looked at. */
static uint32_t hash_fold(uint64_t hash)
{
    return (uint32_t)(hash ^ (hash >> 32));
}

/* The place where it is, or would be: 0. */
static uint32_t table_place(const struct sl_density *density, uint64_t hash)
{
    uint32_t fold = hash_fold(hash);
    uint32_t at = fold & density->table_mask;
    while (density->table[at] != 0 && ((uint32_t)(density->table[at] >> 32) != fold ||
                                       density->hashes[(uint32_t)density->table[at]] != hash)) {
        at = (at + 1) & density->table_mask;
    }
    return at;
}

uint32_t density_unit_of(const struct sl_density *density, uint64_t hash)
{
    return (uint32_t)density->table[table_place(density, hash)];
}

void sl_density_fetch(const struct sl_density *density, uint64_t hash)
{
    __builtin_prefetch(&density->table[hash_fold(hash) & density->table_mask], 1);
}

static void table_add(struct sl_density *density, uint64_t hash, uint32_t unit)
{
    density->table[table_place(density, hash)] = (uint64_t)hash_fold(hash) << 32 | unit;
}

static void table_remove(struct sl_density *density, uint32_t unit)
{
    uint32_t mask = density->table_mask;
    uint32_t hole = hash_fold(density->hashes[unit]) & mask;
    while ((uint32_t)density->table[hole] != unit) {
        hole = (hole + 1) & mask;
    }
    for (uint32_t at = (hole + 1) & mask; density->table[at] != 0; at = (at + 1) & mask) {
        uint32_t home = (uint32_t)(density->table[at] >> 32) & mask;
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            density->table[hole] = density->table[at];
            hole = at;
        }
    }
    density->table[hole] = 0;
}

/* From this size on tables ask for huge pages: what is touched at random would else miss the
 * processor's table of pages nearly each time. */
#define HUGE_BYTES ((size_t)2 << 20)

static void *table_alloc(size_t bytes)
{
    if (bytes < HUGE_BYTES) {
        return malloc(bytes);
    }
    void *at = aligned_alloc(HUGE_BYTES, sl_align_up(bytes, HUGE_BYTES));
    if (at != NULL) {
        (void)madvise(at, bytes, MADV_HUGEPAGE); /* where the system allows it */
    }
    return at;
}

static bool table_grow(void **table, size_t bytes, uint32_t was, uint32_t count)
{
    void *fresh = table_alloc(bytes * count);
    if (fresh == NULL) {
        return false;
    }
    if (was > 0) {
        memcpy(fresh, *table, bytes * was);
    } else {
        memset(fresh, 0, bytes * count); /* later ones are written before they are read, too */
    }
    free(*table);
    *table = fresh;
    return true;
}

/* Twice as many units, and a table of two places a unit. */
sl_err density_grow(struct sl_density *density)
{
    uint32_t capacity = density->capacity == 0 ? UNITS_FIRST : density->capacity * 2;
    if (capacity > UNITS_MAX) {
        return SL_ERR_NO_MEMORY;
    }
    /* Should one fail, those before it are larger than they need be. */
    if (!table_grow((void **)&density->ages, sizeof(*density->ages), density->capacity, capacity) ||
        !table_grow((void **)&density->turns, sizeof(*density->turns), density->capacity,
                    capacity) ||
        !table_grow((void **)&density->hashes, sizeof(*density->hashes), density->capacity,
                    capacity) ||
        !table_grow((void **)&density->units, sizeof(*density->units), density->capacity,
                    capacity)) {
        return SL_ERR_NO_MEMORY;
    }
    uint64_t *table = table_alloc((size_t)capacity * 2 * sizeof(*table));
    if (table == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    memset(table, 0, (size_t)capacity * 2 * sizeof(*table));
    free(density->table);
    density->table = table;
    density->table_mask = capacity * 2 - 1;
    density->capacity = capacity;
    for (uint32_t unit = 1; unit < density->high; unit++) {
        if (density->ages[unit].state != UNIT_FREE) {
            table_add(density, density->hashes[unit], unit);
        }
    }
    return SL_OK;
}

uint32_t density_unit_new(struct sl_density *density, uint64_t hash)
{
    uint32_t unit = density->free;
    if (unit == 0 && density->high >= density->capacity && density_grow(density) != SL_OK) {
        return 0;
    }
    if (unit != 0) {
        density->free = density->turns[unit].newer;
        density->free_newest = density->free != 0 ? density->free_newest : 0;
    } else {
        unit = density->high++;
    }
    density->ages[unit] = (struct density_aged){0};
    density->turns[unit] = (struct pair){0};
    density->hashes[unit] = hash;
    density->units[unit] = (struct density_unit){0};
    table_add(density, hash, unit);
    return unit;
}

void density_unit_free(struct sl_density *density, uint32_t unit)
{
    table_remove(density, unit);
    density->ages[unit].state = UNIT_FREE;
    density->turns[unit] = (struct pair){0};
    density->units[unit].child = 0;
    if (density->free_newest != 0) {
        density->turns[density->free_newest].newer = unit;
    } else {
        density->free = unit;
    }
    density->free_newest = unit;
}
