/* client/lib/memory_alloc.c - memory for values that are put and got repeatedly: shared, populated,
 * with huge pages where the system has them. */
#include "client/lib/internal.h"
#include "runtime/base/sl_limits.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#define HUGE_BYTES (2 * SL_MIB)

/* Reserves addresses aligned to huge pages, so that the first and the last pages are huge as well.
 * NULL: none. */
static unsigned char *addresses(uint64_t length_bytes, uint64_t align_bytes)
{
    uint64_t slack = align_bytes - SL_PAGE_BYTES;
    unsigned char *at = mmap(NULL, length_bytes + slack, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        return NULL;
    }
    uint64_t head = (uint64_t)(-(uintptr_t)at & (align_bytes - 1));
    if (head > 0) {
        (void)munmap(at, head);
    }
    if (slack > head) {
        (void)munmap(at + head + length_bytes, slack - head);
    }
    return at + head;
}

/* If the system lacks memory it fails here, not with a signal at the first touch. */
static sl_err populate(int fd, unsigned char *at, uint64_t length_bytes, struct sl_error *why)
{
    if (madvise(at, length_bytes, MADV_POPULATE_WRITE) == 0) {
        return SL_OK;
    }
    int os_code = errno == EINVAL ? posix_fallocate(fd, 0, (off_t)length_bytes) : errno;
    return os_code == 0 ? SL_OK
                        : sl_fail(why, SL_ERR_NO_MEMORY,
                                  "memory: %" PRIu64 " bytes of shared memory", length_bytes);
}

static sl_err map_shared(int fd, unsigned char *at, uint64_t length_bytes, struct sl_error *why)
{
    if (sl_file_resize(fd, length_bytes) != 0) {
        return sl_fail_os(why, errno, "memory: %" PRIu64 " bytes", length_bytes);
    }
    /* A process that receives the descriptor cannot truncate the memory for others. */
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return sl_fail_os(why, errno, "memory: seal");
    }
    if (mmap(at, length_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
        MAP_FAILED) {
        return sl_fail_os(why, errno, "memory: map %" PRIu64 " bytes", length_bytes);
    }
    (void)madvise(at, length_bytes, MADV_HUGEPAGE); /* where the system allows it */
    return populate(fd, at, length_bytes, why);
}

sl_err sl_memory_alloc(uint64_t length_bytes, void **out, struct sl_error *why)
{
    if (length_bytes == 0 || length_bytes > (uint64_t)INT64_MAX - HUGE_BYTES) {
        return sl_fail(why, SL_ERR_INVALID, "memory: %" PRIu64 " bytes", length_bytes);
    }
    uint64_t most_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * SL_PAGE_BYTES;
    if (length_bytes > most_bytes) { /* allocating it would make the system kill a process */
        return sl_fail(why, SL_ERR_NO_MEMORY, "memory: %" PRIu64 " bytes, but there are %" PRIu64,
                       length_bytes, most_bytes);
    }
    uint64_t align_bytes = length_bytes >= HUGE_BYTES ? HUGE_BYTES : SL_PAGE_BYTES;
    uint64_t mapped_bytes = sl_align_up(length_bytes, align_bytes);
    SL_AUTO(close) int fd = memfd_create("sluice", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return sl_fail_os(why, errno, "memory: memfd");
    }
    unsigned char *at = addresses(mapped_bytes, align_bytes);
    if (at == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "memory: %" PRIu64 " bytes of addresses",
                       mapped_bytes);
    }
    sl_err err = map_shared(fd, at, mapped_bytes, why);
    if (err == SL_OK) {
        err = sl_memory_ours_add(at, mapped_bytes, fd);
        if (err != SL_OK) {
            (void)sl_fail(why, err, "memory: a table of allocations");
        }
    }
    if (err != SL_OK) {
        (void)munmap(at, mapped_bytes);
        return err;
    }
    *out = at;
    return SL_OK;
}

sl_err sl_memory_free(void *at, struct sl_error *why)
{
    uint64_t length_bytes = 0;
    if (!sl_memory_ours_take(at, &length_bytes)) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "memory: %p was not allocated here", at);
    }
    (void)munmap(at, length_bytes);
    return SL_OK;
}
