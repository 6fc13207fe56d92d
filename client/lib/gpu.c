/* client/lib/gpu.c - see gpu.h.
 *
 * Copies run in this process, on streams of its own: pieces are arbitrary addresses of the caller,
 * whose context exists here anyway. There is one lock per device: its copies run one list after the
 * other, as they would on the bus.
 *
 * The driver is only called in relaxed mode, since the engine may be capturing a graph.
 *
 * The caller's event is polled; our streams do not wait for it. A stream that waits for engine work
 * that never ends would keep the extents of its copies beyond every deadline. */
#include "client/lib/gpu_internal.h"

#include "cuda/cuda_relaxed.h"
#include "cuda/cuda_wait.h"

#include <link.h>
#include <stdlib.h>
#include <time.h>

struct sl_driver sl_gpu_driver;

static struct {
    _Atomic bool present;
    _Atomic unsigned long long loads; /* number of libraries loaded at the last check */
    pthread_mutex_t lock;             /* guards `present` and the driver */
    pthread_mutex_t gpus_lock;
    struct gpu *gpus[SL_GPUS_MAX];
} all = {.lock = PTHREAD_MUTEX_INITIALIZER, .gpus_lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- detecting a device ---- */

/* The first library's entry has the number of libraries ever loaded. */
static int loads_taken(struct dl_phdr_info *info, size_t size, void *context)
{
    (void)size;
    *(unsigned long long *)context = info->dlpi_adds;
    return 1;
}

bool sl_gpu_present(void)
{
    if (atomic_load_explicit(&all.present, memory_order_acquire)) {
        return true;
    }
    unsigned long long loads = 0;
    (void)dl_iterate_phdr(loads_taken, &loads);
    if (loads == atomic_load_explicit(&all.loads, memory_order_acquire)) {
        return false;
    }
    pthread_mutex_lock(&all.lock);
    bool present = atomic_load_explicit(&all.present, memory_order_relaxed) ||
                   sl_driver_join(&sl_gpu_driver, NULL) == SL_OK;
    atomic_store_explicit(&all.present, present, memory_order_release);
    atomic_store_explicit(&all.loads, loads, memory_order_release);
    pthread_mutex_unlock(&all.lock);
    return present;
}

struct sl_driver *sl_gpu_joined(void)
{
    return sl_gpu_present() ? &sl_gpu_driver : NULL;
}

enum sl_place sl_gpu_place(const void *at, int *gpu)
{
    unsigned type = 0;
    int ordinal = 0;
    *gpu = 0;
    if (!sl_gpu_present() ||
        sl_gpu_driver.pointer_attribute(&type, SL_CU_POINTER_MEMORY_TYPE, (uintptr_t)at) != 0) {
        return SL_PLACE_PLAIN; /* the driver does not know it, or is not in use */
    }
    if (type != SL_CU_MEMORY_TYPE_DEVICE) {
        return type == SL_CU_MEMORY_TYPE_HOST ? SL_PLACE_PINNED : SL_PLACE_PLAIN;
    }
    if (sl_gpu_driver.pointer_attribute(&ordinal, SL_CU_POINTER_DEVICE, (uintptr_t)at) == 0) {
        *gpu = ordinal;
    }
    return SL_PLACE_DEVICE;
}

/* ---- devices ---- */

sl_err gpu_failed(struct sl_error *why, sl_cu_result result, const char *doing)
{
    struct sl_error reason = {0};
    if (sl_fail_cuda(&sl_gpu_driver, &reason, result, "%s", doing) == SL_OK) {
        return SL_OK;
    }
    sl_err err = sl_fail(why, SL_ERR_DEVICE, "%s", reason.text);
    if (why != NULL) {
        why->os_code = reason.os_code;
    }
    return err;
}

static struct gpu *gpu_of(int number)
{
    struct gpu *gpu = NULL;
    if (number < 0 || number >= SL_GPUS_MAX) {
        return NULL;
    }
    pthread_mutex_lock(&all.gpus_lock);
    if (all.gpus[number] == NULL) {
        all.gpus[number] = calloc(1, sizeof *gpu);
        if (all.gpus[number] != NULL) {
            all.gpus[number]->number = number;
            pthread_mutex_init(&all.gpus[number]->lock, NULL);
        }
    }
    gpu = all.gpus[number];
    pthread_mutex_unlock(&all.gpus_lock);
    return gpu;
}

static void gpu_close(struct gpu *gpu)
{
    sl_cu_context before = NULL;
    if (gpu->context == NULL) {
        return;
    }
    if (sl_gpu_driver.context_push(gpu->context) == 0) {
        if (!gpu->stuck || gpu_pipe_ended(gpu, 0)) { /* the driver would wait for stuck copies */
            gpu_reset(gpu);
        }
        (void)sl_gpu_driver.context_pop(&before);
    }
    (void)sl_gpu_driver.context_release(gpu->device);
    /* Memory that could not be released was lost with the context. */
    free(gpu->halves);
    gpu->halves = NULL;
    gpu->context = NULL;
    gpu->stuck = false;
    gpu->kernels = GPU_NEW;
    gpu->room = 0;
    gpu->control = NULL;
    gpu->code.module = NULL;
}

static sl_err gpu_take(struct gpu *gpu, struct sl_error *why)
{
    const struct sl_driver *driver = &sl_gpu_driver;
    int host_pointers = 0, major = 0, minor = 0;
    sl_err err = gpu_failed(why, driver->device_get(&gpu->device, gpu->number), "find the device");
    if (err == SL_OK) {
        err = gpu_failed(
            why,
            driver->device_attribute(&host_pointers, SL_CU_ATTRIBUTE_HOST_POINTERS, gpu->device),
            "ask for the device's host pointers");
    }
    if (err == SL_OK) {
        sl_cu_result result = driver->device_attribute(&major, SL_CU_ATTRIBUTE_MAJOR, gpu->device);
        result = result != 0 ? result
                             : driver->device_attribute(&minor, SL_CU_ATTRIBUTE_MINOR, gpu->device);
        err = gpu_failed(why, result, "ask for the device's capability");
    }
    if (err == SL_OK) {
        err = gpu_failed(why, driver->context_retain(&gpu->context, gpu->device),
                         "take the device's context");
    }
    if (err != SL_OK) {
        gpu->context = NULL;
        return err;
    }
    gpu->host_pointers = host_pointers != 0;
    gpu->capability = (uint32_t)(10 * major + minor);
    /* A batch interprets every address as the device's. Without this attribute an address of
     * registered memory would be illegal, and the engine's context lost. */
    gpu->batch_works = gpu->host_pointers && sl_driver_has_batch(driver);
    return SL_OK;
}

/* Whether copies of other devices may be stuck. Unpinning would also wait for them. */
static bool others_stuck(const struct gpu *gpu)
{
    bool stuck = false;
    pthread_mutex_lock(&all.gpus_lock);
    for (int i = 0; i < SL_GPUS_MAX; i++) {
        stuck |= all.gpus[i] != NULL && all.gpus[i] != gpu && all.gpus[i]->stuck;
    }
    pthread_mutex_unlock(&all.gpus_lock);
    return stuck;
}

/* On success its context is current. */
static sl_err gpu_enter(struct gpu *gpu, struct sl_error *why)
{
    sl_err err = gpu->context == NULL ? gpu_take(gpu, why) : SL_OK;
    if (err != SL_OK) {
        return err;
    }
    err = gpu_failed(why, sl_gpu_driver.context_push(gpu->context),
                     "make the device's context current");
    if (err != SL_OK) {
        /* The caller may have reset the device: the next copy creates everything again. */
        sl_gpu_pins_forget(NULL, gpu->stuck || others_stuck(gpu));
        gpu_close(gpu);
        return err;
    }
    if (gpu->stuck && !gpu_pipe_ended(gpu, 0)) {
        err = sl_fail(why, SL_ERR_DEVICE,
                      "device cuda: GPU %d is not used: copies that missed their deadline are "
                      "in flight",
                      gpu->number);
    }
    if (err == SL_OK) {
        gpu->stuck = false;
        err = gpu_halves_open(gpu, why);
    }
    if (err != SL_OK) {
        sl_cu_context before = NULL;
        (void)sl_gpu_driver.context_pop(&before);
    }
    return err;
}

static bool lock_until(pthread_mutex_t *lock, uint64_t deadline_ns)
{
    if (pthread_mutex_trylock(lock) == 0) {
        return true;
    }
    uint64_t left_ns = sl_budget_ns(sl_clock_monotonic_ns(), deadline_ns);
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until); /* the clock that locks of every system support */
    uint64_t until_ns = sl_deadline_ns((uint64_t)until.tv_nsec, left_ns);
    until.tv_sec += (time_t)SL_MIN(until_ns / SL_NS_PER_S, (uint64_t)INT32_MAX);
    until.tv_nsec = (long)(until_ns % SL_NS_PER_S);
    return pthread_mutex_timedlock(lock, &until) == 0;
}

