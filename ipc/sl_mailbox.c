/* ipc/sl_mailbox.c - frames over ZeroMQ, one ROUTER for those who come to us and one DEALER for
 * each we talk to; and the choice between it and the fast lanes (mailbox_lanes.c).
 *
 * The descriptors of ZeroMQ are edge-triggered in effect: any call on a socket, a send too, may
 * swallow the wake-up of a frame that has arrived. So each socket has a mark `hot`: "a frame may
 * wait here without its descriptor saying so". A readable descriptor and every send set it, an
 * empty receive clears it. All descriptors are in one epoll of the mailbox's own. It is the single
 * descriptor that a loop sees, or the place where the loop waits (sl_mailbox_join). */
#include "ipc/mailbox_internal.h"
#include "runtime/sl_loop.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RECONNECT_MS 10
/* Time that frames already handed over get to leave when the mailbox closes: the last replies of a
 * drained actor. Frames to nobody do not wait: they are refused at once, never queued. */
#define CLOSE_LINGER_MS 20
/* A killed actor's socket may look alive until the kernel has torn its mappings down. */
#define STALE_TRIES    20u
#define STALE_SLEEP_NS (10 * SL_NS_PER_MS)
/* Refused frames that one receive skips before it gives the loop its turn. */
#define RING_BYTES (512 * SL_KIB) /* of a queue, each way */
#define DROPS_MAX  1024u
#define EVENTS_MAX 64
/* What the first socket of a context takes: 5 descriptors, and as many once more for a peer's; 2 threads. */
#define CONTEXT_DESCRIPTORS 10u
#define CONTEXT_THREADS     2u

/* Descriptors are asked again after so many frames, so that a busy lane does not hide ZeroMQ. */
#define FRAMES_BETWEEN_POLLS 64u
/* A sender that has not looked for so long looks first: a lane's death is news of its descriptor.
 */
#define ASK_NS (10 * SL_NS_PER_MS)

static sl_err fail_zmq(struct sl_error *why, int os_code, const char *what, const char *name)
{
    return sl_fail(why, os_code == ENOMEM ? SL_ERR_NO_MEMORY : SL_ERR_OS, "%s of mailbox '%s': %s",
                   what, name, zmq_strerror(os_code));
}

static struct sl_mailbox_source *source_at(struct sl_mailbox *mailbox, uint32_t number)
{
    return number == 0 ? &mailbox->router : &mailbox->peers[number - 1].dealer;
}

/* ----------------------------------------------- opening sockets
 * ----------------------------------------------- */

static int set_int(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof(value));
}

/* Options of both kinds of socket. 0 or -1 with errno. */
static int set_common(const struct sl_mailbox *mailbox, void *socket)
{
    int64_t message_bytes_max = (int64_t)mailbox->message_bytes_max;
    if (set_int(socket, ZMQ_LINGER, 0) != 0 ||
        set_int(socket, ZMQ_SNDHWM, mailbox->queue_messages) != 0 ||
        set_int(socket, ZMQ_RCVHWM, mailbox->queue_messages) != 0 ||
        set_int(socket, ZMQ_RECONNECT_IVL, RECONNECT_MS) != 0 ||
        set_int(socket, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MS) != 0 ||
        set_int(socket, ZMQ_IMMEDIATE, 1) != 0) {
        return -1;
    }
    return zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &message_bytes_max, sizeof(message_bytes_max));
}

