/* tests/unit/actors/coordinator/coordinator_notify_test.c - messages between the nodes of a
 * hand-over: decode that waits, prefill that has committed or failed, and coordinators that were
 * restarted. */
#include "tests/unit/actors/coordinator/coordinator_handover_support.h"

#include <assert.h>

#define WAITS     UINT64_C(1)
#define COMMITTED UINT64_C(2)
#define FAILED    UINT64_C(3)
#define GAVE_UP   UINT64_C(4)
#define TAKEN     UINT64_C(5)
#define LONG_NS   (20 * SL_NS_PER_S)
#define AGAIN_NS  (500 * SL_NS_PER_MS)

/* ---- messages in both directions ---- */

static bool says(struct bed *bed, struct sl_msg *out)
{
    return fake_take(&bed->fake, "transporter.0", SL_MSG_HANDOVER_NOTIFY, out);
}

/* Takes the next message, which has this state and is for this node. */
static struct sl_msg word_to(struct bed *bed, const char *node, uint64_t state)
{
    struct sl_msg word = take(bed, "transporter.0", SL_MSG_HANDOVER_NOTIFY);
    ck_assert_uint_eq(word.body.handover_notify.handover_id, ID);
    ck_assert_uint_eq(word.body.handover_notify.state, state);
    ck_assert_str_eq(word.body.handover_notify.node.at, node);
    return word;
}

static void passed_on(struct bed *bed, const struct sl_msg *word, sl_err code)
{
    answer(bed, "transporter.0", word, (struct sl_msg){.code = code});
}

/* The same, and the transporter accepts it. */
static void told(struct bed *bed, const char *node, uint64_t state)
{
    struct sl_msg word = word_to(bed, node, state);
    passed_on(bed, &word, SL_OK);
}

struct heard {
    const char *node;
    uint64_t state, id; /* id 0: ID */
    const struct sl_item_receipt *receipt;
    const struct sl_item_ticket *ticket;
    const char *reason;
};

/* Delivers a message from the transporter. Returns the code of its answer. */
static sl_err hears(struct bed *bed, struct heard heard)
{
    struct sl_msg msg = {.type = SL_MSG_HANDOVER_NOTIFY, .trace_id = 9}, reply;
    msg.body.handover_notify = (struct sl_body_handover_notify){
        .node = sl_text_of(heard.node),
        .handover_id = heard.id != 0 ? heard.id : ID,
        .state = heard.state,
        .reason = sl_text_of(heard.reason != NULL ? heard.reason : "")};
    msg.body.handover_notify.receipt.at = heard.receipt;
    msg.body.handover_notify.receipt.count = heard.receipt != NULL ? 1 : 0;
    msg.body.handover_notify.ticket.at = heard.ticket;
    msg.body.handover_notify.ticket.count = heard.ticket != NULL ? 1 : 0;
    fake_give(&bed->fake, "transporter.0", &msg);
    ck_assert(fake_take_reply(&bed->fake, "transporter.0", msg.seq, &reply));
    sl_err code = reply.code;
    fake_advance(&bed->fake, 0);
    return code;
}

static void receipt_is(const struct sl_body_handover_notify *word, const char *node,
                       const char *last_key, uint32_t block_end)
{
    struct sl_item_receipt want = receipt_of(last_key, block_end);
    ck_assert_uint_eq(word->receipt.count, 1);
    ck_assert_uint_eq(word->receipt.at[0].handover_id, ID);
    ck_assert_uint_eq(word->receipt.at[0].block_end, block_end);
    ck_assert_uint_eq(word->receipt.at[0].keys_low, want.keys_low);
    ck_assert_uint_eq(word->receipt.at[0].keys_high, want.keys_high);
    ck_assert_str_eq(word->receipt.at[0].node.at, node);
}

/* Begins decode's load of two blocks, from a prefill at this node. */
static uint64_t decode_from(struct bed *bed, const char *node)
{
    return side_begin(
        bed, SL_MSG_LOAD,
        (struct side){.op_id = RECV, .id = ID, .blocks = 2, .from = node, .budget_ns = LONG_NS},
        true);
}

static uint64_t prefill(struct bed *bed)
{
    return side_begin(bed, SL_MSG_STORE,
                      (struct side){.op_id = SEND, .id = ID, .blocks = 2, .budget_ns = LONG_NS},
                      true);
}

static void blocks_put(struct bed *bed)
{
    index_put(bed, 0, true, PART_BYTES);
    index_put(bed, 1, true, PART_BYTES);
}

/* ---- decode's side ---- */

START_TEST(decode_says_that_it_waits_until_it_knows)
    {
        struct bed *bed = bed_make(named);
        struct sl_item_receipt receipt = receipt_of_node("p", "b1", 2);
        struct sl_msg word;
        blocks_put(bed);
        uint64_t recv = decode_from(bed, "p");
        word = word_to(bed, "p", WAITS); /* at once: its hand-over is not known yet */
        ck_assert_uint_eq(word.body.handover_notify.receipt.count, 0);
        passed_on(bed, &word, SL_OK);

        fake_advance(&bed->fake, AGAIN_NS - 1);
        ck_assert(!says(bed, &word));
        fake_advance(&bed->fake, 1);
        word = word_to(bed, "p", WAITS);
        receipt_is(&word.body.handover_notify, "d", "b1", 2);
        ck_assert_uint_eq(word.body.handover_notify.ticket.count, 0);
        passed_on(bed, &word, SL_OK);
        ck_assert(!sent(bed, "swapper.0", SL_MSG_COPY));

        ck_assert_int_eq(
            hears(bed, (struct heard){.node = "p", .state = COMMITTED, .receipt = &receipt}),
            SL_OK);
        load_copied(bed);
        ck_assert_int_eq(reply_to(bed, recv).code, SL_OK);
        ck_assert(release_sent(bed, &receipt));
        fake_advance(&bed->fake, 4 * AGAIN_NS);
        ck_assert(!says(bed, &word));
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        ck_assert_uint_eq(metric(bed, "notifications_refused"), 0);
        /* The answer is sent a second time if decode asked twice. */
        ck_assert_int_eq(
            hears(bed, (struct heard){.node = "p", .state = COMMITTED, .receipt = &receipt}),
            SL_OK);
        bed_end(bed);
    }
