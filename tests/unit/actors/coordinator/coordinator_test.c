/* tests/unit/actors/coordinator/coordinator_test.c - the coordinator; the test answers for all
 * other actors. */
#include "tests/unit/actors/coordinator/coordinator_support.h"

/* ---- store ---- */

START_TEST(store_is_visible_after_commit_of_all_parts)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t seq = op_begin(bed, SL_MSG_STORE, 1, 3);
        struct sl_msg reserve = take(bed, "registrar", SL_MSG_RESERVE);
        ck_assert_uint_eq(reserve.body.reserve.items.count, 3 * RANKS);
        ck_assert_uint_eq(reserve.body.reserve.groups.count, 3);
        ck_assert_str_eq(reserve.body.reserve.items.at[3].key.at, MODEL "/b1/1/attn");
        ck_assert_str_eq(reserve.body.reserve.items.at[3].writer.at, "swapper.1");
        ck_assert_uint_eq(reserve.body.reserve.items.at[3].length_bytes, PART_BYTES);
        ck_assert_str_eq(reserve.body.reserve.groups.at[1].key.at, MODEL "/b1");
        ck_assert_uint_eq(reserve.body.reserve.groups.at[1].part_count, RANKS);
        struct sl_item_grant grants[3 * RANKS];
        for (uint64_t i = 0; i < SL_COUNT(grants); i++) {
            grants[i] = (struct sl_item_grant){
                .ref = 1 + i, .generation = 100 + i, .offset_bytes = i * PART_BYTES};
        }
        answer(bed, "registrar", &reserve,
               (struct sl_msg){.body.reserve_reply.items = {grants, SL_COUNT(grants)}});

        ck_assert_uint_eq(answer_copy(bed, 0, UINT64_MAX), 3);
        ck_assert(!sent(bed, "registrar", SL_MSG_COMMIT)); /* one rank is not enough */
        ck_assert_uint_eq(answer_copy(bed, 1, UINT64_MAX), 3);
        struct sl_msg commit = take(bed, "registrar", SL_MSG_COMMIT);
        ck_assert(commit.body.commit.tail_first);
        ck_assert_uint_eq(commit.body.commit.items.count, 3 * RANKS);
        ck_assert_uint_eq(commit.body.commit.items.at[3].generation, 103);
        ck_assert_uint_eq(commit.body.commit.items.at[3].digest_low, 2);
        ck_assert_uint_eq(commit.body.commit.items.at[3].digest_high, 1);
        uint64_t codes[3 * RANKS] = {0};
        answer(bed, "registrar", &commit,
               (struct sl_msg){.body.commit_reply.codes = {codes, SL_COUNT(codes)}});

        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(((const uint8_t *)reply.body.store_reply.stored.at)[0], 7);
        ck_assert_uint_eq(((const uint8_t *)reply.body.store_reply.existed.at)[0], 0);
        ck_assert(reply.body.store_reply.fenced);
        bed_end(bed);
    }
END_TEST

START_TEST(store_reports_what_existed)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t seq = op_begin(bed, SL_MSG_STORE, 1, 2);
        answer_reserve(bed, 0, SL_ERR_EXISTS);
        ck_assert_uint_eq(answer_copy(bed, 0, UINT64_MAX), 1);
        ck_assert_uint_eq(answer_copy(bed, 1, UINT64_MAX), 1);
        answer_commit(bed);
        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(((const uint8_t *)reply.body.store_reply.existed.at)[0], 1);
        ck_assert_uint_eq(((const uint8_t *)reply.body.store_reply.stored.at)[0], 2);
        bed_end(bed);
    }
END_TEST

static const sl_err refusals[] = {SL_ERR_NO_SPACE, SL_ERR_LIMIT, SL_ERR_INVALID};
START_TEST(store_reports_a_refused_block_and_stores_the_rest)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t seq = op_begin(bed, SL_MSG_STORE, 1, 2);
        answer_reserve(bed, 1, refusals[_i]);
        (void)answer_copy(bed, 0, UINT64_MAX);
        (void)answer_copy(bed, 1, UINT64_MAX);
        answer_commit(bed);
        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_ERR_INCOMPLETE);
        ck_assert_uint_eq(((const uint8_t *)reply.body.store_reply.stored.at)[0], 1);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "block 1"));
        bed_end(bed);
    }
END_TEST

START_TEST(block_that_one_rank_did_not_copy_is_aborted)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t seq = op_begin(bed, SL_MSG_STORE, 1, 2);
        answer_reserve(bed, UINT32_MAX, SL_OK);
        (void)answer_copy(bed, 0, UINT64_MAX);
        (void)answer_copy(bed, 1, 0); /* block 0 */
        struct sl_msg abort = take(bed, "registrar", SL_MSG_ABORT);
        ck_assert_uint_eq(abort.body.abort.items.count, RANKS);
        ck_assert_uint_eq(abort.body.abort.items.at[0].generation, 1000);
        answer_commit(bed);
        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_ERR_INCOMPLETE);
        ck_assert_uint_eq(((const uint8_t *)reply.body.store_reply.stored.at)[0], 2);
        bed_end(bed);
    }
END_TEST

START_TEST(block_whose_other_writer_gave_up_is_reserved_again)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t seq = op_begin(bed, SL_MSG_STORE, 1, 1);
        answer_reserve(bed, 0, SL_ERR_BUSY);
        ck_assert(!sent(bed, "registrar", SL_MSG_RESERVE));
        fake_advance(&bed->fake,
                     10 * SL_NS_PER_MS); /* no such group in the index: it is a new one */
        answer_reserve(bed, UINT32_MAX, SL_OK);
        (void)answer_copy(bed, 0, UINT64_MAX);
        (void)answer_copy(bed, 1, UINT64_MAX);
        answer_commit(bed);
        ck_assert_int_eq(reply_to(bed, seq).code, SL_OK);
        bed_end(bed);
    }
