/* tests/unit/runtime/policy/sessions_test.c - when sessions return, and which of them are due
 * (runtime/policy/sessions). */
#include "runtime/base/sl_base.h"
#include "runtime/base/sl_clock.h"
#include "runtime/policy/sessions/sessions.h"

#include <check.h>

#define S         SL_NS_PER_S
#define LEARNT_NS (10000 * S)

static struct sl_sessions *made(uint32_t count_max)
{
    struct sl_sessions *sessions = NULL;
    ck_assert_int_eq(sl_sessions_create(count_max, NULL, NULL, &sessions), SL_OK);
    return sessions;
}

/* A request of three blocks; the last of them only belongs to this turn. */
static uint32_t turn(struct sl_sessions *sessions, uint64_t chain, uint64_t pause_ns,
                     uint64_t now_ns)
{
    static uint64_t last = UINT64_C(1) << 40;
    const uint64_t blocks[] = {chain * 10 + 1, chain * 10 + 2, ++last};
    const struct sl_turn how = {.blocks = blocks, .count = 3, .pause_ns = pause_ns, .load = true};
    bool fresh;
    return sl_sessions_turn(sessions, &how, now_ns, &fresh);
}

/* When the session is first due after its turn at 0; SL_NEVER_NS: not within the time. */
static uint64_t due_at(struct sl_sessions *sessions, uint64_t from_ns, uint64_t within_ns,
                       struct sl_session_due *due)
{
    for (uint64_t next_ns = sl_sessions_next_ns(sessions); next_ns < from_ns + within_ns;
         next_ns = sl_sessions_next_ns(sessions)) {
        if (sl_sessions_due(sessions, next_ns, due)) {
            return next_ns;
        }
    }
    return SL_NEVER_NS;
}

START_TEST(a_told_session_is_due_before_its_time_and_kept_beyond_it)
    {
        struct sl_sessions *sessions = made(8);
        struct sl_session_due due;
        sl_sessions_edge(sessions, 0.04, 0); /* a hit in 25 s */
        uint32_t session = turn(sessions, 1, 100 * S, 0);

        uint64_t at_ns = due_at(sessions, 0, 200 * S, &due);

        ck_assert_uint_eq(due.session, session);
        ck_assert(at_ns > 50 * S && at_ns < 100 * S);
        ck_assert(at_ns + due.for_ns > 100 * S && at_ns + due.for_ns < 130 * S);
        ck_assert(due.worth > 0.04);
        sl_sessions_destroy(&sessions);
    }
END_TEST

START_TEST(the_lead_comes_off)
    {
        uint64_t at_ns[2];
        for (uint32_t i = 0; i < 2; i++) {
            struct sl_sessions *sessions = made(8);
            struct sl_session_due due;
            sl_sessions_edge(sessions, 0.04, i * 20 * S);
            (void)turn(sessions, 1, 100 * S, 0);
            at_ns[i] = due_at(sessions, 0, 200 * S, &due);
            sl_sessions_destroy(&sessions);
        }
        ck_assert(at_ns[0] - at_ns[1] >= 17 * S && at_ns[0] - at_ns[1] <= 23 * S);
    }
END_TEST

START_TEST(nobody_is_due_when_memory_is_worth_more)
    {
        struct sl_sessions *sessions = made(8);
        struct sl_session_due due;
        sl_sessions_edge(sessions, 5, 0);
        (void)turn(sessions, 1, 100 * S, 0);

        ck_assert_uint_eq(due_at(sessions, 0, 200 * S, &due), SL_NEVER_NS);
        sl_sessions_destroy(&sessions);
    }
END_TEST

START_TEST(a_chain_that_goes_on_is_the_same_session)
    {
        struct sl_sessions *sessions = made(8);
        uint32_t first = turn(sessions, 1, 0, 0);

        ck_assert_uint_eq(turn(sessions, 1, 0, S), first);
        ck_assert_uint_ne(turn(sessions, 2, 0, S), first);
        ck_assert_uint_eq(sl_sessions_count(sessions), 2);
        sl_sessions_destroy(&sessions);
    }
