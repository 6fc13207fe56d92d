/* client/tools/bench/gpu.c - sluicectl bench gpu: copies pieces of values to a GPU and back, in
 * slices as a swapper does and by every way, next to one pinned copy of the same bytes and to one
 * copy for each piece. Needs no node. */
#include "client/tools/bench/kinds.h"
#include "cuda/sl_gpu_bench.h"
#include "runtime/base/sl_parse.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TOTAL_STANDARD  (7 * SL_GIB) /* 100,000 pieces of 64 KiB */
#define LIMIT_STANDARD  (90 * SL_NS_PER_S)
#define ROUNDS          5u
#define SIZES_STANDARD  "4KiB,16KiB,28KiB,64KiB,256KiB"
#define COUNTS_STANDARD "1000,10000,100000"

struct gpu_bench {
    const struct ctl *ctl;
    json_t *rows;
    double worst; /* share of the limit */
    uint64_t cap; /* multiprocessors of a kernel, 0: all */
    uint32_t printed;
};

static double share(double part, double of)
{
    return of > 0 ? part / of : 0;
}

/* Cost of digests. Out: share of the rate that is lost. In: time of the digest pass as a share of
 * the load's time. */
static double digest_cost(const struct sl_gpu_bench_row *row)
{
    return row->to_host ? 1 - share(row->digested, row->move) : share(row->move, row->digested);
}

static void row_print(void *context, const struct sl_gpu_bench_row *row)
{
    struct gpu_bench *bench = context;
    double of_limit = share(row->move, row->whole);
    bench->worst = bench->worst == 0 ? of_limit : SL_MIN(bench->worst, of_limit);
    if (bench->ctl->json) {
        json_t *ways = json_object();
        for (unsigned way = 0; way < SL_WAY_COUNT; way++) {
            (void)json_object_set_new(ways, sl_way_name((enum sl_way)way),
                                      json_real(row->ways[way]));
        }
        (void)json_array_append_new(
            bench->rows,
            json_pack(
                "{s:s, s:s, s:I, s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:s, s:o}",
                "host", sl_gpu_memory_name(row->memory), "values", sl_gpu_values_name(row->values),
                "cap", (json_int_t)bench->cap, "direction", row->to_host ? "out" : "in", "drains",
                (json_int_t)row->drains, "piece_bytes", (json_int_t)row->piece_bytes, "pieces",
                (json_int_t)row->pieces, "gb_per_s", row->move, "limit_gb_per_s", row->whole,
                "of_limit", of_limit, "single_gb_per_s", row->single, "times_single",
                share(row->move, row->single), "digested_gb_per_s", row->digested, "digest_cost",
                digest_cost(row), "chosen", sl_way_name(row->chosen), "ways", ways));
        return;
    }
    if (bench->printed++ == 0) {
        (void)printf("%-6s %-9s %-3s %6s %7s %8s %8s %7s %8s %7s %8s %6s  %-7s %7s %7s %7s %7s\n",
                     "HOST", "VALUES", "", "KIB", "PIECES", "GB/S", "LIMIT", "RATIO", "SINGLE",
                     "TIMES", "DIGESTED", "COST", "CHOSEN", "copies", "batch", "staged", "mapped");
    }
    (void)printf("%-6s %-9s %-3s %6" PRIu64 " %7" PRIu64 " %8.2f %8.2f %7.2f %8.2f %7.1f ",
                 sl_gpu_memory_name(row->memory), sl_gpu_values_name(row->values),
                 row->to_host ? "out" : "in", row->piece_bytes / 1024, row->pieces, row->move,
                 row->whole, of_limit, row->single, share(row->move, row->single));
    (void)printf("%8.2f %5.1f%%", row->digested, 100 * digest_cost(row));
    (void)printf("  %-7s", sl_way_name(row->chosen));
    for (unsigned way = 0; way < SL_WAY_COUNT; way++) {
        (void)printf(" %7.2f", row->ways[way]);
    }
    (void)printf("\n");
    (void)fflush(stdout);
}

