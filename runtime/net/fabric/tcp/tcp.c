/* runtime/net/fabric/tcp/tcp.c - the tcp back end: ring, listener, connections; see internal.h. */
#include "runtime/net/fabric/tcp/tcp.h"
#include "runtime/base/sl_address.h"
#include "runtime/net/fabric/tcp/internal.h"
#include "runtime/net/sl_unauth.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define COMPLETIONS_A_STEP 64u
#define QUIESCE_NS         (2 * SL_NS_PER_S)

/* ---- completions ---- */

static void tcp_accept(struct fabric_rail *rail)
{
    struct tcp *tcp = tcp_of(rail);
    if (tcp->listen_fd < 0 || tcp->accept_on || tcp->accept_at_ns > rail->now_ns) {
        return;
    }
    struct io_uring_sqe *sqe = sl_ring_sqe(&tcp->ring);
    io_uring_prep_accept(sqe, tcp->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    tcp_tag(sqe, 0, TCP_OP_ACCEPT);
    tcp->accept_on = true;
    tcp->accept_at_ns = SL_NEVER_NS;
}

static void tcp_accept_done(struct fabric_rail *rail, int result)
{
    struct tcp *tcp = tcp_of(rail);
    tcp->accept_on = false;
    tcp->accept_at_ns = 0;
    if (result < 0) { /* probably out of descriptors: retry later */
        tcp->accept_at_ns = sl_deadline_ns(rail->now_ns, TCP_ACCEPT_WAIT);
        return;
    }
    tcp_socket_options(rail, result);
    tcp_accepted(rail, result);
}

void tcp_send_done(struct tcp_conn *conn, int result)
{
    if (conn->state != CONN_CLOSING && result > 0 && conn->rest_bytes > 0) {
        tcp_send_more(conn);
        return;
    }
    conn->send_on = false;
    conn->tx_due_ns = SL_NEVER_NS;
    if (conn->state == CONN_CLOSING) {
        return;
    }
    conn->progress_ns = conn->rail->now_ns;
    if (conn->lane != NULL) {
        tcp_lane_sent(conn, result);
    } else {
        tcp_served_sent(conn, result);
    }
}

void tcp_recv_done(struct tcp_conn *conn, int result)
{
    conn->recv_on = conn->recv_moves = false;
    if (conn->state == CONN_CLOSING) {
        return;
    }
    conn->progress_ns = conn->rail->now_ns;
    if (conn->lane != NULL) {
        tcp_lane_received(conn, result);
    } else {
        tcp_served_received(conn, result);
    }
}

/* The cancel may have missed, or hit a later receive: check again. */
static void tcp_cancel_done(struct tcp_conn *conn)
{
    conn->recv_cancelled = false;
    if (conn->state == CONN_OPEN && conn->lane != NULL) {
        tcp_lane_cancel(conn->lane);
    }
}

static void tcp_completion(struct fabric_rail *rail, const struct io_uring_cqe *cqe)
{
    struct tcp *tcp = tcp_of(rail);
    enum tcp_op op = (enum tcp_op)(cqe->user_data & 0xff);
    if (op == TCP_OP_ACCEPT) {
        tcp_accept_done(rail, cqe->res);
        return;
    }
    struct tcp_conn *conn = &tcp->conns[cqe->user_data >> 8];
    conn->ops_out--;
    switch (op) {
    case TCP_OP_SEND:
        tcp_secure_sent(conn, cqe->res);
        break;
    case TCP_OP_RECV:
        tcp_secure_received(conn, cqe->res);
        break;
    case TCP_OP_CONNECT:
        if (conn->state != CONN_CLOSING) {
            tcp_lane_connected(conn, cqe->res);
        }
        break;
    default:
        tcp_cancel_done(conn);
        break;
    }
    if (conn->state == CONN_CLOSING && conn->ops_out == 0) {
        tcp_closed(conn);
    }
}

static void tcp_moved(struct fabric_rail *rail)
{
    struct tcp *tcp = tcp_of(rail);
    struct sl_mover_done dones[COMPLETIONS_A_STEP];
    uint32_t count =
        tcp->movers == NULL ? 0 : sl_movers_take(tcp->movers, dones, COMPLETIONS_A_STEP);
    for (uint32_t i = 0; i < count; i++) {
        struct tcp_conn *conn = &tcp->conns[dones[i].slot / 2];
        if (dones[i].more) {
            if (conn->state != CONN_CLOSING) {
                conn->progress_ns = rail->now_ns;
                tcp_lane_chained(conn);
            }
            continue;
        }
        conn->ops_out--;
        if (dones[i].slot % 2 != 0) {
            tcp_send_done(conn, dones[i].result);
        } else {
            conn->in_head = dones[i].in_head;
            tcp_recv_done(conn, dones[i].result);
        }
        if (conn->state == CONN_CLOSING && conn->ops_out == 0) {
            tcp_closed(conn);
        }
    }
    rail->work_due |= count == COMPLETIONS_A_STEP;
}

static void tcp_look(struct fabric_rail *rail)
{
    struct tcp *tcp = tcp_of(rail);
    if (tcp->due_ns > rail->now_ns) {
        return;
    }
    tcp->due_ns = SL_NEVER_NS;
    for (uint32_t i = 0; i < tcp->conn_count; i++) {
        struct tcp_conn *conn = &tcp->conns[i];
        if (conn->state == CONN_FREE || conn->state == CONN_CLOSING) {
            continue;
        }
        uint64_t next_ns = conn->lane != NULL ? tcp_lane_look(conn) : tcp_served_look(conn);
        tcp->due_ns = SL_MIN(tcp->due_ns, next_ns);
    }
}

static void tcp_reap(struct fabric_rail *rail)
{
    struct tcp *tcp = tcp_of(rail);
    struct io_uring_cqe *cqe = NULL;
    uint32_t count = 0;
    uint64_t rings = 0;
    ssize_t got = read(tcp->event_fd, &rings, sizeof(rings)); /* first, so that no event is lost */
    (void)got;
    tcp_moved(rail);
    bool again = true;
    while (again) { /* receive available bytes at once, without an event loop turn */
        uint32_t before = count;
        tcp_secure_turn(tcp);
        (void)io_uring_submit_and_get_events(&tcp->ring);
        while (count < COMPLETIONS_A_STEP && io_uring_peek_cqe(&tcp->ring, &cqe) == 0) {
            struct io_uring_cqe copy = *cqe; /* 16 bytes: frees the entry first */
            io_uring_cqe_seen(&tcp->ring, cqe);
            tcp_completion(rail, &copy);
            count++;
        }
        again = count > before && count < COMPLETIONS_A_STEP &&
                (io_uring_sq_ready(&tcp->ring) > 0 || tcp->ready_count > 0);
    }
    rail->work_due |= count == COMPLETIONS_A_STEP;
}

static void tcp_step(struct fabric_rail *rail)
{
    tcp_accept(rail);
    tcp_reap(rail);
    tcp_accept(rail);
    tcp_look(rail);
}

static void tcp_flush(struct fabric_rail *rail)
{
    struct tcp *tcp = tcp_of(rail);
    if (io_uring_sq_ready(&tcp->ring) > 0) {
        (void)io_uring_submit(&tcp->ring);
    }
    if (tcp->movers != NULL) {
        sl_movers_flush(tcp->movers);
    }
}

static uint64_t tcp_wake_at(const struct fabric_rail *rail)
{
    const struct tcp *tcp = tcp_of(rail);
    return SL_MIN(tcp->due_ns, tcp->accept_at_ns);
}

/* ---- life ---- */

/* Parses "IP", "IP:PORT" or "[IPV6]:PORT". */
static sl_err address_parse(const char *text, struct sl_wire_address *out, struct sl_error *why)
{
    char ip[64];
    const char *port = NULL;
    uint16_t number = 0;
    if (!sl_address_split(text, SL_PORT_OPTIONAL, ip, sizeof(ip), &port)) {
        return sl_fail(why, SL_ERR_CONFIG, "'%.64s' is no address", text);
    }
    *out = (struct sl_wire_address){0};
    if (inet_pton(AF_INET, ip, out->ip) != 1) {
        out->ipv6 = true;
        if (inet_pton(AF_INET6, ip, out->ip) != 1) {
            return sl_fail(why, SL_ERR_CONFIG, "'%.64s' is no IP address", text);
        }
    }
    if (port != NULL && !sl_port_parse(port, &number)) {
        return sl_fail(why, SL_ERR_CONFIG, "'%.64s': '%.16s' is no port", text, port);
    }
    out->port = number;
    return SL_OK;
}

static sl_err tcp_listen(struct fabric_rail *rail, struct sl_error *why)
{
    struct tcp *tcp = tcp_of(rail);
    const char *text = rail->options.address;
    if (text == NULL || text[0] == '\0') {
        return SL_OK;
    }
    sl_err err = address_parse(text, &tcp->address, why);
    if (err != SL_OK) {
        return err;
    }
    struct sockaddr_storage at;
    socklen_t at_bytes = tcp_sockaddr(&tcp->address, &at);
    int on = 1;
    tcp->listen_fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (tcp->listen_fd < 0) {
        return sl_fail_os(why, errno, "socket for '%s'", text);
    }
    (void)setsockopt(tcp->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(tcp->listen_fd, (struct sockaddr *)&at, at_bytes) < 0 ||
        listen(tcp->listen_fd, TCP_BACKLOG) < 0 ||
        getsockname(tcp->listen_fd, (struct sockaddr *)&at, &at_bytes) < 0) {
        return sl_fail_os(why, errno, "listen at '%s'", text);
    }
    tcp->address.port = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                                       : ((struct sockaddr_in *)&at)->sin_port);
    return SL_OK;
}