END_TEST

START_TEST(a_failed_message_is_resent_soon_and_then_less_often)
    {
        struct bed *bed = bed_make(named);
        uint32_t count = 0;
        struct sl_msg word;
        (void)decode_from(bed, "p");
        word = word_to(bed, "p", WAITS);
        passed_on(bed, &word, SL_ERR_UNREACHABLE);
        fake_advance(&bed->fake, 20 * SL_NS_PER_MS);
        word = word_to(bed, "p", WAITS);
        passed_on(bed, &word, SL_ERR_UNREACHABLE);

        for (uint32_t i = 0; i < 1000; i++) { /* ten seconds */
            fake_advance(&bed->fake, 10 * SL_NS_PER_MS);
            if (says(bed, &word)) {
                count++;
                passed_on(bed, &word, SL_ERR_UNREACHABLE);
            }
        }

        ck_assert_uint_ge(count, 20);
        ck_assert_uint_le(count, 30);
        bed_end(bed);
    }
END_TEST

START_TEST(decode_names_its_ticket_when_the_transporter_has_taken_it)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_msg word;
        (void)side_begin(
            bed, SL_MSG_LOAD,
            (struct side){.op_id = RECV, .id = ID, .blocks = 2, .direct = true, .from = "p"}, true);
        word = word_to(bed, "p", WAITS);
        ck_assert_uint_eq(word.body.handover_notify.ticket.count, 0);
        passed_on(bed, &word, SL_OK);

        bring_accepted(bed);

        word = word_to(bed, "p", WAITS); /* at once */
        struct sl_item_ticket want = ticket_of("b1", 2);
        ck_assert_uint_eq(word.body.handover_notify.ticket.count, 1);
        const struct sl_item_ticket *ticket = &word.body.handover_notify.ticket.at[0];
        ck_assert_uint_eq(ticket->bytes.length, ticket_length);
        ck_assert_mem_eq(ticket->bytes.at, ticket_bytes, ticket_length);
        ck_assert_uint_eq(ticket->first_block, 0);
        ck_assert_uint_eq(ticket->block_end, 2);
        ck_assert_uint_eq(ticket->keys_low, want.keys_low);
        receipt_is(&word.body.handover_notify, "d", "b1", 2);
        bed_end(bed);
    }
END_TEST

START_TEST(what_has_landed_ends_the_words_too)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_msg word;
        uint64_t recv = side_begin(
            bed, SL_MSG_LOAD,
            (struct side){.op_id = RECV, .id = ID, .blocks = 2, .direct = true, .from = "p"}, true);
        bring_accepted(bed);
        while (says(bed, &word)) {
            passed_on(bed, &word, SL_OK);
        }

        ck_assert_int_eq(landed(bed, 2), SL_OK);

        ck_assert_int_eq(reply_to(bed, recv).code, SL_OK);
        fake_advance(&bed->fake, 4 * AGAIN_NS);
        ck_assert(!says(bed, &word));
        bed_end(bed);
    }
END_TEST

START_TEST(prefills_failure_ends_decode_with_its_reason)
    {
        struct bed *bed = bed_make(named);
        struct sl_msg reply, word;
        uint64_t recv = decode_from(bed, "p");
        told(bed, "p", WAITS);

        ck_assert_int_eq(
            hears(bed, (struct heard){.node = "p", .state = FAILED, .reason = "no room"}), SL_OK);

        reply = reply_to(bed, recv);
        ck_assert_int_eq(reply.code, SL_ERR_HANDOVER);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "prefill's node: no room"));
        ck_assert(reply.body.load_reply.fenced);
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        while (says(bed, &word)) {
            ck_assert_uint_eq(word.body.handover_notify.state, GAVE_UP);
        }
        bed_end(bed);
    }
END_TEST

START_TEST(decode_that_fails_says_that_it_gave_up)
    {
        struct bed *bed = bed_make(named);
        uint64_t recv = decode_from(bed, "p");
        told(bed, "p", WAITS);
        struct sl_msg cancel = {.type = SL_MSG_CANCEL};
        cancel.body.cancel.target_op = RECV;

        fake_give(&bed->fake, "client.1.0", &cancel);

        ck_assert_int_eq(reply_to(bed, recv).code, SL_ERR_CANCELLED);
        told(bed, "p", GAVE_UP);
        fake_advance(&bed->fake, 4 * AGAIN_NS);
        ck_assert(!sent(bed, "transporter.0", SL_MSG_HANDOVER_NOTIFY));
        /* Prefill had committed meanwhile: its hold need not wait for the deadline. */
        struct sl_item_receipt receipt = receipt_of_node("p", "b1", 2);
        ck_assert_int_eq(
            hears(bed, (struct heard){.node = "p", .state = COMMITTED, .receipt = &receipt}),
            SL_ERR_NOT_FOUND);
        ck_assert(release_sent(bed, &receipt));
        bed_end(bed);
    }
END_TEST

START_TEST(decode_that_knows_of_the_commit_gives_up_by_its_release)
    {
        struct bed *bed = bed_make(named);
        struct sl_item_receipt receipt = receipt_of_node("p", "b1", 2);
        index_put(bed, 0, true, PART_BYTES);
        uint64_t recv = decode_from(bed, "p");
        told(bed, "p", WAITS);
        ck_assert_int_eq(
            hears(bed, (struct heard){.node = "p", .state = COMMITTED, .receipt = &receipt}),
            SL_OK);

        load_copied(bed); /* block 1 does not exist */

        ck_assert_int_eq(reply_to(bed, recv).code, SL_ERR_HANDOVER);
        ck_assert(release_sent(bed, &receipt));
        ck_assert(!sent(bed, "transporter.0", SL_MSG_HANDOVER_NOTIFY));
        bed_end(bed);
    }
END_TEST

static const char *const here[] = {NULL, "", "d"};

START_TEST(a_prefill_at_this_node_is_not_asked)
    {
        struct bed *bed = bed_make(named);
        (void)decode_from(bed, here[_i]);
        fake_advance(&bed->fake, 4 * AGAIN_NS);
        ck_assert(!sent(bed, "transporter.0", SL_MSG_HANDOVER_NOTIFY));
        bed_end(bed);
    }
END_TEST

/* ---- words that are not to be believed ---- */

