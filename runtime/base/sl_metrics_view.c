/* runtime/base/sl_metrics_view.c - reads another process's metrics page, checking every byte. */
#include "runtime/base/metrics_page.h"
#include "runtime/base/sl_guard.h"
#include "runtime/base/sl_text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct sl_metrics_view {
    const struct metrics_page *page;
    uint64_t bytes;
    uint32_t event_count;
    struct sl_guard *guard;
};

static sl_err view_check(const struct metrics_page *page, uint64_t bytes, const char *path,
                         struct sl_error *why)
{
    if (page->magic != METRICS_MAGIC) {
        return sl_fail(why, SL_ERR_FOREIGN, "'%s' is no metrics page", path);
    }
    if (page->version != METRICS_VERSION) {
        return sl_fail(why, SL_ERR_VERSION,
                       "'%.100s' has format %u, this program (sluice %s) knows %u: use the sluice "
                       "package of the node's version",
                       path, page->version, SL_VERSION, METRICS_VERSION);
    }
    if (page->uid != geteuid()) {
        return sl_fail(why, SL_ERR_FOREIGN, "metrics page '%s' belongs to uid %u", path, page->uid);
    }
    uint64_t need = sizeof(*page) + (uint64_t)page->event_count * sizeof(struct metrics_event);
    if (page->page_bytes != sizeof(*page) || page->event_count == 0 || need != bytes ||
        page->file_bytes != bytes) {
        return sl_fail(why, SL_ERR_CORRUPT,
                       "metrics page '%s': sizes do not fit the file's %" PRIu64 " bytes", path,
                       bytes);
    }
    return SL_OK;
}

sl_err sl_metrics_view_open(const char *path, struct sl_metrics_view **out, struct sl_error *why)
{
    SL_AUTO(close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0) {
        return sl_fail_os(why, errno, "metrics page '%s'", path);
    }
    uint64_t bytes = (uint64_t)status.st_size;
    if (bytes < sizeof(struct metrics_page)) {
        return sl_fail(why, SL_ERR_CORRUPT, "metrics page '%s' has only %" PRIu64 " bytes", path,
                       bytes);
    }
    void *at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        return sl_fail_os(why, errno, "map metrics page '%s'", path);
    }
    struct sl_guard *guard = sl_guard_add(at, bytes, false);
    sl_err err = view_check(at, bytes, path, why);
    struct sl_metrics_view *view = err == SL_OK ? calloc(1, sizeof(*view)) : NULL;
    if (view == NULL) {
        sl_guard_remove(&guard);
        (void)munmap(at, bytes);
        return err != SL_OK ? err : sl_fail_os(why, ENOMEM, "metrics view");
    }
    view->page = at;
    view->guard = guard;
    view->bytes = bytes;
    view->event_count = (uint32_t)((bytes - sizeof(*view->page)) / sizeof(struct metrics_event));
    *out = view;
    return SL_OK;
}

