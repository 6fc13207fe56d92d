/* tests/unit/actors/swapper/swapper_test.c - a swapper over a real arena, index and shared memory,
 * with stepped time. */
#include "actors/swapper/engines.h"
#include "actors/swapper/jobs.h"
#include "actors/swapper/swapper.h"
#include "ipc/shm/sl_index.h"
#include "tests/support/own_id.h"
#include "tests/unit/ipc/msg/stepped_env.h"
#include "tests/unit/ipc/shm/shm_support.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENGINE      41u
#define RANK        1u
#define BLOCKS      600u /* of the device */
#define LAYERS      3u
#define PIECE       100u
#define STRIDE      112u
#define VALUE       (LAYERS * PIECE)
#define WIDE_VALUE  SL_MIB /* pool 1: one layer */
#define WIDE_BLOCKS 20u
#define DEEP_LAYERS 7u /* pool 2: layers that begin and end anywhere in the digest's chunks */
#define DEEP_PIECE  9001u
#define DEEP_VALUE  (DEEP_LAYERS * DEEP_PIECE)
#define DEEP_BLOCKS 4u
#define POOL_BYTES  (LAYERS * BLOCKS * STRIDE)
#define ITEMS_MAX   1200u

static struct stepped bed;
static char *shm_dir;
static struct sl_arena *arena;
static struct sl_index *node_index;
static int pool_fds[3];
static unsigned char *pools[3];
static uint64_t next_offset;
static struct sl_item_piece items[ITEMS_MAX];

static void make_pool(unsigned pool, size_t bytes)
{
    pool_fds[pool] = memfd_create("pool", MFD_CLOEXEC);
    ck_assert_int_eq(ftruncate(pool_fds[pool], (off_t)bytes), 0);
    pools[pool] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, pool_fds[pool], 0);
    ck_assert(pools[pool] != MAP_FAILED);
    for (size_t i = 0; i < bytes; i++) {
        pools[pool][i] = (unsigned char)(i * 131 + i / 4099 + pool);
    }
}

static void setup_with(const char *verify)
{
    const char *const settings[] = {"rank", "1",           "swap_staging", "64KiB", "engines_max",
                                    "2",    "load_verify", verify,         NULL};
    struct sl_error why = {0};
    bool created = false;
    shm_dir = shm_dir_make();
    struct sl_arena_options options = {
        .directory = shm_dir, .data_bytes = 64 * SL_MIB, .chunk_bytes = 64 * SL_MIB};
    ck_assert_msg(sl_arena_open_owner(&options, &created, &arena, &why) == SL_OK, "%s", why.text);
    while (sl_arena_populate_below(arena, UINT64_MAX, &why) == SL_OK) {
    }
    struct sl_index_options index_options = {
        .shm_dir = shm_dir, .index_bytes_max = 64 * SL_MIB, .arena = arena};
    ck_assert_msg(sl_index_open(&index_options, &created, &node_index, &why) == SL_OK, "%s",
                  why.text);
    make_pool(0, POOL_BYTES);
    make_pool(1, WIDE_VALUE * WIDE_BLOCKS);
    make_pool(2, DEEP_VALUE * DEEP_BLOCKS);
    next_offset = 0;
    stepped_start(&bed, &sl_swapper_actor, shm_dir, settings, true);
}

static void setup(void)
{
    setup_with("sample");
}

static void setup_all(void)
{
    setup_with("all");
}

static void setup_auto(void)
{
    setup_with("auto"); /* device host: the processor digests, so it is a sample */
}

static void setup_off(void)
{
    setup_with("off");
}

static void teardown(void)
{
    stepped_end(&bed);
    sl_index_close(&node_index);
    sl_arena_close(&arena);
    shm_dir_remove(shm_dir);
    for (unsigned i = 0; i < 3; i++) {
        close(pool_fds[i]);
    }
}

/* A reservation of one part: fills *item. */
static void reserve(struct sl_item_piece *item, uint64_t pool, uint64_t device_block,
                    uint64_t length)
{
    static uint64_t number;
    char key[64];
    int key_length =
        snprintf(key, sizeof(key), "model/block%llu/1/kv", (unsigned long long)number++);
    struct sl_entry want = {.kind = SL_RECORD_RESERVED,
                            .extent = {.generation = sl_arena_next_generation(arena),
                                       .offset_bytes = next_offset,
                                       .length_bytes = length},
                            .key = key,
                            .key_length = (uint16_t)key_length};
    sl_ref ref = 0;
    struct sl_error why = {0};
    ck_assert_msg(sl_index_claim(node_index, &want, &ref, &why) == SL_OK, "%s", why.text);
    next_offset += sl_extent_space(length);
    *item = (struct sl_item_piece){.pool = pool,
                                   .device_block = device_block,
                                   .offset_bytes = want.extent.offset_bytes,
                                   .length_bytes = length,
                                   .ref = ref,
                                   .generation = want.extent.generation};
}

static struct sl_msg copy_request(bool out, uint64_t count)
{
    struct sl_msg msg = {.type = SL_MSG_COPY, .op_id = 77, .trace_id = 78};
    msg.body.copy.engine_id = ENGINE;
    msg.body.copy.rank = RANK;
    msg.body.copy.out = out;
    msg.body.copy.items.at = items;
    msg.body.copy.items.count = count;
    return msg;
}

/* The registrar's answer to ENGINE_GET. */
static uint64_t pool_epoch; /* of the first pool's regions in that answer */

static uint64_t team; /* that the engine is of */

/* Returns the request's number. */
static uint64_t engine_asked(void)
{
    struct sl_msg asked;
    char to[32];
    ck_assert(stepped_take(&bed, &asked, to));
    ck_assert_uint_eq(asked.type, SL_MSG_ENGINE_GET);
    ck_assert_uint_eq(asked.body.engine_get.engine_id, ENGINE);
    ck_assert_str_eq(to, "registrar");
    return asked.seq;
}

