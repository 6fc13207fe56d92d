/* actors/coordinator/coordinator.h - the actor that runs engines' STORE and LOAD; see README.md. */
#ifndef SL_COORDINATOR_H
#define SL_COORDINATOR_H

#include "runtime/base/sl_actor.h"

extern const struct sl_actor sl_coordinator_actor;

#endif
