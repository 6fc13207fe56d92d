/* actors/registrar/records/claims.c - tables of what is being written: claims by key and by
 * generation, lists by owner, writer and group, grants ahead of use, and the generations committed
 * lately. */
#include "actors/registrar/records/claims.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/records/bundles.h"
#include "actors/registrar/records/fences.h"

#include <stdlib.h>
#include <string.h>

/* Remembered generations: a COMMIT that is sent again after its answer was lost finds its own. A
 * power of two; room for several of the largest batches, which take a few generations an object. */
#define RECENT_COUNT 524288u

static uint32_t heads_for(uint32_t count)
{
    uint32_t heads = 1024;
    while (heads < count) {
        heads *= 2;
    }
    return heads;
}

static sl_err claims_init(struct registrar *self, struct sl_error *why)
{
    uint32_t max = self->set.reservations_max;
    uint32_t heads = heads_for(max);
    self->claims->all = calloc(max, sizeof(*self->claims->all));
    self->claims->key_heads = malloc(heads * sizeof(*self->claims->key_heads));
    self->claims->generation_heads = malloc(heads * sizeof(*self->claims->generation_heads));
    self->claims->recent = calloc(RECENT_COUNT, sizeof(*self->claims->recent));
    if (self->claims->all == NULL || self->claims->key_heads == NULL ||
        self->claims->generation_heads == NULL || self->claims->recent == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "table of %u reservations", max);
    }
    for (uint32_t i = 0; i < heads; i++) {
        self->claims->key_heads[i] = REG_NONE;
        self->claims->generation_heads[i] = REG_NONE;
    }
    self->claims->heads_mask = heads - 1;
    self->claims->free = REG_NONE;
    return sl_heap_init(&self->claims->timers, 2 * max, why);
}

static void claims_fini(struct registrar *self)
{
    free(self->claims->all);
    free(self->claims->key_heads);
    free(self->claims->generation_heads);
    free(self->claims->recent);
    sl_heap_fini(&self->claims->timers);
}

/* Generations are consecutive: their low bits spread well as they are. */
static uint32_t *generation_head(const struct registrar *self, uint64_t generation)
{
    return &self->claims
                ->generation_heads[(generation ^ generation >> 32) & self->claims->heads_mask];
}

static uint32_t *key_head(const struct registrar *self, uint64_t hash)
{
    return &self->claims->key_heads[hash & self->claims->heads_mask];
}

uint32_t reg_claim_add(struct registrar *self, const struct reg_claim *claim)
{
    uint32_t slot = self->claims->free;
    if (slot != REG_NONE) {
        self->claims->free = self->claims->all[slot].key_next;
    } else if (self->claims->high < self->set.reservations_max) {
        slot = self->claims->high++;
    } else {
        return REG_NONE;
    }
    struct reg_claim *at = &self->claims->all[slot];
    *at = *claim;
    for (uint32_t i = 0; i < REG_LIST_COUNT; i++) {
        at->node[i] = (struct reg_node){REG_NONE, REG_NONE};
    }
    at->key_next = REG_NONE;
    if (!at->ahead && (at->state == REG_CLAIM_RESERVED || at->state == REG_CLAIM_PROMOTING)) {
        uint32_t *head = key_head(self, at->hash);
        at->key_next = *head;
        *head = slot;
    }
    uint32_t *head = generation_head(self, at->extent.generation);
    at->generation_next = *head;
    *head = slot;
    self->claims->count++;
    reg_bundle_join(self, at->bundle, at->ref, true);
    return slot;
}

void reg_claim_unkey(struct registrar *self, uint32_t slot)
{
    if (self->claims->all[slot].bundle != 0) {
        reg_bundle_unreserve(self, self->claims->all[slot].ref);
    }
    uint32_t *at = key_head(self, self->claims->all[slot].hash);
    while (*at != REG_NONE && *at != slot) {
        at = &self->claims->all[*at].key_next;
    }
    if (*at == slot) {
        *at = self->claims->all[slot].key_next;
        self->claims->all[slot].key_next = REG_NONE;
    }
}

void reg_claim_remove(struct registrar *self, uint32_t slot)
{
    struct reg_claim *claim = &self->claims->all[slot];
    SL_ASSERT(claim->state != REG_CLAIM_FREE);
    reg_claim_unkey(self, slot);
    uint32_t *at = generation_head(self, claim->extent.generation);
    while (*at != slot) {
        SL_ASSERT(*at != REG_NONE);
        at = &self->claims->all[*at].generation_next;
    }
    *at = claim->generation_next;
    sl_heap_clear(&self->claims->timers, slot);
    claim->state = REG_CLAIM_FREE;
    claim->key_next = self->claims->free;
    self->claims->free = slot;
    self->claims->count--;
}

