/* client/client_put.c - writing: reserve, fill in one pass with the digest, commit. A batch is one
 * reserve and one commit; what another writer is at is tried again until the deadline.
 *
 * What is there already is seen in the index and costs no message. Values of a size that was put a
 * moment ago go into extents granted ahead of use: fill, publish. */
#include "client/client_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUSY_WAIT_NS_MIN (100 * SL_NS_PER_US)
#define BUSY_WAIT_NS_MAX (5 * SL_NS_PER_MS)
/* Encoded size of one item beside its key, at most. */
#define WANT_FRAME_BYTES 64u
/* From here on a batch asks for time to be filled at this pace. */
#define LARGE_BATCH_BYTES (128 * SL_MIB)
#define LOOKED_UP_COUNT   64u
/* Items that need no heap: a put of one object allocates nothing. */
#define ITEMS_INLINE 4u

struct put_item {
    uint64_t source; /* index into the caller's arrays */
    uint64_t code, ref, generation, arena, offset_bytes;
    sl_pin pin; /* of an extent granted ahead */
};

/* For finding what was granted twice. */
struct put_claimed {
    uint64_t generation;
    uint32_t item;
};

struct put_few {
    struct put_item items[ITEMS_INLINE];
    struct sl_item_want wants[ITEMS_INLINE];
    struct sl_item_claim claims[ITEMS_INLINE];
    struct sl_item_publication publications[ITEMS_INLINE];
    uint32_t claim_items[ITEMS_INLINE];
};

struct put {
    struct sl_client *client;
    const struct sl_object_key *keys;
    const struct sl_buffer *values;
    sl_err *codes;
    uint64_t deadline_ns;
    struct sl_error *why;
    /* of one round: */
    struct put_item *items;
    struct sl_item_want *wants;
    struct sl_item_claim *claims;
    struct sl_item_publication *publications; /* of claims */
    uint32_t *claim_items;                    /* claims[i] is for items[claim_items[i]] */
    uint32_t item_count, claim_count;
    uint64_t space_bytes; /* of every item; 0: they differ */
    uint32_t asked_ahead;
    struct sl_attachment *at;
};

static bool key_fine(struct sl_object_key key)
{
    return key.at != NULL && key.length >= 1 && key.length <= SL_KEY_BYTES_MAX &&
           memchr(key.at, 0, key.length) == NULL;
}

/* A code for what cannot even be asked; BUSY means: still to do. */
static sl_err put_checked(struct sl_object_key key, const struct sl_buffer *value)
{
    if (!key_fine(key) || value->at == NULL || value->length_bytes == 0 ||
        value->length_bytes > SL_VALUE_BYTES_MAX) {
        return SL_ERR_INVALID;
    }
    return SL_ERR_BUSY;
}

static void grants_taken(void *context, const struct sl_msg *reply)
{
    struct put *put = context;
    if (reply->code != SL_OK || reply->body.reserve_reply.items.count != put->item_count) {
        return;
    }
    for (uint32_t i = 0; i < put->item_count; i++) {
        const struct sl_item_grant *grant = &reply->body.reserve_reply.items.at[i];
        struct put_item *item = &put->items[i];
        item->code = grant->code;
        item->ref = grant->ref;
        item->generation = grant->generation;
        item->arena = grant->arena;
        item->offset_bytes = grant->offset_bytes;
    }
}

static sl_err put_reserve(struct put *put)
{
    uint64_t total_bytes = 0;
    for (uint32_t i = 0; i < put->item_count; i++) {
        uint64_t source = put->items[i].source;
        put->items[i].code = SL_ERR_PROTOCOL; /* stays when the answer has another count */
        put->wants[i] = (struct sl_item_want){
            .key = {.at = put->keys[source].at, .length = put->keys[source].length},
            .length_bytes = put->values[source].length_bytes,
        };
        total_bytes += put->values[source].length_bytes;
    }
    struct sl_client_call call = {.to = "registrar",
                                  .deadline_ns = put->deadline_ns,
                                  .answered = grants_taken,
                                  .context = put};
    call.msg.type = SL_MSG_RESERVE;
    call.msg.op_id = sl_client_op_id(put->client);
    call.msg.body.reserve.wait = true;
    call.msg.body.reserve.ttl_ns = total_bytes < LARGE_BATCH_BYTES
                                       ? 0
                                       : sl_budget_ns(sl_clock_monotonic_ns(), put->deadline_ns);
    call.msg.body.reserve.items.at = put->wants;
    call.msg.body.reserve.items.count = put->item_count;
    return sl_client_call(put->client, &call, put->why);
}

