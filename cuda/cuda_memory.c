/* cuda/cuda_memory.c - maps memory of engines into the context, and pins arenas slice by slice. */
#include "cuda/cuda_internal.h"
#include "cuda/cuda_wait.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_proc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- memory of engines ---- */

static bool handle_same(const struct sl_memory_handle *a, const struct sl_memory_handle *b)
{
    return a->kind == b->kind && a->pid == b->pid && a->start_time == b->start_time &&
           a->fd == b->fd && memcmp(a->ipc, b->ipc, sizeof(a->ipc)) == 0;
}

/* Refuses memory of another GPU, mapped if peer access works: it is slow and never intended. */
static sl_err gpu_check(struct cuda_device *cuda, sl_cu_ptr at, uint32_t pid, struct sl_error *why)
{
    struct sl_driver *driver = &cuda->driver;
    struct sl_cu_uuid uuid = {{0}};
    sl_cu_device gpu = 0;
    int ordinal = 0;
    char its[SL_GPU_TEXT_BYTES], ours[SL_GPU_TEXT_BYTES];
    sl_cu_result result = driver->pointer_attribute(&ordinal, SL_CU_POINTER_DEVICE, at);
    result = result != 0 ? result : driver->device_get(&gpu, ordinal);
    if (result == 0 && gpu == cuda->gpu) {
        return SL_OK;
    }
    result = result != 0 ? result : driver->device_uuid(&uuid, gpu);
    if (result != 0) {
        return sl_fail_cuda(driver, why, result, "ask which GPU memory of process %u lies on", pid);
    }
    sl_gpu_text(uuid.bytes, its);
    sl_gpu_text(cuda->base.gpu, ours);
    return sl_fail(why, SL_ERR_CONFIG,
                   "device cuda: memory of process %u lies on GPU %d (%s), this device is %s", pid,
                   ordinal, its, ours);
}

sl_err cuda_fail_foreign(struct cuda_device *cuda, struct sl_error *why, sl_cu_result result,
                         const char *doing)
{
    bool lost = cuda->driver.lost;
    struct sl_error reason = {0};
    sl_err err = sl_fail_cuda(&cuda->driver, &reason, result, "%s", doing);
    if (err == SL_ERR_DEVICE && !lost &&
        !sl_driver_sticky(cuda->driver.stream_query(cuda->slots[0].stream))) {
        cuda->driver.lost = false;
        err = reason.code = SL_ERR_IO;
    }
    if (err != SL_OK && why != NULL) {
        *why = reason;
    }
    return err;
}

static sl_err map_ipc(struct cuda_device *cuda, const struct sl_memory_handle *handle,
                      struct cuda_map *map, struct sl_error *why)
{
    struct sl_driver *driver = &cuda->driver;
    struct sl_cu_ipc ipc;
    sl_cu_ptr base = 0;
    size_t length = 0;
    memcpy(ipc.bytes, handle->ipc, sizeof(ipc.bytes));
    char doing[64];
    snprintf(doing, sizeof(doing), "open the IPC handle of process %u", handle->pid);
    sl_err err = cuda_fail_foreign(cuda, why,
                                   driver->ipc_open(&map->base, ipc, SL_CU_IPC_PEER_ACCESS), doing);
    if (err != SL_OK) {
        return err;
    }
    err = gpu_check(cuda, map->base, handle->pid, why);
    if (err == SL_OK) {
        err = sl_fail_cuda(driver, why, driver->memory_range(&base, &length, map->base),
                           "size of the IPC memory of process %u", handle->pid);
    }
    if (err != SL_OK) {
        (void)driver->ipc_close(map->base);
        return err;
    }
    map->length_bytes = length - (map->base - base);
    return SL_OK;
}

/* Undoes map_physical in reverse order; also if half done. */
static void physical_close(struct sl_driver *driver, const struct cuda_map *map, bool mapped)
{
    if (mapped) {
        (void)driver->address_unmap(map->base, map->length_bytes);
    }
    if (map->base != 0) {
        (void)driver->address_free(map->base, map->length_bytes);
    }
    (void)driver->physical_free(map->physical);
}

static struct sl_cu_memory memory_kind(const struct cuda_device *cuda)
{
    return (struct sl_cu_memory){
        .type = SL_CU_MEMORY_PINNED,
        .handle_types = SL_CU_HANDLE_FD,
        .location = {.type = SL_CU_LOCATION_DEVICE, .id = cuda->gpu},
    };
}