static void engine_told(sl_err code, uint64_t seq)
{
    struct sl_item_pool pool_items[3] = {
        {.name = sl_text_of("kv")}, {.name = sl_text_of("wide")}, {.name = sl_text_of("deep")}};
    struct sl_item_region regions[LAYERS + 2 + DEEP_LAYERS];
    struct sl_msg reply = {.type = SL_MSG_ENGINE_GET_REPLY, .code = code};
    for (uint64_t l = 0; l < LAYERS; l++) { /* layers in falling order: their numbers count */
        regions[l] = (struct sl_item_region){.rank = RANK,
                                             .layer = LAYERS - 1 - l,
                                             .handle_kind = SL_MEMORY_SHARED_FD,
                                             .pid = (uint64_t)getpid(),
                                             .fd = (uint64_t)pool_fds[0],
                                             .offset_bytes = (LAYERS - 1 - l) * BLOCKS * STRIDE,
                                             .length_bytes = BLOCKS * STRIDE,
                                             .block_stride_bytes = STRIDE,
                                             .piece_bytes = PIECE,
                                             .block_count = BLOCKS,
                                             .pool_epoch = pool_epoch};
    }
    regions[LAYERS] = (struct sl_item_region){.rank = RANK,
                                              .pool = 1,
                                              .handle_kind = SL_MEMORY_SHARED_FD,
                                              .pid = (uint64_t)getpid(),
                                              .fd = (uint64_t)pool_fds[1],
                                              .length_bytes = WIDE_VALUE * WIDE_BLOCKS,
                                              .block_stride_bytes = WIDE_VALUE,
                                              .piece_bytes = WIDE_VALUE,
                                              .block_count = WIDE_BLOCKS};
    regions[LAYERS + 1] = regions[0]; /* of another rank: not ours to map */
    regions[LAYERS + 1].rank = 0;
    regions[LAYERS + 1].fd = 99999;
    for (uint64_t l = 0; l < DEEP_LAYERS; l++) {
        regions[LAYERS + 2 + l] =
            (struct sl_item_region){.rank = RANK,
                                    .pool = 2,
                                    .layer = l,
                                    .handle_kind = SL_MEMORY_SHARED_FD,
                                    .pid = (uint64_t)getpid(),
                                    .fd = (uint64_t)pool_fds[2],
                                    .offset_bytes = l * DEEP_BLOCKS * DEEP_PIECE,
                                    .length_bytes = DEEP_BLOCKS * DEEP_PIECE,
                                    .block_stride_bytes = DEEP_PIECE,
                                    .piece_bytes = DEEP_PIECE,
                                    .block_count = DEEP_BLOCKS};
    }
    struct sl_proc_id self = own_id();
    if (code == SL_OK) {
        reply.body.engine_get_reply.engine_id = ENGINE;
        reply.body.engine_get_reply.pid = self.pid;
        reply.body.engine_get_reply.start_time = self.start_time;
        reply.body.engine_get_reply.world = 2;
        reply.body.engine_get_reply.team = team;
        reply.body.engine_get_reply.pools.at = pool_items;
        reply.body.engine_get_reply.pools.count = 3;
        reply.body.engine_get_reply.regions.at = regions;
        reply.body.engine_get_reply.regions.count = SL_COUNT(regions);
    }
    reply.reply_to = seq;
    ck_assert_int_eq(stepped_give(&bed, "registrar", &reply), SL_OK);
}

static void answer_engine(sl_err code)
{
    engine_told(code, engine_asked());
}

static void device_value(uint64_t block, unsigned char out[VALUE])
{
    for (uint64_t l = 0; l < LAYERS; l++) {
        memcpy(out + l * PIECE, pools[0] + (l * BLOCKS + block) * STRIDE, PIECE);
    }
}

static bool bit(const struct sl_msg *reply, uint64_t i)
{
    const unsigned char *done = reply->body.copy_reply.done.at;
    return (done[i >> 3] >> (i & 7) & 1) != 0;
}

/* Makes a mapped engine by one tiny copy. */
static void with_engine(void)
{
    struct sl_msg reply;
    reserve(&items[0], 0, 0, VALUE);
    struct sl_msg msg = copy_request(true, 1);
    ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
    answer_engine(SL_OK);
    ck_assert(stepped_take(&bed, &reply, NULL));
    ck_assert_int_eq(reply.code, SL_OK);
    ck_assert(bit(&reply, 0));
}

START_TEST(out_writes_the_layers_one_after_the_other_with_their_digest)
    {
        unsigned char want[VALUE];
        struct sl_msg reply;
        for (uint64_t i = 0; i < 10; i++) {
            reserve(&items[i], 0, 37 * i, VALUE);
        }
        struct sl_msg msg = copy_request(true, 10);

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        answer_engine(SL_OK);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_uint_eq(reply.type, SL_MSG_COPY_REPLY);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.reply_to, msg.seq);
        ck_assert_uint_eq(reply.op_id, 77);
        ck_assert_uint_eq(reply.body.copy_reply.digests.length, 160);
        for (uint64_t i = 0; i < 10; i++) {
            struct sl_digest digest, value_digest;
            device_value(items[i].device_block, want);
            memcpy(&digest, (const unsigned char *)reply.body.copy_reply.digests.at + 16 * i, 16);
            value_digest = sl_digest_of(want, VALUE);
            ck_assert(bit(&reply, i));
            ck_assert_int_eq(memcmp(sl_arena_at(arena, items[i].offset_bytes, VALUE), want, VALUE),
                             0);
            ck_assert(sl_digest_equal(digest, value_digest));
        }
    }
END_TEST

/* Blocks 3, 40, ... of the first pool, and their contents. */
static struct sl_msg look_request(struct sl_item_piece *blocks, uint64_t count)
{
    struct sl_msg msg = copy_request(true, 0);
    for (uint64_t i = 0; i < count; i++) {
        blocks[i] = (struct sl_item_piece){.device_block = 3 + 37 * i, .length_bytes = VALUE};
    }
    msg.body.copy.look = true;
    msg.body.copy.items.at = blocks;
    msg.body.copy.items.count = count;
    return msg;
}

START_TEST(blocks_are_digested_where_they_lie_and_nothing_is_written)
    {
        unsigned char want[VALUE], *before = malloc(64 * SL_MIB), *after = sl_arena_at(arena, 0, 1);
        struct sl_item_piece blocks[10];
        struct sl_msg reply;
        struct sl_msg msg = look_request(blocks, 10);
        blocks[9].first_layer = 1; /* only some layers of the last one */
        blocks[9].layer_end = LAYERS;
        memcpy(before, after, 64 * SL_MIB);

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        answer_engine(SL_OK);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_uint_eq(reply.type, SL_MSG_COPY_REPLY);
        ck_assert_msg(reply.code == SL_OK, "%s", reply.text.at);
        ck_assert_uint_eq(reply.body.copy_reply.digests.length, 160);
        for (uint64_t i = 0; i < 10; i++) {
            struct sl_digest digest;
            uint64_t from = i == 9 ? PIECE : 0;
            device_value(blocks[i].device_block, want);
            memcpy(&digest, (const unsigned char *)reply.body.copy_reply.digests.at + 16 * i, 16);
            ck_assert(bit(&reply, i));
            ck_assert(sl_digest_equal(digest, sl_digest_of(want + from, VALUE - from)));
        }
        ck_assert_int_eq(memcmp(before, after, 64 * SL_MIB), 0);
        free(before);
    }
END_TEST

static const struct {
    struct sl_item_piece block;
    bool in, chunks;
    const char *text;
} bad_looks[] = {
    {{.device_block = 3, .length_bytes = VALUE - 1}, .text = "length_bytes"},
    {{.device_block = BLOCKS, .length_bytes = VALUE}, .text = "device_block"},
    {{.pool = 5, .device_block = 3, .length_bytes = VALUE}, .text = "pool"},
    {{.device_block = 3, .length_bytes = VALUE, .first_layer = 2, .layer_end = 1}, .text = "layer"},
    {{.device_block = 3, .length_bytes = VALUE}, .in = true, .text = "look: only out"},
    {{.device_block = 3, .length_bytes = VALUE}, .chunks = true, .text = "look: only out"},
};

