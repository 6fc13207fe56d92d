/* client/tools/bench/bench.c - sluicectl bench: measures get, put and exists, each next to its
 * physical limit in the same run. */
#include "client/tools/bench/bench.h"
#include "client/tools/bench/commands.h"
#include "client/tools/bench/kinds.h"
#include "ipc/shm/sl_arena.h"
#include "ipc/shm/sl_index.h"
#include "runtime/base/sl_parse.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEYS_MAX        50000000u
#define EXISTS_KEYS     100000u
#define TABLE_KEYS      1000000u /* of exists in `bench all`, if the index has room */
#define INDEX_KEY_BYTES 400u     /* index bytes for a key of the bench, at most */
#define EXISTS_BYTES    64u
#define SIZE_STANDARD   (256 * SL_KIB)
#define BULK_KEYS_MAX   4096u /* in a call that is not measured: filling and removing */
#define BULK_BYTES      (64 * SL_MIB)
#define SECONDS_MAX     3600
#define PIECES_MAX      4096u

/* ---- set-up ---- */

static sl_err sizes_choose(const struct ctl *ctl, struct bench *bench, struct sl_error *why)
{
    struct sl_arena *arena = NULL;
    sl_err err = sl_arena_attach(ctl->paths.shm_dir, 0, false, &arena, why);
    if (err != SL_OK) {
        return err;
    }
    uint64_t capacity = SL_MAX(sl_arena_data_bytes(arena) / sl_extent_space(bench->size_bytes), 1);
    sl_arena_close(&arena);
    /* Covers more than four times the cache for any size of a value. */
    uint64_t walk_keys = 4 * bench->cache_bytes / bench->size_bytes + 1;
    bench->evicting = bench->kind == BENCH_PUT && bench->keys == 0;
    if (bench->evicting) {
        bench->keys = capacity;
    } else if (bench->keys == 0) {
        /* Leaves room, so that nothing is evicted while it measures. */
        uint64_t keys = bench->kind == BENCH_EXISTS ? EXISTS_KEYS : walk_keys;
        bench->keys = SL_MAX(SL_MIN(keys, capacity / 4 * 3), 1);
    }
    if (bench->keys > KEYS_MAX || bench->keys > capacity) {
        return sl_fail(why, SL_ERR_INVALID,
                       "%" PRIu64 " keys of %" PRIu64
                       " bytes do not fit the node's memory, which has room for %" PRIu64,
                       bench->keys, bench->size_bytes, capacity);
    }
    bench->batch = SL_MIN(bench->batch, bench->keys);
    bench->bulk =
        SL_MIN(SL_MAX(BULK_BYTES / bench->size_bytes, 1), SL_MIN(BULK_KEYS_MAX, bench->keys));
    uint64_t walked = bench->kind == BENCH_EXISTS ? bench->bulk : SL_MIN(bench->keys, walk_keys);
    bench->walk_bytes = walked * bench->size_bytes;
    return SL_OK;
}

static sl_err arrays_make(struct bench *bench, struct sl_error *why)
{
    uint64_t calls = SL_MAX(bench->batch, bench->bulk);
    uint64_t texts = bench->kind == BENCH_EXISTS ? bench->keys : calls;
    bench->key_texts = malloc(texts * BENCH_KEY_BYTES);
    bench->asked = calloc(calls, sizeof *bench->asked);
    bench->buffers = calloc(calls, sizeof *bench->buffers);
    bench->lengths = calloc(calls, sizeof *bench->lengths);
    bench->codes = calloc(calls, sizeof *bench->codes);
    bench->items = bench->pieces == 0 ? NULL : calloc(calls, sizeof *bench->items);
    bench->piece_room =
        bench->pieces == 0 ? NULL : calloc(calls * bench->pieces, sizeof *bench->piece_room);
    bool all = (bench->pieces == 0 || (bench->items != NULL && bench->piece_room != NULL)) &&
               bench->key_texts != NULL && bench->asked != NULL && bench->buffers != NULL &&
               bench->lengths != NULL && bench->codes != NULL;
    for (uint32_t i = 0; i < BENCH_SIDES; i++) {
        bench->rates[i] = calloc(BENCH_ROUNDS_MAX, sizeof *bench->rates[i]);
        all = all && bench->rates[i] != NULL;
    }
    if (!all) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "bench of %" PRIu64 " keys", bench->keys);
    }
    for (uint64_t i = 0; bench->kind == BENCH_EXISTS && i < bench->keys; i++) {
        bench_key_write(i, &bench->key_texts[i * BENCH_KEY_BYTES]);
    }
    return bench_limit_open(bench, why);
}

