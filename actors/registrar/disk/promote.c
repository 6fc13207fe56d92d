/* actors/registrar/disk/promote.c - BRING: reads values that are only on disk into memory.
 *
 * A fetch waits in a queue for an extent. Then its claim (PROMOTING, writer = the tierer) is
 * recorded and the tierer reads into the extent. Fetches that a reader waits for are served first
 * and make room as a RESERVE does. Others start when none of these waits at the disk, a bounded
 * number of bytes at a time, and take only memory whose eviction costs nothing. A BRING that waits
 * for the same key raises such a fetch, queued or reading. */
#include "actors/registrar/disk/promote.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/disks.h"
#include "actors/registrar/disk/reclaim.h"
#include "actors/registrar/disk/write_behind.h"
#include "actors/registrar/memory/contributions.h"
#include "actors/registrar/memory/evict.h"
#include "actors/registrar/memory/populate.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/records/claims.h"
#include "actors/registrar/records/fences.h"
#include "actors/registrar/records/units.h"

#include <inttypes.h>
#include <string.h>

/* Prefetched values that no reader has used yet take at most one part in this many of memory. */
#define PREFETCH_MEMORY_SHARE 4u

/* ---- the messages ---- */

/* The value is in memory and about to be read: it must not be the next victim. */
static sl_err promote_resident(struct registrar *self, const struct sl_entry *entry,
                               const struct reg_promote *promote)
{
    if (promote != NULL && promote->keep_until_ns != 0) {
        reg_returning_keep(self, reg_unit_of(entry), promote->keep_until_ns);
    } else if (promote != NULL && promote->ahead) {
        reg_unit_use_expected(self, reg_unit_of(entry));
    } else {
        reg_unit_touch(self, reg_unit_of(entry));
    }
    return SL_ERR_EXISTS;
}

/* REG_NONE: too many fetches. */
static uint32_t fetch_for(struct registrar *self, const struct sl_entry *entry, bool ahead)
{
    uint32_t fetch = reg_fetch_find(self, entry);
    if (fetch == REG_NONE) {
        return reg_fetch_add(self, entry, ahead);
    }
    if (!ahead) {
        reg_fetch_raise(self, fetch);
    }
    return fetch;
}

/* SL_ERR_INCOMPLETE: the value is being read for this item. promote NULL: the node has no disks. */
static sl_err promote_key(struct registrar *self, const struct reg_promote *promote, uint32_t item,
                          const struct sl_text *key)
{
    struct sl_entry entry;
    bool ahead = promote != NULL && promote->ahead;
    if (sl_index_find_any(self->index, key->at, (uint32_t)key->length, &entry) != SL_OK ||
        !reg_unit_visible(self, &entry)) {
        return SL_ERR_NOT_FOUND;
    }
    if (entry.extent.generation != 0) {
        return promote_resident(self, &entry, promote);
    }
    enum reg_reclaim_phase phase = reg_reclaim_phase(self, &entry.disk);
    if (entry.disk.valid == 0 || !self->tier->on || self->tier->disks[entry.disk.disk].gone ||
        phase == REG_RECLAIM_CLEARING) {
        return SL_ERR_NOT_FOUND;
    }
    if (phase == REG_RECLAIM_DELETING) {
        return SL_ERR_BUSY; /* its file is being deleted, unless the tierer dies first */
    }
    if (reg_disk_unreachable(self, entry.disk.disk)) {
        return SL_ERR_UNREACHABLE;
    }
    uint32_t fetch = fetch_for(self, &entry, ahead);
    if (fetch == REG_NONE || !reg_waiter_add(self, fetch, promote, item)) {
        return SL_ERR_LIMIT; /* a new fetch without a waiter is dropped later */
    }
    if (ahead) {
        struct reg_fetch *at = &self->promotion->fetches[fetch];
        at->keep_until_ns = SL_MAX(at->keep_until_ns, promote->keep_until_ns);
    }
    return SL_ERR_INCOMPLETE;
}

