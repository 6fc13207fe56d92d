/* runtime/density/density_kept.c - units that are kept for a time, those on disk alone, and what the next
 * registrar is told. */
#include "runtime/density/density_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What is known of those that are kept leans on what others are worth, with the weight of so many hits. */
#define TRUST_HITS 30.0
/* Of the part of memory that they may take at most this much is left to them always. */
#define TRUST_MIN (1.0 / 16.0)
/* With more that go on from a unit than this, one of them is taken to be kept. */
#define CHILDREN_MAX 64u
/* A note of the last registrar is at most so far behind what it knew. */
#define CLOCK_AHEAD_MAX (UINT32_C(1) << 30)
#define LEARNT_MAX      1e15f
/* Ghosts a unit that are worth notes: with three, 2,000 and 5,000 blocks of the conversation trace lose half
 * a point by kills, or more. */
#define GONE_OF_FEW 6u

/* ---- what is kept ----
 *
 * Its list is a clock: each reference looks at one unit, and puts it behind the others when its time is not
 * over. So none stays longer than as many references as there are kept units, and nothing is scanned. */

/* Times are modulo 2^32 seconds. */
static bool is_later(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) > 0;
}

/* How far those that are kept are wanted as often as what goes for them, TRUST_MIN..1. */
static double kept_trust(const struct sl_density *density)
{
    if (!(density->edge > 0)) { /* nothing went yet */
        return 1.0;
    }
    double rate =
        (density->kept_wanted + TRUST_HITS) / (density->kept_exposure + TRUST_HITS / density->edge);
    return fmin(fmax(rate / density->edge, TRUST_MIN), 1.0);
}

static bool kept_is_over(const struct sl_density *density, uint32_t unit)
{
    return !is_later(density->units[unit].keep_end_s, density->now_s);
}

static bool kept_is_too_much(const struct sl_density *density)
{
    uint64_t most = (uint64_t)((double)density->kept_pages_max * kept_trust(density));
    return density->kept_pages > most;
}

void density_kept_enter(struct sl_density *density, uint32_t unit)
{
    density->units[unit].state = UNIT_KEPT;
    density_list_insert(density, HEAD_KEPT, unit);
    density->kept_count++;
    density->kept_pages += density->units[unit].keep_pages;
}

/* It is as all others again. Until when it was to be kept is still known: elsewhere there may be room. */
static void kept_release(struct sl_density *density, uint32_t unit)
{
    density_turn_remove(density, unit);
    density->units[unit].keep_pages = 0;
    density_turn_enter(density, unit);
}

/* The end of a chain before its beginning. */
static void kept_release_end(struct sl_density *density)
{
    const struct unit *units = density->units;
    uint32_t unit = density_oldest_of(density, HEAD_KEPT);
    for (uint32_t steps = 0; steps < CHAIN_MAX && units[unit].child != 0; steps++) {
        uint32_t child = units[units[unit].child].siblings.older;
        if (units[child].state != UNIT_KEPT) {
            break;
        }
        unit = child;
    }
    kept_release(density, unit);
}

static bool child_is_kept(const struct sl_density *density, uint32_t unit)
{
    uint32_t first = density->units[unit].child, child = first;
    for (uint32_t i = 0; child != 0 && i < CHILDREN_MAX; i++) {
        if (density->units[child].state == UNIT_KEPT) {
            return true;
        }
        child = density->units[child].siblings.newer;
        child = child != first ? child : 0;
    }
    return child != 0;
}

/* What was kept for one use is over when what is kept behind it was
 * used, too: then those before it that were used first waited for it. */
void density_kept_used(struct sl_density *density, uint32_t unit)
{
    struct unit *units = density->units;
    units[unit].keep_used = units[unit].keep_once;
    if (units[unit].keep_pages == 0 || !units[unit].keep_once || child_is_kept(density, unit)) {
        return;
    }
    units[unit].keep_pages = 0;
    units[unit].keep_end_s = 0;
    unit = units[unit].parent;
    for (uint32_t steps = 0; unit != 0 && steps < CHAIN_MAX; steps++, unit = units[unit].parent) {
        if (units[unit].state != UNIT_KEPT || !units[unit].keep_used ||
            child_is_kept(density, unit)) {
            break;
        }
        kept_release(density, unit);
        units[unit].keep_end_s = 0;
    }
}

/* To the end of the clock, unless its time is over. */
static void kept_turn(struct sl_density *density)
{
    uint32_t unit = density_oldest_of(density, HEAD_KEPT);
    if (kept_is_over(density, unit)) {
        kept_release(density, unit);
    } else {
        density_list_remove(density, unit);
        density_list_insert(density, HEAD_KEPT, unit);
    }
}

