/* actors/coordinator/layers.h - of an op by layers: how far it is, and scratch. */
#ifndef SL_COORDINATOR_LAYERS_H
#define SL_COORDINATOR_LAYERS_H

#include "actors/coordinator/engines.h"
#include "ipc/msg/sl_msg.h"

#define CO_LAYERS_MAX        4096u
#define CO_LAYER_WAITERS_MAX (2 * CO_RANKS_MAX) /* each rank's, and the one it gave up before */

struct co_layer_word { /* LAYERS of one rank */
    uint64_t member;   /* engine id of its registration, as the sender says */
    uint32_t layers;
};
/* Of an op by layers. A layer is one of the forward pass; what of each pool belongs to it the
 * request says. Layers are counted from the first: "3" is the first three. */
struct co_layers {
    uint32_t count;              /* 0: the op is not by layers */
    bool checked;                /* count is what it says: the engine is known */
    uint32_t *ends;              /* [count][pool]: in the pool's layers; in the op's memory */
    uint64_t entry_count;        /* of ends */
    uint32_t ready;              /* may be copied */
    uint32_t asked, done;        /* copied when the COPYs in flight are done; copied */
    uint64_t batch_bytes;        /* load: of a rank, that the last COPY might have */
    bool last;                   /* load: no slice follows this one */
    uint32_t in;                 /* load: told, or may have been */
    uint32_t block_count;        /* of so many blocks */
    struct sl_item_piece *items; /* scratch of COPYs */
    uint32_t item_room;
    struct co_layer_word *words; /* [CO_RANKS_MAX], from the first one on; in the op's memory */
};

#endif
