/* tests/unit/actors/coordinator/coordinator_straight_test.c - direct hand-overs straight between
 * pools: requests to the transporter and to swappers, when a hand-over falls back to storage, and
 * when device blocks are free. */
#include "tests/unit/actors/coordinator/coordinator_handover_support.h"

static const char *const strict[] = {"handover_fallback", "false", NULL};

static uint64_t decode_begin(struct bed *bed, uint64_t budget_ns, bool first)
{
    return side_begin(
        bed, SL_MSG_LOAD,
        (struct side){.op_id = RECV, .id = ID, .blocks = 2, .direct = true, .budget_ns = budget_ns},
        first);
}

static uint64_t fenced_ask(struct bed *bed, uint64_t op_id)
{
    struct sl_msg ask = {.type = SL_MSG_OP_FENCED, .op_id = 77, .budget_ns = 60 * SL_NS_PER_S};
    ask.body.op_fenced.target_op = op_id;
    fake_give(&bed->fake, "client.1.0", &ask);
    return ask.seq;
}

/* ---- decode ---- */

START_TEST(decode_has_its_pools_read_into_and_copies_nothing)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_msg reply;
        uint64_t recv = decode_begin(bed, 0, true);
        ck_assert(!sent(bed, "registrar", SL_MSG_RESERVE));
        struct sl_msg bring = bring_asked(bed);
        const struct sl_body_bring *body = &bring.body.bring;
        ck_assert_uint_eq(bring.op_id, RECV);
        ck_assert_uint_eq(body->keys.count, 0);
        ck_assert_uint_eq(body->slots.count, 2 * RANKS);
        for (uint64_t i = 0; i < 2 * RANKS; i++) {
            const struct sl_item_slot *slot = &body->slots.at[i];
            ck_assert_uint_eq(slot->engine_id, ENGINE_ID);
            ck_assert_uint_eq(slot->item, i);
            ck_assert_uint_eq(slot->rank, i % RANKS);
            ck_assert_uint_eq(slot->device_block, 10 + i / RANKS);
        }
        ck_assert_int_eq(landed(bed, 0), SL_OK);
        ck_assert(!answered(bed, recv, &reply));
        ck_assert_int_eq(landed(bed, 2), SL_OK);

        reply = reply_to(bed, recv);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 2);
        ck_assert_uint_eq(reply.body.load_reply.from_remote, 2);
        ck_assert(reply.body.load_reply.fenced);
        ck_assert(!sent(bed, "swapper.0", SL_MSG_COPY));
        ck_assert(!sent(bed, "transporter.0", SL_MSG_FENCE));
        ck_assert(!sent(bed, "registrar", SL_MSG_ABORT));
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        ck_assert_uint_eq(metric(bed, "pushes_direct"), 1);
        bed_end(bed);
    }
END_TEST

static const sl_err refusals[] = {SL_ERR_UNSUPPORTED, SL_ERR_NOT_FOUND, SL_ERR_LIMIT,
                                  SL_ERR_INVALID};
START_TEST(a_load_that_the_transporter_refuses_goes_through_storage)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_item_receipt receipt = receipt_of("b1", 2);
        uint64_t recv = decode_begin(bed, 0, true);
        (void)bring_asked(bed);
        bring_answer(bed, refusals[_i]);
        index_put(bed, 0, true, PART_BYTES);
        index_put(bed, 1, true, PART_BYTES);
        ck_assert_int_eq(arrived(bed, &receipt, 1, 0), SL_OK);
        load_copied(bed);

        struct sl_msg reply = reply_to(bed, recv);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(reply.body.load_reply.fenced);
        ck_assert(!sent(bed, "transporter.0", SL_MSG_FENCE)); /* nothing was begun */
        ck_assert_uint_eq(metric(bed, "pushes_direct_refused"), 1);
        ck_assert_uint_eq(metric(bed, "handovers_fallen_back"), 1);
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        bed_end(bed);
    }
END_TEST

/* How long a refusal bars an engine's pools. If prefill is at this node, it does not. */
static const struct {
    const char *from;
    sl_err code;
    uint64_t barred_ns;
} refused[] = {{NULL, SL_ERR_UNSUPPORTED, SL_NS_PER_S},
               {NULL, SL_ERR_NOT_FOUND, 0},
               {NULL, SL_ERR_LIMIT, 0},
               {NULL, SL_ERR_INVALID, 0},
               {"d", SL_ERR_UNSUPPORTED, 0}};
