/* tests/unit/actors/swapper/swapper_export_test.c - a swapper on `cuda`, with a fake GPU driver,
 * exports an engine's device memory to a NIC: once, while the engine owns it. */
#include "actors/swapper/exports.h"
#include "actors/swapper/swapper.h"
#include "cuda/driver.h"
#include "cuda/sl_device.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_descriptors.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/own_id.h"
#include "tests/unit/ipc/msg/stepped_env.h"

#include <check.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENGINE     41u
#define LAYERS     4u
#define BLOCKS     16u
#define PIECE      4096u
#define POOL_BYTES (LAYERS * BLOCKS * PIECE)

static struct stepped bed;
static char shm_dir[64];
static struct sl_driver engine; /* the engine's own use of the driver */
static struct fake_cuda *fake;
static sl_cu_ptr pool;
static struct sl_cu_ipc ipc;

static void setup(void)
{
    static const char *const settings[] = {
        "device", "cuda", "swap_staging", "256KiB", "swap_measure", "false", NULL};
    fake_cuda_state_fn state;
    ck_assert_int_eq(sl_driver_open(&engine, NULL, NULL), SL_OK);
    void *symbol = dlsym(engine.library, "fake_cuda_state");
    ck_assert_msg(symbol != NULL, "LD_LIBRARY_PATH names no driver that plays a GPU");
    memcpy(&state, &symbol, sizeof(state));
    fake = state();
    ck_assert_int_eq(engine.context_set(&engine), 0);
    ck_assert_int_eq(engine.memory_get(&pool, POOL_BYTES), 0);
    ck_assert_int_eq(engine.ipc_get(&ipc, pool), 0);
    unsigned char *bytes = (unsigned char *)(uintptr_t)pool;
    for (size_t i = 0; i < POOL_BYTES; i++) {
        bytes[i] = (unsigned char)(i * 131 + i / 4099);
    }
    strcpy(shm_dir, "/dev/shm/sluice-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(shm_dir));
    stepped_start(&bed, &sl_swapper_actor, shm_dir, settings, true);
    strcpy(bed.paths.runtime_dir, shm_dir);
    bed.env.self = own_id();
}

static void teardown(void)
{
    stepped_end(&bed);
    ck_assert_int_eq(fake->ipc_opens, 0);
    ck_assert_int_eq(engine.memory_free(pool), 0);
    sl_driver_close(&engine);
    ck_assert_int_eq(rmdir(shm_dir), 0); /* no socket is left */
}

/* Sends the registrar's answer to ENGINE_GET; returns the swapper's result. */
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

/* ---- device memory for NICs ---- */

static struct sl_msg export_ask(uint64_t engine_id, uint64_t length_bytes)
{
    struct sl_msg msg = {.type = SL_MSG_POOL_EXPORT}, reply;
    msg.body.pool_export.engine_id = engine_id;
    msg.body.pool_export.handle_kind = SL_MEMORY_CUDA_IPC;
    msg.body.pool_export.pid = (uint64_t)getpid();
    msg.body.pool_export.handle = (struct sl_bytes){.at = ipc.bytes, .length = sizeof(ipc.bytes)};
    msg.body.pool_export.length_bytes = length_bytes;
    ck_assert_int_eq(stepped_give(&bed, "transporter.0", &msg), SL_OK);
    ck_assert(stepped_take(&bed, &reply, NULL));
    ck_assert_uint_eq(reply.type, SL_MSG_POOL_EXPORT_REPLY);
    return reply;
}

static sl_err export_keep(void *context, const struct sl_descriptors_part *part,
                          struct sl_error *why)
{
    (void)why;
    *(int *)context = fcntl(part->fds[0], F_DUPFD_CLOEXEC, 0);
    return SL_OK;
}

static sl_err export_fetch(const struct sl_msg *reply, uint64_t life, int *fd)
{
    const struct sl_body_pool_export_reply *body = &reply->body.pool_export_reply;
    struct sl_descriptors_source source = {
        .runtime_dir = shm_dir, .pid = (uint32_t)body->pid, .number = body->number};
    struct sl_descriptors_request ask = {
        .address = body->name, .length_bytes = body->length_bytes, .life = life};
    return sl_descriptors_fetch(&source, &ask, export_keep, fd,
                                sl_clock_monotonic_ns() + 5 * SL_NS_PER_S, NULL);
}

/* The first request makes the swapper ask for the engine and map it; then the memory can be
 * exported. */
static struct sl_msg export_first(void)
{
    struct sl_msg msg = {.type = SL_MSG_POOL_EXPORT}, reply;
    msg.body.pool_export.engine_id = ENGINE;
    msg.body.pool_export.handle_kind = SL_MEMORY_CUDA_IPC;
    msg.body.pool_export.length_bytes = 1;
    ck_assert_int_eq(stepped_give(&bed, "transporter.0", &msg), SL_OK);
    ck_assert_int_eq(engine_answer(), SL_OK); /* which takes the question */
    ck_assert(stepped_take(&bed, &reply, NULL));
    ck_assert_uint_eq(reply.type, SL_MSG_POOL_EXPORT_REPLY);
    ck_assert_int_eq(reply.code, SL_ERR_BUSY);
    return export_ask(ENGINE, POOL_BYTES);
}

static void engine_ends(void)
{
    struct sl_msg over = {.type = SL_MSG_ENGINE_OVER}, reply;
    over.body.engine_over.engine_id = ENGINE;
    ck_assert_int_eq(stepped_give(&bed, "registrar", &over), SL_OK);
    ck_assert(stepped_take(&bed, &reply, NULL));
    ck_assert_int_eq(reply.code, SL_OK);
}

/* Only once, and only with its own life; a fetched descriptor outlives the engine here. */
START_TEST(device_memory_is_handed_out_once)
    {
        int fd = -1;
        struct sl_msg reply = export_first();
        ck_assert_msg(reply.code == SL_OK, "%s", reply.text.at);
        struct sl_body_pool_export_reply made = reply.body.pool_export_reply;
        ck_assert_uint_eq(made.length_bytes, POOL_BYTES);
        ck_assert_int_eq(export_fetch(&reply, made.life ^ 1, &fd), SL_ERR_STALE);
        ck_assert_int_eq(export_fetch(&reply, made.life, &fd), SL_OK);
        int second = -1;
        ck_assert_int_eq(export_fetch(&reply, made.life, &second), SL_ERR_STALE);

        engine_ends();

        unsigned char there[64];
        ck_assert_int_eq(pread(fd, there, sizeof(there), 4096), (int)sizeof(there));
        ck_assert_mem_eq(there, (unsigned char *)(uintptr_t)pool + 4096, sizeof(there));
        close(fd);
    }
END_TEST

/* The engine ends, or the descriptor is not fetched in time. */
START_TEST(a_descriptor_that_is_over_is_handed_out_no_more)
    {
        int fd = -1;
        struct sl_msg reply = export_first();
        ck_assert_int_eq(reply.code, SL_OK);
        if (_i == 0) {
            engine_ends();
        } else {
            stepped_advance(&bed, 6 * SL_NS_PER_S);
        }
        ck_assert_int_eq(export_fetch(&reply, reply.body.pool_export_reply.life, &fd),
                         SL_ERR_STALE);
    }
END_TEST

START_TEST(as_many_descriptors_wait_as_there_is_room_for)
    {
        struct sl_msg reply = export_first();
        for (uint32_t i = 1; i < SW_EXPORTS_MAX; i++) {
            reply = export_ask(ENGINE, POOL_BYTES);
            ck_assert_int_eq(reply.code, SL_OK);
        }
        int before = fcntl(0, F_DUPFD, 0);
        ck_assert_int_eq(export_ask(ENGINE, POOL_BYTES).code, SL_ERR_BUSY);
        int after = fcntl(0, F_DUPFD, 0);
        ck_assert_int_eq(after, before + 1); /* none was left open */
        close(before);
        close(after);
    }
END_TEST

/* The cause is the driver's, and the swapper continues. A lost GPU ends it. */
START_TEST(what_cannot_be_handed_out_is_told)
    {
        struct sl_msg reply = export_first(), other = {.type = SL_MSG_POOL_EXPORT};
        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_int_eq(export_ask(ENGINE, POOL_BYTES + 1).code, SL_ERR_NOT_FOUND);
        ipc.bytes[63] ^= 1;
        ck_assert_int_eq(export_ask(ENGINE, POOL_BYTES).code, SL_ERR_NOT_FOUND);
        ipc.bytes[63] ^= 1;
        fake->no_dmabuf = true;
        ck_assert_int_eq(export_ask(ENGINE, POOL_BYTES).code, SL_ERR_UNSUPPORTED);
        fake->no_dmabuf = false;
        other.body.pool_export.engine_id = ENGINE;
        other.body.pool_export.rank = 3;
        other.body.pool_export.length_bytes = 1;
        ck_assert_int_eq(stepped_give(&bed, "transporter.0", &other), SL_OK);
        ck_assert(stepped_take(&bed, &reply, NULL));
        ck_assert_int_eq(reply.code, SL_ERR_INVALID);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("swapper_export");
    TCase *cases = tcase_create("export");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, device_memory_is_handed_out_once);
    tcase_add_loop_test(cases, a_descriptor_that_is_over_is_handed_out_no_more, 0, 2);
    tcase_add_test(cases, as_many_descriptors_wait_as_there_is_room_for);
    tcase_add_test(cases, what_cannot_be_handed_out_is_told);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
