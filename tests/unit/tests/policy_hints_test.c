/* tests/unit/tests/policy_hints_test.c - the session hints of a replay's engine. */
#include "runtime/base/sl_base.h"
#include "tests/bench/policy/hints.h"

#include <check.h>
#include <stdlib.h>

/* Three sessions. The last block of a request is partial: its continuation has a different one. */
static uint32_t ids[] = {1, 2, 3, /**/ 10, 11, /**/ 1, 2, 4, 5, /**/ 20, /**/ 1, 2, 4, 6};
static struct replay_request requests[] = {{.first_id = 0, .id_count = 3},
                                           {.first_id = 3, .id_count = 2},
                                           {.first_id = 5, .id_count = 4},
                                           {.first_id = 9, .id_count = 1},
                                           {.first_id = 10, .id_count = 4}};
static const struct replay_trace trace = {.requests = requests,
                                          .ids = ids,
                                          .request_count = SL_COUNT(requests),
                                          .id_count = SL_COUNT(ids)};

START_TEST(a_session_ends_where_no_later_request_extends_it)
    {
        static const unsigned char want[] = {0, 1, 0, 1, 1};

        unsigned char *ends = replay_ends(&trace);

        ck_assert_ptr_nonnull(ends);
        ck_assert_mem_eq(ends, want, sizeof(want));
        free(ends);
    }
END_TEST

static const struct {
    enum replay_hints_kind kind;
    double share;
    enum sl_session at_end, at_others; /* when the share is 0 or 1 */
} rows[] = {
    {REPLAY_HINTS_NONE, 1, SL_SESSION_UNKNOWN, SL_SESSION_UNKNOWN},
    {REPLAY_HINTS_ENDS, 0, SL_SESSION_UNKNOWN, SL_SESSION_UNKNOWN},
    {REPLAY_HINTS_ENDS, 1, SL_SESSION_ENDS, SL_SESSION_UNKNOWN},
    {REPLAY_HINTS_ALL, 0, SL_SESSION_CONTINUES, SL_SESSION_ENDS},
    {REPLAY_HINTS_ALL, 1, SL_SESSION_ENDS, SL_SESSION_CONTINUES},
};

START_TEST(what_is_said_follows_the_share)
    {
        const struct replay_hints_options options = {
            .kind = rows[_i].kind, .share = rows[_i].share, .seed = 7};
        for (uint64_t request = 0; request < 1000; request++) {
            ck_assert_int_eq(replay_hint(&options, true, request), rows[_i].at_end);
            ck_assert_int_eq(replay_hint(&options, false, request), rows[_i].at_others);
        }
    }
END_TEST

START_TEST(a_seed_draws_the_same_and_another_one_others)
    {
        struct replay_hints_options options = {.kind = REPLAY_HINTS_ENDS, .share = 0.3, .seed = 1};
        struct replay_hints_options other = options;
        uint32_t told = 0, alike = 0;
        other.seed = 2;
        for (uint64_t request = 0; request < 10000; request++) {
            enum sl_session said = replay_hint(&options, true, request);
            ck_assert_int_eq(said, replay_hint(&options, true, request));
            told += said == SL_SESSION_ENDS;
            alike += said == replay_hint(&other, true, request);
        }
        ck_assert_uint_ge(told, 2800);
        ck_assert_uint_le(told, 3200);
        ck_assert_uint_ge(alike, 5500); /* 0.3^2 + 0.7^2 of them, by chance */
        ck_assert_uint_le(alike, 6100);
        /* As a replay draws (replay_parts_test.py). */
        ck_assert_double_eq_tol(replay_drawn(1, 0), 0.323895924592, 1e-12);
        ck_assert_double_eq_tol(replay_drawn(1, 12030), 0.812080492774, 1e-12);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("policy_hints");
    TCase *tcase = tcase_create("hints");
    tcase_add_test(tcase, a_session_ends_where_no_later_request_extends_it);
    tcase_add_loop_test(tcase, what_is_said_follows_the_share, 0, SL_COUNT(rows));
    tcase_add_test(tcase, a_seed_draws_the_same_and_another_one_others);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
