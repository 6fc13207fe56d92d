/* tests/support/fake_cuda_vmm.c - the fake driver's physical memory and address ranges, as strict
 * as cuda.h: whole granules, a handle mapped from its start, unmapped as it was mapped, a
 * descriptor only of memory made for export, and memory that exists while it has a handle or a
 * mapping. */
#include "tests/support/fake_cuda_internal.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define UNIT          (2u * 1024 * 1024) /* granularity */
#define PHYSICALS_MAX 4096u

struct physical {
    int fd; /* a memfd, which stands for the memory itself */
    size_t length;
    unsigned handles, mappings; /* it is freed with the last of both */
    unsigned types;             /* SL_CU_HANDLE_... it may be exported as */
    sl_cu_handle name;          /* 0: free */
};
static struct physical physicals[PHYSICALS_MAX];
static sl_cu_handle last_name = 1000;

unsigned fake_handle_types(const struct physical *memory)
{
    return memory->types;
}

int fake_physical_fd(const struct physical *memory)
{
    return memory->fd;
}

static struct physical *physical_add(int fd, size_t length, unsigned types)
{
    for (size_t i = 0; i < PHYSICALS_MAX; i++) {
        if (physicals[i].name == 0) {
            physicals[i] = (struct physical){
                .fd = fd, .length = length, .handles = 1, .types = types, .name = ++last_name};
            fake_state.physicals++;
            return &physicals[i];
        }
    }
    return NULL;
}

static struct physical *physical_of(sl_cu_handle handle)
{
    for (size_t i = 0; handle != 0 && i < PHYSICALS_MAX; i++) {
        if (physicals[i].name == handle && physicals[i].handles > 0) {
            return &physicals[i];
        }
    }
    return NULL;
}

static void physical_settle(struct physical *physical)
{
    if (physical->handles == 0 && physical->mappings == 0) {
        (void)close(physical->fd);
        *physical = (struct physical){0};
    }
}

static bool memory_fits(const struct sl_cu_memory *memory)
{
    return memory->type == SL_CU_MEMORY_PINNED && memory->location.type == SL_CU_LOCATION_DEVICE &&
           memory->location.id == 0;
}

sl_cu_result fake_granularity(size_t *bytes, const struct sl_cu_memory *memory, int option)
{
    TAKES();
    *bytes = UNIT;
    return memory_fits(memory) && option == SL_CU_GRANULARITY_MINIMUM ? 0 : SL_CU_INVALID_VALUE;
}

sl_cu_result fake_physical_get(sl_cu_handle *handle, size_t length,
                               const struct sl_cu_memory *memory, unsigned long long flags)
{
    TAKES();
    int fd = memfd_create("fake-gpu", MFD_CLOEXEC);
    if (flags != 0 || length == 0 || length % UNIT != 0 || !memory_fits(memory) || fd < 0 ||
        ftruncate(fd, (off_t)length) != 0) {
        return SL_CU_INVALID_VALUE;
    }
    const struct physical *made = physical_add(fd, length, (unsigned)memory->handle_types);
    if (made == NULL) {
        return SL_CU_OUT_OF_MEMORY;
    }
    *handle = made->name;
    return 0;
}

sl_cu_result fake_physical_export(void *shared, sl_cu_handle handle, int kind,
                                  unsigned long long flags)
{
    TAKES();
    const struct physical *physical = physical_of(handle);
    if (physical == NULL || flags != 0 || kind != SL_CU_HANDLE_FD ||
        (physical->types & SL_CU_HANDLE_FD) == 0) {
        return SL_CU_INVALID_VALUE;
    }
    int fd = dup(physical->fd);
    memcpy(shared, &fd, sizeof(fd));
    return fd < 0 ? SL_CU_INVALID_VALUE : 0;
}

sl_cu_result fake_physical_import(sl_cu_handle *handle, void *shared, int kind)
{
    struct stat status;
    TAKES();
    int fd = kind == SL_CU_HANDLE_FD ? dup((int)(intptr_t)shared) : -1;
    if (fd < 0 || fstat(fd, &status) != 0) {
        return SL_CU_INVALID_VALUE;
    }
    const struct physical *made = physical_add(fd, (size_t)status.st_size, SL_CU_HANDLE_FD);
    if (made == NULL) {
        return SL_CU_OUT_OF_MEMORY;
    }
    *handle = made->name;
    return 0;
}

sl_cu_result fake_physical_retain(sl_cu_handle *handle, void *at)
{
    TAKES();
    const struct range *range = fake_range_in(MAPPED, (uintptr_t)at, 1);
    if (range == NULL) {
        return SL_CU_INVALID_VALUE;
    }
    range->memory->handles++;
    fake_state.physicals++;
    *handle = range->memory->name;
    return 0;
}

sl_cu_result fake_physical_free(sl_cu_handle handle)
{
    GIVES();
    struct physical *physical = physical_of(handle);
    if (physical == NULL) {
        return SL_CU_INVALID_VALUE;
    }
    physical->handles--;
    fake_state.physicals--;
    physical_settle(physical);
    return result;
}

sl_cu_result fake_address_get(sl_cu_ptr *at, size_t length, size_t alignment, sl_cu_ptr wanted,
                              unsigned long long flags)
{
    TAKES();
    if (length == 0 || length % UNIT != 0 || alignment != 0 || wanted != 0 || flags != 0) {
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

static bool any_mapped(uintptr_t at, size_t length)
{
    for (size_t offset = 0; offset < length; offset += UNIT) {
        if (fake_range_in(MAPPED, at + offset, 1) != NULL) {
            return true;
        }
    }
    return false;
}

sl_cu_result fake_address_free(sl_cu_ptr at, size_t length)
{
    GIVES();
    struct range *range = fake_range_at(RESERVED, (uintptr_t)at);
    if (range == NULL || range->length != length || any_mapped((uintptr_t)at, length)) {
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
    TAKES();
    const struct range *reserved = fake_range_in(RESERVED, (uintptr_t)at, length);
    struct physical *physical = physical_of(handle);
    if (reserved == NULL || physical == NULL || offset != 0 || flags != 0 || length == 0 ||
        length % UNIT != 0 || ((uintptr_t)at - reserved->at) % UNIT != 0 ||
        length > physical->length || any_mapped((uintptr_t)at, length) ||
        mmap((void *)(uintptr_t)at, length, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->fd, 0) ==
            MAP_FAILED) {
        return SL_CU_INVALID_VALUE;
    }
    fake_range_add(MAPPED, (uintptr_t)at, length)->memory = physical;
    physical->mappings++;
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
    range->memory->mappings--;
    physical_settle(range->memory);
    range->kind = FREE;
    fake_state.mappings--;
    return result;
}

sl_cu_result fake_address_access(sl_cu_ptr at, size_t length, const struct sl_cu_access *access,
                                 size_t count)
{
    TAKES();
    for (size_t offset = 0; offset < length; offset += UNIT) {
        if (fake_range_in(MAPPED, (uintptr_t)at + offset, UNIT) == NULL) {
            return SL_CU_INVALID_VALUE;
        }
    }
    return count == 1 && length % UNIT == 0 && access->flags == SL_CU_ACCESS_READ_WRITE &&
                   access->location.id == 0 &&
                   mprotect((void *)(uintptr_t)at, length, PROT_READ | PROT_WRITE) == 0
               ? 0
               : SL_CU_INVALID_VALUE;
}
