/* tests/support/linear.h - is a history of puts, replaces, gets, looks and removals of keys
 * linearizable?
 *
 * Each op has the time it was called and the time it came back. A history is linearizable when
 * every op can be given one moment in between at which it took effect, so that a register with
 * presence explains all answers. The search is that of Wing and Gong with Lowe's memory of what was
 * tried, as Porcupine has it: keys are searched apart, and a key's history is cut where no op is
 * under way. Every state that a window may leave is a beginning of the next one.
 *
 * What is allowed besides, and nothing else is:
 * - `maybe`: an op without an answer takes effect once until `back`, or never.
 * - `loses`: until this op was over the value may have been evicted.
 * - LINEAR_CRASH: the power went. What was there before may be back, but for what was removed or
 *   replaced by an op that was acknowledged and began after the value's own write had ended. */
#ifndef SL_TEST_LINEAR_H
#define SL_TEST_LINEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define LINEAR_NEVER UINT64_MAX
enum linear_kind {
    LINEAR_PUT,     /* of a key that is there: changes nothing */
    LINEAR_REPLACE, /* the value is there, whatever was */
    LINEAR_REMOVE,  /* nothing is there, whatever was */
    LINEAR_GET,     /* this value was there */
    LINEAR_MISS,    /* nothing was there */
    LINEAR_EXISTS,  /* something was there */
    LINEAR_CRASH    /* call == back */
};
struct linear_op {
    uint64_t call, back; /* any clock that all share. Equal times count as overlapping. */
    uint32_t key;
    uint32_t value; /* PUT, REPLACE, GET: 1 .. UINT32_MAX - 1, never written twice */
    uint16_t who;   /* for people */
    uint8_t kind;   /* enum linear_kind */
    bool maybe;     /* PUT, REPLACE, REMOVE */
    bool loses;
    bool unread; /* filled in by the check */
};

struct linear_limits {
    uint32_t states_max; /* tried in one window; 0: 400,000 */
    double ns_of_time;   /* in print: one tick of the ops' clock; 0: 1 */
    FILE *print;         /* the smallest history found of each violation; NULL: none */
    bool print_all;      /* and all of the window behind it */
    uint32_t prints_max; /* 0: 3 */
};
struct linear_result {
    uint64_t keys, ops, windows, violations; /* of keys: a key ends with its first one */
    uint64_t
        undecided; /* windows that took more than the bound; the next one begins with anything */
    uint64_t window_max, states_max; /* most ops in a window, most states tried in one */
    uint64_t values_judged;          /* gets, misses and looks in windows that were decided */
};
/* Sorts the ops. Anything is absent at first. Ends the process when memory is short. */
void linear_check(struct linear_op *ops, size_t count, const struct linear_limits *limits,
                  struct linear_result *result);

#endif
