/* actors/transporter/regions/dmabufs.h - dmabufs of engines' device memory for the NIC. Only the
 * rank's swapper touches the device: it is asked (POOL_EXPORT), and passes the descriptor. */
#ifndef SL_TRANSPORTER_REGIONS_DMABUFS_H
#define SL_TRANSPORTER_REGIONS_DMABUFS_H

#include "actors/transporter/state/state.h"
#include "cuda/sl_device.h"

enum tr_dmabuf_state { TR_DMABUF_WANTED, TR_DMABUF_ASKED, TR_DMABUF_THERE, TR_DMABUF_NONE };
struct tr_dmabuf {
    enum tr_dmabuf_state state;
    uint64_t again_ns,
        until_ns; /* WANTED: earliest next try, and last one. 0: at once; not set yet */
    struct sl_fabric_dmabuf
        memory; /* THERE: starts at the memory's first byte; owns the descriptor */
};
struct tr_dmabuf_want {
    uint64_t engine_id, length_bytes;
    uint32_t rank, index; /* index: of the engine, for the answer */
    const struct sl_memory_handle *handle;
};

/* Asks the swapper; tr_pools_exported receives the answer. Gives when to call again, SL_NEVER_NS:
 * after the answer. A swapper that is absent or has not mapped the engine yet is asked for 10 s.
 * why is set when the state becomes NONE. */
uint64_t tr_dmabuf_ask(struct transporter *self, struct tr_dmabuf *dmabuf,
                       const struct tr_dmabuf_want *want, uint64_t *call_seq, struct sl_error *why);
/* Fetches the descriptor, waiting 100 ms at most because the swapper has it ready. reply NULL: no
 * answer in time. why is set when the state becomes NONE. */
void tr_dmabuf_answered(struct transporter *self, struct tr_dmabuf *dmabuf,
                        const struct sl_msg *reply, struct sl_error *why);
void tr_dmabuf_close(struct tr_dmabuf *dmabuf); /* also in other states */

#endif
