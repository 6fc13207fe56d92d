/* tests/unit/coordinator_straight_test.c - direct hand-overs straight between pools: what is asked of the
 * transporter and of swappers, when it goes through storage after all, and when device blocks are free. */
#include "tests/unit/coordinator_handover_support.h"

static const char *const strict[] = {"handover_push_fallback", "false", NULL};

static uint64_t decode_begin(struct bed *bed, uint64_t budget_ns, bool first)
{
    return side_begin(
        bed, SL_MSG_LOAD,
        (struct side){.op_id = RECV, .id = ID, .blocks = 2, .direct = true, .budget_ns = budget_ns},
        first);
}

/* The FENCE of the op, which is not answered yet. */
static struct sl_msg fence_of(struct bed *bed, uint64_t op_id)
{
    struct sl_msg fence = take(bed, "transporter.0", SL_MSG_FENCE);
    ck_assert_uint_eq(fence.op_id, op_id);
    ck_assert_uint_eq(fence.body.fence.items.count, 0);
    return fence;
}

static uint64_t fenced_ask(struct bed *bed, uint64_t op_id)
{
    struct sl_msg ask = {.type = SL_MSG_OP_FENCED, .op_id = 77, .budget_ns = 60 * SL_NS_PER_S};
    ask.body.op_fenced.target_op = op_id;
    fake_give(&bed->fake, "client.1.0", &ask);
    return ask.seq;
}

/* ---- decode ---- */

START_TEST(decode_opens_its_ticket_for_its_pools_and_copies_nothing)
    {
        struct bed *bed = direct_bed(NULL);
        uint64_t recv = decode_begin(bed, 0, true);
        ck_assert(!sent(bed, "registrar", SL_MSG_RESERVE));
        struct sl_msg open = ticket_asked(bed);
        const struct sl_body_push_open *body = &open.body.push_open;
        ck_assert_uint_eq(open.op_id, RECV);
        ck_assert_uint_eq(body->lengths.count, 2 * RANKS);
        ck_assert_uint_eq(body->spots.count, 2 * RANKS);
        for (uint64_t i = 0; i < 2 * RANKS; i++) {
            const struct sl_item_spot *spot = &body->spots.at[i];
            ck_assert_uint_eq(body->lengths.at[i], PART_BYTES);
            ck_assert_uint_eq(spot->engine_id, ENGINE_ID);
            ck_assert_uint_eq(spot->item, i);
            ck_assert_uint_eq(spot->rank, i % RANKS);
            ck_assert_uint_eq(spot->device_block, 10 + i / RANKS);
        }
        answer(bed, "transporter.0", &open,
               (struct sl_msg){.body.push_open_reply = {.ticket = {"secret", 6}}});
        ck_assert_int_eq(pushed(bed, 1, SL_OK), SL_OK);
        struct sl_msg reply;
        ck_assert(!answered(bed, recv, &reply)); /* the ticket ends first */
        closed(bed, true);

        reply = reply_to(bed, recv);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 2);
        ck_assert_uint_eq(reply.body.load_reply.from_remote, 2);
        ck_assert(reply.body.load_reply.fenced);
        ck_assert(!sent(bed, "swapper.0", SL_MSG_COPY));
        ck_assert(!sent(bed, "transporter.0", SL_MSG_FENCE));
        ck_assert(!sent(bed, "registrar", SL_MSG_ABORT));
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        ck_assert_uint_eq(metric(bed, "pushes_straight"), 1);
        bed_end(bed);
    }
END_TEST

static const sl_err refusals[] = {SL_ERR_UNSUPPORTED, SL_ERR_NOT_FOUND, SL_ERR_LIMIT,
                                  SL_ERR_INVALID}; /* the last: of a release before */
START_TEST(a_load_whose_ticket_is_refused_goes_through_storage)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_item_receipt receipt = receipt_of("b1", 2);
        uint64_t recv = decode_begin(bed, 0, true);
        struct sl_msg open = ticket_asked(bed);
        answer(bed, "transporter.0", &open, (struct sl_msg){.code = refusals[_i]});
        index_put(bed, 0, true, PART_BYTES);
        index_put(bed, 1, true, PART_BYTES);
        ck_assert_int_eq(arrived(bed, &receipt, 1, 0), SL_OK);
        load_copied(bed);

        struct sl_msg reply = reply_to(bed, recv);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(reply.body.load_reply.fenced);
        ck_assert(!sent(bed, "transporter.0", SL_MSG_PUSH_CLOSE)); /* there was none */
        ck_assert_uint_eq(metric(bed, "pushes_straight_refused"), 1);
        ck_assert_uint_eq(metric(bed, "handovers_fallen_back"), 1);
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        bed_end(bed);
    }
