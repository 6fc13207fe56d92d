/* runtime/sl_trust.c - see sl_trust.h. */
#include "runtime/sl_trust.h"
#include "runtime/sl_base.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* This user and root; in an unprivileged container root is who owns the root directory. */
static bool owner_trusted(uid_t owner)
{
    struct stat root;
    return owner == geteuid() || owner == 0 || (stat("/", &root) == 0 && owner == root.st_uid);
}

/* A group of the owner's own number has nobody else, where the umask is 002; that of root is root's. */
static bool group_is_owners(const struct stat *status)
{
    return status->st_gid == status->st_uid;
}

/* A ConfigMap of Kubernetes is mounted 0777, and read-only: nobody in the pod writes there, and on the machine it
 * lies below a directory of root's. Only root could have made this link in a directory of root's. */
static bool is_of_kubelet(const char *directory, const struct stat *status)
{
    char path[PATH_MAX];
    struct stat link;
    int length = snprintf(path, sizeof(path), "%s/..data", directory);
    return status->st_uid == 0 && length > 0 && (size_t)length < sizeof(path) &&
           lstat(path, &link) == 0 && S_ISLNK(link.st_mode) && link.st_uid == 0;
}

/* Whether others can put something else in the place of what is in this directory. */
static sl_err directory_check(const char *directory, const char *path, struct sl_error *why)
{
    struct stat status;
    if (stat(directory, &status) != 0) {
        return sl_fail(why, SL_ERR_CONFIG, "'%.90s': its directory '%.90s': %s", path, directory,
                       strerror(errno));
    }
    if (!owner_trusted(status.st_uid)) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "'%.90s': its directory '%.90s' belongs to uid %u, who could replace it",
                       path, directory, (unsigned)status.st_uid);
    }
    mode_t others = group_is_owners(&status) ? S_IWOTH : S_IWOTH | S_IWGRP;
    if ((status.st_mode & others) != 0 && (status.st_mode & S_ISVTX) == 0 &&
        !is_of_kubelet(directory, &status)) {
        return sl_fail(
            why, SL_ERR_CONFIG,
            "'%.120s': others than its owner can write to its directory '%.60s' (mode %04o): "
            "chmod go-w it",
            path, directory, (unsigned)status.st_mode & 07777);
    }
    return SL_OK;
}

/* Each directory above what was opened, by the path without links that the kernel has for it. */
static sl_err above_check(int fd, const char *path, struct sl_error *why)
{
    char link[32], real[PATH_MAX];
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, real, sizeof(real) - 1);
    if (length <= 0 || real[0] != '/') {
        return sl_fail(why, SL_ERR_CONFIG,
                       "'%.120s': which directories lead to it cannot be told (%s)", path,
                       length < 0 ? strerror(errno) : "no path");
    }
    real[length] = '\0';
    sl_err err = SL_OK;
    for (char *slash = strrchr(real, '/'); err == SL_OK && slash != NULL;
         slash = strrchr(real, '/')) {
        *slash = '\0';
        err = directory_check(slash == real ? "/" : real, path, why);
    }
    return err;
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

/* Bits of `refused` that do no harm. Root gave its file to a group that is to read it: secrets of
 * Kubernetes are 0440 with fsGroup, credentials of systemd are so by their ACL. */
static uint32_t harmless(const struct stat *status, uint32_t refused)
{
    bool of_root = status->st_uid == 0 || status->st_uid != geteuid();
    bool writable = refused == SL_TRUST_RIGHT && group_is_owners(status);
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
            why, SL_ERR_CONFIG, "'%.120s': others than its owner%s can %s it (mode %04o): %s", path,
            refused == SL_TRUST_GROUP ? " and group" : "",
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
        err = above_check(fd, path, why);
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

sl_err sl_trust_place(const char *directory, struct sl_error *why)
{
    SL_AUTO(close) int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return sl_fail(why, SL_ERR_CONFIG, "directory '%.120s': %s", directory, strerror(errno));
    }
    sl_err err = directory_check(directory, directory, why);
    return err == SL_OK ? above_check(fd, directory, why) : err;
}
