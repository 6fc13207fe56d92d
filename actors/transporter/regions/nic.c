/* actors/transporter/regions/nic.c - which NICs this transporter uses. */
#include "actors/transporter/regions/regions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "a,b,c". Errors: SL_ERR_CONFIG (too many). */
static sl_err names_join(struct transporter *self, const struct sl_nic_plan *plan,
                         struct sl_error *why)
{
    size_t used = 0;
    for (uint32_t i = 0; i < plan->count; i++) {
        size_t room = sizeof(self->nic) - used;
        int more = snprintf(self->nic + used, room, "%s%s", i > 0 ? "," : "", plan->names[i]);
        if (more < 0 || (size_t)more >= room) {
            self->nic[0] = '\0';
            return sl_fail(why, SL_ERR_CONFIG, "nic: the names of %u NICs are too long",
                           plan->count);
        }
        used += (size_t)more;
    }
    return SL_OK;
}

/* All NICs that ranks of the node have: rails of one fabric. */
static sl_err nics_by_plan(struct transporter *self, struct sl_error *why)
{
    uint32_t ranks = (uint32_t)sl_config_u64(self->env->config, SL_SET_ranks);
    SL_AUTO(free) struct sl_nic_plan *plan = calloc(1, sizeof(*plan));
    if (plan == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the plan of NICs");
    }
    sl_err err = sl_nic_plan_here(self->env->config, plan, why);
    if (err == SL_OK) {
        err = names_join(self, plan, why);
    }
    SL_ASSERT(ranks <= SL_COUNT(self->rail_of_rank)); /* the setting's bound */
    for (uint32_t rank = 0; rank < ranks && err == SL_OK && self->nic[0] != '\0'; rank++) {
        if (plan->count > 1) {
            self->rail_of_rank[rank] = 1 + plan->of_rank[rank];
        }
        sl_log_write(self->env->log, SL_LOG_INFO, 0, "nic of rank %u: %s, to its GPU: %s", rank,
                     plan->names[plan->of_rank[rank]], sl_near_text(plan->near_of_rank[rank]));
    }
    return err;
}

sl_err tr_nic_choose(struct transporter *self, struct sl_error *why)
{
    const struct sl_config *config = self->env->config;
    const char *by = sl_config_text(config, SL_SET_nic_by);
    const char *list = sl_config_text(config, SL_SET_nic);
    bool by_rank = strcmp(by, "rank") == 0;
    if (!by_rank && strcmp(by, "gpu") != 0) {
        return sl_fail(why, SL_ERR_CONFIG, "nic_by: '%.8s' is none of gpu, rank", by);
    }
    bool verbs = strcmp(sl_config_text(config, SL_SET_fabric), "verbs") == 0;
    if (sl_nic_list_is_auto(list) && !verbs) {
        return SL_OK; /* without verbs there need not be any */
    }
    if (verbs) {
        return nics_by_plan(self, why);
    }
    SL_AUTO(free) struct sl_gpu *gpus = calloc(SL_GPUS_MAX, sizeof(*gpus));
    if (gpus == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the list of GPUs");
    }
    const struct sl_nic_sources sources = {
        .list = list,
        .by_rank = by_rank,
        .rank = (uint32_t)sl_config_u64(config, SL_SET_rank),
        .visible_devices = getenv("CUDA_VISIBLE_DEVICES"),
        .gpus = gpus,
        .gpu_count = sl_gpus_list(SL_NVIDIA_GPUS, SL_SYSFS, gpus),
        .registered_index = -1,
    };
    return sl_nic_choose(&sources, self->nic, why);
}