void reg_promote_held(struct registrar *self, sl_ref group)
{
    struct reg_unit_parts parts;
    reg_unit_parts(self, group, &parts);
    for (uint32_t i = 0; self->tier->on && i < parts.count; i++) {
        struct sl_entry entry;
        sl_index_read(self->index, parts.refs[i], &entry);
        if (entry.kind == SL_RECORD_COMMITTED && entry.extent.generation == 0 &&
            entry.disk.valid != 0 && !self->tier->disks[entry.disk.disk].gone &&
            !reg_disk_unreachable(self, entry.disk.disk)) {
            reg_reclaim_check(self, &entry.disk);
            uint32_t fetch = fetch_for(self, &entry, false);
            if (fetch == REG_NONE) {
                continue; /* decode will request it, and a reclaim waits for it */
            }
            self->promotion->fetches[fetch].held = true;
        }
    }
}

/* False: a session's values are not worth their memory; all codes are SL_ERR_NO_SPACE. */
static bool returning_begin(struct registrar *self, struct reg_promote *promote,
                            const struct sl_body_bring *asked)
{
    if (asked->for_ns == 0) {
        return true;
    }
    promote->keep_until_ns = sl_deadline_ns(self->env->now_ns, asked->for_ns);
    bool fits = reg_returning_fits(self, asked, &promote->lacks_bytes);
    for (uint32_t i = 0; !fits && i < promote->count; i++) {
        promote->codes[i] = SL_ERR_NO_SPACE;
    }
    return fits;
}

static void promote_asked(struct registrar *self, const struct sl_msg *msg)
{
    const struct sl_body_bring *asked = &msg->body.bring;
    const struct sl_texts *keys = &asked->keys;
    if (asked->groups.count + asked->slots.count > 0 || asked->chain || asked->sure) {
        sl_reply_fail(self->env, msg, SL_ERR_INVALID,
                      "BRING of disks: only keys, ahead, for_ns, worth, chain_bytes");
        return;
    }
    if (!self->tier->on || keys->count == 0) {
        for (uint64_t i = 0; i < keys->count; i++) {
            self->codes[i] = (uint64_t)promote_key(self, NULL, 0, &keys->at[i]);
        }
        reg_answer_codes(self, msg, keys->count);
        return;
    }
    struct reg_promote *promote;
    promote = reg_answer_new(self, msg, asked->ahead ? REG_ANSWER_AHEAD : REG_ANSWER_BRING,
                             sizeof(*promote) + keys->count * sizeof(*promote->codes));
    if (promote == NULL) {
        return;
    }
    promote->ahead = asked->ahead;
    promote->codes = (uint64_t *)(promote + 1);
    promote->count = (uint32_t)keys->count;
    if (promote->ahead && !returning_begin(self, promote, asked)) {
        reg_promote_answer(self, promote);
        return;
    }
    for (uint32_t i = 0; i < promote->count; i++) {
        sl_err code = promote_key(self, promote, i, &keys->at[i]);
        promote->codes[i] = (uint64_t)(code == SL_ERR_INCOMPLETE ? SL_ERR_TIMEOUT : code);
        promote->left += code == SL_ERR_INCOMPLETE ? 1 : 0;
    }
    sl_trace_event(self->env->metrics, self->env->now_ns, msg->trace_id,
                   promote->ahead ? "prefetch" : "promote", msg->sender.at, promote->left);
    if (promote->left == 0) {
        reg_promote_answer(self, promote);
    }
}

/* ---- reading ---- */

static bool source_is_valid(struct registrar *self, const struct reg_fetch *fetch,
                            struct sl_entry *source)
{
    if (!sl_index_ref_live(self->index, fetch->source)) {
        return false;
    }
    sl_index_read(self->index, fetch->source, source);
    return source->kind == SL_RECORD_COMMITTED && source->version == fetch->source_version &&
           source->disk.valid != 0 && reg_reclaim_phase(self, &source->disk) < REG_RECLAIM_DELETING;
}

