/* client/lib/engine_device.c - see engine_device.h. */
#include "client/lib/engine_device.h"

#include "client/lib/gpu.h"
#include "cuda/cuda_relaxed.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

/* Why an engine's memory cannot be shared, and what helps. */
#define TEXT_NO_HANDLE                                                                           \
    "made without a shareable handle, as vLLM's sleep mode does: switch that off, or create it " \
    "with CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR"
#define TEXT_FABRIC                                                                                   \
    "has only a fabric handle, which is not supported yet: create it with POSIX descriptors, or set " \
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"
#define TEXT_POOL                                                              \
    "of a stream-ordered pool (cudaMallocAsync), which cannot be shared: set " \
    "PYTORCH_CUDA_ALLOC_CONF=backend:native"
#define TEXT_MANAGED "managed memory, which cannot be shared: allocate it with cudaMalloc"

/* ---- the driver, in a context of the memory's device ---- */

struct visit {
    struct sl_driver *driver;
    sl_cu_device device;
    int mode; /* of captures, to be restored */
    bool retained, pushed;
};

static void visit_end(struct visit *visit)
{
    sl_cu_context before = NULL;
    if (visit->pushed) {
        (void)visit->driver->context_pop(&before);
    }
    if (visit->retained) {
        (void)visit->driver->context_release(visit->device);
    }
    sl_cuda_restore(visit->driver, visit->mode);
}

/* Errors of the driver concern the caller's device: the message has their code. */
static sl_err driver_says(struct visit *visit, struct sl_error *why, sl_cu_result result,
                          const char *doing, uint64_t address)
{
    sl_err err = sl_fail_cuda(visit->driver, why, result, "%s 0x%" PRIx64, doing, address);
    if (err != SL_OK && why != NULL) {
        why->code = SL_ERR_DEVICE;
    }
    return err == SL_OK ? SL_OK : SL_ERR_DEVICE;
}

/* To be ended by visit_end, even after an error. */
static sl_err visit_begin(struct visit *visit, int gpu, struct sl_error *why)
{
    sl_cu_context context = NULL;
    *visit = (struct visit){.driver = sl_gpu_joined(), .mode = -1};
    if (visit->driver == NULL) {
        return sl_fail(why, SL_ERR_INVALID, "device memory: this process uses no CUDA driver");
    }
    visit->mode = sl_cuda_relax(visit->driver);
    sl_cu_result result = visit->driver->device_get(&visit->device, gpu);
    if (result == 0) {
        result = visit->driver->context_retain(&context, visit->device);
        visit->retained = result == 0;
    }
    if (result == 0) {
        result = visit->driver->context_push(context);
        visit->pushed = result == 0;
    }
    return driver_says(visit, why, result, "take the context of device", (uint64_t)(unsigned)gpu);
}

/* Attributes have 1, 4 or 8 bytes, little-endian. 0 if the driver does not know it. */
static uint64_t attribute_of(const struct sl_driver *driver, int attribute, uint64_t address)
{
    uint64_t value = 0;
    return driver->pointer_attribute(&value, attribute, address) == 0 ? value : 0;
}

/* A number that changes whenever other memory is at the address: the driver's numbers of allocation
 * and physical memory, and the handle of mapped memory. 0: none, or not known. */
static uint64_t life_of(const struct sl_driver *driver, uint64_t address)
{
    sl_cu_handle handle = 0;
    uint64_t buffer = attribute_of(driver, SL_CU_POINTER_BUFFER_ID, address);
    uint64_t block = attribute_of(driver, SL_CU_POINTER_BLOCK_ID, address);
    if (attribute_of(driver, SL_CU_POINTER_IPC_CAPABLE, address) == 0) {
        void *at = (void *)(uintptr_t)address; /* NOLINT(performance-no-int-to-ptr) */
        if (driver->physical_retain(&handle, at) != 0) {
            return 0;
        }
        (void)driver->physical_free(handle);
    }
    if ((buffer | block | handle) == 0) {
        return 0;
    }
    uint64_t mixed = buffer * UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 32 ^ block) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 29 ^ handle) * UINT64_C(0x94d049bb133111eb);
    mixed ^= mixed >> 31;
    return mixed == 0 ? 1 : mixed;
}

/* ---- at registration ---- */

/* Gives the mapping that contains the address. */
static sl_err mapping_of(struct visit *visit, uint64_t address, uint64_t *base, uint64_t *end,
                         struct sl_error *why)
{
    sl_cu_ptr start = 0;
    size_t length = 0;
    sl_err err = driver_says(visit, why, visit->driver->memory_range(&start, &length, address),
                             "ask for the mapping at", address);
    if (err == SL_OK && (start > address || address - start >= length)) {
        err = sl_fail(why, SL_ERR_DEVICE, "device memory: 0x%" PRIx64 " is not in its own mapping",
                      address);
    }
    *base = start;
    *end = start + length;
    return err;
}

