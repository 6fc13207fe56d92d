/* tests/gpu/swapper_played_test.c - a swapper on `cuda` and a driver that plays a GPU: an
 * engine's pool by its IPC handle, an arena that is pinned, and the effects of a sticky error. */
#include "actors/swapper/swapper.h"
#include "cuda/driver.h"
#include "cuda/sl_device.h"
#include "ipc/shm/sl_index.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/own_id.h"
#include "tests/unit/ipc/msg/stepped_env.h"

#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENGINE      41u
#define LAYERS      4u
#define BLOCKS      16u
#define PIECE       4096u
#define VALUE       (LAYERS * PIECE)
#define ARENA_BYTES (48 * SL_MIB)

static struct stepped bed;
static char shm_dir[64];
static struct sl_arena *arena;
static struct sl_index *node_index;
static struct sl_item_piece items[BLOCKS];
static struct sl_driver engine; /* the engine's own use of the driver */
static struct fake_cuda *fake;
static sl_cu_ptr pool;
static struct sl_cu_ipc ipc;
static int left_pinned, left_allocated; /* resources that a process holds until it exits */

static void engine_start(void)
{
    fake_cuda_state_fn state;
    ck_assert_int_eq(sl_driver_open(&engine, NULL, NULL), SL_OK);
    void *symbol = dlsym(engine.library, "fake_cuda_state");
    ck_assert_msg(symbol != NULL, "LD_LIBRARY_PATH names no driver that plays a GPU");
    memcpy(&state, &symbol, sizeof(state));
    fake = state();
    ck_assert_int_eq(engine.context_set(&engine), 0);
    ck_assert_int_eq(engine.memory_get(&pool, LAYERS * BLOCKS * PIECE), 0);
    ck_assert_int_eq(engine.ipc_get(&ipc, pool), 0);
    unsigned char *bytes = (unsigned char *)(uintptr_t)pool;
    for (size_t i = 0; i < LAYERS * BLOCKS * PIECE; i++) {
        bytes[i] = (unsigned char)(i * 131 + i / 4099);
    }
}

static void arena_make(void)
{
    struct sl_error why = {0};
    bool created = false;
    struct sl_arena_options options = {
        .directory = shm_dir, .data_bytes = ARENA_BYTES, .chunk_bytes = ARENA_BYTES};
    ck_assert_msg(sl_arena_open_owner(&options, &created, &arena, &why) == SL_OK, "%s", why.text);
    while (sl_arena_populate_below(arena, UINT64_MAX, &why) == SL_OK) {
    }
}

