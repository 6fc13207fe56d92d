/* actors/registrar/disk/scan.c - DISK_FOUND: puts values that a tierer's scan finds into the index,
 * and clears places that it did not find. */
#include "actors/registrar/base/events.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/disks.h"
#include "actors/registrar/disk/reclaim.h"
#include "actors/registrar/disk/remove.h"
#include "actors/registrar/disk/segments.h"
#include "actors/registrar/disk/tombstones.h"
#include "actors/registrar/memory/evict.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/records/claims.h"
#include "actors/registrar/records/ghosts.h"
#include "actors/registrar/records/groups.h"
#include "actors/registrar/records/retired.h"
#include "actors/registrar/records/units.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SWEEP_STEP  2048u
#define GROUPS_STEP 2048u
#define SCAN_AGAIN  "tombstones of removed blocks wait for room: scan again later"

/* ---- what a scan finds ---- */

static struct sl_disk_place found_place(const struct sl_item_found *found, uint32_t slot)
{
    return (struct sl_disk_place){
        .offset_bytes = found->disk_offset_bytes,
        .segment = (uint32_t)found->segment,
        .disk = (uint16_t)slot,
        .valid = 1,
    };
}

/* Handles a found value whose key has a record. True: the record has this place, or a write in
 * flight will give one. False: another value or copy, and the disk counts as one that has it. */
static bool found_known(struct registrar *self, const struct sl_item_found *found, uint32_t slot,
                        const struct sl_entry *entry)
{
    struct sl_digest digest = {.low = found->digest_low, .high = found->digest_high};
    struct sl_disk_place place = found_place(found, slot);
    struct sl_links *links = sl_index_links(self->index, entry->ref);
    bool here = entry->disk.valid != 0 && entry->disk.disk == slot;
    if (entry->kind != SL_RECORD_COMMITTED || !sl_digest_equal(digest, entry->digest) ||
        entry->extent.length_bytes != found->length_bytes) {
        links->disks |= REG_DISK_BIT(slot); /* a removal of the key must reach this copy */
        return false;
    }
    if (here && entry->disk.segment == place.segment &&
        entry->disk.offset_bytes == place.offset_bytes) {
        reg_segment_find(self, slot, entry->ref, true);
        return true;
    }
    bool elsewhere = entry->disk.valid != 0 && !here;
    if ((elsewhere && reg_disk_readable(self, entry->disk.disk)) ||
        (here && reg_segment_found(self, slot, entry->ref))) {
        links->disks |= REG_DISK_BIT(slot);
        return false; /* a second copy */
    }
    if ((links->flags & REG_FLAG_WRITING) != 0) {
        links->disks |= REG_DISK_BIT(slot); /* the write may be to another disk */
        return true;                        /* that write will give the place */
    }
    sl_ref fresh;
    sl_err err = reg_record_switch(self, entry->ref, NULL, &place, &fresh);
    if (err != SL_OK) {
        links->disks |= REG_DISK_BIT(slot);
    } else if (elsewhere) { /* the other copy may come back */
        sl_index_links(self->index, fresh)->disks |= REG_DISK_BIT(entry->disk.disk);
    }
    return err == SL_OK;
}

/* Gives the pending slot of a found part's block, which is created if it is new. */
static sl_err found_group(struct registrar *self, const struct sl_item_found *found, uint32_t *slot)
{
    struct sl_entry entry;
    struct sl_group_info info;
    if (found->part_count == 0 || found->part_index >= found->part_count) {
        return SL_ERR_INVALID;
    }
    if (sl_index_find_any(self->index, found->group_key.at, (uint32_t)found->group_key.length,
                          &entry) == SL_OK) {
        *slot = entry.kind == SL_RECORD_GROUP ? reg_group_slot(self, entry.ref) : REG_NONE;
        if (*slot != REG_NONE && !self->groups->all[*slot].found) {
            return SL_ERR_BUSY; /* a client is writing it */
        }
        if (*slot == REG_NONE || reg_group_has(&self->groups->all[*slot], found->part_index)) {
            return SL_ERR_NOT_FOUND; /* the block is complete or has this part */
        }
        sl_index_group_info(self->index, entry.ref, &info);
        return info.part_count == found->part_count ? SL_OK : SL_ERR_INVALID;
    }
    struct sl_group_want want = {
        .key = {.at = found->group_key.at, .length = (uint32_t)found->group_key.length},
        .part_count = (uint32_t)found->part_count,
        .deadline_ns = SL_NEVER_NS, /* until the scans are over */
    };
    struct reg_group fresh = {.found = true};
    return reg_group_make(self, &want, &fresh, slot);
}

