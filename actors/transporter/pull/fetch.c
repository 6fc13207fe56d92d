/* actors/transporter/pull/fetch.c - BRING from other nodes: makes units, which several requests may
 * wait for, and queues them for fetch batches. */
#include "actors/transporter/pull/pull.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MISSING_MAX   65536u /* keys remembered as missing at peers */
#define ANSWER_NS_MAX (10 * SL_NS_PER_MS)

sl_err tr_fetch_init(struct transporter *self, struct sl_error *why)
{
    const struct sl_config *config = self->env->config;
    self->fetch_batch_max = (uint32_t)sl_config_u64(config, SL_SET_fetch_batches_max);
    self->queue_end = &self->queue_first;
    self->fetches = calloc(TR_FETCHES_MAX, sizeof(*self->fetches));
    self->fetch_batches = calloc(self->fetch_batch_max, sizeof(*self->fetch_batches));
    self->unit_heads = calloc(TR_UNIT_HEADS, sizeof(struct tr_unit *));
    if (self->fetches == NULL || self->fetch_batches == NULL || self->unit_heads == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the tables of fetches");
    }
    sl_err err = tr_finder_init(self, why);
    if (err != SL_OK) {
        return err;
    }
    return sl_missing_create(MISSING_MAX, sl_config_u64(config, SL_SET_peer_missing_ttl),
                             &self->missing, why);
}

static void waits_free(struct tr_unit *unit)
{
    while (unit->waits != NULL) {
        struct tr_wait *wait = unit->waits;
        unit->waits = wait->next;
        free(wait);
    }
}

static void fetch_free(struct transporter *self, struct tr_fetch *fetch)
{
    free(fetch->codes);
    *fetch = (struct tr_fetch){0};
    self->fetch_open--;
}

void tr_fetch_fini(struct transporter *self)
{
    for (uint32_t i = 0; self->unit_heads != NULL && i < TR_UNIT_HEADS; i++) {
        while (self->unit_heads[i] != NULL) {
            struct tr_unit *unit = self->unit_heads[i];
            self->unit_heads[i] = unit->hash_next;
            waits_free(unit);
            free(unit);
        }
    }
    for (uint32_t i = 0; self->fetches != NULL && i < TR_FETCHES_MAX; i++) {
        if (self->fetches[i].used) {
            fetch_free(self, &self->fetches[i]);
        }
    }
    free(self->fetches);
    free(self->fetch_batches);
    free(self->unit_heads);
    self->fetches = NULL;
    self->fetch_batches = NULL;
    self->unit_heads = NULL;
    tr_finder_fini(self);
    if (self->missing != NULL) {
        sl_missing_destroy(&self->missing);
    }
}

/* ---- answers ---- */

static void fetch_answer(struct transporter *self, struct tr_fetch *fetch)
{
    struct sl_env *env = self->env;
    struct sl_msg reply = {.code = SL_OK};
    const struct sl_u64s codes = {.at = fetch->codes, .count = fetch->item_count};
    uint64_t found = 0;
    for (uint32_t i = 0; i < codes.count; i++) {
        found += codes.at[i] == SL_OK || codes.at[i] == SL_ERR_EXISTS ? 1 : 0;
    }
    reply.body.bring_reply =
        (struct sl_body_bring_reply){.codes = codes, .copied_bytes = fetch->copied_bytes};
    sl_reply_route_send(env, &fetch->back, &reply);
    sl_trace_event(env->metrics, env->now_ns, fetch->back.trace_id,
                   fetch->pull ? "pulled" : "fetched", fetch->back.to, (uint32_t)found);
    sl_metric_add(env->metrics, self->metric.keys_found, found);
    sl_metric_add(env->metrics, self->metric.keys_missing, fetch->item_count - found);
    fetch_free(self, fetch);
}

/* Records the result of a unit, whose keys in the fetch are [first, first + count). */
static void unit_settled(struct transporter *self, struct tr_fetch *fetch, uint32_t first,
                         uint32_t count, sl_err code)
{
    for (uint32_t i = first; i < first + count; i++) {
        fetch->codes[i] = (uint64_t)code;
    }
    SL_ASSERT(fetch->open > 0);
    fetch->open--;
    if (fetch->open == 0) {
        fetch_answer(self, fetch);
    }
}

/* ---- units ---- */

static uint64_t key_hash(const char *at, uint64_t length)
{
    return sl_digest_of(at, length).low;
}

static bool unit_is(const struct tr_unit *unit, const char *key, uint64_t length, bool block)
{
    const char *own = unit->group_key != NULL ? unit->group_key : unit->parts[0].key;
    uint64_t own_length =
        unit->group_key != NULL ? unit->group_key_length : unit->parts[0].key_length;
    return (unit->group_key != NULL) == block && own_length == length &&
           memcmp(own, key, length) == 0;
}

