/* client/gate/standin.h - the process that is a client to the node, for a client that shares nothing
 * with it but a socket (ipc/sl_gate.h). */
#ifndef SL_CLIENT_GATE_STANDIN_H
#define SL_CLIENT_GATE_STANDIN_H

#include "runtime/sl_config.h"

/* Serves the client at the other end of the socket until it dies, says so, or SIGTERM comes. In a process
 * of its own. */
void standin_run(const struct sl_paths *paths, int socket_fd);

#endif
