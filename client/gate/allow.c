/* client/gate/allow.c - see allow.h. */
#include "client/gate/allow.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif
#define GROUPS_MAX  1024u
#define OVERFLOW_ID 65534u

static sl_err id_read(const char *what, const char *word, bool group, uint32_t *out,
                      struct sl_error *why)
{
    char *end = NULL;
    errno = 0;
    unsigned long number = strtoul(word, &end, 10);
    if (word[0] >= '0' && word[0] <= '9' && *end == '\0' && errno == 0 && number < UINT32_MAX) {
        *out = (uint32_t)number;
        return SL_OK;
    }
    const struct group *of_group = group ? getgrnam(word) : NULL;
    const struct passwd *of_user = group ? NULL : getpwnam(word);
    if (of_group == NULL && of_user == NULL) {
        return sl_fail(why, SL_ERR_CONFIG, "%s: there is no %s '%.60s'", what,
                       group ? "group" : "user", word);
    }
    *out = group ? of_group->gr_gid : of_user->pw_uid;
    return SL_OK;
}

sl_err gate_allow_read(const char *what, const char *text, struct gate_allow *out,
                       struct sl_error *why)
{
    SL_AUTO(free) char *copy = strdup(text);
    char *rest = NULL;
    *out = (struct gate_allow){0};
    if (copy == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "%s", what);
    }
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): copy has its clean-up */
    for (const char *word = strtok_r(copy, ", ", &rest); word != NULL;
         word = strtok_r(NULL, ", ", &rest)) {
        bool group = word[0] == '@';
        if (out->count == GATE_ALLOW_MAX) {
            return sl_fail(why, SL_ERR_CONFIG, "%s: more than %u", what, GATE_ALLOW_MAX);
        }
        sl_err err = id_read(what, word + group, group, &out->all[out->count].id, why);
        if (err != SL_OK) {
            return err;
        }
        out->all[out->count++].group = group;
    }
    return SL_OK;
}

/* Of all users or groups that the namespace does not map; UINT32_MAX: it maps all. A user called so by name
 * cannot be told from those. */
static uint32_t id_unknown(bool group)
{
    unsigned inside = 0, outside = 0, count = 0, id = UINT32_MAX;
    FILE *map = fopen(group ? "/proc/self/gid_map" : "/proc/self/uid_map", "re");
    bool all = map != NULL && fscanf(map, "%u %u %u", &inside, &outside, &count) == 3 &&
               count == UINT32_MAX;
    if (map != NULL) {
        (void)fclose(map);
    }
    if (all) {
        return UINT32_MAX;
    }
    FILE *overflow =
        fopen(group ? "/proc/sys/kernel/overflowgid" : "/proc/sys/kernel/overflowuid", "re");
    if (overflow == NULL || fscanf(overflow, "%u", &id) != 1) {
        id = OVERFLOW_ID;
    }
    if (overflow != NULL) {
        (void)fclose(overflow);
    }
    return id;
}

bool gate_peer(int socket_fd, uint32_t *uid)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
        return false;
    }
    *uid = peer.uid;
    return peer.uid != id_unknown(false);
}

static bool has(const struct gate_allow *allow, bool group, uint32_t id)
{
    if (group && id == id_unknown(true)) {
        return false;
    }
    for (uint32_t i = 0; i < allow->count; i++) {
        if (allow->all[i].group == group && allow->all[i].id == id) {
            return true;
        }
    }
    return false;
}

bool gate_allows(const struct gate_allow *allow, int socket_fd, bool shuts)
{
    struct ucred peer;
    gid_t groups[GROUPS_MAX];
    uint32_t uid = 0;
    socklen_t size = sizeof(peer), groups_size = sizeof(groups);
    if (!gate_peer(socket_fd, &uid) || (uid == 0 && !shuts) || uid == geteuid() ||
        getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
        return false;
    }
    bool allowed = has(allow, false, peer.uid) || (uid != 0 && has(allow, true, peer.gid));
    if (!allowed && uid != 0 &&
        getsockopt(socket_fd, SOL_SOCKET, SO_PEERGROUPS, groups, &groups_size) == 0) {
        for (size_t i = 0; i < groups_size / sizeof(groups[0]) && !allowed; i++) {
            allowed = has(allow, true, groups[i]);
        }
    }
    return allowed;
}