void density_kept_reference(struct sl_density *density)
{
    density->kept_exposure += (double)density->kept_count;
    if (kept_is_too_much(density) &&
        !kept_is_over(density, density_oldest_of(density, HEAD_KEPT))) {
        kept_release_end(density);
    } else {
        kept_turn(density);
    }
}

void sl_density_keep_look(struct sl_density *density, uint32_t count)
{
    for (uint64_t left = SL_MIN(density->kept_count, (uint64_t)count); left > 0; left--) {
        kept_turn(density);
    }
}

void sl_density_now(struct sl_density *density, uint32_t now_s, uint64_t kept_pages_max)
{
    density->now_s = now_s;
    density->kept_pages_max = kept_pages_max;
}

void sl_density_keep(struct sl_density *density, uint32_t unit, const struct reg_keep *keep)
{
    struct unit *units = density->units;
    if (keep->pages == 0 || keep->pages > REG_KEEP_PAGES_MAX ||
        !is_later(keep->end_s, density->now_s)) {
        return;
    }
    /* Those before it are kept at least as long, each since it came or since this was said: so the
     * first that is has only such before it. */
    for (uint32_t steps = 0; unit != 0 && steps < CHAIN_MAX; steps++, unit = units[unit].parent) {
        struct unit *at = &units[unit];
        bool kept = at->state == UNIT_KEPT;
        bool covered = kept && !is_later(keep->end_s, at->keep_end_s);
        if ((!kept && (at->state != UNIT_HERE || !at->aged)) ||
            (covered && (keep->once || !at->keep_once))) {
            break;
        }
        if (covered) { /* for the next use, and now whoever uses it */
            at->keep_once = 0;
            continue;
        }
        at->keep_once = keep->once && (!kept || at->keep_once);
        at->keep_used = 0;
        if (!kept) {
            density_turn_remove(density, unit);
            at->keep_pages = keep->pages & REG_KEEP_PAGES_MAX;
            density_kept_enter(density, unit);
        }
        if (at->keep_end_s == 0 || is_later(keep->end_s, at->keep_end_s)) {
            at->keep_end_s = keep->end_s;
        }
    }
    while (density->kept_count > 0 && kept_is_too_much(density)) {
        kept_release_end(density);
    }
}

/* ---- on disk alone ----
 *
 * Ghosts that nobody forgets: they are in no list. */

static void note_take(struct unit *at, const struct sl_density_note *note)
{
    at->at = note->at;
    at->use_count = (uint8_t)SL_MAX(note->use_count, 1);
    at->class_index = note->class_index < SL_DENSITY_CLASSES ? note->class_index : 0;
}

void sl_density_disk_enter(struct sl_density *density, uint64_t hash,
                           const struct sl_density_note *note)
{
    uint32_t unit = sl_density_find(density, hash);
    if (unit == 0) {
        unit = density_unit_new(density, hash);
        if (unit == 0) {
            return; /* no memory: nothing is known of it */
        }
    } else if (density->units[unit].state == UNIT_GHOST) {
        density_ghosts_remove(density, unit);
    } else {
        return; /* another record has this hash */
    }
    struct unit *at = &density->units[unit];
    bool aged = at->aged || (at->use_count == 0 && note == NULL);
    density_cell_leave(density, unit);
    at->state = UNIT_DISK;
    density->disk_count++;
    if (at->use_count == 0) { /* without a note, that it was stored once is all that is known */
        const struct sl_density_note once = {.at = (uint32_t)density->references};
        note_take(at, note != NULL ? note : &once);
    }
    if (aged) {
        density_cell_join(density, unit);
    }
}

void sl_density_disk_leave(struct sl_density *density, uint64_t hash)
{
    uint32_t unit = sl_density_find(density, hash);
    struct unit *at = &density->units[unit];
    if (unit == 0 || at->state != UNIT_DISK) {
        return;
    }
    bool aged = at->aged;
    density_cell_leave(density, unit);
    at->state = UNIT_GHOST;
    density->disk_count--;
    if (aged) {
        density_cell_join(density, unit);
    }
    density_ghost_become(density, unit);
}

uint32_t sl_density_return(struct sl_density *density, uint64_t hash, uint32_t user,
                           const struct reg_wanted *how, bool wanted)
{
    uint32_t unit = sl_density_find(density, hash);
    struct unit *at = &density->units[unit];
    if (at->state != UNIT_GHOST || !at->aged || wanted) {
        unit = sl_density_enter(density, hash, user, how);
        density->units[unit].counted = unit != 0 && wanted;
        return unit;
    }
    density_ghosts_remove(density, unit);
    density->unit_count++;
    at->user = user;
    at->keep_pages = 0;
    at->keep_end_s = 0;
    at->state = UNIT_HERE;
    density_parent_find(density, unit, how->parent_hash);
    density_turn_enter(density, unit);
    density_ghosts_bound(density);
    return unit;
}

