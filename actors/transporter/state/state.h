/* actors/transporter/state/state.h - the parts of the transporter: its peers, what it gives them
 * (holder.c) and what it brings in from them (fetch.c, trips.c).
 *
 * A value that another node holds: BRING makes a unit of every object and block; units travel in
 * trips, one question to one peer each: PEER_PIN there, RESERVE here, one-sided read, COMMIT here,
 * PEER_UNPIN there. A unit that a peer cannot give goes on to the next peer that may have it. */
#ifndef SL_TRANSPORTER_STATE_STATE_H
#define SL_TRANSPORTER_STATE_STATE_H

#include "actors/transporter/control/control.h"
#include "actors/transporter/control/health.h"
#include "actors/transporter/state/fenced.h"
#include "actors/transporter/state/spot.h"
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
#define TR_KEYS_MAX       512u /* of a trip: the parts of the largest block */
#define TR_UNIT_HEADS     4096u
#define TR_FETCHES_MAX    256u    /* open at once */
#define TR_PARTS_MAX      131072u /* of all units on their way */
#define TR_PIN_SETS_MAX   1024u   /* that peers have with us */
#define TR_FENCES_MAX     64u
#define TR_SEEKS_MAX      256u /* open at once, of ours and of peers */
#define TR_FRAMES_A_TURN  64u
#define TR_MEMORY_NS      (20 * SL_NS_PER_MS) /* looks for the arena of a node that starts */
#define TR_MEMORY_SEEN_NS SL_NS_PER_S         /* looks whether it still is the same */
#define TR_HELLO_SOON_NS  (50 * SL_NS_PER_MS)
#define TR_CALL_NS        (10 * SL_NS_PER_S)
#define TR_COMMIT_NS      (2 * SL_NS_PER_S)

struct transporter;
struct tr_pools;    /* regions/pools.c */
struct tr_straight; /* pull/straight.c */
struct tr_service;

/* ---- memory.c: this node's index and arena ---- */
struct tr_arena {
    struct sl_arena *arena; /* NULL: not there yet */
    uint32_t memory;        /* of the fabric */
    bool added, registered;
};

/* ---- peers.c ---- */
struct tr_grant { /* what the peer may read of ours */
    bool used, ready, ending;
    uint32_t handle, key_bytes;
    void *key;
};
struct tr_window { /* what we may read of it */
    bool used;
    uint32_t key, blob_bytes;
    void *blob;
};
struct tr_twin { /* another node of the peer's name (twins.c) */
    uint64_t incarnation, since_ns, heard_ns;
    char text[SL_ERROR_TEXT_BYTES]; /* "": heard once, which may be a life that has ended */
};
struct tr_peer {
    char name[TR_NAME_BYTES];
    char address[SL_CLUSTER_ADDRESS_BYTES]; /* "": it is not asked, it only asks us */
    bool configured;                        /* by the setting peers: its address stands */
    bool member;                            /* of the directory, where what it holds is told */
    uint32_t fabric_peer;
    struct sl_peer_health health;
    uint64_t incarnation; /* 0: never heard of */
    uint64_t heard_ns, hello_seq, hello_sent_ns, hello_due_ns, round_trip_ns;
    void *blob; /* our fabric's address for it */
    uint32_t blob_bytes;
    struct tr_grant grant;
    struct tr_window window;
    uint64_t read_bytes, read_values, failures;
    uint64_t pinned, pinned_bytes;  /* of ours, for it */
    uint32_t pin_sets, removals;    /* that it has open here */
    uint64_t value_bytes;           /* mean size of the last ones read */
    uint64_t owes_since_ns;         /* an answer, and has given none since; 0: it owes nothing */
    bool complained;                /* its refusal was logged */
    bool link_told;                 /* that its link is down was logged */
    bool expelled;                  /* its key has gone (keys.c); fabric_peer is none then */
    char key[SL_CURVE_TEXT_BYTES];  /* that it was let in with; "": not looked at yet */
    char kept[129];                 /* expelled: its address */
    uint64_t asked_ns, answered_ns; /* when this life of it last did */
    char from[64];                  /* where it asked from; "": not known */
    struct tr_twin twin;
};

/* ---- questions.c ---- */
struct tr_question {
    struct tr_question *next; /* of those that are open */
    /* What a peer said; reply NULL: nothing in time. The question is open while waited is not 0. */
    void (*answered)(struct transporter *self, struct tr_question *question, uint32_t peer,
                     const struct sl_msg *reply);
    uint32_t type;   /* of the message */
    bool patient;    /* a peer that does not answer has had the time that it gets (peer_timeout) */
    uint64_t due_ns; /* the answers */
    uint64_t waited; /* for these peers: a bit each */
    uint64_t seqs[TR_PEERS_MAX];
};

/* ---- holder.c ---- */
struct tr_reach { /* of the arena */
    uint64_t offset_bytes, length_bytes;
};
struct tr_pin_set {
    bool used, promoting;
    uint32_t peer, count; /* of keys asked */
    uint64_t number;      /* in the pin id */
    uint64_t expires_ns, incarnation;
    uint64_t seq, op_id, trace_id, bytes_max, call_seq; /* while promoting */
    bool chain;
    struct sl_item_sought *items; /* while promoting: a copy with its texts */
    sl_pin *pins;                 /* pin_count */
    struct tr_reach *ranges;      /* of them: what the peer may read meanwhile */
    uint32_t pin_count, range_hint;
};