/* The first of the batch comes first among equals: its value is the one that is kept. */
static int by_generation(const void *a, const void *b)
{
    const struct put_claimed *left = a, *right = b;
    if (left->generation != right->generation) {
        return left->generation < right->generation ? -1 : 1;
    }
    return left->item < right->item ? -1 : left->item > right->item;
}

/* The same key twice in a batch is granted the same extent twice: only one of the two may write it.
 * The other is tried again in the next round, and finds that it exists. */
static sl_err put_single_out(struct put *put)
{
    uint64_t last = 0;
    bool rising = true;
    for (uint32_t i = 0; i < put->item_count && rising; i++) {
        if (put->items[i].code == SL_OK) {
            rising = put->items[i].generation > last;
            last = put->items[i].generation;
        }
    }
    if (rising) { /* generations are unique and handed out in order: nothing twice */
        return SL_OK;
    }
    struct put_claimed *sorted = malloc(put->item_count * sizeof *sorted);
    if (sorted == NULL) {
        return sl_fail(put->why, SL_ERR_NO_MEMORY, "put: %u items", put->item_count);
    }
    uint32_t granted = 0;
    for (uint32_t i = 0; i < put->item_count; i++) {
        if (put->items[i].code == SL_OK) {
            sorted[granted++] =
                (struct put_claimed){.generation = put->items[i].generation, .item = i};
        }
    }
    qsort(sorted, granted, sizeof *sorted, by_generation);
    for (uint32_t i = 1; i < granted; i++) {
        if (sorted[i].generation == sorted[i - 1].generation) {
            put->items[sorted[i].item].code = SL_ERR_BUSY;
        }
    }
    free(sorted);
    return SL_OK;
}

/* Gives back what was granted and will not be committed. */
static void put_abandon(struct put *put)
{
    put->claim_count = 0;
    for (uint32_t i = 0; i < put->item_count; i++) {
        if (put->items[i].code == SL_OK) {
            put->claims[put->claim_count++] = (struct sl_item_claim){
                .ref = put->items[i].ref, .generation = put->items[i].generation};
        }
    }
    sl_client_orphan(put->client, put->claims, put->claim_count);
}

static void item_unpin(struct put *put, struct put_item *item)
{
    sl_pins_give(put->at->pins, item->pin);
    item->pin = 0;
}

static void put_fill(struct put *put)
{
    put->claim_count = 0;
    for (uint32_t i = 0; i < put->item_count; i++) {
        struct put_item *item = &put->items[i];
        if (item->code != SL_OK) {
            continue;
        }
        const struct sl_buffer *value = &put->values[item->source];
        void *to = sl_client_bytes(put->client, put->at, (uint32_t)item->arena, item->offset_bytes,
                                   value->length_bytes);
        if (to == NULL) {
            const struct sl_item_claim claim = {.ref = item->ref, .generation = item->generation};
            item_unpin(put, item);
            sl_client_orphan(put->client, &claim, 1);
            item->code = SL_ERR_PROTOCOL;
            continue;
        }
        struct sl_digest digest = sl_digest_copy(to, value->at, value->length_bytes);
        put->claim_items[put->claim_count] = i;
        put->claims[put->claim_count++] = (struct sl_item_claim){.ref = item->ref,
                                                                 .generation = item->generation,
                                                                 .digest_low = digest.low,
                                                                 .digest_high = digest.high};
    }
}

static void commit_taken(void *context, const struct sl_msg *reply)
{
    struct put *put = context;
    if (reply->code != SL_OK || reply->body.commit_reply.codes.count != put->claim_count) {
        return;
    }
    for (uint32_t i = 0; i < put->claim_count; i++) {
        put->items[put->claim_items[i]].code = reply->body.commit_reply.codes.at[i];
    }
}

/* What stays of it when the answer has another count. */
static void put_unanswered(struct put *put)
{
    for (uint32_t i = 0; i < put->claim_count; i++) {
        put->items[put->claim_items[i]].code = SL_ERR_PROTOCOL;
    }
}

static sl_err put_commit(struct put *put)
{
    if (put->claim_count == 0) {
        return SL_OK;
    }
    put_unanswered(put);
    struct sl_client_call call = {.to = "registrar",
                                  .deadline_ns = put->deadline_ns,
                                  .answered = commit_taken,
                                  .context = put};
    call.msg.type = SL_MSG_COMMIT;
    call.msg.body.commit.items.at = put->claims;
    call.msg.body.commit.items.count = put->claim_count;
    sl_err err = sl_client_call(put->client, &call, put->why);
    if (err != SL_OK) { /* committed or not: an abort of what was committed is refused */
        sl_client_orphan(put->client, put->claims, put->claim_count);
    }
    return err;
}

