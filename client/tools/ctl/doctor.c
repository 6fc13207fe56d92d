/* client/tools/ctl/doctor.c - sluicectl doctor: collects the facts about a node and its machine
 * that need C. checks.py judges them and looks at the rest. */
#include "client/tools/ctl/doctor.h"
#include "client/tools/ctl/commands.h"
#include "client/tools/ctl/nics.h"
#include "client/tools/ctl/rights.h"
#include "client/tools/ctl/status_ready.h"

#include "cuda/sl_device.h"
#include "ipc/msg/sl_cluster.h"
#include "ipc/msg/sl_curve.h"
#include "ipc/shm/sl_huge.h"
#include "runtime/base/config_file.h"
#include "runtime/base/sl_limits.h"
#include "runtime/base/sl_trust.h"
#include "runtime/disk/sl_disk_place.h"
#include "runtime/net/directory/options.h"

#include <dirent.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINE_BYTES 2048

static json_t *why_json(sl_err err, const struct sl_error *why)
{
    return ctl_json_text(err == SL_OK ? "" : why->text);
}

bool ctl_parent(const char *path, char out[1100])
{
    struct stat status;
    (void)snprintf(out, 1100, "%s", path);
    while (stat(out, &status) != 0) {
        char *slash = strrchr(out, '/');
        if (slash == NULL) {
            return false;
        }
        slash[slash == out] = '\0';
        if (slash == out && stat(out, &status) != 0) {
            return false;
        }
    }
    return true;
}

/* ---- needs of a node, and limits ---- */

static json_t *limit_json(const struct sl_limit *limit)
{
    return json_pack("{s:o, s:o, s:o}", "most", ctl_json_u64(limit->most), "left",
                     ctl_json_u64(limit->left), "file", ctl_json_text(limit->file));
}

/* -1: no limit. */
static json_t *limits_json(uint32_t pid)
{
    struct sl_limits limits;
    sl_limits_read("", pid, &limits);
    return json_pack("{s:o, s:o, s:o, s:o}", "memory", limit_json(&limits.memory), "cores",
                     limit_json(&limits.cores), "processes", limit_json(&limits.processes),
                     "oom_kills", ctl_json_u64(limits.oom_kills));
}

static json_t *needs_json(const struct sl_config *config)
{
    struct sl_disk_sizes sizes = {0};
    struct sl_error why = {0};
    bool disk = sl_config_u64(config, SL_SET_disk) > 0;
    sl_err err = disk ? sl_disk_sizes(config, &sizes, &why) : SL_OK;
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "actors",
        ctl_json_u64(sl_limits_actors(config)), "room", ctl_json_u64(sl_limits_room_bytes(config)),
        "page", ctl_json_u64(sl_limits_page_bytes(config)), "counts",
        ctl_json_u64(SL_LIMITS_COUNTS_BYTES), "index", ctl_json_u64(sl_config_index_memory(config)),
        "disk_paths", ctl_json_u64(sl_config_disk_count(config)), "disk_segment",
        ctl_json_u64(sizes.segment_bytes), "disk_why", why_json(err, &why));
}

/* Why a system call, which a seccomp profile may refuse, gave no descriptor; "": it gave fd. */
static json_t *call_json(long fd)
{
    json_t *why = json_string(fd < 0 ? strerror(errno) : "");
    if (fd >= 0) {
        (void)close((int)fd);
    }
    return why;
}

/* Tries only the calls that the node needs: a profile may kill the process that makes a call. */
static json_t *calls_json(const struct sl_config *config)
{
    struct io_uring_params params = {0};
    bool uring = sl_config_u64(config, SL_SET_disk) > 0 ||
                 strcmp(sl_config_text(config, SL_SET_fabric), "tcp") == 0;
    return json_pack("{s:o, s:o}", "pidfd", call_json(syscall(SYS_pidfd_open, getpid(), 0)),
                     "io_uring",
                     uring ? call_json(syscall(SYS_io_uring_setup, 8, &params)) : json_null());
}

