/* runtime/density/density_rates.c - cells of class and age, and what each is worth. */
#include "runtime/density/density_rates.h"
#include "runtime/sl_base.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A cell without much of its own leans on the one before it with the weight of so many hits. */
#define PRIOR_HITS 20.0
/* How much more likely what was seen is for each rate that a hint adds, if hints say nothing: in
 * nats, so many because blocks of a request are wanted together. */
#define CHANCE_NATS 8.0
/* Values are rounded to so many steps an octave: what is nearer than chance can tell apart is equal, and
 * then the older goes first. As many as memory was filled anew, over STEPS_FILLED: with 4 from the
 * beginning, traffic that changes is up to 0.9 points under LRU, and a young cache up to 0.6. */
#define STEPS_LEAST  1.0
#define STEPS_MOST   4.0
#define STEPS_FILLED 3.0
/* Before anything was seen: one hit in so many references. */
#define FIRST_EXPOSURE 1e5
/* Of horizons that are worth the same, but for rounding, the longest. */
#define ALIKE     (1.0 - 1e-9)
#define STEP_MOST 4000.0

static double age_width(uint32_t age)
{
    return (double)(UINT64_C(1) << sl_rates_shift(age));
}

uint32_t sl_rates_class(uint32_t use_count, uint32_t stored_count, bool cut, enum reg_hint hint)
{
    uint32_t kind = 0;
    if (use_count >= 5) {
        kind = SL_DENSITY_MANY;
    } else if (use_count >= 3) {
        kind = SL_DENSITY_FEW;
    } else if (use_count == 2) {
        kind = SL_DENSITY_TWICE;
    } else if (cut) {
        kind = SL_DENSITY_CUT;
    } else {
        uint32_t log2 = 31u - (uint32_t)__builtin_clz(stored_count | 1u);
        kind = SL_MIN(log2, SL_DENSITY_STORED_CLASSES - 1u);
    }
    return kind + (uint32_t)hint * SL_DENSITY_KINDS;
}

const char *sl_rates_class_text(uint32_t class_index, char out[SL_DENSITY_TEXT_BYTES])
{
    static const char *const kinds[SL_DENSITY_KINDS] = {
        "wanted once, stored alone",
        "wanted once, one of 2 to 3 stored",
        "wanted once, one of 4 to 7 stored",
        "wanted once, one of 8 to 15 stored",
        "wanted once, one of 16 to 31 stored",
        "wanted once, one of 32 to 63 stored",
        "wanted once, one of 64 to 127 stored",
        "wanted once, one of 128 stored or more",
        [SL_DENSITY_TWICE] = "wanted twice",
        [SL_DENSITY_FEW] = "wanted 3 or 4 times",
        [SL_DENSITY_MANY] = "wanted 5 times or more",
        [SL_DENSITY_CUT] = "wanted once, the last of its request"};
    static const char *const said[REG_HINT_COUNT] = {
        [REG_HINT_NONE] = "",
        [REG_HINT_ENDS] = ", of a session that was to end",
        [REG_HINT_GOES_ON] = ", of a session that was to go on"};
    (void)snprintf(out, SL_DENSITY_TEXT_BYTES, "%s%s", kinds[class_index % SL_DENSITY_KINDS],
                   said[SL_MIN(class_index / SL_DENSITY_KINDS, (uint32_t)REG_HINT_COUNT - 1)]);
    return out;
}

double sl_rates_chance(const struct sl_rates *rates, uint32_t class_index, uint64_t age_references,
                       uint64_t within_references)
{
    double expected = 0.0;
    double begin = 0.0;
    double at = (double)age_references;
    double until = at + (double)within_references;
    for (uint32_t age = 0; age < SL_DENSITY_AGES; age++) {
        double end = age + 1 < SL_DENSITY_AGES ? begin + age_width(age) : INFINITY;
        double inside = fmin(end, until) - fmax(begin, at);
        expected += rates->rate[sl_rates_cell(class_index, age)] * fmax(inside, 0.0);
        begin = end;
    }
    return -expm1(-expected);
}

void sl_rates_halve(struct sl_rates *rates)
{
    for (uint32_t cell = 0; cell < SL_DENSITY_CELLS; cell++) {
        rates->exposure[cell] /= 2.0;
        rates->wanted[cell] /= 2.0;
    }
}

/* Of a kind and age, whatever was said. */
struct sum {
    double wanted, exposure;
    uint32_t count; /* of hints that were given */
};

static struct sum sum_of(const struct sl_rates *rates, uint32_t class_index, uint32_t age)
{
    struct sum sum = {0};
    for (uint32_t hint = 0; hint < REG_HINT_COUNT; hint++) {
        uint32_t said = class_index % SL_DENSITY_KINDS + hint * SL_DENSITY_KINDS;
        uint32_t cell = sl_rates_cell(said, age);
        sum.wanted += rates->wanted[cell];
        sum.exposure += rates->exposure[cell];
        sum.count += rates->exposure[cell] > 0 ? 1u : 0u;
    }
    return sum;
}

struct believed {
    double rate;  /* of all cells */
    double trust; /* in what is said, 0..1: the part of what it explains that chance does not */
};

