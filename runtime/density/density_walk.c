/* runtime/density/density_walk.c - units as they go: the oldest of the least valued cell,
 * and before it the ends of the chains that go on from it. */
#include "runtime/density/density_internal.h"

/* The oldest unit of the first turn from this rank on; behind all of them those that are kept. */
static uint32_t oldest_from(const struct sl_density *density, uint32_t rank)
{
    for (uint32_t word = rank / 64; word < RANK_WORDS; word++) {
        uint64_t bits = density->filled[word];
        bits &= word == rank / 64 ? ~UINT64_C(0) << (rank % 64) : ~UINT64_C(0);
        if (bits != 0) {
            uint32_t found = word * 64 + (uint32_t)__builtin_ctzll(bits);
            uint32_t cohort = density->by_turn[density->turn_order[found]].oldest;
            return density->cohorts[cohort].here.oldest;
        }
    }
    return density->kept.oldest;
}

uint32_t density_turn_after(const struct sl_density *density, uint32_t unit)
{
    const struct density_aged *at = &density->ages[unit];
    if (at->turn.newer != 0 || at->state == UNIT_KEPT) {
        return at->turn.newer;
    }
    if (at->state == UNIT_SUNK) {
        return oldest_from(density, 0);
    }
    const struct density_cohort *cohort = &density->cohorts[at->cohort];
    return cohort->turn.newer != 0
               ? density->cohorts[cohort->turn.newer].here.oldest
               : oldest_from(density, density->turn_rank[density_turn_of(cohort)] + 1u);
}

/* The end of the chain that goes on from it; of several chains the one used longest ago. */
static uint32_t chain_end(const struct sl_density *density, uint32_t unit)
{
    const struct density_unit *units = density->units;
    while (units[unit].child != 0) {
        unit = units[units[unit].child].siblings.older;
    }
    return unit;
}

/* What comes after a unit that will go, within the chains that go on from base: the end of its next
 * sibling's, or its parent. */
static uint32_t chain_before(const struct sl_density *density, uint32_t unit)
{
    const struct density_unit *units = density->units;
    bool last = units[units[unit].parent].child == unit;
    return last ? units[unit].parent : chain_end(density, units[unit].siblings.older);
}

/* From this unit on, in the chains that go on from base, the first that was not given; 0: none. */
static uint32_t chain_rest(const struct sl_density *density, uint32_t base, uint32_t unit)
{
    while (density->units[unit].walk == density->walk_number) {
        if (unit == base) {
            return 0;
        }
        unit = chain_before(density, unit);
    }
    return unit;
}

/* Of those that come next, what is known of them is fetched before it is asked for. */
static void walk_fetch(const struct sl_density *density)
{
    density_unit_fetch(density, density->ages[density->walk_next].turn.newer);
}

void sl_density_after(const struct sl_density *density, uint32_t *users, uint32_t count)
{
    uint32_t unit = density->walk_given, base = density->walk_next;
    for (uint32_t i = 0; i < count; i++) {
        unit = density->units[unit].parent;
        if (!density_in_memory(&density->ages[unit])) { /* the chain is at its end */
            unit = base;
            base = unit != 0 ? density_turn_after(density, unit) : 0;
        }
        users[i] = density->ages[unit].user;
    }
}

static uint32_t walk_to(struct sl_density *density, uint32_t base)
{
    uint32_t stuck = density->walk_given;
    for (; base != 0; base = density->walk_next) {
        uint32_t unit = chain_rest(density, base, chain_end(density, base));
        density->walk_base = base;
        density->walk_next = density_turn_after(density, base);
        if (unit != 0 && unit != stuck) {
            density->walk_given = unit;
            walk_fetch(density);
            return unit;
        }
    }
    density->walk_base = 0;
    return 0;
}

uint32_t sl_density_first(struct sl_density *density)
{
    density->walk_given = 0;
    density->walk_number++;
    return walk_to(density,
                   density->sunk.oldest != 0 ? density->sunk.oldest : oldest_from(density, 0));
}

uint32_t sl_density_next(struct sl_density *density, bool goes)
{
    uint32_t base = density->walk_base;
    uint32_t given = density->walk_given;
    if (base == 0) {
        return 0;
    }
    if (!density_in_memory(&density->ages[given])) { /* it went: what it hung from is next */
        density->walk_given = 0;
        if (density_in_memory(&density->ages[base])) {
            return walk_to(density, base);
        }
    } else if (goes) {
        density->units[given].walk = density->walk_number;
        density->walk_given = 0;
        return walk_to(density, base);
    }
    return walk_to(density, density->walk_next);
}