static void setup_with(const char *kernels, const char *verify)
{
    const char *const settings[] = {
        "device", "cuda",        "swap_staging", "256KiB", "swap_measure", "false", "swap_kernels",
        kernels,  "load_verify", verify,         NULL};
    struct sl_error why = {0};
    bool created = false;
    engine_start();
    strcpy(shm_dir, "/dev/shm/sluice-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(shm_dir));
    arena_make();
    struct sl_index_options index_options = {
        .shm_dir = shm_dir, .index_bytes_max = 16 * SL_MIB, .arena = arena};
    ck_assert_msg(sl_index_open(&index_options, &created, &node_index, &why) == SL_OK, "%s",
                  why.text);
    stepped_start(&bed, &sl_swapper_actor, shm_dir, settings, false);
    const struct sl_metrics_options page = {
        .actor = "swapper", .self = own_id(), .trace_events = 64};
    ck_assert_int_eq(sl_metrics_open(&page, &bed.env.metrics, &why), SL_OK);
    ck_assert_msg(sl_swapper_actor.init(bed.state, &bed.env, &why) == SL_OK, "%s", why.text);
}

static void setup(void)
{
    setup_with("always", "auto"); /* nothing else records events */
}

static void setup_all(void)
{
    setup_with("always", "all");
}

static void setup_copies(void)
{
    setup_with("never", "all");
}

static void setup_copies_auto(void)
{
    setup_with("never", "auto");
}

static void setup_off(void)
{
    setup_with("always", "off");
}

static void teardown(void)
{
    struct sl_metrics *metrics = bed.env.metrics;
    stepped_end(&bed);
    sl_metrics_close(&metrics);
    ck_assert_int_eq(fake->contexts + fake->streams + fake->ipc_opens, 0);
    ck_assert_int_eq(fake->registrations, left_pinned);
    ck_assert_int_eq(fake->allocations, 1 + left_allocated); /* the engine's pool */
    ck_assert_int_eq(fake->events, 0);
    sl_index_close(&node_index);
    sl_arena_close(&arena);
    (void)sl_shm_file_remove(shm_dir, "index", NULL);
    (void)sl_shm_file_remove(shm_dir, "arena.0", NULL);
    rmdir(shm_dir);
}

static struct sl_msg copy_request(bool out)
{
    struct sl_error why = {0};
    for (uint64_t i = 0; i < BLOCKS; i++) {
        char key[32];
        int length = snprintf(key, sizeof(key), "value %d", (int)i);
        struct sl_entry want = {
            .extent = {.generation = sl_arena_next_generation(arena),
                       .offset_bytes = i * sl_extent_space(VALUE),
                       .length_bytes = VALUE},
            .kind = SL_RECORD_RESERVED,
            .key = key,
            .key_length = (uint16_t)length,
        };
        sl_ref ref = 0;
        if (out) {
            ck_assert_msg(sl_index_claim(node_index, &want, &ref, &why) == SL_OK, "%s", why.text);
        }
        items[i] = (struct sl_item_piece){.device_block = (i * 5) % BLOCKS,
                                          .offset_bytes = want.extent.offset_bytes,
                                          .length_bytes = VALUE,
                                          .ref = ref,
                                          .generation = want.extent.generation};
    }
    struct sl_msg msg = {.type = SL_MSG_COPY, .op_id = 77};
    msg.body.copy.engine_id = ENGINE;
    msg.body.copy.out = out;
    msg.body.copy.items.at = items;
    msg.body.copy.items.count = BLOCKS;
    return msg;
}

/* Answers ENGINE_GET as the registrar does; returns the swapper's result. */
static sl_err engine_answer(void)
{
    struct sl_item_pool pools[1] = {{.name = sl_text_of("kv")}};
    struct sl_item_region regions[LAYERS];
    struct sl_msg asked, reply = {.type = SL_MSG_ENGINE_GET_REPLY};
    struct sl_proc_id self = own_id();
    ck_assert(stepped_take(&bed, &asked, NULL));
    ck_assert_uint_eq(asked.type, SL_MSG_ENGINE_GET);
    for (uint64_t l = 0; l < LAYERS; l++) {
        regions[l] = (struct sl_item_region){
            .layer = l,
            .handle_kind = SL_MEMORY_CUDA_IPC,
            .handle = {.at = ipc.bytes, .length = sizeof(ipc.bytes)},
            .pid = self.pid,
            .offset_bytes = l * BLOCKS * PIECE,
            .length_bytes = BLOCKS * PIECE,
            .block_stride_bytes = PIECE,
            .piece_bytes = PIECE,
            .block_count = BLOCKS,
        };
    }
    reply.body.engine_get_reply.engine_id = ENGINE;
    reply.body.engine_get_reply.pid = self.pid;
    reply.body.engine_get_reply.start_time = self.start_time;
    reply.body.engine_get_reply.world = 1;
    reply.body.engine_get_reply.pools.at = pools;
    reply.body.engine_get_reply.pools.count = 1;
    reply.body.engine_get_reply.regions.at = regions;
    reply.body.engine_get_reply.regions.count = LAYERS;
    reply.reply_to = asked.seq;
    return stepped_give(&bed, "registrar", &reply);
}

START_TEST(arena_is_pinned_while_nothing_is_to_be_copied)
    {
        ck_assert_int_eq(fake->registrations, 0); /* the start does not wait for it */

        (void)stepped_run(&bed, 100);

        ck_assert_int_eq(fake->registrations, 2);
    }
END_TEST

START_TEST(arena_is_pinned_also_when_there_is_always_something_to_copy)
    {
        struct sl_msg reply, msg = copy_request(false);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        ck_assert_int_eq(engine_answer(), SL_OK);
        ck_assert_int_lt(fake->registrations, 2); /* one while the engine was looked up */

        for (uint32_t i = 0; i < 40; i++) { /* no tick between two messages */
            ck_assert(stepped_take(&bed, &reply, NULL));
            msg = copy_request(false);
            ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        }

        ck_assert_int_eq(fake->registrations, 2);
    }
END_TEST

START_TEST(blocks_of_a_gpu_go_out_and_in)
    {
        struct sl_msg reply, msg = copy_request(true);
        unsigned char *bytes = (unsigned char *)(uintptr_t)pool, copy[LAYERS * BLOCKS * PIECE];
        memcpy(copy, bytes, sizeof(copy));
        (void)stepped_run(&bed, 100);

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        ck_assert_int_eq(engine_answer(), SL_OK);
        (void)stepped_run(&bed, 100);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_OK);
        for (uint64_t i = 0; i < BLOCKS; i++) {
            const unsigned char *value = sl_arena_at(arena, items[i].offset_bytes, VALUE);
            struct sl_digest digest, want = sl_digest_of(value, VALUE);
            memcpy(&digest, (const unsigned char *)reply.body.copy_reply.digests.at + 16 * i, 16);
            ck_assert(sl_digest_equal(digest, want));
            for (uint64_t l = 0; l < LAYERS; l++) {
                ck_assert_int_eq(memcmp(value + l * PIECE,
                                        copy + (l * BLOCKS + items[i].device_block) * PIECE, PIECE),
                                 0);
            }
        }
        ck_assert_uint_gt(fake->launches, 0);
        memset(bytes, 0, sizeof(copy));
        msg = copy_request(false);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        (void)stepped_run(&bed, 100);
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_int_eq(memcmp(bytes, copy, sizeof(copy)), 0);
    }
