/* actors/transporter/pull/straight.c - pulls: BRING reads blocks of other nodes straight into pools
 * of this node's engines, without RESERVE and COMMIT.
 *
 * The requester's device blocks are ours until the answer, or until the answer to a FENCE of its
 * op. So the answer is sent when nothing is written any more: at the deadline, transfers are
 * cancelled first. A repeated request is not executed again after its answer. */
#include "actors/transporter/pull/pull.h"
#include "actors/transporter/regions/places.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define COPY_BYTES  (4 * SL_MIB) /* copied in a turn */
#define SENDERS_MAX 4u           /* the node's coordinator is one */

struct sender {
    char name[32];
    uint64_t seq; /* highest number of its pulls and their FENCEs */
};
struct tr_pulls {
    struct sl_fabric_place places[TR_BATCH_PLACES_MAX]; /* scratch of one fetch batch */
    struct sender senders[SENDERS_MAX];
    struct {
        sl_metric pulls, refused, cancelled, values, bytes, copied_bytes, again_bytes;
    } metric;
};

sl_err tr_pulls_init(struct transporter *self, struct sl_error *why)
{
    struct sl_metrics *page = self->env->metrics;
    if (self->pools == NULL) {
        return SL_OK;
    }
    struct tr_pulls *straight = calloc(1, sizeof(*straight));
    if (straight == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u places", TR_BATCH_PLACES_MAX);
    }
    self->straight = straight;
    straight->metric.pulls = sl_metric_define(page, "pulls");
    straight->metric.refused = sl_metric_define(page, "pulls_refused");
    straight->metric.cancelled = sl_metric_define(page, "pulls_cancelled");
    straight->metric.values = sl_metric_define(page, "pulled_values");
    straight->metric.bytes = sl_metric_define(page, "pulled_bytes");
    straight->metric.copied_bytes = sl_metric_define(page, "pull_copied_bytes");
    straight->metric.again_bytes = sl_metric_define(page, "pull_again_bytes");
    return SL_OK;
}

void tr_pulls_fini(struct transporter *self)
{
    free(self->straight);
    self->straight = NULL;
}

/* ---- repeated requests ---- */

/* Finds or adds a sender; NULL: too many. */
static struct sender *sender_of(struct tr_pulls *straight, struct sl_text name)
{
    for (uint32_t i = 0; i < SENDERS_MAX; i++) {
        struct sender *sender = &straight->senders[i];
        if (sender->name[0] == '\0' && name.length < sizeof(sender->name)) {
            memcpy(sender->name, name.at, name.length);
        }
        if (strlen(sender->name) == name.length &&
            memcmp(sender->name, name.at, name.length) == 0) {
            return sender;
        }
    }
    return NULL;
}

/* Accepts a new request. A sender's numbers grow, also over restarts, and its messages arrive in
 * order. So one that is not newer than the last, and not open, was answered or fenced before. */
static sl_err number_take(struct tr_pulls *straight, const struct sl_msg *msg, struct sl_error *why)
{
    struct sender *sender = sender_of(straight, msg->sender);
    if (sender == NULL) {
        return sl_fail(why, SL_ERR_LIMIT, "%u other processes pull", SENDERS_MAX);
    }
    if (sender->seq != 0 && (int64_t)(msg->seq - sender->seq) <= 0) {
        return sl_fail(why, SL_ERR_BUSY, "it was answered or fenced before");
    }
    sender->seq = msg->seq;
    return SL_OK;
}

/* ---- a request ---- */

/* Checks that each unit fits in one fetch batch. */
static sl_err groups_check(const struct sl_body_bring *body, const struct tr_items *items,
                           struct sl_error *why)
{
    uint64_t key = 0;
    for (uint32_t i = 0; i < body->groups.count; i++) {
        uint64_t end = key + body->groups.at[i].part_count, places = 0, reads = 0;
        for (; key < SL_MIN(end, body->keys.count); key++) {
            places += items->at[key].places_max;
            reads += items->at[key].read_count;
        }
        if (places > TR_BATCH_PLACES_MAX || reads > TR_KEYS_MAX) {
            return sl_fail(why, SL_ERR_LIMIT, "a block needs over %u memory ranges or %u reads",
                           TR_BATCH_PLACES_MAX, TR_KEYS_MAX);
        }
    }
    return key == body->keys.count
               ? SL_OK
               : sl_fail(why, SL_ERR_INVALID, "BRING.keys[%" PRIu64 "] belongs to no group", key);
}

static sl_err pull_begin(struct transporter *self, const struct sl_msg *msg, struct sl_error *why)
{
    const struct sl_body_bring *body = &msg->body.bring;
    struct tr_items items;
    sl_err err = tr_items_take(self, body, (uint32_t)body->keys.count, &items, why);
    err = err == SL_OK ? groups_check(body, &items, why) : err;
    err = err == SL_OK ? tr_fetch_begin(self, msg, &items, why) : err;
    tr_items_free(&items);
    return err;
}

