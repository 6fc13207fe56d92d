/* actors/transporter/regions/pools_internal.h - engines' pools among themselves: pools.c registers
 * them, pools_view.c tells what is there. */
#ifndef SL_TRANSPORTER_REGIONS_POOLS_INTERNAL_H
#define SL_TRANSPORTER_REGIONS_POOLS_INTERNAL_H

#include "actors/transporter/regions/dmabufs.h"
#include "actors/transporter/regions/layout.h"
#include "actors/transporter/regions/pools.h"
#include "cuda/sl_device.h"

enum engine_state {
    ENGINE_FREE,
    ENGINE_ASKED,   /* its registration is on the way */
    ENGINE_MAPPING, /* buffers [0, mapped) are there */
    ENGINE_ADDING,  /* spans [0, added) are registered */
    ENGINE_READY,
    ENGINE_ENDING, /* takes all of that back */
    ENGINE_REFUSED /* not tried again while the registrar knows it, unless it was silent */
};
#define NO_MEMORY UINT32_MAX /* of the fabric: no handle is that */
/* Whose it is that device memory is left out. */
enum out {
    OUT_FABRIC,  /* tcp, or libibverbs, takes no dmabuf */
    OUT_SWAPPER, /* driver, GPU or the rank's swapper hands none out */
    OUT_NIC,     /* it does not register it */
    OUT_COUNT
};
struct buffer {
    struct sl_memory_handle handle;
    uint64_t length_bytes; /* that must be mapped */
    struct sl_mapping mapping;
    bool device; /* instead of a mapping: a dmabuf of the rank's swapper */
    uint32_t rank;
    struct tr_dmabuf dmabuf;
};
struct engine {
    enum engine_state state;
    bool refused; /* ENDING: for good */
    bool silent;  /* REFUSED: its process did not answer. It is tried again when it is used */
    bool listed;  /* scratch of a list that is gone through */
    bool adding;  /* the fabric registers spans[added] */
    bool watched;
    bool told; /* somebody waits for its end */
    struct sl_return over;
    uint64_t id, call_seq;
    struct sl_proc_id proc;
    struct buffer *buffers;
    uint32_t buffer_count, mapped;
    struct tr_span *spans;
    struct tr_layout layout; /* of its blocks in the spans */
    uint32_t *memories;      /* of the fabric, one a span; NO_MEMORY: it was left out */
    uint32_t span_count, added;
    uint64_t populated_bytes;      /* of spans[added] */
    uint64_t other_bytes;          /* of regions that cannot be mapped here */
    uint64_t out_bytes[OUT_COUNT]; /* of them: device memory */
};
struct tr_pools {
    struct sl_device *device; /* maps, nothing else */
    struct engine *engines;
    uint32_t engine_max, span_count; /* spans of all engines */
    uint64_t list_due_ns, list_seq;
    struct {
        sl_metric engines, memories, bytes, device_bytes, refused, regions, out[OUT_COUNT];
    } metric;
};

/* NULL: none of this number. */
struct engine *tr_pools_find(struct tr_pools *pools, uint64_t id);
/* Where a span is mapped here; NULL: device memory. */
unsigned char *tr_pools_span_at(const struct engine *engine, uint32_t span);
void tr_pools_metrics_define(struct tr_pools *pools, struct sl_metrics *page);
/* Counts what is registered anew, for the metrics. */
void tr_pools_show(struct transporter *self);

#endif