END_TEST

/* What a refused ticket says of the pools: of a named prefill it says nothing. */
static const struct {
    const char *from;
    sl_err code;
    uint64_t barred_ns;
} no_tickets[] = {{NULL, SL_ERR_UNSUPPORTED, SL_NS_PER_S},
                  {NULL, SL_ERR_NOT_FOUND, 0},
                  {NULL, SL_ERR_LIMIT, 0},
                  {NULL, SL_ERR_INVALID, 0},
                  {"d", SL_ERR_UNSUPPORTED, 0}};
START_TEST(an_engine_whose_pools_were_refused_is_tried_again_after_a_while)
    {
        struct bed *bed = direct_bed(strict);
        uint64_t barred_ns = no_tickets[_i].barred_ns;
        for (uint32_t turn = 0; turn < (barred_ns > 0 ? 3u : 2u); turn++) {
            uint64_t recv = side_begin(bed, SL_MSG_LOAD,
                                       (struct side){.op_id = RECV + turn,
                                                     .id = ID + turn,
                                                     .blocks = 2,
                                                     .direct = true,
                                                     .from = turn == 0 ? no_tickets[_i].from : "p"},
                                       turn == 0);
            if (turn != 1 || barred_ns == 0) { /* the second one comes at once */
                struct sl_msg open = ticket_asked(bed);
                answer(bed, "transporter.0", &open, (struct sl_msg){.code = no_tickets[_i].code});
            }
            ck_assert_int_ne(reply_to(bed, recv).code, SL_OK);
            fake_pass(&bed->fake, turn == 1 ? barred_ns : 0);
        }
        bed_end(bed);
    }
END_TEST

/* They are written into; from them is another matter. */
START_TEST(pools_that_get_no_ticket_are_pushed_from)
    {
        struct bed *bed = direct_bed(strict);
        struct sl_item_ticket ticket = ticket_of("b1", 2);
        uint64_t recv = side_begin(
            bed, SL_MSG_LOAD,
            (struct side){.op_id = RECV, .id = ID + 1, .blocks = 2, .direct = true}, true);
        struct sl_msg open = ticket_asked(bed);
        answer(bed, "transporter.0", &open, (struct sl_msg){.code = SL_ERR_UNSUPPORTED});
        ck_assert_int_eq(reply_to(bed, recv).code, SL_ERR_UNSUPPORTED);
        (void)push_begin(bed, &ticket, false);
        (void)take(bed, "transporter.0", SL_MSG_PUSH_SEND);
        bed_end(bed);
    }
END_TEST

/* Without pools in a fabric there is storage, or an error. */
START_TEST(what_cannot_be_pushed_is_not_begun)
    {
        const char *const settings[] = {"handover_push_fallback", _i == 0 ? "true" : "false", NULL};
        struct bed *bed = bed_make(settings);
        struct sl_item_ticket ticket = ticket_of("b1", 2);
        uint64_t send = side_begin(
            bed, SL_MSG_STORE,
            (struct side){.op_id = SEND, .id = ID, .blocks = 2, .ticket = &ticket}, true);
        struct sl_msg abort = take(bed, "transporter.0", SL_MSG_PUSH_ABORT), reply;
        ck_assert_uint_eq(abort.body.push_abort.code, SL_ERR_UNSUPPORTED); /* decode hears of it */
        if (_i == 0) {
            ck_assert_int_eq(commit(bed, send, 2).code, SL_OK);
        } else {
            reply = reply_to(bed, send);
            ck_assert_int_eq(reply.code, SL_ERR_UNSUPPORTED);
            ck_assert_ptr_nonnull(strstr(reply.text.at, "not in the fabric"));
        }
        uint64_t recv = side_begin(
            bed, SL_MSG_LOAD,
            (struct side){.op_id = RECV, .id = ID + 1, .blocks = 2, .direct = true}, false);
        ck_assert(!sent(bed, "transporter.0", SL_MSG_PUSH_OPEN));
        ck_assert(answered(bed, recv, &reply) == (_i == 1));
        bed_end(bed);
    }
