/* client/ctl/advise.c - sluicectl advise: what another memory, policy or disk would have brought. */
#include "client/ctl/commands.h"
#include "client/model/recorded.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX    24u
#define TEXTS_MAX   12u
#define TEXT_BYTES  400u
#define REUSE_MIN   0.2
#define FEW         10000u /* references: fewer say little */
#define SMALL_GAIN  0.5    /* points */
#define MODEL_APART 1.0    /* points */
#define US_A_DAY    8.64e10
/* disk_segment's default, for nodes without a disk. */
#define SEGMENT_BYTES_DEFAULT (UINT64_C(64) * SL_MIB)

struct row {
    const struct model_policy *policy;
    uint64_t memory_bytes, disk_bytes;
    enum model_admission admission;
    uint64_t bytes_a_day; /* that may be written; 0: no limit */
    struct model_result result;
};
struct advice {
    struct model_recorded recorded;
    struct row rows[ROWS_MAX];
    uint32_t row_count, done_count;
    uint64_t budget_bytes; /* --write-budget; 0: what the node had, or half of what is written */
    bool progress;
    char texts[TEXTS_MAX][TEXT_BYTES];
    uint32_t text_count;
};

/* ---- the runs ---- */

static struct row *row_add(struct advice *advice, const struct model_policy *policy,
                           uint64_t memory_bytes, uint64_t disk_bytes)
{
    struct row *row = &advice->rows[advice->row_count++];
    *row = (struct row){.policy = policy,
                        .memory_bytes = memory_bytes,
                        .disk_bytes = disk_bytes,
                        .bytes_a_day = advice->recorded.info.header.budget_bytes};
    return row;
}

static void rows_plan(struct advice *advice)
{
    uint64_t memory = advice->recorded.info.header.memory_bytes;
    uint64_t disk = advice->recorded.info.header.disk_bytes;
    const uint64_t memories[] = {memory / 2, memory, memory * 2, memory * 4};
    const uint64_t disks[] = {disk > 0 ? disk : memory * 4, disk > 0 ? disk * 2 : memory * 16};
    for (uint32_t i = 0; i < SL_COUNT(memories); i++) {
        (void)row_add(advice, &model_lru, memories[i], 0);
        (void)row_add(advice, &model_density, memories[i], 0);
        (void)row_add(advice, &model_clairvoyant, memories[i], 0);
    }
    (void)row_add(advice, &model_unlimited, 0, 0);
    for (uint32_t i = 0; i < SL_COUNT(disks); i++) {
        (void)row_add(advice, &model_lru, memory, disks[i]);
        (void)row_add(advice, &model_density, memory, disks[i]);
        row_add(advice, &model_density, memory, disks[i])->admission = MODEL_ADMIT_REUSE;
    }
    (void)row_add(advice, &model_density, memory * 2, disks[0]);
}

static void progress_show(void *context, uint64_t requests)
{
    struct advice *advice = context;
    uint64_t of_each = SL_MAX(advice->recorded.trace.request_count, UINT64_C(1));
    if (advice->progress) {
        uint64_t all = SL_MAX(advice->row_count, advice->done_count);
        ctl_progress_bar(advice->done_count * of_each + requests, all * of_each);
    }
}

/* Segments are cut where they are more than a quarter of a disk, as at a node. */
static struct model_disk_options row_disk(const struct row *row,
                                          const struct model_disk_options *recorded,
                                          const struct sl_recording_header *header)
{
    struct model_disk_options disk = *recorded;
    disk.capacity_bytes = row->disk_bytes;
    disk.admission = row->admission;
    disk.reuse_min = REUSE_MIN;
    disk.bytes_a_day = row->bytes_a_day;
    if (header->version >= SL_RECORDING_VERSION) { /* else nothing is known of them */
        uint64_t most = row->disk_bytes / SL_MAX(header->path_count, 1u) / 4;
        uint64_t set = header->segment_bytes != 0 ? header->segment_bytes : SEGMENT_BYTES_DEFAULT;
        disk.segment_bytes = SL_MIN(set, most / SL_PAGE_BYTES * SL_PAGE_BYTES);
    }
    return disk;
}

static sl_err row_run(struct advice *advice, struct row *row, struct sl_error *why)
{
    struct model_options options = model_recorded_options(&advice->recorded);
    options.capacity_bytes = row->memory_bytes;
    options.disk = row_disk(row, &options.disk, &advice->recorded.info.header);
    options.progress = progress_show;
    options.context = advice;
    sl_err err = row->policy->run(&advice->recorded.trace, &options, &row->result);
    advice->done_count++;
    progress_show(advice, 0);
    return err == SL_OK ? SL_OK : sl_fail(why, err, "no memory for the model");
}