/* Takes an extent and records the claim. SL_ERR_STALE: the source record changed meanwhile. */
static sl_err fetch_claim(struct registrar *self, struct reg_fetch *fetch, struct sl_entry *source,
                          uint64_t batch_bytes)
{
    char key[SL_KEY_BYTES_MAX];
    uint64_t offset_bytes = 0;
    uint32_t charged = 0;
    uint32_t tierer = self->tier->disks[fetch->disk].tierer;
    memcpy(key, source->key, source->key_length);
    sl_err err = fetch->ahead ? reg_take_charged_for_prefetch(self, source->extent.length_bytes,
                                                              batch_bytes, &offset_bytes, &charged)
                              : reg_take_charged(self, NULL, source->extent.length_bytes,
                                                 &offset_bytes, &charged);
    if (err != SL_OK) {
        return err;
    }
    struct reg_claim claim = {
        .state = REG_CLAIM_PROMOTING,
        .extent = {.generation = sl_arena_next_generation(self->arena),
                   .offset_bytes = offset_bytes,
                   .length_bytes = source->extent.length_bytes},
        .hash = reg_hash(key, source->key_length),
        .owner_peer = REG_NONE,
        .writer_peer = tierer,
        .group = REG_NONE,
    };
    struct sl_entry record = {
        .kind = SL_RECORD_PROMOTING,
        .extent = claim.extent,
        .owner = self->env->self,
        .writer = self->peers->all[tierer].proc,
        .digest = source->digest,
        .contribution = charged,
        .key = key,
        .key_length = source->key_length,
    };
    err = sl_index_claim(self->index, &record, &claim.ref, NULL);
    for (uint32_t i = 0; err == SL_ERR_NO_SPACE && !fetch->ahead && i < REG_INDEX_ROUNDS &&
                         reg_make_index_room(self);
         i++) {
        err = sl_index_claim(self->index, &record, &claim.ref, NULL);
    }
    fetch->claim = err == SL_OK ? reg_claim_add(self, &claim) : REG_NONE;
    if (fetch->claim == REG_NONE) {
        if (err == SL_OK) {
            sl_index_set_kind(self->index, claim.ref, SL_RECORD_FREE);
        }
        reg_give_charged(self, offset_bytes, claim.extent.length_bytes, charged);
        return err == SL_OK ? SL_ERR_NO_SPACE : err;
    }
    if (!source_is_valid(self, fetch, source)) {
        reg_claim_release(self, fetch->claim);
        fetch->claim = REG_NONE;
        return SL_ERR_STALE;
    }
    return SL_OK;
}

static void fill_make(struct registrar *self, const struct reg_fetch *fetch,
                      const struct sl_entry *source, struct sl_item_fill *fill)
{
    const struct reg_claim *claim = &self->claims->all[fetch->claim];
    *fill = (struct sl_item_fill){
        .key = {.at = source->key, .length = source->key_length},
        .segment = source->disk.segment,
        .disk_offset_bytes = source->disk.offset_bytes,
        .length_bytes = source->extent.length_bytes,
        .digest_low = source->digest.low,
        .digest_high = source->digest.high,
        .arena = claim->extent.arena,
        .offset_bytes = claim->extent.offset_bytes,
        .ref = claim->ref,
        .generation = claim->extent.generation,
    };
}

/* The code for a key whose record changed during the fetch. */
static sl_err fetch_outcome(struct registrar *self, const char *key, uint32_t key_length)
{
    struct sl_entry entry;
    if (sl_index_find_any(self->index, key, key_length, &entry) != SL_OK ||
        entry.kind != SL_RECORD_COMMITTED || !reg_unit_visible(self, &entry)) {
        return SL_ERR_NOT_FOUND;
    }
    return entry.extent.generation != 0 ? SL_OK : SL_ERR_BUSY;
}