START_TEST(blocks_that_cannot_be_digested_are_refused_by_name)
    {
        struct sl_item_piece block;
        struct sl_msg reply;
        with_engine();
        struct sl_msg msg = look_request(&block, 1);
        block = bad_looks[_i].block;
        msg.body.copy.out = !bad_looks[_i].in;
        msg.body.copy.chunks = bad_looks[_i].chunks;

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_ERR_INVALID);
        ck_assert_msg(strstr(reply.text.at, bad_looks[_i].text) != NULL, "%s", reply.text.at);
    }
END_TEST

START_TEST(in_writes_the_device_blocks_and_nothing_else)
    {
        unsigned char want[VALUE], *copy = malloc(POOL_BYTES);
        struct sl_msg reply;
        with_engine();
        memcpy(copy, pools[0], POOL_BYTES);
        for (uint64_t i = 0; i < 5; i++) {
            reserve(&items[i], 0, 599 - 3 * i, VALUE);
            unsigned char *value = sl_arena_at(arena, items[i].offset_bytes, VALUE);
            for (size_t k = 0; k < VALUE; k++) {
                value[k] = (unsigned char)(k * 7 + i);
            }
            for (uint64_t l = 0; l < LAYERS; l++) {
                memcpy(copy + (l * BLOCKS + items[i].device_block) * STRIDE, value + l * PIECE,
                       PIECE);
            }
        }
        struct sl_msg msg = copy_request(false, 5);

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.body.copy_reply.digests.length, 0);
        ck_assert_int_eq(memcmp(pools[0], copy, POOL_BYTES), 0);
        device_value(599, want);
        ck_assert_int_eq(memcmp(want, sl_arena_at(arena, items[0].offset_bytes, VALUE), VALUE), 0);
        free(copy);
    }
END_TEST

static struct sl_item_claim damaged[ITEMS_MAX]; /* reported to the registrar since the last load */
static uint32_t damaged_count;

/* Loads values into blocks 100, 101, ... with their digests. The digest of each `wrong`-th is
 * another value's, as if other bytes had arrived. */
static struct sl_msg load_told(uint64_t count, uint64_t wrong)
{
    struct sl_msg reply;
    with_engine();
    for (uint64_t i = 0; i < count; i++) {
        reserve(&items[i], 0, 100 + i, VALUE);
        unsigned char *value = sl_arena_at(arena, items[i].offset_bytes, VALUE);
        memset(value, (int)i, VALUE);
        struct sl_digest digest = sl_digest_of(value, VALUE);
        items[i].digest_low = digest.low ^ (wrong > 0 && i % wrong == wrong - 1 ? 1 : 0);
        items[i].digest_high = digest.high;
    }
    struct sl_msg msg = copy_request(false, count);
    ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
    (void)stepped_run(&bed, 100); /* moved, then read again */
    damaged_count = 0;
    for (;;) {
        ck_assert(stepped_take(&bed, &reply, NULL));
        if (reply.type != SL_MSG_DAMAGED) {
            return reply;
        }
        const struct sl_item_claim *claim = &reply.body.damaged.items.at[0];
        ck_assert_uint_eq(reply.body.damaged.items.count, 1);
        ck_assert(damaged_count < ITEMS_MAX);
        damaged[damaged_count++] = *claim;
    }
}

static uint64_t not_done(const struct sl_msg *reply, uint64_t count)
{
    uint64_t missing = 0;
    for (uint64_t i = 0; i < count; i++) {
        missing += bit(reply, i) ? 0 : 1;
    }
    return missing;
}

START_TEST(what_arrived_wrong_is_not_done)
    {
        struct sl_msg reply = load_told(6, 3);

        ck_assert_int_eq(reply.code, SL_ERR_CORRUPT);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "device block 102, pool 0"));
        ck_assert(!bit(&reply, 2) && !bit(&reply, 5));
        ck_assert_uint_eq(not_done(&reply, 6), 2);
    }
END_TEST

START_TEST(a_value_that_is_wrong_in_memory_is_told_to_the_registrar)
    {
        (void)load_told(6, 3);

        ck_assert_uint_eq(damaged_count, 2);
        for (uint32_t i = 0; i < damaged_count; i++) {
            const struct sl_item_piece *item = &items[2 + 3 * i];
            ck_assert_uint_eq(damaged[i].ref, item->ref);
            ck_assert_uint_eq(damaged[i].generation, item->generation);
            ck_assert_uint_eq(damaged[i].digest_low, item->digest_low);
            ck_assert_uint_eq(damaged[i].digest_high, item->digest_high);
        }
    }
END_TEST

START_TEST(what_arrived_right_is_done)
    {
        struct sl_msg reply = load_told(200, 0);

        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(not_done(&reply, 200), 0);
    }
END_TEST

START_TEST(one_byte_of_32_is_read_again)
    {
        struct sl_msg reply = load_told(96, 1);

        ck_assert_int_eq(reply.code, SL_ERR_CORRUPT);
        ck_assert_uint_eq(not_done(&reply, 96), 3);
    }
END_TEST

/* 20 MiB: three turns, two of them in a step. */
static void load_large(void)
{
    with_engine();
    for (uint64_t i = 0; i < WIDE_BLOCKS; i++) {
        reserve(&items[i], 1, i, WIDE_VALUE);
        unsigned char *value = sl_arena_at(arena, items[i].offset_bytes, WIDE_VALUE);
        memset(value, (int)i + 1, WIDE_VALUE);
        struct sl_digest digest = sl_digest_of(value, WIDE_VALUE);
        items[i].digest_low = digest.low;
        items[i].digest_high = digest.high;
    }
    struct sl_msg msg = copy_request(false, WIDE_BLOCKS);
    ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
    while (pools[1][WIDE_BLOCKS * WIDE_VALUE - 1] != WIDE_BLOCKS) {
        ck_assert_uint_eq(stepped_run(&bed, 1), 1);
    }
}

START_TEST(large_loads_are_read_again_in_turns)
    {
        struct sl_msg reply;
        load_large();
        ck_assert(!stepped_take(&bed, &reply, NULL));

        ck_assert_uint_ge(stepped_run(&bed, 100), 1);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(not_done(&reply, WIDE_BLOCKS), 0);
    }
END_TEST

START_TEST(a_fence_ends_a_load_that_is_read_again)
    {
        struct sl_msg reply, fence = {.type = SL_MSG_FENCE, .op_id = 77};
        load_large();

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &fence), SL_OK);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_ERR_CANCELLED);
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_uint_eq(reply.type, SL_MSG_FENCE_REPLY);
        (void)stepped_run(&bed, 100);
        ck_assert(!stepped_take(&bed, &reply, NULL));
    }
END_TEST

