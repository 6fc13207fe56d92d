/* tests/unit/actors/coordinator/coordinator_layers_test.c - stores and loads by layers: when layers
 * are copied, offered and reported, and how ops end halfway. */
#include "ipc/msg/sl_ticket.h"
#include "tests/unit/actors/coordinator/coordinator_support.h"

#define LAYERS            4u
#define PIECE             9000u /* layers may begin and end within the digest's chunks */
#define VALUE             (LAYERS * PIECE)
#define CHUNKS            3u
#define ID                UINT64_C(0x5115)
#define OP                UINT64_C(7)
#define BLOCKS            2u
#define CO_WAITERS        128u /* of one op */
#define HASH(part, chunk) (UINT64_C(1000) * (part) + (chunk) + 1)

static uint64_t piece_bytes = PIECE; /* of the engine; a test has larger ones */
static const uint64_t all_layers[] = {1, 2, 3, 4};

/* A world of two ranks, one pool of four layers. */
static void answer_deep_engine(struct bed *bed)
{
    struct sl_msg get = take(bed, "registrar", SL_MSG_ENGINE_GET);
    struct sl_item_pool pool = {.name = sl_text_of("attn")};
    struct sl_item_region regions[LAYERS * RANKS];
    for (uint32_t i = 0; i < LAYERS * RANKS; i++) {
        regions[i] = (struct sl_item_region){.rank = i / LAYERS,
                                             .layer = LAYERS - 1 - i % LAYERS,
                                             .handle_kind = 1,
                                             .pid = engine_proc.pid,
                                             .fd = 3,
                                             .length_bytes = 100 * piece_bytes,
                                             .block_stride_bytes = piece_bytes,
                                             .piece_bytes = piece_bytes,
                                             .block_count = 100};
    }
    struct sl_msg reply = {.code = SL_OK};
    reply.body.engine_get_reply =
        (struct sl_body_engine_get_reply){.engine_id = ENGINE_ID,
                                          .pid = engine_proc.pid,
                                          .start_time = engine_proc.start_time,
                                          .name = sl_text_of("e"),
                                          .model = sl_text_of(MODEL),
                                          .key_format = sl_text_of("sluice"),
                                          .block_tokens = 4,
                                          .world = RANKS,
                                          .pools = {&pool, 1},
                                          .regions = {regions, LAYERS * RANKS}};
    answer(bed, "registrar", &get, reply);
}

struct ask {
    uint64_t handover_id;
    uint32_t blocks; /* 0: BLOCKS */
    const struct sl_item_ticket *ticket;
    uint64_t ready, in, in_blocks;
    bool direct;
};

static struct sl_msg request_of(uint32_t type, struct ask ask)
{
    static uint32_t tokens[BLOCKS_MAX * 4];
    static uint64_t device[BLOCKS_MAX];
    uint32_t blocks = ask.blocks != 0 ? ask.blocks : BLOCKS;
    for (uint64_t i = 0; i < BLOCKS_MAX; i++) {
        device[i] = 10 + i;
    }
    struct sl_msg msg = {.type = type, .op_id = OP, .trace_id = OP};
    if (type == SL_MSG_STORE) {
        msg.body.store = (struct sl_body_store){.engine_id = ENGINE_ID,
                                                .tokens = {tokens, blocks * 16ull},
                                                .handover_id = ask.handover_id,
                                                .layer_ends = {all_layers, LAYERS},
                                                .layers_ready = ask.ready,
                                                .layered_blocks = {device, blocks}};
        msg.body.store.ticket.at = ask.ticket;
        msg.body.store.ticket.count = ask.ticket != NULL ? 1 : 0;
    } else {
        msg.body.load = (struct sl_body_load){.engine_id = ENGINE_ID,
                                              .tokens = {tokens, blocks * 16ull},
                                              .device_blocks = {device, blocks},
                                              .handover_id = ask.handover_id,
                                              .direct = ask.direct,
                                              .layer_ends = {all_layers, LAYERS},
                                              .layers_in = ask.in,
                                              .layer_blocks = ask.in_blocks};
    }
    return msg;
}

static uint64_t begin(struct bed *bed, uint32_t type, struct ask ask)
{
    struct sl_msg msg = request_of(type, ask);
    fake_give(&bed->fake, "client.1.0", &msg);
    answer_deep_engine(bed);
    answer_keys(bed);
    return msg.seq;
}

static bool answered(struct bed *bed, uint64_t seq, struct sl_msg *out)
{
    return fake_take_reply(&bed->fake, "client.1.0", seq, out);
}

/* LAYERS of a store: the first `layers` are ready. */
static sl_err ready_of(struct bed *bed, uint64_t op, uint64_t layers, const char *sender)
{
    struct sl_msg msg = {.type = SL_MSG_LAYERS}, reply;
    msg.body.layers.target_op = op;
    msg.body.layers.layers = layers;
    fake_give(&bed->fake, sender, &msg);
    ck_assert(fake_take_reply(&bed->fake, sender, msg.seq, &reply));
    return reply.code;
}

static void ready(struct bed *bed, uint64_t layers)
{
    ck_assert_int_eq(ready_of(bed, OP, layers, "client.1.0"), SL_OK);
}

/* The same from the process of a rank, which is registered as `member`. */
static sl_err word_of(struct bed *bed, uint64_t rank, uint64_t member, uint64_t layers)
{
    struct sl_msg msg = {.type = SL_MSG_LAYERS}, reply;
    msg.body.layers = (struct sl_body_layers){
        .target_op = OP, .rank_layers = layers, .rank = rank, .member = member};
    fake_give(&bed->fake, "client.9.0", &msg);
    ck_assert(fake_take_reply(&bed->fake, "client.9.0", msg.seq, &reply));
    return reply.code;
}

static void rank_ready(struct bed *bed, uint64_t rank, uint64_t layers)
{
    ck_assert_int_eq(word_of(bed, rank, ENGINE_ID, layers), SL_OK);
}

