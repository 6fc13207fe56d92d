/* tests/unit/density_numbers_test.c - numbers of units: whoever is wanted again gets another. */
#include "runtime/density/density_units.h"
#include "runtime/sl_base.h"

#include <check.h>

static struct sl_density *density_new(void)
{
    const struct sl_density_options options = {.ghosts_min = 8, .ghosts_max = 1u << 20};
    struct sl_density *density = NULL;
    ck_assert_int_eq(sl_density_create(&options, &density), SL_OK);
    return density;
}

static uint32_t enter(struct sl_density *density, uint64_t hash, uint64_t parent_hash)
{
    const struct reg_wanted wanted = {.parent_hash = parent_hash, .stored_count = 1};
    uint32_t unit = sl_density_enter(density, hash, (uint32_t)hash, &wanted);
    ck_assert_uint_ne(unit, 0);
    return unit;
}

START_TEST(what_is_used_gets_another_number_and_keeps_its_place_in_the_chain)
    {
        struct sl_density *density = density_new();
        for (uint64_t hash = 1; hash <= 4; hash++) {
            (void)enter(density, hash, hash - 1);
        }
        uint32_t was = sl_density_find(density, 2);
        uint32_t is = sl_density_use(density, was, REG_HINT_NONE);

        ck_assert_uint_ne(is, was);
        ck_assert_uint_eq(sl_density_find(density, 2), is);
        ck_assert(sl_density_is(density, is, 2) && !sl_density_is(density, was, 2));
        for (uint64_t hash = 5; hash-- > 1;) { /* the end of the chain first, whatever was used */
            uint32_t unit = sl_density_first(density);
            ck_assert_uint_eq(sl_density_user(density, unit), hash);
            sl_density_leave(density, unit);
        }
        sl_density_destroy(&density);
    }
END_TEST

/* What many follow keeps its number: they would have to be told. */
START_TEST(what_is_used_goes_behind_those_that_follow_it_however_many)
    {
        struct sl_density *density = density_new();
        (void)enter(density, 1, 0);
        for (uint64_t child = 2; child < 2 + (uint64_t)_i; child++) {
            (void)enter(density, child, 1);
        }
        (void)sl_density_use(density, sl_density_find(density, 1), REG_HINT_NONE);
        for (uint64_t left = (uint64_t)_i; left > 0; left--) {
            uint32_t unit = sl_density_first(density);
            ck_assert_uint_ne(sl_density_user(density, unit), 1);
            (void)sl_density_use(density, unit, REG_HINT_NONE);
            unit = sl_density_first(density);
            ck_assert_uint_ne(sl_density_user(density, unit), 1);
            sl_density_leave(density, unit);
        }
        ck_assert_uint_eq(sl_density_user(density, sl_density_first(density)), 1);
        sl_density_destroy(&density);
    }
END_TEST

/* A few units that come and go for long take few numbers, and so little memory. */
START_TEST(numbers_are_used_again)
    {
        struct sl_density *density = density_new();
        uint32_t most = 0;
        for (uint64_t hash = 1; hash <= 100000; hash++) {
            uint32_t unit = enter(density, hash, 0);
            most = SL_MAX(most, unit);
            unit = sl_density_find(density, hash - hash % 50);
            if (unit != 0) {
                unit = sl_density_use(density, unit, REG_HINT_NONE);
                most = SL_MAX(most, unit);
            }
            if (hash > 100) {
                sl_density_leave(density, sl_density_first(density));
            }
        }
        ck_assert_uint_lt(most, 1024);
        sl_density_destroy(&density);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("density_numbers");
    TCase *tcase = tcase_create("density_numbers");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, what_is_used_gets_another_number_and_keeps_its_place_in_the_chain);
    tcase_add_loop_test(tcase, what_is_used_goes_behind_those_that_follow_it_however_many, 0, 8);
    tcase_add_test(tcase, numbers_are_used_again);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
