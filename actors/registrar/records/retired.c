/* actors/registrar/records/retired.c - extents that wait for their pins to end; the scan of all
 * pins.
 *
 * Order: victims leave the table or become disk-only; fence (seq_cst); every pin slot is read;
 * extents without a pin are reused, the others stay RETIRED until a later scan. */
#include "actors/registrar/records/retired.h"
#include "actors/registrar/base/events.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/presence/peers.h"
#include "runtime/base/sl_array.h"

#include <stdatomic.h>
#include <stdlib.h>

#define VICTIM_SLOTS_MIN 16u

sl_err reg_retired_reserve(struct registrar *self, uint64_t more)
{
    bool fits =
        SL_ARRAY_ROOM(self->retired->all, self->retired->capacity, self->retired->count + more);
    return fits ? SL_OK : SL_ERR_NO_MEMORY;
}

void reg_retired_add(struct registrar *self, sl_ref ref, const struct sl_extent *extent,
                     bool being_read)
{
    SL_ASSERT(self->retired->count < self->retired->capacity);
    self->retired->all[self->retired->count++] =
        (struct reg_retired_extent){.ref = ref, .being_read = being_read, .extent = *extent};
}

void reg_retired_read_done(struct registrar *self, uint64_t generation)
{
    for (uint64_t i = 0; i < self->retired->count; i++) {
        if (self->retired->all[i].extent.generation == generation) {
            self->retired->all[i].being_read = false;
            self->retired->scan_ns = 0;
        }
    }
}

static uint64_t victim_slot(const struct registrar *self, uint64_t generation)
{
    uint64_t mask = self->retired->victim_slots - 1;
    uint64_t at = (generation * UINT64_C(0x9e3779b97f4a7c15)) >> 20 & mask;
    while (self->retired->victim_table[at] != 0 && self->retired->victim_table[at] != generation) {
        at = (at + 1) & mask;
    }
    return at;
}

/* Prepares a table of generations, so that one walk over all pins answers for all of them. */
bool reg_pinned_begin(struct registrar *self, uint64_t count)
{
    uint64_t slots = VICTIM_SLOTS_MIN;
    while (slots < 2 * count) {
        slots *= 2;
    }
    if (slots > self->retired->victim_capacity) {
        uint64_t capacity = slots;
        uint64_t *table = malloc(capacity * sizeof(*table));
        bool *pinned = malloc(capacity * sizeof(*pinned));
        if (table == NULL || pinned == NULL) {
            free(table);
            free(pinned);
            return false;
        }
        free(self->retired->victim_table);
        free(self->retired->victim_pinned);
        self->retired->victim_table = table;
        self->retired->victim_pinned = pinned;
        self->retired->victim_capacity = capacity;
    }
    self->retired->victim_slots = slots; /* a scan for one victim need not clear a large table */
    for (uint64_t i = 0; i < slots; i++) {
        self->retired->victim_table[i] = 0;
        self->retired->victim_pinned[i] = false;
    }
    return true;
}

void reg_pinned_add(struct registrar *self, uint64_t generation)
{
    self->retired->victim_table[victim_slot(self, generation)] = generation;
}

static void victim_is_pinned(void *context, uint64_t generation)
{
    struct registrar *self = context;
    if (generation == 0) {
        return;
    }
    uint64_t slot = victim_slot(self, generation);
    if (self->retired->victim_table[slot] == generation) {
        self->retired->victim_pinned[slot] = true;
        /* The pin's owner may be dead. */
        self->peers->check_ns =
            SL_MIN(self->peers->check_ns, self->env->now_ns + REG_RETIRED_SCAN_NS);
    }
}

void reg_give(struct registrar *self, uint64_t offset_bytes, uint64_t length_bytes)
{
    sl_alloc_free(self->alloc, offset_bytes, length_bytes);
    self->space.freed = true;
}

bool reg_pinned_is(const struct registrar *self, uint64_t generation)
{
    return self->retired->victim_pinned[victim_slot(self, generation)];
}

/* Marks the generations of the table that are pinned. */
void reg_pinned_scan(struct registrar *self)
{
    /* Partner: the reader's fence between its pin and its second look at the record. */
    atomic_thread_fence(memory_order_seq_cst);
    for (uint32_t i = 0; i < self->peers->high; i++) {
        if (self->peers->all[i].used && self->peers->all[i].pins != NULL) {
            sl_pins_view_scan(self->peers->all[i].pins, victim_is_pinned, self);
        }
    }
}

void reg_retired_scan(struct registrar *self, uint64_t from)
{
    if (from >= self->retired->count || !reg_pinned_begin(self, self->retired->count - from)) {
        return;
    }
    for (uint64_t i = from; i < self->retired->count; i++) {
        reg_pinned_add(self, self->retired->all[i].extent.generation);
        sl_alloc_fetch(self->alloc, self->retired->all[i].extent.offset_bytes);
    }
    reg_pinned_scan(self);
    uint64_t kept = from;
    for (uint64_t i = from; i < self->retired->count; i++) {
        struct reg_retired_extent retired = self->retired->all[i];
        if (retired.being_read || reg_pinned_is(self, retired.extent.generation)) {
            self->retired->all[kept++] = retired;
            continue;
        }
        reg_notify_freed(self, retired.ref);
        sl_index_set_kind(self->index, retired.ref, SL_RECORD_FREE);
        reg_give(self, retired.extent.offset_bytes, retired.extent.length_bytes);
    }
    self->retired->count = kept;
    if (from == 0) {
        self->retired->scan_ns = self->env->now_ns;
    }
}

/* ---- the part ---- */

static void retired_fini(struct registrar *self)
{
    free(self->retired->all);
    free(self->retired->victim_table);
    free(self->retired->victim_pinned);
}

static void retired_tick(struct registrar *self)
{
    uint64_t now_ns = self->env->now_ns;
    if (self->retired->count > 0 && now_ns >= self->retired->scan_ns + REG_RETIRED_SCAN_NS) {
        reg_retired_scan(self, 0);
        self->retired->scan_ns = now_ns;
    }
}

static void retired_again(struct registrar *self)
{
    reg_retired_scan(self, 0);
}

static void retired_died(struct registrar *self, struct sl_proc_id proc)
{
    (void)proc;
    reg_retired_scan(self, 0);
}

static uint64_t retired_next(const struct registrar *self)
{
    return self->retired->count > 0 ? self->retired->scan_ns + REG_RETIRED_SCAN_NS : SL_NEVER_NS;
}

static void retired_gauges(struct registrar *self)
{
    struct sl_metrics *page = self->env->metrics;
    sl_metric_set(page, self->retired->metric.retired_count, self->retired->count);
}

static const struct sl_metric_row metrics[] = {
    REG_METRIC(reg_retired, retired_count),
};

const struct reg_part reg_retired_part = {
    .name = "retired",
    REG_STATE(retired, reg_retired),
    REG_METRICS(metrics),
    .fini = retired_fini,
    .tick = retired_tick,
    .recovered = retired_again,
    .next_ns = retired_next,
    .died = retired_died,
    .gauges = retired_gauges,
};
