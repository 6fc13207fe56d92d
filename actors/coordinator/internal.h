/* actors/coordinator/internal.h - state of the coordinator, shared by its files. */
#ifndef SL_COORDINATOR_INTERNAL_H
#define SL_COORDINATOR_INTERNAL_H

#include "ipc/sl_cluster.h"
#include "ipc/sl_index.h"
#include "ipc/sl_msg.h"
#include "ipc/sl_pins.h"
#include "runtime/sl_actor.h"
#include "runtime/sl_handover.h"

#define CO_RANKS_MAX       64u
#define CO_POOLS_MAX       8u
#define CO_FINISHED_MAX    256u  /* ended ops whose answers are kept for repeated requests */
#define CO_SLICE_PARTS_MAX 4096u /* parts of one round: bounds messages, pins and scratch */
#define CO_FIND_MAX        256u  /* keys of one look-up */
#define CO_PROMOTE_ROUNDS  3u
#define CO_STALE_ROUNDS                                                       \
    16u /* an entry that changes so often while it is pinned counts as a miss \
         */
#define CO_RESERVE_ROUNDS    3u /* of a block whose other writer gave up */
#define CO_FENCE_WAITERS_MAX 4u
#define CO_POLL_NS           (1 * SL_NS_PER_MS)
#define CO_POLL_NS_MAX       (8 * SL_NS_PER_MS)
#define CO_FENCE_POLL_NS     (20 * SL_NS_PER_MS)
#define CO_CALL_NS           (10 * SL_NS_PER_S) /* of calls that belong to no op; asked again after it */
#define CO_REASON_BYTES      160u
#define CO_LAYERS_MAX        4096u
#define CO_LAYER_WAITERS_MAX 4u

/* ---- memory.c: what an op allocates while it lives, in recycled chunks ---- */
struct co_chunk;
struct co_chunks { /* free chunks, shared by all ops; bounded */
    struct co_chunk *first;
    uint32_t count;
};
struct co_arena {
    struct co_chunks *chunks;
    struct co_chunk *first; /* the one in use */
};
/* Zeroed memory that lives until reset. NULL: out of memory. */
void *co_arena_take(struct co_arena *arena, size_t count, size_t item_bytes);
void co_arena_reset(struct co_arena *arena);
void co_chunks_fini(struct co_chunks *chunks);

/* ---- bitmaps.c: bit i & 7 of byte i >> 3, as on the wire ---- */
static inline bool co_bit(const uint8_t *bits, uint64_t i)
{
    return ((uint32_t)bits[i >> 3] >> (i & 7) & 1u) != 0;
}
static inline void co_bit_set(uint8_t *bits, uint64_t i)
{
    bits[i >> 3] = (uint8_t)((uint32_t)bits[i >> 3] | UINT32_C(1) << (i & 7));
}
static inline uint64_t co_bits_bytes(uint64_t count)
{
    return (count + 7) / 8;
}
uint32_t co_bits_count(const uint8_t *bits, uint32_t count);
/* How many bits are set before the first that is not. */
uint32_t co_bits_prefix(const uint8_t *bits, uint32_t count);

/* ---- engines.c: registrations, asked of the registrar when first needed ---- */
enum co_engine_state { CO_ENGINE_FREE, CO_ENGINE_ASKED, CO_ENGINE_KNOWN };
struct co_engine {
    enum co_engine_state state;
    bool asking; /* ENGINE_GET is in flight */
    uint64_t id;
    struct sl_proc_id proc;
    uint64_t used_ns;
    uint64_t part_bytes[CO_RANKS_MAX][CO_POOLS_MAX];
    uint64_t block_bytes;      /* of all ranks and pools */
    uint64_t device_block_max; /* largest block id that every region has */
    uint32_t world, pool_count, part_count, block_tokens;
    uint32_t ops; /* that use it now */
    /* Where the layers of a part begin in it, and its end: layer_counts + 1 for each rank and pool.
     */
    uint64_t *layer_offsets; /* owned */
    uint32_t layer_at[CO_RANKS_MAX][CO_POOLS_MAX];
    uint32_t layer_counts[CO_RANKS_MAX][CO_POOLS_MAX];
    char model[33];
    char key_format[32];
    char seed[256];
    char pool_names[CO_POOLS_MAX][32];
};

