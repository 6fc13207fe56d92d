/* runtime/disk/sl_disk_uring.c - the real disk: one directory, one io_uring, registered files, and
 * O_DIRECT if the file system supports it.
 *
 * The descriptor that holds the directory's lock is registered with the ring. The kernel keeps it
 * until the ring's last request has ended, even after the process has died. So the process that
 * gets the lock knows that no request of its predecessor is in flight.
 *
 * Every request is an entry of a fixed table; its number is the user data of the submission, so a
 * completion is matched without memory of the caller. After a short transfer the rest is submitted
 * again, and the caller sees one completion. */
#include "runtime/base/sl_clock.h"
#include "runtime/disk/sl_disk.h"
#include "runtime/disk/sl_disk_place.h"
#include "runtime/disk/sl_disk_slow.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define DISK_FILES_MAX    (SL_DISK_SEGMENTS_MAX + 8u) /* and a few small files */
#define DISK_TRANSFER_MAX SL_GIB /* one submission; the kernel's limit is 2 GiB - 4 KiB */
#define DISK_RETRIES_MAX  64u    /* EAGAIN and EINTR in a row before the caller gets the error */
#define DISK_BUFFERS_MAX  16384u /* the kernel's limit */

struct uring_io {
    struct sl_disk_request request;
    uint64_t done_bytes;
    uint32_t retries;
    uint32_t next_free; /* index + 1 */
    bool busy;
};

struct uring_buffer {
    struct iovec memory;
    uint32_t slot; /* index in the kernel's table */
};

struct uring_disk {
    struct sl_disk base; /* first: the ops get this address */
    struct io_uring ring;
    bool ring_open;
    uint32_t slot_count; /* registered files: the lock, then handles 0, 1, ... up to the limit */
    int dir_fd;
    int lock_fd;
    int event_fd;
    char path[SL_DISK_PLACE_BYTES]; /* of the directory */
    uint32_t queue_depth;
    uint32_t free_io; /* index + 1; 0: all are in use */
    struct uring_io *ios;
    int *files;                   /* descriptor of each handle, -1: free */
    uint32_t file_high;           /* handles from here on were never used */
    struct uring_buffer *buffers; /* sorted by address; NULL: the kernel has no table of buffers */
    uint32_t buffer_count;
    struct sl_disk_slow *slow; /* for calls that may block and that the ring cannot do */
};

static struct uring_disk *disk_of(struct sl_disk *disk)
{
    return (struct uring_disk *)disk;
}

/* ---- files ---- */

static sl_err disk_file_adopt(struct uring_disk *self, int fd, int *file, struct sl_error *why)
{
    uint32_t slot = 0;
    while (slot < self->file_high && self->files[slot] >= 0) {
        slot++;
    }
    if (slot == DISK_FILES_MAX) {
        return sl_fail(why, SL_ERR_LIMIT, "more than %u open disk files", DISK_FILES_MAX);
    }
    self->file_high = SL_MAX(self->file_high, slot + 1);
    if (slot + 1 < self->slot_count) {
        int result = io_uring_register_files_update(&self->ring, slot + 1, &fd, 1);
        if (result < 0) {
            return sl_fail_os(why, -result, "register a disk file");
        }
    }
    self->files[slot] = fd;
    *file = (int)slot;
    return SL_OK;
}

