/* client/lib/guest_relay.c - see guest_relay.h. The descriptor at which threads wait is an epoll that stays,
 * while the stand-in's socket in it comes and goes. */
#include "client/lib/guest_relay.h"
#include "client/lib/guest_internal.h"
#include "ipc/gate_relay.h"
#include "runtime/sl_door.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* A stand-in that was stopped must not stop its client for long. */
#define OPEN_NS        (2 * SL_NS_PER_S)
#define WAIT_NS        (5 * SL_NS_PER_MS)
#define POPULATE_BYTES (off_t)(256 * SL_MIB)

_Static_assert(SL_GATE_RELAY_MEMORIES_MAX == 64, "a bit each");

struct guest_relay {
    struct sl_turn opening;     /* taken before the client's lock; all below is under that one */
    struct sl_gate_relay *wire; /* NULL: none stands */
    int poll_fd;
    bool waits_to_send; /* the epoll wakes for it */
    bool broke;
    uint32_t life;
    uint64_t sent;
    uint64_t memories; /* numbers that this life has */
    uint32_t memory_next;
};

static const char *const actors[] = {
    [SL_GATE_RELAY_REGISTRAR] = "registrar", [SL_GATE_RELAY_COORDINATOR] = "coordinator"};

sl_err sl_guest_may_send(enum sl_msg_type type, struct sl_error *why)
{
    switch (type) {
    case SL_MSG_ENGINE_REGISTER:
    case SL_MSG_ENGINE_END:
    case SL_MSG_STORE:
    case SL_MSG_LOAD:
    case SL_MSG_CANCEL:
    case SL_MSG_OP_FENCED:
    case SL_MSG_LAYER_READY:
    case SL_MSG_LAYER_WAIT:
    case SL_MSG_SESSION_PAUSE:
        return SL_OK;
    default:
        return sl_fail(why, SL_ERR_PERMISSION,
                       "the node is another user's: it lets this client get, pin, put, and store "
                       "and load blocks of engines, and no more (clients_write)");
    }
}

/* ---- opening, closing ---- */

sl_err sl_guest_relay_init(struct sl_client *client, struct guest_relay **out, struct sl_error *why)
{
    struct guest_relay *relay = calloc(1, sizeof *relay);
    if (relay == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "guest");
    }
    sl_turn_init(&relay->opening);
    relay->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (client->kick_fd < 0) { /* else of an attempt before this one */
        client->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    }
    sl_err err =
        relay->poll_fd < 0 || client->kick_fd < 0 ? sl_fail_os(why, errno, "eventfd") : SL_OK;
    if (err == SL_OK && client->codec == NULL) {
        err = sl_codec_create(client->message_bytes_max, &client->codec, why);
    }
    if (err != SL_OK) {
        sl_guest_relay_fini(client, &relay);
        return err;
    }
    client->next_seq = sl_client_random();
    client->next_op_id = sl_client_random() | UINT64_C(1) << 32; /* never 0 */
    *out = relay;
    return SL_OK;
}

/* Under the client's lock. The end of the socket would be no end where a fork has it, too. */
static void wire_close(const struct sl_client *client, struct guest_relay *relay)
{
    if (relay->wire != NULL && sl_client_is_ours(client)) {
        (void)shutdown(sl_gate_relay_fd(relay->wire), SHUT_RDWR);
        (void)epoll_ctl(relay->poll_fd, EPOLL_CTL_DEL, sl_gate_relay_fd(relay->wire), NULL);
    }
    sl_gate_relay_close(&relay->wire);
    relay->waits_to_send = false;
    relay->memories = 0;
}

void sl_guest_relay_fini(const struct sl_client *client, struct guest_relay **relay)
{
    struct guest_relay *gone = *relay;
    *relay = NULL;
    if (gone == NULL) {
        return;
    }
    wire_close(client, gone);
    if (gone->poll_fd >= 0) {
        (void)close(gone->poll_fd);
    }
    sl_turn_fini(&gone->opening, sl_client_is_ours(client));
    free(gone);
}

static struct guest_relay *relay_of(const struct sl_client *client)
{
    return client->guest->relay;
}

/* Under the client's lock; one system call. What it had said before its end is taken first. */
static bool stands(struct sl_client *client)
{
    struct guest_relay *relay = relay_of(client);
    if (relay->wire != NULL) {
        struct pollfd polled = {.fd = sl_gate_relay_fd(relay->wire), .events = 0};
        if (poll(&polled, 1, 0) != 0) {
            while (sl_client_pump(client)) {
            }
        }
    }
    return relay->wire != NULL;
}

