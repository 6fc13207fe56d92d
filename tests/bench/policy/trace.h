/* tests/bench/policy/trace.h - traces: JSON lines {"timestamp", "input_length", "output_length",
 * "hash_ids"}. */
#ifndef SL_TESTS_BENCH_POLICY_TRACE_H
#define SL_TESTS_BENCH_POLICY_TRACE_H

#include "runtime/base/sl_error.h"

#define REPLAY_BLOCK_TOKENS   512u /* tokens that a hash id covers */
#define REPLAY_LINE_BYTES_MAX (16u << 20)
#define REPLAY_REQUESTS_MAX   10000000u
#define REPLAY_IDS_MAX        (1u << 30)

struct replay_request {
    uint64_t timestamp_ms;
    uint64_t first_id; /* index into ids */
    uint32_t id_count;
    uint32_t input_length; /* tokens; the last block is cut to it */
};
struct replay_trace {
    struct replay_request *requests;
    uint32_t *ids;
    uint64_t request_count, request_room, id_count, id_room;
    uint32_t blocks_max; /* blocks of the longest request */
};

/* Adds one line. Errors, with the wrong field: SL_ERR_INVALID, SL_ERR_LIMIT, SL_ERR_NO_MEMORY. */
sl_err replay_trace_line(struct replay_trace *trace, const char *line, uint64_t length_bytes,
                         uint32_t block_tokens, struct sl_error *why);
/* Reads a file ("-": standard input), at most `limit` requests. An error names the line. */
sl_err replay_trace_read(const char *path, uint64_t limit, uint32_t block_tokens,
                         struct replay_trace *out, struct sl_error *why);
void replay_trace_free(struct replay_trace *trace);

#endif
