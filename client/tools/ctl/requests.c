/* client/tools/ctl/requests.c - commands that ask the registrar once: contributions, pools,
 * session. */
#include "client/tools/ctl/commands.h"

#include <stdlib.h>

#define POOLS_SHOWN_MAX 65536u
#define NOT_GIVEN       UINT64_MAX

static sl_err contributions_ask(const struct ctl *ctl, struct sl_client *client,
                                const void *context, json_t **answer, struct sl_error *why)
{
    uint32_t count = 0;
    struct sl_contribution_info infos[SL_CONTRIBUTIONS_MAX];
    sl_err err = sl_contributions(client, infos, &count, 0, why);
    (void)ctl, (void)context;
    json_t *rows = json_array();
    for (uint32_t i = 0; err == SL_OK && i < count; i++) {
        const struct sl_contribution_info *info = &infos[i];
        (void)json_array_append_new(
            rows,
            json_pack("{s:o, s:i, s:o, s:o, s:o, s:b, s:s, s:i}", "name", ctl_json_text(info->name),
                      "number", (int)info->number, "length_bytes", ctl_json_u64(info->length_bytes),
                      "used_bytes", ctl_json_u64(info->used_bytes), "values",
                      ctl_json_u64(info->value_count), "lasting", info->process[0] == '\0',
                      "process", info->process, "pid", (int)info->pid));
    }
    *answer = json_pack("{s:o}", "contributions", rows);
    return err;
}

/* clang-format off */
const struct ctl_command ctl_contributions = {
    .name = "contributions",
    .summary = "what processes contribute to the node's memory",
    .help = "contributions\n"
            "\n"
            "Each: its number, what it adds, what of it values are charged, and whose it is: it ends\n"
            "with that process. Others than nodes with the setting contributions have none."
            CTL_HELP_COMMON,
    .ask = contributions_ask,
};
/* clang-format on */

static json_t *pool_json(const struct sl_pool_info *pool)
{
    return json_pack("{s:s, s:I, s:s, s:s, s:o, s:o, s:b, s:s, s:I, s:I, s:s, s:I}", "deployment",
                     pool->deployment, "rank", (json_int_t)pool->rank, "pool", pool->pool, "state",
                     pool->state, "epoch", ctl_json_u64(pool->epoch), "bytes",
                     ctl_json_u64(pool->length_bytes), "by_sluice", (int)pool->by_sluice, "owner",
                     pool->owner, "owner_pid", (json_int_t)pool->owner_pid, "mapper_count",
                     (json_int_t)pool->mapper_count, "mappers", pool->mappers, "waiter_count",
                     (json_int_t)pool->waiter_count);
}

static sl_err pools_ask(const struct ctl *ctl, struct sl_client *client, const void *context,
                        json_t **answer, struct sl_error *why)
{
    uint32_t count = 0;
    SL_AUTO(free) void *room = calloc(POOLS_SHOWN_MAX, sizeof(struct sl_pool_info));
    struct sl_pool_info *pools = room;
    (void)ctl, (void)context;
    if (pools == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "list of pools");
    }
    sl_err err = sl_pools(client, pools, POOLS_SHOWN_MAX, &count, 0, why);
    json_t *rows = json_array();
    for (uint32_t i = 0; err == SL_OK && i < count; i++) {
        (void)json_array_append_new(rows, pool_json(&pools[i]));
    }
    *answer = json_pack("{s:o}", "pools", rows);
    return err;
}

/* clang-format off */
const struct ctl_command ctl_pools = {
    .name = "pools",
    .summary = "device memory of deployments, and who has it",
    .help = "pools\n"
            "\n"
            "The table of pools: the memory of each pool of each rank, its state (absent: somebody waits for it; allocating; ready;\n"
            "revoking), epoch, bytes, who made it, who waits, and who maps it."
            CTL_HELP_COMMON,
    .ask = pools_ask,
};
/* clang-format on */

static sl_err session_ask(const struct ctl *ctl, struct sl_client *client, const void *context,
                          json_t **answer, struct sl_error *why)
{
    const uint64_t *pause_ns = context;
    *answer = json_pack("{s:b}", "told", true);
    return sl_session_pause(client, ctl->words[0], *pause_ns, 0, why);
}

static int session_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    bool unknown = false;
    uint64_t pause_ns = NOT_GIVEN;
    const struct ctl_option options[] = {{.name = "pause", .duration = &pause_ns},
                                         {.name = "unknown", .flag = &unknown}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    if (unknown == (pause_ns != NOT_GIVEN)) {
        return ctl_wrong(ctl, "either --pause T or --unknown");
    }
    pause_ns = unknown ? SL_PAUSE_UNKNOWN : pause_ns;
    return ctl_ask(ctl, session_ask, &pause_ns);
}

/* clang-format off */
const struct ctl_command ctl_session = {
    .name = "session",
    .summary = "tell in the middle of its pause when a session goes on",
    .help = "session NAME --pause T | --unknown\n"
            "\n"
            "NAME is the session_id that requests of the session give as a hint. Its blocks are in\n"
            "memory again before its next request, as far as that is worth it. Code 1 when no request\n"
            "named it lately, or the node keeps no sessions (no disk, or prefetch_sessions 0).\n"
            "\n"
            "  --pause T         it goes on in T, such as 30s; 0s: it is about to\n"
            "  --unknown         nobody knows when: what was told counts no more"
            CTL_HELP_COMMON,
    .run = session_command,
    .words_min = 1,
    .words_max = 1,
    .words = "the name of one session",
};
/* clang-format on */