/* ---- ops ---- */
enum co_kind {
    CO_STORE,
    CO_LOAD,
    CO_UNKNOWN, /* somebody asks whether an op that nobody remembers is fenced */
};
enum co_phase {
    CO_FREE,
    CO_ENGINE, /* the registration is asked for */
    CO_KEYS,   /* the keyer works */
    CO_AWAIT,  /* load: prefill has not committed yet */
    CO_OPEN,   /* direct load: the transporter makes a ticket */
    CO_CLOSE,  /* direct load: and ends it */
    CO_PUSH,   /* direct store: the transporter writes to decode's node */
    CO_GREET,  /* swappers may still work for a coordinator that died */
    CO_LOOK,   /* load: looks again soon (pins short, entry in motion, registrar not greeted yet) */
    CO_PROMOTE, /* load: the registrar brings parts in from disk */
    CO_FETCH,   /* load: the transporter brings blocks in from other nodes */
    CO_RESERVE, /* store: the registrar looks for room */
    CO_COPY,    /* swappers work */
    CO_LAYERS,  /* store by layers: the engine computes the next ones; others may be pushed */
    CO_SETTLE,  /* copies may have been asked for twice: swappers are fenced before the slice counts
                 */
    CO_COMMIT,  /* store: the registrar makes blocks visible */
    CO_OTHERS,  /* store: other ops write the blocks that are left */
    CO_ZOMBIE,  /* answered; device blocks stay lent until each swapper has acknowledged a fence or
                   is dead */
    CO_DONE,    /* answered and fenced; kept to answer a repeated request */
};
enum co_part_state {
    CO_PART_OPEN,
    CO_PART_PINNED,
    CO_PART_ON_DISK,
    CO_PART_GRANTED,
    CO_PART_COPIED,
    CO_PART_BROKEN, /* by layers: granted or pinned, and one of its layers was not copied */
    CO_PART_GONE
};
struct co_part {
    uint64_t generation, offset_bytes;
    struct sl_digest digest;        /* by layers: of those that were copied last */
    struct sl_digest pushed_digest; /* by layers: of those that are being pushed */
    uint64_t *chunks;       /* store by layers: hashes of the chunks; in the slice's memory */
    uint64_t arrived_bytes; /* direct load by layers: from its start */
    sl_ref ref;
    sl_pin pin;
    uint16_t arena;
    uint8_t state; /* enum co_part_state */
};
enum co_fate { CO_BLOCK_OPEN, CO_BLOCK_STORED, CO_BLOCK_EXISTED, CO_BLOCK_BUSY, CO_BLOCK_FAILED };
enum co_tier { CO_TIER_NONE, CO_TIER_MEMORY, CO_TIER_DISK, CO_TIER_REMOTE };
struct co_block {
    struct sl_key key; /* in the op's memory; NULL: the format has none for it */
    uint64_t busy_until_ns;
    uint64_t note_generation; /* of its first part, for the access ring */
    sl_ref note_ref;
    uint32_t device_block;
    uint8_t fate;  /* store: enum co_fate */
    uint8_t tier;  /* load: enum co_tier, by first sight, the slowest part counts */
    uint8_t round; /* store: how often it was asked for */
};
/* What a rank has to do for an op. */
struct co_share {
    uint64_t call_seq; /* of the COPY or FENCE in flight; 0: none */
    uint64_t sent_ns;
    struct sl_proc_id proc; /* that the COPY was first sent to; pid 0: not known */
    uint32_t item_count;    /* of the COPY */
};

struct co_layer_waiter { /* LAYER_WAIT */
    struct sl_return back;
    uint32_t layers;
};
/* Of an op by layers. A layer is one of the forward pass; what of each pool belongs to it the
 * request says. Layers are counted from the first: "3" is the first three. */
