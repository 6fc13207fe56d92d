/* tests/unit/gate_turns_test.c - which connection of another user is let in when, and which of their processes
 * stands still for too long. */
#include "client/gate/stopped.h"
#include "client/gate/turns.h"
#include "runtime/sl_array.h"

#include <check.h>
#include <stdlib.h>

#define ALICE 1001u
#define BOB   1002u

static struct turns turns;

static bool add(uint32_t uid, int fd)
{
    const struct turn turn = {.fd = fd, .uid = uid};
    return turns_add(&turns, &turn);
}

static bool refused_add(uint32_t uid, int fd)
{
    const struct turn turn = {.fd = fd, .uid = uid, .refused = true};
    return turns_add(&turns, &turn);
}

/* -1: nobody's turn. */
static int take(uint64_t now_ns)
{
    struct turn turn;
    return turns_take(&turns, now_ns, &turn) ? turn.fd : -1;
}

START_TEST(one_user_is_let_in_once_in_a_while_and_in_order)
    {
        ck_assert(add(ALICE, 1) && add(ALICE, 2) && add(ALICE, 3));

        ck_assert_int_eq(take(1000), 1);
        ck_assert_int_eq(take(1000), -1);
        ck_assert_uint_eq(turns_next_ns(&turns, 1000), 1000 + TURN_NS);
        ck_assert_int_eq(take(1000 + TURN_NS - 1), -1);
        ck_assert_int_eq(take(1000 + TURN_NS), 2);
        ck_assert_int_eq(take(1000 + 5 * TURN_NS), 3);
        ck_assert_uint_eq(turns_next_ns(&turns, 1000 + 5 * TURN_NS), SL_NEVER_NS);
    }
END_TEST

START_TEST(who_comes_behind_many_of_another_user_does_not_wait_for_them)
    {
        for (int fd = 1; fd <= (int)TURNS_OF_USER_MAX; fd++) {
            ck_assert(add(ALICE, fd));
        }
        ck_assert(!add(ALICE, 1000));
        ck_assert_int_eq(take(1000), 1);

        ck_assert(add(BOB, 2000));

        ck_assert_uint_eq(turns_next_ns(&turns, 1001), 1001);
        ck_assert_int_eq(take(1001), 2000);
        ck_assert_int_eq(take(1001), -1);
        ck_assert_int_eq(take(1000 + TURN_NS), 2);
    }
END_TEST

START_TEST(one_that_is_gone_was_nobodys_turn)
    {
        ck_assert(add(ALICE, 1) && add(ALICE, 2));
        ck_assert_int_eq(take(1000), 1);

        turns_skip(&turns, &(struct turn){.uid = ALICE});

        ck_assert_int_eq(take(1000), 2);
        ck_assert_int_eq(take(1000), -1);
    }
END_TEST

START_TEST(more_users_than_there_are_rows_wait_for_one)
    {
        for (uint32_t user = 0; user <= TURN_USERS_MAX; user++) {
            ck_assert(add(user, (int)user));
        }
        for (uint32_t user = 0; user < TURN_USERS_MAX; user++) {
            ck_assert_int_eq(take(1000 + user), (int)user);
        }

        ck_assert_int_eq(take(1000 + TURN_USERS_MAX), -1);
        ck_assert_uint_eq(turns_next_ns(&turns, 2000), 1000 + TURN_NS);
        ck_assert_int_eq(take(1000 + TURN_NS), (int)TURN_USERS_MAX);
    }
END_TEST

START_TEST(all_who_are_refused_are_one_user_of_few_places)
    {
        uint32_t waiting = 0;
        for (uint32_t user = 0; user < TURNS_MAX; user++) {
            waiting += refused_add(10000 + user, (int)user);
        }
        ck_assert_uint_eq(waiting, TURNS_REFUSED_MAX);
        ck_assert_int_eq(take(1000), 0);

        ck_assert(add(10001, 2000)); /* one of them, at another entrance */

        ck_assert_int_eq(take(1001), 2000);
        ck_assert_int_eq(take(1002), -1);
        ck_assert_int_eq(take(1000 + TURN_NS), 1);
        turns_skip(&turns, &(struct turn){.uid = 10001, .refused = true});
        ck_assert_int_eq(take(1001 + TURN_NS), 2);
        ck_assert_int_eq(take(1002 + TURN_NS), -1);
    }
END_TEST

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
    Suite *suite = suite_create("gate: turns");
    TCase *tcase = tcase_create("turns");
    tcase_add_test(tcase, one_user_is_let_in_once_in_a_while_and_in_order);
    tcase_add_test(tcase, who_comes_behind_many_of_another_user_does_not_wait_for_them);
    tcase_add_test(tcase, one_that_is_gone_was_nobodys_turn);
    tcase_add_test(tcase, more_users_than_there_are_rows_wait_for_one);
    tcase_add_test(tcase, all_who_are_refused_are_one_user_of_few_places);
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
