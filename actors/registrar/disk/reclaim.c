/* actors/registrar/disk/reclaim.c - DISK_RECLAIM: the oldest log file of a disk is deleted. Values
 * that were not wanted lately leave with it; others are kept: written again at the end of the log.
 *
 * Kept values that are only on disk are read into memory first, after all other reads. When they
 * are in memory, or after a short wait, the tierer is answered that it may delete the file. It
 * reports when the file is deleted, and only then the file's places are cleared. So whichever
 * process dies, and whatever is removed meanwhile, records agree with the disk. Write-behind then
 * treats kept values like new ones. Values that a hand-over holds are kept whatever their size, and
 * waited for longer. If they cannot be read, the file stays (SL_ERR_BUSY: the tierer retries). */
#include "actors/registrar/disk/reclaim.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/admission.h"
#include "actors/registrar/disk/disks.h"
#include "actors/registrar/disk/promote.h"
#include "actors/registrar/disk/segments.h"
#include "actors/registrar/disk/write_behind.h"
#include "actors/registrar/records/ghosts.h"
#include "actors/registrar/records/leases.h"
#include "actors/registrar/records/retired.h"
#include "actors/registrar/records/units.h"
#include "runtime/policy/density/density.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Share of a log file that is written again at most; otherwise a working set larger than the disk
 * would be rewritten endlessly. It is larger if the policy knows what units are worth. A replay of
 * the conversation trace (5,000 blocks in memory, 20,000 on disk) gave: half of a file, of units
 * worth more than 70 % of those only on disk: 28.5 % hits, 2.1 GiB written; a quarter, worth more
 * than half: 28.2 %, 2.1; by the time of the last use: 27.9 %, 1.8. */
#define KEEP_SHARE_WANTED 0.25
#define KEEP_SHARE_WORTH  0.5
#define KEEP_WORTH_SHARE  0.3
/* Within that, units with a retention hint come first, up to this share of a file, whatever they
 * are worth. The limit bounds the cost of wrong hints, as in memory. */
#define KEEP_SHARE_HINTED (1.0 / SL_DENSITY_KEPT_SHARE)
#define KEEP_MEMORY_SHARE 16u /* and this share of memory is used for it at most */
/* Without a known worth, only units wanted since half of the disk was written are kept. A model of
 * the conversation trace hits no more without this limit, and rewrites 1.4 to 3 times the
 * values. */
#define KEEP_AGE_MAX (REG_USED_TICKS / 2)
/* Writers may wait for the room. A disk reads a quarter of a file in a fraction of this time. */
#define KEEP_WAIT_NS (250 * SL_NS_PER_MS)
/* A disk that cannot read held values within this time fails. Half of the tierer's remaining time
 * also bounds the wait. */
#define HELD_WAIT_NS (4 * SL_NS_PER_S)

#define DELETING_NS  (5 * SL_NS_PER_S) /* a file that stays this long may stay for ever */
#define RECLAIM_STEP 1024u             /* records handled in a turn */
/* Keys of the heap, smallest first: WORTH_KEY - worth, as bits of a double. Units that no hint,
 * pin, lease or hold keeps follow, with the bit NO_HINT. */
#define WORTH_KEY UINT64_C(0x7ff0000000000000)
#define NO_HINT   (UINT64_C(1) << 63)

_Static_assert(REG_DISKS_MAX <= SL_COUNT(((struct reg_units *)0)->going), "one for each disk");

/* ---- losing a place ---- */

void reg_place_clear(struct registrar *self, const struct sl_entry *entry,
                     const struct reg_drop *how, bool reclaimed)
{
    static const struct sl_disk_place nowhere = {0};
    sl_ref fresh;
    if (entry->extent.generation != 0 &&
        reg_record_switch(self, entry->ref, NULL, &nowhere, &fresh) == SL_OK) {
        if (reclaimed) {
            sl_index_links(self->index, fresh)->flags |= REG_FLAG_RECLAIMED;
        } else {
            reg_queue_add(self, fresh, entry->extent.generation);
        }
        return;
    }
    (void)reg_unit_drop(self, reg_unit_of(entry), how);
}

