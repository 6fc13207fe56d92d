/* tests/unit/tests/policy_model_test.c - hits of policies and disks on traces small enough to
 * count. */
#include "runtime/policy/density/density.h"
#include "tests/bench/policy/model.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A request a row: its blocks, ended by 0. One request a second. */
typedef uint32_t row[9];

static struct replay_trace trace_of(const row *rows, uint32_t count)
{
    struct replay_trace trace = {0};
    for (uint32_t i = 0; i < count; i++) {
        char line[256] = "";
        struct sl_error why;
        int at = snprintf(line, sizeof(line), "{\"timestamp\": %u, \"hash_ids\": [", i * 1000);
        uint32_t k = 0;
        for (; rows[i][k] != 0; k++) {
            at += snprintf(line + at, sizeof(line) - (size_t)at, "%s%u", k > 0 ? ", " : "",
                           rows[i][k]);
        }
        (void)snprintf(line + at, sizeof(line) - (size_t)at, "], \"input_length\": %u}", k * 10);
        ck_assert_msg(replay_trace_line(&trace, line, strlen(line), 10, &why) == SL_OK, "%s",
                      why.text);
    }
    return trace;
}

static struct model_result run(const struct model_policy *policy, const row *rows, uint32_t count,
                               const struct model_options *options)
{
    struct replay_trace trace = trace_of(rows, count);
    struct model_options plan = *options;
    struct model_result result = {0};
    plan.block_tokens = 10;
    ck_assert_int_eq(policy->run(&trace, &plan, &result), SL_OK);
    replay_trace_free(&trace);
    return result;
}

/* The loop is larger than memory: 1 2 stays, and LRU misses 3 4 each time. */
static const row loop[] = {{1, 2}, {3, 4}, {5, 6}, {1, 2}, {3, 4}, {5, 6}};

START_TEST(lru_loses_a_loop_and_the_clairvoyant_keeps_what_fits)
    {
        struct model_options options = {.capacity_bytes = 4};

        struct model_result lru = run(&model_lru, loop, SL_COUNT(loop), &options);
        struct model_result best = run(&model_clairvoyant, loop, SL_COUNT(loop), &options);
        struct model_result all = run(&model_unlimited, loop, SL_COUNT(loop), &options);

        ck_assert_uint_eq(lru.reference_count, 12);
        ck_assert_uint_eq(lru.hit_count, 0);
        ck_assert_uint_gt(best.hit_count, 0);
        ck_assert_uint_lt(best.hit_count, 6);
        ck_assert_uint_eq(all.hit_count, 6);
        ck_assert_uint_eq(all.tokens_saved, 60);
        ck_assert_uint_eq(all.tokens, 120);
        ck_assert(all.flops_saved > 0 && all.flops_saved < all.flops);
    }
END_TEST

/* Single blocks in a loop of one and a half times the memory: the next one wanted is a kept one,
 * not a recent one. */
static const struct {
    uint32_t count, memory;
    double percent; /* at least; LRU has none, and the best is under 67 */
} loops[] = {{384, 256, 61.0}, {1536, 1024, 57.0}, {6144, 4096, 49.0}};

START_TEST(a_plain_loop_keeps_most_of_what_fits)
    {
        enum { REFERENCES = 60000 };
        row *rows = calloc(REFERENCES, sizeof(*rows));
        ck_assert_ptr_nonnull(rows);
        for (uint32_t i = 0; i < REFERENCES; i++) {
            rows[i][0] = i % loops[_i].count + 1;
        }
        struct model_options options = {.capacity_bytes = loops[_i].memory};

        struct model_result mine = run(&model_density, rows, REFERENCES, &options);

        double percent = 100.0 * (double)mine.hit_count / REFERENCES;
        ck_assert_msg(percent >= loops[_i].percent, "%u of %u: %.2f %%", loops[_i].memory,
                      loops[_i].count, percent);
        free(rows);
    }
END_TEST

START_TEST(a_hit_ends_at_the_first_hole)
    {
        /* 1 2 3 4, then others until its end is gone: what is left is a prefix */
        static const row rows[] = {{1, 2, 3, 4}, {9}, {1, 2, 3, 4}};
        struct model_options options = {.capacity_bytes = 4};

        struct model_result lru = run(&model_lru, rows, SL_COUNT(rows), &options);
        struct model_result mine = run(&model_density, rows, SL_COUNT(rows), &options);

        ck_assert_uint_eq(lru.hit_count, 3);
        ck_assert_uint_eq(mine.hit_count, 3);
    }
