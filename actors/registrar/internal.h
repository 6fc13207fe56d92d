/* actors/registrar/internal.h - the registrar's state and what its files ask of each other.
 *
 * What must survive the process stands in records of the index; everything here is rebuilt from
 * them (recover.c). A `unit` is what is evicted together: a block with all its parts (unit = its
 * GROUP record), or an object without a block (unit = its own record). */
#ifndef SL_REGISTRAR_INTERNAL_H
#define SL_REGISTRAR_INTERNAL_H

#include <stdatomic.h>

#include "actors/registrar/contributions.h"
#include "ipc/sl_index.h"
#include "ipc/sl_leases.h"
#include "ipc/sl_msg.h"
#include "ipc/sl_pins.h"

#define REG_NONE       UINT32_MAX
#define REG_NAME_BYTES 32u
#define REG_PARTS_MAX  512u                 /* parts of a block, from the message table */
#define REG_TICK_NS    (100 * SL_NS_PER_MS) /* longest sleep: access rings are drained this often */
#define REG_RETIRED_SCAN_NS                                                                 \
    (10 * SL_NS_PER_MS)                    /* how often retired extents are looked at again \
                                            */
#define REG_POPULATE_NS (5 * SL_NS_PER_MS) /* how often the populated prefix is looked at */
#define REG_DISK_CALL_NS                                                    \
    (30 * SL_NS_PER_S) /* a tierer that answers nothing for so long is slow \
                        */
#define REG_DISK_RETRY_NS (500 * SL_NS_PER_MS) /* pause after a disk error */
/* A promotion that gets no space for so long is told: what its reader has pinned may be what is in
 * the way. */
#define REG_PROMOTE_WAIT_NS (100 * SL_NS_PER_MS)
#define REG_DISK_BUSY_NS    (20 * SL_NS_PER_MS) /* pause after a tierer said that it has enough */
/* A tierer that is away for so long is taken for no disk at all: eviction goes on without it. */
#define REG_DISK_ABSENT_NS (5 * SL_NS_PER_S)
/* After the start, what another disk may know of one is waited for so long. */
#define REG_DISK_WITNESS_NS (20 * SL_NS_PER_S)
/* A node with a disk tier is ready when it knows what is there, or after so long. */
#define REG_DISK_SCAN_NS (10 * SL_NS_PER_S)

/* Who looks so much later than an answer was due was stopped or starved itself: it asks again, so
 * often in a row. */
#define REG_LATE_NS   (100 * SL_NS_PER_MS)
#define REG_LATES_MAX 3u

/* ---- timers.c: a heap of deadlines by id, each id in it at most once ---- */
struct reg_timers {
    uint32_t *ids;      /* the heap */
    uint32_t *places;   /* id -> position in the heap, REG_NONE: not in it */
    uint64_t *deadline; /* id -> when */
    uint32_t count, id_max;
};
sl_err reg_timers_init(struct reg_timers *timers, uint32_t id_max, struct sl_error *why);
void reg_timers_fini(struct reg_timers *timers);
void reg_timers_set(struct reg_timers *timers, uint32_t id, uint64_t deadline_ns);
void reg_timers_clear(struct reg_timers *timers, uint32_t id);
uint64_t reg_timers_next(const struct reg_timers *timers); /* SL_NEVER_NS: none */
bool reg_timers_pop(struct reg_timers *timers, uint64_t now_ns, uint32_t *id);

/* ---- peers ---- */
struct reg_peer {
    bool used;
    bool present; /* false: an actor that died; its name stays known, since it will be restarted */
    bool client;
    bool tierer;
    char name[REG_NAME_BYTES];
    char role[REG_NAME_BYTES];
    char segment[64];
    struct sl_proc_id proc;
    struct sl_pins_view *pins;
    sl_ref blob;
    uint64_t quarantined_bytes; /* that it caused as owner */
    uint64_t ahead_bytes;       /* granted to it ahead of use */
    uint32_t ahead_count;
    uint32_t owned;     /* first of the live claims it owns */
    uint32_t held;      /* first of the quarantined claims it may still write to */
    uint64_t fence_seq; /* of the FENCE in flight, 0: none */
    uint64_t fence_due_ns;
    uint32_t fence_lates; /* times in a row that we looked late for its answer */
};

/* ---- claims: extents granted to a writer, until they are committed or free again ---- */
enum reg_claim_state {
    REG_CLAIM_FREE,
    REG_CLAIM_RESERVED,
    REG_CLAIM_PROMOTING,
    /* quarantined: */
    REG_CLAIM_HELD,    /* the writer is a client: until it commits, aborts or dies */
    REG_CLAIM_UNASKED, /* the writer is an actor, its FENCE is still to be sent */
    REG_CLAIM_ASKED,   /* FENCE is in flight */
    REG_CLAIM_GRACE,   /* nobody to ask: free when the timer ends */
};
struct reg_node {
    uint32_t next, previous;
};
enum reg_list { REG_LIST_PEER, REG_LIST_GROUP, REG_LIST_COUNT };
struct reg_claim {
    enum reg_claim_state state;
    sl_ref ref;
    struct sl_extent extent;
    uint64_t hash;   /* of the key */
    uint64_t bundle; /* as in its record */
    uint64_t op_id;
    uint64_t seq; /* of the request: tells requests without op id apart */
    struct sl_proc_id owner;
    uint32_t owner_peer;  /* REG_NONE: gone */
    uint32_t writer_peer; /* REG_NONE: unknown after a restart */
    uint32_t group;       /* pending group, REG_NONE: none */
    uint32_t key_next, generation_next;
    struct reg_node
        node[REG_LIST_COUNT]; /* PEER: the owner's while live, the writer's in quarantine */
    uint16_t part_index;
    bool charged;      /* counted in the owner's quarantined_bytes */
    bool ahead;        /* granted ahead of use: for no key yet */
    bool replace;      /* a value that has its key gives way to it */
    uint64_t since_ns; /* when it was granted, or found by this registrar */
};

/* ---- groups being written ---- */
struct reg_group {
    bool used;
    bool found;   /* of a disk scan: has no owner */
    bool aborted; /* its owner gave a part up: the block goes when its last claim ends */
    sl_ref ref;
    struct sl_proc_id owner;
    uint64_t op_id, seq;
    uint64_t parts[REG_PARTS_MAX / 64]; /* part indexes that are claimed or filled */
    uint32_t claims;                    /* first of its live claims */
};
static inline bool reg_group_has(const struct reg_group *group, uint64_t part)
{
    return (group->parts[part / 64] >> (part % 64) & 1) != 0;
}
static inline void reg_group_mark(struct reg_group *group, uint64_t part, bool there)
{
    uint64_t bit = UINT64_C(1) << (part % 64);
    group->parts[part / 64] =
        there ? group->parts[part / 64] | bit : group->parts[part / 64] & ~bit;
}

/* ---- extents out of the table that may be pinned or under write ---- */
struct reg_retired {
    sl_ref ref;
    bool lent; /* the tierer still reads it */
    struct sl_extent extent;
};

/* ---- units ---- */
struct reg_units {
    sl_ref oldest, newest;
    uint64_t count;
};
/* bits of sl_links.flags; sl_links.disks has a bit for each disk that may hold bytes under the
 * record's key where its place does not say */
enum {
    REG_FLAG_HOT = 1u << 0,     /* unit: in the list of units with a part in memory */
    REG_FLAG_COLD = 1u << 1,    /* unit: in the list of units on disk alone */
    REG_FLAG_KEPT_LISTS = 3u,   /* unit, both: in memory, in a list that eviction passes by */
    REG_FLAG_WRITING = 1u << 2, /* record: a DISK_WRITE of it is in flight */
    REG_FLAG_SPENT = 1u << 3,   /* record: its place was reclaimed; it need not be written again */
    REG_FLAG_SCAN = 1u << 4,    /* record with a place: parity of the scan that last saw it */
    REG_FLAG_HELD = 1u << 5,    /* block: a hand-over holds it in memory */
    REG_FLAG_READ = 1u << 6,    /* unit: somebody wanted it since it was last written to disk */
    REG_FLAG_PREFETCHED = 1u << 7, /* record in memory, and its unit: nobody wanted it since */
    REG_FLAG_KEPT = 1u << 8,       /* unit: stays while the segment of its parts goes */
};
/* unit: when somebody wanted it last, in the highest bits; see reg_unit_age */
#define REG_WANTED_SHIFT 9u
#define REG_WANTED_MASK  0x7fu
/* The clock of that ticks so often while as much is written as the disks hold. */
#define REG_WANTED_TICKS 32u

