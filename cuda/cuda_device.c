/* cuda/cuda_device.c - the device `cuda`: opens the driver, the primary context of one GPU and the
 * built-in kernels, and keeps tables of layers in device memory. */
#include "cuda/cuda_internal.h"
#include "runtime/base/sl_array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A millisecond at 50 GB/s, PCIe 5 with 16 lanes. */
#define CUDA_SLICE_BYTES (48 * SL_MIB)
/* Halves of the staging are multiples of this. */
#define CUDA_HALF_UNIT 4096u

sl_err cuda_enter(struct cuda_device *cuda, struct sl_error *why)
{
    if (cuda->driver.lost) {
        return sl_fail(why, SL_ERR_DEVICE, "device cuda: the context was lost before");
    }
    return sl_fail_cuda(&cuda->driver, why, cuda->driver.context_set(cuda->context),
                        "make the context current");
}

/* ---- tables of layers ---- */

/* Whether no chunk of 16 KiB crosses from one run to the next: true of a block in one run. */
static bool hash_in_place(const struct sl_layer_table *table)
{
    if (table->path == SL_PLAN_RUNS || table->fragmented) {
        return !table->fragmented;
    }
    for (uint32_t i = 1; i < table->layer_count; i++) {
        if (table->layers[i].value_offset_bytes % SL_DIGEST_CHUNK_BYTES != 0) {
            return false;
        }
    }
    return true;
}

/* Uses the bounce memory of a slot, which is free between moves: the end of a copy from memory that
 * is not pinned could not be waited for. */
static sl_err layers_upload(struct cuda_device *cuda, sl_cu_ptr to, const void *layers,
                            size_t length, struct sl_error *why)
{
    struct sl_driver *driver = &cuda->driver;
    struct cuda_slot *slot = &cuda->slots[0];
    sl_err err = SL_OK;
    cuda_slots_wait_all(cuda);
    SL_ASSERT(slot->state == CUDA_SLOT_FREE);
    for (size_t at = 0; err == SL_OK && at < length; at += cuda->half_bytes) {
        size_t part = SL_MIN(length - at, (size_t)cuda->half_bytes);
        memcpy(slot->bounce, (const unsigned char *)layers + at, part);
        err =
            sl_fail_cuda(driver, why, driver->to_device(to + at, slot->bounce, part, slot->stream),
                         "copy %zu bytes of a layer table to the device", part);
        slot->state = CUDA_SLOT_FILLING;
        if (err == SL_OK) {
            err = cuda_stream_end(cuda, slot->stream, "wait for a layer table", why);
        }
        if (err != SL_OK && !driver->lost) {
            cuda_slots_drop(cuda, &err, why);
        }
        slot->state = CUDA_SLOT_FREE;
    }
    return err;
}

static sl_err table_upload(struct cuda_device *cuda, struct cuda_table *table, struct sl_error *why)
{
    struct sl_driver *driver = &cuda->driver;
    uint32_t count = table->host.layer_count + 1;
    size_t length = count * sizeof(struct sl_swap_layer);
    struct sl_swap_layer *layers = malloc(length);
    if (layers == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a table of %u layers", count - 1);
    }
    memcpy(layers, table->host.layers, length - sizeof(*layers));
    layers[count - 1] = (struct sl_swap_layer){.base = layers[0].base,
                                               .stride_bytes = layers[0].stride_bytes,
                                               .piece_bytes = table->host.value_bytes};
    sl_err err = sl_fail_cuda(driver, why, driver->memory_get(&table->device, length),
                              "get device memory for a table of %u layers", count - 1);
    if (err != SL_OK) {
        table->device = 0;
    } else {
        err = layers_upload(cuda, table->device, layers, length, why);
    }
    free(layers);
    return err;
}

static void table_free(struct cuda_device *cuda, struct cuda_table *table)
{
    if (table->device != 0 && !cuda->hung) {
        (void)cuda->driver.memory_free(table->device);
    }
    sl_layer_table_fini(&table->host);
    *table = (struct cuda_table){0};
}

