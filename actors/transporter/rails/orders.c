/* actors/transporter/rails/orders.c - what the door orders of a rail's process, and what the fabric
 * says to it. Numbers of the door are looked up, ranges are checked by the fabric. */
#include "actors/transporter/rails/process_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

struct process_row *process_row_of(const struct process_table *table, uint64_t door)
{
    uint32_t slot = (uint32_t)door & 0xffffu;
    struct process_row *row = slot < table->count ? &table->rows[slot] : NULL;
    return row != NULL && row->used && row->door == door ? row : NULL;
}

struct process_row *process_row_new(struct tr_process *process, struct process_table *table,
                                    uint64_t door)
{
    uint32_t slot = (uint32_t)door & 0xffffu;
    if (slot >= table->count || table->rows[slot].used) {
        process_break(process, "a number that is not free");
        return NULL;
    }
    return &table->rows[slot];
}

void process_row_set(struct process_table *table, struct process_row *row, uint64_t door,
                     uint32_t own)
{
    *row = (struct process_row){.used = true, .door = (uint32_t)door, .own = own};
    table->door_of[own & 0xffffu] = (uint32_t)door;
}

struct process_row *process_row_by_own(const struct process_table *table, uint32_t own)
{
    struct process_row *row = process_row_of(table, table->door_of[own & 0xffffu]);
    return row != NULL && row->own == own ? row : NULL;
}

void process_news_why(struct sl_body_rail_news *news, const struct sl_error *why)
{
    static const uint64_t text_max = 240;
    if (why != NULL && why->code != SL_OK) {
        news->code = (uint64_t)why->code;
        uint64_t length = SL_MIN((uint64_t)strlen(why->text), text_max);
        if (sl_text_is_clean(why->text, length)) {
            news->text = (struct sl_text){.at = why->text, .length = length};
        }
    }
}

/* ---- peers ---- */

static void peer_add(struct tr_process *process, uint64_t handle)
{
    struct process_row *row = process_row_new(process, &process->peers, handle);
    uint32_t own = 0;
    if (row != NULL && sl_fabric_peer_add(process->fabric, &own, NULL) == SL_OK) {
        process_row_set(&process->peers, row, handle, own);
    } else if (row != NULL) {
        process_break(process, "more peers than there is room for");
    }
}

static void peer_told(struct tr_process *process, const struct sl_body_rail_order *order)
{
    const struct process_row *row = process_row_of(&process->peers, order->handle);
    struct sl_error why = {0};
    if (row != NULL && sl_fabric_peer_address(process->fabric, row->own, order->blob.at,
                                              (uint32_t)order->blob.length, &why) != SL_OK) {
        sl_log_write(process->env->log, SL_LOG_WARN, 0, "an address of a peer: %s", why.text);
    }
}

static void peer_remove(struct tr_process *process, uint64_t handle)
{
    struct process_row *row = process_row_of(&process->peers, handle);
    if (row != NULL) {
        uint32_t own = row->own;
        process->links_up -= row->up ? 1 : 0;
        *row = (struct process_row){0};
        sl_fabric_peer_remove(process->fabric, own);
    }
}

static void on_address(void *context, uint32_t peer, const void *blob, uint32_t length_bytes)
{
    struct tr_process *process = context;
    const struct process_row *row = process_row_by_own(&process->peers, peer);
    if (row != NULL) {
        struct sl_body_rail_news news = {.handle = row->door,
                                         .blob = {.at = blob, .length = length_bytes}};
        process_news(process, RAIL_ADDRESS, &news);
    }
}

static void on_link(void *context, uint32_t peer, enum sl_fabric_link link,
                    const struct sl_error *why)
{
    struct tr_process *process = context;
    struct process_row *row = process_row_by_own(&process->peers, peer);
    if (row != NULL) {
        process->links_up += link == SL_FABRIC_UP && !row->up ? 1 : 0;
        process->links_up -= link != SL_FABRIC_UP && row->up ? 1 : 0;
        row->up = link == SL_FABRIC_UP;
        struct sl_body_rail_news news = {.handle = row->door, .link = link};
        process_news_why(&news, why);
        process_news(process, RAIL_LINK, &news);
    }
}

/* ---- grants ---- */

/* The places with our numbers. Errors: SL_ERR_NOT_FOUND (a memory). */
static sl_err places_find(const struct tr_process *process, const struct sl_item_rail_place *items,
                          uint64_t count, struct sl_fabric_place *out)
{
    for (uint64_t i = 0; i < count; i++) {
        const struct process_row *memory = process_row_of(&process->memories, items[i].memory);
        if (memory == NULL) {
            return SL_ERR_NOT_FOUND;
        }
        out[i] = (struct sl_fabric_place){.memory = memory->own,
                                          .offset_bytes = items[i].offset_bytes,
                                          .length_bytes = items[i].length_bytes};
    }
    return SL_OK;
}