/* ---- fetch.c, trips.c ---- */
enum tr_look_state { TR_LOOK_DUE, TR_LOOK_ASKED, TR_LOOK_RIGHT };
struct tr_target { /* where a part goes */
    struct tr_spot spot;
    bool device;  /* no CPU can read it: */
    uint8_t look; /* enum tr_look_state: whether what lies there has the digest */
};
struct tr_part {
    const char *key;
    uint16_t key_length;
    sl_ref ref; /* 0: nothing is reserved */
    uint64_t generation, offset_bytes, remote_offset_bytes, length_bytes;
    struct sl_digest digest;
    /* pull: it is read into the first target, and copied from there to the others; where one of
     * them is device memory, into each. */
    struct tr_target *targets; /* in the unit's memory */
    uint32_t target_count;     /* 0: into the arena */
    uint32_t read_count;       /* 1 or target_count */
    uint64_t spot_bytes;
};
struct tr_wait {
    struct tr_wait *next;
    uint32_t fetch, first; /* of its keys there */
    uint64_t fetch_number;
};
struct tr_unit {                      /* an object, or a block with all its parts */
    struct tr_unit *hash_next, *next; /* next: in the queue of those that wait for a trip */
    uint64_t hash;
    uint64_t asked; /* peers that could not give it */
    uint64_t may;   /* peers that may have it, as far as the directory knows */
    bool sure;      /* somebody has it, whatever the directory knows yet */
    uint64_t deadline_ns, fetch_number, trace_id;
    const char *group_key; /* NULL: an object */
    uint16_t group_key_length;
    bool chain, queued;
    bool alone;           /* too large for a trip with others */
    bool pull;            /* of a pull, and of no other request */
    sl_err cancelled;     /* of a pull: SL_OK, or it ends so as soon as nothing is written for it */
    uint32_t place_count; /* at most, of all its reads */
    uint32_t read_count;  /* of all its parts */
    uint32_t copied_parts, copied_spots; /* what was copied on */
    uint64_t copied_bytes;
    sl_err code;                 /* why it is not here so far */
    struct sl_item_group wanted; /* of a block: how who asks for it wants it; without its key */
    struct tr_wait *waits;
    uint32_t part_count;
    struct tr_part parts[];
};
struct tr_fetch {
    bool used;
    uint64_t number, deadline_ns;
    struct sl_return back;
    bool pull, cancelled; /* pull is answered when all of its units have ended */
    uint64_t copied_bytes;
    uint32_t item_count, open;
    uint64_t *codes; /* item_count */
};
enum tr_phase { TR_FREE, TR_PIN, TR_RESERVE, TR_READ, TR_CHECK, TR_COPY, TR_COMMIT };
struct tr_trip {
    struct tr_question question; /* TR_PIN */
    enum tr_phase phase;
    uint32_t peer, unit_count;
    uint64_t call_seq, op_id, cookie, trace_id, pin_id;
    uint64_t deadline_ns, pins_until_ns;
    uint64_t fences; /* a bit each: those that wait until it reads no more */
    bool chain, pull;
    struct tr_unit *units[TR_KEYS_MAX];
};
/* ---- seek.c ---- */
struct tr_seek { /* SEEK of a client of ours */
    struct tr_question question;
    bool used, remove;
    bool missed; /* a peer that is there may not have heard of it */
    struct sl_return back;
    struct sl_item_seen *items;
    uint32_t count;
};
struct tr_removal { /* SEEK of a peer that removes */
    bool used;
    uint32_t peer, count;
    uint64_t incarnation, seq, op_id, trace_id;
};

/* ---- finder.c: the directory as a reader has it; tests have one of their own ---- */
struct tr_guide {
    void *context;
    sl_err (*lookup)(void *context, const struct sl_directory_lookup *lookup); /* NULL: none */
    void (*flush)(void *context, uint64_t now_ns); /* what was asked goes out */
    uint32_t (*members)(void *context, const struct sl_directory_member **out);
};
struct tr_batch; /* units whose holders are asked for */

struct tr_fence {
    bool used;
    struct sl_return back;
    /* Trips that still read into claims that it ends, loans that peers may still read, hand-overs
     * that are still read here. Each of them has a bit for the fence. */
    uint32_t waiting;
};

/* What a room tells those above it; transporter.c sets them. */
struct tr_events {
    void (*peer_renewed)(struct transporter *self, const struct tr_peer *peer);  /* a new life */
    void (*peer_expelled)(struct transporter *self, const struct tr_peer *peer); /* no key */
    void (*engine_ends)(struct transporter *self, uint64_t engine_id);           /* its pools go */
    void (*fences_over)(struct transporter *self,
                        uint64_t fences); /* what they waited for; not 0 */
};

