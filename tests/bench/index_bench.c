/* tests/bench/index_bench.c - lookups, inserts, removals and recovery of the index at a number
 * of keys.
 *
 *   index_bench [KEYS]... [--grouped] [--json]
 *
 * KEYS: default 1000 and 1000000; 10000000 take 3.3 GB. Keys have 110 bytes, like those of
 * parts; grouped: each is one of four parts of a block. Medians of ROUNDS. The physical
 * baselines are reads of random cache lines of the index file itself in the same run:
 * independent reads (as in a batch), and reads that each depend on the one before. A lookup in
 * a table that is not cached needs two at least: bucket and record, whose key takes two lines
 * more. */
#include "ipc/shm/sl_index.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define BATCH       256u
#define KEY_BYTES   112u
#define ROUNDS      5
#define LOOKS       (UINT64_C(1) << 20)
#define CHANGES_MAX (UINT64_C(1) << 17)
#define RUNS_MAX    8

struct figures {
    uint64_t keys;
    double exists_batch_ns, find_batch_ns, find_ns, remove_ns, insert_ns, fill_ns;
    double read_ns, chase_ns; /* the baselines */
    double bytes_a_key, recover_ms;
    uint64_t empty_bytes, mapped_bytes;
};

struct bench {
    char dir[64];
    struct sl_arena *arena;
    struct sl_index *index;
    struct sl_index_options options;
    uint64_t key_count;
    bool grouped;
    struct figures figures;
};

/* Keys looked up or changed, formatted beforehand. */
struct look_ups {
    char (*texts)[KEY_BYTES];
    struct sl_key *keys;
    sl_ref *refs;
    struct sl_entry *out;
    sl_err *codes;
    uint64_t count;
};

/* CPU time of this thread: nothing here waits, and other threads may run. */
static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * SL_NS_PER_S + (uint64_t)now.tv_nsec;
}

static uint64_t mix(uint64_t number)
{
    number = (number ^ number >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ number >> 27) * UINT64_C(0x94d049bb133111eb);
    return number ^ number >> 31;
}

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "index_bench: %s\n", what);
    exit(1);
}

static void check(sl_err err, const struct sl_error *why)
{
    if (err != SL_OK) {
        fprintf(stderr, "index_bench: %s: %s\n", sl_err_name(err), why->text);
        exit(1);
    }
}

