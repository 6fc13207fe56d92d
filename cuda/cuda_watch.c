/* cuda/cuda_watch.c - detects whether another process computes on the GPU, with whose kernels ours
 * would be time-sliced.
 *
 * Without MPS kernels of two processes never run at the same time: the GPU gives each a time slice
 * of some milliseconds in turn, and a stream's priority counts only within its process. A kernel
 * without work shows this: on an otherwise idle GPU it ends within about 10 us, otherwise after the
 * other process's slice. */
#include "cuda/cuda_internal.h"
#include "cuda/cuda_wait.h"
#include "runtime/base/sl_clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define WATCH_PAUSE_NS  (100 * SL_NS_PER_MS)
#define WATCH_LATE_NS   (150 * UINT64_C(1000)) /* time slices of others are ten times as long */
#define WATCH_LINGER_NS SL_NS_PER_S            /* a computing engine has pauses */
#define WATCH_FIRST_NS  SL_NS_PER_S            /* the driver may load the kernel at its first use */

/* ---- MPS ---- */

/* For drivers that do not know the attribute: whether the control daemon's pipe exists. */
static bool mps_pipe(void)
{
    char path[1024];
    struct stat status;
    const char *directory = getenv("CUDA_MPS_PIPE_DIRECTORY");
    int length =
        snprintf(path, sizeof(path), "%s/control",
                 directory == NULL || directory[0] == '\0' ? "/tmp/nvidia-mps" : directory);
    return length > 0 && (size_t)length < sizeof(path) && stat(path, &status) == 0 &&
           (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));
}

bool cuda_watch_mps(struct cuda_device *cuda)
{
    int shared = 0;
    sl_cu_result result = cuda->driver.device_attribute(&shared, SL_CU_ATTRIBUTE_MPS, cuda->gpu);
    return result == 0 ? shared != 0 : mps_pipe();
}

/* ---- watching ---- */

/* Sends a kernel without work, on a stream with the highest priority of this process. */
static sl_cu_result probe_send(struct cuda_device *cuda)
{
    struct sl_swap nothing = {.block_count = 0};
    void *parameters[] = {&nothing};
    sl_cu_result result = cuda->driver.launch(cuda->kernels.gather, 1, 1, 1, SL_KERNEL_THREADS, 1,
                                              1, 0, cuda->watch.stream, parameters, NULL);
    return result != 0 ? result : cuda->driver.event_record(cuda->watch.done, cuda->watch.stream);
}

static sl_cu_result probe_wait(struct cuda_device *cuda, uint64_t for_ns)
{
    return sl_cuda_event_wait(&cuda->driver, cuda->watch.done,
                              sl_deadline_ns(sl_clock_monotonic_ns(), for_ns));
}

sl_err cuda_watch_open(struct cuda_device *cuda, struct sl_error *why)
{
    struct sl_driver *driver = &cuda->driver;
    struct cuda_watch *watch = &cuda->watch;
    int least = 0, greatest = 0;
    if (cuda->beside != SL_BESIDE_WATCH || cuda->mps || cuda->kernels.gather == NULL) {
        return SL_OK;
    }
    sl_err err = sl_fail_cuda(driver, why, driver->priorities(&least, &greatest),
                              "ask for the priorities of streams");
    if (err == SL_OK) {
        err = sl_fail_cuda(
            driver, why, driver->stream_create(&watch->stream, SL_CU_STREAM_NON_BLOCKING, greatest),
            "create a stream");
    }
    if (err == SL_OK) {
        err = sl_fail_cuda(driver, why, driver->event_create(&watch->done, SL_CU_EVENT_NO_TIMING),
                           "create an event");
    }
    if (err == SL_OK) {
        sl_cu_result result = probe_send(cuda);
        result = result != 0 ? result : probe_wait(cuda, WATCH_FIRST_NS);
        watch->sent = result == SL_CU_NOT_READY;
        err = watch->sent ? SL_OK : sl_fail_cuda(driver, why, result, "run a kernel without work");
    }
    watch->on = err == SL_OK;
    return err;
}

void cuda_watch_close(struct cuda_device *cuda)
{
    struct cuda_watch *watch = &cuda->watch;
    if (watch->done != NULL) {
        (void)cuda->driver.event_destroy(watch->done);
    }
    if (watch->stream != NULL) {
        (void)cuda->driver.stream_destroy(watch->stream);
    }
    *watch = (struct cuda_watch){.on = false};
}

/* Whether a probe kernel, sent now or before, waits for other processes. */
static sl_cu_result watch_probe(struct cuda_device *cuda, uint64_t now_ns)
{
    struct cuda_watch *watch = &cuda->watch;
    sl_cu_result result = watch->sent ? 0 : probe_send(cuda);
    if (result == 0) {
        result = probe_wait(cuda, watch->sent ? 0 : WATCH_LATE_NS);
    }
    watch->sent = result == SL_CU_NOT_READY;
    watch->next_ns = sl_deadline_ns(now_ns, WATCH_PAUSE_NS);
    if (watch->sent) {
        watch->computes_until_ns = sl_deadline_ns(now_ns, WATCH_LINGER_NS);
        return 0;
    }
    return result;
}

bool cuda_watch_computes(struct cuda_device *cuda)
{
    struct cuda_watch *watch = &cuda->watch;
    if (cuda->beside != SL_BESIDE_WATCH || !watch->on) {
        return cuda->beside == SL_BESIDE_COPIES;
    }
    uint64_t now_ns = sl_clock_monotonic_ns();
    if (now_ns >= watch->next_ns) {
        sl_cu_result result = watch_probe(cuda, now_ns);
        watch->on = result == 0; /* after an error copies continue as if no process computed; they
                                    detect a lost context themselves */
        cuda->driver.lost |= sl_driver_sticky(result);
    }
    cuda->base.stats.computes = now_ns < watch->computes_until_ns;
    return now_ns < watch->computes_until_ns;
}
