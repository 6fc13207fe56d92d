/* actors/coordinator/state.h - the state of the coordinator and of its ops. */
#ifndef SL_COORDINATOR_STATE_H
#define SL_COORDINATOR_STATE_H

#include "actors/coordinator/engines.h"
#include "actors/coordinator/layers.h"
#include "actors/coordinator/memory.h"
#include "actors/coordinator/metrics.h"
#include "actors/coordinator/story.h"
#include "actors/coordinator/waiting.h"
#include "ipc/msg/sl_cluster.h"
#include "ipc/msg/sl_msg.h"
#include "ipc/shm/sl_index.h"
#include "ipc/shm/sl_labels.h"
#include "ipc/shm/sl_pins.h"
#include "ipc/shm/sl_seen.h"
#include "runtime/base/sl_actor.h"
#include "runtime/base/sl_table.h"
#include "runtime/net/sl_handover.h"

#define CO_FINISHED_MAX    256u  /* ended ops whose answers are kept for repeated requests */
#define CO_SLICE_PARTS_MAX 4096u /* parts of one round: bounds messages, pins and scratch */
#define CO_FIND_MAX        256u  /* keys of one look-up */
#define CO_PROMOTE_ROUNDS  3u
#define CO_STALE_ROUNDS                                                       \
    16u /* an entry that changes so often while it is pinned counts as a miss \
         */
#define CO_RESERVE_ROUNDS    3u /* of a block whose other writer gave up */
#define CO_FENCE_WAITERS_MAX 4u
#define CO_WAITERS_MAX       (CO_FENCE_WAITERS_MAX + CO_LAYER_WAITERS_MAX) /* of an op */
#define CO_POLL_NS           (1 * SL_NS_PER_MS)
#define CO_POLL_NS_MAX       (8 * SL_NS_PER_MS)
#define CO_FENCE_POLL_NS     (20 * SL_NS_PER_MS)
#define CO_SESSION_CALLS     4u                 /* of sessions, under way */
#define CO_CALL_NS           (10 * SL_NS_PER_S) /* of calls that belong to no op; asked again after it */
#define CO_REASON_BYTES      240u               /* as long as the text of an error */

/* ---- who touches device blocks for an op: the swapper of each rank, and the node's transporter,
 * which writes blocks of other nodes straight into pools ---- */
#define CO_TRANSPORTER CO_RANKS_MAX
#define CO_WORKERS_MAX (CO_RANKS_MAX + 1u)
__extension__ typedef unsigned __int128 co_workers; /* a bit each */
static inline co_workers co_worker_bit(uint32_t worker)
{
    return (co_workers)1 << worker;
}

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
    CO_LEND,   /* direct store: decode's node has not read all */
    CO_GREET,  /* swappers may still work for a coordinator that died */
    CO_LOOK,   /* load: looks again soon (pins short, entry in motion, registrar not greeted yet) */
    CO_PROMOTE, /* load: the registrar brings parts in from disk */
    CO_FETCH,   /* load: the transporter brings blocks in from other nodes */
    CO_PULL,    /* load: it brings them straight into the pools */
    CO_RESERVE, /* store: the registrar looks for room */
    CO_COPY,    /* swappers work */
    CO_LAYERS,  /* store by layers: the engine computes the next ones */
    CO_SETTLE,  /* copies may have been asked for twice: swappers are fenced before the slice counts
                 */
    CO_COMMIT,  /* store: the registrar makes blocks visible */
    CO_OTHERS,  /* store: other ops write the blocks that are left */
    CO_ZOMBIE,  /* answered; device blocks stay lent until each swapper has acknowledged a fence or
                   is dead */
    CO_DONE,    /* answered and fenced; kept to answer a repeated request */
    CO_PHASES,
};
struct coordinator;
struct co_op;
struct co_phase_ops { /* what an op of some type does in a phase; NULL: nothing */
    void (*enter)(struct coordinator *self, struct co_op *op);
    /* The answer to the op's one request; NULL: none came in time. */
    void (*reply)(struct coordinator *self, struct co_op *op, const struct sl_msg *reply);
    void (*tick)(struct coordinator *self, struct co_op *op); /* wake_ns came */
    bool unanswered; /* reply hears also of a silence; else that ends the op */
};
/* An op has one of four types: it stores or loads, through storage or directly. What cannot go
 * directly goes on as the type through storage: co_op_become. */
