/* actors/registrar/recover.c - rebuilds a new registrar's tables from the records of the index.
 *
 * Order: space of all extents in the allocator; processes, whose pins must be open before an extent
 * can be reused; blocks; reservations; the order of eviction, from generations; and last the deaths
 * that were missed. */
#include "actors/registrar/recover.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/admission.h"
#include "actors/registrar/disk/disks.h"
#include "actors/registrar/disk/segments.h"
#include "actors/registrar/memory/contributions.h"
#include "actors/registrar/parts.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/records/claims.h"
#include "actors/registrar/records/fences.h"
#include "actors/registrar/records/ghosts.h"
#include "actors/registrar/records/groups.h"
#include "actors/registrar/records/retired.h"
#include "actors/registrar/records/units.h"
#include "actors/registrar/writers/holds.h"
#include "actors/registrar/writers/prealloc.h"
#include "actors/registrar/writers/transients.h"
#include "runtime/base/sl_array.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BEAT_RECORDS 4096u  /* records between heartbeats: recovery may take long */
#define RECENT_UNITS 65536u /* units whose COMMIT may still be repeated */
#define FETCH_AHEAD  16u    /* records fetched into the cache ahead of use */

struct recovered {  /* a record to look at again; small, since there may be millions */
    uint64_t order; /* for recency: the generation of its extent, else its version */
    sl_ref ref;
    uint8_t kind;
    bool memory, terms; /* may be in memory; has pins or a bundle */
    bool unwritten;     /* the previous registrar may have requested its write, or refused it */
};
struct recovery {
    struct registrar *self;
    struct recovered *all;
    uint64_t count, capacity;
    bool failed;
};

/* ---- extents ---- */

/* Whether a registrar can have written the record: the value's size is possible, and it is on disk
 * or in memory under a generation that was issued. */
static bool extent_is_possible(const struct registrar *self, const struct sl_entry *entry)
{
    const struct sl_extent *extent = &entry->extent;
    if (extent->length_bytes == 0 || extent->length_bytes > SL_VALUE_BYTES_MAX ||
        (entry->disk.valid != 0 && entry->disk.disk >= REG_DISK_UNKNOWN)) {
        return false;
    }
    if (extent->generation == 0) {
        return entry->kind == SL_RECORD_COMMITTED && entry->disk.valid != 0;
    }
    return extent->arena == 0 && extent->generation < sl_arena_boot_generation(self->arena);
}

/* Claims the record's space. False: another record has it, or no such space exists. */
static bool extent_claim(struct registrar *self, const struct sl_extent *extent)
{
    struct sl_alloc_stats before;
    struct sl_alloc_stats after;
    sl_alloc_stats(self->alloc, &before);
    sl_err err = sl_alloc_claim(self->alloc, extent->offset_bytes, extent->length_bytes);
    sl_alloc_stats(self->alloc, &after);
    return err == SL_OK && after.extent_count > before.extent_count; /* no other record had it */
}

/* False: the record contradicts itself or another one, or is of a value on a disk and the node has
 * none now; it was dropped. */
static bool recover_extent(struct registrar *self, const struct sl_entry *entry)
{
    if (entry->kind == SL_RECORD_GROUP || entry->kind == SL_RECORD_BLOB) {
        return true;
    }
    bool possible = extent_is_possible(self, entry), in_memory = entry->extent.generation != 0;
    if (possible && (in_memory ? extent_claim(self, &entry->extent) : reg_has_disks(self))) {
        return true;
    }
    if (!possible || in_memory) {
        reg_log(self, SL_LOG_ERROR, 0,
                "record %u claims [%" PRIu64 ", +%" PRIu64 "), which is not its own: dropped",
                entry->ref, entry->extent.offset_bytes, entry->extent.length_bytes);
    }
    if (entry->kind == SL_RECORD_COMMITTED) {
        sl_index_unlink(self->index, entry->ref, SL_RECORD_FREE);
    } else {
        sl_index_set_kind(self->index, entry->ref, SL_RECORD_FREE);
    }
    return false;
}

