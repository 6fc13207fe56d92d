/* runtime/base/sl_loop.c - callbacks for epoll, pidfds, a signalfd and an eventfd. */
#include "runtime/base/sl_loop.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define RUN_WAIT_NS SL_NS_PER_S

enum source_kind { SOURCE_FREE, SOURCE_FD, SOURCE_PROCESS, SOURCE_SIGNALS, SOURCE_WAKE };

struct source {
    enum source_kind kind;
    int fd; /* SOURCE_FD: borrowed, else owned; -1: the process was dead when its watch began */
    uint32_t use; /* incremented when the slot is freed: older events are dropped */
    union {
        sl_loop_fd_fn fd;
        sl_loop_death_fn death;
    } fn;
    void *context;
    struct sl_proc_id proc;
};

struct timer {
    sl_loop_timer_fn fn; /* NULL: free */
    void *context;
    uint64_t at_ns;
    uint32_t use;
};

struct sl_loop {
    struct sl_loop_options options;
    struct source *sources; /* [0] wake, [1] signals, then descriptors and processes */
    uint32_t source_count;
    uint32_t fd_count, process_count;
    uint32_t gone_count; /* watched processes without a pidfd: reported in the next turn */
    struct timer *timers;
    int epoll_fd;
    bool stopped;
    bool signals_blocked;
    sigset_t old_mask;
    sl_loop_signal_fn signal_fn;
    void *signal_context;
    sl_loop_wake_fn wake_fn;
    void *wake_context;
    sl_loop_before_wait_fn before_fn;
    void *before_context;
    sl_loop_wait_fn wait_fn; /* NULL: the loop waits itself */
    void *wait_context;
    uint64_t now_ns;
};

#define SLOT_WAKE    0u
#define SLOT_SIGNALS 1u
#define SLOT_FIRST   2u

static uint64_t loop_clock(const struct sl_loop *loop)
{
    return loop->options.now_ns != NULL ? loop->options.now_ns(loop->options.now_context)
                                        : sl_clock_monotonic_ns();
}

/* Adds or changes the descriptor of a slot in epoll. */
static sl_err source_arm(struct sl_loop *loop, uint32_t slot, int operation, uint32_t events,
                         struct sl_error *why)
{
    struct source *source = &loop->sources[slot];
    struct epoll_event event = {.data.u64 = (uint64_t)source->use << 32 | slot};
    event.events = ((events & SL_LOOP_READ) != 0 ? EPOLLIN : 0u) |
                   ((events & SL_LOOP_WRITE) != 0 ? EPOLLOUT : 0u);
    if (epoll_ctl(loop->epoll_fd, operation, source->fd, &event) != 0) {
        return sl_fail_os(why, errno, "watch descriptor %d", source->fd);
    }
    return SL_OK;
}

static void source_close(struct sl_loop *loop, struct source *source)
{
    if (source->kind == SOURCE_FREE) {
        return;
    }
    if (source->fd >= 0) {
        (void)epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
        if (source->kind != SOURCE_FD) {
            (void)close(source->fd);
        }
    } else if (source->kind == SOURCE_PROCESS) {
        loop->gone_count--;
    }
    loop->fd_count -= source->kind == SOURCE_FD;
    loop->process_count -= source->kind == SOURCE_PROCESS;
    source->kind = SOURCE_FREE;
    source->use++;
}

static sl_err loop_open_wake(struct sl_loop *loop, struct sl_error *why)
{
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll_fd < 0) {
        return sl_fail_os(why, errno, "epoll_create1");
    }
    struct source *wake = &loop->sources[SLOT_WAKE];
    wake->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake->fd < 0) {
        return sl_fail_os(why, errno, "eventfd");
    }
    wake->kind = SOURCE_WAKE;
    return source_arm(loop, SLOT_WAKE, EPOLL_CTL_ADD, SL_LOOP_READ, why);
}

