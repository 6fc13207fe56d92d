/* actors/coordinator/internal.h - what the coordinator's files ask of each other. */
#ifndef SL_COORDINATOR_INTERNAL_H
#define SL_COORDINATOR_INTERNAL_H

#include "actors/coordinator/state.h"

#include <string.h>

/* ---- what each file says often ---- */
static inline void co_count(const struct coordinator *self, sl_metric metric, uint64_t more)
{
    sl_metric_add(self->env->metrics, metric, more);
}
static inline void co_trace(const struct coordinator *self, const struct co_op *op,
                            const char *what, const char *peer, uint32_t value)
{
    sl_trace_event(self->env->metrics, self->env->now_ns, op->trace_id, what, peer, value);
}
/* A call that is not in flight (0) is forgotten, too. */
static inline void co_call_forget(struct coordinator *self, uint64_t *seq)
{
    sl_calls_forget(self->calls, *seq);
    *seq = 0;
}
/* A request of no op: it is asked again, or not needed, when CO_CALL_NS have passed. */
static inline sl_err co_ask(struct coordinator *self, const char *to, const struct sl_msg *msg,
                            uint64_t cookie, uint64_t *seq)
{
    return sl_calls_send(self->calls, to, msg, sl_deadline_ns(self->env->now_ns, CO_CALL_NS),
                         cookie, seq);
}
static inline uint64_t co_op_cookie(const struct coordinator *self, const struct co_op *op,
                                    enum co_call call, uint32_t rank)
{
    return co_cookie(call, rank, (uint32_t)(op - self->ops));
}
static inline struct sl_text co_key_text(const struct sl_key *key)
{
    return (struct sl_text){.at = key->at, .length = key->length};
}
/* Why a reply says no: its text, or that of its code. */
static inline const char *co_why(const struct sl_msg *reply)
{
    return reply->text.length > 0 ? reply->text.at : sl_err_text(reply->code);
}
/* The message is of the client that asked for the op. */
static inline bool co_op_is_of(const struct co_op *op, const struct sl_msg *msg)
{
    return strcmp(op->back.to, msg->sender.at) == 0;
}

/* ---- features ---- */
extern const struct co_feature co_layers_feature, co_handover_feature, co_accounts,
    co_story_feature, co_sessions_feature, co_wait_feature;
/* SESSION_PAUSE, SESSION_TURN: answered at once. */
void co_sessions_pause(struct coordinator *self, const struct sl_msg *msg);
void co_sessions_turn(struct coordinator *self, const struct sl_msg *msg);
/* The answer to the BRING of this place; NULL: none came. */
void co_sessions_answered(struct coordinator *self, uint32_t index, const struct sl_msg *reply);
/* A request of so many blocks that became no op. */
void co_refused_account(struct coordinator *self, bool store, uint32_t block_count);

/* ---- engines.c ---- */
sl_err co_engines_init(struct coordinator *self, struct sl_error *why);
void co_engines_fini(struct coordinator *self);
/* Asks for the engine when it is not known; state says. Errors: SL_ERR_LIMIT. */
sl_err co_engine_want(struct coordinator *self, uint64_t id, uint64_t trace_id,
                      struct co_engine **out);
void co_engine_release(struct co_op *op);
/* One that is known, nothing is asked; NULL: it is not. */
const struct co_engine *co_engine_known(struct coordinator *self, uint64_t id);
/* A registration ended, its process lives: answered at once. */
void co_engine_over(struct coordinator *self, const struct sl_msg *msg);
/* reply NULL: nobody answered. */
void co_engine_answered(struct coordinator *self, uint32_t index, const struct sl_msg *reply);
void co_process_died(struct coordinator *self, const struct sl_body_local_died *died);

/* ---- ops.c ---- */
sl_err co_ops_init(struct coordinator *self, struct sl_error *why);
void co_ops_fini(struct coordinator *self);
struct co_op *co_op_find(const struct coordinator *self, uint64_t id);
/* A fresh op under this id, in flight. NULL: too many. */
struct co_op *co_op_new(struct coordinator *self, const struct co_type *type,
                        const struct sl_msg *msg);
