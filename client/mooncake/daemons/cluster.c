/* client/mooncake/daemons/cluster.c - see cluster.h. */
#include "client/mooncake/daemons/cluster.h"

#include "ipc/sl_cluster.h"
#include "runtime/sl_clock.h"
#include "runtime/sl_parse.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define JOIN_NS       (10 * SL_NS_PER_S) /* for one answer */
#define JOIN_AGAIN_MS 5000
#define PORT_LEAST    10000u /* below are those of well-known services */
#define PORT_TRIES    256u

struct mc_cluster {
    char *secret;
    struct mc_members *members;
    char host[256]; /* of the master that is joined; "": none */
    uint16_t port;
    uint16_t control_port;
    char ip[64]; /* of this host */
    int end_fd;
    bool running;
    pthread_t thread;
    void (*said)(void *context, const char *text);
    void *context;
};

struct port_range {
    uint32_t first, last;
};

/* ---- address and port of this host ---- */

static bool ip_is_fine(const char *ip)
{
    char at[80];
    bool any = true;
    (void)snprintf(at, sizeof at, "%.64s:1", ip);
    return sl_cluster_address(at, &any) && !any;
}

/* The first address that is not of the loopback. */
static sl_err ip_find(char out[64], struct sl_error *why)
{
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list) != 0) {
        return sl_fail_os(why, errno, "network interfaces");
    }
    bool found = false;
    for (const struct ifaddrs *at = list; at != NULL && !found; at = at->ifa_next) {
        bool up = (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_LOOPBACK) == 0;
        if (up && at->ifa_addr != NULL && at->ifa_addr->sa_family == AF_INET) {
            const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)at->ifa_addr;
            found = inet_ntop(AF_INET, &in->sin_addr, out, 64) != NULL;
        }
    }
    freeifaddrs(list);
    return found ? SL_OK
                 : sl_fail(why, SL_ERR_CONFIG,
                           "this host has no IPv4 address for other hosts: set --cluster_address");
}

static sl_err ip_set(struct mc_cluster *cluster, const char *address, struct sl_error *why)
{
    if (address[0] == '\0') {
        return cluster->ip[0] != '\0' ? SL_OK : ip_find(cluster->ip, why);
    }
    if (!ip_is_fine(address)) {
        return sl_fail(why, SL_ERR_CONFIG, "--cluster_address: '%.64s' is no IP address", address);
    }
    (void)snprintf(cluster->ip, sizeof cluster->ip, "%.63s", address);
    return SL_OK;
}

/* The port of an earlier life, so that the node's settings stay what they were. */
static bool port_load(const char *path, uint16_t *port)
{
    char line[16] = "";
    FILE *file = fopen(path, "re");
    bool read = file != NULL && fgets(line, sizeof line, file) != NULL;
    uint64_t value = read ? sl_parse_leading(line) : 0;
    if (file != NULL) {
        (void)fclose(file);
    }
    *port = (uint16_t)value;
    return value >= 1 && value <= UINT16_MAX;
}

/* Ports that the system gives to outgoing connections: one that was kept for long may be taken when
 * the node comes back. */
static struct port_range ephemeral_ports(void)
{
    struct port_range range = {.first = 32768, .last = 60999}; /* the kernel's own default */
    char line[64] = "";
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    if (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char *rest = NULL;
        unsigned long first = strtoul(line, &rest, 10), last = strtoul(rest, NULL, 10);
        if (first >= 1 && first <= last && last <= UINT16_MAX) {
            range = (struct port_range){.first = (uint32_t)first, .last = (uint32_t)last};
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return range;
}

static bool port_is_ephemeral(const struct port_range *range, uint32_t port)
{
    return port >= range->first && port <= range->last;
}

/* port 0: any, which is told. */
static sl_err port_try(uint16_t *port, struct sl_error *why)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(*port)};
    socklen_t at_bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool fine = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 &&
                getsockname(fd, (struct sockaddr *)&at, &at_bytes) == 0;
    int code = errno;
    if (fd >= 0) {
        (void)close(fd);
    }
    *port = ntohs(at.sin_port);
    return fine ? SL_OK : sl_fail_os(why, code, "a free port");
}