END_TEST

/* In a node's first moments a swapper has not sent HELLO, or we have not: the store waits, as a
 * load does. */
START_TEST(store_waits_for_a_missing_swapper)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t seq = op_begin(bed, SL_MSG_STORE, 1, 2);
        for (uint32_t i = 0; i < 12; i++) { /* more often than a busy block is asked for */
            if (_i == 0) {
                answer_reserve(bed, i % 2, SL_ERR_UNREACHABLE);
                (void)answer_copy(bed, 0, UINT64_MAX);
                (void)answer_copy(bed, 1, UINT64_MAX);
                answer_commit(bed);
                break;
            }
            struct sl_msg reserve = take(bed, "registrar", SL_MSG_RESERVE);
            answer(bed, "registrar", &reserve, (struct sl_msg){.code = SL_ERR_UNREACHABLE});
            ck_assert(!sent(bed, "registrar", SL_MSG_RESERVE)); /* not at once */
            fake_advance(&bed->fake, 20 * SL_NS_PER_MS);
        }
        fake_advance(&bed->fake, 20 * SL_NS_PER_MS);
        answer_reserve(bed, UINT32_MAX, SL_OK);
        (void)answer_copy(bed, 0, UINT64_MAX);
        (void)answer_copy(bed, 1, UINT64_MAX);
        answer_commit(bed);
        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(((const uint8_t *)reply.body.store_reply.stored.at)[0], 3);
        bed_end(bed);
    }
END_TEST

START_TEST(block_that_another_writer_commits_existed)
    {
        struct bed *bed = bed_make(NULL);
        struct sl_group_want want = {.key = {MODEL "/b0", sizeof(MODEL "/b0") - 1},
                                     .part_count = 1,
                                     .deadline_ns = UINT64_MAX};
        struct sl_error why = {0};
        sl_ref group = 0;
        ck_assert_int_eq(sl_index_group_create(bed->index, &want, &group, &why), SL_OK);
        uint64_t seq = op_begin(bed, SL_MSG_STORE, 1, 1);
        answer_reserve(bed, 0, SL_ERR_BUSY);
        fake_advance(&bed->fake, 10 * SL_NS_PER_MS);
        ck_assert(!sent(bed, "registrar", SL_MSG_RESERVE));
        ck_assert(sl_index_group_fill(bed->index, group, 0));
        fake_advance(&bed->fake, 10 * SL_NS_PER_MS);
        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(((const uint8_t *)reply.body.store_reply.existed.at)[0], 1);
        bed_end(bed);
    }
END_TEST

START_TEST(block_that_stays_busy_is_reported)
    {
        struct bed *bed = bed_make(NULL);
        struct sl_group_want want = {.key = {MODEL "/b0", sizeof(MODEL "/b0") - 1},
                                     .part_count = 1,
                                     .deadline_ns = UINT64_MAX};
        struct sl_error why = {0};
        sl_ref group = 0;
        ck_assert_int_eq(sl_index_group_create(bed->index, &want, &group, &why), SL_OK);
        uint64_t seq = op_begin(bed, SL_MSG_STORE, 1, 1);
        answer_reserve(bed, 0, SL_ERR_BUSY);
        for (uint32_t i = 0; i < 60; i++) {
            fake_advance(&bed->fake, 10 * SL_NS_PER_MS);
        }
        ck_assert_int_eq(reply_to(bed, seq).code, SL_ERR_INCOMPLETE);
        bed_end(bed);
    }
END_TEST

START_TEST(store_larger_than_a_slice_goes_in_slices)
    {
        const char *const settings[] = {"reservations_max", "32", NULL}; /* 8 parts a round */
        struct bed *bed = bed_make(settings);
        uint64_t seq = op_begin(bed, SL_MSG_STORE, 1, 10);
        for (uint32_t i = 0; i < 3; i++) {
            answer_reserve(bed, UINT32_MAX, SL_OK);
            ck_assert_uint_eq(answer_copy(bed, 0, UINT64_MAX), i < 2 ? 4 : 2);
            (void)answer_copy(bed, 1, UINT64_MAX);
            answer_commit(bed);
        }
        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(((const uint8_t *)reply.body.store_reply.stored.at)[1], 3);
        bed_end(bed);
    }
END_TEST

/* ---- deadlines and fences ---- */

START_TEST(deadline_in_a_copy_is_answered_then_fenced_then_aborted)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t seq = op_begin(bed, SL_MSG_STORE, 1, 1);
        answer_reserve(bed, UINT32_MAX, SL_OK);
        (void)answer_copy(bed, 0, UINT64_MAX);
        fake_advance(&bed->fake, 2 * SL_NS_PER_S);
        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_ERR_TIMEOUT);
        ck_assert(!reply.body.store_reply.fenced);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "rank 1"));

        struct sl_msg ask = {.type = SL_MSG_OP_FENCED, .op_id = 2, .body.op_fenced.target_op = 1};
        fake_give(&bed->fake, "client.1.0", &ask);
        ck_assert(!sent(bed, "client.1.0", SL_MSG_OP_FENCED_REPLY));
        ck_assert(!sent(bed, "registrar", SL_MSG_ABORT));
        answer_fence(bed, 1, 1);
        ck_assert(take(bed, "client.1.0", SL_MSG_OP_FENCED_REPLY).body.op_fenced_reply.fenced);
        ck_assert_uint_eq(take(bed, "registrar", SL_MSG_ABORT).body.abort.items.count, RANKS);
        ck_assert(!sent(bed, "swapper.0", SL_MSG_FENCE)); /* it had answered */
        bed_end(bed);
    }
END_TEST