json_t *ctl_facts(const struct ctl *ctl, const struct sl_config *config, uint32_t pid)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:b, s:o}", "settings", ctl_settings_json(config),
                     "pid", ctl_json_u64(pid), "limits", limits_json(pid), "needs",
                     needs_json(config), "calls", calls_json(config), "running",
                     ctl_registrar_lives(ctl->paths.shm_dir), "shm_dir",
                     ctl_json_text(ctl->paths.shm_dir));
}

/* ---- the node ---- */

struct doctor {
    const struct ctl *ctl;
    const struct sl_config *config; /* of the running node, else of the command line */
    struct sl_paths paths;
    struct sl_config *given; /* owned: settings of the running node; NULL: none, or unknown */
    const char *sysfs;
    uint32_t pid; /* of the registrar; 0: no node runs */
    bool as_is;   /* only settings of the running node are looked at */
};

/* Reads lines of name=value that the supervisor wrote. Errors: SL_ERR_NOT_FOUND, SL_ERR_CONFIG. */
static sl_err settings_read(const char *path, struct sl_config *config, struct sl_error *why)
{
    char line[LINE_BYTES];
    SL_AUTO(fclose) FILE *file = fopen(path, "re");
    if (file == NULL) {
        return sl_fail_os(why, errno, "'%.150s'", path);
    }
    sl_err err = SL_OK;
    enum sl_setting setting;
    while (err == SL_OK && fgets(line, sizeof line, file) != NULL) {
        char *equals = strchr(line, '=');
        line[strcspn(line, "\n")] = '\0';
        if (equals == NULL) {
            err = sl_fail(why, SL_ERR_CONFIG, "'%.150s': '%.40s' is not a setting", path, line);
            break;
        }
        *equals = '\0';
        err = sl_setting_find(line, strlen(line), &setting)
                  ? sl_config_assign(config, setting, equals + 1, path, why)
                  : sl_fail(why, SL_ERR_CONFIG, "%s: unknown setting '%.64s'", path, line);
    }
    return err;
}

/* Whether the setting selects a node and does not configure it. */
static bool names_the_node(const char *name)
{
    return strcmp(name, "instance") == 0 || strcmp(name, "runtime_dir") == 0 ||
           strcmp(name, "shm_dir") == 0;
}

/* Takes the settings of the running node. The command line overrides them: doctor then judges the
 * node as it would be after a start with these settings. */
static sl_err running_settings_load(struct doctor *doctor, struct sl_error *why)
{
    const struct ctl *ctl = doctor->ctl;
    char path[1100];
    doctor->as_is = true;
    struct sl_config *config = NULL;
    (void)snprintf(path, sizeof path, "%s/settings", ctl->paths.runtime_dir);
    sl_err err = sl_config_create(&config, why);
    err = err == SL_OK ? settings_read(path, config, why) : err;
    for (uint32_t i = 0; err == SL_OK && i < ctl->setting_count; i++) {
        char name[64];
        size_t length = strcspn(ctl->settings[i], "=");
        (void)snprintf(name, sizeof name, "%.*s", (int)SL_MIN(length, sizeof name - 1),
                       ctl->settings[i]);
        if (!names_the_node(name)) {
            doctor->as_is = false;
            err = sl_config_set(config, name, ctl->settings[i] + length + 1, "command line", why);
        }
    }
    err = err == SL_OK ? sl_paths_from(config, &doctor->paths, why) : err;
    if (err != SL_OK) {
        sl_config_destroy(&config);
        return err;
    }
    doctor->given = config;
    doctor->config = config;
    return SL_OK;
}

static json_t *node_json(struct doctor *doctor)
{
    const struct ctl *ctl = doctor->ctl;
    struct sl_error why = {0};
    char dir[64];
    uint32_t owner = 0;
    bool others = sl_service_dir(sl_config_text(ctl->config, SL_SET_instance), dir, &owner) &&
                  owner != geteuid();
    if (doctor->pid != 0 && ctl->config_file == NULL) {
        (void)running_settings_load(doctor, &why);
    }
    return json_pack("{s:o*, s:s*, s:b, s:o}", "file",
                     ctl->config_file != NULL ? ctl_json_text(ctl->config_file) : NULL, "of_other",
                     others ? dir : NULL, "as_is", doctor->given != NULL && doctor->as_is, "why",
                     ctl_json_text(why.text));
}

