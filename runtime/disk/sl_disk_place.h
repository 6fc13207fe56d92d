/* runtime/disk/sl_disk_place.h - the directory of a disk for an entry of disk_path, its size limit,
 * and whether it can work: the same answers for the tierer, for the start of a node and for
 * `sluicectl doctor`.
 *
 * The rules, in this order, so that every start finds the directory of the previous one:
 * 1. DIR is missing: it is created, mode 0700, and is the disk's directory.
 * 2. DIR/sluice-disk-UID exists: that is the disk.
 * 3. DIR belongs to this user and either holds a disk (its lock file) or is closed to others: DIR
 *    itself.
 * 4. Otherwise DIR/sluice-disk-UID is created, mode 0700.
 *
 * In cases 2 and 4 no other user may be able to replace it: DIR belongs to this user or root, and
 * others may write to it only if it has the sticky bit. DIR may be a link; the directory below it
 * may not. */
#ifndef SL_DISK_PLACE_H
#define SL_DISK_PLACE_H

#include "runtime/base/sl_config.h"
#include "runtime/disk/sl_disk.h"

#define SL_DISK_PLACE_BYTES 1100u
#define SL_DISK_LOCK_NAME   "lock"

/* Gives the directory of path, an entry of disk_path, in out; it need not exist, and nothing
 * changes. Errors name the directory and the remedy: SL_ERR_CONFIG (no directory, a link below it,
 * or two disks in it), SL_ERR_FOREIGN, SL_ERR_PERMISSION, SL_ERR_OS. */
sl_err sl_disk_place_find(const char *path, char out[SL_DISK_PLACE_BYTES], struct sl_error *why);
/* The same, and creates it. Errors: also those of sl_dir_make. */
sl_err sl_disk_place_make(const char *path, char out[SL_DISK_PLACE_BYTES], struct sl_error *why);

/* The same, and gives in *fd the directory itself, which belongs to this user, for openat, and in
 * *lock_fd the disk's lock, which is released when its last duplicate is closed. Errors: also
 * SL_ERR_IO, SL_ERR_BUSY (another process has the lock). */
sl_err sl_disk_place_open(const char *path, char out[SL_DISK_PLACE_BYTES], int *fd, int *lock_fd,
                          struct sl_error *why);

/* Most log files of a disk. The sizes below leave room for older, smaller files. */
#define SL_DISK_SEGMENTS_MAX 8192u
struct sl_disk_sizes {
    uint64_t share_bytes;   /* share of `disk` for each path */
    uint64_t segment_bytes; /* disk_segment; or what fits four times, or what fills a larger disk */
    bool adapted;           /* segment_bytes differs from disk_segment */
};
/* At least four log files fit under the limit: one is written, another reclaimed. Errors:
 * SL_ERR_CONFIG (also if the largest log files cannot fill the disk). */
sl_err sl_disk_sizes(const struct sl_config *config, struct sl_disk_sizes *out,
                     struct sl_error *why);

/* The first page of a log file begins with the magic and a version of 4 bytes; its digest covers
 * the page with the digest as zero. */
#define SL_DISK_FORMAT 4u
#define SL_DISK_FORMAT_WAY_OUT \
    "stop the node, empty the disk's directory or give another --disk-path, and start it"
#define SL_DISK_MEMBERS_NAME  "members"
#define SL_DISK_SEGMENT_NAME  "segment."
#define SL_DISK_SEGMENT_MAGIC UINT64_C(0x3147455349554c53) /* "SLUISEG1" */
#define SL_DISK_DIGEST_AT     48u
/* Checks that a tierer could read the log files in the directory, by one of them. Errors:
 * SL_ERR_VERSION, SL_ERR_FOREIGN (a disk's file name is used by something that is not a regular
 * file). */
sl_err sl_disk_format_check(const char *place, struct sl_error *why);
/* Checks that no other visible node uses the disk. Errors: SL_ERR_FOREIGN, which names it. */
sl_err sl_disk_place_unused(const struct sl_paths *paths, const char *place, struct sl_error *why);

/* Opens the disk of each path as its tierer will, and closes it again. Checks nothing if `disk` is
 * 0. *bad is the first path that cannot work. Two cases return SL_OK, with the first such path in
 * *bad and its error in *why:
 * - a path whose lock is held by no visible process (SL_ERR_BUSY), such as by requests of a killed
 *   tierer: its tierer retries;
 * - a path that fails while another one may work: the node runs without it. Only SL_ERR_CONFIG,
 *   SL_ERR_FOREIGN, SL_ERR_PERMISSION and SL_ERR_VERSION of any path are errors.
 *
 * Errors: those of sl_disk_place_make, sl_disk_format_check, sl_disk_place_unused and sl_disk_open;
 * SL_ERR_CONFIG (two paths are the same directory, or one is the node's runtime, shm or log
 * directory), SL_ERR_NO_SPACE (not even two log files fit). */
sl_err sl_disk_paths_check(const struct sl_config *config, const struct sl_paths *paths,
                           uint32_t *bad, struct sl_error *why);

#endif
