/* actors/registrar/presence/peers.c - see peers.h. */
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/base/events.h"
#include "actors/registrar/base/part.h"
#include "ipc/shm/sl_counts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PEER_NOTE_VERSION 1u
#define UNLOCKED_TEXT                                                                            \
    "%s has lost the lock of its pin file (its process closed a descriptor of it): what it has " \
    "pinned stays until the process ends; open another client"

/* A note of the index: what a restarted registrar must know of a peer. */
struct peer_note {
    uint32_t version;
    uint32_t reserved;
    struct sl_proc_id proc;
    char name[REG_NAME_BYTES];
    char role[REG_NAME_BYTES];
    char segment[64];
};
_Static_assert(sizeof(struct peer_note) == 152, "format of a peer's note");

static sl_err peers_init(struct registrar *self, struct sl_error *why)
{
    self->peers->all = calloc(self->set.clients_max, sizeof(*self->peers->all));
    self->peers->hashes = calloc(self->set.clients_max, sizeof(*self->peers->hashes));
    if (self->peers->all == NULL || self->peers->hashes == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "table of %u processes", self->set.clients_max);
    }
    return SL_OK;
}

static void peers_fini(struct registrar *self)
{
    for (uint32_t i = 0; self->peers->all != NULL && i < self->set.clients_max; i++) {
        sl_pins_view_close(&self->peers->all[i].pins);
    }
    free(self->peers->all);
    free(self->peers->hashes);
}

uint32_t reg_peer_find(const struct registrar *self, const char *name, uint64_t length)
{
    uint64_t hash = reg_hash(name, length);
    for (uint32_t i = 0; i < self->peers->high; i++) {
        if (self->peers->hashes[i] == hash && self->peers->all[i].used &&
            strlen(self->peers->all[i].name) == length &&
            memcmp(self->peers->all[i].name, name, length) == 0) {
            return i;
        }
    }
    return REG_NONE;
}

bool reg_peer_refused(struct registrar *self, const struct sl_msg *msg)
{
    uint32_t peer = self->peers->any_unlocked
                        ? reg_peer_find(self, msg->sender.at, msg->sender.length)
                        : REG_NONE;
    if (peer == REG_NONE || !self->peers->all[peer].unlocked) {
        return false;
    }
    sl_reply_fail(self->env, msg, SL_ERR_STALE, UNLOCKED_TEXT, msg->sender.at);
    return true;
}

uint32_t reg_peer_of_sender(struct registrar *self, const struct sl_msg *msg)
{
    uint32_t peer = reg_peer_find(self, msg->sender.at, msg->sender.length);
    if (peer == REG_NONE || !self->peers->all[peer].present) {
        sl_reply_fail(self->env, msg, SL_ERR_UNREACHABLE, "no HELLO from %s", msg->sender.at);
        return REG_NONE;
    }
    return peer;
}

uint32_t reg_peer_by_proc(const struct registrar *self, struct sl_proc_id proc)
{
    for (uint32_t i = 0; i < self->peers->high; i++) {
        if (self->peers->all[i].used && sl_proc_id_equal(self->peers->all[i].proc, proc)) {
            return i;
        }
    }
    return REG_NONE;
}

bool reg_peer_alive(const struct registrar *self, uint32_t peer)
{
    const struct reg_peer *at = &self->peers->all[peer];
    return at->used && at->present && self->env->ops->alive(self->env, at->proc);
}

bool reg_peer_present(const struct registrar *self, struct sl_proc_id proc)
{
    uint32_t peer = reg_peer_by_proc(self, proc);
    return peer != REG_NONE && self->peers->all[peer].present;
}

/* Whether the process has a role other than that of a peer. */
static bool is_known(const struct registrar *self, struct sl_proc_id proc)
{
    REG_EACH(self, REG_WALK_KNOWS, part)
    {
        if ((*part)->knows(self, proc)) {
            return true;
        }
    }
    return false;
}

/* Call before the process gets its second role here: a process has one watch. */
bool reg_watch(struct registrar *self, struct sl_proc_id proc)
{
    if (reg_peer_present(self, proc) || is_known(self, proc)) {
        return true;
    }
    return self->env->ops->watch(self->env, proc, 0) == SL_OK;
}

/* ---- arriving ---- */