END_TEST

static const bool by_storage[] = {true, false};
START_TEST(a_push_that_ends_early_is_loaded_when_nothing_lands_any_more)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_item_receipt receipt = receipt_of("b1", 2);
        uint64_t recv = direct_begin(bed);
        ck_assert_int_eq(pushed(bed, 2, SL_ERR_PEER_DIED), SL_OK);
        index_put(bed, 0, true, PART_BYTES);
        index_put(bed, 1, true, PART_BYTES);
        ck_assert_int_eq(arrived(bed, &receipt, 1, 0), SL_OK);
        ck_assert(!sent(bed, "swapper.0", SL_MSG_COPY));
        closed(bed, false);
        load_copied(bed);
        struct sl_msg reply = reply_to(bed, recv);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(reply.body.load_reply.fenced);
        bed_end(bed);
    }
END_TEST

/* However decode's op ends: by its time, or because the push failed. */
START_TEST(decodes_blocks_are_free_when_the_transporter_says_so)
    {
        struct bed *bed = direct_bed(strict);
        uint64_t recv = direct_begin(bed);
        if (by_storage[_i]) {
            fake_pass(&bed->fake, 2 * SL_NS_PER_S);
        } else {
            ck_assert_int_eq(pushed(bed, 2, SL_ERR_CORRUPT), SL_OK);
        }
        struct sl_msg reply = reply_to(bed, recv), said;
        ck_assert_int_eq(reply.code, SL_ERR_HANDOVER);
        ck_assert(!reply.body.load_reply.fenced);
        uint64_t ask = fenced_ask(bed, RECV);
        struct sl_msg fence = fence_of(bed, RECV);
        fake_pass(&bed->fake, 100 * SL_NS_PER_MS);
        ck_assert(!answered(bed, ask, &said));

        answer(bed, "transporter.0", &fence, (struct sl_msg){.code = SL_OK});

        ck_assert(answered(bed, ask, &said));
        ck_assert(said.body.op_fenced_reply.fenced);
        closed(bed, false);
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        bed_end(bed);
    }
END_TEST

/* It may have opened one whose answer was lost. */
START_TEST(a_ticket_that_nobody_answered_for_is_fenced)
    {
        struct bed *bed = direct_bed(strict);
        uint64_t recv = decode_begin(bed, 300 * SL_NS_PER_MS, true);
        (void)ticket_asked(bed);
        fake_pass(&bed->fake, 300 * SL_NS_PER_MS);
        ck_assert(!reply_to(bed, recv).body.load_reply.fenced);
        (void)fence_of(bed, RECV);
        bed_end(bed);
    }
END_TEST

START_TEST(a_transporter_that_acknowledges_no_fence_is_killed)
    {
        struct bed *bed = direct_bed(strict);
        (void)direct_begin(bed);
        for (uint32_t i = 0; i < 400; i++) {
            fake_pass(&bed->fake, 20 * SL_NS_PER_MS);
        }
        ck_assert_uint_eq(metric(bed, "swappers_killed"), 1);
        bed_end(bed);
    }
END_TEST

/* ---- prefill ---- */

/* A prefill of this node has no NIC between: the transporter refuses device memory to it. */
START_TEST(a_ticket_says_when_prefill_is_known_to_be_here)
    {
        static const struct {
            const char *from;
            bool first; /* prefill came before decode */
            const char *want;
        } cases[] = {{"d", false, "d"}, {"p", false, ""}, {NULL, false, ""}, {NULL, true, "d"}};
        struct sl_item_ticket ticket = ticket_of("b1", 2);
        struct bed *bed = direct_bed(NULL);
        if (cases[_i].first) {
            (void)push_begin(bed, &ticket, true);
        }
        (void)side_begin(
            bed, SL_MSG_LOAD,
            (struct side){
                .op_id = RECV, .id = ID, .blocks = 2, .direct = true, .from = cases[_i].from},
            !cases[_i].first);
        struct sl_msg open = ticket_asked(bed);
        ck_assert_str_eq(open.body.push_open.from.at, cases[_i].want);
        bed_end(bed);
    }
END_TEST

