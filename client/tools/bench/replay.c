/* client/tools/bench/replay.c - sluicectl replay: parses the options and replaces itself by
 * replay.py, which replays the trace. */
#include "client/tools/bench/commands.h"
#include "runtime/keys/sl_keys.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_TOKENS 512u /* tokens that a hash id of a trace represents */

/* Replaces the process by replay.py. File names are separate arguments: they may not be UTF-8, so
 * JSON cannot hold them. */
__attribute__((noreturn)) static void replay_exec(const struct ctl *ctl, const json_t *asked,
                                                  const char *json, const char *also)
{
    char *advice = NULL; /* for a node that cannot be reached */
    size_t advice_bytes = 0;
    FILE *to = open_memstream(&advice, &advice_bytes);
    if (to != NULL) {
        ctl_no_node_print(ctl, to);
        (void)fclose(to);
    }
    const char *named[] = {ctl->words[0], ctl->config_file, json, also, advice, ctl->asks_as};
    const char *words[1 + SL_COUNT(named) + SL_COUNT(ctl->settings)] = {
        json_dumps(asked, JSON_COMPACT | JSON_ENSURE_ASCII)};
    for (size_t i = 0; i < SL_COUNT(named); i++) {
        words[1 + i] = named[i] != NULL ? named[i] : "";
    }
    memcpy(&words[1 + SL_COUNT(named)], ctl->settings, sizeof ctl->settings);
    ctl_script_exec("replay.py", words);
}

/* Number of keys that the format has for a request of token_count tokens. */
static uint64_t key_count(const char *format, uint32_t token_count)
{
    uint64_t count = 0;
    const struct sl_keys_request request = {.format = format,
                                            .token_count = token_count,
                                            .block_tokens = BLOCK_TOKENS,
                                            .partial = true};
    (void)sl_keys_count(&request, &count, NULL);
    return count;
}

static json_t *option_json(const struct ctl_option *option)
{
    if (option->flag != NULL) {
        return json_boolean(*option->flag);
    }
    if (option->text != NULL) {
        return *option->text != NULL ? ctl_json_text(*option->text) : json_null();
    }
    return ctl_json_u64(option->count != NULL  ? *option->count
                        : option->size != NULL ? *option->size
                                               : *option->duration);
}

static int replay_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    struct sl_error why;
    bool shown = false, unreported = false;
    uint64_t ranks = 1, pools = 1, layers = 4, block_bytes = 4096, limit = UINT64_MAX, first = 0;
    uint64_t device_blocks = 0, timeout_ns = 2 * SL_NS_PER_S, published_ns = 0, window = 0;
    uint64_t seed = 1, rate = 0, doubles = 0;
    const char *format = "sluice", *progress = "auto";
    const char *speed = NULL, *json = NULL, *also = NULL, *ends = NULL, *right = NULL;
    const char *pauses = NULL, *pauses_right = NULL, *pause_error = NULL;
    const struct ctl_option options[] = {{.name = "ranks", .count = &ranks},
                                         {.name = "pools", .count = &pools},
                                         {.name = "layers", .count = &layers},
                                         {.name = "block-bytes", .size = &block_bytes},
                                         {.name = "key-format", .text = &format},
                                         {.name = "limit", .count = &limit},
                                         {.name = "speed", .text = &speed},
                                         {.name = "device-blocks", .count = &device_blocks},
                                         {.name = "op-timeout", .duration = &timeout_ns},
                                         {.name = "json", .text = &json},
                                         {.name = "progress", .text = &progress},
                                         {.name = "first", .count = &first},
                                         {.name = "also", .text = &also},
                                         {.name = "published", .duration = &published_ns},
                                         {.name = "window", .count = &window},
                                         {.name = "ends-reported", .text = &ends},
                                         {.name = "hints-right", .text = &right},
                                         {.name = "pauses-reported", .text = &pauses},
                                         {.name = "pauses-right", .text = &pauses_right},
                                         {.name = "pause-error", .text = &pause_error},
                                         {.name = "hint-seed", .count = &seed},
                                         {.name = "prefill-rate", .count = &rate},
                                         {.name = "prefill-doubles", .count = &doubles},
                                         {.name = "prefill-unreported", .flag = &unreported}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    if (sl_keys_format_check(format, &why) != SL_OK) {
        return ctl_usage_error(ctl, "%s", why.text);
    }
    code = ctl_progress(ctl, progress, &shown);
    if (code != CTL_SUCCESS) {
        return code;
    }
    json_t *asked = json_object();
    for (size_t i = 0; i < SL_COUNT(options); i++) {
        (void)json_object_set_new(asked, options[i].name, option_json(&options[i]));
    }
    bool cut = key_count(format, BLOCK_TOKENS - 1) > 0;
    bool pairs = !cut && key_count(format, BLOCK_TOKENS) == 0;
    (void)json_object_set_new(asked, "progress", json_boolean(shown));
    (void)json_object_set_new(asked, "key-of-cut-block", json_boolean(cut));
    (void)json_object_set_new(asked, "keys-of-pairs", json_boolean(pairs));
    replay_exec(ctl, asked, json, also);
}