static uint32_t peer_slot(struct registrar *self, const char *name)
{
    for (uint32_t i = 0; i < self->set.clients_max; i++) {
        if (!self->peers->all[i].used) {
            struct reg_peer *peer = &self->peers->all[i];
            *peer = (struct reg_peer){.used = true, .owned = REG_NONE, .held = REG_NONE};
            snprintf(peer->name, sizeof(peer->name), "%s", name);
            self->peers->hashes[i] = reg_hash(name, strlen(name));
            self->peers->count++;
            self->peers->high = SL_MAX(self->peers->high, i + 1);
            return i;
        }
    }
    return REG_NONE;
}

static void peer_free(struct registrar *self, uint32_t slot)
{
    struct reg_peer *peer = &self->peers->all[slot];
    sl_pins_view_close(&peer->pins);
    if (peer->blob != 0) {
        sl_index_set_kind(self->index, peer->blob, SL_RECORD_FREE);
    }
    *peer = (struct reg_peer){.used = false, .owned = REG_NONE, .held = REG_NONE};
    self->peers->hashes[slot] = 0;
    self->peers->count--;
    while (self->peers->high > 0 && !self->peers->all[self->peers->high - 1].used) {
        self->peers->high--;
    }
}

static bool plain_file_name(const char *name)
{
    return strncmp(name, "pins.", 5) == 0 && strchr(name, '/') == NULL;
}

static sl_err peer_open_pins(struct registrar *self, struct reg_peer *peer, struct sl_error *why)
{
    if (peer->segment[0] == '\0') {
        return SL_OK;
    }
    if (!plain_file_name(peer->segment)) {
        return sl_fail(why, SL_ERR_INVALID, "HELLO.segment: '%s' is not the name of a pin file",
                       peer->segment);
    }
    sl_err err = sl_pins_view_open(self->env->paths->shm_dir, peer->segment, &peer->pins, why);
    if (err == SL_OK && !sl_proc_id_equal(sl_pins_view_owner(peer->pins), peer->proc)) {
        sl_pins_view_close(&peer->pins);
        err = sl_fail(why, SL_ERR_PERMISSION, "HELLO.segment: '%s' belongs to another process",
                      peer->segment);
    }
    return err;
}

static sl_err peer_note(struct registrar *self, struct reg_peer *peer, struct sl_error *why)
{
    struct peer_note note = {.version = PEER_NOTE_VERSION, .proc = peer->proc};
    memcpy(note.name, peer->name, sizeof(note.name));
    memcpy(note.role, peer->role, sizeof(note.role));
    memcpy(note.segment, peer->segment, sizeof(note.segment));
    return reg_note_put(self, &note, sizeof(note), REG_BLOB_PEER, &peer->blob, why);
}

static void peer_kind(struct reg_peer *peer)
{
    peer->client = strcmp(peer->role, "client") == 0;
    peer->tierer = strcmp(peer->role, "tierer") == 0;
}

static void peer_arrived(struct registrar *self, uint32_t slot, bool restored)
{
    REG_EACH(self, REG_WALK_ARRIVED, part)
    {
        (*part)->arrived(self, slot, restored);
    }
}

static sl_err peer_arrive(struct registrar *self, uint32_t slot, const struct sl_body_hello *hello,
                          struct sl_error *why)
{
    struct reg_peer *peer = &self->peers->all[slot];
    struct sl_proc_id proc = {.pid = (uint32_t)hello->pid, .start_time = hello->start_time};
    snprintf(peer->role, sizeof(peer->role), "%s", hello->role.at);
    snprintf(peer->segment, sizeof(peer->segment), "%s",
             hello->segment.length > 0 ? hello->segment.at : "");
    peer_kind(peer);
    if (!reg_watch(self, proc)) {
        return sl_fail(why, SL_ERR_LIMIT, "process %u cannot be watched", proc.pid);
    }
    peer->proc = proc;
    peer->quarantined_bytes = 0;
    peer->present = true;
    sl_err err = self->env->ops->locked(self->env, proc)
                     ? peer_open_pins(self, peer, why)
                     : sl_fail(why, SL_ERR_UNSUPPORTED,
                               "HELLO.segment: no process is seen to hold the lock of '%s' (file "
                               "systems of networks, and sandboxes, may hide locks)",
                               peer->segment);
    if (err == SL_OK) {
        err = peer_note(self, peer, why);
    }
    if (err != SL_OK) {
        peer->present = false;
        sl_pins_view_close(&peer->pins);
        peer->proc = (struct sl_proc_id){0};
        if (!is_known(self, proc)) {
            self->env->ops->unwatch(self->env, proc);
        }
        return err;
    }
    peer_arrived(self, slot, false);
    reg_log(self, SL_LOG_DEBUG, 0, "%s is here: process %u", peer->name, proc.pid);
    return SL_OK;
}

