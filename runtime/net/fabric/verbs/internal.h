/* runtime/net/fabric/verbs/internal.h - a device, and the queue pairs on it: one a lane.
 *
 * A set of queue pairs is known by its epoch, a random number. Each side tells its epoch, its queue
 * pairs, and the epoch of the other side that it is connected to; a link is up when both name each
 * other. A set that failed is thrown away with everything on it. */
#ifndef SL_FABRIC_VERBS_INTERNAL_H
#define SL_FABRIC_VERBS_INTERNAL_H

#include "runtime/net/fabric/core/internal.h"
#include "runtime/net/fabric/verbs/gid.h"
#include "runtime/net/fabric/verbs/lib.h"

#define VERBS_SIGNAL_UNITS 8u /* for one completion, at most */
#define VERBS_SIGNAL_BYTES (256 * SL_KIB)
/* Binds and invalidations under way on a queue pair, beside the units that it has room for. */
#define VERBS_CONTROL_MAX 64u
#define VERBS_RANGES_MAX  SL_FABRIC_PLACES_MAX /* of a ticket */
/* Calls of the device for tickets: before the next ticket's turn, and of a step, about. */
#define VERBS_SLICE_CALLS 32u
#define VERBS_TURN_CALLS  64u
#define VERBS_TICKETS_MAX (1u << 20) /* windows or registrations of all tickets */
#define VERBS_SGES_MAX    16u        /* local places of a unit; fewer where the device has fewer */

struct verbs_address { /* what address() tells */
    uint8_t lanes, mtu, reads, link_layer;
    uint16_t lid;
    uint8_t gid[16];
    uint64_t epoch, answers;
    uint32_t qpn[SL_FABRIC_LANES_MAX], psn[SL_FABRIC_LANES_MAX];
};
struct verbs_peer {
    struct ibv_qp *qps[SL_FABRIC_LANES_MAX];
    uint32_t psn[SL_FABRIC_LANES_MAX];
    uint32_t control_out[SL_FABRIC_LANES_MAX];
    uint64_t epoch;          /* 0: no queue pairs */
    uint16_t life;           /* of the set, in wr_id: completions of an older one are dropped */
    uint64_t connected;      /* the peer's epoch we are connected to; 0: none */
    uint64_t dead;           /* the peer's epoch that failed last */
    bool confirmed, say_due; /* the peer is connected to us; our address is to be told */
    bool has_remote;
    struct verbs_address remote;
};
/* Goes over what a grant covers, in the order of its key. */
struct verbs_walk {
    const struct fabric_rail *rail;
    const struct fabric_place *next; /* after the range; NULL: none */
    uint32_t memory_index;
    uint64_t offset_bytes, left_bytes; /* of the range */
    uint64_t key_offset_bytes;
};
struct verbs_window {
    struct ibv_mw *mw;
    struct ibv_mr *own; /* without windows: a registration of a range of the ticket */
    bool bound;         /* a bind of it was posted */
};
enum verbs_ticket_phase {
    VERBS_TICKET_MAKES, /* windows are taken and bound, or ranges registered */
    VERBS_TICKET_HOLDS, /* all is posted: it works once nothing is busy */
    VERBS_TICKET_UNDOES,
    VERBS_TICKET_OVER /* nothing of it is left */
};
/* A ticket: what it has of the device. It waits for a turn while it has something to do that needs
 * no completion, or needs room. */
struct verbs_grant {
    bool waits; /* for its turn */
    uint8_t phase;
    uint16_t life;
    uint32_t grant_index, range_count;
    uint32_t window_count;         /* lanes times ranges; without windows: ranges */
    uint32_t made, bound;          /* ranges */
    uint32_t undone;               /* windows */
    uint32_t busy_count;           /* binds and invalidations under way */
    struct verbs_walk make, bind;  /* what comes next */
    unsigned char *key, *key_next; /* owned */
    struct sl_error why;           /* code SL_OK: nothing failed */
    struct verbs_window windows[];
};
struct verbs {
    struct sl_verbs_lib lib;
    struct ibv_context *context;
    struct ibv_device_attr device;
    struct ibv_port_attr port_attr;
    uint8_t port;
    struct sl_gid gid;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    uint32_t cq_room, cq_used; /* entries that live queue pairs may need */
    int epoll_fd;
    bool windows;        /* the device has windows of type 2 */
    bool armed;          /* an event tells of the next completion */
    uint32_t busy_steps; /* in a row that found completions */
    uint32_t units_out;
    uint16_t next_life;
    struct ibv_mw **free_windows;
    uint32_t free_count, free_capacity;
    uint32_t tickets_waiting, ticket_turn; /* for a turn; whose it is, by the index of its grant */
    uint32_t tickets_room, tickets_taken;  /* windows or registrations */
};
enum verbs_work { VERBS_UNIT = 1, VERBS_BIND, VERBS_INVALIDATE };