END_TEST

/* ---- what arrived is what was stored ---- */

/* Stores all blocks, and loads them with the digests of the answer. */
static struct sl_msg stored(void)
{
    struct sl_msg reply, msg = copy_request(true);
    ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
    ck_assert_int_eq(engine_answer(), SL_OK);
    (void)stepped_run(&bed, 100);
    ck_assert(stepped_take(&bed, &reply, NULL));
    ck_assert_int_eq(reply.code, SL_OK);
    unsigned char digests[BLOCKS * 16];
    ck_assert_uint_eq(reply.body.copy_reply.digests.length, sizeof(digests));
    memcpy(digests, reply.body.copy_reply.digests.at, sizeof(digests));
    msg = copy_request(false);
    for (uint64_t i = 0; i < BLOCKS; i++) {
        memcpy(&items[i].digest_low, digests + 16 * i, 8);
        memcpy(&items[i].digest_high, digests + 16 * i + 8, 8);
    }
    return msg;
}

static struct sl_msg loaded(struct sl_msg *msg)
{
    struct sl_msg reply;
    ck_assert_int_eq(stepped_give(&bed, "coordinator", msg), SL_OK);
    (void)stepped_run(&bed, 100);
    ck_assert(stepped_take(&bed, &reply, NULL));
    return reply;
}

/* Changes a byte of the value. */
static void value_spoil(unsigned item, uint64_t at)
{
    unsigned char *value = sl_arena_at(arena, items[item].offset_bytes, VALUE);
    value[at] ^= 1;
}

static uint64_t counted(const char *name)
{
    return sl_metric_get(bed.env.metrics, sl_metric_define(bed.env.metrics, name));
}

/* _i: number of changed values. Every part is digested by a kernel, which returns only hashes. */
START_TEST(loads_are_checked_on_the_gpu)
    {
        (void)stepped_run(&bed, 100);
        struct sl_msg msg = stored();
        uint64_t kernels = counted("kernels"), bounced = counted("bounced_bytes");
        for (int n = 0; n < _i; n++) {
            value_spoil(3 + (unsigned)n, VALUE - 1 - (unsigned)n);
        }

        struct sl_msg reply = loaded(&msg);

        ck_assert_int_eq(reply.code, _i == 0 ? SL_OK : SL_ERR_CORRUPT);
        for (uint64_t i = 0; i < BLOCKS; i++) {
            unsigned done = ((const unsigned char *)reply.body.copy_reply.done.at)[i / 8];
            ck_assert_uint_eq(done >> i % 8 & 1, i < 3 || i >= 3 + (uint64_t)_i);
        }
        if (_i > 0) {
            char block[64];
            snprintf(block, sizeof(block), "device block %d, pool 0", (int)items[3].device_block);
            ck_assert_ptr_nonnull(strstr(reply.text.at, block));
        }
        ck_assert_uint_eq(counted("parts_verified"), BLOCKS);
        ck_assert_uint_eq(counted("verified_bytes"), BLOCKS * VALUE);
        ck_assert_uint_eq(counted("parts_corrupt"), (uint64_t)_i);
        ck_assert_uint_gt(counted("kernels"), kernels);
        ck_assert_uint_eq(counted("bounced_bytes"), bounced);
    }
