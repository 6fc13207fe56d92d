/* runtime/policy/density/density.c - uses, chains, the walk; retention, disk, and restarts. */
#include "runtime/policy/density/density_internal.h"

#include <stdlib.h>
#include <sys/mman.h>

/* Longest chain that is followed. */
#define CHAIN_MAX 65536u
/* Blocks that a request stores within this number of references, or this part of memory, age
 * together and are listed from the end of their chain. Otherwise each walk would have to find the
 * end. */
#define CHAIN_REFERENCES UINT64_C(64)
#define CHAIN_SHARE      32u
/* A note is ahead of the restored reference count by at most this. */
#define CLOCK_AHEAD_MAX (UINT32_C(1) << 30)

/* ---- chains ---- */

static void parent_leave(struct sl_density *density, uint32_t unit)
{
    struct unit *units = density->units;
    struct unit *at = &units[unit], *parent = &units[at->parent];
    struct pair ring = at->siblings;
    if (at->parent != 0) {
        units[ring.older].siblings.newer = ring.newer;
        units[ring.newer].siblings.older = ring.older;
        parent->child = parent->child != unit ? parent->child : ring.newer != unit ? ring.newer : 0;
        at->parent = 0;
    }
}

/* Adds the unit in front of its siblings, as the one used last. */
static void parent_join(struct sl_density *density, uint32_t unit, uint32_t parent_unit)
{
    struct unit *units = density->units;
    struct pair *ring = &units[unit].siblings;
    uint32_t first = units[parent_unit].child;
    *ring = (struct pair){unit, unit};
    if (first != 0) {
        *ring = (struct pair){units[first].siblings.older, first};
        units[ring->older].siblings.newer = unit;
        units[first].siblings.older = unit;
    }
    units[parent_unit].child = unit;
    units[unit].parent = parent_unit;
}

/* Whether unit precedes `of` in its chain: hashes may collide, and requests may name any parent. */
static bool is_before(const struct sl_density *density, uint32_t unit, uint32_t of)
{
    for (uint32_t steps = 0; of != 0 && of != unit && steps < CHAIN_MAX; steps++) {
        of = density->units[of].parent;
    }
    return of != 0;
}

/* Links the unit to its parent. Chains arrive from either end: a parent that is unknown gets an
 * entry among the ghosts. */
static void parent_find(struct sl_density *density, uint32_t unit, uint64_t parent_hash)
{
    if (parent_hash == 0 || parent_hash == density->units[unit].hash) {
        return;
    }
    uint32_t parent = sl_density_find(density, parent_hash);
    if (parent == 0) {
        parent = density_unit_new(density, parent_hash);
        if (parent == 0) {
            return;
        }
        density_unit_put(density, parent, UNIT_GHOST, false);
    } else if (density->units[unit].child != 0 && is_before(density, unit, parent)) {
        return;
    }
    parent_join(density, unit, parent);
}

/* The end of the chain that continues from the unit; of several chains the one used longest ago. */
static uint32_t chain_end(const struct sl_density *density, uint32_t unit)
{
    const struct unit *units = density->units;
    while (units[unit].child != 0) {
        unit = units[units[unit].child].siblings.older;
    }
    return unit;
}

/* ---- ghosts ---- */

static void ghosts_bound(struct sl_density *density)
{
    uint64_t want = density_memory_count(density) * SL_DENSITY_GHOSTS_FACTOR;
    uint64_t most = SL_MIN(SL_MAX(want, density->set.ghosts_min), density->set.ghosts_max);
    while (density->count[UNIT_GHOST] > most) {
        uint32_t unit = density_oldest_of(density, HEAD_OF(UNIT_GHOST));
        const struct unit *next = &density->units[density->units[unit].in.newer];
        __builtin_prefetch(&density->units[next->in.newer], 1); /* these are dropped next */
        __builtin_prefetch(density_table_head(density, next->hash), 1);
        while (density->units[unit].child != 0) {
            parent_leave(density, density->units[unit].child);
        }
        density_cell_leave(density, unit, false);
        density_unit_take(density, unit);
        density_unit_free(density, unit);
    }
}

/* ---- retention ----
 *
 * The list of retained units is a clock: each reference checks one unit, and moves it to the end if
 * its time is not over. So a unit stays at most as many references too long as there are retained
 * units, and nothing is scanned. */

