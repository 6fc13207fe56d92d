/* runtime/base/metrics_page.h - layout of a metrics page, written by sl_metrics.c and read by
 * sl_metrics_view.c. */
#ifndef SL_METRICS_PAGE_H
#define SL_METRICS_PAGE_H

#include "runtime/base/sl_metrics.h"

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>

#define METRICS_MAGIC   UINT64_C(0x65676170656c7573) /* "sulepage" in memory */
#define METRICS_VERSION SL_METRICS_PAGE_VERSION

struct metrics_histogram {
    char name[SL_METRIC_NAME_BYTES];
    _Atomic uint64_t count, sum, max;
    _Atomic uint64_t buckets[SL_HISTOGRAM_BUCKETS];
};

/* sequence: 0 while the event is written, or if it never was; otherwise the low half of the event's
 * number, plus 1. Readers know the number they look for; an event whose sequence wraps to 0 (one in
 * 2^32) counts as torn. */
struct metrics_event {
    _Atomic uint32_t sequence;
    uint32_t value;
    uint64_t at_ns;
    uint64_t trace_id;
    char what[24];
    char peer[16];
};
static_assert(sizeof(struct metrics_event) == 64, "one cache line an event");

struct metrics_page {
    uint64_t magic;
    uint32_t version;
    uint32_t uid;
    uint64_t file_bytes;
    uint32_t event_count; /* capacity of the ring */
    uint32_t page_bytes;  /* sizeof(struct metrics_page): where the ring starts */
    char actor[32];
    struct sl_proc_id proc;
    _Atomic uint64_t incarnation;
    _Atomic uint64_t started_ns;
    _Atomic uint64_t last_beat_ns;
    _Atomic uint32_t health;
    _Atomic uint32_t reason_sequence; /* odd while the reason is written */
    char reason[SL_METRICS_REASON_BYTES];
    _Atomic uint32_t metric_count;    /* names below it are complete (release) */
    _Atomic uint32_t histogram_count; /* likewise */
    _Atomic uint64_t event_next;      /* number of the next event */
    char names[SL_METRICS_MAX][SL_METRIC_NAME_BYTES];
    _Atomic uint64_t values[SL_METRICS_MAX];
    struct metrics_histogram histograms[SL_HISTOGRAMS_MAX];
};
/* Readers of one release read pages of another: a change of sizes needs a new version. */
static_assert(sizeof(struct metrics_page) == 59888 && SL_METRICS_PAGE_VERSION == 3u,
              "layout of version 3");
/* The start of a page of any version: shows its owner even if the rest cannot be read. */
struct metrics_owner {
    uint64_t magic;
    uint32_t version;
    uint32_t uid;
    unsigned char of_the_version[16];
    char actor[32];
    struct sl_proc_id proc;
};
static_assert(offsetof(struct metrics_page, uid) == offsetof(struct metrics_owner, uid) &&
                  offsetof(struct metrics_page, proc) == offsetof(struct metrics_owner, proc) &&
                  sizeof(struct metrics_owner) == 80,
              "pages begin with their owner");

static inline struct metrics_event *metrics_events(const struct metrics_page *page)
{
    return (struct metrics_event *)((unsigned char *)(uintptr_t)page + sizeof(*page));
}

/* Log-linear: values below 8 have a bucket each, larger ones 8 sub-buckets per power of two. */
static inline uint32_t metrics_bucket_of(uint64_t value)
{
    if (value < 8) {
        return (uint32_t)value;
    }
    uint32_t power = 63u - (uint32_t)__builtin_clzll(value);
    uint32_t bucket = (power - 2) * 8 + (uint32_t)(value >> (power - 3) & 7);
    return bucket < SL_HISTOGRAM_BUCKETS ? bucket : SL_HISTOGRAM_BUCKETS - 1;
}

/* Largest value of a bucket. */
static inline uint64_t metrics_bucket_top(uint32_t bucket)
{
    if (bucket < 8) {
        return bucket;
    }
    uint32_t power = bucket / 8 + 2;
    return ((UINT64_C(8) + bucket % 8 + 1) << (power - 3)) - 1;
}

#endif