/* Reads each record once: a million of them are far more than the caches hold. */
static void recovery_note(void *context, const struct sl_entry *entry)
{
    struct recovery *recovery = context;
    struct registrar *self = recovery->self;
    bool memory = entry->extent.generation != 0; /* never set for groups and blobs */
    if (!recover_extent(self, entry)) {
        return;
    }
    if (!SL_ARRAY_ROOM(recovery->all, recovery->capacity, recovery->count + 1)) {
        recovery->failed = true;
        return;
    }
    if (entry->kind == SL_RECORD_COMMITTED && entry->disk.valid != 0) {
        self->tier->disks[entry->disk.disk].used = true;
        reg_segment_note(self, entry->ref, &entry->disk, true);
    }
    if (entry->kind == SL_RECORD_COMMITTED && entry->group != 0) {
        reg_unit_part_join(self, entry->group, entry->ref);
        return;
    }
    recovery->all[recovery->count++] = (struct recovered){
        .order = memory ? entry->extent.generation : entry->version,
        .ref = entry->ref,
        .kind = (uint8_t)entry->kind,
        .memory = memory || entry->kind == SL_RECORD_GROUP, /* a block may be in memory */
        .terms = entry->hard_pin || entry->soft_pin_end_ns != 0 || entry->bundle != 0,
        .unwritten = memory && entry->disk.valid == 0};
}

/* ---- processes ---- */

static const struct reg_blob *blob_find(uint32_t tag)
{
    for (uint32_t i = 0; reg_parts[i] != NULL; i++) {
        for (uint32_t k = 0; k < reg_parts[i]->blob_count; k++) {
            if (reg_parts[i]->blobs[k].tag == tag) {
                return &reg_parts[i]->blobs[k];
            }
        }
    }
    return NULL;
}

static sl_err recover_blob(struct registrar *self, sl_ref ref, struct sl_error *why)
{
    uint32_t length = 0, tag = 0;
    const void *bytes = sl_index_blob_at(self->index, ref, &length, &tag);
    const struct reg_blob *blob = bytes != NULL ? blob_find(tag) : NULL;
    sl_err err =
        blob != NULL ? blob->restore(self, ref, bytes, length, why) : (sl_err)SL_ERR_FOREIGN;
    if (err == SL_ERR_FOREIGN) {
        sl_index_set_kind(self->index, ref, SL_RECORD_FREE);
    }
    return err == SL_ERR_FOREIGN ? SL_OK : err;
}

/* ---- blocks ---- */

/* The previous registrar was killed between the commit and its note, or wrote no notes. */
static void recover_settled(struct registrar *self, const struct sl_entry *entry)
{
    sl_settled_commit(self->settled, entry->extent.generation,
                      reg_hash(entry->key, entry->key_length));
}

static void recover_pending(struct registrar *self, sl_ref ref, const struct sl_group_info *info)
{
    struct reg_group group = {.ref = ref,
                              .owner = info->owner,
                              .op_id = info->op_id,
                              .found = reg_proc_none(info->owner)};
    struct reg_unit_parts parts;
    uint32_t slot = reg_group_add(self, &group, info->deadline_ns);
    reg_unit_parts(self, ref, &parts);
    if (slot == REG_NONE) {
        reg_log(
            self, SL_LOG_ERROR, 0,
            "more blocks are being written than reservations_max: one is left to the next restart");
        return;
    }
    for (uint32_t i = 0; i < parts.count; i++) {
        struct sl_entry entry;
        sl_index_read(self->index, parts.refs[i], &entry);
        reg_group_mark(&self->groups->all[slot], entry.part_index, true);
        recover_settled(self, &entry);
    }
}

