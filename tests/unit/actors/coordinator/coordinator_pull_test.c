/* tests/unit/actors/coordinator/coordinator_pull_test.c - loads whose blocks are read from other
 * nodes straight into the pools: requests to the transporter, the effects of its answers, and its
 * fences. */
#include "tests/unit/actors/coordinator/coordinator_handover_support.h"

#define OP         1u
#define TIMEOUT_NS (3 * SL_NS_PER_S) /* more than the time of an op and of its fence */

/* Every part of block `bad` has this code, all others arrived. */
static void pulled(struct bed *bed, const struct sl_msg *pull, uint32_t bad, sl_err code)
{
    uint64_t codes[BLOCKS_MAX * RANKS];
    uint64_t count = pull->body.bring.keys.count;
    ck_assert_uint_le(count, SL_COUNT(codes));
    for (uint64_t i = 0; i < count; i++) {
        codes[i] = i / RANKS == bad ? (uint64_t)code : SL_OK;
    }
    struct sl_msg reply = {.code = SL_OK};
    reply.body.bring_reply.codes = (struct sl_u64s){codes, count};
    answer(bed, "transporter.0", pull, reply);
}

static void passes(struct bed *bed, uint64_t ns)
{
    for (uint64_t at = 0; at < ns; at += 20 * SL_NS_PER_MS) {
        fake_advance(&bed->fake, 20 * SL_NS_PER_MS);
    }
}

static bool fenced_says(struct bed *bed)
{
    struct sl_msg reply;
    return fake_take(&bed->fake, "client.1.0", SL_MSG_OP_FENCED_REPLY, &reply) &&
           reply.body.op_fenced_reply.fenced;
}

static void fenced_ask(struct bed *bed)
{
    struct sl_msg ask = {.type = SL_MSG_OP_FENCED, .op_id = 2, .body.op_fenced.target_op = OP};
    fake_give(&bed->fake, "client.1.0", &ask);
}

static struct sl_msg fence_of_op(struct bed *bed)
{
    struct sl_msg fence = take(bed, "transporter.0", SL_MSG_FENCE);
    ck_assert_uint_eq(fence.op_id, OP);
    ck_assert_uint_eq(fence.body.fence.items.count, 0);
    return fence;
}

/* ---- requests and their results ---- */

START_TEST(missing_blocks_are_pulled_for_every_rank)
    {
        struct bed *bed = bed_straight();
        uint64_t seq = op_begin(bed, SL_MSG_LOAD, OP, 2);
        struct sl_msg pull = take(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS);
        const struct sl_body_bring *body = &pull.body.bring;
        ck_assert_uint_eq(pull.op_id, OP);
        ck_assert(body->chain && !body->sure);
        ck_assert_uint_eq(body->keys.count, 2 * RANKS);
        ck_assert_uint_eq(body->groups.count, 2);
        ck_assert_uint_eq(body->slots.count, 2 * RANKS);
        for (uint64_t i = 0; i < body->slots.count; i++) {
            const struct sl_item_slot *slot = &body->slots.at[i];
            ck_assert_uint_eq(slot->engine_id, ENGINE_ID);
            ck_assert_uint_eq(slot->item, i);
            ck_assert_uint_eq(slot->rank, i % RANKS);
            ck_assert_uint_eq(slot->device_block, 10 + i / RANKS);
        }
        ck_assert_str_eq(body->keys.at[3].at, MODEL "/b1/1/attn");

        pulled(bed, &pull, UINT32_MAX, SL_OK);

        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 2);
        ck_assert_uint_eq(reply.body.load_reply.from_remote, 2);
        ck_assert_uint_eq(reply.body.load_reply.bytes, 2 * RANKS * PART_BYTES);
        ck_assert(reply.body.load_reply.fenced);
        ck_assert(!sent(bed, "transporter.0", SL_MSG_BRING));
        ck_assert(!sent(bed, "swapper.0", SL_MSG_COPY));
        ck_assert(!sent(bed, "transporter.0", SL_MSG_FENCE));
        bed_end(bed);
    }
END_TEST

