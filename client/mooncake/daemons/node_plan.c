/* client/mooncake/daemons/node_plan.c - the settings of the node that stand behind a master's
 * flags. */
#include "client/mooncake/daemons/node.h"
#include "client/mooncake/store/instance.h"
#include "runtime/sl_disk_place.h"
#include "runtime/sl_node_dirs.h"
#include "runtime/sl_parse.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define SOURCE              "its flags"
#define SETTINGS_BYTES_MAX  ((size_t)64 << 10)
#define MEMORY_PERCENT      80u           /* of what shared memory has free */
#define ROOM_BYTES_MIN      (96 * SL_MIB) /* tables, pages of processes, two steps of populating */
#define DISK_PERCENT        90u
#define DISK_DIR_STANDARD   "/data/file_storage"
#define DISK_BYTES_STANDARD (2048 * SL_GIB)
#define MEMORY_LINE         "\nmemory = "
#define DISK_LINE           "\ndisk = "

struct plan {
    struct mc_node *node;
    const struct mc_flags *flags;
    FILE *out;
};

void mc_node_instance(uint16_t port, char out[64])
{
    const char *set = getenv("SLUICE_INSTANCE");
    if (set != NULL && set[0] != '\0') {
        (void)snprintf(out, 64, "%.63s", set);
    } else {
        mc_instance_here(port, out);
    }
}

/* Checks it as the node's processes will, and writes its line. */
static sl_err setting_add(struct plan *plan, const char *name, struct sl_error *why,
                          const char *format, ...) SL_PRINTF(4, 5);
static sl_err setting_add(struct plan *plan, const char *name, struct sl_error *why,
                          const char *format, ...)
{
    char text[SL_SETTING_TEXT_BYTES_MAX + 1];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    struct sl_config *scratch = NULL;
    sl_err err = sl_config_create(&scratch, why);
    err = err == SL_OK ? sl_config_set(scratch, name, text, SOURCE, why) : err;
    sl_config_destroy(&scratch);
    if (err == SL_OK) {
        (void)fprintf(plan->out, "%s = %s\n", name, text);
    }
    return err;
}

/* ---- memory ---- */

/* The file's text, NULL: there is none. */
static char *settings_before(const struct mc_node *node)
{
    FILE *file = fopen(node->config_path, "re");
    if (file == NULL) {
        return NULL;
    }
    char *text = calloc(1, SETTINGS_BYTES_MAX);
    if (text != NULL) {
        text[fread(text, 1, SETTINGS_BYTES_MAX - 1, file)] = '\0';
    }
    (void)fclose(file);
    return text;
}

static bool memory_is_there(const struct mc_node *node)
{
    char path[1100];
    (void)snprintf(path, sizeof path, "%s/arena.0", node->paths.shm_dir);
    return access(path, F_OK) == 0;
}

/* What an earlier master chose for the node that is still there, or its memory; 0: nothing is. */
static uint64_t size_before(const struct mc_node *node, const char *line)
{
    if (!memory_is_there(node)) {
        return 0;
    }
    SL_AUTO(free) char *text = settings_before(node);
    const char *at = text != NULL ? strstr(text, line) : NULL;
    return at != NULL ? sl_parse_leading(at + strlen(line)) : 0;
}

/* Free bytes of the file system that has path, or the first directory above it that is there. */
static sl_err free_bytes(const char *path, uint64_t *free_out, uint64_t *total_out,
                         struct sl_error *why)
{
    char at[1100];
    struct statvfs room;
    (void)snprintf(at, sizeof at, "%s", path);
    while (statvfs(at, &room) != 0) {
        char *slash = strrchr(at, '/');
        if (errno != ENOENT || slash == NULL || at[1] == '\0') {
            return sl_fail_os(why, errno, "free space of '%.150s'", path);
        }
        slash[slash == at ? 1 : 0] = '\0';
    }
    *free_out = (uint64_t)room.f_bavail * room.f_frsize;
    *total_out = (uint64_t)room.f_blocks * room.f_frsize;
    return SL_OK;
}

