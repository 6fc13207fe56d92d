/* actors/transporter/handover/read.c - reads the pieces of one message of a loan into the first
 * slot of each part, and compares digests. It then copies them to other ranks of the part and
 * reports to BRING's sender, in the order of messages; prefill is answered when the sender
 * acknowledges.
 *
 * The fabric checks digests of host memory on the way. Device memory is digested by the swapper of
 * its rank (regions/digests.h). If prefill is on this node, the CPU copies, a slice in a turn. */
#include "actors/transporter/handover/internal.h"
#include "actors/transporter/regions/digests.h"
#include "runtime/base/sl_backoff.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SLICE_BYTES  (4 * SL_MIB) /* copied in a turn */
#define TRIES_MAX    4u
#define AGAIN_NS_MAX (100 * SL_NS_PER_MS)

static struct ho_take *take_of(struct handover *ho, const struct ho_read *read)
{
    return &ho->takes[read->take];
}

/* The part of the piece. */
static const struct tr_item *item_of(struct handover *ho, const struct ho_read *read,
                                     uint32_t piece)
{
    return &take_of(ho, read)->items.at[read->pieces[piece].part];
}

static const struct tr_slot *slot_of(struct handover *ho, const struct ho_read *read,
                                     uint32_t piece)
{
    return &take_of(ho, read)->items.slots[item_of(ho, read, piece)->first];
}

static void read_free(struct handover *ho, struct ho_read *read)
{
    struct ho_take *take = take_of(ho, read);
    if (read->call_seq != 0) {
        sl_calls_drop(ho->self->calls, read->call_seq);
    }
    free(read->pieces);
    free(read->states);
    *read = (struct ho_read){0};
    ho->reads_open--;
    take->reads_open--;
    ho_due(ho, 0); /* later messages wait for it */
}

void ho_reads_fini(struct handover *ho)
{
    for (uint32_t i = 0; ho->reads != NULL && i < HO_READS_MAX; i++) {
        free(ho->reads[i].pieces);
        free(ho->reads[i].states);
    }
    free(ho->reads);
    ho->reads = NULL;
}

struct ho_read *ho_read_of(struct handover *ho, const struct ho_take *take, uint32_t number)
{
    for (uint32_t i = 0; take->reads_open > 0 && i < HO_READS_MAX; i++) {
        struct ho_read *read = &ho->reads[i];
        if (read->phase != READ_FREE && take_of(ho, read) == take && read->number == number) {
            return read;
        }
    }
    return NULL;
}

sl_err ho_read_begin(struct handover *ho, struct ho_take *take, const struct sl_msg *msg,
                     struct sl_error *why)
{
    const struct sl_body_peer_lend *body = &msg->body.peer_lend;
    uint32_t count = (uint32_t)body->pieces.count, index = 0;
    struct sl_item_arrived *pieces = calloc(SL_MAX(count, 1u), sizeof(*pieces));
    uint8_t *states = calloc(SL_MAX(count, 1u), 1);
    if (pieces == NULL || states == NULL) {
        free(pieces);
        free(states);
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u pieces", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        pieces[i] = body->pieces.at[i];
    }
    while (ho->reads[index].phase != READ_FREE) {
        index++;
    }
    ho->reads[index] = (struct ho_read){
        .phase = take->local ? READ_COPY : READ_POST,
        .last = body->last,
        .take = (uint32_t)(take - ho->takes),
        .number = (uint32_t)body->number,
        .seq = msg->seq,
        .trace_id = msg->trace_id,
        .order = ho->next_order++,
        .piece_count = count,
        .pieces = pieces,
        .states = states,
    };
    ho->reads_open++;
    take->reads_open++;
    ho_due(ho, 0);
    return SL_OK;
}

/* ---- end of a read ---- */

static void lender_answer(struct handover *ho, const struct ho_read *read, sl_err code,
                          const char *text)
{
    const struct ho_take *take = take_of(ho, read);
    if (take->local) {
        ho_loan_answered(ho, NULL, take->loan, read->number, code, text);
        return;
    }
    struct sl_msg reply = {.code = code, .op_id = take->loan, .trace_id = read->trace_id};
    reply.body.peer_lend_reply.number = read->number;
    if (code != SL_OK) {
        reply.text = sl_text_of(text[0] != '\0' ? text : sl_err_text(code));
    }
    tr_peer_answer(ho->self, &ho->self->peers[take->peer], SL_MSG_PEER_LEND, read->seq, &reply);
}

