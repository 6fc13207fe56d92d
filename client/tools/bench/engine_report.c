/* client/tools/bench/engine_report.c - results of the engine bench as JSON. */
#include "client/tools/bench/engine.h"

#include <string.h>

static const char *const kind_names[] = {[ENGINE_STORE] = "store",
                                         [ENGINE_LOAD] = "load",
                                         [ENGINE_MISS] = "miss",
                                         [ENGINE_LOOK] = "look"};

uint32_t engine_sides(const struct engine_bench *bench, enum engine_kind kind)
{
    if (kind == ENGINE_MISS) {
        return BENCH_SIDE_OP + 1;
    }
    return bench_copy_name(&bench->rows[kind].limit) != NULL ? BENCH_SIDES : BENCH_SIDE_COPY;
}

/* Median of a side's rates, divided by the divisor's rates by rounds (BENCH_SIDES: not divided). */
static double median(const struct engine_bench *bench, const struct engine_row *row,
                     enum bench_side side, enum bench_side divisor)
{
    return bench_median(row->rates[side], divisor != BENCH_SIDES ? row->rates[divisor] : NULL,
                        bench->round_count);
}

static double quantile_us(const struct ctl_histogram *histogram, double share)
{
    return (double)ctl_histogram_quantile(histogram, share) / 1e3;
}

static double op_bytes(const struct engine_bench *bench, enum engine_kind kind)
{
    return kind >= ENGINE_MISS
               ? 0
               : (double)bench->ranks * (double)bench->blocks * (double)bench->part_bytes;
}

static double cpu_ns(const struct engine_bench *bench, const struct engine_row *row)
{
    uint64_t sum = row->own_ns;
    for (uint32_t i = 0; i < bench->actor_count; i++) {
        sum += row->actor_ns[i];
    }
    return (double)sum;
}

struct side { /* a baseline of the ops */
    const char *name;
    double ops_per_s, bytes_per_s, ratio, op_ratio, p50_us;
};

static struct side side_of(const struct engine_bench *bench, enum engine_kind kind,
                           enum bench_side side)
{
    const struct engine_row *row = &bench->rows[kind];
    /* A turn of the probe is not an op. */
    double turn_ops = kind == ENGINE_LOOK ? (double)BENCH_PROBES / (double)bench->blocks : 1;
    double p50_us = quantile_us(&row->limit.calls_ns[side], 0.5) / turn_ops;
    return (struct side){
        .name =
            side == BENCH_SIDE_COPY ? bench_copy_name(&row->limit) : bench_limit_name(&row->limit),
        .ops_per_s = median(bench, row, side, BENCH_SIDES),
        .bytes_per_s =
            median(bench, row, side, BENCH_SIDES) * op_bytes(bench, kind) / (double)bench->ranks,
        .ratio = median(bench, row, BENCH_SIDE_OP, side),
        .op_ratio = p50_us / SL_MAX(quantile_us(&row->ops_ns, 0.5), 1e-3),
        .p50_us = p50_us,
    };
}

static json_t *cpu_json(const struct engine_bench *bench, const struct engine_row *row)
{
    double ops = (double)SL_MAX(row->ops, 1);
    json_t *cpu = json_pack("{s:f}", "client", (double)row->own_ns / ops / 1e3);
    for (uint32_t i = 0; i < bench->actor_count; i++) {
        (void)json_object_set_new(cpu, bench->actors[i].name,
                                  json_real((double)row->actor_ns[i] / ops / 1e3));
    }
    return cpu;
}

static json_t *side_json(const struct side *side)
{
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f}", "name", side->name, "ops_per_s",
                     side->ops_per_s, "bytes_per_s", side->bytes_per_s, "p50_us", side->p50_us,
                     "ratio", side->ratio, "op_ratio", side->op_ratio);
}

static json_t *row_json(const struct engine_bench *bench, enum engine_kind kind)
{
    const struct engine_row *row = &bench->rows[kind];
    double ops_per_s = median(bench, row, BENCH_SIDE_OP, BENCH_SIDES);
    double bytes = op_bytes(bench, kind) * (double)row->ops;
    json_t *out = json_pack(
        "{s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "op", kind_names[kind], "ops",
        (json_int_t)row->ops, "ops_per_s", ops_per_s, "bytes_per_s",
        ops_per_s * op_bytes(bench, kind), "p50_us", quantile_us(&row->ops_ns, 0.5), "p99_us",
        quantile_us(&row->ops_ns, 0.99), "least_us", (double)row->least_ns / 1e3, "cpu_us_per_op",
        cpu_ns(bench, row) / (double)SL_MAX(row->ops, 1) / 1e3, "cpu_us", cpu_json(bench, row));
    if (bytes > 0) {
        (void)json_object_set_new(out, "cpu_s_per_gb", json_real(cpu_ns(bench, row) / bytes));
    }
    if (engine_sides(bench, kind) > BENCH_SIDE_BASELINE) {
        struct side base = side_of(bench, kind, BENCH_SIDE_BASELINE);
        (void)json_object_set_new(out, "baseline", side_json(&base));
    }
    if (engine_sides(bench, kind) == BENCH_SIDES) {
        struct side copy = side_of(bench, kind, BENCH_SIDE_COPY);
        (void)json_object_set_new(out, "copy", side_json(&copy));
    }
    return out;
}

json_t *engine_json(const struct engine_bench *bench)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < ENGINE_KINDS; i++) {
        (void)json_array_append_new(rows, row_json(bench, (enum engine_kind)i));
    }
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "bench", "engine",
                     "ranks", (json_int_t)bench->ranks, "blocks", (json_int_t)bench->blocks,
                     "part_bytes", (json_int_t)bench->part_bytes, "layers",
                     (json_int_t)bench->layer_count, "llc_bytes", (json_int_t)bench->cache_bytes,
                     "walk_bytes", (json_int_t)bench->walk_bytes, "rounds",
                     (json_int_t)bench->round_count, "loads_not_from_memory",
                     (json_int_t)bench->elsewhere, "rows", rows);
}
