/* client/tools/ctl/explain.c - sluicectl explain: why a key, block or request is a miss. */
#include "client/tools/ctl/explain.h"
#include "runtime/keys/sl_keys.h"

#include <inttypes.h>
#include <string.h>

static const char *word_of(sl_err code)
{
    return code == SL_OK              ? "there"
           : code == SL_ERR_BUSY      ? "busy"
           : code == SL_ERR_NOT_FOUND ? "miss"
                                      : sl_err_text(code);
}

json_t *explain_json(struct sl_object_key key, const struct sl_miss_reason *reason)
{
    return json_pack("{s:o, s:s, s:s, s:o, s:o}", "key", ctl_json_bytes(key.at, key.length), "code",
                     sl_err_name(reason->code), "word", word_of(reason->code), "text",
                     ctl_json_text(reason->text), "ago_ns", ctl_json_u64(reason->ago_ns));
}

sl_err explain_keys(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                    struct sl_miss_reason *reasons, struct sl_error *why)
{
    for (uint32_t first = 0, share; first < count; first += share) {
        share = SL_MIN(count - first, SL_EXPLAIN_KEYS_MAX);
        sl_err err = sl_explain(client, &keys[first], share, &reasons[first], 0, why);
        if (err != SL_OK) {
            return err;
        }
    }
    return SL_OK;
}

static int explain_words(struct ctl *ctl)
{
    static char *texts[SL_EXPLAIN_KEYS_MAX]; /* keys of standard input; never freed */
    static size_t rooms[SL_EXPLAIN_KEYS_MAX];
    struct sl_error why = {0};
    struct sl_object_key keys[SL_EXPLAIN_KEYS_MAX];
    struct sl_miss_reason reasons[SL_EXPLAIN_KEYS_MAX];
    bool all = true, listed = ctl->word_count == 1 && strcmp(ctl->words[0], "-") == 0;
    uint32_t count;
    json_t *rows = json_array();
    struct sl_client *client = NULL;
    sl_err err = ctl_open(ctl, false, &client, &why);
    do {
        for (count = 0; count < SL_EXPLAIN_KEYS_MAX; count++) {
            if (listed ? getdelim(&texts[count], &rooms[count], '\0', stdin) <= 0
                       : (int)count == ctl->word_count) {
                break;
            }
            keys[count] = ctl_key(listed ? texts[count] : ctl->words[count]);
        }
        err = err == SL_OK ? explain_keys(client, keys, count, reasons, &why) : err;
        for (uint32_t i = 0; err == SL_OK && i < count; i++) {
            all = all && reasons[i].code == SL_OK;
            (void)json_array_append_new(rows, explain_json(keys[i], &reasons[i]));
        }
    } while (err == SL_OK && listed && count == SL_EXPLAIN_KEYS_MAX);
    sl_client_close(&client);
    if (err != SL_OK) {
        json_decref(rows);
        return ctl_failed(ctl, &why);
    }
    int code = ctl_answer(ctl, json_pack("{s:o}", "keys", rows));
    return code == CTL_SUCCESS && !all ? CTL_NO : code;
}

static int explain_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    const char *request = NULL;
    char block_tokens[24] = "";
    const char *path = NULL, *model = NULL, *format = NULL, *seed = NULL;
    uint64_t token_count = 0;
    const struct ctl_option options[] = {
        {.name = "request", .text = &request}, {.name = "tokens", .text = &path},
        {.name = "model", .text = &model},     {.name = "format", .text = &format},
        {.name = "seed", .text = &seed},       {.name = "block-tokens", .count = &token_count}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    bool of_tokens = model != NULL || format != NULL || seed != NULL || token_count != 0;
    if ((ctl->word_count > 0) + (request != NULL) + (path != NULL) != 1) {
        return ctl_usage_error(ctl, "expected 1 to %u keys, --request ID or --tokens FILE",
                               SL_EXPLAIN_KEYS_MAX);
    }
    if (of_tokens && path == NULL) {
        return ctl_usage_error(ctl, "--model, --format, --seed and --block-tokens need --tokens");
    }
    if (path == NULL) {
        return request != NULL ? explain_request(ctl, request) : explain_words(ctl);
    }
    if (token_count > SL_KEYS_BLOCK_TOKENS_MAX) {
        return ctl_usage_error(ctl, "--block-tokens is at most %u", SL_KEYS_BLOCK_TOKENS_MAX);
    }
    (void)snprintf(block_tokens, sizeof block_tokens, "%" PRIu64, token_count);
    const char *words[CTL_WORDS_MAX] = {"tokens",
                                        ctl->json ? "json" : "text",
                                        ctl->paths.log_dir,
                                        path,
                                        model != NULL ? model : "",
                                        format != NULL ? format : "",
                                        seed != NULL ? "seed" : "",
                                        seed != NULL ? seed : "",
                                        block_tokens};
    ctl_script_settings(ctl, words, 9);
    ctl_script_exec("explain.py", words);
}

/* clang-format off */
const struct ctl_command ctl_explain = {
    .name = "explain",
    .summary = "explain why a key, block or request is a miss",
    .help = "explain KEY... | - | --request ID | --tokens FILE [--model M] [--format F] [--seed S] [--block-tokens N]\n"
            "\n"
            "For each object, part (MODEL/BLOCK/RANK/POOL) or block (MODEL/BLOCK) prints where it is, or why and since when it is not\n"
            "here. For an evicted one it adds class, age and value at eviction. The value is the number of hits that a million references\n"
            "of its stay were expected to bring; with evict_policy lru there is only the age. The registrar remembers the last\n"
            "`ghosts_max` evicted ones. Exit code 0: all are here. -: read keys from standard input, each ended by a NUL byte.\n"
            "\n"
            "  --request ID      what happened to an engine's request, block by block: tier, time, and why the first missing block was\n"
            "                    missing. ID: the request id of engine or client, or the trace id of an op. Shows all its stores and\n"
            "                    loads among the last 1,024 ops and those in progress, the latest first. Exit code 0: all\n"
            "                    blocks were found\n"
            "  --tokens FILE     the state of a prompt's blocks now. FILE has numbers, a JSON array, or an object as in\n"
            "                    `sluicectl keys`; -: standard input\n"
            "  --model M         the model: its identity, the first digits of it, or its name; required if the node knows\n"
            "                    several models\n"
            "  --format F, --seed S, --block-tokens N\n"
            "                    how the engine derives its keys, if it derives them itself (sluicectl keys --help)\n"
            "\n"
            "If a missing block is here under another model identity, it prints in which fields the identities differ."
            CTL_HELP_COMMON,
    .run = explain_command,
    .words_max = (int)SL_EXPLAIN_KEYS_MAX,
    .words = "expected 1 to 64 keys, --request ID or --tokens FILE",
};
/* clang-format on */