void tr_pull(struct transporter *self, const struct sl_msg *msg)
{
    struct sl_error why = {0};
    if (self->straight == NULL) {
        sl_reply_fail(self->env, msg, SL_ERR_UNSUPPORTED, "fabric_pools is not set");
        return;
    }
    sl_err err = number_take(self->straight, msg, &why);
    if (err == SL_OK && !sl_index_view_ready(self->env, &self->view)) {
        err = sl_fail(&why, SL_ERR_BUSY, "the node is starting");
    }
    struct sl_env *env = self->env;
    sl_metric_add(env->metrics, self->straight->metric.pulls, 1);
    sl_trace_event(env->metrics, env->now_ns, msg->trace_id, "pull", msg->sender.at,
                   (uint32_t)msg->body.bring.keys.count);
    if (err == SL_OK) {
        err = pull_begin(self, msg, &why);
    }
    if (err != SL_OK) {
        sl_metric_add(env->metrics, self->straight->metric.refused, 1);
        sl_log_write(env->log, SL_LOG_DEBUG, msg->trace_id, "pull refused: %s", why.text);
        sl_reply_code(env, msg, err, &why);
    }
}

/* ---- reading ---- */

sl_err tr_pull_piece(struct transporter *self, struct tr_target *target, uint32_t *used,
                     struct sl_fabric_piece *piece)
{
    const struct tr_range all = {.length_bytes = piece->length_bytes};
    sl_err err = tr_slot_piece(self, &target->slot, all, self->straight->places,
                               TR_BATCH_PLACES_MAX, used, piece, NULL);
    target->device = piece->digest == NULL;
    target->look = TR_VERIFY_DUE;
    return err;
}

/* ---- copying ---- */

static void unit_pulled(struct transporter *self, struct tr_unit *unit, sl_err code)
{
    uint64_t bytes = 0, again_bytes = 0;
    for (uint32_t k = 0; k < unit->part_count; k++) {
        bytes += unit->parts[k].length_bytes; /* equals slot_bytes in a pull */
        again_bytes += (unit->parts[k].read_count - 1) * unit->parts[k].length_bytes;
    }
    if (code == SL_OK) {
        struct sl_metrics *page = self->env->metrics;
        sl_metric_add(page, self->metric.values_read, unit->part_count);
        sl_metric_add(page, self->straight->metric.values, unit->part_count);
        sl_metric_add(page, self->straight->metric.bytes, bytes);
        sl_metric_add(page, self->straight->metric.again_bytes, again_bytes);
    }
    tr_unit_end(self, unit, code);
}

static void copied_count(struct transporter *self, const struct tr_unit *unit, uint64_t bytes)
{
    struct tr_fetch *fetch = &self->fetches[unit->waits->fetch];
    sl_metric_add(self->env->metrics, self->straight->metric.copied_bytes, bytes);
    if (fetch->used && fetch->number == unit->waits->fetch_number) {
        fetch->copied_bytes += bytes;
    }
}

/* Copies parts of the unit to further ranks. False: it needs another turn; else it has ended. */
static bool unit_copy(struct transporter *self, struct tr_unit *unit, uint64_t *budget_bytes)
{
    while (unit->copied_parts < unit->part_count) {
        const struct tr_part *part = &unit->parts[unit->copied_parts];
        if (part->read_count > 1 || unit->copied_slots + 1 >= part->target_count) {
            unit->copied_parts++;
            unit->copied_slots = 0;
            continue;
        }
        if (*budget_bytes == 0) {
            return false;
        }
        struct tr_range range = {.offset_bytes = unit->copied_bytes,
                                 .length_bytes =
                                     SL_MIN(part->slot_bytes - unit->copied_bytes, *budget_bytes)};
        sl_err err = tr_slot_copy(self, &part->targets[0].slot,
                                  &part->targets[unit->copied_slots + 1].slot, range, NULL);
        if (err != SL_OK) { /* the registration of a rank has ended */
            unit_pulled(self, unit, err);
            return true;
        }
        copied_count(self, unit, range.length_bytes);
        *budget_bytes -= range.length_bytes;
        unit->copied_bytes += range.length_bytes;
        if (unit->copied_bytes == part->slot_bytes) {
            unit->copied_bytes = 0;
            unit->copied_slots++;
        }
    }
    unit_pulled(self, unit, SL_OK);
    return true;
}

