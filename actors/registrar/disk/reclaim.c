/* actors/registrar/disk/reclaim.c - DISK_RECLAIM: the oldest segment of a disk goes. What nobody
 * wanted lately leaves with it, what somebody did is written anew, to the log's end.
 *
 * What is kept and on disk alone is read into memory first, behind all other reads. The reclaim is
 * answered when all of that has come, or after a moment without it; the places in the segment are
 * cleared in the same step, and then write-behind treats what was kept like any new value. Until
 * then nothing has changed: should anybody die, everything is where it was. What a hand-over holds
 * is kept whatever its size and waited for longer; a segment from which it cannot be read stays
 * (SL_ERR_BUSY: the tierer asks again). */
#include "actors/registrar/disk/reclaim.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/admission.h"
#include "actors/registrar/disk/disks.h"
#include "actors/registrar/disk/promote.h"
#include "actors/registrar/disk/scan.h"
#include "actors/registrar/disk/segments.h"
#include "actors/registrar/records/ghosts.h"
#include "actors/registrar/records/leases.h"
#include "actors/registrar/records/retired.h"
#include "actors/registrar/records/units.h"
#include "runtime/density/density.h"

#include <math.h>
#include <stdlib.h>

/* Of a segment, so much at most is written anew: a working set larger than the disk would be
 * written round and round. More where the policy knows what is worth it: with half of a segment, and
 * what is worth more than 0.7 of all on disk alone, a replay of the conversation trace (5,000 blocks
 * in memory, 20,000 on disk) hit 28.5 % and wrote 2.1 GiB; with a quarter, and more than half, 28.2
 * and 2.1; by when a value was wanted last 27.9 and 1.8. */
#define KEEP_SHARE_WANTED 0.25
#define KEEP_SHARE_WORTH  0.5
#define KEEP_WORTH_SHARE  0.3
/* Of these, what engines want kept comes first, up to so much of a segment, whatever it is worth; as in
 * memory, what is said wrongly costs little. */
#define KEEP_SHARE_SAID   (1.0 / SL_DENSITY_KEPT_SHARE)
#define KEEP_MEMORY_SHARE 16u /* and of memory, so much at most is taken for it at a time */
/* Without a worth, who was wanted before half of the disk was written stays behind. Without this
 * limit a model of the conversation trace has as many hits, and writes 1.4 to 3 times as many values
 * anew. */
#define KEEP_AGE_MAX (REG_WANTED_TICKS / 2)
/* Writers may wait for the room. A disk reads a quarter of a segment in a fraction of it. */
#define KEEP_WAIT_NS (250 * SL_NS_PER_MS)
/* A disk that cannot read what is held within this time fails; half of the tierer's patience bounds
 * it, too. */
#define HELD_WAIT_NS (4 * SL_NS_PER_S)

struct kept { /* a unit with parts in the segment */
    sl_ref unit;
    double worth; /* the most worth stays */
    bool held;
    bool said;                  /* an engine wants it kept, and its time is not over */
    uint64_t bytes, read_bytes; /* of these parts; of those on disk alone */
};

static int kept_by_unit(const void *left, const void *right)
{
    const struct kept *a = left;
    const struct kept *b = right;
    return (a->unit > b->unit) - (a->unit < b->unit);
}

static int kept_by_worth(const void *left, const void *right)
{
    const struct kept *a = left;
    const struct kept *b = right;
    int order = (a->worth < b->worth) - (a->worth > b->worth);
    return order != 0 ? order : kept_by_unit(left, right);
}

/* 0: it is not worth to be written anew. */
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

/* The worth that a unit has to be above; negative: it is judged by when it was wanted last. */
static double worth_cut(struct registrar *self)
{
    const struct reg_policy *policy = self->units->policy;
    return policy->worth_cut != NULL ? policy->worth_cut(self, KEEP_WORTH_SHARE) : -1.0;
}

static bool placed_there(struct registrar *self, sl_ref ref, uint32_t slot, uint32_t segment,
                         struct sl_entry *entry)
{
    if (!sl_index_ref_live(self->index, ref)) {
        return false; /* went with another part of its block */
    }
    sl_index_read(self->index, ref, entry);
    return entry->kind == SL_RECORD_COMMITTED && entry->disk.valid != 0 &&
           entry->disk.disk == slot && entry->disk.segment == segment;
}

