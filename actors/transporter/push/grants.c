/* actors/transporter/push/grants.c - grants of tickets: one a part, from the question for its key until
 * all of it was acknowledged. What a notice names is shut before: it is not written any more. */
#include "actors/transporter/push/internal.h"

#include "runtime/fabric/core/internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void grant_state(struct push_ticket *ticket, struct push_part *part, enum part_grant state)
{
    ticket->grants_asked -= part->state == GRANT_ASKED ? 1 : 0;
    ticket->grants_asked += state == GRANT_ASKED ? 1 : 0;
    part->state = (uint8_t)state;
}

void push_grants_end(struct push *push, struct push_ticket *ticket)
{
    for (uint32_t i = 0; ticket->grants_open > 0 && i < ticket->part_count; i++) {
        struct push_part *part = &ticket->parts[i];
        if (part->state == GRANT_ASKED || part->state == GRANT_READY) {
            grant_state(ticket, part, GRANT_ENDS);
            (void)sl_fabric_grant_end(push->self->fabric, part->grant);
            push->self->env->ops->wake_at(push->self->env, 0);
        }
    }
}

static struct push_grant *grant_of(struct push *push, uint32_t handle)
{
    struct push_grant *grant = &push->grants[handle & 0xffffu];
    return grant->used && grant->handle == handle ? grant : NULL;
}

static sl_err part_grant(struct push *push, struct push_ticket *ticket, uint32_t index,
                         struct sl_error *why)
{
    static unsigned char key[SL_FABRIC_BLOB_MAX]; /* too large for the stack */
    struct transporter *self = push->self;
    struct push_part *part = &ticket->parts[index];
    if (self->fabric == NULL) {
        return sl_fail(why, SL_ERR_BUSY, "there is no fabric");
    }
    struct sl_fabric_grant want = {.verb = SL_FABRIC_WRITE,
                                   .peer = self->peers[ticket->peer].fabric_peer,
                                   .cookie = (uint64_t)(push_ticket_index(push, ticket) + 1) << 32 |
                                             index,
                                   .length_bytes = part->length_bytes,
                                   .places = push->places};
    /* It is written to what its first owner has of the block. */
    sl_err err = tr_spot_places(self, &ticket->spots[part->spot_first],
                                (struct tr_range){.length_bytes = part->length_bytes}, push->places,
                                SL_FABRIC_PLACES_MAX, &want.place_count, why);
    if (err != SL_OK) {
        return err;
    }
    uint32_t key_bytes = 0, handle = 0;
    err = sl_fabric_grant_add(self->fabric, &want, &handle, key, &key_bytes, why);
    if (err != SL_OK) {
        return err;
    }
    void *copy = malloc(SL_MAX(key_bytes, 1u));
    ticket->grants_open++;
    part->grant = handle;
    grant_state(ticket, part, GRANT_ASKED);
    push->grants[handle & 0xffffu] = (struct push_grant){
        .used = true, .handle = handle, .ticket = push_ticket_index(push, ticket), .part = index};
    self->env->ops->wake_at(self->env, 0);
    if (copy == NULL) {
        grant_state(ticket, part, GRANT_ENDS);
        (void)sl_fabric_grant_end(self->fabric, handle);
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a key");
    }
    memcpy(copy, key, key_bytes);
    free(part->key);
    part->key = copy;
    part->key_bytes = key_bytes;
    return SL_OK;
}

/* ---- PEER_TICKET: the keys of a page of parts ---- */

