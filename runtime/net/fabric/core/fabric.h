/* runtime/net/fabric/core/fabric.h - bytes between nodes, one-sidedly: the interface, whatever
 * carries them.
 *
 * A fabric registers memory, joins peers by addresses that the control plane carries, hands out
 * grants (who may read which range of its memory), and reads memory that a peer granted into its
 * own. The peer's actor takes no part in a transfer: its NIC (verbs) or its fabric (tcp) serves it.
 * Nobody writes to another node's memory.
 *
 * Promises, for every back end:
 *  - A transfer ends by exactly one done(), by its deadline or as soon after it as its memory is
 * free: after done() nothing reads or writes the local memory of the transfer any more.
 *  - A peer that dies is an error of all its transfers in about stall_ns; the link is then built
 *    anew, with a growing, jittered back-off.
 *  - After grant_ended() of a ticket not one byte of its range is read by its peer any more.
 *
 * One thread. Nothing blocks. Callbacks come from sl_fabric_step alone; they may call everything
 * but sl_fabric_step and sl_fabric_close. */
#ifndef SL_FABRIC_CORE_FABRIC_H
#define SL_FABRIC_CORE_FABRIC_H

#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_digest.h"
#include "runtime/base/sl_error.h"

#define SL_FABRIC_LANES_MAX   16u /* connections or queue pairs of a peer */
#define SL_FABRIC_MOVERS_MAX  16u
#define SL_FABRIC_DEPTH_MAX   64u    /* units in flight on a lane */
#define SL_FABRIC_SLOTS_MAX   65535u /* bound of every table */
#define SL_FABRIC_BLOB_MAX    65536u /* bytes of an address or a key */
#define SL_FABRIC_UNIT_MAX    (4 * SL_MIB)
#define SL_FABRIC_PIECES_MAX  1024u /* of one transfer */
#define SL_FABRIC_REGIONS_MAX 65536u
#define SL_FABRIC_PLACES_MAX  1024u /* of one piece or grant */

struct sl_fabric;      /* opaque */
struct fabric_backend; /* fabric_internal.h */

enum sl_fabric_link { SL_FABRIC_CONNECTING, SL_FABRIC_UP, SL_FABRIC_DOWN };

/* pieces: in the order of the transfer; borrowed. */
struct sl_fabric_done {
    uint64_t cookie;
    sl_err code;           /* SL_OK: all pieces are there; else that of the first that is not */
    const uint8_t *pieces; /* sl_err of each */
    uint32_t piece_count;
    uint64_t moved_bytes; /* of the pieces that are there */
};

struct sl_fabric_events {
    void *context;
    void (*done)(void *context, const struct sl_fabric_done *done);
    /* All regions of a memory are registered, or none: then region_index is the one that failed. */
    void (*registered)(void *context, uint32_t memory, uint32_t region_index,
                       const struct sl_error *why);
    /* The blob is for the peer's sl_fabric_peer_address; it replaces earlier ones and may come
     * again.
     */
    void (*address)(void *context, uint32_t peer, const void *blob, uint32_t length_bytes);
    /* A link that was UP is DOWN before it is anything else. */
    void (*link)(void *context, uint32_t peer, enum sl_fabric_link link,
                 const struct sl_error *why);
    /* From here on the peer may use this key, at most SL_FABRIC_BLOB_MAX bytes (verbs binds windows
     * first). No bytes: nothing of the grant is left, and it only wants its end; why says the
     * reason, where it is not that links went (SL_OK). */
    void (*granted)(void *context, uint32_t grant, const void *key, uint32_t key_bytes,
                    const struct sl_error *why);
    void (*grant_ended)(void *context, uint32_t grant);
    /* Of a grant with a cookie, before bytes are read for its peer (tcp): whether the peer may have
     * them now. Looks, and does nothing else. NULL: all of the grant's range. */
    bool (*may_read)(void *context, uint64_t cookie, uint64_t offset_bytes, uint64_t length_bytes);
};

/* Soft-RoCE's windows do not keep a reader within their range: SOUND takes them for none. */
enum sl_fabric_windows { SL_FABRIC_WINDOWS_SOUND, SL_FABRIC_WINDOWS_NEVER, SL_FABRIC_WINDOWS_ANY };

