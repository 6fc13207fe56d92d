/* tests/unit/gate_stopped_test.c - which stand-ins of clients in other containers are ended, because they stand still. */
#include "client/gate/stopped.h"

#include <check.h>
#include <stdlib.h>

static struct stopped stopped;

START_TEST(who_stands_still_for_a_second_is_found_once)
    {
        stopped_add(&stopped, 7, 1000);
        stopped_add(&stopped, 8, 2000);

        ck_assert_uint_eq(stopped_next_ns(&stopped), 1000 + STOPPED_NS);
        ck_assert_int_eq(stopped_take(&stopped, 999 + STOPPED_NS), 0);
        ck_assert_int_eq(stopped_take(&stopped, 1000 + STOPPED_NS), 7);
        ck_assert_int_eq(stopped_take(&stopped, 1000 + STOPPED_NS), 0);
        ck_assert_int_eq(stopped_take(&stopped, 2000 + STOPPED_NS), 8);
        ck_assert_uint_eq(stopped_next_ns(&stopped), SL_NEVER_NS);
    }
END_TEST

START_TEST(who_goes_on_in_time_is_left_alone)
    {
        stopped_add(&stopped, 7, 1000);
        stopped_remove(&stopped, 7);
        stopped_add(&stopped, 7, 1000 + STOPPED_NS);

        ck_assert_int_eq(stopped_take(&stopped, 2000 + STOPPED_NS), 0);
        ck_assert_int_eq(stopped_take(&stopped, 1000 + 2 * STOPPED_NS), 7);
    }
END_TEST

START_TEST(who_looks_late_was_stopped_too_and_begins_anew)
    {
        stopped_add(&stopped, 7, 1000);

        ck_assert_int_eq(stopped_take(&stopped, 1000 + 9 * STOPPED_NS), 0);
        ck_assert_int_eq(stopped_take(&stopped, 1000 + 10 * STOPPED_NS), 7);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("gate: stopped");
    TCase *tcase = tcase_create("stopped");
    tcase_add_test(tcase, who_stands_still_for_a_second_is_found_once);
    tcase_add_test(tcase, who_goes_on_in_time_is_left_alone);
    tcase_add_test(tcase, who_looks_late_was_stopped_too_and_begins_anew);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