/* Times are modulo 2^32 seconds. */
static bool is_later(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) > 0;
}

/* Makes the unit ordinary again. Its keep_end_s stays known: a disk may have room for it. */
static void kept_release(struct sl_density *density, uint32_t unit)
{
    density_unit_take(density, unit);
    density->units[unit].keep_pages = 0;
    density_unit_put(density, unit, UNIT_HERE, true);
}

static void kept_check(struct sl_density *density)
{
    const struct unit *units = density->units;
    uint32_t unit = density_oldest_of(density, HEAD_OF(UNIT_KEPT));
    if (!is_later(units[unit].keep_end_s, density->now_s)) {
        kept_release(density, unit);
        return;
    }
    density_list_remove(density, unit);
    density_list_insert(density, HEAD_OF(UNIT_KEPT), unit);
}

/* Releases one unit if too much is retained: the end of a chain before its beginning. */
static bool kept_bound(struct sl_density *density)
{
    const struct unit *units = density->units;
    uint32_t unit = density_oldest_of(density, HEAD_OF(UNIT_KEPT));
    if (density->kept_pages <= density->kept_pages_max) {
        return false;
    }
    for (uint32_t child = units[unit].child; child != 0; child = units[unit].child) {
        child = units[child].siblings.older;
        if (units[child].state != UNIT_KEPT) {
            break;
        }
        unit = child;
    }
    kept_release(density, unit);
    return true;
}

void sl_density_keep_check(struct sl_density *density, uint32_t count)
{
    for (uint64_t left = SL_MIN(density->count[UNIT_KEPT], (uint64_t)count); left > 0; left--) {
        kept_check(density);
    }
}

void sl_density_now(struct sl_density *density, uint32_t now_s, uint64_t kept_pages_max)
{
    density->now_s = now_s;
    density->kept_pages_max = kept_pages_max;
}

void sl_density_keep(struct sl_density *density, uint32_t unit, const struct reg_keep *keep)
{
    if (keep->pages == 0 || keep->pages > REG_KEEP_PAGES_MAX ||
        !is_later(keep->end_s, density->now_s)) {
        return;
    }
    /* The previous units of a chain are retained at least as long, since they entered or this was
     * set. So the first one that already is ends the loop. */
    for (uint32_t steps = 0; unit != 0 && steps < CHAIN_MAX; steps++) {
        struct unit *at = &density->units[unit];
        bool kept = at->state == UNIT_KEPT;
        bool later = !kept || is_later(keep->end_s, at->keep_end_s);
        if ((!kept && (at->state != UNIT_HERE || !at->aged)) ||
            (!later && (keep->once || !at->keep_once))) {
            break;
        }
        at->keep_once = keep->once && (!kept || at->keep_once);
        at->keep_end_s = later ? keep->end_s : at->keep_end_s;
        if (!kept) {
            density_unit_take(density, unit);
            at->keep_pages = keep->pages & REG_KEEP_PAGES_MAX;
            density_unit_put(density, unit, UNIT_HERE, true);
        }
        unit = at->parent;
    }
    while (kept_bound(density)) {
    }
}

/* ---- uses ---- */

/* Counts a reference: the ages advance, and a walk ends. */
static void reference(struct sl_density *density)
{
    density->references++;
    density->walk_base = density->walk_next = 0;
    if (density->count[UNIT_KEPT] > 0 && !kept_bound(density)) {
        kept_check(density);
    }
    density_age(density);
}

static uint8_t weight_of(const struct unit *at, enum reg_priority priority)
{
    return priority == REG_PRIORITY_NONE ? at->weight : (uint8_t)(priority - 1u);
}

uint32_t sl_density_enter(struct sl_density *density, uint64_t hash, uint32_t user,
                          const struct reg_wanted *wanted)
{
    uint32_t unit = sl_density_find(density, hash);
    if (density_in_memory(&density->units[unit])) { /* unit 0 is free */
        return 0;
    }
    reference(density);
    if (unit != 0) {
        density_cell_leave(density, unit, true);
        density_unit_take(density, unit);
    } else if ((unit = density_unit_new(density, hash)) == 0) {
        return 0;
    }
    parent_find(density, unit, wanted->parent_hash);
    struct unit *at = &density->units[unit];
    at->user = user;
    at->use_count = SL_MAX(at->use_count, 1);
    at->class_index =
        (uint8_t)sl_density_class(at->use_count, wanted->stored_count, wanted->cut, wanted->hint);
    at->weight = 1;
    at->weight = weight_of(at, wanted->priority) & 3u;
    const struct unit *parent = &density->units[at->parent];
    uint64_t within = SL_MAX(CHAIN_REFERENCES, density_memory_count(density) / CHAIN_SHARE);
    bool with = density_same_list(at, parent) && density_age_references(density, parent) < within;
    at->at = with ? parent->at : (uint32_t)density->references;
    density_unit_put(density, unit, UNIT_HERE, true);
    ghosts_bound(density);
    return unit;
}

