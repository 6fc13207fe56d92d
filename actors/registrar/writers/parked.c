/* actors/registrar/writers/parked.c - RESERVEs that wait for space, first come, first served. */
#include "actors/registrar/writers/parked.h"
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
    uint64_t bytes = sizeof(struct reg_parked) + req->item_count * sizeof(*req->items) +
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

static struct reg_parked *parked_make(const struct reg_request *req, uint64_t bytes)
{
    struct reg_parked *parked = malloc(bytes);
    if (parked == NULL) {
        return NULL;
    }
    struct sl_item_want *items = (struct sl_item_want *)(void *)(parked + 1);
    struct sl_item_group *groups = (struct sl_item_group *)(void *)(items + req->item_count);
    char *at = (char *)(groups + req->group_count);
    *parked = (struct reg_parked){.request = *req, .bytes = bytes};
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
    parked->request.items = items;
    parked->request.groups = groups;
    return parked;
}

uint64_t reg_parked_need(const struct registrar *self)
{
    const struct reg_parked *first = self->parking->first;
    return first != NULL ? first->need_bytes : 0;
}

sl_err reg_request_park(struct registrar *self, const struct reg_request *req,
                        const struct sl_reply_route *back, uint64_t need_bytes,
                        struct sl_error *why)
{
    uint64_t bytes = request_bytes(req);
    struct reg_parking *line = self->parking;
    if (self->space.parked_count >= self->set.queue_messages) {
        return sl_fail(why, SL_ERR_LIMIT, "%u requests wait for space already: queue_messages",
                       self->space.parked_count);
    }
    if (line->bytes + bytes > 4 * self->set.message_bytes_max) {
        return sl_fail(why, SL_ERR_LIMIT,
                       "requests that wait for space have %" PRIu64
                       " KiB already: ask for fewer at once, or raise message_bytes_max",
                       line->bytes / 1024);
    }
    struct reg_parked *parked = parked_make(req, bytes);
    if (parked == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, REG_WAIT_NO_MEMORY);
    }
    parked->back = *back;
    parked->need_bytes = need_bytes;
    *(line->end != NULL ? line->end : &line->first) = parked;
    line->end = &parked->next;
    line->bytes += bytes;
    self->space.parked_count++;
    sl_trace_event(self->env->metrics, self->env->now_ns, req->trace_id, "reserve waits", back->to,
                   req->item_count);
    return SL_OK;
}

/* at: the pointer that links it. */
static void parked_free(struct registrar *self, struct reg_parked **at)
{
    struct reg_parked *parked = *at;
    struct reg_parking *line = self->parking;
    *at = parked->next;
    line->end = parked->next == NULL ? at : line->end;
    line->bytes -= parked->bytes;
    self->space.parked_count--;
    free(parked);
}

static void parked_retry(struct registrar *self)
{
    while (self->space.freed && self->space.parked_count > 0) {
        struct reg_parked *parked = self->parking->first;
        uint64_t need_bytes = 0;
        if (reg_request_run(self, &parked->request, true, &need_bytes) == REG_RESERVE_PARK) {
            self->space.freed = false;
            return;
        }
        reg_request_answer(self, &parked->request, &parked->back);
        parked_free(self, &self->parking->first);
    }
    self->space.freed = false;
}

static void parked_expire(struct registrar *self)
{
    uint64_t now_ns = self->env->now_ns;
    struct reg_parked **at = &self->parking->first;
    while (*at != NULL) {
        struct reg_parked *parked = *at;
        if (parked->back.deadline_ns > now_ns) {
            at = &parked->next;
            continue;
        }
        uint64_t need_bytes = 0;
        parked->request.wait = parked->request.while_expected = false;
        (void)reg_request_run(self, &parked->request, false, &need_bytes);
        reg_request_answer(self, &parked->request, &parked->back);
        parked_free(self, at);
        self->space.freed = true; /* requests after it may fit */
    }
}

/* op_id 0: all requests of the owner. */
static void parked_end(struct registrar *self, struct sl_proc_id owner, uint64_t op_id)
{
    struct reg_parked **at = &self->parking->first;
    while (*at != NULL) {
        const struct reg_request *request = &(*at)->request;
        if (sl_proc_id_equal(request->owner, owner) && (op_id == 0 || request->op_id == op_id)) {
            parked_free(self, at);
            self->space.freed = true;
        } else {
            at = &(*at)->next;
        }
    }
}

static void parked_forget(struct registrar *self, uint32_t peer)
{
    parked_end(self, self->peers->all[peer].proc, 0);
}

void reg_parked_abort(struct registrar *self, struct sl_proc_id owner, uint64_t op_id)
{
    SL_ASSERT(op_id != 0);
    parked_end(self, owner, op_id);
}

static void parked_refuse(struct registrar *self, sl_err code)
{
    while (self->parking->first != NULL) {
        struct sl_msg reply = {.code = code};
        sl_reply_route_send(self->env, &self->parking->first->back, &reply);
        parked_free(self, &self->parking->first);
    }
}

static void parked_fini(struct registrar *self)
{
    while (self->parking->first != NULL) {
        parked_free(self, &self->parking->first);
    }
}

static uint64_t parked_next(const struct registrar *self)
{
    uint64_t next_ns = SL_NEVER_NS;
    for (const struct reg_parked *parked = self->parking->first; parked != NULL;
         parked = parked->next) {
        next_ns = SL_MIN(next_ns, parked->back.deadline_ns);
    }
    if (self->space.parked_count > 0 && self->parking->copies) {
        next_ns = SL_MIN(next_ns, self->env->now_ns + COPIES_LOOK_NS);
    }
    return next_ns;
}

bool reg_parked_already(const struct registrar *self, const struct sl_reply_route *back)
{
    for (const struct reg_parked *parked = self->parking->first; parked != NULL;
         parked = parked->next) {
        if (parked->back.seq == back->seq && strcmp(parked->back.to, back->to) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- the part ---- */

static void parking_drain(struct registrar *self)
{
    parked_refuse(self, SL_ERR_DRAINING);
}

static void parking_after(struct registrar *self)
{
    bool parked = self->space.parked_count > 0;
    bool copies = reg_copy_required(self);
    /* A disk that requests waited for counts as absent now: values may leave without a copy. */
    self->space.freed = self->space.freed || (self->parking->copies && !copies);
    self->parking->copies = copies;
    parked_retry(self);
    if (parked && self->space.parked_count == 0) { /* reads ahead of use waited for them */
        reg_promotes_pump(self);
    }
}

static void parking_gauges(struct registrar *self)
{
    struct sl_metrics *page = self->env->metrics;
    sl_metric_set(page, self->parking->metric.parked_count, self->space.parked_count);
}

static const struct sl_metric_row metrics[] = {
    REG_METRIC(reg_parking, parked_count),
};

const struct reg_part reg_parking_part = {
    .name = "parking",
    REG_STATE(parking, reg_parking),
    REG_METRICS(metrics),
    .drain = parking_drain,
    .fini = parked_fini,
    .tick = parked_expire,
    .after = parking_after,
    .next_ns = parked_next,
    .left = parked_forget,
    .gauges = parking_gauges,
};