START_TEST(an_engine_whose_pools_were_refused_is_tried_again_after_a_while)
    {
        struct bed *bed = direct_bed(strict);
        uint64_t barred_ns = refused[_i].barred_ns;
        for (uint32_t turn = 0; turn < (barred_ns > 0 ? 3u : 2u); turn++) {
            uint64_t recv = side_begin(bed, SL_MSG_LOAD,
                                       (struct side){.op_id = RECV + turn,
                                                     .id = ID + turn,
                                                     .blocks = 2,
                                                     .direct = true,
                                                     .from = turn == 0 ? refused[_i].from : "p"},
                                       turn == 0);
            if (turn != 1 || barred_ns == 0) { /* the second follows at once */
                (void)bring_asked(bed);
                bring_answer(bed, refused[_i].code);
            }
            ck_assert_int_ne(reply_to(bed, recv).code, SL_OK);
            fake_advance(&bed->fake, turn == 1 ? barred_ns : 0);
        }
        bed_end(bed);
    }
END_TEST

/* The refusal is about reading into the pools; they may still be lent. */
START_TEST(pools_that_are_not_read_into_are_lent)
    {
        struct bed *bed = direct_bed(strict);
        struct sl_item_ticket ticket = ticket_of("b1", 2);
        uint64_t recv = side_begin(
            bed, SL_MSG_LOAD,
            (struct side){.op_id = RECV, .id = ID + 1, .blocks = 2, .direct = true}, true);
        (void)bring_asked(bed);
        bring_answer(bed, SL_ERR_UNSUPPORTED);
        ck_assert_int_eq(reply_to(bed, recv).code, SL_ERR_UNSUPPORTED);
        (void)lend_begin(bed, &ticket, false);
        (void)take(bed, "transporter.0", SL_MSG_LEND);
        bed_end(bed);
    }
END_TEST

/* Without pools in a fabric the hand-over uses storage, or fails. */
START_TEST(what_cannot_go_directly_is_not_begun)
    {
        const char *const settings[] = {"handover_fallback", _i == 0 ? "true" : "false", NULL};
        struct bed *bed = bed_make(settings);
        struct sl_item_ticket ticket = ticket_of("b1", 2);
        struct sl_msg reply;
        uint64_t send = side_begin(
            bed, SL_MSG_STORE,
            (struct side){.op_id = SEND, .id = ID, .blocks = 2, .ticket = &ticket}, true);
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
        ck_assert(!sent(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS));
        ck_assert(answered(bed, recv, &reply) == (_i == 1));
        bed_end(bed);
    }
END_TEST

static void through_storage(struct bed *bed)
{
    struct sl_item_receipt receipt = receipt_of("b1", 2);
    index_put(bed, 0, true, PART_BYTES);
    index_put(bed, 1, true, PART_BYTES);
    ck_assert_int_eq(arrived(bed, &receipt, 1, 0), SL_OK);
}

START_TEST(what_fails_at_decode_is_loaded_when_prefill_has_stored_it)
    {
        struct bed *bed = direct_bed(NULL);
        uint64_t recv = direct_begin(bed);
        bring_answer(bed, SL_ERR_PEER_DIED);
        ck_assert_int_eq(landed(bed, 1), SL_ERR_NOT_FOUND);
        through_storage(bed);
        load_copied(bed);
        struct sl_msg reply = reply_to(bed, recv);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(reply.body.load_reply.fenced);
        ck_assert_uint_eq(metric(bed, "handovers_fallen_back"), 1);
        bed_end(bed);
    }
END_TEST

/* A code from prefill's side is never mistaken for a wish of decode's caller. */
START_TEST(what_ends_at_prefill_is_a_hand_over_that_failed)
    {
        struct bed *bed = direct_bed(strict);
        uint64_t recv = _i == 0 ? decode_begin(bed, 0, true) : direct_begin(bed);
        if (_i == 0) {
            (void)bring_asked(bed);
        }
        bring_answer(bed, SL_ERR_CANCELLED);
        ck_assert_int_eq(reply_to(bed, recv).code, SL_ERR_HANDOVER);
        bed_end(bed);
    }
END_TEST

START_TEST(stored_blocks_are_loaded_when_no_more_arrive)
    {
        struct bed *bed = direct_bed(NULL);
        uint64_t recv = direct_begin(bed);
        through_storage(bed);
        ck_assert(!sent(bed, "swapper.0", SL_MSG_COPY));
        transporter_fenced(bed, RECV);
        load_copied(bed);
        ck_assert_int_eq(reply_to(bed, recv).code, SL_OK);
        bed_end(bed);
    }
