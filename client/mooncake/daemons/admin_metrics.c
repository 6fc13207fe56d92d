/* client/mooncake/daemons/admin_metrics.c - metrics in Prometheus' text form: those of Mooncake's
 * names that a node of Sluice knows, and all that its actors count, as sluice_NAME{actor="..."}.
 * Nobody is asked but for the segments: the actors' pages are read. */
#include "client/mooncake/daemons/admin.h"
#include "runtime/sl_metrics.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX   8192u
#define ACTORS_MAX 128u

struct row {
    char name[SL_METRIC_NAME_BYTES];
    char actor[32];
    uint64_t value;
};
struct histogram_row {
    struct sl_histogram_summary summary;
    char actor[32];
};
/* What all pages of living actors say, at about one moment. */
struct reading {
    struct row *rows;
    struct histogram_row *histograms;
    uint32_t row_count, histogram_count;
    uint32_t actor_count;
};

/* ---- reading pages ---- */

static void page_take(struct reading *reading, const struct sl_metrics_view *view)
{
    struct sl_metrics_summary summary;
    sl_metrics_view_summary(view, &summary);
    if (!sl_proc_alive(summary.proc)) {
        return;
    }
    if (strncmp(summary.actor, "client.", 7) == 0) {
        return;
    }
    reading->actor_count++;
    for (uint32_t i = 0; i < summary.metric_count && reading->row_count < ROWS_MAX; i++) {
        struct row *row = &reading->rows[reading->row_count];
        if (sl_metrics_view_metric(view, i, row->name, &row->value)) {
            memcpy(row->actor, summary.actor, sizeof row->actor);
            reading->row_count++;
        }
    }
    uint32_t histograms_max = ACTORS_MAX * SL_HISTOGRAMS_MAX;
    for (uint32_t i = 0; i < summary.histogram_count && reading->histogram_count < histograms_max;
         i++) {
        struct histogram_row *row = &reading->histograms[reading->histogram_count];
        if (sl_metrics_view_histogram(view, i, &row->summary)) {
            memcpy(row->actor, summary.actor, sizeof row->actor);
            reading->histogram_count++;
        }
    }
}

static int row_compare(const void *a, const void *b)
{
    const struct row *left = a;
    const struct row *right = b;
    int order = strcmp(left->name, right->name);
    return order != 0 ? order : strcmp(left->actor, right->actor);
}

static int histogram_compare(const void *a, const void *b)
{
    const struct histogram_row *left = a;
    const struct histogram_row *right = b;
    int order = strcmp(left->summary.name, right->summary.name);
    return order != 0 ? order : strcmp(left->actor, right->actor);
}

static void reading_free(struct reading *reading)
{
    free(reading->rows);
    free(reading->histograms);
}

/* False: no memory. */
static bool reading_make(const struct mc_admin *admin, struct reading *out)
{
    *out = (struct reading){
        .rows = calloc(ROWS_MAX, sizeof *out->rows),
        .histograms = calloc((size_t)ACTORS_MAX * SL_HISTOGRAMS_MAX, sizeof *out->histograms)};
    if (out->rows == NULL || out->histograms == NULL) {
        reading_free(out);
        return false;
    }
    DIR *directory = opendir(admin->paths.shm_dir);
    for (const struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        char path[1400];
        struct sl_metrics_view *view = NULL;
        (void)snprintf(path, sizeof path, "%s/%s", admin->paths.shm_dir, entry->d_name);
        if (strncmp(entry->d_name, "metrics.", 8) == 0 &&
            sl_metrics_view_open(path, &view, NULL) == SL_OK) {
            page_take(out, view);
            sl_metrics_view_close(&view);
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
    qsort(out->rows, out->row_count, sizeof *out->rows, row_compare);
    qsort(out->histograms, out->histogram_count, sizeof *out->histograms, histogram_compare);
    return true;
}

/* Sum over the actors whose name begins with `actor`. */
static uint64_t reading_sum(const struct reading *reading, const char *actor, const char *name)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < reading->row_count; i++) {
        const struct row *row = &reading->rows[i];
        if (strcmp(row->name, name) == 0 && strncmp(row->actor, actor, strlen(actor)) == 0) {
            sum += row->value;
        }
    }
    return sum;
}

/* The registrar's peers that are no actors. */
static uint64_t attached_count(const struct reading *reading)
{
    uint64_t peers = reading_sum(reading, "registrar", "peer_count");
    uint64_t others = reading->actor_count > 0 ? reading->actor_count - 1u : 0;
    return peers > others ? peers - others : 0;
}

/* ---- Mooncake's names ---- */

