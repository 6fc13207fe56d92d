/* tests/support/power_files.c - see the header. */
#include "tests/support/power_files.h"

#include "runtime/sl_base.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CALLS_MAX  256u
#define FILES_MAX  64u
#define FDS_MAX    1024
#define NAME_BYTES 64u
#define TEXT_BYTES 16384u
#define DIRECTORY  (FILES_MAX + 1u) /* as the file of a descriptor */

enum kind {
    CALL_MAKE,
    CALL_WRITE,
    CALL_CUT,
    CALL_SYNC,
    CALL_RENAME,
    CALL_LINK,
    CALL_UNLINK,
    CALL_SYNC_NAMES
};
struct call {
    enum kind kind;
    uint32_t file;
    mode_t mode;
    char name[NAME_BYTES], to[NAME_BYTES];
    size_t length; /* of the file, after it */
};
struct file {
    char text[TEXT_BYTES]; /* only appended to, or cut to nothing */
    size_t length;
};
struct name {
    char name[NAME_BYTES];
    uint32_t file;
    mode_t mode;
};
static char root[1024];
static bool watching;
static struct call calls[CALLS_MAX];
static uint32_t call_count, file_count;
static struct file files[FILES_MAX];
static uint32_t file_of[FDS_MAX]; /* + 1; 0: none of ours */
static struct name names[FILES_MAX];
static uint32_t name_count; /* as they are now, and then as they were */

/* ---- names ---- */

static struct name *name_find(const char *name)
{
    for (uint32_t i = 0; i < name_count; i++) {
        if (strcmp(names[i].name, name) == 0) {
            return &names[i];
        }
    }
    return NULL;
}

static void name_set(const char *text, uint32_t file, mode_t mode)
{
    struct name *name = name_find(text);
    if (name == NULL) {
        ck_assert_uint_lt(name_count, FILES_MAX);
        name = &names[name_count++];
        (void)snprintf(name->name, sizeof(name->name), "%s", text);
    }
    name->file = file;
    name->mode = mode;
}

static void name_drop(const char *text)
{
    struct name *name = name_find(text);
    if (name != NULL) {
        *name = names[--name_count];
    }
}

static void names_take(const struct call *call)
{
    if (call->kind == CALL_MAKE) {
        name_set(call->name, call->file, call->mode);
    } else if (call->kind == CALL_UNLINK) {
        name_drop(call->name);
    } else if (call->kind == CALL_LINK || call->kind == CALL_RENAME) {
        const struct name from = *name_find(call->name);
        name_set(call->to, from.file, from.mode);
        if (call->kind == CALL_RENAME) {
            name_drop(call->name);
        }
    }
}

/* ---- noting ---- */

static const char *inside(const char *path)
{
    size_t length = strlen(root);
    bool is = watching && strncmp(path, root, length) == 0 && path[length] == '/' &&
              strchr(path + length + 1, '/') == NULL;
    return is ? path + length + 1 : NULL;
}

static struct call *note(enum kind kind, const char *name)
{
    ck_assert_uint_lt(call_count, CALLS_MAX);
    struct call *call = &calls[call_count++];
    *call = (struct call){.kind = kind};
    (void)snprintf(call->name, sizeof(call->name), "%s", name);
    return call;
}

void power_files_watch(const char *directory)
{
    (void)snprintf(root, sizeof(root), "%s", directory);
    watching = true;
    call_count = file_count = name_count = 0;
    memset(file_of, 0, sizeof(file_of));
}

uint32_t power_files_calls(void)
{
    return call_count;
}