END_TEST

/* Prefill was first and had no ticket, so no landing would ever end a wait. */
START_TEST(blocks_stored_before_decode_arrives_are_loaded_at_once)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_item_receipt receipt = receipt_of("b1", 2);
        index_put(bed, 0, true, PART_BYTES);
        index_put(bed, 1, true, PART_BYTES);
        uint64_t recv = side_begin(
            bed, SL_MSG_LOAD,
            (struct side){
                .op_id = RECV, .id = ID, .blocks = 2, .direct = true, .receipt = &receipt},
            true);
        ck_assert(!sent(bed, "transporter.0", SL_MSG_BRING));
        load_copied(bed);
        ck_assert_int_eq(reply_to(bed, recv).code, SL_OK);
        bed_end(bed);
    }
END_TEST

/* Prefill stored it, since it was not notified in time that all was read. */
START_TEST(what_lands_before_the_fence_is_not_loaded_again)
    {
        struct bed *bed = direct_bed(NULL);
        uint64_t recv = direct_begin(bed);
        through_storage(bed);
        ck_assert_int_eq(landed(bed, 2), SL_OK);
        transporter_fenced(bed, RECV);
        struct sl_msg reply = reply_to(bed, recv);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.load_reply.from_remote, 2);
        ck_assert(!sent(bed, "swapper.0", SL_MSG_COPY));
        bed_end(bed);
    }
END_TEST

/* Decode's op ends by its deadline, or because its client cancels it. */
START_TEST(decodes_blocks_are_free_when_the_transporter_says_so)
    {
        struct bed *bed = direct_bed(strict);
        uint64_t recv = direct_begin(bed);
        if (_i == 0) {
            fake_advance(&bed->fake, 2 * SL_NS_PER_S);
        } else {
            struct sl_msg cancel = {.type = SL_MSG_CANCEL};
            cancel.body.cancel.target_op = RECV;
            fake_give(&bed->fake, "client.1.0", &cancel);
        }
        struct sl_msg reply = reply_to(bed, recv), said;
        ck_assert_int_eq(reply.code, _i == 0 ? SL_ERR_HANDOVER : SL_ERR_CANCELLED);
        ck_assert(!reply.body.load_reply.fenced);
        uint64_t ask = fenced_ask(bed, RECV);
        struct sl_msg fence = transporter_fence(bed, RECV);
        fake_advance(&bed->fake, 100 * SL_NS_PER_MS);
        ck_assert(!answered(bed, ask, &said));

        answer(bed, "transporter.0", &fence, (struct sl_msg){.code = SL_OK});

        ck_assert(answered(bed, ask, &said));
        ck_assert(said.body.op_fenced_reply.fenced);
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        bed_end(bed);
    }
END_TEST

/* Its answer may have been lost. */
START_TEST(a_bring_that_nobody_answered_is_fenced)
    {
        struct bed *bed = direct_bed(strict);
        uint64_t recv = decode_begin(bed, 300 * SL_NS_PER_MS, true);
        (void)bring_asked(bed);
        fake_advance(&bed->fake, 300 * SL_NS_PER_MS);
        ck_assert(!reply_to(bed, recv).body.load_reply.fenced);
        (void)transporter_fence(bed, RECV);
        bed_end(bed);
    }
END_TEST

/* The request was sent again meanwhile, so a new process may have started on it. */
START_TEST(a_dead_transporters_report_counts_after_its_successor_is_fenced)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_msg reply;
        uint64_t recv = direct_begin(bed);
        fake_advance(&bed->fake, SL_NS_PER_S);
        fake_process_end(&bed->fake, transporter_proc);
        ck_assert_int_eq(landed(bed, 2), SL_OK);
        ck_assert(!answered(bed, recv, &reply));

        transporter_fenced(bed, RECV);

        ck_assert_int_eq(reply_to(bed, recv).code, SL_OK);
        bed_end(bed);
    }
END_TEST

START_TEST(a_transporter_that_acknowledges_no_fence_is_killed)
    {
        struct bed *bed = direct_bed(strict);
        (void)direct_begin(bed);
        for (uint32_t i = 0; i < 400; i++) {
            fake_advance(&bed->fake, 20 * SL_NS_PER_MS);
        }
        ck_assert_uint_eq(metric(bed, "swappers_killed"), 1);
        bed_end(bed);
    }
END_TEST

/* ---- prefill ---- */

