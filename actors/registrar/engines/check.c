/* actors/registrar/engines/check.c - what a registration of an engine must be. */
#include "actors/registrar/engines/engines.h"
#include "runtime/sl_runs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ENGINE_PARTS_MAX 64u
#define ENGINE_POOLS_MAX 8u
#define ENGINE_WORLD_MAX 64u
/* enum sl_memory_kind of cuda/sl_device.h, which the registrar does not use */
#define MEMORY_KIND_IPC     2u
#define MEMORY_KIND_PARTS   4u
#define MEMORY_KIND_PROCESS 5u
#define MEMORY_NAME_BYTES   32u /* struct sl_memory_name */

static sl_err pool_check(const struct sl_body_engine_register *engine, uint64_t index,
                         struct sl_error *why)
{
    const struct sl_item_pool *pool = &engine->pools.at[index];
    for (uint64_t i = 0; i < pool->name.length; i++) {
        char c = pool->name.at[i];
        bool good = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
        if (!good) {
            return sl_fail(why, SL_ERR_INVALID,
                           "ENGINE_REGISTER.pools[%" PRIu64 "].name: '%s' is not of [a-z0-9_-]",
                           index, pool->name.at);
        }
    }
    for (uint64_t i = 0; i < index; i++) {
        if (engine->pools.at[i].name.length == pool->name.length &&
            memcmp(engine->pools.at[i].name.at, pool->name.at, pool->name.length) == 0) {
            return sl_fail(why, SL_ERR_INVALID,
                           "ENGINE_REGISTER.pools[%" PRIu64 "].name: '%s' twice", index,
                           pool->name.at);
        }
    }
    return SL_OK;
}

static sl_err region_fail(struct sl_error *why, uint64_t index, const char *text)
{
    return sl_fail(why, SL_ERR_INVALID, "ENGINE_REGISTER.regions[%" PRIu64 "].%s", index, text);
}

static sl_err region_check(const struct sl_body_engine_register *engine, uint64_t index,
                           struct sl_error *why)
{
    const struct sl_item_region *region = &engine->regions.at[index];
    uint64_t reach, end;
    if (region->rank >= engine->world) {
        return region_fail(why, index, "rank: not below world");
    }
    if (region->pool >= engine->pools.count) {
        return region_fail(why, index, "pool: not below the number of pools");
    }
    if (region->handle_kind == 0 || region->handle_kind > REG_MEMORY_KIND_MAX) {
        return region_fail(why, index, "handle_kind: unknown");
    }
    if (region->handle_kind == MEMORY_KIND_IPC ? region->handle.length == 0 : region->pid == 0) {
        return region_fail(why, index,
                           region->handle_kind == MEMORY_KIND_IPC ? "handle: empty" : "pid: 0");
    }
    if (region->handle_kind == MEMORY_KIND_PARTS && region->handle.length < MEMORY_NAME_BYTES) {
        return region_fail(why, index, "handle: names no memory");
    }
    if (region->handle_kind == MEMORY_KIND_PROCESS && region->start_time == 0) {
        return region_fail(why, index, "start_time: 0");
    }
    if (region->part >= SL_MAX(engine->pools.at[region->pool].part_count, UINT64_C(1))) {
        return region_fail(why, index, "part: not below the pool's part_count");
    }
    if (region->block_stride_bytes < region->piece_bytes) {
        return region_fail(why, index, "block_stride_bytes: less than piece_bytes");
    }
    uint64_t span =
        sl_runs_span(region->piece_bytes, region->fragment_bytes, region->fragment_stride_bytes);
    if (span == 0 || span > region->block_stride_bytes) {
        return region_fail(why, index, "fragment_bytes: not in piece_bytes or beyond the stride");
    }
    if (region->block_count == 0 ||
        __builtin_mul_overflow(region->block_count - 1, region->block_stride_bytes, &reach) ||
        __builtin_add_overflow(reach, span, &reach) || reach > region->length_bytes) {
        return region_fail(why, index, "length_bytes: (block_count - 1) * stride + piece is more");
    }
    if (__builtin_add_overflow(region->offset_bytes, region->length_bytes, &end)) {
        return region_fail(why, index, "offset_bytes: plus length_bytes overflows");
    }
    return SL_OK;
}

/* Of a region: its rank, pool, part and layer, in this order of weight. */
static uint64_t region_rank_of(uint64_t place)
{
    return place >> 32;
}
static uint64_t region_cell_of(uint64_t place) /* all but the layer */
{
    return place >> 12;
}
static uint64_t region_place(const struct sl_item_region *region)
{
    return region->rank << 32 | region->pool << 24 | region->part << 12 | region->layer;
}

static int place_compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right ? 1 : 0;
}

static uint64_t place_last(const struct sl_body_engine_register *engine, uint64_t place)
{
    uint64_t i = engine->regions.count - 1;
    while (region_place(&engine->regions.at[i]) != place) {
        i--;
    }
    return i;
}

/* places are sorted: each cell has layers 0 .. n-1 once each. */
static sl_err places_check(const struct sl_body_engine_register *engine, const uint64_t *places,
                           struct sl_error *why)
{
    for (uint64_t i = 0; i < engine->regions.count; i++) {
        bool first = i == 0 || region_cell_of(places[i]) != region_cell_of(places[i - 1]);
        uint64_t layer = places[i] & 4095, want = first ? 0 : (places[i - 1] & 4095) + 1;
        uint64_t pool = places[i] >> 24 & 255, rank = region_rank_of(places[i]);
        if (!first && layer + 1 == want) {
            return region_fail(why, place_last(engine, places[i]),
                               "layer: twice for this rank and pool");
        }
        if (layer != want) {
            return sl_fail(why, SL_ERR_INVALID,
                           "ENGINE_REGISTER.regions: rank %" PRIu64 ", pool %" PRIu64
                           " lacks layer %" PRIu64,
                           rank, pool, want);
        }
    }
    return SL_OK;
}