static json_t *supervisor_json(struct doctor *doctor)
{
    return ctl_supervision(doctor->ctl);
}

/* ---- the machine ---- */

static json_t *actors_json(struct doctor *doctor)
{
    return status_actors(doctor->ctl);
}

static json_t *huge_json(struct doctor *doctor)
{
    char parent[1100], why[SL_HUGE_TEXT_BYTES] = "";
    if (!ctl_parent(doctor->ctl->paths.shm_dir, parent)) {
        return json_null();
    }
    bool huge = sl_huge_pages(parent, why);
    return json_pack("[b, o]", huge, ctl_json_text(why));
}

static json_t *device_json(struct doctor *doctor)
{
    const struct sl_config *config = doctor->config;
    struct sl_error why = {0};
    sl_err err = sl_device_check(sl_config_text(config, SL_SET_device),
                                 (uint32_t)sl_config_u64(config, SL_SET_ranks), &why);
    return why_json(err, &why);
}

/* The directory of each disk, or why the disk cannot be used. */
static json_t *disks_json(struct doctor *doctor)
{
    json_t *disks = json_array();
    for (uint32_t i = 0; i < doctor->paths.disk_count; i++) {
        char place[SL_DISK_PLACE_BYTES];
        struct sl_error why = {0};
        const char *path = doctor->paths.disk_paths[i];
        bool found = sl_disk_place_find(path, place, &why) == SL_OK &&
                     sl_disk_format_check(place, &why) == SL_OK &&
                     sl_disk_place_unused(&doctor->paths, place, &why) == SL_OK;
        (void)json_array_append_new(disks, json_pack("[o, o]", ctl_json_text(found ? place : path),
                                                     ctl_json_text(found ? "" : why.text)));
    }
    return disks;
}

static json_t *nics_json(struct doctor *doctor)
{
    struct ctl_nics *nics = ctl_nics_look(doctor->config, doctor->sysfs, false);
    json_t *plan = json_array();
    for (uint32_t i = 0; nics != NULL && i < nics->plan.count; i++) {
        const char *name = nics->plan.names[i];
        const struct sl_nic *nic = name[0] != '\0' ? sl_nics_find(&nics->nics, name) : NULL;
        (void)json_array_append_new(plan, json_pack("[o, i]", ctl_json_text(name),
                                                    nic != NULL ? (int)(nic - nics->nics.at) : -1));
    }
    json_t *shown = json_pack("{s:o, s:o, s:i, s:o}", "ports", ctl_nics_json(nics), "plan", plan,
                              "skipped", nics != NULL ? (int)nics->nics.skipped : 0, "why",
                              ctl_json_text(ctl_nics_why(nics)));
    free(nics);
    return shown;
}

static json_t *rights_json(struct doctor *doctor)
{
    struct ctl_right right;
    json_t *rights = json_array();
    for (uint32_t at = 0; ctl_right_next(doctor->config, &at, &right);) {
        (void)json_array_append_new(rights, json_pack("{s:s, s:o, s:b, s:o}", "name", right.name,
                                                      "path", ctl_json_text(right.path), "missing",
                                                      right.err == SL_ERR_NOT_FOUND, "why",
                                                      why_json(right.err, &right.why)));
    }
    return rights;
}

/* Shared memory that earlier nodes of this user left. */
static json_t *leftovers_json(struct doctor *doctor)
{
    char base[64], path[1400];
    (void)doctor;
    (void)snprintf(base, sizeof(base), "/dev/shm/sluice-%u", (unsigned)getuid());
    json_t *found = json_array();
    SL_AUTO(closedir) DIR *directory = opendir(base);
    for (struct dirent *entry = directory == NULL ? NULL : readdir(directory); entry != NULL;
         entry = readdir(directory)) {
        (void)snprintf(path, sizeof(path), "%s/%s", base, entry->d_name);
        uint64_t bytes = entry->d_name[0] == '.' ? 0 : sl_dir_used_bytes(path);
        if (bytes > 0 && !ctl_registrar_lives(path)) {
            (void)json_array_append_new(
                found, json_pack("[o, o]", ctl_json_text(path), ctl_json_u64(bytes)));
        }
    }
    return json_pack("{s:s, s:o}", "in", base, "found", found);
}