END_TEST

START_TEST(a_store_goes_on_from_the_block_before_it)
    {
        struct sl_sessions *sessions = made(8);
        const uint64_t more[] = {901, 902};
        bool fresh = true;
        uint32_t first = turn(sessions, 1, 0, 0);
        const struct sl_turn store = {.blocks = more, .count = 2, .depth = 2, .before = 12};

        ck_assert_uint_eq(sl_sessions_turn(sessions, &store, S, &fresh), first);
        ck_assert(!fresh);
        sl_sessions_destroy(&sessions);
    }
END_TEST

START_TEST(a_name_is_a_session_whatever_its_blocks_are)
    {
        struct sl_sessions *sessions = made(8);
        const uint64_t one[] = {1}, other[] = {2};
        bool fresh;
        struct sl_turn how = {.id = 77, .blocks = one, .count = 1, .load = true};
        uint32_t first = sl_sessions_turn(sessions, &how, 0, &fresh);
        how.blocks = other;

        ck_assert_uint_eq(sl_sessions_turn(sessions, &how, S, &fresh), first);
        how.id = 78;
        ck_assert_uint_ne(sl_sessions_turn(sessions, &how, S, &fresh), first);
        sl_sessions_destroy(&sessions);
    }
END_TEST

START_TEST(one_block_alone_is_no_session_and_an_end_ends_one)
    {
        struct sl_sessions *sessions = made(8);
        const uint64_t blocks[] = {11, 12, 13};
        bool fresh;
        struct sl_turn how = {.blocks = blocks, .count = 1, .load = true};

        ck_assert_uint_eq(sl_sessions_turn(sessions, &how, 0, &fresh), SL_SESSION_NONE);
        uint32_t session = turn(sessions, 1, 0, 0);
        how = (struct sl_turn){.blocks = blocks, .count = 3, .ends = true};
        ck_assert_uint_eq(sl_sessions_turn(sessions, &how, S, &fresh), session);
        ck_assert(!fresh);
        ck_assert_uint_eq(sl_sessions_turn(sessions, &how, S, &fresh), SL_SESSION_NONE);
        ck_assert_uint_eq(sl_sessions_count(sessions), 0);
        sl_sessions_destroy(&sessions);
    }
END_TEST

START_TEST(the_session_that_had_no_turn_for_longest_makes_way)
    {
        struct sl_sessions *sessions = made(2);
        uint32_t first = turn(sessions, 1, 0, 0);
        uint32_t second = turn(sessions, 2, 0, S);
        (void)turn(sessions, 1, 0, 2 * S);

        ck_assert_uint_eq(sl_sessions_oldest(sessions), second);
        ck_assert_uint_eq(turn(sessions, 3, 0, 3 * S), second);
        ck_assert_uint_eq(sl_sessions_oldest(sessions), first);
        ck_assert_uint_eq(sl_sessions_count(sessions), 2);
        sl_sessions_destroy(&sessions);
    }
END_TEST

/* Sessions that announce 100 s, and return after the given time, if at all. */
static void learn(struct sl_sessions *sessions, uint32_t count, uint64_t back_ns)
{
    struct sl_session_due due;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at_ns = i * S;
        while (sl_sessions_due(sessions, at_ns, &due)) {
            sl_sessions_result(sessions, &due, false, 0, at_ns);
        }
        (void)turn(sessions, 1000 + i, 100 * S, at_ns);
        if (back_ns != 0) {
            (void)turn(sessions, 1000 + i, 0, at_ns + back_ns);
        }
    }
}

