/* actors/swapper/gpu.c - compares an engine's GPU with the swapper's. */
#include "actors/swapper/gpu.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool sw_gpu_is(const struct sl_device *device)
{
    static const unsigned char none[SL_GPU_UUID_BYTES];
    return memcmp(device->gpu, none, sizeof(none)) != 0;
}

static sl_err gpu_differs(const struct sl_device *device,
                          const struct sl_body_engine_get_reply *body,
                          const struct sl_item_region *region, struct sl_error *why)
{
    char its[SL_GPU_TEXT_BYTES], ours[SL_GPU_TEXT_BYTES];
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    bool reported = body->visible_devices.length > 0;
    sl_gpu_text(region->gpu.at, its);
    sl_gpu_text(device->gpu, ours);
    return sl_fail(why, SL_ERR_CONFIG,
                   "the engine's memory is on %s (CUDA_VISIBLE_DEVICES %.32s), the swapper has "
                   "%s (%.32s)",
                   its, reported ? body->visible_devices.at : "not set", ours,
                   visible == NULL ? "not set" : visible);
}

sl_err sw_gpu_check(const struct sl_device *device, const struct sl_body_engine_get_reply *body,
                    uint64_t rank, struct sl_error *why)
{
    bool has_gpu = sw_gpu_is(device);
    for (uint64_t i = 0; i < body->regions.count; i++) {
        const struct sl_item_region *region = &body->regions.at[i];
        if (region->rank != rank || region->gpu.length == 0) {
            continue;
        }
        if (region->gpu.length != SL_GPU_UUID_BYTES) {
            return sl_fail(why, SL_ERR_INVALID,
                           "region %" PRIu64 ": gpu: %" PRIu64 " bytes are no UUID", i,
                           region->gpu.length);
        }
        if (has_gpu && memcmp(region->gpu.at, device->gpu, SL_GPU_UUID_BYTES) != 0) {
            return gpu_differs(device, body, region, why);
        }
    }
    return SL_OK;
}
