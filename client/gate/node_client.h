/* client/gate/node_client.h - a stand-in's own client of the node: one by the node's files, with its settings. */
#ifndef SL_CLIENT_GATE_NODE_CLIENT_H
#define SL_CLIENT_GATE_NODE_CLIENT_H

#include "client/gate/writer.h"
#include "client/lib/sluice.h"

/* who: as of sl_client_open_as. pin_bytes_max: that it may pin. Errors: those of sl_client_open. */
sl_err node_client_open(const char *who, const struct writer_options *options,
                        uint64_t pin_bytes_max, struct sl_client **out, struct sl_error *why);

#endif
