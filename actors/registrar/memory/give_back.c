/* actors/registrar/memory/give_back.c - what was contributed and is not any more goes back to the system.
 *
 * When less is wanted than is there, first the allocator loses what is behind: nobody gets it any
 * more, and values in it leave as values do. Then memory goes from the end of what is in use on, a
 * step at a time, so that neither the loop nor the machine has much to do at once.
 *
 * A page that goes stays with whoever registered it (sl_arena_keep). With a device, verbs or a disk
 * tier that is an actor, so nothing goes back; and clients say so before they pin memory for a GPU of
 * theirs. Clients of earlier releases do not, so nothing goes back while one is here. */
#include "actors/registrar/memory/give_back.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/memory/contributions.h"
#include "actors/registrar/memory/populate.h"
#include "actors/registrar/presence/peers.h"

#include <inttypes.h>
#include <string.h>

/* Of one step; a millisecond where pages are small. */
#define STEP_BYTES   (4 * SL_MIB)
#define SHRINK_BYTES (64 * SL_MIB) /* looked through by the allocator */
/* Between steps: an eighth of a core at most, as for memory that comes. */
#define PAUSE_NS (7 * SL_NS_PER_MS)
#define LOOK_NS  SL_NS_PER_S /* at what keeps the rest */

static void step_later(struct registrar *self, uint64_t ns)
{
    self->give_back->next_ns = sl_deadline_ns(self->env->now_ns, ns);
}

/* Everybody who may register memory says so before. */
static bool all_tell(const struct registrar *self)
{
    for (uint32_t i = 0; i < self->peers->high; i++) {
        const struct reg_peer *peer = &self->peers->all[i];
        if (peer->used && peer->pins != NULL && !sl_pins_view_tells_keep(peer->pins)) {
            return false;
        }
    }
    return true;
}

/* False: somebody keeps the pages, for ever. */
static bool give(struct registrar *self, uint64_t to_bytes)
{
    struct reg_give_back *give_back = self->give_back;
    struct reg_populate *populate = self->populate;
    struct sl_error why = {0};
    if (sl_arena_give_back(self->arena, to_bytes, &why) != SL_OK) {
        reg_log(self, SL_LOG_INFO, 0, "memory: what is not contributed any more stays, since %s",
                why.text);
        give_back->able = false;
        populate->limit_bytes = UINT64_MAX;
        return false;
    }
    uint64_t before_bytes = populate->there_bytes;
    populate->there_bytes = SL_MIN(before_bytes, to_bytes);
    sl_metric_add(self->env->metrics, give_back->metric.given_back_bytes,
                  before_bytes - populate->there_bytes);
    return true;
}

/* Pages that late readers touched. */
static void sweep(struct registrar *self)
{
    struct reg_give_back *give_back = self->give_back;
    if (!all_tell(self)) {
        give_back->sweep_ns = sl_deadline_ns(self->env->now_ns, REG_GIVE_BACK_AFTER_NS);
    } else if (give(self, self->populate->there_bytes)) {
        give_back->sweep_ns = 0;
    }
}

/* Whether the allocator has what is wanted, and no more. Takes some from it otherwise. */
static bool space_shrunk(struct registrar *self)
{
    struct reg_populate *populate = self->populate;
    uint64_t target_bytes = reg_populate_target(self);
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

static void step(struct registrar *self)
{
    struct reg_give_back *give_back = self->give_back;
    uint64_t there_bytes = self->populate->there_bytes;
    if (!all_tell(self)) {
        self->populate->limit_bytes = UINT64_MAX;
        step_later(self, LOOK_NS);
        return;
    }
    if (!space_shrunk(self)) {
        step_later(self, PAUSE_NS);
        return;
    }
    bool quiet = is_quiet(self);
    uint64_t floor_bytes = SL_MAX(give_back->end_bytes, reg_populate_target(self));
    if (!quiet || there_bytes <= floor_bytes) {
        step_later(self, LOOK_NS);
        return;
    }
    if (give(self, SL_MAX(floor_bytes, there_bytes - SL_MIN(there_bytes, STEP_BYTES)))) {
        give_back->sweep_ns = sl_deadline_ns(self->env->now_ns, REG_GIVE_BACK_AFTER_NS);
        step_later(self, PAUSE_NS);
    }
}

static void give_back_run(struct registrar *self)
{
    struct reg_give_back *give_back = self->give_back;
    struct reg_populate *populate = self->populate;
    if (!give_back->able || populate->running || self->draining) {
        return;
    }
    if (give_back->sweep_ns != 0 && give_back->sweep_ns <= self->env->now_ns) {
        sweep(self);
    }
    if (populate->there_bytes <= reg_populate_target(self)) {
        populate->limit_bytes = UINT64_MAX;
        give_back->next_ns = 0;
        give_back->end_bytes = UINT64_MAX;
    } else if (give_back->next_ns == 0) {
        step_later(self, LOOK_NS); /* the next contribution may be on its way */
    } else if (give_back->next_ns <= self->env->now_ns) {
        step(self);
    }
}

static uint64_t give_back_next(const struct registrar *self)
{
    const struct reg_give_back *give_back = self->give_back;
    if (!give_back->able || self->populate->running || self->draining) {
        return SL_NEVER_NS;
    }
    uint64_t step_ns = give_back->next_ns != 0 ? give_back->next_ns : SL_NEVER_NS;
    return give_back->sweep_ns != 0 ? SL_MIN(step_ns, give_back->sweep_ns) : step_ns;
}

static void give_back_started(struct registrar *self)
{
    /* Of a registrar that died in the middle. */
    self->give_back->sweep_ns = sl_deadline_ns(self->env->now_ns, REG_GIVE_BACK_AFTER_NS);
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
    .after = {REG_TURN_ANY, give_back_run},
    .next_ns = give_back_next,
};
