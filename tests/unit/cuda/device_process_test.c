/* tests/unit/cuda/device_process_test.c - the device `host` and plain memory of another process,
 * which is shared with this one at the same addresses, so that the test can see the copies. */
#include "cuda/sl_device.h"
#include "runtime/base/sl_proc.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMORY_BYTES (12 * SL_MIB)
#define ARENA_BYTES  (12 * SL_MIB)
#define LAYERS_MAX   5u
#define MOVES_MAX    64u
#define PAGE_BYTES   4096u
#define NOBODY       65534u

static uint32_t copy_threads; /* of the device; 0: only the caller */

struct bed {
    struct sl_device *device;
    unsigned char *memory, *memory_copy; /* the other's */
    unsigned char *arena, *arena_copy;
    struct sl_proc_id other;
    struct sl_mapping mapping;
};

static uint64_t random_next(uint64_t *seed)
{
    *seed += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
    uint64_t z = *seed;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Runs in the other process before it reports that it is ready. */
typedef void (*prepare_fn)(unsigned char *memory);

static void other_start(struct bed *bed, prepare_fn prepare)
{
    int ready[2];
    char byte = 0;
    ck_assert_int_eq(pipe(ready), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (prepare != NULL) {
            prepare(bed->memory);
        }
        if (write(ready[1], &byte, 1) == 1) {
            for (;;) {
                (void)pause();
            }
        }
        _exit(1);
    }
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    (void)close(ready[1]);
    ck_assert_int_eq(sl_proc_id_of((uint32_t)pid, &bed->other, NULL), SL_OK);
}

static void other_end(struct bed *bed)
{
    if (bed->other.pid != 0) {
        (void)kill((pid_t)bed->other.pid, SIGKILL);
        ck_assert_int_eq(waitpid((pid_t)bed->other.pid, NULL, 0), (pid_t)bed->other.pid);
        bed->other.pid = 0;
    }
}

static unsigned char *shared(uint64_t length)
{
    unsigned char *at =
        mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(at != MAP_FAILED);
    return at;
}

static void bed_open(struct bed *bed, prepare_fn prepare)
{
    uint64_t seed = 5;
    *bed = (struct bed){.memory = shared(MEMORY_BYTES), .arena = shared(ARENA_BYTES)};
    for (size_t i = 0; i < MEMORY_BYTES; i += 8) {
        uint64_t word = random_next(&seed);
        memcpy(bed->memory + i, &word, 8);
    }
    bed->memory_copy = malloc(MEMORY_BYTES);
    bed->arena_copy = malloc(ARENA_BYTES);
    memcpy(bed->memory_copy, bed->memory, MEMORY_BYTES);
    memcpy(bed->arena_copy, bed->arena, ARENA_BYTES);
    other_start(bed, prepare);
    const char *driver = getenv("SLUICE_TEST_DRIVER"); /* that plays a GPU: the same by `cuda` */
    struct sl_device_options options = {.name = driver == NULL ? "host" : "cuda",
                                        .staging_bytes = 65536,
                                        .driver_path = driver,
                                        .kernels = "image",
                                        .copy_threads = copy_threads};
    ck_assert_int_eq(sl_device_open(&options, &bed->device, NULL), SL_OK);
}

static void bed_close(struct bed *bed)
{
    if (bed->mapping.remote != 0) {
        bed->device->ops->unmap(bed->device, &bed->mapping);
    }
    sl_device_close(&bed->device);
    other_end(bed);
    (void)munmap(bed->memory, MEMORY_BYTES);
    (void)munmap(bed->arena, ARENA_BYTES);
    free(bed->memory_copy);
    free(bed->arena_copy);
}

static sl_err bed_map(struct bed *bed, struct sl_error *why)
{
    struct sl_memory_handle handle = {.kind = SL_MEMORY_PROCESS,
                                      .pid = bed->other.pid,
                                      .start_time = bed->other.start_time,
                                      .offset_bytes = (uintptr_t)bed->memory};
    return bed->device->ops->map(bed->device, &handle, MEMORY_BYTES, &bed->mapping, why);
}

struct plan {
    struct sl_layer layers[LAYERS_MAX];
    uint32_t layer_count, move_count, layers_index;
    uint32_t first_layer, layer_end;
    uint64_t value_bytes;
    struct sl_move moves[MOVES_MAX];
};

/* Layers of runs of any size, blocks and values in any order. */
static void plan_make(struct bed *bed, struct plan *plan, uint64_t *seed)
{
    uint64_t at = random_next(seed) % 100;
    uint32_t blocks = 1 + (uint32_t)(random_next(seed) % MOVES_MAX);
    bool large = random_next(seed) % 3 == 0;
    *plan = (struct plan){.layer_count = 1 + (uint32_t)(random_next(seed) % LAYERS_MAX),
                          .move_count = large ? SL_MIN(blocks, 5u) : blocks};
    blocks = plan->move_count;
    for (uint32_t l = 0; l < plan->layer_count; l++) {
        struct sl_layer *layer = &plan->layers[l];
        uint64_t runs = 1 + random_next(seed) % (random_next(seed) % 2 == 0 ? 1 : 700);
        uint64_t run = 1 + random_next(seed) % ((large ? 400000 : 20000) / runs);
        uint64_t gap = random_next(seed) % 2 * (random_next(seed) % 30);
        *layer = (struct sl_layer){.base = bed->memory + at,
                                   .piece_bytes = runs * run,
                                   .block_stride_bytes = runs * (run + gap),
                                   .block_count = blocks,
                                   .fragment_bytes = runs > 1 ? run : 0,
                                   .fragment_stride_bytes = runs > 1 ? run + gap : 0,
                                   .remote = bed->mapping.remote};
        at += layer->block_stride_bytes * blocks;
        plan->value_bytes += layer->piece_bytes;
    }
    ck_assert_uint_le(at, MEMORY_BYTES);
    ck_assert_uint_le(plan->value_bytes * plan->move_count, ARENA_BYTES - 4096);
    plan->layer_end = plan->layer_count;
    if (random_next(seed) % 2 == 0) {
        plan->first_layer = (uint32_t)(random_next(seed) % plan->layer_count);
        plan->layer_end = plan->first_layer + 1 +
                          (uint32_t)(random_next(seed) % (plan->layer_count - plan->first_layer));
    }
    struct sl_error why = {0};
    ck_assert_msg(bed->device->ops->layers_add(bed->device, plan->layers, plan->layer_count,
                                               &plan->layers_index, &why) == SL_OK,
                  "%s", why.text);
    uint64_t gap = random_next(seed) % 2 * 64;
    gap = (plan->value_bytes + gap) * plan->move_count > ARENA_BYTES ? 0 : gap;
    for (uint32_t i = 0; i < plan->move_count; i++) {
        uint32_t place = (i * 7 + 3) % plan->move_count;
        place = plan->move_count % 7 == 0 ? i : place;
        plan->moves[i] = (struct sl_move){.host = bed->arena + place * (plan->value_bytes + gap),
                                          .device_block = plan->move_count - 1 - i,
                                          .layers_index = plan->layers_index,
                                          .first_layer = plan->first_layer,
                                          .layer_end = plan->layer_end};
    }
}

/* Does the same in a plain loop, on copies of both memories. */
static void plan_copy(struct bed *bed, const struct plan *plan, const struct sl_move *move,
                      bool to_host)
{
    unsigned char *value = bed->arena_copy + (move->host - bed->arena);
    for (uint32_t l = 0; l < plan->layer_end; l++) {
        const struct sl_layer *layer = &plan->layers[l];
        uint64_t run = layer->fragment_bytes == 0 ? layer->piece_bytes : layer->fragment_bytes;
        unsigned char *block = bed->memory_copy + (layer->base - bed->memory) +
                               move->device_block * layer->block_stride_bytes;
        for (uint64_t at = 0; at < layer->piece_bytes; at += run) {
            if (l >= plan->first_layer) {
                memcpy(to_host ? value : block, to_host ? block : value, run);
            }
            value += run;
            block += layer->fragment_stride_bytes;
        }
    }
}

static void range_digest_check(const struct bed *bed, const struct plan *plan,
                               const struct sl_move *move)
{
    uint64_t from = 0, end = 0;
    for (uint32_t l = 0; l < plan->layer_end; l++) {
        from += l < plan->first_layer ? plan->layers[l].piece_bytes : 0;
        end += plan->layers[l].piece_bytes;
    }
    const unsigned char *value = bed->arena_copy + (move->host - bed->arena);
    ck_assert(sl_digest_equal(move->digest, sl_digest_of(value + from, end - from)));
}

START_TEST(random_layers_equal_the_plain_loop)
    {
        struct bed bed;
        struct sl_error why = {0};
        uint64_t seed = 100 + (uint64_t)_i;
        bed_open(&bed, NULL);
        ck_assert_msg(bed_map(&bed, &why) == SL_OK, "%s", why.text);
        for (unsigned round = 0; round < 12; round++) {
            struct plan plan;
            bool to_host = round % 2 == 0;
            plan_make(&bed, &plan, &seed);
            for (uint32_t i = 0; i < plan.move_count; i++) {
                plan_copy(&bed, &plan, &plan.moves[i], to_host);
            }

            sl_err err = bed.device->ops->move(bed.device, plan.moves, plan.move_count, to_host,
                                               to_host, &why);

            ck_assert_msg(err == SL_OK, "seed %d, round %u: %s", _i, round, why.text);
            ck_assert_msg(memcmp(bed.memory, bed.memory_copy, MEMORY_BYTES) == 0,
                          "seed %d, round %u: the other's memory differs", _i, round);
            ck_assert_msg(memcmp(bed.arena, bed.arena_copy, ARENA_BYTES) == 0,
                          "seed %d, round %u: the arena differs", _i, round);
            for (uint32_t i = 0; i < plan.move_count; i++) {
                ck_assert_uint_eq(plan.moves[i].done, 1);
                if (to_host) {
                    range_digest_check(&bed, &plan, &plan.moves[i]);
                }
            }
            for (uint32_t i = 0; i < plan.move_count; i++) {
                plan.moves[i].digest = (struct sl_digest){0};
            }
            ck_assert_int_eq(sl_device_digest_begin(bed.device, plan.moves, plan.move_count, &why),
                             SL_OK);
            for (uint32_t i = 0; i < plan.move_count; i++) {
                ck_assert_uint_eq(plan.moves[i].done, 1);
                range_digest_check(&bed, &plan, &plan.moves[i]);
            }
            ck_assert_int_eq(memcmp(bed.memory, bed.memory_copy, MEMORY_BYTES), 0);
            ck_assert_int_eq(memcmp(bed.arena, bed.arena_copy, ARENA_BYTES), 0);
            bed.device->ops->layers_remove(bed.device, plan.layers_index);
            for (size_t i = 0; i < ARENA_BYTES; i += 8) {
                uint64_t word = random_next(&seed);
                memcpy(bed.arena + i, &word, 8);
            }
            memcpy(bed.arena_copy, bed.arena, ARENA_BYTES);
        }
        bed_close(&bed);
    }
END_TEST

/* ---- who may be copied from ---- */

START_TEST(a_process_that_is_not_the_one_meant_is_not_opened)
    {
        struct bed bed;
        struct sl_error why = {0};
        bed_open(&bed, NULL);
        struct sl_proc_id right = bed.other;

        bed.other.start_time += 1; /* its number was used again */
        ck_assert_int_eq(bed_map(&bed, &why), SL_ERR_NOT_FOUND);
        bed.other.start_time = 0;
        ck_assert_int_eq(bed_map(&bed, &why), SL_ERR_INVALID);
        ck_assert_ptr_nonnull(strstr(why.text, "start_time"));
        bed.other = right;
        other_end(&bed);
        bed.other = right;
        ck_assert_int_eq(bed_map(&bed, &why), SL_ERR_NOT_FOUND);
        bed.other.pid = 0;

        ck_assert_uint_eq(bed.mapping.remote, 0);
        bed_close(&bed);
    }
END_TEST

static void not_dumpable(unsigned char *memory)
{
    (void)memory;
    if (prctl(PR_SET_DUMPABLE, 0) != 0) {
        _exit(1);
    }
}

START_TEST(a_process_that_does_not_let_us_is_told_at_once)
    {
        struct bed bed;
        struct sl_error why = {0};
        if (geteuid() == 0) { /* root may copy from any process */
            ck_assert_int_eq(setgid(NOBODY), 0);
            ck_assert_int_eq(setuid(NOBODY), 0);
            ck_assert_int_eq(prctl(PR_SET_DUMPABLE, 1), 0);
        }
        bed_open(&bed, not_dumpable);

        sl_err err = bed_map(&bed, &why);

        ck_assert_int_eq(err, SL_ERR_PERMISSION);
        ck_assert_msg(strstr(why.text, "not dumpable") != NULL, "%s", why.text);
        ck_assert_msg(strstr(why.text, "PR_SET_PTRACER") != NULL, "%s", why.text);
        bed_close(&bed);
    }
END_TEST

/* ---- what is not there ---- */

static void hole(unsigned char *memory)
{
    if (munmap(memory + 8 * PAGE_BYTES, 2 * PAGE_BYTES) != 0) {
        _exit(1);
    }
}

static void all_gone(unsigned char *memory)
{
    if (munmap(memory, MEMORY_BYTES) != 0) {
        _exit(1);
    }
}

static void read_only_end(unsigned char *memory)
{
    if (mprotect(memory + 8 * PAGE_BYTES, 2 * PAGE_BYTES, PROT_READ) != 0) {
        _exit(1);
    }
}

START_TEST(memory_that_is_not_there_is_found_before_a_copy)
    {
        struct bed bed;
        struct sl_error why = {0};
        uint32_t index = 0;
        bed_open(&bed, _i == 0 ? all_gone : hole);
        struct sl_layer layers[2] = {{.base = bed.memory,
                                      .block_stride_bytes = PAGE_BYTES,
                                      .piece_bytes = PAGE_BYTES,
                                      .block_count = 4}};
        layers[1] = layers[0];
        layers[1].base += 4 * PAGE_BYTES;
        layers[1].block_count = 5; /* its last block lies in the hole */

        sl_err err = bed_map(&bed, &why);
        if (_i == 1) {
            ck_assert_msg(err == SL_OK, "%s", why.text);
            layers[0].remote = layers[1].remote = bed.mapping.remote;
            layers[0].block_count = 5; /* blocks of a table are those that all layers have */
            err = bed.device->ops->layers_add(bed.device, layers, 2, &index, &why);
            ck_assert_ptr_nonnull(strstr(why.text, "layer 1: process"));
        }

        ck_assert_int_eq(err, SL_ERR_STALE);
        bed_close(&bed);
    }
END_TEST

/* Sixteen blocks of a page; 8 and 9 are a hole, or read-only. */
START_TEST(a_copy_ends_where_memory_ends)
    {
        struct bed bed;
        struct sl_error why = {0};
        uint32_t index = 0;
        struct sl_move moves[16];
        bool to_host = _i == 0;
        bed_open(&bed, to_host ? hole : read_only_end);
        struct sl_layer layer = {.base = bed.memory,
                                 .block_stride_bytes = PAGE_BYTES,
                                 .piece_bytes = PAGE_BYTES,
                                 .block_count = 16};
        ck_assert_int_eq(bed_map(&bed, &why), SL_OK);
        layer.remote = bed.mapping.remote;
        ck_assert_int_eq(bed.device->ops->layers_add(bed.device, &layer, 1, &index, &why), SL_OK);
        for (uint32_t i = 0; i < 16; i++) {
            moves[i] = (struct sl_move){
                .host = bed.arena + i * PAGE_BYTES, .device_block = i, .layers_index = index};
        }

        sl_err before = bed.device->ops->move(bed.device, moves, 8, to_host, to_host, &why);
        ck_assert_msg(before == SL_OK, "%s", why.text);
        sl_err err = bed.device->ops->move(bed.device, moves, 16, to_host, to_host, &why);

        ck_assert_int_eq(err, SL_ERR_STALE);
        ck_assert_uint_eq(moves[15].done, 0);
        ck_assert_int_eq(
            memcmp(bed.memory + 8 * PAGE_BYTES, bed.memory_copy + 8 * PAGE_BYTES, 2 * PAGE_BYTES),
            0);
        ck_assert_int_eq(bed.device->ops->move(bed.device, moves, 8, to_host, to_host, &why),
                         SL_OK); /* the next copy works */
        bed_close(&bed);
    }
END_TEST

/* ---- stopped and killed ---- */

static uint32_t one_layer(struct bed *bed)
{
    struct sl_error why = {0};
    uint32_t index = 0;
    struct sl_layer layer = {.base = bed->memory,
                             .block_stride_bytes = SL_MIB,
                             .piece_bytes = SL_MIB,
                             .block_count = 8,
                             .remote = bed->mapping.remote};
    ck_assert_msg(bed->device->ops->layers_add(bed->device, &layer, 1, &index, &why) == SL_OK, "%s",
                  why.text);
    return index;
}

START_TEST(a_stopped_process_is_copied_from_all_the_same)
    {
        struct bed bed;
        struct sl_error why = {0};
        bed_open(&bed, NULL);
        ck_assert_int_eq(bed_map(&bed, &why), SL_OK);
        struct sl_move move = {
            .host = bed.arena, .device_block = 5, .layers_index = one_layer(&bed)};
        ck_assert_int_eq(kill((pid_t)bed.other.pid, SIGSTOP), 0);

        ck_assert_int_eq(bed.device->ops->move(bed.device, &move, 1, true, true, &why), SL_OK);

        ck_assert_int_eq(memcmp(bed.arena, bed.memory + 5 * SL_MIB, SL_MIB), 0);
        bed_close(&bed);
    }
END_TEST

static void hole_in_a_block(unsigned char *memory)
{
    if (munmap(memory + 5 * SL_MIB + SL_MIB / 2, PAGE_BYTES) != 0) {
        _exit(1);
    }
}

START_TEST(what_is_said_to_be_done_is_there_when_others_fail)
    {
        struct bed bed;
        struct sl_error why = {0};
        struct sl_move moves[8];
        bed_open(&bed, hole_in_a_block);
        ck_assert_int_eq(bed_map(&bed, &why), SL_OK);
        uint32_t index = one_layer(&bed);
        for (uint32_t i = 0; i < 8; i++) {
            moves[i] = (struct sl_move){
                .host = bed.arena + i * SL_MIB, .device_block = i, .layers_index = index};
        }

        sl_err err = bed.device->ops->move(bed.device, moves, 8, true, true, &why);

        ck_assert_int_eq(err, SL_ERR_STALE);
        ck_assert_uint_eq(moves[5].done, 0);
        for (uint32_t i = 0; i < 8; i++) {
            const unsigned char *source = bed.memory_copy + i * SL_MIB;
            ck_assert_uint_le(moves[i].done, 1);
            ck_assert(moves[i].done == 0 || memcmp(moves[i].host, source, SL_MIB) == 0);
            ck_assert(moves[i].done == 0 ||
                      sl_digest_equal(moves[i].digest, sl_digest_of(source, SL_MIB)));
        }
        bed_close(&bed);
    }
END_TEST

START_TEST(as_many_threads_copy_as_were_asked_for)
    {
        struct bed bed;
        bed_open(&bed, NULL);
        ck_assert_uint_eq(bed.device->stats.copy_threads, 0);

        ck_assert_int_eq(bed_map(&bed, NULL), SL_OK);

        ck_assert_uint_eq(bed.device->stats.copy_threads, SL_MAX(copy_threads, 1u));
        bed_close(&bed);
    }
END_TEST

START_TEST(a_process_that_is_killed_ends_the_copy)
    {
        struct bed bed;
        struct sl_error why = {0};
        struct sl_move moves[8];
        bool to_host = _i % 2 == 0;
        int begun[2];
        char byte = 0;
        bed_open(&bed, NULL);
        ck_assert_int_eq(pipe(begun), 0);
        pid_t killer = fork(); /* before there are threads */
        if (killer == 0) {
            (void)close(begun[1]);
            (void)!read(begun[0], &byte, 1);
            (void)usleep(500u * (unsigned)(_i / 2)); /* at some moment during it */
            (void)kill((pid_t)bed.other.pid, SIGKILL);
            _exit(0);
        }
        ck_assert_int_eq(bed_map(&bed, &why), SL_OK);
        uint32_t index = one_layer(&bed);
        for (uint32_t i = 0; i < 8; i++) {
            moves[i] = (struct sl_move){
                .host = bed.arena + i * SL_MIB, .device_block = i, .layers_index = index};
        }
        (void)close(begun[0]);
        (void)close(begun[1]);
        sl_err err = SL_OK;
        for (unsigned round = 0; err == SL_OK && round < 100000; round++) {
            err = bed.device->ops->move(bed.device, moves, 8, to_host, to_host, &why);
        }

        ck_assert_msg(err == SL_ERR_NOT_FOUND, "%d: %s", (int)err, why.text);
        ck_assert_ptr_nonnull(strstr(why.text, "is gone"));
        ck_assert_int_eq(waitpid(killer, NULL, 0), killer);
        bed_close(&bed);
    }
END_TEST

static void alone(void)
{
    copy_threads = 0;
}

/* On two cores they wait for each other without sleeping. */
static void two(void)
{
    copy_threads = 2;
}

static void together(void)
{
    copy_threads = 3;
}

static void cases_add(Suite *suite, const char *name, SFun threads)
{
    TCase *cases = tcase_create(name);
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, threads, NULL);
    tcase_add_loop_test(cases, random_layers_equal_the_plain_loop, 0, 8);
    tcase_add_test(cases, a_process_that_is_not_the_one_meant_is_not_opened);
    tcase_add_test(cases, a_process_that_does_not_let_us_is_told_at_once);
    tcase_add_loop_test(cases, memory_that_is_not_there_is_found_before_a_copy, 0, 2);
    tcase_add_loop_test(cases, a_copy_ends_where_memory_ends, 0, 2);
    tcase_add_test(cases, what_is_said_to_be_done_is_there_when_others_fail);
    tcase_add_test(cases, as_many_threads_copy_as_were_asked_for);
    tcase_add_test(cases, a_stopped_process_is_copied_from_all_the_same);
    tcase_add_loop_test(cases, a_process_that_is_killed_ends_the_copy, 0, 8);
    suite_add_tcase(suite, cases);
}

int main(void)
{
    Suite *suite = suite_create("device_process");
    cases_add(suite, "one thread", alone);
    cases_add(suite, "two threads", two);
    cases_add(suite, "three threads", together);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
