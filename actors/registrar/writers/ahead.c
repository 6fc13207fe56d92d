/* actors/registrar/writers/ahead.c - extents granted ahead of use to a client or a coordinator, and
 * PUBLISH, which makes values in them visible: a put then costs one round trip.
 *
 * A grant ahead is a claim like any other (record RESERVED with owner, writer and deadline, written
 * before the client hears of it), but for no key: its record has one that no object can have. The
 * client pins the extent's generation before it writes there (sl_pins_take_grant). So a grant whose
 * deadline has passed is taken back without asking, as a draft is: the record becomes QUARANTINED,
 * fence (seq_cst), and what no pin names is free (reg_held_settle); what one names stays until the
 * owner publishes (too late), aborts, lets go of the pin or dies.
 *
 * A coordinator writes to nothing itself, and so pins nothing: its grants name the swapper that
 * will. They end as its other reservations do, by a FENCE of that swapper. What it publishes are
 * whole blocks: the group's record and those of all its parts are made in one go. */
#include "actors/registrar/writers/ahead.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/memory/contributions.h"
#include "actors/registrar/memory/evict.h"
#include "actors/registrar/memory/populate.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/records/claims.h"
#include "actors/registrar/records/fences.h"
#include "actors/registrar/records/groups.h"
#include "actors/registrar/records/units.h"
#include "actors/registrar/writers/reservations.h"
#include "actors/registrar/writers/reserve.h"

#include <stdlib.h>

/* All clients together hold at most this share of memory ahead of use. */
#define AHEAD_MEMORY_SHARE 8u
/* And this share of the table of reservations. */
#define AHEAD_TABLE_SHARE    2u
#define AHEAD_INDEX_ROUNDS   64u
#define AHEAD_BYTES_STANDARD (64 * SL_MIB)

/* No key of an object has a NUL. */
static const char ahead_key[] = {'\0', 'a', 'h', 'e', 'a', 'd'};

bool reg_ahead_is(const struct sl_entry *entry)
{
    return entry->key_length > 0 && entry->key[0] == '\0';
}

static uint64_t ahead_bytes_standard(uint64_t memory_bytes)
{
    return SL_MIN(memory_bytes / 64, AHEAD_BYTES_STANDARD);
}

/* ---- granting ---- */

/* Who may have grants ahead, and who writes to them. */
struct ahead_wish {
    uint32_t peer, writer;
    uint64_t length_bytes;
};

static sl_err ahead_grant(struct registrar *self, const struct ahead_wish *wish,
                          struct sl_item_grant *grant)
{
    uint32_t peer = wish->peer;
    uint64_t length_bytes = wish->length_bytes;
    uint64_t deadline_ns = sl_deadline_ns(self->env->now_ns, self->set.reservation_ttl_ns);
    struct reg_claim claim = {
        .state = REG_CLAIM_RESERVED,
        .ahead = true,
        .pinned = true,
        .extent = {.length_bytes = length_bytes},
        .owner = self->peers->all[peer].proc,
        .owner_peer = peer,
        .writer_peer = wish->writer,
        .group = REG_NONE,
    };
    uint32_t charged = 0;
    sl_err err = reg_take_charged(self, NULL, length_bytes, &claim.extent.offset_bytes, &charged);
    if (err != SL_OK) {
        return err;
    }
    claim.extent.generation = sl_arena_next_generation(self->arena);
    struct sl_entry record = {
        .kind = SL_RECORD_RESERVED,
        .extent = claim.extent,
        .owner = claim.owner,
        .writer = self->peers->all[wish->writer].proc,
        .deadline_ns = deadline_ns,
        .contribution = charged,
        .key = ahead_key,
        .key_length = sizeof(ahead_key),
    };
    err = sl_index_claim(self->index, &record, &claim.ref, NULL);
    if (err != SL_OK) {
        reg_give_charged(self, claim.extent.offset_bytes, length_bytes, charged);
        return err;
    }
    uint32_t slot = reg_claim_add(self, &claim);
    SL_ASSERT(slot != REG_NONE); /* counted before */
    reg_list_add(self, REG_LIST_PEER, &self->peers->all[peer].owned, slot);
    sl_heap_set(&self->claims->timers, slot, deadline_ns);
    reg_ahead_came(self, slot);
    *grant = (struct sl_item_grant){.code = SL_OK,
                                    .ref = claim.ref,
                                    .generation = claim.extent.generation,
                                    .arena = claim.extent.arena,
                                    .offset_bytes = claim.extent.offset_bytes};
    return SL_OK;
}