/* Whether this many more bytes that no reader has used may be in memory. */
static bool prefetch_fits(const struct registrar *self, uint64_t length_bytes, bool returning)
{
    uint64_t bytes = self->units->prefetched_unread_bytes + length_bytes;
    for (uint32_t i = 0; i < REG_DISK_UNKNOWN; i++) {
        bytes += self->tier->disks[i].ahead_bytes;
    }
    return bytes <=
           reg_ceiling_bytes(self) / (returning ? REG_RETURNING_SHARE : PREFETCH_MEMORY_SHARE);
}

/* There is no room: ends all fetches ahead of use in the disk's queue, so that the search for room
 * is not repeated for each. kept: also those for a reclaim. */
static void ahead_refuse(struct registrar *self, const struct reg_disk *disk, bool kept)
{
    uint32_t slot = disk->fetches[true].first;
    while (slot != REG_NONE) {
        uint32_t next = self->promotion->fetches[slot].next;
        bool prefetch = self->promotion->fetches[slot].kept_for == 0;
        if (prefetch || kept) {
            reg_fetch_unqueue(self, slot);
            reg_fetch_end(self, slot, SL_ERR_NO_SPACE);
            sl_metric_add(self->env->metrics, self->promotion->metric.prefetch_refused_count,
                          prefetch);
        }
        slot = next;
    }
}

/* Bytes that the batch may still take, if the queued values are as large as this one. */
static uint64_t batch_left(const struct registrar *self, const struct reg_read *read,
                           uint64_t length_bytes)
{
    uint64_t count = SL_MIN(self->promotion->ahead_fetches, REG_READ_ITEMS_MAX - read->count);
    uint64_t bytes = self->promotion->prefetch_bytes_max -
                     SL_MIN(read->bytes, self->promotion->prefetch_bytes_max);
    return SL_MIN(count * sl_extent_space(length_bytes), bytes);
}

/* Claims an extent for the fetch, which is in no queue. True: it joins the batch. False: *stop is
 * set if the rest of the queue has to wait as well. */
static bool fetch_take(struct registrar *self, const struct reg_read *read, uint32_t slot,
                       struct sl_entry *source, bool *stop)
{
    struct reg_fetch *fetch = &self->promotion->fetches[slot];
    struct reg_disk *disk = &self->tier->disks[fetch->disk];
    bool prefetch = fetch->ahead && fetch->kept_for == 0;
    sl_err err =
        prefetch && !prefetch_fits(self, read->bytes + source->extent.length_bytes,
                                   fetch->keep_until_ns != 0)
            ? SL_ERR_NO_SPACE
            : fetch_claim(self, fetch, source, batch_left(self, read, source->extent.length_bytes));
    bool ahead = fetch->ahead;
    uint64_t most = SL_MIN(reg_charge_largest(self), reg_ceiling_bytes(self));
    bool fits = sl_extent_space(source->extent.length_bytes) <= most; /* else none ever suffices */
    if (err == SL_ERR_NO_SPACE && !ahead && fits) {
        reg_fetch_prepend(self, slot);
        self->space.fetch_blocked = true;
        self->space.fetch_blocked_ns =
            self->space.fetch_blocked_ns != 0 ? self->space.fetch_blocked_ns : self->env->now_ns;
        *stop = true;
        return false;
    }
    self->space.fetch_blocked_ns = ahead ? self->space.fetch_blocked_ns : 0;
    if (err != SL_OK) {
        sl_metric_add(self->env->metrics, self->promotion->metric.prefetch_refused_count, prefetch);
        reg_fetch_end(self, slot, err == SL_ERR_STALE ? SL_ERR_BUSY : err);
        if (err == SL_ERR_NO_SPACE && ahead) {
            ahead_refuse(self, disk, !prefetch);
        }
        return false;
    }
    fetch->reading = true;
    return true;
}

