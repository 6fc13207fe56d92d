/* client/gate/writer.h - puts and pins of a client of another user, by a process that is a client of the
 * node itself (libsluice). The client never has a descriptor that may be written but that of a window,
 * which holds no value of anybody else. What it says of the window is checked, and copied before it is
 * used: it may change it at any time. Digests are those of the bytes that were stored. */
#ifndef SL_CLIENT_GATE_WRITER_H
#define SL_CLIENT_GATE_WRITER_H

#include "client/gate/shares.h"
#include "ipc/sl_gate.h"
#include "runtime/sl_config.h"

struct writer; /* opaque; its functions are for one thread */

/* With the client's uid: begins the name by which the node knows the process. */
#define WRITER_NAME SL_GATE_GUEST_NAME "%u"

struct writer_options {
    const struct sl_config *config;
    const struct sl_paths *paths;
    struct shares shares; /* of this process; of no meaning for clients of the node's user */
};
struct writer_client {
    int socket_fd;
    int pidfd;     /* readable: the client is dead */
    int signal_fd; /* readable: this process is to end */
};

/* uid: the client's. Errors: those of sl_client_open, SL_ERR_LIMIT (its user has as many as it may),
 * SL_ERR_NO_MEMORY, SL_ERR_OS. */
sl_err writer_open(const struct writer_options *options, uint32_t uid, struct writer **out,
                   struct sl_error *why);
/* Name of the segment with its pins. */
const char *writer_pins(const struct writer *self);
/* Gives a descriptor of the window, for the client. */
sl_err writer_window_give(const struct writer *self, int *fd, uint64_t *window_bytes,
                          struct sl_error *why);
/* Answers the client's questions until it is gone, or says what is none. Where a question takes longer
 * than the client lives, the process ends in the middle of it: the registrar takes back what it held. */
void writer_serve(struct writer *self, const struct writer_client *client);
/* Gives back what the client has pinned and drafted. Also here the client's death ends the process. */
void writer_close(struct writer **self);

#endif
