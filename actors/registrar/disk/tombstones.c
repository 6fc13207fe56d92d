/* actors/registrar/disk/tombstones.c - see tombstones.h.
 *
 * A tombstone is added when a key leaves the node and a disk may still hold its value. Removals are
 * also noted in the index until the tombstone is durable. */
#include "actors/registrar/disk/tombstones.h"
#include "actors/registrar/base/events.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/answers.h"
#include "actors/registrar/disk/disks.h"
#include "actors/registrar/disk/remove.h"
#include "actors/registrar/disk/write_behind.h"
#include "actors/registrar/memory/evict.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/records/ghosts.h"
#include "actors/registrar/records/retired.h"
#include "actors/registrar/records/units.h"

#include <stdlib.h>
#include <string.h>

static bool place_is(const struct sl_disk_place *a, const struct sl_disk_place *b)
{
    return a->valid == b->valid && a->disk == b->disk && a->segment == b->segment &&
           a->offset_bytes == b->offset_bytes;
}

/* From `at` on, the first tombstone of the key for the disk. Several keys may have one hash. */
static struct reg_tombstone *tombstone_from(struct reg_tombstone *at, struct sl_key key,
                                            uint32_t disk)
{
    while (at != NULL && (at->place.disk != disk || at->key_length != key.length ||
                          memcmp(at->key, key.at, key.length) != 0)) {
        at = SL_TABLE_NEXT(at, struct reg_tombstone, by_key);
    }
    return at;
}

static struct reg_tombstone *tombstone_first(const struct registrar *self, struct sl_key key,
                                             uint32_t disk)
{
    if (self->tier->disks[disk].tombstone_count == 0) {
        return NULL;
    }
    return tombstone_from(SL_TABLE_FIRST(&self->tombstones->by_key, reg_hash(key.at, key.length),
                                         struct reg_tombstone, by_key),
                          key, disk);
}

static struct reg_tombstone *tombstone_next(struct reg_tombstone *at, struct sl_key key)
{
    return tombstone_from(SL_TABLE_NEXT(at, struct reg_tombstone, by_key), key, at->place.disk);
}

bool reg_tombstone_pending(const struct registrar *self, struct sl_key key, uint32_t disk)
{
    return tombstone_first(self, key, disk) != NULL;
}

static void tombstone_end(struct registrar *self, struct reg_tombstone *forget, bool done)
{
    struct reg_disk *disk = &self->tier->disks[forget->place.disk];
    sl_table_remove(&self->tombstones->by_key, &forget->by_key);
    if (forget->previous != NULL) {
        forget->previous->next = forget->next;
    } else {
        disk->tombstone_first = forget->next;
    }
    if (forget->next != NULL) {
        forget->next->previous = forget->previous;
    } else {
        disk->tombstone_last = forget->previous;
    }
    self->tombstones->count--;
    disk->tombstone_count--;
    if (done && forget->note != 0) {
        sl_index_set_kind(self->index, forget->note, SL_RECORD_FREE);
    }
    if (done && forget->remove_id != 0) {
        reg_remove_done(self, forget->remove_id, forget->remove_index, forget->place.disk);
    }
    free(forget);
}

sl_ref reg_tombstone_note(struct registrar *self, struct sl_key key,
                          const struct reg_tombstone_note *note)
{
    unsigned char bytes[sizeof(*note) + SL_KEY_BYTES_MAX];
    sl_ref ref = 0;
    memcpy(bytes, note, sizeof(*note));
    memcpy(bytes + sizeof(*note), key.at, key.length);
    sl_err err = sl_index_blob_put(self->index, bytes, (uint32_t)sizeof(*note) + key.length,
                                   REG_BLOB_FORGET, &ref, NULL);
    return err == SL_OK ? ref : 0;
}

/* Paths whose disk has not reported: each gets copies of REG_DISK_UNKNOWN's tombstones. */
static uint32_t paths_unreported(const struct registrar *self)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < self->tier->path_count; i++) {
        count += self->tier->paths[i].disk == REG_NONE;
    }
    return count;
}

uint32_t reg_tombstones_room(const struct registrar *self)
{
    uint64_t copies = self->tier->disks[REG_DISK_UNKNOWN].tombstone_count;
    uint64_t taken = self->tombstones->count + copies * paths_unreported(self);
    return (uint32_t)(REG_TOMBSTONES_MAX - SL_MIN(taken, REG_TOMBSTONES_MAX));
}