/* ---- leases and pins ---- */
struct reg_due { /* a unit of the lists that eviction passes by: when to look at it again */
    uint64_t at_ns, version;
    sl_ref ref;
};
struct reg_dues { /* heap by at_ns; entries of what is gone are dropped when they come up */
    struct reg_due *heap;
    uint32_t count, capacity;
};
struct reg_bundled { /* of a bundle */
    uint64_t bundle;
    sl_ref ref; /* 0: free */
    uint32_t next, previous, ref_next;
    bool writing; /* a reservation */
};
struct reg_bundles {
    struct reg_bundled *members;
    uint32_t count, high, capacity, free;
    uint32_t *bundle_heads, *ref_heads;
    uint32_t heads_mask;
    sl_ref *scratch; /* members of one bundle */
    uint32_t scratch_capacity;
};

/* ---- write-behind ---- */
#define REG_WRITES_MAX      16u /* to one disk at a time */
#define REG_WRITES_YIELDING 2u  /* while it reads, and nobody waits for writes: never none */
#define REG_WRITE_ITEMS_MAX 64u
#define REG_WRITE_BYTES_MAX (4 * SL_MIB)
struct reg_write_item {
    sl_ref ref;
    uint64_t generation;
    uint64_t order; /* of the commit: what FLUSH waits for */
};
struct reg_write {
    bool used;
    uint32_t disk;
    uint64_t bytes;
    uint64_t seq;
    uint32_t count;
    struct reg_write_item items[REG_WRITE_ITEMS_MAX];
    /* Set when the record was removed while it was written: the place must be forgotten. */
    struct {
        bool doomed;
        bool removed; /* by REMOVE: must not come back after a restart either */
        sl_ref note;
        char *key;
        uint64_t length_bytes;
        uint64_t remove_id;
        uint32_t remove_index;
    } fate[REG_WRITE_ITEMS_MAX];
};
struct reg_queue { /* ring of write items, oldest first; grows with what is committed */
    struct reg_write_item *items;
    uint64_t head, count, capacity;
};

/* ---- promotion ---- */
#define REG_READS_MAX      8u /* from one disk at a time */
#define REG_READ_ITEMS_MAX 256u
#define REG_READ_BYTES_MAX (16 * SL_MIB)
#define REG_FETCHES_MAX    (2u * SL_BATCH_MAX)
/* Of these, for what nobody waits for: */
#define REG_AHEAD_READS_MAX   4u
#define REG_AHEAD_FETCHES_MAX SL_BATCH_MAX
struct reg_fetch { /* one key on its way from disk to memory */
    bool used;
    bool reading;
    bool ahead;    /* nobody waits for it to read it at once */
    uint32_t disk; /* that its place is on */
    uint32_t claim;
    sl_ref source;
    uint64_t source_version;
    uint32_t kept_for; /* number of the reclaim that waits for it, 0: none */
    bool held;         /* it was brought for a hold: awaited as long as that lasts */
    uint32_t waiters;  /* first */
    uint32_t next;     /* in the queue of its disk, or in the free list */
    uint32_t previous; /* in the queue */
    uint32_t hash_next;
};
struct reg_fetch_queue {
    uint32_t first, last;
};
struct reg_waiter {
    uint32_t op, item, next;
    bool ahead;
    uint64_t serial; /* of the op: its slot may have another by now */
};
struct reg_read {
    bool used;
    bool ahead;
    uint32_t disk;
    uint64_t bytes;
    uint64_t seq;
    uint32_t count;
    uint32_t fetches[REG_READ_ITEMS_MAX];
};
struct reg_promote {
    bool used;
    bool ahead; /* a PREFETCH */
    uint64_t serial;
    struct sl_return back;
    uint64_t *codes;
    uint32_t count, left;
};

/* ---- removal and tombstones ---- */
#define REG_FORGETS_MAX       65536u
#define REG_FORGET_ITEMS_MAX  1024u
#define REG_FORGET_HEADS      16384u
#define REG_REMOVES_MAX       256u /* also COMMITs that wait for tombstones */
#define REG_REMOVE_STEP_UNITS 4096u
struct reg_forget {
    struct reg_forget *next, *previous, *hash_next, *key_next;
    bool sent;
    bool restored; /* from a note: a REMOVE that is sent again waits for it */
    sl_ref note;   /* 0: none */
    uint64_t length_bytes;
    struct sl_disk_place place;
    uint64_t remove_id; /* 0: nobody waits */
    uint32_t remove_index;
    uint32_t key_length;
    char key[];
};
/* Slots of disks: those of the setting and those that were remembered from before it changed. The
 * last one stands for every disk that may be there and has not told yet who it is. */
#define REG_DISKS_MAX    16u
#define REG_DISK_UNKNOWN (REG_DISKS_MAX - 1)
struct reg_remove {
    uint64_t id; /* 0: free */
    struct sl_return back;
    char *keys; /* zero-terminated, one after the other; NULL: all */
    uint64_t keys_at;
    uint32_t count, next;
    uint64_t all_left;
    uint64_t *codes;
    bool heed_leases, tell_busy;
    struct reg_wished uncharged; /* serial 0: values are removed */
    sl_err failed;               /* not all can be removed now */
    uint32_t *left;              /* tombstones a key waits for */
    uint64_t outstanding;
    uint32_t forgets[REG_DISKS_MAX]; /* of these, tombstones that each disk is to confirm */
};
struct reg_flush {
    bool used;
    struct sl_return back;
    uint64_t order;
};

/* ---- what is where on disk ---- */
struct reg_segment {
    uint64_t number; /* disk << 32 | segment */
    sl_ref *refs;    /* records that had a place here when they were noted */
    uint32_t count, capacity;
    uint32_t live;
};
struct reg_reclaim { /* the oldest segment of a disk goes, when what is kept of it is in memory */
    bool active;
    uint32_t segment;
    struct sl_return back;
    uint64_t until_ns;
    uint32_t number;    /* of this one, never 0 */
    uint32_t left;      /* values that are on their way */
    uint32_t held_left; /* values that a hand-over holds and that are not in memory yet */
};
enum reg_disk_state { REG_DISK_ABSENT, REG_DISK_SCANNING, REG_DISK_READY };
#define REG_RECLAIMED_MAX   1024u
#define REG_DISK_NAME_BYTES 16u
struct reg_disk_name { /* what a disk is known by, whichever path it is under */
    unsigned char bytes[REG_DISK_NAME_BYTES];
};
/* A disk in a list of those that have missed nothing (members.c); as in messages and on disks. */
struct reg_member {
    struct reg_disk_name name;
    uint64_t epoch; /* of the list that it keeps itself; 0: none */
};
#define REG_MEMBERS_MAX 32u
enum reg_verdict { REG_VERDICT_NONE, REG_VERDICT_MEMBER, REG_VERDICT_STALE };
/* What a path's disk told of itself, and what is told to it. */
struct reg_standing {
    bool told;
    bool keeps; /* its tierer keeps a list: one of before does not */
    bool blank; /* it held no value */
    enum reg_verdict verdict;
    struct reg_member self;
    struct reg_member list[REG_MEMBERS_MAX];
    uint32_t count;
    uint64_t seq;      /* DISK_MEMBERS in flight, 0: none */
    uint64_t sent;     /* epoch that it carries */
    uint64_t retry_ns; /* not before */
    bool failed;       /* the last one */
};
struct reg_members {
    struct reg_member list[REG_MEMBERS_MAX];
    bool met[REG_MEMBERS_MAX]; /* it came while this index was there */
    uint32_t count;
    bool closed;    /* some list was heard, or all disks were: others have missed something */
    bool some_left; /* no path leads to one of them */
    uint64_t epoch; /* of this list; 0: nothing was changed yet while this index was there */
    sl_ref note;
};
struct reg_path { /* an entry of disk_path: served by the tierer of this number */
    uint32_t peer;
    bool here;
    uint64_t absent_since_ns;
    char trouble[SL_METRICS_REASON_BYTES]; /* what its tierer died of, as far as it said */
    uint64_t fence_seq; /* FENCE of all that was asked of the tierer before, 0: acknowledged */
    uint32_t disk;      /* slot; REG_NONE: the tierer has not told yet */
    struct reg_standing standing;
};
/* A disk. Its slot is the number that places name; it is kept in a note of the index, so that a
 * restart with the paths in another order finds everything. */