/* LAYERS that waits for the first `layers` of a load; returns its sequence. */
static uint64_t wait_for(struct bed *bed, uint64_t layers)
{
    struct sl_msg msg = {.type = SL_MSG_LAYERS};
    msg.body.layers.target_op = OP;
    msg.body.layers.layers = layers;
    msg.body.layers.wait = true;
    fake_give(&bed->fake, "client.1.0", &msg);
    return msg.seq;
}

static uint64_t rank_wait(struct bed *bed, const char *sender, uint64_t rank, uint64_t layers)
{
    struct sl_msg msg = {.type = SL_MSG_LAYERS};
    msg.body.layers = (struct sl_body_layers){
        .wait = true, .target_op = OP, .rank_layers = layers, .rank = rank, .member = ENGINE_ID};
    fake_give(&bed->fake, sender, &msg);
    return msg.seq;
}

static void told(struct bed *bed, uint64_t seq, uint64_t layers, uint64_t blocks)
{
    struct sl_msg reply;
    ck_assert_msg(answered(bed, seq, &reply), "the wait was not answered");
    ck_assert_int_eq(reply.code, SL_OK);
    ck_assert_uint_eq(reply.body.layers_reply.layers, layers);
    ck_assert_uint_eq(reply.body.layers_reply.block_count, blocks);
}

/* Takes a COPY of layers [first, end) of all parts to one rank, or a look at them, and answers it
 * except item `missing`. */
static void copied(struct bed *bed, uint32_t rank, uint64_t first, uint64_t end, uint64_t missing)
{
    char name[16];
    uint8_t done[2] = {0};
    struct sl_digest digests[BLOCKS_MAX];
    uint64_t hashes[BLOCKS_MAX * CHUNKS];
    swapper_name(rank, name);
    struct sl_msg copy = take(bed, name, SL_MSG_COPY), reply = {.code = SL_OK};
    uint64_t count = copy.body.copy.items.count;
    bool whole = first == 0 && end == LAYERS;
    struct sl_digest_span span = sl_digest_span_of(first * PIECE, end * PIECE, VALUE);
    for (uint64_t i = 0; i < count; i++) {
        const struct sl_item_piece *item = &copy.body.copy.items.at[i];
        ck_assert_uint_eq(item->first_layer, whole ? 0 : first);
        ck_assert_uint_eq(item->layer_end, whole ? 0 : end);
        ck_assert_uint_eq(item->length_bytes, LAYERS * piece_bytes);
        done[i / 8] = (uint8_t)(done[i / 8] | (i == missing ? 0u : 1u << (i % 8)));
        digests[i] = (struct sl_digest){.low = 100 * first + end, .high = item->ref};
        for (uint64_t k = 0; k < span.count; k++) {
            hashes[i * span.count + k] = HASH(item->ref, span.first + k);
        }
    }
    reply.body.copy_reply.done = (struct sl_bytes){done, (count + 7) / 8};
    if (copy.body.copy.chunks) {
        reply.body.copy_reply.chunks = (struct sl_bytes){hashes, count * span.count * 8};
    } else if (copy.body.copy.out) {
        reply.body.copy_reply.digests = (struct sl_bytes){digests, count * 16};
    }
    answer(bed, name, &copy, reply);
}

static void all_copied(struct bed *bed, uint64_t first, uint64_t end)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        copied(bed, rank, first, end, UINT64_MAX);
    }
}

static void nothing_is_copied(struct bed *bed)
{
    ck_assert(!sent(bed, "swapper.0", SL_MSG_COPY));
    ck_assert(!sent(bed, "swapper.1", SL_MSG_COPY));
}

static uint64_t claims_given_back(struct bed *bed)
{
    struct sl_msg abort;
    uint64_t count = 0;
    while (fake_take(&bed->fake, "registrar", SL_MSG_ABORT, &abort)) {
        count += abort.body.abort.items.count;
    }
    return count;
}

static void index_put_all(struct bed *bed, uint32_t blocks)
{
    for (uint32_t i = 0; i < blocks; i++) {
        index_put(bed, i, true, LAYERS * piece_bytes);
    }
}

/* ---- store ---- */

START_TEST(a_layer_is_copied_when_it_is_ready_and_not_before)
    {
        struct bed *bed = bed_make(NULL);
        struct sl_msg reply;
        uint64_t seq = begin(bed, SL_MSG_STORE, (struct ask){0});
        answer_reserve(bed, UINT32_MAX, SL_OK);
        nothing_is_copied(bed);

        ready(bed, 1);
        ready(bed, 2); /* while the first is copied */
        ready(bed, 3);
        all_copied(bed, 0, 1);
        all_copied(bed, 1, 3); /* layers that became ready meanwhile */
        nothing_is_copied(bed);
        ck_assert(!answered(bed, seq, &reply));
        ready(bed, 4);
        ready(bed, 4); /* sent again */
        all_copied(bed, 3, 4);

        struct sl_msg commit = take(bed, "registrar", SL_MSG_COMMIT);
        ck_assert_uint_eq(commit.body.commit.items.count, BLOCKS * RANKS);
        for (uint64_t i = 0; i < BLOCKS * RANKS; i++) {
            const struct sl_item_claim *claim = &commit.body.commit.items.at[i];
            uint64_t hashes[CHUNKS] = {HASH(claim->ref, 0), HASH(claim->ref, 1),
                                       HASH(claim->ref, 2)};
            struct sl_digest want = sl_digest_of_chunks(hashes, CHUNKS);
            ck_assert_uint_eq(claim->digest_low, want.low);
            ck_assert_uint_eq(claim->digest_high, want.high);
        }
        uint64_t codes[BLOCKS * RANKS] = {0};
        answer(bed, "registrar", &commit,
               (struct sl_msg){.body.commit_reply.codes = {codes, BLOCKS * RANKS}});
        reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(reply.body.store_reply.fenced);
        ck_assert_uint_eq(claims_given_back(bed), 0);
        bed_end(bed);
    }
END_TEST