static uint64_t left_of(uint64_t bound, uint64_t used)
{
    return bound - SL_MIN(bound, used);
}

/* How many of those asked for the bounds allow. */
static uint64_t ahead_allowed(const struct registrar *self, uint32_t peer, uint64_t count,
                              uint64_t space)
{
    const struct reg_peer *at = &self->peers->all[peer];
    if (self->draining || self->space.parked_count > 0) { /* who waits for space comes first */
        return 0;
    }
    uint64_t bytes =
        SL_MIN(left_of(self->ahead->grants_bytes_max, at->ahead_bytes),
               left_of(reg_ceiling_bytes(self) / AHEAD_MEMORY_SHARE, self->claims->ahead_bytes));
    uint64_t slots =
        SL_MIN(left_of(self->ahead->grants_max, at->ahead_count),
               left_of(self->set.reservations_max / AHEAD_TABLE_SHARE, self->claims->ahead_count));
    slots = SL_MIN(slots, left_of(self->set.reservations_max, self->claims->count));
    return SL_MIN(SL_MIN(count, slots), bytes / space);
}

/* As many of these as there is room for. Nobody waits for them, so memory that is not there yet is
 * taken for the next of them alone. */
static uint64_t ahead_room(struct registrar *self, uint64_t count, uint64_t space)
{
    uint64_t free_bytes = reg_free_bytes(self);
    if (free_bytes < count * space && reg_populate_pending(self)) {
        (void)(free_bytes < space && reg_populate_hurry(self, space - free_bytes));
    } else if (count > 0) { /* one scan of the pins for all that has to go */
        (void)reg_make_room(self, count * space);
    }
    return SL_MIN(count, reg_free_bytes(self) / space);
}

/* Whether somebody can tell what of it is being written: a client that writes itself has pins, an
 * actor answers fences. No client may name an actor: one that refuses its fence is killed. */
static bool ahead_is_writer(const struct registrar *self, const struct ahead_wish *wish)
{
    if (wish->writer == REG_NONE) {
        return false;
    }
    const struct reg_peer *owner = &self->peers->all[wish->peer];
    const struct reg_peer *writer = &self->peers->all[wish->writer];
    return wish->writer == wish->peer ? writer->client && writer->pins != NULL
                                      : !owner->client && !writer->client && !writer->tierer;
}

static uint32_t ahead_grants(struct registrar *self, const struct ahead_wish *wish, uint64_t count)
{
    uint32_t granted = 0;
    if (wish->length_bytes == 0 || wish->length_bytes > self->set.memory_chunk ||
        !ahead_is_writer(self, wish)) {
        return 0;
    }
    uint64_t space = sl_extent_space(wish->length_bytes);
    uint64_t allowed = ahead_allowed(self, wish->peer, count, space);
    for (uint32_t i = 0; i < AHEAD_INDEX_ROUNDS && allowed > 0 && sl_index_nearly_full(self->index);
         i++) {
        if (!reg_make_index_room(self)) {
            return 0;
        }
    }
    allowed = ahead_room(self, allowed, space);
    while (granted < allowed && ahead_grant(self, wish, &self->scratch->grants[granted]) == SL_OK) {
        granted++;
    }
    return granted;
}

/* ---- publishing ---- */