sl_err cuda_memory_unit(struct cuda_device *cuda, size_t *unit, struct sl_error *why)
{
    struct sl_cu_memory memory = memory_kind(cuda);
    return sl_fail_cuda(&cuda->driver, why,
                        cuda->driver.granularity(unit, &memory, SL_CU_GRANULARITY_MINIMUM),
                        "ask for the granularity of device memory");
}

/* Maps map->physical to an address; takes it, also on failure. */
static sl_err physical_open(struct cuda_device *cuda, struct cuda_map *map, struct sl_error *why)
{
    struct sl_driver *driver = &cuda->driver;
    struct sl_cu_access access = {.location = {.type = SL_CU_LOCATION_DEVICE, .id = cuda->gpu},
                                  .flags = SL_CU_ACCESS_READ_WRITE};
    uint64_t length = map->length_bytes;
    bool mapped = false;
    sl_err err =
        sl_fail_cuda(driver, why, driver->address_get(&map->base, map->length_bytes, 0, 0, 0),
                     "reserve %" PRIu64 " bytes of addresses", length);
    if (err != SL_OK) {
        map->base = 0;
    } else {
        err = sl_fail_cuda(driver, why,
                           driver->address_map(map->base, map->length_bytes, 0, map->physical, 0),
                           "map %" PRIu64 " bytes of device memory", length);
        mapped = err == SL_OK;
    }
    if (mapped) {
        err = sl_fail_cuda(driver, why,
                           driver->address_access(map->base, map->length_bytes, &access, 1),
                           "allow access to %" PRIu64 " bytes of device memory", length);
    }
    if (err != SL_OK) {
        physical_close(driver, map, mapped);
    }
    return err;
}

static sl_err map_physical(struct cuda_device *cuda, const struct sl_memory_handle *handle,
                           uint64_t length_bytes, struct cuda_map *map, struct sl_error *why)
{
    struct sl_driver *driver = &cuda->driver;
    size_t unit = 0;
    SL_AUTO(close) int fd = -1;
    sl_err err = sl_memory_descriptor(cuda->base.runtime_directory, handle, &fd, why);
    if (err == SL_OK) {
        err = cuda_memory_unit(cuda, &unit, why);
    }
    if (err == SL_OK) {
        err = sl_fail_cuda(
            driver, why,
            driver->physical_import(&map->physical, (void *)(intptr_t)fd, SL_CU_HANDLE_FD),
            "import descriptor %d of process %u", handle->fd, handle->pid);
    }
    if (err == SL_OK) {
        map->length_bytes = sl_align_up(length_bytes, unit);
        err = physical_open(cuda, map, why);
    }
    return err;
}

static void map_close(struct cuda_device *cuda, struct cuda_map *map)
{
    if (map->handle.kind == SL_MEMORY_CUDA_IPC) {
        (void)cuda->driver.ipc_close(map->base);
    } else if (map->handle.kind == SL_MEMORY_CUDA_PARTS) {
        cuda_parts_close(cuda, map);
    } else {
        physical_close(&cuda->driver, map, true);
    }
    *map = (struct cuda_map){0};
}

static sl_err map_find(struct cuda_device *cuda, const struct sl_memory_handle *handle,
                       uint64_t length_bytes, struct cuda_map **out, struct sl_error *why)
{
    struct cuda_map *free_map = NULL;
    for (uint32_t i = 0; i < CUDA_MAPS_MAX; i++) {
        struct cuda_map *map = &cuda->maps[i];
        if (map->users > 0 && handle_same(&map->handle, handle)) {
            *out = map;
            return SL_OK;
        }
        if (map->users == 0 && free_map == NULL) {
            free_map = map;
        }
    }
    if (free_map == NULL) {
        return sl_fail(why, SL_ERR_LIMIT, "%u allocations of engines are mapped", CUDA_MAPS_MAX);
    }
    struct cuda_map map = {.handle = *handle};
    sl_err err = handle->kind == SL_MEMORY_CUDA_IPC ? map_ipc(cuda, handle, &map, why)
                 : handle->kind == SL_MEMORY_CUDA_PARTS
                     ? cuda_parts_open(cuda, handle, &map, why)
                     : map_physical(cuda, handle, length_bytes, &map, why);
    if (err == SL_OK) {
        *free_map = map;
        *out = free_map;
    }
    return err;
}

