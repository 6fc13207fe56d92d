/* client/tools/ctl/trace.c - sluicectl trace: one op's path through the actors. Reads the flight
 * recorders; trace.py merges their events with the logs. */
#include "client/tools/ctl/commands.h"
#include "runtime/base/sl_metrics.h"
#include "runtime/base/sl_parse.h"
#include "runtime/base/sl_text.h"
#include "runtime/base/sl_traceparent.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_MAX (1u << 22) /* of all pages together */

struct trace {
    uint64_t trace_id; /* 0: all */
    json_t *events;    /* [at_ns, trace, actor, what, peer, value, text] each */
};

static json_t *event_json(const struct sl_trace_record *record, const char *actor)
{
    char id[17], peer[sizeof record->peer + 1], what[sizeof record->what + 1];
    char text[SL_TRACEPARENT_BYTES + 1];
    struct sl_traceparent parent;
    bool has_parent = sl_traceparent_of(record, &parent);
    (void)snprintf(id, sizeof id, "%016" PRIx64, record->trace_id);
    (void)snprintf(peer, sizeof peer, "%.*s", (int)sizeof record->peer, record->peer);
    (void)snprintf(what, sizeof what, "%.*s", (int)sizeof record->what, record->what);
    sl_text_clean(peer);
    sl_text_clean(what);
    if (has_parent) {
        sl_traceparent_text(&parent, text);
    }
    return json_pack("[o, s, s, s, s, o, s?]", ctl_json_u64(record->at_ns), id, actor,
                     has_parent ? "traceparent" : what, peer, ctl_json_u64(record->value),
                     has_parent ? text : NULL);
}

static bool page_collect(void *context, struct sl_metrics_view *view)
{
    struct trace *trace = context;
    struct sl_metrics_summary summary;
    struct sl_trace_record *records = NULL;
    size_t count = 0;
    sl_metrics_view_summary(view, &summary);
    if (sl_metrics_view_events(view, trace->trace_id, &records, &count, NULL) != SL_OK) {
        return true;
    }
    for (size_t i = 0; i < count && json_array_size(trace->events) < EVENTS_MAX; i++) {
        if (records[i].trace_id != 0) {
            (void)json_array_append_new(trace->events, event_json(&records[i], summary.actor));
        }
    }
    free(records);
    return true;
}

static int trace_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    uint64_t last = 0, slow = 0;
    bool events = false;
    char number[24];
    struct trace trace = {.trace_id = 0};
    const struct ctl_option options[] = {{.name = "last", .count = &last},
                                         {.name = "slow", .count = &slow},
                                         {.name = "events", .flag = &events}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    bool one = ctl->word_count == 1;
    if (one + (last > 0) + (slow > 0) != 1 || (events && (one || !ctl->json))) {
        return ctl_usage_error(
            ctl,
            "expected one of ID, --last N, --slow N; --events needs --json and --last or --slow");
    }
    if (one && (!sl_parse_hex(ctl->words[0], &trace.trace_id) || trace.trace_id == 0)) {
        return ctl_usage_error(ctl, "'%s' is not a trace id (1 to 16 hex digits, not 0)",
                               ctl->words[0]);
    }
    trace.events = json_array();
    if (ctl_pages(ctl, page_collect, &trace) == 0) {
        struct sl_error why;
        json_decref(trace.events);
        (void)ctl_no_pages(ctl, &why);
        return ctl_failed(ctl, &why);
    }
    if (json_array_size(trace.events) == EVENTS_MAX) {
        (void)fprintf(stderr, "sluicectl trace: more than %u events: the rest is not shown\n",
                      EVENTS_MAX);
    }
    (void)snprintf(number, sizeof number, one ? "%016" PRIx64 : "%" PRIu64,
                   one ? trace.trace_id : SL_MAX(last, slow));
    const char *const words[] = {one        ? "id"
                                 : last > 0 ? "last"
                                            : "slow",
                                 number, ctl->paths.log_dir,
                                 events      ? "events"
                                 : ctl->json ? "json"
                                             : "text",
                                 NULL};
    return ctl_script_print("trace.py", words, trace.events);
}

/* clang-format off */
const struct ctl_command ctl_trace = {
    .name = "trace",
    .summary = "show an op's path through the actors",
    .help = "trace ID | --last N | --slow N [--json [--events]]\n"
            "\n"
            "Merges the flight recorders of all actors, including dead and stopped ones, with their logs.\n"
            "`python -m sluice.otel` exports ops to an OpenTelemetry collector.\n"
            "\n"
            "  ID                16 hex digits: all events in time order, offsets in us\n"
            "  --last N          the N most recent ops\n"
            "  --slow N          the N slowest ops that are still recorded\n"
            "  --events          with --json: the events of each op instead of their number\n"
            CTL_HELP_COMMON,
    .run = trace_command,
    .words_max = 1,
    .words = "expected one of ID, --last N, --slow N",
};
/* clang-format on */
