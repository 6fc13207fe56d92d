/* client/model/recorded.h - a node's recording as a trace of requests.
 *
 * A recording has uses and stores of blocks (runtime/sl_recording.h). What follows each other in one
 * chain is one request: the blocks that were loaded, and those that were stored behind them. */
#ifndef SL_CLIENT_MODEL_RECORDED_H
#define SL_CLIENT_MODEL_RECORDED_H

#include "client/model/model.h"
#include "runtime/sl_recording.h"

struct model_recorded {
    struct sl_recording_info info;
    struct replay_trace trace;
    uint64_t *block_bytes;    /* by identity */
    uint64_t *disk_bytes;     /* by identity, with what names it there */
    unsigned char *said;      /* by request: hints */
    unsigned char *uncounted; /* by request: blocks that were there before the recording began */
    uint32_t *before;         /* by request: the block before its first; MODEL_NO_BLOCK */
    uint32_t block_count, block_tokens;
    /* What the node did. */
    uint64_t load_count;    /* references to blocks that were there */
    uint64_t disk_count;    /* of them: on disk alone */
    uint64_t store_count;   /* references to blocks that were not */
    uint64_t before_count;  /* blocks that were there before the recording began */
    uint64_t gone_count;    /* removed */
    uint64_t lost_count;    /* events that are missing */
    uint64_t restart_count; /* of the registrar */
    uint64_t span_us;
    bool full;
};

/* Errors: SL_ERR_NOT_FOUND, SL_ERR_OS, those of sl_recording_read, SL_ERR_LIMIT, SL_ERR_NO_MEMORY. */
sl_err model_recorded_read(const char *path, struct model_recorded *out, struct sl_error *why);
void model_recorded_free(struct model_recorded *recorded);
/* Options of a run on it; memory and disk are the caller's. */
struct model_options model_recorded_options(const struct model_recorded *recorded);

#endif
