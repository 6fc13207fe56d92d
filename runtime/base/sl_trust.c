/* runtime/base/sl_trust.c - see sl_trust.h. */
#include "runtime/base/sl_trust.h"
#include "runtime/base/sl_base.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* This user or root; in an unprivileged container root is the owner of the root directory. */
static bool owner_trusted(uid_t owner)
{
    struct stat root;
    return owner == geteuid() || owner == 0 || (stat("/", &root) == 0 && owner == root.st_uid);
}

/* Checks each directory above an open file or directory, by the kernel's path without links. in_it:
 * "", or "/NAME" to check an open directory itself also. foreign: the error code if one belongs to
 * another user. */
static sl_err above_check(int fd, const char *path, const char *in_it, sl_err foreign,
                          struct sl_error *why)
{
    char link[32], real[PATH_MAX + 8];
    struct sl_error inner = {0};
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, real, PATH_MAX - 1);
    if (length <= 0 || real[0] != '/') {
        return sl_fail(why, SL_ERR_CONFIG,
                       "'%.120s': cannot find the directories that lead to it (%s)", path,
                       length < 0 ? strerror(errno) : "no path");
    }
    (void)snprintf(real + length, 8, "%s", in_it);
    sl_err err = sl_file_path_check(real, &inner);
    sl_err code = err == SL_ERR_FOREIGN ? foreign : SL_ERR_CONFIG;
    bool linked = strncmp(path, real, strlen(path)) != 0;
    return err == SL_OK ? SL_OK
           : linked     ? sl_fail(why, code, "'%.80s': %s", path, inner.text)
                        : sl_fail(why, code, "%s", inner.text);
}

static sl_err link_check(const char *path, struct sl_error *why)
{
    struct stat status;
    if (lstat(path, &status) != 0) {
        return sl_fail(why, errno == ENOENT ? SL_ERR_NOT_FOUND : SL_ERR_CONFIG, "'%.120s': %s",
                       path, strerror(errno));
    }
    return owner_trusted(status.st_uid)
               ? SL_OK
               : sl_fail(why, SL_ERR_CONFIG,
                         "'%.120s' belongs to uid %u, neither this user nor root", path,
                         (unsigned)status.st_uid);
}

/* Bits of `refused` that do no harm. Root gives a file to a group that is to read it: secrets of
 * Kubernetes are 0440 with fsGroup, credentials of systemd have such an ACL. */
static uint32_t harmless(const struct stat *status, uint32_t refused)
{
    bool of_root = status->st_uid == 0 || status->st_uid != geteuid();
    /* With umask 002 a group with the owner's number has no other member; root's group is
     * root's. */
    bool writable = refused == SL_TRUST_RIGHT && status->st_gid == status->st_uid;
    return (of_root ? (uint32_t)S_IRGRP : 0) | (writable ? (uint32_t)S_IWGRP : 0);
}

static sl_err file_check(int fd, const char *path, uint32_t refused, struct sl_error *why)
{
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        return sl_fail(why, SL_ERR_CONFIG, "'%.120s' is no plain file", path);
    }
    if (!owner_trusted(status.st_uid)) {
        return sl_fail(why, SL_ERR_CONFIG, "'%.120s' belongs to uid %u, neither this user nor root",
                       path, (unsigned)status.st_uid);
    }
    if ((status.st_mode & refused & ~harmless(&status, refused)) != 0) {
        return sl_fail(
            why, SL_ERR_CONFIG, "'%.120s': users other than its owner%s can %s it (mode %04o): %s",
            path, refused == SL_TRUST_GROUP ? " and group" : "",
            refused == SL_TRUST_RIGHT ? "write" : "read or write", (unsigned)status.st_mode & 07777,
            refused == SL_TRUST_SECRET ? "chmod 0600 it"
            : refused == SL_TRUST_GROUP
                ? "chmod g-w,o= it, and chgrp it to a group of the node's user"
                : "chmod go-w it");
    }
    return SL_OK;
}

sl_err sl_trust_read(const char *path, uint32_t refused, bool placed, char *out, size_t room,
                     struct sl_error *why)
{
    size_t length = 0;
    sl_err err = link_check(path, why);
    if (err != SL_OK) {
        return err;
    }
    SL_AUTO(close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        return sl_fail(why, errno == ENOENT ? SL_ERR_NOT_FOUND : SL_ERR_CONFIG, "'%.120s': %s",
                       path, strerror(errno));
    }
    err = file_check(fd, path, refused, why);
    if (err == SL_OK && !placed) {
        err = above_check(fd, path, "", SL_ERR_CONFIG, why);
    }
    while (err == SL_OK && length < room) {
        ssize_t got = read(fd, out + length, room - length);
        if (got == 0) {
            out[length] = '\0';
            return SL_OK;
        }
        if (got < 0 && errno != EINTR) {
            err = sl_fail(why, SL_ERR_CONFIG, "'%.120s': %s", path, strerror(errno));
        }
        length += got > 0 ? (size_t)got : 0;
    }
    return err != SL_OK
               ? err
               : sl_fail(why, SL_ERR_CONFIG, "'%.120s' has more than %zu bytes", path, room - 1);
}

sl_err sl_trust_directory(const char *directory, struct sl_error *why)
{
    SL_AUTO(close) int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return sl_fail(why, SL_ERR_CONFIG, "directory '%.120s': %s", directory, strerror(errno));
    }
    return above_check(fd, directory, "/NAME", SL_ERR_FOREIGN, why);
}
