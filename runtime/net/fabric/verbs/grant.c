/* runtime/net/fabric/verbs/grant.c - keys, and the memory of grants. For memory that every peer may
 * read, the key contains the regions' keys. All other grants are tickets: see ticket.c. */
#include "runtime/net/fabric/core/wire.h"
#include "runtime/net/fabric/verbs/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define KEY_MAGIC   UINT32_C(0x57544c53) /* "SLTW" */
#define KEY_VERSION 2u
#define KEY_READS   1u
#define KEY_REGION  24u /* offset, length, address; then one rkey, or one for each lane */

/* ---- keys ---- */

uint32_t verbs_key_bytes(uint32_t regions, uint32_t rkeys)
{
    return VERBS_KEY_HEAD + regions * (KEY_REGION + 4 * rkeys);
}

static void key_head(unsigned char *out, uint32_t regions, uint32_t rkeys)
{
    memset(out, 0, VERBS_KEY_HEAD);
    sl_wire_put(out, KEY_MAGIC, 4);
    sl_wire_put(out + 4, KEY_VERSION, 1);
    sl_wire_put(out + 5, KEY_READS, 1);
    sl_wire_put(out + 6, rkeys, 2);
    sl_wire_put(out + 8, regions, 4);
}

unsigned char *verbs_key_region(unsigned char *out, const struct fabric_region *region)
{
    sl_wire_put(out, region->offset_bytes, 8);
    sl_wire_put(out + 8, region->length_bytes, 8);
    sl_wire_put(out + 16, region->addr, 8);
    return out + KEY_REGION;
}

static sl_err key_region_read(const unsigned char *at, uint32_t rkeys, uint32_t index,
                              struct fabric_right *key, struct sl_error *why)
{
    struct fabric_region region = {
        .offset_bytes = sl_wire_get(at, 8),
        .length_bytes = sl_wire_get(at + 8, 8),
        .addr = sl_wire_get(at + 16, 8),
        .rkey = (uint32_t)sl_wire_get(at + KEY_REGION, 4),
    };
    const struct fabric_region *before = index == 0 ? NULL : &key->regions[index - 1];
    if (region.length_bytes == 0 || region.offset_bytes > UINT64_MAX - region.length_bytes ||
        (before != NULL && region.offset_bytes < before->offset_bytes + before->length_bytes)) {
        return sl_fail(why, SL_ERR_PROTOCOL, "verbs key: region %u is %" PRIu64 "+%" PRIu64, index,
                       region.offset_bytes, region.length_bytes);
    }
    key->regions[index] = region;
    for (uint32_t i = 0; key->lane_rkeys != NULL && i < rkeys; i++) {
        key->lane_rkeys[(size_t)index * rkeys + i] =
            (uint32_t)sl_wire_get(at + KEY_REGION + 4 * i, 4);
    }
    return SL_OK;
}

sl_err verbs_key_parse(struct fabric_rail *rail, const void *blob, uint32_t length_bytes,
                       struct fabric_right *key, struct sl_error *why)
{
    const unsigned char *bytes = blob;
    if (length_bytes < VERBS_KEY_HEAD || sl_wire_get(bytes, 4) != KEY_MAGIC) {
        return sl_fail(why, SL_ERR_PROTOCOL, "verbs key: %u bytes, not valid", length_bytes);
    }
    if (bytes[4] != KEY_VERSION) {
        return sl_fail(why, SL_ERR_VERSION, "verbs key: version %u", bytes[4]);
    }
    uint32_t rkeys = (uint32_t)sl_wire_get(bytes + 6, 2);
    uint32_t count = (uint32_t)sl_wire_get(bytes + 8, 4);
    uint32_t lanes = rail->options.lanes;
    if (bytes[5] != KEY_READS || (rkeys != 1 && rkeys != lanes) || count == 0 ||
        count > SL_FABRIC_BLOB_MAX / KEY_REGION || length_bytes != verbs_key_bytes(count, rkeys)) {
        return sl_fail(why, SL_ERR_PROTOCOL, "verbs key: %u regions, %u lanes, %u bytes", count,
                       rkeys, length_bytes);
    }
    key->regions = calloc(count, sizeof(*key->regions));
    key->lane_rkeys = rkeys == 1 ? NULL : calloc((size_t)count * rkeys, sizeof(*key->lane_rkeys));
    if (key->regions == NULL || (rkeys > 1 && key->lane_rkeys == NULL)) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a key of %u regions", count);
    }
    key->region_count = count;
    sl_err err = SL_OK;
    for (uint32_t i = 0; err == SL_OK && i < count; i++) {
        err = key_region_read(bytes + verbs_key_bytes(i, rkeys), rkeys, i, key, why);
    }
    return err;
}

/* ---- ranges ---- */