START_TEST(swapper_that_acknowledges_no_fence_is_killed)
    {
        struct bed *bed = bed_make(NULL);
        (void)op_begin(bed, SL_MSG_STORE, 1, 1);
        answer_reserve(bed, UINT32_MAX, SL_OK);
        (void)answer_copy(bed, 0, UINT64_MAX);
        fake_advance(&bed->fake, 2 * SL_NS_PER_S);
        ck_assert_uint_eq(bed->fake.killed_count, 0);
        for (uint32_t i = 0; i < 60; i++) {
            fake_advance(&bed->fake, 20 * SL_NS_PER_MS);
        }
        ck_assert_uint_eq(bed->fake.killed_count, 1);
        ck_assert_uint_eq(bed->fake.killed[0].pid, swapper_procs[1].pid);
        bed_end(bed);
    }
END_TEST

START_TEST(rank_that_is_dead_and_stays_away_counts_as_fenced)
    {
        struct bed *bed = bed_make(NULL);
        (void)op_begin(bed, SL_MSG_STORE, 1, 1);
        answer_reserve(bed, UINT32_MAX, SL_OK);
        (void)answer_copy(bed, 0, UINT64_MAX);
        fake_process_end(&bed->fake, swapper_procs[1]);
        (void)snprintf(bed->fake.unreachable, sizeof(bed->fake.unreachable), "swapper.1");
        fake_advance(&bed->fake, 2 * SL_NS_PER_S);
        struct sl_msg ask = {.type = SL_MSG_OP_FENCED, .op_id = 2, .body.op_fenced.target_op = 1};
        fake_give(&bed->fake, "client.1.0", &ask);
        ck_assert(!sent(bed, "client.1.0", SL_MSG_OP_FENCED_REPLY));
        for (uint32_t i = 0; i < 60; i++) {
            fake_advance(&bed->fake, 20 * SL_NS_PER_MS);
        }
        ck_assert(take(bed, "client.1.0", SL_MSG_OP_FENCED_REPLY).body.op_fenced_reply.fenced);
        bed_end(bed);
    }
END_TEST

START_TEST(late_answer_of_a_restarted_swapper_is_fenced_before_the_commit)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t seq = op_begin(bed, SL_MSG_STORE, 1, 1);
        answer_reserve(bed, UINT32_MAX, SL_OK);
        (void)answer_copy(bed, 0, UINT64_MAX);
        struct sl_msg copy = take(bed, "swapper.1", SL_MSG_COPY);
        uint64_t copy_seq = copy.seq;
        fake_process_end(&bed->fake, swapper_procs[1]);
        fake_advance(&bed->fake,
                     150 * SL_NS_PER_MS); /* the COPY was sent again, to its successor */
        uint8_t done[1] = {1};
        struct sl_digest digest[1] = {{1, 2}};
        struct sl_msg reply = {.body.copy_reply = {.done = {done, 1}, .digests = {digest, 16}}};
        answer(bed, "swapper.1", &(struct sl_msg){.type = SL_MSG_COPY, .op_id = 1, .seq = copy_seq},
               reply);
        ck_assert(!sent(bed, "registrar", SL_MSG_COMMIT));
        answer_fence(bed, 1, 1);
        answer_commit(bed);
        struct sl_msg ended = reply_to(bed, seq);
        ck_assert_int_eq(ended.code, SL_OK);
        ck_assert(ended.body.store_reply.fenced);
        bed_end(bed);
    }
END_TEST

START_TEST(unknown_op_is_fenced_at_every_rank)
    {
        struct bed *bed = bed_make(NULL);
        struct sl_msg ask = {
            .type = SL_MSG_OP_FENCED, .op_id = 2, .body.op_fenced.target_op = 4711};
        fake_give(&bed->fake, "client.1.0", &ask);
        answer_fence(bed, 0, 4711);
        ck_assert(!sent(bed, "client.1.0", SL_MSG_OP_FENCED_REPLY));
        answer_fence(bed, 1, 4711);
        ck_assert(take(bed, "client.1.0", SL_MSG_OP_FENCED_REPLY).body.op_fenced_reply.fenced);
        bed_end(bed);
    }
END_TEST

/* An unreachable rank must not let queries about unknown ops fill the table. */
START_TEST(unknown_op_is_forgotten_with_the_last_who_asked)
    {
        struct bed *bed = bed_make(NULL);
        for (uint64_t i = 0; i < 16; i++) { /* queue_messages */
            struct sl_msg ask = {.type = SL_MSG_OP_FENCED,
                                 .op_id = 2,
                                 .budget_ns = 10 * SL_NS_PER_MS,
                                 .body.op_fenced.target_op = 4711 + i};
            fake_give(&bed->fake, "client.1.0", &ask);
            ck_assert(!sent(bed, "client.1.0", SL_MSG_OP_FENCED_REPLY));
        }
        fake_advance(&bed->fake, 20 * SL_NS_PER_MS);
        for (uint64_t i = 0; i < 16; i++) {
            ck_assert_int_eq(take(bed, "client.1.0", SL_MSG_OP_FENCED_REPLY).code, SL_ERR_TIMEOUT);
        }
        struct sl_msg ask = {
            .type = SL_MSG_OP_FENCED, .op_id = 2, .body.op_fenced.target_op = 4700};
        fake_give(&bed->fake, "client.1.0", &ask);
        ck_assert(!sent(bed, "client.1.0", SL_MSG_OP_FENCED_REPLY)); /* not refused: it waits */
        bed_end(bed);
    }
END_TEST

START_TEST(ops_wait_until_the_work_of_a_dead_coordinator_is_fenced)
    {
        struct bed *bed = calloc(1, sizeof(*bed));
        ck_assert_ptr_nonnull(bed);
        bed_open(bed, NULL);
        fake_advance(&bed->fake, 0);
        (void)op_begin(bed, SL_MSG_STORE, 1, 1);
        fake_advance(&bed->fake, 10 * SL_NS_PER_MS);
        ck_assert(!sent(bed, "registrar", SL_MSG_RESERVE));
        answer_fence(bed, 0, 0);
        answer_fence(bed, 1, 0);
        fake_advance(&bed->fake, 10 * SL_NS_PER_MS);
        ck_assert(sent(bed, "registrar", SL_MSG_RESERVE));
        bed_end(bed);
    }
