/* actors/transporter/handover/handover.c - direct hand-over: start, timers, and the end of loans
 * and takes because of peers, engines and fences. */
#include "actors/transporter/handover/internal.h"

#include <stdlib.h>
#include <string.h>

static const struct sl_metric_row metric_rows[] = {
    SL_METRIC_ROW(handover, metric.takes, "takes"),
    SL_METRIC_ROW(handover, metric.takes_open, "takes_open"),
    SL_METRIC_ROW(handover, metric.takes_failed, "takes_failed"),
    SL_METRIC_ROW(handover, metric.landed_bytes, "landed_bytes"),
    SL_METRIC_ROW(handover, metric.copied_bytes, "copied_bytes"),
    SL_METRIC_ROW(handover, metric.refused, "takes_refused"),
    SL_METRIC_ROW(handover, metric.loans, "loans"),
    SL_METRIC_ROW(handover, metric.loans_open, "loans_open"),
    SL_METRIC_ROW(handover, metric.loans_failed, "loans_failed"),
    SL_METRIC_ROW(handover, metric.pool_read_bytes, "pool_read_bytes"),
};

sl_err tr_handover_init(struct transporter *self, struct sl_error *why)
{
    const struct sl_config *config = self->env->config;
    struct handover *ho = aligned_alloc(64, sl_align_up(sizeof(*ho), 64)); /* for its digest */
    if (ho == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for hand-overs");
    }
    memset(ho, 0, sizeof(*ho));
    self->handover = ho;
    ho->self = self;
    ho->both_max = (uint32_t)sl_config_u64(config, SL_SET_tickets_max);
    ho->parts_max = (uint32_t)sl_config_u64(config, SL_SET_ticket_parts_max);
    ho->next_loan = self->env->ops->random_u64(self->env) >> 1 | 1;
    ho->due_ns = SL_NEVER_NS;
    /* Until then a peer without a greeting may still be about to send one. */
    ho->grace_ns = self->env->now_ns + 3 * SL_MAX(sl_config_u64(config, SL_SET_peer_heartbeat),
                                                  sl_config_u64(config, SL_SET_peer_timeout));
    ho->loans = calloc(ho->both_max, sizeof(*ho->loans));
    ho->takes = calloc(ho->both_max, sizeof(*ho->takes));
    ho->reads = calloc(HO_READS_MAX, sizeof(*ho->reads));
    ho->grants = calloc(SL_FABRIC_SLOTS_MAX + 1, sizeof(*ho->grants));
    if (ho->loans == NULL || ho->takes == NULL || ho->reads == NULL || ho->grants == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u hand-overs", ho->both_max);
    }
    sl_metrics_define(self->env->metrics, metric_rows, SL_COUNT(metric_rows), ho);
    return SL_OK;
}

void tr_handover_fini(struct transporter *self)
{
    struct handover *ho = self->handover;
    if (ho == NULL) {
        return;
    }
    ho_reads_fini(ho);
    ho_takes_fini(ho);
    ho_loans_fini(ho);
    free(ho->grants);
    free(ho);
    self->handover = NULL;
}

/* ---- time ---- */

void tr_handover_step(struct transporter *self, uint64_t now_ns)
{
    struct handover *ho = self->handover;
    if (ho == NULL) {
        return;
    }
    if (ho->due_ns <= now_ns) {
        ho->due_ns = SL_NEVER_NS;
        ho->look = ho->look_ns <= now_ns;
        ho->look_ns = ho->look ? now_ns + HO_REPEAT_NS : ho->look_ns;
        ho_takes_step(ho, now_ns);
        ho_reads_step(ho, now_ns);
        ho_loans_step(ho, now_ns);
        if (self->peer_count > 0 && ho->takes_open + ho->loans_open > 0) {
            ho_due(ho, ho->look_ns);
        }
    }
    if (ho->due_ns != SL_NEVER_NS) {
        self->env->ops->wake_at(self->env, ho->due_ns);
    }
}

/* ---- peers ---- */

/* Ends the loans to the peer and the takes from it that began with another incarnation than this
 * one; 0: all. A loan that began before the peer sent a greeting has none yet, and continues. */
