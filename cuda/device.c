/* cuda/device.c - back ends by name. */
#include "cuda/device_internal.h"

#include <string.h>

#define DEVICE_STAGING_BYTES_MIN 65536u

sl_err sl_device_open(const char *name, uint32_t device_index, uint64_t staging_bytes,
                      struct sl_device **out, struct sl_error *why)
{
    struct sl_device_options options = {.device_index = device_index,
                                        .staging_bytes = staging_bytes};
    if (staging_bytes < DEVICE_STAGING_BYTES_MIN) {
        return sl_fail(why, SL_ERR_INVALID, "staging of %llu bytes: at least %u are needed",
                       (unsigned long long)staging_bytes, DEVICE_STAGING_BYTES_MIN);
    }
    if (strcmp(name, "host") == 0) {
        return sl_device_host_open(&options, out, why);
    }
    if (strcmp(name, "cuda") == 0) {
        return sl_device_cuda_open(&options, out, why);
    }
    return sl_fail(why, SL_ERR_UNSUPPORTED, "device '%.16s': host and cuda are known", name);
}

void sl_device_close(struct sl_device **device)
{
    if (device != NULL && *device != NULL) {
        (*device)->ops->destroy(*device);
        *device = NULL;
    }
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
