/* actors/swapper/swapper.h - parts between the device blocks of one rank and arena extents. */
#ifndef SL_SWAPPER_H
#define SL_SWAPPER_H

#include "runtime/base/sl_actor.h"

extern const struct sl_actor sl_swapper_actor;

#endif
