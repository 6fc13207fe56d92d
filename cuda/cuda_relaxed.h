/* cuda/cuda_relaxed.h - calls of the driver in an engine's process, beside its stream captures.
 *
 * While another thread captures a graph in global mode, which is the default and what engines use,
 * a call that may be unsafe (allocating, pinning, waiting, querying) fails with
 * SL_CU_CAPTURE_UNSUPPORTED and spoils the engine's capture. A thread in relaxed mode may make such
 * calls (cuda.h, cuThreadExchangeStreamCaptureMode). So all that is not a mere copy stands between
 * these two, also where the caller's own thread captures. */
#ifndef SL_CUDA_RELAXED_H
#define SL_CUDA_RELAXED_H

#include "cuda/driver.h"

/* Makes this thread's mode relaxed; gives what sl_cuda_restore wants. Fails only where the driver
 * is of no use any more: then the calls that follow say so. */
static inline int sl_cuda_relax(const struct sl_driver *driver)
{
    int mode = SL_CU_CAPTURE_RELAXED;
    return driver->capture_mode(&mode) == 0 ? mode : -1;
}

/* The mode is what it was before. */
static inline void sl_cuda_restore(const struct sl_driver *driver, int before)
{
    if (before >= 0) {
        (void)driver->capture_mode(&before);
    }
}

#endif
