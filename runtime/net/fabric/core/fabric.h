/* runtime/net/fabric/core/fabric.h - one-sided reads between nodes: the interface for all
 * transports.
 *
 * A fabric registers memory, connects to peers by addresses that the control plane exchanges, gives
 * grants (the right of a peer to read a range of our memory), and reads memory that a peer has
 * granted. The peer's actor takes no part in a transfer: its NIC (verbs) or its fabric (tcp) serves
 * it. No node writes to another node's memory.
 *
 * Every back end promises:
 * - A transfer ends by exactly one done(), by its deadline or as soon after it as its memory is
 * free: after done() the local memory of the transfer is not accessed any more.
 * - If a peer dies, all its transfers fail in about stall_ns; the link is then rebuilt with a
 * growing, jittered back-off.
 * - After grant_ended() of a ticket, the peer does not read any byte of its range.
 *
 * One thread. Nothing blocks. Only sl_fabric_step calls back; callbacks may call everything but
 * sl_fabric_step and sl_fabric_close. */
#ifndef SL_FABRIC_CORE_FABRIC_H
#define SL_FABRIC_CORE_FABRIC_H

#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_digest.h"
#include "runtime/base/sl_error.h"

#define SL_FABRIC_LANES_MAX   16u /* connections or queue pairs of a peer */
#define SL_FABRIC_MOVERS_MAX  16u
#define SL_FABRIC_DEPTH_MAX   64u    /* units in flight on a lane */
#define SL_FABRIC_SLOTS_MAX   65535u /* limit of every table */
#define SL_FABRIC_BLOB_MAX    65536u /* bytes of an address or a key */
#define SL_FABRIC_UNIT_MAX    (4 * SL_MIB)
#define SL_FABRIC_PIECES_MAX  1024u /* of one transfer */
#define SL_FABRIC_REGIONS_MAX 65536u
#define SL_FABRIC_PLACES_MAX  1024u /* of one piece or grant */

struct sl_fabric;      /* opaque */
struct fabric_backend; /* internal.h */

enum sl_fabric_link { SL_FABRIC_CONNECTING, SL_FABRIC_UP, SL_FABRIC_DOWN };

/* The pieces are in the order of the transfer; borrowed. */
struct sl_fabric_done {
    uint64_t cookie;
    sl_err code;           /* SL_OK: all pieces were read; else the first error */
    const uint8_t *pieces; /* sl_err of each */
    uint32_t piece_count;
    uint64_t moved_bytes; /* of the pieces that were read */
};

struct sl_fabric_events {
    void *context;
    void (*done)(void *context, const struct sl_fabric_done *done);
    /* All regions of a memory were registered; on failure none, region_index is the failed one. */
    void (*registered)(void *context, uint32_t memory, uint32_t region_index,
                       const struct sl_error *why);
    /* The blob is for the peer's sl_fabric_peer_address. It replaces earlier ones, and may be
     * reported again. */
    void (*address)(void *context, uint32_t peer, const void *blob, uint32_t length_bytes);
    /* A link that was UP is reported as DOWN before any other state. */
    void (*link)(void *context, uint32_t peer, enum sl_fabric_link link,
                 const struct sl_error *why);
    /* The peer may use this key from now on, at most SL_FABRIC_BLOB_MAX bytes (verbs binds windows
     * first). No bytes: the grant failed, and must be ended; why contains the reason, or SL_OK if
     * links were lost. */
    void (*granted)(void *context, uint32_t grant, const void *key, uint32_t key_bytes,
                    const struct sl_error *why);
    void (*grant_ended)(void *context, uint32_t grant);
    /* Asked before bytes of a grant with a cookie are read for its peer (tcp): whether the peer may
     * have them now. Must have no side effects. NULL: the whole range may be read. */
    bool (*may_read)(void *context, uint64_t cookie, uint64_t offset_bytes, uint64_t length_bytes);
};

/* SOUND: not on Soft-RoCE, which does not restrict a reader to the range of a window. */
enum sl_fabric_windows { SL_FABRIC_WINDOWS_SOUND, SL_FABRIC_WINDOWS_NEVER, SL_FABRIC_WINDOWS_ANY };

