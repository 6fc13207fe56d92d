/* tests/support/mem_disk.c - two images a file, and a coin for every sector. */
#include "tests/support/mem_disk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECTOR_BYTES 512u

static struct mem_disk *mem_of(struct sl_disk *disk)
{
    return (struct mem_disk *)disk;
}

uint64_t mem_disk_bytes(const struct mem_disk *disk)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < MEM_DISK_FILES_MAX; i++) {
        bytes += disk->files[i].name[0] != '\0' ? disk->files[i].bytes : 0;
    }
    return bytes;
}

static sl_err mem_open(struct sl_disk *disk, const char *name, bool create, uint64_t allocate_bytes,
                       int *file, uint64_t *size_bytes, struct sl_error *why)
{
    struct mem_disk *self = mem_of(disk);
    int free_slot = -1;
    for (int i = 0; i < (int)MEM_DISK_FILES_MAX; i++) {
        if (strcmp(self->files[i].name, name) == 0) {
            *file = i;
            *size_bytes = self->files[i].bytes;
            return SL_OK;
        }
        free_slot = self->files[i].name[0] == '\0' && free_slot < 0 ? i : free_slot;
    }
    if (!create || free_slot < 0) {
        return sl_fail_os(why, create ? ENFILE : ENOENT, "open '%s'", name);
    }
    struct mem_file *at = &self->files[free_slot];
    (void)snprintf(at->name, sizeof(at->name), "%s", name);
    at->bytes = allocate_bytes;
    at->now = calloc(1, allocate_bytes);
    at->durable = calloc(1, allocate_bytes);
    if (at->now == NULL || at->durable == NULL) {
        abort();
    }
    self->bytes_peak = SL_MAX(self->bytes_peak, mem_disk_bytes(self));
    *file = free_slot;
    *size_bytes = allocate_bytes;
    return SL_OK;
}

static void mem_close(struct sl_disk *disk, int file)
{
    (void)disk;
    (void)file;
}

static void file_free(struct mem_file *file)
{
    free(file->now);
    free(file->durable);
    *file = (struct mem_file){.bytes = 0};
}

static sl_err mem_remove(struct sl_disk *disk, const char *name, struct sl_error *why)
{
    struct mem_disk *self = mem_of(disk);
    for (uint32_t i = 0; i < MEM_DISK_FILES_MAX; i++) {
        if (strcmp(self->files[i].name, name) == 0) {
            if (self->requests < self->power_cut_after) {
                file_free(&self->files[i]);
            }
            return SL_OK;
        }
    }
    return sl_fail_os(why, ENOENT, "remove '%s'", name);
}

static sl_err mem_list(struct sl_disk *disk,
                       void (*each)(void *context, const char *name, uint64_t bytes), void *context,
                       struct sl_error *why)
{
    struct mem_disk *self = mem_of(disk);
    (void)why;
    for (uint32_t i = 0; i < MEM_DISK_FILES_MAX; i++) {
        if (self->files[i].name[0] != '\0') {
            each(context, self->files[i].name, self->files[i].bytes);
        }
    }
    return SL_OK;
}

static int mem_carry_out(struct mem_disk *self, const struct sl_disk_request *request)
{
    struct mem_file *file = &self->files[request->file];
    bool reads = request->verb == SL_DISK_READ;
    if (!reads && ++self->requests > self->power_cut_after) {
        return 0; /* the power is off: nobody will see the answer for long */
    }
    if (!reads && self->requests == self->fail_request) {
        return self->fail_os_code;
    }
    if (request->verb != SL_DISK_SYNC &&
        (request->offset_bytes > file->bytes ||
         request->length_bytes > file->bytes - request->offset_bytes)) {
        return EINVAL;
    }
    if (request->piece_count > 0) {
        uint64_t at = request->offset_bytes;
        for (uint32_t i = 0; i < request->piece_count; i++) {
            const struct iovec *piece = &request->pieces[i];
            memcpy(reads ? piece->iov_base : file->now + at,
                   reads ? file->now + at : piece->iov_base, piece->iov_len);
            at += piece->iov_len;
        }
    } else if (request->verb == SL_DISK_SYNC) {
        memcpy(file->durable, file->now, file->bytes);
    } else if (reads) {
        memcpy(request->memory, file->now + request->offset_bytes, request->length_bytes);
    } else {
        memcpy(file->now + request->offset_bytes, request->memory, request->length_bytes);
    }
    return 0;
}

