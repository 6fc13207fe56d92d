/* runtime/net/fabric/tcp/conn.c - connections: submissions, start and end. */
#include "runtime/net/fabric/tcp/internal.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- submissions ---- */

void tcp_tag(struct io_uring_sqe *sqe, uint32_t conn, enum tcp_op op)
{
    io_uring_sqe_set_data64(sqe, (uint64_t)conn << 8 | (uint64_t)op);
}

void tcp_due(struct tcp_conn *conn, uint64_t *due_ns, uint64_t at_ns)
{
    struct tcp *tcp = tcp_of(conn->rail);
    *due_ns = at_ns;
    tcp->due_ns = SL_MIN(tcp->due_ns, at_ns);
}

static uint32_t mover_slot(const struct tcp_conn *conn, bool send)
{
    return 2 * conn->index + send;
}

bool tcp_moves(const struct tcp_conn *conn, uint64_t value_bytes)
{
    return tcp_of(conn->rail)->movers != NULL && value_bytes >= TCP_MOVE_BYTES;
}

void tcp_recv_value(struct tcp_conn *conn, struct sl_digest_stream *digest)
{
    struct tcp *tcp = tcp_of(conn->rail);
    if (conn->rx == RX_DISCARD) {
        uint32_t bytes = SL_MIN(conn->value_left, TCP_DISCARD_BYTES);
        tcp_secure_want(conn, sl_runs_of(tcp->discard, bytes), bytes, NULL);
        return;
    }
    if (!tcp_moves(conn, conn->value_left) || conn->secure->receives) {
        tcp_secure_want(conn, conn->value, conn->value_left, digest);
        return;
    }
    const struct tcp_chain *chain = conn->chain;
    sl_records_grow(&conn->secure->in);
    const struct sl_mover_receive receive = {
        .fd = conn->fd,
        .to = conn->value,
        .length_bytes = conn->value_left,
        .low = &conn->low,
        .digest = digest,
        .steps = chain == NULL ? NULL : chain->steps,
        .step_count = chain == NULL || chain->count == 0 ? 0 : chain->count - 1,
        .opener = &conn->secure->in,
    };
    sl_movers_receive(tcp->movers, mover_slot(conn, false), &receive);
    conn->recv_on = conn->recv_moves = true;
    conn->ops_out++;
}

void tcp_recv_cancel(struct tcp_conn *conn)
{
    struct tcp *tcp = tcp_of(conn->rail);
    if (!conn->recv_on || conn->recv_cancelled) {
        return;
    }
    conn->rail->work_due = true; /* the mover or kernel must get it */
    if (conn->recv_moves) {
        sl_movers_cancel(tcp->movers, mover_slot(conn, false));
        return;
    }
    if (!conn->secure->in.clear || !conn->secure->receives) {
        tcp_secure_cancel(conn);
        return;
    }
    struct io_uring_sqe *sqe = sl_ring_sqe(&tcp->ring);
    io_uring_prep_cancel64(sqe, (uint64_t)conn->index << 8 | TCP_OP_RECV, 0);
    tcp_tag(sqe, conn->index, TCP_OP_CANCEL);
    conn->recv_cancelled = true;
    conn->ops_out++;
}

static void part_add(struct tcp_conn *conn, const void *at, size_t length_bytes, bool is_head)
{
    size_t count = conn->message.msg_iovlen;
    struct iovec *last = count == 0 ? NULL : &conn->parts[count - 1];
    if (last != NULL && (const unsigned char *)last->iov_base + last->iov_len == at &&
        (conn->part_heads[count - 1] != 0) == is_head) {
        last->iov_len += length_bytes;
        return;
    }
    SL_ASSERT(count < SL_COUNT(conn->parts));
    conn->parts[count] = (struct iovec){.iov_base = (void *)(uintptr_t)at, .iov_len = length_bytes};
    conn->part_heads[count] = is_head;
    conn->message.msg_iovlen++;
    conn->message.msg_iov = conn->parts;
}

void tcp_part(struct tcp_conn *conn, const void *at, size_t length_bytes)
{
    part_add(conn, at, length_bytes, true);
}

void tcp_message_begin(struct tcp_conn *conn)
{
    conn->message.msg_iovlen = 0;
    conn->rest_bytes = 0;
}

bool tcp_message_has_room(const struct tcp_conn *conn)
{
    return conn->rest_bytes == 0 && conn->message.msg_iovlen + 2 <= SL_COUNT(conn->parts);
}

static void message_fill(struct tcp_conn *conn)
{
    while (conn->rest_bytes > 0 && conn->message.msg_iovlen < SL_COUNT(conn->parts)) {
        struct iovec part = sl_runs_part(&conn->rest, conn->rest_bytes);
        part_add(conn, part.iov_base, part.iov_len, false);
        sl_runs_skip(&conn->rest, part.iov_len);
        conn->rest_bytes -= (uint32_t)part.iov_len;
    }
}

