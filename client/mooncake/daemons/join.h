/* client/mooncake/daemons/join.h - how the node of one host becomes a peer of those of other hosts:
 * by asking the master at its rpc port, knowing the cluster's secret.
 *
 * Three lines of JSON over TCP. The master begins: {"sluice": VERSION, "instance": NAME,
 * "challenge": HEX} (no challenge: it serves its own host alone). Who joins: {"join": TEXT, "mac":
 * HEX}, TEXT being {"name", "key", "port", "challenge"}; then the master: {"nodes": TEXT, "mac":
 * HEX}, TEXT a list of {"name", "key", "control"}, the master's own with "port" alone; or {"error":
 * TEXT}. A mac is HMAC-SHA256 with the secret over "join" or "nodes", the other side's challenge
 * and TEXT, each ended by a line feed. The address of who joins is the one that it comes from, the
 * master's the one at which it was reached. The secret itself and bytes of values never travel. */
#ifndef SL_CLIENT_MOONCAKE_DAEMONS_JOIN_H
#define SL_CLIENT_MOONCAKE_DAEMONS_JOIN_H

#include "client/mooncake/daemons/members.h"

#include <stdint.h>

/* The secret of an environment variable (MOONCAKE_CLUSTER_SECRET), or of the file that VARIABLE_FILE
 * names (its first line). *out NULL: none is set. The caller frees it. Errors: SL_ERR_CONFIG
 * (shorter than 16 bytes, a file that others may read). */
sl_err mc_secret_get(const char *variable, char **out, struct sl_error *why);

struct mc_join_server {
    const char *instance;       /* NULL: only the greeting's version */
    const char *secret;         /* NULL: nobody joins */
    struct mc_members *members; /* with a secret */
    uint16_t control_port;      /* of this node */
    uint64_t greet_ns;          /* for the line of who joins; 0: 3 s */
};
/* Greets, and lets one node join. Ends within about ten seconds whatever the other side does; fd
 * stays open. Any number of threads. known (may be NULL) is called as soon as the other side has
 * proved that it knows the secret. *changed: there is a new node. */
typedef void (*mc_join_known_fn)(void *context);
void mc_join_serve(int fd, const struct mc_join_server *server, mc_join_known_fn known,
                   void *context, bool *changed);

/* HOST:PORT, IPv6 in brackets, which host loses. Errors: SL_ERR_CONFIG. */
sl_err mc_join_parse(const char *text, char host[256], uint16_t *port, struct sl_error *why);

struct mc_join {
    const char *host; /* of the master */
    uint16_t port;
    const char *secret;
    struct mc_members *members;
    uint16_t control_port;
    uint64_t timeout_ns;
};
/* Joins, or joins again, and takes over who else is there. local_ip (64 bytes): this host's address
 * on the way there. Errors: SL_ERR_UNREACHABLE, SL_ERR_TIMEOUT, SL_ERR_PERMISSION (another secret,
 * or the master serves its own host alone), SL_ERR_PROTOCOL (no master of Sluice answers there),
 * SL_ERR_LIMIT. */
sl_err mc_join_ask(const struct mc_join *join, char local_ip[64], bool *changed,
                   struct sl_error *why);

#endif
