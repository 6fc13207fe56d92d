/* runtime/net/fabric/tcp/secure.c - handshakes, and transfers of connections by our own ring:
 * lane.c and serve.c get their bytes when enough records were opened. In the clear there are no
 * records, and answers are sent from and received into the memory of values. */
#include "runtime/net/fabric/tcp/internal.h"

#include <errno.h>
#include <stdlib.h>

#define TAKES_A_PUMP 64u /* then other connections get their turn */

/* ---- life ---- */

static bool psk_find(void *context, const uint8_t id[SL_WIRE_ID_BYTES],
                     uint8_t key[SL_WIRE_PSK_BYTES])
{
    struct tcp_conn *conn = context;
    const struct tcp_credentials *credential = tcp_credentials_find(conn->rail, id);
    if (credential == NULL) {
        return false;
    }
    conn->asker = credential->peer;
    tcp_unauth_named(conn);
    memcpy(key, credential->psk, SL_WIRE_PSK_BYTES);
    return true;
}

sl_err tcp_secure_begin(struct tcp_conn *conn, struct sl_error *why)
{
    struct tcp *tcp = tcp_of(conn->rail);
    struct tcp_secure *secure = calloc(1, sizeof(*secure));
    conn->secure = secure;
    if (secure == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a connection");
    }
    struct sl_handshake_options options = {
        .answers = conn->lane == NULL, .find = psk_find, .context = conn};
    if (conn->lane != NULL) {
        const struct sl_wire_address *address = conn->lane->peer->backend;
        options.id = address->id;
        options.key = address->psk;
    }
    secure->job = (struct sl_seal_job){.sealer = &secure->out,
                                       .message = &conn->message,
                                       .parts = conn->parts,
                                       .heads = conn->part_heads};
    sl_err err = sl_records_init(&secure->in, why);
    if (err == SL_OK) {
        err = sl_records_init(&secure->out, why);
    }
    if (err == SL_OK) {
        err = sl_handshake_begin(tcp->tls, &options, &secure->handshake, why);
    }
    return err;
}

void tcp_secure_end(struct tcp_conn *conn)
{
    struct tcp_secure *secure = conn->secure;
    conn->secure = NULL;
    if (secure != NULL) {
        sl_handshake_end(&secure->handshake);
        sl_records_fini(&secure->in);
        sl_records_fini(&secure->out);
        free(secure);
    }
}

static void raw_receive(struct tcp_conn *conn)
{
    struct tcp_secure *secure = conn->secure;
    uint32_t low_bytes = 1;
    secure->recv_message = (struct msghdr){.msg_iov = secure->recv_parts};
    secure->recv_message.msg_iovlen =
        sl_opener_parts(&secure->in, secure->to, secure->to_bytes, secure->recv_parts, &low_bytes);
    bool all = conn->lane != NULL && secure->handshake == NULL;
    sl_low_water_set(&conn->low, conn->fd, all ? low_bytes : 1);
    struct io_uring_sqe *sqe = sl_ring_sqe(&tcp_of(conn->rail)->ring);
    io_uring_prep_recvmsg(sqe, conn->fd, &secure->recv_message, 0);
    tcp_tag(sqe, conn->index, TCP_OP_RECV);
    secure->receives = true;
    conn->ops_out++;
}

/* ---- the handshake ---- */

static void greet_fail(struct tcp_conn *conn, const struct sl_error *why)
{
    if (conn->lane != NULL) {
        fabric_peer_fail(conn->lane->peer, why);
        return;
    }
    conn->rail->stats.refused++;
    tcp_close(conn);
}

/* Complete: both sides have proved their key. */
static void greet_over(struct tcp_conn *conn)
{
    struct tcp_secure *secure = conn->secure;
    struct sl_error why = {0};
    sl_err err = sl_handshake_keys(secure->handshake, &secure->in, &secure->out, &why);
    sl_handshake_end(&secure->handshake);
    secure->out.begin = secure->out.end = 0;
    if (conn->lane != NULL && conn->rail->options.clear) { /* only if both want it */
        const struct sl_wire_address *address = conn->lane->peer->backend;
        secure->in.clear = address->clear && secure->in.end == 0;
    }
    if (err != SL_OK) {
        greet_fail(conn, &why);
    } else if (conn->lane != NULL) {
        tcp_lane_hello(conn);
    } else {
        tcp_served_secured(conn);
    }
}

/* Sends pending bytes, and then continues. */
static void greet_turn(struct tcp_conn *conn)
{
    struct tcp_secure *secure = conn->secure;
    if (conn->send_on) {
        return;
    }
    secure->out.begin = 0;
    secure->out.end =
        sl_handshake_output(secure->handshake, secure->out.staging, secure->out.room_bytes);
    if (secure->out.end > 0) {
        conn->send_on = true;
        conn->rail->work_due = true;
        tcp_secure_send(conn);
    } else if (secure->greeted) {
        greet_over(conn);
    } else if (!secure->receives) {
        conn->rail->work_due = true;
        raw_receive(conn);
    }
}

void tcp_secure_greet(struct tcp_conn *conn, const void *bytes, uint32_t length_bytes)
{
    struct tcp_secure *secure = conn->secure;
    struct sl_error why = {0};
    sl_err err = sl_handshake_step(secure->handshake, bytes, length_bytes, &why);
    if (err != SL_OK && err != SL_ERR_BUSY) {
        greet_fail(conn, &why);
        return;
    }
    secure->greeted = err == SL_OK;
    greet_turn(conn);
    if (conn->secure != NULL && secure->handshake != NULL && !secure->greeted &&
        !secure->receives && conn->state == CONN_GREETING) {
        raw_receive(conn); /* also while sending: the answer may arrive first */
    }
}