static sl_err found_insert(struct registrar *self, const struct sl_item_found *found, uint32_t disk)
{
    uint32_t slot = REG_NONE;
    sl_err err = found->group_key.length == 0 ? SL_OK : found_group(self, found, &slot);
    if (err != SL_OK) {
        return err;
    }
    struct sl_entry want = {
        .kind = SL_RECORD_COMMITTED,
        .extent = {.length_bytes = found->length_bytes},
        .digest = {.low = found->digest_low, .high = found->digest_high},
        .disk = found_place(found, disk),
        .group = slot == REG_NONE ? 0 : self->groups->all[slot].ref,
        .part_index = (uint16_t)found->part_index,
        .key = found->key.at,
        .key_length = (uint16_t)found->key.length,
    };
    sl_ref ref;
    err = sl_index_insert(self->index, &want, &ref, NULL);
    if (err != SL_OK) {
        return err; /* a block created only for it is dropped when the scan ends */
    }
    reg_segment_note(self, ref, &want.disk, true);
    if (slot == REG_NONE) {
        reg_unit_place(self, ref);
        return SL_OK;
    }
    reg_group_mark(&self->groups->all[slot], found->part_index, true);
    reg_unit_part_join(self, self->groups->all[slot].ref, ref);
    if (sl_index_group_fill(self->index, self->groups->all[slot].ref,
                            (uint32_t)found->part_index)) {
        reg_group_done(self, slot);
    }
    return SL_OK;
}

/* ---- DISK_FOUND ---- */

/* SL_ERR_BUSY: a client is writing this key; the tierer asks again when the claim has ended. */
static sl_err found_one(struct registrar *self, const struct sl_item_found *found, uint32_t slot)
{
    struct sl_entry entry;
    const struct sl_disk_place place = found_place(found, slot);
    if (found->segment <= self->tier->disks[slot].deleted_segment) {
        return SL_ERR_NOT_FOUND;
    }
    const struct sl_key key = reg_key(&found->key);
    bool covered = reg_tombstone_covers(self, key, &place);
    if (!covered &&
        reg_claim_by_key(self, reg_hash(key.at, key.length), key.at, key.length) != REG_NONE) {
        return SL_ERR_BUSY;
    }
    bool known = !covered && sl_index_find_any(self->index, key.at, key.length, &entry) == SL_OK;
    if (known && found_known(self, found, slot, &entry)) {
        return SL_OK;
    }
    if (reg_tombstone_covers_part(self, reg_key(&found->group_key), key, &place) || covered ||
        known) {
        return SL_ERR_NOT_FOUND;
    }
    sl_err err = found_insert(self, found, slot);
    if (err == SL_ERR_NO_SPACE && reg_make_index_room(self)) {
        err = found_insert(self, found, slot);
    }
    bool full = err == SL_ERR_NO_SPACE || err == SL_ERR_LIMIT;
    self->tier->disks[slot].missed = self->tier->disks[slot].missed || full;
    return err == SL_OK || err == SL_ERR_BUSY ? err : SL_ERR_NOT_FOUND;
}

/* Number of the message that began the last scan by the same process; 0: none. */
static uint64_t scan_seq(const struct registrar *self, const struct reg_path *path)
{
    const struct reg_disk *disk = path->disk != REG_NONE ? &self->tier->disks[path->disk] : NULL;
    bool same =
        disk != NULL && sl_proc_id_equal(disk->scan_proc, self->peers->all[path->peer].proc);
    return same ? disk->scan_seq : 0;
}

