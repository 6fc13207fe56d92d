/* client/tools/ctl/dirs.h - whether the directories of a node are in order. */
#ifndef SL_CLIENT_CTL_DIRS_H
#define SL_CLIENT_CTL_DIRS_H

#include "client/tools/command/command.h"

/* Nobody else may be able to put another one in the place of a directory of the node, or have put a
 * file there. For a start (start) none has files that are no node's; what is missing is made,
 * segments' aside, and what is open to others closed. *holds: whether a node has, or had, the
 * runtime directory. */
sl_err ctl_dirs_check(const struct ctl *ctl, bool start, bool *holds, struct sl_error *why);
/* The text of a setting; of a place as it comes out, not as it was set. */
const char *ctl_place_of(const struct ctl *ctl, enum sl_setting setting);

#endif