/* Each is the counter or gauge of ours that says the same. */
static const struct {
    const char *name, *type, *help, *actor, *ours;
} known[] = {
    {"master_allocated_bytes", "gauge", "bytes of memory in use", "registrar", "used_bytes"},
    {"master_key_count", "gauge", "values, in memory or on disk", "registrar", "object_count"},
    {"master_soft_pin_key_count", "gauge", "values with a soft pin", "registrar",
     "soft_pinned_count"},
    {"master_allocated_file_size_bytes", "gauge", "bytes of values on disk", "tierer",
     "live_bytes"},
    {"master_put_start_requests_total", "counter", "extents asked for, to write", "registrar",
     "reserve_count"},
    {"master_put_start_alloc_failures_total", "counter", "writes refused for want of room",
     "registrar", "refused_count"},
    {"master_put_end_requests_total", "counter", "values committed", "registrar", "commit_count"},
    {"master_put_revoke_requests_total", "counter", "writes given up", "registrar", "abort_count"},
    {"master_put_start_discard_cnt", "counter", "writes whose time was over", "registrar",
     "expired_count"},
    {"master_put_start_discarded_staging_size", "gauge", "bytes of dead writers, not free yet",
     "registrar", "quarantined_bytes"},
    {"master_attempted_evictions_total", "counter", "rounds of eviction", "registrar",
     "evict_attempt_count"},
    {"master_successful_evictions_total", "counter", "rounds that made room", "registrar",
     "evict_success_count"},
    {"master_evicted_key_count", "counter", "values evicted from memory", "registrar",
     "evicted_count"},
    {"master_evicted_size_bytes", "counter", "their bytes", "registrar", "evicted_bytes"},
    {"master_promotion_completed_total", "counter", "values read from disk into memory",
     "registrar", "promoted_count"},
    {"master_promotion_completed_bytes_total", "counter", "their bytes", "registrar",
     "promoted_bytes"},
    {"master_promotion_failed_total", "counter", "reads from disk that failed", "registrar",
     "promote_failed_count"},
};

static void head_print(FILE *out, const char *name, const char *type, const char *help)
{
    (void)fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void known_print(FILE *out, const struct reading *reading)
{
    for (size_t i = 0; i < SL_COUNT(known); i++) {
        head_print(out, known[i].name, known[i].type, known[i].help);
        (void)fprintf(out, "%s %" PRIu64 "\n", known[i].name,
                      reading_sum(reading, known[i].actor, known[i].ours));
    }
}

/* In double quotes for Prometheus. */
static void label_print(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\\' || *text == '"') {
            (void)fputc('\\', out);
        }
        (void)fputc(*text == '\n' ? ' ' : *text, out);
    }
}

struct capacity {
    uint64_t bytes, used_bytes;
    uint32_t process_count;
};

static struct capacity capacity_of(const struct sl_contribution_info *infos, uint32_t count)
{
    struct capacity sum = {0};
    for (uint32_t i = 0; i < count; i++) {
        sum.bytes += infos[i].length_bytes;
        sum.used_bytes += infos[i].used_bytes;
        bool first = infos[i].pid != 0;
        for (uint32_t j = 0; j < i && first; j++) {
            first = infos[j].pid != infos[i].pid;
        }
        sum.process_count += first;
    }
    return sum;
}

static void segments_print(FILE *out, const struct mc_admin *admin,
                           const struct sl_contribution_info *infos, uint32_t count)
{
    struct capacity sum = capacity_of(infos, count);
    head_print(out, "master_total_capacity_bytes", "gauge", "memory that clients contribute");
    (void)fprintf(out, "master_total_capacity_bytes %" PRIu64 "\n", sum.bytes);
    head_print(out, "master_active_clients", "gauge", "processes that contribute memory");
    (void)fprintf(out, "master_active_clients %u\n", sum.process_count);
    head_print(out, "master_total_file_capacity_bytes", "gauge", "ceiling of the disk tier");
    (void)fprintf(out, "master_total_file_capacity_bytes %" PRIu64 "\n",
                  (admin->disk_count != 0 ? admin->disk_bytes : 0));
    for (int which = 0; which < 2; which++) {
        const char *name = which == 0 ? "segment_total_capacity_bytes" : "segment_allocated_bytes";
        head_print(out, name, "gauge",
                   which == 0 ? "memory of a segment" : "bytes that are charged to it");
        for (uint32_t i = 0; i < count; i++) {
            (void)fprintf(out, "%s{segment=\"", name);
            label_print(out, infos[i].name);
            (void)fprintf(out, "\"} %" PRIu64 "\n",
                          (which == 0 ? infos[i].length_bytes : infos[i].used_bytes));
        }
    }
}

/* ---- ours ---- */