static sl_err tcp_ring(struct fabric_rail *rail, struct sl_error *why)
{
    struct tcp *tcp = tcp_of(rail);
    sl_err err = sl_ring_open(&tcp->ring, 2 * tcp->conn_count, why);
    if (err != SL_OK) {
        return err;
    }
    tcp->ring_open = true;
    /* With deferred task work, polling the ring's own descriptor does not wake. */
    rail->fd = tcp->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (tcp->event_fd < 0) {
        return sl_fail_os(why, errno, "eventfd");
    }
    int result = io_uring_register_eventfd(&tcp->ring, tcp->event_fd);
    if (result < 0) {
        return sl_fail_os(why, -result, "register an eventfd");
    }
    return SL_OK;
}

static sl_err tcp_tables(struct fabric_rail *rail, struct sl_error *why)
{
    struct tcp *tcp = tcp_of(rail);
    const struct sl_fabric_options *options = &rail->options;
    tcp->lane_count = options->peers_max * options->lanes;
    bool listens = options->address != NULL && options->address[0] != '\0';
    uint32_t served = listens ? options->connections_max + TCP_PLACES_ENDING : 0;
    tcp->conn_count = tcp->lane_count + served;
    tcp->conns = calloc(tcp->conn_count, sizeof(*tcp->conns));
    tcp->heads = calloc((size_t)tcp->lane_count * options->depth, SL_WIRE_REQUEST_BYTES);
    tcp->queues = calloc((size_t)SL_MAX(served, 1u) * TCP_QUEUE_MAX, sizeof(*tcp->queues));
    tcp->discard = malloc(TCP_DISCARD_BYTES);
    tcp->ready = calloc(SL_MAX(tcp->conn_count, 1u), sizeof(*tcp->ready));
    tcp->credentials = calloc(options->peers_max, sizeof(*tcp->credentials));
    if (options->movers > 0) {
        tcp->chains = aligned_alloc(_Alignof(struct tcp_chain),
                                    SL_MAX(tcp->lane_count, 1u) * sizeof(*tcp->chains));
    }
    for (uint32_t i = 0; tcp->chains != NULL && i < tcp->lane_count; i++) {
        tcp->chains[i].count = tcp->chains[i].at = 0;
    }
    if (tcp->conns == NULL || tcp->heads == NULL || tcp->queues == NULL || tcp->discard == NULL ||
        tcp->ready == NULL || tcp->credentials == NULL ||
        (options->movers > 0 && tcp->chains == NULL)) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u connections", tcp->conn_count);
    }
    for (uint32_t i = 0; i < tcp->conn_count; i++) {
        struct tcp_conn *conn = &tcp->conns[i];
        *conn = (struct tcp_conn){.rail = rail, .index = i, .fd = -1};
        if (i < tcp->lane_count) {
            conn->lane = &rail->lanes[i];
            conn->heads = tcp->heads + (size_t)i * options->depth * SL_WIRE_REQUEST_BYTES;
            conn->chain = tcp->chains == NULL ? NULL : &tcp->chains[i];
            rail->lanes[i].backend = conn;
        } else {
            conn->queue = tcp->queues + (size_t)(i - tcp->lane_count) * TCP_QUEUE_MAX;
        }
    }
    return tcp_unauth_open(tcp, options, why);
}

