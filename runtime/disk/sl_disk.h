/* runtime/disk/sl_disk.h - the tierer's interface to a directory of files: an ops table, so that
 * tests can inject failures, torn writes and delays, and the simulator can replace it. One thread.
 * Names are plain file names.
 *
 * Each asynchronous request ends with one completion, delivered to the actor as an SL_MSG_LOCAL_IO
 * message with the request's cookie. Until then its memory and descriptors must stay valid.
 * Offsets, lengths and memory are multiples of 4096 if `direct` is on. */
#ifndef SL_DISK_H
#define SL_DISK_H

#include "runtime/base/sl_config.h"

#include <sys/uio.h>

#define SL_DISK_PIECES_MAX 256u

enum sl_disk_verb {
    SL_DISK_READ,
    SL_DISK_WRITE,
    SL_DISK_SYNC,
    SL_DISK_RESIZE, /* truncates the file to length_bytes; durable with its next SYNC */
    SL_DISK_MAKE,   /* creates file `name` of length_bytes, allocated and durable */
    SL_DISK_REMOVE, /* removes file `name`, durably */
};

struct sl_disk_request {
    enum sl_disk_verb verb;
    int file;         /* from open; MAKE, REMOVE: -1 */
    const char *name; /* MAKE, REMOVE */
    void *memory;     /* NULL: pieces */
    uint64_t offset_bytes;
    uint64_t length_bytes; /* of all pieces */
    uint64_t cookie;
    /* 1..SL_DISK_PIECES_MAX memory pieces for one range of the file; the array must stay valid. */
    const struct iovec *pieces;
    uint32_t piece_count;
};

struct sl_disk; /* base of the implementations */
struct sl_disk_ops {
    /* Opens or creates NAME; allocate_bytes > 0 allocates that many bytes on disk (fallocate), so
     * that later writes cannot fail with ENOSPC. Gives a handle >= 0. */
    sl_err (*open)(struct sl_disk *disk, const char *name, bool create, uint64_t allocate_bytes,
                   int *file, uint64_t *size_bytes, struct sl_error *why);
    void (*close)(struct sl_disk *disk, int file);
    /* Removes durably, during start-up: it may block. */
    sl_err (*remove)(struct sl_disk *disk, const char *name, struct sl_error *why);
    /* Calls each(context, name, bytes allocated on disk) for every regular file. */
    sl_err (*list)(struct sl_disk *disk,
                   void (*each)(void *context, const char *name, uint64_t bytes), void *context,
                   struct sl_error *why);
    /* Queues one request. SL_ERR_LIMIT: the queue is full, wait for completions. */
    sl_err (*submit)(struct sl_disk *disk, const struct sl_disk_request *request,
                     struct sl_error *why);
    /* Hands the queued requests to the kernel. Called at the end of a handler, or earlier so that
     * the disk works while the handler continues. */
    sl_err (*flush)(struct sl_disk *disk, struct sl_error *why);
    /* Blocking read for start-up scans: any thread, while the file stays open. *got: bytes read. */
    sl_err (*read_now)(struct sl_disk *disk, int file, void *memory, uint64_t offset_bytes,
                       uint64_t length_bytes, uint64_t *got, struct sl_error *why);
    void (*destroy)(struct sl_disk *disk); /* does not wait: the caller has drained */
    /* Calls done() for every pending completion, with the bytes transferred or os_code != 0. For
     * the code that got the descriptor from open; the tierer never calls it. */
    void (*reap)(struct sl_disk *disk,
                 void (*done)(void *context, uint64_t cookie, uint64_t bytes, int os_code),
                 void *context);

    /* The rest may be NULL: the disk then works less efficiently. */
    /* Creates file NAME of `bytes` bytes, allocated and durable, by reusing file FROM if it exists,
     * which may be longer (NULL: from nothing). Blocks; any thread, concurrently with all other
     * calls. It may be repeated after a failure. */
    sl_err (*prepare)(struct sl_disk *disk, const char *from, const char *name, uint64_t bytes,
                      struct sl_error *why);
    /* Bytes that the file takes on disk (st_blocks); 0: unknown. */
    uint64_t (*real_bytes)(struct sl_disk *disk, int file);
    /* Frees the blocks of a range of the file, which then reads as zeros. Blocks; any thread, while
     * the file stays open. Offset and length are multiples of 4096. Errors: SL_ERR_UNSUPPORTED (by
     * the file system), SL_ERR_OS. */
    sl_err (*punch)(struct sl_disk *disk, int file, uint64_t offset_bytes, uint64_t length_bytes,
                    struct sl_error *why);
    /* Registers memory that requests will use, so that each costs less. It must stay valid until
     * destroy. A failure costs only speed. Errors: SL_ERR_LIMIT (table full, RLIMIT_MEMLOCK),
     * SL_ERR_UNSUPPORTED, SL_ERR_OS. */
    sl_err (*register_memory)(struct sl_disk *disk, void *memory, uint64_t length_bytes,
                              struct sl_error *why);
    /* Whether the opened directory is still the one at its path. Errors: SL_ERR_NOT_FOUND: it was
     * removed, emptied or replaced. */
    sl_err (*present)(struct sl_disk *disk, struct sl_error *why);
};
struct sl_disk {
    const struct sl_disk_ops *ops;
    bool direct;       /* O_DIRECT is in use */
    const char *place; /* the directory that holds the files; NULL: unknown */
};

/* Two written pages of another file. Unwritten pages read as zeros even from a failed disk. */
struct sl_disk_other {
    int file; /* -1: none */
    uint64_t pages[2];
};
/* Reads the whole range, with a few retries since a failed read may succeed a moment later;
 * *pauses_left bounds the pauses between them. Then it reads `other`, and the range once more.
 * Errors: SL_ERR_NOT_FOUND (the file is shorter), SL_ERR_CORRUPT (the range is bad), SL_ERR_IO
 * (`other` fails also: the disk has failed). Blocks; any thread. */
sl_err sl_disk_read(struct sl_disk *disk, int file, const struct sl_disk_other *other, void *memory,
                    uint64_t offset_bytes, uint64_t length_bytes, uint32_t *pauses_left);

/* Opens (creates) the disk of a directory, see sl_disk_place.h. *event_fd becomes readable when
 * completions are pending; it is borrowed from the disk. direct: requests O_DIRECT; disk->direct
 * says whether it is in use. Errors: those of sl_disk_place_open, SL_ERR_BUSY (another process has
 * it), SL_ERR_OS, SL_ERR_UNSUPPORTED. */
typedef sl_err sl_disk_open_fn(const char *directory, uint32_t queue_depth, bool direct,
                               struct sl_disk **out, int *event_fd, struct sl_error *why);

#define SL_DISK_KIND_DECLARE(kind, open) sl_disk_open_fn open;
SL_DISK_KINDS(SL_DISK_KIND_DECLARE)

/* The same for an entry of disk_path. Errors: also SL_ERR_CONFIG (no such kind). */
sl_disk_open_fn sl_disk_open;

#endif
