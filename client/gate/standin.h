/* client/gate/standin.h - the process that is a client to the node, for a client that shares nothing
 * with it but a socket (ipc/sl_gate.h). */
#ifndef SL_CLIENT_GATE_STANDIN_H
#define SL_CLIENT_GATE_STANDIN_H

#include "client/gate/writer.h"

enum standin_client {
    STANDIN_OWNER,  /* of the node's user */
    STANDIN_GUEST,  /* of a user that may read */
    STANDIN_WRITER, /* of one that may write, too: by a stand-in of its own (writer.h) */
    STANDIN_REFUSED /* hears why, and that is all */
};

/* Serves the client at the other end of the socket until it dies, says so, or SIGTERM comes. In a process
 * of its own. shuts: for guests it opens nothing but on file systems that are read-only (readonly.h). */
void standin_run(const struct writer_options *options, int socket_fd, enum standin_client client,
                 bool shuts);

#endif