struct tr_metrics {
    sl_metric fetches, keys_asked, keys_found, keys_missing, values_read, bytes_read, trips;
    sl_metric peers_alive, peer_failures, peer_timeouts, frames_refused, digests_bad;
    sl_metric unanswered, names_twice;
    sl_metric seeks, keys_sought;
    sl_metric pins_taken, pins_expired, pins_open, values_served, promoted, fences;
};

struct tr_twice { /* a peer says that another node has our name */
    uint64_t until_ns;
    char text[SL_ERROR_TEXT_BYTES];
};

struct tr_stranger { /* who was refused for its key */
    uint64_t said_ns, until_ns;
    char said[SL_ERROR_TEXT_BYTES];    /* last, to the log */
    char trouble[SL_ERROR_TEXT_BYTES]; /* until until_ns: of one that has the address of a peer */
};

struct transporter {
    struct sl_env *env;
    struct tr_events events;
    struct sl_mr_limit limit;
    char nic[TR_NICS_BYTES]; /* a comma list, a rail each; "": the first that is usable */
    /* For sl_fabric_piece.rail: 1 + the rail of the rank's NIC; 0: any (tcp, or one NIC). */
    uint32_t rail_of_rank[TR_RANKS_MAX];
    struct sl_fabric *fabric; /* NULL: off */
    const char *fabric_name;
    struct tr_service *service; /* publish/service.c; NULL: there is no directory */
    struct handover *handover;  /* direct hand-over (handover.h); NULL: this node is alone */
    bool drained;
    bool whole_arena;             /* a NIC wants every page there before it registers */
    struct tr_pools *pools;       /* engines' pools; NULL: they are not registered */
    struct tr_straight *straight; /* what pull has of its own; NULL: as pools */

    char node[TR_NAME_BYTES];
    struct sl_control *control; /* NULL: this node is alone */
    struct sl_codec *codec_in, *codec_out;
    uint64_t next_seq, incarnation, next_op_id;
    struct tr_twice twice;
    struct tr_stranger stranger;
    char trouble[SL_METRICS_REASON_BYTES]; /* why it is degraded; "": it is not */
    struct tr_peer *peers;                 /* TR_PEERS_MAX */
    uint32_t peer_count;
    struct tr_guide guide;
    struct tr_batch *batches; /* one that fills, and SL_DIRECTORY_LOOKUPS_MAX on their way */
    uint64_t members_due_ns, members_seen_ns;
    uint64_t peers_file_due_ns;
    bool peers_file_refused;    /* the log has said why */
    uint64_t peers_file_digest; /* of what was taken in whole; 0: not yet */
    int keys_fd;                /* inotify, while keys_open */
    bool keys_open, keys_watched;
    uint64_t keys_due_ns;
    uint64_t peers_file_seen; /* digest of what was complained about */

    struct sl_calls *calls;
    struct sl_index_view *view; /* NULL: not there yet */
    struct tr_arena arena;
    uint64_t memory_due_ns;
    bool memory_replaced; /* the node's arena was made anew: this process starts over */
    struct sl_pins *pins;
    bool pins_known; /* to a registrar */

    struct tr_pin_set *pin_sets; /* TR_PIN_SETS_MAX */
    uint32_t pin_set_hint;       /* that was read from last */
    uint64_t pin_number, pins_due_ns;
    uint32_t pin_sets_open;
    uint64_t pins_open; /* in them */
    struct sl_item_place places[TR_KEYS_MAX];

    struct tr_fetch *fetches; /* TR_FETCHES_MAX */
    uint32_t fetch_open;
    uint64_t fetch_number;
    struct tr_unit **unit_heads;              /* TR_UNIT_HEADS */
    struct tr_unit *queue_first, **queue_end; /* where the next one is put */
    uint32_t parts_open;
    struct sl_missing *missing;
    struct tr_trip *trips; /* trip_max */
    uint32_t trip_max, trips_open;
    struct tr_question *questions; /* open, the oldest first; in trips and seeks */
    struct tr_fence fences[TR_FENCES_MAX];
    struct tr_fenced fenced;
    struct tr_seek *seeks;       /* TR_SEEKS_MAX */
    struct tr_removal *removals; /* TR_SEEKS_MAX */
    uint32_t removals_open;
    /* scratch of messages */
    struct sl_item_sought sought[TR_KEYS_MAX];
    struct sl_item_want wants[TR_KEYS_MAX];
    struct sl_item_group groups[TR_KEYS_MAX];
    struct sl_item_claim claims[TR_KEYS_MAX];
    struct sl_fabric_piece pieces[TR_KEYS_MAX];
    struct sl_item_node nodes[TR_PEERS_MAX];
    struct sl_text promote_keys[TR_KEYS_MAX];
    struct tr_metrics metric;
};

/* Whether a peer that has `own` entries of a table of `max`, of which `used` are taken, may have
 * `more`: at most three times what is left for the others. So no peer can take all, and one that
 * has nothing finds room. */
static inline bool tr_share_allows(uint64_t own, uint64_t more, uint64_t used, uint64_t max)
{
    return used <= max && more <= max - used && own + more <= 3 * (max - used - more);
}

enum tr_call {
    TR_CALL_NOBODY = 1,
    TR_CALL_TRIP,
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
