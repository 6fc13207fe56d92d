/* actors/registrar/writers/space_queue.c - RESERVEs that wait for space, first come, first served.
 */
#include "actors/registrar/writers/space_queue.h"
#include "actors/registrar/base/events.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/answers.h"
#include "actors/registrar/disk/promote.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/writers/reserve.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define COPIES_LOOK_NS SL_NS_PER_S

static struct sl_text text_copy(char **at, struct sl_text text)
{
    if (text.length > 0) {
        memcpy(*at, text.at, text.length);
    }
    struct sl_text copy = {.at = *at, .length = text.length};
    (*at)[text.length] = '\0';
    *at += text.length + 1;
    return copy;
}

static uint64_t request_bytes(const struct reg_request *req)
{
    uint64_t bytes = sizeof(struct reg_space_waiter) + req->item_count * sizeof(*req->items) +
                     req->group_count * sizeof(*req->groups);
    for (uint32_t i = 0; i < req->item_count; i++) {
        bytes += req->items[i].key.length + req->items[i].writer.length +
                 req->items[i].bundle.length + 3;
    }
    for (uint32_t i = 0; i < req->group_count; i++) {
        bytes += req->groups[i].key.length + 1;
    }
    return bytes;
}

static struct reg_space_waiter *waiter_make(const struct reg_request *req, uint64_t bytes)
{
    struct reg_space_waiter *waiter = malloc(bytes);
    if (waiter == NULL) {
        return NULL;
    }
    struct sl_item_want *items = (struct sl_item_want *)(void *)(waiter + 1);
    struct sl_item_group *groups = (struct sl_item_group *)(void *)(items + req->item_count);
    char *at = (char *)(groups + req->group_count);
    *waiter = (struct reg_space_waiter){.request = *req, .bytes = bytes};
    for (uint32_t i = 0; i < req->item_count; i++) {
        items[i] = req->items[i];
        items[i].key = text_copy(&at, req->items[i].key);
        items[i].writer = text_copy(&at, req->items[i].writer);
        items[i].bundle = text_copy(&at, req->items[i].bundle);
    }
    for (uint32_t i = 0; i < req->group_count; i++) {
        groups[i] = req->groups[i];
        groups[i].key = text_copy(&at, req->groups[i].key);
    }
    waiter->request.items = items;
    waiter->request.groups = groups;
    return waiter;
}

uint64_t reg_space_queue_need(const struct registrar *self)
{
    const struct reg_space_waiter *first = self->space_queue->first;
    return first != NULL ? first->need_bytes : 0;
}

sl_err reg_request_park(struct registrar *self, const struct reg_request *req,
                        const struct sl_reply_route *back, uint64_t need_bytes,
                        struct sl_error *why)
{
    uint64_t bytes = request_bytes(req);
    struct reg_space_queue *line = self->space_queue;
    if (self->space.waiting_count >= self->set.queue_messages) {
        return sl_fail(why, SL_ERR_LIMIT, "%u requests wait for space already: queue_messages",
                       self->space.waiting_count);
    }
    if (line->bytes + bytes > 4 * self->set.message_bytes_max) {
        return sl_fail(why, SL_ERR_LIMIT,
                       "requests that wait for space have %" PRIu64
                       " KiB already: ask for fewer at once, or raise message_bytes_max",
                       line->bytes / 1024);
    }
    struct reg_space_waiter *waiter = waiter_make(req, bytes);
    if (waiter == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, REG_WAIT_NO_MEMORY);
    }
    waiter->back = *back;
    waiter->need_bytes = need_bytes;
    *(line->end != NULL ? line->end : &line->first) = waiter;
    line->end = &waiter->next;
    line->bytes += bytes;
    self->space.waiting_count++;
    sl_trace_event(self->env->metrics, self->env->now_ns, req->trace_id, "reserve waits", back->to,
                   req->item_count);
    return SL_OK;
}

/* at: the pointer that links it. */
static void waiter_free(struct registrar *self, struct reg_space_waiter **at)
{
    struct reg_space_waiter *waiter = *at;
    struct reg_space_queue *line = self->space_queue;
    *at = waiter->next;
    line->end = waiter->next == NULL ? at : line->end;
    line->bytes -= waiter->bytes;
    self->space.waiting_count--;
    free(waiter);
}

