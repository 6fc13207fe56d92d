/* runtime/disk/sl_disk_slow.h - calls on files of a disk directory that may block: creating,
 * removing, allocating and truncating files. One helper thread does them, so that a disk that hangs
 * delays only the calls to it. */
#ifndef SL_DISK_SLOW_H
#define SL_DISK_SLOW_H

#include "runtime/base/sl_error.h"

#define SL_DISK_WORKS_MAX 256u

enum sl_disk_work_kind {
    SL_DISK_WORK_RESIZE, /* truncates fd to bytes; fd must stay open until then */
    SL_DISK_WORK_MAKE,   /* creates file name of bytes */
    SL_DISK_WORK_REMOVE, /* file name */
    SL_DISK_WORK_CLOSE,  /* takes fd; no completion */
};
struct sl_disk_work {
    enum sl_disk_work_kind kind;
    uint64_t cookie;
    uint64_t bytes;
    int fd;
    const char *name; /* copied */
};

struct sl_disk_slow; /* opaque; all calls by one thread */
/* Gives *out for the directory. event_fd is written to when queued work has ended. Both are
 * borrowed. Errors: SL_ERR_OS, SL_ERR_NO_MEMORY. */
sl_err sl_disk_slow_open(int dir_fd, int event_fd, struct sl_disk_slow **out, struct sl_error *why);
/* Queues a work. Errors: SL_ERR_LIMIT (SL_DISK_WORKS_MAX are queued or ended but not taken),
 * SL_ERR_INVALID (bad name). */
sl_err sl_disk_slow_submit(struct sl_disk_slow *slow, const struct sl_disk_work *work);
/* Takes the next ended work: its cookie and errno (0: success). False: none. */
bool sl_disk_slow_reap(struct sl_disk_slow *slow, uint64_t *cookie, int *os_code);
/* Does not wait: queued works are dropped; a call that hangs keeps its thread, and the memory that
 * the thread needs, until it returns. */
void sl_disk_slow_close(struct sl_disk_slow **slow);

/* The calls themselves. */
/* Errors: SL_ERR_INVALID. */
sl_err sl_disk_file_check(const char *name, struct sl_error *why);
/* Allocates the file; makes the allocation and, if fresh, the name durable. Errors: SL_ERR_OS. */
sl_err sl_disk_file_allocate(int dir_fd, int fd, const char *name, bool fresh,
                             uint64_t allocate_bytes, struct sl_error *why);
/* As `prepare` of sl_disk.h. Errors: SL_ERR_INVALID, SL_ERR_OS. */
sl_err sl_disk_file_make(int dir_fd, const char *from, const char *name, uint64_t bytes,
                         struct sl_error *why);
/* Durable. Errors: SL_ERR_INVALID, SL_ERR_OS. */
sl_err sl_disk_file_remove(int dir_fd, const char *name, struct sl_error *why);
/* As `list` of sl_disk.h. Errors: SL_ERR_OS. */
sl_err sl_disk_files_list(int dir_fd, void (*each)(void *context, const char *name, uint64_t bytes),
                          void *context, struct sl_error *why);

#endif
