/* runtime/base/sl_limits.c - reads limits of cgroups from /proc/PID/cgroup and
 * /proc/self/mountinfo, and computes what a node needs. */
#include "runtime/base/sl_limits.h"
#include "runtime/base/metrics_page.h"
#include "runtime/base/sl_parse.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define LINE_BYTES  4096
#define LEVELS_MAX  64u                 /* of a path */
#define V1_NO_LIMIT (UINT64_C(1) << 60) /* version 1 shows about 2^63 for no limit */

/* Memory of a node besides values and indexes: actors, their metrics, staging, page tables. It
 * includes the default values of these settings. */
#define ROOM_BYTES        (256 * SL_MIB)
#define ROOM_RANK_BYTES   (64 * SL_MIB)
#define ROOM_EVENTS       UINT64_C(65536)
#define ROOM_ENTRIES      UINT64_C(65536)
#define ROOM_DISK_STAGING (64 * SL_MIB)
#define ROOM_SWAP_STAGING (32 * SL_MIB)
#define GHOST_BYTES       48u
#define RESERVATION_BYTES 256u /* a claim in the registrar */

/* ---- files with a number ---- */

/* Reads the number after `key`, or the first one if key is ""; false: none, or "max". */
static bool number_read(const char *directory, const char *name, const char *key, uint64_t *out)
{
    char path[PATH_MAX], line[LINE_BYTES];
    bool found = false;
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    SL_AUTO(fclose) FILE *file = fopen(path, "re");
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        size_t length = strlen(key);
        const char *rest = NULL;
        found = strncmp(line, key, length) == 0 && (length == 0 || line[length] == ' ') &&
                sl_parse_digits(line + length + (length > 0), out, &rest) == SL_OK;
    }
    return found;
}

/* ---- one level of one hierarchy ---- */

/* Records the limit if it is the tightest, and what `used` leaves of it. True: it is. */
static bool limit_note(struct sl_limit *limit, uint64_t most, uint64_t used, const char *directory,
                       const char *name)
{
    limit->left = SL_MIN(limit->left, most - SL_MIN(used, most));
    if (most >= limit->most) {
        return false;
    }
    limit->most = most;
    (void)snprintf(limit->file, sizeof limit->file, "%s/%s", directory, name);
    return true;
}

/* Of both versions; a hierarchy has the files of one. hierarchical_memory_limit includes levels
 * that this mount does not show. */
static const struct {
    const char *file, *key; /* of the limit */
    const char *usage, *inactive, *active, *events;
} memory_files[] = {
    {"memory.max", "", "memory.current", "inactive_file", "active_file", "memory.events"},
    {"memory.high", "", "memory.current", "inactive_file", "active_file", "memory.events"},
    {"memory.limit_in_bytes", "", "memory.usage_in_bytes", "total_inactive_file",
     "total_active_file", "memory.oom_control"},
    {"memory.stat", "hierarchical_memory_limit", "memory.usage_in_bytes", "total_inactive_file",
     "total_active_file", "memory.oom_control"},
};

static void memory_read(const char *at, struct sl_limits *out)
{
    for (size_t i = 0; i < SL_COUNT(memory_files); i++) {
        uint64_t most = 0, used = 0, inactive = 0, active = 0;
        if (!number_read(at, memory_files[i].file, memory_files[i].key, &most) ||
            most >= V1_NO_LIMIT) {
            continue;
        }
        (void)number_read(at, memory_files[i].usage, "", &used);
        (void)number_read(at, "memory.stat", memory_files[i].inactive, &inactive);
        (void)number_read(at, "memory.stat", memory_files[i].active, &active);
        /* Page cache is reclaimed when memory is needed; shared memory is not counted as such. */
        used -= SL_MIN(inactive + active, used);
        if (limit_note(&out->memory, most, used, at, memory_files[i].file)) {
            out->oom_kills = 0;
            (void)number_read(at, memory_files[i].events, "oom_kill", &out->oom_kills);
        }
    }
}

