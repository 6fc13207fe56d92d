/* ipc/shm/sl_settled.c - two tables of words in an shm file; a word determines its own position. */
#include "ipc/shm/sl_settled.h"
#include "ipc/shm/sl_shm_file.h"

#include <stdatomic.h>
#include <stdlib.h>

#define SETTLED_FILE "settled"
#define COMMITS      262144u /* powers of two */
#define REMOVALS     65536u
#define WAYS         8u /* removals per position: newest first, the oldest is replaced */
#define END_MASK     UINT64_C(3)
#define DATA_BYTES   (COMMITS * sizeof(struct commit) + REMOVALS * sizeof(uint64_t))

struct commit {
    _Atomic uint64_t generation, key_hash;
};
struct sl_settled {
    struct sl_shm_file segment;
    struct commit *commits;
    _Atomic uint64_t *removals;
};

sl_err sl_settled_open(const char *shm_dir, struct sl_settled **out, struct sl_error *why)
{
    struct sl_settled *settled = calloc(1, sizeof(*settled));
    if (settled == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "notes of what was settled");
    }
    const struct sl_shm_file_want want = {
        .directory = shm_dir,
        .name = SETTLED_FILE,
        .kind = SL_SHM_FILE_SETTLED,
        .data_bytes = DATA_BYTES,
        .allocate_bytes = DATA_BYTES /* written at random, unchecked: all is allocated now */
    };
    /* Losing it only matters for recent requests. */
    sl_err err = sl_shm_file_open_or_renew(&want, &settled->segment, why);
    if (err != SL_OK) {
        free(settled);
        return err;
    }
    settled->commits = (struct commit *)(void *)settled->segment.data;
    settled->removals = (_Atomic uint64_t *)(void *)(settled->commits + COMMITS);
    *out = settled;
    return SL_OK;
}

bool sl_settled_is_short(const struct sl_settled *settled)
{
    return sl_shm_file_is_short(&settled->segment);
}

void sl_settled_close(struct sl_settled **settled)
{
    if (settled == NULL || *settled == NULL) {
        return;
    }
    sl_shm_file_close(&(*settled)->segment);
    free(*settled);
    *settled = NULL;
}

/* The position is the generation's low bits: generations rise by a few per object, so a much later
 * one replaces it, and the stores of consecutive commits are close together. A registrar killed in
 * between leaves no record. */
void sl_settled_commit(struct sl_settled *settled, uint64_t generation, uint64_t key_hash)
{
    struct commit *at = &settled->commits[generation & (COMMITS - 1)];
    atomic_store_explicit(&at->generation, 0, memory_order_relaxed);
    atomic_store_explicit(&at->key_hash, key_hash, memory_order_release);
    atomic_store_explicit(&at->generation, generation, memory_order_release);
}

bool sl_settled_committed(const struct sl_settled *settled, uint64_t generation, uint64_t *key_hash)
{
    struct commit *at = &settled->commits[generation & (COMMITS - 1)];
    if (generation == 0 ||
        atomic_load_explicit(&at->generation, memory_order_relaxed) != generation) {
        return false;
    }
    if (key_hash != NULL) {
        *key_hash = atomic_load_explicit(&at->key_hash, memory_order_relaxed);
    }
    return true;
}

static _Atomic uint64_t *removals_at(const struct sl_settled *settled, uint64_t id)
{
    return &settled->removals[(id >> 2) % (REMOVALS / WAYS) * WAYS];
}

void sl_settled_remove(struct sl_settled *settled, uint64_t id, enum sl_settled_end end)
{
    _Atomic uint64_t *at = removals_at(settled, id);
    for (uint32_t i = WAYS - 1; i > 0; i--) {
        uint64_t newer = atomic_load_explicit(&at[i - 1], memory_order_relaxed);
        atomic_store_explicit(&at[i], newer, memory_order_relaxed);
    }
    atomic_store_explicit(&at[0], (id & ~END_MASK) | (uint64_t)end, memory_order_relaxed);
}

bool sl_settled_removed(const struct sl_settled *settled, uint64_t id, enum sl_settled_end *end)
{
    _Atomic uint64_t *at = removals_at(settled, id);
    for (uint32_t i = 0; (id & ~END_MASK) != 0 && i < WAYS; i++) {
        uint64_t word = atomic_load_explicit(&at[i], memory_order_relaxed);
        if ((word & ~END_MASK) == (id & ~END_MASK)) {
            *end = (enum sl_settled_end)(word & END_MASK);
            return true;
        }
    }
    return false;
}
