/* tests/support/fake_cuda_facts.c - the fake driver's queries that the product does not call and
 * the check-up (tests/gpu/checking) does. */
#include "tests/support/fake_cuda_internal.h"

#define TOTAL_BYTES (UINT64_C(4) * 1024 * 1024 * 1024)

/* Counts only this process: memory of other processes is not included. */
EXPORT sl_cu_result fake_memory_info(size_t *free_bytes,
                                     size_t *total_bytes) __asm__("cuMemGetInfo_v2");
sl_cu_result fake_memory_info(size_t *free_bytes, size_t *total_bytes)
{
    TAKES();
    if (!fake_current) {
        return SL_CU_INVALID_VALUE;
    }
    *total_bytes = TOTAL_BYTES;
    *free_bytes = TOTAL_BYTES - fake_device_bytes();
    return 0;
}
