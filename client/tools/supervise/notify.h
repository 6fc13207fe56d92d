/* client/tools/supervise/notify.h - reports the state of a service to systemd by sd_notify's
 * protocol: a datagram of lines NAME=VALUE to $NOTIFY_SOCKET. libsystemd would be a dependency of
 * all packages, including wheels, for one sendto. */
#ifndef SL_CLIENT_SUPERVISE_NOTIFY_H
#define SL_CLIENT_SUPERVISE_NOTIFY_H

#include "runtime/base/sl_error.h"

#include <sys/socket.h>
#include <sys/un.h>

struct sup_notify {
    int fd; /* -1: no NOTIFY_SOCKET */
    struct sockaddr_un address;
    socklen_t address_bytes;
    uint64_t watchdog_ns; /* systemd expects WATCHDOG=1 within this; 0: never */
};

/* Opens it from $NOTIFY_SOCKET, $WATCHDOG_USEC and $WATCHDOG_PID, which must be main_pid or unset.
 * A missing NOTIFY_SOCKET is no error. Errors: SL_ERR_CONFIG (an address that is too long, or
 * neither a path nor abstract), SL_ERR_OS. */
sl_err sup_notify_open(uint32_t main_pid, struct sup_notify *out, struct sl_error *why);
void sup_notify_close(struct sup_notify *notify);
/* Never blocks. Errors: those of the system (no receiver, its queue is full). */
sl_err sup_notify_send(const struct sup_notify *notify, const char *text, struct sl_error *why);

#endif
