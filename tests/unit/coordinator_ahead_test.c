/* tests/unit/coordinator_ahead_test.c - small stores in extents that were granted in advance. */
#include "tests/unit/coordinator_support.h"

#include "runtime/sl_clock.h"

#define NOTHING_MISSES UINT64_MAX
#define NO_BLOCK       UINT32_MAX

/* A grant in advance that stands in the index. */
static struct sl_item_grant grant_make(struct bed *bed)
{
    struct sl_error why = {0};
    sl_ref ref = 0;
    struct sl_entry record = {
        .kind = SL_RECORD_RESERVED,
        .extent = {.generation = sl_arena_next_generation(bed->arena), .length_bytes = PART_BYTES},
        .key = "\0a",
        .key_length = 2};
    ck_assert_msg(sl_index_claim(bed->index, &record, &ref, &why) == SL_OK, "%s", why.text);
    return (struct sl_item_grant){.ref = ref,
                                  .generation = record.extent.generation,
                                  .offset_bytes = (uint64_t)ref * PART_BYTES};
}

static struct sl_item_grant grants[64]; /* of the last answer to a wish */

static uint32_t bits_of(const struct sl_bytes *bitmap)
{
    return *(const uint8_t *)bitmap->at; /* of up to 8 blocks */
}

/* Answers the COMMIT of `blocks` blocks, all with one code, and its wish, if any, with `count` grants.
 * Gives how many it asks for. */
static uint64_t answer_wish(struct bed *bed, uint32_t blocks, sl_err code, uint64_t count)
{
    uint64_t codes[BLOCKS_MAX];
    struct sl_msg commit = take(bed, "registrar", SL_MSG_COMMIT);
    const struct sl_body_commit *body = &commit.body.commit;
    ck_assert_uint_eq(body->items.count, blocks);
    for (uint32_t i = 0; i < blocks; i++) {
        codes[i] = (uint64_t)code;
    }
    if (body->ahead_count > 0) {
        ck_assert_str_eq(body->ahead_writer.at, "swapper.0");
        ck_assert_uint_eq(body->ahead_bytes, PART_BYTES);
        ck_assert_uint_gt(body->ahead_count, 1);
        ck_assert_uint_le(body->ahead_count, SL_COUNT(grants));
    }
    count = SL_MIN(count, body->ahead_count);
    for (uint64_t i = 0; i < count; i++) {
        grants[i] = grant_make(bed);
    }
    answer(
        bed, "registrar", &commit,
        (struct sl_msg){.body.commit_reply = {.codes = {codes, blocks}, .ahead = {grants, count}}});
    return body->ahead_count;
}

static void stored(struct bed *bed, uint64_t seq, uint32_t blocks)
{
    struct sl_msg reply = reply_to(bed, seq);
    ck_assert_int_eq(reply.code, SL_OK);
    ck_assert_uint_eq(bits_of(&reply.body.store_reply.stored), (1u << blocks) - 1);
    ck_assert_uint_eq(bits_of(&reply.body.store_reply.existed), 0);
    ck_assert(reply.body.store_reply.fenced);
}

/* RESERVE and COMMIT. Gives how many extents the latter asks for; it gets `count`. */
static uint64_t long_way(struct bed *bed, uint64_t seq, uint32_t blocks, uint64_t count)
{
    answer_reserve(bed, NO_BLOCK, SL_OK);
    ck_assert_uint_eq(answer_copy(bed, 0, NOTHING_MISSES), blocks);
    uint64_t asked = answer_wish(bed, blocks, SL_OK, count);
    stored(bed, seq, blocks);
    return asked;
}

/* Two stores of one block of one part: the second asks for extents, and gets `count`. */
static struct bed *bed_warm(uint64_t count)
{
    struct bed *bed = bed_make(NULL);
    bed->world = 1;
    ck_assert_uint_eq(long_way(bed, op_begin(bed, SL_MSG_STORE, 1, 1), 1, 0), 0); /* no habit yet */
    fake_pass(&bed->fake, SL_NS_PER_MS);
    uint64_t seq = op_send(bed, SL_MSG_STORE, 2, 1);
    answer_keys(bed);
    ck_assert_uint_gt(long_way(bed, seq, 1, count), 0);
    return bed;
}