void ho_reads_stop(struct handover *ho, const struct ho_take *take)
{
    for (uint32_t i = 0; take->reads_open > 0 && i < HO_READS_MAX; i++) {
        struct ho_read *read = &ho->reads[i];
        if (read->phase == READ_FREE || take_of(ho, read) != take) {
            continue;
        }
        lender_answer(ho, read, ho_over_code(take->code), take->text);
        if (read->phase == READ_MOVES) { /* ends when the fabric reports it */
            (void)sl_fabric_cancel(ho->self->fabric, read->cookie);
            ho->self->env->ops->wake_at(ho->self->env, 0);
        } else {
            read_free(ho, read);
        }
    }
}

/* ---- report ---- */

static void read_report(struct handover *ho, struct ho_read *read)
{
    struct ho_take *take = take_of(ho, read);
    struct sl_msg msg = {.type = SL_MSG_LANDED, .trace_id = take->back.trace_id};
    struct sl_body_landed *body = &msg.body.landed;
    read->phase = READ_TURN;
    for (uint32_t i = 0; take->reads_open > 1 && i < HO_READS_MAX; i++) {
        const struct ho_read *other = &ho->reads[i];
        if (other->phase != READ_FREE && other->take == read->take &&
            other->number < read->number) {
            return;
        }
    }
    read->phase = READ_TELL;
    body->handover = take->ticket.number;
    body->state = read->last ? 2 : 1;
    body->from = sl_text_of(take->local ? ho->self->node : ho->self->peers[take->peer].name);
    body->pieces.at = read->pieces;
    body->pieces.count = read->piece_count;
    sl_err err =
        sl_calls_send(ho->self->calls, take->back.to, &msg, take->back.deadline_ns,
                      tr_cookie(TR_CALL_READ, (uint32_t)(read - ho->reads)), &read->call_seq);
    if (err == SL_ERR_LIMIT) { /* the table of calls is full: retry */
        read->phase = READ_TURN;
        ho_due(ho, ho_now(ho) + HO_SOON_NS);
    } else if (err != SL_OK) {
        ho_take_end(ho, take, err, "the sender of BRING cannot be notified");
    }
}

static void read_acknowledged(struct handover *ho, struct ho_read *read, const struct sl_msg *reply)
{
    struct ho_take *take = take_of(ho, read);
    bool last = read->last;
    uint64_t bytes = 0;
    if (reply == NULL || reply->code != SL_OK) {
        ho_take_end(ho, take, reply != NULL ? reply->code : SL_ERR_TIMEOUT,
                    "the sender of BRING did not acknowledge it");
        return;
    }
    for (uint32_t i = 0; i < read->piece_count; i++) {
        bytes += read->pieces[i].length_bytes;
    }
    sl_metric_add(ho->self->env->metrics, ho->metric.landed_bytes, bytes);
    lender_answer(ho, read, SL_OK, "");
    read_free(ho, read);
    if (last) {
        ho_take_end(ho, take, SL_OK, "");
    }
}

/* ---- device memory ---- */

/* Lists the pieces in device memory; owner: index of the piece. A swapper digests whole layers, so
 * a piece consists of whole layers of its part. */
static void looks_make(struct handover *ho, const struct ho_read *read, struct tr_verify_batch *out)
{
    out->count = 0;
    out->trace_id = read->trace_id;
    out->deadline_ns = take_of(ho, read)->back.deadline_ns;
    out->cookie = tr_cookie(TR_CALL_READ, (uint32_t)(read - ho->reads));
    for (uint32_t i = 0; i < read->piece_count; i++) {
        const struct sl_item_arrived *piece = &read->pieces[i];
        const struct tr_item *item = item_of(ho, read, i);
        if (item->device) {
            out->at[out->count++] =
                (struct tr_verify){.slot = slot_of(ho, read, i),
                                   .range = ho_range(piece),
                                   .length_bytes = item->length_bytes,
                                   .want = {.low = piece->digest_low, .high = piece->digest_high},
                                   .state = &read->states[i],
                                   .owner = i};
        }
    }
}

