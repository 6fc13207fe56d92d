/* client/lib/gpu_open.c - the resources for copies of a device: streams, buffers, kernels.
 *
 * Kernels live in the engine's own context, and their buffers in its memory. So both are allocated
 * when a list first needs them, and copies work without them. */
#include "client/lib/gpu_internal.h"

#include <stdlib.h>

static const void *given_image; /* for tests */

void sl_gpu_kernels(const void *image)
{
    given_image = image;
}

/* ---- halves ---- */

static sl_err half_open(struct gpu_half *half, int priority, struct sl_error *why)
{
    const struct sl_driver *driver = &sl_gpu_driver;
    sl_err err = SL_OK;
    if (half->stream == NULL) {
        err = gpu_failed(why,
                         driver->stream_create(&half->stream, SL_CU_STREAM_NON_BLOCKING, priority),
                         "create a stream");
        if (err != SL_OK) {
            half->stream = NULL;
        }
    }
    if (err == SL_OK && half->done == NULL) {
        err = gpu_failed(why, driver->event_create(&half->done, SL_CU_EVENT_NO_TIMING),
                         "create an event");
        if (err != SL_OK) {
            half->done = NULL;
        }
    }
    return err;
}

sl_err gpu_halves_open(struct gpu *gpu, struct sl_error *why)
{
    int least = 0, greatest = 0;
    if (gpu->halves != NULL && gpu->halves[GPU_HALVES - 1].done != NULL) {
        return SL_OK;
    }
    if (gpu->halves == NULL) {
        gpu->halves = calloc(GPU_HALVES, sizeof *gpu->halves);
    }
    if (gpu->halves == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for copies of GPU %d", gpu->number);
    }
    /* The lowest priority: a waiting kernel of the engine runs first. */
    sl_err err = gpu_failed(why, sl_gpu_driver.priorities(&least, &greatest),
                            "ask for the priorities of streams");
    for (uint32_t i = 0; err == SL_OK && i < GPU_HALVES; i++) {
        err = half_open(&gpu->halves[i], least, why);
    }
    return err;
}

sl_err gpu_bounce_open(struct gpu_half *half, struct sl_error *why)
{
    void *bounce = NULL;
    if (half->bounce != NULL) {
        return SL_OK;
    }
    sl_err err = gpu_failed(
        why,
        sl_gpu_driver.host_get(&bounce, GPU_HALF_BYTES, SL_CU_HOST_PORTABLE | SL_CU_HOST_DEVICEMAP),
        "get pinned memory");
    half->bounce = err == SL_OK ? bounce : NULL;
    return err;
}

/* ---- kernels ---- */

static bool kernels_load(struct gpu *gpu)
{
    const struct sl_kernel_image given = {.name = "given", .data = given_image};
    uint32_t count = 1;
    const struct sl_kernel_image *images = given_image != NULL ? &given : sl_cuda_kernels(&count);
    return sl_kernels_load(&sl_gpu_driver, gpu->capability, images, count, &gpu->code, NULL) ==
               SL_OK &&
           gpu->code.module != NULL;
}

/* Allocates the buffers of both halves: one piece of device memory, one of pinned memory. */
static bool kernels_room(struct gpu *gpu)
{
    const struct sl_driver *driver = &sl_gpu_driver;
    const size_t table_bytes = GPU_HALF_SEGMENTS * sizeof(struct sl_swap_layer);
    const size_t hash_bytes = GPU_HALF_HASHES * sizeof(uint64_t);
    const size_t control_bytes = table_bytes + hash_bytes;
    if (driver->memory_get(&gpu->room, GPU_HALVES * (GPU_HALF_BYTES + control_bytes)) != 0) {
        gpu->room = 0;
        return false;
    }
    if (driver->host_get(&gpu->control, GPU_HALVES * control_bytes, SL_CU_HOST_PORTABLE) != 0) {
        gpu->control = NULL;
        return false;
    }
    for (uint32_t i = 0; i < GPU_HALVES; i++) {
        struct gpu_half *half = &gpu->halves[i];
        unsigned char *control = (unsigned char *)gpu->control + i * control_bytes;
        half->staging = gpu->room + i * (GPU_HALF_BYTES + control_bytes);
        half->table_device = half->staging + GPU_HALF_BYTES;
        half->hashes_device = half->table_device + table_bytes;
        half->table = (struct sl_swap_layer *)(void *)control;
        half->hashes = (uint64_t *)(void *)(control + table_bytes);
    }
    return true;
}

static void kernels_close(struct gpu *gpu)
{
    const struct sl_driver *driver = &sl_gpu_driver;
    if (gpu->room != 0) {
        (void)driver->memory_free(gpu->room);
    }
    if (gpu->control != NULL) {
        (void)driver->host_free(gpu->control);
    }
    if (gpu->code.module != NULL) {
        (void)driver->module_unload(gpu->code.module);
    }
    gpu->room = 0;
    gpu->control = NULL;
    gpu->code.module = NULL;
}

bool gpu_kernels_open(struct gpu *gpu)
{
    if (gpu->kernels == GPU_NEW) {
        bool ready = kernels_load(gpu) && kernels_room(gpu);
        gpu->kernels = ready ? GPU_READY : GPU_REFUSED;
        if (!ready) {
            kernels_close(gpu);
        }
    }
    return gpu->kernels == GPU_READY;
}

/* ---- the end ---- */

void gpu_reset(struct gpu *gpu)
{
    const struct sl_driver *driver = &sl_gpu_driver;
    for (uint32_t i = 0; gpu->halves != NULL && i < GPU_HALVES; i++) {
        struct gpu_half *half = &gpu->halves[i];
        if (half->stream != NULL) {
            (void)driver->stream_destroy(half->stream);
        }
        if (half->done != NULL) {
            (void)driver->event_destroy(half->done);
        }
        if (half->bounce != NULL) {
            (void)driver->host_free(half->bounce);
        }
    }
    kernels_close(gpu);
    gpu->kernels = GPU_NEW;
    free(gpu->halves);
    gpu->halves = NULL;
}
