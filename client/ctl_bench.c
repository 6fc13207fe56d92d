/* client/ctl_bench.c - measures get, put and exists, each beside its physical limit, in the same
 * run. */
#include "client/ctl.h"
#include "client/ctl_histogram.h"
#include "ipc/sl_arena.h"
#include "runtime/sl_clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#define KEY_BYTES      40u
#define KEYS_MAX       50000000u
#define BATCH_MAX      65536u
#define EXISTS_KEYS    100000u
#define CACHE_FALLBACK (32 * SL_MIB)
#define WALK_BYTES_MAX (2 * SL_GIB)
#define BULK_KEYS_MAX  4096u /* a call, when it is not measured: filling and removing */
#define BULK_BYTES_MAX (64 * SL_MIB)
#define CALL_NS        (10 * SL_NS_PER_S)

enum bench_kind { BENCH_GET, BENCH_PUT, BENCH_EXISTS };

struct bench {
    enum bench_kind kind;
    uint64_t size_bytes, batch, keys, measure_ns;
    uint64_t bulk; /* keys a call, when it is not measured */
    struct sl_client *client;
    char *key_texts;            /* keys x KEY_BYTES */
    unsigned char *value_bytes; /* what is put, and where gets go: walk_bytes of warm memory */
    uint64_t walk_bytes;
    struct sl_object_key *asked; /* of one call */
    struct sl_buffer *buffers;
    uint64_t *lengths;
    sl_err *codes;
    /* result */
    uint64_t ops, bytes, busy_ns;
    struct ctl_histogram calls_ns;
    const char *baseline_name;
    double baseline_ops, baseline_bytes;
};

/* Bytes of the last-level cache. */
static uint64_t cache_bytes(void)
{
    long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return bytes > 0 ? (uint64_t)bytes : CACHE_FALLBACK;
}

static unsigned char *warm_memory(uint64_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
                    -1, 0);
    if (at == MAP_FAILED) {
        return NULL;
    }
    memset(at, 0x5a, bytes); /* not the shared page of zeros */
    return at;
}

static void walk_end(unsigned char *at, uint64_t bytes)
{
    if (at != NULL) {
        (void)munmap(at, bytes);
    }
}

static char *key_text(const struct bench *bench, uint64_t number)
{
    return &bench->key_texts[number * KEY_BYTES];
}

/* Fills the arrays of one call with keys first .. first + count. */
static void call_prepare(struct bench *bench, uint64_t first, uint32_t count)
{
    uint64_t slots = SL_MAX(bench->walk_bytes / SL_MAX(bench->size_bytes, 1), 1);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t number = (first + i) % bench->keys;
        bench->asked[i] =
            (struct sl_object_key){.at = key_text(bench, number), .length = KEY_BYTES - 1};
        if (bench->value_bytes != NULL) {
            bench->buffers[i] =
                (struct sl_buffer){.at = bench->value_bytes + (number % slots) * bench->size_bytes,
                                   .length_bytes = bench->size_bytes};
        }
    }
}

static sl_err codes_check(const struct bench *bench, uint32_t count, const char *what,
                          struct sl_error *why)
{
    for (uint32_t i = 0; i < count; i++) {
        if (bench->codes[i] != SL_OK) {
            return sl_fail(why, bench->codes[i], "%s of key %u of %u: %s", what, i, count,
                           sl_err_text(bench->codes[i]));
        }
    }
    return SL_OK;
}

static sl_err call_make(struct bench *bench, enum bench_kind kind, uint32_t count,
                        struct sl_error *why)
{
    sl_err err;
    switch (kind) {
    case BENCH_GET:
        err = sl_get_batch(bench->client, bench->asked, bench->buffers, count, bench->lengths,
                           bench->codes, CALL_NS, why);
        break;
    case BENCH_PUT:
        err = sl_put_batch(bench->client, bench->asked, bench->buffers, count, bench->codes,
                           CALL_NS, why);
        break;
    default:
        err = sl_exists_batch(bench->client, bench->asked, count, bench->codes);
        break;
    }
    return err;
}