/* A report meant for an earlier registrar is resent until it is answered, and describes the disk as
 * it was then. If that registrar removed a value later, with a tombstone that is durable and no
 * longer noted, the report would bring it back. */
static bool scan_is_ours(const struct registrar *self, const struct sl_body_disk_found *body)
{
    return body->boot_generation == 0 || /* from an older tierer */
           body->boot_generation == sl_arena_boot_generation(self->arena);
}

static void scan_begin(struct registrar *self, const struct sl_msg *msg,
                       const struct reg_path *path)
{
    struct reg_disk *disk = &self->tier->disks[path->disk];
    struct sl_index_stats index;
    sl_index_view_stats(sl_index_as_view(self->index), &index);
    disk->scan_open = true;
    disk->scanned = disk->scanned && !disk->missed; /* else false until this scan ends */
    disk->missed = disk->rescan_asked = false;
    disk->scan_number++;
    disk->scan_seq = msg->seq;
    disk->scan_proc = self->peers->all[path->peer].proc;
    free(disk->found);
    uint64_t refs = index.record_bytes_max / 64 + 1; /* a reference counts 64 bytes */
    disk->found = calloc(refs / 64 + 1, sizeof(*disk->found));
    disk->sweeping = false;
    disk->tombstone_held = false;
    disk->deleted_segment = disk->reclaim.phase == REG_RECLAIM_CLEARING ? disk->deleted_segment : 0;
    disk->state = REG_DISK_SCANNING;
}

/* Whether incomplete blocks are kept: the other parts may be on a disk that was not scanned and may
 * still come, and there is room for these blocks meanwhile. */
static bool groups_wait(const struct registrar *self)
{
    bool missed = false, awaited = false;
    for (uint32_t i = 0; i < REG_DISKS_MAX; i++) {
        const struct reg_disk *disk = &self->tier->disks[i];
        bool absent = disk->state == REG_DISK_ABSENT;
        bool late = absent && self->env->now_ns - disk->absent_since_ns > REG_DISK_LATE_NS;
        missed |= disk->used && disk->missed && !absent;
        awaited |=
            disk->used && !disk->gone && !late && (!disk->scanned || (absent && disk->missed));
    }
    return awaited && !missed && self->groups->found_count <= self->set.reservations_max / 2;
}

/* Drops blocks of which scans found only some parts; if there are many, in several turns. Waits
 * while a scan runs, which may find the other parts: its end calls this again. */
static void groups_drop_found(struct registrar *self)
{
    uint32_t left = GROUPS_STEP;
    bool open = groups_wait(self);
    for (uint32_t i = 0; i < REG_DISKS_MAX; i++) {
        open |= self->tier->disks[i].scan_open && self->tier->disks[i].state == REG_DISK_SCANNING;
    }
    for (uint32_t i = 0; !open && i < self->groups->high && left > 0; i++) {
        if (self->groups->all[i].used && self->groups->all[i].found) {
            reg_group_abandon(self, i, REG_GHOST_EXPIRED);
            left--;
        }
    }
    self->tier->groups_until_ns =
        left == 0 || open ? sl_deadline_ns(self->env->now_ns, open ? REG_DISK_ABSENT_NS : 0) : 0;
}

static void scan_end(struct registrar *self, uint32_t slot)
{
    struct reg_disk *disk = &self->tier->disks[slot];
    reg_tombstones_scanned(self, slot);
    reg_removes_scanned(self);
    disk->scanned = true;
    disk->scan_open = false;
    if (reg_disks_scanned(self, false)) {
        groups_drop_found(self);
        self->tier->scan_until_ns = 0;
    } else { /* other parts may be on a disk that is still to report */
        self->tier->groups_until_ns = sl_deadline_ns(self->env->now_ns, REG_DISK_ABSENT_NS);
    }
    if (disk->state != REG_DISK_READY) {
        reg_log(self, SL_LOG_INFO, 0, "disk of tierer.%u ready: %" PRIu64 " values found",
                disk->path, disk->place_count);
    }
    disk->state = REG_DISK_READY;
    disk->sweeping = disk->found != NULL && disk->place_count > 0;
    disk->sweep_segment = disk->sweep_at = 0;
    self->space.freed = true;
    reg_notify_disk_known(self);
}

