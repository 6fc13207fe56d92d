/* runtime/disk/sl_disk_place.c - chooses a disk's directory and checks whether it can work. */
#include "runtime/disk/sl_disk_place.h"

#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_digest.h"
#include "runtime/base/sl_node_dirs.h"
#include "runtime/disk/sl_disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#define OTHERS_WRITE ((mode_t)0022)
#define OTHERS       ((mode_t)0077)
#define OPEN_PLAIN   (O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
#define DISK_FILES   "@(" SL_DISK_MEMBERS_NAME "|" SL_DISK_SEGMENT_NAME "+([0-9]))"

#define LOCK_WAIT_NS  (800 * SL_NS_PER_MS)
#define LOCK_PAUSE_US 5000

/* ---- choosing the directory ---- */

/* Whether the directory itself holds a disk of this user: its lock is the first file made there. In
 * another user's directory a file of that name is not a lock. */
static sl_err place_holds(const char *path, const struct stat *at, bool *out, struct sl_error *why)
{
    char lock[SL_DISK_PLACE_BYTES + 8];
    struct stat status;
    (void)snprintf(lock, sizeof lock, "%s/%s", path, SL_DISK_LOCK_NAME);
    *out = false;
    if (lstat(lock, &status) != 0) {
        return errno == ENOENT ? SL_OK : sl_fail_os(why, errno, "disk directory '%.150s'", path);
    }
    *out = at->st_uid == geteuid() && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
           status.st_size == 0;
    return SL_OK;
}

/* Checks that no other user can replace an entry of the directory. */
static sl_err place_check_above(const char *path, const struct stat *at, struct sl_error *why)
{
    if (at->st_uid != 0 && at->st_uid != geteuid()) {
        return sl_fail(why, SL_ERR_FOREIGN,
                       "disk directory '%.100s' belongs to uid %u, not %u: chown it, or name a "
                       "directory of this user",
                       path, (unsigned)at->st_uid, (unsigned)geteuid());
    }
    if ((at->st_mode & OTHERS_WRITE) != 0 && (at->st_mode & S_ISVTX) == 0) {
        return sl_fail(why, SL_ERR_PERMISSION,
                       "disk directory '%.100s': others may write there (mode %04o): chmod go-w or "
                       "chmod +t it",
                       path, (unsigned)at->st_mode & 07777);
    }
    return SL_OK;
}

/* Refuses the directory if it has files with a tierer's names, which a tierer would remove or
 * overwrite, and none of them begins like a tierer's. The disk's own files begin so, also if the
 * lock was removed. */
static sl_err place_check_files(const char *path, struct sl_error *why)
{
    char foreign[40] = "";
    SL_AUTO(closedir) DIR *directory = opendir(path);
    const struct dirent *entry;
    bool ours = directory == NULL; /* opening the disk reports the error */
    while (!ours && (entry = readdir(directory)) != NULL) {
        char begin[4] = "";
        if (fnmatch(DISK_FILES, entry->d_name, FNM_EXTMATCH) != 0) {
            continue;
        }
        SL_AUTO(close) int fd = openat(dirfd(directory), entry->d_name, OPEN_PLAIN);
        ours = fd >= 0 && read(fd, begin, sizeof begin) == (ssize_t)sizeof begin &&
               (memcmp(begin, "SLU", 3) == 0 || memcmp(begin, "\0\0\0", 4) == 0);
        (void)snprintf(foreign, sizeof foreign, "%.39s", entry->d_name);
    }
    return ours || foreign[0] == '\0'
               ? SL_OK
               : sl_fail(
                     why, SL_ERR_FOREIGN,
                     "disk directory '%.150s' has '%s', which has the name of a disk's file but "
                     "is not one: move it, or name another directory",
                     path, foreign);
}

