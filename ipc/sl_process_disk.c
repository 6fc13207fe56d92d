/* ipc/sl_process_disk.c - the disk an actor sees: forwards to the real one, flushes it once a turn,
 * and turns its completions into messages. */
#include "ipc/process_internal.h"
#include "runtime/sl_array.h"
#include "runtime/sl_disk_backend.h"

#include <errno.h>
#include <stdlib.h>

static struct sl_process_disk *disk_of(struct sl_disk *disk)
{
    return (struct sl_process_disk *)disk;
}

static sl_err disk_open(struct sl_disk *disk, const char *name, bool create,
                        uint64_t allocate_bytes, int *file, uint64_t *size_bytes,
                        struct sl_error *why)
{
    struct sl_disk *real = disk_of(disk)->real;
    return real->ops->open(real, name, create, allocate_bytes, file, size_bytes, why);
}

static void disk_close(struct sl_disk *disk, int file)
{
    struct sl_disk *real = disk_of(disk)->real;
    real->ops->close(real, file);
}

static sl_err disk_remove(struct sl_disk *disk, const char *name, struct sl_error *why)
{
    struct sl_disk *real = disk_of(disk)->real;
    return real->ops->remove(real, name, why);
}

static sl_err disk_list(struct sl_disk *disk,
                        void (*each)(void *context, const char *name, uint64_t bytes),
                        void *context, struct sl_error *why)
{
    struct sl_disk *real = disk_of(disk)->real;
    return real->ops->list(real, each, context, why);
}

static sl_err disk_submit(struct sl_disk *disk, const struct sl_disk_request *request,
                          struct sl_error *why)
{
    struct sl_process_disk *self = disk_of(disk);
    sl_err err = self->real->ops->submit(self->real, request, why);
    self->dirty = self->dirty || err == SL_OK;
    return err;
}

/* What stays queued is handed over at the end of the turn. */
static sl_err disk_flush(struct sl_disk *disk, struct sl_error *why)
{
    struct sl_process_disk *self = disk_of(disk);
    sl_err err = self->dirty ? self->real->ops->flush(self->real, why) : SL_OK;
    self->dirty = self->dirty && err != SL_OK;
    return err;
}

static sl_err disk_read_now(struct sl_disk *disk, int file, void *memory, uint64_t offset_bytes,
                            uint64_t length_bytes, uint64_t *got, struct sl_error *why)
{
    struct sl_disk *real = disk_of(disk)->real;
    return real->ops->read_now(real, file, memory, offset_bytes, length_bytes, got, why);
}

static sl_err disk_prepare(struct sl_disk *disk, const char *from, const char *name, uint64_t bytes,
                           struct sl_error *why)
{
    struct sl_disk *real = disk_of(disk)->real;
    return real->ops->prepare(real, from, name, bytes, why);
}

static sl_err disk_punch(struct sl_disk *disk, int file, uint64_t offset_bytes,
                         uint64_t length_bytes, struct sl_error *why)
{
    struct sl_disk *real = disk_of(disk)->real;
    return real->ops->punch(real, file, offset_bytes, length_bytes, why);
}

static uint64_t disk_real_bytes(struct sl_disk *disk, int file)
{
    struct sl_disk *real = disk_of(disk)->real;
    return real->ops->real_bytes(real, file);
}

static sl_err disk_lend(struct sl_disk *disk, void *memory, uint64_t length_bytes,
                        struct sl_error *why)
{
    struct sl_disk *real = disk_of(disk)->real;
    return real->ops->lend(real, memory, length_bytes, why);
}

static sl_err disk_present(struct sl_disk *disk, struct sl_error *why)
{
    struct sl_disk *real = disk_of(disk)->real;
    return real->ops->present(real, why);
}

static void disk_destroy(struct sl_disk *disk)
{
    struct sl_process_disk *self = disk_of(disk);
    if (self->real == NULL) {
        return;
    }
    sl_loop_fd_remove(self->process->loop, self->event_fd);
    self->real->ops->destroy(self->real);
    self->real = NULL;
    self->dirty = false;
    if (!self->reaping) { /* else the reaper reads the array still, and frees it */
        free(self->done);
        self->done = NULL;
    }
}

static const struct sl_disk_ops process_disk_ops = {
    .open = disk_open,
    .close = disk_close,
    .remove = disk_remove,
    .list = disk_list,
    .submit = disk_submit,
    .flush = disk_flush,
    .read_now = disk_read_now,
    .destroy = disk_destroy,
};

