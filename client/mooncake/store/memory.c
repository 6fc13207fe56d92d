/* client/mooncake/store/memory.c - registrations of memory, and allocations for callers. */
#include "client/mooncake/store/internal.h"
#include "runtime/base/sl_array.h"

#include <stdlib.h>
#include <string.h>

/* ---- registrations ---- */

static uint64_t region_end(const struct store_region *region)
{
    return region->addr + region->length_bytes;
}

static void *memory_at(uint64_t addr)
{
    return (void *)(uintptr_t)addr;
}

/* Returns the identical region, or NULL. *fine: whether the range may be registered. A dummy's
 * engines register pools that share memory: one may be part of another, or registered twice. For
 * others, as in Mooncake's engine, registered memory cannot be registered again. */
static struct store_region *region_find(struct sl_store *store, uint64_t addr,
                                        uint64_t length_bytes, bool *fine)
{
    uint64_t end = addr + length_bytes;
    bool nests = store->base != NULL && store->base->dummy;
    *fine = true;
    for (uint32_t i = 0; i < store->region_count; i++) {
        struct store_region *region = &store->regions[i];
        if (region->addr == addr && region->length_bytes == length_bytes) {
            *fine = nests;
            return region;
        }
        bool apart = end <= region->addr || region_end(region) <= addr;
        bool inside = region->addr <= addr && end <= region_end(region);
        bool around = addr <= region->addr && region_end(region) <= end;
        *fine = *fine && (apart || (nests && (inside || around)));
    }
    return NULL;
}

static int region_add(struct sl_store *store, uint64_t addr, uint64_t length_bytes)
{
    bool fine = false;
    struct store_region *known = region_find(store, addr, length_bytes, &fine);
    if (!fine) {
        return SL_STORE_INVALID;
    }
    if (known != NULL) {
        known->uses++; /* already registered with libsluice */
        return SL_STORE_OK;
    }
    if (!SL_ARRAY_ROOM(store->regions, store->region_room, store->region_count + 1)) {
        return SL_STORE_NO_BUFFER;
    }
    sl_err err = sl_memory_register(memory_at(addr), length_bytes, NULL);
    if (err != SL_OK) {
        return sl_store_code_of(err);
    }
    store->regions[store->region_count++] =
        (struct store_region){.addr = addr, .length_bytes = length_bytes, .uses = 1};
    return SL_STORE_OK;
}

int sl_store_register(struct sl_store *store, uint64_t addr, uint64_t length_bytes)
{
    int code = SL_STORE_INVALID;
    pthread_mutex_lock(&store->lock);
    if (store->base != NULL && addr != 0 && length_bytes != 0 &&
        addr <= UINT64_MAX - length_bytes) {
        bool known = !store->base->dummy || store_memory_is_ours(addr, length_bytes);
        code = known ? region_add(store, addr, length_bytes) : SL_STORE_INTERNAL;
    }
    pthread_mutex_unlock(&store->lock);
    return code;
}

int sl_store_unregister(struct sl_store *store, uint64_t addr)
{
    pthread_mutex_lock(&store->lock);
    bool dummy = store->base != NULL && store->base->dummy;
    int code = dummy ? SL_STORE_INTERNAL : SL_STORE_INVALID;
    uint32_t at = store->base == NULL ? 0 : store->region_count;
    while (at > 0 && store->regions[at - 1].addr != addr) {
        at--;
    }
    if (at > 0) {
        struct store_region *region = &store->regions[at - 1];
        code = SL_STORE_OK;
        if (--region->uses == 0) {
            (void)sl_memory_unregister(memory_at(addr), NULL);
            memmove(region, region + 1, (store->region_count - at) * sizeof *region);
            store->region_count--;
        }
    }
    pthread_mutex_unlock(&store->lock);
    return code;
}

void store_regions_end(struct sl_store *store)
{
    pthread_mutex_lock(&store->lock);
    for (uint32_t i = 0; i < store->region_count; i++) {
        (void)sl_memory_unregister(memory_at(store->regions[i].addr), NULL);
    }
    store->region_count = 0;
    pthread_mutex_unlock(&store->lock);
}

uint64_t sl_store_registered_bytes(struct sl_store *store, uint64_t addr)
{
    uint64_t end = addr, before;
    pthread_mutex_lock(&store->lock);
    do {
        before = end;
        for (uint32_t i = 0; i < store->region_count; i++) {
            const struct store_region *region = &store->regions[i];
            end = region->addr <= end ? SL_MAX(end, region_end(region)) : end;
        }
    } while (end != before);
    pthread_mutex_unlock(&store->lock);
    return end - addr;
}

/* ---- shared memory of the process ---- */

struct memory {
    struct memory *next;
    const struct store_base *owner; /* its end frees this memory; NULL: not of a pool */
    void *at;
    uint64_t length_bytes; /* as requested */
};
/* All allocations with their length, beyond which a dummy registers nothing. One list for the
 * process, since engines expect that memory of one allocator can be freed by another. */
pthread_mutex_t store_memories_lock = PTHREAD_MUTEX_INITIALIZER;
static struct memory *memories;

static void *memory_new(const struct store_base *owner, uint64_t length_bytes)
{
    store_fork_watch();
    struct memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL) {
        return NULL;
    }
    memory->owner = owner;
    memory->length_bytes = length_bytes;
    if (sl_memory_alloc(length_bytes, &memory->at, NULL) != SL_OK) {
        free(memory);
        return NULL;
    }
    pthread_mutex_lock(&store_memories_lock);
    memory->next = memories;
    memories = memory;
    pthread_mutex_unlock(&store_memories_lock);
    return memory->at;
}

void *sl_store_memory_alloc(uint64_t length_bytes)
{
    return memory_new(NULL, length_bytes);
}

/* Removes and returns the allocation at an address; address NULL: one of the owner. */
static struct memory *memory_take(const void *at, const struct store_base *owner)
{
    pthread_mutex_lock(&store_memories_lock);
    struct memory **place = &memories;
    while (*place != NULL && (at != NULL ? (*place)->at != at : (*place)->owner != owner)) {
        place = &(*place)->next;
    }
    struct memory *found = *place;
    if (found != NULL) {
        *place = found->next;
    }
    pthread_mutex_unlock(&store_memories_lock);
    return found;
}

int sl_store_memory_free(void *at)
{
    SL_AUTO(free) struct memory *found = at == NULL ? NULL : memory_take(at, NULL);
    return found != NULL && sl_memory_free(at, NULL) == SL_OK ? SL_STORE_OK : SL_STORE_INTERNAL;
}

uint64_t sl_store_pool_alloc(struct sl_store *store, uint64_t length_bytes)
{
    SL_AUTO(leave) struct store_base *base = store_enter(store);
    bool dummy = base != NULL && base->dummy;
    return dummy ? (uint64_t)(uintptr_t)memory_new(base, length_bytes) : 0;
}

void store_pools_end(const struct store_base *base)
{
    for (struct memory *gone = memory_take(NULL, base); gone != NULL;
         gone = memory_take(NULL, base)) {
        (void)sl_memory_free(gone->at, NULL);
        free(gone);
    }
}

bool store_memory_is_ours(uint64_t addr, uint64_t length_bytes)
{
    bool ours = false;
    pthread_mutex_lock(&store_memories_lock);
    for (const struct memory *at = memories; at != NULL && !ours; at = at->next) {
        uint64_t from = (uint64_t)(uintptr_t)at->at;
        ours = addr >= from && length_bytes <= at->length_bytes &&
               addr - from <= at->length_bytes - length_bytes;
    }
    pthread_mutex_unlock(&store_memories_lock);
    return ours;
}