static const struct sl_item_receipt of_another = {
    .handover_id = ID + 1, .block_end = 2, .node = {"p", 1}};
static const struct sl_item_receipt of_another_node = {
    .handover_id = ID, .block_end = 2, .node = {"q", 1}};
static const struct sl_item_receipt of_a_longer_name = {
    .handover_id = ID, .block_end = 2, .node = {"pp", 2}};
static const struct sl_item_receipt of_no_node = {.handover_id = ID, .block_end = 2};

static const struct {
    struct heard heard;
    sl_err want;
} hostile[] = {
    {{.node = "q", .state = COMMITTED, .receipt = &of_another_node}, SL_ERR_PERMISSION},
    {{.node = "q", .state = FAILED, .reason = "hostile"}, SL_ERR_PERMISSION},
    {{.node = "q", .state = GAVE_UP}, SL_ERR_PERMISSION},
    {{.node = "q", .state = WAITS}, SL_ERR_PERMISSION},
    {{.node = "p", .state = GAVE_UP}, SL_ERR_PERMISSION}, /* decode is the one that gives up */
    {{.node = "p", .state = WAITS}, SL_ERR_PERMISSION},
    {{.node = "p", .state = COMMITTED}, SL_ERR_INVALID},
    {{.node = "p", .state = COMMITTED, .receipt = &of_another}, SL_ERR_INVALID},
    {{.node = "p", .state = COMMITTED, .receipt = &of_another_node}, SL_ERR_INVALID},
    {{.node = "p", .state = COMMITTED, .receipt = &of_a_longer_name}, SL_ERR_INVALID},
    {{.node = "p", .state = COMMITTED, .receipt = &of_no_node}, SL_ERR_INVALID},
};

START_TEST(a_word_that_is_not_prefills_changes_nothing)
    {
        struct bed *bed = bed_make(named);
        struct sl_item_receipt receipt = receipt_of_node("p", "b1", 2);
        blocks_put(bed);
        uint64_t recv = decode_from(bed, "p");
        told(bed, "p", WAITS);

        ck_assert_int_eq(hears(bed, hostile[_i].heard), hostile[_i].want);

        ck_assert_uint_eq(metric(bed, "notifications_refused"), 1);
        ck_assert(!sent(bed, "swapper.0", SL_MSG_COPY));
        ck_assert(!sent(bed, "transporter.0", SL_MSG_HANDOVER_NOTIFY));
        ck_assert_int_eq(
            hears(bed, (struct heard){.node = "p", .state = COMMITTED, .receipt = &receipt}),
            SL_OK);
        load_copied(bed);
        ck_assert_int_eq(reply_to(bed, recv).code, SL_OK);
        bed_end(bed);
    }
END_TEST

/* If the engine passes the receipt on itself, messages of other nodes are refused. */
START_TEST(a_load_that_names_no_node_believes_none)
    {
        struct bed *bed = bed_make(named);
        struct sl_item_receipt receipt = receipt_of_node("p", "b1", 2);
        (void)decode_from(bed, NULL);
        ck_assert_int_eq(
            hears(bed, (struct heard){.node = "p", .state = COMMITTED, .receipt = &receipt}),
            SL_ERR_PERMISSION);
        ck_assert_int_eq(hears(bed, (struct heard){.node = "p", .state = FAILED}),
                         SL_ERR_PERMISSION);
        ck_assert_uint_eq(metric(bed, "notifications_refused"), 2);
        bed_end(bed);
    }
END_TEST

START_TEST(words_of_what_nobody_knows_leave_nothing)
    {
        struct bed *bed = bed_make(named);
        struct sl_item_receipt receipt = receipt_of_node("p", "b1", 2);
        ck_assert_int_eq(
            hears(bed, (struct heard){.node = "p", .state = COMMITTED, .receipt = &receipt}),
            SL_ERR_NOT_FOUND);
        ck_assert_int_eq(hears(bed, (struct heard){.node = "p", .state = FAILED}), SL_OK);
        ck_assert_int_eq(hears(bed, (struct heard){.node = "p", .state = GAVE_UP}), SL_OK);
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        ck_assert_int_eq(hears(bed, (struct heard){.node = "p", .state = TAKEN}), SL_ERR_INVALID);
        ck_assert_uint_eq(metric(bed, "notifications_refused"), 0);
        ck_assert_uint_eq(metric(bed, "releases_refused"), 1);
        ck_assert(!release_sent(bed, &receipt));
        bed_end(bed);
    }
END_TEST

static char name_of_32[33], ticket_of_129[129];
static const struct sl_item_ticket long_ticket = {.bytes = {ticket_of_129, 129}, .block_end = 1};
static const struct {
    const char *node;
    uint64_t state, id;
    const struct sl_item_ticket *ticket;
} unspeakable[] = {
    {.node = "p", .state = 0, .id = ID},
    {.node = "p", .state = 6, .id = ID},
    {.node = "p", .state = UINT64_MAX, .id = ID},
    {.node = "p", .state = WAITS, .id = 0},
    {.node = "", .state = WAITS, .id = ID},
    {.node = name_of_32, .state = WAITS, .id = ID},
    {.node = "p", .state = WAITS, .id = ID, .ticket = &long_ticket},
};

START_TEST(what_no_word_can_be_is_refused_by_the_codec)
    {
        struct sl_codec *codec = NULL;
        const void *frame = NULL;
        size_t length = 0;
        memset(name_of_32, 'n', 32);
        ck_assert_int_eq(sl_codec_create(SL_MIB, &codec, NULL), SL_OK);
        struct sl_msg msg = {
            .type = SL_MSG_HANDOVER_NOTIFY, .sender = sl_text_of("transporter.0"), .seq = 1};
        msg.body.handover_notify =
            (struct sl_body_handover_notify){.node = sl_text_of(unspeakable[_i].node),
                                             .handover_id = unspeakable[_i].id,
                                             .state = unspeakable[_i].state,
                                             .reason = sl_text_of("")};
        msg.body.handover_notify.ticket.at = unspeakable[_i].ticket;
        msg.body.handover_notify.ticket.count = unspeakable[_i].ticket != NULL ? 1 : 0;

        ck_assert_int_eq(sl_codec_encode(codec, &msg, &frame, &length, NULL), SL_ERR_INVALID);

        sl_codec_destroy(&codec);
    }