/* NULL: no memory, or room is false. */
static struct reg_tombstone *tombstone_new(struct registrar *self, struct sl_key key,
                                           uint64_t length_bytes, const struct sl_disk_place *place,
                                           bool room)
{
    struct reg_disk *disk = &self->tier->disks[place->disk];
    struct reg_tombstone *forget = room ? malloc(sizeof(*forget) + key.length + 1) : NULL;
    if (forget == NULL) {
        sl_metric_add(self->env->metrics, self->tombstones->metric.forget_skipped_count, 1);
        disk->missed = true;
        return NULL;
    }
    uint64_t hash = reg_hash(key.at, key.length);
    /* A write in flight is of the removed value, unless the place is known. */
    bool behind = place->valid == 0 && reg_write_runs(self, hash, place->disk);
    *forget = (struct reg_tombstone){
        .behind = behind,
        .scan = disk->scan_number,
        .length_bytes = length_bytes,
        .place = *place,
        .key_length = key.length,
        .previous = disk->tombstone_last,
    };
    memcpy(forget->key, key.at, key.length);
    forget->key[key.length] = '\0';
    if (disk->tombstone_last != NULL) {
        disk->tombstone_last->next = forget;
    } else {
        disk->tombstone_first = forget;
    }
    disk->tombstone_last = forget;
    self->tombstones->count++;
    disk->tombstone_count++;
    sl_table_add(&self->tombstones->by_key, &forget->by_key, hash);
    return forget;
}

static bool tombstone_noted(struct registrar *self, struct reg_tombstone *forget)
{
    const struct reg_tombstone_note note = {.place = forget->place,
                                            .length_bytes = forget->length_bytes};
    if (forget->note == 0) {
        forget->note = reg_tombstone_note(
            self, (struct sl_key){.at = forget->key, .length = forget->key_length}, &note);
    }
    return forget->note != 0;
}

bool reg_tombstone_note_all(struct registrar *self, struct sl_key key)
{
    bool noted = true;
    for (uint32_t i = 0; i < REG_DISKS_MAX; i++) {
        struct reg_tombstone *at = tombstone_first(self, key, i);
        for (; at != NULL; at = tombstone_next(at, key)) {
            noted = tombstone_noted(self, at) && noted;
        }
    }
    return noted;
}

/* Ends older tombstones of the key that were not sent and that no answer waits for: repeated
 * removals or puts must not fill the table. The newest stays, since it is sent after those of the
 * parts that earlier ones covered. */
static void tombstone_replace(struct registrar *self, struct reg_tombstone *newest,
                              struct sl_key key)
{
    struct reg_tombstone *next, *at = tombstone_first(self, key, newest->place.disk);
    for (; at != NULL && newest->place.valid == 0; at = next) {
        next = tombstone_next(at, key);
        if (at != newest && !at->sent && (newest->note != 0 || at->note == 0) &&
            reg_answer_of(self, at->remove_id) == NULL) {
            newest->restored = newest->restored || at->restored;
            newest->held = SL_MAX(newest->held, at->held);
            tombstone_end(self, at, true);
        }
    }
}

static struct reg_tombstone *tombstone_key(struct registrar *self, struct sl_key key,
                                           uint64_t length_bytes, const struct sl_disk_place *place,
                                           const struct reg_drop *how, bool room)
{
    struct reg_tombstone *forget = tombstone_new(self, key, length_bytes, place, room);
    if (forget == NULL) {
        reg_remove_failed(self, how->remove_id, how->remove_index, SL_ERR_LIMIT);
        return NULL;
    }
    if (how->reason == REG_GHOST_REMOVED) {
        (void)tombstone_noted(self, forget);
    }
    forget->remove_id = how->remove_id;
    forget->remove_index = how->remove_index;
    if (how->remove_id != 0) {
        reg_remove_wait(self, how->remove_id, how->remove_index, place->disk);
    }
    tombstone_replace(self, forget, key);
    return forget;
}

void reg_tombstone_add(struct registrar *self, struct sl_key key, uint64_t length_bytes,
                       const struct sl_disk_place *place, const struct reg_drop *how)
{
    uint32_t taken = place->disk == REG_DISK_UNKNOWN ? 1 + paths_unreported(self) : 1;
    /* An unusable disk will report an evicted value again: half of the room is for removals. */
    bool asked = how->reason == REG_GHOST_REMOVED || reg_disk_usable(self, place->disk);
    bool room = reg_tombstones_room(self) >= taken + (asked ? 0 : REG_TOMBSTONES_MAX / 2);
    if (self->tier->on) {
        (void)tombstone_key(self, key, length_bytes, place, how, room);
    }
}