void push_page_answer(struct push *push, struct push_ticket *ticket, sl_err code, const char *text)
{
    struct sl_msg reply = {.code = code, .trace_id = ticket->trace_id};
    struct sl_body_peer_ticket_reply *body = &reply.body.peer_ticket_reply;
    if (code != SL_OK) {
        reply.text = sl_text_of(text);
    } else {
        uint32_t count = 0, taken = 0;
        for (uint32_t i = ticket->asked_first;
             i < ticket->part_count && count + taken < PUSH_PIECES_MAX; i++) {
            const struct push_part *part = &ticket->parts[i];
            if (part->taken) {
                push->taken[taken++] = i;
                continue;
            }
            push->doors[count++] =
                (struct sl_item_door){.part = i,
                                      .length_bytes = part->length_bytes,
                                      .key = {.at = part->key, .length = part->key_bytes}};
        }
        body->ttl_ns = sl_budget_ns(push_now(push), ticket->deadline_ns);
        body->part_count = ticket->part_count;
        body->doors.at = push->doors;
        body->doors.count = count;
        body->taken = (struct sl_u64s){.at = push->taken, .count = taken};
    }
    uint64_t seq = ticket->asked_seq;
    ticket->asked_seq = 0;
    tr_peer_answer(push->self, &push->self->peers[ticket->peer], SL_MSG_PEER_TICKET, seq, &reply);
}

/* A part that lies at more places than the fabric takes, or a page of parts that does: waiting does not
 * help when nothing but this page has grants, since it is answered as a whole. */
static bool is_too_scattered(const struct push *push, const struct push_ticket *ticket, sl_err err)
{
    uint32_t end = SL_MIN(ticket->asked_first + PUSH_PIECES_MAX, ticket->part_count);
    uint32_t grants = 0, of_page = 0;
    for (uint32_t i = 0; err == SL_ERR_LIMIT && i < push->ticket_max; i++) {
        grants += push->tickets[i].grants_open;
    }
    for (uint32_t i = ticket->asked_first; err == SL_ERR_LIMIT && i < end; i++) {
        of_page += ticket->parts[i].state == GRANT_READY ? 1 : 0;
    }
    return err == SL_ERR_LIMIT && grants == of_page;
}

/* Makes what is missing of the page that is asked for, and answers when all of it may be used. */
void push_page_go(struct push *push, struct push_ticket *ticket)
{
    struct sl_error why = {0};
    uint32_t end = SL_MIN(ticket->asked_first + PUSH_PIECES_MAX, ticket->part_count);
    uint32_t asked = 0;
    bool full = false;
    if (ticket->asked_seq == 0 || ticket->state != TICKET_OPEN || ticket->renewing) {
        return;
    }
    for (uint32_t i = ticket->asked_first; i < end; i++) {
        struct push_part *part = &ticket->parts[i];
        if (part->state == GRANT_NO && !part->taken && !full) {
            sl_err err = part_grant(push, ticket, i, &why);
            full = err == SL_ERR_LIMIT && asked > 0; /* goes on when some are bound */
            if (is_too_scattered(push, ticket, err)) {
                push_ticket_end(push, ticket, err, why.text);
                return;
            }
            if (err != SL_OK && !full) {
                push_page_answer(push, ticket, err == SL_ERR_UNREACHABLE ? SL_ERR_BUSY : err,
                                 why.text);
                return;
            }
        }
        asked += part->state == GRANT_ASKED ? 1 : 0;
        full = full || (part->state == GRANT_ENDS && !part->taken);
    }
    if (asked == 0 && !full) {
        push_page_answer(push, ticket, SL_OK, "");
    }
}

static bool key_keep(struct push_part *part, const struct sl_bytes *key)
{
    void *copy = key->length > 0 ? malloc(key->length) : NULL;
    if (copy != NULL) {
        memcpy(copy, key->at, key->length);
        free(part->key);
        part->key = copy;
        part->key_bytes = (uint32_t)key->length;
    }
    return copy != NULL;
}

/* No fabric gave a key after all. */
static void grant_failed(struct push *push, struct push_ticket *ticket, struct push_part *part,
                         const struct sl_error *why)
{
    bool links = why->code == SL_OK || why->code == SL_ERR_UNREACHABLE;
    grant_state(ticket, part, GRANT_ENDS);
    (void)sl_fabric_grant_end(push->self->fabric, part->grant);
    push->self->env->ops->wake_at(push->self->env, 0);
    if (ticket->asked_seq != 0) { /* the next question tries anew */
        push_page_answer(push, ticket, links ? SL_ERR_BUSY : why->code,
                         links ? "the peer's links are not up" : why->text);
    }
}

