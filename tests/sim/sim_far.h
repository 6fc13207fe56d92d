/* tests/sim/sim_far.h - clients of the object API on several hosts, and the oracle that knows which
 * keys they may find.
 *
 * A key has the same value forever, on whichever host it is put. On each host only one client puts
 * and removes a key, so the oracle knows exactly whether the host has it. A get by any client may
 * bring it in from another host. */
#ifndef SL_TEST_SIM_FAR_H
#define SL_TEST_SIM_FAR_H

#include "tests/sim/sim.h"

#define FAR_HOSTS 3u
#define FAR_SLOTS 2u /* clients on a host at a time */
#define FAR_KEYS  28u

struct far_key { /* a key on one host */
    bool present;
    bool doubt;   /* a removal failed: it may still take effect */
    bool putting; /* its place is reserved: no get brings it in */
    uint64_t since_ns;
    uint64_t changes; /* a get during which this changed may find it or not */
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
    bool calm;  /* nothing is disturbed: keys of other hosts are found */
    bool late;  /* messages are late: two of them take longer than a short call may */
    bool quiet; /* clients end */
    bool verified;
    uint32_t verify_host;
    bool warming[FAR_HOSTS]; /* the host's disk has not yet reported its values, which may win over
                                a put */
    uint64_t disturbed_ns[FAR_HOSTS]; /* when a process of the host was last disturbed */
    struct far_slot slots[FAR_HOSTS][FAR_SLOTS];
    struct far_key keys[FAR_HOSTS][FAR_KEYS];
    uint64_t puts, put_failed, gets, found, here, missed, get_failed, pinned, removes, refused;
    uint64_t slowest_ns;
};

void far_init(struct far *far, struct sim *sim, uint32_t host_count);
void far_client(void *slot);  /* a program: works until all are quiet */
void far_verifier(void *far); /* a program: looks up every key on verify_host */
/* Excuses failures on the host until then, because its processes are being disturbed. */
void far_excuse_until(struct far *far, uint32_t host, uint64_t until_ns);
/* Call it when the host's memory is lost. */
void far_memory_lost(struct far *far, uint32_t host);

#endif
