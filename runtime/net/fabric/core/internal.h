/* runtime/net/fabric/core/internal.h - shared by the fabric's core and its back ends.
 *
 * The core has tables, deadlines, the order of work and all completions; a back end moves units. A
 * piece is cut into units, none of which crosses a region on either side. A lane carries and ends
 * units in order. The pieces of a link wait in one queue for its lanes.
 *
 * A fabric has a rail for each NIC or address. Each rail registers every memory, has a link to each
 * peer, and has a part of each grant's key. Rail i of a node connects to rail i of the other node.
 * Rails that the other node lacks, or has with another link layer, are not used. Pieces are
 * distributed over rails that are up. If a link breaks, its pieces are retried on other rails, once
 * on each, and it gets new pieces when it is up again. */
#ifndef SL_FABRIC_CORE_INTERNAL_H
#define SL_FABRIC_CORE_INTERNAL_H

#include "runtime/net/fabric/core/fabric.h"
#include "runtime/net/fabric/core/plan.h"
#include "runtime/net/fabric/core/runs.h"

#define FABRIC_NONE            UINT32_MAX
#define FABRIC_TOKEN_BYTES     24u
#define FABRIC_RAILS_MAX       16u
#define FABRIC_BLOB_HEAD_BYTES 8u   /* header of a blob of rails; then 4 each */
#define FABRIC_NAME_BYTES      160u /* of an entry of the list */
#define FABRIC_SPANS_MAX       32u  /* of a unit, when regions matter */
/* Virtual address for a dmabuf in the NIC: outside of user space, so a CPU access would fault. NICs
 * want the same offset within a page as in the dmabuf; we keep that of a huge page. */
#define FABRIC_DMABUF_BASE (UINT64_C(1) << 47)

struct fabric_rail;

struct fabric_region {
    uint64_t offset_bytes; /* in its memory */
    uint64_t length_bytes;
    uint64_t addr; /* remote: its address for the verbs peer */
    uint32_t lkey, rkey;
    bool unread;  /* as in its memory; set before region_add */
    void *handle; /* of the back end */
};

enum fabric_memory_state {
    MEMORY_FREE,
    MEMORY_REGISTERING,
    MEMORY_FAILED, /* registering failed: regions are removed, one a step */
    MEMORY_READY,
    MEMORY_LEAVING /* regions are removed, one a call */
};
struct fabric_memory {
    struct sl_fabric_memory what; /* dmabuf: at is the NIC's address */
    struct sl_fabric_dmabuf dmabuf;
    bool by_dmabuf; /* dmabuf.fd is owned */
    uint32_t users; /* pieces and grants */
    uint16_t generation;
    uint8_t state;          /* enum fabric_memory_state */
    uint32_t failed_region; /* FAILED: the region that failed, and why */
    struct sl_error *why;   /* owned; NULL: no memory for it */
};
/* Registered regions of a memory on a rail. */
struct fabric_mapping {
    struct fabric_region *regions;
    uint32_t region_count; /* registered so far */
    uint32_t region_capacity;
    uint64_t cut_at;
};

/* A place of a piece or grant. Adjacent places in one memory are merged. */
struct fabric_place {
    struct sl_run run;     /* must be first */
    uint64_t offset_bytes; /* in its memory */
    uint32_t memory;       /* handle */
    bool single;           /* not from a list: does not count for places_max */
};
struct fabric_places { /* table of places */
    struct fabric_place *all;
    uint32_t capacity, count_max, used_count; /* the last two: of lists */
    uint32_t begun_count;                     /* entries in use at least once so far */
    struct sl_run *free;
};

struct fabric_unit {
    struct sl_runs local;         /* .at NULL: its memory is not accessed any more */
    uint64_t remote_offset_bytes; /* in the peer's memory */
    uint64_t remote_addr;
    uint32_t length_bytes;
    uint32_t rkey;
    uint32_t piece;   /* FABRIC_NONE: released, its local memory is not accessed */
    uint32_t key;     /* index */
    bool first, last; /* of its piece */
    bool skipped;     /* was not sent */
};

