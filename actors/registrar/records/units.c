/* actors/registrar/records/units.c - units: blocks with their parts, and objects without a block.
 *
 * Lists: units with something in memory (hot), units on disk only (cold), and three for units in
 * memory that eviction skips (leases.c). */
#include "actors/registrar/records/units.h"
#include "actors/registrar/base/events.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/records/bundles.h"
#include "actors/registrar/records/ghosts.h"
#include "actors/registrar/records/groups.h"
#include "actors/registrar/records/leases.h"
#include "actors/registrar/records/order.h"
#include "actors/registrar/records/policy.h"
#include "actors/registrar/records/retired.h"
#include "actors/registrar/records/seen.h"
#include "ipc/shm/sl_seen.h"

sl_ref reg_unit_of(const struct sl_entry *record)
{
    return record->group != 0 ? record->group : record->ref;
}

bool reg_unit_visible(struct registrar *self, const struct sl_entry *record)
{
    struct sl_group_info info = {.state = SL_GROUP_COMMITTED};
    bool block = record->kind == SL_RECORD_GROUP;
    if (block || record->group != 0) {
        sl_index_group_info(self->index, reg_unit_of(record), &info);
    }
    return (block || record->kind == SL_RECORD_COMMITTED) && info.state == SL_GROUP_COMMITTED;
}

void reg_unit_parts(struct registrar *self, sl_ref unit, struct reg_unit_parts *out)
{
    out->count = 0;
    if (sl_index_kind(self->index, unit) != SL_RECORD_GROUP) {
        out->refs[out->count++] = unit;
        return;
    }
    sl_ref part = sl_index_links(self->index, unit)->next_part;
    while (part != 0) {
        SL_ASSERT(out->count < REG_PARTS_MAX);
        out->refs[out->count++] = part;
        part = sl_index_links(self->index, part)->next_part;
    }
}

void reg_unit_part_join(struct registrar *self, sl_ref group, sl_ref part)
{
    struct sl_links *links = sl_index_links(self->index, group);
    sl_index_links(self->index, part)->next_part = links->next_part;
    links->next_part = part;
}

/* ---- lists ---- */

/* Fields of its record that never change say which of the skipped lists has a unit. */
static struct reg_order *kept_list(struct registrar *self, sl_ref unit)
{
    struct sl_stay stay;
    sl_index_stay(self->index, unit, &stay);
    if (stay.hard_pin) {
        return &self->units->pinned;
    }
    return stay.soft_pin_end_ns != 0 ? &self->units->soft : &self->units->leased;
}

static struct reg_order *list_of(struct registrar *self, sl_ref unit, uint16_t flags)
{
    switch (flags & REG_FLAG_SKIPPED_LISTS) {
    case REG_FLAG_HOT:
        return &self->units->hot;
    case REG_FLAG_COLD:
        return &self->units->cold;
    case REG_FLAG_SKIPPED_LISTS:
        return kept_list(self, unit);
    default:
        return NULL;
    }
}

static struct reg_order *unit_list(struct registrar *self, sl_ref unit)
{
    return list_of(self, unit, sl_index_links(self->index, unit)->flags);
}

uint64_t reg_unit_count(const struct registrar *self)
{
    return self->units->hot.count + self->units->cold.count + self->units->pinned.count +
           self->units->soft.count + self->units->leased.count;
}

sl_ref reg_unit_any(struct registrar *self)
{
    struct reg_order *lists[] = {&self->units->cold, &self->units->hot, &self->units->leased,
                                 &self->units->soft, &self->units->pinned};
    sl_ref unit = 0;
    for (uint32_t i = 0; unit == 0 && i < SL_COUNT(lists); i++) {
        unit = reg_unit_first(self, lists[i]);
    }
    return unit;
}

