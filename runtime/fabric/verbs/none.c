/* runtime/fabric/verbs/none.c - built where libibverbs' headers are missing. */
#include "runtime/fabric/core/internal.h"
#include "runtime/fabric/verbs/verbs.h"

static sl_err verbs_open(struct sl_fabric *fabric, struct sl_error *why)
{
    (void)fabric;
    return sl_fail(why, SL_ERR_UNSUPPORTED, "built without verbs (package libibverbs-dev)");
}

const struct fabric_backend sl_fabric_verbs = {.name = "verbs", .open = verbs_open};
