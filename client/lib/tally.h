/* client/lib/tally.h - what one call of gets found in which tier, and in what time, for the counts
 * of the node (ipc/shm/sl_counts.h). */
#ifndef SL_CLIENT_LIB_TALLY_H
#define SL_CLIENT_LIB_TALLY_H

#include "client/lib/internal.h"

struct tally {
    const sl_err *codes; /* of the call's keys; borrowed */
    uint32_t count;
    uint64_t begin_ns; /* 0: its time is not taken */
    uint64_t weight;   /* for how many calls of one key it stands */
    uint32_t found;    /* in all tiers so far, */
    uint64_t bytes;    /* and their bytes */
    uint32_t tier_count;
    struct { /* those where something was; the others are not even set to 0 */
        enum sl_tier tier;
        uint32_t found;
        uint64_t bytes, ns;
    } tiers[SL_TIER_COUNT];
};

/* The call begins. Of calls of one key each that find it in memory every sixteenth is timed: a look
 * at a clock costs them a tenth. */
void sl_tally_begin(struct tally *tally, const sl_err *codes, uint32_t count);
/* What was found since the last of these calls came from this tier, which no call named before;
 * bytes: of all so far. */
void sl_tally_tier(struct tally *tally, enum sl_tier tier, uint64_t bytes);
/* What was not found has to wait for messages: that is always timed. */
void sl_tally_wait(struct tally *tally);
/* The call has ended: NOT_FOUND is a miss, LIMIT (a buffer that is too small) no reference yet,
 * every other code a failure. */
void sl_tally_end(const struct tally *tally, struct sl_client *client);

#endif
