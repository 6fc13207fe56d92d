/* actors/transporter/pull/objects.c - PULL_OBJECTS: values of other nodes straight into buffers that
 * clients registered. It is a PULL (straight.c) whose units are objects and whose spots are stretches of
 * buffers, which a value fills in their order.
 *
 * The client lends the stretches until the answer, or until the answer to a FENCE of its op. Whatever
 * it sent again, and is read only after that, must not begin: each buffer remembers the numbers of
 * requests that named it, fenced ops are remembered, and until_ns holds for a process that remembers
 * nothing. */
#include "actors/transporter/pull/pull.h"
#include "actors/transporter/regions/places.h"

#include <inttypes.h>
#include <stdlib.h>

/* A stretch is the sender's own, and lies in its buffer. */
static sl_err stretch_take(struct transporter *self, const struct sl_msg *msg, uint64_t number,
                           struct tr_spot *out, struct sl_error *why)
{
    const struct sl_item_lent *from = &msg->body.pull_objects.buffers.at[number];
    struct sl_fabric_place place;
    *out = (struct tr_spot){.engine_id = from->engine_id,
                            .lent_offset_bytes = from->offset_bytes,
                            .lent_bytes = from->length_bytes};
    bool first = number == 0 || from[-1].engine_id != from->engine_id;
    sl_err err = first ? tr_lent_check(self, from->engine_id, msg, why) : SL_OK;
    return err == SL_OK ? tr_lent_place(self, out, &place, why) : err;
}

/* They come in the order of the items. */
static sl_err stretches_take(struct transporter *self, const struct sl_msg *msg,
                             struct tr_item_spots *spots, struct sl_error *why)
{
    const struct sl_body_pull_objects *body = &msg->body.pull_objects;
    uint64_t at = 0;
    for (uint64_t item = 0; item < body->items.count; item++) {
        struct tr_item_size *size = &spots->sizes[item];
        if (body->items.at[item].group != 0) {
            return sl_fail(why, SL_ERR_INVALID, "PULL_OBJECTS.items[%" PRIu64 "].group is not 0",
                           item);
        }
        spots->first[item] = (uint32_t)at;
        size->read_count = 1;
        for (; at < body->buffers.count && body->buffers.at[at].item == item; at++) {
            sl_err err = stretch_take(self, msg, at, &spots->all[at], why);
            if (err != SL_OK) {
                return err;
            }
            size->place_count++;
            size->length_bytes += spots->all[at].lent_bytes; /* 2^16 times 2^47 at most */
        }
        if (size->place_count == 0) {
            return sl_fail(why, SL_ERR_INVALID, "PULL_OBJECTS.items[%" PRIu64 "] has no buffer",
                           item);
        }
        if (size->place_count > SL_FABRIC_PLACES_MAX) {
            return sl_fail(why, SL_ERR_LIMIT,
                           "PULL_OBJECTS.items[%" PRIu64 "] goes to %" PRIu64 " places, %u at most",
                           item, size->place_count, SL_FABRIC_PLACES_MAX);
        }
    }
    spots->first[body->items.count] = (uint32_t)at;
    return at == body->buffers.count
               ? SL_OK
               : sl_fail(why, SL_ERR_INVALID,
                         "PULL_OBJECTS.buffers[%" PRIu64 "].item is out of order", at);
}

static sl_err objects_begin(struct transporter *self, const struct sl_msg *msg,
                            struct tr_item_spots *spots, struct sl_error *why)
{
    const struct sl_body_pull_objects *body = &msg->body.pull_objects;
    struct sl_body_fetch asked = {.chain = false};
    asked.items.at = body->items.at;
    asked.items.count = body->items.count;
    spots->lent = true;
    spots->first = calloc(body->items.count + 1, sizeof(*spots->first));
    spots->all = calloc(body->buffers.count + 1, sizeof(*spots->all));
    spots->sizes = calloc(body->items.count + 1, sizeof(*spots->sizes));
    if (spots->first == NULL || spots->all == NULL || spots->sizes == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a pull of %" PRIu64 " keys",
                       body->items.count);
    }
    sl_err err = stretches_take(self, msg, spots, why);
    if (err != SL_OK) {
        return err;
    }
    struct sl_msg bounded = *msg;
    bounded.budget_ns = SL_MIN(msg->budget_ns, body->until_ns - self->env->now_ns);
    for (uint64_t i = 0; i < body->buffers.count; i++) {
        if (i == 0 || spots->all[i].engine_id != spots->all[i - 1].engine_id) {
            tr_lent_note(self, spots->all[i].engine_id, msg->seq);
        }
    }
    return tr_fetch_begin(self, &bounded, &asked, spots, why);
}

void tr_pull_objects(struct transporter *self, const struct sl_msg *msg)
{
    struct sl_error why = {0};
    struct tr_item_spots spots = {0};
    sl_err err = SL_OK;
    if (self->straight == NULL) {
        sl_reply_fail(self->env, msg, SL_ERR_UNSUPPORTED, "fabric_pools is not set");
        return;
    }
    if (tr_fetch_is_open(self, msg)) {
        return; /* the answer to the first will do */
    }
    tr_pull_note(self, msg, msg->body.pull_objects.items.count);
    if (self->env->now_ns >= msg->body.pull_objects.until_ns) {
        err = sl_fail(&why, SL_ERR_TIMEOUT, "it came behind its end");
    } else if (tr_fenced_op(&self->fenced, msg->op_id)) {
        err = sl_fail(&why, SL_ERR_BUSY, "its op was fenced");
    } else if (!tr_view(self)) {
        err = sl_fail(&why, SL_ERR_BUSY, "the node is starting");
    } else {
        err = objects_begin(self, msg, &spots, &why);
    }
    if (err != SL_OK) {
        tr_pull_refuse(self, msg, err, &why);
    }
    tr_item_spots_free(&spots);
}
