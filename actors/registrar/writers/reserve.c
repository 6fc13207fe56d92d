/* actors/registrar/writers/reserve.c - RESERVE: one pass over the items, and grants.
 *
 * The pass: 1. classifies the blocks; 2. classifies the items: they exist, are being written, or
 * need an extent; 3. takes extents, evicting; 4. writes the records of the claims. Nothing is
 * visible to others before all is done. A request that has to wait, or a block that cannot be
 * granted whole, is rolled back by freeing what it took. */
#include "actors/registrar/writers/reserve.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/reclaim.h"
#include "actors/registrar/disk/remove.h"
#include "actors/registrar/disk/write_behind.h"
#include "actors/registrar/memory/contributions.h"
#include "actors/registrar/memory/evict.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/records/claims.h"
#include "actors/registrar/records/fences.h"
#include "actors/registrar/records/ghosts.h"
#include "actors/registrar/records/groups.h"
#include "actors/registrar/records/units.h"
#include "actors/registrar/writers/holds.h"
#include "actors/registrar/writers/prealloc.h"
#include "actors/registrar/writers/room.h"
#include "actors/registrar/writers/space_queue.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A request that does not `wait` is answered this long before its deadline: a share of its time,
 * bounded, for the reply's way. */
#define ANSWER_SHARE  20u
#define ANSWER_NS_MAX (50 * SL_NS_PER_MS)

/* ---- 1: blocks ---- */

static bool same_request(const struct reg_request *req, struct sl_proc_id owner, uint64_t op_id,
                         uint64_t seq)
{
    /* Requests without an op are distinguished by number: two puts of a client are two writers. */
    return sl_proc_id_equal(owner, req->owner) && op_id == req->op_id &&
           (op_id != 0 || seq == req->seq);
}

static uint64_t timer_left(const struct registrar *self, uint32_t id)
{
    return sl_budget_ns(self->env->now_ns, sl_heap_at_ns(&self->claims->timers, id));
}

static struct reg_want_group group_classify(struct registrar *self, const struct reg_request *req,
                                            const struct sl_item_group *want, uint64_t index_hash)
{
    struct reg_want_group out = {.code = SL_OK, .slot = REG_NONE, .index_hash = index_hash};
    struct sl_entry entry;
    struct sl_group_info info;
    if (sl_index_find_hashed(self->index, reg_key(&want->key), index_hash, &entry) != SL_OK ||
        reg_half_block_drop(self, reg_unit_of(&entry))) {
        return out;
    }
    if (entry.kind != SL_RECORD_GROUP) {
        out.code = SL_ERR_INVALID; /* an object has this key */
        return out;
    }
    sl_index_group_info(self->index, entry.ref, &info);
    if (info.state == SL_GROUP_COMMITTED) {
        out.code = reg_reclaim_drops(self, entry.ref) ? SL_OK : SL_ERR_EXISTS;
        return out;
    }
    uint32_t slot = reg_group_slot(self, entry.ref);
    if (slot == REG_NONE) { /* dropped, about to be freed */
        out.code = SL_ERR_BUSY;
    } else if (!same_request(req, self->groups->all[slot].owner, self->groups->all[slot].op_id,
                             self->groups->all[slot].seq)) {
        out.code = SL_ERR_BUSY;
        out.busy_ns = timer_left(self, reg_group_timer(self, slot));
    } else if (info.part_count != want->part_count) {
        out.code = SL_ERR_INVALID;
    } else {
        out.slot = slot;
        self->groups->all[slot].aborted = false;
    }
    return out;
}

/* ---- 2: items ---- */

static struct reg_want_group *item_group(struct registrar *self, const struct sl_item_want *want)
{
    return want->group == 0 ? NULL : &self->scratch->groups[want->group - 1];
}

/* Whether an earlier item of this request has the same key. */
static bool item_seen(struct registrar *self, const struct reg_request *req, uint32_t index,
                      uint32_t mask)
{
    uint64_t hash = self->scratch->items[index].hash;
    const struct sl_text *key = &req->items[index].key;
    uint32_t at = (uint32_t)hash & mask;
    while (self->scratch->seen[at] != 0) {
        uint32_t other = self->scratch->seen[at] - 1;
        if (self->scratch->items[other].hash == hash &&
            req->items[other].key.length == key->length &&
            memcmp(req->items[other].key.at, key->at, key->length) == 0) {
            return true;
        }
        at = (at + 1) & mask;
    }
    self->scratch->seen[at] = index + 1;
    return false;
}

