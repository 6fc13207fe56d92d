/* actors/registrar/records/policy.c - the table of eviction policies: one row each. */
#include "actors/registrar/records/policy.h"
#include "actors/registrar/records/units.h"

#include <string.h>

#define POLICY_ROW(name) &reg_policy_##name,
static const struct reg_policy *const policies[] = {REG_POLICIES(POLICY_ROW)};

const struct reg_policy *reg_policy_find(const char *name)
{
    uint32_t i = 0;
    while (i < SL_COUNT(policies) && strcmp(policies[i]->name, name) != 0) {
        i++;
    }
    SL_ASSERT(i < SL_COUNT(policies)); /* config accepts only these */
    return policies[i];
}

sl_err reg_policy_learn(struct registrar *self, sl_ref note, const void *bytes,
                        uint32_t length_bytes, struct sl_error *why)
{
    (void)why;
    if (self->units->policy->learn != NULL) {
        self->units->policy->learn(self, note, bytes, length_bytes);
    }
    return SL_OK;
}