bool sl_metrics_page_is_orphan(const char *path)
{
    struct metrics_owner owner;
    SL_AUTO(close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && pread(fd, &owner, sizeof(owner), 0) == (ssize_t)sizeof(owner) &&
           owner.magic == METRICS_MAGIC && owner.uid == geteuid() && !sl_proc_alive(owner.proc);
}

void sl_metrics_view_close(struct sl_metrics_view **view)
{
    if (*view == NULL) {
        return;
    }
    sl_guard_remove(&(*view)->guard);
    (void)munmap((void *)(uintptr_t)(*view)->page, (*view)->bytes);
    free(*view);
    *view = NULL;
}

void sl_metrics_view_summary(const struct sl_metrics_view *view, struct sl_metrics_summary *out)
{
    const struct metrics_page *page = view->page;
    memset(out, 0, sizeof(*out));
    memcpy(out->actor, page->actor, sizeof(out->actor) - 1);
    out->proc = page->proc;
    uint32_t health = atomic_load_explicit(&page->health, memory_order_acquire);
    out->health = health <= SL_HEALTH_STOPPED ? (enum sl_health)health : SL_HEALTH_STOPPED;
    for (int attempt = 0; attempt < 64; attempt++) {
        uint32_t before = atomic_load_explicit(&page->reason_sequence, memory_order_acquire);
        memcpy(out->reason, page->reason, sizeof(out->reason) - 1);
        atomic_thread_fence(memory_order_acquire);
        if ((before & 1) == 0 &&
            before == atomic_load_explicit(&page->reason_sequence, memory_order_relaxed)) {
            break;
        }
    }
    sl_text_clean(out->actor);
    sl_text_clean(out->reason);
    out->incarnation = atomic_load_explicit(&page->incarnation, memory_order_relaxed);
    out->started_ns = atomic_load_explicit(&page->started_ns, memory_order_relaxed);
    out->last_beat_ns = atomic_load_explicit(&page->last_beat_ns, memory_order_relaxed);
    out->metric_count =
        SL_MIN(atomic_load_explicit(&page->metric_count, memory_order_acquire), SL_METRICS_MAX);
    out->histogram_count = SL_MIN(
        atomic_load_explicit(&page->histogram_count, memory_order_acquire), SL_HISTOGRAMS_MAX);
}

bool sl_metrics_view_metric(const struct sl_metrics_view *view, uint32_t index,
                            char name[SL_METRIC_NAME_BYTES], uint64_t *value)
{
    const struct metrics_page *page = view->page;
    if (index >= SL_METRICS_MAX ||
        index >= atomic_load_explicit(&page->metric_count, memory_order_acquire)) {
        return false;
    }
    memcpy(name, page->names[index], SL_METRIC_NAME_BYTES);
    name[SL_METRIC_NAME_BYTES - 1] = '\0';
    sl_text_clean(name);
    *value = atomic_load_explicit(&page->values[index], memory_order_relaxed);
    return true;
}

bool sl_metrics_view_histogram(const struct sl_metrics_view *view, uint32_t index,
                               struct sl_histogram_summary *out)
{
    const struct metrics_page *page = view->page;
    if (index >= SL_HISTOGRAMS_MAX ||
        index >= atomic_load_explicit(&page->histogram_count, memory_order_acquire)) {
        return false;
    }
    const struct metrics_histogram *from = &page->histograms[index];
    uint64_t buckets[SL_HISTOGRAM_BUCKETS];
    uint64_t total = 0;
    for (uint32_t i = 0; i < SL_HISTOGRAM_BUCKETS; i++) {
        buckets[i] = atomic_load_explicit(&from->buckets[i], memory_order_relaxed);
        total += buckets[i];
    }
    memset(out, 0, sizeof(*out));
    memcpy(out->name, from->name, SL_METRIC_NAME_BYTES - 1);
    sl_text_clean(out->name);
    out->count = total;
    out->sum = atomic_load_explicit(&from->sum, memory_order_relaxed);
    out->max = atomic_load_explicit(&from->max, memory_order_relaxed);
    uint64_t seen = 0;
    for (uint32_t i = 0; i < SL_HISTOGRAM_BUCKETS && total > 0; i++) {
        uint64_t top = SL_MIN(metrics_bucket_top(i), out->max);
        uint64_t before = seen;
        seen += buckets[i];
        out->p50 = before * 2 < total && seen * 2 >= total ? top : out->p50;
        out->p90 = before * 10 < total * 9 && seen * 10 >= total * 9 ? top : out->p90;
        out->p99 = before * 100 < total * 99 && seen * 100 >= total * 99 ? top : out->p99;
    }
    return true;
}

bool sl_metrics_view_buckets(const struct sl_metrics_view *view, uint32_t index,
                             const uint64_t *ends, uint32_t end_count,
                             char name[SL_METRIC_NAME_BYTES], uint64_t *buckets, uint64_t *sum)
{
    const struct metrics_page *page = view->page;
    if (index >= SL_HISTOGRAMS_MAX ||
        index >= atomic_load_explicit(&page->histogram_count, memory_order_acquire)) {
        return false;
    }
    const struct metrics_histogram *from = &page->histograms[index];
    memcpy(name, from->name, SL_METRIC_NAME_BYTES);
    name[SL_METRIC_NAME_BYTES - 1] = '\0';
    sl_text_clean(name);
    memset(buckets, 0, end_count * sizeof(*buckets));
    uint32_t end = 0;
    for (uint32_t i = 0; i < SL_HISTOGRAM_BUCKETS; i++) {
        /* The last bucket also counts all larger values. */
        uint64_t top = i + 1 < SL_HISTOGRAM_BUCKETS ? metrics_bucket_top(i) : UINT64_MAX;
        while (end + 1 < end_count && ends[end] < top) {
            end++;
        }
        buckets[end] += atomic_load_explicit(&from->buckets[i], memory_order_relaxed);
    }
    *sum = atomic_load_explicit(&from->sum, memory_order_relaxed);
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

uint32_t sl_metrics_views_each(const char *shm_dir,
                               bool (*each)(void *context, struct sl_metrics_view *view),
                               void *context)
{
    char *names[SL_METRICS_VIEWS_MAX];
    uint32_t count = 0;
    uint32_t opened = 0;
    DIR *directory = opendir(shm_dir);
    if (directory == NULL) {
        return 0;
    }
    for (const struct dirent *entry;
         count < SL_METRICS_VIEWS_MAX && (entry = readdir(directory)) != NULL;) {
        if (strncmp(entry->d_name, "metrics.", 8) == 0) {
            names[count] = strdup(entry->d_name);
            count += names[count] != NULL;
        }
    }
    (void)closedir(directory);
    qsort(names, count, sizeof *names, by_name);
    bool going = true;
    for (uint32_t i = 0; i < count; i++) {
        char path[1400];
        struct sl_metrics_view *view = NULL;
        (void)snprintf(path, sizeof path, "%s/%s", shm_dir, names[i]);
        free(names[i]);
        if (going && sl_metrics_view_open(path, &view, NULL) == SL_OK) {
            opened++;
            going = each(context, view);
            sl_metrics_view_close(&view);
        }
    }
    return opened;
}

/* False: the event of this number is torn, overwritten or being written. */
static bool event_read(const struct metrics_event *event, uint64_t number,
                       struct sl_trace_record *out)
{
    uint32_t before = atomic_load_explicit(&event->sequence, memory_order_acquire);
    if (before == 0 || before != (uint32_t)number + 1) {
        return false;
    }
    memset(out, 0, sizeof(*out));
    out->at_ns = event->at_ns;
    out->trace_id = event->trace_id;
    out->value = event->value;
    memcpy(out->what, event->what, sizeof(event->what) - 1);
    memcpy(out->peer, event->peer, sizeof(event->peer) - 1);
    sl_text_clean(out->what);
    sl_text_clean(out->peer);
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&event->sequence, memory_order_relaxed) == before;
}

sl_err sl_metrics_view_events(const struct sl_metrics_view *view, uint64_t trace_id,
                              struct sl_trace_record **records, size_t *count, struct sl_error *why)
{
    const struct metrics_event *events = metrics_events(view->page);
    uint64_t next = atomic_load_explicit(&view->page->event_next, memory_order_relaxed);
    uint64_t first = next > view->event_count ? next - view->event_count : 0;
    size_t room = (size_t)SL_MIN(next - first, (uint64_t)view->event_count);
    struct sl_trace_record *list = calloc(room + 1, sizeof(*list));
    if (list == NULL) {
        return sl_fail_os(why, ENOMEM, "%zu trace events", room);
    }
    size_t used = 0;
    for (uint64_t at = first; at < next && used < room; at++) {
        if (event_read(&events[at % view->event_count], at, &list[used]) &&
            (trace_id == 0 || list[used].trace_id == trace_id)) {
            used++;
        }
    }
    *records = list;
    *count = used;
    return SL_OK;
}
