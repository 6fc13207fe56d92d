/* client/lib/turn.c - see turn.h. It uses a condition variable, since the thread sanitizer does not
 * know pthread_mutex_clocklock. */
#include "client/lib/turn.h"
#include "runtime/base/sl_clock.h"

#include <time.h>

void sl_turn_init(struct sl_turn *turn)
{
    pthread_condattr_t attributes;
    pthread_mutex_init(&turn->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&turn->over, &attributes);
    pthread_condattr_destroy(&attributes);
    turn->taken = false;
}

void sl_turn_fini(struct sl_turn *turn, bool ours)
{
    pthread_mutex_destroy(&turn->lock);
    if (ours) {
        pthread_cond_destroy(&turn->over);
    }
}

bool sl_turn_take(struct sl_turn *turn, uint64_t deadline_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(deadline_ns / SL_NS_PER_S),
                                   .tv_nsec = (long)(deadline_ns % SL_NS_PER_S)};
    int waited = 0;
    pthread_mutex_lock(&turn->lock);
    while (turn->taken && waited == 0) {
        waited = pthread_cond_timedwait(&turn->over, &turn->lock, &until);
    }
    bool mine = !turn->taken;
    turn->taken = true;
    pthread_mutex_unlock(&turn->lock);
    return mine;
}

void sl_turn_leave(struct sl_turn *turn)
{
    pthread_mutex_lock(&turn->lock);
    turn->taken = false;
    pthread_cond_signal(&turn->over);
    pthread_mutex_unlock(&turn->lock);
}
