/* client/ctl/trace.c - one op's path through the actors: flight recorders and logs, merged in time
 * order. */
#include "client/ctl/commands.h"
#include "runtime/sl_array.h"
#include "runtime/sl_clock.h"
#include "runtime/sl_metrics.h"
#include "runtime/sl_parse.h"
#include "runtime/sl_text.h"
#include "runtime/sl_traceparent.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EVENTS_MAX         (1u << 22) /* of all pages together */
#define LOG_LINE_BYTES_MAX (64 * 1024u)
#define LOG_FILES_MAX      1024u
#define ACTOR_LETTERS      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-?"

struct event {
    uint64_t at_ns, trace_id;
    char actor[32];
    char peer[16];
    char what[24];
    char *text; /* owned; NULL: of a flight recorder */
    uint32_t value;
};

struct trace {
    const struct ctl *ctl;
    uint64_t trace_id; /* 0: all */
    struct event *events;
    size_t count, room;
    bool full;
};

static struct event *event_add(struct trace *trace)
{
    if (trace->count == EVENTS_MAX ||
        !SL_ARRAY_ROOM(trace->events, trace->room, trace->count + 1)) {
        trace->full = true;
        return NULL;
    }
    struct event *event = &trace->events[trace->count++];
    *event = (struct event){0};
    return event;
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
    for (size_t i = 0; i < count; i++) {
        struct event *event = records[i].trace_id == 0 ? NULL : event_add(trace);
        if (event != NULL) {
            event->at_ns = records[i].at_ns;
            event->trace_id = records[i].trace_id;
            event->value = records[i].value;
            (void)snprintf(event->actor, sizeof event->actor, "%s", summary.actor);
            (void)snprintf(event->peer, sizeof event->peer, "%.*s", (int)sizeof records[i].peer,
                           records[i].peer);
            (void)snprintf(event->what, sizeof event->what, "%.*s", (int)sizeof records[i].what,
                           records[i].what);
            sl_text_clean(event->peer);
            sl_text_clean(event->what);
            struct sl_traceparent parent;
            if (sl_traceparent_of(&records[i], &parent)) {
                char text[SL_TRACEPARENT_BYTES + 1];
                sl_traceparent_text(&parent, text);
                event->text = strdup(text);
                (void)snprintf(event->what, sizeof event->what, "traceparent");
            }
        }
    }
    free(records);
    return true;
}

static void line_collect(struct trace *trace, const char *line, const char *wanted)
{
    if (strstr(line, wanted) == NULL) {
        return;
    }
    json_t *object = json_loads(line, 0, NULL);
    const char *id = json_string_value(json_object_get(object, "trace"));
    const char *text = json_string_value(json_object_get(object, "msg"));
    const char *actor = json_string_value(json_object_get(object, "actor"));
    struct event *event =
        id != NULL && text != NULL && strcmp(id, wanted) == 0 ? event_add(trace) : NULL;
    if (event != NULL) {
        event->at_ns = (uint64_t)json_integer_value(json_object_get(object, "ns"));
        event->trace_id = trace->trace_id;
        event->text = strdup(text);
        (void)snprintf(event->actor, sizeof event->actor, "%s", actor == NULL ? "?" : actor);
        event->actor[strspn(event->actor, ACTOR_LETTERS)] = '\0';
        (void)snprintf(event->what, sizeof event->what, "log");
    }
    json_decref(object);
}

