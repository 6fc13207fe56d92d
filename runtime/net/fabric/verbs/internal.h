/* runtime/net/fabric/verbs/internal.h - a device and its queue pairs, one for each lane.
 *
 * A set of queue pairs has an epoch, a random number. Each side reports its epoch, its queue pairs,
 * and the epoch of the other side that it is connected to. A link is up when each names the other.
 * A failed set is discarded with everything that depends on it. */
#ifndef SL_FABRIC_VERBS_INTERNAL_H
#define SL_FABRIC_VERBS_INTERNAL_H

#include "runtime/net/fabric/core/internal.h"
#include "runtime/net/fabric/verbs/gid.h"
#include "runtime/net/fabric/verbs/lib.h"

#define VERBS_SIGNAL_UNITS 8u /* at most, for one completion */
#define VERBS_SIGNAL_BYTES (256 * SL_KIB)
/* Binds and invalidations in progress on a queue pair, in addition to its units. */
#define VERBS_CONTROL_MAX 64u
#define VERBS_RANGES_MAX  SL_FABRIC_PLACES_MAX /* of a ticket */
/* Device calls for tickets: in one ticket's turn, and about in one step. */
#define VERBS_SLICE_CALLS 32u
#define VERBS_TURN_CALLS  64u
#define VERBS_TICKETS_MAX (1u << 20) /* windows or registrations of all tickets */
#define VERBS_SGES_MAX    16u        /* local ranges of a unit; the device may allow fewer */

struct verbs_address { /* contents of address() */
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
    uint64_t epoch;             /* 0: no queue pairs */
    uint16_t life;              /* of the set, in wr_id: completions of earlier sets are dropped */
    uint64_t connected;         /* the peer's epoch that we use; 0: none */
    uint64_t dead;              /* the peer's last epoch that failed */
    bool confirmed, report_due; /* peer is connected to us; address must be reported */
    bool has_remote;
    struct verbs_address remote;
};
/* Walks over the memory of a grant, in the order of its key. */
struct verbs_walk {
    const struct fabric_rail *rail;
    const struct fabric_place *next; /* after the range; NULL: none */
    uint32_t memory_index;
    uint64_t offset_bytes, left_bytes; /* of the range */
    uint64_t key_offset_bytes;
};
struct verbs_window {
    struct ibv_mw *mw;
    struct ibv_mr *own; /* without windows: registration of a range */
    bool bound;         /* a bind was posted */
};
enum verbs_ticket_phase {
    VERBS_TICKET_MAKES, /* takes and binds windows, or registers ranges */
    VERBS_TICKET_HOLDS, /* all is posted: it works once busy_count is 0 */
    VERBS_TICKET_UNDOES,
    VERBS_TICKET_OVER /* nothing of it is left */
};
/* A ticket's device resources. It waits for a turn while it has work that needs no completion, or
 * needs room. */
struct verbs_grant {
    bool waits; /* for its turn */
    uint8_t phase;
    uint16_t life;
    uint32_t grant_index, range_count;
    uint32_t window_count;         /* lanes times ranges; without windows: ranges */
    uint32_t made, bound;          /* number of ranges */
    uint32_t undone;               /* number of windows */
    uint32_t busy_count;           /* binds and invalidations in progress */
    struct verbs_walk make, bind;  /* next positions */
    unsigned char *key, *key_next; /* owned */
    struct sl_error why;           /* code SL_OK: no failure */
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
    uint32_t cq_room, cq_used; /* entries reserved for queue pairs */
    int epoll_fd;
    bool windows;        /* the device supports windows of type 2 */
    bool armed;          /* an event will report the next completion */
    uint32_t busy_steps; /* consecutive steps with completions */
    uint32_t units_out;
    uint16_t next_life;
    struct ibv_mw **free_windows;
    uint32_t free_count, free_capacity;
    uint32_t tickets_waiting, ticket_turn; /* waiting for a turn; next grant's index */
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
/* wr_id. Units: kind 8, life 16, peer 16, lane 8, number 16 bits. Windows: kind 8, life 16, grant
 * 16, window 24 bits. */
static inline uint64_t verbs_id(enum verbs_work work, uint16_t life, uint32_t index, uint32_t rest)
{
    return (uint64_t)work << 56 | (uint64_t)life << 40 | (uint64_t)index << 24 | rest;
}

/* ---- verbs.c ---- */
/* Registers memory at the address, or a dmabuf with it as the NIC's address. Errors:
 * SL_ERR_UNSUPPORTED (dmabuf: not supported by library, kernel or device), SL_ERR_OS. */
sl_err verbs_register(struct verbs *verbs, const struct sl_fabric_dmabuf *dmabuf, uint64_t at,
                      uint64_t length_bytes, int access, struct ibv_mr **out, struct sl_error *why);
/* ---- peer.c ---- */
sl_err verbs_peer_start(struct fabric_peer *peer, struct sl_error *why);
sl_err verbs_peer_address(struct fabric_peer *peer, const void *blob, uint32_t length_bytes,
                          struct sl_error *why);
void verbs_peer_stop(struct fabric_peer *peer, bool last);
void verbs_peers_step(struct fabric_rail *rail);
/* ---- work.c ---- */
void verbs_lane_push(struct fabric_lane *lane);
/* Handles completions. False: there were none. */
bool verbs_poll(struct fabric_rail *rail);
/* ---- grant.c ---- */
sl_err verbs_grant_add(struct fabric_rail *rail, struct fabric_grant *grant, struct sl_error *why);
sl_err verbs_key_parse(struct fabric_rail *rail, const void *blob, uint32_t length_bytes,
                       struct fabric_right *key, struct sl_error *why);
struct verbs_walk verbs_walk_begin(const struct fabric_rail *rail,
                                   const struct fabric_grant *grant);
/* Gives the next piece in one region: the region reduced to it, with its offset in the key. False:
 * the end. */
bool verbs_walk_cut(struct verbs_walk *walk, struct fabric_region *out);
/* Gives the next whole range, with its offset in the key. False: the end. */
bool verbs_walk_whole(struct verbs_walk *walk, struct fabric_region *out);
/* Gives the dmabuf of the next range, starting there. False: the range is not in a dmabuf. */
bool verbs_walk_dmabuf(struct verbs_walk *walk, struct sl_fabric_dmabuf *out);
/* Writes a region of a key. Gives the position for its rkeys. */
unsigned char *verbs_key_region(unsigned char *out, const struct fabric_region *region);
#define VERBS_KEY_HEAD 16u
uint32_t verbs_key_bytes(uint32_t regions, uint32_t rkeys);

/* ---- ticket.c ---- */
/* Number of rkeys of a ticket's range: one for each lane's window, or one for a registration. */
uint32_t verbs_ticket_rkeys(const struct fabric_rail *rail);
/* The header of its key is in fabric->part. */
sl_err verbs_ticket_add(struct fabric_rail *rail, struct fabric_grant *grant, uint32_t ranges,
                        struct sl_error *why);
void verbs_grant_end(struct fabric_rail *rail, struct fabric_grant *grant);
void verbs_window_done(struct fabric_rail *rail, const struct ibv_wc *wc);
/* Runs a turn of waiting tickets. */
void verbs_tickets_step(struct fabric_rail *rail);
/* Ends what is bound to the peer's queue pairs. Call before they are destroyed. */
void verbs_grants_drop(struct fabric_peer *peer);

#endif
