/* client/tools/bench/bench.h - a benchmark of the client: the operation and the limits that it is
 * compared with.
 *
 * Rounds of a few milliseconds alternate: the operation, its physical limit, the fastest copy
 * routine. So a disturbance of the machine affects all of them. Rates are medians over the rounds,
 * ratios medians of the ratios of neighbouring rounds. On a busy machine most rounds are disturbed
 * but most single calls are not, so the ratio of the medians of single calls is also given. */
#ifndef SL_CLIENT_BENCH_BENCH_H
#define SL_CLIENT_BENCH_BENCH_H

#include "client/tools/bench/histogram.h"
#include "client/tools/command/command.h"

#define BENCH_KEY_BYTES  40u
#define BENCH_BATCH_MAX  65536u
#define BENCH_PROBES     4096u /* in a turn of the baseline of exists */
#define BENCH_ROUNDS_MAX 100000u
#define BENCH_ROUND_NS   (5 * SL_NS_PER_MS)

enum bench_kind { BENCH_GET, BENCH_PUT, BENCH_EXISTS };
enum bench_side { BENCH_SIDE_OP, BENCH_SIDE_BASELINE, BENCH_SIDE_COPY, BENCH_SIDES };

/* Result of a round. */
struct bench_round {
    uint64_t ops, busy_ns;
};

struct bench {
    enum bench_kind kind;
    uint64_t size_bytes, batch, keys, measure_ns;
    uint64_t pieces;      /* of memory for each value; 0: one buffer */
    uint64_t bulk;        /* keys in a call that is not measured */
    bool evicting;        /* put: each put evicts the oldest object */
    uint64_t cache_bytes; /* last-level cache */
    uint64_t walk_bytes;  /* of the user's memory; of the arena: keys x size, evicting all of it */
    struct sl_client *client;

    unsigned char *user;   /* source of puts, target of gets */
    unsigned char *shared; /* of the baseline, in place of the arena */
    uint64_t *probe_table; /* of the baseline of exists: hashes */
    uint64_t probe_slots;
    uint64_t limit_next; /* position of the baseline's walk */

    uint64_t next;   /* number of the next key */
    uint64_t first;  /* the first key that may not be evicted yet */
    char *key_texts; /* of one call, BENCH_KEY_BYTES each; exists: of all keys */
    struct sl_object_key *asked;
    struct sl_buffer *buffers;
    struct sl_iov_list *items; /* with pieces, piece_room of them each */
    struct sl_iov *piece_room;
    uint64_t *lengths;
    sl_err *codes;

    struct ctl_histogram calls_ns[BENCH_SIDES];
    double *rates[BENCH_SIDES]; /* ops/s of each round */
    uint32_t round_count;
};

/* ---- limit.c ---- */
/* Size of the largest data or unified cache of cpu 0. */
uint64_t bench_cache_bytes(void);
/* Allocates user and shared memory, or the table of the probe. */
sl_err bench_limit_open(struct bench *bench, struct sl_error *why);
void bench_limit_close(struct bench *bench);
const char *bench_limit_name(const struct bench *bench);
const char *bench_copy_name(const struct bench *bench); /* NULL: only memcpy */
/* One round of the baseline or the fastest copy routine. */
sl_err bench_limit_round(struct bench *bench, enum bench_side side, struct bench_round *out,
                         struct sl_error *why);

/* ---- run.c ---- */
void bench_key_write(uint64_t number, char text[BENCH_KEY_BYTES]);
/* The median of the rates, each divided by the divisor of the same round (NULL: not divided). 0: no
 * memory. */
double bench_median(const double *rates, const double *divisors, uint32_t count);
/* Fills, warms up, measures, removes. */
sl_err bench_measure(struct bench *bench, struct sl_error *why);

#endif
