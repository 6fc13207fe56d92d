/* tests/fuzz/registrar_check.c - see registrar_check.h. */
#include "tests/fuzz/registrar_check.h"
#include "actors/registrar/engines/pools.h"
#include "actors/registrar/memory/contributions.h"
#include "actors/registrar/records/bundles.h"
#include "actors/registrar/records/claims.h"
#include "actors/registrar/records/leases.h"
#include "actors/registrar/records/retired.h"
#include "actors/registrar/records/units.h"
#include "ipc/shm/index_internal.h"
#include "tests/fuzz/hostile.h"

#include <stdio.h>
#include <stdlib.h>

static void tally_record(struct registrar *self, sl_ref ref, struct registrar_tally *tally)
{
    struct sl_entry entry;
    sl_index_read(self->index, ref, &entry);
    HOSTILE_MUST(entry.kind >= SL_RECORD_RESERVED && entry.kind <= SL_RECORD_BLOB);
    if (entry.kind == SL_RECORD_GROUP || entry.kind == SL_RECORD_BLOB) {
        return;
    }
    tally->retired += entry.kind == SL_RECORD_RETIRED;
    tally->objects += entry.kind == SL_RECORD_COMMITTED;
    tally->bundled += entry.bundle != 0 &&
                      (entry.kind == SL_RECORD_COMMITTED || entry.kind == SL_RECORD_RESERVED);
    tally->claims += entry.kind == SL_RECORD_RESERVED || entry.kind == SL_RECORD_PROMOTING ||
                     entry.kind == SL_RECORD_QUARANTINED;
    if (self->contributions->on && entry.contribution != 0) {
        HOSTILE_MUST(entry.extent.generation != 0);
        tally->charged[entry.contribution - 1] += sl_extent_space(entry.extent.length_bytes);
    }
    if (entry.extent.generation != 0) {
        struct sl_alloc_stats before;
        struct sl_alloc_stats after;
        sl_alloc_stats(tally->alloc, &before);
        HOSTILE_MUST(sl_alloc_claim(tally->alloc, entry.extent.offset_bytes,
                                    entry.extent.length_bytes) == SL_OK);
        sl_alloc_stats(tally->alloc, &after);
        HOSTILE_MUST(after.extent_count == before.extent_count + 1); /* no other record has it */
    } else {
        HOSTILE_MUST(entry.kind == SL_RECORD_COMMITTED && entry.disk.valid != 0);
    }
}

static void tally_all(struct registrar *self, struct registrar_tally *tally)
{
    struct sl_alloc_options options = {.data_bytes = sl_arena_data_bytes(self->arena),
                                       .chunk_bytes = sl_arena_chunk_bytes(self->arena)};
    HOSTILE_MUST(sl_alloc_create(&options, &tally->alloc, NULL) == SL_OK);
    sl_alloc_grow(tally->alloc, options.data_bytes);
    for (uint32_t slab = 0; slab < self->index->slab_count; slab++) {
        const struct index_slab *at = &self->index->slabs[slab];
        for (uint32_t i = 0; at->units != 0 && i < at->capacity; i++) {
            if ((at->live[i / 64] >> (i % 64) & 1) != 0) {
                tally_record(self, slab * INDEX_SLAB_UNITS + 1 + i * at->units, tally);
            }
        }
    }
    struct sl_alloc_stats ours;
    struct sl_alloc_stats theirs;
    sl_alloc_stats(tally->alloc, &ours);
    sl_alloc_stats(self->alloc, &theirs);
    HOSTILE_MUST(ours.used_bytes == theirs.used_bytes);
    HOSTILE_MUST(ours.extent_count == theirs.extent_count);
    HOSTILE_MUST(theirs.used_bytes <= self->set.memory);
    sl_alloc_destroy(&tally->alloc);
}

/* Walks the list in both directions; a unit is in one list. */
static void check_list(struct registrar *self, const struct reg_order *units, uint16_t flag)
{
    uint64_t count = 0;
    sl_ref older = 0;
    for (sl_ref ref = units->oldest; ref != 0; ref = sl_index_links(self->index, ref)->newer) {
        HOSTILE_MUST(sl_index_ref_live(self->index, ref));
        struct sl_links *links = sl_index_links(self->index, ref);
        HOSTILE_MUST(links->older == older);
        HOSTILE_MUST((links->flags & (REG_FLAG_HOT | REG_FLAG_COLD)) == flag);
        HOSTILE_MUST(++count <= units->count);
        older = ref;
    }
    HOSTILE_MUST(older == units->newest && count == units->count);
}

