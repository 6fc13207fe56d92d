/* actors/transporter/transporter.h - bytes between nodes; for now it plans memory regions and
 * reports them. */
#ifndef SL_TRANSPORTER_H
#define SL_TRANSPORTER_H

#include "runtime/base/sl_actor.h"

extern const struct sl_actor sl_transporter_actor;

#endif
