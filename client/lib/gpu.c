/* client/lib/gpu.c - see gpu.h.
 *
 * In this process and on a stream of our own: the pieces are arbitrary addresses of the caller's,
 * whose context is there anyway. What is not pinned of an arena (gpu_pins.h) goes through a pinned
 * buffer. One lock a device: its copies go one batch after the other, as they would on the bus.
 * The driver is called in relaxed mode alone: the engine may be capturing a graph. */
#include "client/lib/gpu.h"

#include "client/lib/gpu_pins.h"
#include "cuda/cuda_relaxed.h"
#include "runtime/sl_array.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>

#define GPUS_MAX     16
#define COPIES_MAX   1024u /* in one call to the driver */
#define BOUNCE_BYTES (8 * SL_MIB)

/* A copy through the bounce buffer. */
struct bounced {
    unsigned char *host;
    uint64_t offset_bytes, length_bytes;
};

struct gpu {
    pthread_mutex_t lock;
    sl_cu_device device;
    sl_cu_context context; /* NULL: not taken yet; then to the end */
    sl_cu_stream stream;
    unsigned char *bounce; /* NULL: not needed so far */
    bool batch_refused;
    /* of the batch at hand: */
    sl_cu_ptr to[COPIES_MAX], from[COPIES_MAX];
    size_t lengths[COPIES_MAX];
    uint32_t count;
    struct bounced bounced[COPIES_MAX];
    uint32_t bounced_count;
    uint64_t bounced_bytes;
};

static struct {
    _Atomic bool present;
    _Atomic unsigned long long loads; /* libraries that were loaded when we last looked */
    pthread_mutex_t lock;             /* present, driver */
    struct sl_driver driver;
    pthread_mutex_t gpus_lock;
    struct gpu *gpus[GPUS_MAX];
} all = {.lock = PTHREAD_MUTEX_INITIALIZER, .gpus_lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- whether there is one ---- */

/* The first library's entry tells how many were ever loaded. */
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
                   sl_driver_join(&all.driver, NULL) == SL_OK;
    atomic_store_explicit(&all.present, present, memory_order_release);
    atomic_store_explicit(&all.loads, loads, memory_order_release);
    pthread_mutex_unlock(&all.lock);
    return present;
}

struct sl_driver *sl_gpu_joined(void)
{
    return sl_gpu_present() ? &all.driver : NULL;
}

enum sl_place sl_gpu_place(const void *at, int *gpu)
{
    unsigned type = 0;
    int ordinal = 0;
    *gpu = 0;
    if (!sl_gpu_present() ||
        all.driver.pointer_attribute(&type, SL_CU_POINTER_MEMORY_TYPE, (uintptr_t)at) != 0) {
        return SL_PLACE_PLAIN; /* the driver does not know it, or nobody uses the driver */
    }
    if (type != SL_CU_MEMORY_TYPE_DEVICE) {
        return type == SL_CU_MEMORY_TYPE_HOST ? SL_PLACE_PINNED : SL_PLACE_PLAIN;
    }
    if (all.driver.pointer_attribute(&ordinal, SL_CU_POINTER_DEVICE, (uintptr_t)at) == 0) {
        *gpu = ordinal;
    }
    return SL_PLACE_DEVICE;
}

/* ---- devices ---- */

/* Whatever the driver says: the caller's device failed, and the text has its code. */
static sl_err failed(struct sl_error *why, sl_cu_result result, const char *doing)
{
    struct sl_error reason = {0};
    if (sl_fail_cuda(&all.driver, &reason, result, "%s", doing) == SL_OK) {
        return SL_OK;
    }
    sl_err err = sl_fail(why, SL_ERR_DEVICE, "%s", reason.text);
    if (why != NULL) {
        why->os_code = reason.os_code;
    }
    return err;
}

/* Stream and buffer, while the context is current: made anew with the next copy. */
static void gpu_reset(struct gpu *gpu)
{
    if (gpu->stream != NULL) {
        (void)all.driver.stream_destroy(gpu->stream);
    }
    if (gpu->bounce != NULL) {
        (void)all.driver.host_free(gpu->bounce);
    }
    gpu->stream = NULL;
    gpu->bounce = NULL;
}