/* After a coordinator's restart, the STORE itself reports the layers that are ready. */
START_TEST(layers_that_were_ready_before_are_copied_whole)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t seq = begin(bed, SL_MSG_STORE, (struct ask){.ready = 2});
        struct sl_msg again = request_of(SL_MSG_STORE, (struct ask){.ready = LAYERS});
        again.seq = seq;

        fake_give(&bed->fake, "client.1.0", &again);
        answer_reserve(bed, UINT32_MAX, SL_OK);

        all_copied(bed, 0, LAYERS);
        answer_commit(bed);
        ck_assert_int_eq(reply_to(bed, seq).code, SL_OK);
        bed_end(bed);
    }
END_TEST

START_TEST(a_part_without_one_of_its_layers_costs_its_block)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t seq = begin(bed, SL_MSG_STORE, (struct ask){.ready = 1});
        answer_reserve(bed, UINT32_MAX, SL_OK);
        copied(bed, 0, 0, 1, UINT64_MAX);
        copied(bed, 1, 0, 1, 1); /* of block 1 */
        ready(bed, LAYERS);
        all_copied(bed, 1, LAYERS); /* what is broken is not asked for again */

        struct sl_msg commit = take(bed, "registrar", SL_MSG_COMMIT), reply;
        ck_assert_uint_eq(commit.body.commit.items.count, RANKS);
        uint64_t codes[RANKS] = {0};
        answer(bed, "registrar", &commit,
               (struct sl_msg){.body.commit_reply.codes = {codes, RANKS}});

        reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_ERR_INCOMPLETE);
        ck_assert_uint_eq(*(const uint8_t *)reply.body.store_reply.stored.at, 1);
        ck_assert_uint_eq(claims_given_back(bed), RANKS);
        bed_end(bed);
    }
END_TEST

START_TEST(a_store_whose_last_layer_never_comes_gives_everything_back)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t seq = begin(bed, SL_MSG_STORE, (struct ask){.ready = LAYERS - 1});
        answer_reserve(bed, UINT32_MAX, SL_OK);
        all_copied(bed, 0, LAYERS - 1);

        fake_advance(&bed->fake, 2 * SL_NS_PER_S);

        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_ERR_TIMEOUT);
        ck_assert_msg(strstr(reply.text.at, "next layer") != NULL, "%s", reply.text.at);
        ck_assert(reply.body.store_reply.fenced);
        ck_assert_uint_eq(claims_given_back(bed), BLOCKS * RANKS);
        ready(bed, LAYERS); /* too late: no layer is written any more */
        nothing_is_copied(bed);
        bed_end(bed);
    }
END_TEST

START_TEST(an_engine_that_dies_between_layers_takes_its_store_along)
    {
        struct bed *bed = bed_make(NULL);
        (void)begin(bed, SL_MSG_STORE, (struct ask){.ready = 2});
        answer_reserve(bed, UINT32_MAX, SL_OK);
        all_copied(bed, 0, 2);

        fake_process_end(&bed->fake, engine_proc);

        ck_assert_uint_eq(claims_given_back(bed), BLOCKS * RANKS);
        nothing_is_copied(bed);
        bed_end(bed);
    }
END_TEST

START_TEST(a_store_cancelled_in_a_layer_is_fenced_before_it_gives_back)
    {
        struct bed *bed = bed_make(NULL);
        struct sl_msg cancel = {.type = SL_MSG_CANCEL}, reply;
        uint64_t seq = begin(bed, SL_MSG_STORE, (struct ask){.ready = 1});
        answer_reserve(bed, UINT32_MAX, SL_OK);
        copied(bed, 0, 0, 1, UINT64_MAX); /* rank 1 is slow */

        cancel.body.cancel.target_op = OP;
        fake_give(&bed->fake, "client.1.0", &cancel);

        reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_ERR_CANCELLED);
        ck_assert(!reply.body.store_reply.fenced);
        ready(bed, 2);
        ck_assert(!sent(bed, "swapper.0", SL_MSG_COPY));
        ck_assert_uint_eq(claims_given_back(bed), 0);
        answer_fence(bed, 1, OP);
        ck_assert_uint_eq(claims_given_back(bed), BLOCKS * RANKS);
        bed_end(bed);
    }
END_TEST

/* The COPY is sent again to the swapper's successor, whose answer counts after a fence. */
START_TEST(a_swapper_killed_between_layers_costs_a_fence)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t seq = begin(bed, SL_MSG_STORE, (struct ask){.ready = 1});
        answer_reserve(bed, UINT32_MAX, SL_OK);
        all_copied(bed, 0, 1);
        ready(bed, 2);
        copied(bed, 0, 1, 2, UINT64_MAX);
        fake_process_end(&bed->fake, swapper_procs[1]);
        fake_advance(&bed->fake, 150 * SL_NS_PER_MS);
        ready(bed, LAYERS); /* while it is settled */

        copied(bed, 1, 1, 2, UINT64_MAX);

        ck_assert(!sent(bed, "swapper.0", SL_MSG_COPY));
        answer_fence(bed, 1, OP);
        while (sent(bed, "swapper.1", SL_MSG_PING)) {
        }
        copied(bed, 0, 2, LAYERS, UINT64_MAX);
        struct sl_msg again;
        ck_assert(
            fake_take(&bed->fake, "swapper.1", SL_MSG_COPY, &again)); /* the first one, resent */
        copied(bed, 1, 2, LAYERS, UINT64_MAX);
        answer_commit(bed);
        ck_assert_int_eq(reply_to(bed, seq).code, SL_OK);
        bed_end(bed);
    }
END_TEST

