/* client/lib/put.c - writing: reserve, fill in one pass with the digest, commit. A batch is one
 * reserve and one commit; keys that another writer has are retried until the deadline.
 *
 * Keys that exist are found in the index, without a message. Small values of a recurring size use
 * extents granted in advance, and need no reserve. */
#include "client/lib/put.h"
#include "client/lib/deferred.h"
#include "runtime/base/sl_backoff.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUSY_WAIT_NS_MIN (100 * SL_NS_PER_US)
#define BUSY_WAIT_NS_MAX (5 * SL_NS_PER_MS)
/* Upper bound of an item's encoded size without its key. */
#define WANT_FRAME_BYTES 64u
#define NAME_FRAME_BYTES 8u
#define ENVELOPE_BYTES   4096u
/* Batches from this size on are reserved until the deadline, not for reservation_ttl. */
#define LARGE_BATCH_BYTES (128 * SL_MIB)
#define LOOKED_UP_COUNT   64u
/* Items without heap memory: a put of one object allocates nothing. */
#define ITEMS_INLINE 4u

/* To find extents that were granted twice. */
struct put_claimed {
    uint64_t generation;
    uint32_t item;
};

struct put_few {
    struct put_item items[ITEMS_INLINE];
    struct sl_item_want wants[ITEMS_INLINE];
    struct sl_item_claim claims[ITEMS_INLINE];
    struct sl_item_named named[ITEMS_INLINE];
    uint32_t claim_items[ITEMS_INLINE];
    uint64_t lengths[ITEMS_INLINE];
};

const struct sl_iov *sl_put_pieces_of(const struct put *put, uint64_t source, struct sl_iov *one,
                                      uint32_t *count)
{
    if (put->items_given != NULL) {
        *count = put->items_given[source].count;
        return put->items_given[source].at;
    }
    *one = (struct sl_iov){.at = put->values[source].at,
                           .length_bytes = put->values[source].length_bytes};
    *count = 1;
    return one;
}

/* Returns the code of an item that cannot be requested; SL_ERR_BUSY: it is still to do. */
static sl_err put_checked(struct put *put, uint32_t source, uint64_t *length_bytes)
{
    struct sl_iov one;
    uint32_t count = 0;
    const struct sl_iov *pieces = sl_put_pieces_of(put, source, &one, &count);
    sl_err err = sl_put_check_names(put, source);
    if (err == SL_OK) {
        err = sl_pieces_measure(pieces, count, &put->pieces_room, length_bytes, put->why);
    }
    if (err == SL_OK) {
        err = sl_put_check_length(put, *length_bytes);
    }
    return err == SL_OK ? SL_ERR_BUSY : err;
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
        item->other_writes = grant->code == SL_ERR_BUSY;
        item->ref = grant->ref;
        item->generation = grant->generation;
        item->arena = grant->arena;
        item->offset_bytes = grant->offset_bytes;
    }
}

sl_err sl_put_call(struct put *put, struct sl_client_call *call)
{
    call->to = "registrar";
    call->deadline_ns = put->deadline_ns;
    call->context = put;
    sl_err err = sl_client_call(put->client, call, put->why);
    return err != SL_OK && call->unknown
               ? sl_fail(put->why, SL_ERR_BUSY, "the node was replaced meanwhile")
               : err;
}

static sl_err put_ask(struct put *put)
{
    uint64_t total_bytes = 0;
    for (uint32_t i = 0; i < put->item_count; i++) {
        uint64_t source = put->items[i].source;
        put->items[i].code = SL_ERR_PROTOCOL; /* kept if the answer has another count */
        struct sl_object_key key = put_key(put, source);
        struct sl_object_key bundle = put_bundle(put, source);
        put->wants[i] = (struct sl_item_want){
            .key = {.at = key.at, .length = key.length},
            .length_bytes = put_length(put, source),
            .bundle = {.at = bundle.at, .length = bundle.length},
        };
        total_bytes += put_length(put, source);
    }
    struct sl_client_call call = {.answered = grants_taken};
    call.msg.type = SL_MSG_RESERVE;
    call.msg.op_id = sl_client_op_id(put->client);
    call.msg.body.reserve.wait = !put->no_wait;
    call.msg.body.reserve.ttl_ns = put->ttl_ns;
    call.msg.body.reserve.draft = put->draft;
    if (put->ttl_ns == 0 && !put->draft && total_bytes >= LARGE_BATCH_BYTES) {
        call.msg.body.reserve.ttl_ns = sl_budget_ns(sl_clock_monotonic_ns(), put->deadline_ns);
    }
    if (put->terms != NULL) {
        call.msg.body.reserve.hard_pin = put->terms->hard_pin;
        call.msg.body.reserve.soft_pin_ns = put->terms->soft_pin_ns;
        call.msg.body.reserve.replace = put->terms->replace;
        call.msg.body.reserve.contributions.at = put->contributions;
        call.msg.body.reserve.contributions.count = put->terms->contribution_count;
    }
    call.msg.body.reserve.items.at = put->wants;
    call.msg.body.reserve.items.count = put->item_count;
    return sl_put_call(put, &call);
}

