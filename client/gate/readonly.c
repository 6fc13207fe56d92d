/* client/gate/readonly.c - see readonly.h. A mount namespace, and one of users for the right to it. */
#include "client/gate/readonly.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROPAGATION_PRIVATE \
    (UINT64_C(1) << 18) /* MS_PRIVATE; sys/mount.h and linux/mount.h do not mix */

/* This user, and no other: a process that has no user may open nothing. */
static int user_keep(uid_t user)
{
    SL_AUTO(close) int fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
    return fd >= 0 && dprintf(fd, "%u %u 1\n", (unsigned)user, (unsigned)user) > 0 ? 0 : errno;
}

sl_err readonly_enter(struct sl_error *why)
{
    struct mount_attr all = {.attr_set = MOUNT_ATTR_RDONLY, .propagation = PROPAGATION_PRIVATE};
    uid_t user = geteuid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) {
        int os_code = user_keep(user);
        if (os_code != 0) {
            return sl_fail_os(why, os_code, "/proc/self/uid_map");
        }
    } else if (unshare(CLONE_NEWNS) != 0) { /* root may where namespaces of users are forbidden */
        return sl_fail_os(why, errno, "unshare");
    }
    return syscall(SYS_mount_setattr, AT_FDCWD, "/", AT_RECURSIVE, &all, sizeof(all)) == 0
               ? SL_OK
               : sl_fail_os(why, errno, "mount_setattr");
}

bool readonly_works(void)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(readonly_enter(NULL) == SL_OK ? 0 : 1);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}