/* The key, where the fabric makes it later than the grant. */
bool tr_push_granted(struct transporter *self, uint32_t handle, const struct sl_bytes *key,
                     const struct sl_error *why)
{
    struct push *push = self->push;
    struct push_grant *grant = push != NULL ? grant_of(push, handle) : NULL;
    if (grant == NULL) {
        return false;
    }
    struct push_ticket *ticket = &push->tickets[grant->ticket];
    struct push_part *part = &ticket->parts[grant->part];
    if (part->state != GRANT_ASKED) {
        return true;
    }
    if (key->at != NULL && !key_keep(part, key)) {
        grant_failed(push, ticket, part, why);
        return true;
    }
    grant_state(ticket, part, GRANT_READY);
    if (ticket->grants_asked == 0) { /* those that come in one go are looked at once */
        push_page_go(push, ticket);
    }
    return true;
}

bool tr_push_grant_ended(struct transporter *self, uint32_t handle)
{
    struct push *push = self->push;
    struct push_grant *grant = push != NULL ? grant_of(push, handle) : NULL;
    if (grant == NULL) {
        return false;
    }
    struct push_ticket *ticket = &push->tickets[grant->ticket];
    grant->used = false;
    grant_state(ticket, &ticket->parts[grant->part], GRANT_NO);
    ticket->grants_open--;
    push_due(push, 0); /* a notice may wait for it */
    push_ticket_look(push, ticket);
    return true;
}

/* Whoever writes has named all of it: the right ends before the bytes are checked, on every fabric. */
static void part_end(struct push *push, struct push_ticket *ticket, struct push_part *part)
{
    if (part->state == GRANT_ASKED || part->state == GRANT_READY) {
        grant_state(ticket, part, GRANT_ENDS);
        (void)sl_fabric_grant_end(push->self->fabric, part->grant);
        push->self->env->ops->wake_at(push->self->env, 0);
    }
}

void push_parts_taken(struct push *push, struct push_ticket *ticket,
                      const struct sl_item_arrived *pieces, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct push_part *part = &ticket->parts[pieces[i].part];
        if (part->taken || !sl_cover_whole(&part->cover, part->length_bytes)) {
            continue;
        }
        part->taken = true;
        part_end(push, ticket, part);
    }
}

/* ---- what is not written any more ---- */

bool tr_push_may_write(void *context, uint64_t cookie, uint64_t offset_bytes, uint64_t length_bytes)
{
    const struct transporter *self = context;
    const struct push *push = self->push;
    uint32_t at = (uint32_t)(cookie >> 32) - 1, index = (uint32_t)cookie;
    const struct push_ticket *ticket =
        push != NULL && at < push->ticket_max ? &push->tickets[at] : NULL;
    if (ticket == NULL || ticket->state == TICKET_FREE || index >= ticket->part_count) {
        return false;
    }
    const struct push_part *part = &ticket->parts[index];
    return sl_cover_within(&part->shut, offset_bytes, length_bytes) == 0;
}

sl_err push_pieces_shut(struct push *push, struct push_ticket *ticket,
                        const struct sl_item_arrived *pieces, uint64_t count, struct sl_error *why)
{
    for (uint64_t i = 0; i < count; i++) {
        struct push_part *part = &ticket->parts[pieces[i].part];
        sl_err err = sl_cover_add(&part->shut, pieces[i].part_offset_bytes, pieces[i].length_bytes);
        if (err != SL_OK) {
            return sl_fail(why, err, "a part comes in too many pieces");
        }
        if (sl_cover_whole(&part->shut, part->length_bytes)) {
            part_end(push, ticket, part);
        }
    }
    return SL_OK;
}

bool push_pieces_land(struct push *push, const struct push_ticket *ticket,
                      const struct sl_item_arrived *pieces, uint32_t count)
{
    bool lands = false;
    for (uint32_t i = 0; i < count; i++) {
        const struct push_part *part = &ticket->parts[pieces[i].part];
        lands = part->state == GRANT_ENDS ||
                (part->state == GRANT_READY &&
                 sl_fabric_grant_recheck(push->self->fabric, part->grant)) ||
                lands;
    }
    return lands;
}