/* A free one outside of the ephemeral range; where that leaves none, any. */
static sl_err port_choose(uint16_t *port, struct sl_error *why)
{
    const struct port_range range = ephemeral_ports();
    for (uint32_t i = 0; i < PORT_TRIES; i++) {
        uint16_t random = 0;
        if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) {
            return sl_fail_os(why, errno, "getrandom");
        }
        uint32_t tried = PORT_LEAST + random % (UINT16_MAX + 1 - PORT_LEAST);
        *port = (uint16_t)tried;
        if (!port_is_ephemeral(&range, tried) && port_try(port, NULL) == SL_OK) {
            return SL_OK;
        }
    }
    *port = 0;
    return port_try(port, why);
}

static sl_err port_set(struct mc_cluster *cluster, const char *directory, struct sl_error *why)
{
    char path[1200];
    (void)snprintf(path, sizeof path, "%.1100s/port", directory);
    const struct port_range range = ephemeral_ports();
    if (port_load(path, &cluster->control_port) &&
        !port_is_ephemeral(&range, cluster->control_port)) {
        return SL_OK;
    }
    sl_err err = port_choose(&cluster->control_port, why);
    char text[16];
    (void)snprintf(text, sizeof text, "%u\n", cluster->control_port);
    return err == SL_OK ? mc_file_put(directory, "port", text, why) : err;
}

/* ---- joining ---- */

static sl_err join_once(struct mc_cluster *cluster, bool *changed, struct sl_error *why)
{
    const struct mc_join ask = {.host = cluster->host,
                                .port = cluster->port,
                                .secret = cluster->secret,
                                .members = cluster->members,
                                .control_port = cluster->control_port,
                                .timeout_ns = JOIN_NS};
    char ip[64];
    sl_err err = mc_join_ask(&ask, ip, changed, why);
    if (err == SL_OK && cluster->ip[0] == '\0') {
        memcpy(cluster->ip, ip, sizeof ip);
    }
    return err;
}

static void say(const struct mc_cluster *cluster, const char *text)
{
    if (cluster->said != NULL) {
        cluster->said(cluster->context, text);
    }
}

static void *join_run(void *context)
{
    struct mc_cluster *cluster = context;
    struct pollfd end = {.fd = cluster->end_fd, .events = POLLIN};
    bool away = false;
    while (poll(&end, 1, JOIN_AGAIN_MS) == 0) {
        struct sl_error why = {0};
        char text[400];
        bool changed = false;
        sl_err err = join_once(cluster, &changed, &why);
        if (err != SL_OK && !away) {
            (void)snprintf(text, sizeof text, "the cluster's master is away: %s", why.text);
            say(cluster, text);
        } else if (err == SL_OK && away) {
            say(cluster, "the cluster's master is back");
        } else if (changed) {
            say(cluster, "another host joined the cluster");
        }
        away = err != SL_OK;
    }
    return NULL;
}

sl_err mc_cluster_start(struct mc_cluster *cluster, void (*said)(void *context, const char *text),
                        void *context, struct sl_error *why)
{
    if (cluster->host[0] == '\0') {
        return SL_OK;
    }
    cluster->said = said;
    cluster->context = context;
    cluster->end_fd = eventfd(0, EFD_CLOEXEC);
    int code =
        cluster->end_fd < 0 ? errno : pthread_create(&cluster->thread, NULL, join_run, cluster);
    cluster->running = code == 0;
    return code == 0 ? SL_OK : sl_fail_os(why, code, "a thread that joins again");
}

/* ---- open and close ---- */

/* A root that cannot be written to is no reason not to run; a directory in the wrong hands is. */
static const char *directory_choose(const struct mc_cluster_options *options)
{
    bool none = options->directory[0] == '\0' || sl_dir_make(options->directory, NULL) == SL_ERR_OS;
    return none && options->passing != NULL ? options->passing : options->directory;
}

