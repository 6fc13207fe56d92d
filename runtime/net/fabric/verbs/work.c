/* runtime/net/fabric/verbs/work.c - posts units as work requests, and handles completions. */
#include "runtime/net/fabric/verbs/internal.h"

#include <string.h>

#define POLL_BATCH  16
#define POLL_ROUNDS 16 /* in a step */

/* Gives the ranges of the unit's memory, at most VERBS_SGES_MAX, and their number. */
static uint32_t unit_sges(const struct fabric_rail *rail, const struct fabric_unit *unit,
                          struct ibv_sge *out)
{
    struct fabric_span spans[VERBS_SGES_MAX];
    uint32_t count = 0;
    uint64_t held_bytes =
        fabric_runs_cut(rail, unit->local, unit->length_bytes, spans, VERBS_SGES_MAX, &count);
    SL_ASSERT(held_bytes == unit->length_bytes); /* it was cut for that */
    for (uint32_t i = 0; i < count; i++) {
        out[i] = (struct ibv_sge){.addr = (uintptr_t)spans[i].at,
                                  .length = (uint32_t)spans[i].length_bytes,
                                  .lkey = spans[i].lkey};
    }
    return count;
}

/* A completion ends all earlier units, so requests posted together need few: one after a number of
 * units or bytes (so that digests begin early), and one for the last. The end of a unit is
 * noticed that much later at most. */
struct signals {
    uint32_t units;
    uint64_t bytes;
};
static bool unit_is_signaled(struct signals *since, const struct fabric_unit *unit, bool last)
{
    since->units++;
    since->bytes += unit->length_bytes;
    if (!last && since->units < VERBS_SIGNAL_UNITS && since->bytes < VERBS_SIGNAL_BYTES) {
        return false;
    }
    *since = (struct signals){0};
    return true;
}

void verbs_lane_push(struct fabric_lane *lane)
{
    struct fabric_peer *peer = lane->peer;
    struct verbs *verbs = verbs_of(peer->rail);
    struct verbs_peer *state = peer->backend;
    struct ibv_send_wr works[SL_FABRIC_DEPTH_MAX], *bad = NULL;
    struct ibv_sge pieces[SL_FABRIC_DEPTH_MAX * VERBS_SGES_MAX];
    struct signals since = {0};
    uint32_t count = 0, piece_count = 0;
    for (uint64_t i = lane->sent; i < lane->tail; i++, count++) {
        const struct fabric_unit *unit = fabric_lane_unit(lane, i);
        bool signaled = unit_is_signaled(&since, unit, i + 1 == lane->tail);
        uint32_t sges = unit_sges(peer->rail, unit, &pieces[piece_count]);
        works[count] = (struct ibv_send_wr){
            .wr_id = verbs_id(VERBS_UNIT, state->life, peer->index,
                              lane->index << 16 | (uint32_t)(i & 0xffff)),
            .next = i + 1 == lane->tail ? NULL : &works[count + 1],
            .sg_list = &pieces[piece_count],
            .num_sge = (int)sges,
            .opcode = IBV_WR_RDMA_READ,
            .send_flags = signaled ? IBV_SEND_SIGNALED : 0,
            .wr.rdma = {.remote_addr = unit->remote_addr, .rkey = unit->rkey},
        };
        piece_count += sges;
    }
    if (count == 0) {
        return;
    }
    int code = ibv_post_send(state->qps[lane->index], works, &bad);
    lane->sent = lane->tail;
    verbs->units_out += count;
    if (code != 0) { /* the queue pair has failed */
        struct sl_error why = {0};
        (void)sl_fail_os(&why, code, "post %u requests", count);
        fabric_peer_fail(peer, &why);
    }
}

static sl_err code_of(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_SUCCESS:
        return SL_OK;
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
        return SL_ERR_PERMISSION;
    default:
        return SL_ERR_PEER_DIED;
    }
}

static void unit_done(struct fabric_rail *rail, const struct ibv_wc *wc)
{
    struct verbs *verbs = verbs_of(rail);
    uint16_t life = (uint16_t)(wc->wr_id >> 40);
    struct fabric_peer *peer = &rail->peers[(uint16_t)(wc->wr_id >> 24)];
    const struct verbs_peer *state = peer->backend;
    if (state == NULL || state->epoch == 0 || state->life != life) {
        return; /* of destroyed queue pairs */
    }
    struct fabric_lane *lane = &peer->lanes[(uint8_t)(wc->wr_id >> 16)];
    uint64_t number = lane->head + (uint16_t)((uint16_t)wc->wr_id - (uint16_t)lane->head);
    if (number >= lane->sent) {
        return; /* ended before: a repeated error */
    }
    /* Earlier units without a signal have succeeded, or they would have their own completion. */
    while (lane->head <= number) {
        const struct fabric_unit *unit = fabric_lane_unit(lane, lane->head);
        sl_err code = lane->head == number ? code_of(wc->status) : SL_OK;
        if (code == SL_OK && unit->local.at != NULL) {
            struct sl_digest_stream *digest = fabric_unit_digest(lane);
            if (digest != NULL) {
                sl_runs_feed(unit->local, unit->length_bytes, digest);
            }
            fabric_unit_arrived(lane, unit->length_bytes);
        }
        verbs->units_out--;
        fabric_unit_end(lane, code);
    }
    if (wc->status != IBV_WC_SUCCESS) { /* an error ends a queue pair */
        struct sl_error why = {0};
        (void)sl_fail(&why, code_of(wc->status), "queue pair %u: %s", lane->index,
                      verbs->lib.verbs_wc_status_str(wc->status));
        fabric_peer_fail(peer, &why);
    }
}

/* Handles a batch of completions. False: there were none. */
static bool poll_some(struct fabric_rail *rail)
{
    struct verbs *verbs = verbs_of(rail);
    struct ibv_wc done[POLL_BATCH];
    int count = ibv_poll_cq(verbs->cq, POLL_BATCH, done);
    for (int i = 0; i < count; i++) {
        if (done[i].wr_id >> 56 == VERBS_UNIT) {
            unit_done(rail, &done[i]);
        } else {
            verbs_window_done(rail, &done[i]);
        }
    }
    return count > 0;
}

bool verbs_poll(struct fabric_rail *rail)
{
    struct verbs *verbs = verbs_of(rail);
    struct ibv_cq *cq = NULL;
    void *context = NULL;
    bool found = false;
    /* An armed queue gives one event; checking for it is a system call. */
    if (verbs->armed && verbs->lib.verbs_get_cq_event(verbs->channel, &cq, &context) == 0) {
        verbs->lib.verbs_ack_cq_events(cq, 1);
        verbs->armed = false;
    }
    for (uint32_t i = 0; i < POLL_ROUNDS; i++) {
        if (poll_some(rail)) {
            found = true;
            continue;
        }
        if (verbs->armed) {
            return found;
        }
        if (found) { /* first start new work, then check again */
            break;
        }
        if (ibv_req_notify_cq(verbs->cq, 0) != 0) {
            break;
        }
        verbs->armed = true; /* check again: one may have arrived in between */
    }
    rail->work_due = true;
    return found;
}
