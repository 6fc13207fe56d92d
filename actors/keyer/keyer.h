/* actors/keyer/keyer.h - the actor that derives block keys from tokens. It has no state. */
#ifndef SL_KEYER_H
#define SL_KEYER_H

#include "runtime/base/sl_actor.h"

extern const struct sl_actor sl_keyer_actor;

#endif
