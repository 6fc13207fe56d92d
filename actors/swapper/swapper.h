/* actors/swapper/swapper.h - the actor that copies parts between a rank's device and the arena. */
#ifndef SL_SWAPPER_H
#define SL_SWAPPER_H

#include "runtime/base/sl_actor.h"

extern const struct sl_actor sl_swapper_actor;

#endif
