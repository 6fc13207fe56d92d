/* actors/transporter/control/control.c - sockets between nodes, and who may connect (ZAP, RFC 27,
 * answered in this thread). */
#include "actors/transporter/control/control.h"
#include "actors/transporter/control/connections.h"

#include "ipc/msg/sl_curve.h"
#include "runtime/base/sl_clock.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#define NAME_BYTES    32u
#define USER_BYTES    (NAME_BYTES + SL_CURVE_TEXT_BYTES)
#define ROUTE_BYTES   16u /* ZeroMQ uses five */
#define RECONNECT_MS  50
#define RECONNECT_MAX 1000
#define HANDSHAKE_MS  2000
#define CONNECT_MS    2000
/* ZeroMQ's heartbeats notice a half-open connection, without waiting minutes for TCP. */
#define BEAT_MS         500
#define BEAT_TIMEOUT_MS 2000
#define ZAP_ENDPOINT    "inproc://zeromq.zap.01"
#define ZAP_DOMAIN      "sluice"
#define ZAP_FRAMES      7u
#define ZAP_STEPS       64u
#define BACKLOG         1024 /* kernel queue: a flood of connections is accepted one by one */
/* Limit for one key. A peer chooses the routing id of its connections, and ZeroMQ aborts the
 * process when it generates an id that was chosen before (socket_base.cpp, add_out_pipe). Ids are
 * 32 random bits: without a limit, a peer finds a collision in hours. */
#define HANDSHAKES_AT_ONCE 8u
#define HANDSHAKE_EVERY_NS SL_NS_PER_S

struct control_peer {
    char name[NAME_BYTES];
    char key[SL_CURVE_TEXT_BYTES]; /* required for its frames; "": none yet */
    void *dealer;                  /* NULL: it only asks us */
    unsigned char route[ROUTE_BYTES];
    size_t route_bytes;     /* 0: it has not asked yet */
    uint64_t handshakes_ns; /* above now: its allowance of connections is partly used */
};

struct control {
    struct sl_control base; /* must be first */
    struct sl_control_options options;
    char keys[1024];
    struct sl_curve_pair pair;
    void *context, *router, *zap;
    struct control_connections *unauth; /* NULL: not listening */
    int epoll_fd;
    uint32_t turn;
    struct control_peer peers[SL_CLUSTER_PEERS_MAX];
    uint32_t peer_count;
    zmq_msg_t frame;
    char from[NAME_BYTES];
    unsigned char route[ROUTE_BYTES]; /* of the last received frame */
    size_t route_bytes;
    char other_end[64];
};

static struct control *of(struct sl_control *base)
{
    return (struct control *)base;
}

static sl_err fail_zmq(struct sl_error *why, const char *what, const char *which)
{
    int code = errno;
    return sl_fail(why, code == EADDRINUSE ? SL_ERR_EXISTS : SL_ERR_OS, "%s '%s': %s", what, which,
                   zmq_strerror(code));
}

static struct control_peer *peer_of(struct control *self, const char *name)
{
    for (uint32_t i = 0; i < self->peer_count; i++) {
        if (strcmp(self->peers[i].name, name) == 0) {
            return &self->peers[i];
        }
    }
    return NULL;
}

static struct control_peer *peer_get(struct control *self, const char *name)
{
    struct control_peer *peer = peer_of(self, name);
    peer = peer == NULL ? peer_of(self, "") : peer; /* reuse the entry of a removed key */
    if (peer == NULL && self->peer_count < SL_CLUSTER_PEERS_MAX) {
        peer = &self->peers[self->peer_count++];
    }
    if (peer != NULL) {
        (void)snprintf(peer->name, sizeof(peer->name), "%s", name);
    }
    return peer;
}

/* ---- who may connect ---- */