/* clang-format off */
const struct ctl_command ctl_replay = {
    .name = "replay",
    .summary = "replay a trace as an engine would",
    .help = "replay TRACE [OPTIONS]\n"
            "\n"
            "For every request it loads the longest known prefix into device blocks, checks every byte, computes the missing blocks\n"
            "and stores them. Exit code 0: everything was replayed, without a wrong byte, a loss or an error.\n"
            "\n"
            "TRACE is a file of JSON lines as printed by `sluicectl workload`, or - for standard input. The node must run, with at\n"
            "least as many ranks. `sluicectl top` in another terminal shows it at work.\n"
            "\n"
            "  --ranks N           ranks of the engine (default 1)\n"
            "  --pools N           pools of a rank (default 1)\n"
            "  --layers N          layers of a pool (default 4); a part has one piece in each, the last takes the remainder\n"
            "  --block-bytes SIZE  size of a part: a block in one pool of one rank (default 4096)\n"
            "  --key-format F      format of block keys, as in `sluicectl keys` (default sluice)\n"
            "  --limit N           only the first N requests\n"
            "  --speed X           use the trace's times, X times as fast (default: as fast as possible)\n"
            "  --device-blocks N   blocks of each device (default: twice the longest request)\n"
            "  --op-timeout T      deadline of an op (default 2s)\n"
            "  --json OUT          write the report as JSON to a file; -: standard output\n"
            "  --progress auto|on|off\n"
            "  --first N           start with request N, counted from 0\n"
            "  --also FILES        settings files of more nodes, separated by commas: requests use the nodes in turn\n"
            "  --published T       after each request wait, up to T, until the directory knows what its node holds\n"
            "  --window N          also report hits for every N requests\n"
            "  --ends-reported SHARE   send hints for this share (0 to 1) of the sessions' ends: requests that no later one extends\n"
            "  --hints-right SHARE send with each request a hint whether its session ends; this share of them is right\n"
            "  --pauses-reported SHARE send with this share of the requests the pause until their session continues. Needs --speed,\n"
            "                      which also divides pauses\n"
            "  --pauses-right SHARE this share of those pauses is right, the others are pauses of other requests (default 1)\n"
            "  --pause-error SHARE pauses are off by up to this share (default 0)\n"
            "  --hint-seed N       seed for the choice of hints (default 1)\n"
            "  --prefill-rate N    the engine takes time to compute N tokens a second: the report has the time to first tokens, for\n"
            "                      loads and for the rest. The node knows the rate and skips blocks that are faster to compute\n"
            "  --prefill-doubles N position of the token that takes twice as long as the first (default: all take the same time)\n"
            "  --prefill-unreported    do not report the rate to the node\n"
            "  --instance NAME     name of the node; all other settings: sluicectl config --help\n"
            "Exit codes: 0 success, 1 mismatches, errors or losses, 2 wrong use, 3 node not reachable.",
    .run = replay_command,
    .words_min = 1,
    .words_max = 1,
    .words = "expected one trace",
};
/* clang-format on */
