/* actors/transporter/regions/dmabufs.h - device memory of engines for the NIC: asked of the rank's
 * swapper (POOL_EXPORT), which alone may touch the device, and fetched from it as a descriptor. */
#ifndef SL_TRANSPORTER_REGIONS_DMABUFS_H
#define SL_TRANSPORTER_REGIONS_DMABUFS_H

#include "actors/transporter/state/state.h"
#include "cuda/sl_device.h"

enum tr_dmabuf_state { TR_DMABUF_WANTED, TR_DMABUF_ASKED, TR_DMABUF_THERE, TR_DMABUF_NONE };
struct tr_dmabuf {
    enum tr_dmabuf_state state;
    uint64_t again_ns,
        until_ns; /* WANTED: when it is asked for; when no more. 0: at once; not yet */
    struct sl_fabric_dmabuf
        memory; /* THERE: from the memory's beginning on; the descriptor is ours */
};
struct tr_dmabuf_want {
    uint64_t engine_id, length_bytes;
    uint32_t rank, index; /* of the engine, for the answer */
    const struct sl_memory_handle *handle;
};

/* Asks the swapper; the answer comes to tr_pools_exported. Gives when to call again, SL_NEVER_NS:
 * after the answer. A swapper that is not there, or has not mapped the engine yet, is asked for 10
 * s. why is set when it became NONE. */
uint64_t tr_dmabuf_ask(struct transporter *self, struct tr_dmabuf *dmabuf,
                       const struct tr_dmabuf_want *want, uint64_t *call_seq, struct sl_error *why);
/* reply NULL: none in time. Fetches the descriptor: the swapper has it ready, so it waits 100 ms at
 * most. why is set when it became NONE. */
void tr_dmabuf_answered(struct transporter *self, struct tr_dmabuf *dmabuf,
                        const struct sl_msg *reply, struct sl_error *why);
void tr_dmabuf_close(struct tr_dmabuf *dmabuf); /* also one that is not there */

#endif
