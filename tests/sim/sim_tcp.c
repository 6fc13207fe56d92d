/* tests/sim/sim_tcp.c - TCP between the hosts, for processes with threads (sim_process.h). */
#include "tests/sim/sim_internal.h"
#include "tests/sim/sim_process.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TCP_FIRST      (1 << 29) /* above any other descriptor */
#define SOCKS_MAX      512u
#define BACKLOG_MAX    128u
#define SYN_AGAIN_NS   SL_NS_PER_S
#define RESENT_NS      (200 * SL_NS_PER_MS) /* longest delay of held bytes after a cut */
#define PARTIAL_ONE_OF 8u
#define FULL_ONE_OF    16u
#define PORT_FIRST     40000u /* of connecting sockets */

enum sock_kind { TCP_FREE, TCP_FRESH, TCP_LISTENS, TCP_CONNECTS, TCP_STREAM, TCP_EVENT };
struct piece {
    struct piece *next;
    uint64_t at_ns;
    size_t length, taken;
    char bytes[];
};
struct sock {
    enum sock_kind kind;
    uint64_t serial;
    uint32_t process, host;
    struct sockaddr_in own, other;
    struct sock *peer; /* NULL: none, or it was closed */
    uint64_t peer_serial;
    struct piece *first, *last; /* in flight */
    uint64_t order_ns, eof_ns, reset_ns, full_until_ns;
    uint64_t syn_ns, connected_ns; /* when it arrives there; when the answer is known here */
    bool refused, shut;
    uint64_t value;        /* of an eventfd */
    struct sock *listener; /* not accepted yet */
};
static struct sock socks[SOCKS_MAX];
static uint64_t serial;
static uint16_t next_port = PORT_FIRST;
static char addresses[SIM_HOSTS_MAX][INET_ADDRSTRLEN];
static bool off[SIM_HOSTS_MAX];
static void (*spy)(const char *bytes, size_t length);

void sim_tcp_spy(void (*seen)(const char *bytes, size_t length))
{
    spy = seen;
}

void sim_tcp_address(uint32_t host, const char *ip)
{
    (void)snprintf(addresses[host], sizeof(addresses[host]), "%s", ip);
}

void sim_host_unreachable(uint32_t host, bool is_off)
{
    off[host] = is_off;
}

uint32_t sim_tcp_open(uint32_t host)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < SOCKS_MAX; i++) {
        count += socks[i].kind != TCP_FREE && socks[i].host == host ? 1 : 0;
    }
    return count;
}

bool sim_tcp_has(int fd)
{
    return fd >= TCP_FIRST && fd < TCP_FIRST + (int)SOCKS_MAX;
}

static struct sock *sock_of(int fd)
{
    struct sock *sock = &socks[fd - TCP_FIRST];
    SIM_CHECK(sock->kind != TCP_FREE, "a call for a socket that was closed");
    return sock;
}

static int fd_of(const struct sock *sock)
{
    return TCP_FIRST + (int)(sock - socks);
}

static int fails(int code)
{
    errno = code;
    return -1;
}

static struct sockaddr_in address_of(uint32_t host, uint16_t port)
{
    char standard[INET_ADDRSTRLEN];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    (void)snprintf(standard, sizeof(standard), "10.0.0.%u", host + 1);
    SIM_CHECK(inet_pton(AF_INET, addresses[host][0] != '\0' ? addresses[host] : standard,
                        &at.sin_addr) == 1,
              "no address");
    return at;
}

static struct sock *sock_make(uint32_t process, uint32_t host, enum sock_kind kind)
{
    for (uint32_t i = 0; i < SOCKS_MAX; i++) {
        if (socks[i].kind == TCP_FREE) {
            socks[i] = (struct sock){.kind = kind,
                                     .serial = ++serial,
                                     .process = process,
                                     .host = host,
                                     .eof_ns = SL_NEVER_NS,
                                     .reset_ns = SL_NEVER_NS,
                                     .connected_ns = SL_NEVER_NS};
            return &socks[i];
        }
    }
    sim_fail("too many sockets");
}

/* ---- packets ---- */

static uint64_t arrival(struct sim *sim, uint32_t from, uint32_t to)
{
    const struct sim_link *link = &sim->links[from][to];
    if (from != to && sim_link_is_cut(sim, from, to)) {
        return link->cut_until_ns + 1 + sim_random_below(sim, RESENT_NS);
    }
    uint64_t max_ns =
        from != to && link->slow_until_ns > sim->now_ns ? link->slow_ns : sim->delay_ns_max;
    return sim->now_ns + 1 + sim_random_below(sim, max_ns);
}