/* Whether the report was made before the tierer received the fence. A write that became durable
 * between the two would have no record, and a value removed between the two would come back. */
static bool scan_is_early(const struct reg_path *path, const struct sl_body_disk_found *body)
{
    return body->known_fence != 0 && body->known_fence <= path->fenced_seq;
}

/* Whether all earlier requests to the tierer have ended or were dropped. If the disk has served
 * since the last fence, it gets no more requests and another fence: the report may be older than a
 * tombstone that is not known here any more. A DISK_FORGET in flight has to end first: the tierer
 * may acknowledge the fence before it, and report the value between the two. */
static bool scan_is_fenced(struct registrar *self, uint32_t at)
{
    struct reg_path *path = &self->tier->paths[at];
    struct reg_disk *disk = path->disk != REG_NONE ? &self->tier->disks[path->disk] : NULL;
    if (disk != NULL && disk->state == REG_DISK_READY) {
        disk->state = REG_DISK_SCANNING;
        path->absent_since_ns = self->env->now_ns;
        sl_calls_drop(self->calls, path->fence_seq); /* if one is in flight */
        path->fence_seq = UINT64_MAX;
    }
    if (path->fence_seq == UINT64_MAX && (disk == NULL || disk->tombstone_seq == 0)) {
        reg_path_fence(self, at);
    }
    return path->fence_seq == 0;
}

void reg_disks_rescan(struct registrar *self)
{
    for (uint32_t i = 0; i < REG_DISK_UNKNOWN; i++) {
        struct reg_disk *disk = &self->tier->disks[i];
        if (disk->missed && !disk->rescan_asked && reg_disk_usable(self, i) &&
            disk->tombstone_seq == 0) {
            reg_path_fence(self, disk->path);
            disk->rescan_asked = self->tier->paths[disk->path].fence_seq != UINT64_MAX;
        }
    }
}

/* A scan begins: finds out which disk it is of. */
static sl_err found_begin(struct registrar *self, uint32_t at, const struct sl_msg *msg,
                          struct sl_error *why)
{
    struct reg_path *path = &self->tier->paths[at];
    const struct reg_disk *disk = path->disk != REG_NONE ? &self->tier->disks[path->disk] : NULL;
    if (disk != NULL && disk->state == REG_DISK_READY && disk->tombstone_held &&
        reg_tombstones_room(self) < REG_FORGET_ITEMS_MAX) {
        return sl_fail(why, SL_ERR_LIMIT, SCAN_AGAIN);
    }
    if (!scan_is_fenced(self, at)) {
        return sl_fail(why, SL_ERR_BUSY, "earlier requests are not fenced yet");
    }
    sl_err err = reg_disk_identify(self, at, &msg->body.disk_found, why);
    if (err == SL_OK) {
        reg_disk_budget_set(self, path->disk, msg->body.disk_found.budget_left,
                            msg->body.disk_found.budget_debt);
        scan_begin(self, msg, path);
    } else if (err != SL_ERR_BUSY) {
        reg_log(self, SL_LOG_ERROR, 0, "%s", why->text);
    }
    return err;
}

