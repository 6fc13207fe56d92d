/* actors/transporter/state/slot.h - a pool slot: names one part of a block in an engine's pool. */
#ifndef SL_TRANSPORTER_STATE_SLOT_H
#define SL_TRANSPORTER_STATE_SLOT_H

#include <stdbool.h>
#include <stdint.h>

/* In pools without part_count the part is 0, whatever `part` contains. */
struct tr_slot {
    uint64_t engine_id; /* the rank's own registration */
    uint32_t rank, pool, part;
    uint32_t device_block;
    bool unseen; /* device memory is allowed: the rank's swapper checks the bytes there */
};
struct tr_range { /* of a part, whose layers follow each other */
    uint64_t offset_bytes, length_bytes;
};

#endif
