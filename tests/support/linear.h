/* tests/support/linear.h - is a history of puts, replaces, gets, lookups and removals of keys
 * linearizable?
 *
 * Each op has the time of its call and of its return. A history is linearizable if each op can be
 * assigned one moment in between at which it took effect, so that a register with presence gives
 * all the answers. The search is that of Wing and Gong with Lowe's cache of states already tried,
 * as in Porcupine: keys are searched apart, and a key's history is cut where no op is in progress.
 * Every state in which a window may end is a start of the next one.
 *
 * Only these departures are allowed:
 * - `maybe`: an op without an answer takes effect once until `back`, or never.
 * - `loses`: until this op was over the value may have been evicted.
 * - LINEAR_CRASH: a power cut. An earlier value may be back, unless it was removed or
 *   replaced by an op that was acknowledged and began after the value's own write had ended. */
#ifndef SL_TEST_LINEAR_H
#define SL_TEST_LINEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define LINEAR_NEVER UINT64_MAX
enum linear_kind {
    LINEAR_PUT,     /* of an existing key: changes nothing */
    LINEAR_REPLACE, /* the key then has this value, whatever it had */
    LINEAR_REMOVE,  /* the key then has no value, whatever it had */
    LINEAR_GET,     /* the key had this value */
    LINEAR_MISS,    /* the key had no value */
    LINEAR_EXISTS,  /* the key had some value */
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
    bool print_all;      /* also the rest of the window */
    uint32_t prints_max; /* 0: 3 */
};
struct linear_result {
    uint64_t keys, ops, windows, violations; /* violations: one a key at most */
    uint64_t undecided;              /* windows over the bound; any state may start the next one */
    uint64_t window_max, states_max; /* most ops in a window, most states tried in one */
    uint64_t values_judged;          /* gets, misses and lookups in windows that were decided */
};
/* Sorts the ops and checks them. All keys start absent. Ends the process when memory is short. */
void linear_check(struct linear_op *ops, size_t count, const struct linear_limits *limits,
                  struct linear_result *result);

#endif
