/* client/bench/replay.c - plays a trace as an engine of N ranks would, and reports. */
#include "client/bench/commands.h"
#include "client/bench/replay_engine.h"
#include "runtime/keys/sl_keys.h"
#include "runtime/sl_parse.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PAGE_KEPT_S   600 /* pages of ended replays serve `trace` for so long */
#define SPEED_STEP_NS (20 * SL_NS_PER_MS)
#define WORLD_MAX     64u
#define POOLS_MAX     8u
#define DEVICE_MAX    (1u << 24) /* blocks */

/* What the engine says about sessions. */
static int hints_check(struct ctl *ctl, struct replay_options *options, const char *ends_told,
                       const char *hints_right)
{
    struct replay_hints_options *hints = &options->hints;
    const char *text = ends_told != NULL ? ends_told : hints_right;
    if (ends_told != NULL && hints_right != NULL) {
        return ctl_wrong(ctl, "--ends-told or --hints-right, not both");
    }
    if (text == NULL) {
        return CTL_FINE;
    }
    hints->kind = ends_told != NULL ? REPLAY_HINTS_ENDS : REPLAY_HINTS_ALL;
    if (!sl_parse_real(text, &hints->share) || !(hints->share >= 0 && hints->share <= 1)) {
        return ctl_wrong(ctl, "'%s' is not a share from 0 to 1", text);
    }
    return CTL_FINE;
}

/* What is told of pauses, from texts: share, share of those that are right, how far off. */
static int pauses_check(struct ctl *ctl, struct replay_options *options, const char *const text[3])
{
    struct replay_pause_options *pauses = &options->pauses;
    double *const out[] = {&pauses->told, &pauses->right, &pauses->error};
    pauses->right = 1;
    pauses->seed = options->hints.seed;
    for (uint32_t i = 0; i < SL_COUNT(out); i++) {
        if (text[i] != NULL &&
            (!sl_parse_real(text[i], out[i]) || !(*out[i] >= 0 && *out[i] <= 1))) {
            return ctl_wrong(ctl, "'%s' is not a share from 0 to 1", text[i]);
        }
    }
    return pauses->told > 0 && options->speed <= 0
               ? ctl_wrong(
                     ctl,
                     "--pauses-told needs --speed: without the trace's times there is no pause")
               : CTL_FINE;
}

static int options_check(struct ctl *ctl, struct replay_options *options, const char *speed,
                         const char *progress)
{
    struct sl_error why;
    options->trace_path = ctl->words[0];
    if (options->ranks < 1 || options->ranks > WORLD_MAX || options->pools < 1 ||
        options->pools > POOLS_MAX) {
        return ctl_wrong(ctl, "1 to %u ranks, 1 to %u pools", WORLD_MAX, POOLS_MAX);
    }
    if (options->layers < 1 || options->layers > REPLAY_LAYERS_MAX ||
        options->block_bytes < options->layers || options->block_bytes > SL_VALUE_BYTES_MAX) {
        return ctl_wrong(ctl, "1 to %u layers, and --block-bytes at least as many, at most 1 GiB",
                         REPLAY_LAYERS_MAX);
    }
    if (sl_keys_format_check(options->key_format, &why) != SL_OK) {
        return ctl_wrong(ctl, "%s", why.text);
    }
    if (options->limit == 0 || options->op_timeout_ns == 0 || options->device_blocks > DEVICE_MAX) {
        return ctl_wrong(ctl, "--limit and --op-timeout are above 0, --device-blocks at most %u",
                         DEVICE_MAX);
    }
    if (options->prefill.tokens_per_s > SL_PREFILL_LIMIT ||
        options->prefill.doubles_at_token > SL_PREFILL_LIMIT ||
        (options->prefill.tokens_per_s == 0 &&
         (options->prefill.doubles_at_token > 0 || options->prefill_untold))) {
        return ctl_wrong(ctl,
                         "--prefill-rate and --prefill-doubles are at most 2^40, and the others "
                         "of --prefill need a rate");
    }
    options->speed = 0;
    if (speed != NULL &&
        (!sl_parse_real(speed, &options->speed) || !(options->speed > 0) || options->speed > 1e9)) {
        return ctl_wrong(ctl, "--speed '%s' is not a number above 0", speed);
    }
    return ctl_progress(ctl, progress, &options->progress);
}

