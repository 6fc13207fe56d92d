/* client/lib/turn.h - a lock that is held while waiting for the node; other threads wait with a
 * deadline. */
#ifndef SL_CLIENT_LIB_TURN_H
#define SL_CLIENT_LIB_TURN_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct sl_turn {
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t over;
    bool taken;
};

void sl_turn_init(struct sl_turn *turn);
/* ours: false in a fork, which would wait for threads that it does not have. */
void sl_turn_fini(struct sl_turn *turn, bool ours);
/* False: another thread holds it until deadline_ns (monotonic). */
bool sl_turn_take(struct sl_turn *turn, uint64_t deadline_ns);
void sl_turn_leave(struct sl_turn *turn);

#endif