static double median(double *ns)
{
    for (int i = 1; i < ROUNDS; i++) {
        for (int j = i; j > 0 && ns[j] < ns[j - 1]; j--) {
            double swap = ns[j];
            ns[j] = ns[j - 1];
            ns[j - 1] = swap;
        }
    }
    return ns[ROUNDS / 2];
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

/* ---- the index ---- */

static void bench_open(struct bench *bench)
{
    struct sl_error why = {0};
    bool created = false;
    struct sl_arena_options arena = {
        .directory = bench->dir, .data_bytes = SL_MIB, .chunk_bytes = SL_MIB};
    check(sl_arena_open_owner(&arena, &created, &bench->arena, &why), &why);
    bench->options.arena = bench->arena;
    check(sl_index_open(&bench->options, &created, &bench->index, &why), &why);
}

static void bench_close(struct bench *bench)
{
    sl_index_close(&bench->index);
    sl_arena_close(&bench->arena);
}

static sl_ref group_make(struct bench *bench, struct sl_key key)
{
    struct sl_error why = {0};
    sl_ref group = 0;
    /* MODEL/BLOCK without rank and pool */
    struct sl_group_want want = {.key = {key.at, key.length - (uint32_t)strlen("/0/attention")},
                                 .part_count = 4};
    check(sl_index_group_create(bench->index, &want, &group, &why), &why);
    return group;
}

static sl_ref key_insert(struct bench *bench, struct sl_key key, uint64_t number, sl_ref group)
{
    struct sl_error why = {0};
    sl_ref ref = 0;
    struct sl_entry entry = {
        .kind = SL_RECORD_RESERVED,
        .key = key.at,
        .key_length = (uint16_t)key.length,
        .extent = {.generation = number + 1, .offset_bytes = number * 4096, .length_bytes = 4096},
        .group = group,
        .part_index = (uint16_t)(number % 4)};
    check(sl_index_claim(bench->index, &entry, &ref, &why), &why);
    check(sl_index_commit(bench->index, ref, (struct sl_digest){1, 2}), &why);
    return ref;
}

static void bench_fill(struct bench *bench)
{
    char text[KEY_BYTES];
    sl_ref group = 0;
    uint64_t began = now_ns();
    for (uint64_t i = 0; i < bench->key_count; i++) {
        struct sl_key key = {text, key_make(i, text)};
        if (bench->grouped && i % 4 == 0) {
            group = group_make(bench, key);
        }
        (void)key_insert(bench, key, i, group);
        if (group != 0) {
            sl_index_group_fill(bench->index, group, (uint32_t)(i % 4));
        }
    }
    bench->figures.fill_ns = (double)(now_ns() - began) / (double)bench->key_count;
}

/* ---- what is looked up ---- */

static struct look_ups look_ups_make(const struct bench *bench)
{
    struct look_ups set = {.count = LOOKS};
    uint64_t random = 99;
    set.texts = malloc(set.count * KEY_BYTES);
    set.keys = malloc(set.count * sizeof(*set.keys));
    set.refs = malloc(set.count * sizeof(*set.refs));
    set.out = malloc(BATCH * sizeof(*set.out));
    set.codes = malloc(set.count * sizeof(*set.codes));
    if (set.texts == NULL || set.keys == NULL || set.refs == NULL || set.out == NULL ||
        set.codes == NULL) {
        fail("out of memory");
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
    free(set->refs);
    free(set->out);
    free(set->codes);
}

static double bench_batches(const struct sl_index_view *view, struct look_ups *set, bool entries)
{
    double ns[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t began = now_ns();
        for (uint64_t i = 0; i < set->count; i += BATCH) {
            sl_index_find_batch(view, &set->keys[i], BATCH, entries ? set->out : NULL,
                                &set->codes[i]);
        }
        ns[round] = (double)(now_ns() - began) / (double)set->count;
        for (uint64_t i = 0; i < set->count; i++) {
            if (set->codes[i] != SL_OK) {
                fail("a key was not found");
            }
        }
    }
    return median(ns);
}

static double bench_singles(const struct sl_index_view *view, struct look_ups *set)
{
    double ns[ROUNDS];
    struct sl_entry entry;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t began = now_ns();
        for (uint64_t i = 0; i < set->count; i++) {
            if (sl_index_find(view, set->keys[i].at, set->keys[i].length, &entry) != SL_OK) {
                fail("a key was not found");
            }
        }
        ns[round] = (double)(now_ns() - began) / (double)set->count;
    }
    return median(ns);
}

/* Removes keys from all over the index and inserts them again, at its full size. */
static void bench_changes(struct bench *bench, struct look_ups *set)
{
    double removed[ROUNDS];
    double inserted[ROUNDS];
    uint64_t count = SL_MIN(bench->key_count / 2, CHANGES_MAX);
    uint64_t stride = bench->key_count / count;
    uint64_t repeats = SL_MAX(CHANGES_MAX / 8 / count, UINT64_C(1));
    for (uint64_t i = 0; i < count; i++) {
        struct sl_entry entry;
        /* Each once, in scattered order. */
        set->keys[i].length = key_make(i * 7919 % count * stride, set->texts[i]);
        if (sl_index_find_any(bench->index, set->keys[i].at, set->keys[i].length, &entry) !=
            SL_OK) {
            fail("a key was not found");
        }
        set->refs[i] = entry.ref;
    }
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t removing_ns = 0;
        uint64_t inserting_ns = 0;
        for (uint64_t repeat = 0; repeat < repeats; repeat++) {
            uint64_t began = now_ns();
            for (uint64_t i = 0; i < count; i++) {
                sl_index_unlink(bench->index, set->refs[i], SL_RECORD_FREE);
            }
            uint64_t half = now_ns();
            for (uint64_t i = 0; i < count; i++) {
                set->refs[i] = key_insert(bench, set->keys[i], i * 7919 % count * stride, 0);
            }
            removing_ns += half - began;
            inserting_ns += now_ns() - half;
        }
        removed[round] = (double)removing_ns / (double)(count * repeats);
        inserted[round] = (double)inserting_ns / (double)(count * repeats);
    }
    bench->figures.remove_ns = median(removed);
    bench->figures.insert_ns = median(inserted);
}

