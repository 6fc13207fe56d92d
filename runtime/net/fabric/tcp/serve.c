/* runtime/net/fabric/tcp/serve.c - the serving side: reads our memory for peers within their
 * grants. Requests are untrusted until their token was compared. */
#include "runtime/net/fabric/tcp/internal.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct tcp_served *served_at(const struct tcp_conn *conn, uint64_t number)
{
    return &conn->queue[number % TCP_QUEUE_MAX];
}

static void served_take(struct tcp_conn *conn);

static uint32_t heads_left(const struct tcp_conn *conn)
{
    return conn->heads_bytes - conn->heads_taken;
}

static void served_expect_heads(struct tcp_conn *conn)
{
    uint32_t left_bytes = heads_left(conn);
    memmove(conn->heads_in, conn->heads_in + conn->heads_taken, left_bytes);
    conn->heads_bytes = left_bytes;
    conn->heads_taken = 0;
    if (left_bytes > 0 && conn->rx_due_ns == SL_NEVER_NS) { /* part of a request: set a deadline */
        tcp_due(conn, &conn->rx_due_ns,
                sl_deadline_ns(conn->rail->now_ns, conn->rail->options.stall_ns));
    }
    uint32_t room_bytes = (uint32_t)sizeof(conn->heads_in) - left_bytes;
    tcp_secure_want(conn, sl_runs_of(conn->heads_in + left_bytes, room_bytes), room_bytes, NULL);
}

static void served_bad(struct tcp_conn *conn)
{
    conn->rail->stats.bad_frames++;
    tcp_close(conn);
}

void tcp_accepted(struct fabric_rail *rail, int fd)
{
    struct tcp *tcp = tcp_of(rail);
    uint32_t index = tcp->lane_count;
    while (index < tcp->conn_count && tcp->conns[index].state != CONN_FREE) {
        index++;
    }
    if (index == tcp->conn_count) {
        rail->stats.over_limit++;
        close(fd);
        return;
    }
    struct tcp_conn *conn = &tcp->conns[index];
    *conn = (struct tcp_conn){.rail = rail,
                              .index = index,
                              .fd = fd,
                              .state = CONN_GREETING,
                              .listed = conn->listed,
                              .queue = conn->queue};
    conn->tx_due_ns = SL_NEVER_NS;
    tcp_due(conn, &conn->rx_due_ns, sl_deadline_ns(rail->now_ns, rail->options.handshake_ns));
    tcp_unauth_add(conn);
    if (conn->state != CONN_GREETING) {
        return; /* displaced by the limit */
    }
    if (tcp_secure_begin(conn, NULL) != SL_OK) {
        rail->stats.refused++;
        tcp_close(conn);
        return;
    }
    tcp_secure_greet(conn, "", 0);
}

/* ---- permission of a request ---- */

static void grant_leave(struct fabric_rail *rail, uint32_t index)
{
    if (index == FABRIC_NONE) {
        return;
    }
    struct fabric_grant *grant = &rail->fabric->grants[index];
    struct fabric_share *share = &rail->shares[index];
    SL_ASSERT(share->serving > 0);
    share->serving--;
    if (share->serving == 0 && grant->state == GRANT_ENDING) {
        fabric_grant_gone(rail, grant);
    }
}

/* Whether the grant's owner permits this range now. */
static bool grant_lets(const struct sl_fabric *fabric, const struct fabric_grant *grant,
                       uint64_t offset_bytes, uint64_t length_bytes)
{
    const struct sl_fabric_events *events = &fabric->options.events;
    return grant->what.cookie == 0 || events->may_read == NULL ||
           events->may_read(events->context, grant->what.cookie, offset_bytes, length_bytes);
}

/* Finds the peer's live grant with this token that covers the range. All failures look the same. */
static struct fabric_grant *grant_find(const struct tcp_conn *conn,
                                       const struct sl_wire_request *request)
{
    static const uint8_t nobody[SL_WIRE_TOKEN_BYTES];
    struct fabric_rail *rail = conn->rail;
    bool there = request->grant < rail->options.grants_max;
    struct fabric_grant *grant = there ? &rail->fabric->grants[request->grant] : NULL;
    there = there && grant->state == GRANT_LIVE && grant->what.peer == conn->asker;
    bool same = sl_same_bytes(there ? grant->token : nobody, request->token, SL_WIRE_TOKEN_BYTES);
    if (!there || !same || grant->generation != request->generation) {
        return NULL;
    }
    uint64_t from = grant->what.offset_bytes, length = grant->what.length_bytes;
    if (request->offset_bytes < from || request->offset_bytes - from > length ||
        request->length_bytes > length - (request->offset_bytes - from)) {
        return NULL;
    }
    return grant_lets(rail->fabric, grant, request->offset_bytes, request->length_bytes) ? grant
                                                                                         : NULL;
}

