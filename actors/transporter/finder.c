/* actors/transporter/finder.c - who may hold a key, where a directory says so: its members become
 * peers, its answers say which of them a unit asks.
 *
 * The directory's server is not trusted. It names nodes and where they are; which of them may be
 * connected to is said by the key files alone, and who answers there is known by its key. While the
 * server is away, or says nothing within its share of a FETCH's time, those peers are asked that
 * are known and alive, a few of them for a key. */
#include "actors/transporter/internal.h"

#include "ipc/sl_cluster.h"
#include "ipc/sl_curve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOKUP_SHARE      4u                /* of the time that a FETCH has left */
#define MEMBERS_NS        (5 * SL_NS_PER_S) /* a key file may have been added */
#define MEMBERS_SOON_NS   SL_NS_PER_S       /* however often the table changes */
#define UNNAMED_PEERS_MAX SL_DIRECTORY_HOLDERS_MAX

struct tr_batch {
    bool used;
    uint32_t count;
    struct tr_unit *units[SL_DIRECTORY_KEYS_MAX];
};

sl_err tr_finder_init(struct transporter *self, struct sl_error *why)
{
    self->batches = calloc(SL_DIRECTORY_LOOKUPS_MAX + 1, sizeof(*self->batches));
    return self->batches != NULL
               ? SL_OK
               : sl_fail(why, SL_ERR_NO_MEMORY, "no memory for questions to the directory");
}

void tr_finder_fini(struct transporter *self)
{
    free(self->batches);
    self->batches = NULL;
}

/* ---- members ---- */

static void members_mark(struct transporter *self)
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
}

void tr_members_changed(void *context)
{
    struct transporter *self = context;
    members_mark(self);
    self->members_due_ns = SL_MIN(self->members_due_ns, self->members_seen_ns + MEMBERS_SOON_NS);
    self->env->ops->wake_at(self->env, self->members_due_ns);
}

static bool is_allowed(const struct transporter *self, const char *name)
{
    char key[SL_CURVE_TEXT_BYTES];
    const struct sl_config *config = self->env->config;
    return sl_config_bool(config, SL_SET_cluster_plaintext) ||
           sl_curve_load_public(sl_config_text(config, SL_SET_cluster_keys), name, key, NULL) ==
               SL_OK;
}

static bool is_reachable(const char *address)
{
    bool any = false;
    return sl_cluster_address(address, &any) && !any;
}

/* A member that this node may be: its name is a node's and not ours. */
static bool member_counts(const struct transporter *self, const struct sl_directory_member *member)
{
    return sl_actor_name_is_clean(member->name, strlen(member->name)) &&
           strcmp(member->name, self->node) != 0;
}

const char *tr_member_state(const struct transporter *self,
                            const struct sl_directory_member *member)
{
    return !member_counts(self, member)       ? "no name"
           : !is_reachable(member->control)   ? "no address"
           : !is_allowed(self, member->name)  ? "no key"
           : self->peer_count == TR_PEERS_MAX ? "too many"
                                              : "new";
}