END_TEST

/* ---- prefill's side ---- */

enum when { BEFORE, DURING, AFTER, WHENS };

START_TEST(decode_that_waits_is_told_of_the_commit)
    {
        struct bed *bed = bed_make(named);
        static const char node[] = "a-name-of-thirty-one-bytes-long";
        struct heard waits = {.node = node, .state = WAITS};
        static_assert(sizeof(node) == 32, "the longest");
        if (_i == BEFORE) {
            ck_assert_int_eq(hears(bed, waits), SL_OK);
        }
        uint64_t send = prefill(bed);
        if (_i == DURING) {
            ck_assert_int_eq(hears(bed, waits), SL_OK);
        }
        ck_assert(!sent(bed, "transporter.0", SL_MSG_HANDOVER_NOTIFY));

        ck_assert_int_eq(commit(bed, send, 2).code, SL_OK);
        if (_i == AFTER) {
            ck_assert(!sent(bed, "transporter.0", SL_MSG_HANDOVER_NOTIFY));
            ck_assert_int_eq(hears(bed, waits), SL_OK);
        }

        struct sl_msg word = word_to(bed, node, COMMITTED);
        receipt_is(&word.body.handover_notify, "d", "b1", 2);
        passed_on(bed, &word, SL_ERR_UNREACHABLE);
        ck_assert(!sent(bed, "transporter.0", SL_MSG_HANDOVER_NOTIFY));
        ck_assert_int_eq(hears(bed, waits), SL_OK); /* it was lost: decode asks again */
        told(bed, node, COMMITTED);

        struct sl_item_receipt receipt = receipt_of_node("d", "b1", 2);
        ck_assert_int_eq(peer_releases(bed, &receipt), SL_OK);
        ck_assert(hold_ended(bed));
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        bed_end(bed);
    }
END_TEST

START_TEST(decode_that_waits_is_told_of_the_failure)
    {
        struct bed *bed = bed_make(named);
        struct heard waits = {.node = "q", .state = WAITS};
        if (_i == BEFORE) {
            ck_assert_int_eq(hears(bed, waits), SL_OK);
        }
        uint64_t send = prefill(bed);
        if (_i == DURING) {
            ck_assert_int_eq(hears(bed, waits), SL_OK);
        }
        answer_reserve(bed, 0, SL_ERR_NO_SPACE);
        (void)answer_copy(bed, 0, UINT64_MAX);
        (void)answer_copy(bed, 1, UINT64_MAX);
        answer_commit(bed);
        struct sl_msg reply = reply_to(bed, send);
        ck_assert_int_ne(reply.code, SL_OK);
        char reason[256];
        (void)snprintf(reason, sizeof(reason), "%s", reply.text.at);
        if (_i == AFTER) {
            ck_assert_int_eq(hears(bed, waits), SL_OK);
        }

        struct sl_msg word = word_to(bed, "q", FAILED);
        ck_assert_uint_eq(word.body.handover_notify.receipt.count, 0);
        ck_assert_msg(strstr(reason, word.body.handover_notify.reason.at) != NULL, "%s",
                      word.body.handover_notify.reason.at);
        ck_assert_uint_gt(word.body.handover_notify.reason.length, 0);
        bed_end(bed);
    }
END_TEST

/* Reasons are cut to the message's limit, even in the middle of a character. */
START_TEST(a_failure_with_a_long_reason_is_told_too)
    {
        struct bed *bed = bed_make(named);
        char text[201];
        for (uint32_t i = 0; i < 200; i++) { /* two bytes a character */
            text[i] = (char)((i + (uint32_t)_i) % 2 == 0 ? 0xc3 : 0xa4);
        }
        text[200] = '\0';
        if (_i == 1) {
            text[0] = 'x';
            text[199] = 'x';
        }
        ck_assert_int_eq(hears(bed, (struct heard){.node = "q", .state = WAITS}), SL_OK);
        uint64_t send =
            side_send(bed, SL_MSG_STORE, (struct side){.op_id = SEND, .id = ID, .blocks = 2});
        answer_engine(bed);
        struct sl_msg keys = take(bed, "keyer", SL_MSG_KEYS);

        answer(bed, "keyer", &keys,
               (struct sl_msg){.code = SL_ERR_INVALID, .text = sl_text_of(text)});

        ck_assert_int_eq(reply_to(bed, send).code, SL_ERR_INVALID);
        struct sl_msg word = word_to(bed, "q", FAILED);
        ck_assert_ptr_nonnull(strstr(word.body.handover_notify.reason.at, "keys: "));
        bed_end(bed);
    }
END_TEST

START_TEST(rows_of_peers_words_alone_are_bounded_and_end)
    {
        const char *const settings[] = {"node_name", "d", "handovers_max", "4", "handover_wait",
                                        "1s",        NULL};
        struct bed *bed = bed_make(settings);
        for (uint64_t i = 0; i < 4; i++) {
            ck_assert_int_eq(hears(bed, (struct heard){.node = "q", .state = WAITS, .id = ID + i}),
                             i < 2 ? SL_OK : SL_ERR_LIMIT);
        }
        ck_assert_uint_eq(metric(bed, "handovers_active"), 2);
        ck_assert_uint_eq(metric(bed, "notifications_refused"), 0);
        uint64_t send =
            side_send(bed, SL_MSG_STORE, (struct side){.op_id = SEND, .id = ID + 9, .blocks = 1});
        struct sl_msg reply;
        ck_assert(!answered(bed, send, &reply)); /* there is space for the node's own */

        fake_advance(&bed->fake, SL_NS_PER_S);

        struct sl_msg word;
        for (uint64_t i = 0; i < 2; i++) { /* decode is notified that no prefill arrived */
            ck_assert(says(bed, &word));
            ck_assert_uint_eq(word.body.handover_notify.state, FAILED);
            ck_assert_str_eq(word.body.handover_notify.node.at, "q");
            passed_on(bed, &word, SL_OK);
        }
        fake_advance(&bed->fake, 20 * SL_NS_PER_S);
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        ck_assert_int_eq(hears(bed, (struct heard){.node = "q", .state = WAITS}), SL_OK);
        bed_end(bed);
    }
END_TEST

