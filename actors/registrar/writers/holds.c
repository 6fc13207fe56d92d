/* actors/registrar/writers/holds.c - blocks kept in memory for a hand-over from prefill to decode.
 *
 * A hold is taken with the RESERVE that grants or finds its blocks, so no eviction can happen
 * between a commit and the hold. It ends by HOLD or when its time is over. No process's death ends
 * it, since decode may ask after prefill has died. A peer can end it only by naming the key of a
 * held block. Blocks on disk only are read into memory at once, so that decode need not read them
 * and no reclaim takes them; until they are read, a reclaim of their log file waits. The block's
 * record also holds the time (in its deadline, after the commit): a new registrar keeps what is
 * held until then. */
#include "actors/registrar/writers/holds.h"
#include "actors/registrar/base/events.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/promote.h"
#include "actors/registrar/records/units.h"
#include "actors/registrar/writers/reserve.h"
#include "actors/registrar/writers/transients.h"
#include "runtime/base/sl_array.h"

#include <inttypes.h>
#include <stdlib.h>

#define HELD_MAX (1u << 20)
#define HEADS    65536u

static sl_err holds_init(struct registrar *self, struct sl_error *why)
{
    struct reg_holds *all = self->holds;
    all->holds = calloc(self->holds->holds_max, sizeof(*all->holds));
    if (all->holds == NULL || !sl_table_reserve(&all->by_group, HEADS)) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "table of %u hand-overs", self->holds->holds_max);
    }
    all->held_free = REG_NONE;
    all->next_ns = SL_NEVER_NS;
    return SL_OK;
}

static void holds_fini(struct registrar *self)
{
    free(self->holds->holds);
    sl_table_fini(&self->holds->by_group);
    free(self->holds->held);
}

static void held_link(struct reg_holds *all, struct reg_held *held)
{
    sl_table_add(&all->by_group, &held->by_group, sl_table_hash(held->group));
}

static struct reg_held *held_first(const struct reg_holds *all, sl_ref group)
{
    return SL_TABLE_FIRST(&all->by_group, sl_table_hash(group), struct reg_held, by_group);
}

static struct reg_held *held_next(const struct reg_held *held)
{
    return SL_TABLE_NEXT(held, struct reg_held, by_group);
}

/* The record may have been reused for another block. */
static bool held_is_current(const struct registrar *self, const struct reg_held *held)
{
    return sl_index_ref_live(self->index, held->group) &&
           sl_index_kind(self->index, held->group) == SL_RECORD_GROUP &&
           sl_index_version(self->index, held->group) == held->version;
}

uint64_t reg_held_until(const struct registrar *self, sl_ref group)
{
    uint64_t until_ns = 0;
    if ((sl_index_links(self->index, group)->flags & REG_FLAG_HELD) == 0) {
        return 0;
    }
    const struct reg_held *held = held_first(self->holds, group);
    for (; held != NULL; held = held_next(held)) {
        if (held_is_current(self, held)) {
            until_ns = SL_MAX(until_ns, held->until_ns);
        }
    }
    return until_ns;
}

/* Until the commit, the record holds the reservation's deadline; holds_committed changes it. */
static void until_write(struct registrar *self, sl_ref group)
{
    struct sl_group_info info;
    sl_index_group_info(self->index, group, &info);
    if (info.state == SL_GROUP_COMMITTED) {
        sl_index_set_deadline(self->index, group, reg_held_until(self, group));
    }
}

/* ---- table ---- */

static bool held_grow(struct reg_holds *all, uint32_t held_count, uint32_t more)
{
    uint64_t want = (uint64_t)held_count + more;
    if (want <= all->held_capacity) {
        return true;
    }
    sl_table_clear(&all->by_group); /* its entries move */
    bool grown = want <= HELD_MAX && SL_ARRAY_ROOM(all->held, all->held_capacity, want);
    for (uint32_t i = 0; i < all->held_high; i++) {
        if (all->held[i].group != 0) {
            held_link(all, &all->held[i]);
        }
    }
    return grown;
}

static struct reg_hold *hold_find(const struct registrar *self, uint64_t id)
{
    for (uint32_t i = 0; i < self->holds->holds_max; i++) {
        if (self->holds->holds[i].id == id) {
            return &self->holds->holds[i];
        }
    }
    return NULL;
}

