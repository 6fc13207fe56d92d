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
