/* tests/sim/sim_node_mutants.h - what a node must do for its objects, undone: a fence that is lost,
 * a tombstone that is not waited for, an order that is swapped. Runs must find each; a simulation
 * that does not would prove nothing. */
#ifndef SL_TEST_SIM_NODE_MUTANTS_H
#define SL_TEST_SIM_NODE_MUTANTS_H

#include "tests/sim/sim_seeds.h"

/* Gives the exit status: whether every mutant was found within the seeds. */
int sim_node_mutants_main(const struct sim_seeds *seeds, const struct sim_seeds *heals);
/* Before a run: the mutant that SL_SIM_MUTANT names, if any. heal: of those that heals find. */
void sim_node_mutants_init(bool heal);

#endif
