/* client/top/summary.c - see the header. */
#include "client/top/summary.h"
#include "client/command/command.h"
#include "client/top/views.h"

#include <inttypes.h>
#include <stdio.h>

/* "12.3k keys: memory 55.0%, disk 3.0%, remote 0.0%, missed 42.0%" */
static void found_print(const char *what, const char *unit, const uint64_t counts[TOP_WHERE_COUNT])
{
    char text[32];
    uint64_t sum = top_where_sum(counts);
    (void)printf("%-8s %s %s: memory %.1f%%, disk %.1f%%, remote %.1f%%, missed %.1f%%", what,
                 top_count_text((double)sum, text), unit, top_percent(counts[TOP_MEMORY], sum),
                 top_percent(counts[TOP_DISK], sum), top_percent(counts[TOP_REMOTE], sum),
                 top_percent(counts[TOP_NONE], sum));
}

static void done_print(uint64_t bytes, const struct top_times *times)
{
    char a[32], b[32], c[32];
    (void)printf("; %s; p50 %s, p99 %s\n", ctl_size_text(bytes, a),
                 top_time_text(top_times_quantile(times, 0.5), b),
                 top_time_text(top_times_quantile(times, 0.99), c));
}

/* Those of all tiers together. */
static struct top_times get_times(const struct top_figures *figures)
{
    struct top_times all = {0};
    for (uint32_t tier = 0; tier < TOP_NONE; tier++) {
        for (uint32_t i = 0; i < SL_COUNTS_BUCKETS; i++) {
            all.buckets[i] += figures->get[tier].buckets[i];
        }
    }
    return all;
}

void top_summary_print(const struct top_figures *figures)
{
    char a[32], b[32], c[32];
    if (top_where_sum(figures->get_keys) > 0) {
        struct top_times times = get_times(figures);
        found_print("gets", "keys", figures->get_keys);
        done_print(top_where_sum(figures->get_bytes), &times);
    }
    if (top_where_sum(figures->load_blocks) > 0) {
        found_print("loads", "blocks", figures->load_blocks);
        done_print(figures->load_bytes, &figures->load);
    }
    if (figures->stored > 0) {
        (void)printf("%-8s %s blocks", "stores", top_count_text((double)figures->stored, a));
        done_print(figures->store_bytes, &figures->store);
    }
    (void)printf("%-8s %s of %s, %s keys; %s units evicted\n", "memory",
                 ctl_size_text(figures->memory_used_bytes, a),
                 ctl_size_text(figures->memory_ceiling_bytes, b),
                 top_count_text((double)figures->index_keys, c),
                 top_count_text((double)figures->evicted_units, (char[32]){0}));
    for (uint32_t i = 0; i < figures->disk_count; i++) {
        const struct top_disk *disk = &figures->disks[i];
        (void)printf("%-8s %s of %s; %s written, errors %" PRIu64 ", corrupt %" PRIu64 "\n",
                     disk->name, ctl_size_text(disk->live_bytes, a),
                     ctl_size_text(disk->ceiling_bytes, b), ctl_size_text(disk->written_bytes, c),
                     disk->io_errors, disk->corrupt);
    }
}

static json_t *found_json(const uint64_t counts[TOP_WHERE_COUNT], uint64_t bytes,
                          const struct top_times *times)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "memory",
                     ctl_json_u64(counts[TOP_MEMORY]), "disk", ctl_json_u64(counts[TOP_DISK]),
                     "remote", ctl_json_u64(counts[TOP_REMOTE]), "missed",
                     ctl_json_u64(counts[TOP_NONE]), "bytes", ctl_json_u64(bytes), "p50_ns",
                     ctl_json_u64(top_times_quantile(times, 0.5)), "p99_ns",
                     ctl_json_u64(top_times_quantile(times, 0.99)));
}

json_t *top_summary_json(const struct top_figures *figures)
{
    struct top_times times = get_times(figures);
    json_t *stores = json_pack("{s:o, s:o, s:o, s:o}", "blocks", ctl_json_u64(figures->stored),
                               "bytes", ctl_json_u64(figures->store_bytes), "p50_ns",
                               ctl_json_u64(top_times_quantile(&figures->store, 0.5)), "p99_ns",
                               ctl_json_u64(top_times_quantile(&figures->store, 0.99)));
    json_t *memory = json_pack(
        "{s:o, s:o, s:o, s:o}", "used_bytes", ctl_json_u64(figures->memory_used_bytes),
        "ceiling_bytes", ctl_json_u64(figures->memory_ceiling_bytes), "keys",
        ctl_json_u64(figures->index_keys), "evicted_units", ctl_json_u64(figures->evicted_units));
    return json_pack("{s:o, s:o, s:o, s:o}", "gets",
                     found_json(figures->get_keys, top_where_sum(figures->get_bytes), &times),
                     "loads", found_json(figures->load_blocks, figures->load_bytes, &figures->load),
                     "stores", stores, "memory", memory);
}