END_TEST

/* Without kernels `all` reads everything over the bus again. */
START_TEST(loads_are_checked_by_the_processor)
    {
        (void)stepped_run(&bed, 100);
        struct sl_msg msg = stored();
        value_spoil(7, 0);

        struct sl_msg reply = loaded(&msg);

        ck_assert_int_eq(reply.code, SL_ERR_CORRUPT);
        ck_assert_uint_eq(counted("parts_verified"), BLOCKS);
        ck_assert_uint_eq(counted("bounced_bytes"), BLOCKS * VALUE);
        ck_assert_uint_eq(counted("kernels"), 0);
    }
END_TEST

/* 16 parts of a size: a share of one in 32 checks none in the first load, and one in two loads. */
START_TEST(without_kernels_a_share_is_checked)
    {
        (void)stepped_run(&bed, 100);
        struct sl_msg msg = stored();
        ck_assert_int_eq(loaded(&msg).code, SL_OK);
        ck_assert_uint_eq(counted("parts_verified"), 0);
        msg.seq = 0; /* another COPY */
        ck_assert_int_eq(loaded(&msg).code, SL_OK);
        ck_assert_uint_eq(counted("parts_verified"), 1);
    }
END_TEST

START_TEST(nothing_is_checked_when_it_is_off)
    {
        (void)stepped_run(&bed, 100);
        struct sl_msg msg = stored();
        value_spoil(7, 0);

        ck_assert_int_eq(loaded(&msg).code, SL_OK);

        ck_assert_uint_eq(counted("parts_verified"), 0);
    }
END_TEST

/* A FENCE while blocks are digested is answered after the COPY, when no copy is under way. */
START_TEST(a_fence_waits_for_a_check)
    {
        struct sl_msg reply, fence = {.type = SL_MSG_FENCE, .op_id = 77};
        (void)stepped_run(&bed, 100);
        struct sl_msg msg = stored();
        uint64_t kernels = counted("kernels");
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        fake->event_queries = 1000000; /* no slice ends by itself */
        for (int n = 0; n < 100 && counted("kernels") < kernels + 2; n++) { /* scatter, digest */
            (void)stepped_run(&bed, 1);
        }

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &fence), SL_OK);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_uint_eq(reply.type, SL_MSG_COPY_REPLY);
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_uint_eq(reply.type, SL_MSG_FENCE_REPLY);
        ck_assert_uint_eq(fake->undone, 0);
    }
END_TEST

#define MANY (3 * SL_DEVICE_SLICE_MOVES_MAX - 100) /* three slices */
static struct sl_item_piece many[MANY];

/* The same blocks repeatedly, to where they were. */
static struct sl_msg long_copy(void)
{
    struct sl_msg msg = copy_request(true);
    for (uint32_t i = 0; i < MANY; i++) {
        many[i] = items[i % BLOCKS];
    }
    msg.body.copy.items.at = many;
    msg.body.copy.items.count = MANY;
    return msg;
}

START_TEST(slices_follow_each_other_without_a_pause)
    {
        struct sl_msg reply, msg = long_copy();
        (void)stepped_run(&bed, 100);
        fake->dry = 0;
        fake->event_queries = 20; /* it takes longer than one or two queries */

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        ck_assert_int_eq(engine_answer(), SL_OK);
        (void)stepped_run(&bed, 100);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(fake->undone, 0);
        ck_assert_uint_eq(fake->dry, 1); /* when it began */
        for (uint32_t i = 0; i < MANY; i++) {
            struct sl_digest digest,
                want = sl_digest_of(sl_arena_at(arena, many[i].offset_bytes, VALUE), VALUE);
            memcpy(&digest,
                   (const unsigned char *)reply.body.copy_reply.digests.at + (size_t)16 * i, 16);
            ck_assert(sl_digest_equal(digest, want));
        }
    }
END_TEST

