/* actors/registrar/registrar.h - the actor that knows a node's processes and keys. One per node.
 *
 * It is the only writer of the index and decides allocation, admission and eviction. See
 * README.md. */
#ifndef SL_REGISTRAR_H
#define SL_REGISTRAR_H

#include "runtime/base/sl_actor.h"

extern const struct sl_actor sl_registrar_actor;

#endif