/* Retries if a queue was full, else ends the take. */
static void not_checked(struct handover *ho, struct ho_read *read, sl_err code, const char *text)
{
    if (code == SL_ERR_BUSY || code == SL_ERR_LIMIT) {
        read->again_ns = ho_now(ho) + HO_SOON_NS;
        ho_due(ho, read->again_ns);
    } else {
        ho_take_end(ho, take_of(ho, read), code, text);
    }
}

/* Asks swappers for unchecked pieces, or reports the message if there are none. */
static void read_check(struct handover *ho, struct ho_read *read)
{
    struct tr_verify_batch looks;
    struct sl_error why = {0};
    bool asked = false;
    looks_make(ho, read, &looks);
    sl_err err = tr_verify_ask(ho->self, &looks, &read->call_seq, &asked, &why);
    if (!asked) {
        read_report(ho, read);
        return;
    }
    read->phase = READ_SWAPPER;
    if (err != SL_OK) {
        not_checked(ho, read, err, why.text);
    }
}

void tr_read_answered(struct transporter *self, uint32_t index, const struct sl_msg *reply)
{
    struct handover *ho = self->handover;
    struct ho_read *read = &ho->reads[index];
    struct tr_verify_batch looks;
    struct sl_error why = {0};
    read->call_seq = 0;
    if (read->phase == READ_TELL) {
        read_acknowledged(ho, read, reply);
        return;
    }
    looks_make(ho, read, &looks);
    const struct tr_verify *wrong = tr_verify_answered(&looks, reply);
    if (wrong == NULL) {
        read_check(ho, read);
    } else if (reply == NULL || reply->code != SL_OK) {
        (void)sl_fail(&why, wrong->code, "swapper.%u has not checked it: %.160s", wrong->slot->rank,
                      reply != NULL && reply->text.length > 0 ? reply->text.at
                                                              : sl_err_text(wrong->code));
        not_checked(ho, read, wrong->code, why.text);
    } else {
        bool corrupt = wrong->code == SL_ERR_CORRUPT;
        sl_metric_add(self->env->metrics, self->metric.digests_bad, corrupt);
        (void)sl_fail(&why, wrong->code,
                      "part %" PRIu64 ": %" PRIu64 " bytes at %" PRIu64 " in device memory: %s",
                      read->pieces[wrong->owner].part, wrong->range.length_bytes,
                      wrong->range.offset_bytes,
                      corrupt ? "they do not match their digest" : "its swapper sent no digest");
        ho_take_end(ho, take_of(ho, read), wrong->code, why.text);
    }
}

/* ---- reading ---- */

/* Makes pieces for one transfer, starting at piece_at; *count: their number. */
static sl_err pieces_make(struct handover *ho, struct ho_read *read, uint32_t *count,
                          struct sl_error *why)
{
    uint32_t places = 0;
    *count = 0;
    read->post_end = read->piece_at;
    for (; read->post_end < read->piece_count && HO_PLACES_MAX - places >= SL_FABRIC_PLACES_MAX;
         read->post_end++) {
        const struct sl_item_arrived *piece = &read->pieces[read->post_end];
        struct sl_fabric_piece *out = &ho->pieces[*count];
        ho->digests[*count] =
            (struct sl_digest){.low = piece->digest_low, .high = piece->digest_high};
        *out = (struct sl_fabric_piece){.key = take_of(ho, read)->parts[piece->part].key,
                                        .remote_offset_bytes = piece->part_offset_bytes,
                                        .length_bytes = piece->length_bytes,
                                        .digest = &ho->digests[*count]};
        sl_err err = tr_slot_piece(ho->self, slot_of(ho, read, read->post_end), ho_range(piece),
                                   ho->places, HO_PLACES_MAX, &places, out, why);
        if (err != SL_OK) {
            return err;
        }
        ++*count;
    }
    return SL_OK;
}