static void gpu_close(struct gpu *gpu)
{
    sl_cu_context before = NULL;
    if (gpu->context == NULL) {
        return;
    }
    if (all.driver.context_push(gpu->context) == 0) {
        gpu_reset(gpu);
        (void)all.driver.context_pop(&before);
    }
    (void)all.driver.context_release(gpu->device);
    gpu->context = NULL;
    gpu->stream = NULL; /* what could not be given back went with the context */
    gpu->bounce = NULL;
}

/* Its context is current afterwards, when that went well. */
static sl_err gpu_enter(struct gpu *gpu, int number, struct sl_error *why)
{
    const struct sl_driver *driver = &all.driver;
    sl_err err = SL_OK;
    if (gpu->context == NULL) {
        err = failed(why, driver->device_get(&gpu->device, number), "find the device");
        if (err == SL_OK) {
            err = failed(why, driver->context_retain(&gpu->context, gpu->device),
                         "take the device's context");
        }
        if (err != SL_OK) {
            gpu->context = NULL;
            return err;
        }
    }
    err = failed(why, driver->context_push(gpu->context), "make the device's context current");
    if (err !=
        SL_OK) { /* the caller may have reset the device: all is made anew with the next copy */
        sl_gpu_pins_forget(NULL);
        gpu_close(gpu);
        return err;
    }
    if (gpu->stream != NULL) {
        return SL_OK;
    }
    err = failed(why, driver->stream_create(&gpu->stream, SL_CU_STREAM_NON_BLOCKING, 0),
                 "create a stream");
    if (err != SL_OK) {
        sl_cu_context before = NULL;
        gpu->stream = NULL;
        (void)driver->context_pop(&before);
    }
    return err;
}

static struct gpu *gpu_of(int number)
{
    struct gpu *gpu = NULL;
    if (number < 0 || number >= GPUS_MAX) {
        return NULL;
    }
    pthread_mutex_lock(&all.gpus_lock);
    if (all.gpus[number] == NULL) {
        all.gpus[number] = calloc(1, sizeof *gpu);
        if (all.gpus[number] != NULL) {
            pthread_mutex_init(&all.gpus[number]->lock, NULL);
        }
    }
    gpu = all.gpus[number];
    pthread_mutex_unlock(&all.gpus_lock);
    return gpu;
}

/* ---- copies ---- */

sl_err sl_gpu_copies_add(struct sl_gpu_copies *copies, const struct sl_gpu_copy *copy)
{
    if (!SL_ARRAY_ROOM(copies->at, copies->room, copies->count + 1)) {
        return SL_ERR_NO_MEMORY;
    }
    copies->at[copies->count++] = *copy;
    return SL_OK;
}

void sl_gpu_copies_free(struct sl_gpu_copies *copies)
{
    free(copies->at);
    *copies = (struct sl_gpu_copies){0};
}

static sl_err send_singly(const struct gpu *gpu, bool to_host, struct sl_error *why)
{
    sl_err err = SL_OK;
    for (uint32_t i = 0; i < gpu->count && err == SL_OK; i++) {
        sl_cu_result result =
            to_host ? all.driver.to_host((void *)(uintptr_t)gpu->to[i], gpu->from[i],
                                         gpu->lengths[i], gpu->stream)
                    : all.driver.to_device(gpu->to[i], (const void *)(uintptr_t)gpu->from[i],
                                           gpu->lengths[i], gpu->stream);
        err = failed(why, result, to_host ? "copy from the device" : "copy to the device");
    }
    return err;
}