/* A fence with claims, one of the op, one of a sender that has restarted. */
START_TEST(fence_is_answered_when_nothing_is_on_its_way)
    {
        struct sl_msg reply, msg = long_copy();
        struct sl_item_claim claim = {.ref = items[0].ref, .generation = items[0].generation};
        struct sl_msg fence = {.type = SL_MSG_FENCE, .op_id = _i == 2 ? 0 : 77};
        (void)stepped_run(&bed, 100);
        fake->event_queries = 100;
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        ck_assert_int_eq(engine_answer(), SL_OK);
        ck_assert_uint_gt(fake->undone, 0);
        ck_assert(!stepped_take(&bed, &reply, NULL));
        if (_i == 0) {
            fence.body.fence.items.at = &claim;
            fence.body.fence.items.count = 1;
        }
        fake->dry = 0;

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &fence), SL_OK);

        ck_assert(stepped_take(&bed, &reply, NULL));
        if (_i > 0) {
            ck_assert_uint_eq(reply.type, SL_MSG_COPY_REPLY);
            ck_assert_int_eq(reply.code, SL_ERR_CANCELLED);
            const unsigned char *done = reply.body.copy_reply.done.at;
            ck_assert_uint_eq(done[127], 0xff); /* its slice, and none after it */
            ck_assert_uint_eq(done[128], 0);
            ck_assert(stepped_take(&bed, &reply, NULL));
        }
        ck_assert_uint_eq(fake->dry, _i == 0); /* the next slice had to start again */
        ck_assert(_i == 0 || fake->undone == 0);
        ck_assert_uint_eq(reply.type, SL_MSG_FENCE_REPLY);
        ck_assert_int_eq(reply.code, SL_OK);
    }
END_TEST

START_TEST(sticky_error_of_a_copy_ends_the_swapper)
    {
        struct sl_msg reply, msg = copy_request(true);
        (void)stepped_run(&bed, 100);
        fake->fail_symbol = "fake_event_query";
        fake->fail_code = SL_CU_ILLEGAL_ADDRESS;
        fake->fail_sticks = true;

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        ck_assert_int_eq(engine_answer(), SL_ERR_DEVICE);

        ck_assert(stepped_take(&bed, &reply, NULL)); /* its COPY is still answered */
        ck_assert_int_eq(reply.code, SL_ERR_DEVICE);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "CUDA_ERROR_ILLEGAL_ADDRESS"));
    }
END_TEST

/* SL_OK to a fence and to a pool drop promises that no device write follows. */
START_TEST(nothing_is_called_over_when_the_device_is_lost)
    {
        struct sl_msg reply, msg = long_copy();
        struct sl_msg asked = {.type = _i == 0 ? SL_MSG_FENCE : SL_MSG_POOL_DROP, .op_id = 77};
        (void)stepped_run(&bed, 100);
        fake->event_queries = 100;
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        ck_assert_int_eq(engine_answer(), SL_OK);
        ck_assert_uint_gt(fake->undone, 0);
        fake->fail_symbol = "fake_event_query";
        fake->fail_code = SL_CU_ILLEGAL_ADDRESS;
        fake->fail_sticks = true;

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &asked), SL_ERR_DEVICE);

        while (stepped_take(&bed, &reply, NULL)) {
            ck_assert_uint_eq(reply.type, SL_MSG_COPY_REPLY);
        }
    }
END_TEST

START_TEST(gpu_that_hangs_ends_the_swapper_with_a_reason)
    {
        struct sl_msg reply, msg = copy_request(true);
        (void)stepped_run(&bed, 100);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        fake->event_queries = UINT64_MAX;

        ck_assert_int_eq(engine_answer(), SL_OK);
        ck_assert(!stepped_take(&bed, &reply, NULL));
        struct sl_msg fence = {.type = SL_MSG_FENCE, .op_id = 77};
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &fence), SL_ERR_DEVICE);

        ck_assert(!stepped_take(&bed, &reply, NULL)); /* no answer says that its memory is free */
        left_pinned = fake->registrations;
        ck_assert_int_gt(left_pinned, 0);
        fake->stuck = SL_CU_LAUNCH_FAILED; /* the process exits, and with it the copies under way */
        left_allocated = 1 + 3 * 2;        /* a layer table, slots: memory that the GPU may use
                                            * stays */
    }
END_TEST

