/* actors/transporter/pull/batches.c - fetch batches: one question to one peer, and the phases that
 * follow:
 *
 *   TR_PIN      the peer looks keys up and pins them for us
 *   TR_RESERVE  the registrar reserves extents, which we write
 *   TR_READ     one-sided reads into the arena, with digests checked on the way
 *   TR_COMMIT   the registrar makes the values visible
 *
 * A batch of a pull continues from TR_PIN with TR_READ, into engines' pools. In TR_CHECK the ranks'
 * swappers then digest what is in device memory (check.c). In TR_COPY parts of several ranks are
 * copied from the first rank to the others (straight.c).
 *
 * A unit leaves its batch when its result is known, or returns to the queue for the next peer. Its
 * parts stay together. Nothing is written into an extent whose claim has ended (FENCE). */
#include "actors/transporter/pull/pull.h"

#include <stdlib.h>
#include <string.h>

#define TTL_SPARE_NS SL_NS_PER_S /* reservations outlive their last use */

bool tr_unit_retry(struct transporter *self, struct tr_unit *unit,
                   const struct tr_fetch_batch *fetch_batch, sl_err code)
{
    unit->asked |=
        fetch_batch->deadline_ns > self->env->now_ns ? UINT64_C(1) << fetch_batch->peer : 0;
    unit->code = code != SL_ERR_CANCELLED ? code : unit->code;
    if (tr_unit_alive(self, unit) && tr_unit_peers(self, unit) == 0) {
        tr_unit_end(self, unit, unit->code);
        return false;
    }
    return tr_unit_queue(self, unit);
}

static uint64_t fetch_batch_parts(const struct tr_fetch_batch *fetch_batch)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < fetch_batch->unit_count; i++) {
        count += fetch_batch->units[i]->part_count;
    }
    return count;
}

/* Releases the pins at the peer. If the message is lost, they expire. */
static void fetch_batch_unpin(struct transporter *self, struct tr_fetch_batch *fetch_batch)
{
    if (fetch_batch->pin_id == 0) {
        return;
    }
    uint64_t seq = 0;
    struct sl_msg unpin = {
        .type = SL_MSG_PEER_UNPIN, .trace_id = fetch_batch->trace_id, .budget_ns = SL_NS_PER_S};
    unpin.body.peer_unpin.pin_ids.at = &fetch_batch->pin_id;
    unpin.body.peer_unpin.pin_ids.count = 1;
    (void)tr_peer_ask(self, &self->peers[fetch_batch->peer], &unpin, &seq);
    fetch_batch->pin_id = 0;
}

void tr_fetch_batch_end(struct transporter *self, struct tr_fetch_batch *fetch_batch)
{
    fetch_batch_unpin(self, fetch_batch);
    if (fetch_batch->call_seq != 0) {
        sl_calls_drop(self->calls, fetch_batch->call_seq);
    }
    sl_peer_health_over(&self->peers[fetch_batch->peer].health);
    fetch_batch->phase = TR_FREE;
    fetch_batch->unit_count = 0;
    fetch_batch->call_seq = 0;
    self->fetch_batches_open--;
    self->env->ops->wake_at(self->env, 0); /* start the next batch */
}

void tr_fetch_batch_compact(struct tr_fetch_batch *fetch_batch)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < fetch_batch->unit_count; i++) {
        if (fetch_batch->units[i] != NULL) {
            fetch_batch->units[kept++] = fetch_batch->units[i];
        }
    }
    fetch_batch->unit_count = kept;
}

/* Returns every unit to the queue. */
static void fetch_batch_fail(struct transporter *self, struct tr_fetch_batch *fetch_batch,
                             sl_err code)
{
    for (uint32_t i = 0; i < fetch_batch->unit_count; i++) {
        (void)tr_unit_retry(self, fetch_batch->units[i], fetch_batch, code);
    }
    tr_fetch_batch_end(self, fetch_batch);
}

/* ---- TR_PIN ---- */

static uint32_t peer_choose(uint64_t peers, uint64_t number)
{
    uint32_t turn = (uint32_t)(number % TR_PEERS_MAX);
    uint64_t after = peers & ~((UINT64_C(1) << turn) - 1);
    return (uint32_t)__builtin_ctzll(after != 0 ? after : peers);
}