START_TEST(what_is_here_is_copied_and_the_rest_is_pulled)
    {
        struct bed *bed = bed_straight();
        index_put(bed, 0, true, PART_BYTES);
        uint64_t seq = op_begin(bed, SL_MSG_LOAD, OP, 3);
        struct sl_msg pull = take(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS);
        ck_assert_uint_eq(pull.body.bring.groups.count, 2);
        ck_assert_uint_eq(pull.body.bring.slots.at[0].device_block, 11);

        pulled(bed, &pull, UINT32_MAX, SL_OK);

        for (uint32_t rank = 0; rank < RANKS; rank++) {
            ck_assert_uint_eq(answer_copy(bed, rank, UINT64_MAX), 1);
        }
        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 3);
        ck_assert_uint_eq(reply.body.load_reply.from_memory, 1);
        ck_assert_uint_eq(reply.body.load_reply.from_remote, 2);
        ck_assert_uint_eq(pins(bed), 0);
        bed_end(bed);
    }
END_TEST

START_TEST(what_did_not_come_ends_the_prefix)
    {
        static const sl_err codes[] = {SL_ERR_NOT_FOUND, SL_ERR_CORRUPT, SL_ERR_TIMEOUT};
        struct bed *bed = bed_straight();
        uint64_t seq = op_begin(bed, SL_MSG_LOAD, OP, 3);
        struct sl_msg pull = take(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS);

        pulled(bed, &pull, 1, codes[_i]);

        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 1);
        ck_assert(!sent(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS));
        ck_assert(!sent(bed, "transporter.0", SL_MSG_BRING));
        bed_end(bed);
    }
END_TEST

START_TEST(a_block_that_came_here_meanwhile_is_copied)
    {
        struct bed *bed = bed_straight();
        uint64_t seq = op_begin(bed, SL_MSG_LOAD, OP, 2);
        struct sl_msg pull = take(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS);
        index_put(bed, 1, true, PART_BYTES);

        pulled(bed, &pull, 1, SL_ERR_EXISTS);

        for (uint32_t rank = 0; rank < RANKS; rank++) {
            ck_assert_uint_eq(answer_copy(bed, rank, UINT64_MAX), 1);
        }
        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 2);
        ck_assert_uint_eq(reply.body.load_reply.from_memory, 1);
        bed_end(bed);
    }
END_TEST

static const sl_err refusals[] = {SL_ERR_UNSUPPORTED, SL_ERR_NOT_FOUND, SL_ERR_LIMIT, SL_ERR_BUSY,
                                  SL_ERR_INVALID};
START_TEST(a_refusal_goes_on_by_the_arena_at_once)
    {
        struct bed *bed = bed_straight();
        (void)op_begin(bed, SL_MSG_LOAD, OP, 2);
        struct sl_msg pull = take(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS);

        answer(bed, "transporter.0", &pull, (struct sl_msg){.code = refusals[_i]});

        struct sl_msg fetch = take(bed, "transporter.0", SL_MSG_BRING);
        ck_assert_uint_eq(fetch.body.bring.keys.count, 2 * RANKS);
        answer(bed, "transporter.0", &fetch, (struct sl_msg){.code = SL_ERR_UNREACHABLE});
        (void)op_send(bed, SL_MSG_LOAD, OP + 1, 2); /* the next op does not try it either */
        answer_keys(bed);
        ck_assert(!sent(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS));
        ck_assert(sent(bed, "transporter.0", SL_MSG_BRING));
        passes(bed, TIMEOUT_NS); /* but a later one does: pools may have been registered */
        (void)op_send(bed, SL_MSG_LOAD, OP + 2, 2);
        answer_keys(bed);
        ck_assert(sent(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS));
        bed_end(bed);
    }
END_TEST

/* A hand-over's blocks are requested again. Blocks that had arrived after a gap are overwritten
 * then, and count as in the new answer. */
