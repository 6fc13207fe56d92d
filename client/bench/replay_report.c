/* client/bench/replay_report.c - what a replay counted, for people and for programs. */
#include "client/bench/replay_engine.h"
#include "runtime/sl_array.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SLOW_GRACE_NS \
    (100 * SL_NS_PER_MS) /* over its deadline by more than this, an op is called slow */
#define PROGRESS_NS (100 * SL_NS_PER_MS)

static void slowest_note(struct replay_report *report, const struct replay_op_row *row)
{
    uint32_t at = report->slowest_count;
    while (at > 0 && report->slowest[at - 1].duration_ns < row->duration_ns) {
        at--;
    }
    if (at == REPLAY_SLOWEST_MAX) {
        return;
    }
    uint32_t kept = SL_MIN(report->slowest_count, REPLAY_SLOWEST_MAX - 1);
    memmove(&report->slowest[at + 1], &report->slowest[at], (kept - at) * sizeof *row);
    report->slowest[at] = *row;
    report->slowest_count = kept + 1;
}

void replay_note_failure(struct replay *replay, struct replay_op_row row,
                         const struct sl_error *why)
{
    struct replay_report *report = &replay->report;
    row.code = why->code;
    report->errors++;
    if (report->failed_count < REPLAY_FAILED_MAX) {
        report->failed[report->failed_count++] = row;
    }
    for (uint32_t i = 0; i < report->kind_count; i++) {
        struct replay_kind *kind = &report->kinds[i];
        if (kind->store == row.store && kind->code == why->code) {
            kind->count++;
            return;
        }
    }
    if (report->kind_count < REPLAY_KINDS_MAX) {
        struct replay_kind *kind = &report->kinds[report->kind_count++];
        *kind = (struct replay_kind){.store = row.store, .code = why->code, .count = 1};
        (void)snprintf(kind->text, sizeof kind->text, "%s",
                       why->text[0] != '\0' ? why->text : sl_err_text(why->code));
    }
}

void replay_note_op(struct replay *replay, const struct sl_op_result *result, bool store,
                    uint64_t duration_ns)
{
    struct replay_report *report = &replay->report;
    const struct replay_op_row row = {.trace_id = result->trace_id,
                                      .duration_ns = duration_ns,
                                      .store = store,
                                      .code = result->code};
    report->ops++;
    report->longest_op_ns = SL_MAX(report->longest_op_ns, duration_ns);
    report->ops_slow += duration_ns > replay->options.op_timeout_ns + SLOW_GRACE_NS;
    ctl_histogram_add(store ? &report->store_ns : &report->load_ns, duration_ns);
    slowest_note(report, &row);
    /* Nothing to load is an answer, not an error. */
    if (result->code != SL_OK && (store || result->code != SL_ERR_NOT_FOUND)) {
        struct sl_error why = result->why;
        why.code = result->code;
        replay_note_failure(replay, row, &why);
    }
}

void replay_progress(struct replay *replay, uint64_t done, uint64_t started_ns, bool last)
{
    static uint64_t shown_ns; /* this program replays once */
    uint64_t now_ns = sl_clock_monotonic_ns();
    if (!replay->options.progress || (!last && now_ns - shown_ns < PROGRESS_NS)) {
        return;
    }
    shown_ns = now_ns;
    const struct replay_report *report = &replay->report;
    uint64_t total = SL_MAX(replay->trace.request_count, 1);
    double seconds = (double)(now_ns - started_ns) / 1e9;
    double share = (double)done / (double)total;
    double rate =
        seconds > 0 ? (double)(report->bytes_loaded + report->bytes_stored) / seconds / 1e6 : 0;
    double hits = report->block_references > 0
                      ? 100.0 * (double)report->hits / (double)report->block_references
                      : 0;
    double left = share > 0 ? seconds / share - seconds : 0;
    ctl_progress_bar(done, total);
    (void)fprintf(stderr, "hits %.1f %%  %.0f MB/s  errors %" PRIu64 "  %s %.0f s   ", hits, rate,
                  report->errors, last ? "took" : "left", last ? seconds : left);
    if (last) {
        (void)fputc('\n', stderr);
    }
}

void replay_window_note(struct replay *replay, uint64_t started_ns, bool last)
{
    struct replay_report *report = &replay->report;
    uint64_t window = replay->options.window;
    if (window == 0 || (report->requests % window != 0 && !last)) {
        return;
    }
    if (!SL_ARRAY_ROOM(report->windows, report->window_room, report->window_count + 1)) {
        return; /* a row less */
    }
    const struct replay_window now = {.requests = report->requests,
                                      .block_references = report->block_references,
                                      .hits = report->hits,
                                      .from_remote = report->from_remote,
                                      .unpublished = report->unpublished,
                                      .errors = report->errors,
                                      .at_ns = sl_clock_monotonic_ns() - started_ns};
    const struct replay_window none = {0};
    const struct replay_window *before =
        report->window_count > 0 ? &report->windows[report->window_count - 1] : &none;
    const char *path = replay->options.json_path;
    if (path == NULL || strcmp(path, "-") != 0) {
        (void)printf("requests %" PRIu64 "..%" PRIu64 "  %.1f s  hits %" PRIu64 " of %" PRIu64
                     ", remote %" PRIu64 ", errors %" PRIu64 ", not "
                     "published %" PRIu64 "\n",
                     before->requests, now.requests - 1, (double)now.at_ns / 1e9,
                     now.hits - before->hits, now.block_references - before->block_references,
                     now.from_remote - before->from_remote, now.errors - before->errors,
                     now.unpublished - before->unpublished);
        (void)fflush(stdout);
    }
    report->windows[report->window_count++] = now;
}