static void read_post(struct handover *ho, struct ho_read *read)
{
    struct transporter *self = ho->self;
    struct ho_take *take = take_of(ho, read);
    struct sl_error why = {0};
    uint32_t count = 0;
    sl_err err = pieces_make(ho, read, &count, &why);
    if (err == SL_OK && count == 0) { /* all pieces were read */
        read->phase = READ_COPY;
        read->piece_at = 0;
        read->copy_to = 1;
        ho_due(ho, 0);
        return;
    }
    const struct sl_fabric_transfer transfer = {
        .peer = self->peers[take->peer].fabric_peer,
        .pieces = ho->pieces,
        .piece_count = count,
        .deadline_ns = take->back.deadline_ns,
        .cookie = ho->next_cookie++ | HO_COOKIE,
    };
    err = err == SL_OK ? sl_fabric_post(self->fabric, &transfer, &why) : err;
    if (err == SL_OK) {
        read->phase = READ_MOVES;
        read->cookie = transfer.cookie;
        self->env->ops->wake_at(self->env, 0);
    } else if (err == SL_ERR_LIMIT || err == SL_ERR_BUSY) {
        ho->full_ns = ho_now(ho) + HO_SOON_NS;
        ho_due(ho, ho->full_ns);
    } else {
        ho_take_end(ho, take, err, why.text);
    }
}

static struct ho_read *read_moving(struct handover *ho, uint64_t cookie)
{
    for (uint32_t i = 0; i < HO_READS_MAX; i++) {
        if (ho->reads[i].phase == READ_MOVES && ho->reads[i].cookie == cookie) {
            return &ho->reads[i];
        }
    }
    return NULL;
}

/* A broken link may recover. */
static void read_failed(struct handover *ho, struct ho_read *read, sl_err code)
{
    struct ho_take *take = take_of(ho, read);
    bool link = code == SL_ERR_PEER_DIED || code == SL_ERR_UNREACHABLE;
    sl_metric_add(ho->self->env->metrics, ho->self->metric.digests_bad,
                  code == SL_ERR_CORRUPT ? 1 : 0);
    read->phase = READ_POST;
    if (link && ++read->tries < TRIES_MAX) {
        tr_peer_failed(ho->self, &ho->self->peers[take->peer]);
        read->again_ns = ho_now(ho) + sl_backoff_ns(HO_SOON_NS, AGAIN_NS_MAX, read->tries,
                                                    ho->self->env->ops->random_u64(ho->self->env));
        ho_due(ho, read->again_ns);
        return;
    }
    ho_take_end(ho, take, code,
                code == SL_ERR_CORRUPT      ? "bytes that were read do not match their digest"
                : code == SL_ERR_PERMISSION ? "the right to read has ended"
                                            : "the blocks could not be read");
}

bool tr_take_read(struct transporter *self, const struct sl_fabric_done *done)
{
    struct handover *ho = self->handover;
    if (ho == NULL || (done->cookie & HO_COOKIE) == 0) {
        return false;
    }
    struct ho_read *read = read_moving(ho, done->cookie);
    SL_ASSERT(read != NULL); /* a read is kept until its transfer ends */
    struct ho_take *take = take_of(ho, read);
    struct tr_peer *peer = &self->peers[take->peer];
    peer->read_bytes += done->moved_bytes;
    ho->full_ns = 0; /* the fabric has room again */
    if (take->state == HO_ENDING) {
        read_free(ho, read);
        ho_take_settle(ho, take);
    } else if (done->code == SL_OK) {
        sl_peer_health_worked(&peer->health);
        read->phase = READ_POST;
        read->piece_at = read->post_end;
        read->tries = 0;
        read_post(ho, read);
    } else {
        read_failed(ho, read, done->code);
    }
    ho_due(ho, 0);
    return true;
}

/* ---- copying ---- */

/* Prefill on this node: checks the digest of the piece that was copied to its first slot. */
static sl_err piece_right(struct handover *ho, const struct ho_read *read, struct sl_error *why)
{
    const struct sl_item_arrived *piece = &read->pieces[read->piece_at];
    const struct sl_digest want = {.low = piece->digest_low, .high = piece->digest_high};
    if (!sl_digest_equal(sl_digest_finish(&ho->digest), want)) {
        sl_metric_add(ho->self->env->metrics, ho->self->metric.digests_bad, 1);
        return sl_fail(why, SL_ERR_CORRUPT,
                       "part %" PRIu64 ": %" PRIu64 " bytes at %" PRIu64
                       " do not match their digest",
                       piece->part, piece->length_bytes, piece->part_offset_bytes);
    }
    return SL_OK;
}