sl_err cuda_layers_add(struct sl_device *device, const struct sl_layer *layers,
                       uint32_t layer_count, uint32_t *layers_index, struct sl_error *why)
{
    struct cuda_device *cuda = cuda_of(device);
    uint32_t slot = 0;
    while (slot < cuda->table_count && cuda->tables[slot].host.layers != NULL) {
        slot++;
    }
    if (slot == CUDA_TABLES_MAX) {
        return sl_fail(why, SL_ERR_LIMIT, "%u layer tables are in use", CUDA_TABLES_MAX);
    }
    if (slot == cuda->table_count) {
        if (!SL_ARRAY_ROOM(cuda->tables, cuda->table_capacity, slot + 1)) {
            return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for layer table %u", slot);
        }
        cuda->tables[slot] = (struct cuda_table){0};
        cuda->table_count++;
    }
    struct cuda_table *table = &cuda->tables[slot];
    sl_err err = cuda_enter(cuda, why);
    if (err == SL_OK) { /* the way is chosen for each job; here only runs matter */
        err = sl_layer_table_init(&table->host, layers, layer_count, 1, why);
    }
    if (err != SL_OK) {
        return err;
    }
    if (table->host.remote != 0) {
        err = cuda_plain_layers_add(cuda, layers, table, why);
        if (err != SL_OK) {
            table_free(cuda, table);
        } else {
            *layers_index = slot;
        }
        return err;
    }
    table->hash_in_place = hash_in_place(&table->host);
    table->words = sl_hash_runs_words(table->host.layers, layer_count);
    err = table_upload(cuda, table, why);
    if (err != SL_OK) {
        table_free(cuda, table);
        return err;
    }
    *layers_index = slot;
    return SL_OK;
}

void cuda_layers_remove(struct sl_device *device, uint32_t layers_index)
{
    struct cuda_device *cuda = cuda_of(device);
    SL_ASSERT(layers_index < cuda->table_count);
    if (cuda->tables[layers_index].host.remote != 0) {
        cuda_plain_layers_remove(cuda, &cuda->tables[layers_index]);
    }
    (void)cuda_enter(cuda, NULL);
    cuda_slots_wait_all(cuda);
    table_free(cuda, &cuda->tables[layers_index]);
}

/* ---- work beside the moves ---- */

static sl_err cuda_work(struct sl_device *device, bool *more, struct sl_error *why)
{
    struct cuda_device *cuda = cuda_of(device);
    sl_err err = cuda_enter(cuda, why);
    if (err == SL_OK) {
        err = cuda_host_step(cuda, more, why);
    }
    if (err == SL_OK && !*more && cuda->measuring) {
        err = cuda_measure_step(cuda, more, why);
    }
    return err;
}

/* ---- open and close ---- */

static void cuda_destroy(struct sl_device *device)
{
    struct cuda_device *cuda = cuda_of(device);
    if (cuda->context != NULL) {
        (void)cuda_enter(cuda, NULL);
    }
    cuda_measure_close(cuda);
    cuda_watch_close(cuda);
    cuda_slots_close(cuda); /* drains first: the streams used all that is freed below */
    for (uint32_t i = 0; i < cuda->table_count; i++) {
        table_free(cuda, &cuda->tables[i]);
    }
    free(cuda->tables);
    free(cuda->check.hashes);
    sl_device_close(&cuda->plain);
    cuda_memory_close(cuda);
    free(cuda->maps);
    if (cuda->kernels.module != NULL) {
        (void)cuda->driver.module_unload(cuda->kernels.module);
    }
    if (cuda->retained) {
        (void)cuda->driver.context_set(NULL);
        (void)cuda->driver.context_release(cuda->gpu);
    }
    sl_driver_close(&cuda->driver);
    free(cuda->cache_directory);
    free(cuda);
}

