/* actors/registrar/writers/parked.c - RESERVEs that wait for space, first come, first served; those of guests behind all
 * others. */
#include "actors/registrar/writers/parked.h"
#include "actors/registrar/base/events.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/promote.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/writers/reserve.h"

#include <stdlib.h>
#include <string.h>

#define COPIES_LOOK_NS SL_NS_PER_S
/* Guests have their own places, so many times fewer than all others. */
#define GUESTS_SHARE 4u

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

static struct reg_parked_line *line_of(struct registrar *self, const struct reg_request *req)
{
    return &self->parking->lines[req->guest ? REG_PARKED_GUESTS : REG_PARKED_OWN];
}

/* The line of whom a new request waits behind; it may be empty. */
static const struct reg_parked_line *line_before(const struct registrar *self, bool guest)
{
    const struct reg_parked_line *lines = self->parking->lines;
    return &lines[guest && lines[REG_PARKED_OWN].count == 0 ? REG_PARKED_GUESTS : REG_PARKED_OWN];
}

/* For parts that know nothing of lines. */
static void parked_note(struct registrar *self)
{
    const struct reg_parked_line *lines = self->parking->lines;
    self->space.guests_parked = lines[REG_PARKED_GUESTS].count;
    self->space.parked_count = lines[REG_PARKED_OWN].count + self->space.guests_parked;
}

bool reg_parked_before(const struct registrar *self, bool guest)
{
    return line_before(self, guest)->count > 0;
}

uint64_t reg_parked_need(const struct registrar *self, bool guest)
{
    const struct reg_parked *first = line_before(self, guest)->first;
    return first != NULL ? first->need_bytes : 0;
}

