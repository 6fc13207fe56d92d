/* runtime/base/sl_loop.h - the event loop of a process: descriptors, timers, deaths of processes,
 * signals, and a wake-up for other threads. Level-triggered epoll; all bounds are set at creation,
 * and nothing is allocated afterwards.
 *
 * One thread (only sl_loop_wake may be called from others). Callbacks run inside sl_loop_turn. They
 * may add, change and remove anything, including themselves; a removed callback is not called
 * again, even if its event was already collected. Handles carry a generation, so a stale one is
 * harmless.
 *
 * One turn: the before-wait hook; the wait; descriptors and deaths (at most SL_LOOP_EVENTS_MAX);
 * timers that were due when the wait ended. A timer that a callback sets to the past runs in the
 * next turn, so no timer can starve descriptors. */
#ifndef SL_LOOP_H
#define SL_LOOP_H

#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_proc.h"

#define SL_LOOP_READ   1u
#define SL_LOOP_WRITE  2u
#define SL_LOOP_HANGUP 4u /* error or hang-up; always reported, even if not requested */

#define SL_LOOP_EVENTS_MAX 64u

struct sl_loop; /* opaque */

struct sl_loop_options {
    uint32_t fds_max;       /* 1..65536: descriptors, without the loop's own */
    uint32_t timers_max;    /* 1..65536 */
    uint32_t processes_max; /* watched processes; each uses a descriptor */
    /* NULL: sl_clock_monotonic_ns. Tests use their own clock and turn with budget 0. */
    uint64_t (*now_ns)(void *context);
    void *now_context;
};
/* Errors: SL_ERR_INVALID (bounds), SL_ERR_NO_MEMORY, SL_ERR_OS. */
sl_err sl_loop_create(const struct sl_loop_options *options, struct sl_loop **out,
                      struct sl_error *why);
/* Not from a callback. Closes what the loop opened; added descriptors remain the caller's. */
void sl_loop_destroy(struct sl_loop **loop);

/* ---- descriptors ---- */
/* events: the SL_LOOP_... bits that are set now. */
typedef void (*sl_loop_fd_fn)(void *context, int fd, uint32_t events);
/* Watches fd for `events`. The caller still owns fd and must remove it before closing it. Errors:
 * SL_ERR_EXISTS (fd is watched already), SL_ERR_LIMIT, SL_ERR_OS. */
sl_err sl_loop_fd_add(struct sl_loop *loop, int fd, uint32_t events, sl_loop_fd_fn fn,
                      void *context, struct sl_error *why);
/* Errors: SL_ERR_NOT_FOUND (fd is not watched), SL_ERR_OS. */
sl_err sl_loop_fd_set(struct sl_loop *loop, int fd, uint32_t events, struct sl_error *why);
/* Does nothing if fd is not watched. */
void sl_loop_fd_remove(struct sl_loop *loop, int fd);

/* ---- timers ---- */
typedef uint64_t sl_loop_timer; /* 0: none */
typedef void (*sl_loop_timer_fn)(void *context, uint64_t now_ns);
/* Creates a timer that is not set. Errors: SL_ERR_LIMIT. */
sl_err sl_loop_timer_create(struct sl_loop *loop, sl_loop_timer_fn fn, void *context,
                            sl_loop_timer *out, struct sl_error *why);
/* Sets or moves the time of the single call of fn; SL_NEVER_NS: no call. */
void sl_loop_timer_set(struct sl_loop *loop, sl_loop_timer timer, uint64_t at_ns);
/* Frees the timer and sets *timer to 0. */
void sl_loop_timer_destroy(struct sl_loop *loop, sl_loop_timer *timer);

/* ---- processes ---- */
typedef void (*sl_loop_death_fn)(void *context, struct sl_proc_id proc);
/* Calls fn once, in a later turn, when exactly this process has died (a zombie is dead), also if it
 * died before the call. That ends the watch. Several watches of one process are one: the last fn
 * counts. Errors: SL_ERR_INVALID (pid 0), SL_ERR_LIMIT, SL_ERR_OS. */
sl_err sl_loop_process_watch(struct sl_loop *loop, struct sl_proc_id proc, sl_loop_death_fn fn,
                             void *context, struct sl_error *why);
void sl_loop_process_unwatch(struct sl_loop *loop, struct sl_proc_id proc);

/* ---- signals ---- */
typedef void (*sl_loop_signal_fn)(void *context, int signal_number);
/* Blocks these signals in this thread (threads made later inherit that) and calls fn for each that
 * arrives. Once per loop; destroy restores the mask. Errors: SL_ERR_EXISTS (called before),
 * SL_ERR_INVALID, SL_ERR_OS. */
sl_err sl_loop_signals(struct sl_loop *loop, const int *signals, uint32_t signal_count,
                       sl_loop_signal_fn fn, void *context, struct sl_error *why);

/* ---- other threads ---- */
typedef void (*sl_loop_wake_fn)(void *context);
/* Sets the function that runs in the loop after one or more calls of sl_loop_wake. */
void sl_loop_on_wake(struct sl_loop *loop, sl_loop_wake_fn fn, void *context);
/* Ends the loop's wait now. From any thread and signal handlers; only before destroy. */
void sl_loop_wake(struct sl_loop *loop);

/* ---- turning ---- */
/* Called before every wait; returns the time by which the wait must end: SL_NEVER_NS for no bound,
 * 0 for "there is still work, only poll". For sources whose descriptor is only a hint (ZeroMQ). */
typedef uint64_t (*sl_loop_before_wait_fn)(void *context, uint64_t now_ns);
void sl_loop_before_wait(struct sl_loop *loop, sl_loop_before_wait_fn fn, void *context);

/* Waits instead of the loop, for at most wait_ns (0 to 1e15). True: the descriptor of sl_loop_fd is
 * readable. It may handle the other events that it waits for. */
typedef bool (*sl_loop_wait_fn)(void *context, uint64_t wait_ns);
/* Makes turns wait with fn, which also watches sl_loop_fd. The process's main source of wake-ups
 * then need not pass through a nested epoll. */
void sl_loop_set_wait(struct sl_loop *loop, sl_loop_wait_fn fn, void *context);
/* A descriptor that is readable when an event of the loop is pending: level-triggered, borrowed. */
int sl_loop_fd(const struct sl_loop *loop);

struct epoll_event;
/* epoll_wait for wait_ns (up to 1e15), with nanosecond precision if the kernel and its system call
 * filters allow it, otherwise by ppoll. Returns the number of events, or -1 with errno. Any
 * thread. */
int sl_epoll_wait(int epoll_fd, struct epoll_event *events, int count_max, uint64_t wait_ns);

/* One turn that waits at most budget_ns. Errors: SL_ERR_OS. */
sl_err sl_loop_turn(struct sl_loop *loop, uint64_t budget_ns, struct sl_error *why);
/* Turns until sl_loop_stop; one wait is at most 1 s. Errors: SL_ERR_OS. */
sl_err sl_loop_run(struct sl_loop *loop, struct sl_error *why);
/* Makes run return after the present turn; further turns do nothing. Also from callbacks. */
void sl_loop_stop(struct sl_loop *loop);

#endif
