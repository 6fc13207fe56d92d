/* actors/transporter/pull/trips.c - fetch batches: one question to one peer, and the phases that
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

bool tr_unit_back(struct transporter *self, struct tr_unit *unit, const struct tr_trip *trip,
                  sl_err code)
{
    unit->asked |= trip->deadline_ns > self->env->now_ns ? UINT64_C(1) << trip->peer : 0;
    unit->code = code != SL_ERR_CANCELLED ? code : unit->code;
    if (tr_unit_lives(self, unit) && tr_unit_peers(self, unit) == 0) {
        tr_unit_end(self, unit, unit->code);
        return false;
    }
    return tr_unit_queue(self, unit);
}

static uint64_t trip_parts(const struct tr_trip *trip)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < trip->unit_count; i++) {
        count += trip->units[i]->part_count;
    }
    return count;
}

/* Releases the pins at the peer. If the message is lost, they expire. */
static void trip_unpin(struct transporter *self, struct tr_trip *trip)
{
    if (trip->pin_id == 0) {
        return;
    }
    uint64_t seq = 0;
    struct sl_msg unpin = {
        .type = SL_MSG_PEER_UNPIN, .trace_id = trip->trace_id, .budget_ns = SL_NS_PER_S};
    unpin.body.peer_unpin.pin_ids.at = &trip->pin_id;
    unpin.body.peer_unpin.pin_ids.count = 1;
    (void)tr_peer_ask(self, &self->peers[trip->peer], &unpin, &seq);
    trip->pin_id = 0;
}

void tr_trip_end(struct transporter *self, struct tr_trip *trip)
{
    trip_unpin(self, trip);
    if (trip->call_seq != 0) {
        sl_calls_forget(self->calls, trip->call_seq);
    }
    sl_peer_health_over(&self->peers[trip->peer].health);
    trip->phase = TR_FREE;
    trip->unit_count = 0;
    trip->call_seq = 0;
    self->trips_open--;
    self->env->ops->wake_at(self->env, 0); /* start the next batch */
}

void tr_trip_close_up(struct tr_trip *trip)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < trip->unit_count; i++) {
        if (trip->units[i] != NULL) {
            trip->units[kept++] = trip->units[i];
        }
    }
    trip->unit_count = kept;
}

/* Returns every unit to the queue. */
static void trip_fail(struct transporter *self, struct tr_trip *trip, sl_err code)
{
    for (uint32_t i = 0; i < trip->unit_count; i++) {
        (void)tr_unit_back(self, trip->units[i], trip, code);
    }
    tr_trip_end(self, trip);
}

/* ---- TR_PIN ---- */

static uint32_t peer_choose(uint64_t peers, uint64_t number)
{
    uint32_t turn = (uint32_t)(number % TR_PEERS_MAX);
    uint64_t after = peers & ~((UINT64_C(1) << turn) - 1);
    return (uint32_t)__builtin_ctzll(after != 0 ? after : peers);
}

static uint64_t trip_bytes_max(const struct transporter *self, bool pull)
{
    /* All batches together may reserve half of the memory. A pull reserves nothing. */
    const struct sl_config *config = self->env->config;
    uint64_t bytes_max = sl_config_u64(config, SL_SET_fetch_bytes);
    return pull ? bytes_max
                : SL_MIN(bytes_max, sl_config_u64(config, SL_SET_memory) / 2 / self->trip_max);
}

/* Number of keys that fill a batch, estimated from the peer's recent values. Other keys use
 * parallel batches. */
static uint32_t trip_parts_max(const struct transporter *self, uint32_t peer, bool pull)
{
    uint64_t value_bytes = SL_MAX(self->peers[peer].value_bytes, UINT64_C(1));
    return (uint32_t)SL_MAX(SL_MIN(trip_bytes_max(self, pull) / value_bytes, (uint64_t)TR_KEYS_MAX),
                            UINT64_C(1));
}

