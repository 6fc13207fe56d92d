/* client/ctl/summary.c - see summary.h. The figures are those of monitoring (client/metrics). */
#include "client/ctl/summary.h"
#include "client/metrics/scrape.h"
#include "ipc/sl_counts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DISKS_MAX 64u

/* How many took no longer than the end of a bucket, by the ends that there were. */
struct times {
    double ends_s[SL_COUNTS_BUCKETS];
    uint64_t counts[SL_COUNTS_BUCKETS];
    uint32_t count;
};
enum figure {
    GET_MEMORY, /* and the other tiers; then those of loads */
    LOAD_MEMORY = GET_MEMORY + 4,
    GET_BYTES = LOAD_MEMORY + 4,
    LOAD_BYTES,
    STORED,
    STORE_BYTES,
    USED,
    CEILING,
    KEYS,
    EVICTED,
    DISK_LIVE,
    DISK_CEILING,
    DISK_WRITTEN,
    DISK_ERRORS,
    DISK_CORRUPT,
    FIGURES
};
struct summary {
    uint64_t figures[DISK_LIVE];
    struct times get, load, store;
    struct disk {
        char name[64];
        uint64_t figures[FIGURES];
    } disks[DISKS_MAX];
    uint32_t disk_count;
};

/* label: the value of one of the series' labels; "": any. */
static const struct {
    const char *family, *label;
    enum figure figure;
} rows[] = {
    {"sluice_get_keys_total", "memory", GET_MEMORY},
    {"sluice_get_keys_total", "disk", GET_MEMORY + 1},
    {"sluice_get_keys_total", "remote", GET_MEMORY + 2},
    {"sluice_get_keys_total", "none", GET_MEMORY + 3},
    {"sluice_load_blocks_total", "memory", LOAD_MEMORY},
    {"sluice_load_blocks_total", "disk", LOAD_MEMORY + 1},
    {"sluice_load_blocks_total", "remote", LOAD_MEMORY + 2},
    {"sluice_load_blocks_total", "none", LOAD_MEMORY + 3},
    {"sluice_get_bytes_total", "", GET_BYTES},
    {"sluice_load_bytes_total", "", LOAD_BYTES},
    {"sluice_store_blocks_total", "stored", STORED},
    {"sluice_store_bytes_total", "", STORE_BYTES},
    {"sluice_memory_used_bytes", "", USED},
    {"sluice_memory_ceiling_bytes", "", CEILING},
    {"sluice_index_keys", "", KEYS},
    {"sluice_evicted_units_total", "", EVICTED},
    {"sluice_tier_live_bytes", "", DISK_LIVE},
    {"sluice_tier_ceiling_bytes", "", DISK_CEILING},
    {"sluice_tier_written_bytes_total", "", DISK_WRITTEN},
    {"sluice_tier_io_errors_total", "", DISK_ERRORS},
    {"sluice_tier_corrupt_values_total", "", DISK_CORRUPT},
};

/* ---- reading ---- */

static const char *label_of(const struct scrape_sample *sample, const char *name)
{
    for (uint32_t i = 0; i < sample->label_count; i++) {
        if (strcmp(sample->labels[i].name, name) == 0) {
            return sample->labels[i].value;
        }
    }
    return "";
}

static bool has_label(const struct scrape_sample *sample, const char *value)
{
    for (uint32_t i = 0; i < sample->label_count; i++) {
        if (strcmp(sample->labels[i].value, value) == 0) {
            return true;
        }
    }
    return value[0] == '\0';
}

/* Where those of this figure are: of the disk of that name, or of the node. */
static uint64_t *figures_of(struct summary *summary, enum figure figure, const char *actor)
{
    uint32_t i = 0;
    if (figure < DISK_LIVE) {
        return summary->figures;
    }
    while (i < summary->disk_count && strcmp(summary->disks[i].name, actor) != 0) {
        i++;
    }
    if (i == summary->disk_count && i < DISKS_MAX - 1) {
        (void)snprintf(summary->disks[i].name, sizeof summary->disks[i].name, "%s", actor);
        summary->disk_count++;
    }
    return summary->disks[i].figures; /* one too many of them is nobody's */
}

