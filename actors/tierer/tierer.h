/* actors/tierer/tierer.h - the actor that stores values on one disk. */
#ifndef SL_TIERER_H
#define SL_TIERER_H

#include "runtime/base/sl_actor.h"

/* Ranked: tierer.N serves directory N of disk_path. Fails to start when the setting `disk` is 0. */
extern const struct sl_actor sl_tierer_actor;

#endif
