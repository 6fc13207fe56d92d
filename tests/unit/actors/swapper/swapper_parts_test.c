/* tests/unit/actors/swapper/swapper_parts_test.c - a swapper whose rank has some parts of a pool's
 * blocks: heads that are adjacent for each token, layers that other ranks lack. */
#include "actors/swapper/internal.h"
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
#include <unistd.h>

#define ENGINE      41u
#define RANK        1u
#define BLOCKS      40u
#define TOKENS      16u
#define HEADS       3u  /* on this rank: parts FIRST_PART and on */
#define HEAD        96u /* bytes of a head, a token */
#define PARTS       8u
#define FIRST_PART  2u
#define LAYERS      4u               /* two of K, two of V */
#define ROW         (HEADS * HEAD)   /* a token */
#define PAGE        (TOKENS * ROW)   /* a block of a layer, all heads */
#define PIECE       (TOKENS * HEAD)  /* of a part */
#define VALUE       (LAYERS * PIECE) /* of a part; the last has one layer more */
#define LAYER_BYTES (BLOCKS * PAGE)
#define POOL_BYTES  ((LAYERS + 1) * LAYER_BYTES)
#define PLAIN_VALUE 1000u /* pool 1 has no parts */
#define REGIONS     (LAYERS * HEADS + 2)
#define ITEMS_MAX   600u

static struct stepped bed;
static char *shm_dir;
static struct sl_arena *arena;
static struct sl_index *node_index;
static int pool_fd;
static unsigned char *pool, *pool_copy;
static uint64_t next_offset;
static struct sl_item_piece items[ITEMS_MAX];
static struct sl_item_region regions[REGIONS];
static struct sl_item_pool pool_items[2];

/* Heads of a token are adjacent; then by token, block, and layer. */
static void regions_make(void)
{
    uint32_t n = 0;
    for (uint32_t head = 0; head < HEADS; head++) {
        for (uint32_t l = 0; l < LAYERS; l++) {
            regions[n++] = (struct sl_item_region){.rank = RANK,
                                                   .part = FIRST_PART + head,
                                                   .layer = l,
                                                   .handle_kind = SL_MEMORY_SHARED_FD,
                                                   .pid = (uint64_t)getpid(),
                                                   .fd = (uint64_t)pool_fd,
                                                   .offset_bytes = l * LAYER_BYTES + head * HEAD,
                                                   .length_bytes = LAYER_BYTES - head * HEAD,
                                                   .block_stride_bytes = PAGE,
                                                   .piece_bytes = PIECE,
                                                   .block_count = BLOCKS,
                                                   .fragment_bytes = HEAD,
                                                   .fragment_stride_bytes = ROW};
        }
    }
    regions[n] = regions[0]; /* a layer that only the last part has, as one run */
    regions[n].part = FIRST_PART + HEADS - 1;
    regions[n].layer = LAYERS;
    regions[n].offset_bytes = LAYERS * LAYER_BYTES;
    regions[n].fragment_bytes = regions[n].fragment_stride_bytes = 0;
    n++;
    regions[n++] = (struct sl_item_region){.rank = RANK,
                                           .pool = 1,
                                           .handle_kind = SL_MEMORY_SHARED_FD,
                                           .pid = (uint64_t)getpid(),
                                           .fd = (uint64_t)pool_fd,
                                           .offset_bytes = LAYERS * LAYER_BYTES,
                                           .length_bytes = LAYER_BYTES,
                                           .block_stride_bytes = PAGE,
                                           .piece_bytes = PLAIN_VALUE,
                                           .block_count = BLOCKS};
    ck_assert_uint_eq(n, REGIONS);
    pool_items[0] = (struct sl_item_pool){.name = sl_text_of("kv"), .part_count = PARTS};
    pool_items[1] = (struct sl_item_pool){.name = sl_text_of("plain")};
}

