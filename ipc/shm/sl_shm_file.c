/* ipc/shm/sl_shm_file.c - files in the shm directory: created without a name, complete before they
 * get one, checked when opened, mapped. */
#include "ipc/shm/sl_shm_file.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_limits.h"
#include "runtime/base/sl_node_dirs.h"
#include "runtime/base/sl_proc.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE \
    23 /* Linux 5.14; older kernels answer EINVAL and fallocate does the work */
#endif

#define SEGMENT_HUGE_BYTES  (2u * SL_MIB)
#define SEGMENT_STEP_BYTES  (64 * SL_MIB)
#define SEGMENT_MAKER_BYTES 16u
#define SEGMENT_NAMED_NS    (100 * SL_NS_PER_MS) /* for this time the name is not checked again */
#define SEGMENT_WAY_OUT     "use the sluice package of the node's version, " SL_SHM_FILE_WAY_OUT

struct segment_header {
    uint64_t magic;
    uint32_t format;
    uint32_t kind;
    uint32_t uid;
    uint32_t layout; /* of the kind's own part and data; 0: the first one */
    uint64_t data_offset_bytes;
    uint64_t data_bytes;
    char boot_id[SL_BOOT_ID_BYTES];  /* zero-padded */
    char maker[SEGMENT_MAKER_BYTES]; /* version of the program that created it, zero-padded */
};
static_assert(sizeof(struct segment_header) == 96, "format of the segment header");
static_assert(sizeof(struct segment_header) <= SL_SHM_FILE_OWN_OFFSET_BYTES,
              "the kind's part follows");

/* The layouts that this program reads; it writes the newest. Raise `newest` when the contents of a
 * kind, or of its part of the header page, get another meaning; notes in the index (a number or a
 * version of struct reg_blob) are part of the index. Raise `oldest` only after a release that reads
 * both, since a release has to open the files of its predecessor. */
static const struct sl_shm_file_layouts layouts[] = {
    [SL_SHM_FILE_ARENA] = {1, 1},  [SL_SHM_FILE_INDEX] = {1, 1},   [SL_SHM_FILE_PINS] = {3, 3},
    [SL_SHM_FILE_LEASES] = {1, 1}, [SL_SHM_FILE_SETTLED] = {1, 1}, [SL_SHM_FILE_COUNTS] = {1, 1},
    [SL_SHM_FILE_LABELS] = {1, 1}, [SL_SHM_FILE_SEEN] = {1, 1},    [SL_SHM_FILE_CHANGES] = {1, 1},
};

struct sl_shm_file_layouts sl_shm_file_layouts(enum sl_shm_file_kind kind)
{
    return (size_t)kind < SL_COUNT(layouts) ? layouts[kind] : (struct sl_shm_file_layouts){0, 0};
}

/* Maps the whole file so that its data is aligned to a huge page if the data offset requires it:
 * the kernel maps huge pages only where file offset and address agree. */
