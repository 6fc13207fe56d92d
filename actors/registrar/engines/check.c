/* actors/registrar/engines/check.c - validates an engine's registration. */
#include "actors/registrar/engines/engines.h"
#include "actors/registrar/engines/pools.h"
#include "ipc/msg/sl_layout.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#define ENGINE_POOLS_MAX 8u
#define ENGINE_WORLD_MAX 64u

static sl_err pool_check(const struct sl_body_engine_register *engine, uint64_t index,
                         struct sl_error *why)
{
    const struct sl_item_pool *pool = &engine->pools.at[index];
    if (!reg_pool_names_fit("-", pool->name.at)) {
        return sl_fail(why, SL_ERR_INVALID,
                       "ENGINE_REGISTER.pools[%" PRIu64 "].name: '%s' is not of [a-z0-9_-]", index,
                       pool->name.at);
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

/* Checks what the memory is; sl_layout_make checks where its blocks lie. */
static sl_err memory_check(const struct sl_item_region *region, uint64_t index,
                           struct sl_error *why)
{
    if (region->handle_kind == 0 || region->handle_kind > REG_MEMORY_MAX) {
        return region_fail(why, index, "handle_kind: unknown");
    }
    if (region->handle_kind == REG_MEMORY_IPC ? region->handle.length == 0 : region->pid == 0) {
        return region_fail(why, index,
                           region->handle_kind == REG_MEMORY_IPC ? "handle: empty" : "pid: 0");
    }
    if (region->handle_kind == REG_MEMORY_PARTS && region->handle.length < REG_MEMORY_NAME_BYTES) {
        return region_fail(why, index, "handle: names no memory");
    }
    if (region->handle_kind == REG_MEMORY_PROCESS && region->start_time == 0) {
        return region_fail(why, index, "start_time: 0");
    }
    return SL_OK;
}

/* Checks that each registered rank has a layer in every pool without parts, and that without a team
 * all ranks and all parts are registered. */
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
    if (engine->model.length > 0 &&
        engine->model.at[strspn(engine->model.at, "0123456789abcdef")] != '\0') {
        return sl_fail(why, SL_ERR_INVALID, "ENGINE_REGISTER.model: '%s' is not lower-case hex",
                       engine->model.at);
    }
    for (uint64_t i = 0; i < engine->pools.count; i++) {
        sl_err err = pool_check(engine, i, why);
        if (err != SL_OK) {
            return err;
        }
    }
    for (uint64_t i = 0; i < engine->regions.count; i++) {
        sl_err err = memory_check(&engine->regions.at[i], i, why);
        if (err != SL_OK) {
            return err;
        }
    }
    struct sl_layout layout;
    struct sl_body_engine_get_reply body;
    static_assert(sizeof(body) == sizeof(*engine), "one table makes both");
    memcpy(&body, engine, sizeof(body));
    sl_err err = sl_layout_make(&body, SL_LAYOUT_ALL, &layout, why);
    if (err != SL_OK) {
        return err;
    }
    sl_layout_fini(&layout);
    return cells_check(engine, why);
}
