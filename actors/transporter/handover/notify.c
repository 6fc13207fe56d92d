/* actors/transporter/handover/notify.c - HANDOVER_NOTIFY: forwards messages between the
 * coordinators of the two nodes of a hand-over. Nothing is stored: a coordinator repeats what was
 * not answered. */
#include "actors/transporter/handover/handover.h"

void tr_handover_notify(struct transporter *self, const struct sl_msg *msg)
{
    const struct sl_body_handover_notify *body = &msg->body.handover_notify;
    struct tr_peer *peer = self->calls != NULL ? tr_peer_find(self, body->node.at) : NULL;
    struct sl_error why = {0};
    uint64_t seq = 0;
    sl_err err = SL_OK;
    if (peer == NULL || peer->address[0] == '\0') {
        err = sl_fail(&why, SL_ERR_UNREACHABLE, "node %.31s is no peer that can be asked",
                      body->node.at);
    } else {
        struct sl_msg word = {.type = SL_MSG_HANDOVER_NOTIFY, .trace_id = msg->trace_id};
        word.budget_ns = sl_config_u64(self->env->config, SL_SET_peer_timeout);
        word.body.handover_notify = *body;
        err = tr_peer_ask(self, peer, &word, &seq);
        if (err != SL_OK) {
            (void)sl_fail(&why, err, "node %.31s: %s", body->node.at, sl_err_text(err));
        }
    }
    sl_reply_code(self->env, msg, err, &why);
}

void tr_handover_notify_frame(struct transporter *self, struct tr_peer *peer,
                              const struct sl_msg *msg)
{
    struct sl_msg reply = {.code = SL_OK, .op_id = msg->op_id, .trace_id = msg->trace_id};
    struct sl_error why = {0};
    if (peer->incarnation == 0) {
        reply.code = sl_fail(&why, SL_ERR_PERMISSION, "send PEER_HELLO first");
        reply.text = sl_text_of(why.text);
    } else {
        struct sl_msg word = {.type = SL_MSG_HANDOVER_NOTIFY, .trace_id = msg->trace_id};
        word.body.handover_notify = msg->body.handover_notify;
        word.body.handover_notify.node = sl_text_of(peer->name);
        reply.code = sl_calls_send(self->calls, "coordinator", &word,
                                   sl_deadline_ns(self->env->now_ns, TR_CALL_NS),
                                   tr_cookie(TR_CALL_IGNORED, 0), NULL);
    }
    tr_peer_answer(self, peer, SL_MSG_HANDOVER_NOTIFY, msg->seq, &reply);
}
