/* runtime/base/sl_node_dirs.c - names of a node's files in its directories, and their removal. */
#include "runtime/base/sl_node_dirs.h"

#include "runtime/base/metrics_page.h"
#include "runtime/base/sl_config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ACTORS                                                                             \
    "@(registrar|keyer|coordinator|swapper.+([0-9])|tierer.+([0-9])|transporter.+([0-9])|" \
    "metrics|events|gate)"
#define LOGS "@(" ACTORS "|supervisor|clients|identities).@(jsonl|out)*(.1|.new)"
#define SEGMENTS                                                        \
    "@(index|leases|settled|counts|labels|seen|changes|arena.+([0-9])|" \
    "pins.@(" ACTORS "|client.*|guest.*))" /* guest: of release 0.2 */

struct dir_name {
    const char *pattern; /* of fnmatch, with FNM_EXTMATCH */
    mode_t type;
    bool stays;         /* kept after a stop */
    const char *inside; /* of a directory: files that are removed with it */
};

/* clang-format off */
static const struct dir_name runtime_names[] = {
    {"supervisor.lock",                       S_IFREG,  true,  NULL},
    {"start-arguments",                       S_IFREG,  true,  NULL},
    {"log",                                   S_IFDIR,  true,  NULL},
    {"log",                                   S_IFLNK,  true,  NULL},
    {"disk",                                  S_IFDIR,  true,  NULL},
    {"cache",                                 S_IFDIR,  true,  NULL},
    {"cluster",                               S_IFDIR,  true,  NULL},
    {"@(disk|cache|cluster)",                 S_IFLNK,  true,  NULL}, /* to a directory elsewhere */
    {"mooncake-master.@(conf?(.new)|lock)",   S_IFREG,  true,  NULL},
    {"mooncake-client-*",                     S_IFREG,  true,  NULL},
    {"memory[.-]+([0-9]).*",                  S_IFSOCK, true,  NULL}, /* of clients */
    {"metrics.http",                          S_IFSOCK, true,  NULL}, /* possibly of another user's exporter */
    {ACTORS ".@(sock|attach)",                S_IFSOCK, false, NULL}, /* attach: of release 0.2 */
    {"events-+([0-9]).sock",                  S_IFSOCK, false, NULL},
    {"events.@(pub|replay)",                  S_IFSOCK, false, NULL},
    {"@(metrics|events).at*",                 S_IFREG,  false, NULL},
    {"supervisor.@(pid|state|helpers|ready|format|next)?(.new)", S_IFREG, false, NULL},
    {"@(settings?(.new)|start-arguments.new|keep-arena|disk-check)", S_IFREG, false, NULL},
    {"@(registrar|upgrade).lock",             S_IFREG,  false, NULL},
    {"rail.+([0-9])?(.new)",                  S_IFREG,  false, NULL}, /* of release 0.2 */
    {"watch",                                 S_IFIFO,  false, NULL}, /* of release 0.2 */
    {"pid",                                   S_IFDIR,  false, ACTORS},
    {"program",                               S_IFDIR,  false, ACTORS "?(.new)"},
    {"program.old",                           S_IFDIR,  false, "sluice-*"},
    {"gate.d",                                S_IFDIR,  false, "+([0-9])"},
    {"guests",                                S_IFDIR,  false, "gate.attach"}, /* of release 0.2 */
};
static const struct dir_name shm_names[] = {
    {SEGMENTS,                   S_IFREG, false, NULL},
    {"metrics.@(" ACTORS "|client.*)",                S_IFREG, false, NULL},
    {"." SEGMENTS ".*.new",      S_IFREG, false, NULL},
};
static const struct dir_name log_names[] = {
    {LOGS,          S_IFREG, true,  NULL},
    {"program.old", S_IFDIR, false, "sluice-*"},
};
static const struct {
    const struct dir_name *names;
    size_t count;
    const char *evidence; /* without a marker: the directory is a node's if it has one of these */
} dirs[] = {
    [SL_NODE_DIR_RUNTIME] = {runtime_names, SL_COUNT(runtime_names), "@(supervisor|registrar|mooncake-master).lock"},
    [SL_NODE_DIR_SHM] = {shm_names, SL_COUNT(shm_names), "*"}, /* each file is checked: is_segment */
    [SL_NODE_DIR_LOG] = {log_names, SL_COUNT(log_names), "@(*.jsonl*|supervisor.out)"},
};
/* clang-format on */

static bool matches(const char *pattern, const char *name)
{
    return fnmatch(pattern, name, FNM_EXTMATCH) == 0;
}

