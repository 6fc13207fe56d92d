/* client/mooncake/daemons/daemon.h - what mooncake_master and mooncake_client begin and end with:
 * flags, a log, a loop with signals and a timer. */
#ifndef SL_CLIENT_MOONCAKE_DAEMONS_DAEMON_H
#define SL_CLIENT_MOONCAKE_DAEMONS_DAEMON_H

#include "client/mooncake/daemons/flags.h"
#include "runtime/sl_log.h"
#include "runtime/sl_loop.h"

enum mc_exit { MC_EXIT_FINE = 0, MC_EXIT_FAILED = 1, MC_EXIT_WRONG_USE = 2 };

/* Arrives zeroed but for its name. */
struct mc_daemon {
    const char *name;
    struct mc_flags *flags;
    struct sl_log *log;
    struct sl_loop *loop;
    sl_loop_timer tick;
};
struct mc_daemon_use {
    const struct mc_flag *table;
    uint32_t flag_count, minloglevel; /* minloglevel: that flag's place in the table */
    const char *about;                /* of --help: what it does, and its exit codes */
};

/* Takes the command line, opens the log, and tells of flags that mean nothing here. Gives the exit
 * code, or -1: go on. */
int mc_daemon_begin(struct mc_daemon *daemon, const struct mc_daemon_use *use, int argc,
                    char **argv);
/* Makes the loop, before any other thread, so that SIGTERM and SIGINT never interrupt one. */
sl_err mc_daemon_loop(struct mc_daemon *daemon, uint32_t processes_max, sl_loop_signal_fn on_signal,
                      sl_loop_timer_fn on_tick, void *context, struct sl_error *why);
/* The last line of the log; closes log and flags. Gives the exit code. */
int mc_daemon_end(struct mc_daemon *daemon, bool fine);

#endif