static sl_err rows_run(struct advice *advice, struct sl_error *why)
{
    sl_err err = SL_OK;
    for (uint32_t i = 0; i < advice->row_count && err == SL_OK; i++) {
        err = row_run(advice, &advice->rows[i], why);
    }
    return err;
}

/* ---- figures ---- */

static double points(uint64_t part, uint64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

static double row_points(const struct row *row)
{
    return points(row->result.hit_count, row->result.reference_count);
}

static const struct row *row_find(const struct advice *advice, const struct model_policy *policy,
                                  uint64_t memory_bytes, uint64_t disk_bytes,
                                  enum model_admission admission)
{
    for (uint32_t i = 0; i < advice->row_count; i++) {
        const struct row *row = &advice->rows[i];
        if (row->policy == policy && row->memory_bytes == memory_bytes &&
            row->disk_bytes == disk_bytes && row->admission == admission) {
            return row;
        }
    }
    return NULL;
}

static const struct model_policy *policy_of(const struct advice *advice)
{
    return strcmp(advice->recorded.info.header.policy, model_lru.name) == 0 ? &model_lru
                                                                            : &model_density;
}

/* The model of the node as it was. */
static const struct row *row_same(const struct advice *advice)
{
    const struct sl_recording_header *header = &advice->recorded.info.header;
    return row_find(advice, policy_of(advice), header->memory_bytes, header->disk_bytes,
                    MODEL_ADMIT_ALL);
}

static uint64_t node_references(const struct advice *advice)
{
    return advice->recorded.load_count + advice->recorded.store_count;
}

static double node_points(const struct advice *advice)
{
    return points(advice->recorded.load_count, node_references(advice));
}

/* ---- words ---- */

static void say(struct advice *advice, const char *format, ...) SL_PRINTF(2, 3);
static void say(struct advice *advice, const char *format, ...)
{
    va_list arguments;
    if (advice->text_count < TEXTS_MAX) {
        va_start(arguments, format);
        (void)vsnprintf(advice->texts[advice->text_count++], TEXT_BYTES, format, arguments);
        va_end(arguments);
    }
}

/* "12,345 blocks (96.4 MiB), 6.3 million tokens" more than the row of the node as it was. */
static const char *gain_text(const struct advice *advice, const struct row *row, char out[160])
{
    const struct model_result *now = &row_same(advice)->result;
    char size[32];
    char tokens[64] = "";
    uint64_t blocks = row->result.hit_count - SL_MIN(now->hit_count, row->result.hit_count);
    uint64_t bytes = row->result.hit_bytes - SL_MIN(now->hit_bytes, row->result.hit_bytes);
    uint64_t saved = row->result.tokens_saved - SL_MIN(now->tokens_saved, row->result.tokens_saved);
    if (row->result.tokens > 0) {
        (void)snprintf(tokens, sizeof(tokens), ", %.2f million tokens not computed",
                       (double)saved / 1e6);
    }
    (void)snprintf(out, 160, "%" PRIu64 " blocks (%s) more from the cache%s", blocks,
                   ctl_size_text(bytes, size), tokens);
    return out;
}

static void say_node(struct advice *advice)
{
    const struct model_recorded *recorded = &advice->recorded;
    const struct sl_recording_header *header = &recorded->info.header;
    char memory[32], disk[32];
    double model = row_points(row_same(advice));
    say(advice,
        "This node hit %.1f %% of %" PRIu64
        " references to blocks in %.1f min, with %s of memory%s%s "
        "(policy %s). The model says %.1f %%.",
        node_points(advice), node_references(advice), (double)recorded->span_us / 6e7,
        ctl_size_text(header->memory_bytes, memory),
        header->disk_bytes > 0 ? " and a disk of " : "",
        header->disk_bytes > 0 ? ctl_size_text(header->disk_bytes, disk) : "", header->policy,
        model);
    if (model - node_points(advice) > MODEL_APART || node_points(advice) - model > MODEL_APART) {
        say(advice,
            "These are more than a point apart: pins, leases, lost events and requests that overlap are "
            "not in the model. Take what follows as a direction.");
    }
    if (header->version < SL_RECORDING_VERSION) {
        say(advice,
            "The recording is of an older version: segments of the disk are not in the model, what names "
            "values there is guessed, and no budget of writes is known.");
    }
    if (recorded->lost_count > 0) {
        say(advice,
            "%" PRIu64 " events are missing: the registrar or its disk was too slow for them.",
            recorded->lost_count);
    }
    if (recorded->full) {
        say(advice, "The recording had its largest size (record_max): it ends before the present.");
    }
    if (recorded->info.torn_bytes > 0) {
        say(advice,
            "The last %" PRIu64 " bytes are of a frame that was not completed, and are left "
            "out.",
            recorded->info.torn_bytes);
    }
    if (recorded->info.damaged_count > 0) {
        say(advice,
            "The recording is damaged at %" PRIu64 " places, of %" PRIu64
            " bytes. What they told is missing.",
            recorded->info.damaged_count, recorded->info.damaged_bytes);
    }
    if (node_references(advice) < FEW) {
        say(advice, "That is little: record some hours of your traffic before you buy anything.");
    }
}

static void say_memory(struct advice *advice)
{
    const struct sl_recording_header *header = &advice->recorded.info.header;
    const struct row *now = row_same(advice);
    const struct row *twice = row_find(advice, policy_of(advice), header->memory_bytes * 2,
                                       header->disk_bytes, MODEL_ADMIT_ALL);
    const struct row *all = row_find(advice, &model_unlimited, 0, 0, MODEL_ADMIT_ALL);
    char size[32], gain[160];
    (void)ctl_size_text(header->memory_bytes * 2, size);
    double more = twice != NULL ? row_points(twice) - row_points(now) : 0;
    if (twice != NULL && more < SMALL_GAIN) {
        say(advice, "Twice the memory (%s) would bring next to nothing: %.1f points.", size, more);
    } else if (twice != NULL) {
        say(advice, "Twice the memory (%s) would bring %.1f points: %s.", size, more,
            gain_text(advice, twice, gain));
    }
    say(advice, "No memory, however large, brings more than %.1f %%: the rest was asked for once.",
        row_points(all));
}

static uint64_t written_a_day(const struct advice *advice, const struct row *row)
{
    double days = SL_MAX((double)advice->recorded.span_us / US_A_DAY, 1e-9);
    return (uint64_t)((double)row->result.written_bytes / days);
}

static void say_disk(struct advice *advice)
{
    const struct sl_recording_header *header = &advice->recorded.info.header;
    const struct row *now = row_same(advice);
    bool has = header->disk_bytes > 0;
    uint64_t disk_bytes = has ? header->disk_bytes * 2 : header->memory_bytes * 4;
    const struct row *disk =
        row_find(advice, policy_of(advice), header->memory_bytes, disk_bytes, MODEL_ADMIT_ALL);
    const struct row *picky =
        row_find(advice, &model_density, header->memory_bytes, disk_bytes, MODEL_ADMIT_REUSE);
    char size[32], written[32], gain[160];
    double more = row_points(disk) - row_points(now);
    say(advice,
        "%s (%s) would bring %.1f points: %s. It would be written %s a day, if traffic goes on like "
        "this.",
        has ? "Twice the disk" : "A disk of four times the memory", ctl_size_text(disk_bytes, size),
        more, gain_text(advice, disk, gain), ctl_size_text(written_a_day(advice, disk), written));
    if (disk->result.written_count > 0) {
        double share = points(picky->result.written_count, disk->result.written_count);
        say(advice,
            "Writing only what is likely to be asked for again (a chance of %.0f %%) would write "
            "%.0f %% of that, for %+.1f points.",
            100 * REUSE_MIN, share, row_points(picky) - row_points(disk));
    }
}

/* A row of its own, once it is known what would be written without it. */
static sl_err budget_run(struct advice *advice, struct sl_error *why)
{
    const struct sl_recording_header *header = &advice->recorded.info.header;
    uint64_t disk_bytes = header->disk_bytes > 0 ? header->disk_bytes : header->memory_bytes * 4;
    const struct row *all =
        row_find(advice, &model_density, header->memory_bytes, disk_bytes, MODEL_ADMIT_ALL);
    uint64_t half = SL_MAX(written_a_day(advice, all) / 2, UINT64_C(1));
    struct row *row = row_add(advice, &model_density, header->memory_bytes, disk_bytes);
    row->bytes_a_day = advice->budget_bytes != 0 ? advice->budget_bytes : half;
    sl_err err = row_run(advice, row, why);
    if (err == SL_OK) {
        char size[32], written[32], disk[32];
        say(advice,
            "With a budget of %s a day (disk_write_budget) a disk of %s would be written %s a day, and "
            "%.1f %% would be hit: %+.1f points beside %s.",
            ctl_size_text(row->bytes_a_day, size), ctl_size_text(disk_bytes, disk),
            ctl_size_text(written_a_day(advice, row), written), row_points(row),
            row_points(row) - row_points(all),
            all->bytes_a_day != 0 ? "the budget that the node had" : "no budget");
    }
    return err;
}

static void say_policy(struct advice *advice)
{
    const struct sl_recording_header *header = &advice->recorded.info.header;
    const struct model_policy *other =
        policy_of(advice) == &model_lru ? &model_density : &model_lru;
    const struct row *row =
        row_find(advice, other, header->memory_bytes, header->disk_bytes, MODEL_ADMIT_ALL);
    const struct row *best =
        row_find(advice, &model_clairvoyant, header->memory_bytes, 0, MODEL_ADMIT_ALL);
    say(advice,
        "With evict_policy %s it would be %.1f %%; who knew all requests to come would get "
        "%.1f %% from memory alone.",
        other->name, row_points(row), row_points(best));
}

/* ---- output ---- */

static const char *row_writes(const struct row *row)
{
    bool reuse = row->admission == MODEL_ADMIT_REUSE;
    return row->disk_bytes == 0   ? "none"
           : row->bytes_a_day > 0 ? "budget"
           : reuse                ? "reuse"
                                  : "all";
}

static void row_print(const struct row *row, double now_points)
{
    char memory[32], disk[32];
    printf("  %10s %10s  %-12s %-6s %7.2f %+7.2f %8.2f",
           row->memory_bytes > 0 ? ctl_size_text(row->memory_bytes, memory) : "all",
           row->disk_bytes > 0 ? ctl_size_text(row->disk_bytes, disk) : "-", row->policy->name,
           row->disk_bytes > 0 ? row_writes(row) : "", row_points(row),
           row_points(row) - now_points,
           points(row->result.memory_hit_count, row->result.reference_count));
    if (row->result.tokens > 0) {
        printf(" %9.2f", points(row->result.tokens_saved, row->result.tokens));
    } else {
        printf(" %9s", "?");
    }
    if (row->disk_bytes > 0) {
        printf(" %9.2f", points(row->result.written_count, row->result.reference_count));
    }
    (void)putchar('\n');
}

static void advice_print(const struct advice *advice)
{
    for (uint32_t i = 0; i < advice->text_count; i++) {
        printf("%s\n", advice->texts[i]);
    }
    printf("\nIn %% of references (tokens: in %% of tokens), beside this node as it was:\n\n"
           "  %10s %10s  %-12s %-6s %7s %7s %8s %9s %9s\n",
           "memory", "disk", "policy", "writes", "hits", "", "memory", "tokens", "written");
    for (uint32_t i = 0; i < advice->row_count; i++) {
        row_print(&advice->rows[i], row_points(row_same(advice)));
    }
}

static json_t *row_json(const struct row *row)
{
    const struct model_result *result = &row->result;
    return json_pack(
        "{s:s, s:o, s:o, s:s, s:o, s:f, s:f, s:f, s:o, s:o, s:f, s:o, s:o, s:o}", "policy",
        row->policy->name, "memory_bytes", ctl_json_u64(row->memory_bytes), "disk_bytes",
        ctl_json_u64(row->disk_bytes), "admission",
        row->disk_bytes == 0                  ? "none"
        : row->admission == MODEL_ADMIT_REUSE ? "reuse"
                                              : "all",
        "write_budget", ctl_json_u64(row->bytes_a_day), "hit_share", row_points(row) / 100,
        "memory_hit_share", points(result->memory_hit_count, result->reference_count) / 100,
        "tokens_saved_share", points(result->tokens_saved, result->tokens) / 100, "hit_bytes",
        ctl_json_u64(result->hit_bytes), "tokens_saved", ctl_json_u64(result->tokens_saved),
        "flops_saved", result->flops_saved, "written", ctl_json_u64(result->written_count),
        "written_bytes", ctl_json_u64(result->written_bytes), "rewritten",
        ctl_json_u64(result->rewritten_count));
}

static void advice_json(const struct advice *advice)
{
    const struct model_recorded *recorded = &advice->recorded;
    const struct sl_recording_header *header = &recorded->info.header;
    json_t *rows = json_array();
    json_t *texts = json_array();
    for (uint32_t i = 0; i < advice->row_count; i++) {
        (void)json_array_append_new(rows, row_json(&advice->rows[i]));
    }
    for (uint32_t i = 0; i < advice->text_count; i++) {
        (void)json_array_append_new(texts, json_string(advice->texts[i]));
    }
    json_t *node = json_pack(
        "{s:o, s:o, s:o, s:o, s:s, s:o, s:f, s:f, s:f}", "memory_bytes",
        ctl_json_u64(header->memory_bytes), "disk_bytes", ctl_json_u64(header->disk_bytes),
        "segment_bytes", ctl_json_u64(header->segment_bytes), "write_budget",
        ctl_json_u64(header->budget_bytes), "policy", header->policy, "references",
        ctl_json_u64(node_references(advice)), "hit_share", node_points(advice) / 100,
        "disk_hit_share", points(recorded->disk_count, node_references(advice)) / 100,
        "model_hit_share", row_points(row_same(advice)) / 100);
    json_t *about = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o}", "began_unix_ns",
        ctl_json_u64(header->began_unix_ns), "span_us", ctl_json_u64(recorded->span_us), "events",
        ctl_json_u64(recorded->info.event_count), "requests",
        ctl_json_u64(recorded->trace.request_count), "lost", ctl_json_u64(recorded->lost_count),
        "restarts", ctl_json_u64(recorded->restart_count), "torn_bytes",
        ctl_json_u64(recorded->info.torn_bytes), "damaged_bytes",
        ctl_json_u64(recorded->info.damaged_bytes), "full", recorded->full, "there_before",
        ctl_json_u64(recorded->before_count), "removed", ctl_json_u64(recorded->gone_count));
    ctl_print_json(json_pack("{s:o, s:o, s:o, s:o}", "recording", about, "node", node, "rows", rows,
                             "advice", texts));
}