static sl_err memory_add(struct plan *plan, struct sl_error *why)
{
    uint64_t bytes = mc_flags_u64(plan->flags, MASTER_memory);
    uint64_t free_now = 0;
    uint64_t total_bytes = 0;
    sl_err err = SL_OK;
    if (bytes == 0) {
        bytes = size_before(plan->node, MEMORY_LINE);
    }
    if (bytes == 0 || !memory_is_there(plan->node)) {
        err = free_bytes(plan->node->paths.shm_dir, &free_now, &total_bytes, why);
        if (err == SL_OK && total_bytes != 0 && free_now < ROOM_BYTES_MIN) {
            return sl_fail(why, SL_ERR_NO_SPACE,
                           "'%.100s' has %" PRIu64 " MiB free, and a node needs %" PRIu64
                           " at least: make room (df "
                           "-h /dev/shm), or give the container more (docker run --shm-size)",
                           plan->node->paths.shm_dir, free_now / SL_MIB, ROOM_BYTES_MIN / SL_MIB);
        }
        plan->node->room_bytes = total_bytes != 0 ? free_now : UINT64_MAX;
        bytes = bytes != 0 ? bytes : free_now / 100 * MEMORY_PERCENT / SL_MIB * SL_MIB;
    }
    return err == SL_OK ? setting_add(plan, "memory", why, "%" PRIu64, bytes) : err;
}

/* ---- disk ---- */

/* What a disk that lies there already takes; 0 also where none can: the start says why. */
static uint64_t disk_bytes_there(const char *path)
{
    char place[SL_DISK_PLACE_BYTES];
    return sl_disk_place_find(path, place, NULL) == SL_OK ? sl_dir_used_bytes(place) : 0;
}

/* Size of a variable of Mooncake's; `otherwise` when it is not set. */
static sl_err environment_size(const char *name, uint64_t otherwise, uint64_t *out,
                               struct sl_error *why)
{
    const char *text = getenv(name);
    *out = otherwise;
    if (text == NULL || text[0] == '\0') {
        return SL_OK;
    }
    if (sl_parse_count(text, out, NULL) != SL_OK) {
        return sl_fail(why, SL_ERR_CONFIG, "%s: '%.64s' is no number of bytes", name, text);
    }
    return SL_OK;
}

static bool environment_has(const char *name)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0';
}

/* The directory's name; from, where it was told. */
static const char *disk_dir(const struct plan *plan, const char **from)
{
    const char *root = mc_flags_text(plan->flags, MASTER_root_fs_dir);
    if (environment_has("SLUICE_DISK_PATH")) { /* ours, and it may name several */
        *from = "SLUICE_DISK_PATH";
        return getenv("SLUICE_DISK_PATH");
    }
    if (environment_has("MOONCAKE_OFFLOAD_FILE_STORAGE_PATH")) {
        *from = "MOONCAKE_OFFLOAD_FILE_STORAGE_PATH";
        return getenv("MOONCAKE_OFFLOAD_FILE_STORAGE_PATH");
    }
    *from = root[0] != '\0' ? "--root_fs_dir"
                            : "the default (MOONCAKE_OFFLOAD_FILE_STORAGE_PATH is not set)";
    return root[0] != '\0' ? root : DISK_DIR_STANDARD;
}

static sl_err disk_size(const struct plan *plan, const char *path, uint64_t *out,
                        struct sl_error *why)
{
    uint64_t free_now = 0;
    uint64_t total = 0;
    uint64_t limit = 0;
    uint64_t quota = mc_flags_u64(plan->flags, MASTER_quota_bytes);
    sl_err err = free_bytes(path, &free_now, &total, why);
    err = err == SL_OK ? environment_size("MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES",
                                          DISK_BYTES_STANDARD, &limit, why)
                       : err;
    if (err != SL_OK) {
        return err;
    }
    uint64_t usable = (free_now + disk_bytes_there(path)) / 100 * DISK_PERCENT;
    *out = SL_MIN(quota != 0 ? quota : usable, limit);
    *out = SL_MIN(*out, mc_flags_u64(plan->flags, MASTER_global_file_segment_size));
    *out = *out / SL_MIB * SL_MIB;
    return SL_OK;
}