uint32_t sl_density_return(struct sl_density *density, uint64_t hash, uint32_t user,
                           const struct reg_wanted *how, bool wanted)
{
    uint32_t unit = sl_density_find(density, hash);
    const struct unit *at = &density->units[unit];
    if (at->state != UNIT_GHOST || !at->aged || wanted) {
        unit = sl_density_enter(density, hash, user, how);
        density->units[unit].counted = unit != 0 && wanted;
        return unit;
    }
    density_unit_take(density, unit);
    parent_find(density, unit, how->parent_hash);
    density->units[unit].user = user;
    density_unit_put(density, unit, UNIT_HERE, true);
    ghosts_bound(density);
    return unit;
}

void sl_density_use(struct sl_density *density, uint32_t unit, enum reg_hint hint)
{
    struct unit *at = &density->units[unit];
    SL_ASSERT(density_in_memory(at));
    if (!at->aged || at->counted) { /* not restored yet; or the use that it entered for */
        at->counted = 0;
        return;
    }
    reference(density);
    density_cell_leave(density, unit, true);
    density_unit_take(density, unit);
    hint = hint != REG_HINT_NONE ? hint : (enum reg_hint)(at->class_index / SL_DENSITY_KINDS);
    at->class_index = (uint8_t)sl_density_class(at->use_count, 1, false, hint);
    uint32_t parent = at->parent;
    if (parent != 0) {
        parent_leave(density, unit);
        parent_join(density, unit, parent);
    }
    at->at = (uint32_t)density->references;
    if (at->keep_once) {
        at->keep_pages = 0;
        at->keep_end_s = 0;
    }
    density_unit_put(density, unit, UNIT_HERE, true);
}

void sl_density_hint(struct sl_density *density, uint32_t unit, enum reg_hint hint,
                     enum reg_priority priority)
{
    struct unit *at = &density->units[unit];
    uint32_t said = at->class_index / SL_DENSITY_KINDS;
    uint32_t says = hint != REG_HINT_NONE ? (uint32_t)hint : said;
    if (at->aged && at->state != UNIT_EVICT_FIRST &&
        (says != said || weight_of(at, priority) != at->weight)) {
        density_cell_leave(density, unit, false);
        density_unit_take(density, unit);
        at->class_index = (uint8_t)(at->class_index % SL_DENSITY_KINDS + says * SL_DENSITY_KINDS);
        at->weight = weight_of(at, priority) & 3u;
        density_unit_put(density, unit, UNIT_HERE, true);
    }
}

void sl_density_evict_first(struct sl_density *density, uint32_t unit)
{
    struct unit *at = &density->units[unit];
    if (at->aged && at->state != UNIT_EVICT_FIRST) {
        density_unit_take(density, unit);
        at->keep_pages = 0;
        density_unit_put(density, unit, UNIT_EVICT_FIRST, true);
    }
}

void sl_density_leave(struct sl_density *density, uint32_t unit)
{
    struct unit *at = &density->units[unit];
    bool aged = at->aged;
    SL_ASSERT(density_in_memory(at));
    parent_leave(density, unit);
    density_unit_take(density, unit);
    at->keep_pages = 0;
    at->keep_end_s = 0;
    at->counted = 0;
    density_unit_put(density, unit, UNIT_GHOST, aged);
    ghosts_bound(density);
}

/* ---- the walk ---- */

/* The first unit not returned yet in the chains that continue from base; 0: none, or a returned one
 * stays. After a unit that leaves follows the end of its next sibling's chain, or its parent. */
