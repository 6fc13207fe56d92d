/* actors/coordinator/layers.h - progress of an op by layers, and scratch. */
#ifndef SL_COORDINATOR_LAYERS_H
#define SL_COORDINATOR_LAYERS_H

#include "actors/coordinator/engines.h"
#include "ipc/msg/sl_msg.h"

#define CO_LAYERS_MAX        4096u
#define CO_LAYER_WAITERS_MAX (2 * CO_RANKS_MAX) /* one per rank, and one that it gave up before */

struct co_layer_report { /* LAYERS of one rank */
    uint64_t member;     /* engine id of its registration, as sent */
    uint32_t layers;
};
/* State of an op by layers. A layer is one of the forward pass; the request says which layers of
 * each pool belong to it. Counts start at the first layer: 3 means the first three. */
struct co_layers {
    uint32_t count;              /* 0: the op is not by layers */
    bool checked;                /* count is final: the engine is known */
    uint32_t *ends;              /* [count][pool]: end in the pool's layers; in the op's memory */
    uint64_t entry_count;        /* of ends */
    uint32_t ready;              /* may be copied */
    uint32_t asked, done;        /* copied when the COPYs in flight end; copied */
    uint64_t batch_bytes;        /* load: limit of the last COPY, for one rank */
    bool last;                   /* load: this is the last slice */
    uint32_t in;                 /* load: reported, perhaps by a predecessor */
    uint32_t block_count;        /* reported with them */
    struct sl_item_piece *items; /* scratch of COPYs */
    uint32_t item_room;
    struct co_layer_report *rank_reports; /* [CO_RANKS_MAX] when first needed; in the op's memory */
};

#endif
