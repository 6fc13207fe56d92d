/* runtime/disk/sl_disk_slow.c - calls that may block, on a thread of their own.
 *
 * io_uring has operations for most of them, but before Linux 6.9 none that truncates a file. */
#include "runtime/disk/sl_disk_slow.h"

#include "runtime/disk/sl_disk_place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BYTES 256u

/* ---- the calls ---- */

sl_err sl_disk_file_check(const char *name, struct sl_error *why)
{
    if (name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL || strlen(name) > 255 ||
        strcmp(name, SL_DISK_LOCK_NAME) == 0) {
        return sl_fail(why, SL_ERR_INVALID, "'%s' is not a valid name of a disk file", name);
    }
    return SL_OK;
}

sl_err sl_disk_file_allocate(int dir_fd, int fd, const char *name, bool fresh,
                             uint64_t allocate_bytes, struct sl_error *why)
{
    if (allocate_bytes > 0) {
        int result;
        do {
            result = fallocate(fd, 0, 0, (off_t)allocate_bytes);
        } while (result < 0 && errno == EINTR);
        if (result < 0 && errno == EOPNOTSUPP) {
            /* This file system cannot allocate: only the size is set; a write may fail with
             * ENOSPC. */
            result = ftruncate(fd, (off_t)allocate_bytes);
        }
        if (result < 0) {
            return sl_fail_os(why, errno, "allocate %" PRIu64 " bytes for '%s'", allocate_bytes,
                              name);
        }
        if (fdatasync(fd) < 0) {
            return sl_fail_os(why, errno, "sync '%s'", name);
        }
    }
    if (fresh && fsync(dir_fd) < 0) {
        return sl_fail_os(why, errno, "sync the directory of '%s'", name);
    }
    return SL_OK;
}

sl_err sl_disk_file_make(int dir_fd, const char *from, const char *name, uint64_t bytes,
                         struct sl_error *why)
{
    sl_err err = sl_disk_file_check(name, why);
    if (err == SL_OK && from != NULL) {
        err = sl_disk_file_check(from, why);
    }
    if (err != SL_OK) {
        return err;
    }
    bool renamed = from != NULL && renameat(dir_fd, from, dir_fd, name) == 0;
    if (from != NULL && !renamed && errno != ENOENT) {
        return sl_fail_os(why, errno, "rename disk file '%s' to '%s'", from, name);
    }
    int fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return sl_fail_os(why, errno, "open disk file '%s'", name);
    }
    err = ftruncate(fd, (off_t)bytes) == 0 /* it may have been longer */
              ? sl_disk_file_allocate(dir_fd, fd, name, true, bytes, why)
              : sl_fail_os(why, errno, "cut '%s' to %" PRIu64 " bytes", name, bytes);
    close(fd);
    if (err != SL_OK) { /* an incomplete file takes space, and its old name must not reappear */
        (void)unlinkat(dir_fd, name, 0);
        (void)fsync(dir_fd);
    }
    return err;
}

sl_err sl_disk_file_remove(int dir_fd, const char *name, struct sl_error *why)
{
    sl_err err = sl_disk_file_check(name, why);
    if (err != SL_OK) {
        return err;
    }
    int os_code = unlinkat(dir_fd, name, 0) < 0 ? errno : 0;
    if ((os_code == 0 || os_code == ENOENT) &&
        fsync(dir_fd) < 0) { /* an earlier sync may have failed */
        return sl_fail_os(why, errno, "sync the directory of '%s'", name);
    }
    return os_code == 0 ? SL_OK : sl_fail_os(why, os_code, "remove disk file '%s'", name);
}

sl_err sl_disk_files_list(int dir_fd, void (*each)(void *context, const char *name, uint64_t bytes),
                          void *context, struct sl_error *why)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    sl_err err = SL_OK;
    if (directory == NULL) {
        err = sl_fail_os(why, errno, "open the disk directory");
        if (fd >= 0) {
            close(fd);
        }
        return err;
    }
    while (err == SL_OK) {
        struct stat status;
        errno = 0;
        const struct dirent *entry = readdir(directory);
        if (entry == NULL) {
            err = errno != 0 ? sl_fail_os(why, errno, "list the disk directory") : SL_OK;
            break;
        }
        if (fstatat(dir_fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0) {
            err = errno != ENOENT ? sl_fail_os(why, errno, "stat disk file '%s'", entry->d_name)
                                  : SL_OK;
        } else if (S_ISREG(status.st_mode) && strcmp(entry->d_name, SL_DISK_LOCK_NAME) != 0) {
            each(context, entry->d_name, (uint64_t)status.st_blocks * 512u);
        }
    }
    closedir(directory);
    return err;
}

/* ---- the thread ---- */

enum slot_state { SLOT_FREE, SLOT_WAITS, SLOT_RUNS, SLOT_ENDED };
struct slow_slot {
    enum slot_state state;
    struct sl_disk_work work;
    char name[NAME_BYTES];
    int os_code;
};

/* Slots are used in turn: works are done, and their ends reported, in the order they were given. */
struct sl_disk_slow {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    int dir_fd, event_fd; /* both are duplicates */
    bool closing;
    bool running; /* a call is in progress */
    uint64_t given, done, taken;
    struct slow_slot slots[SL_DISK_WORKS_MAX];
};

