/* tests/unit/actors/swapper/swapper_process_test.c - a swapper and a rank with plain memory in its
 * own process, which the swapper copies where the kernel permits. The memory is shared with this
 * process at the same addresses, so that the test can see the copies. */
#include "actors/swapper/internal.h"
#include "actors/swapper/swapper.h"
#include "cuda/sl_device.h"
#include "ipc/shm/sl_index.h"
#include "runtime/base/sl_clock.h"
#include "tests/support/own_id.h"
#include "tests/unit/ipc/msg/stepped_env.h"
#include "tests/unit/ipc/shm/shm_support.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENGINE       41u
#define NEIGHBOUR    42u /* an engine of shared memory */
#define RANK         1u
#define PART         3u
#define PARTS        4u
#define BLOCKS       64u
#define LAYERS       2u
#define RUNS         64u
#define HEAD         256u
#define ROW          (3 * HEAD) /* ours is the middle one */
#define PIECE        (RUNS * HEAD)
#define PAGE         (RUNS * ROW)
#define VALUE        (LAYERS * PIECE)
#define MEMORY_BYTES (LAYERS * BLOCKS * PAGE)
#define NOBODY       65534u
#define REAL_NS      (20 * SL_NS_PER_S) /* nothing here takes so long */

static struct stepped bed;
static char *shm_dir;
static struct sl_arena *arena;
static struct sl_index *node_index;
static unsigned char *memory, *memory_copy;
static int neighbour_fd;
static struct sl_proc_id rank;
static uint64_t next_offset;
static struct sl_item_piece items[BLOCKS];

/* ---- the rank ---- */

/* kept: not dumpable, so that no process may copy. */
static void rank_start(bool kept)
{
    int told[2];
    char ready = 0;
    ck_assert_int_eq(pipe(told), 0);
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (kept && prctl(PR_SET_DUMPABLE, 0) != 0) {
            _exit(1);
        }
        if (write(told[1], &ready, 1) == 1) {
            for (;;) {
                (void)pause();
            }
        }
        _exit(1);
    }
    ck_assert_int_eq(read(told[0], &ready, 1), 1);
    (void)close(told[0]);
    (void)close(told[1]);
    ck_assert_int_eq(sl_proc_id_of((uint32_t)pid, &rank, NULL), SL_OK);
}

static void rank_kill(void)
{
    if (rank.pid != 0) {
        ck_assert_int_eq(kill((pid_t)rank.pid, SIGKILL), 0);
        ck_assert_int_eq(waitpid((pid_t)rank.pid, NULL, 0), (pid_t)rank.pid);
        rank.pid = 0;
    }
}

static void rank_signal(int number)
{
    int status = 0;
    ck_assert_int_eq(kill((pid_t)rank.pid, number), 0);
    if (number == SIGSTOP) {
        ck_assert_int_eq(waitpid((pid_t)rank.pid, &status, WUNTRACED), (pid_t)rank.pid);
        ck_assert(WIFSTOPPED(status));
    }
}

/* ---- the bed ---- */

static void memory_make(void)
{
    neighbour_fd = memfd_create("neighbour", MFD_CLOEXEC);
    ck_assert_int_eq(ftruncate(neighbour_fd, MEMORY_BYTES), 0);
    memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, neighbour_fd, 0);
    ck_assert(memory != MAP_FAILED);
    for (size_t i = 0; i < MEMORY_BYTES; i++) {
        memory[i] = (unsigned char)(i * 131 + i / 4099);
    }
    memory_copy = malloc(MEMORY_BYTES);
    memcpy(memory_copy, memory, MEMORY_BYTES);
}