static uint64_t store_send(struct bed *bed, uint64_t op_id, uint32_t blocks)
{
    uint64_t seq = op_send(bed, SL_MSG_STORE, op_id, blocks);
    answer_keys(bed);
    return seq;
}

START_TEST(small_store_that_comes_again_needs_no_reserve)
    {
        struct bed *bed = bed_warm(4);
        uint64_t seq = store_send(bed, 3, 1);

        ck_assert(!sent(bed, "registrar", SL_MSG_RESERVE));
        (void)answer_copy(bed, 0, NOTHING_MISSES);
        const uint64_t code = SL_OK;
        struct sl_msg commit = take(bed, "registrar", SL_MSG_COMMIT);
        const struct sl_body_commit *body = &commit.body.commit;
        ck_assert_uint_eq(commit.op_id, 3);
        ck_assert(body->tail_first);
        ck_assert_uint_eq(body->groups.count, 1);
        ck_assert_str_eq(body->groups.at[0].key.at, MODEL "/b0");
        ck_assert_uint_eq(body->groups.at[0].key.length, strlen(MODEL "/b0"));
        ck_assert_uint_eq(body->groups.at[0].part_count, 1);
        ck_assert_uint_eq(body->items.count, 1);
        ck_assert_uint_eq(body->items.at[0].generation, grants[0].generation);
        ck_assert_uint_eq(body->items.at[0].ref, grants[0].ref);
        ck_assert_uint_eq(body->items.at[0].digest_low, 1); /* as the swapper says */
        ck_assert_uint_eq(body->named.count, 1);
        ck_assert_str_eq(body->named.at[0].key.at, MODEL "/b0/0/attn");
        ck_assert_uint_eq(body->named.at[0].group, 1);
        ck_assert_uint_eq(body->named.at[0].length_bytes, PART_BYTES);
        answer(bed, "registrar", &commit, (struct sl_msg){.body.commit_reply.codes = {&code, 1}});
        stored(bed, seq, 1);
        ck_assert(!sent(bed, "registrar", SL_MSG_ABORT));
        bed_end(bed);
    }
END_TEST

/* RESERVE serves blocks of several parts. */
START_TEST(blocks_of_two_parts_ask_for_nothing)
    {
        struct bed *bed = bed_make(NULL);
        for (uint32_t i = 0; i < 4; i++) {
            uint64_t seq = i == 0 ? op_begin(bed, SL_MSG_STORE, 1, 1) : store_send(bed, 1 + i, 1);
            answer_reserve(bed, NO_BLOCK, SL_OK);
            (void)answer_copy(bed, 0, NOTHING_MISSES);
            (void)answer_copy(bed, 1, NOTHING_MISSES);
            ck_assert_uint_eq(answer_wish(bed, RANKS, SL_OK, 0), 0); /* both parts of it */
            stored(bed, seq, 1);
        }
        bed_end(bed);
    }
END_TEST

/* What was taken back, or is another's by now: RESERVE says what it is, the extents go back. */
START_TEST(store_whose_grants_are_gone_goes_the_long_way)
    {
        static const sl_err codes[] = {SL_ERR_STALE, SL_ERR_BUSY, SL_ERR_NO_SPACE, SL_ERR_INVALID};
        struct bed *bed = bed_warm(4);
        uint64_t seq = store_send(bed, 3, 1), generation = grants[0].generation;
        (void)answer_copy(bed, 0, NOTHING_MISSES);

        (void)answer_wish(bed, 1, codes[_i], 0);

        struct sl_msg abort = take(bed, "registrar", SL_MSG_ABORT);
        ck_assert_uint_eq(abort.body.abort.items.count, 1);
        ck_assert_uint_eq(abort.body.abort.items.at[0].generation, generation);
        (void)long_way(bed, seq, 1, 0);
        bed_end(bed);
    }
END_TEST

