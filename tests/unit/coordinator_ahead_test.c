/* tests/unit/coordinator_ahead_test.c - small stores in extents that were granted ahead of use. */
#include "tests/unit/coordinator_support.h"

#include "runtime/sl_clock.h"

#define NOTHING_MISSES UINT64_MAX
#define NO_BLOCK       UINT32_MAX

/* A grant ahead of use that stands in the index. */
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

static struct sl_item_grant first_grants[RANKS]; /* that the last wish of each rank got */

static struct sl_item_grant grants[64]; /* of the last answer to a wish */

/* Answers a wish with so many grants; gives the rank that it is for. */
static uint32_t wish_answer(struct bed *bed, const struct sl_msg *wish, uint64_t count)
{
    const struct sl_body_publish *body = &wish->body.publish;
    uint32_t rank = strcmp(body->ahead_writer.at, "swapper.1") == 0 ? 1 : 0;
    ck_assert_uint_eq(body->items.count, 0);
    ck_assert_uint_eq(body->ahead_bytes, PART_BYTES);
    ck_assert_uint_gt(body->ahead_count, 1);
    ck_assert_uint_le(body->ahead_count, SL_COUNT(grants));
    count = SL_MIN(count, body->ahead_count);
    for (uint64_t i = 0; i < count; i++) {
        grants[i] = grant_make(bed);
    }
    first_grants[rank] = grants[0];
    answer(bed, "registrar", wish, (struct sl_msg){.body.publish_reply.ahead = {grants, count}});
    return rank;
}

static uint32_t bits_of(const struct sl_bytes *bitmap)
{
    return *(const uint8_t *)bitmap->at; /* of up to 8 blocks */
}

static void long_way(struct bed *bed, uint64_t seq, uint32_t blocks)
{
    answer_reserve(bed, NO_BLOCK, SL_OK);
    ck_assert_uint_eq(answer_copy(bed, 0, NOTHING_MISSES), blocks);
    ck_assert_uint_eq(answer_copy(bed, 1, NOTHING_MISSES), blocks);
    answer_commit(bed);
    struct sl_msg reply = reply_to(bed, seq);
    ck_assert_int_eq(reply.code, SL_OK);
    ck_assert_uint_eq(bits_of(&reply.body.store_reply.stored), (1u << blocks) - 1);
}

/* Two stores of one block: the second asks for extents of both ranks, and gets `count` each. */
static struct bed *bed_warm(uint64_t count)
{
    struct bed *bed = bed_make(NULL);
    long_way(bed, op_begin(bed, SL_MSG_STORE, 1, 1), 1);
    ck_assert(!sent(bed, "registrar", SL_MSG_PUBLISH)); /* one store is no habit */
    fake_pass(&bed->fake, SL_NS_PER_MS);
    uint64_t seq = op_send(bed, SL_MSG_STORE, 2, 1);
    answer_keys(bed);
    uint32_t ranks = 0;
    for (uint32_t i = 0; i < RANKS; i++) {
        struct sl_msg wish = take(bed, "registrar", SL_MSG_PUBLISH);
        ranks |= 1u << wish_answer(bed, &wish, count);
    }
    ck_assert_uint_eq(ranks, 3);
    ck_assert(!sent(bed, "registrar", SL_MSG_PUBLISH));
    long_way(bed, seq, 1);
    return bed;
}

static uint64_t store_send(struct bed *bed, uint64_t op_id, uint32_t blocks)
{
    uint64_t seq = op_send(bed, SL_MSG_STORE, op_id, blocks);
    answer_keys(bed);
    return seq;
}

/* Answers the PUBLISH of the store of one block: all its parts get the code. */
static void answer_publish(struct bed *bed, sl_err code)
{
    uint64_t codes[RANKS] = {(uint64_t)code, (uint64_t)code};
    struct sl_msg publish = take(bed, "registrar", SL_MSG_PUBLISH);
    ck_assert_uint_eq(publish.body.publish.items.count, RANKS);
    answer(bed, "registrar", &publish, (struct sl_msg){.body.publish_reply.codes = {codes, RANKS}});
}

