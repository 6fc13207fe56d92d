/* tests/sim/sim_mutants.h - what the actors must do, undone: each mutant breaks one promise that
 * nothing lands in a block that was given back, or that what counts as loaded has the right bytes.
 * Runs must find it; a simulation that does not would prove nothing. */
#ifndef SL_TEST_SIM_MUTANTS_H
#define SL_TEST_SIM_MUTANTS_H

#include "tests/sim/sim_seeds.h"

#include <stdbool.h>

/* Gives the exit status: whether every mutant was found within the seeds that `fits` says yes to.
 * SL_SIM_MUTANT: the number of one, which sim_seeds_main then runs. */
int sim_mutants_main(const struct sim_seeds *seeds, bool (*fits)(uint64_t seed));
/* Before a run: the mutant that SL_SIM_MUTANT names, if any. */
void sim_mutants_init(void);

#endif