void reg_place_lost(struct registrar *self, sl_ref ref, sl_err code)
{
    struct sl_entry entry;
    struct reg_drop how = {.reason =
                               code == SL_ERR_NOT_FOUND ? REG_GHOST_UNREADABLE : REG_GHOST_CORRUPT,
                           .forget = true};
    uint64_t from = self->retired->count;
    sl_index_read(self->index, ref, &entry);
    sl_metric_add(self->env->metrics, self->tier->metric.corrupt_count, 1);
    reg_log(self, SL_LOG_WARN, 0, "object %016" PRIx64 ": its copy on disk is lost (%s): forgotten",
            reg_hash(entry.key, entry.key_length), sl_err_text(code));
    reg_place_clear(self, &entry, &how, false);
    reg_retired_scan(self, from);
}

/* ---- what is kept ---- */

bool reg_reclaim_drops(struct registrar *self, sl_ref unit)
{
    const struct reg_drop how = {.reason = REG_GHOST_DISK_RECLAIMED, .forget = true};
    struct reg_unit_parts parts;
    bool goes = false;
    if (self->units->reclaim_count == 0) {
        return false;
    }
    reg_unit_parts(self, unit, &parts);
    for (uint32_t i = 0; i < parts.count && !goes; i++) {
        struct sl_entry entry;
        sl_index_read(self->index, parts.refs[i], &entry);
        goes = entry.extent.generation == 0 &&
               reg_reclaim_phase(self, &entry.disk) >= REG_RECLAIM_DELETING;
    }
    return goes && reg_unit_drop(self, unit, &how) == SL_OK;
}

void reg_reclaim_check(struct registrar *self, const struct sl_disk_place *place)
{
    if (reg_reclaim_phase(self, place) == REG_RECLAIM_CHECKING) {
        self->tier->disks[place->disk].reclaim.cursor = 0;
    }
}

/* Worth of the unit; 0: not enough to be written again. */
static double unit_worth(struct registrar *self, sl_ref unit, double cut)
{
    if (cut < 0.0) {
        uint32_t age = reg_unit_age(self, unit);
        uint32_t left = age <= KEEP_AGE_MAX ? KEEP_AGE_MAX - age + 1 : 0;
        return (double)left;
    }
    double worth = self->units->policy->worth(self, unit);
    return worth > cut ? worth : 0.0;
}

static bool unit_is_held(struct registrar *self, sl_ref unit)
{
    return (sl_index_links(self->index, unit)->flags & REG_FLAG_HELD) != 0;
}

/* Marks the unit as kept or not. A block may have parts in files that several disks reclaim at the
 * same time. So its record, which has no place itself, has a bit for each disk. */
static void unit_mark(struct registrar *self, sl_ref unit, uint32_t slot, bool kept)
{
    struct sl_links *links = sl_index_links(self->index, unit);
    bool block = sl_index_kind(self->index, unit) == SL_RECORD_GROUP;
    unsigned bit = block ? 1u << slot : 0;
    links->disks = (uint16_t)(kept ? links->disks | bit : links->disks & ~bit);
    bool some = kept || (block && links->disks != 0);
    links->flags = (uint16_t)(some ? links->flags | REG_FLAG_KEPT : links->flags & ~REG_FLAG_KEPT);
}

static bool is_kept(struct registrar *self, const struct sl_entry *entry)
{
    const struct sl_links *links = sl_index_links(self->index, reg_unit_of(entry));
    return (links->flags & REG_FLAG_KEPT) != 0 &&
           (entry->group == 0 || (links->disks & REG_DISK_BIT(entry->disk.disk)) != 0);
}

static bool is_held_on_disk_alone(struct registrar *self, const struct sl_entry *entry)
{
    return entry->extent.generation == 0 && unit_is_held(self, reg_unit_of(entry));
}