static void own_print(FILE *out, const struct reading *reading)
{
    for (uint32_t i = 0; i < reading->row_count; i++) {
        const struct row *row = &reading->rows[i];
        (void)fprintf(out, "sluice_%s{actor=\"%s\"} %" PRIu64 "\n", row->name, row->actor,
                      row->value);
    }
    for (uint32_t i = 0; i < reading->histogram_count; i++) {
        const struct sl_histogram_summary *summary = &reading->histograms[i].summary;
        const char *actor = reading->histograms[i].actor;
        if (i == 0 || strcmp(summary->name, reading->histograms[i - 1].summary.name) != 0) {
            (void)fprintf(out, "# TYPE sluice_%s summary\n", summary->name);
        }
        const struct {
            const char *quantile;
            uint64_t value;
        } quantiles[] = {{"0.5", summary->p50}, {"0.9", summary->p90}, {"0.99", summary->p99}};
        for (size_t q = 0; q < SL_COUNT(quantiles); q++) {
            (void)fprintf(out, "sluice_%s{actor=\"%s\",quantile=\"%s\"} %" PRIu64 "\n",
                          summary->name, actor, quantiles[q].quantile, quantiles[q].value);
        }
        (void)fprintf(out,
                      "sluice_%s_sum{actor=\"%s\"} %" PRIu64
                      "\nsluice_%s_count{actor=\"%s\"} %" PRIu64 "\n",
                      summary->name, actor, summary->sum, summary->name, actor, summary->count);
    }
}

/* ---- handlers ---- */

/* Both handlers' beginning; false: the answer says why. */
static bool numbers_get(struct mc_admin *admin, struct reading *reading,
                        struct sl_contribution_info **infos, uint32_t *count,
                        struct mc_answer *answer)
{
    *infos = calloc(SL_CONTRIBUTIONS_MAX, sizeof **infos);
    if (*infos == NULL) {
        mc_answer_text(answer, 500, "out of memory\n");
        return false;
    }
    if (!mc_segments(admin, *infos, count, answer)) {
        return false;
    }
    if (!reading_make(admin, reading)) {
        mc_answer_text(answer, 500, "out of memory\n");
        return false;
    }
    return true;
}

void mc_metrics(void *context, const struct mc_request *request, struct mc_answer *answer)
{
    struct mc_admin *admin = context;
    struct reading reading;
    SL_AUTO(free) struct sl_contribution_info *infos = NULL;
    uint32_t count = 0;
    (void)request;
    if (!numbers_get(admin, &reading, &infos, &count, answer)) {
        return;
    }
    FILE *out = open_memstream(&answer->text, &answer->length_bytes);
    if (out == NULL) {
        reading_free(&reading);
        mc_answer_text(answer, 500, "out of memory\n");
        return;
    }
    segments_print(out, admin, infos, count);
    known_print(out, &reading);
    head_print(out, "sluice_attached_processes", "gauge", "processes with libsluice on this node");
    (void)fprintf(out, "sluice_attached_processes %" PRIu64 "\n", attached_count(&reading));
    own_print(out, &reading);
    reading_free(&reading);
    answer->type = "text/plain; version=0.0.4; charset=utf-8";
    if (fclose(out) != 0) {
        mc_answer_text(answer, 500, "out of memory\n");
    }
}

void mc_metrics_summary(void *context, const struct mc_request *request, struct mc_answer *answer)
{
    struct mc_admin *admin = context;
    struct reading reading;
    SL_AUTO(free) struct sl_contribution_info *infos = NULL;
    uint32_t count = 0;
    (void)request;
    if (!numbers_get(admin, &reading, &infos, &count, answer)) {
        return;
    }
    struct capacity sum = capacity_of(infos, count);
    mc_answer_text(answer, 200,
                   "memory: %" PRIu64 " of %" PRIu64 " bytes in %u segments | disk: %" PRIu64
                   " of %" PRIu64 " bytes | keys: %" PRIu64 " | puts: %" PRIu64 " "
                   "started, %" PRIu64 " committed, %" PRIu64 " refused | evicted: %" PRIu64
                   " keys, %" PRIu64 " bytes | processes: %" PRIu64 " "
                   "attached\n",
                   reading_sum(&reading, "registrar", "used_bytes"), sum.bytes, count,
                   reading_sum(&reading, "tierer", "live_bytes"),
                   (admin->disk_count != 0 ? admin->disk_bytes : 0),
                   reading_sum(&reading, "registrar", "object_count"),
                   reading_sum(&reading, "registrar", "reserve_count"),
                   reading_sum(&reading, "registrar", "commit_count"),
                   reading_sum(&reading, "registrar", "refused_count"),
                   reading_sum(&reading, "registrar", "evicted_count"),
                   reading_sum(&reading, "registrar", "evicted_bytes"), attached_count(&reading));
    reading_free(&reading);
}
