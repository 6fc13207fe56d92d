/* ipc/sl_huge.c - reads the mount options of a tmpfs and the system's policy for it. */
#include "ipc/sl_huge.h"
#include "runtime/sl_array.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define POLICY_PATH     "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
#define MOUNTS_PATH     "/proc/self/mountinfo"
#define TEXT_BYTES_MAX  (4 * SL_MIB)
#define TEXT_BYTES_STEP 4096u

/* Whether the line's third word is the device. A line: id, parent, major:minor, root, place,
 * options, [fields], "-", type, source, options of the file system. */
static bool line_is_of(const char *line, const struct sl_huge_facts *facts)
{
    unsigned device_major = 0, device_minor = 0;
    return sscanf(line, "%*d %*d %u:%u", &device_major, &device_minor) == 2 &&
           device_major == facts->device_major && device_minor == facts->device_minor;
}

/* The value of an option "huge=VALUE" among comma-separated ones; length 0: not there. */
static const char *huge_option(const char *options, const char *end, size_t *length)
{
    *length = 0;
    for (const char *at = options; at < end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma == NULL ? end : comma;
        if (stop - at > 5 && memcmp(at, "huge=", 5) == 0) {
            *length = (size_t)(stop - at) - 5;
            return at + 5;
        }
        at = stop + 1;
    }
    return options;
}

static bool mount_allows(const char *line, const char *end, char why[SL_HUGE_TEXT_BYTES])
{
    const char *dash = strstr(line, " - ");
    if (dash == NULL || dash >= end || end - dash < 9 || memcmp(dash + 3, "tmpfs ", 6) != 0) {
        (void)snprintf(why, SL_HUGE_TEXT_BYTES, "its file system is not a tmpfs");
        return false;
    }
    const char *source = dash + 9;
    const char *options = memchr(source, ' ', (size_t)(end - source));
    size_t length = 0;
    const char *value = options == NULL ? NULL : huge_option(options + 1, end, &length);
    if (value == NULL || length == 0 || (length == 5 && memcmp(value, "never", 5) == 0)) {
        (void)snprintf(why, SL_HUGE_TEXT_BYTES,
                       "its tmpfs is mounted without huge=advise (mount -o remount,huge=advise)");
        return false;
    }
    (void)snprintf(why, SL_HUGE_TEXT_BYTES, "its tmpfs is mounted with huge=%.*s",
                   (int)SL_MIN(length, 32u), value);
    return true;
}

bool sl_huge_from(const struct sl_huge_facts *facts, char why[SL_HUGE_TEXT_BYTES])
{
    if (strstr(facts->policy, "[deny]") != NULL || facts->policy[0] == '\0') {
        (void)snprintf(why, SL_HUGE_TEXT_BYTES,
                       facts->policy[0] == '\0' ? "the system has none"
                                                : "the system denies them to shared memory");
        return false;
    }
    if (strstr(facts->policy, "[force]") != NULL) {
        (void)snprintf(why, SL_HUGE_TEXT_BYTES, "the system forces them on shared memory");
        return true;
    }
    for (const char *line = facts->mounts; *line != '\0';) {
        const char *end = strchr(line, '\n');
        end = end == NULL ? line + strlen(line) : end;
        if (line_is_of(line, facts)) {
            return mount_allows(line, end, why);
        }
        line = *end == '\0' ? end : end + 1;
    }
    (void)snprintf(why, SL_HUGE_TEXT_BYTES, "its mount is not listed");
    return false;
}

/* All of a file of /proc or /sys, zero-terminated; NULL: not readable. */
static char *text_read(const char *path)
{
    FILE *file = fopen(path, "re");
    char *text = NULL;
    size_t used = 0, room = 0;
    while (file != NULL && used < TEXT_BYTES_MAX) {
        if (!SL_ARRAY_ROOM(text, room, used + TEXT_BYTES_STEP)) {
            break;
        }
        size_t got = fread(text + used, 1, room - used - 1, file);
        used += got;
        text[used] = '\0';
        if (got == 0) {
            break;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return text;
}

bool sl_huge_pages(const char *directory, char why[SL_HUGE_TEXT_BYTES])
{
    struct stat about;
    if (stat(directory, &about) != 0) {
        (void)snprintf(why, SL_HUGE_TEXT_BYTES, "its directory cannot be looked at (errno %d)",
                       errno);
        return false;
    }
    SL_AUTO(free) char *mounts = text_read(MOUNTS_PATH);
    SL_AUTO(free) char *policy = text_read(POLICY_PATH);
    const struct sl_huge_facts facts = {.mounts = mounts == NULL ? "" : mounts,
                                        .policy = policy == NULL ? "" : policy,
                                        .device_major = major(about.st_dev),
                                        .device_minor = minor(about.st_dev)};
    return sl_huge_from(&facts, why);
}