/* Slices are under way, and the error is not found by a wait for them. */
START_TEST(gpu_that_hangs_under_a_new_pool_ends_no_copy)
    {
        struct sl_msg reply, msg = long_copy(), make = {.type = SL_MSG_POOL_MAKE};
        (void)stepped_run(&bed, 100);
        fake->event_queries = 100;
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        ck_assert_int_eq(engine_answer(), SL_OK);
        ck_assert_uint_gt(fake->undone, 0);
        fake->hangs = true;
        make.body.pool_make.epoch = 5;
        make.body.pool_make.name = sl_text_of("engine");
        make.body.pool_make.pool = sl_text_of("kv");
        make.body.pool_make.length_bytes = SL_MIB;

        ck_assert_int_eq(stepped_give(&bed, "registrar", &make), SL_ERR_DEVICE);

        while (stepped_take(&bed, &reply, NULL)) {
            ck_assert_uint_ne(reply.type, SL_MSG_COPY_REPLY);
        }
        left_pinned = fake->registrations;
        fake->hangs = false;
        fake->stuck = SL_CU_LAUNCH_FAILED; /* the process exits, and with it the copies under way */
        left_allocated = 1 + 3 * 2;        /* a layer table, slots: memory that the GPU may use
                                            * stays */
    }
END_TEST

START_TEST(sticky_error_of_a_mapping_ends_the_swapper)
    {
        struct sl_msg reply, msg = copy_request(true);
        fake->fail_symbol = "fake_ipc_open";
        fake->fail_code = SL_CU_LAUNCH_FAILED;
        fake->fail_sticks = true;

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        ck_assert_int_eq(engine_answer(), SL_ERR_DEVICE);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_ERR_DEVICE);
    }
END_TEST

START_TEST(plain_error_ends_its_copy_alone)
    {
        struct sl_msg reply, msg = copy_request(true);
        (void)stepped_run(&bed, 100);
        fake->fail_symbol = "fake_to_device"; /* the ids of the staged path */
        fake->fail_code = SL_CU_INVALID_VALUE;

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        ck_assert_int_eq(engine_answer(), SL_OK);
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_ERR_IO);
        fake->fail_symbol = NULL;

        msg = copy_request(false);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        ck_assert_int_eq(engine_answer(), SL_OK); /* it is looked up again */
        (void)stepped_run(&bed, 100);
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_OK);
    }
END_TEST

START_TEST(pinning_that_fails_leaves_copies_working)
    {
        struct sl_msg reply, msg = copy_request(true);
        fake->fail_symbol = "fake_host_register";
        fake->fail_code = SL_CU_OUT_OF_MEMORY;
        (void)stepped_run(&bed, 100);
        ck_assert_int_eq(fake->registrations, 0);

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        ck_assert_int_eq(engine_answer(), SL_OK);
        (void)stepped_run(&bed, 100);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_OK);
    }
END_TEST

/* The node was created again: the loop alternates between slices of the old and of the new. */
START_TEST(an_arena_that_is_gone_is_unpinned_in_steps)
    {
        int fewest = 2, steps_down = 0;
        (void)stepped_run(&bed, 100);
        ck_assert_int_eq(fake->registrations, 2);
        sl_arena_close(&arena);
        ck_assert_int_eq(sl_shm_file_remove(shm_dir, "arena.0", NULL), SL_OK);
        arena_make();

        bed.env.now_ns += 2 * SL_NS_PER_S; /* then it looks again */
        for (uint32_t i = 0, before = 2; i < 20 && stepped_run(&bed, 1) == 1; i++) {
            uint32_t now = (uint32_t)fake->registrations;
            ck_assert_uint_le(before, now + 1); /* one at most */
            steps_down += now < before;
            fewest = SL_MIN(fewest, fake->registrations);
            before = now;
        }

        ck_assert_int_eq(steps_down, 2);
        ck_assert_int_eq(fewest, 0);
        ck_assert_int_eq(fake->registrations, 2);
        ck_assert_uint_eq(fake->registered, 4);
    }
END_TEST