/* cpu.max has "QUOTA PERIOD" or "max PERIOD"; version 1's quota of -1 is not parsed as a number. */
static void cores_read(const char *at, struct sl_limits *out)
{
    uint64_t quota = 0, period = 0;
    const char *name = "cpu.max";
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", at, name);
    FILE *file = fopen(path, "re");
    bool both = file != NULL && fscanf(file, "%" SCNu64 " %" SCNu64, &quota, &period) == 2;
    if (file != NULL) {
        (void)fclose(file);
    }
    if (!both) {
        name = "cpu.cfs_quota_us";
        period = 0;
        (void)(number_read(at, name, "", &quota) &&
               number_read(at, "cpu.cfs_period_us", "", &period));
    }
    if (period > 0 && quota < UINT64_MAX / 1000) {
        (void)limit_note(&out->cores, quota * 1000 / period, 0, at, name);
    }
}

static void processes_read(const char *at, struct sl_limits *out)
{
    uint64_t most = 0, used = 0;
    if (number_read(at, "pids.max", "", &most)) {
        (void)number_read(at, "pids.current", "", &used);
        (void)limit_note(&out->processes, most, used, at, "pids.max");
    }
}

/* ---- hierarchies ---- */

static const struct controller {
    const char *name; /* "": version 2, which has all controllers in one hierarchy */
    void (*read)(const char *at, struct sl_limits *out);
} controllers[] = {
    {"", memory_read},       {"", cores_read},    {"", processes_read},
    {"memory", memory_read}, {"cpu", cores_read}, {"pids", processes_read},
};

/* Whether a comma-separated list has the word. */
static bool list_has(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; *at != '\0'; at += strspn(at, ",")) {
        size_t entry = strcspn(at, ",\n");
        if (entry == length && strncmp(at, word, length) == 0) {
            return true;
        }
        at += entry + (at[entry] == '\n');
    }
    return false;
}

struct mount {
    char root[LINE_BYTES]; /* the part of the hierarchy that is mounted */
    char at[LINE_BYTES];
};

/* Finds the mount of the hierarchy with this controller. */
static bool mount_find(const char *root, const char *controller, struct mount *out)
{
    char path[PATH_MAX], line[LINE_BYTES], type[32], options[LINE_BYTES];
    bool found = false;
    (void)snprintf(path, sizeof path, "%s/proc/self/mountinfo", root);
    SL_AUTO(fclose) FILE *file = fopen(path, "re");
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        const char *behind = strstr(line, " - ");
        found =
            behind != NULL && sscanf(line, "%*s %*s %*s %4095s %4095s", out->root, out->at) == 2 &&
            sscanf(behind, " - %31s %*s %4095s", type, options) == 2 &&
            (controller[0] == '\0' ? strcmp(type, "cgroup2") == 0
                                   : strcmp(type, "cgroup") == 0 && list_has(options, controller));
    }
    return found;
}

/* The part of a cgroup's path below the mount; "": the mount's root, also if the path belongs to
 * another namespace. */
static const char *path_below(const struct mount *mount, const char *path)
{
    size_t length = strlen(mount->root);
    length -= length == 1; /* "/" */
    bool below = strncmp(path, mount->root, length) == 0 &&
                 (path[length] == '/' || path[length] == '\0') && strstr(path, "/..") == NULL;
    return below && strcmp(path + length, "/") != 0 ? path + length : "";
}

/* Reads a controller's files in the process's own cgroup and in all above it. */
static void levels_read(const char *root, const struct controller *controller, const char *path,
                        struct sl_limits *out)
{
    struct mount mount;
    char at[PATH_MAX];
    if (!mount_find(root, controller->name, &mount)) {
        return;
    }
    int top = snprintf(at, sizeof at, "%s%s", root, mount.at);
    int used = snprintf(at, sizeof at, "%s%s%s", root, mount.at, path_below(&mount, path));
    for (uint32_t i = 0; used < (int)sizeof at && i < LEVELS_MAX; i++) {
        controller->read(at, out);
        char *slash = strrchr(at, '/');
        if (slash == NULL || slash < at + top) {
            return;
        }
        *slash = '\0';
    }
}

