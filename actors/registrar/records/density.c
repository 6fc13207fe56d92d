/* actors/registrar/records/density.c - the eviction policy that drops what earns least
 * (runtime/policy/density/).
 *
 * Units in memory are also in a list by recency. That list decides until something is learnt, and
 * holds units for which density has no memory. All other lists are by recency only. A block's
 * record also holds what density knows of the block, for the next registrar. */
#include "runtime/policy/density/density.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/records/gone.h"
#include "actors/registrar/records/order.h"
#include "actors/registrar/records/policy.h"
#include "actors/registrar/records/units.h"

#include <stdlib.h>

#define NOTE_WANTED 0x5741u /* of a block being written: how its request wants it */
#define NOTE_USED   0x7573u /* of a block that was in memory */
/* The time is noted every 2^STEP_SHIFT references; this number of times is kept. */
#define STEP_SHIFT 6u
#define STEP_COUNT 16384u
/* Blocks of returning sessions get memory of their own, besides that of retention, for this long
 * after the last such request. */
#define RETURNING_NS (600 * SL_NS_PER_S)
/* Kept units that are checked before their bytes are reported. */
#define KEPT_LOOKS 256u
/* The rate of references is measured over this number of them. */
#define RATE_REFERENCES UINT64_C(4096)
/* References between two notes of what was learnt: few at first. */
#define LEARNT_LEAST UINT64_C(1000)
#define LEARNT_MOST  UINT64_C(10000)
#define LEARNT_SHARE 8u /* of the references so far */

static bool is_hot(const struct registrar *self, const struct reg_order *list)
{
    return list == &self->units->hot;
}

static bool is_cold(const struct registrar *self, const struct reg_order *list)
{
    return list == &self->units->cold;
}

static void note_write(struct registrar *self, sl_ref unit, uint32_t number)
{
    struct sl_unit_note *note = sl_index_unit_note(self->index, unit);
    if (note != NULL) { /* objects without a block have no note */
        const struct sl_density_note now = sl_density_note(self->units->density, number);
        note->at = now.at;
        note->class_index = now.class_index;
        note->use_count = now.use_count;
        note->priority = (uint8_t)now.priority;
        note->hint = now.class_index / SL_DENSITY_KINDS;
        /* also if memory's share is full: a disk may keep it. Returning sessions are announced
         * again. */
        note->keep_s = now.keep.once ? 0 : now.keep.end_s;
        note->state = NOTE_USED;
    }
}

/* Ticks of retention, modulo 2^32: what density calls seconds. */
#define TICKS_A_SECOND UINT64_C(16)

static uint32_t now_ticks(const struct registrar *self)
{
    return (uint32_t)(self->env->now_ns / (SL_NS_PER_S / TICKS_A_SECOND));
}

static uint32_t unit_pages(struct registrar *self, sl_ref unit)
{
    uint64_t pages = reg_unit_space_bytes(self, unit, true) / SL_PAGE_BYTES;
    return (uint32_t)SL_MIN(pages, (uint64_t)REG_KEEP_PAGES_MAX);
}

uint64_t reg_units_memory_bytes(const struct registrar *self)
{
    struct sl_alloc_stats stats;
    sl_alloc_stats(self->alloc, &stats);
    return SL_MIN(stats.usable_bytes, self->space.contributed_bytes);
}

static void clock_set(struct registrar *self)
{
    uint64_t room_bytes = reg_units_memory_bytes(self);
    uint64_t bytes = room_bytes / SL_DENSITY_KEPT_SHARE;
    if (self->units->returning_at_ns != 0 &&
        self->env->now_ns - self->units->returning_at_ns < RETURNING_NS) {
        bytes += room_bytes / REG_RETURNING_SHARE;
    }
    sl_density_now(self->units->density, now_ticks(self), bytes / SL_PAGE_BYTES);
}

void reg_units_retention_check(struct registrar *self)
{
    if (self->units->density != NULL) {
        clock_set(self);
        sl_density_keep_check(self->units->density, KEPT_LOOKS);
    }
}

uint64_t reg_units_retained_bytes(const struct registrar *self)
{
    const struct sl_density *density = self->units->density;
    return density != NULL ? sl_density_stats(density).kept_pages * SL_PAGE_BYTES : 0;
}

/* Sets the clock before a reference, which releases units whose retention has ended. */
static void clock_before_use(struct registrar *self)
{
    if (sl_density_stats(self->units->density).kept_pages > 0) {
        clock_set(self);
    }
}