/* Puts what was gathered on the stream, in one call where the driver can. */
static sl_err gpu_send(struct gpu *gpu, bool to_host, struct sl_error *why)
{
    const struct sl_driver *driver = &all.driver;
    struct sl_cu_copy_kind kind = {.source_order = SL_CU_ORDER_STREAM};
    size_t start = 0, refused = 0;
    sl_err err = SL_OK;
    bool batch = gpu->count > 1 && !gpu->batch_refused &&
                 (driver->copy_batch != NULL || driver->copy_batch_12 != NULL);
    if (batch) {
        sl_cu_result result =
            driver->copy_batch != NULL
                ? driver->copy_batch(gpu->to, gpu->from, gpu->lengths, gpu->count, &kind, &start, 1,
                                     gpu->stream)
                : driver->copy_batch_12(gpu->to, gpu->from, gpu->lengths, gpu->count, &kind, &start,
                                        1, &refused, gpu->stream);
        gpu->batch_refused = result == SL_CU_NOT_SUPPORTED;
        /* Copies that it took before it refused are the same again. */
        batch = result == 0 || sl_driver_sticky(result);
        err = batch ? failed(why, result, "copy a batch") : SL_OK;
    }
    if (!batch) {
        err = send_singly(gpu, to_host, why);
    }
    gpu->count = 0;
    return err;
}

/* Waits for all that was put on the stream; what came through the bounce buffer goes on from there.
 */
static sl_err gpu_wait(struct gpu *gpu, bool to_host, struct sl_error *why)
{
    sl_err err = gpu->count > 0 ? gpu_send(gpu, to_host, why) : SL_OK;
    sl_err waited = failed(err == SL_OK ? why : NULL, all.driver.stream_wait(gpu->stream),
                           "wait for the device");
    err = err == SL_OK ? waited : err;
    for (uint32_t i = 0; i < gpu->bounced_count && err == SL_OK && to_host; i++) {
        const struct bounced *item = &gpu->bounced[i];
        memcpy(item->host, gpu->bounce + item->offset_bytes, item->length_bytes);
    }
    gpu->bounced_count = 0;
    gpu->bounced_bytes = 0;
    return err;
}

static sl_err gpu_add(struct gpu *gpu, unsigned char *host, sl_cu_ptr device, uint64_t length_bytes,
                      bool to_host, struct sl_error *why)
{
    sl_cu_ptr to = to_host ? (sl_cu_ptr)(uintptr_t)host : device;
    sl_cu_ptr from = to_host ? device : (sl_cu_ptr)(uintptr_t)host;
    gpu->to[gpu->count] = to;
    gpu->from[gpu->count] = from;
    gpu->lengths[gpu->count++] = length_bytes;
    return gpu->count == COPIES_MAX ? gpu_send(gpu, to_host, why) : SL_OK;
}

/* As much of the copy as one round through the bounce buffer takes. */
static sl_err gpu_bounce(struct gpu *gpu, const struct sl_gpu_copy *copy, uint64_t at, bool to_host,
                         uint64_t *taken, struct sl_error *why)
{
    sl_err err = SL_OK;
    if (gpu->bounce == NULL) {
        void *bounce = NULL;
        err = failed(why, all.driver.host_get(&bounce, BOUNCE_BYTES, SL_CU_HOST_PORTABLE),
                     "get pinned memory");
        if (err != SL_OK) {
            return err;
        }
        gpu->bounce = bounce;
    }
    if (gpu->bounced_bytes == BOUNCE_BYTES || gpu->bounced_count == COPIES_MAX) {
        err = gpu_wait(gpu, to_host, why);
    }
    if (err != SL_OK) {
        return err;
    }
    struct bounced item = {.host = copy->host + at,
                           .offset_bytes = gpu->bounced_bytes,
                           .length_bytes =
                               SL_MIN(copy->length_bytes - at, BOUNCE_BYTES - gpu->bounced_bytes)};
    if (!to_host) {
        memcpy(gpu->bounce + item.offset_bytes, item.host, item.length_bytes);
    }
    gpu->bounced[gpu->bounced_count++] = item;
    gpu->bounced_bytes += item.length_bytes;
    *taken = item.length_bytes;
    return gpu_add(gpu, gpu->bounce + item.offset_bytes, copy->device + at, item.length_bytes,
                   to_host, why);
}

static sl_err gpu_copy(struct gpu *gpu, const struct sl_gpu_copy *copy, bool to_host,
                       struct sl_error *why)
{
    sl_err err = SL_OK;
    uint64_t run = 0;
    for (uint64_t at = 0; at < copy->length_bytes && err == SL_OK; at += run) {
        run = sl_gpu_pins_run(&all.driver, gpu->device, copy->arena, copy->host + at,
                              copy->length_bytes - at);
        err = run > 0 ? gpu_add(gpu, copy->host + at, copy->device + at, run, to_host, why)
                      : gpu_bounce(gpu, copy, at, to_host, &run, why);
    }
    return err;
}

