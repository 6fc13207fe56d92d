/* ipc/shm/sl_counts.h - what clients count of what they do alone in shared memory: gets by tier,
 * with their times, and look-ups. Nobody is asked for it, so nobody else can count it.
 *
 * The segment `counts` in the shm directory is made by the registrar. A client takes a block of it,
 * and each of its threads a row of that block: the thread alone writes there, so that counting
 * costs no shared cache line. Whoever takes a block after another goes on with its counts, and
 * nothing ever sets them back. So the sum over all blocks is what was counted since the node was
 * started, also by clients that were killed. Clients without a block of their own (there are
 * SL_COUNTS_BLOCKS; readers without pins have none), and threads without a row, share one and count
 * by atomics.
 *
 * Counts are of those who write them, and of any process of the user: a wrong one harms a figure.
 */
#ifndef SL_COUNTS_H
#define SL_COUNTS_H

#include "ipc/shm/sl_segment.h"

#include <stdatomic.h>

#define SL_COUNTS_BLOCKS 1024u /* of clients at a time, and one that others share */
#define SL_COUNTS_ROWS   32u   /* of a block; the last one is shared */

/* Where a value was read from. */
enum sl_tier { SL_TIER_MEMORY, SL_TIER_DISK, SL_TIER_REMOTE, SL_TIER_COUNT };

/* id, text. The order is that of the words in a row: new ones go to the end. */
#define SL_COUNT_TABLE(X)                                               \
    X(GET_MEMORY, "keys of gets found in memory")                       \
    X(GET_DISK, "keys of gets found on a disk")                         \
    X(GET_REMOTE, "keys of gets found on another node")                 \
    X(GET_MISSED, "keys of gets that are nowhere")                      \
    X(GET_FAILED, "keys of gets that ended by an error, as a deadline") \
    X(GET_MEMORY_BYTES, "bytes of gets from memory")                    \
    X(GET_DISK_BYTES, "bytes of gets from a disk")                      \
    X(GET_REMOTE_BYTES, "bytes of gets from another node")              \
    X(LOOK_FOUND, "keys of look-ups that are here")                     \
    X(LOOK_MISSED, "keys of look-ups that are not")                     \
    X(BLOCK_FOUND, "blocks of look-ups that are here")                  \
    X(BLOCK_MISSED, "blocks of look-ups that are not")                  \
    X(LOOK_FAILED, "keys of look-ups that ended by an error")           \
    X(BLOCK_FAILED, "blocks of look-ups that ended by an error")        \
    X(GET_SEEN, "keys of gets that are nowhere, and were here once")
#define SL_COUNT_ENUM(id, text) SL_COUNT_##id,
enum sl_count { SL_COUNT_TABLE(SL_COUNT_ENUM) SL_COUNT_COUNT };
#define SL_COUNTS_MAX 24u /* words of a row for them */

/* What is timed: gets by tier, the look-ups of blocks by engines, and those of keys. */
enum sl_timed { SL_TIMED_BLOCKS = SL_TIER_COUNT, SL_TIMED_KEYS, SL_TIMED_COUNT };

/* Times in buckets whose upper ends are fixed: 1, 2 and 5 of each decade from 1 us to 10 s,
 * and what took longer. */
#define SL_COUNTS_BUCKETS 23u
/* In ns; the last: UINT64_MAX. */
extern const uint64_t sl_counts_bucket_ends_ns[SL_COUNTS_BUCKETS];

struct sl_counts; /* opaque; of one client; any number of threads */

/* The registrar, at its start: makes the segment, or goes on with that of its predecessor. Errors:
 * those of segments. */
sl_err sl_counts_make(const char *shm_dir, struct sl_error *why);
/* The registrar: frees the blocks of clients that are gone. */
void sl_counts_free(const char *shm_dir, bool (*is_gone)(void *context, struct sl_proc_id client),
                    void *context);
/* Takes a block for a client whose pin file says whether it lives; one without pins, {0}, shares
 * that of all others. Errors: those of segments. */
sl_err sl_counts_open(const char *shm_dir, struct sl_proc_id client, struct sl_counts **out,
                      struct sl_error *why);
void sl_counts_close(struct sl_counts **counts); /* what was counted stays */
/* Of a fork, whose parent goes on with the block. */
void sl_counts_leave(struct sl_counts **counts);
/* Whether it still is the one that is there; NULL is not. */
bool sl_counts_are_current(const char *shm_dir, const struct sl_counts *counts);

/* What one thread counts in. thread: its number within the process, which no other living thread
 * has; UINT32_MAX: it has none. counts may be NULL: then nothing is counted. */
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
    } else { /* this thread alone writes here */
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
/* So many keys came from this tier (enum sl_tier) after ns each, or a look-up took so long
 * (SL_TIMED_BLOCKS), or so many keys were looked up in so long (SL_TIMED_KEYS). */
void sl_counts_time(struct sl_counts_row row, uint32_t timed, uint64_t ns, uint64_t times);

/* Reading, by any process. */
struct sl_counts_times {
    uint64_t
        buckets[SL_COUNTS_BUCKETS]; /* how many took so long, those of lower buckets left out */
    uint64_t sum_ns;
};
struct sl_counts_sum {
    uint64_t counts[SL_COUNT_COUNT];
    struct sl_counts_times times[SL_TIMED_COUNT]; /* by enum sl_timed */
    uint32_t client_count;                        /* that have a block now */
};
/* Of all clients there were since the node was started. Errors: those of segments. */
sl_err sl_counts_read(const char *shm_dir, struct sl_counts_sum *out, struct sl_error *why);

#endif
