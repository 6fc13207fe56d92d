/* tests/unit/actors/coordinator/coordinator_handover_support.c - see
 * coordinator_handover_support.h. */
#include "tests/unit/actors/coordinator/coordinator_handover_support.h"

uint64_t ticket_number, ticket_length;
unsigned char ticket_bytes[SL_TICKET_BYTES_MAX];
static struct sl_msg bring; /* the last one */

static void side_store(const struct side *side, struct sl_body_store *body)
{
    body->direct = side->direct;
    body->ticket.at = side->ticket;
    body->ticket.count = side->ticket != NULL ? 1 : 0;
}

uint64_t side_send(struct bed *bed, uint32_t type, struct side side)
{
    static uint32_t tokens[BLOCKS_MAX * 4];
    static uint64_t device[BLOCKS_MAX];
    uint64_t bytes = 4ull * (side.tokens != 0 ? side.tokens : 4 * side.blocks);
    for (uint64_t i = 0; i < BLOCKS_MAX; i++) {
        device[i] = 10 + i;
    }
    struct sl_msg msg = {.type = type, .op_id = side.op_id, .trace_id = side.op_id};
    struct sl_body_store body = {.engine_id = ENGINE_ID,
                                 .tokens = {tokens, bytes},
                                 .partial = true,
                                 .device_blocks = {device, side.blocks},
                                 .handover_id = side.id};
    if (side.keyed != NULL) {
        body.tokens = (struct sl_bytes){0};
        body.hashes = (struct sl_bytes){side.keyed, 32ull * side.blocks};
        body.hash_bytes = 32;
    }
    msg.budget_ns = side.budget_ns;
    if (type == SL_MSG_STORE) {
        msg.body.store = body;
        side_store(&side, &msg.body.store);
    } else {
        msg.body.load = (struct sl_body_load){.engine_id = ENGINE_ID,
                                              .tokens = body.tokens,
                                              .partial = true,
                                              .device_blocks = body.device_blocks,
                                              .handover_id = side.id,
                                              .direct = side.direct,
                                              .hashes = body.hashes,
                                              .hash_bytes = body.hash_bytes};
        msg.body.load.prefill_node = sl_text_of(side.from != NULL ? side.from : "");
        msg.body.load.receipt.at = side.receipt;
        msg.body.load.receipt.count = side.receipt != NULL ? 1 : 0;
    }
    fake_give(&bed->fake, "client.1.0", &msg);
    return msg.seq;
}

void keys_known(struct bed *bed, uint32_t blocks)
{
    struct sl_msg keys = take(bed, "keyer", SL_MSG_KEYS);
    static char texts[BLOCKS_MAX][8];
    struct sl_text list[BLOCKS_MAX];
    for (uint32_t i = 0; i < blocks; i++) {
        (void)snprintf(texts[i], sizeof(texts[i]), "b%u", i % BLOCKS_MAX);
        list[i] = sl_text_of(texts[i]);
    }
    answer(bed, "keyer", &keys, (struct sl_msg){.body.keys_reply.keys = {list, blocks}});
}

uint64_t side_begin(struct bed *bed, uint32_t type, struct side side, bool first)
{
    uint64_t seq = side_send(bed, type, side);
    if (first) {
        answer_engine(bed);
    }
    if (side.keyed == NULL) {
        keys_known(bed, side.blocks);
    }
    return seq;
}

bool answered(struct bed *bed, uint64_t seq, struct sl_msg *out)
{
    return fake_take_reply(&bed->fake, "client.1.0", seq, out);
}

struct sl_msg commit(struct bed *bed, uint64_t seq, uint32_t blocks)
{
    answer_reserve(bed, UINT32_MAX, SL_OK);
    (void)answer_copy(bed, 0, UINT64_MAX);
    (void)answer_copy(bed, 1, UINT64_MAX);
    for (uint32_t i = 0; i < blocks; i++) {
        index_put(bed, i, true, PART_BYTES);
    }
    answer_commit(bed);
    return reply_to(bed, seq);
}