START_TEST(pauses_that_are_told_wrongly_are_believed_no_more)
    {
        struct sl_sessions *sessions = made(4096);
        struct sl_session_due due;
        learn(sessions, 500, 0);
        uint64_t now_ns = LEARNT_NS;
        sl_sessions_edge(sessions, 0.001, 0);
        uint32_t session = turn(sessions, 1, 100 * S, now_ns);

        bool is_due = false;
        for (uint64_t at_ns = now_ns; at_ns < now_ns + 200 * S; at_ns += S) {
            while (sl_sessions_due(sessions, at_ns, &due)) {
                is_due = is_due || due.session == session;
            }
        }

        ck_assert(!is_due);
        sl_sessions_destroy(&sessions);
    }
END_TEST

START_TEST(pauses_that_are_always_half_of_what_is_told_are_learnt)
    {
        struct sl_sessions *sessions = made(4096);
        struct sl_session_due due;
        learn(sessions, 500, 50 * S);
        uint64_t now_ns = 100000 * S;
        uint64_t first_ns = 0;
        sl_sessions_edge(sessions, 0.1, 0);
        uint32_t session = turn(sessions, 1, 100 * S, now_ns);

        for (uint64_t at_ns = now_ns; first_ns == 0 && at_ns < now_ns + 200 * S; at_ns += S) {
            while (sl_sessions_due(sessions, at_ns, &due)) {
                first_ns = due.session == session ? at_ns : first_ns;
            }
        }

        ck_assert(first_ns > now_ns + 30 * S && first_ns < now_ns + 50 * S);
        sl_sessions_destroy(&sessions);
    }
END_TEST

START_TEST(sessions_that_pause_as_long_as_before_are_due_without_a_word)
    {
        struct sl_sessions *sessions = made(8);
        struct sl_session_due due;
        uint64_t now_ns = 0, due_ns = 0;
        sl_sessions_edge(sessions, 0.04, 0);
        for (uint32_t i = 0; i < 200; i++, now_ns += 100 * S) {
            (void)turn(sessions, 1, 0, now_ns);
            due_ns = due_at(sessions, now_ns, 100 * S, &due);
        }

        ck_assert_msg(due_ns > now_ns - 50 * S && due_ns < now_ns, "%lu", due_ns);
        sl_sessions_destroy(&sessions);
    }
END_TEST

START_TEST(a_session_that_was_refused_is_due_again_later_and_one_that_came_is_not)
    {
        for (int here = 0; here < 2; here++) {
            struct sl_sessions *sessions = made(8);
            struct sl_session_due due, again;
            sl_sessions_edge(sessions, 0.04, 0);
            (void)turn(sessions, 1, 100 * S, 0);
            uint64_t at_ns = due_at(sessions, 0, 200 * S, &due);

            sl_sessions_result(sessions, &due, here != 0, 0.5, at_ns);
            uint64_t next_ns = due_at(sessions, at_ns, 5 * S, &again);

            ck_assert(here != 0 ? next_ns == SL_NEVER_NS : next_ns > at_ns);
            sl_sessions_destroy(&sessions);
        }
    }
END_TEST

START_TEST(the_answer_of_a_try_before_the_last_turn_is_not_taken_for_the_newer_one)
    {
        struct sl_sessions *sessions = made(8);
        struct sl_session_due old, due, again;
        sl_sessions_edge(sessions, 0.04, 0);
        (void)turn(sessions, 1, 100 * S, 0);
        uint64_t at_ns = due_at(sessions, 0, 200 * S, &old);
        (void)turn(sessions, 1, 100 * S, at_ns);
        uint64_t next_ns = due_at(sessions, at_ns, 200 * S, &due);

        sl_sessions_result(sessions, &old, true, 0.5, next_ns);
        ck_assert_uint_eq(due_at(sessions, next_ns, 200 * S, &again), SL_NEVER_NS);
        sl_sessions_result(sessions, &due, false, 0.5, next_ns);

        ck_assert_uint_ne(due_at(sessions, next_ns, 200 * S, &again), SL_NEVER_NS);
        sl_sessions_destroy(&sessions);
    }
END_TEST

static bool is_here(void *context, uint32_t session)
{
    (void)session;
    return *(const bool *)context;
}