/* Puts the record's unit into the heap if it should be kept, given room. */
static void record_choose(struct registrar *self, struct reg_reclaim *reclaim,
                          const struct sl_entry *entry)
{
    sl_ref unit = reg_unit_of(entry);
    if (!reclaim->again) {
        unit_mark(self, unit, entry->disk.disk, false); /* from an earlier reclaim */
    }
    if (unit == reclaim->chosen || is_kept(self, entry)) {
        return; /* handled with another part */
    }
    bool wanted = unit_is_held(self, unit) || entry->hard_pin ||
                  entry->soft_pin_end_ns > self->env->now_ns || reg_unit_leased(self, unit) != 0;
    double worth = wanted ? INFINITY : unit_worth(self, unit, reclaim->cut);
    bool said = self->units->policy->kept != NULL && self->units->policy->kept(self, unit);
    if (worth > 0.0 || said) {
        uint64_t bits;
        memcpy(&bits, &worth, sizeof(bits));
        uint64_t key = (WORTH_KEY - bits) | (wanted || said ? 0 : NO_HINT);
        /* without memory for this it is not kept */
        (void)sl_heap_add(&reclaim->best, (struct sl_heap_item){.at_ns = key, .id = entry->ref});
        reclaim->chosen = unit;
    }
}

static bool room_take(struct reg_room *room, struct reg_room want)
{
    if (want.bytes > room->bytes || want.read_bytes > room->read_bytes) {
        return false;
    }
    room->bytes -= want.bytes;
    room->read_bytes -= want.read_bytes;
    return true;
}

/* Marks the unit of a record from the heap as kept, if there is room. Held units that would be lost
 * are kept whatever their size. Units with a retention hint first use their own share of the room,
 * then compete by worth. Returns how many records were handled. */
static uint32_t unit_keep(struct registrar *self, uint32_t slot, const struct sl_heap_item *best)
{
    struct reg_reclaim *reclaim = &self->tier->disks[slot].reclaim;
    struct sl_entry entry;
    if (!reg_segment_has(self, slot, best->id, &entry) || is_kept(self, &entry)) {
        return 1;
    }
    sl_ref unit = reg_unit_of(&entry);
    struct reg_room want = {0};
    struct reg_unit_parts parts;
    reg_unit_parts(self, unit, &parts);
    for (uint32_t i = 0; i < parts.count; i++) {
        if (reg_segment_has(self, slot, parts.refs[i], &entry)) {
            uint64_t bytes = sl_extent_space(entry.extent.length_bytes);
            want.bytes += bytes;
            want.read_bytes += entry.extent.generation != 0 ? 0 : bytes;
        }
    }
    bool held = want.read_bytes > 0 && unit_is_held(self, unit);
    bool said = best->at_ns != 0 && best->at_ns < NO_HINT;
    reclaim->wait_ns = held ? HELD_WAIT_NS : reclaim->wait_ns;
    if (!held && said && !room_take(&reclaim->said, want)) {
        if (best->at_ns < WORTH_KEY) {
            struct sl_heap_item again = {.at_ns = best->at_ns | NO_HINT, .id = best->id};
            (void)sl_heap_add(&reclaim->best, again); /* the pop has just freed its slot */
        }
    } else if (held || room_take(&reclaim->room, want)) {
        unit_mark(self, unit, slot, true);
    }
    return parts.count;
}

/* Requests a kept record that is only on disk. */
static void record_read(struct registrar *self, struct reg_reclaim *reclaim,
                        const struct sl_entry *entry)
{
    uint32_t fetch = reg_fetch_find(self, entry);
    bool held = is_held_on_disk_alone(self, entry);
    if (fetch == REG_NONE) {
        fetch = reg_fetch_add(self, entry, !held);
    } else if (self->promotion->fetches[fetch].kept_for == reclaim->number) {
        return; /* the record is noted twice in the file's list */
    }
    reclaim->held_left += held;
    if (fetch == REG_NONE) {
        return; /* too many fetches: it is lost, or the file stays */
    }
    if (held) {
        reg_fetch_raise(self, fetch);
        self->promotion->fetches[fetch].held = true;
    }
    self->promotion->fetches[fetch].kept_for = reclaim->number;
    reclaim->left++;
    if (self->promotion->fetches[fetch].ahead && !self->promotion->fetches[fetch].reading) {
        reg_fetch_unqueue(self, fetch);
        reg_fetch_prepend(self, fetch);
    }
}

