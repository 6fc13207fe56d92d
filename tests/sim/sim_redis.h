/* tests/sim/sim_redis.h - the directory's server. Transporters' commands pass through the shipped
 * library (runtime/net/directory/link.c), whose sockets are streams of the simulator.
 *
 * It knows the commands that the directory uses, with times to live. Streams deliver bytes in
 * pieces of any size and late. The server may die and return with all data, none, or an earlier
 * state; it may stop or be slow, and a host may be unable to reach it. */
#ifndef SL_TEST_SIM_REDIS_H
#define SL_TEST_SIM_REDIS_H

#include "tests/sim/sim.h"

#define SIM_REDIS_URL "redis://127.0.0.1:6379" /* any address of the Internet reaches it */

enum sim_redis_comes { SIM_REDIS_EMPTY, SIM_REDIS_KEPT, SIM_REDIS_OLD };

/* Starts the server. */
void sim_redis_start(struct sim *sim);
/* Kills its process, which is back after restart_ns. */
void sim_redis_kill(struct sim *sim, uint64_t restart_ns, enum sim_redis_comes comes);
void sim_redis_stop(struct sim *sim, uint64_t duration_ns);
/* Delays bytes in both directions by up to delay_ns_max. */
void sim_redis_slow(struct sim *sim, uint64_t delay_ns_max, uint64_t duration_ns);
void sim_redis_cut(struct sim *sim, uint32_t host, uint64_t duration_ns);
/* The text under the key (field NULL), or of a hash's field; NULL: none. Borrowed until simulated
 * time advances. */
const char *sim_redis_get(struct sim *sim, const char *key, const char *field);
/* Visits all fields of all hashes. */
void sim_redis_each(struct sim *sim,
                    void (*each)(void *context, const char *key, const char *field,
                                 const char *value),
                    void *context);
/* Calls the function for each text set where none existed, with the command's time. */
void sim_redis_observe(struct sim *sim,
                       void (*set)(void *context, const char *key, const char *text,
                                   uint64_t sent_ns),
                       void *context);
uint64_t sim_redis_commands(const struct sim *sim); /* so far */

#endif