uint64_t reg_unit_space_bytes(struct registrar *self, sl_ref unit, bool in_memory)
{
    struct reg_unit_parts parts;
    uint64_t bytes = 0;
    reg_unit_parts(self, unit, &parts);
    for (uint32_t i = 0; i < parts.count; i++) {
        struct sl_extent extent;
        sl_index_extent(self->index, parts.refs[i], &extent);
        bool counts = !in_memory || extent.generation != 0;
        bytes += counts ? sl_extent_space(extent.length_bytes) : 0;
    }
    return bytes;
}

static void unit_unlist(struct registrar *self, sl_ref unit)
{
    struct reg_order *list = unit_list(self, unit);
    self->units->judged = (struct reg_judgement){0};
    self->units->judged_hash = 0;
    if (list == NULL) {
        return;
    }
    self->units->policy->removed(self, list, unit);
    sl_index_links(self->index, unit)->flags &= (uint16_t) ~(REG_FLAG_HOT | REG_FLAG_COLD);
    list->count--;
}

static void unit_add(struct registrar *self, sl_ref unit, uint16_t flag)
{
    struct reg_order *list = list_of(self, unit, flag);
    sl_index_links(self->index, unit)->flags |= flag;
    self->units->policy->placed(self, list, unit);
    list->count++;
}

/* The list of a unit in memory: eviction skips pinned units. */
static uint16_t memory_list(struct registrar *self, sl_ref unit)
{
    struct sl_stay stay;
    sl_index_stay(self->index, unit, &stay);
    bool soft = stay.soft_pin_end_ns > self->env->now_ns;
    return stay.hard_pin || (soft && reg_lease_check_at(self, unit, stay.soft_pin_end_ns))
               ? REG_FLAG_SKIPPED_LISTS
               : REG_FLAG_HOT;
}

/* The list that the unit's parts ask for. Also makes the unit a member of their bundles. */
static uint16_t unit_flag(struct registrar *self, sl_ref unit)
{
    struct reg_unit_parts parts;
    uint16_t flag = REG_FLAG_COLD;
    reg_unit_parts(self, unit, &parts);
    for (uint32_t i = 0; i < parts.count && flag == REG_FLAG_COLD; i++) {
        struct sl_extent extent;
        struct sl_stay stay;
        sl_index_extent(self->index, parts.refs[i], &extent);
        sl_index_stay(self->index, parts.refs[i], &stay);
        flag = extent.generation != 0 ? REG_FLAG_HOT : REG_FLAG_COLD;
        reg_bundle_join(self, stay.bundle, unit, false);
    }
    return flag == REG_FLAG_HOT ? memory_list(self, unit) : flag;
}

void reg_unit_place(struct registrar *self, sl_ref unit)
{
    uint16_t flag = unit_flag(self, unit);
    unit_unlist(self, unit);
    unit_add(self, unit, flag);
}

void reg_unit_return(struct registrar *self, sl_ref unit, bool wanted)
{
    const struct reg_policy *policy = self->units->policy;
    uint16_t flag = unit_flag(self, unit);
    struct reg_order *list = list_of(self, unit, flag);
    unit_unlist(self, unit);
    sl_index_links(self->index, unit)->flags |= flag;
    if (policy->returned != NULL) {
        policy->returned(self, list, unit, wanted);
    } else {
        policy->placed(self, list, unit);
    }
    list->count++;
}

void reg_unit_move(struct registrar *self, sl_ref unit, uint16_t list)
{
    unit_unlist(self, unit);
    unit_add(self, unit, list);
}

void reg_unit_list(struct registrar *self, sl_ref unit, bool memory)
{
    unit_add(self, unit, memory ? REG_FLAG_HOT : REG_FLAG_COLD);
}

void reg_unit_evict_first(struct registrar *self, sl_ref unit)
{
    struct reg_order *list = unit_list(self, unit);
    if (list != NULL) {
        self->units->policy->sunk(self, list, unit);
    }
}

void reg_unit_to_newest(struct registrar *self, sl_ref unit)
{
    struct reg_order *list = unit_list(self, unit);
    if (list != NULL) {
        reg_order_to_newest(self, list, unit);
    }
}

