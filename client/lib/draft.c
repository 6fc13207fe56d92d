/* client/lib/draft.c - drafts: space that is reserved, written by pieces and committed later.
 *
 * A draft is a reservation of this client. When its time has passed, the registrar frees its key,
 * and its bytes as soon as no pin of ours names them. So each write pins the extent first and then
 * checks that the reservation still exists. */
#include "client/lib/draft.h"
#include "client/lib/deferred.h"
#include "client/lib/put.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CLAIM_FRAME_BYTES 64u
#define ENVELOPE_BYTES    4096u

/* For a draft that ends while a GPU may still write to it. */
static void draft_defer(const struct sl_put_session *draft)
{
    struct sl_client_deferral lending = {
        .at = draft->at, .claim = {.ref = draft->ref, .generation = draft->generation}};
    for (int i = 0; i < SL_GPUS_MAX; i++) {
        lending.gpu = i;
        lending.unfinished_count =
            atomic_load_explicit(&draft->unfinished_counts[i], memory_order_relaxed);
        if (lending.unfinished_count != 0) {
            sl_client_extent_defer(draft->client, &lending);
        }
    }
}

static void draft_free(struct sl_put_session *draft)
{
    sl_attachment_release(draft->client, draft->at); /* the entry for the GPU also has a hold */
    sl_draft_bytes_free(draft);
    pthread_mutex_destroy(&draft->lock);
    free(draft);
}

/* ---- begin ---- */

static struct sl_put_session *draft_of(struct put *put, struct put_item *item)
{
    uint64_t length_bytes = put_length(put, item->source);
    void *to = sl_client_bytes(put->client, put->at, (uint32_t)item->arena, item->offset_bytes,
                               length_bytes);
    struct sl_put_session *draft = to == NULL ? NULL : calloc(1, sizeof *draft);
    if (draft == NULL) {
        sl_put_item_abandon(put, item, to == NULL ? SL_ERR_PROTOCOL : SL_ERR_NO_MEMORY);
        return NULL;
    }
    draft->client = put->client;
    draft->at = put->at;
    sl_attachment_hold(draft->at);
    draft->to = to;
    draft->arena = (uint32_t)item->arena;
    draft->length_bytes = length_bytes;
    draft->ref = item->ref;
    draft->generation = item->generation;
    pthread_mutex_init(&draft->lock, NULL);
    return draft;
}

/* Reserves space for the items of one message. */
static sl_err begin_share(struct put *put, struct sl_put_session **drafts)
{
    sl_err err = sl_client_hello(put->client, put->deadline_ns, put->why);
    if (err != SL_OK) {
        return err;
    }
    put->at = sl_attachment_acquire(put->client);
    err = sl_put_reserve(put);
    for (uint32_t i = 0; err == SL_OK && i < put->item_count; i++) {
        struct put_item *item = &put->items[i];
        if (item->code == SL_OK) {
            drafts[item->source] = draft_of(put, item);
        }
        put->codes[item->source] = sl_err_received(item->code);
    }
    sl_attachment_release(put->client, put->at);
    return err;
}

static sl_err begin_all(struct put *put, uint32_t count, struct sl_put_session **drafts)
{
    sl_err err = SL_OK;
    for (uint32_t first = 0; first < count && err == SL_OK;) {
        uint32_t share = sl_put_share(put, first, count);
        put->item_count = 0;
        for (uint32_t i = first; i < first + share; i++) {
            if (put->codes[i] == SL_ERR_INCOMPLETE) {
                put->items[put->item_count++] = (struct put_item){.source = i};
            }
        }
        if (put->item_count > 0) {
            do { /* again if the node was replaced meanwhile */
                err = begin_share(put, drafts);
            } while (err == SL_ERR_BUSY && sl_clock_monotonic_ns() < put->deadline_ns);
        }
        first += share;
    }
    return err;
}

