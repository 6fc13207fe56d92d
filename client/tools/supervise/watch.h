/* client/tools/supervise/watch.h - sluice-supervise: reports events to the supervisor's script.
 *
 * The script decides and starts processes. This process watches the actors and reports what
 * happens to them, so that the script of an idle node runs no program and polls nothing. The script
 * replaces a watcher that ends or is silent; the watcher ends with its script.
 *
 * Events, one line each on standard output:
 *   tick                    every second, once `alive` has answered the last tick. Just before it,
 *                           as long as they apply: lost, unnamed, memory
 *   gone NAME PID CODE      the process ended. CODE: its exit code as in a shell, or unknown (not a
 *                           child, and the kernel is older than 6.15)
 *   hung NAME PID HOW MS    HOW: stopped (SIGSTOP) or silent, for over 1 s (hang.h). MS: time of
 *                           the observation since the machine started. The report is repeated while
 *                           it applies, so a script may ignore one that it reads late
 *   state HOW COUNT [NAME...]   HOW: ready (all), degraded or waiting (for these actors). COUNT:
 *                           number of watch, mind and adopt commands read; the script ignores a
 *                           state with an older count
 *   lost                    supervisor.pid does not name the script, or a path given by `keep` is
 *                           missing or is another file
 *   unnamed NAME PID FILE   this file of the actor was removed or replaced
 *   memory PID FILE...      these files of the shared memory of registrar PID were removed or
 *                           replaced
 *   nudge                   the answer to `nudge`
 * Commands, one line each on standard input:
 *   watch NAME PID START    watch this actor. START: its start time (0: it has ended). Replaces the
 *                           process that was watched under the name
 *   mind NAME PID START     watch a helper: it has no metrics page, and `state` omits it
 *   adopt NAME PID START    watch an actor that is older than the script: all its files exist
 *   keep PATH               report `lost` when PATH stops leading to its present file, or to the
 *                           first file that appears there
 *   alive                   the script runs and has handled a tick; feeds systemd's watchdog
 *   notify NAME=VALUE       send this to systemd (notify.h)
 *   nudge                   answer with nudge: a trap of the script uses it to end its `read`
 * The watcher itself sends STATUS= to systemd when the state changes. */
#ifndef SL_CLIENT_SUPERVISE_WATCH_H
#define SL_CLIENT_SUPERVISE_WATCH_H

#include "runtime/base/sl_error.h"

struct sup_watch_options {
    const char *runtime_dir, *shm_dir;
    uint32_t script_pid; /* the parent of this process */
};
/* Runs until standard input or the script ends (SL_OK). Errors: SL_ERR_INVALID (an unknown
 * command), SL_ERR_NO_MEMORY, SL_ERR_OS. */
sl_err sup_watch(const struct sup_watch_options *options, struct sl_error *why);

#endif