void reg_unit_use_expected(struct registrar *self, sl_ref unit)
{
    struct reg_order *list = unit_list(self, unit);
    if (list != NULL) {
        self->units->policy->touched(self, list, unit);
    }
}

void reg_unit_hint(struct registrar *self, sl_ref unit, const struct sl_packed_hints *said)
{
    struct reg_order *list = unit_list(self, unit);
    if (list != NULL && self->units->policy->said != NULL) {
        self->units->policy->said(self, list, unit, said);
    }
}

void reg_unit_session_expected(struct registrar *self, sl_ref unit, uint64_t for_ns)
{
    struct reg_order *list = unit_list(self, unit);
    if (list != NULL && self->units->policy->returning != NULL) {
        self->units->policy->returning(self, list, unit, for_ns);
    }
}

sl_ref reg_unit_first(struct registrar *self, struct reg_order *list)
{
    return self->units->policy->first(self, list);
}

sl_ref reg_unit_next(struct registrar *self, struct reg_order *list, bool goes)
{
    return self->units->policy->next(self, list, goes);
}

void reg_unit_judge(struct registrar *self, sl_ref unit, struct reg_judgement *out)
{
    *out = (struct reg_judgement){0};
    if (self->units->policy->judge != NULL) {
        self->units->policy->judge(self, unit, out);
    }
}

void reg_unit_restored(struct registrar *self)
{
    self->units->restoring = false;
    if (self->units->policy->restored != NULL) {
        self->units->policy->restored(self);
    }
}

/* ---- uses ---- */

static uint32_t used_clock(const struct registrar *self)
{
    uint64_t tick_bytes = SL_MAX(self->set.disk / REG_USED_TICKS, UINT64_C(1));
    return (uint32_t)(self->units->written_bytes / tick_bytes) & REG_USED_MASK;
}

uint32_t reg_unit_age(const struct registrar *self, sl_ref unit)
{
    uint16_t flags = sl_index_links(self->index, unit)->flags;
    if ((flags & REG_FLAG_READ) == 0) {
        return UINT32_MAX;
    }
    return (used_clock(self) - ((uint32_t)flags >> REG_USED_SHIFT)) & REG_USED_MASK;
}

/* Notes a use: reg_unit_age counts from now. */
static void unit_use_note(struct registrar *self, sl_ref unit)
{
    struct sl_links *links = sl_index_links(self->index, unit);
    uint32_t others = links->flags & ((1u << REG_USED_SHIFT) - 1);
    links->flags = (uint16_t)(others | REG_FLAG_READ | used_clock(self) << REG_USED_SHIFT);
}

/* The record is no longer an unused prefetched one. */
static void prefetched_end(struct registrar *self, sl_ref record)
{
    struct sl_links *links = sl_index_links(self->index, record);
    if ((links->flags & REG_FLAG_PREFETCHED) != 0) {
        struct sl_entry entry;
        sl_index_read(self->index, record, &entry);
        links->flags &= (uint16_t)~REG_FLAG_PREFETCHED;
        self->units->prefetched_unread_bytes -=
            SL_MIN(entry.extent.length_bytes, self->units->prefetched_unread_bytes);
    }
}

/* The record leaves memory; a prefetched unit is lost with the first of its parts. */
static void prefetched_lost(struct registrar *self, sl_ref record)
{
    struct sl_entry entry;
    if ((sl_index_links(self->index, record)->flags & REG_FLAG_PREFETCHED) == 0) {
        return;
    }
    prefetched_end(self, record);
    sl_index_read(self->index, record, &entry);
    struct sl_links *unit = sl_index_links(self->index, reg_unit_of(&entry));
    bool first = reg_unit_of(&entry) == record || (unit->flags & REG_FLAG_PREFETCHED) != 0;
    unit->flags &= (uint16_t)~REG_FLAG_PREFETCHED;
    sl_metric_add(self->env->metrics, self->units->metric.prefetch_lost_count, first);
}

