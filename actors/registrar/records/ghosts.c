/* actors/registrar/records/ghosts.c - recently lost keys, and why, to explain misses. */
#include "actors/registrar/records/ghosts.h"
#include "actors/registrar/base/part.h"

#include <inttypes.h>
#include <stdlib.h>

static sl_err ghosts_init(struct registrar *self, struct sl_error *why)
{
    struct reg_ghosts *ghosts = self->ghosts;
    ghosts->capacity = sl_config_u64(self->env->config, SL_SET_ghosts_max);
    if (ghosts->capacity == 0) {
        return SL_OK;
    }
    ghosts->ring = calloc(ghosts->capacity, sizeof(*ghosts->ring));
    return ghosts->ring != NULL
               ? SL_OK
               : sl_fail(why, SL_ERR_NO_MEMORY, "list of %" PRIu64 " ghosts", ghosts->capacity);
}

static void ghosts_fini(struct registrar *self)
{
    free(self->ghosts->ring);
    *self->ghosts = (struct reg_ghosts){0};
}

void reg_ghost_add(struct registrar *self, const char *key, uint64_t length,
                   enum reg_ghost_reason reason)
{
    static const struct reg_judgement none = {0};
    reg_ghost_add_judged(self, reg_hash(key, length), reason, &none);
}

void reg_ghost_add_judged(struct registrar *self, uint64_t hash, enum reg_ghost_reason reason,
                          const struct reg_judgement *judged)
{
    struct reg_ghosts *ghosts = self->ghosts;
    if (ghosts->capacity == 0) {
        return;
    }
    ghosts->ring[ghosts->count % ghosts->capacity] =
        (struct reg_ghost){.hash = hash,
                           .at_ns = self->env->now_ns,
                           .reason = (uint32_t)reason,
                           .serial = reason == REG_GHOST_CONTRIBUTION ? ghosts->telling : 0,
                           .judged = *judged};
    ghosts->count++;
    sl_metric_set(self->env->metrics, self->ghosts->metric.ghost_count,
                  SL_MIN(ghosts->count, ghosts->capacity));
}

bool reg_ghost_was_evicted(const struct reg_ghost *ghost)
{
    return ghost->reason == REG_GHOST_EVICTED || ghost->reason == REG_GHOST_DISK_FAILED ||
           ghost->reason == REG_GHOST_INDEX_FULL;
}

/* A walk from the newest is fast enough: only people ask, and rarely. */
bool reg_ghost_find(const struct reg_ghosts *ghosts, const char *key, uint64_t length,
                    struct reg_ghost *out)
{
    uint64_t hash = reg_hash(key, length);
    uint64_t kept = SL_MIN(ghosts->count, ghosts->capacity);
    for (uint64_t back = 1; back <= kept; back++) {
        const struct reg_ghost *ghost = &ghosts->ring[(ghosts->count - back) % ghosts->capacity];
        if (ghost->hash == hash) {
            *out = *ghost;
            return true;
        }
    }
    return false;
}

const char *reg_ghost_text(enum reg_ghost_reason reason)
{
    switch (reason) {
    case REG_GHOST_EVICTED:
        return "evicted: memory was needed";
    case REG_GHOST_INDEX_FULL:
        return "evicted: the index was full";
    case REG_GHOST_DISK_RECLAIMED:
        return "its log file on disk was reclaimed";
    case REG_GHOST_DISK_FAILED:
        return "evicted while the disk was failing";
    case REG_GHOST_CORRUPT:
        return "its bytes could not be trusted";
    case REG_GHOST_UNREADABLE:
        return "its copy on disk could not be read any more";
    case REG_GHOST_REMOVED:
        return "removed";
    case REG_GHOST_TRANSIENT:
        return "its time to live ended";
    case REG_GHOST_EXPIRED:
        return "its writer did not finish in time";
    case REG_GHOST_REFUSED:
        return "refused: no space";
    case REG_GHOST_CONTRIBUTION:
        return "the contribution it was charged to ended";
    case REG_GHOST_NOT_ADMITTED:
        return "evicted: memory was needed, and it was not to be written to disk";
    }
    return "?";
}

/* ---- the part ---- */

static const struct sl_metric_row metrics[] = {
    REG_METRIC(reg_ghosts, ghost_count),
};

const struct reg_part reg_ghosts_part = {
    .name = "ghosts",
    REG_STATE(ghosts, reg_ghosts),
    REG_METRICS(metrics),
    .init = ghosts_init,
    .fini = ghosts_fini,
};