/* Fills a batch from the queue until there is no space. Returns the number of its items. */
static uint32_t read_fill(struct registrar *self, struct reg_read *read)
{
    struct reg_disk *disk = &self->tier->disks[read->disk];
    struct reg_fetch_queue *queue = &disk->fetches[read->ahead];
    uint64_t bytes_max = read->ahead
                             ? self->promotion->prefetch_bytes_max -
                                   SL_MIN(disk->ahead_bytes, self->promotion->prefetch_bytes_max)
                             : REG_READ_BYTES_MAX;
    bool first = !read->ahead || disk->ahead_bytes == 0; /* a larger value is a batch by itself */
    bool stop = false;
    read->count = 0;
    read->bytes = 0;
    while (!stop && queue->first != REG_NONE && read->count < REG_READ_ITEMS_MAX) {
        uint32_t slot = queue->first;
        struct reg_fetch *fetch = &self->promotion->fetches[slot];
        struct sl_entry source;
        reg_fetch_unqueue(self, slot);
        if (!reg_fetch_is_awaited(self, fetch) || !source_is_valid(self, fetch, &source)) {
            reg_fetch_end(self, slot, SL_ERR_BUSY); /* it changed: the reader looks it up again */
            continue;
        }
        if ((read->count > 0 || !first) && read->bytes + source.extent.length_bytes > bytes_max) {
            reg_fetch_prepend(self, slot);
            break;
        }
        if (fetch_take(self, read, slot, &source, &stop)) {
            read->bytes += source.extent.length_bytes;
            read->fetches[read->count++] = slot;
        }
    }
    return read->count;
}

/* Fills the message last: making room for one value could have moved the records of others. */
static uint32_t read_items(struct registrar *self, struct reg_read *read)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < read->count; i++) {
        uint32_t slot = read->fetches[i];
        struct reg_fetch *fetch = &self->promotion->fetches[slot];
        struct sl_entry source;
        if (source_is_valid(self, fetch, &source)) {
            fill_make(self, fetch, &source, &self->promotion->fills[kept]);
            read->fetches[kept++] = slot;
            continue;
        }
        reg_claim_release(self, fetch->claim);
        reg_fetch_end(self, slot, SL_ERR_BUSY);
    }
    read->count = kept;
    return kept;
}

/* Returns the fetch to the head of its queue. */
static void fetch_return(struct registrar *self, uint32_t slot)
{
    struct reg_fetch *fetch = &self->promotion->fetches[slot];
    fetch->claim = REG_NONE;
    fetch->reading = false;
    reg_fetch_prepend(self, slot);
}

static void read_undo(struct registrar *self, struct reg_read *read)
{
    for (uint32_t i = read->count; i-- > 0;) {
        reg_claim_release(self, self->promotion->fetches[read->fetches[i]].claim);
        fetch_return(self, read->fetches[i]);
    }
    read->count = 0;
}

static void read_end(struct registrar *self, struct reg_read *read)
{
    struct reg_disk *disk = &self->tier->disks[read->disk];
    read->used = false;
    disk->reads[read->ahead]--;
    disk->ahead_bytes -= read->ahead ? read->bytes : 0;
}

static bool read_start(struct registrar *self, uint32_t index, uint32_t slot, bool ahead)
{
    struct reg_read *read = &self->promotion->reads[index];
    struct reg_disk *disk = &self->tier->disks[slot];
    read->disk = slot;
    read->ahead = ahead;
    if (read_fill(self, read) == 0 || read_items(self, read) == 0) {
        return false;
    }
    struct sl_msg msg = {.type = SL_MSG_DISK_READ};
    msg.body.disk_read.items.at = self->promotion->fills;
    msg.body.disk_read.items.count = read->count;
    msg.body.disk_read.ahead = ahead;
    sl_err err = sl_calls_send(self->calls, self->peers->all[disk->tierer].name, &msg,
                               sl_deadline_ns(self->env->now_ns, REG_DISK_CALL_NS),
                               reg_cookie(REG_CALL_READ, index), &read->seq);
    if (err != SL_OK) {
        read_undo(self, read);
        return false;
    }
    read->used = true;
    disk->reads[ahead]++;
    disk->ahead_bytes += ahead ? read->bytes : 0;
    return true;
}