END_TEST

START_TEST(blocks_have_sizes)
    {
        static const row rows[] = {{1}, {2}, {1}, {2}};
        static const uint64_t bytes[] = {0, 100, 300};
        struct model_options options = {.capacity_bytes = 400, .block_bytes = bytes};

        struct model_result fits = run(&model_lru, rows, SL_COUNT(rows), &options);
        options.capacity_bytes = 399;
        struct model_result short_of = run(&model_lru, rows, SL_COUNT(rows), &options);

        ck_assert_uint_eq(fits.hit_count, 2);
        ck_assert_uint_eq(fits.hit_bytes, 400);
        ck_assert_uint_eq(fits.bytes, 800);
        ck_assert_uint_eq(short_of.hit_count, 0);
    }
END_TEST

START_TEST(a_disk_serves_what_left_memory)
    {
        struct model_options options = {.capacity_bytes = 4, .disk = {.capacity_bytes = 100}};

        struct model_result result = run(&model_lru, loop, SL_COUNT(loop), &options);

        ck_assert_uint_eq(result.hit_count, 6);
        ck_assert_uint_eq(result.memory_hit_count, 0);
        ck_assert_uint_eq(result.written_count, 6); /* once each */
        ck_assert_uint_eq(result.written_bytes, 6);
    }
END_TEST

START_TEST(a_disk_that_is_full_drops_what_is_oldest_unless_it_was_wanted)
    {
        /* 1 is wanted again before half of the disk is written over, and 2 is not */
        static const row rows[] = {{11}, {12}, {13}, {14}, {15}, {16}, {17}, {18}, {1}, {2},
                                   {3},  {4},  {5},  {1},  {6},  {7},  {8},  {9},  {1}, {2}};
        struct model_options options = {.capacity_bytes = 1, .disk = {.capacity_bytes = 8}};

        struct model_result result = run(&model_lru, rows, SL_COUNT(rows), &options);

        ck_assert_uint_eq(result.hit_count, 2); /* 1 twice; 2 was evicted */
        ck_assert_uint_eq(result.rewritten_count, 1);
        options.disk.capacity_bytes = 1;
        result = run(&model_lru, rows, SL_COUNT(rows), &options);
        ck_assert_uint_eq(result.hit_count, 0);
        ck_assert_uint_eq(result.written_count, SL_COUNT(rows));
    }
END_TEST

START_TEST(second_touch_writes_what_was_wanted_twice_alone)
    {
        static const row rows[] = {{1, 2}, {3}, {4}, {1, 2}, {5}, {6}, {1, 2}, {3}};
        struct model_options options = {
            .capacity_bytes = 2, .disk = {.capacity_bytes = 100, .admission = MODEL_ADMIT_SECOND}};

        struct model_result result = run(&model_density, rows, SL_COUNT(rows), &options);

        ck_assert_uint_eq(result.written_count, 3); /* 1 and 2 at their second use, 3 at its own */
        ck_assert_uint_eq(result.hit_count, 2);     /* 1 and 2, the third time */
    }
END_TEST

START_TEST(a_budget_of_writes_is_kept)
    {
        row rows[200] = {{0}};
        for (uint32_t i = 0; i < SL_COUNT(rows); i++) {
            rows[i][0] = i + 1;
        }
        /* a block in 10 s, of one a second */
        struct model_options options = {.capacity_bytes = 2,
                                        .disk = {.capacity_bytes = 1000, .bytes_a_day = 8640}};

        struct model_result result = run(&model_lru, rows, SL_COUNT(rows), &options);

        ck_assert_uint_ge(result.written_count, 19);
        ck_assert_uint_le(result.written_count, 20);
        ck_assert_uint_eq(result.written_count + result.refused_count, 200);
    }
END_TEST

