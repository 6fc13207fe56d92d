/* runtime/fabric/open.c - chooses the back end. */
#include "runtime/fabric/core/internal.h"
#include "runtime/fabric/tcp/tcp.h"
#include "runtime/fabric/verbs/verbs.h"

sl_err sl_fabric_open(const struct sl_fabric_options *options, struct sl_fabric **out,
                      struct sl_error *why)
{
    const struct fabric_backend *ops = options->backend != NULL           ? options->backend
                                       : options->kind == SL_FABRIC_VERBS ? &sl_fabric_verbs
                                                                          : &sl_fabric_tcp;
    return sl_fabric_open_with(ops, options, out, why);
}
