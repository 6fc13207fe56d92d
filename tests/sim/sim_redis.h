/* tests/sim/sim_redis.h - the server of the directory: what transporters say to it goes through the
 * shipped library (runtime/net/directory/link.c), whose sockets are streams of the simulator.
 *
 * The commands that the directory uses, with times to live. Streams bring their bytes in any pieces
 * and late, the server dies and comes back with all, with nothing, or as it was a while ago; it
 * stops, it is slow, a host cannot reach it. */
#ifndef SL_TEST_SIM_REDIS_H
#define SL_TEST_SIM_REDIS_H

#include "tests/sim/sim.h"

#define SIM_REDIS_URL "redis://127.0.0.1:6379" /* any address of the Internet leads to it */

enum sim_redis_comes { SIM_REDIS_EMPTY, SIM_REDIS_KEPT, SIM_REDIS_OLD };

/* There is one from now on. */
void sim_redis_start(struct sim *sim);
/* Its process dies, and is back after restart_ns. */
void sim_redis_kill(struct sim *sim, uint64_t restart_ns, enum sim_redis_comes comes);
void sim_redis_stop(struct sim *sim, uint64_t duration_ns);
/* What is sent either way takes up to delay_ns_max. */
void sim_redis_slow(struct sim *sim, uint64_t delay_ns_max, uint64_t duration_ns);
void sim_redis_cut(struct sim *sim, uint32_t host, uint64_t duration_ns);
/* The text under the key (field NULL), or of a hash's field; NULL: none. Borrowed until time goes
 * on. */
const char *sim_redis_get(struct sim *sim, const char *key, const char *field);
/* All fields of all hashes. */
void sim_redis_each(struct sim *sim,
                    void (*each)(void *context, const char *key, const char *field,
                                 const char *value),
                    void *context);
/* Called for a text that is set where there was none, with the time when that was sent. */
void sim_redis_observe(struct sim *sim,
                       void (*set)(void *context, const char *key, const char *text,
                                   uint64_t sent_ns),
                       void *context);
uint64_t sim_redis_commands(const struct sim *sim); /* so far */

#endif
