/* actors/registrar/writers/reservations.c - ends of reservations: COMMIT, ABORT and expiry. */
#include "actors/registrar/writers/reservations.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/disks.h"
#include "actors/registrar/disk/remove.h"
#include "actors/registrar/disk/tombstones.h"
#include "actors/registrar/disk/write_behind.h"
#include "actors/registrar/memory/contributions.h"
#include "actors/registrar/memory/evict.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/records/claims.h"
#include "actors/registrar/records/fences.h"
#include "actors/registrar/records/ghosts.h"
#include "actors/registrar/records/groups.h"
#include "actors/registrar/records/retired.h"
#include "actors/registrar/records/units.h"
#include "actors/registrar/writers/prealloc.h"
#include "actors/registrar/writers/reserve.h"
#include "actors/registrar/writers/space_queue.h"

#include <stdlib.h>
#include <string.h>

/* ---- blocks ---- */

/* A block cannot become complete after its owner aborted a part. Its key is freed as soon as no
 * part is being written, not at its deadline. */
static void group_end_if_aborted(struct registrar *self, uint32_t slot)
{
    if (self->groups->all[slot].aborted && self->groups->all[slot].claims == REG_NONE) {
        reg_group_abandon(self, slot, REG_GHOST_EXPIRED);
    }
}

/* ---- commit ---- */

/* State of a COMMIT while its items are handled. */
struct committing {
    const struct sl_msg *msg;
    uint32_t peer;
    uint64_t answer; /* 0: no item waits for a tombstone */
};

/* Makes one answer for all items that wait. False: too many answers wait. */
static bool commit_waits(struct registrar *self, struct committing *commit)
{
    if (commit->answer == 0) {
        commit->answer =
            reg_answer_begin(self, commit->msg, (uint32_t)commit->msg->body.commit.items.count);
    }
    return commit->answer != 0;
}

void reg_claim_committed(struct registrar *self, uint32_t slot)
{
    const struct reg_claim *claim = &self->claims->all[slot];
    uint64_t generation = claim->extent.generation, hash = claim->hash;
    if (claim->owner_peer != REG_NONE) {
        reg_list_remove(self, REG_LIST_PEER, &self->peers->all[claim->owner_peer].owned, slot);
    }
    if (claim->group != REG_NONE) {
        reg_list_remove(self, REG_LIST_GROUP, &self->groups->all[claim->group].claims, slot);
    }
    reg_claim_remove(self, slot);
    sl_settled_commit(self->settled, generation, hash);
}

/* Makes room for the notes of tombstones by evicting from the index, which may drop the value that
 * is to be replaced. Errors: SL_ERR_NO_SPACE, SL_ERR_NOT_FOUND (the value left). */
static sl_err replace_prepare(struct registrar *self, const struct sl_entry *fresh,
                              struct sl_entry *old)
{
    for (uint32_t i = 0; !reg_notes_fit(self, old->ref); i++) {
        if (i == REG_INDEX_ROUNDS || !reg_make_index_room(self)) {
            return SL_ERR_NO_SPACE;
        }
        if (sl_index_find_any(self->index, fresh->key, fresh->key_length, old) != SL_OK) {
            return SL_ERR_NOT_FOUND;
        }
    }
    return SL_OK;
}

/* Readers find either the old or the new value. With a disk tier the reply waits until nothing can
 * bring the old value back, as the reply to REMOVE does. */
static sl_err claim_replace(struct registrar *self, uint32_t slot, struct sl_digest digest,
                            const struct sl_entry *old, const struct reg_drop *how)
{
    uint64_t from = self->retired->count;
    sl_ref ref = self->claims->all[slot].ref;
    sl_err err = reg_object_replace(self, old->ref, ref, digest, how);
    if (err != SL_OK) {
        return err;
    }
    reg_claim_committed(self, slot);
    reg_retired_scan(self, from);
    sl_metric_add(self->env->metrics, self->reservations->metric.replaced_count, 1);
    return SL_OK;
}

void reg_record_committed(struct registrar *self, sl_ref ref, uint64_t hash, uint32_t group,
                          uint32_t part_index)
{
    *sl_index_links(self->index, ref) = (struct sl_links){0};
    if (group == REG_NONE) {
        reg_unit_committed(self, ref, hash, NULL);
        return;
    }
    reg_unit_part_join(self, self->groups->all[group].ref, ref);
    if (sl_index_group_fill(self->index, self->groups->all[group].ref, part_index)) {
        reg_group_done(self, group);
    } else {
        group_end_if_aborted(self, group);
    }
}