static void *segment_map_at(int fd, uint64_t file_bytes, bool writable, uint64_t align_bytes)
{
    int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    if (align_bytes < SEGMENT_HUGE_BYTES) {
        return mmap(NULL, file_bytes, protection, MAP_SHARED, fd, 0);
    }
    uint64_t room_bytes = file_bytes + align_bytes;
    unsigned char *room =
        mmap(NULL, room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) {
        return MAP_FAILED;
    }
    uint64_t skip_bytes =
        sl_align_up((uint64_t)(uintptr_t)room, align_bytes) - (uint64_t)(uintptr_t)room;
    unsigned char *at = room + skip_bytes;
    if (mmap(at, file_bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        int os_code = errno;
        munmap(room, room_bytes);
        errno = os_code;
        return MAP_FAILED;
    }
    uint64_t end_bytes = sl_align_up(file_bytes, SL_PAGE_BYTES);
    if (skip_bytes > 0) {
        munmap(room, skip_bytes);
    }
    if (room_bytes - skip_bytes > end_bytes) {
        munmap(at + end_bytes, room_bytes - skip_bytes - end_bytes);
    }
    return at;
}

static sl_err segment_map(struct sl_shm_file *segment, const struct segment_header *header,
                          const char *name, struct sl_error *why)
{
    uint64_t file_bytes = header->data_offset_bytes + header->data_bytes;
    uint64_t align_bytes =
        header->data_offset_bytes % SEGMENT_HUGE_BYTES == 0 ? SEGMENT_HUGE_BYTES : SL_PAGE_BYTES;
    struct stat file;
    if (fstat(segment->fd, &file) != 0) {
        return sl_fail_os(why, errno, "stat shm file '%s'", name);
    }
    void *at = segment_map_at(segment->fd, file_bytes, segment->writable, align_bytes);
    if (at == MAP_FAILED) {
        return sl_fail_os(why, errno, "map shm file '%s' of %" PRIu64 " bytes", name, file_bytes);
    }
    segment->device = file.st_dev;
    segment->inode = file.st_ino;
    segment->header = at;
    segment->data = (unsigned char *)at + header->data_offset_bytes;
    segment->data_bytes = header->data_bytes;
    segment->mapped_bytes = file_bytes;
    /* Truncated statistics end no process, and cast no doubt on other data. */
    bool figures = header->kind == SL_SHM_FILE_LABELS || header->kind == SL_SHM_FILE_SEEN ||
                   header->kind == SL_SHM_FILE_CHANGES;
    segment->guard = sl_guard_add(at, file_bytes, !figures);
    if (align_bytes == SEGMENT_HUGE_BYTES) {
        /* Best effort: tmpfs accepts the advice only if the system's shmem policy is "advise". */
        (void)madvise(segment->data, segment->data_bytes, MADV_HUGEPAGE);
    }
    return SL_OK;
}

static sl_err segment_open_directory(const char *directory, int *out, struct sl_error *why)
{
    *out = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *out >= 0 ? SL_OK : sl_fail_os(why, errno, "open directory '%s'", directory);
}

/* Creates an unnamed file if the file system supports that, otherwise one with a temporary name:
 * `temporary` is "" or that name. */
static int segment_make_file(int directory, const char *name, char temporary[300])
{
    temporary[0] = '\0';
    int fd = openat(directory, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) {
        return fd;
    }
    snprintf(temporary, 300, ".%s.%ld.new", name, (long)getpid());
    (void)unlinkat(directory, temporary, 0); /* left by an earlier process with this pid */
    return openat(directory, temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

/* The name appears in one step and never replaces another file. */
static sl_err segment_publish(int directory, int fd, const char *temporary, const char *name,
                              struct sl_error *why)
{
    char self[64];
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    int failed = temporary[0] != '\0' ? linkat(directory, temporary, directory, name, 0)
                                      : linkat(AT_FDCWD, self, directory, name, AT_SYMLINK_FOLLOW);
    if (failed != 0) {
        return sl_fail_os(why, errno, "name shm file '%s'", name);
    }
    return SL_OK;
}

/* Sizes the file and writes its header page; write(2) reports a full file system without SIGBUS. */
static sl_err segment_write_header(int fd, const struct segment_header *header, const char *name,
                                   struct sl_error *why)
{
    unsigned char page[SL_PAGE_BYTES] = {0};
    memcpy(page, header, sizeof(*header));
    if (fchmod(fd, 0600) != 0) {
        return sl_fail_os(why, errno, "set mode of shm file '%s'", name);
    }
    off_t file_bytes = (off_t)(header->data_offset_bytes + header->data_bytes);
    if (sl_file_resize(fd, (uint64_t)file_bytes) != 0) {
        return sl_fail_os(why, errno, "size shm file '%s' to %" PRId64 " bytes", name,
                          (int64_t)file_bytes);
    }
    ssize_t wrote = pwrite(fd, page, sizeof(page), 0);
    if (wrote < 0) {
        return sl_fail_os(why, errno, "write header of shm file '%s'", name);
    }
    if (wrote != (ssize_t)sizeof(page)) {
        return sl_fail(why, SL_ERR_NO_SPACE, "header of shm file '%s': %zd of %zu bytes written",
                       name, wrote, sizeof(page));
    }
    return SL_OK;
}

static uint64_t segment_align(const struct sl_shm_file_want *want)
{
    return want->data_align_bytes != 0 ? want->data_align_bytes : SL_PAGE_BYTES;
}

static sl_err segment_check_want(const struct sl_shm_file_want *want, struct sl_error *why)
{
    uint64_t align = segment_align(want);
    if (want->name[0] == '\0' || strchr(want->name, '/') != NULL || strlen(want->name) > 250) {
        return sl_fail(why, SL_ERR_INVALID, "name '%.64s' of an shm file is not a file name",
                       want->name);
    }
    if (align < SL_PAGE_BYTES || align > SEGMENT_HUGE_BYTES || (align & (align - 1)) != 0) {
        return sl_fail(why, SL_ERR_INVALID, "shm file '%s': alignment %" PRIu64 " bytes",
                       want->name, align);
    }
    if (want->data_bytes == 0 || want->data_bytes > (uint64_t)INT64_MAX / 2) {
        return sl_fail(why, SL_ERR_INVALID, "shm file '%s': size %" PRIu64 " bytes", want->name,
                       want->data_bytes);
    }
    return SL_OK;
}

static sl_err segment_populate_steps(const struct sl_shm_file *segment, uint64_t length_bytes,
                                     struct sl_progress_callback goes_on, struct sl_error *why)
{
    sl_err err = SL_OK;
    for (uint64_t at = 0; err == SL_OK && at < length_bytes; at += SEGMENT_STEP_BYTES) {
        err = sl_shm_file_populate(segment, at, SL_MIN(length_bytes - at, SEGMENT_STEP_BYTES), why);
        if (goes_on.call != NULL) {
            goes_on.call(goes_on.context);
        }
    }
    return err;
}

static sl_err segment_begin(struct sl_shm_file *segment, const struct sl_shm_file_want *want,
                            struct sl_error *why)
{
    if (want->own != NULL) {
        memcpy(sl_shm_file_own(segment), want->own, want->own_bytes);
    }
    sl_err err = segment_populate_steps(segment, want->populate_bytes, want->goes_on, why);
    if (err == SL_OK) {
        err = sl_shm_file_allocate(segment, 0, want->allocate_bytes, why);
    }
    return err == SL_OK && want->prepare != NULL ? want->prepare(segment, why) : err;
}

static sl_err segment_fill(int directory, const struct sl_shm_file_want *want,
                           const struct segment_header *header, struct sl_shm_file *segment,
                           struct sl_error *why)
{
    char temporary[300];
    sl_err err = SL_OK;
    segment->fd = segment_make_file(directory, want->name, temporary);
    if (segment->fd < 0) {
        return sl_fail_os(why, errno, "create shm file '%s/%s'", want->directory, want->name);
    }
    err = segment_write_header(segment->fd, header, want->name, why);
    if (err == SL_OK) {
        err = segment_map(segment, header, want->name, why);
    }
    if (err == SL_OK) {
        err = segment_begin(segment, want, why);
    }
    if (err == SL_OK) {
        err = segment_publish(directory, segment->fd, temporary, want->name, why);
    }
    if (temporary[0] != '\0') {
        (void)unlinkat(directory, temporary, 0);
    }
    return err;
}

sl_err sl_shm_file_create(const struct sl_shm_file_want *want, struct sl_shm_file *out,
                          struct sl_error *why)
{
    struct sl_shm_file segment = {.fd = -1, .writable = true};
    struct segment_header header = {
        .magic = SL_SHM_FILE_MAGIC,
        .format = SL_SHM_FILE_FORMAT,
        .kind = (uint32_t)want->kind,
        .uid = (uint32_t)geteuid(),
        .layout = sl_shm_file_layouts(want->kind).newest,
        .data_offset_bytes = segment_align(want),
        .data_bytes = want->data_bytes,
    };
    (void)snprintf(header.maker, sizeof(header.maker), "%s", SL_VERSION);
    sl_err err = segment_check_want(want, why);
    if (err != SL_OK) {
        return err;
    }
    err = sl_boot_id(header.boot_id, why);
    if (err != SL_OK) {
        return err;
    }
    SL_AUTO(close) int directory = -1;
    err = segment_open_directory(want->directory, &directory, why);
    if (err != SL_OK) {
        return err;
    }
    err = segment_fill(directory, want, &header, &segment, why);
    if (err != SL_OK) {
        sl_shm_file_close(&segment);
        return err;
    }
    segment.layout = header.layout;
    *out = segment;
    return SL_OK;
}

/* Files without a layout number have layout 1. */
static uint32_t header_layout(const struct segment_header *header)
{
    return header->layout == 0 ? 1 : header->layout;
}

/* "1", or "1 to 3". */
static const char *known_text(struct sl_shm_file_layouts known, char out[32])
{
    int length = snprintf(out, 32, "%u", known.oldest);
    if (known.newest != known.oldest) {
        (void)snprintf(out + length, 32 - (size_t)length, " to %u", known.newest);
    }
    return out;
}

/* Checks that this program can read it: format and layout. */
static sl_err segment_check_version(const struct segment_header *header, const char *name,
                                    enum sl_shm_file_kind kind, struct sl_error *why)
{
    struct sl_shm_file_layouts known = sl_shm_file_layouts(kind);
    uint32_t layout = header_layout(header);
    char maker[SEGMENT_MAKER_BYTES + 1] = "";
    char text[32];
    if (header->format != SL_SHM_FILE_FORMAT) {
        return sl_fail(why, SL_ERR_VERSION,
                       "'%.40s' has format %u, this program (sluice %s) knows %u: " SEGMENT_WAY_OUT,
                       name, header->format, SL_VERSION, SL_SHM_FILE_FORMAT);
    }
    if (layout >= known.oldest && layout <= known.newest) {
        return SL_OK;
    }
    for (size_t i = 0; i < SEGMENT_MAKER_BYTES && header->maker[i] > ' '; i++) {
        maker[i] = header->maker[i];
    }
    return sl_fail(
        why, SL_ERR_VERSION,
        "'%.40s' has layout %u (sluice %s), this program (sluice %s) knows %s: " SEGMENT_WAY_OUT,
        name, layout, maker[0] != '\0' ? maker : "of another version", SL_VERSION,
        known_text(known, text));
}

/* Checks a copy of a header in this order: magic, format, kind, boot, layout, sizes. */
static sl_err segment_check_header(const struct segment_header *header,
                                   const struct sl_shm_file_want *want, const struct stat *file,
                                   struct sl_error *why)
{
    char boot_id[SL_BOOT_ID_BYTES];
    if (header->magic != SL_SHM_FILE_MAGIC) {
        return sl_fail(why, SL_ERR_FOREIGN, "shm file '%s': magic %016" PRIx64, want->name,
                       header->magic);
    }
    if (header->format != SL_SHM_FILE_FORMAT) {
        return segment_check_version(header, want->name, want->kind, why);
    }
    if (header->kind != (uint32_t)want->kind) {
        return sl_fail(why, SL_ERR_FOREIGN, "shm file '%s': kind %u instead of %u", want->name,
                       header->kind, (unsigned)want->kind);
    }
    sl_err err = sl_boot_id(boot_id, why);
    if (err != SL_OK) {
        return err;
    }
    if (memcmp(header->boot_id, boot_id, sizeof(boot_id)) != 0) {
        return sl_fail(why, SL_ERR_FOREIGN, "shm file '%s': made under boot %.36s, this is %.36s",
                       want->name, header->boot_id, boot_id);
    }
    err = segment_check_version(header, want->name, want->kind, why);
    if (err != SL_OK) {
        return err;
    }
    uint64_t file_bytes = (uint64_t)file->st_size;
    bool offset_good = header->data_offset_bytes == SL_PAGE_BYTES ||
                       header->data_offset_bytes == SEGMENT_HUGE_BYTES ||
                       (header->data_offset_bytes > SL_PAGE_BYTES &&
                        header->data_offset_bytes < SEGMENT_HUGE_BYTES &&
                        (header->data_offset_bytes & (header->data_offset_bytes - 1)) == 0);
    if (!offset_good || header->data_bytes == 0 || header->data_bytes > file_bytes ||
        header->data_offset_bytes != file_bytes - header->data_bytes) {
        return sl_fail(why, SL_ERR_CORRUPT,
                       "shm file '%s': data of %" PRIu64 " bytes at %" PRIu64
                       " in a file of %" PRIu64 " bytes",
                       want->name, header->data_bytes, header->data_offset_bytes, file_bytes);
    }
    if (want->data_bytes != 0 && want->data_bytes != header->data_bytes) {
        return sl_fail(why, SL_ERR_CORRUPT,
                       "shm file '%s': data of %" PRIu64 " bytes instead of %" PRIu64, want->name,
                       header->data_bytes, want->data_bytes);
    }
    return SL_OK;
}

static sl_err segment_check_file(int fd, const struct sl_shm_file_want *want,
                                 struct segment_header *header, struct sl_error *why)
{
    struct stat file;
    if (fstat(fd, &file) != 0) {
        return sl_fail_os(why, errno, "stat shm file '%s'", want->name);
    }
    if (!S_ISREG(file.st_mode)) {
        return sl_fail(why, SL_ERR_FOREIGN, "shm file '%s' is not a file", want->name);
    }
    if (file.st_uid != geteuid() || (file.st_mode & 077) != 0) {
        return sl_fail(why, SL_ERR_FOREIGN,
                       "shm file '%s': owner uid %u, mode %03o; expected uid %u, mode 600",
                       want->name, (unsigned)file.st_uid, (unsigned)(file.st_mode & 0777),
                       (unsigned)geteuid());
    }
    ssize_t got = pread(fd, header, sizeof(*header), 0);
    if (got < 0) {
        return sl_fail_os(why, errno, "read header of shm file '%s'", want->name);
    }
    if (got != (ssize_t)sizeof(*header) || file.st_size < (off_t)SL_PAGE_BYTES) {
        return sl_fail(why, SL_ERR_CORRUPT, "shm file '%s' has %" PRId64 " bytes: no header",
                       want->name, (int64_t)file.st_size);
    }
    return segment_check_header(header, want, &file, why);
}

sl_err sl_shm_file_descriptor(const char *directory, const char *name, bool writable, int *fd,
                              struct sl_error *why)
{
    SL_AUTO(close) int at = -1;
    sl_err err = segment_open_directory(directory, &at, why);
    if (err != SL_OK) {
        return err;
    }
    /* O_NONBLOCK: a fifo of this name must not block the opener; it does not affect files. */
    *fd = openat(at, name, (writable ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (*fd < 0) {
        return errno == ELOOP ? sl_fail(why, SL_ERR_FOREIGN, "shm file '%s' is a link", name)
                              : sl_fail_os(why, errno, "open shm file '%s/%s'", directory, name);
    }
    return SL_OK;
}

sl_err sl_shm_file_open(const struct sl_shm_file_want *want, bool writable, struct sl_shm_file *out,
                        struct sl_error *why)
{
    struct sl_shm_file segment = {.fd = -1, .writable = writable};
    struct segment_header header = {0};
    sl_err err = sl_shm_file_descriptor(want->directory, want->name, writable, &segment.fd, why);
    if (err != SL_OK) {
        return err;
    }
    err = segment_check_file(segment.fd, want, &header, why);
    if (err == SL_OK) {
        err = segment_map(&segment, &header, want->name, why);
        segment.layout = header_layout(&header);
    }
    if (err != SL_OK) {
        sl_shm_file_close(&segment);
        return err;
    }
    *out = segment;
    return SL_OK;
}

sl_err sl_shm_file_look(const char *directory, const char *name, struct sl_shm_file_found *out,
                        struct sl_error *why)
{
    struct segment_header header = {0};
    struct stat file;
    SL_AUTO(close) int fd = -1;
    sl_err err = sl_shm_file_descriptor(directory, name, false, &fd, why);
    if (err != SL_OK) {
        return err;
    }
    if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode) || file.st_uid != geteuid() ||
        pread(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header) ||
        header.magic != SL_SHM_FILE_MAGIC) {
        return sl_fail(why, SL_ERR_FOREIGN, "'%s' is not an shm file of this user", name);
    }
    *out = (struct sl_shm_file_found){.kind = (enum sl_shm_file_kind)header.kind,
                                      .format = header.format,
                                      .layout = header_layout(&header)};
    memcpy(out->maker, header.maker, SEGMENT_MAKER_BYTES);
    return segment_check_version(&header, name, out->kind, why);
}

/* The registrar's own files: those of processes (pins.*, metrics.*) are checked when the process is
 * known. */
static bool is_of_the_node(const char *name)
{
    static const char *const names[] = {"index",  "leases", "settled", "counts",
                                        "labels", "seen",   "changes"};
    bool is = strncmp(name, "arena.", 6) == 0;
    for (size_t i = 0; !is && i < SL_COUNT(names); i++) {
        is = strcmp(name, names[i]) == 0;
    }
    return is;
}

sl_err sl_shm_files_readable(const char *directory, struct sl_error *why)
{
    sl_err err = SL_OK;
    SL_AUTO(closedir) DIR *all = opendir(directory);
    if (all == NULL) {
        return errno == ENOENT ? SL_OK : sl_fail_os(why, errno, "look into '%s'", directory);
    }
    for (const struct dirent *entry; err == SL_OK && (entry = readdir(all)) != NULL;) {
        struct sl_shm_file_found found;
        struct sl_error found_why = {0};
        if (is_of_the_node(entry->d_name) &&
            sl_shm_file_look(directory, entry->d_name, &found, &found_why) == SL_ERR_VERSION) {
            err = SL_ERR_VERSION;
            if (why != NULL) {
                *why = found_why;
            }
        }
    }
    return err; /* a file that cannot be checked is reported by the process that opens it */
}

sl_err sl_shm_file_open_or_renew(const struct sl_shm_file_want *want, struct sl_shm_file *out,
                                 struct sl_error *why)
{
    sl_err err = sl_shm_file_open(want, true, out, why);
    if (err == SL_OK && sl_shm_file_is_short(out)) {
        sl_shm_file_close(out);
        err = SL_ERR_CORRUPT;
    }
    if (err == SL_OK || err == SL_ERR_OS || err == SL_ERR_NO_MEMORY || err == SL_ERR_VERSION) {
        return err;
    }
    return sl_shm_file_renew(want, out, why);
}

sl_err sl_shm_file_renew(const struct sl_shm_file_want *want, struct sl_shm_file *out,
                         struct sl_error *why)
{
    sl_err err = sl_shm_file_remove(want->directory, want->name, why);
    return err == SL_OK || err == SL_ERR_NOT_FOUND ? sl_shm_file_create(want, out, why) : err;
}

/* Also false if the descriptor belongs to another file by now. */
static bool segment_stat(const struct sl_shm_file *segment, struct stat *file)
{
    return fstat(segment->fd, file) == 0 && file->st_dev == segment->device &&
           file->st_ino == segment->inode;
}

void sl_shm_file_close_descriptor(struct sl_shm_file *segment)
{
    struct stat file;
    if (segment->fd >= 0 && (segment->header == NULL || segment_stat(segment, &file))) {
        close(segment->fd);
    }
    segment->fd = -1;
}

void sl_shm_file_close(struct sl_shm_file *segment)
{
    if (segment == NULL) {
        return;
    }
    sl_guard_remove(&segment->guard);
    sl_shm_file_close_descriptor(segment); /* while it is mapped no other file has its number */
    if (segment->header != NULL) {
        munmap(segment->header, segment->mapped_bytes);
    }
    *segment = (struct sl_shm_file){.fd = -1};
}

bool sl_shm_file_is_short(const struct sl_shm_file *segment)
{
    struct stat file;
    return sl_shm_file_is_cut(segment) ||
           (segment_stat(segment, &file) && (uint64_t)file.st_size < segment->mapped_bytes);
}

bool sl_shm_file_file_is_short(const char *directory, const char *name, struct sl_error *why)
{
    struct stat file;
    struct segment_header header = {0};
    SL_AUTO(close) int fd = -1;
    if (sl_shm_file_descriptor(directory, name, false, &fd, NULL) != SL_OK ||
        fstat(fd, &file) != 0 || !S_ISREG(file.st_mode) || file.st_uid != geteuid() ||
        pread(fd, &header, sizeof(header), 0) < 0) {
        return false;
    }
    uint64_t file_bytes = (uint64_t)file.st_size;
    bool is_ours = header.magic == SL_SHM_FILE_MAGIC && header.format == SL_SHM_FILE_FORMAT;
    bool is_short = file_bytes < SL_PAGE_BYTES ||
                    (is_ours && (header.data_bytes > file_bytes ||
                                 header.data_offset_bytes > file_bytes - header.data_bytes));
    if (is_short) {
        (void)sl_fail(why, SL_ERR_CORRUPT, "shm file '%s' was cut short to %" PRIu64 " bytes", name,
                      file_bytes);
    }
    return is_short;
}

bool sl_shm_file_file_is_lost(const char *directory, const char *name, struct sl_error *why)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    return access(path, F_OK) != 0 && errno == ENOENT
               ? sl_fail(why, SL_ERR_CORRUPT, "shm file '%s' was removed", name) != SL_OK
               : sl_shm_file_file_is_short(directory, name, why);
}

sl_err sl_shm_file_current(const struct sl_shm_file *segment, const char *directory,
                           const char *name)
{
    char path[1200];
    struct stat file;
    int length = snprintf(path, sizeof(path), "%s/%s", directory, name);
    if (length < 0 || (size_t)length >= sizeof(path) || stat(path, &file) != 0) {
        return SL_ERR_NOT_FOUND;
    }
    return file.st_dev == segment->device && file.st_ino == segment->inode ? SL_OK : SL_ERR_STALE;
}

bool sl_shm_file_linked(const struct sl_shm_file *segment)
{
    struct stat file;
    return segment_stat(segment, &file) && file.st_nlink > 0;
}

sl_err sl_shm_file_followed(struct sl_shm_file *segment, const char *directory, const char *name)
{
    uint64_t now_ns = sl_clock_monotonic_ns();
    if (now_ns < segment->named_ns && sl_shm_file_linked(segment)) {
        return SL_OK;
    }
    sl_err err = sl_shm_file_current(segment, directory, name);
    segment->named_ns = err == SL_OK ? now_ns + SEGMENT_NAMED_NS : 0;
    return err;
}

sl_err sl_shm_file_remove(const char *directory, const char *name, struct sl_error *why)
{
    SL_AUTO(close) int at = -1;
    sl_err err = segment_open_directory(directory, &at, why);
    if (err != SL_OK) {
        return err;
    }
    if (unlinkat(at, name, 0) != 0) {
        return sl_fail_os(why, errno, "remove shm file '%s/%s'", directory, name);
    }
    return SL_OK;
}

static sl_err segment_no_room(uint64_t length_bytes, struct sl_error *why)
{
    return sl_fail(why, SL_ERR_NO_SPACE,
                   "the system has no room for %" PRIu64
                   " bytes more of shared memory (df -h /dev/shm)",
                   length_bytes);
}

/* A range of the file in whole pages. */
struct segment_range {
    uint64_t from_bytes, length_bytes;
};

static sl_err segment_range(const struct sl_shm_file *segment, uint64_t offset_bytes,
                            uint64_t length_bytes, struct segment_range *out, struct sl_error *why)
{
    SL_ASSERT(segment->writable);
    if (offset_bytes > segment->data_bytes || length_bytes > segment->data_bytes - offset_bytes) {
        return sl_fail(why, SL_ERR_INVALID, "populate %" PRIu64 " bytes at %" PRIu64 " of %" PRIu64,
                       length_bytes, offset_bytes, segment->data_bytes);
    }
    uint64_t base_bytes = (uint64_t)(segment->data - (unsigned char *)segment->header);
    uint64_t from = (base_bytes + offset_bytes) & ~(uint64_t)(SL_PAGE_BYTES - 1);
    uint64_t to = sl_align_up(base_bytes + offset_bytes + length_bytes, SL_PAGE_BYTES);
    *out = (struct segment_range){.from_bytes = from, .length_bytes = to - from};
    return SL_OK;
}

static sl_err segment_allocate(const struct sl_shm_file *segment, const struct segment_range *range,
                               struct sl_error *why)
{
    int os_code = 0;
    uint64_t length_bytes = SL_MIN(range->length_bytes, segment->mapped_bytes - range->from_bytes);
    do {
        os_code = fallocate(segment->fd, FALLOC_FL_KEEP_SIZE, (off_t)range->from_bytes,
                            (off_t)length_bytes) == 0
                      ? 0
                      : errno;
    } while (os_code == EINTR);
    if (os_code == 0) {
        return SL_OK;
    }
    if (os_code == ENOMEM || os_code == ENOSPC) {
        return segment_no_room(length_bytes, why);
    }
    return sl_fail_os(why, os_code, "allocate %" PRIu64 " bytes of an shm file", length_bytes);
}

sl_err sl_shm_file_allocate(const struct sl_shm_file *segment, uint64_t offset_bytes,
                            uint64_t length_bytes, struct sl_error *why)
{
    struct segment_range range = {0};
    sl_err err = segment_range(segment, offset_bytes, length_bytes, &range, why);
    return err == SL_OK && length_bytes > 0 ? segment_allocate(segment, &range, why) : err;
}

sl_err sl_shm_file_populate(const struct sl_shm_file *segment, uint64_t offset_bytes,
                            uint64_t length_bytes, struct sl_error *why)
{
    struct segment_range range = {0};
    sl_err err = segment_range(segment, offset_bytes, length_bytes, &range, why);
    if (err != SL_OK || length_bytes == 0) {
        return err;
    }
    int os_code = 0;
    do {
        os_code = madvise((unsigned char *)segment->header + range.from_bytes, range.length_bytes,
                          MADV_POPULATE_WRITE) == 0
                      ? 0
                      : errno;
    } while (os_code == EINTR || os_code == EAGAIN);
    switch (os_code) {
    case 0:
        return SL_OK;
    case EFAULT: /* touching would raise SIGBUS: the file system is full */
    case ENOMEM:
    case ENOSPC:
        return segment_no_room(length_bytes, why);
    case EINVAL: /* allocated memory raises no SIGBUS; the first touch costs a minor fault */
    case ENOSYS:
        return segment_allocate(segment, &range, why);
    default:
        return sl_fail_os(why, os_code, "populate %" PRIu64 " bytes of an shm file", length_bytes);
    }
}

void sl_shm_file_unpopulate(const struct sl_shm_file *segment, uint64_t offset_bytes,
                            uint64_t length_bytes)
{
    uint64_t base_bytes = (uint64_t)(segment->data - (unsigned char *)segment->header);
    SL_ASSERT(offset_bytes <= segment->data_bytes &&
              length_bytes <= segment->data_bytes - offset_bytes);
    /* Failure only costs memory: the range stays allocated. */
    (void)fallocate(segment->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    (off_t)(base_bytes + offset_bytes), (off_t)length_bytes);
}
