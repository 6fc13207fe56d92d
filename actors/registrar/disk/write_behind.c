/* actors/registrar/disk/write_behind.c - write-behind: committed values are written to disks,
 * oldest first, in a bounded number of batches at a time.
 *
 * The tierer reads a batch from the arena and verifies digests of what it wrote. If it dies, its
 * batches are queued again. Records being written have REG_FLAG_WRITING and are not evicted. */
#include "actors/registrar/disk/write_behind.h"
#include "actors/registrar/base/events.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/disks.h"
#include "actors/registrar/disk/members.h"
#include "actors/registrar/disk/tombstones.h"
#include "actors/registrar/memory/accesses.h"
#include "actors/registrar/memory/evict.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/records/ghosts.h"
#include "actors/registrar/records/retired.h"
#include "actors/registrar/records/units.h"
#include "runtime/base/sl_array.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LOOKS_MAX 1024u /* outdated items of the queue that are skipped in a turn */

/* ---- queue ---- */

static void queue_pop(struct registrar *self)
{
    struct sl_heap_item oldest;
    (void)sl_heap_pop(&self->writes->queue, SL_NEVER_NS, &oldest);
    if (self->writes->queue.count == 0 && self->space.waiting_count > 0) {
        /* Parked requests check again what may free room. */
        self->space.freed = self->writes->more = true;
    }
}

static bool item_is_current(struct registrar *self, const struct sl_heap_item *item,
                            struct sl_entry *entry)
{
    if (!sl_index_ref_live(self->index, item->id)) {
        return false;
    }
    sl_index_read(self->index, item->id, entry);
    return entry->kind == SL_RECORD_COMMITTED && entry->extent.generation == item->cookie;
}

/* Whether the record still waits for its first copy on disk. */
static bool item_wanted(struct registrar *self, const struct sl_heap_item *item,
                        struct sl_entry *entry)
{
    return item_is_current(self, item, entry) && entry->disk.valid == 0 &&
           (sl_index_links(self->index, item->id)->flags &
            (REG_FLAG_WRITING | REG_FLAG_RECLAIMED)) == 0;
}

/* Returns the item to its position in the order of commits; room for it is reserved. */
static void queue_return(struct registrar *self, const struct sl_heap_item *item)
{
    sl_err err = sl_heap_add(&self->writes->queue, *item);
    SL_ASSERT(err == SL_OK);
}

/* Checks the next item and removes it if it is outdated. Otherwise items of removed values would
 * fill the queue while no disk takes writes. */
static void queue_prune(struct registrar *self)
{
    struct sl_heap *queue = &self->writes->queue;
    uint32_t *looked = &self->writes->looked;
    struct sl_entry entry;
    *looked = *looked < queue->count ? *looked : 0;
    if (item_wanted(self, &queue->items[*looked], &entry)) {
        *looked += 1;
    } else {
        sl_heap_remove(queue, *looked);
    }
}

void reg_queue_add(struct registrar *self, sl_ref ref, uint64_t generation)
{
    struct reg_writes *writes = self->writes;
    struct sl_heap *queue = &writes->queue;
    for (uint32_t i = 0; i < 2 && queue->count > LOOKS_MAX; i++) {
        queue_prune(self);
    }
    uint32_t count = queue->count + 1 + writes->count * REG_WRITE_ITEMS_MAX; /* all may return */
    if (!SL_ARRAY_ROOM(queue->items, queue->capacity, count)) {
        reg_log(self, SL_LOG_ERROR, 0,
                "no memory for the queue of disk writes: an object stays in memory only");
        return;
    }
    uint64_t at_ns = SL_MAX(writes->next_ns, self->env->now_ns);
    writes->next_ns = at_ns + 1;
    queue_return(self, &(struct sl_heap_item){.at_ns = at_ns, .cookie = generation, .id = ref});
}

void reg_unit_queue(struct registrar *self, sl_ref unit)
{
    if (!self->tier->on) {
        return;
    }
    struct reg_unit_parts parts;
    reg_members_change(self, true);
    reg_unit_parts(self, unit, &parts);
    for (uint32_t i = 0; i < parts.count; i++) {
        struct sl_entry entry;
        sl_index_read(self->index, parts.refs[i], &entry);
        if (entry.extent.generation != 0 && entry.disk.valid == 0) {
            reg_queue_add(self, parts.refs[i], entry.extent.generation);
        }
    }
}