struct fabric_peer;
struct fabric_lane {
    struct fabric_peer *peer;
    uint32_t index;
    uint32_t piece;                 /* being cut; FABRIC_NONE: none */
    struct fabric_unit *units;      /* ring of depth */
    uint64_t head;                  /* oldest unfinished unit */
    uint64_t sent;                  /* next to send; only the back end changes it */
    uint64_t tail;                  /* next free */
    uint64_t arrived_bytes;         /* of the oldest unit */
    struct sl_digest_stream digest; /* of the piece whose units arrive */
    void *backend;
};

enum fabric_peer_state { PEER_FREE, PEER_STARTING, PEER_UP, PEER_STOPPING, PEER_WAITING };
/* A rail's link to a peer. */
struct fabric_peer {
    struct fabric_rail *rail;
    uint32_t index;
    uint16_t generation;
    uint8_t state;     /* enum fabric_peer_state */
    bool removed;      /* freed when it has stopped */
    uint8_t reported;  /* enum sl_fabric_link: last state that was processed */
    uint32_t lives;    /* number of lost links */
    uint32_t failures; /* in a row */
    uint64_t due_ns;   /* STARTING: timeout; WAITING: next start */
    struct sl_error why;
    void *address; /* owned; our address as last reported */
    uint32_t address_bytes;
    uint32_t waiting_head, waiting_tail; /* queue of pieces */
    struct fabric_lane *lanes;
    void *backend;
};

enum fabric_grant_state { GRANT_FREE, GRANT_LIVE, GRANT_ENDING, GRANT_GONE };
struct fabric_grant {
    struct sl_fabric_grant what; /* its range is that of the key; for a list it starts at 0 */
    struct fabric_place *places; /* memory of that range */
    uint32_t index, peer_index;
    uint16_t slot_generation;
    /* Rails (bits) that have the grant; whose key works or failed; whose link was lost before. */
    uint16_t on, ready, lost;
    uint8_t state;
    bool ticket;         /* of unread memory: verbs makes rights of its own */
    bool reported;       /* granted() was called */
    uint64_t generation; /* sent to the peer; never reused */
    uint8_t token[FABRIC_TOKEN_BYTES];
    const struct sl_error *why; /* from the first rail that failed; NULL: none */
};
/* State of a grant on a rail. */
struct fabric_share {
    uint32_t serving; /* tcp: unfinished answers from its range */
    uint32_t key_bytes;
    void *key;     /* owned, until granted(); NULL: none, or not yet */
    void *backend; /* verbs: windows */
};

struct fabric_key {
    bool used, closing;
    bool dies; /* invalid after a link loss, as tickets of verbs */
    uint16_t generation;
    uint32_t peer_index, users;
};
/* The rights that a key gives on a rail. */
struct fabric_right {
    struct fabric_region *regions; /* NULL: nothing */
    uint32_t region_count;
    uint32_t *lane_rkeys; /* verbs windows: per lane and region */
    uint32_t lives;       /* of the link when the key was opened */
    uint32_t grant_index;
    uint64_t grant_generation;
    uint8_t token[FABRIC_TOKEN_BYTES];
};

struct fabric_piece {
    struct sl_fabric_piece want;
    struct fabric_place *places;
    struct sl_runs uncut; /* the rest, from cut_bytes on */
    struct sl_digest digest;
    bool check_digest;
    uint8_t code;
    bool cut_off; /* no more units are cut */
    uint32_t key_index;
    uint32_t transfer, order; /* order: index in its transfer */
    uint32_t next, before;    /* in the link's queue; next: also in the free list */
    uint32_t sibling;         /* next piece of the transfer */
    uint64_t cut_bytes;
    uint32_t units_out;
    struct fabric_rail *rail; /* carries the piece */
    uint16_t tried;           /* bit mask of rails that carry or carried it */
    struct fabric_lane *lane; /* that cuts it */
    bool waiting;             /* in the link's queue */
    bool ended;
};

struct fabric_transfer {
    bool used;
    sl_err give_up; /* reason to end it; SL_OK: none */
    uint32_t peer_index;
    uint32_t piece_count, pieces_left;
    uint32_t next; /* in the free list or the list of ended ones */
    uint32_t piece_first;
    uint64_t deadline_ns, cookie, moved_bytes;
};

