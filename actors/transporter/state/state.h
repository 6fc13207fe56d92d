/* actors/transporter/state/state.h - the transporter's state: peers, the pins they hold here
 * (holder.c), and reads from them (fetch.c, batches.c).
 *
 * To read from another node, BRING makes one unit of each object and block. Units travel in fetch
 * batches of one peer each: PEER_PIN there, RESERVE here, one-sided read, COMMIT here, PEER_UNPIN
 * there. A unit that one peer cannot deliver is requested from the next peer that may have it. */
#ifndef SL_TRANSPORTER_STATE_STATE_H
#define SL_TRANSPORTER_STATE_STATE_H

#include "actors/transporter/control/control.h"
#include "actors/transporter/control/health.h"
#include "actors/transporter/state/fenced.h"
#include "actors/transporter/state/slot.h"
#include "ipc/msg/sl_curve.h"
#include "ipc/msg/sl_msg.h"
#include "ipc/shm/sl_arena.h"
#include "ipc/shm/sl_pins.h"
#include "runtime/base/sl_actor.h"
#include "runtime/net/directory/directory.h"
#include "runtime/net/fabric/core/fabric.h"
#include "runtime/net/fabric/core/plan.h"
#include "runtime/net/nics/nics.h"

#define TR_RANKS_MAX      64u
#define TR_PEERS_MAX      SL_CLUSTER_PEERS_MAX
#define TR_NAME_BYTES     32u
#define TR_NICS_BYTES     (16 * SL_NIC_NAME_BYTES)
#define TR_KEYS_MAX       512u /* of a fetch batch: the parts of the largest block */
#define TR_UNIT_HEADS     4096u
#define TR_FETCHES_MAX    256u    /* open at once */
#define TR_PARTS_MAX      131072u /* of all units in progress */
#define TR_PIN_SETS_MAX   1024u   /* held by all peers */
#define TR_FENCES_MAX     64u
#define TR_SEEKS_MAX      256u /* open at once, each of clients and of peers */
#define TR_FRAMES_A_TURN  64u
#define TR_MEMORY_NS      (20 * SL_NS_PER_MS) /* poll period until the arena exists */
#define TR_MEMORY_SEEN_NS SL_NS_PER_S         /* interval of checks for another arena */
#define TR_HELLO_SOON_NS  (50 * SL_NS_PER_MS)
#define TR_CALL_NS        (10 * SL_NS_PER_S)
#define TR_COMMIT_NS      (2 * SL_NS_PER_S)

struct transporter;
struct tr_pools; /* regions/pools.c */
struct tr_pulls; /* pull/straight.c */
struct tr_service;

/* ---- memory.c: this node's index and arena ---- */
struct tr_arena {
    struct sl_arena *arena; /* NULL: it does not exist yet */
    uint32_t memory;        /* fabric handle */
    bool added, registered;
};

/* ---- peers.c ---- */
struct tr_grant { /* the peer's right to read our arena */
    bool used, ready, ending;
    uint32_t handle, key_bytes;
    void *key;
};
struct tr_window { /* our right to read the peer's arena */
    bool used;
    uint32_t key, blob_bytes;
    void *blob;
};
struct tr_twin { /* another node with the peer's name (twins.c) */
    uint64_t incarnation, since_ns, heard_ns;
    char text[SL_ERROR_TEXT_BYTES]; /* "": seen once, perhaps of an ended process */
};
struct tr_peer {
    char name[TR_NAME_BYTES];
    char address[SL_CLUSTER_ADDRESS_BYTES]; /* "": we never ask it; it only asks us */
    bool configured;                        /* in the setting `peers`; its address is fixed */
    bool member;                            /* listed in the directory, which knows its keys */
    uint32_t fabric_peer;
    struct sl_peer_health health;
    uint64_t incarnation; /* 0: it never sent a greeting */
    uint64_t heard_ns, hello_seq, hello_sent_ns, hello_due_ns, round_trip_ns;
    void *blob; /* our fabric address for this peer */
    uint32_t blob_bytes;
    struct tr_grant grant;
    struct tr_window window;
    uint64_t read_bytes, read_values, failures;
    uint64_t pinned, pinned_bytes;  /* of our values, for this peer */
    uint32_t pin_sets, removals;    /* that it has open here */
    uint64_t value_bytes;           /* mean size of the values read last */
    uint64_t owes_since_ns;         /* since when an answer is outstanding; 0: none is */
    bool complained;                /* its refusal was logged */
    bool link_logged;               /* the failure of its link was logged */
    bool expelled;                  /* its key was removed (keys.c); fabric_peer is invalid then */
    char key[SL_CURVE_TEXT_BYTES];  /* contents of its NAME.pub; "": not read yet */
    char kept[129];                 /* expelled: its address */
    uint64_t asked_ns, answered_ns; /* last request and last answer of this incarnation */
    char from[64];                  /* address of its last request; "": unknown */
    struct tr_twin twin;
};

