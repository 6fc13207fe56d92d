/* cuda/cuda_dmabuf.c - exports device memory as a dmabuf for NICs. */
#include "cuda/cuda_internal.h"

#include <inttypes.h>
#include <unistd.h>

/* Checks that driver and GPU support dmabufs. Drivers before 11.7 know neither. */
static sl_err dmabuf_check(struct cuda_device *cuda, struct sl_error *why)
{
    struct sl_driver *driver = &cuda->driver;
    int can = 0;
    if (driver->range_export == NULL) {
        return sl_fail(why, SL_ERR_UNSUPPORTED,
                       "device cuda: the driver has no cuMemGetHandleForAddressRange");
    }
    if (driver->device_attribute(&can, SL_CU_ATTRIBUTE_DMABUF, cuda->gpu) != 0 || can == 0) {
        return sl_fail(why, SL_ERR_UNSUPPORTED,
                       "device cuda: this GPU and kernel module give no dmabuf");
    }
    return SL_OK;
}

/* Exports all memory of the mapping's handle, from its first byte on: the driver requires whole
 * host pages. It may refuse memory of several handles, or of another process's IPC handle. */
sl_err cuda_dmabuf(struct sl_device *device, const struct sl_mapping *mapping,
                   struct sl_device_dmabuf *out, struct sl_error *why)
{
    struct cuda_device *cuda = cuda_of(device);
    const struct cuda_map *map = mapping->private_data;
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    SL_ASSERT(map != NULL && map->users > 0);
    uint64_t offset_bytes = (uintptr_t)mapping->base - map->base;
    uint64_t whole_bytes = map->length_bytes / page_bytes * page_bytes;
    sl_err err = cuda_enter(cuda, why);
    if (err == SL_OK) {
        err = dmabuf_check(cuda, why);
    }
    if (err != SL_OK) {
        return err;
    }
    if (map->base % page_bytes != 0 || offset_bytes + mapping->length_bytes > whole_bytes) {
        return sl_fail(why, SL_ERR_UNSUPPORTED,
                       "device cuda: %" PRIu64 " bytes of process %u are not whole pages",
                       map->length_bytes, map->handle.pid);
    }
    int fd = -1;
    sl_cu_result result =
        cuda->driver.range_export(&fd, map->base, whole_bytes, SL_CU_RANGE_DMABUF, 0);
    if (result == SL_CU_INVALID_VALUE || result == SL_CU_NOT_PERMITTED) {
        return sl_fail(why, SL_ERR_UNSUPPORTED,
                       "device cuda: the driver gives no dmabuf of %" PRIu64
                       " bytes of process %u (error %d)",
                       whole_bytes, map->handle.pid, result);
    }
    err = sl_fail_cuda(&cuda->driver, why, result,
                       "export %" PRIu64 " bytes of process %u as a dmabuf", whole_bytes,
                       map->handle.pid);
    if (err == SL_OK) {
        *out = (struct sl_device_dmabuf){
            .fd = fd, .offset_bytes = offset_bytes, .length_bytes = whole_bytes};
    }
    return err;
}