/* Removes the pages of replays that ended long ago. */
static void pages_tidy(const struct ctl *ctl)
{
    SL_AUTO(closedir) DIR *directory = opendir(ctl->paths.shm_dir);
    if (directory == NULL) {
        return;
    }
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        struct stat about;
        struct sl_proc_id proc;
        const char *rest = NULL;
        uint64_t pid = 0;
        if (strncmp(entry->d_name, "metrics.client.", 15) != 0) {
            continue;
        }
        if (sl_parse_digits(entry->d_name + 15, &pid, &rest) == SL_OK && *rest == '.' &&
            pid <= UINT32_MAX && sl_proc_id_of((uint32_t)pid, &proc, NULL) == SL_ERR_NOT_FOUND &&
            fstatat(dirfd(directory), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
            time(NULL) - about.st_mtime > PAGE_KEPT_S) {
            (void)unlinkat(dirfd(directory), entry->d_name, 0);
        }
    }
}

struct evictions {
    uint64_t blocks;
};

/* Every block that left the node: by eviction without a disk copy, by removal, by its time to live,
 * by a bad disk. What was evicted from memory to disk is still there. */
static bool page_evictions(void *context, struct sl_metrics_view *view)
{
    struct evictions *evictions = context;
    struct sl_metrics_summary summary;
    sl_metrics_view_summary(view, &summary);
    if (strcmp(summary.actor, "registrar") == 0) {
        evictions->blocks += ctl_page_metric(view, "dropped_count");
    }
    return true;
}

static uint64_t evicted_so_far(const struct replay *replay)
{
    struct evictions evictions = {0};
    for (uint32_t i = 0; i < replay->side_count; i++) {
        (void)ctl_pages(replay->sides[i].ctl, page_evictions, &evictions);
    }
    return evictions.blocks;
}

/* Keeps the trace's own times. */
static void wait_for_time(const struct replay *replay, const struct replay_request *request,
                          uint64_t started_ns)
{
    if (replay->options.speed <= 0) {
        return;
    }
    double offset_ms = (double)(request->timestamp_ms - replay->trace.requests[0].timestamp_ms) /
                       replay->options.speed;
    uint64_t due_ns = started_ns + (uint64_t)(offset_ms * 1e6);
    for (uint64_t now_ns; (now_ns = sl_clock_monotonic_ns()) < due_ns;) {
        uint64_t step_ns = SL_MIN(due_ns - now_ns, SPEED_STEP_NS);
        struct timespec pause = {.tv_nsec = (long)step_ns};
        (void)nanosleep(&pause, NULL);
        sl_metrics_beat(replay->side->metrics, now_ns);
    }
}

static void play(struct replay *replay)
{
    uint64_t evicted_before = evicted_so_far(replay);
    uint64_t started_ns = sl_clock_monotonic_ns();
    for (uint64_t i = replay->options.first; i < replay->trace.request_count; i++) {
        const struct replay_request *request = &replay->trace.requests[i];
        if (request->timestamp_ms >= replay->trace.requests[0].timestamp_ms) {
            wait_for_time(replay, request, started_ns);
        }
        replay->side = &replay->sides[i % replay->side_count];
        replay_request_play(replay, i);
        replay_published_wait(replay);
        replay_window_note(replay, started_ns, i + 1 == replay->trace.request_count);
        replay_progress(replay, i + 1, started_ns, i + 1 == replay->trace.request_count);
    }
    struct replay_report *report = &replay->report;
    uint64_t evicted_after = evicted_so_far(replay);
    report->wall_ns = sl_clock_monotonic_ns() - started_ns;
    report->evicted =
        evicted_after >= evicted_before ? evicted_after - evicted_before : evicted_after;
    report->lost = report->misses_of_acknowledged > report->evicted
                       ? report->misses_of_acknowledged - report->evicted
                       : 0;
}

static int report_write(const struct ctl *ctl, const struct replay *replay)
{
    static const char *const words[] = {"replay", NULL};
    const char *path = replay->options.json_path;
    json_t *object = replay_json(replay);
    if (path != NULL && strcmp(path, "-") == 0) {
        ctl_print_json(object);
        return CTL_FINE;
    }
    size_t flags = JSON_INDENT(1) | JSON_REAL_PRECISION(12);
    int failed = path != NULL ? json_dump_file(object, path, flags) : 0;
    int os_code = errno;
    int code = ctl_script_print("text.py", words, object);
    if (failed != 0) {
        struct sl_error why;
        (void)sl_fail_os(&why, os_code, "write '%s'", path);
        return ctl_failed(ctl, &why);
    }
    return code;
}

