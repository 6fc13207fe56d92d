/* client/lib/tally.h - what one call of gets found, by tier, and its times, for the counts of the
 * node (ipc/shm/sl_counts.h). */
#ifndef SL_CLIENT_LIB_TALLY_H
#define SL_CLIENT_LIB_TALLY_H

#include "client/lib/internal.h"

struct tally {
    const sl_err *codes; /* of the call's keys; borrowed */
    uint32_t count;
    uint64_t begin_ns; /* 0: not timed */
    uint64_t weight;   /* number of calls of one key that it represents */
    uint32_t found;    /* in all tiers so far, */
    uint64_t bytes;    /* and their bytes */
    uint32_t tier_count;
    struct { /* tiers in which something was found; the others are not initialised */
        enum sl_tier tier;
        uint32_t found;
        uint64_t bytes, ns;
    } tiers[SL_TIER_COUNT];
};

/* Begins a call. Of calls of one key that find it in memory every sixteenth is timed, since reading
 * a clock costs them a tenth. */
void sl_tally_begin(struct tally *tally, const sl_err *codes, uint32_t count);
/* The keys found since the last of these calls are from this tier, which no earlier call named;
 * bytes: total so far. */
void sl_tally_tier(struct tally *tally, enum sl_tier tier, uint64_t bytes);
/* The missing keys wait for messages: this is always timed. */
void sl_tally_wait(struct tally *tally);
/* Ends the call. NOT_FOUND is a miss, LIMIT (a buffer that is too small) is not counted yet, every
 * other code is a failure. */
void sl_tally_end(const struct tally *tally, struct sl_client *client);

#endif
