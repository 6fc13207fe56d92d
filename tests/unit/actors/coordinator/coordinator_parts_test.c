/* tests/unit/actors/coordinator/coordinator_parts_test.c - parts that differ from ranks: four
 * slices of heads held by one, two or four ranks, and a pool whose bytes all ranks hold; ops by the
 * engine's own keys; ranks that are processes of their own. */
#include "tests/unit/actors/coordinator/coordinator_support.h"

#include <unistd.h>

#define SLICES      4u
#define SLICE_BYTES 1024u
#define SAME_BYTES  640u
#define CUTS        (SLICES + 1) /* parts of a block */
#define BLOCKS      6u
#define HASH_BYTES  4u
#define TEAM        (SL_TEAM_FIRST + 5)

/* Both ranks have the pool "same"; of "attn" rank r has slices r * 2 and r * 2 + 1, or, when
 * `all`, both have all of them. */
static void answer_parts(struct bed *bed, uint64_t engine_id, bool all)
{
    struct sl_msg get = take(bed, "registrar", SL_MSG_ENGINE_GET);
    ck_assert_uint_eq(get.body.engine_get.engine_id, engine_id);
    struct sl_item_pool pools[2] = {{.name = sl_text_of("attn"), .part_count = SLICES},
                                    {.name = sl_text_of("same"), .kind = 3, .part_count = 1}};
    struct sl_item_region regions[RANKS * (2 * SLICES + 1)];
    uint64_t count = 0;
    for (uint64_t rank = 0; rank < RANKS; rank++) {
        for (uint64_t part = 0; part < SLICES; part++) {
            for (uint64_t layer = 0; layer < 2 && (all || part / 2 == rank); layer++) {
                regions[count++] = (struct sl_item_region){.rank = rank,
                                                           .part = part,
                                                           .layer = layer,
                                                           .length_bytes = 100 * SLICE_BYTES,
                                                           .piece_bytes = SLICE_BYTES / 2};
            }
        }
        regions[count++] = (struct sl_item_region){
            .rank = rank, .pool = 1, .length_bytes = 100 * SLICE_BYTES, .piece_bytes = SAME_BYTES};
    }
    for (uint64_t i = 0; i < count; i++) {
        regions[i].handle_kind = 1;
        regions[i].pid = engine_proc.pid;
        regions[i].block_stride_bytes = SLICE_BYTES;
        regions[i].block_count = 100;
        regions[i].member = engine_id == TEAM ? 500 + regions[i].rank : 0;
    }
    struct sl_msg reply = {.code = SL_OK};
    reply.body.engine_get_reply = (struct sl_body_engine_get_reply){
        .engine_id = engine_id,
        .pid = engine_proc.pid,
        .start_time = engine_proc.start_time,
        .name = sl_text_of("e"),
        .model = sl_text_of(MODEL),
        .key_format = sl_text_of("engine"),
        .block_tokens = 4,
        .world = RANKS,
        .pools = {pools, 2},
        .regions = {regions, count},
    };
    answer(bed, "registrar", &get, reply);
}

static struct sl_body_store request(uint64_t engine_id, uint32_t count)
{
    static uint8_t hashes[BLOCKS * HASH_BYTES];
    static uint64_t blocks[2 * BLOCKS];
    for (uint32_t i = 0; i < BLOCKS; i++) {
        memcpy(&hashes[(size_t)i * HASH_BYTES], (uint8_t[]){0xab, 0xcd, 0, (uint8_t)i}, HASH_BYTES);
    }
    for (uint32_t i = 0; i < count; i++) {
        blocks[i] = 10 + i;
        blocks[count + i] = 60 + i;
    }
    return (struct sl_body_store){.engine_id = engine_id,
                                  .hashes = {hashes, (uint64_t)count * HASH_BYTES},
                                  .hash_bytes = HASH_BYTES,
                                  .pool_blocks = {blocks, 2ull * count}};
}