/* Ranks that are here have something of every pool; all ranks and parts are, without a team. */
static sl_err cells_check(const struct sl_body_engine_register *engine, struct sl_error *why)
{
    uint64_t ranks[ENGINE_POOLS_MAX] = {0}, parts[ENGINE_POOLS_MAX] = {0}, here = 0;
    for (uint64_t i = 0; i < engine->regions.count; i++) {
        const struct sl_item_region *region = &engine->regions.at[i];
        here |= UINT64_C(1) << region->rank;
        ranks[region->pool] |= UINT64_C(1) << region->rank;
        parts[region->pool] |= UINT64_C(1) << region->part;
    }
    if (engine->team != 0 && here == 0) {
        return sl_fail(why, SL_ERR_INVALID, "ENGINE_REGISTER.regions: the rank has no layer");
    }
    if (engine->team == 0) {
        here = engine->world == 64 ? UINT64_MAX : (UINT64_C(1) << engine->world) - 1;
    }
    for (uint64_t pool = 0; pool < engine->pools.count; pool++) {
        uint64_t count = engine->pools.at[pool].part_count;
        uint64_t all = count == 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
        if (count == 0 && ranks[pool] != here) {
            return sl_fail(why, SL_ERR_INVALID,
                           "ENGINE_REGISTER.regions: rank %u, pool %" PRIu64 " has no layer",
                           (uint32_t)__builtin_ctzll(here & ~ranks[pool]), pool);
        }
        if (count != 0 && engine->team == 0 && parts[pool] != all) {
            return sl_fail(why, SL_ERR_INVALID,
                           "ENGINE_REGISTER.regions: pool %" PRIu64 " lacks part %u of %" PRIu64,
                           pool, (uint32_t)__builtin_ctzll(all & ~parts[pool]), count);
        }
    }
    return SL_OK;
}

static sl_err parts_check(const struct sl_body_engine_register *engine, struct sl_error *why)
{
    uint64_t *bytes = calloc(ENGINE_WORLD_MAX * ENGINE_POOLS_MAX * ENGINE_PARTS_MAX,
                             sizeof(*bytes)); /* 256 KiB */
    if (bytes == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "table of parts");
    }
    sl_err err = SL_OK;
    for (uint64_t i = 0; i < engine->regions.count && err == SL_OK; i++) {
        const struct sl_item_region *region = &engine->regions.at[i];
        uint64_t at = (region->rank * ENGINE_POOLS_MAX + region->pool) * ENGINE_PARTS_MAX;
        bytes[at + region->part] += region->piece_bytes; /* at most 65,536 times 1 GiB */
        if (bytes[at + region->part] > SL_VALUE_BYTES_MAX) {
            err = region_fail(why, i, "piece_bytes: a part of this rank and pool exceeds 1 GiB");
        }
    }
    free(bytes);
    return err;
}

/* What is in the regions is whole, and each part fits a value. */
static sl_err layers_check(const struct sl_body_engine_register *engine, struct sl_error *why)
{
    uint64_t count = engine->regions.count;
    uint64_t *places = calloc(count + 1, sizeof(*places));
    if (places == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "table of layers");
    }
    for (uint64_t i = 0; i < count; i++) {
        places[i] = region_place(&engine->regions.at[i]);
    }
    qsort(places, count, sizeof(*places), place_compare);
    sl_err err = places_check(engine, places, why);
    err = err == SL_OK ? cells_check(engine, why) : err;
    free(places);
    return err == SL_OK ? parts_check(engine, why) : err;
}

sl_err reg_engine_check(const struct sl_body_engine_register *engine, struct sl_error *why)
{
    if (engine->engine_id != 0) {
        return sl_fail(why, SL_ERR_INVALID, "ENGINE_REGISTER.engine_id: must be 0");
    }
    if (engine->world == 0 || engine->world > ENGINE_WORLD_MAX || engine->pools.count == 0 ||
        engine->pools.count > ENGINE_POOLS_MAX) {
        return sl_fail(why, SL_ERR_INVALID,
                       "ENGINE_REGISTER.pools: %" PRIu64 " pools for %" PRIu64 " ranks",
                       engine->pools.count, engine->world);
    }
    if (engine->team != 0 && engine->team < SL_TEAM_FIRST) {
        return sl_fail(why, SL_ERR_INVALID, "ENGINE_REGISTER.team: %" PRIu64 ", from 2^63 on",
                       engine->team);
    }
    for (uint64_t i = 0; i < engine->model.length; i++) {
        char c = engine->model.at[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) {
            return sl_fail(why, SL_ERR_INVALID, "ENGINE_REGISTER.model: '%s' is not lower-case hex",
                           engine->model.at);
        }
    }
    for (uint64_t i = 0; i < engine->pools.count; i++) {
        sl_err err = pool_check(engine, i, why);
        if (err != SL_OK) {
            return err;
        }
    }
    for (uint64_t i = 0; i < engine->regions.count; i++) {
        sl_err err = region_check(engine, i, why);
        if (err != SL_OK) {
            return err;
        }
    }
    return layers_check(engine, why);
}
