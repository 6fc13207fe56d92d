/* actors/registrar/disk/remove.c - REMOVE: answered when the tombstones on disks are durable. */
#include "actors/registrar/disk/remove.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/disks.h"
#include "actors/registrar/disk/members.h"
#include "actors/registrar/disk/tombstones.h"
#include "actors/registrar/memory/evict.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/records/claims.h"
#include "actors/registrar/records/ghosts.h"
#include "actors/registrar/records/groups.h"
#include "actors/registrar/records/leases.h"
#include "actors/registrar/records/retired.h"
#include "actors/registrar/records/units.h"

#include <stdlib.h>
#include <string.h>

/* ---- carrying it out ---- */

/* Whether the tombstones of one more block fit: at most one for each part and disk. */
static bool remove_has_room(const struct registrar *self)
{
    return reg_tombstones_room(self) >= REG_PARTS_MAX * (self->tier->path_count + 1);
}

/* The key is not in the index, but a disk may still hold it: an earlier registrar was removing it,
 * an earlier request got no answer, or the disk is not scanned yet. So it gets tombstones. */
bool reg_tombstone_add_all(struct registrar *self, struct sl_key key, const struct reg_drop *how)
{
    uint16_t disks = reg_disks_may_have(self, key, REG_NONE, true);
    for (uint32_t i = 0; i < REG_DISKS_MAX; i++) {
        const struct sl_disk_place unknown = {.disk = (uint16_t)i};
        if ((disks & REG_DISK_BIT(i)) != 0 &&
            !reg_tombstone_join(self, key, i, how->remove_id, how->remove_index)) {
            reg_tombstone_add(self, key, 1, &unknown, how);
        }
    }
    return how->reason != REG_GHOST_REMOVED || reg_tombstone_note_all(self, key);
}

/* The tombstones prevent that a disk not scanned yet adds the other parts beside the client's. */
bool reg_half_block_drop(struct registrar *self, sl_ref block)
{
    const struct reg_drop how = {.reason = REG_GHOST_EXPIRED, .forget = true};
    uint32_t slot = self->groups->found_count > 0 ? reg_group_slot(self, block) : REG_NONE;
    if (slot == REG_NONE || !self->groups->all[slot].found) {
        return false;
    }
    (void)reg_tombstone_add_all(self, sl_index_key(self->index, block), &how);
    reg_group_abandon(self, slot, REG_GHOST_EXPIRED);
    return true;
}

uint32_t reg_tombstones_needed(struct registrar *self, const struct sl_entry *entry)
{
    bool writing = (sl_index_links(self->index, entry->ref)->flags & REG_FLAG_WRITING) != 0;
    uint16_t doubt = reg_disks_in_doubt(self, entry->ref, entry, true);
    return self->tier->on
               ? (uint32_t)writing + (entry->disk.valid != 0) + (uint32_t)__builtin_popcount(doubt)
               : 0;
}

/* The notes are written and freed again, to see whether they fit. */
bool reg_notes_fit(struct registrar *self, sl_ref unit)
{
    static const struct reg_tombstone_note empty;
    struct reg_unit_parts parts;
    sl_ref notes[REG_PARTS_MAX * (REG_DISKS_MAX + 2u)];
    uint32_t count = 0;
    bool fit = true;
    reg_unit_parts(self, unit, &parts);
    for (uint32_t i = 0; fit && i < parts.count; i++) {
        struct sl_entry entry;
        sl_index_read(self->index, parts.refs[i], &entry);
        for (uint32_t left = reg_tombstones_needed(self, &entry); fit && left > 0; left--) {
            notes[count] =
                reg_tombstone_note(self, (struct sl_key){entry.key, entry.key_length}, &empty);
            fit = notes[count] != 0;
            count += fit;
        }
    }
    while (count-- > 0) {
        sl_index_set_kind(self->index, notes[count], SL_RECORD_FREE);
    }
    return fit;
}

/* Without its notes the next scan could undo a removal, so it is refused for now. */
static sl_err unit_remove(struct registrar *self, sl_ref unit, const struct reg_drop *how)
{
    return reg_notes_fit(self, unit) ? reg_unit_drop(self, unit, how) : SL_ERR_NO_SPACE;
}

