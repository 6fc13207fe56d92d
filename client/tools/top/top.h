/* client/tools/top/top.h - sluicectl top, for main. */
#ifndef SL_CLIENT_TOP_TOP_H
#define SL_CLIENT_TOP_TOP_H

#include "client/tools/command/command.h"

extern const struct ctl_command ctl_top;

#endif
