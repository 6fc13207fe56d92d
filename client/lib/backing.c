/* client/lib/backing.c - which shared memory is behind addresses of this process.
 *
 * What sl_memory_alloc gave has its descriptor in a table. Of the rest the kernel's list of mappings
 * says which file it is. A file is opened by the link of its mapping (which may be forbidden), by its
 * path, or taken from among the process's own descriptors: a memfd has no path. */
#include "client/lib/lend.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define LINE_BYTES (4096 + 256)

struct mapped { /* a line of /proc/self/maps */
    uint64_t from, end, offset_bytes, inode;
    uint32_t major, minor;
    bool shared; /* and may be read and written to */
    char path[4096];
};

/* from-end perms offset major:minor inode path */
static bool line_read(const char *line, struct mapped *out)
{
    char *rest = NULL;
    out->from = strtoull(line, &rest, 16);
    out->end = *rest == '-' ? strtoull(rest + 1, &rest, 16) : 0;
    if (out->end <= out->from || strnlen(rest, 6) < 6) {
        return false;
    }
    out->shared = rest[1] == 'r' && rest[2] == 'w' && rest[4] == 's';
    out->offset_bytes = strtoull(rest + 5, &rest, 16);
    out->major = (uint32_t)strtoul(rest, &rest, 16);
    out->minor = *rest == ':' ? (uint32_t)strtoul(rest + 1, &rest, 16) : 0;
    out->inode = strtoull(rest, &rest, 10);
    rest += strspn(rest, " ");
    size_t length = strcspn(rest, "\n");
    length = SL_MIN(length, sizeof out->path - 1);
    memcpy(out->path, rest, length);
    out->path[length] = '\0';
    return true;
}

static bool is_next_of(const struct mapped *before, const struct mapped *next)
{
    return next->from == before->end && next->shared && next->inode == before->inode &&
           next->major == before->major && next->minor == before->minor &&
           next->offset_bytes == before->offset_bytes + (before->end - before->from);
}

/* The mapping that `from` lies in, and those behind it that go on with the same file. */
static sl_err mapping_find(uint64_t from, uint64_t end, struct mapped *out, struct sl_error *why)
{
    char line[LINE_BYTES];
    struct mapped next, last = {0};
    FILE *maps = fopen("/proc/self/maps", "re");
    *out = (struct mapped){0};
    if (maps == NULL) {
        return sl_fail_os(why, errno, "open /proc/self/maps");
    }
    while (last.end < end && fgets(line, sizeof line, maps) != NULL) {
        if (!line_read(line, &next) || next.end <= from) {
            continue;
        }
        if (out->end == 0 ? next.from > from : !is_next_of(&last, &next)) {
            break;
        }
        if (out->end == 0) {
            *out = next;
        }
        last = next;
    }
    (void)fclose(maps);
    return out->end != 0 && last.end >= end && out->shared && out->inode != 0
               ? SL_OK
               : sl_fail(why, SL_ERR_UNSUPPORTED,
                         "memory: %" PRIu64 " bytes at 0x%" PRIx64 " are not one shared memory",
                         end - from, from);
}

static bool is_file_of(int fd, const struct mapped *mapped)
{
    struct stat about;
    return fd >= 0 && fstat(fd, &about) == 0 && (uint64_t)about.st_ino == mapped->inode &&
           about.st_dev == makedev(mapped->major, mapped->minor);
}

/* Takes fd. -1: it is another file. */
static int fd_checked(int fd, const struct mapped *mapped)
{
    if (fd >= 0 && !is_file_of(fd, mapped)) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* -1: the process has none that may be written to. */
static int fd_among_ours(const struct mapped *mapped)
{
    int found = -1;
    DIR *fds = opendir("/proc/self/fd");
    const struct dirent *entry = NULL;
    while (fds != NULL && found < 0 && (entry = readdir(fds)) != NULL) {
        int fd = entry->d_name[0] == '.' ? -1 : (int)strtol(entry->d_name, NULL, 10);
        int flags = fd < 0 ? -1 : fcntl(fd, F_GETFL);
        if (flags >= 0 && (flags & O_ACCMODE) == O_RDWR && (flags & O_PATH) == 0 &&
            is_file_of(fd, mapped)) {
            found = fd_checked(fcntl(fd, F_DUPFD_CLOEXEC, 0), mapped);
        }
    }
    if (fds != NULL) {
        (void)closedir(fds);
    }
    return found;
}

static int fd_of(const struct mapped *mapped)
{
    char link[80];
    const int flags = O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    (void)snprintf(link, sizeof link, "/proc/self/map_files/%" PRIx64 "-%" PRIx64, mapped->from,
                   mapped->end);
    int fd = fd_checked(open(link, flags), mapped);
    if (fd < 0 && strncmp(mapped->path, "/dev/shm/", 9) == 0) {
        fd = fd_checked(open(mapped->path, flags | O_NOFOLLOW), mapped);
    }
    return fd >= 0 ? fd : fd_among_ours(mapped);
}

/* What a NIC can pin, and what is written to no disk. */
static bool is_memory(int fd)
{
    struct statfs about;
    return fstatfs(fd, &about) == 0 &&
           (about.f_type == TMPFS_MAGIC || about.f_type == HUGETLBFS_MAGIC);
}

sl_err sl_memory_backing(const void *at, uint64_t length_bytes, int *fd, uint64_t *offset_bytes,
                         struct sl_error *why)
{
    struct mapped mapped;
    uint64_t from = (uint64_t)(uintptr_t)at;
    *fd = sl_memory_ours_fd(at, length_bytes, offset_bytes);
    if (*fd >= 0) {
        return SL_OK;
    }
    sl_err err = mapping_find(from, from + length_bytes, &mapped, why);
    if (err != SL_OK) {
        return err;
    }
    *fd = fd_of(&mapped);
    if (*fd < 0 || !is_memory(*fd)) {
        sl_auto_close(fd);
        *fd = -1;
        return sl_fail(why, SL_ERR_UNSUPPORTED,
                       "memory: %" PRIu64 " bytes at %p are of a file that is no shared memory, or "
                       "of which this process has no descriptor",
                       length_bytes, at);
    }
    *offset_bytes = mapped.offset_bytes + (from - mapped.from);
    return SL_OK;
}
