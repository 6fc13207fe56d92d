/* actors/coordinator/state.h - the state of the coordinator and of its ops. */
#ifndef SL_COORDINATOR_STATE_H
#define SL_COORDINATOR_STATE_H

#include "actors/coordinator/engines.h"
#include "actors/coordinator/layers.h"
#include "actors/coordinator/memory.h"
#include "actors/coordinator/metrics.h"
#include "actors/coordinator/op_trace.h"
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
#define CO_SLICE_PARTS_MAX 4096u /* parts of a slice: bounds messages, pins and scratch */
#define CO_FIND_MAX        256u  /* keys of one lookup */
#define CO_PROMOTE_ROUNDS  3u
#define CO_STALE_ROUNDS \
    16u /* a load ends before an entry that changes so often while it is being pinned */
#define CO_RESERVE_ROUNDS    3u /* RESERVEs of a block whose other writer gave up */
#define CO_FENCE_WAITERS_MAX 4u
#define CO_WAITERS_MAX       (CO_FENCE_WAITERS_MAX + CO_LAYER_WAITERS_MAX) /* of an op */
#define CO_POLL_NS           (1 * SL_NS_PER_MS)
#define CO_POLL_NS_MAX       (8 * SL_NS_PER_MS)
#define CO_FENCE_POLL_NS     (20 * SL_NS_PER_MS)
#define CO_SESSION_CALLS     4u                 /* BRINGs of sessions in flight */
#define CO_CALL_NS           (10 * SL_NS_PER_S) /* of calls without an op; then resent if needed */
#define CO_REASON_BYTES      240u               /* as long as the text of an error */

/* ---- workers: the processes that access device blocks for an op: the swapper of each rank, and
 * the transporter, which writes blocks of other nodes into pools ---- */
#define CO_TRANSPORTER CO_RANKS_MAX
#define CO_WORKERS_MAX (CO_RANKS_MAX + 1u)
__extension__ typedef unsigned __int128 co_workers; /* one bit each */
static inline co_workers co_worker_bit(uint32_t worker)
{
    return (co_workers)1 << worker;
}

/* ---- ops ---- */
enum co_kind {
    CO_STORE,
    CO_LOAD,
    CO_UNKNOWN, /* a client asks for the fence of an op that is not known here */
};
enum co_phase {
    CO_FREE,
    CO_ENGINE,  /* the registration is requested */
    CO_KEYS,    /* the keys are requested */
    CO_AWAIT,   /* load: prefill has not committed yet */
    CO_LEND,    /* direct store: decode's node has not read all */
    CO_GREET,   /* swappers may still work for a coordinator that died */
    CO_LOOK,    /* load: looks again soon (no pins, an entry changes, the registrar is not ready) */
    CO_PROMOTE, /* load: the registrar brings parts in from disk */
    CO_FETCH,   /* load: the transporter brings blocks in from other nodes */
    CO_PULL,    /* load: it brings them directly into the pools */
    CO_RESERVE, /* store: space is requested */
    CO_COPY,    /* swappers copy */
    CO_LAYERS,  /* by layers: the next layers are not ready */
    CO_SETTLE,  /* copies may run twice: swappers are fenced before the slice counts */
    CO_COMMIT,  /* store: the registrar makes blocks visible */
    CO_OTHERS,  /* store: other ops write the remaining blocks */
    CO_ZOMBIE,  /* answered; device blocks stay in use until each swapper is fenced or dead */
    CO_DONE,    /* answered and fenced; kept for repeated requests */
    CO_PHASES,
};
struct coordinator;
struct co_op;
struct co_phase_ops { /* an op of some type in a phase; NULL: does nothing */
    void (*enter)(struct coordinator *self, struct co_op *op);
    /* The answer to the op's one request; NULL: none in time. */
    void (*reply)(struct coordinator *self, struct co_op *op, const struct sl_msg *reply);
    void (*tick)(struct coordinator *self, struct co_op *op); /* wake_ns has passed */
    bool unanswered; /* a missing answer calls reply; otherwise it ends the op */
};
/* The type of an op: a store or load, through storage or direct. A direct op that fails continues
 * as the type through storage: co_op_become. */
