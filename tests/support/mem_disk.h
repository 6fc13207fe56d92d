/* tests/support/mem_disk.h - a disk in memory that loses unsynced data: for crashes, torn writes
 * and errors.
 *
 * Every file has two images: the one that reads see, and the one that is sure to survive a power
 * cut. A sync makes them equal. A crash decides for every sector of 512 bytes by seed which of the
 * two survives. Names may be lost as well (names_lost): files that were made, renamed or removed
 * since the directory was last synced revert, from some moment on. Requests end when the test takes
 * their completions. */
#ifndef MEM_DISK_H
#define MEM_DISK_H

#include "runtime/disk/sl_disk.h"

#define MEM_DISK_FILES_MAX 64u
#define MEM_DISK_DONE_MAX  8192u

struct mem_file {
    char name[40]; /* empty: none */
    unsigned char *now, *durable;
    unsigned char *dirty;          /* a flag a page: the two may differ there */
    uint64_t bytes, durable_bytes; /* durable_bytes: the length that a power cut may leave */
};
/* A name change that is not durable yet. */
#define MEM_DISK_RENAMES_MAX 64u
struct mem_rename {
    int file;
    char from[40], to[40]; /* empty: the file was made, or removed */
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
    uint64_t power_cut_after; /* the number of them that take effect; UINT64_MAX: all */
    uint64_t fail_request;    /* this one ends with fail_os_code; 0: none */
    int fail_os_code;
    uint64_t bytes_peak;
    int fail_reads; /* errno of every read; 0: reads succeed */
    bool bad_place; /* reads of this page of this file end with EIO */
    int bad_file;
    uint64_t bad_offset;
    uint64_t reads; /* requests so far */
    bool gone;      /* the directory was removed */
    bool names_lost;
    struct mem_rename renames[MEM_DISK_RENAMES_MAX]; /* in order */
    uint32_t rename_count;
};

/* Carries out a read or write of the first length_bytes of the request at once, ignoring the faults
 * that were set: for callers that make faults of their own. Returns an errno. */
int mem_disk_move(struct mem_disk *disk, const struct sl_disk_request *request,
                  uint64_t length_bytes);
/* Makes, cuts or removes a file as requested. Returns an errno. */
int mem_disk_file(struct mem_disk *disk, const struct sl_disk_request *request);
/* Makes the file, from `from` if that exists (NULL: empty), with this length; new bytes are zero.
 * All of it is durable. */
sl_err mem_disk_prepare(struct mem_disk *disk, const char *from, const char *name, uint64_t bytes,
                        struct sl_error *why);
/* Returns blocks to the file system: they read as zeros, which a power cut may undo. */
void mem_disk_punch(struct mem_disk *disk, int file, uint64_t offset_bytes, uint64_t length_bytes);
/* Syncs the directory: its names are durable. */
void mem_disk_names_sync(struct mem_disk *disk);
/* Makes all writes to the file durable. */
void mem_disk_sync(struct mem_disk *disk, int file);
/* Leaves what a failed sync may leave: by seed, each unsynced page becomes durable, does not, or
 * never will unless it is written again. */
void mem_disk_sync_fail(struct mem_disk *disk, int file, uint64_t seed);
void mem_disk_init(struct mem_disk *disk);
void mem_disk_fini(struct mem_disk *disk);
/* False: no completion waits. */
bool mem_disk_take_done(struct mem_disk *disk, struct mem_done *out);
/* Turns the machine off and on again. */
void mem_disk_crash(struct mem_disk *disk, uint64_t seed);
uint64_t mem_disk_bytes(const struct mem_disk *disk);

#endif