static void setup(void)
{
    static const char *const settings[] = {"rank", "1", "swap_staging", "64KiB", NULL};
    struct sl_error why = {0};
    bool created = false;
    if (geteuid() == 0) { /* root may copy from any process */
        ck_assert_int_eq(setgid(NOBODY), 0);
        ck_assert_int_eq(setuid(NOBODY), 0);
        ck_assert_int_eq(prctl(PR_SET_DUMPABLE, 1), 0);
    }
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
    memory_make();
    next_offset = 0;
    stepped_start(&bed, &sl_swapper_actor, shm_dir, settings, true);
    strcpy(bed.paths.runtime_dir, shm_dir);
}

static void teardown(void)
{
    stepped_end(&bed);
    rank_kill();
    sl_index_close(&node_index);
    sl_arena_close(&arena);
    shm_dir_remove(shm_dir);
    close(neighbour_fd);
    free(memory_copy);
}

static void reserve(struct sl_item_piece *item, uint64_t device_block)
{
    static uint64_t number;
    char key[64];
    int key_length =
        snprintf(key, sizeof(key), "model/block%llu/3/kv", (unsigned long long)number++);
    struct sl_entry want = {.kind = SL_RECORD_RESERVED,
                            .extent = {.generation = sl_arena_next_generation(arena),
                                       .offset_bytes = next_offset,
                                       .length_bytes = VALUE},
                            .key = key,
                            .key_length = (uint16_t)key_length};
    sl_ref ref = 0;
    struct sl_error why = {0};
    ck_assert_msg(sl_index_claim(node_index, &want, &ref, &why) == SL_OK, "%s", why.text);
    next_offset += sl_extent_space(VALUE);
    *item = (struct sl_item_piece){.part = PART,
                                   .device_block = device_block,
                                   .offset_bytes = want.extent.offset_bytes,
                                   .length_bytes = VALUE,
                                   .ref = ref,
                                   .generation = want.extent.generation};
}

static unsigned char *value_of(uint32_t item)
{
    return sl_arena_at(arena, items[item].offset_bytes, VALUE);
}

static void reserve_many(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        reserve(&items[i], (i * 5 + 2) % BLOCKS);
        memset(value_of(i), 0xee, VALUE);
    }
}

/* The plain loop: copies between the block of an item and a value. */
static void part_copy(unsigned char *from_memory, uint32_t item, unsigned char *value,
                      bool to_memory)
{
    for (uint64_t l = 0; l < LAYERS; l++) {
        unsigned char *at = from_memory + (l * BLOCKS + items[item].device_block) * PAGE + HEAD;
        for (uint64_t r = 0; r < RUNS; r++) {
            memcpy(to_memory ? at : value, to_memory ? value : at, HEAD);
            at += ROW;
            value += HEAD;
        }
    }
}

static bool untouched(uint32_t item)
{
    const unsigned char *value = value_of(item);
    for (size_t i = 0; i < VALUE; i++) {
        if (value[i] != 0xee) {
            return false;
        }
    }
    return true;
}

/* ---- messages ---- */

static struct sl_msg copy_request(uint64_t engine, bool out, uint64_t first, uint64_t count)
{
    struct sl_msg msg = {.type = SL_MSG_COPY, .op_id = 70 + engine, .trace_id = 78};
    msg.body.copy.engine_id = engine;
    msg.body.copy.rank = RANK;
    msg.body.copy.out = out;
    msg.body.copy.items.at = items + first;
    msg.body.copy.items.count = count;
    return msg;
}

