/* client/tools/ctl/keys.c - sluicectl keys: block keys as engines derive them. sluicectl messages:
 * the message catalogue. */
#include "client/tools/ctl/commands.h"
#include "ipc/msg/sl_msg.h"
#include "runtime/keys/sl_keys.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Prints the keys of every line. Ends at the first wrong line and names it. */
static int lines_print(struct ctl *ctl, struct sl_keys *keys, const struct sl_keys_request *form)
{
    char *line = NULL;
    size_t room = 0;
    uint64_t number = 0;
    int code = CTL_SUCCESS;
    for (ssize_t length; code == CTL_SUCCESS && (length = getline(&line, &room, stdin)) >= 0;) {
        struct sl_error why = {0};
        number++;
        if ((uint64_t)length > SL_KEYS_LINE_BYTES_MAX) {
            code = ctl_usage_error(ctl, "line %" PRIu64 ": over %" PRIu64 " bytes", number,
                                   SL_KEYS_LINE_BYTES_MAX);
        } else if (strspn(line, " \t\r\n") == (size_t)length) {
            continue;
        } else if (sl_keys_print_json_line(keys, form, line, (uint64_t)length, stdout, &why) !=
                   SL_OK) {
            (void)fflush(stdout);
            (void)fprintf(stderr, "sluicectl keys: line %" PRIu64 ": %s\n", number, why.text);
            code = CTL_NO;
        }
    }
    free(line);
    return code;
}

static int keys_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    struct sl_error why = {0};
    uint64_t block_tokens = 0;
    uint64_t pickle_protocol = 0;
    struct sl_keys_request form = {0};
    const struct ctl_option options[] = {{.name = "format", .text = &form.format},
                                         {.name = "block-tokens", .count = &block_tokens},
                                         {.name = "pickle-protocol", .count = &pickle_protocol},
                                         {.name = "partial", .flag = &form.partial}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    if (ctl->word_count != 0 || form.format == NULL || block_tokens == 0) {
        return ctl_usage_error(
            ctl, "--format and --block-tokens are required; tokens are read from standard input");
    }
    if (block_tokens > SL_KEYS_BLOCK_TOKENS_MAX) {
        return ctl_usage_error(ctl, "--block-tokens %" PRIu64 ": at most %u", block_tokens,
                               SL_KEYS_BLOCK_TOKENS_MAX);
    }
    if (pickle_protocol != 0 && pickle_protocol != 4 && pickle_protocol != 5) {
        return ctl_usage_error(ctl, "--pickle-protocol is 4 or 5");
    }
    form.block_tokens = (uint32_t)block_tokens;
    form.pickle_protocol = (uint32_t)pickle_protocol;
    if (sl_keys_format_check(form.format, &why) != SL_OK) {
        return ctl_usage_error(ctl, "%s", why.text);
    }
    struct sl_keys *keys = NULL;
    if (sl_keys_create(&keys, &why) != SL_OK) {
        return ctl_failed(ctl, &why);
    }
    code = lines_print(ctl, keys, &form);
    sl_keys_destroy(&keys);
    return code;
}

/* clang-format off */
const struct ctl_command ctl_keys = {
    .name = "keys",
    .summary = "derive block keys from tokens as engines do",
    .help = "keys --format F --block-tokens N [--partial] [--pickle-protocol 4|5]\n"
            "\n"
            "Reads JSON lines from standard input, {\"tokens\": [...], \"extras\": [[...] per block], \"seed\": \"...\", \"parent\": \"hex\"},\n"
            "and prints one key a line. All members except tokens are optional. A repeated object in extras is {\"same_as\": i}.\n"
            "\n"
            "  --format F        fastdeploy, fastdeploy-v1, vllm-sha256, vllm-sha256-cbor, vllm-xxhash, vllm-xxhash-cbor, sglang,\n"
            "                    sglang-bigram, lmcache-sha256, lmcache-sha256-cbor, sluice\n"
            "  --block-tokens N  tokens of a block\n"
            "  --partial         also print the key of an incomplete last block, if the format has one\n"
            "\n"
            "example: echo '{\"tokens\": [1,2,3,4]}' | sluicectl keys --format vllm-sha256-cbor --block-tokens 2",
    .run = keys_command,
};
/* clang-format on */

static int messages_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    if (!ctl_parse(ctl, argc, argv, NULL, 0, &code)) {
        return code;
    }
    sl_msg_print_catalogue(stdout);
    return CTL_SUCCESS;
}

/* clang-format off */
const struct ctl_command ctl_messages = {
    .name = "messages",
    .summary = "print the message catalogue",
    .help = "messages\n"
            "\n"
            "Prints the table of messages between actors as Markdown.",
    .run = messages_command,
};
/* clang-format on */