START_TEST(nothing_is_read_again_when_it_is_off)
    {
        struct sl_msg reply = load_told(96, 1);

        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(not_done(&reply, 96), 0);
    }
END_TEST

static void engine_over(uint64_t engine_id)
{
    struct sl_msg over = {.type = SL_MSG_ENGINE_OVER}, reply;
    over.body.engine_over.engine_id = engine_id;
    ck_assert_int_eq(stepped_give(&bed, "registrar", &over), SL_OK);
    do { /* answers of its COPYs come first */
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert(reply.type == SL_MSG_ENGINE_OVER_REPLY || reply.code == SL_ERR_NOT_FOUND);
    } while (reply.type != SL_MSG_ENGINE_OVER_REPLY);
    ck_assert_int_eq(reply.code, SL_OK);
}

START_TEST(a_registration_that_is_over_is_not_copied_to)
    {
        struct sl_msg reply, asked;
        unsigned char before[VALUE], after[VALUE];
        load_large(); /* a COPY is under way when it ends */
        device_value(7, before);

        engine_over(ENGINE);

        reserve(&items[0], 0, 7, VALUE);
        struct sl_msg msg = copy_request(false, 1);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        ck_assert(stepped_take(&bed, &asked, NULL)); /* it knows nothing of it any more */
        ck_assert_uint_eq(asked.type, SL_MSG_ENGINE_GET);
        struct sl_msg gone = {
            .type = SL_MSG_ENGINE_GET_REPLY, .code = SL_ERR_NOT_FOUND, .reply_to = asked.seq};
        ck_assert_int_eq(stepped_give(&bed, "registrar", &gone), SL_OK);
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_ERR_NOT_FOUND);
        device_value(7, after);
        ck_assert_int_eq(memcmp(before, after, VALUE), 0);
        engine_over(12345); /* one that never existed */
    }
END_TEST

/* The registrar answered before the end, and the answer arrives when it is asked for again. */
START_TEST(an_answer_from_before_the_end_of_a_registration_is_not_heard)
    {
        struct sl_msg reply;
        unsigned char before[VALUE], after[VALUE];
        with_engine();
        engine_over(ENGINE);
        device_value(7, before);
        reserve(&items[0], 0, 7, VALUE);
        struct sl_msg first = copy_request(false, 1), second = copy_request(false, 1);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &first), SL_OK);
        uint64_t early = engine_asked();
        engine_over(ENGINE);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &second), SL_OK);
        uint64_t late = engine_asked();

        engine_told(SL_OK, early);
        ck_assert(!stepped_take(&bed, &reply, NULL));

        engine_told(SL_ERR_NOT_FOUND, late);
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_ERR_NOT_FOUND);
        device_value(7, after);
        ck_assert_int_eq(memcmp(before, after, VALUE), 0);
    }
END_TEST

static void deep_value(uint64_t block, unsigned char out[DEEP_VALUE])
{
    for (uint64_t l = 0; l < DEEP_LAYERS; l++) {
        memcpy(out + l * DEEP_PIECE, pools[2] + (l * DEEP_BLOCKS + block) * DEEP_PIECE, DEEP_PIECE);
    }
}

/* Copies layers [first, end) of `count` blocks out; returns the answer. */
static struct sl_msg copy_layers(uint32_t count, uint64_t first, uint64_t end, bool chunks)
{
    struct sl_msg reply, msg = copy_request(true, count);
    msg.body.copy.chunks = chunks;
    for (uint32_t i = 0; i < count; i++) {
        items[i].first_layer = first;
        items[i].layer_end = end;
    }
    ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
    ck_assert(stepped_take(&bed, &reply, NULL));
    ck_assert_int_eq(reply.code, SL_OK);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert(bit(&reply, i));
    }
    return reply;
}

static void reserve_deep(uint32_t count)
{
    with_engine();
    for (uint32_t i = 0; i < count; i++) {
        reserve(&items[i], 2, i, DEEP_VALUE);
        memset(sl_arena_at(arena, items[i].offset_bytes, DEEP_VALUE), 0xee, DEEP_VALUE);
    }
}

START_TEST(layers_that_are_copied_leave_the_rest_alone)
    {
        unsigned char want[DEEP_VALUE];
        reserve_deep(2);

        struct sl_msg reply = copy_layers(2, 2, 5, false);

        for (uint64_t i = 0; i < 2; i++) {
            const unsigned char *value = sl_arena_at(arena, items[i].offset_bytes, DEEP_VALUE);
            struct sl_digest digest;
            memcpy(&digest, (const unsigned char *)reply.body.copy_reply.digests.at + 16 * i, 16);
            deep_value(i, want);
            memset(want, 0xee, 2 * DEEP_PIECE);
            memset(want + 5 * DEEP_PIECE, 0xee, 2 * DEEP_PIECE);
            ck_assert_int_eq(memcmp(value, want, DEEP_VALUE), 0);
            ck_assert(sl_digest_equal(
                digest, sl_digest_of(want + 2 * DEEP_PIECE, 3 * (uint64_t)DEEP_PIECE)));
        }
    }
END_TEST

/* The end of each COPY: layer by layer, several at once, all at once. */
static const uint64_t deep_ends[][DEEP_LAYERS] = {
    {1, 2, 3, 4, 5, 6, 7}, {3, 4, 7}, {6, 7}, {7}, {1, 7}};

START_TEST(hashes_of_chunks_make_the_digest_of_the_value)
    {
        unsigned char want[DEEP_VALUE];
        uint64_t hashes[DEEP_BLOCKS][4] = {{0}};
        reserve_deep(DEEP_BLOCKS);
        for (uint64_t k = 0, first = 0; k < DEEP_LAYERS && deep_ends[_i][k] != 0; k++) {
            uint64_t end = deep_ends[_i][k];
            struct sl_digest_span span =
                sl_digest_span_of(first * DEEP_PIECE, end * DEEP_PIECE, DEEP_VALUE);

            struct sl_msg reply = copy_layers(DEEP_BLOCKS, first, end, true);

            const unsigned char *at = reply.body.copy_reply.chunks.at;
            ck_assert_uint_eq(reply.body.copy_reply.digests.length, 0);
            ck_assert_uint_eq(reply.body.copy_reply.chunks.length, DEEP_BLOCKS * span.count * 8);
            for (uint64_t i = 0; i < DEEP_BLOCKS && span.count > 0; i++) {
                memcpy(&hashes[i][span.first], at + i * span.count * 8, span.count * 8);
            }
            first = end;
        }
        for (uint64_t i = 0; i < DEEP_BLOCKS; i++) {
            deep_value(i, want);
            ck_assert_int_eq(
                memcmp(sl_arena_at(arena, items[i].offset_bytes, DEEP_VALUE), want, DEEP_VALUE), 0);
            ck_assert(
                sl_digest_equal(sl_digest_of_chunks(hashes[i], 4), sl_digest_of(want, DEEP_VALUE)));
        }
    }
END_TEST