static sl_err peer_hello(struct registrar *self, const struct sl_msg *msg, struct sl_error *why)
{
    const struct sl_body_hello *hello = &msg->body.hello;
    struct sl_proc_id proc = {.pid = (uint32_t)hello->pid, .start_time = hello->start_time};
    if (hello->name.length != msg->sender.length ||
        memcmp(hello->name.at, msg->sender.at, hello->name.length) != 0 ||
        strcmp(hello->name.at, self->env->name) == 0) {
        return sl_fail(why, SL_ERR_INVALID, "HELLO.name: '%s' is not the sender's", hello->name.at);
    }
    uint32_t slot = reg_peer_find(self, hello->name.at, hello->name.length);
    uint32_t same = reg_peer_by_proc(self, proc);
    if (same != REG_NONE && same != slot) {
        return sl_fail(why, SL_ERR_EXISTS, "HELLO.pid: process %u has the name %s", proc.pid,
                       self->peers->all[same].name);
    }
    if (slot != REG_NONE && self->peers->all[slot].present &&
        sl_proc_id_equal(self->peers->all[slot].proc, proc)) {
        struct reg_peer *peer = &self->peers->all[slot];
        /* kept from before a restart, when its pins could not be read */
        sl_err err = peer->pins == NULL ? peer_open_pins(self, peer, why) : SL_OK;
        return err == SL_ERR_VERSION ? err : SL_OK;
    }
    if (slot != REG_NONE && self->peers->all[slot].present &&
        self->env->ops->alive(self->env, self->peers->all[slot].proc)) {
        return sl_fail(why, SL_ERR_BUSY, "process %u is alive and has the name %s",
                       self->peers->all[slot].proc.pid, hello->name.at);
    }
    /* Its death has not been reported yet: */
    if (slot != REG_NONE && self->peers->all[slot].present) {
        reg_process_died(self, self->peers->all[slot].proc);
        slot = reg_peer_find(self, hello->name.at, hello->name.length);
    }
    bool made = slot == REG_NONE;
    if (made) {
        slot = peer_slot(self, hello->name.at);
    }
    if (slot == REG_NONE) {
        return sl_fail(why, SL_ERR_LIMIT,
                       "%u processes are attached: close clients that are not used, or raise "
                       "clients_max",
                       self->set.clients_max);
    }
    sl_err err = peer_arrive(self, slot, hello, why);
    if (err != SL_OK && made) {
        peer_free(self, slot);
    }
    return err;
}

static void closed_clients_remove(struct registrar *self);

static void peer_hello_asked(struct registrar *self, const struct sl_msg *msg)
{
    struct sl_error why = {0};
    closed_clients_remove(self);
    sl_err err = peer_hello(self, msg, &why);
    if (err != SL_OK) {
        reg_log(self, SL_LOG_WARN, msg->trace_id, "hello refused: %s", why.text);
        sl_reply_code(self->env, msg, err, &why);
        return;
    }
    struct sl_msg reply = {.code = SL_OK};
    reply.body.hello_reply = (struct sl_body_hello_reply){
        .boot_generation = sl_arena_boot_generation(self->arena),
        .arena_count = 1,
        .rank_count = self->set.ranks,
        .disk = reg_has_disks(self),
        .pid_space = sl_proc_pid_namespace(),
    };
    sl_reply(self->env, msg, &reply);
}

/* ---- leaving ---- */

static void peer_died(struct registrar *self, uint32_t slot)
{
    struct reg_peer *peer = &self->peers->all[slot];
    struct sl_proc_id proc = peer->proc;
    REG_EACH(self, REG_WALK_LEAVING, part)
    {
        (*part)->leaving(self, slot);
    }
    peer->present = false;
    if (peer->client && peer->pins != NULL && sl_pins_view_linked(peer->pins)) {
        (void)sl_shm_file_remove(self->env->paths->shm_dir, peer->segment, NULL);
    }
    sl_pins_view_close(&peer->pins);
    if (peer->fence_seq != 0) {
        sl_calls_drop(self->calls, peer->fence_seq);
        peer->fence_seq = 0;
    }
    peer->fence_lates = 0;
    REG_EACH(self, REG_WALK_LEFT, part)
    {
        (*part)->left(self, slot);
    }
    peer->quarantined_bytes = 0;
    reg_log(self, peer->client ? SL_LOG_DEBUG : SL_LOG_WARN, 0, "%s is gone: process %u",
            peer->name, proc.pid);
    SL_ASSERT(!peer->client || peer->held == REG_NONE);
    if (peer->client) {
        peer_free(self, slot);
    }
}