sl_err sl_loop_create(const struct sl_loop_options *options, struct sl_loop **out,
                      struct sl_error *why)
{
    if (options->fds_max < 1 || options->fds_max > 65536 || options->timers_max < 1 ||
        options->timers_max > 65536 || options->processes_max > 65536) {
        return sl_fail(why, SL_ERR_INVALID,
                       "event loop: %u descriptors, %u timers or %u processes are out of range",
                       options->fds_max, options->timers_max, options->processes_max);
    }
    struct sl_loop *loop = calloc(1, sizeof(*loop));
    if (loop == NULL) {
        return sl_fail_os(why, ENOMEM, "event loop");
    }
    sl_err err = SL_OK;
    loop->options = *options;
    loop->epoll_fd = -1;
    loop->source_count = SLOT_FIRST + options->fds_max + options->processes_max;
    loop->sources = calloc(loop->source_count, sizeof(*loop->sources));
    loop->timers = calloc(options->timers_max, sizeof(*loop->timers));
    if (loop->sources == NULL || loop->timers == NULL) {
        err = sl_fail_os(why, ENOMEM, "event loop of %u sources", loop->source_count);
        goto fail;
    }
    err = loop_open_wake(loop, why);
    if (err != SL_OK) {
        goto fail;
    }
    loop->now_ns = loop_clock(loop);
    *out = loop;
    return SL_OK;
fail:
    sl_loop_destroy(&loop);
    return err;
}

void sl_loop_destroy(struct sl_loop **at)
{
    struct sl_loop *loop = *at;
    if (loop == NULL) {
        return;
    }
    for (uint32_t i = 0; loop->sources != NULL && i < loop->source_count; i++) {
        source_close(loop, &loop->sources[i]);
    }
    if (loop->signals_blocked) {
        (void)pthread_sigmask(SIG_SETMASK, &loop->old_mask, NULL);
    }
    if (loop->epoll_fd >= 0) {
        (void)close(loop->epoll_fd);
    }
    free(loop->timers);
    free(loop->sources);
    free(loop);
    *at = NULL;
}

/* ---------------------------------------------------------------- descriptors */

static struct source *source_of_fd(const struct sl_loop *loop, int fd)
{
    for (uint32_t i = SLOT_FIRST; i < loop->source_count; i++) {
        if (loop->sources[i].kind == SOURCE_FD && loop->sources[i].fd == fd) {
            return &loop->sources[i];
        }
    }
    return NULL;
}

static struct source *source_room(struct sl_loop *loop)
{
    for (uint32_t i = SLOT_FIRST; i < loop->source_count; i++) {
        if (loop->sources[i].kind == SOURCE_FREE) {
            return &loop->sources[i];
        }
    }
    return NULL;
}

sl_err sl_loop_fd_add(struct sl_loop *loop, int fd, uint32_t events, sl_loop_fd_fn fn,
                      void *context, struct sl_error *why)
{
    if (source_of_fd(loop, fd) != NULL) {
        return sl_fail(why, SL_ERR_EXISTS, "descriptor %d is watched already", fd);
    }
    struct source *source = loop->fd_count < loop->options.fds_max ? source_room(loop) : NULL;
    if (source == NULL) {
        return sl_fail(why, SL_ERR_LIMIT, "event loop is full: %u descriptors",
                       loop->options.fds_max);
    }
    source->fd = fd;
    sl_err err = source_arm(loop, (uint32_t)(source - loop->sources), EPOLL_CTL_ADD, events, why);
    if (err != SL_OK) {
        return err;
    }
    source->kind = SOURCE_FD;
    source->fn.fd = fn;
    source->context = context;
    loop->fd_count++;
    return SL_OK;
}

sl_err sl_loop_fd_set(struct sl_loop *loop, int fd, uint32_t events, struct sl_error *why)
{
    const struct source *source = source_of_fd(loop, fd);
    if (source == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "descriptor %d is not watched", fd);
    }
    return source_arm(loop, (uint32_t)(source - loop->sources), EPOLL_CTL_MOD, events, why);
}

void sl_loop_fd_remove(struct sl_loop *loop, int fd)
{
    struct source *source = source_of_fd(loop, fd);
    if (source != NULL) {
        source_close(loop, source);
    }
}

/* ---------------------------------------------------------------- timers: use << 32 | slot + 1 */

static struct timer *timer_of(const struct sl_loop *loop, sl_loop_timer handle)
{
    uint32_t slot = (uint32_t)handle - 1;
    if ((uint32_t)handle == 0 || slot >= loop->options.timers_max) {
        return NULL;
    }
    struct timer *timer = &loop->timers[slot];
    return timer->fn != NULL && timer->use == (uint32_t)(handle >> 32) ? timer : NULL;
}