static struct reg_held *held_find(const struct registrar *self, uint32_t hold,
                                  const struct sl_entry *group)
{
    struct reg_held *held = held_first(self->holds, group->ref);
    while (held != NULL && (held->hold != hold || held->version != group->version)) {
        held = held_next(held);
    }
    return held;
}

/* The caller has made room. */
static void held_add(struct registrar *self, struct reg_held held)
{
    struct reg_holds *all = self->holds;
    uint32_t at = all->held_free;
    if (at != REG_NONE) {
        all->held_free = all->held[at].hold_next;
    } else {
        at = all->held_high++;
    }
    if (held.hold != REG_NONE) {
        held.hold_next = all->holds[held.hold].first;
        all->holds[held.hold].first = at;
    }
    all->held[at] = held;
    held_link(all, &all->held[at]);
    self->units->held_count++;
    all->bytes += held.bytes;
    all->next_ns = SL_MIN(all->next_ns, held.until_ns);
    sl_index_links(self->index, held.group)->flags |= REG_FLAG_HELD;
    until_write(self, held.group);
}

/* The block's last hold ended: it can be evicted, or ends with its time to live. */
static void group_released(struct registrar *self, sl_ref group)
{
    struct sl_group_info info;
    sl_index_links(self->index, group)->flags &= (uint16_t)~REG_FLAG_HELD;
    sl_index_group_info(self->index, group, &info);
    if (info.state == SL_GROUP_COMMITTED && info.transient_ns != 0) {
        reg_transient_add(self, group, sl_deadline_ns(info.committed_ns, info.transient_ns));
    }
    self->space.freed = true;
}

static void held_remove(struct registrar *self, uint32_t at)
{
    struct reg_holds *all = self->holds;
    struct reg_held gone = all->held[at];
    sl_table_remove(&all->by_group, &all->held[at].by_group);
    all->held[at] = (struct reg_held){.hold_next = all->held_free};
    all->held_free = at;
    self->units->held_count--;
    all->bytes -= gone.bytes;
    if (!held_is_current(self, &gone)) {
        return;
    }
    until_write(self, gone.group);
    if (reg_held_until(self, gone.group) == 0) {
        group_released(self, gone.group);
    }
}

static void hold_remove(struct registrar *self, struct reg_hold *hold)
{
    uint32_t at = hold->first;
    while (at != REG_NONE) {
        uint32_t next = self->holds->held[at].hold_next;
        held_remove(self, at);
        at = next;
    }
    *hold = (struct reg_hold){0};
    self->holds->hold_count--;
}

/* ---- RESERVE ---- */

/* True if the block is to be held. */
static bool group_entry(const struct registrar *self, const struct reg_request *req, uint32_t index,
                        struct sl_entry *entry)
{
    sl_err code = self->scratch->groups[index].code;
    const struct sl_text *key = &req->groups[index].key;
    return (code == SL_OK || code == SL_ERR_EXISTS) &&
           sl_index_find_any(self->index, key->at, (uint32_t)key->length, entry) == SL_OK &&
           entry->kind == SL_RECORD_GROUP;
}

static void groups_size(struct registrar *self, const struct reg_request *req)
{
    for (uint32_t i = 0; i < req->group_count; i++) {
        self->scratch->groups[i].bytes = 0;
    }
    for (uint32_t i = 0; i < req->item_count; i++) {
        if (req->items[i].group != 0) {
            self->scratch->groups[req->items[i].group - 1].bytes +=
                sl_extent_space(req->items[i].length_bytes);
        }
    }
}

/* A block found by the request may have been evicted to make room for the others. It cannot be
 * held: its items become SL_ERR_BUSY, and the client asks again. */
static void gone_ask_again(struct registrar *self, const struct reg_request *req)
{
    struct sl_entry entry;
    for (uint32_t i = 0; i < req->item_count; i++) {
        uint64_t group = req->items[i].group;
        if (group != 0 && self->scratch->grants[i].code == SL_ERR_EXISTS &&
            !group_entry(self, req, (uint32_t)group - 1, &entry)) {
            self->scratch->grants[i] = (struct sl_item_grant){.code = SL_ERR_BUSY};
        }
    }
}