/* Units that eviction skipped are looked at again eventually; pinned values stay where they are. */
static void check_kept(struct registrar *self, const struct reg_order *units)
{
    check_list(self, units, REG_FLAG_SKIPPED_LISTS);
    for (sl_ref ref = units->oldest; ref != 0; ref = sl_index_links(self->index, ref)->newer) {
        struct sl_entry entry;
        bool due = false;
        sl_index_read(self->index, ref, &entry);
        HOSTILE_MUST(entry.hard_pin == (units == &self->units->pinned));
        HOSTILE_MUST((entry.soft_pin_end_ns != 0) == (units == &self->units->soft) ||
                     entry.hard_pin);
        for (uint32_t i = 0; i < self->lease_ends->heap.count; i++) {
            due = due || (self->lease_ends->heap.items[i].id == ref &&
                          self->lease_ends->heap.items[i].cookie == entry.version);
        }
        HOSTILE_MUST(due || entry.hard_pin);
    }
}

/* A pool that exists has a record; an absent one exists only for its waiters. */
static void check_pools(struct registrar *self)
{
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < self->pools->max; i++) {
        const struct reg_pool *pool = &self->pools->all[i];
        HOSTILE_MUST(!pool->used || i < self->pools->high);
        if (!pool->used) {
            continue;
        }
        HOSTILE_MUST(reg_pool_find(self, pool->name, pool->rank, pool->pool) == i);
        if (pool->state == REG_POOL_ABSENT) {
            HOSTILE_MUST(pool->blob == 0 && pool->epoch == 0 && pool->call_seq == 0);
            HOSTILE_MUST(pool->mapper_count == 0 && reg_pool_waiters(self, i) > 0);
            continue;
        }
        HOSTILE_MUST(reg_pool_by_epoch(self, pool->epoch) == i);
        HOSTILE_MUST(pool->blob != 0 && sl_index_ref_live(self->index, pool->blob));
        HOSTILE_MUST(pool->mapper_count <= REG_POOL_MAPPERS_MAX);
        HOSTILE_MUST(pool->state == REG_POOL_REVOKING || !pool->dropping);
        HOSTILE_MUST(pool->state != REG_POOL_REVOKING || pool->dropping || pool->mapper_count > 0);
    }
    for (uint32_t i = 0; i < self->set.clients_max; i++) {
        const struct reg_pool_waiter *waiter = &self->pools->waiters[i];
        if (waiter->kind != REG_POOL_WAIT_NONE) {
            HOSTILE_MUST(self->pools->all[waiter->pool].used);
            waiting++;
        }
    }
    HOSTILE_MUST(waiting == self->pools->waiter_count);
}

/* A contribution's used bytes are the sum over the records. */
static void check_contributions(const struct registrar *self, const struct registrar_tally *tally)
{
    uint64_t length_bytes = 0;
    for (uint32_t i = 0; i < REG_CONTRIBUTIONS_MAX; i++) {
        const struct reg_contribution *at = &self->contributions->all[i];
        HOSTILE_MUST(at->used_bytes == tally->charged[i]);
        HOSTILE_MUST(at->state != REG_CONTRIBUTION_FREE || at->value_count == 0);
        if (at->state == REG_CONTRIBUTION_ACTIVE) {
            HOSTILE_MUST(at->used_bytes <= at->length_bytes);
            HOSTILE_MUST(at->note != 0 && sl_index_ref_live(self->index, at->note));
            length_bytes += at->length_bytes;
        }
    }
    HOSTILE_MUST(!self->contributions->on || length_bytes == self->space.contributed_bytes);
    HOSTILE_MUST(length_bytes <= self->set.memory);
}

struct registrar_tally registrar_check(struct registrar *self)
{
    struct registrar_tally tally = {0};
    tally_all(self, &tally);
    HOSTILE_MUST(tally.claims == self->claims->count);
    HOSTILE_MUST(tally.retired == self->retired->count);
    check_list(self, &self->units->hot, REG_FLAG_HOT);
    check_list(self, &self->units->cold, REG_FLAG_COLD);
    check_kept(self, &self->units->pinned);
    check_kept(self, &self->units->soft);
    check_kept(self, &self->units->leased);
    HOSTILE_MUST(tally.bundled == self->bundles->by_ref.count);
    check_pools(self);
    check_contributions(self, &tally);
    HOSTILE_MUST(self->claims->quarantined_bytes <= self->set.memory);
    return tally;
}
