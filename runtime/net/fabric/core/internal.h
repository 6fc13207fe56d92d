/* runtime/net/fabric/core/internal.h - what the fabric's core and its back ends share.
 *
 * The core owns tables, deadlines, the order of work and every completion; a back end moves units.
 * A piece is cut into units (no unit crosses a region on either side), a lane carries units in
 * order and ends them in order. A link's pieces wait in one queue from which its lanes take.
 *
 * A fabric has a rail for each NIC or address. A memory is registered with every rail, a peer has a
 * link on every rail, and a grant's key is a key of every rail. Rail i of one node speaks to rail i
 * of the other. Rails that the other has not got, or has of another kind, carry nothing. The pieces
 * of a transfer are dealt out over the rails that are up. A rail whose link breaks ends its pieces,
 * and they go to the others, each rail once a piece. When its link is there again it takes pieces
 * again. */
#ifndef SL_FABRIC_CORE_INTERNAL_H
#define SL_FABRIC_CORE_INTERNAL_H

#include "runtime/net/fabric/core/fabric.h"
#include "runtime/net/fabric/core/plan.h"
#include "runtime/net/fabric/core/runs.h"

#define FABRIC_NONE            UINT32_MAX
#define FABRIC_TOKEN_BYTES     24u
#define FABRIC_RAILS_MAX       16u
#define FABRIC_BLOB_HEAD_BYTES 8u   /* of a key of rails; then 4 each */
#define FABRIC_NAME_BYTES      160u /* of an entry of the list */
#define FABRIC_SPANS_MAX       32u  /* of a unit, when regions matter */
/* What a NIC calls the first byte of a dmabuf: no user space has it, so a CPU that touched it would
 * fault. A NIC wants the offset within a page to be that in the dmabuf; here that of a huge one. */
#define FABRIC_DMABUF_BASE (UINT64_C(1) << 47)

struct fabric_rail;

struct fabric_region {
    uint64_t offset_bytes; /* in its memory */
    uint64_t length_bytes;
    uint64_t addr; /* remote: what the verbs peer calls it */
    uint32_t lkey, rkey;
    bool unread;  /* as its memory; set before region_add */
    void *handle; /* of the back end */
};

enum fabric_memory_state {
    MEMORY_FREE,
    MEMORY_REGISTERING,
    MEMORY_FAILED, /* registering: what was registered of it goes again, a region a step */
    MEMORY_READY,
    MEMORY_LEAVING /* goes, a region a call */
};
struct fabric_memory {
    struct sl_fabric_memory what; /* of a dmabuf: at is what the NIC calls it */
    struct sl_fabric_dmabuf dmabuf;
    bool by_dmabuf; /* dmabuf.fd is ours */
    uint32_t users; /* pieces and grants */
    uint16_t generation;
    uint8_t state;          /* enum fabric_memory_state */
    uint32_t failed_region; /* FAILED: the one that could not be registered, and why */
    struct sl_error *why;   /* owned; NULL: no memory for it */
};
/* What a rail has registered of a memory. */
struct fabric_mapping {
    struct fabric_region *regions;
    uint32_t region_count; /* registered so far */
    uint32_t region_capacity;
    uint64_t cut_at;
};

/* One of the places of a piece or grant. Those of one memory that adjoin are one. */
struct fabric_place {
    struct sl_run run;     /* first */
    uint64_t offset_bytes; /* in its memory */
    uint32_t memory;       /* handle */
    bool single;           /* of no list: it is none of places_max */
};
struct fabric_places { /* a table of them */
    struct fabric_place *all;
    uint32_t capacity, count_max, used_count; /* the last two: of lists */
    uint32_t begun_count;                     /* were used once */
    struct sl_run *free;
};

struct fabric_unit {
    struct sl_runs local;         /* .at NULL: it is not touched any more */
    uint64_t remote_offset_bytes; /* in the peer's memory */
    uint64_t remote_addr;
    uint32_t length_bytes;
    uint32_t rkey;
    uint32_t piece; /* FABRIC_NONE: nobody waits for it any more; its local memory is not touched */
    uint32_t key;   /* index */
    bool first, last; /* of its piece */
    bool skipped;     /* never reached the wire */
};