struct sl_fabric_options {
    const char *kind;    /* name of a back end (open.c): "tcp", "verbs"; borrowed */
    const char *address; /* tcp: IP[:PORT] to listen at, up to 16 with commas; "": do not */
    const char *nic;     /* verbs: DEVICE[:PORT], up to 16 with commas; "": the first usable */
    int32_t gid_index;   /* verbs; -1: chosen automatically */
    uint32_t lanes;      /* 1..SL_FABRIC_LANES_MAX */
    uint32_t depth;      /* 1..SL_FABRIC_DEPTH_MAX */
    uint32_t peers_max, memories_max, grants_max, keys_max, transfers_max, pieces_max;
    uint32_t places_max;          /* of all open pieces and grants; 0: none */
    uint32_t connections_max;     /* tcp: incoming */
    uint32_t unauthenticated_max; /* tcp: unauthenticated connections of one address */
    uint64_t handshake_ns;        /* tcp: time for the handshake of a connection */
    uint32_t movers;              /* tcp: threads that move values; 0: none */
    uint64_t unit_bytes;          /* largest request: a multiple of 16 KiB, to SL_FABRIC_UNIT_MAX */
    uint64_t region_bytes_max;    /* largest region, as in plan.h; not clamped here */
    uint64_t stall_ns;            /* a peer is dead after this time without progress */
    uint64_t connect_ns;          /* a link is down if it is not up after this time */
    uint64_t backoff_min_ns, backoff_max_ns;
    bool clear;                     /* tcp: no encryption with peers that also set this */
    enum sl_fabric_windows windows; /* verbs: how tickets are implemented */
    uint64_t seed;                  /* for the jitter; 0: random */
    struct sl_fabric_events events;
    const struct fabric_backend *backend; /* replaces the back end of `kind`; NULL: none */
    void *backend_context; /* of the back end; verbs: a struct sl_verbs_lib for tests */
};
/* Sets values that suit most nodes, without address and events. */
void sl_fabric_options_init(struct sl_fabric_options *options, const char *kind);

/* Checks the name of a back end. Errors: SL_ERR_CONFIG (lists all names). */
sl_err sl_fabric_kind_check(const char *kind, struct sl_error *why);

/* Errors: SL_ERR_UNSUPPORTED (back end not built, no library, no device), SL_ERR_CONFIG (kind,
 * address, nic), SL_ERR_INVALID (bounds), SL_ERR_NO_MEMORY, SL_ERR_OS. */
sl_err sl_fabric_open(const struct sl_fabric_options *options, struct sl_fabric **out,
                      struct sl_error *why);
/* Ends everything at once, without callbacks. No memory is accessed afterwards. */
void sl_fabric_close(struct sl_fabric **fabric);
/* Readable when sl_fabric_step has work; borrowed. */
int sl_fabric_fd(const struct sl_fabric *fabric);
/* Does what is due; now_ns must not decrease. */
void sl_fabric_step(struct sl_fabric *fabric, uint64_t now_ns);
/* Latest time of the next step. 0: at once; SL_NEVER_NS: when the descriptor is readable. */
uint64_t sl_fabric_wake_at(const struct sl_fabric *fabric);

/* ---- memory ---- */
/* Memory without a CPU address, such as a GPU's: the dmabuf from offset_bytes on. */
struct sl_fabric_dmabuf {
    int fd;
    uint64_t offset_bytes;
};
struct sl_fabric_memory {
    void *at; /* in use until deregistered; NULL: use dmabuf */
    /* Borrowed; its descriptor is duplicated until the memory is removed. The fabric cannot read
     * such bytes: it refuses pieces with digests, and the caller must check them. NULL: use at. */
    const struct sl_fabric_dmabuf *dmabuf;
    uint64_t length_bytes;
    uint64_t chunk_bytes;  /* arena: no extent crosses a multiple of this; 0: a pool */
    uint64_t stride_bytes; /* pool: bytes of a block; 0: an arena */
    bool unread;           /* only tickets give access: verbs does not publish region keys */
};
/* Registers in the background, one region a step; registered() reports the result. Until then
 * transfers and grants are refused (SL_ERR_BUSY). Errors: SL_ERR_LIMIT, SL_ERR_INVALID,
 * SL_ERR_NO_MEMORY; of a dmabuf: those of sl_fabric_dmabuf_check, SL_ERR_OS (no descriptor). Of a
 * dmabuf, registered() may report SL_ERR_UNSUPPORTED (refused by the device or driver). */