static uint64_t fetch_batch_bytes_max(const struct transporter *self, bool pull)
{
    /* All batches together may reserve half of the memory. A pull reserves nothing. */
    const struct sl_config *config = self->env->config;
    uint64_t bytes_max = sl_config_u64(config, SL_SET_fetch_bytes);
    return pull ? bytes_max
                : SL_MIN(bytes_max,
                         sl_config_u64(config, SL_SET_memory) / 2 / self->fetch_batch_max);
}

/* Number of keys that fill a batch, estimated from the peer's recent values. Other keys use
 * parallel batches. */
static uint32_t fetch_batch_parts_max(const struct transporter *self, uint32_t peer, bool pull)
{
    uint64_t value_bytes = SL_MAX(self->peers[peer].value_bytes, UINT64_C(1));
    return (uint32_t)SL_MAX(
        SL_MIN(fetch_batch_bytes_max(self, pull) / value_bytes, (uint64_t)TR_KEYS_MAX),
        UINT64_C(1));
}

/* Takes the first unit from the queue, and units of the same BRING that the same peer may have. */
static void fetch_batch_fill(struct transporter *self, struct tr_fetch_batch *fetch_batch)
{
    uint32_t part_count = 0, place_count = 0, read_count = 0;
    uint64_t fetch_number = 0;
    uint32_t part_max = TR_KEYS_MAX;
    struct tr_unit **link = &self->queue_first;
    while (*link != NULL) {
        struct tr_unit *unit = *link;
        uint64_t peers = tr_unit_peers(self, unit);
        bool first = fetch_batch->unit_count == 0;
        if (first) {
            fetch_batch->peer = peers != 0 ? peer_choose(peers, unit->fetch_number) : 0;
            fetch_batch->chain = unit->chain;
            fetch_batch->pull = unit->pull;
            fetch_batch->trace_id = unit->trace_id;
            fetch_number = unit->fetch_number;
            part_max =
                unit->alone ? 1 : fetch_batch_parts_max(self, fetch_batch->peer, fetch_batch->pull);
        }
        bool fits = unit->fetch_number == fetch_number && !unit->alone &&
                    part_count + unit->part_count <= part_max &&
                    place_count + unit->place_count <= TR_BATCH_PLACES_MAX &&
                    read_count + unit->read_count <= TR_KEYS_MAX;
        if (!first && (!fits || (peers >> fetch_batch->peer & 1) == 0)) {
            link = &unit->next;
            if (unit->fetch_number == fetch_number) {
                break; /* keeps the order of a chain */
            }
            continue;
        }
        *link = unit->next;
        self->queue_end = unit->next == NULL ? link : self->queue_end;
        unit->queued = false;
        if (peers == 0) {
            tr_unit_end(self, unit, unit->code);
            if (first) {
                break; /* nothing started: the caller retries */
            }
            continue;
        }
        fetch_batch->units[fetch_batch->unit_count++] = unit;
        part_count += unit->part_count;
        place_count += unit->place_count;
        read_count += unit->read_count;
        fetch_batch->deadline_ns = SL_MAX(fetch_batch->deadline_ns, unit->deadline_ns);
    }
}

static void fetch_batch_pinned(struct transporter *self, struct tr_question *question,
                               uint32_t number, const struct sl_msg *reply);