/* ---- other nodes ---- */

static void key_add(json_t *all, const char *keys, const char *name)
{
    char text[SL_CURVE_TEXT_BYTES] = "";
    struct sl_error why = {0};
    sl_err err = sl_curve_load_public(keys, name, text, &why);
    (void)json_array_append_new(
        all, json_pack("[o, s, o]", ctl_json_text(name), text, why_json(err, &why)));
}

/* The public half of this node's key pair and each NAME.pub, with their errors. */
static json_t *keys_json(const struct sl_config *config, const char *node)
{
    const char *keys = sl_config_text(config, SL_SET_cluster_keys);
    const char *at = sl_config_text(config, SL_SET_peers);
    char name[64];
    struct sl_curve_pair pair = {0};
    struct sl_error open = {0}, why = {0};
    struct sl_cluster_peer peer;
    json_t *all = json_array(), *peers = json_array();
    sl_err placed = sl_trust_directory(keys, &open);
    sl_err loaded = sl_curve_load(keys, node, &pair, &why);
    SL_AUTO(closedir) DIR *files = opendir(keys);
    for (const struct dirent *file = files != NULL ? readdir(files) : NULL; file != NULL;
         file = readdir(files)) {
        size_t length = strlen(file->d_name);
        if (length > 4 && length - 4 < sizeof(name) &&
            strcmp(file->d_name + length - 4, ".pub") == 0) {
            (void)snprintf(name, sizeof(name), "%.*s", (int)length - 4, file->d_name);
            key_add(all, keys, name);
        }
    }
    while (sl_cluster_peer_next(&at, &peer, NULL) == SL_OK && peer.name[0] != '\0') {
        (void)json_array_append_new(peers, json_string(peer.name));
        key_add(all, keys, peer.name);
    }
    json_t *shown =
        json_pack("{s:o, s:s, s:o, s:o, s:o}", "open", why_json(placed, &open), "own",
                  pair.public_text, "why", why_json(loaded, &why), "all", all, "peers", peers);
    explicit_bzero(&pair, sizeof(pair));
    return shown;
}

static json_t *cluster_json(struct doctor *doctor)
{
    const struct sl_config *config = doctor->config;
    char node[SL_CLUSTER_NAME_BYTES] = "";
    struct sl_error why = {0};
    bool any = false;
    bool wanted = sl_cluster_wanted(config);
    const char *listen = sl_config_text(config, SL_SET_cluster_listen);
    const char *own_address = sl_config_text(config, SL_SET_cluster_address);
    bool reached = sl_cluster_address(own_address[0] != '\0' ? own_address : listen, &any) && !any;
    sl_err err = sl_cluster_check(config, &why);
    bool keys = wanted && sl_cluster_name(config, node, NULL) == SL_OK &&
                sl_config_text(config, SL_SET_cluster_keys)[0] != '\0' &&
                !sl_config_bool(config, SL_SET_cluster_plaintext);
    return json_pack("{s:b, s:b, s:b, s:s, s:o, s:o*}", "wanted", wanted, "guided",
                     sl_cluster_is_guided(config), "reached", reached, "node", node, "why",
                     why_json(err, &why), "keys", keys ? keys_json(config, node) : NULL);
}

struct probe {
    bool over;
    struct sl_error *why;
};

static void probe_link(void *context, bool up, const struct sl_error *why)
{
    struct probe *probe = context;
    probe->over = true;
    if (!up) {
        *probe->why = *why;
    }
}

static void probe_found(void *context, uint64_t cookie, sl_err code,
                        const struct sl_directory_found *found, uint32_t count)
{
    (void)context, (void)cookie, (void)code, (void)found, (void)count; /* nothing is looked up */
}

