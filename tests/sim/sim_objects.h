/* tests/sim/sim_objects.h - clients of the object API (libsluice as shipped), and the oracle that
 * knows which values they must find.
 *
 * Every value that is ever put has a number of its own, the version, which its bytes carry. A
 * client has own keys, which no other client puts or removes, so their state is known exactly;
 * other clients only read them. Shared keys are put by all and removed by none: once found, they
 * remain. Contested keys (sim_contest.h) are put, replaced, removed and read by all. */
#ifndef SL_TEST_SIM_OBJECTS_H
#define SL_TEST_SIM_OBJECTS_H

#include "tests/sim/sim.h"
#include "tests/sim/sim_contest.h"

#define OBJECTS_SLOTS    3u /* clients at a time */
#define OBJECTS_OWN      6u /* own keys of one client */
#define OBJECTS_SHARED   10u
#define OBJECTS_KEYS     (OBJECTS_SLOTS * OBJECTS_OWN + OBJECTS_SHARED)
#define OBJECTS_VERSIONS 16384u

enum object_state { OBJECT_ABSENT, OBJECT_PRESENT, OBJECT_UNKNOWN };
struct object {
    enum object_state state;
    uint32_t version; /* PRESENT: this one; 0: any that is not dead */
    uint64_t since_ns;
    bool durable;
    bool open; /* a replacement without an answer may still take effect */
};
struct version {
    uint32_t key;
    uint64_t dead_ns; /* must not be found from then on; SL_NEVER_NS: alive, or in doubt */
};
/* The lease that a lookup reported: the key must be found until it ends. */
struct leased {
    uint64_t since_ns, end_ns;
    uint64_t forced_ns; /* until then a removal that ignores leases may be in progress */
};
struct objects;
struct objects_slot {
    struct objects *all;
    uint32_t number;
};
struct objects {
    struct sim *sim;
    bool nothing_is_lost; /* memory or disk for everything */
    bool disk;
    bool strict;  /* no resource is short either: only disturbances excuse errors */
    bool quiet;   /* clients end */
    bool warming; /* after a power cut the disk has not yet reported its values: misses are allowed,
                     and its values may win over a put */
    bool hostile_to_blocks; /* they remove engines' blocks too */
    bool leases;            /* clients lease the values they find */
    bool uncontested;       /* no client uses contested keys */
    bool verified;
    void (*flushed)(void *context, uint64_t before_ns); /* notifies the engines' oracle, or NULL */
    void *context;
    struct objects_slot slots[OBJECTS_SLOTS];
    struct object keys[OBJECTS_KEYS];
    struct leased leased[OBJECTS_KEYS];
    struct version versions[OBJECTS_VERSIONS];
    uint32_t version_count;
    uint64_t puts, put_failed, gets, found, missed, get_failed, pinned, removes, flushes, refused,
        prefetched, replaces, leases_taken, leases_heeded;
    uint64_t slowest_ns;
    struct contest contest;
};

void objects_init(struct objects *objects, struct sim *sim);
void objects_client(void *slot);      /* a program: works until all are quiet */
void objects_verifier(void *objects); /* a program: looks up every key, then sets `verified` */
void objects_remover(void *objects);  /* a program: removes all, then sets `verified` */
void objects_power_cut(struct objects *objects);

#endif
