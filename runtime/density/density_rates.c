/* runtime/density/density_rates.c - cells of class and age, and what each is worth. */
#include "runtime/density/density_rates.h"
#include "runtime/sl_base.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A cell without much of its own leans on the one before it with the weight of so many hits. */
#define PRIOR_HITS 30.0
/* How much more likely what was seen is for each rate that a hint adds, if hints say nothing: in
 * nats, so many because blocks of a request are wanted together. */
#define CHANCE_NATS 8.0
/* Values are rounded to so many steps an octave: what is nearer than chance can tell apart is equal, and
 * then the older goes first. As many as memory was filled anew, over STEPS_FILLED: with 4 from the
 * beginning, traffic that changes is up to 0.9 points under LRU, and a young cache up to 0.6. */
#define STEPS_LEAST  1.0
#define STEPS_MOST   4.0
#define STEPS_FILLED 6.0
/* Steps for each cell that sorting them anew may take before another way is sooner done. */
#define SORT_STEPS 8u
/* Before anything was seen: one hit in so many references. */
#define FIRST_EXPOSURE 1e5
/* The first age is at most one in so many of the units in memory: with 256 references in 1,000 units,
 * agents are 1.8 points under LRU. Ages beyond this one always count for themselves. */
#define START_UNITS 32u
#define START_MAX   20u

static uint32_t age_of(uint32_t cell)
{
    return cell % SL_DENSITY_AGES;
}

static double age_begin(const struct sl_rates *rates, uint32_t age)
{
    return age <= rates->start ? 0.0 : (double)rates->end[age - 1];
}

static double age_width(const struct sl_rates *rates, uint32_t age)
{
    return (double)rates->end[age] - age_begin(rates, age);
}

