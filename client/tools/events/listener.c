/* client/tools/events/listener.c - see listener.h. ZMTP 3: a greeting of 64 bytes, then frames of
 * (flags, length, body). */
#include "client/tools/events/listener.h"
#include "client/tools/exporter/listen.h"
#include "runtime/base/sl_address.h"
#include "runtime/base/sl_clock.h"
#include "runtime/net/sl_unauth.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define GREETING_BYTES 64u
#define VERSION_AT     10u
#define FRAME_MORE     1u
#define FRAME_LONG     2u
#define FRAME_COMMAND  4u
#define HEADER_BYTES   9u /* with a length of 8 bytes */
#define OUT_BYTES      (16 * SL_KIB)
#define STACK_BYTES    (128 * SL_KIB)
#define CLOSING_NS     (200 * SL_NS_PER_MS)
#define NO_ACCEPT_MS   100 /* pause after a failed accept */

struct topic {
    uint8_t length, bytes[EV_OWN_TOPIC_BYTES_MAX];
};
struct connection {
    struct ev_listener *listener;
    struct port *port; /* NULL: free */
    int fd, inner;
    struct sockaddr_storage from;
    struct topic topics[EV_TOPICS_MAX];
    uint32_t topic_count, frame_count; /* frames of the message that is arriving */
    size_t seen, used;                 /* seen: bytes of the greeting */
    uint8_t in[2 * (EV_FRAME_BYTES_MAX + HEADER_BYTES)];
};
struct port {
    int fd;                                                    /* the listening socket */
    int inner;                                                 /* O_PATH of ZeroMQ's socket */
    const char *topic;                                         /* NULL: the port for requests */
    char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)]; /* of its socket file; "": TCP */
};
struct ev_listener {
    struct port ports[EV_LISTENER_PORTS_MAX];
    uint32_t port_count;
    int idle_ms, wake_fd;
    bool started;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t ended;
    struct connection connections[EV_CONNECTIONS_MAX];
    uint32_t running;
    struct ev_listener_stats stats;
};

/* ---- frames ---- */

/* False: the peer has disconnected, or reads nothing for idle_ms. */
static bool bytes_send(int fd, const uint8_t *bytes, size_t length)
{
    while (length > 0) {
        ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);
        if (sent <= 0 && errno != EINTR) {
            return false;
        }
        bytes += sent > 0 ? sent : 0;
        length -= sent > 0 ? (size_t)sent : 0;
    }
    return true;
}

/* Whether a subscription or its end may pass. A cancelled topic makes room for another one. */
static bool topic_pass(struct connection *self, bool subscribes, const uint8_t *bytes,
                       size_t length)
{
    for (uint32_t i = 0; !subscribes && i < self->topic_count; i++) {
        if (self->topics[i].length == length && memcmp(self->topics[i].bytes, bytes, length) == 0) {
            self->topics[i] = self->topics[--self->topic_count];
            return true;
        }
    }
    if (!subscribes) {
        return false;
    }
    const char *own = self->port->topic;
    bool begins = length <= strlen(own) && memcmp(own, bytes, length) == 0;
    if ((length > EV_TOPIC_BYTES_MAX && !begins) || self->topic_count == EV_TOPICS_MAX) {
        atomic_fetch_add(&self->listener->stats.topics, 1);
        return false;
    }
    struct topic *topic = &self->topics[self->topic_count++];
    topic->length = (uint8_t)length;
    memcpy(topic->bytes, bytes, length);
    return true;
}

static bool command_is(const uint8_t *body, size_t length, const char *name)
{
    size_t name_length = strlen(name);
    return length > name_length && body[0] == name_length &&
           memcmp(body + 1, name, name_length) == 0;
}

enum verdict { PASS, DROP, END };

static enum verdict frame_judge(struct connection *self, uint8_t flags, const uint8_t *body,
                                size_t length)
{
    static const char subscribe[] = "SUBSCRIBE", cancel[] = "CANCEL";
    if ((flags & FRAME_COMMAND) != 0) {
        bool on = command_is(body, length, subscribe);
        if (self->port->topic == NULL || (!on && !command_is(body, length, cancel))) {
            return PASS;
        }
        size_t skip = on ? sizeof subscribe : sizeof cancel;
        return topic_pass(self, on, body + skip, length - skip) ? PASS : DROP;
    }
    if (self->port->topic != NULL) { /* before ZMTP 3.1 topics are messages */
        bool topic = flags == 0 && length > 0 && body[0] <= 1;
        return topic && topic_pass(self, body[0] == 1, body + 1, length - 1) ? PASS : DROP;
    }
    self->frame_count = (flags & FRAME_MORE) != 0 ? self->frame_count + 1 : 0;
    return self->frame_count < EV_REQUEST_FRAMES_MAX ? PASS : END;
}

