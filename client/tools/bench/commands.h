/* client/tools/bench/commands.h - declares the commands bench, replay and workload. */
#ifndef SL_CLIENT_BENCH_COMMANDS_H
#define SL_CLIENT_BENCH_COMMANDS_H

#include "client/tools/command/command.h"

extern const struct ctl_command ctl_workload, ctl_bench, ctl_replay;

#endif