START_TEST(prefill_looks_at_its_blocks_and_pushes_them_from_where_they_lie)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_item_ticket ticket = ticket_of("b1", 2);
        uint64_t send = side_begin(
            bed, SL_MSG_STORE,
            (struct side){.op_id = SEND, .id = ID, .blocks = 2, .ticket = &ticket}, true);
        struct sl_msg copy = take(bed, "swapper.1", SL_MSG_COPY);
        ck_assert(copy.body.copy.out);
        ck_assert(copy.body.copy.look);
        ck_assert_uint_eq(copy.body.copy.items.count, 2);
        ck_assert_uint_eq(copy.body.copy.items.at[1].device_block, 11);
        ck_assert_uint_eq(copy.body.copy.items.at[1].length_bytes, PART_BYTES);
        uint8_t done = 3;
        struct sl_digest digests[2] = {{.low = 2, .high = 0}, {.low = 2, .high = 1}};
        struct sl_msg looked = {.code = SL_OK};
        looked.body.copy_reply.done = (struct sl_bytes){&done, 1};
        looked.body.copy_reply.digests = (struct sl_bytes){digests, sizeof(digests)};
        answer(bed, "swapper.1", &copy, looked);
        (void)answer_copy(bed, 0, UINT64_MAX);

        struct sl_msg push = take(bed, "transporter.0", SL_MSG_PUSH_SEND), reply;
        const struct sl_body_push_send *body = &push.body.push_send;
        ck_assert(body->last);
        ck_assert_uint_eq(body->pieces.count, 2 * RANKS);
        ck_assert_uint_eq(body->spots.count, 2 * RANKS);
        ck_assert_uint_eq(body->pieces.at[3].part, 3);
        ck_assert_uint_eq(body->pieces.at[3].digest_low, 2);
        ck_assert_uint_eq(body->pieces.at[3].digest_high, 1);
        ck_assert_uint_eq(body->pieces.at[3].length_bytes, PART_BYTES);
        ck_assert_uint_eq(body->spots.at[3].rank, 1);
        ck_assert_uint_eq(body->spots.at[3].device_block, 11);
        ck_assert_uint_eq(body->spots.at[3].item, 3);
        ck_assert_mem_eq(body->ticket.at, "secret", 6);
        ck_assert(!answered(bed, send, &reply));
        answer(bed, "transporter.0", &push, (struct sl_msg){.code = SL_OK});

        reply = reply_to(bed, send);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(reply.body.store_reply.fenced);
        ck_assert_uint_eq(reply.body.store_reply.receipt.count, 1);
        ck_assert(!sent(bed, "registrar", SL_MSG_ABORT));
        ck_assert(!sent(bed, "transporter.0", SL_MSG_FENCE));
        ck_assert_uint_eq(metric(bed, "handovers_pushed"), 1);
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        ck_assert(!hold_ended(bed)); /* nothing was held */
        bed_end(bed);
    }
END_TEST

START_TEST(a_push_that_is_refused_goes_through_storage)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_item_ticket ticket = ticket_of("b1", 2);
        uint64_t send = push_begin(bed, &ticket, true);
        struct sl_msg push = take(bed, "transporter.0", SL_MSG_PUSH_SEND);
        answer(bed, "transporter.0", &push, (struct sl_msg){.code = refusals[_i]});
        (void)take(bed, "transporter.0", SL_MSG_PUSH_ABORT);

        struct sl_msg reply = commit(bed, send, 2);

        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(reply.body.store_reply.fenced); /* it has read nothing */
        ck_assert_uint_eq(metric(bed, "pushes_straight_refused"), 1);
        ck_assert_uint_eq(metric(bed, "handovers_fallen_back"), 1);
        (void)side_begin(/* its ticket, or its decode: the next one has others */
                         bed, SL_MSG_STORE,
                         (struct side){
                             .op_id = SEND + 2, .id = ID + 1, .blocks = 2, .ticket = &ticket},
                         false);
        ck_assert_uint_eq(answer_copy(bed, 0, UINT64_MAX), 2);
        ck_assert_uint_eq(answer_copy(bed, 1, UINT64_MAX), 2);
        (void)take(bed, "transporter.0", SL_MSG_PUSH_SEND);
        bed_end(bed);
    }
END_TEST