struct fabric_peer;
struct fabric_lane {
    struct fabric_peer *peer;
    uint32_t index;
    uint32_t piece;                 /* being cut; FABRIC_NONE: none */
    struct fabric_unit *units;      /* ring of depth */
    uint64_t head;                  /* oldest that has not ended */
    uint64_t sent;                  /* next for the back end; only the back end moves it */
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
    bool removed;      /* goes when it has stopped */
    uint8_t told;      /* enum sl_fabric_link: how it was when it was last looked at */
    uint32_t lives;    /* how often it went */
    uint32_t failures; /* in a row */
    uint64_t due_ns;   /* STARTING: give up; WAITING: start again */
    struct sl_error why;
    void *address; /* owned; ours, as the back end told it last */
    uint32_t address_bytes;
    uint32_t waiting_head, waiting_tail; /* pieces */
    struct fabric_lane *lanes;
    void *backend;
};

enum fabric_grant_state { GRANT_FREE, GRANT_LIVE, GRANT_ENDING, GRANT_GONE };
struct fabric_grant {
    struct sl_fabric_grant what; /* its range is that of the key; of a list: from 0 on */
    struct fabric_place *places; /* where that lies */
    uint32_t index, peer_index;
    uint16_t slot_generation;
    /* Bits of rails: they have it; their key works, or never will; their link went before. */
    uint16_t on, ready, lost;
    uint8_t state;
    bool ticket;         /* of unread memory: verbs makes rights of its own */
    bool told;           /* granted() was called */
    uint64_t generation; /* on the wire; never reused */
    uint8_t token[FABRIC_TOKEN_BYTES];
    const struct sl_error *why; /* of the first rail that failed; NULL: none did */
};
/* What a rail has of a grant. */
struct fabric_share {
    uint32_t serving; /* tcp: answers under way with bytes of its range */
    uint32_t key_bytes;
    void *key;     /* owned, until granted(); NULL: it adds nothing to the key, or not yet */
    void *backend; /* verbs: windows */
};

struct fabric_key {
    bool used, closing;
    bool dies; /* with the link, as tickets of verbs do */
    uint16_t generation;
    uint32_t peer_index, users;
};
/* What a key allows by a rail. */
struct fabric_right {
    struct fabric_region *regions; /* NULL: nothing */
    uint32_t region_count;
    uint32_t
        *lane_rkeys; /* verbs, windows: of every lane for every region; NULL: the regions' own */
    uint32_t lives;  /* of the link, when the key was opened */
    uint32_t grant_index;
    uint64_t grant_generation;
    uint8_t token[FABRIC_TOKEN_BYTES];
};

struct fabric_piece {
    struct sl_fabric_piece want;
    struct fabric_place *places;
    struct sl_runs uncut; /* from cut_bytes on */
    struct sl_digest digest;
    bool check_digest;
    uint8_t code;
    bool cut_off; /* no further units are cut */
    uint32_t key_index;
    uint32_t transfer, order; /* index of its transfer, place in it */
    uint32_t next, before;    /* in the link's queue; next: also in the free list */
    uint32_t sibling;         /* next piece of the transfer */
    uint64_t cut_bytes;
    uint32_t units_out;
    struct fabric_rail *rail; /* that carries it */
    uint16_t tried;           /* bits of rails: they carry it, or did */
    struct fabric_lane *lane; /* that cuts it */
    bool waiting;             /* in the link's queue */
    bool ended;
};

struct fabric_transfer {
    bool used;
    sl_err give_up; /* SL_OK: none */
    uint32_t peer_index;
    uint32_t piece_count, pieces_left;
    uint32_t next; /* in the free list or that of the ended */
    uint32_t piece_first;
    uint64_t deadline_ns, cookie, moved_bytes;
};