/* What stands in the way of a new object under this key: SL_OK nothing. */
static sl_err key_free(struct registrar *self, const struct sl_text *key)
{
    struct sl_entry there;
    struct sl_group_info info = {.state = SL_GROUP_COMMITTED};
    if (sl_index_find_any(self->index, key->at, (uint32_t)key->length, &there) == SL_OK) {
        if (there.kind != SL_RECORD_COMMITTED) {
            return SL_ERR_INVALID; /* a block has this key */
        }
        if (there.group != 0) {
            sl_index_group_info(self->index, there.group, &info);
        }
        return info.state == SL_GROUP_COMMITTED ? SL_ERR_EXISTS : SL_ERR_BUSY;
    }
    bool claimed =
        reg_claim_by_key(self, reg_hash(key->at, key->length), key->at, key->length) != REG_NONE;
    return claimed ? SL_ERR_BUSY : SL_OK;
}

/* The value's record counts before the grant's is gone: a restart in between frees the latter.
 * group: 0, or the record of the block that it is a part of. */
static sl_err ahead_publish(struct registrar *self, uint32_t slot, sl_ref group,
                            const struct sl_item_publication *item, sl_ref *out)
{
    struct reg_claim *claim = &self->claims->all[slot];
    struct sl_entry object = {
        .extent = claim->extent,
        .digest = {.low = item->digest_low, .high = item->digest_high},
        .owner = claim->owner,
        .writer = claim->owner,
        .group = group,
        .part_index = (uint16_t)item->part_index,
        .key = item->key.at,
        .key_length = (uint16_t)item->key.length,
    };
    sl_ref ref = 0;
    object.extent.length_bytes = item->length_bytes;
    object.contribution = reg_charge_of(self, claim->ref);
    sl_err err = sl_index_insert(self->index, &object, &ref, NULL);
    for (uint32_t i = 0;
         err == SL_ERR_NO_SPACE && i < AHEAD_INDEX_ROUNDS && reg_make_index_room(self); i++) {
        err = sl_index_insert(self->index, &object, &ref, NULL);
    }
    if (err != SL_OK) {
        return err;
    }
    sl_index_set_kind(self->index, claim->ref, SL_RECORD_FREE);
    sl_settled_commit(self->settled, claim->extent.generation,
                      reg_hash(item->key.at, item->key.length));
    reg_ahead_left(self, slot);
    if (claim->owner_peer != REG_NONE) {
        reg_list_remove(self, REG_LIST_PEER, &self->peers->all[claim->owner_peer].owned, slot);
    }
    reg_claim_remove(self, slot);
    *out = ref;
    return SL_OK;
}

/* Whether the grant is there, is the sender's, and is of this size. SL_OK with *slot REG_NONE: the
 * value was published before. */
static sl_err grant_find(struct registrar *self, uint32_t peer,
                         const struct sl_item_publication *item, uint32_t *slot)
{
    *slot = reg_claim_by_generation(self, item->generation);
    if (*slot == REG_NONE) {
        return sl_settled_committed(self->settled, item->generation, NULL) ? SL_OK : SL_ERR_STALE;
    }
    const struct reg_claim *claim = &self->claims->all[*slot];
    if (claim->ref != item->ref) {
        return SL_ERR_STALE;
    }
    if (!claim->ahead || !sl_proc_id_equal(claim->owner, self->peers->all[peer].proc)) {
        return SL_ERR_PERMISSION;
    }
    if (claim->state != REG_CLAIM_RESERVED) {
        if (claim->writer_peer == peer) {
            reg_claim_release(self, *slot); /* the writer itself says that it is done */
        }
        return SL_ERR_STALE;
    }
    if (reg_charge_settle(self, claim->ref) != SL_OK) { /* its contribution ended: another grant */
        reg_claim_release(self, *slot);
        return SL_ERR_STALE;
    }
    return sl_extent_space(item->length_bytes) == sl_extent_space(claim->extent.length_bytes)
               ? SL_OK
               : SL_ERR_INVALID;
}

static sl_err publish_one(struct registrar *self, uint32_t peer,
                          const struct sl_item_publication *item)
{
    uint32_t slot;
    sl_ref ref = 0;
    sl_err err = grant_find(self, peer, item, &slot);
    if (err != SL_OK || slot == REG_NONE) {
        return err;
    }
    err = key_free(self, &item->key);
    uint64_t hash = reg_hash(item->key.at, item->key.length);
    if (err == SL_OK && !reg_unit_is_admitted(self, hash, item->length_bytes)) {
        return SL_ERR_NO_SPACE;
    }
    err = err == SL_OK ? ahead_publish(self, slot, 0, item, &ref) : err;
    if (err == SL_OK) {
        reg_unit_committed(self, ref, hash, NULL);
    }
    return err;
}