/* Twice the longest request by default: so many may still be lent to an op that is not fenced. */
static int devices_size(struct ctl *ctl, struct replay *replay)
{
    struct replay_options *options = &replay->options;
    if (replay->trace.request_count <= options->first) {
        return ctl_wrong(ctl, "'%s' has %" PRIu64 " requests, no number %" PRIu64,
                         options->trace_path, replay->trace.request_count, options->first);
    }
    if (options->device_blocks == 0) {
        options->device_blocks = 2 * (uint64_t)replay->trace.blocks_max;
    }
    if (options->device_blocks < replay->trace.blocks_max) {
        return ctl_wrong(ctl, "the longest request has %u blocks, --device-blocks is %" PRIu64,
                         replay->trace.blocks_max, options->device_blocks);
    }
    return CTL_FINE;
}

static bool page_of_rank(void *context, struct sl_metrics_view *view)
{
    uint64_t *ranks = context;
    struct sl_metrics_summary summary;
    sl_metrics_view_summary(view, &summary);
    *ranks += strncmp(summary.actor, "swapper.", 8) == 0 ? 1 : 0;
    return true;
}

/* What every op would be refused for is said before the first one. */
static int ranks_check(struct ctl *ctl, const struct replay *replay)
{
    for (uint32_t i = 0; i < replay->side_count; i++) {
        uint64_t ranks = 0;
        (void)ctl_pages(replay->sides[i].ctl, page_of_rank, &ranks);
        if (ranks > 0 && ranks < replay->options.ranks) {
            return ctl_wrong(ctl,
                             "--ranks %" PRIu64 ", and node '%s' was started with --ranks %" PRIu64,
                             replay->options.ranks,
                             sl_config_text(replay->sides[i].ctl->config, SL_SET_instance), ranks);
        }
    }
    return CTL_FINE;
}

static int replay_run(struct ctl *ctl, struct replay *replay)
{
    struct sl_error why = {0};
    if (replay_trace_read(replay->options.trace_path, replay->options.limit, REPLAY_BLOCK_TOKENS,
                          &replay->trace, &why) != SL_OK) {
        (void)ctl_failed(ctl, &why);
        return why.code == SL_ERR_INVALID || why.code == SL_ERR_NOT_FOUND ? CTL_WRONG_USE : CTL_NO;
    }
    int code = devices_size(ctl, replay);
    if (code != CTL_FINE) {
        return code;
    }
    pages_tidy(ctl);
    if (replay_engine_open(replay, ctl, &why) != SL_OK) {
        return ctl_failed(ctl, &why);
    }
    code = ranks_check(ctl, replay);
    if (code != CTL_FINE) {
        return code;
    }
    play(replay);
    code = report_write(ctl, replay);
    const struct replay_report *report = &replay->report;
    bool good = report->mismatches == 0 && report->errors == 0 && report->lost == 0;
    return code != CTL_FINE ? code : good ? CTL_FINE : CTL_NO;
}