struct sl_fabric_options {
    const char *kind;    /* of the back ends' names (open.c): "tcp", "verbs"; borrowed */
    const char *address; /* tcp: "IP" or "IP:PORT" to listen at; "": nobody can reach us. */
    const char *nic;     /* verbs: device or device:port; "": the first with a usable port.
                          * A comma list of either, 16 at most: a rail each (rails.h) */
    int32_t gid_index;   /* verbs; -1: chosen */
    uint32_t lanes;      /* 1..SL_FABRIC_LANES_MAX */
    uint32_t depth;      /* 1..SL_FABRIC_DEPTH_MAX */
    uint32_t peers_max, memories_max, grants_max, keys_max, transfers_max, pieces_max;
    uint32_t places_max;       /* of all pieces and grants that are open; 0: none */
    uint32_t connections_max;  /* tcp: incoming */
    uint32_t strangers_max;    /* tcp: incoming of one address that have not greeted */
    uint64_t greet_ns;         /* tcp: who connects greets within this, or is dropped */
    uint32_t movers;           /* tcp: threads that move values; 0: none */
    uint64_t unit_bytes;       /* largest single request; whole 16 KiB up to SL_FABRIC_UNIT_MAX */
    uint64_t region_bytes_max; /* largest region, as plan.h gives it; not clamped here */
    uint64_t stall_ns;         /* a peer without any progress for so long is dead */
    uint64_t connect_ns;       /* a link that is not up after so long is down */
    uint64_t backoff_min_ns, backoff_max_ns;
    bool clear; /* tcp: without encryption with peers that are set so, too (a trusted wire) */
    enum sl_fabric_windows windows; /* verbs: how tickets are made */
    uint64_t seed;                  /* of the jitter; 0: random */
    struct sl_fabric_events events;
    const struct fabric_backend *backend; /* instead of that of the kind; NULL: none */
    void *backend_context; /* of that; verbs: a struct sl_verbs_lib instead of the library */
};
/* Values that fit most nodes; no address, no events. */
void sl_fabric_options_init(struct sl_fabric_options *options, const char *kind);

/* Whether there is a back end of this name. Errors: SL_ERR_CONFIG (names all). */
sl_err sl_fabric_kind_check(const char *kind, struct sl_error *why);

/* Errors: SL_ERR_UNSUPPORTED (back end not built, no library, no device), SL_ERR_CONFIG (kind,
 * address, nic), SL_ERR_INVALID (bounds), SL_ERR_NO_MEMORY, SL_ERR_OS. */
sl_err sl_fabric_open(const struct sl_fabric_options *options, struct sl_fabric **out,
                      struct sl_error *why);
/* Ends everything at once: no callback comes any more, and nothing touches any memory afterwards.
 */
void sl_fabric_close(struct sl_fabric **fabric);
/* Readable when sl_fabric_step has something to do; borrowed. */
int sl_fabric_fd(const struct sl_fabric *fabric);
/* Does what is due; now_ns never goes back. */
void sl_fabric_step(struct sl_fabric *fabric, uint64_t now_ns);
/* When step wants to run next at the latest: 0 at once, SL_NEVER_NS only when the descriptor says
 * so.
 */
uint64_t sl_fabric_wake_at(const struct sl_fabric *fabric);

/* ---- memory ---- */
/* Memory that no CPU address names, such as a GPU's: what a dmabuf has from offset_bytes on. */
struct sl_fabric_dmabuf {
    int fd;
    uint64_t offset_bytes;
};
struct sl_fabric_memory {
    void *at; /* lent until deregistered; NULL: it is a dmabuf's */
    /* Borrowed; the descriptor is copied, and the copy closed with the memory. Nothing here touches
     * such bytes: a piece with a digest on them is refused, the caller checks what landed. NULL: at
     */
    const struct sl_fabric_dmabuf *dmabuf;
    uint64_t length_bytes;
    uint64_t chunk_bytes;  /* arena: no extent crosses a multiple of it; 0: a pool */
    uint64_t stride_bytes; /* pool: bytes of a block; 0: an arena */
    bool unread;           /* peers read it by tickets alone: verbs shows them no key of a region */
};
/* Registers in the background, a region a step; registered() tells the end. Until then transfers
 * and grants of it are refused (SL_ERR_BUSY). Errors: SL_ERR_LIMIT, SL_ERR_INVALID,
 * SL_ERR_NO_MEMORY; of a dmabuf: those of sl_fabric_dmabuf_check, SL_ERR_OS (no descriptor).
 * registered() of a dmabuf: SL_ERR_UNSUPPORTED (the device or its driver does not take it). */
