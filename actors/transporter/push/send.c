/* actors/transporter/push/send.c - PUSH_SEND: a batch of pieces that is written under a ticket.
 *
 * Keys of its parts, one transfer, the notice after all completions, the acknowledgement. While
 * there is time a link that breaks is waited for: the batch is then written anew, with fresh keys.
 * What failed for good ends the ticket. */
#include "actors/transporter/push/internal.h"
#include "runtime/sl_backoff.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARGIN_PARTS  20u /* the answer leaves so much of the budget before its end */
#define MARGIN_NS_MAX (10 * SL_NS_PER_MS)
/* Between two notices that find no room; what ends there is not waited for much longer. */
#define NO_ROOM_NS_MAX (100 * SL_NS_PER_MS)

static struct push_target *target_of(struct push *push, const struct push_send *send)
{
    return &push->targets[send->target];
}

static void send_free(struct push *push, struct push_send *send)
{
    struct push_target *target = send->local ? NULL : target_of(push, send);
    uint64_t fences = send->fences;
    free(send->pieces);
    free(send->spots);
    *send = (struct push_send){0};
    push->sends_open--;
    if (fences != 0) {
        push->self->events.push_over(push->self, fences);
    }
    if (target != NULL) {
        push_target_left(push, target);
    }
}

void push_sends_fini(struct push *push)
{
    for (uint32_t i = 0; push->sends != NULL && i < push->push_max; i++) {
        free(push->sends[i].pieces);
        free(push->sends[i].spots);
    }
    free(push->sends);
    push->sends = NULL;
}

/* ---- the end ---- */

static void ended_note(struct push *push, const struct push_send *send, sl_err code)
{
    struct push_ended *ended = &push->ended[push->ended_next++ % PUSH_ENDED_MAX];
    ended->seq = send->back.seq;
    ended->code = code;
    memcpy(ended->to, send->back.to, sizeof(ended->to));
}

static void ended_count(struct push *push, const struct push_send *send, sl_err code)
{
    struct sl_metrics *page = push->self->env->metrics;
    sl_metric_add(page, push->metric.failed, code == SL_OK ? 0 : 1);
    sl_metric_add(page, push->metric.bytes_out, code == SL_OK ? send->bytes : 0);
    sl_histogram_add(page, push->metric.push_ns, push_now(push) - send->begun_ns);
}

static void local_failed(struct push *push, const struct push_send *send, sl_err code,
                         const char *text)
{
    struct push_ticket *ticket = &push->tickets[send->target];
    if (ticket->state != TICKET_FREE && ticket->number == send->ticket_number) {
        push_ticket_end(push, ticket, code, text);
    }
}

void push_send_end(struct push *push, struct push_send *send, sl_err code, const char *text)
{
    char kept[SL_ERROR_TEXT_BYTES];
    if (send->phase == SEND_FREE || send->phase == SEND_ENDING) {
        return;
    }
    (void)snprintf(kept, sizeof(kept), "%s", text[0] != '\0' ? text : sl_err_text(code));
    send->phase = SEND_ENDING;
    push_reply(push, &send->back, code, kept);
    ended_note(push, send, code);
    ended_count(push, send, code);
    const struct push_send gone = *send;
    if (!send->under_way) {
        send_free(push, send);
    } else { /* its place is kept until nothing reads its sources */
        (void)sl_fabric_cancel(push->self->fabric, send->number);
        push->self->env->ops->wake_at(push->self->env, 0);
    }
    if (gone.local && code != SL_OK) {
        local_failed(push, &gone, code, kept);
    } else if (!gone.local && (code != SL_OK || gone.last)) {
        push_target_over(push, &push->targets[gone.target], code, kept, code != SL_OK);
    }
    push_due(push, 0);
}

/* ---- on its way ---- */

static bool has_turn(const struct push *push, const struct push_send *send)
{
    for (uint32_t i = 0; send->last && i < push->push_max; i++) {
        const struct push_send *other = &push->sends[i];
        if (other->phase != SEND_FREE && other->phase != SEND_ENDING && !other->last &&
            other->local == send->local && other->target == send->target) {
            return false;
        }
    }
    return true;
}