static void peer_end(struct handover *ho, const struct tr_peer *peer, uint64_t incarnation,
                     sl_err code, const char *text)
{
    uint32_t number = tr_peer_number(ho->self, peer);
    for (uint32_t i = 0; i < ho->both_max && ho->loans_open > 0; i++) {
        struct ho_loan *loan = &ho->loans[i];
        if (loan->state == HO_OPEN && !loan->local && loan->peer == number &&
            (incarnation == 0 ||
             (loan->peer_incarnation != 0 && loan->peer_incarnation != incarnation))) {
            ho_loan_end(ho, loan, code, text, false);
        }
    }
    for (uint32_t i = 0; i < ho->both_max && ho->takes_open > 0; i++) {
        struct ho_take *take = &ho->takes[i];
        if (take->state == HO_OPEN && take->bound && !take->local && take->peer == number &&
            (incarnation == 0 || take->peer_incarnation != incarnation)) {
            ho_take_end(ho, take, code, text);
        }
    }
    ho_due(ho, 0);
}

void tr_handover_peer_renewed(struct transporter *self, const struct tr_peer *peer)
{
    if (self->handover != NULL && peer->incarnation != 0) { /* 0: expelled */
        peer_end(self->handover, peer, peer->incarnation, SL_ERR_PEER_DIED,
                 "the node's transporter died");
    }
}

void tr_handover_peer_expelled(struct transporter *self, const struct tr_peer *peer)
{
    if (self->handover != NULL) {
        peer_end(self->handover, peer, 0, SL_ERR_PERMISSION, "the node's key was removed");
    }
}

/* ---- engines and fences ---- */

static bool loan_is_of(const struct ho_loan *loan, uint64_t engine_id)
{
    bool named = false;
    for (uint32_t k = 0; loan->state == HO_OPEN && !named && k < loan->share_count; k++) {
        named = loan->shares[k].named_bytes > 0 && loan->shares[k].slot.engine_id == engine_id;
    }
    return named;
}

static bool take_is_of(const struct ho_take *take, uint64_t engine_id)
{
    bool named = false;
    for (uint32_t k = 0; take->state == HO_OPEN && !named && k < take->items.slot_count; k++) {
        named = take->items.slots[k].engine_id == engine_id;
    }
    return named;
}

void tr_handover_engine_ends(struct transporter *self, uint64_t engine_id)
{
    struct handover *ho = self->handover;
    for (uint32_t i = 0; ho != NULL && ho->loans_open + ho->takes_open > 0 && i < ho->both_max;
         i++) {
        if (loan_is_of(&ho->loans[i], engine_id)) {
            ho_loan_end(ho, &ho->loans[i], SL_ERR_STALE, "the engine of the blocks has ended",
                        true);
        }
        if (take_is_of(&ho->takes[i], engine_id)) {
            ho_take_end(ho, &ho->takes[i], SL_ERR_NOT_FOUND, "the engine of the blocks has ended");
        }
    }
    if (ho != NULL) {
        ho_due(ho, 0);
        self->env->ops->wake_at(self->env, 0);
    }
}

uint32_t tr_handover_fence(struct transporter *self, const struct sl_msg *msg, uint64_t bit)
{
    struct handover *ho = self->handover;
    uint32_t waiting = 0;
    if (ho == NULL || msg->body.fence.items.count > 0) { /* claims are not used here */
        return 0;
    }
    for (uint32_t i = 0; ho->loans_open + ho->takes_open > 0 && i < ho->both_max; i++) {
        struct ho_loan *loan = &ho->loans[i];
        if (loan->state != HO_FREE && tr_fence_covers(msg, &loan->back)) {
            ho_loan_end(ho, loan, SL_ERR_CANCELLED, "the op was fenced", true);
            waiting += loan->state != HO_FREE ? 1 : 0;
            loan->fences |= loan->state != HO_FREE ? bit : 0;
        }
        struct ho_take *take = &ho->takes[i];
        if (take->state != HO_FREE && tr_fence_covers(msg, &take->back)) {
            ho_take_end(ho, take, SL_ERR_CANCELLED, "the op was fenced");
            waiting += take->state != HO_FREE ? 1 : 0;
            take->fences |= take->state != HO_FREE ? bit : 0;
        }
    }
    ho_due(ho, 0);
    return waiting;
}
