/* actors/transporter/regions/handed.c - see handed.h. */
#include "actors/transporter/regions/handed.h"

#include "actors/transporter/rails/handout.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

sl_err tr_handed_out(struct transporter *self, int fd, uint64_t length_bytes, uint64_t *number,
                     struct sl_error *why)
{
    return self->remotes.handout != NULL
               ? tr_handout_add(self->remotes.handout, fd, length_bytes, number, why)
               : SL_OK;
}

void tr_handed_back(struct transporter *self, uint64_t *number)
{
    if (*number != 0) {
        tr_handout_remove(self->remotes.handout, *number);
        *number = 0;
    }
}

/* The descriptor is opened first and its own number mapped, so that both are of one file whatever the
 * engine does meanwhile. */
sl_err tr_handed_map(struct transporter *self, struct sl_device *device,
                     const struct sl_memory_handle *handle, uint64_t length_bytes,
                     struct sl_mapping *mapping, uint64_t *number, struct sl_error *why)
{
    struct sl_memory_handle own = *handle;
    char path[64];
    if (self->remotes.handout == NULL || handle->fd < 0) {
        return device->ops->map(device, handle, length_bytes, mapping, why);
    }
    (void)snprintf(path, sizeof(path), "/proc/%u/fd/%d", handle->pid, handle->fd);
    /* O_NONBLOCK: as the device opens it, which refuses what is no memory file. */
    SL_AUTO(close) int fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        return sl_fail_os(why, errno, "open '%s'", path);
    }
    own.pid = (uint32_t)getpid();
    own.fd = fd;
    sl_err err = device->ops->map(device, &own, length_bytes, mapping, why);
    if (err == SL_OK) {
        err = tr_handed_out(self, fd, length_bytes, number, why);
        if (err != SL_OK) {
            device->ops->unmap(device, mapping);
        }
    }
    return err;
}
