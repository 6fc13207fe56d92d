/* tests/unit/actors/coordinator/coordinator_hybrid_test.c - blocks of a hybrid model: four pools a
 * rank with pieces of their own, all of a block's parts or none of them. */
#include "tests/unit/actors/coordinator/coordinator_support.h"

#define POOLS  4u
#define BLOCKS 6u

static const struct {
    const char *name;
    uint64_t kind, layers, piece, stride;
} shapes[POOLS] = {
    {"attention", 0, 4, 1536, 2048},
    {"mamba_state", 1, 1, 8200, 16384},
    {"mamba_conv", 2, 3, 203, 211},
    {"indexer", 3, 2, 64, 64},
};

static uint64_t part_bytes(uint32_t pool)
{
    return shapes[pool].layers * shapes[pool].piece;
}

static uint64_t block_bytes(void)
{
    uint64_t bytes = 0;
    for (uint32_t pool = 0; pool < POOLS; pool++) {
        bytes += RANKS * part_bytes(pool);
    }
    return bytes;
}

static void answer_hybrid(struct bed *bed)
{
    struct sl_msg get = take(bed, "registrar", SL_MSG_ENGINE_GET);
    struct sl_item_pool pools[POOLS];
    struct sl_item_region regions[RANKS * POOLS * 4];
    uint64_t count = 0;
    for (uint32_t i = 0; i < RANKS * POOLS; i++) {
        uint32_t pool = i % POOLS;
        pools[pool] =
            (struct sl_item_pool){.name = sl_text_of(shapes[pool].name), .kind = shapes[pool].kind};
        for (uint64_t layer = 0; layer < shapes[pool].layers; layer++) {
            regions[count++] = (struct sl_item_region){.rank = i / POOLS,
                                                       .pool = pool,
                                                       .layer = layer,
                                                       .handle_kind = 1,
                                                       .pid = engine_proc.pid,
                                                       .fd = 3 + pool,
                                                       .length_bytes = 100 * shapes[pool].stride,
                                                       .block_stride_bytes = shapes[pool].stride,
                                                       .piece_bytes = shapes[pool].piece,
                                                       .block_count = 100};
        }
    }
    struct sl_msg reply = {.code = SL_OK};
    reply.body.engine_get_reply = (struct sl_body_engine_get_reply){
        .engine_id = ENGINE_ID,
        .pid = engine_proc.pid,
        .start_time = engine_proc.start_time,
        .name = sl_text_of("e"),
        .model = sl_text_of(MODEL),
        .key_format = sl_text_of("sluice"),
        .block_tokens = 4,
        .world = RANKS,
        .pools = {pools, POOLS},
        .regions = {regions, count},
    };
    answer(bed, "registrar", &get, reply);
}

/* Puts all blocks into the index, except one part of `hole`. */
static void index_fill(struct bed *bed, uint32_t hole, uint32_t hole_rank, uint32_t hole_pool)
{
    uint64_t offset = 0;
    for (uint32_t i = 0; i < BLOCKS * RANKS * POOLS; i++) {
        uint32_t block = i / (RANKS * POOLS), rank = i / POOLS % RANKS, pool = i % POOLS;
        struct sl_error why = {0};
        sl_ref ref = 0;
        char key[96];
        if (block == hole && rank == hole_rank && pool == hole_pool) {
            continue;
        }
        (void)snprintf(key, sizeof(key), MODEL "/b%u/%u/%s", block, rank, shapes[pool].name);
        struct sl_entry entry = {
            .kind = SL_RECORD_COMMITTED, .key = key, .key_length = (uint16_t)strlen(key)};
        entry.extent.length_bytes = part_bytes(pool);
        entry.extent.generation = sl_arena_next_generation(bed->arena);
        entry.extent.offset_bytes = offset;
        offset += sl_extent_space(part_bytes(pool));
        ck_assert_msg(sl_index_insert(bed->index, &entry, &ref, &why) == SL_OK, "%s", why.text);
    }
}

/* The rank's swapper copies a device block except one pool's part. Returns the number of items. */
static uint64_t copied(struct bed *bed, uint32_t rank, uint64_t spoilt_pool, uint64_t spoilt_block)
{
    char name[16];
    unsigned char done[16] = {0};
    swapper_name(rank, name);
    struct sl_msg copy = take(bed, name, SL_MSG_COPY);
    uint64_t count = copy.body.copy.items.count;
    for (uint64_t i = 0; i < count; i++) {
        const struct sl_item_piece *item = &copy.body.copy.items.at[i];
        ck_assert_uint_lt(item->pool, POOLS);
        ck_assert_uint_eq(item->length_bytes, part_bytes((uint32_t)item->pool));
        bool spoilt = item->pool == spoilt_pool && item->device_block == spoilt_block;
        done[i / 8] = (unsigned char)(done[i / 8] | (spoilt ? 0u : 1u << (i % 8)));
    }
    struct sl_msg reply = {.code = SL_OK};
    reply.body.copy_reply.done = (struct sl_bytes){done, (count + 7) / 8};
    answer(bed, name, &copy, reply);
    return count;
}

static uint64_t load_begin(struct bed *bed)
{
    uint64_t seq = op_send(bed, SL_MSG_LOAD, 1, BLOCKS);
    answer_hybrid(bed);
    answer_keys(bed);
    return seq;
}