START_TEST(part_that_was_not_copied_goes_the_long_way)
    {
        struct bed *bed = bed_warm(4);
        uint64_t seq = store_send(bed, 3, 1);
        (void)answer_copy(bed, 0, 0); /* its claim did not stand */

        ck_assert(!sent(bed, "registrar", SL_MSG_COMMIT));
        struct sl_msg abort = take(bed, "registrar", SL_MSG_ABORT);
        ck_assert_uint_eq(abort.body.abort.items.count, 1);
        (void)long_way(bed, seq, 1, 0);
        bed_end(bed);
    }
END_TEST

START_TEST(block_that_another_was_faster_with_existed)
    {
        struct bed *bed = bed_warm(4);
        uint64_t seq = store_send(bed, 3, 1);
        (void)answer_copy(bed, 0, NOTHING_MISSES);

        (void)answer_wish(bed, 1, SL_ERR_EXISTS, 0);

        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(bits_of(&reply.body.store_reply.stored), 0);
        ck_assert_uint_eq(bits_of(&reply.body.store_reply.existed), 1);
        struct sl_msg abort = take(bed, "registrar", SL_MSG_ABORT);
        ck_assert_uint_eq(abort.body.abort.items.count, 1);
        bed_end(bed);
    }
END_TEST

enum unfit { UNFIT_TAKEN_BACK, UNFIT_OLD, UNFIT_MANY, UNFIT_EXISTS, UNFITS };

START_TEST(grants_are_left_alone_when_they_do_not_fit)
    {
        struct bed *bed = bed_warm(_i == UNFIT_TAKEN_BACK ? 1 : 16);
        uint32_t blocks = _i == UNFIT_MANY ? 9 : 1;
        if (_i == UNFIT_TAKEN_BACK) {
            sl_index_set_kind(bed->index, (sl_ref)grants[0].ref, SL_RECORD_QUARANTINED);
        } else if (_i == UNFIT_OLD) {
            fake_pass(&bed->fake, SL_NS_PER_S + SL_NS_PER_MS); /* half of reservation_ttl */
        } else if (_i == UNFIT_EXISTS) {
            const struct sl_group_want want = {
                .key = {.at = MODEL "/b0", .length = strlen(MODEL "/b0")}, .part_count = 1};
            sl_ref ref = 0;
            ck_assert_int_eq(sl_index_group_create(bed->index, &want, &ref, NULL), SL_OK);
        }

        uint64_t seq = store_send(bed, 3, blocks);

        answer_reserve(bed, NO_BLOCK, SL_OK);
        ck_assert_uint_eq(answer_copy(bed, 0, NOTHING_MISSES), blocks);
        answer_commit(bed);
        ck_assert_int_eq(reply_to(bed, seq).code, SL_OK);
        bed_end(bed);
    }
END_TEST

START_TEST(commit_asks_for_more_before_none_is_left)
    {
        struct bed *bed = bed_warm(3);
        uint32_t asked = 0;
        for (uint32_t i = 0; i < 6; i++) {
            uint64_t seq = store_send(bed, 3 + i, 1);
            ck_assert(!sent(bed, "registrar", SL_MSG_RESERVE));
            (void)answer_copy(bed, 0, NOTHING_MISSES);
            asked += answer_wish(bed, 1, SL_OK, 8) > 0 ? 1 : 0;
            stored(bed, seq, 1);
        }
        ck_assert_uint_eq(asked, 1);
        bed_end(bed);
    }
END_TEST

/* A registrar that gives none is not asked with every store. */
START_TEST(refused_wish_is_not_said_again_at_once)
    {
        struct bed *bed = bed_warm(0);
        uint64_t asked = long_way(bed, store_send(bed, 3, 1), 1, 0);
        ck_assert_uint_eq(asked, 0);
        for (uint32_t i = 0; i < 3; i++) { /* the habit stays */
            fake_pass(&bed->fake, 400 * SL_NS_PER_MS);
            asked += long_way(bed, store_send(bed, 4 + i, 1), 1, 0);
        }

        ck_assert_uint_gt(asked, 0);
        bed_end(bed);
    }
END_TEST

/* The extent may be written until the swapper is fenced. */
START_TEST(deadline_in_a_copy_gives_grants_back_after_the_fence)
    {
        struct bed *bed = bed_warm(1);
        uint64_t seq = store_send(bed, 3, 1);

        fake_pass(&bed->fake, 2 * SL_NS_PER_S);

        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_ERR_TIMEOUT);
        ck_assert(!sent(bed, "registrar", SL_MSG_ABORT));
        answer_fence(bed, 0, 3);
        struct sl_msg abort = take(bed, "registrar", SL_MSG_ABORT);
        ck_assert_uint_eq(abort.body.abort.items.count, 1);
        bed_end(bed);
    }