int sl_mailbox_watch(const struct sl_mailbox *mailbox, int fd, enum sl_mailbox_tag tag,
                     uint32_t number, uint32_t events)
{
    struct epoll_event event = {.events = events, .data = {.u64 = (uint64_t)tag << 32 | number}};
    return epoll_ctl(mailbox->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static int watch_socket(const struct sl_mailbox *mailbox, void *socket, enum sl_mailbox_tag tag,
                        uint32_t number)
{
    int fd = -1;
    size_t size = sizeof(fd);
    if (zmq_getsockopt(socket, ZMQ_FD, &fd, &size) != 0) {
        return -1;
    }
    return sl_mailbox_watch(mailbox, fd, tag, number, EPOLLIN);
}

static void socket_path(const struct sl_mailbox *mailbox, const char *name, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    (void)snprintf(out->sun_path, sizeof(out->sun_path), "%s/%.31s.sock", mailbox->directory, name);
}

/* Whether somebody listens at the path. */
static bool is_served(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return false;
    }
    bool served =
        connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 || errno == EAGAIN;
    (void)close(fd);
    return served;
}

/* libzmq replaces whatever file is there, so a living actor is looked for first. */
static sl_err refuse_second(const struct sl_mailbox *mailbox, struct sl_error *why)
{
    struct sockaddr_un address;
    socket_path(mailbox, mailbox->name, &address);
    for (uint32_t i = 0; i < STALE_TRIES; i++) {
        if (!is_served(&address)) {
            return SL_OK;
        }
        const struct timespec pause = {.tv_nsec = (long)STALE_SLEEP_NS};
        (void)nanosleep(&pause, NULL);
    }
    return sl_fail(why, SL_ERR_EXISTS, "'%s' runs already: its socket %s is served", mailbox->name,
                   address.sun_path);
}

static sl_err router_bind(struct sl_mailbox *mailbox, struct sl_error *why)
{
    struct sockaddr_un address;
    char endpoint[sizeof(address.sun_path) + 8];
    socket_path(mailbox, mailbox->name, &address);
    (void)snprintf(endpoint, sizeof(endpoint), "ipc://%s", address.sun_path);
    /* The file must never exist with wider rights; one thread runs as yet. */
    mode_t before = umask(0177);
    int rc = zmq_bind(mailbox->router.socket, endpoint);
    int os_code = errno;
    (void)umask(before);
    mailbox->bound = rc == 0;
    return rc == 0 ? SL_OK : fail_zmq(why, os_code, endpoint, mailbox->name);
}

static sl_err router_open(struct sl_mailbox *mailbox, struct sl_error *why)
{
    sl_err err = refuse_second(mailbox, why);
    if (err == SL_OK) {
        err = sl_mailbox_lanes_listen(mailbox, why); /* who sees the router finds the lanes */
    }
    if (err != SL_OK) {
        return err;
    }
    mailbox->router.socket = zmq_socket(mailbox->context, ZMQ_ROUTER);
    void *socket = mailbox->router.socket;
    if (socket == NULL || set_common(mailbox, socket) != 0 ||
        set_int(socket, ZMQ_ROUTER_MANDATORY, 1) != 0 ||
        set_int(socket, ZMQ_ROUTER_HANDOVER, 1) != 0) {
        return fail_zmq(why, errno, "make the router", mailbox->name);
    }
    err = router_bind(mailbox, why);
    if (err == SL_OK && watch_socket(mailbox, socket, SL_TAG_SOURCE, 0) != 0) {
        err = fail_zmq(why, errno, "watch the router", mailbox->name);
    }
    mailbox->router.hot = true; /* what came before the descriptor was watched */
    return err;
}

static void peer_close(struct sl_mailbox_peer *peer)
{
    if (peer->dealer.socket != NULL) {
        (void)zmq_socket_monitor(peer->dealer.socket, NULL, 0);
        (void)set_int(peer->dealer.socket, ZMQ_LINGER, CLOSE_LINGER_MS);
        (void)zmq_close(peer->dealer.socket);
    }
    if (peer->monitor != NULL) {
        (void)zmq_close(peer->monitor);
    }
    *peer = (struct sl_mailbox_peer){0};
}

/* 0 or -1 with errno. */
static int monitor_open(struct sl_mailbox *mailbox, struct sl_mailbox_peer *peer, uint32_t number)
{
    char endpoint[32];
    (void)snprintf(endpoint, sizeof(endpoint), "inproc://peer.%" PRIu32, number);
    peer->monitor = zmq_socket(mailbox->context, ZMQ_PAIR);
    if (peer->monitor == NULL || set_int(peer->monitor, ZMQ_LINGER, 0) != 0 ||
        zmq_socket_monitor(peer->dealer.socket, endpoint,
                           ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED) != 0 ||
        zmq_connect(peer->monitor, endpoint) != 0) {
        return -1;
    }
    return watch_socket(mailbox, peer->monitor, SL_TAG_MONITOR, number);
}

static int peer_open(struct sl_mailbox *mailbox, struct sl_mailbox_peer *peer, const char *name,
                     uint32_t number)
{
    struct sockaddr_un address;
    char endpoint[sizeof(address.sun_path) + 8];
    socket_path(mailbox, name, &address);
    (void)snprintf(endpoint, sizeof(endpoint), "ipc://%s", address.sun_path);
    (void)snprintf(peer->name, sizeof(peer->name), "%s", name);
    peer->dealer.socket = zmq_socket(mailbox->context, ZMQ_DEALER);
    void *socket = peer->dealer.socket;
    if (socket == NULL || set_common(mailbox, socket) != 0 ||
        zmq_setsockopt(socket, ZMQ_ROUTING_ID, mailbox->name, strlen(mailbox->name)) != 0 ||
        monitor_open(mailbox, peer, number) != 0 ||
        watch_socket(mailbox, socket, SL_TAG_SOURCE, number) != 0) {
        return -1;
    }
    peer->dealer.hot = true;
    return zmq_connect(socket, endpoint);
}

sl_err sl_mailbox_peer_of(struct sl_mailbox *mailbox, const char *name,
                          struct sl_mailbox_peer **out)
{
    for (uint32_t i = 0; i < mailbox->peer_count; i++) {
        if (strcmp(mailbox->peers[i].name, name) == 0) {
            *out = &mailbox->peers[i];
            return SL_OK;
        }
    }
    if (mailbox->peer_count == SL_MAILBOX_PEERS_MAX) {
        return SL_ERR_LIMIT;
    }
    struct sl_mailbox_peer *peer = &mailbox->peers[mailbox->peer_count];
    if (peer_open(mailbox, peer, name, mailbox->peer_count + 1) != 0) {
        peer_close(peer);
        return SL_ERR_OS;
    }
    mailbox->peer_count++;
    sl_mailbox_lane_offer(mailbox, peer, sl_clock_monotonic_ns());
    *out = peer;
    return SL_OK;
}

/* --------------------------------------------- opening and closing
 * --------------------------------------------- */

static sl_err options_check(const struct sl_mailbox_options *options, struct sl_error *why)
{
    if (!sl_actor_name_is_clean(options->name, strlen(options->name))) {
        return sl_fail(why, SL_ERR_INVALID,
                       "mailbox name '%s' is not 1..31 letters, digits, '.', '_', '-'",
                       options->name);
    }
    if (strlen(options->runtime_dir) > SL_MAILBOX_DIRECTORY_BYTES_MAX) {
        return sl_fail(why, SL_ERR_INVALID,
                       "runtime directory '%s' is too long for the path of a socket (%zu bytes)",
                       options->runtime_dir, SL_MAILBOX_DIRECTORY_BYTES_MAX);
    }
    if (options->queue_messages == 0 || options->queue_messages > (1u << 20)) {
        return sl_fail(why, SL_ERR_INVALID, "queue of %" PRIu32 " messages is not in 1..2^20",
                       options->queue_messages);
    }
    if (options->message_bytes_max < 64 || options->message_bytes_max > SL_GIB) {
        return sl_fail(why, SL_ERR_INVALID, "message bound of %" PRIu64 " bytes is not in 64..2^30",
                       options->message_bytes_max);
    }
    if (options->ring_bytes != 0 && !sl_queue_bytes_are_fit(options->ring_bytes)) {
        return sl_fail(why, SL_ERR_INVALID,
                       "ring of %" PRIu64 " bytes is no power of two in 4 KiB..64 MiB",
                       options->ring_bytes);
    }
    if (options->lanes_max > 65535) {
        return sl_fail(why, SL_ERR_INVALID, "%" PRIu32 " lanes are not in 0..65535",
                       options->lanes_max);
    }
    return SL_OK;
}

void sl_mailbox_options_from(const struct sl_config *config, struct sl_mailbox_options *options)
{
    options->queue_messages = (uint32_t)sl_config_u64(config, SL_SET_queue_messages);
    options->message_bytes_max = sl_config_u64(config, SL_SET_message_bytes_max);
    options->ring_bytes = sl_config_bool(config, SL_SET_queues) ? RING_BYTES : 0;
    options->spin_ns = sl_config_u64(config, SL_SET_queue_spin);
}

/* Ends when its creator releases the lock. */
static void *thread_try(void *lock)
{
    (void)pthread_mutex_lock(lock);
    (void)pthread_mutex_unlock(lock);
    return NULL;
}

/* 0 or what pthread_create or eventfd has said. */
static int context_try(void)
{
    int fds[CONTEXT_DESCRIPTORS], failed = 0;
    pthread_t threads[CONTEXT_THREADS];
    uint32_t fd_count = 0, thread_count = 0;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    (void)pthread_mutex_lock(&lock);
    while (failed == 0 && fd_count < CONTEXT_DESCRIPTORS) {
        fds[fd_count] = eventfd(0, EFD_CLOEXEC);
        failed = fds[fd_count] < 0 ? errno : 0;
        fd_count += failed == 0;
    }
    while (failed == 0 && thread_count < CONTEXT_THREADS) {
        failed = pthread_create(&threads[thread_count], NULL, thread_try, &lock);
        thread_count += failed == 0;
    }
    (void)pthread_mutex_unlock(&lock);
    while (thread_count > 0) {
        (void)pthread_join(threads[--thread_count], NULL);
    }
    while (fd_count > 0) {
        (void)close(fds[--fd_count]);
    }
    return failed;
}

sl_err sl_zmq_context_open(void **out, struct sl_error *why)
{
    int failed = context_try();
    if (failed != 0) {
        return sl_fail(why, SL_ERR_LIMIT,
                       "ZeroMQ wants %u descriptors and %u threads, this process gets no more: %s",
                       CONTEXT_DESCRIPTORS, CONTEXT_THREADS, zmq_strerror(failed));
    }
    *out = zmq_ctx_new();
    return *out != NULL ? SL_OK : sl_fail_os(why, errno, "make a context of ZeroMQ");
}

static sl_err mailbox_start(struct sl_mailbox *mailbox, const struct sl_mailbox_options *options,
                            struct sl_error *why)
{
    sl_err err = sl_mailbox_lanes_open(mailbox, options, why);
    if (err != SL_OK) {
        return err;
    }
    mailbox->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (mailbox->epoll_fd < 0) {
        return sl_fail_os(why, errno, "make the epoll of mailbox '%s'", mailbox->name);
    }
    mailbox->peers = calloc(SL_MAILBOX_PEERS_MAX, sizeof(*mailbox->peers));
    if (mailbox->peers == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for mailbox '%s'", mailbox->name);
    }
    err = sl_zmq_context_open(&mailbox->context, why);
    return err == SL_OK && options->bind ? router_open(mailbox, why) : err;
}

sl_err sl_mailbox_open(const struct sl_mailbox_options *options, struct sl_mailbox **out,
                       struct sl_error *why)
{
    sl_err err = options_check(options, why);
    if (err != SL_OK) {
        return err;
    }
    struct sl_mailbox *mailbox = calloc(1, sizeof(*mailbox));
    if (mailbox == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for mailbox '%s'", options->name);
    }
    (void)snprintf(mailbox->directory, sizeof(mailbox->directory), "%s", options->runtime_dir);
    (void)snprintf(mailbox->name, sizeof(mailbox->name), "%s", options->name);
    mailbox->queue_messages = (int)options->queue_messages;
    mailbox->message_bytes_max = options->message_bytes_max;
    mailbox->epoll_fd = -1;
    mailbox->listen_fd = -1;
    (void)zmq_msg_init(&mailbox->frame);
    err = mailbox_start(mailbox, options, why);
    if (err != SL_OK) {
        sl_mailbox_close(&mailbox);
        return err;
    }
    *out = mailbox;
    return SL_OK;
}

void sl_mailbox_close(struct sl_mailbox **mailbox)
{
    if (mailbox == NULL || *mailbox == NULL) {
        return;
    }
    struct sl_mailbox *self = *mailbox;
    (void)zmq_msg_close(&self->frame);
    sl_mailbox_lanes_close(self);
    for (uint32_t i = 0; i < self->peer_count; i++) {
        peer_close(&self->peers[i]);
    }
    if (self->router.socket != NULL) {
        /* Bound sockets leave their file behind. It goes while it is served still, so that it
         * cannot be a successor's; a name that was refused to us was never ours. */
        struct sockaddr_un address;
        socket_path(self, self->name, &address);
        if (self->bound) {
            (void)unlink(address.sun_path);
        }
        (void)set_int(self->router.socket, ZMQ_LINGER, CLOSE_LINGER_MS);
        (void)zmq_close(self->router.socket);
    }
    if (self->context != NULL) {
        while (zmq_ctx_term(self->context) != 0 && errno == EINTR) {
            /* a signal came: the wait, which linger bounds, goes on */
        }
    }
    if (self->epoll_fd >= 0) {
        (void)close(self->epoll_fd);
    }
    free(self->peers);
    free(self);
    *mailbox = NULL;
}

/* ---------------------------------------------------- sending
 * ---------------------------------------------------- */

void sl_mailbox_peer_hear(struct sl_mailbox *mailbox, struct sl_mailbox_peer *peer)
{
    for (;;) {
        unsigned char head[6]; /* u16 event, u32 value */
        char address[128];
        int got = zmq_recv(peer->monitor, head, sizeof(head), ZMQ_DONTWAIT);
        if (got < 0) {
            return;
        }
        (void)zmq_recv(peer->monitor, address, sizeof(address), ZMQ_DONTWAIT);
        uint16_t event;
        memcpy(&event, head, sizeof(event));
        peer->connected = event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
        peer->usable = peer->usable && peer->connected;
        peer->used = peer->used && peer->connected;
        mailbox->connect_count += peer->connected ? 1 : 0;
        if (peer->connected) { /* somebody is there (again): worth an offer at once */
            peer->offer_at_ns = 0;
            peer->offer_pause_ns = 0;
            sl_mailbox_lane_offer(mailbox, peer, sl_clock_monotonic_ns());
            sl_mailbox_lane_reconnected(mailbox, peer);
        }
    }
}

/* ZMQ_POLLIN, ZMQ_POLLOUT. Asking makes the socket process what its thread has told it; a send does
 * that at times only, and so says EAGAIN for a millisecond after a connection stands or a queue has
 * drained. */
static int events_of(void *socket)
{
    int events = 0;
    size_t size = sizeof(events);
    return zmq_getsockopt(socket, ZMQ_EVENTS, &events, &size) == 0 ? events : 0;
}

/* 0 or -1 with errno. */
static int send_part(void *socket, const void *bytes, size_t length_bytes, int flags)
{
    if (zmq_send(socket, bytes, length_bytes, flags | ZMQ_DONTWAIT) >= 0) {
        return 0;
    }
    if (errno != EAGAIN) {
        return -1;
    }
    (void)events_of(socket);
    return zmq_send(socket, bytes, length_bytes, flags | ZMQ_DONTWAIT) >= 0 ? 0 : -1;
}

static sl_err send_reply(struct sl_mailbox *mailbox, const char *to, const void *frame,
                         size_t length_bytes)
{
    sl_err err = sl_mailbox_lane_reply(mailbox, to, frame, length_bytes);
    if (err != SL_ERR_UNSUPPORTED) {
        return err;
    }
    if (mailbox->router.socket == NULL) {
        return SL_ERR_UNREACHABLE;
    }
    mailbox->router.hot = true;
    if (send_part(mailbox->router.socket, to, strlen(to), ZMQ_SNDMORE) != 0) {
        return errno == EAGAIN         ? SL_ERR_LIMIT
               : errno == EHOSTUNREACH ? SL_ERR_UNREACHABLE
                                       : SL_ERR_OS;
    }
    if (send_part(mailbox->router.socket, frame, length_bytes, 0) != 0) {
        return errno == EHOSTUNREACH ? SL_ERR_UNREACHABLE : SL_ERR_OS;
    }
    mailbox->stats.socket_sent++;
    return SL_OK;
}

sl_err sl_mailbox_zmq_request(struct sl_mailbox *mailbox, struct sl_mailbox_peer *peer,
                              const void *frame, size_t length_bytes,
                              const struct sl_mailbox_sync *sync)
{
    void *socket = peer->dealer.socket;
    peer->dealer.hot = true;
    /* ZeroMQ takes all parts of a message or none: a second one that is refused took the first
     * back, and must not be tried again alone. */
    if (send_part(socket, frame, length_bytes, sync != NULL ? ZMQ_SNDMORE : 0) == 0 &&
        (sync == NULL || zmq_send(socket, sync, sizeof(*sync), ZMQ_DONTWAIT) >= 0)) {
        peer->usable = true;
        peer->used = true;
        mailbox->stats.socket_sent += length_bytes > 0 ? 1 : 0;
        return SL_OK;
    }
    if (errno != EAGAIN) {
        return SL_ERR_OS;
    }
    /* ZeroMQ has one answer for "nobody there" and "queue full"; the monitor tells them apart. */
    sl_mailbox_peer_hear(mailbox, peer);
    return peer->usable ? SL_ERR_LIMIT : SL_ERR_UNREACHABLE;
}

static bool ask_sources(struct sl_mailbox *mailbox, uint64_t wait_ns);

static sl_err send_request(struct sl_mailbox *mailbox, const char *to, const void *frame,
                           size_t length_bytes)
{
    struct sl_mailbox_peer *peer = NULL;
    sl_err err = sl_mailbox_peer_of(mailbox, to, &peer);
    if (err != SL_OK) {
        return err;
    }
    if (mailbox->ring_bytes != 0 && sl_clock_monotonic_ns() - mailbox->asked_at_ns > ASK_NS) {
        (void)ask_sources(mailbox, 0);
    }
    err = sl_mailbox_lane_request(mailbox, peer, frame, length_bytes);
    return err != SL_ERR_UNSUPPORTED
               ? err
               : sl_mailbox_zmq_request(mailbox, peer, frame, length_bytes, NULL);
}

sl_err sl_mailbox_send(struct sl_mailbox *mailbox, const char *to, const void *frame,
                       size_t length_bytes, bool reply)
{
    if (!sl_actor_name_is_clean(to, strlen(to)) || length_bytes > mailbox->message_bytes_max) {
        return SL_ERR_INVALID;
    }
    return reply ? send_reply(mailbox, to, frame, length_bytes)
                 : send_request(mailbox, to, frame, length_bytes);
}

/* --------------------------------------------------- receiving
 * --------------------------------------------------- */

/* Asks the descriptors, and waits for wait_ns at most until one is readable. Marks what is. True:
 * the loop's descriptor is (sl_mailbox_join). */
static bool ask_sources(struct sl_mailbox *mailbox, uint64_t wait_ns)
{
    struct epoll_event events[EVENTS_MAX];
    bool of_loop = false;
    int count = sl_epoll_wait(mailbox->epoll_fd, events, EVENTS_MAX, wait_ns);
    for (int i = 0; i < count; i++) {
        enum sl_mailbox_tag tag = (enum sl_mailbox_tag)(events[i].data.u64 >> 32);
        uint32_t number = (uint32_t)events[i].data.u64;
        if (tag == SL_TAG_MONITOR) {
            sl_mailbox_peer_hear(mailbox, &mailbox->peers[number - 1]);
        } else if (tag == SL_TAG_SOURCE) {
            source_at(mailbox, number)->hot = true;
        } else if (tag == SL_TAG_LOOP) {
            of_loop = true;
        } else {
            sl_mailbox_lanes_event(mailbox, tag, number);
        }
    }
    mailbox->frames_since_poll = 0;
    if (mailbox->ring_bytes != 0) {
        mailbox->asked_at_ns = sl_clock_monotonic_ns();
        sl_mailbox_lanes_tick(mailbox, mailbox->asked_at_ns);
    }
    return of_loop;
}

/* Takes the parts behind a frame: a sync of lanes, or what only strangers send. */
static bool take_tail(struct sl_mailbox *mailbox, void *socket, bool *has_sync)
{
    zmq_msg_t part;
    uint32_t count = 0;
    bool good = true;
    (void)zmq_msg_init(&part);
    /* Parts of a message arrive together. */
    for (bool more = zmq_msg_more(&mailbox->frame) != 0; more; more = zmq_msg_more(&part) != 0) {
        if (zmq_msg_recv(&part, socket, ZMQ_DONTWAIT) < 0) {
            good = false;
            break;
        }
        *has_sync = ++count == 1 && zmq_msg_size(&part) == sizeof(mailbox->held_sync);
        good = good && *has_sync;
        if (*has_sync) {
            memcpy(&mailbox->held_sync, zmq_msg_data(&part), sizeof(mailbox->held_sync));
        }
    }
    (void)zmq_msg_close(&part);
    return good;
}

/* Takes one message off a socket into mailbox->frame. 1: taken; 0: none; -1: one was there and was
 * refused. */
static int take_parts(struct sl_mailbox *mailbox, void *socket, bool has_routing_id)
{
    if (zmq_msg_recv(&mailbox->frame, socket, ZMQ_DONTWAIT) < 0) {
        return 0;
    }
    bool good = true;
    mailbox->held_has_sync = false;
    if (has_routing_id) {
        size_t length = zmq_msg_size(&mailbox->frame);
        good = sl_actor_name_is_clean(zmq_msg_data(&mailbox->frame), length) &&
               zmq_msg_more(&mailbox->frame) != 0;
        if (good) {
            memcpy(mailbox->held_from, zmq_msg_data(&mailbox->frame), length);
            mailbox->held_from[length] = '\0';
        }
        if (zmq_msg_more(&mailbox->frame) != 0) {
            (void)zmq_msg_recv(&mailbox->frame, socket, ZMQ_DONTWAIT);
        }
    }
    good = take_tail(mailbox, socket, &mailbox->held_has_sync) && good &&
           (has_routing_id || !mailbox->held_has_sync);
    mailbox->stats.dropped += good ? 0 : 1;
    return good ? 1 : -1;
}

/* A frame that sl_mailbox_receive gives. */
struct taken {
    const void *frame;
    size_t length_bytes;
};

static bool take_lane(struct sl_mailbox *mailbox, uint32_t slot, struct taken *out)
{
    out->frame = mailbox->buffer;
    return sl_mailbox_lane_take(mailbox, slot, &out->length_bytes);
}

/* The frame in mailbox->frame: after what its sender's lanes held when it came. False: it was but a
 * sync. */
static bool take_held(struct sl_mailbox *mailbox, struct taken *out)
{
    for (uint32_t slot; (slot = sl_mailbox_lanes_held(mailbox)) != 0;) {
        if (take_lane(mailbox, slot - 1, out)) {
            return true;
        }
    }
    mailbox->held = false;
    sl_mailbox_lanes_unhold(mailbox);
    if (mailbox->held_has_sync) {
        sl_mailbox_lane_sync(mailbox, mailbox->held_from, &mailbox->held_sync);
    }
    memcpy(mailbox->from, mailbox->held_from, sizeof(mailbox->from));
    out->frame = zmq_msg_data(&mailbox->frame);
    out->length_bytes = zmq_msg_size(&mailbox->frame);
    bool is_frame = out->length_bytes > 0 || !mailbox->held_has_sync;
    mailbox->stats.socket_received += is_frame ? 1 : 0;
    return is_frame;
}

/* Next frame of a ZeroMQ socket. */
static bool take_socket(struct sl_mailbox *mailbox, uint32_t number, uint32_t *drops_left,
                        struct taken *out)
{
    struct sl_mailbox_source *source = source_at(mailbox, number);
    while (source->hot && *drops_left > 0) {
        int got = source->socket != NULL ? take_parts(mailbox, source->socket, number == 0) : 0;
        if (got > 0) {
            mailbox->held = true;
            if (number > 0) {
                memcpy(mailbox->held_from, mailbox->peers[number - 1].name,
                       sizeof(mailbox->held_from));
            } else {
                sl_mailbox_lanes_hold(mailbox, mailbox->held_from);
            }
            if (take_held(mailbox, out)) {
                return true;
            }
            continue;
        }
        source->hot = got < 0;
        *drops_left -= 1;
    }
    return false;
}

/* Next frame, one source after the other. False: there is none that is known of. */
static bool take_next(struct sl_mailbox *mailbox, uint32_t *drops_left, struct taken *out)
{
    if (mailbox->held && take_held(mailbox, out)) {
        return true;
    }
    uint32_t lanes_from = mailbox->peer_count + 1;
    uint32_t source_count = lanes_from + mailbox->lane_count;
    for (uint32_t i = 0; i < source_count; i++) {
        uint32_t number = (mailbox->turn + i) % source_count;
        /* A lane that ends here makes the next ones fewer. */
        bool taken = number < lanes_from ? take_socket(mailbox, number, drops_left, out)
                     : number - lanes_from < mailbox->lane_count
                         ? take_lane(mailbox, number - lanes_from, out)
                         : false;
        if (taken) {
            mailbox->turn = (number + 1) % source_count;
            return true;
        }
    }
    return false;
}

sl_err sl_mailbox_receive(struct sl_mailbox *mailbox, const char **from, const void **frame,
                          size_t *length_bytes)
{
    uint32_t drops_left = DROPS_MAX;
    struct taken out = {0};
    sl_mailbox_lanes_awake(mailbox);
    if (mailbox->frames_since_poll++ >= FRAMES_BETWEEN_POLLS) {
        (void)ask_sources(mailbox, 0);
    }
    bool taken = take_next(mailbox, &drops_left, &out);
    if (!taken && !mailbox->polled) {
        /* Once between two SL_ERR_NOT_FOUND: what comes later wakes the loop again. */
        mailbox->polled = true;
        (void)ask_sources(mailbox, 0);
        taken = take_next(mailbox, &drops_left, &out);
    }
    if (!taken) {
        mailbox->polled = false;
        return SL_ERR_NOT_FOUND;
    }
    *from = mailbox->from;
    *frame = out.frame;
    *length_bytes = out.length_bytes;
    return SL_OK;
}

sl_err sl_mailbox_join(struct sl_mailbox *mailbox, int loop_fd, struct sl_error *why)
{
    return sl_mailbox_watch(mailbox, loop_fd, SL_TAG_LOOP, 0, EPOLLIN) == 0
               ? SL_OK
               : sl_fail_os(why, errno, "watch the loop of mailbox '%s'", mailbox->name);
}

bool sl_mailbox_block(struct sl_mailbox *mailbox, uint64_t wait_ns)
{
    /* What comes later ends the next wait: receiving need not ask again. */
    mailbox->polled = true;
    return ask_sources(mailbox, wait_ns);
}

bool sl_mailbox_pending(const struct sl_mailbox *mailbox)
{
    if (mailbox->held || sl_mailbox_lanes_ready(mailbox)) {
        return true;
    }
    if (mailbox->router.hot && mailbox->router.socket != NULL) {
        return true;
    }
    for (uint32_t i = 0; i < mailbox->peer_count; i++) {
        if (mailbox->peers[i].dealer.hot) {
            return true;
        }
    }
    return false;
}

uint64_t sl_mailbox_connect_count(const struct sl_mailbox *mailbox)
{
    return mailbox->connect_count;
}

void sl_mailbox_stats_get(const struct sl_mailbox *mailbox, struct sl_mailbox_stats *out)
{
    *out = mailbox->stats;
}

int sl_mailbox_fd(const struct sl_mailbox *mailbox)
{
    return mailbox->epoll_fd;
}
