/* actors/registrar/peers.c - who is there: processes that said HELLO, watched until they die. */
#include "actors/registrar/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PEER_NOTE_VERSION 1u
#define ACCESS_BATCH      512u

/* What a restart must know of a peer: a BLOB of the index. */
struct peer_note {
    uint32_t version;
    uint32_t reserved;
    struct sl_proc_id proc;
    char name[REG_NAME_BYTES];
    char role[REG_NAME_BYTES];
    char segment[64];
};
_Static_assert(sizeof(struct peer_note) == 152, "format of a peer's note");

sl_err reg_peers_init(struct registrar *self, struct sl_error *why)
{
    self->peers = calloc(self->set.clients_max, sizeof(*self->peers));
    self->peer_hash = calloc(self->set.clients_max, sizeof(*self->peer_hash));
    if (self->peers == NULL || self->peer_hash == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "table of %u processes", self->set.clients_max);
    }
    return SL_OK;
}

void reg_peers_fini(struct registrar *self)
{
    for (uint32_t i = 0; self->peers != NULL && i < self->set.clients_max; i++) {
        sl_pins_view_close(&self->peers[i].pins);
    }
    free(self->peers);
    free(self->peer_hash);
}

uint32_t reg_peer_find(const struct registrar *self, const char *name, uint64_t length)
{
    uint64_t hash = reg_hash(name, length);
    for (uint32_t i = 0; i < self->peer_high; i++) {
        if (self->peer_hash[i] == hash && self->peers[i].used &&
            strlen(self->peers[i].name) == length &&
            memcmp(self->peers[i].name, name, length) == 0) {
            return i;
        }
    }
    return REG_NONE;
}

uint32_t reg_peer_by_proc(const struct registrar *self, struct sl_proc_id proc)
{
    for (uint32_t i = 0; i < self->peer_high; i++) {
        if (self->peers[i].used && sl_proc_id_equal(self->peers[i].proc, proc)) {
            return i;
        }
    }
    return REG_NONE;
}

bool reg_peer_alive(const struct registrar *self, uint32_t peer)
{
    const struct reg_peer *at = &self->peers[peer];
    return at->used && at->present && self->env->ops->alive(self->env, at->proc);
}

bool reg_peer_present(const struct registrar *self, struct sl_proc_id proc, uint32_t except)
{
    for (uint32_t i = 0; i < self->set.clients_max; i++) {
        const struct reg_peer *peer = &self->peers[i];
        if (i != except && peer->used && peer->present && sl_proc_id_equal(peer->proc, proc)) {
            return true;
        }
    }
    return false;
}

/* To be called before the process gets its second role here: one watch a process. */
bool reg_watch(struct registrar *self, struct sl_proc_id proc)
{
    if (reg_peer_present(self, proc, REG_NONE) || reg_engines_of(self, proc)) {
        return true;
    }
    return self->env->ops->watch(self->env, proc, 0) == SL_OK;
}

/* ---- arriving ---- */

static uint32_t peer_slot(struct registrar *self, const char *name)
{
    for (uint32_t i = 0; i < self->set.clients_max; i++) {
        if (!self->peers[i].used) {
            struct reg_peer *peer = &self->peers[i];
            *peer = (struct reg_peer){.used = true, .owned = REG_NONE, .held = REG_NONE};
            snprintf(peer->name, sizeof(peer->name), "%s", name);
            self->peer_hash[i] = reg_hash(name, strlen(name));
            self->peer_count++;
            self->peer_high = SL_MAX(self->peer_high, i + 1);
            return i;
        }
    }
    return REG_NONE;
}

