/* tests/sim/sim.h - a whole node in one process under a simulated clock, replayed by a seed.
 *
 * Every actor is the shipped code over an environment of its own. Messages go through the real
 * codec and arrive after a random delay: in order between two actors, in any order otherwise. What
 * an actor does takes no time by itself. Shared memory is real (files under /dev/shm), pids are
 * not: they lie above any real one. A killed actor loses its heap and what is on its way to it; its
 * mappings stay until the simulating process ends, so a run belongs into a child process. */
#ifndef SL_TEST_SIM_H
#define SL_TEST_SIM_H

#include "ipc/sl_msg.h"
#include "runtime/sl_actor.h"

#include <check.h>

#define SIM_NODES_MAX 64u
/* Check reports each assertion to its parent by a pipe; a run makes millions. Only failures are
 * told. */
#define SIM_CHECK(condition, ...)      \
    do {                               \
        if (!(condition)) {            \
            ck_abort_msg(__VA_ARGS__); \
        }                              \
    } while (0)

struct sim_options {
    uint64_t seed;
    const char *const *settings; /* name, text, name, text, NULL */
    uint64_t delay_ns_max;       /* of a message; 0: 200 us */
    bool log;                    /* the actors' logs go to stderr */
};

struct sim; /* opaque; one thread */

/* Fails the running test on any trouble, like everything here. */
struct sim *sim_create(const struct sim_options *options);
/* Removes the directories. Actors that still run are dropped as by a kill. */
void sim_destroy(struct sim **sim);
/* Removes what a run of another process left that failed. */
void sim_sweep(uint32_t pid, uint64_t seed);
uint64_t sim_now_ns(const struct sim *sim);
uint64_t sim_random(struct sim *sim);
uint64_t sim_random_below(struct sim *sim, uint64_t bound);
const char *sim_shm_dir(const struct sim *sim);

/* Starts an actor under its role's name ("swapper.1" with a rank), or name when that is not NULL.
 * context is given to test actors (sim_context). Gives its number, which stays through restarts. */
uint32_t sim_start(struct sim *sim, const struct sl_actor *actor, uint32_t rank, const char *name,
                   void *context);
void *sim_context(struct sl_env *env);
struct sim *sim_of(struct sl_env *env);
/* SIGKILL, and a restart after restart_ns (SL_NEVER_NS: none). */
void sim_kill(struct sim *sim, uint32_t node, uint64_t restart_ns);
/* SIGSTOP until duration_ns is over. */
void sim_stop(struct sim *sim, uint32_t node, uint64_t duration_ns);
bool sim_alive(const struct sim *sim, uint32_t node);
uint64_t sim_incarnation(const struct sim *sim, uint32_t node);
uint64_t sim_metric(struct sim *sim, uint32_t node, const char *name); /* of this incarnation */
/* When actors were last killed, stopped or continued. */
uint64_t sim_disturbed_ns(const struct sim *sim);
/* Handles what happens until then. */
void sim_run_until(struct sim *sim, uint64_t at_ns);
uint64_t sim_event_count(const struct sim *sim);

#endif
