/* tests/sim/sim_mutants.c - see the header. The linker directs calls between an actor's files here
 * (--wrap); without a mutant they pass through unchanged. */
#include "tests/sim/sim_mutants.h"

#include "actors/coordinator/internal.h"
#include "actors/transporter/handover/internal.h"
#include "actors/transporter/internal.h"
#include "actors/transporter/pull/pull.h"
#include "tests/sim/sim.h"

#include <stdlib.h>

enum mutant {
    MUTANT_NONE,
    PULL_FENCE_EARLY,
    PULL_AGAIN,
    PULL_UNCHECKED,
    TAKE_FENCE_EARLY,
    TAKE_FENCE_DEAF,
    TAKE_UNCHECKED,
    LEND_EARLY,
    ENGINE_OVER_EARLY,
    PULL_UNFENCED,
    TAKE_UNFENCED,
    MUTANTS
};
static const struct sim_mutant mutants[MUTANTS] = {
    [PULL_FENCE_EARLY] = {17,
                          "FENCE is answered before the fabric says that a pull's transfers ended"},
    [PULL_AGAIN] = {59, "a pull that was answered or fenced is begun again"},
    [PULL_UNCHECKED] = {16, "digests of what is pulled are not checked"},
    [TAKE_FENCE_EARLY] =
        {19, "FENCE is answered before the fabric says that reads of a hand-over ended"},
    [TAKE_FENCE_DEAF] = {53, "FENCE does not end what is read for hand-overs of its op"},
    [TAKE_UNCHECKED] = {16, "digests of what is handed over are not checked"},
    [LEND_EARLY] = {15, "the last LEND is answered before decode has read all"},
    [ENGINE_OVER_EARLY] = {16, "ENGINE_OVER is answered at once"},
    [PULL_UNFENCED] = {15, "an op that ended releases blocks without the transporter's fence"},
    [TAKE_UNFENCED] = {37, "blocks that a hand-over is read into do not count as in use"},
};
static enum mutant mutant; /* of this process */

void sim_mutants_init(void)
{
    mutant = (enum mutant)sim_mutant_number(MUTANTS);
}

#define REAL(name) __real_##name
/* The linker's names. NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

/* ---- the transporter ---- */

uint32_t REAL(tr_pulls_fence)(struct transporter *self, const struct sl_msg *msg, uint64_t bit);
uint32_t __wrap_tr_pulls_fence(struct transporter *self, const struct sl_msg *msg, uint64_t bit);
uint32_t __wrap_tr_pulls_fence(struct transporter *self, const struct sl_msg *msg, uint64_t bit)
{
    bool early = mutant == PULL_FENCE_EARLY; /* its end is not reported */
    uint32_t reading = REAL(tr_pulls_fence)(self, msg, early ? 0 : bit);
    return early ? 0 : reading;
}

void REAL(tr_pull)(struct transporter *self, const struct sl_msg *msg);
void __wrap_tr_pull(struct transporter *self, const struct sl_msg *msg);
void __wrap_tr_pull(struct transporter *self, const struct sl_msg *msg)
{
    struct sl_error why = {0};
    if (mutant == PULL_AGAIN && self->straight != NULL) { /* forgets which requests have arrived */
        tr_pulls_fini(self);
        (void)tr_pulls_init(self, &why);
    }
    REAL(tr_pull)(self, msg);
}

uint32_t REAL(tr_handover_fence)(struct transporter *self, const struct sl_msg *msg, uint64_t bit);
uint32_t __wrap_tr_handover_fence(struct transporter *self, const struct sl_msg *msg, uint64_t bit);
uint32_t __wrap_tr_handover_fence(struct transporter *self, const struct sl_msg *msg, uint64_t bit)
{
    if (mutant == TAKE_FENCE_DEAF) {
        return 0;
    }
    if (mutant == TAKE_FENCE_EARLY) {
        (void)REAL(tr_handover_fence)(self, msg, 0); /* its end is not reported */
        return 0;
    }
    return REAL(tr_handover_fence)(self, msg, bit);
}

