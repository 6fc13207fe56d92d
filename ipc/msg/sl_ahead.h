/* ipc/msg/sl_ahead.h - extents that the registrar granted to this process in advance.
 *
 * A small value of a size that comes again then costs one round trip: it is written to an extent
 * that was granted before, and the COMMIT that names its key asks for the next ones. A client keeps
 * one such table. An extent ends as every reservation does: by its deadline, by the death of its
 * owner, or when the registrar needs the memory. So it is looked at again before it is used, and
 * who finds that it has ended asks by RESERVE. */
#ifndef SL_AHEAD_H
#define SL_AHEAD_H

#include "ipc/msg/sl_msg.h"
#include "ipc/shm/sl_index.h"

/* A larger write costs so much by its bytes that a round trip is little beside it: the registrar
 * had better say first who else writes there. 512 KiB would cost puts of 1 MiB a seventh. */
#define SL_AHEAD_BYTES_MAX (1 * SL_MIB)
#define SL_AHEAD_CLASSES   16u
#define SL_AHEAD_EXTENTS   64u /* of a class */

struct sl_ahead_extent {
    uint64_t generation, offset_bytes;
    uint64_t asked_ns; /* no later than its grant */
    sl_ref ref;
    uint16_t arena;
    uint32_t life; /* of the memory that it is in: the caller's number */
};
struct sl_ahead_class {
    uint64_t space_bytes;    /* sl_extent_space of the values; 0: the row is free */
    uint64_t used_ns;        /* when it was last wanted */
    uint64_t asked_ns;       /* when extents were last asked for */
    uint64_t pause_until_ns; /* they are on their way, or the registrar gave none */
    uint32_t first, count;   /* of extents, a ring; the oldest first */
    struct sl_ahead_extent extents[SL_AHEAD_EXTENTS];
};
struct sl_ahead { /* zeroed: empty; one thread at a time */
    struct sl_ahead_class classes[SL_AHEAD_CLASSES];
};

/* Notes that `need` extents of this size are wanted. Gives how many to ask for with the COMMIT: 0
 * where enough are here, or the size was not wanted lately, or was asked for or refused a moment
 * ago. */
uint32_t sl_ahead_wish(struct sl_ahead *ahead, uint64_t space_bytes, uint32_t need,
                       uint64_t now_ns);
/* The answer to such a COMMIT. */
void sl_ahead_arrived(struct sl_ahead *ahead, uint64_t space_bytes,
                      const struct sl_item_grant *grants, uint64_t count, uint32_t life,
                      uint64_t now_ns);
/* Takes the oldest of this life; false: there is none. Those of other lives are dropped. */
bool sl_ahead_take(struct sl_ahead *ahead, uint64_t space_bytes, uint32_t life,
                   struct sl_ahead_extent *out);
/* Puts one back that was not used, as the oldest. False: there is no room. */
bool sl_ahead_return(struct sl_ahead *ahead, uint64_t space_bytes,
                     const struct sl_ahead_extent *extent);
/* Takes out what was asked for before that time, at most so many, to be given back in an ABORT. */
uint32_t sl_ahead_expire(struct sl_ahead *ahead, uint64_t before_ns, struct sl_item_claim *out,
                         uint32_t count_max);

#endif
