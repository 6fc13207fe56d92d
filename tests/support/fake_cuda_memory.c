/* tests/support/fake_cuda_memory.c - the fake driver's memory: on its device, pinned, and shared
 * with other processes. */
#include "tests/support/fake_cuda_internal.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
    fake_range_of((uintptr_t)*at, 1, false)->pooled = fake_state.pooled;
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

/* Called for refused registrations as well. */
static void register_note(uintptr_t at)
{
    static uintptr_t asked[64];
    LOCKED();
    for (uint64_t i = 0; i < fake_state.register_asked; i++) {
        if (asked[i] == at) {
            fake_state.register_again++;
            return;
        }
    }
    if (fake_state.register_asked < SL_COUNT(asked)) {
        asked[fake_state.register_asked++] = at;
    }
}

sl_cu_result fake_host_register(void *at, size_t length, unsigned flags)
{
    (void)flags;
    register_note((uintptr_t)at);
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
    if (fake_state.undone > 0) { /* running work may use it */
        fake_hang();
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
    if (range == NULL || range->kind == MAPPED || range->pooled) {
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
        if (memory == 0) {
            if (fd >= 0) {
                (void)close(fd);
            }
            return 205; /* map failed */
        }
        fake_range_add(DEVICE_IPC, memory, name.length)->fd = fd;
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
        (void)close(range->fd);
        range->kind = FREE;
    }
    fake_state.ipc_opens--;
    return result;
}

/* The dmabuf is a memfd that begins where its memory does. Memory of several handles has none. */
sl_cu_result fake_range_export(void *shared, sl_cu_ptr at, size_t length, int kind,
                               unsigned long long flags)
{
    TAKES();
    const struct range *range = fake_range_of((uintptr_t)at, length, false);
    int from = range == NULL             ? -1
               : range->kind == MAPPED   ? fake_physical_fd(range->memory)
               : range->kind == RESERVED ? -1
                                         : range->fd;
    if (kind != SL_CU_RANGE_DMABUF || flags != 0 || at % 4096 != 0 || length % 4096 != 0 ||
        length == 0 || from < 0 || range->at != (uintptr_t)at || range->length < length) {
        return SL_CU_INVALID_VALUE;
    }
    int fd = fcntl(from, F_DUPFD_CLOEXEC, 0);
    memcpy(shared, &fd, sizeof(fd));
    return fd < 0 ? SL_CU_OUT_OF_MEMORY : 0;
}