/* Bundles are identified by the hash of their name only. */
static uint64_t bundle_of(const struct sl_item_want *want)
{
    return want->bundle.length == 0 ? 0 : SL_MAX(reg_hash(want->bundle.at, want->bundle.length), 1);
}

/* A value that replaces another keeps the hard pin and bundle of its key. SL_ERR_EXISTS: the
 * existing value cannot be replaced. */
static sl_err item_replaces(const struct reg_request *req, const struct sl_item_want *want,
                            const struct sl_entry *there, struct reg_item *item)
{
    uint64_t bundle = bundle_of(want);
    if (!req->replace || there->kind != SL_RECORD_COMMITTED || there->group != 0 ||
        want->group != 0) {
        return SL_ERR_EXISTS;
    }
    if (bundle != 0 && bundle != there->bundle) {
        return SL_ERR_INVALID;
    }
    item->bundle = there->bundle;
    item->hard_pin = there->hard_pin;
    return SL_OK;
}

/* The code for a key in the table: existing, soon visible, or not what the request assumes. */
static sl_err item_present(struct registrar *self, const struct sl_item_want *want,
                           const struct sl_entry *entry, struct sl_item_grant *grant)
{
    struct reg_want_group *group = item_group(self, want);
    if (entry->kind != SL_RECORD_COMMITTED) {
        return SL_ERR_INVALID; /* a block has this key */
    }
    if (entry->group == 0) {
        return group == NULL ? SL_ERR_EXISTS : SL_ERR_INVALID;
    }
    if (reg_unit_visible(self, entry)) {
        return group == NULL ? SL_ERR_EXISTS : SL_ERR_INVALID; /* a part of another block */
    }
    if (group != NULL && group->slot != REG_NONE &&
        self->groups->all[group->slot].ref == entry->group) {
        return SL_ERR_EXISTS; /* this op has filled it already */
    }
    uint32_t slot = reg_group_slot(self, entry->group);
    grant->busy_ns = slot == REG_NONE ? 0 : timer_left(self, reg_group_timer(self, slot));
    return SL_ERR_BUSY;
}

static void grant_fill(const struct reg_claim *claim, struct sl_item_grant *grant)
{
    *grant = (struct sl_item_grant){
        .code = SL_OK,
        .ref = claim->ref,
        .generation = claim->extent.generation,
        .arena = claim->extent.arena,
        .offset_bytes = claim->extent.offset_bytes,
    };
}

/* The code for a key that is being written. */
static sl_err item_claimed(struct registrar *self, const struct reg_request *req,
                           const struct sl_item_want *want, uint32_t slot,
                           struct sl_item_grant *grant)
{
    const struct reg_claim *claim = &self->claims->all[slot];
    const struct reg_want_group *group = item_group(self, want);
    if (!same_request(req, claim->owner, claim->op_id, claim->seq)) {
        uint32_t timer = claim->group == REG_NONE ? slot : reg_group_timer(self, claim->group);
        grant->busy_ns = timer_left(self, timer);
        if (claim->group == REG_NONE && self->scratch->put_preempt_ns != 0) {
            uint64_t until_ns = sl_deadline_ns(claim->since_ns, self->scratch->put_preempt_ns);
            grant->busy_ns = SL_MIN(grant->busy_ns, sl_budget_ns(self->env->now_ns, until_ns));
        }
        return SL_ERR_BUSY;
    }
    if (claim->extent.length_bytes != want->length_bytes ||
        claim->group != (group == NULL ? REG_NONE : group->slot)) {
        return SL_ERR_INVALID;
    }
    grant_fill(claim, grant);
    return SL_OK;
}

/* Whether the other writer is preempted. A replacing put does not wait for a plain put, whose
 * writer may have given up. Of two replacing puts the later one waits: otherwise each would take
 * the key from the other with every try, and two large values could go on until their deadlines.
 * After put_preempt any other writer may take the key. */