sl_err cuda_map(struct sl_device *device, const struct sl_memory_handle *handle,
                uint64_t length_bytes, struct sl_mapping *out, struct sl_error *why)
{
    struct cuda_device *cuda = cuda_of(device);
    struct cuda_map *map = NULL;
    uint64_t end_bytes = 0;
    if (handle->kind == SL_MEMORY_PROCESS) {
        return cuda_plain_map(cuda, handle, length_bytes, out, why);
    }
    if (handle->kind != SL_MEMORY_CUDA_IPC && handle->kind != SL_MEMORY_CUDA_FD &&
        handle->kind != SL_MEMORY_CUDA_PARTS) {
        return sl_fail(
            why, SL_ERR_UNSUPPORTED,
            "memory kind %d: device cuda maps IPC handles and shareable descriptors, and "
            "copies from plain memory of processes",
            (int)handle->kind);
    }
    if (length_bytes == 0 ||
        __builtin_add_overflow(handle->offset_bytes, length_bytes, &end_bytes) ||
        end_bytes > INT64_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "%" PRIu64 " bytes at %" PRIu64 " are out of range",
                       length_bytes, handle->offset_bytes);
    }
    sl_err err = cuda_enter(cuda, why);
    if (err == SL_OK) {
        err = map_find(cuda, handle, end_bytes, &map, why);
    }
    if (err != SL_OK) {
        return err;
    }
    if (end_bytes > map->length_bytes) {
        err = sl_fail(why, SL_ERR_INVALID,
                      "memory of process %u has %" PRIu64 " bytes, %" PRIu64 " are registered",
                      handle->pid, map->length_bytes, end_bytes);
        if (map->users == 0) {
            map_close(cuda, map);
        }
        return err;
    }
    map->users++;
    *out = (struct sl_mapping){
        .base = (void *)(uintptr_t)(map->base + handle->offset_bytes), /* a device address */
        .length_bytes = length_bytes,
        .private_data = map,
    };
    return SL_OK;
}

void cuda_unmap(struct sl_device *device, struct sl_mapping *mapping)
{
    struct cuda_device *cuda = cuda_of(device);
    struct cuda_map *map = mapping->private_data;
    if (mapping->remote != 0) {
        cuda->plain->ops->unmap(cuda->plain, mapping);
    } else if (map != NULL) {
        SL_ASSERT(map->users > 0);
        if (--map->users == 0) {
            (void)cuda_enter(cuda, NULL);
            cuda_slots_wait_all(cuda);
            map_close(cuda, map);
        }
    }
    *mapping = (struct sl_mapping){0};
}

sl_err cuda_stream_end(struct cuda_device *cuda, sl_cu_stream stream, const char *doing,
                       struct sl_error *why)
{
    sl_cu_result result = sl_cuda_stream_wait(
        &cuda->driver, stream, sl_deadline_ns(sl_clock_monotonic_ns(), CUDA_SHORT_WAIT_NS));
    sl_err err = sl_fail_cuda(&cuda->driver, why, result, "%s", doing);
    if (result != SL_CU_NOT_READY) {
        return err;
    }
    cuda->driver.lost = cuda->hung = true;
    for (uint32_t i = 0; i < CUDA_SLOTS; i++) { /* these slots never provably end */
        cuda->base.moves_pending |= cuda->slots[i].state == CUDA_SLOT_IN_FLIGHT;
    }
    if (why != NULL) {
        why->code = SL_ERR_DEVICE;
    }
    return SL_ERR_DEVICE;
}

/* ---- memory for others ---- */

/* New memory holds another process's bytes, so it is cleared. */
static sl_err memory_clear(struct cuda_device *cuda, const struct cuda_map *map,
                           struct sl_error *why)
{
    struct sl_driver *driver = &cuda->driver;
    sl_cu_stream stream = cuda->slots[0].stream;
    sl_err err = sl_fail_cuda(driver, why, driver->fill(map->base, 0, map->length_bytes, stream),
                              "clear %" PRIu64 " bytes of device memory", map->length_bytes);
    sl_err waited =
        cuda_stream_end(cuda, stream, "wait for memory to be cleared", err == SL_OK ? why : NULL);
    return err == SL_OK ? waited : err;
}

