/* actors/registrar/disk/answers.c - see answers.h. When a process leaves, its entries are dropped.
 * Deadlines wake the actor; each kind of request handles its own. */
#include "actors/registrar/disk/answers.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/remove.h"
#include "actors/registrar/presence/peers.h"

#include <stdlib.h>
#include <string.h>

static uint32_t most(const struct registrar *self, enum reg_answer_kind kind)
{
    uint32_t all = self->set.queue_messages;
    return kind == REG_ANSWER_REMOVE ? REG_REMOVES_MAX : kind == REG_ANSWER_AHEAD ? all / 2 : all;
}

bool reg_answer_waits(const struct registrar *self, const struct sl_msg *msg)
{
    for (uint32_t i = 0; i < self->answers->end; i++) {
        const struct reg_answer *answer = self->answers->all[i];
        if (answer != NULL && sl_reply_route_matches(&answer->back, msg)) {
            return true;
        }
    }
    return false;
}

void *reg_answer_new(struct registrar *self, const struct sl_msg *msg, enum reg_answer_kind kind,
                     size_t bytes)
{
    struct reg_answers *answers = self->answers;
    uint32_t slot = answers->end, count = 0;
    for (uint32_t i = answers->end; i-- > 0;) {
        slot = answers->all[i] == NULL ? i : slot;
        count += answers->all[i] != NULL && answers->all[i]->kind == kind;
    }
    if (reg_answer_waits(self, msg)) {
        return NULL; /* resent */
    }
    bool full = count >= most(self, kind);
    struct reg_answer *answer = full ? NULL : calloc(1, bytes);
    if (answer != NULL) {
        answer->id = ++answers->next * answers->max + slot;
        answer->kind = kind;
        sl_reply_route_keep(msg, &answer->back);
        answers->all[slot] = answer;
        answers->end = SL_MAX(answers->end, slot + 1);
    } else if (msg->type != SL_MSG_COMMIT && full) { /* a COMMIT has a code for each item */
        sl_reply_fail(self->env, msg, SL_ERR_LIMIT, "%u such requests wait already%s", count,
                      kind != REG_ANSWER_REMOVE ? ": queue_messages" : "");
    } else if (msg->type != SL_MSG_COMMIT) {
        sl_reply_fail(self->env, msg, SL_ERR_NO_MEMORY, REG_WAIT_NO_MEMORY);
    }
    return answer;
}

void *reg_answer_of(const struct registrar *self, uint64_t id)
{
    struct reg_answer *answer = self->answers->all[id % self->answers->max];
    return answer != NULL && answer->id == id ? answer : NULL;
}

void *reg_answer_next(const struct registrar *self, enum reg_answer_kind kind, uint32_t *at)
{
    while (*at < self->answers->end) {
        struct reg_answer *answer = self->answers->all[(*at)++];
        if (answer != NULL && answer->kind == kind) {
            return answer;
        }
    }
    return NULL;
}

void reg_answer_drop(struct registrar *self, struct reg_answer *answer)
{
    struct reg_answers *answers = self->answers;
    answers->all[answer->id % answers->max] = NULL;
    free(answer);
    while (answers->end > 0 && answers->all[answers->end - 1] == NULL) {
        answers->end--;
    }
}

/* ---- answers that wait for tombstones ---- */

void reg_remove_wait(struct registrar *self, uint64_t id, uint32_t index, uint32_t disk)
{
    struct reg_remove *remove = reg_answer_of(self, id);
    if (remove == NULL) {
        return;
    }
    remove->outstanding++;
    remove->tombstones[disk]++;
    if (remove->left != NULL && remove->left[index]++ == 0) {
        remove->codes[index] = (uint64_t)SL_ERR_TIMEOUT; /* until the tombstone is durable */
    }
}

void reg_remove_done(struct registrar *self, uint64_t id, uint32_t index, uint32_t disk)
{
    struct reg_remove *remove = reg_answer_of(self, id);
    if (remove == NULL) {
        return; /* answered at its deadline */
    }
    remove->outstanding--;
    remove->tombstones[disk]--;
    if (remove->left != NULL && --remove->left[index] == 0) {
        remove->codes[index] = (uint64_t)SL_OK;
    }
}

void reg_remove_failed(struct registrar *self, uint64_t id, uint32_t index, sl_err code)
{
    struct reg_remove *remove = reg_answer_of(self, id);
    if (remove == NULL) {
        return;
    }
    if (remove->left != NULL) {
        remove->left[index]++; /* never counted down, so the code stays */
        remove->codes[index] = (uint64_t)code;
    }
    remove->failed = code;
}

/* ---- the part ---- */

static sl_err answers_init(struct registrar *self, struct sl_error *why)
{
    struct reg_answers *answers = self->answers;
    for (uint32_t kind = REG_ANSWER_FLUSH; kind <= REG_ANSWER_AHEAD; kind++) {
        answers->max += most(self, kind);
    }
    answers->all = calloc(answers->max, sizeof(struct reg_answer *));
    return answers->all != NULL ? SL_OK : sl_fail(why, SL_ERR_NO_MEMORY, "table of answers");
}

static void answers_fini(struct registrar *self)
{
    while (self->answers->end > 0) {
        reg_answer_drop(self, self->answers->all[self->answers->end - 1]);
    }
    free(self->answers->all);
}

static void answers_forget(struct registrar *self, uint32_t peer)
{
    for (uint32_t i = 0; i < self->answers->end; i++) {
        struct reg_answer *answer = self->answers->all[i];
        if (answer != NULL && strcmp(answer->back.to, self->peers->all[peer].name) == 0) {
            reg_answer_drop(self, answer);
        }
    }
}

static uint64_t answers_next(const struct registrar *self)
{
    uint64_t next_ns = SL_NEVER_NS;
    for (uint32_t i = 0; i < self->answers->end; i++) {
        const struct reg_answer *answer = self->answers->all[i];
        next_ns = answer != NULL ? SL_MIN(next_ns, answer->back.deadline_ns) : next_ns;
    }
    return next_ns;
}

const struct reg_part reg_answers_part = {
    .name = "answers",
    REG_STATE(answers, reg_answers),
    .init = answers_init,
    .fini = answers_fini,
    .next_ns = answers_next,
    .left = answers_forget,
};
