/* tests/unit/actors/coordinator/coordinator_handover_test.c - hand-overs from prefill to decode
 * through storage, on one node and on two. */
#include "tests/unit/actors/coordinator/coordinator_handover_support.h"

START_TEST(prefill_holds_all_blocks_and_gets_a_receipt)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t seq =
            side_begin(bed, SL_MSG_STORE,
                       (struct side){.op_id = SEND, .id = ID, .blocks = 3, .tokens = 10}, true);
        struct sl_msg reserve = take(bed, "registrar", SL_MSG_RESERVE);
        struct sl_item_grant grants[3 * RANKS];
        ck_assert_uint_eq(reserve.body.reserve.hold_id, ID);
        ck_assert_uint_gt(reserve.body.reserve.hold_ns, 30 * SL_NS_PER_S);
        ck_assert_uint_eq(reserve.body.reserve.groups.at[1].transient_ns, 0);
        ck_assert_uint_eq(reserve.body.reserve.groups.at[2].transient_ns, 10 * SL_NS_PER_S);
        for (uint64_t i = 0; i < SL_COUNT(grants); i++) {
            grants[i] = (struct sl_item_grant){.code = SL_ERR_EXISTS};
        }
        answer(bed, "registrar", &reserve,
               (struct sl_msg){.body.reserve_reply.items = {grants, SL_COUNT(grants)}});

        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.store_reply.receipt.count, 1);
        const struct sl_item_receipt *receipt = &reply.body.store_reply.receipt.at[0];
        struct sl_item_receipt want = receipt_of("b2", 3);
        ck_assert_uint_eq(receipt->handover_id, ID);
        ck_assert_uint_eq(receipt->block_end, 3);
        ck_assert_uint_eq(receipt->keys_low, want.keys_low);
        ck_assert_uint_eq(receipt->keys_high, want.keys_high);
        bed_end(bed);
    }
END_TEST

START_TEST(on_one_node_decode_goes_on_when_prefill_has_committed)
    {
        struct bed *bed = bed_make(NULL);
        struct sl_msg reply;
        uint64_t recv =
            side_begin(bed, SL_MSG_LOAD,
                       (struct side){.op_id = RECV, .id = ID, .blocks = 2, .tokens = 7}, true);
        uint64_t send =
            side_begin(bed, SL_MSG_STORE,
                       (struct side){.op_id = SEND, .id = ID, .blocks = 2, .tokens = 7}, false);
        ck_assert(!sent(bed, "swapper.1", SL_MSG_COPY)); /* nothing before the commit */
        ck_assert_int_eq(commit(bed, send, 2).code, SL_OK);
        fake_advance(&bed->fake, 0);
        load_copied(bed);

        reply = reply_to(bed, recv);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 2);
        ck_assert(hold_ended(bed));
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        ck_assert_uint_eq(metric(bed, "handovers_consumed"), 1);
        struct sl_item_receipt late = receipt_of("b1", 2);
        ck_assert_int_eq(arrived(bed, &late, 1, 0), SL_OK);
        bed_end(bed);
    }
END_TEST

START_TEST(on_another_node_decode_goes_on_with_the_receipt)
    {
        struct bed *bed = bed_make(NULL);
        struct sl_item_receipt receipts[2] = {receipt_of("b1", 2), receipt_of("b1", 2)};
        receipts[0].handover_id = ID + 1; /* its request is gone */
        index_put(bed, 0, true, PART_BYTES);
        index_put(bed, 1, true, PART_BYTES);
        uint64_t recv =
            side_begin(bed, SL_MSG_LOAD,
                       (struct side){.op_id = RECV, .id = ID, .blocks = 2, .tokens = 7}, true);
        fake_advance(&bed->fake, 100 * SL_NS_PER_MS);
        ck_assert(!sent(bed, "swapper.0", SL_MSG_COPY));

        ck_assert_int_eq(arrived(bed, receipts, 2, 0), SL_ERR_NOT_FOUND);
        load_copied(bed);

        ck_assert_int_eq(reply_to(bed, recv).code, SL_OK);
        ck_assert_uint_eq(metric(bed, "handovers_gone"), 1);
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        ck_assert(!hold_ended(bed)); /* the hold is at prefill's node */
        bed_end(bed);
    }