static void reclaim_begin(struct registrar *self, uint32_t slot, const struct sl_msg *msg)
{
    const struct sl_body_disk_reclaim *asked = &msg->body.disk_reclaim;
    struct reg_reclaim *reclaim = &self->tier->disks[slot].reclaim;
    const struct reg_policy *policy = self->units->policy; /* cut < 0: by time of last use */
    double cut = policy->worth_cut != NULL ? policy->worth_cut(self, KEEP_WORTH_SHARE) : -1.0;
    double share = (cut < 0.0 ? KEEP_SHARE_WANTED : KEEP_SHARE_WORTH) * reg_admission_share(self);
    double said_share = KEEP_SHARE_HINTED * reg_admission_share(self);
    double segment_bytes = (double)self->tier->segment_bytes;
    uint64_t read_bytes = self->set.memory / KEEP_MEMORY_SHARE;
    self->tier->reclaim_number += self->tier->reclaim_number == UINT32_MAX ? 2 : 1; /* never 0 */
    *reclaim = (struct reg_reclaim){
        .phase = asked->gone ? REG_RECLAIM_CLEARING : REG_RECLAIM_CHOOSING,
        .number = self->tier->reclaim_number,
        .cut = cut,
        .room = {.bytes = (uint64_t)(segment_bytes * share), .read_bytes = read_bytes},
        .said = {.bytes = (uint64_t)(segment_bytes * said_share), .read_bytes = read_bytes},
        .wait_ns = KEEP_WAIT_NS,
        .until_ns = SL_NEVER_NS, /* set once it waits */
    };
    sl_reply_route_keep(msg, &reclaim->back);
    self->units->reclaim_count++;
    self->units->going[slot] = (uint32_t)asked->segment;
}

static void reclaim_answer(struct registrar *self, uint32_t slot, sl_err code)
{
    const struct reg_reclaim *reclaim = &self->tier->disks[slot].reclaim;
    struct sl_msg reply = {.code = code};
    if (code != SL_OK) {
        reply.text = sl_text_of("values that a hand-over holds could not be read");
        reg_log(self, SL_LOG_WARN, reclaim->back.trace_id, "log file segment.%u is not deleted: %s",
                self->units->going[slot], reply.text.at);
    }
    sl_reply_route_send(self->env, &reclaim->back, &reply);
}

/* Clears the record's place, and those of its block if that is dropped. Returns how many. */
static uint32_t record_clear(struct registrar *self, uint32_t slot, const struct sl_entry *entry)
{
    struct reg_reclaim *reclaim = &self->tier->disks[slot].reclaim;
    struct reg_drop how = {.reason = REG_GHOST_DISK_RECLAIMED, .forget = true};
    bool again = entry->extent.generation != 0 && (reclaim->blind || is_kept(self, entry));
    uint64_t places = self->tier->place_count;
    reclaim->kept += again;
    self->space.freed = true;
    reg_place_clear(self, entry, &how, !again);
    places -= self->tier->place_count; /* including those of its block */
    reclaim->cleared += (uint32_t)places;
    return SL_MAX((uint32_t)places, 1u);
}

static void reclaim_forget(struct registrar *self, uint32_t slot)
{
    struct reg_reclaim *reclaim = &self->tier->disks[slot].reclaim;
    self->units->reclaim_count -= reclaim->phase != REG_RECLAIM_NONE;
    self->units->going[slot] = 0;
    reclaim->phase = REG_RECLAIM_NONE;
    sl_heap_fini(&reclaim->best);
}

