/* tests/bench/policy/trace.c */
#include "tests/bench/policy/trace.h"
#include "runtime/base/sl_array.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sl_err number_of(const json_t *object, const char *name, uint64_t low, uint64_t high,
                        bool needed, uint64_t *out, struct sl_error *why)
{
    const json_t *value = json_object_get(object, name);
    if (value == NULL && !needed) {
        *out = 0;
        return SL_OK;
    }
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) < low || (uint64_t)json_integer_value(value) > high) {
        return sl_fail(why, SL_ERR_INVALID,
                       "%s must be a whole number from %" PRIu64 " to %" PRIu64, name, low, high);
    }
    *out = (uint64_t)json_integer_value(value);
    return SL_OK;
}

static sl_err ids_take(struct replay_trace *trace, const json_t *ids, struct sl_error *why)
{
    size_t count = json_array_size(ids);
    if (trace->id_count + count > REPLAY_IDS_MAX) {
        return sl_fail(why, SL_ERR_LIMIT, "more than %u hash_ids in all", REPLAY_IDS_MAX);
    }
    if (!SL_ARRAY_ROOM(trace->ids, trace->id_room, trace->id_count + count)) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "trace of over %" PRIu64 " hash_ids",
                       trace->id_count);
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > UINT32_MAX) {
            return sl_fail(why, SL_ERR_INVALID, "hash_ids[%zu] must be a whole number from 0 to %u",
                           i, UINT32_MAX);
        }
        trace->ids[trace->id_count + i] = (uint32_t)json_integer_value(id);
    }
    return SL_OK;
}

static sl_err object_take(struct replay_trace *trace, const json_t *object, uint32_t block_tokens,
                          struct sl_error *why)
{
    uint64_t timestamp_ms = 0;
    uint64_t input_length = 0;
    const json_t *ids = json_object_get(object, "hash_ids");
    if (!json_is_object(object) || !json_is_array(ids) || json_array_size(ids) == 0) {
        return sl_fail(why, SL_ERR_INVALID, "hash_ids must be a list that is not empty");
    }
    sl_err err = number_of(object, "timestamp", 0, INT64_MAX, false, &timestamp_ms, why);
    if (err == SL_OK) {
        err = number_of(object, "input_length", 1, 1u << 26, true, &input_length, why);
    }
    if (err != SL_OK) {
        return err;
    }
    size_t count = json_array_size(ids);
    if (count != (input_length + block_tokens - 1) / block_tokens) {
        return sl_fail(why, SL_ERR_INVALID,
                       "%zu hash_ids of %u tokens do not fit input_length %" PRIu64, count,
                       block_tokens, input_length);
    }
    if (trace->request_count == REPLAY_REQUESTS_MAX) {
        return sl_fail(why, SL_ERR_LIMIT, "more than %u requests", REPLAY_REQUESTS_MAX);
    }
    if (!SL_ARRAY_ROOM(trace->requests, trace->request_room, trace->request_count + 1)) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "trace of over %" PRIu64 " requests",
                       trace->request_count);
    }
    err = ids_take(trace, ids, why);
    if (err == SL_OK) {
        trace->requests[trace->request_count++] =
            (struct replay_request){.timestamp_ms = timestamp_ms,
                                    .first_id = trace->id_count,
                                    .id_count = (uint32_t)count,
                                    .input_length = (uint32_t)input_length};
        trace->id_count += count;
        trace->blocks_max = SL_MAX(trace->blocks_max, (uint32_t)count);
    }
    return err;
}

sl_err replay_trace_line(struct replay_trace *trace, const char *line, uint64_t length_bytes,
                         uint32_t block_tokens, struct sl_error *why)
{
    json_error_t fault;
    json_t *object = json_loadb(line, length_bytes, JSON_REJECT_DUPLICATES, &fault);
    if (object == NULL) {
        return sl_fail(why, SL_ERR_INVALID, "not JSON: %s (column %d)", fault.text, fault.column);
    }
    sl_err err = object_take(trace, object, block_tokens, why);
    json_decref(object);
    return err;
}

static sl_err lines_read(FILE *in, uint64_t limit, uint32_t block_tokens,
                         struct replay_trace *trace, uint64_t *number, struct sl_error *why)
{
    char *line = NULL;
    size_t room = 0;
    sl_err err = SL_OK;
    for (ssize_t length; err == SL_OK && trace->request_count < limit &&
                         (length = getline(&line, &room, in)) >= 0;) {
        ++*number;
        if ((size_t)length > REPLAY_LINE_BYTES_MAX) {
            err = sl_fail(why, SL_ERR_LIMIT, "over %u bytes", REPLAY_LINE_BYTES_MAX);
        } else if (strspn(line, " \t\r\n") < (size_t)length) {
            err = replay_trace_line(trace, line, (uint64_t)length, block_tokens, why);
        }
    }
    free(line);
    return err;
}

sl_err replay_trace_read(const char *path, uint64_t limit, uint32_t block_tokens,
                         struct replay_trace *out, struct sl_error *why)
{
    bool standard = strcmp(path, "-") == 0;
    FILE *in = standard ? stdin : fopen(path, "re");
    if (in == NULL) {
        return sl_fail_os(why, errno, "open '%s'", path);
    }
    struct replay_trace trace = {0};
    struct sl_error reason = {0};
    uint64_t number = 0;
    sl_err err = lines_read(in, limit, block_tokens, &trace, &number, &reason);
    if (!standard) {
        (void)fclose(in);
    }
    if (err != SL_OK) {
        replay_trace_free(&trace);
        return sl_fail(why, err, "%.100s:%" PRIu64 ": %.100s", path, number, reason.text);
    }
    *out = trace;
    return SL_OK;
}

void replay_trace_free(struct replay_trace *trace)
{
    free(trace->requests);
    free(trace->ids);
    *trace = (struct replay_trace){0};
}
