/* tests/bench/restart_bench.c - how long a registrar with many keys takes to restart.
 *
 *   restart_bench [KEYS [PARTS]] [--json]
 *
 * KEYS objects of 64 bytes, with keys as long as those of parts; PARTS above 1: they are the
 * parts of blocks. The index is filled directly, then the registrar's init (open, recover,
 * tables; not the start of a process) is measured ROUNDS times. The physical baseline is one
 * read of every cache line of the index through a fresh mapping. */
#include "tests/unit/actors/registrar/registrar_support.h"

#include "runtime/base/sl_clock.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS    5
#define KEY_BYTES 112u
#define SCATTER   UINT64_C(2654435761) /* a prime: each place once */

struct bench {
    struct fake_env fake;
    uint64_t key_count;
    uint32_t part_count;
    uint64_t memory_bytes, index_bytes;
};

static uint64_t mix(uint64_t number)
{
    number = (number ^ number >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ number >> 27) * UINT64_C(0x94d049bb133111eb);
    return number ^ number >> 31;
}

static void check(sl_err err, const struct sl_error *why)
{
    if (err != SL_OK) {
        fprintf(stderr, "restart_bench: %s: %s\n", sl_err_name(err), why->text);
        exit(1);
    }
}

static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * SL_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* MODEL/BLOCK/RANK/POOL; without part: the block's own key. */
static uint32_t key_make(uint64_t block, int part, char key[KEY_BYTES])
{
    int length = snprintf(key, KEY_BYTES,
                          "0123456789abcdef0123456789abcdef/%016" PRIx64 "%016" PRIx64 "%016" PRIx64
                          "%016" PRIx64,
                          mix(block), mix(block + 1), mix(block + 2), mix(block + 3));
    if (part >= 0) {
        length += snprintf(key + length, KEY_BYTES - (size_t)length, "/%d/attention", part);
    }
    return (uint32_t)length;
}

static void bench_insert(struct sl_index *index, uint64_t generation, uint64_t number, sl_ref group,
                         uint32_t part, uint64_t block)
{
    char key[KEY_BYTES];
    struct sl_error why = {0};
    sl_ref ref = 0;
    struct sl_entry entry = {.kind = SL_RECORD_RESERVED,
                             .key = key,
                             .key_length = (uint16_t)key_make(block, (int)part, key),
                             .group = group,
                             .part_index = (uint16_t)part};
    entry.extent = (struct sl_extent){
        .generation = generation, .offset_bytes = number * 64, .length_bytes = 64};
    check(sl_index_claim(index, &entry, &ref, &why), &why);
    check(sl_index_commit(index, ref, (struct sl_digest){1, 2}), &why);
    if (group != 0) {
        sl_index_group_fill(index, group, part);
    }
}

static void bench_fill(const struct bench *self)
{
    struct sl_error why = {0};
    struct sl_arena *arena = NULL;
    struct sl_index *index = NULL;
    bool created = false;
    struct sl_arena_options arena_options = {.directory = self->fake.paths.shm_dir,
                                             .data_bytes = self->memory_bytes,
                                             .chunk_bytes = self->memory_bytes};
    check(sl_arena_open_owner(&arena_options, &created, &arena, &why), &why);
    struct sl_index_options options = {
        .shm_dir = self->fake.paths.shm_dir, .index_bytes_max = self->index_bytes, .arena = arena};
    check(sl_index_open(&options, &created, &index, &why), &why);
    sl_index_recover(index, NULL, NULL);
    uint64_t first_generation = sl_arena_next_generation(arena);
    for (uint64_t i = 1; i < self->key_count; i++) {
        (void)sl_arena_next_generation(arena);
    }
    for (uint64_t i = 0; i < self->key_count; i++) {
        static sl_ref group;
        /* In a node that has run for a while, recency and places in memory are unrelated. */
        uint64_t generation = first_generation + i * SCATTER % self->key_count;
        uint64_t block = i / self->part_count;
        uint32_t part = (uint32_t)(i % self->part_count);
        if (self->part_count > 1 && part == 0) {
            char key[KEY_BYTES];
            uint32_t length = key_make(block, -1, key);
            struct sl_group_want want = {.key = {key, length}, .part_count = self->part_count};
            check(sl_index_group_create(index, &want, &group, &why), &why);
        }
        bench_insert(index, generation, i, group, part, block);
    }
    sl_index_close(&index);
    sl_arena_close(&arena);
}

