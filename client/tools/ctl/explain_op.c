/* client/tools/ctl/explain_op.c - sluicectl explain --request: outcome of a request's ops. */
#include "client/tools/ctl/explain.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define OPS_MAX 64u /* shown for one request */

static const char *const outcomes[] = {
    [SL_OUTCOME_OPEN] = "open",       [SL_OUTCOME_MEMORY] = "memory",
    [SL_OUTCOME_DISK] = "disk",       [SL_OUTCOME_REMOTE] = "remote",
    [SL_OUTCOME_MISSING] = "missing", [SL_OUTCOME_BEHIND] = "behind",
    [SL_OUTCOME_LEFT] = "left",       [SL_OUTCOME_FAILED] = "failed",
    [SL_OUTCOME_STORED] = "stored",   [SL_OUTCOME_EXISTED] = "existed",
    [SL_OUTCOME_REFUSED] = "refused",
};

struct missing_of_op {
    struct sl_op_trace trace;
    struct sl_miss_reason *reasons; /* the present state of each of the op's missing keys */
};

static bool is_hit(enum sl_block_outcome outcome)
{
    return outcome == SL_OUTCOME_MEMORY || outcome == SL_OUTCOME_DISK ||
           outcome == SL_OUTCOME_REMOTE || outcome == SL_OUTCOME_STORED ||
           outcome == SL_OUTCOME_EXISTED;
}

static sl_err op_look(struct sl_client *client, struct missing_of_op *of, struct sl_error *why)
{
    struct sl_op_trace *trace = &of->trace;
    of->reasons = calloc(trace->key_count + 1, sizeof *of->reasons);
    return of->reasons == NULL
               ? sl_fail(why, SL_ERR_NO_MEMORY, "%u keys", trace->key_count)
               : explain_keys(client, trace->keys, trace->key_count, of->reasons, why);
}

static json_t *op_json(const struct missing_of_op *of)
{
    const struct sl_op_trace *trace = &of->trace;
    char op[17], trace_text[17];
    json_t *runs = json_array(), *keys = json_array();
    uint32_t block = trace->first_block;
    (void)snprintf(op, sizeof op, "%016" PRIx64, trace->op_id);
    (void)snprintf(trace_text, sizeof trace_text, "%016" PRIx64, trace->trace_id);
    for (uint32_t i = 0; i < trace->run_count; i++) {
        const struct sl_block_run *run = &trace->runs[i];
        (void)json_array_append_new(
            runs, json_pack("{s:o, s:o, s:s, s:o}", "first_block", ctl_json_u64(block), "count",
                            ctl_json_u64(run->count), "outcome", outcomes[run->outcome], "at_ns",
                            ctl_json_u64(run->at_ns)));
        block += run->count;
    }
    for (uint32_t i = 0; i < trace->key_count; i++) {
        json_t *one = explain_json(trace->keys[i], &of->reasons[i]);
        (void)json_object_set_new(one, "block", ctl_json_u64(trace->keys_first + i));
        (void)json_array_append_new(keys, one);
    }
    return json_pack(
        "{s:s, s:s, s:s, s:b, s:s, s:s, s:o, s:o, s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "kind",
        trace->store ? "store" : "load", "op", op, "trace", trace_text, "running", trace->running,
        "code", sl_err_name(trace->code), "ended",
        trace->running         ? "in progress"
        : trace->code == SL_OK ? "ended"
                               : sl_err_text(trace->code),
        "reason", ctl_json_text(trace->reason), "requester", ctl_json_text(trace->requester),
        "request", ctl_json_text(trace->request), "traceparent", trace->traceparent, "model",
        trace->model, "engine", ctl_json_u64(trace->engine_id), "ago_ns",
        ctl_json_u64(trace->ago_ns), "took_ns", ctl_json_u64(trace->took_ns), "runs", runs,
        "not_there", keys);
}

static bool is_known(const uint64_t *known, uint32_t count, uint64_t op_id)
{
    for (uint32_t i = 0; i < count; i++) {
        if (known[i] == op_id) {
            return true;
        }
    }
    return false;
}

int explain_request(struct ctl *ctl, const char *id)
{
    struct sl_error why = {0};
    struct sl_client *client = NULL;
    json_t *rows = json_array();
    bool all = true;
    uint64_t known[OPS_MAX];
    uint32_t shown = 0;
    sl_err err = ctl_open(ctl, false, &client, &why);
    for (uint32_t skip = 0; err == SL_OK && skip < OPS_MAX; skip++) {
        struct missing_of_op of = {.reasons = NULL};
        err = sl_op_trace_get(client, id, skip, &of.trace, 0, &why);
        if (err == SL_OK &&
            is_known(known, shown, of.trace.op_id)) { /* a new op shifted the list */
            sl_op_trace_free(&of.trace);
            continue;
        }
        if (err == SL_OK) {
            known[shown++] = of.trace.op_id;
            err = op_look(client, &of, &why);
        }
        for (uint32_t i = 0; err == SL_OK && i < of.trace.run_count; i++) {
            all = all && is_hit(of.trace.runs[i].outcome);
        }
        if (err == SL_OK) {
            (void)json_array_append_new(rows, op_json(&of));
        }
        free(of.reasons);
        sl_op_trace_free(&of.trace);
        if (err != SL_OK) {
            break;
        }
    }
    sl_client_close(&client);
    if (err != SL_OK && (err != SL_ERR_NOT_FOUND || shown == 0)) {
        json_decref(rows);
        return ctl_failed(ctl, &why);
    }
    const char *words[CTL_WORDS_MAX] = {"request", ctl->json ? "json" : "text", ctl->paths.log_dir};
    ctl_script_settings(ctl, words, 3);
    int code = ctl_script_print("explain.py", words, json_pack("{s:o}", "ops", rows));
    return code == CTL_SUCCESS && !all ? CTL_NO : code;
}