static const struct sl_device_ops cuda_ops = {
    .name = "cuda",
    .map = cuda_map,
    .unmap = cuda_unmap,
    .layers_add = cuda_layers_add,
    .layers_remove = cuda_layers_remove,
    .move = cuda_move,
    .move_begin = cuda_move_begin,
    .move_end = cuda_move_end,
    .digest_begin = cuda_digest_begin,
    .digests = cuda_digests,
    .dmabuf = cuda_dmabuf,
    .memory_create = cuda_memory_create,
    .memory_export = cuda_memory_export,
    .memory_free = cuda_memory_free,
    .event_open = cuda_event_open,
    .event_ended = cuda_event_ended,
    .event_close = cuda_event_close,
    .host_add = cuda_host_add,
    .host_remove = cuda_host_remove,
    .work = cuda_work,
    .destroy = cuda_destroy,
};

/* Refuses compute modes in which engine and swapper cannot share the GPU: one process needs MPS. */
static sl_err mode_check(struct cuda_device *cuda, uint32_t index, struct sl_error *why)
{
    struct sl_driver *driver = &cuda->driver;
    int mps = 0;
    sl_err err = sl_fail_cuda(
        driver, why,
        driver->device_attribute(&cuda->compute_mode, SL_CU_ATTRIBUTE_COMPUTE_MODE, cuda->gpu),
        "ask for the compute mode of GPU %u", index);
    if (err != SL_OK || cuda->compute_mode < SL_CU_MODE_PROHIBITED) {
        return err;
    }
    if (cuda->compute_mode == SL_CU_MODE_PROHIBITED) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "device cuda: GPU %u is in prohibited compute mode, in which no process can "
                       "use it: run nvidia-smi -c DEFAULT",
                       index);
    }
    /* An older driver does not know the attribute: opening the context will show. */
    if (driver->device_attribute(&mps, SL_CU_ATTRIBUTE_MPS, cuda->gpu) != 0 || mps != 0) {
        return SL_OK;
    }
    return sl_fail(why, SL_ERR_CONFIG,
                   "device cuda: GPU %u is in exclusive-process mode without MPS, in which engine "
                   "and swapper cannot both have it: run nvidia-smi -c DEFAULT, or MPS",
                   index);
}

static sl_err context_open(struct cuda_device *cuda, uint32_t index, struct sl_error *why)
{
    sl_cu_result result = cuda->driver.context_retain(&cuda->context, cuda->gpu);
    char doing[64];
    snprintf(doing, sizeof(doing), "retain the primary context of GPU %u", index);
    cuda->retained = result == 0;
    if (result == SL_CU_UNAVAILABLE && cuda->compute_mode == SL_CU_MODE_EXCLUSIVE) {
        (void)sl_fail(why, SL_ERR_CONFIG,
                      "device cuda: GPU %u is in exclusive-process mode and another process has it "
                      "(nvidia-smi shows which): end it, run nvidia-smi -c DEFAULT, or run MPS",
                      index);
        if (why != NULL) {
            why->os_code = result;
        }
        return SL_ERR_CONFIG;
    }
    return sl_fail_cuda_start(&cuda->driver, why, result, doing);
}

/* Checks that the driver has a GPU of this index. */
static sl_err gpu_check(struct sl_driver *driver, uint32_t index, struct sl_error *why)
{
    int count = 0;
    sl_err err = sl_fail_cuda_start(driver, why, driver->device_count(&count), "count the GPUs");
    if (err == SL_OK && index >= (uint32_t)SL_MAX(count, 0)) {
        err = sl_fail(why, SL_ERR_UNSUPPORTED, "device cuda: no GPU %u, the driver has %d", index,
                      count);
    }
    return err;
}

sl_err sl_device_check(const char *name, uint32_t ranks, struct sl_error *why)
{
    struct sl_driver driver = {0};
    if (strcmp(name, "host") == 0) {
        return SL_OK;
    }
    sl_err err = sl_driver_open(&driver, NULL, why);
    err = err == SL_OK ? gpu_check(&driver, ranks - 1, why) : err;
    sl_driver_close(&driver);
    return err == SL_ERR_UNSUPPORTED && strcmp(name, "auto") == 0 ? SL_OK : err;
}

