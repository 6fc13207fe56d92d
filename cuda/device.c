/* cuda/device.c - opens back ends by name, and calls their ops. */
#include "cuda/device_internal.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_descriptors.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DEVICE_STAGING_BYTES_MIN 65536u
/* A swapper without a heartbeat for a second is killed. */
#define FETCH_NS (500 * SL_NS_PER_MS)

sl_err sl_memory_descriptor(const char *runtime_dir, const struct sl_memory_handle *handle, int *fd,
                            struct sl_error *why)
{
    const struct sl_descriptors_source source = {
        .runtime_dir = runtime_dir, .pid = handle->pid, .number = handle->start_time};
    if (handle->fd < 0) {
        return sl_fail(why, SL_ERR_INVALID, "descriptor %d is negative", handle->fd);
    }
    if (handle->start_time == 0 && handle->pid == (uint32_t)getpid()) {
        const struct sl_descriptors_request own = {.address = (uint64_t)handle->fd,
                                                   .life = handle->inode};
        struct sl_descriptors_part part;
        sl_err err = sl_descriptors_file(&own, &part, why);
        *fd = err == SL_OK ? part.fds[0] : -1;
        return err;
    }
    if (runtime_dir == NULL) {
        return sl_fail(why, SL_ERR_UNSUPPORTED,
                       "opened without a runtime directory, so no process can be asked for memory");
    }
    return sl_descriptors_fetch_file(&source, handle->fd, handle->inode,
                                     sl_deadline_ns(sl_clock_monotonic_ns(), FETCH_NS), fd, why);
}

sl_err sl_device_open(const struct sl_device_options *options, struct sl_device **out,
                      struct sl_error *why)
{
    struct sl_error reason = {0};
    if (options->staging_bytes < DEVICE_STAGING_BYTES_MIN) {
        return sl_fail(why, SL_ERR_INVALID, "staging of %" PRIu64 " bytes: at least %u are needed",
                       options->staging_bytes, DEVICE_STAGING_BYTES_MIN);
    }
    if (strcmp(options->name, "cuda") == 0) {
        return sl_device_cuda_open(options, out, why);
    }
    if (strcmp(options->name, "auto") == 0) {
        sl_err err = sl_device_cuda_open(options, out, &reason);
        if (err != SL_ERR_UNSUPPORTED) {
            if (err != SL_OK && why != NULL) {
                *why = reason;
            }
            return err;
        }
    } else if (strcmp(options->name, "host") != 0) {
        return sl_fail(why, SL_ERR_UNSUPPORTED, "device '%.16s': host, cuda and auto are known",
                       options->name);
    }
    sl_err err = sl_device_host_open(options, out, why);
    if (err == SL_OK) {
        snprintf((*out)->text, sizeof((*out)->text), "device host: %.140s",
                 reason.text[0] == '\0' ? "as set" : reason.text);
    }
    return err;
}

void sl_gpu_text(const unsigned char *uuid, char *out)
{
    static const char form[] = "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    static const char digits[] = "0123456789abcdef";
    unsigned nibble = 0;
    _Static_assert(sizeof(form) == SL_GPU_TEXT_BYTES, "form of a UUID");
    for (size_t i = 0; i < sizeof(form); i++) {
        out[i] = form[i];
        if (form[i] == 'x') {
            unsigned byte = uuid[nibble / 2];
            out[i] = digits[nibble++ % 2 == 0 ? byte >> 4 : byte & 15];
        }
    }
}

void sl_device_close(struct sl_device **device)
{
    if (device != NULL && *device != NULL) {
        (*device)->ops->destroy(*device);
        *device = NULL;
    }
}

sl_err sl_device_move_begin(struct sl_device *device, struct sl_move *moves, uint32_t count,
                            bool to_host, bool digests, struct sl_error *why)
{
    device->slices_begun++;
    if (device->ops->move_begin != NULL) {
        return device->ops->move_begin(device, moves, count, to_host, digests, why);
    }
    device->slices_done = device->slices_begun;
    return device->ops->move(device, moves, count, to_host, digests, why);
}

sl_err sl_device_move_end(struct sl_device *device, bool wait, struct sl_error *why)
{
    return device->ops->move_end == NULL ? SL_OK : device->ops->move_end(device, wait, why);
}

sl_err sl_device_digest_begin(struct sl_device *device, struct sl_move *moves, uint32_t count,
                              struct sl_error *why)
{
    device->slices_begun++;
    if (device->ops->move_begin == NULL) {
        device->slices_done = device->slices_begun;
    }
    return device->ops->digest_begin(device, moves, count, why);
}

bool sl_device_digest_cheap(struct sl_device *device)
{
    return device->ops->digests != NULL && device->ops->digests(device);
}

sl_err sl_device_dmabuf(struct sl_device *device, const struct sl_mapping *mapping,
                        struct sl_device_dmabuf *out, struct sl_error *why)
{
    if (device->ops->dmabuf == NULL || mapping->remote != 0) {
        return sl_fail(why, SL_ERR_UNSUPPORTED, "device %s: %s", device->ops->name,
                       mapping->remote != 0 ? "memory that is not mapped has no dmabuf"
                                            : "its memory has no dmabuf");
    }
    return device->ops->dmabuf(device, mapping, out, why);
}

sl_err sl_device_memory_create(struct sl_device *device, uint64_t length_bytes,
                               struct sl_device_memory *out, struct sl_error *why)
{
    if (device->ops->memory_create == NULL) {
        return sl_fail(why, SL_ERR_UNSUPPORTED, "device %s makes no memory for others",
                       device->ops->name);
    }
    if (length_bytes == 0) {
        return sl_fail(why, SL_ERR_INVALID, "device %s: memory of 0 bytes", device->ops->name);
    }
    return device->ops->memory_create(device, length_bytes, out, why);
}

sl_err sl_device_memory_export(struct sl_device *device, const struct sl_device_memory *memory,
                               struct sl_memory_handle *out, struct sl_error *why)
{
    if (device->ops->memory_export == NULL) {
        return sl_fail(why, SL_ERR_UNSUPPORTED, "device %s makes no memory for others",
                       device->ops->name);
    }
    return device->ops->memory_export(device, memory, out, why);
}

void sl_device_memory_free(struct sl_device *device, struct sl_device_memory *memory)
{
    if (device->ops->memory_free != NULL && memory->length_bytes != 0) {
        device->ops->memory_free(device, memory);
    }
    *memory = (struct sl_device_memory){.fd = -1};
}

sl_err sl_device_host_add(struct sl_device *device, unsigned char *base, uint64_t length_bytes,
                          uint64_t ready_bytes, struct sl_error *why)
{
    if (base == NULL || length_bytes == 0 || ready_bytes > length_bytes) {
        return sl_fail(why, SL_ERR_INVALID,
                       "host memory of %" PRIu64 " bytes, %" PRIu64 " of them ready", length_bytes,
                       ready_bytes);
    }
    return device->ops->host_add == NULL
               ? SL_OK
               : device->ops->host_add(device, base, length_bytes, ready_bytes, why);
}

bool sl_device_host_remove(struct sl_device *device, const unsigned char *base)
{
    return device->ops->host_remove == NULL || device->ops->host_remove(device, base);
}

sl_err sl_device_work(struct sl_device *device, bool *more, struct sl_error *why)
{
    *more = false;
    return device->ops->work == NULL ? SL_OK : device->ops->work(device, more, why);
}