static void notice_send(struct push *push, struct push_send *send)
{
    struct transporter *self = push->self;
    struct push_target *target = target_of(push, send);
    uint64_t now_ns = push_now(push), seq = 0;
    struct sl_msg msg = {.type = SL_MSG_PEER_PUSH, .trace_id = send->back.trace_id};
    msg.budget_ns = SL_MAX(sl_budget_ns(now_ns, send->deadline_ns), UINT64_C(1));
    msg.body.peer_push = (struct sl_body_peer_push){
        .ticket = {.at = target->bytes, .length = target->length_bytes},
        .push = send->number & ~PUSH_COOKIE,
        .layer = send->layer,
        .last = send->last,
    };
    msg.body.peer_push.pieces.at = send->pieces;
    msg.body.peer_push.pieces.count = send->piece_count;
    bool sent = tr_peer_ask(self, &self->peers[target->peer], &msg, &seq) == SL_OK;
    send->phase = SEND_NOTICE;
    send->due_ns =
        now_ns + (sent ? sl_config_u64(self->env->config, SL_SET_peer_timeout) : PUSH_SOON_NS);
    push_due(push, send->due_ns);
}

static void turn_take(struct push *push, struct push_send *send)
{
    struct sl_error why = {0};
    send->phase = SEND_TURN;
    if (!has_turn(push, send)) {
        return;
    }
    if (!send->local) {
        notice_send(push, send);
        return;
    }
    struct push_ticket *ticket = &push->tickets[send->target];
    send->phase = SEND_LOCAL;
    sl_err err = ticket->state == TICKET_OPEN && ticket->number == send->ticket_number
                     ? push_arrive_local(push, ticket, send, &why)
                     : sl_fail(&why, SL_ERR_STALE, "the ticket has ended");
    if (err != SL_OK) {
        push_send_end(push, send, err, why.text);
    }
}

/* The next pieces that are not written yet, as many as one transfer takes; gives their count. */
static sl_err pieces_make(struct push *push, struct push_send *send, uint32_t *count,
                          struct sl_error *why)
{
    struct push_target *target = target_of(push, send);
    uint32_t places = 0;
    *count = 0;
    send->write_end = send->written;
    for (; send->write_end < send->piece_count; send->write_end++) {
        const struct sl_item_arrived *piece = &send->pieces[send->write_end];
        const struct tr_spot *spot = &send->spots[send->write_end];
        const struct push_door *door = &target->doors[piece->part];
        struct sl_fabric_piece *out = &push->pieces[*count];
        if (door->taken) {
            continue; /* all of the part is there: the notice says it again */
        }
        if (piece->part_offset_bytes > door->length_bytes ||
            piece->length_bytes > door->length_bytes - piece->part_offset_bytes) {
            return sl_fail(why, SL_ERR_INVALID,
                           "%" PRIu64 "+%" PRIu64 " is not within part %" PRIu64 " of the ticket",
                           piece->part_offset_bytes, piece->length_bytes, piece->part);
        }
        if (PUSH_PLACES_MAX - places < SL_FABRIC_PLACES_MAX) {
            break;
        }
        *out = (struct sl_fabric_piece){.key = door->key,
                                        .remote_offset_bytes = piece->part_offset_bytes,
                                        .length_bytes = piece->length_bytes,
                                        .places = &push->places[places],
                                        .rail = push->self->rail_of_rank[spot->rank]};
        sl_err err = tr_spot_places(push->self, spot, push_range(piece), &push->places[places],
                                    SL_FABRIC_PLACES_MAX, &out->place_count, why);
        places += out->place_count;
        if (err != SL_OK) {
            return err;
        }
        ++*count;
    }
    return SL_OK;
}

static void write_post(struct push *push, struct push_send *send)
{
    struct transporter *self = push->self;
    struct push_target *target = target_of(push, send);
    struct sl_error why = {0};
    uint32_t count = 0;
    sl_err err = pieces_make(push, send, &count, &why);
    if (err == SL_OK && count == 0) { /* all of it is there */
        turn_take(push, send);
        return;
    }
    const struct sl_fabric_transfer transfer = {
        .verb = SL_FABRIC_WRITE,
        .peer = self->peers[target->peer].fabric_peer,
        .pieces = push->pieces,
        .piece_count = count,
        .deadline_ns = send->deadline_ns,
        .cookie = send->number,
    };
    err = err == SL_OK ? sl_fabric_post(self->fabric, &transfer, &why) : err;
    if (err == SL_OK) {
        send->phase = SEND_WRITE;
        send->under_way = true;
        self->env->ops->wake_at(self->env, 0);
    } else if (err == SL_ERR_LIMIT || err == SL_ERR_BUSY) {
        send->phase = SEND_KEYS; /* the rest of it is tried again */
        send->due_ns = push_now(push) + PUSH_SOON_NS;
        push_due(push, send->due_ns);
    } else {
        push_send_end(push, send, err, why.text);
    }
}