/* The same, except that a leased unit stays. A bundle's lease covers all its members. */
static sl_err unit_remove_unless_leased(struct registrar *self, sl_ref unit,
                                        const struct reg_drop *how)
{
    uint64_t bundle = reg_unit_bundle(self, unit);
    if (!reg_unit_lease_close(self, unit)) {
        sl_metric_add(self->env->metrics, self->removes->metric.remove_leased_count, 1);
        return SL_ERR_LEASED;
    }
    sl_err err = unit_remove(self, unit, how);
    if (err != SL_OK) {
        reg_unit_lease_reopen(self, unit);
    }
    sl_index_bundle_lease_reopen(self->index, bundle);
    return err;
}

/* Whether a writer is still writing the value. Parts of a block that a scan has found are not, and
 * are removed like visible ones. */
static bool is_being_written(struct registrar *self, const struct sl_entry *entry)
{
    if (reg_unit_visible(self, entry)) {
        return false;
    }
    uint32_t slot = reg_group_slot(self, reg_unit_of(entry));
    return slot == REG_NONE || !self->groups->all[slot].found;
}

static void absent_remove(struct registrar *self, struct sl_key key, struct reg_drop how)
{
    if (!reg_tombstone_add_all(self, key, &how) &&
        !(reg_make_index_room(self) && reg_tombstone_note_all(self, key))) {
        reg_remove_failed(self, how.remove_id, how.remove_index, SL_ERR_NO_SPACE);
    }
}

static void remove_once(struct registrar *self, struct reg_remove *remove, uint32_t index,
                        const char *key)
{
    struct sl_entry entry;
    struct reg_drop how = {.reason = REG_GHOST_REMOVED,
                           .forget = true,
                           .remove_id = remove->answer.id,
                           .remove_index = index};
    size_t length = strlen(key);
    bool there = sl_index_find_any(self->index, key, (uint32_t)length, &entry) == SL_OK;
    bool written = there && is_being_written(self, &entry);
    remove->codes[index] = (uint64_t)SL_ERR_NOT_FOUND;
    if (!there || written) { /* but a disk may hold an older value */
        if (remove->report_busy &&
            (written || reg_claim_by_key(self, reg_hash(key, length), key, length) != REG_NONE)) {
            remove->codes[index] = (uint64_t)SL_ERR_BUSY;
        } else {
            absent_remove(self, reg_key_of(key), how);
        }
        return;
    }
    sl_ref unit = reg_unit_of(&entry);
    bool found = !reg_unit_visible(self, &entry); /* found in part: the rest may follow */
    remove->codes[index] = (uint64_t)SL_OK;
    sl_err err = remove->respect_leases ? unit_remove_unless_leased(self, unit, &how)
                                        : unit_remove(self, unit, &how);
    if (err != SL_OK) {
        remove->codes[index] = (uint64_t)err;
    } else if (found) {
        absent_remove(self, reg_key_of(key), how);
    }
}

/* ---- requests that are resent after the answer, or to the next registrar ---- */

static uint64_t settled_id(const struct reg_remove *remove, uint32_t index)
{
    const uint64_t words[] = {remove->asked, index};
    return reg_hash(words, sizeof(words));
}

static const sl_err settled_codes[] = {[SL_SETTLED_REMOVED] = SL_OK,
                                       [SL_SETTLED_NOT_FOUND] = SL_ERR_NOT_FOUND,
                                       [SL_SETTLED_LEASED] = SL_ERR_LEASED,
                                       [SL_SETTLED_BUSY] = SL_ERR_BUSY};

/* A value that exists now was put by others meanwhile and stays: one more tombstone could hit it.
 * The tombstones of the first time are waited for. */
static bool remove_was_settled(struct registrar *self, struct reg_remove *remove, uint32_t index,
                               const char *key)
{
    struct sl_entry entry;
    enum sl_settled_end end = SL_SETTLED_REMOVED;
    if (!sl_settled_removed(self->settled, settled_id(remove, index), &end) ||
        sl_index_find_any(self->index, key, (uint32_t)strlen(key), &entry) != SL_OK) {
        return false;
    }
    remove->codes[index] = (uint64_t)settled_codes[end];
    bool ended = end == SL_SETTLED_REMOVED || end == SL_SETTLED_NOT_FOUND;
    if (ended && !reg_answer_join(self, remove->answer.id, index, key) &&
        reg_tombstone_key_of_hash(self, reg_hash(key, strlen(key))) != NULL) {
        remove->codes[index] = (uint64_t)SL_ERR_TIMEOUT; /* another answer waits for these */
    }
    return true;
}

