/* runtime/sl_disk_backend.h - which back end opens a disk. */
#ifndef SL_DISK_BACKEND_H
#define SL_DISK_BACKEND_H

#include "runtime/sl_config.h"
#include "runtime/sl_disk.h"

/* Opens (makes) the place of the directory, see sl_disk_place.h. *event_fd becomes readable when
 * completions wait; borrowed from the disk. direct: a wish; disk->direct says whether it was
 * granted. Errors: those of sl_disk_place_make, SL_ERR_BUSY (another process has it), SL_ERR_OS,
 * SL_ERR_UNSUPPORTED. */
sl_err sl_disk_open(const struct sl_config *config, const char *directory, uint32_t queue_depth,
                    bool direct, struct sl_disk **out, int *event_fd, struct sl_error *why);

#endif
