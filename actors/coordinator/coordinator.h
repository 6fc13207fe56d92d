/* actors/coordinator/coordinator.h - the engine's front door for block-level ops; see README.md. */
#ifndef SL_COORDINATOR_H
#define SL_COORDINATOR_H

#include "runtime/base/sl_actor.h"

extern const struct sl_actor sl_coordinator_actor;

#endif
