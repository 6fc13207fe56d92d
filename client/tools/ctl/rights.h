/* client/tools/ctl/rights.h - the files of a node that hold a secret or give a right: looked at by
 * doctor, and by the start of a node, so that the two say the same. */
#ifndef SL_CTL_RIGHTS_H
#define SL_CTL_RIGHTS_H

#include "runtime/base/sl_config.h"

struct ctl_right {
    const char *name, *path; /* of the setting or variable */
    sl_err err; /* SL_ERR_NOT_FOUND; SL_ERR_CONFIG: others could read it or have written it */
    struct sl_error why;
};

/* The next one that is configured, from *at = 0 on: every setting that ends in _file, the token of
 * /metrics, and the settings file that has a URL with a password. False: there is none. */
bool ctl_right_next(const struct sl_config *config, uint32_t *at, struct ctl_right *out);
/* Whether the node may start with them, and with its own keys where it has peers. A list of peers
 * may come later. Errors: SL_ERR_CONFIG. */
sl_err ctl_rights_check(const struct sl_config *config, struct sl_error *why);

#endif