/* Whether this key may open one more connection now. */
static bool handshake_allow(struct control *self, const char *name)
{
    struct control_peer *peer = peer_get(self, name);
    uint64_t now_ns = sl_clock_monotonic_ns();
    if (peer == NULL || peer->handshakes_ns >= now_ns + HANDSHAKES_AT_ONCE * HANDSHAKE_EVERY_NS) {
        return false;
    }
    peer->handshakes_ns = SL_MAX(peer->handshakes_ns, now_ns) + HANDSHAKE_EVERY_NS;
    return true;
}

/* name: "NAME KEY", which ZeroMQ attaches to each frame of the connection; "": refuse it. */
static bool zap_answer(struct control *self, const char *id, size_t id_bytes, const char *name)
{
    /* 300 closes the connection without an answer. After 400 the other side would never try again,
     * even when its key is added. */
    const char *code = name[0] != '\0' ? "200" : "300";
    const char *text = name[0] != '\0' ? "OK" : "no key of a peer";
    return zmq_send(self->zap, "1.0", 3, ZMQ_SNDMORE) >= 0 &&
           zmq_send(self->zap, id, id_bytes, ZMQ_SNDMORE) >= 0 &&
           zmq_send(self->zap, code, 3, ZMQ_SNDMORE) >= 0 &&
           zmq_send(self->zap, text, strlen(text), ZMQ_SNDMORE) >= 0 &&
           zmq_send(self->zap, name, strlen(name), ZMQ_SNDMORE) >= 0 &&
           zmq_send(self->zap, "", 0, 0) >= 0;
}

/* Answers one ZAP request: version, id, domain, address, routing id, mechanism, key. */
static bool zap_step(struct control *self)
{
    char parts[ZAP_FRAMES][64] = {{0}}, name[NAME_BYTES] = "", text[SL_CURVE_TEXT_BYTES];
    char user[USER_BYTES] = "";
    size_t lengths[ZAP_FRAMES] = {0};
    uint32_t count = 0;
    int more = 1;
    while (more != 0) {
        char spill[64];
        size_t size = sizeof(more);
        int got = zmq_recv(self->zap, count < ZAP_FRAMES ? parts[count] : spill, sizeof(spill),
                           ZMQ_DONTWAIT);
        if (got < 0) {
            return false;
        }
        if (count < ZAP_FRAMES) {
            lengths[count] = SL_MIN((size_t)got, sizeof(spill));
        }
        count++;
        if (zmq_getsockopt(self->zap, ZMQ_RCVMORE, &more, &size) != 0) {
            return false;
        }
    }
    if (count == ZAP_FRAMES && lengths[5] == 5 && memcmp(parts[5], "CURVE", 5) == 0 &&
        lengths[6] == 32) {
        sl_curve_text((const unsigned char *)parts[6], text);
        if (sl_curve_who(self->keys, text, name) != SL_OK) {
            const char *ip = strncmp(parts[3], "::ffff:", 7) == 0 ? parts[3] + 7 : parts[3];
            self->options.unauth(self->options.context, ip, text);
            name[0] = '\0';
        } else if (strcmp(name, self->options.node) == 0 || !handshake_allow(self, name)) {
            name[0] = '\0';
        }
    }
    if (name[0] != '\0') { /* handshake_allow has created the entry */
        struct control_peer *peer = peer_of(self, name);
        (void)snprintf(peer->key, sizeof(peer->key), "%s", text);
        (void)snprintf(user, sizeof(user), "%s %s", name, text);
    }
    self->base.refused += name[0] == '\0' ? 1 : 0;
    return zap_answer(self, parts[1], lengths[1], user);
}

/* ---- sockets ---- */

static bool set_int(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof(value)) == 0;
}