/* One hole for each rank and pool, each at another block. */
START_TEST(the_prefix_ends_where_one_pools_part_is_missing)
    {
        struct bed *bed = bed_make(NULL);
        uint32_t hole = (uint32_t)_i % BLOCKS;
        index_fill(bed, hole, (uint32_t)_i / POOLS, (uint32_t)_i % POOLS);

        uint64_t seq = load_begin(bed);

        for (uint32_t rank = 0; hole > 0 && rank < RANKS; rank++) {
            ck_assert_uint_eq(copied(bed, rank, POOLS, 0), hole * POOLS);
        }
        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.load_reply.block_count, hole);
        ck_assert_uint_eq(reply.body.load_reply.bytes, hole * block_bytes());
        ck_assert_uint_eq(pins(bed), 0);
        bed_end(bed);
    }
END_TEST

START_TEST(the_prefix_ends_where_one_pools_part_was_not_copied)
    {
        struct bed *bed = bed_make(NULL);
        uint32_t rank = (uint32_t)_i / POOLS, pool = (uint32_t)_i % POOLS;
        index_fill(bed, BLOCKS, 0, 0);

        uint64_t seq = load_begin(bed);
        ck_assert_uint_eq(copied(bed, 0, rank == 0 ? pool : POOLS, 10 + 3), BLOCKS * POOLS);
        ck_assert_uint_eq(copied(bed, 1, rank == 1 ? pool : POOLS, 10 + 3), BLOCKS * POOLS);

        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_int_eq(reply.code, SL_ERR_INCOMPLETE);
        ck_assert_uint_eq(reply.body.load_reply.block_count, 3);
        bed_end(bed);
    }
END_TEST

/* ---- straight from another node (pull) ---- */

/* A pool's own table gives the positions of its states: a Mamba layer has few. */
static uint64_t table_block(uint32_t pool, uint32_t block)
{
    return 10 + 20 * pool + (shapes[pool].kind == 1 ? block / 2 : block);
}

static uint64_t load_straight(struct bed *bed)
{
    static uint8_t hashes[BLOCKS * 4];
    static uint64_t blocks[POOLS * BLOCKS];
    struct sl_msg msg = {.type = SL_MSG_LOAD, .op_id = 1, .trace_id = 1};
    for (uint32_t i = 0; i < POOLS * BLOCKS; i++) {
        blocks[i] = table_block(i / BLOCKS, i % BLOCKS);
    }
    for (uint32_t i = 0; i < BLOCKS; i++) {
        hashes[(size_t)i * 4 + 3] = (uint8_t)i;
    }
    msg.body.load.engine_id = ENGINE_ID;
    msg.body.load.hashes = (struct sl_bytes){hashes, sizeof(hashes)};
    msg.body.load.hash_bytes = 4;
    msg.body.load.pool_blocks = (struct sl_u64s){blocks, SL_COUNT(blocks)};
    fake_give(&bed->fake, "client.1.0", &msg);
    answer_hybrid(bed);
    return msg.seq;
}

/* If one part does not arrive, of any pool and rank, its block and all later ones do not count. */
START_TEST(all_pools_of_a_block_are_pulled_or_none_count)
    {
        uint64_t codes[BLOCKS * RANKS * POOLS];
        uint32_t hole = (uint32_t)_i % (BLOCKS + 1), part = (uint32_t)_i;
        struct bed *bed = bed_straight();
        uint64_t seq = load_straight(bed);
        struct sl_msg pull = take(bed, "transporter.0", SL_MSG_BRING | FAKE_POOL_SLOTS),
                      answered = {.code = SL_OK};
        const struct sl_body_bring *body = &pull.body.bring;
        ck_assert_uint_eq(body->groups.count, BLOCKS);
        ck_assert_uint_eq(body->groups.at[0].part_count, RANKS * POOLS);
        ck_assert_uint_eq(body->keys.count, SL_COUNT(codes));
        ck_assert_uint_eq(body->slots.count, SL_COUNT(codes));
        for (uint32_t i = 0; i < SL_COUNT(codes); i++) {
            const struct sl_item_slot *slot = &body->slots.at[i];
            char key[96];
            (void)snprintf(key, sizeof(key), MODEL "/%08x/%u/%s", i / (RANKS * POOLS),
                           (uint32_t)slot->rank, shapes[slot->pool].name);
            ck_assert_str_eq(body->keys.at[slot->item].at, key);
            ck_assert_uint_eq(slot->item, i);
            ck_assert_uint_eq(slot->device_block,
                              table_block((uint32_t)slot->pool, i / (RANKS * POOLS)));
            codes[i] = i / (RANKS * POOLS) == hole && i % (RANKS * POOLS) == part % (RANKS * POOLS)
                           ? SL_ERR_CORRUPT
                           : SL_OK;
        }

        answered.body.bring_reply.codes = (struct sl_u64s){codes, SL_COUNT(codes)};
        answer(bed, "transporter.0", &pull, answered);

        struct sl_msg reply = reply_to(bed, seq);
        ck_assert_uint_eq(reply.body.load_reply.block_count, hole);
        ck_assert_uint_eq(reply.body.load_reply.bytes, hole * block_bytes());
        ck_assert(!sent(bed, "swapper.0", SL_MSG_COPY));
        bed_end(bed);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("coordinator_hybrid");
    TCase *cases = tcase_create("hybrid");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, the_prefix_ends_where_one_pools_part_is_missing, 0, RANKS * POOLS);
    tcase_add_loop_test(cases, the_prefix_ends_where_one_pools_part_was_not_copied, 0,
                        RANKS * POOLS);
    tcase_add_loop_test(cases, all_pools_of_a_block_are_pulled_or_none_count, 0,
                        (BLOCKS + 1) * RANKS * POOLS);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