/* ---- questions.c ---- */
struct tr_question {
    struct tr_question *next; /* in the list of open questions */
    /* Receives one peer's answer, or NULL after the timeout. The question is open while `waited` is
     * not 0. */
    void (*answered)(struct transporter *self, struct tr_question *question, uint32_t peer,
                     const struct sl_msg *reply);
    uint32_t type;   /* message type */
    bool patient;    /* peers have the full peer_timeout, so silence is their failure */
    uint64_t due_ns; /* deadline of the answers */
    uint64_t waited; /* bit mask of the peers whose answers are missing */
    uint64_t seqs[TR_PEERS_MAX];
};

/* ---- holder.c ---- */
struct tr_pinned_range { /* a range of the arena */
    uint64_t offset_bytes, length_bytes;
};
struct tr_pin_set {
    bool used, promoting;
    uint32_t peer, count; /* count: number of keys requested */
    uint64_t number;      /* part of the pin id */
    uint64_t expires_ns, incarnation;
    uint64_t seq, op_id, trace_id, bytes_max, call_seq; /* while promoting */
    bool chain;
    struct sl_item_sought *items;   /* while promoting: a copy that owns its strings */
    sl_pin *pins;                   /* pin_count */
    struct tr_pinned_range *ranges; /* pinned ranges, which the peer may read */
    uint32_t pin_count, range_hint;
};

/* ---- fetch.c, batches.c ---- */
enum tr_verify_state { TR_VERIFY_DUE, TR_VERIFY_ASKED, TR_VERIFY_OK };
struct tr_target { /* a pool slot that receives a part */
    struct tr_slot slot;
    bool device;  /* device memory, which the CPU cannot read */
    uint8_t look; /* enum tr_verify_state: whether the digest there was verified */
};
struct tr_part {
    const char *key;
    uint16_t key_length;
    sl_ref ref; /* 0: nothing is reserved */
    uint64_t generation, offset_bytes, remote_offset_bytes, length_bytes;
    struct sl_digest digest;
    /* pull: the part is read into the first target and copied from there to the others. If one
     * target is device memory, it is read into each target. */
    struct tr_target *targets; /* in the unit's allocation */
    uint32_t target_count;     /* 0: into the arena */
    uint32_t read_count;       /* targets to read into: 1 or target_count */
    uint64_t slot_bytes;
};
struct tr_wait {
    struct tr_wait *next;
    uint32_t fetch, first; /* first: index of its first key in that fetch */
    uint64_t fetch_number;
};
struct tr_unit {                      /* an object, or a block with all its parts */
    struct tr_unit *hash_next, *next; /* next: in the queue for fetch batches */
    uint64_t hash;
    uint64_t asked; /* bit mask: peers that could not deliver it */
    uint64_t may;   /* bit mask: peers that may have it, by the directory */
    bool sure;      /* some peer has it, whatever the directory reports */
    uint64_t deadline_ns, fetch_number, trace_id;
    const char *group_key; /* NULL: an object */
    uint16_t group_key_length;
    bool chain, queued;
    bool alone;       /* too large to share a fetch batch */
    bool pull;        /* of a pull, never shared with another request */
    sl_err cancelled; /* pull: if not SL_OK, the unit ends with it once nothing is written for it */
    uint32_t place_count;                /* upper bound over all its reads */
    uint32_t read_count;                 /* of all its parts */
    uint32_t copied_parts, copied_slots; /* copying: parts done, slots of this part */
    uint64_t copied_bytes;
    sl_err code;                 /* last reason why it is not here yet */
    struct sl_item_group wanted; /* of a block: its options, without its key */
    struct tr_wait *waits;
    uint32_t part_count;
    struct tr_part parts[];
};
struct tr_fetch {
    bool used;
    uint64_t number, deadline_ns;
    struct sl_reply_route back;
    bool pull, cancelled; /* a pull is answered when all its units have ended */
    uint64_t copied_bytes;
    uint32_t item_count, open;
    uint64_t *codes; /* item_count */
};
enum tr_phase { TR_FREE, TR_PIN, TR_RESERVE, TR_READ, TR_CHECK, TR_COPY, TR_COMMIT };
struct tr_fetch_batch {
    struct tr_question question; /* used in TR_PIN; first member */
    enum tr_phase phase;
    uint32_t peer, unit_count;
    uint64_t call_seq, op_id, cookie, trace_id, pin_id;
    uint64_t deadline_ns, pins_until_ns;
    uint64_t fences; /* bit mask: fences that wait until this read ends */
    bool chain, pull;
    struct tr_unit *units[TR_KEYS_MAX];
};
/* ---- seek.c ---- */
struct tr_seek { /* SEEK from a client of this node */
    struct tr_question question;
    bool used, remove;
    bool missed; /* a live peer may not have received it */
    struct sl_reply_route back;
    struct sl_item_seen *items;
    uint32_t count;
};
struct tr_removal { /* SEEK from a peer that removes keys */
    bool used;
    uint32_t peer, count;
    uint64_t incarnation, seq, op_id, trace_id;
};