START_TEST(what_is_pulled_again_counts_again)
    {
        struct bed *bed = bed_straight();
        struct sl_item_receipt receipt = receipt_of("b1", 2);
        struct sl_msg reply;
        uint64_t seq =
            side_begin(bed, SL_MSG_LOAD, (struct side){.op_id = RECV, .id = ID, .blocks = 2}, true);
        ck_assert_int_eq(arrived(bed, &receipt, 1, 0), SL_OK);
        struct sl_msg first = take(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS);
        pulled(bed, &first, 0, SL_ERR_CORRUPT); /* block 1 came */
        passes(bed, 100 * SL_NS_PER_MS);
        struct sl_msg second = take(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS);
        ck_assert_uint_eq(second.body.bring.groups.count, 2);

        pulled(bed, &second, 1, SL_ERR_CORRUPT); /* block 0 came */

        passes(bed, 100 * SL_NS_PER_MS);
        ck_assert(!answered(bed, seq, &reply));
        struct sl_msg third = take(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS);
        ck_assert_uint_eq(third.body.bring.groups.count, 1);
        ck_assert_uint_eq(third.body.bring.slots.at[0].device_block, 11);
        pulled(bed, &third, UINT32_MAX, SL_OK);
        reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 2);
        bed_end(bed);
    }
END_TEST

static const char *const ways[][8] = {
    {"fabric", "tcp", "fabric_pools", "true", NULL},
    {"fabric", "tcp", "fabric_pools", "false", "cache_remote_loads", "false", NULL},
    {"fabric_pools", "true", "cache_remote_loads", "false", NULL},
};
START_TEST(other_settings_go_by_the_arena)
    {
        struct bed *bed = bed_make(ways[_i]);
        if (_i == 0) { /* the others send the transporter nothing that needs a fence */
            transporter_greeted(bed);
        }
        sl_index_set_remote(bed->index, true);
        (void)op_begin(bed, SL_MSG_LOAD, OP, 2);
        ck_assert(!sent(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS));
        ck_assert(sent(bed, "transporter.0", SL_MSG_BRING));
        bed_end(bed);
    }
END_TEST

/* ---- fences ---- */

static void op_cancel(struct bed *bed)
{
    struct sl_msg cancel = {.type = SL_MSG_CANCEL, .op_id = 3, .body.cancel.target_op = OP};
    fake_give(&bed->fake, "client.1.0", &cancel);
    struct sl_msg reply = take(bed, "client.1.0", SL_MSG_CANCEL_REPLY);
    ck_assert(!reply.body.cancel_reply.fenced);
}

START_TEST(a_cancelled_pull_keeps_its_blocks_until_the_fence)
    {
        struct bed *bed = bed_straight();
        uint64_t seq = op_begin(bed, SL_MSG_LOAD, OP, 2);
        struct sl_msg pull = take(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS);
        uint64_t pull_seq = pull.seq;

        op_cancel(bed);

        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_ERR_CANCELLED);
        ck_assert(!reply.body.load_reply.fenced);
        struct sl_msg fence = fence_of_op(bed);
        fenced_ask(bed);
        pulled(bed, &(struct sl_msg){.type = SL_MSG_BRING, .op_id = OP, .seq = pull_seq}, 0, SL_OK);
        ck_assert(!fenced_says(bed)); /* an answer to an abandoned request is no fence */
        answer(bed, "transporter.0", &fence, (struct sl_msg){.code = SL_OK});
        ck_assert(fenced_says(bed));
        passes(bed, TIMEOUT_NS);
        ck_assert(
            !sent(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS)); /* nor is it sent again */
        ck_assert_uint_eq(bed->fake.killed_count, 0);
        bed_end(bed);
    }
END_TEST

START_TEST(the_death_of_the_engine_fences_its_pull)
    {
        struct bed *bed = bed_straight();
        (void)op_begin(bed, SL_MSG_LOAD, OP, 2);
        (void)take(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS);
        fake_process_end(&bed->fake, engine_proc);
        fake_advance(&bed->fake, 0);
        (void)fence_of_op(bed);
        bed_end(bed);
    }
END_TEST