START_TEST(a_push_that_fails_goes_on_through_storage_and_is_fenced_at_the_end)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_item_ticket ticket = ticket_of("b1", 2);
        uint64_t send = push_begin(bed, &ticket, true);
        struct sl_msg push = take(bed, "transporter.0", SL_MSG_PUSH_SEND), said;
        answer(bed, "transporter.0", &push, (struct sl_msg){.code = SL_ERR_PEER_DIED});
        (void)take(bed, "transporter.0", SL_MSG_PUSH_ABORT);

        struct sl_msg reply = commit(bed, send, 2);

        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(!reply.body.store_reply.fenced); /* the transporter may read its blocks yet */
        uint64_t ask = fenced_ask(bed, SEND);
        struct sl_msg fence = fence_of(bed, SEND);
        ck_assert(!answered(bed, ask, &said));
        answer(bed, "transporter.0", &fence, (struct sl_msg){.code = SL_OK});
        ck_assert(answered(bed, ask, &said));
        ck_assert_uint_eq(metric(bed, "handovers_fallen_back"), 1);
        ck_assert_int_eq(given_back(bed, ID), SL_OK);
        ck_assert(hold_ended(bed));
        bed_end(bed);
    }
END_TEST

START_TEST(a_rank_that_has_not_looked_at_its_part_fails_the_push)
    {
        struct bed *bed = direct_bed(strict);
        struct sl_item_ticket ticket = ticket_of("b1", 2);
        uint64_t send = side_begin(
            bed, SL_MSG_STORE,
            (struct side){.op_id = SEND, .id = ID, .blocks = 2, .ticket = &ticket}, true);
        (void)answer_copy(bed, 0, 1);
        (void)answer_copy(bed, 1, UINT64_MAX);
        ck_assert_int_ne(reply_to(bed, send).code, SL_OK);
        ck_assert(!sent(bed, "transporter.0", SL_MSG_PUSH_SEND));
        ck_assert(!sent(bed, "registrar", SL_MSG_ABORT));
        bed_end(bed);
    }
END_TEST

/* ---- several batches ---- */

#define MANY       256u            /* blocks */
#define BATCH      128u            /* parts */
#define LOOK_FIRST (BATCH / RANKS) /* of a rank */
#define LOOK_REST  (MANY - LOOK_FIRST)

static uint64_t many_begin(struct bed *bed, const struct sl_item_ticket *ticket)
{
    return side_begin(bed, SL_MSG_STORE,
                      (struct side){.op_id = SEND, .id = ID, .blocks = MANY, .ticket = ticket},
                      true);
}

static void looked(struct bed *bed, uint32_t count)
{
    ck_assert_uint_eq(answer_copy(bed, 0, UINT64_MAX), count);
    ck_assert_uint_eq(answer_copy(bed, 1, UINT64_MAX), count);
}

/* A batch that was sent; which one, counted from 0. */
static struct sl_msg batch_taken(struct bed *bed, uint32_t number)
{
    struct sl_msg push = take(bed, "transporter.0", SL_MSG_PUSH_SEND);
    const struct sl_body_push_send *body = &push.body.push_send;
    ck_assert_uint_eq(body->pieces.count, BATCH);
    ck_assert_uint_eq(body->spots.count, BATCH);
    ck_assert_uint_eq(body->pieces.at[0].part, number * BATCH);
    ck_assert_uint_eq(body->pieces.at[BATCH - 1].part, (number + 1) * BATCH - 1);
    ck_assert(body->last == (number == MANY * RANKS / BATCH - 1));
    return push;
}

static void batch_answer(struct bed *bed, const struct sl_msg *push, sl_err code)
{
    answer(bed, "transporter.0", push, (struct sl_msg){.code = code});
}

/* Three of four are in flight; the last one waits. */
static uint64_t three_batches(struct bed *bed, const struct sl_item_ticket *ticket,
                              struct sl_msg out[3])
{
    uint64_t send = many_begin(bed, ticket);
    looked(bed, LOOK_FIRST);
    out[0] = batch_taken(bed, 0);
    looked(bed, LOOK_REST);
    out[1] = batch_taken(bed, 1);
    out[2] = batch_taken(bed, 2);
    ck_assert(!sent(bed, "transporter.0", SL_MSG_PUSH_SEND));
    return send;
}

