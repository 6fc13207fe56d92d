/* actors/coordinator/ahead.h - extents that were granted to the coordinator ahead of use. */
#ifndef SL_COORDINATOR_AHEAD_H
#define SL_COORDINATOR_AHEAD_H

#include "ipc/sl_index.h"

#define CO_AHEAD_CLASSES 64u /* ranks times sizes of parts */
#define CO_AHEAD_EXTENTS 32u /* of a class */

struct co_extent {
    uint64_t generation, offset_bytes;
    uint64_t asked_ns; /* no later than its grant */
    sl_ref ref;
    uint16_t arena;
};
struct co_ahead {          /* those of one rank and one size */
    uint64_t length_bytes; /* 0: the row is free */
    uint64_t used_ns;      /* when a store wanted one last; 0: none has */
    uint64_t asked_ns;     /* of the last request for more */
    uint64_t refused_until_ns;
    uint32_t rank;         /* that writes to them */
    uint32_t asks;         /* requests in flight: 0 or 1 */
    uint32_t first, count; /* of extents, a ring; oldest first */
    struct co_extent extents[CO_AHEAD_EXTENTS];
};

#endif
