/* runtime/density/density_rates.h - how likely a unit is to be wanted again, learnt.
 *
 * Units are sorted into cells by class and age. A class says how a unit came to be: by how many
 * blocks its request had to store, as the last of its request, or by how often it was wanted; and
 * what was said about its session. Ages and times are counted in references (wanted units), not in
 * seconds. In each cell stands how long units were in it, and how many were wanted meanwhile. What
 * a cell is worth is the most that keeping a unit from it for some time brings for each reference
 * of that time: the index of Gittins (1979) for a job that ends with its first hit. */
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
#define SL_DENSITY_AGES    35u
#define SL_DENSITY_CELLS   (SL_DENSITY_CLASSES * SL_DENSITY_AGES)
/* The first age ends after so many references. These first ages are an octave each, and two of those that
 * follow are one. */
#define SL_DENSITY_AGE_UNIT    32u
#define SL_DENSITY_AGE_OCTAVES 3u

struct sl_rates {
    double exposure[SL_DENSITY_CELLS]; /* references that units spent in the cell */
    double wanted[SL_DENSITY_CELLS];   /* of them, units that were wanted there */
    double rate[SL_DENSITY_CELLS];     /* hits a reference of one that is there, smoothed */
    double value[SL_DENSITY_CELLS];    /* expected hits a reference of keeping one */
    double chance[SL_DENSITY_CELLS];   /* of a hit within the next horizon references */
    uint64_t horizon;                  /* set by the user; counts from the next settle on */
    uint16_t order[SL_DENSITY_CELLS];  /* cells, the least valued first */
    uint16_t rank[SL_DENSITY_CELLS];   /* place of a cell in order */
    uint64_t end[SL_DENSITY_AGES];     /* references after which an age is over; the last: never */
    uint32_t start; /* units begin at this age, and those before it are part of it */
    double steps;   /* of values, an octave */
};

void sl_rates_init(struct sl_rates *rates);
/* 0..SL_DENSITY_CLASSES-1. use_count: how often it was wanted, 1: the store. stored_count: blocks
 * that its request stored. */
uint32_t sl_rates_class(uint32_t use_count, uint32_t stored_count, bool cut, enum reg_hint hint);
static inline uint32_t sl_rates_cell(uint32_t class_index, uint32_t age)
{
    return class_index * SL_DENSITY_AGES + age;
}
/* A class in words: "wanted once, stored with 16 to 31 blocks; its session ends". Gives out. */
#define SL_DENSITY_TEXT_BYTES 96u
const char *sl_rates_class_text(uint32_t class_index, char out[SL_DENSITY_TEXT_BYTES]);
/* So many units are in memory, and so many were wanted so far: what is young against that is one age,
 * and values are told apart the finer the more often memory was filled anew. Before settle. */
void sl_rates_scale(struct sl_rates *rates, uint64_t unit_count, uint64_t references);
/* So many units left this age because they got older. */
void sl_rates_outlived(struct sl_rates *rates, uint32_t cell, uint32_t count);
/* A unit was wanted, so many references after it was last. */
void sl_rates_wanted(struct sl_rates *rates, uint32_t cell, uint64_t age_references);
/* How likely one of this class that was not wanted for age_references is wanted within so many
 * references from now, 0..1. */
double sl_rates_chance(const struct sl_rates *rates, uint32_t class_index, uint64_t age_references,
                       uint64_t within_references);
/* What is old counts half. */
void sl_rates_halve(struct sl_rates *rates);
/* Values and order anew. */
void sl_rates_settle(struct sl_rates *rates);

#endif