void push_send_advance(struct push *push, struct push_send *send)
{
    if (send->phase == SEND_TURN) {
        turn_take(push, send);
    } else if (send->phase != SEND_KEYS || send->due_ns > push_now(push)) {
        return;
    } else if (send->local || send->piece_count == 0) {
        turn_take(push, send);
    } else if (push_target_ready(push, target_of(push, send), send)) {
        write_post(push, send);
    }
}

static struct push_send *send_under_way(struct push *push, uint64_t number)
{
    for (uint32_t i = 0; i < push->push_max; i++) {
        struct push_send *send = &push->sends[i];
        if (send->phase != SEND_FREE && send->under_way && send->number == number) {
            return send;
        }
    }
    return NULL;
}

void push_send_done(struct push *push, const struct sl_fabric_done *done)
{
    struct push_send *send = send_under_way(push, done->cookie);
    SL_ASSERT(send != NULL); /* its place is kept until now, whatever happens */
    struct push_target *target = target_of(push, send);
    send->under_way = false;
    if (send->phase == SEND_ENDING) {
        send_free(push, send);
    } else if (done->code == SL_OK) {
        target->failures = 0;
        send->written = send->write_end;
        send->phase = SEND_KEYS; /* its doors may have been closed meanwhile */
        send->due_ns = 0;
        if (send->written < send->piece_count) {
            push_send_advance(push, send);
        } else {
            turn_take(push, send);
        }
    } else if (done->code == SL_ERR_TIMEOUT) {
        push_send_end(push, send, SL_ERR_TIMEOUT, "the bytes could not be written in time");
    } else { /* the link broke, or its keys went with it: the next question tells more */
        send->phase = SEND_KEYS;
        send->written = 0; /* all of it anew, with fresh keys */
        if (target->door_count > 0) {
            tr_peer_failed(push->self, &push->self->peers[target->peer]);
            push_target_renew(push, target);
        }
    }
}

void push_send_acknowledged(struct push *push, struct tr_peer *peer, const struct sl_msg *reply)
{
    uint64_t number = reply->body.peer_push_reply.push | PUSH_COOKIE;
    for (uint32_t i = 0; push->sends_open > 0 && i < push->push_max; i++) {
        struct push_send *send = &push->sends[i];
        if (send->phase != SEND_NOTICE || send->number != number ||
            target_of(push, send)->peer != tr_peer_number(push->self, peer)) {
            continue;
        }
        if (reply->code == SL_ERR_BUSY) { /* for a moment */
            send->due_ns = push_now(push) + PUSH_SOON_NS;
            return;
        }
        if (reply->code == SL_ERR_LIMIT) { /* until others of its batches have ended */
            send->due_ns = push_now(push) + sl_backoff_next(&send->pause_ns, NO_ROOM_NS_MAX);
            push_due(push, send->due_ns);
            return;
        }
        sl_peer_health_worked(&peer->health);
        push_send_end(push, send, reply->code, reply->text.length > 0 ? reply->text.at : "");
        return;
    }
}

/* ---- PUSH_SEND ---- */

/* Repeated: it is under way, or answered again. Its sources may be gone: nothing is done twice. */
static bool is_known(struct push *push, const struct sl_msg *msg)
{
    for (uint32_t i = 0; push->sends_open > 0 && i < push->push_max; i++) {
        const struct push_send *send = &push->sends[i];
        if (send->phase != SEND_FREE && send->phase != SEND_ENDING &&
            sl_return_is_of(&send->back, msg)) {
            return true;
        }
    }
    for (uint32_t i = 0; i < PUSH_ENDED_MAX; i++) {
        const struct push_ended *ended = &push->ended[i];
        if (ended->seq == msg->seq && strcmp(ended->to, msg->sender.at) == 0) {
            sl_reply_code(push->self->env, msg, ended->code, NULL);
            return true;
        }
    }
    return false;
}

/* Device memory does for another node: decode checks what landed there against the digests that come
 * along. On this node the CPU would copy it. */