START_TEST(what_came_and_left_before_its_time_is_due_again)
    {
        for (int stays = 0; stays < 2; stays++) {
            struct sl_sessions *sessions = NULL;
            struct sl_session_due due, again;
            bool here = true;
            ck_assert_int_eq(sl_sessions_create(8, is_here, &here, &sessions), SL_OK);
            sl_sessions_edge(sessions, 0.04, 0);
            (void)turn(sessions, 1, 100 * S, 0);
            uint64_t at_ns = due_at(sessions, 0, 200 * S, &due);
            sl_sessions_result(sessions, &due, true, 0.5, at_ns);
            ck_assert_uint_eq(due_at(sessions, at_ns, 2 * S, &again), SL_NEVER_NS);

            here = stays != 0;
            uint64_t next_ns = due_at(sessions, at_ns + 2 * S, 5 * S, &again);

            ck_assert((next_ns == SL_NEVER_NS) == here);
            sl_sessions_destroy(&sessions);
        }
    }
END_TEST

START_TEST(when_room_is_short_sessions_are_due_later)
    {
        uint64_t at_ns[2];
        for (uint32_t full = 0; full < 2; full++) {
            struct sl_sessions *sessions = made(64);
            struct sl_session_due due;
            sl_sessions_edge(sessions, 0.02, 0);
            for (uint32_t i = 0; i < 200; i++) {
                const struct sl_session_due none = {.session = 0};
                sl_sessions_result(sessions, &none, false, full != 0 ? 1.5 : 0.0, 0);
            }
            (void)turn(sessions, 1, 100 * S, 0);
            at_ns[full] = due_at(sessions, 0, 200 * S, &due);
            sl_sessions_destroy(&sessions);
        }
        ck_assert_msg(at_ns[1] > at_ns[0], "%lu and %lu", at_ns[0], at_ns[1]);
    }
END_TEST

/* A turn of the session with that name; load: it asks for blocks. */
static uint32_t named_turn(struct sl_sessions *sessions, uint64_t id, bool load, uint64_t pause_ns,
                           uint64_t now_ns)
{
    const uint64_t one[] = {id};
    const struct sl_turn how = {
        .id = id, .blocks = one, .count = 1, .pause_ns = pause_ns, .load = load};
    bool fresh;
    return sl_sessions_turn(sessions, &how, now_ns, &fresh);
}

static const struct {
    double edge;
    uint64_t at_first_ns; /* hint with the turn at 0; 0: none */
    uint64_t told_at_ns, report_ns;
    uint64_t from_ns, until_ns; /* then it is due between these */
} tellings[] = {
    {0.04, 0, 10 * S, 90 * S, 50 * S, 100 * S},
    {0.1, 100 * S, 10 * S, 20 * S, 20 * S, 30 * S},        /* earlier than announced */
    {0.02, 20 * S, 10 * S, 200 * S, 110 * S, 210 * S},     /* later */
    {0.04, 100 * S, 3000 * S, 40 * S, 3020 * S, 3040 * S}, /* no less exact in a long pause */
    {0.04, 100 * S, 10 * S, 0, 10 * S, 11 * S},            /* it is over */
    {0.04, 100 * S, 10 * S, SL_SESSION_PAUSE_UNKNOWN, SL_NEVER_NS, SL_NEVER_NS},
};
START_TEST(what_is_told_in_a_pause_counts_from_then_on)
    {
        struct sl_sessions *sessions = made(8);
        struct sl_session_due due;
        const uint64_t at_ns = tellings[_i].told_at_ns;
        sl_sessions_edge(sessions, tellings[_i].edge, 0);
        (void)named_turn(sessions, 77, true, tellings[_i].at_first_ns, 0);

        ck_assert(!sl_sessions_report_pause(sessions, 78, S, at_ns));
        ck_assert(sl_sessions_report_pause(sessions, 77, tellings[_i].report_ns, at_ns));

        uint64_t due_ns = due_at(sessions, at_ns, 300 * S, &due);
        ck_assert_msg(due_ns >= tellings[_i].from_ns && due_ns <= tellings[_i].until_ns, "%lu",
                      due_ns);
        sl_sessions_destroy(&sessions);
    }