static sl_err mem_submit(struct sl_disk *disk, const struct sl_disk_request *request,
                         struct sl_error *why)
{
    struct mem_disk *self = mem_of(disk);
    if (self->done_count == MEM_DISK_DONE_MAX) {
        return sl_fail(why, SL_ERR_LIMIT, "queue full");
    }
    int os_code = mem_carry_out(self, request);
    self->done[(self->done_first + self->done_count++) % MEM_DISK_DONE_MAX] =
        (struct mem_done){request->cookie, os_code == 0 ? request->length_bytes : 0, os_code};
    return SL_OK;
}

static sl_err mem_flush(struct sl_disk *disk, struct sl_error *why)
{
    (void)disk;
    (void)why;
    return SL_OK;
}

static sl_err mem_read_now(struct sl_disk *disk, int file, void *memory, uint64_t offset_bytes,
                           uint64_t length_bytes, uint64_t *got, struct sl_error *why)
{
    const struct mem_file *from = &mem_of(disk)->files[file];
    (void)why;
    *got = offset_bytes < from->bytes ? SL_MIN(length_bytes, from->bytes - offset_bytes) : 0;
    memcpy(memory, from->now + SL_MIN(offset_bytes, from->bytes), *got);
    return SL_OK;
}

static sl_err mem_resize(struct sl_disk *disk, int file, uint64_t size_bytes, struct sl_error *why)
{
    struct mem_disk *self = mem_of(disk);
    (void)why;
    if (self->requests < self->power_cut_after) {
        self->files[file].bytes = SL_MIN(size_bytes, self->files[file].bytes);
    }
    return SL_OK;
}

static void mem_destroy(struct sl_disk *disk)
{
    struct mem_disk *self = mem_of(disk); /* the test's: files outlive the actor */
    self->done_count = 0;
}

static const struct sl_disk_ops mem_ops = {
    .open = mem_open,
    .close = mem_close,
    .remove = mem_remove,
    .list = mem_list,
    .submit = mem_submit,
    .flush = mem_flush,
    .read_now = mem_read_now,
    .destroy = mem_destroy,
    .resize = mem_resize,
};

void mem_disk_init(struct mem_disk *disk)
{
    memset(disk, 0, sizeof(*disk));
    disk->base.ops = &mem_ops;
    disk->base.direct = true;
    disk->power_cut_after = UINT64_MAX;
}

void mem_disk_fini(struct mem_disk *disk)
{
    for (uint32_t i = 0; i < MEM_DISK_FILES_MAX; i++) {
        file_free(&disk->files[i]);
    }
}

bool mem_disk_take_done(struct mem_disk *disk, struct mem_done *out)
{
    if (disk->done_count == 0) {
        return false;
    }
    *out = disk->done[disk->done_first++ % MEM_DISK_DONE_MAX];
    disk->done_count--;
    return true;
}

void mem_disk_crash(struct mem_disk *disk, uint64_t seed)
{
    disk->done_count = 0;
    for (uint32_t i = 0; i < MEM_DISK_FILES_MAX; i++) {
        struct mem_file *file = &disk->files[i];
        for (uint64_t at = 0; file->name[0] != '\0' && at < file->bytes; at += SECTOR_BYTES) {
            uint64_t length = SL_MIN((uint64_t)SECTOR_BYTES, file->bytes - at);
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
            if ((seed >> 40 & 1) != 0) {
                memcpy(file->now + at, file->durable + at, length);
            } else {
                memcpy(file->durable + at, file->now + at, length);
            }
        }
    }
    disk->requests = 0;
    disk->power_cut_after = UINT64_MAX;
    disk->fail_request = 0;
}
