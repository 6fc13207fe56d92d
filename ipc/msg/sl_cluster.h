/* ipc/msg/sl_cluster.h - what the settings say of this node among others: asked by its registrar,
 * its transporter and by tools, so that they cannot differ. */
#ifndef SL_CLUSTER_H
#define SL_CLUSTER_H

#include "runtime/base/sl_config.h"

#define SL_CLUSTER_NAME_BYTES           32u
#define SL_CLUSTER_ADDRESS_BYTES        129u
#define SL_CLUSTER_FABRIC_ADDRESSES_MAX 16u
#define SL_CLUSTER_PEERS_MAX            64u /* asked by us, and those that ask us */

/* The node's name, among peers and in the directory: node_name, or the host's name up to its first
 * dot, and .INSTANCE unless that is "default". Errors: SL_ERR_CONFIG. */
sl_err sl_cluster_name(const struct sl_config *config, char out[SL_CLUSTER_NAME_BYTES],
                       struct sl_error *why);
/* directory = redis */
bool sl_cluster_is_guided(const struct sl_config *config);
/* This node reads from others: it has a fabric, and peers or a directory that names some. */
bool sl_cluster_reads(const struct sl_config *config);
/* It has sockets between nodes: it reads from others, or they may ask it. */
bool sl_cluster_wanted(const struct sl_config *config);
/* One entry of `peers`. */
struct sl_cluster_peer {
    char name[SL_CLUSTER_NAME_BYTES];       /* "": there are no more */
    char address[SL_CLUSTER_ADDRESS_BYTES]; /* HOST:PORT */
};
/* The entry at *at, which goes on behind it. Errors: SL_ERR_CONFIG (it is not NAME@HOST:PORT). */
sl_err sl_cluster_peer_next(const char **at, struct sl_cluster_peer *out, struct sl_error *why);
/* Whether lists, addresses and the node's name are well-formed, and the fabric has what it needs: a
 * transporter ends at others. Errors: SL_ERR_CONFIG, those of sl_nic_plan_here. */
sl_err sl_cluster_check(const struct sl_config *config, struct sl_error *why);
/* Splits HOST:PORT, HOST an IP address ([...] around IPv6). False: it is not of that form, or the
 * port is not 1..65535. *any: the address stands for all addresses of a machine. */
bool sl_cluster_address(const char *text, bool *any);

#endif