/* Ticks for which a unit that was in memory is still kept; 0: none. */
static uint32_t ticks_left(const struct registrar *self, const struct sl_unit_note *note)
{
    uint32_t left = note->keep_s - now_ticks(self);
    bool is_over = note->state != NOTE_USED || note->keep_s == 0 || left > (uint32_t)INT32_MAX;
    return is_over ? 0 : left;
}

/* Keeps a unit and those before it in its chain; once: until its next use. The others' notes are
 * written when they leave memory: a restart before that forgets them. */
static void unit_keep(struct registrar *self, uint32_t number, sl_ref unit, uint64_t ticks,
                      bool once)
{
    if (ticks > 0) {
        clock_set(self);
        const struct reg_keep keep = {.end_s = now_ticks(self) + (uint32_t)ticks,
                                      .pages = unit_pages(self, unit),
                                      .once = once};
        sl_density_keep(self->units->density, number, &keep);
    }
}

/* After a reference. */
static void time_note(struct registrar *self, uint64_t reference)
{
    self->units->wanted_at_ns[(reference >> STEP_SHIFT) % STEP_COUNT] = self->env->now_ns;
}

/* Time since the reference `back` references ago; 0: longer than is known. */
static uint64_t time_since(const struct registrar *self, uint64_t reference, uint64_t back)
{
    if (back >> STEP_SHIFT >= STEP_COUNT - 1 || back > reference) {
        return 0;
    }
    uint64_t at_ns = self->units->wanted_at_ns[((reference - back) >> STEP_SHIFT) % STEP_COUNT];
    return at_ns == 0 ? 0 : SL_MAX(self->env->now_ns - at_ns, UINT64_C(1));
}

double reg_units_references_a_second(const struct registrar *self)
{
    if (self->units->density == NULL) {
        return 0;
    }
    uint64_t count = sl_density_stats(self->units->density).reference_count;
    uint64_t back = SL_MIN(count, RATE_REFERENCES);
    uint64_t ns = time_since(self, count, back);
    return ns == 0 ? 0 : (double)back * (double)SL_NS_PER_S / (double)ns;
}

static uint64_t learnt_next(uint64_t references)
{
    return references + SL_MIN(SL_MAX(references / LEARNT_SHARE, LEARNT_LEAST), LEARNT_MOST);
}

/* For the next registrar. Without room in the index that one has only the older note. */
static void learnt_write(struct registrar *self, uint64_t references)
{
    unsigned char bytes[SL_DENSITY_SAVED_BYTES];
    sl_ref fresh = 0;
    self->units->learnt_at = learnt_next(references);
    uint32_t length_bytes = sl_density_save(self->units->density, bytes);
    if (sl_index_blob_put(self->index, bytes, length_bytes, REG_BLOB_LEARNT, &fresh, NULL) ==
        SL_OK) {
        if (self->units->learnt_note != 0) {
            sl_index_set_kind(self->index, self->units->learnt_note, SL_RECORD_FREE);
        }
        self->units->learnt_note = fresh;
    }
}

static void learnt_note(struct registrar *self)
{
    uint64_t references = sl_density_stats(self->units->density).reference_count;
    time_note(self, references);
    if (references >= self->units->learnt_at) {
        learnt_write(self, references);
    }
}

/* The contents of a unit's record, and the hash of its key. */
struct unit_record {
    uint64_t hash;
    struct sl_unit_note note;
    struct reg_wanted wanted;
};

static void unit_record_read(struct registrar *self, sl_ref unit, struct unit_record *out)
{
    const struct sl_unit_note *note = sl_index_unit_note(self->index, unit);
    out->hash = reg_unit_hash(self, unit);
    out->note = note != NULL ? *note : (struct sl_unit_note){0};
    out->wanted = (struct reg_wanted){
        .parent_hash = out->note.parent_hash,
        .stored_count = SL_MAX(out->note.stored_count, 1u),
        .cut = out->note.cut != 0,
        .hint = out->note.hint < REG_HINT_COUNT ? (enum reg_hint)out->note.hint : REG_HINT_NONE,
        .priority = out->note.priority < REG_PRIORITY_COUNT ? (enum reg_priority)out->note.priority
                                                            : REG_PRIORITY_NONE};
}

/* Restores a unit that existed before a restart. Without a note (an object, or a block of which
 * nothing was noted) it counts as just stored. */