static void peer_free(struct registrar *self, uint32_t slot)
{
    struct reg_peer *peer = &self->peers[slot];
    sl_pins_view_close(&peer->pins);
    if (peer->blob != 0) {
        sl_index_set_kind(self->index, peer->blob, SL_RECORD_FREE);
    }
    *peer = (struct reg_peer){.used = false, .owned = REG_NONE, .held = REG_NONE};
    self->peer_hash[slot] = 0;
    self->peer_count--;
    while (self->peer_high > 0 && !self->peers[self->peer_high - 1].used) {
        self->peer_high--;
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
        return sl_fail(why, SL_ERR_INVALID, "HELLO.segment: '%s' is no name of a pin segment",
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
    sl_ref old = peer->blob;
    sl_err err =
        sl_index_blob_put(self->index, &note, sizeof(note), REG_BLOB_PEER, &peer->blob, why);
    if (err == SL_ERR_NO_SPACE && reg_make_index_room(self)) {
        err = sl_index_blob_put(self->index, &note, sizeof(note), REG_BLOB_PEER, &peer->blob, why);
    }
    if (err != SL_OK) {
        peer->blob = old;
        return err;
    }
    if (old != 0) {
        sl_index_set_kind(self->index, old, SL_RECORD_FREE);
    }
    return SL_OK;
}

static void peer_kind(struct reg_peer *peer)
{
    peer->client = strcmp(peer->role, "client") == 0;
    peer->tierer = strcmp(peer->role, "tierer") == 0;
}

/* A successor is there: what an absent actor of this name may have been doing can be asked now. The
 * successor of a tierer is the answer itself: it got the lock of the disk, which the kernel keeps
 * until the last request of the dead one has ended. */
static void peer_ask_again(struct registrar *self, struct reg_peer *peer)
{
    uint32_t next;
    for (uint32_t slot = peer->held; slot != REG_NONE; slot = next) {
        next = self->claims[slot].node[REG_LIST_PEER].next;
        if (self->claims[slot].state != REG_CLAIM_GRACE) {
            continue;
        }
        if (peer->tierer) {
            reg_claim_release(self, slot);
            self->space_freed = true;
        } else {
            reg_timers_clear(&self->timers, slot);
            self->claims[slot].state = REG_CLAIM_UNASKED;
            self->fences_due = true;
        }
    }
}

static sl_err peer_arrive(struct registrar *self, uint32_t slot, const struct sl_body_hello *hello,
                          struct sl_error *why)
{
    struct reg_peer *peer = &self->peers[slot];
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
    sl_err err = peer_open_pins(self, peer, why);
    if (err == SL_OK) {
        err = peer_note(self, peer, why);
    }
    if (err != SL_OK) {
        peer->present = false;
        sl_pins_view_close(&peer->pins);
        peer->proc = (struct sl_proc_id){0};
        if (!reg_engines_of(self, proc) && !reg_peer_present(self, proc, slot)) {
            self->env->ops->unwatch(self->env, proc);
        }
        return err;
    }
    peer_ask_again(self, peer);
    if (peer->tierer) {
        reg_disk_arrived(self, slot);
    }
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
    if (slot != REG_NONE && self->peers[slot].present &&
        sl_proc_id_equal(self->peers[slot].proc, proc)) {
        struct reg_peer *peer = &self->peers[slot];
        /* Kept from before a restart, when its pins could not be read. */
        sl_err err = peer->pins == NULL ? peer_open_pins(self, peer, why) : SL_OK;
        return err == SL_ERR_VERSION ? err : SL_OK;
    }
    if (slot != REG_NONE && reg_peer_alive(self, slot)) {
        return sl_fail(why, SL_ERR_BUSY, "process %u lives and is called %s",
                       self->peers[slot].proc.pid, hello->name.at);
    }
    if (slot != REG_NONE && self->peers[slot].present) { /* its death has not been reported yet */
        reg_process_died(self, self->peers[slot].proc);
        slot = reg_peer_find(self, hello->name.at, hello->name.length);
    }
    bool made = slot == REG_NONE;
    if (made) {
        slot = peer_slot(self, hello->name.at);
    }
    if (slot == REG_NONE) {
        return sl_fail(why, SL_ERR_LIMIT, "%u processes are attached: setting clients_max",
                       self->set.clients_max);
    }
    sl_err err = peer_arrive(self, slot, hello, why);
    if (err != SL_OK && made) {
        peer_free(self, slot);
    }
    return err;
}

void reg_peer_hello(struct registrar *self, const struct sl_msg *msg)
{
    struct sl_error why = {0};
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
        .disk = self->tier.on,
    };
    sl_reply(self->env, msg, &reply);
}

/* ---- leaving ---- */

/* Nobody else removes the segment of a killed client; one of the same name may be another's by now.
 */
static void pins_remove(struct registrar *self, const struct reg_peer *peer)
{
    const char *directory = self->env->paths->shm_dir;
    struct sl_pins_view *pins = NULL;
    if (!plain_file_name(peer->segment) ||
        sl_pins_view_open(directory, peer->segment, &pins, NULL) != SL_OK) {
        return;
    }
    bool own = sl_proc_id_equal(sl_pins_view_owner(pins), peer->proc);
    sl_pins_view_close(&pins);
    if (own) {
        (void)sl_segment_remove(directory, peer->segment, NULL); /* gone meanwhile: fine too */
    }
}

static void peer_died(struct registrar *self, uint32_t slot)
{
    struct reg_peer *peer = &self->peers[slot];
    struct sl_proc_id proc = peer->proc;
    peer->present = false;
    sl_pins_view_close(&peer->pins);
    if (peer->client) {
        pins_remove(self, peer);
    }
    if (peer->fence_seq != 0) {
        sl_calls_forget(self->calls, peer->fence_seq);
        peer->fence_seq = 0;
    }
    peer->fence_lates = 0;
    reg_parked_forget(self, proc);
    reg_promotes_forget(self, peer->name);
    reg_flushes_forget(self, peer->name);
    reg_removes_forget(self, peer->name);
    for (uint32_t i = 0; i < self->group_high; i++) {
        if (self->groups[i].used && !self->groups[i].found &&
            sl_proc_id_equal(self->groups[i].owner, proc)) {
            reg_group_abandon(self, i, REG_GHOST_EXPIRED);
        }
    }
    while (peer->owned != REG_NONE) {
        reg_claim_quarantine(self, peer->owned);
    }
    if (peer->tierer) {
        reg_disk_left(self, slot);
    }
    reg_claims_writer_died(self, slot);
    peer->quarantined_bytes = 0;
    reg_log(self, peer->client ? SL_LOG_DEBUG : SL_LOG_WARN, 0, "%s is gone: process %u",
            peer->name, proc.pid);
    if (peer->client) {
        SL_ASSERT(peer->held == REG_NONE);
        peer_free(self, slot);
    }
}

void reg_process_died(struct registrar *self, struct sl_proc_id proc)
{
    bool known = false;
    for (uint32_t i = 0; i < self->set.clients_max; i++) { /* it may be several clients */
        const struct reg_peer *peer = &self->peers[i];
        if (peer->used && peer->present && sl_proc_id_equal(peer->proc, proc)) {
            peer_died(self, i);
            known = true;
        }
    }
    if (known) {
        sl_metric_add(self->env->metrics, self->metric.died_count, 1);
    }
    reg_engines_died(self, proc);
    reg_pools_died(self, proc);
    reg_contributions_died(self, proc);
    reg_retired_scan(self, 0);
    self->space_freed = true;
}

/* ---- restart ---- */

/* Whether a living process has no pins that count: it took its segment back, or what lies there now
 * is not one of its. Anything else may pass, and its pins must not be passed over meanwhile. */
static bool pins_are_gone(sl_err err)
{
    return err == SL_ERR_NOT_FOUND || err == SL_ERR_FOREIGN || err == SL_ERR_VERSION ||
           err == SL_ERR_CORRUPT || err == SL_ERR_PERMISSION || err == SL_ERR_INVALID;
}

sl_err reg_peer_restore(struct registrar *self, sl_ref blob, const void *bytes,
                        uint32_t length_bytes, struct sl_error *why)
{
    struct peer_note note;
    if (length_bytes != sizeof(note)) {
        sl_index_set_kind(self->index, blob, SL_RECORD_FREE);
        return SL_OK;
    }
    memcpy(&note, bytes, sizeof(note));
    note.name[sizeof(note.name) - 1] = '\0';
    note.role[sizeof(note.role) - 1] = '\0';
    note.segment[sizeof(note.segment) - 1] = '\0';
    bool alive = self->env->ops->alive(self->env, note.proc);
    uint32_t other = reg_peer_find(self, note.name, strlen(note.name));
    if (other != REG_NONE && alive && !self->peers[other].present) {
        peer_free(self, other); /* killed between the note of a successor and the old one's end */
        other = REG_NONE;
    }
    uint32_t slot = note.version == PEER_NOTE_VERSION && other == REG_NONE
                        ? peer_slot(self, note.name)
                        : REG_NONE;
    if (slot == REG_NONE && alive && other == REG_NONE) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "%s lives and has no place among %u processes: setting clients_max",
                       note.name, self->set.clients_max);
    }
    if (slot == REG_NONE) {
        sl_index_set_kind(self->index, blob, SL_RECORD_FREE);
        return SL_OK;
    }
    struct reg_peer *peer = &self->peers[slot];
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