static void answer_engine(const struct sl_msg *asked)
{
    struct sl_msg reply = {.type = SL_MSG_ENGINE_GET_REPLY, .reply_to = asked->seq};
    struct sl_item_pool pool = {.name = sl_text_of("kv"), .part_count = PARTS};
    struct sl_item_region regions[LAYERS];
    uint64_t engine = asked->body.engine_get.engine_id;
    bool plain = engine == ENGINE;
    struct sl_proc_id proc = plain ? rank : own_id();
    for (uint64_t l = 0; l < LAYERS; l++) {
        uint64_t at = l * BLOCKS * PAGE + HEAD;
        regions[l] =
            (struct sl_item_region){.rank = RANK,
                                    .part = PART,
                                    .layer = l,
                                    .handle_kind = plain ? SL_MEMORY_PROCESS : SL_MEMORY_SHARED_FD,
                                    .pid = proc.pid,
                                    .start_time = plain ? proc.start_time : 0, /* ours */
                                    .fd = plain ? 0 : (uint64_t)neighbour_fd,
                                    .offset_bytes = plain ? (uintptr_t)memory + at : at,
                                    .length_bytes = BLOCKS * PAGE - HEAD,
                                    .block_stride_bytes = PAGE,
                                    .piece_bytes = PIECE,
                                    .block_count = BLOCKS,
                                    .fragment_bytes = HEAD,
                                    .fragment_stride_bytes = ROW};
    }
    reply.body.engine_get_reply = (struct sl_body_engine_get_reply){.engine_id = engine,
                                                                    .pid = proc.pid,
                                                                    .start_time = proc.start_time,
                                                                    .world = 2,
                                                                    .pools = {&pool, 1},
                                                                    .regions = {regions, LAYERS}};
    ck_assert_int_eq(stepped_give(&bed, "registrar", &reply), SL_OK);
}

/* Takes the next answer; answers requests for engines. */
static bool taken(struct sl_msg *reply)
{
    while (stepped_take(&bed, reply, NULL)) {
        if (reply->type != SL_MSG_ENGINE_GET) {
            return true;
        }
        answer_engine(reply);
    }
    return false;
}

/* Waits for an answer of a running process for real_ns of real time; the bed's time hardly
 * advances. */
static bool comes(struct sl_msg *reply, uint64_t real_ns)
{
    uint64_t end_ns = sl_clock_monotonic_ns() + real_ns;
    while (!taken(reply)) {
        if (sl_clock_monotonic_ns() >= end_ns) {
            return false;
        }
        (void)usleep(200);
        stepped_advance(&bed, 20 * SL_NS_PER_US);
    }
    return true;
}

static struct sl_msg given(struct sl_msg *msg)
{
    struct sl_msg reply = {0};
    ck_assert_int_eq(stepped_give(&bed, "coordinator", msg), SL_OK);
    do { /* not that of a COPY before, which came late */
        ck_assert(comes(&reply, REAL_NS));
    } while (reply.reply_to != msg->seq);
    return reply;
}

static bool done(const struct sl_msg *reply, uint32_t i)
{
    const unsigned char *bits = reply->body.copy_reply.done.at;
    return (bits[i >> 3] >> (i & 7) & 1) != 0;
}

/* Runs a COPY out that must succeed. */
static void copied_out(uint64_t engine, uint32_t first, uint32_t count)
{
    unsigned char *want = malloc(VALUE);
    struct sl_msg msg = copy_request(engine, true, first, count);
    struct sl_msg reply = given(&msg);
    ck_assert_msg(reply.code == SL_OK, "%s", reply.text.length > 0 ? reply.text.at : "?");
    for (uint32_t i = 0; i < count; i++) {
        struct sl_digest digest;
        part_copy(memory, first + i, want, false);
        memcpy(&digest, (const unsigned char *)reply.body.copy_reply.digests.at + 16 * i, 16);
        ck_assert(done(&reply, i));
        ck_assert_int_eq(memcmp(value_of(first + i), want, VALUE), 0);
        ck_assert(sl_digest_equal(digest, sl_digest_of(want, VALUE)));
    }
    free(want);
}

/* ---- copies ---- */

START_TEST(blocks_go_out_and_in)
    {
        rank_start(false);
        reserve_many(40);
        copied_out(ENGINE, 0, 40);
        ck_assert_int_eq(memcmp(memory, memory_copy, MEMORY_BYTES), 0);
        for (uint32_t i = 0; i < 40; i += 2) {
            for (size_t k = 0; k < VALUE; k++) {
                value_of(i)[k] = (unsigned char)(k * 7 + i);
            }
            part_copy(memory_copy, i, value_of(i), true);
            items[i / 2] = items[i];
        }
        struct sl_msg msg = copy_request(ENGINE, false, 0, 20);

        struct sl_msg reply = given(&msg);

        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_int_eq(memcmp(memory, memory_copy, MEMORY_BYTES), 0);
    }
