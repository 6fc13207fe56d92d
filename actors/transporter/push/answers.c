/* actors/transporter/push/answers.c - what both sides of a hand-over need: answers, and whether a peer is
 * gone. */
#include "actors/transporter/push/internal.h"

#include <inttypes.h>

bool push_peer_gone(const struct push *push, const struct tr_peer *peer, struct sl_error *why)
{
    uint64_t now_ns = push_now(push);
    uint64_t silent_ns = now_ns - peer->heard_ns;
    bool asked = peer->address[0] != '\0'; /* one that greeted us may not have answered us yet */
    uint64_t first_ns = asked ? peer->health.heard_ns : peer->heard_ns;
    bool gone = asked ? sl_peer_health_state(&peer->health, now_ns) == SL_PEER_AWAY
                      : silent_ns > peer->health.limits.silence_ns;
    if (!gone || (first_ns == 0 && now_ns < push->grace_ns)) {
        return false;
    }
    if (first_ns == 0) {
        (void)sl_fail(why, SL_ERR_UNREACHABLE, "node %s was never heard of", peer->name);
    } else {
        (void)sl_fail(why, SL_ERR_PEER_DIED, "node %s was last heard of %" PRIu64 " ms ago",
                      peer->name, silent_ns / SL_NS_PER_MS);
    }
    return true;
}

void push_reply(struct push *push, const struct sl_return *back, sl_err code, const char *text)
{
    struct sl_msg reply = {.code = code};
    if (code != SL_OK) {
        reply.text = sl_text_of(text[0] != '\0' ? text : sl_err_text(code));
    }
    sl_return_reply(push->self->env, back, &reply);
}

void push_peer_reply(struct push *push, struct tr_peer *peer, uint32_t type,
                     const struct sl_msg *msg, sl_err code, const char *text)
{
    struct sl_msg reply = {.code = code, .op_id = msg->op_id, .trace_id = msg->trace_id};
    if (code != SL_OK) {
        reply.text = sl_text_of(text);
    }
    tr_peer_answer(push->self, peer, type, msg->seq, &reply);
}