/* Of equal ones the first of the batch precedes: its value is kept. */
static int by_generation(const void *a, const void *b)
{
    const struct put_claimed *left = a, *right = b;
    if (left->generation != right->generation) {
        return left->generation < right->generation ? -1 : 1;
    }
    return left->item < right->item ? -1 : left->item > right->item;
}

/* The same key twice in a batch may be granted the same extent twice: only one of them may write
 * it, the others get SL_ERR_BUSY. Errors: SL_ERR_NO_MEMORY. */
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
    if (rising) { /* generations are unique and granted in order, so there are no duplicates */
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

/* Returns the grants. */
static void put_abandon(struct put *put)
{
    for (uint32_t i = 0; i < put->item_count; i++) {
        if (put->items[i].code == SL_OK) {
            sl_put_item_abandon(put, &put->items[i], SL_ERR_BUSY);
        }
    }
}

sl_err sl_put_reserve(struct put *put)
{
    sl_err err = put_ask(put);
    if (err != SL_OK) {
        return err;
    }
    err = put_single_out(put);
    if (err != SL_OK) {
        put_abandon(put);
        return err;
    }
    /* Offsets are those of the memory of the registrar that answered, and must not be written to
     * that of an earlier one. It may know us through another thread. Its grants are returned, or we
     * would block the keys until the reservations end. */
    err = sl_client_reattach(put->client, true, put->why);
    if (err == SL_OK && sl_client_life(put->client) != put->at->number) {
        err = sl_fail(put->why, SL_ERR_BUSY, "the node was replaced meanwhile");
    }
    if (err != SL_OK) {
        put_abandon(put);
    }
    return err;
}

void sl_put_item_abandon(struct put *put, struct put_item *item, sl_err code)
{
    const struct sl_item_claim claim = {.ref = item->ref, .generation = item->generation};
    sl_put_unpin(put, item);
    sl_client_orphan(put->client, &claim, 1);
    item->code = (uint64_t)code;
}

static void item_claim(struct put *put, uint32_t index, struct sl_digest digest)
{
    const struct put_item *item = &put->items[index];
    put->claim_items[put->claim_count] = index;
    put->claims[put->claim_count++] = (struct sl_item_claim){.ref = item->ref,
                                                             .generation = item->generation,
                                                             .digest_low = digest.low,
                                                             .digest_high = digest.high};
}

/* Copies host memory, and adds copies of device memory. */
static sl_err item_fill_later(struct put *put, struct put_item *item, unsigned char *to,
                              const struct sl_iov *pieces, uint32_t count)
{
    uint32_t before = put->copies.count, values_before = put->copies.value_count;
    sl_err err = sl_gpu_copies_value(&put->copies, to, put_length(put, item->source));
    if (err == SL_OK) {
        err = sl_pieces_gather_later(to, sl_client_arena(put->at, (uint32_t)item->arena), pieces,
                                     count, &put->pieces_room, &put->copies);
    }
    if (err != SL_OK) {
        sl_gpu_copies_cut(&put->copies, before, values_before);
        return err;
    }
    item->later = true;
    item->value = values_before;
    return SL_OK;
}

/* Copies host memory and computes its digest; device memory is copied later (item->later). */
static sl_err item_fill(struct put *put, struct put_item *item, struct sl_digest *digest)
{
    struct sl_iov one;
    uint32_t count = 0;
    uint64_t length_bytes = put_length(put, item->source);
    const struct sl_iov *pieces = sl_put_pieces_of(put, item->source, &one, &count);
    void *to = sl_client_bytes(put->client, put->at, (uint32_t)item->arena, item->offset_bytes,
                               length_bytes);
    if (to == NULL) {
        return SL_ERR_PROTOCOL;
    }
    if (!put->devices || !sl_pieces_on_device(pieces, count)) {
        return sl_pieces_gather(to, length_bytes, pieces, count, &put->pieces_room, digest);
    }
    return item_fill_later(put, item, to, pieces, count);
}

/* Executes the copies from devices and waits for them. */
static void put_fill_later(struct put *put)
{
    const struct sl_gpu_order order = {
        .to_host = true, .deadline_ns = put->deadline_ns, .event = put->event};
    sl_err err = sl_gpu_copies_run(&put->copies, &order, put->why);
    for (uint32_t i = 0; i < put->item_count; i++) {
        struct put_item *item = &put->items[i];
        if (item->code != SL_OK || !item->later) {
            continue;
        }
        if (err == SL_OK) {
            item_claim(put, i, put->copies.values[item->value].digest);
        } else if (put->copies.unfinished) {
            /* The GPU may still write there: neither claim nor pin is released before it has ended,
             * so that no other writer gets the extent. */
            const struct sl_client_deferral lending = {
                .at = put->at,
                .pin = item->pin,
                .claim = {.ref = item->ref, .generation = item->generation},
                .gpu = put->copies.unfinished_gpu,
                .unfinished_count = put->copies.unfinished_count};
            sl_client_extent_defer(put->client, &lending);
            item->pin = 0;
            item->code = (uint64_t)err;
        } else {
            sl_put_item_abandon(put, item, err);
        }
    }
}

/* Commits nothing of what was granted. */
static void put_cut_end(struct put *put)
{
    (void)sl_client_fail_truncated(put->client, put->why);
    put->claim_count = 0;
    for (uint32_t i = 0; i < put->item_count; i++) {
        if (put->items[i].code == SL_OK) {
            sl_put_item_abandon(put, &put->items[i], SL_ERR_CORRUPT);
        }
    }
}

void sl_put_fill(struct put *put)
{
    bool later = false;
    put->claim_count = 0;
    sl_gpu_copies_clear(&put->copies);
    if (sl_attachment_is_cut(put->at)) { /* the pins of grants may be invisible to the registrar */
        put_cut_end(put);
        return;
    }
    for (uint32_t i = 0; i < put->item_count; i++) {
        struct put_item *item = &put->items[i];
        struct sl_digest digest = {0};
        if (item->code != SL_OK) {
            continue;
        }
        sl_err err = item_fill(put, item, &digest);
        later = later || item->later;
        if (err != SL_OK) {
            sl_put_item_abandon(put, item, err);
        } else if (!item->later) {
            item_claim(put, i, digest);
        }
    }
    if (later) {
        put_fill_later(put);
    }
    if (sl_attachment_is_cut(put->at)) { /* the bytes may be invisible to other processes */
        put_cut_end(put);
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
    sl_put_prealloc_add(put, reply);
}

void sl_put_unanswered(struct put *put)
{
    for (uint32_t i = 0; i < put->claim_count; i++) {
        put->items[put->claim_items[i]].code = SL_ERR_PROTOCOL;
    }
}

static void put_name(struct put *put)
{
    for (uint32_t i = 0; i < put->claim_count; i++) {
        uint64_t source = put->items[put->claim_items[i]].source;
        struct sl_object_key key = put_key(put, source);
        put->named[i] = (struct sl_item_named){.key = {.at = key.at, .length = key.length},
                                               .length_bytes = put_length(put, source)};
    }
}

static sl_err put_commit(struct put *put)
{
    if (put->claim_count == 0) {
        return SL_OK;
    }
    sl_put_unanswered(put);
    struct sl_client_call call = {.answered = commit_taken};
    call.msg.type = SL_MSG_COMMIT;
    call.msg.body.commit.items.at = put->claims;
    call.msg.body.commit.items.count = put->claim_count;
    if (put->ahead) {
        put_name(put);
        call.msg.body.commit.named.at = put->named;
        call.msg.body.commit.named.count = put->claim_count;
    }
    sl_put_prealloc_request(put, &call.msg.body.commit);
    put->asked_ahead = call.msg.body.commit.ahead_count > 0;
    sl_err err = sl_put_call(put, &call);
    if (err != SL_OK) { /* perhaps it was committed: then the registrar refuses the abort */
        sl_client_orphan(put->client, put->claims, put->claim_count);
    }
    if (put->ahead) {
        sl_put_prealloc_end(put, err);
    }
    return err;
}

/* ---- keys that exist ---- */

/* Removes items from the round that exist according to the index: they are done. */
static void put_look_up(struct put *put)
{
    uint32_t kept = 0;
    for (uint32_t first = 0; first < put->item_count; first += LOOKED_UP_COUNT) {
        struct sl_key keys[LOOKED_UP_COUNT];
        sl_err found[LOOKED_UP_COUNT];
        uint32_t share = SL_MIN(put->item_count - first, LOOKED_UP_COUNT);
        for (uint32_t i = 0; i < share; i++) {
            struct sl_object_key key = put_key(put, put->items[first + i].source);
            keys[i] = (struct sl_key){.at = key.at, .length = key.length};
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
    if (put->terms != NULL || put->item_count > SL_PREALLOC_EXTENTS) {
        return;
    }
    for (uint32_t i = 0; i < put->item_count; i++) {
        uint64_t source = put->items[i].source;
        uint64_t space = sl_extent_space(put_length(put, source));
        if ((i > 0 && space != put->space_bytes) || space > SL_PREALLOC_BYTES_MAX ||
            put_bundle(put, source).length > 0) {
            put->space_bytes = 0;
            return;
        }
        put->space_bytes = space;
    }
}

/* ---- rounds ---- */

/* A round in memory that is held: one reserve (unless there are extents in advance), one fill, one
 * commit. */
static sl_err put_round_held(struct put *put)
{
    if (put->terms == NULL || !put->terms->replace) {
        put_look_up(put);
    }
    if (put->item_count == 0) {
        return SL_OK;
    }
    put_measure(put);
    put->ahead = sl_put_prealloc_take(put);
    sl_err err = put->ahead ? SL_OK : sl_put_reserve(put);
    if (err != SL_OK) {
        return err;
    }
    sl_put_fill(put);
    return put_commit(put);
}

static sl_err put_round(struct put *put)
{
    sl_err err = sl_client_hello(put->client, put->deadline_ns, put->why);
    if (err != SL_OK) {
        return err;
    }
    put->at = sl_attachment_acquire(put->client);
    sl_gpu_copies_clear(&put->copies);
    err = put_round_held(put);
    if (!put->copies
             .unfinished) { /* otherwise the hold stays permanently: the GPU may still write */
        sl_attachment_release(put->client, put->at);
    }
    return err;
}

/* Sets the codes of the round; true: some items are to be retried. */
static bool put_settle(struct put *put, sl_err result)
{
    bool again = false;
    for (uint32_t i = 0; i < put->item_count; i++) {
        uint64_t code = result != SL_OK ? (uint64_t)result : put->items[i].code;
        if (code == SL_ERR_EXISTS) { /* a registrar that cannot replace keeps the existing value */
            code = put->terms != NULL && put->terms->replace ? SL_ERR_UNSUPPORTED : SL_OK;
        } else if (code == SL_ERR_STALE && result == SL_OK) { /* its reservation ended */
            code = SL_ERR_BUSY;
        } else if (code >= SL_ERR_COUNT) {
            code = SL_ERR_PROTOCOL;
        }
        put->codes[put->items[i].source] = (sl_err)code;
        bool waits = !put->no_wait || !put->items[i].other_writes ||
                     (put->terms != NULL && put->terms->replace);
        again = again || (code == SL_ERR_BUSY && waits);
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
        if (left_ns <= wait_ns + SL_NS_PER_MS) { /* an answer could arrive too late */
            return SL_OK;                        /* codes tell which keys are busy */
        }
        sl_client_sleep(sl_backoff_next(&wait_ns, BUSY_WAIT_NS_MAX));
    }
}

uint32_t sl_put_share(const struct put *put, uint32_t first, uint32_t count)
{
    uint64_t bytes = ENVELOPE_BYTES;
    uint32_t taken = 0;
    for (uint32_t i = 0; put->terms != NULL && i < put->terms->contribution_count; i++) {
        bytes += NAME_FRAME_BYTES + put->contributions[i].length;
    }
    while (first + taken < count && taken < SL_BATCH_MAX) {
        bytes += WANT_FRAME_BYTES + SL_MIN(put_key(put, first + taken).length, SL_KEY_BYTES_MAX) +
                 SL_MIN(put_bundle(put, first + taken).length, SL_TERMS_NAME_BYTES_MAX);
        if (bytes > put->client->message_bytes_max && taken > 0) {
            break;
        }
        taken++;
    }
    return taken;
}

/* Size of the arrays of a round, which share one allocation. */
static size_t put_room(uint32_t count)
{
    return count *
           (sizeof(struct put_item) + sizeof(struct sl_item_want) + sizeof(struct sl_item_claim) +
            sizeof(struct sl_item_named) + sizeof(uint64_t) + sizeof(uint32_t));
}

static uint64_t *put_lay_out(struct put *put, void *room, uint32_t count)
{
    put->items = room;
    put->wants = (struct sl_item_want *)(put->items + count);
    put->claims = (struct sl_item_claim *)(put->wants + count);
    put->named = (struct sl_item_named *)(put->claims + count);
    uint64_t *lengths = (uint64_t *)(put->named + count);
    put->claim_items = (uint32_t *)(lengths + count);
    return lengths;
}

/* Executes any kind of put. */
static sl_err put_carry_out(struct put *put, const struct sl_put_options *terms, uint32_t count)
{
    sl_err err = sl_client_check_writable(put->client, put->why);
    if (err != SL_OK) {
        return err;
    }
    if (count > SL_BATCH_MAX) {
        return sl_fail(put->why, SL_ERR_INVALID, "put: %u keys, at most %d", count, SL_BATCH_MAX);
    }
    err = sl_put_take_terms(put, terms);
    if (err != SL_OK) {
        return err;
    }
    struct put_few few;
    uint64_t *lengths = few.lengths;
    void *room = NULL;
    if (count <= ITEMS_INLINE) {
        put->items = few.items;
        put->wants = few.wants;
        put->claims = few.claims;
        put->named = few.named;
        put->claim_items = few.claim_items;
    } else {
        room = malloc(put_room(count));
        if (room == NULL) {
            return sl_fail(put->why, SL_ERR_NO_MEMORY, "put: %u items", count);
        }
        lengths = put_lay_out(put, room, count);
    }
    put->lengths = lengths;
    put->devices = sl_gpu_present();
    for (uint32_t i = 0; i < count; i++) {
        put->codes[i] = put_checked(put, i, &lengths[i]);
    }
    for (uint32_t first = 0; first < count && err == SL_OK;) {
        uint32_t share = sl_put_share(put, first, count);
        err = put_rounds(put, first, share);
        first += share;
    }
    free(room);
    sl_pieces_room_free(&put->pieces_room);
    sl_gpu_copies_free(&put->copies);
    for (uint32_t i = 0; i < count && err != SL_OK; i++) { /* shares that were not started */
        put->codes[i] = put->codes[i] == SL_ERR_BUSY ? err : put->codes[i];
    }
    return err;
}

sl_err sl_put_batch(struct sl_client *client, const struct sl_object_key *keys,
                    const struct sl_buffer *values, uint32_t count, sl_err *codes,
                    uint64_t timeout_ns, struct sl_error *why)
{
    struct put put = {.client = client,
                      .keys = keys,
                      .values = values,
                      .codes = codes,
                      .why = why,
                      .deadline_ns = sl_client_deadline(client, timeout_ns)};
    return put_carry_out(&put, NULL, count);
}

sl_err sl_putv_after_event(struct sl_client *client, const struct sl_iov_list *items,
                           uint32_t count, const struct sl_put_options *terms, void *event,
                           sl_err *codes, uint64_t timeout_ns, struct sl_error *why)
{
    if (items == NULL && count > 0) {
        return sl_fail(why, SL_ERR_INVALID, "put: %u items at address NULL", count);
    }
    struct put put = {.client = client,
                      .items_given = items,
                      .codes = codes,
                      .why = why,
                      .event = event,
                      .deadline_ns = sl_client_deadline(client, timeout_ns)};
    return put_carry_out(&put, terms, count);
}

sl_err sl_putv(struct sl_client *client, const struct sl_iov_list *items, uint32_t count,
               const struct sl_put_options *terms, sl_err *codes, uint64_t timeout_ns,
               struct sl_error *why)
{
    return sl_putv_after_event(client, items, count, terms, NULL, codes, timeout_ns, why);
}

sl_err sl_put(struct sl_client *client, struct sl_object_key key, const void *value,
              uint64_t length_bytes, uint64_t timeout_ns, struct sl_error *why)
{
    /* The buffer is only read; its type is shared with get. */
    union {
        const void *from;
        void *at;
    } borrowed = {.from = value};
    const struct sl_buffer buffer = {.at = borrowed.at, .length_bytes = length_bytes};
    struct sl_error reason = {0};
    sl_err code = SL_OK;
    sl_err err = sl_put_batch(client, &key, &buffer, 1, &code, timeout_ns, &reason);
    if (err == SL_OK && code == SL_ERR_BUSY) {
        err = sl_fail(&reason, code, "another writer has this key");
    } else if (err == SL_OK && code == SL_ERR_NO_SPACE) {
        err = sl_fail(&reason, code, "no room for %" PRIu64 " bytes within the deadline",
                      length_bytes);
    } else if (err == SL_OK && code != SL_OK) {
        err = reason.code == code ? code : sl_fail(&reason, code, "put: %s", sl_err_text(code));
    }
    if (err != SL_OK && why != NULL) {
        *why = reason;
    }
    return err;
}
