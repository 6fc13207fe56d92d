/* tests/unit/runtime/base/guard_test.c - mappings of files that are truncated: registered ones read
 * zeros and are marked; all other faults work as before. */
#include "runtime/base/sl_guard.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILE_BYTES  (8u << 20)
#define CUT_BYTES   (1u << 20)
#define THREADS_MAX 8u
#define PAGE_BYTES  4096u

static const uint32_t threads[] = {1, 2, 4, 8};

static unsigned char *file_map(int *fd)
{
    *fd = memfd_create("guard", MFD_CLOEXEC);
    ck_assert_int_ge(*fd, 0);
    ck_assert_int_eq(ftruncate(*fd, FILE_BYTES), 0);
    unsigned char *at = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    ck_assert_ptr_ne(at, MAP_FAILED);
    memset(at, 7, FILE_BYTES);
    return at;
}

START_TEST(what_is_cut_reads_as_zeros_and_is_marked)
    {
        int fd = -1;
        unsigned char *at = file_map(&fd);
        struct sl_guard *guard = sl_guard_add(at, FILE_BYTES, true);
        ck_assert_ptr_nonnull(guard);
        ck_assert_int_eq(ftruncate(fd, CUT_BYTES), 0);
        ck_assert_int_eq(at[CUT_BYTES - 1], 7); /* bytes within the file are intact */
        ck_assert(!sl_guard_is_cut(guard));
        ck_assert_uint_eq(sl_guard_cuts(), 0);
        errno = 5;
        ck_assert_int_eq(((volatile unsigned char *)at)[CUT_BYTES], 0);
        ck_assert_int_eq(errno, 5);
        ck_assert(sl_guard_is_cut(guard));
        ck_assert_uint_eq(sl_guard_cuts(), 1);
        ck_assert_int_eq(at[CUT_BYTES - 1], 7);
        at[FILE_BYTES - 1] = 9; /* without effect */
        ck_assert_int_eq(at[FILE_BYTES - 1], 9);
        sl_guard_remove(&guard);
        ck_assert_ptr_null(guard);
        ck_assert_uint_eq(sl_guard_cuts(), 0);
        ck_assert_int_eq(munmap(at, FILE_BYTES), 0);
        (void)close(fd);
    }
END_TEST

START_TEST(a_mapping_that_does_not_tell_is_marked_alone)
    {
        int fd = -1;
        unsigned char *at = file_map(&fd);
        struct sl_guard *guard = sl_guard_add(at, FILE_BYTES, false);
        ck_assert_int_eq(ftruncate(fd, 0), 0);
        ck_assert_int_eq(((volatile unsigned char *)at)[5], 0);
        ck_assert(sl_guard_is_cut(guard));
        ck_assert_uint_eq(sl_guard_cuts(), 0);
        sl_guard_remove(&guard);
    }
END_TEST

/* ---- several threads ---- */

static unsigned char *shared;
static struct sl_guard *shared_guard;
static _Atomic uint32_t wrong, cuts_seen;

/* Copies in a loop, each thread its part from the end on: sevens, or the mark. */
static void *copy_on(void *number)
{
    unsigned char *room = malloc(FILE_BYTES / 8);
    unsigned char *at = shared + FILE_BYTES - ((uintptr_t)number + 1) * (FILE_BYTES / 8);
    bool cut = false;
    while (!cut) {
        if ((uintptr_t)number % 2 == 1) {
            memset(at, 7, FILE_BYTES / 8);
        }
        memcpy(room, at, FILE_BYTES / 8);
        bool sevens = room[0] == 7 && memcmp(room, room + 1, FILE_BYTES / 8 - 1) == 0;
        cut = sl_guard_cuts() != 0 && sl_guard_is_cut(shared_guard);
        wrong += !sevens && !cut;
    }
    cuts_seen++;
    free(room);
    return NULL;
}

START_TEST(threads_that_copy_meanwhile_find_the_mark)
    {
        pthread_t ids[THREADS_MAX];
        for (uint32_t turn = 0; turn < 5; turn++) {
            int fd = -1;
            cuts_seen = 0;
            shared = file_map(&fd);
            shared_guard = sl_guard_add(shared, FILE_BYTES, true);
            for (uintptr_t i = 0; i < threads[_i]; i++) {
                ck_assert_int_eq(pthread_create(&ids[i], NULL, copy_on, (void *)i), 0);
            }
            (void)usleep(5000);
            ck_assert_int_eq(ftruncate(fd, turn % 2 == 0 || threads[_i] > 4 ? 0 : FILE_BYTES / 2),
                             0);
            for (uint32_t i = 0; i < threads[_i]; i++) {
                ck_assert_int_eq(pthread_join(ids[i], NULL), 0);
            }
            ck_assert_uint_eq(wrong, 0);
            ck_assert_uint_eq(cuts_seen, threads[_i]);
            sl_guard_remove(&shared_guard);
            ck_assert_int_eq(munmap(shared, FILE_BYTES), 0);
            (void)close(fd);
        }
        ck_assert_uint_eq(sl_guard_cuts(), 0);
    }
END_TEST

/* ---- what is not ours ---- */