END_TEST

/* An op that ended while its engine was queried may stay until ranks are fenced. If the answer
 * never arrives, the next op asks again. */
START_TEST(engine_is_requested_again_after_a_silent_registrar)
    {
        struct bed *bed = calloc(1, sizeof(*bed));
        ck_assert_ptr_nonnull(bed);
        bed_open(bed, NULL);
        fake_advance(&bed->fake, 0);
        uint64_t seq = op_send(bed, SL_MSG_LOAD, 1, 1);
        fake_advance(&bed->fake, 3 * SL_NS_PER_S);
        ck_assert_int_eq(reply_to(bed, seq).code, SL_ERR_TIMEOUT);
        fake_advance(&bed->fake, 10 * SL_NS_PER_S);
        while (sent(bed, "registrar", SL_MSG_ENGINE_GET)) {
        }
        (void)op_send(bed, SL_MSG_LOAD, 2, 1);
        answer_engine(bed);
        ck_assert(sent(bed, "keyer", SL_MSG_KEYS));
        bed_end(bed);
    }
END_TEST

START_TEST(cancel_ends_an_op_and_says_whether_blocks_are_lent)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t seq = op_begin(bed, SL_MSG_STORE, 1, 1);
        answer_reserve(bed, UINT32_MAX, SL_OK);
        struct sl_msg cancel = {.type = SL_MSG_CANCEL, .op_id = 1, .body.cancel.target_op = 1};
        fake_give(&bed->fake, "client.9.0", &cancel); /* of another client */
        ck_assert_int_eq(take(bed, "client.9.0", SL_MSG_CANCEL_REPLY).code, SL_ERR_NOT_FOUND);
        cancel.seq = 0;
        fake_give(&bed->fake, "client.1.0", &cancel);
        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_ERR_CANCELLED);
        ck_assert(!reply.body.store_reply.fenced);
        reply = take(bed, "client.1.0", SL_MSG_CANCEL_REPLY);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(!reply.body.cancel_reply.fenced);
        bed_end(bed);
    }
END_TEST

/* ---- requests ---- */

START_TEST(repeated_request_is_not_started_twice)
    {
        struct bed *bed = bed_make(NULL);
        (void)op_begin(bed, SL_MSG_STORE, 1, 1);
        answer_reserve(bed, UINT32_MAX, SL_OK);
        uint64_t again = op_send(bed, SL_MSG_STORE, 1, 1);
        ck_assert(!sent(bed, "keyer", SL_MSG_KEYS));
        (void)answer_copy(bed, 0, UINT64_MAX);
        (void)answer_copy(bed, 1, UINT64_MAX);
        answer_commit(bed);
        ck_assert_int_eq(reply_to(bed, again).code, SL_OK);
        again = op_send(bed, SL_MSG_STORE, 1, 1); /* over: the same answer */
        struct sl_msg reply = reply_to(bed, again);
        ck_assert_uint_eq(((const uint8_t *)reply.body.store_reply.stored.at)[0], 1);
        ck_assert(!sent(bed, "keyer", SL_MSG_KEYS));
        bed_end(bed);
    }
END_TEST

START_TEST(more_ops_than_the_table_holds_are_refused)
    {
        struct bed *bed = bed_make(NULL); /* queue_messages = 16 */
        for (uint64_t i = 0; i < 16; i++) {
            (void)op_send(bed, SL_MSG_STORE, 1 + i, 1);
        }
        uint64_t seq = op_send(bed, SL_MSG_STORE, 99, 1);
        ck_assert_int_eq(reply_to(bed, seq).code, SL_ERR_LIMIT);
        bed_end(bed);
    }
END_TEST

START_TEST(bad_requests_are_refused_by_name)
    {
        struct bed *bed = bed_make(NULL);
        uint32_t token = 0;
        uint64_t device[1] = {5000};
        struct sl_msg msg = {.type = SL_MSG_LOAD,
                             .body.load = {.engine_id = ENGINE_ID,
                                           .tokens = {&token, 4},
                                           .device_blocks = {device, 1}}};
        fake_give(&bed->fake, "client.1.0", &msg);
        struct sl_msg reply = reply_to(bed, msg.seq);
        ck_assert_int_eq(reply.code, SL_ERR_INVALID);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "op id"));
        msg.op_id = 3;
        msg.seq = 0;
        fake_give(&bed->fake, "client.1.0", &msg);
        answer_engine(bed);
        reply = reply_to(bed, msg.seq);
        ck_assert_int_eq(reply.code, SL_ERR_INVALID);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "device_blocks[0]"));
        bed_end(bed);
    }
END_TEST

