/* tests/unit/runtime/net/fabric_verbs_test.c - work requests of the verbs fabric, on a NIC played
 * by the test: few ask for a completion, and each piece still ends by itself. */
#include "runtime/net/fabric/core/internal.h"
#include "tests/support/fabric_end.h"
#include "tests/support/fake_verbs.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK  (16 * SL_KIB)
#define BLOCKS 512u
#define LENGTH (BLOCKS * BLOCK)
#define REGION (BLOCKS / 8 * BLOCK) /* the limit: eight regions a pool */
#define DEPTH  16u
#define FEW    8u /* one for this many */

static struct fabric_end a, b; /* a asks, b owns */
static struct sl_fabric_options options_a, options_b;
static struct sl_fabric_piece pieces[BLOCKS];
static struct sl_digest digests[BLOCKS];
static uint32_t key;

static void setup(void)
{
    struct sl_verbs_lib *lib = fake_verbs_lib();
    end_options(&a, &options_a, "verbs");
    end_options(&b, &options_b, "verbs");
    options_a.backend_context = options_b.backend_context = lib;
    options_a.lanes = options_b.lanes = 2;
    options_a.depth = options_b.depth = DEPTH;
    options_a.region_bytes_max = options_b.region_bytes_max = REGION;
    a.stride_bytes = b.stride_bytes = BLOCK;
}

static void teardown(void)
{
    end_close(&a);
    end_close(&b);
    ck_assert_uint_eq(fake_verbs.regions, 0);
}

static void join(void)
{
    struct sl_error why = {0};
    struct sl_fabric_stats stats;
    ck_assert_int_eq(end_open(&a, &options_a, LENGTH, 0, &why), SL_OK);
    ck_assert_int_eq(end_open(&b, &options_b, LENGTH, 0, &why), SL_OK);
    PAIR_UNTIL(&a, &b, a.registered && b.registered);
    PAIR_UNTIL(&a, &b, a.link == SL_FABRIC_UP && b.link == SL_FABRIC_UP);
    sl_fabric_stats(a.fabric, &stats);
    ck_assert_uint_eq(stats.regions, LENGTH / REGION);
    (void)pair_grant(&b, &a, 0, LENGTH, &key);
    fake_verbs.signalled = fake_verbs.posts = fake_verbs.requests = fake_verbs.requests_met = 0;
}

/* The order of blocks on the other side. */
static uint64_t theirs(uint32_t block)
{
    return (uint64_t)(block * 37 % BLOCKS) * BLOCK;
}

static void post(uint32_t first, uint32_t count, uint64_t cookie)
{
    for (uint32_t i = first; i < first + count; i++) {
        pieces[i] = (struct sl_fabric_piece){.memory = a.memory,
                                             .key = key,
                                             .offset_bytes = (uint64_t)i * BLOCK,
                                             .remote_offset_bytes = theirs(i),
                                             .length_bytes = BLOCK,
                                             .digest = &digests[i]};
        digests[i] = sl_digest_of(b.bytes + theirs(i), BLOCK);
    }
    const struct sl_fabric_transfer transfer = {.peer = a.peer,
                                                .pieces = &pieces[first],
                                                .piece_count = count,
                                                .deadline_ns = SL_NEVER_NS,
                                                .cookie = cookie};
    ck_assert_int_eq(sl_fabric_post(a.fabric, &transfer, NULL), SL_OK);
}

static const struct end_done *done_of(uint64_t cookie)
{
    PAIR_UNTIL(&a, &b, end_done_of(&a, cookie) != NULL);
    return end_done_of(&a, cookie);
}

/* A completion and a doorbell for each block would cost more than the block itself. */
START_TEST(few_of_many_small_blocks_ask_for_a_completion)
    {
        join();
        pattern_fill(a.bytes, LENGTH, 1);
        pattern_fill(b.bytes, LENGTH, 2);
        post(0, BLOCKS, 1);
        ck_assert_int_eq(done_of(1)->code, SL_OK);
        for (uint32_t i = 0; i < BLOCKS; i++) {
            ck_assert_mem_eq(a.bytes + (uint64_t)i * BLOCK, b.bytes + theirs(i), BLOCK);
        }
        ck_assert_uint_eq(fake_verbs.requests, BLOCKS);
        ck_assert_uint_le(fake_verbs.signalled, BLOCKS / FEW);
        ck_assert_uint_le(fake_verbs.posts, BLOCKS / FEW);
    }
END_TEST

/* Other requests follow its own on their lanes. */
START_TEST(a_transfer_ends_though_its_last_block_asked_for_nothing)
    {
        join();
        pattern_fill(b.bytes, LENGTH, 3);
        for (uint32_t i = 0; i < 3; i++) {
            post(3 * i, 3, i + 1);
        }
        for (uint32_t i = 0; i < 3; i++) {
            ck_assert_int_eq(done_of(i + 1)->code, SL_OK);
        }
        ck_assert_uint_eq(fake_verbs.requests, 9);
        ck_assert_uint_eq(fake_verbs.signalled, 2); /* the last of each lane */
    }
END_TEST

static uint8_t codes[BLOCKS];
static bool codes_there;
static void codes_keep(void *context, const struct sl_fabric_done *done)
{
    (void)context;
    memcpy(codes, done->pieces, done->piece_count);
    codes_there = true;
}

/* The n-th request is refused: earlier ones on its lane were done and are not reported as failed.
 * Later ones were not done, and are not reported as done. */
START_TEST(an_error_between_completions_ends_those_before_it_well)
    {
        uint32_t right = 0;
        options_a.events.done = codes_keep;
        join();
        memset(a.bytes, 0, LENGTH);
        pattern_fill(b.bytes, LENGTH, 4);
        fake_verbs.refuse_at = (uint32_t)_i + 1;
        post(0, 2 * DEPTH, 1);
        PAIR_UNTIL(&a, &b, codes_there);
        for (uint32_t i = 0; i < 2 * DEPTH; i++) {
            const unsigned char *at = a.bytes + (uint64_t)i * BLOCK;
            bool is_right = memcmp(at, b.bytes + theirs(i), BLOCK) == 0;
            ck_assert(codes[i] != SL_OK || is_right);
            right += codes[i] == SL_OK ? 1 : 0;
        }
        ck_assert_uint_ge(right, (uint32_t)_i % DEPTH); /* of its lane */
        ck_assert_uint_lt(right, 2 * DEPTH);
        fake_verbs.refuse_at = 0;
        PAIR_UNTIL(&a, &b, a.link == SL_FABRIC_UP && b.link == SL_FABRIC_UP);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("fabric_verbs");
    TCase *tests = tcase_create("requests");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, few_of_many_small_blocks_ask_for_a_completion);
    tcase_add_test(tests, a_transfer_ends_though_its_last_block_asked_for_nothing);
    tcase_add_loop_test(tests, an_error_between_completions_ends_those_before_it_well, 0,
                        2 * DEPTH);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