/* All keys, in calls of `batch`. timed: counts. Stops at until_ns. */
static sl_err sweep(struct bench *bench, enum bench_kind kind, uint32_t batch, bool timed,
                    uint64_t until_ns, struct sl_error *why)
{
    for (uint64_t first = 0; first < bench->keys; first += batch) {
        uint32_t count = (uint32_t)SL_MIN(batch, bench->keys - first);
        call_prepare(bench, first, count);
        uint64_t started_ns = sl_clock_monotonic_ns();
        sl_err err = call_make(bench, kind, count, why);
        uint64_t ended_ns = sl_clock_monotonic_ns();
        if (err == SL_OK) {
            err = codes_check(bench, count,
                              kind == BENCH_PUT   ? "put"
                              : kind == BENCH_GET ? "get"
                                                  : "exists",
                              why);
        }
        if (err != SL_OK) {
            return err;
        }
        if (timed) {
            bench->ops += count;
            bench->bytes += kind == BENCH_EXISTS ? 0 : count * bench->size_bytes;
            bench->busy_ns += ended_ns - started_ns;
            ctl_histogram_add(&bench->calls_ns, ended_ns - started_ns);
        }
        if (ended_ns >= until_ns) {
            break;
        }
    }
    return SL_OK;
}

static sl_err keys_remove(struct bench *bench, struct sl_error *why)
{
    sl_err err = SL_OK;
    for (uint64_t first = 0; err == SL_OK && first < bench->keys; first += bench->bulk) {
        uint32_t count = (uint32_t)SL_MIN(bench->bulk, bench->keys - first);
        call_prepare(bench, first, count);
        err = sl_remove_batch(bench->client, bench->asked, count, bench->codes, CALL_NS, why);
    }
    return err;
}

static sl_err measure(struct bench *bench, struct sl_error *why)
{
    sl_err err = SL_OK;
    if (bench->kind != BENCH_PUT) {
        err = sweep(bench, BENCH_PUT, (uint32_t)bench->bulk, false, SL_NEVER_NS, why);
    }
    /* Once around before the clock counts: pages are mapped, caches are in their usual state. */
    uint64_t warm_until_ns = sl_clock_monotonic_ns() + bench->measure_ns / 4;
    if (err == SL_OK) {
        err = sweep(bench, bench->kind, (uint32_t)bench->batch, false, warm_until_ns, why);
    }
    uint64_t until_ns = sl_clock_monotonic_ns() + bench->measure_ns;
    while (err == SL_OK && sl_clock_monotonic_ns() < until_ns) {
        if (bench->kind == BENCH_PUT) {
            err = keys_remove(bench, why);
        }
        if (err == SL_OK) {
            err = sweep(bench, bench->kind, (uint32_t)bench->batch, true, until_ns, why);
        }
    }
    return err;
}

/* ---- baselines ---- */

/* memcpy of the same size, both sides walking over as much memory as the benchmark does. */
static sl_err baseline_memcpy(struct bench *bench, struct sl_error *why)
{
    unsigned char *from = warm_memory(bench->walk_bytes);
    if (from == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "baseline: %ju bytes", (uintmax_t)bench->walk_bytes);
    }
    uint64_t slots = SL_MAX(bench->walk_bytes / bench->size_bytes, 1);
    uint64_t copies = 0;
    uint64_t started_ns = sl_clock_monotonic_ns();
    uint64_t ended_ns = started_ns;
    while (ended_ns - started_ns < bench->measure_ns / 2) {
        for (uint32_t i = 0; i < bench->batch; i++, copies++) {
            uint64_t at = (copies % slots) * bench->size_bytes;
            memcpy(bench->value_bytes + at, from + at, bench->size_bytes);
            __asm__ volatile("" ::: "memory"); /* the copy is made, though nobody reads it */
        }
        ended_ns = sl_clock_monotonic_ns();
    }
    double seconds = (double)(ended_ns - started_ns) / 1e9;
    bench->baseline_name = "memcpy between faulted mappings";
    bench->baseline_ops += (double)copies / seconds;
    bench->baseline_bytes += (double)copies * (double)bench->size_bytes / seconds;
    walk_end(from, bench->walk_bytes);
    return SL_OK;
}

/* The least that a look-up does: hash the key, probe a table of 64-bit hashes of the same number of
 * keys. */