sl_err cuda_memory_create(struct sl_device *device, uint64_t length_bytes,
                          struct sl_device_memory *out, struct sl_error *why)
{
    struct cuda_device *cuda = cuda_of(device);
    struct sl_driver *driver = &cuda->driver;
    struct sl_cu_memory memory = memory_kind(cuda);
    struct cuda_map map = {.handle = {.kind = SL_MEMORY_CUDA_FD}};
    size_t unit = 0;
    int fd = -1;
    if (length_bytes > INT64_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "memory of %" PRIu64 " bytes", length_bytes);
    }
    sl_err err = cuda_enter(cuda, why);
    if (err == SL_OK) {
        err = cuda_memory_unit(cuda, &unit, why);
    }
    if (err == SL_OK) {
        map.length_bytes = sl_align_up(length_bytes, unit);
        err = sl_fail_cuda(driver, why,
                           driver->physical_get(&map.physical, map.length_bytes, &memory, 0),
                           "get %" PRIu64 " bytes of device memory for others", map.length_bytes);
    }
    if (err == SL_OK) {
        err = physical_open(cuda, &map, why);
    }
    if (err != SL_OK) {
        return err;
    }
    err = memory_clear(cuda, &map, why);
    if (err == SL_OK) {
        err = sl_fail_cuda(driver, why,
                           driver->physical_export(&fd, map.physical, SL_CU_HANDLE_FD, 0),
                           "make a descriptor of device memory");
    }
    if (err == SL_OK) {
        struct cuda_map *kept = malloc(sizeof(*kept));
        if (kept != NULL) {
            *kept = map;
            *out = (struct sl_device_memory){.base = (void *)(uintptr_t)map.base,
                                             .length_bytes = length_bytes,
                                             .fd = fd,
                                             .private_data = kept};
            return SL_OK;
        }
        (void)close(fd);
        err = sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a row of device memory");
    }
    if (!cuda->hung) {
        physical_close(driver, &map, true);
    }
    return err;
}

sl_err cuda_memory_export(struct sl_device *device, const struct sl_device_memory *memory,
                          struct sl_memory_handle *out, struct sl_error *why)
{
    (void)device;
    (void)why;
    *out = (struct sl_memory_handle){
        .kind = SL_MEMORY_CUDA_FD, .pid = (uint32_t)getpid(), .fd = memory->fd};
    return SL_OK;
}

void cuda_memory_free(struct sl_device *device, struct sl_device_memory *memory)
{
    struct cuda_device *cuda = cuda_of(device);
    struct cuda_map *map = memory->private_data;
    if (map != NULL) {
        (void)cuda_enter(cuda, NULL);
        cuda_slots_wait_all(cuda);
        physical_close(&cuda->driver, map, true);
        (void)close(memory->fd);
        free(map);
    }
}

/* ---- host memory ---- */

static struct cuda_host *host_find(struct cuda_device *cuda, const unsigned char *base)
{
    for (uint32_t i = 0; i < CUDA_HOSTS_MAX; i++) {
        if (cuda->hosts[i].base == base) {
            return &cuda->hosts[i];
        }
    }
    return NULL;
}

sl_err cuda_host_add(struct sl_device *device, unsigned char *base, uint64_t length_bytes,
                     uint64_t ready_bytes, struct sl_error *why)
{
    struct cuda_device *cuda = cuda_of(device);
    struct cuda_host *host = host_find(cuda, base);
    if (host == NULL) {
        host = host_find(cuda, NULL);
        if (host == NULL) {
            return sl_fail(why, SL_ERR_LIMIT, "%u host memories are known", CUDA_HOSTS_MAX);
        }
        *host = (struct cuda_host){.base = base, .length_bytes = length_bytes};
    }
    if (host->length_bytes != length_bytes) {
        return sl_fail(why, SL_ERR_INVALID,
                       "host memory of %" PRIu64 " bytes was added with %" PRIu64, length_bytes,
                       host->length_bytes);
    }
    host->ready_bytes = SL_MAX(host->ready_bytes, ready_bytes);
    return SL_OK;
}

/* Unpins the last slice; false: there is none. All slices but the last are CUDA_PIN_BYTES long. */
static bool host_unpin_step(struct cuda_device *cuda, struct cuda_host *host)
{
    SL_ASSERT(!host->adopted);
    if (host->slice_count == 0) {
        return false;
    }
    uint64_t start_bytes = --host->slice_count * CUDA_PIN_BYTES;
    (void)cuda->driver.host_unregister(host->base + start_bytes);
    cuda->base.stats.pinned_bytes -= host->pinned_bytes - start_bytes;
    host->pinned_bytes = start_bytes;
    return true;
}

bool cuda_host_remove(struct sl_device *device, const unsigned char *base)
{
    struct cuda_device *cuda = cuda_of(device);
    struct cuda_host *host = base == NULL ? NULL : host_find(cuda, base);
    if (host == NULL) {
        return true;
    }
    (void)cuda_enter(cuda, NULL);
    host->leaving = true;
    cuda_slots_wait_all(cuda);
    if (cuda->hung) { /* the GPU may still write to these pages: they stay pinned until the process
                         ends */
        *host = (struct cuda_host){0};
        return true;
    }
    (void)host_unpin_step(cuda, host);
    if (host->slice_count > 0) {
        return false;
    }
    *host = (struct cuda_host){0};
    return true;
}

