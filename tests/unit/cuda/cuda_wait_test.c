/* tests/unit/cuda/cuda_wait_test.c - waits for the GPU end by their deadline, on the fake driver.
 */
#include "cuda/cuda_wait.h"
#include "runtime/base/sl_clock.h"
#include "tests/support/fake_cuda.h"

#include <check.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH   4096u
#define SOON_NS  (20 * SL_NS_PER_MS)
#define LATER_NS (10 * SL_NS_PER_S)

/* A stream with a fill in it, and an event after the fill. */
struct bed {
    struct sl_driver driver;
    struct fake_cuda *fake;
    sl_cu_stream stream;
    sl_cu_event event;
    sl_cu_ptr memory;
};

static void bed_open(struct bed *bed)
{
    fake_cuda_state_fn state;
    ck_assert_int_eq(sl_driver_open(&bed->driver, FAKE_CUDA, NULL), SL_OK);
    void *symbol = dlsym(bed->driver.library, "fake_cuda_state");
    memcpy(&state, &symbol, sizeof(state));
    bed->fake = state();
    ck_assert_int_eq(bed->driver.context_set(bed->fake), 0);
    ck_assert_int_eq(bed->driver.stream_create(&bed->stream, SL_CU_STREAM_NON_BLOCKING, 0), 0);
    ck_assert_int_eq(bed->driver.event_create(&bed->event, SL_CU_EVENT_NO_TIMING), 0);
    ck_assert_int_eq(bed->driver.memory_get(&bed->memory, LENGTH), 0);
    memset((void *)(uintptr_t)bed->memory, 0, LENGTH);
    ck_assert_int_eq(bed->driver.fill(bed->memory, 7, LENGTH, bed->stream), 0);
    ck_assert_int_eq(bed->driver.event_record(bed->event, bed->stream), 0);
}

static void bed_close(struct bed *bed)
{
    bed->fake->hangs = false;
    ck_assert_int_eq(bed->driver.event_destroy(bed->event), 0);
    ck_assert_int_eq(bed->driver.stream_destroy(bed->stream), 0);
    ck_assert_int_eq(bed->driver.memory_free(bed->memory), 0);
    sl_driver_close(&bed->driver);
}

/* _i: 0 waits for the event, 1 for the stream. */
static sl_cu_result wait_of(const struct bed *bed, int which, uint64_t timeout_ns)
{
    uint64_t deadline_ns = sl_deadline_ns(sl_clock_monotonic_ns(), timeout_ns);
    return which == 0 ? sl_cuda_event_wait(&bed->driver, bed->event, deadline_ns)
                      : sl_cuda_stream_wait(&bed->driver, bed->stream, deadline_ns);
}

static unsigned char last_byte(const struct bed *bed)
{
    return ((const unsigned char *)(uintptr_t)bed->memory)[LENGTH - 1];
}

START_TEST(a_wait_ends_when_the_work_is_done)
    {
        struct bed bed;
        bed_open(&bed);
        bed.fake->busy_queries = 300;

        ck_assert_int_eq(wait_of(&bed, _i, LATER_NS), 0);

        ck_assert_uint_eq(bed.fake->busy_queries, 0);
        ck_assert_uint_eq(last_byte(&bed), 7);
        bed_close(&bed);
    }
END_TEST

START_TEST(a_device_that_hangs_costs_no_more_than_the_deadline)
    {
        struct bed bed;
        struct sl_error why = {0};
        bed_open(&bed);
        bed.fake->hangs = true;
        uint64_t begun_ns = sl_clock_monotonic_ns();

        sl_cu_result result = wait_of(&bed, _i, SOON_NS);

        ck_assert_int_eq(result, SL_CU_NOT_READY);
        ck_assert_uint_ge(sl_clock_monotonic_ns() - begun_ns, SOON_NS);
        ck_assert_uint_eq(last_byte(&bed), 0);
        ck_assert_int_eq(sl_fail_cuda(&bed.driver, &why, result, "wait"), SL_ERR_TIMEOUT);
        ck_assert(!bed.driver.lost);
        bed_close(&bed);
    }
END_TEST

START_TEST(a_deadline_that_is_over_looks_once)
    {
        struct bed bed;
        bed_open(&bed);

        bed.fake->busy_queries = 1;
        ck_assert_int_eq(wait_of(&bed, _i, 0), SL_CU_NOT_READY);
        ck_assert_int_eq(wait_of(&bed, _i, 0), 0);
        ck_assert_uint_eq(bed.fake->queries, 2);
        bed_close(&bed);
    }
END_TEST

START_TEST(a_long_wait_sleeps)
    {
        struct bed bed;
        bed_open(&bed);
        bed.fake->hangs = true;

        ck_assert_int_eq(wait_of(&bed, _i, 100 * SL_NS_PER_MS), SL_CU_NOT_READY);
        /* Awake for 50 us, then sleeps of 6 us to 1 ms: each a ninth of the time that is over then.
         */
        ck_assert_uint_le(bed.fake->queries, 20000);
        uint64_t before = bed.fake->queries;
        ck_assert_int_eq(wait_of(&bed, _i, 100 * SL_NS_PER_MS), SL_CU_NOT_READY);
        ck_assert_uint_ge(bed.fake->queries - before, 2);
        bed_close(&bed);
    }
END_TEST

START_TEST(what_the_driver_says_ends_the_wait)
    {
        struct bed bed;
        bed_open(&bed);
        bed.fake->fail_symbol = _i == 0 ? "fake_event_query" : "fake_stream_query";
        bed.fake->fail_code = SL_CU_ILLEGAL_ADDRESS;

        ck_assert_int_eq(wait_of(&bed, _i, LATER_NS), SL_CU_ILLEGAL_ADDRESS);
        bed.fake->fail_symbol = NULL;
        bed_close(&bed);
    }
END_TEST

START_TEST(an_event_that_was_never_recorded_is_done)
    {
        struct bed bed;
        sl_cu_event fresh = NULL;
        bed_open(&bed);
        ck_assert_int_eq(bed.driver.event_create(&fresh, SL_CU_EVENT_NO_TIMING), 0);

        ck_assert_int_eq(sl_cuda_event_wait(&bed.driver, fresh, 0), 0);

        ck_assert_int_eq(bed.driver.event_destroy(fresh), 0);
        bed_close(&bed);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda_wait");
    TCase *waits = tcase_create("waits");
    tcase_add_loop_test(waits, a_wait_ends_when_the_work_is_done, 0, 2);
    tcase_add_loop_test(waits, a_device_that_hangs_costs_no_more_than_the_deadline, 0, 2);
    tcase_add_loop_test(waits, a_deadline_that_is_over_looks_once, 0, 2);
    tcase_add_loop_test(waits, a_long_wait_sleeps, 0, 2);
    tcase_add_loop_test(waits, what_the_driver_says_ends_the_wait, 0, 2);
    tcase_add_test(waits, an_event_that_was_never_recorded_is_done);
    suite_add_tcase(suite, waits);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