static void sock_wakes(const struct sock *sock, uint64_t at_ns)
{
    const struct sock *hears = sock->listener != NULL ? sock->listener : sock;
    sim_process_wake(hears->process, at_ns);
}

static struct sock *peer_of(const struct sock *sock)
{
    struct sock *peer = sock->peer;
    return peer != NULL && peer->kind != TCP_FREE && peer->serial == sock->peer_serial ? peer
                                                                                       : NULL;
}

static void sock_ends(struct sim *sim, struct sock *to, uint32_t from_host, bool reset)
{
    uint64_t at_ns = arrival(sim, from_host, to->host);
    at_ns = SL_MAX(at_ns, to->order_ns + 1);
    to->order_ns = at_ns;
    if (reset) {
        to->reset_ns = SL_MIN(to->reset_ns, at_ns);
    } else {
        to->eof_ns = SL_MIN(to->eof_ns, at_ns);
    }
    sock_wakes(to, at_ns);
}

static void pieces_free(struct sock *sock)
{
    while (sock->first != NULL) {
        struct piece *piece = sock->first;
        sock->first = piece->next;
        free(piece);
    }
    sock->last = NULL;
}

/* power: without notifying the peer. */
static void sock_free(struct sim *sim, struct sock *sock, bool power)
{
    struct sock *peer = peer_of(sock);
    for (uint32_t i = 0; sock->kind == TCP_LISTENS && i < SOCKS_MAX; i++) {
        if (socks[i].kind == TCP_STREAM && socks[i].listener == sock) {
            socks[i].listener = NULL;
            sock_free(sim, &socks[i], power);
        }
    }
    if (peer != NULL && !power && sock->kind == TCP_STREAM) {
        sock_ends(sim, peer, sock->host, sock->first != NULL);
    }
    pieces_free(sock);
    *sock = (struct sock){0};
}

void sim_tcp_close_all(uint32_t process, bool power)
{
    for (uint32_t i = 0; i < SOCKS_MAX; i++) {
        if (socks[i].kind != TCP_FREE && socks[i].process == process && socks[i].listener == NULL) {
            sock_free(sim_world, &socks[i], power);
        }
    }
}

/* ---- connecting ---- */

static struct sock *listener_at(const struct sockaddr_in *at, uint32_t *host)
{
    for (*host = 0; *host < sim_world->host_count; ++*host) {
        struct sockaddr_in own = address_of(*host, 0);
        if (own.sin_addr.s_addr != at->sin_addr.s_addr || off[*host]) {
            continue;
        }
        for (uint32_t i = 0; i < SOCKS_MAX; i++) {
            if (socks[i].kind == TCP_LISTENS && socks[i].host == *host &&
                socks[i].own.sin_port == at->sin_port) {
                return &socks[i];
            }
        }
        return NULL;
    }
    return NULL;
}

static uint32_t backlog_of(const struct sock *listener)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < SOCKS_MAX; i++) {
        count += socks[i].kind == TCP_STREAM && socks[i].listener == listener ? 1 : 0;
    }
    return count;
}

/* The first packet has arrived, or was lost. */
static void syn_arrives(struct sim *sim, struct sock *sock)
{
    uint32_t host = 0;
    struct sock *listener = listener_at(&sock->other, &host);
    bool lost = host == sim->host_count || sim_link_is_cut(sim, sock->host, host) ||
                sim_link_is_cut(sim, host, sock->host) ||
                (listener != NULL && backlog_of(listener) == BACKLOG_MAX);
    if (lost) {
        sock->syn_ns = sim->now_ns + SYN_AGAIN_NS;
        return;
    }
    sock->kind = TCP_STREAM;
    sock->connected_ns = arrival(sim, host, sock->host);
    sock->order_ns = sock->connected_ns;
    sock->refused = listener == NULL;
    if (listener != NULL) {
        struct sock *end = sock_make(listener->process, host, TCP_STREAM);
        end->listener = listener;
        end->own = sock->other;
        end->other = sock->own;
        end->connected_ns = end->order_ns = sim->now_ns;
        end->peer = sock;
        end->peer_serial = sock->serial;
        sock->peer = end;
        sock->peer_serial = end->serial;
        sock_wakes(end, sim->now_ns);
    }
}

int sim_tcp_socket(void)
{
    const struct sim_thread *thread = sim_thread_running();
    return fd_of(sock_make(thread->process, sim_host_number(sim_world->turn), TCP_FRESH));
}

