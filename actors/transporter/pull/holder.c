/* actors/transporter/pull/holder.c - PEER_PIN: time-limited pins through which peers read our
 * values.
 *
 * The pins are in this process's pin file, so they end with it. A peer's pins end by PEER_UNPIN,
 * by their time limit, or when the peer restarts. A later read of the peer may get other bytes,
 * which its digest check detects. Values that are only on disk are promoted first. */
#include "actors/transporter/pull/pull.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STALE_TRIES     4u
#define ACCESSES        8192u
#define NUMBER_SHIFT    16u
#define PINNED_SHARE    4u /* divisor: share of memory that all peers together may pin */
#define PROMOTE_SHARE_N 4u /* divisor of the pins' time limit: a longer promotion is a miss */

static uint64_t pinned_bytes_max(const struct sl_config *config)
{
    return sl_config_u64(config, SL_SET_memory) / PINNED_SHARE;
}

sl_err tr_holder_init(struct transporter *self, struct sl_error *why)
{
    const struct sl_config *config = self->env->config;
    self->pin_sets = calloc(TR_PIN_SETS_MAX, sizeof(*self->pin_sets));
    if (self->pin_sets == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the pins of peers");
    }
    self->pins_due_ns = SL_NEVER_NS;
    const struct sl_pins_options options = {
        .shm_dir = self->env->paths->shm_dir,
        .name = self->env->name,
        .slot_count = (uint32_t)sl_config_u64(config, SL_SET_client_pins_max),
        .access_count = ACCESSES,
        .self = self->env->self,
        .pinned_bytes_max = pinned_bytes_max(config),
    };
    return sl_pins_create(&options, &self->pins, why);
}

static void set_unpin(struct transporter *self, struct tr_pin_set *set)
{
    struct tr_peer *peer = &self->peers[set->peer];
    for (uint32_t i = 0; i < set->pin_count; i++) {
        sl_pins_release(self->pins, set->pins[i]);
        peer->pinned_bytes -= set->ranges[i].length_bytes;
    }
    peer->pinned -= set->pin_count;
    self->pins_open -= set->pin_count;
    set->pin_count = 0;
}

static void set_free(struct transporter *self, struct tr_pin_set *set)
{
    if (set->promoting) {
        sl_calls_drop(self->calls, set->call_seq);
    }
    set_unpin(self, set);
    free(set->pins);
    free(set->ranges);
    free(set->items);
    self->peers[set->peer].pin_sets--;
    *set = (struct tr_pin_set){0};
    self->pin_sets_open--;
    sl_metric_set(self->env->metrics, self->metric.pins_open, self->pin_sets_open);
}

void tr_holder_fini(struct transporter *self)
{
    for (uint32_t i = 0; self->pin_sets != NULL && i < TR_PIN_SETS_MAX; i++) {
        if (self->pin_sets[i].used) {
            set_free(self, &self->pin_sets[i]);
        }
    }
    free(self->pin_sets);
    self->pin_sets = NULL;
    sl_pins_destroy(&self->pins);
}

/* ---- one pass over the keys ---- */

struct pass {
    uint64_t bytes;
    uint32_t disk_count; /* keys to promote, in self->promote_keys */
    bool ended;          /* a limit was reached: pin nothing more */
    bool gap;            /* chain: a key was missing */
};

/* The first value of a peer may exceed its share, or it could never be read. */
static bool pin_allowed(const struct transporter *self, const struct tr_peer *peer,
                        uint64_t length_bytes)
{
    const struct sl_config *config = self->env->config;
    return peer->pinned == 0 ||
           (tr_share_allows(peer->pinned, 1, self->pins_open,
                            sl_config_u64(config, SL_SET_client_pins_max)) &&
            tr_share_allows(peer->pinned_bytes, length_bytes, sl_pins_pinned_bytes(self->pins),
                            pinned_bytes_max(config)));
}

static sl_err key_pin(struct transporter *self, struct tr_pin_set *set,
                      const struct sl_entry *entry)
{
    sl_pin pin = 0;
    struct tr_peer *peer = &self->peers[set->peer];
    if (!pin_allowed(self, peer, entry->extent.length_bytes)) {
        return SL_ERR_LIMIT;
    }
    sl_err err = sl_pins_take(self->pins, self->view, entry, &pin);
    if (err == SL_OK) {
        set->ranges[set->pin_count] = (struct tr_pinned_range){
            .offset_bytes = entry->extent.offset_bytes, .length_bytes = entry->extent.length_bytes};
        set->pins[set->pin_count++] = pin;
        peer->pinned++;
        peer->pinned_bytes += entry->extent.length_bytes;
        self->pins_open++;
        sl_pins_note_access(self->pins, entry->ref, entry->extent.generation);
    }
    return err;
}

