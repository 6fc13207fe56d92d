/* tests/unit/actors/registrar/density_keep_test.c - priority and retention in the order of units by
 * density. */
#include "runtime/policy/density/density.h"

#include <check.h>
#include <stdlib.h>

#define PAGES_MAX 8u

/* In memory; 0: it is not. */
static uint32_t here(const struct sl_density *density, uint64_t hash)
{
    uint32_t unit = sl_density_find(density, hash);
    return sl_density_owns(density, unit, sl_density_user(density, unit)) ? unit : 0;
}

static struct sl_density *density_new(void)
{
    struct sl_density_options options = {.ghosts_min = 1024, .ghosts_max = 1u << 20};
    struct sl_density *density = NULL;
    ck_assert_int_eq(sl_density_create(&options, &density), SL_OK);
    sl_density_now(density, 100, PAGES_MAX);
    return density;
}

static uint32_t enter(struct sl_density *density, uint64_t hash, uint64_t parent_hash,
                      enum reg_priority priority)
{
    struct reg_wanted wanted = {
        .parent_hash = parent_hash, .stored_count = 1, .priority = priority};
    uint32_t unit = sl_density_enter(density, hash, (uint32_t)hash, &wanted);
    ck_assert_uint_ne(unit, 0);
    return unit;
}

/* A chain of hashes first, first + 1, ... Gives its last unit. */
static uint32_t chain_enter(struct sl_density *density, uint64_t first, uint32_t count)
{
    uint32_t unit = 0;
    for (uint32_t i = 0; i < count; i++) {
        unit = enter(density, first + i, i > 0 ? first + i - 1 : 0, REG_PRIORITY_NONE);
    }
    return unit;
}

static void keep(struct sl_density *density, uint32_t unit, uint32_t end_s)
{
    const struct reg_keep how = {.end_s = end_s, .pages = 1};
    sl_density_keep(density, unit, &how);
}

static bool is_kept(const struct sl_density *density, uint64_t hash)
{
    uint32_t unit = here(density, hash);
    ck_assert_uint_ne(unit, 0);
    return sl_density_note(density, unit).kept;
}

static uint64_t kept_pages(const struct sl_density *density)
{
    return sl_density_stats(density).kept_pages;
}

/* Checks that the chain of these leaves after all others, beginning with its end. */
static void check_goes_last(struct sl_density *density, uint64_t first, uint32_t count)
{
    uint32_t others = 0, seen = 0;
    for (uint32_t unit = sl_density_first(density); unit != 0;
         unit = sl_density_next(density, false)) {
        uint64_t hash = sl_density_user(density, unit);
        bool of_it = hash >= first && hash < first + count;
        ck_assert_msg(of_it || seen == 0, "%u leaves after one that is kept", (uint32_t)hash);
        if (of_it) { /* from its end */
            ck_assert_uint_eq(hash, first + count - 1 - seen);
        }
        seen += of_it ? 1 : 0;
        others += of_it ? 0 : 1;
        sl_density_leave(density, unit);
    }
    ck_assert_uint_eq(seen, count);
    ck_assert_uint_gt(others, 0);
}

START_TEST(a_kept_chain_goes_behind_all_others_from_its_end)
    {
        struct sl_density *density = density_new();
        uint32_t last = chain_enter(density, 10, 5);
        keep(density, last, 200); /* its predecessors are useful to it */
        (void)chain_enter(density, 100, 50);
        ck_assert_uint_eq(kept_pages(density), 5);
        check_goes_last(density, 10, 5);
        ck_assert_uint_eq(kept_pages(density), 0);
        sl_density_destroy(&density);
    }
END_TEST

START_TEST(a_kept_unit_stays_so_when_it_is_used_and_until_its_time)
    {
        struct sl_density *density = density_new();
        uint32_t unit = enter(density, 1, 0, REG_PRIORITY_NONE);
        keep(density, unit, 200);
        sl_density_use(density, unit, REG_HINT_NONE);
        ck_assert(is_kept(density, 1));
        sl_density_now(density, 199, PAGES_MAX);
        (void)enter(density, 2, 0, REG_PRIORITY_NONE); /* references look at the clock */
        ck_assert(is_kept(density, 1));
        sl_density_now(density, 200, PAGES_MAX);
        (void)enter(density, 3, 0, REG_PRIORITY_NONE);
        ck_assert(!is_kept(density, 1));
        ck_assert_uint_eq(kept_pages(density), 0);
        sl_density_destroy(&density);
    }
END_TEST

/* Keeps a unit for its next use. */
static void keep_once(struct sl_density *density, uint64_t hash)
{
    const struct reg_keep how = {.end_s = 200, .pages = 1, .once = true};
    sl_density_keep(density, here(density, hash), &how);
}

static void use(struct sl_density *density, uint64_t hash)
{
    sl_density_use(density, here(density, hash), REG_HINT_NONE);
}