static sl_err place_choose(const char *path, const struct stat *at, char below[SL_DISK_PLACE_BYTES],
                           bool *itself, struct sl_error *why)
{
    struct stat status;
    bool holds = false;
    sl_err err = place_holds(path, at, &holds, why);
    if (err != SL_OK) {
        return err;
    }
    (void)snprintf(below, SL_DISK_PLACE_BYTES, "%s/sluice-disk-%u", path, (unsigned)geteuid());
    bool divided = lstat(below, &status) == 0;
    if (divided && S_ISLNK(status.st_mode)) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "disk directory '%.150s' is a link: name the directory that it leads to in "
                       "disk_path",
                       below);
    }
    if (divided && holds) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "two disks are in '%.80s': one directly, one in '%.80s': move one elsewhere",
                       path, strrchr(below, '/') + 1);
    }
    bool closed = at->st_uid == geteuid() && (at->st_mode & OTHERS) == 0;
    *itself = !divided && (holds || closed);
    if (*itself) {
        return holds ? SL_OK : place_check_files(path, why);
    }
    return place_check_above(path, at, why);
}

/* *refused: mode bits that the directory must not have. */
static sl_err place_find(const char *path, char out[SL_DISK_PLACE_BYTES], mode_t *refused,
                         struct sl_error *why)
{
    struct stat at;
    char below[SL_DISK_PLACE_BYTES];
    bool itself = true;
    *refused = OTHERS;
    path = sl_disk_path_dir(path);
    if (stat(path, &at) == 0) {
        if (!S_ISDIR(at.st_mode)) {
            return sl_fail(why, SL_ERR_CONFIG, "disk directory '%.150s' is no directory", path);
        }
        sl_err err = place_choose(path, &at, below, &itself, why);
        if (err != SL_OK) {
            return err;
        }
        /* If the mode was changed, others see only names: the files are 0600. */
        *refused = itself ? OTHERS_WRITE : OTHERS;
    } else if (errno != ENOENT) {
        return sl_fail_os(why, errno, "disk directory '%.150s'", path);
    }
    (void)snprintf(out, SL_DISK_PLACE_BYTES, "%s", itself ? path : below);
    return SL_OK;
}

sl_err sl_disk_place_find(const char *path, char out[SL_DISK_PLACE_BYTES], struct sl_error *why)
{
    mode_t refused = 0;
    return place_find(path, out, &refused, why);
}

sl_err sl_disk_place_make(const char *path, char out[SL_DISK_PLACE_BYTES], struct sl_error *why)
{
    mode_t refused = 0;
    char place[SL_DISK_PLACE_BYTES];
    sl_err err = place_find(path, place, &refused, why);
    err = err == SL_OK ? sl_dir_make_for(place, refused, why) : err;
    if (err == SL_OK) {
        (void)snprintf(out, SL_DISK_PLACE_BYTES, "%s", place);
    }
    return err;
}

static sl_err place_lock(int dir_fd, const char *place, int *out, struct sl_error *why)
{
    int fd = openat(dir_fd, SL_DISK_LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return sl_fail_os(why, errno, "open '%s/%s'", place, SL_DISK_LOCK_NAME);
    }
    /* Requests of a killed predecessor may take a moment to end. */
    uint64_t until_ns = sl_clock_monotonic_ns() + LOCK_WAIT_NS;
    int locked;
    while ((locked = flock(fd, LOCK_EX | LOCK_NB)) < 0 && errno == EWOULDBLOCK &&
           sl_clock_monotonic_ns() < until_ns) {
        (void)usleep(LOCK_PAUSE_US);
    }
    if (locked < 0) {
        sl_err err = errno == EWOULDBLOCK
                         ? sl_fail(why, SL_ERR_BUSY,
                                   "disk directory '%s' is in use by another process", place)
                         : sl_fail_os(why, errno, "lock '%s/%s'", place, SL_DISK_LOCK_NAME);
        (void)close(fd);
        return err;
    }
    *out = fd;
    return SL_OK;
}