#define REAL(name) __real_##name
/* The linker's names. NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

int REAL(open)(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    mode_t mode = 0;
    if ((flags & O_CREAT) != 0) {
        va_list arguments;
        va_start(arguments, flags);
        mode = va_arg(arguments, mode_t);
        va_end(arguments);
    }
    const char *name = inside(path);
    bool there = name != NULL && access(path, F_OK) == 0;
    int fd = REAL(open)(path, flags, mode);
    if (fd < 0 || !watching) {
        return fd;
    }
    ck_assert_int_lt(fd, FDS_MAX);
    file_of[fd] = strcmp(path, root) == 0 ? DIRECTORY : 0;
    if (name == NULL || (flags & O_ACCMODE) == O_RDONLY) {
        return fd;
    }
    if (!there) {
        ck_assert_uint_lt(file_count, FILES_MAX);
        files[file_count].length = 0;
        struct call *call = note(CALL_MAKE, name);
        call->file = file_count++;
        call->mode = mode;
        names_take(call);
    }
    uint32_t file = name_find(name)->file;
    file_of[fd] = file + 1;
    if (there && (flags & O_TRUNC) != 0) {
        note(CALL_CUT, name)->file = file;
        files[file].length = 0;
    }
    return fd;
}

ssize_t REAL(write)(int fd, const void *bytes, size_t length);
ssize_t __wrap_write(int fd, const void *bytes, size_t length);
ssize_t __wrap_write(int fd, const void *bytes, size_t length)
{
    ssize_t wrote = REAL(write)(fd, bytes, length);
    uint32_t file = watching && fd >= 0 && fd < FDS_MAX ? file_of[fd] : 0;
    if (wrote > 0 && file > 0 && file <= FILES_MAX) {
        struct file *to = &files[file - 1];
        ck_assert_uint_le(to->length + (size_t)wrote, TEXT_BYTES);
        memcpy(to->text + to->length, bytes, (size_t)wrote);
        to->length += (size_t)wrote;
        struct call *call = note(CALL_WRITE, "");
        call->file = file - 1;
        call->length = to->length;
    }
    return wrote;
}

int REAL(fsync)(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    int code = REAL(fsync)(fd);
    uint32_t file = watching && fd >= 0 && fd < FDS_MAX ? file_of[fd] : 0;
    if (code == 0 && file > 0) {
        struct call *call = note(file == DIRECTORY ? CALL_SYNC_NAMES : CALL_SYNC, "");
        call->file = file - 1;
    }
    return code;
}

int REAL(close)(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    if (fd >= 0 && fd < FDS_MAX) {
        file_of[fd] = 0;
    }
    return REAL(close)(fd);
}

int REAL(rename)(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    int code = REAL(rename)(from, to);
    if (code == 0 && inside(from) != NULL) {
        struct call *call = note(CALL_RENAME, inside(from));
        (void)snprintf(call->to, sizeof(call->to), "%s", inside(to));
        names_take(call);
    }
    return code;
}

int REAL(link)(const char *from, const char *to);
int __wrap_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to)
{
    int code = REAL(link)(from, to);
    if (code == 0 && inside(from) != NULL) {
        struct call *call = note(CALL_LINK, inside(from));
        (void)snprintf(call->to, sizeof(call->to), "%s", inside(to));
        names_take(call);
    }
    return code;
}

int REAL(unlink)(const char *path);
int __wrap_unlink(const char *path);
int __wrap_unlink(const char *path)
{
    int code = REAL(unlink)(path);
    if (code == 0 && inside(path) != NULL) {
        names_take(note(CALL_UNLINK, inside(path)));
    }
    return code;
}
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

/* ---- what is left ---- */

/* Of the file, when the power goes after so many calls: all, or what was synced. A cut that was not
 * synced may be there too, which is the same as nothing. */
static size_t length_left(uint32_t file, uint32_t cut, bool kept)
{
    size_t now = 0, synced = 0;
    for (uint32_t i = 0; i < cut; i++) {
        if (calls[i].file != file) {
            continue;
        }
        now = calls[i].kind == CALL_WRITE || calls[i].kind == CALL_CUT ? calls[i].length : now;
        synced = calls[i].kind == CALL_SYNC ? now : synced;
    }
    return kept ? now : SL_MIN(synced, now);
}

static void directory_empty(const char *path)
{
    DIR *directory = opendir(path);
    ck_assert_ptr_nonnull(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        char file[1400];
        (void)snprintf(file, sizeof(file), "%.1000s/%.255s", path, entry->d_name);
        (void)unlink(file);
    }
    (void)closedir(directory);
}

static void state_make(const char *into, uint32_t names_at, uint32_t cut, bool kept)
{
    directory_empty(into);
    name_count = 0;
    for (uint32_t i = 0; i < names_at; i++) {
        names_take(&calls[i]);
    }
    for (uint32_t i = 0; i < name_count; i++) {
        char path[1400];
        size_t length = length_left(names[i].file, cut, kept);
        (void)snprintf(path, sizeof(path), "%.1000s/%.63s", into, names[i].name);
        int fd = REAL(open)(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, names[i].mode);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(REAL(write)(fd, files[names[i].file].text, length), (ssize_t)length);
        ck_assert_int_eq(REAL(close)(fd), 0);
    }
}

uint32_t power_files_cut(const char *into, void (*each)(void *context, uint32_t calls_before),
                         void *context)
{
    uint32_t states = 0, durable = 0;
    watching = false;
    for (uint32_t cut = 0; cut <= call_count; cut++) {
        durable = cut > 0 && calls[cut - 1].kind == CALL_SYNC_NAMES ? cut : durable;
        for (uint32_t names_at = durable; names_at <= cut; names_at++) {
            for (uint32_t kept = 0; kept < 2; kept++) {
                state_make(into, names_at, cut, kept == 1);
                each(context, cut);
                states++;
            }
        }
    }
    return states;
}