sl_err sl_loop_timer_create(struct sl_loop *loop, sl_loop_timer_fn fn, void *context,
                            sl_loop_timer *out, struct sl_error *why)
{
    for (uint32_t i = 0; i < loop->options.timers_max; i++) {
        struct timer *timer = &loop->timers[i];
        if (timer->fn == NULL) {
            *timer = (struct timer){
                .fn = fn, .context = context, .at_ns = SL_NEVER_NS, .use = timer->use + 1};
            *out = (uint64_t)timer->use << 32 | (i + 1);
            return SL_OK;
        }
    }
    return sl_fail(why, SL_ERR_LIMIT, "event loop is full: %u timers", loop->options.timers_max);
}

void sl_loop_timer_set(struct sl_loop *loop, sl_loop_timer handle, uint64_t at_ns)
{
    struct timer *timer = timer_of(loop, handle);
    if (timer != NULL) {
        timer->at_ns = at_ns;
    }
}

void sl_loop_timer_destroy(struct sl_loop *loop, sl_loop_timer *handle)
{
    struct timer *timer = timer_of(loop, *handle);
    if (timer != NULL) {
        timer->fn = NULL;
    }
    *handle = 0;
}

/* ---------------------------------------------------------------- processes */

static struct source *source_of_process(const struct sl_loop *loop, struct sl_proc_id proc)
{
    for (uint32_t i = SLOT_FIRST; i < loop->source_count; i++) {
        if (loop->sources[i].kind == SOURCE_PROCESS &&
            sl_proc_id_equal(loop->sources[i].proc, proc)) {
            return &loop->sources[i];
        }
    }
    return NULL;
}

sl_err sl_loop_process_watch(struct sl_loop *loop, struct sl_proc_id proc, sl_loop_death_fn fn,
                             void *context, struct sl_error *why)
{
    if (proc.pid == 0) {
        return sl_fail(why, SL_ERR_INVALID, "pid 0 names no process");
    }
    struct source *source = source_of_process(loop, proc);
    if (source != NULL) {
        source->fn.death = fn;
        source->context = context;
        return SL_OK;
    }
    source = loop->process_count < loop->options.processes_max ? source_room(loop) : NULL;
    if (source == NULL) {
        return sl_fail(why, SL_ERR_LIMIT, "event loop is full: %u processes",
                       loop->options.processes_max);
    }
    source->fd = -1;
    sl_err err = sl_proc_open(proc, &source->fd, why);
    if (err != SL_OK && err != SL_ERR_NOT_FOUND) {
        return err;
    }
    if (source->fd >= 0) {
        err =
            source_arm(loop, (uint32_t)(source - loop->sources), EPOLL_CTL_ADD, SL_LOOP_READ, why);
        if (err != SL_OK) {
            (void)close(source->fd);
            return err;
        }
    } else {
        loop->gone_count++;
    }
    source->kind = SOURCE_PROCESS;
    source->fn.death = fn;
    source->context = context;
    source->proc = proc;
    loop->process_count++;
    return SL_OK;
}

void sl_loop_process_unwatch(struct sl_loop *loop, struct sl_proc_id proc)
{
    struct source *source = source_of_process(loop, proc);
    if (source != NULL) {
        source_close(loop, source);
    }
}

static void process_ended(struct sl_loop *loop, struct source *source)
{
    struct source copy = *source;
    source_close(loop, source); /* first: the callback may watch again */
    copy.fn.death(copy.context, copy.proc);
}

/* ---------------------------------------------------------------- signals and other threads */

