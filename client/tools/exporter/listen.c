/* client/tools/exporter/listen.c - see listen.h. */
#include "client/tools/exporter/listen.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HOST_BYTES 256u

static sl_err address_listen(const struct addrinfo *address, int *out)
{
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return SL_ERR_OS;
    }
    const int on = 1; /* connections of an earlier process may be in TIME_WAIT */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(fd, address->ai_addr, address->ai_addrlen) != 0 ||
        listen(fd, MC_LISTEN_BACKLOG) != 0) {
        int code = errno;
        (void)close(fd);
        errno = code;
        return SL_ERR_OS;
    }
    *out = fd;
    return SL_OK;
}

sl_err tcp_listen(const char *host, uint16_t port, int *fd, struct sl_error *why)
{
    char name[HOST_BYTES];
    char service[8];
    size_t length = strlen(host);
    bool brackets = length >= 2 && host[0] == '[' && host[length - 1] == ']';
    (void)snprintf(name, sizeof name, "%.*s", (int)(brackets ? length - 2 : length),
                   brackets ? host + 1 : host);
    (void)snprintf(service, sizeof service, "%u", port);
    const char *node = name[0] == '\0' ? "0.0.0.0" : name;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    int failed = getaddrinfo(node, service, &hints, &found);
    if (failed != 0) {
        return sl_fail(why, SL_ERR_CONFIG, "'%.150s': %s", node, gai_strerror(failed));
    }
    sl_err err = SL_ERR_OS;
    for (const struct addrinfo *at = found; err != SL_OK && at != NULL; at = at->ai_next) {
        err = address_listen(at, fd);
    }
    int code = errno;
    freeaddrinfo(found);
    if (err == SL_OK) {
        return SL_OK;
    }
    return code == EADDRINUSE
               ? sl_fail(why, SL_ERR_EXISTS, "port %u of %.100s is in use by another process", port,
                         node)
               : sl_fail_os(why, code, "listen at port %u of %.100s", port, node);
}