struct co_type {
    enum co_kind kind;
    bool direct;
    uint8_t copied_from; /* enum co_part_state of parts to copy */
    void (*go)(struct coordinator *self, struct co_op *op); /* keys known, workers greeted */
    /* Blocks cannot go directly: continues through storage, or ends the op. */
    void (*direct_failed)(struct coordinator *self, struct co_op *op, sl_err code);
    void (*copied)(struct coordinator *self, struct co_op *op); /* the slice's COPYs are done */
    /* Answered and fenced: releases what the op holds. May be NULL. */
    void (*done)(struct coordinator *self, struct co_op *op);
    const struct co_phase_ops *phases; /* [CO_PHASES] */
};
extern const struct co_type co_store_type, co_load_type, co_direct_out_type, co_direct_in_type,
    co_unknown_type;
/* A feature handles events of ops of all types. The core knows none by name: it walks the table in
 * coordinator.c. Each function may be NULL. */
struct co_feature {
    sl_err (*init)(struct coordinator *self, struct sl_error *why);
    void (*fini)(struct coordinator *self);
    uint64_t (*tick)(struct coordinator *self, uint64_t now_ns); /* gives its next time */
    /* Keeps what it needs of the request. An error ends the op. */
    sl_err (*begin)(struct coordinator *self, struct co_op *op, const struct sl_msg *msg);
    /* The request was repeated before its answer. */
    void (*again)(struct coordinator *self, struct co_op *op, const struct sl_msg *msg);
    /* The phase (ENGINE, KEYS) is complete. False: the op was ended. */
    bool (*phase)(struct coordinator *self, struct co_op *op);
    /* wake_ns has passed before the answer. False: the op was ended. */
    bool (*turn)(struct coordinator *self, struct co_op *op);
    /* Before the answer: gives its code. */
    sl_err (*ending)(struct coordinator *self, struct co_op *op, sl_err code);
    void (*ended)(struct coordinator *self, struct co_op *op); /* the answer is known, not sent */
    void (*answered)(struct coordinator *self, struct co_op *op);
    void (*done)(struct coordinator *self, struct co_op *op); /* answered and fenced */
};
enum co_part_state {
    CO_PART_OPEN,
    CO_PART_PINNED,
    CO_PART_ON_DISK,
    CO_PART_GRANTED,
    CO_PART_COPIED,
    CO_PART_PULLED, /* in the pools, from another node */
    CO_PART_BROKEN, /* by layers: granted or pinned, but a layer was not copied */
    CO_PART_GONE
};
struct co_part {
    uint64_t generation, offset_bytes;
    struct sl_digest digest; /* by layers: of the layers copied last */
    uint64_t *chunks;        /* store by layers: hashes of chunks; in the slice's memory */
    uint64_t arrived_bytes;  /* direct load by layers: from its start */
    sl_ref ref;
    sl_pin pin;
    uint16_t arena;
    uint16_t disk;  /* ON_DISK: slot of the disk */
    uint8_t state;  /* enum co_part_state */
    bool missed;    /* a rank has not copied it */
    uint64_t asked; /* ranks with a COPY of it in flight */
};
enum co_outcome {
    CO_BLOCK_OPEN,
    CO_BLOCK_STORED,
    CO_BLOCK_EXISTED,
    CO_BLOCK_BUSY,
    CO_BLOCK_FAILED
};
enum co_tier { CO_TIER_NONE, CO_TIER_MEMORY, CO_TIER_DISK, CO_TIER_REMOTE };
struct co_block {
    struct sl_key key; /* in the op's memory; NULL: the format has none */
    uint64_t busy_until_ns;
    uint64_t came_ns;         /* load: when it was on the device */
    uint64_t note_generation; /* of its first part, for the access ring */
    sl_ref note_ref;
    uint32_t device_block;
    uint8_t outcome; /* store: enum co_outcome */
    uint8_t tier;    /* load: enum co_tier, as first seen, of its slowest part */
    uint8_t round;   /* store: number of RESERVEs */
    bool away;       /* store, BUSY: no writer; a process that it needs has not sent HELLO */
};
/* The work of a rank, or of the transporter, for an op. */
struct co_share {
    uint64_t call_seq; /* of the COPY or FENCE in flight; 0: none */
    uint64_t sent_ns;
    struct sl_proc_id proc; /* first receiver; pid 0: unknown */
    uint32_t item_count;    /* of the COPY */
};

struct co_waiter { /* OP_FENCED, LAYERS */
    struct sl_reply_route back;
    uint32_t layers; /* number it waits for; 0: it waits for the fence */
};

struct co_receipt { /* what decode must know before it loads */
    bool known;
    uint32_t block_end; /* blocks of the input */
    struct sl_digest keys;
    char node[32];
};

