/* tests/unit/tests/policy_shapes_test.c - on traffic for which it was not tuned, density is at
 * least as good as LRU.
 *
 * The eviction code of nodes, on generated traces (tests/bench/policy/shapes.c). Results do not
 * depend on time: a seed gives the same figures everywhere. SL_POLICY_SEEDS: the number of seeds
 * for every shape and every size. */
#include "tests/bench/policy/model.h"
#include "tests/bench/policy/policy.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#define REFERENCES   UINT64_C(200000)
#define POINTS_UNDER 0.5
#define SEEDS_MOST   1000

/* Blocks of memory. */
static const uint64_t all_sizes[] = {500, 1000, 1500, 2000, 5000, 10000};
static const uint64_t some_sizes[] = {1000, 3000, 10000};

struct shape_row {
    const char *name;
    int seed_count;
    const uint64_t *sizes;
    uint32_t size_count;
};
#define ROW(name, seeds, sizes)             \
    {                                       \
        name, seeds, sizes, SL_COUNT(sizes) \
    }
static const struct shape_row shapes[] = {
    ROW("scan", 20, all_sizes),        ROW("burst", 20, all_sizes),   ROW("agents", 20, all_sizes),
    ROW("loop", 3, some_sizes),        ROW("shift", 4, some_sizes),   ROW("drift", 4, some_sizes),
    ROW("rag", 4, some_sizes),         ROW("tenants", 4, some_sizes), ROW("phases", 20, some_sizes),
    ROW("conversation", 4, some_sizes)};

static int seed_count(const struct shape_row *row)
{
    const char *text = getenv("SL_POLICY_SEEDS");
    long more = text != NULL ? strtol(text, NULL, 10) : 0;
    return more > 0 && more <= SEEDS_MOST ? (int)more : row->seed_count;
}

static double points_hit(const struct model_policy *policy, const struct replay_trace *trace,
                         uint64_t blocks)
{
    const struct model_options options = {.capacity_bytes = blocks,
                                          .block_tokens = MODEL_BLOCK_TOKENS};
    struct model_result result = {0};
    ck_assert_int_eq(policy->run(trace, &options, &result), SL_OK);
    ck_assert_uint_ge(result.reference_count, REFERENCES);
    return 100.0 * (double)result.hit_count / (double)result.reference_count;
}

START_TEST(density_is_not_under_lru)
    {
        const struct shape_row *row = &shapes[_i];
        bool more = getenv("SL_POLICY_SEEDS") != NULL;
        double worst = -100.0;
        double sum = 0.0;
        uint32_t size_count = more ? (uint32_t)SL_COUNT(all_sizes) : row->size_count;
        for (int seed = 1; seed <= seed_count(row); seed++) {
            struct replay_trace trace;
            struct sl_error why = {0};
            ck_assert_msg(model_generate(row->name, (uint64_t)seed, REFERENCES, &trace, &why) ==
                              SL_OK,
                          "%s", why.text);
            for (uint32_t size = 0; size < size_count; size++) {
                uint64_t blocks = more ? all_sizes[size] : row->sizes[size];

                double lru = points_hit(&model_lru, &trace, blocks);
                double mine = points_hit(&model_density, &trace, blocks);

                ck_assert_msg(lru - mine <= POINTS_UNDER,
                              "%s, seed %d, %lu blocks: lru hits %.2f %%, density %.2f", row->name,
                              seed, (unsigned long)blocks, lru, mine);
                worst = SL_MAX(worst, lru - mine);
                sum += mine - lru;
            }
            replay_trace_free(&trace);
        }
        printf("%-12s %3d seeds: density is %.2f points over lru, at worst %.2f under\n", row->name,
               seed_count(row), sum / (seed_count(row) * (double)size_count), worst);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("policy_shapes");
    TCase *tcase = tcase_create("shapes");
    tcase_set_timeout(tcase, 600);
    tcase_add_loop_test(tcase, density_is_not_under_lru, 0, SL_COUNT(shapes));
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