/* NULL: none. */
static inline struct verbs_grant *verbs_ticket_of(const struct fabric_rail *rail,
                                                  const struct fabric_grant *grant)
{
    return rail->shares[grant->index].backend;
}
static inline struct verbs *verbs_of(const struct fabric_rail *rail)
{
    return rail->backend;
}
/* kind 8 | life 16 | peer 16 | lane 8 | number 16; of windows: kind 8 | life 16 | grant 16 | window
 * 24
 */
static inline uint64_t verbs_id(enum verbs_work work, uint16_t life, uint32_t index, uint32_t rest)
{
    return (uint64_t)work << 56 | (uint64_t)life << 40 | (uint64_t)index << 24 | rest;
}

/* ---- verbs.c ---- */
/* A memory region; dmabuf NULL: of memory at that address, else the NIC calls it so. Errors:
 * SL_ERR_UNSUPPORTED (of a dmabuf: library, kernel or device do not take it), SL_ERR_OS. */
sl_err verbs_register(struct verbs *verbs, const struct sl_fabric_dmabuf *dmabuf, uint64_t at,
                      uint64_t length_bytes, int access, struct ibv_mr **out, struct sl_error *why);
/* ---- verbs_peer.c ---- */
sl_err verbs_peer_start(struct fabric_peer *peer, struct sl_error *why);
sl_err verbs_peer_address(struct fabric_peer *peer, const void *blob, uint32_t length_bytes,
                          struct sl_error *why);
void verbs_peer_stop(struct fabric_peer *peer, bool last);
void verbs_peers_step(struct fabric_rail *rail);
/* ---- verbs_work.c ---- */
void verbs_lane_push(struct fabric_lane *lane);
/* False: nothing had ended. */
bool verbs_poll(struct fabric_rail *rail);
/* ---- verbs_grant.c ---- */
sl_err verbs_grant_add(struct fabric_rail *rail, struct fabric_grant *grant, struct sl_error *why);
sl_err verbs_key_parse(struct fabric_rail *rail, const void *blob, uint32_t length_bytes,
                       struct fabric_right *key, struct sl_error *why);
struct verbs_walk verbs_walk_begin(const struct fabric_rail *rail,
                                   const struct fabric_grant *grant);
/* The next part that lies in one region: that region, shortened to it, by its offset in the key.
 * False: there is none. */
bool verbs_walk_cut(struct verbs_walk *walk, struct fabric_region *out);
/* The next whole range, by its offset in the key. False: there is none. */
bool verbs_walk_whole(struct verbs_walk *walk, struct fabric_region *out);
/* The dmabuf from there on where the next range lies. False: it lies in none. */
bool verbs_walk_dmabuf(struct verbs_walk *walk, struct sl_fabric_dmabuf *out);
/* Writes a region of a key without its rkeys. Gives where these go. */
unsigned char *verbs_key_region(unsigned char *out, const struct fabric_region *region);
#define VERBS_KEY_HEAD 16u
uint32_t verbs_key_bytes(uint32_t regions, uint32_t rkeys);

/* ---- verbs_ticket.c ---- */
/* Remote keys of a range of a ticket: each lane's window has one, a registration is one for all. */
uint32_t verbs_ticket_rkeys(const struct fabric_rail *rail);
/* The head of its key is in fabric->part. */
sl_err verbs_ticket_add(struct fabric_rail *rail, struct fabric_grant *grant, uint32_t ranges,
                        struct sl_error *why);
void verbs_grant_end(struct fabric_rail *rail, struct fabric_grant *grant);
void verbs_window_done(struct fabric_rail *rail, const struct ibv_wc *wc);
/* A turn of the tickets that have something to do. */
void verbs_tickets_step(struct fabric_rail *rail);
/* The peer's queue pairs go: what was bound to them ends. Before they are destroyed. */
void verbs_grants_drop(struct fabric_peer *peer);

#endif