START_TEST(a_hand_over_has_one_decode)
    {
        struct bed *bed = bed_make(named);
        ck_assert_int_eq(hears(bed, (struct heard){.node = "q", .state = WAITS}), SL_OK);
        ck_assert_int_eq(hears(bed, (struct heard){.node = "r", .state = WAITS}),
                         SL_ERR_PERMISSION);
        ck_assert_int_eq(hears(bed, (struct heard){.node = "r", .state = GAVE_UP}),
                         SL_ERR_PERMISSION);
        ck_assert_uint_eq(metric(bed, "notifications_refused"), 2);

        uint64_t send = prefill(bed);
        ck_assert_int_eq(commit(bed, send, 2).code, SL_OK);

        told(bed, "q", COMMITTED);
        ck_assert(!sent(bed, "transporter.0", SL_MSG_HANDOVER_NOTIFY));
        bed_end(bed);
    }
END_TEST

START_TEST(decode_that_gave_up_at_its_node_ends_prefill)
    {
        struct bed *bed = bed_make(named);
        struct sl_msg reply;
        ck_assert_int_eq(hears(bed, (struct heard){.node = "q", .state = WAITS}), SL_OK);
        uint64_t send = 0;
        if (_i == DURING) {
            send = prefill(bed);
        }

        ck_assert_int_eq(hears(bed, (struct heard){.node = "q", .state = GAVE_UP}), SL_OK);

        if (_i == BEFORE) {
            send =
                side_send(bed, SL_MSG_STORE, (struct side){.op_id = SEND, .id = ID, .blocks = 2});
        }
        ck_assert(answered(bed, send, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_CANCELLED);
        ck_assert_uint_eq(reply.body.store_reply.receipt.count, 0);
        ck_assert(hold_ended(bed) == (_i == DURING));
        bed_end(bed);
    }
END_TEST

/* ---- direct ---- */

/* Runs prefill up to where its swappers have looked. */
static uint64_t prefill_direct(struct bed *bed, bool first)
{
    uint64_t send = side_begin(
        bed, SL_MSG_STORE,
        (struct side){.op_id = SEND, .id = ID, .blocks = 2, .direct = true, .budget_ns = LONG_NS},
        first);
    (void)answer_copy(bed, 0, UINT64_MAX);
    (void)answer_copy(bed, 1, UINT64_MAX);
    return send;
}

static const uint64_t ticket_lengths[] = {1, 6, 128};

START_TEST(a_direct_prefill_takes_the_ticket_that_a_node_offered)
    {
        struct bed *bed = direct_bed(NULL);
        char secret[128];
        memset(secret, 's', sizeof(secret));
        struct sl_item_ticket ticket = ticket_of("b1", 2);
        ticket.bytes = (struct sl_bytes){secret, ticket_lengths[_i]};
        ck_assert_int_eq(hears(bed, (struct heard){.node = "q", .state = WAITS}), SL_OK);
        ck_assert_int_eq(hears(bed, (struct heard){.node = "q", .state = WAITS, .ticket = &ticket}),
                         SL_OK);

        uint64_t send = prefill_direct(bed, true);

        struct sl_msg lend = take(bed, "transporter.0", SL_MSG_LEND);
        ck_assert_uint_eq(lend.body.lend.ticket.length, ticket_lengths[_i]);
        ck_assert_mem_eq(lend.body.lend.ticket.at, secret, ticket_lengths[_i]);
        answer(bed, "transporter.0", &lend, (struct sl_msg){.code = SL_OK});
        ck_assert_int_eq(reply_to(bed, send).code, SL_OK);
        told(bed, "q", COMMITTED);
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        /* A message that crossed the loan belongs to a hand-over that is over. */
        ck_assert_int_eq(hears(bed, (struct heard){.node = "q", .state = WAITS, .ticket = &ticket}),
                         SL_OK);
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        bed_end(bed);
    }
END_TEST

START_TEST(a_direct_prefill_takes_the_ticket_of_this_node)
    {
        struct bed *bed = direct_bed(NULL);
        uint64_t recv = direct_begin(bed);

        uint64_t send = prefill_direct(bed, false);

        struct sl_msg lend = take(bed, "transporter.0", SL_MSG_LEND);
        ck_assert_mem_eq(lend.body.lend.ticket.at, ticket_bytes, ticket_length);
        ck_assert_int_eq(landed(bed, 2), SL_OK);
        answer(bed, "transporter.0", &lend, (struct sl_msg){.code = SL_OK});
        ck_assert_int_eq(reply_to(bed, send).code, SL_OK);
        struct sl_msg reply = reply_to(bed, recv);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.load_reply.from_memory, 2); /* of this node */
        bed_end(bed);
    }
END_TEST

/* The transporter died after its last message to decode: its successor knows of no loan. */
START_TEST(a_prefill_that_did_not_hear_that_all_landed_here_is_no_error)
    {
        struct bed *bed = direct_bed(NULL);
        uint64_t recv = direct_begin(bed);
        uint64_t send = prefill_direct(bed, false);
        struct sl_msg lend = take(bed, "transporter.0", SL_MSG_LEND);
        ck_assert_int_eq(landed(bed, 2), SL_OK);
        ck_assert_int_eq(reply_to(bed, recv).code, SL_OK);

        answer(bed, "transporter.0", &lend, (struct sl_msg){.code = SL_ERR_NOT_FOUND});

        struct sl_msg reply = reply_to(bed, send);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(!sent(bed, "registrar", SL_MSG_RESERVE));
        ck_assert_uint_eq(reply.body.store_reply.receipt.count, 1);
        bed_end(bed);
    }
END_TEST

static const struct {
    bool waits, offered, direct;
} by_storage[] = {{false, false, true}, {true, false, true}, {true, true, false}};

START_TEST(without_a_ticket_or_a_wish_it_goes_through_storage)
    {
        struct bed *bed = bed_make(named);
        struct sl_item_ticket ticket = ticket_of("b1", 2);
        struct heard waits = {.node = "q", .state = WAITS};
        waits.ticket = by_storage[_i].offered ? &ticket : NULL;
        if (by_storage[_i].waits) {
            ck_assert_int_eq(hears(bed, waits), SL_OK);
        }

        uint64_t send = side_begin(
            bed, SL_MSG_STORE,
            (struct side){.op_id = SEND, .id = ID, .blocks = 2, .direct = by_storage[_i].direct},
            true);

        ck_assert_int_eq(commit(bed, send, 2).code, SL_OK);
        ck_assert(!sent(bed, "transporter.0", SL_MSG_LEND));
        if (by_storage[_i].waits) {
            told(bed, "q", COMMITTED);
        }
        bed_end(bed);
    }
