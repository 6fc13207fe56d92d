/* actors/transporter/pull/check.c - the phase TR_CHECK of a pull: swappers digest what was read
 * into device memory, before it counts as delivered (regions/digests.h). */
#include "actors/transporter/pull/pull.h"
#include "actors/transporter/regions/digests.h"

#include <inttypes.h>

/* Lists the targets of the batch in device memory; owner: index of their unit. */
static void looks_make(struct transporter *self, const struct tr_fetch_batch *fetch_batch,
                       struct tr_verify_batch *out)
{
    out->count = 0;
    out->trace_id = fetch_batch->trace_id;
    out->deadline_ns = fetch_batch->deadline_ns;
    out->cookie = tr_cookie(TR_CALL_FETCH_BATCH, (uint32_t)(fetch_batch - self->fetch_batches));
    for (uint32_t u = 0; u < fetch_batch->unit_count; u++) {
        for (uint32_t k = 0; k < fetch_batch->units[u]->part_count; k++) {
            struct tr_part *part = &fetch_batch->units[u]->parts[k];
            for (uint32_t i = 0; i < part->read_count; i++) {
                if (part->targets[i].device) {
                    SL_ASSERT(out->count < TR_KEYS_MAX);
                    out->at[out->count++] =
                        (struct tr_verify){.slot = &part->targets[i].slot,
                                           .range = {.length_bytes = part->slot_bytes},
                                           .length_bytes = part->slot_bytes,
                                           .want = part->digest,
                                           .state = &part->targets[i].look,
                                           .owner = u};
                }
            }
        }
    }
}

/* Removes units with a wrong or unchecked target from the batch. */
static void units_leave(struct transporter *self, struct tr_fetch_batch *fetch_batch,
                        const struct tr_verify_batch *looks)
{
    bool wrong = false;
    for (uint32_t i = 0; i < looks->count; i++) {
        sl_err code = looks->at[i].code;
        struct tr_unit *unit = fetch_batch->units[looks->at[i].owner];
        if (code == SL_OK || unit == NULL) {
            continue;
        }
        fetch_batch->units[looks->at[i].owner] = NULL;
        if (code == SL_ERR_CORRUPT) {
            sl_metric_add(self->env->metrics, self->metric.digests_bad, 1);
            wrong = true;
            (void)tr_unit_retry(self, unit, fetch_batch, code);
        } else {
            tr_unit_end(self, unit, code);
        }
    }
    if (wrong) {
        tr_peer_failed(self, &self->peers[fetch_batch->peer]);
    }
    tr_fetch_batch_compact(fetch_batch);
}

bool tr_check_next(struct transporter *self, struct tr_fetch_batch *fetch_batch)
{
    struct tr_verify_batch looks;
    struct sl_error why = {0};
    bool asked = false;
    looks_make(self, fetch_batch, &looks);
    fetch_batch->phase = TR_COPY;
    sl_err err = tr_verify_ask(self, &looks, &fetch_batch->call_seq, &asked, &why);
    if (err == SL_OK && asked) {
        fetch_batch->phase = TR_CHECK;
    } else if (err != SL_OK) {
        units_leave(self, fetch_batch, &looks);
    }
    return asked;
}

void tr_check_answered(struct transporter *self, struct tr_fetch_batch *fetch_batch,
                       const struct sl_msg *reply)
{
    struct tr_verify_batch looks;
    looks_make(self, fetch_batch, &looks);
    const struct tr_verify *wrong = tr_verify_answered(&looks, reply);
    if (wrong != NULL && (reply == NULL || reply->code != SL_OK)) {
        sl_log_write(self->env->log, SL_LOG_WARN, fetch_batch->trace_id,
                     "bytes in device memory of engine %" PRIu64
                     ", rank %u, are not verified and not used: %s",
                     wrong->slot->engine_id, wrong->slot->rank,
                     reply != NULL && reply->text.length > 0 ? reply->text.at
                                                             : sl_err_text(wrong->code));
    }
    units_leave(self, fetch_batch, &looks);
    tr_fetch_batch_landed(self, fetch_batch);
}