static void tcp_describe(struct fabric_rail *rail, uint32_t movers)
{
    const struct tcp *tcp = tcp_of(rail);
    char ip[INET6_ADDRSTRLEN] = "nowhere";
    if (tcp->listen_fd >= 0) {
        (void)inet_ntop(tcp->address.ipv6 ? AF_INET6 : AF_INET, tcp->address.ip, ip, sizeof(ip));
    }
    (void)snprintf(rail->about, sizeof(rail->about),
                   "tcp, listening at %s port %u, %sTLS 1.3 by %s, io_uring, %u movers", ip,
                   tcp->address.port,
                   rail->options.clear ? "in the clear where the peer agrees, else " : "",
                   sl_aead_library(SL_AEAD_BEST), movers);
}

static sl_err tcp_open(struct fabric_rail *rail, struct sl_error *why)
{
    struct tcp *tcp = calloc(1, sizeof(*tcp));
    if (tcp == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a tcp fabric");
    }
    tcp->listen_fd = tcp->event_fd = -1;
    tcp->due_ns = SL_NEVER_NS;
    tcp->accept_at_ns = SL_NEVER_NS;
    rail->backend = tcp;
    sl_err err = sl_tls_open(SL_AEAD_BEST, &tcp->tls, why);
    if (err == SL_OK) {
        err = tcp_tables(rail, why);
    }
    if (err == SL_OK) {
        err = tcp_ring(rail, why);
    }
    uint32_t movers = rail->options.movers;
    if (err == SL_OK && movers > 0) {
        err = sl_movers_open(movers, 2 * tcp->conn_count, tcp->event_fd, &tcp->movers, why);
    }
    if (err == SL_OK) {
        err = tcp_listen(rail, why);
    }
    if (err == SL_OK) {
        tcp->accept_at_ns = tcp->listen_fd >= 0 ? 0 : SL_NEVER_NS;
        tcp_describe(rail, movers);
    }
    return err;
}

