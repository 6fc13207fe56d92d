/* actors/coordinator/op_trace.c - traces of ops, block by block: of the last CO_OP_TRACES_MAX that
 * ended, and of those in flight. A trace has runs of blocks with equal results, so its size depends
 * on a load's slices, not on its blocks. */
#include "actors/coordinator/op_trace.h"
#include "actors/coordinator/internal.h"
#include "runtime/base/sl_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct co_op_trace {
    uint64_t op_id, trace_id, engine_id, started_ns, took_ns, bytes;
    sl_err code;
    bool store, running;
    uint32_t first_block, run_count, key_count, keys_first;
    char requester[32], model[33];
    char request[CO_ORIGIN_TEXT_BYTES], traceparent[CO_ORIGIN_TEXT_BYTES];
    char reason[CO_REASON_BYTES];
    const struct sl_text *keys; /* after the runs, then their strings */
    struct sl_item_run runs[];
};

/* ---- making a trace ---- */

/* The result of block i. */
static struct sl_item_run outcome_of(const struct co_op *op, uint32_t i)
{
    struct sl_item_run run = {.count = 1};
    if (op->type->kind == CO_STORE) {
        run.outcome = co_bit(op->stored, i)    ? SL_BLOCK_STORED
                      : co_bit(op->existed, i) ? SL_BLOCK_EXISTED
                      : op->answered           ? SL_BLOCK_REFUSED
                                               : SL_BLOCK_OPEN;
        return run;
    }
    if (i < op->at) {
        const struct co_block *block = &op->blocks[i];
        run.outcome = block->tier == CO_TIER_DISK     ? SL_BLOCK_DISK
                      : block->tier == CO_TIER_REMOTE ? SL_BLOCK_REMOTE
                                                      : SL_BLOCK_MEMORY;
        run.at_ns = block->came_ns - op->started_ns;
        return run;
    }
    run.outcome = !op->answered                 ? SL_BLOCK_OPEN
                  : i - op->at < op->wait.left  ? SL_BLOCK_LEFT
                  : op->code != SL_OK           ? SL_BLOCK_FAILED
                  : i == op->at + op->wait.left ? SL_BLOCK_MISSING
                                                : SL_BLOCK_BEHIND;
    return run;
}

/* Gives the number of runs; runs NULL: only counts. The last run has the rest beyond the bound. */
static uint32_t runs_make(const struct co_op *op, struct sl_item_run *runs)
{
    struct sl_item_run last = {0};
    uint32_t count = 0;
    for (uint32_t i = 0; op->blocks != NULL && i < op->block_count; i++) {
        struct sl_item_run run = outcome_of(op, i);
        bool same = run.outcome == last.outcome && run.at_ns == last.at_ns;
        if (count == 0 || (!same && count < CO_OP_TRACE_RUNS_MAX)) {
            last = run;
            if (runs != NULL) {
                runs[count] = run;
            }
            count++;
        } else if (runs != NULL) {
            runs[count - 1].count++;
        }
    }
    return count;
}

static bool block_is_done(const struct co_op *op, uint32_t i)
{
    return op->type->kind == CO_STORE ? co_bit(op->stored, i) || co_bit(op->existed, i)
                                      : i < op->at;
}

/* Counts the first missing blocks in a row, up to CO_OP_TRACE_KEYS_MAX; sets *first. */
static uint32_t keys_count(const struct co_op *op, uint32_t *first)
{
    uint32_t from = 0, count = 0;
    if (op->engine == NULL || op->blocks == NULL) {
        return 0;
    }
    while (from < op->block_count && block_is_done(op, from)) {
        from++;
    }
    while (count < CO_OP_TRACE_KEYS_MAX && from + count < op->block_count &&
           !block_is_done(op, from + count) && op->blocks[from + count].key.length > 0) {
        count++;
    }
    *first = op->first_block + from;
    return count;
}

static void text_keep(char *to, size_t room, const char *text)
{
    (void)snprintf(to, room, "%s", text == NULL ? "" : text);
}

