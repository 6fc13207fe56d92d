/* ipc/msg/sl_cluster.c - settings of a node in a cluster. */
#include "ipc/msg/sl_cluster.h"

#include "ipc/msg/sl_msg.h"
#include "runtime/base/sl_address.h"
#include "runtime/net/nics/nics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

sl_err sl_cluster_name(const struct sl_config *config, char out[SL_CLUSTER_NAME_BYTES],
                       struct sl_error *why)
{
    const char *set = sl_config_text(config, SL_SET_node_name);
    const char *instance = sl_config_text(config, SL_SET_instance);
    char host[256] = "", name[300];
    if (set[0] == '\0' && gethostname(host, sizeof(host) - 1) == 0) {
        host[strcspn(host, ".")] = '\0';
    }
    bool lone = set[0] != '\0' || strcmp(instance, "default") == 0;
    (void)snprintf(name, sizeof(name), "%.200s%s%.40s", set[0] != '\0' ? set : host,
                   lone ? "" : ".", lone ? "" : instance);
    if (!sl_actor_name_is_clean(name, strlen(name))) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "node_name: '%.80s' is not 1 to 31 of letters, digits, '.', '-' and '_'",
                       name);
    }
    (void)snprintf(out, SL_CLUSTER_NAME_BYTES, "%.31s", name);
    return SL_OK;
}

bool sl_cluster_is_guided(const struct sl_config *config)
{
    return strcmp(sl_config_text(config, SL_SET_directory), "redis") == 0;
}

bool sl_cluster_reads(const struct sl_config *config)
{
    bool keys = sl_config_text(config, SL_SET_cluster_keys)[0] != '\0' ||
                sl_config_bool(config, SL_SET_cluster_plaintext);
    return strcmp(sl_config_text(config, SL_SET_fabric), "off") != 0 &&
           (sl_config_text(config, SL_SET_peers)[0] != '\0' ||
            (keys && (sl_cluster_is_guided(config) ||
                      sl_config_text(config, SL_SET_peers_file)[0] != '\0')));
}

bool sl_cluster_wanted(const struct sl_config *config)
{
    return sl_cluster_reads(config) || sl_config_text(config, SL_SET_peers)[0] != '\0' ||
           sl_config_text(config, SL_SET_cluster_listen)[0] != '\0';
}

bool sl_cluster_address(const char *text, bool *any)
{
    unsigned char ip[sizeof(struct in6_addr)] = {0};
    static const unsigned char none[sizeof(ip)];
    char host[64];
    uint16_t port = 0;
    if (!sl_address_parse(text, host, sizeof(host), &port) ||
        inet_pton(text[0] == '[' ? AF_INET6 : AF_INET, host, ip) != 1) {
        return false;
    }
    *any = memcmp(ip, none, sizeof(ip)) == 0;
    return true;
}

/* A name, an IPv4 address, or an IPv6 address with or without a zone: ZeroMQ accepts only these. */
static bool is_host(const char *host, bool bracket)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_";
    char ip[SL_CLUSTER_ADDRESS_BYTES];
    struct in6_addr v6;
    size_t length = strcspn(host, "%");
    const char *zone = host[length] == '\0' ? "" : host + length + 1;
    if (!bracket && strchr(host, ':') == NULL) {
        return host[strspn(host, letters)] == '\0';
    }
    (void)snprintf(ip, sizeof(ip), "%.*s", (int)length, host);
    return inet_pton(AF_INET6, ip, &v6) == 1 && zone[strspn(zone, letters)] == '\0';
}

sl_err sl_cluster_peer_next(const char **at, struct sl_cluster_peer *out, struct sl_error *why)
{
    const char *from = *at + strspn(*at, " ,");
    size_t length = strcspn(from, ",");
    *at = from + length;
    while (length > 0 && from[length - 1] == ' ') {
        length--;
    }
    char host[SL_CLUSTER_ADDRESS_BYTES];
    uint16_t port = 0;
    const char *sign = memchr(from, '@', length);
    size_t name = sign != NULL ? (size_t)(sign - from) : 0;
    size_t address = sign != NULL ? length - name - 1 : 0;
    *out = (struct sl_cluster_peer){0};
    if (length == 0) {
        return SL_OK;
    }
    if (sign != NULL && !sl_actor_name_is_clean(from, name)) {
        return sl_fail(why, SL_ERR_CONFIG, "peers: '%.*s' is not a node name",
                       (int)SL_MIN(name, (size_t)40), from);
    }
    if (sign != NULL && address >= sizeof(out->address)) {
        return sl_fail(why, SL_ERR_CONFIG, "peers: the address of '%.*s' is too long", (int)name,
                       from);
    }
    struct sl_cluster_peer peer = {0};
    memcpy(peer.name, from, name);
    memcpy(peer.address, from + length - address, address);
    if (sign == NULL || !sl_address_parse(peer.address, host, sizeof(host), &port) ||
        !is_host(host, peer.address[0] == '[')) {
        return sl_fail(why, SL_ERR_CONFIG, "peers: '%.*s' is not NAME@HOST:PORT",
                       (int)SL_MIN(length, (size_t)100), from);
    }
    *out = peer;
    return SL_OK;
}

