/* actors/registrar/lock.c - the lock that the registrar takes before it touches anything else.
 *
 * The lock keeps two processes from acting as registrar. It is taken once, at init, so waiting for
 * it may block. The kernel releases it with the process. */
#include "actors/registrar/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define LOCK_TRIES   200u
#define LOCK_WAIT_NS 10000000L /* 10 ms, 2 s in all: a killed holder is gone long before */

sl_err reg_lock_take(const char *runtime_dir, int *fd, struct sl_error *why)
{
    char path[1100];
    int written = snprintf(path, sizeof(path), "%s/registrar.lock", runtime_dir);
    if (written < 0 || (size_t)written >= sizeof(path)) {
        return sl_fail(why, SL_ERR_INVALID, "runtime directory of %d bytes is too long", written);
    }
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) {
        return sl_fail_os(why, errno, "open '%s'", path);
    }
    int os_code = EWOULDBLOCK;
    for (uint32_t i = 0; i < LOCK_TRIES && os_code == EWOULDBLOCK; i++) {
        os_code = flock(file, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
        if (os_code == EINTR) {
            os_code = EWOULDBLOCK;
        }
        if (os_code == EWOULDBLOCK) {
            nanosleep(&(struct timespec){.tv_nsec = LOCK_WAIT_NS}, NULL);
        }
    }
    if (os_code == 0) {
        *fd = file;
        return SL_OK;
    }
    close(file);
    if (os_code == EWOULDBLOCK) {
        return sl_fail(why, SL_ERR_BUSY, "another registrar holds '%s'", path);
    }
    return sl_fail_os(why, os_code, "lock '%s'", path);
}