sl_err reg_hold_take(struct registrar *self, const struct reg_request *req)
{
    struct reg_holds *all = self->holds;
    struct reg_hold *hold = hold_find(self, req->hold_id);
    struct sl_entry entry;
    uint64_t until_ns = sl_deadline_ns(self->env->now_ns, req->hold_ns), bytes = 0;
    uint32_t fresh = 0, slot = hold != NULL ? (uint32_t)(hold - all->holds) : REG_NONE;
    gone_ask_again(self, req);
    groups_size(self, req);
    for (uint32_t i = 0; i < req->group_count; i++) {
        if (group_entry(self, req, i, &entry) &&
            (hold == NULL || held_find(self, slot, &entry) == NULL)) {
            bytes += self->scratch->groups[i].bytes;
            fresh++;
        }
    }
    if (hold == NULL && fresh == 0) {
        return SL_OK; /* a hold without blocks would have no time at which it ends */
    }
    hold = hold != NULL ? hold : hold_find(self, 0);
    if (hold == NULL || all->bytes + bytes > self->holds->held_bytes_max) {
        return SL_ERR_LIMIT;
    }
    if (!held_grow(all, self->units->held_count, fresh)) {
        return SL_ERR_NO_MEMORY;
    }
    if (hold->id == 0) {
        *hold = (struct reg_hold){.id = req->hold_id, .first = REG_NONE};
        slot = (uint32_t)(hold - all->holds);
        all->hold_count++;
    }
    for (uint32_t i = 0; i < req->group_count; i++) {
        if (!group_entry(self, req, i, &entry)) {
            continue;
        }
        struct reg_held *held = held_find(self, slot, &entry);
        if (held != NULL) {
            held->until_ns = SL_MAX(held->until_ns, until_ns);
            until_write(self, held->group);
        } else {
            held_add(self, (struct reg_held){.version = entry.version,
                                             .bytes = self->scratch->groups[i].bytes,
                                             .until_ns = until_ns,
                                             .group = entry.ref,
                                             .hold = slot,
                                             .hold_next = REG_NONE});
        }
        reg_promote_held(self, entry.ref);
    }
    return SL_OK;
}

/* A disk can be read: reads held blocks that are on disk only. */
static void holds_bring(struct registrar *self)
{
    for (uint32_t i = 0; i < self->holds->held_high; i++) {
        const struct reg_held *held = &self->holds->held[i];
        if (held->group != 0 && held_is_current(self, held)) {
            reg_promote_held(self, held->group);
        }
    }
}

void reg_hold_recovered(struct registrar *self, sl_ref group, uint64_t until_ns)
{
    struct sl_entry entry;
    struct reg_unit_parts parts;
    uint64_t bytes = 0;
    reg_unit_parts(self, group, &parts);
    for (uint32_t i = 0; i < parts.count; i++) {
        sl_index_read(self->index, parts.refs[i], &entry);
        bytes += sl_extent_space(entry.extent.length_bytes);
    }
    sl_index_read(self->index, group, &entry);
    if (held_grow(self->holds, self->units->held_count, 1)) {
        held_add(self, (struct reg_held){.version = entry.version,
                                         .bytes = bytes,
                                         .until_ns = until_ns,
                                         .group = group,
                                         .hold = REG_NONE,
                                         .hold_next = REG_NONE});
    }
}

/* ---- ends ---- */

/* Whether the sender knows the key of a held block, by its digest. */
static bool hold_is_known(const struct registrar *self, const struct reg_hold *hold,
                          struct sl_digest keys)
{
    struct sl_entry entry;
    for (uint32_t at = hold->first; at != REG_NONE; at = self->holds->held[at].hold_next) {
        if (held_is_current(self, &self->holds->held[at])) {
            sl_index_read(self->index, self->holds->held[at].group, &entry);
            if (sl_digest_equal(keys, sl_digest_of(entry.key, entry.key_length))) {
                return true;
            }
        }
    }
    return false;
}

/* Whether all blocks held for the hand-over are committed; they are reserved and held in order. */
static bool hold_is_whole(const struct registrar *self, const struct reg_hold *hold)
{
    struct sl_group_info info;
    for (uint32_t at = hold->first; at != REG_NONE; at = self->holds->held[at].hold_next) {
        const struct reg_held *held = &self->holds->held[at];
        if (!held_is_current(self, held)) {
            return false;
        }
        sl_index_group_info(self->index, held->group, &info);
        if (info.state != SL_GROUP_COMMITTED) {
            return false;
        }
    }
    return true;
}

