/* ipc/msg/sl_layout.h - the layout of an engine's blocks: the regions of a registration, checked
 * and sorted. Registrar, coordinator, swapper and transporter read registrations through it. Pure;
 * every number of a registration is from another process. */
#ifndef SL_LAYOUT_H
#define SL_LAYOUT_H

#include "ipc/msg/sl_msg.h"

struct sl_layout_layer {
    uint64_t order;             /* sort key: rank, pool, part, layer; then region */
    uint64_t part_offset_bytes; /* offset of its piece in the part */
    uint32_t region;            /* its number in the registration */
};
struct sl_layout_row { /* a part of a rank: layers 0, 1, ... */
    uint32_t rank, pool, part;
    uint32_t first_layer, layer_count;
    uint64_t length_bytes; /* of all pieces; at most SL_VALUE_BYTES_MAX */
    uint64_t block_count;  /* of each of its layers */
};
struct sl_layout {
    struct sl_layout_layer *layers; /* owned, as are the rows; sorted */
    struct sl_layout_row *rows;
    uint32_t layer_count, row_count;
};

#define SL_LAYOUT_ALL UINT64_MAX
/* Checks and sorts the regions of `ranks`, one bit per rank. Blocks of a region lie within its
 * length, no run exceeds a block's stride, and no sum of its numbers overflows. Errors:
 * SL_ERR_INVALID (names region and field, or the layer that is missing), SL_ERR_NO_MEMORY. */
sl_err sl_layout_make(const struct sl_body_engine_get_reply *body, uint64_t ranks,
                      struct sl_layout *out, struct sl_error *why);
void sl_layout_fini(struct sl_layout *layout); /* accepts a zeroed one */

#endif
