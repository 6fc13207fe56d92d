/* tests/unit/client_test.c - what sluicectl and libsluice compute without a node. */
#include "client/bench/histogram.h"
#include "client/bench/replay_content.h"
#include "client/bench/replay_trace.h"
#include "client/bench/workload_model.h"
#include "client/lib/internal.h"

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

/* ---- trace ---- */

START_TEST(a_line_of_a_trace_is_taken)
    {
        struct replay_trace trace = {0};
        const char line[] =
            "{\"timestamp\": 3, \"input_length\": 700, \"output_length\": 5, \"hash_ids\": [4, 6]}";

        sl_err err = replay_trace_line(&trace, line, strlen(line), 512, NULL);

        ck_assert_int_eq(err, SL_OK);
        ck_assert_uint_eq(trace.request_count, 1);
        ck_assert_uint_eq(trace.requests[0].input_length, 700);
        ck_assert_uint_eq(trace.requests[0].id_count, 2);
        ck_assert_uint_eq(trace.ids[1], 6);
        ck_assert_uint_eq(trace.blocks_max, 2);
        replay_trace_free(&trace);
    }
END_TEST

static const struct {
    const char *line, *named;
} bad_lines[] = {
    {"", "JSON"},
    {"[]", "hash_ids"},
    {"{\"input_length\": 1}", "hash_ids"},
    {"{\"input_length\": 1, \"hash_ids\": []}", "hash_ids"},
    {"{\"input_length\": 1, \"hash_ids\": [-1]}", "hash_ids[0]"},
    {"{\"input_length\": 1, \"hash_ids\": [4294967296]}", "hash_ids[0]"},
    {"{\"input_length\": 1, \"hash_ids\": [\"1\"]}", "hash_ids[0]"},
    {"{\"input_length\": 0, \"hash_ids\": [1]}", "input_length"},
    {"{\"input_length\": 1.5, \"hash_ids\": [1]}", "input_length"},
    {"{\"input_length\": 513, \"hash_ids\": [1]}", "do not fit"},
    {"{\"input_length\": 512, \"hash_ids\": [1, 2]}", "do not fit"},
    {"{\"input_length\": 99999999999, \"hash_ids\": [1]}", "input_length"},
    {"{\"timestamp\": -1, \"input_length\": 1, \"hash_ids\": [1]}", "timestamp"},
    {"{\"input_length\": 1, \"input_length\": 1, \"hash_ids\": [1]}", "JSON"},
};

START_TEST(a_bad_line_of_a_trace_is_refused_by_name)
    {
        struct replay_trace trace = {0};
        struct sl_error why = {0};

        sl_err err =
            replay_trace_line(&trace, bad_lines[_i].line, strlen(bad_lines[_i].line), 512, &why);

        ck_assert_int_eq(err, SL_ERR_INVALID);
        ck_assert_msg(strstr(why.text, bad_lines[_i].named) != NULL, "'%s' does not name '%s'",
                      why.text, bad_lines[_i].named);
        ck_assert_uint_eq(trace.request_count, 0);
        replay_trace_free(&trace);
    }
END_TEST

START_TEST(the_line_of_a_bad_trace_file_is_named)
    {
        char path[] = "/tmp/sluice-trace-XXXXXX";
        struct replay_trace trace = {0};
        struct sl_error why = {0};
        int fd = mkstemp(path);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_ge(dprintf(fd, "{\"input_length\": 1, \"hash_ids\": [1]}\n\n{nonsense\n"), 0);
        close(fd);

        sl_err err = replay_trace_read(path, UINT64_MAX, 512, &trace, &why);
        sl_err limited = replay_trace_read(path, 1, 512, &trace, NULL);

        unlink(path);
        ck_assert_int_eq(err, SL_ERR_INVALID);
        ck_assert_ptr_nonnull(strstr(why.text, ":3: "));
        ck_assert_int_eq(limited, SL_OK); /* the limit ends the reading before the bad line */
        replay_trace_free(&trace);
    }
END_TEST

/* ---- workload ---- */