sl_err sl_disk_place_open(const char *path, char out[SL_DISK_PLACE_BYTES], int *fd, int *lock_fd,
                          struct sl_error *why)
{
    char place[SL_DISK_PLACE_BYTES];
    struct stat status;
    sl_err err = sl_disk_place_make(path, place, why);
    if (err != SL_OK) {
        return err;
    }
    /* The operator's path may be a link; the directory that is made below it may not. */
    int follow = strcmp(place, path) == 0 ? 0 : O_NOFOLLOW;
    int opened = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC | follow);
    if (opened < 0) {
        return sl_fail_os(why, errno, "open disk directory '%.150s'", place);
    }
    if (fstat(opened, &status) != 0) {
        err = sl_fail_os(why, errno, "read the status of disk directory '%.150s'", place);
    } else if (status.st_uid != geteuid()) {
        err = sl_fail(why, SL_ERR_FOREIGN, "disk directory '%.150s' belongs to uid %u, not %u",
                      place, (unsigned)status.st_uid, (unsigned)geteuid());
    }
    err = err == SL_OK ? place_lock(opened, place, lock_fd, why) : err;
    if (err != SL_OK) {
        (void)close(opened);
        return err;
    }
    (void)snprintf(out, SL_DISK_PLACE_BYTES, "%s", place);
    *fd = opened;
    return SL_OK;
}

/* ---- sizes ---- */

#define SEGMENTS_PLANNED  (SL_DISK_SEGMENTS_MAX - 192u)
#define SEGMENT_BYTES_MAX SL_GIB /* largest disk_segment */

sl_err sl_disk_sizes(const struct sl_config *config, struct sl_disk_sizes *out,
                     struct sl_error *why)
{
    uint32_t count = sl_config_disk_count(config);
    uint64_t asked = sl_config_u64(config, SL_SET_disk_segment) / SL_PAGE_BYTES * SL_PAGE_BYTES;
    uint64_t share = sl_config_u64(config, SL_SET_disk) / count;
    uint64_t largest = share / 4 / SL_PAGE_BYTES * SL_PAGE_BYTES;
    if (largest < 16 * SL_PAGE_BYTES) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "disk: %" PRIu64
                       " bytes for each of %u paths are too few for a disk tier: 256 KiB "
                       "at least",
                       share, count);
    }
    uint64_t least = share / SEGMENTS_PLANNED;
    least = (least + SL_PAGE_BYTES - 1) / SL_PAGE_BYTES * SL_PAGE_BYTES;
    if (least > SEGMENT_BYTES_MAX) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "disk: %" PRIu64
                       " GiB for each of %u paths are more than a disk tier uses, %" PRIu64
                       " GiB a path: set disk lower, or name more paths",
                       share / SL_GIB, count, SEGMENTS_PLANNED * SEGMENT_BYTES_MAX / SL_GIB);
    }
    uint64_t segment = SL_MIN(SL_MAX(asked, least), largest);
    *out = (struct sl_disk_sizes){
        .share_bytes = share, .segment_bytes = segment, .adapted = segment != asked};
    return SL_OK;
}

/* ---- checking ---- */

static sl_err place_check_room(const char *place, const struct sl_disk_sizes *sizes,
                               struct sl_error *why)
{
    struct statvfs room;
    if (statvfs(place, &room) != 0) {
        return sl_fail_os(why, errno, "free space of '%.150s'", place);
    }
    uint64_t free_bytes = (uint64_t)room.f_bavail * room.f_frsize;
    uint64_t least = 2 * sizes->segment_bytes;
    /* A disk with data may run on a full device: it can be read, even if not written. */
    if (free_bytes < least && sl_dir_used_bytes(place) == 0) {
        return sl_fail(why, SL_ERR_NO_SPACE,
                       "disk directory '%.100s': %" PRIu64
                       " KiB free, a disk needs two segments of %" PRIu64 " "
                       "KiB: free some, or set disk or disk_segment lower",
                       place, free_bytes / SL_KIB, sizes->segment_bytes / SL_KIB);
    }
    return SL_OK;
}

