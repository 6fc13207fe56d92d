/* actors/transporter/control/connections.c - see connections.h.
 *
 * Events are read later than they happen, so a descriptor in an event may already be closed and
 * reused. Each connection is therefore held by a descriptor of our own (dup), which is checked at
 * once: a TCP socket with our listening port. To end a connection, that socket is shut down; ZeroMQ
 * then closes its own descriptor. */
#include "actors/transporter/control/connections.h"

#include "runtime/net/sl_unauth.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#define EVENTS (ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED)

struct place {
    int fd;  /* ZeroMQ's descriptor; -1: the entry is free */
    int own; /* our descriptor of the same socket */
    bool unauth;
    uint32_t key;   /* of an authenticated connection */
    uint64_t order; /* order of the first frames */
};
struct control_connections {
    struct control_connections_options options;
    void *router, *monitor;
    struct sl_unauth *unauth;
    struct place *places;
    uint32_t place_count, high, unauth_count;
    uint16_t port;
    uint64_t orders;
    uint32_t ended; /* since it was last returned */
};

static uint16_t port_of(const struct sockaddr_storage *address)
{
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
    const struct sockaddr_in *four = (const struct sockaddr_in *)address;
    return address->ss_family == AF_INET6  ? ntohs(six->sin6_port)
           : address->ss_family == AF_INET ? ntohs(four->sin_port)
                                           : 0;
}

static uint16_t port_listened(void *router)
{
    char endpoint[160] = "";
    size_t size = sizeof(endpoint);
    const char *colon = NULL;
    if (zmq_getsockopt(router, ZMQ_LAST_ENDPOINT, endpoint, &size) == 0) {
        colon = strrchr(endpoint, ':');
    }
    return colon == NULL ? 0 : (uint16_t)strtoul(colon + 1, NULL, 10);
}

sl_err control_connections_open(void *context, void *router,
                                const struct control_connections_options *options,
                                struct control_connections **out, struct sl_error *why)
{
    static const char endpoint[] = "inproc://control.connections";
    struct control_connections *self = calloc(1, sizeof(*self));
    uint32_t count = options->unauthenticated_max + options->keys_max * options->of_key_max + 1;
    int none = 0;
    if (self == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for connections of peers");
    }
    self->options = *options;
    self->router = router;
    self->port = port_listened(router);
    self->place_count = count;
    self->places = calloc(count, sizeof(*self->places));
    sl_err err = self->places == NULL
                     ? sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u connections", count)
                     : sl_unauth_create(count, options->of_address_max, &self->unauth, why);
    self->monitor = err == SL_OK ? zmq_socket(context, ZMQ_PAIR) : NULL;
    /* No bound, or ZeroMQ's own thread would block here. It is emptied in every turn. */
    if (err == SL_OK && (self->monitor == NULL ||
                         zmq_setsockopt(self->monitor, ZMQ_LINGER, &none, sizeof(none)) != 0 ||
                         zmq_setsockopt(self->monitor, ZMQ_RCVHWM, &none, sizeof(none)) != 0 ||
                         zmq_socket_monitor(router, endpoint, EVENTS) != 0 ||
                         zmq_connect(self->monitor, endpoint) != 0)) {
        err = sl_fail(why, SL_ERR_OS, "watch connections of peers: %s", zmq_strerror(errno));
    }
    for (uint32_t i = 0; self->places != NULL && i < count; i++) {
        self->places[i].fd = self->places[i].own = -1;
    }
    if (err != SL_OK) {
        control_connections_close(&self);
        return err;
    }
    *out = self;
    return SL_OK;
}

static void place_free(struct control_connections *self, uint32_t index)
{
    struct place *place = &self->places[index];
    self->unauth_count -= place->unauth ? 1 : 0;
    sl_unauth_remove(self->unauth, index);
    (void)close(place->own);
    *place = (struct place){.fd = -1, .own = -1};
}

void control_connections_close(struct control_connections **unauth)
{
    struct control_connections *self = *unauth;
    if (self == NULL) {
        return;
    }
    if (self->monitor != NULL) {
        (void)zmq_socket_monitor(self->router, NULL, 0);
        (void)zmq_close(self->monitor);
    }
    for (uint32_t i = 0; self->places != NULL && i < self->high; i++) {
        if (self->places[i].fd >= 0) {
            place_free(self, i);
        }
    }
    sl_unauth_destroy(&self->unauth);
    free(self->places);
    free(self);
    *unauth = NULL;
}

void *control_connections_monitor(const struct control_connections *unauth)
{
    return unauth->monitor;
}

static uint32_t place_of(const struct control_connections *self, int fd)
{
    for (uint32_t i = 0; i < self->high; i++) {
        if (self->places[i].fd == fd) {
            return i;
        }
    }
    return SL_UNAUTH_NONE;
}

