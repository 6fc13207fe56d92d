/* client/bench/gpu.c - what a GPU can do: scattered pieces there and back, by every way, beside
 * one pinned copy of the same bytes and beside a copy a piece. Needs no node. */
#include "client/bench/kinds.h"
#include "cuda/sl_gpu_bench.h"

#include <inttypes.h>

#define TOTAL_STANDARD (7 * SL_GIB) /* 100,000 pieces of 64 KiB */
#define ROUNDS         5u

struct gpu_bench {
    const struct ctl *ctl;
    json_t *rows;
    double worst; /* share of the limit */
    uint32_t printed;
};

static double share(double part, double of)
{
    return of > 0 ? part / of : 0;
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
            json_pack("{s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:s, s:o}", "direction",
                      row->to_host ? "out" : "in", "piece_bytes", (json_int_t)row->piece_bytes,
                      "pieces", (json_int_t)row->pieces, "gb_per_s", row->move, "limit_gb_per_s",
                      row->whole, "of_limit", of_limit, "single_gb_per_s", row->single,
                      "times_single", share(row->move, row->single), "digested_gb_per_s",
                      row->digested, "digest_cost",
                      row->digested > 0 ? 1 - share(row->digested, row->move) : 0.0, "chosen",
                      sl_way_name(row->chosen), "ways", ways));
        return;
    }
    if (bench->printed++ == 0) {
        (void)printf("%-3s %6s %7s %8s %8s %7s %8s %7s %8s %6s  %-7s %7s %7s %7s %7s\n", "", "KIB",
                     "PIECES", "GB/S", "LIMIT", "RATIO", "SINGLE", "TIMES", "DIGESTED", "COST",
                     "CHOSEN", "copies", "batch", "staged", "mapped");
    }
    (void)printf("%-3s %6" PRIu64 " %7" PRIu64 " %8.2f %8.2f %7.2f %8.2f %7.1f ",
                 row->to_host ? "out" : "in", row->piece_bytes / 1024, row->pieces, row->move,
                 row->whole, of_limit, row->single, share(row->move, row->single));
    if (row->digested > 0) {
        (void)printf("%8.2f %5.1f%%", row->digested, 100 * (1 - share(row->digested, row->move)));
    } else {
        (void)printf("%8s %6s", "-", "-");
    }
    (void)printf("  %-7s", sl_way_name(row->chosen));
    for (unsigned way = 0; way < SL_WAY_COUNT; way++) {
        (void)printf(" %7.2f", row->ways[way]);
    }
    (void)printf("\n");
    (void)fflush(stdout);
}

/* The fastest way of each size and number of pieces that are values by themselves. */
static void crossover_print(const struct sl_crossover *crossover)
{
    for (unsigned to_host = 0; to_host < 2; to_host++) {
        (void)printf("\ncrossover %-4s", to_host ? "out" : "in");
        for (uint32_t size = 0; size < SL_CROSSOVER_SIZES; size++) {
            (void)printf(" %6" PRIu64 "K", sl_crossover_piece_bytes(size) / 1024);
        }
        for (uint32_t count = 0; count < SL_CROSSOVER_COUNTS; count++) {
            (void)printf("\n%7" PRIu64 " pieces", sl_crossover_pieces(count));
            for (uint32_t size = 0; size < SL_CROSSOVER_SIZES; size++) {
                uint64_t bytes = sl_crossover_piece_bytes(size),
                         pieces = sl_crossover_pieces(count);
                struct sl_crossover_job job = {.to_host = to_host != 0,
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
}

static json_t *crossover_json(const struct sl_crossover *crossover)
{
    json_t *all = json_array();
    for (unsigned i = 0; i < SL_CROSSOVER_FIELDS / SL_WAY_COUNT; i++) {
        uint32_t count = i % SL_CROSSOVER_COUNTS;
        uint32_t size = i / SL_CROSSOVER_COUNTS % SL_CROSSOVER_SIZES;
        uint32_t to_host = i / SL_CROSSOVER_COUNTS / SL_CROSSOVER_SIZES;
        json_t *mb = json_object();
        for (unsigned way = 0; way < SL_WAY_COUNT; way++) {
            (void)json_object_set_new(mb, sl_way_name((enum sl_way)way),
                                      json_integer(crossover->speed[to_host][size][count][way]));
        }
        (void)json_array_append_new(
            all, json_pack("{s:s, s:I, s:I, s:o}", "direction", to_host ? "out" : "in",
                           "piece_bytes", (json_int_t)sl_crossover_piece_bytes(size), "pieces",
                           (json_int_t)sl_crossover_pieces(count), "mb_per_s", mb));
    }
    return all;
}

int ctl_bench_gpu(struct ctl *ctl, uint64_t total_bytes)
{
    char cache[1200];
    struct sl_error why = {0};
    struct sl_gpu_bench_result result;
    struct gpu_bench bench = {.ctl = ctl, .rows = json_array()};
    (void)snprintf(cache, sizeof(cache), "%s/cache", ctl->paths.runtime_dir);
    struct sl_gpu_bench_options options = {
        .device = {.device_index = (uint32_t)sl_config_u64(ctl->config, SL_SET_rank),
                   .staging_bytes = sl_config_u64(ctl->config, SL_SET_swap_staging),
                   .multiprocessors =
                       (uint32_t)sl_config_u64(ctl->config, SL_SET_swap_multiprocessors),
                   .cache_directory = cache},
        .bytes_max = total_bytes != 0 ? total_bytes : TOTAL_STANDARD,
        .rounds = ROUNDS,
        .found = row_print,
        .context = &bench,
    };
    sl_err err = sl_gpu_bench_run(&options, &result, &why);
    if (err != SL_OK) {
        json_decref(bench.rows);
        return ctl_failed(ctl, &why);
    }
    if (ctl->json) {
        ctl_print_json(json_pack("{s:s, s:o, s:f, s:I, s:I, s:o}", "device", result.text, "rows",
                                 bench.rows, "worst_of_limit", bench.worst, "rows_left_out",
                                 (json_int_t)result.rows_left_out, "checked_bytes",
                                 (json_int_t)result.checked_bytes, "crossover",
                                 crossover_json(&result.crossover)));
        return CTL_FINE;
    }
    json_decref(bench.rows);
    crossover_print(&result.crossover);
    (void)printf("\n%s\n%" PRIu64
                 " bytes went there and back and were compared; %u rows left out for want "
                 "of --total; least share of the limit %.2f\n",
                 result.text, result.checked_bytes, result.rows_left_out, bench.worst);
    return CTL_FINE;
}