double sl_density_disk_cut(const struct sl_density *density, double share)
{
    double left = share * (double)density->disk_count;
    for (uint32_t place = density->order_count; place-- > 0;) {
        uint32_t list = density->order[place];
        uint32_t cell = list / SL_DENSITY_PRIORITIES;
        left -= list % SL_DENSITY_PRIORITIES == 1 ? (double)density->on_disk[cell] : 0;
        if (left < 0) {
            return density->rates.value[cell];
        }
    }
    return 0.0;
}

/* ---- restart ---- */

void sl_density_note(const struct sl_density *density, uint32_t unit, struct sl_density_note *out)
{
    const struct unit *at = &density->units[unit];
    *out = (struct sl_density_note){
        .at = at->at,
        .class_index = at->class_index,
        .use_count = at->use_count,
        .priority = (enum reg_priority)(at->weight + 1u),
        .keep = {.end_s = at->keep_end_s, .pages = at->keep_pages, .once = at->keep_once},
    };
}

uint32_t sl_density_restore(struct sl_density *density, uint64_t hash, uint32_t user,
                            uint64_t parent_hash, const struct sl_density_note *note)
{
    uint32_t unit = sl_density_find(density, hash);
    if (density_in_memory(&density->units[unit])) {
        return 0;
    }
    unit = density_unit_come(density, hash, unit, user);
    if (unit == 0) {
        return 0;
    }
    density_parent_find(density, unit, parent_hash);
    struct unit *at = &density->units[unit];
    note_take(at, note);
    if (note->priority > REG_PRIORITY_NONE && note->priority < REG_PRIORITY_COUNT) {
        at->weight = density_weight_of(at, note->priority) & 3u;
    }
    at->keep_end_s = note->keep.end_s;
    at->keep_pages = note->keep.pages & REG_KEEP_PAGES_MAX;
    return unit;
}

/* Of equals, in the order in which they came. */
static int restored_compare(const void *left, const void *right, void *context)
{
    const struct sl_density *density = context;
    uint32_t one = *(const uint32_t *)left, other = *(const uint32_t *)right;
    uint64_t a = density_age_references(density, &density->units[one]);
    uint64_t b = density_age_references(density, &density->units[other]);
    return a != b ? (a > b ? -1 : 1) : (one > other) - (one < other);
}

static void restored_enter(struct sl_density *density, uint32_t unit)
{
    density_cell_join(density, unit);
    if (density_in_memory(&density->units[unit])) {
        density_turn_enter(density, unit);
    }
}

void sl_density_restored(struct sl_density *density)
{
    uint32_t *sorted = malloc(density->high * sizeof(*sorted));
    uint32_t count = 0;
    density_exposure_complete(density);
    for (uint32_t unit = UNIT_FIRST; unit < density->high; unit++) {
        const struct unit *at = &density->units[unit];
        if (!at->aged &&
            at->use_count > 0) { /* the clock goes on from the last use that was noted */
            uint32_t ahead = at->at - (uint32_t)density->references;
            density->references += ahead < CLOCK_AHEAD_MAX ? ahead : 0;
        }
    }
    density->counted_at = density->references;
    for (uint32_t unit = UNIT_FIRST; unit < density->high; unit++) {
        if (density->units[unit].aged || density->units[unit].use_count == 0) {
            continue;
        }
        if (sorted != NULL) {
            sorted[count++] = unit;
        } else { /* no memory: in any order */
            restored_enter(density, unit);
        }
    }
    if (sorted != NULL) {
        qsort_r(sorted, count, sizeof(*sorted), restored_compare, density);
    }
    for (uint32_t i = 0; i < count; i++) {
        restored_enter(density, sorted[i]);
    }
    free(sorted);
    density_ghosts_bound(density);
    if (density->learnt) {
        density_settle(density);
    }
}

uint32_t sl_density_gone(struct sl_density *density, struct sl_density_ghost *out)
{
    if (density->gone_count < SL_DENSITY_GONE_LOT) {
        return 0;
    }
    memcpy(out, density->gone, sizeof(density->gone));
    density->gone_count = 0;
    return SL_DENSITY_GONE_LOT;
}

uint64_t sl_density_gone_lots(const struct sl_density *density)
{
    uint64_t units = density->unit_count;
    uint64_t of_few = SL_MIN(units * GONE_OF_FEW, density->set.ghosts_min);
    return SL_MAX(SL_MAX(units, of_few) / SL_DENSITY_GONE_LOT, units > 0);
}

