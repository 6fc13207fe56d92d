/* ipc/shm/sl_shm_file.h - files in the shm directory that outlive processes: create, open, check,
 * map.
 *
 * Every shm file starts with one page of header: magic, format, boot id, uid, kind, layout of the
 * kind, sizes, and the version of the program that created it. A file that does not match is
 * refused. */
#ifndef SL_SHM_FILE_H
#define SL_SHM_FILE_H

#include "runtime/base/sl_guard.h"
#include "runtime/base/sl_proc.h"

#define SL_SHM_FILE_FORMAT 2u
/* From here on the header page belongs to the kind. */
#define SL_SHM_FILE_OWN_OFFSET_BYTES 1024u
enum sl_shm_file_kind {
    SL_SHM_FILE_ARENA = 1,
    SL_SHM_FILE_INDEX = 2,
    SL_SHM_FILE_PINS = 3,
    SL_SHM_FILE_LEASES = 4,
    SL_SHM_FILE_SETTLED = 5,
    SL_SHM_FILE_COUNTS = 6,
    SL_SHM_FILE_LABELS = 7,
    SL_SHM_FILE_SEEN = 8,
    SL_SHM_FILE_CHANGES = 9,
    SL_SHM_FILE_KINDS /* end of the kinds */
};

/* The layouts of a kind that this program reads; it writes the newest. README.md has the table of
 * all formats. */
struct sl_shm_file_layouts {
    uint32_t oldest, newest;
};
struct sl_shm_file_layouts sl_shm_file_layouts(enum sl_shm_file_kind kind);

struct sl_shm_file {
    void *header; /* the mapping: header page, then data at data_offset_bytes */
    unsigned char *data;
    uint64_t data_bytes;   /* size of the data as created */
    uint64_t mapped_bytes; /* whole mapping */
    int fd;                /* -1: closed */
    bool writable;
    uint32_t layout;        /* of the kind, as the file has it */
    struct sl_guard *guard; /* NULL: if the file is truncated, an access ends the process */
    uint64_t device, inode; /* of the file: while it is mapped no other file has them */
    uint64_t named_ns; /* monotonic: until then sl_shm_file_followed checks only the link count */
};

/* Called during work that may take seconds, to report progress; call NULL: none. */
struct sl_progress_callback {
    void (*call)(void *context);
    void *context;
};
struct sl_shm_file_want {
    const char *directory;
    const char *name; /* file name */
    enum sl_shm_file_kind kind;
    uint64_t data_bytes; /* create: size; open: 0 or the expected size */
    /* The rest is for create: prepared before the file gets its name, so that no process opens a
     * half-made one. */
    uint64_t data_align_bytes; /* power of two, 4096 (or 0) or 2 MiB; where data starts */
    const void *own;           /* the first own_bytes of sl_shm_file_own; NULL: zeros */
    size_t own_bytes;
    uint64_t populate_bytes; /* the first bytes of the data are populated: sl_shm_file_populate */
    struct sl_progress_callback goes_on; /* called after every 64 MiB of them */
    uint64_t allocate_bytes;             /* the first bytes are allocated: sl_shm_file_allocate */
    /* Prepares the rest; may be NULL. An error that it returns ends the creation. */
    sl_err (*prepare)(struct sl_shm_file *segment, struct sl_error *why);
};
/* Creates NAME (sparse: only the header is allocated) with mode 0600; it is complete before it gets
 * its name. Errors: SL_ERR_EXISTS, SL_ERR_NO_SPACE, SL_ERR_OS. */
sl_err sl_shm_file_create(const struct sl_shm_file_want *want, struct sl_shm_file *out,
                          struct sl_error *why);
/* Opens and checks. Errors: SL_ERR_NOT_FOUND, SL_ERR_FOREIGN (uid, boot id, kind, magic),
 * SL_ERR_VERSION (format or layout; the message names both and what to do), SL_ERR_CORRUPT (sizes
 * do not fit the file), SL_ERR_OS. */
sl_err sl_shm_file_open(const struct sl_shm_file_want *want, bool writable, struct sl_shm_file *out,
                        struct sl_error *why);
/* Ends the message if a kept file has another size or version. sluice-node looks for this text. */
#define SL_SHM_FILE_WAY_OUT "or lose what is in memory: sluice-node stop"
/* Reads the versions in the header: SL_OK with all fields if this program can read the file. Maps
 * nothing and changes nothing. Errors: SL_ERR_VERSION (*out is filled), SL_ERR_NOT_FOUND,
 * SL_ERR_FOREIGN (not an shm file of this user), SL_ERR_OS. */