static void pin_send(struct transporter *self, struct tr_fetch_batch *fetch_batch)
{
    struct sl_env *env = self->env;
    struct tr_peer *peer = &self->peers[fetch_batch->peer];
    struct sl_msg pin = {.type = SL_MSG_PEER_PIN, .trace_id = fetch_batch->trace_id};
    uint32_t count = 0;
    for (uint32_t i = 0; i < fetch_batch->unit_count; i++) {
        const struct tr_unit *unit = fetch_batch->units[i];
        for (uint32_t k = 0; k < unit->part_count; k++) {
            const struct tr_part *part = &unit->parts[k];
            self->sought[count++] =
                (struct sl_item_sought){.key = {.at = part->key, .length = part->key_length},
                                        .part = unit->group_key != NULL};
        }
    }
    uint64_t left_ns = sl_budget_ns(env->now_ns, fetch_batch->deadline_ns);
    pin.body.peer_pin = (struct sl_body_peer_pin){
        .ttl_ns = SL_MAX(left_ns, UINT64_C(1)),
        .bytes_max = fetch_batch->unit_count > 1
                         ? SL_MAX(fetch_batch_bytes_max(self, fetch_batch->pull), UINT64_C(1))
                         : UINT64_MAX,
        .chain = fetch_batch->chain,
    };
    pin.body.peer_pin.items.at = self->sought;
    pin.body.peer_pin.items.count = count;
    sl_trace_event(env->metrics, env->now_ns, fetch_batch->trace_id, "pin", peer->name, count);
    tr_question_begin(self, &fetch_batch->question, left_ns);
    fetch_batch->question.answered = fetch_batch_pinned;
    if (tr_question_ask(self, &fetch_batch->question, fetch_batch->peer, &pin) != SL_OK) {
        tr_peer_failed(self, peer);
        fetch_batch_fail(self, fetch_batch, SL_ERR_UNREACHABLE);
    }
}

void tr_fetch_batch_start(struct transporter *self)
{
    uint32_t index = 0;
    while (self->fetch_batches[index].phase != TR_FREE) {
        index++;
    }
    SL_ASSERT(index < self->fetch_batch_max);
    struct tr_fetch_batch *fetch_batch = &self->fetch_batches[index];
    fetch_batch->unit_count = 0;
    fetch_batch->deadline_ns = 0;
    fetch_batch->call_seq = fetch_batch->pin_id = fetch_batch->cookie = 0;
    fetch_batch_fill(self, fetch_batch);
    if (fetch_batch->unit_count == 0) {
        return;
    }
    fetch_batch->phase = TR_PIN;
    self->fetch_batches_open++;
    sl_metric_add(self->env->metrics, self->metric.fetch_batches, 1);
    pin_send(self, fetch_batch);
}

/* The result for a unit, from the places of its parts. */
static sl_err places_code(const struct tr_unit *unit, const struct tr_peer *peer,
                          const struct sl_item_place *places)
{
    for (uint32_t k = 0; k < unit->part_count; k++) {
        if (places[k].code != SL_OK) {
            return sl_err_received(places[k].code);
        }
        if (places[k].arena != 0 || !peer->window.used) {
            return SL_ERR_STALE; /* a later greeting contains its key */
        }
        if (places[k].length_bytes == 0) {
            return SL_ERR_PROTOCOL;
        }
        uint64_t slot_bytes = unit->parts[k].slot_bytes;
        if (unit->pull && places[k].length_bytes != slot_bytes) {
            return SL_ERR_INVALID; /* the engine's layout differs */
        }
    }
    return SL_OK;
}

static void places_keep(struct tr_unit *unit, const struct sl_item_place *places)
{
    for (uint32_t k = 0; k < unit->part_count; k++) {
        struct tr_part *part = &unit->parts[k];
        part->ref = 0;
        part->remote_offset_bytes = places[k].offset_bytes;
        part->length_bytes = places[k].length_bytes;
        part->digest =
            (struct sl_digest){.low = places[k].digest_low, .high = places[k].digest_high};
    }
}

static void reserve_send(struct transporter *self, struct tr_fetch_batch *fetch_batch);
static void read_post(struct transporter *self, struct tr_fetch_batch *fetch_batch);

static void places_taken(struct transporter *self, struct tr_fetch_batch *fetch_batch,
                         const struct sl_item_place *places)
{
    const struct tr_peer *peer = &self->peers[fetch_batch->peer];
    uint32_t at = 0, kept = 0;
    bool gap = false, over = false; /* a unit of the chain is missing at this peer; at all peers */
    for (uint32_t i = 0; i < fetch_batch->unit_count; i++) {
        struct tr_unit *unit = fetch_batch->units[i];
        sl_err code = places_code(unit, peer, &places[at]);
        if (code == SL_OK) {
            places_keep(unit, &places[at]);
            kept++;
        } else {
            fetch_batch->units[i] = NULL;
        }
        at += unit->part_count;
        if (code == SL_ERR_NOT_FOUND) {
            sl_missing_note(self->missing, unit->hash, UINT64_C(1) << fetch_batch->peer,
                            self->env->now_ns);
        }
        if (code == SL_ERR_LIMIT && (kept > 0 || (fetch_batch->unit_count > 1 && !unit->alone))) {
            unit->alone = kept == 0; /* larger than an answer: it needs a batch of its own */
            (void)tr_unit_queue(self, unit);
        } else if (code == SL_ERR_CANCELLED && over) {
            tr_unit_end(self, unit, unit->code); /* the chain ends before it */
        } else if (code == SL_ERR_CANCELLED && gap) {
            (void)tr_unit_queue(self, unit); /* the peer did not look for it, and may have it */
        } else if (code != SL_OK) {
            bool goes_on = tr_unit_retry(self, unit, fetch_batch, code);
            gap = gap || (fetch_batch->chain && code == SL_ERR_NOT_FOUND);
            over = over || (fetch_batch->chain && code == SL_ERR_NOT_FOUND && !goes_on);
        }
    }
    tr_fetch_batch_compact(fetch_batch);
}