static void cgroups_read(const char *root, const char *process, struct sl_limits *out)
{
    char path[PATH_MAX], line[LINE_BYTES];
    (void)snprintf(path, sizeof path, "%s/proc/%s/cgroup", root, process);
    SL_AUTO(fclose) FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) { /* NUMBER:CONTROLLERS:PATH */
        char *list = strchr(line, ':');
        char *own = list != NULL ? strchr(list + 1, ':') : NULL;
        if (own == NULL) {
            continue;
        }
        *own++ = '\0';
        own[strcspn(own, "\n")] = '\0';
        for (size_t i = 0; i < SL_COUNT(controllers); i++) {
            bool here = controllers[i].name[0] == '\0' ? list[1] == '\0'
                                                       : list_has(list + 1, controllers[i].name);
            if (here) {
                levels_read(root, &controllers[i], own, out);
            }
        }
    }
}

void sl_limits_read(const char *root, uint32_t pid, struct sl_limits *out)
{
    char process[16] = "self";
    if (pid != 0) {
        (void)snprintf(process, sizeof process, "%" PRIu32, pid);
    }
    const struct sl_limit none = {.most = SL_NO_LIMIT, .left = SL_NO_LIMIT};
    *out = (struct sl_limits){.memory = none, .cores = none, .processes = none};
    cgroups_read(root, process, out);
}

bool sl_file_size_allowed(uint64_t bytes)
{
    struct rlimit limit;
    uint64_t most = getrlimit(RLIMIT_FSIZE, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
    return bytes <= SL_MIN(most, (uint64_t)INT64_MAX);
}

int sl_file_resize(int fd, uint64_t bytes)
{
    if (!sl_file_size_allowed(bytes)) {
        errno = EFBIG;
        return -1;
    }
    return ftruncate(fd, (off_t)bytes);
}

/* ---- what a node needs ---- */

static uint64_t disks_of(const struct sl_config *config)
{
    return sl_config_u64(config, SL_SET_disk) > 0 ? sl_config_disk_count(config) : 0;
}

uint64_t sl_limits_actors(const struct sl_config *config)
{
    return 4 + sl_config_u64(config, SL_SET_ranks) + disks_of(config);
}

uint64_t sl_limits_page_bytes(const struct sl_config *config)
{
    return sizeof(struct metrics_page) +
           sl_config_u64(config, SL_SET_trace_events) * sizeof(struct metrics_event);
}

/* Excess of a setting over what ROOM_BYTES includes. */
static uint64_t above(const struct sl_config *config, enum sl_setting setting, uint64_t counted)
{
    uint64_t value = sl_config_u64(config, setting);
    return value - SL_MIN(value, counted);
}

uint64_t sl_limits_room_bytes(const struct sl_config *config)
{
    uint64_t ranks = sl_config_u64(config, SL_SET_ranks);
    return ROOM_BYTES + ROOM_RANK_BYTES * ranks +
           above(config, SL_SET_trace_events, ROOM_EVENTS) * sizeof(struct metrics_event) *
               sl_limits_actors(config) +
           above(config, SL_SET_swap_staging, ROOM_SWAP_STAGING) * ranks +
           above(config, SL_SET_disk_staging, ROOM_DISK_STAGING) * disks_of(config) +
           above(config, SL_SET_ghosts_max, ROOM_ENTRIES) * GHOST_BYTES +
           above(config, SL_SET_reservations_max, ROOM_ENTRIES) * RESERVATION_BYTES;
}

uint64_t sl_limits_memory_default(const struct sl_config *config, const struct sl_limits *limits,
                                  uint64_t shm_free_bytes)
{
    /* With contributions the size is only a limit: memory is taken as processes contribute. */
    uint64_t standard = sl_config_bool(config, SL_SET_contributions)
                            ? UINT64_MAX
                            : sl_config_u64(config, SL_SET_memory);
    uint64_t memory = SL_MIN(standard, shm_free_bytes / 5 * 4);
    if (limits->memory.most != SL_NO_LIMIT) {
        memory = SL_MIN(memory, limits->memory.left / 2);
        uint64_t beside = sl_limits_room_bytes(config) + sl_config_index_memory(config);
        memory = SL_MIN(memory, limits->memory.most - SL_MIN(beside, limits->memory.most));
    }
    return SL_MAX(memory / SL_MIB, 1u) * SL_MIB;
}