uint32_t reg_claim_by_key(const struct registrar *self, uint64_t hash, const char *key,
                          uint64_t length)
{
    for (uint32_t slot = *key_head(self, hash); slot != REG_NONE;
         slot = self->claims->all[slot].key_next) {
        if (self->claims->all[slot].hash == hash &&
            self->claims->all[slot].state == REG_CLAIM_RESERVED) {
            struct sl_entry entry;
            sl_index_read(self->index, self->claims->all[slot].ref, &entry);
            if (entry.key_length == length && memcmp(entry.key, key, length) == 0) {
                return slot;
            }
        }
    }
    return REG_NONE;
}

uint32_t reg_claim_by_generation(const struct registrar *self, uint64_t generation)
{
    uint32_t slot = *generation_head(self, generation);
    while (slot != REG_NONE && self->claims->all[slot].extent.generation != generation) {
        slot = self->claims->all[slot].generation_next;
    }
    return slot;
}

void reg_list_add(struct registrar *self, enum reg_list list, uint32_t *head, uint32_t slot)
{
    struct reg_node *node = &self->claims->all[slot].node[list];
    node->previous = REG_NONE;
    node->next = *head;
    if (*head != REG_NONE) {
        self->claims->all[*head].node[list].previous = slot;
    }
    *head = slot;
}

void reg_list_remove(struct registrar *self, enum reg_list list, uint32_t *head, uint32_t slot)
{
    struct reg_node *node = &self->claims->all[slot].node[list];
    if (node->previous != REG_NONE) {
        self->claims->all[node->previous].node[list].next = node->next;
    } else if (*head == slot) {
        *head = node->next;
    } else {
        return; /* in no list */
    }
    if (node->next != REG_NONE) {
        self->claims->all[node->next].node[list].previous = node->previous;
    }
    *node = (struct reg_node){REG_NONE, REG_NONE};
}

/* ---- grants ahead of use ---- */

static void ahead_count(struct registrar *self, const struct reg_claim *claim, bool more)
{
    uint64_t space = sl_extent_space(claim->extent.length_bytes);
    self->claims->ahead_count =
        more ? self->claims->ahead_count + 1 : self->claims->ahead_count - 1;
    self->claims->ahead_bytes =
        more ? self->claims->ahead_bytes + space : self->claims->ahead_bytes - space;
    if (claim->owner_peer != REG_NONE) {
        struct reg_peer *peer = &self->peers->all[claim->owner_peer];
        peer->ahead_count = more ? peer->ahead_count + 1 : peer->ahead_count - 1;
        peer->ahead_bytes = more ? peer->ahead_bytes + space : peer->ahead_bytes - space;
    }
}

void reg_ahead_came(struct registrar *self, uint32_t slot)
{
    ahead_count(self, &self->claims->all[slot], true);
}

void reg_ahead_left(struct registrar *self, uint32_t slot)
{
    ahead_count(self, &self->claims->all[slot], false);
}

/* ---- generations committed lately ---- */

/* The place is the generation's low bits: generations rise by a few for every object, so what comes
 * this many later replaces it, and a commit costs one store near the last one. */
void reg_recent_add(struct registrar *self, uint64_t generation)
{
    self->claims->recent[generation & (RECENT_COUNT - 1)] = generation;
}

bool reg_recent_has(const struct registrar *self, uint64_t generation)
{
    return generation != 0 && self->claims->recent[generation & (RECENT_COUNT - 1)] == generation;
}

/* ---- the part ---- */

static void claims_settings(struct registrar *self)
{
    self->claims->io_grace_ns = sl_config_u64(self->env->config, SL_SET_io_grace);
}

static uint64_t claims_next(const struct registrar *self)
{
    return sl_heap_next_ns(&self->claims->timers);
}

/* What it was writing nobody waits for any more; it may still be written to. */
static void claims_left(struct registrar *self, uint32_t peer)
{
    while (self->peers->all[peer].owned != REG_NONE) {
        reg_claim_quarantine(self, self->peers->all[peer].owned);
    }
}

static void claims_gauges(struct registrar *self)
{
    struct sl_metrics *page = self->env->metrics;
    sl_metric_set(page, self->claims->metric.claim_count, self->claims->count);
    sl_metric_set(page, self->claims->metric.quarantined_bytes, self->claims->quarantined_bytes);
}

static const struct sl_metric_row metrics[] = {
    REG_METRIC(reg_claims, claim_count),   REG_METRIC(reg_claims, quarantined_bytes),
    REG_METRIC(reg_claims, fence_count),   REG_METRIC(reg_claims, killed_count),
    REG_METRIC(reg_claims, expired_count),
};

const struct reg_part reg_claims_part = {
    .name = "claims",
    REG_STATE(claims, reg_claims),
    REG_METRICS(metrics),
    .settings = claims_settings,
    .init = claims_init,
    .fini = claims_fini,
    .next_ns = claims_next,
    .left = {REG_LEFT_CLAIMS, claims_left},
    .gauges = claims_gauges,
};
