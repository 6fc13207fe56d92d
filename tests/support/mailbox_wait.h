/* tests/support/mailbox_wait.h - waiting for a mailbox by itself, without a loop. */
#ifndef TESTS_SUPPORT_MAILBOX_WAIT_H
#define TESTS_SUPPORT_MAILBOX_WAIT_H

#include "ipc/mailbox_internal.h"

#include <string.h>

/* Longest single sleep: a lost wake-up would cost this and not a hang. */
#define MAILBOX_SLEEP_NS_MAX (50 * SL_NS_PER_MS)

static inline int mailbox_events_of(void *socket)
{
    int events = 0;
    size_t size = sizeof(events);
    return zmq_getsockopt(socket, ZMQ_EVENTS, &events, &size) == 0 ? events : 0;
}

/* Whether a marked source has a frame, which stays where it is; empty ones lose their mark. */
static inline bool mailbox_frame_waits(struct sl_mailbox *mailbox)
{
    if (mailbox->held || sl_mailbox_lanes_ready(mailbox)) {
        return true;
    }
    for (uint32_t i = 0; i <= mailbox->peer_count; i++) {
        struct sl_mailbox_source *source =
            i == 0 ? &mailbox->router : &mailbox->peers[i - 1].dealer;
        if (!source->hot || source->socket == NULL) {
            continue;
        }
        if ((mailbox_events_of(source->socket) & ZMQ_POLLIN) != 0) {
            return true;
        }
        source->hot = false;
    }
    return false;
}

/* Waits for a frame or until budget_ns has passed: SL_ERR_TIMEOUT. SL_OK is a hint: the frame may have
 * been for the mailbox itself. */
static inline sl_err mailbox_wait(struct sl_mailbox *mailbox, uint64_t budget_ns)
{
    uint64_t deadline_ns = sl_deadline_ns(sl_clock_monotonic_ns(), budget_ns);
    (void)sl_mailbox_block(mailbox, 0);
    for (;;) {
        if (mailbox_frame_waits(mailbox)) {
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

/* Whether our lane to this actor stands. */
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

/* Makes the connection to an actor, if there is none, and waits until one stands (of either transport)
 * or budget_ns has passed. Errors: SL_ERR_UNREACHABLE, SL_ERR_INVALID (name), those of
 * sl_mailbox_peer_of. */
static inline sl_err mailbox_connect(struct sl_mailbox *mailbox, const char *to, uint64_t budget_ns)
{
    uint64_t deadline_ns = sl_deadline_ns(sl_clock_monotonic_ns(), budget_ns);
    struct sl_mailbox_peer *peer = NULL;
    sl_err err = sl_actor_name_is_clean(to, strlen(to)) ? sl_mailbox_peer_of(mailbox, to, &peer)
                                                        : SL_ERR_INVALID;
    if (err != SL_OK) {
        return err;
    }
    for (;;) {
        sl_mailbox_peer_hear(mailbox, peer);
        peer->usable =
            peer->connected && (mailbox_events_of(peer->dealer.socket) & ZMQ_POLLOUT) != 0;
        peer->dealer.hot = true;
        if (peer->usable || mailbox_attached(mailbox, to)) {
            return SL_OK;
        }
        uint64_t left_ns = sl_budget_ns(sl_clock_monotonic_ns(), deadline_ns);
        if (left_ns == 0) {
            return SL_ERR_UNREACHABLE;
        }
        (void)sl_mailbox_block(
            mailbox, SL_MIN(left_ns, peer->connected ? SL_NS_PER_MS : MAILBOX_SLEEP_NS_MAX));
    }
}

#endif