/* ---- what is there already ---- */

/* Takes what the index shows out of the round: it is done. */
static void put_look_up(struct put *put)
{
    uint32_t kept = 0;
    for (uint32_t first = 0; first < put->item_count; first += LOOKED_UP_COUNT) {
        struct sl_key keys[LOOKED_UP_COUNT];
        sl_err found[LOOKED_UP_COUNT];
        uint32_t share = SL_MIN(put->item_count - first, LOOKED_UP_COUNT);
        for (uint32_t i = 0; i < share; i++) {
            const struct sl_object_key *key = &put->keys[put->items[first + i].source];
            keys[i] = (struct sl_key){.at = key->at, .length = key->length};
        }
        sl_index_find_batch(put->at->view, keys, share, NULL, found);
        for (uint32_t i = 0; i < share; i++) {
            if (found[i] == SL_OK) {
                put->codes[put->items[first + i].source] = SL_OK;
            } else {
                put->items[kept++] = put->items[first + i];
            }
        }
    }
    put->item_count = kept;
}

static void put_measure(struct put *put)
{
    put->space_bytes = 0;
    for (uint32_t i = 0; i < put->item_count; i++) {
        uint64_t space = sl_extent_space(put->values[put->items[i].source].length_bytes);
        if (i > 0 && space != put->space_bytes) {
            put->space_bytes = 0;
            return;
        }
        put->space_bytes = space;
    }
}

/* ---- extents granted ahead ---- */

static struct sl_ahead_extent item_extent(const struct put *put, const struct put_item *item)
{
    return (struct sl_ahead_extent){.generation = item->generation,
                                    .offset_bytes = item->offset_bytes,
                                    .ref = (uint32_t)item->ref,
                                    .arena = (uint32_t)item->arena,
                                    .attachment = put->at->number};
}

static void item_return(struct put *put, struct put_item *item)
{
    const struct sl_ahead_extent extent = item_extent(put, item);
    item_unpin(put, item);
    sl_ahead_give(put->client, put->space_bytes, &extent);
}

/* One extent whose grant stands, pinned so that it goes on standing for us. */
static bool item_take_ahead(struct put *put, struct put_item *item)
{
    struct sl_ahead_extent extent;
    while (sl_ahead_take(put->client, put->space_bytes, put->at, &extent)) {
        sl_err err = sl_pins_take_grant(put->at->pins, put->at->view, extent.ref, extent.generation,
                                        put->space_bytes, &item->pin);
        if (err == SL_OK) {
            item->code = SL_OK;
            item->ref = extent.ref;
            item->generation = extent.generation;
            item->arena = extent.arena;
            item->offset_bytes = extent.offset_bytes;
            return true;
        }
        if (err != SL_ERR_STALE) { /* no pin is free */
            sl_ahead_give(put->client, put->space_bytes, &extent);
            return false;
        } /* else it was taken back: the next one */
    }
    return false;
}

static bool put_take_ahead(struct put *put)
{
    for (uint32_t i = 0; i < put->item_count; i++) {
        if (!item_take_ahead(put, &put->items[i])) {
            while (i > 0) {
                item_return(put, &put->items[--i]);
            }
            return false;
        }
    }
    return true;
}

static void publish_taken(void *context, const struct sl_msg *reply)
{
    struct put *put = context;
    if (reply->code != SL_OK) {
        return;
    }
    sl_ahead_arrived(put->client, put->space_bytes, put->asked_ahead, reply, put->at);
    if (reply->body.publish_reply.codes.count == put->claim_count) {
        for (uint32_t i = 0; i < put->claim_count; i++) {
            put->items[put->claim_items[i]].code = reply->body.publish_reply.codes.at[i];
        }
    }
}

/* Publishes what was filled, and asks for the extents of the next batch of this kind. */
static sl_err put_publish(struct put *put)
{
    struct sl_client_call call = {.to = "registrar",
                                  .deadline_ns = put->deadline_ns,
                                  .answered = publish_taken,
                                  .context = put};
    for (uint32_t i = 0; i < put->claim_count; i++) {
        uint64_t source = put->items[put->claim_items[i]].source;
        put->publications[i] = (struct sl_item_publication){
            .key = {.at = put->keys[source].at, .length = put->keys[source].length},
            .length_bytes = put->values[source].length_bytes,
            .ref = put->claims[i].ref,
            .generation = put->claims[i].generation,
            .digest_low = put->claims[i].digest_low,
            .digest_high = put->claims[i].digest_high};
    }
    put->asked_ahead = sl_ahead_missing(put->client, put->space_bytes, put->item_count);
    call.msg.type = SL_MSG_PUBLISH;
    call.msg.body.publish.ahead_count = put->asked_ahead;
    call.msg.body.publish.ahead_bytes = put->space_bytes;
    call.msg.body.publish.items.at = put->publications;
    call.msg.body.publish.items.count = put->claim_count;
    return sl_client_call(put->client, &call, put->why);
}