/* ---- finder.c: the directory's read interface; tests supply their own ---- */
struct tr_directory_ops {
    void *context;
    sl_err (*lookup)(void *context, const struct sl_directory_lookup *lookup); /* NULL: none */
    void (*flush)(void *context, uint64_t now_ns); /* sends the queued lookups */
    uint32_t (*members)(void *context, const struct sl_directory_member **out);
};
struct tr_lookup_batch; /* units whose holders are looked up together */

struct tr_fence {
    bool used;
    struct sl_reply_route back;
    /* Number of things to wait for: fetch batches that still read into its claims, loans that peers
     * may still read, and hand-overs that are still read here. Each has the fence's bit set. */
    uint32_t waiting;
};

/* Callbacks from lower folders to higher ones; transporter.c sets them. */
struct tr_events {
    void (*peer_renewed)(struct transporter *self,
                         const struct tr_peer *peer); /* new incarnation */
    void (*peer_expelled)(struct transporter *self, const struct tr_peer *peer); /* key removed */
    void (*engine_ends)(struct transporter *self, uint64_t engine_id); /* its pools are released */
    void (*fences_over)(struct transporter *self,
                        uint64_t fences); /* not 0; each has one operation less to wait for */
};

struct tr_metrics {
    sl_metric fetches, keys_requested, keys_found, keys_missing, values_read, bytes_read,
        fetch_batches;
    sl_metric peers_alive, peer_failures, peer_timeouts, frames_refused, digests_bad;
    sl_metric unanswered, names_twice;
    sl_metric seeks, keys_looked_up;
    sl_metric pins_taken, pins_expired, pins_open, values_served, promoted, fences;
};

struct tr_name_report { /* a peer reports that another node has our name */
    uint64_t until_ns;
    char text[SL_ERROR_TEXT_BYTES];
};

struct tr_unknown_node { /* a node that was refused because of its key */
    uint64_t said_ns, until_ns;
    char said[SL_ERROR_TEXT_BYTES];    /* text of the last log line */
    char trouble[SL_ERROR_TEXT_BYTES]; /* until until_ns: a refused node has a peer's address */
};

struct transporter {
    struct sl_env *env;
    struct tr_events events;
    struct sl_mr_limit limit;
    char nic[TR_NICS_BYTES]; /* comma-separated, one rail each; "": the first usable NIC */
    /* For sl_fabric_piece.rail: 1 + the rail of the rank's NIC; 0: any (tcp, or one NIC). */
    uint32_t rail_of_rank[TR_RANKS_MAX];
    struct sl_fabric *fabric; /* NULL: off */
    const char *fabric_name;
    struct tr_service *service; /* publish/service.c; NULL: no directory */
    struct handover *handover;  /* direct hand-over (handover.h); NULL: no cluster */
    bool drained;
    bool whole_arena;          /* verbs: register the arena only when all its pages exist */
    struct tr_pools *pools;    /* engines' pools; NULL: not registered */
    struct tr_pulls *straight; /* state of pulls; NULL: pools are not registered */

