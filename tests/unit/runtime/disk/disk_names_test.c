/* tests/unit/runtime/disk/disk_names_test.c - names on the real disk are durable when a call
 * reports it: the directory was synced after the last change of a name. The simulator relies on
 * that (sim_disk.c). The linker directs the system calls here (--wrap). */
#include "runtime/disk/sl_disk.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
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
};

static void bed_make(struct bed *bed)
{
    struct sl_error why = {0};
    int event_fd = -1;
    sl_tmpdir_make(&bed->tmpdir, "/tmp");
    ck_assert_msg(sl_disk_uring_open(bed->tmpdir.path, 16, false, &bed->disk, &event_fd, &why) ==
                      SL_OK,
                  "%s", why.text);
    unsynced = false;
}

static void bed_remove(struct bed *bed)
{
    bed->disk->ops->destroy(bed->disk);
    sl_tmpdir_remove(&bed->tmpdir);
}

START_TEST(a_new_file_is_there_for_good)
    {
        struct bed bed;
        int file = -1;
        uint64_t bytes = 0;
        bed_make(&bed);
        ck_assert_int_eq(bed.disk->ops->open(bed.disk, "new", true, 4096, &file, &bytes, NULL),
                         SL_OK);
        ck_assert(!unsynced);
        bed.disk->ops->close(bed.disk, file);
        bed_remove(&bed);
    }
END_TEST

/* _i: from a file that exists, from one that does not, from nothing. */
START_TEST(a_file_that_was_prepared_has_its_name_for_good)
    {
        static const char *const from[] = {"old", "none", NULL};
        struct bed bed;
        bed_make(&bed);
        ck_assert_int_eq(bed.disk->ops->prepare(bed.disk, NULL, "old", 4096, NULL), SL_OK);
        ck_assert(!unsynced);
        ck_assert_int_eq(bed.disk->ops->prepare(bed.disk, from[_i], "new", 8192, NULL), SL_OK);
        ck_assert(!unsynced);
        bed_remove(&bed);
    }
END_TEST

/* After a change of settings log files are smaller: no footer is searched in the middle. */
START_TEST(a_file_that_was_prepared_has_the_size_that_was_asked_for)
    {
        static const uint64_t sizes[] = {4096, 8192, 16384};
        struct bed bed;
        int file = -1;
        uint64_t bytes = 0;
        bed_make(&bed);
        ck_assert_int_eq(bed.disk->ops->prepare(bed.disk, NULL, "old", 8192, NULL), SL_OK);
        ck_assert_int_eq(bed.disk->ops->prepare(bed.disk, "old", "new", sizes[_i], NULL), SL_OK);
        ck_assert_int_eq(bed.disk->ops->open(bed.disk, "new", false, 0, &file, &bytes, NULL),
                         SL_OK);
        ck_assert_uint_eq(bytes, sizes[_i]);
        ck_assert_uint_eq(bed.disk->ops->real_bytes(bed.disk, file), sizes[_i]);
        bed.disk->ops->close(bed.disk, file);
        bed_remove(&bed);
    }
END_TEST

START_TEST(a_directory_that_cannot_be_synced_is_an_error)
    {
        struct bed bed;
        int file = -1;
        uint64_t bytes = 0;
        bed_make(&bed);
        sync_fails = true;
        ck_assert_int_ne(bed.disk->ops->open(bed.disk, "new", true, 4096, &file, &bytes, NULL),
                         SL_OK);
        ck_assert_int_ne(bed.disk->ops->prepare(bed.disk, NULL, "other", 4096, NULL), SL_OK);
        sync_fails = false;
        bed_remove(&bed);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("disk_names");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 30);
    tcase_add_test(all, a_new_file_is_there_for_good);
    tcase_add_loop_test(all, a_file_that_was_prepared_has_its_name_for_good, 0, 3);
    tcase_add_loop_test(all, a_file_that_was_prepared_has_the_size_that_was_asked_for, 0, 3);
    tcase_add_test(all, a_directory_that_cannot_be_synced_is_an_error);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
