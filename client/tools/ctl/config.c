/* client/tools/ctl/config.c - sluicectl config: prints and checks the settings in force. */
#include "client/tools/ctl/commands.h"
#include "client/tools/ctl/dirs.h"
#include "client/tools/ctl/doctor.h"
#include "client/tools/ctl/rights.h"
#include "cuda/sl_device.h"
#include "ipc/msg/sl_cluster.h"
#include "ipc/shm/sl_arena.h"
#include "ipc/shm/sl_index.h"
#include "ipc/shm/sl_shm_file.h"
#include "runtime/base/sl_address.h"
#include "runtime/base/sl_limits.h"
#include "runtime/base/sl_node_dirs.h"
#include "runtime/base/sl_recording.h"
#include "runtime/disk/sl_disk_place.h"

#include <inttypes.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define KIND_OF(name, kind, standard, low, high, help) SL_SETTING_##kind,
static const enum sl_setting_kind kinds[] = {SL_SETTING_TABLE(KIND_OF)};

/* The rows that --template prints. */
#define EXPLAINED(name, kind, standard, low, high, help) {#name, #kind, standard, help, low, high},
static const struct {
    const char *name, *kind, *standard, *help;
    uint64_t low, high;
} explained[] = {SL_SETTING_TABLE(EXPLAINED)};
#define CHOICES(name, words) [SL_SET_##name] = words,
static const char *const choices[SL_SETTING_COUNT_OF] = {SL_SETTING_CHOICES(CHOICES)};

static json_t *template_json(void)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < SL_COUNT(explained); i++) {
        (void)json_array_append_new(
            rows, json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:s?}", "name", explained[i].name,
                            "kind", explained[i].kind, "default", explained[i].standard, "help",
                            explained[i].help, "low", ctl_json_u64(explained[i].low), "high",
                            ctl_json_u64(explained[i].high), "choices", choices[i]));
    }
    return rows;
}

json_t *ctl_settings_json(const struct sl_config *config)
{
    json_t *settings = json_object();
    char shown[SL_SETTING_TEXT_BYTES_MAX + 1];
    for (uint32_t i = 0; i < SL_SETTING_COUNT_OF; i++) {
        enum sl_setting setting = (enum sl_setting)i;
        if (kinds[i] == SL_SETTING_TEXT) {
            (void)sl_url_redact(sl_config_text(config, setting), shown, sizeof shown);
        }
        (void)json_object_set_new(settings, sl_setting_name(setting),
                                  kinds[i] == SL_SETTING_TEXT ? ctl_json_text(shown)
                                  : kinds[i] == SL_SETTING_BOOL
                                      ? json_boolean(sl_config_bool(config, setting))
                                      : ctl_json_u64(sl_config_u64(config, setting)));
    }
    return settings;
}

const char *ctl_path_of(const struct ctl *ctl, enum sl_setting setting)
{
    switch (setting) {
    case SL_SET_runtime_dir:
        return ctl->paths.runtime_dir;
    case SL_SET_shm_dir:
        return ctl->paths.shm_dir;
    case SL_SET_log_dir:
        return ctl->paths.log_dir;
    case SL_SET_disk_path: /* a list is shown as it was set */
        return ctl->paths.disk_count == 1 ? ctl->paths.disk_paths[0]
                                          : sl_config_text(ctl->config, setting);
    default:
        return sl_config_text(ctl->config, setting);
    }
}

/* Writes the value so that it can be read back, whatever the environment is by then. */
static void value_text(const struct ctl *ctl, enum sl_setting setting, bool passwords, char *out,
                       size_t room)
{
    switch (kinds[setting]) {
    case SL_SETTING_TEXT:
        if (passwords) {
            (void)snprintf(out, room, "%s", ctl_path_of(ctl, setting));
        } else {
            (void)sl_url_redact(ctl_path_of(ctl, setting), out, room);
        }
        break;
    case SL_SETTING_BOOL:
        (void)snprintf(out, room, "%s", sl_config_bool(ctl->config, setting) ? "true" : "false");
        break;
    case SL_SETTING_RATIO:
        (void)snprintf(out, room, "%.6f", (double)sl_config_u64(ctl->config, setting) / 1e6);
        break;
    default:
        (void)snprintf(out, room, "%" PRIu64 "%s", sl_config_u64(ctl->config, setting),
                       kinds[setting] == SL_SETTING_DURATION ? "ns" : "");
        break;
    }
}

static void row_print(const struct ctl *ctl, enum sl_setting setting, const char *text)
{
    const char *source = sl_config_source(ctl->config, setting);
    int length = (int)strlen(text);
    (void)printf("%-22s ", sl_setting_name(setting));
    ctl_print_bytes(stdout, text, strlen(text));
    (void)printf("%*s # ", length < 34 ? 34 - length : 0, "");
    ctl_print_bytes(stdout, source, strlen(source));
    (void)putchar('\n');
}