static uint32_t chain_rest(const struct sl_density *density, uint32_t base)
{
    const struct unit *units = density->units;
    uint32_t unit = chain_end(density, base);
    while (units[unit].walk == density->walk_number + 1) {
        if (unit == base) {
            return 0;
        }
        bool last = units[units[unit].parent].child == unit;
        unit = last ? units[unit].parent : chain_end(density, units[unit].siblings.older);
    }
    return units[unit].walk == density->walk_number ? 0 : unit;
}

static uint32_t walk_to(struct sl_density *density, uint32_t base)
{
    for (; base != 0; base = density->walk_next) {
        uint32_t unit = chain_rest(density, base);
        density->walk_next = density_evict_after(density, base);
        if (unit != 0) {
            density->walk_base = base;
            density->walk_given = unit;
            density->units[unit].walk = density->walk_number;
            __builtin_prefetch(&density->units[density->units[density->walk_next].in.newer], 1);
            return unit;
        }
    }
    density->walk_base = 0;
    return 0;
}

uint32_t sl_density_first(struct sl_density *density)
{
    uint32_t sunk = density_oldest_of(density, HEAD_OF(UNIT_EVICT_FIRST));
    density->walk_number += 2;
    return walk_to(density, sunk != 0 ? sunk : density_oldest_from(density, 0));
}

uint32_t sl_density_next(struct sl_density *density, bool leaving)
{
    uint32_t base = density->walk_base;
    struct unit *given = &density->units[density->walk_given];
    if (base == 0) {
        return 0;
    }
    bool left = !density_in_memory(given);
    if (!left && leaving) {
        given->walk = density->walk_number + 1;
    }
    bool stay = (left || leaving) && density_in_memory(&density->units[base]);
    return walk_to(density, stay ? base : density->walk_next);
}

void sl_density_after(struct sl_density *density, uint32_t *users, uint32_t count)
{
    uint32_t unit = density->walk_given, base = density->walk_next;
    for (uint32_t i = 0; i < count; i++) {
        unit = density->units[unit].parent;
        if (!density_in_memory(&density->units[unit])) { /* the chain is at its end */
            unit = base;
            base = unit != 0 ? density_evict_after(density, unit) : 0;
        }
        users[i] = density->units[unit].user;
    }
}

/* ---- only on disk ---- */

void sl_density_disk(struct sl_density *density, uint64_t hash, bool there)
{
    uint32_t unit = sl_density_find(density, hash);
    if (unit == 0 && there && (unit = density_unit_new(density, hash)) != 0) {
        density_unit_put(density, unit, UNIT_GHOST, false);
    }
    struct unit *at = &density->units[unit];
    if (at->state != (there ? UNIT_GHOST : UNIT_DISK)) {
        return; /* another record has this hash, or there is no memory */
    }
    bool aged = at->aged || at->use_count == 0;
    density_cell_leave(density, unit, false);
    density_unit_take(density, unit);
    if (at->use_count == 0) { /* only one store is known */
        at->use_count = 1;
        at->at = (uint32_t)density->references;
    }
    density_unit_put(density, unit, there ? UNIT_DISK : UNIT_GHOST, aged);
    ghosts_bound(density);
}

/* ---- restart ---- */

uint32_t sl_density_restore(struct sl_density *density, const struct sl_density_was *was)
{
    static const enum unit_state states[] = {UNIT_HERE, UNIT_DISK, UNIT_GHOST};
    const struct sl_density_note *note = &was->note;
    bool ghost = was->where == SL_DENSITY_GHOST;
    uint32_t unit = sl_density_find(density, note->hash);
    if (unit != 0 && (density->units[unit].state != UNIT_GHOST || density->units[unit].aged)) {
        return 0; /* another record has this hash, or more is known */
    }
    if (unit != 0) {
        density_unit_take(density, unit);
    } else if ((unit = density_unit_new(density, note->hash)) == 0) {
        return 0;
    }
    parent_find(density, unit, was->parent_hash);
    struct unit *at = &density->units[unit];
    at->user = was->user;
    uint32_t ahead = note->at - (uint32_t)density->references;
    at->at = note->at - (ghost && ahead < CLOCK_AHEAD_MAX ? ahead : 0);
    at->use_count = SL_MAX(note->use_count, 1);
    at->class_index = note->class_index < SL_DENSITY_CLASSES ? note->class_index : 0;
    at->weight =
        weight_of(at, note->priority < REG_PRIORITY_COUNT ? note->priority : REG_PRIORITY_NONE) &
        3u;
    at->keep_end_s = note->keep.end_s;
    at->keep_pages = note->keep.pages & REG_KEEP_PAGES_MAX;
    density_unit_put(density, unit, states[was->where], ghost);
    if (ghost) { /* the oldest of all */
        density_list_remove(density, unit);
        density_list_insert(density, density->units[HEAD_OF(UNIT_GHOST)].in.newer, unit);
        ghosts_bound(density);
    }
    return unit;
}