/* Size of a host's next slice: 0 if it does not exist yet, or none is left. */
static uint64_t host_next_bytes(const struct cuda_host *host)
{
    uint64_t left_bytes = host->length_bytes - host->pinned_bytes; /* 0 if adopted */
    uint64_t next_bytes = SL_MIN(left_bytes, CUDA_PIN_BYTES);
    bool ready = host->pinned_bytes + next_bytes <= host->ready_bytes;
    return host->base == NULL || host->refused || host->leaving || !ready ? 0 : next_bytes;
}

sl_err cuda_host_step(struct cuda_device *cuda, bool *more, struct sl_error *why)
{
    struct sl_driver *driver = &cuda->driver;
    *more = false;
    for (uint32_t i = 0; i < CUDA_HOSTS_MAX; i++) {
        struct cuda_host *host = &cuda->hosts[i];
        if (host->refused && host->slice_count > 0) {
            cuda_slots_wait_all(cuda);
            *more = host_unpin_step(cuda, host);
            return SL_OK;
        }
        uint64_t next_bytes = host_next_bytes(host);
        if (next_bytes == 0) {
            continue;
        }
        *more = true;
        sl_err err = sl_fail_cuda(driver, why,
                                  driver->host_register(host->base + host->pinned_bytes, next_bytes,
                                                        SL_CU_HOST_PORTABLE | SL_CU_HOST_DEVICEMAP),
                                  "pin %" PRIu64 " bytes after %" PRIu64 " of %" PRIu64, next_bytes,
                                  host->pinned_bytes, host->length_bytes);
        if (err != SL_OK) {
            host->refused = true; /* the pinned slices are unpinned in the following steps */
            return err;
        }
        host->pinned_bytes += next_bytes;
        host->slice_count++;
        cuda->base.stats.pinned_bytes += next_bytes;
        return SL_OK;
    }
    return SL_OK;
}

static const struct cuda_host *host_of(const struct cuda_device *cuda, const unsigned char *at)
{
    for (uint32_t i = 0; i < CUDA_HOSTS_MAX; i++) {
        const struct cuda_host *host = &cuda->hosts[i];
        if (host->base != NULL && (uintptr_t)at >= (uintptr_t)host->base &&
            (uintptr_t)at - (uintptr_t)host->base < host->pinned_bytes) {
            return host;
        }
    }
    return NULL;
}

uint64_t cuda_host_run(const struct cuda_device *cuda, const unsigned char *at, bool *starts)
{
    const struct cuda_host *host = host_of(cuda, at);
    if (host == NULL) {
        return 0;
    }
    uint64_t offset_bytes = (uintptr_t)at - (uintptr_t)host->base;
    if (host->adopted) {
        *starts = offset_bytes == 0;
        return host->pinned_bytes - offset_bytes;
    }
    *starts = offset_bytes % CUDA_PIN_BYTES == 0;
    uint64_t end_bytes = (offset_bytes / CUDA_PIN_BYTES + 1) * CUDA_PIN_BYTES;
    return SL_MIN(end_bytes, host->pinned_bytes) - offset_bytes;
}

bool cuda_host_pinned(const struct cuda_device *cuda, const unsigned char *at,
                      uint64_t length_bytes)
{
    const struct cuda_host *host = host_of(cuda, at);
    return host != NULL &&
           length_bytes <= host->pinned_bytes - ((uintptr_t)at - (uintptr_t)host->base);
}

sl_err cuda_host_adopt(struct cuda_device *cuda, unsigned char *base, uint64_t length_bytes,
                       struct sl_error *why)
{
    sl_err err = cuda_host_add(&cuda->base, base, length_bytes, length_bytes, why);
    if (err == SL_OK) {
        struct cuda_host *host = host_find(cuda, base);
        host->adopted = true;
        host->pinned_bytes = length_bytes;
    }
    return err;
}

void cuda_host_forget(struct cuda_device *cuda, const unsigned char *base)
{
    struct cuda_host *host = host_find(cuda, base);
    if (host != NULL) {
        SL_ASSERT(host->adopted);
        *host = (struct cuda_host){0};
    }
}

void cuda_memory_close(struct cuda_device *cuda)
{
    for (uint32_t i = 0; cuda->maps != NULL && i < CUDA_MAPS_MAX; i++) {
        if (cuda->maps[i].users > 0) {
            map_close(cuda, &cuda->maps[i]);
        }
    }
    for (uint32_t i = 0; i < CUDA_HOSTS_MAX; i++) {
        if (cuda->hosts[i].base != NULL && !cuda->hung) {
            while (host_unpin_step(cuda, &cuda->hosts[i])) {
            }
        }
    }
}