void load_copied(struct bed *bed)
{
    (void)answer_copy(bed, 0, UINT64_MAX);
    (void)answer_copy(bed, 1, UINT64_MAX);
}

bool hold_ended(struct bed *bed)
{
    struct sl_msg end;
    if (!fake_take(&bed->fake, "registrar", SL_MSG_HOLD, &end)) {
        return false;
    }
    ck_assert_uint_eq(end.body.hold.hold_id, ID);
    ck_assert(!end.body.hold.ask);
    answer(bed, "registrar", &end, (struct sl_msg){.code = SL_OK});
    return true;
}

uint64_t metric(struct bed *bed, const char *name)
{
    return sl_metric_get(bed->fake.env.metrics, sl_metric_define(bed->fake.env.metrics, name));
}

sl_err arrived(struct bed *bed, const struct sl_item_receipt *receipts, uint32_t count,
               uint32_t which)
{
    struct sl_msg msg = {.type = SL_MSG_ARRIVED}, reply;
    msg.body.arrived.items.at = receipts;
    msg.body.arrived.items.count = count;
    fake_give(&bed->fake, "client.1.0", &msg);
    ck_assert(fake_take_reply(&bed->fake, "client.1.0", msg.seq, &reply));
    ck_assert_int_eq(reply.code, SL_OK);
    ck_assert_uint_eq(reply.body.arrived_reply.codes.count, count);
    sl_err code = (sl_err)reply.body.arrived_reply.codes.at[which];
    fake_advance(&bed->fake, 0);
    return code;
}

sl_err given_back(struct bed *bed, uint64_t id)
{
    struct sl_msg msg = {.type = SL_MSG_HANDOVER_END}, reply;
    msg.body.handover_end.handover_ids = (struct sl_u64s){&id, 1};
    fake_give(&bed->fake, "client.1.0", &msg);
    ck_assert(fake_take_reply(&bed->fake, "client.1.0", msg.seq, &reply));
    return (sl_err)reply.body.handover_end_reply.codes.at[0];
}

struct sl_item_receipt receipt_of(const char *last_key, uint32_t block_end)
{
    char text[80];
    int length = snprintf(text, sizeof(text), MODEL "/%s", last_key);
    struct sl_digest keys = sl_digest_of(text, (uint64_t)length);
    return (struct sl_item_receipt){
        .handover_id = ID, .block_end = block_end, .keys_low = keys.low, .keys_high = keys.high};
}

struct sl_item_receipt receipt_of_node(const char *node, const char *last_key, uint32_t block_end)
{
    struct sl_item_receipt receipt = receipt_of(last_key, block_end);
    receipt.node = sl_text_of(node);
    return receipt;
}

bool release_sent(struct bed *bed, const struct sl_item_receipt *receipt)
{
    struct sl_msg release;
    if (!fake_take(&bed->fake, "transporter.0", SL_MSG_HANDOVER_NOTIFY, &release)) {
        return false;
    }
    ck_assert_uint_eq(release.body.handover_notify.state, 5);
    ck_assert_uint_eq(release.body.handover_notify.handover_id, receipt->handover_id);
    ck_assert_str_eq(release.body.handover_notify.node.at, receipt->node.at);
    ck_assert_uint_eq(release.body.handover_notify.receipt.count, 1);
    const struct sl_item_receipt *item = release.body.handover_notify.receipt.at;
    ck_assert_uint_eq(item->handover_id, receipt->handover_id);
    ck_assert_uint_eq(item->block_end, receipt->block_end);
    ck_assert_uint_eq(item->keys_low, receipt->keys_low);
    ck_assert_uint_eq(item->keys_high, receipt->keys_high);
    ck_assert_str_eq(item->node.at, receipt->node.at);
    answer(bed, "transporter.0", &release, (struct sl_msg){.code = SL_OK});
    return true;
}

