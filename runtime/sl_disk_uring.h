/* runtime/sl_disk_uring.h - the real disk: a directory, io_uring, O_DIRECT where the file system
 * has it. */
#ifndef SL_DISK_URING_H
#define SL_DISK_URING_H

#include "runtime/sl_disk.h"

/* Opens (makes) the place of the directory, see sl_disk_place.h. *event_fd becomes readable when
 * completions wait; borrowed from the disk. direct: a wish; disk->direct says whether it was
 * granted. Errors: those of sl_disk_place_make, SL_ERR_BUSY (another process has it), SL_ERR_OS,
 * SL_ERR_UNSUPPORTED. */
sl_err sl_disk_uring_open(const char *directory, uint32_t queue_depth, bool direct,
                          struct sl_disk **out, int *event_fd, struct sl_error *why);
/* Calls done() for every completion that waits: bytes transferred, or os_code != 0. */
void sl_disk_uring_reap(struct sl_disk *disk,
                        void (*done)(void *context, uint64_t cookie, uint64_t bytes, int os_code),
                        void *context);

#endif