/* ACTOR.jsonl, and the one before it. */
static bool is_log(const char *name)
{
    static const char *const ends[] = {".jsonl", ".jsonl.1"};
    size_t length = strlen(name);
    for (size_t i = 0; i < SL_COUNT(ends); i++) {
        size_t end = strlen(ends[i]);
        if (length > end && strcmp(&name[length - end], ends[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void logs_collect(struct trace *trace)
{
    char wanted[17];
    (void)snprintf(wanted, sizeof wanted, "%016" PRIx64, trace->trace_id);
    DIR *directory = opendir(trace->ctl->paths.log_dir);
    char *line = directory == NULL ? NULL : malloc(LOG_LINE_BYTES_MAX);
    uint32_t files = 0;
    for (const struct dirent *entry;
         line != NULL && files < LOG_FILES_MAX && (entry = readdir(directory)) != NULL;) {
        char path[1400];
        if (!is_log(entry->d_name)) {
            continue;
        }
        (void)snprintf(path, sizeof path, "%s/%s", trace->ctl->paths.log_dir, entry->d_name);
        FILE *file = fopen(path, "re");
        files++;
        while (file != NULL && fgets(line, LOG_LINE_BYTES_MAX, file) != NULL) {
            line_collect(trace, line, wanted);
        }
        if (file != NULL) {
            (void)fclose(file);
        }
    }
    free(line);
    if (directory != NULL) {
        (void)closedir(directory);
    }
}

static int by_time(const void *a, const void *b)
{
    const struct event *left = a, *right = b;
    return left->at_ns < right->at_ns ? -1 : left->at_ns > right->at_ns;
}

static int by_id_and_time(const void *a, const void *b)
{
    const struct event *left = a, *right = b;
    return left->trace_id != right->trace_id ? (left->trace_id < right->trace_id ? -1 : 1)
                                             : by_time(a, b);
}

/* All that the recorders know, sorted by op and time. Gives how many recorders there are. */
static uint32_t trace_collect(struct trace *trace)
{
    uint32_t pages = ctl_pages(trace->ctl, page_collect, trace);
    if (trace->count > 0) {
        qsort(trace->events, trace->count, sizeof *trace->events, by_id_and_time);
    }
    return pages;
}

static void trace_free(struct trace *trace)
{
    for (size_t i = 0; i < trace->count; i++) {
        free(trace->events[i].text);
    }
    free(trace->events);
}

static json_t *event_json(const struct event *event, uint64_t first_ns)
{
    json_t *shown = json_pack("{s:I, s:f, s:s, s:s}", "at_ns", (json_int_t)event->at_ns,
                              "offset_us", (double)(event->at_ns - first_ns) / 1e3, "actor",
                              event->actor, "what", event->what);
    if (event->text != NULL) {
        (void)json_object_set_new(shown, "text", json_string(event->text));
    } else {
        (void)json_object_set_new(shown, "peer", ctl_json_bytes(event->peer, strlen(event->peer)));
        (void)json_object_set_new(shown, "value", ctl_json_u64(event->value));
    }
    return shown;
}

static json_t *events_json(const struct event *events, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        (void)json_array_append_new(list, event_json(&events[i], events[0].at_ns));
    }
    return list;
}

static void event_print(const struct event *event, uint64_t first_ns)
{
    (void)printf("%12.1f us  %-18s ", (double)(event->at_ns - first_ns) / 1e3, event->actor);
    if (event->text == NULL) {
        (void)printf("%-24s %-16s %u\n", event->what, event->peer, event->value);
        return;
    }
    (void)printf("%s: ", event->what);
    ctl_print_bytes(stdout, event->text, strlen(event->text));
    (void)fputc('\n', stdout);
}

static int show_one(struct trace *trace)
{
    char id[17];
    (void)snprintf(id, sizeof id, "%016" PRIx64, trace->trace_id);
    if (trace->count > 0) {
        qsort(trace->events, trace->count, sizeof *trace->events, by_time);
    }
    if (trace->ctl->json) {
        ctl_print_json(json_pack("{s:s, s:o}", "trace", id, "events",
                                 events_json(trace->events, trace->count)));
    }
    for (size_t i = 0; !trace->ctl->json && i < trace->count; i++) {
        event_print(&trace->events[i], trace->events[0].at_ns);
    }
    if (trace->count == 0) {
        (void)fprintf(stderr, "sluicectl trace: nobody remembers trace %s\n", id);
    }
    return trace->count > 0 ? CTL_FINE : CTL_NO;
}

/* A run of events of one id in the sorted array. */
struct op_row {
    size_t first, count;
    uint64_t start_ns, end_ns;
};

static int by_end(const void *a, const void *b) /* the latest first */
{
    const struct op_row *left = a, *right = b;
    return left->end_ns > right->end_ns ? -1 : left->end_ns < right->end_ns;
}

static int by_duration(const void *a, const void *b) /* the longest first */
{
    const struct op_row *left = a, *right = b;
    uint64_t l = left->end_ns - left->start_ns, r = right->end_ns - right->start_ns;
    return l > r ? -1 : l < r;
}

static int show_rows(struct trace *trace, const struct op_row *rows, size_t count, bool events)
{
    json_t *ops = json_array();
    for (size_t i = 0; i < count; i++) {
        char id[17];
        const struct event *first = &trace->events[rows[i].first];
        double duration_us = (double)(rows[i].end_ns - rows[i].start_ns) / 1e3;
        (void)snprintf(id, sizeof id, "%016" PRIx64, first->trace_id);
        if (trace->ctl->json) {
            json_t *shown = events ? events_json(first, rows[i].count)
                                   : json_integer((json_int_t)rows[i].count);
            (void)json_array_append_new(ops, json_pack("{s:s, s:I, s:f, s:o, s:s, s:s}", "trace",
                                                       id, "at_ns", (json_int_t)rows[i].start_ns,
                                                       "duration_us", duration_us, "events", shown,
                                                       "actor", first->actor, "what", first->what));
        } else {
            (void)printf("%s %12.1f us %4zu events  %-18s %s\n", id, duration_us, rows[i].count,
                         first->actor, first->what);
        }
    }
    if (trace->ctl->json) {
        ctl_print_json(json_pack("{s:o}", "ops", ops));
    } else {
        json_decref(ops);
    }
    return CTL_FINE;
}

static int show_many(struct trace *trace, uint64_t wanted, bool slow, bool events)
{
    struct op_row *rows = malloc((trace->count + 1) * sizeof *rows);
    size_t count = 0;
    if (rows == NULL) {
        return CTL_NO;
    }
    for (size_t i = 0; i < trace->count; i++) {
        if (i == 0 || trace->events[i].trace_id != trace->events[i - 1].trace_id) {
            rows[count++] = (struct op_row){.first = i, .start_ns = trace->events[i].at_ns};
        }
        rows[count - 1].count++;
        rows[count - 1].end_ns = trace->events[i].at_ns;
    }
    if (count == 0 && !trace->ctl->json) {
        (void)fprintf(stderr, "no op yet: gets of what is in memory ask no actor\n");
    }
    qsort(rows, count, sizeof *rows, slow ? by_duration : by_end);
    int code = show_rows(trace, rows, SL_MIN(count, wanted), events);
    free(rows);
    return code;
}

static int trace_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    uint64_t last = 0;
    uint64_t slow = 0;
    bool events = false;
    struct trace trace = {.ctl = ctl};
    const struct ctl_option options[] = {{.name = "last", .count = &last},
                                         {.name = "slow", .count = &slow},
                                         {.name = "events", .flag = &events}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    bool one = ctl->word_count == 1;
    if (one + (last > 0) + (slow > 0) != 1 || (events && (one || !ctl->json))) {
        return ctl_wrong(
            ctl, "one of ID, --last N, --slow N; --events needs one of these two, and --json");
    }
    if (one && (!sl_parse_hex(ctl->words[0], &trace.trace_id) || trace.trace_id == 0)) {
        return ctl_wrong(ctl, "'%s' is no trace id: up to 16 hex digits, not 0", ctl->words[0]);
    }
    if (trace_collect(&trace) == 0) {
        struct sl_error why;
        (void)ctl_no_pages(ctl, &why);
        return ctl_failed(ctl, &why);
    }
    if (trace.trace_id != 0) {
        logs_collect(&trace);
        code = show_one(&trace);
    } else {
        code = show_many(&trace, SL_MAX(last, slow), slow > 0, events);
    }
    if (trace.full) {
        (void)fprintf(stderr, "sluicectl trace: more than %u events: some are left out\n",
                      EVENTS_MAX);
    }
    trace_free(&trace);
    return code;
}

/* clang-format off */
const struct ctl_command ctl_trace = {
    .name = "trace",
    .summary = "show an op's path through the actors",
    .help = "trace ID | --last N | --slow N [--json [--events]]\n"
            "\n"
            "Merges the flight recorders of all actors (dead and stopped ones too) with their logs.\n"
            "`python -m sluice.otel` sends ops to a collector of OpenTelemetry.\n"
            "\n"
            "  ID                16 hex digits: all events in time order, offsets in us\n"
            "  --last N          the N most recent ops\n"
            "  --slow N          the N slowest ops still remembered\n"
            "  --events          with --json: each op's events in the place of their number\n"
            CTL_HELP_COMMON,
    .run = trace_command,
    .words_max = 1,
    .words = "one of ID, --last N, --slow N",
};
/* clang-format on */
