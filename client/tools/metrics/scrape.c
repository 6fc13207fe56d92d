/* client/tools/metrics/scrape.c - reads all metrics pages and the clients' counts, and gives a
 * sample for each row of the table. */
#include "client/tools/metrics/scrape.h"
#include "ipc/shm/sl_counts.h"
#include "ipc/shm/sl_labels.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_metrics.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGES_MAX   256u /* of actors; a node has about twenty */
#define VALUE_BYTES 48u

struct histogram {
    char name[SL_METRIC_NAME_BYTES];
    uint64_t buckets[SL_COUNTS_BUCKETS]; /* not cumulative */
    uint64_t sum;
};
/* A copy of an actor's page. */
struct page {
    struct sl_metrics_summary summary;
    bool up;
    uint64_t resident_bytes, cpu_ns;
    uint64_t unknown_count;
    char names[SL_METRICS_MAX][SL_METRIC_NAME_BYTES];
    uint64_t values[SL_METRICS_MAX];
    struct histogram histograms[SL_HISTOGRAMS_MAX];
};
struct scrape {
    const struct scrape_sink *sink;
    struct page *pages; /* PAGES_MAX */
    uint32_t page_count;
    bool counted; /* counts is filled */
    struct sl_counts_sum counts;
    struct sl_label_sum *labels; /* SL_LABELS_MAX */
    uint32_t label_count;
    uint64_t now_ns;
    const struct metric_fact *family; /* its first row; begun: passed to the sink */
    bool begun;
};

/* Upper bounds of the buckets of ages, as sl_counts_bucket_ends_ns for times. */
static const uint64_t age_ends_ns[SL_COUNTS_BUCKETS] = {SL_NS_PER_S / 10,
                                                        SL_NS_PER_S / 5,
                                                        SL_NS_PER_S / 2,
                                                        1 * SL_NS_PER_S,
                                                        2 * SL_NS_PER_S,
                                                        5 * SL_NS_PER_S,
                                                        10 * SL_NS_PER_S,
                                                        20 * SL_NS_PER_S,
                                                        50 * SL_NS_PER_S,
                                                        100 * SL_NS_PER_S,
                                                        200 * SL_NS_PER_S,
                                                        500 * SL_NS_PER_S,
                                                        1000 * SL_NS_PER_S,
                                                        2000 * SL_NS_PER_S,
                                                        5000 * SL_NS_PER_S,
                                                        10000 * SL_NS_PER_S,
                                                        20000 * SL_NS_PER_S,
                                                        50000 * SL_NS_PER_S,
                                                        100000 * SL_NS_PER_S,
                                                        200000 * SL_NS_PER_S,
                                                        500000 * SL_NS_PER_S,
                                                        1000000 * SL_NS_PER_S,
                                                        UINT64_MAX};
static const uint64_t *ends_of(const struct metric_fact *fact)
{
    return fact != NULL && strcmp(fact->unit, "age") == 0 ? age_ends_ns : sl_counts_bucket_ends_ns;
}

/* ---- reading ---- */

/* Whether the kind is the actor's name, with or without its number, as tierer for tierer.0. */
static bool kind_fits(const char *kind, const char *actor)
{
    size_t length = strlen(kind);
    return strcmp(kind, "actor") == 0 ||
           (strncmp(actor, kind, length) == 0 && (actor[length] == '\0' || actor[length] == '.'));
}

static bool is_histogram(const struct metric_fact *fact)
{
    return strcmp(fact->type, "histogram") == 0;
}

/* The row of a metric; NULL: the table has none. */
static const struct metric_fact *fact_of(const char *actor, const char *name, bool histogram)
{
    for (size_t i = 0; i < metric_fact_count; i++) {
        const struct metric_fact *fact = &metric_facts[i];
        if (kind_fits(fact->kind, actor) && is_histogram(fact) == histogram &&
            strcmp(fact->name, name) == 0) {
            return fact;
        }
    }
    return NULL;
}

static bool proc_read(uint32_t pid, const char *what, char *out, size_t room)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%" PRIu32 "/%s", pid, what);
    SL_AUTO(close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, out, room - 1) : -1;
    out[got > 0 ? got : 0] = '\0';
    return got > 0;
}

static void page_process(struct page *page)
{
    char text[1024];
    uint64_t pages = 0;
    uint64_t user = 0;
    uint64_t kernel = 0;
    page->up = page->summary.proc.pid != 0 && sl_proc_alive(page->summary.proc);
    if (!page->up) {
        return;
    }
    if (proc_read(page->summary.proc.pid, "statm", text, sizeof text) &&
        sscanf(text, "%*u %" SCNu64, &pages) == 1) {
        page->resident_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    }
    const char *end = proc_read(page->summary.proc.pid, "stat", text, sizeof text)
                          ? strrchr(text, ')') /* a name may have blanks */
                          : NULL;
    if (end != NULL &&
        sscanf(end, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64, &user,
               &kernel) == 2) {
        page->cpu_ns = (user + kernel) * (SL_NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK));
    }
}

