/* client/gate/allow.h - the users that the settings clients_allow and clients_write name. */
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

/* Of words between commas: NAME or UID, @GROUP or @GID. what: the setting. Errors: SL_ERR_CONFIG (no such
 * user or group, too many). */
sl_err gate_allow_read(const char *what, const char *text, struct gate_allow *out,
                       struct sl_error *why);
/* Whether the kernel says that the other side of the socket is one of them, also by a supplementary group.
 * Never: this user, and who is unknown. Root is one only where its number is named, and shuts: nobody can
 * open anew to write what he reads (readonly.h). */
bool gate_allows(const struct gate_allow *allow, int socket_fd, bool shuts);
/* Which user the kernel says is there. False: none, or one that this user namespace has no number for. */
bool gate_peer(int socket_fd, uint32_t *uid);

#endif
