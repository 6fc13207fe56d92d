/* tests/node/held_reads.c - preloaded into a tierer: a disk whose log files are read as slowly
 * as the test wants.
 *
 * The file HELD_READS has a number: that many blocking reads of log files proceed, the others
 * wait until the number is higher or the file is removed. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static _Atomic long read_count;

static int is_segment(int fd)
{
    char link[64], name[4096];
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, sizeof(name) - 1);
    name[length > 0 ? length : 0] = '\0';
    return strstr(name, "/segment.") != NULL;
}

/* -1: all of them. */
static long allowed(void)
{
    long count = -1;
    FILE *file = fopen(getenv("HELD_READS"), "re");
    if (file != NULL) {
        (void)!fscanf(file, "%ld", &count);
        (void)fclose(file);
    }
    return count;
}

ssize_t pread64(int fd, void *memory, size_t length, off_t offset);
ssize_t pread64(int fd, void *memory, size_t length, off_t offset)
{
    static ssize_t (*real)(int, void *, size_t, off_t);
    const struct timespec pause = {.tv_nsec = 5000000};
    if (real == NULL) {
        *(void **)&real = dlsym(RTLD_NEXT, "pread64");
    }
    if (is_segment(fd)) {
        long number = atomic_fetch_add(&read_count, 1);
        for (long count = allowed(); count >= 0 && number >= count; count = allowed()) {
            (void)nanosleep(&pause, NULL);
        }
    }
    return real(fd, memory, length, offset);
}

ssize_t pread(int fd, void *memory, size_t length, off_t offset);
ssize_t pread(int fd, void *memory, size_t length, off_t offset)
{
    return pread64(fd, memory, length, offset);
}