static sl_err key_look(struct transporter *self, struct tr_pin_set *set,
                       const struct sl_item_sought *item, struct pass *pass,
                       struct sl_item_place *place)
{
    struct sl_entry entry;
    for (uint32_t i = 0; i < STALE_TRIES; i++) {
        sl_err err = sl_index_find(self->view, item->key.at, (uint32_t)item->key.length, &entry);
        if (err != SL_OK) {
            return err == SL_ERR_BUSY ? SL_ERR_LIMIT : err;
        }
        if ((entry.group != 0) != item->part) {
            return SL_ERR_NOT_FOUND;
        }
        bool first = set->pin_count == 0 && pass->disk_count == 0;
        if (!first && pass->bytes + entry.extent.length_bytes > set->bytes_max) {
            return SL_ERR_LIMIT;
        }
        if (entry.extent.generation == 0) {
            pass->bytes += entry.extent.length_bytes;
            self->promote_keys[pass->disk_count++] = item->key;
            return SL_ERR_BUSY;
        }
        err = key_pin(self, set, &entry);
        if (err == SL_OK) {
            pass->bytes += entry.extent.length_bytes;
            *place = (struct sl_item_place){
                .code = SL_OK,
                .arena = entry.extent.arena,
                .offset_bytes = entry.extent.offset_bytes,
                .length_bytes = entry.extent.length_bytes,
                .generation = entry.extent.generation,
                .digest_low = entry.digest.low,
                .digest_high = entry.digest.high,
            };
            return SL_OK;
        }
        if (err != SL_ERR_STALE) {
            return SL_ERR_LIMIT;
        }
    }
    return SL_ERR_LIMIT; /* it keeps changing: the reader may retry */
}

/* Pins what is in memory and fills self->places. Gives the number of keys to promote first. */
static uint32_t set_look(struct transporter *self, struct tr_pin_set *set,
                         const struct sl_item_sought *items)
{
    struct pass pass = {0};
    for (uint32_t i = 0; i < set->count; i++) {
        struct sl_item_place *place = &self->places[i];
        sl_err code = pass.gap     ? SL_ERR_CANCELLED
                      : pass.ended ? SL_ERR_LIMIT
                                   : key_look(self, set, &items[i], &pass, place);
        if (code != SL_OK) {
            *place = (struct sl_item_place){.code = (uint64_t)code};
        }
        pass.ended = pass.ended || code == SL_ERR_LIMIT;
        pass.gap = pass.gap || (set->chain && code == SL_ERR_NOT_FOUND);
    }
    return pass.disk_count;
}

/* ---- reads in progress ---- */

/* Whether one pinned value of the set contains the range. Values are read in the order of pins. */
static bool set_holds(struct tr_pin_set *set, uint64_t offset_bytes, uint64_t length_bytes)
{
    for (uint32_t i = 0; i < set->pin_count; i++) {
        uint32_t at = (set->range_hint + i) % set->pin_count;
        const struct tr_pinned_range *range = &set->ranges[at];
        if (offset_bytes >= range->offset_bytes &&
            offset_bytes - range->offset_bytes <= range->length_bytes &&
            length_bytes <= range->length_bytes - (offset_bytes - range->offset_bytes)) {
            set->range_hint = at;
            return true;
        }
    }
    return false;
}

bool tr_holder_may_read(void *context, uint64_t cookie, uint64_t offset_bytes,
                        uint64_t length_bytes)
{
    struct transporter *self = context;
    uint32_t peer = (uint32_t)cookie - 1;
    for (uint32_t i = 0; self->pin_sets_open > 0 && i < TR_PIN_SETS_MAX; i++) {
        uint32_t at = (self->pin_set_hint + i) % TR_PIN_SETS_MAX;
        struct tr_pin_set *set = &self->pin_sets[at];
        if (set->used && set->peer == peer && set_holds(set, offset_bytes, length_bytes)) {
            self->pin_set_hint = at;
            return true;
        }
    }
    return false;
}

/* ---- requests ---- */

static uint64_t set_id(const struct transporter *self, const struct tr_pin_set *set)
{
    return set->number << NUMBER_SHIFT | (uint64_t)(set - self->pin_sets);
}

