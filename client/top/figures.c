/* client/top/figures.c - picks the figures out of the table of metrics. */
#include "client/top/figures.h"
#include "client/metrics/scrape.h"
#include "runtime/sl_clock.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

const char *const top_where_names[TOP_WHERE_COUNT] = {
    [TOP_MEMORY] = "memory", [TOP_DISK] = "disk", [TOP_REMOTE] = "remote", [TOP_NONE] = "missed"};

enum of { OF_NODE, OF_ACTOR, OF_DISK, OF_MODEL };
enum as { AS_WHOLE, AS_NS, AS_TIMES };

/* Which member a series is added to. label: "name=value", one of the series'; "": any. */
struct row {
    const char *family, *label;
    enum of of;
    enum as as;
    bool gauge;
    size_t at;
};
/* clang-format off */
#define NODE(family, label, member)   {family, label, OF_NODE, AS_WHOLE, false, offsetof(struct top_figures, member)}
#define GAUGE(family, member)         {family, "", OF_NODE, AS_WHOLE, true, offsetof(struct top_figures, member)}
#define TIMES(family, label, member)  {family, label, OF_NODE, AS_TIMES, false, offsetof(struct top_figures, member)}
#define ACTOR(family, label, member)  {family, label, OF_ACTOR, AS_WHOLE, false, offsetof(struct top_actor, member)}
#define ACTOR_NOW(family, as, member) {family, "", OF_ACTOR, as, true, offsetof(struct top_actor, member)}
#define MODEL(family, label, member)  {family, label, OF_MODEL, AS_WHOLE, false, offsetof(struct top_model, member)}
#define DISK(family, member)          {family, "", OF_DISK, AS_WHOLE, false, offsetof(struct top_disk, member)}
#define DISK_NOW(family, member)      {family, "", OF_DISK, AS_WHOLE, true, offsetof(struct top_disk, member)}
#define DISK_TIMES(family, member)    {family, "", OF_DISK, AS_TIMES, false, offsetof(struct top_disk, member)}
static const struct row rows[] = {
    NODE("sluice_get_keys_total", "tier=memory", get_keys[TOP_MEMORY]),
    NODE("sluice_get_keys_total", "tier=disk", get_keys[TOP_DISK]),
    NODE("sluice_get_keys_total", "tier=remote", get_keys[TOP_REMOTE]),
    NODE("sluice_get_keys_total", "tier=none", get_keys[TOP_NONE]),
    NODE("sluice_get_bytes_total", "tier=memory", get_bytes[TOP_MEMORY]),
    NODE("sluice_get_bytes_total", "tier=disk", get_bytes[TOP_DISK]),
    NODE("sluice_get_bytes_total", "tier=remote", get_bytes[TOP_REMOTE]),
    NODE("sluice_load_blocks_total", "tier=memory", load_blocks[TOP_MEMORY]),
    NODE("sluice_load_blocks_total", "tier=disk", load_blocks[TOP_DISK]),
    NODE("sluice_load_blocks_total", "tier=remote", load_blocks[TOP_REMOTE]),
    NODE("sluice_load_blocks_total", "tier=none", load_blocks[TOP_NONE]),
    NODE("sluice_load_bytes_total", "", load_bytes),
    NODE("sluice_get_keys_seen_total", "", get_seen),
    NODE("sluice_load_blocks_seen_total", "", load_seen),
    NODE("sluice_lookup_keys_total", "result=found", look_found),
    NODE("sluice_lookup_keys_total", "result=missing", look_missing),
    NODE("sluice_lookup_blocks_total", "result=found", look_found),
    NODE("sluice_lookup_blocks_total", "result=missing", look_missing),
    NODE("sluice_store_blocks_total", "result=stored", stored),
    NODE("sluice_store_blocks_total", "result=existed", existed),
    NODE("sluice_store_blocks_total", "result=refused", refused),
    NODE("sluice_store_bytes_total", "", store_bytes),
    NODE("sluice_evicted_units_total", "", evicted_units),
    NODE("sluice_evicted_bytes_total", "", evicted_bytes),
    GAUGE("sluice_ops_active", ops_active),
    GAUGE("sluice_memory_used_bytes", memory_used_bytes),
    GAUGE("sluice_memory_ceiling_bytes", memory_ceiling_bytes),
    GAUGE("sluice_index_keys", index_keys),
    GAUGE("sluice_index_blocks", index_blocks),
    GAUGE("sluice_write_behind_keys", write_behind_keys),
    GAUGE("sluice_clients", clients),
    GAUGE("sluice_engines", engines),
    GAUGE("sluice_peers_alive", peers_alive),
    GAUGE("sluice_sessions", sessions),
    TIMES("sluice_get_duration_seconds", "tier=memory", get[TOP_MEMORY]),
    TIMES("sluice_get_duration_seconds", "tier=disk", get[TOP_DISK]),
    TIMES("sluice_get_duration_seconds", "tier=remote", get[TOP_REMOTE]),
    TIMES("sluice_load_duration_seconds", "", load),
    TIMES("sluice_store_duration_seconds", "", store),
    ACTOR("sluice_actor_restarts_total", "", restarts),
    ACTOR("sluice_actor_messages_total", "direction=received", received),
    ACTOR("sluice_actor_messages_total", "direction=sent", sent),
    {"sluice_actor_cpu_seconds_total", "", OF_ACTOR, AS_NS, false, offsetof(struct top_actor, cpu_ns)},
    ACTOR_NOW("sluice_actor_uptime_seconds", AS_NS, uptime_ns),
    ACTOR_NOW("sluice_actor_silence_seconds", AS_NS, silence_ns),
    ACTOR_NOW("sluice_actor_resident_memory_bytes", AS_WHOLE, resident_bytes),
    MODEL("sluice_model_load_blocks_total", "tier=memory", load_blocks[TOP_MEMORY]),
    MODEL("sluice_model_load_blocks_total", "tier=disk", load_blocks[TOP_DISK]),
    MODEL("sluice_model_load_blocks_total", "tier=remote", load_blocks[TOP_REMOTE]),
    MODEL("sluice_model_load_blocks_total", "tier=none", load_blocks[TOP_NONE]),
    MODEL("sluice_model_load_bytes_total", "", load_bytes),
    MODEL("sluice_model_lookup_blocks_total", "result=found", look_found),
    MODEL("sluice_model_lookup_blocks_total", "result=missing", look_missing),
    MODEL("sluice_model_store_blocks_total", "result=stored", stored),
    MODEL("sluice_model_store_blocks_total", "result=existed", existed),
    MODEL("sluice_model_store_blocks_total", "result=refused", refused),
    MODEL("sluice_model_store_bytes_total", "", store_bytes),
    DISK("sluice_tier_read_bytes_total", read_bytes),
    DISK("sluice_tier_written_bytes_total", written_bytes),
    DISK("sluice_tier_io_errors_total", io_errors),
    DISK("sluice_tier_corrupt_values_total", corrupt),
    DISK_NOW("sluice_tier_queue", queue),
    DISK_NOW("sluice_tier_in_flight", in_flight),
    DISK_NOW("sluice_tier_live_bytes", live_bytes),
    DISK_NOW("sluice_tier_used_bytes", used_bytes),
    DISK_NOW("sluice_tier_ceiling_bytes", ceiling_bytes),
    DISK_NOW("sluice_tier_write_budget_bytes", budget_bytes),
    DISK_NOW("sluice_tier_write_budget_left_bytes", budget_left_bytes),
    DISK_NOW("sluice_tier_written_today_bytes", today_bytes),
    DISK_NOW("sluice_tier_written_ever_bytes_total", ever_bytes),
    DISK_TIMES("sluice_tier_read_duration_seconds", read),
    DISK_TIMES("sluice_tier_write_duration_seconds", write),
};
/* clang-format on */