/* Locks the GPU and makes its context current. */
static sl_err gpu_begin(struct gpu *gpu, uint64_t deadline_ns, struct sl_error *why)
{
    if (!lock_until(&gpu->lock, deadline_ns)) {
        return sl_fail(why, SL_ERR_TIMEOUT, "device cuda: other copies of GPU %d are in flight",
                       gpu->number);
    }
    sl_err err = gpu_enter(gpu, why);
    if (err != SL_OK) {
        pthread_mutex_unlock(&gpu->lock);
    }
    return err;
}

/* Without the lock, so that other threads can copy, including copies that the event's work waits
 * for. If it fails nothing has begun. */
static sl_err event_wait(struct gpu *gpu, void *event, uint64_t deadline_ns, struct sl_error *why)
{
    sl_cu_context before = NULL;
    sl_err err = gpu_begin(gpu, deadline_ns, why);
    if (err != SL_OK) {
        return err;
    }
    pthread_mutex_unlock(&gpu->lock);
    sl_cu_result result = sl_cuda_event_wait(&sl_gpu_driver, event, deadline_ns);
    err =
        result == SL_CU_NOT_READY
            ? sl_fail(why, SL_ERR_TIMEOUT,
                      "device cuda: the engine's event %p did not complete by the deadline", event)
            : gpu_failed(why, result, "ask for the engine's event");
    sl_err left = gpu_failed(err == SL_OK ? why : NULL, sl_gpu_driver.context_pop(&before),
                             "give the context back");
    return err == SL_OK ? left : err;
}