struct co_layers {
    uint32_t count;       /* 0: the op is not by layers */
    bool checked;         /* count is what it says: the engine is known */
    uint32_t *ends;       /* [count][pool]: in the pool's layers; in the op's memory */
    uint64_t entry_count; /* of ends */
    uint32_t ready;       /* may be copied */
    uint32_t asked, done; /* copied when the COPYs in flight are done; copied */
    /* direct store: acknowledged by decode, and when the batches in flight are */
    uint32_t pushed, push_end;
    bool pushing;                /* PUSH_SEND is in flight */
    sl_err push_failed;          /* while COPYs are in flight: falls back when they are done */
    bool last;                   /* load: no slice follows this one */
    uint32_t in;                 /* load: told, or may have been */
    uint32_t block_count;        /* of so many blocks */
    struct sl_item_piece *items; /* scratch of COPYs */
    uint32_t item_room;
    struct sl_item_pushed *pieces; /* scratch of PUSH_SENDs */
    struct co_layer_waiter waiters[CO_LAYER_WAITERS_MAX];
    uint32_t waiter_count;
};

struct co_receipt { /* what decode must know before it loads */
    bool known;
    uint32_t block_end; /* blocks of the input */
    struct sl_digest keys;
    char node[32];
};

struct co_op {
    enum co_kind kind;
    enum co_phase phase;
    struct co_op *hash_next;
    struct co_op *older, *newer; /* list of ops in flight, or of finished ones */
    struct co_engine *engine;    /* held while in flight */
    struct sl_return back;
    uint64_t id, trace_id, engine_id;
    uint64_t started_ns, deadline_ns, wake_ns;
    struct co_arena life; /* request and keys: until the op is answered and fenced */
    struct co_arena work; /* the slice */

    struct sl_bytes tokens; /* kept while the engine is asked for */
    struct sl_text extras;
    bool partial;
    uint32_t first_block, block_count, token_count;
    struct co_handover *handover;     /* that the op is a side of; NULL: none */
    uint64_t hold_ns;                 /* store of a hand-over: how long decode may take */
    bool direct;                      /* pushed under a ticket, not through storage */
    bool push_over;                   /* load: no ticket came */
    uint32_t push_skip;               /* store: blocks that decode has */
    struct sl_bytes ticket;           /* store: in the op's memory */
    struct co_receipt ticket_receipt; /* store: of what the ticket is */
    struct co_block *blocks;          /* block_count */
    uint64_t call_seq; /* of the one request in flight that is no COPY or FENCE; 0: none */

    /* The slice: blocks slice[0..slice_count), ascending. parts: [block of the slice][rank][pool].
     */
    uint32_t *slice;
    struct co_part *parts;
    struct sl_key *part_keys;
    uint32_t slice_count, slice_total;
    uint32_t at; /* load: first block that is not loaded; store: first that may be open */
    uint32_t rounds, stale_rounds;
    uint32_t *asked; /* load: parts of the PROMOTE in flight */
    uint32_t asked_count;
    bool fetched;       /* load: other nodes were asked for what this slice lacks */
    bool last;          /* load: nothing follows this slice */
    bool many;          /* more than one slice was needed */
    uint64_t poll_ns;   /* grows while waiting */
    uint64_t unsettled; /* ranks whose COPY may have been asked for twice */
    struct co_share shares[CO_RANKS_MAX];
    uint32_t shares_open;
    struct co_layers layers;

    /* The answer. */
    bool answered, client_gone;
    sl_err code;
    char reason[CO_REASON_BYTES];
    uint64_t handover_id;
    struct co_receipt receipt; /* store of a hand-over that is committed */
    uint8_t *stored, *existed; /* bitmaps: room for bitmap_bytes each, kept with the slot */
    uint64_t bitmap_bytes;
    uint32_t from_memory, from_disk, from_remote;
    uint64_t bytes;

    /* Fences. */
    uint64_t fence_started_ns;
    uint64_t killed_ranks;
    struct sl_return waiters[CO_FENCE_WAITERS_MAX];
    uint32_t waiter_count;
};