static void setup(void)
{
    static const char *const settings[] = {"rank", "1", "swap_staging", "64KiB", NULL};
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
    pool_fd = memfd_create("pool", MFD_CLOEXEC);
    ck_assert_int_eq(ftruncate(pool_fd, POOL_BYTES), 0);
    pool = mmap(NULL, POOL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, pool_fd, 0);
    ck_assert(pool != MAP_FAILED);
    for (size_t i = 0; i < POOL_BYTES; i++) {
        pool[i] = (unsigned char)(i * 131 + i / 4099);
    }
    pool_copy = malloc(POOL_BYTES);
    memcpy(pool_copy, pool, POOL_BYTES);
    next_offset = 0;
    regions_make();
    stepped_start(&bed, &sl_swapper_actor, shm_dir, settings, true);
}

static void teardown(void)
{
    stepped_end(&bed);
    sl_index_close(&node_index);
    sl_arena_close(&arena);
    shm_dir_remove(shm_dir);
    close(pool_fd);
    free(pool_copy);
}

static uint64_t part_bytes(uint64_t part)
{
    return VALUE + (part == FIRST_PART + HEADS - 1 ? PIECE : 0);
}

/* A reservation of one part: fills *item. */
static void reserve(struct sl_item_piece *item, uint64_t part, uint64_t device_block)
{
    static uint64_t number;
    char key[64];
    int key_length = snprintf(key, sizeof(key), "model/block%llu/%llu/kv",
                              (unsigned long long)number++, (unsigned long long)part);
    uint64_t length = part_bytes(part);
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
    *item = (struct sl_item_piece){.part = part,
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

static struct sl_body_engine_get_reply engine_body(void)
{
    struct sl_proc_id self = own_id();
    return (struct sl_body_engine_get_reply){.engine_id = ENGINE,
                                             .pid = self.pid,
                                             .start_time = self.start_time,
                                             .world = 2,
                                             .pools = {pool_items, SL_COUNT(pool_items)},
                                             .regions = {regions, REGIONS}};
}

static void answer_engine(void)
{
    struct sl_msg asked, reply = {.type = SL_MSG_ENGINE_GET_REPLY};
    ck_assert(stepped_take(&bed, &asked, NULL));
    ck_assert_uint_eq(asked.type, SL_MSG_ENGINE_GET);
    reply.body.engine_get_reply = engine_body();
    reply.reply_to = asked.seq;
    ck_assert_int_eq(stepped_give(&bed, "registrar", &reply), SL_OK);
}

/* The plain loop: copies between a block's part in `memory` and `value`. */
static void part_copy(unsigned char *memory, uint64_t part, uint64_t block, unsigned char *value,
                      bool to_memory)
{
    for (uint64_t l = 0; l < part_bytes(part) / PIECE; l++) {
        for (uint64_t t = 0; t < TOKENS; t++) {
            unsigned char *at = memory + l * LAYER_BYTES + block * PAGE;
            at += l == LAYERS ? t * HEAD : t * ROW + (part - FIRST_PART) * HEAD;
            memcpy(to_memory ? at : value, to_memory ? value : at, HEAD);
            value += HEAD;
        }
    }
}

/* Sends the COPY and returns its answer, in which everything is done. */
static struct sl_msg copied(bool out, uint32_t count, bool ask)
{
    struct sl_msg reply, msg = copy_request(out, count);
    ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
    if (ask) {
        answer_engine();
    }
    (void)stepped_run(&bed, 100);
    ck_assert(stepped_take(&bed, &reply, NULL));
    ck_assert_msg(reply.code == SL_OK, "%s", reply.text.length > 0 ? reply.text.at : "?");
    for (uint32_t i = 0; i < count; i++) {
        const unsigned char *done = reply.body.copy_reply.done.at;
        ck_assert((done[i >> 3] >> (i & 7) & 1) != 0);
    }
    return reply;
}

/* Every part of some blocks, block by block, as a coordinator asks for them. */
static uint32_t reserve_all(uint32_t blocks)
{
    uint32_t count = 0;
    for (uint32_t b = 0; b < blocks; b++) {
        for (uint32_t head = 0; head < HEADS; head++) {
            reserve(&items[count++], FIRST_PART + head, (b * 7 + 3) % BLOCKS);
        }
    }
    return count;
}

START_TEST(each_part_goes_to_a_value_of_its_own)
    {
        unsigned char want[VALUE + PIECE];
        uint32_t count = reserve_all(12);

        struct sl_msg reply = copied(true, count, true);

        for (uint32_t i = 0; i < count; i++) {
            uint64_t length = part_bytes(items[i].part);
            struct sl_digest digest;
            part_copy(pool, items[i].part, items[i].device_block, want, false);
            memcpy(&digest, (const unsigned char *)reply.body.copy_reply.digests.at + 16 * i, 16);
            ck_assert_int_eq(
                memcmp(sl_arena_at(arena, items[i].offset_bytes, length), want, length), 0);
            ck_assert(sl_digest_equal(digest, sl_digest_of(want, length)));
        }
        ck_assert_int_eq(memcmp(pool, pool_copy, POOL_BYTES), 0);
    }
END_TEST

START_TEST(each_part_goes_to_its_runs_and_nowhere_else)
    {
        uint32_t count = reserve_all(5);
        (void)copied(true, count, true);
        for (uint32_t i = 0; i < count; i++) {
            uint64_t length = part_bytes(items[i].part);
            unsigned char *value = sl_arena_at(arena, items[i].offset_bytes, length);
            for (uint64_t k = 0; k < length; k++) {
                value[k] = (unsigned char)(k * 17 + i);
            }
            if (i % 2 == 0) { /* the others are not asked for */
                part_copy(pool_copy, items[i].part, items[i].device_block, value, true);
                items[i / 2] = items[i];
            }
        }

        (void)copied(false, (count + 1) / 2, false);

        ck_assert_int_eq(memcmp(pool, pool_copy, POOL_BYTES), 0);
    }
END_TEST

START_TEST(layers_of_a_part_go_alone)
    {
        unsigned char want[VALUE];
        reserve(&items[0], FIRST_PART, 9);
        items[0].first_layer = 1;
        items[0].layer_end = 3;
        unsigned char *value = sl_arena_at(arena, items[0].offset_bytes, VALUE);
        memset(value, 0xee, VALUE);

        (void)copied(true, 1, true);

        part_copy(pool, FIRST_PART, 9, want, false);
        memset(want, 0xee, PIECE);
        memset(want + 3 * PIECE, 0xee, PIECE);
        ck_assert_int_eq(memcmp(value, want, VALUE), 0);
    }
END_TEST

/* Blocks arrive with all their parts, and a GPU would launch a kernel for each. */
START_TEST(moves_of_a_part_follow_each_other_in_a_slice)
    {
        const struct swapper *swapper = bed.state;
        uint32_t changes = 0;
        uint32_t count = reserve_all(30);

        struct sl_msg reply = copied(true, count, true);

        const struct sw_slice *slice = &swapper->slices[0];
        ck_assert_uint_eq(slice->count, count);
        for (uint32_t i = 1; i < slice->count; i++) {
            const struct sl_item_piece *before = &items[slice->parts[i - 1].item];
            const struct sl_item_piece *item = &items[slice->parts[i].item];
            changes += slice->moves[i].layers_index != slice->moves[i - 1].layers_index;
            ck_assert(item->part != before->part ||
                      slice->parts[i].item > slice->parts[i - 1].item);
            ck_assert_uint_eq(slice->moves[i].device_block, item->device_block);
        }
        ck_assert_uint_eq(changes, HEADS - 1);
        for (uint32_t i = 0; i < count; i++) { /* answers are in the order of the items */
            struct sl_digest digest;
            uint64_t length = part_bytes(items[i].part);
            memcpy(&digest, (const unsigned char *)reply.body.copy_reply.digests.at + 16 * i, 16);
            ck_assert(sl_digest_equal(
                digest, sl_digest_of(sl_arena_at(arena, items[i].offset_bytes, length), length)));
        }
    }
END_TEST

START_TEST(in_a_pool_without_parts_the_part_says_nothing)
    {
        reserve(&items[0], 5, 3);
        items[0].pool = 1;
        items[0].length_bytes = PLAIN_VALUE;

        (void)copied(true, 1, true);

        ck_assert_int_eq(memcmp(sl_arena_at(arena, items[0].offset_bytes, PLAIN_VALUE),
                                pool + LAYERS * LAYER_BYTES + 3 * PAGE, PLAIN_VALUE),
                         0);
    }
END_TEST

static const struct {
    uint64_t part, length;
    const char *names;
} bad_items[] = {
    {FIRST_PART - 1, VALUE, "items[1].part: engine 41 has no part 1 of pool 0 on rank 1"},
    {FIRST_PART + HEADS, VALUE, "items[1].part"},
    {PARTS, VALUE, "items[1].part"},
    {63, VALUE, "items[1].part"},
    {FIRST_PART + HEADS - 1, VALUE, "items[1].length_bytes"}, /* it has a layer more */
    {FIRST_PART, VALUE + PIECE, "items[1].length_bytes"},
};

START_TEST(parts_that_the_rank_does_not_have_refuse_the_copy_untouched)
    {
        struct sl_msg reply;
        reserve(&items[0], FIRST_PART, 5);
        (void)copied(true, 1, true);
        memset(sl_arena_at(arena, items[0].offset_bytes, VALUE), 0xee, VALUE);
        reserve(&items[1], FIRST_PART, 6);
        items[1].part = bad_items[_i].part;
        items[1].length_bytes = bad_items[_i].length;
        struct sl_msg msg = copy_request(true, 2);

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_ERR_INVALID);
        ck_assert_msg(strstr(reply.text.at, bad_items[_i].names) != NULL, "%s", reply.text.at);
        ck_assert_uint_eq(*(unsigned char *)sl_arena_at(arena, items[0].offset_bytes, 1), 0xee);
    }
END_TEST

/* Errors in region 1, or in pool 0. */
static void no_multiple(void)
{
    regions[1].fragment_bytes = HEAD - 1;
}
static void no_fragment(void)
{
    regions[1].fragment_bytes = 0;
}
static void overlaps(void)
{
    regions[1].fragment_stride_bytes = HEAD - 1;
}
static void past_the_stride(void)
{
    regions[1].fragment_stride_bytes = ROW + HEAD; /* the last run ends in the next block */
}
static void overflows(void)
{
    regions[1].fragment_stride_bytes = UINT64_MAX / (TOKENS - 1) + 1;
}
static void past_the_length(void)
{
    regions[1].length_bytes = LAYER_BYTES - (HEADS - 1) * HEAD - 1;
}
static void past_the_memory(void)
{
    regions[LAYERS * HEADS].offset_bytes += 1;
}
static void double_layer(void)
{
    regions[1].layer = 0;
}
static void missing_layer(void)
{
    regions[1].layer = LAYERS;
}
static void other_part(void)
{
    regions[1].part = FIRST_PART + 1; /* layer 1 of it exists */
}
static void no_such_part(void)
{
    regions[1].part = PARTS;
}
static void part_of_none(void)
{
    regions[REGIONS - 1].part = 1;
}
static void memory_of_another(void)
{
    regions[1].handle_kind = SL_MEMORY_PROCESS;
    regions[1].pid = (uint64_t)getppid();
}
static void memory_of_a_former(void)
{
    regions[1].handle_kind = SL_MEMORY_PROCESS;
    regions[1].start_time = own_id().start_time - 1;
}
static void too_many_parts(void)
{
    pool_items[0].part_count = SW_PARTS_MAX + 1;
}
static void too_many_runs(void)
{
    for (unsigned l = 0; l < LAYERS; l++) {
        regions[l].piece_bytes = SL_DEVICE_BLOCK_RUNS_MAX / LAYERS + 1;
        regions[l].fragment_bytes = 1;
        regions[l].fragment_stride_bytes = 1;
        regions[l].offset_bytes = 0;
        regions[l].block_count = 1;
        regions[l].length_bytes = regions[l].block_stride_bytes = POOL_BYTES;
    }
}

static const struct {
    void (*spoil)(void);
    const char *names;
} bad_regions[] = {
    {no_multiple, "regions[1].fragment_bytes"},
    {no_fragment, "regions[1].fragment_bytes"},
    {overlaps, "regions[1].fragment_bytes"},
    {past_the_stride, "regions[1].fragment_bytes"},
    {overflows, "regions[1].fragment_bytes"},
    {past_the_length, "regions[1].length_bytes"},
    {past_the_memory, "bytes, "},
    {double_layer, "regions[1].layer: twice"},
    {missing_layer, "rank 1, pool 0, part 2 lacks layer 1"},
    {other_part, "rank 1, pool 0, part 2 lacks layer 1"},
    {no_such_part, "regions[1].part: 8 of pool 0 with 8"},
    {part_of_none, "regions[13].part: 1 of pool 1 with 0"},
    {memory_of_another, "regions[1].pid: plain memory of process"},
    {memory_of_a_former, "is a different one now"},
    {too_many_parts, "of pool 0 with 65"},
    {too_many_runs, "pool 0, part 2: fragment_bytes"},
};

START_TEST(regions_that_do_not_fit_are_refused_by_name)
    {
        struct sw_engine engine = {0};
        struct sl_device *device = NULL;
        struct sl_error why = {0};
        bad_regions[_i].spoil();
        struct sl_body_engine_get_reply body = engine_body();
        ck_assert_int_eq(
            sl_device_open(&(struct sl_device_options){.name = "host", .staging_bytes = 65536},
                           &device, &why),
            SL_OK);

        sl_err err =
            sw_engine_map(&(struct sw_mapper){.device = device}, &body, RANK, &engine, &why);

        ck_assert_int_eq(err, bad_regions[_i].spoil == memory_of_a_former ? SL_ERR_NOT_FOUND
                                                                          : SL_ERR_INVALID);
        ck_assert_msg(strstr(why.text, bad_regions[_i].names) != NULL, "%s", why.text);
        ck_assert_uint_eq(engine.mapping_count, 0);
        ck_assert_ptr_null(sw_engine_part(&engine, 0, FIRST_PART));
        sl_device_close(&device);
    }
END_TEST

START_TEST(only_the_parts_of_the_rank_are_there)
    {
        struct sw_engine engine = {0};
        struct sl_device *device = NULL;
        struct sl_error why = {0};
        struct sl_body_engine_get_reply body = engine_body();
        regions[REGIONS - 1].rank = RANK - 1; /* pool 1 is another rank's */
        ck_assert_int_eq(
            sl_device_open(&(struct sl_device_options){.name = "host", .staging_bytes = 65536},
                           &device, &why),
            SL_OK);

        ck_assert_msg(sw_engine_map(&(struct sw_mapper){.device = device}, &body, RANK, &engine,
                                    &why) == SL_OK,
                      "%s", why.text);

        for (uint64_t part = 0; part < SW_PARTS_MAX + 1; part++) {
            const struct sw_part *found = sw_engine_part(&engine, 0, part);
            bool ours = part >= FIRST_PART && part < FIRST_PART + HEADS;
            ck_assert((found != NULL) == ours);
            ck_assert(!ours || found->value_bytes == part_bytes(part));
        }
        ck_assert_ptr_null(sw_engine_part(&engine, 1, 0));
        ck_assert_ptr_null(sw_engine_part(&engine, SW_POOLS_MAX, 0));
        sw_engine_unmap(device, &engine);
        sl_device_close(&device);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("swapper_parts");
    TCase *cases = tcase_create("parts");
    tcase_set_timeout(cases, 30);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, each_part_goes_to_a_value_of_its_own);
    tcase_add_test(cases, each_part_goes_to_its_runs_and_nowhere_else);
    tcase_add_test(cases, layers_of_a_part_go_alone);
    tcase_add_test(cases, moves_of_a_part_follow_each_other_in_a_slice);
    tcase_add_test(cases, in_a_pool_without_parts_the_part_says_nothing);
    tcase_add_loop_test(cases, parts_that_the_rank_does_not_have_refuse_the_copy_untouched, 0,
                        SL_COUNT(bad_items));
    tcase_add_loop_test(cases, regions_that_do_not_fit_are_refused_by_name, 0,
                        SL_COUNT(bad_regions));
    tcase_add_test(cases, only_the_parts_of_the_rank_are_there);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
