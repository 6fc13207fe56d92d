/* tests/bench/index_bench.c - look-ups, inserts and recovery of the index at a given number of
 * keys.
 *
 * index_bench [KEYS [GROUPED]]: keys of 110 bytes as parts have them; GROUPED 1: each key is one of
 * four parts of a block. Prints one line a figure; the physical baseline is a dependent-free random
 * read of one cache line a key. */
#include "ipc/sl_index.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BATCH     256u
#define KEY_BYTES 112u
#define ROUNDS    5

struct bench {
    char dir[64];
    struct sl_arena *arena;
    struct sl_index *index;
    struct sl_index_options options;
    uint64_t key_count;
    bool grouped;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SL_NS_PER_S + (uint64_t)now.tv_nsec;
}

static uint64_t mix(uint64_t number)
{
    number = (number ^ number >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ number >> 27) * UINT64_C(0x94d049bb133111eb);
    return number ^ number >> 31;
}

/* MODEL/BLOCK/RANK/POOL: 32 and 64 hex digits. */
static uint32_t key_make(uint64_t number, char key[KEY_BYTES])
{
    uint64_t block = number / 4;
    return (uint32_t)snprintf(key, KEY_BYTES,
                              "0123456789abcdef0123456789abcdef/%016" PRIx64 "%016" PRIx64
                              "%016" PRIx64 "%016" PRIx64 "/%u/attention",
                              mix(block), mix(block + 1), mix(block + 2), mix(block + 3),
                              (unsigned)(number % 4));
}

static void check(sl_err err, const struct sl_error *why)
{
    if (err != SL_OK) {
        fprintf(stderr, "index_bench: %s: %s\n", sl_err_name(err), why->text);
        exit(1);
    }
}

static void bench_open(struct bench *bench, bool *created)
{
    struct sl_error why = {0};
    struct sl_arena_options arena = {
        .directory = bench->dir, .data_bytes = SL_MIB, .chunk_bytes = SL_MIB};
    check(sl_arena_open_owner(&arena, created, &bench->arena, &why), &why);
    bench->options.arena = bench->arena;
    check(sl_index_open(&bench->options, created, &bench->index, &why), &why);
}

static sl_ref insert_group(struct bench *bench, const char *key, uint32_t key_length)
{
    struct sl_error why = {0};
    sl_ref group = 0;
    /* MODEL/BLOCK without rank and pool */
    struct sl_group_want want = {.key = {key, key_length - (uint32_t)strlen("/0/attention")},
                                 .part_count = 4};
    check(sl_index_group_create(bench->index, &want, &group, &why), &why);
    return group;
}

static void bench_fill(struct bench *bench)
{
    char key[KEY_BYTES];
    struct sl_error why = {0};
    struct sl_digest digest = {1, 2};
    sl_ref group = 0;
    uint64_t began = now_ns();
    for (uint64_t i = 0; i < bench->key_count; i++) {
        struct sl_entry entry = {
            .kind = SL_RECORD_RESERVED, .key = key, .key_length = (uint16_t)key_make(i, key)};
        sl_ref ref = 0;
        entry.extent =
            (struct sl_extent){.generation = i + 1, .offset_bytes = i * 4096, .length_bytes = 4096};
        if (bench->grouped && i % 4 == 0) {
            group = insert_group(bench, key, entry.key_length);
        }
        entry.group = group;
        entry.part_index = (uint16_t)(i % 4);
        check(sl_index_claim(bench->index, &entry, &ref, &why), &why);
        check(sl_index_commit(bench->index, ref, digest), &why);
        if (group != 0) {
            sl_index_group_fill(bench->index, group, entry.part_index);
        }
    }
    printf("claim + commit           %8.1f ns a key (key formatting included)\n",
           (double)(now_ns() - began) / (double)bench->key_count);
}

struct look_ups {
    char (*texts)[KEY_BYTES];
    struct sl_key *keys;
    struct sl_entry *out;
    sl_err *codes;
    uint64_t count;
};

static struct look_ups look_ups_make(const struct bench *bench)
{
    struct look_ups set = {.count = SL_MIN(bench->key_count, UINT64_C(1) << 20)};
    uint64_t random = 99;
    set.texts = malloc(set.count * KEY_BYTES);
    set.keys = malloc(set.count * sizeof(*set.keys));
    set.out = malloc(BATCH * sizeof(*set.out));
    set.codes = malloc(set.count * sizeof(*set.codes));
    if (set.texts == NULL || set.keys == NULL || set.out == NULL || set.codes == NULL) {
        fprintf(stderr, "index_bench: out of memory\n");
        exit(1);
    }
    for (uint64_t i = 0; i < set.count; i++) {
        random = mix(random + i);
        set.keys[i] =
            (struct sl_key){set.texts[i], key_make(random % bench->key_count, set.texts[i])};
    }
    return set;
}

static void look_ups_free(struct look_ups *set)
{
    free(set->texts);
    free(set->keys);
    free(set->out);
    free(set->codes);
}

