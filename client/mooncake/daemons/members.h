/* client/mooncake/daemons/members.h - the nodes of one cluster that know each other's keys, as a
 * directory: NODE.secret and NAME.pub as the transporter reads them (setting cluster_keys), `peers`
 * with their addresses (setting peers_file), `name` with this node's name.
 *
 * Thread-safe. Every file is written beside and renamed, so that a reader sees the old or the new
 * one. */
#ifndef SL_CLIENT_MOONCAKE_DAEMONS_MEMBERS_H
#define SL_CLIENT_MOONCAKE_DAEMONS_MEMBERS_H

#include "runtime/sl_config.h" /* sl_dir_make */

#define MC_MEMBERS_MAX 64u

struct mc_member {
    char name[32];     /* [A-Za-z0-9._-] */
    char key[41];      /* public key, Z85 */
    char control[129]; /* IP:PORT where it is asked; "": not known */
};
struct mc_members; /* opaque */

/* Makes the directory (0700) when it is not there, and name and keys of this node when it has none:
 * HOST-XXXXXX. Errors: SL_ERR_OS, SL_ERR_PERMISSION, SL_ERR_UNSUPPORTED (a ZeroMQ without CURVE),
 * SL_ERR_CORRUPT (its files). */
sl_err mc_members_open(const char *directory, struct mc_members **out, struct sl_error *why);
void mc_members_close(struct mc_members **members);
const char *mc_members_name(const struct mc_members *members);
const char *mc_members_key(const struct mc_members *members);
const char *mc_members_directory(const struct mc_members *members);
/* A node that proved to know the cluster's secret: one of that name is replaced. This node itself
 * is passed over. *changed (may be NULL): something is new. When there are MC_MEMBERS_MAX, the one
 * that was not added for longest makes room, if that is for the quiet time: its NAME.pub is
 * removed, which ends what it may here. Errors: SL_ERR_INVALID (name, key, address), SL_ERR_LIMIT
 * (all were heard of), SL_ERR_OS. */
sl_err mc_members_add(struct mc_members *members, const struct mc_member *member, bool *changed,
                      struct sl_error *why);
/* That node was heard of just now; nothing, when it is not known. */
void mc_members_heard(struct mc_members *members, const char *name);
/* How long a node may say nothing before it makes room; at first for ever. */
void mc_members_set_quiet(struct mc_members *members, uint64_t quiet_ns);
/* All but this node; at most MC_MEMBERS_MAX. */
uint32_t mc_members_list(struct mc_members *members, struct mc_member *out);

/* Writes a file of such a directory beside, syncs it and gives it its name: a power cut at any moment
 * leaves the old one or the new one. Errors: SL_ERR_OS, SL_ERR_INVALID (the path is too long). */
sl_err mc_file_put(const char *directory, const char *file, const char *text, struct sl_error *why);

#endif