struct co_type {
    enum co_kind kind;
    bool direct;
    uint8_t copied_from; /* enum co_part_state: parts that a COPY is of */
    void (*go)(struct coordinator *self, struct co_op *op); /* keys known, ranks greeted */
    /* It cannot go directly: goes on through storage, or ends. */
    void (*direct_failed)(struct coordinator *self, struct co_op *op, sl_err code);
    void (*copied)(struct coordinator *self, struct co_op *op); /* COPYs of the slice are done */
    /* Answered and fenced: gives back. NULL: there is nothing. */
    void (*done)(struct coordinator *self, struct co_op *op);
    const struct co_phase_ops *phases; /* CO_PHASES */
};
extern const struct co_type co_store_type, co_load_type, co_direct_out_type, co_direct_in_type,
    co_unknown_type;
/* A feature listens to ops of all types. The core knows none of them by name: it walks the table in
 * coordinator.c. An empty field: it does not care. */
struct co_feature {
    sl_err (*init)(struct coordinator *self, struct sl_error *why);
    void (*fini)(struct coordinator *self);
    uint64_t (*tick)(struct coordinator *self,
                     uint64_t now_ns); /* gives when it has to come again */
    /* Keeps what it needs of the request. An error ends the op. */
    sl_err (*begin)(struct coordinator *self, struct co_op *op, const struct sl_msg *msg);
    /* The request came again, and is not answered yet. */
    void (*again)(struct coordinator *self, struct co_op *op, const struct sl_msg *msg);
    /* The op is through with this phase: ENGINE, KEYS. False: it was ended. */
    bool (*phase)(struct coordinator *self, struct co_op *op);
    /* Its time has come, and it is not answered. False: it was ended. */
    bool (*turn)(struct coordinator *self, struct co_op *op);
    /* Before the answer: gives its code. */
    sl_err (*ending)(struct coordinator *self, struct co_op *op, sl_err code);
    void (*ended)(struct coordinator *self,
                  struct co_op *op); /* its answer is known, and not sent */
    void (*answered)(struct coordinator *self, struct co_op *op);
    void (*done)(struct coordinator *self, struct co_op *op); /* answered and fenced */
};
enum co_part_state {
    CO_PART_OPEN,
    CO_PART_PINNED,
    CO_PART_ON_DISK,
    CO_PART_GRANTED,
    CO_PART_COPIED,
    CO_PART_PULLED, /* it lies in the pools, and came from another node */
    CO_PART_BROKEN, /* by layers: granted or pinned, and one of its layers was not copied */
    CO_PART_GONE
};
struct co_part {
    uint64_t generation, offset_bytes;
    struct sl_digest digest; /* by layers: of those that were copied last */
    uint64_t *chunks;        /* store by layers: hashes of the chunks; in the slice's memory */
    uint64_t arrived_bytes;  /* direct load by layers: from its start */
    sl_ref ref;
    sl_pin pin;
    uint16_t arena;
    uint16_t disk;  /* ON_DISK: slot of the disk */
    uint8_t state;  /* enum co_part_state */
    bool missed;    /* one of the ranks asked has not copied it */
    uint64_t asked; /* ranks of whose COPY in flight it is */
};
enum co_fate { CO_BLOCK_OPEN, CO_BLOCK_STORED, CO_BLOCK_EXISTED, CO_BLOCK_BUSY, CO_BLOCK_FAILED };
enum co_tier { CO_TIER_NONE, CO_TIER_MEMORY, CO_TIER_DISK, CO_TIER_REMOTE };
struct co_block {
    struct sl_key key; /* in the op's memory; NULL: the format has none for it */
    uint64_t busy_until_ns;
    uint64_t came_ns;         /* load: when it was on the device */
    uint64_t note_generation; /* of its first part, for the access ring */
    sl_ref note_ref;
    uint32_t device_block;
    uint8_t fate;  /* store: enum co_fate */
    uint8_t tier;  /* load: enum co_tier, by first sight, the slowest part counts */
    uint8_t round; /* store: how often it was asked for */
    bool away;     /* store, BUSY: nobody is at it, a process that it needs is not here yet */
};
/* What a rank, or the transporter, has to do for an op. */
struct co_share {
    uint64_t call_seq; /* of the COPY, pull or FENCE in flight; 0: none */
    uint64_t sent_ns;
    struct sl_proc_id proc; /* that it was first sent to; pid 0: not known */
    uint32_t item_count;    /* of the COPY */
};

struct co_waiter { /* OP_FENCED, LAYERS */
    struct sl_return back;
    uint32_t layers; /* that it waits for; 0: it waits for the fence */
};

struct co_receipt { /* what decode must know before it loads */
    bool known;
    uint32_t block_end; /* blocks of the input */
    struct sl_digest keys;
    char node[32];
};

