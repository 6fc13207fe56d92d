/* runtime/net/fabric/tcp/lane.c - the requesting side: units of a lane become requests, and answers
 * end them in order. */
#include "runtime/net/fabric/tcp/internal.h"

#include <errno.h>
#include <linux/tcp.h> /* glibc's tcp_info lacks the byte counts */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static struct tcp_conn *conn_of(const struct fabric_lane *lane)
{
    return lane->backend;
}

static void lane_fail(struct tcp_conn *conn, sl_err code, const char *what, int os_code)
{
    struct sl_error why = {0};
    struct fabric_lane *lane = conn->lane;
    if (os_code != 0) {
        (void)sl_fail_os(&why, os_code, "connection %u: %s", lane->index, what);
        why.code = code;
    } else {
        (void)sl_fail(&why, code, "connection %u: %s", lane->index, what);
    }
    fabric_peer_fail(lane->peer, &why);
}

static void lane_await_head(struct tcp_conn *conn)
{
    uint32_t bytes = SL_WIRE_ANSWER_BYTES - conn->heads_bytes;
    tcp_secure_want(conn, sl_runs_of(conn->heads_in + conn->heads_bytes, bytes), bytes, NULL);
}

static void lane_expect_head(struct tcp_conn *conn)
{
    conn->rx = RX_HEAD;
    conn->heads_bytes = 0;
    lane_await_head(conn);
}

static void chain_forget(struct tcp_conn *conn)
{
    if (conn->chain != NULL) {
        conn->chain->count = 0;
    }
}

/* Number of units, from the lane's oldest on, whose memory a receive uses. */
static uint32_t lane_in_device(const struct tcp_conn *conn)
{
    if (conn->rx != RX_VALUE || !conn->recv_on) {
        return 0;
    }
    const struct tcp_chain *chain = conn->chain;
    return chain == NULL || chain->count == 0 ? 1 : chain->count - chain->at;
}

/* ---- link ---- */

static void lane_begin(struct fabric_lane *lane, const struct sl_wire_address *address)
{
    struct tcp_conn *conn = conn_of(lane);
    conn->rx = RX_NONE;
    conn->recv_on = conn->send_on = conn->recv_cancelled = conn->in_head = false;
    conn->ops_out = conn->low.bytes = 0;
    chain_forget(conn);
    conn->progress_mark = 0;
    tcp_message_begin(conn);
    tcp_due(conn, &conn->tx_due_ns, SL_NEVER_NS);
    conn->rx_due_ns = SL_NEVER_NS;
    conn->progress_ns = conn->rail->now_ns;
    tcp_connect(conn, address);
}

static void lanes_begin(struct fabric_peer *peer)
{
    const struct sl_wire_address *address = peer->backend;
    if (address == NULL || address->port == 0) {
        return; /* the peer's address is not known yet */
    }
    for (uint32_t i = 0; i < peer->rail->options.lanes && peer->state == PEER_STARTING; i++) {
        if (conn_of(&peer->lanes[i])->state == CONN_FREE) {
            lane_begin(&peer->lanes[i], address);
        }
    }
}

/* Makes credentials with which the peer may connect here, for as long as it exists. */
static sl_err credentials_make(const struct fabric_peer *peer, struct sl_error *why)
{
    struct tcp_credentials *credential = &tcp_of(peer->rail)->credentials[peer->index];
    if (credential->peer == fabric_peer_handle(peer)) {
        return SL_OK;
    }
    struct tcp_credentials fresh = {.peer = fabric_peer_handle(peer)};
    sl_err err = fabric_secret(fresh.id, sizeof(fresh.id), why);
    if (err == SL_OK) {
        err = fabric_secret(fresh.psk, sizeof(fresh.psk), why);
    }
    if (err == SL_OK) {
        *credential = fresh;
    }
    return err;
}

/* Deletes the peer's credentials and closes its connections. */
static void credentials_delete(const struct fabric_peer *peer)
{
    struct tcp_credentials *credential = &tcp_of(peer->rail)->credentials[peer->index];
    uint32_t was = credential->peer;
    explicit_bzero(credential, sizeof(*credential));
    if (was != 0) {
        tcp_served_forget(peer->rail, was);
    }
}

