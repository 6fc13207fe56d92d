/* actors/registrar/records/ghosts.h - recently lost keys and why they were lost. */
#ifndef SL_REGISTRAR_RECORDS_GHOSTS_H
#define SL_REGISTRAR_RECORDS_GHOSTS_H

#include "actors/registrar/base/core.h"
#include "actors/registrar/records/policy.h"

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
    REG_GHOST_NOT_ADMITTED,
};
struct reg_ghost {
    uint64_t hash;
    uint64_t at_ns;
    uint32_t reason;
    uint32_t serial; /* of the contribution that ended */
    struct reg_judgement judged;
};
struct reg_ghosts {
    struct reg_ghost *ring;
    uint64_t count, capacity;
    uint32_t telling; /* serial of the contribution whose values are being dropped */
    struct {
        sl_metric ghost_count;
    } metric;
};

void reg_ghost_add(struct registrar *self, const char *key, uint64_t length,
                   enum reg_ghost_reason reason);
/* The same for a unit that was in a list, with the policy's knowledge of it. */
void reg_ghost_add_judged(struct registrar *self, uint64_t hash, enum reg_ghost_reason reason,
                          const struct reg_judgement *judged);
bool reg_ghost_was_evicted(const struct reg_ghost *ghost);
/* Finds the newest reason why a key is absent; false: it is not remembered. */
bool reg_ghost_find(const struct reg_ghosts *ghosts, const char *key, uint64_t length,
                    struct reg_ghost *out);
const char *reg_ghost_text(enum reg_ghost_reason reason);

extern const struct reg_part reg_ghosts_part;

#endif