END_TEST

START_TEST(a_load_that_comes_again_brings_its_receipt)
    {
        struct bed *bed = bed_make(NULL);
        struct sl_item_receipt receipt = receipt_of("b0", 1);
        index_put(bed, 0, true, PART_BYTES);
        (void)side_begin(bed, SL_MSG_LOAD, (struct side){.op_id = RECV, .id = ID, .blocks = 1},
                         true);

        uint64_t recv =
            side_send(bed, SL_MSG_LOAD,
                      (struct side){.op_id = RECV, .id = ID, .blocks = 1, .receipt = &receipt});
        fake_advance(&bed->fake, 0);
        load_copied(bed);

        ck_assert_int_eq(reply_to(bed, recv).code, SL_OK);
        bed_end(bed);
    }
END_TEST

/* ---- what is held elsewhere ---- */

START_TEST(decode_tells_prefills_node_when_all_is_loaded)
    {
        struct bed *bed = bed_make(named);
        struct sl_item_receipt receipt = receipt_of_node("p", "b0", 1);
        index_put(bed, 0, true, PART_BYTES);
        uint64_t recv = side_begin(
            bed, SL_MSG_LOAD,
            (struct side){.op_id = RECV, .id = ID, .blocks = 1, .receipt = &receipt}, true);
        ck_assert(!release_sent(bed, &receipt));
        load_copied(bed);

        ck_assert_int_eq(reply_to(bed, recv).code, SL_OK);
        ck_assert(release_sent(bed, &receipt));
        ck_assert_int_eq(arrived(bed, &receipt, 1, 0), SL_OK);
        ck_assert(!release_sent(bed, &receipt)); /* once */
        bed_end(bed);
    }
END_TEST

START_TEST(decode_that_failed_tells_prefills_node)
    {
        struct bed *bed = bed_make(named);
        struct sl_item_receipt receipt = receipt_of_node("p", "b1", 2);
        index_put(bed, 0, true, PART_BYTES);
        uint64_t recv = side_begin(
            bed, SL_MSG_LOAD,
            (struct side){.op_id = RECV, .id = ID, .blocks = 2, .receipt = &receipt}, true);
        load_copied(bed);

        ck_assert_int_eq(reply_to(bed, recv).code, SL_ERR_HANDOVER);
        ck_assert(release_sent(bed, &receipt));
        bed_end(bed);
    }
END_TEST

START_TEST(a_receipt_that_comes_after_the_failure_is_passed_on)
    {
        struct bed *bed = bed_make(named);
        struct sl_item_receipt receipt = receipt_of_node("p", "b1", 2);
        uint64_t recv =
            side_begin(bed, SL_MSG_LOAD, (struct side){.op_id = RECV, .id = ID, .blocks = 2}, true);
        fake_advance(&bed->fake, 2 * SL_NS_PER_S);
        ck_assert_int_eq(reply_to(bed, recv).code, SL_ERR_HANDOVER);
        ck_assert(!release_sent(bed, &receipt));

        ck_assert_int_eq(arrived(bed, &receipt, 1, 0), SL_ERR_NOT_FOUND);

        ck_assert(release_sent(bed, &receipt));
        receipt.handover_id = ID + 1; /* unknown here: its load may still arrive */
        ck_assert_int_eq(arrived(bed, &receipt, 1, 0), SL_ERR_NOT_FOUND);
        ck_assert(!release_sent(bed, &receipt));
        bed_end(bed);
    }
END_TEST

static const char *const not_elsewhere[] = {"", "d"};