sl_err gpu_run(int number, struct gpu_job *job, void *event, struct sl_error *why)
{
    sl_cu_context before = NULL;
    struct gpu *gpu = gpu_of(number);
    if (gpu == NULL) {
        return sl_fail(why, SL_ERR_DEVICE, "device cuda: number %d cannot be used", number);
    }
    sl_err err = event != NULL ? event_wait(gpu, event, job->deadline_ns, why) : SL_OK;
    if (err == SL_OK) {
        err = gpu_begin(gpu, job->deadline_ns, why);
    }
    if (err != SL_OK) {
        return err;
    }
    err = gpu_pipe_run(gpu, job, why);
    if (gpu->stuck) {
        job->copies->unfinished = true;
        job->copies->unfinished_gpu = number;
        job->copies->unfinished_count = atomic_fetch_add(&gpu->stuck_count, 1) + 1;
    }
    if (err != SL_OK && !gpu->stuck) {
        gpu_reset(gpu);
    }
    sl_err left = gpu_failed(err == SL_OK ? why : NULL, sl_gpu_driver.context_pop(&before),
                             "give the context back");
    err = err == SL_OK ? left : err;
    pthread_mutex_unlock(&gpu->lock);
    return err;
}

bool sl_gpu_copies_unfinished(int number, uint64_t unfinished_count)
{
    struct gpu *gpu = gpu_of(number);
    sl_cu_context before = NULL;
    if (gpu == NULL || atomic_load(&gpu->stuck_count) != unfinished_count || !gpu->stuck) {
        return false; /* the GPU was used since: all earlier copies had ended */
    }
    if (pthread_mutex_trylock(&gpu->lock) != 0) {
        return true;
    }
    int mode = sl_cuda_relax(&sl_gpu_driver);
    if (gpu->stuck && gpu->context != NULL && sl_gpu_driver.context_push(gpu->context) == 0) {
        gpu->stuck = !gpu_pipe_ended(gpu, 0);
        (void)sl_gpu_driver.context_pop(&before);
    }
    sl_cuda_restore(&sl_gpu_driver, mode);
    bool unfinished = gpu->stuck && atomic_load(&gpu->stuck_count) == unfinished_count;
    pthread_mutex_unlock(&gpu->lock);
    return unfinished;
}

