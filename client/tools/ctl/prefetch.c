/* client/tools/ctl/prefetch.c - sluicectl prefetch: brings objects into memory before a read. */
#include "client/tools/ctl/commands.h"

#include <string.h>

#define PREFETCH_NS_DEFAULT (10 * SL_NS_PER_S)
#define KEYS_MAX            65536

static const char *outcome(sl_err code)
{
    switch (code) {
    case SL_OK:
        return "loaded";
    case SL_ERR_EXISTS:
        return "memory";
    case SL_ERR_NOT_FOUND:
        return "miss";
    case SL_ERR_NO_SPACE:
        return "no room";
    default:
        return sl_err_text(code);
    }
}

static bool is_there(sl_err code)
{
    return code == SL_OK || code == SL_ERR_EXISTS;
}

static int report(const struct ctl *ctl, const sl_err *codes)
{
    bool all = true;
    json_t *rows = json_array();
    for (int i = 0; i < ctl->word_count; i++) {
        all = all && is_there(codes[i]);
        if (ctl->json) {
            (void)json_array_append_new(
                rows, json_pack("{s:o, s:s, s:b}", "key",
                                ctl_json_bytes(ctl->words[i], strlen(ctl->words[i])), "code",
                                sl_err_name(codes[i]), "in_memory", is_there(codes[i])));
            continue;
        }
        (void)printf("%s\t", outcome(codes[i]));
        ctl_print_bytes(stdout, ctl->words[i], strlen(ctl->words[i]));
        (void)putchar('\n');
    }
    if (ctl->json) {
        ctl_print_json(json_pack("{s:O, s:b}", "keys", rows, "all", all));
    }
    json_decref(rows);
    return all ? CTL_SUCCESS : CTL_NO;
}

static int prefetch(const struct ctl *ctl, struct sl_client *client, uint64_t timeout_ns)
{
    struct sl_error why = {0};
    uint32_t count = (uint32_t)ctl->word_count;
    SL_AUTO(free) struct sl_object_key *keys = NULL;
    SL_AUTO(free) sl_err *codes = NULL;
    sl_err err = ctl_word_keys(ctl, &keys, &codes, &why);
    err = err == SL_OK ? sl_prefetch_batch(client, keys, count, codes, timeout_ns, &why) : err;
    return err == SL_OK ? report(ctl, codes) : ctl_failed(ctl, &why);
}

static int prefetch_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    struct sl_error why = {0};
    uint64_t timeout_ns = PREFETCH_NS_DEFAULT;
    const struct ctl_option options[] = {{.name = "timeout", .duration = &timeout_ns}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    struct sl_client *client = NULL;
    if (ctl_open(ctl, false, &client, &why) != SL_OK) {
        return ctl_failed(ctl, &why);
    }
    code = prefetch(ctl, client, timeout_ns);
    sl_client_close(&client);
    return code;
}

/* clang-format off */
const struct ctl_command ctl_prefetch = {
    .name = "prefetch",
    .summary = "load objects into memory before they are read",
    .help = "prefetch KEY... [--timeout T]\n"
            "\n"
            "Prints one line for each key: loaded (from disk), memory (it was in memory already), no room, miss,\n"
            "or an error. Reads have priority. A prefetch never evicts objects that are pinned, not on disk, or\n"
            "prefetched and not read yet; the latter may take a quarter of memory. Exit code 0: all are in\n"
            "memory.\n"
            "\n"
            "  --timeout T       give up after T (default 10s)"
            CTL_HELP_COMMON,
    .run = prefetch_command,
    .words_min = 1,
    .words_max = KEYS_MAX,
    .words = "1 to 65536 keys",
};
/* clang-format on */