struct reg_disk {
    bool used;
    bool named; /* false: unknown, or of an index that was made when there was one disk */
    bool gone;  /* no path leads there any more: its places are being forgotten */
    bool stale; /* what was removed may be there: its values go, also from memory */
    bool born;  /* it was blank when it came while this index was there */
    struct reg_disk_name name;
    sl_ref note;
    struct sl_proc_id proc; /* that served it last */
    uint32_t path;          /* REG_NONE: none that told so */
    uint32_t tierer;        /* peer, while it is not absent */
    enum reg_disk_state state;
    uint64_t absent_since_ns;
    bool failing; /* the last write failed */
    uint64_t failing_since_ns;
    uint32_t batch_items; /* of one DISK_WRITE: fewer when the tierer says that it is too much */
    uint64_t retry_ns;
    uint32_t writes; /* in flight */
    uint64_t write_bytes;
    struct reg_fetch_queue fetches[2]; /* wait for an extent: wanted, and ahead of use */
    uint32_t reads[2];                 /* in flight, likewise */
    uint64_t ahead_bytes;              /* of those ahead of use */
    struct reg_reclaim reclaim;
    /* what it holds */
    uint64_t scan_seq;
    struct sl_proc_id scan_proc;
    bool scan_open; /* a scan has begun and not ended */
    bool scanned;   /* since this registrar started, the disk said once what it holds */
    bool parity;
    bool sweeping;
    uint64_t unseen; /* places known when the scan began: what it does not find is not there */
    uint64_t sweep_cursor;
    uint64_t place_count;
    /* tombstones on their way there */
    struct reg_forget *forget_first, *forget_last;
    uint32_t forget_count;
    uint32_t forget_unplaced; /* of these: a scan must tell where they are */
    uint32_t forget_restored; /* of these: of the registrar before */
    uint64_t forget_seq;      /* DISK_FORGET in flight, 0: none */
    uint64_t forget_retry_ns;
};
struct reg_tier { /* all disks together */
    bool on;
    bool settled; /* every path has told which disk it leads to: there are no others */
    uint32_t path_count;
    uint64_t batch_bytes_max;
    uint64_t written_bytes; /* since the start: the clock of what was wanted when */
    uint32_t reclaim_count; /* active */
    uint32_t reclaim_number;
    uint64_t scan_until_ns;   /* the first scan of this life is waited for so long; 0: it is over */
    uint64_t groups_until_ns; /* blocks whose parts are missing wait for absent disks; 0: none do */
    uint64_t place_count;
    struct reg_segment *segments; /* sorted by number */
    uint32_t segment_count, segment_capacity;
    uint64_t reclaimed[REG_RECLAIMED_MAX]; /* a ring: numbers that are never used again */
    uint32_t reclaimed_count;
    struct reg_path paths[SL_DISK_PATHS_MAX];
    struct reg_disk disks[REG_DISKS_MAX];
    struct reg_members members;
    uint64_t witness_until_ns; /* lists of disks that have not come are waited for */
};

/* ---- parked RESERVEs ---- */
struct reg_request { /* a RESERVE as the pass needs it; of a message or of a parked copy */
    const struct sl_item_want *items;
    const struct sl_item_group *groups;
    uint32_t item_count, group_count;
    bool wait;            /* for room, for all of it */
    bool until_populated; /* waits only while memory is being populated: room is on its way */
    uint64_t ttl_ns, op_id, seq, trace_id, hold_id, hold_ns;
    bool hard_pin, replace;
    uint64_t soft_pin_ns;
    uint32_t peer;
    struct sl_proc_id owner;
    struct reg_wish wish;
};
struct reg_parked {
    struct reg_parked *next;
    struct sl_return back;
    struct reg_request request;
    uint64_t bytes;      /* of this copy */
    uint64_t need_bytes; /* of the arena */
};

/* ---- engines ---- */
struct reg_engine {
    bool used;
    uint64_t id;
    struct sl_proc_id proc;
    uint64_t seq; /* of the registration */
    char sender[REG_NAME_BYTES];
    unsigned char *frame; /* ENGINE_GET_REPLY, encoded */
    uint64_t frame_bytes;
    sl_ref *blobs;
    uint32_t blob_count;
};

/* ---- pools: device memory of one pool of one rank, with one owner ---- */
#define REG_POOL_MAPPERS_MAX  64u
#define REG_POOL_NAME_BYTES   64u
#define REG_POOL_IPC_BYTES    64u
#define REG_POOL_MAPPERS_TEXT 1024u
/* How long a swapper may take to make the memory. */
#define REG_POOL_MAKE_NS (30 * SL_NS_PER_S)
enum reg_pool_state { /* as in messages */
                      REG_POOL_ABSENT,
                      REG_POOL_ALLOCATING,
                      REG_POOL_READY,
                      REG_POOL_REVOKING,
};
struct reg_pool_handle {    /* how others map it */
    struct sl_proc_id proc; /* that has the descriptor */
    uint64_t kind, fd, inode, offset_bytes, ipc_bytes;
    unsigned char ipc[REG_POOL_IPC_BYTES];
};
struct reg_pool_mapper { /* a client that maps it, or was told how to */
    struct sl_proc_id proc;
    char name[REG_NAME_BYTES];
    uint64_t fd;
    uint64_t has_fd; /* 1: others may map it by fd */
    uint64_t seq;    /* of its request: a RELEASE of before is not meant for this */
};
struct reg_pool {
    bool used;     /* absent ones too, while somebody waits for them */
    bool sluice;   /* the rank's swapper made it, or makes it */
    bool lent;     /* an engine was registered with it: the rank's swapper may map it */
    bool dropping; /* the swapper has not said yet that it unmapped it */
    bool unnoted;  /* the index had no room for its last change */
    enum reg_pool_state state;
    char name[REG_POOL_NAME_BYTES];
    char pool[REG_NAME_BYTES];
    uint64_t rank, epoch, length_bytes;
    struct sl_proc_id owner; /* none: gone, others have the memory */
    char owner_name[REG_NAME_BYTES];
    uint64_t owner_seq; /* of its POOL_TAKE, likewise */
    struct reg_pool_handle handle;
    struct reg_pool_mapper mappers[REG_POOL_MAPPERS_MAX];
    uint32_t mapper_count;
    uint64_t call_seq; /* POOL_MAKE or POOL_DROP in flight, 0: none */
    uint64_t call_due_ns;
    uint32_t call_lates; /* times in a row that we looked late for the answer */
    sl_ref blob;
};
/* Who gave back which pool by which request: one sent before that comes late is not served. */
#define REG_POOLS_GIVEN_BACK 256u
struct reg_pool_given_back {
    uint64_t whose, seq; /* hash of client and pool */
};
enum reg_pool_wait {
    REG_POOL_WAIT_NONE,
    REG_POOL_WAIT_READY,  /* POOL_AWAIT until it is; POOL_TAKE of what a swapper makes */
    REG_POOL_WAIT_END,    /* POOL_AWAIT until it is not any more */
    REG_POOL_WAIT_TAKE,   /* POOL_TAKE until what is being revoked is gone */
    REG_POOL_WAIT_REVOKE, /* POOL_REVOKE until nobody maps it */
};
struct reg_pool_waiter {
    enum reg_pool_wait kind;
    uint32_t pool;
    bool sluice; /* of a TAKE */
    uint64_t epoch, length_bytes;
    struct sl_proc_id proc;
    struct sl_return back;
};

/* ---- ghosts ---- */
enum reg_ghost_reason {
    REG_GHOST_EVICTED = 1,
    REG_GHOST_INDEX_FULL,
    REG_GHOST_DISK_RECLAIMED,
    REG_GHOST_DISK_FAILED,
    REG_GHOST_CORRUPT,
    REG_GHOST_REMOVED,
    REG_GHOST_TRANSIENT,
    REG_GHOST_EXPIRED,
    REG_GHOST_REFUSED,
    REG_GHOST_UNREADABLE,
    REG_GHOST_CONTRIBUTION,
};
struct reg_ghost {
    uint64_t hash;
    uint64_t at_ns;
    uint32_t reason;
    uint32_t serial; /* of the contribution that ended */
};
struct reg_ghosts {
    struct reg_ghost *ring;
    uint64_t count, capacity;
};

struct reg_transient { /* a block with a time to live */
    uint64_t at_ns, version;
    sl_ref ref;
};
struct reg_transients { /* heap by at_ns; entries whose block is gone are dropped when they come up
                         */
    struct reg_transient *heap;
    uint32_t count, capacity;
};

/* ---- holds: blocks that are kept in memory for a hand-over ---- */
struct reg_held { /* one block of one hold */
    uint64_t version, bytes, until_ns;
    sl_ref group;        /* 0: free */
    uint32_t hold;       /* REG_NONE: of a hold that a registrar before us gave */
    uint32_t group_next; /* of the same hash; of the free ones */
    uint32_t hold_next;
};
struct reg_hold {
    uint64_t id; /* 0: free */
    uint32_t first;
};
struct reg_holds {
    struct reg_hold *holds;
    struct reg_held *held;
    uint32_t *heads; /* by block */
    uint32_t hold_count, held_count, held_high, held_capacity, held_free;
    uint64_t bytes, next_ns;
};

/* Scratch of one RESERVE, so that the pass allocates nothing. */
enum reg_item_state { REG_ITEM_DONE, REG_ITEM_NEED, REG_ITEM_TAKEN, REG_ITEM_GRANTED };
struct reg_item {
    enum reg_item_state state;
    uint32_t slot;
    uint32_t writer;
    uint64_t hash;
    uint64_t offset_bytes;
    uint64_t charged;  /* set of contributions, once TAKEN */
    uint64_t bundle;   /* that the value gets */
    uint32_t preempts; /* claim of another writer that has to stand back, REG_NONE: none */
    bool hard_pin;
};
struct reg_want_group {
    sl_err code; /* SL_OK: parts may be granted; else every part's answer */
    uint64_t busy_ns;
    uint32_t slot;  /* pending group, REG_NONE: to be made */
    bool made;      /* by this request */
    uint64_t bytes; /* of its parts, when it is to be held */
};
struct reg_scratch {
    struct reg_item *items;
    struct reg_want_group *groups;
    struct sl_item_grant *grants;
    uint32_t *seen; /* hash set over the items of a request */
};

