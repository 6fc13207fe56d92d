/* ipc/shm/sl_segment.h - files in the shm directory that outlive processes: create, open, check,
 * map.
 *
 * Every segment starts with one page of header: magic, format, boot id, uid, kind, layout of the
 * kind, sizes, and the version of the program that made it.
 * A file that does not match is refused, not guessed at. */
#ifndef SL_SEGMENT_H
#define SL_SEGMENT_H

#include "runtime/base/sl_guard.h"
#include "runtime/base/sl_proc.h"

#define SL_SEGMENT_FORMAT 2u
/* The header page belongs to the kind of the segment from here on. */
#define SL_SEGMENT_OWN_OFFSET_BYTES 1024u
enum sl_segment_kind {
    SL_SEGMENT_ARENA = 1,
    SL_SEGMENT_INDEX = 2,
    SL_SEGMENT_PINS = 3,
    SL_SEGMENT_LEASES = 4,
    SL_SEGMENT_SETTLED = 5,
    SL_SEGMENT_COUNTS = 6,
    SL_SEGMENT_LABELS = 7,
    SL_SEGMENT_SEEN = 8,
    SL_SEGMENT_CHANGES = 9,
    SL_SEGMENT_KINDS /* behind the last one */
};

/* Of a kind: which layouts this program reads, and that it makes segments of the newest. README.md
 * has the table of all formats. */
struct sl_segment_layouts {
    uint32_t oldest, newest;
};
struct sl_segment_layouts sl_segment_layouts(enum sl_segment_kind kind);

struct sl_segment {
    void *header; /* the mapping: header page, then data at data_offset_bytes */
    unsigned char *data;
    uint64_t data_bytes;   /* size of the data as created */
    uint64_t mapped_bytes; /* whole mapping */
    int fd;                /* -1: closed */
    bool writable;
    uint32_t layout;        /* of the kind, as it was made */
    struct sl_guard *guard; /* NULL: a file that is cut short ends the process */
    uint64_t device, inode; /* of the file: while it is mapped no other one has them */
    uint64_t named_ns;      /* monotonic: until then sl_segment_followed looks at the link alone */
};

/* Whom work that may last for seconds tells that it goes on; call NULL: nobody. */
struct sl_goes_on {
    void (*call)(void *context);
    void *context;
};
struct sl_segment_want {
    const char *directory;
    const char *name; /* file name */
    enum sl_segment_kind kind;
    uint64_t data_bytes; /* create: size; open: 0 or the expected size */
    /* What follows is of create: what there is before the segment gets its name, so that nobody
     * opens a half-made one. */
    uint64_t data_align_bytes; /* power of two, 4096 (or 0) or 2 MiB; where data starts */
    const void *own;           /* own_bytes that sl_segment_own begins with; NULL: zeros */
    size_t own_bytes;
    uint64_t populate_bytes;   /* of the data, from its beginning: as sl_segment_populate, */
    struct sl_goes_on goes_on; /* in steps of 64 MiB, of which this is told */
    uint64_t allocate_bytes;   /* likewise: as sl_segment_allocate */
    /* The rest; may be NULL. An error that it returns ends the creation. */
    sl_err (*prepare)(struct sl_segment *segment, struct sl_error *why);
};
/* Creates NAME anew (sparse: nothing is allocated but the header), 0600, complete before it gets
 * its name. Errors: SL_ERR_EXISTS, SL_ERR_NO_SPACE, SL_ERR_OS. */
sl_err sl_segment_create(const struct sl_segment_want *want, struct sl_segment *out,
                         struct sl_error *why);
/* Opens and checks. Errors: SL_ERR_NOT_FOUND, SL_ERR_FOREIGN (uid, boot id, kind, magic),
 * SL_ERR_VERSION (format or layout; names both and what to do), SL_ERR_CORRUPT (sizes do not fit
 * the file), SL_ERR_OS. */
sl_err sl_segment_open(const struct sl_segment_want *want, bool writable, struct sl_segment *out,
                       struct sl_error *why);
/* What helps when one that is kept has another size than the settings ask for. */
#define SL_SEGMENT_OTHER_SIZE "or lose what is in memory: sluice-node stop"
/* What its header says of versions: SL_OK with all that is found when this program reads it.
 * Touches and maps nothing. Errors: SL_ERR_VERSION (*out is filled), SL_ERR_NOT_FOUND,
 * SL_ERR_FOREIGN (no segment of this user), SL_ERR_OS. */