static void times_add(struct times *times, const char *end, uint64_t count)
{
    double end_s = strtod(end, NULL);
    uint32_t i = 0;
    while (i < times->count && times->ends_s[i] != end_s) {
        i++;
    }
    if (i < SL_COUNTS_BUCKETS) {
        times->ends_s[i] = end_s;
        times->counts[i] += count;
        times->count = SL_MAX(times->count, i + 1);
    }
}

static void family_take(void *context, const struct metric_fact *first)
{
    (void)context;
    (void)first;
}

static void sample_take(void *context, const struct metric_fact *fact,
                        const struct scrape_sample *sample)
{
    struct summary *summary = context;
    uint64_t value = strtoull(sample->value, NULL, 10);
    for (size_t i = 0; i < SL_COUNT(rows); i++) {
        if (strcmp(rows[i].family, fact->family) == 0 && has_label(sample, rows[i].label)) {
            figures_of(summary, rows[i].figure, label_of(sample, "actor"))[rows[i].figure] += value;
        }
    }
    struct times *times =
        strcmp(fact->family, "sluice_get_duration_seconds") == 0     ? &summary->get
        : strcmp(fact->family, "sluice_load_duration_seconds") == 0  ? &summary->load
        : strcmp(fact->family, "sluice_store_duration_seconds") == 0 ? &summary->store
                                                                     : NULL;
    if (times != NULL && strcmp(sample->suffix, "_bucket") == 0) {
        times_add(times, label_of(sample, "le"), value);
    }
}

/* To be freed; NULL: no node has counts. */
static struct summary *summary_read(const struct ctl *ctl)
{
    struct summary *summary = calloc(1, sizeof *summary);
    const struct scrape_sink sink = {family_take, sample_take, summary};
    if (summary != NULL && scrape_node(ctl->paths.shm_dir, &sink, NULL) != SL_OK) {
        free(summary);
        summary = NULL;
    }
    return summary;
}

/* The end of the bucket in which this share of all lies, in ns; 0: nothing was timed. UINT64_MAX: the last. */
static uint64_t times_quantile_ns(const struct times *times, double share)
{
    uint64_t most = times->count > 0 ? times->counts[times->count - 1] : 0;
    for (uint32_t i = 0; most > 0 && i < times->count; i++) {
        if ((double)times->counts[i] >= share * (double)most) {
            return i + 1 < times->count ? (uint64_t)(times->ends_s[i] * 1e9 + 0.5) : UINT64_MAX;
        }
    }
    return 0;
}

static uint64_t where_sum(const uint64_t where[4])
{
    return where[0] + where[1] + where[2] + where[3];
}

/* ---- printing ---- */

/* "<20us": of the end of a bucket. */
static const char *time_text(uint64_t ns, char out[32])
{
    (void)snprintf(out, 32, "<%.0f%s",
                   (double)ns / (ns < SL_NS_PER_MS  ? 1e3
                                 : ns < SL_NS_PER_S ? 1e6
                                                    : 1e9),
                   ns < SL_NS_PER_MS  ? "us"
                   : ns < SL_NS_PER_S ? "ms"
                                      : "s");
    return ns == 0 ? "-" : ns == UINT64_MAX ? ">10s" : out;
}

static const char *count_text(uint64_t count, char out[32])
{
    static const char units[] = " kMGT";
    double value = (double)count;
    size_t unit = 0;
    while (value >= 1000 && unit + 2 < sizeof units) {
        value /= 1000;
        unit++;
    }
    (void)snprintf(out, 32, unit > 0 && value < 100 ? "%.1f%.*s" : "%.0f%.*s", value, unit > 0,
                   &units[unit]);
    return out;
}

static void done_print(uint64_t bytes, const struct times *times)
{
    char a[32], b[32], c[32];
    (void)printf("; %s; p50 %s, p99 %s\n", ctl_size_text(bytes, a),
                 time_text(times_quantile_ns(times, 0.5), b),
                 time_text(times_quantile_ns(times, 0.99), c));
}

