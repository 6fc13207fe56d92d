/* actors/transporter/control/network.h - the network between nodes, where it is not the system's:
 * frames and bytes as the simulator plays them (env->network, tests/sim/sim_network.c). */
#ifndef SL_TRANSPORTER_CONTROL_NETWORK_H
#define SL_TRANSPORTER_CONTROL_NETWORK_H

#include "actors/transporter/control/control.h"
#include "runtime/net/fabric/core/internal.h"

struct sl_network {
    void *context;
    /* Instead of sl_control_open. */
    sl_err (*control_open)(void *context, const struct sl_control_options *options,
                           struct sl_control **out, struct sl_error *why);
    /* Carries the units of the fabric, of whichever kind; finds context in
     * options.backend_context. */
    const struct fabric_backend *backend;
};

#endif