static sl_err uring_file_open(struct sl_disk *disk, const char *name, bool create,
                              uint64_t allocate_bytes, int *file, uint64_t *size_bytes,
                              struct sl_error *why)
{
    struct uring_disk *self = disk_of(disk);
    sl_err err = sl_disk_file_check(name, why);
    if (err != SL_OK) {
        return err;
    }
    int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | (self->base.direct ? O_DIRECT : 0);
    bool fresh = false;
    int fd = -1;
    if (create) {
        fd = openat(self->dir_fd, name, flags | O_CREAT | O_EXCL, 0600);
        fresh = fd >= 0;
    }
    if (fd < 0 && (!create || errno == EEXIST)) {
        fd = openat(self->dir_fd, name, flags);
    }
    if (fd < 0) {
        return sl_fail_os(why, errno, "open disk file '%s'", name);
    }
    struct stat status;
    err = sl_disk_file_allocate(self->dir_fd, fd, name, fresh, allocate_bytes, why);
    if (err == SL_OK && fstat(fd, &status) < 0) {
        err = sl_fail_os(why, errno, "stat disk file '%s'", name);
    }
    if (err == SL_OK && !S_ISREG(status.st_mode)) {
        err = sl_fail(why, SL_ERR_INVALID, "'%s' is no regular file", name);
    }
    if (err == SL_OK) {
        err = disk_file_adopt(self, fd, file, why);
    }
    if (err != SL_OK) {
        close(fd);
        if (fresh) {
            (void)unlinkat(self->dir_fd, name, 0);
        }
        return err;
    }
    *size_bytes = (uint64_t)status.st_size;
    return SL_OK;
}

static void uring_file_close(struct sl_disk *disk, int file)
{
    struct uring_disk *self = disk_of(disk);
    SL_ASSERT(file >= 0 && (uint32_t)file < self->file_high && self->files[file] >= 0);
    if ((uint32_t)file + 1 < self->slot_count) {
        int none = -1;
        (void)io_uring_register_files_update(&self->ring, (unsigned)file + 1, &none, 1);
    }
    /* If the file has no name left, this frees its blocks, which may take long. */
    struct sl_disk_work work = {.kind = SL_DISK_WORK_CLOSE, .fd = self->files[file]};
    if (self->slow == NULL || sl_disk_slow_submit(self->slow, &work) != SL_OK) {
        close(self->files[file]);
    }
    self->files[file] = -1;
}

static sl_err uring_file_remove(struct sl_disk *disk, const char *name, struct sl_error *why)
{
    return sl_disk_file_remove(disk_of(disk)->dir_fd, name, why);
}

static sl_err uring_list(struct sl_disk *disk,
                         void (*each)(void *context, const char *name, uint64_t bytes),
                         void *context, struct sl_error *why)
{
    return sl_disk_files_list(disk_of(disk)->dir_fd, each, context, why);
}

static sl_err uring_read_now(struct sl_disk *disk, int file, void *memory, uint64_t offset_bytes,
                             uint64_t length_bytes, uint64_t *got, struct sl_error *why)
{
    const struct uring_disk *self = disk_of(disk);
    SL_ASSERT(file >= 0 && (uint32_t)file < DISK_FILES_MAX && self->files[file] >= 0);
    uint64_t done = 0;
    while (done < length_bytes) {
        size_t want = (size_t)SL_MIN(length_bytes - done, DISK_TRANSFER_MAX);
        ssize_t result = pread(self->files[file], (unsigned char *)memory + done, want,
                               (off_t)(offset_bytes + done));
        if (result < 0 && errno == EINTR) {
            continue;
        }
        if (result < 0) {
            return sl_fail_os(why, errno, "read %zu bytes at %" PRIu64, want, offset_bytes + done);
        }
        done += (uint64_t)result;
        if (result == 0 || (self->base.direct && done % SL_PAGE_BYTES != 0)) {
            break; /* end of file; direct reads cannot continue within a page */
        }
    }
    *got = done;
    return SL_OK;
}

static sl_err uring_punch(struct sl_disk *disk, int file, uint64_t offset_bytes,
                          uint64_t length_bytes, struct sl_error *why)
{
    const struct uring_disk *self = disk_of(disk);
    int result = 0;
    SL_ASSERT(file >= 0 && (uint32_t)file < DISK_FILES_MAX && self->files[file] >= 0);
    do {
        result = fallocate(self->files[file], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                           (off_t)offset_bytes, (off_t)length_bytes);
    } while (result < 0 && errno == EINTR);
    if (result < 0 && errno == EOPNOTSUPP) {
        return sl_fail(why, SL_ERR_UNSUPPORTED, "the file system cannot free parts of a file");
    }
    return result < 0 ? sl_fail_os(why, errno, "free %" PRIu64 " bytes of a file", length_bytes)
                      : SL_OK;
}