/* A slice that could not be pinned is not unpinned; hashes are computed at a slice's end. */
START_TEST(an_arena_that_is_gone_is_there_until_slices_of_it_are_over)
    {
        struct sl_msg reply, msg = long_copy();
        fake->fail_symbol = "fake_host_register";
        fake->fail_code = SL_CU_OUT_OF_MEMORY;
        (void)stepped_run(&bed, 100);
        fake->event_queries = 100;
        msg.body.copy.chunks = true;
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        ck_assert_int_eq(engine_answer(), SL_OK);
        ck_assert_uint_gt(fake->undone, 0);
        sl_arena_close(&arena);
        ck_assert_int_eq(sl_shm_file_remove(shm_dir, "arena.0", NULL), SL_OK);
        arena_make();
        struct sl_msg next = copy_request(false);
        next.op_id = 78;

        ck_assert_int_eq(stepped_give(&bed, "coordinator", &next), SL_OK);
        (void)stepped_run(&bed, 100);

        for (uint32_t i = 0; i < 2; i++) {
            ck_assert(stepped_take(&bed, &reply, NULL));
            ck_assert_uint_eq(reply.type, SL_MSG_COPY_REPLY);
            ck_assert_int_eq(reply.code, SL_OK);
        }
    }
END_TEST

/* ---- events of the engine ---- */

static sl_cu_stream stream;
static sl_cu_event event;
static struct sl_cu_ipc handle;

/* Queues the engine's fill of the pool on its stream, and records an event after it. */
static void engine_fills(void)
{
    ck_assert_int_eq(engine.context_set(&engine), 0);
    ck_assert_int_eq(engine.stream_create(&stream, SL_CU_STREAM_NON_BLOCKING, 0), 0);
    ck_assert_int_eq(engine.event_create(&event, SL_CU_EVENT_NO_TIMING | SL_CU_EVENT_INTERPROCESS),
                     0);
    ck_assert_int_eq(engine.event_ipc_get(&handle, event), 0);
    ck_assert_int_eq(engine.fill(pool, 0x5a, LAYERS * BLOCKS * PIECE, stream), 0);
    ck_assert_int_eq(engine.event_record(event, stream), 0);
}

static void engine_is_done(void)
{
    ck_assert_int_eq(engine.context_set(&engine), 0);
    ck_assert_int_eq(engine.stream_wait(stream), 0);
}

static void engine_leaves(void)
{
    ck_assert_int_eq(engine.context_set(&engine), 0);
    (void)engine.event_destroy(event);
    ck_assert_int_eq(engine.stream_destroy(stream), 0);
}

static struct sl_msg ordered_request(bool out)
{
    struct sl_msg msg = copy_request(out);
    msg.body.copy.event = (struct sl_bytes){.at = handle.bytes, .length = sizeof(handle.bytes)};
    return msg;
}

START_TEST(blocks_are_read_after_the_engine_s_event)
    {
        static unsigned char filled[VALUE];
        struct sl_msg reply, msg;
        memset(filled, 0x5a, sizeof(filled));
        engine_fills();
        msg = ordered_request(true);
        (void)stepped_run(&bed, 100);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        ck_assert_int_eq(engine_answer(), SL_OK);
        uint64_t launches = fake->launches;

        stepped_advance(&bed, 50 * SL_NS_PER_MS);
        ck_assert(!stepped_take(&bed, &reply, NULL)); /* it waits for the engine */
        ck_assert_uint_eq(fake->launches, launches);
        ck_assert_uint_ne(bed.wake_ns, SL_NEVER_NS);
        engine_is_done();
        stepped_advance(&bed, 50 * SL_NS_PER_MS);
        (void)stepped_run(&bed, 100);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_OK);
        for (uint64_t i = 0; i < BLOCKS; i++) {
            ck_assert_int_eq(
                memcmp(sl_arena_at(arena, items[i].offset_bytes, VALUE), filled, VALUE), 0);
        }
        engine_leaves();
        ck_assert_int_eq(fake->events, 2); /* the slots' own */
    }
END_TEST

START_TEST(other_copies_do_not_wait_for_it)
    {
        struct sl_msg reply, msg;
        engine_fills();
        msg = ordered_request(true);
        (void)stepped_run(&bed, 100);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        ck_assert_int_eq(engine_answer(), SL_OK);
        msg = copy_request(false);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        uint64_t plain = msg.seq;
        (void)stepped_run(&bed, 100);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_uint_eq(reply.reply_to, plain);
        ck_assert_int_eq(reply.code, SL_OK);
        /* Its deadline ends it; no block was touched. */
        stepped_advance(&bed, 3 * SL_NS_PER_S);
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_ERR_TIMEOUT);
        engine_leaves();
        ck_assert_int_eq(fake->events, 2);
    }
END_TEST

