/* client/lib/gpu_copies.c - lists of copies, and the digests of the values that they form. */
#include "client/lib/gpu_internal.h"

#include "cuda/cuda_relaxed.h"
#include "runtime/base/sl_array.h"

#include <stdlib.h>

sl_err sl_gpu_copies_value(struct sl_gpu_copies *copies, const unsigned char *host,
                           uint64_t length_bytes)
{
    uint64_t chunks = sl_digest_chunks(length_bytes);
    if (!SL_ARRAY_ROOM(copies->values, copies->value_room, copies->value_count + 1) ||
        !SL_ARRAY_ROOM(copies->hashes, copies->hash_room, copies->hash_count + chunks)) {
        return SL_ERR_NO_MEMORY;
    }
    copies->values[copies->value_count++] = (struct sl_gpu_value){
        .host = host, .length_bytes = length_bytes, .hash_first = copies->hash_count};
    copies->hash_count += chunks;
    return SL_OK;
}

sl_err sl_gpu_copies_add(struct sl_gpu_copies *copies, const struct sl_gpu_copy *copy)
{
    if (!SL_ARRAY_ROOM(copies->at, copies->room, copies->count + 1)) {
        return SL_ERR_NO_MEMORY;
    }
    copies->at[copies->count] = *copy;
    copies->at[copies->count++].value =
        copies->value_count > 0 ? copies->value_count - 1 : SL_GPU_NO_VALUE;
    return SL_OK;
}

void sl_gpu_copies_cut(struct sl_gpu_copies *copies, uint32_t count, uint32_t value_count)
{
    if (value_count < copies->value_count) {
        copies->hash_count = copies->values[value_count].hash_first;
    }
    copies->count = count;
    copies->value_count = value_count;
}

void sl_gpu_copies_clear(struct sl_gpu_copies *copies)
{
    copies->count = copies->value_count = 0;
    copies->hash_count = 0;
    copies->unfinished = false;
}

void sl_gpu_copies_free(struct sl_gpu_copies *copies)
{
    free(copies->at);
    free(copies->values);
    free(copies->hashes);
    *copies = (struct sl_gpu_copies){0};
}

void gpu_value_landed(struct sl_gpu_copies *copies, struct sl_gpu_value *value, uint64_t end_bytes)
{
    uint64_t end = end_bytes == value->length_bytes
                       ? end_bytes
                       : end_bytes / SL_DIGEST_CHUNK_BYTES * SL_DIGEST_CHUNK_BYTES;
    for (uint64_t at = value->hashed_bytes; at < end; at += SL_DIGEST_CHUNK_BYTES) {
        copies->hashes[value->hash_first + at / SL_DIGEST_CHUNK_BYTES] =
            sl_digest_chunk(value->host + at, SL_MIN(end - at, (uint64_t)SL_DIGEST_CHUNK_BYTES));
    }
    value->hashed_bytes = SL_MAX(value->hashed_bytes, end);
}

/* Marks the values of which all bytes are from one GPU. */
static void values_mark(struct sl_gpu_copies *copies)
{
    for (uint32_t first = 0, end = 0; first < copies->count; first = end) {
        const struct sl_gpu_copy *head = &copies->at[first];
        uint64_t length_bytes = 0;
        bool one = true;
        for (end = first; end < copies->count && copies->at[end].value == head->value; end++) {
            length_bytes += copies->at[end].length_bytes;
            one = one && copies->at[end].gpu == head->gpu;
        }
        if (head->value != SL_GPU_NO_VALUE) {
            struct sl_gpu_value *value = &copies->values[head->value];
            value->on_gpu = one && length_bytes == value->length_bytes;
        }
    }
}

static sl_err run_all(struct sl_gpu_copies *copies, const struct sl_gpu_order *order,
                      struct sl_error *why)
{
    sl_err err = SL_OK;
    for (uint32_t first = 0, end = 0; first < copies->count && err == SL_OK; first = end) {
        for (end = first; end < copies->count && copies->at[end].gpu == copies->at[first].gpu;
             end++) {
        }
        struct gpu_job job = {.copies = copies,
                              .next = first,
                              .end = end,
                              .to_host = order->to_host,
                              .deadline_ns = order->deadline_ns};
        err = gpu_run(copies->at[first].gpu, &job, order->event, why);
    }
    return err;
}

sl_err sl_gpu_copies_run(struct sl_gpu_copies *copies, const struct sl_gpu_order *order,
                         struct sl_error *why)
{
    int mode = copies->count > 0 ? sl_cuda_relax(&sl_gpu_driver) : -1;
    copies->unfinished = false;
    values_mark(copies);
    sl_err err = run_all(copies, order, why);
    sl_cuda_restore(&sl_gpu_driver, mode);
    for (uint32_t i = 0; i < copies->value_count && err == SL_OK; i++) {
        struct sl_gpu_value *value = &copies->values[i];
        gpu_value_landed(copies, value, value->length_bytes);
        value->digest = sl_digest_of_chunks(copies->hashes + value->hash_first,
                                            sl_digest_chunks(value->length_bytes));
    }
    copies->count = 0;
    return err;
}
