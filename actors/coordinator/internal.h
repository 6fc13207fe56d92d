/* actors/coordinator/internal.h - functions that the coordinator's files share. */
#ifndef SL_COORDINATOR_INTERNAL_H
#define SL_COORDINATOR_INTERNAL_H

#include "actors/coordinator/state.h"

#include <string.h>

/* ---- helpers ---- */
static inline void co_count(const struct coordinator *self, sl_metric metric, uint64_t more)
{
    sl_metric_add(self->env->metrics, metric, more);
}
static inline void co_trace(const struct coordinator *self, const struct co_op *op,
                            const char *what, const char *peer, uint32_t value)
{
    sl_trace_event(self->env->metrics, self->env->now_ns, op->trace_id, what, peer, value);
}
/* seq 0: the call is not in flight. */
static inline void co_call_forget(struct coordinator *self, uint64_t *seq)
{
    sl_calls_drop(self->calls, *seq);
    *seq = 0;
}
/* Sends a request of no op. CO_CALL_NS later its sender asks again, or no longer needs it. */
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
/* The text of an error reply, or that of its code. */
static inline const char *co_why(const struct sl_msg *reply)
{
    return reply->text.length > 0 ? reply->text.at : sl_err_text(reply->code);
}
/* Whether the client that requested the op has sent this message. */
static inline bool co_op_is_of(const struct co_op *op, const struct sl_msg *msg)
{
    return strcmp(op->back.to, msg->sender.at) == 0;
}

/* ---- features ---- */
extern const struct co_feature co_layers_feature, co_handover_feature, co_accounts,
    co_op_trace_feature, co_sessions_feature, co_wait_feature;
/* SESSION_PAUSE, SESSION_TURN: replies at once. */
void co_sessions_pause(struct coordinator *self, const struct sl_msg *msg);
void co_sessions_turn(struct coordinator *self, const struct sl_msg *msg);
/* The answer to BRING number `index`; NULL: none. */
void co_sessions_answered(struct coordinator *self, uint32_t index, const struct sl_msg *reply);
/* Counts a request of block_count blocks that did not become an op. */
void co_refused_account(struct coordinator *self, bool store, uint32_t block_count);

/* ---- engines.c ---- */
sl_err co_engines_init(struct coordinator *self, struct sl_error *why);
void co_engines_fini(struct coordinator *self);
/* Gives the row of an engine, and requests it if unknown (see state). Errors: SL_ERR_LIMIT. */
sl_err co_engine_want(struct coordinator *self, uint64_t id, uint64_t trace_id,
                      struct co_engine **out);
void co_engine_release(struct co_op *op);
/* A known engine; nothing is requested. NULL: unknown. */
const struct co_engine *co_engine_known(struct coordinator *self, uint64_t id);
/* ENGINE_OVER: the registration ended, its process lives. Replies at once. */
void co_engine_over(struct coordinator *self, const struct sl_msg *msg);
/* reply NULL: no answer. */
void co_engine_answered(struct coordinator *self, uint32_t index, const struct sl_msg *reply);
void co_process_died(struct coordinator *self, const struct sl_body_local_died *died);

/* ---- ops.c ---- */
sl_err co_ops_init(struct coordinator *self, struct sl_error *why);
void co_ops_fini(struct coordinator *self);
struct co_op *co_op_find(const struct coordinator *self, uint64_t id);
/* A new op in flight with the id that the message names. NULL: too many. */
struct co_op *co_op_new(struct coordinator *self, const struct co_type *type,
                        const struct sl_msg *msg);
/* Sets the phase and runs its `enter`, which may end the op. */
void co_op_enter(struct coordinator *self, struct co_op *op, enum co_phase phase);
void co_op_recycle(struct coordinator *self, struct co_op *op); /* forgets a finished one */
/* Continues as another type, from its keys on. */
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
/* Sends the op's one request. False: that failed and the op was ended. */
bool co_op_call(struct coordinator *self, struct co_op *op, const char *to, struct sl_msg *msg);
/* The same with an earlier deadline. */
bool co_op_call_until(struct coordinator *self, struct co_op *op, const char *to,
                      struct sl_msg *msg, uint64_t until_ns);
void co_reason(struct co_op *op, const char *format, ...) SL_PRINTF(2, 3); /* the first one stays */
/* Keeps the sender as a waiter: for this many layers of the op, or (0) for its fence. max: of
 * either kind. Errors: SL_ERR_LIMIT, SL_ERR_NO_MEMORY. */
sl_err co_waiter_add(struct coordinator *self, struct co_op *op, const struct sl_msg *msg,
                     uint32_t layers, uint32_t max, struct sl_error *why);