static uint64_t give(struct bed *bed, uint32_t type, struct sl_body_store body)
{
    struct sl_msg msg = {.type = type, .op_id = 7, .trace_id = 7};
    if (type == SL_MSG_STORE) {
        msg.body.store = body;
    } else {
        msg.body.load = (struct sl_body_load){.engine_id = body.engine_id,
                                              .tokens = body.tokens,
                                              .device_blocks = body.device_blocks,
                                              .partial = body.partial,
                                              .hashes = body.hashes,
                                              .hash_bytes = body.hash_bytes,
                                              .pool_blocks = body.pool_blocks};
    }
    fake_give(&bed->fake, "client.1.0", &msg);
    return msg.seq;
}

/* Checks what a rank was asked to copy, answers it except item `missing`, and adds up by part. */
static uint64_t copy_answer(struct bed *bed, uint32_t rank, uint64_t missing, uint32_t told[CUTS])
{
    char name[16];
    swapper_name(rank, name);
    struct sl_msg copy = take(bed, name, SL_MSG_COPY);
    struct sl_msg reply = {.code = SL_OK};
    uint8_t done[16] = {0};
    struct sl_digest digests[128] = {0};
    const struct sl_body_copy *body = &copy.body.copy;
    for (uint64_t i = 0; i < body->items.count; i++) {
        const struct sl_item_piece *item = &body->items.at[i];
        told[item->pool == 0 ? item->part : SLICES]++;
        ck_assert_uint_eq(item->length_bytes, item->pool == 0 ? SLICE_BYTES : SAME_BYTES);
        ck_assert_uint_ge(item->device_block, item->pool == 0 ? 10 : 60);
        ck_assert_uint_lt(item->device_block, (item->pool == 0 ? 10 : 60) + BLOCKS);
        done[i / 8] = (uint8_t)(done[i / 8] | (i == missing ? 0u : 1u << (i % 8)));
    }
    reply.body.copy_reply.done = (struct sl_bytes){done, (body->items.count + 7) / 8};
    if (body->out) {
        reply.body.copy_reply.digests = (struct sl_bytes){digests, body->items.count * 16};
    }
    uint64_t engine_id = body->engine_id;
    answer(bed, name, &copy, reply);
    return engine_id;
}

/* Checks which ranks RESERVE asks to write, and grants it. */
static void reserve_answer(struct bed *bed, uint32_t count, uint32_t by_rank[RANKS])
{
    struct sl_msg reserve = take(bed, "registrar", SL_MSG_RESERVE);
    struct sl_item_grant grants[BLOCKS * CUTS];
    const struct sl_body_reserve *body = &reserve.body.reserve;
    ck_assert_uint_eq(body->items.count, count * CUTS);
    ck_assert_uint_eq(body->groups.at[0].part_count, CUTS);
    ck_assert_str_eq(body->items.at[0].key.at, MODEL "/abcd0000/0/attn");
    ck_assert_str_eq(body->items.at[1].key.at, MODEL "/abcd0000/0/same");
    ck_assert_str_eq(body->items.at[CUTS + 4].key.at, MODEL "/abcd0001/3/attn");
    for (uint64_t i = 0; i < body->items.count; i++) {
        const struct sl_item_want *item = &body->items.at[i];
        grants[i] = (struct sl_item_grant){
            .ref = 1 + i, .generation = bed->next_generation++, .offset_bytes = i * PART_BYTES};
        ck_assert_uint_eq(item->part_index, i % CUTS);
        ck_assert_uint_eq(item->length_bytes, i % CUTS == 1 ? SAME_BYTES : SLICE_BYTES);
        by_rank[item->writer.at[strlen("swapper.")] - '0']++;
    }
    answer(bed, "registrar", &reserve,
           (struct sl_msg){.body.reserve_reply.items = {grants, body->items.count}});
}

static void commit_answer(struct bed *bed, uint64_t parts)
{
    struct sl_msg commit = take(bed, "registrar", SL_MSG_COMMIT);
    uint64_t codes[BLOCKS * CUTS] = {0};
    ck_assert_uint_eq(commit.body.commit.items.count, parts);
    answer(bed, "registrar", &commit, (struct sl_msg){.body.commit_reply.codes = {codes, parts}});
}

