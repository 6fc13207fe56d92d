/* runtime/base/sl_proc.c - process identities from /proc, and pidfds of exactly one process. */
#include "runtime/base/sl_proc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Fields of /proc/PID/stat are counted after the last ')': the command name may hold anything. */
#define STAT_FIELD_STATE      0  /* field 3 of proc(5) */
#define STAT_FIELD_THREADS    17 /* field 20 */
#define STAT_FIELD_START_TIME 19 /* field 22 */

static sl_err proc_parse_stat(char *stat, struct sl_proc_id *out)
{
    char *at = strrchr(stat, ')');
    if (at == NULL) {
        return SL_ERR_NOT_FOUND;
    }
    char *rest = NULL;
    int field = 0;
    bool ended = false;
    for (char *word = strtok_r(at + 1, " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest)) {
        if (field == STAT_FIELD_STATE) {
            ended = word[0] == 'Z' || word[0] == 'X'; /* dead but not yet reaped */
        }
        if (field == STAT_FIELD_THREADS && ended && strtoull(word, NULL, 10) <= 1) {
            return SL_ERR_NOT_FOUND; /* with more threads only the first has ended: it lives */
        }
        if (field == STAT_FIELD_START_TIME) {
            out->start_time = strtoull(word, NULL, 10);
            return SL_OK;
        }
        field++;
    }
    return SL_ERR_NOT_FOUND;
}

ssize_t sl_proc_file_read(const char *path, char *out, size_t room)
{
    SL_AUTO(close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t got = fd < 0 ? -1 : read(fd, out, room - 1);
    out[SL_MAX(got, 0)] = '\0';
    return got;
}

static ssize_t stat_read(uint32_t pid, char *stat, size_t room)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    return sl_proc_file_read(path, stat, room);
}

bool sl_proc_stopped(uint32_t pid)
{
    char stat[256];
    (void)stat_read(pid, stat, sizeof(stat));
    const char *end = strrchr(stat, ')');
    return end != NULL && (strncmp(end, ") T", 3) == 0 || strncmp(end, ") t", 3) == 0);
}

sl_err sl_proc_id_of(uint32_t pid, struct sl_proc_id *out, struct sl_error *why)
{
    char stat[1024];
    ssize_t got = stat_read(pid, stat, sizeof(stat));
    if (got <= 0) {
        return got == 0 || errno == ENOENT || errno == ESRCH
                   ? sl_fail(why, SL_ERR_NOT_FOUND, "no process %u", pid)
                   : sl_fail_os(why, errno, "read '/proc/%u/stat'", pid);
    }
    struct sl_proc_id id = {.pid = pid};
    if (proc_parse_stat(stat, &id) != SL_OK) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "process %u has ended", pid);
    }
    *out = id;
    return SL_OK;
}

sl_err sl_proc_id_read(const char *path, struct sl_proc_id *out, struct sl_error *why)
{
    char text[64];
    struct sl_proc_id id = {0};
    int end = -1;
    if (sl_proc_file_read(path, text, sizeof(text)) < 0) {
        return errno == ENOENT ? sl_fail(why, SL_ERR_NOT_FOUND, "no file '%s'", path)
                               : sl_fail_os(why, errno, "read '%s'", path);
    }
    /* NOLINTNEXTLINE(cert-err34-c): an overflowing number names no living process */
    if (sscanf(text, "%" SCNu32 " %" SCNu64 "%n", &id.pid, &id.start_time, &end) != 2 || end < 0 ||
        strcmp(text + end, "\n") != 0 || id.pid == 0 || id.pid > INT32_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "'%s' names no process", path);
    }
    *out = id;
    return SL_OK;
}

bool sl_proc_alive(struct sl_proc_id id)
{
    struct sl_proc_id now = {0};
    sl_err err = id.pid != 0 ? sl_proc_id_of(id.pid, &now, NULL) : SL_ERR_NOT_FOUND;
    return err == SL_OK ? sl_proc_id_equal(now, id) : err != SL_ERR_NOT_FOUND;
}

uint64_t sl_proc_pid_namespace(void)
{
    struct stat at;
    return stat("/proc/self/ns/pid", &at) == 0 ? (uint64_t)at.st_ino : 0;
}

sl_err sl_proc_id_self(struct sl_proc_id *out, struct sl_error *why)
{
    return sl_proc_id_of((uint32_t)getpid(), out, why);
}

struct sl_proc_id sl_proc_id_client(void)
{
    static _Atomic uint64_t known; /* random bits of this process; the low half is its pid */
    uint64_t random[2] = {0};
    struct sl_proc_id id = {.pid = (uint32_t)getpid()};
    /* getrandom returns this few bytes in one piece once the kernel's pool is ready. */
    ssize_t got = getrandom(random, sizeof(random), 0);
    SL_ASSERT(got == (ssize_t)sizeof(random));
    uint64_t mark = atomic_load(&known), fresh = (random[0] & ~UINT64_C(0xffffffff)) | id.pid;
    if ((uint32_t)mark != id.pid && atomic_compare_exchange_strong(&known, &mark, fresh)) {
        mark = fresh;
    } /* otherwise it is set, perhaps by another thread */
    id.start_time = SL_PROC_CLIENT_BIT | mark >> 32 << SL_PROC_RANDOM_BITS |
                    (random[1] & ((UINT64_C(1) << SL_PROC_RANDOM_BITS) - 1));
    return id;
}

sl_err sl_proc_open(struct sl_proc_id id, int *fd, struct sl_error *why)
{
    SL_AUTO(close) int opened = (int)syscall(SYS_pidfd_open, (pid_t)id.pid, 0);
    if (opened < 0) {
        return errno == ESRCH || errno == EINVAL
                   ? sl_fail(why, SL_ERR_NOT_FOUND, "no process %u", id.pid)
                   : sl_fail_os(why, errno, "pidfd of %u", id.pid);
    }
    struct sl_proc_id now;
    sl_err err = sl_proc_id_of(id.pid, &now, why);
    if (err != SL_OK) {
        return err;
    }
    if (!sl_proc_id_equal(now, id)) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "process %u is a different one now", id.pid);
    }
    *fd = opened;
    opened = -1; /* NOLINT(clang-analyzer-deadcode.DeadStores): read by its clean-up */
    return SL_OK;
}

sl_err sl_boot_id(char out[SL_BOOT_ID_BYTES], struct sl_error *why)
{
    static const char path[] = "/proc/sys/kernel/random/boot_id";
    memset(out, 0, SL_BOOT_ID_BYTES);
    ssize_t got = sl_proc_file_read(path, out, SL_BOOT_ID_BYTES);
    if (got < 0) {
        return sl_fail_os(why, errno, "read '%s'", path);
    }
    if (got < 36) { /* length of a UUID */
        return sl_fail(why, SL_ERR_OS, "'%s' holds %zd bytes instead of a uuid", path, got);
    }
    out[36] = '\0';
    return SL_OK;
}

void sl_proc_descriptors_raise(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}
