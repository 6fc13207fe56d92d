/* cuda/cuda_relaxed.h - driver calls in an engine's process that do not disturb its stream
 * captures.
 *
 * While another thread captures a graph in global mode, the default of engines, a call that may be
 * unsafe (allocating, pinning, waiting, querying) fails with SL_CU_CAPTURE_UNSUPPORTED and
 * invalidates the engine's capture. A thread in relaxed mode may make such calls (cuda.h,
 * cuThreadExchangeStreamCaptureMode). So all calls but plain copies must be between these two, also
 * if the caller's own thread captures. */
#ifndef SL_CUDA_RELAXED_H
#define SL_CUDA_RELAXED_H

#include "cuda/driver.h"

/* Sets this thread's mode to relaxed; returns the argument of sl_cuda_restore. Fails only if the
 * driver is lost, which the following calls then report. */
static inline int sl_cuda_relax(const struct sl_driver *driver)
{
    int mode = SL_CU_CAPTURE_RELAXED;
    return driver->capture_mode(&mode) == 0 ? mode : -1;
}

/* Restores the previous mode. */
static inline void sl_cuda_restore(const struct sl_driver *driver, int before)
{
    if (before >= 0) {
        (void)driver->capture_mode(&before);
    }
}

#endif