END_TEST

/* Decode wants blocks that prefill does not have, or other ones: both end at once. */
START_TEST(an_offer_that_does_not_fit_fails_both)
    {
        struct bed *bed = bed_make(named);
        struct sl_item_ticket tickets[] = {ticket_of("b1", 2), ticket_of("other", 2)};
        tickets[0].first_block = 2;
        ck_assert_int_eq(
            hears(bed, (struct heard){.node = "q", .state = WAITS, .ticket = &tickets[_i]}), SL_OK);

        uint64_t send = side_send(
            bed, SL_MSG_STORE, (struct side){.op_id = SEND, .id = ID, .blocks = 2, .direct = true});
        if (_i == 1) {
            answer_engine(bed);
            keys_known(bed, 2);
        }

        ck_assert_int_eq(reply_to(bed, send).code, SL_ERR_INVALID);
        struct sl_msg word = word_to(bed, "q", FAILED);
        ck_assert_ptr_nonnull(strstr(word.body.handover_notify.reason.at, "ticket"));
        bed_end(bed);
    }
END_TEST

/* ---- a restarted coordinator ---- */

/* Takes the query to the registrar whether it holds all of the hand-over. */
static struct sl_msg held_asked(struct bed *bed)
{
    struct sl_msg ask = take(bed, "registrar", SL_MSG_HOLD);
    struct sl_item_receipt want = receipt_of("b1", 2);
    ck_assert(ask.body.hold.ask);
    ck_assert_uint_eq(ask.body.hold.hold_id, ID);
    ck_assert_uint_eq(ask.body.hold.keys_low, want.keys_low);
    ck_assert_uint_eq(ask.body.hold.keys_high, want.keys_high);
    return ask;
}

START_TEST(decode_here_finds_what_a_coordinator_before_had_committed)
    {
        struct bed *bed = bed_make(named);
        blocks_put(bed);
        uint64_t recv = decode_from(bed, NULL);
        ck_assert(!sent(bed, "registrar", SL_MSG_HOLD)); /* prefill may still arrive */
        fake_advance(&bed->fake, AGAIN_NS);
        struct sl_msg ask = held_asked(bed);
        answer(bed, "registrar", &ask, (struct sl_msg){.code = SL_ERR_NOT_FOUND});
        fake_advance(&bed->fake, AGAIN_NS - 1);
        ck_assert(!sent(bed, "registrar", SL_MSG_HOLD));
        fake_advance(&bed->fake, 1);
        ask = held_asked(bed);
        ck_assert(!sent(bed, "swapper.0", SL_MSG_COPY));

        answer(bed, "registrar", &ask, (struct sl_msg){.code = SL_OK});
        fake_advance(&bed->fake, 0);
        load_copied(bed);

        ck_assert_int_eq(reply_to(bed, recv).code, SL_OK);
        ck_assert(hold_ended(bed));
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        bed_end(bed);
    }
END_TEST

START_TEST(a_waiting_node_is_notified_of_an_earlier_commit)
    {
        struct bed *bed = bed_make(named);
        struct sl_item_receipt expected = receipt_of("b1", 2);
        struct heard waits = {.node = "q", .state = WAITS, .receipt = &expected};
        ck_assert_int_eq(hears(bed, (struct heard){.node = "q", .state = WAITS}), SL_OK);
        ck_assert(!sent(bed, "registrar", SL_MSG_HOLD)); /* the query contains no keys */
        ck_assert_int_eq(hears(bed, waits), SL_OK);
        struct sl_msg ask = held_asked(bed);
        answer(bed, "registrar", &ask, (struct sl_msg){.code = SL_ERR_NOT_FOUND});
        ck_assert(!sent(bed, "transporter.0", SL_MSG_HANDOVER_NOTIFY));
        ck_assert_int_eq(hears(bed, waits), SL_OK);
        ask = held_asked(bed);

        answer(bed, "registrar", &ask, (struct sl_msg){.code = SL_OK});

        struct sl_msg word = word_to(bed, "q", COMMITTED);
        receipt_is(&word.body.handover_notify, "d", "b1", 2);
        ck_assert_int_eq(hears(bed, waits), SL_OK);
        told(bed, "q", COMMITTED);
        ck_assert(!sent(bed, "registrar", SL_MSG_HOLD));
        struct sl_item_receipt right = receipt_of_node("d", "b1", 2);
        ck_assert_int_eq(peer_releases(bed, &right), SL_OK);
        ck_assert(hold_ended(bed));
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        bed_end(bed);
    }
END_TEST

START_TEST(a_prefill_that_is_here_need_not_be_asked_for)
    {
        struct bed *bed = bed_make(named);
        struct sl_item_receipt expected = receipt_of("b1", 2);
        uint64_t send = prefill(bed);
        ck_assert_int_eq(
            hears(bed, (struct heard){.node = "q", .state = WAITS, .receipt = &expected}), SL_OK);
        ck_assert(!sent(bed, "registrar", SL_MSG_HOLD));
        ck_assert_int_eq(commit(bed, send, 2).code, SL_OK);
        told(bed, "q", COMMITTED);
        bed_end(bed);
    }
END_TEST

/* Prefill's request is sent again as well: the earlier coordinator's answer was lost. */
START_TEST(prefill_that_comes_again_finds_its_hand_over_committed)
    {
        struct bed *bed = bed_make(named);
        struct sl_item_receipt expected = receipt_of("b1", 2);
        ck_assert_int_eq(
            hears(bed, (struct heard){.node = "q", .state = WAITS, .receipt = &expected}), SL_OK);
        struct sl_msg ask = held_asked(bed);
        answer(bed, "registrar", &ask, (struct sl_msg){.code = SL_OK});
        told(bed, "q", COMMITTED);

        uint64_t send = prefill(bed);

        struct sl_msg reserve = take(bed, "registrar", SL_MSG_RESERVE);
        ck_assert_uint_eq(reserve.body.reserve.hold_id, ID);
        struct sl_item_grant grants[2 * RANKS];
        for (uint64_t i = 0; i < SL_COUNT(grants); i++) {
            grants[i] = (struct sl_item_grant){.code = SL_ERR_EXISTS};
        }
        answer(bed, "registrar", &reserve,
               (struct sl_msg){.body.reserve_reply.items = {grants, SL_COUNT(grants)}});
        struct sl_msg reply = reply_to(bed, send);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.store_reply.receipt.count, 1);
        struct sl_item_receipt right = receipt_of_node("d", "b1", 2);
        ck_assert_int_eq(peer_releases(bed, &right), SL_OK);
        ck_assert(hold_ended(bed));
        ck_assert_uint_eq(metric(bed, "handovers_active"), 0);
        bed_end(bed);
    }
