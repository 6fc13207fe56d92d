/* tests/bench/look_bench.c - how long a scheduler's process takes to look up 2,000 blocks.
 *
 *   look_bench [BLOCKS [PARTS]]
 *
 * A child process writes an index of BLOCKS blocks (default 200000) of PARTS parts each (default
 * 8). This process maps it and asks for prefixes of 2,000 blocks anywhere in it, by hashes of 32
 * bytes. Medians of ROUNDS calls of sl_prefix_match, in wall time, without and with a hold, by
 * one thread and by more on one handle. The limit, in the same run: 2,000 independent reads of
 * random lines of the same file. A lookup reads four lines a block: bucket, record, and two of
 * the key. */
#include "client/lib/engine.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define IDENTITY    "00112233445566778899aabbccddeeff"
#define HASH_BYTES  32u
#define LOOK        2000u
#define ROUNDS      301u
#define THREADS_MAX 8u
#define FIRST       6u
#define LINE_WORDS  8u

static uint64_t block_count = 200000;
static uint32_t part_count = 8;
static char directory[64] = "/dev/shm/look_bench.XXXXXX";

static _Noreturn void fail(const char *what, const struct sl_error *why)
{
    (void)fprintf(stderr, "look_bench: %s: %s\n", what, why == NULL ? "" : why->text);
    exit(1);
}

static uint64_t mix(uint64_t number)
{
    number = (number ^ number >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ number >> 27) * UINT64_C(0x94d049bb133111eb);
    return number ^ number >> 31;
}

static void hash_make(unsigned char to[HASH_BYTES], uint64_t number)
{
    for (uint32_t i = 0; i < HASH_BYTES / 8; i++) {
        uint64_t word = mix(number * 4 + i + 1);
        memcpy(&to[i * 8], &word, sizeof word);
    }
}

/* ---- the other process ---- */

static void block_write(struct sl_index *index, uint64_t number)
{
    unsigned char hash[HASH_BYTES];
    char key[128];
    struct sl_error why = {0};
    hash_make(hash, number);
    int length = snprintf(key, sizeof key, IDENTITY "/");
    for (uint32_t i = 0; i < HASH_BYTES; i++) {
        length += snprintf(&key[length], sizeof key - (size_t)length, "%02x", hash[i]);
    }
    struct sl_group_want want = {.key = {key, (uint32_t)length}, .part_count = part_count};
    sl_ref group = 0, ref = 0;
    if (sl_index_group_create(index, &want, &group, &why) != SL_OK) {
        fail("block", &why);
    }
    for (uint32_t part = 0; part < part_count; part++) {
        int part_length =
            length + snprintf(&key[length], sizeof key - (size_t)length, "/%u/kv", part);
        struct sl_entry entry = {
            .kind = SL_RECORD_RESERVED,
            .key = key,
            .key_length = (uint16_t)part_length,
            .extent = {.generation = number * part_count + part + 1, .length_bytes = 4096},
            .group = group,
            .part_index = (uint16_t)part};
        if (sl_index_claim(index, &entry, &ref, &why) != SL_OK ||
            sl_index_commit(index, ref, (struct sl_digest){1, 2}) != SL_OK) {
            fail("part", &why);
        }
        (void)sl_index_group_fill(index, group, part);
    }
}

static void index_write(void)
{
    struct sl_arena *arena = NULL;
    struct sl_index *index = NULL;
    struct sl_error why = {0};
    bool created = false;
    struct sl_arena_options options = {
        .directory = directory, .data_bytes = SL_MIB, .chunk_bytes = SL_MIB};
    if (sl_arena_open_owner(&options, &created, &arena, &why) != SL_OK) {
        fail("arena", &why);
    }
    uint64_t keys = block_count * (part_count + 1);
    struct sl_index_options plan = {.shm_dir = directory,
                                    .index_bytes_max = 64 * SL_MIB + keys * 400,
                                    .key_count = keys,
                                    .arena = arena,
                                    .leases.block_ns = 5 * SL_NS_PER_S};
    if (sl_index_open(&plan, &created, &index, &why) != SL_OK ||
        sl_index_leases_open(index, directory, plan.leases, &why) != SL_OK) {
        fail("index", &why);
    }
    sl_index_recover(index, NULL, NULL);
    for (uint64_t i = 0; i < block_count; i++) {
        block_write(index, i);
    }
    sl_index_close(&index);
    sl_arena_close(&arena);
}

/* ---- this process ---- */

struct looker {
    pthread_t thread;
    struct sl_engine *engine;
    uint64_t hold_ns, seed;
    double median_us;
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double us[ROUNDS])
{
    qsort(us, ROUNDS, sizeof *us, by_value);
    return us[ROUNDS / 2];
}

/* Returns how long a lookup of LOOK blocks took; round and seed choose the blocks. */
static double look_us(const struct looker *self, uint32_t round)
{
    static _Thread_local unsigned char hashes[LOOK * HASH_BYTES];
    struct sl_error why = {0};
    struct sl_prefix_result out;
    for (uint32_t i = 0; i < LOOK; i++) {
        uint64_t number = mix(self->seed + round * LOOK + i) % block_count;
        hash_make(&hashes[i * HASH_BYTES], number);
    }
    struct sl_prefix_query look = {
        .hashes = hashes, .hash_bytes = HASH_BYTES, .count = LOOK, .hold_ns = self->hold_ns};
    uint64_t began_ns = sl_clock_monotonic_ns();
    if (sl_prefix_match(self->engine, &look, &out, NULL, &why) != SL_OK) {
        fail("lookup", &why);
    }
    double us = (double)(sl_clock_monotonic_ns() - began_ns) / 1e3;
    if (out.prefix_count != LOOK || (out.held_until_ns != 0) != (self->hold_ns != 0)) {
        fail("a block was missed, or not held", NULL);
    }
    return us;
}

