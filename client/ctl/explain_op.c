/* client/ctl/explain_op.c - sluicectl explain --request: what became of the ops of a request. */
#include "client/ctl/explain.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define OPS_MAX 64u /* of one request that are shown */

static const char *const fates[] = {
    [SL_FATE_OPEN] = "open",       [SL_FATE_MEMORY] = "memory",   [SL_FATE_DISK] = "disk",
    [SL_FATE_REMOTE] = "remote",   [SL_FATE_MISSING] = "missing", [SL_FATE_BEHIND] = "behind",
    [SL_FATE_LEFT] = "left",       [SL_FATE_FAILED] = "failed",   [SL_FATE_STORED] = "stored",
    [SL_FATE_EXISTED] = "existed", [SL_FATE_REFUSED] = "refused",
};

struct story_of_op {
    struct sl_told told;
    struct sl_story *stories; /* one for each of told.keys: as things are now */
    char elsewhere[1024];     /* of the first: under another identity; "": nowhere */
};

static bool is_hit(enum sl_fate fate)
{
    return fate == SL_FATE_MEMORY || fate == SL_FATE_DISK || fate == SL_FATE_REMOTE ||
           fate == SL_FATE_STORED || fate == SL_FATE_EXISTED;
}

/* The same block under another identity, where that makes keys alike. */
static bool same_block(void *context, const json_t *there, char *key, size_t room)
{
    const struct sl_object_key *block = context;
    const char *slash = memchr(block->at, '/', block->length);
    (void)there;
    int length = slash == NULL
                     ? -1
                     : snprintf(key, room, "%.*s",
                                (int)(block->length - (size_t)(slash + 1 - block->at)), slash + 1);
    return length > 0 && (size_t)length < room;
}

static sl_err op_look(struct sl_client *client, const json_t *identities, struct story_of_op *of,
                      struct sl_error *why)
{
    struct sl_told *told = &of->told;
    if (told->key_count == 0) {
        return SL_OK;
    }
    of->stories = calloc(told->key_count, sizeof *of->stories);
    if (of->stories == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "%u keys", told->key_count);
    }
    sl_err err = explain_keys(client, told->keys, told->key_count, of->stories, why);
    return err != SL_OK || told->store || of->stories[0].code == SL_OK
               ? err
               : identities_seek(client, identities, told->model, same_block, &told->keys[0],
                                 of->elsewhere, sizeof of->elsewhere, why);
}

static json_t *op_json(const struct story_of_op *of)
{
    const struct sl_told *told = &of->told;
    char op[17], trace[17];
    json_t *runs = json_array(), *keys = json_array();
    uint32_t block = told->first_block;
    (void)snprintf(op, sizeof op, "%016" PRIx64, told->op_id);
    (void)snprintf(trace, sizeof trace, "%016" PRIx64, told->trace_id);
    for (uint32_t i = 0; i < told->run_count; i++) {
        const struct sl_told_run *run = &told->runs[i];
        (void)json_array_append_new(
            runs, json_pack("{s:o, s:o, s:s, s:o}", "first_block", ctl_json_u64(block), "count",
                            ctl_json_u64(run->count), "fate", fates[run->fate], "at_ns",
                            ctl_json_u64(run->at_ns)));
        block += run->count;
    }
    for (uint32_t i = 0; i < told->key_count; i++) {
        json_t *one = explain_json(told->keys[i], &of->stories[i]);
        (void)json_object_set_new(one, "block", ctl_json_u64(told->keys_first + i));
        (void)json_array_append_new(keys, one);
    }
    return json_pack(
        "{s:s, s:s, s:s, s:b, s:s, s:s, s:o, s:o, s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}",
        "kind", told->store ? "store" : "load", "op", op, "trace", trace, "running", told->running,
        "code", sl_err_name(told->code), "ended",
        told->running         ? "under way"
        : told->code == SL_OK ? "ended"
                              : sl_err_text(told->code),
        "reason", ctl_json_text(told->reason), "requester", ctl_json_text(told->requester),
        "request", ctl_json_text(told->request), "traceparent", told->traceparent, "model",
        told->model, "engine", ctl_json_u64(told->engine_id), "ago_ns", ctl_json_u64(told->ago_ns),
        "took_ns", ctl_json_u64(told->took_ns), "runs", runs, "not_there", keys, "elsewhere",
        of->elsewhere[0] == '\0' ? json_null() : ctl_json_text(of->elsewhere));
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
    json_t *identities = identities_read(ctl), *rows = json_array();
    bool all = true;
    uint64_t known[OPS_MAX];
    uint32_t shown = 0;
    sl_err err = ctl_open(ctl, false, &client, &why);
    for (uint32_t skip = 0; err == SL_OK && skip < OPS_MAX; skip++) {
        struct story_of_op of = {.stories = NULL};
        err = sl_op_tell(client, id, skip, &of.told, 0, &why);
        if (err == SL_OK && is_known(known, shown, of.told.op_id)) { /* one began meanwhile */
            sl_told_free(&of.told);
            continue;
        }
        if (err == SL_OK) {
            known[shown++] = of.told.op_id;
            err = op_look(client, identities, &of, &why);
        }
        for (uint32_t i = 0; err == SL_OK && i < of.told.run_count; i++) {
            all = all && is_hit(of.told.runs[i].fate);
        }
        if (err == SL_OK) {
            (void)json_array_append_new(rows, op_json(&of));
        }
        free(of.stories);
        sl_told_free(&of.told);
        if (err != SL_OK) {
            break;
        }
    }
    sl_client_close(&client);
    json_decref(identities);
    if (err != SL_OK && (err != SL_ERR_NOT_FOUND || shown == 0)) {
        json_decref(rows);
        return ctl_failed(ctl, &why);
    }
    int code = ctl_answer(ctl, json_pack("{s:o}", "ops", rows));
    return code == CTL_FINE && !all ? CTL_NO : code;
}