static void disk_found_asked(struct registrar *self, const struct sl_msg *msg)
{
    const struct sl_body_disk_found *body = &msg->body.disk_found;
    uint32_t at = reg_path_of(self, msg);
    struct sl_error why = {0};
    if (at == REG_NONE) {
        sl_reply_fail(self->env, msg, SL_ERR_PERMISSION, "no HELLO of a tierer from %s",
                      msg->sender.at);
        return;
    }
    struct reg_path *path = &self->tier->paths[at];
    sl_err err = SL_OK;
    if (!scan_is_ours(self, body)) {
        err = sl_fail(&why, SL_ERR_BUSY, "meant for another registrar: start over");
    } else if (msg->seq < scan_seq(self, path) || scan_is_early(path, body)) {
        err = sl_fail(&why, SL_ERR_BUSY, "made before earlier requests were fenced: start over");
    } else if (body->first && msg->seq != scan_seq(self, path)) {
        err = found_begin(self, at, msg, &why);
    } else if (path->disk == REG_NONE || !self->tier->disks[path->disk].scan_open) {
        /* Either the scan began with an earlier registrar, so that its disk is unknown here; or the
         * scan has ended, and its last message was resent. */
        err = sl_fail(&why, SL_ERR_BUSY, "no scan has begun here: start over");
    }
    if (err != SL_OK) {
        sl_reply_code(self->env, msg, err, &why);
        return;
    }
    path->absent_since_ns = self->env->now_ns; /* the scan makes progress */
    uint32_t slot = path->disk;
    SL_ASSERT(slot < REG_DISKS_MAX); /* found_begin bound it, or it was bound before */
    bool answered = true;
    for (uint64_t i = 0; i < body->items.count; i++) {
        self->codes[i] = (uint64_t)found_one(self, &body->items.at[i], slot);
        answered = answered && self->codes[i] != (uint64_t)SL_ERR_BUSY;
    }
    if (body->last && answered) { /* else the tierer resends this part */
        scan_end(self, slot);
    }
    if (body->last && answered &&
        self->tier->disks[slot].tombstone_held) { /* the tierer starts over */
        sl_reply_fail(self->env, msg, SL_ERR_LIMIT, SCAN_AGAIN);
        return;
    }
    reg_answer_codes(self, msg, body->items.count);
}

static void sweep_step(struct registrar *self, uint32_t slot)
{
    const struct reg_drop how = {
        .reason = REG_GHOST_DISK_RECLAIMED, .forget = true, .reported = true};
    struct reg_disk *disk = &self->tier->disks[slot];
    struct sl_entry entry;
    for (uint32_t i = 0; disk->sweeping && i < SWEEP_STEP; i++) {
        disk->sweeping = reg_segments_sweep(self, slot, &entry);
        if (!disk->sweeping) {
            reg_disk_swept(self, slot);
        } else if (entry.ref == 0 || (!disk->gone && reg_segment_found(self, slot, entry.ref))) {
            continue;
        } else if (disk->stale) {
            (void)reg_unit_drop(self, reg_unit_of(&entry), &how);
        } else {
            reg_place_clear(self, &entry, &how, false);
        }
    }
}

/* Clears places that the last scan did not find: the values are not on the disk any more. */
static void disk_sweep(struct registrar *self)
{
    uint64_t from = self->retired->count;
    for (uint32_t i = 0; i < REG_DISK_UNKNOWN; i++) {
        if (self->tier->disks[i].sweeping) {
            sweep_step(self, i);
        }
    }
    reg_retired_scan(self, from);
    if (self->tier->groups_until_ns != 0 && self->env->now_ns >= self->tier->groups_until_ns) {
        groups_drop_found(self);
    }
}

/* Incomplete blocks of an earlier registrar do not wait longer than this if no disk reports. */
static void scan_started(struct registrar *self)
{
    bool halves = self->groups->found_count > 0;
    self->tier->groups_until_ns =
        halves ? sl_deadline_ns(self->env->now_ns, REG_DISK_ABSENT_NS) : 0;
}

/* ---- the part ---- */

static const struct reg_handler handlers[] = {
    {SL_MSG_DISK_FOUND, disk_found_asked},
};

const struct reg_part reg_scan_part = {
    .name = "scan",
    REG_HANDLERS(handlers),
    .started = scan_started,
    .tick = disk_sweep,
};
