/* actors/transporter/peers/keys.c - expels a peer when its key is removed.
 *
 * A key is checked when a connection begins. So the key files are read again when their directory
 * changes (inotify; an idle node is not woken), or periodically while it cannot be watched. A peer
 * whose NAME.pub is gone or has another key is expelled: its connections for bytes are closed, its
 * grants, tickets and pins end, and its frames are refused. When a key exists again, it is a new
 * peer with the old name. */
#include "actors/transporter/peers/peers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#define SETTLE_NS (100 * SL_NS_PER_MS) /* a file that is being rewritten is empty for a moment */
#define LOOK_NS   (2 * SL_NS_PER_S)    /* while there is no watch */
#define EVENTS                                                                          \
    (IN_CREATE | IN_CLOSE_WRITE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB | \
     IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)

static const char *directory(const struct transporter *self)
{
    return sl_config_text(self->env->config, SL_SET_cluster_keys);
}

static void watch(struct transporter *self)
{
    self->keys_watched =
        self->keys_fd >= 0 && inotify_add_watch(self->keys_fd, directory(self), EVENTS) >= 0;
}

/* Keys identify peers, except in a simulated network and with plaintext. */
static bool keys_used(const struct transporter *self)
{
    return self->env->network == NULL && directory(self)[0] != '\0' &&
           !sl_config_bool(self->env->config, SL_SET_cluster_plaintext);
}

sl_err tr_peer_has_key(const struct transporter *self, const char *name, struct sl_error *why)
{
    char key[SL_CURVE_TEXT_BYTES];
    return keys_used(self) ? sl_curve_load_public(directory(self), name, key, why) : SL_OK;
}

sl_err tr_keys_init(struct transporter *self, struct sl_error *why)
{
    self->keys_due_ns = SL_NEVER_NS;
    if (!keys_used(self)) {
        return SL_OK;
    }
    self->keys_due_ns = 0;
    self->keys_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    self->keys_open = self->keys_fd >= 0;
    if (!self->keys_open) { /* this user has too many: check periodically */
        return SL_OK;
    }
    watch(self);
    return self->env->ops->watch_fd(self->env, self->keys_fd, why);
}

void tr_keys_fini(struct transporter *self)
{
    if (self->keys_open) {
        self->env->ops->unwatch_fd(self->env, self->keys_fd);
        (void)close(self->keys_fd);
    }
    self->keys_open = false;
}

void tr_peer_expel(struct transporter *self, struct tr_peer *peer, const char *reason)
{
    if (peer->expelled) {
        return;
    }
    sl_log_write(self->env->log, SL_LOG_WARN, 0, "node %s: %s: it gets and sends nothing",
                 peer->name, reason);
    peer->expelled = true;
    peer->incarnation = 0;
    (void)snprintf(peer->kept, sizeof(peer->kept), "%s", peer->address);
    peer->address[0] = '\0';
    peer->health.heard_ns = 0;
    self->control->ops->peer_key(self->control, peer->name, NULL);
    tr_peer_window_close(self, peer);
    if (peer->grant.used && !peer->grant.ending) {
        peer->grant.ending = true;
        (void)sl_fabric_grant_end(self->fabric, peer->grant.handle);
    }
    self->events.peer_renewed(self, peer); /* releases its pins */
    self->events.peer_expelled(self, peer);
    sl_fabric_peer_remove(self->fabric, peer->fabric_peer);
}

static void readmit(struct transporter *self, struct tr_peer *peer)
{
    struct sl_error why = {0};
    if (sl_fabric_peer_add(self->fabric, &peer->fabric_peer, &why) != SL_OK) {
        sl_log_write(self->env->log, SL_LOG_WARN, 0, "node %s: %s", peer->name, why.text);
        self->keys_due_ns = self->env->now_ns + LOOK_NS;
        return;
    }
    peer->blob_bytes = 0; /* the fabric reports the new one */
    peer->expelled = peer->complained = peer->link_logged = false;
    peer->hello_due_ns = 0;
    if (peer->kept[0] != '\0' &&
        self->control->ops->peer_add(self->control, peer->name, peer->kept, &why) == SL_OK) {
        (void)snprintf(peer->address, sizeof(peer->address), "%s", peer->kept);
    }
    sl_log_write(self->env->log, SL_LOG_INFO, 0, "node %s: its key exists again", peer->name);
}

/* Reads the keys of all peers again: expels peers without their key, readmits those with one. */
static void look(struct transporter *self)
{
    for (uint32_t i = 0; i < self->peer_count; i++) {
        struct tr_peer *peer = &self->peers[i];
        char key[SL_CURVE_TEXT_BYTES] = "";
        struct sl_error why = {0};
        bool has_key = sl_curve_load_public(directory(self), peer->name, key, &why) == SL_OK;
        bool same = has_key && (peer->key[0] == '\0' || strcmp(peer->key, key) == 0);
        if (!same) {
            tr_peer_expel(self, peer, has_key ? "its key has changed" : why.text);
        }
        if (has_key) {
            (void)snprintf(peer->key, sizeof(peer->key), "%s", key);
            self->control->ops->peer_key(self->control, peer->name, key);
        }
        if (has_key && peer->expelled) {
            readmit(self, peer);
        }
    }
}

uint64_t tr_keys_step(struct transporter *self, uint64_t now_ns)
{
    char events[4096];
    ssize_t got = self->keys_open ? read(self->keys_fd, events, sizeof(events)) : -1;
    if (got > 0) {
        self->keys_due_ns = SL_MIN(self->keys_due_ns, now_ns + SETTLE_NS);
        watch(self); /* the directory may have been replaced; else this changes nothing */
    }
    if (now_ns < self->keys_due_ns) {
        return self->keys_due_ns;
    }
    if (!self->keys_watched) {
        watch(self);
    }
    self->keys_due_ns = self->keys_watched ? SL_NEVER_NS : now_ns + LOOK_NS;
    look(self);
    return self->keys_due_ns;
}
