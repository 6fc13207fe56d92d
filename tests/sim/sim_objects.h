/* tests/sim/sim_objects.h - clients of the object API (libsluice as shipped), and the oracle that
 * knows what they must find.
 *
 * Every value that is ever put has a number of its own, the version, which its bytes carry. A
 * client has keys that it alone puts and removes, so what they hold is known exactly; others only
 * read them. The shared keys are put by all and removed by nobody: whatever is seen there once
 * stays. Contested keys (sim_contest.h) are put, replaced, removed and read by all. */
#ifndef SL_TEST_SIM_OBJECTS_H
#define SL_TEST_SIM_OBJECTS_H

#include "tests/sim/sim.h"
#include "tests/sim/sim_contest.h"

#define OBJECTS_SLOTS    3u /* clients at a time */
#define OBJECTS_OWN      6u /* keys of one */
#define OBJECTS_SHARED   10u
#define OBJECTS_KEYS     (OBJECTS_SLOTS * OBJECTS_OWN + OBJECTS_SHARED)
#define OBJECTS_VERSIONS 16384u

enum object_state { OBJECT_ABSENT, OBJECT_PRESENT, OBJECT_UNKNOWN };
struct object {
    enum object_state state;
    uint32_t version; /* PRESENT: this one; 0: one of those that are not dead */
    uint64_t since_ns;
    bool durable;
    bool open; /* a replacement that had no answer may still come */
};
struct version {
    uint32_t key;
    uint64_t dead_ns; /* from then on nobody may find it; SL_NEVER_NS: alive, or in doubt */
};
/* What a look-up was told: until then nobody may miss the key. */
struct leased {
    uint64_t since_ns, end_ns;
    uint64_t forced_ns; /* until then a removal that heeds nothing may be at it */
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
    bool strict;  /* nothing is short either: no error is excused but by trouble */
    bool quiet;   /* clients end */
    bool warming; /* after a power cut the disk has not said yet what it holds: misses are fine, and
                   * what is put meanwhile may win */
    bool hostile_to_blocks; /* they remove engines' blocks too */
    bool leases;            /* clients lease what they find */
    bool uncontested;       /* nobody calls for contested keys */
    bool verified;
    void (*flushed)(void *context, uint64_t before_ns); /* the engines' oracle listens, or NULL */
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
void objects_verifier(void *objects); /* a program: looks every key up, then sets `verified` */
void objects_remover(void *objects);  /* a program: removes all, then sets `verified` */
void objects_power_cut(struct objects *objects);

#endif