/* "gets     12.3k keys: memory 55.0%, disk 3.0%, remote 0.0%, missed 42.0%; ..." */
static void found_print(const char *what, const char *unit, const uint64_t where[4], uint64_t bytes,
                        const struct times *times)
{
    char text[32];
    double all = (double)where_sum(where) / 100;
    if (all > 0) {
        (void)printf("%-8s %s %s: memory %.1f%%, disk %.1f%%, remote %.1f%%, missed %.1f%%", what,
                     count_text(where_sum(where), text), unit, (double)where[0] / all,
                     (double)where[1] / all, (double)where[2] / all, (double)where[3] / all);
        done_print(bytes, times);
    }
}

void summary_print(const struct ctl *ctl)
{
    char a[32], b[32], c[32], d[32];
    SL_AUTO(free) void *read = summary_read(ctl);
    const struct summary *summary = read;
    if (summary == NULL) {
        return;
    }
    const uint64_t *figures = summary->figures;
    found_print("gets", "keys", &figures[GET_MEMORY], figures[GET_BYTES], &summary->get);
    found_print("loads", "blocks", &figures[LOAD_MEMORY], figures[LOAD_BYTES], &summary->load);
    if (figures[STORED] > 0) {
        (void)printf("%-8s %s blocks", "stores", count_text(figures[STORED], a));
        done_print(figures[STORE_BYTES], &summary->store);
    }
    (void)printf("%-8s %s of %s, %s keys; %s units evicted\n", "memory",
                 ctl_size_text(figures[USED], a), ctl_size_text(figures[CEILING], b),
                 count_text(figures[KEYS], c), count_text(figures[EVICTED], d));
    for (uint32_t i = 0; i < summary->disk_count; i++) {
        const struct disk *disk = &summary->disks[i];
        (void)printf("%-8s %s of %s; %s written, errors %" PRIu64 ", corrupt %" PRIu64 "\n",
                     disk->name, ctl_size_text(disk->figures[DISK_LIVE], a),
                     ctl_size_text(disk->figures[DISK_CEILING], b),
                     ctl_size_text(disk->figures[DISK_WRITTEN], c), disk->figures[DISK_ERRORS],
                     disk->figures[DISK_CORRUPT]);
    }
    (void)putchar('\n');
}

static json_t *done_json(uint64_t bytes, const struct times *times)
{
    return json_pack("{s:o, s:o, s:o}", "bytes", ctl_json_u64(bytes), "p50_ns",
                     ctl_json_u64(times_quantile_ns(times, 0.5)), "p99_ns",
                     ctl_json_u64(times_quantile_ns(times, 0.99)));
}

static json_t *found_json(const uint64_t where[4], uint64_t bytes, const struct times *times)
{
    json_t *found = done_json(bytes, times);
    static const char *const names[] = {"memory", "disk", "remote", "missed"};
    for (size_t i = 0; i < SL_COUNT(names); i++) {
        (void)json_object_set_new(found, names[i], ctl_json_u64(where[i]));
    }
    return found;
}

json_t *summary_json(const struct ctl *ctl)
{
    SL_AUTO(free) void *read = summary_read(ctl);
    const struct summary *summary = read;
    if (summary == NULL) {
        return NULL;
    }
    const uint64_t *figures = summary->figures;
    json_t *stores = done_json(figures[STORE_BYTES], &summary->store);
    (void)json_object_set_new(stores, "blocks", ctl_json_u64(figures[STORED]));
    return json_pack("{s:o, s:o, s:o, s:{s:o, s:o, s:o, s:o}}", "gets",
                     found_json(&figures[GET_MEMORY], figures[GET_BYTES], &summary->get), "loads",
                     found_json(&figures[LOAD_MEMORY], figures[LOAD_BYTES], &summary->load),
                     "stores", stores, "memory", "used_bytes", ctl_json_u64(figures[USED]),
                     "ceiling_bytes", ctl_json_u64(figures[CEILING]), "keys",
                     ctl_json_u64(figures[KEYS]), "evicted_units", ctl_json_u64(figures[EVICTED]));
}