static void slow_free(struct sl_disk_slow *self)
{
    for (uint32_t i = 0; i < SL_DISK_WORKS_MAX; i++) {
        const struct slow_slot *slot = &self->slots[i];
        if (slot->state == SLOT_WAITS && slot->work.kind == SL_DISK_WORK_CLOSE) {
            close(slot->work.fd);
        }
    }
    if (self->dir_fd >= 0) {
        close(self->dir_fd);
    }
    if (self->event_fd >= 0) {
        close(self->event_fd);
    }
    pthread_cond_destroy(&self->wake);
    pthread_mutex_destroy(&self->lock);
    free(self);
}

static int slot_run(int dir_fd, const struct slow_slot *slot)
{
    struct sl_error why = {0};
    sl_err err = SL_OK;
    switch (slot->work.kind) {
    case SL_DISK_WORK_RESIZE:
        return ftruncate(slot->work.fd, (off_t)slot->work.bytes) < 0 ? errno : 0;
    case SL_DISK_WORK_MAKE:
        err = sl_disk_file_make(dir_fd, NULL, slot->name, slot->work.bytes, &why);
        break;
    case SL_DISK_WORK_REMOVE:
        err = sl_disk_file_remove(dir_fd, slot->name, &why);
        break;
    case SL_DISK_WORK_CLOSE:
        close(slot->work.fd);
        break;
    }
    return err == SL_OK ? 0 : why.os_code != 0 ? why.os_code : EIO;
}

static void *slow_main(void *context)
{
    struct sl_disk_slow *self = context;
    pthread_mutex_lock(&self->lock);
    while (!self->closing) {
        struct slow_slot *slot = &self->slots[self->done % SL_DISK_WORKS_MAX];
        if (slot->state != SLOT_WAITS) {
            pthread_cond_wait(&self->wake, &self->lock);
            continue;
        }
        slot->state = SLOT_RUNS;
        self->running = true;
        pthread_mutex_unlock(&self->lock);
        int os_code = slot_run(self->dir_fd, slot);
        pthread_mutex_lock(&self->lock);
        self->running = false;
        slot->os_code = os_code;
        slot->state = SLOT_ENDED;
        self->done++;
        uint64_t one = 1;
        (void)!write(self->event_fd, &one, sizeof(one));
    }
    bool orphan = self->thread == 0; /* close does not wait for this thread */
    pthread_mutex_unlock(&self->lock);
    if (orphan) {
        slow_free(self);
    }
    return NULL;
}

sl_err sl_disk_slow_open(int dir_fd, int event_fd, struct sl_disk_slow **out, struct sl_error *why)
{
    struct sl_disk_slow *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the helper of a disk");
    }
    (void)pthread_mutex_init(&self->lock, NULL);
    (void)pthread_cond_init(&self->wake, NULL);
    self->dir_fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);
    self->event_fd = fcntl(event_fd, F_DUPFD_CLOEXEC, 0);
    int code = self->dir_fd < 0 || self->event_fd < 0 ? errno : 0;
    if (code == 0) { /* signals are for the process's loop */
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        code = pthread_create(&self->thread, NULL, slow_main, self);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (code != 0) {
        slow_free(self);
        return sl_fail_os(why, code, "start the helper of a disk");
    }
    *out = self;
    return SL_OK;
}

sl_err sl_disk_slow_submit(struct sl_disk_slow *slow, const struct sl_disk_work *work)
{
    sl_err err = work->name != NULL ? sl_disk_file_check(work->name, NULL) : SL_OK;
    if (err != SL_OK) {
        return err;
    }
    pthread_mutex_lock(&slow->lock);
    struct slow_slot *slot = &slow->slots[slow->given % SL_DISK_WORKS_MAX];
    if (slow->given - slow->taken == SL_DISK_WORKS_MAX) {
        err = SL_ERR_LIMIT;
    } else {
        slow->given++;
        slot->work = *work;
        slot->state = SLOT_WAITS;
        (void)snprintf(slot->name, sizeof(slot->name), "%s", work->name != NULL ? work->name : "");
        pthread_cond_signal(&slow->wake);
    }
    pthread_mutex_unlock(&slow->lock);
    return err;
}

bool sl_disk_slow_reap(struct sl_disk_slow *slow, uint64_t *cookie, int *os_code)
{
    bool some = false;
    pthread_mutex_lock(&slow->lock);
    while (!some && slow->taken < slow->done) {
        struct slow_slot *slot = &slow->slots[slow->taken++ % SL_DISK_WORKS_MAX];
        some = slot->work.kind != SL_DISK_WORK_CLOSE;
        *cookie = slot->work.cookie;
        *os_code = slot->os_code;
        slot->state = SLOT_FREE;
    }
    pthread_mutex_unlock(&slow->lock);
    return some;
}

void sl_disk_slow_close(struct sl_disk_slow **slow)
{
    struct sl_disk_slow *self = *slow;
    if (self == NULL) {
        return;
    }
    *slow = NULL;
    pthread_mutex_lock(&self->lock);
    pthread_t thread = self->thread;
    bool hangs = self->running;
    self->closing = true;
    if (hangs) {
        self->thread = 0;
        pthread_detach(thread);
    }
    pthread_cond_signal(&self->wake);
    pthread_mutex_unlock(&self->lock);
    if (!hangs) {
        pthread_join(thread, NULL);
        slow_free(self);
    }
}