struct reg_metrics {
    sl_metric huge_pages, used_bytes, usable_bytes, object_count, block_count, disk_object_count,
        disk_ready, reserve_count, busy_count, parked_count;
    sl_metric ahead_count, ahead_bytes, commit_count, stale_count, abort_count, expired_count,
        evicted_count, evicted_bytes, dropped_count;
    sl_metric quarantined_bytes, claim_count, retired_count, write_behind_pending_count,
        written_count, written_bytes;
    sl_metric write_failed_count, rewritten_count, kept_count, promoted_count, promoted_bytes,
        promote_failed_count, corrupt_count, ghost_count;
    sl_metric prefetched_count, prefetched_bytes, prefetch_used_count, prefetch_refused_count;
    sl_metric fence_count, killed_count, peer_count, died_count, engine_count, forget_pending_count;
    sl_metric forget_skipped_count, refused_count, index_bytes, segment_count;
    sl_metric held_count, held_bytes, hold_lapsed_count, pool_count, pool_bytes;
    sl_metric hard_pinned_count, soft_pinned_count, leased_count, evict_skipped_count,
        remove_leased_count;
    sl_metric contribution_count, contributed_bytes, contributed_used_bytes, replaced_count,
        preempted_count, evict_attempt_count, evict_success_count;
};

struct reg_settings {
    uint64_t memory, memory_chunk, disk, disk_segment, disk_prefetch, index_memory, index_keys,
        reservation_ttl_ns, fence_timeout_ns, io_grace_ns, lease_ttl_ns, soft_pin_max_ns;
    uint64_t heartbeat_ns, quarantine_bytes_max, message_bytes_max, grants_ahead_bytes_max,
        held_bytes_max;
    uint64_t evict_watermark_ppm, evict_ratio_ppm, put_preempt_ns;
    uint32_t holds_max, reservations_max, grants_ahead_max, clients_max, engines_max, pools_max,
        evict_batch, ranks, populate_threads, queue_messages;
};

struct reg_populate_work { /* lent to the helper threads */
    struct sl_arena *arena;
    _Atomic bool stop;
    _Atomic uint64_t target_bytes; /* enough is there */
};
struct reg_populate {
    struct reg_populate_work work;
    uint32_t core_count;
    bool eager;   /* nothing is served before all of it is there */
    bool running; /* helper threads are at it, since: */
    uint64_t began_ns, begun_bytes;
    bool filling; /* the lead is short */
    bool batched; /* with pauses */
    bool quick;   /* when it was measured last */
    bool failed;
    bool hurried; /* the loop took some for a request, and may take more */
    uint64_t there_bytes;
    uint64_t batch_bytes;
    uint64_t pause_ns; /* nothing before that is needed before then */
    uint64_t again_ns; /* what the system lacks is not asked for before then */
};

/* One a process, in the order of its topics: padding costs nothing. */
/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding) */
struct registrar {
    struct sl_env *env;
    struct reg_settings set;
    int lock_fd; /* + 1; 0: none */
    struct sl_arena *arena;
    struct sl_alloc *alloc;
    struct sl_index *index;
    struct sl_calls *calls;
    struct sl_codec *codec; /* of stored engine frames */
    struct reg_metrics metric;

    struct reg_populate populate;
    bool huge_pages; /* the arena gets them */

    struct reg_peer *peers;
    uint64_t *peer_hash;
    uint32_t peer_count;
    uint32_t
        peer_high; /* no slot from here on is used: what looks at all of them looks no further */

    struct reg_claim *claims;
    uint32_t claim_count, claim_high, claim_free;
    uint32_t *key_heads, *generation_heads;
    uint32_t heads_mask;
    struct reg_group *groups;
    uint32_t group_count, group_high;
    uint32_t *group_free;
    uint32_t group_free_count;
    struct reg_timers timers; /* ids: claims, then reservations_max + groups */
    uint64_t quarantined_bytes;
    bool fences_due;
    uint64_t ahead_bytes, ahead_count; /* of all peers, while they may still be used */
    uint64_t
        spared_generation; /* room ahead of use is made: nothing from here on goes; 0: all may */
    bool ahead_unsettled;  /* some were taken back while they were pinned, or just now */

    uint64_t *recent; /* generations committed lately */

    struct reg_retired *retired;
    uint64_t retired_count, retired_capacity;
    uint64_t retired_scan_ns;
    uint64_t *victim_table; /* scratch of the scan: generations */
    bool *victim_pinned;
    uint64_t victim_capacity, victim_slots; /* there, used by the last scan */

    struct reg_units hot, cold;
    struct reg_units pinned, soft, leased; /* in memory, and passed by: leases.c */
    struct reg_dues dues;
    struct reg_bundles bundles;
    uint64_t object_count, block_count;
    struct reg_transients transients;
    struct reg_holds holds;

    struct reg_tier tier;
    struct reg_queue queue;
    uint64_t next_order;
    struct reg_write *writes;
    uint32_t write_count;
    sl_ref write_group; /* block of the last value that was sent to a disk, 0: none */
    uint32_t write_disk;
    struct reg_flush *flushes;
    uint32_t flush_count;
    struct sl_item_spill *spills; /* scratch of one DISK_WRITE */

    struct reg_fetch *fetches;
    uint32_t fetch_free, fetch_high, fetch_count, ahead_fetches;
    uint32_t *fetch_heads;
    struct reg_waiter *waiters;
    uint32_t waiter_free, waiter_high, ahead_waiters;
    struct reg_read *reads;
    uint32_t read_count;
    struct reg_promote *promotes;
    uint32_t promote_count, prefetch_count; /* all, of these ahead of use */
    uint64_t prefetched_unread_bytes;
    uint64_t promote_serial;
    bool fetch_blocked;        /* no space for the next one until some is freed */
    uint64_t fetch_blocked_ns; /* since when no fetch got an extent, 0: the last one did */
    struct sl_item_fill *fills;

    struct reg_forget **forget_heads;     /* by place */
    struct reg_forget **forget_key_heads; /* by key */
    uint32_t forget_count;
    struct reg_remove removes[REG_REMOVES_MAX];
    uint64_t next_remove;
    uint32_t remove_count;

    struct reg_parked *parked_first, *parked_last;
    uint32_t parked_count;
    uint64_t parked_bytes;
    bool space_freed; /* since the parked were last tried */
    struct reg_contributions contributions;
    bool lowering; /* evicting down to below the watermark */
    uint64_t lower_again_ns;
    struct reg_scratch scratch;

    struct reg_engine *engines;
    uint32_t engine_count;
    struct reg_pool *pools;
    struct reg_pool_waiter *pool_waiters;
    struct reg_pool_given_back pools_given_back[REG_POOLS_GIVEN_BACK]; /* a ring */
    uint32_t pools_given_back_next;
    uint32_t pool_high, pool_waiter_count; /* no row from here on is used; that wait */
    bool pools_due;                        /* something of them is left to the next tick */
    struct reg_ghosts ghosts;
    uint64_t *codes; /* scratch of replies: SL_BATCH_MAX */
    bool draining;
    bool finished;
    uint64_t drain_until_ns;
    char health_reason[SL_METRICS_REASON_BYTES];
};

/* cookies of calls */
enum reg_call_kind {
    REG_CALL_FENCE = 1,
    REG_CALL_WRITE,
    REG_CALL_READ,
    REG_CALL_FORGET,
    REG_CALL_DISK_FENCE,
    REG_CALL_MEMBERS,
    REG_CALL_POOL
};
static inline uint64_t reg_cookie(enum reg_call_kind kind, uint32_t index)
{
    return ((uint64_t)kind << 32) | index;
}

uint64_t reg_hash(const void *key, uint64_t length);
static inline bool reg_proc_none(struct sl_proc_id proc)
{
    return proc.pid == 0;
}

/* ---- lock.c ---- */
/* Takes RUNTIME_DIR/registrar.lock, waiting 2 s at most. Errors: SL_ERR_BUSY, SL_ERR_OS. */
sl_err reg_lock_take(const char *runtime_dir, int *fd, struct sl_error *why);

/* ---- registrar.c ---- */
/* A reply that carries one code for each item asked. */
void reg_reply_codes(struct registrar *self, const struct sl_return *to, uint64_t *codes,
                     uint64_t count);
void reg_log(struct registrar *self, enum sl_log_level level, uint64_t trace_id, const char *format,
             ...) SL_PRINTF(4, 5);

