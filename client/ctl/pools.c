/* client/ctl/pools.c - sluicectl pools: the device memory of this node's deployments, and who has
 * it.
 */
#include "client/ctl/commands.h"
#include "runtime/sl_text.h"

#include <inttypes.h>
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

static void pools_json(const struct sl_pool_info *pools, uint32_t count)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < count; i++) {
        (void)json_array_append_new(rows, pool_json(&pools[i]));
    }
    ctl_print_json(json_pack("{s:o}", "pools", rows));
}

static void pools_print(const struct sl_pool_info *pools, uint32_t count)
{
    char bytes[32], owner[64];
    if (count == 0) {
        (void)printf("no pools\n");
        return;
    }
    (void)printf("%-20s %4s %-16s %-10s %-20s %10s %-24s %7s  %s\n", "DEPLOYMENT", "RANK", "POOL",
                 "STATE", "EPOCH", "BYTES", "OWNER", "WAITING", "MAPPED BY");
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_pool_info *pool = &pools[i];
        if (pool->owner_pid != 0) {
            (void)snprintf(owner, sizeof owner, "%s (%u)", pool->owner, pool->owner_pid);
        } else {
            (void)snprintf(owner, sizeof owner, "%s%s", pool->owner,
                           pool->owner[0] != '\0' ? " (gone)" : "-");
        }
        sl_text_clean(owner);
        (void)printf("%-20s %4u %-16s %-10s %-20" PRIu64 " %10s %-24s %7u  %s\n", pool->deployment,
                     pool->rank, pool->pool, pool->state, pool->epoch,
                     ctl_size_text(pool->length_bytes, bytes), owner, pool->waiter_count,
                     pool->mapper_count > 0 ? pool->mappers : "-");
    }
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
    if (err != SL_OK) {
        free(pools);
        return ctl_failed(ctl, &why);
    }
    if (ctl->json) {
        pools_json(pools, count);
    } else {
        pools_print(pools, count);
    }
    free(pools);
    return CTL_FINE;
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