/* Ends what the round held: used up, still ours, or (unanswered) to be given back. */
static void put_let_go(struct put *put, sl_err result)
{
    for (uint32_t i = 0; i < put->claim_count; i++) {
        struct put_item *item = &put->items[put->claim_items[i]];
        if (result == SL_OK && (item->code == SL_ERR_EXISTS || item->code == SL_ERR_BUSY)) {
            item_return(put, item);
            continue;
        }
        item_unpin(put, item);
        if (result != SL_OK || (item->code != SL_OK && item->code != SL_ERR_STALE)) {
            sl_client_orphan(put->client, &put->claims[i], 1);
        }
    }
}

/* The round by extents granted ahead; false: they are not to be had, nothing was done. */
static bool put_ahead(struct put *put, sl_err *result)
{
    struct sl_client *client = put->client;
    if (put->space_bytes == 0 || put->item_count > SL_AHEAD_EXTENTS_MAX || client->ahead_refused ||
        !sl_ahead_warm(client, put->space_bytes, put->item_count, sl_clock_monotonic_ns())) {
        return false;
    }
    put->claim_count = 0;
    if (!put_take_ahead(put)) {
        sl_err err = put_publish(put);
        client->ahead_refused = err == SL_ERR_UNSUPPORTED; /* an older registrar */
        if (err != SL_OK || !put_take_ahead(put)) {
            return false;
        }
    }
    put_fill(put);
    put_unanswered(put);
    *result = put->claim_count == 0 ? SL_OK : put_publish(put);
    put_let_go(put, *result);
    return true;
}

/* One reserve, one fill, one commit for the items of this round. */
static sl_err put_by_reserve(struct put *put)
{
    const struct sl_attachment *before = put->at;
    sl_err err = put_reserve(put);
    if (err != SL_OK) {
        return err;
    }
    err = put_single_out(put);
    if (err != SL_OK) {
        put_abandon(put);
        return err;
    }
    /* Offsets are those of the memory of the registrar that answered: never written into that of an
     * earlier one. */
    err = sl_client_reattach(put->client, true, put->why);
    if (err != SL_OK || sl_client_attachment(put->client) != before) {
        return err != SL_OK ? err
                            : sl_fail(put->why, SL_ERR_BUSY, "the node was replaced during a put");
    }
    put_fill(put);
    return put_commit(put);
}

static sl_err put_round(struct put *put)
{
    sl_err err = sl_client_greet(put->client, put->deadline_ns, put->why);
    if (err != SL_OK) {
        return err;
    }
    put->at = sl_client_attachment(put->client);
    put_look_up(put);
    if (put->item_count == 0) {
        return SL_OK;
    }
    put_measure(put);
    if (!put_ahead(put, &err)) {
        err = put_by_reserve(put);
    }
    if (err == SL_OK && put->space_bytes != 0) {
        sl_ahead_note(put->client, put->space_bytes, sl_clock_monotonic_ns());
    }
    return err;
}

/* Codes of the round; true when something is to be tried again. */
static bool put_settle(struct put *put, sl_err result)
{
    bool again = false;
    for (uint32_t i = 0; i < put->item_count; i++) {
        uint64_t code = result != SL_OK ? (uint64_t)result : put->items[i].code;
        if (code == SL_ERR_EXISTS) {
            code = SL_OK;
        } else if (code == SL_ERR_STALE) { /* the reservation ended before the commit */
            code = SL_ERR_BUSY;
        } else if (code >= SL_ERR_COUNT) {
            code = SL_ERR_PROTOCOL;
        }
        put->codes[put->items[i].source] = (sl_err)code;
        again = again || code == SL_ERR_BUSY;
    }
    return again;
}

static sl_err put_rounds(struct put *put, uint32_t first, uint32_t count)
{
    uint64_t wait_ns = BUSY_WAIT_NS_MIN;
    for (;;) {
        put->item_count = 0;
        for (uint32_t i = first; i < first + count; i++) {
            if (put->codes[i] == SL_ERR_BUSY) {
                put->items[put->item_count++] = (struct put_item){.source = i};
            }
        }
        if (put->item_count == 0) {
            return SL_OK;
        }
        sl_err err = put_round(put);
        if (!put_settle(put, err)) {
            return err;
        }
        uint64_t left_ns = sl_budget_ns(sl_clock_monotonic_ns(), put->deadline_ns);
        if (left_ns <= wait_ns) {
            return SL_OK; /* codes say who is busy */
        }
        sl_client_sleep(wait_ns);
        wait_ns = SL_MIN(wait_ns * 2, BUSY_WAIT_NS_MAX);
    }
}