static void bench_free(struct bench *bench)
{
    bench_limit_close(bench);
    for (uint32_t i = 0; i < BENCH_SIDES; i++) {
        free(bench->rates[i]);
    }
    free(bench->key_texts);
    free(bench->asked);
    free(bench->items);
    free(bench->piece_room);
    free(bench->buffers);
    free(bench->lengths);
    free(bench->codes);
    sl_client_close(&bench->client);
}

/* ---- result ---- */

/* Median of a side's rates, each divided by the other side's rate in the same round (BENCH_SIDES:
 * not divided). */
static double median(const struct bench *bench, enum bench_side side, enum bench_side divisor)
{
    return bench_median(bench->rates[side], divisor != BENCH_SIDES ? bench->rates[divisor] : NULL,
                        bench->round_count);
}

struct result { /* of one side */
    double ops_per_s, bytes_per_s;
    double ratio;      /* rate of the operation to this, by rounds */
    double call_ratio; /* the same by single calls */
    double p50_us, p99_us;
};

static struct result result_of(const struct bench *bench, enum bench_side side)
{
    double bytes = bench->kind == BENCH_EXISTS ? 0 : (double)bench->size_bytes;
    double ops_per_s = median(bench, side, BENCH_SIDES);
    double op_ns = (double)ctl_histogram_quantile(&bench->calls_ns[BENCH_SIDE_OP], 0.5);
    double p50_ns = (double)ctl_histogram_quantile(&bench->calls_ns[side], 0.5);
    double scale = /* a turn of the probe is not a batch */
        bench->kind == BENCH_EXISTS && side != BENCH_SIDE_OP ? (double)bench->batch / BENCH_PROBES
                                                             : 1;
    return (struct result){
        .ops_per_s = ops_per_s,
        .bytes_per_s = ops_per_s * bytes,
        .ratio = median(bench, BENCH_SIDE_OP, side),
        .call_ratio = p50_ns * scale / SL_MAX(op_ns, 1),
        .p50_us = p50_ns / 1e3,
        .p99_us = (double)ctl_histogram_quantile(&bench->calls_ns[side], 0.99) / 1e3,
    };
}

static const char *state_of(const struct bench *bench)
{
    if (bench->kind != BENCH_PUT) {
        return "all keys in memory";
    }
    return bench->evicting ? "memory full, the oldest are evicted"
                           : "memory free, keys are removed";
}

static json_t *row_json(const char *name, const struct bench *bench)
{
    struct result op = result_of(bench, BENCH_SIDE_OP);
    struct result base = result_of(bench, BENCH_SIDE_BASELINE);
    json_t *row = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:{s:s, s:f, s:f}, s:f, s:f, s:I, s:I, "
        "s:I}",
        "bench", name, "state", state_of(bench), "size_bytes", (json_int_t)bench->size_bytes,
        "batch", (json_int_t)bench->batch, "pieces", (json_int_t)SL_MAX(bench->pieces, 1), "keys",
        (json_int_t)bench->keys, "ops_per_s", op.ops_per_s, "bytes_per_s", op.bytes_per_s, "p50_us",
        op.p50_us, "p99_us", op.p99_us, "baseline", "name", bench_limit_name(bench), "ops_per_s",
        base.ops_per_s, "bytes_per_s", base.bytes_per_s, "ratio", base.ratio, "call_ratio",
        base.call_ratio, "llc_bytes", (json_int_t)bench->cache_bytes, "walk_bytes",
        (json_int_t)bench->walk_bytes, "rounds", (json_int_t)bench->round_count);
    if (bench_copy_name(bench) != NULL) {
        struct result copy = result_of(bench, BENCH_SIDE_COPY);
        (void)json_object_set_new(row, "copy",
                                  json_pack("{s:s, s:f, s:f, s:f, s:f}", "name",
                                            bench_copy_name(bench), "ops_per_s", copy.ops_per_s,
                                            "bytes_per_s", copy.bytes_per_s, "ratio", copy.ratio,
                                            "call_ratio", copy.call_ratio));
    }
    return row;
}

