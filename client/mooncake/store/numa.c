/* client/mooncake/store/numa.c - helpers of a process: NUMA nodes, and memory for torch. */
#include "client/mooncake/store/sl_store.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NUMA_NODES_MAX 1024
#define WORD_BITS      (8 * sizeof(unsigned long))
#define HUGE_BYTES     (2 * SL_MIB)

bool sl_store_memory_bind(uint64_t node)
{
    unsigned long nodes[NUMA_NODES_MAX / WORD_BITS] = {0};
    if (node >= NUMA_NODES_MAX) {
        errno = EINVAL;
        return false;
    }
    nodes[node / WORD_BITS] = 1ul << (node % WORD_BITS);
    return syscall(SYS_set_mempolicy, MPOL_BIND, nodes, (unsigned long)NUMA_NODES_MAX) == 0;
}

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
    if (at == MAP_FAILED) { /* none are set aside: those that the kernel makes */
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
