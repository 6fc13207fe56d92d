/* tests/support/mailbox_wait.h - waits on a mailbox without an event loop. */
#ifndef TESTS_SUPPORT_MAILBOX_WAIT_H
#define TESTS_SUPPORT_MAILBOX_WAIT_H

#include "ipc/msg/mailbox_internal.h"

#include <string.h>

/* Longest single sleep: a lost wake-up costs this much instead of a hang. */
#define MAILBOX_SLEEP_NS_MAX (50 * SL_NS_PER_MS)

/* Waits for a frame, or returns SL_ERR_TIMEOUT after budget_ns. SL_OK is a hint: the frame may have
 * been for the mailbox itself. */
static inline sl_err mailbox_wait(struct sl_mailbox *mailbox, uint64_t budget_ns)
{
    uint64_t deadline_ns = sl_deadline_ns(sl_clock_monotonic_ns(), budget_ns);
    (void)sl_mailbox_block(mailbox, 0);
    for (;;) {
        if (sl_mailbox_pending(mailbox)) {
            return SL_OK;
        }
        uint64_t now_ns = sl_clock_monotonic_ns();
        if (now_ns >= deadline_ns) {
            return SL_ERR_TIMEOUT;
        }
        if (sl_mailbox_spin(mailbox, deadline_ns)) {
            return SL_OK;
        }
        uint64_t until_ns = SL_MIN(sl_mailbox_sleep(mailbox, now_ns), deadline_ns);
        (void)sl_mailbox_block(mailbox,
                               SL_MIN(sl_budget_ns(now_ns, until_ns), MAILBOX_SLEEP_NS_MAX));
    }
}

/* Whether our lane to this actor is attached. */
static inline bool mailbox_attached(const struct sl_mailbox *mailbox, const char *to)
{
    for (uint32_t i = 0; i < mailbox->lane_count; i++) {
        const struct sl_mailbox_lane *slot = &mailbox->lanes[i];
        if (slot->state == SL_LANE_STANDS && slot->ours && strcmp(slot->lane.name, to) == 0) {
            return true;
        }
    }
    return false;
}

/* Offers a lane to an actor if there is none, and waits for up to budget_ns until it is attached.
 * Errors: SL_ERR_UNREACHABLE, SL_ERR_INVALID (name), those of sl_mailbox_peer_of. */
static inline sl_err mailbox_connect(struct sl_mailbox *mailbox, const char *to, uint64_t budget_ns)
{
    uint64_t deadline_ns = sl_deadline_ns(sl_clock_monotonic_ns(), budget_ns);
    struct sl_mailbox_peer *peer = NULL;
    sl_err err = sl_actor_name_is_clean(to, strlen(to)) ? sl_mailbox_peer_of(mailbox, to, &peer)
                                                        : SL_ERR_INVALID;
    if (err != SL_OK) {
        return err;
    }
    while (!mailbox_attached(mailbox, to)) {
        uint64_t left_ns = sl_budget_ns(sl_clock_monotonic_ns(), deadline_ns);
        if (left_ns == 0) {
            return SL_ERR_UNREACHABLE;
        }
        (void)sl_mailbox_block(mailbox, SL_MIN(left_ns, SL_NS_PER_MS));
    }
    return SL_OK;
}

/* The same when both sides run on one thread. */
static inline void mailbox_meet(struct sl_mailbox *mailbox, struct sl_mailbox *actor)
{
    while (mailbox_connect(mailbox, actor->name, SL_NS_PER_MS) != SL_OK) {
        (void)sl_mailbox_block(actor, 0);
    }
}

#endif
