/* client/ctl/list.c - ls stat: what is there. */
#include "client/ctl/commands.h"
#include "ipc/sl_arena.h"
#include "ipc/sl_index.h"

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
        return ctl_wrong(ctl, "a limit above 0");
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
    return err == SL_OK ? CTL_FINE : ctl_failed(ctl, &why);
}

/* clang-format off */
const struct ctl_command ctl_ls = {
    .name = "ls",
    .summary = "list objects",
    .help = "ls [PREFIX] [--limit N]\n"
            "\n"
            "Lists visible objects: bytes, where (m: memory, d: disk), key. Works on shared memory alone, also while actors\n"
            "are stopped.\n"
            CTL_HELP_COMMON,
    .run = ls_command,
    .words_max = 1,
    .words = "at most one prefix",
};
/* clang-format on */

struct totals {
    uint64_t objects, value_bytes, space_bytes, in_memory, on_disk;
};

static bool total_one(void *context, const struct sl_object_info *info)
{
    struct totals *totals = context;
    totals->objects++;
    totals->value_bytes += info->length_bytes;
    totals->in_memory += info->in_memory;
    totals->on_disk += info->on_disk;
    totals->space_bytes += info->in_memory ? sl_extent_space(info->length_bytes) : 0;
    return true;
}

static int stat_node(struct ctl *ctl, struct sl_client *client)
{
    struct sl_error why = {0};
    struct totals totals = {0};
    struct sl_index_view *view = NULL;
    struct sl_arena *arena = NULL;
    struct sl_index_stats index = {0};
    sl_err err = sl_list(client, NULL, total_one, &totals, &why);
    if (err == SL_OK) {
        err = sl_index_view_open(ctl->paths.shm_dir, &view, &why);
    }
    if (err == SL_OK) {
        sl_index_view_stats(view, &index);
        err = sl_arena_attach(ctl->paths.shm_dir, 0, false, &arena, &why);
    }
    if (err != SL_OK) {
        sl_index_view_close(&view);
        return ctl_failed(ctl, &why);
    }
    const struct {
        const char *name;
        uint64_t value;
        bool bytes;
    } rows[] = {
        {"objects", totals.objects, false},
        {"objects_in_memory", totals.in_memory, false},
        {"objects_on_disk", totals.on_disk, false},
        {"value_bytes", totals.value_bytes, true},
        {"arena_bytes", sl_arena_data_bytes(arena), true},
        {"arena_populated_bytes", sl_arena_populated_bytes(arena), true},
        {"arena_object_bytes", totals.space_bytes, true},
        {"arena_chunk_bytes", sl_arena_chunk_bytes(arena), true},
        {"index_keys", index.key_count, false},
        {"index_blocks", index.group_count, false},
        {"index_buckets", index.bucket_count, false},
        {"index_record_bytes", index.record_bytes_used, true},
        {"index_record_bytes_max", index.record_bytes_max, true},
    };
    json_t *object = json_object();
    for (size_t i = 0; i < SL_COUNT(rows); i++) {
        char text[32];
        if (ctl->json) {
            (void)json_object_set_new(object, rows[i].name, ctl_json_u64(rows[i].value));
        } else {
            (void)printf("%-24s %14" PRIu64 "%s%s\n", rows[i].name, rows[i].value,
                         rows[i].bytes ? "  " : "",
                         rows[i].bytes ? ctl_size_text(rows[i].value, text) : "");
        }
    }
    if (ctl->json) {
        (void)json_object_set_new(object, "instance", json_string(sl_client_instance(client)));
        ctl_print_json(object);
    } else {
        json_decref(object);
    }
    sl_arena_close(&arena);
    sl_index_view_close(&view);
    return CTL_FINE;
}

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
    if (ctl->word_count == 0) {
        code = stat_node(ctl, client);
    } else {
        struct sl_object_info info;
        sl_err err = sl_stat(client, ctl_key(ctl->words[0]), &info);
        if (err != SL_OK) {
            (void)sl_fail(&why, err, "%s",
                          err == SL_ERR_NOT_FOUND ? "no object under this key" : "the key");
            code = ctl_failed(ctl, &why);
        } else if (ctl->json) {
            ctl_print_json(info_json(&info));
            code = CTL_FINE;
        } else {
            (void)printf("bytes   %" PRIu64 "\ntiers   %s%s\ndigest  %016" PRIx64 "%016" PRIx64
                         "\n",
                         info.length_bytes, info.in_memory ? "memory " : "",
                         info.on_disk ? "disk" : "", info.digest_high, info.digest_low);
            code = CTL_FINE;
        }
    }
    sl_client_close(&client);
    return code;
}

/* clang-format off */
const struct ctl_command ctl_stat = {
    .name = "stat",
    .summary = "describe one object, or the node's memory",
    .help = "stat [KEY]\n"
            "\n"
            "Without a key: totals of arena, index and keys. Works on shared memory alone.\n"
            CTL_HELP_COMMON,
    .run = stat_command,
    .words_max = 1,
    .words = "at most one key",
};
/* clang-format on */
