/* actors/coordinator/ahead.c - extents that were granted to this coordinator ahead of use, so that a
 * small store costs the registrar one round trip: PUBLISH instead of RESERVE and COMMIT.
 *
 * Kept by the rank that writes them and by the size of the part. A class is asked for when it was
 * wanted a moment ago, and is filled again by the answer to each PUBLISH. A grant is for one op
 * alone: no COPY of an earlier op can be on its way to it. It ends as every reservation does, by its
 * deadline, by our death, or when the registrar needs the memory: the swapper is fenced then. So an
 * op that finds its grant gone has stored nothing, and goes the long way.
 *
 * What no op has taken by half its time goes back in an ABORT. Nobody was told of it, so nobody has
 * to be fenced: a swapper that is slow to acknowledge a fence is killed. */
#include "actors/coordinator/internal.h"

#include <stdio.h>
#include <string.h>

/* Larger ops cost so much by their bytes that a round trip is nothing beside it. */
#define AHEAD_PARTS_MAX 8u
#define AHEAD_BYTES_MAX (512 * SL_KIB)
/* Of a class, unless two ops need more. */
#define HELD_BYTES_MAX (2 * SL_MIB)
/* A size that was stored this long ago is stored again: more is asked for. */
#define WARM_NS (500 * SL_NS_PER_MS)
/* The registrar gave none: it has its bounds, or memory is short. */
#define REFUSED_NS (1 * SL_NS_PER_S)

static uint32_t class_number(const struct coordinator *self, const struct co_ahead *class)
{
    return (uint32_t)(class - self->ahead);
}

static struct co_ahead *class_find(struct coordinator *self, uint32_t rank, uint64_t length_bytes)
{
    for (uint32_t i = 0; i < CO_AHEAD_CLASSES; i++) {
        struct co_ahead *class = &self->ahead[i];
        if (class->length_bytes == length_bytes && class->rank == rank) {
            return class;
        }
    }
    return NULL;
}

static const struct co_extent *extent_oldest(struct co_ahead *class)
{
    const struct co_extent *extent = &class->extents[class->first];
    class->first = (class->first + 1) % CO_AHEAD_EXTENTS;
    class->count--;
    return extent;
}

/* Gives back what is at least so old: nobody was told of it. */
static void extents_return(struct coordinator *self, struct co_ahead *class, uint64_t age_ns)
{
    struct sl_item_claim claims[CO_AHEAD_EXTENTS];
    uint32_t count = 0;
    while (class->count > 0 &&
           self->env->now_ns - class->extents[class->first].asked_ns >= age_ns) {
        const struct co_extent *extent = extent_oldest(class);
        claims[count++] =
            (struct sl_item_claim){.ref = extent->ref, .generation = extent->generation};
    }
    co_claims_abort(self, 0, 0, claims, count);
}

/* Gives the class, in the place of the one that was not used for longest if need be. NULL: all are
 * being asked for. */
static struct co_ahead *class_of(struct coordinator *self, uint32_t rank, uint64_t length_bytes)
{
    struct co_ahead *class = class_find(self, rank, length_bytes);
    for (uint32_t i = 0; class == NULL && i < CO_AHEAD_CLASSES; i++) {
        class = self->ahead[i].length_bytes == 0 ? &self->ahead[i] : NULL;
    }
    if (class == NULL) {
        for (uint32_t i = 0; i < CO_AHEAD_CLASSES; i++) {
            struct co_ahead *other = &self->ahead[i];
            if (other->asks == 0 && (class == NULL || other->used_ns < class->used_ns)) {
                class = other;
            }
        }
        if (class != NULL) {
            extents_return(self, class, 0);
            *class = (struct co_ahead){0};
        }
    }
    if (class != NULL && class->length_bytes == 0) {
        class->length_bytes = length_bytes;
        class->rank = rank;
    }
    return class;
}