static struct co_op_trace *op_trace_make(const struct coordinator *self, const struct co_op *op)
{
    uint32_t keys_first = 0;
    uint32_t run_count = runs_make(op, NULL), key_count = keys_count(op, &keys_first);
    const char *model = op->engine != NULL ? op->engine->model : "";
    size_t model_length = strlen(model);
    size_t keys_at = sizeof(struct co_op_trace) + run_count * sizeof(struct sl_item_run);
    size_t texts_at = keys_at + key_count * sizeof(struct sl_text);
    size_t bytes = texts_at;
    for (uint32_t i = 0; i < key_count; i++) {
        bytes += model_length + 2 + op->blocks[keys_first - op->first_block + i].key.length;
    }
    struct co_op_trace *trace = malloc(bytes);
    if (trace == NULL) {
        return NULL;
    }
    *trace = (struct co_op_trace){
        .op_id = op->id,
        .trace_id = op->trace_id,
        .engine_id = op->engine_id,
        .started_ns = op->started_ns,
        .took_ns = self->env->now_ns - op->started_ns,
        .bytes = bytes,
        .code = op->code,
        .store = op->type->kind == CO_STORE,
        .running = !op->answered,
        .first_block = op->first_block,
        .run_count = run_count,
        .key_count = key_count,
        .keys_first = keys_first,
    };
    text_keep(trace->requester, sizeof(trace->requester), op->back.to);
    text_keep(trace->model, sizeof(trace->model), model);
    text_keep(trace->request, sizeof(trace->request), op->origin.request);
    text_keep(trace->traceparent, sizeof(trace->traceparent), op->origin.traceparent);
    text_keep(trace->reason, sizeof(trace->reason),
              op->answered ? op->reason : co_phase_text(op->phase));
    (void)runs_make(op, trace->runs);
    struct sl_text *keys = (struct sl_text *)(void *)((char *)trace + keys_at);
    char *text = (char *)trace + texts_at;
    for (uint32_t i = 0; i < key_count; i++) {
        struct sl_key key = op->blocks[keys_first - op->first_block + i].key;
        keys[i] = (struct sl_text){.at = text, .length = model_length + 1 + key.length};
        memcpy(text, model, model_length);
        text[model_length] = '/';
        memcpy(text + model_length + 1, key.at, key.length);
        text[keys[i].length] = '\0';
        text += keys[i].length + 1;
    }
    trace->keys = keys;
    return trace;
}

/* ---- recent traces ---- */

static void oldest_drop(struct co_op_traces *op_traces)
{
    struct co_op_trace **slot = &op_traces->ring[op_traces->oldest++ % CO_OP_TRACES_MAX];
    op_traces->bytes -= *slot != NULL ? (*slot)->bytes : 0;
    free(*slot);
    *slot = NULL;
}

static void op_trace_note(struct coordinator *self, struct co_op *op)
{
    struct co_op_traces *op_traces = &self->op_traces;
    struct co_op_trace *trace = op_trace_make(self, op);
    if (trace == NULL) {
        return;
    }
    while (op_traces->oldest < op_traces->next &&
           (op_traces->next - op_traces->oldest == CO_OP_TRACES_MAX ||
            op_traces->bytes + trace->bytes > CO_OP_TRACES_BYTES_MAX)) {
        oldest_drop(op_traces);
    }
    op_traces->ring[op_traces->next++ % CO_OP_TRACES_MAX] = trace;
    op_traces->bytes += trace->bytes;
}

static void op_traces_fini(struct coordinator *self)
{
    while (self->op_traces.oldest < self->op_traces.next) {
        oldest_drop(&self->op_traces);
    }
}

/* ---- OP_TRACE ---- */

struct wanted {
    const char *name; /* of the request */
    uint64_t trace_id, skip;
    bool longer; /* if no op has exactly that name: also match names that an engine extended; vLLM
                    appends eight random hexadecimal digits */
};

