/* client/ctl/otlp.c - ops as spans of OpenTelemetry, in OTLP's JSON: a span an op, below it one for each
 * step of the coordinator and one for each other actor; what the recorders say are their events.
 *
 * The span of an op has the op's trace id as its number. It belongs to the trace that the engine has
 * named (traceparent); without one, to a trace of that number. */
#include "client/ctl/trace.h"
#include "runtime/sl_clock.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define SPAN_KIND_INTERNAL 1
#define STATUS_OK          1
#define STATUS_ERROR       2
#define LOST_NS            (60 * SL_NS_PER_S) /* so old, an op without an end is one that died */
#define IDLE_NS            (2 * SL_NS_PER_S)  /* requests that are no ops: nothing came since */
#define ACTORS_MAX         128u
/* In JSON, rather more than measured. */
#define EVENT_BYTES 260u
#define SPAN_BYTES  420u

/* Steps of the coordinator by the event that ends them; they begin with the event before. */
static const struct {
    const char *what, *name;
} steps[] = {
    {"keys known", "keys"},
    {"pinned", "look up and pin"},
    {"promoted", "read disk"},
    {"fetched", "fetch from nodes"},
    {"pulled", "pull from nodes"},
    {"copied in", "copy to device"},
    {"copied out", "copy from device"},
    {"reserved", "reserve"},
    {"committed", "commit"},
    {"fenced", "fence"},
};

struct op {
    const struct event *events;
    size_t count;
    const struct event *begin, *end, *parent; /* NULL: there is none */
};

struct spans {
    json_t *array;
    uint64_t to_unix_ns; /* added to the monotonic clock */
    char trace[33], root[17];
    uint64_t trace_id;
    uint32_t number; /* of the next span below the op's */
};

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(&text[length - end_length], end) == 0;
}

static struct op op_of(const struct event *events, size_t count)
{
    struct op op = {.events = events, .count = count};
    for (size_t i = 0; i < count; i++) {
        const struct event *event = &events[i];
        op.parent = op.parent == NULL && event->is_parent ? event : op.parent;
        bool coordinator = strcmp(event->actor, "coordinator") == 0;
        op.begin =
            coordinator && op.begin == NULL && ends_with(event->what, " begins") ? event : op.begin;
        op.end = coordinator && ends_with(event->what, " ended") ? event : op.end;
    }
    return op;
}

/* When it was over, or nothing will come any more. */
static uint64_t over_ns(const struct op *op)
{
    uint64_t last_ns = op->events[op->count - 1].at_ns;
    return op->end != NULL     ? op->end->at_ns
           : op->begin != NULL ? last_ns + LOST_NS
                               : last_ns + IDLE_NS;
}

static json_t *attribute_text(const char *key, const char *value)
{
    return json_pack("{s:s, s:{s:o}}", "key", key, "value", "stringValue",
                     ctl_json_bytes(value, strlen(value)));
}

/* 64-bit numbers are texts in the JSON of protocol buffers. */
static json_t *number_text(uint64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, value);
    return json_string(text);
}

static json_t *attribute_number(const char *key, uint64_t value)
{
    return json_pack("{s:s, s:{s:o}}", "key", key, "value", "intValue", number_text(value));
}

static json_t *event_json(const struct spans *spans, const struct event *event)
{
    json_t *attributes = json_pack("[o, o]", attribute_text("sluice.actor", event->actor),
                                   attribute_number("sluice.value", event->value));
    if (event->peer[0] != '\0') {
        (void)json_array_append_new(attributes, attribute_text("sluice.peer", event->peer));
    }
    return json_pack("{s:o, s:o, s:o}", "timeUnixNano",
                     number_text(event->at_ns + spans->to_unix_ns), "name",
                     ctl_json_bytes(event->what, strlen(event->what)), "attributes", attributes);
}

static json_t *span_add(struct spans *spans, const char *id, const char *name, uint64_t start_ns,
                        uint64_t end_ns)
{
    json_t *span =
        json_pack("{s:s, s:s, s:s, s:i, s:o, s:o, s:[], s:[]}", "traceId", spans->trace, "spanId",
                  id, "name", name, "kind", SPAN_KIND_INTERNAL, "startTimeUnixNano",
                  number_text(start_ns + spans->to_unix_ns), "endTimeUnixNano",
                  number_text(end_ns + spans->to_unix_ns), "attributes", "events");
    (void)json_array_append_new(spans->array, span);
    return span;
}