/* Whether an earlier registrar died between the note and the removal, so the value still exists. */
static bool note_is_void(struct registrar *self, const struct reg_tombstone_note *note,
                         struct sl_key key)
{
    struct sl_entry entry;
    if (sl_index_find_any(self->index, key.at, key.length, &entry) != SL_OK ||
        entry.kind != SL_RECORD_COMMITTED) {
        return false;
    }
    return note->place.valid != 0 ? place_is(&entry.disk, &note->place)
                                  : entry.extent.generation == 0 && /* the value is on this disk */
                                        entry.disk.disk == note->place.disk;
}

static sl_err tombstone_restore(struct registrar *self, sl_ref ref, const void *bytes,
                                uint32_t length_bytes, struct sl_error *why)
{
    (void)why;
    struct reg_tombstone_note note;
    struct reg_tombstone *forget = NULL;
    if (self->tier->on && length_bytes > sizeof(note) &&
        length_bytes <= sizeof(note) + SL_KEY_BYTES_MAX) {
        const struct sl_key key = {.at = (const char *)bytes + sizeof(note),
                                   .length = length_bytes - (uint32_t)sizeof(note)};
        memcpy(&note, bytes, sizeof(note));
        bool known = note.place.disk < REG_DISKS_MAX; /* else the index is damaged */
        if (known) {
            self->tier->disks[note.place.disk].used = true;
        }
        if (known && !note_is_void(self, &note, key)) {
            forget = tombstone_new(self, key, note.length_bytes, &note.place, true);
        }
    }
    if (forget == NULL) {
        return SL_ERR_FOREIGN;
    }
    forget->note = ref;
    forget->restored = true;
    return SL_OK;
}

bool reg_tombstone_join(struct registrar *self, struct sl_key key, uint32_t slot,
                        uint64_t remove_id, uint32_t remove_index)
{
    struct reg_tombstone *at = tombstone_first(self, key, slot);
    while (at != NULL && (!at->restored || reg_answer_of(self, at->remove_id) != NULL)) {
        at = tombstone_next(at, key);
    }
    if (at == NULL) {
        return false;
    }
    at->remove_id = remove_id;
    at->remove_index = remove_index;
    reg_remove_wait(self, remove_id, remove_index, slot);
    return true;
}

const char *reg_tombstone_key_of_hash(const struct registrar *self, uint64_t key_hash)
{
    const struct reg_tombstone *found =
        SL_TABLE_FIRST(&self->tombstones->by_key, key_hash, struct reg_tombstone, by_key);
    return found == NULL ? NULL : found->key;
}

/* Adds one more tombstone of the same removal, for this key and place. False: no room. */
static bool tombstone_again(struct registrar *self, const struct reg_tombstone *at,
                            struct sl_key key, const struct sl_disk_place *place, bool room)
{
    const struct reg_drop how = {
        .reason = at->note != 0 ? REG_GHOST_REMOVED : REG_GHOST_EVICTED,
        .forget = true,
        .remove_id = at->remove_id,
        .remove_index = at->remove_index,
    };
    struct reg_tombstone *fresh = tombstone_key(self, key, at->length_bytes, place, &how, room);
    bool noted = fresh != NULL && (at->note == 0 || fresh->note != 0);
    if (fresh != NULL && !noted) { /* a new registrar would not know of it */
        tombstone_end(self, fresh, true);
    }
    return noted;
}

static void tombstones_end(struct registrar *self, const struct reg_disk *disk)
{
    while (disk->tombstone_first != NULL) {
        tombstone_end(self, disk->tombstone_first, true);
    }
}

bool reg_tombstones_copy(struct registrar *self, uint32_t slot)
{
    const struct sl_disk_place unknown = {.disk = (uint16_t)slot};
    const struct reg_disk *from = &self->tier->disks[REG_DISK_UNKNOWN];
    tombstones_end(self, &self->tier->disks[slot]); /* from an earlier attempt */
    bool room = paths_unreported(self) == 1 ||      /* then the originals end at once */
                self->tombstones->count + from->tombstone_count <= REG_TOMBSTONES_MAX;
    bool copied = room;
    for (const struct reg_tombstone *at = from->tombstone_first; copied && at != NULL;
         at = at->next) {
        const struct sl_key key = {.at = at->key, .length = at->key_length};
        copied = tombstone_again(self, at, key, &unknown, true);
    }
    if (room && !copied) { /* for a note in the index */
        (void)reg_make_index_room(self);
    }
    return copied;
}

