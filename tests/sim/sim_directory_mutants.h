/* tests/sim/sim_directory_mutants.h - mutants that omit a message that a node must send to the
 * directory's server. Runs must find each; a simulation that does not would prove nothing. */
#ifndef SL_TEST_SIM_DIRECTORY_MUTANTS_H
#define SL_TEST_SIM_DIRECTORY_MUTANTS_H

#include "tests/sim/sim_seeds.h"

/* Returns the exit status: whether every mutant was found within the seeds. */
int sim_directory_mutants_main(const struct sim_seeds *seeds);
/* Activates the mutant that SL_SIM_MUTANT names, if any. Call it before a run. */
void sim_directory_mutants_init(void);

#endif
