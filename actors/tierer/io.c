/* actors/tierer/io.c - requests to the disk: slots, priorities, completions and memory. */
#include "actors/tierer/internal.h"

#include <errno.h>
#include <inttypes.h>

int32_t ti_bounce_take(struct tierer *self)
{
    for (uint32_t word = 0; word < SL_COUNT(self->bounce_free); word++) {
        if (self->bounce_free[word] != 0) {
            int bit = __builtin_ctzll(self->bounce_free[word]);
            self->bounce_free[word] &= self->bounce_free[word] - 1;
            self->bounce_free_count--;
            return (int32_t)(word * 64) + bit;
        }
    }
    return -1;
}

void ti_bounce_give(struct tierer *self, int32_t page)
{
    uint64_t bit = UINT64_C(1) << (page % 64);
    SL_ASSERT((self->bounce_free[page / 64] & bit) == 0);
    self->bounce_free[page / 64] |= bit;
    self->bounce_free_count++;
}

unsigned char *ti_arena_at(struct tierer *self, uint32_t arena, uint64_t offset, uint64_t length)
{
    if (arena != 0 || (self->arena == NULL && sl_arena_attach(self->env->paths->shm_dir, 0, true,
                                                              &self->arena, NULL) != SL_OK)) {
        return NULL;
    }
    return sl_arena_at(self->arena, offset, length);
}

void ti_arena_register(struct tierer *self)
{
    struct sl_error why = {0};
    if (!self->lending || self->arena == NULL) {
        return;
    }
    uint64_t from = self->registered_bytes, chunk = sl_arena_chunk_bytes(self->arena);
    uint64_t data = sl_arena_data_bytes(self->arena);
    uint64_t to = SL_MIN(SL_MIN(from + TI_LEND_BYTES, (from / chunk + 1) * chunk), data);
    if (from >= data || to > sl_arena_populated_bytes(self->arena)) {
        return;
    }
    void *at = sl_arena_at(self->arena, from, to - from);
    sl_err err = at == NULL ? sl_fail(&why, SL_ERR_INVALID, "a piece of the arena is missing")
                            : self->disk->ops->register_memory(self->disk, at, to - from, &why);
    if (err != SL_OK) {
        self->lending = false;
        sl_log_write(self->env->log, SL_LOG_WARN, 0,
                     "disk: memory beyond %" PRIu64
                     " bytes is not registered (%s), using ordinary requests",
                     from, why.text);
        return;
    }
    self->registered_bytes = to;
    sl_metric_add(self->env->metrics, self->metrics.buffers_bytes, to - from);
    self->env->ops->wake_at(self->env, self->env->now_ns);
}

static void (*const io_ended[])(struct tierer *self, const struct ti_io *io, uint64_t bytes,
                                int os_code) = {
    [TI_IO_WRITE] = ti_log_io_done,          [TI_IO_SYNC] = ti_log_io_done,
    [TI_IO_READ] = ti_reads_io_done,         [TI_IO_SEAL] = ti_segments_seal_io,
    [TI_IO_SEAL_SYNC] = ti_segments_seal_io, [TI_IO_PROBE] = ti_health_probed,
    [TI_IO_SETTLE] = ti_log_settled,         [TI_IO_MEMBERS] = ti_members_io,
    [TI_IO_MEMBERS_SYNC] = ti_members_io,    [TI_IO_SEAL_CUT] = ti_segments_seal_io,
    [TI_IO_REMOVE] = ti_segments_removed,    [TI_IO_MEMBERS_MAKE] = ti_members_made,
};

/* Frees the slot, then passes the result on. */
static void io_end(struct tierer *self, struct ti_io *slot, uint64_t bytes, int os_code)
{
    struct ti_io io = *slot;
    self->ios_in_flight--;
    slot->kind = TI_IO_FREE;
    slot->next = self->io_free;
    self->io_free = slot;
    io_ended[io.kind](self, &io, bytes, os_code);
}

static enum ti_io_class io_class_of(const struct ti_io *io)
{
    if (io->kind == TI_IO_READ) {
        return io->job->ahead ? TI_IO_PREFETCH : TI_IO_DEMAND;
    }
    return io->kind == TI_IO_PROBE ? TI_IO_DEMAND : TI_IO_BACKGROUND;
}

