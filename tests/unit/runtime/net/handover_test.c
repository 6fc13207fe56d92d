/* tests/unit/runtime/net/handover_test.c - the hand-over: every state against every event. */
#include "runtime/base/sl_clock.h"
#include "runtime/net/sl_handover.h"

#include <check.h>
#include <stdlib.h>

/* A different limit for each state, so that a wrong deadline is noticed. */
static const uint64_t limits[SL_HANDOVER_STATES] = {101, 202, 303, 404, 505, 606, 707};

static struct sl_handover handover_in(enum sl_handover_state state)
{
    static const enum sl_handover_state way[] = {SL_HANDOVER_ALLOCATED, SL_HANDOVER_PRODUCING,
                                                 SL_HANDOVER_COMMITTED, SL_HANDOVER_CONSUMED};
    struct sl_handover handover;
    sl_handover_start(&handover, limits, 1000);
    if (state == SL_HANDOVER_ABORTED) {
        ck_assert_int_eq(sl_handover_abort(&handover, SL_ERR_PEER_DIED, 1000), SL_OK);
        return handover;
    }
    for (uint32_t i = 0; i < SL_COUNT(way) && handover.state != state; i++) {
        ck_assert_int_eq(sl_handover_step(&handover, way[i], 1000), SL_OK);
    }
    if (state == SL_HANDOVER_RELEASED) {
        ck_assert_int_eq(sl_handover_step(&handover, SL_HANDOVER_RELEASED, 1000), SL_OK);
    }
    ck_assert_int_eq(handover.state, state);
    return handover;
}

#define OK     SL_OK
#define AHEAD  SL_ERR_INVALID
#define BEHIND SL_ERR_EXISTS
#define DEAD   SL_ERR_CANCELLED
#define OVER   SL_ERR_STALE
static const enum sl_handover_state targets[] = {SL_HANDOVER_ALLOCATED, SL_HANDOVER_PRODUCING,
                                                 SL_HANDOVER_COMMITTED, SL_HANDOVER_CONSUMED,
                                                 SL_HANDOVER_RELEASED};
/* [state][target] */
static const sl_err answers[SL_HANDOVER_STATES][SL_COUNT(targets)] = {
    /*                         allocated producing committed consumed released */
    [SL_HANDOVER_ANNOUNCED] = {OK, AHEAD, AHEAD, AHEAD, AHEAD},
    [SL_HANDOVER_ALLOCATED] = {BEHIND, OK, AHEAD, AHEAD, AHEAD},
    [SL_HANDOVER_PRODUCING] = {BEHIND, BEHIND, OK, AHEAD, AHEAD},
    [SL_HANDOVER_COMMITTED] = {BEHIND, BEHIND, BEHIND, OK, AHEAD},
    [SL_HANDOVER_CONSUMED] = {BEHIND, BEHIND, BEHIND, BEHIND, OK},
    [SL_HANDOVER_ABORTED] = {DEAD, DEAD, DEAD, DEAD, OK},
    [SL_HANDOVER_RELEASED] = {OVER, OVER, OVER, OVER, BEHIND},
};

START_TEST(every_state_answers_every_target)
    {
        enum sl_handover_state state = (enum sl_handover_state)(_i / (int)SL_COUNT(targets));
        enum sl_handover_state target = targets[_i % (int)SL_COUNT(targets)];
        struct sl_handover handover = handover_in(state);
        uint64_t deadline_ns = handover.deadline_ns;

        sl_err got = sl_handover_step(&handover, target, 5000);

        ck_assert_int_eq(got, answers[state][_i % (int)SL_COUNT(targets)]);
        if (got != SL_OK) {
            ck_assert_int_eq(handover.state, state);
            ck_assert_uint_eq(handover.deadline_ns, deadline_ns);
            return;
        }
        ck_assert_int_eq(handover.state, target);
        ck_assert_uint_eq(handover.deadline_ns, handover.state == SL_HANDOVER_RELEASED
                                                    ? SL_NEVER_NS
                                                    : 5000 + limits[handover.state]);
    }
END_TEST

static const sl_err abort_answers[SL_HANDOVER_STATES] = {
    [SL_HANDOVER_CONSUMED] = SL_ERR_STALE,
    [SL_HANDOVER_ABORTED] = SL_ERR_EXISTS,
    [SL_HANDOVER_RELEASED] = SL_ERR_STALE,
};

