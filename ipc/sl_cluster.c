/* ipc/sl_cluster.c - settings of a node among others. */
#include "ipc/sl_cluster.h"

#include "ipc/sl_msg.h"
#include "runtime/nics/nics.h"
#include "runtime/sl_address.h"

#include <arpa/inet.h>
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

/* NICs that ranks have. One that cannot be planned for is told where it is opened. */
static uint32_t nics_count(const struct sl_config *config)
{
    SL_AUTO(free) struct sl_nic_plan *plan = calloc(1, sizeof(*plan));
    bool planned = plan != NULL && sl_nic_plan_here(config, plan, NULL) == SL_OK;
    return planned ? SL_MIN(SL_MAX(plan->count, 1u), SL_CLUSTER_TRANSPORTERS_MAX) : 1;
}

uint32_t sl_cluster_transporters(const struct sl_config *config)
{
    uint32_t count = 1;
    bool verbs = strcmp(sl_config_text(config, SL_SET_fabric), "verbs") == 0;
    bool tcp = strcmp(sl_config_text(config, SL_SET_fabric), "tcp") == 0;
    if (!sl_cluster_wanted(config) ||
        !(verbs ? sl_config_bool(config, SL_SET_nic_processes)
                : tcp && sl_config_bool(config, SL_SET_fabric_processes))) {
        return 1;
    }
    if (verbs) {
        return nics_count(config);
    }
    for (const char *at = sl_config_text(config, SL_SET_fabric_address); *at != '\0'; at++) {
        count += *at == ',';
    }
    return SL_MIN(count, SL_CLUSTER_TRANSPORTERS_MAX);
}

bool sl_cluster_address(const char *text, bool *any)
{
    char host[64];
    struct in_addr v4;
    struct in6_addr v6;
    uint16_t port = 0;
    bool bracket = text[0] == '[';
    if (!sl_address_parse(text, host, sizeof(host), &port)) {
        return false;
    }
    if (!bracket && inet_pton(AF_INET, host, &v4) == 1) {
        *any = v4.s_addr == 0;
        return true;
    }
    static const struct in6_addr none;
    if (bracket && inet_pton(AF_INET6, host, &v6) == 1) {
        *any = memcmp(&v6, &none, sizeof(v6)) == 0;
        return true;
    }
    return false;
}