static bool page_take(void *context, struct sl_metrics_view *view)
{
    struct scrape *scrape = context;
    struct page *page = &scrape->pages[scrape->page_count];
    sl_metrics_view_summary(view, &page->summary);
    if (strncmp(page->summary.actor, "client.", 7) == 0) {
        return true;
    }
    const char *actor = page->summary.actor;
    for (uint32_t i = 0; i < page->summary.metric_count; i++) {
        if (sl_metrics_view_metric(view, i, page->names[i], &page->values[i])) {
            page->unknown_count += fact_of(actor, page->names[i], false) == NULL;
        }
    }
    for (uint32_t i = 0; i < page->summary.histogram_count; i++) {
        struct histogram *histogram = &page->histograms[i];
        struct sl_histogram_summary named;
        const struct metric_fact *fact =
            sl_metrics_view_histogram(view, i, &named) ? fact_of(actor, named.name, true) : NULL;
        if (sl_metrics_view_buckets(view, i, ends_of(fact), SL_COUNTS_BUCKETS, histogram->name,
                                    histogram->buckets, &histogram->sum)) {
            page->unknown_count += fact == NULL;
        }
    }
    page_process(page);
    scrape->page_count++;
    return scrape->page_count < PAGES_MAX;
}

/* ---- samples ---- */

/* Appends the row's own labels to those that every series of its kind has. buffer holds their
 * texts. */
static void labels_fill(struct scrape_sample *sample, const struct metric_fact *fact,
                        char buffer[128])
{
    (void)snprintf(buffer, 128, "%s", fact->labels);
    char *rest = NULL;
    for (char *part = strtok_r(buffer, ",", &rest);
         part != NULL && sample->label_count < SCRAPE_LABELS_MAX - 1; /* one is left for `le` */
         part = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(part, '=');
        if (value != NULL) {
            *value = '\0';
            sample->labels[sample->label_count++] =
                (struct scrape_label){.name = part, .value = value + 1};
        }
    }
}

static void give(struct scrape *scrape, const struct metric_fact *fact,
                 const struct scrape_sample *sample)
{
    if (!scrape->begun) {
        scrape->begun = true;
        scrape->sink->family(scrape->sink->context, scrape->family);
    }
    scrape->sink->sample(scrape->sink->context, fact, sample);
}

/* Exact: conversion through a double would lose digits of large counters. */
static void value_text(const char *unit, uint64_t value, char out[VALUE_BYTES])
{
    static const struct {
        const char *unit;
        uint64_t per_second;
        int digits;
    } times[] = {{"ns", SL_NS_PER_S, 9},
                 {"us", SL_NS_PER_S / SL_NS_PER_US, 6},
                 {"ms", SL_NS_PER_S / SL_NS_PER_MS, 3},
                 {"since", SL_NS_PER_S, 9}};
    (void)snprintf(out, VALUE_BYTES, "%" PRIu64, value);
    for (size_t i = 0; i < SL_COUNT(times); i++) {
        if (strcmp(times[i].unit, unit) == 0) {
            (void)snprintf(out, VALUE_BYTES, "%" PRIu64 ".%0*" PRIu64, value / times[i].per_second,
                           times[i].digits, value % times[i].per_second);
        }
    }
}

/* whose: the label of the actor, model or tenant; NULL: none. */
static struct scrape_sample sample_of(const struct metric_fact *fact,
                                      const struct scrape_label *whose, char buffer[128])
{
    struct scrape_sample sample = {.suffix = ""};
    if (whose != NULL) {
        sample.labels[sample.label_count++] = *whose;
    }
    labels_fill(&sample, fact, buffer);
    return sample;
}

static void value_give(struct scrape *scrape, const struct metric_fact *fact,
                       const struct scrape_label *whose, uint64_t value)
{
    char buffer[128];
    char text[VALUE_BYTES];
    struct scrape_sample sample = sample_of(fact, whose, buffer);
    if (strcmp(fact->unit, "since") == 0) {
        if (value == 0) {
            return;
        }
        value = scrape->now_ns > value ? scrape->now_ns - value : 0;
    }
    value_text(fact->unit, value, text);
    sample.value = text;
    give(scrape, fact, &sample);
}

