/* actors/registrar/presence/peers.h - who is there: processes that said HELLO, watched until they
 * die. */
#ifndef SL_REGISTRAR_PRESENCE_PEERS_H
#define SL_REGISTRAR_PRESENCE_PEERS_H

#include "actors/registrar/base/core.h"

struct reg_peer {
    bool used;
    bool present; /* false: an actor that died; its name stays known, since it will be restarted */
    bool client;
    bool tierer;
    bool
        outlived; /* its process is gone, and the client whose stand-in it was is not (sl_gate.h) */
    bool restored; /* it was there before this registrar */
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
    uint32_t outlived_count;
    uint32_t high; /* no slot from here on is used: what looks at all of them looks no further */
    struct {
        sl_metric peer_count, died_count;
    } metric;
};

uint32_t reg_peer_find(const struct registrar *self, const char *name,
                       uint64_t length); /* REG_NONE */
/* The process that sent it and is here. REG_NONE: it was answered that it has said no HELLO. */
uint32_t reg_peer_asking(struct registrar *self, const struct sl_msg *msg);
uint32_t reg_peer_by_proc(const struct registrar *self, struct sl_proc_id proc);
/* Whether the process is here under some name other than that of slot `except` (REG_NONE: under
 * any).
 */
bool reg_peer_present(const struct registrar *self, struct sl_proc_id proc, uint32_t except);
/* Whether it can still touch memory: its process is alive, or the client whose stand-in that was. */
bool reg_peer_alive(const struct registrar *self, uint32_t peer);
/* The process is gone: pins, claims, engines and waiting requests with it. What is outlived by its client
 * goes when that does. */
void reg_process_died(struct registrar *self, struct sl_proc_id proc);
bool reg_watch(struct registrar *self, struct sl_proc_id proc);

extern const struct reg_part reg_peers_part;

#endif
