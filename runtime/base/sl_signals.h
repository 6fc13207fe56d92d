/* runtime/base/sl_signals.h - signals that a library's thread leaves to the program's threads. */
#ifndef SL_SIGNALS_H
#define SL_SIGNALS_H

#include <signal.h>

/* All but SIGBUS, which concerns the thread's own access (sl_guard.h) and ends it if blocked. */
static inline void sl_signals_of_others(sigset_t *set)
{
    (void)sigfillset(set);
    (void)sigdelset(set, SIGBUS);
}

#endif
