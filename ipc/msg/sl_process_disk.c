/* ipc/msg/sl_process_disk.c - the disk of an actor: flushed once per iteration of the loop; its
 * completions become messages. */
#include "ipc/msg/process_internal.h"
#include "runtime/base/sl_array.h"
#include "runtime/disk/sl_disk.h"

#include <errno.h>
#include <stdlib.h>

/* The actor's `destroy`. */
static void disk_destroy(struct sl_disk *disk)
{
    struct sl_process_disk *self = (struct sl_process_disk *)disk->ops;
    sl_loop_fd_remove(self->process->loop, self->event_fd);
    self->destroy(disk);
    self->disk = NULL;
    if (!self->reaping) { /* otherwise the reaper still reads the array, and frees it */
        free(self->done);
        self->done = NULL;
    }
}

static void note_completion(void *context, uint64_t cookie, uint64_t bytes, int os_code)
{
    struct sl_process_disk *self = context;
    /* A lost completion would leak its extent permanently. There are never more than requests in
     * flight, so this takes a few kilobytes at most. */
    bool fits = SL_ARRAY_ROOM(self->done, self->done_capacity, self->done_count + 1);
    SL_ASSERT(fits);
    self->done[self->done_count++] =
        (struct sl_process_completion){.cookie = cookie, .bytes = bytes, .os_code = os_code};
}

static void disk_ready(void *context, int fd, uint32_t events)
{
    struct sl_process_disk *self = context;
    struct sl_process *process = self->process;
    (void)fd;
    (void)events;
    /* Collect all first, then call the actor: its handler may queue requests, or close the disk. */
    self->done_count = 0;
    self->reaping = true;
    self->disk->ops->reap(self->disk, note_completion, self);
    for (uint32_t i = 0; i < self->done_count && self->disk != NULL && !process->failed; i++) {
        const struct sl_process_completion *done = &self->done[i];
        struct sl_msg msg = {.type = SL_MSG_LOCAL_IO};
        if (done->os_code == EFAULT) { /* not the disk: the request's memory was truncated */
            sl_process_exit_truncated(process);
        }
        if (done->os_code != 0) {
            msg.code =
                done->os_code == ENOSPC || done->os_code == EDQUOT ? SL_ERR_NO_SPACE : SL_ERR_IO;
        }
        msg.body.local_io.cookie = done->cookie;
        msg.body.local_io.bytes = done->bytes;
        msg.body.local_io.os_code = (uint64_t)done->os_code;
        sl_process_dispatch(process, &msg);
    }
    self->reaping = false;
    if (self->disk == NULL) {
        free(self->done);
        self->done = NULL;
    }
}

sl_err sl_process_disk_open(struct sl_env *env, const char *path, uint32_t queue_depth, bool direct,
                            struct sl_disk **out, struct sl_error *why)
{
    struct sl_process *process = (struct sl_process *)env;
    struct sl_process_disk *self = NULL;
    for (uint32_t i = 0; i < SL_PROCESS_DISKS_MAX && self == NULL; i++) {
        bool is_free = process->disks[i].disk == NULL && !process->disks[i].reaping;
        self = is_free ? &process->disks[i] : NULL;
    }
    if (self == NULL) {
        return sl_fail(why, SL_ERR_LIMIT, "an actor opens at most %u disks", SL_PROCESS_DISKS_MAX);
    }
    struct sl_disk *disk = NULL;
    int event_fd = -1;
    sl_err err = sl_disk_open(path, queue_depth, direct, &disk, &event_fd, why);
    if (err != SL_OK) {
        return err;
    }
    *self = (struct sl_process_disk){.ops = *disk->ops,
                                     .destroy = disk->ops->destroy,
                                     .process = process,
                                     .disk = disk,
                                     .event_fd = event_fd,
                                     .done_capacity = SL_MAX(2 * queue_depth, 64u)};
    self->ops.destroy = disk_destroy;
    disk->ops = &self->ops;
    self->done = calloc(self->done_capacity, sizeof(*self->done));
    err = self->done != NULL
              ? SL_OK
              : sl_fail(why, SL_ERR_NO_MEMORY, "no memory for completions of '%s'", path);
    if (err == SL_OK) {
        err = sl_loop_fd_add(process->loop, event_fd, SL_LOOP_READ, disk_ready, self, why);
    }
    if (err != SL_OK) {
        disk_destroy(disk);
        return err;
    }
    *out = disk;
    return SL_OK;
}

void sl_process_disks_flush(struct sl_process *process)
{
    for (uint32_t i = 0; i < SL_PROCESS_DISKS_MAX; i++) {
        struct sl_disk *disk = process->disks[i].disk;
        struct sl_error why = {0};
        if (disk != NULL && disk->ops->flush(disk, &why) != SL_OK) {
            /* Requests stay queued: the next iteration tries again. */
            sl_log_write(process->env.log, SL_LOG_WARN, 0, "disk requests stay queued for now: %s",
                         why.text);
        }
    }
}

void sl_process_disks_close(struct sl_process *process)
{
    for (uint32_t i = 0; i < SL_PROCESS_DISKS_MAX; i++) {
        if (process->disks[i].disk != NULL) {
            disk_destroy(process->disks[i].disk);
        }
    }
}
