/* client/lib/op.h - an op in libsluice. */
#ifndef SL_CLIENT_LIB_OP_H
#define SL_CLIENT_LIB_OP_H

#include "client/lib/engine.h"
#include "runtime/base/sl_traceparent.h"

#define FENCE_PAUSE_NS (5 * SL_NS_PER_MS) /* pause between two identical requests */

/* State of an op by layers. */
struct sl_op_layers {
    uint32_t count;     /* 0: not by layers */
    uint32_t ready;     /* store: layers that the engine reported */
    uint32_t in;        /* load: layers reported as loaded, */
    uint32_t in_blocks; /* with this number of blocks */
    uint64_t *ends;     /* [count][pools]; owned */
    uint64_t entry_count;
};

struct sl_op_origin {
    char request[SL_TRACE_CONTEXT_BYTES];
    char traceparent[SL_TRACEPARENT_BYTES + 1];
};

struct sl_op {
    struct sl_engine *engine;
    struct sl_client_call call; /* borrows what follows */
    uint32_t *tokens;
    uint64_t *device_blocks; /* or [pool][block] with pool_count tables */
    uint32_t table_count;    /* 0: one table for all pools */
    unsigned char *hashes;
    uint32_t hash_bytes; /* 0: tokens */
    unsigned char before_hash[SL_HASH_BYTES_MAX];
    bool has_before;
    char *extras;
    struct sl_op_origin origin;
    void *context; /* the caller's */
    uint32_t block_count;
    bool store, cancelled;
    uint64_t handover_id;           /* 0: none */
    struct sl_item_receipt receipt; /* store: from the answer; load: the awaited one */
    char receipt_node[32];
    char prefill_node[32];        /* decode: node that is asked */
    struct sl_item_ticket ticket; /* of decode; its bytes are in ticket_bytes */
    unsigned char ticket_bytes[128];
    struct sl_op_event *event_handles; /* event_count; NULL: none */
    struct sl_item_event *events;      /* of these */
    uint32_t event_count;
    bool has_receipt;
    _Atomic bool fenced;
    bool settled;
    bool impossible; /* the answer contradicts the request */
    struct sl_op_result result;
    struct sl_op_layers layers;
    unsigned char *stored, *existed; /* bitmaps over block_count */
    uint64_t bitmap_bytes;
};

/* Handles the end of an op when it is first seen. */
void sl_op_settle(struct sl_op *op);

/* ---- origin.c ---- */
/* Sets the op's origin as the thread has set it. */
void sl_op_origin_take(struct sl_op *op);

/* ---- layers.c ---- */
/* Copies the request's layers into the op. Errors: SL_ERR_INVALID, SL_ERR_NO_MEMORY. */
sl_err sl_op_layers_make(struct sl_op *op, const struct sl_op_request *request,
                         struct sl_error *why);

#endif