static void tcp_quiesce(struct fabric_rail *rail)
{
    struct tcp *tcp = tcp_of(rail);
    if (!tcp->ring_open) {
        return;
    }
    uint64_t give_up_ns = sl_deadline_ns(sl_clock_monotonic_ns(), QUIESCE_NS);
    for (;;) {
        bool busy = false;
        for (uint32_t i = 0; i < tcp->conn_count; i++) {
            tcp_close(&tcp->conns[i]); /* also newly accepted ones */
            busy |= tcp->conns[i].state != CONN_FREE;
        }
        if (!busy || sl_clock_monotonic_ns() > give_up_ns) {
            break;
        }
        struct __kernel_timespec wait = {.tv_nsec = 10 * 1000 * 1000};
        struct io_uring_cqe *cqe = NULL;
        tcp_flush(rail);
        (void)io_uring_wait_cqe_timeout(&tcp->ring, &cqe, &wait);
        tcp_reap(rail);
    }
}

static void tcp_fabric_close(struct fabric_rail *rail)
{
    struct tcp *tcp = tcp_of(rail);
    sl_movers_close(&tcp->movers);
    if (tcp->listen_fd >= 0) { /* the ring still uses the socket */
        (void)shutdown(tcp->listen_fd, SHUT_RDWR);
    }
    if (tcp->ring_open) {
        io_uring_queue_exit(&tcp->ring);
    }
    if (tcp->listen_fd >= 0) {
        close(tcp->listen_fd);
    }
    if (tcp->event_fd >= 0) {
        close(tcp->event_fd);
    }
    for (uint32_t i = 0; i < rail->options.peers_max; i++) {
        free(rail->peers[i].backend);
    }
    for (uint32_t i = 0; tcp->conns != NULL && i < tcp->conn_count; i++) {
        tcp_secure_end(&tcp->conns[i]); /* those that did not end in time */
    }
    sl_tls_close(&tcp->tls);
    if (tcp->credentials != NULL) {
        explicit_bzero(tcp->credentials, rail->options.peers_max * sizeof(*tcp->credentials));
    }
    free(tcp->credentials);
    free(tcp->ready);
    free(tcp->conns);
    free(tcp->heads);
    free(tcp->chains);
    free(tcp->queues);
    free(tcp->discard);
    sl_unauth_destroy(&tcp->unauth);
    free(tcp);
    rail->backend = NULL;
}