/* Notes how the removal of the key ended, apart from tombstones in flight. Codes that are not noted
 * may be tried again. */
static void remove_settle(struct registrar *self, const struct reg_remove *remove, uint32_t index)
{
    uint64_t code = remove->codes[index];
    code = code == SL_ERR_TIMEOUT || code == SL_ERR_DISK_AWAY ? SL_OK : code;
    for (uint32_t end = 0; end < SL_COUNT(settled_codes); end++) {
        if (settled_codes[end] == code) {
            sl_settled_remove(self->settled, settled_id(remove, index), (enum sl_settled_end)end);
        }
    }
}

static void remove_key(struct registrar *self, struct reg_remove *remove, uint32_t index,
                       const char *key)
{
    if (remove_was_settled(self, remove, index, key)) {
        return;
    }
    remove_once(self, remove, index, key);
    for (uint32_t i = 0; remove->codes[index] == SL_ERR_NO_SPACE && remove->left[index] == 0 &&
                         i < REG_INDEX_ROUNDS && reg_make_index_room(self);
         i++) {
        remove_once(self, remove, index, key);
    }
    remove_settle(self, remove, index);
}

/* Removes a bounded number of units. Tombstones are bounded as well, so a large removal continues
 * as they become durable. */
static void remove_step(struct registrar *self, struct reg_remove *remove)
{
    uint64_t from = self->retired->count;
    struct reg_drop how = {
        .reason = REG_GHOST_REMOVED, .forget = true, .remove_id = remove->answer.id};
    for (uint32_t i = 0; i < REG_REMOVE_STEP_UNITS && remove_has_room(self); i++) {
        if (remove->keys != NULL && remove->next < remove->count) {
            const char *key = remove->keys + remove->keys_at;
            remove->keys_at += strlen(key) + 1;
            remove_key(self, remove, remove->next++, key);
            continue;
        }
        sl_ref unit = reg_unit_any(self);
        if (remove->keys != NULL || remove->all_left == 0 || unit == 0) {
            remove->all_left = 0;
            break;
        }
        sl_err err = unit_remove(self, unit, &how);
        if (err == SL_ERR_NO_SPACE && reg_make_index_room(self)) {
            continue;
        }
        if (err != SL_OK) {
            remove->failed = err;
            remove->all_left = 0;
            break;
        }
        remove->all_left--;
    }
    reg_retired_scan(self, from);
}

/* An absent disk must not bring back values after this answer: all disks must know of it first. */
static bool removes_may_end(struct registrar *self)
{
    uint32_t at = 0;
    if (!self->tier->on || reg_answer_next(self, REG_ANSWER_REMOVE, &at) == NULL) {
        return true;
    }
    reg_members_change(self, true);
    return reg_members_all_current(self);
}

/* Whether each of its keys has been handled. */
static bool remove_is_begun(const struct reg_remove *remove)
{
    return remove->next == remove->count && remove->all_left == 0;
}

/* Why the tombstones that it waits for cannot come soon: SL_ERR_DISK_AWAY (no tierer serves their
 * disks), SL_ERR_NO_SPACE (some of the disks are full), SL_OK: they may. */
static sl_err remove_stuck(struct registrar *self, const struct reg_remove *remove)
{
    uint64_t lost = 0, full = 0, left = self->tombstones->count; /* tombstones that may end soon */
    bool unknown = false;                                        /* contents of absent disks */
    for (uint32_t i = 0; i < REG_DISKS_MAX; i++) {
        const struct reg_disk *disk = &self->tier->disks[i];
        bool lost_disk = reg_disk_lost(self, i);
        bool tells = !disk->scanned || (disk->missed && remove_is_begun(remove));
        if (lost_disk) {
            lost += remove->tombstones[i];
            left -= disk->tombstone_count;
            unknown = unknown || !disk->scanned || disk->missed;
        } else if (remove->keys == NULL && disk->used && !disk->gone && tells) {
            return SL_OK; /* it may still report */
        } else if (disk->tombstone_full) {
            full += remove->tombstones[i];
        }
    }
    bool begun = remove_is_begun(remove) || !remove_has_room(self);
    if (!begun || lost + full != remove->outstanding) {
        return SL_OK;
    }
    bool away =
        lost > 0 || (remove->keys == NULL && unknown) || (!remove_is_begun(remove) && left == 0);
    if (remove->keys == NULL && unknown && remove_is_begun(remove) && remove->failed == SL_OK &&
        !reg_members_strike_absent(self)) {
        return SL_OK;
    }
    return full > 0 ? SL_ERR_NO_SPACE : away ? SL_ERR_DISK_AWAY : SL_OK;
}