static bool item_preempts(const struct registrar *self, const struct reg_request *req,
                          uint32_t slot)
{
    const struct reg_claim *claim = &self->claims->all[slot];
    uint64_t preempt_ns = self->scratch->put_preempt_ns;
    bool slow = preempt_ns != 0 && self->env->now_ns >= sl_deadline_ns(claim->since_ns, preempt_ns);
    return claim->group == REG_NONE && ((req->replace && !claim->replace) || slow);
}

static sl_err item_writer(struct registrar *self, const struct reg_request *req,
                          const struct sl_item_want *want, struct reg_item *item)
{
    item->writer = want->writer.length == 0
                       ? req->peer
                       : reg_peer_find(self, want->writer.at, want->writer.length);
    if (item->writer == REG_NONE) {
        return SL_ERR_UNREACHABLE;
    }
    /* An actor that refuses its fence is killed, so no client may name an actor. */
    bool others = self->peers->all[req->peer].client && item->writer != req->peer;
    return others ? SL_ERR_PERMISSION : SL_OK;
}

static sl_err item_classify(struct registrar *self, const struct reg_request *req, uint32_t index,
                            uint32_t mask)
{
    const struct sl_item_want *want = &req->items[index];
    struct reg_item *item = &self->scratch->items[index];
    struct sl_item_grant *grant = &self->scratch->grants[index];
    struct reg_want_group *group = item_group(self, want);
    struct sl_entry entry;
    *grant = (struct sl_item_grant){0};
    *item = (struct reg_item){.state = REG_ITEM_DONE,
                              .slot = REG_NONE,
                              .preempts = REG_NONE,
                              .hash = item->hash,
                              .index_hash = item->index_hash,
                              .hard_pin = req->hard_pin,
                              .bundle = bundle_of(want)};
    if (group != NULL && group->code != SL_OK) {
        grant->busy_ns = group->busy_ns;
        return group->code;
    }
    if (want->length_bytes > self->set.memory_chunk) {
        return SL_ERR_INVALID; /* no extent crosses a chunk */
    }
    if (item_seen(self, req, index, mask)) {
        grant->busy_ns = req->ttl_ns;
        return SL_ERR_BUSY; /* an earlier item has the same key */
    }
    if (sl_index_find_hashed(self->index, reg_key(&want->key), item->index_hash, &entry) == SL_OK &&
        !reg_half_block_drop(self, reg_unit_of(&entry)) &&
        !(entry.kind == SL_RECORD_COMMITTED && reg_reclaim_drops(self, reg_unit_of(&entry)))) {
        sl_err err = item_replaces(req, want, &entry, item);
        if (err != SL_OK) {
            return err == SL_ERR_EXISTS ? item_present(self, want, &entry, grant) : err;
        }
        item->hard_pin = item->hard_pin || req->hard_pin;
    }
    uint32_t slot = reg_claim_by_key(self, item->hash, want->key.at, want->key.length);
    if (slot != REG_NONE) {
        sl_err err = item_claimed(self, req, want, slot, grant);
        if (err != SL_ERR_BUSY || !item_preempts(self, req, slot)) {
            return err;
        }
        item->preempts = slot;
    }
    if (group != NULL && group->slot != REG_NONE &&
        reg_group_has(&self->groups->all[group->slot], want->part_index)) {
        return SL_ERR_INVALID; /* the part exists under another key */
    }
    if (sl_extent_space(want->length_bytes) > reg_charge_largest(self)) {
        return SL_ERR_NO_SPACE; /* waiting would not help */
    }
    sl_err err = item_writer(self, req, want, item);
    item->state = err == SL_OK ? REG_ITEM_NEED : item->state;
    return err;
}

static void group_fail(struct reg_want_group *group, sl_err code, uint64_t busy_ns)
{
    if (group != NULL && group->code == SL_OK) {
        group->code = code;
        group->busy_ns = busy_ns;
    }
}

/* Prefetches what the pass reads of each key, for all keys at once. */
static void request_prefetch(struct registrar *self, const struct reg_request *req)
{
    for (uint32_t i = 0; i < req->group_count; i++) {
        self->scratch->groups[i].index_hash =
            sl_index_fetch_key(self->index, reg_key(&req->groups[i].key));
    }
    for (uint32_t i = 0; i < req->item_count; i++) {
        struct reg_item *item = &self->scratch->items[i];
        struct sl_key key = reg_key(&req->items[i].key);
        item->index_hash = sl_index_fetch_key(self->index, key);
        item->hash = reg_hash(key.at, key.length);
        sl_table_fetch(&self->claims->by_key, item->hash);
    }
}

