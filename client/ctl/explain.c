/* client/ctl/explain.c - sluicectl explain: why something is a miss. */
#include "client/ctl/commands.h"

#include <string.h>

static const char *ago_text(uint64_t ago_ns, char out[32])
{
    if (ago_ns == 0) {
        return "";
    }
    double seconds = (double)ago_ns / (double)SL_NS_PER_S;
    (void)snprintf(out, 32, seconds < 100 ? " (%.1f s ago)" : " (%.0f s ago)", seconds);
    return out;
}

static void print_story(const char *key, const struct sl_story *story)
{
    char ago[32];
    (void)printf("%s\t", story->code == SL_OK              ? "there"
                         : story->code == SL_ERR_BUSY      ? "busy"
                         : story->code == SL_ERR_NOT_FOUND ? "miss"
                                                           : sl_err_text(story->code));
    ctl_print_bytes(stdout, key, strlen(key));
    (void)putchar('\t');
    ctl_print_bytes(stdout, story->text, strlen(story->text));
    (void)printf("%s\n", ago_text(story->ago_ns, ago));
}

static void print_stories(const struct ctl *ctl, const struct sl_story *stories, int count)
{
    json_t *rows = json_array();
    for (int i = 0; i < count; i++) {
        if (!ctl->json) {
            print_story(ctl->words[i], &stories[i]);
            continue;
        }
        (void)json_array_append_new(
            rows, json_pack("{s:o, s:s, s:o, s:o}", "key",
                            ctl_json_bytes(ctl->words[i], strlen(ctl->words[i])), "code",
                            sl_err_name(stories[i].code), "text",
                            ctl_json_bytes(stories[i].text, strlen(stories[i].text)), "ago_ns",
                            ctl_json_u64(stories[i].ago_ns)));
    }
    if (ctl->json) {
        ctl_print_json(json_pack("{s:O}", "keys", rows));
    }
    json_decref(rows);
}

static int explain_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    struct sl_error why = {0};
    if (!ctl_parse(ctl, argc, argv, NULL, 0, &code)) {
        return code;
    }
    if (ctl->word_count < 1 || ctl->word_count > (int)SL_EXPLAIN_KEYS_MAX) {
        return ctl_wrong(ctl, "1 to %u keys", SL_EXPLAIN_KEYS_MAX);
    }
    struct sl_object_key keys[SL_EXPLAIN_KEYS_MAX];
    struct sl_story stories[SL_EXPLAIN_KEYS_MAX];
    for (int i = 0; i < ctl->word_count; i++) {
        keys[i] = ctl_key(ctl->words[i]);
    }
    struct sl_client *client = NULL;
    sl_err err = ctl_open(ctl, false, &client, &why);
    if (err == SL_OK) {
        err = sl_explain(client, keys, (uint32_t)ctl->word_count, stories, 0, &why);
    }
    sl_client_close(&client);
    if (err != SL_OK) {
        return ctl_failed(ctl, &why);
    }
    bool all = true;
    for (int i = 0; i < ctl->word_count; i++) {
        all = all && stories[i].code == SL_OK;
    }
    print_stories(ctl, stories, ctl->word_count);
    return all ? CTL_FINE : CTL_NO;
}

/* clang-format off */
const struct ctl_command ctl_explain = {
    .name = "explain",
    .summary = "say why something is a miss",
    .help = "explain KEY...\n"
            "\n"
            "Says of each object, part (MODEL/BLOCK/RANK/POOL) or block (MODEL/BLOCK) where it is, or why it is not here and\n"
            "since when. Of what was evicted it says class, age and value when it went, and what was kept instead: the next to\n"
            "go. A value is the hits that a million references of its stay were expected to bring. With evict_policy lru the\n"
            "age is all there is. The registrar remembers the last `ghosts_max` that left. Code 0 when all are there."
            CTL_HELP_COMMON,
    .run = explain_command,
};
/* clang-format on */
