/* runtime/base/sl_paths.c - derives the directories of a node's sockets, shm files, logs and disks,
 * and creates directories safely. */
#include "runtime/base/sl_config.h"
#include "runtime/base/sl_trust.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Longest socket name below the runtime directory: "/memory.PID.NUMBER". */
#define SOCKET_NAME_BYTES 40
#define LINKS_MAX         40u /* the limit of Linux */

static sl_err paths_check_instance(const char *instance, struct sl_error *why)
{
    size_t good = strspn(instance, "abcdefghijklmnopqrstuvwxyz0123456789-");
    if (instance[good] != '\0' || instance[0] == '-') {
        return sl_fail(why, SL_ERR_CONFIG,
                       "instance '%s': only a-z, 0-9 and - (not first) are allowed", instance);
    }
    return SL_OK;
}

bool sl_service_dir(const char *instance, char out[64], uint32_t *owner)
{
    struct stat above, status;
    int used = snprintf(out, 64, SL_SERVICE_BASE "/%s", instance);
    if (used < 0 || used >= 64 || lstat(SL_SERVICE_BASE, &above) != 0 || !S_ISDIR(above.st_mode) ||
        above.st_uid != 0 || (above.st_mode & 022) != 0 || lstat(out, &status) != 0 ||
        !S_ISDIR(status.st_mode)) {
        return false;
    }
    *owner = status.st_uid;
    return true;
}

/* Writes the default runtime directory. */
static int runtime_dir_choose(const char *instance, char *out, size_t room)
{
    char service[64];
    uint32_t owner = 0;
    if (sl_service_dir(instance, service, &owner) && owner == geteuid()) {
        return snprintf(out, room, "%s", service);
    }
    const char *base = getenv("XDG_RUNTIME_DIR");
    return snprintf(out, room, "%s/sluice-%u/%s", base != NULL && base[0] == '/' ? base : "/tmp",
                    (unsigned)geteuid(), instance);
}

/* A node's processes start in different directories, where a relative path would differ. */
static sl_err paths_check_absolute(const struct sl_config *config, enum sl_setting setting,
                                   struct sl_error *why)
{
    const char *text = sl_config_text(config, setting);
    if (text[0] != '\0' && text[0] != '/') {
        return sl_fail(why, SL_ERR_CONFIG, "%.100s: %s: '%.64s' must begin with /",
                       sl_config_source(config, setting), sl_setting_name(setting), text);
    }
    return SL_OK;
}

uint32_t sl_config_disk_count(const struct sl_config *config)
{
    uint32_t count = 1;
    for (const char *at = sl_config_text(config, SL_SET_disk_path); *at != '\0'; at++) {
        count += *at == ',' ? 1 : 0;
    }
    return count;
}

uint64_t sl_config_index_memory(const struct sl_config *config)
{
    uint64_t set = sl_config_u64(config, SL_SET_index_memory);
    uint64_t memory = sl_config_u64(config, SL_SET_memory);
    uint64_t for_disk = SL_MIN(sl_config_u64(config, SL_SET_disk) / 16, SL_MAX(memory, SL_GIB));
    return set != 0 ? set : SL_MAX(memory / 8 + for_disk, SL_INDEX_MEMORY_MIN);
}

bool sl_config_index_is_derived(const struct sl_config *config)
{
    return sl_config_u64(config, SL_SET_index_memory) == 0 &&
           sl_config_u64(config, SL_SET_index_keys) == 0;
}

const char *sl_disk_path_dir(const char *path)
{
    const char *slash = strchr(path, '/');
    return slash != NULL && slash > path && slash[-1] == ':' ? slash : path;
}

/* Length without trailing slashes, which do not change the directory. */
static size_t path_length(const char *path, size_t length)
{
    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    return length;
}

/* Checks the name only; sl_disk_open finds the function. */
static bool disk_kind_is_known(const char *kind, size_t length)
{
#define KIND_NAME(name, open) name,
    static const char *const names[] = {SL_DISK_KINDS(KIND_NAME)};
#undef KIND_NAME
    for (size_t i = 0; i < SL_COUNT(names); i++) {
        if (strlen(names[i]) == length && memcmp(names[i], kind, length) == 0) {
            return true;
        }
    }
    return false;
}

