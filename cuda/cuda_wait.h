/* cuda/cuda_wait.h - waits on the GPU with a deadline. The driver's own waits (cuEventSynchronize,
 * cuStreamSynchronize) have none, so a GPU that hangs would hang the thread. These poll with
 * cuEventQuery and cuStreamQuery. For cuda/ and libsluice. */
#ifndef SL_CUDA_WAIT_H
#define SL_CUDA_WAIT_H

#include "cuda/driver.h"

/* The wait spins for this long first: a copy of a few pieces ends within it. */
#define SL_CUDA_WAIT_SPIN_NS UINT64_C(50000)
/* Longest sleep between two polls; a sleep is an eighth of the wait so far. */
#define SL_CUDA_WAIT_SLEEP_NS_MAX UINT64_C(1000000)

/* Waits until the event's work has ended, at most until deadline_ns (monotonic; SL_NEVER_NS: for
 * ever; in the past: polls once). An event that was never recorded has ended. Returns the last
 * result of cuEventQuery: 0, SL_CU_NOT_READY at the deadline (the GPU still uses the work's
 * memory), or an error. sl_fail_cuda maps SL_CU_NOT_READY to SL_ERR_TIMEOUT. Any thread; the
 * event's context must be current. Like any query this invalidates another thread's capture in
 * global mode, unless this thread's mode is relaxed. */
sl_cu_result sl_cuda_event_wait(const struct sl_driver *driver, sl_cu_event event,
                                uint64_t deadline_ns);
/* The same for all work in the stream. */
sl_cu_result sl_cuda_stream_wait(const struct sl_driver *driver, sl_cu_stream stream,
                                 uint64_t deadline_ns);

#endif
