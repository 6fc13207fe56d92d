/* tests/bench/policy/memory_density.c - evicts what earns least, by the code of a node. */
#include "runtime/policy/density/density.h"
#include "tests/bench/policy/internal.h"

#include <math.h>

#define KEEP_S     3600u
#define KEEP_LOOKS 256u /* as a registrar */

static const struct sl_density_options plan = {.ghosts_min = SL_DENSITY_GHOSTS_MIN,
                                               .ghosts_max = SL_DENSITY_GHOSTS_MAX};

static sl_err density_begin(struct model_memory *memory)
{
    return sl_density_create(&plan, &memory->density);
}

static void density_end(struct model_memory *memory)
{
    sl_density_destroy(&memory->density);
}

/* From its last block on, as with an engine's hint for a request. */
static void request_keep(struct model_memory *memory, const struct model_use *use)
{
    uint32_t unit = use->keep && use->count > 0 ? memory->here[use->ids[use->count - 1]] : 0;
    if (unit != 0) {
        const struct reg_keep keep = {.end_s = use->now_s + KEEP_S, .pages = 1};
        sl_density_keep(memory->density, unit, &keep);
    }
}

static sl_err density_use(struct model_memory *memory, const struct model_use *use)
{
    sl_err err = model_restarts_look(memory, &plan);
    if (err != SL_OK) {
        return err;
    }
    sl_density_now(memory->density, use->now_s, use->kept_bytes_max);
    for (uint32_t i = use->count; i-- > 0;) { /* in the order in which engines note accesses: the
                                               * end of a chain first */
        uint32_t *unit = &memory->here[use->ids[i]];
        if (use->to[i] != 0 && *unit != 0) {
            memory->references++;
            sl_density_use(memory->density, *unit, use->hint);
            sl_density_hint(memory->density, *unit, use->hint, use->priority);
        }
    }
    for (uint32_t i = 0; i < use->count; i++) {
        uint32_t id = use->ids[i];
        if (use->to[i] == 0 || memory->here[id] != 0) {
            continue;
        }
        memory->references++;
        uint32_t before = i > 0 ? use->ids[i - 1] : MODEL_NO_BLOCK;
        struct reg_wanted wanted = {.parent_hash =
                                        before != MODEL_NO_BLOCK ? model_hash(before) : 0,
                                    .stored_count = SL_MAX(use->stored_count, 1u),
                                    .cut = i + 1 == use->count,
                                    .hint = use->hint,
                                    .priority = use->priority};
        memory->here[id] = sl_density_enter(memory->density, model_hash(id), id, &wanted);
        model_restarts_entered(memory->restarts, id, wanted.parent_hash);
        if (memory->here[id] == 0) {
            return SL_ERR_NO_MEMORY;
        }
    }
    request_keep(memory, use);
    return SL_OK;
}

/* A walk continues where the last victim left; a use starts a new one. */
static uint32_t density_victim(struct model_memory *memory)
{
    uint32_t unit = sl_density_next(memory->density, false);
    unit = unit != 0 ? unit : sl_density_first(memory->density);
    if (unit == 0) {
        return MODEL_NO_BLOCK;
    }
    uint32_t id = sl_density_user(memory->density, unit);
    const struct sl_density_note note = sl_density_note(memory->density, unit);
    sl_density_leave(memory->density, unit);
    memory->here[id] = 0;
    return model_restarts_left(memory, &note) == SL_OK ? id : MODEL_NO_BLOCK;
}

static uint32_t density_use_count(const struct model_memory *memory, uint32_t id)
{
    return sl_density_note(memory->density, memory->here[id]).use_count;
}

static double density_chance(const struct model_memory *memory, uint32_t id, uint64_t references)
{
    return sl_density_chance(memory->density, memory->here[id], references);
}

static sl_err density_bring(struct model_memory *memory, uint32_t id, uint32_t before)
{
    const struct reg_wanted how = {.parent_hash = before != MODEL_NO_BLOCK ? model_hash(before) : 0,
                                   .stored_count = 1};
    memory->here[id] = sl_density_return(memory->density, model_hash(id), id, &how, false);
    return memory->here[id] != 0 ? SL_OK : SL_ERR_NO_MEMORY;
}

static void density_keep(struct model_memory *memory, uint32_t id, const struct model_keep *keep)
{
    const struct reg_keep how = {.end_s = keep->end_s, .pages = 1, .once = true};
    sl_density_now(memory->density, keep->now_s, keep->kept_bytes_max);
    sl_density_keep(memory->density, memory->here[id], &how);
}

static void density_keep_expire(struct model_memory *memory, const struct model_keep *now)
{
    sl_density_now(memory->density, now->now_s, now->kept_bytes_max);
    sl_density_keep_check(memory->density, KEEP_LOOKS);
}

static uint64_t density_kept(const struct model_memory *memory)
{
    return sl_density_stats(memory->density).kept_pages;
}

static double density_edge(const struct model_memory *memory)
{
    uint32_t unit = sl_density_first(memory->density);
    bool kept = sl_density_note(memory->density, unit).kept;
    return kept ? HUGE_VAL : sl_density_value(memory->density, unit);
}

const struct model_memory_ops model_memory_density = {.begin = density_begin,
                                                      .end = density_end,
                                                      .use = density_use,
                                                      .victim = density_victim,
                                                      .use_count = density_use_count,
                                                      .chance = density_chance,
                                                      .bring = density_bring,
                                                      .keep = density_keep,
                                                      .edge = density_edge,
                                                      .keep_expire = density_keep_expire,
                                                      .kept = density_kept};
