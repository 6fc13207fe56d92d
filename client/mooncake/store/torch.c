/* client/mooncake/store/torch.c - allocator for torch. */
#include "client/mooncake/store/sl_store.h"

#include <sys/mman.h>

#define HUGE_BYTES (2 * SL_MIB)

static size_t huge_bytes(ssize_t length_bytes)
{
    return (size_t)sl_align_up((uint64_t)length_bytes, HUGE_BYTES);
}

void *sl_store_torch_alloc(ssize_t length_bytes, int device, void *stream)
{
    (void)device;
    (void)stream;
    if (length_bytes <= 0 || length_bytes > INT64_MAX - (ssize_t)HUGE_BYTES) {
        return NULL;
    }
    size_t bytes = huge_bytes(length_bytes);
    void *at =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (at == MAP_FAILED) { /* no huge pages are reserved: use transparent ones */
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at != MAP_FAILED) {
            (void)madvise(at, bytes, MADV_HUGEPAGE);
        }
    }
    return at == MAP_FAILED ? NULL : at;
}

void sl_store_torch_free(void *at, ssize_t length_bytes, int device, void *stream)
{
    (void)device;
    (void)stream;
    if (at != NULL && length_bytes > 0) {
        (void)munmap(at, huge_bytes(length_bytes));
    }
}
