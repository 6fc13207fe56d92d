/* runtime/rhythm/rhythm.c - classes and ages of pauses, and what each is worth. */
#include "runtime/rhythm/rhythm.h"
#include "runtime/sl_base.h"
#include "runtime/sl_clock.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Of what was told, the first buckets are so wide, up to twice of it; those behind are quarters of an
 * octave. */
#define SHARE_BUCKETS 64u
#define SHARES_A_TOLD 32.0
#define SHARES_END    2.0
/* The others begin with so much, and are quarters of an octave: up to three hours. */
#define GAP_FIRST_S 0.01
#define AN_OCTAVE   4.0
/* Classes of what was not told: of the first pause, and by the pause before. */
#define CLASS_FIRST  2u
#define CLASS_OTHERS 3u
#define LAST_CLASSES 5u /* each is two octaves, from a second on */
static_assert(CLASS_OTHERS + LAST_CLASSES == SL_RHYTHM_CLASSES, "all have a place");
/* A bucket of which little is known leans on what is known of all with the weight of so many that
 * came back. */
#define PRIOR_BACK 8.0
/* Before anything was told: four sessions, of which these came back at about the time. */
#define FIRST_SESSIONS 4.0
/* And before anything was said to be over: so many of the four came back within a second. */
#define OVER_BACK 3.0
/* What was seen counts half after so many that came back. */
#define HALVE_BACK 4096u
#define RATE_LEAST 1e-9

static bool is_told(uint32_t class)
{
    return class == SL_RHYTHM_TOLD;
}

/* Where a bucket begins, in seconds or shares of what was told. */
static double bucket_begin(uint32_t class, uint32_t bucket)
{
    if (!is_told(class)) {
        return bucket == 0 ? 0.0 : GAP_FIRST_S * exp2(bucket / AN_OCTAVE);
    }
    return bucket <= SHARE_BUCKETS ? bucket / SHARES_A_TOLD
                                   : SHARES_END * exp2((bucket - SHARE_BUCKETS) / AN_OCTAVE);
}

static double bucket_width(uint32_t class, uint32_t bucket)
{
    return bucket_begin(class, bucket + 1) - bucket_begin(class, bucket);
}

static uint32_t bucket_of(uint32_t class, double age)
{
    double at = 0;
    if (!is_told(class)) {
        at = age > GAP_FIRST_S ? floor(AN_OCTAVE * log2(age / GAP_FIRST_S)) : 0.0;
    } else if (age < SHARES_END) {
        at = floor(age * SHARES_A_TOLD);
    } else {
        at = SHARE_BUCKETS + floor(AN_OCTAVE * log2(age / SHARES_END));
    }
    return at >= SL_RHYTHM_BUCKETS ? SL_RHYTHM_BUCKETS - 1 : (uint32_t)at;
}

static uint32_t class_of(const struct sl_pause *pause)
{
    if (pause->over) {
        return SL_RHYTHM_OVER;
    }
    if (pause->told_ns != 0) {
        return SL_RHYTHM_TOLD;
    }
    if (pause->last_ns == 0) {
        return CLASS_FIRST;
    }
    double last = log2((double)pause->last_ns / (double)SL_NS_PER_S) / 2;
    return CLASS_OTHERS + (uint32_t)fmin(fmax(last, 0.0), LAST_CLASSES - 1.0);
}

static double unit_ns(const struct sl_pause *pause)
{
    return is_told(class_of(pause)) ? (double)pause->told_ns : (double)SL_NS_PER_S;
}

static double age_of(const struct sl_pause *pause, uint64_t age_ns)
{
    return (double)age_ns / unit_ns(pause);
}

/* The time that a pause of this age spent in each bucket so far. Gives the one that it is in. */
static uint32_t spend(double *exposure, uint32_t class, double age)
{
    uint32_t last = bucket_of(class, age);
    for (uint32_t i = 0; i < last; i++) {
        exposure[i] += bucket_width(class, i);
    }
    exposure[last] += age - bucket_begin(class, last);
    return last;
}

void sl_rhythm_init(struct sl_rhythm *rhythm)
{
    /* The buckets around what was told: half of the four, until something was seen. */
    static const double first[] = {0.25, 0.75, 0.75, 0.25};
    memset(rhythm, 0, sizeof(*rhythm));
    uint32_t around = bucket_of(SL_RHYTHM_TOLD, 1.0) - 2;
    for (uint32_t i = 0; i < SL_COUNT(first); i++) {
        rhythm->back[SL_RHYTHM_TOLD][around + i] = first[i];
    }
    for (uint32_t class = 0; class < CLASS_FIRST; class ++) {
        for (uint32_t i = 0; i < SL_RHYTHM_BUCKETS - 1; i++) {
            rhythm->exposure[class][i] = FIRST_SESSIONS * bucket_width(class, i);
        }
    }
    for (uint32_t i = 0; i < bucket_of(SL_RHYTHM_OVER, 1.0); i++) {
        rhythm->back[SL_RHYTHM_OVER][i] =
            OVER_BACK * rhythm->exposure[SL_RHYTHM_OVER][i] / FIRST_SESSIONS;
    }
    sl_rhythm_settle(rhythm);
}

static void halve(struct sl_rhythm *rhythm)
{
    for (uint32_t class = 0; class < SL_RHYTHM_CLASSES; class ++) {
        for (uint32_t i = 0; i < SL_RHYTHM_BUCKETS; i++) {
            rhythm->exposure[class][i] /= 2;
            rhythm->back[class][i] /= 2;
        }
    }
    rhythm->back_count = 0;
}