/* Whether the slice is all that the op stores, and small. */
static bool op_is_small(const struct co_op *op)
{
    uint32_t part_total = op->slice_count * op->engine->part_count;
    return op->type == &co_store_type && op->handover == NULL && !co_by_layers(op) && !op->many &&
           !op->ahead_barred && part_total <= AHEAD_PARTS_MAX &&
           op->slice_count * op->engine->block_bytes <= AHEAD_BYTES_MAX;
}

/* Blocks that exist, or that another op writes, are the registrar's to tell of. */
static bool blocks_are_new(struct coordinator *self, const struct co_op *op)
{
    size_t model_length = strlen(op->engine->model);
    bool fresh = co_view(self);
    for (uint32_t i = 0; fresh && i < op->slice_count; i++) {
        uint64_t length = model_length + 1 + op->blocks[op->slice[i]].key.length;
        fresh = sl_index_find_group(self->view, op->part_keys[i * op->engine->part_count].at,
                                    (uint32_t)length) == SL_ERR_NOT_FOUND;
    }
    return fresh;
}

/* How long ops may take a grant: what is left of its time is theirs. */
static uint64_t useful_ns(const struct coordinator *self)
{
    return sl_config_u64(self->env->config, SL_SET_reservation_ttl) / 2;
}

/* The oldest grant of the class that stands and will for a while. False: there is none. */
static bool extent_take(struct coordinator *self, struct co_ahead *class, struct co_part *part)
{
    while (class->count > 0) {
        const struct co_extent *extent = extent_oldest(class);
        if (self->env->now_ns - extent->asked_ns < useful_ns(self) &&
            sl_index_claim_stands(self->view, extent->ref, extent->generation)) {
            *part = (struct co_part){.generation = extent->generation,
                                     .offset_bytes = extent->offset_bytes,
                                     .ref = extent->ref,
                                     .arena = extent->arena,
                                     .state = CO_PART_GRANTED};
            return true;
        }
    }
    return false;
}

/* The last one taken is put back where it was: nobody was told of it. */
static void extent_return(struct co_ahead *class)
{
    class->first = (class->first + CO_AHEAD_EXTENTS - 1) % CO_AHEAD_EXTENTS;
    class->count++;
}

static struct co_ahead *part_class(struct coordinator *self, const struct co_op *op, uint32_t i)
{
    return class_find(self, co_part_writer(op, i), co_cut_of(op, i)->length_bytes);
}

bool co_ahead_take(struct coordinator *self, struct co_op *op)
{
    uint32_t part_total = op->slice_count * op->engine->part_count;
    if (!op_is_small(op) || !blocks_are_new(self, op)) {
        return false;
    }
    for (uint32_t i = 0; i < part_total; i++) {
        struct co_ahead *class = part_class(self, op, i);
        if (class != NULL && extent_take(self, class, &op->parts[i])) {
            continue;
        }
        while (i-- > 0) {
            op->parts[i] = (struct co_part){0};
            extent_return(part_class(self, op, i));
        }
        return false;
    }
    for (uint32_t i = 0; i < part_total; i++) {
        part_class(self, op, i)->used_ns = self->env->now_ns;
    }
    op->ahead = true;
    sl_metric_add(self->env->metrics, self->metric.ahead_count, 1);
    sl_trace_event(self->env->metrics, self->env->now_ns, op->trace_id, "granted ahead", "",
                   op->slice_count);
    return true;
}

/* How many parts of the slice are of the class. */
static uint32_t class_need(const struct co_ahead *class, const struct co_op *op)
{
    uint32_t need = 0;
    for (uint32_t i = 0; i < op->slice_count * op->engine->part_count; i++) {
        need += co_part_writer(op, i) == class->rank &&
                        co_cut_of(op, i)->length_bytes == class->length_bytes
                    ? 1
                    : 0;
    }
    return need;
}

/* How many extents the class lacks, where ops like this one come again. Many at a time: the op that
 * asks waits a microsecond for each, the others do not. */