static const struct workload_options usual = {.requests = 600,
                                              .seed = 7,
                                              .block_tokens = 512,
                                              .sessions = 64,
                                              .system_prompts = 8,
                                              .rate_per_s = 4};

/* FNV-1a over all that a workload gives. */
static uint64_t fingerprint(const struct workload_options *options)
{
    struct workload *workload = NULL;
    struct workload_request request;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    ck_assert_int_eq(workload_create(options, &workload, NULL), SL_OK);
    while (workload_next(workload, &request)) {
        hash = (hash ^ request.timestamp_ms) * UINT64_C(0x100000001b3);
        hash = (hash ^ request.input_length) * UINT64_C(0x100000001b3);
        hash = (hash ^ request.output_length) * UINT64_C(0x100000001b3);
        for (uint32_t i = 0; i < request.hash_count; i++) {
            hash = (hash ^ request.hash_ids[i]) * UINT64_C(0x100000001b3);
        }
    }
    ck_assert(!workload_failed(workload));
    workload_destroy(&workload);
    return hash;
}

START_TEST(the_same_parameters_give_the_same_workload)
    {
        struct workload_options other = usual;
        other.seed = 8;

        ck_assert_uint_eq(fingerprint(&usual), fingerprint(&usual));
        ck_assert_uint_ne(fingerprint(&usual), fingerprint(&other));
    }
END_TEST

START_TEST(a_workload_has_the_shape_of_a_trace_with_shared_prefixes)
    {
        struct workload *workload = NULL;
        struct workload_request request;
        static bool known[1u << 20];
        uint64_t references = 0;
        uint64_t hits = 0;
        uint64_t last_ms = 0;
        ck_assert_int_eq(workload_create(&usual, &workload, NULL), SL_OK);

        while (workload_next(workload, &request)) {
            ck_assert_uint_eq(request.hash_count, (request.input_length + 511) / 512);
            ck_assert_uint_ge(request.timestamp_ms, last_ms);
            last_ms = request.timestamp_ms;
            references += request.hash_count;
            uint32_t prefix = 0;
            while (prefix < request.hash_count && known[request.hash_ids[prefix]]) {
                prefix++;
            }
            hits += prefix;
            for (uint32_t i = 0; i < request.hash_count; i++) {
                ck_assert_uint_lt(request.hash_ids[i], 1u << 20);
                known[request.hash_ids[i]] = true;
            }
        }

        workload_destroy(&workload);
        ck_assert_uint_gt(references, 600 * 5);
        ck_assert_uint_gt(hits * 100, references * 15); /* worth caching, */
        ck_assert_uint_lt(hits * 100, references * 80); /* and not everything is known */
    }
END_TEST

static const struct {
    struct workload_options options;
    const char *named;
} bad_workloads[] = {
    {{0, 1, 512, 1, 1, 1}, "requests"}, {{1, 1, 15, 1, 1, 1}, "block-tokens"},
    {{1, 1, 512, 0, 1, 1}, "sessions"}, {{1, 1, 512, 1, 0, 1}, "system-prompts"},
    {{1, 1, 512, 1, 1, 0}, "rate"},
};

START_TEST(a_bad_parameter_of_a_workload_is_named)
    {
        struct workload *workload = NULL;
        struct sl_error why = {0};

        sl_err err = workload_create(&bad_workloads[_i].options, &workload, &why);

        ck_assert_int_eq(err, SL_ERR_INVALID);
        ck_assert_ptr_nonnull(strstr(why.text, bad_workloads[_i].named));
        ck_assert_ptr_null(workload);
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
    tcase_add_test(pure, a_line_of_a_trace_is_taken);
    tcase_add_loop_test(pure, a_bad_line_of_a_trace_is_refused_by_name, 0,
                        (int)SL_COUNT(bad_lines));
    tcase_add_test(pure, the_line_of_a_bad_trace_file_is_named);
    tcase_add_test(pure, the_same_parameters_give_the_same_workload);
    tcase_add_test(pure, a_workload_has_the_shape_of_a_trace_with_shared_prefixes);
    tcase_add_loop_test(pure, a_bad_parameter_of_a_workload_is_named, 0,
                        (int)SL_COUNT(bad_workloads));
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
