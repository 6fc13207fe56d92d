/* runtime/disk/sl_disk.h - a directory of files as the tierer sees it: an ops table, so that tests
 * can fail, tear and delay it and the simulator can replace it. One thread. Names are plain file
 * names.
 *
 * Asynchronous requests end by one completion each, delivered to the actor as an SL_MSG_LOCAL_IO
 * message with the request's cookie. Memory and descriptors are lent until then. Offsets, lengths
 * and memory are multiples of 4096 when `direct` is on. */
#ifndef SL_DISK_H
#define SL_DISK_H

#include "runtime/base/sl_config.h"

#include <sys/uio.h>

#define SL_DISK_PIECES_MAX 256u

enum sl_disk_verb {
    SL_DISK_READ,
    SL_DISK_WRITE,
    SL_DISK_SYNC,
    SL_DISK_RESIZE, /* cuts the file to length_bytes; durable with its next SYNC */
    SL_DISK_MAKE,   /* makes file `name` of length_bytes, allocated and durable */
    SL_DISK_REMOVE, /* removes file `name`, durably */
};

struct sl_disk_request {
    enum sl_disk_verb verb;
    int file;         /* handle from open; MAKE, REMOVE: -1 */
    const char *name; /* MAKE, REMOVE */
    void *memory;     /* NULL: pieces */
    uint64_t offset_bytes;
    uint64_t length_bytes; /* of all pieces */
    uint64_t cookie;
    /* 1..SL_DISK_PIECES_MAX pieces of memory for one run of the file; the array is lent as well. */
    const struct iovec *pieces;
    uint32_t piece_count;
};

struct sl_disk; /* base of the implementations */
struct sl_disk_ops {
    /* Opens or creates NAME; allocate_bytes > 0 allocates so many real bytes (fallocate), so that
     * later writes cannot meet ENOSPC. Gives a handle >= 0. */
    sl_err (*open)(struct sl_disk *disk, const char *name, bool create, uint64_t allocate_bytes,
                   int *file, uint64_t *size_bytes, struct sl_error *why);
    void (*close)(struct sl_disk *disk, int file);
    /* Durable removal, for the start: it may block. */
    sl_err (*remove)(struct sl_disk *disk, const char *name, struct sl_error *why);
    /* Calls each(context, name, real bytes on disk) for every regular file. */
    sl_err (*list)(struct sl_disk *disk,
                   void (*each)(void *context, const char *name, uint64_t bytes), void *context,
                   struct sl_error *why);
    /* Queues one request. SL_ERR_LIMIT: the queue is full, wait for completions. */
    sl_err (*submit)(struct sl_disk *disk, const struct sl_disk_request *request,
                     struct sl_error *why);
    /* Hands the queued requests to the kernel; called at the end of a handler, or earlier so that
     * the disk works while the handler goes on. */
    sl_err (*flush)(struct sl_disk *disk, struct sl_error *why);
    /* Blocking read for start-up scans: any thread, while the file stays open. Short read: *got. */
    sl_err (*read_now)(struct sl_disk *disk, int file, void *memory, uint64_t offset_bytes,
                       uint64_t length_bytes, uint64_t *got, struct sl_error *why);
    void (*destroy)(struct sl_disk *disk); /* waits for nothing: the caller has drained */
    /* Calls done() for every completion that waits: bytes transferred, or os_code != 0. For the
     * holder of the descriptor that open gave; the tierer never calls it. */
    void (*reap)(struct sl_disk *disk,
                 void (*done)(void *context, uint64_t cookie, uint64_t bytes, int os_code),
                 void *context);

    /* The rest may be NULL: a disk without them works, less well. */
    /* Makes file NAME of bytes, allocated and durable, from file FROM when that is there, which may
     * be longer (NULL: from nothing). Blocks; any thread, beside all other calls. Repeating it
     * after a failure is fine. */
    sl_err (*prepare)(struct sl_disk *disk, const char *from, const char *name, uint64_t bytes,
                      struct sl_error *why);
    /* Bytes that the file takes on the disk (st_blocks); 0: unknown. */
    uint64_t (*real_bytes)(struct sl_disk *disk, int file);
    /* Gives the blocks of a part of the file back to the file system; it reads as zeros then.
     * Blocks; any thread, while the file stays open. Offset and length are multiples of 4096.
     * Errors: SL_ERR_UNSUPPORTED (by the file system), SL_ERR_OS. */
    sl_err (*punch)(struct sl_disk *disk, int file, uint64_t offset_bytes, uint64_t length_bytes,
                    struct sl_error *why);
    /* Registers memory that requests will lie in, so that each of them costs less. It is lent until
     * destroy. A refusal costs speed alone. Errors: SL_ERR_LIMIT (table full, RLIMIT_MEMLOCK),
     * SL_ERR_UNSUPPORTED, SL_ERR_OS. */
    sl_err (*lend)(struct sl_disk *disk, void *memory, uint64_t length_bytes, struct sl_error *why);
    /* Whether the directory that was opened is the one at its path still. Errors:
     * SL_ERR_NOT_FOUND: it was removed or emptied, or something else stands there. */
    sl_err (*present)(struct sl_disk *disk, struct sl_error *why);
};
struct sl_disk {
    const struct sl_disk_ops *ops;
    bool direct;       /* O_DIRECT in force */
    const char *place; /* the directory that holds the files; NULL: nobody need know */
};

/* Two pages of another file that were written: what never was reads as zeros, also from a disk that
 * is out. */
struct sl_disk_other {
    int file; /* -1: none */
    uint64_t pages[2];
};
/* Reads all of it with a few tries, since a read that fails may be right a moment later;
 * *pauses_left bounds the pauses between them. Then `other` is read, and the place once more.
 * Errors: SL_ERR_NOT_FOUND (the file is shorter), SL_ERR_CORRUPT (the place is bad), SL_ERR_IO (nor
 * can `other` be read: it is the disk). Blocks; any thread. */
sl_err sl_disk_read(struct sl_disk *disk, int file, const struct sl_disk_other *other, void *memory,
                    uint64_t offset_bytes, uint64_t length_bytes, uint32_t *pauses_left);

/* Opens (makes) the place of the directory, see sl_disk_place.h. *event_fd becomes readable when
 * completions wait; borrowed from the disk. direct: a wish; disk->direct says whether it was
 * granted. Errors: those of sl_disk_place_open, SL_ERR_BUSY (another process has it), SL_ERR_OS,
 * SL_ERR_UNSUPPORTED. */
typedef sl_err sl_disk_open_fn(const char *directory, uint32_t queue_depth, bool direct,
                               struct sl_disk **out, int *event_fd, struct sl_error *why);

#define SL_DISK_KIND_DECLARE(kind, open) sl_disk_open_fn open;
SL_DISK_KINDS(SL_DISK_KIND_DECLARE)

/* The same for an entry of disk_path. Errors: also SL_ERR_CONFIG (no such kind). */
sl_disk_open_fn sl_disk_open;

#endif
