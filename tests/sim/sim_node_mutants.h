/* tests/sim/sim_node_mutants.h - mutants that break a node's promises for objects: a lost fence, a
 * tombstone that is not waited for, a swapped order. Runs must find each; a simulation that does
 * not would prove nothing. */
#ifndef SL_TEST_SIM_NODE_MUTANTS_H
#define SL_TEST_SIM_NODE_MUTANTS_H

#include "tests/sim/sim_seeds.h"

/* Returns the exit status: whether every mutant was found within the seeds. */
int sim_node_mutants_main(const struct sim_seeds *seeds, const struct sim_seeds *heals);
/* Activates the mutant that SL_SIM_MUTANT names, if any. heal: one of those that the seeds `heals`
 * find. Call it before a run. */
void sim_node_mutants_init(bool heal);

#endif