static void served_answer(struct tcp_conn *conn, const struct tcp_served *served);

static void served_request(struct tcp_conn *conn, const struct sl_wire_request *request)
{
    struct fabric_rail *rail = conn->rail;
    struct fabric_grant *grant = grant_find(conn, request);
    struct tcp_served served = {
        .verb = (uint8_t)request->verb,
        .code = grant == NULL ? SL_ERR_PERMISSION : SL_OK,
        .sequence = request->sequence,
        .length_bytes = request->length_bytes,
        .grant = FABRIC_NONE,
    };
    if (grant == NULL) {
        rail->stats.refused++;
    } else {
        served.value = fabric_grant_runs(grant, request->offset_bytes);
        served.grant = grant->index;
        rail->shares[grant->index].serving++;
    }
    served_answer(conn, &served);
}

static void served_open(struct tcp_conn *conn, const struct sl_wire_request *hello)
{
    conn->secure->out.clear = hello->grant != 0; /* in a record of an authentic peer */
    conn->state = CONN_OPEN;
    tcp_unauth_proved(conn);
    conn->rx_due_ns = SL_NEVER_NS;
    struct tcp_served served = {.verb = SL_WIRE_HELLO, .grant = FABRIC_NONE};
    served_answer(conn, &served);
}

/* ---- receiving ---- */

static void served_head(struct tcp_conn *conn, const unsigned char *head)
{
    struct sl_wire_request request;
    bool greeting = conn->state == CONN_GREETING;
    if (!greeting) {
        conn->rx_due_ns = SL_NEVER_NS;
    }
    if (sl_wire_request_read(head, &request, NULL) != SL_OK ||
        greeting != (request.verb == SL_WIRE_HELLO) ||
        (greeting && request.grant != 0 && !conn->rail->options.clear)) {
        served_bad(conn);
    } else if (greeting) {
        served_open(conn, &request);
    } else {
        served_request(conn, &request);
    }
}

void tcp_served_secured(struct tcp_conn *conn)
{
    conn->rx = RX_HEAD;
    served_expect_heads(conn);
}

/* Handles received requests, until the queue is full or more must arrive. */
static void served_take(struct tcp_conn *conn)
{
    conn->rx = RX_HEAD;
    while (conn->rx == RX_HEAD && heads_left(conn) >= SL_WIRE_REQUEST_BYTES) {
        if (conn->tail_number - conn->head_number >= TCP_QUEUE_MAX) {
            conn->rx = RX_NONE; /* continues after an answer was sent */
            return;
        }
        const unsigned char *head = conn->heads_in + conn->heads_taken;
        conn->heads_taken += SL_WIRE_REQUEST_BYTES;
        served_head(conn, head);
        if (conn->state == CONN_CLOSING || conn->state == CONN_FREE) {
            return;
        }
    }
    if (conn->rx == RX_HEAD) {
        served_expect_heads(conn);
    }
}

void tcp_served_received(struct tcp_conn *conn, int result)
{
    if (result <= 0) {
        conn->rail->stats.records_bad += result == -EBADMSG || result == -EPROTO;
        tcp_close(conn); /* closed by the peer, which wants no more answers */
        return;
    }
    conn->heads_bytes += (uint32_t)result;
    served_take(conn);
}

/* ---- answering ---- */

static void served_push(struct tcp_conn *conn)
{
    uint64_t value_bytes = 0;
    uint32_t frames = 0;
    if (conn->send_on || conn->sent_number == conn->tail_number) {
        return;
    }
    tcp_message_begin(conn);
    while (conn->sent_number < conn->tail_number && frames < TCP_SEND_BATCH &&
           value_bytes < TCP_SEND_BYTES && tcp_message_has_room(conn)) {
        struct tcp_served *served = served_at(conn, conn->sent_number++);
        bool has_value = served->verb == SL_WIRE_READ && served->code == SL_OK;
        struct sl_wire_answer answer = {
            .verb = (enum sl_wire_verb)served->verb,
            .code = (sl_err)served->code,
            .sequence = served->sequence,
            .length_bytes = has_value ? served->length_bytes : 0,
        };
        sl_wire_answer_write(&answer, served->head);
        tcp_part(conn, served->head, SL_WIRE_ANSWER_BYTES);
        if (has_value) {
            tcp_part_value(conn, served->value, served->length_bytes);
            value_bytes += served->length_bytes;
        }
        frames++;
    }
    tcp_send(conn, value_bytes);
}