static void hold_handle(struct registrar *self, const struct sl_msg *msg)
{
    const struct sl_body_hold *body = &msg->body.hold;
    struct reg_hold *hold = hold_find(self, body->hold_id);
    struct sl_digest keys = {.low = body->keys_low, .high = body->keys_high};
    bool own_word = keys.low == 0 && keys.high == 0;
    if (hold == NULL) {
        sl_reply_fail(self->env, msg, SL_ERR_NOT_FOUND, "nothing is held for hand-over %016" PRIx64,
                      body->hold_id);
    } else if (body->ask) {
        bool whole = hold_is_known(self, hold, keys) && hold_is_whole(self, hold);
        sl_reply_code(self->env, msg, whole ? SL_OK : SL_ERR_NOT_FOUND, NULL);
    } else if (!own_word && !hold_is_known(self, hold, keys)) {
        sl_reply_fail(self->env, msg, SL_ERR_PERMISSION,
                      "hand-over %016" PRIx64 " holds no block of these keys", body->hold_id);
    } else {
        hold_remove(self, hold);
        sl_trace_event(self->env->metrics, self->env->now_ns, msg->trace_id, "hold ends",
                       msg->sender.at, 0);
        sl_reply_code(self->env, msg, SL_OK, NULL);
    }
}

static void holds_expire(struct registrar *self)
{
    uint64_t now_ns = self->env->now_ns;
    struct reg_holds *all = self->holds;
    if (now_ns < all->next_ns) {
        return;
    }
    for (uint32_t i = 0; i < self->holds->holds_max && all->hold_count > 0; i++) {
        struct reg_hold *hold = &all->holds[i];
        bool lapsed = hold->id != 0;
        for (uint32_t at = hold->first; lapsed && at != REG_NONE; at = all->held[at].hold_next) {
            lapsed = all->held[at].until_ns <= now_ns;
        }
        if (lapsed) {
            hold_remove(self, hold);
            sl_metric_add(self->env->metrics, self->holds->metric.hold_lapsed_count, 1);
        }
    }
    all->next_ns = SL_NEVER_NS;
    for (uint32_t i = 0; i < all->held_high; i++) {
        struct reg_held *held = &all->held[i];
        if (held->group != 0 && held->hold == REG_NONE && held->until_ns <= now_ns) {
            held_remove(self, i);
        } else if (held->group != 0 && held->until_ns > now_ns) {
            all->next_ns = SL_MIN(all->next_ns, held->until_ns);
        }
    }
}

static uint64_t holds_next(const struct registrar *self)
{
    return self->holds->next_ns;
}

/* ---- the part ---- */

/* A restart reads from the block's record how long it is held. */
static void holds_committed(struct registrar *self, const struct reg_committed *what)
{
    if (what->group != NULL) {
        sl_index_set_deadline(self->index, what->unit, reg_held_until(self, what->unit));
    }
}

static void holds_settings(struct registrar *self)
{
    self->holds->holds_max = (uint32_t)sl_config_u64(self->env->config, SL_SET_handovers_max);
    self->holds->held_bytes_max = self->set.memory / 2;
}

static void holds_gauges(struct registrar *self)
{
    struct sl_metrics *page = self->env->metrics;
    sl_metric_set(page, self->holds->metric.held_count, self->units->held_count);
    sl_metric_set(page, self->holds->metric.held_bytes, self->holds->bytes);
}

static const struct sl_metric_row metrics[] = {
    REG_METRIC(reg_holds, held_count),
    REG_METRIC(reg_holds, held_bytes),
    REG_METRIC(reg_holds, hold_lapsed_count),
};

static const struct reg_handler handlers[] = {
    {SL_MSG_HOLD, hold_handle},
};

const struct reg_part reg_holds_part = {
    .name = "holds",
    REG_STATE(holds, reg_holds),
    REG_METRICS(metrics),
    REG_HANDLERS(handlers),
    .settings = holds_settings,
    .init = holds_init,
    .fini = holds_fini,
    .tick = holds_expire,
    .next_ns = holds_next,
    .committed = holds_committed,
    .disk_known = holds_bring,
    .gauges = holds_gauges,
};