static uint32_t class_lack(const struct coordinator *self, const struct co_ahead *class,
                           const struct co_op *op)
{
    uint32_t need = class_need(class, op);
    if (class->asks > 0 || self->env->now_ns < class->refused_until_ns ||
        class->count >= 2 * need) {
        return 0;
    }
    uint64_t want =
        SL_MIN(16 * (uint64_t)need, HELD_BYTES_MAX / sl_extent_space(class->length_bytes));
    return (uint32_t)SL_MIN(SL_MAX(want, 2 * need), CO_AHEAD_EXTENTS) - class->count;
}

/* The class of the slice that lacks most; *lack 0: none lacks anything. */
static struct co_ahead *class_poorest(struct coordinator *self, const struct co_op *op,
                                      uint32_t *lack)
{
    struct co_ahead *poorest = NULL;
    *lack = 0;
    for (uint32_t i = 0; i < op->slice_count * op->engine->part_count; i++) {
        struct co_ahead *class = part_class(self, op, i);
        uint32_t lacks = class == NULL ? 0 : class_lack(self, class, op);
        if (lacks > *lack) {
            *lack = lacks;
            poorest = class;
        }
    }
    return poorest;
}

static void wish_fill(struct coordinator *self, struct co_ahead *class, uint32_t lack,
                      char writer[16], struct sl_msg *publish)
{
    (void)snprintf(writer, 16, "swapper.%u", class->rank & 0xff);
    publish->body.publish.ahead_count = lack;
    publish->body.publish.ahead_bytes = class->length_bytes;
    publish->body.publish.ahead_writer = sl_text_of(writer);
    class->asks++;
    class->asked_ns = self->env->now_ns;
}

void co_ahead_wish(struct coordinator *self, struct co_op *op)
{
    uint32_t lack = 0;
    bool warm = true;
    char writer[16];
    struct sl_msg publish = {.type = SL_MSG_PUBLISH, .trace_id = op->trace_id};
    if (!op_is_small(op)) {
        return;
    }
    for (uint32_t i = 0; i < op->slice_count * op->engine->part_count; i++) {
        struct co_ahead *class =
            class_of(self, co_part_writer(op, i), co_cut_of(op, i)->length_bytes);
        warm =
            warm && class != NULL && class->used_ns != 0 &&
            (class->used_ns == self->env->now_ns || self->env->now_ns - class->used_ns < WARM_NS);
    }
    for (uint32_t i = 0; i < op->slice_count * op->engine->part_count; i++) {
        struct co_ahead *class = part_class(self, op, i);
        if (class != NULL) {
            class->used_ns = self->env->now_ns;
        }
    }
    for (struct co_ahead *class = NULL; warm && (class = class_poorest(self, op, &lack)) != NULL;) {
        wish_fill(self, class, lack, writer, &publish);
        if (sl_calls_send(self->calls, "registrar", &publish,
                          sl_deadline_ns(self->env->now_ns, CO_CALL_NS),
                          co_cookie(CO_CALL_AHEAD, 0, class_number(self, class)), NULL) != SL_OK) {
            class->asks--;
            return;
        }
    }
}

void co_ahead_came(struct coordinator *self, uint32_t number, const struct sl_msg *reply)
{
    struct co_ahead *class = &self->ahead[number];
    class->asks--;
    if (reply == NULL || reply->code != SL_OK || reply->body.publish_reply.ahead.count == 0) {
        class->refused_until_ns = sl_deadline_ns(self->env->now_ns, REFUSED_NS);
        return;
    }
    for (uint64_t i = 0;
         i < reply->body.publish_reply.ahead.count && class->count < CO_AHEAD_EXTENTS; i++) {
        const struct sl_item_grant *grant = &reply->body.publish_reply.ahead.at[i];
        if (grant->code != SL_OK || grant->ref == 0 || grant->generation == 0) {
            continue;
        }
        self->ahead_newest = SL_MAX(self->ahead_newest, grant->generation);
        class->extents[(class->first + class->count++) % CO_AHEAD_EXTENTS] =
            (struct co_extent){.generation = grant->generation,
                               .offset_bytes = grant->offset_bytes,
                               .asked_ns = class->asked_ns,
                               .ref = (sl_ref)grant->ref,
                               .arena = (uint16_t)grant->arena};
    }
    self->ahead_due_ns =
        SL_MIN(self->ahead_due_ns, sl_deadline_ns(class->asked_ns, useful_ns(self)));
    self->env->ops->wake_at(self->env, self->ahead_due_ns);
}

