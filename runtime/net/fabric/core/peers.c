/* runtime/net/fabric/core/peers.c - peers and their links, one for each rail: start, failure,
 * restart. */
#include "runtime/base/sl_backoff.h"
#include "runtime/net/fabric/core/tables.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum sl_fabric_link fabric_link_of(const struct fabric_peer *peer)
{
    switch ((enum fabric_peer_state)peer->state) {
    case PEER_UP:
        return SL_FABRIC_UP;
    case PEER_STARTING:
        return SL_FABRIC_CONNECTING;
    default:
        return SL_FABRIC_DOWN;
    }
}

static void link_make(struct fabric_rail *rail, uint32_t index)
{
    struct fabric_peer *peer = &rail->peers[index];
    *peer = (struct fabric_peer){
        .rail = rail,
        .index = index,
        .generation = fabric_generation_next(peer->generation),
        .state = PEER_WAITING,
        .reported = SL_FABRIC_CONNECTING,
        .waiting_head = FABRIC_NONE,
        .waiting_tail = FABRIC_NONE,
        .lanes = &rail->lanes[(size_t)index * rail->options.lanes],
    };
    for (uint32_t i = 0; i < rail->options.lanes; i++) {
        struct fabric_lane *lane = &peer->lanes[i];
        size_t first = ((size_t)index * rail->options.lanes + i) * rail->options.depth;
        void *backend = lane->backend; /* belongs to the slot, not to the peer */
        memset(lane, 0, sizeof(*lane));
        lane->backend = backend;
        lane->peer = peer;
        lane->index = i;
        lane->piece = FABRIC_NONE;
        lane->units = &rail->units[first];
    }
}

static bool slot_is_free(const struct sl_fabric *fabric, uint32_t index)
{
    bool is_free = true;
    for (uint32_t i = 0; i < fabric->rail_count; i++) {
        is_free = is_free && fabric->rails[i]->peers[index].state == PEER_FREE;
    }
    return is_free;
}

sl_err sl_fabric_peer_add(struct sl_fabric *fabric, uint32_t *out, struct sl_error *why)
{
    uint32_t index = 0;
    while (index < fabric->options.peers_max && !slot_is_free(fabric, index)) {
        index++;
    }
    if (index == fabric->options.peers_max) {
        return sl_fail(why, SL_ERR_LIMIT, "more than %u peers", index);
    }
    for (uint32_t i = 0; i < fabric->rail_count; i++) {
        link_make(fabric->rails[i], index);
    }
    fabric->links[index] = SL_FABRIC_CONNECTING;
    fabric->work_due = true;
    *out = fabric_peer_handle(&fabric->rails[0]->peers[index]);
    return SL_OK;
}

static enum sl_fabric_link link_of_all(const struct sl_fabric *fabric, uint32_t index)
{
    enum sl_fabric_link link = SL_FABRIC_DOWN;
    for (uint32_t i = 0; i < fabric->rail_count && link != SL_FABRIC_UP; i++) {
        enum sl_fabric_link one = fabric_link_of(&fabric->rails[i]->peers[index]);
        link = one == SL_FABRIC_DOWN ? link : one;
    }
    return link;
}

enum sl_fabric_link sl_fabric_peer_link(const struct sl_fabric *fabric, uint32_t handle)
{
    const struct fabric_peer *peer = fabric_peer_of(fabric->rails[0], handle);
    return peer == NULL ? SL_FABRIC_DOWN : link_of_all(fabric, peer->index);
}

/* Fails if a part is invalid, or no rail can use its part. A single rail must have one. */
sl_err sl_fabric_peer_address(struct sl_fabric *fabric, uint32_t handle, const void *blob,
                              uint32_t length_bytes, struct sl_error *why)
{
    struct fabric_blob read = {0};
    if (fabric_peer_of(fabric->rails[0], handle) == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "no such peer");
    }
    fabric->work_due = true;
    sl_err err = fabric_blob_read(blob, length_bytes, &read, why);
    struct sl_error failed = {0};
    bool taken = false;
    for (uint32_t i = 0; i < fabric->rail_count && err == SL_OK; i++) {
        const struct fabric_rail *rail = fabric->rails[i];
        if (read.parts[rail->index] == NULL) {
            continue;
        }
        err = fabric->ops->peer_address(&rail->peers[handle & 0xffffu], read.parts[rail->index],
                                        read.lengths[rail->index], &failed);
        taken |= err == SL_OK;
        err = err == SL_ERR_UNSUPPORTED ? SL_OK : err; /* of another kind: this rail is not used */
    }
    if (err == SL_OK && !taken && failed.code == SL_OK && fabric->list_count == 1) {
        (void)sl_fail(&failed, SL_ERR_PROTOCOL, "the address has no part for the first rail");
    }
    err = err == SL_OK && !taken ? failed.code : err;
    if (why != NULL && err != SL_OK && failed.code != SL_OK) {
        *why = failed;
    }
    return err;
}