START_TEST(nobody_else_is_told_of_what_is_held_here)
    {
        struct bed *bed = bed_make(named);
        struct sl_item_receipt receipt = receipt_of_node(not_elsewhere[_i], "b0", 1);
        index_put(bed, 0, true, PART_BYTES);
        uint64_t recv = side_begin(
            bed, SL_MSG_LOAD,
            (struct side){.op_id = RECV, .id = ID, .blocks = 1, .receipt = &receipt}, true);
        load_copied(bed);

        ck_assert_int_eq(reply_to(bed, recv).code, SL_OK);
        ck_assert(!release_sent(bed, &receipt));
        bed_end(bed);
    }
END_TEST

START_TEST(a_peers_word_ends_the_hold_of_its_receipt_alone)
    {
        struct bed *bed = bed_make(named);
        uint64_t send = side_begin(bed, SL_MSG_STORE,
                                   (struct side){.op_id = SEND, .id = ID, .blocks = 2}, true);
        struct sl_item_receipt right = receipt_of_node("d", "b1", 2), wrong = right;
        ck_assert_int_eq(peer_releases(bed, &right), SL_ERR_BUSY); /* guessed: not used yet */
        struct sl_msg reply = commit(bed, send, 2);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_str_eq(reply.body.store_reply.receipt.at[0].node.at, "d");

        wrong.keys_high ^= 1;
        ck_assert_int_eq(peer_releases(bed, &wrong), SL_ERR_PERMISSION);
        wrong = right;
        wrong.block_end = 1;
        ck_assert_int_eq(peer_releases(bed, &wrong), SL_ERR_PERMISSION);
        wrong = right;
        wrong.node = sl_text_of("e");
        ck_assert_int_eq(peer_releases(bed, &wrong), SL_ERR_PERMISSION);
        ck_assert(!sent(bed, "registrar", SL_MSG_HOLD));
        ck_assert_uint_eq(metric(bed, "releases_refused"), 4);
        ck_assert_int_eq(peer_releases(bed, &right), SL_OK);
        ck_assert_int_eq(peer_releases(bed, &right), SL_OK); /* repeated */

        ck_assert(hold_ended(bed));
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        ck_assert_int_eq(given_back(bed, ID), SL_ERR_NOT_FOUND);
        bed_end(bed);
    }
END_TEST

/* An earlier coordinator may have handed it over, so the registrar checks the keys. */
START_TEST(a_hand_over_of_an_earlier_coordinator_is_for_the_registrar_to_judge)
    {
        struct bed *bed = bed_make(named);
        struct sl_item_receipt receipt = receipt_of_node("d", "b1", 2);

        ck_assert_int_eq(peer_releases(bed, &receipt), SL_ERR_NOT_FOUND);

        struct sl_msg end = take(bed, "registrar", SL_MSG_HOLD);
        ck_assert_uint_eq(end.body.hold.hold_id, ID);
        ck_assert_uint_eq(end.body.hold.keys_low, receipt.keys_low);
        ck_assert_uint_eq(end.body.hold.keys_high, receipt.keys_high);

        receipt.keys_low = receipt.keys_high =
            0; /* only this node itself may send that to the registrar */
        ck_assert_int_eq(peer_releases(bed, &receipt), SL_ERR_INVALID);
        ck_assert(!sent(bed, "registrar", SL_MSG_HOLD));
        bed_end(bed);
    }
END_TEST

/* A prefix would be worse than nothing: decode would continue from it. */
START_TEST(less_than_all_is_a_502)
    {
        struct bed *bed = bed_make(NULL);
        struct sl_item_receipt receipt = receipt_of("b2", 3);
        index_put(bed, 0, true, PART_BYTES);
        index_put(bed, 1, true, PART_BYTES);
        uint64_t recv = side_begin(
            bed, SL_MSG_LOAD,
            (struct side){.op_id = RECV, .id = ID, .blocks = 3, .receipt = &receipt}, true);
        load_copied(bed);

        struct sl_msg reply = reply_to(bed, recv);
        ck_assert_int_eq(reply.code, SL_ERR_HANDOVER);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 0);
        ck_assert_uint_eq(reply.body.load_reply.from_memory, 0);
        ck_assert(reply.body.load_reply.fenced);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "block 2"));
        ck_assert_uint_eq(metric(bed, "handovers_aborted"), 1);
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        bed_end(bed);
    }