/* The row of that name; of several, the one of that type. */
static const struct dir_name *name_find(enum sl_node_dir place, const char *name, mode_t type)
{
    const struct dir_name *found = NULL;
    for (size_t i = 0; i < dirs[place].count; i++) {
        const struct dir_name *row = &dirs[place].names[i];
        if (matches(row->pattern, name) && (found == NULL || row->type == (type & S_IFMT))) {
            found = row;
        }
    }
    return found;
}

/* Opens the directory; NULL with *err SL_OK: it does not exist. */
static DIR *dir_open(const char *path, sl_err *err, struct sl_error *why)
{
    DIR *directory = opendir(path);
    *err = directory != NULL || errno == ENOENT ? SL_OK
                                                : sl_fail_os(why, errno, "directory '%s'", path);
    return directory;
}

/* Whether `path` is the directory `above` or in it. */
static bool is_below(const char *path, const char *above)
{
    size_t length = strlen(above);
    return strncmp(path, above, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* Whether a setting names this entry or a path below it. Settings may name devices that do not
 * answer, so their paths are resolved only if it matters whose the entry is. */
static bool is_named(const struct sl_node_dir_want *want, bool marked, const char *name)
{
    char at[PATH_MAX], entry[PATH_MAX + NAME_MAX + 2], other[PATH_MAX];
    (void)snprintf(entry, sizeof(entry), "%s/%s", want->path, name);
    for (uint32_t i = 0; i < want->other_count; i++) {
        if (is_below(want->others[i], entry)) {
            return true;
        }
    }
    if (marked || realpath(want->path, at) == NULL) {
        return false;
    }
    (void)snprintf(entry, sizeof(entry), "%s/%s", strcmp(at, "/") == 0 ? "" : at, name);
    for (uint32_t i = 0; i < want->other_count; i++) {
        if (realpath(want->others[i], other) != NULL && is_below(other, entry)) {
            return true;
        }
    }
    return false;
}

/* Whether the file begins like one that a node makes in shared memory. */
static bool is_segment(DIR *directory, const char *name)
{
    uint64_t magic = 0;
    SL_AUTO(close)
    int fd = openat(dirfd(directory), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fd >= 0 && pread(fd, &magic, sizeof(magic), 0) == (ssize_t)sizeof(magic) &&
           (magic == SL_SHM_FILE_MAGIC || magic == METRICS_MAGIC);
}

/* Whether another user, who once could write here, may have planted this entry: writes would reach
 * another file. A log may be a link of its user's (to /dev/stdout of a container). */
static bool is_planted(const struct sl_node_dir_want *want, const struct stat *status, bool fits)
{
    return status->st_uid != geteuid() ||
           (S_ISLNK(status->st_mode) && !fits && want->place != SL_NODE_DIR_LOG) ||
           (want->place == SL_NODE_DIR_RUNTIME && S_ISREG(status->st_mode) && status->st_nlink > 1);
}

/* Whether two paths are one directory; if one does not exist they are compared as texts. */
static bool same_directory(const char *a, const char *b)
{
    struct stat of_a, of_b;
    return strcmp(a, b) == 0 || (stat(a, &of_a) == 0 && stat(b, &of_b) == 0 &&
                                 of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino);
}

sl_err sl_node_dirs_check_path(const struct sl_paths *paths, const char *setting, const char *path,
                               struct sl_error *why)
{
    const char *const own[] = {paths->runtime_dir, paths->shm_dir, paths->log_dir};
    for (size_t i = 0; i < SL_COUNT(own); i++) {
        if (own[i] != path && same_directory(own[i], path)) {
            return sl_fail(why, SL_ERR_CONFIG,
                           "%s: '%.150s' is the node's directory '%.150s': name another one",
                           setting, path, own[i]);
        }
    }
    return SL_OK;
}

static sl_err marker_read(const struct sl_node_dir_want *want, DIR *directory,
                          struct sl_node_dir_seen *out, struct sl_error *why)
{
    char text[PATH_MAX + 16] = "";
    struct stat status;
    SL_AUTO(close)
    int fd = openat(dirfd(directory), SL_NODE_DIR_MARKER,
                    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        return SL_OK;
    }
    ssize_t length = fd < 0 || fstat(fd, &status) != 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (length < 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid()) {
        return sl_fail(why, SL_ERR_FOREIGN, "'%s/%s' is not a file of this user's nodes: remove it",
                       want->path, SL_NODE_DIR_MARKER);
    }
    char *end = strchr(text, '\n');
    out->made = end != NULL && strcmp(end, "\nmade\n") == 0;
    if (end != NULL) {
        *end = '\0';
    }
    if (access(text, F_OK) == 0 && !same_directory(text, want->runtime_dir)) {
        return sl_fail(why, SL_ERR_EXISTS,
                       "directory '%.200s' is that of another node, whose runtime directory is "
                       "'%.200s': name another one, or stop that node first",
                       want->path, text);
    }
    out->marked = true;
    return SL_OK;
}

/* Result of scanning a directory. */
struct scan {
    const struct sl_node_dir_want *want;
    struct sl_node_dir_seen *seen;
    uint32_t known; /* entries that belong to a node */
    bool evident;
    char doubtful[256]; /* an entry that a node would remove or reuse, if it is a node's */
    char misfit[256];   /* an entry with the name of a node's file, but another type */
};

static void name_copy(char out[256], const char *name)
{
    (void)snprintf(out, 256, "%s", name);
}

static sl_err entry_scan(struct scan *scan, DIR *directory, const char *name, struct sl_error *why)
{
    const struct sl_node_dir_want *want = scan->want;
    struct stat status;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
        strcmp(name, SL_NODE_DIR_MARKER) == 0) {
        return SL_OK;
    }
    if (fstatat(dirfd(directory), name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT ? SL_OK : sl_fail_os(why, errno, "'%s/%s'", want->path, name);
    }
    const struct dir_name *row = name_find(want->place, name, status.st_mode);
    bool fits = row != NULL && row->type == (status.st_mode & S_IFMT);
    bool planted = row != NULL && is_planted(want, &status, fits);
    /* Also without a marker, because the contents would be trusted: supervisor.pid names the
     * process to kill. */
    if (planted && (scan->seen->marked || want->place == SL_NODE_DIR_RUNTIME)) {
        return sl_fail(
            why, SL_ERR_FOREIGN,
            "'%.200s/%s' has the name of a node's file but is not one (uid %u, mode %07o, "
            "%u links): remove it",
            want->path, name, (unsigned)status.st_uid, (unsigned)status.st_mode,
            (unsigned)status.st_nlink);
    }
    if (!fits || planted ||
        (want->place == SL_NODE_DIR_SHM && !scan->seen->marked && !is_segment(directory, name))) {
        bool opened =
            row != NULL && (!row->stays || row->type == S_IFREG); /* opening a FIFO would block */
        if (opened && !fits && !S_ISLNK(status.st_mode)) {
            name_copy(scan->misfit, name);
        }
        if (!is_named(want, scan->seen->marked, name)) {
            name_copy(scan->seen->foreign, name);
        }
        return SL_OK;
    }
    scan->known++;
    scan->evident |= matches(dirs[want->place].evidence, name);
    if (!row->stays || want->place == SL_NODE_DIR_LOG ||
        (matches("@(disk|cluster|log)", name) && S_ISDIR(status.st_mode) &&
         !is_named(want, scan->seen->marked, name))) {
        name_copy(scan->doubtful, name);
    }
    return SL_OK;
}

static sl_err dir_scan(struct scan *scan, struct sl_error *why)
{
    sl_err err = SL_OK;
    struct sl_node_dir_seen *seen = scan->seen;
    *seen = (struct sl_node_dir_seen){0};
    SL_AUTO(closedir) DIR *directory = dir_open(scan->want->path, &err, why);
    if (directory == NULL) {
        return err;
    }
    err = marker_read(scan->want, directory, seen, why);
    for (const struct dirent *entry; err == SL_OK && (entry = readdir(directory)) != NULL;) {
        err = entry_scan(scan, directory, entry->d_name, why);
    }
    if (scan->doubtful[0] != '\0' && !seen->marked && !scan->evident) {
        name_copy(seen->foreign, scan->doubtful);
    }
    seen->holds = seen->marked || (scan->evident && seen->foreign[0] == '\0');
    /* A node of an earlier release has no marker; usually it made its directory. */
    seen->made |= !seen->marked && seen->holds;
    return err;
}

sl_err sl_node_dir_scan(const struct sl_node_dir_want *want, struct sl_node_dir_seen *out,
                        struct sl_error *why)
{
    return dir_scan(&(struct scan){.want = want, .seen = out}, why);
}

sl_err sl_node_dir_check(const struct sl_node_dir_want *want, struct sl_node_dir_seen *seen,
                         struct sl_error *why)
{
    struct scan scan = {.want = want, .seen = seen};
    sl_err err = dir_scan(&scan, why);
    bool may_stay = seen->marked || (want->place == SL_NODE_DIR_LOG && scan.known == 0);
    if (err == SL_OK && seen->foreign[0] != '\0' && !may_stay) {
        err = sl_fail(why, SL_ERR_FOREIGN,
                      "directory '%.200s' has files that belong to no node ('%s'): name an empty "
                      "directory, or one that does not exist yet",
                      want->path, seen->foreign);
    }
    if (err == SL_OK && scan.misfit[0] != '\0') {
        err = sl_fail(why, SL_ERR_FOREIGN,
                      "'%.200s/%s' has the name of a node's file but is not one: move it elsewhere",
                      want->path, scan.misfit);
    }
    return err;
}

static sl_err marker_write(const struct sl_node_dir_want *want, bool made, struct sl_error *why)
{
    char text[PATH_MAX + 16], runtime_dir[PATH_MAX];
    if (realpath(want->runtime_dir, runtime_dir) == NULL) {
        return sl_fail_os(why, errno, "directory '%s'", want->runtime_dir);
    }
    int length = snprintf(text, sizeof(text), "%s\n%s\n", runtime_dir, made ? "made" : "found");
    SL_AUTO(close) int directory = open(want->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    SL_AUTO(close)
    int fd = openat(directory, SL_NODE_DIR_MARKER,
                    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text, (size_t)length) != length) {
        return sl_fail_os(why, errno, "write '%s/%s'", want->path, SL_NODE_DIR_MARKER);
    }
    return SL_OK;
}

static sl_err dir_claim(const struct sl_node_dir_want *want, bool runs, struct sl_error *why)
{
    struct sl_node_dir_seen seen = {0};
    bool missing = access(want->path, F_OK) != 0;
    sl_err err = sl_dir_make(want->path, why);
    if (err == SL_OK) {
        err = (runs ? sl_node_dir_scan : sl_node_dir_check)(want, &seen, why);
    }
    return err == SL_OK ? marker_write(want, missing || seen.made, why) : err;
}

sl_err sl_node_dir_claim(const struct sl_node_dir_want *want, struct sl_error *why)
{
    return dir_claim(want, false, why);
}

sl_err sl_node_dir_mark(const struct sl_node_dir_want *want, struct sl_error *why)
{
    return dir_claim(want, true, why);
}

/* ---------------------------------------------------------------- removal */

/* Removes the files of that pattern in a directory of the node, and unless `stays` the directory if
 * it is then empty. */
static void inside_clear(int above, const char *name, const char *pattern, bool stays)
{
    int fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    struct stat status;
    for (const struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        if (matches(pattern, entry->d_name) &&
            fstatat(fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
            !S_ISDIR(status.st_mode) && status.st_uid == geteuid()) {
            (void)unlinkat(fd, entry->d_name, 0);
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    } else if (fd >= 0) {
        (void)close(fd);
    }
    if (!stays) {
        (void)unlinkat(above, name, AT_REMOVEDIR); /* fails if it is not empty */
    }
}

/* Removes an entry if the node need not keep it. True: an entry is left that should not be, of
 * another owner or because its removal failed. */
static bool entry_clear(const struct sl_node_dir_want *want, int directory, const char *name,
                        bool all)
{
    struct stat status;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
        strcmp(name, SL_NODE_DIR_MARKER) == 0 ||
        fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
        return false;
    }
    const struct dir_name *row = name_find(want->place, name, status.st_mode);
    if (row == NULL || row->type != (status.st_mode & S_IFMT) || status.st_uid != geteuid()) {
        return true;
    }
    if (row->inside != NULL) {
        inside_clear(directory, name, row->inside, row->stays && !all);
    } else if (S_ISDIR(status.st_mode)) {
        if (all && strcmp(name, "log") == 0) {
            inside_clear(directory, name, "@(" LOGS "|" SL_NODE_DIR_MARKER ")", false);
        }
    } else if (!row->stays || all) {
        (void)unlinkat(directory, name, 0);
    }
    return !row->stays && fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
}

sl_err sl_node_dir_clear(const struct sl_node_dir_want *want, bool all, struct sl_error *why)
{
    struct sl_node_dir_seen seen;
    sl_err err = sl_node_dir_scan(want, &seen, why);
    if (err != SL_OK || !seen.holds) {
        return err == SL_ERR_EXISTS ? SL_OK : err;
    }
    SL_AUTO(closedir) DIR *directory = dir_open(want->path, &err, why);
    bool left = false;
    if (directory == NULL) {
        return err;
    }
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        left |= entry_clear(want, dirfd(directory), entry->d_name, all);
    }
    if (!left) { /* otherwise the next start knows by it that the directory is a node's */
        (void)unlinkat(dirfd(directory), SL_NODE_DIR_MARKER, 0);
    }
    if (all || (want->place == SL_NODE_DIR_SHM && seen.made)) {
        (void)rmdir(want->path); /* fails if it is not empty */
    }
    return SL_OK;
}
