/* tests/sim/sim_mutants.c - see the header. The linker leads calls between the files of an actor here
 * (--wrap); without a mutant they go on as they were. */
#include "tests/sim/sim_mutants.h"

#include "actors/coordinator/internal.h"
#include "actors/transporter/internal.h"
#include "actors/transporter/pull/pull.h"
#include "actors/transporter/push/internal.h"
#include "runtime/fabric/core/internal.h"
#include "tests/sim/sim.h"

#include <stdlib.h>

enum mutant {
    MUTANT_NONE,
    PULL_FENCE_EARLY,
    PULL_AGAIN,
    PULL_UNCHECKED,
    TICKET_FENCE_EARLY,
    TICKET_FENCE_DEAF,
    GRANT_OUTLIVES,
    PUSH_UNCHECKED,
    ENGINE_OVER_EARLY,
    PULL_UNFENCED,
    TICKET_UNFENCED,
    MUTANTS
};
static const struct sim_mutant mutants[MUTANTS] = {
    [PULL_FENCE_EARLY] = {17,
                          "FENCE is answered before the fabric says that a pull's transfers ended"},
    [PULL_AGAIN] = {59, "a pull that was answered or fenced is begun again"},
    [PULL_UNCHECKED] = {16, "digests of what is pulled are not checked"},
    [TICKET_FENCE_EARLY] =
        {19, "FENCE is answered before the fabric says that a ticket's grants ended"},
    [TICKET_FENCE_DEAF] = {17, "FENCE does not end the tickets of its op"},
    [GRANT_OUTLIVES] = {17, "grants are said to have ended, and stand for a while"},
    [PUSH_UNCHECKED] = {16, "digests of what is pushed are not checked"},
    [ENGINE_OVER_EARLY] = {37, "ENGINE_OVER is answered at once"},
    [PULL_UNFENCED] = {16, "an op that ended gives blocks back without the transporter's fence"},
    [TICKET_UNFENCED] = {39, "blocks of a ticket do not count as lent"},
};
static enum mutant mutant; /* of this process */

void sim_mutants_init(void)
{
    mutant = (enum mutant)sim_mutant_number(MUTANTS);
}

#define REAL(name) __real_##name
/* The linker's names. NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

/* ---- the transporter ---- */

uint64_t REAL(tr_pulls_fence)(struct transporter *self, const struct sl_msg *msg);
uint64_t __wrap_tr_pulls_fence(struct transporter *self, const struct sl_msg *msg);
uint64_t __wrap_tr_pulls_fence(struct transporter *self, const struct sl_msg *msg)
{
    uint64_t reading = REAL(tr_pulls_fence)(self, msg);
    return mutant == PULL_FENCE_EARLY ? 0 : reading;
}

void REAL(tr_pull)(struct transporter *self, const struct sl_msg *msg);
void __wrap_tr_pull(struct transporter *self, const struct sl_msg *msg);
void __wrap_tr_pull(struct transporter *self, const struct sl_msg *msg)
{
    struct sl_error why = {0};
    if (mutant == PULL_AGAIN && self->straight != NULL) { /* which numbers came is forgotten */
        tr_straight_fini(self);
        (void)tr_straight_init(self, &why);
    }
    REAL(tr_pull)(self, msg);
}

uint32_t REAL(tr_push_fence)(struct transporter *self, const struct sl_msg *msg, uint32_t fence);
uint32_t __wrap_tr_push_fence(struct transporter *self, const struct sl_msg *msg, uint32_t fence);
uint32_t __wrap_tr_push_fence(struct transporter *self, const struct sl_msg *msg, uint32_t fence)
{
    if (mutant == TICKET_FENCE_DEAF) {
        return 0;
    }
    if (mutant == TICKET_FENCE_EARLY) {
        (void)REAL(tr_push_fence)(self, msg, TR_FENCES_MAX); /* nobody is told of its end */
        return 0;
    }
    return REAL(tr_push_fence)(self, msg, fence);
}

void REAL(tr_straight_piece)(const struct transporter *self, const struct tr_part *part,
                             struct sl_fabric_piece *piece);
void __wrap_tr_straight_piece(const struct transporter *self, const struct tr_part *part,
                              struct sl_fabric_piece *piece);
void __wrap_tr_straight_piece(const struct transporter *self, const struct tr_part *part,
                              struct sl_fabric_piece *piece)
{
    REAL(tr_straight_piece)(self, part, piece);
    piece->digest = mutant == PULL_UNCHECKED ? NULL : piece->digest;
}