static void histogram_give(struct scrape *scrape, const struct metric_fact *fact,
                           const struct scrape_label *whose,
                           const uint64_t buckets[SL_COUNTS_BUCKETS], uint64_t sum)
{
    char buffer[128];
    char text[VALUE_BYTES];
    struct scrape_sample sample = sample_of(fact, whose, buffer);
    uint32_t plain_count = sample.label_count;
    uint64_t count = 0;
    sample.value = text;
    sample.suffix = "_bucket";
    sample.label_count = plain_count + 1;
    for (uint32_t i = 0; i < SL_COUNTS_BUCKETS; i++) {
        char end[VALUE_BYTES];
        count += buckets[i];
        (void)snprintf(end, sizeof end, "%g", (double)ends_of(fact)[i] / 1e9);
        sample.labels[plain_count] =
            (struct scrape_label){.name = "le", .value = i + 1 < SL_COUNTS_BUCKETS ? end : "+Inf"};
        (void)snprintf(text, sizeof text, "%" PRIu64, count);
        give(scrape, fact, &sample);
    }
    sample.label_count = plain_count;
    sample.suffix = "_count";
    give(scrape, fact, &sample);
    sample.suffix = "_sum";
    value_text("ns", sum, text);
    give(scrape, fact, &sample);
}

/* ---- metrics of kind node ---- */

static void build_info(struct scrape *scrape, const struct metric_fact *fact)
{
    struct scrape_sample sample = {.suffix = "", .label_count = 1, .value = "1"};
    sample.labels[0] = (struct scrape_label){.name = "version", .value = SL_VERSION};
    give(scrape, fact, &sample);
}

static void state(struct scrape *scrape, const struct metric_fact *fact)
{
    static const char *const texts[] = {[SL_HEALTH_STARTING] = "starting",
                                        [SL_HEALTH_READY] = "ready",
                                        [SL_HEALTH_DEGRADED] = "degraded",
                                        [SL_HEALTH_DRAINING] = "draining",
                                        [SL_HEALTH_STOPPED] = "stopped"};
    for (uint32_t i = 0; i < scrape->page_count; i++) {
        const struct page *page = &scrape->pages[i];
        enum sl_health health = page->up ? page->summary.health : SL_HEALTH_STOPPED;
        for (uint32_t k = 0; k < SL_COUNT(texts); k++) {
            struct scrape_sample sample = {
                .suffix = "", .label_count = 2, .value = (uint32_t)health == k ? "1" : "0"};
            sample.labels[0] = (struct scrape_label){.name = "actor", .value = page->summary.actor};
            sample.labels[1] = (struct scrape_label){.name = "state", .value = texts[k]};
            give(scrape, fact, &sample);
        }
    }
}

static uint64_t ago_ns(const struct scrape *scrape, uint64_t then_ns)
{
    return scrape->now_ns > then_ns ? scrape->now_ns - then_ns : 0;
}

static void page_find_out(struct scrape *scrape, const struct metric_fact *fact,
                          const struct page *page)
{
    const struct sl_metrics_summary *summary = &page->summary;
    const struct scrape_label actor = {.name = "actor", .value = summary->actor};
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {
        {"up", page->up},
        {"restarts", SL_MAX(summary->incarnation, UINT64_C(1)) - 1},
        {"uptime", page->up ? ago_ns(scrape, summary->started_ns) : 0},
        {"silence", ago_ns(scrape, SL_MAX(summary->last_beat_ns, summary->started_ns))},
        {"resident", page->resident_bytes},
        {"cpu", page->cpu_ns},
        {"unknown", page->unknown_count},
    };
    for (size_t i = 0; i < SL_COUNT(rows); i++) {
        if (strcmp(rows[i].name, fact->name) == 0) {
            value_give(scrape, fact, &actor, rows[i].value);
        }
    }
}

static void node_give(struct scrape *scrape, const struct metric_fact *fact)
{
    if (strcmp(fact->name, "build_info") == 0) {
        build_info(scrape, fact);
    } else if (strcmp(fact->name, "state") == 0) {
        state(scrape, fact);
    } else if (strcmp(fact->name, "clients") == 0 && scrape->counted) {
        value_give(scrape, fact, NULL, scrape->counts.client_count);
    }
    for (uint32_t i = 0; i < scrape->page_count; i++) {
        page_find_out(scrape, fact, &scrape->pages[i]);
    }
}

/* ---- the table ---- */

static void client_give(struct scrape *scrape, const struct metric_fact *fact)
{
    static const char *const names[] = {
#define COUNT_NAME(id, text) [SL_COUNT_##id] = #id,
        SL_COUNT_TABLE(COUNT_NAME)
#undef COUNT_NAME
    };
    static const char *const times[] = {[SL_TIER_MEMORY] = "TIME_MEMORY",
                                        [SL_TIER_DISK] = "TIME_DISK",
                                        [SL_TIER_REMOTE] = "TIME_REMOTE",
                                        [SL_TIMED_BLOCKS] = "TIME_BLOCKS",
                                        [SL_TIMED_KEYS] = "TIME_KEYS"};
    if (!scrape->counted) {
        return;
    }
    for (uint32_t i = 0; i < SL_COUNT(names); i++) {
        if (strcmp(names[i], fact->name) == 0) {
            value_give(scrape, fact, NULL, scrape->counts.counts[i]);
        }
    }
    for (uint32_t timed = 0; timed < SL_COUNT(times); timed++) {
        if (strcmp(times[timed], fact->name) == 0) {
            const struct sl_counts_times *from = &scrape->counts.times[timed];
            histogram_give(scrape, fact, NULL, from->buckets, from->sum_ns);
        }
    }
}

