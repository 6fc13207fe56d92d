/* runtime/rhythm/rhythm.c - classes and ages of pauses, and what each is worth. */
#include "runtime/rhythm/rhythm.h"
#include "runtime/sl_base.h"
#include "runtime/sl_clock.h"

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
/* Where nothing was said, a bucket of which little is known leans on the one before it with the weight of so
 * many that came back. */
#define PRIOR_BACK 8.0
/* Before anything was told: four sessions, of which these came back at about the time. */
#define FIRST_SESSIONS 4.0
/* And before anything was said to be over: so many of the four came back within a second. */
#define OVER_BACK 3.0
/* What was seen counts half after so many that came back. */
#define HALVE_BACK 4096u
#define RATE_LEAST 1e-9

/* Where a bucket begins, in seconds or shares of what was told. */
static double bucket_begin(uint32_t class, uint32_t bucket)
{
    if (class != SL_RHYTHM_TOLD) {
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
    if (class != SL_RHYTHM_TOLD) {
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
    if (pause->over || pause->told_ns != 0) {
        return pause->over ? SL_RHYTHM_OVER : SL_RHYTHM_TOLD;
    }
    return pause->first ? SL_RHYTHM_FIRST : SL_RHYTHM_GAP;
}

static double unit_ns(const struct sl_pause *pause)
{
    return class_of(pause) == SL_RHYTHM_TOLD ? (double)pause->told_ns : (double)SL_NS_PER_S;
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
    for (uint32_t i = 0; i < SL_RHYTHM_BUCKETS - 1; i++) {
        bool early = i < bucket_of(SL_RHYTHM_OVER, 1.0);
        rhythm->exposure[SL_RHYTHM_TOLD][i] = FIRST_SESSIONS * bucket_width(SL_RHYTHM_TOLD, i);
        rhythm->exposure[SL_RHYTHM_OVER][i] = FIRST_SESSIONS * bucket_width(SL_RHYTHM_OVER, i);
        rhythm->back[SL_RHYTHM_OVER][i] = early ? OVER_BACK * bucket_width(SL_RHYTHM_OVER, i) : 0.0;
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

void sl_rhythm_note(struct sl_rhythm *rhythm, const struct sl_pause *pause, uint64_t age_ns,
                    enum sl_rhythm_end how)
{
    uint32_t class = class_of(pause);
    double age = (double)age_ns / unit_ns(pause);
    double *exposure = how == SL_RHYTHM_OPEN ? rhythm->open[class] : rhythm->exposure[class];
    uint32_t last = bucket_of(class, age);
    for (uint32_t i = 0; i < last; i++) {
        exposure[i] += bucket_width(class, i);
    }
    exposure[last] += age - bucket_begin(class, last);
    rhythm->back[class][last] += how == SL_RHYTHM_BACK ? 1 : 0;
    rhythm->back_count += how == SL_RHYTHM_BACK;
    if (rhythm->back_count >= HALVE_BACK) {
        halve(rhythm);
    }
}

static void class_settle(struct sl_rhythm *rhythm, uint32_t class)
{
    double rate[SL_RHYTHM_BUCKETS], width[SL_RHYTHM_BUCKETS];
    bool leans = class < SL_RHYTHM_TOLD;
    double lean =
        0; /* an age that nobody reached yet is like the one before, and worth less with each */
    for (uint32_t i = 0; i < SL_RHYTHM_BUCKETS; i++) {
        double back = rhythm->back[class][i];
        double exposure = rhythm->exposure[class][i] + rhythm->open[class][i];
        rate[i] = lean > 0 ? (back + PRIOR_BACK) / (exposure + PRIOR_BACK / lean)
                           : back / fmax(exposure, leans ? GAP_FIRST_S : RATE_LEAST);
        lean = leans ? rate[i] / 2 : 0;
        rate[i] = fmax(rate[i], RATE_LEAST);
        width[i] = bucket_width(class, i);
    }
    /* the last bucket is beyond all that is looked at: its worth stays 0 */
    sl_gittins(rate, width, SL_RHYTHM_BUCKETS - 1, rhythm->worth[class]);
}

void sl_rhythm_settle(struct sl_rhythm *rhythm)
{
    for (uint32_t class = 0; class < SL_RHYTHM_CLASSES; class ++) {
        class_settle(rhythm, class);
    }
    memset(rhythm->open, 0, sizeof(rhythm->open));
}

static uint64_t ns_of(const struct sl_pause *pause, uint32_t bucket)
{
    double ns = ceil(bucket_begin(class_of(pause), bucket) * unit_ns(pause));
    return ns < 9e18 ? (uint64_t)ns : SL_NEVER_NS;
}

/* Of one that has this age. */
static uint32_t bucket_at(const struct sl_pause *pause, uint64_t age_ns)
{
    return bucket_of(class_of(pause), (double)age_ns / unit_ns(pause));
}

static double hits_a_second(const struct sl_pause *pause, const struct sl_worth *worth)
{
    return worth->time > 0 ? worth->hit / worth->time * (double)SL_NS_PER_S / unit_ns(pause) : 0;
}

double sl_rhythm_worth(const struct sl_rhythm *rhythm, const struct sl_pause *pause,
                       uint64_t age_ns, uint64_t *until_ns)
{
    uint32_t bucket = bucket_at(pause, age_ns);
    const struct sl_worth *worth = &rhythm->worth[class_of(pause)][bucket];
    *until_ns = ns_of(pause, SL_MAX(worth->end, bucket + 1) + 1);
    return hits_a_second(pause, worth);
}

uint64_t sl_rhythm_when(const struct sl_rhythm *rhythm, const struct sl_pause *pause,
                        uint64_t from_ns, double worth_min)
{
    uint32_t first = bucket_at(pause, from_ns);
    for (uint32_t i = first; i < SL_RHYTHM_BUCKETS; i++) {
        const struct sl_worth *worth = &rhythm->worth[class_of(pause)][i];
        if (hits_a_second(pause, worth) > worth_min && worth->hit >= SL_RHYTHM_CHANCE_MIN) {
            return i == first ? from_ns : ns_of(pause, i);
        }
    }
    return SL_NEVER_NS;
}