struct verbs_walk verbs_walk_begin(const struct fabric_rail *rail, const struct fabric_grant *grant)
{
    return (struct verbs_walk){
        .rail = rail, .next = grant->places, .key_offset_bytes = grant->what.offset_bytes};
}

/* Enters the next range at the end of this one; false: the end. */
static bool walk_is_left(struct verbs_walk *walk)
{
    if (walk->left_bytes == 0 && walk->next != NULL) {
        walk->memory_index = walk->next->memory & 0xffffu;
        walk->offset_bytes = walk->next->offset_bytes;
        walk->left_bytes = walk->next->run.length_bytes;
        walk->next = fabric_place_of(walk->next->run.next);
    }
    return walk->left_bytes > 0;
}

static void walk_skip(struct verbs_walk *walk, uint64_t length_bytes)
{
    walk->offset_bytes += length_bytes;
    walk->key_offset_bytes += length_bytes;
    walk->left_bytes -= length_bytes;
}

bool verbs_walk_cut(struct verbs_walk *walk, struct fabric_region *out)
{
    if (!walk_is_left(walk)) {
        return false;
    }
    const struct fabric_mapping *mapping = &walk->rail->mappings[walk->memory_index];
    const struct fabric_region *region =
        fabric_region_at(mapping->regions, mapping->region_count, walk->offset_bytes);
    SL_ASSERT(region != NULL); /* ranges of grants are within their memories */
    uint64_t into_bytes = walk->offset_bytes - region->offset_bytes;
    *out = *region;
    out->offset_bytes = walk->key_offset_bytes;
    out->length_bytes = SL_MIN(region->length_bytes - into_bytes, walk->left_bytes);
    out->addr = region->addr + into_bytes;
    walk_skip(walk, out->length_bytes);
    return true;
}

bool verbs_walk_dmabuf(struct verbs_walk *walk, struct sl_fabric_dmabuf *out)
{
    if (!walk_is_left(walk) || !walk->rail->fabric->memories[walk->memory_index].by_dmabuf) {
        return false;
    }
    *out = walk->rail->fabric->memories[walk->memory_index].dmabuf;
    out->offset_bytes += walk->offset_bytes;
    return true;
}

bool verbs_walk_whole(struct verbs_walk *walk, struct fabric_region *out)
{
    if (!walk_is_left(walk)) {
        return false;
    }
    unsigned char *memory = walk->rail->fabric->memories[walk->memory_index].what.at;
    *out = (struct fabric_region){.offset_bytes = walk->key_offset_bytes,
                                  .length_bytes = walk->left_bytes,
                                  .addr = (uintptr_t)(memory + walk->offset_bytes)};
    walk_skip(walk, walk->left_bytes);
    return true;
}

static uint32_t range_count(const struct fabric_rail *rail, const struct fabric_grant *grant,
                            bool (*step)(struct verbs_walk *, struct fabric_region *))
{
    struct verbs_walk walk = verbs_walk_begin(rail, grant);
    struct fabric_region cut;
    uint32_t count = 0;
    while (step(&walk, &cut)) {
        count++;
    }
    return count;
}

static void grant_reading(struct fabric_rail *rail, struct fabric_grant *grant)
{
    struct verbs_walk walk = verbs_walk_begin(rail, grant);
    unsigned char *key = rail->fabric->part, *at = key + VERBS_KEY_HEAD;
    struct fabric_region cut;
    while (verbs_walk_cut(&walk, &cut)) {
        at = verbs_key_region(at, &cut);
        sl_wire_put(at, cut.rkey, 4);
        at += 4;
    }
    fabric_grant_ready(rail, grant, key, (uint32_t)(at - key));
}

/* ---- grants ---- */

sl_err verbs_grant_add(struct fabric_rail *rail, struct fabric_grant *grant, struct sl_error *why)
{
    bool registers = grant->ticket && !verbs_of(rail)->windows;
    uint32_t regions = range_count(rail, grant, registers ? verbs_walk_whole : verbs_walk_cut);
    uint32_t rkeys = grant->ticket ? verbs_ticket_rkeys(rail) : 1;
    uint32_t rails = rail->fabric->list_count;
    uint32_t head_bytes = rails == 1 ? 0 : FABRIC_BLOB_HEAD_BYTES + 4 * rails;
    if (verbs_key_bytes(regions, rkeys) > SL_FABRIC_BLOB_MAX - head_bytes) {
        return sl_fail(why, SL_ERR_LIMIT, "a key of %u regions is too long", regions);
    }
    key_head(rail->fabric->part, regions, rkeys);
    if (grant->ticket) {
        return verbs_ticket_add(rail, grant, regions, why);
    }
    grant_reading(rail, grant);
    return SL_OK;
}