static bool unit_is_held(struct registrar *self, sl_ref unit)
{
    return (sl_index_links(self->index, unit)->flags & REG_FLAG_HELD) != 0;
}

/* Units that are to be kept if there is room, the most worth first, once each. Gives how many. */
static uint32_t kept_find(struct registrar *self, uint32_t slot, uint32_t segment,
                          const sl_ref *refs, uint32_t count, double cut, struct kept *out)
{
    uint32_t found = 0;
    uint32_t units = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct sl_entry entry;
        if (!placed_there(self, refs[i], slot, segment, &entry)) {
            continue;
        }
        sl_ref unit = reg_unit_of(&entry);
        bool held = unit_is_held(self, unit);
        bool wanted = held || entry.hard_pin || entry.soft_pin_end_ns > self->env->now_ns ||
                      reg_unit_leased(self, unit) != 0;
        double worth = wanted ? INFINITY : unit_worth(self, unit, cut);
        bool said = self->units->policy->kept != NULL && self->units->policy->kept(self, unit);
        sl_index_links(self->index, unit)->flags &= (uint16_t)~REG_FLAG_KEPT; /* of a time before */
        uint64_t bytes = sl_extent_space(entry.extent.length_bytes);
        if (worth > 0.0 || said) {
            out[found++] = (struct kept){.unit = unit,
                                         .worth = worth,
                                         .held = held,
                                         .said = said,
                                         .bytes = bytes,
                                         .read_bytes = entry.extent.generation != 0 ? 0 : bytes};
        }
    }
    qsort(out, found, sizeof(*out), kept_by_unit);
    for (uint32_t i = 0; i < found; i++) {
        if (units > 0 && out[units - 1].unit == out[i].unit) {
            out[units - 1].bytes += out[i].bytes;
            out[units - 1].read_bytes += out[i].read_bytes;
        } else {
            out[units++] = out[i];
        }
    }
    qsort(out, units, sizeof(*out), kept_by_worth);
    return units;
}

struct room {
    uint64_t bytes, read_bytes;
};

static bool room_take(struct room *room, const struct kept *unit)
{
    if (unit->bytes > room->bytes || unit->read_bytes > room->read_bytes) {
        return false;
    }
    room->bytes -= unit->bytes;
    room->read_bytes -= unit->read_bytes;
    return true;
}

static void unit_mark(struct registrar *self, struct room *room, const struct kept *unit)
{
    uint16_t *flags = &sl_index_links(self->index, unit->unit)->flags;
    if ((*flags & REG_FLAG_KEPT) == 0 && room_take(room, unit)) {
        *flags |= REG_FLAG_KEPT;
    }
}

/* Marks those that were wanted last, as many as may be kept, and all that is held and would go: its
 * bytes have a bound of their own. True: something held has to be read. */