static uint32_t unit_restore(struct registrar *self, const struct reg_order *list, sl_ref unit,
                             const struct unit_record *unit_record)
{
    const struct sl_unit_note *note = &unit_record->note;
    const struct reg_wanted *wanted = &unit_record->wanted;
    bool hot = is_hot(self, list);
    struct sl_density_was was = {
        .where = hot ? SL_DENSITY_MEMORY : SL_DENSITY_DISK,
        .user = unit,
        .parent_hash = hot ? note->parent_hash : 0,
        .note = {.hash = unit_record->hash,
                 .at = (uint32_t)sl_density_stats(self->units->density).reference_count,
                 .class_index =
                     (uint8_t)sl_density_class(1, wanted->stored_count, wanted->cut, wanted->hint),
                 .priority = wanted->priority}};
    if (note->state == NOTE_USED) {
        was.note.at = note->at;
        was.note.class_index = note->class_index;
        was.note.use_count = note->use_count;
        was.note.keep.end_s = note->keep_s;
        was.note.keep.pages = hot && ticks_left(self, note) > 0 ? unit_pages(self, unit) : 0;
    }
    return sl_density_restore(self->units->density, &was);
}

static void unit_entered(struct registrar *self, sl_ref unit, uint32_t number)
{
    if (number != 0) {
        sl_index_set_unit_number(self->index, unit, number);
        note_write(self, unit, number);
        learnt_note(self);
    }
}

static void density_placed(struct registrar *self, struct reg_order *list, sl_ref unit)
{
    struct sl_density *density = self->units->density;
    struct unit_record unit_record;
    reg_order_append(self, list, unit);
    if (!is_hot(self, list) && !is_cold(self, list)) {
        return;
    }
    if (self->units->restoring && is_cold(self, list) &&
        sl_index_unit_note(self->index, unit) == NULL) {
        return; /* nothing else is known than that it was stored; density_returned adds it */
    }
    unit_record_read(self, unit, &unit_record);
    if (self->units->restoring) {
        sl_density_expect(density, self->units->expected);
        self->units->expected = 0; /* only once */
        uint32_t number = unit_restore(self, list, unit, &unit_record);
        unit_entered(self, unit, is_hot(self, list) ? number : 0);
        return;
    }
    if (is_cold(self, list)) {
        sl_density_disk(density, unit_record.hash, true);
        return;
    }
    clock_before_use(self);
    uint32_t number = sl_density_enter(density, unit_record.hash, unit, &unit_record.wanted);
    if (number != 0 && unit_record.note.state == NOTE_WANTED) {
        unit_keep(self, number, unit, unit_record.note.keep_s * TICKS_A_SECOND, false);
    }
    unit_entered(self, unit, number);
}

/* Only its own entry: its predecessor's is in the cache, committed right before or after it. */
static void density_awaits(const struct registrar *self, uint64_t hash)
{
    sl_density_fetch(self->units->density, hash);
}

static void density_returned(struct registrar *self, struct reg_order *list, sl_ref unit,
                             bool wanted)
{
    struct unit_record unit_record;
    reg_order_append(self, list, unit);
    unit_record_read(self, unit, &unit_record);
    if (is_hot(self, list)) {
        /* Unknown since a restart: */
        if (sl_density_find(self->units->density, unit_record.hash) == 0) {
            sl_density_disk(self->units->density, unit_record.hash, true);
            sl_density_disk(self->units->density, unit_record.hash, false);
        }
        uint32_t number = sl_density_return(self->units->density, unit_record.hash, unit,
                                            &unit_record.wanted, wanted);
        if (number != 0) {
            unit_keep(self, number, unit, ticks_left(self, &unit_record.note), false);
        }
        unit_entered(self, unit, number);
    }
}

/* The unit's number; 0: density does not know it (another record has its hash, or no memory). */
static uint32_t own_number(struct registrar *self, sl_ref unit)
{
    uint32_t number = sl_index_unit_number(self->index, unit);
    return sl_density_owns(self->units->density, number, unit) ? number : 0;
}

static void number_judge(struct registrar *self, uint32_t number, struct reg_judgement *out)
{
    const struct sl_density_stats stats = sl_density_stats(self->units->density);
    const struct sl_density_note view = sl_density_note(self->units->density, number);
    if (view.use_count == 0) {
        return;
    }
    *out = (struct reg_judgement){
        .classed = true,
        .valued = stats.learnt,
        .class_index = view.class_index,
        .use_count = view.use_count,
        .age_references = (uint32_t)view.age_references,
        .value = (float)sl_density_value(self->units->density, number),
        .age_ns = time_since(self, stats.reference_count, view.age_references),
    };
}