void sl_rhythm_back(struct sl_rhythm *rhythm, const struct sl_pause *pause, uint64_t age_ns)
{
    uint32_t class = class_of(pause);
    rhythm->back[class][spend(rhythm->exposure[class], class, age_of(pause, age_ns))] += 1;
    if (++rhythm->back_count >= HALVE_BACK) {
        halve(rhythm);
    }
}

void sl_rhythm_lost(struct sl_rhythm *rhythm, const struct sl_pause *pause, uint64_t age_ns)
{
    uint32_t class = class_of(pause);
    (void)spend(rhythm->exposure[class], class, age_of(pause, age_ns));
}

void sl_rhythm_open(struct sl_rhythm *rhythm, const struct sl_pause *pause, uint64_t age_ns)
{
    uint32_t class = class_of(pause);
    (void)spend(rhythm->open[class], class, age_of(pause, age_ns));
}

/* Of those whose pause was not told, by age alone. */
static void rates_of_all(const struct sl_rhythm *rhythm, double out[SL_RHYTHM_BUCKETS])
{
    double before = 0;
    for (uint32_t i = 0; i < SL_RHYTHM_BUCKETS; i++) {
        double back = 0, exposure = 0;
        for (uint32_t class = CLASS_FIRST; class < SL_RHYTHM_CLASSES; class ++) {
            back += rhythm->back[class][i];
            exposure += rhythm->exposure[class][i] + rhythm->open[class][i];
        }
        /* an age that nobody reached yet is like the one before, and worth less with each */
        double lean = before / 2;
        out[i] = lean > 0 ? (back + PRIOR_BACK) / (exposure + PRIOR_BACK / lean)
                          : back / fmax(exposure, GAP_FIRST_S);
        before = out[i];
    }
}

static void class_rates(const struct sl_rhythm *rhythm, uint32_t class, const double *all,
                        double out[SL_RHYTHM_BUCKETS])
{
    for (uint32_t i = 0; i < SL_RHYTHM_BUCKETS; i++) {
        double back = rhythm->back[class][i];
        double exposure = rhythm->exposure[class][i] + rhythm->open[class][i];
        bool leans = class >= CLASS_FIRST && all[i] > 0;
        double rate = leans ? (back + PRIOR_BACK) / (exposure + PRIOR_BACK / all[i])
                            : back / fmax(exposure, RATE_LEAST);
        out[i] = fmax(rate, RATE_LEAST);
    }
}

static void class_settle(struct sl_rhythm *rhythm, uint32_t class, const double *all)
{
    double rate[SL_RHYTHM_BUCKETS];
    double hit[SL_RHYTHM_BUCKETS]; /* the chance to come back within, for one that reaches it */
    class_rates(rhythm, class, all, rate);
    for (uint32_t i = 0; i + 1 < SL_RHYTHM_BUCKETS; i++) {
        hit[i] = -expm1(-rate[i] * bucket_width(class, i));
    }
    rhythm->worth[class][SL_RHYTHM_BUCKETS - 1] = 0; /* beyond all that is looked at */
    rhythm->until[class][SL_RHYTHM_BUCKETS - 1] = SL_RHYTHM_BUCKETS - 1;
    for (uint32_t from = 0; from + 1 < SL_RHYTHM_BUCKETS; from++) {
        double there = 1, hits = 0, time = 0, best = 0, chance = 0;
        uint32_t until = from;
        for (uint32_t i = from; i + 1 < SL_RHYTHM_BUCKETS && there > 0.01; i++) {
            hits += there * hit[i];
            time += there * hit[i] / rate[i];
            there *= 1 - hit[i];
            if (hits / time > best) {
                best = hits / time;
                chance = hits;
                until = i;
            }
        }
        rhythm->worth[class][from] = best;
        rhythm->chance[class][from] = chance;
        rhythm->until[class][from] = (uint8_t)until;
    }
}

void sl_rhythm_settle(struct sl_rhythm *rhythm)
{
    double all[SL_RHYTHM_BUCKETS];
    rates_of_all(rhythm, all);
    for (uint32_t class = 0; class < SL_RHYTHM_CLASSES; class ++) {
        class_settle(rhythm, class, all);
    }
    memset(rhythm->open, 0, sizeof(rhythm->open));
}

static uint64_t ns_of(const struct sl_pause *pause, double age)
{
    double ns = ceil(age * unit_ns(pause));
    return ns < 9e18 ? (uint64_t)ns : SL_NEVER_NS;
}

double sl_rhythm_worth(const struct sl_rhythm *rhythm, const struct sl_pause *pause,
                       uint64_t age_ns, uint64_t *until_ns)
{
    uint32_t class = class_of(pause);
    uint32_t bucket = bucket_of(class, age_of(pause, age_ns));
    *until_ns = ns_of(pause, bucket_begin(class, rhythm->until[class][bucket] + 2u));
    return rhythm->worth[class][bucket] * (double)SL_NS_PER_S / unit_ns(pause);
}

uint64_t sl_rhythm_when(const struct sl_rhythm *rhythm, const struct sl_pause *pause,
                        uint64_t from_ns, double worth_min)
{
    uint32_t class = class_of(pause);
    double least = worth_min * unit_ns(pause) / (double)SL_NS_PER_S;
    uint32_t first = bucket_of(class, age_of(pause, from_ns));
    for (uint32_t i = first; i < SL_RHYTHM_BUCKETS; i++) {
        if (rhythm->worth[class][i] > least && rhythm->chance[class][i] >= SL_RHYTHM_CHANCE_MIN) {
            return i == first ? from_ns : ns_of(pause, bucket_begin(class, i));
        }
    }
    return SL_NEVER_NS;
}