/* ---- hand-overs: what prefill's store and decode's load of one request have in common ---- */
struct co_handover {
    uint64_t id, trace_id; /* id 0: free */
    struct sl_handover machine;
    struct co_op *send, *receive; /* not answered yet; NULL: none */
    struct co_handover *hash_next;
    struct co_receipt receipt;
    uint64_t started_ns;
    bool received;                /* a decode was here */
    bool sent_here;               /* a prefill was */
    bool arrived;                 /* direct: all is in the extents */
    bool closing;                 /* PUSH_CLOSE without an op is in flight */
    struct sl_item_claim *claims; /* decode's extents; owned */
    uint64_t push_id; /* of the ticket: the place of this row in the low 16 bits; 0: none */
    uint32_t claim_count, ticket_bytes;
    unsigned char ticket[128];
    bool ending; /* HOLD_END is in flight */
    char reason[CO_REASON_BYTES];
};

/* ---- ranks, as processes ---- */
struct co_rank {
    struct sl_proc_id proc; /* pid 0: not known */
    bool asked;             /* a PING is in flight */
    uint64_t died_ns;       /* when the last known process was found dead, 0: never */
};

enum co_call {
    CO_CALL_OP = 1, /* cookie carries the op's slot */
    CO_CALL_SHARE,  /* and the rank */
    CO_CALL_ENGINE,
    CO_CALL_PING,
    CO_CALL_HELLO,
    CO_CALL_GREET,
    CO_CALL_HOLD,
    CO_CALL_CLOSE,
    CO_CALL_NOBODY, /* the answer changes nothing */
};
static inline uint64_t co_cookie(enum co_call call, uint32_t rank, uint32_t index)
{
    return (uint64_t)call << 48 | (uint64_t)rank << 32 | index;
}

struct co_metrics {
    sl_metric store_count, load_count, op_failed_count, op_timeout_count, op_cancelled_count,
        op_refused_count;
    sl_metric repeated_count, op_active_count, late_reply_count, zombie_count, fence_count,
        killed_count, settled_count;
    sl_metric block_stored_count, block_existed_count, block_refused_count, block_from_memory_count;
    sl_metric block_from_disk_count, block_from_remote_count, block_missed_count, stored_bytes,
        loaded_bytes;
    sl_metric promote_count, fetch_count, promote_gave_up_count, pin_limit_count,
        length_mismatch_count, client_died_count;
    sl_metric handover_active_count, handover_committed_count, handover_consumed_count,
        handover_aborted_count, handover_recomputed_count, handover_gone_count,
        handover_pushed_count, handover_fallback_count, handover_released_count,
        release_refused_count, layered_count, layers_copied_count;
    sl_histogram store_ns, load_ns, handover_ns;
};

struct coordinator {
    struct sl_env *env;
    struct sl_calls *calls;
    struct sl_index_view *view; /* NULL: not there yet */
    struct sl_pins *pins;
    char pins_name[64];
    uint64_t pins_taken;      /* slots in use */
    uint64_t boot_generation; /* of the registrar that knows our pins; 0: none does */
    uint64_t hello_seq, hello_due_ns;
    uint64_t load_bytes_max, store_bytes_max; /* of a slice; one block always goes */
    uint64_t layered_bytes_max; /* of a slice by layers: its hashes fit into a message */
    uint32_t load_parts_max, store_parts_max;
    uint32_t rank_count;
    bool draining;
    struct co_rank ranks[CO_RANKS_MAX];
    uint64_t ungreeted; /* ranks that have not acknowledged the fence of our predecessor's work */
    struct co_engine *engines;
    uint32_t engine_max;

    struct co_op *ops; /* op_max + CO_FINISHED_MAX */
    struct co_op **op_heads;
    uint32_t op_max, op_slots, op_mask;
    uint32_t op_active;
    struct co_op *free_first;
    struct co_op *active_first, *active_last;
    struct co_op *done_first, *done_last; /* oldest first */
    struct co_chunks chunks;

    char node[SL_CLUSTER_NAME_BYTES]; /* of this node; "": it has none that is one */
    struct co_handover *handovers;    /* handover_max */
    struct co_handover **handover_heads, *handover_free;
    uint32_t handover_max, handover_mask, handover_count;
    uint64_t handover_next_ns; /* no deadline of one is before it */

