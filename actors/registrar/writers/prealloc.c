/* actors/registrar/writers/prealloc.c - extents granted to a client ahead of need. A COMMIT names
 * their keys, which makes values of them, and asks for more extents: a put then costs one round
 * trip.
 *
 * A grant in advance is a claim like any other (a RESERVED record with owner, writer and deadline,
 * written before the client learns of it), but its record has a key that no object can have. The
 * client pins the extent's generation before it writes (sl_pins_take_grant). So a grant that has
 * expired is revoked without asking the client, as a draft is: the record becomes QUARANTINED,
 * fence (seq_cst), and the extent is free if no pin names it (reg_held_free_unpinned). Otherwise it
 * stays until the owner commits (too late), aborts, unpins it or dies. */
#include "actors/registrar/writers/prealloc.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/reclaim.h"
#include "actors/registrar/disk/remove.h"
#include "actors/registrar/memory/contributions.h"
#include "actors/registrar/memory/evict.h"
#include "actors/registrar/memory/populate.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/records/claims.h"
#include "actors/registrar/records/fences.h"
#include "actors/registrar/records/units.h"
#include "actors/registrar/writers/reservations.h"
#include "actors/registrar/writers/reserve.h"

#include <stdlib.h>

/* Shares of memory that all clients together, and one client, may hold in advance. */
#define AHEAD_MEMORY_SHARE     8u
#define AHEAD_CLIENT_SHARE     16u
#define AHEAD_CLIENT_BYTES_MAX (64 * SL_MIB)
/* Likewise of the table of reservations. */
#define AHEAD_TABLE_SHARE 2u

/* Keys of objects contain no NUL. */
static const char ahead_key[] = {'\0', 'a', 'h', 'e', 'a', 'd'};

bool reg_prealloc_is(const struct sl_entry *entry)
{
    return entry->key_length > 0 && entry->key[0] == '\0';
}

/* ---- granting ---- */