/* ---- what the memory allows ---- */

static double bench_memory(const struct bench *bench, uint64_t bytes, bool dependent)
{
    double ns[ROUNDS];
    char path[128];
    uint64_t lines = bytes / 64;
    volatile uint64_t sink = 0;
    snprintf(path, sizeof(path), "%s/index", bench->dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint64_t *memory =
        fd < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (memory == MAP_FAILED) {
        fail("the index cannot be mapped");
    }
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t sum = 0;
        uint64_t began = now_ns();
        for (uint64_t i = 0; i < LOOKS; i++) {
            uint64_t where = mix(i + (uint64_t)round + (dependent ? sum : 0)) % lines;
            sum += memory[where * 8];
        }
        sink = sum;
        ns[round] = (double)(now_ns() - began) / (double)LOOKS;
    }
    (void)sink;
    munmap(memory, bytes);
    close(fd);
    return median(ns);
}

static void count_entry(void *context, const struct sl_entry *entry)
{
    uint64_t *count = context;
    *count += entry->kind == SL_RECORD_COMMITTED;
}

static void bench_recover(struct bench *bench)
{
    double ns[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t given = 0;
        bench_close(bench);
        uint64_t began = now_ns();
        bench_open(bench);
        sl_index_recover(bench->index, count_entry, &given);
        ns[round] = (double)(now_ns() - began);
        if (given != bench->key_count) {
            fail("recovery gave another number of keys");
        }
    }
    bench->figures.recover_ms = median(ns) / 1e6;
}

/* ---- all ---- */

static void bench_run(struct bench *bench)
{
    struct figures *figures = &bench->figures;
    struct sl_index_stats stats;
    uint64_t table_keys = bench->key_count + (bench->grouped ? bench->key_count / 4 : 0);
    bench->options = (struct sl_index_options){
        .shm_dir = bench->dir,
        /* Records of 320 bytes at most, the table, and the reserve of a full index. */
        .index_bytes_max = table_keys * 350 + 8 * SL_MIB,
        .key_count = SL_MAX(table_keys, BATCH)};
    bench_open(bench);
    const struct sl_index_view *view = sl_index_as_view(bench->index);
    sl_index_view_stats(view, &stats);
    figures->keys = bench->key_count;
    figures->empty_bytes = stats.mapped_bytes;
    bench_fill(bench);
    struct look_ups set = look_ups_make(bench);
    sl_index_view_stats(view, &stats);
    figures->mapped_bytes = stats.mapped_bytes;
    figures->bytes_a_key = (double)stats.mapped_bytes / (double)bench->key_count;
    figures->read_ns = bench_memory(bench, stats.mapped_bytes, false);
    figures->chase_ns = bench_memory(bench, stats.mapped_bytes, true);
    figures->exists_batch_ns = bench_batches(view, &set, false);
    figures->find_batch_ns = bench_batches(view, &set, true);
    figures->find_ns = bench_singles(view, &set);
    if (!bench->grouped) {
        bench_changes(bench, &set);
    }
    look_ups_free(&set);
    bench_recover(bench);
    bench_close(bench);
    (void)sl_shm_file_remove(bench->dir, "index", NULL);
    (void)sl_shm_file_remove(bench->dir, "arena.0", NULL);
}