static void granted(struct tr_process *process, uint64_t handle, const struct sl_error *why,
                    const void *key, uint32_t key_bytes)
{
    struct sl_body_rail_news news = {.handle = handle, .blob = {.at = key, .length = key_bytes}};
    process_news_why(&news, why);
    process_news(process, RAIL_GRANTED, &news);
}

void process_key_drop(struct process_row *row)
{
    free(row->key);
    row->key = NULL;
    row->key_bytes = 0;
}

/* ---- what is not written any more ---- */

static void shut_add(struct tr_process *process, struct process_row *row,
                     const struct sl_item_rail_place *range)
{
    if (range->length_bytes > UINT64_MAX - range->offset_bytes ||
        sl_cover_add(&row->shut, range->offset_bytes, range->length_bytes) != SL_OK) {
        process_break(process, "more to be shut than there is room for");
    }
}

static void grants_shut(struct tr_process *process, const struct sl_body_rail_order *order)
{
    for (uint64_t i = 0; i < order->shut.count; i++) {
        struct process_row *row = process_row_of(&process->grants, order->shut.at[i].memory);
        if (row != NULL) { /* else it is over */
            shut_add(process, row, &order->shut.at[i]);
            row->checks = true;
        }
    }
    process->shut_asked = (uint32_t)order->handle;
    process_shut_step(process);
}

void process_shut_step(struct tr_process *process)
{
    bool lands = false;
    if (process->shut_told == process->shut_asked || process->broken) {
        return;
    }
    for (uint32_t i = 0; i < process->grants.count; i++) {
        struct process_row *row = &process->grants.rows[i];
        row->checks =
            row->used && row->checks && sl_fabric_grant_recheck(process->fabric, row->own);
        lands |= row->checks;
    }
    if (lands) {
        process->env->ops->wake_at(process->env, 0);
        return;
    }
    struct sl_body_rail_news news = {.handle = process->shut_asked};
    process->shut_told = process->shut_asked;
    process_news(process, RAIL_SHUT, &news);
}

static bool on_may_write(void *context, uint64_t cookie, uint64_t offset_bytes,
                         uint64_t length_bytes)
{
    const struct tr_process *process = context;
    const struct process_row *row = process_row_of(&process->grants, cookie - 1);
    return row != NULL && sl_cover_within(&row->shut, offset_bytes, length_bytes) == 0;
}

/* Until it works, which is when the door hears of it. */
static bool key_keep(struct process_row *row, const void *key, uint32_t key_bytes)
{
    row->key = malloc(SL_MAX(key_bytes, 1u));
    if (row->key != NULL) {
        memcpy(row->key, key, key_bytes);
        row->key_bytes = key_bytes;
    }
    return row->key != NULL;
}

static void grant_add(struct tr_process *process, const struct sl_body_rail_order *order)
{
    struct process_row *row = process_row_new(process, &process->grants, order->handle);
    const struct process_row *memory = process_row_of(&process->memories, order->memory);
    const struct process_row *peer = process_row_of(&process->peers, order->peer);
    struct sl_error why = {0};
    uint32_t own = 0, key_bytes = 0;
    if (row == NULL) {
        return;
    }
    uint32_t places = (uint32_t)order->places.count;
    sl_err err = peer == NULL || (places == 0 && memory == NULL)
                     ? sl_fail(&why, SL_ERR_NOT_FOUND, "no such memory or peer")
                     : SL_OK;
    if (err == SL_OK) { /* no transfer is being gathered: its messages follow each other */
        err = places_find(process, order->places.at, places, process->places);
        (void)(err == SL_OK ? err : sl_fail(&why, err, "no such memory"));
    }
    if (err == SL_OK) {
        const struct sl_fabric_grant want = {.verb = (enum sl_fabric_verb)order->verb,
                                             .memory = places == 0 ? memory->own : 0,
                                             .peer = peer->own,
                                             .offset_bytes = order->offset_bytes,
                                             .length_bytes = order->length_bytes,
                                             .places = places > 0 ? process->places : NULL,
                                             .place_count = places,
                                             .cookie = order->handle + 1};
        err = sl_fabric_grant_add(process->fabric, &want, &own, process->key, &key_bytes, &why);
    }
    if (err != SL_OK) {
        granted(process, order->handle, &why, NULL, 0);
        return;
    }
    process_row_set(&process->grants, row, order->handle, own);
    for (uint64_t i = 0; i < order->shut.count; i++) {
        shut_add(process, row, &order->shut.at[i]);
    }
    if (!key_keep(row, process->key, key_bytes)) {
        process_break(process, "no memory for a key");
    }
}