static sl_err disk_add(struct plan *plan, struct sl_error *why)
{
    const char *from = NULL;
    const char *path = disk_dir(plan, &from);
    uint64_t bytes = 0;
    if (!mc_flags_bool(plan->flags, MASTER_enable_offload) &&
        mc_flags_text(plan->flags, MASTER_root_fs_dir)[0] == '\0') {
        return SL_OK;
    }
    if (path[0] != '/') {
        return sl_fail(why, SL_ERR_CONFIG, "%s: '%.128s' must begin with /", from, path);
    }
    if (strchr(path, ',') == NULL && mkdir(path, 0700) != 0 && errno != EEXIST) {
        int code = errno;
        struct sl_error told;
        (void)sl_fail_os(&told, code, "directory '%.100s'", path);
        return sl_fail(why, SL_ERR_CONFIG, "disk tier, by %s: %s", from, told.text);
    }
    sl_err err = disk_size(plan, path, &bytes, why);
    /* Only free space has changed since. */
    if (err == SL_OK && mc_flags_u64(plan->flags, MASTER_quota_bytes) == 0) {
        uint64_t before = size_before(plan->node, DISK_LINE);
        bytes = before != 0 ? before : bytes;
    }
    if (err == SL_OK && bytes == 0) { /* it would be a node without a disk tier */
        return sl_fail(why, SL_ERR_CONFIG,
                       "disk tier, by %s: no room at '%.100s', or less than 1 MiB asked for", from,
                       path);
    }
    err = err == SL_OK ? setting_add(plan, "disk", why, "%" PRIu64, bytes) : err;
    return err == SL_OK ? setting_add(plan, "disk_path", why, "%s", path) : err;
}

/* ---- all of them ---- */

static const char *strategy_of(const char *asked)
{
    static const struct {
        const char *asked, *ours;
    } known[] = {
        {"free_ratio_first", "free"}, {"ssd_free_ratio_first", "free"}, {"local_first", "local"}};
    for (size_t i = 0; i < SL_COUNT(known); i++) {
        if (strcmp(asked, known[i].asked) == 0) {
            return known[i].ours;
        }
    }
    return "random";
}

static sl_err terms_add(struct plan *plan, struct sl_error *why)
{
    const struct mc_flags *flags = plan->flags;
    const struct {
        const char *name;
        enum mc_master_flag flag;
    } durations[] = {{"lease_ttl", MASTER_default_kv_lease_ttl},
                     {"soft_pin_max", MASTER_max_kv_soft_pin_ttl},
                     {"put_preempt", MASTER_put_start_discard_timeout_sec},
                     {"put_release", MASTER_put_start_release_timeout_sec}};
    sl_err err = setting_add(plan, "contributions", why, "true");
    for (size_t i = 0; err == SL_OK && i < SL_COUNT(durations); i++) {
        uint64_t ms = mc_flags_u64(flags, durations[i].flag) / SL_NS_PER_MS;
        err = setting_add(plan, durations[i].name, why, "%" PRIu64 "ms", ms);
    }
    err = err == SL_OK ? setting_add(plan, "contribution_strategy", why, "%s",
                                     strategy_of(mc_flags_text(flags, MASTER_allocation_strategy)))
                       : err;
    err = err == SL_OK ? setting_add(plan, "evict_watermark", why, "%.6f",
                                     mc_flags_real(flags, MASTER_eviction_high_watermark_ratio))
                       : err;
    return err == SL_OK ? setting_add(plan, "evict_ratio", why, "%.6f",
                                      mc_flags_real(flags, MASTER_eviction_ratio))
                        : err;
}

static sl_err cluster_add(struct plan *plan, struct sl_error *why)
{
    char value[1024];
    const char *name = NULL;
    sl_err err = SL_OK;
    for (uint32_t i = 0; plan->node->cluster != NULL && err == SL_OK &&
                         mc_cluster_setting(plan->node->cluster, i, &name, value);
         i++) {
        err = setting_add(plan, name, why, "%s", value);
    }
    return err;
}