/* Drops a block whose removal was under way, or which lacks a part. */
static void recover_drop_group(struct registrar *self, sl_ref ref, bool removed)
{
    struct reg_unit_parts parts;
    struct reg_drop how = {.reason = removed ? REG_GHOST_REMOVED : REG_GHOST_CORRUPT,
                           .forget = true};
    reg_unit_parts(self, ref, &parts);
    sl_index_group_drop(self->index, ref);
    for (uint32_t i = 0; i < parts.count; i++) {
        (void)reg_unit_part_drop(self, parts.refs[i], &how);
    }
    sl_index_unlink(self->index, ref, SL_RECORD_FREE);
}

/* Returns whether the block is a unit now; *order is that of its youngest part. */
static bool recover_group(struct registrar *self, sl_ref ref, uint64_t *order)
{
    struct sl_group_info info;
    struct reg_unit_parts parts;
    sl_index_group_info(self->index, ref, &info);
    if (info.state == SL_GROUP_PENDING) {
        recover_pending(self, ref, &info);
        return false;
    }
    reg_unit_parts(self, ref, &parts);
    if (info.state != SL_GROUP_COMMITTED || parts.count != info.part_count) {
        recover_drop_group(self, ref, info.state == SL_GROUP_DROPPED);
        return false;
    }
    *order = 0;
    for (uint32_t i = 0; i < parts.count; i++) {
        struct sl_entry entry;
        sl_index_read(self->index, parts.refs[i], &entry);
        *order =
            SL_MAX(*order, entry.extent.generation != 0 ? entry.extent.generation : entry.version);
    }
    if (info.transient_ns != 0) {
        reg_transient_add(self, ref, sl_deadline_ns(info.committed_ns, info.transient_ns));
    }
    if (info.deadline_ns > self->env->now_ns) {
        reg_hold_recovered(self, ref, info.deadline_ns);
    }
    return true;
}

/* ---- reservations ---- */

static uint32_t recover_claim_slot(struct registrar *self, const struct sl_entry *entry,
                                   enum reg_claim_state state)
{
    struct reg_claim claim = {
        .state = state,
        .ref = entry->ref,
        .extent = entry->extent,
        .hash = reg_hash(entry->key, entry->key_length),
        .op_id = entry->op_id,
        .owner = entry->owner,
        .owner_peer = reg_peer_by_proc(self, entry->owner),
        .writer_peer = reg_peer_by_proc(self, entry->writer),
        .group = REG_NONE,
        .part_index = entry->part_index,
        .bundle = entry->kind == SL_RECORD_RESERVED ? entry->bundle : 0,
        .ahead = reg_prealloc_is(entry),
        .replace = entry->replace,
        .pinned = entry->pinned || reg_prealloc_is(entry),
        .since_ns = self->env->now_ns,
    };
    uint32_t slot = reg_claim_add(self, &claim);
    if (slot == REG_NONE) {
        reg_log(self, SL_LOG_ERROR, 0,
                "more reservations than reservations_max: an extent is left to the next restart");
    }
    return slot;
}

static void recover_reserved(struct registrar *self, const struct sl_entry *entry)
{
    uint32_t slot = recover_claim_slot(self, entry, REG_CLAIM_RESERVED);
    if (slot == REG_NONE) {
        return;
    }
    struct reg_claim *claim = &self->claims->all[slot];
    if (claim->ahead) {
        reg_prealloc_count(self, slot, true);
    }
    bool grouped = entry->group != 0 && sl_index_ref_live(self->index, entry->group);
    uint32_t group = grouped ? reg_group_slot(self, entry->group) : REG_NONE;
    if (claim->owner_peer != REG_NONE) {
        reg_list_add(self, REG_LIST_PEER, &self->peers->all[claim->owner_peer].owned, slot);
    }
    if (group != REG_NONE) {
        claim->group = group;
        reg_list_add(self, REG_LIST_GROUP, &self->groups->all[group].claims, slot);
        reg_group_mark(&self->groups->all[group], entry->part_index, true);
    } else {
        sl_heap_set(&self->claims->timers, slot, entry->deadline_ns);
    }
    if (claim->owner_peer != REG_NONE && (entry->group == 0 || group != REG_NONE)) {
        return;
    }
    if (claim->writer_peer == REG_NONE && !self->env->ops->alive(self->env, entry->writer)) {
        reg_claim_release(self, slot); /* its writer, a client, has died and is not remembered */
    } else {
        reg_claim_quarantine(self, slot);
    }
}