/* The copies of one device. */
static sl_err gpu_run(int number, const struct sl_gpu_copy *copies, uint32_t count, bool to_host,
                      struct sl_error *why)
{
    sl_cu_context before = NULL;
    struct gpu *gpu = gpu_of(number);
    if (gpu == NULL) {
        return sl_fail(why, SL_ERR_DEVICE, "device cuda: number %d cannot be used", number);
    }
    pthread_mutex_lock(&gpu->lock);
    sl_err err = gpu_enter(gpu, number, why);
    if (err != SL_OK) {
        pthread_mutex_unlock(&gpu->lock);
        return err;
    }
    gpu->count = gpu->bounced_count = 0;
    gpu->bounced_bytes = 0;
    for (uint32_t i = 0; i < count && err == SL_OK; i++) {
        err = gpu_copy(gpu, &copies[i], to_host, why);
    }
    /* Also after a failure: nothing of ours may be under way when the memory is given back. */
    gpu->count = err == SL_OK ? gpu->count : 0;
    sl_err waited = gpu_wait(gpu, to_host, err == SL_OK ? why : NULL);
    err = err == SL_OK ? waited : err;
    if (err != SL_OK) {
        gpu_reset(gpu);
    }
    sl_err left =
        failed(err == SL_OK ? why : NULL, all.driver.context_pop(&before), "give the context back");
    err = err == SL_OK ? left : err;
    pthread_mutex_unlock(&gpu->lock);
    return err;
}

sl_err sl_gpu_copies_run(struct sl_gpu_copies *copies, bool to_host, struct sl_error *why)
{
    sl_err err = SL_OK;
    int mode = copies->count > 0 ? sl_cuda_relax(&all.driver) : -1;
    for (uint32_t first = 0, end = 0; first < copies->count && err == SL_OK; first = end) {
        for (end = first; end < copies->count && copies->at[end].gpu == copies->at[first].gpu;
             end++) {
        }
        err = gpu_run(copies->at[first].gpu, &copies->at[first], end - first, to_host, why);
    }
    sl_cuda_restore(&all.driver, mode);
    copies->count = 0;
    return err;
}

/* ---- ends ---- */

/* Some device's context, current for the time of act(). */
static void with_context(void (*act)(const struct sl_arena *arena), const struct sl_arena *arena)
{
    for (int i = 0; i < GPUS_MAX; i++) {
        pthread_mutex_lock(&all.gpus_lock);
        struct gpu *gpu = all.gpus[i];
        pthread_mutex_unlock(&all.gpus_lock);
        if (gpu == NULL) {
            continue;
        }
        sl_cu_context before = NULL;
        pthread_mutex_lock(&gpu->lock);
        bool entered = gpu->context != NULL && all.driver.context_push(gpu->context) == 0;
        if (entered) {
            act(arena);
            (void)all.driver.context_pop(&before);
        }
        pthread_mutex_unlock(&gpu->lock);
        if (entered) {
            return;
        }
    }
    act(arena); /* the devices are gone: what they pinned is, too */
}

void sl_gpu_forget(const struct sl_arena *arena)
{
    if (arena == NULL || !atomic_load_explicit(&all.present, memory_order_acquire)) {
        return;
    }
    if (sl_gpu_pins_know(arena)) {
        int mode = sl_cuda_relax(&all.driver);
        with_context(sl_gpu_pins_forget, arena);
        sl_cuda_restore(&all.driver, mode);
    }
}

void sl_gpu_end(void)
{
    if (!atomic_load_explicit(&all.present, memory_order_acquire)) {
        return;
    }
    int mode = sl_cuda_relax(&all.driver);
    with_context(sl_gpu_pins_forget, NULL);
    for (int i = 0; i < GPUS_MAX; i++) {
        if (all.gpus[i] != NULL) {
            gpu_close(all.gpus[i]);
            pthread_mutex_destroy(&all.gpus[i]->lock);
            free(all.gpus[i]);
            all.gpus[i] = NULL;
        }
    }
    sl_cuda_restore(&all.driver, mode);
}
