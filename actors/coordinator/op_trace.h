/* actors/coordinator/op_trace.h - traces of recent ops, block by block, for OP_TRACE. */
#ifndef SL_COORDINATOR_OP_TRACE_H
#define SL_COORDINATOR_OP_TRACE_H

#include "ipc/msg/sl_msg.h"

struct coordinator;
struct co_op;

#define CO_OP_TRACES_MAX       1024u
#define CO_OP_TRACES_BYTES_MAX (UINT64_C(4) << 20) /* of all traces */
#define CO_OP_TRACE_KEYS_MAX   64u
#define CO_OP_TRACE_RUNS_MAX   4096u
#define CO_ORIGIN_TEXT_BYTES   128u /* with the final 0 */

/* The origin of an op, as its request names it; in the op's memory. NULL: none. */
struct co_origin {
    const char *request, *traceparent;
};

struct co_op_trace; /* trace of one ended op; one allocation */
struct co_op_traces {
    struct co_op_trace *ring[CO_OP_TRACES_MAX]; /* by number; NULL: none, or evicted */
    uint64_t next;                              /* number of the next trace */
    uint64_t oldest;                            /* older ones are gone */
    uint64_t bytes;
};

void co_op_trace_handle(struct coordinator *self, const struct sl_msg *msg); /* OP_TRACE */

#endif