END_TEST

START_TEST(less_than_all_can_be_computed_when_configured)
    {
        const char *const settings[] = {"handover_recompute", "true", NULL};
        struct bed *bed = bed_make(settings);
        struct sl_item_receipt receipt = receipt_of("b2", 3);
        index_put(bed, 0, true, PART_BYTES);
        uint64_t recv = side_begin(
            bed, SL_MSG_LOAD,
            (struct side){.op_id = RECV, .id = ID, .blocks = 3, .receipt = &receipt}, true);
        load_copied(bed);

        struct sl_msg reply = reply_to(bed, recv);
        ck_assert_int_eq(reply.code, SL_ERR_INCOMPLETE);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 1);
        ck_assert_uint_eq(metric(bed, "handovers_recomputed"), 1);
        bed_end(bed);
    }
END_TEST

START_TEST(other_keys_than_prefills_are_a_502)
    {
        struct bed *bed = bed_make(NULL);
        struct sl_item_receipt receipts[2] = {receipt_of("other", 2), receipt_of("b1", 3)};
        index_put(bed, 0, true, PART_BYTES);
        index_put(bed, 1, true, PART_BYTES);
        uint64_t recv =
            side_begin(bed, SL_MSG_LOAD, (struct side){.op_id = RECV, .id = ID, .blocks = 2}, true);

        ck_assert_int_eq(arrived(bed, &receipts[_i], 1, 0), SL_OK);

        struct sl_msg reply = reply_to(bed, recv);
        ck_assert_int_eq(reply.code, SL_ERR_HANDOVER);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "keys"));
        ck_assert(!sent(bed, "swapper.0", SL_MSG_COPY));
        bed_end(bed);
    }
END_TEST

START_TEST(decode_whose_prefill_never_comes_ends_by_its_deadline)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t recv =
            side_begin(bed, SL_MSG_LOAD, (struct side){.op_id = RECV, .id = ID, .blocks = 2}, true);

        fake_advance(&bed->fake, 2 * SL_NS_PER_S);

        struct sl_msg reply = reply_to(bed, recv);
        ck_assert_int_eq(reply.code, SL_ERR_HANDOVER);
        ck_assert(reply.body.load_reply.fenced);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "prefill"));
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        bed_end(bed);
    }
END_TEST

START_TEST(failure_of_prefill_is_told_to_decode_at_once)
    {
        struct bed *bed = bed_make(NULL);
        struct sl_msg reply;
        uint64_t send = side_begin(bed, SL_MSG_STORE,
                                   (struct side){.op_id = SEND, .id = ID, .blocks = 2}, true);
        uint64_t recv = side_begin(bed, SL_MSG_LOAD,
                                   (struct side){.op_id = RECV, .id = ID, .blocks = 2}, false);
        struct sl_msg reserve = take(bed, "registrar", SL_MSG_RESERVE);
        (void)send;

        answer(bed, "registrar", &reserve, (struct sl_msg){.code = SL_ERR_NO_SPACE});
        fake_advance(&bed->fake, 0);

        ck_assert(answered(bed, recv, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_HANDOVER);
        ck_assert_int_eq(reply_to(bed, send).code, SL_ERR_INCOMPLETE);
        ck_assert(hold_ended(bed));
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        bed_end(bed);
    }
END_TEST

START_TEST(decode_that_gave_up_ends_prefills_side)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t recv =
            side_begin(bed, SL_MSG_LOAD, (struct side){.op_id = RECV, .id = ID, .blocks = 2}, true);
        uint64_t send = side_begin(bed, SL_MSG_STORE,
                                   (struct side){.op_id = SEND, .id = ID, .blocks = 2}, false);
        struct sl_msg cancel = {.type = SL_MSG_CANCEL}, reply;
        cancel.body.cancel.target_op = RECV;

        fake_give(&bed->fake, "client.1.0", &cancel);
        fake_advance(&bed->fake, 0);

        ck_assert_int_eq(reply_to(bed, recv).code, SL_ERR_CANCELLED);
        ck_assert(answered(bed, send, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_CANCELLED);
        ck_assert_uint_eq(reply.body.store_reply.receipt.count, 0);
        ck_assert(hold_ended(bed));
        bed_end(bed);
    }
END_TEST

START_TEST(a_failure_is_remembered_for_a_decode_that_comes_late)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t send = side_begin(bed, SL_MSG_STORE,
                                   (struct side){.op_id = SEND, .id = ID, .blocks = 1}, true);
        answer_reserve(bed, 0, SL_ERR_NO_SPACE);
        ck_assert_int_eq(reply_to(bed, send).code, SL_ERR_INCOMPLETE);
        ck_assert(hold_ended(bed));

        uint64_t recv =
            side_send(bed, SL_MSG_LOAD, (struct side){.op_id = RECV, .id = ID, .blocks = 1});

        ck_assert_int_eq(reply_to(bed, recv).code, SL_ERR_HANDOVER);
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        bed_end(bed);
    }
