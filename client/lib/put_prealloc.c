/* client/lib/put_prealloc.c - extents granted in advance, for values of a recurring size. The
 * registrar reclaims them without a message, so each is pinned and checked before a byte is written
 * to it. */
#include "client/lib/put.h"

void sl_put_unpin(struct put *put, struct put_item *item)
{
    sl_pins_release(put->at->pins, item->pin);
    item->pin = 0;
}

static bool extent_take(struct put *put, struct sl_prealloc_extent *out)
{
    struct sl_client *client = put->client;
    pthread_mutex_lock(&client->lock);
    bool found = sl_prealloc_take(&client->ahead, put->space_bytes, put->at->number, out);
    pthread_mutex_unlock(&client->lock);
    return found;
}

static void extent_return(struct put *put, const struct sl_prealloc_extent *extent)
{
    struct sl_client *client = put->client;
    pthread_mutex_lock(&client->lock);
    bool kept = sl_prealloc_return(&client->ahead, put->space_bytes, extent);
    pthread_mutex_unlock(&client->lock);
    if (!kept) {
        const struct sl_item_claim claim = {.ref = extent->ref, .generation = extent->generation};
        sl_client_orphan(client, &claim, 1);
    }
}

/* Returned with the current time as its request time: it is checked again before use. */
static void item_return(struct put *put, struct put_item *item)
{
    const struct sl_prealloc_extent extent = {.generation = item->generation,
                                              .offset_bytes = item->offset_bytes,
                                              .asked_ns = sl_clock_monotonic_ns(),
                                              .ref = (sl_ref)item->ref,
                                              .arena = (uint16_t)item->arena,
                                              .life = put->at->number};
    sl_put_unpin(put, item);
    extent_return(put, &extent);
}

/* Takes one extent whose grant still exists, pinned so that it continues to. */
static bool item_take(struct put *put, struct put_item *item)
{
    struct sl_prealloc_extent extent;
    while (extent_take(put, &extent)) {
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
            extent_return(put, &extent);
            return false;
        } /* otherwise it was reclaimed: try the next one */
    }
    return false;
}

bool sl_put_prealloc_take(struct put *put)
{
    for (uint32_t i = 0; i < put->item_count; i++) {
        if (put->space_bytes == 0 || !item_take(put, &put->items[i])) {
            while (i > 0) {
                item_return(put, &put->items[--i]);
            }
            return false;
        }
    }
    return true;
}

void sl_put_prealloc_request(struct put *put, struct sl_body_commit *commit)
{
    struct sl_client *client = put->client;
    uint64_t now_ns = sl_clock_monotonic_ns();
    if (put->space_bytes == 0) {
        return;
    }
    pthread_mutex_lock(&client->lock);
    commit->ahead_count =
        sl_prealloc_request_count(&client->ahead, put->space_bytes, put->item_count, now_ns);
    commit->ahead_bytes = put->space_bytes;
    /* Unused extents are soon reclaimed by the registrar: their row is freed for another size. */
    client->orphan_count += sl_prealloc_expire(
        &client->ahead, now_ns - SL_MIN(now_ns, client->ahead_useful_ns),
        &client->orphans[client->orphan_count], SL_CLIENT_ORPHANS_MAX - client->orphan_count);
    pthread_mutex_unlock(&client->lock);
}

void sl_put_prealloc_add(struct put *put, const struct sl_msg *reply)
{
    const struct sl_body_commit_reply *body = &reply->body.commit_reply;
    if (put->asked_ahead) {
        sl_prealloc_add(&put->client->ahead, put->space_bytes, body->ahead.at, body->ahead.count,
                        put->at->number, sl_clock_monotonic_ns());
    }
}

void sl_put_prealloc_end(struct put *put, sl_err result)
{
    for (uint32_t i = 0; i < put->claim_count; i++) {
        struct put_item *item = &put->items[put->claim_items[i]];
        if (result == SL_OK && (item->code == SL_ERR_EXISTS || item->code == SL_ERR_BUSY)) {
            item->other_writes = item->code == SL_ERR_BUSY;
            item_return(put, item);
            continue;
        }
        sl_put_unpin(put, item);
        if (result == SL_OK && item->code != SL_OK && item->code != SL_ERR_STALE) {
            sl_client_orphan(put->client, &put->claims[i], 1);
        }
    }
}
