/* tests/sim/sim_files.c - files of processes with threads: real files, with the losses that a power
 * cut may cause. A file keeps what was synced; later writes survive or not. Names revert to some
 * moment between the last sync of their directory and the cut. */
#include "tests/sim/sim_internal.h"
#include "tests/sim/sim_process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAMES_MAX   256u
#define CHANGES_MAX 64u
#define FDS_MAX     1024
#define NAME_BYTES  64u
#define STEP_ONE_OF 5u
#define STEP_NS_MAX (2 * SL_NS_PER_MS)
#define PATH_BYTES  1400u

bool sim_files_sync_nothing;

struct file {
    char *text; /* current content */
    size_t length, synced;
    mode_t mode;
};
struct name {
    char name[NAME_BYTES];
    struct file *file;
};
struct names {
    struct name at[NAMES_MAX];
    uint32_t count;
};
enum change_kind { CHANGE_SET, CHANGE_DROP, CHANGE_RENAME };
struct change { /* of names */
    enum change_kind kind;
    char name[NAME_BYTES], to[NAME_BYTES];
    struct file *file;
};
struct place { /* a directory of a host */
    char root[256];
    struct names now, durable;
    struct change changes[CHANGES_MAX]; /* since the last sync */
    uint32_t change_count;
    uint64_t full_until_ns;
};
struct open_file {
    struct file *file;
    struct place *directory; /* NULL unless it is a directory */
};
static struct place places[SIM_HOSTS_MAX];
static struct open_file open_files[FDS_MAX];

/* ---- names ---- */

static struct name *name_find(struct names *names, const char *name)
{
    for (uint32_t i = 0; i < names->count; i++) {
        if (strcmp(names->at[i].name, name) == 0) {
            return &names->at[i];
        }
    }
    return NULL;
}

static void name_set(struct names *names, const char *text, struct file *file)
{
    struct name *name = name_find(names, text);
    if (name == NULL) {
        SIM_CHECK(names->count < NAMES_MAX, "too many files");
        name = &names->at[names->count++];
        (void)snprintf(name->name, sizeof(name->name), "%s", text);
    }
    name->file = file;
}

static void name_drop(struct names *names, const char *text)
{
    struct name *name = name_find(names, text);
    if (name != NULL) {
        *name = names->at[--names->count];
    }
}

static void change_do(struct names *names, const struct change *change)
{
    if (change->kind == CHANGE_RENAME) {
        name_set(names, change->to, change->file);
    }
    if (change->kind == CHANGE_SET) {
        name_set(names, change->name, change->file);
    } else {
        name_drop(names, change->name);
    }
}

static void change_note(struct place *place, const struct change *change)
{
    change_do(&place->now, change);
    if (place->change_count == CHANGES_MAX) { /* the oldest is certainly on disk by now */
        change_do(&place->durable, &place->changes[0]);
        memmove(place->changes, place->changes + 1,
                sizeof(place->changes) - sizeof(place->changes[0]));
        place->change_count--;
    }
    place->changes[place->change_count++] = *change;
}

/* The directory that has this file, and its name there. */
static struct place *place_of(const char *path, char name[NAME_BYTES])
{
    for (uint32_t i = 0; sim_thread_running() != NULL && i < SIM_HOSTS_MAX; i++) {
        struct place *place = &places[i];
        size_t length = strlen(place->root);
        if (length > 0 && strncmp(path, place->root, length) == 0 && path[length] == '/' &&
            strchr(path + length + 1, '/') == NULL) {
            (void)snprintf(name, NAME_BYTES, "%s", path + length + 1);
            return place;
        }
    }
    return NULL;
}

void sim_files_watch(uint32_t host, const char *directory)
{
    struct place *place = &places[host];
    memset(place, 0, sizeof(*place));
    (void)snprintf(place->root, sizeof(place->root), "%s", directory);
}

void sim_files_full(uint32_t host, uint64_t until_ns)
{
    places[host].full_until_ns = until_ns;
}

/* ---- the cut ---- */

static void directory_empty(const char *path)
{
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        char file[PATH_BYTES];
        (void)snprintf(file, sizeof(file), "%.1000s/%.255s", path, entry->d_name);
        (void)unlink(file);
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
}

void sim_files_empty(uint32_t host)
{
    char root[sizeof(places[host].root)];
    memcpy(root, places[host].root, sizeof(root));
    directory_empty(root);
    sim_files_watch(host, root);
}

static void file_leave(struct sim *sim, const struct place *place, const struct name *name)
{
    char path[PATH_BYTES];
    struct file *file = name->file;
    file->length = sim_random_below(sim, 2) == 0 ? file->synced : file->length;
    file->synced = file->length;
    (void)snprintf(path, sizeof(path), "%.1000s/%.63s", place->root, name->name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, file->mode);
    SIM_CHECK(fd >= 0 && write(fd, file->text, file->length) == (ssize_t)file->length,
              "cannot make %s", path);
    (void)close(fd);
}