/* Reports the addresses of all rails known so far; more reports follow. */
void fabric_address_report(struct fabric_peer *peer, const void *bytes, uint32_t length_bytes)
{
    struct sl_fabric *fabric = peer->rail->fabric;
    const struct sl_fabric_events *events = &fabric->options.events;
    struct fabric_blob blob = {0};
    void *kept = realloc(peer->address, length_bytes);
    if (kept == NULL) {
        return;
    }
    memcpy(kept, bytes, length_bytes);
    peer->address = kept;
    peer->address_bytes = length_bytes;
    for (uint32_t i = 0; i < fabric->rail_count; i++) {
        const struct fabric_rail *rail = fabric->rails[i];
        blob.parts[rail->index] = rail->peers[peer->index].address;
        blob.lengths[rail->index] = rail->peers[peer->index].address_bytes;
    }
    uint32_t whole_bytes = fabric_blob_write(fabric->list_count, &blob, fabric->blob);
    if (whole_bytes > 0 && events->address != NULL) {
        events->address(events->context, fabric_peer_handle(peer), fabric->blob, whole_bytes);
    }
}

/* Ends pieces that no lane has begun. */
static void peer_drop_waiting(struct fabric_peer *peer, sl_err code)
{
    struct sl_fabric *fabric = peer->rail->fabric;
    while (peer->waiting_head != FABRIC_NONE) {
        fabric_piece_stop(fabric, &fabric->pieces[peer->waiting_head], code);
    }
}

static void peer_start(struct fabric_peer *peer)
{
    const struct sl_fabric *fabric = peer->rail->fabric;
    struct sl_error why = {0};
    peer->state = PEER_STARTING;
    peer->due_ns = sl_deadline_ns(fabric->now_ns, fabric->options.connect_ns);
    if (fabric->ops->peer_start(peer, &why) != SL_OK) {
        fabric_peer_fail(peer, &why);
    }
}

void fabric_peer_up(struct fabric_peer *peer)
{
    SL_ASSERT(peer->state == PEER_STARTING);
    peer->state = PEER_UP;
    peer->due_ns = SL_NEVER_NS;
    peer->failures = 0;
    peer->why = (struct sl_error){0};
    peer->rail->stats.links_built++;
    peer->rail->work_due = true;
}

void fabric_peer_fail(struct fabric_peer *peer, const struct sl_error *why)
{
    if (peer->state != PEER_STARTING && peer->state != PEER_UP) {
        return; /* the first reason counts */
    }
    bool was_up = peer->state == PEER_UP;
    peer->why = *why;
    peer->state = PEER_STOPPING;
    peer->due_ns = SL_NEVER_NS;
    if (was_up) {
        peer->rail->stats.links_lost++;
    }
    peer->rail->work_due = true;
    peer_drop_waiting(peer, was_up ? SL_ERR_PEER_DIED : SL_ERR_UNREACHABLE);
    peer->rail->fabric->ops->peer_stop(peer, false);
}

void fabric_peer_stopped(struct fabric_peer *peer)
{
    struct sl_fabric *fabric = peer->rail->fabric;
    SL_ASSERT(peer->state == PEER_STOPPING);
    peer_drop_waiting(peer, SL_ERR_PEER_DIED);
    for (uint32_t i = 0; i < fabric->options.lanes; i++) {
        struct fabric_lane *lane = &peer->lanes[i];
        while (lane->head != lane->tail) {
            fabric_unit_end(lane, SL_ERR_PEER_DIED);
        }
        if (lane->piece != FABRIC_NONE) {
            fabric_piece_stop(fabric, &fabric->pieces[lane->piece], SL_ERR_PEER_DIED);
        }
        lane->head = lane->sent = lane->tail = 0;
    }
    if (peer->removed) {
        free(peer->address);
        *peer = (struct fabric_peer){.generation = peer->generation};
        return;
    }
    peer->state = PEER_WAITING;
    peer->due_ns =
        sl_deadline_ns(fabric->now_ns,
                       sl_backoff_ns(fabric->options.backoff_min_ns, fabric->options.backoff_max_ns,
                                     peer->failures, fabric_random(fabric)));
    peer->failures += peer->failures < 64;
    fabric->work_due = true;
}