uint64_t tr_pulls_step(struct transporter *self)
{
    uint64_t budget_bytes = COPY_BYTES;
    bool more = false;
    for (uint32_t i = 0; self->straight != NULL && i < self->fetch_batch_max; i++) {
        struct tr_fetch_batch *fetch_batch = &self->fetch_batches[i];
        for (uint32_t u = 0; fetch_batch->phase == TR_COPY && u < fetch_batch->unit_count; u++) {
            if (!unit_copy(self, fetch_batch->units[u], &budget_bytes)) {
                more = true;
                break;
            }
            fetch_batch->units[u] = NULL;
        }
        if (fetch_batch->phase == TR_COPY) {
            tr_fetch_batch_compact(fetch_batch);
        }
        if (fetch_batch->phase == TR_COPY && fetch_batch->unit_count == 0) {
            tr_fetch_batch_end(self, fetch_batch);
        }
    }
    return more ? 0 : SL_NEVER_NS;
}

/* ---- ending ---- */

static void fetch_batch_drop(struct transporter *self, struct tr_fetch_batch *fetch_batch)
{
    for (uint32_t i = 0; i < fetch_batch->unit_count; i++) {
        tr_unit_end(self, fetch_batch->units[i], fetch_batch->units[i]->cancelled);
    }
    tr_fetch_batch_end(self, fetch_batch);
}

uint32_t tr_pull_cancel(struct transporter *self, struct tr_fetch *fetch, sl_err code, uint64_t bit)
{
    uint64_t number = fetch->number; /* the fetch may be freed below */
    uint32_t reading = 0;
    SL_ASSERT(fetch->pull && code != SL_OK);
    sl_metric_add(self->env->metrics, self->straight->metric.cancelled, fetch->cancelled ? 0 : 1);
    fetch->cancelled = true;
    for (uint32_t i = 0; i < TR_UNIT_HEADS; i++) {
        for (struct tr_unit *unit = self->unit_heads[i]; unit != NULL; unit = unit->hash_next) {
            if (unit->pull && unit->fetch_number == number && unit->cancelled == SL_OK) {
                unit->cancelled = code;
            }
        }
    }
    tr_queue_expire(self);
    for (uint32_t i = 0; i < self->fetch_batch_max; i++) {
        struct tr_fetch_batch *fetch_batch = &self->fetch_batches[i];
        if (fetch_batch->phase == TR_FREE || !fetch_batch->pull ||
            fetch_batch->units[0]->fetch_number != number) {
            continue;
        }
        if (fetch_batch->phase == TR_READ) { /* ends when the fabric reports it */
            reading++;
            fetch_batch->fences |= bit;
            (void)sl_fabric_cancel(self->fabric, fetch_batch->cookie);
            continue;
        }
        if (fetch_batch->phase == TR_PIN) {
            tr_question_end(self, &fetch_batch->question);
        }
        fetch_batch_drop(self, fetch_batch);
    }
    self->env->ops->wake_at(self->env, 0);
    return reading;
}

uint32_t tr_pulls_fence(struct transporter *self, const struct sl_msg *msg, uint64_t bit)
{
    uint32_t reading = 0;
    if (self->straight == NULL || msg->body.fence.items.count > 0) {
        return 0;
    }
    struct sender *sender = sender_of(self->straight, msg->sender);
    if (sender != NULL && (sender->seq == 0 || (int64_t)(msg->seq - sender->seq) > 0)) {
        sender->seq = msg->seq;
    }
    for (uint32_t i = 0; i < TR_FETCHES_MAX; i++) {
        struct tr_fetch *fetch = &self->fetches[i];
        if (fetch->used && fetch->pull && tr_fence_covers(msg, &fetch->back)) {
            reading += tr_pull_cancel(self, fetch, SL_ERR_CANCELLED, bit);
        }
    }
    return reading;
}

/* Whether part of the unit is read into the engine's pools. */
static bool unit_is_for(const struct tr_unit *unit, uint64_t engine_id)
{
    for (uint32_t k = 0; unit->pull && k < unit->part_count; k++) {
        for (uint32_t i = 0; i < unit->parts[k].target_count; i++) {
            if (unit->parts[k].targets[i].slot.engine_id == engine_id) {
                return true;
            }
        }
    }
    return false;
}

void tr_pulls_engine_ends(struct transporter *self, uint64_t engine_id)
{
    bool named[TR_FETCHES_MAX] = {false};
    for (uint32_t i = 0; self->straight != NULL && self->fetch_open > 0 && i < TR_UNIT_HEADS; i++) {
        for (const struct tr_unit *unit = self->unit_heads[i]; unit != NULL;
             unit = unit->hash_next) {
            if (unit_is_for(unit, engine_id)) {
                named[unit->waits->fetch] = true;
            }
        }
    }
    for (uint32_t i = 0; i < TR_FETCHES_MAX; i++) {
        if (named[i] && self->fetches[i].used && self->fetches[i].pull) {
            (void)tr_pull_cancel(self, &self->fetches[i], SL_ERR_NOT_FOUND, 0);
        }
    }
}
