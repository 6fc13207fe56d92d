/* actors/registrar/presence/peers.h - who is there: processes and clients that said HELLO, watched
 * until they die. */
#ifndef SL_REGISTRAR_PRESENCE_PEERS_H
#define SL_REGISTRAR_PRESENCE_PEERS_H

#include "actors/registrar/base/core.h"

/* So often the locks of clients are looked at, besides when pins are in the way of an eviction. */
#define REG_CLIENTS_LOOK_NS  (500 * SL_NS_PER_MS)
#define REG_CLIENTS_SWEEP_NS (10 * SL_NS_PER_S)

struct reg_peer {
    bool used;
    bool present; /* false: an actor that died; its name stays known, since it will be restarted */
    bool client;
    bool tierer;
    bool unlocked; /* a client that lives and has lost its lock: it is refused, its pins count */
    char name[REG_NAME_BYTES];
    char role[REG_NAME_BYTES];
    char segment[64];
    struct sl_proc_id proc;
    struct sl_pins_view *pins;
    sl_ref blob;
    uint64_t quarantined_bytes; /* that it caused as owner */
    uint64_t ahead_bytes;       /* granted to it in advance */
    uint64_t ahead_count;
    uint32_t owned;     /* first of the live claims it owns */
    uint32_t held;      /* first of the quarantined claims it may still write to */
    uint64_t fence_seq; /* of the FENCE in flight, 0: none */
    uint64_t fence_due_ns;
    uint32_t fence_lates; /* times in a row that we looked late for its answer */
};

struct reg_peers {
    struct reg_peer *all;
    uint64_t *hashes; /* of their names */
    uint32_t count;
    uint64_t look_ns;  /* when the locks are looked at next, */
    uint64_t sweep_ns; /* and what clients left that never said HELLO */
    bool any_unlocked;
    uint32_t high; /* no slot from here on is used: what looks at all of them looks no further */
    struct {
        sl_metric peer_count, died_count;
    } metric;
};

uint32_t reg_peer_find(const struct registrar *self, const char *name,
                       uint64_t length); /* REG_NONE */
/* Whether a client sent it that has lost its lock: that was answered then. */
bool reg_peer_refused(struct registrar *self, const struct sl_msg *msg);
/* The process that sent it and is here. REG_NONE: it was answered that it has said no HELLO. */
uint32_t reg_peer_asking(struct registrar *self, const struct sl_msg *msg);
/* A process has one name, and each client of a process an id of its own. REG_NONE. */
uint32_t reg_peer_by_proc(const struct registrar *self, struct sl_proc_id proc);
bool reg_peer_present(const struct registrar *self, struct sl_proc_id proc);
/* Whether it can still touch memory. */
bool reg_peer_alive(const struct registrar *self, uint32_t peer);
/* The process or client is gone: pins, claims, engines and waiting requests with it. */
void reg_process_died(struct registrar *self, struct sl_proc_id proc);
bool reg_watch(struct registrar *self, struct sl_proc_id proc);

extern const struct reg_part reg_peers_part;

#endif