static struct believed believe(const struct sl_rates *rates)
{
    double wanted = 1.0;
    double exposure = FIRST_EXPOSURE;
    double gain = 0; /* log of how much more likely what was seen is with hints than without */
    double chance = 0;
    for (uint32_t i = 0; i < SL_DENSITY_KINDS * SL_DENSITY_AGES; i++) {
        uint32_t kind = i % SL_DENSITY_KINDS;
        uint32_t age = i / SL_DENSITY_KINDS;
        struct sum sum = sum_of(rates, kind, age);
        wanted += sum.wanted;
        exposure += sum.exposure;
        if (sum.count < 2 || !(sum.wanted > 0)) {
            continue;
        }
        chance += CHANCE_NATS * (sum.count - 1);
        for (; kind < SL_DENSITY_CLASSES; kind += SL_DENSITY_KINDS) {
            uint32_t cell = sl_rates_cell(kind, age);
            if (rates->wanted[cell] > 0 && rates->exposure[cell] > 0) {
                double rate = rates->wanted[cell] / rates->exposure[cell];
                gain += rates->wanted[cell] * log(rate * sum.exposure / sum.wanted);
            }
        }
    }
    return (struct believed){.rate = wanted / exposure,
                             .trust = gain > chance ? (gain - chance) / gain : 0.0};
}

/* Hits for each reference that a unit spends in each age of one class. An age of which little was
 * seen is like the one before it: with the mean of all ages in its place, units that are older than
 * any that was seen would look better than those that are known to be bad. */
static void class_rates(struct sl_rates *rates, uint32_t class_index, const struct believed *all)
{
    double raw[SL_DENSITY_AGES];
    double said = all->rate;
    double kind = all->rate;
    for (uint32_t age = 0; age < SL_DENSITY_AGES; age++) {
        uint32_t cell = sl_rates_cell(class_index, age);
        struct sum sum = sum_of(rates, class_index, age);
        said = (rates->wanted[cell] + PRIOR_HITS) / (rates->exposure[cell] + PRIOR_HITS / said);
        kind = (sum.wanted + PRIOR_HITS) / (sum.exposure + PRIOR_HITS / kind);
        raw[age] = said < kind || said > kind ? kind * pow(said / kind, all->trust) : kind;
    }
    for (uint32_t age = 0; age < SL_DENSITY_AGES; age++) {
        double younger = raw[age > 0 ? age - 1 : age];
        double older = raw[age + 1 < SL_DENSITY_AGES ? age + 1 : age];
        rates->rate[sl_rates_cell(class_index, age)] = (younger + 2.0 * raw[age] + older) / 4.0;
    }
}

static void value_set(struct sl_rates *rates, uint32_t cell, double value)
{
    double step = value > 0.0 ? rint(log2(value) * rates->steps) : -STEP_MOST;
    rates->step[cell] = (int16_t)fmax(step, -STEP_MOST);
    rates->value[cell] = value > 0.0 ? exp2(step / rates->steps) : 0.0;
}

/* From the oldest age down: each goes on into the next horizon as long as that is worth more than what it
 * has so far. */
void sl_rates_worths(const double *rate, const double *width, uint32_t count, struct sl_worth *out)
{
    for (uint32_t age = count; age-- > 0;) {
        struct sl_worth at = {.hit = -expm1(-rate[age] * width[age]), .end = age + 1};
        at.time = at.hit / rate[age];
        at.stay = 1.0 - at.hit;
        while (at.end < count && out[at.end].hit * at.time > at.hit * out[at.end].time * ALIKE) {
            const struct sl_worth *next = &out[at.end];
            at.hit += at.stay * next->hit;
            at.time += at.stay * next->time;
            at.stay *= next->stay;
            at.end = next->end;
        }
        out[age] = at;
    }
}

static void class_values(struct sl_rates *rates, uint32_t class_index)
{
    double rate[SL_DENSITY_AGES], width[SL_DENSITY_AGES];
    struct sl_worth worths[SL_DENSITY_AGES] = {0};
    for (uint32_t age = 0; age < SL_DENSITY_AGES; age++) {
        rate[age] = rates->rate[sl_rates_cell(class_index, age)];
        width[age] = age_width(age);
    }
    sl_rates_worths(rate, width, SL_DENSITY_AGES, worths);
    for (uint32_t age = 0; age < SL_DENSITY_AGES; age++) {
        value_set(rates, sl_rates_cell(class_index, age), worths[age].hit / worths[age].time);
    }
}

void sl_rates_settle(struct sl_rates *rates, double filled)
{
    const struct believed all = believe(rates);
    rates->steps = fmin(fmax(filled / STEPS_FILLED, STEPS_LEAST), STEPS_MOST);
    for (uint32_t class_index = 0; class_index < SL_DENSITY_CLASSES; class_index++) {
        if (class_index < SL_DENSITY_KINDS || all.trust > 0) {
            class_rates(rates, class_index, &all);
            class_values(rates, class_index);
            continue;
        }
        for (uint32_t age = 0; age < SL_DENSITY_AGES; age++) { /* as if nothing was said */
            uint32_t to = sl_rates_cell(class_index, age);
            uint32_t from = sl_rates_cell(class_index % SL_DENSITY_KINDS, age);
            rates->rate[to] = rates->rate[from];
            rates->value[to] = rates->value[from];
            rates->step[to] = rates->step[from];
        }
    }
}
