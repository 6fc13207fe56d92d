/* actors/transporter/control/connections.h - limits the number of connections to the control port.
 *
 * ZeroMQ accepts every connection and keeps it until its handshake fails or times out. A socket
 * monitor reports each connection by its descriptor, so this file counts them. A connection is
 * unauthenticated until its first frame, which proves its key. Unauthenticated connections displace
 * each other (runtime/net/sl_unauth.h). Each key has a bounded number of authenticated
 * connections: a new one displaces the oldest. One thread. */
#ifndef SL_TRANSPORTER_CONTROL_CONNECTIONS_H
#define SL_TRANSPORTER_CONTROL_CONNECTIONS_H

#include "runtime/base/sl_error.h"

struct control_connections; /* opaque */
struct control_connections_options {
    uint32_t unauthenticated_max; /* unauthenticated in all, 1.. */
    uint32_t of_address_max;      /* unauthenticated of one address, 1.. */
    uint32_t keys_max;            /* keys are numbered 0..keys_max-1 */
    uint32_t of_key_max;          /* authenticated connections of one key, 1.. */
};
/* Watches a bound ROUTER; borrows context and router. Errors: SL_ERR_NO_MEMORY, SL_ERR_OS. */
sl_err control_connections_open(void *context, void *router,
                                const struct control_connections_options *options,
                                struct control_connections **out, struct sl_error *why);
/* Call before the router is closed. */
void control_connections_close(struct control_connections **unauth);
/* Gives the monitor socket; its descriptor (ZMQ_FD) becomes readable when step has work. */
void *control_connections_monitor(const struct control_connections *unauth);
/* Processes pending events. Gives the number of connections that were closed. */
uint32_t control_connections_step(struct control_connections *unauth);
/* A frame with this key arrived on connection fd, which is now authenticated. Gives the number of
 * connections that were closed. */
uint32_t control_connections_proved(struct control_connections *unauth, int fd, uint32_t key);
/* The key was removed: closes its connections. Gives the number of connections that were closed. */
uint32_t control_connections_key_removed(struct control_connections *unauth, uint32_t key);

#endif