void tcp_part_value(struct tcp_conn *conn, struct sl_runs value, uint32_t length_bytes)
{
    conn->rest = value;
    conn->rest_bytes = length_bytes;
    message_fill(conn);
}

void tcp_send_more(struct tcp_conn *conn)
{
    message_fill(conn); /* values in many places need several sends */
    conn->send_on = true;
    conn->rail->work_due = true;
    if (conn->send_moves) {
        conn->ops_out++;
        sl_movers_send(tcp_of(conn->rail)->movers, mover_slot(conn, true), conn->fd,
                       &conn->secure->job);
    } else {
        tcp_secure_send(conn);
    }
}

void tcp_send(struct tcp_conn *conn, uint64_t value_bytes)
{
    struct fabric_rail *rail = conn->rail;
    SL_ASSERT(!conn->send_on);
    if (value_bytes >= TCP_LARGE_BYTES) {
        sl_records_grow(&conn->secure->out);
    }
    conn->send_moves = tcp_moves(conn, value_bytes);
    tcp_due(conn, &conn->tx_due_ns,
            sl_deadline_ns(rail->now_ns, rail->options.stall_ns + value_bytes * TCP_NS_PER_BYTE));
    tcp_send_more(conn);
}

/* ---- connections ---- */

socklen_t tcp_sockaddr(const struct sl_wire_address *address, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof(*out));
    if (address->ipv6) {
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)out;
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(address->port);
        six->sin6_scope_id = address->scope;
        memcpy(&six->sin6_addr, address->ip, 16);
        return sizeof(*six);
    }
    struct sockaddr_in *four = (struct sockaddr_in *)out;
    four->sin_family = AF_INET;
    four->sin_port = htons(address->port);
    memcpy(&four->sin_addr, address->ip, 4);
    return sizeof(*four);
}

void tcp_socket_options(const struct fabric_rail *rail, int fd)
{
    int on = 1;
    unsigned int timeout_ms = (unsigned int)SL_MIN(
        SL_MAX(rail->options.stall_ns / SL_NS_PER_MS, UINT64_C(1)), (uint64_t)INT32_MAX);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
}

void tcp_connect(struct tcp_conn *conn, const struct sl_wire_address *address)
{
    struct tcp *tcp = tcp_of(conn->rail);
    struct sockaddr_storage to;
    socklen_t to_bytes = tcp_sockaddr(address, &to);
    SL_ASSERT(conn->state == CONN_FREE);
    conn->fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (conn->fd < 0) {
        tcp_lane_connected(conn, -errno);
        return;
    }
    tcp_socket_options(conn->rail, conn->fd);
    struct io_uring_sqe *sqe = sl_ring_sqe(&tcp->ring);
    /* The kernel copies the address at submission, which is now. */
    io_uring_prep_connect(sqe, conn->fd, (struct sockaddr *)&to, to_bytes);
    tcp_tag(sqe, conn->index, TCP_OP_CONNECT);
    conn->state = CONN_CONNECTING;
    conn->ops_out++;
    (void)io_uring_submit(&tcp->ring);
}

/* Last step: no operation is in progress. */
void tcp_closed(struct tcp_conn *conn)
{
    struct linger at_once = {.l_onoff = 1};
    if (conn->fd >= 0) { /* a reset discards data that the peer does not read */
        (void)setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        close(conn->fd);
        conn->fd = -1;
    }
    conn->state = CONN_FREE;
    tcp_secure_end(conn);
    if (conn->lane != NULL) {
        tcp_lane_closed(conn);
    } else {
        tcp_served_closed(conn);
    }
}

void tcp_close(struct tcp_conn *conn)
{
    struct tcp *tcp = tcp_of(conn->rail);
    if (conn->state == CONN_FREE || conn->state == CONN_CLOSING) {
        return;
    }
    if (conn->lane == NULL) {
        tcp_unauth_remove(conn);
    }
    conn->state = CONN_CLOSING;
    conn->rx_due_ns = conn->tx_due_ns = SL_NEVER_NS;
    conn->rail->work_due = true;
    if (conn->ops_out > 0) {
        (void)shutdown(conn->fd, SHUT_RDWR);
        if (tcp->movers != NULL) {
            sl_movers_cancel(tcp->movers, mover_slot(conn, false));
            sl_movers_cancel(tcp->movers, mover_slot(conn, true));
        }
        struct io_uring_sqe *sqe = sl_ring_sqe(&tcp->ring);
        io_uring_prep_cancel_fd(sqe, conn->fd, IORING_ASYNC_CANCEL_ALL);
        tcp_tag(sqe, conn->index, TCP_OP_CANCEL);
        conn->ops_out++;
        return;
    }
    tcp_closed(conn);
}
