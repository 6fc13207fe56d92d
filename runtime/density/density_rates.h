/* runtime/density/density_rates.h - how likely a unit is to be wanted again, learnt.
 *
 * Units are counted in cells of class and age. A class says how a unit came to be: how many blocks its
 * request stored, whether it was the last of its request, or how often it was wanted; and what was said
 * about its session. Ages and times are counted in references (wanted units), not in seconds. Each cell
 * knows how long units were in it, and how many of them were wanted meanwhile. The value of a cell is the
 * most that keeping a unit from it for some time brings for each reference of that time: the index of
 * Gittins (1979) for a job that ends with its first hit. */
#ifndef SL_DENSITY_RATES_H
#define SL_DENSITY_RATES_H

#include <stdbool.h>
#include <stdint.h>

enum {
    SL_DENSITY_STORED_CLASSES = 8, /* wanted once: by log2 of the blocks stored with it */
    SL_DENSITY_TWICE = 8,
    SL_DENSITY_FEW = 9,   /* wanted three or four times */
    SL_DENSITY_MANY = 10, /* five times and more */
    SL_DENSITY_CUT = 11,  /* wanted once, and the last block of its request */
    SL_DENSITY_KINDS = 12,
};
/* What was said of the session; each has the kinds above for itself. */
enum reg_hint { REG_HINT_NONE, REG_HINT_ENDS, REG_HINT_GOES_ON, REG_HINT_COUNT };
#define SL_DENSITY_CLASSES ((uint32_t)SL_DENSITY_KINDS * REG_HINT_COUNT)
/* The first ages take 32 references each; those that follow twice as many, and so on: four an octave. The
 * last one has no end. */
#define SL_DENSITY_AGES        76u
#define SL_DENSITY_FIRST_AGES  8u
#define SL_DENSITY_OCTAVE_AGES 4u
#define SL_DENSITY_CELLS       (SL_DENSITY_CLASSES * SL_DENSITY_AGES)

struct sl_rates {
    double exposure[SL_DENSITY_CELLS]; /* references that units spent in the cell */
    double wanted[SL_DENSITY_CELLS];   /* of them, units that were wanted there */
    double rate[SL_DENSITY_CELLS];     /* hits a reference of one that is there, smoothed */
    double value[SL_DENSITY_CELLS];    /* expected hits a reference of keeping one */
    int16_t step[SL_DENSITY_CELLS];    /* the value, in steps */
    double steps;                      /* of values, an octave */
};

static inline uint32_t sl_rates_cell(uint32_t class_index, uint32_t age)
{
    return age * SL_DENSITY_CLASSES + class_index;
}

/* An age takes 1 << shift references. */
static inline uint32_t sl_rates_shift(uint32_t age)
{
    return age < SL_DENSITY_FIRST_AGES ? 5 : 4 + age / SL_DENSITY_OCTAVE_AGES;
}

/* 0..SL_DENSITY_CLASSES-1. use_count: how often it was wanted, 1: the store. stored_count: blocks
 * that its request stored. */
uint32_t sl_rates_class(uint32_t use_count, uint32_t stored_count, bool cut, enum reg_hint hint);
/* A class in words: "wanted once, one of 16 to 31 stored". Gives out. */
#define SL_DENSITY_TEXT_BYTES 96u
const char *sl_rates_class_text(uint32_t class_index, char out[SL_DENSITY_TEXT_BYTES]);
/* What it is worth to wait for one hit from an age on, at the best of all horizons: that where the hits
 * that are expected by then are most for the time until then. */
struct sl_worth {
    double hit, time; /* that are expected; 0..1 */
    double stay;      /* the chance that no hit came by then */
    uint32_t end;     /* the age behind the horizon */
};
/* Of count ages, each of a width and with so many hits a time, more than 0. */
void sl_rates_worths(const double *rate, const double *width, uint32_t count, struct sl_worth *out);
/* Computes rates and values. filled: how often memory was filled anew; the more often, the finer
 * values are told apart. */
void sl_rates_settle(struct sl_rates *rates, double filled);
/* What is old counts half. */
void sl_rates_halve(struct sl_rates *rates);
/* How likely one of this class that was not wanted for age_references is wanted within so many
 * references from now, 0..1. */
double sl_rates_chance(const struct sl_rates *rates, uint32_t class_index, uint64_t age_references,
                       uint64_t within_references);

#endif