void reg_unit_prefetched(struct registrar *self, sl_ref unit, sl_ref part)
{
    struct sl_entry entry;
    sl_index_read(self->index, part, &entry);
    sl_index_links(self->index, unit)->flags |= REG_FLAG_PREFETCHED;
    sl_index_links(self->index, part)->flags |= REG_FLAG_PREFETCHED;
    self->units->prefetched_unread_bytes += entry.extent.length_bytes;
}

void reg_unit_touch(struct registrar *self, sl_ref unit)
{
    struct sl_links *links = sl_index_links(self->index, unit);
    if ((links->flags & REG_FLAG_PREFETCHED) != 0) {
        struct reg_unit_parts parts;
        reg_unit_parts(self, unit, &parts);
        for (uint32_t i = 0; i < parts.count; i++) {
            prefetched_end(self, parts.refs[i]);
        }
        links->flags &= (uint16_t)~REG_FLAG_PREFETCHED;
        sl_metric_add(self->env->metrics, self->units->metric.prefetch_used_count, 1);
    }
    unit_use_note(self, unit);
    reg_unit_use_expected(self, unit);
    if ((links->flags & REG_FLAG_REFUSED) != 0) {
        reg_notify_wanted(self, unit);
    }
    const struct reg_used what = {.unit = unit};
    reg_notify_used(self, &what);
}

void reg_unit_read_for_use(struct registrar *self, sl_ref unit)
{
    const struct reg_used what = {.unit = unit, .fetched = true};
    unit_use_note(self, unit);
    reg_notify_used(self, &what);
}

uint64_t reg_unit_hash(const struct registrar *self, sl_ref unit)
{
    if (unit == self->units->hashed) {
        return self->units->hash;
    }
    struct sl_key key = sl_index_key(self->index, unit);
    return reg_hash(key.at, key.length);
}

void reg_unit_prefetch_drop(struct registrar *self, sl_ref unit, uint32_t step)
{
    if (unit == 0 || (step != 0 && !sl_index_ref_live(self->index, unit))) {
        return; /* the caller guessed it */
    }
    if (step == 0) {
        sl_index_fetch(self->index, unit);
        return;
    }
    const struct sl_links *links = sl_index_links(self->index, unit);
    sl_ref part = links->next_part; /* 0: the unit is an object */
    if (step == 1) {
        sl_index_fetch_place(self->index, unit);
        sl_index_fetch_links(self->index, links->older);
        sl_index_fetch_links(self->index, links->newer);
        sl_index_fetch(self->index, part);
    } else if (part != 0 && sl_index_ref_live(self->index, part)) {
        sl_index_fetch_place(self->index, part);
        sl_index_fetch(self->index, sl_index_links(self->index, part)->next_part);
    }
}

void reg_unit_prefetch_place(struct registrar *self, uint64_t hash)
{
    const struct reg_policy *policy = self->units->policy;
    sl_seen_fetch(self->seen->filter, hash);
    if (policy->awaits != NULL) {
        policy->awaits(self, hash);
    }
}

void reg_unit_committed(struct registrar *self, sl_ref unit, uint64_t hash,
                        const struct sl_group_info *group)
{
    self->units->hashed = unit; /* subscribers may ask for the hash */
    self->units->hash = hash;
    reg_unit_place(self, unit);
    reg_notify_committed(self, unit, group);
    self->units->hashed = 0;
}

/* ---- changing records ---- */

