/* actors/transporter/push/open.c - PUSH_OPEN: blocks of an engine's pool become the parts of a
 * ticket. Every number is checked before anything is kept. */
#include "actors/transporter/push/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static sl_err bounds_check(const struct push *push, const struct sl_body_push_open *body,
                           struct sl_error *why)
{
    uint64_t count = body->lengths.count;
    if (body->from.length > 0 && !sl_actor_name_is_clean(body->from.at, body->from.length)) {
        return sl_fail(why, SL_ERR_INVALID, "from: '%.31s' is no name of a node", body->from.at);
    }
    if (count == 0) {
        return sl_fail(why, SL_ERR_INVALID, "a ticket needs a part");
    }
    if (push->tickets_open == push->ticket_max || count > push->parts_max - push->parts_open) {
        return sl_fail(why, SL_ERR_LIMIT,
                       "%u tickets of %u parts are open, %" PRIu64 " more wanted",
                       push->tickets_open, push->parts_open, count);
    }
    return SL_OK;
}

/* The spot is as long as its part, and what a key is made for (the first one) lies at few enough places. */
static sl_err spot_check(struct push *push, const struct tr_spot *spot, struct push_part *part,
                         uint64_t *places, struct sl_error *why)
{
    struct transporter *self = push->self;
    struct tr_spot_shape shape;
    uint32_t count = 0;
    sl_err err = tr_spot_shape(self, spot, &shape, why);
    if (err != SL_OK) {
        return err;
    }
    if (shape.length_bytes != part->length_bytes) {
        return sl_fail(why, SL_ERR_INVALID,
                       "rank %u of engine %" PRIu64 " has %" PRIu64 " bytes of it, not %" PRIu64,
                       spot->rank, spot->engine_id, shape.length_bytes, part->length_bytes);
    }
    part->device = part->device || shape.device;
    if (part->spot_count == 0) {
        err = tr_spot_places(self, spot, (struct tr_range){.length_bytes = part->length_bytes},
                             push->places, SL_FABRIC_PLACES_MAX, &count, why);
    }
    *places += count;
    return err;
}

/* A writer of this node has no NIC between: the CPU would have to write there. */
static bool only_here(const struct push *push, const struct sl_body_push_open *body)
{
    const struct transporter *self = push->self;
    return self->peer_count == 0 ||
           (body->from.length > 0 && strcmp(body->from.at, self->node) == 0);
}

/* Whether device memory, where the swapper of its rank checks what lands (check.c), may be written to. */
static sl_err device_check(const struct push *push, const struct sl_body_push_open *body,
                           const struct push_part *part, struct sl_error *why)
{
    if (part->spot_count > 1) { /* nobody copies it on */
        return sl_fail(why, SL_ERR_UNSUPPORTED,
                       "a part that %u ranks have, one of them in device memory", part->spot_count);
    }
    return only_here(push, body)
               ? sl_fail(why, SL_ERR_UNSUPPORTED, "no writer of this node writes to device memory")
               : SL_OK;
}

static sl_err spots_take(struct push *push, const struct sl_body_push_open *body,
                         struct push_ticket *out, struct sl_error *why)
{
    uint64_t at = 0, places = 0;
    for (uint64_t i = 0; i < body->lengths.count; i++) {
        struct push_part *part = &out->parts[i];
        uint64_t length_bytes = body->lengths.at[i];
        if (length_bytes == 0 || length_bytes > SL_VALUE_BYTES_MAX) {
            return sl_fail(why, SL_ERR_INVALID, "lengths: part %" PRIu64 " of %" PRIu64 " bytes", i,
                           length_bytes);
        }
        *part = (struct push_part){.spot_first = (uint32_t)at, .length_bytes = length_bytes};
        for (; at < body->spots.count && body->spots.at[at].item == i; at++) {
            out->spots[at] = tr_spot_of(&body->spots.at[at]);
            out->spots[at].unseen = true; /* check.c */
            sl_err err = spot_check(push, &out->spots[at], part, &places, why);
            if (err != SL_OK) {
                return err;
            }
            part->spot_count++;
        }
        if (part->spot_count == 0) {
            return sl_fail(why, SL_ERR_INVALID, "spots: none for part %" PRIu64, i);
        }
        sl_err err = part->device ? device_check(push, body, part, why) : SL_OK;
        if (err != SL_OK) {
            return err;
        }
        out->device = out->device || part->device;
    }
    if (at != body->spots.count) {
        return sl_fail(why, SL_ERR_INVALID, "spots: %" PRIu64 " of %" PRIu64 " are for no part",
                       body->spots.count - at, body->spots.count);
    }
    if (places > PUSH_TICKET_PLACES_MAX - push->places_open) {
        return sl_fail(why, SL_ERR_LIMIT,
                       "the parts lie at %" PRIu64 " places, those of open tickets at %u of %u",
                       places, push->places_open, PUSH_TICKET_PLACES_MAX);
    }
    out->place_count = (uint32_t)places;
    return SL_OK;
}

sl_err push_open_parts(struct push *push, const struct sl_body_push_open *body,
                       struct push_ticket *out, struct sl_error *why)
{
    sl_err err = bounds_check(push, body, why);
    if (err != SL_OK) {
        return err;
    }
    struct push_ticket made = {.part_count = (uint32_t)body->lengths.count,
                               .spot_count = (uint32_t)body->spots.count};
    made.parts = calloc(body->lengths.count, sizeof(*made.parts));
    made.spots = calloc(body->spots.count + 1, sizeof(*made.spots));
    err = made.parts != NULL && made.spots != NULL
              ? spots_take(push, body, &made, why)
              : sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a ticket");
    if (err != SL_OK) {
        free(made.parts);
        free(made.spots);
        return err;
    }
    *out = made;
    return SL_OK;
}
