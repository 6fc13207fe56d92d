/* actors/registrar/disk/segments.c - which records have a place in which log file, so that a
 * reclaim costs only what it frees.
 *
 * A reference is noted when a record gets a place and when a new record takes that place over.
 * Outdated references are detected by reading the record. While most of a list is outdated, each
 * new reference checks a few. */
#include "actors/registrar/disk/segments.h"
#include "actors/registrar/base/events.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/disks.h"
#include "actors/registrar/records/units.h"
#include "runtime/base/sl_array.h"

#include <stdlib.h>
#include <string.h>

#define LOOKS      4u  /* checks of a mostly outdated list for each new reference */
#define LOOKS_FROM 64u /* from this many references above twice the live ones */

static uint64_t segment_number(uint32_t disk, uint32_t segment)
{
    return (uint64_t)disk << 32 | segment;
}

/* Position of the first log file whose number is not below `number`. */
static uint32_t segment_position(const struct registrar *self, uint64_t number)
{
    uint32_t low = 0, high = self->tier->segment_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (self->tier->segments[middle].number < number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct reg_segment *segment_find(const struct registrar *self, uint64_t number)
{
    uint32_t at = segment_position(self, number);
    bool there = at < self->tier->segment_count && self->tier->segments[at].number == number;
    return there ? &self->tier->segments[at] : NULL;
}

static struct reg_segment *segment_make(struct registrar *self, uint64_t number)
{
    struct reg_tier *tier = self->tier;
    struct reg_segment *there = segment_find(self, number);
    if (there != NULL) {
        return there;
    }
    if (!SL_ARRAY_ROOM(tier->segments, tier->segment_capacity, tier->segment_count + 1)) {
        return NULL;
    }
    uint32_t at = segment_position(self, number);
    memmove(&tier->segments[at + 1], &tier->segments[at],
            (tier->segment_count - at) * sizeof(*tier->segments));
    tier->segments[at] = (struct reg_segment){.number = number};
    tier->segment_count++;
    return &tier->segments[at];
}

static void segment_remove(struct registrar *self, struct reg_segment *segment)
{
    uint32_t at = (uint32_t)(segment - self->tier->segments);
    free(segment->items);
    self->tier->segment_count--;
    memmove(segment, segment + 1, (self->tier->segment_count - at) * sizeof(*segment));
}

static bool segment_has(const struct registrar *self, uint64_t number, sl_ref ref,
                        struct sl_entry *entry)
{
    if (!sl_index_ref_live(self->index, ref)) {
        return false;
    }
    sl_index_read(self->index, ref, entry);
    return entry->kind == SL_RECORD_COMMITTED && entry->disk.valid != 0 &&
           segment_number(entry->disk.disk, entry->disk.segment) == number;
}

bool reg_segment_has(const struct registrar *self, uint32_t disk, sl_ref ref,
                     struct sl_entry *entry)
{
    return segment_has(self, segment_number(disk, self->units->going[disk]), ref, entry);
}

bool reg_segment_found(const struct registrar *self, uint32_t disk, sl_ref ref)
{
    const uint64_t *found = self->tier->disks[disk].found;
    return found != NULL && (found[ref / 64] >> (ref % 64) & 1) != 0;
}

void reg_segment_find(struct registrar *self, uint32_t disk, sl_ref ref, bool found)
{
    uint64_t *bits = self->tier->disks[disk].found, bit = UINT64_C(1) << (ref % 64);
    if (bits != NULL) {
        bits[ref / 64] = found ? bits[ref / 64] | bit : bits[ref / 64] & ~bit;
    }
}

bool reg_segments_sweep(const struct registrar *self, uint32_t slot, struct sl_entry *entry)
{
    struct reg_disk *disk = &self->tier->disks[slot];
    uint32_t at = segment_position(self, segment_number(slot, disk->sweep_segment));
    if (at == self->tier->segment_count || self->tier->segments[at].number >> 32 != slot) {
        return false;
    }
    const struct reg_segment *segment = &self->tier->segments[at];
    bool same = disk->sweep_segment == (uint32_t)segment->number;
    disk->sweep_segment = (uint32_t)segment->number;
    disk->sweep_at = same ? disk->sweep_at : 0;
    if (disk->sweep_at >= segment->count) {
        disk->sweep_segment++;
        disk->sweep_at = 0;
        entry->ref = 0;
    } else if (!segment_has(self, segment->number, segment->items[disk->sweep_at++].ref, entry)) {
        entry->ref = 0;
    }
    return true;
}

/* Checks some references. An outdated one is replaced by the last of the list. */
static void segment_prune(const struct registrar *self, struct reg_segment *segment)
{
    for (uint32_t i = 0; i < LOOKS && segment->count > 2 * segment->live + LOOKS_FROM; i++) {
        struct sl_entry entry;
        segment->looked = segment->looked < segment->count ? segment->looked : 0;
        struct reg_segment_item *item = &segment->items[segment->looked];
        if (segment_has(self, segment->number, item->ref, &entry) &&
            (uint32_t)entry.version == item->version) {
            segment->looked++;
        } else {
            *item = segment->items[--segment->count];
        }
    }
}

void reg_segment_note(struct registrar *self, sl_ref ref, const struct sl_disk_place *place,
                      bool fresh)
{
    struct reg_segment *segment = segment_make(self, segment_number(place->disk, place->segment));
    struct reg_disk *disk = &self->tier->disks[place->disk];
    if (fresh) {
        reg_segment_find(self, place->disk, ref, true);
        disk->place_count++;
        self->tier->place_count++;
    }
    if (segment == NULL) {
        return; /* no memory: reads of a reclaimed place fail by key and digest */
    }
    segment->live += fresh ? 1 : 0;
    if (reg_reclaim_phase(self, place) == REG_RECLAIM_NONE && !disk->sweeping) {
        segment_prune(self, segment);
    }
    if (SL_ARRAY_ROOM(segment->items, segment->capacity, segment->count + 1)) {
        segment->items[segment->count++] = (struct reg_segment_item){
            .ref = ref, .version = (uint32_t)sl_index_version(self->index, ref)};
    }
}

static void segment_left(struct registrar *self, const struct sl_disk_place *place)
{
    struct reg_segment *segment = segment_find(self, segment_number(place->disk, place->segment));
    struct reg_disk *disk = &self->tier->disks[place->disk];
    disk->place_count -= disk->place_count > 0 ? 1 : 0;
    self->tier->place_count -= self->tier->place_count > 0 ? 1 : 0;
    if (segment == NULL) {
        return;
    }
    segment->live -= segment->live > 0 ? 1 : 0;
    if (segment->live == 0) {
        segment_remove(self, segment);
    }
}

static struct reg_segment *segment_going(const struct registrar *self, uint32_t disk)
{
    return segment_find(self, segment_number(disk, self->units->going[disk]));
}

sl_ref reg_segment_ref(const struct registrar *self, uint32_t disk, uint32_t number)
{
    const struct reg_segment *there = segment_going(self, disk);
    return there != NULL && number < there->count ? there->items[number].ref : 0;
}

sl_ref reg_segment_take(struct registrar *self, uint32_t disk)
{
    struct reg_segment *there = segment_going(self, disk);
    return there != NULL && there->count > 0 ? there->items[--there->count].ref : 0;
}

static void segments_fini(struct registrar *self)
{
    for (uint32_t i = 0; i < self->tier->segment_count; i++) {
        free(self->tier->segments[i].items);
    }
    free(self->tier->segments);
    for (uint32_t i = 0; i < REG_DISKS_MAX; i++) {
        free(self->tier->disks[i].found);
    }
}

/* ---- the part ---- */

static void segments_switched(struct registrar *self, const struct reg_switched *what)
{
    const struct sl_disk_place *old = &what->old->disk;
    if (what->place != NULL && old->valid != 0) {
        segment_left(self, old);
    }
    if (what->place != NULL && what->place->valid != 0) {
        reg_segment_note(self, what->fresh, what->place, true);
    } else if (what->place == NULL && old->valid != 0) {
        bool found = reg_segment_found(self, old->disk, what->old->ref);
        reg_segment_find(self, old->disk, what->fresh, found);
        reg_segment_note(self, what->fresh, old, false);
    }
}

static void segments_dropped(struct registrar *self, const struct reg_dropped *what)
{
    if (what->record->disk.valid != 0) {
        segment_left(self, &what->record->disk);
    }
}

const struct reg_part reg_segments_part = {
    .name = "segments",
    .fini = segments_fini,
    .switched = segments_switched,
    .dropped = segments_dropped,
};