static void set_answer(struct transporter *self, struct tr_pin_set *set)
{
    struct tr_peer *peer = &self->peers[set->peer];
    struct sl_msg reply = {.code = SL_OK, .op_id = set->op_id, .trace_id = set->trace_id};
    for (uint32_t i = 0; i < set->count; i++) {
        if (self->places[i].code == SL_ERR_BUSY) { /* could not be promoted */
            self->places[i].code = SL_ERR_NOT_FOUND;
        }
    }
    reply.body.peer_pin_reply.pin_id = set->pin_count > 0 ? set_id(self, set) : 0;
    reply.body.peer_pin_reply.ttl_ns = sl_budget_ns(self->env->now_ns, set->expires_ns);
    reply.body.peer_pin_reply.items.at = self->places;
    reply.body.peer_pin_reply.items.count = set->count;
    sl_metric_add(self->env->metrics, self->metric.pins_taken, set->pin_count);
    tr_peer_answer(self, peer, SL_MSG_PEER_PIN, set->seq, &reply);
    set->promoting = false;
    free(set->items);
    set->items = NULL;
    if (set->pin_count == 0) {
        set_free(self, set);
    }
}

/* Copies the items with their keys, which must outlive the message. */
static struct sl_item_sought *items_copy(const struct sl_item_sought *items, uint32_t count)
{
    size_t bytes = count * sizeof(*items);
    for (uint32_t i = 0; i < count; i++) {
        bytes += items[i].key.length;
    }
    struct sl_item_sought *copy = malloc(bytes);
    char *at = (char *)(copy + count);
    for (uint32_t i = 0; copy != NULL && i < count; i++) {
        copy[i] = items[i];
        copy[i].key.at = at;
        memcpy(at, items[i].key.at, items[i].key.length);
        at += items[i].key.length;
    }
    return copy;
}

static void set_promote(struct transporter *self, struct tr_pin_set *set,
                        const struct sl_item_sought *items, uint32_t disk_count)
{
    struct sl_msg promote = {.type = SL_MSG_BRING, .op_id = set->op_id, .trace_id = set->trace_id};
    promote.body.bring.keys.at = self->promote_keys;
    promote.body.bring.keys.count = disk_count;
    uint64_t left_ns = sl_budget_ns(self->env->now_ns, set->expires_ns);
    set->items = items_copy(items, set->count);
    set_unpin(self, set); /* pins nothing while the disk is read */
    if (set->items == NULL ||
        sl_calls_send(self->calls, "registrar", &promote,
                      sl_deadline_ns(self->env->now_ns, left_ns / PROMOTE_SHARE_N),
                      tr_cookie(TR_CALL_PROMOTE, (uint32_t)(set - self->pin_sets)),
                      &set->call_seq) != SL_OK) {
        (void)set_look(self, set, items);
        set_answer(self, set);
        return;
    }
    set->promoting = true;
    sl_metric_add(self->env->metrics, self->metric.promoted, disk_count);
}

void tr_holder_promoted(struct transporter *self, uint32_t index, const struct sl_msg *reply)
{
    (void)reply; /* the index shows the result */
    struct tr_pin_set *set = &self->pin_sets[index];
    if (!set->used || !set->promoting) {
        return;
    }
    if (sl_index_view_ready(self->env, &self->view)) {
        (void)set_look(self, set, set->items);
        set_answer(self, set);
    } else {
        set_free(self, set); /* the node's memory is being recreated */
    }
}

static struct tr_pin_set *set_new(struct transporter *self, struct tr_peer *peer, uint32_t count,
                                  struct sl_error *why)
{
    if (!tr_share_allows(peer->pin_sets, 1, self->pin_sets_open, TR_PIN_SETS_MAX)) {
        (void)sl_fail(why, SL_ERR_LIMIT, "node %s has %u of the %u open sets of pins", peer->name,
                      peer->pin_sets, self->pin_sets_open);
        return NULL;
    }
    struct tr_pin_set *set = self->pin_sets;
    while (set->used) { /* tr_share_allows guarantees a free entry */
        set++;
    }
    *set = (struct tr_pin_set){.used = true,
                               .peer = tr_peer_number(self, peer),
                               .number = ++self->pin_number,
                               .count = count};
    set->pins = calloc(SL_MAX(count, 1u), sizeof(*set->pins));
    set->ranges = calloc(SL_MAX(count, 1u), sizeof(*set->ranges));
    peer->pin_sets++;
    self->pin_sets_open++;
    sl_metric_set(self->env->metrics, self->metric.pins_open, self->pin_sets_open);
    if (set->pins == NULL || set->ranges == NULL) {
        set_free(self, set);
        (void)sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u pins", count);
        return NULL;
    }
    return set;
}