    struct sl_key find_keys[CO_FIND_MAX]; /* scratch of a look-up */
    struct sl_entry find_entries[CO_FIND_MAX];
    sl_err find_codes[CO_FIND_MAX];
    uint32_t find_parts[CO_FIND_MAX];
    struct co_metrics metric;
};

/* ---- coordinator.c ---- */
/* Opens the index, or opens it anew when the registrar has made another. False: there is none. */
bool co_view(struct coordinator *self);
/* Loads may pin: the registrar knows our pin segment. */
bool co_may_pin(const struct coordinator *self);
void co_wake(struct coordinator *self, struct co_op *op, uint64_t at_ns);

/* ---- engines.c ---- */
sl_err co_engines_init(struct coordinator *self, struct sl_error *why);
void co_engines_fini(struct coordinator *self);
/* Asks for the engine when it is not known; state says. Errors: SL_ERR_LIMIT. */
sl_err co_engine_want(struct coordinator *self, uint64_t id, uint64_t trace_id,
                      struct co_engine **out);
void co_engine_release(struct co_op *op);
/* reply NULL: nobody answered. */
void co_engine_answered(struct coordinator *self, uint32_t index, const struct sl_msg *reply);
void co_engine_forget(struct coordinator *self, struct co_engine *engine);
void co_process_died(struct coordinator *self, const struct sl_body_local_died *died);

/* ---- ops.c ---- */
sl_err co_ops_init(struct coordinator *self, struct sl_error *why);
void co_ops_fini(struct coordinator *self);
struct co_op *co_op_find(const struct coordinator *self, uint64_t id);
/* A fresh op under this id, in flight. NULL: too many. */
struct co_op *co_op_new(struct coordinator *self, enum co_kind kind, const struct sl_msg *msg);
void co_op_start(struct coordinator *self, const struct sl_msg *msg);
void co_op_engine_known(struct coordinator *self, struct co_op *op);
void co_op_go(struct coordinator *self, struct co_op *op); /* keys are known */
void co_op_keys(struct coordinator *self, struct co_op *op, const struct sl_msg *reply);
/* The op's one request in flight. False: it could not be sent and the op was ended. */
bool co_op_call(struct coordinator *self, struct co_op *op, const char *to, struct sl_msg *msg);
void co_reason(struct co_op *op, const char *format, ...) SL_PRINTF(2, 3); /* the first one stays */
/* Keys of all parts of the slice. False: out of memory, the op was ended. */
bool co_slice_make(struct coordinator *self, struct co_op *op, uint32_t count);
static inline struct co_part *co_part_at(const struct co_op *op, uint32_t block, uint32_t rank,
                                         uint32_t pool)
{
    return &op->parts[(block * op->engine->world + rank) * op->engine->pool_count + pool];
}
/* Ends the op: answers once, fences what is outstanding, gives back. */
void co_op_end(struct coordinator *self, struct co_op *op, sl_err code);
void co_op_answer(struct coordinator *self, struct co_op *op);
/* Answered and fenced. */
void co_op_done(struct coordinator *self, struct co_op *op);
void co_op_tick(struct coordinator *self, struct co_op *op, uint64_t now_ns);
const char *co_phase_text(enum co_phase phase);

/* ---- copy.c: COPY to the ranks and their answers; fences ---- */
/* One COPY for each rank that has parts in `state`. False: the op was ended. Nothing to copy: the
 * slice is done at once. */
void co_copy_start(struct coordinator *self, struct co_op *op, enum co_part_state state);
void co_share_answered(struct coordinator *self, struct co_op *op, uint32_t rank, uint32_t type,
                       const struct sl_msg *reply);