static void fetch_batch_pinned(struct transporter *self, struct tr_question *question,
                               uint32_t number, const struct sl_msg *reply)
{
    struct tr_fetch_batch *fetch_batch = (struct tr_fetch_batch *)question; /* its first member */
    struct tr_peer *peer = &self->peers[number];
    if (reply == NULL) {
        fetch_batch_fail(self, fetch_batch, SL_ERR_UNREACHABLE);
        return;
    }
    const struct sl_body_peer_pin_reply *body = &reply->body.peer_pin_reply;
    if (reply->code != SL_OK || body->items.count != fetch_batch_parts(fetch_batch)) {
        tr_peer_failed(self, peer);
        fetch_batch_fail(self, fetch_batch, reply->code != SL_OK ? reply->code : SL_ERR_PROTOCOL);
        return;
    }
    fetch_batch->pin_id = body->pin_id;
    fetch_batch->pins_until_ns = sl_deadline_ns(self->env->now_ns, body->ttl_ns);
    places_taken(self, fetch_batch, body->items.at);
    if (fetch_batch->unit_count == 0) { /* the peer works, but has none of them */
        sl_peer_health_worked(&peer->health);
        tr_fetch_batch_end(self, fetch_batch);
        return;
    }
    if (fetch_batch->pull) {
        read_post(self, fetch_batch);
    } else {
        reserve_send(self, fetch_batch);
    }
}

void tr_fetch_batch_pinned_late(struct transporter *self, const struct tr_peer *peer,
                                const struct sl_msg *reply)
{
    struct tr_fetch_batch gone = {.peer = tr_peer_number(self, peer),
                                  .pin_id =
                                      reply->code == SL_OK ? reply->body.peer_pin_reply.pin_id : 0};
    fetch_batch_unpin(self, &gone);
}

/* ---- TR_RESERVE ---- */

/* Aborts `count` claims in the scratch buffer; 0: all that the batch may have got. If this is not
 * sent, the reservations expire, and we answer their fences. */
static void abort_send(struct transporter *self, const struct tr_fetch_batch *fetch_batch,
                       uint32_t count)
{
    struct sl_msg abort = {
        .type = SL_MSG_ABORT, .op_id = fetch_batch->op_id, .trace_id = fetch_batch->trace_id};
    abort.body.abort.items.at = self->claims;
    abort.body.abort.items.count = count;
    (void)sl_calls_send(self->calls, "registrar", &abort,
                        sl_deadline_ns(self->env->now_ns, TR_CALL_NS),
                        tr_cookie(TR_CALL_IGNORED, 0), NULL);
}

/* Aborts the reserved parts of a unit that will not be committed. */
static void unit_abort(struct transporter *self, const struct tr_fetch_batch *fetch_batch,
                       struct tr_unit *unit)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < unit->part_count; k++) {
        struct tr_part *part = &unit->parts[k];
        if (part->ref != 0) {
            self->claims[count++] =
                (struct sl_item_claim){.ref = part->ref, .generation = part->generation};
        }
        part->ref = 0;
    }
    if (count > 0) {
        abort_send(self, fetch_batch, count);
    }
}

static void fetch_batch_abandon(struct transporter *self, struct tr_fetch_batch *fetch_batch,
                                sl_err code)
{
    for (uint32_t i = 0; i < fetch_batch->unit_count; i++) {
        unit_abort(self, fetch_batch, fetch_batch->units[i]);
    }
    fetch_batch_fail(self, fetch_batch, code);
}

