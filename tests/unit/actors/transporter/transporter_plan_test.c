/* tests/unit/actors/transporter/transporter_plan_test.c - limits and boundaries of memory regions.
 */
#include "runtime/net/fabric/core/plan.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *variable;
    uint64_t setting, device, want;
    bool clamped;
} limits[] = {
    {NULL, 0, 0, 4 * SL_GIB, false},
    {"", 0, 0, 4 * SL_GIB, false},
    {"0", 0, 0, 4 * SL_GIB, false},
    {"1073741824", 0, 0, SL_GIB, false},
    {"6442450944", 0, 0, 6 * SL_GIB, false},
    {"2GiB", 0, 0, 2 * SL_GIB, false},
    {"1073741823", 0, 0, SL_GIB, true},
    {"1", 0, 0, SL_GIB, true},
    {"6442450945", 0, 0, 6 * SL_GIB, true},
    {"1099511627776", 0, 0, 6 * SL_GIB, true},
    {"99999999999999999999999999", 0, 0, 6 * SL_GIB, true},
    {NULL, 0, 2 * SL_GIB, 2 * SL_GIB, false},
    {NULL, 0, 8 * SL_GIB, 4 * SL_GIB, false},
    {"garbage", 65536, 0, 65536, false}, /* the setting wins, the variable is not looked at */
    {NULL, 8 * SL_GIB, 0, 8 * SL_GIB, false},
    {NULL, 8 * SL_GIB, SL_GIB, SL_GIB, false},
};

START_TEST(limit_follows_setting_variable_and_device)
    {
        struct sl_mr_sources sources = {.setting_bytes = limits[_i].setting,
                                        .variable = limits[_i].variable,
                                        .device_bytes_max = limits[_i].device};
        struct sl_mr_limit got;
        struct sl_error why = {0};

        ck_assert_msg(sl_mr_limit_of(&sources, &got, &why) == SL_OK, "%s", why.text);

        ck_assert_uint_eq(got.bytes, limits[_i].want);
        ck_assert(got.clamped == limits[_i].clamped);
    }
END_TEST

static const char *const garbage[] = {"garbage", "-1", "4GiBs", " ", "0x100", "1e9"};

START_TEST(garbage_in_the_variable_is_named)
    {
        struct sl_mr_sources sources = {.variable = garbage[_i]};
        struct sl_mr_limit got;
        struct sl_error why = {0};

        ck_assert_int_eq(sl_mr_limit_of(&sources, &got, &why), SL_ERR_CONFIG);

        ck_assert_msg(strstr(why.text, "MC_MAX_MR_SIZE") != NULL &&
                          strstr(why.text, garbage[_i]) != NULL,
                      "%s", why.text);
    }
END_TEST

START_TEST(limits_below_a_page_are_refused)
    {
        struct sl_mr_sources small = {.setting_bytes = 4095}, device = {.device_bytes_max = 100};
        struct sl_mr_limit got;

        ck_assert_int_eq(sl_mr_limit_of(&small, &got, NULL), SL_ERR_CONFIG);
        ck_assert_int_eq(sl_mr_limit_of(&device, &got, NULL), SL_ERR_CONFIG);
    }
END_TEST

static const struct {
    uint64_t total, unit, limit; /* unit: chunk or stride */
    bool pool;
    uint64_t count, first, last;
} cuts[] = {
    {10 * SL_GIB, SL_GIB, 4 * SL_GIB, false, 10, SL_GIB, SL_GIB},
    {SL_GIB + 4096, SL_GIB, 4 * SL_GIB, false, 2, SL_GIB, 4096},
    {100 * SL_MIB, 64 * SL_MIB, 4 * SL_GIB, false, 2, 64 * SL_MIB, 36 * SL_MIB},
    {100000 * 4096, 50000 * 4096, 30000 * 4096 + 5, false, 4, 30000 * 4096,
     20000 * 4096}, /* a chunk over the limit */
    {0, SL_GIB, 4 * SL_GIB, false, 0, 0, 0},
    {10000, 1000, 3500, true, 4, 3000, 1000},
    {10000, 1000, 1000, true, 10, 1000, 1000},
    {9 * SL_GIB, 3 * SL_MIB, 4 * SL_GIB, true, 3, 1365 * 3 * SL_MIB, 0},
    {5000, 10000, 20000, true, 1, 5000, 5000},
    {30000, 15000, 8192, true, 4, 8192, 6808}, /* a block over the limit */
};

START_TEST(cuts_cover_all_and_straddle_nothing)
    {
        uint64_t at = 0, count = 0, end = 0, last = 0;
        struct sl_mr_cut cut;
        bool (*next)(uint64_t, uint64_t, uint64_t, uint64_t *, struct sl_mr_cut *) =
            cuts[_i].pool ? sl_mr_next_of_pool : sl_mr_next_of_arena;

        while (next(cuts[_i].total, cuts[_i].unit, cuts[_i].limit, &at, &cut)) {
            ck_assert_uint_eq(cut.offset_bytes, end);
            ck_assert_uint_le(cut.length_bytes, cuts[_i].limit);
            ck_assert_uint_gt(cut.length_bytes, 0);
            if (cuts[_i].pool && cuts[_i].unit <= cuts[_i].limit) {
                ck_assert_uint_eq(cut.offset_bytes % cuts[_i].unit, 0);
            }
            if (!cuts[_i].pool) { /* within one chunk */
                ck_assert_uint_eq(cut.offset_bytes / cuts[_i].unit,
                                  (cut.offset_bytes + cut.length_bytes - 1) / cuts[_i].unit);
            }
            if (count++ == 0) {
                ck_assert_uint_eq(cut.length_bytes, cuts[_i].first);
            }
            last = cut.length_bytes;
            end += cut.length_bytes;
        }

        ck_assert_uint_eq(end, cuts[_i].total);
        ck_assert_uint_eq(count, cuts[_i].count);
        if (cuts[_i].last != 0) {
            ck_assert_uint_eq(last, cuts[_i].last);
        }
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("transporter_plan");
    TCase *cases = tcase_create("plan");
    tcase_add_loop_test(cases, limit_follows_setting_variable_and_device, 0, SL_COUNT(limits));
    tcase_add_loop_test(cases, garbage_in_the_variable_is_named, 0, SL_COUNT(garbage));
    tcase_add_test(cases, limits_below_a_page_are_refused);
    tcase_add_loop_test(cases, cuts_cover_all_and_straddle_nothing, 0, SL_COUNT(cuts));
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
