/* actors/registrar/presence/peers.h - processes and clients that sent HELLO, and their ends. */
#ifndef SL_REGISTRAR_PRESENCE_PEERS_H
#define SL_REGISTRAR_PRESENCE_PEERS_H

#include "actors/registrar/base/core.h"

/* How often the locks of clients are checked; also when pins prevent an eviction. */
#define REG_CLIENTS_CHECK_NS (500 * SL_NS_PER_MS)
#define REG_CLIENTS_SWEEP_NS (10 * SL_NS_PER_S)

struct reg_peer {
    bool used;
    bool present; /* false: an actor that died; its name stays known, since it will be restarted */
    bool client;
    bool tierer;
    bool unlocked; /* a living client without its lock: refused, but its pins count */
    char name[REG_NAME_BYTES];
    char role[REG_NAME_BYTES];
    char segment[64]; /* name of its pin file */
    struct sl_proc_id proc;
    struct sl_pins_view *pins;
    sl_ref blob;                /* its note in the index */
    uint64_t quarantined_bytes; /* of its claims, as owner */
    uint64_t ahead_bytes;       /* granted to it in advance */
    uint64_t ahead_count;
    uint32_t owned;     /* first of the live claims it owns */
    uint32_t held;      /* first of the quarantined claims it may still write to */
    uint64_t fence_seq; /* of the FENCE in flight; 0: none */
    uint64_t fence_due_ns;
    uint32_t fence_lates; /* times in a row that the registrar checked its answer too late */
};

struct reg_peers {
    struct reg_peer *all;
    uint64_t *hashes; /* of their names */
    uint32_t count;
    uint64_t check_ns; /* next check of the locks */
    uint64_t sweep_ns; /* next removal of files of clients that never sent HELLO */
    bool any_unlocked;
    uint32_t high; /* slots from here on are unused */
    struct {
        sl_metric peer_count, died_count;
    } metric;
};

/* REG_NONE: no such peer. */
uint32_t reg_peer_find(const struct registrar *self, const char *name, uint64_t length);
/* Whether msg is from a client that lost its lock; then it is answered. */
bool reg_peer_refused(struct registrar *self, const struct sl_msg *msg);
/* The peer that sent msg and is present. REG_NONE: it sent no HELLO, and got an error. */
uint32_t reg_peer_of_sender(struct registrar *self, const struct sl_msg *msg);
/* The peer of a process, or of a client, which has an id of its own; or REG_NONE. */
uint32_t reg_peer_by_proc(const struct registrar *self, struct sl_proc_id proc);
bool reg_peer_present(const struct registrar *self, struct sl_proc_id proc);
/* Whether the peer can still access memory. */
bool reg_peer_alive(const struct registrar *self, uint32_t peer);
/* The process or client has ended: its pins, claims, engines and waiting requests end. */
void reg_process_died(struct registrar *self, struct sl_proc_id proc);
bool reg_watch(struct registrar *self, struct sl_proc_id proc); /* false: not possible */

extern const struct reg_part reg_peers_part;

#endif