/* For a prefill of this node there is no NIC in between: the transporter refuses device memory. */
START_TEST(a_bring_says_who_may_lend_when_that_is_known)
    {
        static const struct {
            const char *from;
            bool first; /* prefill came before decode */
            const char *want;
        } cases[] = {{"d", false, "d"}, {"p", false, "p"}, {NULL, false, ""}, {NULL, true, "d"}};
        struct sl_item_ticket ticket = ticket_of("b1", 2);
        struct bed *bed = direct_bed(NULL);
        if (cases[_i].first) {
            (void)lend_begin(bed, &ticket, true);
        }
        (void)side_begin(
            bed, SL_MSG_LOAD,
            (struct side){
                .op_id = RECV, .id = ID, .blocks = 2, .direct = true, .from = cases[_i].from},
            !cases[_i].first);
        struct sl_msg bring = bring_asked(bed);
        ck_assert_str_eq(bring.body.bring.from.at, cases[_i].want);
        bed_end(bed);
    }
END_TEST

START_TEST(prefill_looks_at_its_blocks_and_lends_them_where_they_lie)
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

        struct sl_msg lend = take(bed, "transporter.0", SL_MSG_LEND), reply;
        const struct sl_body_lend *body = &lend.body.lend;
        ck_assert(body->last);
        ck_assert_uint_eq(body->number, 1);
        ck_assert_uint_eq(body->pieces.count, 2 * RANKS);
        ck_assert_uint_eq(body->slots.count, 2 * RANKS);
        ck_assert_uint_eq(body->pieces.at[3].part, 3);
        ck_assert_uint_eq(body->pieces.at[3].digest_low, 2);
        ck_assert_uint_eq(body->pieces.at[3].digest_high, 1);
        ck_assert_uint_eq(body->pieces.at[3].length_bytes, PART_BYTES);
        ck_assert_uint_eq(body->slots.at[3].rank, 1);
        ck_assert_uint_eq(body->slots.at[3].device_block, 11);
        ck_assert_uint_eq(body->slots.at[3].item, 3);
        ck_assert_mem_eq(body->ticket.at, "secret", 6);
        ck_assert(!answered(bed, send, &reply));
        answer(bed, "transporter.0", &lend, (struct sl_msg){.code = SL_OK});

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

START_TEST(a_loan_that_is_refused_goes_through_storage)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_item_ticket ticket = ticket_of("b1", 2);
        uint64_t send = lend_begin(bed, &ticket, true);
        struct sl_msg lend = take(bed, "transporter.0", SL_MSG_LEND);
        answer(bed, "transporter.0", &lend, (struct sl_msg){.code = refusals[_i]});

        struct sl_msg reply = commit(bed, send, 2);

        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(reply.body.store_reply.fenced); /* nothing was read */
        ck_assert_uint_eq(metric(bed, "pushes_direct_refused"), 1);
        ck_assert_uint_eq(metric(bed, "handovers_fallen_back"), 1);
        (void)side_begin(/* its ticket, or its decode: the next one has others */
                         bed, SL_MSG_STORE,
                         (struct side){
                             .op_id = SEND + 2, .id = ID + 1, .blocks = 2, .ticket = &ticket},
                         false);
        ck_assert_uint_eq(answer_copy(bed, 0, UINT64_MAX), 2);
        ck_assert_uint_eq(answer_copy(bed, 1, UINT64_MAX), 2);
        (void)take(bed, "transporter.0", SL_MSG_LEND);
        bed_end(bed);
    }
END_TEST

START_TEST(a_loan_that_fails_goes_on_through_storage)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_item_ticket ticket = ticket_of("b1", 2);
        uint64_t send = lend_begin(bed, &ticket, true);
        struct sl_msg lend = take(bed, "transporter.0", SL_MSG_LEND);
        answer(bed, "transporter.0", &lend, (struct sl_msg){.code = SL_ERR_PEER_DIED});

        struct sl_msg reply = commit(bed, send, 2);

        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(reply.body.store_reply.fenced); /* by the answer, no read is in progress */
        ck_assert(!sent(bed, "transporter.0", SL_MSG_FENCE));
        ck_assert_uint_eq(metric(bed, "handovers_fallen_back"), 1);
        ck_assert_int_eq(given_back(bed, ID), SL_OK);
        ck_assert(hold_ended(bed));
        bed_end(bed);
    }
END_TEST