static void disk_reclaim(struct registrar *self, const struct sl_msg *msg)
{
    uint32_t path = reg_path_of(self, msg);
    uint32_t slot = path == REG_NONE ? REG_NONE : self->tier->paths[path].disk;
    struct sl_error why = {0};
    if (slot == REG_NONE) { /* it retries when its disk is reported */
        sl_reply_code(self->env, msg,
                      path == REG_NONE
                          ? sl_fail(&why, SL_ERR_PERMISSION, "%s is not a tierer", msg->sender.at)
                          : sl_fail(&why, SL_ERR_BUSY, "no scan of %s has begun", msg->sender.at),
                      &why);
        return;
    }
    struct reg_disk *disk = &self->tier->disks[slot];
    struct reg_reclaim *reclaim = &disk->reclaim;
    const struct sl_body_disk_reclaim *asked = &msg->body.disk_reclaim;
    bool same = reclaim->phase != REG_RECLAIM_NONE && self->units->going[slot] == asked->segment;
    bool going = same && reclaim->phase == REG_RECLAIM_DELETING;
    reclaim->until_ns = going ? sl_deadline_ns(self->env->now_ns, DELETING_NS) : reclaim->until_ns;
    if (!asked->gone && (asked->segment <= disk->deleted_segment || going)) {
        sl_reply_code(self->env, msg, SL_OK, NULL); /* nothing was read from it since the answer */
        return;
    }
    if (same && asked->gone == (reclaim->phase == REG_RECLAIM_CLEARING)) {
        sl_reply_route_keep(msg, &reclaim->back); /* resent */
        return;
    }
    disk->deleted_segment = asked->gone ? (uint32_t)asked->segment : disk->deleted_segment;
    reclaim_forget(self, slot);
    reclaim_begin(self, slot, msg);
    reclaim->blind = disk->chosen_segment != asked->segment;
}

/* The phase has handled all records. Returns how many were handled; 0: it waits, or it is over. */
static uint32_t phase_end(struct registrar *self, uint32_t slot)
{
    struct reg_reclaim *reclaim = &self->tier->disks[slot].reclaim;
    uint64_t now_ns = self->env->now_ns, end_ns = reclaim->back.deadline_ns;
    switch (reclaim->phase) {
    case REG_RECLAIM_CHOOSING:
        reclaim->phase = REG_RECLAIM_KEEPING;
        return 1;
    case REG_RECLAIM_READING:
        reclaim->phase = REG_RECLAIM_CHECKING;
        reclaim->cursor = 0;
        /* half of the time left; a request whose time is over is resent */
        reclaim->until_ns =
            sl_deadline_ns(now_ns, end_ns > now_ns ? SL_MIN(reclaim->wait_ns, (end_ns - now_ns) / 2)
                                                   : reclaim->wait_ns);
        reg_promotes_pump(self);
        return 1;
    case REG_RECLAIM_CHECKING:
        reclaim->phase = REG_RECLAIM_DELETING;
        self->tier->disks[slot].chosen_segment = self->units->going[slot];
        reclaim->until_ns = sl_deadline_ns(now_ns, DELETING_NS);
        reclaim_answer(self, slot, SL_OK);
        return 0;
    default:
        reg_log(self, SL_LOG_DEBUG, reclaim->back.trace_id,
                "log file segment.%u was deleted: %u places forgotten, %u values written again",
                self->units->going[slot], reclaim->cleared, reclaim->kept);
        sl_metric_add(self->env->metrics, self->tier->metric.rewritten_count, reclaim->kept);
        reclaim_answer(self, slot, SL_OK);
        reclaim_forget(self, slot);
        return 0;
    }
}