static void recover_claim(struct registrar *self, const struct recovered *record)
{
    struct sl_entry entry;
    sl_index_read(self->index, record->ref, &entry);
    if (record->kind == SL_RECORD_RESERVED) {
        recover_reserved(self, &entry);
    } else if (record->kind == SL_RECORD_PROMOTING) {
        uint32_t slot = recover_claim_slot(self, &entry, REG_CLAIM_PROMOTING);
        if (slot != REG_NONE) {
            reg_claim_quarantine(self, slot); /* the tierer may still be writing to the extent */
        }
    } else if (record->kind == SL_RECORD_QUARANTINED) {
        uint32_t slot = recover_claim_slot(self, &entry, REG_CLAIM_GRACE);
        if (slot != REG_NONE) {
            reg_claim_restore_quarantine(self, slot, entry.writer, entry.deadline_ns);
        }
    } else if (record->kind == SL_RECORD_RETIRED && reg_retired_reserve(self, 1) == SL_OK) {
        reg_retired_add(self, record->ref, &entry.extent, false);
    }
}

/* ---- order of eviction ---- */

/* Sorts oldest first: a radix sort by bytes, which skips bytes that are equal in all records.
 * Generations differ in a few bytes only. */
static bool recovered_sort(struct recovered *all, uint64_t count)
{
    uint64_t counts[sizeof(all->order)][256] = {{0}};
    struct recovered *from = all;
    struct recovered *to = count < 2 ? NULL : malloc(count * sizeof(*to));
    if (to == NULL) {
        return count < 2;
    }
    for (uint64_t i = 0; i < count; i++) {
        for (uint32_t byte = 0; byte < sizeof(all->order); byte++) {
            counts[byte][all[i].order >> (8 * byte) & 0xff]++;
        }
    }
    for (uint32_t byte = 0; byte < sizeof(all->order); byte++) {
        uint64_t *at = counts[byte];
        if (at[all[0].order >> (8 * byte) & 0xff] == count) {
            continue;
        }
        for (uint64_t value = 0, sum = 0; value < 256; value++) {
            uint64_t here = at[value];
            at[value] = sum;
            sum += here;
        }
        for (uint64_t i = 0; i < count; i++) {
            to[at[from[i].order >> (8 * byte) & 0xff]++] = from[i];
        }
        struct recovered *swap = from;
        from = to;
        to = swap;
    }
    if (from != all) {
        memcpy(all, from, count * sizeof(*all));
    }
    free(from != all ? from : to);
    return true;
}

/* Returns whether a part is not on disk. */
static bool recover_block(struct registrar *self, sl_ref group, bool recent)
{
    struct reg_unit_parts parts;
    bool unwritten = false;
    reg_unit_place(self, group);
    reg_unit_parts(self, group, &parts);
    for (uint32_t i = 0; i < parts.count; i++) {
        struct sl_entry entry;
        sl_index_read(self->index, parts.refs[i], &entry);
        if (entry.disk.valid == 0) { /* the previous registrar may have requested its write */
            sl_index_links(self->index, parts.refs[i])->disks = reg_disks_used(self);
            unwritten = true;
        }
        if (recent && entry.extent.generation != 0) {
            recover_settled(self, &entry);
        }
    }
    return unwritten;
}

/* struct recovered has all that recovery needs of an object, so most are not read again. */
static void recover_object(struct registrar *self, const struct recovered *record, bool recent)
{
    if (record->terms) {
        reg_unit_place(self, record->ref);
    } else {
        reg_unit_list(self, record->ref, record->memory);
    }
    if (record->unwritten) { /* the previous registrar may have requested its write */
        sl_index_links(self->index, record->ref)->disks = reg_disks_used(self);
    }
    if (record->memory && recent && !sl_settled_committed(self->settled, record->order, NULL)) {
        struct sl_entry entry;
        sl_index_read(self->index, record->ref, &entry);
        recover_settled(self, &entry);
    }
}

