/* runtime/fabric/verbs/internal.h - a device, and the queue pairs on it: one a lane.
 *
 * A set of queue pairs is known by its epoch, a random number. Each side tells its epoch, its queue
 * pairs, and the epoch of the other side that it is connected to; a link is up when both name each
 * other. A set that failed is thrown away with everything on it. */
#ifndef SL_FABRIC_VERBS_INTERNAL_H
#define SL_FABRIC_VERBS_INTERNAL_H

#include "runtime/fabric/core/internal.h"
#include "runtime/fabric/verbs/gid.h"
#include "runtime/fabric/verbs/lib.h"

#define VERBS_SIGNAL_UNITS 8u /* for one completion, at most */
#define VERBS_SIGNAL_BYTES (256 * SL_KIB)
#define VERBS_CONTROL_MAX  64u /* binds and invalidations under way on a queue pair */
#define VERBS_OWN_MAX      64u /* registrations of one ticket, where there are no windows */
#define VERBS_INLINE_BYTES 64u
#define VERBS_SGES_MAX     16u /* local places of a unit; fewer where the device has fewer */

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
    uint32_t writers; /* without windows: live tickets of the peer */
};
struct verbs_window {
    struct ibv_mw *mw;
    struct ibv_mr *own; /* without windows: a registration of a range of the ticket */
    uint32_t lane;
    bool bound, busy; /* busy: a bind or an invalidation is under way */
};
struct verbs_grant {
    uint32_t window_count, busy_count;
    uint16_t life;
    bool writes; /* without windows: is one of the peer's writers */
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
    uint64_t last_ns;    /* of the last completion */
    uint32_t units_out;
    uint16_t next_life;
    struct ibv_mw **free_windows;
    uint32_t free_count, free_capacity;
};
enum verbs_work { VERBS_UNIT = 1, VERBS_BIND, VERBS_INVALIDATE };

static inline struct verbs *verbs_of(const struct sl_fabric *fabric)
{
    return fabric->backend;
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
void verbs_peers_step(struct sl_fabric *fabric);
/* ---- verbs_work.c ---- */
void verbs_lane_push(struct fabric_lane *lane);
void verbs_lane_cancel(struct fabric_lane *lane);
/* False: nothing had ended. */
bool verbs_poll(struct sl_fabric *fabric);
/* ---- verbs_grant.c ---- */
sl_err verbs_grant_add(struct sl_fabric *fabric, struct fabric_grant *grant, void *key,
                       uint32_t *key_bytes, struct sl_error *why);
void verbs_grant_end(struct sl_fabric *fabric, struct fabric_grant *grant);
sl_err verbs_key_parse(struct sl_fabric *fabric, const void *blob, uint32_t length_bytes,
                       struct fabric_key *key, struct sl_error *why);
void verbs_window_done(struct sl_fabric *fabric, const struct ibv_wc *wc);
/* The peer's queue pairs go: what was bound to them ends. Before they are destroyed. */
void verbs_grants_drop(struct fabric_peer *peer);

#endif
