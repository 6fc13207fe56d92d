/* tests/sim/sim_contest.h - several clients put, replace, remove and read the same few keys, in any
 * order and at the same time. Calls and answers are kept as a history. At the end of the run it
 * must be linearizable: it must fit a register per key (tests/support/linear.h). */
#ifndef SL_TEST_SIM_CONTEST_H
#define SL_TEST_SIM_CONTEST_H

#include "tests/sim/sim.h"
#include "tests/support/linear.h"

#define CONTEST_KEYS        3u
#define CONTEST_OPS_MAX     16384u
#define CONTEST_BATCH       3u /* keys of one call, at most */
#define CONTEST_VALUE_BYTES 16384u

struct contest {
    struct sim *sim;
    bool loses;          /* values may be evicted */
    const bool *warming; /* the disk has not yet reported its values: misses prove nothing, and a
                            put may win over an existing value */
    struct linear_op ops[CONTEST_OPS_MAX];
    bool open[CONTEST_OPS_MAX]; /* without an answer: in progress, or its caller was killed */
    uint32_t op_count;
    uint32_t last_value;
    uint64_t writes, reads, unanswered, refused;
};
/* A client that takes part; its buffers are private. */
struct contestant {
    struct contest *all;
    struct sl_client *client;
    uint32_t who;
    unsigned char *memory[CONTEST_BATCH]; /* CONTEST_VALUE_BYTES each */
};

void contest_init(struct contest *contest, struct sim *sim, const bool *warming);
void contestant_init(struct contestant *self, struct contest *all, struct sl_client *client,
                     uint32_t who);
void contestant_fini(struct contestant *self);
/* Makes a few calls. For a program. */
void contest_steps(struct contestant *self);
/* Reads every key. For a program, once all calls are over. */
void contest_read_all(struct contestant *self);
/* All keys were removed at some moment between two times. */
void contest_removed_all(struct contest *contest, uint64_t from_ns, uint64_t to_ns);
/* The power was cut now. */
void contest_crash(struct contest *contest);
/* All calls that were in progress are over now. */
void contest_calls_over(struct contest *contest);
/* Ends the run if the history fits no register or cannot be decided. */
void contest_check(struct contest *contest);

#endif