START_TEST(layers_are_copied_in_without_the_others)
    {
        unsigned char before[DEEP_VALUE], after[DEEP_VALUE];
        struct sl_msg reply, msg;
        reserve_deep(1);
        deep_value(0, before);
        items[0].first_layer = 1;
        items[0].layer_end = 4;
        msg = copy_request(false, 1);

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_OK);
        deep_value(0, after);
        memset(before + DEEP_PIECE, 0xee, 3 * DEEP_PIECE);
        ck_assert_int_eq(memcmp(before, after, DEEP_VALUE), 0);
    }
END_TEST

START_TEST(claims_that_ended_are_not_written)
    {
        struct sl_msg reply;
        with_engine();
        for (uint64_t i = 0; i < 3; i++) {
            reserve(&items[i], 0, i, VALUE);
            memset(sl_arena_at(arena, items[i].offset_bytes, VALUE), 0xee, VALUE);
        }
        sl_index_set_kind(node_index, (sl_ref)items[0].ref, SL_RECORD_QUARANTINED);
        items[2].generation++; /* another extent's */
        struct sl_msg msg = copy_request(true, 3);

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(!bit(&reply, 0));
        ck_assert(bit(&reply, 1));
        ck_assert(!bit(&reply, 2));
        ck_assert_uint_eq(*(unsigned char *)sl_arena_at(arena, items[0].offset_bytes, 1), 0xee);
        ck_assert_uint_eq(*(unsigned char *)sl_arena_at(arena, items[2].offset_bytes, 1), 0xee);
    }
END_TEST

/* 20 values of 1 MiB: more than one slice. */
static struct sl_msg large_request(void)
{
    for (uint64_t i = 0; i < WIDE_BLOCKS; i++) {
        reserve(&items[i], 1, i, WIDE_VALUE);
    }
    return copy_request(true, WIDE_BLOCKS);
}

START_TEST(large_copies_are_done_in_slices)
    {
        struct sl_msg reply;
        with_engine();
        struct sl_msg msg = large_request();

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        ck_assert(!stepped_take(&bed, &reply, NULL));
        uint32_t ticks = stepped_run(&bed, 100);

        ck_assert_uint_ge(ticks, 2);
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_OK);
        for (uint64_t i = 0; i < WIDE_BLOCKS; i++) {
            ck_assert(bit(&reply, i));
            ck_assert_int_eq(memcmp(sl_arena_at(arena, items[i].offset_bytes, WIDE_VALUE),
                                    pools[1] + i * WIDE_VALUE, WIDE_VALUE),
                             0);
        }
    }
END_TEST

START_TEST(many_small_parts_are_bounded_by_count_and_take_turns)
    {
        struct sl_msg reply;
        with_engine();
        for (uint64_t i = 0; i < BLOCKS; i++) {
            reserve(&items[i], 0, i, VALUE);
        }
        struct sl_msg large = copy_request(true, BLOCKS), small = copy_request(true, 1);
        small.op_id = 5;

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &large), SL_OK);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &small), SL_OK);
        (void)stepped_run(&bed, 100);

        ck_assert(stepped_take(&bed, &reply, NULL)); /* the small one is not delayed */
        ck_assert_uint_eq(reply.reply_to, small.seq);
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_uint_eq(reply.reply_to, large.seq);
    }
END_TEST

START_TEST(slices_are_paced_by_the_rate_that_is_set)
    {
        struct sl_msg reply;
        with_engine();
        struct sl_msg msg = large_request(); /* 8, 8 and 4 MiB */
        ck_assert_int_eq(sl_config_set(bed.config, "swap_rate", "80MiB", "test", NULL), SL_OK);

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        (void)stepped_run(&bed, 100);

        ck_assert_int_ne(memcmp(sl_arena_at(arena, items[8].offset_bytes, WIDE_VALUE),
                                pools[1] + 8 * WIDE_VALUE, WIDE_VALUE),
                         0);
        stepped_advance(&bed, 99 * SL_NS_PER_MS);
        ck_assert_int_ne(memcmp(sl_arena_at(arena, items[8].offset_bytes, WIDE_VALUE),
                                pools[1] + 8 * WIDE_VALUE, WIDE_VALUE),
                         0);
        stepped_advance(&bed, 2 * SL_NS_PER_MS);
        ck_assert_int_eq(memcmp(sl_arena_at(arena, items[8].offset_bytes, WIDE_VALUE),
                                pools[1] + 8 * WIDE_VALUE, WIDE_VALUE),
                         0);
        ck_assert(!stepped_take(&bed, &reply, NULL));
        stepped_advance(&bed, 100 * SL_NS_PER_MS);
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_OK);
    }
END_TEST

START_TEST(fence_ends_what_was_sent_before_it)
    {
        struct sl_msg reply, fence = {.type = SL_MSG_FENCE, .op_id = 77, .seq = 5003};
        with_engine();
        struct sl_msg msg = large_request(), late = copy_request(true, 1),
                      next = copy_request(true, 1);
        msg.seq = 5001;
        late.seq = 5002;
        next.seq = 5004;

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &fence), SL_OK);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &late), SL_OK);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_uint_eq(reply.type, SL_MSG_COPY_REPLY);
        ck_assert_int_eq(reply.code, SL_ERR_CANCELLED);
        ck_assert(bit(&reply, 0) &&
                  !bit(&reply, WIDE_BLOCKS - 1)); /* reports what was done until then */
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_uint_eq(reply.type, SL_MSG_FENCE_REPLY);
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(stepped_take(&bed, &reply, NULL)); /* one that the fence overtook is refused */
        ck_assert_int_eq(reply.code, SL_ERR_CANCELLED);
        (void)stepped_run(&bed, 100);
        ck_assert(!stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &next),
                         SL_OK); /* the op continues after its fence */
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_OK);
    }
END_TEST

START_TEST(a_repeated_fence_spares_what_was_sent_behind_it)
    {
        struct sl_msg reply, fence = {.type = SL_MSG_FENCE, .op_id = 77, .seq = 5003};
        with_engine();
        struct sl_msg next = large_request();
        next.seq = 5004;

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &fence), SL_OK);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &next), SL_OK);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &fence), SL_OK);
        (void)stepped_run(&bed, 100);

        for (unsigned i = 0; i < 2; i++) {
            ck_assert(stepped_take(&bed, &reply, NULL));
            ck_assert_uint_eq(reply.type, SL_MSG_FENCE_REPLY);
        }
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_uint_eq(reply.type, SL_MSG_COPY_REPLY);
        ck_assert_int_eq(reply.code, SL_OK);
    }
END_TEST

