/* tests/unit/client/lib/client_test.c - parts of sluicectl and libsluice that need no node. */
#include "client/lib/internal.h"
#include "client/tools/bench/histogram.h"
#include "client/tools/bench/replay_content.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- histogram ---- */

START_TEST(quantiles_of_a_ramp_are_within_two_percent)
    {
        static struct ctl_histogram histogram;
        for (uint64_t i = 1; i <= 100000; i++) {
            ctl_histogram_add(&histogram, i);
        }

        uint64_t p50 = ctl_histogram_quantile(&histogram, 0.50);
        uint64_t p99 = ctl_histogram_quantile(&histogram, 0.99);

        ck_assert_uint_ge(p50, 50000);
        ck_assert_uint_le(p50, 51000);
        ck_assert_uint_ge(p99, 99000);
        ck_assert_uint_le(p99, 100000);
    }
END_TEST

START_TEST(largest_value_is_exact_and_an_empty_histogram_is_zero)
    {
        static struct ctl_histogram histogram;
        static const struct ctl_histogram empty;

        ctl_histogram_add(&histogram, UINT64_MAX);
        ctl_histogram_add(&histogram, 0);

        ck_assert_uint_eq(ctl_histogram_quantile(&histogram, 1.0), UINT64_MAX);
        ck_assert_uint_eq(ctl_histogram_quantile(&histogram, 0.5), 0);
        ck_assert_uint_eq(ctl_histogram_quantile(&empty, 0.5), 0);
    }
END_TEST

/* ---- content ---- */

START_TEST(tokens_follow_from_the_hash_ids_and_end_at_the_input_length)
    {
        const uint32_t ids[] = {7, 9};
        uint32_t tokens[1024];
        memset(tokens, 0xee, sizeof tokens);

        replay_tokens(ids, 2, 512, 600, tokens);

        ck_assert_uint_eq(tokens[0], replay_token(7, 0));
        ck_assert_uint_eq(tokens[511], replay_token(7, 511));
        ck_assert_uint_eq(tokens[512], replay_token(9, 0));
        ck_assert_uint_eq(tokens[599], replay_token(9, 87));
        ck_assert_uint_eq(tokens[600], 0xeeeeeeee);
    }
END_TEST

START_TEST(a_chain_tells_prefix_tokens_and_length_apart)
    {
        const uint32_t tokens[] = {1, 2, 3, 4};
        const uint32_t others[] = {1, 2, 3, 5};

        uint64_t chain = replay_chain(0, tokens, 4);

        ck_assert_uint_eq(chain, replay_chain(0, tokens, 4));
        ck_assert_uint_ne(chain, replay_chain(1, tokens, 4));
        ck_assert_uint_ne(chain, replay_chain(0, others, 4));
        ck_assert_uint_ne(chain, replay_chain(0, tokens, 3));
    }
END_TEST

START_TEST(parts_differ_by_chain_rank_pool_and_position)
    {
        uint64_t part[64];
        uint64_t other[64];
        replay_part(42, 1, 1, part, sizeof part);
        static const struct {
            uint64_t chain;
            uint32_t rank, pool;
        } rivals[] = {{43, 1, 1}, {42, 0, 1}, {42, 1, 0}, {42, 2, 1}, {42, 1, 2}};

        for (size_t i = 0; i < SL_COUNT(rivals); i++) {
            replay_part(rivals[i].chain, rivals[i].rank, rivals[i].pool, other, sizeof other);
            for (size_t w = 0; w < 64; w++) {
                ck_assert_uint_ne(part[w], other[w]);
            }
        }
        for (size_t w = 1; w < 64; w++) {
            ck_assert_uint_ne(part[w], part[w - 1]);
        }
    }
END_TEST

START_TEST(a_part_of_odd_length_is_the_start_of_a_longer_one)
    {
        uint64_t whole[8];
        uint64_t odd[8];

        replay_part(5, 0, 0, whole, sizeof whole);
        replay_part(5, 0, 0, odd, 27);

        ck_assert_mem_eq(whole, odd, 27);
    }
END_TEST