static struct reg_need request_classify(struct registrar *self, const struct reg_request *req)
{
    uint32_t mask = 15;
    struct reg_need need = {0};
    while (mask < 2 * req->item_count) {
        mask = mask * 2 + 1;
    }
    memset(self->scratch->seen, 0, (mask + 1) * sizeof(*self->scratch->seen));
    request_prefetch(self, req);
    for (uint32_t i = 0; i < req->group_count; i++) {
        self->scratch->groups[i] =
            group_classify(self, req, &req->groups[i], self->scratch->groups[i].index_hash);
    }
    for (uint32_t i = 0; i < req->item_count; i++) {
        sl_err code = item_classify(self, req, i, mask);
        self->scratch->grants[i].code = (uint64_t)code;
        if (code != SL_OK && code != SL_ERR_EXISTS) {
            group_fail(item_group(self, &req->items[i]), code, self->scratch->grants[i].busy_ns);
        }
    }
    for (uint32_t i = 0; i < req->item_count; i++) {
        struct reg_item *item = &self->scratch->items[i];
        const struct reg_want_group *group = item_group(self, &req->items[i]);
        if (item->state == REG_ITEM_NEED && group != NULL && group->code != SL_OK) {
            item->state = REG_ITEM_DONE;
            self->scratch->grants[i] =
                (struct sl_item_grant){.code = (uint64_t)group->code, .busy_ns = group->busy_ns};
        } else if (item->state == REG_ITEM_NEED) {
            uint64_t space = sl_extent_space(req->items[i].length_bytes);
            self->scratch->spaces[need.count++] = space;
            need.bytes += space;
        }
    }
    need.fits = need.bytes <= reg_ceiling_bytes(self) &&
                reg_charge_fits_all(self, self->scratch->spaces, need.count);
    return need;
}

/* ---- 4: records ---- */

static sl_err group_make(struct registrar *self, const struct reg_request *req, uint32_t index)
{
    struct reg_want_group *group = &self->scratch->groups[index];
    const struct sl_item_group *want = &req->groups[index];
    struct sl_group_want make = {
        .key = reg_key(&want->key),
        .hash = group->index_hash,
        .part_count = (uint32_t)want->part_count,
        .deadline_ns = sl_deadline_ns(self->env->now_ns, req->ttl_ns),
        .op_id = req->op_id,
        .transient_ns = want->transient_ns,
        .owner = req->owner,
    };
    struct reg_group fresh = {.owner = req->owner, .op_id = req->op_id, .seq = req->seq};
    sl_err err = reg_group_make(self, &make, &fresh, &group->slot);
    if (err != SL_OK) {
        return err == SL_ERR_EXISTS ? SL_ERR_BUSY : err; /* the block is twice in the request */
    }
    reg_unit_want(self, fresh.ref, want);
    group->made = true;
    return SL_OK;
}

/* The key is free at once, the extent once its writer can no longer write; that writer's COMMIT
 * becomes SL_ERR_STALE. */
static void item_preempt(struct registrar *self, const struct reg_request *req,
                         struct reg_item *item)
{
    SL_ASSERT(self->claims->all[item->preempts].state == REG_CLAIM_RESERVED);
    reg_claim_quarantine(self, item->preempts);
    item->preempts = REG_NONE;
    sl_metric_add(self->env->metrics, self->scratch->metric.preempted_count, 1);
    sl_trace_event(self->env->metrics, self->env->now_ns, req->trace_id, "preempt", "", 1);
}