START_TEST(batches_go_while_the_next_blocks_are_looked_at)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_item_ticket ticket = ticket_of("b255", MANY);
        uint64_t send = many_begin(bed, &ticket);
        looked(bed, LOOK_FIRST);
        struct sl_msg first = batch_taken(bed, 0), reply;
        batch_answer(bed, &first, SL_OK); /* before the rest is looked at */
        ck_assert(!sent(bed, "transporter.0", SL_MSG_PUSH_SEND));
        looked(bed, LOOK_REST);
        for (uint32_t i = 1; i < 4; i++) {
            struct sl_msg push = batch_taken(bed, i);
            ck_assert_uint_eq(push.body.push_send.pieces.at[1].digest_low, 2);
            ck_assert(!answered(bed, send, &reply));
            if (i == 2) { /* the last one goes alone */
                ck_assert(!sent(bed, "transporter.0", SL_MSG_PUSH_SEND));
            }
            batch_answer(bed, &push, SL_OK);
        }
        reply = reply_to(bed, send);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(reply.body.store_reply.fenced);
        ck_assert_uint_eq(metric(bed, "handovers_pushed"), 1);
        bed_end(bed);
    }
END_TEST

/* In whatever order the others are acknowledged. */
static const uint32_t orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}};
START_TEST(the_last_batch_goes_when_every_other_one_was_acknowledged)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_item_ticket ticket = ticket_of("b255", MANY);
        struct sl_msg pushes[3], reply;
        uint64_t send = three_batches(bed, &ticket, pushes);
        for (uint32_t i = 0; i < 3; i++) {
            ck_assert(!sent(bed, "transporter.0", SL_MSG_PUSH_SEND));
            batch_answer(bed, &pushes[orders[_i][i]], SL_OK);
        }
        struct sl_msg last = batch_taken(bed, 3);
        ck_assert(!answered(bed, send, &reply));
        batch_answer(bed, &last, SL_OK);
        ck_assert_int_eq(reply_to(bed, send).code, SL_OK);
        bed_end(bed);
    }
END_TEST

START_TEST(a_push_of_which_a_batch_fails_waits_for_the_others_and_goes_on)
    {
        struct bed *bed = direct_bed(strict);
        struct sl_item_ticket ticket = ticket_of("b255", MANY);
        struct sl_msg pushes[3], reply;
        uint64_t send = three_batches(bed, &ticket, pushes);
        batch_answer(bed, &pushes[orders[_i][0]], SL_ERR_PEER_DIED);
        batch_answer(bed, &pushes[orders[_i][1]], SL_OK);
        ck_assert(!answered(bed, send, &reply));
        ck_assert(!sent(bed, "transporter.0", SL_MSG_PUSH_ABORT));
        batch_answer(bed, &pushes[orders[_i][2]], SL_ERR_STALE);
        reply = reply_to(bed, send);
        ck_assert_int_eq(reply.code, SL_ERR_PEER_DIED); /* the first reason */
        ck_assert(!reply.body.store_reply.fenced);
        ck_assert(!sent(bed, "transporter.0", SL_MSG_PUSH_SEND));
        (void)take(bed, "transporter.0", SL_MSG_PUSH_ABORT);
        (void)fence_of(bed, SEND);
        bed_end(bed);
    }
END_TEST

START_TEST(a_push_that_is_refused_while_blocks_are_looked_at_ends_behind_the_look)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_item_ticket ticket = ticket_of("b255", MANY);
        (void)many_begin(bed, &ticket);
        looked(bed, LOOK_FIRST);
        struct sl_msg push = batch_taken(bed, 0);
        batch_answer(bed, &push, SL_ERR_UNSUPPORTED);
        ck_assert(!sent(bed, "registrar", SL_MSG_RESERVE));
        looked(bed, LOOK_REST);
        ck_assert(!sent(bed, "transporter.0", SL_MSG_PUSH_SEND));
        (void)take(bed, "transporter.0", SL_MSG_PUSH_ABORT);
        struct sl_msg reserve = take(bed, "registrar", SL_MSG_RESERVE);
        ck_assert_uint_gt(reserve.body.reserve.groups.count, 0); /* through storage */
        ck_assert_uint_eq(metric(bed, "pushes_straight_refused"), 1);
        bed_end(bed);
    }
END_TEST

START_TEST(a_push_that_was_refused_in_the_middle_is_not_begun_anew)
    {
        struct bed *bed = direct_bed(strict);
        struct sl_item_ticket ticket = ticket_of("b255", MANY);
        struct sl_msg pushes[3];
        uint64_t send = three_batches(bed, &ticket, pushes);
        batch_answer(bed, &pushes[1], SL_ERR_LIMIT);
        batch_answer(bed, &pushes[2], SL_ERR_LIMIT);
        batch_answer(bed, &pushes[0], SL_OK); /* some of it is there */
        ck_assert_int_eq(reply_to(bed, send).code, SL_ERR_LIMIT);
        ck_assert(!sent(bed, "registrar", SL_MSG_RESERVE));
        bed_end(bed);
    }