struct sl_segment_found {
    enum sl_segment_kind kind;
    uint32_t format, layout;
    char maker[20]; /* zero-padded: the version of the program that made it */
};
sl_err sl_segment_look(const char *directory, const char *name, struct sl_segment_found *out,
                       struct sl_error *why);
/* Whether a registrar of this program can go on with the segments in the directory, if it is there:
 * asked first. Errors: SL_ERR_VERSION, by the first's name; SL_ERR_PERMISSION, SL_ERR_OS (no look).
 */
sl_err sl_segments_readable(const char *directory, struct sl_error *why);
/* Opens the file of this name, which may be any, for who hands it on. Errors: SL_ERR_NOT_FOUND,
 * SL_ERR_FOREIGN (a link), SL_ERR_OS. */
sl_err sl_segment_descriptor(const char *directory, const char *name, bool writable, int *fd,
                             struct sl_error *why);
/* Opens for writing; what is not there, of another boot, cut short or damaged begins anew, by
 * create: for what figures alone hang on. What another version made stays as it is. Errors:
 * SL_ERR_VERSION, SL_ERR_OS, SL_ERR_NO_MEMORY, those of create. */
sl_err sl_segment_open_or_renew(const struct sl_segment_want *want, struct sl_segment *out,
                                struct sl_error *why);
/* The same, whatever is there. */
sl_err sl_segment_renew(const struct sl_segment_want *want, struct sl_segment *out,
                        struct sl_error *why);
void sl_segment_close(struct sl_segment *segment); /* accepts a closed one */
/* The descriptor alone, unless its number is another file's by now: a program may close all that it
 * has. */
void sl_segment_close_descriptor(struct sl_segment *segment);
/* Whether bytes of it may be zeros that are not the file's: another process cut it short. To be
 * asked behind the look at them. */
static inline bool sl_segment_is_cut(const struct sl_segment *segment)
{
    return sl_guard_is_cut(segment->guard);
}
/* The same, and also when nobody met the hole yet: one system call. */
bool sl_segment_is_short(const struct sl_segment *segment);
/* Whether the file of this name is shorter than it was made; why then says so. What is no segment
 * of this user is not. */
bool sl_segment_file_is_short(const char *directory, const char *name, struct sl_error *why);
/* The same, and also when there is none. */
bool sl_segment_file_is_lost(const char *directory, const char *name, struct sl_error *why);
/* Whether the file of this name still is the one that is mapped: another one means another life of
 * the node. One system call. SL_OK; SL_ERR_STALE: it is another; SL_ERR_NOT_FOUND: there is none
 * that can be seen. */
sl_err sl_segment_current(const struct sl_segment *segment, const char *directory,
                          const char *name);
/* Whether the file has a name at all: it loses it when it is removed or replaced. A third of the
 * time of the other, but a file whose directory was moved away keeps its name. */
bool sl_segment_linked(const struct sl_segment *segment);
/* As sl_segment_current, a fifth of its time: it asks for the link, and for the name once in 100
 * ms. A segment whose directory was moved away is taken for current that long. One thread. */
sl_err sl_segment_followed(struct sl_segment *segment, const char *directory, const char *name);
sl_err sl_segment_remove(const char *directory, const char *name, struct sl_error *why);
/* Makes the system allocate [offset, +length) of the data, without SIGBUS on a full file system.
 * Thread-safe. Errors: SL_ERR_NO_SPACE, SL_ERR_OS. */
sl_err sl_segment_populate(const struct sl_segment *segment, uint64_t offset_bytes,
                           uint64_t length_bytes, struct sl_error *why);
/* The same without touching it: the system has allocated the range, so nothing there raises SIGBUS;
 * the process that touches a page first has it zeroed and mapped. A third of the time where pages
 * are small, and no lock of the process's mappings is held; huge pages come where the file system
 * gives them unasked. */
sl_err sl_segment_allocate(const struct sl_segment *segment, uint64_t offset_bytes,
                           uint64_t length_bytes, struct sl_error *why);
/* Gives [offset, +length) of the data back to the system; reads as zeros afterwards. */
void sl_segment_unpopulate(const struct sl_segment *segment, uint64_t offset_bytes,
                           uint64_t length_bytes);
/* The part of the header page that belongs to the segment's kind. */
static inline void *sl_segment_own(const struct sl_segment *segment)
{
    return (unsigned char *)segment->header + SL_SEGMENT_OWN_OFFSET_BYTES;
}

#endif