struct fabric_backend {
    const char *name;                                               /* as in the setting `fabric` */
    sl_err (*open)(struct fabric_rail *rail, struct sl_error *why); /* sets rail->backend */
    /* Not called while rail->backend is NULL, but also after a partial open. After quiesce, no
     * memory is accessed; close removes all regions. */
    void (*quiesce)(struct fabric_rail *rail);
    void (*close)(struct fabric_rail *rail);
    /* dmabuf not NULL: register it at the NIC address `at`. Both functions NULL: no registration is
     * needed. */
    sl_err (*region_add)(struct fabric_rail *rail, const struct sl_fabric_dmabuf *dmabuf, void *at,
                         uint64_t length_bytes, struct fabric_region *out, struct sl_error *why);
    void (*region_remove)(struct fabric_rail *rail, struct fabric_region *region);
    /* Whether dmabufs are supported. NULL: no. */
    sl_err (*dmabuf_check)(const struct fabric_rail *rail, struct sl_error *why);
    /* Reports our address and connects lanes; then fabric_peer_up or fabric_peer_fail is called. */
    sl_err (*peer_start)(struct fabric_peer *peer, struct sl_error *why);
    sl_err (*peer_address)(struct fabric_peer *peer, const void *blob, uint32_t length_bytes,
                           struct sl_error *why);
    /* fabric_peer_stopped is called, perhaps at once. last: the peer was removed. */
    void (*peer_stop)(struct fabric_peer *peer, bool last);
    /* fabric_grant_ready or fabric_grant_failed is called, perhaps at once. */
    sl_err (*grant_add)(struct fabric_rail *rail, struct fabric_grant *grant, struct sl_error *why);
    /* fabric_grant_gone is called, perhaps at once. */
    void (*grant_end)(struct fabric_rail *rail, struct fabric_grant *grant);
    sl_err (*key_parse)(struct fabric_rail *rail, const void *blob, uint32_t length_bytes,
                        struct fabric_right *key, struct sl_error *why);
    void (*lane_push)(struct fabric_lane *lane); /* units sent..tail are new */
    /* Some units have lost their piece or will: call fabric_unit_release for those that can be
     * released. NULL: none can. */
    void (*lane_cancel)(struct fabric_lane *lane);
    void (*step)(struct fabric_rail *rail);
    /* Submits queued work to the kernel; NULL: not needed. */
    void (*flush)(struct fabric_rail *rail);
    uint64_t (*wake_at)(const struct fabric_rail *rail); /* NULL: never */
};

/* One NIC (verbs) or address (tcp). Its tables use the indexes of the fabric's tables. */
struct fabric_rail {
    struct sl_fabric *fabric;
    char name[FABRIC_NAME_BYTES];     /* its entry, if there are several */
    struct sl_fabric_options options; /* with its own address or NIC */
    struct sl_fabric_stats stats;
    uint64_t now_ns;
    uint64_t out_bytes; /* of pieces that it carries now */
    uint32_t index;     /* in the list */
    int fd;
    bool work_due; /* work is due without an event on fd */
    char about[192];
    struct fabric_mapping *mappings;
    struct fabric_peer *peers;
    struct fabric_lane *lanes; /* of all peers */
    struct fabric_unit *units; /* of all lanes */
    struct fabric_share *shares;
    struct fabric_right *rights;
    /* Maximum number of local ranges of a unit, each in one region. 0: unlimited, regions do not
     * matter. Set by the back end. */
    uint32_t spans_max;
    void *backend;
};

struct sl_fabric {
    const struct fabric_backend *ops;
    struct sl_fabric_options options;
    struct fabric_rail
        *rails[FABRIC_RAILS_MAX]; /* open ones, in the order of the list; at least 1 */
    uint32_t rail_count, list_count;
    uint32_t turn; /* breaks ties between rails */
    bool keys_die; /* keys of tickets are void when a link is lost */
    bool closing;
    char reasons[FABRIC_RAILS_MAX][104]; /* why a rail did not open; "": it did */
    uint64_t now_ns;
    uint64_t random_state;
    uint64_t next_generation;
    int fd;
    bool work_due;
    char about[192];
    uint8_t *links; /* by peer: enum sl_fabric_link, last reported by link() */
    struct fabric_memory *memories;
    struct fabric_grant *grants;
    struct fabric_key *keys;
    struct fabric_transfer *transfers;
    struct fabric_piece *pieces;
    struct fabric_places places;
    uint8_t *codes; /* SL_FABRIC_PIECES_MAX, for done() */
    uint32_t free_transfer, free_piece, pieces_free;
    uint32_t grant_low, key_low;     /* no slot below is free */
    uint32_t ended_head, ended_tail; /* transfers with a pending done() */
    uint32_t registering;            /* memories being registered */
    uint32_t grants_gone;            /* with a pending grant_ended() */
    bool grants_ready;               /* some have a pending granted() */
    uint64_t deadline_ns;            /* lower bound of the deadlines of all transfers */
    unsigned char blob[SL_FABRIC_BLOB_MAX], part[SL_FABRIC_BLOB_MAX];
};

