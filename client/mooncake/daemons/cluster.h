/* client/mooncake/daemons/cluster.h - this host's node among those of other hosts that know one
 * secret (join.h). Without a secret there is none: nothing listens for other hosts. */
#ifndef SL_CLIENT_MOONCAKE_DAEMONS_CLUSTER_H
#define SL_CLIENT_MOONCAKE_DAEMONS_CLUSTER_H

#include "client/mooncake/daemons/join.h"

struct mc_cluster; /* opaque */

struct mc_cluster_options {
    const char *directory; /* of keys, peers and the port: made, 0700 */
    const char *passing;   /* instead, where that cannot be made; NULL: then it is an error */
    uint64_t quiet_ns;     /* of a master: how long a node that says nothing keeps its place */
    const char *address;   /* IP at which other hosts reach this one; "": found */
    const char *join;      /* HOST:PORT of the master that is joined; "": this one is the master */
};
/* *out NULL: there is no secret, and nothing to join. Joining waits for the master 10 s at most; it
 * tells at which address this host is reached. Errors: SL_ERR_CONFIG (join without a secret, no
 * address, a bad one), those of mc_secret_get, mc_members_open and mc_join_ask. */
sl_err mc_cluster_open(const struct mc_cluster_options *options, struct mc_cluster **out,
                       struct sl_error *why);
void mc_cluster_close(struct mc_cluster **cluster);

/* Settings of the node, by number from 0 on. False: there are no more. */
bool mc_cluster_setting(const struct mc_cluster *cluster, uint32_t number, const char **name,
                        char value[1024]);
/* For mc_join_serve: fills secret, members and control_port. Borrowed. */
void mc_cluster_serve(const struct mc_cluster *cluster, struct mc_join_server *server);

/* Joins again every few seconds, in a thread of its own, so that each hears of those that came
 * later. Does nothing on a master. said: told when what it hears changes (may be NULL). Errors:
 * SL_ERR_OS. */
sl_err mc_cluster_start(struct mc_cluster *cluster, void (*said)(void *context, const char *text),
                        void *context, struct sl_error *why);

#endif