/* Runs a bench, frees it and gives its row. NULL: *code is the exit code. */
static json_t *bench_run(const struct ctl *ctl, struct bench *bench, const char *name, int *code)
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
        err = bench_measure(bench, &why);
    }
    json_t *row = err == SL_OK ? row_json(name, bench) : NULL;
    *code = err == SL_OK ? CTL_SUCCESS : ctl_failed(ctl, &why);
    bench_free(bench);
    return row;
}

/* ---- all in one run ---- */

static const char *const kind_names[] = {"get", "put", "exists"};

/* A million, or as many as the node's index has room for. */
static uint64_t table_keys(const struct ctl *ctl)
{
    struct sl_index_view *view = NULL;
    struct sl_index_stats stats = {0};
    if (sl_index_view_open(ctl->paths.shm_dir, &view, NULL) == SL_OK) {
        sl_index_view_stats(view, &stats);
        sl_index_view_close(&view);
    }
    return SL_MAX(SL_MIN(TABLE_KEYS, stats.record_bytes_max / INDEX_KEY_BYTES), 1);
}

void bench_progress(const struct ctl *ctl, uint64_t done, uint64_t total)
{
    if (!ctl->json && isatty(STDERR_FILENO)) {
        ctl_progress_bar(done, total);
        (void)fputs(done == total ? "\n" : "", stderr);
    }
}

static int bench_all(struct ctl *ctl, uint64_t measure_ns)
{
    static const struct {
        enum bench_kind kind;
        uint64_t size_bytes, batch;
    } rows[] = {
        {BENCH_EXISTS, EXISTS_BYTES, 256}, {BENCH_GET, 4 * SL_KIB, 1},
        {BENCH_GET, 256 * SL_KIB, 1},      {BENCH_GET, SL_MIB, 1},
        {BENCH_GET, 4 * SL_MIB, 1},        {BENCH_PUT, 4 * SL_KIB, 1},
        {BENCH_PUT, 256 * SL_KIB, 1},      {BENCH_PUT, SL_MIB, 1},
        {BENCH_PUT, 4 * SL_MIB, 1},
    };
    int code = CTL_SUCCESS;
    json_t *answer = json_array();
    for (size_t i = 0; i < SL_COUNT(rows) && code == CTL_SUCCESS; i++) {
        struct bench bench = {.cache_bytes = bench_cache_bytes(),
                              .kind = rows[i].kind,
                              .size_bytes = rows[i].size_bytes,
                              .batch = rows[i].batch,
                              .keys = rows[i].kind == BENCH_EXISTS ? table_keys(ctl) : 0,
                              .measure_ns = measure_ns};
        (void)json_array_append_new(answer,
                                    bench_run(ctl, &bench, kind_names[rows[i].kind], &code));
        bench_progress(ctl, i + 1, SL_COUNT(rows));
    }
    if (code == CTL_SUCCESS) {
        return ctl_answer(ctl, answer);
    }
    json_decref(answer);
    return code;
}

/* ---- arguments ---- */

static bool seconds_read(const char *text, uint64_t *ns)
{
    double seconds = 2.0;
    if (text != NULL &&
        (!sl_parse_real(text, &seconds) || !(seconds > 0) || seconds > SECONDS_MAX)) {
        return false;
    }
    *ns = (uint64_t)(seconds * 1e9);
    return true;
}