int sim_tcp_connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
    struct sim *sim = sim_world;
    struct sock *sock = sock_of(fd);
    SIM_CHECK(bytes == sizeof(sock->other) && sock->kind == TCP_FRESH, "connect");
    memcpy(&sock->other, address, sizeof(sock->other));
    sock->own = address_of(sock->host, next_port++);
    sock->kind = TCP_CONNECTS;
    sock->syn_ns = sim->now_ns + 1 + sim_random_below(sim, sim->delay_ns_max);
    return fails(EINPROGRESS);
}

int sim_tcp_error(int fd, void *code)
{
    const struct sock *sock = sock_of(fd);
    int is = sock->refused ? ECONNREFUSED : sim_world->now_ns >= sock->reset_ns ? ECONNRESET : 0;
    memcpy(code, &is, sizeof(is));
    return 0;
}

int sim_tcp_bind(int fd, const struct sockaddr *address)
{
    struct sock *sock = sock_of(fd);
    struct sockaddr_in want;
    memcpy(&want, address, sizeof(want));
    for (uint32_t i = 0; i < SOCKS_MAX; i++) {
        if (socks[i].kind == TCP_LISTENS && socks[i].host == sock->host &&
            socks[i].own.sin_port == want.sin_port) {
            return fails(EADDRINUSE);
        }
    }
    sock->own = want;
    return 0;
}

int sim_tcp_listen(int fd)
{
    sock_of(fd)->kind = TCP_LISTENS;
    return 0;
}

static struct sock *accepted_first(const struct sock *listener)
{
    struct sock *first = NULL;
    for (uint32_t i = 0; i < SOCKS_MAX; i++) {
        struct sock *at = &socks[i];
        if (at->kind == TCP_STREAM && at->listener == listener &&
            (first == NULL || at->serial < first->serial)) {
            first = at;
        }
    }
    return first;
}

int sim_tcp_accept(int fd)
{
    struct sock *first = accepted_first(sock_of(fd));
    if (first == NULL) {
        return fails(EAGAIN);
    }
    first->listener = NULL;
    return fd_of(first);
}

int sim_tcp_name(int fd, bool own, struct sockaddr *address, socklen_t *bytes)
{
    const struct sock *sock = sock_of(fd);
    if (!own && peer_of(sock) == NULL && sock->first == NULL) {
        return fails(ENOTCONN);
    }
    *bytes = SL_MIN(*bytes, (socklen_t)sizeof(sock->own));
    memcpy(address, own ? &sock->own : &sock->other, *bytes);
    return 0;
}

/* ---- bytes ---- */

static struct piece *arrived(const struct sock *sock)
{
    return sock->first != NULL && sock->first->at_ns <= sim_world->now_ns ? sock->first : NULL;
}

static void piece_add(struct sim *sim, struct sock *to, uint32_t from, const char *bytes,
                      size_t length)
{
    struct piece *piece = malloc(sizeof(*piece) + length);
    SIM_CHECK(piece != NULL, "out of memory");
    uint64_t at_ns = arrival(sim, from, to->host);
    to->order_ns = SL_MAX(at_ns, to->order_ns + 1);
    *piece = (struct piece){.at_ns = to->order_ns, .length = length};
    memcpy(piece->bytes, bytes, length);
    if (to->last != NULL) {
        to->last->next = piece;
    } else {
        to->first = piece;
    }
    to->last = piece;
    sim_mix(sim, length);
    sock_wakes(to, piece->at_ns);
    if (spy != NULL) {
        spy(bytes, length);
    }
}

ssize_t sim_tcp_send(int fd, const void *bytes, size_t length)
{
    struct sim *sim = sim_world;
    struct sock *sock = sock_of(fd), *peer = peer_of(sock);
    if (sim->now_ns >= sock->reset_ns || sock->shut) {
        return fails(EPIPE);
    }
    if (sim_random_below(sim, FULL_ONE_OF) == 0) {
        sock->full_until_ns = sim->now_ns + 1 + sim_random_below(sim, sim->delay_ns_max);
        return fails(EAGAIN);
    }
    if (sim_random_below(sim, PARTIAL_ONE_OF) == 0) {
        length = 1 + sim_random_below(sim, length);
    }
    if (peer != NULL) {
        piece_add(sim, peer, sock->host, bytes, length);
        return (ssize_t)length;
    }
    uint32_t host = 0;
    (void)listener_at(&sock->other, &host);
    if (host < sim->host_count && sock->reset_ns == SL_NEVER_NS) { /* not known there */
        sock->reset_ns = arrival(sim, host, sock->host) + 1;
        sock_wakes(sock, sock->reset_ns);
    }
    return (ssize_t)length;
}