const struct tcp_credentials *tcp_credentials_find(const struct fabric_rail *rail,
                                                   const uint8_t id[SL_WIRE_ID_BYTES])
{
    const struct tcp *tcp = tcp_of(rail);
    for (uint32_t i = 0; i < rail->options.peers_max; i++) {
        const struct tcp_credentials *credential = &tcp->credentials[i];
        if (credential->peer != 0 && memcmp(credential->id, id, SL_WIRE_ID_BYTES) == 0) {
            return credential;
        }
    }
    return NULL;
}

/* ---- grants and keys: a token; the kernel finds pages without a registration ---- */

static sl_err tcp_grant_add(struct fabric_rail *rail, struct fabric_grant *grant,
                            struct sl_error *why)
{
    (void)why;
    unsigned char key[SL_WIRE_KEY_BYTES];
    struct sl_wire_key wire = {
        .grant = grant->index,
        .generation = grant->generation,
        .offset_bytes = grant->what.offset_bytes,
        .length_bytes = grant->what.length_bytes,
    };
    memcpy(wire.token, grant->token, sizeof(wire.token));
    sl_wire_key_write(&wire, key);
    fabric_grant_ready(rail, grant, key, sizeof(key));
    return SL_OK;
}

static sl_err tcp_key_parse(struct fabric_rail *rail, const void *blob, uint32_t length_bytes,
                            struct fabric_right *key, struct sl_error *why)
{
    (void)rail;
    struct sl_wire_key wire;
    sl_err err = sl_wire_key_read(blob, length_bytes, &wire, why);
    if (err != SL_OK) {
        return err;
    }
    key->regions = calloc(1, sizeof(*key->regions));
    if (key->regions == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a key");
    }
    key->region_count = 1;
    key->regions[0] = (struct fabric_region){.offset_bytes = wire.offset_bytes,
                                             .length_bytes = wire.length_bytes};
    key->grant_index = wire.grant;
    key->grant_generation = wire.generation;
    memcpy(key->token, wire.token, sizeof(key->token));
    return SL_OK;
}

const struct fabric_backend sl_fabric_tcp = {
    .name = "tcp",
    .open = tcp_open,
    .quiesce = tcp_quiesce,
    .close = tcp_fabric_close,
    .peer_start = tcp_peer_start,
    .peer_address = tcp_peer_address,
    .peer_stop = tcp_peer_stop,
    .grant_add = tcp_grant_add,
    .grant_end = tcp_grant_end,
    .key_parse = tcp_key_parse,
    .lane_push = tcp_lane_push,
    .lane_cancel = tcp_lane_cancel,
    .step = tcp_step,
    .flush = tcp_flush,
    .wake_at = tcp_wake_at,
};