sl_err tcp_peer_start(struct fabric_peer *peer, struct sl_error *why)
{
    struct fabric_rail *rail = peer->rail;
    unsigned char blob[SL_WIRE_ADDRESS_BYTES];
    sl_err err = credentials_make(peer, why);
    if (err != SL_OK) {
        return err;
    }
    const struct tcp_credentials *credential = &tcp_of(rail)->credentials[peer->index];
    struct sl_wire_address address = tcp_of(rail)->address;
    address.clear = rail->options.clear;
    memcpy(address.id, credential->id, sizeof(address.id));
    memcpy(address.psk, credential->psk, sizeof(address.psk));
    sl_wire_address_write(&address, blob);
    fabric_address_report(peer, blob, sizeof(blob));
    lanes_begin(peer);
    return SL_OK;
}

sl_err tcp_peer_address(struct fabric_peer *peer, const void *blob, uint32_t length_bytes,
                        struct sl_error *why)
{
    struct sl_wire_address address;
    sl_err err = sl_wire_address_read(blob, length_bytes, &address, why);
    if (err != SL_OK) {
        return err;
    }
    struct sl_wire_address *kept = peer->backend;
    bool is_new = kept == NULL;
    if (is_new) {
        kept = calloc(1, sizeof(*kept));
        if (kept == NULL) {
            return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for an address");
        }
        peer->backend = kept;
    }
    bool moved = !is_new && memcmp(kept->psk, address.psk, sizeof(kept->psk)) != 0;
    *kept = address;
    if (moved) { /* the peer restarted: old connections are useless */
        struct sl_error gone = {0};
        (void)sl_fail(&gone, SL_ERR_PEER_DIED, "the peer has a new address");
        fabric_peer_fail(peer, &gone);
    }
    if (moved || is_new) {
        peer->failures = 0;
        if (peer->state == PEER_WAITING) {
            peer->due_ns = SL_MIN(peer->due_ns, peer->rail->now_ns);
        }
    }
    if (peer->state == PEER_STARTING) {
        lanes_begin(peer);
    }
    return SL_OK;
}

void tcp_lane_hello(struct tcp_conn *conn)
{
    const struct sl_wire_request hello = {.verb = SL_WIRE_HELLO, .grant = conn->secure->in.clear};
    sl_wire_request_write(&hello, conn->heads);
    tcp_message_begin(conn);
    tcp_part(conn, conn->heads, SL_WIRE_REQUEST_BYTES);
    tcp_send(conn, 0);
    lane_expect_head(conn);
}

void tcp_lane_connected(struct tcp_conn *conn, int result)
{
    struct sl_error why = {0};
    if (result < 0) {
        lane_fail(conn, SL_ERR_UNREACHABLE, conn->state == CONN_FREE ? "socket" : "connect",
                  -result);
        return;
    }
    conn->state = CONN_GREETING;
    if (tcp_secure_begin(conn, &why) != SL_OK) {
        fabric_peer_fail(conn->lane->peer, &why);
        return;
    }
    tcp_secure_greet(conn, "", 0);
}

static void lane_greeted(struct tcp_conn *conn, const struct sl_wire_answer *answer)
{
    struct fabric_peer *peer = conn->lane->peer;
    if (answer->verb != SL_WIRE_HELLO || answer->code != SL_OK) {
        lane_fail(conn, SL_ERR_PROTOCOL, "a greeting was expected", 0);
        return;
    }
    conn->state = CONN_OPEN;
    lane_expect_head(conn); /* always receiving, so that a close is noticed */
    for (uint32_t i = 0; i < peer->rail->options.lanes; i++) {
        if (conn_of(&peer->lanes[i])->state != CONN_OPEN) {
            return;
        }
    }
    fabric_peer_up(peer);
}

static void lanes_stopped(struct fabric_peer *peer)
{
    for (uint32_t i = 0; i < peer->rail->options.lanes; i++) {
        if (conn_of(&peer->lanes[i])->state != CONN_FREE) {
            return;
        }
    }
    if (peer->removed) {
        credentials_delete(peer);
        free(peer->backend);
        peer->backend = NULL;
    }
    fabric_peer_stopped(peer);
}

