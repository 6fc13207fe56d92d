/* actors/registrar/records/policy.c - the table of eviction policies: one row each. */
#include "actors/registrar/records/policy.h"
#include "actors/registrar/records/units.h"

#include <string.h>

#define POLICY_ROW(name) &reg_policy_##name,
static const struct reg_policy *const policies[] = {REG_POLICIES(POLICY_ROW)};

sl_err reg_policy_find(const char *name, const struct reg_policy **out, struct sl_error *why)
{
    for (uint32_t i = 0; i < SL_COUNT(policies); i++) {
        if (strcmp(policies[i]->name, name) == 0) {
            *out = policies[i];
            return SL_OK;
        }
    }
    char names[128] = "";
    for (uint32_t i = 0; i < SL_COUNT(policies); i++) {
        (void)strncat(names, i > 0 ? ", " : "", sizeof(names) - strlen(names) - 1);
        (void)strncat(names, policies[i]->name, sizeof(names) - strlen(names) - 1);
    }
    return sl_fail(why, SL_ERR_CONFIG, "setting evict_policy is '%s', expected one of %s", name,
                   names);
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