static struct tr_unit *unit_find(const struct transporter *self, uint64_t hash,
                                 const struct sl_text *key, bool block)
{
    struct tr_unit *unit = self->unit_heads[hash % TR_UNIT_HEADS];
    while (unit != NULL &&
           !(unit->hash == hash && !unit->pull && unit_is(unit, key->at, key->length, block))) {
        unit = unit->hash_next;
    }
    return unit;
}

bool tr_unit_queue(struct transporter *self, struct tr_unit *unit)
{
    SL_ASSERT(!unit->queued);
    if (!tr_unit_alive(self, unit)) {
        tr_unit_end(self, unit, unit->cancelled != SL_OK ? unit->cancelled : SL_ERR_TIMEOUT);
        return false;
    }
    unit->queued = true;
    unit->next = NULL;
    *self->queue_end = unit;
    self->queue_end = &unit->next;
    return true;
}

void tr_unit_end(struct transporter *self, struct tr_unit *unit, sl_err code)
{
    SL_ASSERT(!unit->queued);
    struct tr_unit **link = &self->unit_heads[unit->hash % TR_UNIT_HEADS];
    while (*link != unit) {
        link = &(*link)->hash_next;
    }
    *link = unit->hash_next;
    self->parts_open -= unit->part_count;
    for (const struct tr_wait *wait = unit->waits; wait != NULL; wait = wait->next) {
        struct tr_fetch *fetch = &self->fetches[wait->fetch];
        if (fetch->used && fetch->number == wait->fetch_number) {
            unit_settled(self, fetch, wait->first, unit->part_count, code);
        }
    }
    waits_free(unit);
    free(unit);
}

static bool unit_wait(struct transporter *self, struct tr_unit *unit, const struct tr_fetch *fetch,
                      uint32_t first)
{
    struct tr_wait *wait = malloc(sizeof(*wait));
    if (wait == NULL) {
        return false;
    }
    *wait = (struct tr_wait){.next = unit->waits,
                             .fetch = (uint32_t)(fetch - self->fetches),
                             .fetch_number = fetch->number,
                             .first = first};
    unit->waits = wait;
    unit->deadline_ns = SL_MAX(unit->deadline_ns, fetch->deadline_ns);
    return true;
}

/* ---- a request ---- */

/* A BRING. Its units: the groups, whose parts are the first keys, then each remaining key. */
struct request {
    const struct sl_body_bring *body;
    const struct tr_items *items; /* destinations of a pull; else NULL */
};
struct unit_keys {                     /* keys of a unit in the request */
    const struct sl_item_group *group; /* NULL: an object */
    uint32_t first, count;
};

static void text_keep(const struct sl_text *key, char **room, const char **at, uint16_t *length)
{
    memcpy(*room, key->at, key->length);
    *at = *room;
    *length = (uint16_t)key->length;
    *room += key->length;
}

static void part_targets(const struct tr_items *items, uint32_t key, struct tr_target **room,
                         struct tr_unit *unit, struct tr_part *part)
{
    const struct tr_item *item = &items->at[key];
    part->targets = *room;
    part->target_count = item->count;
    part->read_count = item->read_count;
    part->slot_bytes = item->length_bytes;
    unit->place_count += (uint32_t)item->places_max;
    for (uint32_t i = 0; i < part->target_count; i++) {
        part->targets[i].slot = items->slots[item->first + i];
    }
    *room += part->target_count;
}

static struct tr_unit *unit_make(const struct request *request, const struct unit_keys *of)
{
    const struct sl_text *keys = &request->body->keys.at[of->first];
    const struct tr_items *items = request->items;
    size_t key_bytes = of->group != NULL ? of->group->key.length : 0;
    size_t slot_count = 0;
    for (uint32_t i = 0; i < of->count; i++) {
        slot_count += items != NULL ? items->at[of->first + i].count : 0;
        key_bytes += keys[i].length;
    }
    struct tr_unit *unit = calloc(1, sizeof(struct tr_unit) + of->count * sizeof(struct tr_part) +
                                         slot_count * sizeof(struct tr_target) + key_bytes);
    if (unit == NULL) {
        return NULL;
    }
    struct tr_target *target_room = (struct tr_target *)&unit->parts[of->count];
    char *room = (char *)&target_room[slot_count];
    unit->pull = items != NULL;
    unit->part_count = of->count;
    unit->chain = request->body->chain;
    unit->code = SL_ERR_NOT_FOUND;
    if (of->group != NULL) {
        unit->wanted = *of->group;
        unit->wanted.key = (struct sl_text){0};
        text_keep(&of->group->key, &room, &unit->group_key, &unit->group_key_length);
    }
    for (uint32_t i = 0; i < of->count; i++) {
        struct tr_part *part = &unit->parts[i];
        text_keep(&keys[i], &room, &part->key, &part->key_length);
        part->read_count = 1;
        if (items != NULL) {
            part_targets(items, of->first + i, &target_room, unit, part);
        }
        unit->read_count += part->read_count;
    }
    return unit;
}