static sl_err pin_refusal(struct transporter *self, const struct tr_peer *peer,
                          struct sl_error *why)
{
    if (peer->incarnation == 0) {
        return sl_fail(why, SL_ERR_PERMISSION, "send PEER_HELLO first");
    }
    if (!self->pins_known || !sl_index_view_ready(self->env, &self->view)) {
        return sl_fail(why, SL_ERR_BUSY, "the node is starting");
    }
    return SL_OK;
}

void tr_holder_pin(struct transporter *self, struct tr_peer *peer, const struct sl_msg *msg)
{
    const struct sl_body_peer_pin *body = &msg->body.peer_pin;
    struct sl_error why = {0};
    struct sl_msg refusal = {.op_id = msg->op_id, .trace_id = msg->trace_id};
    refusal.code = pin_refusal(self, peer, &why);
    struct tr_pin_set *set =
        refusal.code == SL_OK ? set_new(self, peer, (uint32_t)body->items.count, &why) : NULL;
    if (set == NULL) {
        refusal.code = why.code;
        refusal.text = sl_text_of(why.text);
        tr_peer_answer(self, peer, SL_MSG_PEER_PIN, msg->seq, &refusal);
        return;
    }
    uint64_t ttl_ns = SL_MIN(body->ttl_ns, sl_config_u64(self->env->config, SL_SET_remote_pin_ttl));
    set->incarnation = peer->incarnation;
    set->expires_ns = sl_deadline_ns(self->env->now_ns, ttl_ns);
    set->seq = msg->seq;
    set->op_id = msg->op_id;
    set->trace_id = msg->trace_id;
    set->bytes_max = body->bytes_max;
    set->chain = body->chain;
    self->pins_due_ns = SL_MIN(self->pins_due_ns, set->expires_ns);
    uint32_t disk_count = set_look(self, set, body->items.at);
    if (disk_count > 0) {
        set_promote(self, set, body->items.at, disk_count);
    } else {
        set_answer(self, set);
    }
}

void tr_holder_unpin(struct transporter *self, struct tr_peer *peer, const struct sl_msg *msg)
{
    struct sl_msg reply = {.code = SL_OK, .op_id = msg->op_id, .trace_id = msg->trace_id};
    for (uint64_t i = 0; i < msg->body.peer_unpin.pin_ids.count; i++) {
        uint64_t id = msg->body.peer_unpin.pin_ids.at[i];
        uint64_t index = id & ((UINT64_C(1) << NUMBER_SHIFT) - 1);
        if (index >= TR_PIN_SETS_MAX) {
            continue;
        }
        struct tr_pin_set *set = &self->pin_sets[index];
        /* Ignores pins of other peers and expired ones. */
        if (set->used && !set->promoting && set->number == id >> NUMBER_SHIFT &&
            set->peer == tr_peer_number(self, peer)) {
            sl_metric_add(self->env->metrics, self->metric.values_served, set->pin_count);
            set_free(self, set);
        }
    }
    tr_peer_answer(self, peer, SL_MSG_PEER_UNPIN, msg->seq, &reply);
}

void tr_holder_renewed(struct transporter *self, const struct tr_peer *peer)
{
    for (uint32_t i = 0; i < TR_PIN_SETS_MAX; i++) {
        struct tr_pin_set *set = &self->pin_sets[i];
        if (set->used && set->peer == tr_peer_number(self, peer) &&
            set->incarnation != peer->incarnation) {
            set_free(self, set);
        }
    }
}

uint64_t tr_holder_step(struct transporter *self, uint64_t now_ns)
{
    if (now_ns < self->pins_due_ns) {
        return self->pins_due_ns;
    }
    self->pins_due_ns = SL_NEVER_NS;
    for (uint32_t i = 0; i < TR_PIN_SETS_MAX; i++) {
        struct tr_pin_set *set = &self->pin_sets[i];
        if (set->used && set->expires_ns <= now_ns) {
            sl_metric_add(self->env->metrics, self->metric.pins_expired, set->pin_count);
            set_free(self, set);
        } else if (set->used) {
            self->pins_due_ns = SL_MIN(self->pins_due_ns, set->expires_ns);
        }
    }
    return self->pins_due_ns;
}