/* Where those of a kind are, and the label that has their name. */
static const struct owner {
    const char *label;
    size_t at, count_at, bytes;
    uint32_t most;
} owners[] = {
    [OF_NODE] = {"", 0, 0, 0, 1},
    [OF_ACTOR] = {"actor", offsetof(struct top_figures, actors),
                  offsetof(struct top_figures, actor_count), sizeof(struct top_actor),
                  TOP_ACTORS_MAX},
    [OF_DISK] = {"actor", offsetof(struct top_figures, disks),
                 offsetof(struct top_figures, disk_count), sizeof(struct top_disk), TOP_DISKS_MAX},
    [OF_MODEL] = {"model", offsetof(struct top_figures, models),
                  offsetof(struct top_figures, model_count), sizeof(struct top_model),
                  TOP_MODELS_MAX},
};

/* ---- one moment ---- */

static const char *label_of(const struct scrape_sample *sample, const char *name)
{
    for (uint32_t i = 0; i < sample->label_count; i++) {
        if (strcmp(sample->labels[i].name, name) == 0) {
            return sample->labels[i].value;
        }
    }
    return "";
}

static bool label_fits(const struct scrape_sample *sample, const char *label)
{
    for (uint32_t i = 0; label[0] != '\0' && i < sample->label_count; i++) {
        size_t length = strlen(sample->labels[i].name);
        if (strncmp(label, sample->labels[i].name, length) == 0 && label[length] == '=' &&
            strcmp(&label[length + 1], sample->labels[i].value) == 0) {
            return true;
        }
    }
    return label[0] == '\0';
}