END_TEST

START_TEST(a_store_that_ends_in_a_told_pause_does_not_move_its_end)
    {
        struct sl_sessions *sessions = made(8);
        struct sl_session_due due;
        sl_sessions_edge(sessions, 0.04, 0);
        (void)named_turn(sessions, 77, true, 0, 0);
        (void)sl_sessions_report_pause(sessions, 77, 40 * S, S);

        (void)named_turn(sessions, 77, false, 0, 21 * S);

        uint64_t due_ns = due_at(sessions, 21 * S, 100 * S, &due);
        ck_assert_msg(due_ns > 25 * S && due_ns < 41 * S, "%lu", due_ns);
        sl_sessions_destroy(&sessions);
    }
END_TEST

/* Every 100 s, in a pause of 50 s, sessions get the hint that the pause is over. Returns whether
 * the last one is due within 10 s. back_ns: when they return after that hint. */
static bool over_is_believed(uint64_t back_ns)
{
    struct sl_sessions *sessions = made(4096);
    struct sl_session_due due;
    uint64_t now_ns = 0;
    bool believed = false;
    sl_sessions_edge(sessions, 0.04, 0);
    for (uint32_t i = 0; i < 500; i++, now_ns += 100 * S) {
        (void)named_turn(sessions, 77, true, 100 * S, now_ns);
        (void)sl_sessions_report_pause(sessions, 77, 0, now_ns + 50 * S);
        believed = due_at(sessions, now_ns + 50 * S, 10 * S, &due) < now_ns + 60 * S;
        (void)named_turn(sessions, 77, true, 0, now_ns + 50 * S + back_ns);
    }
    sl_sessions_destroy(&sessions);
    return believed;
}

START_TEST(whoever_says_wrongly_that_pauses_are_over_is_believed_no_more)
    {
        ck_assert(over_is_believed(S));
        ck_assert(!over_is_believed(45 * S));
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("sessions");
    TCase *tcase = tcase_create("sessions");
    tcase_add_test(tcase, a_told_session_is_due_before_its_time_and_kept_beyond_it);
    tcase_add_test(tcase, the_lead_comes_off);
    tcase_add_test(tcase, nobody_is_due_when_memory_is_worth_more);
    tcase_add_test(tcase, a_chain_that_goes_on_is_the_same_session);
    tcase_add_test(tcase, a_store_goes_on_from_the_block_before_it);
    tcase_add_test(tcase, a_name_is_a_session_whatever_its_blocks_are);
    tcase_add_test(tcase, one_block_alone_is_no_session_and_an_end_ends_one);
    tcase_add_test(tcase, the_session_that_had_no_turn_for_longest_makes_way);
    tcase_add_test(tcase, pauses_that_are_told_wrongly_are_believed_no_more);
    tcase_add_test(tcase, pauses_that_are_always_half_of_what_is_told_are_learnt);
    tcase_add_test(tcase, sessions_that_pause_as_long_as_before_are_due_without_a_word);
    tcase_add_test(tcase, a_session_that_was_refused_is_due_again_later_and_one_that_came_is_not);
    tcase_add_test(tcase, the_answer_of_a_try_before_the_last_turn_is_not_taken_for_the_newer_one);
    tcase_add_test(tcase, what_came_and_left_before_its_time_is_due_again);
    tcase_add_test(tcase, when_room_is_short_sessions_are_due_later);
    tcase_add_loop_test(tcase, what_is_told_in_a_pause_counts_from_then_on, 0,
                        (int)SL_COUNT(tellings));
    tcase_add_test(tcase, a_store_that_ends_in_a_told_pause_does_not_move_its_end);
    tcase_add_test(tcase, whoever_says_wrongly_that_pauses_are_over_is_believed_no_more);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