END_TEST

START_TEST(an_answer_of_another_hand_over_is_not_taken_for_this_one)
    {
        struct bed *bed = bed_make(named);
        struct sl_msg cancel = {.type = SL_MSG_CANCEL};
        blocks_put(bed);
        uint64_t recv = decode_from(bed, NULL);
        fake_advance(&bed->fake, AGAIN_NS);
        struct sl_msg ask = held_asked(bed);
        cancel.body.cancel.target_op = RECV;
        fake_give(&bed->fake, "client.1.0", &cancel);
        ck_assert_int_eq(reply_to(bed, recv).code, SL_ERR_CANCELLED);
        (void)side_begin(bed, SL_MSG_LOAD, (struct side){.op_id = 3, .id = ID + 1, .blocks = 2},
                         false);

        answer(bed, "registrar", &ask, (struct sl_msg){.code = SL_OK});
        fake_advance(&bed->fake, 0);

        ck_assert(!sent(bed, "swapper.0", SL_MSG_COPY));
        bed_end(bed);
    }
END_TEST

/* With a slow registrar and a fast peer. */
START_TEST(peers_words_do_not_pile_up)
    {
        struct bed *bed = bed_make(named);
        struct sl_item_receipt expected = receipt_of("b1", 2);
        for (uint32_t i = 0; i < 100; i++) {
            ck_assert_int_eq(
                hears(bed, (struct heard){.node = "q", .state = WAITS, .receipt = &expected}),
                SL_OK);
        }
        (void)held_asked(bed);
        ck_assert(!sent(bed, "registrar", SL_MSG_HOLD));
        bed_end(bed);
    }
END_TEST

/* ---- what is not there yet ---- */

static void fetched(struct bed *bed, sl_err code)
{
    struct sl_msg fetch = take(bed, "transporter.0", SL_MSG_BRING);
    uint64_t codes[2 * RANKS];
    ck_assert(fetch.body.bring.sure);
    for (uint32_t i = 0; i < SL_COUNT(codes); i++) {
        codes[i] = (uint64_t)code;
    }
    answer(bed, "transporter.0", &fetch,
           (struct sl_msg){
               .body.bring_reply.codes = {codes, SL_MIN(fetch.body.bring.keys.count, 2 * RANKS)}});
}

START_TEST(what_prefill_has_said_is_there_is_fetched_again)
    {
        struct bed *bed = bed_make(named);
        struct sl_item_receipt receipt = receipt_of_node("p", "b1", 2);
        uint32_t count = 1;
        sl_index_set_remote(bed->index, true);
        uint64_t recv = side_begin(
            bed, SL_MSG_LOAD,
            (struct side){
                .op_id = RECV, .id = ID, .blocks = 2, .receipt = &receipt, .budget_ns = LONG_NS},
            true);
        fetched(bed, SL_ERR_NOT_FOUND);
        struct sl_msg reply, fetch;

        for (uint32_t i = 0; i < 140; i++) { /* 1.4 s */
            fake_advance(&bed->fake, 10 * SL_NS_PER_MS);
            if (fake_take(&bed->fake, "transporter.0", SL_MSG_BRING, &fetch)) {
                count++;
                answer(bed, "transporter.0", &fetch, (struct sl_msg){.code = SL_ERR_UNREACHABLE});
            }
        }
        ck_assert_uint_ge(count, 5);
        ck_assert_uint_le(count, 60);
        ck_assert(!answered(bed, recv, &reply));
        blocks_put(bed); /* its actor is back */
        fake_advance(&bed->fake, 100 * SL_NS_PER_MS);
        load_copied(bed);

        ck_assert_int_eq(reply_to(bed, recv).code, SL_OK);
        bed_end(bed);
    }
END_TEST

START_TEST(what_stays_away_is_fetched_for_a_while_only)
    {
        struct bed *bed = bed_make(named);
        struct sl_item_receipt receipt = receipt_of_node("p", "b1", 2);
        struct sl_msg reply, fetch;
        sl_index_set_remote(bed->index, true);
        uint64_t recv = side_begin(
            bed, SL_MSG_LOAD,
            (struct side){
                .op_id = RECV, .id = ID, .blocks = 2, .receipt = &receipt, .budget_ns = LONG_NS},
            true);
        uint64_t began_ns = bed->fake.env.now_ns;

        while (!answered(bed, recv, &reply)) {
            if (fake_take(&bed->fake, "transporter.0", SL_MSG_BRING, &fetch)) {
                answer(bed, "transporter.0", &fetch, (struct sl_msg){.code = SL_ERR_UNREACHABLE});
            }
            fake_advance(&bed->fake, 10 * SL_NS_PER_MS);
        }

        ck_assert_int_eq(reply.code, SL_ERR_HANDOVER);
        uint64_t took_ns = bed->fake.env.now_ns - began_ns;
        ck_assert_uint_ge(took_ns, 1500 * SL_NS_PER_MS);
        ck_assert_uint_le(took_ns, 1700 * SL_NS_PER_MS);
        ck_assert(release_sent(bed, &receipt));
        bed_end(bed);
    }
END_TEST

/* A miss is final. */
START_TEST(what_no_prefill_has_promised_is_fetched_once)
    {
        struct bed *bed = bed_make(named);
        sl_index_set_remote(bed->index, true);
        uint64_t recv = op_begin(bed, SL_MSG_LOAD, RECV, 2);
        struct sl_msg fetch = take(bed, "transporter.0", SL_MSG_BRING);
        ck_assert(!fetch.body.bring.sure);

        answer(bed, "transporter.0", &fetch, (struct sl_msg){.code = SL_ERR_UNREACHABLE});

        ck_assert_int_eq(reply_to(bed, recv).code, SL_OK);
        ck_assert(!sent(bed, "transporter.0", SL_MSG_BRING));
        bed_end(bed);
    }
