/* runtime/density/density_keep.c - units that are kept for a time: behind all others.
 *
 * They stand in a row of their own, which is a clock: each reference looks at one of them, and puts
 * it behind the others when its time is not over. So none stays longer than as many references as
 * there are kept units, and nothing is scanned. */
#include "runtime/density/density_internal.h"

#include <math.h>

/* What is known of them leans on what others are worth, with the weight of so many hits. */
#define TRUST_HITS 30.0
/* Of the part of memory that they may take at most this much is left to them always. */
#define TRUST_MIN (1.0 / 16.0)
#define CHAIN_MAX 65536u
/* With more that go on from a unit than this, one of them is taken to be kept. */
#define CHILDREN_MAX 64u

/* Times are modulo 2^32 seconds. */
static bool is_later(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) > 0;
}

void density_kept_enter(struct sl_density *density, uint32_t unit)
{
    density->ages[unit].state = UNIT_KEPT;
    density_row_append(density, &density->kept, unit);
    density->kept_count++;
    density->kept_pages += density->units[unit].keep_pages;
}

void density_kept_leave(struct sl_density *density, uint32_t unit)
{
    density->kept_count--;
    density->kept_pages -= density->units[unit].keep_pages;
}

/* Until when it was to be kept is still known: elsewhere there may be room. */
static void release(struct sl_density *density, uint32_t unit)
{
    density_turn_remove(density, unit);
    density->units[unit].keep_pages = 0;
    density->ages[unit].state = UNIT_HERE;
    density_turn_first(density, unit);
}

/* How far those that are kept are wanted as often as what goes for them, TRUST_MIN..1. */
static double trust(const struct sl_density *density)
{
    if (!(density->edge > 0)) { /* nothing went yet */
        return 1.0;
    }
    double rate =
        (density->kept_wanted + TRUST_HITS) / (density->kept_exposure + TRUST_HITS / density->edge);
    return fmin(fmax(rate / density->edge, TRUST_MIN), 1.0);
}

static uint64_t pages_max(const struct sl_density *density)
{
    return (uint64_t)((double)density->kept_pages_max * trust(density));
}

/* The end of a chain before its beginning. */
static uint32_t kept_end(const struct sl_density *density, uint32_t unit)
{
    const struct density_unit *units = density->units;
    for (uint32_t steps = 0; steps < CHAIN_MAX && units[unit].child != 0; steps++) {
        uint32_t child = units[units[unit].child].siblings.older;
        if (density->ages[child].state != UNIT_KEPT) {
            break;
        }
        unit = child;
    }
    return unit;
}

static bool child_is_kept(const struct sl_density *density, uint32_t unit)
{
    uint32_t first = density->units[unit].child, child = first;
    for (uint32_t i = 0; child != 0 && i < CHILDREN_MAX; i++) {
        if (density->ages[child].state == UNIT_KEPT) {
            return true;
        }
        child = density->units[child].siblings.newer;
        child = child != first ? child : 0;
    }
    return child != 0;
}

static void keep_end(struct density_unit *unit)
{
    unit->keep_pages = 0;
    unit->keep_end_s = 0;
}

void density_kept_used(struct sl_density *density, uint32_t unit)
{
    struct density_unit *units = density->units;
    if (units[unit].keep_pages == 0 || !units[unit].keep_once) {
        return;
    }
    units[unit].keep_used = 1;
    if (child_is_kept(density, unit)) {
        return;
    }
    keep_end(&units[unit]);
    uint32_t at = units[unit].parent; /* those before it that were used first waited for it */
    for (uint32_t steps = 0; at != 0 && steps < CHAIN_MAX; steps++, at = units[at].parent) {
        if (density->ages[at].state != UNIT_KEPT || !units[at].keep_once || !units[at].keep_used ||
            child_is_kept(density, at)) {
            break;
        }
        density_turn_remove(density, at);
        keep_end(&units[at]);
        density->ages[at].state = UNIT_HERE;
        density_turn_enter(density, at, 0);
    }
}

void density_kept_look(struct sl_density *density)
{
    uint32_t unit = density->kept.oldest;
    if (unit == 0) {
        return;
    }
    density->kept_exposure += (double)density->kept_count;
    if (!is_later(density->units[unit].keep_end_s, density->now_s)) {
        release(density, unit);
    } else if (density->kept_pages > pages_max(density)) {
        release(density, kept_end(density, unit));
    } else {
        density_row_remove(density, &density->kept, unit);
        density_row_append(density, &density->kept, unit);
    }
}

void sl_density_keep_look(struct sl_density *density, uint32_t count)
{
    uint64_t most =
        SL_MIN(density->kept_count, (uint64_t)count); /* once around: in the same order */
    for (uint64_t i = 0; i < most; i++) {
        uint32_t unit = density->kept.oldest;
        density_row_remove(density, &density->kept, unit);
        density_row_append(density, &density->kept, unit);
        if (!is_later(density->units[unit].keep_end_s, density->now_s)) {
            release(density, unit);
        }
    }
}

void sl_density_now(struct sl_density *density, uint32_t now_s, uint64_t kept_pages_max)
{
    density->now_s = now_s;
    density->kept_pages_max = kept_pages_max;
}

bool sl_density_keeps(const struct sl_density *density)
{
    return density->kept.oldest != 0;
}

void sl_density_keep(struct sl_density *density, uint32_t unit, const struct reg_keep *keep)
{
    struct density_unit *units = density->units;
    if (keep->pages == 0 || keep->pages > REG_KEEP_PAGES_MAX ||
        !is_later(keep->end_s, density->now_s)) {
        return;
    }
    /* Those before it are kept at least as long, each since it came or since this was said: so the
     * first that is has only such before it. */
    for (uint32_t steps = 0; unit != 0 && steps < CHAIN_MAX; steps++, unit = units[unit].parent) {
        struct density_unit *at = &units[unit];
        uint32_t state = density->ages[unit].state;
        bool kept = state == UNIT_KEPT;
        bool covered = kept && !is_later(keep->end_s, at->keep_end_s);
        if ((!kept && state != UNIT_HERE) || (covered && (keep->once || !at->keep_once))) {
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
    for (uint64_t most = pages_max(density);
         density->kept.oldest != 0 && density->kept_pages > most;) {
        release(density, kept_end(density, density->kept.oldest));
    }
}