static const uint32_t ordered[] = {SL_MSG_STORE, SL_MSG_LOAD};
/* With an event, the blocks are in a field where a coordinator without events finds none. */
START_TEST(event_of_a_rank_goes_with_its_copies)
    {
        static unsigned char handle[SL_EVENT_BYTES] = {1, 2, 3};
        struct bed *bed = bed_make(NULL);
        static uint32_t tokens[8];
        uint64_t device[2] = {10, 11};
        struct sl_item_event event = {.rank = 1, .handle = {handle, sizeof(handle)}};
        struct sl_msg msg = {.type = ordered[_i], .op_id = 1};
        if (ordered[_i] == SL_MSG_STORE) {
            msg.body.store = (struct sl_body_store){.engine_id = ENGINE_ID,
                                                    .tokens = {tokens, sizeof(tokens)},
                                                    .events = {&event, 1},
                                                    .ordered_blocks = {device, 2}};
        } else {
            index_put(bed, 0, true, PART_BYTES);
            index_put(bed, 1, true, PART_BYTES);
            msg.body.load = (struct sl_body_load){.engine_id = ENGINE_ID,
                                                  .tokens = {tokens, sizeof(tokens)},
                                                  .events = {&event, 1},
                                                  .ordered_blocks = {device, 2}};
        }
        fake_give(&bed->fake, "client.1.0", &msg);
        answer_engine(bed);
        answer_keys(bed);
        if (ordered[_i] == SL_MSG_STORE) {
            answer_reserve(bed, UINT32_MAX, SL_OK);
        }

        struct sl_msg plain = take(bed, "swapper.0", SL_MSG_COPY);
        ck_assert_uint_eq(plain.body.copy.event.length, 0);
        ck_assert_uint_eq(plain.body.copy.items.count, 2);
        struct sl_msg copy = take(bed, "swapper.1", SL_MSG_COPY);
        ck_assert_uint_eq(copy.body.copy.event.length, SL_EVENT_BYTES);
        ck_assert_int_eq(memcmp(copy.body.copy.event.at, handle, sizeof(handle)), 0);
        ck_assert_uint_eq(copy.body.copy.items.at[1].device_block, 11);
        bed_end(bed);
    }
END_TEST

START_TEST(event_of_no_rank_is_refused_by_name)
    {
        static unsigned char handle[SL_EVENT_BYTES];
        struct bed *bed = bed_make(NULL);
        uint32_t token = 0;
        uint64_t device[1] = {1};
        struct sl_item_event event = {.rank = RANKS, .handle = {handle, sizeof(handle)}};
        struct sl_msg msg = {.type = SL_MSG_LOAD,
                             .op_id = 3,
                             .body.load = {.engine_id = ENGINE_ID,
                                           .tokens = {&token, 4},
                                           .events = {&event, 1},
                                           .ordered_blocks = {device, 1}}};
        fake_give(&bed->fake, "client.1.0", &msg);
        answer_engine(bed);
        struct sl_msg reply = reply_to(bed, msg.seq);
        ck_assert_int_eq(reply.code, SL_ERR_INVALID);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "events[0].rank"));
        bed_end(bed);
    }
END_TEST

/* The second one would not be waited for. */
START_TEST(two_events_of_a_rank_are_refused)
    {
        static unsigned char handle[SL_EVENT_BYTES];
        struct bed *bed = bed_make(NULL);
        uint32_t token = 0;
        uint64_t device[1] = {1};
        struct sl_item_event events[2] = {{.rank = 1, .handle = {handle, sizeof(handle)}},
                                          {.rank = 1, .handle = {handle, sizeof(handle)}}};
        struct sl_msg msg = {.type = SL_MSG_LOAD,
                             .op_id = 3,
                             .body.load = {.engine_id = ENGINE_ID,
                                           .tokens = {&token, 4},
                                           .events = {events, 2},
                                           .ordered_blocks = {device, 1}}};
        fake_give(&bed->fake, "client.1.0", &msg);
        struct sl_msg reply = reply_to(bed, msg.seq);
        ck_assert_int_eq(reply.code, SL_ERR_INVALID);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "events[1].rank"));
        bed_end(bed);
    }
END_TEST

START_TEST(unknown_engine_ends_the_op)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t seq = op_send(bed, SL_MSG_LOAD, 1, 1);
        struct sl_msg get = take(bed, "registrar", SL_MSG_ENGINE_GET);
        answer(bed, "registrar", &get, (struct sl_msg){.code = SL_ERR_NOT_FOUND});
        ck_assert_int_eq(reply_to(bed, seq).code, SL_ERR_NOT_FOUND);
        bed_end(bed);
    }
END_TEST

START_TEST(death_of_the_engine_ends_its_ops)
    {
        struct bed *bed = bed_make(NULL);
        (void)op_begin(bed, SL_MSG_STORE, 1, 1);
        answer_reserve(bed, UINT32_MAX, SL_OK);
        fake_process_end(&bed->fake, engine_proc);
        ck_assert(!sent(bed, "client.1.0", SL_MSG_STORE_REPLY));
        answer_fence(bed, 0, 1);
        answer_fence(bed, 1, 1);
        ck_assert_uint_eq(take(bed, "registrar", SL_MSG_ABORT).body.abort.items.count, RANKS);
        bed_end(bed);
    }
END_TEST

/* The engine's process may reuse its memory: the answer waits for writes in progress. */
START_TEST(end_of_the_engine_ends_its_ops)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t seq = op_begin(bed, SL_MSG_STORE, 1, 2);
        answer_reserve(bed, 0, SL_OK);
        ck_assert(sent(bed, "swapper.0", SL_MSG_COPY));
        uint64_t waiting = op_send(bed, SL_MSG_LOAD, 2, 2); /* its keys are asked for */
        struct sl_msg over = {.type = SL_MSG_ENGINE_OVER};
        over.body.engine_over.engine_id = ENGINE_ID + 1;
        fake_give(&bed->fake, "registrar", &over);
        ck_assert_int_eq(take(bed, "registrar", SL_MSG_ENGINE_OVER_REPLY).code, SL_OK);

        over.body.engine_over.engine_id = ENGINE_ID;
        fake_give(&bed->fake, "registrar", &over);

        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_ERR_STALE);
        ck_assert(!reply.body.store_reply.fenced);
        reply = reply_to(bed, waiting);
        ck_assert_int_eq(reply.code, SL_ERR_STALE);
        ck_assert(reply.body.load_reply.fenced);
        ck_assert_int_eq(take(bed, "registrar", SL_MSG_ENGINE_OVER_REPLY).code, SL_OK);
        answer_fence(bed, 0, 1);
        answer_fence(bed, 1, 1);
        struct sl_msg ask = {.type = SL_MSG_OP_FENCED, .op_id = 4, .body.op_fenced.target_op = 1};
        fake_give(&bed->fake, "client.1.0", &ask);
        ck_assert(take(bed, "client.1.0", SL_MSG_OP_FENCED_REPLY).body.op_fenced_reply.fenced);
        uint64_t next = op_send(bed, SL_MSG_LOAD, 3, 2); /* it is asked for again */
        struct sl_msg get = take(bed, "registrar", SL_MSG_ENGINE_GET);
        answer(bed, "registrar", &get, (struct sl_msg){.code = SL_ERR_NOT_FOUND});
        ck_assert_int_eq(reply_to(bed, next).code, SL_ERR_NOT_FOUND);
        bed_end(bed);
    }