/* A key that this node has, in memory or on disk, is not requested from others. */
static bool is_here(struct transporter *self, const struct sl_text *key, bool block)
{
    struct sl_entry entry;
    return block ? sl_index_find_group(self->view, key->at, (uint32_t)key->length) == SL_OK
                 : sl_index_find(self->view, key->at, (uint32_t)key->length, &entry) == SL_OK;
}

/* Settles the unit at once, joins one in progress, or starts one. */
static void unit_begin(struct transporter *self, struct tr_fetch *fetch,
                       const struct request *request, const struct unit_keys *of)
{
    bool block = of->group != NULL;
    const struct sl_text *key = block ? &of->group->key : &request->body->keys.at[of->first];
    uint64_t hash = key_hash(key->at, key->length);
    if (is_here(self, key, block)) {
        unit_settled(self, fetch, of->first, of->count, SL_ERR_EXISTS);
        return;
    }
    struct tr_unit *unit = request->items == NULL ? unit_find(self, hash, key, block) : NULL;
    if (unit != NULL) {
        unit->sure = unit->sure || request->body->sure;
        sl_err err = unit->part_count != of->count             ? SL_ERR_INVALID
                     : unit_wait(self, unit, fetch, of->first) ? SL_OK
                                                               : SL_ERR_NO_MEMORY;
        if (err != SL_OK) {
            unit_settled(self, fetch, of->first, of->count, err);
        }
        return;
    }
    if (request->body->sure) {
        sl_missing_forget_key(self->missing, hash);
    }
    if (tr_peers_with(self, hash) == 0) {
        unit_settled(self, fetch, of->first, of->count, SL_ERR_NOT_FOUND);
        return;
    }
    unit = self->parts_open + of->count <= TR_PARTS_MAX ? unit_make(request, of) : NULL;
    if (unit == NULL || !unit_wait(self, unit, fetch, of->first)) {
        free(unit);
        unit_settled(self, fetch, of->first, of->count, SL_ERR_LIMIT);
        return;
    }
    unit->hash = hash;
    unit->sure = request->body->sure;
    unit->fetch_number = fetch->number;
    unit->trace_id = fetch->back.trace_id;
    unit->hash_next = self->unit_heads[hash % TR_UNIT_HEADS];
    self->unit_heads[hash % TR_UNIT_HEADS] = unit;
    self->parts_open += of->count;
    tr_holders_find(self, unit);
}

/* Whether the message repeats an open request, which will be answered. */
static bool fetch_is_open(const struct transporter *self, const struct sl_msg *msg)
{
    for (uint32_t i = 0; i < TR_FETCHES_MAX; i++) {
        const struct tr_fetch *fetch = &self->fetches[i];
        if (fetch->used && sl_reply_route_matches(&fetch->back, msg)) {
            return true;
        }
    }
    return false;
}

static sl_err fetch_new(struct transporter *self, const struct sl_msg *msg, bool pull,
                        struct tr_fetch **out, struct sl_error *why)
{
    uint32_t index = 0, item_count = (uint32_t)msg->body.bring.keys.count;
    while (index < TR_FETCHES_MAX && self->fetches[index].used) {
        index++;
    }
    if (index == TR_FETCHES_MAX) {
        return sl_fail(why, SL_ERR_LIMIT, "%u fetches are open", TR_FETCHES_MAX);
    }
    struct tr_fetch *fetch = &self->fetches[index];
    fetch->codes = calloc(SL_MAX(item_count, 1u), sizeof(*fetch->codes));
    if (fetch->codes == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a fetch of %u keys", item_count);
    }
    sl_reply_route_keep(msg, &fetch->back);
    fetch->used = true;
    fetch->number = ++self->fetch_number;
    fetch->pull = pull;
    fetch->item_count = item_count;
    fetch->open = 1; /* our own count, so that it cannot end while it begins */
    for (uint32_t i = 0; i < item_count; i++) {
        fetch->codes[i] = SL_ERR_TIMEOUT; /* until the result is known */
    }
    /* A little before the requester's deadline, so that the answer arrives in time. */
    uint64_t early_ns = SL_MIN(msg->budget_ns / 20, ANSWER_NS_MAX);
    fetch->deadline_ns =
        fetch->back.deadline_ns > early_ns ? fetch->back.deadline_ns - early_ns : 0;
    self->fetch_open++;
    *out = fetch;
    return SL_OK;
}