static void parts_put(struct bed *bed, uint32_t block)
{
    for (uint32_t k = 0; k < CUTS; k++) {
        char key[80];
        struct sl_error why = {0};
        sl_ref ref = 0;
        (void)snprintf(key, sizeof(key), MODEL "/abcd00%02x/%u/%s", block, k < SLICES ? k : 0,
                       k < SLICES ? "attn" : "same");
        struct sl_entry entry = {
            .kind = SL_RECORD_COMMITTED, .key = key, .key_length = (uint16_t)strlen(key)};
        entry.extent.length_bytes = k < SLICES ? SLICE_BYTES : SAME_BYTES;
        entry.extent.generation = sl_arena_next_generation(bed->arena);
        entry.extent.offset_bytes = (block * CUTS + k) * PART_BYTES;
        ck_assert_msg(sl_index_insert(bed->index, &entry, &ref, &why) == SL_OK, "%s", why.text);
    }
}

START_TEST(each_part_is_stored_once_by_ranks_in_turn)
    {
        struct bed *bed = bed_make(NULL);
        bool all = _i == 1;
        uint32_t told[CUTS] = {0}, by_rank[RANKS] = {0};
        uint64_t seq = give(bed, SL_MSG_STORE, request(ENGINE_ID, BLOCKS));
        answer_parts(bed, ENGINE_ID, all);
        ck_assert(!sent(bed, "keyer", SL_MSG_KEYS));
        reserve_answer(bed, BLOCKS, by_rank);
        ck_assert_uint_eq(by_rank[0], BLOCKS * CUTS / 2); /* each stores half of the shared ones */
        ck_assert_uint_eq(by_rank[1], BLOCKS * CUTS / 2);

        ck_assert_uint_eq(copy_answer(bed, 1, UINT64_MAX, told), ENGINE_ID);
        ck_assert_uint_eq(copy_answer(bed, 0, UINT64_MAX, told), ENGINE_ID);

        for (uint32_t k = 0; k < CUTS; k++) {
            ck_assert_uint_eq(told[k], BLOCKS);
        }
        commit_answer(bed, (uint64_t)BLOCKS * CUTS);
        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(((const uint8_t *)reply.body.store_reply.stored.at)[0],
                          (1u << BLOCKS) - 1);
        bed_end(bed);
    }
END_TEST

START_TEST(each_part_is_loaded_by_all_ranks_that_have_it)
    {
        struct bed *bed = bed_make(NULL);
        bool all = _i == 1;
        uint32_t told[CUTS] = {0};
        for (uint32_t i = 0; i < 3; i++) {
            parts_put(bed, i);
        }
        uint64_t seq = give(bed, SL_MSG_LOAD, request(ENGINE_ID, BLOCKS));
        answer_parts(bed, ENGINE_ID, all);
        ck_assert_uint_eq(pins(bed), 3 * CUTS);

        (void)copy_answer(bed, 0, UINT64_MAX, told);
        (void)copy_answer(bed, 1, UINT64_MAX, told);

        for (uint32_t k = 0; k < CUTS; k++) {
            ck_assert_uint_eq(told[k], k == SLICES || all ? 3 * RANKS : 3);
        }
        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 3);
        ck_assert_uint_eq(pins(bed), 0);
        bed_end(bed);
    }
END_TEST

/* Rank 1 does not copy its item 3, of block 0 or 1. Rank 0's copies of that block do not count. */
START_TEST(a_part_that_one_of_its_ranks_lacks_ends_the_prefix)
    {
        struct bed *bed = bed_make(NULL);
        uint32_t told[CUTS] = {0};
        for (uint32_t i = 0; i < 3; i++) {
            parts_put(bed, i);
        }
        uint64_t seq = give(bed, SL_MSG_LOAD, request(ENGINE_ID, 3));
        answer_parts(bed, ENGINE_ID,
                     false); /* items of rank 1, per block: same, slice 2, slice 3 */

        (void)copy_answer(bed, _i == 0 ? 0 : 1, _i == 0 ? UINT64_MAX : 3, told);
        (void)copy_answer(bed, _i == 0 ? 1 : 0, _i == 0 ? 3 : UINT64_MAX, told);

        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_ERR_INCOMPLETE);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 1);
        ck_assert_uint_eq(pins(bed), 0);
        bed_end(bed);
    }