/* The signal that ended a child running this; 0: it exited. */
static int ends_by(void (*run)(void))
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        run();
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    if (WIFEXITED(status) &&
        WEXITSTATUS(status) != 0) { /* the sanitizer's handler was there before */
        return SIGBUS;
    }
#endif
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void fault_elsewhere(void)
{
    int fd = -1, other = -1;
    unsigned char *at = file_map(&fd), *outside = file_map(&other);
    struct sl_guard *guard = sl_guard_add(at, FILE_BYTES, true);
    (void)guard;
    (void)ftruncate(other, 0);
    (void)((volatile unsigned char *)outside)[0];
}

static void fault_behind_removal(void)
{
    int fd = -1;
    unsigned char *at = file_map(&fd);
    struct sl_guard *guard = sl_guard_add(at, FILE_BYTES, true);
    sl_guard_remove(&guard);
    (void)ftruncate(fd, 0);
    (void)((volatile unsigned char *)at)[0];
}

static void signal_sent(void)
{
    int fd = -1;
    (void)sl_guard_add(file_map(&fd), FILE_BYTES, true);
    (void)kill(getpid(), SIGBUS);
}

static void (*const fatal[])(void) = {fault_elsewhere, fault_behind_removal, signal_sent};

START_TEST(what_is_not_registered_ends_the_process_as_ever)
    {
        ck_assert_int_eq(ends_by(fatal[_i]), SIGBUS);
    }
END_TEST

static sigjmp_buf back;
static void *fault_at;

static void handler_before(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    fault_at = info->si_addr;
    siglongjmp(back, 1);
}

START_TEST(a_handler_that_was_there_gets_what_is_not_ours)
    {
        struct sigaction action = {.sa_sigaction = handler_before, .sa_flags = SA_SIGINFO};
        int fd = -1, other = -1;
        ck_assert_int_eq(sigaction(SIGBUS, &action, NULL), 0);
        unsigned char *at = file_map(&fd), *outside = file_map(&other);
        struct sl_guard *guard = sl_guard_add(at, FILE_BYTES, true);
        ck_assert_int_eq(ftruncate(fd, 0), 0);
        ck_assert_int_eq(ftruncate(other, 0), 0);
        for (uint32_t i = 0; i < 3; i++) { /* also when it did not return */
            fault_at = NULL;
            if (sigsetjmp(back, 1) == 0) {
                (void)((volatile unsigned char *)outside)[i * PAGE_BYTES];
                ck_abort_msg("the fault went by");
            }
            ck_assert_ptr_eq(fault_at, outside + (size_t)i * PAGE_BYTES);
        }
        ck_assert_int_eq(((volatile unsigned char *)at)[0], 0);
        ck_assert(sl_guard_is_cut(guard));
    }
END_TEST

START_TEST(a_system_call_that_meets_the_hole_is_an_error)
    {
        int fd = -1, ends[2];
        unsigned char *at = file_map(&fd);
        struct sl_guard *guard = sl_guard_add(at, FILE_BYTES, true);
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        ck_assert_int_eq(ftruncate(fd, 0), 0);
        ck_assert_int_eq((int)send(ends[0], at, 100, MSG_NOSIGNAL), -1);
        ck_assert_int_eq(errno, EFAULT);
        ck_assert(!sl_guard_is_cut(guard)); /* no access has touched it */
    }
END_TEST

START_TEST(guards_are_bounded_and_used_again)
    {
        int fd = -1;
        unsigned char *at = file_map(&fd);
        struct sl_guard *first = NULL;
        uint32_t count = 0;
        for (struct sl_guard *next = sl_guard_add(at, PAGE_BYTES, true); next != NULL;
             next = sl_guard_add(at + (size_t)count % 1000 * PAGE_BYTES, PAGE_BYTES, true)) {
            first = first == NULL ? next : first;
            count++;
            ck_assert_uint_lt(count, 100000);
        }
        ck_assert_uint_ge(count, 4096);
        sl_guard_remove(&first);
        ck_assert_ptr_nonnull(sl_guard_add(at, FILE_BYTES, true));
        ck_assert_ptr_null(sl_guard_add(at, FILE_BYTES, true));
        ck_assert_int_eq(ftruncate(fd, 0), 0);
        ck_assert_int_eq(((volatile unsigned char *)at)[FILE_BYTES - 1], 0);
        ck_assert_uint_eq(sl_guard_cuts(), 1);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("guard");
    TCase *test_case = tcase_create("guard");
    tcase_set_timeout(test_case, 120);
    tcase_add_test(test_case, what_is_cut_reads_as_zeros_and_is_marked);
    tcase_add_test(test_case, a_mapping_that_does_not_tell_is_marked_alone);
    tcase_add_loop_test(test_case, threads_that_copy_meanwhile_find_the_mark, 0, SL_COUNT(threads));
    tcase_add_loop_test(test_case, what_is_not_registered_ends_the_process_as_ever, 0,
                        SL_COUNT(fatal));
    tcase_add_test(test_case, a_handler_that_was_there_gets_what_is_not_ours);
    tcase_add_test(test_case, a_system_call_that_meets_the_hole_is_an_error);
    tcase_add_test(test_case, guards_are_bounded_and_used_again);
    suite_add_tcase(suite, test_case);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