ssize_t sim_tcp_recv(int fd, void *to, size_t length)
{
    struct sock *sock = sock_of(fd);
    struct piece *piece = arrived(sock);
    if (sock->shut) {
        return 0;
    }
    if (piece == NULL) {
        bool over = sim_world->now_ns >= sock->eof_ns && sock->first == NULL;
        return over ? 0 : fails(sim_world->now_ns >= sock->reset_ns ? ECONNRESET : EAGAIN);
    }
    size_t got = SL_MIN(length, piece->length - piece->taken);
    memcpy(to, piece->bytes + piece->taken, got);
    piece->taken += got;
    if (piece->taken == piece->length) {
        sock->first = piece->next;
        sock->last = sock->first == NULL ? NULL : sock->last;
        free(piece);
    }
    return (ssize_t)got;
}

int sim_tcp_shutdown(int fd, int how)
{
    struct sock *sock = sock_of(fd), *peer = peer_of(sock);
    if (peer != NULL && peer->eof_ns == SL_NEVER_NS) {
        sock_ends(sim_world, peer, sock->host, false);
    }
    sock->shut = sock->shut || how == SHUT_RDWR;
    sock_wakes(sock, sim_world->now_ns);
    return 0;
}

int sim_tcp_close(int fd)
{
    sock_free(sim_world, sock_of(fd), false);
    return 0;
}

/* ---- events and polls ---- */

int sim_tcp_event(void)
{
    const struct sim_thread *thread = sim_thread_running();
    return fd_of(sock_make(thread->process, sim_host_number(sim_world->turn), TCP_EVENT));
}

void sim_tcp_event_add(int fd, uint64_t value)
{
    struct sock *sock = sock_of(fd);
    sock->value += value;
    sock_wakes(sock, sim_world->now_ns);
}

/* When it can next be read; or written to. */
static uint64_t readable_ns(const struct sock *sock)
{
    switch (sock->kind) {
    case TCP_EVENT:
        return sock->value != 0 ? 0 : SL_NEVER_NS;
    case TCP_LISTENS:
        return accepted_first(sock) != NULL ? 0 : SL_NEVER_NS;
    case TCP_STREAM:
        if (sock->shut) {
            return 0;
        }
        return SL_MIN(sock->first != NULL ? sock->first->at_ns : SL_NEVER_NS,
                      SL_MIN(sock->eof_ns, sock->reset_ns));
    case TCP_FREE:
    case TCP_FRESH:
    case TCP_CONNECTS:
        break;
    }
    return SL_NEVER_NS;
}

static uint64_t writable_ns(const struct sock *sock)
{
    if (sock->kind == TCP_CONNECTS) {
        return SL_NEVER_NS;
    }
    return sock->shut ? 0 : SL_MIN(SL_MAX(sock->connected_ns, sock->full_until_ns), sock->reset_ns);
}

static uint32_t all_look(struct sim *sim, struct pollfd *fds, uint64_t count, uint64_t *next_ns)
{
    uint32_t ready = 0;
    for (uint64_t i = 0; i < count; i++) {
        struct sock *sock = sock_of(fds[i].fd);
        if (sock->kind == TCP_CONNECTS && sock->syn_ns <= sim->now_ns) {
            syn_arrives(sim, sock);
        }
        uint64_t read_ns = (fds[i].events & POLLIN) != 0 ? readable_ns(sock) : SL_NEVER_NS;
        uint64_t write_ns = (fds[i].events & POLLOUT) != 0 ? writable_ns(sock) : SL_NEVER_NS;
        fds[i].revents = (short)((read_ns <= sim->now_ns ? POLLIN : 0) |
                                 (write_ns <= sim->now_ns ? POLLOUT : 0));
        ready += fds[i].revents != 0 ? 1 : 0;
        *next_ns = SL_MIN(*next_ns, SL_MIN(read_ns, write_ns));
        if (sock->kind == TCP_CONNECTS) {
            *next_ns = SL_MIN(*next_ns, sock->syn_ns);
        }
    }
    return ready;
}

int sim_tcp_poll(struct pollfd *fds, uint64_t count, int timeout_ms)
{
    struct sim *sim = sim_world;
    struct sim_thread *thread = sim_thread_running();
    uint64_t until_ns =
        timeout_ms < 0 ? SL_NEVER_NS : sim->now_ns + (uint64_t)timeout_ms * SL_NS_PER_MS;
    for (;;) {
        uint64_t next_ns = until_ns;
        uint32_t ready = all_look(sim, fds, count, &next_ns);
        if (ready > 0 || sim->now_ns >= until_ns) {
            return (int)ready;
        }
        thread->polls = true;
        sim_program_wait(next_ns);
        thread->polls = false;
    }
}