static uint64_t writes_pending(const struct registrar *self)
{
    uint64_t pending = self->writes->queue.count;
    for (uint32_t i = 0; i < self->writes->count; i++) {
        pending += self->writes->all[i].used ? self->writes->all[i].count : 0;
    }
    return pending;
}

/* ---- writing ---- */

static void spill_fill(struct registrar *self, const struct sl_entry *entry,
                       struct sl_item_spill *spill)
{
    *spill = (struct sl_item_spill){
        .key = {.at = entry->key, .length = entry->key_length},
        .part_index = entry->part_index,
        .arena = entry->extent.arena,
        .offset_bytes = entry->extent.offset_bytes,
        .length_bytes = entry->extent.length_bytes,
        .generation = entry->extent.generation,
        .digest_low = entry->digest.low,
        .digest_high = entry->digest.high,
    };
    if (entry->group != 0) {
        struct sl_group_info info;
        struct sl_entry group;
        sl_index_group_info(self->index, entry->group, &info);
        sl_index_read(self->index, entry->group, &group);
        spill->group_key = (struct sl_text){.at = group.key, .length = group.key_length};
        spill->part_count = info.part_count;
    }
}

/* Whether the key has a tombstone for the disk, which must be durable before a new value is
 * written. A tombstone without a place must not follow a new value. One that names the removed
 * value's place would hit a new value of the same bytes, since the tierer gives it that place and
 * does not write them twice. */
static bool key_has_tombstone(const struct registrar *self, const struct sl_entry *entry,
                              uint32_t disk)
{
    struct sl_key key = {.at = entry->key, .length = entry->key_length};
    return reg_tombstone_pending(self, key, disk);
}

/* Moves the oldest values from the queue into the batch. */
static void write_fill(struct registrar *self, struct reg_write *write)
{
    struct sl_heap *queue = &self->writes->queue;
    const struct reg_disk *disk = &self->tier->disks[write->disk];
    uint64_t bytes = 0;
    write->count = 0;
    uint32_t looks = 0;
    for (; queue->count > 0 && write->count < disk->batch_items && looks < LOOKS_MAX; looks++) {
        const struct sl_heap_item *item = &queue->items[0];
        struct sl_entry entry;
        if (item_wanted(self, item, &entry)) {
            if (key_has_tombstone(self, &entry, write->disk) ||
                (write->count > 0 &&
                 bytes + entry.extent.length_bytes > self->tier->batch_bytes_max)) {
                break;
            }
            bytes += entry.extent.length_bytes;
            spill_fill(self, &entry, &self->writes->spills[write->count]);
            write->hashes[write->count] = reg_hash(entry.key, entry.key_length);
            write->items[write->count++] = *item;
            self->writes->group = entry.group;
        }
        queue_pop(self);
    }
    self->writes->more = self->writes->more || looks == LOOKS_MAX;
    write->bytes = bytes;
}

static void flag_writing(struct registrar *self, sl_ref ref, bool writing)
{
    struct sl_links *links = sl_index_links(self->index, ref);
    links->flags =
        (uint16_t)(writing ? links->flags | REG_FLAG_WRITING : links->flags & ~REG_FLAG_WRITING);
}

static void write_end(struct registrar *self, struct reg_write *write)
{
    struct reg_disk *disk = &self->tier->disks[write->disk];
    write->used = false;
    disk->writes--;
    disk->write_bytes -= write->bytes;
}

static bool write_start(struct registrar *self, uint32_t index, uint32_t slot)
{
    struct reg_write *write = &self->writes->all[index];
    struct reg_disk *disk = &self->tier->disks[slot];
    write->disk = slot;
    write_fill(self, write);
    if (write->count == 0) {
        return false;
    }
    struct sl_msg msg = {.type = SL_MSG_DISK_WRITE};
    msg.body.disk_write.items.at = self->writes->spills;
    msg.body.disk_write.items.count = write->count;
    uint64_t deadline_ns = sl_deadline_ns(self->env->now_ns, REG_DISK_CALL_NS);
    sl_err err = sl_calls_send(self->calls, self->peers->all[disk->tierer].name, &msg, deadline_ns,
                               reg_cookie(REG_CALL_WRITE, index), &write->seq);
    if (err != SL_OK) {
        for (uint32_t i = write->count; i-- > 0;) {
            queue_return(self, &write->items[i]);
        }
        write->count = 0;
        return false;
    }
    write->used = true;
    disk->writes++;
    disk->write_bytes += write->bytes;
    self->writes->disk = slot;
    for (uint32_t i = 0; i < write->count; i++) {
        flag_writing(self, write->items[i].id, true);
    }
    return true;
}