uint64_t co_op_next_ns(const struct co_op *op); /* of co_op_tick */
/* Ends the op: answers once, fences outstanding work, releases what it holds. */
void co_op_end(struct coordinator *self, struct co_op *op, sl_err code);
void co_op_answer(struct coordinator *self, struct co_op *op);
struct sl_item_receipt co_receipt_item(uint64_t handover_id, const struct co_receipt *receipt);
/* The op is answered and fenced. */
void co_op_done(struct coordinator *self, struct co_op *op);
void co_op_tick(struct coordinator *self, struct co_op *op, uint64_t now_ns);
const char *co_phase_text(enum co_phase phase);

/* ---- slices.c ---- */
/* An engine's session hints, in messages. */
enum { HINT_ENDS = 1, HINT_CONTINUES = 2 };
/* Writes the key of a part, with a final 0. Gives its length. */
uint32_t co_part_key_write(const struct co_engine *engine, struct sl_key block,
                           const struct co_cut *cut, char *out);
/* The same in `memory`. at NULL: out of memory. */
struct sl_key co_part_key(struct co_memory *memory, const struct co_engine *engine,
                          struct sl_key block, const struct co_cut *cut);
/* Writes MODEL/BLOCK without a final 0, SL_KEY_BYTES_MAX at most. Gives its length; 0: too long. */
uint32_t co_block_key_write(const struct co_engine *engine, const struct sl_key *key, char *out);
/* sl_key_hash of MODEL/BLOCK; 0: too long. */
uint64_t co_block_hash(const struct co_engine *engine, const struct sl_key *key);
/* The registrar's item for block number i of the slice; stored_count: blocks sent with it. */
struct sl_item_group co_group_of(const struct coordinator *self, const struct co_op *op, uint32_t i,
                                 uint32_t stored_count);
/* Makes the slice's parts and keys. False: out of memory, the op was ended. */
bool co_slice_make(struct coordinator *self, struct co_op *op, uint32_t count);
/* The cut of the slice's part number i. */
static inline const struct co_cut *co_cut_of(const struct co_op *op, uint32_t i)
{
    return &op->engine->cuts[i % op->engine->part_count];
}
/* The rank that stores the slice's part number i: its owners take turns by block. */
uint32_t co_part_writer(const struct co_op *op, uint32_t i);
/* The pool's device block for block `block` of the op. */
uint32_t co_device_block(const struct co_op *op, uint32_t block, uint32_t pool);

/* ---- copy.c: COPY to the ranks and their answers ---- */
/* Sends a COPY to each rank that has parts to copy. If none has, the slice is copied. */
void co_copy_start(struct coordinator *self, struct co_op *op);
void co_copy_answered(struct coordinator *self, struct co_op *op, uint32_t rank,
                      const struct sl_msg *reply);

/* ---- fence.c: fences, and the processes of workers ---- */
/* Whether no process but the one that answered can have worked on it. */
bool co_share_is_settled(const struct coordinator *self, const struct co_share *share);
/* reply NULL: none, it is sent again. */
void co_fence_answered(struct coordinator *self, struct co_op *op, uint32_t rank,
                       const struct sl_msg *reply);
/* Enters CO_SETTLE: fences the unsettled workers; calls `settled` when those waited for are
 * done. */
void co_settle(struct coordinator *self, struct co_op *op, co_workers waited_workers,
               void (*settled)(struct coordinator *self, struct co_op *op));
/* Drops COPYs in flight, and sends a FENCE to each worker. */
void co_fence_start(struct coordinator *self, struct co_op *op, co_workers workers);
/* Sends a FENCE to one worker; the op continues. */
void co_fence_send(struct coordinator *self, struct co_op *op, uint32_t worker);
/* Stops waiting for the op's fences. */
void co_fence_forget(struct coordinator *self, struct co_op *op);
void co_fence_tick(struct coordinator *self, struct co_op *op);
void co_op_fenced(struct coordinator *self, const struct sl_msg *msg); /* OP_FENCED */
void co_cancel(struct coordinator *self, const struct sl_msg *msg);
/* Fences what a dead coordinator may have left at the rank. */
void co_rank_greet(struct coordinator *self, uint32_t rank);
void co_rank_greeted(struct coordinator *self, uint32_t rank, const struct sl_msg *reply);
void co_rank_identify(struct coordinator *self, uint32_t rank);
void co_rank_identified(struct coordinator *self, uint32_t rank, const struct sl_msg *reply);
void co_rank_died(struct coordinator *self, struct sl_proc_id proc);
/* Stops waiting for an absent transporter: it has no work in flight. */
void co_greet_look(struct coordinator *self);