void tcp_peer_stop(struct fabric_peer *peer, bool last)
{
    bool was_open = false;
    uint32_t lanes = peer->rail->options.lanes; /* tcp_close may free the peer */
    if (last) {
        credentials_delete(peer);
    }
    for (uint32_t i = 0; i < lanes; i++) {
        was_open |= conn_of(&peer->lanes[i])->state != CONN_FREE;
    }
    if (!was_open) {
        lanes_stopped(peer);
        return;
    }
    uint16_t life = peer->generation;
    for (uint32_t i = 0; i < lanes; i++) {
        if (peer->generation == life && peer->state == PEER_STOPPING) {
            tcp_close(conn_of(&peer->lanes[i])); /* closing the last one ends the peer */
        }
    }
}

void tcp_lane_closed(struct tcp_conn *conn)
{
    struct fabric_peer *peer = conn->lane->peer;
    if (peer != NULL && peer->state == PEER_STOPPING) {
        lanes_stopped(peer);
    }
}

/* ---- requests ---- */

/* Lanes with requests are checked four times in a stall period. */
static uint64_t lane_look_at(const struct fabric_rail *rail)
{
    return sl_deadline_ns(rail->now_ns, SL_MAX(rail->options.stall_ns / 4, UINT64_C(1)));
}

static void push_unit(struct tcp_conn *conn, const struct fabric_unit *unit, uint64_t number)
{
    struct fabric_rail *rail = conn->rail;
    const struct fabric_right *key = &rail->rights[unit->key];
    unsigned char *head = conn->heads + (number % rail->options.depth) * SL_WIRE_REQUEST_BYTES;
    struct sl_wire_request request = {
        .verb = SL_WIRE_READ,
        .sequence = (uint32_t)number,
        .length_bytes = unit->length_bytes,
        .offset_bytes = unit->remote_offset_bytes,
        .generation = key->grant_generation,
        .grant = key->grant_index,
    };
    memcpy(request.token, key->token, sizeof(request.token));
    sl_wire_request_write(&request, head);
    tcp_part(conn, head, SL_WIRE_REQUEST_BYTES);
}

static void lane_skip(struct fabric_lane *lane)
{
    while (lane->head < lane->sent && fabric_lane_unit(lane, lane->head)->skipped) {
        fabric_unit_end(lane, SL_OK);
    }
}

void tcp_lane_push(struct fabric_lane *lane)
{
    struct tcp_conn *conn = conn_of(lane);
    if (conn->send_on || conn->state != CONN_OPEN) {
        return;
    }
    uint64_t first = lane->sent;
    uint32_t frames = 0;
    tcp_message_begin(conn);
    while (lane->sent < lane->tail && frames < TCP_SEND_BATCH) {
        struct fabric_unit *unit = fabric_lane_unit(lane, lane->sent);
        if (unit->piece == FABRIC_NONE) {
            unit->skipped = true; /* ended before it was sent */
        } else {
            push_unit(conn, unit, lane->sent);
            frames++;
        }
        lane->sent++;
    }
    lane_skip(lane);
    if (frames > 0) {
        if (lane->head == first) { /* idle before: the stall period starts now */
            conn->progress_ns = conn->rail->now_ns;
        }
        struct tcp *tcp = tcp_of(conn->rail);
        tcp->due_ns = SL_MIN(tcp->due_ns, lane_look_at(conn->rail));
        tcp_send(conn, 0);
    }
}

void tcp_lane_cancel(struct fabric_lane *lane)
{
    struct tcp_conn *conn = conn_of(lane);
    for (uint64_t i = lane->head; i < lane->tail; i++) {
        struct fabric_unit *unit = fabric_lane_unit(lane, i);
        if (!fabric_unit_given_up(lane, unit)) {
            continue;
        }
        if (i >= lane->sent || i - lane->head >= lane_in_device(conn)) {
            fabric_unit_release(lane, unit, SL_ERR_CANCELLED);
        } else {
            tcp_recv_cancel(conn); /* the kernel is writing to its memory */
        }
    }
}

/* ---- answers ---- */

/* Makes a chain of the requested units after the oldest, whose value is received next. Consecutive
 * units of one piece share a digest. */
