/* tests/sim/sim_mutants.h - mutants that break one promise of the actors each: that no write
 * reaches a block that the engine has back, or that loaded blocks have the right bytes. Runs must
 * find each; a simulation that does not would prove nothing. */
#ifndef SL_TEST_SIM_MUTANTS_H
#define SL_TEST_SIM_MUTANTS_H

#include "tests/sim/sim_seeds.h"

#include <stdbool.h>

/* Returns the exit status: whether every mutant was found within the seeds for which `fits` returns
 * true. SL_SIM_MUTANT: the number of one mutant, which sim_seeds_main then runs. */
int sim_mutants_main(const struct sim_seeds *seeds, bool (*fits)(uint64_t seed));
/* Activates the mutant that SL_SIM_MUTANT names, if any. Call it before a run. */
void sim_mutants_init(void);

#endif