/* Drops COPYs in flight and asks the ranks for a fence. */
void co_fence_start(struct coordinator *self, struct co_op *op, uint64_t ranks);
/* Nobody waits for the fences any more. */
void co_fence_forget(struct coordinator *self, struct co_op *op);
void co_fence_tick(struct coordinator *self, struct co_op *op, uint64_t now_ns);
void co_op_fenced(struct coordinator *self, const struct sl_msg *msg); /* OP_FENCED */
void co_cancel(struct coordinator *self, const struct sl_msg *msg);
void co_waiters_answer(struct coordinator *self, struct co_op *op, sl_err code, bool fenced);
/* Fences what a coordinator that died has left at the rank. */
void co_rank_greet(struct coordinator *self, uint32_t rank);
void co_rank_greeted(struct coordinator *self, uint32_t rank, const struct sl_msg *reply);
void co_rank_learn(struct coordinator *self, uint32_t rank);
void co_rank_pong(struct coordinator *self, uint32_t rank, const struct sl_msg *reply);
void co_rank_died(struct coordinator *self, struct sl_proc_id proc);

/* ---- handover.c ---- */
sl_err co_handovers_init(struct coordinator *self, struct sl_error *why);
void co_handovers_fini(struct coordinator *self);
/* The op takes its side. Errors: SL_ERR_BUSY, SL_ERR_EXISTS, SL_ERR_HANDOVER, SL_ERR_LIMIT. */
sl_err co_handover_begin(struct coordinator *self, struct co_op *op, const struct sl_msg *msg);
/* The op's request came again, with a receipt perhaps. */
void co_handover_again(struct coordinator *self, struct co_op *op, const struct sl_msg *msg);
/* The keys are known. False: the op was ended. */
bool co_handover_keys(struct coordinator *self, struct co_op *op);
/* A load goes on when prefill has committed. */
void co_handover_await(struct coordinator *self, struct co_op *op);
/* Before the op is answered; gives the code of the answer. */
sl_err co_handover_ended(struct coordinator *self, struct co_op *op, sl_err code);
/* Answered and fenced. */
void co_handover_done(struct coordinator *self, struct co_op *op);
/* True: the hand-over failed meanwhile, and the op was ended. */
bool co_handover_failed(struct coordinator *self, struct co_op *op);
/* The block of the input that is not full. */
bool co_handover_is_tail(const struct co_op *op, uint32_t block);
void co_handover_arrived(struct coordinator *self, const struct sl_msg *msg); /* ARRIVED */
void co_handover_end(struct coordinator *self, const struct sl_msg *msg);     /* HANDOVER_END */
/* A peer's decode is done with it. Errors: SL_ERR_NOT_FOUND (no row; the registrar was asked),
 * SL_ERR_BUSY (it is under way here), SL_ERR_PERMISSION (not this receipt). */
sl_err co_handover_taken(struct coordinator *self, const struct sl_item_receipt *item,
                         uint64_t trace_id);
void co_handover_hold_ended(struct coordinator *self, uint32_t index);
void co_handovers_tick(struct coordinator *self, uint64_t now_ns);

void co_handover_ticket(struct coordinator *self, const struct sl_msg *msg); /* TICKET */
void co_handover_push_arrived(struct coordinator *self,
                              const struct sl_msg *msg); /* PUSH_ARRIVED */
void co_handover_ticket_closed(struct coordinator *self, uint32_t index,
                               const struct sl_msg *reply);

/* ---- release.c: a hold at prefill's node ends when decode at another is done with it ---- */
/* Tells prefill's node, if it is another one. A lost word costs the time of the hold. */
void co_release_send(struct coordinator *self, const struct co_receipt *receipt,
                     uint64_t handover_id, uint64_t trace_id);
void co_release_handle(struct coordinator *self, const struct sl_msg *msg);

/* ---- layers.c ---- */
struct co_range {                    /* of a part: what the COPYs in flight are of */
    uint32_t first_layer, layer_end; /* 0, 0: all of it */
    uint64_t from, end, length_bytes;
};
static inline bool co_by_layers(const struct co_op *op)
{
    return op->layers.count != 0;
}
/* By layers, and not all of them at once. */
bool co_layers_partial(const struct co_op *op);
/* The swappers answer hashes of chunks. */
bool co_layers_chunked(const struct co_op *op);
/* False: nothing of the part is in these layers. */
bool co_layers_range(const struct co_op *op, uint32_t rank, uint32_t pool, struct co_range *out);
/* What of a part is in layers [from, end). */
bool co_layers_between(const struct co_op *op, uint32_t rank, uint32_t pool, uint32_t from,
                       uint32_t end, struct co_range *out);
