/* actors/transporter/pull/check.c - a trip in TR_CHECK: what landed in device memory is digested where
 * it lies, by the swapper of its rank, before it counts as pulled (regions/digests.h). */
#include "actors/transporter/pull/pull.h"
#include "actors/transporter/regions/digests.h"

#include <inttypes.h>

/* The targets of a trip that were read into, in its order. Gives the next one, and moves *at behind it;
 * NULL: that was all. *part is the one that it belongs to. */
struct walk {
    uint32_t unit, part, target;
};
static struct tr_target *target_next(const struct tr_trip *trip, struct walk *at,
                                     struct tr_part **part)
{
    while (at->unit < trip->unit_count) {
        struct tr_unit *unit = trip->units[at->unit];
        if (at->part == unit->part_count) {
            *at = (struct walk){.unit = at->unit + 1};
        } else if (at->target == unit->parts[at->part].read_count) {
            *at = (struct walk){.unit = at->unit, .part = at->part + 1};
        } else {
            *part = &unit->parts[at->part];
            return &(*part)->targets[at->target++];
        }
    }
    return NULL;
}

/* The first target that is still to be checked; NULL: none is. It names the rank whose turn it is. */
static const struct tr_spot *due_spot(const struct tr_trip *trip)
{
    struct walk at = {0};
    struct tr_part *part = NULL;
    const struct tr_target *target = target_next(trip, &at, &part);
    while (target != NULL && !(target->device && !target->checked)) {
        target = target_next(trip, &at, &part);
    }
    return target != NULL ? &target->spot : NULL;
}

static bool target_is_of(const struct tr_target *target, const struct tr_spot *rank)
{
    return target->device && !target->checked && target->spot.engine_id == rank->engine_id &&
           target->spot.rank == rank->rank;
}

/* The targets of the rank. Gives their count. */
static uint32_t blocks_make(const struct tr_trip *trip, const struct tr_spot *rank,
                            struct sl_item_piece *out)
{
    uint32_t count = 0;
    struct walk at = {0};
    struct tr_part *part = NULL;
    for (const struct tr_target *target = NULL; (target = target_next(trip, &at, &part)) != NULL;) {
        if (target_is_of(target, rank)) {
            SL_ASSERT(count < TR_KEYS_MAX);
            out[count++] = (struct sl_item_piece){.pool = target->spot.pool,
                                                  .part = target->spot.part,
                                                  .device_block = target->spot.device_block,
                                                  .length_bytes = part->spot_bytes};
        }
    }
    return count;
}

/* The first thing that is wrong with the unit's targets of the rank; *at counts the rank's. */
static sl_err unit_verdict(struct tr_unit *unit, const struct tr_spot *rank,
                           const struct sl_body_copy_reply *body, sl_err err, uint32_t *at)
{
    sl_err code = unit->cancelled;
    for (uint32_t k = 0; k < unit->part_count; k++) {
        for (uint32_t i = 0; i < unit->parts[k].read_count; i++) {
            struct tr_target *target = &unit->parts[k].targets[i];
            if (target_is_of(target, rank)) {
                sl_err verdict =
                    err != SL_OK ? err : tr_digests_said(body, *at, unit->parts[k].digest);
                (*at)++;
                target->checked = verdict == SL_OK;
                code = code == SL_OK ? verdict : code;
            }
        }
    }
    return code;
}

/* Units with a target of the rank that is not right leave the trip. */
static void verdicts_take(struct transporter *self, struct tr_trip *trip,
                          const struct tr_spot *rank, const struct sl_body_copy_reply *body,
                          sl_err err)
{
    uint32_t at = 0;
    bool wrong = false;
    for (uint32_t i = 0; i < trip->unit_count; i++) {
        struct tr_unit *unit = trip->units[i];
        sl_err code = unit_verdict(unit, rank, body, err, &at);
        if (code == SL_OK) {
            continue;
        }
        trip->units[i] = NULL;
        if (code == SL_ERR_CORRUPT) {
            sl_metric_add(self->env->metrics, self->metric.digests_bad, 1);
            wrong = true;
            tr_unit_back(self, unit, trip, code);
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
    struct sl_item_piece blocks[TR_KEYS_MAX];
    const struct tr_spot *due = due_spot(trip);
    trip->phase = TR_COPY;
    if (due == NULL) {
        return false;
    }
    const struct tr_spot rank = *due;
    const struct tr_digests_want want = {
        .rank = &rank,
        .blocks = blocks,
        .block_count = blocks_make(trip, &rank, blocks),
        .trace_id = trip->trace_id,
        .deadline_ns = trip->deadline_ns,
        .cookie = tr_cookie(TR_CALL_TRIP, (uint32_t)(trip - self->trips))};
    sl_err err = tr_digests_ask(self, &want, &trip->call_seq);
    if (err == SL_OK) {
        trip->phase = TR_CHECK;
        return true;
    }
    verdicts_take(self, trip, &rank, NULL, err);
    return true;
}

void tr_check_answered(struct transporter *self, struct tr_trip *trip, const struct sl_msg *reply)
{
    const struct tr_spot *due = due_spot(trip);
    sl_err err = reply == NULL ? SL_ERR_TIMEOUT : reply->code;
    SL_ASSERT(due != NULL);
    const struct tr_spot rank = *due;
    if (err != SL_OK) {
        sl_log_write(self->env->log, SL_LOG_WARN, trip->trace_id,
                     "what landed in device memory of engine %" PRIu64
                     ", rank %u, is not checked and does not count: %s",
                     rank.engine_id, rank.rank,
                     reply != NULL && reply->text.length > 0 ? reply->text.at : sl_err_text(err));
    }
    verdicts_take(self, trip, &rank, reply == NULL ? NULL : &reply->body.copy_reply, err);
    tr_trip_landed(self, trip);
}
