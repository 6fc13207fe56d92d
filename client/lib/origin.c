/* client/lib/origin.c - the origin of a thread's ops; and the outcome of an op. */
#include "client/lib/op.h"
#include "runtime/base/sl_traceparent.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NOLINTNEXTLINE(misc-redundant-expression): one is of the interface, the other of messages */
static_assert((int)SL_OUTCOME_REFUSED == (int)SL_BLOCK_REFUSED, "the same in both");

static _Thread_local struct sl_op_origin origin_self;

sl_err sl_trace_context_set(const struct sl_trace_context *origin, struct sl_error *why)
{
    struct sl_op_origin next = {.request = ""};
    const char *request = origin != NULL && origin->request != NULL ? origin->request : "";
    const char *parent = origin != NULL && origin->traceparent != NULL ? origin->traceparent : "";
    if (strlen(request) >= sizeof next.request || !sl_text_is_clean(request, strlen(request))) {
        return sl_fail(why, SL_ERR_INVALID, "origin: a request's name is UTF-8 of up to %zu bytes",
                       sizeof next.request - 1);
    }
    struct sl_traceparent parsed;
    if (parent[0] != '\0' && !sl_traceparent_parse(parent, strlen(parent), &parsed)) {
        return sl_fail(why, SL_ERR_INVALID, "origin: '%.64s' is not a traceparent", parent);
    }
    (void)snprintf(next.request, sizeof next.request, "%s", request);
    if (parent[0] != '\0') {
        sl_traceparent_text(&parsed, next.traceparent);
    }
    origin_self = next;
    return SL_OK;
}

void sl_op_origin_take(struct sl_op *op)
{
    op->origin = origin_self;
}

/* ---- the outcome of an op ---- */

struct asked {
    struct sl_op_trace *trace;
    bool answered;
};

void sl_op_trace_free(struct sl_op_trace *trace)
{
    free(trace->runs);
    free(trace->keys);
    trace->runs = NULL;
    trace->keys = NULL;
    trace->run_count = trace->key_count = 0;
}

static void runs_take(struct sl_op_trace *trace, const struct sl_body_op_trace_reply *body)
{
    trace->runs = malloc((body->runs.count + 1) * sizeof *trace->runs);
    for (uint64_t i = 0; trace->runs != NULL && i < body->runs.count; i++) {
        const struct sl_item_run *run = &body->runs.at[i];
        trace->runs[i] = (struct sl_block_run){.count = (uint32_t)run->count,
                                               .outcome = run->outcome <= SL_OUTCOME_REFUSED
                                                              ? (enum sl_block_outcome)run->outcome
                                                              : SL_OUTCOME_OPEN,
                                               .at_ns = run->at_ns};
        trace->run_count++;
    }
}

/* Copies the keys, followed by their texts. */
static void keys_take(struct sl_op_trace *trace, const struct sl_texts *from)
{
    size_t bytes = from->count * sizeof *trace->keys + 1;
    for (uint64_t i = 0; i < from->count; i++) {
        bytes += from->at[i].length;
    }
    trace->keys = malloc(bytes);
    char *text = trace->keys == NULL ? NULL : (char *)(trace->keys + from->count);
    for (uint64_t i = 0; text != NULL && i < from->count; i++) {
        memcpy(text, from->at[i].at, from->at[i].length);
        trace->keys[i] = (struct sl_object_key){.at = text, .length = (uint32_t)from->at[i].length};
        text += from->at[i].length;
        trace->key_count++;
    }
}

static void trace_taken(void *context, const struct sl_msg *reply)
{
    struct asked *asked = context;
    const struct sl_body_op_trace_reply *body = &reply->body.op_trace_reply;
    struct sl_op_trace *trace = asked->trace;
    if (reply->code != SL_OK) {
        return;
    }
    sl_op_trace_free(trace); /* from an answer that arrived twice */
    *trace = (struct sl_op_trace){
        .op_id = body->op,
        .trace_id = body->trace,
        .engine_id = body->engine_id,
        .store = body->store,
        .running = body->running,
        .code = sl_err_received(body->result),
        .first_block = (uint32_t)body->first_block,
        .keys_first = (uint32_t)body->keys_first,
        .ago_ns = body->ago_ns,
        .took_ns = body->took_ns,
    };
    sl_client_text_take(trace->reason, sizeof trace->reason, &body->reason);
    sl_client_text_take(trace->requester, sizeof trace->requester, &body->requester);
    sl_client_text_take(trace->request, sizeof trace->request, &body->request);
    sl_client_text_take(trace->traceparent, sizeof trace->traceparent, &body->traceparent);
    sl_client_text_take(trace->model, sizeof trace->model, &body->model);
    runs_take(trace, body);
    keys_take(trace, &body->keys);
    asked->answered = true;
}

sl_err sl_op_trace_get(struct sl_client *client, const char *id, uint32_t skip,
                       struct sl_op_trace *trace, uint64_t timeout_ns, struct sl_error *why)
{
    *trace = (struct sl_op_trace){0};
    struct asked asked = {.trace = trace};
    if (id[0] == '\0' || strlen(id) >= SL_TRACE_CONTEXT_BYTES ||
        !sl_text_is_clean(id, strlen(id))) {
        return sl_fail(why, SL_ERR_INVALID,
                       "a trace id is hex digits, and a request's name UTF-8 of up to %u bytes",
                       SL_TRACE_CONTEXT_BYTES - 1);
    }
    struct sl_client_call call = {.to = "coordinator",
                                  .deadline_ns = sl_client_deadline(client, timeout_ns),
                                  .answered = trace_taken,
                                  .context = &asked};
    call.msg.type = SL_MSG_OP_TRACE;
    call.msg.body.op_trace.id = sl_text_of(id);
    call.msg.body.op_trace.skip = skip;
    sl_err err = sl_client_check_writable(client, why);
    err = err == SL_OK ? sl_client_call(client, &call, why) : err;
    if (err == SL_OK && !asked.answered) {
        err = sl_fail(why, SL_ERR_PROTOCOL, "the coordinator answered nothing about the op");
    }
    return err;
}