static sl_err watch(struct control *self, void *socket, struct sl_error *why)
{
    int fd = -1;
    size_t size = sizeof(fd);
    struct epoll_event event = {.events = EPOLLIN};
    if (zmq_getsockopt(socket, ZMQ_FD, &fd, &size) != 0 ||
        epoll_ctl(self->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        return sl_fail_os(why, errno, "watch a socket between nodes");
    }
    return SL_OK;
}

static bool common_options(const struct control *self, void *socket)
{
    int queue = (int)self->options.queue_messages;
    int64_t bytes_max = (int64_t)self->options.message_bytes_max;
    return set_int(socket, ZMQ_LINGER, 0) && set_int(socket, ZMQ_SNDHWM, queue) &&
           set_int(socket, ZMQ_RCVHWM, queue) && set_int(socket, ZMQ_IPV6, 1) &&
           set_int(socket, ZMQ_HEARTBEAT_IVL, BEAT_MS) &&
           set_int(socket, ZMQ_HEARTBEAT_TIMEOUT, BEAT_TIMEOUT_MS) &&
           set_int(socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS) &&
           zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &bytes_max, sizeof(bytes_max)) == 0;
}

static sl_err listen_at(struct control *self, struct sl_error *why)
{
    char endpoint[160];
    self->router = zmq_socket(self->context, ZMQ_ROUTER);
    if (self->router == NULL || !common_options(self, self->router) ||
        !set_int(self->router, ZMQ_ROUTER_MANDATORY, 1) ||
        !set_int(self->router, ZMQ_BACKLOG, BACKLOG)) {
        return fail_zmq(why, "make the socket for", self->options.listen);
    }
    if (!self->options.plaintext) {
        self->zap = zmq_socket(self->context, ZMQ_REP);
        if (self->zap == NULL || !set_int(self->zap, ZMQ_LINGER, 0) ||
            zmq_bind(self->zap, ZAP_ENDPOINT) != 0) {
            return fail_zmq(why, "make", ZAP_ENDPOINT);
        }
        sl_err err = watch(self, self->zap, why);
        if (err != SL_OK) {
            return err;
        }
        if (!set_int(self->router, ZMQ_CURVE_SERVER, 1) ||
            zmq_setsockopt(self->router, ZMQ_CURVE_SECRETKEY, self->pair.secret_text,
                           SL_CURVE_TEXT_BYTES) != 0 ||
            zmq_setsockopt(self->router, ZMQ_ZAP_DOMAIN, ZAP_DOMAIN, strlen(ZAP_DOMAIN)) != 0) {
            return fail_zmq(why, "set the key of", self->options.listen);
        }
    }
    (void)snprintf(endpoint, sizeof(endpoint), "tcp://%s", self->options.listen);
    if (zmq_bind(self->router, endpoint) != 0) {
        int code = errno;
        return sl_fail(why, code == EADDRINUSE ? SL_ERR_EXISTS : SL_ERR_CONFIG,
                       "cluster_listen '%s': %s", self->options.listen, zmq_strerror(code));
    }
    sl_err err = watch(self, self->router, why);
    const struct control_connections_options bounds = {
        .unauthenticated_max = self->options.unauthenticated_max,
        .of_address_max = self->options.of_address_max,
        .keys_max = SL_CLUSTER_PEERS_MAX,
        .of_key_max = HANDSHAKES_AT_ONCE};
    if (err == SL_OK && bounds.unauthenticated_max > 0) {
        err = control_connections_open(self->context, self->router, &bounds, &self->unauth, why);
    }
    return err == SL_OK && self->unauth != NULL
               ? watch(self, control_connections_monitor(self->unauth), why)
               : err;
}

static sl_err dealer_open(struct control *self, const char *name, const char *address, void **out,
                          struct sl_error *why)
{
    char endpoint[160], server[SL_CURVE_TEXT_BYTES];
    sl_err err =
        self->options.plaintext ? SL_OK : sl_curve_load_public(self->keys, name, server, why);
    if (err != SL_OK) {
        return err;
    }
    void *socket = zmq_socket(self->context, ZMQ_DEALER);
    *out = socket;
    if (socket == NULL || !common_options(self, socket) || !set_int(socket, ZMQ_IMMEDIATE, 1) ||
        !set_int(socket, ZMQ_RECONNECT_IVL, RECONNECT_MS) ||
        !set_int(socket, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX) ||
        !set_int(socket, ZMQ_CONNECT_TIMEOUT, CONNECT_MS)) {
        return fail_zmq(why, "make the socket to", name);
    }
    if (!self->options.plaintext &&
        (zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, server, SL_CURVE_TEXT_BYTES) != 0 ||
         zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, self->pair.public_text, SL_CURVE_TEXT_BYTES) !=
             0 ||
         zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, self->pair.secret_text, SL_CURVE_TEXT_BYTES) !=
             0)) {
        return fail_zmq(why, "set the keys for", name);
    }
    (void)snprintf(endpoint, sizeof(endpoint), "tcp://%s", address);
    if (zmq_connect(socket, endpoint) != 0) {
        return sl_fail(why, SL_ERR_CONFIG, "peer '%s' at '%.100s': %s", name, address,
                       zmq_strerror(errno));
    }
    return watch(self, socket, why);
}

