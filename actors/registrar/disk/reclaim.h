/* actors/registrar/disk/reclaim.h - the oldest segment of a disk goes. */
#ifndef SL_REGISTRAR_DISK_RECLAIM_H
#define SL_REGISTRAR_DISK_RECLAIM_H

#include "actors/registrar/base/core.h"
#include "actors/registrar/records/units.h"
#include "runtime/base/sl_heap.h"

/* Each phase but KEEPING and GOING goes through the records of the segment, some in a turn. */
enum reg_reclaim_phase {
    REG_RECLAIM_NONE,
    REG_RECLAIM_CHOOSING, /* what is to be kept, into the heap */
    REG_RECLAIM_KEEPING,  /* out of the heap, while there is room */
    REG_RECLAIM_READING,  /* of this, what is on disk alone */
    REG_RECLAIM_CHECKING, /* when that has come: does anything go that is held? */
    REG_RECLAIM_GOING,    /* answered: the file goes, and nothing is read from it any more */
    REG_RECLAIM_CLEARING, /* it has gone */
};
struct reg_room {
    uint64_t bytes, read_bytes; /* of parts in the segment; of those on disk alone */
};

struct reg_reclaim { /* the oldest segment of a disk goes, when what is kept of it is in memory */
    enum reg_reclaim_phase phase;
    bool goes_on; /* in the next turn; else it waits */
    struct sl_return back;
    uint64_t until_ns, wait_ns;
    uint32_t number;    /* of this one, never 0 */
    uint32_t left;      /* values that are on their way */
    uint32_t held_left; /* values that a hand-over holds and that are not in memory yet */
    uint32_t cursor;    /* of the records */
    uint32_t cleared, kept;
    bool blind;          /* nothing was chosen by this registrar */
    bool again;          /* it chooses among those that came while it kept others */
    double cut;          /* of worth */
    struct sl_heap best; /* what is to be kept, the most worth first: records, one of each unit */
    sl_ref chosen;       /* the last unit there, of this turn */
    struct reg_room room, said;
};

/* A unit that somebody wants to store, and that is about to go with its segment: true, and it has
 * gone. */
bool reg_reclaim_takes(struct registrar *self, sl_ref unit);
/* A hand-over holds what is there from now on. */
void reg_reclaim_check(struct registrar *self, const struct sl_disk_place *place);
/* A value that the reclaim of this number waited for has come, or will not. held: it has, and is
 * held. */
void reg_reclaim_read(struct registrar *self, uint32_t disk, uint32_t number, bool held);
bool reg_reclaim_waits(const struct registrar *self, uint32_t disk, uint32_t number);

/* The record loses its place; what has no other copy is dropped as a whole block. reclaimed: it had
 * its time on disk, else it is written anew. */
void reg_place_clear(struct registrar *self, const struct sl_entry *entry,
                     const struct reg_drop *how, bool reclaimed);
/* A place cannot be trusted: forgets it; what has no other copy is dropped as a whole block. */
void reg_place_lost(struct registrar *self, sl_ref ref, sl_err code);

extern const struct reg_part reg_reclaim_part;

#endif
