/* runtime/fabric/core/peers.c - peers and their links: started, up, failed, stopped, started anew.
 */
#include "runtime/fabric/core/tables.h"
#include "runtime/sl_backoff.h"

#include <inttypes.h>
#include <string.h>

static enum sl_fabric_link peer_link(const struct fabric_peer *peer)
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

sl_err sl_fabric_peer_add(struct sl_fabric *fabric, uint32_t *out, struct sl_error *why)
{
    if (fabric->form != NULL) {
        return fabric->form->peer_add(fabric, out, why);
    }
    uint32_t index = 0;
    while (index < fabric->options.peers_max && fabric->peers[index].state != PEER_FREE) {
        index++;
    }
    if (index == fabric->options.peers_max) {
        return sl_fail(why, SL_ERR_LIMIT, "more than %u peers", index);
    }
    struct fabric_peer *peer = &fabric->peers[index];
    *peer = (struct fabric_peer){
        .fabric = fabric,
        .index = index,
        .generation = fabric_generation_next(peer->generation),
        .state = PEER_WAITING,
        .told = SL_FABRIC_CONNECTING,
        .waiting_head = FABRIC_NONE,
        .waiting_tail = FABRIC_NONE,
        .lanes = &fabric->lanes[(size_t)index * fabric->options.lanes],
    };
    for (uint32_t i = 0; i < fabric->options.lanes; i++) {
        struct fabric_lane *lane = &peer->lanes[i];
        size_t first = ((size_t)index * fabric->options.lanes + i) * fabric->options.depth;
        void *backend = lane->backend; /* belongs to the place, not to the peer */
        memset(lane, 0, sizeof(*lane));
        lane->backend = backend;
        lane->peer = peer;
        lane->index = i;
        lane->piece = FABRIC_NONE;
        lane->units = &fabric->units[first];
    }
    fabric->work_due = true;
    *out = fabric_peer_handle(peer);
    return SL_OK;
}

enum sl_fabric_link sl_fabric_peer_link(const struct sl_fabric *fabric, uint32_t handle)
{
    if (fabric->form != NULL) {
        return fabric->form->peer_link(fabric, handle);
    }
    const struct fabric_peer *peer = fabric_peer_of(fabric, handle);
    return peer == NULL ? SL_FABRIC_DOWN : peer_link(peer);
}

sl_err sl_fabric_peer_address(struct sl_fabric *fabric, uint32_t handle, const void *blob,
                              uint32_t length_bytes, struct sl_error *why)
{
    if (fabric->form != NULL) {
        return fabric->form->peer_address(fabric, handle, blob, length_bytes, why);
    }
    struct fabric_peer *peer = fabric_peer_of(fabric, handle);
    if (peer == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "no such peer");
    }
    fabric->work_due = true;
    sl_err err = fabric_rails_first(&blob, &length_bytes, why);
    return err == SL_OK ? fabric->ops->peer_address(peer, blob, length_bytes, why) : err;
}

/* Pieces that no lane has begun end at once. */
static void peer_drop_waiting(struct fabric_peer *peer, sl_err code)
{
    while (peer->waiting_head != FABRIC_NONE) {
        fabric_piece_stop(peer->fabric, &peer->fabric->pieces[peer->waiting_head], code);
    }
}

static void peer_start(struct fabric_peer *peer)
{
    struct sl_fabric *fabric = peer->fabric;
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
    peer->fabric->stats.links_built++;
    peer->fabric->work_due = true;
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
        peer->fabric->stats.links_lost++;
    }
    peer->fabric->work_due = true;
    peer_drop_waiting(peer, was_up ? SL_ERR_PEER_DIED : SL_ERR_UNREACHABLE);
    peer->fabric->ops->peer_stop(peer, false);
}

void fabric_peer_stopped(struct fabric_peer *peer)
{
    struct sl_fabric *fabric = peer->fabric;
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
    if (fabric->form != NULL) {
        fabric->form->peer_remove(fabric, handle);
        return;
    }
    struct fabric_peer *peer = fabric_peer_of(fabric, handle);
    if (peer == NULL) {
        return;
    }
    for (uint32_t i = 0; i < fabric->options.keys_max; i++) {
        const struct fabric_key *key = &fabric->keys[i];
        if (key->used && !key->closing && key->peer_index == peer->index) {
            sl_fabric_key_close(fabric, fabric_handle_make(key->generation, i));
        }
    }
    peer->removed = true;
    if (peer->state != PEER_STOPPING) {
        peer->state = PEER_STOPPING;
        fabric->ops->peer_stop(peer, true);
    }
}

void fabric_peers_step(struct sl_fabric *fabric)
{
    for (uint32_t i = 0; i < fabric->options.peers_max; i++) {
        struct fabric_peer *peer = &fabric->peers[i];
        if (peer->state == PEER_WAITING && peer->due_ns <= fabric->now_ns) {
            peer_start(peer);
        } else if (peer->state == PEER_STARTING && peer->due_ns <= fabric->now_ns) {
            struct sl_error why = {0};
            (void)sl_fail(&why, SL_ERR_UNREACHABLE, "no link within %" PRIu64 " ms",
                          fabric->options.connect_ns / SL_NS_PER_MS);
            fabric_peer_fail(peer, &why);
        }
        if (peer->state == PEER_UP) {
            fabric_peer_pump(peer);
        }
    }
}

void fabric_links_tell(struct sl_fabric *fabric)
{
    for (uint32_t i = 0; i < fabric->options.peers_max; i++) {
        struct fabric_peer *peer = &fabric->peers[i];
        if (peer->state == PEER_FREE || peer->removed || peer->told == peer_link(peer)) {
            continue;
        }
        if (peer->state == PEER_WAITING && peer->due_ns == 0) {
            continue; /* not started yet: that is no loss */
        }
        enum sl_fabric_link link = peer_link(peer);
        if (peer->told == SL_FABRIC_UP && link == SL_FABRIC_CONNECTING) {
            link = SL_FABRIC_DOWN; /* what went with it is told, however soon the next one begins */
            fabric->work_due = true;
        }
        peer->told = (uint8_t)link;
        if (fabric->options.events.link != NULL) {
            struct sl_error why = peer->why;
            fabric->options.events.link(fabric->options.events.context, fabric_peer_handle(peer),
                                        link, &why);
        }
    }
}