static sl_err item_record(struct registrar *self, const struct reg_request *req, uint32_t index)
{
    const struct sl_item_want *want = &req->items[index];
    struct reg_item *item = &self->scratch->items[index];
    struct reg_want_group *group = item_group(self, want);
    if (group != NULL && group->slot == REG_NONE) {
        sl_err err = group_make(self, req, (uint32_t)want->group - 1);
        if (err != SL_OK) {
            return err;
        }
    }
    if (group != NULL && reg_group_has(&self->groups->all[group->slot], want->part_index)) {
        return SL_ERR_INVALID; /* two keys for one part */
    }
    if (item->preempts != REG_NONE) {
        item_preempt(self, req, item);
    }
    struct reg_claim claim = {
        .state = REG_CLAIM_RESERVED,
        .replace = req->replace && group == NULL,
        .pinned = req->draft && item->writer == req->peer,
        .since_ns = self->env->now_ns,
        .extent = {.generation = sl_arena_next_generation(self->arena),
                   .offset_bytes = item->offset_bytes,
                   .length_bytes = want->length_bytes},
        .hash = item->hash,
        .op_id = req->op_id,
        .seq = req->seq,
        .owner = req->owner,
        .owner_peer = req->peer,
        .writer_peer = item->writer,
        .group = group == NULL ? REG_NONE : group->slot,
        .part_index = (uint16_t)want->part_index,
        .bundle = item->bundle,
    };
    uint64_t deadline_ns = sl_deadline_ns(self->env->now_ns, req->ttl_ns);
    struct sl_entry record = {
        .kind = SL_RECORD_RESERVED,
        .extent = claim.extent,
        .owner = req->owner,
        .writer = self->peers->all[item->writer].proc,
        .deadline_ns = deadline_ns,
        .op_id = req->op_id,
        .group = group == NULL ? 0 : self->groups->all[group->slot].ref,
        .part_index = claim.part_index,
        .hard_pin = item->hard_pin,
        .replace = claim.replace,
        .pinned = claim.pinned,
        .soft_pin_ns = req->soft_pin_ns,
        .bundle = claim.bundle,
        .contribution = item->charged,
        .hash = item->index_hash,
        .key = want->key.at,
        .key_length = (uint16_t)want->key.length,
    };
    sl_err err = sl_index_claim(self->index, &record, &claim.ref, NULL);
    if (err != SL_OK) {
        return err;
    }
    item->slot = reg_claim_add(self, &claim);
    SL_ASSERT(item->slot != REG_NONE); /* the pass checked the limit */
    reg_list_add(self, REG_LIST_PEER, &self->peers->all[req->peer].owned, item->slot);
    if (group != NULL) {
        reg_list_add(self, REG_LIST_GROUP, &self->groups->all[group->slot].claims, item->slot);
        reg_group_mark(&self->groups->all[group->slot], want->part_index, true);
    } else {
        sl_heap_set(&self->claims->timers, item->slot, deadline_ns);
    }
    grant_fill(&self->claims->all[item->slot], &self->scratch->grants[index]);
    item->state = REG_ITEM_GRANTED;
    return SL_OK;
}

/* ---- rolling back ---- */

static void item_undo(struct registrar *self, const struct reg_request *req, uint32_t index,
                      sl_err code)
{
    struct reg_item *item = &self->scratch->items[index];
    if (item->state == REG_ITEM_GRANTED) {
        reg_claim_release(self, item->slot); /* no client knows of it */
    } else if (item->state == REG_ITEM_TAKEN) {
        reg_give_charged(self, item->offset_bytes, req->items[index].length_bytes, item->charged);
    } else if (item->state != REG_ITEM_NEED) {
        return;
    }
    item->state = REG_ITEM_DONE;
    self->scratch->grants[index] = (struct sl_item_grant){.code = (uint64_t)code};
}

/* Removes blocks that this request made and that got no extent. */
static void groups_undo(struct registrar *self, const struct reg_request *req)
{
    for (uint32_t i = 0; i < req->group_count; i++) {
        struct reg_want_group *group = &self->scratch->groups[i];
        if (!group->made || self->groups->all[group->slot].claims != REG_NONE) {
            continue;
        }
        sl_ref ref = self->groups->all[group->slot].ref;
        reg_group_remove(self, group->slot);
        sl_index_group_drop(self->index, ref);
        sl_index_unlink(self->index, ref, SL_RECORD_FREE);
        group->made = false;
        group->slot = REG_NONE;
    }
}

static void request_undo(struct registrar *self, const struct reg_request *req, sl_err code)
{
    bool freed = self->space.freed;
    for (uint32_t i = 0; i < req->item_count; i++) {
        item_undo(self, req, i, code);
    }
    groups_undo(self, req);
    self->space.freed = freed; /* taking and freeing is no news for waiting requests */
}