START_TEST(a_layer_is_ready_when_all_ranks_have_said_so)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t seq = begin(bed, SL_MSG_STORE, (struct ask){0});
        answer_reserve(bed, UINT32_MAX, SL_OK);

        rank_ready(bed, 0, 3);
        rank_ready(bed, 0, 3); /* sent again: still one rank */
        nothing_is_copied(bed);
        rank_ready(bed, 1, 2);
        rank_ready(bed, 1, 1); /* came late */
        all_copied(bed, 0, 2);
        nothing_is_copied(bed);
        rank_ready(bed, 1, LAYERS);
        all_copied(bed, 2, 3);
        ready(bed, LAYERS); /* its own client reports for all ranks */
        all_copied(bed, 3, LAYERS);

        answer_commit(bed);
        ck_assert_int_eq(reply_to(bed, seq).code, SL_OK);
        bed_end(bed);
    }
END_TEST

START_TEST(a_rank_that_says_nothing_costs_the_store_its_deadline)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t seq = begin(bed, SL_MSG_STORE, (struct ask){0});
        answer_reserve(bed, UINT32_MAX, SL_OK);
        rank_ready(bed, 0, LAYERS);
        rank_ready(bed, 1, 2); /* and dies */
        all_copied(bed, 0, 2);

        fake_advance(&bed->fake, 2 * SL_NS_PER_S);

        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_ERR_TIMEOUT);
        ck_assert(reply.body.store_reply.fenced);
        ck_assert_uint_eq(claims_given_back(bed), BLOCKS * RANKS);
        rank_ready(bed, 1, LAYERS);
        nothing_is_copied(bed);
        bed_end(bed);
    }
END_TEST

static const struct {
    uint64_t rank, member, layers;
    sl_err want;
} bad_words[] = {
    {0, ENGINE_ID + 1, 1, SL_ERR_PERMISSION}, /* not registered as this rank */
    {0, 0, 1, SL_ERR_PERMISSION},
    {RANKS, ENGINE_ID, 1, SL_ERR_PERMISSION}, /* no such rank */
    {0, ENGINE_ID, LAYERS + 1, SL_ERR_INVALID},
    {0, ENGINE_ID, 0, SL_ERR_INVALID},
};

START_TEST(words_of_others_are_refused)
    {
        struct bed *bed = bed_make(NULL);
        ck_assert_int_eq(word_of(bed, 0, ENGINE_ID, 1), SL_ERR_NOT_FOUND);
        (void)begin(bed, SL_MSG_STORE, (struct ask){0});
        answer_reserve(bed, UINT32_MAX, SL_OK);
        rank_ready(bed, 1, LAYERS);

        sl_err got = word_of(bed, bad_words[_i].rank, bad_words[_i].member, bad_words[_i].layers);

        ck_assert_int_eq(got, bad_words[_i].want);
        nothing_is_copied(bed);
        bed_end(bed);
    }
END_TEST

/* For an engine's first op, the coordinator asks the registrar for the engine's ranks. */
START_TEST(layer_reports_before_the_engine_is_known_count_only_for_its_ranks)
    {
        struct bed *bed = bed_make(NULL);
        struct sl_msg msg = request_of(SL_MSG_STORE, (struct ask){0});
        fake_give(&bed->fake, "client.1.0", &msg);
        rank_ready(bed, 0, 3);
        ck_assert_int_eq(word_of(bed, 1, ENGINE_ID + 1, LAYERS), SL_OK);

        answer_deep_engine(bed);
        answer_keys(bed);
        answer_reserve(bed, UINT32_MAX, SL_OK);

        nothing_is_copied(bed);
        rank_ready(bed, 1, 1);
        all_copied(bed, 0, 1);
        rank_ready(bed, 1, 3);
        all_copied(bed, 1, 3);
        bed_end(bed);
    }
END_TEST

START_TEST(layers_of_other_ops_are_refused)
    {
        struct bed *bed = bed_make(NULL);
        struct sl_msg reply;
        ck_assert_int_eq(ready_of(bed, OP, 1, "client.1.0"), SL_ERR_NOT_FOUND);
        (void)begin(bed, SL_MSG_STORE, (struct ask){0});
        answer_reserve(bed, UINT32_MAX, SL_OK);

        ck_assert_int_eq(ready_of(bed, OP, LAYERS + 1, "client.1.0"), SL_ERR_INVALID);
        ck_assert_int_eq(ready_of(bed, OP, 1, "client.2.0"), SL_ERR_NOT_FOUND);
        uint64_t wait = wait_for(bed, 1); /* nothing is loaded for a store */
        ck_assert(answered(bed, wait, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_INVALID);
        nothing_is_copied(bed);
        (void)op_send(bed, SL_MSG_STORE, 8, 1);
        ck_assert_int_eq(ready_of(bed, 8, 1, "client.1.0"), SL_ERR_INVALID);
        bed_end(bed);
    }
END_TEST

static const struct {
    uint64_t ends[5], count;
} bad_ends[] = {
    {{1, 2, 3}, 3},       /* not all of the pool */
    {{1, 2, 3, 5}, 4},    /* more than all */
    {{2, 1, 3, 4}, 4},    /* backwards */
    {{1, 2, 2, 4}, 4},    /* an empty layer */
    {{1, 2, 3, 4, 4}, 5}, /* the same at the end */
};

START_TEST(layers_that_do_not_fit_the_engine_are_refused)
    {
        struct bed *bed = bed_make(NULL);
        struct sl_msg msg = request_of(_i % 2 == 0 ? SL_MSG_STORE : SL_MSG_LOAD, (struct ask){0});
        struct sl_u64s ends = {bad_ends[_i].ends, bad_ends[_i].count};
        if (msg.type == SL_MSG_STORE) {
            msg.body.store.layer_ends = ends;
        } else {
            msg.body.load.layer_ends = ends;
        }
        fake_give(&bed->fake, "client.1.0", &msg);
        answer_deep_engine(bed);

        struct sl_msg reply = reply_to(bed, msg.seq);
        ck_assert_int_eq(reply.code, SL_ERR_INVALID);
        ck_assert_msg(strstr(reply.text.at, "layer_ends") != NULL, "%s", reply.text.at);
        bed_end(bed);
    }
END_TEST

/* ---- load ---- */

START_TEST(layers_are_told_when_all_blocks_have_them)
    {
        struct bed *bed = bed_make(NULL);
        struct sl_msg reply;
        index_put_all(bed, BLOCKS);
        uint64_t seq =
            begin(bed, SL_MSG_LOAD, (struct ask){.blocks = 3}); /* the third does not exist */
        uint64_t first = wait_for(bed, 1), last = wait_for(bed, LAYERS);

        copied(bed, 0, 0, 1, UINT64_MAX);
        ck_assert(!answered(bed, first, &reply)); /* rank 1 has not */
        copied(bed, 1, 0, 1, UINT64_MAX);
        told(bed, first, 1, BLOCKS);
        ck_assert(!answered(bed, last, &reply));
        ck_assert(!answered(bed, seq, &reply));
        all_copied(bed, 1, LAYERS); /* together: they are small */

        told(bed, last, LAYERS, BLOCKS);
        reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.load_reply.block_count, BLOCKS);
        ck_assert_uint_eq(pins(bed), 0);
        told(bed, wait_for(bed, 2), LAYERS, BLOCKS); /* also after the end */
        bed_end(bed);
    }
