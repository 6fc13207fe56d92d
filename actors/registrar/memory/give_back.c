/* actors/registrar/memory/give_back.c - what was contributed and is not any more goes back to the system.
 *
 * When less is wanted than is there, first the allocator loses what is behind: nobody gets it any
 * more, and values in it leave as values do. Then memory goes from the end of what is in use on, a
 * step at a time, so that neither the loop nor the machine has much to do at once. Once more behind
 * the last step, since what late readers touched meanwhile is there again.
 *
 * A page that goes stays with whoever registered it (sl_arena_keep). With a device, verbs or a disk
 * tier that is an actor, so nothing goes back; clients say so before they pin memory for a GPU of
 * theirs. */
#include "actors/registrar/memory/give_back.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/memory/populate.h"

#include <string.h>

/* Of one step; a millisecond where pages are small. */
#define STEP_BYTES   (4 * SL_MIB)
#define SHRINK_BYTES (64 * SL_MIB) /* looked through by the allocator */
/* Between steps: an eighth of a core at most, as for memory that comes. */
#define PAUSE_NS (7 * SL_NS_PER_MS)
#define LOOK_NS  SL_NS_PER_S /* at what keeps the rest */

/* Takes from the allocator what is not wanted; true: all of it. */
static bool space_shrink(struct registrar *self, uint64_t target_bytes)
{
    struct reg_populate *populate = self->populate;
    uint64_t step_bytes = SL_MIN(populate->opened_bytes, SHRINK_BYTES);
    uint64_t to_bytes = SL_MAX(target_bytes, populate->opened_bytes - step_bytes);
    /* Also when nothing is left of it: a value may have lain across the edge, and be gone. */
    sl_alloc_shrink(self->alloc, to_bytes);
    populate->opened_bytes = populate->limit_bytes = to_bytes;
    return to_bytes == target_bytes;
}

/* Whether nothing behind end_bytes was in use for long enough. */
static bool is_quiet(struct registrar *self)
{
    struct reg_give_back *give_back = self->give_back;
    uint64_t end_bytes = sl_align_up(sl_alloc_end_bytes(self->alloc), SL_ARENA_SLICE_BYTES);
    if (end_bytes != give_back->end_bytes) {
        give_back->end_bytes = end_bytes;
        give_back->quiet_ns = self->env->now_ns;
    }
    return self->env->now_ns >= sl_deadline_ns(give_back->quiet_ns, REG_GIVE_BACK_AFTER_NS);
}

/* What lies behind to_bytes goes. Gives when to go on. */
static uint64_t give(struct registrar *self, uint64_t to_bytes)
{
    struct reg_give_back *give_back = self->give_back;
    struct reg_populate *populate = self->populate;
    struct sl_error why = {0};
    if (sl_arena_give_back(self->arena, to_bytes, &why) != SL_OK) { /* somebody keeps it for ever */
        reg_log(self, SL_LOG_INFO, 0, "memory: what is not contributed any more stays, since %s",
                why.text);
        give_back->able = false;
        populate->limit_bytes = UINT64_MAX;
        return LOOK_NS;
    }
    give_back->swept = to_bytes == populate->there_bytes;
    sl_metric_add(self->env->metrics, give_back->metric.given_back_bytes,
                  populate->there_bytes - to_bytes);
    populate->there_bytes = to_bytes;
    return PAUSE_NS;
}

/* Gives when to go on. */
static uint64_t step(struct registrar *self)
{
    const struct reg_give_back *give_back = self->give_back;
    uint64_t there_bytes = self->populate->there_bytes;
    uint64_t target_bytes = reg_populate_target(self);
    if (there_bytes > target_bytes && !space_shrink(self, target_bytes)) {
        return PAUSE_NS;
    }
    bool quiet = is_quiet(self);
    uint64_t floor_bytes = SL_MAX(give_back->end_bytes, target_bytes);
    if (there_bytes <= floor_bytes) {
        return give_back->swept ? LOOK_NS : give(self, there_bytes);
    }
    if (!quiet) {
        return LOOK_NS;
    }
    uint64_t next_bytes = SL_MAX(floor_bytes, there_bytes - SL_MIN(there_bytes, STEP_BYTES));
    return SL_MAX(give(self, next_bytes), next_bytes == floor_bytes ? REG_GIVE_BACK_AFTER_NS : 0);
}

static void give_back_run(struct registrar *self)
{
    struct reg_give_back *give_back = self->give_back;
    struct reg_populate *populate = self->populate;
    uint64_t now_ns = self->env->now_ns;
    if (!give_back->able || populate->running || self->draining) {
        return;
    }
    if (populate->there_bytes <= reg_populate_target(self)) {
        populate->limit_bytes = give_back->end_bytes = UINT64_MAX; /* quiet is what stays so anew */
        if (give_back->swept) {
            give_back->next_ns = SL_NEVER_NS;
            return;
        }
    }
    if (give_back->next_ns == SL_NEVER_NS) {
        give_back->next_ns = sl_deadline_ns(now_ns, LOOK_NS); /* the next one may be on its way */
    } else if (give_back->next_ns <= now_ns) {
        give_back->next_ns = sl_deadline_ns(now_ns, step(self));
    }
}

static uint64_t give_back_next(const struct registrar *self)
{
    const struct reg_give_back *give_back = self->give_back;
    bool waits = give_back->able && !self->populate->running && !self->draining;
    return waits ? give_back->next_ns : SL_NEVER_NS;
}

static void give_back_started(struct registrar *self)
{
    /* Of a registrar that died in the middle. */
    self->give_back->next_ns = sl_deadline_ns(self->env->now_ns, REG_GIVE_BACK_AFTER_NS);
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