/* Whether requests wait for these writes: for memory that is only freed when it is on disk, for the
 * disk itself, or soon for memory, since a quarter of the units in memory is not on disk yet. */
static bool writes_are_awaited(const struct registrar *self)
{
    uint32_t at = 0;
    return self->space.waiting_count > 0 || self->space.fetch_blocked ||
           reg_answer_next(self, REG_ANSWER_FLUSH, &at) != NULL || self->draining ||
           self->writes->queue.count > (reg_unit_count(self) - self->units->cold.count) / 4;
}

/* Reads come first: loads, then fetches ahead of use. */
static uint32_t writes_max(const struct registrar *self, const struct reg_disk *disk)
{
    bool reads = disk->reads[false] > 0 || disk->reads[true] > 0 ||
                 disk->fetches[false].first != REG_NONE || disk->fetches[true].first != REG_NONE;
    return reads && !writes_are_awaited(self) ? REG_WRITES_YIELDING : REG_WRITES_MAX;
}

static bool disk_takes_writes(const struct registrar *self, uint32_t slot)
{
    const struct reg_disk *disk = &self->tier->disks[slot];
    return reg_disk_usable(self, slot) && self->env->now_ns >= disk->retry_ns &&
           disk->writes < writes_max(self, disk) && reg_members_is_current(self, disk->path);
}

/* Whether the oldest value in the queue is a part of the block that was last written to a disk. If
 * its parts are on one disk, only that disk's failure loses the block. */
static bool queue_continues(struct registrar *self)
{
    const struct sl_heap_item *item = &self->writes->queue.items[0];
    struct sl_entry entry;
    return self->writes->group != 0 && item_wanted(self, item, &entry) &&
           entry.group == self->writes->group;
}

/* Bytes in flight to the disk; a disk without budget left is ranked after all others. */
static uint64_t bytes_before(const struct registrar *self, uint32_t disk)
{
    bool spent = reg_disk_budget_left(self, disk) <= 0;
    return self->tier->disks[disk].write_bytes + (spent ? UINT64_MAX / 2 : 0);
}

/* The disk with the fewest bytes in flight, except those in `tried` (a bit each); of equal ones a
 * hash of the value decides. A slow disk keeps its bytes in flight longer, so it gets fewer. */
static uint32_t disk_for_write(struct registrar *self, uint16_t tried)
{
    uint32_t best = REG_NONE;
    uint64_t best_hash = 0;
    uint64_t generation = self->writes->queue.items[0].cookie;
    if (tried == 0 && disk_takes_writes(self, self->writes->disk) && queue_continues(self)) {
        return self->writes->disk;
    }
    for (uint32_t i = 0; i < REG_DISK_UNKNOWN; i++) {
        if ((tried & REG_DISK_BIT(i)) != 0 || !disk_takes_writes(self, i)) {
            continue;
        }
        const uint64_t mixed[] = {generation, i};
        uint64_t hash = reg_hash(mixed, sizeof(mixed));
        uint64_t bytes = bytes_before(self, i);
        uint64_t best_bytes = best != REG_NONE ? bytes_before(self, best) : UINT64_MAX;
        if (bytes < best_bytes || (bytes == best_bytes && hash > best_hash)) {
            best = i;
            best_hash = hash;
        }
    }
    return best;
}

static bool write_next(struct registrar *self, uint32_t index)
{
    uint16_t tried = 0;
    while (self->writes->queue.count > 0) {
        uint32_t slot = disk_for_write(self, tried);
        if (slot == REG_NONE) {
            return false;
        }
        if (write_start(self, index, slot)) {
            return true;
        }
        tried |= REG_DISK_BIT(slot); /* a tombstone delays the key there */
    }
    return false;
}

