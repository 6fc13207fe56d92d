/* runtime/fabric/core/rails_peers.c - a peer with a link on every rail. */
#include "runtime/fabric/core/rails.h"

#include <stdlib.h>
#include <string.h>

struct rails_peer *rails_peer_of(const struct rails *rails, uint32_t handle)
{
    uint32_t index = handle & 0xffffu;
    if (index >= rails->fabric->options.peers_max) {
        return NULL;
    }
    struct rails_peer *peer = &rails->peers[index];
    return peer->used && peer->generation == handle >> 16 ? peer : NULL;
}

static uint32_t handle_of(const struct rails *rails, const struct rails_peer *peer)
{
    return fabric_handle_make(peer->generation, (uint32_t)(peer - rails->peers));
}

/* By the rail's handle; NULL: it has been removed. */
static struct rails_peer *peer_by_sub(const struct rail *rail, uint32_t sub)
{
    const struct rails *rails = rail->rails;
    for (uint32_t i = 0; i < rails->fabric->options.peers_max; i++) {
        if (rails->peers[i].used && rails->peers[i].sub[rail->index] == sub) {
            return &rails->peers[i];
        }
    }
    return NULL;
}

static void peer_free(struct rails *rails, struct rails_peer *peer)
{
    for (uint32_t i = 0; i < rails->count; i++) {
        if (rails->at[i].fabric != NULL && peer->sub[i] != FABRIC_NONE) {
            sl_fabric_peer_remove(rails->at[i].fabric, peer->sub[i]);
        }
        free(peer->blobs[i]);
    }
    *peer = (struct rails_peer){.generation = peer->generation};
}

sl_err fabric_rails_peer_add(struct sl_fabric *fabric, uint32_t *out, struct sl_error *why)
{
    struct rails *rails = fabric->rails;
    uint32_t index = 0;
    while (index < fabric->options.peers_max && rails->peers[index].used) {
        index++;
    }
    if (index == fabric->options.peers_max) {
        return sl_fail(why, SL_ERR_LIMIT, "more than %u peers", index);
    }
    struct rails_peer *peer = &rails->peers[index];
    *peer = (struct rails_peer){.used = true,
                                .generation = fabric_generation_next(peer->generation),
                                .told = SL_FABRIC_CONNECTING};
    sl_err err = SL_OK;
    for (uint32_t i = 0; i < rails->count; i++) {
        peer->sub[i] = FABRIC_NONE;
    }
    for (uint32_t i = 0; i < rails->count && err == SL_OK; i++) {
        if (rails->at[i].fabric != NULL) {
            err = sl_fabric_peer_add(rails->at[i].fabric, &peer->sub[i], why);
        }
    }
    if (err != SL_OK) {
        peer_free(rails, peer);
        return err;
    }
    *out = handle_of(rails, peer);
    return SL_OK;
}

void fabric_rails_peer_remove(struct sl_fabric *fabric, uint32_t handle)
{
    struct rails *rails = fabric->rails;
    struct rails_peer *peer = rails_peer_of(rails, handle);
    if (peer != NULL) {
        rails_keys_drop(rails, handle);
        peer_free(rails, peer);
    }
}

static sl_err fail_with(const struct sl_error *reason, struct sl_error *why)
{
    if (why != NULL) {
        *why = *reason;
    }
    return reason->code;
}