/* Prints the fastest way for each size and number of scattered pieces. */
static void crossover_table_print(const struct sl_crossover *crossover, bool follows, bool to_host)
{
    (void)printf("\ncrossover %-4s", to_host ? "out" : "in");
    for (uint32_t size = 0; size < SL_CROSSOVER_SIZES; size++) {
        (void)printf(" %6" PRIu64 "K", sl_crossover_piece_bytes(size) / 1024);
    }
    (void)printf("  %s", follows ? "behind others" : "alone");
    for (uint32_t count = 0; count < SL_CROSSOVER_COUNTS; count++) {
        (void)printf("\n%7" PRIu64 " pieces", sl_crossover_pieces(count));
        for (uint32_t size = 0; size < SL_CROSSOVER_SIZES; size++) {
            uint64_t bytes = sl_crossover_piece_bytes(size), pieces = sl_crossover_pieces(count);
            struct sl_crossover_job job = {.to_host = to_host,
                                           .follows = follows,
                                           .piece_bytes = bytes,
                                           .pieces = pieces,
                                           .run_bytes = bytes,
                                           .runs = pieces,
                                           .possible = {true, true, true, true}};
            (void)printf(" %7s", sl_way_name(sl_crossover_choose(crossover, &job)));
        }
    }
    (void)printf("\n");
}

static void crossover_print(const struct sl_crossover *crossover)
{
    for (unsigned table = 0; table < 4; table++) {
        crossover_table_print(crossover, table / 2 != 0, table % 2 != 0);
    }
}

static json_t *crossover_json(const struct sl_crossover *crossover)
{
    json_t *all = json_array();
    for (unsigned i = 0; i < SL_CROSSOVER_LINES; i++) {
        uint32_t count = i % SL_CROSSOVER_COUNTS;
        uint32_t size = i / SL_CROSSOVER_COUNTS % SL_CROSSOVER_SIZES;
        uint32_t to_host = i / (SL_CROSSOVER_COUNTS * SL_CROSSOVER_SIZES) % 2;
        uint32_t follows = i / (SL_CROSSOVER_COUNTS * SL_CROSSOVER_SIZES * 2);
        const uint32_t *speed = crossover->speed[follows][to_host][size][count];
        json_t *mb = json_object();
        for (unsigned way = 0; way < SL_WAY_COUNT; way++) {
            (void)json_object_set_new(mb, sl_way_name((enum sl_way)way), json_integer(speed[way]));
        }
        (void)json_array_append_new(
            all, json_pack("{s:b, s:s, s:I, s:I, s:o}", "follows", (int)follows, "direction",
                           to_host ? "out" : "in", "piece_bytes",
                           (json_int_t)sl_crossover_piece_bytes(size), "pieces",
                           (json_int_t)sl_crossover_pieces(count), "mb_per_s", mb));
    }
    return all;
}

/* ---- options ---- */

/* Parses a list of numbers with commas. Gives their count; 0: one is wrong. */
static uint32_t numbers_read(const char *list, bool sizes, uint64_t *out, uint32_t count_max)
{
    SL_AUTO(free) char *copy = strdup(list);
    char *rest = copy;
    uint32_t count = 0;
    for (const char *word; (word = strsep(&rest, ",")) != NULL; count++) {
        if (count == count_max || (sizes ? sl_parse_size(word, &out[count], NULL)
                                         : sl_parse_count(word, &out[count], NULL)) != SL_OK) {
            return 0; /* NOLINT(clang-analyzer-unix.Malloc): its clean-up frees the copy */
        }
    }
    return count;
}

typedef const char *(*name_fn)(unsigned which);
static const char *way_name(unsigned which)
{
    return sl_way_name((enum sl_way)which);
}
static const char *values_name(unsigned which)
{
    return sl_gpu_values_name((enum sl_gpu_values)which);
}
static const char *memory_name(unsigned which)
{
    return sl_gpu_memory_name((enum sl_gpu_memory)which);
}

/* Parses a list of names; NULL: all names. False: one is unknown, or the list is empty. */
static bool names_read(const char *list, name_fn name, bool *out, unsigned count)
{
    SL_AUTO(free) char *copy = list != NULL ? strdup(list) : NULL;
    char *rest = copy;
    for (unsigned i = 0; i < count; i++) {
        out[i] = list == NULL;
    }
    for (const char *word; (word = strsep(&rest, ",")) != NULL;) {
        unsigned i = 0;
        while (i < count && strcmp(word, name(i)) != 0) {
            i++;
        }
        if (i == count) {
            return false;
        }
        out[i] = true;
    }
    return list == NULL || copy != NULL;
}

