/* client/lib/explain.c - asks the registrar why keys are misses. */
#include "client/lib/internal.h"

#include <string.h>

struct asked {
    struct sl_miss_reason *reasons;
    uint32_t count;
    bool answered;
};

static void stories_taken(void *context, const struct sl_msg *reply)
{
    struct asked *asked = context;
    if (reply->code != SL_OK || reply->body.explain_reply.items.count != asked->count) {
        return;
    }
    for (uint32_t i = 0; i < asked->count; i++) {
        const struct sl_item_explanation *item = &reply->body.explain_reply.items.at[i];
        struct sl_miss_reason *reason = &asked->reasons[i];
        *reason = (struct sl_miss_reason){.ago_ns = item->ago_ns};
        reason->code = sl_err_received(item->code);
        sl_client_text_take(reason->text, sizeof reason->text, &item->text);
    }
    asked->answered = true;
}

sl_err sl_explain(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                  struct sl_miss_reason *reasons, uint64_t timeout_ns, struct sl_error *why)
{
    if (count == 0 || count > SL_EXPLAIN_KEYS_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "explain: %u keys, 1 to %u are possible", count,
                       SL_EXPLAIN_KEYS_MAX);
    }
    struct sl_text texts[SL_EXPLAIN_KEYS_MAX];
    sl_err err = sl_client_keys_check("explain", keys, count, why);
    if (err != SL_OK) {
        return err;
    }
    for (uint32_t i = 0; i < count; i++) {
        texts[i] = (struct sl_text){.at = keys[i].at, .length = keys[i].length};
    }
    struct asked asked = {.reasons = reasons, .count = count};
    struct sl_client_call call = {.deadline_ns = sl_client_deadline(client, timeout_ns),
                                  .answered = stories_taken,
                                  .context = &asked};
    call.msg.type = SL_MSG_EXPLAIN;
    call.msg.body.explain.keys.at = texts;
    call.msg.body.explain.keys.count = count;
    err = sl_client_call_registrar(client, &call, why);
    if (err == SL_OK && !asked.answered) {
        err = sl_fail(why, SL_ERR_PROTOCOL, "explain: the registrar answered with another count");
    }
    return err;
}
