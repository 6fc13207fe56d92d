/* client/client_put.c - writing: reserve, fill in one pass with the digest, commit. A batch is one
 * reserve and one commit; what another writer is at is tried again until the deadline. */
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
/* Items that need no heap: a put of one object allocates nothing. */
#define ITEMS_INLINE 4u

struct put_item {
    uint64_t source; /* index into the caller's arrays */
    uint64_t code, ref, generation, arena, offset_bytes;
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
    uint32_t *claim_items; /* claims[i] is for items[claim_items[i]] */
    uint32_t item_count, claim_count;
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

static void put_fill(struct put *put)
{
    struct sl_attachment *at = sl_client_attachment(put->client);
    put->claim_count = 0;
    for (uint32_t i = 0; i < put->item_count; i++) {
        struct put_item *item = &put->items[i];
        if (item->code != SL_OK) {
            continue;
        }
        const struct sl_buffer *value = &put->values[item->source];
        void *to = sl_client_bytes(put->client, at, (uint32_t)item->arena, item->offset_bytes,
                                   value->length_bytes);
        if (to == NULL) {
            const struct sl_item_claim claim = {.ref = item->ref, .generation = item->generation};
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

static sl_err put_commit(struct put *put)
{
    if (put->claim_count == 0) {
        return SL_OK;
    }
    for (uint32_t i = 0; i < put->claim_count; i++) {
        put->items[put->claim_items[i]].code = SL_ERR_PROTOCOL;
    }
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

/* One reserve, one fill, one commit for the items of this round. */
static sl_err put_round(struct put *put)
{
    sl_err err = sl_client_greet(put->client, put->deadline_ns, put->why);
    if (err != SL_OK) {
        return err;
    }
    const struct sl_attachment *before = sl_client_attachment(put->client);
    err = put_reserve(put);
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
    return count * (sizeof(struct put_item) + sizeof(struct sl_item_want) +
                    sizeof(struct sl_item_claim) + sizeof(uint32_t));
}

static void put_lay_out(struct put *put, void *room, uint32_t count)
{
    put->items = room;
    put->wants = (struct sl_item_want *)(put->items + count);
    put->claims = (struct sl_item_claim *)(put->wants + count);
    put->claim_items = (uint32_t *)(put->claims + count);
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