/* The op is in this phase from now on: what that begins with is done, perhaps to the op's end. */
void co_op_enter(struct coordinator *self, struct co_op *op, enum co_phase phase);
void co_op_recycle(struct coordinator *self, struct co_op *op); /* forgets a finished one */
/* It goes on as another type, from its keys on. */
void co_op_become(struct co_op *op, const struct co_type *type);
/* Phases that are the same for every type. */
#define CO_PHASES_OF_ALL                                                                         \
    [CO_KEYS] = {.enter = co_op_ask_keys, .reply = co_op_keys}, [CO_GREET] = {.tick = co_op_go}, \
    [CO_SETTLE] = {.tick = co_fence_tick}, [CO_ZOMBIE] = {.tick = co_fence_tick}
void co_wake(struct coordinator *self, struct co_op *op, uint64_t at_ns);
void co_op_engine_known(struct coordinator *self, struct co_op *op);
void co_op_go(struct coordinator *self, struct co_op *op); /* keys are known */
void co_op_ask_keys(struct coordinator *self, struct co_op *op);
void co_op_keys(struct coordinator *self, struct co_op *op, const struct sl_msg *reply);
/* The op's one request in flight. False: it could not be sent and the op was ended. */
bool co_op_call(struct coordinator *self, struct co_op *op, const char *to, struct sl_msg *msg);
/* The same with less time than the op's. */
bool co_op_call_until(struct coordinator *self, struct co_op *op, const char *to,
                      struct sl_msg *msg, uint64_t until_ns);
void co_reason(struct co_op *op, const char *format, ...) SL_PRINTF(2, 3); /* the first one stays */
/* Who sent this waits for layers of the op; for 0, for its fence. max: so many of either.
 * Errors: SL_ERR_LIMIT, SL_ERR_NO_MEMORY. */
sl_err co_waiter_add(struct coordinator *self, struct co_op *op, const struct sl_msg *msg,
                     uint32_t layers, uint32_t max, struct sl_error *why);
uint64_t co_op_next_ns(const struct co_op *op); /* when it wants co_op_tick */
/* Ends the op: answers once, fences what is outstanding, gives back. */
void co_op_end(struct coordinator *self, struct co_op *op, sl_err code);
void co_op_answer(struct coordinator *self, struct co_op *op);
struct sl_item_receipt co_receipt_item(uint64_t handover_id, const struct co_receipt *receipt);
/* Answered and fenced. */
void co_op_done(struct coordinator *self, struct co_op *op);
void co_op_tick(struct coordinator *self, struct co_op *op, uint64_t now_ns);
const char *co_phase_text(enum co_phase phase);

/* ---- slices.c ---- */
/* What an engine says of a session, in messages. */
enum { SAID_ENDS = 1, SAID_GOES_ON = 2 };
/* The key of a part, with a 0 behind it. Gives its length. */
uint32_t co_part_key_write(const struct co_engine *engine, struct sl_key block,
                           const struct co_cut *cut, char *out);
/* It in memory. at NULL: there is none. */
struct sl_key co_part_key(struct co_memory *memory, const struct co_engine *engine,
                          struct sl_key block, const struct co_cut *cut);
/* MODEL/BLOCK, of which key is the block: SL_KEY_BYTES_MAX at most. Gives its length; 0: it is
 * longer. */
uint32_t co_block_key_write(const struct co_engine *engine, const struct sl_key *key, char *out);
/* sl_key_hash of it; 0: it is too long. */
uint64_t co_block_hash(const struct co_engine *engine, const struct sl_key *key);
/* Number i of the slice, as the registrar is told of it; stored_count: blocks that come with it. */
struct sl_item_group co_group_of(const struct coordinator *self, const struct co_op *op, uint32_t i,
                                 uint32_t stored_count);