sl_err sl_put_start(struct sl_client *client, const struct sl_object_key *keys,
                    const struct sl_object_key *bundles, const uint64_t *lengths_bytes,
                    uint32_t count, const struct sl_put_options *terms, uint64_t ttl_ns,
                    struct sl_put_session **drafts, sl_err *codes, uint64_t timeout_ns,
                    struct sl_error *why)
{
    sl_err err = sl_client_check_writable(client, why);
    if (err != SL_OK) {
        return err;
    }
    if (count > SL_BATCH_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "draft: %u keys, at most %d", count, SL_BATCH_MAX);
    }
    struct put put = {.client = client,
                      .keys = keys,
                      .bundles = bundles,
                      .lengths = lengths_bytes,
                      .draft = true,
                      .ttl_ns = ttl_ns,
                      .codes = codes,
                      .why = why,
                      .deadline_ns = sl_client_deadline(client, timeout_ns)};
    err = sl_put_take_terms(&put, terms);
    if (err != SL_OK) {
        return err;
    }
    for (uint32_t i = 0; i < count; i++) {
        drafts[i] = NULL;
        codes[i] = sl_put_check_names(&put, i);
        if (codes[i] == SL_OK) {
            codes[i] = sl_put_check_length(&put, lengths_bytes[i]);
        }
        if (codes[i] == SL_OK) {
            codes[i] = SL_ERR_INCOMPLETE; /* still to do */
        }
    }
    put.items = calloc(SL_MAX(count, 1), sizeof *put.items);
    put.wants = calloc(SL_MAX(count, 1), sizeof *put.wants);
    err = put.items == NULL || put.wants == NULL
              ? sl_fail(why, SL_ERR_NO_MEMORY, "draft: %u items", count)
              : begin_all(&put, count, drafts);
    for (uint32_t i = 0; i < count; i++) {
        codes[i] = codes[i] == SL_ERR_INCOMPLETE ? err : codes[i];
    }
    free(put.items);
    free(put.wants);
    return err;
}

/* ---- write ---- */

/* Pins the extent if it is still ours, so that no other client gets it before the release. */
static sl_err draft_pin(const struct sl_put_session *draft, sl_pin *pin, struct sl_error *why)
{
    sl_err err = sl_client_check_writable(draft->client, why);
    if (err != SL_OK) {
        return err;
    }
    err = sl_client_check_node(draft->client, why);
    if (err != SL_OK) {
        return err;
    }
    if (sl_client_life(draft->client) != draft->at->number) {
        return sl_fail(why, SL_ERR_STALE, "draft: the node was restarted");
    }
    /* 0 bytes: the pin does not count towards the limit of pinned bytes. */
    err = sl_pins_take_grant(draft->at->pins, draft->at->view, (sl_ref)draft->ref,
                             draft->generation, 0, pin);
    if (sl_attachment_is_cut(draft->at)) { /* the registrar may not see the pin */
        sl_pins_release(draft->at->pins, *pin);
        *pin = 0;
        return sl_client_fail_truncated(draft->client, why);
    }
    return err == SL_OK          ? SL_OK
           : err == SL_ERR_STALE ? sl_fail(why, err, "draft: its time to live has passed")
                                 : sl_fail(why, err, "draft: no pin is left, see client_pins_max");
}