static int order(const void *a, const void *b)
{
    double one = *(const double *)a;
    double other = *(const double *)b;
    return (one > other) - (one < other);
}

static void print_rate(const char *what, double *ns)
{
    qsort(ns, ROUNDS, sizeof(*ns), order);
    printf("%-24s %8.1f ns a key, %6.2f M keys/s (median of %d)\n", what, ns[ROUNDS / 2],
           1000.0 / ns[ROUNDS / 2], ROUNDS);
}

static void bench_batches(const struct sl_index_view *view, struct look_ups *set, bool entries)
{
    double ns[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t began = now_ns();
        for (uint64_t i = 0; i + BATCH <= set->count; i += BATCH) {
            sl_index_find_batch(view, &set->keys[i], BATCH, entries ? set->out : NULL,
                                &set->codes[i]);
        }
        ns[round] = (double)(now_ns() - began) / (double)(set->count / BATCH * BATCH);
        for (uint64_t i = 0; i < set->count / BATCH * BATCH; i++) {
            if (set->codes[i] != SL_OK) {
                fprintf(stderr, "index_bench: a key was not found: %s\n",
                        sl_err_name(set->codes[i]));
                exit(1);
            }
        }
    }
    print_rate(entries ? "find, batches of 256" : "exists, batches of 256", ns);
}

static void bench_singles(const struct sl_index_view *view, struct look_ups *set)
{
    double ns[ROUNDS];
    struct sl_entry entry;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t began = now_ns();
        for (uint64_t i = 0; i < set->count; i++) {
            if (sl_index_find(view, set->keys[i].at, set->keys[i].length, &entry) != SL_OK) {
                exit(1);
            }
        }
        ns[round] = (double)(now_ns() - began) / (double)set->count;
    }
    print_rate("find, one by one", ns);
}

/* What the memory allows: independent reads of random cache lines from as many bytes as the index
 * takes. */
static void bench_memory(uint64_t bytes)
{
    double ns[ROUNDS];
    uint64_t lines = bytes / 64;
    uint64_t reads = UINT64_C(1) << 20;
    volatile uint64_t sink = 0;
    uint64_t *memory = malloc(lines * 64);
    if (memory == NULL) {
        return;
    }
    memset(memory, 1, lines * 64);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t sum = 0;
        uint64_t began = now_ns();
        for (uint64_t i = 0; i < reads; i++) {
            sum += memory[mix(i + (uint64_t)round) % lines * 8];
        }
        sink = sum;
        ns[round] = (double)(now_ns() - began) / (double)reads;
    }
    (void)sink;
    print_rate("one random cache line", ns);
    free(memory);
}

static void count_entry(void *context, const struct sl_entry *entry)
{
    uint64_t *count = context;
    *count += entry->kind == SL_RECORD_COMMITTED;
}

static void bench_recover(struct bench *bench)
{
    uint64_t given = 0;
    bool created = false;
    sl_index_close(&bench->index);
    sl_arena_close(&bench->arena);
    uint64_t began = now_ns();
    bench_open(bench, &created);
    sl_index_recover(bench->index, count_entry, &given);
    printf("open + recover           %8.1f ms for %" PRIu64 " keys\n",
           (double)(now_ns() - began) / 1e6, given);
}

int main(int argc, char **argv)
{
    struct bench bench = {.dir = "/dev/shm/sluice-bench-XXXXXX"};
    bool created = false;
    struct sl_index_stats stats;
    bench.key_count = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    bench.grouped = argc > 2 && strcmp(argv[2], "1") == 0;
    if (bench.key_count < BATCH || bench.key_count > 100000000 || mkdtemp(bench.dir) == NULL) {
        fprintf(stderr, "usage: index_bench [KEYS (256..100000000) [GROUPED (0 or 1)]]\n");
        return 2;
    }
    uint64_t table_keys = bench.key_count + (bench.grouped ? bench.key_count / 4 : 0);
    bench.options = (struct sl_index_options){.shm_dir = bench.dir,
                                              .index_bytes_max = table_keys * 440 + 4 * SL_MIB,
                                              .key_count = table_keys};
    bench_open(&bench, &created);
    bench_fill(&bench);
    struct look_ups set = look_ups_make(&bench);
    const struct sl_index_view *view = sl_index_as_view(bench.index);
    bench_batches(view, &set, false);
    bench_batches(view, &set, true);
    bench_singles(view, &set);
    sl_index_view_stats(view, &stats);
    bench_memory(stats.mapped_bytes);
    printf("memory                   %8.1f bytes a key (table and records, %" PRIu64 " MiB)\n",
           (double)stats.mapped_bytes / (double)bench.key_count, stats.mapped_bytes / SL_MIB);
    bench_recover(&bench);
    look_ups_free(&set);
    sl_index_close(&bench.index);
    sl_arena_close(&bench.arena);
    (void)sl_segment_remove(bench.dir, "index", NULL);
    (void)sl_segment_remove(bench.dir, "arena.0", NULL);
    rmdir(bench.dir);
    return 0;
}
