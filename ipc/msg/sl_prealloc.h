/* ipc/msg/sl_prealloc.h - extents that the registrar granted to this process in advance.
 *
 * They make puts of small values of a recurring size cost one round trip: the value is written to
 * an extent that was granted before, and the COMMIT that names its key also asks for more extents.
 * A client has one such table. An extent ends like any reservation: by its deadline, by the death
 * of its owner, or because the registrar needs the memory. It is therefore checked before use, and
 * if it has ended the client sends a RESERVE instead. */
#ifndef SL_PREALLOC_H
#define SL_PREALLOC_H

#include "ipc/msg/sl_msg.h"
#include "ipc/shm/sl_index.h"

/* For larger values a round trip costs little beside the copy, and RESERVE reveals other writers
 * before the copy. At 512 KiB puts of 1 MiB would be a seventh slower. */
#define SL_PREALLOC_BYTES_MAX (1 * SL_MIB)
#define SL_PREALLOC_CLASSES   16u
#define SL_PREALLOC_EXTENTS   64u /* per class */

struct sl_prealloc_extent {
    uint64_t generation, offset_bytes;
    uint64_t asked_ns; /* not after the time of its grant */
    sl_ref ref;
    uint16_t arena;
    uint32_t life; /* number of the memory that it is in, assigned by the caller */
};
struct sl_prealloc_class {
    uint64_t space_bytes;    /* sl_extent_space of the values; 0: unused row */
    uint64_t used_ns;        /* when this size was last wanted */
    uint64_t asked_ns;       /* time of the last request for extents */
    uint64_t pause_until_ns; /* a request is in flight, or the registrar granted none */
    uint32_t first, count;   /* ring of extents, oldest first */
    struct sl_prealloc_extent extents[SL_PREALLOC_EXTENTS];
};
struct sl_prealloc { /* all zero: empty; one thread at a time */
    struct sl_prealloc_class classes[SL_PREALLOC_CLASSES];
};

/* Records that `need` extents of this size are wanted. Returns the number to request with the
 * COMMIT: 0 if there are enough, if the size was not wanted recently, or if a request was just made
 * or refused. */
uint32_t sl_prealloc_request_count(struct sl_prealloc *ahead, uint64_t space_bytes, uint32_t need,
                                   uint64_t now_ns);
/* Stores the extents in the reply to such a COMMIT. */
void sl_prealloc_add(struct sl_prealloc *ahead, uint64_t space_bytes,
                     const struct sl_item_grant *grants, uint64_t count, uint32_t life,
                     uint64_t now_ns);
/* Takes the oldest extent of this life, and drops those of other lives. False: there is none. */
bool sl_prealloc_take(struct sl_prealloc *ahead, uint64_t space_bytes, uint32_t life,
                      struct sl_prealloc_extent *out);
/* Returns an unused extent, as the oldest. False: there is no room. */
bool sl_prealloc_return(struct sl_prealloc *ahead, uint64_t space_bytes,
                        const struct sl_prealloc_extent *extent);
/* Removes extents that were requested before that time, count_max at most, for the caller to send
 * in an ABORT. */
uint32_t sl_prealloc_expire(struct sl_prealloc *ahead, uint64_t before_ns,
                            struct sl_item_claim *out, uint32_t count_max);

#endif
