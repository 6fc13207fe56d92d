/* tests/sim/sim_contest.h - several clients put, replace, remove and read the same few keys, in any
 * order and at the same time. What they asked and heard is kept as a history, and at the end of the
 * run it must be one of a register (tests/support/linear.h). */
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
    const bool *warming; /* the disk has not said yet what it holds: misses say nothing, and a put
                          * may win over what is there */
    struct linear_op ops[CONTEST_OPS_MAX];
    bool open[CONTEST_OPS_MAX]; /* without an answer: under way, or its caller was killed */
    uint32_t op_count;
    uint32_t last_value;
    uint64_t writes, reads, unanswered, refused;
};
/* A caller; its memory is its own. */
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
/* Of a program: a few calls. */
void contest_steps(struct contestant *self);
/* Of a program, at rest: reads every key. */
void contest_read_all(struct contestant *self);
/* All was removed between two times. */
void contest_removed_all(struct contest *contest, uint64_t from_ns, uint64_t to_ns);
/* The power went, now. */
void contest_crash(struct contest *contest);
/* Whatever was under way is over, now: all is at rest. */
void contest_rest(struct contest *contest);
/* Ends the run when the history is none of a register, or cannot be decided. */
void contest_check(struct contest *contest);

#endif
