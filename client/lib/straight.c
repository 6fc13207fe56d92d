/* client/lib/straight.c - values of other nodes straight into lent memory (PULL_OBJECTS).
 *
 * The transporter writes while this process waits. It has ended when it answered, or when the
 * coordinator says that the op is fenced: the transporter acknowledged it, or it is dead. A request that
 * is read only after that is not begun, since its time is over then.
 *
 * Marks show that addresses still lead to the memory that was lent: some words of it are overwritten
 * before, and are to be the value's behind it. Who unmapped a buffer and forgot to say so would else be
 * told of bytes that lie elsewhere. */
#include "client/lib/lend.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FENCE_NS       (5 * SL_NS_PER_S)  /* a question for the end of an op */
#define FENCE_PAUSE_NS (5 * SL_NS_PER_MS) /* between two */
#define MARK_EVERY     (2 * SL_MIB)
#define PIECES_MAX     1024u /* of a value: places of the fabric */

struct mark {
    unsigned char *at;
    uint64_t was;          /* the bytes there */
    uint64_t offset_bytes; /* in the value */
    uint32_t item;         /* among those that are asked for */
};
struct batch {
    struct sl_client *client;
    struct sl_straight **of; /* items that are asked for, count of them */
    struct sl_item_asked *items;
    struct sl_item_lent *lent; /* lent_count */
    struct sl_stretch *stretches;
    struct mark *marks; /* mark_count */
    uint64_t mark;
    uint64_t *codes, *lengths; /* as answered */
    uint32_t count, lent_count, mark_count;
    bool answered, whole; /* whole: with a code for each */
    sl_err code;
};

/* ---- what is asked for ---- */

static uint64_t marks_of(uint64_t length_bytes)
{
    return length_bytes / MARK_EVERY + 1;
}

/* Pieces that follow each other from the value's start, none of them empty. */
static bool item_fine(const struct sl_straight *item, uint64_t *mark_count)
{
    uint64_t end_bytes = 0;
    for (uint32_t i = 0; i < item->piece_count; i++) {
        const struct sl_piece *piece = &item->pieces[i];
        if (piece->length_bytes == 0 || piece->offset_bytes != end_bytes ||
            piece->length_bytes > SL_VALUE_BYTES_MAX) {
            return false;
        }
        end_bytes += piece->length_bytes;
        *mark_count += marks_of(piece->length_bytes);
    }
    return item->piece_count <= PIECES_MAX && end_bytes >= SL_LENT_BYTES_MIN;
}

static bool batch_room(struct batch *batch, const struct sl_straight *items, uint32_t count)
{
    uint64_t piece_count = 1, mark_count = 1;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t marks = 0;
        if (item_fine(&items[i], &marks)) {
            piece_count += items[i].piece_count;
            mark_count += marks;
        }
    }
    batch->of = calloc(count + 1u, sizeof(struct sl_straight *));
    batch->items = calloc(count + 1u, sizeof *batch->items);
    batch->codes = calloc(count + 1u, sizeof *batch->codes);
    batch->lengths = calloc(count + 1u, sizeof *batch->lengths);
    batch->lent = calloc(piece_count, sizeof *batch->lent);
    batch->stretches = calloc(piece_count, sizeof *batch->stretches);
    batch->marks = calloc(mark_count, sizeof *batch->marks);
    return batch->of != NULL && batch->items != NULL && batch->codes != NULL &&
           batch->lengths != NULL && batch->lent != NULL && batch->stretches != NULL &&
           batch->marks != NULL;
}

static void batch_free(struct batch *batch)
{
    free((void *)batch->of);
    free(batch->items);
    free(batch->codes);
    free(batch->lengths);
    free(batch->lent);
    free(batch->stretches);
    free(batch->marks);
}

