/* actors/transporter/pull/check.c - the phase TR_CHECK of a pull: swappers digest what was read
 * into device memory, before it counts as delivered (regions/digests.h). */
#include "actors/transporter/pull/pull.h"
#include "actors/transporter/regions/digests.h"

#include <inttypes.h>

/* Lists the targets of the batch in device memory; owner: index of their unit. */
static void looks_make(struct transporter *self, const struct tr_trip *trip, struct tr_looks *out)
{
    out->count = 0;
    out->trace_id = trip->trace_id;
    out->deadline_ns = trip->deadline_ns;
    out->cookie = tr_cookie(TR_CALL_TRIP, (uint32_t)(trip - self->trips));
    for (uint32_t u = 0; u < trip->unit_count; u++) {
        for (uint32_t k = 0; k < trip->units[u]->part_count; k++) {
            struct tr_part *part = &trip->units[u]->parts[k];
            for (uint32_t i = 0; i < part->read_count; i++) {
                if (part->targets[i].device) {
                    SL_ASSERT(out->count < TR_KEYS_MAX);
                    out->at[out->count++] =
                        (struct tr_look){.spot = &part->targets[i].spot,
                                         .range = {.length_bytes = part->spot_bytes},
                                         .length_bytes = part->spot_bytes,
                                         .want = part->digest,
                                         .state = &part->targets[i].look,
                                         .owner = u};
                }
            }
        }
    }
}

/* Removes units with a wrong or unchecked target from the batch. */
static void units_leave(struct transporter *self, struct tr_trip *trip,
                        const struct tr_looks *looks)
{
    bool wrong = false;
    for (uint32_t i = 0; i < looks->count; i++) {
        sl_err code = looks->at[i].code;
        struct tr_unit *unit = trip->units[looks->at[i].owner];
        if (code == SL_OK || unit == NULL) {
            continue;
        }
        trip->units[looks->at[i].owner] = NULL;
        if (code == SL_ERR_CORRUPT) {
            sl_metric_add(self->env->metrics, self->metric.digests_bad, 1);
            wrong = true;
            (void)tr_unit_back(self, unit, trip, code);
        } else {
            tr_unit_end(self, unit, code);
        }
    }
    if (wrong) {
        tr_peer_failed(self, &self->peers[trip->peer]);
    }
    tr_trip_close_up(trip);
}

bool tr_check_next(struct transporter *self, struct tr_trip *trip)
{
    struct tr_looks looks;
    struct sl_error why = {0};
    bool asked = false;
    looks_make(self, trip, &looks);
    trip->phase = TR_COPY;
    sl_err err = tr_looks_ask(self, &looks, &trip->call_seq, &asked, &why);
    if (err == SL_OK && asked) {
        trip->phase = TR_CHECK;
    } else if (err != SL_OK) {
        units_leave(self, trip, &looks);
    }
    return asked;
}

void tr_check_answered(struct transporter *self, struct tr_trip *trip, const struct sl_msg *reply)
{
    struct tr_looks looks;
    looks_make(self, trip, &looks);
    const struct tr_look *wrong = tr_looks_answered(&looks, reply);
    if (wrong != NULL && (reply == NULL || reply->code != SL_OK)) {
        sl_log_write(self->env->log, SL_LOG_WARN, trip->trace_id,
                     "bytes in device memory of engine %" PRIu64
                     ", rank %u, are not verified and not used: %s",
                     wrong->spot->engine_id, wrong->spot->rank,
                     reply != NULL && reply->text.length > 0 ? reply->text.at
                                                             : sl_err_text(wrong->code));
    }
    units_leave(self, trip, &looks);
    tr_trip_landed(self, trip);
}