/* False: *code is the exit code. */
static bool asked_read(struct ctl *ctl, const struct bench_gpu_asked *asked,
                       struct sl_gpu_bench_options *out, int *code)
{
    out->size_count = numbers_read(asked->sizes != NULL ? asked->sizes : SIZES_STANDARD, true,
                                   out->sizes, SL_GPU_BENCH_SIZES_MAX);
    out->count_count = numbers_read(asked->counts != NULL ? asked->counts : COUNTS_STANDARD, false,
                                    out->counts, SL_GPU_BENCH_COUNTS_MAX);
    if (out->size_count == 0 || out->count_count == 0) {
        *code = ctl_usage_error(
            ctl, "--sizes and --counts: up to %u sizes (4KiB,64KiB) and %u counts (1000,10000)",
            SL_GPU_BENCH_SIZES_MAX, SL_GPU_BENCH_COUNTS_MAX);
        return false;
    }
    if (!names_read(asked->ways, way_name, out->ways, SL_WAY_COUNT) ||
        !names_read(asked->values, values_name, out->values, SL_GPU_VALUES) ||
        !names_read(asked->memory, memory_name, out->memories, SL_GPU_MEMORIES)) {
        *code = ctl_usage_error(ctl, "--ways: of copies,batch,staged,mapped; --values: of "
                                     "scattered,adjacent,layers; --host: of tmpfs,pinned");
        return false;
    }
    return true;
}

int ctl_bench_gpu(struct ctl *ctl, const struct bench_gpu_asked *asked)
{
    char cache[1200];
    int code = CTL_SUCCESS;
    struct sl_error why = {0};
    struct sl_gpu_bench_result result;
    uint64_t cap = sl_config_u64(ctl->config, SL_SET_swap_multiprocessors);
    struct gpu_bench bench = {.ctl = ctl, .cap = cap};
    (void)snprintf(cache, sizeof(cache), "%s/cache", ctl->paths.runtime_dir);
    struct sl_gpu_bench_options options = {
        .device = {.device_index = (uint32_t)sl_config_u64(ctl->config, SL_SET_rank),
                   .staging_bytes = sl_config_u64(ctl->config, SL_SET_swap_staging),
                   .multiprocessors = (uint32_t)cap,
                   .beside = SL_BESIDE_KERNELS, /* each way by itself */
                   .cache_directory = cache},
        .bytes_max = asked->total_bytes != 0 ? asked->total_bytes : TOTAL_STANDARD,
        .limit_ns = asked->limit_ns != 0 ? asked->limit_ns : LIMIT_STANDARD,
        .rounds = ROUNDS,
        .tmpfs = "/dev/shm",
        .found = row_print,
        .context = &bench,
    };
    if (!asked_read(ctl, asked, &options, &code)) {
        return code;
    }
    bench.rows = json_array();
    sl_err err = sl_gpu_bench_run(&options, &result, &why);
    if (err != SL_OK) {
        json_decref(bench.rows);
        return ctl_failed(ctl, &why);
    }
    if (ctl->json) {
        ctl_print_json(json_pack(
            "{s:s, s:o, s:f, s:I, s:I, s:s, s:I, s:o}", "device", result.text, "rows", bench.rows,
            "worst_of_limit", bench.worst, "rows_left_out", (json_int_t)result.rows_left_out,
            "rows_late", (json_int_t)result.rows_late, "note", result.note, "checked_bytes",
            (json_int_t)result.checked_bytes, "crossover", crossover_json(&result.crossover)));
        return CTL_SUCCESS;
    }
    json_decref(bench.rows);
    crossover_print(&result.crossover);
    (void)printf(
        "\nDIGESTED, COST: out: the rate with digests, and the share of the rate that they cost; in: "
        "the digest pass over the blocks after the load, and its share of the load's time\n");
    (void)printf("\n%s\n%" PRIu64
                 " bytes were copied to the GPU and back and compared; rows skipped: %u because of "
                 "--total, %u because of --seconds; least share of the limit %.2f\n%s%s",
                 result.text, result.checked_bytes, result.rows_left_out, result.rows_late,
                 bench.worst, result.note, result.note[0] != '\0' ? "\n" : "");
    return CTL_SUCCESS;
}