/* Sends a call to the registrar. */
static void fetch_batch_call(struct transporter *self, struct tr_fetch_batch *fetch_batch,
                             const struct sl_msg *msg, uint64_t deadline_ns)
{
    sl_err err =
        sl_calls_send(self->calls, "registrar", msg, deadline_ns,
                      tr_cookie(TR_CALL_FETCH_BATCH, (uint32_t)(fetch_batch - self->fetch_batches)),
                      &fetch_batch->call_seq);
    if (err != SL_OK) {
        fetch_batch->call_seq = 0;
        fetch_batch_abandon(self, fetch_batch, err);
    }
}

static void reserve_send(struct transporter *self, struct tr_fetch_batch *fetch_batch)
{
    uint32_t want_count = 0, group_count = 0;
    for (uint32_t i = 0; i < fetch_batch->unit_count; i++) {
        const struct tr_unit *unit = fetch_batch->units[i];
        if (unit->group_key != NULL) {
            struct sl_item_group *group = &self->groups[group_count++];
            *group = unit->wanted;
            group->key = (struct sl_text){.at = unit->group_key, .length = unit->group_key_length};
            group->part_count = unit->part_count;
        }
        for (uint32_t k = 0; k < unit->part_count; k++) {
            const struct tr_part *part = &unit->parts[k];
            self->wants[want_count++] = (struct sl_item_want){
                .key = {.at = part->key, .length = part->key_length},
                .length_bytes = part->length_bytes,
                .group = unit->group_key != NULL ? group_count : 0,
                .part_index = k,
            };
        }
    }
    struct sl_msg reserve = {.type = SL_MSG_RESERVE, .trace_id = fetch_batch->trace_id};
    fetch_batch->op_id = reserve.op_id = self->next_op_id++;
    reserve.body.reserve.wait = true;
    reserve.body.reserve.ttl_ns =
        sl_budget_ns(self->env->now_ns, fetch_batch->deadline_ns) + TTL_SPARE_NS;
    reserve.body.reserve.items.at = self->wants;
    reserve.body.reserve.items.count = want_count;
    reserve.body.reserve.groups.at = self->groups;
    reserve.body.reserve.groups.count = group_count;
    fetch_batch->phase = TR_RESERVE;
    fetch_batch_call(self, fetch_batch, &reserve, fetch_batch->deadline_ns);
}

/* SL_OK: all parts are reserved for us. SL_ERR_EXISTS: all exist. */
static sl_err grants_keep(struct tr_unit *unit, const struct sl_item_grant *grants)
{
    sl_err code = SL_OK;
    uint32_t granted = 0, existing = 0;
    for (uint32_t k = 0; k < unit->part_count; k++) {
        struct tr_part *part = &unit->parts[k];
        if (grants[k].code == SL_OK && grants[k].ref != 0 && grants[k].arena == 0) {
            part->ref = (sl_ref)grants[k].ref;
            part->generation = grants[k].generation;
            part->offset_bytes = grants[k].offset_bytes;
            granted++;
        } else if (grants[k].code == SL_ERR_EXISTS) {
            existing++;
        } else if (code == SL_OK) {
            code = grants[k].code < SL_ERR_COUNT && grants[k].code != SL_OK ? (sl_err)grants[k].code
                                                                            : SL_ERR_PROTOCOL;
        }
    }
    if (code != SL_OK || granted == unit->part_count) {
        return code;
    }
    return existing == unit->part_count ? SL_ERR_EXISTS : SL_ERR_BUSY;
}