END_TEST

START_TEST(a_team_is_copied_by_the_registrations_of_its_ranks)
    {
        struct bed *bed = bed_make(NULL);
        uint32_t told[CUTS] = {0};
        parts_put(bed, 0);
        uint64_t seq = give(bed, SL_MSG_LOAD, request(TEAM, 1));
        answer_parts(bed, TEAM, false);

        ck_assert_uint_eq(copy_answer(bed, 0, UINT64_MAX, told), 500);
        ck_assert_uint_eq(copy_answer(bed, 1, UINT64_MAX, told), 501);

        ck_assert_uint_eq(reply_to(bed, seq).body.load_reply.block_count, 1);
        fake_process_end(&bed->fake, engine_proc); /* of one rank; it does not own the op */
        struct sl_body_store again = request(TEAM, 1);
        struct sl_msg msg = {.type = SL_MSG_LOAD, .op_id = 8};
        msg.body.load.engine_id = TEAM;
        msg.body.load.hashes = again.hashes;
        msg.body.load.hash_bytes = again.hash_bytes;
        msg.body.load.pool_blocks = again.pool_blocks;
        fake_give(&bed->fake, "client.1.0", &msg);
        struct sl_msg copy = take(bed, "swapper.1", SL_MSG_COPY);
        answer(bed, "swapper.1", &copy,
               (struct sl_msg){.code = SL_ERR_NOT_FOUND, .text = sl_text_of("engine 501 is gone")});
        (void)copy_answer(bed, 0, UINT64_MAX, told);
        struct sl_msg reply = reply_to(bed, msg.seq);
        ck_assert_int_eq(reply.code, SL_ERR_INCOMPLETE);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "rank 1"));

        msg.op_id = 9;
        msg.seq = 0;
        fake_give(&bed->fake, "client.1.0", &msg); /* the registrar knows the present ranks */
        answer_parts(bed, TEAM, false);
        ck_assert_uint_eq(copy_answer(bed, 1, UINT64_MAX, told), 501);
        bed_end(bed);
    }
END_TEST

/* ---- straight from other nodes (pull) ---- */

/* Each part goes to every rank that has it, by the rank's registration, at its pool's block. */
static void pull_is(const struct sl_msg *pull, uint64_t engine_id, uint32_t blocks)
{
    const struct sl_body_bring *body = &pull->body.bring;
    uint64_t at = 0;
    ck_assert_uint_eq(body->groups.count, blocks);
    ck_assert_uint_eq(body->keys.count, blocks * CUTS);
    ck_assert_uint_eq(body->slots.count, blocks * (SLICES + RANKS));
    for (uint64_t i = 0; i < body->keys.count; i++) {
        bool same = strstr(body->keys.at[i].at, "/same") != NULL;
        uint32_t seen = 0; /* a bit a rank */
        for (; at < body->slots.count && body->slots.at[at].item == i; at++) {
            const struct sl_item_slot *slot = &body->slots.at[at];
            ck_assert_uint_eq(slot->pool, same ? 1 : 0);
            ck_assert_uint_eq(slot->device_block, (same ? 60 : 10) + i / CUTS);
            ck_assert_uint_eq(slot->engine_id, engine_id == TEAM ? 500 + slot->rank : engine_id);
            ck_assert(same || slot->part / 2 == slot->rank);
            seen |= 1u << slot->rank;
        }
        ck_assert(same ? seen == 3 : seen == 1 || seen == 2);
    }
    ck_assert_uint_eq(at, body->slots.count);
}

/* Answers the pull: every item has arrived except those of the block of `bad`. */
static void pull_answer(struct bed *bed, const struct sl_msg *pull, uint64_t bad)
{
    uint64_t codes[BLOCKS * CUTS], count = pull->body.bring.keys.count;
    struct sl_msg reply = {.code = SL_OK};
    for (uint64_t i = 0; i < count; i++) {
        codes[i] = bad != UINT64_MAX && i / CUTS == bad / CUTS ? SL_ERR_NOT_FOUND : SL_OK;
    }
    reply.body.bring_reply.codes = (struct sl_u64s){codes, count};
    answer(bed, "transporter.0", pull, reply);
}