void REAL(tr_pools_over)(struct transporter *self, const struct sl_msg *msg);
void __wrap_tr_pools_over(struct transporter *self, const struct sl_msg *msg);
void __wrap_tr_pools_over(struct transporter *self, const struct sl_msg *msg)
{
    if (mutant == ENGINE_OVER_EARLY) {
        sl_reply_code(self->env, msg, SL_OK, NULL); /* the second answer is not heard */
    }
    REAL(tr_pools_over)(self, msg);
}

/* What came is what was sent, whatever it is. */
static void digests_forge(struct push *push, const struct sl_body_peer_push *body)
{
    struct sl_error why = {0};
    const struct push_ticket *ticket = push_ticket_find(push, &body->ticket, &why);
    for (uint64_t i = 0; ticket != NULL && i < body->pieces.count; i++) {
        struct sl_item_arrived *piece = (struct sl_item_arrived *)&body->pieces.at[i];
        const struct push_part *part = &ticket->parts[piece->part];
        struct sl_digest_stream stream;
        sl_digest_start(&stream);
        if (tr_spot_digest(push->self, &ticket->spots[part->spot_first], push_range(piece), &stream,
                           &why) == SL_OK) {
            struct sl_digest found = sl_digest_finish(&stream);
            piece->digest_low = found.low;
            piece->digest_high = found.high;
        }
    }
}

void REAL(push_notice)(struct push *push, struct tr_peer *peer, const struct sl_msg *msg);
void __wrap_push_notice(struct push *push, struct tr_peer *peer, const struct sl_msg *msg);
void __wrap_push_notice(struct push *push, struct tr_peer *peer, const struct sl_msg *msg)
{
    if (mutant == PUSH_UNCHECKED) {
        digests_forge(push, &msg->body.peer_push);
    }
    REAL(push_notice)(push, peer, msg);
}

/* ---- the fabric ---- */

#define OUTLIVING_MAX 256u
#define OUTLIVES_NS   (100 * SL_NS_PER_MS)
struct outliving {
    struct sl_fabric *fabric; /* NULL: none */
    struct transporter *transporter;
    uint64_t until_ns;
    uint32_t handle;
    bool told;
};
static struct outliving outliving[OUTLIVING_MAX];

sl_err REAL(sl_fabric_grant_end)(struct sl_fabric *fabric, uint32_t handle);
sl_err __wrap_sl_fabric_grant_end(struct sl_fabric *fabric, uint32_t handle);
sl_err __wrap_sl_fabric_grant_end(struct sl_fabric *fabric, uint32_t handle)
{
    struct transporter *self = fabric->options.events.context;
    for (uint32_t i = 0; mutant == GRANT_OUTLIVES && i < OUTLIVING_MAX; i++) {
        if (outliving[i].fabric == NULL) {
            outliving[i] = (struct outliving){.fabric = fabric,
                                              .transporter = self,
                                              .until_ns = self->env->now_ns + OUTLIVES_NS,
                                              .handle = handle};
            return SL_OK;
        }
    }
    return REAL(sl_fabric_grant_end)(fabric, handle);
}

void REAL(fabric_grants_tell)(struct sl_fabric *fabric);
void __wrap_fabric_grants_tell(struct sl_fabric *fabric);
void __wrap_fabric_grants_tell(struct sl_fabric *fabric)
{
    for (uint32_t i = 0; mutant == GRANT_OUTLIVES && i < OUTLIVING_MAX; i++) {
        struct outliving *one = &outliving[i];
        if (one->fabric != fabric) {
            continue;
        }
        if (!one->told) {
            one->told = true;
            (void)tr_push_grant_ended(one->transporter, one->handle);
        }
        if (one->until_ns <= one->transporter->env->now_ns) {
            (void)REAL(sl_fabric_grant_end)(fabric, one->handle);
            one->fabric = NULL;
        }
    }
    REAL(fabric_grants_tell)(fabric);
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
        sl_calls_forget(self->calls, share->call_seq);
        share->call_seq = 0;
    }
    op->unsettled &= ~co_worker_bit(CO_TRANSPORTER);
    if (workers != 0) {
        REAL(co_fence_start)(self, op, workers);
    } else {
        co_op_done(self, op);
    }
}

void REAL(co_push_lent)(struct coordinator *self, struct co_op *op);
void __wrap_co_push_lent(struct coordinator *self, struct co_op *op);
void __wrap_co_push_lent(struct coordinator *self, struct co_op *op)
{
    REAL(co_push_lent)(self, op);
    op->push.lent = op->type->kind == CO_STORE || mutant != TICKET_UNFENCED;
}
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

int sim_mutants_main(const struct sim_seeds *seeds, bool (*fits)(uint64_t seed))
{
    return sim_mutants_find(seeds, fits, mutants, MUTANTS);
}