static sl_err claim_put(struct registrar *self, uint32_t slot, struct sl_digest digest)
{
    const struct reg_claim *claim = &self->claims->all[slot];
    sl_ref ref = claim->ref;
    uint64_t hash = claim->hash;
    uint32_t group = claim->group;
    uint32_t part_index = claim->part_index;
    sl_err err = sl_index_commit(self->index, ref, digest);
    for (uint32_t i = 0;
         err == SL_ERR_NO_SPACE && i < REG_INDEX_ROUNDS && reg_make_index_room(self); i++) {
        err = sl_index_commit(self->index, ref, digest);
    }
    if (err != SL_OK) {
        return err;
    }
    reg_claim_committed(self, slot);
    reg_record_committed(self, ref, hash, group, part_index);
    return SL_OK;
}

/* Releases the claim. A block that loses a part stays incomplete. */
static void claim_give_up(struct registrar *self, uint32_t slot)
{
    const struct reg_claim *claim = &self->claims->all[slot];
    uint32_t group = claim->state == REG_CLAIM_RESERVED ? claim->group : REG_NONE;
    reg_claim_release(self, slot);
    if (group != REG_NONE) {
        self->groups->all[group].aborted = true;
        group_end_if_aborted(self, group);
    }
}

static sl_err claim_commit(struct registrar *self, struct committing *commit, uint32_t slot,
                           uint32_t index, struct sl_digest digest)
{
    struct reg_claim *claim = &self->claims->all[slot];
    struct sl_entry entry, there;
    if (reg_charge_check(self, claim->ref) != SL_OK) { /* its contribution ended */
        claim_give_up(self, slot);
        return SL_ERR_NO_SPACE;
    }
    sl_index_read(self->index, claim->ref, &entry);
    const struct sl_key name = {.at = entry.key, .length = entry.key_length};
    sl_err found = sl_index_find_hashed(self->index, name, entry.hash, &there);
    bool gives_way =
        claim->replace && found == SL_OK && there.kind == SL_RECORD_COMMITTED && there.group == 0;
    if (found == SL_OK && !gives_way) {
        reg_claim_release(self, slot); /* a block or a disk's scan took the key meanwhile */
        return SL_ERR_EXISTS;
    }
    if (gives_way) {
        found = replace_prepare(self, &entry, &there);
    }
    if (found == SL_ERR_NO_SPACE) {
        return found;
    }
    char key[SL_KEY_BYTES_MAX];
    uint32_t tombstones = found == SL_OK ? reg_tombstones_needed(self, &there) : 0;
    if (claim->replace && found == SL_ERR_NOT_FOUND) {
        memcpy(key, name.at, name.length); /* the key's record may move */
        tombstones = (uint32_t)__builtin_popcount(reg_disks_may_have(self, name, REG_NONE, true));
    }
    bool waits = self->tier->on && (tombstones > 0 || found == SL_OK);
    if (tombstones > 0 && reg_tombstones_room(self) < tombstones + REG_DISKS_MAX) {
        reg_claim_release(self, slot); /* the old value could return, so it stays */
        return SL_ERR_LIMIT;
    }
    if (waits && !commit_waits(self, commit)) {
        reg_claim_release(self, slot); /* too many answers wait; the client tries again */
        return SL_ERR_BUSY;
    }
    const struct reg_drop how = {.reason = REG_GHOST_REMOVED,
                                 .forget = true,
                                 .remove_id = commit->answer,
                                 .remove_index = index};
    if (found == SL_OK) {
        return claim_replace(self, slot, digest, &there, &how);
    }
    sl_err err = claim_put(self, slot, digest);
    const struct sl_key put = {key, name.length};
    bool noted = err != SL_OK || tombstones == 0 || reg_tombstone_add_all(self, put, &how);
    for (uint32_t i = 0; !noted && i < REG_INDEX_ROUNDS && reg_make_index_room(self); i++) {
        noted = reg_tombstone_note_all(self, put);
    }
    return err;
}

static bool claim_is_of(const struct registrar *self, const struct reg_claim *claim, uint32_t peer)
{
    return sl_proc_id_equal(claim->owner, self->peers->all[peer].proc) ||
           claim->writer_peer == peer;
}

/* The item was committed before, by this or the previous registrar. The reply may have been waiting
 * for tombstones of the replaced value when that registrar died. Its record may be gone, so the
 * tombstones are found by the key's hash. */
static sl_err commit_again(struct registrar *self, struct committing *commit, uint32_t index,
                           uint64_t key_hash)
{
    const char *key = reg_tombstone_key_of_hash(self, key_hash);
    if (key == NULL) {
        return SL_OK;
    }
    if (!commit_waits(self, commit)) {
        return SL_ERR_LIMIT;
    }
    bool joined = reg_answer_join(self, commit->answer, index, key);
    return joined ? SL_OK : SL_ERR_TIMEOUT; /* an answer of this registrar waited already */
}

