/* actors/transporter/transporter.h - the transporter: the actor that moves values between nodes. */
#ifndef SL_TRANSPORTER_H
#define SL_TRANSPORTER_H

#include "runtime/base/sl_actor.h"

extern const struct sl_actor sl_transporter_actor;

#endif