static sl_err write_check(const struct sl_put_session *draft, const struct sl_iov *pieces,
                          uint32_t count, struct sl_error *why)
{
    if (pieces == NULL && count > 0) {
        return sl_fail(why, SL_ERR_INVALID, "pieces: %u at address NULL", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_iov *piece = &pieces[i];
        sl_err err = sl_piece_check(piece, why);
        if (err != SL_OK) {
            return err;
        }
        if (piece->length_bytes > 0 &&
            (piece->offset_bytes > draft->length_bytes ||
             piece->length_bytes > draft->length_bytes - piece->offset_bytes)) {
            return sl_fail(why, SL_ERR_INVALID,
                           "draft: %" PRIu64 " bytes at %" PRIu64 " are beyond its length, %" PRIu64
                           " bytes",
                           piece->length_bytes, piece->offset_bytes, draft->length_bytes);
        }
    }
    return SL_OK;
}

sl_err sl_put_write(struct sl_put_session *draft, const struct sl_iov *pieces, uint32_t count,
                    struct sl_error *why)
{
    sl_pin pin = 0;
    sl_err err = write_check(draft, pieces, count, why);
    if (err == SL_OK) {
        err = draft_pin(draft, &pin, why);
    }
    if (err != SL_OK) {
        return err;
    }
    struct sl_gpu_copies copies = {0};
    bool device = sl_gpu_present() && sl_pieces_on_device(pieces, count);
    err = sl_draft_bytes_expect(draft);
    if (err == SL_OK && device) {
        err = sl_pieces_gather_later(draft->to, sl_client_arena(draft->at, draft->arena), pieces,
                                     count, NULL, &copies);
    }
    if (err != SL_OK) {
        err = sl_fail(why, err, "draft: %u pieces", count);
    } else if (device) {
        const struct sl_gpu_order order = {.to_host = true,
                                           .deadline_ns = sl_client_deadline(draft->client, 0)};
        err = sl_gpu_copies_run(&copies, &order, why);
        if (copies.unfinished) { /* includes the pin, until the GPU has ended */
            const struct sl_client_deferral lending = {.at = draft->at,
                                                       .pin = pin,
                                                       .gpu = copies.unfinished_gpu,
                                                       .unfinished_count = copies.unfinished_count};
            sl_client_extent_defer(draft->client, &lending);
            pin = 0;
            atomic_store_explicit(&draft->unfinished_counts[copies.unfinished_gpu],
                                  copies.unfinished_count, memory_order_relaxed);
            atomic_store_explicit(&draft->unfinished, true, memory_order_relaxed);
        }
    }
    sl_gpu_copies_free(&copies);
    for (uint32_t i = 0; i < count && err == SL_OK; i++) {
        const struct sl_iov *piece = &pieces[i];
        if (piece->length_bytes > 0) {
            bool hashed = !device && sl_draft_bytes_copy(draft, piece);
            err = sl_draft_bytes_note(draft, piece->offset_bytes,
                                      piece->offset_bytes + piece->length_bytes, hashed);
            err = err == SL_OK ? SL_OK : sl_fail(why, err, "draft: a list of written ranges");
        }
    }
    if (err == SL_OK && sl_attachment_is_cut(draft->at)) {
        err = sl_client_fail_truncated(draft->client, why);
    }
    sl_pins_release(draft->at->pins, pin);
    if (err != SL_OK) {
        sl_draft_bytes_mark_unknown(draft, pieces, count);
    }
    return err;
}

/* ---- end ---- */

struct ending {
    struct sl_item_claim *claims;
    uint32_t *sources; /* claims[i] is of drafts[sources[i]] */
    sl_err *codes;
    uint32_t first, count; /* of the message */
};

static void ending_taken(void *context, const struct sl_msg *reply)
{
    const struct ending *ending = context;
    const struct sl_u64s *codes = &reply->body.commit_reply.codes;
    if (reply->code != SL_OK || codes->count != ending->count) {
        return;
    }
    for (uint32_t i = 0; i < ending->count; i++) {
        ending->codes[ending->sources[ending->first + i]] = sl_err_received(codes->at[i]);
    }
}

static sl_err ending_commit(struct sl_client *client, struct ending *ending, uint64_t deadline_ns,
                            struct sl_error *why)
{
    struct sl_client_call call = {
        .to = "registrar", .deadline_ns = deadline_ns, .answered = ending_taken, .context = ending};
    sl_err err = sl_client_hello(client, deadline_ns, why);
    for (uint32_t i = 0; i < ending->count; i++) {
        ending->codes[ending->sources[ending->first + i]] = SL_ERR_PROTOCOL;
    }
    if (err == SL_OK) {
        call.msg.type = SL_MSG_COMMIT;
        call.msg.body.commit.items.at = &ending->claims[ending->first];
        call.msg.body.commit.items.count = ending->count;
        err = sl_client_call(client, &call, why);
    }
    for (uint32_t i = 0; i < ending->count; i++) {
        sl_err *code = &ending->codes[ending->sources[ending->first + i]];
        *code = err != SL_OK ? err : *code;
        if (*code != SL_OK) { /* an abort of a committed claim is refused, so this is safe */
            sl_client_orphan(client, &ending->claims[ending->first + i], 1);
        }
    }
    return err;
}

/* Collects the claims that can be committed, with their digests. */
static uint32_t ending_claims(struct sl_put_session **drafts, uint32_t count,
                              const struct ending *ending)
{
    uint32_t claim_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct sl_put_session *draft = drafts[i];
        if (draft == NULL || draft->ending) { /* NULL, or given twice */
            drafts[i] = NULL;
            ending->codes[i] = SL_ERR_INVALID;
            continue;
        }
        struct sl_item_claim claim = {.ref = draft->ref, .generation = draft->generation};
        draft->ending = true;
        if (atomic_load_explicit(&draft->unfinished, memory_order_relaxed)) {
            draft_defer(draft);
            ending->codes[i] = SL_ERR_DEVICE;
            continue;
        }
        sl_pin pin = 0;
        ending->codes[i] = draft_pin(draft, &pin, NULL);
        if (ending->codes[i] != SL_OK) {
            sl_client_orphan(draft->client, &claim, 1);
            continue;
        }
        struct sl_digest digest = sl_draft_bytes_finish(draft);
        sl_pins_release(draft->at->pins, pin);
        if (sl_attachment_is_cut(draft->at)) {
            ending->codes[i] = SL_ERR_CORRUPT;
            sl_client_orphan(draft->client, &claim, 1);
            continue;
        }
        claim.digest_low = digest.low;
        claim.digest_high = digest.high;
        ending->sources[claim_count] = i;
        ending->claims[claim_count++] = claim;
    }
    return claim_count;
}