/* False: no read can be sent to any disk at the moment. */
static bool reads_start(struct registrar *self, uint32_t slot)
{
    struct reg_disk *disk = &self->tier->disks[slot];
    const struct reg_fetch_queue *queue = &disk->fetches[false];
    for (uint32_t i = 0; i < self->promotion->read_count && queue->first != REG_NONE &&
                         !self->space.fetch_blocked && disk->reads[false] < REG_READS_MAX;
         i++) {
        if (!self->promotion->reads[i].used && !read_start(self, i, slot, false) &&
            !self->space.fetch_blocked && queue->first != REG_NONE) {
            return false; /* the table of calls is full: retried at the next tick */
        }
    }
    return !self->space.fetch_blocked;
}

/* Starts fetches that no reader waits for: not while requests wait for the memory that they would
 * take. Those for a reclaim are at the head of the queue and start in any case: they are few, and
 * the reclaim makes room on the disk. */
static void ahead_start(struct registrar *self, uint32_t slot)
{
    struct reg_disk *disk = &self->tier->disks[slot];
    const struct reg_fetch_queue *queue = &disk->fetches[true];
    for (uint32_t i = 0; i < self->promotion->read_count && queue->first != REG_NONE &&
                         disk->reads[true] < REG_AHEAD_READS_MAX;
         i++) {
        bool kept = self->promotion->fetches[queue->first].kept_for != 0;
        bool awaited = self->space.waiting_count > 0;
        if (!kept && (awaited || self->space.fetch_blocked)) {
            return;
        }
        if (!self->promotion->reads[i].used && !read_start(self, i, slot, true)) {
            return;
        }
    }
}

void reg_promotes_pump(struct registrar *self)
{
    bool waiting = false;
    bool all = true;
    if (self->space.freed) {
        self->space.fetch_blocked = false;
    }
    for (uint32_t i = 0; self->promotion->fetch_count > 0 && i < REG_DISK_UNKNOWN; i++) {
        waiting |=
            reg_disk_readable(self, i) && self->tier->disks[i].fetches[false].first != REG_NONE;
    }
    if (!waiting) {
        self->space.fetch_blocked_ns = 0;
    }
    for (uint32_t i = 0; waiting && all && i < REG_DISK_UNKNOWN; i++) {
        all = !reg_disk_readable(self, i) || reads_start(self, i);
    }
    for (uint32_t i = 0; self->promotion->ahead_fetches > 0 && i < REG_DISK_UNKNOWN; i++) {
        if (reg_disk_readable(self, i) && self->tier->disks[i].fetches[false].first == REG_NONE) {
            ahead_start(self, i);
        }
    }
}

/* ---- endings ---- */

/* Places the unit among those in memory. If a reader wanted it, it is the newest. If it was read
 * only to be rewritten to the log, it is the next victim once it is written. */
static void unit_arrived(struct registrar *self, const struct reg_fetch *fetch, sl_ref ref)
{
    struct sl_entry entry;
    sl_index_read(self->index, ref, &entry);
    sl_ref unit = reg_unit_of(&entry);
    bool kept = fetch->ahead && fetch->waiters == REG_NONE;
    bool returning = fetch->ahead && fetch->keep_until_ns != 0; /* no reader wants it yet */
    bool alone =
        (sl_index_links(self->index, unit)->flags & REG_FLAG_SKIPPED_LISTS) == REG_FLAG_COLD;
    if (alone) { /* its first part in memory */
        reg_unit_return(self, unit, !kept && !returning);
    } else if (!kept && !returning) {
        reg_unit_to_newest(self, unit);
    }
    if (!fetch->ahead) {
        reg_unit_read_for_use(self, unit);
    } else if (kept) {
        reg_unit_evict_first(self, unit);
        sl_metric_add(self->env->metrics, self->promotion->metric.kept_count, 1);
    } else {
        reg_unit_prefetched(self, unit, ref);
        sl_metric_add(self->env->metrics, self->promotion->metric.prefetched_count, 1);
        sl_metric_add(self->env->metrics, self->promotion->metric.prefetched_bytes,
                      entry.extent.length_bytes);
        reg_returning_keep(self, unit, fetch->keep_until_ns);
    }
}

