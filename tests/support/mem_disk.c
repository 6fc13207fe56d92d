/* tests/support/mem_disk.c - see mem_disk.h: two images a file, and a choice a sector. */
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

static void file_free(struct mem_file *file)
{
    free(file->now);
    free(file->durable);
    free(file->dirty);
    *file = (struct mem_file){.bytes = 0};
}

/* ---- names ---- */

void mem_disk_names_sync(struct mem_disk *disk)
{
    disk->rename_count = 0;
    for (uint32_t i = 0; i < MEM_DISK_FILES_MAX; i++) {
        if (disk->files[i].name[0] == '\0' && disk->files[i].now != NULL) {
            file_free(&disk->files[i]);
        }
    }
}

/* The bytes of a removed file are kept until the removal is durable. */
static void rename_file(struct mem_disk *disk, int number, const char *to)
{
    struct mem_file *file = &disk->files[number];
    if (disk->rename_count == MEM_DISK_RENAMES_MAX) {
        mem_disk_names_sync(disk);
    }
    struct mem_rename *rename = &disk->renames[disk->rename_count++];
    rename->file = number;
    memcpy(rename->from, file->name, sizeof(rename->from));
    (void)snprintf(file->name, sizeof(file->name), "%s", to);
    memcpy(rename->to, file->name, sizeof(rename->to));
    if (!disk->names_lost && (to[0] == '\0' || rename->from[0] != '\0')) {
        mem_disk_names_sync(disk); /* the file to be made has no bytes yet */
    }
}

