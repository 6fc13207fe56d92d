/* client/tools/ctl/dirs.h - checks of the directories of a node. */
#ifndef SL_CLIENT_CTL_DIRS_H
#define SL_CLIENT_CTL_DIRS_H

#include "client/tools/command/command.h"

/* Checks that no other user can replace a directory of the node or has put a file there. With start
 * it also refuses foreign files, creates missing directories except the shm directory, and closes
 * those that other users can open. *holds: whether a node has or had the runtime directory. */
sl_err ctl_dirs_check(const struct ctl *ctl, bool start, bool *holds, struct sl_error *why);
/* The text of a setting; a path as it was resolved, not as it was set. Borrowed. */
const char *ctl_path_of(const struct ctl *ctl, enum sl_setting setting);

#endif