/* ---- the command ---- */

static sl_err advise(struct advice *advice, const char *path, struct sl_error *why)
{
    sl_err err = model_recorded_read(path, &advice->recorded, why);
    if (err != SL_OK) {
        return err;
    }
    if (node_references(advice) == 0 || advice->recorded.info.header.memory_bytes == 0) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "'%s' has no use of a block yet", path);
    }
    rows_plan(advice);
    err = rows_run(advice, why);
    if (err == SL_OK) {
        say_node(advice);
        say_memory(advice);
        say_disk(advice);
        err = budget_run(advice, why);
    }
    if (err == SL_OK) {
        say_policy(advice);
    }
    if (advice->progress) {
        (void)fputc('\n', stderr);
    }
    return err;
}

static int advise_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    const char *progress = "auto";
    struct sl_error why = {0};
    struct advice *advice = calloc(1, sizeof(*advice));
    if (advice == NULL) {
        return CTL_NO;
    }
    const struct ctl_option options[] = {{.name = "progress", .text = &progress},
                                         {.name = "write-budget", .size = &advice->budget_bytes}};
    if (ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        const char *path =
            ctl->word_count > 0 ? ctl->words[0] : sl_config_text(ctl->config, SL_SET_record);
        code = ctl_progress(ctl, progress, &advice->progress);
        if (code == CTL_FINE && (ctl->word_count > 1 || path[0] == '\0')) {
            code = ctl_wrong(ctl, "one recording, or the setting record");
        } else if (code == CTL_FINE && advise(advice, path, &why) != SL_OK) {
            (void)ctl_failed(ctl, &why);
            code = CTL_NO; /* no node is asked */
        } else if (code == CTL_FINE && ctl->json) {
            advice_json(advice);
        } else if (code == CTL_FINE) {
            advice_print(advice);
        }
    }
    model_recorded_free(&advice->recorded);
    free(advice);
    return code;
}

/* clang-format off */
const struct ctl_command ctl_advise = {
    .name = "advise",
    .summary = "say what more memory or a disk would bring, from what a node recorded",
    .help = "advise [FILE]\n"
            "\n"
            "Runs models of eviction and disks on a recording of a node, which makes one with --record FILE (no keys are in it),\n"
            "and says what they would have hit: half, the same, twice and four times the memory; with lru, density, and a\n"
            "clairvoyant; with disks. FILE is that of the setting record unless it is named. It may still grow.\n"
            "\n"
            "What it sees: every value and block that was stored, and every use of one that was there. A look-up that found\n"
            "nothing and was followed by no store is not seen. Tokens are those of whole blocks.\n"
            "\n"
            "  --write-budget SIZE  bytes a day that may be written to a disk, for one of the rows (default: half of what would be)\n"
            "  --progress auto|on|off\n"
            CTL_HELP_COMMON,
    .run = advise_command,
};
/* clang-format on */
