/* cuda/cuda_plain.c - plain memory of processes (CPU tensors) on the device `cuda`. The device
 * `host` copies it: both sides are host memory, so GPU and pinned staging would be a detour. So a
 * node with a GPU also serves engines on CPUs. */
#include "cuda/cuda_internal.h"

#define PLAIN_STAGING_BYTES (512 * SL_KIB) /* digested at a time by the processor, twice */

/* Opens the device `host` with the first process. */
static sl_err plain_open(struct cuda_device *cuda, struct sl_error *why)
{
    struct sl_device_options options = {
        .name = "host", .staging_bytes = PLAIN_STAGING_BYTES, .copy_threads = cuda->copy_threads};
    return cuda->plain != NULL ? SL_OK : sl_device_host_open(&options, &cuda->plain, why);
}

sl_err cuda_plain_map(struct cuda_device *cuda, const struct sl_memory_handle *handle,
                      uint64_t length_bytes, struct sl_mapping *out, struct sl_error *why)
{
    sl_err err = plain_open(cuda, why);
    if (err == SL_OK) {
        err = cuda->plain->ops->map(cuda->plain, handle, length_bytes, out, why);
        cuda->base.stats.copy_threads = cuda->plain->stats.copy_threads;
    }
    return err;
}

sl_err cuda_plain_layers_add(struct cuda_device *cuda, const struct sl_layer *layers,
                             struct cuda_table *table, struct sl_error *why)
{
    if (cuda->plain == NULL) {
        return sl_fail(why, SL_ERR_INVALID, "memory of process number %u is not open",
                       layers[0].remote);
    }
    return cuda->plain->ops->layers_add(cuda->plain, layers, table->host.layer_count,
                                        &table->plain_index, why);
}

void cuda_plain_layers_remove(struct cuda_device *cuda, const struct cuda_table *table)
{
    cuda->plain->ops->layers_remove(cuda->plain, table->plain_index);
}

sl_err cuda_plain_by(struct cuda_device *cuda, const struct cuda_job *job, struct sl_error *why)
{
    struct sl_device *plain = cuda->plain;
    uint32_t index =
        job->moves[0].layers_index; /* our table's number; the device `host` has another */
    for (uint32_t i = 0; i < job->count; i++) {
        job->moves[i].layers_index = job->table->plain_index;
    }
    sl_err err = job->check ? sl_device_digest_begin(plain, job->moves, job->count, why)
                            : plain->ops->move(plain, job->moves, job->count, job->to_host,
                                               job->digests, why);
    for (uint32_t i = 0; i < job->count; i++) {
        job->moves[i].layers_index = index;
    }
    return err;
}
