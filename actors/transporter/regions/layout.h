/* actors/transporter/regions/layout.h - how an engine's blocks lie in memory: the layers of each
 * part of a pool, and the offset of each layer's piece. Pure functions. The numbers of a
 * registration are from another process and are checked when the layout is made. */
#ifndef SL_TRANSPORTER_REGIONS_LAYOUT_H
#define SL_TRANSPORTER_REGIONS_LAYOUT_H

#include "actors/transporter/regions/spans.h"
#include "actors/transporter/state/slot.h"
#include "ipc/msg/sl_layout.h"

#define TR_NO_SPAN UINT32_MAX

struct tr_layer {
    uint32_t region;       /* its index in the registration */
    uint32_t buffer;       /* set by the caller: index of the mapping; TR_NO_SPAN: not mapped */
    bool device;           /* set by the caller: a dmabuf, for the fabric only, not for the CPU */
    uint32_t span;         /* its span, after tr_layout_spans */
    uint64_t offset_bytes; /* of block 0: in the buffer, later in the span */
    uint64_t length_bytes; /* of the region */
    uint64_t part_offset_bytes; /* start of its piece in the part */
    uint64_t block_stride_bytes;
    uint64_t piece_bytes;
    uint64_t run_bytes,
        run_stride_bytes; /* a piece consists of runs; of one if run_bytes == piece_bytes */
};
struct tr_row { /* a part of one rank */
    struct sl_layout_row of;
    uint64_t run_count; /* upper bound for one block */
    bool mapped;        /* after tr_layout_spans: all its layers are mapped or dmabufs */
    bool device;        /* after tr_layout_spans: some of its layers are dmabufs */
};
struct tr_layout {
    struct tr_layer *layers; /* as in struct sl_layout; owned */
    struct tr_row *rows;     /* likewise */
    uint32_t layer_count, row_count;
    uint32_t part_counts[8]; /* by pool */
};

/* Bytes from the first to the last byte of one block in this layer. */
uint64_t tr_layer_block_bytes(const struct tr_layer *layer);
/* Makes a layout in which no layer has a buffer yet. Errors: those of sl_layout_make, with *out in
 * any state. */
sl_err tr_layout_make(const struct sl_body_engine_get_reply *body, struct tr_layout *out,
                      struct sl_error *why);
/* Assigns layers to spans. spans: sorted; each layer that has a buffer lies in one of them. */
void tr_layout_spans(struct tr_layout *layout, const struct tr_span *spans, uint32_t span_count);
/* The buffer could not be registered: marks parts with a layer in it as not mapped. */
void tr_layout_leave_out(struct tr_layout *layout, uint32_t buffer);
void tr_layout_fini(struct tr_layout *layout); /* also of a zeroed one */

/* Finds a part; NULL: the rank does not have it. */
const struct tr_row *tr_layout_row(const struct tr_layout *layout, const struct tr_slot *slot);
/* Converts the range of a part to layers [*first, *end) of the part, counted from 0. Errors:
 * SL_ERR_INVALID (not whole layers). */
sl_err tr_layout_layers(const struct tr_layout *layout, const struct tr_row *row,
                        struct tr_range range, uint32_t *first, uint32_t *end,
                        struct sl_error *why);

struct tr_run {
    uint32_t span;
    uint64_t offset_bytes, length_bytes; /* relative to the span */
};
struct tr_runs { /* state of a walk over a range of a part */
    const struct tr_layer *layer;
    uint64_t device_block;
    uint64_t at_bytes;   /* in the layer's piece */
    uint64_t left_bytes; /* of the range */
};
/* Errors: SL_ERR_INVALID (no such part, block or range), SL_ERR_UNSUPPORTED (the memory is not
 * mapped here, or is device memory and the slot does not have `unseen`). */
sl_err tr_runs_begin(const struct tr_layout *layout, const struct tr_slot *slot,
                     struct tr_range range, struct tr_runs *out, struct sl_error *why);
/* Gives the next run; adjacent runs are merged. False: the range is over. */
bool tr_runs_next(struct tr_runs *runs, struct tr_run *out);

#endif