static sl_err wire_open(struct sl_client *client, uint64_t deadline_ns, struct sl_error *why)
{
    struct guest_relay *relay = relay_of(client);
    struct sl_gate_relay *wire = NULL;
    struct epoll_event event = {.events = EPOLLIN};
    int fd = -1;
    uint64_t until_ns = SL_MIN(deadline_ns, sl_deadline_ns(sl_clock_monotonic_ns(), OPEN_NS));
    sl_err err = sl_gate_relay_ask(client->paths.runtime_dir, until_ns, &fd, why);
    if (err == SL_OK) {
        err = sl_gate_relay_open(fd, &wire, why);
    }
    if (err == SL_OK && epoll_ctl(relay->poll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        sl_gate_relay_close(&wire);
        err = sl_fail_os(why, errno, "epoll");
    }
    if (err == SL_OK) {
        pthread_mutex_lock(&client->lock);
        relay->wire = wire;
        relay->life++;
        pthread_mutex_unlock(&client->lock);
    }
    return err;
}

sl_err sl_guest_relay_need(struct sl_client *client, uint64_t deadline_ns, struct sl_error *why)
{
    struct guest_relay *relay = relay_of(client);
    sl_err err = sl_client_writes(client, why);
    if (err != SL_OK) { /* a fork: a thread that it has not may hold a lock */
        return err;
    }
    pthread_mutex_lock(&client->lock);
    bool is_there = stands(client);
    pthread_mutex_unlock(&client->lock);
    if (is_there) {
        return SL_OK;
    }
    if (!sl_turn_take(&relay->opening, deadline_ns)) {
        return sl_fail(why, SL_ERR_TIMEOUT, "the node's gate does not answer");
    }
    pthread_mutex_lock(&client->lock);
    is_there = stands(client); /* another thread's */
    pthread_mutex_unlock(&client->lock);
    if (!is_there) {
        err = wire_open(client, deadline_ns, why);
    }
    sl_turn_leave(&relay->opening);
    return err;
}

uint32_t sl_guest_relay_life(struct sl_client *client)
{
    pthread_mutex_lock(&client->lock);
    uint32_t life = relay_of(client)->life;
    pthread_mutex_unlock(&client->lock);
    return life;
}

/* ---- memory ---- */

/* Whoever maps it for us must be able to rely on its size. */
static sl_err seal(int fd, struct sl_error *why)
{
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals >= 0 &&
        ((seals & F_SEAL_SHRINK) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0)) {
        return SL_OK;
    }
    return sl_fail(why, SL_ERR_UNSUPPORTED,
                   "descriptor %d: a node of another user takes memory that cannot be cut short: "
                   "let the engine make it, or use sl_memory_alloc, or a memfd with "
                   "MFD_ALLOW_SEALING",
                   fd);
}

/* Pages belong to who touches them first: that is this process then, and not the node. What is there stays. */
static sl_err populate(int fd, uint64_t deadline_ns, struct sl_error *why)
{
    struct stat file;
    if (fstat(fd, &file) != 0) {
        return sl_fail_os(why, errno, "descriptor %d", fd);
    }
    for (off_t at = 0; at < file.st_size;) {
        off_t length = SL_MIN(file.st_size - at, POPULATE_BYTES);
        if (sl_clock_monotonic_ns() >= deadline_ns) {
            return sl_fail(why, SL_ERR_TIMEOUT, "memory of %lld bytes takes too long to make",
                           (long long)file.st_size);
        }
        if (fallocate(fd, 0, at, length) == 0) {
            at += length;
        } else if (errno != EINTR) {
            return sl_fail(why, SL_ERR_NO_MEMORY, "memory of %lld bytes: %s",
                           (long long)file.st_size, strerror(errno));
        }
    }
    return SL_OK;
}

/* Under the client's lock. */
static void send_armed(struct guest_relay *relay)
{
    bool waits = relay->wire != NULL && !sl_gate_relay_flush(relay->wire);
    if (relay->wire != NULL && waits != relay->waits_to_send) {
        struct epoll_event event = {.events = waits ? EPOLLIN | EPOLLOUT : EPOLLIN};
        (void)epoll_ctl(relay->poll_fd, EPOLL_CTL_MOD, sl_gate_relay_fd(relay->wire), &event);
        relay->waits_to_send = waits;
    }
}

/* Not the one that was given back last: an engine whose end was not answered has it there yet. */
static uint32_t number_free(const struct guest_relay *relay)
{
    uint32_t number = relay->memory_next;
    while ((relay->memories >> number & 1) != 0) {
        number = (number + 1) % SL_GATE_RELAY_MEMORIES_MAX;
    }
    return number;
}