static sl_err baseline_probe(struct bench *bench, struct sl_error *why)
{
    uint64_t room = 1024;
    while (room < bench->keys * 2) {
        room *= 2;
    }
    uint64_t *table = calloc(room, sizeof *table);
    if (table == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "baseline: %ju slots", (uintmax_t)room);
    }
    for (uint64_t i = 0; i < bench->keys; i++) {
        uint64_t hash = XXH3_64bits(key_text(bench, i), KEY_BYTES - 1) | 1;
        uint64_t at = hash & (room - 1);
        while (table[at] != 0 && table[at] != hash) {
            at = (at + 1) & (room - 1);
        }
        table[at] = hash;
    }
    uint64_t probes = 0;
    uint64_t found = 0;
    uint64_t started_ns = sl_clock_monotonic_ns();
    uint64_t ended_ns = started_ns;
    while (ended_ns - started_ns < bench->measure_ns / 2) {
        for (uint32_t i = 0; i < 4096; i++, probes++) {
            uint64_t hash = XXH3_64bits(key_text(bench, probes % bench->keys), KEY_BYTES - 1) | 1;
            uint64_t at = hash & (room - 1);
            while (table[at] != 0 && table[at] != hash) {
                at = (at + 1) & (room - 1);
            }
            found += table[at] == hash;
        }
        ended_ns = sl_clock_monotonic_ns();
    }
    free(table);
    bench->baseline_name = "bare hash-table probe";
    bench->baseline_ops += (double)probes / ((double)(ended_ns - started_ns) / 1e9);
    return found == probes ? SL_OK : sl_fail(why, SL_ERR_INTERNAL, "baseline: a key was not found");
}

static sl_err baseline(struct bench *bench, struct sl_error *why)
{
    return bench->kind == BENCH_EXISTS ? baseline_probe(bench, why) : baseline_memcpy(bench, why);
}

/* ---- set-up ---- */

static sl_err sizes_choose(const struct ctl *ctl, struct bench *bench, struct sl_error *why)
{
    struct sl_arena *arena = NULL;
    sl_err err = sl_arena_attach(ctl->paths.shm_dir, 0, false, &arena, why);
    if (err != SL_OK) {
        return err;
    }
    /* Half of the arena: nothing is evicted while we measure. */
    uint64_t fit = SL_MAX(sl_arena_data_bytes(arena) / 2 / sl_extent_space(bench->size_bytes), 1);
    sl_arena_close(&arena);
    uint64_t walk = SL_MIN(4 * cache_bytes(), WALK_BYTES_MAX);
    if (bench->keys == 0) {
        bench->keys = bench->kind == BENCH_EXISTS ? EXISTS_KEYS
                                                  : SL_MAX(walk / bench->size_bytes, bench->batch);
        bench->keys = SL_MIN(bench->keys, fit);
    }
    if (bench->keys > KEYS_MAX || bench->keys > fit * 2) {
        return sl_fail(why, SL_ERR_INVALID, "%ju keys of %ju bytes do not fit the node's memory",
                       (uintmax_t)bench->keys, (uintmax_t)bench->size_bytes);
    }
    bench->batch = SL_MIN(bench->batch, bench->keys);
    bench->bulk =
        SL_MIN(SL_MAX(BULK_BYTES_MAX / bench->size_bytes, 1), SL_MIN(BULK_KEYS_MAX, bench->keys));
    bench->walk_bytes =
        SL_MAX(SL_MIN(bench->keys * bench->size_bytes, WALK_BYTES_MAX), bench->size_bytes);
    return SL_OK;
}

static sl_err arrays_make(struct bench *bench, struct sl_error *why)
{
    uint64_t calls = SL_MAX(bench->batch, bench->bulk);
    bench->key_texts = malloc(bench->keys * KEY_BYTES);
    bench->asked = calloc(calls, sizeof *bench->asked);
    bench->buffers = calloc(calls, sizeof *bench->buffers);
    bench->lengths = calloc(calls, sizeof *bench->lengths);
    bench->codes = calloc(calls, sizeof *bench->codes);
    bench->value_bytes = warm_memory(bench->walk_bytes);
    if (bench->key_texts == NULL || bench->asked == NULL || bench->buffers == NULL ||
        bench->lengths == NULL || bench->codes == NULL || bench->value_bytes == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "bench of %ju keys", (uintmax_t)bench->keys);
    }
    for (uint64_t i = 0; i < bench->keys; i++) {
        (void)snprintf(key_text(bench, i), KEY_BYTES, "bench/%010u/%022ju", (uint32_t)getpid(),
                       (uintmax_t)i);
    }
    return SL_OK;
}

static void bench_free(struct bench *bench)
{
    walk_end(bench->value_bytes, bench->walk_bytes);
    free(bench->key_texts);
    free(bench->asked);
    free(bench->buffers);
    free(bench->lengths);
    free(bench->codes);
    sl_client_close(&bench->client);
}