/* The ends of the lists name records by reference; the index keeps the links between records. */
static void units_renamed(struct registrar *self, sl_ref old, sl_ref fresh)
{
    struct reg_order *lists[] = {&self->units->hot, &self->units->cold, &self->units->pinned,
                                 &self->units->soft, &self->units->leased};
    for (uint32_t i = 0; i < SL_COUNT(lists); i++) {
        lists[i]->oldest = lists[i]->oldest == old ? fresh : lists[i]->oldest;
        lists[i]->newest = lists[i]->newest == old ? fresh : lists[i]->newest;
        lists[i]->walk = lists[i]->walk == old ? fresh : lists[i]->walk;
    }
    if (self->units->policy->renamed != NULL) {
        self->units->policy->renamed(self, old, fresh);
    }
    uint16_t flags = sl_index_links(self->index, fresh)->flags & REG_FLAG_SKIPPED_LISTS;
    if (flags == REG_FLAG_SKIPPED_LISTS && !reg_lease_check_at(self, fresh, 0)) {
        reg_unit_move(self, fresh, REG_FLAG_HOT); /* eviction still skips it, but more slowly */
    }
    reg_bundle_renamed(self, old, fresh);
}

sl_err reg_record_switch(struct registrar *self, sl_ref ref, const struct sl_extent *extent,
                         const struct sl_disk_place *place, sl_ref *fresh)
{
    struct sl_entry old;
    bool retired = false;
    sl_index_read(self->index, ref, &old);
    bool writing = (sl_index_links(self->index, ref)->flags & REG_FLAG_WRITING) != 0;
    sl_err err = reg_retired_reserve(self, 1);
    if (err != SL_OK) {
        return err;
    }
    err = sl_index_switch_retire(self->index, ref, extent, place, fresh, &retired);
    if (err != SL_OK) {
        return err;
    }
    units_renamed(self, ref, *fresh);
    if (retired) {
        reg_retired_add(self, ref, &old.extent, writing);
        sl_index_links(self->index, *fresh)->flags &= (uint16_t)~REG_FLAG_WRITING;
        prefetched_lost(self, *fresh);
    }
    const struct reg_switched what = {
        .old = &old, .fresh = *fresh, .extent = extent, .place = place};
    reg_notify_switched(self, &what);
    return SL_OK;
}

/* Before the record leaves the table. Returns whether a tierer still reads its extent. */
static bool part_leaves(struct registrar *self, const struct sl_entry *entry,
                        const struct reg_drop *how)
{
    bool writing = (sl_index_links(self->index, entry->ref)->flags & REG_FLAG_WRITING) != 0;
    const struct reg_dropped what = {.record = entry, .how = how, .writing = writing};
    prefetched_lost(self, entry->ref);
    reg_notify_dropped(self, &what);
    return writing;
}

/* Removes the record from the table; the caller has reserved a retired entry. */
static void part_unlink(struct registrar *self, sl_ref ref, const struct reg_drop *how)
{
    struct sl_entry entry;
    sl_index_read(self->index, ref, &entry);
    bool writing = part_leaves(self, &entry, how);
    if (entry.extent.generation == 0) {
        sl_index_unlink(self->index, ref, SL_RECORD_FREE);
        return;
    }
    sl_index_unlink(self->index, ref, SL_RECORD_RETIRED);
    reg_retired_add(self, ref, &entry.extent, writing);
}

sl_err reg_unit_part_drop(struct registrar *self, sl_ref part, const struct reg_drop *how)
{
    sl_err err = reg_retired_reserve(self, 1);
    if (err == SL_OK) {
        part_unlink(self, part, how);
    }
    return err;
}

sl_err reg_object_replace(struct registrar *self, sl_ref old, sl_ref ref, struct sl_digest digest,
                          const struct reg_drop *how)
{
    struct sl_entry entry;
    bool retired = false;
    sl_err err = reg_retired_reserve(self, 1);
    if (err != SL_OK) {
        return err;
    }
    sl_index_read(self->index, old, &entry);
    SL_ASSERT(entry.group == 0);
    bool writing = part_leaves(self, &entry, how);
    unit_unlist(self, old);
    reg_bundle_leave(self, old);
    sl_index_commit_over(self->index, ref, digest, old, &retired);
    if (retired) {
        reg_retired_add(self, old, &entry.extent, writing);
    }
    *sl_index_links(self->index, ref) = (struct sl_links){0};
    reg_unit_committed(self, ref, reg_unit_hash(self, ref), NULL);
    return SL_OK;
}