static sl_err settings_write(struct plan *plan, struct sl_error *why)
{
    const char *log_dir = mc_flags_text(plan->flags, MASTER_log_dir);
    sl_err err = memory_add(plan, why);
    err = err == SL_OK ? terms_add(plan, why) : err;
    err = err == SL_OK ? disk_add(plan, why) : err;
    err = err == SL_OK ? cluster_add(plan, why) : err;
    return err == SL_OK && log_dir[0] != '\0' ? setting_add(plan, "log_dir", why, "%s", log_dir)
                                              : err;
}

static sl_err settings_make(const struct mc_flags *flags, struct mc_node *node,
                            struct sl_error *why)
{
    size_t length = 0;
    struct plan plan = {
        .node = node, .flags = flags, .out = open_memstream(&node->settings, &length)};
    if (plan.out == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "settings");
    }
    (void)fprintf(plan.out, "# of mooncake_master, from its flags\n");
    sl_err err = settings_write(&plan, why);
    if (fclose(plan.out) != 0 && err == SL_OK) {
        err = sl_fail(why, SL_ERR_NO_MEMORY, "settings");
    }
    return err;
}

/* ---- where things are ---- */

static sl_err programs_find(struct mc_node *node, struct sl_error *why)
{
    static const char *const places[] = {"", "/../deploy", "/../../../deploy", "/../lib/sluice"};
    ssize_t length = readlink("/proc/self/exe", node->program_dir, sizeof node->program_dir - 1);
    if (length <= 0) {
        return sl_fail_os(why, errno, "/proc/self/exe");
    }
    node->program_dir[length] = '\0';
    *strrchr(node->program_dir, '/') = '\0';
    for (size_t i = 0; i < SL_COUNT(places); i++) {
        (void)snprintf(node->supervisor_path, sizeof node->supervisor_path, "%s%s/sluice-node",
                       node->program_dir, places[i]);
        if (access(node->supervisor_path, X_OK) == 0) {
            return SL_OK;
        }
    }
    return sl_fail(
        why, SL_ERR_NOT_FOUND,
        "sluice-node, which runs a node, is neither in '%.100s' nor in the places beside",
        node->program_dir);
}

/* Before anything is written there: the node's own start says the same of its other directories. */
static sl_err runtime_dir_check(const struct sl_paths *paths, struct sl_error *why)
{
    struct sl_node_dir_seen seen;
    const char *const others[] = {paths->log_dir, paths->shm_dir, paths->disk_dirs[0]};
    const struct sl_node_dir_want want = {.place = SL_NODE_DIR_RUNTIME,
                                          .path = paths->runtime_dir,
                                          .runtime_dir = paths->runtime_dir,
                                          .others = others,
                                          .other_count = SL_COUNT(others)};
    return sl_node_dir_check(&want, &seen, why);
}

static sl_err places_find(const struct mc_flags *flags, struct mc_node *node, struct sl_error *why)
{
    sl_err err = sl_config_create(&node->config, why);
    err = err == SL_OK ? sl_config_load(node->config, NULL, 0, NULL, NULL, why) : err;
    err = err == SL_OK ? sl_config_set(node->config, "instance", node->instance, SOURCE, why) : err;
    const char *log_dir = mc_flags_text(flags, MASTER_log_dir);
    if (err == SL_OK && log_dir[0] != '\0') {
        err = sl_config_set(node->config, "log_dir", log_dir, "--log_dir", why);
    }
    err = err == SL_OK ? sl_paths_from(node->config, &node->paths, why) : err;
    err = err == SL_OK ? runtime_dir_check(&node->paths, why) : err;
    err = err == SL_OK ? sl_dir_make(node->paths.runtime_dir, why) : err;
    return err == SL_OK ? sl_dir_make(node->paths.log_dir, why) : err;
}