static void recover_units(struct registrar *self, struct recovered *units, uint64_t count)
{
    self->units->restoring = true;
    for (uint64_t i = 0; i < count; i++) {
        if (i % BEAT_RECORDS == 0) {
            sl_metrics_beat_now(self->env->metrics);
        }
        if (i + 2 * FETCH_AHEAD < count) { /* the order of units is not the order of memory */
            sl_index_fetch(self->index, units[i + 2 * FETCH_AHEAD].ref);
        }
        if (i + FETCH_AHEAD < count && units[i + FETCH_AHEAD].memory) {
            reg_unit_prefetch_place(self, reg_unit_hash(self, units[i + FETCH_AHEAD].ref));
        }
        bool recent = count - i <= RECENT_UNITS;
        if (units[i].kind == SL_RECORD_GROUP) {
            units[i].unwritten = recover_block(self, units[i].ref, recent);
        } else {
            recover_object(self, &units[i], recent);
        }
    }
    reg_unit_restored(self);
    for (uint64_t i = 0; i < count; i++) {
        if (units[i].unwritten) {
            reg_admission_offer(self, units[i].ref);
        }
    }
}

/* Moves objects without a block and complete blocks to the front of the array, oldest first. */
static uint64_t recover_collect_units(struct registrar *self, struct recovery *recovery)
{
    uint64_t units = 0;
    for (uint64_t i = 0; i < recovery->count; i++) {
        struct recovered record = recovery->all[i];
        if (i % BEAT_RECORDS == 0) {
            sl_metrics_beat_now(self->env->metrics);
        }
        bool unit = record.kind == SL_RECORD_GROUP ? recover_group(self, record.ref, &record.order)
                                                   : record.kind == SL_RECORD_COMMITTED;
        if (unit) {
            self->units->expected += record.memory;
            recovery->all[i] = recovery->all[units];
            recovery->all[units++] = record;
        }
    }
    recovery->failed = !recovered_sort(recovery->all, units);
    return units;
}

static sl_err recover_all(struct registrar *self, struct recovery *recovery, struct sl_error *why)
{
    for (uint64_t i = 0; i < recovery->count; i++) {
        if (recovery->all[i].kind == SL_RECORD_BLOB) {
            sl_err err = recover_blob(self, recovery->all[i].ref, why);
            if (err != SL_OK) {
                return err;
            }
        }
    }
    struct sl_entry entry;
    uint64_t cursor = 0;
    while (self->contributions->on && sl_index_walk(self->index, &cursor, &entry)) {
        if (entry.kind != SL_RECORD_GROUP && entry.kind != SL_RECORD_BLOB &&
            entry.kind != SL_RECORD_FREE) {
            reg_charge_recover(self, entry.ref);
        }
    }
    uint64_t units = recover_collect_units(self, recovery);
    if (recovery->failed) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "%" PRIu64 " records to recover", units);
    }
    for (uint64_t i = units; i < recovery->count; i++) {
        uint32_t kind = recovery->all[i].kind;
        if (kind != SL_RECORD_COMMITTED && kind != SL_RECORD_GROUP && kind != SL_RECORD_BLOB) {
            recover_claim(self, &recovery->all[i]);
        }
    }
    recover_units(self, recovery->all, units);
    return SL_OK;
}

sl_err reg_recover(struct registrar *self, struct sl_error *why)
{
    struct recovery recovery = {.self = self};
    sl_err err = sl_index_recover(self->index, recovery_note, &recovery);
    err = err != SL_OK || recovery.failed
              ? sl_fail(why, SL_ERR_NO_MEMORY, "no room for %" PRIu64 " records", recovery.count)
              : recover_all(self, &recovery, why);
    free(recovery.all);
    if (err != SL_OK) {
        return err;
    }
    REG_EACH(self, REG_WALK_RECOVERED, part)
    {
        (*part)->recovered(self);
    }
    return SL_OK;
}
