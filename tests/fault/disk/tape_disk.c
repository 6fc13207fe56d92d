/* tests/fault/disk/tape_disk.c - see tape_disk.h. */
#include "tests/fault/disk/tape_disk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tape_disk *tape_of(struct sl_disk *disk)
{
    return (struct tape_disk *)disk;
}

static void *have(void *memory)
{
    if (memory == NULL) {
        abort();
    }
    return memory;
}

/* ---- images ---- */

static struct tape_file *image_find(struct tape_image *image, const char *name)
{
    for (uint32_t i = 0; i < TAPE_FILES_MAX; i++) {
        if (strcmp(image->files[i].name, name) == 0) {
            return &image->files[i];
        }
    }
    return NULL;
}

static void file_free(struct tape_file *file)
{
    free(file->now);
    *file = (struct tape_file){.bytes = 0};
}

void tape_image_free(struct tape_image *image)
{
    for (uint32_t i = 0; i < TAPE_FILES_MAX; i++) {
        file_free(&image->files[i]);
    }
}

void tape_image_copy(struct tape_image *to, const struct tape_image *from)
{
    tape_image_free(to);
    for (uint32_t i = 0; i < TAPE_FILES_MAX; i++) {
        to->files[i] = from->files[i];
        if (from->files[i].name[0] != '\0') {
            to->files[i].now = have(malloc(from->files[i].bytes + 1));
            memcpy(to->files[i].now, from->files[i].now, from->files[i].bytes);
        }
    }
}

static void file_size(struct tape_file *file, uint64_t bytes)
{
    file->now = have(realloc(file->now, bytes + 1));
    if (bytes > file->bytes) {
        memset(file->now + file->bytes, 0, bytes - file->bytes);
    }
    file->bytes = bytes;
}

static struct tape_file *image_make(struct tape_image *image, const char *name, uint64_t bytes)
{
    struct tape_file *file = image_find(image, name);
    file = file != NULL ? file : image_find(image, "");
    if (file == NULL) {
        abort();
    }
    if (file->name[0] == '\0') {
        (void)snprintf(file->name, sizeof(file->name), "%s", name);
    }
    file_size(file, SL_MAX(bytes, file->bytes));
    return file;
}

void tape_play(struct tape_image *image, const struct tape_op *op, uint64_t sectors)
{
    struct tape_file *file = image_find(image, op->name);
    struct tape_file *from = op->verb == TAPE_RENAME ? image_find(image, op->from) : NULL;
    switch (op->verb) {
    case TAPE_MAKE:
        (void)image_make(image, op->name, op->length_bytes);
        break;
    case TAPE_RENAME:
        if (from != NULL) {
            memcpy(from->name, op->name, sizeof(from->name));
        }
        break;
    case TAPE_REMOVE:
        if (file != NULL) {
            file_free(file);
        }
        break;
    case TAPE_RESIZE:
        if (file != NULL) {
            file_size(file, op->length_bytes);
        }
        break;
    case TAPE_WRITE:
        if (file != NULL && op->bytes != NULL && op->offset_bytes < file->bytes) {
            uint64_t length = SL_MIN(op->length_bytes, file->bytes - op->offset_bytes);
            memcpy(file->now + op->offset_bytes, op->bytes, SL_MIN(length, sectors * TAPE_SECTOR));
        }
        break;
    case TAPE_SYNC:
        break;
    }
}

/* ---- the tape ---- */

static void record(struct tape_disk *self, struct tape_op op, const struct iovec *pieces,
                   uint32_t count)
{
    tape_play(&self->image, &op, 0); /* everything except writes */
    struct tape_file *file = image_find(&self->image, op.name);
    if (op.verb == TAPE_WRITE && self->recording) {
        op.bytes = have(malloc(op.length_bytes));
    }
    uint64_t at = 0;
    for (uint32_t i = 0; file != NULL && i < count && at < op.length_bytes; i++) {
        uint64_t length = SL_MIN(pieces[i].iov_len, op.length_bytes - at);
        memcpy((unsigned char *)have(file->now) + op.offset_bytes + at, pieces[i].iov_base, length);
        if (op.bytes != NULL) {
            memcpy(op.bytes + at, pieces[i].iov_base, length);
        }
        at += length;
    }
    if (!self->recording) {
        return;
    }
    if (self->op_count == self->op_capacity) {
        self->op_capacity = SL_MAX(self->op_capacity * 2, UINT64_C(1024));
        self->ops = have(realloc(self->ops, self->op_capacity * sizeof(*self->ops)));
    }
    self->ops[self->op_count++] = op;
}

