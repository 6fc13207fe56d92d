/* tests/bench/policy/hints.h - hints that the engine of a replay gives about sessions.
 *
 * A session ends at a request whose chain no later request extends. A seed decides which ends
 * are announced, and when the engine is wrong: the same trace, share and seed give the same
 * hints. */
#ifndef SL_TESTS_BENCH_POLICY_HINTS_H
#define SL_TESTS_BENCH_POLICY_HINTS_H

#include "client/include/sluice.h"
#include "tests/bench/policy/trace.h"

enum replay_hints_kind {
    REPLAY_HINTS_NONE,
    REPLAY_HINTS_ENDS, /* a share of the ends is announced, and nothing else */
    REPLAY_HINTS_ALL,  /* each request hints whether it is the end, and is right in a share of
                        * cases */
};
struct replay_hints_options {
    enum replay_hints_kind kind;
    double share; /* 0..1 */
    uint64_t seed;
};

/* 1 for requests that end a session: no later one continues from its last whole block. Owned by
 * the caller. NULL: no memory. */
unsigned char *replay_ends(const struct replay_trace *trace);
/* The hint of request number `request`. */
enum sl_session replay_hint(const struct replay_hints_options *options, bool ends,
                            uint64_t request);
/* 0..1, drawn for a request. */
double replay_drawn(uint64_t seed, uint64_t request);

/* Hints about pauses. A session continues with the next request that has all of its blocks but
 * the last one, and more than one. */
struct replay_pause_options {
    double told;  /* 0..1: share of requests that announce their pause */
    double right; /* 0..1: share of those that are right; the others announce another request's
                   * pause */
    double error; /* 0 and more: largest error of an announced pause, as a share of it, either
                   * way */
    uint64_t seed;
};
/* By request, ms until its session continues, from 1; 0: never. NULL: no memory. To be freed. */
uint64_t *replay_pauses(const struct replay_trace *trace);
/* ms that the request announces; 0: none. */
uint64_t replay_pause(const struct replay_pause_options *options, const uint64_t *pauses,
                      uint64_t request_count, uint64_t request);

#endif
