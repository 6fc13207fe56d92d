/* client/lib/engine_device.h - device memory of an engine in this process: its kind, how a swapper
 * maps it, and whether it still is what was registered. */
#ifndef SL_CLIENT_LIB_ENGINE_DEVICE_H
#define SL_CLIENT_LIB_ENGINE_DEVICE_H

#include "client/lib/internal.h"
#include "cuda/sl_device.h"
#include "runtime/base/sl_descriptors.h"

/* [address, +length_bytes), as found at registration. */
struct sl_engine_row {
    uint64_t address, length_bytes;
    int gpu;                               /* its ordinal in this process */
    unsigned char uuid[SL_GPU_UUID_BYTES]; /* of that GPU */
    enum sl_memory_kind kind;              /* SL_MEMORY_CUDA_IPC, _CUDA_PARTS or _PROCESS */
    uint64_t base; /* start of the allocation, or of the memory of the first handle */
    uint64_t life_first, life_last; /* numbers of the memory at its first and last byte */
    unsigned char name[64];         /* IPC: the handle. Parts: struct sl_memory_name */
};

/* Determines the kind of the memory. Memory that is not on a device is plain memory of this
 * process, which swappers may access from now on. Errors: SL_ERR_INVALID (only part of it is device
 * memory), SL_ERR_UNSUPPORTED (a swapper cannot map it; the message says what helps),
 * SL_ERR_DEVICE. Any thread, also while graphs are captured. */
sl_err sl_engine_row_find(uint64_t address, uint64_t length_bytes, struct sl_engine_row *out,
                          struct sl_error *why);
/* Checks that the memory is still the same; takes about 1 us. Errors: SL_ERR_STALE. */
sl_err sl_engine_row_check(const struct sl_engine_row *row, struct sl_error *why);
/* Creates descriptors of the handles from number `first` on; see sl_descriptors_give_fn. Errors:
 * SL_ERR_STALE, SL_ERR_DEVICE. */
sl_err sl_engine_row_give(const struct sl_engine_row *row, uint32_t first,
                          struct sl_descriptors_part *out, struct sl_error *why);

#endif