void reg_peers_check(struct registrar *self)
{
    for (uint32_t i = 0; i < self->set.clients_max; i++) {
        struct reg_peer *peer = &self->peers[i];
        if (!peer->used) {
            continue;
        }
        bool watched = false; /* as an earlier client of the process */
        for (uint32_t k = 0; k < i; k++) {
            watched |= self->peers[k].used && self->peers[k].present &&
                       sl_proc_id_equal(self->peers[k].proc, peer->proc);
        }
        bool alive =
            peer->present && (watched || self->env->ops->watch(self->env, peer->proc, 0) == SL_OK);
        if (!alive) {
            peer->present = true; /* so that its end is dealt with like any other */
            peer_died(self, i);
        } else if (peer->tierer) {
            reg_disk_arrived(self, i);
        }
    }
}

/* ---- accesses ---- */

static bool peer_touch(struct registrar *self, const struct sl_access *access)
{
    struct sl_entry entry = {0};
    if (!sl_index_ref_live(self->index, access->ref)) {
        return false;
    }
    sl_index_read(self->index, access->ref, &entry);
    if (entry.kind != SL_RECORD_COMMITTED || entry.extent.generation != access->generation) {
        return false;
    }
    reg_unit_touch(self, reg_unit_of(&entry));
    return true;
}

uint32_t reg_peers_drain(struct registrar *self)
{
    struct sl_access accesses[ACCESS_BATCH];
    uint32_t touched = 0;
    for (uint32_t i = 0; i < self->peer_high; i++) {
        if (!self->peers[i].used || self->peers[i].pins == NULL) {
            continue;
        }
        uint32_t count = sl_pins_view_drain(self->peers[i].pins, accesses, ACCESS_BATCH);
        for (uint32_t rounds = 0; count > 0 && rounds < 64; rounds++) {
            for (uint32_t k = 0; k < count; k++) {
                touched += peer_touch(self, &accesses[k]) ? 1 : 0;
            }
            count = count == ACCESS_BATCH
                        ? sl_pins_view_drain(self->peers[i].pins, accesses, ACCESS_BATCH)
                        : 0;
        }
    }
    return touched;
}