/* Finds the GPU and its properties. */
static sl_err gpu_find(struct cuda_device *cuda, const struct sl_device_options *options,
                       struct sl_error *why)
{
    struct sl_driver *driver = &cuda->driver;
    struct sl_cu_uuid uuid = {{0}};
    int sm_count = 0, major = 0, minor = 0, host_pointers = 0;
    char name[64] = "";
    sl_err err = gpu_check(driver, options->device_index, why);
    if (err == SL_OK) {
        sl_cu_result result = driver->device_get(&cuda->gpu, (int)options->device_index);
        result = result != 0 ? result : driver->device_name(name, sizeof(name) - 1, cuda->gpu);
        result = result != 0 ? result : driver->device_uuid(&uuid, cuda->gpu);
        result = result != 0
                     ? result
                     : driver->device_attribute(&sm_count, SL_CU_ATTRIBUTE_SM_COUNT, cuda->gpu);
        result = result != 0 ? result
                             : driver->device_attribute(&major, SL_CU_ATTRIBUTE_MAJOR, cuda->gpu);
        result = result != 0 ? result
                             : driver->device_attribute(&minor, SL_CU_ATTRIBUTE_MINOR, cuda->gpu);
        result = result != 0 ? result
                             : driver->device_attribute(&host_pointers,
                                                        SL_CU_ATTRIBUTE_HOST_POINTERS, cuda->gpu);
        err = sl_fail_cuda(driver, why, result, "ask for the properties of GPU %u",
                           options->device_index);
    }
    if (err != SL_OK) {
        return err;
    }
    uint32_t all = (uint32_t)SL_MAX(sm_count, 1);
    cuda->sm_limit = options->multiprocessors == 0 ? all : SL_MIN(options->multiprocessors, all);
    cuda->host_pointers = host_pointers != 0;
    cuda->capability = (uint32_t)(10 * major + minor);
    /* A batch uses device addresses: if they differ from the host's, a copy accesses an illegal
     * address, which destroys the context. */
    cuda->batch_works = cuda->host_pointers && sl_driver_has_batch(driver);
    memcpy(cuda->base.gpu, uuid.bytes, sizeof(cuda->base.gpu));
    char *at = cuda->crossover.machine;
    for (size_t i = 0; i < sizeof(uuid.bytes); i++) {
        at += snprintf(at, 3, "%02x", uuid.bytes[i]);
    }
    snprintf(at, SL_CROSSOVER_TEXT - 2 * sizeof(uuid.bytes), "-%d-sm%u", driver->number,
             cuda->sm_limit);
    cuda->beside = options->beside;
    cuda->mps = cuda_watch_mps(cuda);
    snprintf(
        cuda->base.text, sizeof(cuda->base.text),
        "device cuda: GPU %u %s (sm_%d%d, %d multiprocessors, %u for copies), driver %d.%d, %s MPS",
        options->device_index, name, major, minor, sm_count, cuda->sm_limit, driver->number / 1000,
        driver->number % 1000 / 10, cuda->mps ? "with" : "without");
    return SL_OK;
}

/* Loads the kernels. Without them copies cost more and the processor digests, but it works. */
static sl_err kernels_open(struct cuda_device *cuda, const struct sl_device_options *options,
                           struct sl_error *why)
{
    struct sl_kernel_image given = {.name = "given", .data = options->kernels};
    uint32_t count = 1;
    const struct sl_kernel_image *images =
        options->kernels != NULL ? &given : sl_cuda_kernels(&count);
    sl_err err =
        sl_kernels_load(&cuda->driver, cuda->capability, images, count, &cuda->kernels, why);
    if (err != SL_OK) {
        return err;
    }
    size_t length = strlen(cuda->base.text), room = sizeof(cuda->base.text) - length;
    cuda->base.reduced = cuda->kernels.module == NULL;
    snprintf(cuda->base.text + length, room, "%s%s",
             cuda->base.reduced ? "; only copies, no kernels: " : ", kernels by ",
             cuda->kernels.text);
    if (cuda->base.reduced) { /* figures without kernels are useless to a device with kernels */
        length = strlen(cuda->crossover.machine);
        snprintf(cuda->crossover.machine + length, SL_CROSSOVER_TEXT - length, "-copies");
    }
    return SL_OK;
}