static int bench_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    struct bench bench = {.cache_bytes = bench_cache_bytes()};
    const char *seconds = NULL;
    struct bench_gpu_asked gpu = {.total_bytes = 0};
    struct bench_engine_asked engine = {.ranks = 0};
    const struct ctl_option options[] = {{.name = "size", .size = &bench.size_bytes},
                                         {.name = "total", .size = &gpu.total_bytes},
                                         {.name = "batch", .count = &bench.batch},
                                         {.name = "keys", .count = &bench.keys},
                                         {.name = "pieces", .count = &bench.pieces},
                                         {.name = "seconds", .text = &seconds},
                                         {.name = "sizes", .text = &gpu.sizes},
                                         {.name = "counts", .text = &gpu.counts},
                                         {.name = "ways", .text = &gpu.ways},
                                         {.name = "values", .text = &gpu.values},
                                         {.name = "host", .text = &gpu.memory},
                                         {.name = "ranks", .count = &engine.ranks},
                                         {.name = "blocks", .count = &engine.blocks},
                                         {.name = "part-bytes", .size = &engine.part_bytes},
                                         {.name = "layers", .count = &engine.layers},
                                         {.name = "plain", .flag = &engine.plain},
                                         {.name = "ops", .count = &engine.ops}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    const char *word = ctl->words[0];
    bool all = strcmp(word, "all") == 0;
    if (strcmp(word, "disk") == 0) {
        return ctl_bench_disk(ctl, bench.size_bytes, gpu.total_bytes);
    }
    if (!seconds_read(seconds, &bench.measure_ns)) {
        return ctl_usage_error(ctl, "--seconds '%s' is not a number above 0, up to %d", seconds,
                               SECONDS_MAX);
    }
    if (strcmp(word, "gpu") == 0) {
        gpu.limit_ns = seconds == NULL ? 0 : bench.measure_ns;
        return ctl_bench_gpu(ctl, &gpu);
    }
    if (strcmp(word, "engine") == 0) {
        engine.measure_ns = bench.measure_ns;
        return ctl_bench_engine(ctl, &engine);
    }
    size_t kind = 0;
    while (kind < SL_COUNT(kind_names) && strcmp(word, kind_names[kind]) != 0) {
        kind++;
    }
    if (kind == SL_COUNT(kind_names) && !all) {
        return ctl_usage_error(ctl, "expected one of all, get, put, exists, engine, disk, gpu");
    }
    if (all && (bench.size_bytes != 0 || bench.batch != 0 || bench.keys != 0)) {
        return ctl_usage_error(ctl, "--size, --batch and --keys need one of get, put, exists");
    }
    if (bench.pieces != 0 && (kind > BENCH_PUT || bench.pieces > PIECES_MAX)) {
        return ctl_usage_error(ctl, "--pieces is for get and put, and at most %u", PIECES_MAX);
    }
    if (all) {
        return bench_all(ctl, bench.measure_ns);
    }
    bench.kind = (enum bench_kind)kind;
    bool exists = bench.kind == BENCH_EXISTS;
    bench.size_bytes = bench.size_bytes != 0 ? bench.size_bytes
                       : exists              ? EXISTS_BYTES
                                             : SIZE_STANDARD;
    bench.batch = bench.batch != 0 ? bench.batch : exists ? 256 : 1;
    if (bench.pieces > bench.size_bytes) {
        return ctl_usage_error(ctl, "--pieces: a value has %" PRIu64 " bytes", bench.size_bytes);
    }
    if (bench.batch > BENCH_BATCH_MAX || bench.size_bytes > SL_VALUE_BYTES_MAX) {
        return ctl_usage_error(ctl, "--batch is at most %u, --size at most 1GiB", BENCH_BATCH_MAX);
    }
    json_t *row = bench_run(ctl, &bench, word, &code);
    return row != NULL ? ctl_answer(ctl, row) : code;
}