sl_err ctl_directory_check(const struct sl_config *config, struct sl_error *link,
                           struct sl_error *why)
{
    char password[SL_DIRECTORY_PASSWORD_BYTES];
    struct sl_directory_options options;
    struct sl_directory *directory = NULL;
    struct probe probe = {.over = link == NULL, .why = link};
    sl_err err = sl_directory_options_from(config, &options, password, why);
    options.events =
        (struct sl_directory_events){.context = &probe, .found = probe_found, .link = probe_link};
    err = err == SL_OK ? sl_directory_open(&options, &directory, why) : err;
    explicit_bzero(password, sizeof(password));
    while (err == SL_OK && options.kind != SL_DIRECTORY_EMBEDDED && !probe.over) {
        sl_directory_step(directory, sl_clock_monotonic_ns()); /* directory_timeout ends it */
        struct pollfd fd = {.fd = sl_directory_fd(directory), .events = POLLIN};
        (void)poll(&fd, 1, 5);
    }
    sl_directory_close(&directory);
    return err;
}

static json_t *directory_json(struct doctor *doctor)
{
    struct sl_error link = {0}, why = {0};
    sl_err err = ctl_directory_check(doctor->config, &link, &why);
    return json_pack("{s:o, s:o}", "why", why_json(err, &why), "link", ctl_json_text(link.text));
}

/* ---- all of them ---- */

static const struct {
    const char *name;
    json_t *(*look)(struct doctor *doctor);
} looks[] = {
    {"node", node_json}, /* first: it chooses the settings */
    {"supervisor", supervisor_json},
    {"huge", huge_json},
    {"actors", actors_json},
    {"device", device_json},
    {"disks", disks_json},
    {"nics", nics_json},
    {"rights", rights_json},
    {"cluster", cluster_json},
    {"directory", directory_json},
    {"leftovers", leftovers_json},
};
static const char *_Atomic looked_at; /* NULL: all are done */

/* Names a look that takes longer than a second. A thread of its own, because a lost server may keep
 * the main thread in the kernel. */
static void *slow_report(void *unused)
{
    const char *said = NULL;
    for (const char *now = looked_at; now != NULL; now = looked_at) {
        (void)sleep(1);
        if (now == looked_at && now != said) {
            (void)dprintf(STDERR_FILENO, "sluicectl: still looking at: %s\n", now);
            said = now;
        }
    }
    return unused;
}

static int doctor_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    pthread_t thread;
    struct doctor doctor = {.ctl = ctl, .sysfs = SL_SYSFS};
    const struct ctl_option options[] = {{.name = "sysfs", .text = &doctor.sysfs}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    const char *const words[] = {ctl->json ? "json" : "text", NULL};
    (void)ctl_memory_fit(ctl);
    doctor.config = ctl->config;
    doctor.paths = ctl->paths;
    doctor.pid = ctl_registrar_pid(ctl->paths.shm_dir);
    json_t *more = json_object();
    looked_at = looks[0].name;
    if (pthread_create(&thread, NULL, slow_report, NULL) == 0) {
        (void)pthread_detach(thread); /* it may still sleep for a second at the end */
    }
    for (size_t i = 0; i < SL_COUNT(looks); i++) {
        looked_at = looks[i].name;
        (void)json_object_set_new(more, looks[i].name, looks[i].look(&doctor));
    }
    looked_at = NULL;
    json_t *facts = ctl_facts(ctl, doctor.config, doctor.pid);
    ctl_helpers_json(ctl, facts);
    (void)json_object_update(facts, more);
    json_decref(more);
    sl_config_destroy(&doctor.given);
    return ctl_script_print("checks.py", words, facts);
}

/* clang-format off */
const struct ctl_command ctl_doctor = {
    .name = "doctor",
    .summary = "check the machine for the node that the settings describe",
    .help = "doctor [--sysfs DIR]\n"
            "\n"
            "Prints a line for each check, with ok, warn or fail, and how to fix what is wrong: the node's supervisor, memory, huge pages,\n"
            "limits, io_uring, disks, NICs, ports, /metrics, events, key files, keys and names of nodes, the directory, leftovers, and\n"
            "whether a logout removes shared memory (RemoveIPC of systemd). Needs no node and changes nothing. Exit code 0: no check failed.\n"
            "\n"
            "  --sysfs DIR       look for NICs below DIR (default /sys)\n"
            CTL_HELP_COMMON,
    .run = doctor_command,
};
/* clang-format on */