/* ---- publishing blocks ---- */

struct block { /* of a PUBLISH */
    const struct sl_msg *msg;
    const struct sl_item_group *want;
    const struct sl_item_publication *items;
    uint32_t count, peer;
};

/* A block of which half came up in a scan of the disk, or was published by a registrar that died
 * over the very same request, gives way. What that used of the grants is gone with it. */
static void block_clear(struct registrar *self, const struct block *block)
{
    const struct sl_text *key = &block->want->key;
    struct sl_entry there;
    uint32_t slot = REG_NONE;
    if (sl_index_find_any(self->index, key->at, (uint32_t)key->length, &there) == SL_OK &&
        there.kind == SL_RECORD_GROUP) {
        slot = reg_group_slot(self, there.ref);
    }
    const struct reg_group *group = slot == REG_NONE ? NULL : &self->groups->all[slot];
    if (group != NULL &&
        (group->found || (group->op_id == block->msg->op_id &&
                          sl_proc_id_equal(group->owner, self->peers->all[block->peer].proc)))) {
        reg_group_abandon(self, slot, REG_GHOST_EXPIRED);
    }
}

/* What stands in the way of a new block under this key: SL_OK nothing. */
static sl_err block_free(struct registrar *self, const struct block *block)
{
    const struct sl_text *key = &block->want->key;
    struct sl_entry there;
    struct sl_group_info info;
    if (sl_index_find_any(self->index, key->at, (uint32_t)key->length, &there) != SL_OK) {
        return SL_OK;
    }
    if (there.kind != SL_RECORD_GROUP) {
        return SL_ERR_INVALID; /* an object has this key */
    }
    sl_index_group_info(self->index, there.ref, &info);
    return info.state == SL_GROUP_COMMITTED ? SL_ERR_EXISTS : SL_ERR_BUSY;
}

/* All grants stand, and no key is taken. *done: it was published before. */
static sl_err block_check(struct registrar *self, const struct block *block, bool *done)
{
    uint64_t parts[REG_PARTS_MAX / 64] = {0};
    uint32_t done_count = 0;
    if (block->count != block->want->part_count) {
        return SL_ERR_INVALID;
    }
    for (uint32_t i = 0; i < block->count; i++) {
        uint64_t part = block->items[i].part_index;
        if (part >= block->count || (parts[part / 64] >> (part % 64) & 1) != 0) {
            return SL_ERR_INVALID;
        }
        parts[part / 64] |= UINT64_C(1) << (part % 64);
        uint32_t slot = REG_NONE;
        sl_err err = grant_find(self, block->peer, &block->items[i], &slot);
        if (err != SL_OK) {
            return err;
        }
        done_count += slot == REG_NONE ? 1 : 0;
    }
    *done = done_count == block->count;
    if (done_count > 0) { /* some of its parts alone: they were published with another block */
        return *done ? SL_OK : SL_ERR_STALE;
    }
    sl_err err = block_free(self, block);
    for (uint32_t i = 0; err == SL_OK && i < block->count; i++) {
        const struct sl_text *key = &block->items[i].key;
        err = key_free(self, key);
        err = err == SL_ERR_EXISTS ? SL_ERR_INVALID : err; /* a part of no block, or of another */
        if (err == SL_OK && !reg_unit_is_admitted(self, reg_hash(key->at, key->length),
                                                  block->items[i].length_bytes)) {
            err = SL_ERR_NO_SPACE;
        }
    }
    return err;
}