static void writes_pump(struct registrar *self)
{
    self->writes->more = false;
    if (self->space.waiting_count > 0) { /* they must not wait for writes of removed values */
        (void)reg_writes_oldest(self);
    }
    if (self->writes->queue.count > 0) {
        reg_members_change(self, false);
        if (!reg_members_all_current(self)) {
            return;
        }
    }
    for (uint32_t i = 0; i < self->writes->count && self->writes->queue.count > 0; i++) {
        if (!self->writes->all[i].used && !write_next(self, i)) {
            return;
        }
    }
}

/* ---- endings ---- */

static void item_durable(struct registrar *self, const struct sl_heap_item *item,
                         const struct sl_disk_place *place)
{
    sl_ref fresh;
    struct sl_entry entry;
    if (place->segment <= self->tier->disks[place->disk].deleted_segment) {
        sl_index_links(self->index, item->id)->flags |= REG_FLAG_RECLAIMED;
        return;
    }
    sl_err err = reg_record_switch(self, item->id, NULL, place, &fresh);
    if (err == SL_ERR_NO_SPACE && reg_make_index_room(self) &&
        item_is_current(self, item, &entry)) {
        err = reg_record_switch(self, item->id, NULL, place, &fresh);
    }
    if (err != SL_OK && item_is_current(self, item, &entry)) {
        sl_index_links(self->index, item->id)->disks |= REG_DISK_BIT(place->disk);
        queue_return(self, item);
    } else if (err == SL_OK) {
        sl_index_read(self->index, fresh, &entry);
        sl_index_links(self->index, reg_unit_of(&entry))->flags &= (uint16_t)~REG_FLAG_READ;
    }
}

static void disk_fails(struct registrar *self, struct reg_disk *disk)
{
    if (disk->failing_since_ns == 0) {
        disk->failing_since_ns = self->env->now_ns;
    }
    disk->failing = true;
    disk->retry_ns = self->env->now_ns + REG_DISK_RETRY_NS;
}

/* alone: the value was the only one of its batch, and the error was for it. */
static void item_failed(struct registrar *self, const struct sl_heap_item *item, uint32_t slot,
                        sl_err code, bool alone)
{
    struct reg_disk *disk = &self->tier->disks[slot];
    sl_metric_add(self->env->metrics, self->writes->metric.write_failed_count, 1);
    if (sl_err_class(code) == SL_CLASS_CALL || (code == SL_ERR_LIMIT && alone)) {
        /* The disk will never accept it (larger than a log file): it stays in memory only. */
        reg_log(self, SL_LOG_WARN, 0, "an object cannot go to disk: %s", sl_err_text(code));
        sl_index_links(self->index, item->id)->flags |= REG_FLAG_RECLAIMED;
        return;
    }
    queue_return(self, item);
    if (code == SL_ERR_LIMIT || code == SL_ERR_BUSY || code == SL_ERR_DRAINING) {
        /* The tierer is busy, or the batch was too large. */
        disk->batch_items = SL_MAX(disk->batch_items / 2, 1u);
        disk->retry_ns = SL_MAX(disk->retry_ns, self->env->now_ns + REG_DISK_BUSY_NS);
        return;
    }
    sl_index_links(self->index, item->id)->disks |= REG_DISK_BIT(slot); /* it may be on the disk */
    if (!disk->failing) {
        reg_log(self, SL_LOG_WARN, 0,
                "write to the disk of tierer.%u failed (%s): tried again in %" PRIu64 " ms",
                disk->path, sl_err_text(code), REG_DISK_RETRY_NS / SL_NS_PER_MS);
    }
    disk_fails(self, disk);
}

static const struct sl_item_spilled *spilled_of(const struct sl_msg *msg, uint32_t i,
                                                uint64_t generation)
{
    const struct sl_body_disk_write_reply *body = &msg->body.disk_write_reply;
    if (msg->code == SL_OK && i < body->items.count && body->items.at[i].generation == generation) {
        return &body->items.at[i];
    }
    return NULL;
}

