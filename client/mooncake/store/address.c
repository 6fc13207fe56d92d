/* client/mooncake/store/address.c - which node stands behind a master's address, and the name of a
 * segment. */
#include "client/mooncake/store/instance.h"
#include "client/mooncake/store/internal.h"
#include "runtime/sl_address.h"
#include "runtime/sl_parse.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HOST_BYTES          256u
#define MASTER_PORT_DEFAULT 50051u
#define CLIENT_PORT_DEFAULT 50052u
#define PORT_MIN_DEFAULT    12300u
#define PORT_MAX_DEFAULT    14300u
#define PORT_TRIES_DEFAULT  20u
#define PORT_TRIES_MAX      10000u
#define LISTENS_MS          200 /* until a process of this machine has taken a connection */

uint64_t store_random(void)
{
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != (ssize_t)sizeof number) {
        struct timespec now; /* no entropy yet: different enough, nothing here is a secret */
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        number = (uint64_t)now.tv_nsec * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)getpid();
    }
    return number;
}

/* ---- "host:port" ---- */

/* host without brackets. */
static bool address_split(const char *address, uint32_t port_default, char host[HOST_BYTES],
                          uint32_t *port)
{
    const char *text = NULL;
    uint16_t number = 0;
    if (!sl_address_split(address, SL_PORT_OPTIONAL, host, HOST_BYTES, &text) || host[0] == '\0' ||
        (text != NULL && (!sl_port_parse(text, &number) || number == 0))) {
        return false;
    }
    *port = text != NULL ? number : port_default;
    return true;
}

bool store_host_has_port(const char *host)
{
    char name[HOST_BYTES];
    const char *port = NULL;
    return sl_address_split(host, SL_PORT_OPTIONAL, name, sizeof name, &port) && port != NULL;
}

/* ---- is it this machine? ---- */

static bool same_address(const struct sockaddr *left, const struct sockaddr *right)
{
    if (left->sa_family != right->sa_family) {
        return false;
    }
    if (left->sa_family == AF_INET) {
        return ((const struct sockaddr_in *)(const void *)left)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)(const void *)right)->sin_addr.s_addr;
    }
    return left->sa_family == AF_INET6 &&
           memcmp(&((const struct sockaddr_in6 *)(const void *)left)->sin6_addr,
                  &((const struct sockaddr_in6 *)(const void *)right)->sin6_addr,
                  sizeof(struct in6_addr)) == 0;
}

static bool address_is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)address;
        uint32_t number = ntohl(in->sin_addr.s_addr);
        return number >> 24 == 127 || number == INADDR_ANY;
    }
    if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)(const void *)address;
        return IN6_IS_ADDR_LOOPBACK(&in->sin6_addr) || IN6_IS_ADDR_UNSPECIFIED(&in->sin6_addr);
    }
    return false;
}

static bool address_is_ours(const struct sockaddr *address, const struct ifaddrs *ours)
{
    if (address_is_loopback(address)) {
        return true;
    }
    for (const struct ifaddrs *at = ours; at != NULL; at = at->ifa_next) {
        if (at->ifa_addr != NULL && same_address(at->ifa_addr, address)) {
            return true;
        }
    }
    return false;
}

static bool host_is_here(const char *host)
{
    char own[HOST_BYTES] = "";
    if (strcasecmp(host, "localhost") == 0 ||
        (gethostname(own, sizeof own - 1) == 0 && strcasecmp(host, own) == 0)) {
        return true;
    }
    struct addrinfo *found = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    if (getaddrinfo(host, NULL, &hints, &found) != 0) {
        return false;
    }
    struct ifaddrs *ours = NULL;
    bool here = false;
    if (getifaddrs(&ours) != 0) {
        ours = NULL;
    }
    for (const struct addrinfo *at = found; at != NULL && !here; at = at->ai_next) {
        here = address_is_ours(at->ai_addr, ours);
    }
    if (ours != NULL) {
        freeifaddrs(ours);
    }
    freeaddrinfo(found);
    return here;
}

/* ---- the node ---- */

sl_err store_instance_of(const char *master, char instance[64], struct sl_error *why)
{
    const char *set = getenv("SLUICE_INSTANCE");
    if (set != NULL && set[0] != '\0') {
        instance[0] = '\0';
        return SL_OK;
    }
    char host[HOST_BYTES];
    uint32_t port;
    if (!address_split(master, MASTER_PORT_DEFAULT, host, &port)) {
        return sl_fail(why, SL_ERR_CONFIG, "master_server_addr '%.128s' is not host:port", master);
    }
    if (host_is_here(host)) {
        mc_instance_here(port, instance);
    } else {
        mc_instance_joined(host, port, instance);
    }
    return SL_OK;
}

/* Whether a process of this machine listens there, of whatever user or container. */
static bool somebody_listens(uint32_t port)
{
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool listens = fd >= 0 && connect(fd, (const struct sockaddr *)&at, sizeof at) == 0;
    if (fd >= 0 && !listens && errno == EINPROGRESS) {
        struct pollfd one = {.fd = fd, .events = POLLOUT};
        int code = ECONNREFUSED;
        socklen_t code_bytes = sizeof code;
        listens = poll(&one, 1, LISTENS_MS) == 1 &&
                  getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &code_bytes) == 0 && code == 0;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return listens;
}

