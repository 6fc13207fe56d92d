/* ipc/shm/sl_counts.h - counters that clients keep of operations in shared memory: gets by tier,
 * with their times, and lookups. These send no message, so no other process could count them.
 *
 * The registrar creates the shm file `counts`. A client takes a block of it, and each of its
 * threads a row of that block. Only that thread writes the row, so counting costs no shared cache
 * line. The next user of a block continues its counts, which are never reset. So the sum over all
 * blocks is what was counted since the node was started, including clients that were killed.
 * Clients without a block of their own (there are SL_COUNTS_BLOCKS; readers without pins have none)
 * and threads without a row share one and use atomics.
 *
 * Any process of the user can write counts: a wrong one only affects statistics. */
#ifndef SL_COUNTS_H
#define SL_COUNTS_H

#include "ipc/shm/sl_shm_file.h"

#include <stdatomic.h>

#define SL_COUNTS_BLOCKS 1024u /* of one client each; one more block is shared */
#define SL_COUNTS_ROWS   32u   /* per block; the last one is shared */

/* The location from which a value was read. */
enum sl_tier { SL_TIER_MEMORY, SL_TIER_DISK, SL_TIER_REMOTE, SL_TIER_COUNT };

/* id, text. The order is that of the words in a row: add new ones at the end. */
#define SL_COUNT_TABLE(X)                                         \
    X(GET_MEMORY, "keys of gets found in memory")                 \
    X(GET_DISK, "keys of gets found on a disk")                   \
    X(GET_REMOTE, "keys of gets found on another node")           \
    X(GET_MISSED, "keys of gets that are missing")                \
    X(GET_FAILED, "keys of gets that failed, e.g. by a deadline") \
    X(GET_MEMORY_BYTES, "bytes of gets from memory")              \
    X(GET_DISK_BYTES, "bytes of gets from a disk")                \
    X(GET_REMOTE_BYTES, "bytes of gets from another node")        \
    X(LOOK_FOUND, "keys of lookups that exist")                   \
    X(LOOK_MISSED, "keys of lookups that are missing")            \
    X(BLOCK_FOUND, "blocks of lookups that exist")                \
    X(BLOCK_MISSED, "blocks of lookups that are missing")         \
    X(LOOK_FAILED, "keys of lookups that failed")                 \
    X(BLOCK_FAILED, "blocks of lookups that failed")              \
    X(GET_SEEN, "keys of gets that are missing, but were stored once")
#define SL_COUNT_ENUM(id, text) SL_COUNT_##id,
enum sl_count { SL_COUNT_TABLE(SL_COUNT_ENUM) SL_COUNT_COUNT };
#define SL_COUNTS_MAX 24u /* words of a row reserved for them */

/* Timed operations: gets by tier, lookups of blocks by engines, and lookups of keys. */
enum sl_timed { SL_TIMED_BLOCKS = SL_TIER_COUNT, SL_TIMED_KEYS, SL_TIMED_COUNT };

/* Histogram buckets with fixed upper ends: 1, 2 and 5 of each decade from 1 us to 10 s, and the
 * rest. */
#define SL_COUNTS_BUCKETS 23u
/* In ns; the last: UINT64_MAX. */
extern const uint64_t sl_counts_bucket_ends_ns[SL_COUNTS_BUCKETS];

struct sl_counts; /* opaque; for one client; any number of threads */

/* For the registrar at its start: creates the file, or continues that of its predecessor. Errors:
 * those of sl_shm_file_open and _create. */
sl_err sl_counts_make(const char *shm_dir, struct sl_error *why);
/* For the registrar: frees the blocks of clients that have ended. */
void sl_counts_free(const char *shm_dir, bool (*is_gone)(void *context, struct sl_proc_id client),
                    void *context);
/* Takes a block for a client, which its pin file shows to be alive. A client without pins, {0},
 * shares one with others. Errors: those of sl_shm_file_open. */
sl_err sl_counts_open(const char *shm_dir, struct sl_proc_id client, struct sl_counts **out,
                      struct sl_error *why);
void sl_counts_close(struct sl_counts **counts); /* the counts stay */
/* For a fork, whose parent continues to use the block. */
void sl_counts_leave(struct sl_counts **counts);
/* Whether it still is the current file; false for NULL. */
bool sl_counts_are_current(const char *shm_dir, const struct sl_counts *counts);

/* The row of one thread. thread: its number within the process, which no other living thread has;
 * UINT32_MAX: none. counts may be NULL: then nothing is counted. */
struct sl_counts_row {
    _Atomic uint64_t *words;
    bool shared;
};
struct sl_counts_row sl_counts_row_of(const struct sl_counts *counts, uint32_t thread);
static inline void sl_counts_word_add(struct sl_counts_row row, uint32_t word, uint64_t amount)
{
    if (row.words == NULL) {
        return;
    }
    _Atomic uint64_t *at = &row.words[word];
    if (row.shared) {
        (void)atomic_fetch_add_explicit(at, amount, memory_order_relaxed);
    } else { /* only this thread writes here */
        atomic_store_explicit(at, atomic_load_explicit(at, memory_order_relaxed) + amount,
                              memory_order_relaxed);
    }
}
static inline void sl_count(struct sl_counts_row row, enum sl_count count, uint64_t amount)
{
    if (amount != 0) {
        sl_counts_word_add(row, (uint32_t)count, amount);
    }
}
/* Records `times` operations of ns each. timed: a tier (enum sl_tier) for keys that were read from
 * it, SL_TIMED_BLOCKS for lookups of blocks, SL_TIMED_KEYS for keys that were looked up in a batch
 * of ns. A caller that measures one in n operations passes n times as many. */
void sl_counts_time(struct sl_counts_row row, uint32_t timed, uint64_t ns, uint64_t times);

/* For readers in any process. */
struct sl_counts_times {
    uint64_t buckets[SL_COUNTS_BUCKETS]; /* number of times in this bucket only */
    uint64_t sum_ns;
};
struct sl_counts_sum {
    uint64_t counts[SL_COUNT_COUNT];
    struct sl_counts_times times[SL_TIMED_COUNT]; /* by enum sl_timed */
    uint32_t client_count;                        /* clients that have a block now */
};
/* Sums up all clients since the node was started. Errors: those of sl_shm_file_open. */
sl_err sl_counts_read(const char *shm_dir, struct sl_counts_sum *out, struct sl_error *why);

#endif