static struct tr_spot source_spot(const struct sl_body_push_send *body, uint64_t i, bool local)
{
    struct tr_spot spot = tr_spot_of(&body->spots.at[i]);
    spot.unseen = !local;
    return spot;
}

static sl_err source_check(struct push *push, const struct sl_body_push_send *body, uint64_t i,
                           bool local, struct sl_error *why)
{
    uint32_t count = 0;
    if (body->spots.at[i].item != i) {
        return sl_fail(why, SL_ERR_INVALID, "spots[%" PRIu64 "].item: %" PRIu64, i,
                       body->spots.at[i].item);
    }
    const struct tr_spot spot = source_spot(body, i, local);
    return tr_spot_places(push->self, &spot, push_range(&body->pieces.at[i]), push->places,
                          SL_FABRIC_PLACES_MAX, &count, why);
}

static sl_err send_check(struct push *push, const struct sl_body_push_send *body,
                         const struct sl_ticket *ticket, bool local, struct sl_error *why)
{
    if (body->pieces.count == 0 && !body->last) {
        return sl_fail(why, SL_ERR_INVALID, "neither a piece nor the end");
    }
    if (body->pieces.count != body->spots.count) {
        return sl_fail(why, SL_ERR_INVALID, "spots: %" PRIu64 " of %" PRIu64 " pieces",
                       body->spots.count, body->pieces.count);
    }
    for (uint64_t i = 0; i < body->pieces.count; i++) {
        uint64_t part = body->pieces.at[i].part;
        if (part >= ticket->part_count) {
            return sl_fail(why, SL_ERR_INVALID, "part %" PRIu64 ": the ticket has %u", part,
                           ticket->part_count);
        }
        sl_err err = source_check(push, body, i, local, why);
        if (err != SL_OK) {
            return err;
        }
    }
    if (push->sends_open == push->push_max) {
        return sl_fail(why, SL_ERR_LIMIT, "%u batches are on their way", push->push_max);
    }
    return SL_OK;
}

static struct push_send *send_new(struct push *push, const struct sl_msg *msg, bool local,
                                  struct sl_error *why)
{
    const struct sl_body_push_send *body = &msg->body.push_send;
    uint64_t count = body->pieces.count;
    struct sl_item_arrived *pieces = calloc(count + 1, sizeof(*pieces));
    struct tr_spot *spots = calloc(count + 1, sizeof(*spots));
    if (pieces == NULL || spots == NULL) {
        free(pieces);
        free(spots);
        (void)sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %" PRIu64 " pieces", count);
        return NULL;
    }
    for (uint64_t i = 0; i < count; i++) {
        pieces[i] = body->pieces.at[i];
        spots[i] = source_spot(body, i, local);
    }
    uint32_t index = 0;
    while (push->sends[index].phase != SEND_FREE) {
        index++;
    }
    struct push_send *send = &push->sends[index];
    *send = (struct push_send){
        .phase = SEND_KEYS,
        .last = body->last,
        .number = push->next_push++ | PUSH_COOKIE,
        .layer = body->layer,
        .begun_ns = push_now(push),
        .pause_ns = PUSH_SOON_NS,
        .piece_count = (uint32_t)count,
        .pieces = pieces,
        .spots = spots,
    };
    sl_return_keep(msg, &send->back);
    send->deadline_ns =
        send->back.deadline_ns - SL_MIN(msg->budget_ns / MARGIN_PARTS, MARGIN_NS_MAX);
    for (uint64_t i = 0; i < count; i++) {
        send->bytes += pieces[i].length_bytes;
    }
    push->sends_open++;
    push_due(push, send->deadline_ns);
    sl_metric_add(push->self->env->metrics, push->metric.pushes, 1);
    return send;
}

/* The ticket that it is for, of this node, or the target. */
static sl_err way_find(struct push *push, const struct sl_ticket *shown, bool local,
                       uint32_t *index, struct sl_error *why)
{
    if (local) {
        struct push_ticket *ticket = push_ticket_named(push, shown, why);
        sl_err err = ticket != NULL ? push_ticket_take(push, ticket, NULL, why) : why->code;
        *index = ticket != NULL ? (uint32_t)(ticket - push->tickets) : 0;
        return err;
    }
    struct push_target *target = NULL;
    sl_err err = push_target_get(push, shown, &target, why);
    *index = target != NULL ? (uint32_t)(target - push->targets) : 0;
    return err;
}

