/* client/gate/allow.h - the users that the setting clients_allow names. */
#ifndef SL_CLIENT_GATE_ALLOW_H
#define SL_CLIENT_GATE_ALLOW_H

#include "runtime/sl_error.h"

#define GATE_ALLOW_MAX 64u

struct gate_allow {
    uint32_t count;
    struct {
        bool group;
        uint32_t id;
    } all[GATE_ALLOW_MAX];
};

/* Of words between commas: NAME or UID, @GROUP or @GID. Errors: SL_ERR_CONFIG (no such user or group, too
 * many). */
sl_err gate_allow_read(const char *text, struct gate_allow *out, struct sl_error *why);
/* Whether the kernel says that the other side of the socket is one of them, also by a supplementary
 * group. */
bool gate_allows(const struct gate_allow *allow, int socket_fd);

#endif