END_TEST

START_TEST(batches_in_flight_end_with_the_op)
    {
        struct bed *bed = direct_bed(strict);
        struct sl_item_ticket ticket = ticket_of("b255", MANY);
        struct sl_msg pushes[3];
        uint64_t send = side_send(bed, SL_MSG_STORE,
                                  (struct side){.op_id = SEND,
                                                .id = ID,
                                                .blocks = MANY,
                                                .ticket = &ticket,
                                                .budget_ns = 300 * SL_NS_PER_MS});
        answer_engine(bed);
        keys_known(bed, MANY);
        looked(bed, LOOK_FIRST);
        pushes[0] = batch_taken(bed, 0);
        looked(bed, LOOK_REST);
        pushes[1] = batch_taken(bed, 1);
        fake_pass(&bed->fake, 300 * SL_NS_PER_MS);
        ck_assert_int_eq(reply_to(bed, send).code, SL_ERR_TIMEOUT);
        (void)take(bed, "transporter.0", SL_MSG_PUSH_ABORT);
        struct sl_msg fence = fence_of(bed, SEND);
        batch_answer(bed, &pushes[1], SL_OK); /* late: nobody hears it */
        batch_answer(bed, &pushes[0], SL_ERR_STALE);
        answer(bed, "transporter.0", &fence, (struct sl_msg){.code = SL_OK});
        struct sl_msg said;
        uint64_t ask = fenced_ask(bed, SEND);
        ck_assert(answered(bed, ask, &said));
        ck_assert(said.body.op_fenced_reply.fenced);
        bed_end(bed);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("coordinator_straight");
    TCase *decode = tcase_create("decode"), *prefill = tcase_create("prefill");
    tcase_add_test(decode, decode_opens_its_ticket_for_its_pools_and_copies_nothing);
    tcase_add_loop_test(decode, a_load_whose_ticket_is_refused_goes_through_storage, 0,
                        SL_COUNT(refusals));
    tcase_add_loop_test(decode, a_ticket_says_when_prefill_is_known_to_be_here, 0, 4);
    tcase_add_loop_test(decode, what_cannot_be_pushed_is_not_begun, 0, 2);
    tcase_add_loop_test(decode, an_engine_whose_pools_were_refused_is_tried_again_after_a_while, 0,
                        SL_COUNT(no_tickets));
    tcase_add_test(decode, pools_that_get_no_ticket_are_pushed_from);
    tcase_add_test(decode, a_push_that_ends_early_is_loaded_when_nothing_lands_any_more);
    tcase_add_loop_test(decode, decodes_blocks_are_free_when_the_transporter_says_so, 0,
                        SL_COUNT(by_storage));
    tcase_add_test(decode, a_ticket_that_nobody_answered_for_is_fenced);
    tcase_add_test(decode, a_transporter_that_acknowledges_no_fence_is_killed);
    suite_add_tcase(suite, decode);
    tcase_add_test(prefill, prefill_looks_at_its_blocks_and_pushes_them_from_where_they_lie);
    tcase_add_loop_test(prefill, a_push_that_is_refused_goes_through_storage, 0,
                        SL_COUNT(refusals));
    tcase_add_test(prefill, a_push_that_fails_goes_on_through_storage_and_is_fenced_at_the_end);
    tcase_add_test(prefill, a_rank_that_has_not_looked_at_its_part_fails_the_push);
    tcase_add_test(prefill, batches_go_while_the_next_blocks_are_looked_at);
    tcase_add_loop_test(prefill, the_last_batch_goes_when_every_other_one_was_acknowledged, 0,
                        SL_COUNT(orders));
    tcase_add_loop_test(prefill, a_push_of_which_a_batch_fails_waits_for_the_others_and_goes_on, 0,
                        SL_COUNT(orders));
    tcase_add_test(prefill, a_push_that_is_refused_while_blocks_are_looked_at_ends_behind_the_look);
    tcase_add_test(prefill, a_push_that_was_refused_in_the_middle_is_not_begun_anew);
    tcase_add_test(prefill, batches_in_flight_end_with_the_op);
    suite_add_tcase(suite, prefill);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
