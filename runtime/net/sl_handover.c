/* runtime/net/sl_handover.c - see sl_handover.h: states of a hand-over. */
#include "runtime/net/sl_handover.h"
#include "runtime/base/sl_clock.h"

#include <string.h>

static void state_enter(struct sl_handover *handover, enum sl_handover_state state, uint64_t now_ns)
{
    handover->state = state;
    handover->deadline_ns = state == SL_HANDOVER_RELEASED
                                ? SL_NEVER_NS
                                : sl_deadline_ns(now_ns, handover->limit_ns[state]);
}

void sl_handover_start(struct sl_handover *handover, const uint64_t *limit_ns, uint64_t now_ns)
{
    *handover = (struct sl_handover){.code = SL_OK};
    memcpy(handover->limit_ns, limit_ns, sizeof(handover->limit_ns));
    state_enter(handover, SL_HANDOVER_ANNOUNCED, now_ns);
}

sl_err sl_handover_step(struct sl_handover *handover, enum sl_handover_state target,
                        uint64_t now_ns)
{
    bool release = target == SL_HANDOVER_RELEASED;
    SL_ASSERT(target != SL_HANDOVER_ABORTED);
    if (handover->state == SL_HANDOVER_RELEASED) {
        return release ? SL_ERR_EXISTS : SL_ERR_STALE;
    }
    if (release && handover->state >= SL_HANDOVER_CONSUMED && handover->loans != 0) {
        return SL_ERR_BUSY;
    }
    if (!release && handover->state == SL_HANDOVER_ABORTED) {
        return SL_ERR_CANCELLED;
    }
    if (handover->state >= target) {
        return SL_ERR_EXISTS;
    }
    if (release ? handover->state < SL_HANDOVER_CONSUMED
                : handover->state + 1u != (unsigned)target) {
        return SL_ERR_INVALID;
    }
    state_enter(handover, target, now_ns);
    return SL_OK;
}

sl_err sl_handover_abort(struct sl_handover *handover, sl_err code, uint64_t now_ns)
{
    if (handover->state == SL_HANDOVER_ABORTED) {
        return SL_ERR_EXISTS;
    }
    if (handover->state >= SL_HANDOVER_CONSUMED) {
        return SL_ERR_STALE;
    }
    handover->aborted_in = handover->state;
    handover->code = code;
    state_enter(handover, SL_HANDOVER_ABORTED, now_ns);
    return SL_OK;
}

void sl_handover_lend(struct sl_handover *handover, uint32_t loans)
{
    SL_ASSERT(handover->state != SL_HANDOVER_RELEASED);
    handover->loans |= loans;
}

void sl_handover_return(struct sl_handover *handover, uint32_t loans)
{
    handover->loans &= ~loans;
}

bool sl_handover_expire(struct sl_handover *handover, uint64_t now_ns)
{
    if (handover->state == SL_HANDOVER_RELEASED || now_ns < handover->deadline_ns) {
        return false;
    }
    if (handover->state < SL_HANDOVER_CONSUMED) {
        (void)sl_handover_abort(handover, SL_ERR_TIMEOUT, now_ns);
    } else if (sl_handover_step(handover, SL_HANDOVER_RELEASED, now_ns) == SL_ERR_BUSY) {
        state_enter(handover, handover->state, now_ns);
    }
    return true;
}

const char *sl_handover_state_text(enum sl_handover_state state)
{
    static const char *const texts[SL_HANDOVER_STATES] = {
        [SL_HANDOVER_ANNOUNCED] = "announced", [SL_HANDOVER_ALLOCATED] = "allocated",
        [SL_HANDOVER_PRODUCING] = "producing", [SL_HANDOVER_COMMITTED] = "committed",
        [SL_HANDOVER_CONSUMED] = "consumed",   [SL_HANDOVER_ABORTED] = "aborted",
        [SL_HANDOVER_RELEASED] = "released",
    };
    return (unsigned)state < SL_HANDOVER_STATES ? texts[state] : "?";
}