static sl_err cuda_start(struct cuda_device *cuda, const struct sl_device_options *options,
                         struct sl_error *why)
{
    struct sl_driver *driver = &cuda->driver;
    sl_err err = sl_driver_open(driver, options->driver_path, why);
    if (err == SL_OK) {
        err = gpu_find(cuda, options, why);
    }
    if (err == SL_OK) {
        err = mode_check(cuda, options->device_index, why);
    }
    if (err == SL_OK) {
        err = context_open(cuda, options->device_index, why);
    }
    if (err == SL_OK) {
        err = cuda_enter(cuda, why);
    }
    if (err == SL_OK) {
        err = kernels_open(cuda, options, why);
    }
    if (err == SL_OK) {
        err = cuda_slots_open(cuda, why);
    }
    if (err == SL_OK) {
        err = cuda_watch_open(cuda, why);
    }
    return err;
}

sl_err sl_device_cuda_open(const struct sl_device_options *options, struct sl_device **out,
                           struct sl_error *why)
{
    struct cuda_device *cuda = calloc(1, sizeof(*cuda));
    if (cuda != NULL) {
        cuda->maps = calloc(CUDA_MAPS_MAX, sizeof(*cuda->maps));
        cuda->cache_directory =
            options->cache_directory == NULL ? NULL : strdup(options->cache_directory);
    }
    if (cuda == NULL || cuda->maps == NULL ||
        (options->cache_directory != NULL && cuda->cache_directory == NULL)) {
        if (cuda != NULL) {
            free(cuda->maps);
            free(cuda->cache_directory);
            free(cuda);
        }
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for device cuda");
    }
    cuda->base.ops = &cuda_ops;
    cuda->base.runtime_directory = options->runtime_directory;
    cuda->base.staging_bytes = options->staging_bytes;
    cuda->base.slice_bytes = CUDA_SLICE_BYTES;
    cuda->wait_ns = options->wait_ns;
    cuda->copy_threads = options->copy_threads;
    cuda->base.slice_moves = SL_DEVICE_SLICE_MOVES_MAX;
    cuda->half_bytes = options->staging_bytes / 2 / CUDA_HALF_UNIT * CUDA_HALF_UNIT;
    cuda->hash_count_max = cuda->half_bytes / SL_DIGEST_CHUNK_BYTES + CUDA_SLOT_ITEMS;
    sl_err err = cuda_start(cuda, options, why);
    if (err != SL_OK) {
        cuda_destroy(&cuda->base);
        return err;
    }
    cuda->measuring = options->measure;
    cuda->probe_bytes = options->probe_bytes == 0
                            ? CUDA_PROBE_BYTES
                            : SL_MIN(options->probe_bytes, (uint64_t)CUDA_PROBE_BYTES);
    if (cuda->cache_directory != NULL) {
        struct sl_error reason = {0};
        sl_err loaded = sl_crossover_load(cuda->cache_directory, &cuda->crossover, &reason);
        cuda->measuring &= loaded != SL_OK;
        if (loaded != SL_OK && loaded != SL_ERR_NOT_FOUND) {
            size_t length = strlen(cuda->base.text);
            snprintf(cuda->base.text + length, sizeof(cuda->base.text) - length,
                     "; crossover: %.60s", reason.text);
        }
    }
    *out = &cuda->base;
    return SL_OK;
}