sl_err sl_loop_signals(struct sl_loop *loop, const int *signals, uint32_t signal_count,
                       sl_loop_signal_fn fn, void *context, struct sl_error *why)
{
    struct source *source = &loop->sources[SLOT_SIGNALS];
    sigset_t set;
    if (source->kind != SOURCE_FREE) {
        return sl_fail(why, SL_ERR_EXISTS, "signals are handled already");
    }
    (void)sigemptyset(&set);
    for (uint32_t i = 0; i < signal_count; i++) {
        if (sigaddset(&set, signals[i]) != 0) {
            return sl_fail(why, SL_ERR_INVALID, "%d is no signal", signals[i]);
        }
    }
    int failed = pthread_sigmask(SIG_BLOCK, &set, &loop->old_mask);
    if (failed != 0) {
        return sl_fail_os(why, failed, "block signals");
    }
    loop->signals_blocked = true;
    source->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (source->fd < 0) {
        return sl_fail_os(why, errno, "signalfd");
    }
    source->kind = SOURCE_SIGNALS;
    loop->signal_fn = fn;
    loop->signal_context = context;
    return source_arm(loop, SLOT_SIGNALS, EPOLL_CTL_ADD, SL_LOOP_READ, why);
}

void sl_loop_on_wake(struct sl_loop *loop, sl_loop_wake_fn fn, void *context)
{
    loop->wake_fn = fn;
    loop->wake_context = context;
}

void sl_loop_wake(struct sl_loop *loop)
{
    uint64_t one = 1;
    int saved = errno; /* also called from signal handlers */
    ssize_t wrote = write(loop->sources[SLOT_WAKE].fd, &one, sizeof(one));
    (void)wrote; /* counter is full: the loop is awake already */
    errno = saved;
}

/* ---------------------------------------------------------------- turning */

void sl_loop_before_wait(struct sl_loop *loop, sl_loop_before_wait_fn fn, void *context)
{
    loop->before_fn = fn;
    loop->before_context = context;
}

void sl_loop_set_wait(struct sl_loop *loop, sl_loop_wait_fn fn, void *context)
{
    loop->wait_fn = fn;
    loop->wait_context = context;
}

int sl_loop_fd(const struct sl_loop *loop)
{
    return loop->epoll_fd;
}