/* Unconfirmed keys are on a disk that is absent or full, and are forgotten there later. Keys that
 * found no room for notes still exist. */
static void codes_stuck(struct reg_remove *remove, sl_err stuck)
{
    for (uint32_t i = 0; i < remove->count; i++) {
        sl_err code = i < remove->next ? stuck : SL_ERR_LIMIT;
        remove->codes[i] = remove->codes[i] == SL_ERR_TIMEOUT ? (uint64_t)code : remove->codes[i];
    }
}

/* The reply to a removal of everything that is not complete. */
static struct sl_msg remove_incomplete_reply(const struct reg_remove *remove, sl_err stuck)
{
    sl_err code = stuck == SL_OK ? SL_ERR_TIMEOUT : remove_is_begun(remove) ? stuck : SL_ERR_LIMIT;
    const char *text =
        code == SL_ERR_TIMEOUT ? "removed in part; the disk has not confirmed all"
        : code == SL_ERR_LIMIT
            ? "removed in part: a disk is unavailable or full, and no more removals can be noted "
              "for it; ask again when it is back (sluicectl status)"
        : code == SL_ERR_NO_SPACE
            ? "removed from memory; a disk is full, and the removal is written there when its file "
              "system has room (sluicectl tiers)"
            : "removed from memory; a disk is unavailable, and is updated when it is back "
              "(sluicectl status)";
    return (struct sl_msg){.code = code, .text = sl_text_of(text)};
}

static void codes_unconfirmed(struct reg_remove *remove)
{
    for (uint32_t i = 0; i < remove->count; i++) {
        bool ended = remove->codes[i] == SL_OK || remove->codes[i] == SL_ERR_NOT_FOUND;
        remove->codes[i] = ended ? (uint64_t)SL_ERR_TIMEOUT : remove->codes[i];
    }
}

static void removes_run(struct registrar *self)
{
    uint64_t now_ns = self->env->now_ns;
    bool may_end = removes_may_end(self);
    struct reg_remove *remove;
    uint32_t at = 0;
    while ((remove = reg_answer_next(self, REG_ANSWER_REMOVE, &at)) != NULL) {
        if (remove->next < remove->count || remove->all_left > 0) {
            remove_step(self, remove);
        }
        bool done =
            remove->next == remove->count && remove->all_left == 0 && remove->outstanding == 0;
        bool all = remove->keys == NULL && self->tier->on;
        if (all && remove_is_begun(remove)) {
            reg_disks_rescan(self);
        }
        if (all && !reg_disks_scanned(self, remove->failed == SL_OK)) {
            done = false; /* what the disks hold is removed when it is known */
        }
        if (!may_end) {
            done = false;
            if (remove->answer.back.deadline_ns <= now_ns) {
                codes_unconfirmed(remove);
            }
        }
        sl_err stuck = !done && may_end && self->tier->on ? remove_stuck(self, remove) : SL_OK;
        if (!done && stuck == SL_OK && remove->answer.back.deadline_ns > now_ns) {
            continue;
        }
        if (stuck != SL_OK) {
            codes_stuck(remove, stuck);
        }
        if (remove->keys == NULL && (!done || remove->failed != SL_OK)) {
            const struct sl_msg part = {.code = remove->failed,
                                        .text = sl_text_of("removed in part; ask again")};
            bool ended = done || remove->failed != SL_OK;
            const struct sl_msg reply = ended ? part : remove_incomplete_reply(remove, stuck);
            sl_reply_route_send(self->env, &remove->answer.back, &reply);
        } else {
            reg_reply_codes(self, &remove->answer.back, remove->codes, remove->count);
        }
        reg_answer_drop(self, &remove->answer);
    }
}

/* ---- the message ---- */

/* Allocates an entry with room for codes, and for keys of key_bytes. */
static struct reg_remove *remove_new(struct registrar *self, const struct sl_msg *msg,
                                     uint64_t count, uint64_t key_bytes)
{
    struct reg_remove *remove;
    size_t bytes = sizeof(*remove) + count * (sizeof(*remove->codes) + sizeof(*remove->left));
    remove = reg_answer_new(self, msg, REG_ANSWER_REMOVE, bytes + key_bytes);
    if (remove != NULL) {
        remove->count = (uint32_t)count;
        remove->codes = (uint64_t *)(remove + 1);
        remove->left = (uint32_t *)(remove->codes + count);
        remove->keys = (char *)(remove->left + count);
    }
    return remove;
}