void REAL(tr_lend)(struct transporter *self, const struct sl_msg *msg);
void __wrap_tr_lend(struct transporter *self, const struct sl_msg *msg);
void __wrap_tr_lend(struct transporter *self, const struct sl_msg *msg)
{
    REAL(tr_lend)(self, msg);
    if (mutant == LEND_EARLY && msg->body.lend.last) {
        sl_reply_code(self->env, msg, SL_OK, NULL);
    }
}

sl_err REAL(tr_pull_piece)(struct transporter *self, struct tr_target *target, uint32_t *used,
                           struct sl_fabric_piece *piece);
sl_err __wrap_tr_pull_piece(struct transporter *self, struct tr_target *target, uint32_t *used,
                            struct sl_fabric_piece *piece);
sl_err __wrap_tr_pull_piece(struct transporter *self, struct tr_target *target, uint32_t *used,
                            struct sl_fabric_piece *piece)
{
    sl_err err = REAL(tr_pull_piece)(self, target, used, piece);
    piece->digest = mutant == PULL_UNCHECKED ? NULL : piece->digest;
    return err;
}

void REAL(tr_pools_over)(struct transporter *self, const struct sl_msg *msg);
void __wrap_tr_pools_over(struct transporter *self, const struct sl_msg *msg);
void __wrap_tr_pools_over(struct transporter *self, const struct sl_msg *msg)
{
    if (mutant == ENGINE_OVER_EARLY) {
        sl_reply_code(self->env, msg, SL_OK, NULL); /* the second answer is ignored */
    }
    REAL(tr_pools_over)(self, msg);
}

sl_err REAL(sl_fabric_post)(struct sl_fabric *fabric, const struct sl_fabric_transfer *transfer,
                            struct sl_error *why);
sl_err __wrap_sl_fabric_post(struct sl_fabric *fabric, const struct sl_fabric_transfer *transfer,
                             struct sl_error *why);
sl_err __wrap_sl_fabric_post(struct sl_fabric *fabric, const struct sl_fabric_transfer *transfer,
                             struct sl_error *why)
{
    bool unchecked = mutant == TAKE_UNCHECKED && (transfer->cookie & HO_COOKIE) != 0;
    for (uint32_t i = 0; unchecked && i < transfer->piece_count; i++) {
        ((struct sl_fabric_piece *)&transfer->pieces[i])->digest = NULL;
    }
    return REAL(sl_fabric_post)(fabric, transfer, why);
}

/* ---- the coordinator ---- */

void REAL(co_fence_start)(struct coordinator *self, struct co_op *op, co_workers workers);
void __wrap_co_fence_start(struct coordinator *self, struct co_op *op, co_workers workers);
void __wrap_co_fence_start(struct coordinator *self, struct co_op *op, co_workers workers)
{
    struct co_share *share = &op->shares[CO_TRANSPORTER];
    if (mutant != PULL_UNFENCED || op->phase != CO_ZOMBIE) {
        REAL(co_fence_start)(self, op, workers);
        return;
    }
    workers &= ~co_worker_bit(CO_TRANSPORTER);
    if (share->call_seq != 0) {
        sl_calls_drop(self->calls, share->call_seq);
        share->call_seq = 0;
    }
    op->unsettled &= ~co_worker_bit(CO_TRANSPORTER);
    if (workers != 0) {
        REAL(co_fence_start)(self, op, workers);
    } else {
        co_op_done(self, op);
    }
}

bool REAL(co_direct_call)(struct coordinator *self, struct co_op *op, struct sl_msg *msg);
bool __wrap_co_direct_call(struct coordinator *self, struct co_op *op, struct sl_msg *msg);
bool __wrap_co_direct_call(struct coordinator *self, struct co_op *op, struct sl_msg *msg)
{
    bool sent = REAL(co_direct_call)(self, op, msg);
    op->direct.device_in_use =
        op->direct.device_in_use && (op->type->kind == CO_STORE || mutant != TAKE_UNFENCED);
    return sent;
}
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

int sim_mutants_main(const struct sim_seeds *seeds, bool (*fits)(uint64_t seed))
{
    return sim_mutants_find(seeds, fits, mutants, MUTANTS);
}
