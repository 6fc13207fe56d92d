/* client/lib/engine_device.h - device memory of an engine in this process: what it is, how a
 * swapper maps it, and whether it still is what was registered. */
#ifndef SL_CLIENT_LIB_ENGINE_DEVICE_H
#define SL_CLIENT_LIB_ENGINE_DEVICE_H

#include "client/lib/internal.h"
#include "cuda/sl_device.h"
#include "runtime/base/sl_descriptors.h"

/* [address, +length_bytes) as it was found. */
struct sl_engine_row {
    uint64_t address, length_bytes;
    int gpu;                               /* its ordinal in this process */
    unsigned char uuid[SL_GPU_UUID_BYTES]; /* of that GPU */
    enum sl_memory_kind kind;              /* SL_MEMORY_CUDA_IPC, _CUDA_PARTS or _PROCESS */
    uint64_t base;                  /* where the allocation, or the first handle's memory, starts */
    uint64_t life_first, life_last; /* of what its first and last byte lie in */
    unsigned char name[64];         /* IPC: the handle. Parts: struct sl_memory_name */
};

/* Finds out what the memory is; what is no device memory is plain memory of this process, which
 * swappers may look into from now on. Errors: SL_ERR_INVALID (only some of it is device memory),
 * SL_ERR_UNSUPPORTED (a swapper cannot map it; the text says what helps), SL_ERR_DEVICE. Any
 * thread, also while graphs are captured. */
sl_err sl_engine_row_find(uint64_t address, uint64_t length_bytes, struct sl_engine_row *out,
                          struct sl_error *why);
/* Whether the same memory still is there: some 1 us. Errors: SL_ERR_STALE. */
sl_err sl_engine_row_check(const struct sl_engine_row *row, struct sl_error *why);
/* Makes descriptors of the handles from number `first` on: sl_descriptors_give_fn. Errors:
 * SL_ERR_STALE, SL_ERR_DEVICE. */
sl_err sl_engine_row_give(const struct sl_engine_row *row, uint32_t first,
                          struct sl_descriptors_part *out, struct sl_error *why);

#endif