START_TEST(a_team_is_pulled_into_the_registrations_of_its_ranks)
    {
        static const uint64_t engine_ids[] = {TEAM, ENGINE_ID};
        struct bed *bed = bed_straight();
        uint64_t seq = give(bed, SL_MSG_LOAD, request(engine_ids[_i], 3));
        answer_parts(bed, engine_ids[_i], false);
        struct sl_msg pull = take(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS);
        pull_is(&pull, engine_ids[_i], 3);

        pull_answer(bed, &pull, UINT64_MAX);

        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 3);
        ck_assert_uint_eq(reply.body.load_reply.from_remote, 3);
        ck_assert(!sent(bed, "swapper.0", SL_MSG_COPY));
        bed_end(bed);
    }
END_TEST

/* Some part of block 2 did not arrive: of a slice, or of the pool that both have. */
START_TEST(a_teams_prefix_ends_where_a_part_did_not_come)
    {
        struct bed *bed = bed_straight();
        uint64_t seq = give(bed, SL_MSG_LOAD, request(TEAM, 4));
        answer_parts(bed, TEAM, false);
        struct sl_msg pull = take(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS);
        pull_answer(bed, &pull, 2 * CUTS + (uint64_t)_i);
        ck_assert_uint_eq(reply_to(bed, seq).body.load_reply.block_count, 2);
        bed_end(bed);
    }
END_TEST

/* The transporter does not know the new registration of a restarted rank. The load then uses the
 * arena, where the swapper reports the missing registration, and the next op asks for the team
 * again. */
START_TEST(a_team_of_which_a_rank_is_gone_is_asked_for_anew)
    {
        struct bed *bed = bed_straight();
        uint32_t told[CUTS] = {0};
        uint64_t seq = give(bed, SL_MSG_LOAD, request(TEAM, 1));
        answer_parts(bed, TEAM, false);
        struct sl_msg pull = take(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS);
        parts_put(bed, 0); /* the bytes that the arena provides */
        answer(bed, "transporter.0", &pull,
               (struct sl_msg){.code = SL_ERR_NOT_FOUND, .text = sl_text_of("engine 501")});
        (void)copy_answer(bed, 0, UINT64_MAX, told);
        struct sl_msg copy = take(bed, "swapper.1", SL_MSG_COPY);
        answer(bed, "swapper.1", &copy,
               (struct sl_msg){.code = SL_ERR_NOT_FOUND, .text = sl_text_of("engine 501 is gone")});
        ck_assert_int_eq(reply_to(bed, seq).code, SL_ERR_INCOMPLETE);

        struct sl_body_store again = request(TEAM, 1);
        struct sl_msg msg = {.type = SL_MSG_LOAD, .op_id = 8};
        msg.body.load.engine_id = TEAM;
        msg.body.load.hashes = again.hashes;
        msg.body.load.hash_bytes = again.hash_bytes;
        msg.body.load.pool_blocks = again.pool_blocks;
        fake_give(&bed->fake, "client.1.0", &msg);
        answer_parts(bed, TEAM, false);
        bed_end(bed);
    }
END_TEST

/* Ops follow each other so closely that one always runs: the engine is never idle. */
START_TEST(a_team_is_asked_for_anew_while_an_op_runs)
    {
        struct bed *bed = bed_make(NULL);
        uint32_t told[CUTS] = {0};
        parts_put(bed, 0);
        uint64_t seq = give(bed, SL_MSG_LOAD, request(TEAM, 1));
        answer_parts(bed, TEAM, false);
        struct sl_msg copy = take(bed, "swapper.1", SL_MSG_COPY);
        answer(bed, "swapper.1", &copy,
               (struct sl_msg){.code = SL_ERR_NOT_FOUND, .text = sl_text_of("engine 501 is gone")});
        struct sl_body_store again = request(TEAM, 1);
        struct sl_msg msg = {.type = SL_MSG_LOAD, .op_id = 8};
        msg.body.load.engine_id = TEAM;
        msg.body.load.hashes = again.hashes;
        msg.body.load.hash_bytes = again.hash_bytes;
        msg.body.load.pool_blocks = again.pool_blocks;

        fake_give(&bed->fake, "client.1.0", &msg); /* rank 0 still copies for the first */

        answer_parts(bed, TEAM, false);
        ck_assert_uint_eq(copy_answer(bed, 0, UINT64_MAX, told), 500); /* of the first */
        ck_assert_int_eq(reply_to(bed, seq).code, SL_ERR_INCOMPLETE);
        ck_assert_uint_eq(copy_answer(bed, 0, UINT64_MAX, told), 500);
        ck_assert_uint_eq(copy_answer(bed, 1, UINT64_MAX, told), 501);
        ck_assert_int_eq(reply_to(bed, msg.seq).code, SL_OK);
        bed_end(bed);
    }
