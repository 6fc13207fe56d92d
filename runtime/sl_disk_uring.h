/* runtime/sl_disk_uring.h - the real disk: a directory, io_uring, O_DIRECT where the file system
 * has it. */
#ifndef SL_DISK_URING_H
#define SL_DISK_URING_H

#include "runtime/sl_disk.h"

/* As sl_disk_open (sl_disk_backend.h). */
sl_err sl_disk_uring_open(const char *directory, uint32_t queue_depth, bool direct,
                          struct sl_disk **out, int *event_fd, struct sl_error *why);

#endif
