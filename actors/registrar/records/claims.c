/* actors/registrar/records/claims.c - tables of claims by key and generation; lists by owner,
 * writer and group; counts of grants in advance. */
#include "actors/registrar/records/claims.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/records/bundles.h"
#include "actors/registrar/records/fences.h"

#include <stdlib.h>
#include <string.h>

/* First size of the tables' heads. They grow with the open claims, of which there are few; heads
 * for the maximum would only waste cache. */
#define HEADS_FIRST 512u

static sl_err claims_init(struct registrar *self, struct sl_error *why)
{
    uint32_t max = self->set.reservations_max;
    self->claims->all = calloc(max, sizeof(*self->claims->all));
    if (self->claims->all == NULL || !sl_table_reserve(&self->claims->by_key, HEADS_FIRST) ||
        !sl_table_reserve(&self->claims->by_generation, HEADS_FIRST)) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "table of %u reservations", max);
    }
    self->claims->free = REG_NONE;
    return sl_heap_init(&self->claims->timers, 2 * max, why);
}

static void claims_fini(struct registrar *self)
{
    free(self->claims->all);
    sl_table_fini(&self->claims->by_key);
    sl_table_fini(&self->claims->by_generation);
    sl_heap_fini(&self->claims->timers);
}

/* Without memory the tables stay as they are and get slower. */
static void heads_fit(struct sl_table *table)
{
    if (table->count >= table->head_count) {
        (void)sl_table_reserve(table, table->count * 2);
    }
}

uint32_t reg_claim_add(struct registrar *self, const struct reg_claim *claim)
{
    uint32_t slot = self->claims->free;
    if (slot != REG_NONE) {
        self->claims->free = self->claims->all[slot].node[REG_LIST_PEER].next;
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
    if (!at->ahead && (at->state == REG_CLAIM_RESERVED || at->state == REG_CLAIM_PROMOTING)) {
        heads_fit(&self->claims->by_key);
        sl_table_add(&self->claims->by_key, &at->by_key, at->hash);
    }
    /* Generations are consecutive: their low bits spread well as they are. */
    heads_fit(&self->claims->by_generation);
    sl_table_add(&self->claims->by_generation, &at->by_generation, at->extent.generation);
    self->claims->count++;
    reg_bundle_join(self, at->bundle, at->ref, true);
    return slot;
}

void reg_claim_unkey(struct registrar *self, uint32_t slot)
{
    if (self->claims->all[slot].bundle != 0) {
        reg_bundle_unreserve(self, self->claims->all[slot].ref);
    }
    sl_table_remove(&self->claims->by_key, &self->claims->all[slot].by_key);
}

void reg_claim_remove(struct registrar *self, uint32_t slot)
{
    struct reg_claim *claim = &self->claims->all[slot];
    SL_ASSERT(claim->state != REG_CLAIM_FREE);
    reg_claim_unkey(self, slot);
    sl_table_remove(&self->claims->by_generation, &claim->by_generation);
    sl_heap_clear(&self->claims->timers, slot);
    claim->state = REG_CLAIM_FREE;
    claim->node[REG_LIST_PEER].next = self->claims->free;
    self->claims->free = slot;
    self->claims->count--;
}

uint32_t reg_claim_by_key(const struct registrar *self, uint64_t hash, const char *key,
                          uint64_t length)
{
    const struct reg_claim *claim =
        SL_TABLE_FIRST(&self->claims->by_key, hash, struct reg_claim, by_key);
    for (; claim != NULL; claim = SL_TABLE_NEXT(claim, struct reg_claim, by_key)) {
        if (claim->state == REG_CLAIM_RESERVED) {
            struct sl_entry entry;
            sl_index_read(self->index, claim->ref, &entry);
            if (entry.key_length == length && memcmp(entry.key, key, length) == 0) {
                return (uint32_t)(claim - self->claims->all);
            }
        }
    }
    return REG_NONE;
}

uint32_t reg_claim_by_generation(const struct registrar *self, uint64_t generation)
{
    const struct reg_claim *claim =
        SL_TABLE_FIRST(&self->claims->by_generation, generation, struct reg_claim, by_generation);
    return claim == NULL ? REG_NONE : (uint32_t)(claim - self->claims->all);
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
        return; /* it is in no list */
    }
    if (node->next != REG_NONE) {
        self->claims->all[node->next].node[list].previous = node->previous;
    }
    *node = (struct reg_node){REG_NONE, REG_NONE};
}

/* ---- grants in advance ---- */

void reg_prealloc_count(struct registrar *self, uint32_t slot, bool more)
{
    const struct reg_claim *claim = &self->claims->all[slot];
    uint64_t count = more ? 1 : UINT64_MAX; /* -1, modulo 2^64 */
    uint64_t bytes = count * sl_extent_space(claim->extent.length_bytes);
    self->claims->ahead_count += count;
    self->claims->ahead_bytes += bytes;
    if (claim->owner_peer != REG_NONE) {
        self->peers->all[claim->owner_peer].ahead_count += count;
        self->peers->all[claim->owner_peer].ahead_bytes += bytes;
    }
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

/* The peer has left: its reservations end, though it may still write to their extents. */
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
    .left = claims_left,
    .gauges = claims_gauges,
};