/* Accepts NULL. */
static void dealer_close(struct control *self, void *dealer)
{
    int fd = -1;
    size_t size = sizeof(fd);
    if (dealer == NULL) {
        return;
    }
    if (zmq_getsockopt(dealer, ZMQ_FD, &fd, &size) == 0) { /* it may outlive the socket */
        (void)epoll_ctl(self->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    }
    (void)zmq_close(dealer);
}

static sl_err control_peer_add(struct sl_control *base, const char *name, const char *address,
                               struct sl_error *why)
{
    struct control *self = of(base);
    struct control_peer *peer = peer_get(self, name);
    void *dealer = NULL;
    if (peer == NULL) {
        return sl_fail(why, SL_ERR_LIMIT, "more than %u peers", SL_CLUSTER_PEERS_MAX);
    }
    dealer_close(self, peer->dealer);
    sl_err err = dealer_open(self, name, address, &dealer, why);
    if (err != SL_OK) {
        dealer_close(self, dealer);
        dealer = NULL;
    }
    peer->dealer = dealer;
    return err;
}

/* ---- frames ---- */

static sl_err control_send(struct sl_control *base, const char *name, const void *frame,
                           size_t length_bytes, bool answer)
{
    struct control *self = of(base);
    const struct control_peer *peer = peer_of(self, name);
    if (length_bytes > self->options.message_bytes_max) {
        return SL_ERR_INVALID;
    }
    if (peer == NULL ||
        (answer ? peer->route_bytes == 0 || self->router == NULL : peer->dealer == NULL)) {
        return SL_ERR_UNREACHABLE;
    }
    void *socket = answer ? self->router : peer->dealer;
    if (answer &&
        zmq_send(socket, peer->route, peer->route_bytes, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
        return errno == EAGAIN ? SL_ERR_LIMIT : SL_ERR_UNREACHABLE;
    }
    if (zmq_send(socket, frame, length_bytes, ZMQ_DONTWAIT) < 0) {
        return SL_ERR_UNREACHABLE; /* a DEALER without a connection, or with a full queue */
    }
    return SL_OK;
}

static sl_err control_refuse(struct sl_control *base, const void *frame, size_t length_bytes)
{
    const struct control *self = of(base);
    if (zmq_send(self->router, self->route, self->route_bytes, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0 ||
        zmq_send(self->router, frame, length_bytes, ZMQ_DONTWAIT) < 0) {
        return SL_ERR_UNREACHABLE;
    }
    return SL_OK;
}

/* Reads one whole message into self->frame and drops it if its number of parts is wrong. 1: a
 * frame; 0: none; -1: dropped. */
static int message_take(struct control *self, void *socket, bool routed)
{
    uint32_t parts = 0, wanted = routed ? 2 : 1;
    bool good = true;
    do {
        zmq_msg_t part;
        (void)zmq_msg_init(&part);
        if (zmq_msg_recv(&part, socket, ZMQ_DONTWAIT) < 0) {
            (void)zmq_msg_close(&part);
            return 0;
        }
        bool more = zmq_msg_more(&part) != 0;
        if (routed && parts == 0) {
            self->route_bytes = zmq_msg_size(&part);
            good = self->route_bytes > 0 && self->route_bytes <= ROUTE_BYTES;
            if (good) {
                memcpy(self->route, zmq_msg_data(&part), self->route_bytes);
            }
        } else if (parts + 1 == wanted) {
            (void)zmq_msg_move(&self->frame, &part);
        }
        (void)zmq_msg_close(&part);
        parts++;
        if (!more) {
            break;
        }
    } while (true);
    return good && parts == wanted ? 1 : -1;
}

/* Whether the frame arrived on the connection of the peer's latest accepted request. */
static bool is_route_of(const struct control *self, const struct control_peer *peer)
{
    return peer->route_bytes == self->route_bytes &&
           memcmp(peer->route, self->route, self->route_bytes) == 0;
}

/* Identifies the sender of self->frame; false: it may not send. */
static bool asker_known(struct control *self, struct sl_control_frame *out)
{
    if (self->options.plaintext) { /* the frame contains the name */
        out->peer = NULL;
        out->other = true;
        for (uint32_t i = 0; i < self->peer_count && out->other; i++) {
            out->other = !is_route_of(self, &self->peers[i]);
        }
        return true;
    }
    const char *user = zmq_msg_gets(&self->frame, "User-Id");
    const char *key = user != NULL ? strchr(user, ' ') : NULL;
    size_t name_bytes = key != NULL ? (size_t)(key - user) : 0;
    if (name_bytes == 0 || name_bytes >= sizeof(self->from)) {
        return false;
    }
    memcpy(self->from, user, name_bytes);
    self->from[name_bytes] = '\0';
    out->peer = self->from;
    struct control_peer *peer = peer_of(self, self->from);
    if (peer == NULL || strcmp(peer->key, key + 1) != 0) {
        return false; /* its key was removed or replaced */
    }
    out->other = peer->route_bytes != 0 && !is_route_of(self, peer);
    if (self->unauth != NULL) {
        self->base.refused += control_connections_proved(
            self->unauth, zmq_msg_get(&self->frame, ZMQ_SRCFD), (uint32_t)(peer - self->peers));
    }
    return true;
}

/* Gives IP:PORT. ZeroMQ knows only the address; the port helps people to find the process. */
static const char *other_end(struct control *self)
{
    const char *address = zmq_msg_gets(&self->frame, "Peer-Address");
    struct sockaddr_storage end = {0};
    socklen_t length = sizeof(end);
    char port[8] = "";
    bool known =
        getpeername(zmq_msg_get(&self->frame, ZMQ_SRCFD), (struct sockaddr *)&end, &length) == 0 &&
        getnameinfo((struct sockaddr *)&end, length, NULL, 0, port, sizeof(port), NI_NUMERICSERV) ==
            0;
    (void)snprintf(self->other_end, sizeof(self->other_end), "%s%s%s",
                   address == NULL                       ? ""
                   : strncmp(address, "::ffff:", 7) == 0 ? address + 7 /* IPv4 */
                                                         : address,
                   known ? ":" : "", port);
    return self->other_end;
}

/* Source 0 is the ROUTER, the others are the DEALERs. */
static int source_take(struct control *self, uint32_t source, struct sl_control_frame *out)
{
    bool asked = source == 0;
    void *socket = asked ? self->router : self->peers[source - 1].dealer;
    if (socket == NULL) {
        return 0;
    }
    int taken = message_take(self, socket, asked);
    if (taken <= 0) {
        return taken;
    }
    *out = (struct sl_control_frame){.answer = !asked, .from = ""};
    if (asked && !asker_known(self, out)) {
        return -1;
    }
    out->from = asked ? other_end(self) : "";
    if (!asked) {
        out->peer = self->peers[source - 1].name;
    }
    out->bytes = zmq_msg_data(&self->frame);
    out->length_bytes = zmq_msg_size(&self->frame);
    return 1;
}

static bool control_receive(struct sl_control *base, struct sl_control_frame *out)
{
    struct control *self = of(base);
    for (uint32_t i = 0; self->zap != NULL && i < ZAP_STEPS && zap_step(self); i++) {
    }
    if (self->unauth != NULL) {
        self->base.refused += control_connections_step(self->unauth);
    }
    uint32_t sources = self->peer_count + 1;
    for (uint32_t i = 0; i < sources; i++) {
        uint32_t source = (self->turn + i) % sources;
        int taken = source_take(self, source, out);
        if (taken < 0) {
            self->base.refused++; /* the source's next frame is read in the next call */
            out->bytes = NULL;
            out->length_bytes = 0;
            self->turn = source;
            return true;
        }
        if (taken > 0) {
            self->turn = (source + 1) % sources;
            return true;
        }
    }
    return false;
}

static void control_heard(struct sl_control *base, const char *name)
{
    struct control *self = of(base);
    struct control_peer *peer = peer_get(self, name);
    if (peer != NULL) {
        memcpy(peer->route, self->route, self->route_bytes);
        peer->route_bytes = self->route_bytes;
    }
}

static void control_peer_key(struct sl_control *base, const char *name, const char *public_text)
{
    struct control *self = of(base);
    struct control_peer *peer = peer_of(self, name);
    if (peer == NULL || self->options.plaintext) {
        return;
    }
    if (self->unauth != NULL && (public_text == NULL || strcmp(peer->key, public_text) != 0)) {
        self->base.refused +=
            control_connections_key_removed(self->unauth, (uint32_t)(peer - self->peers));
    }
    if (public_text != NULL) {
        (void)snprintf(peer->key, sizeof(peer->key), "%s", public_text);
        return;
    }
    dealer_close(self, peer->dealer);
    *peer = (struct control_peer){0};
}

/* ---- life ---- */

static int control_fd(const struct sl_control *base)
{
    return ((const struct control *)base)->epoll_fd;
}

static void control_close(struct sl_control *base)
{
    struct control *self = of(base);
    for (uint32_t i = 0; i < self->peer_count; i++) {
        if (self->peers[i].dealer != NULL) {
            (void)zmq_close(self->peers[i].dealer);
        }
    }
    control_connections_close(&self->unauth);
    if (self->router != NULL) {
        (void)zmq_close(self->router);
    }
    if (self->zap != NULL) {
        (void)zmq_close(self->zap);
    }
    (void)zmq_msg_close(&self->frame);
    if (self->context != NULL) {
        (void)zmq_ctx_term(self->context);
    }
    if (self->epoll_fd >= 0) {
        (void)close(self->epoll_fd);
    }
    explicit_bzero(&self->pair, sizeof(self->pair));
    free(self);
}

static const struct sl_control_ops control_ops = {
    .peer_add = control_peer_add,
    .send = control_send,
    .receive = control_receive,
    .heard = control_heard,
    .refuse = control_refuse,
    .peer_key = control_peer_key,
    .fd = control_fd,
    .close = control_close,
};

sl_err sl_control_open(const struct sl_control_options *options, struct sl_control **out,
                       struct sl_error *why)
{
    struct control *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the sockets between nodes");
    }
    self->base.ops = &control_ops;
    self->options = *options;
    self->epoll_fd = -1;
    (void)zmq_msg_init(&self->frame);
    (void)snprintf(self->keys, sizeof(self->keys), "%s", options->keys);
    sl_err err = SL_OK;
    if (!options->plaintext && options->keys[0] == '\0') {
        err = sl_fail(why, SL_ERR_CONFIG,
                      "cluster_keys: a node with peers needs keys (sluicectl keygen)");
    } else if (!options->plaintext) {
        err = sl_curve_load(self->keys, options->node, &self->pair, why);
    }
    if (err == SL_OK) {
        self->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        err = self->epoll_fd < 0 ? sl_fail_os(why, errno, "make an epoll")
                                 : sl_zmq_context_open(&self->context, why);
    }
    if (err == SL_OK && options->listen[0] != '\0') {
        err = listen_at(self, why);
    }
    if (err != SL_OK) {
        control_close(&self->base);
        return err;
    }
    *out = &self->base;
    return SL_OK;
}