static void units_begin(struct transporter *self, struct tr_fetch *fetch,
                        const struct request *request)
{
    const struct sl_body_bring *body = request->body;
    struct unit_keys of = {0};
    SL_ASSERT(fetch != NULL);
    for (uint32_t u = 0; u < body->groups.count || of.first < fetch->item_count;
         u++, of.first += of.count) {
        of.group = u < body->groups.count ? &body->groups.at[u] : NULL;
        of.count = of.group != NULL ? (uint32_t)of.group->part_count : 1;
        fetch->open++;
        unit_begin(self, fetch, request, &of);
    }
    tr_holders_flush(self);
    fetch->open--;
    if (fetch->open == 0) {
        fetch_answer(self, fetch);
    }
}

sl_err tr_fetch_begin(struct transporter *self, const struct sl_msg *msg,
                      const struct tr_items *items, struct sl_error *why)
{
    const struct sl_body_bring *body = &msg->body.bring;
    const struct request request = {.body = body, .items = items};
    uint64_t part_total = 0;
    struct tr_fetch *fetch = NULL;
    for (uint32_t i = 0; i < body->groups.count; i++) {
        part_total += body->groups.at[i].part_count;
    }
    if (part_total > body->keys.count) {
        return sl_fail(why, SL_ERR_INVALID, "BRING.groups: %" PRIu64 " parts of %" PRIu64 " keys",
                       part_total, body->keys.count);
    }
    sl_err err = fetch_new(self, msg, items != NULL, &fetch, why);
    if (err == SL_OK) {
        units_begin(self, fetch, &request);
    }
    return err;
}

void tr_bring(struct transporter *self, const struct sl_msg *msg)
{
    struct sl_error why = {0};
    if (fetch_is_open(self, msg)) {
        return; /* the first message is answered */
    }
    if (msg->body.bring.ahead) {
        sl_reply_fail(self->env, msg, SL_ERR_INVALID, "BRING.ahead: not supported between nodes");
        return;
    }
    sl_metric_add(self->env->metrics, self->metric.keys_requested, msg->body.bring.keys.count);
    if (msg->body.bring.slots.count > 0) {
        tr_pull(self, msg);
        return;
    }
    sl_metric_add(self->env->metrics, self->metric.fetches, 1);
    if (!sl_index_view_ready(self->env, &self->view)) {
        sl_reply_fail(self->env, msg, SL_ERR_BUSY, "the node is starting");
        return;
    }
    sl_err err = tr_fetch_begin(self, msg, NULL, &why);
    if (err != SL_OK) {
        sl_reply_code(self->env, msg, err, &why);
    }
}

/* ---- time ---- */

void tr_queue_expire(struct transporter *self)
{
    struct tr_unit *unit = self->queue_first;
    self->queue_first = NULL;
    self->queue_end = &self->queue_first;
    while (unit != NULL) {
        struct tr_unit *next = unit->next;
        unit->queued = false;
        (void)tr_unit_queue(self, unit);
        unit = next;
    }
}

static uint64_t fetches_expire(struct transporter *self, uint64_t now_ns)
{
    uint64_t next_ns = SL_NEVER_NS;
    bool late = false;
    for (uint32_t i = 0; self->fetch_open > 0 && i < TR_FETCHES_MAX; i++) {
        struct tr_fetch *fetch = &self->fetches[i];
        if (!fetch->used || (fetch->pull && fetch->cancelled)) {
            continue;
        }
        if (fetch->deadline_ns > now_ns) {
            next_ns = SL_MIN(next_ns, fetch->deadline_ns);
            continue;
        }
        if (fetch->pull) { /* answered once nothing is written any more */
            (void)tr_pull_cancel(self, fetch, SL_ERR_TIMEOUT, 0);
            continue;
        }
        fetch_answer(self, fetch);
        late = true;
    }
    if (late) {
        tr_queue_expire(self);
    }
    return next_ns;
}

uint64_t tr_fetch_step(struct transporter *self, uint64_t now_ns)
{
    uint64_t next_ns = fetches_expire(self, now_ns);
    next_ns = SL_MIN(next_ns, tr_questions_step(self, now_ns));
    next_ns = SL_MIN(next_ns, tr_pulls_step(self));
    while (self->queue_first != NULL && self->fetch_batches_open < self->fetch_batch_max) {
        tr_fetch_batch_start(self);
    }
    return next_ns;
}