/* The one of that name among those of *count rows of `bytes` each, whose first members are their names;
 * a new one when there is none. NULL: there are `most` already. */
static void *named(void *first, size_t bytes, uint32_t *count, uint32_t most, const char *name)
{
    char *row = first;
    for (uint32_t i = 0; i < *count; i++, row += bytes) {
        if (strcmp(row, name) == 0) {
            return row;
        }
    }
    if (*count == most) {
        return NULL;
    }
    (void)snprintf(row, TOP_NAME_BYTES, "%s", name);
    (*count)++;
    return row;
}

static void *owner_of(struct top_figures *figures, enum of of, const struct scrape_sample *sample)
{
    const struct owner *kind = &owners[of];
    char *first = (char *)figures + kind->at;
    return of == OF_NODE
               ? figures
               : named(first, kind->bytes, (uint32_t *)(void *)((char *)figures + kind->count_at),
                       kind->most, label_of(sample, kind->label));
}

/* Series of buckets count those of all lower ones, too: figures_read takes them apart. */
static void bucket_add(struct top_times *times, const struct scrape_sample *sample)
{
    const char *text = label_of(sample, "le");
    double end_ns = strtod(text, NULL) * 1e9;
    uint32_t i = 0;
    while (i + 1 < SL_COUNTS_BUCKETS &&
           (strcmp(text, "+Inf") == 0 || (double)sl_counts_bucket_ends_ns[i] < end_ns * 0.999)) {
        i++;
    }
    times->buckets[i] += strtoull(sample->value, NULL, 10);
}

static void row_add(void *owner, const struct row *row, const struct scrape_sample *sample)
{
    void *member = (char *)owner + row->at;
    if (row->as == AS_TIMES) {
        if (strcmp(sample->suffix, "_bucket") == 0) {
            bucket_add(member, sample);
        }
    } else if (row->as == AS_NS) {
        *(uint64_t *)member += (uint64_t)(strtod(sample->value, NULL) * 1e9);
    } else {
        *(uint64_t *)member += strtoull(sample->value, NULL, 10);
    }
}

static void state_take(struct top_figures *figures, const char *family,
                       const struct scrape_sample *sample)
{
    bool up = strcmp(family, "sluice_actor_up") == 0;
    if (!up && strcmp(family, "sluice_actor_state") != 0) {
        return;
    }
    struct top_actor *actor = owner_of(figures, OF_ACTOR, sample);
    if (actor == NULL || strcmp(sample->value, "1") != 0) {
        return;
    }
    actor->up = actor->up || up;
    if (!up) {
        (void)snprintf(actor->state, sizeof actor->state, "%s", label_of(sample, "state"));
    }
}