void sl_density_ghosts_restore(struct sl_density *density, const void *bytes, uint32_t length_bytes)
{
    for (uint32_t i = length_bytes / sizeof(struct sl_density_ghost); i-- > 0;) {
        struct sl_density_ghost ghost;
        memcpy(&ghost, (const unsigned char *)bytes + i * sizeof(ghost), sizeof(ghost));
        uint32_t unit = sl_density_find(density, ghost.hash);
        if (unit == 0) {
            unit = density_unit_new(density, ghost.hash);
        } else if (density->units[unit].state == UNIT_GHOST &&
                   density->units[unit].use_count == 0) {
            density_ghosts_remove(density, unit);
        } else {
            unit = 0; /* more is known */
        }
        if (unit != 0) { /* before all that left later, which were told before */
            const struct sl_density_note note = {
                .at = ghost.at, .class_index = ghost.class_index, .use_count = ghost.use_count};
            note_take(&density->units[unit], &note);
            density_ghosts_append(density, unit);
            density_list_remove(density, unit);
            density_list_insert(density, density->units[HEAD_GHOSTS].in.newer, unit);
        }
    }
}

struct learnt {
    uint64_t references;
    uint32_t cell_count, age_count;
    float exposure[SL_DENSITY_CELLS], wanted[SL_DENSITY_CELLS];
};
static_assert(sizeof(struct learnt) == SL_DENSITY_LEARNT_BYTES, "what is learnt has no gaps");

uint32_t sl_density_learnt(const struct sl_density *density, void *out)
{
    struct learnt *learnt = out;
    learnt->references = density->references;
    learnt->cell_count = SL_DENSITY_CELLS;
    learnt->age_count = SL_DENSITY_AGES;
    for (uint32_t cell = 0; cell < SL_DENSITY_CELLS; cell++) {
        learnt->exposure[cell] = (float)fmax(density_exposure_of(density, cell), 0.0);
        learnt->wanted[cell] = (float)density->rates.wanted[cell];
    }
    return sizeof(*learnt);
}

bool sl_density_learn(struct sl_density *density, const void *bytes, uint32_t length_bytes)
{
    struct learnt learnt;
    if (length_bytes != sizeof(learnt)) {
        return false;
    }
    memcpy(&learnt, bytes, sizeof(learnt));
    bool fine = learnt.cell_count == SL_DENSITY_CELLS && learnt.age_count == SL_DENSITY_AGES;
    for (uint32_t cell = 0; fine && cell < SL_DENSITY_CELLS; cell++) {
        fine = learnt.exposure[cell] >= 0 && learnt.exposure[cell] < LEARNT_MAX &&
               learnt.wanted[cell] >= 0 && learnt.wanted[cell] < LEARNT_MAX;
    }
    if (!fine) {
        return false;
    }
    for (uint32_t cell = 0; cell < SL_DENSITY_CELLS; cell++) {
        density->rates.exposure[cell] = (double)learnt.exposure[cell];
        density->rates.wanted[cell] = (double)learnt.wanted[cell];
    }
    density->references = density->counted_at = density->halved_at = learnt.references;
    density->settle_at = density->references + SETTLE_REFERENCES;
    density_settle(density);
    density->learnt = true;
    return true;
}

/* ---- what is known ---- */

struct sl_density_view sl_density_view(const struct sl_density *density, uint32_t unit)
{
    const struct unit *at = &density->units[unit];
    uint32_t cell = density_cell_of(density, at);
    return (struct sl_density_view){.class_index = at->class_index,
                                    .age = cell / SL_DENSITY_CLASSES,
                                    .use_count = at->use_count,
                                    .age_references = density_age_references(density, at),
                                    .value = at->use_count > 0 ? density->rates.value[cell] : 0.0,
                                    .priority = (enum reg_priority)(at->weight + 1u),
                                    .kept = at->state == UNIT_KEPT};
}

double sl_density_chance(const struct sl_density *density, uint32_t unit,
                         uint64_t within_references)
{
    const struct unit *at = &density->units[unit];
    if (!density->learnt || at->use_count == 0) {
        return density->learnt ? 0.0 : 1.0;
    }
    return sl_rates_chance(&density->rates, at->class_index, density_age_references(density, at),
                           within_references);
}

struct sl_density_stats sl_density_stats(const struct sl_density *density)
{
    return (struct sl_density_stats){.unit_count = density->unit_count,
                                     .ghost_count = density->ghost_count,
                                     .disk_count = density->disk_count,
                                     .reference_count = density->references,
                                     .kept_pages = density->kept_pages,
                                     .learnt = density->learnt};
}