static json_t *child_add(struct spans *spans, const char *name, const char *actor,
                         uint64_t start_ns, uint64_t end_ns)
{
    char id[17];
    uint64_t number = XXH3_64bits_withSeed(&spans->number, sizeof spans->number, spans->trace_id);
    spans->number++;
    (void)snprintf(id, sizeof id, "%016" PRIx64, number == 0 ? 1 : number);
    json_t *span = span_add(spans, id, name, start_ns, end_ns);
    (void)json_object_set_new(span, "parentSpanId", json_string(spans->root));
    (void)json_array_append_new(json_object_get(span, "attributes"),
                                attribute_text("sluice.actor", actor));
    return span;
}

static void steps_add(struct spans *spans, const struct op *op)
{
    const struct event *before = NULL;
    for (size_t i = 0; i < op->count; i++) {
        const struct event *event = &op->events[i];
        if (strcmp(event->actor, "coordinator") != 0 || event->is_parent) {
            continue;
        }
        for (size_t s = 0; before != NULL && s < SL_COUNT(steps); s++) {
            if (strcmp(event->what, steps[s].what) == 0) {
                json_t *span =
                    child_add(spans, steps[s].name, "coordinator", before->at_ns, event->at_ns);
                (void)json_array_append_new(json_object_get(span, "attributes"),
                                            attribute_number("sluice.value", event->value));
            }
        }
        before = event;
    }
}

/* A span for each actor but the coordinator, with its events. */
static void actors_add(struct spans *spans, const struct op *op)
{
    json_t *span_of[ACTORS_MAX];
    const char *actors[ACTORS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < op->count; i++) {
        const struct event *event = &op->events[i];
        size_t at = 0;
        if (strcmp(event->actor, "coordinator") == 0) {
            continue;
        }
        while (at < count && strcmp(actors[at], event->actor) != 0) {
            at++;
        }
        if (at == ACTORS_MAX) {
            continue;
        }
        if (at == count) {
            actors[count] = event->actor;
            span_of[count++] =
                child_add(spans, event->actor, event->actor, event->at_ns, event->at_ns);
        }
        (void)json_array_append_new(json_object_get(span_of[at], "events"),
                                    event_json(spans, event));
        (void)json_object_set_new(span_of[at], "endTimeUnixNano",
                                  number_text(event->at_ns + spans->to_unix_ns));
    }
}

static void op_add(struct spans *spans, const struct op *op)
{
    char name[40], w3c[SL_TRACEPARENT_BYTES + 1] = "";
    const struct event *first = op->begin != NULL ? op->begin : &op->events[0];
    spans->trace_id = first->trace_id;
    spans->number = 0;
    (void)snprintf(spans->root, sizeof spans->root, "%016" PRIx64, first->trace_id);
    (void)snprintf(spans->trace, sizeof spans->trace, "%032" PRIx64, first->trace_id);
    if (op->parent != NULL) {
        sl_traceparent_text(&op->parent->parent, w3c);
        (void)snprintf(spans->trace, sizeof spans->trace, "%.32s", &w3c[3]);
    }
    (void)snprintf(name, sizeof name, "sluice %.*s", (int)strcspn(first->what, " "), first->what);
    json_t *root = span_add(spans, spans->root, op->begin != NULL ? name : first->what,
                            op->events[0].at_ns, op->events[op->count - 1].at_ns);
    json_t *attributes = json_object_get(root, "attributes");
    (void)json_array_append_new(attributes, attribute_text("sluice.trace", spans->root));
    if (op->parent != NULL) {
        char parent[17];
        (void)snprintf(parent, sizeof parent, "%.16s", &w3c[36]);
        (void)json_object_set_new(root, "parentSpanId", json_string(parent));
    }
    if (op->begin != NULL) {
        bool fine = op->end != NULL && strcmp(op->end->peer, sl_err_name(SL_OK)) == 0;
        (void)json_array_append_new(attributes, attribute_number("sluice.blocks", first->value));
        (void)json_array_append_new(
            attributes,
            attribute_number("sluice.blocks_done", op->end != NULL ? op->end->value : 0));
        (void)json_object_set_new(
            root, "status",
            fine ? json_pack("{s:i}", "code", STATUS_OK)
                 : json_pack("{s:i, s:s}", "code", STATUS_ERROR, "message",
                             op->end != NULL ? op->end->peer : "its end was not seen"));
    }
    for (size_t i = 0; i < op->count; i++) {
        if (strcmp(op->events[i].actor, "coordinator") == 0 && !op->events[i].is_parent) {
            (void)json_array_append_new(json_object_get(root, "events"),
                                        event_json(spans, &op->events[i]));
        }
    }
    steps_add(spans, op);
    actors_add(spans, op);
}

