/* actors/registrar/registrar.h - who is there, which keys exist and where, and who may write what.
 *
 * One a node. Sole writer of the index; owns allocation, admission and eviction. See README.md. */
#ifndef SL_REGISTRAR_H
#define SL_REGISTRAR_H

#include "runtime/base/sl_actor.h"

extern const struct sl_actor sl_registrar_actor;

#endif
