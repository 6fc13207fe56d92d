/* tests/sim/sim_handover.h - simulated prefill and decode engines that hand requests over, through
 * storage and directly, by layers and whole, and the oracle that knows which blocks decode must
 * find.
 *
 * Engines of different hosts communicate through the table of requests, at once and without loss.
 * Messages that their nodes carry may be late, duplicated or lost. */
#ifndef SL_TEST_SIM_HANDOVER_H
#define SL_TEST_SIM_HANDOVER_H

#include "tests/sim/sim.h"

#define HANDOVER_HOSTS       3u
#define HANDOVER_RANKS       2u
#define HANDOVER_BLOCKS      6u /* of a request, at most */
#define HANDOVER_SHARED      2u /* first blocks that several requests share */
#define HANDOVER_TICKET_MAX  128u
#define HANDOVER_DEVICE_MAX  12u
#define HANDOVER_LAYERS      3u
#define HANDOVER_LANES       (HANDOVER_RANKS * HANDOVER_LAYERS)
#define HANDOVER_PIECE_BYTES 1000u /* of one layer of one rank */

enum handover_notify {
    HANDOVER_NONE,
    HANDOVER_ANNOUNCED,
    HANDOVER_TAKEN, /* by its prefill engine */
    HANDOVER_FIRST_TOKEN,
    HANDOVER_FAILED
};
struct handover_request { /* one request at a time for each decode engine of a host */
    uint64_t id;          /* 0: none */
    enum handover_notify word;
    uint32_t prefill, number, tokens, blocks;
    struct sl_item_ticket ticket; /* bytes.at: in ticket_bytes */
    unsigned char ticket_bytes[HANDOVER_TICKET_MAX];
    struct sl_item_receipt receipt; /* node.at: in node */
    char node[32];
};
struct handovers;
struct handover_side {
    struct handovers *all;
    uint32_t host;
    bool prefill;
};
struct handovers {
    uint32_t hosts;
    bool calm;                    /* nothing is disturbed: all of them succeed */
    bool late;                    /* answers at the end of an op may come after it */
    bool quiet;                   /* engines begin no new requests */
    uint32_t ends_one_of;         /* one in ends_one_of ops runs while its engine ends; 0: none */
    const uint64_t *disturbed_ns; /* of each host: excuses ops there without an answer */
    uint64_t calm_from_ns;
    struct handover_request requests[HANDOVER_HOSTS];
    struct handover_side sides[HANDOVER_HOSTS][2];
    uint32_t next_number;
    uint64_t begun, direct, complete, failed, layers_reported, unanswered, sent, send_failed, ended;
    uint64_t complete_at[HANDOVER_HOSTS]; /* of them: decoded there, directly */
};

void handovers_init(struct handovers *all, uint32_t hosts);
extern const struct sl_actor handover_engine; /* a client; its context is a struct handover_side */

#endif