static void stored_one(struct bed *bed, uint64_t seq)
{
    struct sl_msg reply = reply_to(bed, seq);
    ck_assert_int_eq(reply.code, SL_OK);
    ck_assert_uint_eq(bits_of(&reply.body.store_reply.stored), 1);
    ck_assert_uint_eq(bits_of(&reply.body.store_reply.existed), 0);
    ck_assert(reply.body.store_reply.fenced);
}

START_TEST(small_store_that_comes_again_needs_no_reserve)
    {
        struct bed *bed = bed_warm(4);
        uint64_t seq = store_send(bed, 3, 1);

        ck_assert(!sent(bed, "registrar", SL_MSG_RESERVE));
        (void)answer_copy(bed, 0, NOTHING_MISSES);
        (void)answer_copy(bed, 1, NOTHING_MISSES);
        ck_assert(!sent(bed, "registrar", SL_MSG_COMMIT));
        const uint64_t codes[RANKS] = {SL_OK, SL_OK};
        struct sl_msg publish = take(bed, "registrar", SL_MSG_PUBLISH);
        const struct sl_body_publish *body = &publish.body.publish;
        ck_assert_uint_eq(publish.op_id, 3);
        ck_assert_uint_eq(body->groups.count, 1);
        ck_assert_str_eq(body->groups.at[0].key.at, MODEL "/b0");
        ck_assert_uint_eq(body->groups.at[0].key.length, strlen(MODEL "/b0"));
        ck_assert_uint_eq(body->groups.at[0].part_count, RANKS);
        for (uint32_t i = 0; i < RANKS; i++) {
            ck_assert_uint_eq(body->items.at[i].generation, first_grants[i].generation);
            ck_assert_uint_eq(body->items.at[i].ref, first_grants[i].ref);
            ck_assert_uint_eq(body->items.at[i].group, 1);
            ck_assert_uint_eq(body->items.at[i].part_index, i);
            ck_assert_uint_eq(body->items.at[i].length_bytes, PART_BYTES);
            ck_assert_uint_eq(body->items.at[i].digest_low, i + 1); /* as the swapper says */
        }
        answer(bed, "registrar", &publish,
               (struct sl_msg){.body.publish_reply.codes = {codes, RANKS}});
        stored_one(bed, seq);
        ck_assert(!sent(bed, "registrar", SL_MSG_ABORT));
        bed_end(bed);
    }
END_TEST

/* What was taken back, or is another's by now: RESERVE says what it is, the extents go back. */
START_TEST(store_whose_grants_are_gone_goes_the_long_way)
    {
        static const sl_err codes[] = {SL_ERR_STALE, SL_ERR_BUSY, SL_ERR_NO_SPACE, SL_ERR_INVALID};
        struct bed *bed = bed_warm(4);
        uint64_t seq = store_send(bed, 3, 1);
        (void)answer_copy(bed, 0, NOTHING_MISSES);
        (void)answer_copy(bed, 1, NOTHING_MISSES);

        answer_publish(bed, codes[_i]);

        struct sl_msg abort = take(bed, "registrar", SL_MSG_ABORT);
        ck_assert_uint_eq(abort.body.abort.items.count, RANKS);
        ck_assert_uint_eq(abort.body.abort.items.at[0].generation, first_grants[0].generation);
        long_way(bed, seq, 1);
        bed_end(bed);
    }
END_TEST

START_TEST(part_that_was_not_copied_goes_the_long_way)
    {
        struct bed *bed = bed_warm(4);
        uint64_t seq = store_send(bed, 3, 1);
        (void)answer_copy(bed, 0, NOTHING_MISSES);
        (void)answer_copy(bed, 1, 0); /* its claim did not stand */

        ck_assert(!sent(bed, "registrar", SL_MSG_PUBLISH));
        struct sl_msg abort = take(bed, "registrar", SL_MSG_ABORT);
        ck_assert_uint_eq(abort.body.abort.items.count, RANKS);
        long_way(bed, seq, 1);
        bed_end(bed);
    }
END_TEST

