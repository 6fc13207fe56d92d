/* tests/unit/ipc/shm/shm_support.h - helpers for tests of shared memory: a directory per test,
 * small file systems, seeds. */
#ifndef SHM_SUPPORT_H
#define SHM_SUPPORT_H

#include "ipc/shm/sl_index.h"

#include <check.h>
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <time.h>
#include <unistd.h>

/* Makes a new directory; shm_dir_remove frees it. */
static inline char *shm_dir_make(void)
{
    char *path = strdup("/dev/shm/sluice-test-XXXXXX");
    ck_assert_ptr_nonnull(path);
    ck_assert_ptr_nonnull(mkdtemp(path));
    return path;
}

static inline void shm_dir_remove(char *path)
{
    DIR *directory = opendir(path);
    ck_assert_ptr_nonnull(directory);
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            unlinkat(dirfd(directory), entry->d_name, 0);
        }
    }
    closedir(directory);
    rmdir(path);
    free(path);
}

/* Mounts a file system of this size ("4m") on path, visible only to this process (a test's own).
 * False: not permitted here. */
static inline bool shm_dir_limit(const char *path, const char *size)
{
    char options[64];
    snprintf(options, sizeof(options), "size=%s,mode=0700", size);
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, options) == 0;
}

/* xorshift64*: the same numbers everywhere for a seed. */
static inline uint64_t random_next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

/* From SLUICE_TEST_SEED or the clock; printed so that a failure can be repeated. */
static inline uint64_t random_seed(const char *test)
{
    const char *text = getenv("SLUICE_TEST_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0)
                                 : (uint64_t)time(NULL) * 1000003u + (uint64_t)getpid();
    seed = seed != 0 ? seed : 1;
    printf("%s: SLUICE_TEST_SEED=%llu\n", test, (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

static inline uint64_t stopwatch_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* For hot loops: ck_assert writes a message even when it passes. */
#define must(condition)                     \
    do {                                    \
        if (!(condition)) {                 \
            ck_abort_msg("%s", #condition); \
        }                                   \
    } while (0)
#define ck_assert_sl_ok(call, why) ck_assert_msg((call) == SL_OK, "%s", (why).text)

/* main() of a suite with one case. */
static inline int suite_run(TCase *tcase, const char *name)
{
    Suite *suite = suite_create(name);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}

#endif