END_TEST

START_TEST(draining_takes_nothing_new_and_ends_with_the_last_op)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t seq = op_begin(bed, SL_MSG_LOAD, 1, 1);
        (void)reply_to(bed, seq);
        seq = op_send(bed, SL_MSG_STORE, 2, 1);
        answer_keys(bed);
        bed->fake.actor->drain(bed->fake.state);
        ck_assert(!bed->fake.finished);
        ck_assert_int_eq(reply_to(bed, op_send(bed, SL_MSG_LOAD, 3, 1)).code, SL_ERR_DRAINING);
        answer_reserve(bed, 0, SL_ERR_EXISTS);
        ck_assert_int_eq(reply_to(bed, seq).code, SL_OK);
        ck_assert(bed->fake.finished);
        bed_end(bed);
    }
END_TEST

START_TEST(late_grants_are_given_back)
    {
        struct bed *bed = bed_make(NULL);
        (void)op_begin(bed, SL_MSG_STORE, 1, 1);
        struct sl_msg reserve = take(bed, "registrar", SL_MSG_RESERVE);
        uint64_t seq = reserve.seq;
        fake_advance(&bed->fake, 2 * SL_NS_PER_S);
        struct sl_item_grant grants[RANKS] = {{.ref = 1, .generation = 7},
                                              {.ref = 2, .generation = 8}};
        answer(bed, "registrar", &(struct sl_msg){.type = SL_MSG_RESERVE, .op_id = 1, .seq = seq},
               (struct sl_msg){.body.reserve_reply.items = {grants, RANKS}});
        ck_assert_uint_eq(take(bed, "registrar", SL_MSG_ABORT).body.abort.items.count, RANKS);
        bed_end(bed);
    }
END_TEST

/* ---- load ---- */

START_TEST(load_gives_the_prefix_that_every_rank_has)
    {
        struct bed *bed = bed_make(NULL);
        for (uint32_t i = 0; i < 4; i++) {
            index_put(bed, i, true, PART_BYTES);
        }
        index_put(bed, 5, true, PART_BYTES); /* after a gap */
        uint64_t seq = op_begin(bed, SL_MSG_LOAD, 1, 6);
        ck_assert_uint_eq(pins(bed), 4 * RANKS);
        ck_assert_uint_eq(answer_copy(bed, 0, UINT64_MAX), 4);
        ck_assert_uint_eq(answer_copy(bed, 1, UINT64_MAX), 4);
        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 4);
        ck_assert_uint_eq(reply.body.load_reply.from_memory, 4);
        ck_assert_uint_eq(reply.body.load_reply.bytes, 4 * RANKS * PART_BYTES);
        ck_assert(reply.body.load_reply.fenced);
        ck_assert_uint_eq(pins(bed), 0);
        bed_end(bed);
    }
END_TEST

START_TEST(load_that_a_rank_spoils_is_incomplete)
    {
        struct bed *bed = bed_make(NULL);
        for (uint32_t i = 0; i < 3; i++) {
            index_put(bed, i, true, PART_BYTES);
        }
        uint64_t seq = op_begin(bed, SL_MSG_LOAD, 1, 3);
        (void)answer_copy(bed, 0, UINT64_MAX);
        (void)answer_copy(bed, 1, 1);
        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_ERR_INCOMPLETE);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 1);
        ck_assert_uint_eq(reply.body.load_reply.from_memory, 1);
        bed_end(bed);
    }
END_TEST

START_TEST(load_of_nothing_is_fine)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t seq = op_begin(bed, SL_MSG_LOAD, 1, 3);
        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 0);
        bed_end(bed);
    }
END_TEST

START_TEST(part_of_another_size_is_a_miss)
    {
        struct bed *bed = bed_make(NULL);
        index_put(bed, 0, true, PART_BYTES);
        index_put(bed, 1, true, PART_BYTES - 8);
        uint64_t seq = op_begin(bed, SL_MSG_LOAD, 1, 2);
        ck_assert_uint_eq(answer_copy(bed, 0, UINT64_MAX), 1);
        (void)answer_copy(bed, 1, UINT64_MAX);
        ck_assert_uint_eq(reply_to(bed, seq).body.load_reply.block_count, 1);
        bed_end(bed);
    }
END_TEST

/* Acts on a BRING like the registrar: the parts get an extent. */
static void promote(struct bed *bed, const struct sl_msg *request, sl_err code)
{
    uint64_t codes[BLOCKS_MAX * RANKS];
    for (uint64_t i = 0; i < request->body.bring.keys.count; i++) {
        const struct sl_text *key = &request->body.bring.keys.at[i];
        struct sl_entry entry;
        sl_ref fresh = 0;
        codes[i] = code;
        ck_assert_int_eq(sl_index_find_any(bed->index, key->at, (uint32_t)key->length, &entry),
                         SL_OK);
        if (code == SL_OK && entry.extent.generation == 0) {
            struct sl_extent extent = {.generation = sl_arena_next_generation(bed->arena),
                                       .offset_bytes = i * PART_BYTES,
                                       .length_bytes = PART_BYTES};
            ck_assert_int_eq(sl_index_switch(bed->index, entry.ref, &extent, NULL, &fresh), SL_OK);
        }
    }
    answer(bed, "registrar", request,
           (struct sl_msg){.body.bring_reply.codes = {codes, request->body.bring.keys.count}});
}