END_TEST

/* ---- the engine's own keys ---- */

static const char hashes[] = "0123456789abcdef0123456789abcdefABCDEFGHIJKLMNOPQRSTUVWXYZ012345";

START_TEST(an_incomplete_last_block_with_its_own_key_is_transient)
    {
        struct bed *bed = bed_make(named);
        struct side side = {.op_id = SEND, .id = ID, .blocks = 2, .keyed = hashes};
        (void)side_begin(bed, SL_MSG_STORE, side, true);
        struct sl_msg reserve = take(bed, "registrar", SL_MSG_RESERVE);
        ck_assert_uint_eq(reserve.body.reserve.groups.count, 2);
        ck_assert_uint_eq(reserve.body.reserve.groups.at[0].transient_ns, 0);
        ck_assert_uint_eq(reserve.body.reserve.groups.at[1].transient_ns, 10 * SL_NS_PER_S);
        char last[120] = MODEL "/";
        for (uint32_t i = 0; i < 32; i++) {
            (void)snprintf(last + strlen(MODEL) + 1 + 2 * (size_t)i, 3, "%02x",
                           (unsigned char)hashes[32 + i]);
        }
        struct sl_digest keys = sl_digest_of(last, strlen(last));

        sl_index_set_remote(bed->index, true);
        struct sl_item_receipt receipt = {.handover_id = ID + 1,
                                          .block_end = 2,
                                          .keys_low = keys.low,
                                          .keys_high = keys.high,
                                          .node = sl_text_of("p")};
        side = (struct side){
            .op_id = RECV, .id = ID + 1, .blocks = 2, .keyed = hashes, .receipt = &receipt};
        (void)side_begin(bed, SL_MSG_LOAD, side, false);
        struct sl_msg fetch = take(bed, "transporter.0", SL_MSG_BRING);
        ck_assert_uint_eq(fetch.body.bring.groups.count, 2);
        ck_assert_uint_eq(fetch.body.bring.groups.at[0].transient_ns, 0);
        ck_assert_uint_eq(fetch.body.bring.groups.at[1].transient_ns, 10 * SL_NS_PER_S);

        side = (struct side){.op_id = 3, .blocks = 2, .keyed = hashes}; /* of no hand-over */
        uint64_t lone = side_send(bed, SL_MSG_LOAD, side);
        ck_assert_int_eq(reply_to(bed, lone).code, SL_ERR_INVALID);
        bed_end(bed);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("coordinator_word");
    TCase *decode = tcase_create("decode");
    tcase_add_test(decode, decode_says_that_it_waits_until_it_knows);
    tcase_add_test(decode, a_failed_message_is_resent_soon_and_then_less_often);
    tcase_add_test(decode, decode_names_its_ticket_when_the_transporter_has_taken_it);
    tcase_add_test(decode, what_has_landed_ends_the_words_too);
    tcase_add_test(decode, prefills_failure_ends_decode_with_its_reason);
    tcase_add_test(decode, decode_that_fails_says_that_it_gave_up);
    tcase_add_test(decode, decode_that_knows_of_the_commit_gives_up_by_its_release);
    tcase_add_loop_test(decode, a_prefill_at_this_node_is_not_asked, 0, SL_COUNT(here));
    tcase_add_loop_test(decode, a_word_that_is_not_prefills_changes_nothing, 0, SL_COUNT(hostile));
    tcase_add_test(decode, a_load_that_names_no_node_believes_none);
    tcase_add_test(decode, words_of_what_nobody_knows_leave_nothing);
    tcase_add_loop_test(decode, what_no_word_can_be_is_refused_by_the_codec, 0,
                        SL_COUNT(unspeakable));
    suite_add_tcase(suite, decode);
    TCase *prefills = tcase_create("prefill");
    tcase_add_loop_test(prefills, decode_that_waits_is_told_of_the_commit, 0, WHENS);
    tcase_add_loop_test(prefills, decode_that_waits_is_told_of_the_failure, 0, WHENS);
    tcase_add_loop_test(prefills, a_failure_with_a_long_reason_is_told_too, 0, 2);
    tcase_add_test(prefills, rows_of_peers_words_alone_are_bounded_and_end);
    tcase_add_test(prefills, a_hand_over_has_one_decode);
    tcase_add_loop_test(prefills, decode_that_gave_up_at_its_node_ends_prefill, 0, AFTER);
    tcase_add_loop_test(prefills, a_direct_prefill_takes_the_ticket_that_a_node_offered, 0,
                        SL_COUNT(ticket_lengths));
    tcase_add_test(prefills, a_direct_prefill_takes_the_ticket_of_this_node);
    tcase_add_test(prefills, a_prefill_that_did_not_hear_that_all_landed_here_is_no_error);
    tcase_add_loop_test(prefills, without_a_ticket_or_a_wish_it_goes_through_storage, 0,
                        SL_COUNT(by_storage));
    tcase_add_loop_test(prefills, an_offer_that_does_not_fit_fails_both, 0, 2);
    suite_add_tcase(suite, prefills);
    TCase *anew = tcase_create("anew");
    tcase_add_test(anew, decode_here_finds_what_a_coordinator_before_had_committed);
    tcase_add_test(anew, a_waiting_node_is_notified_of_an_earlier_commit);
    tcase_add_test(anew, a_prefill_that_is_here_need_not_be_asked_for);
    tcase_add_test(anew, prefill_that_comes_again_finds_its_hand_over_committed);
    tcase_add_test(anew, an_answer_of_another_hand_over_is_not_taken_for_this_one);
    tcase_add_test(anew, peers_words_do_not_pile_up);
    tcase_add_test(anew, what_prefill_has_said_is_there_is_fetched_again);
    tcase_add_test(anew, what_stays_away_is_fetched_for_a_while_only);
    tcase_add_test(anew, what_no_prefill_has_promised_is_fetched_once);
    tcase_add_test(anew, an_incomplete_last_block_with_its_own_key_is_transient);
    suite_add_tcase(suite, anew);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
