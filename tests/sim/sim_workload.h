/* tests/sim/sim_workload.h - simulated engines that store and load chains of blocks, and the oracle
 * that knows which blocks they must find. */
#ifndef SL_TEST_SIM_WORKLOAD_H
#define SL_TEST_SIM_WORKLOAD_H

#include "tests/sim/sim.h"

#define WORKLOAD_CHAINS 12u
#define WORKLOAD_BLOCKS 12u /* of a chain */
#define WORKLOAD_SHARED 4u  /* first blocks that several chains share */
#define WORKLOAD_TRUNKS 2u
#define WORKLOAD_IDS \
    (WORKLOAD_TRUNKS * WORKLOAD_SHARED + WORKLOAD_CHAINS * (WORKLOAD_BLOCKS - WORKLOAD_SHARED))
#define WORKLOAD_RANKS         2u
#define WORKLOAD_POOLS         2u
#define WORKLOAD_DEVICE_BLOCKS 16u

struct workload {
    uint64_t seed;
    uint64_t piece_bytes;  /* of a layer of the first pool */
    uint64_t pause_ns_max; /* between two ops of an engine; 0: 15 ms */
    bool nothing_is_lost;  /* memory suffices: acknowledged blocks must be found */
    bool warming;          /* after a power cut the disk has not yet reported its values */
    bool quiet;            /* engines begin no new ops */
    bool verifying;        /* one engine loads chain after chain */
    bool late; /* frames are late: blocks of another host may be missed once, but not repeatedly */
    bool straight; /* loads go straight from other hosts into pools and may end before that */
    uint32_t ends_one_of;        /* one in ends_one_of ops runs while its engine ends; 0: none */
    uint32_t store_of, store_at; /* only chains with this remainder are stored here; 0: all are */
    char verifier[32];           /* name of the one that verifies */
    const uint64_t
        *disturbed_ns; /* when trouble last excused failures; NULL: use the simulator's record */
    bool acknowledged[WORKLOAD_IDS];
    uint64_t acknowledged_ns[WORKLOAD_IDS];
    bool durable[WORKLOAD_IDS];
    uint32_t verify_next, verify_tries;
    /* results */
    uint64_t loads, stores, blocks_loaded, blocks_remote, blocks_stored, blocks_existed, failed,
        unanswered, cancelled, verified, waited_for_fence, ended;
    uint64_t longest_wait_ns;
    uint64_t layers_reported, stored_by_layers;
};

/* After a flush, blocks acknowledged before before_ns are durable and survive a power cut. */
void workload_flushed(void *workload, uint64_t before_ns);
void workload_power_cut(struct workload *workload);
extern const struct sl_actor workload_engine; /* a client; its context is the struct workload */
#endif
