/* tests/sim/sim_seeds.h - runs many seeds, each in a process of its own.
 *
 * Seeds are fixed, so that a run has the same result everywhere. SL_SIM_SEEDS: how many;
 * SL_SIM_FROM: the first; SL_SIM_QUARTER=0..3: only that quarter of them; SL_SIM_JOBS: how many at
 * a time; SL_SIM_SEED: only this one, in this process, with figures; SL_SIM_LOG=1: with the actors'
 * logs. */
#ifndef SL_TEST_SIM_SEEDS_H
#define SL_TEST_SIM_SEEDS_H

#include <stdbool.h>
#include <stdint.h>

struct sim_seeds {
    uint32_t count;                     /* unless SL_SIM_SEEDS is set */
    uint64_t (*run)(uint64_t seed);     /* returns the hash of all events */
    const char *(*name)(uint64_t seed); /* of the seed's scenario */
    const char *arguments; /* arguments with which the program replays one; NULL: none */
};
#define SIM_SEEDS_TEXT 160u
/* Finds a seed that fails, without output, and its first message. Tries `likely` first, then those
 * for which `fits` returns true. UINT64_MAX: none fails. */
uint64_t sim_seeds_find(const struct sim_seeds *seeds, bool (*fits)(uint64_t seed), uint64_t likely,
                        char text[SIM_SEEDS_TEXT]);
/* A defect that runs must find. seed: one that finds it, tried first; any other will do. */
struct sim_mutant {
    uint64_t seed;
    const char *name;
};
/* Returns the exit status: whether each mutant, from number 1 on, was found within the seeds for
 * which `fits` returns true (NULL: all). The runs read its number from SL_SIM_MUTANT. */
int sim_mutants_find(const struct sim_seeds *seeds, bool (*fits)(uint64_t seed),
                     const struct sim_mutant *mutants, uint32_t count);
/* The mutant that SL_SIM_MUTANT names; 0: none below count. */
uint32_t sim_mutant_number(uint32_t count);
/* Returns the exit status. Prints, for a seed that fails, the command that replays it. */
int sim_seeds_main(const struct sim_seeds *seeds);

#endif