/* What the node is called: by its own port, or by the master that it joins. */
static sl_err instance_choose(const struct mc_flags *flags, struct mc_node *node,
                              struct sl_error *why)
{
    const char *set = getenv("SLUICE_INSTANCE");
    const char *join = mc_flags_text(flags, MASTER_join);
    char host[256];
    uint16_t port = 0;
    if (join[0] == '\0' || (set != NULL && set[0] != '\0')) {
        uint64_t own = mc_flags_u64(flags, MASTER_rpc_port);
        mc_node_instance((uint16_t)(own != 0 ? own : mc_flags_u64(flags, MASTER_port)),
                         node->instance);
        return SL_OK;
    }
    sl_err err = mc_join_parse(join, host, &port, why);
    if (err == SL_OK) {
        mc_instance_joined(host, port, node->instance);
    }
    return err;
}

/* Where name and keys of this node outlive a boot: what --cluster_dir says, else the state directory
 * of its user. "": there is none (a container without a home). */
static void cluster_directory(const struct mc_flags *flags, const struct mc_node *node,
                              char out[1100])
{
    const char *told = mc_flags_text(flags, MASTER_cluster_dir);
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    out[0] = '\0';
    if (told[0] != '\0') {
        (void)snprintf(out, 1100, "%s", told);
    } else if (state != NULL && state[0] == '/') {
        (void)snprintf(out, 1100, "%.800s/sluice/%s/cluster", state, node->instance);
    } else if (geteuid() == 0) {
        (void)snprintf(out, 1100, "/var/lib/sluice/%s/cluster", node->instance);
    } else if (home != NULL && home[0] == '/') {
        (void)snprintf(out, 1100, "%.800s/.local/state/sluice/%s/cluster", home, node->instance);
    }
}

static sl_err cluster_open(const struct mc_flags *flags, struct mc_node *node, struct sl_error *why)
{
    char directory[1100], passing[1100];
    cluster_directory(flags, node, directory);
    (void)snprintf(passing, sizeof passing, "%s/cluster", node->paths.runtime_dir);
    const struct mc_cluster_options options = {
        .directory = directory,
        .passing = mc_flags_text(flags, MASTER_cluster_dir)[0] != '\0' ? NULL : passing,
        .quiet_ns = mc_flags_u64(flags, MASTER_member_ttl) * SL_NS_PER_MS,
        .address = mc_flags_text(flags, MASTER_cluster_address),
        .join = mc_flags_text(flags, MASTER_join)};
    return mc_cluster_open(&options, &node->cluster, why);
}

static sl_err lock_take(struct mc_node *node, struct sl_error *why)
{
    char path[1100];
    (void)snprintf(path, sizeof path, "%s/mooncake-master.lock", node->paths.runtime_dir);
    node->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (node->lock_fd < 0) {
        return sl_fail_os(why, errno, "lock '%.150s'", path);
    }
    if (flock(node->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        return errno == EWOULDBLOCK
                   ? sl_fail(why, SL_ERR_EXISTS, "another mooncake_master runs node '%s'",
                             node->instance)
                   : sl_fail_os(why, errno, "lock '%.150s'", path);
    }
    return SL_OK;
}

sl_err mc_node_init(const struct mc_flags *flags, struct mc_node *out, struct sl_error *why)
{
    memset(out, 0, sizeof *out);
    out->lock_fd = -1;
    sl_err err = instance_choose(flags, out, why);
    err = err == SL_OK ? programs_find(out, why) : err;
    err = err == SL_OK ? places_find(flags, out, why) : err;
    if (err == SL_OK) {
        (void)snprintf(out->config_path, sizeof out->config_path, "%s/mooncake-master.conf",
                       out->paths.runtime_dir);
        err = lock_take(out, why);
    }
    err = err == SL_OK ? cluster_open(flags, out, why) : err;
    return err == SL_OK ? settings_make(flags, out, why) : err;
}

void mc_node_fini(struct mc_node *node)
{
    sl_config_destroy(&node->config);
    mc_cluster_close(&node->cluster);
    free(node->settings);
    node->settings = NULL;
    if (node->lock_fd >= 0) {
        (void)close(node->lock_fd);
        node->lock_fd = -1;
    }
}