sl_err sl_fabric_memory_add(struct sl_fabric *fabric, const struct sl_fabric_memory *memory,
                            uint32_t *out, struct sl_error *why);
/* A region a call: a NIC takes long to give up what it has pinned. *gone: all of it is
 * deregistered. From the first call on transfers and grants of it are refused, and nothing more of
 * it is registered, without registered(). Errors: SL_ERR_NOT_FOUND, SL_ERR_BUSY (transfers or
 * grants use it: nothing has changed). */
sl_err sl_fabric_memory_remove_step(struct sl_fabric *fabric, uint32_t memory, bool *gone);
/* Whether memory of a dmabuf can be registered at all: that a device takes one shows only when it
 * is registered. Errors: SL_ERR_UNSUPPORTED (by tcp, or a libibverbs that is too old). */
sl_err sl_fabric_dmabuf_check(const struct sl_fabric *fabric, struct sl_error *why);
/* The largest region that is registered: of the options, or of the device where that is less. */
uint64_t sl_fabric_region_bytes_max(const struct sl_fabric *fabric);

/* ---- peers ---- */
/* Gives *out a peer; its address comes by address(). Errors: SL_ERR_LIMIT. */
sl_err sl_fabric_peer_add(struct sl_fabric *fabric, uint32_t *out, struct sl_error *why);
/* What the peer's address() said; again whenever it says it again. Errors: SL_ERR_NOT_FOUND,
 * SL_ERR_PROTOCOL, SL_ERR_VERSION, SL_ERR_UNSUPPORTED (another kind of fabric). */
sl_err sl_fabric_peer_address(struct sl_fabric *fabric, uint32_t peer, const void *blob,
                              uint32_t length_bytes, struct sl_error *why);
/* Its transfers end with SL_ERR_CANCELLED, its keys become invalid. link() is not called. */
void sl_fabric_peer_remove(struct sl_fabric *fabric, uint32_t peer);
enum sl_fabric_link sl_fabric_peer_link(const struct sl_fabric *fabric, uint32_t peer);

/* ---- grants: what of our memory a peer may read ----
 * A grant of what is unread is a ticket: with verbs it has rights of its own, needs a peer that is
 * UP, and lasts at most as long as its link. */
/* Where some bytes lie; those of a list follow each other in its order, whatever memories they are
 * in. Places of one list that overlap are the caller's fault: what they hold then is not said. */
struct sl_fabric_place {
    uint32_t memory;
    uint64_t offset_bytes, length_bytes; /* length_bytes: 1.. */
};
struct sl_fabric_grant {
    uint32_t memory;
    uint32_t peer; /* who may */
    uint64_t offset_bytes, length_bytes;
    /* Copied; NULL: memory and offset_bytes say where. Else those are not looked at, the lengths
     * add up to length_bytes, and the key's range is 0..length_bytes in the order of the places. */
    const struct sl_fabric_place *places;
    uint32_t place_count; /* NULL: 0; else 1..SL_FABRIC_PLACES_MAX */
    uint64_t cookie;      /* not 0: may_read is asked */
};
/* Gives a handle; granted() brings the key that the peer needs. Errors: SL_ERR_NOT_FOUND (memory,
 * peer), SL_ERR_BUSY (memory is not registered yet), SL_ERR_UNREACHABLE (verbs, ticket: the peer is
 * not up), SL_ERR_LIMIT (also: the places want more than the key or the NIC holds), SL_ERR_INVALID
 * (range, places), SL_ERR_OS. What the device refuses of a ticket comes with granted(). */
sl_err sl_fabric_grant_add(struct sl_fabric *fabric, const struct sl_fabric_grant *grant,
                           uint32_t *out, struct sl_error *why);