/* Keys of all parts of the slice. False: out of memory, the op was ended. */
bool co_slice_make(struct coordinator *self, struct co_op *op, uint32_t count);
/* What part number i of the slice is. */
static inline const struct co_cut *co_cut_of(const struct co_op *op, uint32_t i)
{
    return &op->engine->cuts[i % op->engine->part_count];
}
/* The rank that stores part number i of the slice: its owners take turns by block. */
uint32_t co_part_writer(const struct co_op *op, uint32_t i);
/* The block that the pool has for block `block` of the op. */
uint32_t co_device_block(const struct co_op *op, uint32_t block, uint32_t pool);

/* ---- copy.c: COPY to the ranks and their answers ---- */
/* Enters CO_COPY: one COPY for each rank that has parts to copy. None has: they are copied. */
void co_copy_start(struct coordinator *self, struct co_op *op);
void co_copy_answered(struct coordinator *self, struct co_op *op, uint32_t rank,
                      const struct sl_msg *reply);

/* ---- fence.c: fences, and who is behind a rank ---- */
/* Whether who answered is the only one that was asked. */
bool co_share_is_settled(const struct coordinator *self, const struct co_share *share);
/* reply NULL: none came, it is sent again. */
void co_fence_answered(struct coordinator *self, struct co_op *op, uint32_t rank,
                       const struct sl_msg *reply);
/* CO_SETTLE: fences who may work twice, and goes on when none of `whom` is left. */
void co_settle(struct coordinator *self, struct co_op *op, co_workers whom,
               void (*settled)(struct coordinator *self, struct co_op *op));
/* Drops COPYs and pulls in flight and asks for a fence. */
void co_fence_start(struct coordinator *self, struct co_op *op, co_workers workers);
/* Asks one of them, while the op goes on. */
void co_fence_send(struct coordinator *self, struct co_op *op, uint32_t worker);
/* Nobody waits for the fences any more. */
void co_fence_forget(struct coordinator *self, struct co_op *op);
void co_fence_tick(struct coordinator *self, struct co_op *op);
void co_op_fenced(struct coordinator *self, const struct sl_msg *msg); /* OP_FENCED */
void co_cancel(struct coordinator *self, const struct sl_msg *msg);
/* Fences what a coordinator that died has left at the rank. */
void co_rank_greet(struct coordinator *self, uint32_t rank);
void co_rank_greeted(struct coordinator *self, uint32_t rank, const struct sl_msg *reply);
void co_rank_learn(struct coordinator *self, uint32_t rank);
void co_rank_pong(struct coordinator *self, uint32_t rank, const struct sl_msg *reply);
void co_rank_died(struct coordinator *self, struct sl_proc_id proc);
/* A transporter that is not there has nothing under way. */
void co_greet_look(struct coordinator *self);

/* ---- pull.c: blocks of other nodes straight into the pools ---- */
/* Of the slice's blocks from `block` on: as many as one pull may be of. 0: they go by the arena. */
uint32_t co_pull_blocks(const struct coordinator *self, const struct co_op *op, uint32_t block);
/* All blocks of the slice from `block` on are asked for. */
void co_pull_asked(struct coordinator *self, struct co_op *op, uint32_t block);
/* Of the slice's blocks from `block` on, a spot for every rank that has a part, part by part. NULL:
 * out of memory. */
struct sl_item_spot *co_spots_make(struct co_op *op, uint32_t block, uint32_t *count);
uint32_t co_block_spots(const struct co_engine *engine); /* of a block */
uint64_t co_spots_max(const struct coordinator *self);   /* of a message */
/* When an engine's pools are tried again that were refused so. */
uint64_t co_pools_again_ns(const struct coordinator *self, sl_err code);
/* reply NULL: none came in time. */
void co_pull_answered(struct coordinator *self, struct co_op *op, const struct sl_msg *reply);

