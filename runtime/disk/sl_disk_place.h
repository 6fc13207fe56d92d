/* runtime/disk/sl_disk_place.h - where a disk lies for an entry of disk_path, how large it may be,
 * and whether it can work at all: one answer for the tierer, for those that start a node, and for
 * `sluicectl doctor`.
 *
 * The rule, in this order, so that every start finds the place of the one before:
 * 1. DIR is missing: it is made, mode 0700, and holds the disk itself.
 * 2. DIR/sluice-disk-UID is there: that is the disk.
 * 3. DIR belongs to this user, and holds a disk (its lock file), or is closed to others: DIR
 * itself.
 * 4. Else DIR/sluice-disk-UID is made, mode 0700.
 * In 2 and 4 nobody else may be able to put another directory in its place: DIR belongs to this
 * user or root, and others may write to it only when it has the sticky bit. DIR may be a link, the
 * directory below it may not. */
#ifndef SL_DISK_PLACE_H
#define SL_DISK_PLACE_H

#include "runtime/base/sl_config.h"
#include "runtime/disk/sl_disk.h"

#define SL_DISK_PLACE_BYTES 1100u
#define SL_DISK_LOCK_NAME   "lock"

/* Gives the place of path, an entry of disk_path, in out and changes nothing: it need not exist.
 * Errors name the directory and what to do: SL_ERR_CONFIG (no directory, a link below it, or two
 * disks in it), SL_ERR_FOREIGN, SL_ERR_PERMISSION, SL_ERR_OS. */
sl_err sl_disk_place_find(const char *path, char out[SL_DISK_PLACE_BYTES], struct sl_error *why);
/* The same, and makes it. Errors: also those of sl_dir_make. */
sl_err sl_disk_place_make(const char *path, char out[SL_DISK_PLACE_BYTES], struct sl_error *why);

/* The same, and gives in *fd the directory itself, of this user, for openat, and in *lock_fd the
 * disk's lock, which ends when its last duplicate is closed. Errors: also SL_ERR_IO, SL_ERR_BUSY
 * (another process has the lock). */
sl_err sl_disk_place_open(const char *path, char out[SL_DISK_PLACE_BYTES], int *fd, int *lock_fd,
                          struct sl_error *why);

/* A disk has at most so many segments; those that settings make room for leave some for older ones,
 * which may be smaller. */
#define SL_DISK_SEGMENTS_MAX 8192u
struct sl_disk_sizes {
    uint64_t share_bytes;   /* of `disk`, for each path */
    uint64_t segment_bytes; /* disk_segment; or what fits four times, or what fills a larger disk */
    bool adapted;           /* segments have another size than disk_segment says */
};
/* Two segments fit under the ceiling at least: one that is written, one that can go. Errors:
 * SL_ERR_CONFIG; also of a disk that the largest segments do not fill. */
sl_err sl_disk_sizes(const struct sl_config *config, struct sl_disk_sizes *out,
                     struct sl_error *why);

/* The first page of a segment begins with the magic and a version of 4 bytes; its digest covers the
 * page with the digest zero. */
#define SL_DISK_FORMAT 4u
#define SL_DISK_FORMAT_WAY_OUT \
    "stop the node, empty the disk's directory or give another --disk-path, and start it"
#define SL_DISK_MEMBERS_NAME  "members"
#define SL_DISK_SEGMENT_NAME  "segment."
#define SL_DISK_SEGMENT_MAGIC UINT64_C(0x3147455349554c53) /* "SLUISEG1" */
#define SL_DISK_DIGEST_AT     48u
/* Whether a tierer would read the segments at the place; one of them is looked at. Errors:
 * SL_ERR_VERSION, SL_ERR_FOREIGN (what has the name of a disk's file is no plain file). */
sl_err sl_disk_format_check(const char *place, struct sl_error *why);
/* Whether no other node that is seen from here uses the disk at the place. Errors: SL_ERR_FOREIGN,
 * which names the node. */
sl_err sl_disk_place_free(const struct sl_paths *paths, const char *place, struct sl_error *why);

/* Opens the disk of each path as its tierer will, and closes it again. Nothing is checked
 * when `disk` is 0. Gives in *bad the first path that cannot work. These are no error, and the
 * first of them stands in *bad and *why, with SL_OK:
 * - a path whose lock is held by nobody that is seen (SL_ERR_BUSY), as by requests of a killed
 * tierer: its tierer tries again;
 * - a path of several that fails, as long as another one may work: a node goes on without it. Only
 *   SL_ERR_CONFIG, SL_ERR_FOREIGN, SL_ERR_PERMISSION and SL_ERR_VERSION of any path are errors.
 * Errors: those of sl_disk_place_make, sl_disk_format_check, sl_disk_place_free and sl_disk_open;
 * SL_ERR_CONFIG (two paths are the same directory, or one is the node's runtime, shm or log
 * directory), SL_ERR_NO_SPACE (not even two segments fit). */
sl_err sl_disk_paths_check(const struct sl_config *config, const struct sl_paths *paths,
                           uint32_t *bad, struct sl_error *why);

#endif
