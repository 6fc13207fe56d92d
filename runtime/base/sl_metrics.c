/* runtime/base/sl_metrics.c - the writer of a metrics page. */
#include "runtime/base/metrics_page.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_guard.h"
#include "runtime/base/sl_limits.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct sl_metrics {
    struct metrics_page *page;
    uint64_t bytes;
    uint32_t event_count;
    struct sl_guard *guard;
};

/* Whether an existing page of an earlier process of this actor can be continued. */
static bool page_fits(const struct metrics_page *page, uint64_t bytes,
                      const struct sl_metrics_options *options)
{
    return page->magic == METRICS_MAGIC && page->version == METRICS_VERSION &&
           page->uid == geteuid() && page->file_bytes == bytes &&
           page->page_bytes == sizeof(*page) && page->event_count == options->trace_events &&
           page->metric_count <= SL_METRICS_MAX && page->histogram_count <= SL_HISTOGRAMS_MAX &&
           memchr(page->actor, '\0', sizeof(page->actor)) != NULL &&
           strcmp(page->actor, options->actor) == 0;
}

/* Replaces a page of another size by a new file: its readers keep the old mapping. */
static sl_err page_file_open(const char *path, uint64_t bytes, int *out, struct sl_error *why)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        SL_AUTO(close) int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        struct stat status;
        if (fd < 0 || fstat(fd, &status) != 0) {
            return sl_fail_os(why, errno, "metrics page '%s'", path);
        }
        if (status.st_size != 0 && (uint64_t)status.st_size != bytes) {
            if (unlink(path) != 0) {
                return sl_fail_os(why, errno, "replace metrics page '%s'", path);
            }
            continue;
        }
        /* Allocated now: a full file system must not cause SIGBUS later. */
        int failed = sl_file_size_allowed(bytes) ? posix_fallocate(fd, 0, (off_t)bytes) : EFBIG;
        if (failed != 0) {
            return sl_fail_os(why, failed, "metrics page '%s' of %" PRIu64 " bytes", path, bytes);
        }
        *out = fd;
        fd = -1; /* NOLINT(clang-analyzer-deadcode.DeadStores): read by its clean-up */
        return SL_OK;
    }
    return sl_fail(why, SL_ERR_BUSY, "metrics page '%s' changes while it is being opened", path);
}