/* ---- unmapping and end ---- */

struct unpinning {
    const struct sl_arena *arena; /* NULL: all */
    bool stuck;                   /* a device may still use it */
    bool done;
};

static void look_for_stuck(struct gpu *gpu, struct unpinning *what)
{
    what->stuck = what->stuck || (gpu->stuck && !gpu_pipe_ended(gpu, 0));
}

static void unpin_here(struct gpu *gpu, struct unpinning *what)
{
    (void)gpu;
    if (!what->done) {
        sl_gpu_pins_forget(what->arena, what->stuck);
        what->done = true;
    }
}

/* Calls visit in the context of each device that was used. */
static void each_gpu(void (*visit)(struct gpu *gpu, struct unpinning *what), struct unpinning *what)
{
    for (int i = 0; i < SL_GPUS_MAX; i++) {
        sl_cu_context before = NULL;
        pthread_mutex_lock(&all.gpus_lock);
        struct gpu *gpu = all.gpus[i];
        pthread_mutex_unlock(&all.gpus_lock);
        if (gpu == NULL) {
            continue;
        }
        pthread_mutex_lock(&gpu->lock);
        if (gpu->context != NULL && sl_gpu_driver.context_push(gpu->context) == 0) {
            visit(gpu, what);
            (void)sl_gpu_driver.context_pop(&before);
        }
        pthread_mutex_unlock(&gpu->lock);
    }
}

/* Unpins the arena in some device's context. It is pinned for all devices: if copies of one are
 * stuck the driver would wait for them, so the pages stay pinned. */
static void unpin(const struct sl_arena *arena)
{
    struct unpinning what = {.arena = arena};
    each_gpu(look_for_stuck, &what);
    each_gpu(unpin_here, &what);
    if (!what.done) {
        sl_gpu_pins_forget(arena, false); /* the devices were closed, and their pins with them */
    }
}

void sl_gpu_forget(const struct sl_arena *arena)
{
    if (arena != NULL && atomic_load_explicit(&all.present, memory_order_acquire) &&
        sl_gpu_pins_know(arena)) {
        int mode = sl_cuda_relax(&sl_gpu_driver);
        unpin(arena);
        sl_cuda_restore(&sl_gpu_driver, mode);
    }
}

void sl_gpu_end(void)
{
    if (!atomic_load_explicit(&all.present, memory_order_acquire)) {
        return;
    }
    int mode = sl_cuda_relax(&sl_gpu_driver);
    unpin(NULL);
    for (int i = 0; i < SL_GPUS_MAX; i++) {
        if (all.gpus[i] != NULL) {
            gpu_close(all.gpus[i]);
            pthread_mutex_destroy(&all.gpus[i]->lock);
            free(all.gpus[i]);
            all.gpus[i] = NULL;
        }
    }
    sl_cuda_restore(&sl_gpu_driver, mode);
}
