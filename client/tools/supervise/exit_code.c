/* client/tools/supervise/exit_code.c - reads exit codes by the ioctl PIDFD_GET_INFO, which the
 * headers of Debian 12 do not have. */
#include "client/tools/supervise/exit_code.h"

#include <assert.h>
#include <poll.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#define COLLECTED_MS 20

/* struct pidfd_info of linux/pidfd.h, as of 6.15. The call names its size, so that it may grow. */
struct info {
    uint64_t mask, cgroup_id;
    uint32_t pid, tgid, ppid, uids_and_gids[8];
    int32_t exit_code;
};
static_assert(sizeof(struct info) == 64, "layout of the kernel");
#define INFO_GET  _IOWR(0xFF, 11, struct info)
#define INFO_EXIT (UINT64_C(1) << 3)

bool sup_exit_code(int pidfd, int *code)
{
    struct info info = {.mask = INFO_EXIT};
    struct pollfd collected = {.fd = pidfd}; /* only for POLLHUP */
    if (ioctl(pidfd, INFO_GET, &info) != 0) {
        return false;
    }
    if ((info.mask & INFO_EXIT) == 0) { /* it has ended, but its parent has not collected it yet */
        (void)poll(&collected, 1, COLLECTED_MS);
        info = (struct info){.mask = INFO_EXIT};
        if (ioctl(pidfd, INFO_GET, &info) != 0 || (info.mask & INFO_EXIT) == 0) {
            return false;
        }
    }
    *code =
        WIFSIGNALED(info.exit_code) ? 128 + WTERMSIG(info.exit_code) : WEXITSTATUS(info.exit_code);
    return true;
}
