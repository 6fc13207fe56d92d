/* runtime/sl_disk.h - a directory of files as the tierer sees it: an ops table, so that tests can
 * fail, tear and delay it and the simulator can replace it. One thread. Names are plain file names.
 *
 * Asynchronous requests end by one completion each, delivered to the actor as an SL_MSG_LOCAL_IO
 * message with the request's cookie. Memory and descriptors are lent until then. Offsets, lengths
 * and memory are multiples of 4096 when `direct` is on. */
#ifndef SL_DISK_H
#define SL_DISK_H

#include "runtime/sl_error.h"

enum sl_disk_verb { SL_DISK_READ, SL_DISK_WRITE, SL_DISK_SYNC };

struct sl_disk_request {
    enum sl_disk_verb verb;
    int file; /* handle from open */
    void *memory;
    uint64_t offset_bytes;
    uint64_t length_bytes;
    uint64_t cookie;
};

struct sl_disk; /* base of the implementations */
struct sl_disk_ops {
    /* Opens or creates NAME; allocate_bytes > 0 allocates so many real bytes (fallocate), so that
     * later writes cannot meet ENOSPC. Gives a handle >= 0. */
    sl_err (*open)(struct sl_disk *disk, const char *name, bool create, uint64_t allocate_bytes,
                   int *file, uint64_t *size_bytes, struct sl_error *why);
    void (*close)(struct sl_disk *disk, int file);
    /* Durable removal (directory synced at the next SYNC request or before returning). */
    sl_err (*remove)(struct sl_disk *disk, const char *name, struct sl_error *why);
    /* Calls each(context, name, real bytes on disk) for every regular file. */
    sl_err (*list)(struct sl_disk *disk,
                   void (*each)(void *context, const char *name, uint64_t bytes), void *context,
                   struct sl_error *why);
    /* Queues one request. SL_ERR_LIMIT: the queue is full, wait for completions. */
    sl_err (*submit)(struct sl_disk *disk, const struct sl_disk_request *request,
                     struct sl_error *why);
    /* Hands what was queued to the kernel; called once at the end of a handler. */
    sl_err (*flush)(struct sl_disk *disk, struct sl_error *why);
    /* Blocking read for start-up scans. Short read: *got. */
    sl_err (*read_now)(struct sl_disk *disk, int file, void *memory, uint64_t offset_bytes,
                       uint64_t length_bytes, uint64_t *got, struct sl_error *why);
    void (*destroy)(struct sl_disk *disk); /* waits for nothing: the caller has drained */
};
struct sl_disk {
    const struct sl_disk_ops *ops;
    bool direct; /* O_DIRECT in force */
};

#endif