/* Ends one value of a batch. Returns whether it is durable. */
static bool write_item_end(struct registrar *self, struct reg_write *write, uint32_t i,
                           const struct sl_msg *msg)
{
    const struct sl_heap_item item = write->items[i];
    const struct sl_item_spilled *spilled = spilled_of(msg, i, item.cookie);
    sl_err code = spilled != NULL ? (sl_err)spilled->code
                                  : (msg->code != SL_OK ? msg->code : SL_ERR_PROTOCOL);
    struct sl_disk_place place = {.valid = 1, .disk = (uint16_t)write->disk};
    if (spilled != NULL) {
        place.segment = (uint32_t)spilled->segment;
        place.offset_bytes = spilled->disk_offset_bytes;
    }
    struct sl_entry entry;
    if (!item_is_current(self, &item, &entry)) {
        reg_retired_read_done(self, item.cookie);
        return code == SL_OK;
    }
    flag_writing(self, item.id, false);
    if (code == SL_OK) {
        sl_metric_add(self->env->metrics, self->writes->metric.written_count, 1);
        sl_metric_add(self->env->metrics, self->writes->metric.written_bytes,
                      entry.extent.length_bytes);
        self->units->written_bytes += entry.extent.length_bytes;
        item_durable(self, &item, &place);
    } else if (code == SL_ERR_CORRUPT) {
        reg_memory_damaged(self, item.id);
    } else {
        item_failed(self, &item, write->disk, code, spilled != NULL && write->count == 1);
    }
    return code == SL_OK;
}

static void write_reply(struct registrar *self, uint32_t index, const struct sl_msg *msg)
{
    struct reg_write *write = &self->writes->all[index];
    struct reg_disk *disk = &self->tier->disks[write->disk];
    bool failing = disk->failing;
    bool durable = false;
    uint32_t batch_items = disk->batch_items;
    if (msg->code == SL_OK) {
        reg_disk_budget_set(self, write->disk, msg->body.disk_write_reply.budget_left,
                            msg->body.disk_write_reply.budget_debt);
    }
    disk->failing = false;
    (void)reg_accesses_drain(self); /* noted accesses name records that are replaced here */
    for (uint32_t i = write->count; i-- > 0;) { /* last first: this keeps the queue's order */
        durable = write_item_end(self, write, i, msg) || durable;
    }
    if (failing && !disk->failing && !durable) {
        disk->failing = true; /* the tierer was only busy */
    } else if (failing && !disk->failing) {
        disk->retry_ns = 0;
        disk->failing_since_ns = 0;
        reg_log(self, SL_LOG_INFO, 0, "the disk of tierer.%u takes writes again", disk->path);
    }
    if (batch_items == disk->batch_items) {
        disk->batch_items = SL_MIN(batch_items * 2, REG_WRITE_ITEMS_MAX);
    } else {
        disk->batch_items = SL_MAX(batch_items / 2, 1u); /* once for a reply, not for each item */
    }
    write_end(self, write);
    self->space.freed = true; /* values on disk may leave memory */
}

/* No reply will arrive: all values return to the queue. */
static void write_return(struct registrar *self, struct reg_write *write)
{
    for (uint32_t i = write->count; i-- > 0;) {
        struct sl_entry entry;
        if (item_is_current(self, &write->items[i], &entry)) {
            flag_writing(self, write->items[i].id, false);
            sl_index_links(self->index, write->items[i].id)->disks |= REG_DISK_BIT(write->disk);
            queue_return(self, &write->items[i]);
        } else {
            reg_retired_read_done(self, write->items[i].cookie);
        }
    }
    write_end(self, write);
}

static void write_expired(struct registrar *self, uint32_t index)
{
    struct reg_write *write = &self->writes->all[index];
    struct reg_disk *disk = &self->tier->disks[write->disk];
    reg_log(self, SL_LOG_WARN, 0, "tierer.%u has not answered a write for %" PRIu64 " s",
            disk->path, REG_DISK_CALL_NS / SL_NS_PER_S);
    write_return(self, write);
    disk_fails(self, disk);
    self->space.freed = true;
}

static void writes_disk_left(struct registrar *self, uint32_t disk)
{
    for (uint32_t i = 0; i < self->writes->count; i++) {
        if (self->writes->all[i].used && self->writes->all[i].disk == disk) {
            sl_calls_drop(self->calls, self->writes->all[i].seq);
            write_return(self, &self->writes->all[i]);
        }
    }
}