/* ---- requests ---- */

/* An op that is over, by its events in the trace. */
struct ended {
    size_t first, count;
    uint64_t over_ns;
};

/* What is of one request. */
struct batch {
    json_t *spans;
    size_t op_count, bytes; /* about */
    uint64_t over_ns;
};

static int by_over(const void *a, const void *b)
{
    const struct ended *one = a, *other = b;
    return (one->over_ns > other->over_ns) - (one->over_ns < other->over_ns);
}

/* All that were over in (since_ns, until_ns], in the order of their ends; to be freed. NULL: no memory. */
static struct ended *ended_list(const struct trace *trace, uint64_t since_ns, uint64_t until_ns,
                                size_t *count)
{
    struct ended *list = calloc(trace->count + 1, sizeof *list);
    *count = 0;
    for (size_t first = 0, end; list != NULL && first < trace->count; first = end) {
        end = first;
        while (end < trace->count && trace->events[end].trace_id == trace->events[first].trace_id) {
            end++;
        }
        struct op op = op_of(&trace->events[first], end - first);
        uint64_t over = over_ns(&op);
        if (over > since_ns && over <= until_ns) {
            list[(*count)++] =
                (struct ended){.first = first, .count = end - first, .over_ns = over};
        }
    }
    if (list != NULL) {
        qsort(list, *count, sizeof *list, by_over);
    }
    return list;
}

static json_t *request_of(const struct trace *trace, json_t *spans)
{
    char host[256] = "", instance[300];
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(instance, sizeof instance, "%s/%s", host,
                   sl_config_text(trace->ctl->config, SL_SET_instance));
    return json_pack("{s:[{s:{s:[o, o, o]}, s:[{s:{s:s, s:s}, s:o}]}]}", "resourceSpans",
                     "resource", "attributes", attribute_text("service.name", "sluice"),
                     attribute_text("service.instance.id", instance),
                     attribute_text("host.name", host), "scopeSpans", "scope", "name", "sluice",
                     "version", SL_VERSION, "spans", spans);
}

static sl_err batch_give(const struct trace *trace, struct batch *batch, otlp_take_fn take,
                         void *context, struct sl_error *why)
{
    struct batch full = *batch;
    *batch = (struct batch){.spans = json_array()};
    return take(context, request_of(trace, full.spans), full.op_count, full.over_ns, why);
}

/* Ops that ended in the same moment stay together: who goes on behind over_ns shall miss none. */
static bool batch_is_full(const struct batch *batch, const json_t *spans, size_t bytes,
                          uint64_t over_ns)
{
    return batch->op_count > 0 && over_ns != batch->over_ns &&
           (json_array_size(batch->spans) + json_array_size(spans) > OTLP_SPANS_MAX ||
            batch->bytes + bytes > OTLP_BYTES_MAX);
}

sl_err otlp_requests(const struct trace *trace, uint64_t since_ns, uint64_t until_ns,
                     otlp_take_fn take, void *context, struct sl_error *why)
{
    size_t count;
    struct ended *list = ended_list(trace, since_ns, until_ns, &count);
    if (list == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the spans");
    }
    struct batch batch = {.spans = json_array()};
    struct spans spans = {.to_unix_ns = sl_clock_wall_ns() - sl_clock_monotonic_ns()};
    sl_err err = SL_OK;
    for (size_t i = 0; err == SL_OK && i < count; i++) {
        struct op op = op_of(&trace->events[list[i].first], list[i].count);
        spans.array = json_array();
        op_add(&spans, &op);
        size_t bytes =
            list[i].count * EVENT_BYTES + json_array_size(spans.array) * (size_t)SPAN_BYTES;
        if (batch_is_full(&batch, spans.array, bytes, list[i].over_ns)) {
            err = batch_give(trace, &batch, take, context, why);
        }
        (void)json_array_extend(batch.spans, spans.array);
        json_decref(spans.array);
        batch.op_count++;
        batch.bytes += bytes;
        batch.over_ns = list[i].over_ns;
    }
    if (err == SL_OK && batch.op_count > 0) {
        err = batch_give(trace, &batch, take, context, why);
    }
    json_decref(batch.spans);
    free(list);
    return err;
}
