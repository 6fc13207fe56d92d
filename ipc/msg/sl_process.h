/* ipc/msg/sl_process.h - runs an actor as a process: config, directories, log, metrics, mailbox,
 * loop, signals, pidfds, disk, helper threads - and the real environment (struct sl_env) on top of
 * them. */
#ifndef SL_PROCESS_H
#define SL_PROCESS_H

#include "runtime/base/sl_actor.h"

/* Gauge of an actor whose supervisor has died: since when, in ms since 1970. 0: the supervisor
 * lives, or the actor never had one. */
#define SL_PROCESS_UNSUPERVISED "unsupervised_since_ms"

/* main() of every actor. Exit codes: 0 drained, 1 failed (the reason is logged), 2 wrong usage.
 * Announces READY by metrics health and by one line "ready NAME" on stdout for the supervisor.
 * SIGTERM and SIGINT drain (5 s at most, then exit); --help and --version print. Every `heartbeat`
 * an actor other than the registrar sends HELLO to the registrar, which names the pin file
 * "pins.NAME" if the actor has created it. PING is answered here.
 *
 * All other messages reach handle(): requests, replies (also HELLO_REPLY), completions. A body that
 * the table does not allow, an unknown type and a foreign sender are counted, and answered if the
 * envelope names the sender. Disk requests that are still queued at the end of an iteration of the
 * loop are submitted to the kernel then. */
int sl_process_main(const struct sl_actor *actor, int argc, char **argv);

#endif