END_TEST

static void spoil_both(struct sl_body_store *body)
{
    static const uint32_t tokens[4];
    body->tokens = (struct sl_bytes){tokens, sizeof(tokens)};
}
static void spoil_neither(struct sl_body_store *body)
{
    body->hashes.length = 0;
}
static void spoil_bytes(struct sl_body_store *body)
{
    body->hash_bytes = 5;
}
static void spoil_no_bytes(struct sl_body_store *body)
{
    body->hash_bytes = 0;
}
static void spoil_tables(struct sl_body_store *body)
{
    body->pool_blocks.count--;
}
static void spoil_no_table(struct sl_body_store *body)
{
    static uint8_t many[4194304]; /* one byte each: more blocks than a reply has bits for */
    body->hashes = (struct sl_bytes){many, sizeof(many)};
    body->hash_bytes = 1;
}
static void spoil_two_tables(struct sl_body_store *body)
{
    body->device_blocks = body->pool_blocks;
}
static void spoil_block(struct sl_body_store *body)
{
    ((uint64_t *)(uintptr_t)body->pool_blocks.at)[3] = 100;
}
static void spoil_before(struct sl_body_store *body)
{
    static const uint8_t before[HASH_BYTES + 1];
    body->before_hash = (struct sl_bytes){before, sizeof(before)};
}
static void spoil_partial(struct sl_body_store *body)
{
    body->partial = true;
}
static const struct {
    void (*spoil)(struct sl_body_store *body);
    const char *named;
    bool later; /* becomes known with the engine */
} spoilt[] = {
    {spoil_both, "tokens", false},          {spoil_neither, "tokens", false},
    {spoil_bytes, "hashes", false},         {spoil_no_bytes, "hashes", false},
    {spoil_tables, "pool_blocks", true},    {spoil_two_tables, "pool_blocks", false},
    {spoil_block, "pool_blocks[3]", true},  {spoil_partial, "partial", false},
    {spoil_no_table, "pool_blocks", false},
};

START_TEST(a_key_before_of_another_length_is_refused)
    {
        struct bed *bed = bed_make(NULL);
        struct sl_body_store body = request(ENGINE_ID, 4);
        spoil_before(&body);

        struct sl_msg reply = reply_to(bed, give(bed, SL_MSG_STORE, body));

        ck_assert_int_eq(reply.code, SL_ERR_INVALID);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "before_hash"));
        bed_end(bed);
    }
END_TEST

/* RESERVE contains the parent of each block, and the engine's hints. */
START_TEST(a_store_tells_its_chain_and_what_is_said_of_it)
    {
        static const uint8_t before[HASH_BYTES] = {0xab, 0xcd, 0xff, 0x01};
        struct bed *bed = bed_make(NULL);
        struct sl_body_store body = request(ENGINE_ID, 3);
        body.before_hash = (struct sl_bytes){before, sizeof(before)};
        body.session = 1;
        body.priority = 3;
        body.keep_ns = 5 * SL_NS_PER_S;

        (void)give(bed, SL_MSG_STORE, body);
        answer_parts(bed, ENGINE_ID, false);

        static const char *const parents[] = {MODEL "/abcdff01", MODEL "/abcd0000",
                                              MODEL "/abcd0001"};
        struct sl_msg reserve = take(bed, "registrar", SL_MSG_RESERVE);
        ck_assert_uint_eq(reserve.body.reserve.groups.count, 3);
        for (uint32_t i = 0; i < 3; i++) {
            const struct sl_item_group *group = &reserve.body.reserve.groups.at[i];
            ck_assert_uint_eq(group->parent_hash, sl_key_hash(parents[i], strlen(parents[i])));
            ck_assert_uint_eq(group->hint, 1);
            ck_assert_uint_eq(group->priority, 3);
            ck_assert_uint_eq(group->keep_ns, 5 * SL_NS_PER_S);
            ck_assert_uint_eq(group->cut, i == 2);
            ck_assert_uint_eq(group->stored_count, 3);
        }
        bed_end(bed);
    }