static void waiter_retry(struct registrar *self)
{
    while (self->space.freed && self->space.waiting_count > 0) {
        struct reg_space_waiter *waiter = self->space_queue->first;
        uint64_t need_bytes = 0;
        if (reg_request_run(self, &waiter->request, true, &need_bytes) == REG_RESERVE_PARK) {
            self->space.freed = false;
            return;
        }
        reg_request_answer(self, &waiter->request, &waiter->back);
        waiter_free(self, &self->space_queue->first);
    }
    self->space.freed = false;
}

static void waiter_expire(struct registrar *self)
{
    uint64_t now_ns = self->env->now_ns;
    struct reg_space_waiter **at = &self->space_queue->first;
    while (*at != NULL) {
        struct reg_space_waiter *waiter = *at;
        if (waiter->back.deadline_ns > now_ns) {
            at = &waiter->next;
            continue;
        }
        uint64_t need_bytes = 0;
        waiter->request.wait = waiter->request.while_expected = false;
        (void)reg_request_run(self, &waiter->request, false, &need_bytes);
        reg_request_answer(self, &waiter->request, &waiter->back);
        waiter_free(self, at);
        self->space.freed = true; /* requests after it may fit */
    }
}

/* op_id 0: all requests of the owner. */
static void waiter_end(struct registrar *self, struct sl_proc_id owner, uint64_t op_id)
{
    struct reg_space_waiter **at = &self->space_queue->first;
    while (*at != NULL) {
        const struct reg_request *request = &(*at)->request;
        if (sl_proc_id_equal(request->owner, owner) && (op_id == 0 || request->op_id == op_id)) {
            waiter_free(self, at);
            self->space.freed = true;
        } else {
            at = &(*at)->next;
        }
    }
}

static void waiter_forget(struct registrar *self, uint32_t peer)
{
    waiter_end(self, self->peers->all[peer].proc, 0);
}

void reg_space_queue_abort(struct registrar *self, struct sl_proc_id owner, uint64_t op_id)
{
    SL_ASSERT(op_id != 0);
    waiter_end(self, owner, op_id);
}

static void waiter_refuse(struct registrar *self, sl_err code)
{
    while (self->space_queue->first != NULL) {
        struct sl_msg reply = {.code = code};
        sl_reply_route_send(self->env, &self->space_queue->first->back, &reply);
        waiter_free(self, &self->space_queue->first);
    }
}

static void waiter_fini(struct registrar *self)
{
    while (self->space_queue->first != NULL) {
        waiter_free(self, &self->space_queue->first);
    }
}

static uint64_t waiter_next(const struct registrar *self)
{
    uint64_t next_ns = SL_NEVER_NS;
    for (const struct reg_space_waiter *waiter = self->space_queue->first; waiter != NULL;
         waiter = waiter->next) {
        next_ns = SL_MIN(next_ns, waiter->back.deadline_ns);
    }
    if (self->space.waiting_count > 0 && self->space_queue->copies) {
        next_ns = SL_MIN(next_ns, self->env->now_ns + COPIES_LOOK_NS);
    }
    return next_ns;
}

bool reg_space_queue_already(const struct registrar *self, const struct sl_reply_route *back)
{
    for (const struct reg_space_waiter *waiter = self->space_queue->first; waiter != NULL;
         waiter = waiter->next) {
        if (waiter->back.seq == back->seq && strcmp(waiter->back.to, back->to) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- the part ---- */

static void space_queue_drain(struct registrar *self)
{
    waiter_refuse(self, SL_ERR_DRAINING);
}

static void space_queue_after(struct registrar *self)
{
    bool waiting = self->space.waiting_count > 0;
    bool copies = reg_copy_required(self);
    /* A disk that requests waited for counts as absent now: values may leave without a copy. */
    self->space.freed = self->space.freed || (self->space_queue->copies && !copies);
    self->space_queue->copies = copies;
    waiter_retry(self);
    if (waiting && self->space.waiting_count == 0) { /* reads ahead of use waited for them */
        reg_promotes_pump(self);
    }
}

static void space_queue_gauges(struct registrar *self)
{
    struct sl_metrics *page = self->env->metrics;
    sl_metric_set(page, self->space_queue->metric.waiting_count, self->space.waiting_count);
}

static const struct sl_metric_row metrics[] = {
    REG_METRIC(reg_space_queue, waiting_count),
};

const struct reg_part reg_space_queue_part = {
    .name = "space_queue",
    REG_STATE(space_queue, reg_space_queue),
    REG_METRICS(metrics),
    .drain = space_queue_drain,
    .fini = waiter_fini,
    .tick = waiter_expire,
    .after = space_queue_after,
    .next_ns = waiter_next,
    .left = waiter_forget,
    .gauges = space_queue_gauges,
};