/* ---- the pass ---- */

static sl_err item_grant(struct registrar *self, const struct reg_request *req, uint32_t index)
{
    struct reg_item *item = &self->scratch->items[index];
    uint64_t length_bytes = req->items[index].length_bytes;
    sl_err err =
        reg_take_charged(self, &req->wish, length_bytes, &item->offset_bytes, &item->charged);
    if (err == SL_ERR_NO_SPACE && reg_prealloc_revoke_all(self)) {
        err = reg_take_charged(self, &req->wish, length_bytes, &item->offset_bytes, &item->charged);
    }
    if (err != SL_OK) {
        return err;
    }
    item->state = REG_ITEM_TAKEN;
    err = item_record(self, req, index);
    for (uint32_t i = 0;
         err == SL_ERR_NO_SPACE && i < REG_INSERT_ROUNDS && reg_make_index_room(self); i++) {
        err = item_record(self, req, index);
    }
    return err;
}

/* Grants extents. If space runs out, the pass ends if the request can wait; otherwise that item
 * fails, with its block. */
static sl_err request_grant(struct registrar *self, const struct reg_request *req, bool fits)
{
    for (uint32_t i = 0; i < req->item_count; i++) {
        struct reg_want_group *group = item_group(self, &req->items[i]);
        if (self->scratch->items[i].state != REG_ITEM_NEED) {
            continue;
        }
        bool fails = group != NULL && group->code != SL_OK;
        if (!fails) {
            reg_request_room_ahead(self, req, i);
        }
        sl_err err = fails ? group->code : item_grant(self, req, i);
        if (err == SL_ERR_NO_SPACE &&
            (req->wait ||
             (req->while_expected &&
              (reg_memory_awaits_populate(self, sl_extent_space(req->items[i].length_bytes)) ||
               (fits && self->scratch->items[i].state == REG_ITEM_NEED &&
                reg_writes_outstanding(self)))))) {
            return err;
        }
        if (err != SL_OK) {
            group_fail(group, err, 0);
            item_undo(self, req, i, err);
        }
    }
    bool undone = false;
    for (uint32_t i = 0; i < req->item_count; i++) {
        struct reg_want_group *group = item_group(self, &req->items[i]);
        if (group != NULL && group->code != SL_OK &&
            self->scratch->items[i].state == REG_ITEM_GRANTED) {
            item_undo(self, req, i, group->code);
            undone = true;
        }
    }
    if (undone) {
        groups_undo(self, req);
    }
    return SL_OK;
}

/* Answers all items without a grant. */
static enum reg_outcome request_refuse(struct registrar *self, const struct reg_request *req,
                                       sl_err code)
{
    for (uint32_t i = 0; i < req->item_count; i++) {
        item_undo(self, req, i, code);
    }
    return REG_RESERVE_ANSWER;
}

enum reg_outcome reg_request_run(struct registrar *self, const struct reg_request *req,
                                 bool may_allocate, uint64_t *need_bytes)
{
    /* A round drops 64 units: enough that new records never outrun dropped ones. */
    uint32_t rounds = REG_INSERT_ROUNDS + req->item_count / 32;
    bool room = may_allocate;
    for (uint32_t i = 0; i < rounds && room && sl_index_nearly_full(self->index); i++) {
        room = reg_make_index_room(self);
    }
    struct reg_need need = request_classify(self, req);
    *need_bytes = need.bytes;
    if (need.count == 0) {
        return REG_RESERVE_ANSWER;
    }
    bool limit =
        self->claims->count + need.count > self->set.reservations_max ||
        self->peers->all[req->peer].quarantined_bytes > self->scratch->quarantine_bytes_max;
    /* If room will never suffice, a request without `wait` fails item by item. */
    if (limit || (req->wait && !need.fits)) {
        return request_refuse(self, req, limit ? SL_ERR_LIMIT : SL_ERR_NO_SPACE);
    }
    if (!reg_request_has_room(self, req, &need, may_allocate)) {
        bool comes = reg_memory_awaits_populate(self, may_allocate ? need.bytes
                                                                   : reg_space_queue_need(self)) ||
                     reg_writes_outstanding(self);
        return req->wait || (req->while_expected && comes)
                   ? REG_RESERVE_PARK
                   : request_refuse(self, req, SL_ERR_NO_SPACE);
    }
    if (request_grant(self, req, need.fits) == SL_ERR_NO_SPACE) {
        request_undo(self, req, SL_ERR_NO_SPACE);
        return REG_RESERVE_PARK;
    }
    return REG_RESERVE_ANSWER;
}