/* The transporter gets half of the time; blocks on this node are loaded in any case. */
START_TEST(a_silent_transporter_costs_no_blocks_that_are_here)
    {
        struct bed *bed = bed_straight();
        index_put(bed, 0, true, PART_BYTES);
        uint64_t seq = op_begin(bed, SL_MSG_LOAD, OP, 2);
        (void)take(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS);
        struct sl_msg reply = {0};
        bool answered = false;
        for (uint32_t i = 0; i < 500 && !answered; i++) {
            struct sl_msg copy;
            fake_advance(&bed->fake, 10 * SL_NS_PER_MS);
            for (uint32_t rank = 0; rank < RANKS; rank++) {
                char name[16];
                uint8_t done[1] = {1};
                swapper_name(rank, name);
                if (fake_take(&bed->fake, name, SL_MSG_COPY, &copy)) {
                    answer(bed, name, &copy, (struct sl_msg){.body.copy_reply.done = {done, 1}});
                }
            }
            answered = fake_take_reply(&bed->fake, "client.1.0", seq, &reply);
        }
        ck_assert(answered);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 1);
        ck_assert(!reply.body.load_reply.fenced); /* the others are still in use */
        struct sl_msg fence = {0};
        fenced_ask(bed);
        ck_assert(!fenced_says(bed));
        while (fake_take(&bed->fake, "transporter.0", SL_MSG_FENCE, &fence)) {
            ck_assert_uint_eq(fence.op_id, OP);
            answer(bed, "transporter.0", &fence, (struct sl_msg){.code = SL_OK});
        }
        ck_assert_uint_eq(fence.op_id, OP);
        ck_assert(fenced_says(bed));
        bed_end(bed);
    }
END_TEST

START_TEST(a_transporter_that_acknowledges_no_fence_is_killed)
    {
        struct bed *bed = bed_straight();
        (void)op_begin(bed, SL_MSG_LOAD, OP, 2);
        (void)take(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS);
        op_cancel(bed);
        fenced_ask(bed);
        fake_advance(&bed->fake, 20 * SL_NS_PER_MS);
        ck_assert_uint_eq(bed->fake.killed_count, 0);
        passes(bed, TIMEOUT_NS);
        ck_assert_uint_eq(bed->fake.killed_count, 1);
        ck_assert_uint_eq(bed->fake.killed[0].pid, transporter_proc.pid);
        ck_assert(!fenced_says(bed));
        fenced_ask(bed);
        struct sl_msg fence; /* its successor acknowledges ops it never knew */
        while (fake_take(&bed->fake, "transporter.0", SL_MSG_FENCE, &fence)) {
            answer(bed, "transporter.0", &fence, (struct sl_msg){.code = SL_OK});
        }
        ck_assert(fenced_says(bed));
        bed_end(bed);
    }
END_TEST

START_TEST(a_transporter_that_is_dead_and_stays_away_counts_as_fenced)
    {
        struct bed *bed = bed_straight();
        (void)op_begin(bed, SL_MSG_LOAD, OP, 2);
        (void)take(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS);
        fake_process_end(&bed->fake, transporter_proc);
        (void)snprintf(bed->fake.unreachable, sizeof(bed->fake.unreachable), "transporter.0");
        op_cancel(bed);
        fenced_ask(bed);
        fake_advance(&bed->fake, 100 * SL_NS_PER_MS);
        ck_assert(!fenced_says(bed));
        passes(bed, TIMEOUT_NS);
        ck_assert(fenced_says(bed));
        bed_end(bed);
    }
END_TEST

START_TEST(a_late_answer_of_a_restarted_transporter_is_not_taken)
    {
        struct bed *bed = bed_straight();
        (void)op_begin(bed, SL_MSG_LOAD, OP, 2);
        struct sl_msg pull = take(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS);
        uint64_t pull_seq = pull.seq;
        fake_process_end(&bed->fake, transporter_proc);
        fake_advance(&bed->fake, 150 * SL_NS_PER_MS); /* it was sent again, to its successor */
        struct sl_msg again = {.type = SL_MSG_BRING, .op_id = OP, .seq = pull_seq};
        uint64_t codes[2 * RANKS] = {0};
        struct sl_msg reply = {.code = SL_OK};
        reply.body.bring_reply.codes = (struct sl_u64s){codes, 2 * RANKS};
        answer(bed, "transporter.0", &again, reply);

        struct sl_msg fence = fence_of_op(bed);
        ck_assert(!sent(bed, "transporter.0", SL_MSG_BRING));
        answer(bed, "transporter.0", &fence, (struct sl_msg){.code = SL_OK});
        ck_assert(sent(bed, "transporter.0", SL_MSG_BRING));
        bed_end(bed);
    }
