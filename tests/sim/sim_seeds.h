/* tests/sim/sim_seeds.h - many runs, each in a process of its own.
 *
 * Seeds are fixed, so that a run says the same everywhere. SL_SIM_SEEDS: how many; SL_SIM_FROM: the
 * first; SL_SIM_QUARTER=0..3: that quarter of them alone; SL_SIM_JOBS: at a time; SL_SIM_SEED: this
 * one alone, in this process, with figures; SL_SIM_LOG=1: with the actors' logs. */
#ifndef SL_TEST_SIM_SEEDS_H
#define SL_TEST_SIM_SEEDS_H

#include <stdbool.h>
#include <stdint.h>

struct sim_seeds {
    uint32_t count;                     /* unless SL_SIM_SEEDS says otherwise */
    uint64_t (*run)(uint64_t seed);     /* gives the hash of all that happened */
    const char *(*name)(uint64_t seed); /* of what the seed runs */
    const char *arguments;              /* of the program, to replay one; NULL: none */
};
#define SIM_SEEDS_TEXT 160u
/* A seed that fails, quietly, and what it says first: `likely`, or the first one that `fits` says
 * yes to. UINT64_MAX: none does. */
uint64_t sim_seeds_find(const struct sim_seeds *seeds, bool (*fits)(uint64_t seed), uint64_t likely,
                        char text[SIM_SEEDS_TEXT]);
/* A defect that runs must find. seed: one that finds it, tried first; any other will do. */
struct sim_mutant {
    uint64_t seed;
    const char *name;
};
/* Gives the exit status: whether each, from number 1 on, was found within the seeds that `fits`
 * says yes to (NULL: all). The runs find its number in SL_SIM_MUTANT. */
int sim_mutants_find(const struct sim_seeds *seeds, bool (*fits)(uint64_t seed),
                     const struct sim_mutant *mutants, uint32_t count);
/* Which one SL_SIM_MUTANT names; 0: none below count. */
uint32_t sim_mutant_number(uint32_t count);
/* Gives the exit status. A seed that fails prints the command that replays it. */
int sim_seeds_main(const struct sim_seeds *seeds);

#endif
