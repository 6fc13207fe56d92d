/* tests/unit/transporter_plan_test.c - limits and cuts of memory regions, the choice of NIC, the
 * list of GPUs. */
#include "actors/transporter/regions/gpus.h"
#include "runtime/fabric/core/plan.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static const struct sl_gpu machine[] = {{"GPU-aaaa1111-0000", 0},
                                        {"GPU-aaaa2222-0000", 1},
                                        {"GPU-bbbb0000-0000", 2},
                                        {"GPU-cccc0000-0000", 3}};

static const struct {
    const char *list, *visible;
    uint32_t rank;
    int64_t registered;
    const char *want; /* NULL: an error that names `error` */
    const char *error;
} nics[] = {
    {"", NULL, 0, -1, "", NULL},
    {NULL, NULL, 0, -1, "", NULL},
    {"mlx5_0", NULL, 7, -1, "mlx5_0", NULL}, /* one entry serves all */
    {" mlx5_0 ", "3", 0, -1, "mlx5_0", NULL},
    {"a,b,c,d", "2,3", 0, -1, "c", NULL}, /* physical index, not rank */
    {"a,b,c,d", "2,3", 1, -1, "d", NULL},
    {"a, b ,c,d", " 1 ,3", 0, -1, "b", NULL},
    {"a,b,c,d", "GPU-bbbb0000-0000,GPU-aaaa1111-0000", 0, -1, "c", NULL},
    {"a,b,c,d", "GPU-bbbb,GPU-aaaa1", 1, -1, "a", NULL}, /* shortened, still one */
    {"a,b,c,d", NULL, 0, 3, "d", NULL},
    {"a,b,c,d", "0", 0, 3, "d", NULL}, /* the engine knows better */
    {"a,b", "2,3", 0, -1, NULL, "2 entries"},
    {"a,b", NULL, 0, 9, NULL, "2 entries"},
    {"a,b", NULL, 0, -1, NULL, "is unknown"},
    {"a,b", "0", 1, -1, NULL, "no entry for rank 1"},
    {"a,b", "", 0, -1, NULL, "no entry for rank 0"},
    {"a,,c", "0", 0, -1, NULL, "entry 1"},
    {"a,", "0", 0, -1, NULL, "entry 1"},
    {",", NULL, 0, -1, NULL, "entry 0"},
    {" ", NULL, 0, -1, NULL, "entry 0"},
    {"a,b", "GPU-dddd", 0, -1, NULL, "no GPU"},
    {"a,b", "GPU-aaaa", 0, -1, NULL, "more than one"},
    {"a,b", "MIG-1234", 0, -1, NULL, "no GPU"},
    {"a,b", "-1", 0, -1, NULL, "no GPU"},
    {"a,b", "99999999999", 0, -1, NULL, "no GPU"},
};

START_TEST(nic_follows_the_physical_gpu)
    {
        struct sl_nic_sources sources = {.list = nics[_i].list,
                                         .rank = nics[_i].rank,
                                         .visible_devices = nics[_i].visible,
                                         .gpus = machine,
                                         .gpu_count = SL_COUNT(machine),
                                         .registered_index = nics[_i].registered};
        char got[SL_NIC_NAME_BYTES] = "untouched";
        struct sl_error why = {0};

        sl_err err = sl_nic_choose(&sources, got, &why);

        if (nics[_i].want != NULL) {
            ck_assert_msg(err == SL_OK, "%s", why.text);
            ck_assert_str_eq(got, nics[_i].want);
        } else {
            ck_assert_int_eq(err, SL_ERR_CONFIG);
            ck_assert_msg(strstr(why.text, nics[_i].error) != NULL, "%s", why.text);
            ck_assert_str_eq(got, "untouched");
        }
    }
END_TEST

START_TEST(gpus_are_listed_in_the_order_of_their_addresses)
    {
        char root[] = "/tmp/sluice-gpus-XXXXXX", path[128];
        static const char *const addresses[] = {"0000:41:00.0", "0000:01:00.0"};
        struct sl_gpu gpus[SL_GPUS_MAX];
        ck_assert_ptr_nonnull(mkdtemp(root));
        for (size_t i = 0; i < SL_COUNT(addresses); i++) {
            snprintf(path, sizeof(path), "%s/%s", root, addresses[i]);
            ck_assert_int_eq(mkdir(path, 0700), 0);
            snprintf(path, sizeof(path), "%s/%s/information", root, addresses[i]);
            FILE *file = fopen(path, "w");
            fprintf(file, "Model: \t\t X\nIRQ:   \t\t 1\nGPU UUID: \t GPU-%zu\nVideo BIOS: \t 1\n",
                    i);
            fclose(file);
        }

        uint32_t count = sl_gpus_list(root, gpus);

        ck_assert_uint_eq(count, 2);
        ck_assert_str_eq(gpus[0].uuid, "GPU-1");
        ck_assert_uint_eq(gpus[0].index, 0);
        ck_assert_str_eq(gpus[1].uuid, "GPU-0");
        ck_assert_uint_eq(gpus[1].index, 1);
        ck_assert_uint_eq(sl_gpus_list("/nowhere", gpus), 0);
        for (size_t i = 0; i < SL_COUNT(addresses); i++) {
            snprintf(path, sizeof(path), "%s/%s/information", root, addresses[i]);
            unlink(path);
            snprintf(path, sizeof(path), "%s/%s", root, addresses[i]);
            rmdir(path);
        }
        rmdir(root);
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
    tcase_add_loop_test(cases, nic_follows_the_physical_gpu, 0, SL_COUNT(nics));
    tcase_add_test(cases, gpus_are_listed_in_the_order_of_their_addresses);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
