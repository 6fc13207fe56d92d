/* runtime/base/sl_metrics.h - what an actor counts and remembers, on a shared-memory page that
 * tools read without disturbing it: counters, gauges, histograms, and the flight recorder (a ring
 * of trace events).
 *
 * The page is SHM_DIR/metrics.ACTOR; it outlives the process: a restarted actor goes on with the
 * same page (counters keep counting, `incarnation` goes up). One writer process, one writer thread
 * (a second thread may add to counters: they are atomic, relaxed). Readers map it read-only. */
#ifndef SL_METRICS_H
#define SL_METRICS_H

#include "runtime/base/sl_proc.h"

/* Of a page's layout. Who raises it keeps the one before readable for readers (sl_metrics_view):
 * while a node is upgraded, actors of both run. */
#define SL_METRICS_PAGE_VERSION 3u
#define SL_METRIC_NAME_BYTES    48u
#define SL_METRICS_MAX          128u
#define SL_HISTOGRAMS_MAX       16u
/* log-linear: 8 sub-buckets a power of two, 0..2^48: error at most 12.5 % */
#define SL_HISTOGRAM_BUCKETS 400u

struct sl_metrics;             /* opaque */
typedef uint32_t sl_metric;    /* a handle; 0 is a valid sink that nobody reads */
typedef uint32_t sl_histogram; /* likewise */

/* What a process is, for `status`. */
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
/* Errors: SL_ERR_FOREIGN (another format or uid: the old page is replaced, this is only for
 * reading), SL_ERR_OS, SL_ERR_NO_SPACE. */
sl_err sl_metrics_open(const struct sl_metrics_options *options, struct sl_metrics **out,
                       struct sl_error *why);
void sl_metrics_close(struct sl_metrics **metrics);

/* Finds or makes the counter/gauge `name` ([a-z0-9_], units last). A full table gives handle 0.
 * metrics may be NULL everywhere. */
sl_metric sl_metric_define(struct sl_metrics *metrics, const char *name);
void sl_metric_add(struct sl_metrics *metrics, sl_metric metric, uint64_t amount);
void sl_metric_set(struct sl_metrics *metrics, sl_metric metric, uint64_t value);
uint64_t sl_metric_get(const struct sl_metrics *metrics, sl_metric metric);
sl_histogram sl_histogram_define(struct sl_metrics *metrics, const char *name);
void sl_histogram_add(struct sl_metrics *metrics, sl_histogram histogram, uint64_t value);

/* A row of an actor's table of metrics: its name, and where in the actor's state its handle is. */
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
/* Health and one short reason that people read ("disk full: 6.0 GiB"). */
void sl_metrics_health(struct sl_metrics *metrics, enum sl_health health, const char *reason);
void sl_metrics_beat(struct sl_metrics *metrics, uint64_t now_ns); /* the loop still turns */
/* The same at this moment, for a start that takes long and has no loop yet: it goes on. */
void sl_metrics_beat_now(struct sl_metrics *metrics);

/* Flight recorder: 64 bytes an event. what: a short constant text ("reserve", "copy-out done"), at
 * most 23 bytes are kept. peer: other actor's name or "" (15 bytes are kept). value: count, bytes
 * or code. */
void sl_trace_event(struct sl_metrics *metrics, uint64_t now_ns, uint64_t trace_id,
                    const char *what, const char *peer, uint32_t value);

/* Reading, by any process. */
struct sl_metrics_view; /* opaque */
/* Errors: SL_ERR_NOT_FOUND, SL_ERR_FOREIGN, SL_ERR_VERSION, SL_ERR_CORRUPT. */
sl_err sl_metrics_view_open(const char *path, struct sl_metrics_view **out, struct sl_error *why);
void sl_metrics_view_close(struct sl_metrics_view **view);
/* Whether the page, of any version, is this user's and its process is gone: what cannot be read of
 * it is left out, and stands in nobody's way. */
bool sl_metrics_page_is_left(const char *path);
/* Calls each() for every page of the directory, by their names, as long as it gives true. Pages
 * that cannot be read, as one that is being made, are left out. Gives how many were read. */
#define SL_METRICS_VIEWS_MAX 1024u
uint32_t sl_metrics_views_each(const char *shm_dir,
                               bool (*each)(void *context, struct sl_metrics_view *view),
                               void *context);
struct sl_metrics_summary {
    char actor[32];
    struct sl_proc_id proc;
    enum sl_health health;
    char reason[SL_METRICS_REASON_BYTES];
    uint64_t incarnation;  /* how often the page was opened for writing */
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
/* The same in buckets of the caller's: ends ascend, and the last is UINT64_MAX. What a bucket of
 * the page holds goes to the first of the caller's that holds all of it, so a value counts as at
 * most 12.5 % more than it was. */
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
/* Copies the recorder's intact events, oldest first, those of trace_id alone when it is not 0.
 * Gives *records (free). Torn or overwritten events are left out. */
sl_err sl_metrics_view_events(const struct sl_metrics_view *view, uint64_t trace_id,
                              struct sl_trace_record **records, size_t *count,
                              struct sl_error *why);

#endif