static struct tape_op op_of(enum tape_verb verb, const char *name)
{
    struct tape_op op = {.verb = verb};
    (void)snprintf(op.name, sizeof(op.name), "%s", name);
    return op;
}

/* Counts the call; returns the errno to fail with, 0: none, -1: a short transfer. */
static int fault_now(struct tape_disk *self)
{
    static const int codes[] = {EIO, ENOSPC, EROFS, -1};
    self->calls++;
    bool fails =
        self->fail_from != 0 && self->calls >= self->fail_from && self->calls <= self->fail_to;
    return fails ? codes[self->fault] : 0;
}

static int fault_simple(struct tape_disk *self)
{
    int code = fault_now(self);
    return code < 0 ? EIO : code;
}

static bool place_is_bad(const struct tape_disk *self, const struct tape_file *file,
                         uint64_t offset, uint64_t length)
{
    return self->bad_name[0] != '\0' && strcmp(self->bad_name, file->name) == 0 &&
           offset < self->bad_to && offset + length > self->bad_from;
}

static uint64_t bytes_of_all(const struct tape_disk *self)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < TAPE_FILES_MAX; i++) {
        bytes += self->image.files[i].bytes;
    }
    return bytes;
}

static void peak_note(struct tape_disk *self)
{
    self->real_bytes_peak = SL_MAX(self->real_bytes_peak, bytes_of_all(self));
}

/* Makes the file, or extends it. Returns an errno; nothing has changed then. */
static int file_make(struct tape_disk *self, const char *name, uint64_t bytes)
{
    const struct tape_file *there = image_find(&self->image, name);
    uint64_t before = there != NULL ? there->bytes : 0;
    struct tape_op op = op_of(TAPE_MAKE, name);
    if (self->room_bytes != 0 && bytes > before &&
        bytes_of_all(self) + bytes - before > self->room_bytes) {
        return self->room_code;
    }
    op.length_bytes = bytes;
    record(self, op, NULL, 0);
    peak_note(self);
    return 0;
}

/* ---- the ops ---- */

static sl_err tape_open(struct sl_disk *disk, const char *name, bool create,
                        uint64_t allocate_bytes, int *file, uint64_t *size_bytes,
                        struct sl_error *why)
{
    struct tape_disk *self = tape_of(disk);
    int code = fault_simple(self);
    if (code == 0 && !create && image_find(&self->image, name) == NULL) {
        code = ENOENT;
    }
    code = code == 0 && create ? file_make(self, name, allocate_bytes) : code;
    if (code != 0) {
        return sl_fail_os(why, code, "open '%s'", name);
    }
    struct tape_file *there = image_find(&self->image, name);
    *file = (int)(there - self->image.files);
    *size_bytes = there->bytes;
    return SL_OK;
}

static void tape_close(struct sl_disk *disk, int file)
{
    (void)disk, (void)file;
}

static sl_err tape_remove(struct sl_disk *disk, const char *name, struct sl_error *why)
{
    struct tape_disk *self = tape_of(disk);
    int code = fault_simple(self);
    code = code == 0 && image_find(&self->image, name) == NULL ? ENOENT : code;
    if (code != 0) {
        return sl_fail_os(why, code, "remove '%s'", name);
    }
    record(self, op_of(TAPE_REMOVE, name), NULL, 0);
    return SL_OK;
}

