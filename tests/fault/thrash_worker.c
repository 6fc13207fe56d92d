/* tests/fault/thrash_worker.c - code of all workers: counting, measuring waits, attaching. */
#include "tests/fault/thrash.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ATTACH_PAUSE_NS  (50 * SL_NS_PER_MS)
#define SLOW_NS          SL_NS_PER_S /* longer calls are logged */
#define EVENTS_NOTED_MAX 10000u
#define PUT_HEAD_START   20u /* 1 / PUT_HEAD_START of the budget may be used at once */

void thrash_sleep_ns(uint64_t ns)
{
    struct timespec left = {.tv_sec = (time_t)(ns / SL_NS_PER_S),
                            .tv_nsec = (long)(ns % SL_NS_PER_S)};
    while (nanosleep(&left, &left) != 0) {
    }
}

void thrash_count(struct thrash *thrash, enum thrash_counter counter, uint64_t amount)
{
    atomic_fetch_add_explicit(&thrash->self->counters[counter], amount, memory_order_relaxed);
}

void thrash_event(const struct thrash_shared *shared, const char *format, ...)
{
    char text[THRASH_NOTE_BYTES];
    double at_s = (double)(sl_clock_monotonic_ns() - shared->started_ns) / 1e9;
    int at = snprintf(text, sizeof text, "%8.3f %6d ", at_s, getpid());
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(text + at, sizeof text - (size_t)at - 1, format, arguments);
    va_end(arguments);
    size_t length = SL_MIN((size_t)at + (size_t)SL_MAX(more, 0), sizeof text - 2);
    text[length++] = '\n';
    SL_AUTO(close)
    int fd = open(shared->events_path, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0 && write(fd, text, length) < 0) {
        (void)fputs("thrash: an event could not be written\n", stderr);
    }
}

void thrash_note(struct thrash_shared *shared, const char *format, ...)
{
    char text[THRASH_NOTE_BYTES];
    int at = snprintf(text, sizeof text,
                      "%.3f s: ", (double)(sl_clock_monotonic_ns() - shared->started_ns) / 1e9);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text + at, sizeof text - (size_t)at, format, arguments);
    va_end(arguments);
    uint64_t number = atomic_fetch_add_explicit(&shared->note_count, 1, memory_order_relaxed);
    if (number < THRASH_NOTES) {
        memcpy(shared->notes[number], text, sizeof text);
        (void)fprintf(stderr, "thrash: %s\n", text);
    }
    if (number < EVENTS_NOTED_MAX) {
        thrash_event(shared, "note: %s", text);
    }
}

struct thrash_call thrash_call_begin(struct thrash *thrash, const char *name)
{
    struct thrash_worker *self = thrash->self;
    struct thrash_call call = {
        .name = name,
        .stopped_ns = atomic_load_explicit(&self->stopped_ns, memory_order_acquire),
        .began_ns = sl_clock_monotonic_ns(),
    };
    self->call_name = name;
    atomic_store_explicit(&self->call_ns, call.began_ns, memory_order_release);
    return call;
}

uint64_t thrash_call_end(struct thrash *thrash, struct thrash_call call, sl_err code,
                         uint64_t allowed_ns)
{
    struct thrash_worker *self = thrash->self;
    uint64_t wait_ns = sl_clock_monotonic_ns() - call.began_ns;
    /* The driver counts a stop before it lets us continue. */
    uint64_t stopped_ns =
        atomic_load_explicit(&self->stopped_ns, memory_order_acquire) - call.stopped_ns;
    wait_ns -= SL_MIN(wait_ns, stopped_ns);
    atomic_store_explicit(&self->call_ns, 0, memory_order_release);
    ctl_histogram_add(&self->waits, wait_ns);
    thrash_count(thrash, THRASH_calls, 1);
    if (code != SL_OK) {
        atomic_fetch_add_explicit(&self->errors[code], 1, memory_order_relaxed);
        if (sl_err_class(code) != SL_CLASS_ANSWER) {
            thrash_count(thrash, THRASH_failed_calls, 1);
            thrash_event(thrash->shared, "%s failed after %.3f s: %s", call.name,
                         (double)wait_ns / 1e9, sl_err_name(code));
        }
    }
    if (wait_ns > SLOW_NS && sl_err_class(code) <= SL_CLASS_ANSWER) {
        thrash_event(thrash->shared, "%s took %.3f s", call.name, (double)wait_ns / 1e9);
    }
    if (wait_ns > atomic_load_explicit(&self->longest_ns, memory_order_relaxed)) {
        atomic_store_explicit(&self->longest_ns, wait_ns, memory_order_relaxed);
        (void)snprintf(self->longest_name, sizeof self->longest_name, "%s", call.name);
    }
    if (wait_ns > allowed_ns + thrash->shared->margin_ns) {
        thrash_count(thrash, THRASH_late, 1);
        thrash_note(thrash->shared, "late: %s took %.3f s of %.3f s, code %s", call.name,
                    (double)wait_ns / 1e9, (double)allowed_ns / 1e9, sl_err_name(code));
    }
    return wait_ns;
}

bool thrash_attach(struct thrash *thrash)
{
    const struct thrash_shared *shared = thrash->shared;
    while (!atomic_load_explicit(&shared->stop, memory_order_relaxed)) {
        const struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                                  .timeout_ns = shared->timeout_ns,
                                                  .settings = thrash->settings};
        struct thrash_call call = thrash_call_begin(thrash, "attach");
        sl_err err = sl_client_open(&options, &thrash->client, NULL);
        (void)thrash_call_end(thrash, call, err, shared->timeout_ns);
        if (err == SL_OK) {
            return true;
        }
        thrash_sleep_ns(ATTACH_PAUSE_NS);
    }
    return false;
}

bool thrash_may_put(struct thrash *thrash, uint64_t bytes)
{
    struct thrash_shared *shared = thrash->shared;
    if (shared->put_budget_bytes != 0) {
        uint64_t now_ns = sl_clock_monotonic_ns();
        uint64_t full_ns = SL_MAX(shared->seconds, 1) * SL_NS_PER_S;
        uint64_t gone_ns = SL_MIN(now_ns - shared->started_ns, full_ns);
        double share = (double)gone_ns / (double)full_ns + 1.0 / PUT_HEAD_START;
        uint64_t allowed = (uint64_t)((double)shared->put_budget_bytes * SL_MIN(share, 1.0));
        if (atomic_load_explicit(&shared->clock, memory_order_relaxed) + bytes > allowed) {
            return false;
        }
    }
    atomic_fetch_add_explicit(&shared->clock, bytes, memory_order_relaxed);
    return true;
}