/* Ends a connection. For ZeroMQ it looks as if the peer had closed it. */
static void place_end(struct control_connections *self, uint32_t index)
{
    (void)shutdown(self->places[index].own, SHUT_RDWR);
    place_free(self, index);
    self->ended++;
}

static uint32_t place_new(struct control_connections *self)
{
    uint32_t index = 0;
    while (index < self->high && self->places[index].fd >= 0) {
        index++;
    }
    SL_ASSERT(index < self->place_count); /* place_count is one more than the limits allow */
    self->high = SL_MAX(self->high, index + 1);
    return index;
}

/* Duplicates the descriptor and gets the sender's address; -1: closed, or another socket by now. */
static int own_of(const struct control_connections *self, int fd, struct sockaddr_storage *from)
{
    struct sockaddr_storage here = {.ss_family = AF_UNSPEC};
    socklen_t here_bytes = sizeof(here), from_bytes = sizeof(*from);
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0) {
        return -1;
    }
    if (getsockname(own, (struct sockaddr *)&here, &here_bytes) != 0 ||
        port_of(&here) != self->port ||
        getpeername(own, (struct sockaddr *)from, &from_bytes) != 0) {
        (void)close(own);
        return -1;
    }
    return own;
}

static void connection_add(struct control_connections *self, int fd)
{
    struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
    uint32_t old = place_of(self, fd);
    if (old != SL_UNAUTH_NONE) {
        place_free(self, old); /* ZeroMQ closed it without an event */
    }
    int own = own_of(self, fd, &from);
    if (own < 0) {
        return;
    }
    uint32_t index = place_new(self);
    self->places[index] = (struct place){.fd = fd, .own = own, .unauth = true};
    self->unauth_count++;
    uint32_t goes = sl_unauth_add(self->unauth, index, &from);
    if (goes == SL_UNAUTH_NONE && self->unauth_count > self->options.unauthenticated_max) {
        goes = sl_unauth_displace(self->unauth);
    }
    if (goes != SL_UNAUTH_NONE) {
        place_end(self, goes);
    }
}

uint32_t control_connections_step(struct control_connections *self)
{
    for (;;) {
        unsigned char head[6]; /* u16 event, u32 value */
        char address[128];
        uint16_t event;
        int32_t fd;
        if (zmq_recv(self->monitor, head, sizeof(head), ZMQ_DONTWAIT) < 0) {
            break;
        }
        (void)zmq_recv(self->monitor, address, sizeof(address), ZMQ_DONTWAIT);
        memcpy(&event, head, sizeof(event));
        memcpy(&fd, head + sizeof(event), sizeof(fd));
        uint32_t index = place_of(self, fd);
        if (event == ZMQ_EVENT_ACCEPTED && fd >= 0) {
            connection_add(self, fd);
        } else if (event == ZMQ_EVENT_DISCONNECTED && fd >= 0 && index != SL_UNAUTH_NONE) {
            place_free(self, index);
        }
    }
    uint32_t ended = self->ended;
    self->ended = 0;
    return ended;
}

/* Closes the key's oldest connection if it has too many. */
static void key_bound(struct control_connections *self, uint32_t key)
{
    uint32_t count = 0, oldest = SL_UNAUTH_NONE;
    for (uint32_t i = 0; i < self->high; i++) {
        const struct place *place = &self->places[i];
        if (place->fd < 0 || place->unauth || place->key != key) {
            continue;
        }
        count++;
        if (oldest == SL_UNAUTH_NONE || place->order < self->places[oldest].order) {
            oldest = i;
        }
    }
    if (count > self->options.of_key_max) {
        place_end(self, oldest);
    }
}

uint32_t control_connections_proved(struct control_connections *self, int fd, uint32_t key)
{
    uint32_t ended = control_connections_step(self); /* its accept event may still be queued */
    uint32_t index = place_of(self, fd);
    if (index == SL_UNAUTH_NONE || !self->places[index].unauth || key >= self->options.keys_max) {
        return ended;
    }
    struct place *place = &self->places[index];
    sl_unauth_remove(self->unauth, index);
    self->unauth_count--;
    place->unauth = false;
    place->key = key;
    place->order = ++self->orders;
    key_bound(self, key);
    ended += self->ended;
    self->ended = 0;
    return ended;
}

uint32_t control_connections_key_removed(struct control_connections *self, uint32_t key)
{
    uint32_t ended = control_connections_step(self);
    for (uint32_t i = 0; i < self->high; i++) {
        if (self->places[i].fd >= 0 && !self->places[i].unauth && self->places[i].key == key) {
            place_end(self, i);
        }
    }
    ended += self->ended;
    self->ended = 0;
    return ended;
}