struct fabric_backend {
    const char *name; /* as the setting `fabric` has it */
    sl_err (*open)(struct fabric_rail *rail, struct sl_error *why); /* sets rail->backend */
    /* Neither is called while rail->backend is NULL. quiesce: nothing touches memory afterwards;
     * close: regions are gone; both also after half an open. */
    void (*quiesce)(struct fabric_rail *rail);
    void (*close)(struct fabric_rail *rail);
    /* dmabuf: not NULL: of that, and the NIC is to call it by the address at. NULL, both functions:
     * nothing is to be done. */
    sl_err (*region_add)(struct fabric_rail *rail, const struct sl_fabric_dmabuf *dmabuf, void *at,
                         uint64_t length_bytes, struct fabric_region *out, struct sl_error *why);
    void (*region_remove)(struct fabric_rail *rail, struct fabric_region *region);
    /* Whether a region may be of a dmabuf at all. NULL: it may not. */
    sl_err (*dmabuf_check)(const struct fabric_rail *rail, struct sl_error *why);
    /* Tells its address and builds the lanes; fabric_peer_up or fabric_peer_fail follow. */
    sl_err (*peer_start)(struct fabric_peer *peer, struct sl_error *why);
    sl_err (*peer_address)(struct fabric_peer *peer, const void *blob, uint32_t length_bytes,
                           struct sl_error *why);
    /* fabric_peer_stopped follows, perhaps at once. last: the peer is forgotten. */
    void (*peer_stop)(struct fabric_peer *peer, bool last);
    /* fabric_grant_ready or fabric_grant_failed follows, perhaps at once. */
    sl_err (*grant_add)(struct fabric_rail *rail, struct fabric_grant *grant, struct sl_error *why);
    /* fabric_grant_gone follows, perhaps at once. */
    void (*grant_end)(struct fabric_rail *rail, struct fabric_grant *grant);
    sl_err (*key_parse)(struct fabric_rail *rail, const void *blob, uint32_t length_bytes,
                        struct fabric_right *key, struct sl_error *why);
    void (*lane_push)(struct fabric_lane *lane); /* units sent..tail are new */
    /* Some units have lost their piece, or may: fabric_unit_release those that can go. NULL: none.
     */
    void (*lane_cancel)(struct fabric_lane *lane);
    void (*step)(struct fabric_rail *rail);
    /* Hands to the kernel what was queued; NULL: nothing. */
    void (*flush)(struct fabric_rail *rail);
    uint64_t (*wake_at)(const struct fabric_rail *rail); /* NULL: never */
};

/* One NIC (verbs) or address (tcp), as its back end sees it. Its tables have by the same index what
 * it has of the fabric's own. */
struct fabric_rail {
    struct sl_fabric *fabric;
    char name[FABRIC_NAME_BYTES];     /* of several: its entry of the list */
    struct sl_fabric_options options; /* with that as its address or NIC */
    struct sl_fabric_stats stats;
    uint64_t now_ns;
    uint64_t out_bytes; /* of pieces that it carries */
    uint32_t index;     /* in the list */
    int fd;
    bool work_due; /* something became due without a descriptor */
    char about[192];
    struct fabric_mapping *mappings;
    struct fabric_peer *peers;
    struct fabric_lane *lanes; /* of all peers */
    struct fabric_unit *units; /* of all lanes */
    struct fabric_share *shares;
    struct fabric_right *rights;
    /* Of a unit: local ranges of which each is in one region. 0: any number, and regions do not
     * matter. Set by the back end. */
    uint32_t spans_max;
    void *backend;
};

struct sl_fabric {
    const struct fabric_backend *ops;
    struct sl_fabric_options options;
    struct fabric_rail
        *rails[FABRIC_RAILS_MAX]; /* that are open, in the order of the list; 1 and up */
    uint32_t rail_count, list_count;
    uint32_t turn; /* which of equal rails comes first */
    bool keys_die; /* those of tickets, with their link */
    bool closing;
    char reasons[FABRIC_RAILS_MAX][104]; /* why a rail did not open; "": it did */
    uint64_t now_ns;
    uint64_t random_state;
    uint64_t next_generation;
    int fd;
    bool work_due;
    char about[192];
    uint8_t *links; /* of each peer: enum sl_fabric_link, what link() said last */
    struct fabric_memory *memories;
    struct fabric_grant *grants;
    struct fabric_key *keys;
    struct fabric_transfer *transfers;
    struct fabric_piece *pieces;
    struct fabric_places places;
    uint8_t *codes; /* SL_FABRIC_PIECES_MAX, for done() */
    uint32_t free_transfer, free_piece, pieces_free;
    uint32_t grant_low, key_low;     /* no slot before them is free */
    uint32_t ended_head, ended_tail; /* transfers whose done() is due */
    uint32_t registering;            /* memories that are being registered */
    uint32_t grants_gone;            /* whose grant_ended() is due */
    bool grants_ready;               /* granted() is due for some */
    uint64_t deadline_ns;            /* not later than the earliest of all transfers */
    unsigned char blob[SL_FABRIC_BLOB_MAX], part[SL_FABRIC_BLOB_MAX];
};