sl_err sl_fabric_memory_add(struct sl_fabric *fabric, const struct sl_fabric_memory *memory,
                            uint32_t *out, struct sl_error *why);
/* Deregisters one region a call, because a NIC is slow to unpin memory. *gone: all are
 * deregistered. From the first call on, transfers and grants are refused, and a registration in
 * progress stops without registered(). Errors: SL_ERR_NOT_FOUND, SL_ERR_BUSY (transfers or grants
 * use it: nothing was changed). */
sl_err sl_fabric_memory_remove_step(struct sl_fabric *fabric, uint32_t memory, bool *gone);
/* Whether dmabufs are supported at all. A device may still refuse one when it is registered.
 * Errors: SL_ERR_UNSUPPORTED (tcp, or libibverbs is too old). */
sl_err sl_fabric_dmabuf_check(const struct sl_fabric *fabric, struct sl_error *why);
/* Largest region: the limit of the options or of the device, whichever is less. */
uint64_t sl_fabric_region_bytes_max(const struct sl_fabric *fabric);

/* ---- peers ---- */
/* Gives *out a peer; address() reports our address for it. Errors: SL_ERR_LIMIT. */
sl_err sl_fabric_peer_add(struct sl_fabric *fabric, uint32_t *out, struct sl_error *why);
/* Sets the address that the peer's address() reported; call it for every new one. Errors:
 * SL_ERR_NOT_FOUND, SL_ERR_PROTOCOL, SL_ERR_VERSION, SL_ERR_UNSUPPORTED (not this fabric). */
sl_err sl_fabric_peer_address(struct sl_fabric *fabric, uint32_t peer, const void *blob,
                              uint32_t length_bytes, struct sl_error *why);
/* Ends its transfers with SL_ERR_CANCELLED, and invalidates its keys. link() is not called. */
void sl_fabric_peer_remove(struct sl_fabric *fabric, uint32_t peer);
enum sl_fabric_link sl_fabric_peer_link(const struct sl_fabric *fabric, uint32_t peer);

/* ---- grants: what a peer may read of our memory ----
 * A grant of memory that is `unread` is a ticket: with verbs it has rights of its own, needs a peer
 * that is UP, and lasts at most as long as its link. */
/* A range of a memory. A list of places is one sequence of bytes, in the order of the list and
 * across memories. Places of a list must not overlap: the contents are undefined then. */
struct sl_fabric_place {
    uint32_t memory;
    uint64_t offset_bytes, length_bytes; /* length_bytes: 1.. */
};
struct sl_fabric_grant {
    uint32_t memory;
    uint32_t peer; /* the reader */
    uint64_t offset_bytes, length_bytes;
    /* Copied. NULL: the range is in `memory` at offset_bytes. Else both are ignored, the lengths
     * must sum to length_bytes, and the key's range is 0..length_bytes in the order of places. */
    const struct sl_fabric_place *places;
    uint32_t place_count; /* NULL: 0; else 1..SL_FABRIC_PLACES_MAX */
    uint64_t cookie;      /* not 0: call may_read */
};
/* Gives a handle; granted() reports the key for the peer. Errors: SL_ERR_NOT_FOUND (memory, peer),
 * SL_ERR_BUSY (not registered yet), SL_ERR_UNREACHABLE (verbs, ticket: the peer is not up),
 * SL_ERR_LIMIT (also: too many places for key or NIC), SL_ERR_INVALID (range, places), SL_ERR_OS.
 * granted() reports what the device refuses later. */
sl_err sl_fabric_grant_add(struct sl_fabric *fabric, const struct sl_fabric_grant *grant,
                           uint32_t *out, struct sl_error *why);
/* Ends a grant; grant_ended() reports that the peer no longer reads its range. By tcp this waits
 * for answers being sent, at most three quarters of stall_ns: then a slow peer's connection is
 * closed, so that the caller is not itself taken for dead. Errors: SL_ERR_NOT_FOUND. */