#define CO_LEND_PIECES 512u /* in a LEND */
struct co_direct {          /* of direct ops */
    bool device_in_use;     /* the transporter may access device blocks, also for a pull */
    bool from_here;         /* in: prefill is on this node */
    sl_err failed;          /* the op continues through storage when no worker is active */
    /* out: */
    uint32_t skip;             /* blocks that decode has */
    struct sl_bytes ticket;    /* in the op's memory */
    struct co_receipt receipt; /* for the ticket's blocks */
    uint64_t lends;            /* number of LENDs sent */
    /* Not by layers: parts of the slice before `looked` have digests; COPYs in flight are of parts
     * before look_end (0: of all). By layers a round has all parts. */
    uint32_t looked, look_end;
    uint32_t named, named_layers;   /* first part that no LEND named; by layers: in this round */
    struct sl_item_arrived *pieces; /* [CO_LEND_PIECES], scratch; both */
    struct sl_item_slot *slots;
};

struct co_op {
    const struct co_type *type;
    enum co_phase phase;         /* set only by co_op_enter */
    struct sl_table_node node;   /* by id */
    struct co_op *older, *newer; /* list of ops in flight, or of finished ones */
    struct co_engine *engine;    /* held while in flight */
    struct sl_reply_route back;
    uint64_t id, trace_id, engine_id;
    uint64_t started_ns, deadline_ns, wake_ns;
    struct co_memory life; /* request and keys; until answered and fenced */
    struct co_memory work; /* of the slice */

    struct sl_bytes tokens; /* kept while the engine is requested */
    struct sl_text extras;
    bool partial;
    uint32_t first_block, block_count, token_count;
    uint64_t before_hash;        /* sl_key_hash of the block before the first; 0: none or unknown */
    struct sl_key before;        /* of a keyed store: key of that block; at NULL: none or unknown */
    struct sl_packed_hints said; /* hints of the engine */
    uint64_t session_id, pause_ns; /* pause_ns: until its next op; 0: unknown */
    uint32_t *pool_blocks; /* [pool][block] device blocks; NULL: blocks[] has them for all pools */
    uint64_t pool_block_count;
    bool keyed; /* the engine brought the keys */
    struct co_origin origin;
    struct co_handover *handover; /* the op is a side of it; NULL: none */
    uint64_t hold_ns;             /* store of a hand-over: how long it is held for decode */
    struct co_direct direct;
    struct co_block *blocks;           /* block_count */
    uint8_t (*events)[SL_EVENT_BYTES]; /* [event_count]; NULL: the engine has waited already */
    uint64_t *event_ranks;             /* of these */
    uint32_t event_count;
    uint64_t call_seq; /* the request in flight other than COPY and FENCE; 0: none */

    /* The slice: blocks slice[0..slice_count), ascending. parts: [block of the slice][cut]. */
    uint32_t *slice;
    struct co_part *parts;
    struct sl_key *part_keys;
    uint32_t slice_count, slice_total;
    uint32_t at; /* load: first block not loaded; store: first that may be open */
    uint32_t rounds, stale_rounds;
    uint32_t *asked; /* load: parts of the BRING from disk in flight */
    uint32_t asked_count;
    sl_err refused;          /* load: why the last BRING failed for its first block; or SL_OK */
    bool pull_barred;        /* load: blocks of other nodes go through the arena */
    bool fetched;            /* load: other nodes were asked for this slice's missing blocks */
    uint64_t fetch_until_ns; /* load of a hand-over: asks them again until then; 0: unset */
    bool last;               /* load: this is the last slice */
    bool many;               /* more than one slice was needed */
    uint64_t poll_ns;        /* grows while waiting */
    struct co_wait wait;     /* load */
    co_workers unsettled;    /* may still work for the op, or twice */
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
    co_workers settling; /* CO_SETTLE: waits for these, then calls: */
    void (*settled)(struct coordinator *self, struct co_op *op);
    struct co_waiter *waiters; /* [CO_WAITERS_MAX] when first needed; in the op's memory */
    uint32_t waiter_count;
};