/* Refused when no rail can use it. */
sl_err fabric_rails_peer_address(struct sl_fabric *fabric, uint32_t handle, const void *blob,
                                 uint32_t length_bytes, struct sl_error *why)
{
    struct rails *rails = fabric->rails;
    const struct rails_peer *peer = rails_peer_of(rails, handle);
    struct rails_blob read = {0};
    if (peer == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "no such peer");
    }
    sl_err err = rails_blob_read(blob, length_bytes, &read, why);
    struct sl_error unlike = {0};
    bool taken = false;
    for (uint32_t i = 0; i < rails->count && err == SL_OK; i++) {
        struct sl_error reason = {0};
        if (rails->at[i].fabric == NULL || read.lengths[i] == 0) {
            continue;
        }
        sl_err one = sl_fabric_peer_address(rails->at[i].fabric, peer->sub[i], read.parts[i],
                                            read.lengths[i], &reason);
        taken |= one == SL_OK;
        if (one == SL_ERR_UNSUPPORTED) { /* a NIC of another kind: the rail carries nothing */
            unlike = reason;
        } else if (one != SL_OK) {
            err = fail_with(&reason, why);
        }
    }
    return err == SL_OK && !taken && unlike.code != SL_OK ? fail_with(&unlike, why) : err;
}

/* All that is known of our addresses by now; the others come behind. */
void rails_on_address(void *context, uint32_t sub, const void *blob, uint32_t length_bytes)
{
    struct rail *rail = context;
    struct rails *rails = rail->rails;
    struct rails_peer *peer = peer_by_sub(rail, sub);
    void *kept = peer != NULL ? realloc(peer->blobs[rail->index], length_bytes) : NULL;
    if (kept == NULL) {
        return;
    }
    memcpy(kept, blob, length_bytes);
    peer->blobs[rail->index] = kept;
    peer->blob_bytes[rail->index] = length_bytes;
    const struct sl_fabric_events *events = &rails->fabric->options.events;
    uint32_t length =
        rails_blob_write(rails, 0, (const void *const *)peer->blobs, peer->blob_bytes, rails->blob);
    if (length > 0 && events->address != NULL) {
        events->address(events->context, handle_of(rails, peer), rails->blob, length);
    }
}

static enum sl_fabric_link link_of_all(const struct rails *rails, const struct rails_peer *peer)
{
    enum sl_fabric_link link = SL_FABRIC_DOWN;
    for (uint32_t i = 0; i < rails->count && link != SL_FABRIC_UP; i++) {
        enum sl_fabric_link one = rails->at[i].fabric != NULL
                                      ? sl_fabric_peer_link(rails->at[i].fabric, peer->sub[i])
                                      : SL_FABRIC_DOWN;
        link = one == SL_FABRIC_DOWN ? link : one;
    }
    return link;
}

enum sl_fabric_link fabric_rails_peer_link(const struct sl_fabric *fabric, uint32_t handle)
{
    const struct rails_peer *peer = rails_peer_of(fabric->rails, handle);
    return peer == NULL ? SL_FABRIC_DOWN : link_of_all(fabric->rails, peer);
}

/* True: the peer is there still. */
static bool link_tell(struct rails *rails, uint32_t handle, enum sl_fabric_link link,
                      const struct sl_error *why)
{
    const struct sl_fabric_events *events = &rails->fabric->options.events;
    struct rails_peer *peer = rails_peer_of(rails, handle);
    if (peer != NULL && peer->told != link) {
        peer->told = (uint8_t)link;
        if (events->link != NULL) {
            events->link(events->context, handle, link, why);
        }
    }
    return rails_peer_of(rails, handle) != NULL;
}

/* The first link that is up makes the peer up; the last that goes takes it down, whatever state the
 * others are in: who hears of it counts on what was granted being gone. */
void rails_on_link(void *context, uint32_t sub, enum sl_fabric_link link,
                   const struct sl_error *why)
{
    struct rail *rail = context;
    struct rails *rails = rail->rails;
    struct rails_peer *peer = peer_by_sub(rail, sub);
    if (peer == NULL) {
        return;
    }
    uint32_t handle = handle_of(rails, peer);
    if (link != SL_FABRIC_UP) {
        peer->lives[rail->index]++;
        rails_grants_lost(rail, handle);
    }
    enum sl_fabric_link all = link_of_all(rails, peer);
    bool lost = peer->told == SL_FABRIC_UP && all != SL_FABRIC_UP;
    if (!lost || link_tell(rails, handle, SL_FABRIC_DOWN, why)) {
        (void)link_tell(rails, handle, all, why);
    }
}