sl_err sl_fabric_grant_end(struct sl_fabric *fabric, uint32_t grant);

/* ---- keys: what a peer has granted to us ---- */
/* Errors: SL_ERR_NOT_FOUND (peer), SL_ERR_PROTOCOL, SL_ERR_VERSION, SL_ERR_UNSUPPORTED,
 * SL_ERR_LIMIT. */
sl_err sl_fabric_key_open(struct sl_fabric *fabric, uint32_t peer, const void *blob,
                          uint32_t length_bytes, uint32_t *out, struct sl_error *why);
/* Pending transfers with the key end with SL_ERR_CANCELLED. */
void sl_fabric_key_close(struct sl_fabric *fabric, uint32_t key);

/* ---- transfers ---- */
struct sl_fabric_piece {
    uint32_t memory;              /* local */
    uint32_t key;                 /* remote */
    uint64_t offset_bytes;        /* in the local memory */
    uint64_t remote_offset_bytes; /* in the range of the grant */
    uint64_t length_bytes; /* 1..SL_VALUE_BYTES_MAX; may span adjacent regions on both sides */
    const struct sl_digest *digest; /* expected digest; NULL: not checked. Copied */
    /* Copied. NULL: the bytes are read to `memory` at offset_bytes. Else both are ignored, the
     * lengths must sum to length_bytes, and the digest is over the bytes in the order of places. */
    const struct sl_fabric_place *places;
    uint32_t place_count; /* NULL: 0; else 1..SL_FABRIC_PLACES_MAX */
    uint32_t rail;        /* 1 + the preferred rail, used while it is up; 0: any */
};
struct sl_fabric_transfer {
    uint32_t peer;
    const struct sl_fabric_piece *pieces; /* copied */
    uint32_t piece_count;                 /* 1..SL_FABRIC_PIECES_MAX */
    uint64_t deadline_ns;
    uint64_t cookie; /* for done(); sl_fabric_cancel ends all with the same one */
};
/* Starts a transfer; done() is called only if this returns SL_OK. Codes of done(): SL_ERR_TIMEOUT,
 * SL_ERR_CANCELLED, SL_ERR_PEER_DIED, SL_ERR_UNREACHABLE (link is down), SL_ERR_PERMISSION (the
 * peer refuses key or range), SL_ERR_CORRUPT (digest). Errors: SL_ERR_NOT_FOUND (peer, key,
 * memory), SL_ERR_BUSY (memory is not registered yet), SL_ERR_INVALID (range, places, count, a key
 * of another peer, a digest of bytes in a dmabuf), SL_ERR_LIMIT (tables full), SL_ERR_UNREACHABLE
 * (a ticket that is void on every rail, because the links were lost). */
sl_err sl_fabric_post(struct sl_fabric *fabric, const struct sl_fabric_transfer *transfer,
                      struct sl_error *why);
/* Cancels transfers with this cookie: they end with SL_ERR_CANCELLED, or an earlier result. Gives
 * their number. */
uint32_t sl_fabric_cancel(struct sl_fabric *fabric, uint64_t cookie);

struct sl_fabric_stats {
    uint64_t read_bytes;        /* by our successful reads */
    uint64_t served_read_bytes; /* tcp: for peers */
    uint64_t refused;           /* requests with an invalid key or range */
    uint64_t bad_frames;        /* connections closed because of invalid frames */
    uint64_t late;              /* connections closed because they were too slow */
    uint64_t over_limit;        /* tcp: connections refused or displaced by the limits */
    uint64_t records_bad;       /* connections closed because a record was not authentic */
    uint64_t links_lost, links_built;
    uint64_t digests_bad;
    uint64_t regions; /* registered now */
};
void sl_fabric_stats(const struct sl_fabric *fabric, struct sl_fabric_stats *out);
/* Describes the choice: "tcp 10.0.0.1:4711, io_uring", "verbs rxe0 port 1 gid 1 ::ffff:10.0.0.1 mtu
 * 1024". Borrowed. */
const char *sl_fabric_about(const struct sl_fabric *fabric);

#endif
