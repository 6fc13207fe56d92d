/* client/gate/relay.h - engines of a client of another user, by a process that is a client of the node itself
 * (libsluice): it checks the messages of that client, says them in its own name, and hands the answers back.
 * Values travel between memory that the client lends and the node's own, by the node's swappers: they do not
 * pass here. With the process all engines of the client end. */
#ifndef SL_CLIENT_GATE_RELAY_H
#define SL_CLIENT_GATE_RELAY_H

#include "client/gate/writer.h"

struct relay; /* opaque; its functions are for one thread */

/* Errors: those of sl_client_open, SL_ERR_LIMIT (its user has as many as it may), SL_ERR_NO_MEMORY, SL_ERR_OS. */
sl_err relay_open(const struct writer_options *options, int socket_fd, struct relay **out,
                  struct sl_error *why);
/* Relays until the client is gone, or says what is none. */
void relay_serve(struct relay *self, const struct writer_client *client);
void relay_close(struct relay **self);

#endif