static sl_err disk_path_add(const struct sl_config *config, const char *path, size_t length,
                            struct sl_paths *paths, struct sl_error *why)
{
    const char *source = sl_config_source(config, SL_SET_disk_path);
    if (length == 0) {
        return sl_fail(why, SL_ERR_CONFIG, "%.100s: disk_path: entry %u is empty", source,
                       paths->disk_count + 1);
    }
    const char *directory = sl_disk_path_dir(path);
    if (directory >= path + length || directory[0] != '/') {
        return sl_fail(why, SL_ERR_CONFIG, "%.100s: disk_path: '%.*s' must begin with /", source,
                       (int)SL_MIN(length, (size_t)64), path);
    }
    size_t kind_length = (size_t)(directory - path);
    if (!disk_kind_is_known(path, kind_length)) {
        return sl_fail(why, SL_ERR_CONFIG, "%.100s: disk_path: '%.*s': there is no kind '%.*s'",
                       source, (int)SL_MIN(length, (size_t)64), path,
                       (int)SL_MIN(kind_length, (size_t)32), path);
    }
    size_t dir_length = path_length(directory, (size_t)(path + length - directory));
    for (uint32_t i = 0; i < paths->disk_count; i++) {
        const char *other = sl_disk_path_dir(paths->disk_paths[i]);
        if (strlen(other) == dir_length && memcmp(other, directory, dir_length) == 0) {
            return sl_fail(why, SL_ERR_CONFIG, "%.100s: disk_path: '%.64s' is listed twice", source,
                           other);
        }
    }
    (void)snprintf(paths->disk_paths[paths->disk_count++], sizeof(paths->disk_paths[0]), "%.*s",
                   (int)(directory + dir_length - path), path);
    return SL_OK;
}

static sl_err disk_paths_fill(const struct sl_config *config, struct sl_paths *paths,
                              struct sl_error *why)
{
    const char *at = sl_config_text(config, SL_SET_disk_path);
    uint32_t count = sl_config_disk_count(config);
    paths->disk_count = 0;
    if (at[0] == '\0') {
        paths->disk_count = 1;
        (void)snprintf(paths->disk_paths[0], sizeof(paths->disk_paths[0]), "%s/disk",
                       paths->runtime_dir);
        return SL_OK;
    }
    if (count > SL_DISK_PATHS_MAX) {
        return sl_fail(why, SL_ERR_CONFIG, "%.100s: disk_path: %u directories, at most %u",
                       sl_config_source(config, SL_SET_disk_path), count, SL_DISK_PATHS_MAX);
    }
    sl_err err = SL_OK;
    for (uint32_t i = 0; err == SL_OK && i < count; i++) {
        size_t length = strcspn(at, ",");
        size_t blank = SL_MIN(strspn(at, " "), length), bare = length - blank;
        while (bare > 0 && at[blank + bare - 1] == ' ') {
            bare--;
        }
        err = disk_path_add(config, at + blank, bare, paths, why);
        at += length + 1;
    }
    return err;
}

sl_err sl_paths_from(const struct sl_config *config, struct sl_paths *out, struct sl_error *why)
{
    const char *instance = sl_config_text(config, SL_SET_instance);
    sl_err err = paths_check_instance(instance, why);
    static const enum sl_setting places[] = {SL_SET_runtime_dir,
                                             SL_SET_shm_dir,
                                             SL_SET_log_dir,
                                             SL_SET_record,
                                             SL_SET_cluster_keys,
                                             SL_SET_peers_file,
                                             SL_SET_directory_password_file};
    for (size_t i = 0; err == SL_OK && i < SL_COUNT(places); i++) {
        err = paths_check_absolute(config, places[i], why);
    }
    if (err != SL_OK) {
        return err;
    }
    struct sl_paths paths;
    const char *runtime_dir = sl_config_text(config, SL_SET_runtime_dir);
    const char *shm_dir = sl_config_text(config, SL_SET_shm_dir);
    const char *log_dir = sl_config_text(config, SL_SET_log_dir);
    unsigned uid = (unsigned)geteuid();
    int used = runtime_dir[0] != '\0'
                   ? snprintf(paths.runtime_dir, sizeof(paths.runtime_dir), "%s", runtime_dir)
                   : runtime_dir_choose(instance, paths.runtime_dir, sizeof(paths.runtime_dir));
    size_t socket_room = sizeof(((struct sockaddr_un *)0)->sun_path) - SOCKET_NAME_BYTES;
    if (used < 0 || (size_t)used > socket_room) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "runtime_dir '%.80s...': longer than the %zu bytes that sockets leave",
                       paths.runtime_dir, socket_room);
    }
    if (shm_dir[0] != '\0') {
        (void)snprintf(paths.shm_dir, sizeof(paths.shm_dir), "%s", shm_dir);
    } else {
        (void)snprintf(paths.shm_dir, sizeof(paths.shm_dir), "/dev/shm/sluice-%u/%s", uid,
                       instance);
    }
    (void)snprintf(paths.log_dir, sizeof(paths.log_dir), "%s%s",
                   log_dir[0] != '\0' ? log_dir : paths.runtime_dir,
                   log_dir[0] != '\0' ? "" : "/log");
    err = disk_paths_fill(config, &paths, why);
    if (err != SL_OK) {
        return err;
    }
    *out = paths;
    return SL_OK;
}