/* Its LEND may have made a new loan at its successor. */
START_TEST(a_loan_that_a_dead_transporter_ended_is_over_when_its_successor_is_fenced)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_item_ticket ticket = ticket_of("b1", 2);
        struct sl_msg reply;
        uint64_t send = lend_begin(bed, &ticket, true);
        struct sl_msg lend = take(bed, "transporter.0", SL_MSG_LEND);
        fake_advance(&bed->fake, SL_NS_PER_S);
        fake_process_end(&bed->fake, transporter_proc);
        answer(bed, "transporter.0", &lend,
               (struct sl_msg){.code = _i == 0 ? SL_OK : SL_ERR_PEER_DIED});
        ck_assert(!answered(bed, send, &reply));
        ck_assert(!sent(bed, "registrar", SL_MSG_RESERVE));

        transporter_fenced(bed, SEND);

        ck_assert_int_eq((_i == 0 ? reply_to(bed, send) : commit(bed, send, 2)).code, SL_OK);
        ck_assert_uint_eq(metric(bed, "handovers_fallen_back"), (uint64_t)_i);
        bed_end(bed);
    }
END_TEST

START_TEST(a_rank_that_has_not_looked_at_its_part_fails_the_loan)
    {
        struct bed *bed = direct_bed(strict);
        struct sl_item_ticket ticket = ticket_of("b1", 2);
        uint64_t send = side_begin(
            bed, SL_MSG_STORE,
            (struct side){.op_id = SEND, .id = ID, .blocks = 2, .ticket = &ticket}, true);
        (void)answer_copy(bed, 0, 1);
        (void)answer_copy(bed, 1, UINT64_MAX);
        struct sl_msg reply = reply_to(bed, send);
        ck_assert_int_ne(reply.code, SL_OK);
        ck_assert(reply.body.store_reply.fenced);
        ck_assert(!sent(bed, "transporter.0", SL_MSG_LEND));
        ck_assert(!sent(bed, "registrar", SL_MSG_ABORT));
        bed_end(bed);
    }
END_TEST

/* ---- both at one node ---- */

static void store_cancel(struct bed *bed)
{
    struct sl_msg cancel = {.type = SL_MSG_CANCEL};
    cancel.body.cancel.target_op = SEND;
    fake_give(&bed->fake, "client.1.0", &cancel);
}

/* Ways in which prefill's op ends: by the transporter's answer, by its deadline, or because its
 * client cancels it. */
enum how { HOW_FAILED, HOW_LATE, HOW_CANCELLED, HOWS };
static void store_ends(struct bed *bed, enum how how, const struct sl_msg *lend)
{
    if (how == HOW_FAILED) {
        answer(bed, "transporter.0", lend, (struct sl_msg){.code = SL_ERR_NOT_FOUND});
        fake_advance(&bed->fake, 0);
    } else if (how == HOW_LATE) {
        fake_advance(&bed->fake, 2 * SL_NS_PER_S);
    } else {
        store_cancel(bed);
    }
}

START_TEST(what_decode_has_all_of_is_handed_over_however_prefill_ends)
    {
        struct bed *bed = direct_bed(_i < HOWS ? strict : NULL);
        struct sl_item_ticket ticket = ticket_of("b1", 2);
        uint64_t recv = direct_begin(bed);
        uint64_t send = lend_begin(bed, &ticket, false);
        struct sl_msg lend = take(bed, "transporter.0", SL_MSG_LEND);
        ck_assert_int_eq(landed(bed, 2), SL_OK);
        ck_assert_int_eq(reply_to(bed, recv).code, SL_OK);

        store_ends(bed, (enum how)(_i % HOWS), &lend);

        struct sl_msg reply = reply_to(bed, send);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.store_reply.receipt.count, 1);
        ck_assert(!sent(bed, "registrar", SL_MSG_RESERVE));
        ck_assert_uint_eq(metric(bed, "handovers_pushed"), 1);
        ck_assert_uint_eq(metric(bed, "handovers_fallen_back"), 0);
        if (!reply.body.store_reply.fenced) {
            transporter_fenced(bed, SEND);
        }
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        bed_end(bed);
    }
END_TEST

/* The transporter died after its last message: decode counts once the successor is fenced. */
START_TEST(a_prefill_that_ends_takes_nothing_from_a_decode_that_has_all)
    {
        struct bed *bed = direct_bed(strict);
        struct sl_item_ticket ticket = ticket_of("b1", 2);
        struct sl_msg reply;
        uint64_t recv = decode_begin(bed, 60 * SL_NS_PER_S, true);
        bring_accepted(bed);
        uint64_t send = lend_begin(bed, &ticket, false);
        struct sl_msg lend = take(bed, "transporter.0", SL_MSG_LEND);
        fake_advance(&bed->fake, SL_NS_PER_S);
        fake_process_end(&bed->fake, transporter_proc);
        ck_assert_int_eq(landed(bed, 2), SL_OK);
        ck_assert(!answered(bed, recv, &reply));

        store_ends(bed, (enum how)_i, &lend);

        ck_assert_int_eq(reply_to(bed, send).code, SL_OK);
        transporter_fenced(bed, RECV);
        ck_assert_int_eq(reply_to(bed, recv).code, SL_OK);
        bed_end(bed);
    }