void sim_files_cut(struct sim *sim, uint32_t host)
{
    struct place *place = &places[host];
    uint64_t kept = sim_random_below(sim, place->change_count + 1);
    if (place->root[0] == '\0') {
        return;
    }
    for (uint32_t i = 0; i < kept; i++) {
        change_do(&place->durable, &place->changes[i]);
    }
    place->now = place->durable;
    place->change_count = 0;
    directory_empty(place->root);
    for (uint32_t i = 0; i < place->now.count; i++) {
        file_leave(sim, place, &place->now.at[i]);
    }
}

/* ---- calls ---- */

/* Before a call changes anything, other threads may run, and the process may be killed. */
static void step(void)
{
    if (sim_random_below(sim_world, STEP_ONE_OF) == 0) {
        sim_sleep(1 + sim_random_below(sim_world, STEP_NS_MAX));
    }
}

static struct open_file *file_of(int fd)
{
    return sim_thread_running() != NULL && fd >= 0 && fd < FDS_MAX ? &open_files[fd] : NULL;
}

#define REAL(name) __real_##name
/* The linker's names. NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

int REAL(open)(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    char text[NAME_BYTES];
    mode_t mode = 0;
    if ((flags & O_CREAT) != 0) {
        va_list arguments;
        va_start(arguments, flags);
        mode = va_arg(arguments, mode_t);
        va_end(arguments);
    }
    struct place *place = place_of(path, text);
    bool writes = place != NULL && (flags & O_ACCMODE) != O_RDONLY;
    if (writes) {
        step();
    }
    if (writes && place->full_until_ns > sim_world->now_ns) {
        errno = ENOSPC;
        return -1;
    }
    int fd = REAL(open)(path, flags, mode);
    if (fd < 0 || file_of(fd) == NULL) {
        return fd;
    }
    open_files[fd] = (struct open_file){0};
    for (uint32_t i = 0; i < SIM_HOSTS_MAX; i++) {
        if (strcmp(path, places[i].root) == 0) {
            open_files[fd].directory = &places[i];
        }
    }
    if (!writes) {
        return fd;
    }
    struct name *name = name_find(&place->now, text);
    if (name == NULL) {
        struct change change = {.kind = CHANGE_SET, .file = calloc(1, sizeof(struct file))};
        SIM_CHECK(change.file != NULL, "out of memory");
        change.file->mode = mode;
        (void)snprintf(change.name, sizeof(change.name), "%s", text);
        change_note(place, &change);
        name = name_find(&place->now, text);
    }
    open_files[fd].file = name->file;
    if ((flags & O_TRUNC) != 0) {
        name->file->length = name->file->synced = 0;
    }
    return fd;
}

ssize_t REAL(write)(int fd, const void *bytes, size_t length);
ssize_t __wrap_write(int fd, const void *bytes, size_t length);
ssize_t __wrap_write(int fd, const void *bytes, size_t length)
{
    if (sim_tcp_has(fd)) {
        uint64_t value = 0;
        memcpy(&value, bytes, SL_MIN(length, sizeof(value)));
        sim_tcp_event_add(fd, value);
        return (ssize_t)length;
    }
    struct file *file = file_of(fd) != NULL ? open_files[fd].file : NULL;
    if (file != NULL) {
        step();
    }
    ssize_t wrote = REAL(write)(fd, bytes, length);
    if (file != NULL && wrote > 0) {
        file->text = realloc(file->text, file->length + (size_t)wrote);
        SIM_CHECK(file->text != NULL, "out of memory");
        memcpy(file->text + file->length, bytes, (size_t)wrote);
        file->length += (size_t)wrote;
    }
    return wrote;
}

int REAL(fsync)(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    struct open_file *at = file_of(fd);
    if (at == NULL || (at->file == NULL && at->directory == NULL)) {
        return REAL(fsync)(fd);
    }
    step();
    if (sim_files_sync_nothing) {
        return 0;
    }
    if (at->file != NULL) {
        at->file->synced = at->file->length;
    } else {
        at->directory->durable = at->directory->now;
        at->directory->change_count = 0;
    }
    return 0;
}

int REAL(rename)(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    struct change change = {.kind = CHANGE_RENAME};
    struct place *place = place_of(from, change.name);
    if (place == NULL) {
        return REAL(rename)(from, to);
    }
    step();
    int code = REAL(rename)(from, to);
    if (code == 0) {
        (void)place_of(to, change.to);
        change.file = name_find(&place->now, change.name)->file;
        change_note(place, &change);
    }
    return code;
}

int REAL(link)(const char *from, const char *to);
int __wrap_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to)
{
    char source[NAME_BYTES];
    struct change change = {.kind = CHANGE_SET};
    struct place *place = place_of(from, source);
    if (place == NULL) {
        return REAL(link)(from, to);
    }
    step();
    int code = REAL(link)(from, to);
    if (code == 0) {
        (void)place_of(to, change.name);
        change.file = name_find(&place->now, source)->file;
        change_note(place, &change);
    }
    return code;
}

int REAL(unlink)(const char *path);
int __wrap_unlink(const char *path);
int __wrap_unlink(const char *path)
{
    struct change change = {.kind = CHANGE_DROP};
    struct place *place = place_of(path, change.name);
    if (place == NULL) {
        return REAL(unlink)(path);
    }
    step();
    int code = REAL(unlink)(path);
    if (code == 0) {
        change_note(place, &change);
    }
    return code;
}
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
