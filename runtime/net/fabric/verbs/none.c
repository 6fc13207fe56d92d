/* runtime/net/fabric/verbs/none.c - without the headers of libibverbs: verbs is unsupported. */
#include "runtime/net/fabric/core/internal.h"
#include "runtime/net/fabric/verbs/verbs.h"

static sl_err verbs_open(struct fabric_rail *rail, struct sl_error *why)
{
    (void)rail;
    return sl_fail(why, SL_ERR_UNSUPPORTED, "built without verbs (package libibverbs-dev)");
}

const struct fabric_backend sl_fabric_verbs = {.name = "verbs", .open = verbs_open};