static void model_info(struct scrape *scrape, const struct metric_fact *fact,
                       const struct sl_label_sum *from)
{
    struct scrape_sample sample = {.suffix = "", .label_count = 2, .value = "1"};
    sample.labels[0] = (struct scrape_label){.name = "model", .value = from->id};
    sample.labels[1] = (struct scrape_label){.name = "name", .value = from->name};
    give(scrape, fact, &sample);
}

static void label_give(struct scrape *scrape, const struct metric_fact *fact)
{
    static const char *const names[] = {
#define LABEL_NAME(id, text) [SL_LABEL_##id] = #id,
        SL_LABEL_COUNT_TABLE(LABEL_NAME)
#undef LABEL_NAME
    };
    bool of_model = strcmp(fact->kind, "model") == 0;
    for (uint32_t i = 0; i < scrape->label_count; i++) {
        const struct sl_label_sum *from = &scrape->labels[i];
        if (from->kind != (of_model ? SL_LABEL_MODEL : SL_LABEL_TENANT)) {
            continue;
        }
        if (strcmp(fact->name, "NAME") == 0) {
            model_info(scrape, fact, from);
        }
        for (uint32_t k = 0; k < SL_COUNT(names); k++) {
            if (strcmp(names[k], fact->name) == 0) {
                const struct scrape_label label = {.name = fact->kind, .value = from->id};
                value_give(scrape, fact, &label, from->counts[k]);
            }
        }
    }
}

static void page_give(struct scrape *scrape, const struct metric_fact *fact,
                      const struct page *page)
{
    const struct scrape_label actor = {.name = "actor", .value = page->summary.actor};
    if (!kind_fits(fact->kind, page->summary.actor)) {
        return;
    }
    for (uint32_t i = 0; !is_histogram(fact) && i < page->summary.metric_count; i++) {
        if (strcmp(page->names[i], fact->name) == 0) {
            value_give(scrape, fact, &actor, page->values[i]);
        }
    }
    for (uint32_t i = 0; is_histogram(fact) && i < page->summary.histogram_count; i++) {
        const struct histogram *histogram = &page->histograms[i];
        if (strcmp(histogram->name, fact->name) == 0) {
            histogram_give(scrape, fact, &actor, histogram->buckets, histogram->sum);
        }
    }
}

static void fact_give(struct scrape *scrape, const struct metric_fact *fact)
{
    if (scrape->family == NULL || strcmp(scrape->family->family, fact->family) != 0) {
        scrape->family = fact;
        scrape->begun = false;
    }
    if (strcmp(fact->kind, "node") == 0) {
        node_give(scrape, fact);
    } else if (strcmp(fact->kind, "client") == 0) {
        client_give(scrape, fact);
    } else if (strcmp(fact->kind, "model") == 0 || strcmp(fact->kind, "tenant") == 0) {
        label_give(scrape, fact);
    } else {
        for (uint32_t i = 0; i < scrape->page_count; i++) {
            page_give(scrape, fact, &scrape->pages[i]);
        }
    }
}

sl_err scrape_node(const char *shm_dir, const struct scrape_sink *sink, struct sl_error *why)
{
    struct scrape scrape = {.sink = sink};
    SL_AUTO(free) void *pages = calloc(PAGES_MAX, sizeof(struct page));
    if (pages == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a node's metrics");
    }
    scrape.pages = pages;
    scrape.now_ns = sl_clock_monotonic_ns();
    if (sl_metrics_views_each(shm_dir, page_take, &scrape) == 0) {
        return sl_fail(why, SL_ERR_UNREACHABLE, "no node has pages in %.150s", shm_dir);
    }
    sl_err err = sl_counts_read(shm_dir, &scrape.counts, why);
    if (err != SL_OK && err != SL_ERR_NOT_FOUND) {
        return err;
    }
    scrape.counted = err == SL_OK;
    SL_AUTO(free) void *labels = calloc(SL_LABELS_MAX, sizeof(struct sl_label_sum));
    if (labels == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a node's metrics");
    }
    scrape.labels = labels;
    if (sl_labels_read(shm_dir, scrape.labels, &scrape.label_count, NULL) != SL_OK) {
        scrape.label_count = 0; /* the other metrics are available without them */
    }
    for (size_t i = 0; i < metric_fact_count; i++) {
        fact_give(&scrape, &metric_facts[i]);
    }
    return SL_OK;
}
