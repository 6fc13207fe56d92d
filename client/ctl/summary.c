/* client/ctl/summary.c - see summary.h. The figures are those of monitoring (client/metrics). */
#include "client/ctl/summary.h"
#include "client/metrics/scrape.h"
#include "ipc/sl_counts.h"

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

static json_t *disk_json(const struct disk *disk)
{
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "name", disk->name, "live_bytes",
                     ctl_json_u64(disk->figures[DISK_LIVE]), "ceiling_bytes",
                     ctl_json_u64(disk->figures[DISK_CEILING]), "written_bytes",
                     ctl_json_u64(disk->figures[DISK_WRITTEN]), "io_errors",
                     ctl_json_u64(disk->figures[DISK_ERRORS]), "corrupt",
                     ctl_json_u64(disk->figures[DISK_CORRUPT]));
}

json_t *summary_json(const struct ctl *ctl)
{
    SL_AUTO(free) void *read = summary_read(ctl);
    const struct summary *summary = read;
    if (summary == NULL) {
        return NULL;
    }
    const uint64_t *figures = summary->figures;
    json_t *stores = done_json(figures[STORE_BYTES], &summary->store), *disks = json_array();
    (void)json_object_set_new(stores, "blocks", ctl_json_u64(figures[STORED]));
    for (uint32_t i = 0; i < summary->disk_count; i++) {
        (void)json_array_append_new(disks, disk_json(&summary->disks[i]));
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:{s:o, s:o, s:o, s:o}}", "gets",
                     found_json(&figures[GET_MEMORY], figures[GET_BYTES], &summary->get), "loads",
                     found_json(&figures[LOAD_MEMORY], figures[LOAD_BYTES], &summary->load),
                     "stores", stores, "disks", disks, "memory", "used_bytes",
                     ctl_json_u64(figures[USED]), "ceiling_bytes", ctl_json_u64(figures[CEILING]),
                     "keys", ctl_json_u64(figures[KEYS]), "evicted_units",
                     ctl_json_u64(figures[EVICTED]));
}

void summary_print(const struct ctl *ctl)
{
    static const char *const words[] = {"status", NULL};
    json_t *figures = summary_json(ctl);
    if (figures != NULL) {
        (void)ctl_script_print("text.py", words, figures);
    }
}
