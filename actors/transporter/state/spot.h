/* actors/transporter/state/spot.h - the name of a place in an engine's pool. */
#ifndef SL_TRANSPORTER_STATE_SPOT_H
#define SL_TRANSPORTER_STATE_SPOT_H

#include <stdbool.h>
#include <stdint.h>

/* What a rank of a registration has of one block: a part of a pool. In pools without part_count it
 * is part 0, whatever `part` says. */
struct tr_spot {
    uint64_t engine_id; /* of the rank's own registration */
    uint32_t rank, pool, part;
    uint32_t device_block;
    bool unseen; /* device memory will do: what lands there is checked by the rank's swapper */
};
struct tr_range { /* of the part: its layers one after the other */
    uint64_t offset_bytes, length_bytes;
};

#endif