END_TEST

static const struct {
    uint64_t session, pause_ns, hint;
} pauses[] = {
    {.session = 0, .pause_ns = 0, .hint = 0},
    {.session = 0, .pause_ns = SL_NS_PER_S, .hint = 2},
    {.session = 1, .pause_ns = SL_NS_PER_S, .hint = 1}, /* an explicit hint counts */
};

START_TEST(a_store_that_names_its_next_turn_says_that_its_session_goes_on)
    {
        struct bed *bed = bed_make(NULL);
        struct sl_body_store body = request(ENGINE_ID, 1);
        body.session = pauses[_i].session;
        body.session_id = 7;
        body.pause_ns = pauses[_i].pause_ns;

        (void)give(bed, SL_MSG_STORE, body);
        answer_parts(bed, ENGINE_ID, false);

        struct sl_msg reserve = take(bed, "registrar", SL_MSG_RESERVE);
        ck_assert_uint_eq(reserve.body.reserve.groups.count, 1);
        ck_assert_uint_eq(reserve.body.reserve.groups.at[0].hint, pauses[_i].hint);
        bed_end(bed);
    }
END_TEST

START_TEST(a_bad_request_is_refused_by_name)
    {
        struct bed *bed = bed_make(NULL);
        struct sl_body_store body = request(ENGINE_ID, 4);
        spoilt[_i / 2].spoil(&body);

        uint64_t seq = give(bed, _i % 2 == 0 ? SL_MSG_STORE : SL_MSG_LOAD, body);

        if (spoilt[_i / 2].later) {
            answer_parts(bed, ENGINE_ID, false);
        }
        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_ERR_INVALID);
        ck_assert_msg(strstr(reply.text.at, spoilt[_i / 2].named) != NULL, "'%s'", reply.text.at);
        bed_end(bed);
    }
END_TEST

static Suite *parts_suite(void)
{
    Suite *suite = suite_create("coordinator_parts");
    TCase *parts = tcase_create("parts");
    tcase_set_timeout(parts, 60);
    tcase_add_loop_test(parts, each_part_is_stored_once_by_ranks_in_turn, 0, 2);
    tcase_add_loop_test(parts, each_part_is_loaded_by_all_ranks_that_have_it, 0, 2);
    tcase_add_loop_test(parts, a_part_that_one_of_its_ranks_lacks_ends_the_prefix, 0, 2);
    tcase_add_test(parts, a_team_is_copied_by_the_registrations_of_its_ranks);
    tcase_add_test(parts, a_team_is_asked_for_anew_while_an_op_runs);
    tcase_add_loop_test(parts, a_team_is_pulled_into_the_registrations_of_its_ranks, 0, 2);
    tcase_add_loop_test(parts, a_teams_prefix_ends_where_a_part_did_not_come, 0, CUTS);
    tcase_add_test(parts, a_team_of_which_a_rank_is_gone_is_asked_for_anew);
    tcase_add_test(parts, a_key_before_of_another_length_is_refused);
    tcase_add_test(parts, a_store_tells_its_chain_and_what_is_said_of_it);
    tcase_add_loop_test(parts, a_store_that_names_its_next_turn_says_that_its_session_goes_on, 0,
                        (int)SL_COUNT(pauses));
    tcase_add_loop_test(parts, a_bad_request_is_refused_by_name, 0, 2 * SL_COUNT(spoilt));
    suite_add_tcase(suite, parts);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(parts_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
