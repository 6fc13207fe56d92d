/* tests/support/mem_disk.h - a disk in memory that forgets what was not synced: for crashes, torn
 * writes and errors.
 *
 * Every file has two images: what reads see now, and what a power cut is sure to leave. A sync
 * makes them equal. A crash decides for every sector of 512 bytes by seed which of the two stays.
 * Names may be lost as well (names_lost): files that were made, renamed or removed since the
 * directory was last synced are as they were before, from some moment on. Requests end when the
 * test takes their completions. */
#ifndef MEM_DISK_H
#define MEM_DISK_H

#include "runtime/disk/sl_disk.h"

#define MEM_DISK_FILES_MAX 64u
#define MEM_DISK_DONE_MAX  8192u

struct mem_file {
    char name[40]; /* empty: none */
    unsigned char *now, *durable;
    unsigned char *dirty;          /* a flag a page: the two may differ there */
    uint64_t bytes, durable_bytes; /* durable_bytes: as long as this after a power cut, perhaps */
};
/* One that is not durable yet. */
#define MEM_DISK_RENAMES_MAX 64u
struct mem_rename {
    int file;
    char from[40], to[40]; /* empty: it was made, removed */
};
struct mem_done {
    uint64_t cookie, bytes;
    int os_code;
};
struct mem_disk {
    struct sl_disk base; /* first */
    struct mem_file files[MEM_DISK_FILES_MAX];
    struct mem_done done[MEM_DISK_DONE_MAX];
    uint32_t done_first, done_count;
    uint64_t requests;        /* writes and syncs so far */
    uint64_t power_cut_after; /* of these nothing happens any more; UINT64_MAX: never */
    uint64_t fail_request;    /* this one ends with fail_os_code; 0: none */
    int fail_os_code;
    uint64_t bytes_peak;
    int fail_reads; /* every read ends with this errno; 0: none */
    bool bad_place; /* reads of this page of this file end with EIO */
    int bad_file;
    uint64_t bad_offset;
    uint64_t reads; /* requests so far */
    bool gone;      /* the directory */
    bool names_lost;
    struct mem_rename renames[MEM_DISK_RENAMES_MAX]; /* in order */
    uint32_t rename_count;
};

/* Carries out a read or write of the first length_bytes of the request, at once and whatever was
 * set to fail: for who makes faults of his own. Gives an errno. */
int mem_disk_move(struct mem_disk *disk, const struct sl_disk_request *request,
                  uint64_t length_bytes);
/* Makes, cuts or removes a file, as the request says. Gives an errno. */
int mem_disk_file(struct mem_disk *disk, const struct sl_disk_request *request);
/* The file comes to be, from another one when that is there (NULL: from nothing), with so many
 * bytes; what is new in it is zero. All of it is durable. */
sl_err mem_disk_prepare(struct mem_disk *disk, const char *from, const char *name, uint64_t bytes,
                        struct sl_error *why);
/* Blocks go back to the file system: they read as zeros, which a power cut may undo. */
void mem_disk_punch(struct mem_disk *disk, int file, uint64_t offset_bytes, uint64_t length_bytes);
/* The directory is synced: names are durable. */
void mem_disk_names_sync(struct mem_disk *disk);
/* What was written to the file is durable. */
void mem_disk_sync(struct mem_disk *disk, int file);
/* What a failed sync may leave: by seed, pages that were to become durable are, are not, or never
 * will be unless written again. */
void mem_disk_sync_badly(struct mem_disk *disk, int file, uint64_t seed);
void mem_disk_init(struct mem_disk *disk);
void mem_disk_fini(struct mem_disk *disk);
/* False: none waits. */
bool mem_disk_take_done(struct mem_disk *disk, struct mem_done *out);
/* The machine is off and on again. */
void mem_disk_crash(struct mem_disk *disk, uint64_t seed);
uint64_t mem_disk_bytes(const struct mem_disk *disk);

#endif