END_TEST

START_TEST(what_decode_never_fetches_is_given_back)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t send = side_begin(bed, SL_MSG_STORE,
                                   (struct side){.op_id = SEND, .id = ID, .blocks = 1}, true);
        ck_assert_int_eq(commit(bed, send, 1).code, SL_OK);
        ck_assert(!hold_ended(bed));

        if (_i == 0) {
            ck_assert_int_eq(given_back(bed, ID), SL_OK);
        } else {
            fake_advance(&bed->fake, 30 * SL_NS_PER_S);
        }

        ck_assert(hold_ended(bed));
        fake_advance(&bed->fake, 10 * SL_NS_PER_S);
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        ck_assert_int_eq(given_back(bed, ID), SL_ERR_NOT_FOUND);
        bed_end(bed);
    }
END_TEST

START_TEST(a_side_that_is_taken_is_refused)
    {
        struct bed *bed = bed_make(NULL);
        (void)side_begin(bed, SL_MSG_LOAD, (struct side){.op_id = RECV, .id = ID, .blocks = 1},
                         true);
        (void)side_begin(bed, SL_MSG_STORE, (struct side){.op_id = SEND, .id = ID, .blocks = 1},
                         false);

        uint64_t other =
            side_send(bed, SL_MSG_LOAD, (struct side){.op_id = 7, .id = ID, .blocks = 1});
        ck_assert_int_eq(reply_to(bed, other).code, SL_ERR_BUSY);
        other = side_send(bed, SL_MSG_STORE, (struct side){.op_id = 8, .id = ID, .blocks = 1});
        ck_assert_int_eq(reply_to(bed, other).code, SL_ERR_BUSY);
        struct sl_item_receipt early = receipt_of("b0", 1);
        ck_assert_int_eq(arrived(bed, &early, 1, 0), SL_ERR_BUSY);
        bed_end(bed);
    }
END_TEST

START_TEST(a_hand_over_is_of_the_whole_input)
    {
        struct bed *bed = bed_make(NULL);
        /* Ten tokens are two blocks and a half. */
        uint64_t seq =
            side_begin(bed, SL_MSG_STORE,
                       (struct side){.op_id = SEND, .id = ID, .blocks = 2, .tokens = 10}, true);
        ck_assert_int_eq(reply_to(bed, seq).code, SL_ERR_INVALID);

        seq = side_send(bed, SL_MSG_STORE,
                        (struct side){.op_id = 3, .id = ID + 1, .blocks = 3, .tokens = 10});
        keys_known(bed, 2); /* a format without keys for half a block */
        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_ERR_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "incomplete"));
        bed_end(bed);
    }
END_TEST