static void reserve_answered(struct transporter *self, struct tr_fetch_batch *fetch_batch,
                             const struct sl_msg *reply)
{
    if (reply == NULL || reply->code != SL_OK ||
        reply->body.reserve_reply.items.count != fetch_batch_parts(fetch_batch)) {
        sl_err code = reply != NULL && reply->code != SL_OK ? reply->code : SL_ERR_PROTOCOL;
        /* Some claims may have been granted, or may be granted later. Without this ABORT the keys
         * would stay reserved without a writer, and the next fetch would take that for a miss. */
        abort_send(self, fetch_batch, 0);
        for (uint32_t i = 0; i < fetch_batch->unit_count; i++) {
            if (reply == NULL) {
                (void)tr_unit_queue(self,
                                    fetch_batch->units[i]); /* a joined request may have time */
            } else {
                tr_unit_end(self, fetch_batch->units[i], code); /* another peer would not help */
            }
        }
        tr_fetch_batch_end(self, fetch_batch);
        return;
    }
    const struct sl_item_grant *grants = reply->body.reserve_reply.items.at;
    for (uint32_t i = 0; i < fetch_batch->unit_count; i++) {
        struct tr_unit *unit = fetch_batch->units[i];
        sl_err code = grants_keep(unit, grants);
        grants += unit->part_count;
        if (code != SL_OK) {
            fetch_batch->units[i] = NULL;
            unit_abort(self, fetch_batch, unit);
            tr_unit_end(self, unit, code); /* SL_ERR_EXISTS: another writer was faster */
        }
    }
    tr_fetch_batch_compact(fetch_batch);
    if (fetch_batch->unit_count == 0) {
        sl_peer_health_worked(&self->peers[fetch_batch->peer].health);
        tr_fetch_batch_end(self, fetch_batch);
        return;
    }
    read_post(self, fetch_batch);
}

/* ---- TR_READ ---- */

/* Whether the unit's destinations may still be written. */
static sl_err unit_writable(const struct transporter *self, const struct tr_unit *unit)
{
    for (uint32_t k = 0; !unit->pull && k < unit->part_count; k++) {
        const struct tr_part *part = &unit->parts[k];
        if (!sl_index_claim_exists(self->view, part->ref, part->generation)) {
            return SL_ERR_STALE;
        }
    }
    return unit->cancelled;
}

/* Adds the reads of a unit after *count pieces and *places places of other units: one piece for
 * each part; for parts in device memory, one for each target. */
static sl_err unit_pieces(struct transporter *self, const struct tr_fetch_batch *fetch_batch,
                          struct tr_unit *unit, uint32_t *count, uint32_t *places)
{
    sl_err err = SL_OK;
    for (uint32_t k = 0; k < unit->part_count; k++) {
        struct tr_part *part = &unit->parts[k];
        for (uint32_t i = 0; i < part->read_count && err == SL_OK; i++) {
            SL_ASSERT(*count < TR_KEYS_MAX);
            struct sl_fabric_piece *piece = &self->pieces[(*count)++];
            *piece = (struct sl_fabric_piece){
                .key = self->peers[fetch_batch->peer].window.key,
                .remote_offset_bytes = part->remote_offset_bytes,
                .length_bytes = part->length_bytes,
                .digest = &part->digest,
            };
            if (fetch_batch->pull) {
                err = tr_pull_piece(self, &part->targets[i], places, piece);
            } else {
                piece->memory = self->arena.memory;
                piece->offset_bytes = part->offset_bytes;
            }
        }
    }
    return err;
}

static void read_post(struct transporter *self, struct tr_fetch_batch *fetch_batch)
{
    struct sl_error why = {0};
    uint32_t count = 0, places = 0;
    bool may = sl_index_view_ready(self->env, &self->view) &&
               self->peers[fetch_batch->peer].window.used &&
               (fetch_batch->pull || (tr_arena_is_current(self) && self->arena.registered));
    for (uint32_t i = 0; i < fetch_batch->unit_count; i++) {
        struct tr_unit *unit = fetch_batch->units[i];
        uint32_t others = count, their_places = places;
        sl_err code = may ? unit_writable(self, unit) : SL_ERR_STALE;
        code = code == SL_OK ? unit_pieces(self, fetch_batch, unit, &count, &places) : code;
        if (code != SL_OK) { /* its claim or its engine ended meanwhile */
            count = others;
            places = their_places;
            fetch_batch->units[i] = NULL;
            unit_abort(self, fetch_batch, unit);
            tr_unit_end(self, unit, code);
        }
    }
    tr_fetch_batch_compact(fetch_batch);
    if (fetch_batch->unit_count == 0) {
        tr_fetch_batch_end(self, fetch_batch);
        return;
    }
    fetch_batch->cookie = self->next_op_id++;
    const struct sl_fabric_transfer transfer = {
        .peer = self->peers[fetch_batch->peer].fabric_peer,
        .pieces = self->pieces,
        .piece_count = count,
        .deadline_ns = SL_MIN(fetch_batch->deadline_ns, fetch_batch->pins_until_ns),
        .cookie = fetch_batch->cookie,
    };
    fetch_batch->phase = TR_READ;
    sl_err err = sl_fabric_post(self->fabric, &transfer, &why);
    self->env->ops->wake_at(self->env, 0);
    if (err != SL_OK) {
        sl_log_write(self->env->log, SL_LOG_WARN, fetch_batch->trace_id, "read from node %s: %s",
                     self->peers[fetch_batch->peer].name, why.text);
        fetch_batch_abandon(self, fetch_batch, err);
    }
}