/* Uses only the directory's descriptor: any thread. */
static sl_err uring_prepare(struct sl_disk *disk, const char *from, const char *name,
                            uint64_t bytes, struct sl_error *why)
{
    return sl_disk_file_make(disk_of(disk)->dir_fd, from, name, bytes, why);
}

/* A mount or an unmount at the path makes it another directory. If the directory was removed or
 * emptied, the lock file has no name left. */
static sl_err uring_present(struct sl_disk *disk, struct sl_error *why)
{
    const struct uring_disk *self = disk_of(disk);
    struct stat there, ours, lock;
    if (fstat(self->dir_fd, &ours) < 0 || fstat(self->lock_fd, &lock) < 0) {
        return sl_fail_os(why, errno, "read the disk directory's status");
    }
    if (stat(self->path, &there) < 0) {
        return sl_fail_os(why, errno == ENOTDIR ? ENOENT : errno, "look at '%s'", self->path);
    }
    if (there.st_dev != ours.st_dev || there.st_ino != ours.st_ino || lock.st_nlink == 0) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "'%s' is no longer the directory that was opened",
                       self->path);
    }
    return SL_OK;
}

static uint64_t uring_real_bytes(struct sl_disk *disk, int file)
{
    struct uring_disk *self = disk_of(disk);
    struct stat status;
    SL_ASSERT(file >= 0 && (uint32_t)file < self->file_high && self->files[file] >= 0);
    return fstat(self->files[file], &status) == 0 ? (uint64_t)status.st_blocks * 512u : 0;
}

/* ---- registered memory ---- */

static sl_err uring_register_memory(struct sl_disk *disk, void *memory, uint64_t length_bytes,
                                    struct sl_error *why)
{
    struct uring_disk *self = disk_of(disk);
    if (self->buffers == NULL) {
        return sl_fail(why, SL_ERR_UNSUPPORTED, "the kernel has no table of registered buffers");
    }
    if (self->buffer_count == DISK_BUFFERS_MAX) {
        return sl_fail(why, SL_ERR_LIMIT, "%u buffers are registered", DISK_BUFFERS_MAX);
    }
    struct iovec piece = {.iov_base = memory, .iov_len = length_bytes};
    __u64 tag = 0;
    uint32_t slot = self->buffer_count;
    int result = io_uring_register_buffers_update_tag(&self->ring, slot, &piece, &tag, 1);
    if (result < 0) {
        struct rlimit limit = {0};
        (void)getrlimit(RLIMIT_MEMLOCK, &limit);
        return result == -ENOMEM
                   ? sl_fail(why, SL_ERR_LIMIT,
                             "%" PRIu64 " bytes more do not fit RLIMIT_MEMLOCK (%" PRIu64 " KiB)",
                             length_bytes, limit.rlim_cur / SL_KIB)
                   : sl_fail_os(why, -result, "register %" PRIu64 " bytes", length_bytes);
    }
    uint32_t at = slot;
    while (at > 0 && (uintptr_t)self->buffers[at - 1].memory.iov_base > (uintptr_t)memory) {
        self->buffers[at] = self->buffers[at - 1];
        at--;
    }
    self->buffers[at] = (struct uring_buffer){.memory = piece, .slot = slot};
    self->buffer_count++;
    return SL_OK;
}

/* ---- requests ---- */

/* The rest of the request's current piece: after a short transfer pieces are done singly. */
static struct iovec disk_io_piece(const struct uring_io *io)
{
    const struct sl_disk_request *request = &io->request;
    struct iovec one = {.iov_base = request->memory, .iov_len = request->length_bytes};
    const struct iovec *pieces = request->piece_count > 0 ? request->pieces : &one;
    uint32_t count = SL_MAX(request->piece_count, 1u);
    uint64_t done = io->done_bytes;
    uint32_t at = 0;
    while (at + 1 < count && done >= pieces[at].iov_len) {
        done -= pieces[at++].iov_len;
    }
    return (struct iovec){.iov_base = (unsigned char *)pieces[at].iov_base + done,
                          .iov_len = SL_MIN(pieces[at].iov_len - done, DISK_TRANSFER_MAX)};
}