/* clang-format off */
const struct ctl_command ctl_bench = {
    .name = "bench",
    .registers = true,
    .summary = "measure performance next to its physical limit",
    .help = "bench all [--seconds S]\n"
            "       sluicectl bench get|put|exists [--size N] [--batch N] [--keys N] [--pieces N]\n"
            "                                      [--seconds S]\n"
            "       sluicectl bench engine [--ranks N] [--blocks N] [--part-bytes N] [--layers N]\n"
            "                              [--plain] [--ops N] [--seconds S]\n"
            "       sluicectl bench disk [--size N] [--total SIZE]\n"
            "       sluicectl bench gpu [--rank GPU] [--total SIZE] [--seconds S] [--sizes N,N] [--counts N,N]\n"
            "                           [--ways W,W] [--values V,V] [--host H,H] [--swap-multiprocessors N]\n"
            "\n"
            "Measures the client library, and in the same run, in turns of 5 ms, its limits: memcpy of the\n"
            "same sizes between faulted mappings and the fastest copy routine, or a bare hash-table probe\n"
            "(exists). Both sides walk over more than four times the last-level cache if the node's\n"
            "memory allows it (walk_bytes, llc_bytes). Rates are medians of the turns, ratios medians of\n"
            "the ratios of neighbouring turns; p50 and p99 are times of one call, which is a batch.\n"
            "\n"
            "  all     a table of exists with a million keys, and get and put of 4KiB to 4MiB. EVICTS WHAT\n"
            "          THE NODE HOLDS\n"
            "  get     copies values in memory into the caller's buffers\n"
            "  put     stores new keys, with the digest. Without --keys memory is full, as in a cache: each\n"
            "          put evicts the oldest object. EVICTS WHAT THE NODE HOLDS. With --keys N memory is\n"
            "          free; after N puts the keys are removed, which is not timed\n"
            "  exists  looks keys up in the shared index\n"
            "  engine  runs ops of an engine, whose memory it creates, one after the other: stores and loads\n"
            "          of blocks by coordinator and swappers, loads of missing blocks (miss), and lookups of\n"
            "          present blocks in shared memory (look). They are compared with memcpy of one rank's\n"
            "          bytes of an op, or with a bare hash-table probe for each block: a ratio of 1 means\n"
            "          that every rank is as fast as a single memcpy. CPU time is that of all actors and this\n"
            "          process. Stored blocks take up to 5/8 of the node's memory; removing them is not timed\n"
            "  disk    stores objects through a tierer and loads them again, next to fio on the same disk\n"
            "  gpu     moves pieces of values between a GPU (--rank N: the Nth) and host memory: in slices\n"
            "          as a swapper does, and by every way, next to one pinned copy of the same bytes and\n"
            "          to one copy for each piece; also with digests. It stores which way is fastest in\n"
            "          which case for the swapper. Values have 20 pieces; --values layers: one layer after\n"
            "          the other. --swap-multiprocessors N: of a kernel (default 8, 0: all). Needs no node\n"
            "\n"
            "The bench removes its keys at the end.\n"
            "\n"
            "  --size N          bytes of a value (default 256KiB; exists: 64)\n"
            "  --batch N         keys in a call (default 1; exists: 256)\n"
            "  --keys N          distinct keys (default: get 4x the last-level cache, exists 100000,\n"
            "                    bounded by memory; a million keys need --index-memory 400MiB of the node)\n"
            "  --pieces N        get, put: split each value into N pieces of memory (default: one buffer)\n"
            "  --seconds S       time to measure (default 2); gpu: no row begins later (default 90)\n"
            "  --ranks N         engine: ranks, each with a swapper of the node (default 1)\n"
            "  --blocks N        engine: blocks in an op (default 64)\n"
            "  --part-bytes N    engine: bytes of a block on one rank (default 1MiB)\n"
            "  --layers N        engine: number of pieces of these bytes (default 1)\n"
            "  --plain           engine: use private memory that swappers cannot map, as the tensors of an\n"
            "                    engine on CPUs, instead of shared memory\n"
            "  --ops N           engine: run at least N ops of each kind (default: as --seconds allows)\n"
            "  --total SIZE      disk: bytes to store; gpu: memory on each side, larger rows are skipped\n"
            "                    (default 7GiB)\n"
            "  --sizes N,N       gpu: sizes of a piece (default 4KiB,16KiB,28KiB,64KiB,256KiB)\n"
            "  --counts N,N      gpu: numbers of pieces, multiples of 20 (default 1000,10000,100000)\n"
            "  --ways W,W        gpu: copies,batch,staged,mapped (default all)\n"
            "  --values V,V      gpu: scattered,adjacent,layers (default all, in this order)\n"
            "  --host H,H        gpu: tmpfs (pinned in slices, as the arena), pinned (default both)"
            CTL_HELP_COMMON,
    .run = bench_command,
    .words_min = 1,
    .words_max = 1,
    .words = "expected one of all, get, put, exists, engine, disk, gpu",
};
/* clang-format on */