/* ---- populate.c ---- */
#define REG_JOB_POPULATE 1u
void reg_populate_init(struct registrar *self);
void reg_populate_stop(struct registrar *self);
/* Has helper threads populate what is needed next, if it is time. */
void reg_populate_run(struct registrar *self);
void reg_populate_ended(struct registrar *self, sl_err code);
void reg_populate_asked(struct registrar *self); /* more is wanted: a failure is forgotten */
void reg_populate_tick(struct registrar *self);
uint64_t reg_populate_next(const struct registrar *self);
/* Memory that is not there yet is on its way. */
bool reg_populate_pending(const struct registrar *self);
/* Takes some now, want_bytes at most, for a request that lacks it; false: none came. */
bool reg_populate_hurry(struct registrar *self, uint64_t want_bytes);
/* Whether there is enough for first puts, or no more is to come. */
bool reg_populate_first(const struct registrar *self);
/* Whether the system gave less than was asked for; says how much. */
bool reg_populate_lacks(const struct registrar *self, char *reason, size_t reason_bytes);
void reg_space_grow(struct registrar *self); /* the allocator learns of the populated prefix */

/* ---- peers.c ---- */
sl_err reg_peers_init(struct registrar *self, struct sl_error *why);
void reg_peers_fini(struct registrar *self);
uint32_t reg_peer_find(const struct registrar *self, const char *name,
                       uint64_t length); /* REG_NONE */
uint32_t reg_peer_by_proc(const struct registrar *self, struct sl_proc_id proc);
/* Whether the process is here under some name other than that of slot `except` (REG_NONE: under
 * any).
 */
bool reg_peer_present(const struct registrar *self, struct sl_proc_id proc, uint32_t except);
/* Whether it can still touch memory: its process is alive. */
bool reg_peer_alive(const struct registrar *self, uint32_t peer);
void reg_peer_hello(struct registrar *self, const struct sl_msg *msg);
/* The process is gone: pins, claims, engines and waiting requests with it. */
void reg_process_died(struct registrar *self, struct sl_proc_id proc);
/* Errors: those of the system while the pins of a living process are opened. */
sl_err reg_peer_restore(struct registrar *self, sl_ref blob, const void *bytes,
                        uint32_t length_bytes, struct sl_error *why);
void reg_peers_check(struct registrar *self);     /* after a restart: who died meanwhile */
uint32_t reg_peers_drain(struct registrar *self); /* access rings -> LRU */
bool reg_watch(struct registrar *self, struct sl_proc_id proc);

/* ---- claims.c ---- */
sl_err reg_claims_init(struct registrar *self, struct sl_error *why);
void reg_claims_fini(struct registrar *self);
uint32_t reg_claim_add(struct registrar *self, const struct reg_claim *claim); /* REG_NONE: full */
void reg_claim_remove(struct registrar *self, uint32_t slot);                  /* the slot alone */
uint32_t reg_claim_by_key(const struct registrar *self, uint64_t hash, const char *key,
                          uint64_t length);
uint32_t reg_claim_by_generation(const struct registrar *self, uint64_t generation);
void reg_claim_unkey(struct registrar *self, uint32_t slot);
void reg_list_add(struct registrar *self, enum reg_list list, uint32_t *head, uint32_t slot);
void reg_list_remove(struct registrar *self, enum reg_list list, uint32_t *head, uint32_t slot);
uint32_t reg_group_add(struct registrar *self, const struct reg_group *group,
                       uint64_t deadline_ns);                 /* REG_NONE: full */
void reg_group_remove(struct registrar *self, uint32_t slot); /* the slot alone */
uint32_t reg_group_slot(struct registrar *self,
                        sl_ref ref); /* pending group of a GROUP record, or REG_NONE */
static inline uint32_t reg_group_timer(const struct registrar *self, uint32_t slot)
{
    return self->set.reservations_max + slot;
}
void reg_recent_add(struct registrar *self, uint64_t generation);
bool reg_recent_has(const struct registrar *self, uint64_t generation);

/* ---- reserve.c ---- */
void reg_reserve(struct registrar *self, const struct sl_msg *msg);
enum reg_outcome { REG_RESERVE_ANSWER, REG_RESERVE_PARK };
/* One pass; *need_bytes is what it needs of memory. ANSWER: the scratch has the grants. */
enum reg_outcome reg_request_run(struct registrar *self, const struct reg_request *req,
                                 bool may_allocate, uint64_t *need_bytes);
void reg_request_answer(struct registrar *self, const struct reg_request *req,
                        const struct sl_return *back);

/* ---- parked.c ---- */
/* Keeps a copy of the request until there is space, or its deadline. Errors: SL_ERR_LIMIT,
 * SL_ERR_NO_MEMORY. */
sl_err reg_request_park(struct registrar *self, const struct reg_request *req,
                        const struct sl_return *back, uint64_t need_bytes);
bool reg_parked_already(const struct registrar *self, const struct sl_return *back);
void reg_parked_retry(struct registrar *self);
void reg_parked_expire(struct registrar *self, uint64_t now_ns);
void reg_parked_forget(struct registrar *self, struct sl_proc_id owner);
void reg_parked_fini(struct registrar *self);
void reg_parked_refuse(struct registrar *self, sl_err code);
uint64_t reg_parked_next(const struct registrar *self);

/* ---- ahead.c ---- */
void reg_publish(struct registrar *self, const struct sl_msg *msg);
bool reg_ahead_is(const struct sl_entry *entry); /* a record of a grant ahead of use */
uint64_t reg_ahead_bytes_standard(uint64_t memory_bytes);
void reg_ahead_came(struct registrar *self, uint32_t slot); /* counts it */
void reg_ahead_left(struct registrar *self, uint32_t slot);
/* Ends a grant; its extent is free with the next settle that finds it unpinned. */
void reg_ahead_revoke(struct registrar *self, uint32_t slot);
void reg_ahead_settle(struct registrar *self);
bool reg_ahead_revoke_all(struct registrar *self); /* true: space was freed */

/* ---- reservations.c ---- */
void reg_commit(struct registrar *self, const struct sl_msg *msg);
void reg_abort(struct registrar *self, const struct sl_msg *msg);
void reg_timers_expire(struct registrar *self, uint64_t now_ns);
void reg_transients_expire(struct registrar *self, uint64_t now_ns);
uint64_t reg_transients_next(const struct registrar *self);
void reg_transient_add(struct registrar *self, sl_ref group, uint64_t at_ns);

/* ---- holds.c ---- */
sl_err reg_holds_init(struct registrar *self, struct sl_error *why);
void reg_holds_fini(struct registrar *self);
/* Holds all blocks of the request that are granted or exist, or none. Once more changes nothing but
 * the time. Errors: SL_ERR_LIMIT, SL_ERR_NO_MEMORY. */
sl_err reg_hold_take(struct registrar *self, const struct reg_request *req);
/* One that a registrar before us gave. */
void reg_hold_recovered(struct registrar *self, sl_ref group, uint64_t until_ns);
/* A disk can be read: what is held and on it alone is brought into memory. */
void reg_holds_bring(struct registrar *self);
/* Until when the block is held; 0: it is not. */
uint64_t reg_held_until(const struct registrar *self, sl_ref group);
void reg_hold_end(struct registrar *self, const struct sl_msg *msg);
void reg_holds_expire(struct registrar *self, uint64_t now_ns);
uint64_t reg_holds_next(const struct registrar *self);
/* Ends a block that is being written: parts vanish, claims end as a reservation does. */
void reg_group_abandon(struct registrar *self, uint32_t slot, enum reg_ghost_reason reason);
/* A block became visible. */
void reg_group_done(struct registrar *self, uint32_t slot);
/* The extent is nobody's any more. */
void reg_claim_release(struct registrar *self, uint32_t slot);

/* ---- fences.c ---- */
/* The reservation is over, its bytes may still be written: key free, extent quarantined until the
 * writer is known to be out. */
void reg_claim_quarantine(struct registrar *self, uint32_t slot);
void reg_fences_send(struct registrar *self);
void reg_fence_reply(struct registrar *self, uint32_t peer, sl_err code);
void reg_fence_expired(struct registrar *self, uint32_t peer);
void reg_claims_writer_died(struct registrar *self, uint32_t peer);
/* What a restart finds quarantined or promoting. */
void reg_claim_restore_quarantine(struct registrar *self, uint32_t slot, struct sl_proc_id writer,
                                  uint64_t deadline_ns);

