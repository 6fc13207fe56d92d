/* ipc/msg/sl_process.h - runs an actor as a process: config, directories, log, metrics, mailbox,
 * loop, signals, pidfds, disk, helper threads - and the real environment made of them. */
#ifndef SL_PROCESS_H
#define SL_PROCESS_H

#include "runtime/base/sl_actor.h"

/* The gauge of an actor whose supervisor is gone: since when, in ms since 1970; 0: it has one, or
 * is an actor of nobody's. */
#define SL_PROCESS_UNSUPERVISED "unsupervised_since_ms"

/* main() of every actor. Exit codes: 0 drained, 1 failed (the log says why), 2 wrong use.
 * Says READY by metrics health, and prints one line "ready NAME" to stdout for the supervisor.
 * SIGTERM and SIGINT drain (5 s at most, then exit); --help and --version print. Sends HELLO to the
 * registrar every `heartbeat` for actors other than the registrar, answers PING itself.
 * HELLO names the pin segment "pins.NAME" when the actor has made one of that name.
 *
 * Everything else reaches handle(): requests, replies (HELLO_REPLY too), completions. A body that
 * the table does not allow, an unknown type and a foreign sender are counted, and answered when the
 * envelope names the sender. The disk's flush op does nothing here: requests of one turn go to the
 * kernel together at its end. */
int sl_process_main(const struct sl_actor *actor, int argc, char **argv);

#endif
