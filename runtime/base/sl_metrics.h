/* runtime/base/sl_metrics.h - an actor's counters, gauges, histograms and flight recorder (a ring
 * of trace events), on a shared-memory page that tools read without disturbing the actor.
 *
 * The page is SHM_DIR/metrics.ACTOR. It outlives the process: a restarted actor continues on the
 * same page (counters keep counting, `incarnation` is incremented). One writer process, one writer
 * thread (a second thread may add to counters: they are atomic, relaxed). Readers map it
 * read-only. */
#ifndef SL_METRICS_H
#define SL_METRICS_H

#include "runtime/base/sl_proc.h"

/* Version of the page's layout. A change must keep the previous version readable for
 * sl_metrics_view: actors of both releases run while a node is upgraded. */
#define SL_METRICS_PAGE_VERSION 3u
#define SL_METRIC_NAME_BYTES    48u
#define SL_METRICS_MAX          128u
#define SL_HISTOGRAMS_MAX       16u
/* log-linear: 8 sub-buckets a power of two, 0..2^52: error at most 12.5 % */
#define SL_HISTOGRAM_BUCKETS 400u

struct sl_metrics;             /* opaque */
typedef uint32_t sl_metric;    /* a handle; 0 is a valid one that no reader sees */
typedef uint32_t sl_histogram; /* likewise */

/* The state of a process, for `status`. */
enum sl_health {
    SL_HEALTH_STARTING,
    SL_HEALTH_READY,
    SL_HEALTH_DEGRADED,
    SL_HEALTH_DRAINING,
    SL_HEALTH_STOPPED
};

struct sl_metrics_options {
    const char *path; /* NULL: private memory (tests, simulator) */
    const char *actor;
    struct sl_proc_id self;
    uint32_t trace_events; /* capacity of the flight recorder */
};
/* Opens the page for writing; a page of another format or uid is replaced. Errors: SL_ERR_OS,
 * SL_ERR_NO_SPACE. */
sl_err sl_metrics_open(const struct sl_metrics_options *options, struct sl_metrics **out,
                       struct sl_error *why);
void sl_metrics_close(struct sl_metrics **metrics);

/* Finds or creates the counter or gauge `name` ([a-z0-9_], units last). A full table gives handle
 * 0. metrics may be NULL in all calls. */
sl_metric sl_metric_define(struct sl_metrics *metrics, const char *name);
void sl_metric_add(struct sl_metrics *metrics, sl_metric metric, uint64_t amount);
void sl_metric_set(struct sl_metrics *metrics, sl_metric metric, uint64_t value);
uint64_t sl_metric_get(const struct sl_metrics *metrics, sl_metric metric);
sl_histogram sl_histogram_define(struct sl_metrics *metrics, const char *name);
void sl_histogram_add(struct sl_metrics *metrics, sl_histogram histogram, uint64_t value);

/* A row of an actor's table of metrics: the name, and the offset of the handle in its state. */
struct sl_metric_row {
    const char *name;
    size_t at;
    bool histogram;
};
/* clang-format off */
#define SL_METRIC_ROW(state, member, name)    {name, offsetof(struct state, member), false}
#define SL_HISTOGRAM_ROW(state, member, name) {name, offsetof(struct state, member), true}
/* clang-format on */
void sl_metrics_define(struct sl_metrics *metrics, const struct sl_metric_row *rows, size_t count,
                       void *state);

#define SL_METRICS_REASON_BYTES 240u /* as long as an error's text */
/* Sets the health and a short reason for people ("disk full: 6.0 GiB"). */
void sl_metrics_health(struct sl_metrics *metrics, enum sl_health health, const char *reason);
void sl_metrics_beat(struct sl_metrics *metrics, uint64_t now_ns); /* called by the running loop */
/* The same at the present time, for a long start that has no loop yet. */
void sl_metrics_beat_now(struct sl_metrics *metrics);

/* Adds an event of 64 bytes to the flight recorder. what: a short constant text ("reserve",
 * "copy-out done"), cut to 23 bytes. peer: name of the other actor or "", cut to 15 bytes. value:
 * count, bytes or code. */
void sl_trace_event(struct sl_metrics *metrics, uint64_t now_ns, uint64_t trace_id,
                    const char *what, const char *peer, uint32_t value);

/* Reading, by any process. */
struct sl_metrics_view; /* opaque */
/* Errors: SL_ERR_NOT_FOUND, SL_ERR_FOREIGN, SL_ERR_VERSION, SL_ERR_CORRUPT. */
sl_err sl_metrics_view_open(const char *path, struct sl_metrics_view **out, struct sl_error *why);
void sl_metrics_view_close(struct sl_metrics_view **view);
/* Whether the page, of any version, belongs to this user and its process is dead. Readers ignore
 * such a page if they cannot read it. */
bool sl_metrics_page_is_orphan(const char *path);
/* Calls each() for every page of the directory, sorted by name, until it returns false. Unreadable
 * pages, such as one being created, are skipped. Returns the number of pages read. */
#define SL_METRICS_VIEWS_MAX 1024u
uint32_t sl_metrics_views_each(const char *shm_dir,
                               bool (*each)(void *context, struct sl_metrics_view *view),
                               void *context);
struct sl_metrics_summary {
    char actor[32];
    struct sl_proc_id proc;
    enum sl_health health;
    char reason[SL_METRICS_REASON_BYTES];
    uint64_t incarnation;  /* number of times the page was opened for writing */
    uint64_t started_ns;   /* monotonic */
    uint64_t last_beat_ns; /* monotonic */
    uint32_t metric_count, histogram_count;
};
void sl_metrics_view_summary(const struct sl_metrics_view *view, struct sl_metrics_summary *out);
bool sl_metrics_view_metric(const struct sl_metrics_view *view, uint32_t index,
                            char name[SL_METRIC_NAME_BYTES], uint64_t *value);
struct sl_histogram_summary {
    char name[SL_METRIC_NAME_BYTES];
    uint64_t count, sum, p50, p90, p99, max;
};
bool sl_metrics_view_histogram(const struct sl_metrics_view *view, uint32_t index,
                               struct sl_histogram_summary *out);
/* The same in the caller's buckets: ends ascend, and the last is UINT64_MAX. The count of a page's
 * bucket is added to the first bucket that covers all of it, so a value counts as at most 12.5 %
 * larger than it was. */
bool sl_metrics_view_buckets(const struct sl_metrics_view *view, uint32_t index,
                             const uint64_t *ends, uint32_t end_count,
                             char name[SL_METRIC_NAME_BYTES], uint64_t *buckets, uint64_t *sum);
struct sl_trace_record {
    uint64_t at_ns; /* monotonic */
    uint64_t trace_id;
    uint32_t value;
    char what[24];
    char peer[16];
};
/* Copies the recorder's intact events, oldest first; with trace_id not 0 only those of that trace.
 * Gives *records (free). Torn and overwritten events are skipped. */
sl_err sl_metrics_view_events(const struct sl_metrics_view *view, uint64_t trace_id,
                              struct sl_trace_record **records, size_t *count,
                              struct sl_error *why);

#endif