START_TEST(stale_and_foreign_events_are_named)
    {
        struct sl_msg reply, msg;
        char name[17] = "";
        engine_fills();
        (void)stepped_run(&bed, 100);
        engine_leaves(); /* destroyed before it was opened */
        msg = ordered_request(true);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        ck_assert_int_eq(engine_answer(), SL_OK);
        (void)stepped_run(&bed, 100);
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_ERR_INVALID);

        msg = ordered_request(true);
        msg.body.copy.event.length--; /* half a handle is an error, unlike none */
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        (void)stepped_run(&bed, 100);
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_ERR_INVALID);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "event"));

        memset(handle.bytes, 0xab, sizeof(handle.bytes));
        msg = ordered_request(true);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        (void)stepped_run(&bed, 100);

        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_ERR_INVALID);
        memset(name, 0, sizeof(name));
        for (uint32_t i = 0; i < 16; i += 2) {
            memcpy(name + i, "ab", 2);
        }
        ck_assert_ptr_nonnull(strstr(reply.text.at, name));
        ck_assert_ptr_nonnull(strstr(reply.text.at, "event"));
        msg = copy_request(false); /* and the swapper continues to run */
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        (void)stepped_run(&bed, 100);
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_OK);
    }
END_TEST

START_TEST(event_of_a_copy_in_the_queue_is_closed_at_the_end)
    {
        struct sl_msg msg;
        engine_fills();
        msg = ordered_request(true);
        (void)stepped_run(&bed, 100);
        ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
        ck_assert_int_eq(engine_answer(), SL_OK);
        stepped_advance(&bed, 50 * SL_NS_PER_MS);
        ck_assert_int_eq(fake->events, 4); /* the two slots', the engine's, and that one as
                                            * opened here */
        engine_leaves();
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("swapper on a GPU that is played");
    TCase *cases = tcase_create("swapper");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, arena_is_pinned_while_nothing_is_to_be_copied);
    tcase_add_test(cases, arena_is_pinned_also_when_there_is_always_something_to_copy);
    tcase_add_test(cases, blocks_of_a_gpu_go_out_and_in);
    tcase_add_test(cases, slices_follow_each_other_without_a_pause);
    tcase_add_loop_test(cases, fence_is_answered_when_nothing_is_on_its_way, 0, 3);
    tcase_add_test(cases, sticky_error_of_a_copy_ends_the_swapper);
    tcase_add_loop_test(cases, nothing_is_called_over_when_the_device_is_lost, 0, 2);
    tcase_add_test(cases, gpu_that_hangs_ends_the_swapper_with_a_reason);
    tcase_add_test(cases, gpu_that_hangs_under_a_new_pool_ends_no_copy);
    tcase_add_test(cases, sticky_error_of_a_mapping_ends_the_swapper);
    tcase_add_test(cases, plain_error_ends_its_copy_alone);
    tcase_add_test(cases, pinning_that_fails_leaves_copies_working);
    tcase_add_test(cases, an_arena_that_is_gone_is_unpinned_in_steps);
    tcase_add_test(cases, an_arena_that_is_gone_is_there_until_slices_of_it_are_over);
    tcase_add_test(cases, blocks_are_read_after_the_engine_s_event);
    tcase_add_test(cases, other_copies_do_not_wait_for_it);
    tcase_add_test(cases, stale_and_foreign_events_are_named);
    tcase_add_test(cases, event_of_a_copy_in_the_queue_is_closed_at_the_end);
    suite_add_tcase(suite, cases);
    const struct {
        const char *name;
        void (*setup)(void);
        const TTest *test;
        int end;
    } verify[] = {
        {"verify auto", setup, loads_are_checked_on_the_gpu, 3},
        {"verify all", setup_all, loads_are_checked_on_the_gpu, 3},
        {"verify by copies", setup_copies, loads_are_checked_by_the_processor, 1},
        {"verify a share", setup_copies_auto, without_kernels_a_share_is_checked, 1},
        {"verify off", setup_off, nothing_is_checked_when_it_is_off, 1},
        {"verify and fence", setup_all, a_fence_waits_for_a_check, 1},
    };
    for (size_t i = 0; i < SL_COUNT(verify); i++) {
        TCase *some = tcase_create(verify[i].name);
        tcase_add_checked_fixture(some, verify[i].setup, teardown);
        tcase_add_loop_test(some, verify[i].test, 0, verify[i].end);
        suite_add_tcase(suite, some);
    }
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failures = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failures == 0 ? 0 : 1;
}
