/* client/mooncake/store/numa.c - helpers of a process: NUMA nodes, and memory for torch. */
#include "client/mooncake/store/sl_store.h"
#include "runtime/sl_parse.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NUMA_NODES_MAX 1024
#define WORD_BITS      (8 * sizeof(unsigned long))
#define HUGE_BYTES     (2 * SL_MIB)

/* "0-3,8-11" as the kernel writes it. False: no list. */
static bool cpus_parse(const char *text, cpu_set_t *cpus)
{
    CPU_ZERO(cpus);
    const char *at = text;
    uint64_t first = 0;
    while (sl_parse_digits(at, &first, &at) == SL_OK) {
        uint64_t last = first;
        if (*at == '-') {
            (void)sl_parse_digits(at + 1, &last, &at);
        }
        for (uint64_t cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++) {
            CPU_SET(cpu, cpus);
        }
        at += *at == ',';
    }
    return CPU_COUNT(cpus) > 0;
}

sl_err sl_store_numa_bind(int node, struct sl_error *why)
{
    char path[128], line[4096] = "";
    cpu_set_t cpus;
    if (node < 0 || node >= NUMA_NODES_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "no NUMA node %d", node);
    }
    (void)snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
    FILE *file = fopen(path, "re");
    bool read = file != NULL && fgets(line, sizeof line, file) != NULL;
    if (file != NULL) {
        (void)fclose(file);
    }
    if (!read || !cpus_parse(line, &cpus)) {
        return sl_fail(why, SL_ERR_INVALID, "no NUMA node %d with CPUs", node);
    }
    if (sched_setaffinity(0, sizeof cpus, &cpus) != 0) {
        return sl_fail_os(why, errno, "CPUs of NUMA node %d", node);
    }
    unsigned long nodes[NUMA_NODES_MAX / WORD_BITS] = {0};
    nodes[(size_t)node / WORD_BITS] = 1ul << ((size_t)node % WORD_BITS);
    if (syscall(SYS_set_mempolicy, MPOL_BIND, nodes, (unsigned long)NUMA_NODES_MAX) != 0) {
        return sl_fail_os(why, errno, "memory of NUMA node %d", node);
    }
    return SL_OK;
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
