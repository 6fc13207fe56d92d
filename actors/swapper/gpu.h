/* actors/swapper/gpu.h - checks that an engine's memory is on this swapper's GPU. */
#ifndef SL_SWAPPER_GPU_H
#define SL_SWAPPER_GPU_H

#include "cuda/sl_device.h"
#include "ipc/msg/sl_msg.h"

/* Whether the device is a GPU. */
bool sw_gpu_is(const struct sl_device *device);
/* Compares UUIDs: rank r is GPU r of CUDA_VISIBLE_DEVICES, which may differ between engine and
 * swapper. Regions that name no GPU pass, and so does a device without one. Errors: SL_ERR_CONFIG
 * (names both GPUs and both values of the variable), SL_ERR_INVALID (no UUID). */
sl_err sw_gpu_check(const struct sl_device *device, const struct sl_body_engine_get_reply *body,
                    uint64_t rank, struct sl_error *why);

#endif
