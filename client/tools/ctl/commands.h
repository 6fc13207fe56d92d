/* client/tools/ctl/commands.h - the commands that query, change and check a node. */
#ifndef SL_CLIENT_CTL_COMMANDS_H
#define SL_CLIENT_CTL_COMMANDS_H

#include "client/tools/command/command.h"

extern const struct ctl_command ctl_put, ctl_get, ctl_exists, ctl_prefetch, ctl_rm, ctl_ls,
    ctl_stat, ctl_explain, ctl_flush, ctl_session, ctl_status, ctl_metrics, ctl_tiers, ctl_pools,
    ctl_contributions, ctl_nodes, ctl_keygen, ctl_trace, ctl_keys, ctl_messages, ctl_config,
    ctl_doctor, ctl_events, ctl_formats, ctl_dirs;

#endif
