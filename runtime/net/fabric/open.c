/* runtime/net/fabric/open.c - the table of back ends, and which one opens. */
#include "runtime/net/fabric/core/tables.h"
#include "runtime/net/fabric/tcp/tcp.h"
#include "runtime/net/fabric/verbs/verbs.h"

#include <stdio.h>
#include <string.h>

/* The setting `fabric` selects one by its name. */
static const struct fabric_backend *const backends[] = {
    &sl_fabric_tcp,
    &sl_fabric_verbs,
};

static const struct fabric_backend *backend_find(const char *kind)
{
    for (size_t i = 0; i < SL_COUNT(backends); i++) {
        if (strcmp(kind, backends[i]->name) == 0) {
            return backends[i];
        }
    }
    return NULL;
}

sl_err sl_fabric_kind_check(const char *kind, struct sl_error *why)
{
    if (backend_find(kind) != NULL) {
        return SL_OK;
    }
    char known[SL_ERROR_TEXT_BYTES] = "";
    size_t used = 0;
    for (size_t i = 0; i < SL_COUNT(backends); i++) {
        int more = snprintf(known + used, sizeof(known) - used, ", %s", backends[i]->name);
        used = SL_MIN(used + (size_t)more, sizeof(known) - 1);
    }
    return sl_fail(why, SL_ERR_CONFIG, "fabric: '%.32s' is none of off%s", kind, known);
}

sl_err sl_fabric_open(const struct sl_fabric_options *options, struct sl_fabric **out,
                      struct sl_error *why)
{
    const struct fabric_backend *ops = options->backend;
    sl_err err = ops == NULL ? sl_fabric_kind_check(options->kind, why) : SL_OK;
    if (err != SL_OK) {
        return err;
    }
    return fabric_open_with(ops == NULL ? backend_find(options->kind) : ops, options, out, why);
}