END_TEST

/* A round trip for each layer would cost more than the copy: 8 MiB of a rank, then twice that. */
START_TEST(a_load_asks_for_more_and_more_layers_at_once)
    {
        static const char *const settings[] = {"memory", "2GiB", NULL};
        piece_bytes = 4 * SL_MIB;
        struct bed *bed = bed_make(settings);
        index_put_all(bed, BLOCKS);
        uint64_t seq = begin(bed, SL_MSG_LOAD, (struct ask){0});

        all_copied(bed, 0, 1);
        all_copied(bed, 1, 2);
        all_copied(bed, 2, 4);

        ck_assert_int_eq(reply_to(bed, seq).code, SL_OK);
        bed_end(bed);
        piece_bytes = PIECE;
    }
END_TEST

START_TEST(ranks_wait_for_layers_of_another_clients_load)
    {
        struct bed *bed = bed_make(NULL);
        struct sl_msg reply;
        index_put_all(bed, BLOCKS);
        uint64_t seq = begin(bed, SL_MSG_LOAD, (struct ask){.blocks = BLOCKS});
        uint64_t first = rank_wait(bed, "client.8.0", 0, 1);
        uint64_t second = rank_wait(bed, "client.9.0", 1, LAYERS);

        copied(bed, 0, 0, 1, UINT64_MAX);
        ck_assert(!fake_take_reply(&bed->fake, "client.8.0", first, &reply)); /* rank 1 has not */
        copied(bed, 1, 0, 1, UINT64_MAX);
        ck_assert(fake_take_reply(&bed->fake, "client.8.0", first, &reply));
        ck_assert_uint_eq(reply.body.layers_reply.layers, 1);
        ck_assert_uint_eq(reply.body.layers_reply.block_count, BLOCKS);
        ck_assert(!fake_take_reply(&bed->fake, "client.9.0", second, &reply));
        all_copied(bed, 1, LAYERS);

        ck_assert(fake_take_reply(&bed->fake, "client.9.0", second, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.layers_reply.layers, LAYERS);
        ck_assert_int_eq(reply_to(bed, seq).code, SL_OK);
        first = rank_wait(bed, "client.8.0", 0, 2); /* when it is over */
        ck_assert(fake_take_reply(&bed->fake, "client.8.0", first, &reply));
        ck_assert_uint_eq(reply.body.layers_reply.layers, LAYERS);
        bed_end(bed);
    }
END_TEST

START_TEST(a_load_that_fails_behind_a_told_layer_brings_nothing)
    {
        struct bed *bed = bed_make(NULL);
        struct sl_msg reply;
        index_put_all(bed, BLOCKS);
        uint64_t seq = begin(bed, SL_MSG_LOAD, (struct ask){0});
        all_copied(bed, 0, 1);
        told(bed, wait_for(bed, 1), 1, BLOCKS);
        uint64_t next = wait_for(bed, 2);

        copied(bed, 0, 1, LAYERS, UINT64_MAX);
        copied(bed, 1, 1, LAYERS, 1);

        ck_assert(answered(bed, next, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_INCOMPLETE);
        reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_ERR_INCOMPLETE);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 0);
        ck_assert_uint_eq(reply.body.load_reply.from_memory, 0);
        ck_assert_uint_eq(pins(bed), 0);
        ck_assert(answered(bed, wait_for(bed, 1), &reply)); /* also for the reported layer */
        ck_assert_int_eq(reply.code, SL_ERR_INCOMPLETE);
        bed_end(bed);
    }
END_TEST

