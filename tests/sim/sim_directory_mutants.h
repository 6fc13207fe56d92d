/* tests/sim/sim_directory_mutants.h - what a node must tell the directory's server, untold. Runs
 * must find each; a simulation that does not would prove nothing. */
#ifndef SL_TEST_SIM_DIRECTORY_MUTANTS_H
#define SL_TEST_SIM_DIRECTORY_MUTANTS_H

#include "tests/sim/sim_seeds.h"

/* Gives the exit status: whether every mutant was found within the seeds. */
int sim_directory_mutants_main(const struct sim_seeds *seeds);
/* Before a run: the mutant that SL_SIM_MUTANT names, if any. */
void sim_directory_mutants_init(void);

#endif