static int replay_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    const char *speed = NULL;
    const char *progress = "auto";
    const char *ends_told = NULL;
    const char *hints_right = NULL;
    const char *pauses[3] = {NULL, NULL, NULL};
    struct replay *replay = calloc(1, sizeof *replay);
    if (replay == NULL) {
        return CTL_NO;
    }
    replay->options = (struct replay_options){.key_format = "sluice",
                                              .ranks = 1,
                                              .pools = 1,
                                              .layers = 4,
                                              .block_bytes = 4096,
                                              .limit = UINT64_MAX,
                                              .op_timeout_ns = 2 * SL_NS_PER_S,
                                              .hints = {.seed = 1}};
    struct replay_options *asked = &replay->options;
    const struct ctl_option options[] = {
        {.name = "ranks", .count = &asked->ranks},
        {.name = "pools", .count = &asked->pools},
        {.name = "layers", .count = &asked->layers},
        {.name = "block-bytes", .size = &asked->block_bytes},
        {.name = "key-format", .text = &asked->key_format},
        {.name = "limit", .count = &asked->limit},
        {.name = "speed", .text = &speed},
        {.name = "device-blocks", .count = &asked->device_blocks},
        {.name = "op-timeout", .duration = &asked->op_timeout_ns},
        {.name = "json", .text = &asked->json_path},
        {.name = "progress", .text = &progress},
        {.name = "first", .count = &asked->first},
        {.name = "also", .text = &asked->also},
        {.name = "published", .duration = &asked->published_ns},
        {.name = "window", .count = &asked->window},
        {.name = "ends-told", .text = &ends_told},
        {.name = "hints-right", .text = &hints_right},
        {.name = "pauses-told", .text = &pauses[0]},
        {.name = "pauses-right", .text = &pauses[1]},
        {.name = "pause-error", .text = &pauses[2]},
        {.name = "hint-seed", .count = &asked->hints.seed},
        {.name = "prefill-rate", .count = &asked->prefill.tokens_per_s},
        {.name = "prefill-doubles", .count = &asked->prefill.doubles_at_token},
        {.name = "prefill-untold", .flag = &asked->prefill_untold}};
    if (ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        code = options_check(ctl, asked, speed, progress);
        code = code == CTL_FINE ? hints_check(ctl, asked, ends_told, hints_right) : code;
        code = code == CTL_FINE ? pauses_check(ctl, asked, pauses) : code;
        if (code == CTL_FINE) {
            code = replay_run(ctl, replay);
        }
    }
    replay_engine_close(replay);
    free(replay);
    return code;
}

/* clang-format off */
const struct ctl_command ctl_replay = {
    .name = "replay",
    .registers = true,
    .summary = "play a trace as an engine would",
    .help = "replay TRACE [OPTIONS]\n"
            "\n"
            "For every request: loads the longest known prefix into device blocks, checks every byte, computes what is missing,\n"
            "stores it. Code 0: everything was replayed, no wrong byte, nothing lost, no error.\n"
            "\n"
            "TRACE is a file of JSON lines as `sluicectl workload` prints, or - for standard input. The node is running, and has\n"
            "at least as many ranks. See it at work by `sluicectl top` in another terminal.\n"
            "\n"
            "  --ranks N           ranks of the engine (default 1)\n"
            "  --pools N           pools of a rank (default 1)\n"
            "  --layers N          layers of a pool (default 4); a part is cut into as many pieces, the remainder in the last\n"
            "  --block-bytes SIZE  one part: one rank, one pool (default 4096)\n"
            "  --key-format F      how block keys are made, as in `sluicectl keys` (default sluice)\n"
            "  --limit N           only the first N requests\n"
            "  --speed X           keep the trace's times, X times as fast (default: as fast as possible)\n"
            "  --device-blocks N   blocks of each device (default: twice the longest request)\n"
            "  --op-timeout T      deadline of an op (default 2s)\n"
            "  --json OUT          the report as JSON, to a file, - is standard output\n"
            "  --progress auto|on|off\n"
            "  --first N           begin with request N of them, counted from 0\n"
            "  --also FILES        config files of more nodes, separated by commas: requests go to the nodes in turn\n"
            "  --published T       after each request wait until the directory knows what its node holds, T at most\n"
            "  --window N          report hits for every N requests too\n"
            "  --ends-told SHARE   tell the node of this share of the sessions' ends, 0 to 1: requests that no later one extends\n"
            "  --hints-right SHARE tell with each request whether its session ends, right in this share of them\n"
            "  --pauses-told SHARE tell with this share of the requests after how long their session goes on; needs --speed,\n"
            "                      by which pauses are divided, too\n"
            "  --pauses-right SHARE so many of those are right, the others tell the pause of another request (default 1)\n"
            "  --pause-error SHARE what is told is off by up to this share of it (default 0)\n"
            "  --hint-seed N       draws which (default 1)\n"
            "  --prefill-rate N    tokens a second that the engine computes, and takes that time for: the report has the time to\n"
            "                      first tokens, loads and the rest. The node is told, and leaves what is sooner computed\n"
            "  --prefill-doubles N place of the token that takes twice as long as the first (default: all take as long)\n"
            "  --prefill-untold    the node is not told\n"
            "  --instance NAME     the node meant, and all other settings: sluicectl config --help\n"
            "Exit codes: 0 fine, 1 mismatches, errors or losses, 2 wrong use, 3 node not reachable.",
    .run = replay_command,
    .words_min = 1,
    .words_max = 1,
    .words = "one trace",
};
/* clang-format on */