sl_err peer_releases(struct bed *bed, const struct sl_item_receipt *receipt)
{
    struct sl_msg msg = {.type = SL_MSG_HANDOVER_NOTIFY}, reply;
    msg.body.handover_notify =
        (struct sl_body_handover_notify){.node = sl_text_of("decodes-node"),
                                         .handover_id = receipt->handover_id,
                                         .state = 5,
                                         .receipt = {.at = receipt, .count = 1},
                                         .reason = sl_text_of("")};
    fake_give(&bed->fake, "transporter.0", &msg);
    ck_assert(fake_take_reply(&bed->fake, "transporter.0", msg.seq, &reply));
    return reply.code;
}

struct sl_msg bring_asked(struct bed *bed)
{
    struct sl_ticket_fields ticket;
    bring = take(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS);
    const struct sl_bytes *bytes = &bring.body.bring.ticket;
    ck_assert_int_eq(sl_ticket_read(bytes->at, bytes->length, &ticket, NULL), SL_OK);
    ck_assert_str_eq(ticket.node, "d");
    ticket_number = ticket.number;
    ticket_length = bytes->length;
    memcpy(ticket_bytes, bytes->at, bytes->length);
    return bring;
}

void bring_accepted(struct bed *bed)
{
    (void)bring_asked(bed);
    ck_assert_int_eq(landed(bed, 0), SL_OK);
}

void bring_answer(struct bed *bed, sl_err code)
{
    answer(bed, "transporter.0", &bring, (struct sl_msg){.code = code});
    fake_advance(&bed->fake, 0);
}

uint64_t direct_begin(struct bed *bed)
{
    uint64_t seq =
        side_begin(bed, SL_MSG_LOAD,
                   (struct side){.op_id = RECV, .id = ID, .blocks = 2, .direct = true}, true);
    bring_accepted(bed);
    return seq;
}

sl_err landed(struct bed *bed, uint64_t state)
{
    struct sl_msg msg = {.type = SL_MSG_LANDED}, reply;
    msg.body.landed.handover = ticket_number;
    msg.body.landed.state = state;
    fake_give(&bed->fake, "transporter.0", &msg);
    ck_assert(fake_take_reply(&bed->fake, "transporter.0", msg.seq, &reply));
    fake_advance(&bed->fake, 0);
    return reply.code;
}

struct sl_msg transporter_fence(struct bed *bed, uint64_t op_id)
{
    struct sl_msg fence = take(bed, "transporter.0", SL_MSG_FENCE);
    ck_assert_uint_eq(fence.op_id, op_id);
    ck_assert_uint_eq(fence.body.fence.items.count, 0);
    return fence;
}

void transporter_fenced(struct bed *bed, uint64_t op_id)
{
    struct sl_msg fence = transporter_fence(bed, op_id);
    answer(bed, "transporter.0", &fence, (struct sl_msg){.code = SL_OK});
    fake_advance(&bed->fake, 0);
}

struct sl_item_ticket ticket_of(const char *last_key, uint32_t block_end)
{
    struct sl_item_receipt receipt = receipt_of(last_key, block_end);
    return (struct sl_item_ticket){.bytes = {"secret", 6},
                                   .block_end = block_end,
                                   .keys_low = receipt.keys_low,
                                   .keys_high = receipt.keys_high};
}

uint64_t lend_begin(struct bed *bed, const struct sl_item_ticket *ticket, bool first)
{
    uint64_t send =
        side_begin(bed, SL_MSG_STORE,
                   (struct side){.op_id = SEND, .id = ID, .blocks = 2, .ticket = ticket}, first);
    ck_assert(!sent(bed, "registrar", SL_MSG_RESERVE));
    ck_assert_uint_eq(answer_copy(bed, 0, UINT64_MAX), 2);
    ck_assert_uint_eq(answer_copy(bed, 1, UINT64_MAX), 2);
    return send;
}
