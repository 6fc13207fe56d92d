/* client/ctl/pools.c - sluicectl pools: the device memory of this node's deployments, and who has
 * it.
 */
#include "client/ctl/commands.h"

#include <stdlib.h>

#define POOLS_SHOWN_MAX 65536u

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

static json_t *pools_json(const struct sl_pool_info *pools, uint32_t count)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < count; i++) {
        (void)json_array_append_new(rows, pool_json(&pools[i]));
    }
    return json_pack("{s:o}", "pools", rows);
}

static int pools_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    uint32_t count = 0;
    struct sl_error why = {0};
    struct sl_client *client = NULL;
    if (!ctl_parse(ctl, argc, argv, NULL, 0, &code)) {
        return code;
    }
    struct sl_pool_info *pools = calloc(POOLS_SHOWN_MAX, sizeof *pools);
    if (pools == NULL) {
        (void)sl_fail(&why, SL_ERR_NO_MEMORY, "list of pools");
        return ctl_failed(ctl, &why);
    }
    sl_err err = ctl_open(ctl, false, &client, &why);
    if (err == SL_OK) {
        err = sl_pools(client, pools, POOLS_SHOWN_MAX, &count, 0, &why);
    }
    sl_client_close(&client);
    code = err == SL_OK ? ctl_answer(ctl, pools_json(pools, count)) : ctl_failed(ctl, &why);
    free(pools);
    return code;
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
    .run = pools_command,
};
/* clang-format on */
