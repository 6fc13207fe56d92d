/* runtime/base/sl_signals.h - the signals that a thread of a library leaves to the threads of its
 * program. */
#ifndef SL_SIGNALS_H
#define SL_SIGNALS_H

#include <signal.h>

/* All but SIGBUS, which is about the thread's own access (sl_guard.h): blocked, it ends the
 * process. */
static inline void sl_signals_of_others(sigset_t *set)
{
    (void)sigfillset(set);
    (void)sigdelset(set, SIGBUS);
}

#endif