/* One pass over the used part of the index, as any recovery must read it. */
static uint64_t bench_read(const struct bench *self, uint64_t *bytes)
{
    char path[1100];
    struct stat stat;
    snprintf(path, sizeof(path), "%s/index", self->fake.paths.shm_dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &stat) != 0) {
        perror(path);
        exit(1);
    }
    /* Used pages are at the front, except for the holes after the last slab. */
    *bytes = SL_MIN((uint64_t)stat.st_blocks * 512, (uint64_t)stat.st_size);
    uint64_t began = sl_clock_monotonic_ns();
    const uint64_t *words = mmap(NULL, *bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (words == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    uint64_t sum = 0;
    for (uint64_t i = 0; i < *bytes / 8; i += 8) {
        sum += words[i];
    }
    uint64_t took = sl_clock_monotonic_ns() - began;
    munmap((void *)(uintptr_t)words, *bytes);
    close(fd);
    return took + (sum == 1); /* used, so that the loop stays */
}

static int order(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a;
    uint64_t other = *(const uint64_t *)b;
    return (one > other) - (one < other);
}

static double median_ms(uint64_t *ns)
{
    qsort(ns, ROUNDS, sizeof(*ns), order);
    return (double)ns[ROUNDS / 2] / 1e6;
}

static void bench_run(struct bench *self, bool json)
{
    uint64_t wall[ROUNDS];
    uint64_t cpu[ROUNDS];
    uint64_t read[ROUNDS];
    uint64_t bytes = 0;
    struct sl_error why = {0};
    for (int i = 0; i < ROUNDS; i++) {
        read[i] = bench_read(self, &bytes);
        uint64_t began = sl_clock_monotonic_ns();
        uint64_t cpu_began = cpu_ns();
        check(fake_start(&self->fake, &why), &why);
        wall[i] = sl_clock_monotonic_ns() - began;
        cpu[i] = cpu_ns() - cpu_began;
        fake_stop(&self->fake);
    }
    double wall_ms = median_ms(wall);
    double cpu_ms = median_ms(cpu);
    double read_ms = median_ms(read);
    if (json) {
        printf("{\"bench\": \"registrar_restart\", \"keys\": %" PRIu64
               ", \"parts\": %u, \"index_bytes\": %" PRIu64
               ", \"wall_ms\": %.1f, \"cpu_ms\": %.1f, \"read_once_ms\": %.1f, \"ratio\": %.1f, "
               "\"rounds\": %d}\n",
               self->key_count, self->part_count, bytes, wall_ms, cpu_ms, read_ms,
               wall_ms / read_ms, ROUNDS);
        return;
    }
    printf("registrar back with %" PRIu64 " keys (%u a block): %.1f ms (%.1f ms of processor "
           "time), reading its %" PRIu64 " MiB once %.1f ms (medians of %d)\n",
           self->key_count, self->part_count, wall_ms, cpu_ms, bytes / SL_MIB, read_ms, ROUNDS);
}

static struct bench bench;
static bool json;

/* The fake environment checks its own steps with Check, so it runs as a test. */
START_TEST(measure)
    {
        static const char *const none[] = {NULL};
        char text[32];
        struct sl_error why = {0};
        fake_open(&bench.fake, &sl_registrar_actor, none);
        snprintf(text, sizeof(text), "%" PRIu64, bench.memory_bytes);
        fake_set(&bench.fake, "memory", text);
        fake_set(&bench.fake, "memory_chunk", text);
        snprintf(text, sizeof(text), "%" PRIu64, bench.index_bytes);
        fake_set(&bench.fake, "index_memory", text);
        fake_set(&bench.fake, "disk", "0");
        check(fake_start(&bench.fake, &why), &why); /* makes the shm files */
        fake_stop(&bench.fake);
        bench_fill(&bench);
        bench_run(&bench, json);
        fake_close(&bench.fake);
    }
END_TEST

int main(int argc, char **argv)
{
    json = argc > 1 && strcmp(argv[argc - 1], "--json") == 0;
    argc -= json;
    bench.key_count = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    bench.part_count = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1;
    if (bench.key_count < 1000 || bench.key_count > 10000000 || bench.part_count < 1 ||
        bench.part_count > SL_GROUP_PARTS_MAX || bench.key_count % bench.part_count != 0) {
        fprintf(stderr, "usage: restart_bench [KEYS (1000..10000000) [PARTS of a block, a divisor "
                        "(1..512)]] [--json]\n");
        return 2;
    }
    bench.memory_bytes = sl_align_up(bench.key_count * 64, SL_MIB);
    bench.index_bytes = sl_align_up(bench.key_count * (bench.part_count > 1 ? 480 : 400), SL_MIB);
    TCase *tcase = tcase_create("restart_bench");
    Suite *suite = suite_create("restart_bench");
    tcase_add_test(tcase, measure);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
