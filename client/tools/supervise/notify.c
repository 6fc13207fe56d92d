/* client/tools/supervise/notify.c - see notify.h. */
#include "client/tools/supervise/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t number_of(const char *name)
{
    const char *text = getenv(name);
    char *end = NULL;
    if (text == NULL || text[0] < '0' || text[0] > '9') {
        return 0;
    }
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0' ? value : 0;
}

sl_err sup_notify_open(uint32_t main_pid, struct sup_notify *out, struct sl_error *why)
{
    const char *path = getenv("NOTIFY_SOCKET");
    *out = (struct sup_notify){.fd = -1, .address = {.sun_family = AF_UNIX}};
    if (path == NULL || path[0] == '\0') {
        return SL_OK;
    }
    size_t length = strlen(path);
    if ((path[0] != '/' && path[0] != '@') || length >= sizeof(out->address.sun_path)) {
        return sl_fail(
            why, SL_ERR_CONFIG,
            "NOTIFY_SOCKET '%.100s' is neither a path nor an abstract name of up to %zu bytes",
            path, sizeof(out->address.sun_path) - 1);
    }
    memcpy(out->address.sun_path, path, length);
    if (path[0] == '@') {
        out->address.sun_path[0] = '\0'; /* an abstract name has no terminating NUL */
    }
    out->address_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    uint64_t of_pid = number_of("WATCHDOG_PID");
    uint64_t usec = number_of("WATCHDOG_USEC");
    if ((of_pid == 0 || of_pid == main_pid) && usec <= UINT64_MAX / 1000) {
        out->watchdog_ns = usec * 1000;
    }
    out->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return out->fd >= 0 ? SL_OK : sl_fail_os(why, errno, "a socket for NOTIFY_SOCKET");
}

void sup_notify_close(struct sup_notify *notify)
{
    if (notify->fd >= 0) {
        (void)close(notify->fd);
        notify->fd = -1;
    }
}

sl_err sup_notify_send(const struct sup_notify *notify, const char *text, struct sl_error *why)
{
    if (notify->fd < 0) {
        return SL_OK;
    }
    ssize_t sent = sendto(notify->fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL,
                          (const struct sockaddr *)&notify->address, notify->address_bytes);
    return sent >= 0 ? SL_OK : sl_fail_os(why, errno, "send '%.40s' to NOTIFY_SOCKET", text);
}