static inline uint16_t fabric_bit(const struct fabric_rail *rail)
{
    return (uint16_t)(1u << rail->index);
}

/* ---- back end to core ---- */
struct fabric_unit *fabric_lane_unit(const struct fabric_lane *lane, uint64_t number);
/* Ends the oldest unit of the lane. */
void fabric_unit_end(struct fabric_lane *lane, sl_err code);
/* The unit will not access local memory any more, although it has not ended. */
void fabric_unit_release(struct fabric_lane *lane, struct fabric_unit *unit, sl_err code);
/* Whether the unit's transfer was cancelled or timed out. */
bool fabric_unit_given_up(const struct fabric_lane *lane, const struct fabric_unit *unit);
/* Whether its piece has a digest to check. */
bool fabric_unit_checked(const struct fabric_lane *lane, const struct fabric_unit *unit);
/* Digest to feed with bytes of the oldest unit, in order; NULL: not checked, or not wanted any
 * more. */
struct sl_digest_stream *fabric_unit_digest(struct fabric_lane *lane);
void fabric_unit_arrived(struct fabric_lane *lane, uint64_t length_bytes);
/* Reports our address for the peer; it replaces earlier ones. */
void fabric_address_report(struct fabric_peer *peer, const void *blob, uint32_t length_bytes);
void fabric_peer_up(struct fabric_peer *peer);
void fabric_peer_fail(struct fabric_peer *peer, const struct sl_error *why);
void fabric_peer_stopped(struct fabric_peer *peer);
/* The grant works on this rail; key: the rail's part of its key, copied. */
void fabric_grant_ready(struct fabric_rail *rail, struct fabric_grant *grant, const void *key,
                        uint32_t key_bytes);
/* The grant failed on this rail, and nothing of it is left. why must be valid until the grant is
 * gone. */
void fabric_grant_failed(struct fabric_rail *rail, struct fabric_grant *grant,
                         const struct sl_error *why);
void fabric_grant_gone(struct fabric_rail *rail, struct fabric_grant *grant);
/* NULL: stale or invalid handle. */
struct fabric_memory *fabric_memory_of(struct sl_fabric *fabric, uint32_t handle);
struct fabric_peer *fabric_peer_of(const struct fabric_rail *rail, uint32_t handle);
uint32_t fabric_peer_handle(const struct fabric_peer *peer);
/* Finds the region of an offset; NULL: none. */
const struct fabric_region *fabric_region_at(const struct fabric_region *regions, uint32_t count,
                                             uint64_t offset_bytes);
/* Memory of the grant from this offset on, counted as in its key. */
struct sl_runs fabric_grant_runs(const struct fabric_grant *grant, uint64_t offset_bytes);
static inline struct fabric_place *fabric_place_of(struct sl_run *run)
{
    return (struct fabric_place *)run; /* run is its first member */
}
/* Cuts the next length_bytes into at most span_max ranges that are each in one region. Gives the
 * number of bytes in them. */
struct fabric_span {
    unsigned char *at;
    uint64_t length_bytes;
    uint32_t lkey;
};
uint64_t fabric_runs_cut(const struct fabric_rail *rail, struct sl_runs runs, uint64_t length_bytes,
                         struct fabric_span *out, uint32_t span_max, uint32_t *span_count);
uint64_t fabric_random(struct sl_fabric *fabric); /* for jitter, not for secrets */
sl_err fabric_secret(void *out, size_t length_bytes, struct sl_error *why);

#endif
