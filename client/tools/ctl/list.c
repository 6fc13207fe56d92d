/* client/tools/ctl/list.c - sluicectl ls and stat: the objects of a node. */
#include "client/tools/ctl/commands.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static json_t *info_json(const struct sl_object_info *info)
{
    char digest[33];
    (void)snprintf(digest, sizeof digest, "%016" PRIx64 "%016" PRIx64, info->digest_high,
                   info->digest_low);
    return json_pack("{s:o, s:o, s:b, s:b, s:s}", "key",
                     ctl_json_bytes(info->key.at, info->key.length), "bytes",
                     ctl_json_u64(info->length_bytes), "in_memory", info->in_memory, "on_disk",
                     info->on_disk, "digest", digest);
}

struct listing {
    uint64_t shown, limit;
    bool json;
};

static bool list_one(void *context, const struct sl_object_info *info)
{
    struct listing *listing = context;
    if (listing->json) {
        json_t *object = info_json(info);
        (void)fputs(listing->shown == 0 ? "" : ",", stdout);
        (void)json_dumpf(object, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
        json_decref(object);
    } else {
        (void)printf("%12" PRIu64 " %c%c ", info->length_bytes, info->in_memory ? 'm' : '-',
                     info->on_disk ? 'd' : '-');
        ctl_print_bytes(stdout, info->key.at, info->key.length);
        (void)putchar('\n');
    }
    return ++listing->shown < listing->limit;
}

static int ls_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    struct sl_error why = {0};
    struct listing listing = {.limit = UINT64_MAX};
    const struct ctl_option options[] = {{.name = "limit", .count = &listing.limit}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    if (listing.limit == 0) {
        return ctl_usage_error(ctl, "--limit must be above 0");
    }
    struct sl_client *client = NULL;
    if (ctl_open(ctl, true, &client, &why) != SL_OK) {
        return ctl_failed(ctl, &why);
    }
    listing.json = ctl->json;
    if (ctl->json) {
        (void)fputs("{\"objects\":[", stdout);
    }
    sl_err err =
        sl_list(client, ctl->word_count == 1 ? ctl->words[0] : NULL, list_one, &listing, &why);
    if (ctl->json) {
        (void)printf("],\"count\":%" PRIu64 "}\n", listing.shown);
    }
    sl_client_close(&client);
    return err == SL_OK ? CTL_SUCCESS : ctl_failed(ctl, &why);
}

/* clang-format off */
const struct ctl_command ctl_ls = {
    .name = "ls",
    .summary = "list objects",
    .help = "ls [PREFIX] [--limit N]\n"
            "\n"
            "Lists visible objects: bytes, tiers (m: memory, d: disk), key. Reads only shared memory, so it works while actors\n"
            "are stopped.\n"
            CTL_HELP_COMMON,
    .run = ls_command,
    .words_max = 1,
    .words = "at most one prefix",
};
/* clang-format on */

static int stat_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    struct sl_error why = {0};
    if (!ctl_parse(ctl, argc, argv, NULL, 0, &code)) {
        return code;
    }
    struct sl_client *client = NULL;
    if (ctl_open(ctl, true, &client, &why) != SL_OK) {
        return ctl_failed(ctl, &why);
    }
    struct sl_object_info info;
    sl_err err = sl_stat(client, ctl_key(ctl->words[0]), &info);
    if (err != SL_OK) {
        (void)sl_fail(&why, err, "%s",
                      err == SL_ERR_NOT_FOUND ? "no object under this key" : "the key");
    } else if (ctl->json) {
        ctl_print_json(info_json(&info));
    } else {
        (void)printf("bytes   %" PRIu64 "\ntiers   %s%s\ndigest  %016" PRIx64 "%016" PRIx64 "\n",
                     info.length_bytes, info.in_memory ? "memory " : "", info.on_disk ? "disk" : "",
                     info.digest_high, info.digest_low);
    }
    sl_client_close(&client);
    return err == SL_OK ? CTL_SUCCESS : ctl_failed(ctl, &why);
}

/* clang-format off */
const struct ctl_command ctl_stat = {
    .name = "stat",
    .summary = "describe one object",
    .help = "stat KEY\n"
            "\n"
            "Reads only shared memory. Totals of memory and index: sluicectl status and metrics.\n"
            CTL_HELP_COMMON,
    .run = stat_command,
    .words_min = 1,
    .words_max = 1,
    .words = "one key",
};
/* clang-format on */