static sl_err commit_one(struct registrar *self, struct committing *commit, uint32_t index)
{
    const struct sl_item_claim *item = &commit->msg->body.commit.items.at[index];
    uint32_t peer = commit->peer;
    uint32_t slot = reg_claim_by_generation(self, item->generation);
    if (slot == REG_NONE) {
        uint64_t key_hash = 0;
        return sl_settled_committed(self->settled, item->generation, &key_hash)
                   ? commit_again(self, commit, index, key_hash)
                   : SL_ERR_STALE;
    }
    struct reg_claim *claim = &self->claims->all[slot];
    if (claim->ref != item->ref) {
        return SL_ERR_STALE;
    }
    if (claim->state == REG_CLAIM_PROMOTING || !claim_is_of(self, claim, peer)) {
        return SL_ERR_PERMISSION;
    }
    if (claim->state != REG_CLAIM_RESERVED) {
        if (claim->state == REG_CLAIM_HELD && claim->writer_peer == peer) {
            reg_claim_release(self, slot); /* the writer itself is done with it */
        }
        return SL_ERR_STALE;
    }
    if (claim->ahead) {
        return reg_prealloc_commit(self, commit->msg, slot, index);
    }
    if (commit->msg->body.commit.named.count > 0) {
        return SL_ERR_INVALID; /* the claim has a key */
    }
    return claim_commit(self, commit, slot, index,
                        (struct sl_digest){.low = item->digest_low, .high = item->digest_high});
}

/* Items ahead for which records are prefetched; half as many for what these records point at. */
#define FETCH_AHEAD 8u

/* The claim of item i in the order of commits; NULL: none. */
static const struct reg_claim *claim_ahead(struct registrar *self,
                                           const struct sl_body_commit *body, uint64_t i)
{
    uint64_t count = body->items.count;
    if (i >= count) {
        return NULL;
    }
    uint64_t generation = body->items.at[body->tail_first ? count - 1 - i : i].generation;
    uint32_t slot = reg_claim_by_generation(self, generation);
    return slot != REG_NONE && self->claims->all[slot].state == REG_CLAIM_RESERVED
               ? &self->claims->all[slot]
               : NULL;
}

static void records_prefetch(struct registrar *self, const struct sl_body_commit *body, uint64_t i)
{
    const struct reg_claim *claim = claim_ahead(self, body, i);
    if (claim != NULL) {
        sl_index_fetch(self->index, claim->ref);
        if (claim->group != REG_NONE) {
            sl_index_fetch(self->index, self->groups->all[claim->group].ref);
        }
    }
}

static void unit_prefetch(struct registrar *self, const struct sl_body_commit *body, uint64_t i)
{
    const struct reg_claim *claim = claim_ahead(self, body, i);
    if (claim == NULL || claim->ahead) {
        return;
    }
    sl_index_fetch_place(self->index, claim->ref);
    sl_table_fetch(&self->claims->by_key, claim->hash);
    if (claim->group == REG_NONE) {
        reg_unit_prefetch_place(self, claim->hash);
    } else if (claim->node[REG_LIST_GROUP].next == REG_NONE) { /* only once for all parts */
        reg_unit_prefetch_place(self, self->groups->all[claim->group].hash);
    }
}

/* For the first items. */
static void commit_prefetch(struct registrar *self, const struct sl_body_commit *body)
{
    for (uint64_t i = 0; i < FETCH_AHEAD; i++) {
        records_prefetch(self, body, i);
    }
    for (uint64_t i = 0; i < FETCH_AHEAD / 2; i++) {
        unit_prefetch(self, body, i);
    }
}

static void commit_handle(struct registrar *self, const struct sl_msg *msg)
{
    const struct sl_body_commit *body = &msg->body.commit;
    uint32_t peer = reg_peer_of_sender(self, msg);
    if (peer == REG_NONE) {
        return;
    }
    if (reg_answer_waits(self, msg)) {
        return; /* a repeated request */
    }
    uint64_t done = 0, stale = 0;
    struct committing commit = {.msg = msg, .peer = peer};
    commit_prefetch(self, body);
    for (uint64_t i = 0; i < body->items.count; i++) {
        uint64_t at = body->tail_first ? body->items.count - 1 - i : i;
        records_prefetch(self, body, i + FETCH_AHEAD);
        unit_prefetch(self, body, i + FETCH_AHEAD / 2);
        sl_err code = commit_one(self, &commit, (uint32_t)at);
        self->codes[at] = (uint64_t)code;
        done += code == SL_OK ? 1 : 0;
        stale += code == SL_ERR_STALE ? 1 : 0;
    }
    sl_metric_add(self->env->metrics, self->reservations->metric.commit_count, done);
    sl_metric_add(self->env->metrics, self->reservations->metric.stale_count, stale);
    sl_trace_event(self->env->metrics, self->env->now_ns, msg->trace_id, "commit", msg->sender.at,
                   (uint32_t)done);
    if (commit.answer != 0) {
        reg_answer_end(self, commit.answer, self->codes);
        return;
    }
    struct sl_msg reply = {.code = SL_OK};
    reply.body.commit_reply.ahead.count = reg_prealloc_grant(self, msg, peer);
    reply.body.commit_reply.ahead.at = self->scratch->grants;
    reply.body.commit_reply.codes = (struct sl_u64s){.at = self->codes, .count = body->items.count};
    sl_reply(self->env, msg, &reply);
}