/* Copies the next bytes of the piece to the rank whose turn it is. */
static sl_err slice_copy(struct handover *ho, struct ho_read *read, uint64_t bytes_max,
                         uint64_t *copied_bytes, struct sl_error *why)
{
    struct ho_take *take = take_of(ho, read);
    const struct sl_item_arrived *piece = &read->pieces[read->piece_at];
    const struct tr_slot *first = slot_of(ho, read, read->piece_at);
    const struct tr_range range = {.offset_bytes = piece->part_offset_bytes + read->byte_at,
                                   .length_bytes =
                                       SL_MIN(piece->length_bytes - read->byte_at, bytes_max)};
    const struct tr_slot *from =
        read->copy_to > 0 ? first : ho_loan_slot(ho, take->loan, piece->part);
    if (from == NULL) {
        return sl_fail(why, SL_ERR_STALE, "the loan has ended");
    }
    if (read->copy_to == 0 && read->byte_at == 0) {
        sl_digest_start(&ho->digest);
    }
    sl_err err = tr_slot_copy(ho->self, from, first + read->copy_to, range, why);
    if (err == SL_OK && read->copy_to == 0) {
        err = tr_slot_digest(ho->self, first, range, &ho->digest, why);
    }
    if (err == SL_OK) {
        take->copied_bytes += range.length_bytes;
        sl_metric_add(ho->self->env->metrics, ho->metric.copied_bytes, range.length_bytes);
        read->byte_at += range.length_bytes;
        *copied_bytes = range.length_bytes;
    }
    return err;
}

/* Continues copying. Gives the number of bytes copied; 0: it is complete, or its take has ended. */
static uint64_t read_copy(struct handover *ho, struct ho_read *read, uint64_t bytes_max)
{
    struct ho_take *take = take_of(ho, read);
    struct sl_error why = {0};
    uint64_t copied_bytes = 0;
    uint32_t first = take->local ? 0 : 1; /* index of the first rank to copy to */
    while (read->piece_at < read->piece_count &&
           read->copy_to >= item_of(ho, read, read->piece_at)->count) {
        read->piece_at++;
        read->copy_to = first;
    }
    if (read->piece_at == read->piece_count) {
        read_check(ho, read);
        return 0;
    }
    sl_err err = slice_copy(ho, read, bytes_max, &copied_bytes, &why);
    if (err == SL_OK && read->byte_at == read->pieces[read->piece_at].length_bytes) {
        err = read->copy_to == 0 ? piece_right(ho, read, &why) : SL_OK;
        read->byte_at = 0;
        read->copy_to++;
    }
    if (err != SL_OK) {
        ho_take_end(ho, take, err, why.text);
        return 0;
    }
    return copied_bytes;
}

static struct ho_read *copy_first(struct handover *ho)
{
    struct ho_read *first = NULL;
    for (uint32_t i = 0; ho->reads_open > 0 && i < HO_READS_MAX; i++) {
        struct ho_read *read = &ho->reads[i];
        if (read->phase == READ_COPY && (first == NULL || read->order < first->order)) {
            first = read;
        }
    }
    return first;
}

void ho_reads_step(struct handover *ho, uint64_t now_ns)
{
    uint64_t left = SLICE_BYTES;
    struct ho_read *read = NULL;
    for (uint32_t i = 0; ho->reads_open > 0 && i < HO_READS_MAX; i++) {
        read = &ho->reads[i];
        bool waits =
            read->phase == READ_POST || (read->phase == READ_SWAPPER && read->again_ns != 0);
        uint64_t again_ns =
            read->phase == READ_POST ? SL_MAX(read->again_ns, ho->full_ns) : read->again_ns;
        if (waits && again_ns > now_ns) {
            ho_due(ho, again_ns);
        } else if (waits) {
            read->again_ns = 0;
            (read->phase == READ_POST ? read_post : read_check)(ho, read);
        } else if (read->phase == READ_TURN) {
            read_report(ho, read);
        }
    }
    while (left > 0 && (read = copy_first(ho)) != NULL) {
        uint64_t copied_bytes = read_copy(ho, read, left);
        left -= SL_MIN(SL_MAX(copied_bytes, SL_PAGE_BYTES), left);
    }
    if (read != NULL) {
        ho_due(ho, 0);
    }
}