/* ---- hand-overs: the state that prefill's store and decode's load share ---- */
struct co_handover {
    uint64_t id, trace_id; /* id 0: free */
    struct sl_handover machine;
    struct co_op *send, *receive; /* unanswered; NULL: none */
    struct sl_table_node node;    /* by id */
    struct co_handover *free_next;
    struct co_receipt receipt;
    uint64_t started_ns;
    bool received;          /* a decode has been here */
    bool sent_here;         /* a prefill has been here */
    bool found;             /* committed by an earlier coordinator: the registrar holds all */
    bool arrived;           /* direct: all is in the pools */
    bool offered;           /* decode, direct: its transporter is ready for the ticket's blocks */
    uint64_t ticket_number; /* this row's index in the low 16 bits; 0: none */
    uint32_t ticket_bytes;
    unsigned char ticket[128];
    bool ending;                         /* the HOLD that ends it is in flight */
    char prefill_node[32];               /* decode: the node to ask; "": none */
    bool prefill_here;                   /* decode's request says that prefill is on this node */
    uint64_t notify_ns;                  /* when the next notification is due */
    uint64_t notify_pause_ns;            /* back-off after one that failed; 0: none has */
    uint64_t notify_seq, hold_query_seq; /* notification, and HOLD query, in flight; 0: none */
    char decode_node[32];                /* prefill: another node that waits for it; "": none */
    struct co_receipt awaited;           /* of the HOLD query */
    struct sl_item_ticket offer;         /* prefill, direct: that node's ticket; no bytes: none */
    unsigned char offer_bytes[128];
    char reason[CO_REASON_BYTES];
};

/* ---- workers as processes ---- */
struct co_rank {
    char name[16];
    struct sl_proc_id proc; /* pid 0: unknown */
    bool asked;             /* a PING is in flight */
    uint64_t died_ns;       /* when the last known process was found dead, 0: never */
};

enum co_call {
    CO_CALL_OP = 1, /* the cookie has the op's slot */
    CO_CALL_COPY,   /* and the rank */
    CO_CALL_FENCE,  /* and the rank */
    CO_CALL_ENGINE,
    CO_CALL_PING,  /* the rank as index */
    CO_CALL_GREET, /* likewise */
    CO_CALL_HOLD,
    CO_CALL_NOTIFY,
    CO_CALL_HOLD_QUERY,
    CO_CALL_PREFETCH,
    CO_CALL_SESSION,    /* index of its BRING */
    CO_CALL_UNANSWERED, /* the answer changes nothing */
    CO_CALLS,
};
static inline uint64_t co_cookie(enum co_call call, uint32_t rank, uint32_t index)
{
    return (uint64_t)call << 48 | (uint64_t)rank << 32 | index;
}

struct coordinator {
    struct sl_env *env;
    const struct co_feature *const *features; /* ends with NULL */
    struct sl_calls *calls;
    struct sl_index_view *view; /* NULL: not open yet */
    struct sl_labels *labels;   /* counters by model; NULL: none */
    struct sl_seen *seen;       /* blocks that were here once; NULL: none */
    struct sl_pins *pins;
    uint64_t pins_taken;                      /* slots in use */
    bool pins_known;                          /* the registrar has acknowledged them */
    uint64_t load_bytes_max, store_bytes_max; /* of a slice; at least one block */
    uint64_t layered_bytes_max; /* of a slice by layers: its hashes must fit in a message */
    uint32_t load_parts_max, store_parts_max;
    uint32_t rank_count;
    bool draining;
    bool keeps;                   /* cache_remote_loads: loads use the arena */
    struct co_sessions *sessions; /* NULL: no prefetch for sessions */
    bool pulls;                   /* the settings let the transporter write to engines' pools */
    struct co_rank ranks[CO_WORKERS_MAX];
    co_workers ungreeted;     /* have not acknowledged the fence of a predecessor's work */
    uint64_t greeted_from_ns; /* when that was first requested */
    struct co_engine *engines;
    uint32_t engine_max;

    struct co_op *ops; /* op_max + CO_FINISHED_MAX */
    struct sl_table op_by_id;
    uint32_t op_max, op_slots, op_active;
    struct co_op *free_first, *active_first, *active_last;
    struct co_op *done_first, *done_last; /* oldest first */
    struct co_chunks chunks;

    char node[SL_CLUSTER_NAME_BYTES]; /* its name; "": none */
    struct co_handover *handovers;    /* handover_max */
    struct sl_table handover_by_id;
    struct co_handover *handover_free;
    uint32_t handover_max, handover_count;
    uint64_t handover_next_ns; /* no deadline of a row is earlier */

    struct sl_key find_keys[CO_FIND_MAX]; /* scratch of a lookup */
    struct sl_entry find_entries[CO_FIND_MAX];
    sl_err find_codes[CO_FIND_MAX];
    uint32_t find_parts[CO_FIND_MAX];
    struct co_pace pace;
    struct co_op_traces op_traces;
    bool logs_loads; /* one line per load */
    struct co_metrics metric;
};

#endif