/* ---- pull.c: blocks of other nodes directly into the pools ---- */
/* How many of the slice's blocks from `block` on one pull may have. 0: use the arena. */
uint32_t co_pull_blocks(const struct coordinator *self, const struct co_op *op, uint32_t block);
/* A pull of the slice's blocks from `block` on was sent. */
void co_pull_asked(struct coordinator *self, struct co_op *op, uint32_t block);
/* Gives a pool slot for each rank that has a part of the slice's blocks from `block` on, part by
 * part. NULL: out of memory. */
struct sl_item_slot *co_pool_slots_make(struct co_op *op, uint32_t block, uint32_t *count);
uint32_t co_block_pool_slots(const struct co_engine *engine); /* in a block */
uint64_t co_pool_slots_max(const struct coordinator *self);   /* in a message */
/* When to try an engine's pools again after this refusal. */
uint64_t co_pools_again_ns(const struct coordinator *self, sl_err code);
/* reply NULL: none in time. */
void co_pull_answered(struct coordinator *self, struct co_op *op, const struct sl_msg *reply);

/* ---- handover.c ---- */
/* Whether decode, on any node, has offered a ticket for it. */
bool co_handover_offers(const struct coordinator *self, uint64_t id);
/* Whether prefill has committed. */
static inline bool co_handover_is_committed(const struct co_op *op)
{
    return op->handover->machine.state >= SL_HANDOVER_COMMITTED;
}
/* Whether prefill handed over the blocks of this load. False: the op was ended. */
bool co_handover_matches(struct coordinator *self, struct co_op *op);
void co_handover_arrived(struct coordinator *self, const struct sl_msg *msg); /* ARRIVED */
void co_handover_end(struct coordinator *self, const struct sl_msg *msg);     /* HANDOVER_END */
/* A peer's decode has finished with it. Errors: SL_ERR_NOT_FOUND (no row; the registrar was asked),
 * SL_ERR_BUSY (it is in use here), SL_ERR_PERMISSION (another receipt). */
sl_err co_handover_peer_done(struct coordinator *self, const struct sl_item_receipt *item,
                             uint64_t trace_id);
void co_handover_hold_ended(struct coordinator *self, uint32_t index, const struct sl_msg *reply);

void co_handover_landed(struct coordinator *self, const struct sl_msg *msg); /* LANDED */

/* The last ended op of this kind that was a side of it; NULL: none is remembered. */
const struct co_op *co_handover_ended(const struct coordinator *self, uint64_t id,
                                      enum co_kind kind);
struct co_handover *co_handover_find(const struct coordinator *self, uint64_t id);
/* NULL: all handovers_max rows are in use. */
struct co_handover *co_handover_new(struct coordinator *self, uint64_t id, uint64_t trace_id);
/* The tick checks all rows at that time, or earlier. */
void co_handover_look_at(struct coordinator *self, uint64_t at_ns);
/* A receipt arrived. Codes as in ARRIVED. */
sl_err co_handover_receipt(struct coordinator *self, const struct sl_item_receipt *item,
                           uint64_t trace_id);
/* Passes the remaining states up to committed. */
void co_handover_commits(struct coordinator *self, struct co_handover *row);
/* Prefill failed on its node, or decode gave up on its own. Aborts a row that is not committed. */
sl_err co_handover_peer_failed(struct coordinator *self, struct co_handover *row, sl_err code,
                               const char *reason);
void co_handover_sides_wake(struct coordinator *self, struct co_handover *row);

/* ---- notify.c: notifications between the nodes of a hand-over ---- */
void co_notify_handle(struct coordinator *self, const struct sl_msg *msg); /* HANDOVER_NOTIFY */
/* Decode, before prefill's commit: notifies prefill's node that it waits. If that is this node,
 * asks the registrar after a while, in case an earlier coordinator has answered prefill. */
void co_notify_prefill(struct coordinator *self, struct co_handover *row);
void co_notify_answered(struct coordinator *self, uint32_t index, const struct sl_msg *reply);
/* The answer to a HOLD query. */
void co_hold_query_answered(struct coordinator *self, uint32_t index, const struct sl_msg *reply);
/* Decode ends without prefill's commit: notifies prefill's node. */
void co_notify_gave_up(struct coordinator *self, const struct co_handover *row);
/* When co_notify_prefill is due; SL_NEVER_NS: never. */
uint64_t co_notify_due(const struct co_handover *row);
void co_ticket_handle(struct coordinator *self, const struct sl_msg *msg); /* TICKET */
/* Prefill: the ticket that decode, on any node, has offered. False: none yet. */
bool co_ticket_offered(const struct co_handover *row, struct sl_item_ticket *ticket);
/* Prefill: notifies a waiting decode node of the result. */
void co_notify_decode(struct coordinator *self, const struct co_handover *row);
/* Decode has the blocks that prefill's node holds, or failed: notifies that node, if it is another
 * one, so that its hold ends. A lost notification costs the time of the hold. */