static sl_err block_make(struct registrar *self, const struct block *block, uint32_t *group)
{
    uint64_t deadline_ns = sl_deadline_ns(self->env->now_ns, self->set.reservation_ttl_ns);
    struct sl_proc_id owner = self->peers->all[block->peer].proc;
    const struct sl_group_want make = {
        .key = {.at = block->want->key.at, .length = (uint32_t)block->want->key.length},
        .part_count = block->count,
        .deadline_ns = deadline_ns,
        .op_id = block->msg->op_id,
        .transient_ns = block->want->transient_ns,
        .owner = owner,
    };
    struct reg_group fresh = {.owner = owner, .op_id = block->msg->op_id, .seq = block->msg->seq};
    sl_err err = sl_index_group_create(self->index, &make, &fresh.ref, NULL);
    for (uint32_t i = 0;
         err == SL_ERR_NO_SPACE && i < AHEAD_INDEX_ROUNDS && reg_make_index_room(self); i++) {
        err = sl_index_group_create(self->index, &make, &fresh.ref, NULL);
    }
    if (err != SL_OK) {
        return err;
    }
    reg_unit_want(self, fresh.ref, block->want);
    *group = reg_group_add(self, &fresh, deadline_ns);
    if (*group == REG_NONE) {
        sl_index_group_drop(self->index, fresh.ref);
        sl_index_unlink(self->index, fresh.ref, SL_RECORD_FREE);
        return SL_ERR_LIMIT;
    }
    return SL_OK;
}

/* Two items may name one grant or one key: the second finds it used. */
static sl_err part_publish(struct registrar *self, const struct block *block, uint32_t index,
                           uint32_t group)
{
    const struct sl_item_publication *item = &block->items[index];
    uint32_t slot = REG_NONE;
    sl_ref part = 0;
    sl_err err = grant_find(self, block->peer, item, &slot);
    err = err == SL_OK && slot == REG_NONE ? SL_ERR_STALE : err;
    err = err == SL_OK ? key_free(self, &item->key) : err;
    sl_ref record = self->groups->all[group].ref;
    err = err == SL_OK ? ahead_publish(self, slot, record, item, &part) : err;
    if (err != SL_OK) {
        return err;
    }
    reg_group_mark(&self->groups->all[group], item->part_index, true);
    reg_unit_part_join(self, record, part);
    if (sl_index_group_fill(self->index, record, (uint32_t)item->part_index)) {
        reg_group_done(self, group);
    }
    return SL_OK;
}

/* One code for all parts. Nobody sees a part before the last one is there. */
static sl_err publish_block(struct registrar *self, const struct block *block)
{
    uint32_t group = REG_NONE;
    bool done = false;
    block_clear(self, block);
    sl_err err = block_check(self, block, &done);
    if (err != SL_OK || done) {
        return err;
    }
    err = block_make(self, block, &group);
    if (err != SL_OK) {
        return err;
    }
    for (uint32_t i = block->count; err == SL_OK && i > 0; i--) {
        err = part_publish(self, block, i - 1, group);
    }
    if (err != SL_OK) {
        reg_group_abandon(self, group, REG_GHOST_REFUSED);
    }
    return err;
}

/* Where the run begins that ends before `end`: adjacent items of one block, or of none. */
static uint64_t run_begin(const struct sl_body_publish *body, uint64_t end)
{
    uint64_t at = end - 1;
    while (at > 0 && body->items.at[at - 1].group == body->items.at[at].group) {
        at--;
    }
    return at;
}

static void publish_run(struct registrar *self, const struct sl_msg *msg, uint32_t peer,
                        uint64_t at, uint64_t end)
{
    const struct sl_body_publish *body = &msg->body.publish;
    uint64_t group = body->items.at[at].group;
    for (uint64_t i = at; group == 0 && i < end; i++) {
        self->codes[i] = (uint64_t)publish_one(self, peer, &body->items.at[i]);
    }
    if (group == 0) {
        return;
    }
    const struct block block = {.msg = msg,
                                .want = group <= body->groups.count ? &body->groups.at[group - 1]
                                                                    : NULL,
                                .items = &body->items.at[at],
                                .count = (uint32_t)(end - at),
                                .peer = peer};
    sl_err err = block.want != NULL ? publish_block(self, &block) : SL_ERR_INVALID;
    for (uint64_t i = at; i < end; i++) {
        self->codes[i] = (uint64_t)err;
    }
}

