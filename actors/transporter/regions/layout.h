/* actors/transporter/regions/layout.h - how an engine has laid out its blocks: which part of a pool
 * is which layers, and where a layer's piece of a block lies. Pure; every number of a registration
 * comes from another process and is checked when the layout is made. */
#ifndef SL_TRANSPORTER_REGIONS_LAYOUT_H
#define SL_TRANSPORTER_REGIONS_LAYOUT_H

#include "actors/transporter/regions/spans.h"
#include "actors/transporter/state/spot.h"
#include "ipc/msg/sl_layout.h"

#define TR_NO_SPAN UINT32_MAX

struct tr_layer {
    uint32_t region; /* its number in the registration */
    uint32_t buffer; /* the caller's: number of the mapping; TR_NO_SPAN: it is not mapped here */
    bool device;     /* likewise: it is a dmabuf, the fabric has it, no CPU does */
    uint32_t span;   /* that it lies in, after tr_layout_spans */
    uint64_t offset_bytes;      /* of block 0: in the buffer, then in the span */
    uint64_t length_bytes;      /* of the region */
    uint64_t part_offset_bytes; /* where its piece begins in the part */
    uint64_t block_stride_bytes;
    uint64_t piece_bytes;
    uint64_t run_bytes, run_stride_bytes; /* a piece is runs; run_bytes is piece_bytes: it is one */
};
struct tr_row { /* a part that a rank has */
    struct sl_layout_row of;
    uint64_t run_count; /* of a block, at most */
    bool mapped;        /* after tr_layout_spans: all of its layers are, or are in the fabric */
    bool device;        /* likewise: some of them are of a dmabuf */
};
struct tr_layout {
    struct tr_layer *layers; /* as in struct sl_layout; owned */
    struct tr_row *rows;     /* likewise */
    uint32_t layer_count, row_count;
    uint32_t part_counts[8]; /* of the pools */
};

/* Bytes of one block in the layer, from the first to the last. */
uint64_t tr_layer_block_bytes(const struct tr_layer *layer);
/* No layer has a buffer yet. Errors: those of sl_layout_make, with *out in any state. */
sl_err tr_layout_make(const struct sl_body_engine_get_reply *body, struct tr_layout *out,
                      struct sl_error *why);
/* spans: sorted, each layer that has a buffer lies in one of them. */
void tr_layout_spans(struct tr_layout *layout, const struct tr_span *spans, uint32_t span_count);
/* The buffer is not in the fabric after all: parts with a layer in it are not mapped. */
void tr_layout_leave_out(struct tr_layout *layout, uint32_t buffer);
void tr_layout_fini(struct tr_layout *layout); /* also of a zeroed one */

/* NULL: the rank does not have it. */
const struct tr_row *tr_layout_row(const struct tr_layout *layout, const struct tr_spot *spot);
/* The layers [*first, *end) of the part that the range is, counted from 0. Errors: SL_ERR_INVALID
 * (it is not whole layers of the part). */
sl_err tr_layout_layers(const struct tr_layout *layout, const struct tr_row *row,
                        struct tr_range range, uint32_t *first, uint32_t *end,
                        struct sl_error *why);

struct tr_run {
    uint32_t span;
    uint64_t offset_bytes, length_bytes; /* in the span */
};
struct tr_runs { /* where a walk over a range of a part is */
    const struct tr_layer *layer;
    uint64_t device_block;
    uint64_t at_bytes;   /* in the layer's piece */
    uint64_t left_bytes; /* of the range */
};
/* Errors: SL_ERR_INVALID (no such part, block or range), SL_ERR_UNSUPPORTED (the part lies in
 * memory that is not mapped here, or in that of a device and the spot does not say `unseen`). */
sl_err tr_runs_begin(const struct tr_layout *layout, const struct tr_spot *spot,
                     struct tr_range range, struct tr_runs *out, struct sl_error *why);
/* The next run; runs that follow each other in memory are one. False: the range is over. */
bool tr_runs_next(struct tr_runs *runs, struct tr_run *out);

#endif