static void tombstones_mark_unsent(struct reg_disk *disk)
{
    for (struct reg_tombstone *forget = disk->tombstone_first; forget != NULL;
         forget = forget->next) {
        forget->sent = false;
    }
    disk->tombstone_seq = 0;
}

/* A disk that is gone begins empty if it returns, so its tombstones are no longer needed. */
static void tombstones_disk_left(struct registrar *self, uint32_t slot)
{
    struct reg_disk *disk = &self->tier->disks[slot];
    if (disk->tombstone_seq != 0) {
        sl_calls_drop(self->calls, disk->tombstone_seq);
    }
    tombstones_mark_unsent(disk);
    if (disk->gone) {
        tombstones_end(self, disk);
    }
}

bool reg_tombstone_covers(struct registrar *self, struct sl_key key,
                          const struct sl_disk_place *place)
{
    const struct sl_disk_place unknown = {.disk = place->disk};
    struct reg_tombstone *first = tombstone_first(self, key, place->disk);
    for (struct reg_tombstone *at = first; at != NULL; at = tombstone_next(at, key)) {
        bool known = at->place.valid == 0 ? !at->behind : place_is(&at->place, place);
        at->scan = known ? at->scan : self->tier->disks[place->disk].scan_number;
        at->place = known ? *place : unknown; /* also for other values of the key there */
    }
    return first != NULL;
}

/* Whether the removal already waits for a tombstone of this part: the scan found it before. */
static bool part_waits(const struct registrar *self, const struct reg_tombstone *block,
                       struct sl_key part, const struct sl_disk_place *place)
{
    struct reg_tombstone *at = tombstone_first(self, part, place->disk);
    while (at != NULL && !(place_is(&at->place, place) && at->remove_id == block->remove_id &&
                           at->remove_index == block->remove_index)) {
        at = tombstone_next(at, part);
    }
    return at != NULL;
}

/* Adds a tombstone for the part; its note may need room in the index. */
static bool part_tombstone_add(struct registrar *self, const struct reg_tombstone *block,
                               struct sl_key part, const struct sl_disk_place *place)
{
    bool made = tombstone_again(self, block, part, place, reg_tombstones_room(self) > 0);
    bool again = !made && reg_tombstones_room(self) > 0 && reg_make_index_room(self);
    return made ||
           (again && tombstone_again(self, block, part, place, reg_tombstones_room(self) > 0));
}

bool reg_tombstone_covers_part(struct registrar *self, struct sl_key block, struct sl_key part,
                               const struct sl_disk_place *place)
{
    bool covers = false;
    struct reg_tombstone *at = block.length > 0 ? tombstone_first(self, block, place->disk) : NULL;
    for (; at != NULL; at = tombstone_next(at, block)) {
        if (at->place.valid == 0) {
            covers = true;
            if (!part_waits(self, at, part, place) &&
                !reg_tombstone_join(self, part, place->disk, at->remove_id, at->remove_index) &&
                !part_tombstone_add(self, at, part, place)) {
                at->held = self->tier->disks[place->disk].scan_number;
                self->tier->disks[place->disk].tombstone_held = true;
            }
        }
    }
    return covers;
}

/* Whether the value was removed during its write, which is still in flight: a tombstone sent now
 * would be older than the value on the disk. */
static bool write_is_in_flight(const struct registrar *self, const struct reg_tombstone *forget)
{
    return forget->behind && reg_write_runs(self, forget->by_key.hash, forget->place.disk);
}

void reg_tombstones_scanned(struct registrar *self, uint32_t slot)
{
    const struct reg_disk *disk = &self->tier->disks[slot];
    struct reg_tombstone *at = disk->tombstone_first;
    while (at != NULL) {
        struct reg_tombstone *next = at->next;
        /* Not found: it never reached the disk. A tombstone made during the scan stays, since the
         * scan may have found the value before it; it is sent without a place. */
        if (at->place.valid == 0 && !at->sent && at->held != disk->scan_number &&
            at->scan != disk->scan_number && !write_is_in_flight(self, at)) {
            tombstone_end(self, at, true);
        }
        at = next;
    }
}