static inline uint16_t fabric_bit(const struct fabric_rail *rail)
{
    return (uint16_t)(1u << rail->index);
}

/* ---- back end to core ---- */
struct fabric_unit *fabric_lane_unit(const struct fabric_lane *lane, uint64_t number);
/* The oldest unit of the lane ended. */
void fabric_unit_end(struct fabric_lane *lane, sl_err code);
/* The unit touches no local memory any more although its end is outstanding. */
void fabric_unit_release(struct fabric_lane *lane, struct fabric_unit *unit, sl_err code);
/* True when the unit's transfer was given up. */
bool fabric_unit_given_up(const struct fabric_lane *lane, const struct fabric_unit *unit);
/* Whether its bytes are checked against a digest. */
bool fabric_unit_checked(const struct fabric_lane *lane, const struct fabric_unit *unit);
/* What bytes of the oldest unit are fed to, in order, as they arrive in its local memory; NULL:
 * they are not checked, or not wanted any more. */
struct sl_digest_stream *fabric_unit_digest(struct fabric_lane *lane);
void fabric_unit_arrived(struct fabric_lane *lane, uint64_t length_bytes);
/* What the peer is to know of us; it replaces what was told before. */
void fabric_address_tell(struct fabric_peer *peer, const void *blob, uint32_t length_bytes);
void fabric_peer_up(struct fabric_peer *peer);
void fabric_peer_fail(struct fabric_peer *peer, const struct sl_error *why);
void fabric_peer_stopped(struct fabric_peer *peer);
/* What the rail adds to the key, which works from now on; copied. */
void fabric_grant_ready(struct fabric_rail *rail, struct fabric_grant *grant, const void *key,
                        uint32_t key_bytes);
/* It never will, and nothing of it is left; why is lent until the grant is gone. */
void fabric_grant_failed(struct fabric_rail *rail, struct fabric_grant *grant,
                         const struct sl_error *why);
void fabric_grant_gone(struct fabric_rail *rail, struct fabric_grant *grant);
/* NULL: there is none. */
struct fabric_memory *fabric_memory_of(struct sl_fabric *fabric, uint32_t handle);
struct fabric_peer *fabric_peer_of(const struct fabric_rail *rail, uint32_t handle);
uint32_t fabric_peer_handle(const struct fabric_peer *peer);
/* The region that holds offset; NULL: none. */
const struct fabric_region *fabric_region_at(const struct fabric_region *regions, uint32_t count,
                                             uint64_t offset_bytes);
/* Where the grant's range lies from this offset on (as in its key) to its end. */
struct sl_runs fabric_grant_runs(const struct fabric_grant *grant, uint64_t offset_bytes);
static inline struct fabric_place *fabric_place_of(struct sl_run *run)
{
    return (struct fabric_place *)run; /* it comes first in it */
}
/* The next length_bytes of a list of places as at most span_max ranges of which each is in one
 * region. Gives how many bytes those hold. */
struct fabric_span {
    unsigned char *at;
    uint64_t length_bytes;
    uint32_t lkey;
};
uint64_t fabric_runs_cut(const struct fabric_rail *rail, struct sl_runs runs, uint64_t length_bytes,
                         struct fabric_span *out, uint32_t span_max, uint32_t *span_count);
uint64_t fabric_random(struct sl_fabric *fabric); /* jitter, not secrets */
sl_err fabric_secret(void *out, size_t length_bytes, struct sl_error *why);

#endif