/* The bytes are in memory and verified: the record gets the extent. */
static sl_err fetch_done(struct registrar *self, struct reg_fetch *fetch)
{
    struct reg_claim claim = self->claims->all[fetch->claim];
    struct sl_entry source;
    sl_ref fresh;
    char key[SL_KEY_BYTES_MAX];
    sl_index_read(self->index, claim.ref, &source);
    uint32_t key_length = source.key_length;
    memcpy(key, source.key, key_length);
    sl_err err = reg_charge_check(self, claim.ref);
    if (err == SL_OK && !source_is_valid(self, fetch, &source)) {
        err = SL_ERR_STALE;
    }
    if (err == SL_OK) {
        err = reg_record_switch(self, fetch->source, &claim.extent, NULL, &fresh);
        if (err == SL_ERR_NO_SPACE && !fetch->ahead && reg_make_index_room(self)) {
            err = source_is_valid(self, fetch, &source)
                      ? reg_record_switch(self, fetch->source, &claim.extent, NULL, &fresh)
                      : SL_ERR_STALE;
        }
    }
    if (err != SL_OK) {
        reg_claim_release(self, fetch->claim);
        return err == SL_ERR_STALE ? fetch_outcome(self, key, key_length) : err;
    }
    reg_charge_set(self, fresh, reg_charge_of(self, claim.ref));
    sl_index_set_kind(self->index, claim.ref, SL_RECORD_FREE); /* the record has the extent now */
    reg_claim_remove(self, fetch->claim);
    unit_arrived(self, fetch, fresh);
    sl_metric_add(self->env->metrics, self->promotion->metric.promoted_count, 1);
    sl_metric_add(self->env->metrics, self->promotion->metric.promoted_bytes,
                  claim.extent.length_bytes);
    return SL_OK;
}

static sl_err fetch_failed(struct registrar *self, struct reg_fetch *fetch, sl_err code)
{
    struct sl_entry source;
    sl_metric_add(self->env->metrics, self->promotion->metric.promote_failed_count, 1);
    reg_claim_release(self, fetch->claim); /* after the reply nothing is read into it any more */
    /* A disk that cannot read now may do so later: acknowledged values keep their places. */
    bool lost = sl_err_class(code) == SL_CLASS_DATA || code == SL_ERR_NOT_FOUND;
    if (lost && source_is_valid(self, fetch, &source)) {
        reg_place_lost(self, fetch->source, code);
    }
    return code;
}

static void read_reply(struct registrar *self, uint32_t index, const struct sl_msg *msg)
{
    struct reg_read *read = &self->promotion->reads[index];
    const struct sl_u64s *codes = &msg->body.disk_read_reply.codes;
    for (uint32_t i = 0; i < read->count; i++) {
        struct reg_fetch *fetch = &self->promotion->fetches[read->fetches[i]];
        sl_err code = msg->code;
        if (code == SL_OK) {
            code = i < codes->count ? (sl_err)codes->at[i] : SL_ERR_PROTOCOL;
        }
        code = code == SL_OK ? fetch_done(self, fetch) : fetch_failed(self, fetch, code);
        reg_fetch_end(self, read->fetches[i], code);
    }
    read_end(self, read);
}

static void read_expired(struct registrar *self, uint32_t index)
{
    struct reg_read *read = &self->promotion->reads[index];
    reg_log(self, SL_LOG_WARN, 0, "tierer.%u has not answered a read for %" PRIu64 " s",
            self->tier->disks[read->disk].path, REG_DISK_CALL_NS / SL_NS_PER_S);
    for (uint32_t i = 0; i < read->count; i++) {
        reg_claim_quarantine(self, self->promotion->fetches[read->fetches[i]].claim);
        reg_fetch_end(self, read->fetches[i], SL_ERR_TIMEOUT);
    }
    read_end(self, read);
}