START_TEST(a_budget_goes_to_what_is_wanted_again)
    {
        /* half of the requests are of a hundred chains in turn, half never recur */
        enum { COUNT = 6000 };
        static row rows[COUNT];
        for (uint32_t i = 0; i < COUNT; i++) {
            uint32_t id = i % 2 == 0 ? 1 + i / 2 % 100 * 3 : 1000 + i * 4;
            uint32_t length = i % 2 == 0 ? 3 : 4;
            for (uint32_t k = 0; k < length; k++) {
                rows[i][k] = id + k;
            }
        }
        struct model_options options = {.capacity_bytes = 50, .disk = {.capacity_bytes = 2000}};
        struct model_result all = run(&model_density, rows, COUNT, &options);
        options.disk.bytes_a_day = all.written_count * 86400 / COUNT / 2;

        struct model_result half = run(&model_density, rows, COUNT, &options);

        ck_assert_uint_le(half.written_count, all.written_count / 2);
        ck_assert_msg(half.hit_count > all.hit_count * 8 / 10, "%lu hits of %lu", half.hit_count,
                      all.hit_count);
    }
END_TEST

START_TEST(a_threshold_of_chance_writes_less_of_what_is_never_wanted_again)
    {
        /* half of the requests are a recurring chain of three, half never recur */
        enum { COUNT = 6000 };
        static row rows[COUNT];
        for (uint32_t i = 0; i < COUNT; i++) {
            if (i % 2 == 0) {
                for (uint32_t k = 0; k < 3; k++) {
                    rows[i][k] = 1 + (i / 2 % 100) * 3 + k;
                }
            } else {
                for (uint32_t k = 0; k < 8; k++) {
                    rows[i][k] = 1000 + i * 8 + k;
                }
            }
        }
        struct model_options options = {.capacity_bytes = 100, .disk = {.capacity_bytes = 1000}};
        struct model_result all = run(&model_density, rows, COUNT, &options);

        options.disk.admission = MODEL_ADMIT_REUSE;
        options.disk.reuse_min = 0.2;
        struct model_result some = run(&model_density, rows, COUNT, &options);

        ck_assert_uint_lt(some.written_count, all.written_count / 2);
        ck_assert_uint_ge(some.hit_count, all.hit_count);
    }
END_TEST

START_TEST(who_knows_no_chance_admits_all_or_says_so)
    {
        struct replay_trace trace = trace_of(loop, SL_COUNT(loop));
        struct model_options options = {
            .capacity_bytes = 4,
            .block_tokens = 10,
            .disk = {.capacity_bytes = 4, .admission = MODEL_ADMIT_REUSE}};
        struct model_result result = {0};

        ck_assert_int_eq(model_lru.run(&trace, &options, &result), SL_ERR_UNSUPPORTED);
        ck_assert_int_eq(model_clairvoyant.run(&trace, &options, &result), SL_ERR_UNSUPPORTED);
        ck_assert_int_eq(model_unlimited.run(&trace, &options, &result), SL_ERR_UNSUPPORTED);
        replay_trace_free(&trace);
    }
END_TEST

START_TEST(chances_grow_with_time_and_are_those_that_were_seen)
    {
        const struct sl_density_options options = {.ghosts_min = 1, .ghosts_max = 1};
        const struct reg_wanted wanted = {.stored_count = 1};
        struct sl_density *density = NULL;
        uint32_t unit = 0;
        ck_assert_int_eq(sl_density_create(&options, &density), SL_OK);
        /* of a hundred that are put, ten are used within 256 references, and none after that */
        for (uint64_t hash = 1; hash <= 100000; hash++) {
            unit = sl_density_enter(density, hash, (uint32_t)hash, &wanted);
            for (uint64_t age = 0; age < 8; age++) {
                uint64_t back = 16 + 29 * age;
                if (hash > back && (hash - back) % 80 == age * 10) {
                    sl_density_use(density, sl_density_find(density, hash - back), REG_HINT_NONE);
                }
            }
            if (hash > 2000) {
                sl_density_leave(density, sl_density_find(density, hash - 2000));
            }
        }

        double within = sl_density_chance(density, unit, 256);

        ck_assert_msg(within > 0.08 && within < 0.12, "%f", within);
        ck_assert(sl_density_chance(density, unit, 10) < within);
        ck_assert(sl_density_chance(density, unit, 100000) > within);
        ck_assert(sl_density_chance(density, unit, UINT64_MAX) <= 1.0);
        ck_assert(sl_density_chance(density, unit, 0) <= 0.0);
        sl_density_destroy(&density);
    }
END_TEST

/* Sessions in turn, one a second: each has two lasting blocks and one of a single turn. */
#define SESSIONS 40u
static row turns[2400];