static void signals_read(struct sl_loop *loop, int fd)
{
    struct signalfd_siginfo info;
    while (read(fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        loop->signal_fn(loop->signal_context, (int)info.ssi_signo);
    }
}

static void wake_read(struct sl_loop *loop, int fd)
{
    uint64_t count = 0;
    ssize_t got = read(fd, &count, sizeof(count));
    if (got == (ssize_t)sizeof(count) && loop->wake_fn != NULL) {
        loop->wake_fn(loop->wake_context);
    }
}

static void source_run(struct sl_loop *loop, const struct epoll_event *event)
{
    struct source *source = &loop->sources[(uint32_t)event->data.u64];
    if (source->use != (uint32_t)(event->data.u64 >> 32)) {
        return; /* removed by an earlier callback of this turn */
    }
    uint32_t events = ((event->events & EPOLLIN) != 0 ? SL_LOOP_READ : 0u) |
                      ((event->events & EPOLLOUT) != 0 ? SL_LOOP_WRITE : 0u) |
                      ((event->events & (EPOLLHUP | EPOLLERR)) != 0 ? SL_LOOP_HANGUP : 0u);
    switch (source->kind) {
    case SOURCE_FD:
        source->fn.fd(source->context, source->fd, events);
        break;
    case SOURCE_PROCESS:
        process_ended(loop, source);
        break;
    case SOURCE_SIGNALS:
        signals_read(loop, source->fd);
        break;
    case SOURCE_WAKE:
        wake_read(loop, source->fd);
        break;
    case SOURCE_FREE:
        break;
    }
}

static void loop_run_exits(struct sl_loop *loop)
{
    for (uint32_t i = SLOT_FIRST; i < loop->source_count && loop->gone_count > 0; i++) {
        if (loop->sources[i].kind == SOURCE_PROCESS && loop->sources[i].fd < 0) {
            process_ended(loop, &loop->sources[i]);
        }
    }
}

static uint64_t timers_next_ns(const struct sl_loop *loop)
{
    uint64_t next_ns = SL_NEVER_NS;
    for (uint32_t i = 0; i < loop->options.timers_max; i++) {
        if (loop->timers[i].fn != NULL) {
            next_ns = SL_MIN(next_ns, loop->timers[i].at_ns);
        }
    }
    return next_ns;
}

/* Runs the timers that were due when the wait ended; one that a callback sets to the past waits for
 * the next turn. */
static void timers_run(struct sl_loop *loop, uint64_t due_ns)
{
    uint64_t due[SL_LOOP_EVENTS_MAX];
    uint32_t due_count = 0;
    for (uint32_t i = 0; i < loop->options.timers_max && due_count < SL_LOOP_EVENTS_MAX; i++) {
        if (loop->timers[i].fn != NULL && loop->timers[i].at_ns <= due_ns) {
            due[due_count++] = (uint64_t)loop->timers[i].use << 32 | (i + 1);
        }
    }
    for (uint32_t i = 0; i < due_count; i++) {
        struct timer *timer = timer_of(loop, due[i]);
        if (timer != NULL && timer->at_ns <= due_ns) {
            timer->at_ns = SL_NEVER_NS;
            loop->now_ns = loop_clock(loop);
            timer->fn(timer->context, loop->now_ns);
        }
    }
}

int sl_epoll_wait(int epoll_fd, struct epoll_event *events, int count_max, uint64_t wait_ns)
{
    static atomic_bool
        refused; /* by kernels before 5.11, filters that do not know the call, valgrind */
    const struct timespec limit = {.tv_sec = (time_t)(wait_ns / SL_NS_PER_S),
                                   .tv_nsec = (long)(wait_ns % SL_NS_PER_S)};
    if (wait_ns > 0 && !atomic_load_explicit(&refused, memory_order_relaxed)) {
        int count = epoll_pwait2(epoll_fd, events, count_max, &limit, NULL);
        if (count >= 0 || (errno != ENOSYS && errno != EPERM)) {
            return count;
        }
        atomic_store_explicit(&refused, true, memory_order_relaxed);
    }
    struct pollfd waited = {.fd = epoll_fd, .events = POLLIN};
    int ready = wait_ns > 0 ? ppoll(&waited, 1, &limit, NULL) : 1;
    return ready > 0 ? epoll_wait(epoll_fd, events, count_max, 0) : ready;
}

/* Returns the number of events, or -1 with errno. */
static int loop_wait(struct sl_loop *loop, uint64_t wait_ns,
                     struct epoll_event events[SL_LOOP_EVENTS_MAX])
{
    if (loop->wait_fn == NULL) {
        return sl_epoll_wait(loop->epoll_fd, events, (int)SL_LOOP_EVENTS_MAX, wait_ns);
    }
    return loop->wait_fn(loop->wait_context, wait_ns)
               ? epoll_wait(loop->epoll_fd, events, (int)SL_LOOP_EVENTS_MAX, 0)
               : 0;
}

sl_err sl_loop_turn(struct sl_loop *loop, uint64_t budget_ns, struct sl_error *why)
{
    struct epoll_event events[SL_LOOP_EVENTS_MAX];
    if (loop->stopped) {
        return SL_OK;
    }
    loop->now_ns = loop_clock(loop);
    uint64_t until_ns = sl_deadline_ns(loop->now_ns, budget_ns);
    if (loop->before_fn != NULL) {
        until_ns = SL_MIN(until_ns, loop->before_fn(loop->before_context, loop->now_ns));
    }
    until_ns = loop->gone_count > 0 ? 0 : SL_MIN(until_ns, timers_next_ns(loop));
    uint64_t wait_ns =
        SL_MIN(sl_budget_ns(loop_clock(loop), until_ns), UINT64_C(1000000) * SL_NS_PER_S);
    int count = loop_wait(loop, wait_ns, events);
    if (count < 0 && errno != EINTR) {
        return sl_fail_os(why, errno, "wait of the event loop");
    }
    uint64_t ended_ns = loop_clock(loop);
    loop->now_ns = ended_ns;
    for (int i = 0; i < count; i++) {
        source_run(loop, &events[i]);
    }
    loop_run_exits(loop);
    timers_run(loop, ended_ns);
    return SL_OK;
}

sl_err sl_loop_run(struct sl_loop *loop, struct sl_error *why)
{
    while (!loop->stopped) {
        sl_err err = sl_loop_turn(loop, RUN_WAIT_NS, why);
        if (err != SL_OK) {
            return err;
        }
    }
    return SL_OK;
}

void sl_loop_stop(struct sl_loop *loop)
{
    loop->stopped = true;
}