/* ---- units.c ---- */
struct reg_parts {
    sl_ref refs[REG_PARTS_MAX];
    uint32_t count;
};
void reg_unit_parts(struct registrar *self, sl_ref unit, struct reg_parts *out);
sl_ref reg_unit_of(const struct sl_entry *record);
void reg_unit_place(struct registrar *self, sl_ref unit); /* newest of the list its parts ask for */
/* The same for one that is in no list: hot when it has something in memory. */
void reg_unit_list(struct registrar *self, sl_ref unit, bool memory);
void reg_unit_unlist(struct registrar *self, sl_ref unit);
/* From its list to the newest end of another: REG_FLAG_HOT or REG_FLAG_KEPT_LISTS. */
void reg_unit_move(struct registrar *self, sl_ref unit, uint16_t list);
uint64_t reg_unit_count(const struct registrar *self);      /* all of them */
sl_ref reg_unit_any(const struct registrar *self);          /* what goes first; 0: there is none */
void reg_unit_touch(struct registrar *self, sl_ref unit);   /* somebody wanted it */
void reg_unit_refresh(struct registrar *self, sl_ref unit); /* the newest of its list */
void reg_unit_sink(struct registrar *self, sl_ref unit);    /* the oldest of its list */
void reg_unit_prefetched(struct registrar *self, sl_ref unit, sl_ref part);
/* How long ago somebody wanted it, in REG_WANTED_TICKS for as much written as the disks hold, up to
 * four times that; UINT32_MAX: not since it was written. */
uint32_t reg_unit_age(const struct registrar *self, sl_ref unit);
void reg_part_join(struct registrar *self, sl_ref group, sl_ref part);
/* sl_index_switch that keeps lists, parts and places right. */
sl_err reg_record_switch(struct registrar *self, sl_ref ref, const struct sl_extent *extent,
                         const struct sl_disk_place *place, sl_ref *fresh);
/* Takes the unit out for good: invisible at once, extents retired, places forgotten on disk when
 * forget. */
struct reg_drop {
    enum reg_ghost_reason reason;
    bool forget;
    uint64_t remove_id; /* who waits for the tombstones, 0: nobody */
    uint32_t remove_index;
};
sl_err reg_unit_drop(struct registrar *self, sl_ref unit, const struct reg_drop *how);
/* The reservation's value takes the place of an object, in one step for readers; what is on disk of
 * that one is forgotten as how says. Errors: SL_ERR_NO_MEMORY (nothing happened). */
sl_err reg_object_replace(struct registrar *self, sl_ref old, sl_ref ref, struct sl_digest digest,
                          const struct reg_drop *how);
sl_err reg_part_drop(struct registrar *self, sl_ref part,
                     const struct reg_drop *how); /* a hidden part */

/* ---- leases.c ---- */
/* Until when somebody leases the unit, a part of it or its bundle; 0: nobody does. */
uint64_t reg_unit_leased(struct registrar *self, sl_ref unit);
/* Nobody leases it (its whole bundle, when it has one) from now on, as the unit is about to go.
 * False: it is leased. unshut: it stays after all; a bundle is opened with
 * sl_index_bundle_lease_unshut in any case. */
bool reg_unit_shut(struct registrar *self, sl_ref unit);
void reg_unit_unshut(struct registrar *self, sl_ref unit);
uint64_t reg_unit_bundle(struct registrar *self, sl_ref unit); /* 0: none */
/* Eviction passes the unit by for so long; of others than hot ones nothing changes. */
void reg_unit_aside(struct registrar *self, sl_ref unit, uint64_t until_ns);
/* When a unit in such a list is looked at again; false: no memory. */
bool reg_due_note(struct registrar *self, sl_ref unit, uint64_t at_ns);
void reg_dues_run(struct registrar *self);
void reg_leases_fini(struct registrar *self);

/* ---- bundles.c ---- */
/* Once more, without writing: the reservation is a value now. bundle 0: nothing happens. */
void reg_bundle_join(struct registrar *self, uint64_t bundle, sl_ref ref, bool writing);
void reg_bundle_leave(struct registrar *self, sl_ref ref);     /* also of what is in none */
void reg_bundle_unreserve(struct registrar *self, sl_ref ref); /* if it is a reservation still */
void reg_bundle_renamed(struct registrar *self, sl_ref old, sl_ref fresh);
/* Its values, borrowed until the next call. False: one is being written, or no memory. */
bool reg_bundle_members(struct registrar *self, uint64_t bundle, const sl_ref **refs,
                        uint32_t *count);
void reg_bundles_fini(struct registrar *self);

/* ---- evict.c ---- */
sl_err reg_retired_reserve(struct registrar *self, uint64_t more); /* room for so many */
void reg_retired_add(struct registrar *self, sl_ref ref, const struct sl_extent *extent, bool lent);
void reg_retired_returned(struct registrar *self, uint64_t generation); /* no longer lent */
void reg_retired_scan(struct registrar *self, uint64_t from);
uint64_t reg_free_bytes(const struct registrar *self);
/* Makes want_bytes free, evicting; false: less is. */
bool reg_make_room(struct registrar *self, uint64_t want_bytes);
/* One extent, evicting when it must. Errors: SL_ERR_NO_SPACE. */
sl_err reg_take(struct registrar *self, uint64_t length_bytes, uint64_t *offset_bytes);
/* The same at nobody's cost: of what is free, else in place of the oldest that are on disk, that
 * nobody pins and that were not prefetched themselves. batch_bytes: so much is about to be taken;
 * where something must leave, it makes room for all of it with one scan of the pins. */
sl_err reg_take_quietly(struct registrar *self, uint64_t length_bytes, uint64_t batch_bytes,
                        uint64_t *offset_bytes);
void reg_give(struct registrar *self, uint64_t offset_bytes, uint64_t length_bytes);
/* One batch of the oldest units that may leave; gives how many went. quietly: as above. */
uint32_t reg_evict(struct registrar *self, uint64_t want_bytes);
uint32_t reg_evict_quietly(struct registrar *self, uint64_t want_bytes);
bool reg_make_index_room(
    struct registrar *self); /* drops units from the index; false: none could go */

/* ---- write_behind.c ---- */
void reg_queue_add(struct registrar *self, sl_ref ref, uint64_t generation);
void reg_unit_queue(struct registrar *self, sl_ref unit);
void reg_writes_pump(struct registrar *self);
void reg_write_reply(struct registrar *self, uint32_t index, const struct sl_msg *msg);
void reg_write_expired(struct registrar *self, uint32_t index);
void reg_writes_requeue(struct registrar *self, uint32_t disk); /* its tierer died */
void reg_write_doom(struct registrar *self, const struct sl_entry *record,
                    const struct reg_drop *how);
/* Whether what became of a write of this key to the disk is still awaited. */
bool reg_write_dooms(const struct registrar *self, const char *key, uint32_t disk);
void reg_flush(struct registrar *self, const struct sl_msg *msg);
void reg_flushes_check(struct registrar *self, uint64_t now_ns);
void reg_flushes_forget(struct registrar *self, const char *name);
uint64_t reg_flushes_next(const struct registrar *self);
uint64_t reg_writes_pending(const struct registrar *self);
void reg_writes_fini(struct registrar *self);

/* ---- fetches.c ---- */
sl_err reg_promotes_init(struct registrar *self, struct sl_error *why);
void reg_promotes_fini(struct registrar *self);
uint32_t reg_fetch_find(const struct registrar *self, const struct sl_entry *source); /* REG_NONE */
/* A new one at the end of its queue. REG_NONE: there are too many. */
uint32_t reg_fetch_make(struct registrar *self, const struct sl_entry *source, bool ahead);
void reg_fetch_prepend(struct registrar *self, uint32_t fetch);
void reg_fetch_unqueue(struct registrar *self, uint32_t fetch);
void reg_fetch_raise(struct registrar *self, uint32_t fetch); /* somebody waits for it now */
/* Tells all who wait, and ends the fetch. It is in no queue. */
void reg_fetch_end(struct registrar *self, uint32_t fetch, sl_err code);
bool reg_fetch_is_awaited(const struct registrar *self, const struct reg_fetch *fetch);
void reg_fetches_end(struct registrar *self, uint32_t disk, bool ahead,
                     sl_err code);              /* those in the queue */
void reg_fetches_purge(struct registrar *self); /* of those ahead of use, what nobody awaits */
bool reg_waiter_add(struct registrar *self, uint32_t fetch, uint32_t op, uint32_t item);
/* A slot for the request; REG_NONE: there is none and it was answered, or it was sent again. */
uint32_t reg_promote_make(struct registrar *self, const struct sl_msg *msg, uint32_t count);
void reg_promote_answer(struct registrar *self, struct reg_promote *promote);
bool reg_promotes_late(struct registrar *self, uint64_t now_ns); /* true: a PREFETCH ended */
void reg_promotes_forget(struct registrar *self, const char *name);
uint64_t reg_promotes_next(const struct registrar *self);

/* ---- promote.c ---- */
void reg_promote(struct registrar *self, const struct sl_msg *msg); /* PROMOTE, PREFETCH */
/* Brings the parts of a held block into memory that are on disk alone, as far as they can be. */
void reg_promote_held(struct registrar *self, sl_ref group);
void reg_promotes_pump(struct registrar *self);
void reg_read_reply(struct registrar *self, uint32_t index, const struct sl_msg *msg);
void reg_read_expired(struct registrar *self, uint32_t index);
void reg_reads_requeue(struct registrar *self, uint32_t disk); /* its tierer died */
void reg_promotes_expire(struct registrar *self, uint64_t now_ns);