static void member_connect(struct transporter *self, struct tr_peer *peer, const char *address)
{
    struct sl_error why = {0};
    if (sl_control_peer_add(self->control, peer->name, address, &why) != SL_OK) {
        if (!peer->complained) { /* it is tried again, time and again */
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
    if (peer != NULL && (peer->configured || strcmp(peer->address, member->control) == 0)) {
        return peer;
    }
    /* Who answers where it is has not moved, whatever is said of it. */
    bool answers = peer != NULL && peer->address[0] != '\0' &&
                   sl_peer_health_state(&peer->health, self->env->now_ns) != SL_PEER_AWAY;
    if (answers || !is_reachable(member->control) || !is_allowed(self, member->name)) {
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

/* ---- look-ups ---- */

/* Those that are asked without being named: all of the settings', and a few others, among the peers
 * that tell the directory nothing now (all: among all peers). */
static uint64_t unnamed_peers(struct transporter *self, uint64_t key_hash, bool all)
{
    uint64_t usable = tr_peers_with(self, key_hash), peers = 0, others = 0;
    for (uint32_t i = 0; i < self->peer_count; i++) {
        const struct tr_peer *peer = &self->peers[i];
        uint64_t bit = usable & (all || !peer->member ? UINT64_C(1) << i : 0);
        peers |= peer->configured ? bit : 0;
        others |= peer->configured ? 0 : bit;
    }
    for (uint32_t i = 0, n = 0; others != 0 && n < UNNAMED_PEERS_MAX; i++) {
        uint64_t bit = UINT64_C(1) << (key_hash + i) % TR_PEERS_MAX;
        n += (others & bit) != 0 ? 1 : 0;
        peers |= others & bit;
        others &= ~bit;
    }
    return peers;
}

static uint64_t named_peers(struct transporter *self, const struct sl_directory_found *found)
{
    uint64_t peers = 0;
    for (uint32_t i = 0; i < found->holder_count; i++) {
        const struct tr_peer *peer = tr_peer_find(self, found->holders[i]->name);
        peers |= peer != NULL ? UINT64_C(1) << tr_peer_number(self, peer) : 0;
    }
    return peers;
}

/* found NULL: the directory said nothing. */
static void batch_end(struct transporter *self, struct tr_batch *batch,
                      const struct sl_directory_found *found)
{
    uint64_t gap_of = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct tr_unit *unit = batch->units[i];
        unit->may = unnamed_peers(self, unit->hash, found == NULL) |
                    (found != NULL ? named_peers(self, &found[i]) : 0);
        bool nobody = tr_unit_peers(self, unit) == 0;
        bool alone = unit->waits != NULL && unit->waits->next == NULL;
        if (unit->deadline_ns <= self->env->now_ns) {
            tr_unit_end(self, unit, SL_ERR_TIMEOUT);
        } else if (nobody || (gap_of == unit->fetch_number && alone && !unit->sure)) {
            gap_of = nobody && unit->chain ? unit->fetch_number : gap_of; /* none behind it */
            tr_unit_end(self, unit, SL_ERR_NOT_FOUND);
        } else {
            tr_unit_queue(self, unit);
        }
    }
    batch->used = false;
    batch->count = 0;
    self->env->ops->wake_at(self->env, 0);
}

void tr_found(void *context, uint64_t cookie, sl_err code, const struct sl_directory_found *found,
              uint32_t count)
{
    struct transporter *self = context;
    struct tr_batch *batch = &self->batches[1 + cookie];
    SL_ASSERT(cookie < SL_DIRECTORY_LOOKUPS_MAX && batch->used);
    SL_ASSERT(code != SL_OK || count == batch->count);
    sl_metric_add(self->env->metrics, self->metric.unanswered, code != SL_OK ? 1 : 0);
    batch_end(self, batch, code == SL_OK ? found : NULL);
}

/* Asks for the units of the open batch. */
static void batch_send(struct transporter *self)
{
    struct tr_batch *open = &self->batches[0], *batch = NULL;
    uint64_t ids[SL_DIRECTORY_KEYS_MAX];
    uint64_t now_ns = self->env->now_ns, deadline_ns = 0;
    struct sl_directory_lookup lookup = {.ids = ids, .count = open->count, .now_ns = now_ns};
    for (uint32_t i = 0; i < open->count; i++) {
        const struct tr_unit *unit = open->units[i];
        ids[i] = sl_key_id(unit->parts[0].key, unit->parts[0].key_length);
        deadline_ns = SL_MAX(deadline_ns, unit->deadline_ns);
    }
    uint64_t share_ns = sl_budget_ns(now_ns, deadline_ns) / LOOKUP_SHARE;
    share_ns = SL_MIN(share_ns, sl_config_u64(self->env->config, SL_SET_directory_timeout));
    lookup.deadline_ns = now_ns + share_ns;
    for (uint32_t i = 0; batch == NULL && i < SL_DIRECTORY_LOOKUPS_MAX; i++) {
        batch = !self->batches[1 + i].used ? &self->batches[1 + i] : NULL;
        lookup.cookie = i;
    }
    sl_err err = batch != NULL ? self->guide.lookup(self->guide.context, &lookup) : SL_ERR_LIMIT;
    if (err == SL_OK) {
        SL_ASSERT(batch != NULL);
        batch->used = true;
        batch->count = open->count;
        memcpy(batch->units, open->units, open->count * sizeof(struct tr_unit *));
        open->count = 0;
        return;
    }
    /* SL_ERR_NOT_FOUND: it knows of no other node. */
    static const struct sl_directory_found nobody[SL_DIRECTORY_KEYS_MAX];
    sl_metric_add(self->env->metrics, self->metric.unanswered, err != SL_ERR_NOT_FOUND ? 1 : 0);
    batch_end(self, open, err == SL_ERR_NOT_FOUND ? nobody : NULL);
}

void tr_find(struct transporter *self, struct tr_unit *unit)
{
    struct tr_batch *open = &self->batches[0];
    if (self->guide.lookup == NULL) {
        unit->may = UINT64_MAX;
        tr_unit_queue(self, unit);
        return;
    }
    open->units[open->count++] = unit;
    if (open->count == SL_DIRECTORY_KEYS_MAX) {
        batch_send(self);
    }
}

void tr_find_flush(struct transporter *self)
{
    if (self->guide.lookup == NULL) {
        return;
    }
    if (self->batches[0].count > 0) {
        batch_send(self);
        self->guide.flush(self->guide.context, self->env->now_ns);
    }
}
