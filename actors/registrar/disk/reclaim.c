/* actors/registrar/disk/reclaim.c - DISK_RECLAIM: the oldest segment of a disk goes. What nobody
 * wanted lately leaves with it, what somebody did is written anew, to the log's end.
 *
 * What is kept and on disk alone is read into memory first, behind all other reads. When all of that
 * has come, or after a moment without it, the places in the segment are cleared, some in a turn, and
 * write-behind treats what was kept like any new value. When none is left the reclaim is answered.
 * Should the tierer die before, what was not cleared has its place still. What a hand-over holds is
 * kept whatever its size and waited for longer; a segment from which it cannot be read stays
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
#include <string.h>

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

#define RECLAIM_STEP 1024u /* records looked at in a turn */
/* Keys of the heap, the first one first: WORTH_KEY - worth, as bits of a double; behind them the same
 * for what no engine wants kept. */
#define WORTH_KEY UINT64_C(0x7ff0000000000000)
#define UNSAID    (UINT64_C(1) << 63)
/* Bits of hashes for each disk. After a segment of 262,144 values, the most that fit, one key in 32 that
 * was not among them seems to be, and its removal waits for a tombstone that forgets nothing. */
#define CLEARED_BITS  (UINT32_C(1) << 23)
#define CLEARED_WORDS (CLEARED_BITS / 64)

enum reg_reclaim_phase reg_reclaim_phase(const struct registrar *self,
                                         const struct sl_disk_place *place)
{
    const struct reg_reclaim *reclaim = &self->tier->disks[place->disk].reclaim;
    bool there = place->valid != 0 && place->segment == reclaim->segment;
    return there ? reclaim->phase : REG_RECLAIM_NONE;
}

static uint64_t *cleared_word(const struct registrar *self, uint32_t slot, uint64_t hash)
{
    return &self->tier->cleared_keys[slot * CLEARED_WORDS + (hash % CLEARED_BITS) / 64];
}

void reg_reclaim_clear(struct registrar *self, uint32_t slot, struct sl_key key)
{
    uint64_t hash = reg_hash(key.at, key.length);
    *cleared_word(self, slot, hash) |= UINT64_C(1) << hash % 64;
}