END_TEST

START_TEST(a_decode_that_has_all_and_ends_late_fails_prefill_by_its_code)
    {
        struct bed *bed = direct_bed(strict);
        struct sl_item_ticket ticket = ticket_of("b1", 2);
        uint64_t recv = decode_begin(bed, 1500 * SL_NS_PER_MS, true);
        bring_accepted(bed);
        uint64_t send = lend_begin(bed, &ticket, false);
        fake_advance(&bed->fake, SL_NS_PER_S);
        fake_process_end(&bed->fake, transporter_proc);
        ck_assert_int_eq(landed(bed, 2), SL_OK);
        fake_advance(&bed->fake, 500 * SL_NS_PER_MS);
        ck_assert_int_eq(reply_to(bed, recv).code, SL_ERR_HANDOVER);
        ck_assert_int_eq(reply_to(bed, send).code, SL_ERR_TIMEOUT);
        bed_end(bed);
    }
END_TEST

/* Prefill had no ticket, and commits in the turn in which the transporter refuses decode. */
START_TEST(committed_blocks_are_loaded_even_without_fallback_to_storage)
    {
        struct bed *bed = direct_bed(strict);
        uint64_t recv = decode_begin(bed, 0, true);
        (void)bring_asked(bed);
        uint64_t send = side_begin(bed, SL_MSG_STORE,
                                   (struct side){.op_id = SEND, .id = ID, .blocks = 2}, false);
        ck_assert_int_eq(commit(bed, send, 2).code, SL_OK);
        bring_answer(bed, SL_ERR_UNSUPPORTED);
        load_copied(bed);
        ck_assert_int_eq(reply_to(bed, recv).code, SL_OK);
        bed_end(bed);
    }
END_TEST

/* ---- many parts ---- */

#define MANY       256u           /* blocks */
#define LOOK_FIRST (128u / RANKS) /* of a rank */
#define LOOK_REST  (MANY - LOOK_FIRST)

static uint64_t many_begin(struct bed *bed, const struct sl_item_ticket *ticket, uint64_t budget_ns)
{
    uint64_t send = side_send(
        bed, SL_MSG_STORE,
        (struct side){
            .op_id = SEND, .id = ID, .blocks = MANY, .ticket = ticket, .budget_ns = budget_ns});
    answer_engine(bed);
    keys_known(bed, MANY);
    return send;
}

static void looked(struct bed *bed, uint32_t count)
{
    ck_assert_uint_eq(answer_copy(bed, 0, UINT64_MAX), count);
    ck_assert_uint_eq(answer_copy(bed, 1, UINT64_MAX), count);
}

/* Takes a LEND of parts [from, end). */
static struct sl_msg lend_taken(struct bed *bed, uint64_t number, uint32_t from, uint32_t end)
{
    struct sl_msg lend = take(bed, "transporter.0", SL_MSG_LEND);
    const struct sl_body_lend *body = &lend.body.lend;
    ck_assert_uint_eq(body->number, number);
    ck_assert_uint_eq(body->pieces.count, end - from);
    ck_assert_uint_eq(body->slots.count, end - from);
    ck_assert_uint_eq(body->pieces.at[0].part, from);
    ck_assert_uint_eq(body->pieces.at[1].digest_low, 2);
    ck_assert_uint_eq(body->pieces.at[end - from - 1].part, end - 1);
    ck_assert(body->last == (end == MANY * RANKS));
    return lend;
}

static void lend_answer(struct bed *bed, const struct sl_msg *lend, sl_err code)
{
    answer(bed, "transporter.0", lend, (struct sl_msg){.code = code});
}