/* Handles the next record. Returns how many were handled; 0: it waits, or it is over. */
static uint32_t reclaim_step(struct registrar *self, uint32_t slot)
{
    struct reg_reclaim *reclaim = &self->tier->disks[slot].reclaim;
    struct sl_heap_item best;
    struct sl_entry entry;
    bool late = self->env->now_ns >= reclaim->until_ns;
    if (reclaim->phase == REG_RECLAIM_KEEPING) {
        if (sl_heap_pop(&reclaim->best, SL_NEVER_NS, &best)) {
            return unit_keep(self, slot, &best);
        }
        /* Records that were replaced meanwhile are noted at the end of the list. */
        reclaim->again = reg_segment_ref(self, slot, reclaim->cursor) != 0;
        reclaim->phase = reclaim->again ? REG_RECLAIM_CHOOSING : REG_RECLAIM_READING;
        reclaim->cursor = reclaim->again ? reclaim->cursor : 0;
    }
    bool checks = reclaim->phase == REG_RECLAIM_CHECKING;
    bool clears = reclaim->phase == REG_RECLAIM_CLEARING;
    /* The file stays: its values are read again. */
    if (reclaim->phase == REG_RECLAIM_DELETING && late) {
        reclaim_forget(self, slot);
    }
    if (reclaim->phase == REG_RECLAIM_NONE || reclaim->phase == REG_RECLAIM_DELETING ||
        (checks && !late && reclaim->left + reclaim->held_left > 0)) {
        return 0;
    }
    bool some = !checks || self->units->held_count > 0;
    sl_ref ref = clears ? reg_segment_take(self, slot)
                 : some ? reg_segment_ref(self, slot, reclaim->cursor)
                        : 0;
    if (ref == 0) {
        return phase_end(self, slot);
    }
    if (reg_segment_has(self, slot, ref, &entry)) {
        if (clears) {
            return record_clear(self, slot, &entry);
        }
        if (checks && is_held_on_disk_alone(self, &entry)) {
            if (late) {
                reclaim_answer(self, slot, SL_ERR_BUSY);
                reclaim_forget(self, slot);
            }
            return 0;
        }
        if (reclaim->phase == REG_RECLAIM_CHOOSING) {
            record_choose(self, reclaim, &entry);
        } else if (reclaim->phase == REG_RECLAIM_READING && entry.extent.generation == 0 &&
                   is_kept(self, &entry)) {
            record_read(self, reclaim, &entry);
        }
    }
    reclaim->cursor++;
    return 1;
}

static void reclaims_run(struct registrar *self)
{
    uint64_t from = self->retired->count;
    for (uint32_t i = 0; self->units->reclaim_count > 0 && i < REG_DISK_UNKNOWN; i++) {
        struct reg_reclaim *reclaim = &self->tier->disks[i].reclaim;
        uint32_t step = 1;
        reclaim->chosen = 0; /* its reference may be reused */
        for (uint32_t at = 0; step > 0 && at < RECLAIM_STEP; at += step) {
            step = reclaim->phase != REG_RECLAIM_NONE ? reclaim_step(self, i) : 0;
        }
        reclaim->continues_now = step > 0;
    }
    reg_retired_scan(self, from);
}

bool reg_reclaim_waits(const struct registrar *self, uint32_t slot, uint32_t number)
{
    const struct reg_reclaim *reclaim = &self->tier->disks[slot].reclaim;
    return reclaim->phase != REG_RECLAIM_NONE && reclaim->number == number;
}

void reg_reclaim_read(struct registrar *self, uint32_t slot, uint32_t number, bool held)
{
    struct reg_reclaim *reclaim = &self->tier->disks[slot].reclaim;
    if (reg_reclaim_waits(self, slot, number) && reclaim->left > 0) {
        reclaim->left--;
        reclaim->held_left -= held && reclaim->held_left > 0 ? 1 : 0;
    }
}

static uint64_t reclaims_next(const struct registrar *self)
{
    uint64_t next_ns = SL_NEVER_NS;
    for (uint32_t i = 0; self->units->reclaim_count > 0 && i < REG_DISK_UNKNOWN; i++) {
        const struct reg_reclaim *reclaim = &self->tier->disks[i].reclaim;
        if (reclaim->phase != REG_RECLAIM_NONE) {
            next_ns =
                SL_MIN(next_ns, reclaim->continues_now ? self->env->now_ns : reclaim->until_ns);
        }
    }
    return next_ns;
}

static void reclaims_fini(struct registrar *self)
{
    for (uint32_t i = 0; i < REG_DISK_UNKNOWN; i++) {
        reclaim_forget(self, i);
    }
}

/* ---- the part ---- */

static const struct reg_handler handlers[] = {
    {SL_MSG_DISK_RECLAIM, disk_reclaim},
};

const struct reg_part reg_reclaim_part = {
    .name = "reclaim",
    REG_HANDLERS(handlers),
    .fini = reclaims_fini,
    .disk_left = reclaim_forget,
    .after = reclaims_run,
    .next_ns = reclaims_next,
};
