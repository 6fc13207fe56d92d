/* actors/registrar/memory/give_back.c - returns memory to the system after contributions ended.
 *
 * When less memory is wanted than is populated, the allocator first stops using what lies beyond
 * the target; values there leave as they always do. Then memory is returned from its end, a step at
 * a time, to spread the work of the loop and of the kernel. Each step also covers pages beyond the
 * end that late readers touched.
 *
 * A process that registered a page keeps it in spite of the hole (sl_arena_forbid_freeing). With a
 * device, verbs or a disk tier an actor has registered the arena, so nothing is returned. Clients
 * call sl_arena_forbid_freeing before they pin memory for a GPU. */
#include "actors/registrar/memory/give_back.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/memory/populate.h"

#include <string.h>

/* Of one step: a millisecond with small pages. */
#define STEP_BYTES   (4 * SL_MIB)
#define SHRINK_BYTES (64 * SL_MIB) /* per step of shrinking the allocator */
/* Between steps: an eighth of a core at most, as when memory is populated. */
#define PAUSE_NS (7 * SL_NS_PER_MS)
#define LOOK_NS  SL_NS_PER_S /* between checks of memory still in use */

/* Returns when to continue. */
static uint64_t step(struct registrar *self)
{
    struct reg_give_back *give_back = self->give_back;
    struct reg_populate *populate = self->populate;
    uint64_t now_ns = self->env->now_ns, populated_bytes = populate->populated_bytes;
    uint64_t target_bytes = reg_populate_target(self);
    struct sl_error why = {0};
    uint64_t shrunk_bytes =
        populate->allocator_bytes - SL_MIN(populate->allocator_bytes, SHRINK_BYTES);
    populate->allocator_bytes = populate->limit_bytes = SL_MAX(target_bytes, shrunk_bytes);
    /* Also at the target: a value across the edge may have left. */
    sl_alloc_shrink(self->alloc, populate->allocator_bytes);
    if (populate->allocator_bytes > target_bytes) {
        return PAUSE_NS;
    }
    uint64_t end_bytes = sl_align_up(sl_alloc_end_bytes(self->alloc), SL_ARENA_SLICE_BYTES);
    give_back->quiet_ns = end_bytes != give_back->end_bytes ? now_ns : give_back->quiet_ns;
    give_back->end_bytes = end_bytes;
    uint64_t floor_bytes = SL_MAX(end_bytes, target_bytes);
    if (populated_bytes <= floor_bytes ||
        now_ns < sl_deadline_ns(give_back->quiet_ns, REG_GIVE_BACK_AFTER_NS)) {
        return LOOK_NS;
    }
    uint64_t to_bytes = SL_MAX(floor_bytes, populated_bytes - SL_MIN(populated_bytes, STEP_BYTES));
    if (sl_arena_free_after(self->arena, to_bytes, &why) != SL_OK) { /* a process keeps the pages */
        reg_log(self, SL_LOG_INFO, 0, "memory of ended contributions is not returned, since %s",
                why.text);
        give_back->able = false;
        populate->limit_bytes = UINT64_MAX;
        return LOOK_NS;
    }
    sl_metric_add(self->env->metrics, give_back->metric.given_back_bytes,
                  populated_bytes - to_bytes);
    populate->populated_bytes = to_bytes;
    return PAUSE_NS;
}

static bool is_wanted(const struct registrar *self)
{
    return self->populate->populated_bytes <= reg_populate_target(self);
}

static uint64_t give_back_next(const struct registrar *self)
{
    bool waits = self->give_back->able && !self->populate->running && !self->draining;
    return waits && !is_wanted(self) ? self->give_back->next_ns : SL_NEVER_NS;
}

static void give_back_run(struct registrar *self)
{
    struct reg_give_back *give_back = self->give_back;
    uint64_t now_ns = self->env->now_ns;
    if (is_wanted(self)) { /* a contribution may have followed; the quiet time begins again */
        self->populate->limit_bytes = give_back->end_bytes = UINT64_MAX;
        give_back->next_ns = sl_deadline_ns(now_ns, LOOK_NS);
    } else if (give_back_next(self) <= now_ns) {
        give_back->next_ns = sl_deadline_ns(now_ns, step(self));
    }
}

static void give_back_started(struct registrar *self)
{
    /* A previous registrar may have died in the middle. */
    self->give_back->next_ns = sl_deadline_ns(self->env->now_ns, REG_GIVE_BACK_AFTER_NS);
    self->give_back->end_bytes = UINT64_MAX;
}

static void give_back_settings(struct registrar *self)
{
    const struct sl_config *config = self->env->config;
    self->give_back->able = sl_config_bool(config, SL_SET_contributions) &&
                            sl_config_u64(config, SL_SET_disk) == 0 &&
                            strcmp(sl_config_text(config, SL_SET_device), "host") == 0 &&
                            strcmp(sl_config_text(config, SL_SET_fabric), "verbs") != 0;
}

static const struct sl_metric_row metrics[] = {
    REG_METRIC(reg_give_back, given_back_bytes),
};

const struct reg_part reg_give_back_part = {
    .name = "give_back",
    REG_STATE(give_back, reg_give_back),
    REG_METRICS(metrics),
    .settings = give_back_settings,
    .started = give_back_started,
    .after = give_back_run,
    .next_ns = give_back_next,
};