#define CO_LEND_PIECES 512u /* of a LEND */
struct co_direct {          /* of the two types that go directly */
    bool lent;      /* the transporter may read or write the device blocks, also for a pull: fenced
                       before they go back */
    bool from_here; /* in: prefill is at this node */
    sl_err failed;  /* goes on through storage when nothing works for it any more */
    /* out: */
    uint32_t skip;             /* blocks that decode has */
    struct sl_bytes ticket;    /* in the op's memory */
    struct co_receipt receipt; /* of what the ticket is */
    uint64_t lends;            /* LENDs that were sent */
    /* Parts of the slice, not by layers: the digests of those before looked are known, the COPYs in
     * flight are of those before look_end (0: of all). By layers a round is of all parts. */
    uint32_t looked, look_end;
    uint32_t named, named_layers;   /* the first that no LEND has named; by layers: of this round */
    struct sl_item_arrived *pieces; /* [CO_LEND_PIECES], scratch; spots likewise */
    struct sl_item_spot *spots;
};

struct co_op {
    const struct co_type *type;
    enum co_phase phase;         /* co_op_enter alone sets it */
    struct sl_table_node node;   /* by id */
    struct co_op *older, *newer; /* list of ops in flight, or of finished ones */
    struct co_engine *engine;    /* held while in flight */
    struct sl_return back;
    uint64_t id, trace_id, engine_id;
    uint64_t started_ns, deadline_ns, wake_ns;
    struct co_memory life; /* request and keys: until the op is answered and fenced */
    struct co_memory work; /* the slice */

    struct sl_bytes tokens; /* kept while the engine is asked for */
    struct sl_text extras;
    bool partial;
    uint32_t first_block, block_count, token_count;
    uint64_t before_hash; /* sl_key_hash of the block before the first one; 0: none, not known */
    struct sl_key before; /* of a keyed store: its key; at NULL: none, not known */
    struct sl_said said;  /* by the engine */
    uint64_t session_id, pause_ns; /* until its next op is expected; 0: not known */
    uint32_t *pool_blocks; /* [pool][block] device blocks; NULL: those of blocks are all pools' */
    uint64_t pool_block_count;
    bool keyed; /* the engine brought the keys */
    struct co_origin origin;
    struct co_handover *handover; /* that the op is a side of; NULL: none */
    uint64_t hold_ns;             /* store of a hand-over: how long decode may take */
    struct co_direct direct;
    struct co_block *blocks;           /* block_count */
    uint8_t (*events)[SL_EVENT_BYTES]; /* [event_count]; NULL: the engine has waited */
    uint64_t *event_ranks;             /* of these */
    uint32_t event_count;
    uint64_t call_seq; /* of the one request in flight that is no COPY or FENCE; 0: none */

    /* The slice: blocks slice[0..slice_count), ascending. parts: [block of the slice][cut]. */
    uint32_t *slice;
    struct co_part *parts;
    struct sl_key *part_keys;
    uint32_t slice_count, slice_total;
    uint32_t at; /* load: first block that is not loaded; store: first that may be open */
    uint32_t rounds, stale_rounds;
    uint32_t *asked; /* load: parts of the BRING from disk in flight */
    uint32_t asked_count;
    sl_err refused;          /* load: why the last one did not bring its first block; or SL_OK */
    bool pull_barred;        /* load: other nodes' blocks come by the arena */
    bool fetched;            /* load: other nodes were asked for what this slice lacks */
    uint64_t fetch_until_ns; /* load of a hand-over: they are asked again until then; 0: not yet */
    bool last;               /* load: nothing follows this slice */
    bool many;               /* more than one slice was needed */
    uint64_t poll_ns;        /* grows while waiting */
    struct co_wait wait;     /* load */
    co_workers unsettled;    /* they may still work on what was asked of them, or work twice */
    struct co_share shares[CO_WORKERS_MAX];
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
    co_workers killed;
    co_workers settling; /* CO_SETTLE: these are waited for, and then goes on: */
    void (*settled)(struct coordinator *self, struct co_op *op);
    struct co_waiter *waiters; /* [CO_WAITERS_MAX], from the first one on; in the op's memory */
    uint32_t waiter_count;
};