END_TEST

/* Else the registrar would have the swapper fenced, and kill one that is slow to acknowledge it. */
START_TEST(grants_that_nobody_was_told_of_go_back_by_themselves)
    {
        struct bed *bed = bed_warm(4);

        fake_pass(&bed->fake, SL_NS_PER_S - 2 * SL_NS_PER_MS); /* half of reservation_ttl */
        ck_assert(!sent(bed, "registrar", SL_MSG_ABORT));
        fake_pass(&bed->fake, 3 * SL_NS_PER_MS);

        struct sl_msg abort = take(bed, "registrar", SL_MSG_ABORT);
        ck_assert_uint_eq(abort.body.abort.items.count, 4);
        ck_assert_uint_eq(abort.body.abort.items.at[0].generation, grants[0].generation);
        ck_assert_uint_eq(abort.body.abort.items.at[0].ref, grants[0].ref);
        answer(bed, "registrar", &abort, (struct sl_msg){.code = SL_OK});
        fake_pass(&bed->fake, 4 * SL_NS_PER_S);
        ck_assert(!sent(bed, "registrar", SL_MSG_ABORT)); /* once */
        bed_end(bed);
    }
END_TEST

START_TEST(grants_that_come_late_go_back)
    {
        struct bed *bed = bed_make(NULL);
        const uint64_t code = SL_OK;
        bed->world = 1;
        (void)long_way(bed, op_begin(bed, SL_MSG_STORE, 1, 1), 1, 0);
        fake_pass(&bed->fake, SL_NS_PER_MS);
        uint64_t seq = op_send(bed, SL_MSG_STORE, 2, 1);
        answer_keys(bed);
        answer_reserve(bed, NO_BLOCK, SL_OK);
        (void)answer_copy(bed, 0, NOTHING_MISSES);
        struct sl_msg commit = take(bed, "registrar", SL_MSG_COMMIT);
        struct sl_msg answered = {.body.commit_reply.codes = {&code, 1}};
        grants[0] = grant_make(bed);
        answered.body.commit_reply.ahead.at = grants;
        answered.body.commit_reply.ahead.count = 1;
        answer(bed, "registrar", &commit, answered);
        stored(bed, seq, 1);
        answer(bed, "registrar", &commit, answered);
        ck_assert(!sent(bed, "registrar", SL_MSG_ABORT)); /* it may be in use */

        grants[0] = grant_make(bed); /* the request was sent again meanwhile */
        answer(bed, "registrar", &commit, answered);

        struct sl_msg abort = take(bed, "registrar", SL_MSG_ABORT);
        ck_assert_uint_eq(abort.body.abort.items.count, 1);
        ck_assert_uint_eq(abort.body.abort.items.at[0].generation, grants[0].generation);
        bed_end(bed);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("coordinator_ahead");
    TCase *stores = tcase_create("stores");
    tcase_add_test(stores, small_store_that_comes_again_needs_no_reserve);
    tcase_add_test(stores, blocks_of_two_parts_ask_for_nothing);
    tcase_add_loop_test(stores, store_whose_grants_are_gone_goes_the_long_way, 0, 4);
    tcase_add_test(stores, part_that_was_not_copied_goes_the_long_way);
    tcase_add_test(stores, block_that_another_was_faster_with_existed);
    tcase_add_loop_test(stores, grants_are_left_alone_when_they_do_not_fit, 0, UNFITS);
    tcase_add_test(stores, commit_asks_for_more_before_none_is_left);
    tcase_add_test(stores, refused_wish_is_not_said_again_at_once);
    tcase_add_test(stores, deadline_in_a_copy_gives_grants_back_after_the_fence);
    tcase_add_test(stores, grants_that_nobody_was_told_of_go_back_by_themselves);
    tcase_add_test(stores, grants_that_come_late_go_back);
    suite_add_tcase(suite, stores);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