static void bench_print(const struct ctl *ctl, const struct bench *bench)
{
    const char *name = ctl->words[0];
    double seconds = SL_MAX((double)bench->busy_ns / 1e9, 1e-9);
    double ops_per_s = (double)bench->ops / seconds;
    double bytes_per_s = (double)bench->bytes / seconds;
    /* Each half of the baseline was measured for itself, before and after. */
    double baseline_ops = bench->baseline_ops / 2;
    double baseline_bytes = bench->baseline_bytes / 2;
    double ratio =
        bench->kind == BENCH_EXISTS ? ops_per_s / baseline_ops : bytes_per_s / baseline_bytes;
    double p50_us = (double)ctl_histogram_quantile(&bench->calls_ns, 0.5) / 1e3;
    double p99_us = (double)ctl_histogram_quantile(&bench->calls_ns, 0.99) / 1e3;
    if (ctl->json) {
        ctl_print_json(json_pack(
            "{s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:{s:s, s:f, s:f}, s:f}", "bench", name,
            "size_bytes", (json_int_t)bench->size_bytes, "batch", (json_int_t)bench->batch, "keys",
            (json_int_t)bench->keys, "ops_per_s", ops_per_s, "bytes_per_s", bytes_per_s, "p50_us",
            p50_us, "p99_us", p99_us, "baseline", "name", bench->baseline_name, "ops_per_s",
            baseline_ops, "bytes_per_s", baseline_bytes, "ratio", ratio));
        return;
    }
    char size[32];
    (void)printf("%s of %s, %ju keys, %ju a call\n", name, ctl_size_text(bench->size_bytes, size),
                 (uintmax_t)bench->keys, (uintmax_t)bench->batch);
    (void)printf("  %-32s %14.0f keys/s %10.0f MB/s   a call: p50 %.2f us, p99 %.2f us\n", name,
                 ops_per_s, bytes_per_s / 1e6, p50_us, p99_us);
    (void)printf("  %-32s %14.0f /s     %10.0f MB/s\n  ratio %.3f\n", bench->baseline_name,
                 baseline_ops, baseline_bytes / 1e6, ratio);
}

static int bench_run(struct ctl *ctl, struct bench *bench)
{
    struct sl_error why = {0};
    sl_err err = ctl_open(ctl, false, &bench->client, &why);
    if (err == SL_OK) {
        err = sizes_choose(ctl, bench, &why);
    }
    if (err == SL_OK) {
        err = arrays_make(bench, &why);
    }
    if (err == SL_OK) {
        err = baseline(bench, &why);
    }
    if (err == SL_OK) {
        err = measure(bench, &why);
        struct sl_error ignored;
        (void)keys_remove(bench, &ignored);
    }
    if (err == SL_OK) {
        err = baseline(bench, &why);
    }
    if (err != SL_OK) {
        return ctl_failed(ctl, &why);
    }
    bench_print(ctl, bench);
    return CTL_FINE;
}

int ctl_bench(struct ctl *ctl, int argc, char **argv)
{
    int code;
    struct bench bench = {.size_bytes = 256 * SL_KIB, .measure_ns = 2 * SL_NS_PER_S};
    const char *seconds = NULL;
    uint64_t size = 0;
    const struct ctl_option options[] = {{.name = "size", .size = &size},
                                         {.name = "batch", .count = &bench.batch},
                                         {.name = "keys", .count = &bench.keys},
                                         {.name = "seconds", .text = &seconds}};
    static const char *const kinds[] = {"get", "put", "exists"};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    size_t kind = 0;
    while (ctl->word_count == 1 && kind < SL_COUNT(kinds) &&
           strcmp(ctl->words[0], kinds[kind]) != 0) {
        kind++;
    }
    if (ctl->word_count != 1 || kind == SL_COUNT(kinds)) {
        return ctl_wrong(ctl, "one of get, put, exists");
    }
    bench.kind = (enum bench_kind)kind;
    bench.size_bytes = size != 0 ? size : bench.kind == BENCH_EXISTS ? 64 : bench.size_bytes;
    bench.batch = bench.batch != 0 ? bench.batch : bench.kind == BENCH_EXISTS ? 256 : 1;
    char *end = NULL;
    double asked_s = seconds == NULL ? 2.0 : strtod(seconds, &end);
    if (seconds != NULL && (end == seconds || *end != '\0' || !(asked_s > 0) || asked_s > 3600)) {
        return ctl_wrong(ctl, "--seconds '%s' is not a number above 0, up to 3600", seconds);
    }
    bench.measure_ns = (uint64_t)(asked_s * 1e9);
    if (bench.batch > BATCH_MAX || bench.size_bytes > SL_VALUE_BYTES_MAX) {
        return ctl_wrong(ctl, "--batch is at most %u, --size at most 1GiB", BATCH_MAX);
    }
    code = bench_run(ctl, &bench);
    bench_free(&bench);
    return code;
}