sl_err sl_disk_format_check(const char *place, struct sl_error *why)
{
    static const uint64_t magic = SL_DISK_SEGMENT_MAGIC;
    unsigned char page[SL_PAGE_BYTES];
    uint32_t version = 0; /* none read yet; all files are of one release */
    const struct dirent *entry = NULL;
    struct stat status;
    sl_err err = SL_OK;
    SL_AUTO(closedir) DIR *directory = opendir(place);
    while (directory != NULL && (entry = readdir(directory)) != NULL && err == SL_OK) {
        struct sl_digest digest;
        if (fnmatch(DISK_FILES, entry->d_name, FNM_EXTMATCH) != 0 ||
            fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
            continue;
        }
        if (!S_ISREG(status.st_mode)) { /* a tierer would exit at it, at each start */
            err = sl_fail(why, SL_ERR_FOREIGN,
                          "disk: '%.150s/%.40s' is no plain file: move it elsewhere", place,
                          entry->d_name);
        }
        SL_AUTO(close) int fd = openat(dirfd(directory), entry->d_name, OPEN_PLAIN);
        if (version != 0 || pread(fd, page, sizeof page, 0) != (ssize_t)sizeof page ||
            memcmp(page, &magic, sizeof magic) != 0) {
            continue;
        }
        memcpy(&digest, page + SL_DISK_DIGEST_AT, sizeof digest);
        memset(page + SL_DISK_DIGEST_AT, 0, sizeof digest);
        XXH128_hash_t want = XXH3_128bits(page, sizeof page);
        if (digest.low != want.low64 || digest.high != want.high64) {
            continue;
        }
        memcpy(&version, page + sizeof magic, sizeof version);
        if (version != SL_DISK_FORMAT) {
            err = sl_fail(why, SL_ERR_VERSION,
                          "disk: %.100s/%.40s has format %u, this program (sluice " SL_VERSION
                          ") knows %u: " SL_DISK_FORMAT_WAY_OUT,
                          place, entry->d_name, version, SL_DISK_FORMAT);
        }
    }
    return err;
}

/* Whether this process is a tierer that holds the lock; also gives its node's runtime directory,
 * which it has open. Looks only at these descriptors: others may be on a device that does not
 * answer. */
static bool tierer_holds_lock(const char *pid, const struct statx *lock, char node[PATH_MAX])
{
    char path[NAME_MAX + 16], target[PATH_MAX], file[PATH_MAX + 16], comm[16] = "";
    struct statx at;
    const struct dirent *entry;
    bool has = false;
    (void)snprintf(path, sizeof path, "/proc/%s/comm", pid);
    SL_AUTO(close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (read(fd, comm, sizeof comm - 1) <= 0 || strcmp(comm, "sluice-tierer\n") != 0) {
        return false;
    }
    (void)snprintf(path, sizeof path, "/proc/%s/fd", pid);
    SL_AUTO(closedir) DIR *fds = opendir(path);
    node[0] = '\0';
    while (fds != NULL && node[0] == '\0' && (entry = readdir(fds)) != NULL) {
        ssize_t length = readlinkat(dirfd(fds), entry->d_name, target, sizeof target - 1);
        target[SL_MAX(length, 0)] = '\0';
        (void)snprintf(file, sizeof file, "%s/registrar.lock", target);
        if (has && target[0] == '/' && access(file, F_OK) == 0) {
            (void)snprintf(node, PATH_MAX, "%s", target);
        } else if (!has && fnmatch("*/" SL_DISK_LOCK_NAME, target, 0) == 0 &&
                   statx(dirfd(fds), entry->d_name, AT_STATX_DONT_SYNC, STATX_INO, &at) == 0 &&
                   at.stx_dev_major == lock->stx_dev_major &&
                   at.stx_dev_minor == lock->stx_dev_minor && at.stx_ino == lock->stx_ino) {
            has = true;
            rewinddir(fds); /* to find the node */
        }
    }
    return node[0] != '\0';
}

sl_err sl_disk_place_unused(const struct sl_paths *paths, const char *place, struct sl_error *why)
{
    char lock[SL_DISK_PLACE_BYTES + 8], node[PATH_MAX];
    struct statx at;
    const struct dirent *entry;
    sl_err err = SL_OK;
    (void)snprintf(lock, sizeof lock, "%s/" SL_DISK_LOCK_NAME, place);
    SL_AUTO(closedir)
    DIR *processes = statx(AT_FDCWD, lock, 0, STATX_INO, &at) == 0 ? opendir("/proc") : NULL;
    while (processes != NULL && err == SL_OK && (entry = readdir(processes)) != NULL) {
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
            tierer_holds_lock(entry->d_name, &at, node) &&
            sl_node_dirs_check_path(paths, "", node, NULL) == SL_OK) {
            err = sl_fail(why, SL_ERR_FOREIGN,
                          "disk directory '%.80s' is in use by the node of '%.80s' (process %s): "
                          "stop that node, or name another directory",
                          place, node, entry->d_name);
        }
    }
    return err;
}

