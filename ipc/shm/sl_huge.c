/* ipc/shm/sl_huge.c - reads the mount options of a tmpfs and the system's policy for it. */
#include "ipc/shm/sl_huge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define POLICY_PATH "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
#define MOUNTS_PATH "/proc/self/mountinfo"

/* A line: id, parent, major:minor, root, place, options, [fields], "-", type, source, options of
 * the file system. */
static bool mount_allows(char *line, char why[SL_HUGE_TEXT_BYTES])
{
    char *fields = strstr(line, " - "), *options = NULL;
    if (fields != NULL) {
        fields += 3;
    }
    const char *type = strsep(&fields, " ");
    (void)strsep(&fields, " "); /* the source, which may be empty */
    options = strsep(&fields, " \n");
    if (type == NULL || strcmp(type, "tmpfs") != 0) {
        (void)snprintf(why, SL_HUGE_TEXT_BYTES, "its file system is not a tmpfs");
        return false;
    }
    for (const char *option; (option = strsep(&options, ",")) != NULL;) {
        if (strncmp(option, "huge=", 5) == 0 && strcmp(option, "huge=never") != 0) {
            (void)snprintf(why, SL_HUGE_TEXT_BYTES, "its tmpfs is mounted with %.40s", option);
            return true;
        }
    }
    (void)snprintf(why, SL_HUGE_TEXT_BYTES,
                   "its tmpfs is mounted without huge=advise (mount -o remount,huge=advise)");
    return false;
}

bool sl_huge_from(FILE *mounts, const char *policy, dev_t device, char why[SL_HUGE_TEXT_BYTES])
{
    if (strstr(policy, "[deny]") != NULL || policy[0] == '\0') {
        (void)snprintf(why, SL_HUGE_TEXT_BYTES,
                       policy[0] == '\0' ? "the system has none"
                                         : "the system denies them to shared memory");
        return false;
    }
    if (strstr(policy, "[force]") != NULL) {
        (void)snprintf(why, SL_HUGE_TEXT_BYTES, "the system forces them on shared memory");
        return true;
    }
    SL_AUTO(free) char *line = NULL;
    size_t room = 0;
    unsigned of_major = 0, of_minor = 0;
    while (mounts != NULL && getline(&line, &room, mounts) > 0) {
        if (sscanf(line, "%*d %*d %u:%u", &of_major, &of_minor) == 2 &&
            makedev(of_major, of_minor) == device) {
            return mount_allows(line, why);
        }
    }
    (void)snprintf(why, SL_HUGE_TEXT_BYTES, "its mount is not listed");
    return false;
}

bool sl_huge_pages(const char *directory, char why[SL_HUGE_TEXT_BYTES])
{
    struct stat about;
    char policy[128] = "";
    if (stat(directory, &about) != 0) {
        (void)snprintf(why, SL_HUGE_TEXT_BYTES, "its directory cannot be looked at (errno %d)",
                       errno);
        return false;
    }
    FILE *mounts = fopen(MOUNTS_PATH, "re"), *file = fopen(POLICY_PATH, "re");
    if (file != NULL && fgets(policy, sizeof(policy), file) == NULL) {
        policy[0] = '\0';
    }
    bool allowed = sl_huge_from(mounts, policy, about.st_dev, why);
    if (mounts != NULL) {
        (void)fclose(mounts);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return allowed;
}