/* The registered buffer that holds the whole piece; -1: none. */
static int disk_buffer_of(const struct uring_disk *self, const struct iovec *piece)
{
    uintptr_t at = (uintptr_t)piece->iov_base;
    uint32_t low = 0;
    uint32_t high = self->buffer_count;
    while (low < high) { /* finds the last buffer that begins at or before the piece */
        uint32_t middle = low + (high - low) / 2;
        if ((uintptr_t)self->buffers[middle].memory.iov_base <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == 0) {
        return -1;
    }
    const struct uring_buffer *buffer = &self->buffers[low - 1];
    uintptr_t from = (uintptr_t)buffer->memory.iov_base;
    bool within = at - from <= buffer->memory.iov_len &&
                  piece->iov_len <= buffer->memory.iov_len - (at - from);
    return within ? (int)buffer->slot : -1;
}

/* Gives a call that may block to the helper thread. False: its queue is full. */
static bool disk_slow_queue(struct uring_disk *self, uint32_t index)
{
    const struct sl_disk_request *request = &self->ios[index].request;
    struct sl_disk_work work = {.kind = request->verb == SL_DISK_RESIZE ? SL_DISK_WORK_RESIZE
                                        : request->verb == SL_DISK_MAKE ? SL_DISK_WORK_MAKE
                                                                        : SL_DISK_WORK_REMOVE,
                                .cookie = index,
                                .bytes = request->length_bytes,
                                .fd = request->file >= 0 ? self->files[request->file] : -1,
                                .name = request->name};
    return sl_disk_slow_submit(self->slow, &work) == SL_OK;
}

/* Puts the rest of the request on the submission queue. False: the queue is full. */
static bool disk_io_queue(struct uring_disk *self, uint32_t index)
{
    struct uring_io *io = &self->ios[index];
    const struct sl_disk_request *request = &io->request;
    if (request->verb > SL_DISK_SYNC) {
        return disk_slow_queue(self, index);
    }
    struct io_uring_sqe *sqe = io_uring_get_sqe(&self->ring);
    if (sqe == NULL) {
        return false;
    }
    bool registered = (uint32_t)request->file + 1 < self->slot_count;
    int fd = registered ? request->file + 1 : self->files[request->file];
    uint64_t offset = request->offset_bytes + io->done_bytes;
    struct iovec piece = {0};
    bool vector = request->piece_count > 1 && io->done_bytes == 0;
    if (!vector && request->verb != SL_DISK_SYNC) {
        piece = disk_io_piece(io);
    }
    int buffer = piece.iov_len > 0 ? disk_buffer_of(self, &piece) : -1;
    switch (request->verb) {
    case SL_DISK_READ:
        if (vector) {
            io_uring_prep_readv(sqe, fd, request->pieces, request->piece_count, offset);
        } else if (buffer >= 0) {
            io_uring_prep_read_fixed(sqe, fd, piece.iov_base, (unsigned)piece.iov_len, offset,
                                     buffer);
        } else {
            io_uring_prep_read(sqe, fd, piece.iov_base, (unsigned)piece.iov_len, offset);
        }
        break;
    case SL_DISK_WRITE:
        if (vector) {
            io_uring_prep_writev(sqe, fd, request->pieces, request->piece_count, offset);
        } else if (buffer >= 0) {
            io_uring_prep_write_fixed(sqe, fd, piece.iov_base, (unsigned)piece.iov_len, offset,
                                      buffer);
        } else {
            io_uring_prep_write(sqe, fd, piece.iov_base, (unsigned)piece.iov_len, offset);
        }
        break;
    case SL_DISK_SYNC:
    default: /* the others are not queued here */
        io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
        break;
    }
    if (registered) {
        sqe->flags |= IOSQE_FIXED_FILE;
    }
    io_uring_sqe_set_data64(sqe, index);
    return true;
}

static sl_err uring_submit(struct sl_disk *disk, const struct sl_disk_request *request,
                           struct sl_error *why)
{
    struct uring_disk *self = disk_of(disk);
    if (request->verb != SL_DISK_MAKE && request->verb != SL_DISK_REMOVE) {
        SL_ASSERT(request->file >= 0 && (uint32_t)request->file < self->file_high);
        SL_ASSERT(self->files[request->file] >= 0);
    }
    SL_ASSERT(request->piece_count <= SL_DISK_PIECES_MAX);
    SL_ASSERT(!self->base.direct || request->verb > SL_DISK_SYNC ||
              (request->offset_bytes | request->length_bytes | (uintptr_t)request->memory) %
                      SL_PAGE_BYTES ==
                  0);
    for (uint32_t i = 0; self->base.direct && i < request->piece_count; i++) {
        SL_ASSERT(((uintptr_t)request->pieces[i].iov_base | request->pieces[i].iov_len) %
                      SL_PAGE_BYTES ==
                  0);
    }
    if (self->free_io == 0) {
        return sl_fail(why, SL_ERR_LIMIT, "%u disk requests are in flight", self->queue_depth);
    }
    uint32_t index = self->free_io - 1;
    struct uring_io *io = &self->ios[index];
    uint32_t next_free = io->next_free;
    *io = (struct uring_io){.request = *request, .busy = true};
    if (!disk_io_queue(self, index)) {
        *io = (struct uring_io){.next_free = next_free};
        return sl_fail(why, SL_ERR_LIMIT, "a queue of the disk is full");
    }
    self->free_io = next_free;
    return SL_OK;
}

static sl_err uring_flush(struct sl_disk *disk, struct sl_error *why)
{
    struct uring_disk *self = disk_of(disk);
    while (io_uring_sq_ready(&self->ring) > 0) {
        int result = io_uring_submit(&self->ring);
        if (result == -EINTR) {
            continue;
        }
        if (result == -EAGAIN || result == -EBUSY || result == 0) {
            /* The kernel is short of memory or has completions to deliver first: the next reap or
             * flush submits the rest. The event ensures that there is one. */
            uint64_t one = 1;
            (void)!write(self->event_fd, &one, sizeof(one));
            return SL_OK;
        }
        if (result < 0) {
            return sl_fail_os(why, -result, "submit disk requests");
        }
    }
    return SL_OK;
}

/* Processes a result. True: the request has ended with *bytes and *os_code. */
static bool disk_io_advance(struct uring_disk *self, uint32_t index, int result, uint64_t *bytes,
                            int *os_code)
{
    struct uring_io *io = &self->ios[index];
    const struct sl_disk_request *request = &io->request;
    bool again = false;
    *os_code = 0;
    if (result == -EINTR || result == -EAGAIN) {
        again = ++io->retries <= DISK_RETRIES_MAX;
        *os_code = -result;
    } else if (result < 0) {
        *os_code = -result;
    } else if (request->verb != SL_DISK_SYNC) {
        io->retries = 0;
        io->done_bytes += (uint64_t)result;
        bool middle = self->base.direct && io->done_bytes % SL_PAGE_BYTES != 0;
        if (request->verb == SL_DISK_WRITE && result == 0) {
            *os_code = EIO; /* no progress and no reason: do not retry for ever */
        } else if (request->verb == SL_DISK_WRITE && middle) {
            io->done_bytes -= io->done_bytes % SL_PAGE_BYTES; /* the whole page is written again */
            again = ++io->retries <= DISK_RETRIES_MAX;
            *os_code = EIO;
        } else {
            again = io->done_bytes < request->length_bytes && result > 0 && !middle;
        }
    }
    if (again && disk_io_queue(self, index)) {
        return false;
    }
    *bytes = io->done_bytes;
    *os_code =
        again
            ? EAGAIN
            : *os_code; /* the submission queue has room for every request, so it cannot be full */
    return true;
}

/* Frees the entry of an ended request. */
static uint64_t disk_io_free(struct uring_disk *self, uint32_t index)
{
    uint64_t cookie = self->ios[index].request.cookie;
    self->ios[index] = (struct uring_io){.next_free = self->free_io};
    self->free_io = index + 1;
    return cookie;
}

static void uring_reap(struct sl_disk *disk,
                       void (*done)(void *context, uint64_t cookie, uint64_t bytes, int os_code),
                       void *context)
{
    struct uring_disk *self = disk_of(disk);
    uint64_t count = 0;
    (void)!read(self->event_fd, &count,
                sizeof(count)); /* non-blocking; first, so that no event is missed */
    /* Bounded: requests that done() submits may complete at once, and are left to the next call. */
    unsigned waiting = io_uring_cq_ready(&self->ring);
    for (unsigned i = 0; i < waiting; i++) {
        struct io_uring_cqe *cqe = NULL;
        if (io_uring_peek_cqe(&self->ring, &cqe) != 0) {
            break;
        }
        uint32_t index = (uint32_t)io_uring_cqe_get_data64(cqe);
        int result = cqe->res;
        io_uring_cqe_seen(&self->ring, cqe);
        SL_ASSERT(index < self->queue_depth && self->ios[index].busy);
        uint64_t bytes = 0;
        int os_code = 0;
        if (!disk_io_advance(self, index, result, &bytes, &os_code)) {
            continue;
        }
        done(context, disk_io_free(self, index), bytes, os_code);
    }
    uint64_t slow = 0;
    for (int os_code = 0; sl_disk_slow_reap(self->slow, &slow, &os_code);) {
        SL_ASSERT(slow < self->queue_depth && self->ios[slow].busy);
        done(context, disk_io_free(self, (uint32_t)slow), 0, os_code);
    }
    (void)uring_flush(disk, NULL);
    if (io_uring_cq_ready(&self->ring) > 0) {
        uint64_t one = 1;
        (void)!write(self->event_fd, &one, sizeof(one));
    }
}

/* ---- opening ---- */

static void uring_destroy(struct sl_disk *disk)
{
    struct uring_disk *self = disk_of(disk);
    sl_disk_slow_close(&self->slow);
    if (self->ring_open) {
        io_uring_queue_exit(&self->ring);
    }
    for (uint32_t i = 0; i < self->file_high; i++) {
        if (self->files[i] >= 0) {
            close(self->files[i]);
        }
    }
    if (self->event_fd >= 0) {
        close(self->event_fd);
    }
    if (self->lock_fd >= 0) {
        uint32_t idle = 0; /* requests in flight keep the lock */
        while (idle < self->queue_depth && !self->ios[idle].busy) {
            idle++;
        }
        /* The ring also has the lock, and ends only when this thread is next outside the kernel: it
         * may wait there for another disk, which does not answer. */
        (void)(idle == self->queue_depth && flock(self->lock_fd, LOCK_UN));
        close(self->lock_fd);
    }
    if (self->dir_fd >= 0) {
        close(self->dir_fd);
    }
    free(self->ios);
    free(self->files);
    free(self->buffers);
    free(self);
}

static const struct sl_disk_ops uring_ops = {
    .open = uring_file_open,
    .close = uring_file_close,
    .remove = uring_file_remove,
    .list = uring_list,
    .submit = uring_submit,
    .flush = uring_flush,
    .read_now = uring_read_now,
    .destroy = uring_destroy,
    .reap = uring_reap,
    .prepare = uring_prepare,
    .real_bytes = uring_real_bytes,
    .punch = uring_punch,
    .register_memory = uring_register_memory,
    .present = uring_present,
};

/* Tries whether O_DIRECT works: some file systems refuse the open, some the write. */
static bool disk_direct_works(const struct uring_disk *self)
{
    char name[48]; /* unique: only a file made here is removed */
    (void)snprintf(name, sizeof(name), ".probe.%ld.%016" PRIx64, (long)getpid(),
                   sl_clock_monotonic_ns());
    int fd = openat(self->dir_fd, name,
                    O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW | O_DIRECT, 0600);
    (void)unlinkat(self->dir_fd, name,
                   0); /* an open that fails for lack of O_DIRECT may leave the file */
    if (fd < 0) {
        return false;
    }
    bool works = false;
    void *page = aligned_alloc(SL_PAGE_BYTES, SL_PAGE_BYTES);
    if (page != NULL) {
        memset(page, 0, SL_PAGE_BYTES);
        works = pwrite(fd, page, SL_PAGE_BYTES, 0) >= 0 || errno != EINVAL;
    }
    free(page);
    close(fd);
    return works;
}

static sl_err disk_ring_open(struct uring_disk *self, struct sl_error *why)
{
    int result = io_uring_queue_init(self->queue_depth, &self->ring, 0);
    if (result < 0) {
        if (result == -ENOSYS || result == -EPERM) {
            return sl_fail(why, SL_ERR_UNSUPPORTED, "io_uring is not available here: %s",
                           strerror(-result));
        }
        return sl_fail_os(why, -result, "set up io_uring with %u entries", self->queue_depth);
    }
    self->ring_open = true;
    self->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self->event_fd < 0) {
        return sl_fail_os(why, errno, "make an eventfd for disk completions");
    }
    result = io_uring_register_eventfd(&self->ring, self->event_fd);
    if (result < 0) {
        return sl_fail_os(why, -result, "register the eventfd of disk completions");
    }
    struct rlimit limit = {.rlim_cur = DISK_FILES_MAX + 1};
    (void)getrlimit(RLIMIT_NOFILE, &limit); /* the kernel limits the table by it */
    self->slot_count = (uint32_t)SL_MIN((rlim_t)DISK_FILES_MAX + 1, limit.rlim_cur);
    result = io_uring_register_files_sparse(&self->ring, self->slot_count);
    if (result == 0) {
        result = io_uring_register_files_update(&self->ring, 0, &self->lock_fd, 1);
        result = result == 1 ? 0 : result;
    }
    if (result < 0) {
        return sl_fail_os(why, -result, "register %u files with io_uring (Linux 5.19 or later)",
                          self->slot_count);
    }
    if (io_uring_register_buffers_sparse(&self->ring, DISK_BUFFERS_MAX) == 0) {
        self->buffers = calloc(DISK_BUFFERS_MAX, sizeof(*self->buffers));
    }
    return SL_OK;
}

