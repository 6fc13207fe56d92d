/* tests/sim/sim_far.h - clients of the object API on several hosts, and the oracle that knows what
 * they may find.
 *
 * A key has the same value for ever, wherever it is put. On each host one client alone puts and
 * removes a key, so what is known to be there is exact; anybody's get may bring it in from another
 * host. */
#ifndef SL_TEST_SIM_FAR_H
#define SL_TEST_SIM_FAR_H

#include "tests/sim/sim.h"

#define FAR_HOSTS 3u
#define FAR_SLOTS 2u /* clients of a host at a time */
#define FAR_KEYS  28u

struct far_key { /* at one host */
    bool present;
    bool doubt;   /* a removal failed: it may still happen */
    bool putting; /* its place is reserved: nobody brings it in */
    uint64_t since_ns;
    uint64_t changes; /* a get that saw one may find it or not */
};
struct far;
struct far_slot {
    struct far *all;
    uint32_t host, number;
};
struct far {
    struct sim *sim;
    uint32_t host_count;
    bool ample; /* memory for everything: what is present is in memory */
    bool calm;  /* nothing is ever disturbed: what another host has is found */
    bool late;  /* messages come late: two of them take longer than a short call may */
    bool quiet; /* clients end */
    bool verified;
    uint32_t verify_host;
    bool warming[FAR_HOSTS]; /* its disk has not said yet what it holds: that may win over what is
                                put */
    uint64_t disturbed_ns[FAR_HOSTS]; /* when something last happened to a process of the host */
    struct far_slot slots[FAR_HOSTS][FAR_SLOTS];
    struct far_key keys[FAR_HOSTS][FAR_KEYS];
    uint64_t puts, put_failed, gets, found, here, missed, get_failed, pinned, removes, refused;
    uint64_t slowest_ns;
};

void far_init(struct far *far, struct sim *sim, uint32_t host_count);
void far_client(void *slot);  /* a program: works until all are quiet */
void far_verifier(void *far); /* a program: looks every key up at verify_host */
/* What happens to the host's processes until then excuses failures there. */
void far_disturb(struct far *far, uint32_t host, uint64_t until_ns);
/* The host's memory is gone. */
void far_forget(struct far *far, uint32_t host);

#endif
