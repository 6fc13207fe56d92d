/* tests/unit/ipc/shm/prealloc_test.c - extents granted in advance: sizes that take turns keep their
 * rows. */
#include "ipc/msg/sl_prealloc.h"
#include "runtime/base/sl_clock.h"

#include <check.h>
#include <stdlib.h>

static struct sl_prealloc ahead; /* Check forks: each test has an empty one */

static uint32_t wish(uint32_t size, uint64_t at_ns)
{
    return sl_prealloc_request_count(&ahead, size * SL_KIB, 1, at_ns);
}

static void arrive(uint32_t size, uint32_t life)
{
    const struct sl_item_grant grant = {.ref = size, .generation = size};
    sl_prealloc_add(&ahead, size * SL_KIB, &grant, 1, life, 1);
}

static bool take(uint32_t size, uint32_t life)
{
    struct sl_prealloc_extent extent;
    return sl_prealloc_take(&ahead, size * SL_KIB, life, &extent);
}

/* As many sizes as there are rows, all of which become empty in between. */
START_TEST(sizes_that_take_turns_are_all_wanted_again)
    {
        for (uint32_t size = 1; size <= SL_PREALLOC_CLASSES; size++) {
            ck_assert_uint_eq(wish(size, size), 0); /* the first use of a size proves nothing */
        }
        for (uint32_t size = 1; size <= SL_PREALLOC_CLASSES; size++) {
            ck_assert_uint_gt(wish(size, 100 + size), 0);
        }
    }
END_TEST

START_TEST(one_size_more_takes_the_row_that_was_not_wanted_for_longest)
    {
        for (uint32_t size = 1; size <= SL_PREALLOC_CLASSES; size++) {
            (void)wish(size, size);
        }
        arrive(1, 0); /* it has extents, so its row stays */

        (void)wish(SL_PREALLOC_CLASSES + 1, 50);

        ck_assert(take(1, 0));
        ck_assert_uint_gt(wish(SL_PREALLOC_CLASSES + 1, 60), 0);
        ck_assert_uint_gt(wish(3, 70), 0);
        ck_assert_uint_eq(wish(2, 80), 0);
    }
END_TEST

START_TEST(extents_of_another_life_of_the_memory_are_dropped)
    {
        (void)wish(1, 1);
        arrive(1, 6);
        arrive(1, 7);

        ck_assert(take(1, 7));
        ck_assert(!take(1, 6));
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("ahead");
    TCase *all = tcase_create("all");
    tcase_add_test(all, sizes_that_take_turns_are_all_wanted_again);
    tcase_add_test(all, one_size_more_takes_the_row_that_was_not_wanted_for_longest);
    tcase_add_test(all, extents_of_another_life_of_the_memory_are_dropped);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