/* Passes on bytes of the greeting of ZMTP 3. Gives their number; 0: another version. */
static size_t greeting_take(struct connection *self)
{
    size_t share = SL_MIN(self->used, GREETING_BYTES - self->seen);
    bool version = self->seen <= VERSION_AT && self->seen + share > VERSION_AT;
    if ((self->seen == 0 && self->in[0] != 0xff) ||
        (version && self->in[VERSION_AT - self->seen] < 3)) {
        return 0;
    }
    self->seen += share;
    return bytes_send(self->inner, self->in, share) ? share : 0;
}

/* Handles a complete frame. Gives its bytes; 0: none is complete, or *end: close the connection. */
static size_t frame_take(struct connection *self, bool *end)
{
    const uint8_t *in = self->in;
    bool is_long = (in[0] & FRAME_LONG) != 0;
    size_t header = is_long ? HEADER_BYTES : 2;
    if (self->used < header) {
        return 0;
    }
    uint64_t length = 0;
    for (size_t i = 1; i < header; i++) {
        length = length << 8 | in[i];
    }
    if (length > EV_FRAME_BYTES_MAX) {
        *end = true;
        return 0;
    }
    if (self->used < header + length) {
        return 0;
    }
    enum verdict verdict = frame_judge(self, (uint8_t)(in[0] & ~FRAME_LONG), in + header, length);
    *end = verdict == END || (verdict == PASS && !bytes_send(self->inner, in, header + length));
    return *end ? 0 : header + length;
}

/* Reads from the peer and handles complete frames. False: the connection has to end. */
static bool bytes_take(struct connection *self)
{
    ssize_t got = recv(self->fd, self->in + self->used, sizeof self->in - self->used, 0);
    if (got <= 0) {
        return got < 0 && errno == EINTR;
    }
    self->used += (size_t)got;
    while (self->used > 0) {
        bool end = false;
        bool greets = self->seen < GREETING_BYTES;
        size_t taken = greets ? greeting_take(self) : frame_take(self, &end);
        if (end || (greets && taken == 0)) {
            atomic_fetch_add(&self->listener->stats.frames, 1);
            return false;
        }
        if (taken == 0) {
            return true;
        }
        self->used -= taken;
        memmove(self->in, self->in + taken, self->used);
    }
    return true;
}

/* ---- connections ---- */

static void relay(struct connection *self)
{
    uint8_t out[OUT_BYTES];
    for (;;) {
        struct pollfd both[] = {{.fd = self->inner, .events = POLLIN},
                                {.fd = self->fd, .events = POLLIN}};
        int ready = poll(both, SL_COUNT(both), self->listener->idle_ms);
        if (ready == 0) { /* normal for a peer that has received its replay */
            bool done = self->port->topic == NULL && self->seen == GREETING_BYTES;
            atomic_fetch_add(&self->listener->stats.idle, !done);
            return;
        }
        if (ready > 0 && both[0].revents != 0) {
            ssize_t got = recv(self->inner, out, sizeof out, 0);
            if (got == 0 || (got < 0 && errno != EINTR)) {
                return;
            }
            if (got > 0 && !bytes_send(self->fd, out, (size_t)got)) {
                atomic_fetch_add(&self->listener->stats.idle, errno == EAGAIN);
                return;
            }
        }
        if (ready > 0 && both[1].revents != 0 && !bytes_take(self)) {
            return;
        }
    }
}

static void connection_end(struct connection *self)
{
    struct ev_listener *listener = self->listener;
    pthread_mutex_lock(&listener->lock);
    (void)close(self->fd);
    if (self->inner >= 0) {
        (void)close(self->inner);
    }
    self->port = NULL;
    listener->running--;
    pthread_cond_signal(&listener->ended);
    pthread_mutex_unlock(&listener->lock);
}

static void *connection_run(void *argument)
{
    struct connection *self = argument;
    relay(self);
    connection_end(self);
    return NULL;
}

static int inner_connect(const struct port *port)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)snprintf(at.sun_path, sizeof at.sun_path, "/proc/self/fd/%d", port->inner);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) != 0) {
        (void)close(fd);
        fd = -1;
    }
    return fd;
}

