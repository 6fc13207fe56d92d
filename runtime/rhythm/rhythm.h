/* runtime/rhythm/rhythm.h - when a session that paused comes back, learnt.
 *
 * Pauses are sorted into classes: those of which an engine told the length, those that it said are
 * over, and the others by how many turns the session had and how long it paused last. A class has
 * buckets of age: of what was told in shares of that, else in octaves of time. For each stands how long sessions were in it,
 * and how many came back there. What it is worth to have the blocks of a session in memory is the
 * most that any horizon brings: the hits that are expected by then for the time until then (the
 * index of Gittins, as in runtime/density). */
#ifndef SL_RHYTHM_H
#define SL_RHYTHM_H

#include <stdbool.h>
#include <stdint.h>

#define SL_RHYTHM_TOLD    0u /* class of pauses that were told */
#define SL_RHYTHM_OVER    1u /* of those that are over: the next turn was said to come at once */
#define SL_RHYTHM_CLASSES 8u
#define SL_RHYTHM_BUCKETS 80u

struct sl_rhythm {
    /* in seconds; of what was told in shares of that */
    double exposure[SL_RHYTHM_CLASSES][SL_RHYTHM_BUCKETS];
    double back[SL_RHYTHM_CLASSES][SL_RHYTHM_BUCKETS];
    /* Of the pauses that go on: counted between two calls of settle, and forgotten then. */
    double open[SL_RHYTHM_CLASSES][SL_RHYTHM_BUCKETS];
    double worth[SL_RHYTHM_CLASSES][SL_RHYTHM_BUCKETS]; /* hits a second (or a share) of its stay */
    double chance[SL_RHYTHM_CLASSES][SL_RHYTHM_BUCKETS]; /* to come back within that horizon */
    uint8_t until[SL_RHYTHM_CLASSES][SL_RHYTHM_BUCKETS]; /* the horizon's last bucket */
    uint64_t back_count;                                 /* since counts were halved */
};

/* A pause, as it is known while it goes on. Its age counts from where it was told of. */
struct sl_pause {
    bool over;        /* it was said that it is */
    uint64_t told_ns; /* 0: nothing was told */
    uint64_t last_ns; /* how long the session paused before; 0: this is its first pause */
};

void sl_rhythm_init(struct sl_rhythm *rhythm);
/* The session came back after so long, and wanted its blocks. */
void sl_rhythm_back(struct sl_rhythm *rhythm, const struct sl_pause *pause, uint64_t age_ns);
/* Nobody looks at the session any more: it did not come back for so long. */
void sl_rhythm_lost(struct sl_rhythm *rhythm, const struct sl_pause *pause, uint64_t age_ns);
/* It has paused for so long, and goes on. Told of all of them before settle. */
void sl_rhythm_open(struct sl_rhythm *rhythm, const struct sl_pause *pause, uint64_t age_ns);
/* What all is worth, anew. */
void sl_rhythm_settle(struct sl_rhythm *rhythm);

/* Hits a second that a block of the session brings in memory, from this age of the pause on. Gives
 * in *until_ns the age up to which it is best kept for them. */
double sl_rhythm_worth(const struct sl_rhythm *rhythm, const struct sl_pause *pause,
                       uint64_t age_ns, uint64_t *until_ns);
/* The first age, from_ns or later, at which it is worth more than that, and the session comes back
 * within the horizon with a chance of SL_RHYTHM_CHANCE_MIN at least: else too many reads are in vain.
 * SL_NEVER_NS: there is none. */
#define SL_RHYTHM_CHANCE_MIN 0.25
uint64_t sl_rhythm_when(const struct sl_rhythm *rhythm, const struct sl_pause *pause,
                        uint64_t from_ns, double worth_min);

#endif
