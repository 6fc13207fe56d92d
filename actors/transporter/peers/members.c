/* actors/transporter/peers/members.c - makes members of the directory peers.
 *
 * The directory's server is not trusted. It lists nodes and their addresses. Only the key files
 * decide which of them are connected, and a node is identified by its key. */
#include "actors/transporter/peers/peers.h"

#include "ipc/msg/sl_cluster.h"

#include <stdio.h>
#include <string.h>

#define MEMBERS_NS      (5 * SL_NS_PER_S) /* a key file may have been added */
#define MEMBERS_SOON_NS SL_NS_PER_S       /* shortest interval, however often the table changes */

/* Marks peers that are members. Gives the number of members. */
static uint32_t members_mark(struct transporter *self)
{
    const struct sl_directory_member *members = NULL;
    uint32_t count = self->guide.members(self->guide.context, &members);
    for (uint32_t i = 0; i < self->peer_count; i++) {
        self->peers[i].member = false;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct tr_peer *peer = tr_peer_find(self, members[i].name);
        if (peer != NULL) {
            peer->member = true;
        }
    }
    return count;
}

void tr_members_changed(void *context)
{
    struct transporter *self = context;
    sl_log_write(self->env->log, SL_LOG_INFO, 0, "directory: %u other nodes", members_mark(self));
    self->members_due_ns = SL_MIN(self->members_due_ns, self->members_seen_ns + MEMBERS_SOON_NS);
    self->env->ops->wake_at(self->env, self->members_due_ns);
}

static bool is_reachable(const char *address)
{
    bool any = false;
    return sl_cluster_address(address, &any) && !any;
}

/* Whether the member has a valid name that is not ours. */
static bool member_counts(const struct transporter *self, const struct sl_directory_member *member)
{
    return sl_actor_name_is_clean(member->name, strlen(member->name)) &&
           strcmp(member->name, self->node) != 0;
}

const char *tr_member_state(const struct transporter *self,
                            const struct sl_directory_member *member)
{
    return !member_counts(self, member)                         ? "no name"
           : !is_reachable(member->control)                     ? "no address"
           : tr_peer_has_key(self, member->name, NULL) != SL_OK ? "no key"
           : self->peer_count == TR_PEERS_MAX                   ? "too many"
                                                                : "new";
}

static void member_connect(struct transporter *self, struct tr_peer *peer, const char *address)
{
    struct sl_error why = {0};
    if (self->control->ops->peer_add(self->control, peer->name, address, &why) != SL_OK) {
        if (!peer->complained) { /* it is retried often, so log only once */
            sl_log_write(self->env->log, SL_LOG_WARN, 0, "node %s: %s", peer->name, why.text);
        }
        peer->complained = true;
        peer->address[0] = '\0';
        return;
    }
    peer->complained = false;
    (void)snprintf(peer->address, sizeof(peer->address), "%s", address);
    peer->hello_due_ns = 0;
    sl_log_write(self->env->log, SL_LOG_INFO, 0, "node %s is asked at %s", peer->name, address);
}

struct tr_peer *tr_member_take(struct transporter *self, const struct sl_directory_member *member)
{
    if (!member_counts(self, member)) {
        return NULL;
    }
    struct tr_peer *peer = tr_peer_find(self, member->name);
    if (peer != NULL && peer->expelled) {
        return NULL; /* keys.c readmits it */
    }
    if (peer != NULL && (peer->configured || strcmp(peer->address, member->control) == 0)) {
        return peer;
    }
    /* A peer that answers at its known address has not moved, whatever the member says. */
    bool answers = peer != NULL && peer->address[0] != '\0' &&
                   sl_peer_health_state(&peer->health, self->env->now_ns) != SL_PEER_AWAY;
    if (answers || !is_reachable(member->control) ||
        tr_peer_has_key(self, member->name, NULL) != SL_OK) {
        return NULL;
    }
    peer = peer != NULL ? peer : tr_peer_get(self, member->name, NULL);
    if (peer != NULL) {
        member_connect(self, peer, member->control);
    }
    return peer;
}

uint64_t tr_members_step(struct transporter *self, uint64_t now_ns)
{
    if (self->guide.members == NULL) {
        return SL_NEVER_NS;
    }
    if (now_ns < self->members_due_ns) {
        return self->members_due_ns;
    }
    const struct sl_directory_member *members = NULL;
    uint32_t count = self->guide.members(self->guide.context, &members);
    for (uint32_t i = 0; i < count; i++) {
        struct tr_peer *peer = tr_member_take(self, &members[i]);
        if (peer != NULL) {
            peer->member = true;
        }
    }
    self->members_seen_ns = count > 0 ? now_ns : self->members_seen_ns;
    self->members_due_ns = now_ns + MEMBERS_NS;
    return self->members_due_ns;
}
