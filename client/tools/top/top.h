/* client/tools/top/top.h - declares the command sluicectl top. */
#ifndef SL_CLIENT_TOP_TOP_H
#define SL_CLIENT_TOP_TOP_H

#include "client/tools/command/command.h"

extern const struct ctl_command ctl_top;

#endif