static uint32_t any_number(const struct registrar *self, sl_ref unit)
{
    return sl_density_find(self->units->density, reg_unit_hash(self, unit));
}

static void density_judge(struct registrar *self, sl_ref unit, struct reg_judgement *out)
{
    number_judge(self, any_number(self, unit), out);
}

static void density_removed(struct registrar *self, struct reg_order *list, sl_ref unit)
{
    struct sl_density *density = self->units->density;
    uint32_t number = is_hot(self, list) ? own_number(self, unit) : 0;
    const struct sl_density_note now =
        sl_density_note(density, is_cold(self, list) ? any_number(self, unit) : number);
    reg_order_remove(self, list, unit);
    number_judge(self, number, &self->units->judged);
    if (number != 0) {
        self->units->judged_hash = now.hash;
        if (now.keep.end_s != 0) { /* how long to keep it, also on disk */
            note_write(self, unit, number);
        }
        sl_density_leave(density, number);
    } else if (is_cold(self, list)) {
        sl_density_disk(density, now.hash, false);
    }
    reg_gone_note(self, &now);
}

static void density_touched(struct registrar *self, struct reg_order *list, sl_ref unit)
{
    reg_order_to_newest(self, list, unit);
    uint32_t number = is_hot(self, list) ? own_number(self, unit) : 0;
    if (number != 0) {
        clock_before_use(self);
        sl_density_use(self->units->density, number, REG_HINT_NONE);
        unit_entered(self, unit, number);
    }
}

static void density_said(struct registrar *self, struct reg_order *list, sl_ref unit,
                         const struct sl_packed_hints *said)
{
    uint32_t number = is_hot(self, list) ? own_number(self, unit) : 0;
    if (number != 0) {
        sl_density_hint(self->units->density, number, (enum reg_hint)said->session,
                        (enum reg_priority)said->priority);
        unit_keep(self, number, unit, said->keep_ns / (SL_NS_PER_S / TICKS_A_SECOND), false);
        note_write(self, unit, number);
    }
}

static void density_returning(struct registrar *self, struct reg_order *list, sl_ref unit,
                              uint64_t for_ns)
{
    uint32_t number = is_hot(self, list) ? own_number(self, unit) : 0;
    if (number != 0) {
        unit_keep(self, number, unit, for_ns / (SL_NS_PER_S / TICKS_A_SECOND), true);
    }
}

static void density_sunk(struct registrar *self, struct reg_order *list, sl_ref unit)
{
    reg_order_to_oldest(self, list, unit);
    uint32_t number = is_hot(self, list) ? own_number(self, unit) : 0;
    if (number != 0) {
        sl_density_evict_first(self->units->density, number);
    }
}

static void density_renamed(struct registrar *self, sl_ref old, sl_ref fresh)
{
    uint32_t number = sl_index_unit_number(self->index, fresh);
    if (sl_density_owns(self->units->density, number, old)) {
        sl_density_set_user(self->units->density, number, fresh);
    }
}

/* Until something is learnt or has retention, recency decides. */
static bool is_ordered(const struct registrar *self)
{
    const struct sl_density_stats stats = sl_density_stats(self->units->density);
    return stats.learnt || stats.kept_pages > 0;
}

/* Dropping a victim reads memory at random places. Those are prefetched while earlier victims are
 * dropped; each step uses what the one before fetched. */
#define VICTIMS_AHEAD 3u

static void victims_prefetch(struct registrar *self)
{
    sl_ref next[VICTIMS_AHEAD];
    sl_density_after(self->units->density, next, VICTIMS_AHEAD);
    for (uint32_t i = 0; i < VICTIMS_AHEAD; i++) {
        reg_unit_prefetch_drop(self, next[i], VICTIMS_AHEAD - 1 - i);
    }
}

static sl_ref walk_give(struct registrar *self, struct reg_order *list, uint32_t number, bool goes)
{
    struct reg_units *units = self->units;
    if (number != 0) {
        sl_ref unit = sl_density_user(units->density, number);
        uint16_t flags = sl_index_links(self->index, unit)->flags;
        SL_ASSERT((flags & REG_FLAG_SKIPPED_LISTS) == REG_FLAG_HOT);
        victims_prefetch(self);
        return unit;
    }
    if (!units->by_recency) { /* then units that density does not know or skipped, oldest first */
        units->by_recency = true;
        return reg_order_first(self, list);
    }
    return reg_order_next(self, list, goes);
}