START_TEST(block_that_another_was_faster_with_existed)
    {
        struct bed *bed = bed_warm(4);
        uint64_t seq = store_send(bed, 3, 1);
        (void)answer_copy(bed, 0, NOTHING_MISSES);
        (void)answer_copy(bed, 1, NOTHING_MISSES);

        answer_publish(bed, SL_ERR_EXISTS);

        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(bits_of(&reply.body.store_reply.stored), 0);
        ck_assert_uint_eq(bits_of(&reply.body.store_reply.existed), 1);
        struct sl_msg abort = take(bed, "registrar", SL_MSG_ABORT);
        ck_assert_uint_eq(abort.body.abort.items.count, RANKS);
        bed_end(bed);
    }
END_TEST

enum unfit { UNFIT_TAKEN_BACK, UNFIT_OLD, UNFIT_LARGE, UNFIT_EXISTS, UNFITS };

START_TEST(grants_are_left_alone_when_they_do_not_fit)
    {
        struct bed *bed = bed_warm(_i == UNFIT_TAKEN_BACK ? 1 : 4);
        uint32_t blocks = _i == UNFIT_LARGE ? 5 : 1; /* 10 parts */
        if (_i == UNFIT_TAKEN_BACK) {
            sl_index_set_kind(bed->index, (sl_ref)first_grants[1].ref, SL_RECORD_QUARANTINED);
        } else if (_i == UNFIT_OLD) {
            fake_pass(&bed->fake, SL_NS_PER_S + SL_NS_PER_MS); /* half of reservation_ttl */
        } else if (_i == UNFIT_EXISTS) {
            const struct sl_group_want want = {
                .key = {.at = MODEL "/b0", .length = strlen(MODEL "/b0")}, .part_count = RANKS};
            sl_ref ref = 0;
            ck_assert_int_eq(sl_index_group_create(bed->index, &want, &ref, NULL), SL_OK);
        }

        uint64_t seq = store_send(bed, 3, blocks);

        long_way(bed, seq, blocks);
        bed_end(bed);
    }
END_TEST

START_TEST(publish_asks_for_more_before_none_is_left)
    {
        struct bed *bed = bed_warm(3);
        uint32_t asked = 0;
        for (uint32_t i = 0; i < 3; i++) {
            uint64_t codes[RANKS] = {SL_OK, SL_OK};
            uint64_t seq = store_send(bed, 3 + i, 1);
            (void)answer_copy(bed, 0, NOTHING_MISSES);
            (void)answer_copy(bed, 1, NOTHING_MISSES);
            struct sl_msg publish = take(bed, "registrar", SL_MSG_PUBLISH);
            struct sl_item_grant more[8];
            uint64_t count = SL_MIN(publish.body.publish.ahead_count, SL_COUNT(more));
            for (uint64_t k = 0; k < count; k++) {
                more[k] = grant_make(bed);
            }
            asked += count > 0 ? 1 : 0;
            answer(bed, "registrar", &publish,
                   (struct sl_msg){
                       .body.publish_reply = {.codes = {codes, RANKS}, .ahead = {more, count}}});
            stored_one(bed, seq);
        }
        ck_assert_uint_eq(asked, 2); /* a class each */
        for (uint32_t i = 0; i < 3; i++) {
            uint64_t seq = store_send(bed, 6 + i, 1);
            ck_assert(!sent(bed, "registrar", SL_MSG_RESERVE));
            (void)answer_copy(bed, 0, NOTHING_MISSES);
            (void)answer_copy(bed, 1, NOTHING_MISSES);
            answer_publish(bed, SL_OK);
            stored_one(bed, seq);
        }
        bed_end(bed);
    }
END_TEST

/* A registrar that gives none is not asked with every store. */
START_TEST(refused_wish_is_not_said_again_at_once)
    {
        struct bed *bed = bed_warm(0);

        long_way(bed, store_send(bed, 3, 1), 1);
        ck_assert(!sent(bed, "registrar", SL_MSG_PUBLISH));
        for (uint32_t i = 0; i < 3; i++) { /* the habit stays */
            fake_pass(&bed->fake, 400 * SL_NS_PER_MS);
            long_way(bed, store_send(bed, 4 + i, 1), 1);
        }

        ck_assert(sent(bed, "registrar", SL_MSG_PUBLISH));
        bed_end(bed);
    }
