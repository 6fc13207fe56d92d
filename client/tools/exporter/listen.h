/* client/tools/exporter/listen.h - listens at a TCP port of this machine. */
#ifndef SL_CLIENT_EXPORTER_LISTEN_H
#define SL_CLIENT_EXPORTER_LISTEN_H

#include "runtime/base/sl_error.h"

#define MC_LISTEN_BACKLOG 1024

/* Binds a port and listens. host: a name or address; "" or "0.0.0.0": all of IPv4; IPv6 with or
 * without brackets. Gives a close-on-exec, non-blocking descriptor. Errors: SL_ERR_EXISTS (another
 * process listens there), SL_ERR_CONFIG (no such host), SL_ERR_PERMISSION, SL_ERR_OS. */
sl_err tcp_listen(const char *host, uint16_t port, int *fd, struct sl_error *why);

#endif
