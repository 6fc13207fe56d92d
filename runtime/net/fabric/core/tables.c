/* runtime/net/fabric/core/tables.c - handles, regions and random numbers for all of the core. */
#include "runtime/net/fabric/core/tables.h"

#include <stdlib.h>
#include <sys/random.h>

uint32_t fabric_handle_make(uint16_t generation, uint32_t index)
{
    return (uint32_t)generation << 16 | index;
}

uint16_t fabric_generation_next(uint16_t generation)
{
    return generation == UINT16_MAX ? 1 : (uint16_t)(generation + 1);
}

struct fabric_memory *fabric_memory_of(struct sl_fabric *fabric, uint32_t handle)
{
    uint32_t index = handle & 0xffffu;
    if (index >= fabric->options.memories_max) {
        return NULL;
    }
    struct fabric_memory *memory = &fabric->memories[index];
    return memory->state != MEMORY_FREE && memory->generation == handle >> 16 ? memory : NULL;
}

struct fabric_peer *fabric_peer_of(const struct fabric_rail *rail, uint32_t handle)
{
    uint32_t index = handle & 0xffffu;
    if (index >= rail->options.peers_max) {
        return NULL;
    }
    struct fabric_peer *peer = &rail->peers[index];
    bool there = peer->state != PEER_FREE && !peer->removed;
    return there && peer->generation == handle >> 16 ? peer : NULL;
}

uint32_t fabric_peer_handle(const struct fabric_peer *peer)
{
    return fabric_handle_make(peer->generation, peer->index);
}

struct fabric_grant *fabric_grant_of(const struct sl_fabric *fabric, uint32_t handle)
{
    uint32_t index = handle & 0xffffu;
    if (index >= fabric->options.grants_max) {
        return NULL;
    }
    struct fabric_grant *grant = &fabric->grants[index];
    return grant->state == GRANT_LIVE && grant->slot_generation == handle >> 16 ? grant : NULL;
}

struct fabric_key *fabric_key_of(const struct sl_fabric *fabric, uint32_t handle)
{
    uint32_t index = handle & 0xffffu;
    if (index >= fabric->options.keys_max) {
        return NULL;
    }
    struct fabric_key *key = &fabric->keys[index];
    return key->used && !key->closing && key->generation == handle >> 16 ? key : NULL;
}

/* ---- small tools ---- */

uint64_t fabric_random(struct sl_fabric *fabric)
{
    uint64_t x = fabric->random_state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

sl_err fabric_secret(void *out, size_t length_bytes, struct sl_error *why)
{
    SL_ASSERT(length_bytes <= 256); /* the limit for one uninterrupted call */
    return getrandom(out, length_bytes, 0) == (ssize_t)length_bytes
               ? SL_OK
               : sl_fail(why, SL_ERR_OS, "the system has no random bytes");
}

const struct fabric_region *fabric_region_at(const struct fabric_region *regions, uint32_t count,
                                             uint64_t offset_bytes)
{
    uint32_t low = 0, high = count; /* regions are sorted */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct fabric_region *region = &regions[middle];
        if (offset_bytes < region->offset_bytes) {
            high = middle;
        } else if (offset_bytes - region->offset_bytes >= region->length_bytes) {
            low = middle + 1;
        } else {
            return region;
        }
    }
    return NULL;
}

bool fabric_right_covers(const struct fabric_right *right, const struct sl_fabric_piece *piece)
{
    uint64_t offset_bytes = piece->remote_offset_bytes, length_bytes = piece->length_bytes;
    if (offset_bytes > UINT64_MAX - length_bytes) {
        return false;
    }
    while (length_bytes > 0) {
        const struct fabric_region *region =
            fabric_region_at(right->regions, right->region_count, offset_bytes);
        if (region == NULL) {
            return false;
        }
        uint64_t here =
            SL_MIN(region->length_bytes - (offset_bytes - region->offset_bytes), length_bytes);
        offset_bytes += here;
        length_bytes -= here;
    }
    return true;
}

void fabric_key_free(struct sl_fabric *fabric, struct fabric_key *key)
{
    uint32_t index = (uint32_t)(key - fabric->keys);
    fabric->key_low = SL_MIN(fabric->key_low, index);
    for (uint32_t i = 0; i < fabric->rail_count; i++) {
        struct fabric_right *right = &fabric->rails[i]->rights[index];
        free(right->regions);
        free(right->lane_rkeys);
        *right = (struct fabric_right){0};
    }
    *key = (struct fabric_key){.generation = key->generation};
}
