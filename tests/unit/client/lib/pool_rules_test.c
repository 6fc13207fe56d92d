/* tests/unit/client/lib/pool_rules_test.c - which side creates a pool, which mappings are needed,
 * what the modes allow: every input, and random ones against a simple model. */
#include "client/include/sluice.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- who creates it ---- */

/* [profiling][host blocks][storage][split] */
static const enum sl_pool_creator creators[2][2][2][2] = {
    {{{SL_POOL_BY_ENGINE, SL_POOL_BY_SLUICE}, {SL_POOL_BY_SLUICE, SL_POOL_BY_SLUICE}},
     {{SL_POOL_BY_SLUICE, SL_POOL_BY_SLUICE}, {SL_POOL_BY_SLUICE, SL_POOL_BY_SLUICE}}},
    {{{SL_POOL_BY_ENGINE, SL_POOL_BY_ENGINE}, {SL_POOL_BY_ENGINE, SL_POOL_BY_ENGINE}},
     {{SL_POOL_BY_ENGINE, SL_POOL_BY_ENGINE}, {SL_POOL_BY_ENGINE, SL_POOL_BY_ENGINE}}}};

START_TEST(every_situation_has_one_creator)
    {
        static const uint64_t host_blocks[2][2] = {{0, 0}, {1, UINT64_MAX}};
        for (unsigned i = 0; i < 32; i++) {
            bool profiling = i & 1, host = i >> 1 & 1, storage = i >> 2 & 1, split = i >> 3 & 1;
            struct sl_pool_situation situation = {.profiling = profiling,
                                                  .host_blocks = host_blocks[host][i >> 4],
                                                  .storage = storage,
                                                  .split = split};
            ck_assert_int_eq(sl_pool_owner_decide(&situation),
                             creators[profiling][host][storage][split]);
        }
    }
END_TEST

/* ---- required bytes ---- */

#define TOP UINT64_MAX
static const struct {
    struct sl_pool_buffer buffers[5];
    uint32_t count;
    sl_err want;
    uint64_t bytes;
    const char *word; /* of the error */
} sums[] = {
    {.count = 0, .bytes = 0},
    {.buffers = {{4096, 100}}, .count = 1, .bytes = 100},
    {.buffers = {{0, 0}}, .count = 1, .bytes = 0},   /* missing */
    {.buffers = {{0, 100}}, .count = 1, .bytes = 0}, /* whatever it says of its length */
    {.buffers = {{4096, 0}}, .count = 1, .bytes = 0},
    {.buffers = {{4096, 100}, {8192, 50}}, .count = 2, .bytes = 150},
    {.buffers = {{8192, 50}, {4096, 100}}, .count = 2, .bytes = 150},
    {.buffers = {{4096, 100}, {4096, 100}}, .count = 2, .bytes = 100}, /* the same one */
    {.buffers = {{4096, 50}, {4096, 100}, {4096, 1}}, .count = 3, .bytes = 100},
    {.buffers = {{4096, 100}, {4196, 50}}, .count = 2, .bytes = 150}, /* they adjoin */
    {.buffers = {{4096, 101}, {4196, 50}}, .count = 2, .want = SL_ERR_INVALID, .word = "0 and 1"},
    {.buffers = {{4196, 50}, {4096, 101}}, .count = 2, .want = SL_ERR_INVALID, .word = "1 and 0"},
    {.buffers = {{4096, 100}, {4100, 10}}, .count = 2, .want = SL_ERR_INVALID, .word = "overlap"},
    /* the shorter of two equal starts would not overlap, the longer one does */
    {.buffers = {{4096, 50}, {4096, 100}, {4150, 10}},
     .count = 3,
     .want = SL_ERR_INVALID,
     .word = "1 and 2"},
    {.buffers = {{0, 100}, {4096, 0}, {4090, 10}}, .count = 3, .bytes = 10}, /* empty: no overlap */
    {.buffers = {{TOP, 1}}, .count = 1, .want = SL_ERR_INVALID, .word = "buffer 0"},
    {.buffers = {{TOP - 1, 1}}, .count = 1, .bytes = 1},
    {.buffers = {{4096, TOP}}, .count = 1, .want = SL_ERR_INVALID, .word = "buffer 0"},
    {.buffers = {{1, TOP - 1}}, .count = 1, .bytes = TOP - 1},
    {.buffers = {{1, 10}, {TOP, 2}}, .count = 2, .want = SL_ERR_INVALID, .word = "buffer 1"},
};

START_TEST(required_bytes_are_those_of_distinct_buffers)
    {
        struct sl_error why = {0};
        uint64_t bytes = 77;

        sl_err got = sl_pool_required_bytes(sums[_i].buffers, sums[_i].count, &bytes, &why);

        ck_assert_msg(got == sums[_i].want, "%s: %s", sl_err_name(got), why.text);
        ck_assert_uint_eq(bytes, got == SL_OK ? sums[_i].bytes : 77);
        if (sums[_i].word != NULL) {
            ck_assert_msg(strstr(why.text, sums[_i].word) != NULL, "%s", why.text);
        }
    }
END_TEST

START_TEST(too_many_buffers_are_a_limit)
    {
        static struct sl_pool_buffer many[SL_POOL_BUFFERS_MAX + 1];
        uint64_t bytes;
        ck_assert_int_eq(sl_pool_required_bytes(many, SL_POOL_BUFFERS_MAX, &bytes, NULL), SL_OK);
        ck_assert_int_eq(sl_pool_required_bytes(many, SL_POOL_BUFFERS_MAX + 1, &bytes, NULL),
                         SL_ERR_LIMIT);
    }