/* How to walk down a path. */
struct walk {
    const char *path;
    uint32_t refused;  /* bits of the mode that the last directory must not have */
    bool makes;        /* create missing directories; otherwise SL_ERR_NOT_FOUND */
    bool trusted_only; /* no other user may own a directory on the way */
    bool file;         /* checks the directories of a file; the caller checks the file itself */
    uid_t root;        /* owner of /: root, or root as an unprivileged container shows it */
};

static sl_err dir_check_own(int fd, const char *path, uint32_t refused, struct sl_error *why)
{
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return sl_fail_os(why, errno, "directory '%s'", path);
    }
    if (status.st_uid != geteuid()) {
        return sl_fail(why, SL_ERR_FOREIGN, "directory '%s' belongs to uid %u, not %u", path,
                       (unsigned)status.st_uid, (unsigned)geteuid());
    }
    if ((status.st_mode & refused) != 0) {
        return sl_fail(why, SL_ERR_PERMISSION,
                       "directory '%s' is open to others (mode %04o): chmod 0700 it", path,
                       (unsigned)status.st_mode & 07777);
    }
    return SL_OK;
}

/* Whether an entry of this owner is safe in a directory where others may create names: root's, this
 * user's, or the directory owner's except in directories like /tmp. */
static bool entry_trusted(uid_t owner, const struct stat *above)
{
    return owner == 0 || owner == geteuid() ||
           (owner == above->st_uid && (above->st_mode & S_IWOTH) == 0);
}

/* Follows the link of this name if its owner is trusted. The link is opened once, so that it cannot
 * be replaced meanwhile. -1 with errno; ELOOP: the owner is not trusted. */