/* ---- abort ---- */

/* The sender no longer writes to this extent. */
static sl_err abort_one(struct registrar *self, uint32_t peer, const struct sl_item_claim *item)
{
    uint32_t slot = reg_claim_by_generation(self, item->generation);
    if (slot == REG_NONE || self->claims->all[slot].ref != item->ref) {
        return sl_settled_committed(self->settled, item->generation, NULL)
                   ? SL_ERR_STALE
                   : SL_OK; /* committed, or freed before */
    }
    struct reg_claim *claim = &self->claims->all[slot];
    if (claim->state == REG_CLAIM_PROMOTING || !claim_is_of(self, claim, peer)) {
        return SL_ERR_PERMISSION;
    }
    claim_give_up(self, slot);
    return SL_OK;
}

/* The sender gave up the op before it learnt what was granted, so nothing is being written and the
 * keys are free at once. This is rare: it follows a RESERVE without an answer in time. */
static void abort_op(struct registrar *self, uint32_t peer, uint64_t op_id)
{
    struct sl_proc_id owner = self->peers->all[peer].proc;
    uint32_t count = 0;
    reg_space_queue_abort(self, owner, op_id);
    for (uint32_t i = 0; i < self->claims->high; i++) {
        const struct reg_claim *claim = &self->claims->all[i];
        if (claim->state == REG_CLAIM_RESERVED && !claim->ahead && claim->op_id == op_id &&
            sl_proc_id_equal(claim->owner, owner)) {
            claim_give_up(self, i); /* and other claims of its block */
            count++;
        }
    }
    sl_metric_add(self->env->metrics, self->reservations->metric.abort_count, count);
}

static void abort_handle(struct registrar *self, const struct sl_msg *msg)
{
    const struct sl_body_abort *body = &msg->body.abort;
    uint32_t peer = reg_peer_of_sender(self, msg);
    if (peer == REG_NONE) {
        return;
    }
    if (body->items.count == 0 && msg->op_id != 0) {
        abort_op(self, peer, msg->op_id);
    }
    for (uint64_t i = 0; i < body->items.count; i++) {
        self->codes[i] = (uint64_t)abort_one(self, peer, &body->items.at[i]);
    }
    sl_metric_add(self->env->metrics, self->reservations->metric.abort_count, body->items.count);
    sl_trace_event(self->env->metrics, self->env->now_ns, msg->trace_id, "abort", msg->sender.at,
                   (uint32_t)body->items.count);
    reg_answer_codes(self, msg, body->items.count);
}

/* ---- deadlines ---- */

static void timers_expire(struct registrar *self)
{
    uint64_t now_ns = self->env->now_ns;
    struct sl_heap_item due;
    while (sl_heap_pop(&self->claims->timers, now_ns, &due)) {
        uint32_t id = due.id;
        if (id >= self->set.reservations_max) {
            reg_group_abandon(self, id - self->set.reservations_max, REG_GHOST_EXPIRED);
            continue;
        }
        if (self->claims->all[id].state == REG_CLAIM_RESERVED && self->claims->all[id].ahead) {
            reg_claim_quarantine(self, id); /* unused in time: nothing is lost */
        } else if (self->claims->all[id].state == REG_CLAIM_RESERVED) {
            struct sl_entry entry;
            sl_index_read(self->index, self->claims->all[id].ref, &entry);
            reg_ghost_add(self, entry.key, entry.key_length, REG_GHOST_EXPIRED);
            sl_metric_add(self->env->metrics, self->claims->metric.expired_count, 1);
            reg_claim_quarantine(self, id);
        } else if (self->claims->all[id].state == REG_CLAIM_GRACE) {
            reg_claim_release(self, id);
        }
    }
}

/* ---- the part ---- */

static const struct sl_metric_row metrics[] = {
    REG_METRIC(reg_reservations, commit_count),
    REG_METRIC(reg_reservations, stale_count),
    REG_METRIC(reg_reservations, abort_count),
    REG_METRIC(reg_reservations, replaced_count),
};

static const struct reg_handler handlers[] = {
    {SL_MSG_COMMIT, commit_handle},
    {SL_MSG_ABORT, abort_handle},
};

const struct reg_part reg_reservations_part = {
    .name = "reservations",
    REG_STATE(reservations, reg_reservations),
    REG_METRICS(metrics),
    REG_HANDLERS(handlers),
    .tick = timers_expire,
};