sl_err reg_unit_drop(struct registrar *self, sl_ref unit, const struct reg_drop *how)
{
    struct reg_unit_parts parts;
    bool block = sl_index_kind(self->index, unit) == SL_RECORD_GROUP;
    uint32_t pending = block ? reg_group_slot(self, unit) : REG_NONE;
    bool found = pending != REG_NONE && self->groups->all[pending].found;
    if (pending != REG_NONE && !found) {
        reg_group_abandon(self, pending, how->reason);
        return SL_OK;
    }
    reg_unit_parts(self, unit, &parts);
    sl_err err = reg_retired_reserve(self, parts.count);
    if (err != SL_OK) {
        return err;
    }
    if (found) { /* by a scan: no part of it has a claim */
        reg_group_remove(self, pending);
    }
    unit_unlist(self, unit);                  /* notes what the policy knows of it */
    uint64_t hash = self->units->judged_hash; /* saves reading its key */
    reg_ghost_add_judged(self, hash != 0 ? hash : reg_unit_hash(self, unit), how->reason,
                         &self->units->judged);
    reg_bundle_leave(self, unit);
    if (block) {
        sl_index_group_drop(self->index, unit);
    }
    for (uint32_t i = 0; i < parts.count; i++) {
        part_unlink(self, parts.refs[i], how);
    }
    if (block) {
        sl_index_unlink(self->index, unit, SL_RECORD_FREE);
    }
    sl_metric_add(self->env->metrics, self->units->metric.dropped_count, 1);
    return SL_OK;
}

/* ---- the part ---- */

static sl_err units_init(struct registrar *self, struct sl_error *why)
{
    const struct reg_policy *policy =
        reg_policy_find(sl_config_text(self->env->config, SL_SET_evict_policy));
    sl_err err = policy->begin != NULL ? policy->begin(self, why) : SL_OK;
    self->units->policy = err == SL_OK ? policy : NULL;
    return err;
}

static void units_fini(struct registrar *self)
{
    if (self->units->policy != NULL && self->units->policy->end != NULL) {
        self->units->policy->end(self);
    }
}

static void units_gauges(struct registrar *self)
{
    struct sl_metrics *page = self->env->metrics;
    struct sl_index_stats index;
    sl_index_view_stats(sl_index_as_view(self->index), &index);
    sl_metric_set(page, self->units->metric.object_count, index.key_count);
    sl_metric_set(page, self->units->metric.block_count, index.group_count);
    sl_metric_set(page, self->units->metric.index_bytes, index.mapped_bytes);
    sl_metric_set(page, self->units->metric.hard_pinned_count, self->units->pinned.count);
    sl_metric_set(page, self->units->metric.soft_pinned_count, self->units->soft.count);
    sl_metric_set(page, self->units->metric.leased_count, self->units->leased.count);
}

static const struct sl_metric_row metrics[] = {
    REG_METRIC(reg_units, object_count),        REG_METRIC(reg_units, block_count),
    REG_METRIC(reg_units, index_bytes),         REG_METRIC(reg_units, hard_pinned_count),
    REG_METRIC(reg_units, soft_pinned_count),   REG_METRIC(reg_units, leased_count),
    REG_METRIC(reg_units, dropped_count),       REG_METRIC(reg_units, prefetch_used_count),
    REG_METRIC(reg_units, prefetch_lost_count),
};

static const struct reg_blob blobs[] = {{REG_BLOB_LEARNT, reg_policy_learn}};

const struct reg_part reg_units_part = {
    .name = "units",
    REG_STATE(units, reg_units),
    REG_METRICS(metrics),
    REG_BLOBS(blobs),
    .init = units_init,
    .fini = units_fini,
    .gauges = units_gauges,
};