/* ---- reclaim.c ---- */
void reg_disk_reclaim(struct registrar *self, const struct sl_msg *msg);
void reg_reclaims_run(struct registrar *self); /* ends those that wait for nothing any more */
void reg_reclaim_forget(struct registrar *self, uint32_t disk); /* its tierer died */
/* A value that the reclaim of this number waited for has come, or will not. held: it has, and is
 * held. */
void reg_reclaim_read(struct registrar *self, uint32_t disk, uint32_t number, bool held);
bool reg_reclaim_waits(const struct registrar *self, uint32_t disk, uint32_t number);
uint64_t reg_reclaims_next(const struct registrar *self);

/* ---- segments.c ---- */
void reg_segment_note(struct registrar *self, sl_ref ref, const struct sl_disk_place *place,
                      bool fresh);
void reg_segment_left(struct registrar *self, const struct sl_disk_place *place);
/* Records that may still have a place in the segment: borrowed until one gets or loses a place. */
const sl_ref *reg_segment_refs(struct registrar *self, uint32_t disk, uint32_t segment,
                               uint32_t *count);
/* Gives *refs (free): the same. */
void reg_segment_take(struct registrar *self, uint32_t disk, uint32_t segment, sl_ref **refs,
                      uint32_t *count);
void reg_segments_come_anew(struct registrar *self, uint32_t disk); /* a scan tells them all */
bool reg_segment_reclaimed(const struct registrar *self, uint32_t disk, uint32_t segment);
void reg_segment_gone(struct registrar *self, uint32_t disk,
                      uint32_t segment); /* it was reclaimed */
void reg_segments_fini(struct registrar *self);

/* ---- disks.c ---- */
#define REG_DISK_BIT(disk) ((uint16_t)(1u << (disk)))
void reg_disks_init(struct registrar *self); /* settings are there */
void reg_disk_arrived(struct registrar *self, uint32_t peer);
void reg_disk_left(struct registrar *self, uint32_t peer);
void reg_disk_fenced(struct registrar *self, uint32_t path, sl_err code);
/* A note of the index: which disk has which slot. */
void reg_disk_restore(struct registrar *self, sl_ref note, const void *bytes,
                      uint32_t length_bytes);
/* A record of the index names this slot: it is one, whether a note says so or not. */
void reg_disk_named_by_place(struct registrar *self, uint32_t disk);
/* Disks (a bit each) that may hold something under the record's key that its place does not name:
 * what was sent there without an answer, what no scan told yet, or an earlier value whose tombstone
 * is not durable. */
uint16_t reg_disk_doubt(const struct registrar *self, sl_ref ref, const struct sl_entry *record);
uint16_t reg_disks_used(const struct registrar *self);               /* a bit each */
bool reg_disk_usable(const struct registrar *self, uint32_t disk);   /* for reads and writes now */
bool reg_disk_readable(const struct registrar *self, uint32_t disk); /* also while it is scanned */
bool reg_disk_away(const struct registrar *self, uint32_t disk);     /* nobody waits for it */
/* It is away, and no tierer is there that may yet tell that it is this one. */
bool reg_disk_lost(const struct registrar *self, uint32_t disk);
bool reg_tier_lost(const struct registrar *self);      /* no tierer is there, nor was one lately */
bool reg_disks_writable(const struct registrar *self); /* some disk takes writes now */
bool reg_disks_ready(const struct registrar *self);    /* each of them is usable */
bool reg_disks_scanned(const struct registrar *self);  /* all that is on any of them is known */
bool reg_disk_required(const struct registrar *self);  /* eviction must have a copy on disk */
/* What is wrong with the disks, for people; empty: nothing. */
void reg_disks_health(struct registrar *self, char *out, size_t room);
uint64_t reg_disks_next(const struct registrar *self); /* when one of them is looked at again */
/* Number of the path whose tierer sent it; REG_NONE: no tierer that said HELLO. */
uint32_t reg_path_of(const struct registrar *self, const struct sl_msg *msg);
void reg_path_fence(struct registrar *self, uint32_t path);
/* A scan of the path begins: which disk it leads to, and what that tells of others. Errors:
 * SL_ERR_CONFIG (another path has it too), SL_ERR_BUSY (other disks have not told yet, or it is
 * being emptied), SL_ERR_LIMIT (no slot), SL_ERR_NO_SPACE (no room for its note). */
sl_err reg_disk_told(struct registrar *self, uint32_t path, const struct sl_body_disk_found *found,
                     struct sl_error *why);
void reg_disk_swept(struct registrar *self, uint32_t disk);

/* ---- members.c ---- */
/* A note of the index. */
void reg_members_restore(struct registrar *self, sl_ref note, const void *bytes,
                         uint32_t length_bytes);
/* Whether the path's disk may be served. Errors: SL_ERR_BUSY (not known yet, or not before it is
 * empty), SL_ERR_INVALID, SL_ERR_NO_SPACE. */
sl_err reg_members_judge(struct registrar *self, uint32_t path,
                         const struct sl_body_disk_found *found, struct sl_error *why);
void reg_members_settled(struct registrar *self); /* which disks have left is known anew */
void reg_members_left(struct registrar *self, uint32_t path); /* its tierer */
/* Something is about to change that disks keep; removed_or_new: a disk that has left would not
 * know. */
void reg_members_change(struct registrar *self, bool removed_or_new);
/* Whether all disks that can be written to know of the last change. */
bool reg_members_agreed(const struct registrar *self);
/* Whether the path's disk knows of it: else its values would not count after a restart. */
bool reg_members_knows(const struct registrar *self, uint32_t path);
void reg_members_pump(struct registrar *self);
void reg_members_reply(struct registrar *self, uint32_t path, sl_err code);
uint64_t reg_members_next(const struct registrar *self);

/* ---- disk.c ---- */
void reg_disk_found(struct registrar *self, const struct sl_msg *msg);
void reg_disk_sweep(struct registrar *self);
/* The record loses its place; what has no other copy is dropped as a whole block. spent: it had its
 * time on disk, else it is written anew. Gives the record that stays; 0: none. */
sl_ref reg_place_clear(struct registrar *self, const struct sl_entry *entry,
                       const struct reg_drop *how, bool spent);
/* A place cannot be trusted: forgets it; what has no other copy is dropped as a whole block. */
void reg_place_lost(struct registrar *self, sl_ref ref, sl_err code);
void reg_forget_add(struct registrar *self, const struct sl_entry *record,
                    const struct reg_drop *how);
/* Borrowed until the next call; NULL: no disk, or no room (who waits for its tombstone was told).
 */
struct reg_forget *reg_forget_key(struct registrar *self, const char *key, uint32_t key_length,
                                  uint64_t length_bytes, const struct sl_disk_place *place,
                                  const struct reg_drop *how);
/* What was removed while something of it may be on disk stands in a note of the index until its
 * tombstone is durable: the next scan, which a new registrar asks for, must not bring it back.
 * Written before the record goes; a REMOVE makes sure of the room first, and is refused without.
 * Gives the note; 0: the index is full. */
struct reg_forget_note { /* a BLOB, followed by the key */
    struct sl_disk_place place;
    uint64_t length_bytes; /* of the value */
    uint64_t generation;   /* of the record, when the place is not known yet */
};
sl_ref reg_forget_note(struct registrar *self, const char *key, uint32_t key_length,
                       const struct reg_forget_note *note);
void reg_forget_restore(struct registrar *self, sl_ref note, const void *bytes,
                        uint32_t length_bytes);
/* A removal of this key from the disk that the registrar before had begun: true, and remove waits
 * for it. */
bool reg_forget_join(struct registrar *self, const char *key, uint32_t disk, uint64_t remove_id,
                     uint32_t remove_index);
/* Whether a tombstone of this key is still on its way to the disk. */
bool reg_forget_pending(const struct registrar *self, const char *key, uint32_t key_length,
                        uint32_t disk);
struct reg_forgotten { /* a value under whose key a tombstone is on its way to some disk */
    struct sl_digest digest;
    const char *key; /* borrowed until a tombstone ends */
};
/* Gives all of them, for reg_forgotten_find. False: no memory. */
bool reg_forgotten_list(const struct registrar *self, struct reg_forgotten **out, uint32_t *count);
/* The key of the one with this digest; NULL: none has it. */
const char *reg_forgotten_find(const struct reg_forgotten *all, uint32_t count,
                               struct sl_digest digest);
void reg_forgets_pump(struct registrar *self);
void reg_forgets_copy(struct registrar *self, uint32_t from, uint32_t disk);
void reg_forgets_end(struct registrar *self, uint32_t disk); /* as if they were durable */
void reg_forgets_unsend(struct registrar *self, uint32_t disk);
void reg_forget_reply(struct registrar *self, uint32_t disk, const struct sl_msg *msg);
void reg_forget_expired(struct registrar *self, uint32_t disk);
void reg_forgets_fini(struct registrar *self);