static void greet_received(struct tcp_conn *conn, int result)
{
    struct tcp_secure *secure = conn->secure;
    if (result <= 0) {
        struct sl_error why = {0};
        (void)sl_fail(&why, SL_ERR_UNREACHABLE,
                      "the peer ended the handshake: it has another key or another version");
        greet_fail(conn, &why);
        return;
    }
    tcp_secure_greet(conn, secure->in.staging, (uint32_t)result);
}

/* ---- receiving ---- */

static void list(struct tcp_conn *conn)
{
    struct tcp *tcp = tcp_of(conn->rail);
    if (!conn->listed) {
        conn->listed = true;
        tcp->ready[(tcp->ready_head + tcp->ready_count++) % tcp->conn_count] = conn->index;
    }
    conn->rail->work_due = true;
}

void tcp_secure_want(struct tcp_conn *conn, struct sl_runs to, uint32_t length_bytes,
                     struct sl_digest_stream *digest)
{
    struct tcp_secure *secure = conn->secure;
    SL_ASSERT(!conn->recv_on);
    conn->recv_on = true;
    secure->to = to;
    secure->to_bytes = length_bytes;
    secure->digest = digest;
    if (length_bytes >= TCP_LARGE_BYTES && !secure->receives) {
        sl_records_grow(&secure->in);
    }
    list(conn);
}

void tcp_secure_cancel(struct tcp_conn *conn)
{
    conn->secure->cancelled = true; /* no operation writes to the memory */
    list(conn);
}

/* Delivers wanted bytes that are available. */
static void pump(struct tcp_conn *conn)
{
    struct tcp_secure *secure = conn->secure;
    for (uint32_t i = 0; i < TAKES_A_PUMP && conn->recv_on && !conn->recv_moves; i++) {
        int32_t got = secure->cancelled  ? -ECANCELED
                      : secure->receives ? 0
                                         : sl_opener_take(&secure->in, secure->to, secure->to_bytes,
                                                          secure->digest);
        if (got == 0 && secure->failed < 0) {
            got = secure->failed;
        }
        if (got == 0) {
            if (!secure->receives) {
                raw_receive(conn);
            }
            return;
        }
        secure->cancelled = false;
        conn->recv_on = false;
        tcp_recv_done(conn, got);
        if (conn->state == CONN_CLOSING || conn->state == CONN_FREE) {
            return;
        }
    }
    if (conn->recv_on && !conn->recv_moves) {
        list(conn);
    }
}

void tcp_secure_received(struct tcp_conn *conn, int result)
{
    struct tcp_secure *secure = conn->secure;
    secure->receives = false;
    if (conn->state == CONN_CLOSING) {
        return;
    }
    if (secure->handshake != NULL) {
        greet_received(conn, result);
        return;
    }
    if (result > 0) {
        sl_opener_received(&secure->in, (uint32_t)result);
    } else if (result == -ECANCELED) {
        secure->cancelled = true;
    } else {
        secure->failed = result == 0 ? -ECONNRESET : result; /* after available bytes */
    }
    pump(conn);
}

/* ---- sending ---- */

void tcp_secure_send(struct tcp_conn *conn)
{
    struct tcp_secure *secure = conn->secure;
    int32_t result = sl_seal_next(&secure->job, &secure->send_message);
    if (result < 0) {
        secure->send_failed = result;
        list(conn);
    } else if (result == 0) {
        tcp_send_done(conn, 1);
    } else {
        struct io_uring_sqe *sqe = sl_ring_sqe(&tcp_of(conn->rail)->ring);
        io_uring_prep_sendmsg(sqe, conn->fd, &secure->send_message, MSG_NOSIGNAL | MSG_WAITALL);
        tcp_tag(sqe, conn->index, TCP_OP_SEND);
        conn->ops_out++;
    }
}

void tcp_secure_sent(struct tcp_conn *conn, int result)
{
    struct tcp_secure *secure = conn->secure;
    if (conn->state == CONN_CLOSING || (result <= 0 && secure->handshake == NULL)) {
        tcp_send_done(conn, result);
        return;
    }
    sl_seal_sent(&secure->job, (uint32_t)SL_MAX(result, 0));
    if (secure->handshake == NULL || (result > 0 && secure->out.begin < secure->out.end)) {
        conn->rail->work_due = true;
        tcp_secure_send(conn);
        return;
    }
    conn->send_on = false;
    if (result <= 0) {
        greet_received(conn, 0);
    } else {
        greet_turn(conn);
    }
}

/* ---- turns ---- */

void tcp_secure_turn(struct tcp *tcp)
{
    for (uint32_t left = tcp->ready_count; left > 0; left--) {
        struct tcp_conn *conn = &tcp->conns[tcp->ready[tcp->ready_head]];
        tcp->ready_head = (tcp->ready_head + 1) % tcp->conn_count;
        tcp->ready_count--;
        conn->listed = false;
        if (conn->secure == NULL || conn->state == CONN_FREE || conn->state == CONN_CLOSING) {
            continue;
        }
        int32_t failed = conn->secure->send_failed;
        if (failed < 0) {
            conn->secure->send_failed = 0;
            tcp_send_done(conn, failed);
        } else {
            pump(conn);
        }
    }
}
