/* tests/unit/disk_names_test.c - names on the real disk are durable when a call says so: the
 * directory was synced behind the last change of a name. The simulator believes that (sim_disk.c).
 * The linker leads the system calls here (--wrap). */
#include "runtime/sl_disk.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static bool unsynced; /* a name was made, changed or removed since the directory was synced */
static bool sync_fails;

/* NOLINTBEGIN(bugprone-reserved-identifier): the names are the linker's */
int __real_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? (mode_t)va_arg(arguments, int) : 0;
    va_end(arguments);
    struct stat before;
    bool fresh = (flags & O_CREAT) != 0 && fstatat(dir, path, &before, AT_SYMLINK_NOFOLLOW) != 0;
    int fd = __real_openat(dir, path, flags, mode);
    unsynced = unsynced || (fresh && fd >= 0);
    return fd;
}

int __real_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    int result = __real_renameat(from_dir, from, to_dir, to);
    unsynced = unsynced || result == 0;
    return result;
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    struct stat status;
    if (sync_fails) {
        errno = EIO;
        return -1;
    }
    if (fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) {
        unsynced = false;
    }
    return __real_fsync(fd);
}
/* NOLINTEND(bugprone-reserved-identifier) */

struct bed {
    struct sl_tmpdir tmpdir;
    struct sl_disk *disk;
    int event_fd;
};

static void bed_make(struct bed *bed)
{
    struct sl_error why = {0};
    sl_tmpdir_make(&bed->tmpdir, "/tmp");
    ck_assert_msg(
        sl_disk_uring_open(bed->tmpdir.path, 16, false, &bed->disk, &bed->event_fd, &why) == SL_OK,
        "%s", why.text);
    unsynced = false;
}

static void bed_remove(struct bed *bed)
{
    bed->disk->ops->destroy(bed->disk);
    sl_tmpdir_remove(&bed->tmpdir);
}

static void made(void *context, uint64_t cookie, uint64_t bytes, int os_code)
{
    (void)cookie, (void)bytes;
    *(int *)context = os_code;
}

/* Gives an errno. */
static int file_make(struct bed *bed, const char *from, const char *name, uint64_t bytes)
{
    const struct sl_disk_request make = {
        .verb = SL_DISK_MAKE, .file = -1, .from = from, .name = name, .length_bytes = bytes};
    int os_code = -1;
    ck_assert_int_eq(bed->disk->ops->submit(bed->disk, &make, NULL), SL_OK);
    while (os_code < 0) {
        struct pollfd ready = {.fd = bed->event_fd, .events = POLLIN};
        ck_assert_int_ge(poll(&ready, 1, -1), 0);
        bed->disk->ops->reap(bed->disk, made, &os_code);
    }
    return os_code;
}

/* _i: from a file that is there, from one that is not, from nothing. */
START_TEST(a_file_that_was_made_has_its_name_for_good)
    {
        static const char *const from[] = {"old", "none", NULL};
        struct bed bed;
        bed_make(&bed);
        ck_assert_int_eq(file_make(&bed, NULL, "old", 4096), 0);
        ck_assert(!unsynced);
        ck_assert_int_eq(file_make(&bed, from[_i], "new", 8192), 0);
        ck_assert(!unsynced);
        bed_remove(&bed);
    }
END_TEST

START_TEST(a_directory_that_cannot_be_synced_is_an_error)
    {
        struct bed bed;
        bed_make(&bed);
        sync_fails = true;
        ck_assert_int_ne(file_make(&bed, NULL, "new", 4096), 0);
        sync_fails = false;
        bed_remove(&bed);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("disk_names");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 30);
    tcase_add_loop_test(all, a_file_that_was_made_has_its_name_for_good, 0, 3);
    tcase_add_test(all, a_directory_that_cannot_be_synced_is_an_error);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