/* Ends all roles of the process. */
static void process_left(struct registrar *self, struct sl_proc_id proc)
{
    REG_EACH(self, REG_WALK_DIED, part)
    {
        (*part)->died(self, proc);
    }
    self->space.freed = true;
}

void reg_process_died(struct registrar *self, struct sl_proc_id proc)
{
    if (reg_peer_present(self, proc)) {
        peer_died(self, reg_peer_by_proc(self, proc));
        sl_metric_add(self->env->metrics, self->peers->metric.died_count, 1);
    }
    process_left(self, proc);
}

static bool is_ended(const struct registrar *self, uint32_t slot)
{
    const struct reg_peer *peer = &self->peers->all[slot];
    return peer->used && peer->present && peer->client && peer->pins != NULL &&
           sl_pins_view_ended(peer->pins);
}

/* Removes clients that were closed while their process lives on. */
static void closed_clients_remove(struct registrar *self)
{
    for (uint32_t i = 0; i < self->peers->high; i++) {
        const struct sl_proc_id proc = self->peers->all[i].proc;
        if (!is_ended(self, i)) {
            continue;
        }
        peer_died(self, i);
        process_left(self, proc);
        self->env->ops->unwatch(self->env, proc);
    }
}

/* A client without its lock is dead, unless its process is seen to live: then it keeps its pins. */
static void client_check(struct registrar *self, struct reg_peer *peer)
{
    const struct sl_proc_id proc = peer->proc;
    bool locked = self->env->ops->locked(self->env, proc);
    if (!locked && !self->env->ops->alive(self->env, proc)) {
        self->env->ops->unwatch(self->env, proc);
        reg_process_died(self, proc);
    } else if (locked == peer->unlocked) {
        peer->unlocked = !locked;
        reg_log(self, SL_LOG_WARN, 0, locked ? "%s has its lock again" : UNLOCKED_TEXT, peer->name);
    }
}

static bool client_is_gone(void *context, struct sl_proc_id client)
{
    const struct registrar *self = context;
    return !self->env->ops->alive(self->env, client);
}

/* Removes the pin file of a client without a HELLO that was killed. A client takes its lock before
 * its file gets a name, so a file without a living client is left over. */
static void leftover_remove(void *context, struct sl_proc_id client)
{
    const struct registrar *self = context;
    char name[SL_CLIENT_NAME_BYTES], segment[SL_PINS_NAME_BYTES];
    sl_client_name(client, name);
    if (reg_peer_by_proc(self, client) == REG_NONE && client_is_gone(context, client)) {
        sl_pins_name(name, segment);
        (void)sl_shm_file_remove(self->env->paths->shm_dir, segment, NULL);
    }
}

static void clients_check(struct registrar *self)
{
    if (self->env->now_ns < self->peers->check_ns) {
        return;
    }
    self->peers->check_ns = sl_clock_next_ns(self->env->now_ns, REG_CLIENTS_CHECK_NS);
    self->peers->any_unlocked = false;
    for (uint32_t i = 0; i < self->peers->high; i++) {
        struct reg_peer *peer = &self->peers->all[i];
        if (peer->used && peer->present && sl_proc_id_is_client(peer->proc)) {
            client_check(self, peer);
            self->peers->any_unlocked |= peer->unlocked;
        }
    }
    if (self->env->now_ns >= self->peers->sweep_ns) {
        self->peers->sweep_ns = self->env->now_ns + REG_CLIENTS_SWEEP_NS;
        sl_pins_clients(self->env->paths->shm_dir, leftover_remove, self);
        sl_counts_free(self->env->paths->shm_dir, client_is_gone, self);
    }
}

static uint64_t clients_check_next(const struct registrar *self)
{
    return self->peers->count > 0 ? self->peers->check_ns : SL_NEVER_NS;
}

/* ---- restart ---- */

/* Whether a living process has no pins that count: it removed its pin file, or the file there now
 * is not its own. After any other error its pins may still exist and must be respected. */