static sl_err peers_check(const struct sl_config *config, const char *node, struct sl_error *why)
{
    struct sl_cluster_peer peers[SL_CLUSTER_PEERS_MAX];
    uint32_t count = 0;
    bool own = false;
    for (const char *at = sl_config_text(config, SL_SET_peers);;) {
        struct sl_cluster_peer peer;
        sl_err err = sl_cluster_peer_next(&at, &peer, why);
        if (err != SL_OK || peer.name[0] == '\0') {
            return err;
        }
        bool is_own = strcmp(peer.name, node) == 0, twice = is_own && own;
        for (uint32_t i = 0; i < count && !twice; i++) {
            twice = strcmp(peers[i].name, peer.name) == 0;
        }
        if (twice) {
            return sl_fail(why, SL_ERR_CONFIG, "peers: '%s' is listed twice", peer.name);
        }
        if (is_own) {
            own = true; /* all nodes may have the same list */
            continue;
        }
        if (count == SL_CLUSTER_PEERS_MAX) {
            return sl_fail(why, SL_ERR_CONFIG, "peers: more than %u", SL_CLUSTER_PEERS_MAX);
        }
        peers[count++] = peer;
    }
}

/* Each entry is IP or IP:PORT. */
static sl_err fabric_addresses_check(const struct sl_config *config, struct sl_error *why)
{
    const char *list = sl_config_text(config, SL_SET_fabric_address);
    for (uint32_t count = 1; list[0] != '\0'; count++) {
        char text[SL_CLUSTER_ADDRESS_BYTES], host[SL_CLUSTER_ADDRESS_BYTES];
        const char *port_text = NULL;
        uint16_t port = 0;
        struct sockaddr_storage address;
        socklen_t address_bytes = 0;
        size_t length = strcspn(list, ",");
        const char *from = list + strspn(list, " ");
        int shown = (int)SL_MAX(list + length - from, (ptrdiff_t)0);
        while (shown > 0 && from[shown - 1] == ' ') {
            shown--;
        }
        (void)snprintf(text, sizeof(text), "%.*s", shown, from);
        if (!sl_address_split(text, SL_PORT_OPTIONAL, host, sizeof(host), &port_text) ||
            (port_text != NULL && !sl_port_parse(port_text, &port)) ||
            !sl_address_ip(host, port, &address, &address_bytes)) {
            return sl_fail(why, SL_ERR_CONFIG, "fabric_address: entry %u, '%.80s', is not IP:PORT",
                           count, text);
        }
        if (count > SL_CLUSTER_FABRIC_ADDRESSES_MAX) {
            return sl_fail(why, SL_ERR_CONFIG, "fabric_address: more than %u addresses",
                           SL_CLUSTER_FABRIC_ADDRESSES_MAX);
        }
        list += length;
        if (list[0] == ',' && *++list == '\0') {
            return sl_fail(why, SL_ERR_CONFIG, "fabric_address: entry %u is empty", count + 1);
        }
    }
    return SL_OK;
}

/* Checks the addresses at which peers reach this node. */
static sl_err addresses_check(const struct sl_config *config, struct sl_error *why)
{
    const char *listen = sl_config_text(config, SL_SET_cluster_listen);
    const char *own_address = sl_config_text(config, SL_SET_cluster_address);
    char host[SL_CLUSTER_ADDRESS_BYTES];
    uint16_t port = 0;
    bool any = false;
    if (listen[0] != '\0' && !sl_address_parse(listen, host, sizeof(host), &port)) {
        return sl_fail(why, SL_ERR_CONFIG, "cluster_listen: '%.100s' is not HOST:PORT", listen);
    }
    own_address = own_address[0] != '\0' ? own_address : listen;
    if (sl_cluster_is_guided(config) && listen[0] != '\0' &&
        (!sl_cluster_address(own_address, &any) || any)) {
        return sl_fail(
            why, SL_ERR_CONFIG,
            "cluster_address: '%.100s' is not an IP:PORT at which other nodes reach this "
            "one",
            own_address);
    }
    return SL_OK;
}

/* Checks what a transporter opens even without other nodes. */
static sl_err fabric_check(const struct sl_config *config, struct sl_error *why)
{
    const char *fabric = sl_config_text(config, SL_SET_fabric);
    if (strcmp(fabric, "off") == 0 && sl_cluster_wanted(config)) {
        return sl_fail(why, SL_ERR_CONFIG, "cluster_listen and peers need a fabric: set fabric");
    }
    if (strcmp(fabric, "verbs") == 0) {
        SL_AUTO(free) struct sl_nic_plan *plan = calloc(1, sizeof(*plan));
        SL_AUTO(free) struct sl_nics *nics = calloc(1, sizeof(*nics));
        if (plan == NULL || nics == NULL) {
            return sl_fail_os(why, ENOMEM, "NICs"); /* NOLINT(clang-analyzer-unix.Malloc) */
        }
        sl_err err = sl_nic_plan_here(config, plan, why);
        sl_nics_scan(SL_SYSFS, nics);
        return err == SL_OK && nics->count == 0
                   ? sl_fail(why, SL_ERR_CONFIG, "fabric = verbs, and there is no RDMA device")
                   : err;
    }
    return strcmp(fabric, "tcp") == 0 ? fabric_addresses_check(config, why) : SL_OK;
}

sl_err sl_cluster_check(const struct sl_config *config, struct sl_error *why)
{
    char node[SL_CLUSTER_NAME_BYTES];
    sl_err err = fabric_check(config, why);
    if (err != SL_OK || !sl_cluster_wanted(config)) {
        return err;
    }
    err = sl_cluster_name(config, node, why);
    err = err == SL_OK ? peers_check(config, node, why) : err;
    return err == SL_OK ? addresses_check(config, why) : err;
}
