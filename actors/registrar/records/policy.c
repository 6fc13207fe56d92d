/* actors/registrar/records/policy.c - the table of eviction policies: one row each. */
#include "actors/registrar/records/policy.h"

/* The first one serves. */
static const struct reg_policy *const policies[] = {
    &reg_policy_lru,
};

const struct reg_policy *reg_policy_standard(void)
{
    return policies[0];
}
