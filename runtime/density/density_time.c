/* runtime/density/density_time.c - units get older, and values are computed anew.
 *
 * Only rows that have cohorts are looked at. */
#include "runtime/density/density_internal.h"

#include <math.h>
#include <string.h>

/* An age's rows are looked at so often while it lasts. */
#define AGE_LOOKS 4u
/* But not before so many references have gone by. */
#define LOOK_LEAST UINT64_C(16)

/* Cohorts at the old end of a row by age that are too old for it go to the next one. */
static void row_older(struct sl_density *density, uint32_t class_index, uint32_t age)
{
    uint32_t now = (uint32_t)density->references;
    uint64_t end = density->rates.end[age];
    uint32_t cell = sl_rates_cell(class_index, age);
    uint32_t cohort = density->by_age[age][class_index].oldest;
    uint32_t count = 0;
    while (cohort != 0 && now - density->cohorts[cohort].at >= end) {
        const struct density_cohort *at = &density->cohorts[cohort];
        uint32_t next = at->in.newer;
        __builtin_prefetch(&density->cohorts[next], 1);
        count += at->count;
        density->on_disk[cell] -= at->disk_count;
        density->on_disk[cell + 1] += at->disk_count;
        density_cohort_older(density, cohort);
        cohort = next;
    }
    if (count > 0) {
        sl_rates_outlived(&density->rates, cell, count);
    }
}

static void age_older(struct sl_density *density, uint32_t age)
{
    for (uint64_t classes = density->aged[age]; classes != 0; classes &= classes - 1) {
        uint32_t class_index = (uint32_t)__builtin_ctzll(classes);
        row_older(density, class_index, age);
        if (density->by_age[age][class_index].oldest == 0) {
            density->aged[age] &= ~(UINT64_C(1) << class_index);
        }
    }
}

/* From the oldest age down, so that a cohort moves once. */
static void all_older(struct sl_density *density)
{
    density->older_at = UINT64_MAX;
    for (uint32_t age = SL_DENSITY_AGES - 1; age-- > 0;) {
        if (density->references >= density->older_age_at[age]) {
            uint32_t start = density->rates.start;
            uint64_t width = age <= start ? density->rates.end[start]
                                          : density->rates.end[age] - density->rates.end[age - 1];
            age_older(density, age);
            density->older_age_at[age] =
                density->references + SL_MAX(width / AGE_LOOKS, LOOK_LEAST);
        }
        density->older_at = SL_MIN(density->older_at, density->older_age_at[age]);
    }
}

static void turn_place(struct sl_density *density, uint32_t place, uint32_t turn)
{
    density->turn_order[place] = (uint16_t)turn;
    density->turn_rank[turn] = (uint16_t)place;
    if (density->by_turn[turn].oldest != 0) {
        density->filled[place / 64] |= UINT64_C(1) << (place % 64);
    }
}

/* The cells in their order, once for each weight, merged. Of equals the lighter goes first. */
static void turns_merge(struct sl_density *density)
{
    static const double weights[SL_DENSITY_PRIORITIES] = {0.5, 1.0, 2.0};
    const struct sl_rates *rates = &density->rates;
    uint32_t at[SL_DENSITY_PRIORITIES] = {0};
    for (uint32_t place = 0; place < SL_DENSITY_TURNS; place++) {
        uint32_t best = 0;
        double least = INFINITY; /* as of one whose cells are all placed */
        for (uint32_t weight = 0; weight < SL_DENSITY_PRIORITIES; weight++) {
            double value = at[weight] < SL_DENSITY_CELLS
                               ? rates->value[rates->order[at[weight]]] * weights[weight]
                               : INFINITY;
            if (value < least) {
                best = weight;
                least = value;
            }
        }
        turn_place(density, place, best * SL_DENSITY_CELLS + rates->order[at[best]++]);
    }
}

/* As long as no unit has a weight of its own, the turns are the cells of weight 1. */
void density_turns_all(struct sl_density *density)
{
    memset(density->filled, 0, sizeof(density->filled));
    if (density->weighted) {
        turns_merge(density);
        return;
    }
    for (uint32_t place = 0; place < SL_DENSITY_CELLS; place++) {
        turn_place(density, place, SL_DENSITY_CELLS + density->rates.order[place]);
    }
}

void density_settle(struct sl_density *density)
{
    sl_rates_scale(&density->rates, density->unit_count, density->references);
    sl_rates_settle(&density->rates);
    density_turns_all(density);
}

/* What is old counts half. */
static void halve(struct sl_density *density)
{
    uint64_t filled = HALVE_FILLED * density->unit_count;
    uint64_t after = SL_MIN(SL_MAX(filled, HALVE_LEAST), HALVE_MOST);
    if (density->references >= density->halved_at + after) {
        density->halved_at = density->references;
        sl_rates_halve(&density->rates);
        density->kept_exposure /= 2.0;
        density->kept_wanted /= 2.0;
    }
}

void density_reference(struct sl_density *density)
{
    density->references++;
    density->walk_base = 0; /* a walk that was begun ends */
    density->walk_next = 0;
    density_kept_look(density);
    if (density->references >= density->older_at) {
        all_older(density);
    }
    if (density->references >= density->settle_at) {
        density->settle_at = density->references + SETTLE_REFERENCES;
        halve(density);
        density_settle(density);
        density->learnt = true;
    }
}