/* Uses all of its pieces, or none. */
static void item_enter(struct batch *batch, struct sl_straight *item)
{
    uint64_t marks = 0;
    uint32_t entered = 0, at = batch->lent_count;
    if (!item_fine(item, &marks)) {
        return;
    }
    while (entered < item->piece_count &&
           sl_stretch_enter(batch->client, item->pieces[entered].at,
                            item->pieces[entered].length_bytes, &batch->stretches[at + entered])) {
        const struct sl_stretch *stretch = &batch->stretches[at + entered];
        batch->lent[at + entered] =
            (struct sl_item_lent){.engine_id = stretch->engine_id,
                                  .offset_bytes = stretch->offset_bytes,
                                  .length_bytes = item->pieces[entered].length_bytes,
                                  .item = batch->count};
        entered++;
    }
    if (entered < item->piece_count || at + entered > SL_BATCH_MAX) {
        while (entered > 0) {
            sl_stretch_leave(batch->client, &batch->stretches[at + --entered]);
        }
        return;
    }
    batch->lent_count += entered;
    batch->items[batch->count].key =
        (struct sl_text){.at = item->key.at, .length = item->key.length};
    batch->of[batch->count++] = item;
}

/* ---- marks ---- */

static void marks_set(struct batch *batch)
{
    batch->mark = sl_client_random();
    for (uint32_t i = 0; i < batch->count; i++) {
        const struct sl_straight *item = batch->of[i];
        for (uint32_t k = 0; k < item->piece_count; k++) {
            const struct sl_piece *piece = &item->pieces[k];
            for (uint64_t at = 0; at + sizeof batch->mark <= piece->length_bytes;
                 at += MARK_EVERY) {
                struct mark *mark = &batch->marks[batch->mark_count];
                *mark = (struct mark){.at = (unsigned char *)piece->at + at,
                                      .offset_bytes = piece->offset_bytes + at,
                                      .item = i};
                memcpy(&mark->was, mark->at, sizeof mark->was);
                memcpy(mark->at, &batch->mark, sizeof batch->mark);
                batch->mark_count += mark->was != batch->mark ? 1 : 0; /* another item's */
            }
        }
    }
}

/* Puts back what the value did not reach. False: it should have, and the mark is still there. */
static bool mark_end(const struct batch *batch, const struct mark *mark, uint64_t length_bytes)
{
    uint64_t there = 0;
    uint64_t landed =
        SL_MIN(length_bytes - SL_MIN(length_bytes, mark->offset_bytes), (uint64_t)sizeof mark->was);
    memcpy(&there, mark->at, sizeof there);
    if (landed == sizeof there) {
        return there != batch->mark;
    }
    if (landed > 0 || there == batch->mark) {
        memcpy(mark->at + landed, (const unsigned char *)&mark->was + landed,
               sizeof mark->was - landed);
    }
    return true;
}

/* ---- the request ---- */

static void answered(void *context, const struct sl_msg *reply)
{
    struct batch *batch = context;
    const struct sl_body_pull_objects_reply *body = &reply->body.pull_objects_reply;
    batch->answered = true;
    batch->whole = reply->code == SL_OK && body->codes.count == batch->count &&
                   body->lengths.count == batch->count;
    if (batch->whole) {
        memcpy(batch->codes, body->codes.at, batch->count * sizeof *batch->codes);
        memcpy(batch->lengths, body->lengths.at, batch->count * sizeof *batch->lengths);
    }
}

static void fenced_taken(void *context, const struct sl_msg *reply)
{
    *(bool *)context = reply->code == SL_OK && reply->body.op_fenced_reply.fenced;
}

/* Nothing of the op is written any more, nor will be: whoever reads its request now finds its time
 * over. There is no end to it while neither the transporter nor the coordinator moves, and neither dies:
 * bytes that land in memory with another use would be worse. */
static void op_fence(struct sl_client *client, uint64_t op_id, uint64_t until_ns)
{
    uint64_t now_ns = sl_clock_monotonic_ns();
    if (now_ns < until_ns) {
        sl_client_sleep(until_ns - now_ns);
    }
    for (bool fenced = false; !fenced;) {
        struct sl_client_call call = {.to = "coordinator",
                                      .deadline_ns =
                                          sl_deadline_ns(sl_clock_monotonic_ns(), FENCE_NS),
                                      .answered = fenced_taken,
                                      .context = &fenced};
        call.msg.type = SL_MSG_OP_FENCED;
        call.msg.op_id = op_id;
        call.msg.body.op_fenced.target_op = op_id;
        (void)sl_client_call(client, &call, NULL); /* one that is not answered is in the log */
        if (!fenced) {
            sl_client_sleep(FENCE_PAUSE_NS);
        }
    }
}

