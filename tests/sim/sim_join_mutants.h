/* tests/sim/sim_join_mutants.h - defects of joining masters that runs must find. */
#ifndef SL_TEST_SIM_JOIN_MUTANTS_H
#define SL_TEST_SIM_JOIN_MUTANTS_H

#include "client/mooncake/daemons/join.h"
#include "tests/sim/sim_seeds.h"

void sim_join_mutants_init(void);
int sim_join_mutants_main(const struct sim_seeds *seeds);

/* What the test hears of each call (sim_join_test.c). */
struct join_try {
    uint64_t began_ns, stalled_ns; /* stalled: how long its process was stopped by then */
};
struct join_try join_begins(void);
void join_asked(const struct mc_join *join, struct join_try tried, sl_err err);

#endif