void sl_fabric_peer_remove(struct sl_fabric *fabric, uint32_t handle)
{
    if (fabric_peer_of(fabric->rails[0], handle) == NULL) {
        return;
    }
    uint32_t index = handle & 0xffffu;
    for (uint32_t i = 0; i < fabric->options.keys_max; i++) {
        const struct fabric_key *key = &fabric->keys[i];
        if (key->used && !key->closing && key->peer_index == index) {
            sl_fabric_key_close(fabric, fabric_handle_make(key->generation, i));
        }
    }
    for (uint32_t i = 0; i < fabric->rail_count; i++) {
        struct fabric_peer *peer = &fabric->rails[i]->peers[index];
        peer->removed = true;
        if (peer->state != PEER_STOPPING) {
            peer->state = PEER_STOPPING;
            fabric->ops->peer_stop(peer, true);
        }
    }
}

void fabric_peers_step(struct fabric_rail *rail)
{
    for (uint32_t i = 0; i < rail->options.peers_max; i++) {
        struct fabric_peer *peer = &rail->peers[i];
        if (peer->state == PEER_WAITING && peer->due_ns <= rail->now_ns) {
            peer_start(peer);
        } else if (peer->state == PEER_STARTING && peer->due_ns <= rail->now_ns) {
            struct sl_error why = {0};
            (void)sl_fail(&why, SL_ERR_UNREACHABLE, "no link within %" PRIu64 " ms",
                          rail->options.connect_ns / SL_NS_PER_MS);
            fabric_peer_fail(peer, &why);
        }
        if (peer->state == PEER_UP) {
            fabric_peer_pump(peer);
        }
    }
}

/* ---- reports ---- */

/* True: the peer still exists. */
static bool link_report(struct sl_fabric *fabric, uint32_t handle, enum sl_fabric_link link,
                        const struct sl_error *why)
{
    uint8_t *reported = &fabric->links[handle & 0xffffu];
    if (*reported != link) {
        *reported = (uint8_t)link;
        if (fabric->options.events.link != NULL) {
            fabric->options.events.link(fabric->options.events.context, handle, link, why);
        }
    }
    return fabric_peer_of(fabric->rails[0], handle) != NULL;
}

/* A peer is up from its first link to its last. It is reported as down after the last link, even if
 * others are connecting: users of link() rely on it that all tickets are void then. */
static void link_changed(struct fabric_peer *peer, enum sl_fabric_link link)
{
    struct sl_fabric *fabric = peer->rail->fabric;
    const struct sl_error why = peer->why;
    uint32_t handle = fabric_peer_handle(peer);
    peer->reported = (uint8_t)link;
    if (link != SL_FABRIC_UP) {
        peer->lives++;
        fabric_grants_lost(peer);
    }
    enum sl_fabric_link all = link_of_all(fabric, peer->index);
    bool lost = fabric->links[peer->index] == SL_FABRIC_UP && all != SL_FABRIC_UP;
    if (!lost || link_report(fabric, handle, SL_FABRIC_DOWN, &why)) {
        (void)link_report(fabric, handle, all, &why);
    }
}

static void link_look(struct fabric_peer *peer)
{
    enum sl_fabric_link link = fabric_link_of(peer);
    if (peer->state == PEER_FREE || peer->removed || peer->reported == link) {
        return;
    }
    if (peer->state == PEER_WAITING && peer->due_ns == 0) {
        return; /* not started yet, so nothing was lost */
    }
    if (peer->reported == SL_FABRIC_UP && link == SL_FABRIC_CONNECTING) {
        link = SL_FABRIC_DOWN; /* report the loss, even if the next link is already starting */
        peer->rail->work_due = true;
    }
    link_changed(peer, link);
}

void fabric_links_report(struct sl_fabric *fabric)
{
    for (uint32_t i = 0; i < fabric->rail_count; i++) {
        for (uint32_t k = 0; k < fabric->options.peers_max; k++) {
            link_look(&fabric->rails[i]->peers[k]);
        }
    }
}