static void writes_fini(struct registrar *self)
{
    free(self->writes->all);
    sl_heap_fini(&self->writes->queue);
    free(self->writes->spills);
}

/* The oldest value that is queued or in flight; NULL: there is none. */
static const struct sl_heap_item *item_oldest(struct registrar *self)
{
    struct sl_heap *queue = &self->writes->queue;
    struct sl_entry entry;
    uint32_t looks = 0;
    for (; looks < LOOKS_MAX && queue->count > 0 && !item_wanted(self, &queue->items[0], &entry);
         looks++) {
        queue_pop(self);
    }
    self->writes->more = self->writes->more || looks == LOOKS_MAX;
    const struct sl_heap_item *oldest = queue->count > 0 ? &queue->items[0] : NULL;
    for (uint32_t w = 0; w < self->writes->count; w++) {
        const struct reg_write *write = &self->writes->all[w];
        for (uint32_t i = 0; write->used && i < write->count; i++) {
            bool older = oldest == NULL || write->items[i].at_ns < oldest->at_ns;
            oldest = older ? &write->items[i] : oldest;
        }
    }
    return oldest;
}

uint64_t reg_writes_oldest(struct registrar *self)
{
    const struct sl_heap_item *oldest = item_oldest(self);
    return oldest != NULL ? oldest->at_ns : UINT64_MAX;
}

bool reg_write_runs(const struct registrar *self, uint64_t key_hash, uint32_t disk)
{
    bool runs = false;
    for (uint32_t w = 0; w < self->writes->count && !runs; w++) {
        const struct reg_write *write = &self->writes->all[w];
        for (uint32_t i = 0; write->used && write->disk == disk && i < write->count; i++) {
            runs = runs || write->hashes[i] == key_hash;
        }
    }
    return runs;
}

bool reg_writes_outstanding(struct registrar *self)
{
    return reg_copy_required(self) && reg_writes_oldest(self) != UINT64_MAX;
}

/* ---- the part ---- */

static sl_err writes_init(struct registrar *self, struct sl_error *why)
{
    struct reg_writes *writes = self->writes;
    writes->spills = calloc(REG_WRITE_ITEMS_MAX, sizeof(*writes->spills));
    writes->count = REG_WRITES_MAX * self->tier->path_count;
    writes->all = calloc(SL_MAX(writes->count, 1u), sizeof(*writes->all));
    return writes->spills != NULL && writes->all != NULL
               ? SL_OK
               : sl_fail(why, SL_ERR_NO_MEMORY, "tables of disk writes");
}

static bool writes_drain(const struct registrar *self)
{
    return reg_disks_writable(self) && writes_pending(self) > 0;
}

static uint64_t writes_next(const struct registrar *self)
{
    return self->writes->more ? self->env->now_ns : SL_NEVER_NS;
}

static void writes_gauges(struct registrar *self)
{
    struct sl_metrics *page = self->env->metrics;
    const struct sl_heap_item *oldest = item_oldest(self);
    uint64_t lag_ns =
        oldest != NULL ? self->env->now_ns - SL_MIN(self->env->now_ns, oldest->at_ns) : 0;
    sl_metric_set(page, self->writes->metric.write_behind_lag_ms, lag_ns / SL_NS_PER_MS);
    sl_metric_set(page, self->writes->metric.write_behind_pending_count, writes_pending(self));
}

static const struct sl_metric_row metrics[] = {
    REG_METRIC(reg_writes, write_behind_pending_count),
    REG_METRIC(reg_writes, write_behind_lag_ms),
    REG_METRIC(reg_writes, written_count),
    REG_METRIC(reg_writes, written_bytes),
    REG_METRIC(reg_writes, write_failed_count),
};

static const struct reg_call calls[] = {
    {.kind = REG_CALL_WRITE, .reply = write_reply, .expired = write_expired},
};

const struct reg_part reg_writes_part = {
    .name = "writes",
    REG_STATE(writes, reg_writes),
    REG_METRICS(metrics),
    REG_CALLS(calls),
    .init = writes_init,
    .drains = writes_drain,
    .fini = writes_fini,
    .disk_left = writes_disk_left,
    .after = writes_pump,
    .next_ns = writes_next,
    .gauges = writes_gauges,
};