/* ---- values that disks may hold ---- */

static struct sl_key record_key(const struct sl_entry *record)
{
    return (struct sl_key){.at = record->key, .length = record->key_length};
}

uint16_t reg_disks_may_have(const struct registrar *self, struct sl_key key, uint32_t placed,
                            bool removed)
{
    uint16_t disks = 0;
    for (uint32_t i = 0; self->tier->on && i < REG_DISKS_MAX; i++) {
        const struct reg_disk *disk = &self->tier->disks[i];
        bool known = i == placed || (disk->scanned && !(removed && disk->missed));
        bool may_have =
            disk->used && !disk->gone && (!known || reg_tombstone_pending(self, key, i));
        disks |= (uint16_t)(may_have ? REG_DISK_BIT(i) : 0);
    }
    return disks;
}

uint16_t reg_disks_in_doubt(const struct registrar *self, sl_ref ref, const struct sl_entry *record,
                            bool removed)
{
    uint32_t placed = record->disk.valid != 0 ? record->disk.disk : REG_NONE;
    return (uint16_t)((sl_index_links(self->index, ref)->disks & reg_disks_used(self)) |
                      reg_disks_may_have(self, record_key(record), placed, removed));
}

/* ---- sending ---- */

static void tombstones_send(struct registrar *self, uint32_t slot, struct sl_item_forget *items)
{
    struct reg_disk *disk = &self->tier->disks[slot];
    /* The tierer writes the frame twice and an index: a log file must have room for all three. */
    uint64_t room = SL_MIN(self->tier->segment_bytes, self->set.message_bytes_max) / 4;
    uint64_t bytes = 0, bytes_max = SL_MIN(room, 512 * SL_KIB);
    uint32_t count = 0;
    bool some_held = false;
    for (struct reg_tombstone *at = disk->tombstone_first;
         at != NULL && count < REG_FORGET_ITEMS_MAX; at = at->next) {
        bool placed = at->place.valid != 0;
        bool held = at->held == disk->scan_number;
        some_held = some_held || held;
        if (held || write_is_in_flight(self, at)) {
            continue;
        }
        bytes += 96 + at->key_length; /* more than its record and its part of the message need */
        if (count > 0 && bytes > bytes_max) {
            break;
        }
        at->sent = true;
        items[count++] = (struct sl_item_forget){
            .key = {.at = at->key, .length = at->key_length},
            .segment = placed ? at->place.segment : 0, /* 0: wherever the value is by now */
            .disk_offset_bytes = placed ? at->place.offset_bytes : 0,
            .length_bytes = at->length_bytes,
        };
    }
    if (count == 0) { /* held tombstones are checked again later */
        disk->tombstone_retry_ns = some_held ? self->env->now_ns + REG_DISK_RETRY_NS : 0;
        return;
    }
    struct sl_msg msg = {.type = SL_MSG_DISK_FORGET};
    msg.body.disk_forget.items.at = items;
    msg.body.disk_forget.items.count = count;
    sl_err err = sl_calls_send(self->calls, self->peers->all[disk->tierer].name, &msg,
                               sl_deadline_ns(self->env->now_ns, REG_DISK_CALL_NS),
                               reg_cookie(REG_CALL_FORGET, slot), &disk->tombstone_seq);
    if (err != SL_OK) {
        tombstones_mark_unsent(disk);
        disk->tombstone_retry_ns = self->env->now_ns + REG_DISK_RETRY_NS;
    }
}

static void tombstones_pump(struct registrar *self)
{
    for (uint32_t i = 0; self->tombstones->count > 0 && i < REG_DISK_UNKNOWN; i++) {
        const struct reg_disk *disk = &self->tier->disks[i];
        if (disk->tombstone_first == NULL || disk->tombstone_seq != 0 ||
            !reg_disk_usable(self, i) || self->env->now_ns < disk->tombstone_retry_ns) {
            continue;
        }
        struct sl_item_forget *items = calloc(REG_FORGET_ITEMS_MAX, sizeof(*items));
        if (items != NULL) {
            tombstones_send(self, i, items);
            free(items);
        }
    }
}