/* How many items from first on go into one message. */
static uint32_t put_share(const struct sl_client *client, const struct sl_object_key *keys,
                          uint32_t first, uint32_t count)
{
    uint64_t bytes = 4096; /* envelope */
    uint32_t taken = 0;
    while (first + taken < count && taken < SL_BATCH_MAX) {
        bytes += WANT_FRAME_BYTES + SL_MIN(keys[first + taken].length, SL_KEY_BYTES_MAX);
        if (bytes > client->message_bytes_max && taken > 0) {
            break;
        }
        taken++;
    }
    return taken;
}

/* The arrays of a round, side by side in one piece of memory. */
static size_t put_room(uint32_t count)
{
    return count *
           (sizeof(struct put_item) + sizeof(struct sl_item_want) + sizeof(struct sl_item_claim) +
            sizeof(struct sl_item_publication) + sizeof(uint32_t));
}

static void put_lay_out(struct put *put, void *room, uint32_t count)
{
    put->items = room;
    put->wants = (struct sl_item_want *)(put->items + count);
    put->claims = (struct sl_item_claim *)(put->wants + count);
    put->publications = (struct sl_item_publication *)(put->claims + count);
    put->claim_items = (uint32_t *)(put->publications + count);
}

sl_err sl_put_batch(struct sl_client *client, const struct sl_object_key *keys,
                    const struct sl_buffer *values, uint32_t count, sl_err *codes,
                    uint64_t timeout_ns, struct sl_error *why)
{
    sl_err err = sl_client_talks(client, why);
    if (err != SL_OK) {
        return err;
    }
    if (count > SL_BATCH_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "put: %u keys, at most %d", count, SL_BATCH_MAX);
    }
    struct put put = {.client = client,
                      .keys = keys,
                      .values = values,
                      .codes = codes,
                      .why = why,
                      .deadline_ns = sl_client_deadline(client, timeout_ns)};
    struct put_few few;
    void *room = NULL;
    if (count <= ITEMS_INLINE) {
        put.items = few.items;
        put.wants = few.wants;
        put.claims = few.claims;
        put.publications = few.publications;
        put.claim_items = few.claim_items;
    } else {
        room = malloc(put_room(count));
        if (room == NULL) {
            return sl_fail(why, SL_ERR_NO_MEMORY, "put: %u items", count);
        }
        put_lay_out(&put, room, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        codes[i] = put_checked(keys[i], &values[i]);
    }
    for (uint32_t first = 0; first < count && err == SL_OK;) {
        uint32_t share = put_share(client, keys, first, count);
        err = put_rounds(&put, first, share);
        first += share;
    }
    free(room);
    for (uint32_t i = 0; i < count && err != SL_OK; i++) { /* shares that were not begun */
        codes[i] = codes[i] == SL_ERR_BUSY ? err : codes[i];
    }
    return err;
}

sl_err sl_put(struct sl_client *client, struct sl_object_key key, const void *value,
              uint64_t length_bytes, uint64_t timeout_ns, struct sl_error *why)
{
    if (!key_fine(key)) {
        return sl_fail(why, SL_ERR_INVALID, "key: 1 to %u bytes without NUL, not %u",
                       SL_KEY_BYTES_MAX, key.length);
    }
    if (value == NULL || length_bytes == 0 || length_bytes > SL_VALUE_BYTES_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "value: 1 to %ju bytes, not %ju",
                       (uintmax_t)SL_VALUE_BYTES_MAX, (uintmax_t)length_bytes);
    }
    /* The buffer is only read: the batch's type is shared with get. */
    union {
        const void *from;
        void *at;
    } borrowed = {.from = value};
    const struct sl_buffer buffer = {.at = borrowed.at, .length_bytes = length_bytes};
    sl_err code = SL_OK;
    sl_err err = sl_put_batch(client, &key, &buffer, 1, &code, timeout_ns, why);
    if (err != SL_OK || code == SL_OK) {
        return err;
    }
    switch (code) {
    case SL_ERR_BUSY:
        return sl_fail(why, code, "another writer is at this key");
    case SL_ERR_NO_SPACE:
        return sl_fail(why, code, "no room for %ju bytes within the deadline",
                       (uintmax_t)length_bytes);
    default:
        return sl_fail(why, code, "put: %s", sl_err_text(code));
    }
}