struct sl_shm_file_found {
    enum sl_shm_file_kind kind;
    uint32_t format, layout;
    char maker[20]; /* zero-padded: version of the program that created it */
};
sl_err sl_shm_file_look(const char *directory, const char *name, struct sl_shm_file_found *out,
                        struct sl_error *why);
/* Whether a registrar of this program can continue with the files in the directory, if it exists;
 * checked before a start. Errors: SL_ERR_VERSION (names the first such file), SL_ERR_PERMISSION,
 * SL_ERR_OS. */
sl_err sl_shm_files_readable(const char *directory, struct sl_error *why);
/* Opens the file of this name, which may be any text, for a caller that passes the descriptor on.
 * Errors: SL_ERR_NOT_FOUND, SL_ERR_FOREIGN (a link), SL_ERR_OS. */
sl_err sl_shm_file_descriptor(const char *directory, const char *name, bool writable, int *fd,
                              struct sl_error *why);
/* Opens for writing. A file that is missing, of another boot, truncated or damaged is replaced with
 * create: for files whose loss matters little. A file of another version stays as it is. Errors:
 * SL_ERR_VERSION, SL_ERR_OS, SL_ERR_NO_MEMORY, those of create. */
sl_err sl_shm_file_open_or_renew(const struct sl_shm_file_want *want, struct sl_shm_file *out,
                                 struct sl_error *why);
/* Replaces the file in any case. */
sl_err sl_shm_file_renew(const struct sl_shm_file_want *want, struct sl_shm_file *out,
                         struct sl_error *why);
void sl_shm_file_close(struct sl_shm_file *segment); /* accepts a closed one */
/* Closes only the descriptor, unless its number belongs to another file by now: a program may close
 * all descriptors that it has. */
void sl_shm_file_close_descriptor(struct sl_shm_file *segment);
/* Whether bytes read from it may be zeros that are not in the file, because another process
 * truncated it. Check this after reading the bytes. */
static inline bool sl_shm_file_is_cut(const struct sl_shm_file *segment)
{
    return sl_guard_is_cut(segment->guard);
}
/* The same, and also true if no access has met the hole yet: one system call. */
bool sl_shm_file_is_short(const struct sl_shm_file *segment);
/* Whether the file of this name is shorter than it was created; why then describes it. False for a
 * file that is not an shm file of this user. */
bool sl_shm_file_file_is_short(const char *directory, const char *name, struct sl_error *why);
/* The same, and also true if there is none. */
bool sl_shm_file_file_is_lost(const char *directory, const char *name, struct sl_error *why);
/* Whether the file of this name still is the mapped one; another one means another life of the
 * node. One system call. SL_OK; SL_ERR_STALE: it is another; SL_ERR_NOT_FOUND: none is visible. */
sl_err sl_shm_file_current(const struct sl_shm_file *segment, const char *directory,
                           const char *name);
/* Whether the file still has a name: it loses it when it is removed or replaced. A third of the
 * time of sl_shm_file_current, but a file whose directory was moved away keeps its name. */
bool sl_shm_file_linked(const struct sl_shm_file *segment);
/* As sl_shm_file_current, in a fifth of its time: it checks the link count, and the name once in
 * 100 ms. For that long a file whose directory was moved away counts as current. One thread. */
sl_err sl_shm_file_followed(struct sl_shm_file *segment, const char *directory, const char *name);
sl_err sl_shm_file_remove(const char *directory, const char *name, struct sl_error *why);
/* Makes the system allocate [offset, +length) of the data, without SIGBUS on a full file system.
 * Thread-safe. Errors: SL_ERR_NO_SPACE, SL_ERR_OS. */
sl_err sl_shm_file_populate(const struct sl_shm_file *segment, uint64_t offset_bytes,
                            uint64_t length_bytes, struct sl_error *why);
/* The same without touching it: the system has allocated the range, so nothing there raises SIGBUS;
 * the process that touches a page first has it zeroed and mapped. It takes a third of the time
 * where pages are small, and holds no lock of the process's mappings; huge pages are used where the
 * file system gives them unasked. */
sl_err sl_shm_file_allocate(const struct sl_shm_file *segment, uint64_t offset_bytes,
                            uint64_t length_bytes, struct sl_error *why);
/* Frees [offset, +length) of the data to the system; it reads as zeros afterwards. */
void sl_shm_file_unpopulate(const struct sl_shm_file *segment, uint64_t offset_bytes,
                            uint64_t length_bytes);
/* The part of the header page that belongs to the kind of file. */
static inline void *sl_shm_file_own(const struct sl_shm_file *segment)
{
    return (unsigned char *)segment->header + SL_SHM_FILE_OWN_OFFSET_BYTES;
}

#endif