/* Checks that the arena and index of an earlier start have the sizes that these settings name. */
static sl_err memory_check(const struct ctl *ctl, struct sl_error *why)
{
    const struct sl_config *config = ctl->config;
    const struct sl_arena_options arena = {
        .directory = ctl->paths.shm_dir,
        .data_bytes = sl_config_u64(config, SL_SET_memory),
        .chunk_bytes = sl_config_u64(config, SL_SET_memory_chunk),
    };
    const struct sl_index_options index = {
        .shm_dir = ctl->paths.shm_dir,
        .index_bytes_max = sl_config_index_memory(config),
        .key_count = sl_config_u64(config, SL_SET_index_keys),
        .derived = sl_config_index_is_derived(config),
    };
    sl_err err = sl_index_fits(&index, why); /* first: it also checks the settings by themselves */
    return err == SL_OK ? sl_arena_fits(&arena, why) : err;
}

/* Warns of values that an earlier start without `contributions` left in memory: they belong to no
 * contribution, and a start with the setting removes them. */
static void uncharged_warn(const struct ctl *ctl)
{
    struct sl_index_view *view = NULL;
    struct sl_entry entry;
    char key[SL_KEY_BYTES_MAX + 1];
    uint64_t cursor = 0, values = 0, lost = 0;
    if (!sl_config_bool(ctl->config, SL_SET_contributions) ||
        sl_index_view_open(ctl->paths.shm_dir, &view, NULL) != SL_OK) {
        return;
    }
    while (sl_index_scan(view, &cursor, &entry, key)) {
        bool homeless = entry.extent.generation != 0 && entry.contribution == 0;
        values += homeless ? 1 : 0;
        lost += homeless && entry.disk.valid == 0 ? 1 : 0;
    }
    sl_index_view_close(&view);
    if (values > 0) {
        (void)fprintf(stderr,
                      "%" PRIu64
                      " values in memory belong to no contribution and are removed; %" PRIu64
                      " of them are not on disk and are lost. To keep them, start with "
                      "contributions = false\n",
                      values, lost);
    }
}

bool ctl_memory_fit(const struct ctl *ctl)
{
    char parent[1100], text[32];
    struct statvfs room;
    struct sl_limits limits;
    struct sl_arena *arena = NULL;
    uint64_t standard = sl_config_u64(ctl->config, SL_SET_memory), fit = standard;
    if (strcmp(sl_config_source(ctl->config, SL_SET_memory), "default") != 0) {
        return false;
    }
    sl_limits_read("", 0, &limits);
    if (sl_arena_attach(ctl->paths.shm_dir, 0, false, &arena, NULL) == SL_OK) {
        fit = sl_arena_data_bytes(arena);
        sl_arena_close(&arena);
    } else if (ctl_parent(ctl->paths.shm_dir, parent)) {
        uint64_t left = statvfs(parent, &room) == 0 ? (uint64_t)room.f_bavail * room.f_frsize : 0;
        fit = sl_limits_memory_default(ctl->config, &limits, left);
    }
    (void)snprintf(text, sizeof text, "%" PRIu64, fit);
    return fit != standard &&
           sl_config_set(ctl->config, "memory", text, "default, for the room", NULL) == SL_OK;
}

/* Checks that the registrar could record. Removes a recording file that the check created. */
static sl_err record_check(const struct sl_config *config, bool running, struct sl_error *why)
{
    const char *path = sl_config_text(config, SL_SET_record);
    struct sl_error said = {0};
    uint64_t length_bytes, id;
    int fd = -1;
    bool there = access(path, F_OK) == 0;
    sl_err err = path[0] == '\0' ? SL_OK : sl_recording_open(path, &fd, &length_bytes, &id, &said);
    if (err == SL_OK && fd >= 0) {
        (void)(!there && unlink(path));
        (void)close(fd);
    }
    return err == SL_OK || (err == SL_ERR_BUSY && running) /* this node records to it */
               ? SL_OK
               : sl_fail(why, err, "record: %s", said.text);
}

/* Checks for everything that would end an actor. checks.py prints the reasons on standard error. */
static int start_check(const struct ctl *ctl)
{
    static const char *const words[] = {"start", NULL};
    struct sl_error why = {0}, kept = {0};
    bool running = ctl_registrar_lives(ctl->paths.shm_dir);
    sl_err err = sl_node_dirs_check_path(&ctl->paths, "shm_dir", ctl->paths.shm_dir, &why);
    if (err == SL_OK && memory_check(ctl, &kept) == SL_OK) {
        (void)sl_shm_files_readable(ctl->paths.shm_dir, &kept);
    }
    err = err == SL_OK ? sl_cluster_check(ctl->config, &why) : err;
    err = err == SL_OK ? sl_device_check(sl_config_text(ctl->config, SL_SET_device),
                                         (uint32_t)sl_config_u64(ctl->config, SL_SET_ranks), &why)
                       : err;
    err = err == SL_OK ? ctl_rights_check(ctl->config, &why) : err;
    err = err == SL_OK ? ctl_directory_check(ctl->config, NULL, &why) : err;
    err = err == SL_OK ? record_check(ctl->config, running, &why) : err;
    /* Last: with --replace-memory a start removes memory if that is the only obstacle. */
    why = err == SL_OK ? kept : why;
    json_t *facts = ctl_facts(ctl, ctl->config, 0);
    (void)json_object_set_new(facts, "refused", ctl_json_text(why.code == SL_OK ? "" : why.text));
    int code = ctl_script_print("checks.py", words, facts);
    if (code == CTL_SUCCESS && !running) {
        uncharged_warn(ctl);
    }
    return code;
}