static void model_take(struct top_figures *figures, const char *family,
                       const struct scrape_sample *sample)
{
    struct top_model *model = NULL;
    if (strcmp(family, "sluice_model_info") == 0) {
        model = owner_of(figures, OF_MODEL, sample);
    }
    if (model != NULL) {
        (void)snprintf(model->name, sizeof model->name, "%.63s", label_of(sample, "name"));
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
    struct top_figures *figures = context;
    state_take(figures, fact->family, sample);
    model_take(figures, fact->family, sample);
    for (size_t i = 0; i < SL_COUNT(rows); i++) {
        if (strcmp(rows[i].family, fact->family) == 0 && label_fits(sample, rows[i].label)) {
            void *owner = owner_of(figures, rows[i].of, sample);
            if (owner != NULL) {
                row_add(owner, &rows[i], sample);
            }
        }
    }
}

static int name_order(const void *left, const void *right)
{
    return strverscmp(left, right); /* names are the first members */
}

static void times_apart(struct top_times *times)
{
    uint64_t below = 0;
    for (uint32_t i = 0; i < SL_COUNTS_BUCKETS; i++) {
        uint64_t up_to =
            SL_MAX(below, times->buckets[i]); /* 0: an end that the series does not have */
        times->buckets[i] = up_to - below;
        below = up_to;
    }
}

static uint32_t owner_count(const struct top_figures *figures, enum of of)
{
    const char *count = (const char *)figures + owners[of].count_at;
    return of == OF_NODE ? 1 : *(const uint32_t *)(const void *)count;
}

/* Where the one of that number is in the figures. */
static size_t owner_at(enum of of, uint32_t number)
{
    return owners[of].at + number * owners[of].bytes;
}

sl_err top_figures_read(const char *shm_dir, struct top_figures *out, struct sl_error *why)
{
    const struct scrape_sink sink = {.family = family_take, .sample = sample_take, .context = out};
    memset(out, 0, sizeof *out);
    sl_err err = scrape_node(shm_dir, &sink, why);
    if (err != SL_OK) {
        return err;
    }
    out->at_ns = sl_clock_monotonic_ns();
    for (size_t i = 0; i < SL_COUNT(rows); i++) {
        for (uint32_t k = 0; rows[i].as == AS_TIMES && k < owner_count(out, rows[i].of); k++) {
            times_apart((struct top_times *)((char *)out + owner_at(rows[i].of, k) + rows[i].at));
        }
    }
    for (uint32_t i = 0; i < out->actor_count; i++) {
        if (!out->actors[i].up) {
            (void)snprintf(out->actors[i].state, sizeof out->actors[i].state, "dead");
        }
    }
    qsort(out->actors, out->actor_count, sizeof(out->actors[0]), name_order);
    qsort(out->disks, out->disk_count, sizeof(out->disks[0]), name_order);
    qsort(out->models, out->model_count, sizeof(out->models[0]), name_order);
    return SL_OK;
}

/* ---- two moments ---- */

static uint64_t less(uint64_t now, uint64_t then)
{
    return now >= then ? now - then : now;
}

static void row_less(void *now, const void *then, const struct row *row)
{
    uint64_t *to = (uint64_t *)((char *)now + row->at);
    const uint64_t *from = (const uint64_t *)((const char *)then + row->at);
    uint32_t count = row->as == AS_TIMES ? SL_COUNTS_BUCKETS : 1;
    for (uint32_t i = 0; i < count; i++) {
        to[i] = less(to[i], from[i]);
    }
}

/* The node, actor or disk in then that is called as this one of now; NULL: there was none. Names are
 * the first members. */
static const void *partner(const struct top_figures *then, enum of of, const char *name)
{
    for (uint32_t i = 0; i < owner_count(then, of); i++) {
        const char *other = (const char *)then + owner_at(of, i);
        if (of == OF_NODE || strcmp(other, name) == 0) {
            return other;
        }
    }
    return NULL;
}

/* Two series go to one member at times. */
static bool is_repeated(size_t row)
{
    size_t i = 0;
    while (rows[i].of != rows[row].of || rows[i].at != rows[row].at) {
        i++;
    }
    return i < row;
}

void top_figures_between(const struct top_figures *then, const struct top_figures *now,
                         struct top_figures *out)
{
    *out = *now;
    out->at_ns = SL_MAX(less(now->at_ns, then->at_ns), UINT64_C(1));
    for (size_t i = 0; i < SL_COUNT(rows); i++) {
        for (uint32_t k = 0; !rows[i].gauge && !is_repeated(i) && k < owner_count(out, rows[i].of);
             k++) {
            char *to = (char *)out + owner_at(rows[i].of, k);
            const void *from = partner(then, rows[i].of, to);
            if (from != NULL) {
                row_less(to, from, &rows[i]);
            }
        }
    }
}

uint64_t top_times_quantile(const struct top_times *times, double share)
{
    uint64_t count = 0;
    uint64_t passed = 0;
    for (uint32_t i = 0; i < SL_COUNTS_BUCKETS; i++) {
        count += times->buckets[i];
    }
    for (uint32_t i = 0; count > 0 && i < SL_COUNTS_BUCKETS; i++) {
        passed += times->buckets[i];
        if ((double)passed >= share * (double)count) {
            return sl_counts_bucket_ends_ns[i];
        }
    }
    return 0;
}

uint64_t top_where_sum(const uint64_t counts[TOP_WHERE_COUNT])
{
    return counts[TOP_MEMORY] + counts[TOP_DISK] + counts[TOP_REMOTE] + counts[TOP_NONE];
}

double top_percent(uint64_t part, uint64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

struct top_hits top_hits_of(const struct top_figures *figures)
{
    struct top_hits sum = {.references = top_where_sum(figures->get_keys) +
                                         top_where_sum(figures->load_blocks)};
    for (uint32_t i = 0; i < TOP_NONE; i++) {
        sum.hits += figures->get_keys[i] + figures->load_blocks[i];
    }
    /* Counters are not read at one moment. */
    sum.ceiling = SL_MIN(sum.hits + figures->get_seen + figures->load_seen, sum.references);
    return sum;
}
