/* tests/unit/cuda/host_crew_test.c - threads that share the tasks of a call: each task runs once,
 * whatever the pauses between calls, and idle threads use no CPU time. */
#include "cuda/host_crew.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_spin.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TASKS 64u
#define CALLS 2000u

static struct host_crew *crew;

struct call {
    atomic_uint done[TASKS];
    atomic_uint twice; /* tasks that two workers of one number were in at a time */
    atomic_uint within[HOST_CREW_MAX];
    uint32_t spins;
};

static void task_do(void *context, uint32_t worker, uint32_t task)
{
    struct call *call = context;
    (void)atomic_fetch_add(&call->twice, atomic_fetch_add(&call->within[worker], 1));
    for (uint32_t i = 0; i < call->spins; i++) {
        sl_spin_pause();
    }
    (void)atomic_fetch_add(&call->done[task], 1);
    (void)atomic_fetch_sub(&call->within[worker], 1);
}

static uint64_t cpu_ns(void)
{
    struct timespec at;
    ck_assert_int_eq(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at), 0);
    return (uint64_t)at.tv_sec * SL_NS_PER_S + (uint64_t)at.tv_nsec;
}

static void pause_us(uint64_t us)
{
    uint64_t end_ns = sl_clock_monotonic_ns() + us * SL_NS_PER_US;
    while (sl_clock_monotonic_ns() < end_ns) {
    }
}

static const uint32_t thread_counts[] = {0, 1, 3}; /* 1: awake on two cores */

/* Calls follow each other at once, while threads are still awake, and when they sleep. */
START_TEST(every_task_of_every_call_is_done_once)
    {
        static const uint64_t pauses_us[] = {0, 0, 5, 60, 0, 250};
        ck_assert_int_eq(host_crew_create(thread_counts[_i], &crew, NULL), SL_OK);
        for (uint32_t c = 0; c < CALLS; c++) {
            uint32_t tasks = c * 7 % (TASKS + 1);
            struct call call = {.spins = c % 3 * 100};

            host_crew_run(crew, tasks, task_do, &call);

            for (uint32_t t = 0; t < TASKS; t++) {
                ck_assert_uint_eq(atomic_load(&call.done[t]), t < tasks ? 1 : 0);
            }
            ck_assert_uint_eq(atomic_load(&call.twice), 0);
            pause_us(pauses_us[c % SL_COUNT(pauses_us)]);
        }
        host_crew_destroy(&crew);
        ck_assert_ptr_null(crew);
    }
END_TEST

START_TEST(threads_sleep_soon_after_a_call)
    {
        struct call call = {.spins = 20000};
        ck_assert_int_eq(host_crew_create(thread_counts[_i], &crew, NULL), SL_OK);
        host_crew_run(crew, TASKS, task_do, &call);
        (void)usleep(20000);
        uint64_t before_ns = cpu_ns();

        (void)usleep(200000);

        ck_assert_uint_lt(cpu_ns() - before_ns, 2 * SL_NS_PER_MS);
        host_crew_destroy(&crew);
    }
END_TEST

START_TEST(a_crew_that_is_awake_ends_at_once)
    {
        for (uint32_t c = 0; c < 200; c++) {
            struct call call = {.spins = 100};
            ck_assert_int_eq(host_crew_create(thread_counts[_i], &crew, NULL), SL_OK);
            host_crew_run(crew, TASKS, task_do, &call);
            host_crew_destroy(&crew);
        }
    }
END_TEST

int main(void)
{
    TCase *calls = tcase_create("calls");
    tcase_set_timeout(calls, 60);
    tcase_add_loop_test(calls, every_task_of_every_call_is_done_once, 0, SL_COUNT(thread_counts));
    tcase_add_loop_test(calls, threads_sleep_soon_after_a_call, 0, SL_COUNT(thread_counts));
    tcase_add_loop_test(calls, a_crew_that_is_awake_ends_at_once, 0, SL_COUNT(thread_counts));
    Suite *suite = suite_create("host_crew");
    suite_add_tcase(suite, calls);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