sl_err mc_cluster_open(const struct mc_cluster_options *options, struct mc_cluster **out,
                       struct sl_error *why)
{
    char *secret = NULL;
    *out = NULL;
    sl_err err = mc_secret_get("MOONCAKE_CLUSTER_SECRET", &secret, why);
    if (err != SL_OK || (secret == NULL && options->join[0] == '\0')) {
        return err;
    }
    if (secret == NULL) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "--join needs the cluster's secret: MOONCAKE_CLUSTER_SECRET or "
                       "MOONCAKE_CLUSTER_SECRET_FILE, the same on all hosts");
    }
    struct mc_cluster *cluster = calloc(1, sizeof *cluster);
    if (cluster == NULL) {
        free(secret);
        return sl_fail(why, SL_ERR_NO_MEMORY, "cluster");
    }
    cluster->secret = secret;
    cluster->end_fd = -1;
    const char *directory = directory_choose(options);
    err = mc_members_open(directory, &cluster->members, why);
    err = err == SL_OK ? port_set(cluster, directory, why) : err;
    if (err == SL_OK) {
        /* What the master tells no longer makes room at once: the table has as many places as its. */
        mc_members_set_quiet(cluster->members, options->join[0] != '\0' ? 0 : options->quiet_ns);
    }
    if (err == SL_OK && options->join[0] != '\0') {
        bool changed = false;
        err = mc_join_parse(options->join, cluster->host, &cluster->port, why);
        err = err == SL_OK ? join_once(cluster, &changed, why) : err;
    }
    err = err == SL_OK ? ip_set(cluster, options->address, why) : err;
    if (err != SL_OK) {
        mc_cluster_close(&cluster);
        return err;
    }
    *out = cluster;
    return SL_OK;
}

void mc_cluster_close(struct mc_cluster **cluster)
{
    struct mc_cluster *gone = *cluster;
    const uint64_t one = 1;
    if (gone == NULL) {
        return;
    }
    *cluster = NULL;
    if (gone->running) {
        (void)!write(gone->end_fd, &one, sizeof one);
        (void)pthread_join(gone->thread, NULL);
    }
    if (gone->end_fd >= 0) {
        (void)close(gone->end_fd);
    }
    mc_members_close(&gone->members);
    if (gone->secret != NULL) {
        explicit_bzero(gone->secret, strlen(gone->secret));
    }
    free(gone->secret);
    free(gone);
}

/* ---- what others need of it ---- */

bool mc_cluster_setting(const struct mc_cluster *cluster, uint32_t number, const char **name,
                        char value[1024])
{
    static const char *const names[] = {"node_name",      "cluster_keys", "peers_file",
                                        "cluster_listen", "fabric",       "fabric_address",
                                        "peer_removes"};
    const char *directory = mc_members_directory(cluster->members);
    if (number >= sizeof names / sizeof *names) {
        return false;
    }
    *name = names[number];
    switch (number) {
    case 0:
        (void)snprintf(value, 1024, "%s", mc_members_name(cluster->members));
        break;
    case 1:
        (void)snprintf(value, 1024, "%s", directory);
        break;
    case 2:
        (void)snprintf(value, 1024, "%.1015s/peers", directory);
        break;
    case 3:
        (void)snprintf(value, 1024, "%s:%u", cluster->ip, cluster->control_port);
        break;
    case 4:
        (void)snprintf(value, 1024, "tcp");
        break;
    case 5:
        (void)snprintf(value, 1024, "%s", cluster->ip);
        break;
    default:
        (void)snprintf(value, 1024, "true");
        break;
    }
    return true;
}

void mc_cluster_serve(const struct mc_cluster *cluster, struct mc_join_server *server)
{
    server->secret = cluster->secret;
    server->members = cluster->members;
    server->control_port = cluster->control_port;
}