/* Takes the first unit from the queue, and units of the same BRING that the same peer may have. */
static void trip_fill(struct transporter *self, struct tr_trip *trip)
{
    uint32_t part_count = 0, place_count = 0, read_count = 0;
    uint64_t fetch_number = 0;
    uint32_t part_max = TR_KEYS_MAX;
    struct tr_unit **link = &self->queue_first;
    while (*link != NULL) {
        struct tr_unit *unit = *link;
        uint64_t peers = tr_unit_peers(self, unit);
        bool first = trip->unit_count == 0;
        if (first) {
            trip->peer = peers != 0 ? peer_choose(peers, unit->fetch_number) : 0;
            trip->chain = unit->chain;
            trip->pull = unit->pull;
            trip->trace_id = unit->trace_id;
            fetch_number = unit->fetch_number;
            part_max = unit->alone ? 1 : trip_parts_max(self, trip->peer, trip->pull);
        }
        bool fits = unit->fetch_number == fetch_number && !unit->alone &&
                    part_count + unit->part_count <= part_max &&
                    place_count + unit->place_count <= TR_TRIP_PLACES_MAX &&
                    read_count + unit->read_count <= TR_KEYS_MAX;
        if (!first && (!fits || (peers >> trip->peer & 1) == 0)) {
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
        trip->units[trip->unit_count++] = unit;
        part_count += unit->part_count;
        place_count += unit->place_count;
        read_count += unit->read_count;
        trip->deadline_ns = SL_MAX(trip->deadline_ns, unit->deadline_ns);
    }
}

static void trip_pinned(struct transporter *self, struct tr_question *question, uint32_t number,
                        const struct sl_msg *reply);

static void pin_send(struct transporter *self, struct tr_trip *trip)
{
    struct sl_env *env = self->env;
    struct tr_peer *peer = &self->peers[trip->peer];
    struct sl_msg pin = {.type = SL_MSG_PEER_PIN, .trace_id = trip->trace_id};
    uint32_t count = 0;
    for (uint32_t i = 0; i < trip->unit_count; i++) {
        const struct tr_unit *unit = trip->units[i];
        for (uint32_t k = 0; k < unit->part_count; k++) {
            const struct tr_part *part = &unit->parts[k];
            self->sought[count++] =
                (struct sl_item_sought){.key = {.at = part->key, .length = part->key_length},
                                        .part = unit->group_key != NULL};
        }
    }
    uint64_t left_ns = sl_budget_ns(env->now_ns, trip->deadline_ns);
    pin.body.peer_pin = (struct sl_body_peer_pin){
        .ttl_ns = SL_MAX(left_ns, UINT64_C(1)),
        .bytes_max = trip->unit_count > 1 ? SL_MAX(trip_bytes_max(self, trip->pull), UINT64_C(1))
                                          : UINT64_MAX,
        .chain = trip->chain,
    };
    pin.body.peer_pin.items.at = self->sought;
    pin.body.peer_pin.items.count = count;
    sl_trace_event(env->metrics, env->now_ns, trip->trace_id, "pin", peer->name, count);
    tr_question_begin(self, &trip->question, left_ns);
    trip->question.answered = trip_pinned;
    if (tr_question_ask(self, &trip->question, trip->peer, &pin) != SL_OK) {
        tr_peer_failed(self, peer);
        trip_fail(self, trip, SL_ERR_UNREACHABLE);
    }
}

void tr_trip_start(struct transporter *self)
{
    uint32_t index = 0;
    while (self->trips[index].phase != TR_FREE) {
        index++;
    }
    SL_ASSERT(index < self->trip_max);
    struct tr_trip *trip = &self->trips[index];
    trip->unit_count = 0;
    trip->deadline_ns = 0;
    trip->call_seq = trip->pin_id = trip->cookie = 0;
    trip_fill(self, trip);
    if (trip->unit_count == 0) {
        return;
    }
    trip->phase = TR_PIN;
    self->trips_open++;
    sl_metric_add(self->env->metrics, self->metric.trips, 1);
    pin_send(self, trip);
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
        uint64_t spot_bytes = unit->parts[k].spot_bytes;
        if (unit->pull && places[k].length_bytes != spot_bytes) {
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

static void reserve_send(struct transporter *self, struct tr_trip *trip);
static void read_post(struct transporter *self, struct tr_trip *trip);

static void places_taken(struct transporter *self, struct tr_trip *trip,
                         const struct sl_item_place *places)
{
    const struct tr_peer *peer = &self->peers[trip->peer];
    uint32_t at = 0, kept = 0;
    bool gap = false, over = false; /* a unit of the chain is missing at this peer; at all peers */
    for (uint32_t i = 0; i < trip->unit_count; i++) {
        struct tr_unit *unit = trip->units[i];
        sl_err code = places_code(unit, peer, &places[at]);
        if (code == SL_OK) {
            places_keep(unit, &places[at]);
            kept++;
        } else {
            trip->units[i] = NULL;
        }
        at += unit->part_count;
        if (code == SL_ERR_NOT_FOUND) {
            sl_missing_note(self->missing, unit->hash, UINT64_C(1) << trip->peer,
                            self->env->now_ns);
        }
        if (code == SL_ERR_LIMIT && (kept > 0 || (trip->unit_count > 1 && !unit->alone))) {
            unit->alone = kept == 0; /* larger than an answer: it needs a batch of its own */
            (void)tr_unit_queue(self, unit);
        } else if (code == SL_ERR_CANCELLED && over) {
            tr_unit_end(self, unit, unit->code); /* the chain ends before it */
        } else if (code == SL_ERR_CANCELLED && gap) {
            (void)tr_unit_queue(self, unit); /* the peer did not look for it, and may have it */
        } else if (code != SL_OK) {
            bool goes_on = tr_unit_back(self, unit, trip, code);
            gap = gap || (trip->chain && code == SL_ERR_NOT_FOUND);
            over = over || (trip->chain && code == SL_ERR_NOT_FOUND && !goes_on);
        }
    }
    tr_trip_close_up(trip);
}

static void trip_pinned(struct transporter *self, struct tr_question *question, uint32_t number,
                        const struct sl_msg *reply)
{
    struct tr_trip *trip = (struct tr_trip *)question; /* its first member */
    struct tr_peer *peer = &self->peers[number];
    if (reply == NULL) {
        trip_fail(self, trip, SL_ERR_UNREACHABLE);
        return;
    }
    const struct sl_body_peer_pin_reply *body = &reply->body.peer_pin_reply;
    if (reply->code != SL_OK || body->items.count != trip_parts(trip)) {
        tr_peer_failed(self, peer);
        trip_fail(self, trip, reply->code != SL_OK ? reply->code : SL_ERR_PROTOCOL);
        return;
    }
    trip->pin_id = body->pin_id;
    trip->pins_until_ns = sl_deadline_ns(self->env->now_ns, body->ttl_ns);
    places_taken(self, trip, body->items.at);
    if (trip->unit_count == 0) { /* the peer works, but has none of them */
        sl_peer_health_worked(&peer->health);
        tr_trip_end(self, trip);
        return;
    }
    if (trip->pull) {
        read_post(self, trip);
    } else {
        reserve_send(self, trip);
    }
}

/* Releases pins that arrived too late. */
void tr_trip_pinned_late(struct transporter *self, const struct tr_peer *peer,
                         const struct sl_msg *reply)
{
    struct tr_trip gone = {.peer = tr_peer_number(self, peer),
                           .pin_id = reply->code == SL_OK ? reply->body.peer_pin_reply.pin_id : 0};
    trip_unpin(self, &gone);
}

/* ---- TR_RESERVE ---- */

/* Aborts `count` claims in the scratch buffer; 0: all that the batch may have got. If this is not
 * sent, the reservations expire, and we answer their fences. */
static void abort_send(struct transporter *self, const struct tr_trip *trip, uint32_t count)
{
    struct sl_msg abort = {.type = SL_MSG_ABORT, .op_id = trip->op_id, .trace_id = trip->trace_id};
    abort.body.abort.items.at = self->claims;
    abort.body.abort.items.count = count;
    (void)sl_calls_send(self->calls, "registrar", &abort,
                        sl_deadline_ns(self->env->now_ns, TR_CALL_NS), tr_cookie(TR_CALL_NOBODY, 0),
                        NULL);
}

/* Aborts the reserved parts of a unit that will not be committed. */
static void unit_abort(struct transporter *self, const struct tr_trip *trip, struct tr_unit *unit)
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
        abort_send(self, trip, count);
    }
}

static void trip_abandon(struct transporter *self, struct tr_trip *trip, sl_err code)
{
    for (uint32_t i = 0; i < trip->unit_count; i++) {
        unit_abort(self, trip, trip->units[i]);
    }
    trip_fail(self, trip, code);
}

/* Sends a call to the registrar. */
static void trip_call(struct transporter *self, struct tr_trip *trip, const struct sl_msg *msg,
                      uint64_t deadline_ns)
{
    sl_err err =
        sl_calls_send(self->calls, "registrar", msg, deadline_ns,
                      tr_cookie(TR_CALL_TRIP, (uint32_t)(trip - self->trips)), &trip->call_seq);
    if (err != SL_OK) {
        trip->call_seq = 0;
        trip_abandon(self, trip, err);
    }
}

static void reserve_send(struct transporter *self, struct tr_trip *trip)
{
    uint32_t want_count = 0, group_count = 0;
    for (uint32_t i = 0; i < trip->unit_count; i++) {
        const struct tr_unit *unit = trip->units[i];
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
    struct sl_msg reserve = {.type = SL_MSG_RESERVE, .trace_id = trip->trace_id};
    trip->op_id = reserve.op_id = self->next_op_id++;
    reserve.body.reserve.wait = true;
    reserve.body.reserve.ttl_ns = sl_budget_ns(self->env->now_ns, trip->deadline_ns) + TTL_SPARE_NS;
    reserve.body.reserve.items.at = self->wants;
    reserve.body.reserve.items.count = want_count;
    reserve.body.reserve.groups.at = self->groups;
    reserve.body.reserve.groups.count = group_count;
    trip->phase = TR_RESERVE;
    trip_call(self, trip, &reserve, trip->deadline_ns);
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

static void reserve_answered(struct transporter *self, struct tr_trip *trip,
                             const struct sl_msg *reply)
{
    if (reply == NULL || reply->code != SL_OK ||
        reply->body.reserve_reply.items.count != trip_parts(trip)) {
        sl_err code = reply != NULL && reply->code != SL_OK ? reply->code : SL_ERR_PROTOCOL;
        /* Some claims may have been granted, or may be granted later. Without this ABORT the keys
         * would stay reserved without a writer, and the next fetch would take that for a miss. */
        abort_send(self, trip, 0);
        for (uint32_t i = 0; i < trip->unit_count; i++) {
            if (reply == NULL) {
                (void)tr_unit_queue(self, trip->units[i]); /* a joined request may have time */
            } else {
                tr_unit_end(self, trip->units[i], code); /* another peer would not help */
            }
        }
        tr_trip_end(self, trip);
        return;
    }
    const struct sl_item_grant *grants = reply->body.reserve_reply.items.at;
    for (uint32_t i = 0; i < trip->unit_count; i++) {
        struct tr_unit *unit = trip->units[i];
        sl_err code = grants_keep(unit, grants);
        grants += unit->part_count;
        if (code != SL_OK) {
            trip->units[i] = NULL;
            unit_abort(self, trip, unit);
            tr_unit_end(self, unit, code); /* SL_ERR_EXISTS: another writer was faster */
        }
    }
    tr_trip_close_up(trip);
    if (trip->unit_count == 0) {
        sl_peer_health_worked(&self->peers[trip->peer].health);
        tr_trip_end(self, trip);
        return;
    }
    read_post(self, trip);
}

/* ---- TR_READ ---- */

/* Whether the unit's destinations may still be written. */
static sl_err unit_stands(const struct transporter *self, const struct tr_unit *unit)
{
    for (uint32_t k = 0; !unit->pull && k < unit->part_count; k++) {
        const struct tr_part *part = &unit->parts[k];
        if (!sl_index_claim_stands(self->view, part->ref, part->generation)) {
            return SL_ERR_STALE;
        }
    }
    return unit->cancelled;
}

/* Adds the reads of a unit after *count pieces and *places places of other units: one piece for
 * each part; for parts in device memory, one for each target. */
static sl_err unit_pieces(struct transporter *self, const struct tr_trip *trip,
                          struct tr_unit *unit, uint32_t *count, uint32_t *places)
{
    sl_err err = SL_OK;
    for (uint32_t k = 0; k < unit->part_count; k++) {
        struct tr_part *part = &unit->parts[k];
        for (uint32_t i = 0; i < part->read_count && err == SL_OK; i++) {
            SL_ASSERT(*count < TR_KEYS_MAX);
            struct sl_fabric_piece *piece = &self->pieces[(*count)++];
            *piece = (struct sl_fabric_piece){
                .key = self->peers[trip->peer].window.key,
                .remote_offset_bytes = part->remote_offset_bytes,
                .length_bytes = part->length_bytes,
                .digest = &part->digest,
            };
            if (trip->pull) {
                err = tr_straight_piece(self, &part->targets[i], places, piece);
            } else {
                piece->memory = self->arena.memory;
                piece->offset_bytes = part->offset_bytes;
            }
        }
    }
    return err;
}

static void read_post(struct transporter *self, struct tr_trip *trip)
{
    struct sl_error why = {0};
    uint32_t count = 0, places = 0;
    bool may = sl_index_view_ready(self->env, &self->view) && self->peers[trip->peer].window.used &&
               (trip->pull || (tr_arena_same(self) && self->arena.registered));
    for (uint32_t i = 0; i < trip->unit_count; i++) {
        struct tr_unit *unit = trip->units[i];
        uint32_t others = count, their_places = places;
        sl_err code = may ? unit_stands(self, unit) : SL_ERR_STALE;
        code = code == SL_OK ? unit_pieces(self, trip, unit, &count, &places) : code;
        if (code != SL_OK) { /* its claim or its engine ended meanwhile */
            count = others;
            places = their_places;
            trip->units[i] = NULL;
            unit_abort(self, trip, unit);
            tr_unit_end(self, unit, code);
        }
    }
    tr_trip_close_up(trip);
    if (trip->unit_count == 0) {
        tr_trip_end(self, trip);
        return;
    }
    trip->cookie = self->next_op_id++;
    const struct sl_fabric_transfer transfer = {
        .peer = self->peers[trip->peer].fabric_peer,
        .pieces = self->pieces,
        .piece_count = count,
        .deadline_ns = SL_MIN(trip->deadline_ns, trip->pins_until_ns),
        .cookie = trip->cookie,
    };
    trip->phase = TR_READ;
    sl_err err = sl_fabric_post(self->fabric, &transfer, &why);
    self->env->ops->wake_at(self->env, 0);
    if (err != SL_OK) {
        sl_log_write(self->env->log, SL_LOG_WARN, trip->trace_id, "read from node %s: %s",
                     self->peers[trip->peer].name, why.text);
        trip_abandon(self, trip, err);
    }
}

static struct tr_trip *trip_reading(struct transporter *self, uint64_t cookie)
{
    for (uint32_t i = 0; i < self->trip_max; i++) {
        if (self->trips[i].phase == TR_READ && self->trips[i].cookie == cookie) {
            return &self->trips[i];
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

static void commit_send(struct transporter *self, struct tr_trip *trip);

void tr_trip_read(void *context, const struct sl_fabric_done *done)
{
    struct transporter *self = context;
    struct tr_trip *trip = trip_reading(self, done->cookie);
    SL_ASSERT(trip != NULL); /* a batch always waits for its transfer */
    struct tr_peer *peer = &self->peers[trip->peer];
    const uint8_t *codes = done->pieces;
    trip_unpin(self, trip);
    for (uint32_t i = 0; i < trip->unit_count; i++) {
        struct tr_unit *unit = trip->units[i];
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
        trip->units[i] = NULL;
        unit_abort(self, trip, unit);
        (void)tr_unit_back(self, unit, trip, code);
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
    tr_trip_close_up(trip);
    if (trip->fences != 0) {
        self->events.fences_over(self, trip->fences);
        trip->fences = 0;
    }
    if (trip->unit_count == 0) {
        tr_trip_end(self, trip);
    } else if (trip->pull) {
        tr_trip_landed(self, trip);
    } else {
        commit_send(self, trip);
    }
}

void tr_trip_landed(struct transporter *self, struct tr_trip *trip)
{
    while (trip->unit_count > 0 && tr_check_next(self, trip)) {
        if (trip->phase == TR_CHECK) {
            return; /* one rank at a time: the answer calls this again */
        }
    }
    if (trip->unit_count == 0) {
        tr_trip_end(self, trip);
        return;
    }
    trip->phase = TR_COPY;
    self->env->ops->wake_at(self->env, 0);
}

/* ---- TR_COMMIT ---- */

static void commit_send(struct transporter *self, struct tr_trip *trip)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < trip->unit_count; i++) {
        for (uint32_t k = 0; k < trip->units[i]->part_count; k++) {
            const struct tr_part *part = &trip->units[i]->parts[k];
            self->claims[count++] = (struct sl_item_claim){.ref = part->ref,
                                                           .generation = part->generation,
                                                           .digest_low = part->digest.low,
                                                           .digest_high = part->digest.high};
        }
    }
    struct sl_msg commit = {
        .type = SL_MSG_COMMIT, .op_id = trip->op_id, .trace_id = trip->trace_id};
    commit.body.commit.tail_first = trip->chain;
    commit.body.commit.items.at = self->claims;
    commit.body.commit.items.count = count;
    trip->phase = TR_COMMIT;
    /* The bytes are here, so they are made visible even if no request waits any more. */
    trip_call(self, trip, &commit, sl_deadline_ns(self->env->now_ns, TR_COMMIT_NS));
}

static void commit_answered(struct transporter *self, struct tr_trip *trip,
                            const struct sl_msg *reply)
{
    bool whole = reply != NULL && reply->code == SL_OK;
    const struct sl_u64s *codes = whole ? &reply->body.commit_reply.codes : NULL;
    uint64_t at = 0;
    for (uint32_t i = 0; i < trip->unit_count; i++) {
        struct tr_unit *unit = trip->units[i];
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
    tr_trip_end(self, trip);
}

void tr_trip_answered(struct transporter *self, uint32_t index, const struct sl_msg *reply)
{
    SL_ASSERT(index < self->trip_max);
    struct tr_trip *trip = &self->trips[index];
    trip->call_seq = 0;
    if (trip->phase == TR_RESERVE) {
        reserve_answered(self, trip, reply);
    } else if (trip->phase == TR_CHECK) {
        tr_check_answered(self, trip, reply);
    } else if (trip->phase == TR_COMMIT) {
        commit_answered(self, trip, reply);
    }
}

/* ---- fences: claims that ended during a read ---- */

static bool trip_reads(const struct tr_trip *trip, const struct sl_item_claim *claim)
{
    for (uint32_t i = 0; i < trip->unit_count; i++) {
        for (uint32_t k = 0; k < trip->units[i]->part_count; k++) {
            const struct tr_part *part = &trip->units[i]->parts[k];
            if (part->ref == claim->ref && part->generation == claim->generation) {
                return true;
            }
        }
    }
    return false;
}

uint32_t tr_trips_fence(struct transporter *self, const struct sl_msg *msg, uint64_t bit)
{
    uint32_t trips = 0;
    for (uint32_t i = 0; i < self->trip_max && self->trips != NULL; i++) {
        struct tr_trip *trip = &self->trips[i];
        for (uint64_t c = 0; trip->phase == TR_READ && c < msg->body.fence.items.count; c++) {
            if (trip_reads(trip, &msg->body.fence.items.at[c])) {
                trips++;
                trip->fences |= bit;
                (void)sl_fabric_cancel(self->fabric, trip->cookie);
                break;
            }
        }
    }
    return trips;
}
