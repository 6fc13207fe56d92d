/* client/tools/supervise/notify.h - tells systemd how a service is: sd_notify's protocol, a
 * datagram of lines NAME=VALUE to the socket that the environment names. libsystemd would be a
 * dependency of all packages, wheels too, for one sendto. */
#ifndef SL_CLIENT_SUPERVISE_NOTIFY_H
#define SL_CLIENT_SUPERVISE_NOTIFY_H

#include "runtime/base/sl_error.h"

#include <sys/socket.h>
#include <sys/un.h>

struct sup_notify {
    int fd; /* -1: nobody wants to know */
    struct sockaddr_un address;
    socklen_t address_bytes;
    uint64_t watchdog_ns; /* WATCHDOG=1 is wanted more often than this; 0: never */
};

/* From $NOTIFY_SOCKET, $WATCHDOG_USEC and $WATCHDOG_PID, of which the last must be main_pid or not
 * set. No socket is no error. Errors: SL_ERR_CONFIG (a kind of address that is not of this machine,
 * or too long), SL_ERR_OS. */
sl_err sup_notify_open(uint32_t main_pid, struct sup_notify *out, struct sl_error *why);
void sup_notify_close(struct sup_notify *notify);
/* Does not wait. Errors: those of the system (nobody is there, its queue is full). */
sl_err sup_notify_send(const struct sup_notify *notify, const char *text, struct sl_error *why);

#endif