void push_send(struct push *push, const struct sl_msg *msg)
{
    const struct sl_body_push_send *body = &msg->body.push_send;
    struct sl_ticket shown = {0};
    struct sl_error why = {0};
    uint32_t way = 0;
    if (is_known(push, msg)) {
        return;
    }
    sl_err err = tr_fenced_has(&push->self->fenced, msg)
                     ? sl_fail(&why, SL_ERR_CANCELLED, "the op was fenced")
                     : sl_ticket_read(body->ticket.at, body->ticket.length, &shown, &why);
    bool local = err == SL_OK && strcmp(shown.node, push->self->node) == 0;
    err = err == SL_OK ? send_check(push, body, &shown, local, &why) : err;
    err = err == SL_OK ? way_find(push, &shown, local, &way, &why) : err;
    struct push_send *send = err == SL_OK ? send_new(push, msg, local, &why) : NULL;
    if (send == NULL) {
        sl_reply_code(push->self->env, msg, why.code, &why);
        return;
    }
    send->local = local;
    send->target = way;
    send->ticket_number = shown.number;
    push->targets[way].sends += local ? 0 : 1;
    push_send_advance(push, send);
}

/* ---- time ---- */

static void send_late(struct push *push, struct push_send *send)
{
    static const char *const texts[] = {
        [SEND_KEYS] = "the node of the ticket gave no keys in time",
        [SEND_WRITE] = "the bytes could not be written in time",
        [SEND_TURN] = "what was sent before it was not acknowledged in time",
        [SEND_NOTICE] = "the node of the ticket did not acknowledge in time",
        [SEND_LOCAL] = "the owner of the ticket did not acknowledge in time",
    };
    if (send->phase == SEND_NOTICE && send->pause_ns > PUSH_SOON_NS) {
        push_send_end(push, send, SL_ERR_LIMIT,
                      "the node of the ticket had no room for the batch in time");
        return;
    }
    push_send_end(push, send, SL_ERR_TIMEOUT, texts[send->phase]);
}

void push_sends_step(struct push *push, uint64_t now_ns)
{
    struct sl_error why = {0};
    for (uint32_t i = 0; push->sends_open > 0 && i < push->push_max; i++) {
        struct push_send *send = &push->sends[i];
        if (send->phase == SEND_FREE || send->phase == SEND_ENDING) {
            continue;
        }
        const struct push_target *target = send->local ? NULL : target_of(push, send);
        if (send->deadline_ns <= now_ns) {
            send_late(push, send);
            continue;
        }
        if (push->look && target != NULL &&
            push_peer_gone(push, &push->self->peers[target->peer], &why)) {
            push_send_end(push, send, why.code, why.text);
            continue;
        }
        if (send->phase == SEND_NOTICE && send->due_ns <= now_ns) {
            notice_send(push, send);
        } else if (send->phase == SEND_KEYS || (send->phase == SEND_TURN && send->local)) {
            push_send_advance(push, send);
        }
        if (send->phase != SEND_FREE) {
            push_due(push, send->deadline_ns);
            push_due(push, send->due_ns > now_ns ? send->due_ns : SL_NEVER_NS);
        }
    }
}

/* ---- who must not be read any more ---- */

uint32_t push_sends_fence(struct push *push, const struct sl_msg *msg, uint32_t fence)
{
    uint32_t waiting = 0;
    for (uint32_t i = 0; push->sends_open > 0 && i < push->push_max; i++) {
        struct push_send *send = &push->sends[i];
        if (send->phase == SEND_FREE || !tr_fence_covers(msg, &send->back)) {
            continue;
        }
        push_send_end(push, send, SL_ERR_CANCELLED, "the op was fenced");
        if (send->phase == SEND_ENDING) {
            waiting++;
            send->fences |= fence < TR_FENCES_MAX ? UINT64_C(1) << fence : 0;
        }
    }
    return waiting;
}

void push_sends_engine_ends(struct push *push, uint64_t engine_id)
{
    for (uint32_t i = 0; push->sends_open > 0 && i < push->push_max; i++) {
        struct push_send *send = &push->sends[i];
        bool named = false;
        for (uint32_t k = 0; send->phase != SEND_FREE && !named && k < send->piece_count; k++) {
            named = send->spots[k].engine_id == engine_id;
        }
        if (named) {
            push_send_end(push, send, SL_ERR_STALE, "the engine of the blocks has ended");
        }
    }
}