static void chain_make(struct tcp_conn *conn)
{
    struct fabric_lane *lane = conn->lane;
    struct tcp_chain *chain = conn->chain;
    struct sl_digest_stream *digest = &lane->digest;
    chain->count = 1;
    chain->at = 0;
    for (uint64_t i = lane->head + 1; i < lane->sent && chain->count <= SL_MOVER_STEPS_MAX; i++) {
        const struct fabric_unit *unit = fabric_lane_unit(lane, i);
        if (unit->piece == FABRIC_NONE || fabric_unit_given_up(lane, unit) ||
            !tcp_moves(conn, unit->length_bytes)) {
            break;
        }
        struct sl_mover_step *step = &chain->steps[chain->count - 1];
        const struct sl_wire_answer head = {
            .verb = SL_WIRE_READ, .sequence = (uint32_t)i, .length_bytes = unit->length_bytes};
        sl_wire_answer_write(&head, step->head);
        step->to = unit->local;
        step->length_bytes = unit->length_bytes;
        if (unit->first) {
            digest = &chain->digests[chain->count - 1];
            sl_digest_start(digest);
        }
        step->digest = fabric_unit_checked(lane, unit) ? digest : NULL;
        chain->count++;
    }
}

static void lane_expect_value(struct tcp_conn *conn)
{
    bool wanted = conn->rx == RX_VALUE;
    if (wanted && conn->chain != NULL && tcp_moves(conn, conn->value_left)) {
        chain_make(conn);
    }
    tcp_recv_value(conn, wanted ? fabric_unit_digest(conn->lane) : NULL);
}

static void lane_answered(struct tcp_conn *conn, const struct sl_wire_answer *answer)
{
    struct fabric_lane *lane = conn->lane;
    const struct fabric_unit *unit =
        lane->head < lane->sent ? fabric_lane_unit(lane, lane->head) : NULL;
    bool fits =
        unit != NULL && answer->verb == SL_WIRE_READ && answer->sequence == (uint32_t)lane->head;
    if (fits && answer->length_bytes != 0) {
        fits = answer->length_bytes == unit->length_bytes;
    }
    if (!fits) {
        lane_fail(conn, SL_ERR_PROTOCOL, "an answer without a request", 0);
        return;
    }
    if (answer->length_bytes == 0) {
        fabric_unit_end(lane, answer->code);
        lane_expect_head(conn);
        return;
    }
    conn->value = unit->local;
    conn->value_left = unit->length_bytes;
    conn->rx =
        unit->piece == FABRIC_NONE || fabric_unit_given_up(lane, unit) ? RX_DISCARD : RX_VALUE;
    lane_expect_value(conn);
}

static void lane_got_head(struct tcp_conn *conn, uint32_t got_bytes)
{
    conn->heads_bytes += got_bytes;
    if (conn->heads_bytes < SL_WIRE_ANSWER_BYTES) {
        lane_await_head(conn);
        return;
    }
    struct sl_wire_answer answer;
    struct sl_error why = {0};
    if (sl_wire_answer_read(conn->heads_in, &answer, &why) != SL_OK) {
        fabric_peer_fail(conn->lane->peer, &why);
        return;
    }
    if (conn->state == CONN_GREETING) {
        lane_greeted(conn, &answer);
    } else {
        lane_answered(conn, &answer);
    }
}

static void lane_got_value(struct tcp_conn *conn, uint32_t got_bytes)
{
    struct fabric_lane *lane = conn->lane;
    struct fabric_unit *unit = fabric_lane_unit(lane, lane->head);
    if (conn->rx == RX_VALUE) {
        fabric_unit_arrived(lane, got_bytes);
        sl_runs_skip(&conn->value, got_bytes);
        if (fabric_unit_given_up(lane, unit)) {
            fabric_unit_release(lane, unit, SL_ERR_CANCELLED);
            conn->rx = RX_DISCARD;
        }
    }
    conn->value_left -= got_bytes;
    if (conn->value_left > 0) {
        lane_expect_value(conn);
        return;
    }
    fabric_unit_end(lane, SL_OK);
    lane_expect_head(conn);
}

/* Copies the digest of the chain's current unit to where the core reads it. Nothing feeds it
 * meanwhile: the chain has ended, or continues with another piece. */