/* ---- remove.c ---- */
void reg_remove(struct registrar *self, const struct sl_msg *msg);
void reg_removes_run(struct registrar *self, uint64_t now_ns);
/* One more to wait for: a tombstone of this disk, or with REG_NONE a write under way. */
void reg_remove_wait(struct registrar *self, uint64_t id, uint32_t index, uint32_t disk);
void reg_remove_done(struct registrar *self, uint64_t id, uint32_t index, uint32_t disk);
/* No tombstone could be asked for: the answer says so. */
void reg_remove_failed(struct registrar *self, uint64_t id, uint32_t index, sl_err code);
/* An answer of count codes to the request, which waits for tombstones as a REMOVE does; 0: too many
 * wait. Its number and an index is what reg_drop names. */
uint64_t reg_answer_begin(struct registrar *self, const struct sl_msg *msg, uint32_t count);
/* All that was asked is done: what waits for no tombstone has these codes. Answers when nothing
 * waits. */
void reg_answer_end(struct registrar *self, uint64_t id, const uint64_t *codes);
bool reg_answer_waits(const struct registrar *self, const struct sl_msg *msg); /* sent again */
/* Tombstones that a registrar before us began for this key: the answer waits for them. False: there
 * are none. */
bool reg_answer_join(struct registrar *self, uint64_t id, uint32_t index, const char *key);
/* Whether something may be on a disk under a key (with a NUL behind it) that is not in the index: a
 * disk that has not said what it holds, or a tombstone that is under way; and tombstones for that.
 */
bool reg_key_in_doubt(struct registrar *self, const char *key);
void reg_key_forget(struct registrar *self, const char *key, const struct reg_drop *how);
/* Whether the index has room for the notes of the unit's removal. */
bool reg_notes_fit(struct registrar *self, sl_ref unit);
void reg_removes_scanned(struct registrar *self); /* all that is on disk is known now */
void reg_removes_forget(struct registrar *self, const char *name);
uint64_t reg_removes_next(const struct registrar *self);
void reg_removes_fini(struct registrar *self);
void reg_lookup(struct registrar *self, const struct sl_msg *msg);

/* ---- engines.c ---- */
sl_err reg_engines_init(struct registrar *self, struct sl_error *why);
void reg_engines_fini(struct registrar *self);
void reg_engine_register(struct registrar *self, const struct sl_msg *msg);
void reg_engine_get(struct registrar *self, const struct sl_msg *msg);
void reg_engine_end(struct registrar *self, const struct sl_msg *msg);
void reg_engines_died(struct registrar *self, struct sl_proc_id proc);
bool reg_engines_of(const struct registrar *self, struct sl_proc_id proc);
void reg_engine_restore(struct registrar *self, sl_ref blob, const void *bytes,
                        uint32_t length_bytes);
void reg_engines_check(struct registrar *self);
/* Errors: SL_ERR_INVALID (names what is wrong). */
sl_err reg_engine_check(const struct sl_body_engine_register *engine, struct sl_error *why);

/* An engine registered with memory that is being revoked is over. */
void reg_engines_pool_over(struct registrar *self, uint64_t epoch);

/* ---- pools.c ---- */
sl_err reg_pools_init(struct registrar *self, struct sl_error *why);
void reg_pools_fini(struct registrar *self);
/* The deployment in printable ASCII, the pool of [a-z0-9_-]; neither empty. */
bool reg_pool_names_fit(const char *name, const char *pool);
/* Rows by key and by epoch; REG_NONE: none. row_make gives a row that is absent when there is none
 * yet; REG_NONE: the table is full. */
uint32_t reg_pool_find(const struct registrar *self, const char *name, uint64_t rank,
                       const char *pool);
uint32_t reg_pool_by_epoch(const struct registrar *self, uint64_t epoch);
uint32_t reg_pool_row_make(struct registrar *self, const char *name, uint64_t rank,
                           const char *pool);
void reg_pool_row_tidy(struct registrar *self, uint32_t row); /* absent and not waited for: free */
struct reg_pool_taker { /* who wants to make a pool, or have it made */
    struct sl_proc_id proc;
    const char *name;
    uint64_t seq;
    uint64_t length_bytes;
    bool sluice;
};
/* absent -> allocating. Errors: SL_ERR_INVALID (rank), SL_ERR_LIMIT, SL_ERR_NO_SPACE. */
sl_err reg_pool_begin(struct registrar *self, uint32_t row, const struct reg_pool_taker *taker,
                      struct sl_error *why);
/* allocating -> ready. Errors: SL_ERR_NO_SPACE (it stays allocating). */
sl_err reg_pool_publish(struct registrar *self, uint32_t row, const struct reg_pool_handle *handle,
                        struct sl_error *why);
/* ready, allocating -> revoking -> absent as soon as nobody maps it. */
void reg_pool_revoke(struct registrar *self, uint32_t row, const char *reason);
/* allocating -> absent: who waits for it hears the code. */
void reg_pool_fail(struct registrar *self, uint32_t row, sl_err code, const char *text);
uint32_t reg_pool_mapper(const struct reg_pool *pool, const char *name); /* REG_NONE */
/* Errors: SL_ERR_LIMIT, SL_ERR_NO_SPACE. */
sl_err reg_pool_mapper_add(struct registrar *self, uint32_t row,
                           const struct reg_pool_taker *mapper, struct sl_error *why);
/* By the request seq of its own; one that asked later stays. */
void reg_pool_mapper_remove(struct registrar *self, uint32_t row, const char *name, uint64_t seq);
/* It stands in the index again; false: not yet, and it is tried again. */
bool reg_pool_note(struct registrar *self, uint32_t row);
void reg_pools_tick(struct registrar *self);
void reg_pools_died(struct registrar *self, struct sl_proc_id proc);
void reg_pool_reply(struct registrar *self, uint32_t row, const struct sl_msg *msg);
void reg_pool_call_expired(struct registrar *self, uint32_t row);
/* Whether an engine of this process may be registered with these regions; what it uses is lent
 * from then on. Errors: SL_ERR_STALE, SL_ERR_INVALID (beyond the memory, another rank),
 * SL_ERR_PERMISSION, SL_ERR_NO_SPACE. */
sl_err reg_pools_lend(struct registrar *self, const struct sl_body_engine_register *engine,
                      struct sl_proc_id proc, struct sl_error *why);
void reg_pool_restore(struct registrar *self, sl_ref blob, const void *bytes,
                      uint32_t length_bytes);
void reg_pools_check(struct registrar *self);
void reg_pools_gauges(struct registrar *self);

/* ---- pool_requests.c ---- */
void reg_pool_take(struct registrar *self, const struct sl_msg *msg);
void reg_pool_await(struct registrar *self, const struct sl_msg *msg);
void reg_pool_ready(struct registrar *self, const struct sl_msg *msg);
void reg_pool_mapped(struct registrar *self, const struct sl_msg *msg);
void reg_pool_release(struct registrar *self, const struct sl_msg *msg);
void reg_pool_revoke_asked(struct registrar *self, const struct sl_msg *msg);
void reg_pools_list(struct registrar *self, const struct sl_msg *msg);
/* The pool's state changed: who waits for that is answered. */
void reg_pool_wake(struct registrar *self, uint32_t row);
/* Those that wait for it to be ready hear the code. */
void reg_pool_tell(struct registrar *self, uint32_t row, sl_err code, const char *text);
uint32_t reg_pool_waiters(const struct registrar *self, uint32_t row);
bool reg_pool_is_awaited(const struct registrar *self, uint32_t row); /* to be ready */
void reg_pool_waiters_expire(struct registrar *self, uint64_t now_ns);
void reg_pool_waiters_forget(struct registrar *self, struct sl_proc_id proc);
uint64_t reg_pool_waiters_next(const struct registrar *self);

/* ---- ghosts.c ---- */
sl_err reg_ghosts_init(struct reg_ghosts *ghosts, uint64_t capacity, struct sl_error *why);
void reg_ghosts_fini(struct reg_ghosts *ghosts);
void reg_ghost_add(struct registrar *self, const char *key, uint64_t length,
                   enum reg_ghost_reason reason);
/* The newest reason why the key is not there; false: not remembered. */
bool reg_ghost_find(const struct reg_ghosts *ghosts, const char *key, uint64_t length,
                    struct reg_ghost *out);
const char *reg_ghost_text(enum reg_ghost_reason reason);

/* ---- explain.c ---- */
void reg_explain(struct registrar *self, const struct sl_msg *msg);

/* ---- recover.c ---- */
sl_err reg_recover(struct registrar *self, struct sl_error *why);

/* tags of BLOB records */
enum {
    REG_BLOB_PEER = 1,
    REG_BLOB_ENGINE = 2,
    REG_BLOB_FORGET = 3,
    REG_BLOB_DISK = 4,
    REG_BLOB_MEMBERS = 5,
    REG_BLOB_POOL = 6,
    REG_BLOB_CONTRIBUTION = 7
};

#endif