START_TEST(waits_end_by_their_deadline_and_with_the_op)
    {
        struct bed *bed = bed_make(NULL);
        struct sl_msg reply, shortly = {.type = SL_MSG_LAYERS, .budget_ns = SL_NS_PER_MS};
        index_put_all(bed, BLOCKS);
        uint64_t seq = begin(bed, SL_MSG_LOAD, (struct ask){0});
        shortly.body.layers.target_op = OP;
        shortly.body.layers.layers = 1;
        shortly.body.layers.wait = true;
        fake_give(&bed->fake, "client.1.0", &shortly);
        uint64_t with_op = wait_for(bed, 1);
        for (uint32_t i = 2; i < CO_WAITERS; i++) {
            (void)wait_for(bed, 1);
        }
        uint64_t too_many = wait_for(bed, 1);
        ck_assert(answered(bed, too_many, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_LIMIT);
        ck_assert_int_eq(ready_of(bed, OP, 1, "client.1.0"), SL_ERR_INVALID); /* no store */
        /* The same request sent as another kind would be one more of these. */
        struct sl_msg other = {.type = SL_MSG_OP_FENCED, .body.op_fenced.target_op = OP};
        fake_give(&bed->fake, "client.1.0", &other);
        ck_assert(!answered(bed, other.seq, &reply));
        struct sl_msg again = shortly;
        again.seq = other.seq;
        fake_give(&bed->fake, "client.1.0", &again);
        ck_assert(answered(bed, other.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_LIMIT);

        fake_advance(&bed->fake, SL_NS_PER_MS);
        ck_assert(answered(bed, shortly.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_TIMEOUT);
        ck_assert(!answered(bed, with_op, &reply));
        fake_advance(&bed->fake, 2 * SL_NS_PER_S); /* the swappers never answer */

        ck_assert(answered(bed, with_op, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_TIMEOUT);
        ck_assert_int_eq(reply_to(bed, seq).code, SL_ERR_TIMEOUT);
        bed_end(bed);
    }
END_TEST

/* After a coordinator's restart: reported layers stay valid and are not written again. */
START_TEST(a_load_that_comes_again_goes_on_behind_what_was_told)
    {
        struct bed *bed = bed_make(NULL);
        index_put_all(bed, 3);
        uint64_t seq =
            begin(bed, SL_MSG_LOAD, (struct ask){.blocks = 3, .in = 2, .in_blocks = BLOCKS});

        all_copied(bed, 2, LAYERS); /* and only of the reported blocks */

        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.load_reply.block_count, BLOCKS);
        bed_end(bed);
    }
END_TEST

START_TEST(a_load_that_finds_less_than_was_told_fails)
    {
        struct bed *bed = bed_make(NULL);
        index_put_all(bed, 1);
        uint64_t seq = begin(bed, SL_MSG_LOAD, (struct ask){.in = 2, .in_blocks = BLOCKS});

        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_ERR_INCOMPLETE);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 0);
        nothing_is_copied(bed);
        bed_end(bed);
    }
END_TEST

START_TEST(a_miss_by_layers_tells_that_there_is_nothing)
    {
        struct bed *bed = bed_make(NULL);
        uint64_t seq = begin(bed, SL_MSG_LOAD, (struct ask){0});

        ck_assert_int_eq(reply_to(bed, seq).code, SL_OK);
        told(bed, wait_for(bed, 1), LAYERS, 0);
        bed_end(bed);
    }
END_TEST

/* ---- pushed ---- */

static struct sl_item_ticket ticket_make(void)
{
    char text[80];
    int length = snprintf(text, sizeof(text), MODEL "/b%u", BLOCKS - 1);
    struct sl_digest keys = sl_digest_of(text, (uint64_t)length);
    return (struct sl_item_ticket){
        .bytes = {"secret", 6}, .block_end = BLOCKS, .keys_low = keys.low, .keys_high = keys.high};
}

/* Takes the next LEND: layers [first, end) of all parts. */
static struct sl_msg lent(struct bed *bed, uint64_t number, uint64_t first, uint64_t end)
{
    struct sl_msg lend = take(bed, "transporter.0", SL_MSG_LEND);
    const struct sl_body_lend *body = &lend.body.lend;
    ck_assert_uint_eq(body->number, number);
    ck_assert(body->last == (end == LAYERS));
    ck_assert_uint_eq(body->pieces.count, BLOCKS * RANKS);
    ck_assert_uint_eq(body->slots.count, BLOCKS * RANKS);
    for (uint64_t i = 0; i < BLOCKS * RANKS; i++) {
        const struct sl_item_arrived *piece = &body->pieces.at[i];
        ck_assert_uint_eq(piece->part, i);
        ck_assert_uint_eq(piece->part_offset_bytes, first * PIECE);
        ck_assert_uint_eq(body->slots.at[i].device_block, 10 + i / RANKS);
        ck_assert_uint_eq(piece->length_bytes, (end - first) * PIECE);
        ck_assert_uint_eq(piece->digest_low, 100 * first + end); /* only of these layers */
    }
    return lend;
}

static void acknowledge(struct bed *bed, const struct sl_msg *lend, sl_err code)
{
    answer(bed, "transporter.0", lend, (struct sl_msg){.code = code});
}

START_TEST(layers_are_lent_while_the_next_ones_are_looked_at)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_item_ticket ticket = ticket_make();
        uint64_t seq = begin(bed, SL_MSG_STORE, (struct ask){.handover_id = ID, .ticket = &ticket});
        nothing_is_copied(bed);
        ready(bed, 1);
        all_copied(bed, 0, 1);

        struct sl_msg lend = lent(bed, 1, 0, 1), reply; /* the others are not computed yet */
        ready(bed, 2);
        all_copied(bed, 1, 2);
        ready(bed, 3); /* waits: one is being noted, one is looked at */
        nothing_is_copied(bed);
        ck_assert(!sent(bed, "transporter.0", SL_MSG_LEND));
        acknowledge(bed, &lend, SL_OK);
        lend = lent(bed, 2, 1, 2);
        acknowledge(bed, &lend, SL_OK);
        all_copied(bed, 2, 3);
        lend = lent(bed, 3, 2, 3);
        acknowledge(bed, &lend, SL_OK);
        ready(bed, 4);
        all_copied(bed, 3, 4);
        lend = lent(bed, 4, 3, 4);
        ck_assert(!answered(bed, seq, &reply)); /* until decode has all */
        acknowledge(bed, &lend, SL_OK);

        reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.store_reply.receipt.count, 1);
        ck_assert_uint_eq(claims_given_back(bed), 0);
        ck_assert(!sent(bed, "transporter.0", SL_MSG_FENCE));
        bed_end(bed);
    }
END_TEST

START_TEST(a_loan_that_fails_waits_for_the_looks_before_it_goes_on)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_item_ticket ticket = ticket_make();
        uint64_t seq = begin(bed, SL_MSG_STORE,
                             (struct ask){.handover_id = ID, .ticket = &ticket, .ready = 1});
        all_copied(bed, 0, 1);
        struct sl_msg lend = lent(bed, 1, 0, 1);
        ready(bed, 2);
        copied(bed, 0, 1, 2, UINT64_MAX);

        acknowledge(bed, &lend, SL_ERR_UNREACHABLE);
        ck_assert(!sent(bed, "registrar", SL_MSG_RESERVE)); /* rank 1 reads them */
        copied(bed, 1, 1, 2, UINT64_MAX);

        answer_reserve(bed, UINT32_MAX, SL_OK); /* through storage, from the first layer on */
        all_copied(bed, 0, 2);
        ready(bed, LAYERS);
        all_copied(bed, 2, LAYERS);
        answer_commit(bed);
        ck_assert_int_eq(reply_to(bed, seq).code, SL_OK);
        bed_end(bed);
    }