static void on_granted(void *context, uint32_t grant, const void *key, uint32_t key_bytes,
                       const struct sl_error *why)
{
    struct tr_process *process = context;
    struct process_row *row = process_row_by_own(&process->grants, grant);
    if (row == NULL) {
        return;
    }
    granted(process, row->door, why, key != NULL ? key : row->key,
            key != NULL ? key_bytes : row->key_bytes);
    process_key_drop(row);
    if (why->code != SL_OK) { /* to the door it is over by that */
        (void)sl_fabric_grant_end(process->fabric, grant);
    }
}

static void grant_over(struct tr_process *process, uint64_t handle)
{
    struct sl_body_rail_news news = {.handle = handle};
    process_news(process, RAIL_GRANT_ENDED, &news);
}

static void grant_end(struct tr_process *process, uint64_t handle)
{
    const struct process_row *row = process_row_of(&process->grants, handle);
    if (row == NULL) { /* it was refused */
        grant_over(process, handle);
    } else {
        (void)sl_fabric_grant_end(process->fabric, row->own);
    }
}

static void on_grant_ended(void *context, uint32_t grant)
{
    struct tr_process *process = context;
    struct process_row *row = process_row_by_own(&process->grants, grant);
    if (row != NULL) {
        uint64_t handle = row->door;
        process_key_drop(row);
        sl_cover_fini(&row->shut);
        *row = (struct process_row){0};
        grant_over(process, handle);
    }
}

/* ---- keys ---- */

/* One that the fabric does not take is not there: what needs it is refused. */
static void key_open(struct tr_process *process, const struct sl_body_rail_order *order)
{
    struct process_row *row = process_row_new(process, &process->keys, order->handle);
    const struct process_row *peer = process_row_of(&process->peers, order->peer);
    struct sl_error why = {0};
    uint32_t own = 0;
    if (row == NULL || peer == NULL) {
        return;
    }
    if (sl_fabric_key_open(process->fabric, peer->own, order->blob.at, (uint32_t)order->blob.length,
                           &own, &why) == SL_OK) {
        process_row_set(&process->keys, row, order->handle, own);
    } else {
        sl_log_write(process->env->log, SL_LOG_WARN, 0, "a key of a peer: %s", why.text);
    }
}

static void key_close(struct tr_process *process, uint64_t handle)
{
    struct process_row *row = process_row_of(&process->keys, handle);
    if (row != NULL) {
        uint32_t own = row->own;
        *row = (struct process_row){0};
        sl_fabric_key_close(process->fabric, own);
    }
}

/* ---- transfers ---- */

static void done_send(struct tr_process *process, uint64_t slot, sl_err code, const uint8_t *codes,
                      uint64_t moved_bytes)
{
    struct process_post *post = &process->posts[slot];
    struct sl_msg msg = {.type = SL_MSG_RAIL_DONE};
    msg.body.rail_done.slot = slot;
    msg.body.rail_done.cookie = post->cookie;
    msg.body.rail_done.code = (uint64_t)code;
    msg.body.rail_done.moved_bytes = moved_bytes;
    msg.body.rail_done.codes = (struct sl_bytes){.at = codes, .length = post->piece_count};
    *post = (struct process_post){0};
    process->posts_out--;
    if (tr_stream_send(&process->stream, &msg) != SL_OK) {
        process_break(process, "the door takes no news any more");
    }
}

static void on_done(void *context, const struct sl_fabric_done *done)
{
    done_send(context, done->cookie, done->code, done->pieces, done->moved_bytes);
}

/* SL_ERR_PERMISSION: no such key here, which another rail may have. */
static sl_err piece_gather(struct tr_process *process, const struct sl_item_rail_piece *item,
                           const struct sl_fabric_place *places)
{
    const struct process_row *memory = process_row_of(&process->memories, item->memory);
    const struct process_row *key = process_row_of(&process->keys, item->key);
    if (key == NULL || (item->place_count == 0 && memory == NULL)) {
        return SL_ERR_PERMISSION;
    }
    uint32_t at = process->gathered;
    process->digests[at] = (struct sl_digest){.low = item->digest_low, .high = item->digest_high};
    process->pieces[at] = (struct sl_fabric_piece){
        .memory = item->place_count == 0 ? memory->own : 0,
        .key = key->own,
        .offset_bytes = item->offset_bytes,
        .remote_offset_bytes = item->remote_offset_bytes,
        .length_bytes = item->length_bytes,
        .digest = item->checked ? &process->digests[at] : NULL,
        .places = item->place_count > 0 ? places : NULL,
        .place_count = (uint32_t)item->place_count,
    };
    return SL_OK;
}