static bool is_called(const char *request, const struct wanted *wanted)
{
    size_t length = strlen(wanted->name);
    if (length == 0 || strncmp(request, wanted->name, length) != 0) {
        return false;
    }
    const char *more = request + length;
    return more[0] == '\0' || (wanted->longer && more[0] == '-' && strlen(more) == 9 &&
                               strspn(more + 1, "0123456789abcdef") == 8);
}

static bool matches(struct wanted *wanted, uint64_t trace_id, const char *request)
{
    bool is = (wanted->trace_id != 0 && trace_id == wanted->trace_id) ||
              (request != NULL && is_called(request, wanted));
    return is && wanted->skip-- == 0;
}

static bool is_in_flight(const struct co_op *op)
{
    return !op->answered && op->type->kind != CO_UNKNOWN; /* answered ones have a trace */
}

/* Gives the op in flight that is meant, or sets *trace to the trace of an ended one; else NULL. */
static const struct co_op *find(const struct coordinator *self, struct wanted *wanted,
                                const struct co_op_trace **trace)
{
    *trace = NULL;
    for (const struct co_op *op = self->active_last; op != NULL; op = op->older) {
        if (is_in_flight(op) && matches(wanted, op->trace_id, op->origin.request)) {
            return op;
        }
    }
    for (uint64_t i = self->op_traces.next; i-- > self->op_traces.oldest && *trace == NULL;) {
        const struct co_op_trace *one = self->op_traces.ring[i % CO_OP_TRACES_MAX];
        *trace = matches(wanted, one->trace_id, one->request) ? one : NULL;
    }
    return NULL;
}

static void op_trace_reply(struct coordinator *self, const struct sl_msg *msg,
                           const struct co_op_trace *trace)
{
    struct sl_msg reply = {.code = SL_OK};
    struct sl_body_op_trace_reply *body = &reply.body.op_trace_reply;
    *body = (struct sl_body_op_trace_reply){
        .op = trace->op_id,
        .trace = trace->trace_id,
        .engine_id = trace->engine_id,
        .store = trace->store,
        .running = trace->running,
        .result = trace->code,
        .reason = sl_text_of(trace->reason),
        .requester = sl_text_of(trace->requester),
        .request = sl_text_of(trace->request),
        .traceparent = sl_text_of(trace->traceparent),
        .model = sl_text_of(trace->model),
        .first_block = trace->first_block,
        .ago_ns = self->env->now_ns - trace->started_ns,
        .took_ns = trace->took_ns,
        .keys_first = trace->keys_first,
    };
    body->runs.at = trace->runs;
    body->runs.count = trace->run_count;
    body->keys.at = trace->keys;
    body->keys.count = trace->key_count;
    sl_reply(self->env, msg, &reply);
}

void co_op_trace_handle(struct coordinator *self, const struct sl_msg *msg)
{
    const struct sl_body_op_trace *body = &msg->body.op_trace;
    const struct co_op_trace *trace;
    struct wanted wanted = {.name = body->id.at};
    (void)sl_parse_hex(body->id.at, &wanted.trace_id); /* 0: the name of a request */
    wanted.longer = find(self, &wanted, &trace) == NULL && trace == NULL;
    wanted.skip = body->skip;
    const struct co_op *op = find(self, &wanted, &trace);
    struct co_op_trace *made = op != NULL ? op_trace_make(self, op) : NULL;
    if (made != NULL || trace != NULL) {
        op_trace_reply(self, msg, made != NULL ? made : trace);
    } else if (op != NULL) {
        sl_reply_fail(self->env, msg, SL_ERR_NO_MEMORY, "no memory for its trace");
    } else {
        sl_reply_fail(self->env, msg, SL_ERR_NOT_FOUND,
                      "not among the last %llu ops of this coordinator, which remembers %u",
                      (unsigned long long)(self->op_traces.next - self->op_traces.oldest),
                      CO_OP_TRACES_MAX);
    }
    free(made);
}

const struct co_feature co_op_trace_feature = {.fini = op_traces_fini, .ended = op_trace_note};