static struct model_result prefetch_run(enum model_prefetch kind, double right)
{
    for (uint32_t i = 0; i < SL_COUNT(turns); i++) {
        uint32_t session = i % SESSIONS;
        turns[i][0] = 2 * session + 1;
        turns[i][1] = 2 * session + 2;
        turns[i][2] = 2 * SESSIONS + 1 + i;
        turns[i][3] = 0;
    }
    struct replay_trace trace = trace_of(turns, SL_COUNT(turns));
    uint64_t *pauses = replay_pauses(&trace);
    ck_assert_ptr_nonnull(pauses);
    ck_assert_uint_eq(pauses[0], SESSIONS * 1000);
    ck_assert_uint_eq(pauses[SL_COUNT(turns) - 1], 0);
    struct model_options options = {
        .capacity_bytes = 60,
        .block_tokens = 10,
        .disk = {.capacity_bytes = 100000},
        .prefetch = {.kind = kind, .pauses = pauses, .said = {.told = 1, .right = right}}};
    struct model_result result = {0};
    ck_assert_int_eq(model_density.run(&trace, &options, &result), SL_OK);
    free(pauses);
    replay_trace_free(&trace);
    return result;
}

START_TEST(sessions_that_tell_their_pauses_find_their_blocks_in_memory)
    {
        struct model_result none = prefetch_run(MODEL_PREFETCH_NONE, 1);
        struct model_result told = prefetch_run(MODEL_PREFETCH_SESSIONS, 1);
        struct model_result best = prefetch_run(MODEL_PREFETCH_CLAIRVOYANT, 1);

        ck_assert_uint_eq(none.prefetched_count, 0);
        ck_assert_uint_eq(told.hit_count, none.hit_count);
        ck_assert_uint_gt(best.memory_hit_count, none.memory_hit_count + 1500);
        ck_assert_msg(told.memory_hit_count * 2 > best.memory_hit_count + none.memory_hit_count,
                      "%lu of %lu hits in memory", told.memory_hit_count, best.memory_hit_count);
        ck_assert_uint_eq(best.prefetched_hit_count + best.prefetched_lost_count,
                          best.prefetched_count);
    }
END_TEST

START_TEST(lru_and_memory_alone_have_nothing_that_comes_ahead)
    {
        struct replay_trace trace = trace_of(loop, SL_COUNT(loop));
        struct model_options options = {.capacity_bytes = 4,
                                        .disk = {.capacity_bytes = 4},
                                        .prefetch = {.kind = MODEL_PREFETCH_SESSIONS}};
        struct model_result result = {0};
        ck_assert_int_eq(model_lru.run(&trace, &options, &result), SL_ERR_UNSUPPORTED);
        options.disk.capacity_bytes = 0;
        ck_assert_int_eq(model_density.run(&trace, &options, &result), SL_ERR_UNSUPPORTED);
        replay_trace_free(&trace);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("policy_model");
    TCase *memory = tcase_create("memory");
    tcase_add_test(memory, lru_loses_a_loop_and_the_clairvoyant_keeps_what_fits);
    tcase_add_loop_test(memory, a_plain_loop_keeps_most_of_what_fits, 0, SL_COUNT(loops));
    tcase_add_test(memory, a_hit_ends_at_the_first_hole);
    tcase_add_test(memory, blocks_have_sizes);
    suite_add_tcase(suite, memory);
    TCase *disk = tcase_create("disk");
    tcase_add_test(disk, a_disk_serves_what_left_memory);
    tcase_add_test(disk, a_disk_that_is_full_drops_what_is_oldest_unless_it_was_wanted);
    tcase_add_test(disk, second_touch_writes_what_was_wanted_twice_alone);
    tcase_add_test(disk, a_budget_of_writes_is_kept);
    tcase_add_test(disk, a_budget_goes_to_what_is_wanted_again);
    tcase_add_test(disk, a_threshold_of_chance_writes_less_of_what_is_never_wanted_again);
    tcase_add_test(disk, who_knows_no_chance_admits_all_or_says_so);
    tcase_add_test(disk, chances_grow_with_time_and_are_those_that_were_seen);
    suite_add_tcase(suite, disk);
    TCase *ahead = tcase_create("ahead");
    tcase_add_test(ahead, sessions_that_tell_their_pauses_find_their_blocks_in_memory);
    tcase_add_test(ahead, lru_and_memory_alone_have_nothing_that_comes_ahead);
    suite_add_tcase(suite, ahead);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
