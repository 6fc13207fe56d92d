/* cuda/cuda_wait.h - waits on the GPU that end by a deadline. The driver's own (cuEventSynchronize,
 * cuStreamSynchronize) have none: a GPU that hangs would hang the thread with it. So the state is
 * polled, by cuEventQuery and cuStreamQuery. For cuda/ and libsluice. */
#ifndef SL_CUDA_WAIT_H
#define SL_CUDA_WAIT_H

#include "cuda/driver.h"

/* What is awake at first: a copy of some pieces is done within it. */
#define SL_CUDA_WAIT_SPIN_NS UINT64_C(50000)
/* A sleep between two looks is an eighth of the wait so far, and at most this. */
#define SL_CUDA_WAIT_SLEEP_NS_MAX UINT64_C(1000000)

/* Waits until the work that the event stands for is done, at most until deadline_ns (monotonic;
 * SL_NEVER_NS: for ever; one that has passed: looks once). An event that was never recorded is
 * done. Gives what cuEventQuery says last: 0, SL_CU_NOT_READY at the deadline (the memory of the
 * work is still the GPU's then), or an error. sl_fail_cuda makes SL_ERR_TIMEOUT of SL_CU_NOT_READY.
 * Any thread; the event's context is current. A capture in global mode that another thread has
 * begun is spoilt, like by any query, unless this thread's mode is relaxed. */
sl_cu_result sl_cuda_event_wait(const struct sl_driver *driver, sl_cu_event event,
                                uint64_t deadline_ns);
/* The same for all work that is in the stream. */
sl_cu_result sl_cuda_stream_wait(const struct sl_driver *driver, sl_cu_stream stream,
                                 uint64_t deadline_ns);

#endif