void store_instance_advise(const char *master, struct sl_error *why)
{
    const char *set = getenv("SLUICE_INSTANCE");
    char host[HOST_BYTES];
    uint32_t port;
    if ((set != NULL && set[0] != '\0') ||
        !address_split(master, MASTER_PORT_DEFAULT, host, &port)) {
        return;
    }
    if (host_is_here(host) && somebody_listens(port)) {
        (void)sl_fail(why, SL_ERR_UNREACHABLE,
                      "somebody listens at port %u, but no node of this user is seen here: "
                      "mooncake_master has to run as the same user, with the same /dev/shm, "
                      "/tmp (or XDG_RUNTIME_DIR) and process numbers",
                      port);
    } else if (host_is_here(host)) {
        (void)sl_fail(why, SL_ERR_UNREACHABLE,
                      "no master runs here at port %u: start mooncake_master --port %u", port,
                      port);
    } else {
        (void)sl_fail(
            why, SL_ERR_UNREACHABLE,
            "master '%.80s' is another machine's, and no node of this one joined it: start "
            "mooncake_master --join %.80s here",
            host, master);
    }
}

sl_err store_instance_of_client(const char *server, char instance[64], struct sl_error *why)
{
    char host[HOST_BYTES], path[1100];
    uint32_t port;
    if (!address_split(server, CLIENT_PORT_DEFAULT, host, &port)) {
        return sl_fail(why, SL_ERR_CONFIG, "server_address '%.128s' is not host:port", server);
    }
    if (!host_is_here(host)) {
        return sl_fail(why, SL_ERR_UNREACHABLE, "mooncake_client '%.128s' is not on this machine",
                       server);
    }
    const char *base = getenv("XDG_RUNTIME_DIR");
    (void)snprintf(path, sizeof path, "%.900s/sluice-%u/mooncake-client-%u",
                   base != NULL && base[0] == '/' ? base : "/tmp", (unsigned)geteuid(), port);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return sl_fail_os(why, errno, "no mooncake_client at port %u: '%.100s'", port, path);
    }
    char line[64] = "";
    bool read = fgets(line, sizeof line, file) != NULL;
    (void)fclose(file);
    line[strcspn(line, "\r\n")] = '\0';
    if (!read || line[0] == '\0') {
        return sl_fail(why, SL_ERR_UNREACHABLE, "'%.100s' names no node", path);
    }
    memcpy(instance, line, sizeof line);
    return SL_OK;
}

/* ---- the segment's name ---- */

static uint32_t environment_u32(const char *name, uint32_t otherwise, uint32_t max)
{
    const char *text = getenv(name);
    uint64_t value = otherwise;
    if (text != NULL) {
        (void)sl_parse_within(text, 1, max, &value);
    }
    return (uint32_t)value;
}

uint32_t store_name_tries(void)
{
    return environment_u32("MC_STORE_CLIENT_SETUP_RETRIES", PORT_TRIES_DEFAULT, PORT_TRIES_MAX);
}

/* Holds the port on all addresses: what is bound and does not listen keeps others away as well. */
static int port_bind(uint32_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)port),
                                        .sin_addr.s_addr = htonl(INADDR_ANY)};
    if (fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        int code = errno;
        (void)close(fd);
        errno = code;
        return -1;
    }
    return fd;
}

sl_err store_name_take(const char *host, bool given, uint64_t turn, char name[SL_STORE_NAME_BYTES],
                       int *port_fd, struct sl_error *why)
{
    char bare[HOST_BYTES];
    uint32_t port = 0;
    if (!address_split(host, 1, bare, &port) || strlen(bare) + 10 > SL_STORE_NAME_BYTES) {
        return sl_fail(why, SL_ERR_CONFIG, "local_hostname '%.128s' is not host or host:port",
                       host);
    }
    if (!given) {
        uint32_t low = environment_u32("MC_STORE_CLIENT_MIN_PORT", PORT_MIN_DEFAULT, UINT16_MAX);
        uint32_t high = environment_u32("MC_STORE_CLIENT_MAX_PORT", PORT_MAX_DEFAULT, UINT16_MAX);
        if (low > high) {
            return sl_fail(why, SL_ERR_CONFIG, "ports %u to %u are none", low, high);
        }
        port = low + (uint32_t)(turn % (high - low + 1));
    }
    int fd = port_bind(port);
    if (fd < 0) {
        int code = errno;
        return code == EADDRINUSE ? sl_fail(why, SL_ERR_EXISTS, "port %u is taken", port)
               : code == EACCES ? sl_fail(why, SL_ERR_EXISTS, "port %u is not for this user", port)
                                : sl_fail_os(why, code, "port %u of '%.100s'", port, host);
    }
    bool brackets = strchr(bare, ':') != NULL;
    (void)snprintf(name, SL_STORE_NAME_BYTES, "%s%.240s%s:%u", brackets ? "[" : "", bare,
                   brackets ? "]" : "", port);
    *port_fd = fd;
    return SL_OK;
}