/* Undoes all name changes from number `kept` on. */
static void names_crash(struct mem_disk *disk, uint32_t kept)
{
    while (disk->names_lost && disk->rename_count > kept) {
        const struct mem_rename *rename = &disk->renames[--disk->rename_count];
        memcpy(disk->files[rename->file].name, rename->from, sizeof(rename->from));
    }
    mem_disk_names_sync(disk);
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
        free_slot = self->files[i].now == NULL && free_slot < 0 ? i : free_slot;
    }
    if (!create || free_slot < 0) {
        return sl_fail_os(why, create ? ENFILE : ENOENT, "open '%s'", name);
    }
    struct mem_file *at = &self->files[free_slot];
    rename_file(self, free_slot, name);
    at->bytes = allocate_bytes;
    at->durable_bytes = allocate_bytes;
    at->now = calloc(1, allocate_bytes);
    at->durable = calloc(1, allocate_bytes);
    at->dirty = calloc(1, allocate_bytes / SL_PAGE_BYTES + 1);
    if (at->now == NULL || at->durable == NULL || at->dirty == NULL) {
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

static sl_err mem_remove(struct sl_disk *disk, const char *name, struct sl_error *why)
{
    struct mem_disk *self = mem_of(disk);
    for (uint32_t i = 0; i < MEM_DISK_FILES_MAX; i++) {
        if (strcmp(self->files[i].name, name) == 0) {
            if (self->requests < self->power_cut_after) {
                rename_file(self, (int)i, "");
            }
            return SL_OK;
        }
    }
    return sl_fail_os(why, ENOENT, "remove '%s'", name);
}

static void file_grow(struct mem_file *file, uint64_t bytes)
{
    uint64_t pages = bytes / SL_PAGE_BYTES + 1, pages_before = file->bytes / SL_PAGE_BYTES + 1;
    file->now = realloc(file->now, bytes);
    file->durable = realloc(file->durable, bytes);
    file->dirty = realloc(file->dirty, pages);
    if (file->now == NULL || file->durable == NULL || file->dirty == NULL) {
        abort();
    }
    memset(file->now + file->bytes, 0, bytes - file->bytes);
    memset(file->durable + file->bytes, 0, bytes - file->bytes);
    memset(file->dirty + pages_before, 0, pages - pages_before);
    file->bytes = bytes;
    file->durable_bytes = bytes;
}

sl_err mem_disk_prepare(struct mem_disk *disk, const char *from, const char *name, uint64_t bytes,
                        struct sl_error *why)
{
    int file = -1;
    uint64_t size_bytes = 0;
    for (uint32_t i = 0; from != NULL && i < MEM_DISK_FILES_MAX; i++) {
        struct mem_file *at = &disk->files[i];
        if (strcmp(at->name, from) == 0) {
            rename_file(disk, (int)i, name);
        }
    }
    sl_err err = mem_open(&disk->base, name, true, bytes, &file, &size_bytes, why);
    if (err == SL_OK && size_bytes < bytes) {
        file_grow(&disk->files[file], bytes);
        disk->bytes_peak = SL_MAX(disk->bytes_peak, mem_disk_bytes(disk));
    } else if (err == SL_OK) {
        disk->files[file].bytes = bytes;
        disk->files[file].durable_bytes = bytes;
    }
    return err;
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

int mem_disk_move(struct mem_disk *disk, const struct sl_disk_request *request,
                  uint64_t length_bytes)
{
    struct mem_file *file = &disk->files[request->file];
    if (request->offset_bytes > file->bytes ||
        request->length_bytes > file->bytes - request->offset_bytes) {
        return EINVAL;
    }
    bool reads = request->verb == SL_DISK_READ;
    unsigned char *bytes = file->now + request->offset_bytes;
    const struct iovec whole = {.iov_base = request->memory, .iov_len = length_bytes};
    const struct iovec *pieces = request->piece_count > 0 ? request->pieces : &whole;
    uint64_t left = length_bytes;
    for (uint32_t i = 0; left > 0; i++) {
        uint64_t length = SL_MIN(left, (uint64_t)pieces[i].iov_len);
        memcpy(reads ? pieces[i].iov_base : bytes, reads ? bytes : pieces[i].iov_base, length);
        bytes += length;
        left -= length;
    }
    for (uint64_t at = request->offset_bytes; !reads && at < request->offset_bytes + length_bytes;
         at = (at / SL_PAGE_BYTES + 1) * SL_PAGE_BYTES) {
        file->dirty[at / SL_PAGE_BYTES] = 1;
    }
    return 0;
}

static uint64_t page_length(const struct mem_file *file, uint64_t page)
{
    return SL_MIN((uint64_t)SL_PAGE_BYTES, file->bytes - page * SL_PAGE_BYTES);
}

void mem_disk_sync(struct mem_disk *disk, int number)
{
    struct mem_file *file = &disk->files[number];
    file->durable_bytes = file->bytes;
    for (uint64_t page = 0; page * SL_PAGE_BYTES < file->bytes; page++) {
        if (file->dirty[page] != 0) {
            memcpy(file->durable + page * SL_PAGE_BYTES, file->now + page * SL_PAGE_BYTES,
                   page_length(file, page));
            file->dirty[page] = 0;
        }
    }
}

static uint64_t coin(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return *seed >> 40;
}

void mem_disk_sync_fail(struct mem_disk *disk, int number, uint64_t seed)
{
    struct mem_file *file = &disk->files[number];
    for (uint64_t page = 0; page * SL_PAGE_BYTES < file->bytes; page++) {
        if (file->dirty[page] == 0) {
            continue;
        }
        uint64_t outcome = coin(&seed) % 3;
        if (outcome == 0) {
            memcpy(file->durable + page * SL_PAGE_BYTES, file->now + page * SL_PAGE_BYTES,
                   page_length(file, page));
        } else if (outcome == 1) { /* the kernel drops such pages: reads return the disk's bytes */
            memcpy(file->now + page * SL_PAGE_BYTES, file->durable + page * SL_PAGE_BYTES,
                   page_length(file, page));
        }
        file->dirty[page] = outcome == 2;
    }
}

void mem_disk_punch(struct mem_disk *disk, int file, uint64_t offset_bytes, uint64_t length_bytes)
{
    struct mem_file *at = &disk->files[file];
    memset(at->now + offset_bytes, 0, length_bytes);
    memset(at->dirty + offset_bytes / SL_PAGE_BYTES, 1, length_bytes / SL_PAGE_BYTES);
}

int mem_disk_file(struct mem_disk *disk, const struct sl_disk_request *request)
{
    struct sl_error why = {0};
    uint64_t bytes = 0;
    int made = -1;
    sl_err err = SL_OK;
    if (request->verb == SL_DISK_RESIZE) {
        struct mem_file *file = &disk->files[request->file];
        file->bytes = SL_MIN(request->length_bytes, file->bytes);
    } else if (request->verb == SL_DISK_MAKE) {
        err =
            mem_open(&disk->base, request->name, true, request->length_bytes, &made, &bytes, &why);
    } else {
        err = mem_remove(&disk->base, request->name, &why);
    }
    return err == SL_OK ? 0 : why.os_code != 0 ? why.os_code : EIO;
}

static int mem_carry_out(struct mem_disk *self, const struct sl_disk_request *request)
{
    if (request->verb == SL_DISK_READ) {
        bool bad = self->bad_place && request->file == self->bad_file &&
                   self->bad_offset >= request->offset_bytes &&
                   self->bad_offset < request->offset_bytes + request->length_bytes;
        self->reads++;
        return self->fail_reads != 0 ? self->fail_reads
               : bad                 ? EIO
                                     : mem_disk_move(self, request, request->length_bytes);
    }
    if (++self->requests > self->power_cut_after) {
        return 0; /* the power is off: the answer is lost in the crash that follows */
    }
    if (self->requests == self->fail_request) {
        return self->fail_os_code;
    }
    if (request->verb == SL_DISK_WRITE) {
        return mem_disk_move(self, request, request->length_bytes);
    }
    if (request->verb > SL_DISK_SYNC) {
        return mem_disk_file(self, request);
    }
    mem_disk_sync(self, request->file);
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

static sl_err mem_present(struct sl_disk *disk, struct sl_error *why)
{
    return mem_of(disk)->gone ? sl_fail(why, SL_ERR_NOT_FOUND, "the directory is gone") : SL_OK;
}

static void mem_destroy(struct sl_disk *disk)
{
    struct mem_disk *self = mem_of(disk); /* owned by the test: files outlive the actor */
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
    .present = mem_present,
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
    if (disk->names_lost) {
        names_crash(disk, (uint32_t)(coin(&seed) % (disk->rename_count + 1)));
    }
    for (uint32_t i = 0; i < MEM_DISK_FILES_MAX; i++) {
        struct mem_file *file = &disk->files[i];
        if (file->durable_bytes > file->bytes && (coin(&seed) & 1) != 0) {
            file->bytes = file->durable_bytes; /* the cut never became durable */
        }
        file->durable_bytes = file->bytes;
        for (uint64_t at = 0; file->name[0] != '\0' && at < file->bytes; at += SECTOR_BYTES) {
            uint64_t length = SL_MIN((uint64_t)SECTOR_BYTES, file->bytes - at);
            if (file->dirty[at / SL_PAGE_BYTES] == 0) {
                continue;
            }
            if ((coin(&seed) & 1) != 0) {
                memcpy(file->now + at, file->durable + at, length);
            } else {
                memcpy(file->durable + at, file->now + at, length);
            }
        }
        if (file->dirty != NULL) {
            memset(file->dirty, 0, file->bytes / SL_PAGE_BYTES + 1);
        }
    }
    disk->requests = 0;
    disk->power_cut_after = UINT64_MAX;
    disk->fail_request = 0;
}
