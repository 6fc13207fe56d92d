/* actors/coordinator/release.c - a hold at prefill's node ends when decode at another one has
 * loaded what it holds, or failed.
 *
 * Decode's coordinator tells its transporter, that tells prefill's, and that its coordinator. The
 * receipt proves that decode was meant: number, length and keys of the hand-over. Nothing waits for
 * the word; when it is lost, the hold ends by its time. */
#include "actors/coordinator/internal.h"

#include <inttypes.h>
#include <string.h>

void co_release_send(struct coordinator *self, const struct co_receipt *receipt,
                     uint64_t handover_id, uint64_t trace_id)
{
    if (!receipt->known || receipt->node[0] == '\0' || strcmp(receipt->node, self->node) == 0) {
        return;
    }
    const struct sl_item_receipt item = {
        .handover_id = handover_id,
        .block_end = receipt->block_end,
        .keys_low = receipt->keys.low,
        .keys_high = receipt->keys.high,
        .node = sl_text_of(receipt->node),
    };
    struct sl_msg release = {.type = SL_MSG_HANDOVER_RELEASE, .trace_id = trace_id};
    release.body.handover_release.items.at = &item;
    release.body.handover_release.items.count = 1;
    (void)sl_calls_send(self->calls, "transporter.0", &release,
                        sl_deadline_ns(self->env->now_ns, CO_CALL_NS),
                        co_cookie(CO_CALL_NOBODY, 0, 0), NULL);
}

static sl_err release_one(struct coordinator *self, const struct sl_msg *msg,
                          const struct sl_item_receipt *item)
{
    sl_err code = item->node.length == strlen(self->node) &&
                          memcmp(item->node.at, self->node, item->node.length) == 0
                      ? co_handover_taken(self, item, msg->trace_id)
                      : SL_ERR_PERMISSION; /* not our hand-over */
    if (code == SL_OK) {
        sl_metric_add(self->env->metrics, self->metric.handover_released_count, 1);
    } else if (code != SL_ERR_NOT_FOUND) {
        const struct sl_text *from = &msg->body.handover_release.from;
        sl_metric_add(self->env->metrics, self->metric.release_refused_count, 1);
        sl_log_write(self->env->log, SL_LOG_WARN, msg->trace_id,
                     "node %.31s may not end hand-over %016" PRIx64 ": %s",
                     from->length > 0 ? from->at : "?", item->handover_id, sl_err_text(code));
    }
    return code;
}

void co_release_handle(struct coordinator *self, const struct sl_msg *msg)
{
    uint64_t codes[64];
    uint64_t count = SL_MIN(msg->body.handover_release.items.count, SL_COUNT(codes));
    for (uint64_t i = 0; i < count; i++) {
        codes[i] = (uint64_t)release_one(self, msg, &msg->body.handover_release.items.at[i]);
    }
    struct sl_msg reply = {.code = SL_OK};
    reply.body.handover_release_reply.codes = (struct sl_u64s){.at = codes, .count = count};
    sl_reply(self->env, msg, &reply);
}