static void print_text(const struct figures *at)
{
    printf("%" PRIu64 " keys: %.1f bytes a key (table and records %" PRIu64 " MiB; empty %" PRIu64
           " MiB)\n",
           at->keys, at->bytes_a_key, at->mapped_bytes / SL_MIB, at->empty_bytes / SL_MIB);
    const struct {
        const char *what;
        double ns, physical_ns;
    } rows[] = {
        {"random cache lines, independent", at->read_ns, 0},
        {"random cache lines, each after the other", at->chase_ns, 0},
        {"exists, batches of 256", at->exists_batch_ns, at->read_ns},
        {"find, batches of 256", at->find_batch_ns, at->read_ns},
        {"find, one by one", at->find_ns, at->chase_ns},
        {"insert (claim and commit)", at->insert_ns, at->chase_ns},
        {"remove", at->remove_ns, at->chase_ns},
    };
    for (size_t i = 0; i < SL_COUNT(rows); i++) {
        if (rows[i].ns == 0) {
            continue;
        }
        printf("  %-42s %8.1f ns, %7.2f M/s", rows[i].what, rows[i].ns, 1000.0 / rows[i].ns);
        if (rows[i].physical_ns != 0) {
            printf(", %4.1f such reads", rows[i].ns / rows[i].physical_ns);
        }
        printf("\n");
    }
    printf("  open and recover %.1f ms\n", at->recover_ms);
}

static void print_json(const struct figures *at, bool grouped)
{
    printf("{\"bench\": \"index\", \"keys\": %" PRIu64
           ", \"grouped\": %s, \"bytes_a_key\": %.1f, \"mapped_bytes\": %" PRIu64
           ", \"empty_bytes\": %" PRIu64 ", \"random_read_ns\": %.1f, \"dependent_read_ns\": %.1f, "
           "\"exists_batch_ns\": %.1f, \"find_batch_ns\": %.1f, \"find_ns\": %.1f, "
           "\"insert_ns\": %.1f, \"remove_ns\": %.1f, \"fill_ns\": %.1f, \"recover_ms\": %.1f, "
           "\"exists_batch_reads\": %.2f, \"find_reads\": %.2f, \"rounds\": %d}\n",
           at->keys, grouped ? "true" : "false", at->bytes_a_key, at->mapped_bytes, at->empty_bytes,
           at->read_ns, at->chase_ns, at->exists_batch_ns, at->find_batch_ns, at->find_ns,
           at->insert_ns, at->remove_ns, at->fill_ns, at->recover_ms,
           at->exists_batch_ns / at->read_ns, at->find_ns / at->chase_ns, ROUNDS);
}

int main(int argc, char **argv)
{
    uint64_t runs[RUNS_MAX] = {1000, 1000000};
    uint32_t run_count = 0;
    bool json = false;
    bool grouped = false;
    for (int i = 1; i < argc; i++) {
        uint64_t keys = strtoull(argv[i], NULL, 10);
        if (strcmp(argv[i], "--json") == 0) {
            json = true;
        } else if (strcmp(argv[i], "--grouped") == 0) {
            grouped = true;
        } else if (keys >= 1000 && keys <= 100000000 && keys % 4 == 0 && run_count < RUNS_MAX) {
            runs[run_count++] = keys;
        } else {
            fprintf(stderr, "usage: index_bench [KEYS (1000..100000000, in fours)]... [--grouped] "
                            "[--json]\n");
            return 2;
        }
    }
    run_count = run_count == 0 ? 2 : run_count;
    for (uint32_t i = 0; i < run_count; i++) {
        struct bench bench = {
            .dir = "/dev/shm/sluice-bench-XXXXXX", .key_count = runs[i], .grouped = grouped};
        if (mkdtemp(bench.dir) == NULL) {
            fail("no directory in /dev/shm");
        }
        bench_run(&bench);
        rmdir(bench.dir);
        if (json) {
            print_json(&bench.figures, grouped);
        } else {
            print_text(&bench.figures);
        }
        fflush(stdout);
    }
    return 0;
}