END_TEST

/* The loan fails while the engine computes the next layer, when no request is pending. */
START_TEST(a_loan_that_has_failed_is_known_with_the_next_layer)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_item_ticket ticket = ticket_make();
        uint64_t seq = begin(bed, SL_MSG_STORE,
                             (struct ask){.handover_id = ID, .ticket = &ticket, .ready = 1});
        all_copied(bed, 0, 1);
        struct sl_msg lend = lent(bed, 1, 0, 1);
        acknowledge(bed, &lend, SL_OK);
        ready(bed, 2);
        all_copied(bed, 1, 2);
        lend = lent(bed, 2, 1, 2);

        acknowledge(bed, &lend, SL_ERR_PEER_DIED);

        answer_reserve(bed, UINT32_MAX, SL_OK);
        all_copied(bed, 0, 2);
        ready(bed, LAYERS);
        all_copied(bed, 2, LAYERS);
        answer_commit(bed);
        ck_assert_int_eq(reply_to(bed, seq).code, SL_OK);
        bed_end(bed);
    }
END_TEST

START_TEST(a_lent_store_that_ends_early_ends_its_loan)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_item_ticket ticket = ticket_make();
        uint64_t seq = begin(bed, SL_MSG_STORE,
                             (struct ask){.handover_id = ID, .ticket = &ticket, .ready = 1});
        all_copied(bed, 0, 1);
        struct sl_msg lend = lent(bed, 1, 0, 1);
        acknowledge(bed, &lend, SL_OK);

        fake_advance(&bed->fake, 2 * SL_NS_PER_S); /* the next layer is never computed */

        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_ERR_TIMEOUT);
        ck_assert(!reply.body.store_reply.fenced);
        struct sl_msg fence = take(bed, "transporter.0", SL_MSG_FENCE);
        ck_assert_uint_eq(fence.op_id, OP);
        bed_end(bed);
    }
END_TEST

static uint64_t ticket_number; /* of the last BRING */
static struct sl_msg bring;

static sl_err landed(struct bed *bed, uint64_t state, const struct sl_item_arrived *pieces,
                     uint64_t count)
{
    struct sl_msg msg = {.type = SL_MSG_LANDED}, reply;
    msg.body.landed.handover = ticket_number;
    msg.body.landed.state = state;
    msg.body.landed.pieces.at = pieces;
    msg.body.landed.pieces.count = count;
    fake_give(&bed->fake, "transporter.0", &msg);
    ck_assert(fake_take_reply(&bed->fake, "transporter.0", msg.seq, &reply));
    fake_advance(&bed->fake, 0);
    return reply.code;
}

/* Runs decode's side up to where it waits for layers. */
static uint64_t direct_begin(struct bed *bed)
{
    struct sl_ticket_fields ticket;
    uint64_t seq = begin(bed, SL_MSG_LOAD, (struct ask){.handover_id = ID, .direct = true});
    bring = take(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS);
    const struct sl_bytes *bytes = &bring.body.bring.ticket;
    ck_assert_int_eq(sl_ticket_read(bytes->at, bytes->length, &ticket, NULL), SL_OK);
    ticket_number = ticket.number;
    ck_assert_int_eq(landed(bed, 0, NULL, 0), SL_OK);
    return seq;
}

/* Reports layers [first, end) of parts [from, behind) as arrived in the pools. */
static void arrived(struct bed *bed, uint64_t first, uint64_t end, uint32_t from, uint32_t behind,
                    bool last)
{
    struct sl_item_arrived pieces[BLOCKS * RANKS];
    for (uint32_t i = from; i < behind; i++) {
        pieces[i - from] = (struct sl_item_arrived){
            .part = i, .part_offset_bytes = first * PIECE, .length_bytes = (end - first) * PIECE};
    }
    ck_assert_int_eq(landed(bed, last ? 2 : 1, pieces, behind - from), SL_OK);
}

static void fails(struct bed *bed, sl_err code)
{
    answer(bed, "transporter.0", &bring, (struct sl_msg){.code = code});
    fake_advance(&bed->fake, 0);
}

START_TEST(layers_are_told_as_they_arrive)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_msg reply;
        uint64_t seq = direct_begin(bed);
        uint64_t first = wait_for(bed, 1);
        arrived(bed, 0, 1, 0, 3, false);
        ck_assert(!answered(bed, first, &reply)); /* the last part has not */

        arrived(bed, 0, 1, 3, 4, false);
        told(bed, first, 1, BLOCKS); /* prefill has not committed: it may be computing */
        ck_assert(!answered(bed, seq, &reply));
        arrived(bed, 0, 1, 0, 4, false); /* reported again */
        arrived(bed, 2, 3, 0, 4, false); /* not before the one in front of it */
        uint64_t third = wait_for(bed, 3);
        ck_assert(!answered(bed, third, &reply));
        arrived(bed, 1, 3, 0, 4, false);
        told(bed, third, 3, BLOCKS);
        ck_assert(!answered(bed, seq, &reply));
        arrived(bed, 3, 4, 0, 4, true); /* the last */
        nothing_is_copied(bed);

        reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.load_reply.block_count, BLOCKS);
        ck_assert_uint_eq(reply.body.load_reply.from_remote, BLOCKS);
        ck_assert(reply.body.load_reply.fenced);
        bed_end(bed);
    }
END_TEST

