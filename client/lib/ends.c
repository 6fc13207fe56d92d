/* client/lib/ends.c - reports ended ops to a loop that waits for a descriptor and provides no
 * thread.
 *
 * The descriptor is an epoll of three: the mailbox's (a frame arrived), an eventfd (an op ended, or
 * the mailbox has a frame that no descriptor announces), and a timer (an op's deadline, a resend,
 * the mailbox's own time). A loop that sleeps there is one more poller, whose sleep libsluice
 * cannot see. So every thread that used the mailbox arms it before it leaves, as long as there are
 * calls in flight (poller_rearm_mailbox in call.c). */
#include "client/lib/op.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define PUMPS_MAX 16u /* bound for a client to which frames arrive all the time */

struct sl_client_ends {
    int fd;       /* epoll of the other two and the mailbox's */
    int event_fd; /* readable: sl_client_ended has work */
    int timer_fd;
    uint64_t timer_ns; /* time of the timer; SL_NEVER_NS: off */
};

static void ends_free(struct sl_client_ends *ends)
{
    const int fds[] = {ends->fd, ends->event_fd, ends->timer_fd};
    for (size_t i = 0; i < SL_COUNT(fds); i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
    free(ends);
}

static void event_set(struct sl_client_ends *ends)
{
    uint64_t one = 1;
    ssize_t written = write(ends->event_fd, &one, sizeof one); /* full: already set */
    (void)written;
}

static void event_clear(int fd)
{
    uint64_t count;
    ssize_t taken = read(fd, &count, sizeof count); /* an empty one is fine */
    (void)taken;
}

static sl_err watch(const struct sl_client_ends *ends, int fd, struct sl_error *why)
{
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(ends->fd, EPOLL_CTL_ADD, fd, &event) == 0
               ? SL_OK
               : sl_fail_os(why, errno, "descriptor of ends");
}

static sl_err ends_open(struct sl_client *client, struct sl_client_ends **out, struct sl_error *why)
{
    struct sl_client_ends *ends = calloc(1, sizeof *ends);
    if (ends == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "descriptor of ends");
    }
    *ends = (struct sl_client_ends){.fd = epoll_create1(EPOLL_CLOEXEC),
                                    .event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                                    .timer_fd =
                                        timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK),
                                    .timer_ns = SL_NEVER_NS};
    sl_err err = SL_OK;
    if (ends->fd < 0 || ends->event_fd < 0 || ends->timer_fd < 0) {
        err = sl_fail_os(why, errno, "descriptor of ends");
    }
    if (err == SL_OK) {
        err = watch(ends, sl_mailbox_fd(client->mailbox), why);
    }
    if (err == SL_OK) {
        err = watch(ends, ends->event_fd, why);
    }
    if (err == SL_OK) {
        err = watch(ends, ends->timer_fd, why);
    }
    if (err != SL_OK) {
        ends_free(ends);
        return err;
    }
    *out = ends;
    return SL_OK;
}

sl_err sl_client_event_fd(struct sl_client *client, int *fd, struct sl_error *why)
{
    sl_err err = sl_client_check_writable(client, why);
    if (err != SL_OK) {
        return err;
    }
    pthread_mutex_lock(&client->lock);
    if (client->ends == NULL) {
        err = ends_open(client, &client->ends, why);
        if (err == SL_OK) { /* handle what arrived or ended before it was made */
            SL_ASSERT(client->ends != NULL);
            event_set(client->ends);
        }
    }
    if (err == SL_OK) {
        *fd = client->ends->fd;
    }
    pthread_mutex_unlock(&client->lock);
    return err;
}

void sl_client_ends_close(struct sl_client *client)
{
    if (client->ends != NULL) {
        ends_free(client->ends);
        client->ends = NULL;
    }
}

/* ---- under the client's lock ---- */

void sl_client_ends_wake_at(struct sl_client *client, uint64_t due_ns)
{
    struct sl_client_ends *ends = client->ends;
    uint64_t now_ns = sl_clock_monotonic_ns();
    if (due_ns <= now_ns) {
        event_set(ends);
        return;
    }
    /* A timer that fires too early is set again then, so most ops need no system call here. */
    if (due_ns < ends->timer_ns || ends->timer_ns <= now_ns) {
        struct itimerspec at = {.it_value = {.tv_sec = (time_t)(due_ns / SL_NS_PER_S),
                                             .tv_nsec = (long)(due_ns % SL_NS_PER_S)}};
        ends->timer_ns = due_ns;
        SL_ASSERT(timerfd_settime(ends->timer_fd, TFD_TIMER_ABSTIME, &at, NULL) == 0);
    }
}

void sl_client_ends_add(struct sl_client *client, struct sl_client_call *call)
{
    if (client->ended_first == NULL) {
        client->ended_first = call;
    } else {
        client->ended_last->next = call;
    }
    client->ended_last = call;
    if (client->ends != NULL) {
        event_set(client->ends);
    }
}

void sl_client_ends_forget(struct sl_client *client, struct sl_client_call *call)
{
    struct sl_client_call *before = NULL;
    struct sl_client_call *at = call->done ? client->ended_first : NULL;
    for (; at != NULL && at != call; at = at->next) {
        before = at;
    }
    call->op = NULL;
    if (at == NULL) {
        return; /* it runs, or was already reported */
    }
    if (before == NULL) {
        client->ended_first = call->next;
    } else {
        before->next = call->next;
    }
    client->ended_last = client->ended_last == call ? before : client->ended_last;
    call->next = NULL;
}

/* ---- for the event loop ---- */

/* Clears the event and a fired timer. Both are set under the lock, which the caller holds. */
static void ends_clear(struct sl_client_ends *ends)
{
    event_clear(ends->event_fd);
    if (ends->timer_ns <= sl_clock_monotonic_ns()) {
        event_clear(ends->timer_fd);
        ends->timer_ns = SL_NEVER_NS;
    }
}

uint32_t sl_client_ended(struct sl_client *client, struct sl_op **ops, uint32_t room)
{
    uint32_t given = 0;
    bool more = true;
    if (sl_client_check_writable(client, NULL) != SL_OK) {
        return 0;
    }
    pthread_mutex_lock(&client->lock);
    for (uint32_t i = 0; i < PUMPS_MAX && more; i++) {
        more = sl_client_pump(client);
    }
    for (; given < room && client->ended_first != NULL; given++) {
        struct sl_client_call *call = client->ended_first;
        client->ended_first = call->next;
        call->next = NULL;
        ops[given] = call->op;
    }
    if (client->ends != NULL) {
        ends_clear(client->ends);
    }
    sl_client_rearm_mailbox(client);
    if (client->ends != NULL && (more || client->ended_first != NULL)) {
        event_set(client->ends);
    }
    pthread_mutex_unlock(&client->lock);
    return given;
}
