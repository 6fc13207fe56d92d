/* tests/bench/policy/hints.h - what the engine of a replay says about sessions.
 *
 * A session ends at a request whose chain no later request extends. Which ends are told, and when
 * the engine is wrong, is drawn by a seed: the same trace, share and seed give the same words. */
#ifndef SL_TESTS_BENCH_POLICY_HINTS_H
#define SL_TESTS_BENCH_POLICY_HINTS_H

#include "client/include/sluice.h"
#include "tests/bench/policy/trace.h"

enum replay_hints_kind {
    REPLAY_HINTS_NONE,
    REPLAY_HINTS_ENDS, /* a share of the ends is told, and nothing else */
    REPLAY_HINTS_ALL,  /* each request says whether it is one, and is right in a share of them */
};
struct replay_hints_options {
    enum replay_hints_kind kind;
    double share; /* 0..1 */
    uint64_t seed;
};

/* 1 for requests that end a session: no later one goes on from its last whole block. Owned by the
 * caller. NULL: no memory. */
unsigned char *replay_ends(const struct replay_trace *trace);
/* What request number `request` says. */
enum sl_session replay_hint(const struct replay_hints_options *options, bool ends,
                            uint64_t request);
/* 0..1, drawn for a request. */
double replay_drawn(uint64_t seed, uint64_t request);

/* What it says of pauses. A session goes on with the next request that has all of its blocks but
 * the last one, and more than one. */
struct replay_pause_options {
    double told;  /* 0..1: so many of the requests say it */
    double right; /* 0..1: so many of those say what is so; the others what is so of another one */
    double error; /* 0 and more: what is said is off by up to so much of it, either way */
    uint64_t seed;
};
/* By request, ms until its session goes on, 1 and more; 0: it does not. NULL: no memory. To be
 * freed. */
uint64_t *replay_pauses(const struct replay_trace *trace);
/* ms that the request says; 0: nothing. */
uint64_t replay_pause(const struct replay_pause_options *options, const uint64_t *pauses,
                      uint64_t request_count, uint64_t request);

#endif