START_TEST(blocks_on_disk_are_promoted_and_counted_as_disk)
    {
        struct bed *bed = bed_make(NULL);
        index_put(bed, 0, true, PART_BYTES);
        index_put(bed, 1, false, PART_BYTES);
        uint64_t seq = op_begin(bed, SL_MSG_LOAD, 1, 2);
        struct sl_msg request = take(bed, "registrar", SL_MSG_BRING);
        ck_assert_uint_eq(request.body.bring.keys.count, RANKS);
        promote(bed, &request, SL_OK);
        ck_assert_uint_eq(answer_copy(bed, 0, UINT64_MAX), 2);
        (void)answer_copy(bed, 1, UINT64_MAX);
        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 2);
        ck_assert_uint_eq(reply.body.load_reply.from_memory, 1);
        ck_assert_uint_eq(reply.body.load_reply.from_disk, 1);
        bed_end(bed);
    }
END_TEST

START_TEST(promotion_without_room_lets_the_blocks_before_go_first)
    {
        struct bed *bed = bed_make(NULL);
        index_put(bed, 0, true, PART_BYTES);
        index_put(bed, 1, false, PART_BYTES);
        uint64_t seq = op_begin(bed, SL_MSG_LOAD, 1, 2);
        struct sl_msg request = take(bed, "registrar", SL_MSG_BRING);
        promote(bed, &request, SL_ERR_NO_SPACE);
        ck_assert_uint_eq(answer_copy(bed, 0, UINT64_MAX), 1);
        (void)answer_copy(bed, 1, UINT64_MAX);
        ck_assert_uint_eq(pins(bed), 0);
        request = take(bed, "registrar", SL_MSG_BRING);
        promote(bed, &request, SL_OK);
        ck_assert_uint_eq(answer_copy(bed, 0, UINT64_MAX), 1);
        (void)answer_copy(bed, 1, UINT64_MAX);
        ck_assert_uint_eq(reply_to(bed, seq).body.load_reply.block_count, 2);
        bed_end(bed);
    }
END_TEST

/* A lookup's end belongs to the slice as it was then: a slice that is shortened for lack of space
 * does not end the load. */
static const struct {
    bool first_in_memory; /* else the slice is halved */
} squeezes[] = {{true}, {false}};
START_TEST(block_without_room_before_a_hole_is_not_reported_as_a_miss)
    {
        struct bed *bed = bed_make(NULL);
        index_put(bed, 0, squeezes[_i].first_in_memory, PART_BYTES);
        index_put(bed, 1, false, PART_BYTES);
        uint64_t seq = op_begin(bed, SL_MSG_LOAD, 1, 3); /* block 2 is nowhere */
        struct sl_msg request = take(bed, "registrar", SL_MSG_BRING);
        promote(bed, &request, SL_ERR_NO_SPACE);
        if (!squeezes[_i].first_in_memory) {
            fake_advance(&bed->fake, 20 * SL_NS_PER_MS);
            request = take(bed, "registrar", SL_MSG_BRING);
            ck_assert_uint_eq(request.body.bring.keys.count, RANKS);
            promote(bed, &request, SL_OK);
        }
        ck_assert_uint_eq(answer_copy(bed, 0, UINT64_MAX), 1);
        (void)answer_copy(bed, 1, UINT64_MAX);
        request = take(bed, "registrar", SL_MSG_BRING);
        promote(bed, &request, SL_OK);
        ck_assert_uint_eq(answer_copy(bed, 0, UINT64_MAX), 1);
        (void)answer_copy(bed, 1, UINT64_MAX);
        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 2);
        bed_end(bed);
    }
END_TEST

static const struct {
    sl_err code;
    const char *reason;
} given_up[] = {{SL_ERR_NO_SPACE, "no room"}, {SL_ERR_UNREACHABLE, "its disk is absent"}};
START_TEST(promotion_is_given_up_after_three_rounds)
    {
        struct bed *bed = bed_make(NULL);
        index_put(bed, 0, false, PART_BYTES);
        uint64_t seq = op_begin(bed, SL_MSG_LOAD, 1, 1);
        for (uint32_t i = 0; i < 3; i++) {
            struct sl_msg request = take(bed, "registrar", SL_MSG_BRING);
            promote(bed, &request, given_up[_i].code);
            fake_advance(&bed->fake, 20 * SL_NS_PER_MS);
        }
        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_ERR_INCOMPLETE);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 0);
        ck_assert_msg(strstr(reply.text.at, given_up[_i].reason) != NULL, "%s", reply.text.at);
        bed_end(bed);
    }
END_TEST

/* Its log file is being reclaimed, or more values are in flight than the registrar tracks. */
static const sl_err moving[] = {SL_ERR_BUSY, SL_ERR_LIMIT};
START_TEST(what_cannot_be_read_at_the_moment_is_waited_for)
    {
        struct bed *bed = bed_make(NULL);
        index_put(bed, 0, false, PART_BYTES);
        uint64_t seq = op_begin(bed, SL_MSG_LOAD, 1, 1);
        for (uint32_t i = 0; i < 10; i++) { /* more often than there are tries for room */
            struct sl_msg request = take(bed, "registrar", SL_MSG_BRING);
            promote(bed, &request, moving[_i]);
            ck_assert(!sent(bed, "registrar", SL_MSG_BRING)); /* not at once */
            fake_advance(&bed->fake, 20 * SL_NS_PER_MS);
        }
        struct sl_msg request = take(bed, "registrar", SL_MSG_BRING);
        promote(bed, &request, SL_OK);
        ck_assert_uint_eq(answer_copy(bed, 0, UINT64_MAX), 1);
        (void)answer_copy(bed, 1, UINT64_MAX);
        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.load_reply.from_disk, 1);
        bed_end(bed);
    }
