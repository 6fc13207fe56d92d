/* actors/transporter/push/release.c - word between nodes that decode is done with a hand-over: what
 * prefill's node holds for it may go. What is lost between the nodes costs the time of the hold. */
#include "actors/transporter/push/push.h"

#include <string.h>

#define ITEMS_MAX 64u /* of the message table */

static sl_err item_tell(struct transporter *self, const struct sl_msg *msg,
                        const struct sl_item_receipt *item)
{
    struct tr_peer *peer =
        self->calls != NULL && item->node.length > 0 ? tr_peer_find(self, item->node.at) : NULL;
    uint64_t seq = 0;
    if (peer == NULL || peer->address[0] == '\0') {
        return SL_ERR_UNREACHABLE;
    }
    struct sl_msg release = {.type = SL_MSG_PEER_RELEASE, .trace_id = msg->trace_id};
    release.budget_ns = sl_config_u64(self->env->config, SL_SET_peer_timeout);
    release.body.peer_release.items.at = item;
    release.body.peer_release.items.count = 1;
    return tr_peer_ask(self, peer, &release, &seq);
}

void tr_release(struct transporter *self, const struct sl_msg *msg)
{
    uint64_t codes[ITEMS_MAX];
    uint64_t count = SL_MIN(msg->body.handover_release.items.count, (uint64_t)ITEMS_MAX);
    for (uint64_t i = 0; i < count; i++) {
        codes[i] = (uint64_t)item_tell(self, msg, &msg->body.handover_release.items.at[i]);
    }
    struct sl_msg reply = {.code = SL_OK};
    reply.body.handover_release_reply.codes = (struct sl_u64s){.at = codes, .count = count};
    sl_reply(self->env, msg, &reply);
}

void tr_release_frame(struct transporter *self, struct tr_peer *peer, const struct sl_msg *msg)
{
    struct sl_msg reply = {.code = SL_OK, .op_id = msg->op_id, .trace_id = msg->trace_id};
    struct sl_error why = {0};
    if (peer->incarnation == 0) {
        reply.code = sl_fail(&why, SL_ERR_PERMISSION, "say PEER_HELLO first");
        reply.text = sl_text_of(why.text);
    } else {
        struct sl_msg release = {.type = SL_MSG_HANDOVER_RELEASE, .trace_id = msg->trace_id};
        release.body.handover_release.from = sl_text_of(peer->name);
        release.body.handover_release.items.at = msg->body.peer_release.items.at;
        release.body.handover_release.items.count = msg->body.peer_release.items.count;
        reply.code = sl_calls_send(self->calls, "coordinator", &release,
                                   sl_deadline_ns(self->env->now_ns, TR_CALL_NS),
                                   tr_cookie(TR_CALL_NOBODY, 0), NULL);
    }
    tr_peer_answer(self, peer, SL_MSG_PEER_RELEASE, msg->seq, &reply);
}