static void *looker_run(void *context)
{
    struct looker *self = context;
    double us[ROUNDS];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        us[round] = look_us(self, round);
    }
    self->median_us = median(us);
    return NULL;
}

/* The first lookups of a process that has mapped no page yet: other blocks each time. */
static void first_print(struct sl_engine *engine, uint64_t hold_ns)
{
    struct looker one = {.engine = engine, .hold_ns = hold_ns, .seed = hold_ns | 1};
    printf("first lookups, %s hold:", hold_ns == 0 ? "without a" : "with a");
    for (uint32_t round = 0; round < FIRST; round++) {
        printf(" %.0f", look_us(&one, round));
    }
    printf(" us\n");
}

static double lookers_run(struct sl_engine *engine, uint32_t threads, uint64_t hold_ns)
{
    struct looker lookers[THREADS_MAX];
    double slowest_us = 0;
    for (uint32_t i = 0; i < threads; i++) {
        lookers[i] = (struct looker){
            .engine = engine, .hold_ns = hold_ns, .seed = (i + threads + hold_ns % 7) << 32};
        if (pthread_create(&lookers[i].thread, NULL, looker_run, &lookers[i]) != 0) {
            fail("thread", NULL);
        }
    }
    for (uint32_t i = 0; i < threads; i++) {
        (void)pthread_join(lookers[i].thread, NULL);
        slowest_us = SL_MAX(slowest_us, lookers[i].median_us);
    }
    return slowest_us;
}

/* Reads of lines whose addresses are known in advance, so that they overlap. */
static double floor_us(void)
{
    char path[96];
    struct stat file;
    static uint64_t at[LOOK];
    double us[ROUNDS];
    uint64_t sum = 0;
    (void)snprintf(path, sizeof path, "%s/index", directory);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &file) != 0) {
        fail("index file", NULL);
    }
    const uint64_t *words = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (words == MAP_FAILED) {
        fail("map the index file", NULL);
    }
    /* Only populated pages: all holes are one page of zeros. */
    uint64_t lines = SL_MIN((uint64_t)file.st_blocks * 512, (uint64_t)file.st_size) / 64;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < LOOK; i++) {
            at[i] = mix((uint64_t)round * LOOK + i + 12345) % lines * LINE_WORDS;
        }
        uint64_t began_ns = sl_clock_monotonic_ns();
        for (uint32_t i = 0; i < LOOK; i++) {
            sum += words[at[i]];
        }
        us[round] = (double)(sl_clock_monotonic_ns() - began_ns) / 1e3;
    }
    (void)munmap((void *)(uintptr_t)words, (size_t)file.st_size);
    (void)close(fd);
    return median(us) + (sum == 1 ? 1e-9 : 0);
}

static void figures_print(void)
{
    static struct sl_engine engine;
    char runtime_dir[96], shm_dir[96];
    const char *settings[] = {runtime_dir, shm_dir, NULL};
    struct sl_error why = {0};
    (void)snprintf(runtime_dir, sizeof runtime_dir, "runtime_dir=%s", directory);
    (void)snprintf(shm_dir, sizeof shm_dir, "shm_dir=%s", directory);
    struct sl_client_options options = {
        .api_version = SLUICE_API_VERSION, .settings = settings, .read_only = true};
    if (sl_client_open(&options, &engine.client, &why) != SL_OK) {
        fail("client", &why);
    }
    engine.client->read_only = false; /* it may hold blocks; there is no registrar to send HELLO
                                       * to */
    memcpy(engine.identity, IDENTITY, sizeof IDENTITY);
    double least_us = floor_us();
    printf("%" PRIu64 " blocks of %u parts; %u looked up at a time\n", block_count, part_count,
           LOOK);
    printf("floor: %u lines read  %7.1f us\n", LOOK, least_us);
    first_print(&engine, 0);
    first_print(&engine, SL_NS_PER_S);
    for (uint32_t threads = 1; threads <= THREADS_MAX; threads *= 2) {
        double plain_us = lookers_run(&engine, threads, 0);
        double held_us = lookers_run(&engine, threads, SL_NS_PER_S);
        printf("%u thread%s: lookup %7.1f us (%4.1f of the floor), with a hold %7.1f us (%4.1f)\n",
               threads, threads == 1 ? " " : "s", plain_us, plain_us / least_us, held_us,
               held_us / least_us);
    }
    sl_client_close(&engine.client);
}

int main(int argc, char **argv)
{
    block_count = argc > 1 ? strtoull(argv[1], NULL, 10) : block_count;
    part_count = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : part_count;
    if (block_count == 0 || part_count == 0 || part_count > SL_GROUP_PARTS_MAX ||
        mkdtemp(directory) == NULL) {
        (void)fprintf(stderr, "look_bench [BLOCKS [PARTS]]\n");
        return 1;
    }
    int status = 0;
    pid_t writer = fork();
    if (writer == 0) {
        index_write();
        _exit(0);
    }
    (void)waitpid(writer, &status, 0);
    if (status == 0) {
        figures_print();
    }
    const char *const files[] = {"index", "leases", "arena.0"};
    for (size_t i = 0; i < SL_COUNT(files); i++) {
        char path[96];
        (void)snprintf(path, sizeof path, "%s/%s", directory, files[i]);
        (void)unlink(path);
    }
    (void)rmdir(directory);
    return status == 0 ? 0 : 1;
}