static void remove_asked(struct registrar *self, const struct sl_msg *msg)
{
    const struct sl_body_remove *body = &msg->body.remove;
    uint64_t key_bytes = 0;
    /* The end of a process without HELLO is not noticed, so its removal could wait for ever. */
    uint32_t peer = reg_peer_of_sender(self, msg);
    if (peer == REG_NONE) {
        return;
    }
    if (body->all && (body->keys.count > 0 || body->respect_leases)) {
        sl_reply_fail(self->env, msg, SL_ERR_INVALID, "REMOVE.%s: not with all",
                      body->keys.count > 0 ? "keys" : "respect_leases");
        return;
    }
    for (uint64_t i = 0; i < body->keys.count; i++) {
        key_bytes += body->keys.at[i].length + 1;
    }
    struct reg_remove *remove = remove_new(self, msg, body->keys.count, key_bytes);
    if (remove == NULL) {
        return;
    }
    remove->respect_leases = body->respect_leases;
    remove->report_busy = body->report_busy;
    const struct sl_proc_id asker = self->peers->all[peer].proc;
    const uint64_t asked[] = {asker.pid, asker.start_time, msg->seq};
    remove->asked = reg_hash(asked, sizeof(asked));
    char *at = remove->keys;
    for (uint64_t i = 0; i < body->keys.count; i++) {
        memcpy(at, body->keys.at[i].at, body->keys.at[i].length);
        at += body->keys.at[i].length + 1;
        remove->codes[i] = (uint64_t)SL_ERR_TIMEOUT;
    }
    if (body->all) {
        remove->all_left = reg_unit_count(self);
        remove->keys = NULL;
        remove->left = NULL;
    }
    sl_trace_event(self->env->metrics, self->env->now_ns, msg->trace_id, "remove", msg->sender.at,
                   remove->count);
    removes_run(self); /* requests that need no tombstone are answered at once */
}

/* ---- other answers that wait for tombstones ---- */

uint64_t reg_answer_begin(struct registrar *self, const struct sl_msg *msg, uint32_t count)
{
    struct reg_remove *remove = remove_new(self, msg, count, 0);
    if (remove == NULL) {
        return 0;
    }
    remove->next = count; /* its keys need no further work */
    return remove->answer.id;
}

void reg_answer_end(struct registrar *self, uint64_t id, const uint64_t *codes)
{
    struct reg_remove *remove = reg_answer_of(self, id);
    SL_ASSERT(remove != NULL);
    for (uint32_t i = 0; i < remove->count; i++) {
        remove->codes[i] = remove->left[i] == 0 ? codes[i] : remove->codes[i];
    }
    removes_run(self);
}

bool reg_answer_join(struct registrar *self, uint64_t id, uint32_t index, const char *key)
{
    bool joined = false;
    for (uint32_t i = 0; i < REG_DISKS_MAX; i++) {
        while (reg_tombstone_join(self, reg_key_of(key), i, id, index)) {
            joined = true;
        }
    }
    return joined;
}

void reg_removes_scanned(struct registrar *self)
{
    struct reg_remove *remove;
    uint32_t at = 0;
    while ((remove = reg_answer_next(self, REG_ANSWER_REMOVE, &at)) != NULL) {
        remove->all_left = remove->keys == NULL ? reg_unit_count(self) : remove->all_left;
    }
}

/* Deadlines are in answers.c. */
static uint64_t removes_next(const struct registrar *self)
{
    const struct reg_remove *remove;
    uint32_t at = 0;
    while ((remove = reg_answer_next(self, REG_ANSWER_REMOVE, &at)) != NULL) {
        if (!remove_is_begun(remove) && remove_has_room(self)) {
            return 0;
        }
    }
    return SL_NEVER_NS;
}

/* ---- the part ---- */

static const struct sl_metric_row metrics[] = {
    REG_METRIC(reg_removes, remove_leased_count),
};

static const struct reg_handler handlers[] = {
    {SL_MSG_REMOVE, remove_asked},
};

const struct reg_part reg_removes_part = {
    .name = "removes",
    REG_STATE(removes, reg_removes),
    REG_METRICS(metrics),
    REG_HANDLERS(handlers),
    .after = removes_run,
    .next_ns = removes_next,
};
