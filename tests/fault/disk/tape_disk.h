/* tests/fault/disk/tape_disk.h - a disk in memory that records every operation in order and injects
 * faults on request.
 *
 * The record (the tape) can be replayed into an image one operation at a time. A power cut at that
 * point may leave everything that was synced, plus each later write in full, cut at any sector, or
 * not at all. */
#ifndef TAPE_DISK_H
#define TAPE_DISK_H

#include "runtime/disk/sl_disk.h"

#define TAPE_FILES_MAX   64u
#define TAPE_SECTOR      512u
#define TAPE_PENDING_MAX 4096u

struct tape_file {
    char name[40]; /* empty: none */
    unsigned char *now;
    uint64_t bytes;
};
struct tape_image {
    struct tape_file files[TAPE_FILES_MAX];
};
void tape_image_copy(struct tape_image *to, const struct tape_image *from);
void tape_image_free(struct tape_image *image);

enum tape_verb { TAPE_MAKE, TAPE_REMOVE, TAPE_RENAME, TAPE_RESIZE, TAPE_WRITE, TAPE_SYNC };
struct tape_op {
    enum tape_verb verb;
    char name[40], from[40];
    uint64_t offset_bytes, length_bytes;
    unsigned char *bytes;
};

enum tape_fault { TAPE_EIO, TAPE_ENOSPC, TAPE_EROFS, TAPE_SHORT, TAPE_FAULTS };

struct tape_done {
    uint64_t cookie, bytes;
    int os_code;
};
struct tape_disk {
    struct sl_disk base; /* first */
    struct tape_image image;
    struct tape_op *ops; /* the tape; NULL when the disk does not record */
    uint64_t op_count, op_capacity;
    bool recording;
    struct tape_done pending[TAPE_PENDING_MAX];
    uint32_t pending_count;
    bool stuck;         /* requests are accepted and never complete */
    uint64_t calls;     /* of any kind, so far */
    uint64_t fail_from; /* calls number fail_from .. fail_to fail; 0: none */
    uint64_t fail_to;
    enum tape_fault fault;
    char bad_name[40]; /* reads of this file that touch these bytes end with EIO */
    uint64_t bad_from, bad_to;
    uint64_t real_bytes_peak;
    uint64_t punched_bytes;
    uint64_t room_bytes; /* limit for all files together: making one beyond it fails with room_code;
                            0: no limit */
    int room_code;
};

void tape_disk_init(struct tape_disk *disk);
void tape_disk_fini(struct tape_disk *disk);
/* Takes one of the finished requests, chosen at random. False: none has finished. */
bool tape_disk_take(struct tape_disk *disk, uint64_t random, struct tape_done *out);
/* Applies one operation of a tape to an image. sectors: limit for a write. */
void tape_play(struct tape_image *image, const struct tape_op *op, uint64_t sectors);

#endif
