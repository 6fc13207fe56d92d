/* actors/registrar/evict.c - making room: victims by recency, the scan of all pins, extents that
 * wait for a pin.
 *
 * Order (DESIGN section 4): victims leave the table or are switched to disk alone; fence (seq_cst);
 * every pin slot is read; what is not pinned is reused, the rest stays RETIRED until a later scan.
 */
#include "actors/registrar/internal.h"

#include <stdlib.h>

/* Units looked at for one batch: those at the old end that are not on disk yet are passed by. */
#define EVICT_LOOKED_MAX  16384u
#define EVICT_ROUNDS_MAX  4096u
#define TAKE_TRIES_MAX    64u
#define GROW_STEPS_MAX    4u
#define VICTIM_SLOTS_MIN  16u
#define INDEX_BATCH_UNITS 64u
#define QUIET_LOOKED_MAX  1024u
#define QUIET_UNITS_MIN   64u
#define QUIET_UNITS_MAX   256u
#define QUIET_TRIES_MAX   8u

/* ---- retired extents ---- */

sl_err reg_retired_reserve(struct registrar *self, uint64_t more)
{
    uint64_t want = self->retired_count + more;
    if (want <= self->retired_capacity) {
        return SL_OK;
    }
    uint64_t capacity = SL_MAX(self->retired_capacity * 2, SL_MAX(want, UINT64_C(1024)));
    struct reg_retired *grown = realloc(self->retired, capacity * sizeof(*grown));
    if (grown == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    self->retired = grown;
    self->retired_capacity = capacity;
    return SL_OK;
}

void reg_retired_add(struct registrar *self, sl_ref ref, const struct sl_extent *extent, bool lent)
{
    SL_ASSERT(self->retired_count < self->retired_capacity);
    self->retired[self->retired_count++] =
        (struct reg_retired){.ref = ref, .lent = lent, .extent = *extent};
}

void reg_retired_returned(struct registrar *self, uint64_t generation)
{
    for (uint64_t i = 0; i < self->retired_count; i++) {
        if (self->retired[i].extent.generation == generation) {
            self->retired[i].lent = false;
            self->retired_scan_ns = 0;
        }
    }
}

static uint64_t victim_slot(const struct registrar *self, uint64_t generation)
{
    uint64_t mask = self->victim_slots - 1;
    uint64_t at = (generation * UINT64_C(0x9e3779b97f4a7c15)) >> 20 & mask;
    while (self->victim_table[at] != 0 && self->victim_table[at] != generation) {
        at = (at + 1) & mask;
    }
    return at;
}

/* A table of count generations in question, so that one walk over all pin slots answers for all of
 * them. */
static bool victims_clear(struct registrar *self, uint64_t count)
{
    uint64_t slots = VICTIM_SLOTS_MIN;
    while (slots < 2 * count) {
        slots *= 2;
    }
    if (slots > self->victim_capacity) {
        uint64_t capacity = slots;
        uint64_t *table = malloc(capacity * sizeof(*table));
        bool *pinned = malloc(capacity * sizeof(*pinned));
        if (table == NULL || pinned == NULL) {
            free(table);
            free(pinned);
            return false;
        }
        free(self->victim_table);
        free(self->victim_pinned);
        self->victim_table = table;
        self->victim_pinned = pinned;
        self->victim_capacity = capacity;
    }
    self->victim_slots = slots; /* a scan for one victim need not clear the table of thousands */
    for (uint64_t i = 0; i < slots; i++) {
        self->victim_table[i] = 0;
        self->victim_pinned[i] = false;
    }
    return true;
}

static void victim_add(struct registrar *self, uint64_t generation)
{
    self->victim_table[victim_slot(self, generation)] = generation;
}

static void victim_is_pinned(void *context, uint64_t generation)
{
    struct registrar *self = context;
    if (generation == 0) {
        return;
    }
    uint64_t slot = victim_slot(self, generation);
    if (self->victim_table[slot] == generation) {
        self->victim_pinned[slot] = true;
    }
}

void reg_give(struct registrar *self, uint64_t offset_bytes, uint64_t length_bytes)
{
    sl_alloc_give(self->alloc, offset_bytes, length_bytes);
    self->space_freed = true;
}

/* Finds out which of the table are pinned. */
static void victims_scan(struct registrar *self)
{
    /* Partner: the reader's fence between its pin and its second look at the record. */
    atomic_thread_fence(memory_order_seq_cst);
    for (uint32_t i = 0; i < self->peer_high; i++) {
        if (self->peers[i].used && self->peers[i].pins != NULL) {
            sl_pins_view_scan(self->peers[i].pins, victim_is_pinned, self);
        }
    }
}

void reg_retired_scan(struct registrar *self, uint64_t from)
{
    if (from >= self->retired_count || !victims_clear(self, self->retired_count - from)) {
        return;
    }
    for (uint64_t i = from; i < self->retired_count; i++) {
        victim_add(self, self->retired[i].extent.generation);
    }
    victims_scan(self);
    uint64_t kept = from;
    for (uint64_t i = from; i < self->retired_count; i++) {
        struct reg_retired retired = self->retired[i];
        if (retired.lent || self->victim_pinned[victim_slot(self, retired.extent.generation)]) {
            self->retired[kept++] = retired;
            continue;
        }
        sl_index_set_kind(self->index, retired.ref, SL_RECORD_FREE);
        reg_give(self, retired.extent.offset_bytes, retired.extent.length_bytes);
    }
    self->retired_count = kept;
    if (from == 0) {
        self->retired_scan_ns = self->env->now_ns;
    }
}

/* ---- victims ---- */

uint64_t reg_free_bytes(const struct registrar *self)
{
    struct sl_alloc_stats stats;
    sl_alloc_stats(self->alloc, &stats);
    return stats.usable_bytes - stats.used_bytes;
}

static bool part_may_leave(struct registrar *self, sl_ref ref, const struct sl_entry *entry)
{
    uint16_t flags = sl_index_links(self->index, ref)->flags;
    if ((flags & REG_FLAG_WRITING) != 0) {
        return false;
    }
    return entry->disk.valid != 0 || (flags & REG_FLAG_SPENT) != 0 || !reg_disk_required(self);
}

enum unit_fate { UNIT_STAYS, UNIT_TO_DISK, UNIT_DROPS };

/* All parts on disk: the unit leaves memory alone. Else, where that is allowed, it goes for good.
 */
static enum unit_fate unit_fate(struct registrar *self, sl_ref unit, const struct reg_parts *parts)
{
    enum unit_fate fate = UNIT_TO_DISK;
    uint16_t flags = sl_index_links(self->index, unit)->flags;
    bool going = self->tier.reclaim_count > 0 && (flags & REG_FLAG_KEPT) != 0;
    if ((flags & REG_FLAG_HELD) != 0 || going) { /* going: its place on disk is about to */
        return UNIT_STAYS;
    }
    for (uint32_t i = 0; i < parts->count; i++) {
        struct sl_entry entry;
        sl_index_read(self->index, parts->refs[i], &entry);
        if (!part_may_leave(self, parts->refs[i], &entry)) {
            return UNIT_STAYS;
        }
        if (entry.disk.valid == 0) {
            fate = UNIT_DROPS;
        }
    }
    return fate;
}

static bool unit_to_disk(struct registrar *self, sl_ref unit, const struct reg_parts *parts)
{
    static const struct sl_extent nowhere = {0};
    sl_ref now = unit;
    for (uint32_t i = 0; i < parts->count; i++) {
        struct sl_entry entry;
        sl_ref fresh;
        sl_index_read(self->index, parts->refs[i], &entry);
        if (entry.extent.generation == 0) {
            continue;
        }
        if (reg_record_switch(self, parts->refs[i], &nowhere, NULL, &fresh) != SL_OK) {
            return false; /* the rest stays in memory; the unit stays in its list */
        }
        now = parts->refs[i] == unit ? fresh : now;
    }
    reg_unit_place(self, now);
    return true;
}

static bool unit_evict(struct registrar *self, sl_ref unit)
{
    struct reg_parts parts;
    reg_unit_parts(self, unit, &parts);
    switch (unit_fate(self, unit, &parts)) {
    case UNIT_STAYS:
        return false;
    case UNIT_TO_DISK:
        return unit_to_disk(self, unit, &parts);
    case UNIT_DROPS:
        break;
    }
    struct reg_drop how = {
        .reason = self->tier.on
                      ? (reg_disk_required(self) ? REG_GHOST_DISK_RECLAIMED : REG_GHOST_DISK_FAILED)
                      : REG_GHOST_EVICTED,
        .forget = true,
    };
    return reg_unit_drop(self, unit, &how) == SL_OK;
}

/* Takes units from the old end until want_bytes of them or a batch are out, and frees what nobody
 * pins. Gives how many units went. */
static uint32_t evict_batch(struct registrar *self, uint64_t want_bytes)
{
    uint64_t from = self->retired_count;
    uint64_t bytes = 0;
    uint32_t taken = 0;
    sl_ref unit = self->hot.oldest;
    for (uint32_t looked = 0; unit != 0 && taken < self->set.evict_batch &&
                              looked < EVICT_LOOKED_MAX && bytes < want_bytes;
         looked++) {
        sl_ref next = sl_index_links(self->index, unit)->newer;
        uint64_t before = self->retired_count;
        if (unit_evict(self, unit)) {
            taken++;
        }
        for (uint64_t i = before; i < self->retired_count; i++) {
            bytes += sl_extent_space(self->retired[i].extent.length_bytes);
        }
        unit = next;
    }
    if (taken > 0) {
        reg_retired_scan(self, from);
        sl_metric_add(self->env->metrics, self->metric.evicted_count, taken);
        sl_metric_add(self->env->metrics, self->metric.evicted_bytes, bytes);
    }
    return taken;
}

/* While helper threads still populate, what is missing may be there in a moment: a step of our own
 * is bounded (one granule) and better than evicting or refusing. */
static bool space_populate(struct registrar *self, uint64_t want_bytes)
{
    reg_space_grow(self);
    for (uint32_t i = 0;
         i < GROW_STEPS_MAX && self->populating && reg_free_bytes(self) < want_bytes; i++) {
        if (sl_arena_populate_step(self->arena, NULL) != SL_OK) {
            break;
        }
        reg_space_grow(self);
    }
    return reg_free_bytes(self) >= want_bytes;
}

bool reg_make_room(struct registrar *self, uint64_t want_bytes)
{
    if (reg_free_bytes(self) >= want_bytes || space_populate(self, want_bytes)) {
        return true;
    }
    reg_retired_scan(self, 0);
    reg_peers_drain(self);
    for (uint32_t round = 0; round < EVICT_ROUNDS_MAX && reg_free_bytes(self) < want_bytes;
         round++) {
        if (evict_batch(self, want_bytes - reg_free_bytes(self)) == 0) {
            break;
        }
    }
    return reg_free_bytes(self) >= want_bytes;
}

sl_err reg_take(struct registrar *self, uint64_t length_bytes, uint64_t *offset_bytes)
{
    uint64_t space = sl_extent_space(length_bytes);
    for (uint32_t i = 0; i < TAKE_TRIES_MAX; i++) {
        sl_err err = sl_alloc_take(self->alloc, length_bytes, offset_bytes);
        if (err != SL_ERR_NO_SPACE) {
            return err;
        }
        bool enough = reg_free_bytes(self) >= space; /* in pieces: more must go */
        if (enough ? evict_batch(self, space << (i / 8)) == 0 : !reg_make_room(self, space)) {
            break;
        }
    }
    return sl_alloc_take(self->alloc, length_bytes, offset_bytes);
}

/* ---- room that costs nobody anything ---- */

struct quiet_victim {
    sl_ref unit;
    uint64_t bytes; /* 0: somebody pins it */
};

/* The oldest units whose leaving costs nothing, until they hold want_bytes, and some more, should
 * those be pinned. Gives how many; *extents is how many extents they have. */
static uint32_t quiet_find(struct registrar *self, uint64_t want_bytes, struct quiet_victim *out,
                           uint64_t *extents)
{
    uint32_t count = 0;
    uint64_t bytes = 0;
    sl_ref unit = self->hot.oldest;
    *extents = 0;
    for (uint32_t looked = 0; unit != 0 && looked < QUIET_LOOKED_MAX && count < QUIET_UNITS_MAX &&
                              (bytes < want_bytes || count < QUIET_UNITS_MIN);
         looked++) {
        const struct sl_links *links = sl_index_links(self->index, unit);
        struct reg_parts parts;
        reg_unit_parts(self, unit, &parts);
        if ((links->flags & REG_FLAG_PREFETCHED) == 0 &&
            unit_fate(self, unit, &parts) == UNIT_TO_DISK) {
            out[count] = (struct quiet_victim){.unit = unit};
            for (uint32_t i = 0; i < parts.count; i++) {
                struct sl_entry entry;
                sl_index_read(self->index, parts.refs[i], &entry);
                bool here = entry.extent.generation != 0;
                out[count].bytes += here ? sl_extent_space(entry.extent.length_bytes) : 0;
                *extents += here;
            }
            bytes += out[count++].bytes;
        }
        unit = links->newer;
    }
    return count;
}

/* Units that somebody pins would free nothing: they are left alone. */
static bool quiet_spare_pinned(struct registrar *self, struct quiet_victim *victims, uint32_t count,
                               uint64_t extents)
{
    if (count == 0 || !victims_clear(self, extents)) {
        return false;
    }
    for (int scanned = 0; scanned < 2; scanned++) {
        for (uint32_t i = 0; i < count; i++) {
            struct reg_parts parts;
            reg_unit_parts(self, victims[i].unit, &parts);
            for (uint32_t k = 0; k < parts.count; k++) {
                struct sl_entry entry;
                sl_index_read(self->index, parts.refs[k], &entry);
                if (entry.extent.generation != 0 && scanned == 0) {
                    victim_add(self, entry.extent.generation);
                } else if (entry.extent.generation != 0 &&
                           self->victim_pinned[victim_slot(self, entry.extent.generation)]) {
                    victims[i].bytes = 0;
                }
            }
        }
        if (scanned == 0) {
            victims_scan(self);
        }
    }
    return true;
}

/* Gives how many units left memory. */
static uint32_t evict_quietly(struct registrar *self, uint64_t want_bytes)
{
    struct quiet_victim victims[QUIET_UNITS_MAX];
    uint64_t extents = 0;
    uint64_t from = self->retired_count;
    uint64_t bytes = 0;
    uint32_t taken = 0;
    uint32_t count = quiet_find(self, want_bytes, victims, &extents);
    if (!quiet_spare_pinned(self, victims, count, extents)) {
        return 0;
    }
    for (uint32_t i = 0; i < count && bytes < want_bytes; i++) {
        struct reg_parts parts;
        reg_unit_parts(self, victims[i].unit, &parts);
        if (victims[i].bytes > 0 && unit_to_disk(self, victims[i].unit, &parts)) {
            bytes += victims[i].bytes;
            taken++;
        }
    }
    reg_retired_scan(self, from);
    sl_metric_add(self->env->metrics, self->metric.evicted_count, taken);
    sl_metric_add(self->env->metrics, self->metric.evicted_bytes, bytes);
    return taken;
}

sl_err reg_take_quietly(struct registrar *self, uint64_t length_bytes, uint64_t batch_bytes,
                        uint64_t *offset_bytes)
{
    uint64_t space = SL_MAX(sl_extent_space(length_bytes), batch_bytes);
    sl_err err = sl_alloc_take(self->alloc, length_bytes, offset_bytes);
    for (uint32_t i = 0; err == SL_ERR_NO_SPACE && i < QUIET_TRIES_MAX; i++) {
        uint64_t free_bytes = reg_free_bytes(self);
        if (evict_quietly(self, free_bytes < space ? space - free_bytes : space) == 0) {
            break;
        }
        err = sl_alloc_take(self->alloc, length_bytes, offset_bytes);
    }
    return err;
}

/* ---- the index ---- */

bool reg_make_index_room(struct registrar *self)
{
    uint64_t from = self->retired_count;
    uint32_t taken = 0;
    struct reg_drop how = {.reason = REG_GHOST_INDEX_FULL, .forget = true};
    sl_ref unit = self->cold.oldest;
    for (uint32_t looked = 0; unit != 0 && taken < INDEX_BATCH_UNITS && looked < EVICT_LOOKED_MAX;
         looked++) {
        sl_ref next = sl_index_links(self->index, unit)->newer;
        bool held = (sl_index_links(self->index, unit)->flags & REG_FLAG_HELD) != 0;
        if (!held && reg_unit_drop(self, unit, &how) != SL_OK) {
            break;
        }
        taken += held ? 0 : 1;
        unit = next;
    }
    unit = self->hot.oldest;
    for (uint32_t looked = 0; unit != 0 && taken < INDEX_BATCH_UNITS && looked < EVICT_LOOKED_MAX;
         looked++) {
        sl_ref next = sl_index_links(self->index, unit)->newer;
        struct reg_parts parts;
        reg_unit_parts(self, unit, &parts);
        if (unit_fate(self, unit, &parts) != UNIT_STAYS &&
            reg_unit_drop(self, unit, &how) == SL_OK) {
            taken++;
        }
        unit = next;
    }
    reg_retired_scan(self, from);
    sl_metric_add(self->env->metrics, self->metric.evicted_count, taken);
    return taken > 0;
}