/* Checks whether the disk tier could start. Disks that the running node itself uses are fine. */
static int disks_check(const struct ctl *ctl)
{
    struct sl_error why = {0};
    uint32_t bad = 0;
    bool running = ctl_registrar_lives(ctl->paths.shm_dir);
    sl_err err = sl_disk_paths_check(ctl->config, &ctl->paths, &bad, &why);
    if (why.code != SL_OK && !(running && why.code == SL_ERR_BUSY)) {
        (void)fprintf(stderr, "%s%s\n", why.text,
                      err != SL_OK              ? ""
                      : why.code == SL_ERR_BUSY ? ": the tierer tries again"
                                                : ": going on with the other disks");
    }
    return err == SL_OK ? CTL_SUCCESS : CTL_NO;
}

static int config_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    bool null = false, plain = false, check = false, private = false, make = false;
    bool template = false, passwords = false, rights = false, holds = true;
    struct sl_error why = {0};
    const struct ctl_option options[] = {
        {.name = "null", .flag = &null},           {.name = "plain", .flag = &plain},
        {.name = "template", .flag = &template},   {.name = "check", .flag = &check},
        {.name = "private", .flag = &private},     {.name = "make-private", .flag = &make},
        {.name = "passwords", .flag = &passwords}, {.name = "rights", .flag = &rights}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        if (code == CTL_SUCCESS) { /* --help */
            (void)printf(
                "\nSettings are read, in rising order of precedence, from their defaults, a "
                "settings file (lines of\nname = value), the environment (SLUICE_NAME) "
                "and the command line (--name VALUE).\n\n");
            sl_config_print_help(stdout);
        }
        return code;
    }
    bool fitted = ctl_memory_fit(ctl);
    if (check) {
        code = start_check(ctl);
        return code == CTL_SUCCESS ? disks_check(ctl) : code;
    }
    if (template) {
        return ctl_answer(ctl, template_json());
    }
    if ((private || make) && (ctl_dirs_check(ctl, make, &holds, &why) != SL_OK ||
                              ((make || rights) && ctl_rights_check(ctl->config, &why) != SL_OK))) {
        (void)fprintf(stderr, "%s\n", why.text);
        return CTL_NO;
    }
    json_t *object = json_object();
    for (uint32_t i = 0; i < SL_SETTING_COUNT_OF; i++) {
        enum sl_setting setting = (enum sl_setting)i;
        char text[1100];
        value_text(ctl, setting, passwords, text, sizeof text);
        if (ctl->json) {
            (void)json_object_set_new(object, sl_setting_name(setting),
                                      json_pack("{s:o, s:s}", "value", ctl_json_text(text),
                                                "source", sl_config_source(ctl->config, setting)));
        } else if (plain || null) {
            (void)printf("%s=%s%c", sl_setting_name(setting), text, plain ? '\n' : '\0');
        } else {
            row_print(ctl, setting, text);
        }
    }
    if (ctl->json) {
        ctl_print_json(object);
    } else {
        json_decref(object);
    }
    if (null && !ctl->json) { /* facts that the supervisor needs besides the settings */
        (void)printf("holds_node=%s%c", holds ? "true" : "false", '\0');
        (void)printf("memory_fitted=%s%c", fitted ? "true" : "", '\0');
        (void)printf("version=%s%c", SL_VERSION, '\0');
    }
    return CTL_SUCCESS;
}

/* clang-format off */
const struct ctl_command ctl_config = {
    .name = "config",
    .summary = "print the settings in force",
    .help = "config [--null | --plain | --template | --check] [--passwords] [--private [--rights] | --make-private] [SETTINGS]\n"
            "\n"
            "Prints every setting with its value and the source of the value; --help lists kinds and defaults.\n"
            "\n"
            "  --plain           print lines of name=value\n"
            "  --null            print name=value, each followed by a NUL byte, for scripts\n"
            "  --passwords       show passwords in URLs, which are printed as *** otherwise\n"
            "  --template        print a settings file in which every setting is explained and commented out, with its default\n"
            "  --check           check whether the node could start: memory, limits of cgroups and the shell, lists, addresses, keys.\n"
            "                    Opens and closes each disk as its tierer does, and names disks that the node would start without.\n"
            "                    Creates missing directories. If the node cannot start: exit code 1 and the reason\n"
            "  --private         first check that the node's directories (sockets, shared memory, logs) and all directories above them\n"
            "                    belong to this user or root and hold no file of another user. --make-private also creates missing\n"
            "                    directories, refuses directories with other files than a node's, and checks the files that hold\n"
            "                    secrets or give rights, as --rights does. If a check fails: exit code 1 and the reason",
    .run = config_command,
};
/* clang-format on */
