/* actors/registrar/engines/ends.c - the end of a registration whose process lives on. The process
 * may unmap the memory, or register another, as soon as ENGINE_END is answered. So the actors that
 * copy there are notified, and the answer waits until they have released the memory: first the
 * coordinator, and the transporter (its NICs deregister it), then the swappers, which unmap it. */
#include "actors/registrar/base/part.h"
#include "actors/registrar/engines/engines.h"
#include "actors/registrar/presence/peers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MAX          64u /* from the message table */
#define TARGET_COORDINATOR RANKS_MAX
#define TARGET_TRANSPORTER (RANKS_MAX + 1u)
#define TARGETS_MAX        (RANKS_MAX + 2u)
#define TRANSPORTER        "transporter.0"
#define ENDS_MAX           64u
#define NOTE_NS            SL_NS_PER_S /* transporters read the list every second anyway */

struct engine_end {
    uint64_t engine_id;         /* 0: free */
    struct sl_reply_route back; /* for the answer */
    uint32_t open;              /* notified actors that have not replied */
    uint64_t ranks;             /* swappers to notify after the others */
    bool late;                  /* an actor did not reply in time */
};
struct reg_ends {
    struct engine_end all[ENDS_MAX];
};

static void name_of(uint32_t target, char out[REG_NAME_BYTES])
{
    if (target < RANKS_MAX) {
        (void)snprintf(out, REG_NAME_BYTES, "swapper.%u", target);
    } else {
        (void)snprintf(out, REG_NAME_BYTES, "%s",
                       target == TARGET_TRANSPORTER ? TRANSPORTER : "coordinator");
    }
}

/* Notifies an actor unless it is dead: death releases memory, and a successor asks for engines. */
static void end_notify(struct registrar *self, uint32_t row, uint32_t target, uint64_t deadline_ns)
{
    struct engine_end *end = &self->ends->all[row];
    char to[REG_NAME_BYTES];
    name_of(target, to);
    uint32_t peer = reg_peer_find(self, to, strlen(to));
    if (peer == REG_NONE || !reg_peer_alive(self, peer)) {
        return;
    }
    struct sl_msg msg = {.type = SL_MSG_ENGINE_OVER, .trace_id = end->back.trace_id};
    msg.body.engine_over.engine_id = end->engine_id;
    if (sl_calls_send(self->calls, to, &msg, deadline_ns,
                      reg_cookie(REG_CALL_ENGINE_OVER, row * TARGETS_MAX + target),
                      NULL) == SL_OK) {
        end->open++;
    } else {
        end->late = true;
    }
}

/* The first actors get three quarters of the time. If one is late, the answer is a timeout. */
static uint64_t first_deadline_ns(const struct registrar *self, const struct engine_end *end)
{
    uint64_t budget_ns = sl_budget_ns(self->env->now_ns, end->back.deadline_ns);
    return sl_deadline_ns(self->env->now_ns, budget_ns - budget_ns / 4);
}

static void end_continue(struct registrar *self, uint32_t row)
{
    struct engine_end *end = &self->ends->all[row];
    if (end->open > 0) {
        return;
    }
    uint64_t ranks = end->ranks;
    end->ranks = 0;
    for (uint32_t rank = 0; rank < RANKS_MAX; rank++) {
        if ((ranks >> rank & 1) != 0) {
            end_notify(self, row, rank, end->back.deadline_ns);
        }
    }
    struct sl_msg reply = {.code = end->late ? SL_ERR_TIMEOUT : SL_OK};
    if (end->open > 0) {
        return;
    }
    sl_reply_route_send(self->env, &end->back, &reply);
    *end = (struct engine_end){0};
}

void reg_engine_end_wait(struct registrar *self, const struct sl_msg *msg, uint64_t ranks)
{
    uint64_t id = msg->body.engine_end.engine_id;
    uint32_t row = ENDS_MAX;
    for (uint32_t i = 0; i < ENDS_MAX; i++) {
        struct engine_end *end = &self->ends->all[i];
        if (end->engine_id == id) { /* sent again: one answer, to the last request */
            sl_reply_route_keep(msg, &end->back);
            return;
        }
        row = end->engine_id == 0 ? i : row;
    }
    if (row == ENDS_MAX) { /* a repeated request may find room */
        sl_reply_fail(self->env, msg, SL_ERR_LIMIT, "%u registrations are ending", ENDS_MAX);
        return;
    }
    struct engine_end *end = &self->ends->all[row];
    end->engine_id = id;
    end->ranks = ranks;
    sl_reply_route_keep(msg, &end->back);
    for (uint32_t target = TARGET_COORDINATOR; target < TARGETS_MAX; target++) {
        end_notify(self, row, target, first_deadline_ns(self, end));
    }
    end_continue(self, row);
}

void reg_transporter_notify(struct registrar *self, uint32_t type, uint64_t engine_id)
{
    struct sl_msg msg = {.type = type};
    if (type == SL_MSG_ENGINE_OVER) {
        msg.body.engine_over.engine_id = engine_id;
    } else {
        msg.body.engine_added.engine_id = engine_id;
    }
    uint32_t peer = reg_peer_find(self, TRANSPORTER, strlen(TRANSPORTER));
    if (peer != REG_NONE && reg_peer_alive(self, peer)) {
        /* A call, since the first message to an actor must be repeated once it is connected. */
        (void)sl_calls_send(self->calls, TRANSPORTER, &msg,
                            sl_deadline_ns(self->env->now_ns, NOTE_NS),
                            reg_cookie(REG_CALL_ENGINE_NOTE, 0), NULL);
    }
}

/* An actor of the previous release does not know ENGINE_OVER; it notices the end within 2 s. */
static void over_replied(struct registrar *self, uint32_t index, const struct sl_msg *msg)
{
    struct engine_end *end = &self->ends->all[index / TARGETS_MAX];
    (void)msg;
    end->open--;
    end_continue(self, index / TARGETS_MAX);
}

static void over_expired(struct registrar *self, uint32_t index)
{
    struct engine_end *end = &self->ends->all[index / TARGETS_MAX];
    char name[REG_NAME_BYTES];
    name_of(index % TARGETS_MAX, name);
    reg_log(self, SL_LOG_WARN, end->back.trace_id,
            "engine %" PRIu64 " ended, but %s has not confirmed that it released the memory",
            end->engine_id, name);
    end->open--;
    end->late = true;
    end_continue(self, index / TARGETS_MAX);
}

static void note_replied(struct registrar *self, uint32_t index, const struct sl_msg *msg)
{
    (void)self;
    (void)index;
    (void)msg;
}

static const struct reg_call calls[] = {
    {.kind = REG_CALL_ENGINE_OVER, .reply = over_replied, .expired = over_expired},
    {.kind = REG_CALL_ENGINE_NOTE, .reply = note_replied},
};

const struct reg_part reg_ends_part = {
    .name = "ends",
    REG_STATE(ends, reg_ends),
    REG_CALLS(calls),
};