START_TEST(what_is_not_consumed_can_be_aborted)
    {
        enum sl_handover_state state = (enum sl_handover_state)_i;
        struct sl_handover handover = handover_in(state);

        sl_err got = sl_handover_abort(&handover, SL_ERR_IO, 5000);

        ck_assert_int_eq(got, abort_answers[state]);
        if (got != SL_OK) {
            ck_assert_int_eq(handover.state, state);
            ck_assert_int_eq(handover.code,
                             state == SL_HANDOVER_ABORTED ? SL_ERR_PEER_DIED : SL_OK);
            return;
        }
        ck_assert_int_eq(handover.state, SL_HANDOVER_ABORTED);
        ck_assert_int_eq(handover.aborted_in, state);
        ck_assert_int_eq(handover.code, SL_ERR_IO);
        ck_assert_uint_eq(handover.deadline_ns, 5000 + limits[SL_HANDOVER_ABORTED]);
    }
END_TEST

START_TEST(every_state_ends_by_its_deadline)
    {
        enum sl_handover_state state = (enum sl_handover_state)_i;
        struct sl_handover handover = handover_in(state);
        if (state == SL_HANDOVER_RELEASED) {
            ck_assert(!sl_handover_expire(&handover, SL_NEVER_NS - 1));
            return;
        }

        bool early = sl_handover_expire(&handover, 1000 + limits[state] - 1);
        ck_assert(!early);
        ck_assert_int_eq(handover.state, state);
        bool due = sl_handover_expire(&handover, 1000 + limits[state]);

        ck_assert(due);
        if (state < SL_HANDOVER_CONSUMED) {
            ck_assert_int_eq(handover.state, SL_HANDOVER_ABORTED);
            ck_assert_int_eq(handover.code, SL_ERR_TIMEOUT);
        } else {
            ck_assert_int_eq(handover.state, SL_HANDOVER_RELEASED);
        }
    }
END_TEST

/* A deadline releases no memory that may still be written to. */
START_TEST(what_is_lent_keeps_it_from_being_released)
    {
        static const enum sl_handover_state ends[] = {SL_HANDOVER_CONSUMED, SL_HANDOVER_ABORTED};
        struct sl_handover handover = handover_in(ends[_i]);
        sl_handover_lend(&handover, SL_HANDOVER_TARGET | SL_HANDOVER_HELD);

        ck_assert_int_eq(sl_handover_step(&handover, SL_HANDOVER_RELEASED, 1100), SL_ERR_BUSY);
        ck_assert(sl_handover_expire(&handover, 9000));
        ck_assert_int_eq(handover.state, ends[_i]);
        ck_assert_uint_eq(handover.deadline_ns, 9000 + limits[ends[_i]]);

        sl_handover_return(&handover, SL_HANDOVER_TARGET);
        ck_assert_int_eq(sl_handover_step(&handover, SL_HANDOVER_RELEASED, 9100), SL_ERR_BUSY);
        sl_handover_return(&handover, SL_HANDOVER_HELD);
        ck_assert_int_eq(sl_handover_step(&handover, SL_HANDOVER_RELEASED, 9100), SL_OK);
        ck_assert_int_eq(handover.state, SL_HANDOVER_RELEASED);
    }
END_TEST

START_TEST(states_have_names)
    {
        for (uint32_t i = 0; i < SL_HANDOVER_STATES; i++) {
            const char *text = sl_handover_state_text((enum sl_handover_state)i);
            ck_assert_ptr_nonnull(text);
            ck_assert_str_ne(text, "?");
        }
        ck_assert_str_eq(sl_handover_state_text(SL_HANDOVER_STATES), "?");
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("handover");
    TCase *steps = tcase_create("steps");
    tcase_add_loop_test(steps, every_state_answers_every_target, 0,
                        SL_HANDOVER_STATES * SL_COUNT(targets));
    tcase_add_loop_test(steps, what_is_not_consumed_can_be_aborted, 0, SL_HANDOVER_STATES);
    tcase_add_loop_test(steps, every_state_ends_by_its_deadline, 0, SL_HANDOVER_STATES);
    tcase_add_loop_test(steps, what_is_lent_keeps_it_from_being_released, 0, 2);
    tcase_add_test(steps, states_have_names);
    suite_add_tcase(suite, steps);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
