/* actors/transporter/fences.c - FENCE: is answered when nothing uses the memory that it names. With
 * claims: fetch batches may still read into them. Without claims: an op, or all that the sender
 * asked for, has ended, but pulls and hand-overs may still access its device blocks. */
#include "actors/transporter/handover/handover.h"
#include "actors/transporter/internal.h"
#include "actors/transporter/pull/pull.h"

static void fence_answer(struct transporter *self, struct tr_fence *fence)
{
    struct sl_msg reply = {.code = SL_OK};
    sl_reply_route_send(self->env, &fence->back, &reply);
    *fence = (struct tr_fence){0};
}

void tr_fences_over(struct transporter *self, uint64_t fences)
{
    for (; fences != 0; fences &= fences - 1) {
        struct tr_fence *fence = &self->fences[__builtin_ctzll(fences)];
        SL_ASSERT(fence->used && fence->waiting > 0);
        if (--fence->waiting == 0) {
            fence_answer(self, fence);
        }
    }
}

/* A fence is repeated until it is answered. */
static bool fence_waits(const struct transporter *self, const struct sl_msg *msg)
{
    for (uint32_t i = 0; i < TR_FENCES_MAX; i++) {
        if (self->fences[i].used && sl_reply_route_matches(&self->fences[i].back, msg)) {
            return true;
        }
    }
    return false;
}

void tr_fence(struct transporter *self, const struct sl_msg *msg)
{
    if (fence_waits(self, msg)) {
        return;
    }
    uint32_t at = 0;
    while (at < TR_FENCES_MAX && self->fences[at].used) {
        at++;
    }
    if (msg->body.fence.items.count == 0) {
        tr_fenced_note(&self->fenced, msg);
    }
    uint64_t bit = at < TR_FENCES_MAX ? UINT64_C(1) << at : 0;
    uint32_t waiting = tr_fetch_batches_fence(self, msg, bit) + tr_pulls_fence(self, msg, bit) +
                       tr_handover_fence(self, msg, bit);
    sl_metric_add(self->env->metrics, self->metric.fences, 1);
    if (waiting == 0) {
        sl_reply_code(self->env, msg, SL_OK, NULL);
        return;
    }
    self->env->ops->wake_at(self->env, 0);
    if (at == TR_FENCES_MAX) {
        return; /* table full: the sender repeats it, and would take a refusal for a hang */
    }
    self->fences[at] = (struct tr_fence){.used = true, .waiting = waiting};
    sl_reply_route_keep(msg, &self->fences[at].back);
}
