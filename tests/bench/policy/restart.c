/* tests/bench/policy/restart.c - a registrar that is killed now and then, and continues from
 * what survives: the notes of blocks in memory, of learned values, and of ghosts
 * (actors/registrar/records). */
#include "runtime/base/sl_array.h"
#include "tests/bench/policy/internal.h"

#include <stdlib.h>
#include <string.h>

#define LEARNT_REFERENCES UINT64_C(1000) /* as in a registrar: an eighth, in these bounds */
#define LEARNT_MOST       UINT64_C(10000)
#define LOT               1000u /* as REG_GONE_LOT; and of few units */
#define OF_FEW            6u

struct model_restarts {
    uint64_t every, next, learnt_at; /* references */
    uint64_t *parents;               /* by identity: the parent hash of its block */
    unsigned char learnt[SL_DENSITY_SAVED_BYTES];
    uint32_t learnt_bytes;
    uint32_t lot_count, lot_capacity; /* a trace is short: all lots stay, and the latest counts */
    struct sl_density_note (*lots)[LOT];
    uint32_t last_count; /* ghosts of the lot that is not full yet: they are lost */
};

sl_err model_restarts_create(uint64_t every, uint32_t id_limit, struct model_restarts **out)
{
    struct model_restarts *restarts = calloc(1, sizeof(*restarts));
    uint64_t *parents = calloc(id_limit + (size_t)1, sizeof(*parents));
    if (restarts == NULL || parents == NULL) {
        free(restarts);
        free(parents);
        return SL_ERR_NO_MEMORY;
    }
    restarts->every = restarts->next = every;
    restarts->parents = parents;
    *out = restarts;
    return SL_OK;
}

void model_restarts_destroy(struct model_restarts **restarts)
{
    if (*restarts != NULL) {
        free((*restarts)->parents);
        free((*restarts)->lots);
        free(*restarts);
        *restarts = NULL;
    }
}

void model_restarts_entered(struct model_restarts *restarts, uint32_t id, uint64_t parent_hash)
{
    if (restarts != NULL) {
        restarts->parents[id] = parent_hash;
    }
}

sl_err model_restarts_left(struct model_memory *memory, const struct sl_density_note *note)
{
    struct model_restarts *restarts = memory->restarts;
    if (restarts == NULL) {
        return SL_OK;
    }
    if (!SL_ARRAY_ROOM(restarts->lots, restarts->lot_capacity, restarts->lot_count + 1)) {
        return SL_ERR_NO_MEMORY;
    }
    restarts->lots[restarts->lot_count][restarts->last_count++] = *note;
    if (restarts->last_count == LOT) {
        restarts->lot_count++;
        restarts->last_count = 0;
    }
    return SL_OK;
}

static void goes_on(const struct model_memory *memory, struct sl_density *fresh)
{
    const struct model_restarts *restarts = memory->restarts;
    if (restarts->learnt_bytes > 0) {
        SL_ASSERT(sl_density_load(fresh, restarts->learnt, restarts->learnt_bytes));
    }
    for (uint32_t id = 0; id < memory->id_limit; id++) {
        if (memory->here[id] != 0) {
            const struct sl_density_was was = {
                .user = id,
                .parent_hash = restarts->parents[id],
                .note = sl_density_note(memory->density, memory->here[id])};
            memory->here[id] = sl_density_restore(fresh, &was);
            SL_ASSERT(memory->here[id] != 0);
        }
    }
    uint64_t units = sl_density_stats(memory->density).unit_count;
    uint64_t of_few = SL_MIN(units * OF_FEW, SL_DENSITY_GHOSTS_MIN);
    uint64_t kept = SL_MIN(SL_MAX(units, of_few) / LOT, restarts->lot_count);
    sl_density_restored(fresh);
    for (uint64_t i = restarts->lot_count * LOT; i-- > (restarts->lot_count - kept) * LOT;) {
        const struct sl_density_was was = {.where = SL_DENSITY_GHOST,
                                           .note = restarts->lots[i / LOT][i % LOT]};
        (void)sl_density_restore(fresh, &was);
    }
}

sl_err model_restarts_look(struct model_memory *memory, const struct sl_density_options *options)
{
    struct model_restarts *restarts = memory->restarts;
    struct sl_density *fresh = NULL;
    if (restarts == NULL) {
        return SL_OK;
    }
    if (memory->references >= restarts->learnt_at) {
        restarts->learnt_bytes = sl_density_save(memory->density, restarts->learnt);
        uint64_t share = SL_MIN(SL_MAX(memory->references / 8, LEARNT_REFERENCES), LEARNT_MOST);
        restarts->learnt_at = memory->references + share;
    }
    if (memory->references < restarts->next) {
        return SL_OK;
    }
    restarts->next = memory->references + restarts->every;
    sl_err err = sl_density_create(options, &fresh);
    if (err == SL_OK) {
        goes_on(memory, fresh);
        sl_density_destroy(&memory->density);
        memory->density = fresh;
    }
    return err;
}
