/* client/tools/command/interrupt.c - SIGINT and SIGTERM for commands that run until interrupted. */
#include "client/tools/command/command.h"

#include <signal.h>

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

void ctl_interruptible(void)
{
    (void)signal(SIGINT, on_signal);
    (void)signal(SIGTERM, on_signal);
}

bool ctl_interrupted(void)
{
    return interrupted != 0;
}
