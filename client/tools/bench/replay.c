/* client/tools/bench/replay.c - sluicectl replay: takes the options, and becomes replay.py, which
 * plays. */
#include "client/tools/bench/commands.h"
#include "runtime/keys/sl_keys.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_TOKENS 512u /* that a hash id of a trace stands for */

/* Becomes replay.py. Names are words of their own: they may have bytes that JSON has not. */
__attribute__((noreturn)) static void replay_become(const struct ctl *ctl, const json_t *asked,
                                                    const char *json, const char *also)
{
    char *advice = NULL; /* where the node cannot be reached */
    size_t advice_bytes = 0;
    FILE *to = open_memstream(&advice, &advice_bytes);
    if (to != NULL) {
        ctl_no_node_say(ctl, to);
        (void)fclose(to);
    }
    const char *named[] = {ctl->words[0], ctl->config_file, json, also, advice, ctl->asks_as};
    const char *words[1 + SL_COUNT(named) + SL_COUNT(ctl->settings)] = {
        json_dumps(asked, JSON_COMPACT | JSON_ENSURE_ASCII)};
    for (size_t i = 0; i < SL_COUNT(named); i++) {
        words[1 + i] = named[i] != NULL ? named[i] : "";
    }
    memcpy(&words[1 + SL_COUNT(named)], ctl->settings, sizeof ctl->settings);
    ctl_script_become("replay.py", words);
}

/* Keys that the format has for the first so many tokens of a request. */
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
    bool shown = false, untold = false;
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
                                         {.name = "ends-told", .text = &ends},
                                         {.name = "hints-right", .text = &right},
                                         {.name = "pauses-told", .text = &pauses},
                                         {.name = "pauses-right", .text = &pauses_right},
                                         {.name = "pause-error", .text = &pause_error},
                                         {.name = "hint-seed", .count = &seed},
                                         {.name = "prefill-rate", .count = &rate},
                                         {.name = "prefill-doubles", .count = &doubles},
                                         {.name = "prefill-untold", .flag = &untold}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    if (sl_keys_format_check(format, &why) != SL_OK) {
        return ctl_wrong(ctl, "%s", why.text);
    }
    code = ctl_progress(ctl, progress, &shown);
    if (code != CTL_FINE) {
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
    replay_become(ctl, asked, json, also);
}

/* clang-format off */
const struct ctl_command ctl_replay = {
    .name = "replay",
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
            "Exit codes: 0 success, 1 mismatches, errors or losses, 2 wrong use, 3 node not reachable.",
    .run = replay_command,
    .words_min = 1,
    .words_max = 1,
    .words = "one trace",
};
/* clang-format on */