static bool kept_mark(struct registrar *self, const struct kept *units, uint32_t count, double cut)
{
    uint64_t segment = self->tier->segment_bytes;
    double share = (cut < 0.0 ? KEEP_SHARE_WANTED : KEEP_SHARE_WORTH) * reg_admission_share(self);
    struct room room = {.bytes = (uint64_t)((double)segment * share),
                        .read_bytes = self->set.memory / KEEP_MEMORY_SHARE};
    double said_share = KEEP_SHARE_SAID * reg_admission_share(self);
    struct room said = {.bytes = (uint64_t)((double)segment * said_share),
                        .read_bytes = room.read_bytes};
    bool held = false;
    for (uint32_t i = 0; i < count; i++) {
        if (units[i].held && units[i].read_bytes > 0) {
            sl_index_links(self->index, units[i].unit)->flags |= REG_FLAG_KEPT;
            held = true;
        } else if (!(units[i].worth < INFINITY) || (units[i].said && room_take(&said, &units[i]))) {
            unit_mark(self, &room, &units[i]);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        if (units[i].worth > 0.0 && units[i].worth < INFINITY) {
            unit_mark(self, &room, &units[i]);
        }
    }
    return held;
}

static bool is_kept(struct registrar *self, const struct sl_entry *entry)
{
    return (sl_index_links(self->index, reg_unit_of(entry))->flags & REG_FLAG_KEPT) != 0;
}

/* Asks for the kept ones that are on disk alone. */
static void kept_read(struct registrar *self, uint32_t slot, const sl_ref *refs, uint32_t count)
{
    struct reg_reclaim *reclaim = &self->tier->disks[slot].reclaim;
    for (uint32_t i = 0; i < count; i++) {
        struct sl_entry entry;
        if (!placed_there(self, refs[i], slot, reclaim->segment, &entry) ||
            entry.extent.generation != 0 || !is_kept(self, &entry)) {
            continue;
        }
        uint32_t arrival = reg_arrival_find(self, &entry);
        bool held = unit_is_held(self, reg_unit_of(&entry));
        if (arrival == REG_NONE) {
            arrival = reg_arrival_make(self, &entry, !held);
        }
        reclaim->held_left += held;
        if (arrival == REG_NONE) {
            continue; /* too much is being read: it goes, or the segment stays */
        }
        if (held) {
            reg_arrival_raise(self, arrival);
            self->promotion->arrivals[arrival].held = true;
        }
        self->promotion->arrivals[arrival].kept_for = reclaim->number;
        reclaim->left++;
        if (self->promotion->arrivals[arrival].ahead &&
            !self->promotion->arrivals[arrival].reading) {
            reg_arrival_unqueue(self, arrival);
            reg_arrival_prepend(self, arrival);
        }
    }
}

static void reclaim_begin(struct registrar *self, uint32_t slot, const struct sl_msg *msg)
{
    struct reg_reclaim *reclaim = &self->tier->disks[slot].reclaim;
    uint64_t patience_ns = msg->budget_ns / 2;
    self->tier->reclaim_number += self->tier->reclaim_number == UINT32_MAX ? 2 : 1; /* never 0 */
    *reclaim = (struct reg_reclaim){
        .active = true,
        .segment = (uint32_t)msg->body.disk_reclaim.segment,
        .number = self->tier->reclaim_number,
        .until_ns = sl_deadline_ns(self->env->now_ns, SL_MIN(KEEP_WAIT_NS, patience_ns)),
    };
    sl_return_keep(msg, &reclaim->back);
    self->units->reclaim_count++;
    uint32_t count = 0;
    const sl_ref *refs = reg_segment_refs(self, slot, reclaim->segment, &count);
    struct kept *units = count == 0 ? NULL : malloc(count * sizeof(*units));
    if (units != NULL) { /* else nothing is kept */
        double cut = worth_cut(self);
        uint32_t found = kept_find(self, slot, reclaim->segment, refs, count, cut, units);
        if (kept_mark(self, units, found, cut)) {
            reclaim->until_ns =
                sl_deadline_ns(self->env->now_ns, SL_MIN(HELD_WAIT_NS, patience_ns));
        }
        kept_read(self, slot, refs, count);
    }
    free(units);
}

static void reclaim_finish(struct registrar *self, uint32_t slot)
{
    struct reg_reclaim *reclaim = &self->tier->disks[slot].reclaim;
    struct reg_drop how = {.reason = REG_GHOST_DISK_RECLAIMED, .forget = true};
    uint64_t from = self->retired->count;
    sl_ref *refs;
    uint32_t count;
    uint32_t kept = 0;
    reg_segment_gone(self, slot, reclaim->segment);
    reg_segment_take(self, slot, reclaim->segment, &refs, &count);
    for (uint32_t i = 0; i < count; i++) {
        struct sl_entry entry;
        if (placed_there(self, refs[i], slot, reclaim->segment, &entry)) {
            bool again = entry.extent.generation != 0 && is_kept(self, &entry);
            kept += again;
            sl_ref there = reg_place_clear(self, &entry, &how, !again);
            if (there != 0) { /* until the file is gone; a tierer that dies first finds it whole */
                sl_index_links(self->index, there)->disks |= REG_DISK_BIT(slot);
            }
        }
    }
    free(refs);
    reg_retired_scan(self, from);
    self->space.freed = true;
    reg_log(
        self, SL_LOG_DEBUG, reclaim->back.trace_id,
        "segment %u leaves the disk: %u places forgotten, %u values written anew, %u not read in "
        "time",
        reclaim->segment, count, kept, reclaim->left);
    sl_metric_add(self->env->metrics, self->tier->metric.rewritten_count, kept);
    struct sl_msg reply = {.code = SL_OK};
    sl_return_reply(self->env, &reclaim->back, &reply);
    reclaim->active = false;
    self->units->reclaim_count--;
}

/* Whether something that is held would go with the segment; holds begin and end meanwhile. */
static bool reclaim_would_lose(struct registrar *self, uint32_t slot)
{
    const struct reg_reclaim *reclaim = &self->tier->disks[slot].reclaim;
    uint32_t count = 0;
    const sl_ref *refs = reg_segment_refs(self, slot, reclaim->segment, &count);
    for (uint32_t i = 0; self->units->held_count > 0 && i < count; i++) {
        struct sl_entry entry;
        if (placed_there(self, refs[i], slot, reclaim->segment, &entry) &&
            entry.extent.generation == 0 && unit_is_held(self, reg_unit_of(&entry))) {
            return true;
        }
    }
    return false;
}

static void reclaim_refuse(struct registrar *self, uint32_t slot)
{
    const struct reg_reclaim *reclaim = &self->tier->disks[slot].reclaim;
    struct sl_msg reply = {.code = SL_ERR_BUSY};
    reply.text = sl_text_of("what a hand-over holds could not be read");
    reg_log(self, SL_LOG_WARN, reclaim->back.trace_id,
            "segment %u of tierer.%u stays: what a hand-over holds there could not be read",
            reclaim->segment, self->tier->disks[slot].path);
    sl_return_reply(self->env, &reclaim->back, &reply);
    reg_reclaim_forget(self, slot);
}

static void disk_reclaim(struct registrar *self, const struct sl_msg *msg)
{
    uint32_t path = reg_path_of(self, msg);
    uint32_t slot = path == REG_NONE ? REG_NONE : self->tier->paths[path].disk;
    struct sl_error why = {0};
    if (slot == REG_NONE) { /* one that has not told which disk it serves asks again */
        sl_reply_code(self->env, msg,
                      path == REG_NONE
                          ? sl_fail(&why, SL_ERR_PERMISSION, "%s is no tierer", msg->sender.at)
                          : sl_fail(&why, SL_ERR_BUSY, "no scan of %s has begun", msg->sender.at),
                      &why);
        return;
    }
    struct reg_reclaim *reclaim = &self->tier->disks[slot].reclaim;
    if (reclaim->active && reclaim->segment == msg->body.disk_reclaim.segment) {
        sl_return_keep(msg, &reclaim->back); /* asked again */
        return;
    }
    reg_reclaim_forget(self, slot);
    reclaim_begin(self, slot, msg);
}

/* ends those that wait for nothing any more */
static void reclaims_run(struct registrar *self)
{
    for (uint32_t i = 0; self->units->reclaim_count > 0 && i < REG_DISK_UNKNOWN; i++) {
        const struct reg_reclaim *reclaim = &self->tier->disks[i].reclaim;
        bool late = self->env->now_ns >= reclaim->until_ns;
        if (!reclaim->active || (!late && reclaim->left + reclaim->held_left > 0)) {
            continue;
        }
        if (!reclaim_would_lose(self, i)) {
            reclaim_finish(self, i);
        } else if (late) {
            reclaim_refuse(self, i);
        }
    }
}

void reg_reclaim_forget(struct registrar *self, uint32_t slot)
{
    struct reg_reclaim *reclaim = &self->tier->disks[slot].reclaim;
    self->units->reclaim_count -= reclaim->active;
    reclaim->active = false;
}

bool reg_reclaim_waits(const struct registrar *self, uint32_t slot, uint32_t number)
{
    const struct reg_reclaim *reclaim = &self->tier->disks[slot].reclaim;
    return reclaim->active && reclaim->number == number;
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
        if (self->tier->disks[i].reclaim.active) {
            next_ns = SL_MIN(next_ns, self->tier->disks[i].reclaim.until_ns);
        }
    }
    return next_ns;
}

/* ---- the part ---- */

static const struct reg_handler handlers[] = {
    {SL_MSG_DISK_RECLAIM, disk_reclaim},
};

const struct reg_part reg_reclaim_part = {
    .name = "reclaim",
    REG_HANDLERS(handlers),
    .after = reclaims_run,
    .next_ns = reclaims_next,
};