static const struct {
    uint64_t order[4];
    uint64_t left[4]; /* pages that are kept after each */
} uses[] = {
    {{13, 12, 11, 10}, {3, 2, 1, 0}}, /* as engines note them */
    {{10, 11, 12, 13}, {3, 2, 1, 0}},
    {{11, 13, 10, 12}, {3, 2, 1, 0}},
};

START_TEST(what_is_kept_for_its_next_use_is_kept_no_more_when_it_was_used)
    {
        struct sl_density *density = density_new();
        (void)chain_enter(density, 10, 4);
        keep_once(density, 13);
        ck_assert_uint_eq(kept_pages(density), 4);
        for (uint32_t i = 0; i < 4; i++) {
            use(density, uses[_i].order[i]);
            ck_assert_uint_eq(kept_pages(density), uses[_i].left[i]);
        }
        uint32_t gone = 0; /* each is evicted once */
        for (uint32_t unit = sl_density_first(density); unit != 0;
             unit = sl_density_next(density, false)) {
            sl_density_leave(density, unit);
            gone++;
        }
        ck_assert_uint_eq(gone, 4);
        sl_density_destroy(&density);
    }
END_TEST

START_TEST(retention_outlives_a_use_that_a_session_waits_for)
    {
        struct sl_density *density = density_new();
        uint32_t end = chain_enter(density, 10, 2);
        if (_i == 0) {
            keep(density, end, 150);
            keep_once(density, 11);
        } else { /* which ends before the session returns */
            keep_once(density, 11);
            keep(density, end, 150);
        }
        use(density, 11);
        use(density, 10);
        ck_assert(is_kept(density, 10) && is_kept(density, 11));
        sl_density_destroy(&density);
    }
END_TEST

START_TEST(whose_time_is_over_is_kept_no_more_without_a_reference_too)
    {
        struct sl_density *density = density_new();
        keep(density, chain_enter(density, 10, 3), 150);
        keep(density, chain_enter(density, 20, 3), 200);
        sl_density_now(density, 150, PAGES_MAX);
        ck_assert_uint_eq(kept_pages(density), 6);
        sl_density_keep_check(density, 100);
        ck_assert_uint_eq(kept_pages(density), 3);
        ck_assert(!is_kept(density, 12) && is_kept(density, 20));
        sl_density_destroy(&density);
    }
END_TEST

START_TEST(a_later_end_counts_and_an_earlier_one_does_not)
    {
        struct sl_density *density = density_new();
        uint32_t unit = enter(density, 1, 0, REG_PRIORITY_NONE);
        keep(density, unit, 150);
        keep(density, unit, 300);
        keep(density, unit, 120);
        keep(density, unit, 99); /* it is over */
        ck_assert_uint_eq(kept_pages(density), 1);
        sl_density_now(density, 299, PAGES_MAX);
        (void)enter(density, 2, 0, REG_PRIORITY_NONE);
        ck_assert(is_kept(density, 1));
        sl_density_destroy(&density);
    }
END_TEST

START_TEST(what_is_kept_takes_its_part_of_memory_and_no_more)
    {
        struct sl_density *density = density_new();
        for (uint64_t hash = 1; hash <= 100; hash++) {
            keep(density, enter(density, hash, 0, REG_PRIORITY_NONE), 1000);
            ck_assert_uint_le(kept_pages(density), PAGES_MAX);
        }
        ck_assert_uint_eq(kept_pages(density), PAGES_MAX);
        ck_assert(is_kept(density, 100)); /* the latest hint counts */
        sl_density_now(density, 100, 2);  /* less memory: evicted soon */
        for (uint64_t hash = 101; hash <= 110; hash++) {
            (void)enter(density, hash, 0, REG_PRIORITY_NONE);
        }
        ck_assert_uint_eq(kept_pages(density), 2);
        sl_density_destroy(&density);
    }
END_TEST

/* Read from disk when the log was recovered, or prefetched: no caller has given a hint. */
START_TEST(values_read_from_disk_without_a_request_have_normal_priority)
    {
        struct sl_density *density = density_new();
        const struct sl_density_note note = {
            .hash = 1, .at = 1000, .use_count = 1, .priority = REG_PRIORITY_NORMAL};
        const struct reg_wanted how = {.stored_count = 1};
        struct sl_density_note view;
        const struct sl_density_was was = {.where = SL_DENSITY_DISK, .note = note};
        (void)sl_density_restore(density, &was);
        sl_density_disk(density, 2, true);
        sl_density_restored(density);
        for (uint64_t hash = 1; hash <= 2; hash++) {
            sl_density_disk(density, hash, false);
            uint32_t unit = sl_density_return(density, hash, (uint32_t)hash, &how, false);
            view = sl_density_note(density, unit);
            ck_assert_int_eq(view.priority, REG_PRIORITY_NORMAL);
        }
        sl_density_destroy(&density);
    }