static int link_follow(int fd, const char *name, const struct stat *above)
{
    struct stat status;
    char target[PATH_MAX];
    SL_AUTO(close) int link = openat(fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (link < 0 || fstat(link, &status) != 0) {
        return -1;
    }
    if (!S_ISLNK(status.st_mode) || !entry_trusted(status.st_uid, above)) {
        errno = S_ISLNK(status.st_mode) ? ELOOP : ENOTDIR;
        return -1;
    }
    ssize_t length = readlinkat(link, "", target, sizeof target - 1);
    if (length < 0) {
        return -1;
    }
    target[length] = '\0';
    return openat(fd, target, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static sl_err owner_check(const struct stat *status, const char *name, const struct walk *walk,
                          struct sl_error *why)
{
    if (status->st_uid == geteuid() || status->st_uid == 0 || status->st_uid == walk->root) {
        return SL_OK;
    }
    return sl_fail(why, SL_ERR_FOREIGN, "%s'%s': '%s' belongs to uid %u, who could replace it",
                   walk->file ? "" : "directory ", walk->path, name, (unsigned)status->st_uid);
}

/* Whether Kubernetes mounted this directory for a ConfigMap: it has mode 0777 but is read-only, so
 * no process in the pod can write there, and on the host it is below a directory of root. Only root
 * could have made this link in a directory of root. */
static bool is_of_kubelet(int fd, const struct stat *status)
{
    struct stat link;
    return status->st_uid == 0 && fstatat(fd, "..data", &link, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISLNK(link.st_mode) && link.st_uid == 0;
}

/* Checks that no other user can replace the entry `name`: in a directory without the sticky bit any
 * user with write access can, even if the entry belongs to another user. Allowed are a group with
 * the owner's own number (as with umask 002) and the group that root gave /var/log (syslog, on
 * Ubuntu). Other system groups have human members (users, staff). */
static sl_err above_check(int fd, const struct stat *above, const char *name,
                          const struct walk *walk, struct sl_error *why)
{
    struct stat log;
    bool is_log = above->st_uid == 0 && stat("/var/log", &log) == 0 &&
                  log.st_dev == above->st_dev && log.st_ino == above->st_ino;
    bool closed_group = above->st_gid == above->st_uid || is_log;
    mode_t others = closed_group ? S_IWOTH : S_IWOTH | S_IWGRP;
    if ((above->st_mode & others) == 0 || (above->st_mode & S_ISVTX) != 0 ||
        (walk->file && is_of_kubelet(fd, above))) {
        return SL_OK;
    }
    return sl_fail(why, SL_ERR_PERMISSION,
                   "%s'%s': others may write to the directory of '%s' (mode %04o) and replace it: "
                   "chmod go-w or chmod +t that directory, or use another path",
                   walk->file ? "" : "directory ", walk->path, name,
                   (unsigned)above->st_mode & 07777);
}

/* Replaces *fd by the directory `name` in it, created with mode 0700 if missing. last: only checks
 * *fd, the directory of the file. Where others may create names, another user may have made this
 * one or a link, and would own what is below it. */
static sl_err dir_descend(int *fd, const char *name, const struct walk *walk, bool last,
                          struct sl_error *why)
{
    const char *path = walk->path;
    struct stat above;
    struct stat status;
    if (fstat(*fd, &above) != 0) {
        return sl_fail_os(why, errno, "directory '%s'", path);
    }
    sl_err err = walk->trusted_only ? above_check(*fd, &above, name, walk, why) : SL_OK;
    if (err != SL_OK || last) {
        return err;
    }
    bool shared = (above.st_mode & (S_IWOTH | S_IWGRP)) != 0;
    int flags = O_PATH | O_DIRECTORY | O_CLOEXEC | (shared ? O_NOFOLLOW : 0);
    int next = openat(*fd, name, flags);
    if (next < 0 && errno == ENOENT && !walk->makes) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "directory '%s' does not exist", path);
    }
    if (next < 0 && errno == ENOENT) {
        if (mkdirat(*fd, name, 0700) != 0 && errno != EEXIST) {
            return sl_fail_os(why, errno, "make directory '%s' ('%s')", path, name);
        }
        next = openat(*fd, name, flags);
    }
    if (next < 0 && shared && (above.st_mode & S_IWOTH) == 0 &&
        (errno == ENOTDIR || errno == ELOOP)) {
        next = link_follow(*fd, name, &above);
    }
    if (next < 0) {
        return errno == ENOTDIR || errno == ELOOP
                   ? sl_fail(why, SL_ERR_FOREIGN, "directory '%s': '%s' is no directory", path,
                             name)
                   : sl_fail_os(why, errno, "directory '%s' ('%s')", path, name);
    }
    (void)close(*fd);
    *fd = next;
    if (fstat(next, &status) != 0) {
        return sl_fail_os(why, errno, "directory '%s'", path);
    }
    if (shared && !entry_trusted(status.st_uid, &above)) {
        bool is_temporary = strncmp(path, "/tmp/", 5) == 0 || strncmp(path, "/dev/shm/", 9) == 0;
        return sl_fail(why, SL_ERR_FOREIGN, "directory '%s': '%s' belongs to uid %u, not %u%s",
                       path, name, (unsigned)status.st_uid, (unsigned)geteuid(),
                       is_temporary ? ": root may remove it" : "");
    }
    return walk->trusted_only ? owner_check(&status, name, walk, why) : SL_OK;
}

/* Reads the target of `name` if it is a link that may be followed. Links in /proc do not lead where
 * their text says; the kernel follows them. */
static bool link_read(int fd, const char *name, char target[PATH_MAX])
{
    struct stat above, status;
    struct statfs system;
    SL_AUTO(close) int link = openat(fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (link < 0 || fstat(fd, &above) != 0 || fstat(link, &status) != 0 ||
        !S_ISLNK(status.st_mode) || (above.st_mode & S_IWOTH) != 0 ||
        ((above.st_mode & S_IWGRP) != 0 && !entry_trusted(status.st_uid, &above)) ||
        fstatfs(fd, &system) != 0 || system.f_type == PROC_SUPER_MAGIC) {
        return false;
    }
    ssize_t length = readlinkat(link, "", target, PATH_MAX - 1);
    target[SL_MAX(length, (ssize_t)0)] = '\0';
    return length > 0;
}

/* Replaces a link by the directories on its target's path in `rest`: others may write to these as
 * well. Creates nothing. */
static sl_err link_resolve(int *fd, const char *name, const char *target, const struct walk *walk,
                           char rest[PATH_MAX], struct sl_error *why)
{
    char after[PATH_MAX];
    struct stat above;
    SL_AUTO(close) int there = openat(*fd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (there < 0 || fstat(*fd, &above) != 0) {
        return sl_fail_os(why, errno, "directory '%s' ('%s')", walk->path, name);
    }
    sl_err err = above_check(*fd, &above, name, walk, why);
    (void)snprintf(after, sizeof after, "%s", rest);
    if (err == SL_OK && snprintf(rest, PATH_MAX, "%s/%s", target, after) >= PATH_MAX) {
        err = sl_fail_os(why, ENAMETOOLONG, "directory '%s' ('%s')", walk->path, name);
    }
    if (err == SL_OK && target[0] == '/') {
        (void)close(*fd);
        *fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        err = *fd >= 0 ? SL_OK : sl_fail_os(why, errno, "directory '/'");
    }
    return err;
}

static sl_err dir_walk(const struct walk *walk, struct sl_error *why)
{
    const char *path = walk->path;
    char rest[PATH_MAX], target[PATH_MAX], name[NAME_MAX + 1];
    uint32_t links = 0;
    if (path[0] == '\0') {
        return sl_fail(why, SL_ERR_INVALID, "a directory needs a name");
    }
    SL_AUTO(close) int fd = open(path[0] == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return sl_fail_os(why, errno, "directory '%s'", path);
    }
    if (snprintf(rest, sizeof rest, "%s", path) >= (int)sizeof rest) {
        return sl_fail_os(why, ENAMETOOLONG, "directory '%.100s...'", path);
    }
    for (;;) {
        size_t slashes = strspn(rest, "/"), length = strcspn(rest + slashes, "/");
        if (length == 0) {
            return dir_check_own(fd, path, walk->refused, why);
        }
        if (length > NAME_MAX || links > LINKS_MAX) {
            return sl_fail_os(why, length > NAME_MAX ? ENAMETOOLONG : ELOOP, "directory '%s'",
                              path);
        }
        (void)snprintf(name, sizeof name, "%.*s", (int)length, rest + slashes);
        memmove(rest, rest + slashes + length, strlen(rest + slashes + length) + 1);
        bool last = walk->file && rest[0] == '\0';
        bool link = walk->trusted_only && !last && link_read(fd, name, target);
        links += link ? 1 : 0;
        sl_err err = link ? link_resolve(&fd, name, target, walk, rest, why)
                          : dir_descend(&fd, name, walk, last, why);
        if (err != SL_OK || last) {
            return err;
        }
    }
}

sl_err sl_dir_make_for(const char *path, uint32_t refused, struct sl_error *why)
{
    return dir_walk(&(struct walk){.path = path, .refused = refused, .makes = true}, why);
}

/* Walks a path that only this user and root may control: the owner of a directory on the way could
 * replace what is below it. */
static sl_err private_walk(struct walk walk, struct sl_error *why)
{
    struct stat root;
    if (stat("/", &root) != 0) {
        return sl_fail_os(why, errno, "directory '/'");
    }
    walk.trusted_only = true;
    walk.root = root.st_uid;
    return dir_walk(&walk, why);
}

sl_err sl_dir_make(const char *path, struct sl_error *why)
{
    return private_walk((struct walk){.path = path, .refused = 0077, .makes = true}, why);
}

sl_err sl_dir_check(const char *path, struct sl_error *why)
{
    return private_walk((struct walk){.path = path, .refused = 0022}, why);
}

sl_err sl_file_path_check(const char *path, struct sl_error *why)
{
    return private_walk((struct walk){.path = path, .file = true}, why);
}

sl_err sl_dir_sync(const char *path, struct sl_error *why)
{
    SL_AUTO(close) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 ||
        (fsync(fd) != 0 && errno != EINVAL)) { /* EINVAL: the file system has nothing to sync */
        return sl_fail_os(why, errno, "sync '%s'", path);
    }
    return SL_OK;
}

uint64_t sl_dir_used_bytes(const char *path)
{
    uint64_t bytes = 0;
    struct stat status;
    SL_AUTO(closedir) DIR *directory = opendir(path);
    for (const struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        if (fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(status.st_mode)) {
            bytes += (uint64_t)status.st_blocks * 512;
        }
    }
    return bytes;
}