static sl_ref density_first(struct registrar *self, struct reg_order *list)
{
    self->units->by_recency = false;
    bool ordered = is_hot(self, list) && is_ordered(self);
    return walk_give(self, list, ordered ? sl_density_first(self->units->density) : 0, false);
}

static sl_ref density_next(struct registrar *self, struct reg_order *list, bool goes)
{
    bool learnt = is_hot(self, list) && !self->units->by_recency;
    return walk_give(self, list, learnt ? sl_density_next(self->units->density, goes) : 0, goes);
}

static sl_err density_begin(struct registrar *self, struct sl_error *why)
{
    const struct sl_density_options options = {.ghosts_min = SL_DENSITY_GHOSTS_MIN,
                                               .ghosts_max = SL_DENSITY_GHOSTS_MAX};
    self->units->wanted_at_ns = calloc(STEP_COUNT, sizeof(*self->units->wanted_at_ns));
    sl_err err = self->units->wanted_at_ns != NULL
                     ? sl_density_create(&options, &self->units->density)
                     : SL_ERR_NO_MEMORY;
    self->units->learnt_at = learnt_next(0);
    return err == SL_OK ? SL_OK : sl_fail(why, err, "no memory for the order of eviction");
}

static void density_end(struct registrar *self)
{
    sl_density_destroy(&self->units->density);
    free(self->units->wanted_at_ns);
    self->units->wanted_at_ns = NULL;
}

static void density_restored(struct registrar *self)
{
    clock_set(self);
    reg_gone_restored(self);
    sl_density_restored(self->units->density);
}

static void density_learn(struct registrar *self, sl_ref note, const void *bytes,
                          uint32_t length_bytes)
{
    /* The last registrar was killed before it freed the older note. */
    if (self->units->learnt_note != 0) {
        sl_index_set_kind(self->index, self->units->learnt_note, SL_RECORD_FREE);
    }
    self->units->learnt_note = note;
    if (sl_density_load(self->units->density, bytes, length_bytes)) {
        self->units->learnt_at =
            learnt_next(sl_density_stats(self->units->density).reference_count);
        return;
    }
    reg_log(self, SL_LOG_WARN, 0,
            "notes of what eviction learnt are of another version: they are not used");
}

static double density_worth(const struct registrar *self, sl_ref unit)
{
    return sl_density_value(self->units->density, any_number(self, unit));
}

static double density_worth_cut(const struct registrar *self, double share)
{
    bool learnt = sl_density_stats(self->units->density).learnt;
    return learnt ? sl_density_disk_cut(self->units->density, share) : -1.0;
}

static bool density_kept(const struct registrar *self, sl_ref unit)
{
    const struct sl_unit_note *note = sl_index_unit_note(self->index, unit);
    return note != NULL && ticks_left(self, note) > 0;
}

static double density_chance(const struct registrar *self, sl_ref unit, uint64_t references)
{
    return sl_density_chance(self->units->density, any_number(self, unit), references);
}

const struct reg_policy reg_policy_density = {
    .name = "density",
    .placed = density_placed,
    .awaits = density_awaits,
    .removed = density_removed,
    .judge = density_judge,
    .returned = density_returned,
    .worth = density_worth,
    .worth_cut = density_worth_cut,
    .kept = density_kept,
    .chance = density_chance,
    .touched = density_touched,
    .said = density_said,
    .returning = density_returning,
    .sunk = density_sunk,
    .renamed = density_renamed,
    .first = density_first,
    .next = density_next,
    .restored = density_restored,
    .learn = density_learn,
    .begin = density_begin,
    .end = density_end,
};

void reg_unit_want(struct registrar *self, sl_ref group, const struct sl_item_group *want)
{
    *sl_index_unit_note(self->index, group) =
        (struct sl_unit_note){.parent_hash = want->parent_hash,
                              .stored_count = (uint8_t)SL_MIN(want->stored_count, UINT8_MAX),
                              .cut = want->cut,
                              .hint = (uint8_t)want->hint,
                              .priority = (uint8_t)want->priority,
                              .keep_s = (uint32_t)((want->keep_ns + SL_NS_PER_S - 1) / SL_NS_PER_S),
                              .state = NOTE_WANTED};
}
