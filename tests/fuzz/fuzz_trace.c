/* tests/fuzz/fuzz_trace.c - any bytes as a trace file: it is read, or refused with the line that is
 * wrong; what was read is within its bounds. */
#include "client/bench/replay_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes);

static void check(const struct replay_trace *trace, uint64_t limit, uint32_t block_tokens)
{
    uint64_t next_id = 0;
    uint32_t longest = 0;
    SL_ASSERT(trace->request_count <= limit);
    for (uint64_t i = 0; i < trace->request_count; i++) {
        const struct replay_request *request = &trace->requests[i];
        SL_ASSERT(request->first_id == next_id && request->id_count > 0);
        SL_ASSERT(request->input_length <= (uint64_t)request->id_count * block_tokens);
        SL_ASSERT(request->input_length > (uint64_t)(request->id_count - 1) * block_tokens);
        next_id += request->id_count;
        longest = SL_MAX(longest, request->id_count);
    }
    SL_ASSERT(next_id == trace->id_count && longest == trace->blocks_max);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes)
{
    static const uint32_t block_tokens[] = {1, 16, 512, 65536};
    char path[48];
    struct replay_trace trace = {0};
    struct sl_error why = {0};
    if (length_bytes == 0) {
        return 0;
    }
    uint32_t tokens = block_tokens[bytes[0] % SL_COUNT(block_tokens)];
    uint64_t limit = (bytes[0] & 0x80) != 0 ? 2 : UINT64_MAX;
    int fd = memfd_create("trace", MFD_CLOEXEC);
    SL_ASSERT(fd >= 0);
    SL_ASSERT(write(fd, bytes + 1, length_bytes - 1) == (ssize_t)(length_bytes - 1));
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    sl_err err = replay_trace_read(path, limit, tokens, &trace, &why);
    if (err == SL_OK) {
        check(&trace, limit, tokens);
        replay_trace_free(&trace);
    } else {
        SL_ASSERT(why.code == err && strstr(why.text, path) != NULL && trace.requests == NULL);
    }
    (void)close(fd);
    return 0;
}