static bool pins_are_gone(sl_err err)
{
    return err == SL_ERR_NOT_FOUND || err == SL_ERR_FOREIGN || err == SL_ERR_CORRUPT ||
           err == SL_ERR_PERMISSION || err == SL_ERR_INVALID;
}

/* Restores a peer from its note. Errors, after which pinned extents must not be reused: those of
 * the system while the pins of a living process are opened; SL_ERR_VERSION: this program does not
 * read the version of its note or pins; SL_ERR_CONFIG: no slot. */
static sl_err peer_restore(struct registrar *self, sl_ref blob, const void *bytes,
                           uint32_t length_bytes, struct sl_error *why)
{
    struct peer_note note;
    if (length_bytes != sizeof(note)) {
        return SL_ERR_FOREIGN;
    }
    memcpy(&note, bytes, sizeof(note));
    note.name[sizeof(note.name) - 1] = '\0';
    note.role[sizeof(note.role) - 1] = '\0';
    note.segment[sizeof(note.segment) - 1] = '\0';
    bool alive = self->env->ops->alive(self->env, note.proc);
    if (alive && note.version != PEER_NOTE_VERSION) {
        return sl_fail(
            why, SL_ERR_VERSION,
            "the note of process %u in the index has version %u, this program (sluice " SL_VERSION
            ") knows %u: end the process, or use the earlier program",
            note.proc.pid, note.version, PEER_NOTE_VERSION);
    }
    if (reg_peer_by_proc(self, note.proc) != REG_NONE) {
        return SL_ERR_FOREIGN; /* a process has one name and one watch */
    }
    uint32_t other = reg_peer_find(self, note.name, strlen(note.name));
    if (other != REG_NONE && alive && !self->peers->all[other].present) {
        peer_free(self, other); /* killed before the old note was freed */
        other = REG_NONE;
    }
    uint32_t slot = note.version == PEER_NOTE_VERSION && other == REG_NONE
                        ? peer_slot(self, note.name)
                        : REG_NONE;
    if (slot == REG_NONE && alive && other == REG_NONE) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "%s is alive and finds no slot among %u processes: raise clients_max",
                       note.name, self->set.clients_max);
    }
    if (slot == REG_NONE) {
        return SL_ERR_FOREIGN;
    }
    struct reg_peer *peer = &self->peers->all[slot];
    memcpy(peer->role, note.role, sizeof(peer->role));
    memcpy(peer->segment, note.segment, sizeof(peer->segment));
    peer->proc = note.proc;
    peer->blob = blob;
    peer_kind(peer);
    peer->present = alive;
    sl_err err = peer->present ? peer_open_pins(self, peer, why) : SL_OK;
    if (err != SL_OK) {
        reg_log(self, SL_LOG_ERROR, 0, "pins of %s cannot be read: %s", peer->name, why->text);
    }
    return err == SL_OK || pins_are_gone(err) ? SL_OK : err;
}

/* After a restart: ends peers that died meanwhile and watches the others. */
static void peers_check(struct registrar *self)
{
    for (uint32_t i = 0; i < self->set.clients_max; i++) {
        struct reg_peer *peer = &self->peers->all[i];
        if (!peer->used) {
            continue;
        }
        bool alive = peer->present && self->env->ops->watch(self->env, peer->proc, 0) == SL_OK;
        if (!alive) {
            peer->present = true; /* so that its end is handled like any other */
            peer_died(self, i);
        } else {
            peer_arrived(self, i, true);
        }
    }
}

/* ---- the part ---- */

static void peers_gauges(struct registrar *self)
{
    struct sl_metrics *page = self->env->metrics;
    sl_metric_set(page, self->peers->metric.peer_count, self->peers->count);
}

static const struct sl_metric_row metrics[] = {
    REG_METRIC(reg_peers, peer_count),
    REG_METRIC(reg_peers, died_count),
};

static const struct reg_handler handlers[] = {
    {SL_MSG_HELLO, peer_hello_asked},
};

static const struct reg_blob blobs[] = {
    {REG_BLOB_PEER, peer_restore},
};

const struct reg_part reg_peers_part = {
    .name = "peers",
    REG_STATE(peers, reg_peers),
    REG_METRICS(metrics),
    REG_HANDLERS(handlers),
    REG_BLOBS(blobs),
    .init = peers_init,
    .fini = peers_fini,
    .tick = clients_check,
    .next_ns = clients_check_next,
    .recovered = peers_check,
    .gauges = peers_gauges,
};
