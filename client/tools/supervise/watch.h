/* client/tools/supervise/watch.h - the eyes of the supervisor's script.
 *
 * The script decides and starts; this process tells it what happened, so that a resting node runs
 * no program and polls nothing. Both go on without the other: a script whose watcher is gone, or
 * tells nothing for a while, starts another one; a watcher ends with its script.
 *
 * Events, a line each on standard output:
 *   tick                    every second, when the last one was answered by `alive`. Just before
 * it, as long as it is so: lost, unnamed, memory gone NAME PID CODE      the process ended; CODE:
 * its exit code as a shell has it, or unknown (it is no child, and the kernel is older than 6.15)
 *   hung NAME PID HOW MS    HOW: stopped (SIGSTOP) or silent, for over a second (hang.h); MS: when
 * it was seen, since the machine started. Told again when nobody does anything about it, so that
 * one who hears it late may wait for the next state HOW COUNT [NAME...]   HOW: ready (all),
 * degraded, or waiting for these. COUNT: of watch, mind and adopt commands that were read; a script
 * that has sent more ignores this one lost                    supervisor.pid in the runtime
 * directory does not name the script any more, or a name that it keeps leads nowhere, or elsewhere
 *   unnamed NAME PID FILE   that file of the actor, in its directory, was removed, or another one
 * has its name memory PID FILE...      the same of shared memory that the registrar of this PID has
 *   nudge                   the answer to `nudge`
 * Commands, a line each on standard input:
 *   watch NAME PID START    from now on; START is its start time (0: it is gone). Another process
 *                           under the same name is forgotten
 *   mind NAME PID START     the same of a process that is no actor: it has no page, and no state
 * waits for it; its end and that it is stopped are told adopt NAME PID START    as watch, one that
 * ran before the script: all its files are there keep PATH               its name is to lead to
 * what it leads to now, or to what comes to be there alive                   the script lives and
 * has done its work: answers a tick, feeds the watchdog notify NAME=VALUE       to systemd
 * (notify.h) nudge                   a trap of the script wants its `read` to end What the node is
 * at goes to systemd as STATUS= by itself. */
#ifndef SL_CLIENT_SUPERVISE_WATCH_H
#define SL_CLIENT_SUPERVISE_WATCH_H

#include "runtime/base/sl_error.h"

struct sup_watch_options {
    const char *runtime_dir, *shm_dir;
    uint32_t script_pid; /* the parent of this process */
};
/* Runs until standard input or the script ends (SL_OK). Errors: SL_ERR_INVALID (a line that is no
 * command), SL_ERR_NO_MEMORY, SL_ERR_OS. */
sl_err sup_watch(const struct sup_watch_options *options, struct sl_error *why);

#endif
