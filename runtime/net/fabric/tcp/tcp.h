/* runtime/net/fabric/tcp/tcp.h - the tcp back end. */
#ifndef SL_FABRIC_TCP_TCP_H
#define SL_FABRIC_TCP_TCP_H

#include "runtime/net/fabric/core/internal.h"

extern const struct fabric_backend sl_fabric_tcp;

#endif