/* Of the chunks of a part that are whole now; in an answer, and kept. */
uint64_t co_layers_hash_bytes(const struct co_range *range);
void co_layers_hashes(struct co_part *part, const struct co_range *range, const uint8_t *hashes);
/* Keeps what the request says of layers. */
sl_err co_layers_keep(struct co_op *op, const struct sl_msg *msg);
/* The engine is known. False: the request does not fit it, and the op was ended. */
bool co_layers_check(struct coordinator *self, struct co_op *op);
/* The request came again. */
void co_layers_again(struct coordinator *self, struct co_op *op, const struct sl_msg *msg);
/* The slice's extents are granted: layers are copied as the engine says so. */
void co_layers_store(struct coordinator *self, struct co_op *op);
/* The slice's parts are pinned. */
void co_layers_load(struct coordinator *self, struct co_op *op);
/* Copies, pushes or ends what can be. */
void co_layers_go(struct coordinator *self, struct co_op *op);
void co_layers_copied(struct coordinator *self, struct co_op *op);
void co_layers_pushed(struct coordinator *self, struct co_op *op, const struct sl_msg *reply);
/* Direct load: pieces lie in its extents. */
void co_layers_arrived(struct coordinator *self, struct co_op *op,
                       const struct sl_body_push_arrived *body);
/* Before the op is answered; gives the code of the answer. */
sl_err co_layers_ended(struct co_op *op, sl_err code);
/* Answers who waits for layers that are in, or for the op's end. */
void co_layers_tell(struct coordinator *self, struct co_op *op);
void co_layers_expire(struct coordinator *self, struct co_op *op, uint64_t now_ns);
void co_layer_ready(struct coordinator *self, const struct sl_msg *msg); /* LAYER_READY */
void co_layer_wait(struct coordinator *self, const struct sl_msg *msg);  /* LAYER_WAIT */

/* ---- push.c ---- */
/* Sends what is next of layers [pushed, push_end). False: the op was ended. */
bool co_push_layers(struct coordinator *self, struct co_op *op);
/* All of it was acknowledged. */
void co_push_done(struct coordinator *self, struct co_op *op);
void co_push_start(struct coordinator *self, struct co_op *op);
void co_push_answer(struct coordinator *self, struct co_op *op, const struct sl_msg *reply);
void co_push_copied(struct coordinator *self, struct co_op *op);
/* Goes on through storage, or ends. */
void co_push_failed(struct coordinator *self, struct co_op *op, sl_err code);
void co_push_abort(struct coordinator *self, struct co_op *op, sl_err code);
void co_push_close(struct coordinator *self, struct co_op *op);
void co_push_load(struct coordinator *self, struct co_op *op);
void co_push_return(struct coordinator *self, struct co_op *op);

/* ---- store.c, load.c ---- */
/* Gives claims back. */
void co_claims_abort(struct coordinator *self, uint64_t op_id, uint64_t trace_id,
                     const struct sl_item_claim *claims, uint32_t count);
void co_store_slice(struct coordinator *self, struct co_op *op);
void co_store_answer(struct coordinator *self, struct co_op *op, const struct sl_msg *reply);
void co_store_copied(struct coordinator *self, struct co_op *op);
void co_store_poll(struct coordinator *self, struct co_op *op);
/* Gives back what was reserved and is not committed; after fences. */
void co_store_abort(struct coordinator *self, struct co_op *op);
void co_store_late_grants(struct coordinator *self, const struct sl_msg *reply);
void co_load_slice(struct coordinator *self, struct co_op *op);
void co_load_look(struct coordinator *self, struct co_op *op);
void co_load_promoted(struct coordinator *self, struct co_op *op, const struct sl_msg *reply);
/* reply NULL: the transporter did not answer in time. */
void co_load_fetched(struct coordinator *self, struct co_op *op, const struct sl_msg *reply);
void co_load_copied(struct coordinator *self, struct co_op *op);
void co_load_unpin(struct coordinator *self, struct co_op *op, uint32_t from_block);
void co_load_note(struct coordinator *self, struct co_op *op);

#endif