START_TEST(a_wrong_byte_is_found_by_block_and_layer)
    {
        enum { LAYERS = 3, PART_BYTES = 103, BLOCKS = 8 };
        struct sl_engine_layer layers[LAYERS];
        uint64_t part[(PART_BYTES + 7) / 8], chains[3] = {11, 12, 13};
        const uint32_t blocks[3] = {5, 0, 7};
        int32_t wrong[3];
        unsigned char *memory = calloc(1, replay_layers(LAYERS, PART_BYTES, BLOCKS, layers));
        const struct replay_place place = {.memory = memory,
                                           .layers = layers,
                                           .layer_count = LAYERS,
                                           .block_bytes = PART_BYTES,
                                           .rank = 1,
                                           .part = part};
        unsigned char *last =
            memory + layers[2].offset_bytes + layers[2].block_stride_bytes - 1; /* of block 0 */

        replay_compute(&place, blocks, chains, 3);
        ck_assert_uint_eq(replay_check(&place, blocks, chains, 3, wrong), 0);
        ck_assert_int_eq(wrong[1], -1);
        *last ^= 1;
        ck_assert_uint_eq(replay_check(&place, blocks, chains, 3, wrong), 1);
        ck_assert_int_eq(wrong[0], -1);
        ck_assert_int_eq(wrong[1], 2);
        ck_assert_int_eq(wrong[2], -1);
        replay_poison(&place, blocks, 1);
        ck_assert_uint_eq(replay_check(&place, blocks, chains, 3, wrong), 2);
        ck_assert_int_eq(wrong[0], 0);
        free(memory);
    }
END_TEST

START_TEST(a_request_has_the_tokens_and_chains_of_its_blocks)
    {
        const uint32_t ids[] = {7, 9};
        uint32_t tokens[600], want[600];
        uint64_t chains[2];

        replay_prepare(ids, 2, 512, 600, tokens, chains, 2);

        replay_tokens(ids, 2, 512, 600, want);
        ck_assert_mem_eq(tokens, want, sizeof want);
        ck_assert_uint_eq(chains[0], replay_chain(0, want, 512));
        ck_assert_uint_eq(chains[1], replay_chain(chains[0], &want[512], 88));
    }
END_TEST

/* ---- model identity ---- */

static struct sl_engine_layer layers[] = {
    {.offset_bytes = 0, .length_bytes = 64, .block_stride_bytes = 16, .piece_bytes = 16},
    {.offset_bytes = 64, .length_bytes = 64, .block_stride_bytes = 16, .piece_bytes = 9}};

static struct sl_engine_pool pool_usual(void)
{
    return (struct sl_engine_pool){.name = "kv",
                                   .kind = SL_POOL_ATTENTION,
                                   .layer_count = 2,
                                   .layers = layers,
                                   .memory_bytes = 128};
}

static struct sl_engine_options engine_usual(const struct sl_engine_pool *pool)
{
    return (struct sl_engine_options){.name = "test",
                                      .model = {.name = "m", .revision = "r", .dtype = "bf16"},
                                      .key_format = "sluice",
                                      .block_tokens = 16,
                                      .world = 2,
                                      .block_count = 4,
                                      .pool_count = 1,
                                      .pools = pool};
}

static void change_nothing(struct sl_engine_options *options, struct sl_engine_pool *pool)
{
    options->name = "another name"; /* for people; gives the bytes no meaning */
    pool->memory_bytes = 256;
}
static void change_name(struct sl_engine_options *options, struct sl_engine_pool *pool)
{
    (void)pool;
    options->model.name = "mr";
    options->model.revision = ""; /* the same letters, cut elsewhere */
}
static void change_dtype(struct sl_engine_options *options, struct sl_engine_pool *pool)
{
    (void)pool;
    options->model.dtype = "fp8";
}
static void change_lora(struct sl_engine_options *options, struct sl_engine_pool *pool)
{
    (void)pool;
    options->model.lora = "a";
}
static void change_world(struct sl_engine_options *options, struct sl_engine_pool *pool)
{
    (void)pool;
    options->world = 4;
}
static void change_tokens(struct sl_engine_options *options, struct sl_engine_pool *pool)
{
    (void)pool;
    options->block_tokens = 32;
}
static void change_format(struct sl_engine_options *options, struct sl_engine_pool *pool)
{
    (void)pool;
    options->key_format = "sglang";
}
static void change_layers(struct sl_engine_options *options, struct sl_engine_pool *pool)
{
    (void)options;
    pool->layer_count = 1;
}
static void change_pool_name(struct sl_engine_options *options, struct sl_engine_pool *pool)
{
    (void)options;
    pool->name = "kw";
}

