/* actors/transporter/control/network.h - interface for a simulated network between nodes: frames
 * and fabric transfers (env->network, tests/sim/sim_network.c). */
#ifndef SL_TRANSPORTER_CONTROL_NETWORK_H
#define SL_TRANSPORTER_CONTROL_NETWORK_H

#include "actors/transporter/control/control.h"
#include "runtime/net/fabric/core/internal.h"

struct sl_network {
    void *context;
    /* Replaces sl_control_open. */
    sl_err (*control_open)(void *context, const struct sl_control_options *options,
                           struct sl_control **out, struct sl_error *why);
    /* Fabric back end for every setting of `fabric`; options.backend_context is context. */
    const struct fabric_backend *backend;
};

#endif