static void note_completion(void *context, uint64_t cookie, uint64_t bytes, int os_code)
{
    struct sl_process_disk *self = context;
    /* A completion that is lost would strand its extent for ever. There are never more of them than
     * requests in flight, so this is a few kilobytes at most. */
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
    /* First all, then the actor: its handler may queue requests, or close the disk. */
    self->done_count = 0;
    self->reaping = true;
    self->real->ops->reap(self->real, note_completion, self);
    for (uint32_t i = 0; i < self->done_count && self->real != NULL && !process->failed; i++) {
        const struct sl_process_completion *done = &self->done[i];
        struct sl_msg msg = {.type = SL_MSG_LOCAL_IO};
        if (done->os_code == EFAULT) { /* not the disk: the memory is gone from under the request */
            sl_process_cut(process);
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
    if (self->real == NULL) {
        free(self->done);
        self->done = NULL;
    }
}

/* Those of the real one that may be NULL are NULL here, too. */
static void disk_ops_set(struct sl_process_disk *self)
{
    const struct sl_disk_ops *real = self->real->ops;
    self->ops = process_disk_ops;
    self->ops.prepare = real->prepare != NULL ? disk_prepare : NULL;
    self->ops.real_bytes = real->real_bytes != NULL ? disk_real_bytes : NULL;
    self->ops.punch = real->punch != NULL ? disk_punch : NULL;
    self->ops.lend = real->lend != NULL ? disk_lend : NULL;
    self->ops.present = real->present != NULL ? disk_present : NULL;
}

sl_err sl_process_disk_open(struct sl_env *env, const char *directory, uint32_t queue_depth,
                            bool direct, struct sl_disk **out, struct sl_error *why)
{
    struct sl_process *process = (struct sl_process *)env;
    struct sl_process_disk *self = NULL;
    for (uint32_t i = 0; i < SL_PROCESS_DISKS_MAX && self == NULL; i++) {
        bool is_free = process->disks[i].real == NULL && !process->disks[i].reaping;
        self = is_free ? &process->disks[i] : NULL;
    }
    if (self == NULL) {
        return sl_fail(why, SL_ERR_LIMIT, "an actor opens at most %u disks", SL_PROCESS_DISKS_MAX);
    }
    *self = (struct sl_process_disk){.process = process, .event_fd = -1};
    sl_err err = sl_disk_open(env->config, directory, queue_depth, direct, &self->real,
                              &self->event_fd, why);
    if (err != SL_OK) {
        return err;
    }
    disk_ops_set(self);
    self->base = (struct sl_disk){
        .ops = &self->ops, .direct = self->real->direct, .place = self->real->place};
    self->done_capacity = SL_MAX(2 * queue_depth, 64u);
    self->done = calloc(self->done_capacity, sizeof(*self->done));
    err = self->done != NULL
              ? SL_OK
              : sl_fail(why, SL_ERR_NO_MEMORY, "no memory for completions of '%s'", directory);
    if (err == SL_OK) {
        err = sl_loop_fd_add(process->loop, self->event_fd, SL_LOOP_READ, disk_ready, self, why);
    }
    if (err != SL_OK) {
        disk_destroy(&self->base);
        return err;
    }
    *out = &self->base;
    return SL_OK;
}

void sl_process_disks_flush(struct sl_process *process)
{
    for (uint32_t i = 0; i < SL_PROCESS_DISKS_MAX; i++) {
        struct sl_process_disk *disk = &process->disks[i];
        if (disk->real == NULL || !disk->dirty) {
            continue;
        }
        struct sl_error why = {0};
        disk->dirty = false;
        sl_err err = disk->real->ops->flush(disk->real, &why);
        if (err != SL_OK) {
            /* What was queued stays queued: the next turn tries again. */
            disk->dirty = true;
            sl_log_write(process->env.log, SL_LOG_WARN, 0, "disk requests stay queued for now: %s",
                         why.text);
        }
    }
}

void sl_process_disks_close(struct sl_process *process)
{
    for (uint32_t i = 0; i < SL_PROCESS_DISKS_MAX; i++) {
        if (process->disks[i].real != NULL) {
            disk_destroy(&process->disks[i].base);
        }
    }
}