/* Holds blocks before the reply. If they do not all fit into the limit, nothing is granted. */
static void request_hold(struct registrar *self, const struct reg_request *req)
{
    sl_err err = reg_hold_take(self, req);
    if (err == SL_OK) {
        return;
    }
    request_undo(self, req, err);
    for (uint32_t i = 0; i < req->item_count; i++) {
        self->scratch->grants[i] = (struct sl_item_grant){.code = (uint64_t)err};
    }
}

void reg_request_answer(struct registrar *self, const struct reg_request *req,
                        const struct sl_reply_route *back)
{
    if (req->hold_id != 0) {
        request_hold(self, req);
    }
    uint64_t granted = 0, busy = 0, refused = 0;
    for (uint32_t i = 0; i < req->item_count; i++) {
        const struct sl_text *key = &req->items[i].key;
        if (self->scratch->grants[i].code == SL_ERR_NO_SPACE) {
            reg_ghost_add(self, key->at, key->length, REG_GHOST_REFUSED);
            refused++;
        }
        granted += self->scratch->grants[i].code == SL_OK ? 1 : 0;
        busy += self->scratch->grants[i].code == SL_ERR_BUSY ? 1 : 0;
    }
    sl_metric_add(self->env->metrics, self->scratch->metric.reserve_count, granted);
    sl_metric_add(self->env->metrics, self->scratch->metric.busy_count, busy);
    sl_metric_add(self->env->metrics, self->scratch->metric.refused_count, refused);
    sl_trace_event(self->env->metrics, self->env->now_ns, req->trace_id, "reserve", back->to,
                   (uint32_t)granted);
    struct sl_msg reply = {.code = SL_OK};
    reply.body.reserve_reply.items.at = self->scratch->grants;
    reply.body.reserve_reply.items.count = req->item_count;
    sl_reply_route_send(self->env, back, &reply);
}

/* ---- the message ---- */

static sl_err request_check(const struct registrar *self, const struct sl_body_reserve *body,
                            struct sl_error *why)
{
    if (body->soft_pin_ns > self->scratch->soft_pin_max_ns) {
        return sl_fail(why, SL_ERR_INVALID,
                       "RESERVE.soft_pin_ns: %" PRIu64 ", soft_pin_max is %" PRIu64,
                       body->soft_pin_ns, self->scratch->soft_pin_max_ns);
    }
    for (uint64_t i = 0; i < body->items.count; i++) {
        const struct sl_item_want *want = &body->items.at[i];
        if (want->group > body->groups.count) {
            return sl_fail(why, SL_ERR_INVALID,
                           "RESERVE.items[%" PRIu64 "].group: %" PRIu64 " of %" PRIu64 " groups", i,
                           want->group, body->groups.count);
        }
        if (want->group != 0 && want->part_index >= body->groups.at[want->group - 1].part_count) {
            return sl_fail(why, SL_ERR_INVALID,
                           "RESERVE.items[%" PRIu64 "].part_index: %" PRIu64 " of %" PRIu64
                           " parts",
                           i, want->part_index, body->groups.at[want->group - 1].part_count);
        }
        if (want->group != 0 && want->bundle.length > 0) {
            return sl_fail(why, SL_ERR_INVALID,
                           "RESERVE.items[%" PRIu64 "].bundle: a part of a block has none", i);
        }
    }
    return SL_OK;
}