/* grant_ended() says when the peer is through with its range. By tcp it waits for what is being
 * sent, and for three quarters of stall_ns at most: then the connection of a peer that is too slow
 * ends. So whoever waits for the end need not be given up itself. Errors: SL_ERR_NOT_FOUND. */
sl_err sl_fabric_grant_end(struct sl_fabric *fabric, uint32_t grant);

/* ---- keys: what a peer granted to us ---- */
/* Errors: SL_ERR_NOT_FOUND (peer), SL_ERR_PROTOCOL, SL_ERR_VERSION, SL_ERR_UNSUPPORTED,
 * SL_ERR_LIMIT. */
sl_err sl_fabric_key_open(struct sl_fabric *fabric, uint32_t peer, const void *blob,
                          uint32_t length_bytes, uint32_t *out, struct sl_error *why);
/* Its transfers that still wait end with SL_ERR_CANCELLED. */
void sl_fabric_key_close(struct sl_fabric *fabric, uint32_t key);

/* ---- transfers ---- */
struct sl_fabric_piece {
    uint32_t memory;              /* local */
    uint32_t key;                 /* remote */
    uint64_t offset_bytes;        /* in the local memory */
    uint64_t remote_offset_bytes; /* in the peer's memory, as the grant's */
    uint64_t length_bytes; /* 1..SL_VALUE_BYTES_MAX; may span adjacent regions on both sides */
    const struct sl_digest *digest; /* what the bytes must be; NULL: not checked. Copied */
    /* Copied; NULL: memory and offset_bytes say where. Else those are not looked at, the lengths
     * add up to length_bytes, and the digest is over the bytes in the order of the places. */
    const struct sl_fabric_place *places;
    uint32_t place_count; /* NULL: 0; else 1..SL_FABRIC_PLACES_MAX */
    uint32_t rail; /* several NICs: 1 + the rail that carries it while its link is up; 0: any */
};
struct sl_fabric_transfer {
    uint32_t peer;
    const struct sl_fabric_piece *pieces; /* copied */
    uint32_t piece_count;                 /* 1..SL_FABRIC_PIECES_MAX */
    uint64_t deadline_ns;
    uint64_t cookie; /* of done(); need not be unique, but cancel takes all that carry it */
};
/* Takes the transfer; done() follows if SL_OK is returned, and only then. Codes of done():
 * SL_ERR_TIMEOUT, SL_ERR_CANCELLED, SL_ERR_PEER_DIED, SL_ERR_UNREACHABLE (link is down),
 * SL_ERR_PERMISSION (the peer refuses the key or the range), SL_ERR_CORRUPT (digest).
 * Errors: SL_ERR_NOT_FOUND (peer, key, memory), SL_ERR_BUSY (memory is not registered yet),
 * SL_ERR_INVALID (range, places, count, a key of another peer, a digest of bytes in a
 * dmabuf), SL_ERR_LIMIT (tables full),
 * SL_ERR_UNREACHABLE (several NICs: the key went with the link of each). */
sl_err sl_fabric_post(struct sl_fabric *fabric, const struct sl_fabric_transfer *transfer,
                      struct sl_error *why);
/* Transfers with this cookie end with SL_ERR_CANCELLED (or with what came first). Gives their
 * count. */
uint32_t sl_fabric_cancel(struct sl_fabric *fabric, uint64_t cookie);

struct sl_fabric_stats {
    uint64_t read_bytes;        /* by our transfers that ended well */
    uint64_t served_read_bytes; /* tcp: for peers */
    uint64_t refused;           /* requests with a wrong capability or range */
    uint64_t bad_frames;        /* connections ended for what they sent */
    uint64_t late;              /* connections ended for being too slow */
    uint64_t over_limit;        /* connections that had no place, or lost it to others (tcp) */
    uint64_t records_bad;       /* connections ended because what came was changed on its way */
    uint64_t links_lost, links_built;
    uint64_t digests_bad;
    uint64_t regions; /* registered now */
};
void sl_fabric_stats(const struct sl_fabric *fabric, struct sl_fabric_stats *out);
/* What was chosen: "tcp 10.0.0.1:4711, io_uring", "verbs rxe0 port 1 gid 1 ::ffff:10.0.0.1 mtu
 * 1024". Borrowed. */
const char *sl_fabric_about(const struct sl_fabric *fabric);

#endif
