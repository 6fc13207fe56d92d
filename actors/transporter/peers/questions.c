/* actors/transporter/peers/questions.c - one question to one or many peers, and their answers in
 * time. A fetch batch of BRING asks one peer, SEEK asks all of them. */
#include "actors/transporter/peers/peers.h"

void tr_question_begin(struct transporter *self, struct tr_question *question, uint64_t left_ns)
{
    uint64_t patience_ns = sl_config_u64(self->env->config, SL_SET_peer_timeout);
    question->patient = left_ns >= patience_ns;
    question->due_ns = sl_deadline_ns(self->env->now_ns, SL_MIN(left_ns, patience_ns));
    question->waited = 0;
}

/* Removes the question from the list of open ones. */
static void question_close(struct transporter *self, const struct tr_question *question)
{
    struct tr_question **link = &self->questions;
    while (*link != question) {
        link = &(*link)->next;
    }
    *link = question->next;
}

static void question_open(struct transporter *self, struct tr_question *question)
{
    struct tr_question **link = &self->questions;
    while (*link != NULL) {
        link = &(*link)->next;
    }
    question->next = NULL;
    *link = question;
}

sl_err tr_question_ask(struct transporter *self, struct tr_question *question, uint32_t number,
                       struct sl_msg *msg)
{
    struct tr_peer *peer = &self->peers[number];
    uint64_t left_ns = sl_budget_ns(self->env->now_ns, question->due_ns);
    msg->budget_ns = SL_MAX(left_ns, UINT64_C(1));
    sl_err err = tr_peer_ask(self, peer, msg, &question->seqs[number]);
    if (err != SL_OK) {
        return err;
    }
    sl_peer_health_asked(&peer->health);
    peer->owes_since_ns = peer->owes_since_ns != 0 ? peer->owes_since_ns : self->env->now_ns;
    if (question->waited == 0) {
        question_open(self, question);
    }
    question->type = msg->type;
    question->waited |= UINT64_C(1) << number;
    return SL_OK;
}

/* Calls the owner, which may begin another question or free the memory of this one. */
static void question_answered(struct transporter *self, struct tr_question *question,
                              uint32_t number, const struct sl_msg *reply)
{
    question->waited &= ~(UINT64_C(1) << number);
    if (question->waited == 0) {
        question_close(self, question);
    }
    question->answered(self, question, number, reply);
}

bool tr_question_answered(struct transporter *self, struct tr_peer *peer,
                          const struct sl_msg *reply)
{
    peer->owes_since_ns = 0; /* also if no question waits for this answer any more */
    uint32_t number = tr_peer_number(self, peer);
    for (struct tr_question *question = self->questions; question != NULL;
         question = question->next) {
        if ((question->waited >> number & 1) != 0 && question->seqs[number] == reply->reply_to &&
            question->type + 1 == reply->type) {
            question_answered(self, question, number, reply);
            return true;
        }
    }
    return false;
}

void tr_question_end(struct transporter *self, struct tr_question *question)
{
    if (question->waited == 0) {
        return;
    }
    for (uint64_t peers = question->waited; peers != 0; peers &= peers - 1) {
        sl_peer_health_over(&self->peers[__builtin_ctzll(peers)].health);
    }
    question->waited = 0;
    question_close(self, question);
}

/* A question with little time left does not prove that its peer is silent. Many in a row do. */
static bool is_silent(const struct transporter *self, const struct tr_question *question,
                      const struct tr_peer *peer)
{
    uint64_t patience_ns = sl_config_u64(self->env->config, SL_SET_peer_timeout);
    bool owes = peer->owes_since_ns != 0 &&
                self->env->now_ns >= sl_deadline_ns(peer->owes_since_ns, patience_ns);
    return question->patient || owes;
}

static void question_overdue(struct transporter *self, struct tr_question *question)
{
    while (question->waited != 0) {
        uint32_t number = (uint32_t)__builtin_ctzll(question->waited);
        struct tr_peer *peer = &self->peers[number];
        sl_peer_health_over(&peer->health);
        if (is_silent(self, question, peer)) {
            sl_metric_add(self->env->metrics, self->metric.peer_timeouts, 1);
            tr_peer_failed(self, peer);
            bool left = sl_peer_health_state(&peer->health, self->env->now_ns) == SL_PEER_BROKEN;
            peer->owes_since_ns =
                left ? 0 : peer->owes_since_ns; /* trials get the full time again */
        }
        question_answered(self, question, number, NULL);
    }
}

uint64_t tr_questions_step(struct transporter *self, uint64_t now_ns)
{
    uint64_t next_ns = SL_NEVER_NS;
    struct tr_question *next = NULL;
    for (struct tr_question *question = self->questions; question != NULL; question = next) {
        next = question->next;
        if (question->due_ns <= now_ns) {
            question_overdue(self, question);
        } else {
            next_ns = SL_MIN(next_ns, question->due_ns);
        }
    }
    return next_ns;
}