/* False: the counts do not go together. */
static bool pieces_gather(struct tr_process *process, const struct sl_body_rail_post *body)
{
    uint64_t wanted = 0;
    for (uint64_t i = 0; i < body->pieces.count; i++) {
        wanted += body->pieces.at[i].place_count;
    }
    if (wanted != body->places.count || body->pieces.count == 0 ||
        body->pieces.count > SL_FABRIC_PIECES_MAX - process->gathered ||
        wanted > process->places_max - process->gathered_places) {
        return false;
    }
    struct sl_fabric_place *places = &process->places[process->gathered_places];
    if (places_find(process, body->places.at, body->places.count, places) != SL_OK) {
        process->gathered_code = SL_ERR_PERMISSION;
    }
    process->gathered_places += (uint32_t)wanted;
    for (uint64_t i = 0; i < body->pieces.count; i++) {
        sl_err err = piece_gather(process, &body->pieces.at[i], places);
        process->gathered_code = err != SL_OK ? err : process->gathered_code;
        places += body->pieces.at[i].place_count;
        process->gathered++;
    }
    return true;
}

static void transfer_post(struct tr_process *process, const struct sl_msg *msg)
{
    const struct sl_body_rail_post *body = &msg->body.rail_post;
    const struct process_row *peer = process_row_of(&process->peers, body->peer);
    uint32_t count = process->gathered;
    process->posts_out++;
    process->posts[body->slot] =
        (struct process_post){.used = true, .piece_count = count, .cookie = body->cookie};
    sl_err err = peer == NULL ? SL_ERR_UNREACHABLE : process->gathered_code;
    if (err == SL_OK) {
        const struct sl_fabric_transfer transfer = {
            .verb = (enum sl_fabric_verb)body->verb,
            .peer = peer->own,
            .pieces = process->pieces,
            .piece_count = count,
            .deadline_ns = sl_deadline_ns(msg->received_ns, msg->budget_ns),
            .cookie = body->slot,
        };
        err = sl_fabric_post(process->fabric, &transfer, NULL);
    }
    process->gathered = process->gathered_places = 0;
    if (err != SL_OK) {
        memset(process->codes, (int)err, count);
        done_send(process, body->slot, err, process->codes, 0);
    }
}

void process_post(struct tr_process *process, const struct sl_msg *msg)
{
    const struct sl_body_rail_post *body = &msg->body.rail_post;
    bool first = process->gathered == 0;
    if (first) {
        process->gathered_slot = body->slot;
        process->gathered_code = SL_OK;
    }
    if (body->slot >= process->options.transfers_max || process->posts[body->slot].used ||
        body->slot != process->gathered_slot || !pieces_gather(process, body)) {
        process_break(process, "a transfer that makes no sense");
    } else if (!body->more) {
        transfer_post(process, msg);
    }
}

static void cancel(struct tr_process *process, const struct sl_body_rail_order *order)
{
    if (order->handle < process->options.transfers_max && process->posts[order->handle].used &&
        process->posts[order->handle].cookie == order->cookie) {
        (void)sl_fabric_cancel(process->fabric, order->handle);
    }
}

/* ---- all of them ---- */

void process_order(struct tr_process *process, const struct sl_body_rail_order *order)
{
    struct sl_body_rail_news pong = {0};
    switch ((enum sl_rail_order)order->kind) {
    case RAIL_MEMORY_ADD:
        process_memory_add(process, order);
        return;
    case RAIL_MEMORY_GO:
        process_memory_go(process, order->handle);
        return;
    case RAIL_PEER_ADD:
        peer_add(process, order->handle);
        return;
    case RAIL_PEER_TOLD:
        peer_told(process, order);
        return;
    case RAIL_PEER_REMOVE:
        peer_remove(process, order->handle);
        return;
    case RAIL_GRANT_ADD:
        grant_add(process, order);
        return;
    case RAIL_GRANT_END:
        grant_end(process, order->handle);
        return;
    case RAIL_KEY_OPEN:
        key_open(process, order);
        return;
    case RAIL_KEY_CLOSE:
        key_close(process, order->handle);
        return;
    case RAIL_CANCEL:
        cancel(process, order);
        return;
    case RAIL_GRANTS_SHUT:
        grants_shut(process, order);
        return;
    case RAIL_PING:
        process_news(process, RAIL_PONG, &pong);
        return;
    case RAIL_OPEN:
        break;
    }
    process_break(process, "an order of no kind");
}

struct sl_fabric_events process_events(struct tr_process *process)
{
    return (struct sl_fabric_events){
        .context = process,
        .done = on_done,
        .registered = process_on_registered,
        .address = on_address,
        .link = on_link,
        .granted = on_granted,
        .grant_ended = on_grant_ended,
        .may_write = on_may_write,
    };
}