/* Generations rise: what is not newer than all that was taken may be an answer that came twice, and
 * be written to at this moment. That is left to its deadline. */
void co_ahead_late(struct coordinator *self, const struct sl_msg *reply)
{
    struct sl_item_claim claims[CO_AHEAD_EXTENTS];
    uint32_t count = 0;
    for (uint64_t i = 0; i < reply->body.publish_reply.ahead.count && count < CO_AHEAD_EXTENTS;
         i++) {
        const struct sl_item_grant *grant = &reply->body.publish_reply.ahead.at[i];
        if (grant->code == SL_OK && grant->ref != 0 && grant->generation > self->ahead_newest) {
            claims[count++] =
                (struct sl_item_claim){.ref = grant->ref, .generation = grant->generation};
        }
    }
    co_claims_abort(self, 0, reply->trace_id, claims, count);
}

void co_ahead_tick(struct coordinator *self, uint64_t now_ns)
{
    uint64_t next_ns = SL_NEVER_NS;
    if (now_ns < self->ahead_due_ns) {
        return;
    }
    for (uint32_t i = 0; i < CO_AHEAD_CLASSES; i++) {
        struct co_ahead *class = &self->ahead[i];
        extents_return(self, class, useful_ns(self));
        if (class->count > 0) {
            next_ns = SL_MIN(
                next_ns, sl_deadline_ns(class->extents[class->first].asked_ns, useful_ns(self)));
        }
    }
    self->ahead_due_ns = next_ns;
}

void co_ahead_answered(struct coordinator *self, struct co_op *op, const struct sl_msg *reply)
{
    uint32_t number = op->ahead_wish;
    op->ahead_wish = 0;
    if (number != 0) {
        co_ahead_came(self, number - 1, reply);
    }
}

void co_ahead_publish(struct coordinator *self, struct co_op *op)
{
    const struct co_engine *engine = op->engine;
    uint32_t count = 0, group_count = 0, lack = 0;
    struct sl_item_publication *items =
        co_memory_take(&op->work, (size_t)op->slice_count * engine->part_count, sizeof(*items));
    struct sl_item_group *groups = co_memory_take(&op->work, op->slice_count, sizeof(*groups));
    char writer[16];
    if (items == NULL || groups == NULL) {
        co_op_end(self, op, SL_ERR_NO_MEMORY);
        return;
    }
    for (uint32_t i = 0; i < op->slice_count * engine->part_count; i++) {
        const struct co_part *part = &op->parts[i];
        const struct sl_key *key = &op->part_keys[i];
        uint32_t block = i / engine->part_count;
        if (op->parts[block * engine->part_count].state != CO_PART_COPIED) {
            continue;
        }
        if (i % engine->part_count == 0) {
            groups[group_count++] = co_group_of(self, op, block, op->block_count);
        }
        items[count++] =
            (struct sl_item_publication){.key = {.at = key->at, .length = key->length},
                                         .length_bytes = co_cut_of(op, i)->length_bytes,
                                         .ref = part->ref,
                                         .generation = part->generation,
                                         .digest_low = part->digest.low,
                                         .digest_high = part->digest.high,
                                         .group = group_count,
                                         .part_index = i % engine->part_count};
    }
    struct sl_msg publish = {.type = SL_MSG_PUBLISH};
    publish.body.publish.items.at = items;
    publish.body.publish.items.count = count;
    publish.body.publish.groups.at = groups;
    publish.body.publish.groups.count = group_count;
    struct co_ahead *class = class_poorest(self, op, &lack);
    if (class != NULL) {
        wish_fill(self, class, lack, writer, &publish);
        op->ahead_wish = class_number(self, class) + 1;
    }
    (void)co_op_call(self, op, "registrar", &publish);
}
