/* tests/support/fake_cuda_memory.c - memory of the played driver: of its device, pinned, and shared with other processes. */
#include "tests/support/fake_cuda_internal.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define UNIT      (2u * 1024 * 1024) /* granularity of physical memory */
#define IPC_MAGIC UINT64_C(0x6465626b61665549)

/* ---- memory ---- */

static void *shared_map(int fd, size_t length)
{
    void *at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

sl_cu_result fake_memory_get(sl_cu_ptr *at, size_t length)
{
    TAKES();
    if (!fake_current || length == 0) {
        return SL_CU_INVALID_VALUE;
    }
    if (getenv("FAKE_CUDA_SHARED") != NULL) {
        int fd = memfd_create("fake-gpu", MFD_CLOEXEC);
        void *memory = fd < 0 || ftruncate(fd, (off_t)length) != 0 ? NULL : shared_map(fd, length);
        if (memory == NULL) {
            return SL_CU_OUT_OF_MEMORY;
        }
        fake_range_add(DEVICE_SHARED, (uintptr_t)memory, length)->fd = fd;
        *at = (uintptr_t)memory;
    } else {
        *at = (uintptr_t)aligned_alloc(256, sl_align_up(length, 256));
        fake_range_add(DEVICE, (uintptr_t)*at, length);
    }
    fake_state.allocations++;
    return 0;
}

sl_cu_result fake_memory_free(sl_cu_ptr at)
{
    GIVES();
    struct range *range = fake_range_at(DEVICE, (uintptr_t)at);
    if (range != NULL) {
        free((void *)range->at);
    } else {
        range = fake_range_at(DEVICE_SHARED, (uintptr_t)at);
        if (range == NULL) {
            return SL_CU_INVALID_VALUE;
        }
        (void)munmap((void *)range->at, range->length);
        (void)close(range->fd);
    }
    range->kind = FREE;
    fake_state.allocations--;
    return result;
}

sl_cu_result fake_memory_range(sl_cu_ptr *base, size_t *length, sl_cu_ptr at)
{
    TAKES();
    const struct range *range = fake_range_of((uintptr_t)at, 1, false);
    if (range == NULL) {
        return SL_CU_INVALID_VALUE;
    }
    *base = range->at;
    *length = range->length;
    return 0;
}

sl_cu_result fake_host_get(void **at, size_t length, unsigned flags)
{
    (void)flags;
    TAKES();
    *at = aligned_alloc(4096, sl_align_up(length, 4096));
    fake_range_add(HOST, (uintptr_t)*at, length);
    fake_state.host_allocations++;
    return 0;
}

sl_cu_result fake_host_free(void *at)
{
    GIVES();
    struct range *range = fake_range_at(HOST, (uintptr_t)at);
    if (range == NULL) {
        return SL_CU_INVALID_VALUE;
    }
    free(at);
    range->kind = FREE;
    fake_state.host_allocations--;
    return result;
}

sl_cu_result fake_host_register(void *at, size_t length, unsigned flags)
{
    (void)flags;
    TAKES();
    if (fake_state.registered_max != 0 && fake_state.registered == fake_state.registered_max) {
        return SL_CU_OUT_OF_MEMORY;
    }
    if (length == 0 || fake_range_of((uintptr_t)at, 1, true) != NULL) {
        return 712; /* already registered */
    }
    fake_range_add(REGISTERED, (uintptr_t)at, length);
    fake_state.registered_by = (uintptr_t)pthread_self();
    fake_state.registered_most = SL_MAX(fake_state.registered_most, (uint64_t)length);
    fake_state.registered++;
    fake_state.registrations++;
    return 0;
}

sl_cu_result fake_host_unregister(void *at)
{
    GIVES();
    struct range *range = fake_range_at(REGISTERED, (uintptr_t)at);
    if (range == NULL) {
        return 713; /* not registered */
    }
    range->kind = FREE;
    fake_state.registrations--;
    return result;
}

/* ---- memory of other processes ---- */

struct ipc_name {
    uint64_t magic, pid, at, length;
    int64_t fd;
};

sl_cu_result fake_ipc_get(struct sl_cu_ipc *handle, sl_cu_ptr at)
{
    TAKES();
    const struct range *range = fake_range_of((uintptr_t)at, 1, false);
    if (range == NULL) {
        return SL_CU_INVALID_VALUE;
    }
    struct ipc_name name = {.magic = IPC_MAGIC,
                            .pid = (uint64_t)getpid(),
                            .at = range->at,
                            .length = range->length,
                            .fd = range->fd};
    memset(handle, 0, sizeof(*handle));
    memcpy(handle->bytes, &name, sizeof(name));
    return 0;
}

sl_cu_result fake_ipc_open(sl_cu_ptr *at, struct sl_cu_ipc handle, unsigned flags)
{
    (void)flags;
    struct ipc_name name;
    TAKES();
    memcpy(&name, handle.bytes, sizeof(name));
    if (name.magic != IPC_MAGIC) {
        return SL_CU_INVALID_VALUE;
    }
    uintptr_t memory = (uintptr_t)name.at;
    if (name.pid != (uint64_t)getpid()) {
        char path[64];
        snprintf(path, sizeof(path), "/proc/%llu/fd/%lld", (unsigned long long)name.pid,
                 (long long)name.fd);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        memory = fd < 0 ? 0 : (uintptr_t)shared_map(fd, name.length);
        if (fd >= 0) {
            (void)close(fd);
        }
        if (memory == 0) {
            return 205; /* map failed */
        }
        fake_range_add(DEVICE_IPC, memory, name.length);
    }
    fake_state.ipc_opens++;
    *at = memory;
    return 0;
}

sl_cu_result fake_ipc_close(sl_cu_ptr at)
{
    GIVES();
    struct range *range = fake_range_at(DEVICE_IPC, (uintptr_t)at);
    if (range != NULL) {
        (void)munmap((void *)range->at, range->length);
        range->kind = FREE;
    }
    fake_state.ipc_opens--;
    return result;
}

sl_cu_result fake_granularity(size_t *bytes, const struct sl_cu_memory *memory, int option)
{
    TAKES();
    *bytes = UNIT;
    return memory->type == SL_CU_MEMORY_PINNED && option == SL_CU_GRANULARITY_MINIMUM
               ? 0
               : SL_CU_INVALID_VALUE;
}

sl_cu_result fake_physical_get(sl_cu_handle *handle, size_t length,
                               const struct sl_cu_memory *memory, unsigned long long flags)
{
    (void)memory;
    TAKES();
    int fd = memfd_create("fake-gpu", MFD_CLOEXEC);
    if (flags != 0 || length % UNIT != 0 || fd < 0 || ftruncate(fd, (off_t)length) != 0) {
        return SL_CU_INVALID_VALUE;
    }
    fake_state.physicals++;
    *handle = (sl_cu_handle)fd;
    return 0;
}

sl_cu_result fake_physical_export(void *shared, sl_cu_handle handle, int kind,
                                  unsigned long long flags)
{
    TAKES();
    int fd = dup((int)handle);
    memcpy(shared, &fd, sizeof(fd));
    return kind == SL_CU_HANDLE_FD && flags == 0 && fd >= 0 ? 0 : SL_CU_INVALID_VALUE;
}

sl_cu_result fake_physical_import(sl_cu_handle *handle, void *shared, int kind)
{
    TAKES();
    int fd = kind == SL_CU_HANDLE_FD ? dup((int)(intptr_t)shared) : -1;
    if (fd < 0) {
        return SL_CU_INVALID_VALUE;
    }
    fake_state.physicals++;
    *handle = (sl_cu_handle)fd;
    return 0;
}

sl_cu_result fake_physical_free(sl_cu_handle handle)
{
    GIVES();
    (void)close((int)handle);
    fake_state.physicals--;
    return result;
}

sl_cu_result fake_address_get(sl_cu_ptr *at, size_t length, size_t alignment, sl_cu_ptr wanted,
                              unsigned long long flags)
{
    TAKES();
    if (length % UNIT != 0 || alignment != 0 || wanted != 0 || flags != 0) {
        return SL_CU_INVALID_VALUE;
    }
    void *memory = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return SL_CU_OUT_OF_MEMORY;
    }
    fake_range_add(RESERVED, (uintptr_t)memory, length);
    fake_state.reservations++;
    *at = (uintptr_t)memory;
    return 0;
}

