/* actors/registrar/claims.c - tables of what is being written: claims by key and by generation,
 * lists by owner, writer and group, pending groups, and the generations committed lately. */
#include "actors/registrar/internal.h"

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

sl_err reg_claims_init(struct registrar *self, struct sl_error *why)
{
    uint32_t max = self->set.reservations_max;
    uint32_t heads = heads_for(max);
    self->claims = calloc(max, sizeof(*self->claims));
    self->groups = calloc(max, sizeof(*self->groups));
    self->group_free = calloc(max, sizeof(*self->group_free));
    self->key_heads = malloc(heads * sizeof(*self->key_heads));
    self->generation_heads = malloc(heads * sizeof(*self->generation_heads));
    self->recent = calloc(RECENT_COUNT, sizeof(*self->recent));
    if (self->claims == NULL || self->groups == NULL || self->group_free == NULL ||
        self->key_heads == NULL || self->generation_heads == NULL || self->recent == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "table of %u reservations", max);
    }
    for (uint32_t i = 0; i < heads; i++) {
        self->key_heads[i] = REG_NONE;
        self->generation_heads[i] = REG_NONE;
    }
    self->heads_mask = heads - 1;
    self->claim_free = REG_NONE;
    return reg_timers_init(&self->timers, 2 * max, why);
}

void reg_claims_fini(struct registrar *self)
{
    free(self->claims);
    free(self->groups);
    free(self->group_free);
    free(self->key_heads);
    free(self->generation_heads);
    free(self->recent);
    reg_timers_fini(&self->timers);
}

/* Generations are consecutive: their low bits spread well as they are. */
static uint32_t *generation_head(const struct registrar *self, uint64_t generation)
{
    return &self->generation_heads[(generation ^ generation >> 32) & self->heads_mask];
}

static uint32_t *key_head(const struct registrar *self, uint64_t hash)
{
    return &self->key_heads[hash & self->heads_mask];
}

uint32_t reg_claim_add(struct registrar *self, const struct reg_claim *claim)
{
    uint32_t slot = self->claim_free;
    if (slot != REG_NONE) {
        self->claim_free = self->claims[slot].key_next;
    } else if (self->claim_high < self->set.reservations_max) {
        slot = self->claim_high++;
    } else {
        return REG_NONE;
    }
    struct reg_claim *at = &self->claims[slot];
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
    self->claim_count++;
    reg_bundle_join(self, at->bundle, at->ref, true);
    return slot;
}

void reg_claim_unkey(struct registrar *self, uint32_t slot)
{
    if (self->claims[slot].bundle != 0) {
        reg_bundle_unreserve(self, self->claims[slot].ref);
    }
    uint32_t *at = key_head(self, self->claims[slot].hash);
    while (*at != REG_NONE && *at != slot) {
        at = &self->claims[*at].key_next;
    }
    if (*at == slot) {
        *at = self->claims[slot].key_next;
        self->claims[slot].key_next = REG_NONE;
    }
}

void reg_claim_remove(struct registrar *self, uint32_t slot)
{
    struct reg_claim *claim = &self->claims[slot];
    SL_ASSERT(claim->state != REG_CLAIM_FREE);
    reg_claim_unkey(self, slot);
    uint32_t *at = generation_head(self, claim->extent.generation);
    while (*at != slot) {
        SL_ASSERT(*at != REG_NONE);
        at = &self->claims[*at].generation_next;
    }
    *at = claim->generation_next;
    reg_timers_clear(&self->timers, slot);
    claim->state = REG_CLAIM_FREE;
    claim->key_next = self->claim_free;
    self->claim_free = slot;
    self->claim_count--;
}

uint32_t reg_claim_by_key(const struct registrar *self, uint64_t hash, const char *key,
                          uint64_t length)
{
    for (uint32_t slot = *key_head(self, hash); slot != REG_NONE;
         slot = self->claims[slot].key_next) {
        if (self->claims[slot].hash == hash && self->claims[slot].state == REG_CLAIM_RESERVED) {
            struct sl_entry entry;
            sl_index_read(self->index, self->claims[slot].ref, &entry);
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
    while (slot != REG_NONE && self->claims[slot].extent.generation != generation) {
        slot = self->claims[slot].generation_next;
    }
    return slot;
}

void reg_list_add(struct registrar *self, enum reg_list list, uint32_t *head, uint32_t slot)
{
    struct reg_node *node = &self->claims[slot].node[list];
    node->previous = REG_NONE;
    node->next = *head;
    if (*head != REG_NONE) {
        self->claims[*head].node[list].previous = slot;
    }
    *head = slot;
}

void reg_list_remove(struct registrar *self, enum reg_list list, uint32_t *head, uint32_t slot)
{
    struct reg_node *node = &self->claims[slot].node[list];
    if (node->previous != REG_NONE) {
        self->claims[node->previous].node[list].next = node->next;
    } else if (*head == slot) {
        *head = node->next;
    } else {
        return; /* in no list */
    }
    if (node->next != REG_NONE) {
        self->claims[node->next].node[list].previous = node->previous;
    }
    *node = (struct reg_node){REG_NONE, REG_NONE};
}

/* ---- pending groups ---- */

uint32_t reg_group_add(struct registrar *self, const struct reg_group *group, uint64_t deadline_ns)
{
    uint32_t slot;
    if (self->group_free_count > 0) {
        slot = self->group_free[--self->group_free_count];
    } else if (self->group_high < self->set.reservations_max) {
        slot = self->group_high++;
    } else {
        return REG_NONE;
    }
    self->groups[slot] = *group;
    self->groups[slot].used = true;
    self->groups[slot].claims = REG_NONE;
    self->group_count++;
    /* The LRU word of the record is free until the block is visible. */
    sl_index_links(self->index, group->ref)->newer = slot + 1;
    if (deadline_ns != SL_NEVER_NS) {
        reg_timers_set(&self->timers, reg_group_timer(self, slot), deadline_ns);
    }
    return slot;
}

void reg_group_remove(struct registrar *self, uint32_t slot)
{
    SL_ASSERT(self->groups[slot].used);
    reg_timers_clear(&self->timers, reg_group_timer(self, slot));
    sl_index_links(self->index, self->groups[slot].ref)->newer = 0;
    self->groups[slot].used = false;
    self->group_free[self->group_free_count++] = slot;
    self->group_count--;
}

uint32_t reg_group_slot(struct registrar *self, sl_ref ref)
{
    const struct sl_links *links = sl_index_links(self->index, ref);
    uint32_t slot = links->newer - 1;
    if ((links->flags & (REG_FLAG_HOT | REG_FLAG_COLD)) != 0 || links->newer == 0 ||
        slot >= self->group_high || !self->groups[slot].used || self->groups[slot].ref != ref) {
        return REG_NONE;
    }
    return slot;
}

/* ---- generations committed lately ---- */

/* The place is the generation's low bits: generations rise by a few for every object, so what comes
 * this many later replaces it, and a commit costs one store near the last one. */
void reg_recent_add(struct registrar *self, uint64_t generation)
{
    self->recent[generation & (RECENT_COUNT - 1)] = generation;
}

bool reg_recent_has(const struct registrar *self, uint64_t generation)
{
    return generation != 0 && self->recent[generation & (RECENT_COUNT - 1)] == generation;
}