static struct tr_fetch_batch *fetch_batch_reading(struct transporter *self, uint64_t cookie)
{
    for (uint32_t i = 0; i < self->fetch_batch_max; i++) {
        if (self->fetch_batches[i].phase == TR_READ && self->fetch_batches[i].cookie == cookie) {
            return &self->fetch_batches[i];
        }
    }
    return NULL;
}

/* Whether the end of a transfer shows that its peer fails. */
static bool is_peers_fault(sl_err code)
{
    return code == SL_ERR_PEER_DIED || code == SL_ERR_UNREACHABLE || code == SL_ERR_CORRUPT ||
           code == SL_ERR_PERMISSION;
}

static void commit_send(struct transporter *self, struct tr_fetch_batch *fetch_batch);

void tr_fetch_batch_read(void *context, const struct sl_fabric_done *done)
{
    struct transporter *self = context;
    struct tr_fetch_batch *fetch_batch = fetch_batch_reading(self, done->cookie);
    SL_ASSERT(fetch_batch != NULL); /* a batch always waits for its transfer */
    struct tr_peer *peer = &self->peers[fetch_batch->peer];
    const uint8_t *codes = done->pieces;
    fetch_batch_unpin(self, fetch_batch);
    for (uint32_t i = 0; i < fetch_batch->unit_count; i++) {
        struct tr_unit *unit = fetch_batch->units[i];
        sl_err code = unit->cancelled; /* a cancelled unit is not copied on */
        for (uint32_t k = 0; k < unit->read_count; k++) {
            code = code == SL_OK ? (sl_err)codes[k] : code;
        }
        codes += unit->read_count;
        if (code == SL_OK) {
            peer->read_values += unit->part_count;
            continue;
        }
        sl_metric_add(self->env->metrics, self->metric.digests_bad, code == SL_ERR_CORRUPT ? 1 : 0);
        fetch_batch->units[i] = NULL;
        unit_abort(self, fetch_batch, unit);
        (void)tr_unit_retry(self, unit, fetch_batch, code);
    }
    peer->read_bytes += done->moved_bytes;
    if (done->code == SL_OK) {
        peer->value_bytes = done->moved_bytes / SL_MAX(done->piece_count, 1u);
    }
    sl_metric_add(self->env->metrics, self->metric.bytes_read, done->moved_bytes);
    if (is_peers_fault(done->code)) {
        tr_peer_failed(self, peer);
    } else if (done->code == SL_OK) {
        sl_peer_health_worked(&peer->health);
    }
    tr_fetch_batch_compact(fetch_batch);
    if (fetch_batch->fences != 0) {
        self->events.fences_over(self, fetch_batch->fences);
        fetch_batch->fences = 0;
    }
    if (fetch_batch->unit_count == 0) {
        tr_fetch_batch_end(self, fetch_batch);
    } else if (fetch_batch->pull) {
        tr_fetch_batch_landed(self, fetch_batch);
    } else {
        commit_send(self, fetch_batch);
    }
}

void tr_fetch_batch_landed(struct transporter *self, struct tr_fetch_batch *fetch_batch)
{
    while (fetch_batch->unit_count > 0 && tr_check_next(self, fetch_batch)) {
        if (fetch_batch->phase == TR_CHECK) {
            return; /* one rank at a time: the answer calls this again */
        }
    }
    if (fetch_batch->unit_count == 0) {
        tr_fetch_batch_end(self, fetch_batch);
        return;
    }
    fetch_batch->phase = TR_COPY;
    self->env->ops->wake_at(self->env, 0);
}

