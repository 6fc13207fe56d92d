/* actors/keyer/keyer.h - tokens in, block keys out. Stateless: any keyer answers any request. */
#ifndef SL_KEYER_H
#define SL_KEYER_H

#include "runtime/base/sl_actor.h"

extern const struct sl_actor sl_keyer_actor;

#endif
