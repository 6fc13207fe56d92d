/* client/tools/ctl/rights.h - checks the files of a node that hold a secret or give a right.
 * `doctor` and the start of a node both use it, so that they agree. */
#ifndef SL_CTL_RIGHTS_H
#define SL_CTL_RIGHTS_H

#include "runtime/base/sl_config.h"

struct ctl_right {
    const char *name, *path; /* name: the setting or variable */
    sl_err err; /* SL_ERR_NOT_FOUND; SL_ERR_CONFIG: other users could read or write it */
    struct sl_error why;
};

/* The next configured file, starting at *at = 0: settings whose name ends in _file, the token of
 * /metrics, and the settings file if it has a URL with a password. False: no more. */
bool ctl_right_next(const struct sl_config *config, uint32_t *at, struct ctl_right *out);
/* Checks that the node may start with these files and, if it has peers, with its own keys. Only
 * peers_file may be missing: it may be created later. Errors: SL_ERR_CONFIG. */
sl_err ctl_rights_check(const struct sl_config *config, struct sl_error *why);

#endif