START_TEST(more_hand_overs_than_the_table_holds_are_refused)
    {
        const char *const settings[] = {"handovers_max", "1", NULL};
        struct bed *bed = bed_make(settings);
        (void)side_begin(bed, SL_MSG_LOAD, (struct side){.op_id = RECV, .id = ID, .blocks = 1},
                         true);

        uint64_t seq =
            side_send(bed, SL_MSG_LOAD, (struct side){.op_id = 3, .id = ID + 1, .blocks = 1});

        ck_assert_int_eq(reply_to(bed, seq).code, SL_ERR_LIMIT);
        bed_end(bed);
    }
END_TEST

/* ---- direct ---- */

static struct sl_msg ticket_ask(struct bed *bed)
{
    struct sl_msg ask = {.type = SL_MSG_TICKET}, reply;
    ask.body.ticket.handover_id = ID;
    fake_give(&bed->fake, "client.1.0", &ask);
    ck_assert(answered(bed, ask.seq, &reply));
    return reply;
}

START_TEST(a_ticket_is_returned_once_the_transporter_accepts_its_blocks)
    {
        struct bed *bed = direct_bed(NULL);
        (void)side_begin(bed, SL_MSG_LOAD,
                         (struct side){.op_id = RECV, .id = ID, .blocks = 2, .direct = true}, true);
        ck_assert_int_eq(ticket_ask(bed).code, SL_ERR_BUSY);

        bring_accepted(bed);

        struct sl_msg reply = ticket_ask(bed);
        ck_assert_int_eq(reply.code, SL_OK);
        const struct sl_item_ticket *ticket = &reply.body.ticket_reply.ticket.at[0];
        ck_assert_uint_eq(ticket->block_end, 2);
        ck_assert_uint_eq(ticket->bytes.length, ticket_length);
        ck_assert_mem_eq(ticket->bytes.at, ticket_bytes, ticket_length);
        bring_answer(bed, SL_ERR_PEER_DIED);
        ck_assert_int_eq(ticket_ask(bed).code, SL_ERR_UNSUPPORTED);
        bed_end(bed);
    }
END_TEST

START_TEST(decode_has_its_blocks_when_all_has_landed)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_msg reply;
        uint64_t recv = direct_begin(bed);

        ck_assert_int_eq(landed(bed, 1), SL_OK);
        ck_assert(!answered(bed, recv, &reply));
        ck_assert_int_eq(landed(bed, 2), SL_OK);

        reply = reply_to(bed, recv);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(reply.body.load_reply.fenced);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 2);
        ck_assert_uint_eq(reply.body.load_reply.from_remote, 2);
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        ck_assert_int_eq(landed(bed, 2), SL_ERR_NOT_FOUND);
        bring_answer(bed, SL_OK); /* no op waits for it any more */
        bed_end(bed);
    }
END_TEST

/* The ticket of a dead coordinator is not that of its successor. */
START_TEST(what_landed_under_another_ticket_counts_nothing)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_msg reply;
        uint64_t recv = direct_begin(bed);
        ticket_number ^= UINT64_C(1) << 40;

        ck_assert_int_eq(landed(bed, 2), SL_ERR_NOT_FOUND);

        ck_assert(!answered(bed, recv, &reply));
        bed_end(bed);
    }
END_TEST