static sl_err ipc_find(struct visit *visit, struct sl_engine_row *row, struct sl_error *why)
{
    struct sl_cu_ipc handle;
    uint64_t end = 0;
    sl_err err = mapping_of(visit, row->address, &row->base, &end, why);
    if (err != SL_OK) {
        return err;
    }
    if (row->length_bytes > end - row->address) {
        return sl_fail(why, SL_ERR_INVALID,
                       "device memory: %" PRIu64 " bytes at 0x%" PRIx64
                       ", its allocation has %" PRIu64 " from there",
                       row->length_bytes, row->address, (end - row->address));
    }
    err = driver_says(visit, why, visit->driver->ipc_get(&handle, row->base),
                      "make an IPC handle of", row->base);
    if (err == SL_OK) {
        memcpy(row->name, handle.bytes, sizeof row->name);
        row->kind = SL_MEMORY_CUDA_IPC;
    }
    return err;
}

static sl_err types_check(const struct visit *visit, uint64_t address, struct sl_error *why)
{
    uint64_t types = attribute_of(visit->driver, SL_CU_POINTER_HANDLE_TYPES, address);
    const char *text = NULL;
    if ((types & SL_CU_HANDLE_FD) != 0) {
        return SL_OK;
    }
    text = attribute_of(visit->driver, SL_CU_POINTER_MANAGED, address) != 0 ? TEXT_MANAGED
           : attribute_of(visit->driver, SL_CU_POINTER_POOL, address) != 0  ? TEXT_POOL
           : (types & SL_CU_HANDLE_FABRIC) != 0                             ? TEXT_FABRIC
                                                                            : TEXT_NO_HANDLE;
    return sl_fail(why, SL_ERR_UNSUPPORTED, "device memory at 0x%" PRIx64 ": %s", address, text);
}

/* Checks that every byte is mapped, with handles that can be shared. */
static sl_err parts_find(struct visit *visit, struct sl_engine_row *row, struct sl_error *why)
{
    uint64_t end = row->address + row->length_bytes;
    uint32_t count = 0;
    for (uint64_t at = row->address, base = 0, next = 0; at < end; at = next, count++) {
        if (attribute_of(visit->driver, SL_CU_POINTER_MAPPED, at) == 0) {
            return sl_fail(why, SL_ERR_INVALID,
                           "device memory: %" PRIu64 " bytes at 0x%" PRIx64
                           ", nothing is mapped at 0x%" PRIx64,
                           row->length_bytes, row->address, at);
        }
        sl_err err = types_check(visit, at, why);
        if (err == SL_OK) {
            err = mapping_of(visit, at, &base, &next, why);
        }
        if (err != SL_OK) {
            return err;
        }
        row->base = count == 0 ? base : row->base;
        if (count == SL_DESCRIPTORS_MAX) {
            return sl_fail(why, SL_ERR_LIMIT, "device memory at 0x%" PRIx64 " has over %u handles",
                           row->address, SL_DESCRIPTORS_MAX);
        }
    }
    row->kind = SL_MEMORY_CUDA_PARTS;
    return SL_OK;
}

/* Checks through the kernel that the first and last byte of plain memory exist: reading them would
 * end the process. Yama lets only parents access a process, unless it allows more. */
static sl_err plain_check(uint64_t address, uint64_t length_bytes, struct sl_error *why)
{
    char bytes[2];
    struct iovec here = {.iov_base = bytes, .iov_len = sizeof bytes};
    struct iovec there[2] = {
        {.iov_base = (void *)(uintptr_t)address,
         .iov_len = 1}, /* NOLINT(performance-no-int-to-ptr) */
        {.iov_base = (void *)(uintptr_t)(address + length_bytes - 1), .iov_len = 1}}; /* NOLINT */
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* EINVAL: no Yama */
    ssize_t got = process_vm_readv(getpid(), &here, 1, there, 2, 0);
    if (got == (ssize_t)sizeof bytes || (got < 0 && errno != EFAULT)) { /* cannot be checked */
        return SL_OK;
    }
    return sl_fail(why, SL_ERR_INVALID, "%" PRIu64 " bytes at 0x%" PRIx64 " are no memory here",
                   length_bytes, address);
}