static json_t *windows_json(const struct replay_report *report)
{
    json_t *list = json_array();
    struct replay_window before = {0};
    for (uint32_t i = 0; i < report->window_count; i++) {
        const struct replay_window *now = &report->windows[i];
        (void)json_array_append_new(
            list, json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "first",
                            (json_int_t)before.requests, "requests",
                            (json_int_t)(now->requests - before.requests), "block_references",
                            (json_int_t)(now->block_references - before.block_references), "hits",
                            (json_int_t)(now->hits - before.hits), "from_remote",
                            (json_int_t)(now->from_remote - before.from_remote), "unpublished",
                            (json_int_t)(now->unpublished - before.unpublished), "errors",
                            (json_int_t)(now->errors - before.errors), "end_s",
                            (double)now->at_ns / 1e9));
        before = *now;
    }
    return list;
}

static double us_of(uint64_t ns)
{
    return (double)ns / 1e3;
}

static json_t *times_json(const struct ctl_histogram *histogram)
{
    return json_pack("{s:f, s:f, s:f, s:I}", "p50", us_of(ctl_histogram_quantile(histogram, 0.5)),
                     "p99", us_of(ctl_histogram_quantile(histogram, 0.99)), "max",
                     us_of(histogram->max), "count", (json_int_t)histogram->count);
}

static json_t *rows_json(const struct replay_op_row *rows, uint32_t count)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++) {
        char id[17];
        (void)snprintf(id, sizeof id, "%016" PRIx64, rows[i].trace_id);
        (void)json_array_append_new(list, json_pack("{s:s, s:s, s:f, s:s}", "trace", id, "op",
                                                    rows[i].store ? "store" : "load", "us",
                                                    us_of(rows[i].duration_ns), "code",
                                                    sl_err_name(rows[i].code)));
    }
    return list;
}

static json_t *kinds_json(const struct replay_report *report)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < report->kind_count; i++) {
        const struct replay_kind *kind = &report->kinds[i];
        (void)json_array_append_new(
            list, json_pack("{s:s, s:s, s:I, s:o}", "op", kind->store ? "store" : "load", "code",
                            sl_err_name(kind->code), "count", (json_int_t)kind->count, "text",
                            ctl_json_text(kind->text)));
    }
    return list;
}

json_t *replay_json(const struct replay *replay)
{
    const struct replay_report *report = &replay->report;
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {
        {"requests", report->requests},
        {"requests_skipped", report->skipped},
        {"block_references", report->block_references},
        {"hits", report->hits},
        {"ends_told", report->ends_told},
        {"pauses_told", report->pauses_told},
        {"goes_on_told", report->goes_on_told},
        {"mismatches", report->mismatches},
        {"errors", report->errors},
        {"lost", report->lost},
        {"misses_of_acknowledged", report->misses_of_acknowledged},
        {"dropped_blocks", report->evicted},
        {"bytes_stored", report->bytes_stored},
        {"bytes_loaded", report->bytes_loaded},
        {"blocks_stored", report->blocks_stored},
        {"blocks_existed", report->blocks_existed},
        {"blocks_not_stored", report->blocks_not_stored},
        {"ops", report->ops},
        {"ops_slow", report->ops_slow},
        {"ranks", replay->options.ranks},
        {"pools", replay->options.pools},
        {"layers", replay->options.layers},
        {"block_bytes", replay->options.block_bytes},
        {"nodes", replay->side_count},
        {"unpublished", report->unpublished},
        {"not_awaited", report->not_awaited},
    };
    json_t *object = json_object();
    for (size_t i = 0; i < SL_COUNT(counts); i++) {
        (void)json_object_set_new(object, counts[i].name, ctl_json_u64(counts[i].value));
    }
    (void)json_object_set_new(
        object, "hits_by_tier",
        json_pack("{s:I, s:I, s:I}", "memory", (json_int_t)report->from_memory, "disk",
                  (json_int_t)report->from_disk, "remote", (json_int_t)report->from_remote));
    if (replay->options.prefill.tokens_per_s > 0) {
        (void)json_object_set_new(object, "first_tokens",
                                  json_pack("{s:f, s:f, s:f}", "all_s",
                                            report->waited_s + report->compute_s, "loads_s",
                                            report->waited_s, "computing_s", report->compute_s));
    }
    if (replay->options.window > 0) {
        (void)json_object_set_new(object, "windows", windows_json(report));
    }
    (void)json_object_set_new(object, "load_us", times_json(&report->load_ns));
    (void)json_object_set_new(object, "store_us", times_json(&report->store_ns));
    (void)json_object_set_new(object, "longest_op_us", json_real(us_of(report->longest_op_ns)));
    (void)json_object_set_new(object, "op_timeout_us",
                              json_real(us_of(replay->options.op_timeout_ns)));
    (void)json_object_set_new(object, "wall_s", json_real((double)report->wall_ns / 1e9));
    (void)json_object_set_new(object, "key_format", json_string(replay->options.key_format));
    (void)json_object_set_new(object, "errors_by_kind", kinds_json(report));
    (void)json_object_set_new(object, "slowest", rows_json(report->slowest, report->slowest_count));
    (void)json_object_set_new(object, "failed", rows_json(report->failed, report->failed_count));
    return object;
}