sl_err reg_request_park(struct registrar *self, const struct reg_request *req,
                        const struct sl_return *back, uint64_t need_bytes)
{
    uint64_t bytes = request_bytes(req);
    struct reg_parked_line *line = line_of(self, req);
    uint32_t share = req->guest ? GUESTS_SHARE : 1;
    if (line->count >= SL_MAX(self->set.queue_messages / share, 1u) ||
        line->bytes + bytes > 4 * self->set.message_bytes_max / share) {
        return SL_ERR_LIMIT;
    }
    struct reg_parked *parked = parked_make(req, bytes);
    if (parked == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    parked->back = *back;
    parked->need_bytes = need_bytes;
    if (line->last != NULL) {
        line->last->next = parked;
    } else {
        line->first = parked;
    }
    line->last = parked;
    line->count++;
    line->bytes += bytes;
    parked_note(self);
    sl_trace_event(self->env->metrics, self->env->now_ns, req->trace_id, "reserve waits", back->to,
                   req->item_count);
    return SL_OK;
}

/* at: where the pointer to it stands. */
static void parked_free(struct registrar *self, struct reg_parked **at, struct reg_parked *before)
{
    struct reg_parked *parked = *at;
    *at = parked->next;
    struct reg_parked_line *line = line_of(self, &parked->request);
    if (line->last == parked) {
        line->last = before;
    }
    line->count--;
    line->bytes -= parked->bytes;
    free(parked);
    parked_note(self);
}

static void parked_retry(struct registrar *self)
{
    while (self->space.freed && self->space.parked_count > 0) {
        struct reg_parked_line *line =
            &self->parking
                 ->lines[reg_parked_before(self, false) ? REG_PARKED_OWN : REG_PARKED_GUESTS];
        struct reg_parked *parked = line->first;
        uint64_t need_bytes = 0;
        if (reg_request_run(self, &parked->request, true, &need_bytes) == REG_RESERVE_PARK) {
            self->space.freed = false;
            return;
        }
        reg_request_answer(self, &parked->request, &parked->back);
        parked_free(self, &line->first, NULL);
    }
    self->space.freed = false;
}

static void line_expire(struct registrar *self, struct reg_parked_line *line)
{
    uint64_t now_ns = self->env->now_ns;
    struct reg_parked **at = &line->first;
    struct reg_parked *before = NULL;
    while (*at != NULL) {
        struct reg_parked *parked = *at;
        if (parked->back.deadline_ns > now_ns) {
            before = parked;
            at = &parked->next;
            continue;
        }
        uint64_t need_bytes = 0;
        parked->request.wait = parked->request.until_there = false;
        (void)reg_request_run(self, &parked->request, false, &need_bytes);
        reg_request_answer(self, &parked->request, &parked->back);
        parked_free(self, at, before);
        self->space.freed = true; /* who waited behind it may fit */
    }
}

static void parked_expire(struct registrar *self)
{
    for (uint32_t i = 0; i < REG_PARKED_LINES; i++) {
        line_expire(self, &self->parking->lines[i]);
    }
}

static void line_end(struct registrar *self, struct reg_parked_line *line, struct sl_proc_id owner,
                     uint64_t op_id)
{
    struct reg_parked **at = &line->first;
    struct reg_parked *before = NULL;
    while (*at != NULL) {
        const struct reg_request *request = &(*at)->request;
        if (sl_proc_id_equal(request->owner, owner) && (op_id == 0 || request->op_id == op_id)) {
            parked_free(self, at, before);
            self->space.freed = true;
        } else {
            before = *at;
            at = &(*at)->next;
        }
    }
}

/* op_id 0: all of the owner's. */
static void parked_end(struct registrar *self, struct sl_proc_id owner, uint64_t op_id)
{
    for (uint32_t i = 0; i < REG_PARKED_LINES; i++) {
        line_end(self, &self->parking->lines[i], owner, op_id);
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
    for (uint32_t i = 0; i < REG_PARKED_LINES; i++) {
        struct reg_parked_line *line = &self->parking->lines[i];
        while (line->first != NULL) {
            struct sl_msg reply = {.code = code};
            sl_return_reply(self->env, &line->first->back, &reply);
            parked_free(self, &line->first, NULL);
        }
    }
}

static void parked_fini(struct registrar *self)
{
    for (uint32_t i = 0; i < REG_PARKED_LINES; i++) {
        while (self->parking->lines[i].first != NULL) {
            parked_free(self, &self->parking->lines[i].first, NULL);
        }
    }
}

static uint64_t parked_next(const struct registrar *self)
{
    uint64_t next_ns = SL_NEVER_NS;
    for (uint32_t i = 0; i < REG_PARKED_LINES; i++) {
        for (const struct reg_parked *parked = self->parking->lines[i].first; parked != NULL;
             parked = parked->next) {
            next_ns = SL_MIN(next_ns, parked->back.deadline_ns);
        }
    }
    if (self->space.parked_count > 0 && self->parking->copies) {
        next_ns = SL_MIN(next_ns, self->env->now_ns + COPIES_LOOK_NS);
    }
    return next_ns;
}

bool reg_parked_already(const struct registrar *self, const struct sl_return *back)
{
    for (uint32_t i = 0; i < REG_PARKED_LINES; i++) {
        for (const struct reg_parked *parked = self->parking->lines[i].first; parked != NULL;
             parked = parked->next) {
            if (parked->back.seq == back->seq && strcmp(parked->back.to, back->to) == 0) {
                return true;
            }
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
    bool parked = reg_parked_before(self, false);
    bool copies = reg_copy_required(self);
    /* A disk that was waited for is taken for none: its values may leave memory without a copy. */
    self->space.freed = self->space.freed || (self->parking->copies && !copies);
    self->parking->copies = copies;
    parked_retry(self);
    if (parked && !reg_parked_before(self, false)) { /* what is read ahead of use waited for them */
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
    .tick = {REG_TICK_PARKING, parked_expire},
    .after = {REG_AFTER_PARKING, parking_after},
    .next_ns = parked_next,
    .left = {REG_LEFT_PARKING, parked_forget},
    .gauges = parking_gauges,
};