/* ---- hand-overs: what prefill's store and decode's load of one request have in common ---- */
struct co_handover {
    uint64_t id, trace_id; /* id 0: free */
    struct sl_handover machine;
    struct co_op *send, *receive; /* not answered yet; NULL: none */
    struct sl_table_node node;    /* by id */
    struct co_handover *free_next;
    struct co_receipt receipt;
    uint64_t started_ns;
    bool received;          /* a decode was here */
    bool sent_here;         /* a prefill was */
    bool found;             /* it was at a coordinator before: the registrar holds all */
    bool arrived;           /* direct: all is in the pools */
    bool offered;           /* decode, direct: the transporter takes what comes under the ticket */
    uint64_t ticket_number; /* the place of this row in the low 16 bits; 0: there is none */
    uint32_t ticket_bytes;
    unsigned char ticket[128];
    bool ending;                 /* the HOLD that ends is in flight */
    char prefill_node[32];       /* decode: who is asked; "": nobody */
    bool prefill_here;           /* decode was told that prefill is at this node */
    uint64_t word_ns;            /* when, the next time */
    uint64_t word_pause_ns;      /* when nobody could be asked; 0: the first time */
    uint64_t word_seq, held_seq; /* the word and the HOLD that asks; 0: none */
    char decode_node[32];        /* prefill: who waits for it; "": nobody at another node */
    struct co_receipt awaited;   /* of what HOLD asks */
    struct sl_item_ticket offer; /* prefill, direct: that node's ticket; no bytes: none came */
    unsigned char offer_bytes[128];
    char reason[CO_REASON_BYTES];
};

/* ---- ranks and the transporter, as processes ---- */
struct co_rank {
    char name[16];
    struct sl_proc_id proc; /* pid 0: not known */
    bool asked;             /* a PING is in flight */
    uint64_t died_ns;       /* when the last known process was found dead, 0: never */
};

enum co_call {
    CO_CALL_OP = 1, /* cookie carries the op's slot */
    CO_CALL_COPY,   /* and the rank */
    CO_CALL_FENCE,  /* and the rank */
    CO_CALL_ENGINE,
    CO_CALL_PING,  /* and the rank, as an index */
    CO_CALL_GREET, /* likewise */
    CO_CALL_HOLD,
    CO_CALL_WORD,
    CO_CALL_HELD,
    CO_CALL_PREFETCH,
    CO_CALL_SESSION, /* and which of its requests */
    CO_CALL_NOBODY,  /* the answer changes nothing */
    CO_CALLS,
};
static inline uint64_t co_cookie(enum co_call call, uint32_t rank, uint32_t index)
{
    return (uint64_t)call << 48 | (uint64_t)rank << 32 | index;
}

struct coordinator {
    struct sl_env *env;
    const struct co_feature *const *features; /* up to a NULL */
    struct sl_calls *calls;
    struct sl_index_view *view; /* NULL: not there yet */
    struct sl_labels *labels;   /* counts by model; NULL: there are none */
    struct sl_seen *seen;       /* which blocks were here once; likewise */
    struct sl_pins *pins;
    uint64_t pins_taken;                      /* slots in use */
    bool pins_known;                          /* the registrar has said that it knows ours */
    uint64_t load_bytes_max, store_bytes_max; /* of a slice; one block always goes */
    uint64_t layered_bytes_max; /* of a slice by layers: its hashes fit into a message */
    uint32_t load_parts_max, store_parts_max;
    uint32_t rank_count;
    bool draining;
    bool keeps;                   /* loads go by the arena */
    struct co_sessions *sessions; /* NULL: nothing comes before it is asked for */
    bool pulls; /* the transporter may write into engines' pools: the node's settings say so */
    struct co_rank ranks[CO_WORKERS_MAX];
    co_workers ungreeted;     /* they have not acknowledged the fence of our predecessor's work */
    uint64_t greeted_from_ns; /* when they were first asked for that */
    struct co_engine *engines;
    uint32_t engine_max;

    struct co_op *ops; /* op_max + CO_FINISHED_MAX */
    struct sl_table op_by_id;
    uint32_t op_max, op_slots, op_active;
    struct co_op *free_first, *active_first, *active_last;
    struct co_op *done_first, *done_last; /* oldest first */
    struct co_chunks chunks;

    char node[SL_CLUSTER_NAME_BYTES]; /* of this node; "": it has none that is one */
    struct co_handover *handovers;    /* handover_max */
    struct sl_table handover_by_id;
    struct co_handover *handover_free;
    uint32_t handover_max, handover_count;
    uint64_t handover_next_ns; /* no deadline of one is before it */

    struct sl_key find_keys[CO_FIND_MAX]; /* scratch of a look-up */
    struct sl_entry find_entries[CO_FIND_MAX];
    sl_err find_codes[CO_FIND_MAX];
    uint32_t find_parts[CO_FIND_MAX];
    struct co_pace pace;
    struct co_stories stories;
    bool logs_loads; /* a line each */
    struct co_metrics metric;
};

#endif
