/* runtime/base/sl_priority.c - sets nice levels of a process and of its session; reads the kernel's
 * count of waits for a core. */
#include "runtime/base/sl_priority.h"

#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_proc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define AUTOGROUP "/proc/self/autogroup"
/* Without CAP_SYS_ADMIN the kernel accepts one change of a session's level per 100 ms from all
 * processes together (EAGAIN). The tries suffice for ten actors that start at once, with pauses
 * that differ among them. */
#define AUTOGROUP_TRIES    48u
#define AUTOGROUP_PAUSE_NS (17 * SL_NS_PER_MS)
#define AUTOGROUP_STEP_N   13u

static sl_err session_raise(uint32_t levels, struct sl_error *why)
{
    /* Fails for the leader of a process group: a shell's job, or the leader of a session. */
    (void)setsid();
    if (getsid(0) != getpid()) {
        return SL_OK; /* other processes share the session */
    }
    SL_AUTO(close) int fd = open(AUTOGROUP, O_WRONLY | O_CLOEXEC);
    if (fd < 0) { /* a kernel without autogroups */
        return errno == ENOENT ? SL_OK : sl_fail_os(why, errno, "open '%s'", AUTOGROUP);
    }
    char text[16];
    int length = snprintf(text, sizeof(text), "-%" PRIu32 "\n", levels);
    for (uint32_t i = 0; write(fd, text, (size_t)length) < 0; i++) {
        if (errno == EINVAL) {
            return SL_OK; /* this process is in no autogroup */
        }
        if (errno != EAGAIN || i == AUTOGROUP_TRIES) {
            return sl_fail_os(why, errno, "write '%s'", AUTOGROUP);
        }
        uint64_t step_ns = (uint64_t)getpid() % AUTOGROUP_STEP_N * SL_NS_PER_MS;
        const struct timespec pause = {.tv_nsec = (long)(AUTOGROUP_PAUSE_NS + step_ns)};
        (void)nanosleep(&pause, NULL);
    }
    return SL_OK;
}

sl_err sl_priority_raise(uint32_t levels, struct sl_error *why)
{
    if (levels == 0) {
        return SL_OK;
    }
    errno = 0; /* -1 is also a valid level */
    int now = getpriority(PRIO_PROCESS, 0);
    if (now == -1 && errno != 0) {
        return sl_fail_os(why, errno, "getpriority");
    }
    int wanted = SL_MAX(now - (int)levels, -20);
    if (setpriority(PRIO_PROCESS, 0, wanted) != 0) {
        return sl_fail_os(why, errno, "nice level %d", wanted);
    }
    return session_raise(levels, why);
}

sl_err sl_core_wait_ns(uint32_t pid, uint64_t *wait_ns, struct sl_error *why)
{
    char path[64];
    char text[96];
    (void)snprintf(path, sizeof(path), "/proc/%" PRIu32 "/schedstat", pid);
    if (sl_proc_file_read(path, text, sizeof(text)) < 0) {
        bool gone = access("/proc/self/schedstat", F_OK) == 0;
        return sl_fail(why, gone ? SL_ERR_NOT_FOUND : SL_ERR_UNSUPPORTED,
                       gone ? "no process %" PRIu32
                            : "the kernel has no schedstat (process %" PRIu32 ")",
                       pid);
    }
    uint64_t ran_ns = 0;
    if (sscanf(text, "%" SCNu64 " %" SCNu64, &ran_ns, wait_ns) != 2) {
        return sl_fail(why, SL_ERR_UNSUPPORTED, "'%s' reads '%s'", path, text);
    }
    return SL_OK;
}