START_TEST(a_load_does_not_end_before_the_word_of_the_last_layer)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_msg reply;
        uint64_t seq = direct_begin(bed);
        arrived(bed, 0, LAYERS, 0, 4, false);
        ck_assert(!answered(bed, seq, &reply));

        arrived(bed, 0, 0, 0, 0, true);

        ck_assert_int_eq(reply_to(bed, seq).code, SL_OK);
        bed_end(bed);
    }
END_TEST

START_TEST(a_hand_over_that_ends_behind_a_told_layer_is_a_502)
    {
        const char *const settings[] = {"handover_fallback", "false", NULL};
        struct bed *bed = direct_bed(settings);
        struct sl_msg reply;
        uint64_t seq = direct_begin(bed);
        arrived(bed, 0, 1, 0, 4, false);
        told(bed, wait_for(bed, 1), 1, BLOCKS);
        uint64_t next = wait_for(bed, 2);

        fails(bed, SL_ERR_PEER_DIED);

        ck_assert(answered(bed, next, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_HANDOVER);
        reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_ERR_HANDOVER);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 0);
        ck_assert(reply.body.load_reply.fenced);
        bed_end(bed);
    }
END_TEST

/* After a transporter's restart: prefill may lend everything once more. */
START_TEST(what_was_told_is_not_read_again)
    {
        struct bed *bed = direct_bed(NULL);
        (void)direct_begin(bed);
        ck_assert_int_eq(landed(bed, 0, NULL, 0), SL_OK);
        arrived(bed, 0, 1, 0, 4, false);
        told(bed, wait_for(bed, 1), 1, BLOCKS);

        ck_assert_int_eq(landed(bed, 0, NULL, 0), SL_ERR_STALE);

        bed_end(bed);
    }
END_TEST

/* Including wrong bytes: they were read into a layer that was not reported. */
static const sl_err read_fails[] = {SL_ERR_PEER_DIED, SL_ERR_CORRUPT};

/* Prefill commits in storage; reported layers stay as they are. */
START_TEST(layers_that_were_told_are_not_loaded_again_from_storage)
    {
        struct bed *bed = direct_bed(NULL);
        struct sl_item_ticket ticket = ticket_make();
        struct sl_item_receipt receipt = {.handover_id = ID,
                                          .block_end = BLOCKS,
                                          .keys_low = ticket.keys_low,
                                          .keys_high = ticket.keys_high};
        struct sl_msg msg = {.type = SL_MSG_ARRIVED};
        uint64_t seq = direct_begin(bed);
        arrived(bed, 0, 2, 0, 4, false);
        told(bed, wait_for(bed, 2), 2, BLOCKS);
        fails(bed, read_fails[_i]);
        index_put_all(bed, BLOCKS);

        msg.body.arrived.items.at = &receipt;
        msg.body.arrived.items.count = 1;
        fake_give(&bed->fake, "client.1.0", &msg);
        fake_advance(&bed->fake, 0);

        all_copied(bed, 2, LAYERS);
        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.load_reply.block_count, BLOCKS);
        bed_end(bed);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("coordinator_layers");
    TCase *store = tcase_create("store");
    tcase_add_test(store, a_layer_is_copied_when_it_is_ready_and_not_before);
    tcase_add_test(store, layers_that_were_ready_before_are_copied_whole);
    tcase_add_test(store, a_part_without_one_of_its_layers_costs_its_block);
    tcase_add_test(store, a_store_whose_last_layer_never_comes_gives_everything_back);
    tcase_add_test(store, an_engine_that_dies_between_layers_takes_its_store_along);
    tcase_add_test(store, a_store_cancelled_in_a_layer_is_fenced_before_it_gives_back);
    tcase_add_test(store, a_swapper_killed_between_layers_costs_a_fence);
    tcase_add_test(store, a_layer_is_ready_when_all_ranks_have_said_so);
    tcase_add_test(store, a_rank_that_says_nothing_costs_the_store_its_deadline);
    tcase_add_loop_test(store, words_of_others_are_refused, 0, SL_COUNT(bad_words));
    tcase_add_test(store, layer_reports_before_the_engine_is_known_count_only_for_its_ranks);
    tcase_add_test(store, layers_of_other_ops_are_refused);
    tcase_add_loop_test(store, layers_that_do_not_fit_the_engine_are_refused, 0,
                        SL_COUNT(bad_ends));
    suite_add_tcase(suite, store);
    TCase *load = tcase_create("load");
    tcase_add_test(load, layers_are_told_when_all_blocks_have_them);
    tcase_add_test(load, a_load_asks_for_more_and_more_layers_at_once);
    tcase_add_test(load, ranks_wait_for_layers_of_another_clients_load);
    tcase_add_test(load, a_load_that_fails_behind_a_told_layer_brings_nothing);
    tcase_add_test(load, waits_end_by_their_deadline_and_with_the_op);
    tcase_add_test(load, a_load_that_comes_again_goes_on_behind_what_was_told);
    tcase_add_test(load, a_load_that_finds_less_than_was_told_fails);
    tcase_add_test(load, a_miss_by_layers_tells_that_there_is_nothing);
    suite_add_tcase(suite, load);
    TCase *direct = tcase_create("direct");
    tcase_add_test(direct, layers_are_lent_while_the_next_ones_are_looked_at);
    tcase_add_test(direct, a_loan_that_fails_waits_for_the_looks_before_it_goes_on);
    tcase_add_test(direct, a_loan_that_has_failed_is_known_with_the_next_layer);
    tcase_add_test(direct, a_lent_store_that_ends_early_ends_its_loan);
    tcase_add_test(direct, layers_are_told_as_they_arrive);
    tcase_add_test(direct, a_load_does_not_end_before_the_word_of_the_last_layer);
    tcase_add_test(direct, a_hand_over_that_ends_behind_a_told_layer_is_a_502);
    tcase_add_test(direct, what_was_told_is_not_read_again);
    tcase_add_loop_test(direct, layers_that_were_told_are_not_loaded_again_from_storage, 0,
                        SL_COUNT(read_fails));
    suite_add_tcase(suite, direct);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
