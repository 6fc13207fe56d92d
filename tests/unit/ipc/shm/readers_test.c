/* tests/unit/ipc/shm/readers_test.c - read sections: memory is released only when no section can
 * use it.
 *
 * Threads read a page in sections while another thread replaces it by a new page and unmaps the old
 * one: unmapping it too early is a SIGSEGV, never unmapping it fails the count. */
#include "client/lib/readers.h"

#include <check.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 8u
#define PAGE_BYTES  4096u
#define TURNS       60u
#define WAIT_NS     UINT64_C(20000000000)

static const uint32_t threads[] = {1, 2, 4, 8};
static _Atomic(uint64_t *) page;
static _Atomic bool stop;
static _Atomic uint64_t looks;

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t *page_make(uint64_t number)
{
    uint64_t *at =
        mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(at, MAP_FAILED);
    *at = number;
    return at;
}

static void *look(void *context)
{
    uint64_t last = 0;
    (void)context;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        struct sl_reader *outer = sl_reader_enter();
        const volatile uint64_t *at = atomic_load_explicit(&page, memory_order_acquire);
        SL_AUTO(reader) struct sl_reader *inner = sl_reader_enter();
        for (uint32_t i = 0; i < 20; i++) {
            SL_ASSERT(*at >= last);
        }
        last = *at;
        sl_reader_leave(outer);
        if (atomic_fetch_add_explicit(&looks, 1, memory_order_relaxed) % 256 == 0) {
            (void)sched_yield();
        }
    }
    return NULL;
}

static void passed_wait(uint64_t retired)
{
    uint64_t end_ns = now_ns() + WAIT_NS;
    while (!sl_readers_passed(retired)) {
        ck_assert_msg(now_ns() < end_ns, "a section never ended");
        (void)sched_yield(); /* a reader may have lost its core within a section */
    }
}

static void pages_replace(uint32_t count)
{
    pthread_t ids[THREADS_MAX];
    page = page_make(1);
    stop = false;
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_int_eq(pthread_create(&ids[i], NULL, look, NULL), 0);
    }
    uint64_t end_ns = now_ns() + WAIT_NS;
    while (looks == 0) {
        ck_assert_msg(now_ns() < end_ns, "no thread looks");
        (void)sched_yield();
    }
    for (uint64_t number = 2; number < TURNS; number++) {
        uint64_t *old = atomic_exchange_explicit(&page, page_make(number), memory_order_acq_rel);
        uint64_t retired = sl_readers_retire();
        ck_assert_uint_ne(retired, 0);
        passed_wait(retired);
        ck_assert_int_eq(munmap(old, PAGE_BYTES), 0);
    }
    stop = true;
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_int_eq(pthread_join(ids[i], NULL), 0);
    }
}

START_TEST(a_page_is_let_go_when_no_section_uses_it)
    {
        pages_replace(threads[_i]);
    }
END_TEST

/* Makes membarrier fail, as a container may. */
static void refuse_membarrier(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = SL_COUNT(filter), .filter = filter};
    ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

START_TEST(the_same_without_membarrier)
    {
        refuse_membarrier();
        ck_assert_int_ne((int)syscall(SYS_membarrier, 0, 0, 0), 0);
        pages_replace(threads[_i]);
        struct sl_reader *self = sl_reader_enter();
        ck_assert(self->slow);
        sl_reader_leave(self);
    }
END_TEST

/* ---- sections that are waited for, and those that are not ---- */

static _Atomic int step;

static void step_wait(int until)
{
    uint64_t end_ns = now_ns() + WAIT_NS;
    while (step < until) {
        ck_assert_msg(now_ns() < end_ns, "step %d did not come", until);
    }
}

static void *hold_and_exit(void *leaves)
{
    struct sl_reader *self = sl_reader_enter();
    step = 1;
    step_wait(2);
    if (*(bool *)leaves) {
        sl_reader_leave(self);
    }
    return NULL; /* else its end ends the section */
}

START_TEST(a_section_that_had_begun_is_waited_for)
    {
        bool leaves = _i == 0;
        pthread_t id;
        step = 0;
        ck_assert_int_eq(pthread_create(&id, NULL, hold_and_exit, &leaves), 0);
        step_wait(1);
        uint64_t retired = sl_readers_retire();
        struct sl_reader *later = sl_reader_enter(); /* begun later: not waited for */
        ck_assert(!sl_readers_passed(retired));
        step = 2;
        ck_assert_int_eq(pthread_join(id, NULL), 0);
        ck_assert(sl_readers_passed(retired));
        ck_assert(!sl_readers_passed(sl_readers_retire()));
        sl_reader_leave(later);
    }
END_TEST

START_TEST(a_child_waits_for_no_thread_of_its_parent)
    {
        bool leaves = true;
        pthread_t id;
        int status = 0;
        step = 0;
        ck_assert_int_eq(pthread_create(&id, NULL, hold_and_exit, &leaves), 0);
        step_wait(1);
        pid_t child = fork();
        if (child == 0) {
            uint64_t retired = sl_readers_retire();
            bool fine = retired != 0 && sl_readers_passed(retired);
            struct sl_reader *mine = sl_reader_enter();
            fine = fine && !sl_readers_passed(sl_readers_retire());
            sl_reader_leave(mine);
            _exit(fine ? 0 : 1);
        }
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_int_eq(status, 0);
        step = 2;
        ck_assert_int_eq(pthread_join(id, NULL), 0);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("readers");
    TCase *test_case = tcase_create("readers");
    tcase_set_timeout(test_case, 120);
    tcase_add_loop_test(test_case, a_page_is_let_go_when_no_section_uses_it, 0, SL_COUNT(threads));
    tcase_add_loop_test(test_case, the_same_without_membarrier, 0, SL_COUNT(threads));
    tcase_add_loop_test(test_case, a_section_that_had_begun_is_waited_for, 0, 2);
    tcase_add_test(test_case, a_child_waits_for_no_thread_of_its_parent);
    suite_add_tcase(suite, test_case);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