sl_err sl_disk_uring_open(const char *directory, uint32_t queue_depth, bool direct,
                          struct sl_disk **out, int *event_fd, struct sl_error *why)
{
    if (queue_depth == 0 || queue_depth > 4096) {
        return sl_fail(why, SL_ERR_INVALID, "disk queue depth %u is not within 1..4096",
                       queue_depth);
    }
    struct uring_disk *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a disk");
    }
    *self = (struct uring_disk){.base = {.ops = &uring_ops},
                                .dir_fd = -1,
                                .lock_fd = -1,
                                .event_fd = -1,
                                .queue_depth = queue_depth};
    self->ios = calloc(queue_depth, sizeof(*self->ios));
    self->files = malloc(DISK_FILES_MAX * sizeof(*self->files));
    sl_err err = SL_OK;
    if (self->ios == NULL || self->files == NULL) {
        err = sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u disk requests", queue_depth);
        goto fail;
    }
    for (uint32_t i = 0; i < DISK_FILES_MAX; i++) {
        self->files[i] = -1;
    }
    for (uint32_t i = queue_depth; i-- > 0;) {
        self->ios[i].next_free = self->free_io;
        self->free_io = i + 1;
    }
    self->base.place = self->path;
    err = sl_disk_place_open(directory, self->path, &self->dir_fd, &self->lock_fd, why);
    if (err != SL_OK) {
        goto fail;
    }
    self->base.direct = direct && disk_direct_works(self);
    err = disk_ring_open(self, why);
    err = err == SL_OK ? sl_disk_slow_open(self->dir_fd, self->event_fd, &self->slow, why) : err;
    if (err != SL_OK) {
        goto fail;
    }
    *out = &self->base;
    *event_fd = self->event_fd;
    return SL_OK;
fail:
    uring_destroy(&self->base);
    return err;
}