/* Whether the peer is on this machine: a socket file or the loopback. */
static bool is_local(const struct sockaddr_storage *from)
{
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr;
    const struct sockaddr_in *v4 = (const void *)from;
    if (from->ss_family == AF_INET6) {
        return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
    }
    return from->ss_family != AF_INET || ntohl(v4->sin_addr.s_addr) >> 24 == 127;
}

/* A free connection; NULL: a bound is reached. Called with the lock. One address gets at most as
 * many as remain free, so that a few addresses cannot take all; the free part of the local share is
 * kept for clients of this machine. */
static struct connection *connection_find(struct ev_listener *listener,
                                          const struct sockaddr_storage *from)
{
    struct connection *free_one = NULL;
    uint32_t of_one = 0, free_count = 0, local_free = is_local(from) ? 0 : EV_CONNECTIONS_LOCAL;
    for (uint32_t i = 0; i < EV_CONNECTIONS_MAX; i++) {
        struct connection *at = &listener->connections[i];
        free_one = at->port == NULL ? at : free_one;
        free_count += at->port == NULL;
        of_one += at->port != NULL && sl_unauth_same_address(&at->from, from);
        local_free -= at->port != NULL && local_free > 0 && is_local(&at->from);
    }
    free_count -= SL_MIN(free_count, local_free);
    return of_one < SL_MIN(EV_CONNECTIONS_OF_ONE, free_count) ? free_one : NULL;
}

static bool connection_start(struct connection *self)
{
    const struct timeval most = {.tv_sec = self->listener->idle_ms / 1000,
                                 .tv_usec = self->listener->idle_ms % 1000 * 1000};
    pthread_attr_t attributes;
    pthread_t thread;
    self->inner = inner_connect(self->port);
    if (self->inner < 0 || setsockopt(self->fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most) != 0 ||
        setsockopt(self->inner, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most) != 0) {
        return false;
    }
    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int failed = pthread_create(&thread, &attributes, connection_run, self);
    (void)pthread_attr_destroy(&attributes);
    return failed == 0;
}

/* False: accept failed. */
static bool port_accept(struct ev_listener *listener, struct port *port)
{
    struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
    socklen_t from_bytes = sizeof from;
    int fd = accept4(port->fd, (struct sockaddr *)&from, &from_bytes, SOCK_CLOEXEC);
    if (fd < 0) {
        atomic_fetch_add(&listener->stats.connections, errno == EMFILE || errno == ENFILE);
        return false;
    }
    pthread_mutex_lock(&listener->lock);
    struct connection *free_one = connection_find(listener, &from);
    if (free_one != NULL) {
        *free_one = (struct connection){
            .listener = listener, .port = port, .fd = fd, .inner = -1, .from = from};
        listener->running++;
    }
    pthread_mutex_unlock(&listener->lock);
    bool fits = free_one != NULL && connection_start(free_one);
    atomic_fetch_add(&listener->stats.connections, !fits);
    if (free_one == NULL) {
        (void)close(fd);
    } else if (!fits) {
        connection_end(free_one);
    }
    return true;
}

static void *listener_run(void *argument)
{
    struct ev_listener *listener = argument;
    struct pollfd all[1 + EV_LISTENER_PORTS_MAX] = {{.fd = listener->wake_fd, .events = POLLIN}};
    for (uint32_t i = 0; i < listener->port_count; i++) {
        all[1 + i] = (struct pollfd){.fd = listener->ports[i].fd, .events = POLLIN};
    }
    while (poll(all, 1 + listener->port_count, -1) < 0 || all[0].revents == 0) {
        for (uint32_t i = 0; i < listener->port_count; i++) {
            if (all[1 + i].revents != 0 && !port_accept(listener, &listener->ports[i])) {
                (void)poll(all, 1, NO_ACCEPT_MS);
            }
        }
    }
    return NULL;
}

/* ---- ports ---- */

static sl_err path_listen(const char *path, int *out, struct sl_error *why)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof at.sun_path) {
        return sl_fail(why, SL_ERR_CONFIG, "'%.150s' is too long for a socket", path);
    }
    memcpy(at.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)unlink(path); /* left by a killed process */
    mode_t mask = umask(0177);
    bool fine = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    (void)umask(mask);
    if (!fine || listen(fd, MC_LISTEN_BACKLOG) != 0) {
        int code = errno;
        if (fd >= 0) {
            (void)close(fd);
        }
        return sl_fail_os(why, code, "listen at %.150s", path);
    }
    *out = fd;
    return SL_OK;
}