static sl_err ahead_grant(struct registrar *self, uint32_t peer, uint64_t length_bytes,
                          struct sl_item_grant *grant)
{
    uint64_t deadline_ns = sl_deadline_ns(self->env->now_ns, self->set.reservation_ttl_ns);
    struct reg_claim claim = {
        .state = REG_CLAIM_RESERVED,
        .ahead = true,
        .pinned = true,
        .extent = {.length_bytes = length_bytes},
        .owner = self->peers->all[peer].proc,
        .owner_peer = peer,
        .writer_peer = peer,
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
        .writer = claim.owner,
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
    reg_prealloc_count(self, slot, true);
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

/* The number of extents that the limits allow. */
static uint64_t ahead_allowed(const struct registrar *self, uint32_t peer, uint64_t count,
                              uint64_t space)
{
    const struct reg_peer *at = &self->peers->all[peer];
    /* Requests that wait for space come first. */
    if (self->draining || self->space.waiting_count > 0) {
        return 0;
    }
    uint64_t memory = reg_ceiling_bytes(self);
    uint64_t client_max = SL_MIN(memory / AHEAD_CLIENT_SHARE, AHEAD_CLIENT_BYTES_MAX);
    uint64_t bytes = SL_MIN(left_of(client_max, at->ahead_bytes),
                            left_of(memory / AHEAD_MEMORY_SHARE, self->claims->ahead_bytes));
    uint64_t slots =
        SL_MIN(left_of(self->ahead->grants_max, at->ahead_count),
               left_of(self->set.reservations_max / AHEAD_TABLE_SHARE, self->claims->ahead_count));
    slots = SL_MIN(slots, left_of(self->set.reservations_max, self->claims->count));
    return SL_MIN(SL_MIN(count, slots), bytes / space);
}

/* The number of extents for which there is room. No request waits for them, so unpopulated memory
 * is allocated for the next one only. */
static uint64_t prealloc_room(struct registrar *self, uint64_t count, uint64_t space)
{
    uint64_t free_bytes = reg_free_bytes(self);
    if (free_bytes < count * space && reg_populate_pending(self)) {
        (void)(free_bytes < space && reg_populate_now(self, space - free_bytes));
    } else if (count > 0) { /* one scan of the pins for all victims */
        (void)reg_make_room(self, count * space);
    }
    return SL_MIN(count, reg_free_bytes(self) / space);
}

/* Grants extents only to clients with pins, which show where a client writes. */
static uint32_t ahead_grants(struct registrar *self, uint32_t peer, uint64_t count,
                             uint64_t length_bytes)
{
    const struct reg_peer *owner = &self->peers->all[peer];
    uint32_t granted = 0;
    if (length_bytes == 0 || length_bytes > self->set.memory_chunk || !owner->client ||
        owner->pins == NULL) {
        return 0;
    }
    uint64_t space = sl_extent_space(length_bytes);
    uint64_t allowed = ahead_allowed(self, peer, count, space);
    for (uint32_t i = 0; i < REG_INSERT_ROUNDS && allowed > 0 && sl_index_nearly_full(self->index);
         i++) {
        if (!reg_make_index_room(self)) {
            return 0;
        }
    }
    allowed = prealloc_room(self, allowed, space);
    while (granted < allowed &&
           ahead_grant(self, peer, length_bytes, &self->scratch->grants[granted]) == SL_OK) {
        granted++;
    }
    return granted;
}

/* ---- use ---- */

/* The obstacle to a new value under this key; SL_OK: none. */
static sl_err key_free(struct registrar *self, const struct sl_text *key)
{
    struct sl_entry there;
    bool some = sl_index_find_any(self->index, key->at, (uint32_t)key->length, &there) == SL_OK;
    bool visible = some && reg_unit_visible(self, &there);
    if (!some || reg_half_block_drop(self, reg_unit_of(&there)) ||
        (visible && reg_reclaim_drops(self, reg_unit_of(&there)))) {
        uint32_t slot =
            reg_claim_by_key(self, reg_hash(key->at, key->length), key->at, key->length);
        return slot == REG_NONE ? SL_OK : SL_ERR_BUSY;
    }
    if (there.kind == SL_RECORD_GROUP) {
        return SL_ERR_INVALID;
    }
    return visible ? SL_ERR_EXISTS : SL_ERR_BUSY;
}

/* The value's record counts before the grant's is freed: a restart in between frees the grant's. */
static sl_err use_record(struct registrar *self, uint32_t slot, const struct sl_item_claim *item,
                         const struct sl_item_named *named)
{
    struct reg_claim *claim = &self->claims->all[slot];
    const struct sl_text *key = &named->key;
    struct sl_entry object = {
        .extent = claim->extent,
        .digest = {.low = item->digest_low, .high = item->digest_high},
        .owner = claim->owner,
        .writer = claim->owner,
        .contribution = reg_charge_of(self, claim->ref),
        .key = key->at,
        .key_length = (uint16_t)key->length,
    };
    sl_ref ref = 0;
    object.extent.length_bytes = named->length_bytes;
    sl_err err = sl_index_insert(self->index, &object, &ref, NULL);
    for (uint32_t i = 0;
         err == SL_ERR_NO_SPACE && i < REG_INSERT_ROUNDS && reg_make_index_room(self); i++) {
        err = sl_index_insert(self->index, &object, &ref, NULL);
    }
    if (err != SL_OK) {
        return err;
    }
    uint64_t hash = reg_hash(key->at, key->length);
    sl_index_set_kind(self->index, claim->ref, SL_RECORD_FREE);
    claim->hash = hash;
    reg_prealloc_count(self, slot, false);
    reg_claim_committed(self, slot);
    reg_record_committed(self, ref, hash, REG_NONE, 0);
    return SL_OK;
}

sl_err reg_prealloc_commit(struct registrar *self, const struct sl_msg *msg, uint32_t slot,
                           uint32_t index)
{
    const struct sl_body_commit *body = &msg->body.commit;
    if (index >= body->named.count) {
        return SL_ERR_INVALID;
    }
    if (reg_charge_check(self, self->claims->all[slot].ref) != SL_OK) { /* its contribution ended */
        reg_claim_release(self, slot);
        return SL_ERR_STALE;
    }
    const struct sl_item_named *named = &body->named.at[index];
    if (sl_extent_space(named->length_bytes) !=
        sl_extent_space(self->claims->all[slot].extent.length_bytes)) {
        return SL_ERR_INVALID;
    }
    sl_err err = key_free(self, &named->key);
    return err == SL_OK ? use_record(self, slot, &body->items.at[index], named) : err;
}

/* ---- grants with a COMMIT's reply ---- */

uint64_t reg_prealloc_grant(struct registrar *self, const struct sl_msg *msg, uint32_t peer)
{
    const struct sl_body_commit *body = &msg->body.commit;
    if (body->ahead_count == 0) {
        return 0;
    }
    uint64_t oldest = 0; /* of the values just committed: these must not be evicted for grants */
    for (uint64_t i = 0; i < body->items.count; i++) {
        uint64_t generation = body->items.at[i].generation;
        oldest =
            self->codes[i] == SL_OK && (oldest == 0 || generation < oldest) ? generation : oldest;
    }
    reg_protect_recent(self, oldest);
    uint64_t granted = ahead_grants(self, peer, body->ahead_count, body->ahead_bytes);
    reg_protect_none(self);
    sl_metric_add(self->env->metrics, self->ahead->metric.ahead_count, granted);
    return granted;
}

/* ---- revoking ---- */

bool reg_prealloc_revoke_all(struct registrar *self)
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
    reg_held_free_unpinned(self);
    return reg_free_bytes(self) > before || reg_used_bytes(self) < used_before;
}

/* ---- the part ---- */

static void ahead_settings(struct registrar *self)
{
    self->ahead->grants_max = (uint32_t)sl_config_u64(self->env->config, SL_SET_prealloc_max);
}

static void ahead_gauges(struct registrar *self)
{
    struct sl_metrics *page = self->env->metrics;
    sl_metric_set(page, self->ahead->metric.ahead_bytes, self->claims->ahead_bytes);
}

static const struct sl_metric_row metrics[] = {
    REG_METRIC(reg_prealloc, ahead_count),
    REG_METRIC(reg_prealloc, ahead_bytes),
};

const struct reg_part reg_prealloc_part = {
    .name = "ahead",
    REG_STATE(ahead, reg_prealloc),
    REG_METRICS(metrics),
    .settings = ahead_settings,
    .gauges = ahead_gauges,
};
