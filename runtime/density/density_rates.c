/* runtime/density/density_rates.c - cells of class and age, and what each is worth. */
#include "runtime/density/density_rates.h"
#include "runtime/sl_base.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A cell without much of its own leans on the one before it with the weight of so many hits. */
#define PRIOR_HITS 30.0
/* Before anything was seen: one hit in so many references. */
#define FIRST_EXPOSURE 1e5

static uint32_t age_of(uint32_t cell)
{
    return cell % REG_DENSITY_AGES;
}

static double age_begin(const struct reg_rates *rates, uint32_t age)
{
    return age == 0 ? 0.0 : (double)rates->end[age - 1];
}

static double age_width(const struct reg_rates *rates, uint32_t age)
{
    return (double)rates->end[age] - age_begin(rates, age);
}

void reg_rates_init(struct reg_rates *rates)
{
    memset(rates, 0, sizeof(*rates));
    for (uint32_t age = 0; age < REG_DENSITY_AGES; age++) {
        rates->end[age] = (uint64_t)(REG_DENSITY_AGE_UNIT * exp2(age / 2.0));
    }
    for (uint32_t cell = 0; cell < REG_DENSITY_CELLS; cell++) {
        rates->order[cell] = (uint16_t)cell;
    }
    reg_rates_settle(rates);
}

uint32_t reg_rates_class(uint32_t use_count, uint32_t stored_count, bool cut, enum reg_hint hint)
{
    uint32_t kind = 0;
    if (use_count >= 5) {
        kind = REG_DENSITY_MANY;
    } else if (use_count >= 3) {
        kind = REG_DENSITY_FEW;
    } else if (use_count == 2) {
        kind = REG_DENSITY_TWICE;
    } else if (cut) {
        kind = REG_DENSITY_CUT;
    } else {
        while (kind + 1 < REG_DENSITY_STORED_CLASSES && (stored_count >> (kind + 1)) > 0) {
            kind++;
        }
    }
    return kind + (uint32_t)hint * REG_DENSITY_KINDS;
}

void reg_rates_outlived(struct reg_rates *rates, uint32_t cell)
{
    rates->exposure[cell] += age_width(rates, age_of(cell));
}

void reg_rates_wanted(struct reg_rates *rates, uint32_t cell, uint64_t age_references)
{
    double inside = (double)age_references - age_begin(rates, age_of(cell));
    rates->wanted[cell] += 1.0;
    rates->exposure[cell] += fmax(inside, 0.0);
}

void reg_rates_halve(struct reg_rates *rates)
{
    for (uint32_t cell = 0; cell < REG_DENSITY_CELLS; cell++) {
        rates->exposure[cell] /= 2.0;
        rates->wanted[cell] /= 2.0;
    }
}

static double rate_of_all(const struct reg_rates *rates)
{
    double wanted = 1.0;
    double exposure = FIRST_EXPOSURE;
    for (uint32_t cell = 0; cell < REG_DENSITY_CELLS; cell++) {
        wanted += rates->wanted[cell];
        exposure += rates->exposure[cell];
    }
    return wanted / exposure;
}

/* Hits for each reference that a unit spends in each age of one class. An age of which little was
 * seen is like the one before it: with the mean of all ages in its place, units that are older than
 * any that was seen would look better than those that are known to be bad. */
static void class_rates(const struct reg_rates *rates, uint32_t first, double of_all,
                        double out[REG_DENSITY_AGES])
{
    double raw[REG_DENSITY_AGES];
    double prior = of_all;
    for (uint32_t age = 0; age < REG_DENSITY_AGES; age++) {
        raw[age] = (rates->wanted[first + age] + PRIOR_HITS) /
                   (rates->exposure[first + age] + PRIOR_HITS / prior);
        prior = raw[age];
    }
    for (uint32_t age = 0; age < REG_DENSITY_AGES; age++) {
        double younger = raw[age > 0 ? age - 1 : age];
        double older = raw[age + 1 < REG_DENSITY_AGES ? age + 1 : age];
        out[age] = (younger + 2.0 * raw[age] + older) / 4.0;
    }
}

/* The best over all horizons of the hit that is expected by then, for the time that is; and how
 * likely a hit is within the one that is set. */
static void class_values(struct reg_rates *rates, uint32_t first, double of_all)
{
    double rate[REG_DENSITY_AGES];
    double hit[REG_DENSITY_AGES]; /* the chance of a hit within the age, for one that reaches it */
    class_rates(rates, first, of_all, rate);
    for (uint32_t age = 0; age < REG_DENSITY_AGES; age++) {
        hit[age] = -expm1(-rate[age] * age_width(rates, age));
    }
    for (uint32_t age = 0; age < REG_DENSITY_AGES; age++) {
        double there = 1.0;
        double hits = 0.0;
        double references = 0.0;
        double best = 0.0;
        double end = age_begin(rates, age) + (double)rates->horizon;
        double chance = 0.0;
        for (uint32_t horizon = age; horizon < REG_DENSITY_AGES; horizon++) {
            if (age_begin(rates, horizon) < end && end <= (double)rates->end[horizon]) {
                double width = end - age_begin(rates, horizon);
                chance = hits - there * expm1(-rate[horizon] * width);
            }
            hits += there * hit[horizon];
            references += there * hit[horizon] / rate[horizon];
            there *= 1.0 - hit[horizon];
            best = fmax(best, hits / references);
        }
        rates->value[first + age] = best;
        /* one that goes beyond all ages: whatever hits they bring */
        rates->chance[first + age] = end > (double)rates->end[REG_DENSITY_AGES - 1] ? hits : chance;
    }
}

/* Of equal values the older goes first, as it does in LRU. */
static int cell_compare(const void *left, const void *right, void *context)
{
    const struct reg_rates *rates = context;
    uint32_t a = *(const uint16_t *)left;
    uint32_t b = *(const uint16_t *)right;
    if (rates->value[a] < rates->value[b] || rates->value[a] > rates->value[b]) {
        return rates->value[a] < rates->value[b] ? -1 : 1;
    }
    if (age_of(a) != age_of(b)) {
        return age_of(a) > age_of(b) ? -1 : 1;
    }
    return a < b ? -1 : a > b;
}

void reg_rates_settle(struct reg_rates *rates)
{
    double of_all = rate_of_all(rates);
    for (uint32_t first = 0; first < REG_DENSITY_CELLS; first += REG_DENSITY_AGES) {
        class_values(rates, first, of_all);
    }
    qsort_r(rates->order, REG_DENSITY_CELLS, sizeof(rates->order[0]), cell_compare, rates);
    for (uint32_t place = 0; place < REG_DENSITY_CELLS; place++) {
        rates->rank[rates->order[place]] = (uint16_t)place;
    }
}