static void reserve(struct registrar *self, const struct sl_msg *msg)
{
    const struct sl_body_reserve *body = &msg->body.reserve;
    struct sl_error why = {0};
    uint32_t peer = reg_peer_of_sender(self, msg);
    if (peer == REG_NONE) {
        return;
    }
    if (request_check(self, body, &why) != SL_OK) {
        sl_reply_code(self->env, msg, SL_ERR_INVALID, &why);
        return;
    }
    if (self->draining) {
        sl_reply_code(self->env, msg, SL_ERR_DRAINING, NULL);
        return;
    }
    struct sl_reply_route back;
    sl_reply_route_keep(msg, &back);
    if (!body->wait) { /* time to answer that no room came */
        back.deadline_ns -= SL_MIN(msg->budget_ns / ANSWER_SHARE, ANSWER_NS_MAX);
    }
    if (reg_space_queue_already(self, &back)) {
        return;
    }
    struct reg_request req = {
        .items = body->items.at,
        .groups = body->groups.at,
        .item_count = (uint32_t)body->items.count,
        .group_count = (uint32_t)body->groups.count,
        .wait = body->wait,
        .while_expected = true,
        .ttl_ns = body->ttl_ns != 0 ? body->ttl_ns
                  : body->draft     ? sl_config_u64(self->env->config, SL_SET_put_release)
                                    : self->set.reservation_ttl_ns,
        .op_id = msg->op_id,
        .seq = msg->seq,
        .trace_id = msg->trace_id,
        .hold_id = body->hold_id,
        .hold_ns = body->hold_ns,
        .hard_pin = body->hard_pin,
        .soft_pin_ns = body->soft_pin_ns,
        .replace = body->replace,
        .draft = body->draft,
        .peer = peer,
        .owner = self->peers->all[peer].proc,
    };
    reg_preferences_make(self, &body->contributions, &req.wish);
    uint64_t need_bytes = 0;
    /* No request overtakes those that wait. */
    bool first = self->space.waiting_count == 0;
    if (reg_request_run(self, &req, first, &need_bytes) == REG_RESERVE_ANSWER) {
        reg_request_answer(self, &req, &back);
        return;
    }
    sl_err err = reg_request_park(self, &req, &back, need_bytes, &why);
    if (err != SL_OK) {
        sl_reply_code(self->env, msg, err, &why);
    }
}

/* ---- the part ---- */

static void reserve_settings(struct registrar *self)
{
    const struct sl_config *config = self->env->config;
    self->scratch->soft_pin_max_ns = sl_config_u64(config, SL_SET_soft_pin_max);
    self->scratch->put_preempt_ns = sl_config_u64(config, SL_SET_put_preempt);
    uint64_t quarantine_bytes = sl_config_u64(config, SL_SET_quarantine_bytes_max);
    self->scratch->quarantine_bytes_max =
        quarantine_bytes != 0 ? quarantine_bytes : self->set.memory / 4;
}

static sl_err reserve_init(struct registrar *self, struct sl_error *why)
{
    struct reg_scratch *scratch = self->scratch;
    scratch->items = calloc(SL_BATCH_MAX, sizeof(*scratch->items));
    scratch->groups = calloc(SL_BATCH_MAX, sizeof(*scratch->groups));
    scratch->grants = calloc(SL_BATCH_MAX, sizeof(*scratch->grants));
    scratch->seen = calloc(4 * SL_BATCH_MAX, sizeof(*scratch->seen));
    scratch->spaces = calloc(SL_BATCH_MAX, sizeof(*scratch->spaces));
    return scratch->items != NULL && scratch->groups != NULL && scratch->grants != NULL &&
                   scratch->seen != NULL && scratch->spaces != NULL
               ? SL_OK
               : sl_fail(why, SL_ERR_NO_MEMORY, "tables of a request");
}

static void reserve_fini(struct registrar *self)
{
    free(self->scratch->items);
    free(self->scratch->groups);
    free(self->scratch->grants);
    free(self->scratch->seen);
    free(self->scratch->spaces);
}

static const struct sl_metric_row metrics[] = {
    REG_METRIC(reg_scratch, reserve_count),
    REG_METRIC(reg_scratch, busy_count),
    REG_METRIC(reg_scratch, refused_count),
    REG_METRIC(reg_scratch, preempted_count),
};

static const struct reg_handler handlers[] = {
    {SL_MSG_RESERVE, reserve},
};

const struct reg_part reg_reserve_part = {
    .name = "reserve",
    REG_STATE(scratch, reg_scratch),
    REG_METRICS(metrics),
    REG_HANDLERS(handlers),
    .settings = reserve_settings,
    .init = reserve_init,
    .fini = reserve_fini,
};