void sl_rates_init(struct sl_rates *rates)
{
    memset(rates, 0, sizeof(*rates));
    for (uint32_t age = 0; age < SL_DENSITY_AGES; age++) {
        double octaves = SL_MIN(age, SL_DENSITY_AGE_OCTAVES);
        rates->end[age] = (uint64_t)(SL_DENSITY_AGE_UNIT * exp2(octaves + (age - octaves) / 2.0));
    }
    for (uint32_t cell = 0; cell < SL_DENSITY_CELLS; cell++) {
        rates->order[cell] = (uint16_t)cell;
    }
    rates->steps = STEPS_LEAST;
    sl_rates_settle(rates);
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

static void kind_text(uint32_t kind, char *out, size_t bytes)
{
    switch (kind) {
    case SL_DENSITY_TWICE:
        (void)snprintf(out, bytes, "wanted twice");
        break;
    case SL_DENSITY_FEW:
        (void)snprintf(out, bytes, "wanted 3 or 4 times");
        break;
    case SL_DENSITY_MANY:
        (void)snprintf(out, bytes, "wanted 5 times or more");
        break;
    case SL_DENSITY_CUT:
        (void)snprintf(out, bytes, "wanted once, the last of its request");
        break;
    case 0:
        (void)snprintf(out, bytes, "wanted once, stored alone");
        break;
    case SL_DENSITY_STORED_CLASSES - 1:
        (void)snprintf(out, bytes, "wanted once, one of %u stored or more", 1u << kind);
        break;
    default:
        (void)snprintf(out, bytes, "wanted once, one of %u to %u stored", 1u << kind,
                       (2u << kind) - 1);
    }
}

const char *sl_rates_class_text(uint32_t class_index, char out[SL_DENSITY_TEXT_BYTES])
{
    static const char *const said[REG_HINT_COUNT] = {
        [REG_HINT_NONE] = "",
        [REG_HINT_ENDS] = ", of a session that was to end",
        [REG_HINT_GOES_ON] = ", of a session that was to go on"};
    uint32_t hint = SL_MIN(class_index / SL_DENSITY_KINDS, (uint32_t)REG_HINT_COUNT - 1);
    kind_text(class_index % SL_DENSITY_KINDS, out, SL_DENSITY_TEXT_BYTES);
    size_t length = strlen(out);
    (void)snprintf(out + length, SL_DENSITY_TEXT_BYTES - length, "%s", said[hint]);
    return out;
}

/* What was learnt of an age becomes part of what is known of the next one. */
static void age_join(struct sl_rates *rates, uint32_t age)
{
    for (uint32_t cell = age; cell < SL_DENSITY_CELLS; cell += SL_DENSITY_AGES) {
        rates->exposure[cell + 1] += rates->exposure[cell];
        rates->wanted[cell + 1] += rates->wanted[cell];
        rates->exposure[cell] = rates->wanted[cell] = 0.0;
    }
}

void sl_rates_scale(struct sl_rates *rates, uint64_t unit_count, uint64_t references)
{
    if (unit_count == 0) {
        return;
    }
    double filled = (double)references / (double)unit_count;
    rates->steps = fmin(fmax(filled / STEPS_FILLED, STEPS_LEAST), STEPS_MOST);
    while (rates->start < START_MAX && unit_count >= START_UNITS * rates->end[rates->start + 1]) {
        age_join(rates, rates->start++);
    }
    while (rates->start > 0 && unit_count < START_UNITS * rates->end[rates->start] / 2) {
        rates->start--;
    }
}

void sl_rates_outlived(struct sl_rates *rates, uint32_t cell, uint32_t count)
{
    rates->exposure[cell] += count * age_width(rates, age_of(cell));
}

void sl_rates_wanted(struct sl_rates *rates, uint32_t cell, uint64_t age_references)
{
    double inside = (double)age_references - age_begin(rates, age_of(cell));
    rates->wanted[cell] += 1.0;
    rates->exposure[cell] += fmax(inside, 0.0);
}

double sl_rates_chance(const struct sl_rates *rates, uint32_t class_index, uint64_t age_references,
                       uint64_t within_references)
{
    double expected = 0.0;
    uint64_t at = age_references;
    uint64_t until = within_references > UINT64_MAX - at ? UINT64_MAX : at + within_references;
    for (uint32_t age = 0; age < SL_DENSITY_AGES && at < until; age++) {
        bool last = age + 1 == SL_DENSITY_AGES;
        uint64_t end = last ? until : SL_MIN(rates->end[age], until);
        if (end > at) {
            expected += rates->rate[sl_rates_cell(class_index, age)] * (double)(end - at);
            at = end;
        }
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

static double rate_of_all(const struct sl_rates *rates)
{
    double wanted = 1.0;
    double exposure = FIRST_EXPOSURE;
    for (uint32_t cell = 0; cell < SL_DENSITY_CELLS; cell++) {
        wanted += rates->wanted[cell];
        exposure += rates->exposure[cell];
    }
    return wanted / exposure;
}

static const uint32_t hint_cells = SL_DENSITY_KINDS * SL_DENSITY_AGES;

/* Of a kind and age, whatever was said. */
struct sum {
    double wanted, exposure;
    uint32_t count; /* of hints that were given */
};

static struct sum sum_of(const struct sl_rates *rates, uint32_t cell)
{
    struct sum sum = {0};
    for (cell %= hint_cells; cell < SL_DENSITY_CELLS; cell += hint_cells) {
        sum.wanted += rates->wanted[cell];
        sum.exposure += rates->exposure[cell];
        sum.count += rates->exposure[cell] > 0 ? 1u : 0u;
    }
    return sum;
}

/* How far to trust what is said, 0..1: the part of what it explains that chance does not. */
static double hint_trust(const struct sl_rates *rates)
{
    double gain = 0; /* log of how much more likely what was seen is with hints than without */
    double chance = 0;
    for (uint32_t cell = 0; cell < hint_cells; cell++) {
        struct sum sum = sum_of(rates, cell);
        if (sum.count < 2 || !(sum.wanted > 0)) {
            continue;
        }
        chance += CHANCE_NATS * (sum.count - 1);
        for (uint32_t at = cell; at < SL_DENSITY_CELLS; at += hint_cells) {
            if (rates->wanted[at] > 0 && rates->exposure[at] > 0) {
                double rate = rates->wanted[at] / rates->exposure[at];
                gain += rates->wanted[at] * log(rate * sum.exposure / sum.wanted);
            }
        }
    }
    return gain > chance ? (gain - chance) / gain : 0.0;
}

struct believed {
    double rate;  /* of all cells */
    double trust; /* in what is said */
};

/* Hits for each reference that a unit spends in each age of one class. An age of which little was
 * seen is like the one before it: with the mean of all ages in its place, units that are older than
 * any that was seen would look better than those that are known to be bad. */
static void class_rates(const struct sl_rates *rates, uint32_t first, const struct believed *all,
                        double out[SL_DENSITY_AGES])
{
    double raw[SL_DENSITY_AGES] = {0};
    double said = all->rate;
    double kind = all->rate;
    for (uint32_t age = rates->start; age < SL_DENSITY_AGES; age++) {
        struct sum sum = sum_of(rates, first + age);
        said = (rates->wanted[first + age] + PRIOR_HITS) /
               (rates->exposure[first + age] + PRIOR_HITS / said);
        kind = (sum.wanted + PRIOR_HITS) / (sum.exposure + PRIOR_HITS / kind);
        raw[age] = said < kind || said > kind ? kind * pow(said / kind, all->trust) : kind;
    }
    for (uint32_t age = rates->start; age < SL_DENSITY_AGES; age++) {
        double younger = raw[age > rates->start ? age - 1 : age];
        double older = raw[age + 1 < SL_DENSITY_AGES ? age + 1 : age];
        out[age] = (younger + 2.0 * raw[age] + older) / 4.0;
    }
    for (uint32_t age = 0; age < rates->start; age++) {
        out[age] = out[rates->start];
    }
}

/* The best over all horizons of the hit that is expected by then, for the time that is; and how
 * likely a hit is within the one that is set. */
static void class_values(struct sl_rates *rates, uint32_t first, const struct believed *all)
{
    double *rate = &rates->rate[first];
    double hit[SL_DENSITY_AGES] = {0};  /* its chance within the age, for one that reaches it */
    double stay[SL_DENSITY_AGES] = {0}; /* how long that one is there, in references */
    uint32_t within = rates->start;     /* the age in which the horizon that is set ends */
    class_rates(rates, first, all, rate);
    for (uint32_t age = rates->start; age < SL_DENSITY_AGES; age++) {
        hit[age] = -expm1(-rate[age] * age_width(rates, age));
        stay[age] = hit[age] / rate[age];
    }
    for (uint32_t age = rates->start; age < SL_DENSITY_AGES; age++) {
        double there = 1.0;
        double hits = 0.0;
        double references = 0.0;
        double best_hits = 0.0;
        double best_references = 1.0;
        double end = age_begin(rates, age) + (double)rates->horizon;
        double chance = 0.0;
        while (within < SL_DENSITY_AGES && (double)rates->end[within] < end) {
            within++;
        }
        for (uint32_t horizon = age; horizon < SL_DENSITY_AGES; horizon++) {
            if (horizon == within && rates->horizon > 0) {
                double width = end - age_begin(rates, horizon);
                chance = hits - there * expm1(-rate[horizon] * width);
            }
            hits += there * hit[horizon];
            references += there * stay[horizon];
            there *= 1.0 - hit[horizon];
            if (hits * best_references > best_hits * references) {
                best_hits = hits;
                best_references = references;
            }
        }
        double best = best_hits / best_references;
        rates->value[first + age] =
            best > 0.0 ? exp2(rint(log2(best) * rates->steps) / rates->steps) : 0.0;
        /* one that goes beyond all ages: whatever hits they bring */
        rates->chance[first + age] = end > (double)rates->end[SL_DENSITY_AGES - 1] ? hits : chance;
    }
    for (uint32_t age = 0; age < rates->start; age++) {
        rates->value[first + age] = rates->value[first + rates->start];
        rates->chance[first + age] = rates->chance[first + rates->start];
    }
}

static void class_copy(struct sl_rates *rates, uint32_t to, uint32_t from)
{
    memcpy(&rates->rate[to], &rates->rate[from], SL_DENSITY_AGES * sizeof(rates->rate[0]));
    memcpy(&rates->value[to], &rates->value[from], SL_DENSITY_AGES * sizeof(rates->value[0]));
    memcpy(&rates->chance[to], &rates->chance[from], SL_DENSITY_AGES * sizeof(rates->chance[0]));
}

/* Whether anything was seen of a class, or of those of its kind with other hints: all others are
 * alike. */
static bool kind_is_seen(const struct sl_rates *rates, uint32_t first)
{
    for (uint32_t age = 0; age < SL_DENSITY_AGES; age++) {
        struct sum sum = sum_of(rates, first + age);
        if (sum.exposure > 0 || sum.wanted > 0) {
            return true;
        }
    }
    return false;
}

/* Of equal values the older goes first, as it does in LRU. */
static int cell_compare(const void *left, const void *right, void *context)
{
    const struct sl_rates *rates = context;
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

/* Cells that were sorted 1,000 references ago: few stand wrong, as a rule. */
static void cells_sort(struct sl_rates *rates, uint16_t *cells, uint32_t count)
{
    uint32_t left = SORT_STEPS * count;
    for (uint32_t i = 1; i < count && left > 0; i++) {
        uint16_t cell = cells[i];
        uint32_t at = i;
        for (; at > 0 && left > 0 && cell_compare(&cell, &cells[at - 1], rates) < 0; at--) {
            cells[at] = cells[at - 1];
            left--;
        }
        cells[at] = cell;
    }
    if (left == 0) {
        qsort_r(cells, count, sizeof(cells[0]), cell_compare, rates);
    }
}

static bool cells_equal(const struct sl_rates *rates, uint32_t a, uint32_t b)
{
    return age_of(a) == age_of(b) && !(rates->value[a] < rates->value[b]) &&
           !(rates->value[a] > rates->value[b]);
}

/* Where nothing that was said counts, the cells of what was said follow those of which nothing was:
 * a third is sorted, and among equals the first third comes first. */
static void order_as_unsaid(struct sl_rates *rates)
{
    uint16_t sorted[SL_DENSITY_KINDS * SL_DENSITY_AGES] = {0};
    uint32_t place = 0;
    for (uint32_t i = 0; i < SL_DENSITY_CELLS; i++) { /* as they stood before */
        if (rates->order[i] < hint_cells) {
            sorted[place++] = rates->order[i];
        }
    }
    cells_sort(rates, sorted, hint_cells);
    place = 0;
    for (uint32_t from = 0, to = 1; from < hint_cells; from = to++) {
        while (to < hint_cells && cells_equal(rates, sorted[from], sorted[to])) {
            to++;
        }
        for (uint32_t hint = 0; hint < REG_HINT_COUNT; hint++) {
            for (uint32_t i = from; i < to; i++) {
                rates->order[place++] = (uint16_t)(sorted[i] + hint * hint_cells);
            }
        }
    }
}

void sl_rates_settle(struct sl_rates *rates)
{
    const struct believed all = {.rate = rate_of_all(rates), .trust = hint_trust(rates)};
    uint32_t unseen = SL_DENSITY_CELLS; /* of the first class of which nothing was seen */
    for (uint32_t first = 0; first < SL_DENSITY_CELLS; first += SL_DENSITY_AGES) {
        bool seen = kind_is_seen(rates, first);
        if (all.trust <= 0 && first >= hint_cells) { /* as if nothing was said */
            class_copy(rates, first, first % hint_cells);
        } else if (!seen && unseen < SL_DENSITY_CELLS) {
            class_copy(rates, first, unseen);
        } else {
            class_values(rates, first, &all);
            unseen = seen ? unseen : first;
        }
    }
    if (all.trust > 0) {
        cells_sort(rates, rates->order, SL_DENSITY_CELLS);
    } else {
        order_as_unsaid(rates);
    }
    for (uint32_t place = 0; place < SL_DENSITY_CELLS; place++) {
        rates->rank[rates->order[place]] = (uint16_t)place;
    }
}