END_TEST

START_TEST(load_larger_than_the_pins_goes_in_slices)
    {
        const char *const settings[] = {"client_pins_max", "16", NULL}; /* 4 parts a slice */
        struct bed *bed = bed_make(settings);
        for (uint32_t i = 0; i < 5; i++) {
            index_put(bed, i, true, PART_BYTES);
        }
        uint64_t seq = op_begin(bed, SL_MSG_LOAD, 1, 5);
        for (uint32_t i = 0; i < 3; i++) {
            ck_assert_uint_eq(answer_copy(bed, 0, UINT64_MAX), i < 2 ? 2 : 1);
            (void)answer_copy(bed, 1, UINT64_MAX);
        }
        ck_assert_uint_eq(reply_to(bed, seq).body.load_reply.block_count, 5);
        ck_assert_uint_eq(pins(bed), 0);
        bed_end(bed);
    }
END_TEST

START_TEST(pins_are_kept_until_the_fence)
    {
        struct bed *bed = bed_make(NULL);
        index_put(bed, 0, true, PART_BYTES);
        uint64_t seq = op_begin(bed, SL_MSG_LOAD, 1, 1);
        fake_advance(&bed->fake, 2 * SL_NS_PER_S);
        ck_assert_int_eq(reply_to(bed, seq).code, SL_ERR_TIMEOUT);
        ck_assert_uint_eq(pins(bed), RANKS);
        answer_fence(bed, 0, 1);
        ck_assert_uint_eq(pins(bed), RANKS);
        answer_fence(bed, 1, 1);
        ck_assert_uint_eq(pins(bed), 0);
        bed_end(bed);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("coordinator");
    TCase *store = tcase_create("store");
    tcase_add_test(store, store_is_visible_after_commit_of_all_parts);
    tcase_add_test(store, store_reports_what_existed);
    tcase_add_loop_test(store, store_reports_a_refused_block_and_stores_the_rest, 0,
                        SL_COUNT(refusals));
    tcase_add_test(store, block_that_one_rank_did_not_copy_is_aborted);
    tcase_add_test(store, block_whose_other_writer_gave_up_is_reserved_again);
    tcase_add_loop_test(store, store_waits_for_a_missing_swapper, 0, 2);
    tcase_add_test(store, block_that_another_writer_commits_existed);
    tcase_add_test(store, block_that_stays_busy_is_reported);
    tcase_add_test(store, store_larger_than_a_slice_goes_in_slices);
    suite_add_tcase(suite, store);
    TCase *fences = tcase_create("fences");
    tcase_add_test(fences, deadline_in_a_copy_is_answered_then_fenced_then_aborted);
    tcase_add_test(fences, swapper_that_acknowledges_no_fence_is_killed);
    tcase_add_test(fences, rank_that_is_dead_and_stays_away_counts_as_fenced);
    tcase_add_test(fences, late_answer_of_a_restarted_swapper_is_fenced_before_the_commit);
    tcase_add_test(fences, unknown_op_is_fenced_at_every_rank);
    tcase_add_test(fences, unknown_op_is_forgotten_with_the_last_who_asked);
    tcase_add_test(fences, engine_is_requested_again_after_a_silent_registrar);
    tcase_add_test(fences, ops_wait_until_the_work_of_a_dead_coordinator_is_fenced);
    tcase_add_test(fences, cancel_ends_an_op_and_says_whether_blocks_are_lent);
    suite_add_tcase(suite, fences);
    TCase *requests = tcase_create("requests");
    tcase_add_test(requests, repeated_request_is_not_started_twice);
    tcase_add_test(requests, more_ops_than_the_table_holds_are_refused);
    tcase_add_test(requests, bad_requests_are_refused_by_name);
    tcase_add_loop_test(requests, event_of_a_rank_goes_with_its_copies, 0, (int)SL_COUNT(ordered));
    tcase_add_test(requests, event_of_no_rank_is_refused_by_name);
    tcase_add_test(requests, two_events_of_a_rank_are_refused);
    tcase_add_test(requests, unknown_engine_ends_the_op);
    tcase_add_test(requests, death_of_the_engine_ends_its_ops);
    tcase_add_test(requests, end_of_the_engine_ends_its_ops);
    tcase_add_test(requests, draining_takes_nothing_new_and_ends_with_the_last_op);
    tcase_add_test(requests, late_grants_are_given_back);
    suite_add_tcase(suite, requests);
    TCase *load = tcase_create("load");
    tcase_add_test(load, load_gives_the_prefix_that_every_rank_has);
    tcase_add_test(load, load_that_a_rank_spoils_is_incomplete);
    tcase_add_test(load, load_of_nothing_is_fine);
    tcase_add_test(load, part_of_another_size_is_a_miss);
    tcase_add_test(load, blocks_on_disk_are_promoted_and_counted_as_disk);
    tcase_add_test(load, promotion_without_room_lets_the_blocks_before_go_first);
    tcase_add_loop_test(load, block_without_room_before_a_hole_is_not_reported_as_a_miss, 0,
                        SL_COUNT(squeezes));
    tcase_add_loop_test(load, promotion_is_given_up_after_three_rounds, 0, SL_COUNT(given_up));
    tcase_add_loop_test(load, what_cannot_be_read_at_the_moment_is_waited_for, 0, SL_COUNT(moving));
    tcase_add_test(load, load_larger_than_the_pins_goes_in_slices);
    tcase_add_test(load, pins_are_kept_until_the_fence);
    suite_add_tcase(suite, load);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