bool reg_reclaim_cleared(const struct registrar *self, uint32_t slot, struct sl_key key)
{
    bool some = self->tier->disks[slot].cleared_segment != 0;
    uint64_t hash = some ? reg_hash(key.at, key.length) : 0;
    return some && (*cleared_word(self, slot, hash) >> hash % 64 & 1) != 0;
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

static bool unit_is_held(struct registrar *self, sl_ref unit)
{
    return (sl_index_links(self->index, unit)->flags & REG_FLAG_HELD) != 0;
}

/* A block may have parts in segments of several disks that go at the same time: each has a bit of its
 * own in the block's record, which has nothing on disk itself. */
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

/* Puts the record's unit in the heap, if it is to be kept should there be room. */
static void record_choose(struct registrar *self, struct reg_reclaim *reclaim,
                          const struct sl_entry *entry)
{
    sl_ref unit = reg_unit_of(entry);
    if (!reclaim->again) {
        unit_mark(self, unit, entry->disk.disk, false); /* of a time before */
    }
    if (unit == reclaim->chosen || is_kept(self, entry)) {
        return; /* with another part */
    }
    bool wanted = unit_is_held(self, unit) || entry->hard_pin ||
                  entry->soft_pin_end_ns > self->env->now_ns || reg_unit_leased(self, unit) != 0;
    double worth = wanted ? INFINITY : unit_worth(self, unit, reclaim->cut);
    bool said = self->units->policy->kept != NULL && self->units->policy->kept(self, unit);
    if (worth > 0.0 || said) {
        uint64_t bits;
        memcpy(&bits, &worth, sizeof(bits));
        uint64_t key = (WORTH_KEY - bits) | (wanted || said ? 0 : UNSAID);
        /* without memory for it, it goes */
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

/* Marks the unit of a record that came out of the heap, if there is room. What is held and would go is
 * kept whatever its size; what an engine wants kept has a share of the room, and after that what it is
 * worth counts. Gives how many records were looked at. */
static uint32_t unit_keep(struct registrar *self, uint32_t slot, const struct sl_heap_item *best)
{
    struct reg_reclaim *reclaim = &self->tier->disks[slot].reclaim;
    struct sl_entry entry;
    if (!reg_segment_has(self, slot, reclaim->segment, best->id, &entry) || is_kept(self, &entry)) {
        return 1;
    }
    sl_ref unit = reg_unit_of(&entry);
    struct reg_room want = {0};
    struct reg_unit_parts parts;
    reg_unit_parts(self, unit, &parts);
    for (uint32_t i = 0; i < parts.count; i++) {
        if (reg_segment_has(self, slot, reclaim->segment, parts.refs[i], &entry)) {
            uint64_t bytes = sl_extent_space(entry.extent.length_bytes);
            want.bytes += bytes;
            want.read_bytes += entry.extent.generation != 0 ? 0 : bytes;
        }
    }
    bool held = want.read_bytes > 0 && unit_is_held(self, unit);
    bool said = best->at_ns != 0 && best->at_ns < UNSAID;
    reclaim->wait_ns = held ? HELD_WAIT_NS : reclaim->wait_ns;
    if (!held && said && !room_take(&reclaim->said, want)) {
        if (best->at_ns < WORTH_KEY) {
            struct sl_heap_item again = {.at_ns = best->at_ns | UNSAID, .id = best->id};
            (void)sl_heap_add(&reclaim->best, again); /* its room was just left */
        }
    } else if (held || room_take(&reclaim->room, want)) {
        unit_mark(self, unit, slot, true);
    }
    return parts.count;
}

/* Asks for a kept record that is on disk alone. */
static void record_read(struct registrar *self, struct reg_reclaim *reclaim,
                        const struct sl_entry *entry)
{
    uint32_t arrival = reg_arrival_find(self, entry);
    bool held = is_held_on_disk_alone(self, entry);
    if (arrival == REG_NONE) {
        arrival = reg_arrival_make(self, entry, !held);
    } else if (self->promotion->arrivals[arrival].kept_for == reclaim->number) {
        return; /* it is noted twice in the segment */
    }
    reclaim->held_left += held;
    if (arrival == REG_NONE) {
        return; /* too much is being read: it goes, or the segment stays */
    }
    if (held) {
        reg_arrival_raise(self, arrival);
        self->promotion->arrivals[arrival].held = true;
    }
    self->promotion->arrivals[arrival].kept_for = reclaim->number;
    reclaim->left++;
    if (self->promotion->arrivals[arrival].ahead && !self->promotion->arrivals[arrival].reading) {
        reg_arrival_unqueue(self, arrival);
        reg_arrival_prepend(self, arrival);
    }
}

static void reclaim_begin(struct registrar *self, uint32_t slot, const struct sl_msg *msg)
{
    struct reg_disk *disk = &self->tier->disks[slot];
    struct reg_reclaim *reclaim = &disk->reclaim;
    const struct reg_policy *policy = self->units->policy; /* without: by when it was wanted last */
    double cut = policy->worth_cut != NULL ? policy->worth_cut(self, KEEP_WORTH_SHARE) : -1.0;
    double share = (cut < 0.0 ? KEEP_SHARE_WANTED : KEEP_SHARE_WORTH) * reg_admission_share(self);
    double said_share = KEEP_SHARE_SAID * reg_admission_share(self);
    double segment_bytes = (double)self->tier->segment_bytes;
    uint64_t read_bytes = self->set.memory / KEEP_MEMORY_SHARE;
    self->tier->reclaim_number += self->tier->reclaim_number == UINT32_MAX ? 2 : 1; /* never 0 */
    *reclaim = (struct reg_reclaim){
        .phase = REG_RECLAIM_CHOOSING,
        .segment = (uint32_t)msg->body.disk_reclaim.segment,
        .number = self->tier->reclaim_number,
        .cut = cut,
        .room = {.bytes = (uint64_t)(segment_bytes * share), .read_bytes = read_bytes},
        .said = {.bytes = (uint64_t)(segment_bytes * said_share), .read_bytes = read_bytes},
        .wait_ns = KEEP_WAIT_NS,
        .until_ns = SL_NEVER_NS, /* until it waits */
    };
    if (reclaim->segment > disk->cleared_segment) { /* the file of the one before has gone */
        disk->cleared_segment = reclaim->segment;
        memset(cleared_word(self, slot, 0), 0, CLEARED_BITS / 8);
    }
    sl_return_keep(msg, &reclaim->back);
    self->units->reclaim_count++;
}

static void reclaim_finish(struct registrar *self, uint32_t slot)
{
    struct reg_reclaim *reclaim = &self->tier->disks[slot].reclaim;
    struct reg_disk *disk = &self->tier->disks[slot];
    disk->gone_segment = SL_MAX(disk->gone_segment, reclaim->segment);
    reg_log(
        self, SL_LOG_DEBUG, reclaim->back.trace_id,
        "segment %u leaves the disk: %u places forgotten, %u values written anew, %u not read in "
        "time",
        reclaim->segment, reclaim->cleared, reclaim->kept, reclaim->left);
    sl_metric_add(self->env->metrics, self->tier->metric.rewritten_count, reclaim->kept);
    struct sl_msg reply = {.code = SL_OK};
    sl_return_reply(self->env, &reclaim->back, &reply);
    reg_reclaim_forget(self, slot);
}

/* Gives how many places it took. */
static uint32_t record_clear(struct registrar *self, uint32_t slot, const struct sl_entry *entry)
{
    struct reg_reclaim *reclaim = &self->tier->disks[slot].reclaim;
    struct reg_drop how = {.reason = REG_GHOST_DISK_RECLAIMED, .forget = true};
    bool again = entry->extent.generation != 0 && is_kept(self, entry);
    uint64_t places = self->tier->place_count;
    reclaim->kept += again;
    self->space.freed = true;
    reg_place_clear(self, entry, &how, !again);
    places -= self->tier->place_count; /* with those of its block */
    reclaim->cleared += (uint32_t)places;
    return SL_MAX((uint32_t)places, 1u);
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
    if (reclaim->phase != REG_RECLAIM_NONE && reclaim->segment == msg->body.disk_reclaim.segment) {
        sl_return_keep(msg, &reclaim->back); /* asked again */
        return;
    }
    reg_reclaim_forget(self, slot);
    reclaim_begin(self, slot, msg);
}

/* Looks at the next record. Gives how many were looked at; 0: it waits, or it is over. */
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
        /* Records that became others meanwhile are noted at the end. */
        reclaim->again = reg_segment_ref(self, slot, reclaim->segment, reclaim->cursor) != 0;
        reclaim->phase = reclaim->again ? REG_RECLAIM_CHOOSING : REG_RECLAIM_READING;
        reclaim->cursor = reclaim->again ? reclaim->cursor : 0;
    }
    if (reclaim->phase == REG_RECLAIM_CHECKING && !late && reclaim->left + reclaim->held_left > 0) {
        return 0;
    }
    bool clears = reclaim->phase == REG_RECLAIM_CLEARING;
    bool checked = reclaim->phase == REG_RECLAIM_CHECKING && self->units->held_count == 0;
    sl_ref ref = clears    ? reg_segment_take(self, slot, reclaim->segment)
                 : checked ? 0
                           : reg_segment_ref(self, slot, reclaim->segment, reclaim->cursor);
    if (ref == 0 && clears) {
        reclaim_finish(self, slot);
        return 0;
    }
    if (ref == 0) { /* the next phase */
        reclaim->cursor = reclaim->phase == REG_RECLAIM_CHOOSING ? reclaim->cursor : 0;
        if (reclaim->phase++ == REG_RECLAIM_READING) {
            uint64_t now_ns = self->env->now_ns, end_ns = reclaim->back.deadline_ns;
            uint64_t left_ns =
                end_ns > now_ns ? end_ns - now_ns : SL_NEVER_NS; /* else asked again */
            reclaim->until_ns = sl_deadline_ns(now_ns, SL_MIN(reclaim->wait_ns, left_ns / 2));
            reg_promotes_pump(self);
        }
        return 1;
    }
    bool there = reg_segment_has(self, slot, reclaim->segment, ref, &entry);
    if (there && reclaim->phase == REG_RECLAIM_CHOOSING) {
        record_choose(self, reclaim, &entry);
    } else if (there && reclaim->phase == REG_RECLAIM_READING) {
        if (entry.extent.generation == 0 && is_kept(self, &entry)) {
            record_read(self, reclaim, &entry);
        }
    } else if (there && is_held_on_disk_alone(self, &entry)) { /* holds begin and end meanwhile */
        if (clears) {
            reg_segment_note(self, ref, &entry.disk, false);
        }
        if (late) {
            reclaim_refuse(self, slot);
        }
        return 0;
    } else if (there && clears) {
        return record_clear(self, slot, &entry);
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
        reclaim->chosen = 0; /* it may be another unit by now */
        for (uint32_t at = 0; step > 0 && at < RECLAIM_STEP; at += step) {
            step = reclaim->phase != REG_RECLAIM_NONE ? reclaim_step(self, i) : 0;
        }
        reclaim->goes_on = step > 0;
    }
    reg_retired_scan(self, from);
}

void reg_reclaim_forget(struct registrar *self, uint32_t slot)
{
    struct reg_reclaim *reclaim = &self->tier->disks[slot].reclaim;
    self->units->reclaim_count -= reclaim->phase != REG_RECLAIM_NONE;
    reclaim->phase = REG_RECLAIM_NONE;
    sl_heap_fini(&reclaim->best);
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
            next_ns = SL_MIN(next_ns, reclaim->goes_on ? self->env->now_ns : reclaim->until_ns);
        }
    }
    return next_ns;
}

static sl_err reclaims_init(struct registrar *self, struct sl_error *why)
{
    struct reg_tier *tier = self->tier; /* pages that no reclaim writes take no memory */
    tier->cleared_keys = tier->on ? calloc(REG_DISKS_MAX * CLEARED_WORDS, sizeof(uint64_t)) : NULL;
    return tier->on && tier->cleared_keys == NULL
               ? sl_fail(why, SL_ERR_NO_MEMORY, "keys of segments that are reclaimed")
               : SL_OK;
}

static void reclaims_fini(struct registrar *self)
{
    free(self->tier->cleared_keys);
    for (uint32_t i = 0; i < REG_DISK_UNKNOWN; i++) {
        reg_reclaim_forget(self, i);
    }
}

/* ---- the part ---- */

static const struct reg_handler handlers[] = {
    {SL_MSG_DISK_RECLAIM, disk_reclaim},
};

const struct reg_part reg_reclaim_part = {
    .name = "reclaim",
    REG_HANDLERS(handlers),
    .init = reclaims_init,
    .fini = reclaims_fini,
    .after = reclaims_run,
    .next_ns = reclaims_next,
};