END_TEST

START_TEST(ops_wait_until_a_dead_coordinators_pulls_are_fenced)
    {
        struct bed *bed = bed_make(pool_load_settings);
        (void)op_begin(bed, SL_MSG_STORE, OP, 1);
        fake_advance(&bed->fake, 10 * SL_NS_PER_MS);
        ck_assert(!sent(bed, "registrar", SL_MSG_RESERVE)); /* its blocks may still be written to */
        transporter_greeted(bed);
        fake_advance(&bed->fake, 10 * SL_NS_PER_MS);
        ck_assert(sent(bed, "registrar", SL_MSG_RESERVE));
        bed_end(bed);
    }
END_TEST

START_TEST(a_transporter_that_is_not_there_is_not_waited_for)
    {
        struct bed *bed = bed_make(pool_load_settings);
        (void)snprintf(bed->fake.unreachable, sizeof(bed->fake.unreachable), "transporter.0");
        passes(bed, TIMEOUT_NS);
        (void)op_begin(bed, SL_MSG_STORE, OP, 1);
        passes(bed, 100 * SL_NS_PER_MS);
        ck_assert(sent(bed, "registrar", SL_MSG_RESERVE));
        bed_end(bed);
    }
END_TEST

START_TEST(an_unknown_op_is_fenced_at_the_transporter_too)
    {
        struct bed *bed = bed_straight();
        fenced_ask(bed);
        answer_fence(bed, 0, OP);
        answer_fence(bed, 1, OP);
        ck_assert(!fenced_says(bed));
        struct sl_msg fence = fence_of_op(bed);
        answer(bed, "transporter.0", &fence, (struct sl_msg){.code = SL_OK});
        ck_assert(fenced_says(bed));
        bed_end(bed);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("coordinator_pull");
    TCase *asked = tcase_create("asked");
    tcase_add_test(asked, missing_blocks_are_pulled_for_every_rank);
    tcase_add_test(asked, what_is_here_is_copied_and_the_rest_is_pulled);
    tcase_add_loop_test(asked, what_did_not_come_ends_the_prefix, 0, 3);
    tcase_add_test(asked, a_block_that_came_here_meanwhile_is_copied);
    tcase_add_loop_test(asked, a_refusal_goes_on_by_the_arena_at_once, 0, SL_COUNT(refusals));
    tcase_add_loop_test(asked, other_settings_go_by_the_arena, 0, SL_COUNT(ways));
    tcase_add_test(asked, what_is_pulled_again_counts_again);
    suite_add_tcase(suite, asked);
    TCase *fences = tcase_create("fences");
    tcase_add_test(fences, a_cancelled_pull_keeps_its_blocks_until_the_fence);
    tcase_add_test(fences, the_death_of_the_engine_fences_its_pull);
    tcase_add_test(fences, a_silent_transporter_costs_no_blocks_that_are_here);
    tcase_add_test(fences, a_transporter_that_acknowledges_no_fence_is_killed);
    tcase_add_test(fences, a_transporter_that_is_dead_and_stays_away_counts_as_fenced);
    tcase_add_test(fences, a_late_answer_of_a_restarted_transporter_is_not_taken);
    tcase_add_test(fences, ops_wait_until_a_dead_coordinators_pulls_are_fenced);
    tcase_add_test(fences, a_transporter_that_is_not_there_is_not_waited_for);
    tcase_add_test(fences, an_unknown_op_is_fenced_at_the_transporter_too);
    suite_add_tcase(suite, fences);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