void co_notify_taken(struct coordinator *self, const struct co_receipt *receipt,
                     uint64_t handover_id, uint64_t trace_id);

/* ---- layers.c ---- */
struct co_range {                    /* the range of a part that the COPYs in flight are of */
    uint32_t first_layer, layer_end; /* 0, 0: the whole part */
    uint64_t from, end, length_bytes;
};
static inline bool co_by_layers(const struct co_op *op)
{
    return op->layers.count != 0;
}
bool co_layers_partial(const struct co_op *op);
/* Whether swappers answer hashes of chunks. */
bool co_layers_chunked(const struct co_op *op);
/* False: these layers have nothing of the part. */
bool co_layers_range(const struct co_op *op, const struct co_cut *cut, struct co_range *out);
/* The range of a part in layers [from, end). False: it is empty. */
bool co_layers_between(const struct co_op *op, const struct co_cut *cut, uint32_t from,
                       uint32_t end, struct co_range *out);
/* Bytes of hashes of the range's whole chunks in an answer; and keeps these hashes. */
uint64_t co_layers_hash_bytes(const struct co_range *range);
void co_layers_hashes(struct co_part *part, const struct co_range *range, const uint8_t *hashes);
/* The COPYs of the requested layers are done. */
void co_layers_copied(struct coordinator *self, struct co_op *op);
bool co_layers_any(const struct co_op *op, enum co_part_state state); /* any part of the slice */
void co_layers_begin(struct co_op *op);                               /* resets its layers */
void co_layers_begin_store(struct coordinator *self, struct co_op *op);
void co_layers_begin_load(struct coordinator *self, struct co_op *op);
/* CO_LAYERS: continues with what is ready or copied. */
void co_layers_go_store(struct coordinator *self, struct co_op *op);
void co_layers_go_load(struct coordinator *self, struct co_op *op);
/* Copies all layers that are ready. */
void co_layers_copy_ready(struct coordinator *self, struct co_op *op);
/* All layers are copied: completes the slice. */
void co_layers_finish(struct coordinator *self, struct co_op *op);
/* Reports the loaded layers to the engine. */
void co_layers_report(struct coordinator *self, struct co_op *op);
/* Direct load: pieces arrived in its pools. */
void co_layers_arrived(struct coordinator *self, struct co_op *op,
                       const struct sl_body_landed *body);
void co_layers_handle(struct coordinator *self, const struct sl_msg *msg); /* LAYERS */

/* ---- direct.c: shared by both sides of direct hand-overs, direct_out.c and direct_in.c ---- */
bool co_direct_falls_back(const struct coordinator *self);
/* Logs the reason and clears it: the hand-over may still succeed. */
void co_direct_fallback_note(struct coordinator *self, struct co_op *op);
/* Makes one slice of all blocks from `first` on. False: they cannot go directly, and the op
 * continues through storage or was ended. */
bool co_direct_start(struct coordinator *self, struct co_op *op, uint32_t first);
/* Marks that the transporter may access the op's device blocks. */
void co_direct_mark_in_use(struct coordinator *self, struct co_op *op);
/* Sends a request to the transporter. False: the op was ended. */
bool co_direct_call(struct coordinator *self, struct co_op *op, struct sl_msg *msg);
/* The transporter has finished: calls `then`, after a fence if another process may work for it. */
void co_direct_over(struct coordinator *self, struct co_op *op,
                    void (*then)(struct coordinator *self, struct co_op *op));
/* Fences the transporter's work for the op, then calls `then`. */
void co_direct_settle(struct coordinator *self, struct co_op *op,
                      void (*then)(struct coordinator *self, struct co_op *op));
/* Whether this answer means that it has begun nothing. */
bool co_direct_is_refusal(const struct coordinator *self, sl_err code);

/* ---- store.c, load.c ---- */
void co_store_slice(struct coordinator *self, struct co_op *op);
void co_store_late_grants(struct coordinator *self, const struct sl_msg *reply);
/* Other nodes have answered; NULL: not in time. Continues with what is here. */
void co_load_fetched(struct coordinator *self, struct co_op *op, const struct sl_msg *reply);
void co_load_look(struct coordinator *self, struct co_op *op);
/* Loads through storage as soon as prefill has committed. */
void co_load_await(struct coordinator *self, struct co_op *op);
void co_load_copied(struct coordinator *self, struct co_op *op);
void co_load_done(struct coordinator *self, struct co_op *op);
/* Notes the accesses to the op's blocks, of loads and of stores, tail first. */
void co_load_note(struct coordinator *self, struct co_op *op);

/* ---- begin.c: STORE, LOAD ---- */
void co_op_start(struct coordinator *self, const struct sl_msg *msg);

#endif
