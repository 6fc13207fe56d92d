/* client/tools/ctl/requests.c - commands that send an actor one request: sluicectl contributions,
 * pools, session. */
#include "client/tools/ctl/commands.h"

#include <stdlib.h>

#define POOLS_SHOWN_MAX 65536u
#define NOT_GIVEN       UINT64_MAX

static sl_err contributions_ask(const struct ctl *ctl, struct sl_client *client,
                                const void *context, json_t **answer, struct sl_error *why)
{
    uint32_t count = 0;
    struct sl_segment_info infos[SL_CONTRIBUTIONS_MAX];
    sl_err err = sl_segments(client, infos, &count, 0, why);
    (void)ctl, (void)context;
    json_t *rows = json_array();
    for (uint32_t i = 0; err == SL_OK && i < count; i++) {
        const struct sl_segment_info *info = &infos[i];
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
    .summary = "list what processes contribute to the node's memory",
    .help = "contributions\n"
            "\n"
            "Prints for each contribution: number, bytes, bytes that values are charged to it, values, the process that it belongs\n"
            "to, and name. It ends with that process. Only nodes with the setting `contributions` have any."
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
    .summary = "list pools of device memory and their users",
    .help = "pools\n"
            "\n"
            "Prints for each pool of each rank: state (absent: an engine waits for it; allocating; ready; revoking), epoch, bytes,\n"
            "owner, number of waiting processes, and the processes that map it."
            CTL_HELP_COMMON,
    .ask = pools_ask,
};
/* clang-format on */

static sl_err session_ask(const struct ctl *ctl, struct sl_client *client, const void *context,
                          json_t **answer, struct sl_error *why)
{
    const uint64_t *pause_ns = context;
    *answer = json_pack("{s:b}", "reported", true);
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
        return ctl_usage_error(ctl, "expected either --pause T or --unknown");
    }
    pause_ns = unknown ? SL_PAUSE_UNKNOWN : pause_ns;
    return ctl_query(ctl, session_ask, &pause_ns);
}

/* clang-format off */
const struct ctl_command ctl_session = {
    .name = "session",
    .summary = "report when a paused session continues",
    .help = "session NAME --pause T | --unknown\n"
            "\n"
            "NAME is the session_id that requests of the session give as a hint. The node loads its blocks into memory before its\n"
            "next request, if that is worth it. Exit code 1: no recent request named the session, or the node tracks no sessions\n"
            "(no disk, or prefetch_sessions 0).\n"
            "\n"
            "  --pause T         the session continues in T, such as 30s; 0s: now\n"
            "  --unknown         it is not known when the session continues; this revokes an earlier report"
            CTL_HELP_COMMON,
    .run = session_command,
    .words_min = 1,
    .words_max = 1,
    .words = "expected the name of one session",
};
/* clang-format on */