sl_err sl_put_end(struct sl_client *client, struct sl_put_session **drafts, uint32_t count,
                  sl_err *codes, uint64_t timeout_ns, struct sl_error *why)
{
    sl_err err = sl_client_check_writable(client, why);
    if (err != SL_OK) {
        return err;
    }
    if (count > SL_BATCH_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "draft: %u, at most %d", count, SL_BATCH_MAX);
    }
    uint64_t deadline_ns = sl_client_deadline(client, timeout_ns);
    uint64_t share_max =
        (client->message_bytes_max - SL_MIN(client->message_bytes_max - 1, ENVELOPE_BYTES)) /
        CLAIM_FRAME_BYTES;
    struct ending ending = {.codes = codes,
                            .claims = calloc(SL_MAX(count, 1), sizeof *ending.claims),
                            .sources = calloc(SL_MAX(count, 1), sizeof *ending.sources)};
    if (ending.claims == NULL || ending.sources == NULL) { /* the drafts stay unchanged */
        free(ending.claims);
        free(ending.sources);
        return sl_fail(why, SL_ERR_NO_MEMORY, "draft: %u items", count);
    }
    uint32_t claim_count = ending_claims(drafts, count, &ending);
    for (; ending.first < claim_count; ending.first += ending.count) {
        ending.count = (uint32_t)SL_MIN(claim_count - ending.first, SL_MAX(share_max, 1));
        sl_err failed = ending_commit(client, &ending, deadline_ns, why);
        err = err == SL_OK ? failed : err;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (drafts[i] != NULL) {
            draft_free(drafts[i]);
            drafts[i] = NULL;
        }
    }
    free(ending.claims);
    free(ending.sources);
    return err;
}

void sl_put_abort(struct sl_put_session **draft)
{
    struct sl_put_session *gone = draft == NULL ? NULL : *draft;
    if (gone == NULL) {
        return;
    }
    bool unfinished = atomic_load_explicit(&gone->unfinished, memory_order_relaxed);
    if (sl_client_is_ours(gone->client) && unfinished) {
        draft_defer(gone);
    } else if (sl_client_is_ours(gone->client)) {
        const struct sl_item_claim claim = {.ref = gone->ref, .generation = gone->generation};
        struct sl_msg msg = {.type = SL_MSG_ABORT};
        msg.body.abort.items.at = &claim;
        msg.body.abort.items.count = 1;
        /* Now, and again with the next call, whose answer is awaited. */
        (void)sl_client_send(gone->client, "registrar", &msg, SL_NS_PER_S);
        sl_client_orphan(gone->client, &claim, 1);
    }
    draft_free(gone);
    *draft = NULL;
}