static void publish(struct registrar *self, const struct sl_msg *msg)
{
    const struct sl_body_publish *body = &msg->body.publish;
    uint32_t peer = reg_peer_asking(self, msg);
    uint64_t done = 0, stale = 0;
    if (peer == REG_NONE) {
        return;
    }
    uint64_t oldest = 0; /* of what is put here */
    /* The last block first: when memory runs short, heads of chains are worth more. */
    for (uint64_t end = body->items.count, at; end > 0; end = at) {
        at = run_begin(body, end);
        publish_run(self, msg, peer, at, end);
    }
    for (uint64_t i = 0; i < body->items.count; i++) {
        uint64_t generation = body->items.at[i].generation;
        sl_err code = (sl_err)self->codes[i];
        oldest = code == SL_OK && (oldest == 0 || generation < oldest) ? generation : oldest;
        done += code == SL_OK ? 1 : 0;
        stale += code == SL_ERR_STALE ? 1 : 0;
    }
    struct sl_msg reply = {.code = SL_OK};
    reply.body.publish_reply.codes =
        (struct sl_u64s){.at = self->codes, .count = body->items.count};
    reg_spare_young(self, oldest);
    const struct ahead_wish wish = {
        .peer = peer,
        .writer = body->ahead_writer.length == 0
                      ? peer
                      : reg_peer_find(self, body->ahead_writer.at, body->ahead_writer.length),
        .length_bytes = body->ahead_bytes};
    reply.body.publish_reply.ahead.count = ahead_grants(self, &wish, body->ahead_count);
    reg_spare_none(self);
    reply.body.publish_reply.ahead.at = self->scratch->grants;
    sl_metric_add(self->env->metrics, self->reservations->metric.commit_count, done);
    sl_metric_add(self->env->metrics, self->reservations->metric.stale_count, stale);
    sl_metric_add(self->env->metrics, self->ahead->metric.ahead_count,
                  reply.body.publish_reply.ahead.count);
    sl_trace_event(self->env->metrics, self->env->now_ns, msg->trace_id, "publish", msg->sender.at,
                   (uint32_t)done);
    sl_reply(self->env, msg, &reply);
}

/* ---- taking back ---- */

bool reg_ahead_revoke_all(struct registrar *self)
{
    uint64_t before = reg_free_bytes(self);
    uint64_t used_before = reg_used_bytes(self);
    for (uint32_t i = 0; self->claims->ahead_count > 0 && i < self->peers->high; i++) {
        uint32_t at = self->peers->all[i].used ? self->peers->all[i].owned : REG_NONE;
        while (at != REG_NONE) {
            uint32_t next = self->claims->all[at].node[REG_LIST_PEER].next;
            if (self->claims->all[at].ahead) {
                reg_claim_quarantine(self, at);
            }
            at = next;
        }
    }
    reg_held_settle(self);
    return reg_free_bytes(self) > before || reg_used_bytes(self) < used_before;
}

/* ---- the part ---- */

static void ahead_settings(struct registrar *self)
{
    const struct sl_config *config = self->env->config;
    self->ahead->grants_max = (uint32_t)sl_config_u64(config, SL_SET_grants_ahead_max);
    self->ahead->grants_bytes_max = sl_config_u64(config, SL_SET_grants_ahead_bytes_max);
    if (self->ahead->grants_bytes_max == 0) {
        self->ahead->grants_bytes_max = ahead_bytes_standard(self->set.memory);
    }
}

static void ahead_gauges(struct registrar *self)
{
    struct sl_metrics *page = self->env->metrics;
    sl_metric_set(page, self->ahead->metric.ahead_bytes, self->claims->ahead_bytes);
}

static const struct sl_metric_row metrics[] = {
    REG_METRIC(reg_ahead, ahead_count),
    REG_METRIC(reg_ahead, ahead_bytes),
};

static const struct reg_handler handlers[] = {
    {SL_MSG_PUBLISH, publish},
};

const struct reg_part reg_ahead_part = {
    .name = "ahead",
    REG_STATE(ahead, reg_ahead),
    REG_METRICS(metrics),
    REG_HANDLERS(handlers),
    .settings = ahead_settings,
    .gauges = ahead_gauges,
};