START_TEST(a_hand_over_is_active_until_its_blocks_are_free)
    {
        struct bed *bed = direct_bed(NULL);
        uint64_t recv = direct_begin(bed);

        fake_advance(&bed->fake, 2 * SL_NS_PER_S);

        ck_assert_int_eq(reply_to(bed, recv).code, SL_ERR_HANDOVER);
        ck_assert_int_eq(landed(bed, 2), SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(metric(bed, "handovers_active"), 1);
        transporter_fenced(bed, RECV);
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        bed_end(bed);
    }
END_TEST

START_TEST(a_loan_that_fails_is_an_error_when_configured)
    {
        const char *const settings[] = {"handover_fallback", "false", NULL};
        struct bed *bed = direct_bed(settings);
        struct sl_item_ticket ticket = ticket_of("b1", 2);
        uint64_t send = lend_begin(bed, &ticket, true);
        struct sl_msg lend = take(bed, "transporter.0", SL_MSG_LEND);

        answer(bed, "transporter.0", &lend, (struct sl_msg){.code = SL_ERR_UNREACHABLE});

        struct sl_msg reply = reply_to(bed, send);
        ck_assert_int_eq(reply.code, SL_ERR_UNREACHABLE);
        ck_assert_uint_eq(reply.body.store_reply.receipt.count, 0);
        bed_end(bed);
    }
END_TEST

START_TEST(a_ticket_of_another_input_is_refused)
    {
        struct bed *bed = bed_make(NULL);
        struct sl_item_ticket tickets[] = {ticket_of("other", 2), ticket_of("b1", 3),
                                           ticket_of("b1", 2)};
        tickets[2].first_block = 2;

        uint64_t send =
            side_send(bed, SL_MSG_STORE,
                      (struct side){.op_id = SEND, .id = ID, .blocks = 2, .ticket = &tickets[_i]});
        if (_i < 2) {
            answer_engine(bed);
            keys_known(bed, 2);
        }

        ck_assert_int_eq(reply_to(bed, send).code, SL_ERR_INVALID);
        ck_assert(!sent(bed, "registrar", SL_MSG_RESERVE));
        bed_end(bed);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("coordinator_handover");
    TCase *sides = tcase_create("sides");
    tcase_add_test(sides, prefill_holds_all_blocks_and_gets_a_receipt);
    tcase_add_test(sides, on_one_node_decode_goes_on_when_prefill_has_committed);
    tcase_add_test(sides, on_another_node_decode_goes_on_with_the_receipt);
    tcase_add_test(sides, a_load_that_comes_again_brings_its_receipt);
    tcase_add_test(sides, a_side_that_is_taken_is_refused);
    tcase_add_test(sides, a_hand_over_is_of_the_whole_input);
    tcase_add_test(sides, more_hand_overs_than_the_table_holds_are_refused);
    suite_add_tcase(suite, sides);
    TCase *ends = tcase_create("ends");
    tcase_add_test(ends, decode_tells_prefills_node_when_all_is_loaded);
    tcase_add_test(ends, decode_that_failed_tells_prefills_node);
    tcase_add_test(ends, a_receipt_that_comes_after_the_failure_is_passed_on);
    tcase_add_test(ends, a_peers_word_ends_the_hold_of_its_receipt_alone);
    tcase_add_test(ends, a_hand_over_of_an_earlier_coordinator_is_for_the_registrar_to_judge);
    tcase_add_loop_test(ends, nobody_else_is_told_of_what_is_held_here, 0, SL_COUNT(not_elsewhere));
    tcase_add_test(ends, less_than_all_is_a_502);
    tcase_add_test(ends, less_than_all_can_be_computed_when_configured);
    tcase_add_loop_test(ends, other_keys_than_prefills_are_a_502, 0, 2);
    tcase_add_test(ends, decode_whose_prefill_never_comes_ends_by_its_deadline);
    tcase_add_test(ends, failure_of_prefill_is_told_to_decode_at_once);
    tcase_add_test(ends, decode_that_gave_up_ends_prefills_side);
    tcase_add_test(ends, a_failure_is_remembered_for_a_decode_that_comes_late);
    tcase_add_loop_test(ends, what_decode_never_fetches_is_given_back, 0, 2);
    suite_add_tcase(suite, ends);
    TCase *direct = tcase_create("direct");
    tcase_add_test(direct, a_ticket_is_returned_once_the_transporter_accepts_its_blocks);
    tcase_add_test(direct, decode_has_its_blocks_when_all_has_landed);
    tcase_add_test(direct, what_landed_under_another_ticket_counts_nothing);
    tcase_add_test(direct, a_hand_over_is_active_until_its_blocks_are_free);
    tcase_add_test(direct, a_loan_that_fails_is_an_error_when_configured);
    tcase_add_loop_test(direct, a_ticket_of_another_input_is_refused, 0, 3);
    suite_add_tcase(suite, direct);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