static void tombstone_reply(struct registrar *self, uint32_t slot, const struct sl_msg *msg)
{
    const struct sl_u64s *codes = &msg->body.disk_forget_reply.codes;
    struct reg_disk *disk = &self->tier->disks[slot];
    uint64_t i = 0;
    bool failed = false;
    disk->tombstone_seq = 0;
    disk->tombstone_full = false;
    struct reg_tombstone *at = disk->tombstone_first;
    while (at != NULL) {
        struct reg_tombstone *next = at->next;
        if (at->sent) {
            uint64_t code =
                msg->code == SL_OK && i < codes->count ? codes->at[i] : (uint64_t)SL_ERR_IO;
            i++;
            at->sent = false;
            if (code == SL_OK || code == SL_ERR_NOT_FOUND) {
                tombstone_end(self, at, true);
            } else {
                failed = true;
                disk->tombstone_full = disk->tombstone_full || code == SL_ERR_NO_SPACE;
            }
        }
        at = next;
    }
    if (failed) {
        disk->tombstone_retry_ns = self->env->now_ns + REG_DISK_RETRY_NS;
    }
}

static void tombstone_expired(struct registrar *self, uint32_t slot)
{
    tombstones_mark_unsent(&self->tier->disks[slot]);
    self->tier->disks[slot].tombstone_retry_ns = self->env->now_ns + REG_DISK_RETRY_NS;
}

static void tombstones_fini(struct registrar *self)
{
    for (uint32_t i = 0; i < REG_DISKS_MAX; i++) {
        while (self->tier->disks[i].tombstone_first != NULL) {
            tombstone_end(self, self->tier->disks[i].tombstone_first, false);
        }
    }
    sl_table_fini(&self->tombstones->by_key);
}

/* ---- the part ---- */

/* Adds tombstones for the record's copies that are on disks or being written. */
static void tombstones_dropped(struct registrar *self, const struct reg_dropped *what)
{
    const struct sl_entry *entry = what->record;
    const struct reg_drop *how = what->how;
    bool removed = how->reason == REG_GHOST_REMOVED;
    uint16_t reported_disks = sl_index_links(self->index, entry->ref)->disks & reg_disks_used(self);
    uint16_t doubt =
        how->reported ? reported_disks : reg_disks_in_doubt(self, entry->ref, entry, removed);
    const struct sl_key key = record_key(entry);
    bool placed = entry->disk.valid != 0; /* else its disk is no index */
    if (placed) {
        const struct reg_disk *disk = &self->tier->disks[entry->disk.disk];
        bool swept = disk->sweeping && !reg_segment_found(self, entry->disk.disk, entry->ref);
        placed = !disk->gone && !swept && entry->disk.segment > disk->deleted_segment;
    }
    for (uint32_t i = 0; i < REG_DISKS_MAX; i++) {
        const struct sl_disk_place unknown = {.disk = (uint16_t)i}; /* for any place on the disk */
        bool written = what->writing && reg_write_runs(self, reg_hash(key.at, key.length), i);
        bool doubted = written || (how->forget && (doubt & REG_DISK_BIT(i)) != 0);
        if (doubted || (how->forget && placed && entry->disk.disk == i)) {
            reg_tombstone_add(self, key, entry->extent.length_bytes,
                              doubted ? &unknown : &entry->disk, how);
        }
    }
}

static sl_err tombstones_init(struct registrar *self, struct sl_error *why)
{
    return sl_table_reserve(&self->tombstones->by_key, REG_TOMBSTONE_HEADS)
               ? SL_OK
               : sl_fail(why, SL_ERR_NO_MEMORY, "table of tombstones");
}

static void tombstones_gauges(struct registrar *self)
{
    struct sl_metrics *page = self->env->metrics;
    sl_metric_set(page, self->tombstones->metric.forget_pending_count, self->tombstones->count);
}

static const struct sl_metric_row metrics[] = {
    REG_METRIC(reg_tombstones, forget_pending_count),
    REG_METRIC(reg_tombstones, forget_skipped_count),
};

static const struct reg_call calls[] = {
    {.kind = REG_CALL_FORGET, .reply = tombstone_reply, .expired = tombstone_expired},
};

static const struct reg_blob blobs[] = {
    {REG_BLOB_FORGET, tombstone_restore},
};

const struct reg_part reg_tombstones_part = {
    .name = "forgets",
    REG_STATE(tombstones, reg_tombstones),
    REG_METRICS(metrics),
    REG_CALLS(calls),
    REG_BLOBS(blobs),
    .init = tombstones_init,
    .fini = tombstones_fini,
    .dropped = tombstones_dropped,
    .disk_left = tombstones_disk_left,
    .after = tombstones_pump,
    .gauges = tombstones_gauges,
};