static sl_err path_open_once(const struct sl_config *config, const char *path, struct sl_error *why)
{
    struct sl_disk *disk = NULL;
    int event_fd = -1;
    sl_err err = sl_disk_open(path, (uint32_t)sl_config_u64(config, SL_SET_disk_queue_depth),
                              sl_config_bool(config, SL_SET_disk_direct), &disk, &event_fd, why);
    if (err == SL_OK) {
        disk->ops->destroy(disk);
    }
    return err;
}

static sl_err path_check(const struct sl_config *config, const struct sl_paths *paths,
                         const char *path, const struct sl_disk_sizes *sizes, struct stat *at,
                         struct sl_error *why)
{
    char place[SL_DISK_PLACE_BYTES];
    sl_err err = sl_disk_place_make(path, place, why);
    if (err != SL_OK) {
        return err;
    }
    if (stat(place, at) != 0) {
        return sl_fail_os(why, errno, "disk directory '%.150s'", place);
    }
    err = sl_node_dirs_check_path(paths, "disk_path", place, why);
    err = err == SL_OK ? place_check_room(place, sizes, why) : err;
    err = err == SL_OK ? sl_disk_format_check(place, why) : err;
    err = err == SL_OK ? sl_disk_place_unused(paths, place, why) : err;
    return err == SL_OK ? path_open_once(config, path, why) : err;
}

/* Refuses different names of one directory: links, mounts, or DIR and its subdirectory. */
static sl_err paths_differ(const struct sl_paths *paths, const struct stat *at, uint32_t last,
                           struct sl_error *why)
{
    for (uint32_t i = 0; i < last; i++) {
        if (at[i].st_nlink != 0 && at[i].st_dev == at[last].st_dev &&
            at[i].st_ino == at[last].st_ino) {
            return sl_fail(why, SL_ERR_CONFIG,
                           "disk_path: '%.80s' and '%.80s' lead to the same directory",
                           paths->disk_paths[i], paths->disk_paths[last]);
        }
    }
    return SL_OK;
}

/* Whether the node runs without such a disk while another one works. The other errors need the
 * operator: a disk in a wrong directory would never work. */
static bool failure_is_one_disk(sl_err err)
{
    return err != SL_ERR_CONFIG && err != SL_ERR_FOREIGN && err != SL_ERR_PERMISSION &&
           err != SL_ERR_VERSION;
}

sl_err sl_disk_paths_check(const struct sl_config *config, const struct sl_paths *paths,
                           uint32_t *bad, struct sl_error *why)
{
    struct stat at[SL_DISK_PATHS_MAX] = {0};
    struct sl_disk_sizes sizes = {0};
    struct sl_error broken = {0};
    uint32_t broken_count = 0;
    *bad = UINT32_MAX;
    if (sl_config_u64(config, SL_SET_disk) == 0) {
        return SL_OK;
    }
    sl_err err = sl_disk_sizes(config, &sizes, why);
    for (uint32_t i = 0; err == SL_OK && i < paths->disk_count; i++) {
        struct sl_error reason = {0};
        err = path_check(config, paths, paths->disk_paths[i], &sizes, &at[i], &reason);
        bool differ = err == SL_OK || err == SL_ERR_BUSY;
        sl_err same = differ ? paths_differ(paths, at, i, &reason) : SL_OK;
        err = same != SL_OK ? same : err;
        if (err == SL_OK) {
            continue;
        }
        *bad = SL_MIN(*bad, i);
        if (err == SL_ERR_BUSY ||
            (failure_is_one_disk(err) && ++broken_count < paths->disk_count)) {
            broken = broken.code == SL_OK ? reason : broken;
            at[i] = err == SL_ERR_BUSY ? at[i] : (struct stat){0};
            err = SL_OK;
        } else {
            *bad = i;
            broken = reason;
        }
    }
    if (why != NULL && broken.code != SL_OK) {
        *why = broken;
    }
    return err;
}