    char node[TR_NAME_BYTES];
    struct sl_control *control; /* NULL: no cluster */
    struct sl_codec *codec_in, *codec_out;
    uint64_t next_seq, incarnation, next_op_id;
    struct tr_name_report twice;
    struct tr_unknown_node unknown;
    char trouble[SL_METRICS_REASON_BYTES]; /* reason of the degraded state; "": healthy */
    struct tr_peer *peers;                 /* TR_PEERS_MAX */
    uint32_t peer_count;
    struct tr_directory_ops guide;
    struct tr_lookup_batch *batches; /* the open batch, then SL_DIRECTORY_LOOKUPS_MAX in flight */
    uint64_t members_due_ns, members_seen_ns;
    uint64_t peers_file_due_ns;
    bool peers_file_refused;    /* the reason was logged */
    uint64_t peers_file_digest; /* of the last content that was applied completely; 0: none */
    int keys_fd;                /* inotify, while keys_open */
    bool keys_open, keys_watched;
    uint64_t keys_due_ns;
    uint64_t peers_file_seen; /* digest of the content whose errors were logged */

    struct sl_calls *calls;
    struct sl_index_view *view; /* NULL: it does not exist yet */
    struct tr_arena arena;
    uint64_t memory_due_ns;
    bool memory_replaced; /* the arena was recreated, so this process must restart */
    struct sl_pins *pins;
    bool pins_known; /* the registrar has opened our pin file */

    struct tr_pin_set *pin_sets; /* TR_PIN_SETS_MAX */
    uint32_t pin_set_hint;       /* the set that was read last */
    uint64_t pin_number, pins_due_ns;
    uint32_t pin_sets_open;
    uint64_t pins_open; /* pins of all sets */
    struct sl_item_place places[TR_KEYS_MAX];

    struct tr_fetch *fetches; /* TR_FETCHES_MAX */
    uint32_t fetch_open;
    uint64_t fetch_number;
    struct tr_unit **unit_heads;              /* TR_UNIT_HEADS */
    struct tr_unit *queue_first, **queue_end; /* queue_end: link for the next unit */
    uint32_t parts_open;
    struct sl_missing *missing;
    struct tr_fetch_batch *fetch_batches; /* fetch_batch_max */
    uint32_t fetch_batch_max, fetch_batches_open;
    struct tr_question *questions; /* open, oldest first; members of fetch batches and seeks */
    struct tr_fence fences[TR_FENCES_MAX];
    struct tr_fenced fenced;
    struct tr_seek *seeks;       /* TR_SEEKS_MAX */
    struct tr_removal *removals; /* TR_SEEKS_MAX */
    uint32_t removals_open;
    /* scratch buffers for messages */
    struct sl_item_sought sought[TR_KEYS_MAX];
    struct sl_item_want wants[TR_KEYS_MAX];
    struct sl_item_group groups[TR_KEYS_MAX];
    struct sl_item_claim claims[TR_KEYS_MAX];
    struct sl_fabric_piece pieces[TR_KEYS_MAX];
    struct sl_item_node nodes[TR_PEERS_MAX];
    struct sl_text promote_keys[TR_KEYS_MAX];
    struct tr_metrics metric;
};

/* Whether a peer that holds `own` of `max` table entries, of which `used` are taken, may take
 * `more`: it may hold at most three times of what is then left for the others. So no peer can take
 * everything, and a peer that holds nothing finds a free entry. */
static inline bool tr_share_allows(uint64_t own, uint64_t more, uint64_t used, uint64_t max)
{
    return used <= max && more <= max - used && own + more <= 3 * (max - used - more);
}

enum tr_call {
    TR_CALL_IGNORED = 1,
    TR_CALL_FETCH_BATCH,
    TR_CALL_PROMOTE,
    TR_CALL_REMOVAL,
    TR_CALL_ENGINES,
    TR_CALL_ENGINE,
    TR_CALL_EXPORT,
    TR_CALL_TAKE,
    TR_CALL_READ,
    TR_CALLS
};
static inline uint64_t tr_cookie(enum tr_call call, uint32_t index)
{
    return (uint64_t)call << 32 | index;
}

#endif