static int restored_compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

void sl_density_restored(struct sl_density *density)
{
    uint64_t *sorted = malloc(density->high * sizeof(*sorted));
    uint32_t count = 0;
    bool in_order = true;           /* as for objects, whose records have no time of use */
    density_update_values(density); /* completes exposure */
    for (uint32_t unit = UNIT_FIRST; sorted != NULL && unit < density->high; unit++) {
        const struct unit *at = &density->units[unit];
        if (!at->aged && at->use_count > 0) {
            uint32_t ahead = at->at - (uint32_t)density->references;
            density->references += ahead < CLOCK_AHEAD_MAX ? ahead : 0; /* from the last use on */
            sorted[count++] = unit;
        }
    }
    density->counted_at = density->references;
    for (uint32_t i = 0; i < count; i++) { /* oldest first; equal ones in order of arrival */
        uint64_t age = density_age_references(density, &density->units[sorted[i]]);
        sorted[i] |= (UINT32_MAX - age) << 32;
        in_order = in_order && (i == 0 || sorted[i - 1] < sorted[i]);
    }
    if (!in_order) {
        qsort(sorted, count, sizeof(*sorted), restored_compare);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t unit = (uint32_t)sorted[i];
        enum unit_state state = density->units[unit].state;
        density_unit_take(density, unit);
        density_unit_put(density, unit, state, true);
    }
    free(sorted);
    ghosts_bound(density);
    density_update_values(density);
}

/* ---- creation and queries ---- */

sl_err sl_density_create(const struct sl_density_options *options, struct sl_density **out)
{
    struct sl_density *density = calloc(1, sizeof(*density));
    if (density == NULL || density_units_grow(density) != SL_OK) {
        free(density);
        return SL_ERR_NO_MEMORY;
    }
    density->set = *options;
    density->settle_at = SETTLE_REFERENCES;
    density->high = UNIT_FIRST;
    density->heads = density->round = density->capacity * DENSITY_HEADS;
    for (uint32_t unit = 0; unit < UNIT_FIRST; unit++) { /* number 0, and the heads */
        density->units[unit] = (struct unit){.in = {unit, unit}};
    }
    *out = density;
    return SL_OK;
}

void sl_density_destroy(struct sl_density **density)
{
    if (*density != NULL) {
        (void)munmap((*density)->units, (*density)->capacity * sizeof(struct unit));
        (void)munmap((*density)->table, (*density)->capacity * DENSITY_HEADS_BYTES);
        free(*density);
        *density = NULL;
    }
}

uint32_t sl_density_user(const struct sl_density *density, uint32_t unit)
{
    return density->units[unit].user;
}

void sl_density_set_user(struct sl_density *density, uint32_t unit, uint32_t user)
{
    density->units[unit].user = user;
}

bool sl_density_owns(const struct sl_density *density, uint32_t unit, uint32_t user)
{
    return unit < density->high && density->units[unit].user == user &&
           density_in_memory(&density->units[unit]);
}

struct sl_density_note sl_density_note(const struct sl_density *density, uint32_t unit)
{
    const struct unit *at = &density->units[unit];
    return (struct sl_density_note){
        .hash = at->hash,
        .at = at->at,
        .class_index = at->class_index,
        .use_count = at->use_count,
        .priority = (enum reg_priority)(at->weight + 1u),
        .keep = {.end_s = at->keep_end_s, .pages = at->keep_pages, .once = at->keep_once},
        .kept = at->state == UNIT_KEPT,
        .age_references = density_age_references(density, at)};
}

struct sl_density_stats sl_density_stats(const struct sl_density *density)
{
    return (struct sl_density_stats){.unit_count = density_memory_count(density),
                                     .ghost_count = density->count[UNIT_GHOST],
                                     .disk_count = density->count[UNIT_DISK],
                                     .reference_count = density->references,
                                     .kept_pages = density->kept_pages,
                                     .learnt = density->learnt};
}