static sl_err where_listen(struct port *port, const char *where, struct sl_error *why)
{
    char host[256];
    uint16_t number = 0;
    if (strncmp(where, "ipc://", 6) == 0) {
        sl_err err = path_listen(where + 6, &port->fd, why);
        if (err == SL_OK) {
            (void)snprintf(port->path, sizeof port->path, "%s", where + 6);
        }
        return err;
    }
    return sl_address_parse(where + strlen("tcp://"), host, sizeof host, &number)
               ? tcp_listen(host, number, &port->fd, why)
               : sl_fail(why, SL_ERR_CONFIG, "'%.200s' is not an address", where);
}

sl_err ev_listener_create(uint32_t idle_ms, struct ev_listener **out, struct sl_error *why)
{
    struct ev_listener *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "listener of events");
    }
    self->idle_ms = (int)idle_ms;
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->ended, NULL);
    self->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (self->wake_fd < 0) {
        int code = errno;
        ev_listener_destroy(&self);
        return sl_fail_os(why, code, "eventfd");
    }
    *out = self;
    return SL_OK;
}

sl_err ev_listener_add(struct ev_listener *listener, const char *where, const char *inner,
                       const char *topic, struct sl_error *why)
{
    SL_ASSERT(listener->port_count < EV_LISTENER_PORTS_MAX && !listener->started);
    struct port *port = &listener->ports[listener->port_count];
    SL_ASSERT(topic == NULL || strlen(topic) <= EV_OWN_TOPIC_BYTES_MAX);
    *port = (struct port){.fd = -1, .topic = topic};
    port->inner = open(inner, O_PATH | O_CLOEXEC);
    if (port->inner < 0) {
        return sl_fail_os(why, errno, "open %.150s", inner);
    }
    (void)unlink(inner);
    sl_err err = where_listen(port, where, why);
    if (err != SL_OK) {
        (void)close(port->inner);
        return err;
    }
    listener->port_count++;
    return SL_OK;
}

sl_err ev_listener_start(struct ev_listener *listener, struct sl_error *why)
{
    int failed = pthread_create(&listener->thread, NULL, listener_run, listener);
    listener->started = failed == 0;
    return listener->started ? SL_OK : sl_fail_os(why, failed, "a thread of the listener");
}

const struct ev_listener_stats *ev_listener_stats(const struct ev_listener *listener)
{
    return &listener->stats;
}

static void connections_end(struct ev_listener *self)
{
    const uint64_t until_ns = sl_clock_wall_ns() + CLOSING_NS;
    const struct timespec until = {.tv_sec = (time_t)(until_ns / SL_NS_PER_S),
                                   .tv_nsec = (long)(until_ns % SL_NS_PER_S)};
    pthread_mutex_lock(&self->lock);
    while (self->running > 0 &&
           pthread_cond_timedwait(&self->ended, &self->lock, &until) != ETIMEDOUT) {
    }
    for (uint32_t i = 0; i < EV_CONNECTIONS_MAX; i++) {
        if (self->connections[i].port != NULL) {
            (void)shutdown(self->connections[i].fd, SHUT_RDWR);
            (void)shutdown(self->connections[i].inner, SHUT_RDWR);
        }
    }
    while (self->running > 0) {
        (void)pthread_cond_wait(&self->ended, &self->lock);
    }
    pthread_mutex_unlock(&self->lock);
}

void ev_listener_destroy(struct ev_listener **listener)
{
    struct ev_listener *self = listener != NULL ? *listener : NULL;
    const uint64_t one = 1;
    if (self == NULL) {
        return;
    }
    if (self->started) {
        (void)!write(self->wake_fd, &one, sizeof one);
        (void)pthread_join(self->thread, NULL);
    }
    connections_end(self);
    for (uint32_t i = 0; i < self->port_count; i++) {
        (void)close(self->ports[i].fd);
        (void)close(self->ports[i].inner);
        if (self->ports[i].path[0] != '\0') {
            (void)unlink(self->ports[i].path);
        }
    }
    if (self->wake_fd >= 0) {
        (void)close(self->wake_fd);
    }
    pthread_cond_destroy(&self->ended);
    pthread_mutex_destroy(&self->lock);
    free(self);
    *listener = NULL;
}