static sl_err tape_prepare(struct sl_disk *disk, const char *from, const char *name, uint64_t bytes,
                           struct sl_error *why)
{
    struct tape_disk *self = tape_of(disk);
    int code = fault_simple(self);
    if (code != 0) {
        return sl_fail_os(why, code, "prepare '%s'", name);
    }
    if (from != NULL && image_find(&self->image, from) != NULL) {
        struct tape_op rename = op_of(TAPE_RENAME, name);
        (void)snprintf(rename.from, sizeof(rename.from), "%s", from);
        record(self, rename, NULL, 0);
    }
    code = file_make(self, name, bytes);
    if (code != 0 && image_find(&self->image, name) != NULL) {
        record(self, op_of(TAPE_REMOVE, name), NULL, 0);
    }
    return code == 0 ? SL_OK : sl_fail_os(why, code, "allocate '%s'", name);
}

/* Makes, cuts or removes a file, unless a fault prevents it. */
static int carry_out_file(struct tape_disk *self, const struct sl_disk_request *request)
{
    struct sl_error why = {0};
    uint64_t bytes = 0;
    int made = -1;
    if (request->verb == SL_DISK_REMOVE) {
        return tape_remove(&self->base, request->name, &why) == SL_OK ? 0 : why.os_code;
    }
    if (request->verb == SL_DISK_MAKE) {
        return tape_open(&self->base, request->name, true, request->length_bytes, &made, &bytes,
                         &why) == SL_OK
                   ? 0
                   : why.os_code;
    }
    int code = fault_simple(self);
    struct tape_op op = op_of(TAPE_RESIZE, self->image.files[request->file].name);
    op.length_bytes = request->length_bytes;
    if (code == 0) {
        record(self, op, NULL, 0);
    }
    return code;
}

static uint64_t tape_real_bytes(struct sl_disk *disk, int file)
{
    return tape_of(disk)->image.files[file].bytes;
}

/* Acts like a write of zeros: a power cut may leave any part of it. */
static sl_err tape_punch(struct sl_disk *disk, int file, uint64_t offset_bytes,
                         uint64_t length_bytes, struct sl_error *why)
{
    struct tape_disk *self = tape_of(disk);
    struct tape_op op = op_of(TAPE_WRITE, self->image.files[file].name);
    int code = fault_simple(self);
    if (code != 0) {
        return sl_fail_os(why, code, "give room back");
    }
    void *zeros = have(calloc(1, length_bytes));
    const struct iovec piece = {.iov_base = zeros, .iov_len = length_bytes};
    op.offset_bytes = offset_bytes;
    op.length_bytes = length_bytes;
    record(self, op, &piece, 1);
    free(zeros);
    self->punched_bytes += length_bytes;
    return SL_OK;
}

static sl_err tape_list(struct sl_disk *disk,
                        void (*each)(void *context, const char *name, uint64_t bytes),
                        void *context, struct sl_error *why)
{
    struct tape_disk *self = tape_of(disk);
    int code = fault_simple(self);
    if (code != 0) {
        return sl_fail_os(why, code, "list");
    }
    for (uint32_t i = 0; i < TAPE_FILES_MAX; i++) {
        if (self->image.files[i].name[0] != '\0') {
            each(context, self->image.files[i].name, self->image.files[i].bytes);
        }
    }
    return SL_OK;
}

