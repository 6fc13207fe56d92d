/* actors/registrar/disk/reclaim.h - the oldest log file of a full disk is deleted, to make room. */
#ifndef SL_REGISTRAR_DISK_RECLAIM_H
#define SL_REGISTRAR_DISK_RECLAIM_H

#include "actors/registrar/base/core.h"
#include "actors/registrar/records/units.h"
#include "runtime/base/sl_heap.h"

/* Each phase except KEEPING and DELETING walks over the log file's records, some in each turn. */
enum reg_reclaim_phase {
    REG_RECLAIM_NONE,
    REG_RECLAIM_CHOOSING, /* what may be kept is put into the heap */
    REG_RECLAIM_KEEPING,  /* the most valuable are kept, while there is room */
    REG_RECLAIM_READING,  /* kept values that are only on disk are requested */
    REG_RECLAIM_CHECKING, /* when they are in memory: is a held value lost? */
    REG_RECLAIM_DELETING, /* answered: nothing is read from the file any more */
    REG_RECLAIM_CLEARING, /* the file was deleted: its places are cleared */
};
struct reg_room {
    uint64_t bytes, read_bytes; /* of the parts in the file; of those only on disk */
};

struct reg_reclaim { /* state of one reclaim */
    enum reg_reclaim_phase phase;
    bool continues_now; /* continues in the next turn; else it waits */
    struct sl_reply_route back;
    uint64_t until_ns, wait_ns;
    uint32_t number;    /* of this reclaim, never 0 */
    uint32_t left;      /* values being read */
    uint32_t held_left; /* values held by a hand-over and not in memory yet */
    uint32_t cursor;    /* next record */
    uint32_t cleared, kept;
    bool blind;          /* not known what is kept: values in memory are written again */
    bool again;          /* choosing among records added while others were kept */
    double cut;          /* units worth more are kept */
    struct sl_heap best; /* records, one of each unit that may be kept; the most valuable first */
    sl_ref chosen;       /* the unit last put there in this turn */
    struct reg_room room, said; /* left for kept values; for those with a hint */
};

/* Drops a unit that is about to leave with its log file, for a new store. True: it did. */
bool reg_reclaim_drops(struct registrar *self, sl_ref unit);
/* A hand-over holds the value at this place from now on. */
void reg_reclaim_check(struct registrar *self, const struct sl_disk_place *place);
/* A value that this reclaim waited for was read, or will not be. held: it was read and is held. */
void reg_reclaim_read(struct registrar *self, uint32_t disk, uint32_t number, bool held);
bool reg_reclaim_waits(const struct registrar *self, uint32_t disk, uint32_t number);

/* Clears the record's place; a value without another copy is dropped with its block. A value in
 * memory is queued for writing, unless `reclaimed`: it was chosen to leave the disk. */
void reg_place_clear(struct registrar *self, const struct sl_entry *entry,
                     const struct reg_drop *how, bool reclaimed);
/* The place is unreadable or wrong: clears it. A value without another copy is dropped with its
 * block, and both are logged. */
void reg_place_lost(struct registrar *self, sl_ref ref, sl_err code);

extern const struct reg_part reg_reclaim_part;

#endif
