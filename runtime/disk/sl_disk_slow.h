/* runtime/disk/sl_disk_slow.h - calls on files of a disk directory that may block: names are made
 * and removed, files allocated and cut. One helper thread does them, so that a disk which hangs in
 * one holds up nobody but those who wait for it. */
#ifndef SL_DISK_SLOW_H
#define SL_DISK_SLOW_H

#include "runtime/base/sl_error.h"

#define SL_DISK_WORKS_MAX 256u

enum sl_disk_work_kind {
    SL_DISK_WORK_RESIZE, /* fd to bytes; the descriptor is lent */
    SL_DISK_WORK_MAKE,   /* file name of bytes */
    SL_DISK_WORK_REMOVE, /* file name */
    SL_DISK_WORK_CLOSE,  /* takes fd; its end is not told */
};
struct sl_disk_work {
    enum sl_disk_work_kind kind;
    uint64_t cookie;
    uint64_t bytes;
    int fd;
    const char *name; /* copied */
};

struct sl_disk_slow; /* opaque; all calls by one thread */
/* Gives *out for the directory. event_fd is written to whenever something ended. Both are borrowed.
 * Errors: SL_ERR_OS, SL_ERR_NO_MEMORY. */
sl_err sl_disk_slow_open(int dir_fd, int event_fd, struct sl_disk_slow **out, struct sl_error *why);
/* Errors: SL_ERR_LIMIT (SL_DISK_WORKS_MAX wait or ended and were not taken), SL_ERR_INVALID (no
 * such name). */
sl_err sl_disk_slow_give(struct sl_disk_slow *slow, const struct sl_disk_work *work);
/* The next one that ended, and its errno (0: done). False: none. */
bool sl_disk_slow_take(struct sl_disk_slow *slow, uint64_t *cookie, int *os_code);
/* Waits for nothing: what was not begun is dropped, and a call that hangs keeps its thread, and the
 * memory that this thread needs, until it ends. */
void sl_disk_slow_close(struct sl_disk_slow **slow);

/* The calls themselves. */
/* Errors: SL_ERR_INVALID. */
sl_err sl_disk_file_check(const char *name, struct sl_error *why);
/* Allocates, and makes allocation and name (fresh) durable. Errors: SL_ERR_OS. */
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