/* Carries out a request as far as the fault allows. */
static int carry_out(struct tape_disk *self, const struct sl_disk_request *request, uint64_t *bytes)
{
    struct tape_file *file = &self->image.files[request->file];
    struct iovec one = {.iov_base = request->memory, .iov_len = request->length_bytes};
    const struct iovec *pieces = request->piece_count > 0 ? request->pieces : &one;
    uint32_t count = SL_MAX(request->piece_count, 1u);
    int code = fault_now(self);
    *bytes = 0;
    if (code > 0) {
        return code;
    }
    if (request->verb == SL_DISK_SYNC) {
        record(self, op_of(TAPE_SYNC, file->name), NULL, 0);
        return code < 0 ? EIO : 0;
    }
    if (request->offset_bytes > file->bytes ||
        request->length_bytes > file->bytes - request->offset_bytes) {
        return EINVAL;
    }
    if (request->verb == SL_DISK_READ &&
        place_is_bad(self, file, request->offset_bytes, request->length_bytes)) {
        return EIO;
    }
    uint64_t length = code < 0 ? request->length_bytes / 2 / SL_PAGE_BYTES * SL_PAGE_BYTES
                               : request->length_bytes;
    *bytes = length;
    if (request->verb == SL_DISK_WRITE) {
        struct tape_op op = op_of(TAPE_WRITE, file->name);
        op.offset_bytes = request->offset_bytes;
        op.length_bytes = length;
        record(self, op, pieces, count);
        return 0;
    }
    uint64_t at = 0;
    for (uint32_t i = 0; i < count && at < length; i++) {
        uint64_t part = SL_MIN(pieces[i].iov_len, length - at);
        memcpy(pieces[i].iov_base, file->now + request->offset_bytes + at, part);
        at += part;
    }
    return 0;
}

static sl_err tape_submit(struct sl_disk *disk, const struct sl_disk_request *request,
                          struct sl_error *why)
{
    struct tape_disk *self = tape_of(disk);
    if (self->pending_count == TAPE_PENDING_MAX) {
        return sl_fail(why, SL_ERR_LIMIT, "queue full");
    }
    struct tape_done done = {.cookie = request->cookie};
    if (!self->stuck) {
        done.os_code = request->verb > SL_DISK_SYNC ? carry_out_file(self, request)
                                                    : carry_out(self, request, &done.bytes);
    }
    self->pending[self->pending_count++] = done;
    return SL_OK;
}

static sl_err tape_flush(struct sl_disk *disk, struct sl_error *why)
{
    (void)disk, (void)why;
    return SL_OK;
}

static sl_err tape_read_now(struct sl_disk *disk, int file, void *memory, uint64_t offset_bytes,
                            uint64_t length_bytes, uint64_t *got, struct sl_error *why)
{
    struct tape_disk *self = tape_of(disk);
    const struct tape_file *from = &self->image.files[file];
    int code = fault_now(self);
    code = place_is_bad(self, from, offset_bytes, length_bytes) ? EIO : code;
    if (code > 0) {
        return sl_fail_os(why, code, "read '%s'", from->name);
    }
    *got = offset_bytes < from->bytes ? SL_MIN(length_bytes, from->bytes - offset_bytes) : 0;
    *got = code < 0 ? *got / 2 : *got;
    memcpy(memory, from->now + SL_MIN(offset_bytes, from->bytes), *got);
    return SL_OK;
}

static void tape_destroy(struct sl_disk *disk)
{
    tape_of(disk)->pending_count = 0; /* owned by the test: files outlive the actor */
}

static const struct sl_disk_ops tape_ops = {
    .open = tape_open,
    .close = tape_close,
    .remove = tape_remove,
    .list = tape_list,
    .submit = tape_submit,
    .flush = tape_flush,
    .read_now = tape_read_now,
    .destroy = tape_destroy,
    .prepare = tape_prepare,
    .punch = tape_punch,
    .real_bytes = tape_real_bytes,
};

void tape_disk_init(struct tape_disk *disk)
{
    memset(disk, 0, sizeof(*disk));
    disk->base.ops = &tape_ops;
    disk->base.direct = true;
}

void tape_disk_fini(struct tape_disk *disk)
{
    for (uint64_t i = 0; i < disk->op_count; i++) {
        free(disk->ops[i].bytes);
    }
    free(disk->ops);
    tape_image_free(&disk->image);
}

bool tape_disk_take(struct tape_disk *disk, uint64_t random, struct tape_done *out)
{
    if (disk->pending_count == 0 || disk->stuck) {
        return false;
    }
    uint32_t at = (uint32_t)(random % disk->pending_count);
    *out = disk->pending[at];
    disk->pending[at] = disk->pending[--disk->pending_count];
    return true;
}