END_TEST

/* The extents may be written until the swappers are fenced. */
START_TEST(deadline_in_a_copy_gives_grants_back_after_the_fence)
    {
        struct bed *bed = bed_warm(1);
        uint64_t seq = store_send(bed, 3, 1);
        (void)answer_copy(bed, 0, NOTHING_MISSES);

        fake_pass(&bed->fake, 2 * SL_NS_PER_S);

        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_ERR_TIMEOUT);
        ck_assert(!sent(bed, "registrar", SL_MSG_ABORT));
        answer_fence(bed, 1, 3);
        struct sl_msg abort = take(bed, "registrar", SL_MSG_ABORT);
        ck_assert_uint_eq(abort.body.abort.items.count, RANKS);
        bed_end(bed);
    }
END_TEST

/* Else the registrar would have the swappers fenced, and kill one that is slow to acknowledge it. */
START_TEST(grants_that_nobody_was_told_of_go_back_by_themselves)
    {
        struct bed *bed = bed_warm(4);
        struct sl_item_grant unused[RANKS] = {first_grants[0], first_grants[1]};
        uint32_t ranks = 0;

        fake_pass(&bed->fake, SL_NS_PER_S - 2 * SL_NS_PER_MS); /* half of reservation_ttl */
        ck_assert(!sent(bed, "registrar", SL_MSG_ABORT));
        fake_pass(&bed->fake, 3 * SL_NS_PER_MS);

        for (uint32_t i = 0; i < RANKS; i++) {
            struct sl_msg abort = take(bed, "registrar", SL_MSG_ABORT);
            const struct sl_item_claim *first = &abort.body.abort.items.at[0];
            uint32_t rank = first->generation == unused[0].generation ? 0 : 1;
            ck_assert_uint_eq(abort.body.abort.items.count, 4);
            ck_assert_uint_eq(first->generation, unused[rank].generation);
            ck_assert_uint_eq(first->ref, unused[rank].ref);
            answer(bed, "registrar", &abort, (struct sl_msg){.code = SL_OK});
            ranks |= 1u << rank;
        }
        ck_assert_uint_eq(ranks, 3);
        fake_pass(&bed->fake, 4 * SL_NS_PER_S);
        ck_assert(!sent(bed, "registrar", SL_MSG_ABORT)); /* once */
        bed_end(bed);
    }
END_TEST

START_TEST(grants_that_come_late_go_back)
    {
        struct bed *bed = bed_make(NULL);
        long_way(bed, op_begin(bed, SL_MSG_STORE, 1, 1), 1);
        fake_pass(&bed->fake, SL_NS_PER_MS);
        uint64_t seq = op_send(bed, SL_MSG_STORE, 2, 1);
        answer_keys(bed);
        struct sl_msg wish = take(bed, "registrar", SL_MSG_PUBLISH);
        (void)wish_answer(bed, &wish, 2);
        answer(bed, "registrar", &wish, (struct sl_msg){.body.publish_reply.ahead = {grants, 2}});
        ck_assert(!sent(bed, "registrar", SL_MSG_ABORT)); /* they may be in use */

        uint32_t rank = wish_answer(bed, &wish, 2); /* it was sent again meanwhile */

        struct sl_msg abort = take(bed, "registrar", SL_MSG_ABORT);
        ck_assert_uint_eq(abort.body.abort.items.count, 2);
        ck_assert_uint_eq(abort.body.abort.items.at[0].generation, first_grants[rank].generation);
        long_way(bed, seq, 1);
        bed_end(bed);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("coordinator_ahead");
    TCase *stores = tcase_create("stores");
    tcase_add_test(stores, small_store_that_comes_again_needs_no_reserve);
    tcase_add_loop_test(stores, store_whose_grants_are_gone_goes_the_long_way, 0, 4);
    tcase_add_test(stores, part_that_was_not_copied_goes_the_long_way);
    tcase_add_test(stores, block_that_another_was_faster_with_existed);
    tcase_add_loop_test(stores, grants_are_left_alone_when_they_do_not_fit, 0, UNFITS);
    tcase_add_test(stores, publish_asks_for_more_before_none_is_left);
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