sl_err sl_guest_memory_lend(struct sl_client *client, int fd, uint32_t life, uint64_t deadline_ns,
                            uint32_t *number, struct sl_error *why)
{
    struct guest_relay *relay = relay_of(client);
    sl_err err = seal(fd, why);
    if (err == SL_OK) {
        err = populate(fd, deadline_ns, why);
    }
    if (err != SL_OK) {
        return err;
    }
    do {
        err = SL_ERR_UNREACHABLE;
        pthread_mutex_lock(&client->lock);
        bool is_there = relay->wire != NULL && relay->life == life;
        if (is_there && ~relay->memories == 0) {
            pthread_mutex_unlock(&client->lock);
            return sl_fail(why, SL_ERR_LIMIT, "%u memories of engines at a node of another user",
                           SL_GATE_RELAY_MEMORIES_MAX);
        }
        if (is_there) {
            *number = number_free(relay);
            const struct sl_gate_relay_event event = {
                .kind = SL_GATE_RELAY_MEMORY, .number = *number, .fd = fd};
            err = sl_gate_relay_send(relay->wire, &event);
        }
        if (err == SL_OK) {
            relay->memories |= UINT64_C(1) << *number;
            relay->memory_next = (*number + 1) % SL_GATE_RELAY_MEMORIES_MAX;
        }
        pthread_mutex_unlock(&client->lock);
        if (err == SL_ERR_LIMIT) {
            sl_client_sleep(WAIT_NS);
        }
    } while (err == SL_ERR_LIMIT && sl_clock_monotonic_ns() < deadline_ns);
    return err == SL_OK          ? SL_OK
           : err == SL_ERR_LIMIT ? sl_fail(why, SL_ERR_TIMEOUT, "the node's gate takes nothing")
                                 : sl_fail(why, SL_ERR_UNREACHABLE,
                                           "the node's process for this client's engines is gone");
}

void sl_guest_memory_take_back(struct sl_client *client, uint32_t life, uint32_t number)
{
    struct guest_relay *relay = relay_of(client);
    const struct sl_gate_relay_event event = {
        .kind = SL_GATE_RELAY_FORGET, .number = number, .fd = -1};
    if (!sl_client_is_ours(client)) {
        return;
    }
    pthread_mutex_lock(&client->lock);
    if (relay->wire != NULL && relay->life == life &&
        sl_gate_relay_send(relay->wire, &event) == SL_OK) { /* else it stays lent */
        relay->memories &= ~(UINT64_C(1) << number);
    }
    send_armed(relay);
    pthread_mutex_unlock(&client->lock);
}

/* ---- frames ---- */

sl_err sl_guest_relay_send(struct sl_client *client, const char *to, const void *frame,
                           size_t length_bytes)
{
    struct guest_relay *relay = relay_of(client);
    struct sl_gate_relay_event event = {
        .kind = strcmp(to, "registrar") == 0 ? SL_GATE_RELAY_REGISTRAR : SL_GATE_RELAY_COORDINATOR,
        .frame = frame,
        .length_bytes = length_bytes,
        .fd = -1};
    if (relay->wire == NULL) {
        return SL_ERR_UNREACHABLE;
    }
    sl_err err = sl_gate_relay_send(relay->wire, &event);
    relay->sent += err == SL_OK;
    send_armed(relay);
    return err;
}

sl_err sl_guest_relay_receive(struct sl_client *client, const char **from, const void **frame,
                              size_t *length_bytes)
{
    struct guest_relay *relay = relay_of(client);
    struct sl_gate_relay_event event;
    if (relay->wire == NULL) {
        return SL_ERR_NOT_FOUND;
    }
    sl_err err = sl_gate_relay_receive(relay->wire, &event);
    if (err == SL_OK && event.frame == NULL) { /* only we lend */
        if (event.fd >= 0) {
            (void)close(event.fd);
        }
        err = SL_ERR_UNREACHABLE;
    }
    if (err == SL_ERR_UNREACHABLE) {
        wire_close(client, relay);
        relay->broke = true;
        return SL_ERR_NOT_FOUND;
    }
    if (err != SL_OK) {
        send_armed(relay);
        return SL_ERR_NOT_FOUND;
    }
    *from = actors[event.kind];
    *frame = event.frame;
    *length_bytes = event.length_bytes;
    return SL_OK;
}

int sl_guest_relay_poll_fd(const struct sl_client *client)
{
    return relay_of(client)->poll_fd;
}

uint64_t sl_guest_relay_sent(const struct sl_client *client)
{
    return relay_of(client)->sent;
}

bool sl_guest_relay_broke(struct sl_client *client)
{
    struct guest_relay *relay = relay_of(client);
    bool broke = relay->broke;
    relay->broke = false;
    return broke;
}
