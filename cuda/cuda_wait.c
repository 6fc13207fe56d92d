/* cuda/cuda_wait.c - see cuda_wait.h. */
#include "cuda/cuda_wait.h"

#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_spin.h"

#include <time.h>

typedef sl_cu_result (*query_fn)(void *what);

static void wait_pause(uint64_t waited_ns, uint64_t left_ns)
{
    if (waited_ns < SL_CUDA_WAIT_SPIN_NS) {
        sl_spin_pause();
        return;
    }
    uint64_t sleep_ns = SL_MIN(waited_ns / 8, SL_CUDA_WAIT_SLEEP_NS_MAX);
    struct timespec pause = {.tv_nsec = (long)SL_MIN(sleep_ns, left_ns)};
    (void)nanosleep(&pause, NULL); /* a signal only makes the next poll earlier */
}

static sl_cu_result wait_for(query_fn query, void *what, uint64_t deadline_ns)
{
    sl_cu_result result = query(what);
    if (result != SL_CU_NOT_READY) {
        return result;
    }
    uint64_t begun_ns = sl_clock_monotonic_ns();
    for (uint64_t now_ns = begun_ns; now_ns < deadline_ns; now_ns = sl_clock_monotonic_ns()) {
        wait_pause(now_ns - begun_ns, deadline_ns - now_ns);
        result = query(what);
        if (result != SL_CU_NOT_READY) {
            return result;
        }
    }
    return result;
}

sl_cu_result sl_cuda_event_wait(const struct sl_driver *driver, sl_cu_event event,
                                uint64_t deadline_ns)
{
    return wait_for(driver->event_query, event, deadline_ns);
}

sl_cu_result sl_cuda_stream_wait(const struct sl_driver *driver, sl_cu_stream stream,
                                 uint64_t deadline_ns)
{
    return wait_for(driver->stream_query, stream, deadline_ns);
}