sl_err sl_engine_row_find(uint64_t address, uint64_t length_bytes, struct sl_engine_row *out,
                          struct sl_error *why)
{
    struct sl_engine_row row = {.address = address, .length_bytes = length_bytes};
    struct visit visit;
    uint64_t end = 0;
    void *at = (void *)(uintptr_t)address; /* NOLINT(performance-no-int-to-ptr) */
    if (address == 0 || length_bytes == 0 || __builtin_add_overflow(address, length_bytes, &end)) {
        return sl_fail(why, SL_ERR_INVALID, "%" PRIu64 " bytes at 0x%" PRIx64 " are no memory here",
                       length_bytes, address);
    }
    if (sl_gpu_place(at, &row.gpu) != SL_PLACE_DEVICE) {
        row.kind = SL_MEMORY_PROCESS;
        *out = row;
        return plain_check(address, length_bytes, why);
    }
    struct sl_cu_uuid uuid = {{0}};
    sl_err err = visit_begin(&visit, row.gpu, why);
    if (err == SL_OK) {
        err = driver_says(&visit, why, visit.driver->device_uuid(&uuid, visit.device),
                          "ask for the UUID of the device of", address);
        memcpy(row.uuid, uuid.bytes, sizeof row.uuid);
    }
    if (err == SL_OK) {
        err = attribute_of(visit.driver, SL_CU_POINTER_IPC_CAPABLE, address) != 0
                  ? ipc_find(&visit, &row, why)
                  : parts_find(&visit, &row, why);
    }
    if (err == SL_OK) {
        row.life_first = life_of(visit.driver, address);
        row.life_last = life_of(visit.driver, end - 1);
        if (row.life_first == 0 || row.life_last == 0) {
            err = sl_fail(why, SL_ERR_DEVICE,
                          "device memory: 0x%" PRIx64 " cannot be distinguished from later memory",
                          address);
        }
    }
    if (err == SL_OK) {
        *out = row;
    }
    if (visit.driver != NULL) {
        visit_end(&visit);
    }
    return err;
}

/* ---- later ---- */

/* Call it within a visit. */
static sl_err lives_check(const struct visit *visit, const struct sl_engine_row *row,
                          struct sl_error *why)
{
    uint64_t last = row->address + row->length_bytes - 1;
    if (life_of(visit->driver, row->address) == row->life_first &&
        life_of(visit->driver, last) == row->life_last) {
        return SL_OK;
    }
    return sl_fail(why, SL_ERR_STALE,
                   "device memory at 0x%" PRIx64
                   " was unmapped or allocated again since the engine registered "
                   "it (sleep mode?): end the registration before, register after it",
                   row->address);
}

sl_err sl_engine_row_check(const struct sl_engine_row *row, struct sl_error *why)
{
    struct visit visit = {.driver = sl_gpu_joined(), .mode = -1};
    if (row->kind == SL_MEMORY_PROCESS) {
        return SL_OK;
    }
    if (visit.driver == NULL) {
        return sl_fail(why, SL_ERR_STALE, "device memory: the driver is gone");
    }
    visit.mode = sl_cuda_relax(visit.driver);
    sl_err err = lives_check(&visit, row, why);
    visit_end(&visit);
    return err;
}

static sl_err part_export(struct visit *visit, uint64_t address, int *fd, struct sl_error *why)
{
    sl_cu_handle handle = 0;
    void *at = (void *)(uintptr_t)address; /* NOLINT(performance-no-int-to-ptr) */
    sl_err err = driver_says(visit, why, visit->driver->physical_retain(&handle, at),
                             "find the handle at", address);
    if (err == SL_OK) {
        err =
            driver_says(visit, why, visit->driver->physical_export(fd, handle, SL_CU_HANDLE_FD, 0),
                        "make a descriptor of the memory at", address);
        (void)visit->driver->physical_free(handle);
    }
    return err;
}

/* Walks the mappings again for each packet: 0.2 us each, and nothing has to be stored. */
static sl_err parts_give(struct visit *visit, const struct sl_engine_row *row, uint32_t first,
                         struct sl_descriptors_part *out, struct sl_error *why)
{
    uint64_t end = row->address + row->length_bytes, at = row->address, base = 0, next = 0;
    sl_err err = lives_check(visit, row, why);
    for (uint32_t i = 0; err == SL_OK && at < end && out->count < SL_DESCRIPTORS_BATCH; i++) {
        err = mapping_of(visit, at, &base, &next, why);
        if (err == SL_OK && i >= first) {
            err = part_export(visit, at, &out->fds[out->count], why);
        }
        if (err == SL_OK && i >= first) {
            out->lengths[out->count++] = next - base;
        }
        at = next;
    }
    out->more = at < end;
    if (err == SL_OK && out->count == 0) {
        err = sl_fail(why, SL_ERR_STALE, "device memory at 0x%" PRIx64 " has fewer handles now",
                      row->address);
    }
    return err;
}

sl_err sl_engine_row_give(const struct sl_engine_row *row, uint32_t first,
                          struct sl_descriptors_part *out, struct sl_error *why)
{
    struct visit visit;
    sl_err err = visit_begin(&visit, row->gpu, why);
    if (err == SL_OK) {
        err = parts_give(&visit, row, first, out, why);
    }
    if (err != SL_OK) {
        for (; out->count > 0; out->count--) {
            (void)close(out->fds[out->count - 1]);
        }
    }
    if (visit.driver != NULL) {
        visit_end(&visit);
    }
    return err;
}