/* ---- TR_COMMIT ---- */

static void commit_send(struct transporter *self, struct tr_fetch_batch *fetch_batch)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < fetch_batch->unit_count; i++) {
        for (uint32_t k = 0; k < fetch_batch->units[i]->part_count; k++) {
            const struct tr_part *part = &fetch_batch->units[i]->parts[k];
            self->claims[count++] = (struct sl_item_claim){.ref = part->ref,
                                                           .generation = part->generation,
                                                           .digest_low = part->digest.low,
                                                           .digest_high = part->digest.high};
        }
    }
    struct sl_msg commit = {
        .type = SL_MSG_COMMIT, .op_id = fetch_batch->op_id, .trace_id = fetch_batch->trace_id};
    commit.body.commit.tail_first = fetch_batch->chain;
    commit.body.commit.items.at = self->claims;
    commit.body.commit.items.count = count;
    fetch_batch->phase = TR_COMMIT;
    /* The bytes are here, so they are made visible even if no request waits any more. */
    fetch_batch_call(self, fetch_batch, &commit, sl_deadline_ns(self->env->now_ns, TR_COMMIT_NS));
}

static void commit_answered(struct transporter *self, struct tr_fetch_batch *fetch_batch,
                            const struct sl_msg *reply)
{
    bool whole = reply != NULL && reply->code == SL_OK;
    const struct sl_u64s *codes = whole ? &reply->body.commit_reply.codes : NULL;
    uint64_t at = 0;
    for (uint32_t i = 0; i < fetch_batch->unit_count; i++) {
        struct tr_unit *unit = fetch_batch->units[i];
        sl_err code = whole ? SL_OK : reply == NULL ? SL_ERR_TIMEOUT : reply->code;
        for (uint32_t k = 0; whole && k < unit->part_count; k++, at++) {
            uint64_t said = at < codes->count ? codes->at[at] : SL_ERR_PROTOCOL;
            code = code != SL_OK ? code : sl_err_received(said);
        }
        if (code == SL_OK) {
            sl_metric_add(self->env->metrics, self->metric.values_read, unit->part_count);
        }
        tr_unit_end(self, unit, code);
    }
    tr_fetch_batch_end(self, fetch_batch);
}

void tr_fetch_batch_answered(struct transporter *self, uint32_t index, const struct sl_msg *reply)
{
    SL_ASSERT(index < self->fetch_batch_max);
    struct tr_fetch_batch *fetch_batch = &self->fetch_batches[index];
    fetch_batch->call_seq = 0;
    if (fetch_batch->phase == TR_RESERVE) {
        reserve_answered(self, fetch_batch, reply);
    } else if (fetch_batch->phase == TR_CHECK) {
        tr_check_answered(self, fetch_batch, reply);
    } else if (fetch_batch->phase == TR_COMMIT) {
        commit_answered(self, fetch_batch, reply);
    }
}

/* ---- fences: claims that ended during a read ---- */

static bool fetch_batch_reads(const struct tr_fetch_batch *fetch_batch,
                              const struct sl_item_claim *claim)
{
    for (uint32_t i = 0; i < fetch_batch->unit_count; i++) {
        for (uint32_t k = 0; k < fetch_batch->units[i]->part_count; k++) {
            const struct tr_part *part = &fetch_batch->units[i]->parts[k];
            if (part->ref == claim->ref && part->generation == claim->generation) {
                return true;
            }
        }
    }
    return false;
}

uint32_t tr_fetch_batches_fence(struct transporter *self, const struct sl_msg *msg, uint64_t bit)
{
    uint32_t fetch_batches = 0;
    for (uint32_t i = 0; i < self->fetch_batch_max && self->fetch_batches != NULL; i++) {
        struct tr_fetch_batch *fetch_batch = &self->fetch_batches[i];
        for (uint64_t c = 0; fetch_batch->phase == TR_READ && c < msg->body.fence.items.count;
             c++) {
            if (fetch_batch_reads(fetch_batch, &msg->body.fence.items.at[c])) {
                fetch_batches++;
                fetch_batch->fences |= bit;
                (void)sl_fabric_cancel(self->fabric, fetch_batch->cookie);
                break;
            }
        }
    }
    return fetch_batches;
}