static void io_push(struct tierer *self, struct ti_io *io)
{
    enum ti_io_class class = io_class_of(io);
    io->next = NULL;
    *(self->io_queues[class].first != NULL ? &self->io_queues[class].last->next
                                           : &self->io_queues[class].first) = io;
    self->io_queues[class].last = io;
}

/* The queue to serve next; TI_IO_CLASSES: all are empty. */
static enum ti_io_class io_next(const struct tierer *self)
{
    uint32_t turn = self->io_turn + 1;
    if (turn % TI_IO_TURN_BACKGROUND == 0 && self->io_queues[TI_IO_BACKGROUND].first != NULL) {
        return TI_IO_BACKGROUND;
    }
    if ((turn + 1) % TI_IO_TURN_PREFETCH == 0 && self->io_queues[TI_IO_PREFETCH].first != NULL) {
        return TI_IO_PREFETCH;
    }
    enum ti_io_class class = TI_IO_DEMAND;
    while (class < TI_IO_CLASSES && self->io_queues[class].first == NULL) {
        class ++;
    }
    return class;
}

void ti_io_pump(struct tierer *self)
{
    for (enum ti_io_class class = io_next(self); class != TI_IO_CLASSES; class = io_next(self)) {
        struct ti_io *io = self->io_queues[class].first;
        struct sl_error why = {0};
        uint64_t read_bytes = io->request.verb == SL_DISK_READ ? io->request.length_bytes : 0;
        if (read_bytes > 0 && self->read_bytes_at_disk > 0 &&
            self->read_bytes_at_disk + read_bytes > TI_READ_WINDOW_BYTES) {
            break;
        }
        sl_err err = self->disk->ops->submit(self->disk, &io->request, &why);
        if (err == SL_ERR_LIMIT) {
            break;
        }
        self->io_queues[class].first = io->next;
        self->io_turn++;
        if (err == SL_OK) {
            self->read_bytes_at_disk += read_bytes;
        } else { /* ends as if completed with this error */
            sl_log_write(self->env->log, SL_LOG_ERROR, 0, "disk: request refused: %s", why.text);
            io_end(self, io, 0, why.os_code != 0 ? why.os_code : EIO);
        }
    }
    (void)self->disk->ops->flush(self->disk, NULL);
}

void ti_io_raise(struct tierer *self, const struct ti_job *job)
{
    struct ti_io *io = self->io_queues[TI_IO_PREFETCH].first;
    self->io_queues[TI_IO_PREFETCH].first = NULL;
    SL_ASSERT(!job->ahead); /* its requests move to the other queue */
    while (io != NULL) {
        struct ti_io *next = io->next;
        io_push(self, io);
        io = next;
    }
}

bool ti_io_start(struct tierer *self, enum ti_io_kind kind, struct ti_job *job, uint32_t item,
                 const struct sl_disk_request *request)
{
    struct ti_io *io = self->io_free;
    if (io == NULL || (kind == TI_IO_READ && self->ios_in_flight >= TI_IOS_MAX - TI_IOS_KEPT)) {
        return false;
    }
    self->io_free = io->next;
    *io = (struct ti_io){.kind = kind,
                         .job = job,
                         .item = item,
                         .request = *request,
                         .started_ns = self->env->now_ns,
                         .serial = ++self->next_serial};
    io->request.cookie = (uint64_t)(io - self->ios);
    if (request->verb == SL_DISK_WRITE) {
        ti_budget_spend(self, request->length_bytes);
    }
    io_push(self, io);
    self->ios_in_flight++;
    return true;
}

void ti_io_completed(struct tierer *self, const struct sl_msg *msg)
{
    const struct sl_body_local_io *body = &msg->body.local_io;
    if (body->cookie < TI_IOS_MAX && self->ios[body->cookie].kind != TI_IO_FREE) {
        const struct sl_disk_request *request = &self->ios[body->cookie].request;
        if (request->verb == SL_DISK_READ) {
            self->read_bytes_at_disk -= request->length_bytes;
            ti_io_pump(self); /* keep the disk busy while this piece is hashed */
        }
        io_end(self, &self->ios[body->cookie], body->bytes, (int)body->os_code);
    }
}