/* ---- handover.c ---- */
/* Decode, here or elsewhere, has offered a ticket for it. */
bool co_handover_offers(const struct coordinator *self, uint64_t id);
/* Whether prefill has committed. */
static inline bool co_handover_is_committed(const struct co_op *op)
{
    return op->handover->machine.state >= SL_HANDOVER_COMMITTED;
}
/* Whether what prefill handed over is what this load is of. False: the op was ended. */
bool co_handover_matches(struct coordinator *self, struct co_op *op);
void co_handover_arrived(struct coordinator *self, const struct sl_msg *msg); /* ARRIVED */
void co_handover_end(struct coordinator *self, const struct sl_msg *msg);     /* HANDOVER_END */
/* A peer's decode is done with it. Errors: SL_ERR_NOT_FOUND (no row; the registrar was asked),
 * SL_ERR_BUSY (it is under way here), SL_ERR_PERMISSION (not this receipt). */
sl_err co_handover_taken(struct coordinator *self, const struct sl_item_receipt *item,
                         uint64_t trace_id);
void co_handover_hold_ended(struct coordinator *self, uint32_t index, const struct sl_msg *reply);

void co_handover_landed(struct coordinator *self, const struct sl_msg *msg); /* LANDED */

/* The last op of this kind that was a side of it and has ended; NULL: none is remembered. */
const struct co_op *co_handover_ended(const struct coordinator *self, uint64_t id,
                                      enum co_kind kind);
struct co_handover *co_handover_find(const struct coordinator *self, uint64_t id);
/* NULL: handovers_max are under way. */
struct co_handover *co_handover_new(struct coordinator *self, uint64_t id, uint64_t trace_id);
/* At that time at the latest the tick looks at all rows. */
void co_handover_look_at(struct coordinator *self, uint64_t at_ns);
/* A receipt came. Codes as of ARRIVED. */
sl_err co_handover_arrived_one(struct coordinator *self, const struct sl_item_receipt *item,
                               uint64_t trace_id);
/* The states up to committed, as far as they are not passed. */
void co_handover_commits(struct coordinator *self, struct co_handover *row);
/* Prefill failed at its node, or (announced here) decode gave up at its own. */
sl_err co_handover_failed_there(struct coordinator *self, struct co_handover *row, sl_err code,
                                const char *reason);
void co_handover_sides_wake(struct coordinator *self, struct co_handover *row);

/* ---- word.c: the nodes of a hand-over tell each other ---- */
void co_word_handle(struct coordinator *self, const struct sl_msg *msg); /* HANDOVER_WORD */
/* Decode, while prefill has not committed: asks prefill's node, or, where that is this one, after a
 * while the registrar, in case that a coordinator before us answered it. */
void co_word_ask(struct coordinator *self, struct co_handover *row);
void co_word_answered(struct coordinator *self, uint32_t index, const struct sl_msg *reply);
/* The answer to a HOLD that asks. */
void co_word_held(struct coordinator *self, uint32_t index, const struct sl_msg *reply);
/* Decode, which ends without prefill's commit, tells its node. */
void co_word_give_up(struct coordinator *self, const struct co_handover *row);
/* When it is to be asked again; SL_NEVER_NS: not. */
uint64_t co_word_due(const struct co_handover *row);
void co_word_ticket(struct coordinator *self, const struct sl_msg *msg); /* TICKET */
/* Prefill: the ticket that decode, here or elsewhere, has offered by now. */
bool co_word_offered(const struct co_handover *row, struct sl_item_ticket *ticket);
/* Prefill: tells decode's node how it went, if that is known and somebody waits. */
void co_word_tell(struct coordinator *self, const struct co_handover *row);
/* Decode has what prefill's node holds, or failed: tells that node, if it is another one, and its
 * hold ends. A lost word costs the time of the hold. */
void co_word_taken(struct coordinator *self, const struct co_receipt *receipt, uint64_t handover_id,
                   uint64_t trace_id);

/* ---- layers.c ---- */
struct co_range {                    /* of a part: what the COPYs in flight are of */
    uint32_t first_layer, layer_end; /* 0, 0: all of it */
    uint64_t from, end, length_bytes;
};
static inline bool co_by_layers(const struct co_op *op)
{
    return op->layers.count != 0;
}
bool co_layers_partial(const struct co_op *op);
/* The swappers answer hashes of chunks. */
bool co_layers_chunked(const struct co_op *op);
/* False: nothing of the part is in these layers. */
bool co_layers_range(const struct co_op *op, const struct co_cut *cut, struct co_range *out);
/* What of a part is in layers [from, end). */
bool co_layers_between(const struct co_op *op, const struct co_cut *cut, uint32_t from,
                       uint32_t end, struct co_range *out);
