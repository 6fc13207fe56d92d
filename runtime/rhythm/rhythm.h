/* runtime/rhythm/rhythm.h - when a session that paused comes back, learnt.
 *
 * Pauses are of four classes: an engine told the length, it said that the pause is over, or it said
 * nothing, of a session's first or of a later one. A class has buckets of age: of what was told in shares of that, else in octaves of time. For
 * each stands how long sessions were in it, and how many came back there. What it is worth to have the
 * blocks of a session in memory is the most that any horizon brings, as runtime/density has it of units. */
#ifndef SL_RHYTHM_H
#define SL_RHYTHM_H

#include "runtime/density/density.h"

enum sl_rhythm_class {
    SL_RHYTHM_FIRST, /* of a session, and nothing was said */
    SL_RHYTHM_GAP,   /* another one, of which nothing was said */
    SL_RHYTHM_TOLD,  /* its length was */
    SL_RHYTHM_OVER,  /* the next turn was said to come at once */
    SL_RHYTHM_CLASSES
};
#define SL_RHYTHM_BUCKETS 80u

struct sl_rhythm {
    /* in seconds; of what was told in shares of that */
    double exposure[SL_RHYTHM_CLASSES][SL_RHYTHM_BUCKETS];
    double back[SL_RHYTHM_CLASSES][SL_RHYTHM_BUCKETS];
    /* Of the pauses that go on: counted between two calls of settle, and forgotten then. */
    double open[SL_RHYTHM_CLASSES][SL_RHYTHM_BUCKETS];
    struct sl_worth worth[SL_RHYTHM_CLASSES][SL_RHYTHM_BUCKETS];
    uint64_t back_count; /* since counts were halved */
};

/* A pause, as it is known while it goes on. Its age counts from where it was told of. */
struct sl_pause {
    bool first;       /* the session had one turn */
    bool over;        /* it was said that it is */
    uint64_t told_ns; /* 0: nothing was told */
};

void sl_rhythm_init(struct sl_rhythm *rhythm);
/* How a pause of this age is known. */
enum sl_rhythm_end {
    SL_RHYTHM_BACK, /* the session came back, and wanted its blocks */
    SL_RHYTHM_LOST, /* nobody looks at it any more: it did not come back */
    SL_RHYTHM_OPEN, /* it goes on. Told of all of them before settle */
};
void sl_rhythm_note(struct sl_rhythm *rhythm, const struct sl_pause *pause, uint64_t age_ns,
                    enum sl_rhythm_end how);
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