/* Two processes may have taken it, one after the other, and one of them has answered. */
static bool taken_twice(struct sl_client *client, const struct sl_client_call *call)
{
    pthread_mutex_lock(&client->lock);
    bool twice = call->sent_again && call->connects != sl_mailbox_connect_count(client->mailbox);
    pthread_mutex_unlock(&client->lock);
    return twice;
}

static void batch_ask(struct batch *batch, uint64_t deadline_ns)
{
    struct sl_client_call call = {
        .to = "transporter.0", .deadline_ns = deadline_ns, .answered = answered, .context = batch};
    call.msg.type = SL_MSG_PULL_OBJECTS;
    call.msg.op_id = sl_client_op_id(batch->client);
    call.msg.body.pull_objects.until_ns = deadline_ns;
    call.msg.body.pull_objects.items.at = batch->items;
    call.msg.body.pull_objects.items.count = batch->count;
    call.msg.body.pull_objects.buffers.at = batch->lent;
    call.msg.body.pull_objects.buffers.count = batch->lent_count;
    batch->code = sl_client_call(batch->client, &call, NULL);
    if (batch->answered ? taken_twice(batch->client, &call) : call.ever_sent) {
        op_fence(batch->client, call.msg.op_id, deadline_ns);
    }
}

/* ---- what came ---- */

static void codes_take(struct batch *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        struct sl_straight *item = batch->of[i];
        sl_err code = batch->whole ? sl_err_received(batch->codes[i]) : SL_ERR_BUSY;
        uint64_t room_bytes = item->pieces[item->piece_count - 1].offset_bytes +
                              item->pieces[item->piece_count - 1].length_bytes;
        bool fits = batch->lengths[i] >= SL_LENT_BYTES_MIN && batch->lengths[i] <= room_bytes;
        item->length_bytes = code == SL_OK ? batch->lengths[i] : 0;
        item->code = (code == SL_OK && !fits) || code == SL_ERR_STALE ? SL_ERR_BUSY : code;
    }
}

static void marks_end(struct batch *batch)
{
    for (uint32_t i = 0; i < batch->mark_count; i++) {
        const struct mark *mark = &batch->marks[i];
        struct sl_straight *item = batch->of[mark->item];
        if (!mark_end(batch, mark, item->length_bytes)) {
            item->code = SL_ERR_STALE;
        }
    }
}

static void batch_leave(struct batch *batch)
{
    uint64_t values = 0, bytes = 0;
    for (uint32_t i = 0; i < batch->lent_count; i++) {
        const struct sl_straight *item = batch->of[batch->lent[i].item];
        if (item->code == SL_ERR_STALE) {
            sl_stretch_moved(batch->client, &batch->stretches[i]);
        }
        sl_stretch_leave(batch->client, &batch->stretches[i]);
    }
    for (uint32_t i = 0; i < batch->count; i++) {
        values += batch->of[i]->code == SL_OK ? 1 : 0;
        bytes += batch->of[i]->code == SL_OK ? batch->of[i]->length_bytes : 0;
    }
    sl_lends_count(batch->client, values, bytes, batch->count - values);
}

void sl_straight_get(struct sl_client *client, struct sl_straight *items, uint32_t count,
                     uint64_t deadline_ns)
{
    struct batch batch = {.client = client};
    for (uint32_t i = 0; i < count; i++) {
        items[i].code = SL_ERR_BUSY;
    }
    if (batch_room(&batch, items, count)) {
        for (uint32_t i = 0; i < count; i++) {
            item_enter(&batch, &items[i]);
        }
    }
    if (batch.count > 0) {
        marks_set(&batch);
        batch_ask(&batch, deadline_ns);
        codes_take(&batch);
        marks_end(&batch);
        batch_leave(&batch);
    }
    batch_free(&batch);
}
