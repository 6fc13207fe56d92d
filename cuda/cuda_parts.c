/* cuda/cuda_parts.c - device memory of many handles (expandable segments, allocators of engines
 * that unmap and map again): maps all of them into one range of addresses. */
#include "cuda/cuda_internal.h"
#include "runtime/base/sl_array.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_descriptors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A swapper without a heartbeat for a second is killed. */
#define PARTS_FETCH_NS (500 * SL_NS_PER_MS)

struct part {
    sl_cu_handle handle;
    uint64_t length_bytes;
};
/* Handles received so far. */
struct parts {
    struct cuda_device *cuda;
    struct part *at;
    uint32_t count, capacity;
    uint64_t total_bytes;
    size_t unit;
};

/* Handles are needed only until the mapping, which keeps the memory. */
static void parts_release(struct parts *parts)
{
    for (uint32_t i = 0; i < parts->count; i++) {
        (void)parts->cuda->driver.physical_free(parts->at[i].handle);
    }
    free(parts->at);
}

static sl_err parts_take(void *context, const struct sl_descriptors_part *part,
                         struct sl_error *why)
{
    struct parts *parts = context;
    struct sl_driver *driver = &parts->cuda->driver;
    if (!SL_ARRAY_ROOM(parts->at, parts->capacity, parts->count + part->count)) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u handles",
                       parts->count + part->count);
    }
    for (uint32_t i = 0; i < part->count; i++) {
        struct part next = {.length_bytes = part->lengths[i]};
        if (next.length_bytes == 0 || next.length_bytes % parts->unit != 0 ||
            next.length_bytes > (uint64_t)INT64_MAX - parts->total_bytes) {
            return sl_fail(why, SL_ERR_PROTOCOL,
                           "handle %u has %" PRIu64 " bytes: no multiple of %zu", parts->count,
                           next.length_bytes, parts->unit);
        }
        sl_err err = sl_fail_cuda(
            driver, why,
            driver->physical_import(&next.handle, (void *)(intptr_t)part->fds[i], SL_CU_HANDLE_FD),
            "import handle %u of device memory", parts->count);
        if (err != SL_OK) {
            return err;
        }
        parts->at[parts->count++] = next;
        parts->total_bytes += next.length_bytes;
    }
    return SL_OK;
}

static sl_err parts_fetch(struct parts *parts, const struct sl_memory_handle *handle,
                          struct sl_error *why)
{
    struct sl_memory_name name;
    memcpy(&name, handle->ipc, sizeof(name));
    const struct sl_descriptors_source source = {.runtime_dir = parts->cuda->base.runtime_directory,
                                                 .pid = handle->pid,
                                                 .number = name.number};
    const struct sl_descriptors_request ask = {
        .address = name.address, .length_bytes = name.length_bytes, .life = name.life};
    if (source.runtime_dir == NULL) {
        return sl_fail(why, SL_ERR_UNSUPPORTED,
                       "device cuda: opened without a runtime directory, so it can ask no process "
                       "for memory");
    }
    return sl_descriptors_fetch(&source, &ask, parts_take, parts,
                                sl_deadline_ns(sl_clock_monotonic_ns(), PARTS_FETCH_NS), why);
}

/* map->part_count is the number of mapped parts, also on failure. */
static sl_err parts_map(const struct parts *parts, struct cuda_map *map, struct sl_error *why)
{
    struct sl_driver *driver = &parts->cuda->driver;
    const struct sl_cu_access access = {
        .location = {.type = SL_CU_LOCATION_DEVICE, .id = parts->cuda->gpu},
        .flags = SL_CU_ACCESS_READ_WRITE};
    uint64_t total = parts->total_bytes;
    sl_cu_ptr base = 0;
    sl_err err = sl_fail_cuda(driver, why, driver->address_get(&base, parts->total_bytes, 0, 0, 0),
                              "reserve %" PRIu64 " bytes of addresses", total);
    if (err != SL_OK) {
        return err;
    }
    map->base = base;
    map->length_bytes = parts->total_bytes;
    uint64_t at = 0;
    for (uint32_t i = 0; i < parts->count; i++) {
        const struct part *part = &parts->at[i];
        err = sl_fail_cuda(driver, why,
                           driver->address_map(base + at, part->length_bytes, 0, part->handle, 0),
                           "map handle %u of %u of device memory", i, parts->count);
        if (err != SL_OK) {
            return err;
        }
        map->part_lengths[map->part_count++] = part->length_bytes;
        at += part->length_bytes;
    }
    return sl_fail_cuda(driver, why, driver->address_access(base, total, &access, 1),
                        "allow access to %" PRIu64 " bytes of device memory", total);
}

sl_err cuda_parts_open(struct cuda_device *cuda, const struct sl_memory_handle *handle,
                       struct cuda_map *map, struct sl_error *why)
{
    struct parts parts = {.cuda = cuda};
    sl_err err = cuda_memory_unit(cuda, &parts.unit, why);
    if (err == SL_OK) {
        err = parts_fetch(&parts, handle, why);
    }
    if (err == SL_OK) {
        map->part_lengths = calloc(parts.count, sizeof(*map->part_lengths));
        err = map->part_lengths != NULL
                  ? parts_map(&parts, map, why)
                  : sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u handles", parts.count);
    }
    parts_release(&parts);
    if (err != SL_OK) {
        cuda_parts_close(cuda, map);
    }
    return err;
}

void cuda_parts_close(struct cuda_device *cuda, struct cuda_map *map)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < map->part_count; i++) { /* in the same pieces as they were mapped */
        (void)cuda->driver.address_unmap(map->base + at, map->part_lengths[i]);
        at += map->part_lengths[i];
    }
    if (map->base != 0) {
        (void)cuda->driver.address_free(map->base, map->length_bytes);
    }
    free(map->part_lengths);
    map->part_lengths = NULL;
    map->part_count = 0;
    map->base = 0;
}