START_TEST(fence_of_claims_leaves_the_rest_of_the_copy)
    {
        struct sl_item_claim claim;
        struct sl_msg reply, fence = {.type = SL_MSG_FENCE, .op_id = 77};
        with_engine();
        struct sl_msg msg = large_request();
        claim = (struct sl_item_claim){.ref = items[19].ref, .generation = items[19].generation};
        fence.body.fence.items.at = &claim;
        fence.body.fence.items.count = 1;

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        sl_index_set_kind(node_index, (sl_ref)items[19].ref, SL_RECORD_QUARANTINED);
        ck_assert_int_eq(stepped_give(&bed, "registrar", &fence), SL_OK);
        (void)stepped_run(&bed, 100);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_uint_eq(reply.type, SL_MSG_FENCE_REPLY);
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert(bit(&reply, 18) && !bit(&reply, 19));
    }
END_TEST

START_TEST(a_repeated_copy_is_not_done_twice)
    {
        struct sl_msg reply;
        with_engine();
        struct sl_msg msg = large_request();

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK); /* while it is queued */
        (void)stepped_run(&bed, 100);
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert(!stepped_take(&bed, &reply, NULL));

        memset(pools[1], 0x55, WIDE_VALUE); /* the device block is released and reused */
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK); /* after its answer */
        (void)stepped_run(&bed, 100);

        ck_assert(stepped_take(&bed, &reply, NULL)); /* the same answer */
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(reply.reply_to, msg.seq);
        ck_assert(bit(&reply, 19));
        ck_assert_uint_ne(*(unsigned char *)sl_arena_at(arena, items[0].offset_bytes + 1, 1), 0x55);
    }
END_TEST

START_TEST(a_copy_repeated_long_after_is_dropped)
    {
        struct sl_msg reply;
        with_engine();
        reserve(&items[0], 0, 9, VALUE);
        struct sl_msg first = copy_request(true, 1);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &first), SL_OK);
        ck_assert(stepped_take(&bed, &reply, NULL));
        for (unsigned i = 0; i < 2 * SW_ANSWERS_MAX; i++) {
            struct sl_msg other = copy_request(true, 1);
            ck_assert_int_eq(stepped_give(&bed, "coordinator", &other), SL_OK);
            ck_assert(stepped_take(&bed, &reply, NULL));
        }

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &first), SL_OK);

        ck_assert(!stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(stepped_give(&bed, "client.5.0", &first),
                         SL_OK); /* another sender's is another one */
        ck_assert(stepped_take(&bed, &reply, NULL));
    }
END_TEST

static const struct {
    uint64_t pool, block, length, arena, offset;
    const char *names;
    uint64_t first_layer, layer_end;
} bad_items[] = {
    {0, 0, VALUE, 0, 0, "items[1].layer_end", 0, LAYERS + 1},
    {0, 0, VALUE, 0, 0, "items[1].layer_end", 1, 1},
    {0, 0, VALUE, 0, 0, "items[1].layer_end", 1, 0},
    {0, 0, VALUE, 0, 0, "items[1].layer_end", LAYERS, LAYERS},
    {3, 0, VALUE, 0, 0, "items[1].pool", 0, 0},
    {7, 0, VALUE, 0, 0, "items[1].pool", 0, 0},
    {0, BLOCKS, VALUE, 0, 0, "items[1].device_block", 0, 0},
    {1, WIDE_BLOCKS, WIDE_VALUE, 0, 0, "items[1].device_block", 0, 0},
    {0, 0, VALUE - 1, 0, 0, "items[1].length_bytes", 0, 0},
    {0, 0, VALUE, 0, 64 * SL_MIB - 1, "items[1].offset_bytes", 0, 0},
    {0, 0, VALUE, 0, UINT64_MAX - 10, "items[1].offset_bytes", 0, 0},
    {0, 0, VALUE, 70, 0, "arena 70", 0, 0},
};

START_TEST(items_that_do_not_fit_refuse_the_copy_untouched)
    {
        struct sl_msg reply;
        with_engine();
        reserve(&items[0], 0, 5, VALUE);
        memset(sl_arena_at(arena, items[0].offset_bytes, VALUE), 0xee, VALUE);
        items[1] = (struct sl_item_piece){.pool = bad_items[_i].pool,
                                          .device_block = bad_items[_i].block,
                                          .length_bytes = bad_items[_i].length,
                                          .arena = bad_items[_i].arena,
                                          .offset_bytes = bad_items[_i].offset,
                                          .ref = 1,
                                          .generation = 1,
                                          .first_layer = bad_items[_i].first_layer,
                                          .layer_end = bad_items[_i].layer_end};
        struct sl_msg msg = copy_request(true, 2);

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_ERR_INVALID);
        ck_assert_msg(strstr(reply.text.at, bad_items[_i].names) != NULL, "%s", reply.text.at);
        ck_assert_uint_eq(*(unsigned char *)sl_arena_at(arena, items[0].offset_bytes, 1), 0xee);
    }
END_TEST

START_TEST(another_ranks_copy_is_refused)
    {
        struct sl_msg reply, msg = copy_request(true, 0);
        msg.body.copy.rank = 0;

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_ERR_INVALID);
    }
END_TEST

START_TEST(unknown_engines_end_their_copies)
    {
        struct sl_msg reply;
        reserve(&items[0], 0, 0, VALUE);
        struct sl_msg a = copy_request(true, 1), b = copy_request(true, 1);

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &a), SL_OK);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &b), SL_OK); /* one question for both */
        answer_engine(SL_ERR_NOT_FOUND);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_ERR_NOT_FOUND);
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_ERR_NOT_FOUND);
        ck_assert(!stepped_take(&bed, &reply, NULL));
    }
END_TEST

START_TEST(waiter_copies_end_at_their_deadline)
    {
        struct sl_msg reply;
        uint32_t answers = 0;
        reserve(&items[0], 0, 0, VALUE);
        struct sl_msg msg = copy_request(true, 1);
        msg.budget_ns = 300 * SL_NS_PER_MS;

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        stepped_advance(&bed, 299 * SL_NS_PER_MS);
        while (stepped_take(&bed, &reply, NULL)) {
            ck_assert_uint_eq(reply.type, SL_MSG_ENGINE_GET); /* asked, and asked again */
        }
        stepped_advance(&bed, 1 * SL_NS_PER_MS);
        while (stepped_take(&bed, &reply, NULL)) {
            if (reply.type == SL_MSG_COPY_REPLY) {
                ck_assert_int_eq(reply.code, SL_ERR_TIMEOUT);
                answers++;
            }
        }

        ck_assert_uint_eq(answers, 1);
    }
END_TEST

START_TEST(slow_copies_end_at_their_deadline_with_what_was_done)
    {
        struct sl_msg reply;
        with_engine();
        struct sl_msg msg = large_request();

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        stepped_advance(&bed, 2 * SL_NS_PER_S);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_ERR_TIMEOUT);
        ck_assert(bit(&reply, 0) && !bit(&reply, 19));
    }
END_TEST

START_TEST(a_dead_engine_is_unmapped)
    {
        struct sl_msg reply;
        with_engine();
        ck_assert_uint_eq(bed.watch_count, 1);
        struct sl_msg msg = large_request();
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);

        stepped_died(&bed, own_id());

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_ERR_NOT_FOUND);
        ck_assert_uint_eq(bed.watch_count, 0);
        msg = copy_request(true, 1);
        msg.op_id = 6;
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK); /* asked for again */
        answer_engine(SL_ERR_NOT_FOUND);
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_ERR_NOT_FOUND);
    }
