/* client/mooncake/daemons/listen.h - TCP ports of the daemons, and who answers at their main port.
 *
 * Values and keys are never asked for over the network. The port is there so that probes which
 * connect find somebody, so that two masters do not take one name, and for nodes of other hosts
 * that join. Who connects gets one line of JSON. */
#ifndef SL_CLIENT_MOONCAKE_DAEMONS_LISTEN_H
#define SL_CLIENT_MOONCAKE_DAEMONS_LISTEN_H

#include "client/mooncake/daemons/join.h"

#define MC_LISTEN_BACKLOG 1024
#define MC_LOOPBACK       "127.0.0.1" /* where a port is bound that nobody gave an address */

/* Binds a port of this machine and listens. host: name or address, "" or "0.0.0.0" all of IPv4,
 * IPv6 with or without brackets; network_interface: "", or the one whose first address is taken
 * instead. Gives a close-on-exec, non-blocking descriptor. Errors: SL_ERR_EXISTS (somebody listens
 * there), SL_ERR_CONFIG (no such host or interface), SL_ERR_PERMISSION, SL_ERR_OS. */
sl_err mc_listen(const char *host, const char *network_interface, uint16_t port, int *fd,
                 struct sl_error *why);
/* "HOST:PORT" with brackets where HOST needs them. host of all addresses is replaced by the name of
 * this machine. */
void mc_address_text(const char *host, uint16_t port, char *out, size_t out_bytes);

/* Serves a main port: each connection has mc_join_serve on a thread of its own, at most MC_RPC_MAX
 * at a time, and ends within seconds whatever the other side does. Who has not shown the secret
 * gives way to the next who connects: the oldest of its address when that has a quarter of the
 * places, and the oldest of the address with the most when there are none left. */
#define MC_RPC_MAX 64u
struct mc_rpc; /* opaque */
/* Takes fd, also on failure; server is borrowed. Errors: SL_ERR_OS, SL_ERR_NO_MEMORY. */
sl_err mc_rpc_start(int fd, const struct mc_join_server *server, struct mc_rpc **out,
                    struct sl_error *why);
/* Cuts what is open and waits for the threads. */
void mc_rpc_stop(struct mc_rpc **rpc);

#endif