END_TEST

START_TEST(layers_and_hashes_of_chunks_go)
    {
        unsigned char *want = malloc(VALUE);
        uint64_t hashes[3] = {0};
        rank_start(false);
        reserve_many(1);
        for (uint64_t l = 0; l < LAYERS; l++) {
            items[0].first_layer = l;
            items[0].layer_end = l + 1;
            struct sl_msg msg = copy_request(ENGINE, true, 0, 1);
            msg.body.copy.chunks = true;
            struct sl_msg reply = given(&msg);
            ck_assert_int_eq(reply.code, SL_OK);
            ck_assert_uint_eq(reply.body.copy_reply.chunks.length, 8); /* a piece is a chunk */
            memcpy(&hashes[l], reply.body.copy_reply.chunks.at, 8);
        }

        part_copy(memory, 0, want, false);
        ck_assert_int_eq(memcmp(value_of(0), want, VALUE), 0);
        ck_assert(sl_digest_equal(sl_digest_of_chunks(hashes, LAYERS), sl_digest_of(want, VALUE)));
        free(want);
    }
END_TEST

START_TEST(where_the_kernel_forbids_it_the_reason_is_told)
    {
        rank_start(true);
        reserve_many(1);
        struct sl_msg msg = copy_request(ENGINE, true, 0, 1);

        struct sl_msg reply = given(&msg);

        ck_assert_int_eq(reply.code, SL_ERR_PERMISSION);
        ck_assert_msg(strstr(reply.text.at, "PR_SET_PTRACER") != NULL, "%s", reply.text.at);
        ck_assert(untouched(0));
    }
END_TEST

/* ---- a rank that dies ---- */

/* At some moment during copies. */
START_TEST(a_rank_that_is_killed_or_stopped_meanwhile_costs_no_more_than_its_copies)
    {
        bool stops = _i % 2 == 0, out = _i / 2 % 2 == 0;
        struct sl_msg reply = {.code = SL_OK};
        rank_start(false);
        reserve_many(BLOCKS);
        copied_out(ENGINE, 0, 1);
        pid_t other = fork();
        if (other == 0) {
            (void)usleep(300u + 700u * (unsigned)(_i / 4));
            (void)kill((pid_t)rank.pid, stops ? SIGSTOP : SIGKILL);
            _exit(0);
        }
        for (unsigned round = 0; reply.code == SL_OK && round < 2000; round++) {
            struct sl_msg msg = copy_request(ENGINE, out, 0, 50);
            ck_assert_int_eq(stepped_give(&bed, "coordinator", &msg), SL_OK);
            ck_assert(comes(&reply, REAL_NS));
            if (stops && round > 50) {
                break; /* a stopped process can be copied as well */
            }
        }
        ck_assert_int_eq(waitpid(other, NULL, 0), other);
        copied_out(NEIGHBOUR, 50, 10);
        if (stops) {
            rank_signal(SIGCONT);
            copied_out(NEIGHBOUR, 60, 4);
            copied_out(ENGINE, 0, 50);
        } else {
            ck_assert_int_eq(reply.code, SL_ERR_NOT_FOUND);
        }
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("swapper_process");
    TCase *cases = tcase_create("process");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, blocks_go_out_and_in);
    tcase_add_test(cases, layers_and_hashes_of_chunks_go);
    tcase_add_test(cases, where_the_kernel_forbids_it_the_reason_is_told);
    tcase_add_loop_test(
        cases, a_rank_that_is_killed_or_stopped_meanwhile_costs_no_more_than_its_copies, 0, 12);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