END_TEST

static sl_err pool_drop(uint64_t epoch)
{
    struct sl_msg drop = {.type = SL_MSG_POOL_DROP}, reply;
    drop.body.pool_drop.epoch = epoch;
    ck_assert_int_eq(stepped_give(&bed, "registrar", &drop), SL_OK);
    while (stepped_take(&bed, &reply, NULL)) { /* after the ends of copies */
        if (reply.type == SL_MSG_POOL_DROP_REPLY) {
            return reply.code;
        }
    }
    ck_abort_msg("no answer");
    return SL_ERR_INTERNAL;
}

START_TEST(memory_that_is_revoked_is_unmapped_before_the_answer)
    {
        struct sl_msg reply;
        pool_epoch = 900;
        with_engine();
        reserve(&items[0], 0, 0, VALUE);
        reserve(&items[1], 1, 0, WIDE_VALUE);
        struct sl_msg msg = copy_request(true, 2);
        ck_assert_int_eq(pool_drop(901), SL_OK); /* not used here */
        ck_assert_uint_eq(bed.watch_count, 1);

        ck_assert_int_eq(pool_drop(900), SL_OK);

        ck_assert_uint_eq(bed.watch_count, 0);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        answer_engine(SL_OK); /* on its way when it was revoked: not mapped again */
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_ERR_NOT_FOUND);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "revoked"));
        ck_assert_uint_eq(bed.watch_count, 0);
    }
END_TEST

static struct sl_msg pool_made(uint64_t epoch, uint64_t bytes)
{
    struct sl_msg make = {.type = SL_MSG_POOL_MAKE}, reply;
    make.body.pool_make.epoch = epoch;
    make.body.pool_make.length_bytes = bytes;
    make.body.pool_make.name = sl_text_of("deployment");
    make.body.pool_make.pool = sl_text_of("kv");
    ck_assert_int_eq(stepped_give(&bed, "registrar", &make), SL_OK);
    ck_assert(stepped_take(&bed, &reply, NULL));
    ck_assert_uint_eq(reply.type, SL_MSG_POOL_MAKE_REPLY);
    return reply;
}

START_TEST(memory_is_made_once_and_freed_when_it_is_dropped)
    {
        struct sl_msg first = pool_made(910, 8192), again = pool_made(910, 8192);
        ck_assert_int_eq(first.code, SL_OK);
        ck_assert_uint_eq(again.body.pool_make_reply.fd, first.body.pool_make_reply.fd);
        ck_assert_uint_eq(first.body.pool_make_reply.handle_kind, SL_MEMORY_SHARED_FD);
        struct stat about;
        int fd = (int)first.body.pool_make_reply.fd;
        ck_assert_int_eq(fstat(fd, &about), 0);
        ck_assert_int_eq(about.st_size, 8192);

        ck_assert_int_eq(pool_drop(910), SL_OK);
        ck_assert_int_eq(pool_drop(910), SL_OK);

        ck_assert_int_ne(fstat(fd, &about), 0);
        ck_assert_int_eq(pool_made(910, 8192).code, SL_ERR_STALE); /* a late question */
        ck_assert_int_ne(pool_made(911, UINT64_MAX).code, SL_OK);
        ck_assert_int_eq(pool_made(912, 4096).code, SL_OK); /* freed by fini */
    }
END_TEST

START_TEST(an_idle_engine_whose_registration_ended_is_unmapped)
    {
        struct sl_msg reply;
        with_engine();

        stepped_advance(&bed, 3 * SL_NS_PER_S);
        answer_engine(SL_OK); /* still there */
        ck_assert_uint_eq(bed.watch_count, 1);
        stepped_advance(&bed, 3 * SL_NS_PER_S);
        answer_engine(SL_ERR_NOT_FOUND);

        ck_assert_uint_eq(bed.watch_count, 0);
        ck_assert(!stepped_take(&bed, &reply, NULL));
    }
END_TEST

/* Copies are requested by another process, which does not know. */
START_TEST(a_busy_rank_of_a_team_whose_registration_ended_is_unmapped)
    {
        struct sl_msg reply;
        team = SL_TEAM_FIRST;
        with_engine();
        for (unsigned i = 0; i < 2; i++) {
            stepped_advance(&bed, 900 * SL_NS_PER_MS);
            struct sl_msg msg = copy_request(true, 1);
            ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
            ck_assert(stepped_take(&bed, &reply, NULL));
            ck_assert_int_eq(reply.code, SL_OK);
        }

        stepped_advance(&bed, 900 * SL_NS_PER_MS);
        answer_engine(SL_ERR_NOT_FOUND);

        ck_assert_uint_eq(bed.watch_count, 0);
    }
END_TEST

START_TEST(too_many_engines_make_room_or_are_refused)
    {
        struct sl_msg reply;
        with_engine(); /* engines_max is 2 */
        for (uint64_t id = 50; id < 53; id++) {
            struct sl_msg msg = copy_request(true, 1);
            msg.body.copy.engine_id = id;
            ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
            ck_assert(stepped_take(&bed, &reply, NULL));
            if (id < 52) { /* the second takes the place of the idle one */
                ck_assert_uint_eq(reply.type, SL_MSG_ENGINE_GET);
            } else {
                ck_assert_int_eq(reply.code, SL_ERR_LIMIT);
            }
        }
        ck_assert_uint_eq(bed.watch_count, 0);
    }
END_TEST

START_TEST(full_queue_answers_limit)
    {
        struct sl_msg reply;
        uint32_t refused = 0, asked = 0;
        reserve(&items[0], 0, 0, VALUE);
        for (unsigned i = 0; i < SW_JOBS_MAX + 3; i++) {
            struct sl_msg msg = copy_request(true, 1);
            ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        }

        while (stepped_take(&bed, &reply, NULL)) {
            refused += reply.type == SL_MSG_COPY_REPLY && reply.code == SL_ERR_LIMIT;
            asked += reply.type == SL_MSG_ENGINE_GET;
        }

        ck_assert_uint_eq(refused, 3);
        ck_assert_uint_eq(asked, 1);
    }
END_TEST