sl_err sl_metrics_open(const struct sl_metrics_options *options, struct sl_metrics **out,
                       struct sl_error *why)
{
    if (options->trace_events == 0 || options->actor == NULL || strlen(options->actor) > 31) {
        return sl_fail(why, SL_ERR_INVALID,
                       "a metrics page needs an actor's name (31 bytes) and room for events");
    }
    uint64_t bytes = sizeof(struct metrics_page) +
                     (uint64_t)options->trace_events * sizeof(struct metrics_event);
    struct sl_metrics *metrics = calloc(1, sizeof(*metrics));
    if (metrics == NULL) {
        return sl_fail_os(why, ENOMEM, "metrics");
    }
    SL_AUTO(close) int fd = -1;
    if (options->path != NULL) {
        sl_err err = page_file_open(options->path, bytes, &fd, why);
        if (err != SL_OK) {
            free(metrics);
            return err;
        }
    }
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
    if (at == MAP_FAILED) {
        sl_err err = sl_fail_os(why, errno, "map metrics page");
        free(metrics);
        return err;
    }
    struct metrics_page *page = at;
    metrics->page = page;
    metrics->guard = fd >= 0 ? sl_guard_add(at, bytes, true) : NULL;
    metrics->bytes = bytes;
    metrics->event_count = options->trace_events;
    if (!page_fits(page, bytes, options)) {
        /* Events of another format must not be taken for ours; a new file is all zeros anyway. */
        memset(page, 0, page->magic != 0 ? bytes : sizeof(*page));
        page->version = METRICS_VERSION;
        page->uid = geteuid();
        page->file_bytes = bytes;
        page->page_bytes = sizeof(*page);
        page->event_count = options->trace_events;
        (void)snprintf(page->actor, sizeof(page->actor), "%s", options->actor);
    }
    /* A writer that died while it wrote a reason left it odd, which would swap odd and even. */
    uint32_t sequence = atomic_load_explicit(&page->reason_sequence, memory_order_relaxed);
    atomic_store_explicit(&page->reason_sequence, sequence + (sequence & 1), memory_order_relaxed);
    page->proc = options->self;
    atomic_store_explicit(&page->health, SL_HEALTH_STARTING, memory_order_relaxed);
    atomic_store_explicit(&page->started_ns, sl_clock_monotonic_ns(), memory_order_relaxed);
    atomic_store_explicit(&page->last_beat_ns, sl_clock_monotonic_ns(), memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&page->incarnation, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* a reader that sees the magic sees a whole page */
    page->magic = METRICS_MAGIC;
    *out = metrics;
    return SL_OK;
}

void sl_metrics_close(struct sl_metrics **metrics)
{
    if (*metrics == NULL) {
        return;
    }
    sl_guard_remove(&(*metrics)->guard);
    (void)munmap((*metrics)->page, (*metrics)->bytes);
    free(*metrics);
    *metrics = NULL;
}

/* Finds the name in a table of entries of stride bytes, or adds it. Returns its handle; 0: the
 * table is full. */
static uint32_t name_define(char *names, size_t stride, uint32_t most, _Atomic uint32_t *counter,
                            const char *name)
{
    uint32_t count = atomic_load_explicit(counter, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        if (strncmp(names + i * stride, name, SL_METRIC_NAME_BYTES - 1) == 0) {
            return i + 1;
        }
    }
    if (count == most) {
        return 0;
    }
    (void)snprintf(names + count * stride, SL_METRIC_NAME_BYTES, "%s", name);
    atomic_store_explicit(counter, count + 1,
                          memory_order_release); /* pairs with the views' acquire */
    return count + 1;
}

sl_metric sl_metric_define(struct sl_metrics *metrics, const char *name)
{
    struct metrics_page *page = metrics != NULL ? metrics->page : NULL;
    return page == NULL ? 0
                        : name_define((char *)page->names, sizeof(page->names[0]), SL_METRICS_MAX,
                                      &page->metric_count, name);
}

void sl_metric_add(struct sl_metrics *metrics, sl_metric metric, uint64_t amount)
{
    if (metrics != NULL && metric != 0) {
        (void)atomic_fetch_add_explicit(&metrics->page->values[metric - 1], amount,
                                        memory_order_relaxed);
    }
}

void sl_metric_set(struct sl_metrics *metrics, sl_metric metric, uint64_t value)
{
    if (metrics != NULL && metric != 0) {
        atomic_store_explicit(&metrics->page->values[metric - 1], value, memory_order_relaxed);
    }
}

uint64_t sl_metric_get(const struct sl_metrics *metrics, sl_metric metric)
{
    return metrics != NULL && metric != 0
               ? atomic_load_explicit(&metrics->page->values[metric - 1], memory_order_relaxed)
               : 0;
}

sl_histogram sl_histogram_define(struct sl_metrics *metrics, const char *name)
{
    struct metrics_page *page = metrics != NULL ? metrics->page : NULL;
    return page == NULL ? 0
                        : name_define((char *)page->histograms, sizeof(page->histograms[0]),
                                      SL_HISTOGRAMS_MAX, &page->histogram_count, name);
}

void sl_metrics_define(struct sl_metrics *metrics, const struct sl_metric_row *rows, size_t count,
                       void *state)
{
    static_assert(sizeof(sl_metric) == sizeof(sl_histogram), "a handle is a handle");
    for (size_t i = 0; i < count; i++) {
        uint32_t handle = rows[i].histogram ? sl_histogram_define(metrics, rows[i].name)
                                            : sl_metric_define(metrics, rows[i].name);
        memcpy((char *)state + rows[i].at, &handle, sizeof(handle));
    }
}

void sl_histogram_add(struct sl_metrics *metrics, sl_histogram histogram, uint64_t value)
{
    if (metrics == NULL || histogram == 0) {
        return;
    }
    struct metrics_histogram *at = &metrics->page->histograms[histogram - 1];
    (void)atomic_fetch_add_explicit(&at->buckets[metrics_bucket_of(value)], 1,
                                    memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&at->count, 1, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&at->sum, value, memory_order_relaxed);
    if (value > atomic_load_explicit(&at->max, memory_order_relaxed)) {
        atomic_store_explicit(&at->max, value, memory_order_relaxed);
    }
}

void sl_metrics_health(struct sl_metrics *metrics, enum sl_health health, const char *reason)
{
    if (metrics == NULL) {
        return;
    }
    struct metrics_page *page = metrics->page;
    (void)atomic_fetch_add_explicit(&page->reason_sequence, 1, memory_order_acquire);
    (void)snprintf(page->reason, sizeof(page->reason), "%s", reason != NULL ? reason : "");
    (void)atomic_fetch_add_explicit(&page->reason_sequence, 1, memory_order_release);
    atomic_store_explicit(&page->health, health, memory_order_release);
}

void sl_metrics_beat(struct sl_metrics *metrics, uint64_t now_ns)
{
    if (metrics != NULL) {
        atomic_store_explicit(&metrics->page->last_beat_ns, now_ns, memory_order_relaxed);
    }
}

void sl_metrics_beat_now(struct sl_metrics *metrics)
{
    sl_metrics_beat(metrics, sl_clock_monotonic_ns());
}

static void event_text(char *to, size_t room, const char *from)
{
    size_t i = 0;
    for (; from != NULL && i + 1 < room && from[i] != '\0'; i++) {
        to[i] = from[i];
    }
    memset(to + i, 0, room - i);
}

void sl_trace_event(struct sl_metrics *metrics, uint64_t now_ns, uint64_t trace_id,
                    const char *what, const char *peer, uint32_t value)
{
    if (metrics == NULL) {
        return;
    }
    struct metrics_page *page = metrics->page;
    uint64_t number = atomic_fetch_add_explicit(&page->event_next, 1, memory_order_relaxed);
    struct metrics_event *event = &metrics_events(page)[number % metrics->event_count];
    atomic_store_explicit(&event->sequence, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* the 0 is visible before any new byte */
    event->at_ns = now_ns;
    event->trace_id = trace_id;
    event->value = value;
    event_text(event->what, sizeof(event->what), what);
    event_text(event->peer, sizeof(event->peer), peer);
    atomic_store_explicit(&event->sequence, (uint32_t)number + 1,
                          memory_order_release); /* pairs with the view's acquire */
}