static void chain_digest(struct tcp_conn *conn)
{
    const struct tcp_chain *chain = conn->chain;
    const struct sl_digest_stream *digest =
        chain->at == 0 ? NULL : chain->steps[chain->at - 1].digest;
    if (digest != NULL && digest != &conn->lane->digest) {
        conn->lane->digest = *digest;
    }
}

void tcp_lane_chained(struct tcp_conn *conn)
{
    struct fabric_lane *lane = conn->lane;
    struct fabric_unit *unit = fabric_lane_unit(lane, lane->head);
    if (unit->last) {
        chain_digest(conn);
    }
    fabric_unit_arrived(lane, conn->value_left);
    if (fabric_unit_given_up(lane, unit)) {
        fabric_unit_release(lane, unit, SL_ERR_CANCELLED);
    }
    fabric_unit_end(lane, SL_OK);
    unit = fabric_lane_unit(lane, lane->head);
    conn->chain->at++;
    conn->value = unit->local;
    conn->value_left = unit->length_bytes;
}

static void lane_received(struct tcp_conn *conn, uint32_t got_bytes)
{
    lane_skip(conn->lane);
    if (conn->in_head) { /* the next head was not read */
        conn->in_head = false;
        lane_expect_head(conn);
    } else if (conn->rx == RX_HEAD) {
        lane_got_head(conn, got_bytes);
    } else {
        lane_got_value(conn, got_bytes);
    }
}

void tcp_lane_received(struct tcp_conn *conn, int result)
{
    bool chained = conn->chain != NULL && conn->chain->count > 0;
    if (chained) {
        chain_digest(conn);
        chain_forget(conn);
    }
    if (result == -ECANCELED) {
        result = 0; /* only we cancel: no bytes, and the next ones are discarded */
    } else if (result == -EBADMSG || result == -EPROTO) {
        conn->rail->stats.records_bad++;
        lane_fail(conn, SL_ERR_PEER_DIED, "a record was modified, or is not valid", 0);
        return;
    } else if (result <= 0) {
        lane_fail(conn, SL_ERR_PEER_DIED, result == 0 ? "closed by the peer" : "receive", -result);
        return;
    }
    lane_received(conn, (uint32_t)result);
    if (chained && conn->state == CONN_OPEN) {
        tcp_lane_cancel(conn->lane); /* releases cancelled units that only the chain used */
    }
}

void tcp_lane_sent(struct tcp_conn *conn, int result)
{
    if (result <= 0) {
        lane_fail(conn, SL_ERR_PEER_DIED, "send", result == 0 ? EPIPE : -result);
        return;
    }
    if (conn->state == CONN_OPEN) {
        tcp_lane_push(conn->lane);
    }
}

/* ---- liveness ---- */

/* Bytes that the kernel has moved: a large receive may be incomplete. */
static uint64_t conn_mark(const struct tcp_conn *conn)
{
    struct tcp_info info = {0};
    socklen_t length = sizeof(info);
    if (getsockopt(conn->fd, IPPROTO_TCP, TCP_INFO, &info, &length) < 0) {
        return conn->progress_mark;
    }
    return (uint64_t)info.tcpi_bytes_received + (uint64_t)info.tcpi_bytes_acked;
}

uint64_t tcp_lane_look(struct tcp_conn *conn)
{
    struct fabric_rail *rail = conn->rail;
    const struct fabric_lane *lane = conn->lane;
    bool asked = conn->state == CONN_OPEN && lane->head < lane->sent;
    if (!asked) {
        return SL_NEVER_NS; /* connect_ns limits connecting and greeting */
    }
    uint64_t mark = conn_mark(conn);
    if (mark != conn->progress_mark) {
        conn->progress_mark = mark;
        conn->progress_ns = rail->now_ns;
    }
    uint64_t dead_ns = sl_deadline_ns(conn->progress_ns, rail->options.stall_ns);
    if (dead_ns > rail->now_ns) {
        return SL_MIN(dead_ns, lane_look_at(rail));
    }
    lane_fail(conn, SL_ERR_PEER_DIED, "no progress for too long", 0);
    return SL_NEVER_NS;
}
