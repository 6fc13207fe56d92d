/* ipc/msg/sl_cluster.h - the settings of this node in a cluster. Registrar, transporter and tools
 * all read them here, so they agree. */
#ifndef SL_CLUSTER_H
#define SL_CLUSTER_H

#include "runtime/base/sl_config.h"

#define SL_CLUSTER_NAME_BYTES           32u
#define SL_CLUSTER_ADDRESS_BYTES        129u
#define SL_CLUSTER_FABRIC_ADDRESSES_MAX 16u
#define SL_CLUSTER_PEERS_MAX            64u /* peers that we ask and peers that ask us */

/* Gives the node's name among peers and in the directory: node_name, or the host's name up to its
 * first dot, with .INSTANCE unless that is "default". Errors: SL_ERR_CONFIG. */
sl_err sl_cluster_name(const struct sl_config *config, char out[SL_CLUSTER_NAME_BYTES],
                       struct sl_error *why);
/* directory = redis */
bool sl_cluster_is_guided(const struct sl_config *config);
/* Whether this node reads from others: it has a fabric, and peers or a directory. */
bool sl_cluster_reads(const struct sl_config *config);
/* Whether it has sockets to other nodes: it reads from them, or they may ask it. */
bool sl_cluster_wanted(const struct sl_config *config);
/* One entry of `peers`. */
struct sl_cluster_peer {
    char name[SL_CLUSTER_NAME_BYTES];       /* "": the end of the list */
    char address[SL_CLUSTER_ADDRESS_BYTES]; /* HOST:PORT */
};
/* Gives the entry at *at and moves *at past it. Errors: SL_ERR_CONFIG (not NAME@HOST:PORT). */
sl_err sl_cluster_peer_next(const char **at, struct sl_cluster_peer *out, struct sl_error *why);
/* Checks that lists, addresses and the node's name are well-formed, and that the fabric has what it
 * needs; a transporter refuses to start otherwise. Errors: SL_ERR_CONFIG, those of
 * sl_nic_plan_here. */
sl_err sl_cluster_check(const struct sl_config *config, struct sl_error *why);
/* Checks that text is HOST:PORT, with HOST an IP address (IPv6 in [...]) and a port of 1..65535.
 * *any: it means all addresses of the machine. */
bool sl_cluster_address(const char *text, bool *any);

#endif