/* The tierer died. Its I/O may go on for a while: values are read again into other extents. */
static void promotion_disk_left(struct registrar *self, uint32_t disk)
{
    for (uint32_t r = 0; r < self->promotion->read_count; r++) {
        struct reg_read *read = &self->promotion->reads[r];
        if (!read->used || read->disk != disk) {
            continue;
        }
        sl_calls_drop(self->calls, read->seq);
        for (uint32_t i = read->count; i-- > 0;) {
            reg_claim_quarantine(self, self->promotion->fetches[read->fetches[i]].claim);
            fetch_return(self, read->fetches[i]);
        }
        read_end(self, read);
    }
    for (uint32_t ahead = 0; self->tier->disks[disk].gone && ahead < 2; ahead++) {
        reg_fetches_end(self, disk, ahead, SL_ERR_NOT_FOUND);
    }
}

static void promotes_expire(struct registrar *self)
{
    uint64_t now_ns = self->env->now_ns;
    for (uint32_t i = 0; self->promotion->fetch_count > 0 && i < REG_DISK_UNKNOWN; i++) {
        if (reg_disk_unreachable(self, i)) {
            reg_fetches_end(self, i, false, SL_ERR_UNREACHABLE);
            reg_fetches_end(self, i, true, SL_ERR_UNREACHABLE);
        }
    }
    /* Memory that is being populated is waited for: requests have deadlines of their own. */
    bool late = self->space.fetch_blocked_ns != 0 && !reg_populate_pending(self) &&
                now_ns >= self->space.fetch_blocked_ns + REG_PROMOTE_WAIT_NS;
    if (late && reg_disks_writable(self) && reg_writes_outstanding(self)) {
        /* each value that reaches the disk may free memory */
        self->space.fetch_blocked_ns = now_ns;
    } else if (late) {
        for (uint32_t i = 0; i < REG_DISK_UNKNOWN; i++) {
            if (reg_disk_readable(self, i)) {
                reg_fetches_end(self, i, false, SL_ERR_NO_SPACE);
            }
        }
        self->space.fetch_blocked_ns = 0;
        self->space.fetch_blocked = false;
    }
    if (reg_promotes_late(self, REG_ANSWER_BRING)) { /* the first may wait no more */
        self->space.fetch_blocked = false;
    }
    if (reg_promotes_late(self, REG_ANSWER_AHEAD)) {
        reg_fetches_purge(self);
    }
}

/* ---- the part ---- */

static uint64_t promotion_next(const struct registrar *self)
{
    bool blocked = self->space.fetch_blocked_ns != 0 && !reg_populate_pending(self);
    return blocked ? self->space.fetch_blocked_ns + REG_PROMOTE_WAIT_NS : SL_NEVER_NS;
}

static const struct sl_metric_row metrics[] = {
    REG_METRIC(reg_promotion, promoted_count),
    REG_METRIC(reg_promotion, promoted_bytes),
    REG_METRIC(reg_promotion, promote_failed_count),
    REG_METRIC(reg_promotion, prefetched_count),
    REG_METRIC(reg_promotion, prefetched_bytes),
    REG_METRIC(reg_promotion, prefetch_refused_count),
    SL_METRIC_ROW(reg_promotion, metric.kept_count, "rewritten_from_disk_count"),
};

static const struct reg_handler handlers[] = {
    {SL_MSG_BRING, promote_asked},
};

static const struct reg_call calls[] = {
    {.kind = REG_CALL_READ, .reply = read_reply, .expired = read_expired},
};

const struct reg_part reg_promotion_part = {
    .name = "promotion",
    REG_STATE(promotion, reg_promotion),
    REG_METRICS(metrics),
    REG_HANDLERS(handlers),
    REG_CALLS(calls),
    .init = reg_promotes_init,
    .fini = reg_promotes_fini,
    .disk_left = promotion_disk_left,
    .tick = promotes_expire,
    .after = reg_promotes_pump,
    .next_ns = promotion_next,
};