START_TEST(blocks_are_lent_while_the_next_ones_are_looked_at)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_item_ticket ticket = ticket_of("b255", MANY);
        struct sl_msg lend, reply;
        uint64_t send = many_begin(bed, &ticket, 0);
        looked(bed, LOOK_FIRST);
        lend = lend_taken(bed, 1, 0, 2 * LOOK_FIRST);
        if (_i == 0) { /* recorded while the rest is looked at, or later */
            lend_answer(bed, &lend, SL_OK);
        }
        looked(bed, LOOK_REST);
        if (_i == 1) {
            ck_assert(!sent(bed, "transporter.0", SL_MSG_LEND));
            lend_answer(bed, &lend, SL_OK);
        }
        lend = lend_taken(bed, 2, 2 * LOOK_FIRST, 2 * MANY);
        ck_assert(!answered(bed, send, &reply));
        lend_answer(bed, &lend, SL_OK);
        reply = reply_to(bed, send);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(reply.body.store_reply.fenced);
        ck_assert_uint_eq(metric(bed, "handovers_pushed"), 1);
        bed_end(bed);
    }
END_TEST

START_TEST(a_loan_that_fails_while_blocks_are_looked_at_ends_behind_the_look)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_item_ticket ticket = ticket_of("b255", MANY);
        (void)many_begin(bed, &ticket, 0);
        looked(bed, LOOK_FIRST);
        struct sl_msg lend = lend_taken(bed, 1, 0, 2 * LOOK_FIRST);
        lend_answer(bed, &lend, SL_ERR_UNSUPPORTED);
        ck_assert(!sent(bed, "registrar", SL_MSG_RESERVE));
        looked(bed, LOOK_REST);
        ck_assert(!sent(bed, "transporter.0", SL_MSG_LEND));
        struct sl_msg reserve = take(bed, "registrar", SL_MSG_RESERVE);
        ck_assert_uint_gt(reserve.body.reserve.groups.count, 0); /* through storage */
        ck_assert_uint_eq(metric(bed, "pushes_direct_refused"), 1);
        bed_end(bed);
    }
END_TEST

/* Parts that are lent already are taken back before their blocks are copied. */
START_TEST(a_look_that_fails_ends_the_loan_first)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_item_ticket ticket = ticket_of("b255", MANY);
        (void)many_begin(bed, &ticket, 0);
        looked(bed, LOOK_FIRST);
        struct sl_msg lend = lend_taken(bed, 1, 0, 2 * LOOK_FIRST);
        if (_i == 0) {
            lend_answer(bed, &lend, SL_OK);
        }
        (void)answer_copy(bed, 0, 1);
        (void)answer_copy(bed, 1, UINT64_MAX);
        ck_assert(!sent(bed, "registrar", SL_MSG_RESERVE));
        transporter_fenced(bed, SEND);
        (void)take(bed, "registrar", SL_MSG_RESERVE);
        bed_end(bed);
    }
END_TEST

/* While a restarted swapper is being fenced, the transporter has its own time to answer. */
START_TEST(what_is_lent_is_fenced_at_once_while_a_swapper_is)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_item_ticket ticket = ticket_of("b255", MANY);
        uint64_t send = many_begin(bed, &ticket, 60 * SL_NS_PER_S);
        looked(bed, LOOK_FIRST);
        (void)lend_taken(bed, 1, 0, 2 * LOOK_FIRST);
        fake_advance(&bed->fake, 200 * SL_NS_PER_MS);
        fake_process_end(&bed->fake, swapper_procs[0]);
        looked(bed, LOOK_REST); /* its answer came late: it is fenced before it counts */
        (void)take(bed, "swapper.0", SL_MSG_FENCE);
        fake_advance(&bed->fake, 990 * SL_NS_PER_MS);
        struct sl_msg cancel = {.type = SL_MSG_CANCEL};
        cancel.body.cancel.target_op = SEND;

        fake_give(&bed->fake, "client.1.0", &cancel);

        ck_assert_int_eq(reply_to(bed, send).code, SL_ERR_CANCELLED);
        (void)transporter_fence(bed, SEND);
        fake_advance(&bed->fake, 40 * SL_NS_PER_MS);
        ck_assert_uint_eq(metric(bed, "swappers_killed"), 0);
        bed_end(bed);
    }
END_TEST