static const struct {
    void (*change)(struct sl_engine_options *options, struct sl_engine_pool *pool);
    bool same;
} identities[] = {
    {change_nothing, true}, {change_name, false},   {change_dtype, false},
    {change_lora, false},   {change_world, false},  {change_tokens, false},
    {change_format, false}, {change_layers, false}, {change_pool_name, false},
};

START_TEST(model_identity_covers_what_gives_bytes_their_meaning)
    {
        struct sl_engine_pool pool = pool_usual();
        struct sl_engine_options options = engine_usual(&pool);
        char before[33];
        char after[33];
        sl_model_identity(&options, before);

        identities[_i].change(&options, &pool);
        sl_model_identity(&options, after);

        ck_assert_uint_eq(strspn(before, "0123456789abcdef"), 32);
        ck_assert_int_eq(strcmp(before, after) == 0, identities[_i].same);
    }
END_TEST

/* ---- a client without a node ---- */

START_TEST(a_client_without_a_node_says_so_at_once)
    {
        static const char *const settings[] = {"runtime_dir=/tmp/sluice-test-none/run",
                                               "shm_dir=/tmp/sluice-test-none/shm", NULL};
        const struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                                  .instance = "none",
                                                  .settings = settings,
                                                  .timeout_ns = 60 * SL_NS_PER_S};
        struct sl_client *client = NULL;
        struct sl_error why = {0};
        uint64_t started_ns = sl_clock_monotonic_ns();

        sl_err err = sl_client_open(&options, &client, &why);

        ck_assert_int_eq(err, SL_ERR_UNREACHABLE);
        ck_assert_ptr_null(client);
        ck_assert_ptr_nonnull(strstr(why.text, "none"));
        ck_assert_uint_lt(sl_clock_monotonic_ns() - started_ns, 50 * SL_NS_PER_S); /* at once */
    }
END_TEST

START_TEST(a_client_of_another_api_version_is_refused)
    {
        const struct sl_client_options options = {.api_version = SLUICE_API_VERSION + 1};
        struct sl_client *client = NULL;

        ck_assert_int_eq(sl_client_open(&options, &client, NULL), SL_ERR_VERSION);
    }
END_TEST

START_TEST(a_bad_setting_of_a_client_is_named)
    {
        static const char *const settings[] = {"flase=1", NULL};
        const struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                                  .settings = settings};
        struct sl_client *client = NULL;
        struct sl_error why = {0};

        ck_assert_int_eq(sl_client_open(&options, &client, &why), SL_ERR_CONFIG);
        ck_assert_ptr_nonnull(strstr(why.text, "flase"));
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("client");
    TCase *pure = tcase_create("pure");
    tcase_add_test(pure, quantiles_of_a_ramp_are_within_two_percent);
    tcase_add_test(pure, largest_value_is_exact_and_an_empty_histogram_is_zero);
    tcase_add_test(pure, tokens_follow_from_the_hash_ids_and_end_at_the_input_length);
    tcase_add_test(pure, a_chain_tells_prefix_tokens_and_length_apart);
    tcase_add_test(pure, parts_differ_by_chain_rank_pool_and_position);
    tcase_add_test(pure, a_part_of_odd_length_is_the_start_of_a_longer_one);
    tcase_add_test(pure, a_wrong_byte_is_found_by_block_and_layer);
    tcase_add_test(pure, a_request_has_the_tokens_and_chains_of_its_blocks);
    tcase_add_loop_test(pure, model_identity_covers_what_gives_bytes_their_meaning, 0,
                        (int)SL_COUNT(identities));
    suite_add_tcase(suite, pure);
    TCase *client = tcase_create("client");
    tcase_add_test(client, a_client_without_a_node_says_so_at_once);
    tcase_add_test(client, a_client_of_another_api_version_is_refused);
    tcase_add_test(client, a_bad_setting_of_a_client_is_named);
    suite_add_tcase(suite, client);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
