/* client/ctl/trace.h - events of ops, from flight recorders and logs; and sending them as OTLP. */
#ifndef SL_CLIENT_CTL_TRACE_H
#define SL_CLIENT_CTL_TRACE_H

#include "client/ctl/commands.h"
#include "runtime/sl_traceparent.h"

struct event {
    uint64_t at_ns, trace_id;
    char actor[32];
    char peer[16];
    char what[24];
    char *text; /* owned; NULL: of a flight recorder */
    uint32_t value;
    bool is_parent; /* it is the op's place in its caller's trace, which is: */
    struct sl_traceparent parent;
};

struct trace {
    const struct ctl *ctl;
    uint64_t trace_id; /* 0: all */
    struct event *events;
    size_t count, room;
    bool full;
};

/* ---- trace.c ---- */
/* All that the recorders know, sorted by op and time. Gives how many recorders there are. */
uint32_t trace_collect(struct trace *trace);
void trace_free(struct trace *trace);

/* ---- otlp.c: ops as spans of OpenTelemetry ---- */
/* ExportTraceServiceRequests in OTLP's JSON (https://opentelemetry.io/docs/specs/otlp/) of the ops
 * that were over in (since_ns, until_ns], monotonic, in the order of their ends: at most
 * OTLP_SPANS_MAX spans and about OTLP_BYTES_MAX a request, unless one op has more. until_ns lies a little
 * in the past, so that nothing comes behind. take takes each request; over_ns: all ops that were over by
 * then are in it or in one before. Ends with the first error of take; SL_ERR_NO_MEMORY. */
#define OTLP_SETTLE_NS SL_NS_PER_S
#define OTLP_SPANS_MAX 512u
#define OTLP_BYTES_MAX (1024 * 1024u)
typedef sl_err (*otlp_take_fn)(void *context, json_t *request, size_t op_count, uint64_t over_ns,
                               struct sl_error *why);
sl_err otlp_requests(const struct trace *trace, uint64_t since_ns, uint64_t until_ns,
                     otlp_take_fn take, void *context, struct sl_error *why);

/* ---- otlp_send.c ---- */
/* To a collector (http://, https://), a file (appended, a line a request) or "-". The program `curl` does
 * the first, with the headers of OTEL_EXPORTER_OTLP_HEADERS. Takes the request. Errors:
 * SL_ERR_UNREACHABLE, SL_ERR_OS, SL_ERR_INVALID. */
sl_err otlp_send(const char *where, json_t *request, struct sl_error *why);

#endif
