/* actors/transporter/regions/pools_internal.h - state of engines' pools: pools.c registers them,
 * pools_view.c answers where they lie. */
#ifndef SL_TRANSPORTER_REGIONS_POOLS_INTERNAL_H
#define SL_TRANSPORTER_REGIONS_POOLS_INTERNAL_H

#include "actors/transporter/regions/dmabufs.h"
#include "actors/transporter/regions/layout.h"
#include "actors/transporter/regions/pools.h"
#include "cuda/sl_device.h"

enum engine_state {
    ENGINE_FREE,
    ENGINE_ASKED,   /* ENGINE_GET was sent */
    ENGINE_MAPPING, /* buffers [0, mapped) are mapped */
    ENGINE_ADDING,  /* spans [0, added) are registered */
    ENGINE_READY,
    ENGINE_ENDING, /* is being deregistered and unmapped */
    ENGINE_REFUSED /* not tried again while the registrar lists it, unless it is silent */
};
#define NO_MEMORY UINT32_MAX /* no valid fabric handle */
/* Why device memory is left out. */
enum out {
    OUT_FABRIC,  /* tcp or libibverbs does not support dmabufs */
    OUT_SWAPPER, /* driver, GPU or swapper provides no dmabuf */
    OUT_NIC,     /* the NIC refused to register it */
    OUT_COUNT
};
struct buffer {
    struct sl_memory_handle handle;
    uint64_t length_bytes; /* to be mapped */
    struct sl_mapping mapping;
    bool device; /* uses a dmabuf of the rank's swapper, not a mapping */
    uint32_t rank;
    struct tr_dmabuf dmabuf;
};
struct engine {
    enum engine_state state;
    bool refused; /* ENDING: becomes REFUSED */
    bool silent;  /* REFUSED: the process did not answer; retried on the next use */
    bool listed;  /* scratch: present in the current list */
    bool adding;  /* the fabric is registering spans[added] */
    bool watched;
    bool over_asked; /* ENGINE_OVER arrived and waits for an answer */
    struct sl_reply_route over;
    uint64_t id, call_seq;
    struct sl_proc_id proc;
    struct buffer *buffers;
    uint32_t buffer_count, mapped;
    struct tr_span *spans;
    struct tr_layout layout; /* of its blocks, in the spans */
    uint32_t *memories;      /* fabric handles, one for each span; NO_MEMORY: left out */
    uint32_t span_count, added;
    uint64_t populated_bytes;      /* of spans[added] */
    uint64_t other_bytes;          /* of regions that are left out */
    uint64_t out_bytes[OUT_COUNT]; /* of these: device memory */
};
struct tr_pools {
    struct sl_device *device; /* for mapping only */
    struct engine *engines;
    uint32_t engine_max, span_count; /* span_count: of all engines */
    uint64_t list_due_ns, list_seq;
    struct {
        sl_metric engines, memories, bytes, device_bytes, refused, regions, out[OUT_COUNT];
    } metric;
};

/* NULL: no engine with this id. */
struct engine *tr_pools_find(struct tr_pools *pools, uint64_t id);
/* Address of a span in this process; not for device memory. */
unsigned char *tr_pools_span_at(const struct engine *engine, uint32_t span);
void tr_pools_metrics_define(struct tr_pools *pools, struct sl_metrics *page);
/* Updates the metrics. */
void tr_pools_show(struct transporter *self);

#endif