END_TEST

START_TEST(a_restart_keeps_what_is_kept_and_its_priority)
    {
        struct sl_density *before = density_new();
        struct sl_density *after = density_new();
        struct sl_density_note notes[3];
        struct sl_density_note view;
        keep(before, chain_enter(before, 1, 2), 500);
        (void)enter(before, 3, 0, REG_PRIORITY_HIGH);
        for (uint64_t hash = 1; hash <= 3; hash++) {
            notes[hash - 1] = sl_density_note(before, here(before, hash));
        }
        for (uint64_t hash = 1; hash <= 3; hash++) {
            const struct sl_density_was was = {
                .user = (uint32_t)hash, .parent_hash = hash == 2 ? 1 : 0, .note = notes[hash - 1]};
            (void)sl_density_restore(after, &was);
        }
        sl_density_restored(after);
        ck_assert(is_kept(after, 1) && is_kept(after, 2) && !is_kept(after, 3));
        view = sl_density_note(after, here(after, 3));
        ck_assert_int_eq(view.priority, REG_PRIORITY_HIGH);
        check_goes_last(after, 1, 2);
        sl_density_destroy(&before);
        sl_density_destroy(&after);
    }
END_TEST

START_TEST(of_alike_units_those_of_low_priority_go_first)
    {
        static const enum reg_priority said[] = {REG_PRIORITY_HIGH, REG_PRIORITY_NONE,
                                                 REG_PRIORITY_LOW, REG_PRIORITY_NORMAL};
        static const uint64_t want[] = {3, 2, 4, 1};
        struct sl_density *density = density_new();
        for (uint64_t i = 0; i < SL_COUNT(said); i++) {
            (void)enter(density, i + 1, 0, said[i]);
        }
        uint32_t unit = sl_density_first(density);
        for (uint32_t i = 0; i < SL_COUNT(want); i++) {
            ck_assert_uint_eq(sl_density_user(density, unit), want[i]);
            sl_density_leave(density, unit);
            unit = sl_density_next(density, false);
        }
        sl_density_destroy(&density);
    }
END_TEST

/* The same units enter, are used and leave, whichever priority all of them have. */
START_TEST(what_all_say_changes_nothing)
    {
        struct sl_density *plain = density_new();
        struct sl_density *said = density_new();
        enum reg_priority priority = _i == 0 ? REG_PRIORITY_LOW : REG_PRIORITY_HIGH;
        for (uint64_t i = 0; i < 20000; i++) {
            uint64_t hash = 1 + (i * i * 31 + i * 17) % 997;
            uint32_t a = here(plain, hash);
            uint32_t b = here(said, hash);
            ck_assert_uint_eq(a != 0, b != 0);
            if (a != 0) {
                sl_density_use(plain, a, REG_HINT_NONE);
                sl_density_use(said, b, REG_HINT_NONE);
                sl_density_hint(said, b, REG_HINT_NONE, priority);
            } else {
                (void)enter(plain, hash, hash > 1 ? hash - 1 : 0, REG_PRIORITY_NONE);
                (void)enter(said, hash, hash > 1 ? hash - 1 : 0, priority);
            }
            if (i % 3 == 0 && i > 300) {
                a = sl_density_first(plain);
                b = sl_density_first(said);
                ck_assert_uint_eq(sl_density_user(plain, a), sl_density_user(said, b));
                sl_density_leave(plain, a);
                sl_density_leave(said, b);
            }
        }
        sl_density_destroy(&plain);
        sl_density_destroy(&said);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("density_keep");
    TCase *kept = tcase_create("kept");
    tcase_add_test(kept, a_kept_chain_goes_behind_all_others_from_its_end);
    tcase_add_test(kept, a_kept_unit_stays_so_when_it_is_used_and_until_its_time);
    tcase_add_test(kept, a_later_end_counts_and_an_earlier_one_does_not);
    tcase_add_test(kept, what_is_kept_takes_its_part_of_memory_and_no_more);
    tcase_add_test(kept, values_read_from_disk_without_a_request_have_normal_priority);
    tcase_add_loop_test(kept, what_is_kept_for_its_next_use_is_kept_no_more_when_it_was_used, 0,
                        SL_COUNT(uses));
    tcase_add_loop_test(kept, retention_outlives_a_use_that_a_session_waits_for, 0, 2);
    tcase_add_test(kept, whose_time_is_over_is_kept_no_more_without_a_reference_too);
    tcase_add_test(kept, a_restart_keeps_what_is_kept_and_its_priority);
    suite_add_tcase(suite, kept);
    TCase *priorities = tcase_create("priorities");
    tcase_add_test(priorities, of_alike_units_those_of_low_priority_go_first);
    tcase_add_loop_test(priorities, what_all_say_changes_nothing, 0, 2);
    suite_add_tcase(suite, priorities);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
