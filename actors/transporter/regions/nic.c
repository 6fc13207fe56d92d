/* actors/transporter/regions/nic.c - chooses the NICs of this transporter. */
#include "actors/transporter/regions/regions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Joins the names: "a,b,c". Errors: SL_ERR_CONFIG (too long). */
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

/* Uses all NICs that ranks of the node have, as rails of one fabric. */
sl_err tr_nic_choose(struct transporter *self, struct sl_error *why)
{
    const struct sl_config *config = self->env->config;
    uint32_t ranks = (uint32_t)sl_config_u64(config, SL_SET_ranks);
    if (strcmp(sl_config_text(config, SL_SET_fabric), "verbs") != 0) {
        return SL_OK; /* the setting is not used, and there may be no NIC */
    }
    SL_AUTO(free) struct sl_nic_plan *plan = calloc(1, sizeof(*plan));
    if (plan == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the plan of NICs");
    }
    sl_err err = sl_nic_plan_here(config, plan, why);
    if (err == SL_OK) {
        err = names_join(self, plan, why);
    }
    SL_ASSERT(ranks <= SL_COUNT(self->rail_of_rank)); /* bound of the setting */
    for (uint32_t rank = 0; rank < ranks && err == SL_OK && self->nic[0] != '\0'; rank++) {
        if (plan->count > 1) {
            self->rail_of_rank[rank] = 1 + plan->of_rank[rank];
        }
        sl_log_write(self->env->log, SL_LOG_INFO, 0, "nic of rank %u: %s, to its GPU: %s", rank,
                     plan->names[plan->of_rank[rank]], sl_near_text(plan->near_of_rank[rank]));
    }
    return err;
}
