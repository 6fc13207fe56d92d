/* client/lib/put_ahead.c - puts into extents that were granted ahead of use: fill, publish. */
#include "client/lib/put.h"

void sl_put_unpin(struct put *put, struct put_item *item)
{
    sl_pins_give(put->at->pins, item->pin);
    item->pin = 0;
}

static struct sl_ahead_extent item_extent(const struct put *put, const struct put_item *item)
{
    return (struct sl_ahead_extent){.generation = item->generation,
                                    .offset_bytes = item->offset_bytes,
                                    .ref = (uint32_t)item->ref,
                                    .arena = (uint32_t)item->arena,
                                    .attachment = put->at->number};
}

static void item_return(struct put *put, struct put_item *item)
{
    const struct sl_ahead_extent extent = item_extent(put, item);
    sl_put_unpin(put, item);
    sl_ahead_give(put->client, put->space_bytes, &extent);
}

/* One extent whose grant stands, pinned so that it goes on standing for us. */
static bool item_take_ahead(struct put *put, struct put_item *item)
{
    struct sl_ahead_extent extent;
    while (sl_ahead_take(put->client, put->space_bytes, put->at, &extent)) {
        sl_err err = sl_pins_take_grant(put->at->pins, put->at->view, extent.ref, extent.generation,
                                        put->space_bytes, &item->pin);
        if (err == SL_OK) {
            item->code = SL_OK;
            item->ref = extent.ref;
            item->generation = extent.generation;
            item->arena = extent.arena;
            item->offset_bytes = extent.offset_bytes;
            return true;
        }
        if (err != SL_ERR_STALE) { /* no pin is free */
            sl_ahead_give(put->client, put->space_bytes, &extent);
            return false;
        } /* else it was taken back: the next one */
    }
    return false;
}

static bool put_take_ahead(struct put *put)
{
    for (uint32_t i = 0; i < put->item_count; i++) {
        if (!item_take_ahead(put, &put->items[i])) {
            while (i > 0) {
                item_return(put, &put->items[--i]);
            }
            return false;
        }
    }
    return true;
}

static void publish_taken(void *context, const struct sl_msg *reply)
{
    struct put *put = context;
    if (reply->code != SL_OK) {
        return;
    }
    sl_ahead_arrived(put->client, put->space_bytes, put->asked_ahead, reply, put->at);
    if (reply->body.publish_reply.codes.count == put->claim_count) {
        for (uint32_t i = 0; i < put->claim_count; i++) {
            struct put_item *item = &put->items[put->claim_items[i]];
            item->code = reply->body.publish_reply.codes.at[i];
            item->other_writes = item->code == SL_ERR_BUSY;
        }
    }
}

/* Publishes what was filled, and asks for the extents of the next batch of this kind. */
static sl_err put_publish(struct put *put)
{
    struct sl_client_call call = {.answered = publish_taken};
    for (uint32_t i = 0; i < put->claim_count; i++) {
        uint64_t source = put->items[put->claim_items[i]].source;
        struct sl_object_key key = put_key(put, source);
        put->publications[i] =
            (struct sl_item_publication){.key = {.at = key.at, .length = key.length},
                                         .length_bytes = put_length(put, source),
                                         .ref = put->claims[i].ref,
                                         .generation = put->claims[i].generation,
                                         .digest_low = put->claims[i].digest_low,
                                         .digest_high = put->claims[i].digest_high};
    }
    put->asked_ahead = sl_ahead_missing(put->client, put->space_bytes, put->item_count);
    call.msg.type = SL_MSG_PUBLISH;
    call.msg.body.publish.ahead_count = put->asked_ahead;
    call.msg.body.publish.ahead_bytes = put->space_bytes;
    call.msg.body.publish.items.at = put->publications;
    call.msg.body.publish.items.count = put->claim_count;
    return sl_put_call(put, &call);
}

/* Ends what the round held: used up, still ours, or (unanswered) to be given back. */
static void put_let_go(struct put *put, sl_err result)
{
    for (uint32_t i = 0; i < put->claim_count; i++) {
        struct put_item *item = &put->items[put->claim_items[i]];
        if (result == SL_OK && (item->code == SL_ERR_EXISTS || item->code == SL_ERR_BUSY)) {
            item_return(put, item);
            continue;
        }
        sl_put_unpin(put, item);
        if (result != SL_OK || (item->code != SL_OK && item->code != SL_ERR_STALE)) {
            sl_client_orphan(put->client, &put->claims[i], 1);
        }
    }
}

/* The round by extents granted ahead; false: they are not to be had, nothing was done. */
bool sl_put_ahead(struct put *put, sl_err *result)
{
    struct sl_client *client = put->client;
    if (put->space_bytes == 0 || put->item_count > SL_AHEAD_EXTENTS_MAX || client->ahead_refused ||
        !sl_ahead_warm(client, put->space_bytes, put->item_count, sl_clock_monotonic_ns())) {
        return false;
    }
    put->claim_count = 0;
    if (!put_take_ahead(put)) {
        sl_err err = put_publish(put);
        client->ahead_refused = err == SL_ERR_UNSUPPORTED; /* an older registrar */
        if (err != SL_OK || !put_take_ahead(put)) {
            return false;
        }
    }
    sl_put_fill(put);
    sl_put_unanswered(put);
    *result = put->claim_count == 0 ? SL_OK : put_publish(put);
    put_let_go(put, *result);
    return true;
}