/* Errors in the only region of a registration. */
static const struct {
    uint64_t pool, layer, offset, length, stride, piece, count;
    sl_err want;
} bad_regions[] = {
    {0, 0, 0, POOL_BYTES, STRIDE, PIECE, BLOCKS, SL_OK},
    {1, 0, 0, POOL_BYTES, STRIDE, PIECE, BLOCKS, SL_ERR_INVALID}, /* one pool is registered */
    {0, 1, 0, POOL_BYTES, STRIDE, PIECE, BLOCKS, SL_ERR_INVALID}, /* layer 0 is missing */
    {0, 0, 0, POOL_BYTES, STRIDE, STRIDE + 1, BLOCKS, SL_ERR_INVALID},
    {0, 0, 0, STRIDE * 3 + PIECE - 1, STRIDE, PIECE, 4, SL_ERR_INVALID},
    {0, 0, 0, STRIDE * 3 + PIECE, STRIDE, PIECE, 4, SL_OK},
    {0, 0, 0, POOL_BYTES, UINT64_MAX / 2, PIECE, 4, SL_ERR_INVALID},
    {0, 0, UINT64_MAX - 5, POOL_BYTES, STRIDE, PIECE, BLOCKS, SL_ERR_INVALID},
    {0, 0, 1, POOL_BYTES, STRIDE, PIECE, BLOCKS, SL_ERR_INVALID}, /* the memory is shorter */
};

START_TEST(regions_that_do_not_fit_are_refused)
    {
        struct sl_item_pool pool = {.name = sl_text_of("kv")};
        struct sl_item_region region = {.rank = RANK,
                                        .pool = bad_regions[_i].pool,
                                        .layer = bad_regions[_i].layer,
                                        .handle_kind = SL_MEMORY_SHARED_FD,
                                        .pid = (uint64_t)getpid(),
                                        .fd = (uint64_t)pool_fds[0],
                                        .offset_bytes = bad_regions[_i].offset,
                                        .length_bytes = bad_regions[_i].length,
                                        .block_stride_bytes = bad_regions[_i].stride,
                                        .piece_bytes = bad_regions[_i].piece,
                                        .block_count = bad_regions[_i].count};
        struct sl_body_engine_get_reply body = {
            .world = RANK + 1, .pools = {&pool, 1}, .regions = {&region, 1}};
        struct sw_engine engine = {0};
        struct sl_device *device = NULL;
        struct sl_error why = {0};
        ck_assert_int_eq(
            sl_device_open(&(struct sl_device_options){.name = "host", .staging_bytes = 65536},
                           &device, &why),
            SL_OK);

        sl_err err =
            sw_engine_map(&(struct sw_mapper){.device = device}, &body, RANK, &engine, &why);

        ck_assert_msg(err == bad_regions[_i].want, "%s", why.text);
        ck_assert_uint_eq(engine.mapping_count, err == SL_OK ? 1 : 0);
        ck_assert((sw_engine_part(&engine, 0, 0) != NULL) == (err == SL_OK));
        sw_engine_unmap(device, &engine);
        sl_device_close(&device);
    }
END_TEST

START_TEST(drain_finishes_what_is_queued)
    {
        struct sl_msg reply;
        with_engine();
        struct sl_msg msg = large_request(), later = copy_request(true, 1);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);

        sl_swapper_actor.drain(bed.state);
        ck_assert(!bed.finished);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &later), SL_OK);
        (void)stepped_run(&bed, 100);

        ck_assert(bed.finished);
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_ERR_DRAINING);
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_OK);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("swapper");
    TCase *cases = tcase_create("swapper");
    tcase_set_timeout(cases, 30);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, out_writes_the_layers_one_after_the_other_with_their_digest);
    tcase_add_test(cases, blocks_are_digested_where_they_lie_and_nothing_is_written);
    tcase_add_loop_test(cases, blocks_that_cannot_be_digested_are_refused_by_name, 0,
                        SL_COUNT(bad_looks));
    tcase_add_test(cases, in_writes_the_device_blocks_and_nothing_else);
    tcase_add_test(cases, layers_that_are_copied_leave_the_rest_alone);
    tcase_add_loop_test(cases, hashes_of_chunks_make_the_digest_of_the_value, 0,
                        SL_COUNT(deep_ends));
    tcase_add_test(cases, layers_are_copied_in_without_the_others);
    tcase_add_test(cases, claims_that_ended_are_not_written);
    tcase_add_test(cases, large_copies_are_done_in_slices);
    tcase_add_test(cases, many_small_parts_are_bounded_by_count_and_take_turns);
    tcase_add_test(cases, slices_are_paced_by_the_rate_that_is_set);
    tcase_add_test(cases, fence_ends_what_was_sent_before_it);
    tcase_add_test(cases, a_repeated_fence_spares_what_was_sent_behind_it);
    tcase_add_test(cases, fence_of_claims_leaves_the_rest_of_the_copy);
    tcase_add_test(cases, a_repeated_copy_is_not_done_twice);
    tcase_add_test(cases, a_copy_repeated_long_after_is_dropped);
    tcase_add_loop_test(cases, items_that_do_not_fit_refuse_the_copy_untouched, 0,
                        SL_COUNT(bad_items));
    tcase_add_test(cases, another_ranks_copy_is_refused);
    tcase_add_test(cases, unknown_engines_end_their_copies);
    tcase_add_test(cases, waiter_copies_end_at_their_deadline);
    tcase_add_test(cases, slow_copies_end_at_their_deadline_with_what_was_done);
    tcase_add_test(cases, a_dead_engine_is_unmapped);
    tcase_add_test(cases, memory_that_is_revoked_is_unmapped_before_the_answer);
    tcase_add_test(cases, memory_is_made_once_and_freed_when_it_is_dropped);
    tcase_add_test(cases, an_idle_engine_whose_registration_ended_is_unmapped);
    tcase_add_test(cases, a_busy_rank_of_a_team_whose_registration_ended_is_unmapped);
    tcase_add_test(cases, too_many_engines_make_room_or_are_refused);
    tcase_add_test(cases, full_queue_answers_limit);
    tcase_add_loop_test(cases, regions_that_do_not_fit_are_refused, 0, SL_COUNT(bad_regions));
    tcase_add_test(cases, drain_finishes_what_is_queued);
    tcase_add_test(cases, one_byte_of_32_is_read_again);
    suite_add_tcase(suite, cases);
    TCase *all = tcase_create("verify all");
    tcase_add_checked_fixture(all, setup_all, teardown);
    tcase_add_test(all, what_arrived_wrong_is_not_done);
    tcase_add_test(all, a_value_that_is_wrong_in_memory_is_told_to_the_registrar);
    tcase_add_test(all, what_arrived_right_is_done);
    tcase_add_test(all, large_loads_are_read_again_in_turns);
    tcase_add_test(all, a_fence_ends_a_load_that_is_read_again);
    tcase_add_test(all, a_registration_that_is_over_is_not_copied_to);
    tcase_add_test(all, an_answer_from_before_the_end_of_a_registration_is_not_heard);
    suite_add_tcase(suite, all);
    TCase *automatic = tcase_create("verify auto");
    tcase_add_checked_fixture(automatic, setup_auto, teardown);
    tcase_add_test(automatic, one_byte_of_32_is_read_again);
    suite_add_tcase(suite, automatic);
    TCase *off = tcase_create("verify off");
    tcase_add_checked_fixture(off, setup_off, teardown);
    tcase_add_test(off, nothing_is_read_again_when_it_is_off);
    suite_add_tcase(suite, off);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