sl_cu_result fake_address_free(sl_cu_ptr at, size_t length)
{
    GIVES();
    struct range *range = fake_range_at(RESERVED, (uintptr_t)at);
    if (range == NULL || range->length != length) {
        return SL_CU_INVALID_VALUE;
    }
    (void)munmap((void *)range->at, length);
    range->kind = FREE;
    fake_state.reservations--;
    return result;
}

sl_cu_result fake_address_map(sl_cu_ptr at, size_t length, size_t offset, sl_cu_handle handle,
                              unsigned long long flags)
{
    struct stat status;
    TAKES();
    if (fake_range_at(RESERVED, (uintptr_t)at) == NULL || offset != 0 || flags != 0 ||
        fstat((int)handle, &status) != 0 || (size_t)status.st_size < length ||
        mmap((void *)(uintptr_t)at, length, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle, 0) ==
            MAP_FAILED) {
        return SL_CU_INVALID_VALUE;
    }
    fake_range_add(MAPPED, (uintptr_t)at, length);
    fake_state.mappings++;
    return 0;
}

sl_cu_result fake_address_unmap(sl_cu_ptr at, size_t length)
{
    GIVES();
    struct range *range = fake_range_at(MAPPED, (uintptr_t)at);
    if (range == NULL || range->length != length) {
        return SL_CU_INVALID_VALUE;
    }
    (void)mmap((void *)range->at, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
               0);
    range->kind = FREE;
    fake_state.mappings--;
    return result;
}

sl_cu_result fake_address_access(sl_cu_ptr at, size_t length, const struct sl_cu_access *access,
                                 size_t count)
{
    TAKES();
    return fake_range_at(MAPPED, (uintptr_t)at) != NULL && count == 1 &&
                   access->flags == SL_CU_ACCESS_READ_WRITE &&
                   mprotect((void *)(uintptr_t)at, length, PROT_READ | PROT_WRITE) == 0
               ? 0
               : SL_CU_INVALID_VALUE;
}