static void served_answer(struct tcp_conn *conn, const struct tcp_served *served)
{
    SL_ASSERT(conn->tail_number - conn->head_number < TCP_QUEUE_MAX);
    *served_at(conn, conn->tail_number) = *served;
    conn->tail_number++;
    conn->rail->work_due = true;
    served_push(conn);
}

/* Frees answers that were sent. */
static void served_retire(struct tcp_conn *conn)
{
    uint64_t out = conn->send_on ? conn->out_number : conn->sent_number;
    while (conn->head_number < out) {
        struct tcp_served *served = served_at(conn, conn->head_number);
        if (served->verb == SL_WIRE_READ && served->code == SL_OK) {
            conn->rail->stats.served_read_bytes += served->length_bytes;
        }
        uint32_t grant = served->grant;
        served->grant = FABRIC_NONE;
        conn->head_number++;
        grant_leave(conn->rail, grant);
    }
    if (conn->state == CONN_OPEN && conn->rx == RX_NONE && !conn->recv_on) {
        served_take(conn);
    }
}

void tcp_served_sent(struct tcp_conn *conn, int result)
{
    if (result <= 0) {
        tcp_close(conn);
        return;
    }
    conn->out_number = conn->sent_number;
    served_push(conn);
    served_retire(conn);
}

void tcp_served_closed(struct tcp_conn *conn)
{
    while (conn->head_number < conn->tail_number) {
        uint32_t grant = served_at(conn, conn->head_number++)->grant;
        grant_leave(conn->rail, grant);
    }
}

uint64_t tcp_served_look(struct tcp_conn *conn)
{
    uint64_t due_ns = SL_MIN(conn->rx_due_ns, conn->tx_due_ns);
    if (due_ns <= conn->rail->now_ns) {
        conn->rail->stats.late++;
        tcp_close(conn);
        return SL_NEVER_NS;
    }
    return due_ns;
}

void tcp_served_forget(struct fabric_rail *rail, uint32_t peer)
{
    struct tcp *tcp = tcp_of(rail);
    for (uint32_t i = tcp->lane_count; i < tcp->conn_count; i++) {
        if (tcp->conns[i].state != CONN_FREE && tcp->conns[i].asker == peer) {
            tcp_close(&tcp->conns[i]);
        }
    }
}

/* ---- the end of a grant ---- */

/* Deadline for answers being sent when their grant ends: a quarter of stall_ns, and time for all
 * bytes in parallel with other lanes. A caller that waits longer is itself taken for dead. */
static uint64_t ended_due_ns(const struct tcp_conn *conn)
{
    const struct fabric_rail *rail = conn->rail;
    uint64_t wait_ns = rail->options.stall_ns / 4;
    for (uint64_t i = conn->out_number; i < conn->sent_number; i++) {
        wait_ns += served_at(conn, i)->length_bytes * TCP_ENDED_NS_PER_BYTE;
    }
    return sl_deadline_ns(rail->now_ns, SL_MIN(wait_ns, rail->options.stall_ns / 4 * 3));
}

/* Refuses queued requests of ended grants; sets a deadline for answers being sent. */
static void served_recheck(struct tcp_conn *conn)
{
    struct fabric_rail *rail = conn->rail;
    for (uint64_t i = conn->out_number; i < conn->tail_number; i++) {
        struct tcp_served *served = served_at(conn, i);
        if (served->grant == FABRIC_NONE ||
            rail->fabric->grants[served->grant].state != GRANT_ENDING) {
            continue;
        }
        if (i < conn->sent_number) { /* disconnects a peer that does not read in time */
            tcp_due(conn, &conn->tx_due_ns, SL_MIN(conn->tx_due_ns, ended_due_ns(conn)));
            continue;
        }
        uint32_t grant = served->grant; /* not sent yet: refuse it */
        served->grant = FABRIC_NONE;
        served->code = SL_ERR_PERMISSION;
        rail->stats.refused++;
        grant_leave(rail, grant);
    }
}

void tcp_grant_end(struct fabric_rail *rail, struct fabric_grant *grant)
{
    struct tcp *tcp = tcp_of(rail);
    if (rail->shares[grant->index].serving == 0) {
        fabric_grant_gone(rail, grant);
        return;
    }
    for (uint32_t i = tcp->lane_count; i < tcp->conn_count; i++) {
        if (tcp->conns[i].state == CONN_OPEN) {
            served_recheck(&tcp->conns[i]);
        }
    }
}