/* Of the chunks of a part that are whole now; in an answer, and kept. */
uint64_t co_layers_hash_bytes(const struct co_range *range);
void co_layers_hashes(struct co_part *part, const struct co_range *range, const uint8_t *hashes);
/* The COPYs of the layers that were asked for are done. */
void co_layers_copied(struct coordinator *self, struct co_op *op);
bool co_layers_any(const struct co_op *op, enum co_part_state state); /* part of the slice */
void co_layers_begin(struct co_op *op);                               /* nothing is copied yet */
void co_layers_begin_store(struct coordinator *self, struct co_op *op);
void co_layers_begin_load(struct coordinator *self, struct co_op *op);
/* CO_LAYERS: goes on by what is ready and what is copied. */
void co_layers_go_store(struct coordinator *self, struct co_op *op);
void co_layers_go_load(struct coordinator *self, struct co_op *op);
/* Takes all that became ready meanwhile. */
void co_layers_copy_ready(struct coordinator *self, struct co_op *op);
/* All are copied: so is the slice. */
void co_layers_finish(struct coordinator *self, struct co_op *op);
/* A load tells its engine of what is done. */
void co_layers_told(struct coordinator *self, struct co_op *op);
/* Direct load: pieces lie in its pools. */
void co_layers_arrived(struct coordinator *self, struct co_op *op,
                       const struct sl_body_landed *body);
void co_layers_handle(struct coordinator *self, const struct sl_msg *msg); /* LAYERS */

/* ---- direct.c: what both sides of a direct hand-over have in common; direct_out.c, direct_in.c
 * ---- */
bool co_direct_falls_back(const struct coordinator *self);
/* The reason is told and forgotten: the hand-over may be fine yet. */
void co_direct_fallback_note(struct coordinator *self, struct co_op *op);
/* Takes the blocks from `first` on, all of them in one slice. False: they cannot go directly, and
 * the op goes on through storage or was ended. */
bool co_direct_start(struct coordinator *self, struct co_op *op, uint32_t first);
/* The transporter is asked for something that touches the op's device blocks. */
void co_direct_lend(struct coordinator *self, struct co_op *op);
/* Asks it. False: the op was ended. */
bool co_direct_call(struct coordinator *self, struct co_op *op, struct sl_msg *msg);
/* The transporter has said that it is through with them: goes on when no other one works for it. */
void co_direct_over(struct coordinator *self, struct co_op *op,
                    void (*then)(struct coordinator *self, struct co_op *op));
/* Has it end what it does for the op, and then goes on. */
void co_direct_settle(struct coordinator *self, struct co_op *op,
                      void (*then)(struct coordinator *self, struct co_op *op));
/* Whether that is an answer that says it has begun nothing. */
bool co_direct_is_refusal(const struct coordinator *self, sl_err code);

/* ---- store.c, load.c ---- */
void co_store_slice(struct coordinator *self, struct co_op *op);
void co_store_late_grants(struct coordinator *self, const struct sl_msg *reply);
/* They have answered, or not in time: it goes on with what is here. */
void co_load_fetched(struct coordinator *self, struct co_op *op, const struct sl_msg *reply);
void co_load_look(struct coordinator *self, struct co_op *op);
/* Through storage, as soon as prefill has committed. */
void co_load_await(struct coordinator *self, struct co_op *op);
void co_load_copied(struct coordinator *self, struct co_op *op);
void co_load_done(struct coordinator *self, struct co_op *op);
void co_load_note(struct coordinator *self, struct co_op *op);

/* ---- begin.c: STORE, LOAD ---- */
void co_op_start(struct coordinator *self, const struct sl_msg *msg);

#endif