START_TEST(what_is_lent_is_fenced_at_the_end_of_the_op)
    {
        struct bed *bed = direct_bed(strict);
        struct sl_item_ticket ticket = ticket_of("b255", MANY);
        struct sl_msg said;
        uint64_t send = many_begin(bed, &ticket, 300 * SL_NS_PER_MS);
        looked(bed, LOOK_FIRST);
        struct sl_msg lend = lend_taken(bed, 1, 0, 2 * LOOK_FIRST);
        if (_i == 0) {
            lend_answer(bed, &lend, SL_OK);
            looked(bed, LOOK_REST);
            lend = lend_taken(bed, 2, 2 * LOOK_FIRST, 2 * MANY);
        }
        fake_advance(&bed->fake, 300 * SL_NS_PER_MS);
        struct sl_msg reply = reply_to(bed, send);
        ck_assert_int_eq(reply.code, SL_ERR_TIMEOUT);
        ck_assert(!reply.body.store_reply.fenced);
        struct sl_msg fence = transporter_fence(bed, SEND);
        lend_answer(bed, &lend, SL_OK); /* late: ignored */
        uint64_t ask = fenced_ask(bed, SEND);
        ck_assert(!answered(bed, ask, &said));
        answer(bed, "transporter.0", &fence, (struct sl_msg){.code = SL_OK});
        if (_i == 1) { /* two ranks were looking */
            answer_fence(bed, 0, SEND);
            answer_fence(bed, 1, SEND);
        }
        ck_assert(answered(bed, ask, &said));
        ck_assert(said.body.op_fenced_reply.fenced);
        bed_end(bed);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("coordinator_straight");
    TCase *decode = tcase_create("decode"), *prefill = tcase_create("prefill");
    tcase_add_test(decode, decode_has_its_pools_read_into_and_copies_nothing);
    tcase_add_loop_test(decode, a_load_that_the_transporter_refuses_goes_through_storage, 0,
                        SL_COUNT(refusals));
    tcase_add_loop_test(decode, a_bring_says_who_may_lend_when_that_is_known, 0, 4);
    tcase_add_loop_test(decode, what_cannot_go_directly_is_not_begun, 0, 2);
    tcase_add_loop_test(decode, an_engine_whose_pools_were_refused_is_tried_again_after_a_while, 0,
                        SL_COUNT(refused));
    tcase_add_test(decode, pools_that_are_not_read_into_are_lent);
    tcase_add_test(decode, what_fails_at_decode_is_loaded_when_prefill_has_stored_it);
    tcase_add_loop_test(decode, what_ends_at_prefill_is_a_hand_over_that_failed, 0, 2);
    tcase_add_test(decode, stored_blocks_are_loaded_when_no_more_arrive);
    tcase_add_test(decode, blocks_stored_before_decode_arrives_are_loaded_at_once);
    tcase_add_test(decode, what_lands_before_the_fence_is_not_loaded_again);
    tcase_add_loop_test(decode, decodes_blocks_are_free_when_the_transporter_says_so, 0, 2);
    tcase_add_test(decode, a_bring_that_nobody_answered_is_fenced);
    tcase_add_test(decode, a_dead_transporters_report_counts_after_its_successor_is_fenced);
    tcase_add_test(decode, a_transporter_that_acknowledges_no_fence_is_killed);
    suite_add_tcase(suite, decode);
    tcase_add_test(prefill, prefill_looks_at_its_blocks_and_lends_them_where_they_lie);
    tcase_add_loop_test(prefill, a_loan_that_is_refused_goes_through_storage, 0,
                        SL_COUNT(refusals));
    tcase_add_test(prefill, a_loan_that_fails_goes_on_through_storage);
    tcase_add_loop_test(
        prefill, a_loan_that_a_dead_transporter_ended_is_over_when_its_successor_is_fenced, 0, 2);
    tcase_add_test(prefill, a_rank_that_has_not_looked_at_its_part_fails_the_loan);
    tcase_add_loop_test(prefill, blocks_are_lent_while_the_next_ones_are_looked_at, 0, 2);
    tcase_add_test(prefill, a_loan_that_fails_while_blocks_are_looked_at_ends_behind_the_look);
    tcase_add_loop_test(prefill, a_look_that_fails_ends_the_loan_first, 0, 2);
    tcase_add_test(prefill, what_is_lent_is_fenced_at_once_while_a_swapper_is);
    tcase_add_loop_test(prefill, what_is_lent_is_fenced_at_the_end_of_the_op, 0, 2);
    tcase_add_loop_test(prefill, what_decode_has_all_of_is_handed_over_however_prefill_ends, 0,
                        2 * HOWS);
    tcase_add_loop_test(prefill, a_prefill_that_ends_takes_nothing_from_a_decode_that_has_all, 0,
                        HOWS);
    tcase_add_test(prefill, a_decode_that_has_all_and_ends_late_fails_prefill_by_its_code);
    tcase_add_test(prefill, committed_blocks_are_loaded_even_without_fallback_to_storage);
    suite_add_tcase(suite, prefill);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