END_TEST

static const struct {
    struct sl_pool_buffer mapped[3];
    uint32_t count;
    struct sl_pool_buffer late;
    sl_err want;
} lates[] = {
    {.mapped = {{4096, 100}}, .count = 1, .late = {4096, 100}},
    {.mapped = {{4096, 100}}, .count = 1, .late = {4100, 10}},
    {.mapped = {{4096, 100}}, .count = 1, .late = {4096, 101}, .want = SL_ERR_INVALID},
    {.mapped = {{4096, 100}}, .count = 1, .late = {4095, 2}, .want = SL_ERR_INVALID},
    {.mapped = {{4096, 100}}, .count = 1, .late = {4196, 1}, .want = SL_ERR_INVALID},
    {.mapped = {{4196, 50}, {4096, 100}}, .count = 2, .late = {4150, 96}}, /* they adjoin */
    {.mapped = {{4197, 50}, {4096, 100}}, .count = 2, .late = {4150, 90}, .want = SL_ERR_INVALID},
    {.mapped = {{4096, 10}, {4096, 100}}, .count = 2, .late = {4150, 40}},
    {.mapped = {{4096, 100}}, .count = 1, .late = {0, 10}, .want = SL_ERR_INVALID},
    {.mapped = {{4096, 100}}, .count = 1, .late = {4096, 0}, .want = SL_ERR_INVALID},
    {.mapped = {{4096, 100}}, .count = 1, .late = {TOP, 2}, .want = SL_ERR_INVALID},
    {.count = 0, .late = {4096, 1}, .want = SL_ERR_INVALID},
};

START_TEST(a_late_registration_lies_in_what_is_mapped)
    {
        struct sl_error why = {0};
        sl_err got = sl_pool_buffer_check(lates[_i].mapped, lates[_i].count, lates[_i].late, &why);
        ck_assert_msg(got == lates[_i].want, "%s: %s", sl_err_name(got), why.text);
    }
END_TEST

static uint64_t random_next(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
    uint64_t z = *state;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* By bytes: the owner of each address, and since which start. */
#define SPACE 64u
static sl_err naive_required(const struct sl_pool_buffer *buffers, uint32_t count, uint64_t *bytes)
{
    uint64_t start_of[SPACE] = {0};
    *bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (uint64_t at = 0; buffers[i].start_addr != 0 && at < buffers[i].length_bytes; at++) {
            uint64_t *start = &start_of[buffers[i].start_addr + at];
            if (*start != 0 && *start != buffers[i].start_addr) {
                return SL_ERR_INVALID;
            }
            *bytes += *start == 0;
            *start = buffers[i].start_addr;
        }
    }
    return SL_OK;
}

static sl_err naive_check(const struct sl_pool_buffer *buffers, uint32_t count,
                          struct sl_pool_buffer late)
{
    bool there[SPACE] = {false};
    for (uint32_t i = 0; i < count; i++) {
        for (uint64_t at = 0; buffers[i].start_addr != 0 && at < buffers[i].length_bytes; at++) {
            there[buffers[i].start_addr + at] = true;
        }
    }
    bool good = late.start_addr != 0 && late.length_bytes != 0;
    for (uint64_t at = 0; at < late.length_bytes; at++) {
        good = good && there[late.start_addr + at];
    }
    return good ? SL_OK : SL_ERR_INVALID;
}

START_TEST(random_buffers_agree_with_a_naive_model)
    {
        uint64_t seed = 20260721, fine = 0, refused = 0;
        for (unsigned round = 0; round < 200000; round++) {
            struct sl_pool_buffer buffers[6], late;
            uint32_t count = (uint32_t)(random_next(&seed) % 6);
            for (uint32_t i = 0; i < count; i++) {
                buffers[i].start_addr = random_next(&seed) % 48;
                buffers[i].length_bytes = random_next(&seed) % 12;
            }
            late.start_addr = random_next(&seed) % 48;
            late.length_bytes = random_next(&seed) % 16;
            uint64_t want_bytes = 0, got_bytes = 0;
            sl_err want = naive_required(buffers, count, &want_bytes);
            sl_err got = sl_pool_required_bytes(buffers, count, &got_bytes, NULL);
            ck_assert_msg(got == want && (got != SL_OK || got_bytes == want_bytes), "round %u",
                          round);
            ck_assert_msg(sl_pool_buffer_check(buffers, count, late, NULL) ==
                              naive_check(buffers, count, late),
                          "round %u", round);
            fine += got == SL_OK;
            refused += got != SL_OK;
        }
        ck_assert_uint_gt(fine, 10000);
        ck_assert_uint_gt(refused, 10000);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("pool_rules");
    TCase *cases = tcase_create("rules");
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, every_situation_has_one_creator);
    tcase_add_loop_test(cases, required_bytes_are_those_of_distinct_buffers, 0, SL_COUNT(sums));
    tcase_add_test(cases, too_many_buffers_are_a_limit);
    tcase_add_loop_test(cases, a_late_registration_lies_in_what_is_mapped, 0, SL_COUNT(lates));
    tcase_add_test(cases, random_buffers_agree_with_a_naive_model);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
