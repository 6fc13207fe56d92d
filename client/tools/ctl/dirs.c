/* client/tools/ctl/dirs.c - sluicectl dirs: creates and marks the directories of a node, and
 * removes the files that a node left in them and no others. */
#include "client/tools/ctl/dirs.h"
#include "client/tools/ctl/commands.h"
#include "runtime/base/sl_node_dirs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIR_COUNT                                      3u
#define KIND_OF(name, kind, standard, low, high, help) SL_SETTING_##kind,
static const enum sl_setting_kind kinds[] = {SL_SETTING_TABLE(KIND_OF)};

/* Every path that a setting names, and the settings files. Such a path does not count as a foreign
 * file when it is in a directory of the node. */
struct dirs {
    struct sl_node_dir_want want[DIR_COUNT]; /* by enum sl_node_dir */
    char *all[2 * SL_SETTING_COUNT_OF + SL_DISK_PATHS_MAX];
    uint32_t count;
};

static void other_add(struct dirs *dirs, const char *text, size_t length)
{
    uint32_t last = dirs->count;
    char *copy = length == 0 ? NULL : strndup(text, length);
    if (copy != NULL && last > 0 && strcmp(dirs->all[last - 1], copy) == 0) {
        free(copy); /* the settings of one file follow each other */
    } else if (copy != NULL) {
        dirs->all[dirs->count++] = copy;
    }
}

static void dirs_open(const struct ctl *ctl, struct dirs *dirs)
{
    dirs->count = 0;
    for (uint32_t i = 0; i < ctl->paths.disk_count; i++) {
        const char *path = sl_disk_path_dir(ctl->paths.disk_paths[i]);
        other_add(dirs, path, strlen(path));
    }
    for (uint32_t i = 0; i < SL_SETTING_COUNT_OF; i++) {
        const char *text = kinds[i] == SL_SETTING_TEXT ? ctl_path_of(ctl, (enum sl_setting)i) : "";
        const char *source = sl_config_source(ctl->config, (enum sl_setting)i);
        const char *line = strrchr(source, ':');
        other_add(dirs, text, text[0] == '/' ? strlen(text) : 0);
        other_add(dirs, source, line != NULL ? (size_t)(line - source) : 0);
    }
    const char *paths[DIR_COUNT] = {[SL_NODE_DIR_RUNTIME] = ctl->paths.runtime_dir,
                                    [SL_NODE_DIR_SHM] = ctl->paths.shm_dir,
                                    [SL_NODE_DIR_LOG] = ctl->paths.log_dir};
    for (size_t i = 0; i < DIR_COUNT; i++) {
        dirs->want[i] = (struct sl_node_dir_want){.place = (enum sl_node_dir)i,
                                                  .path = paths[i],
                                                  .runtime_dir = ctl->paths.runtime_dir,
                                                  .others = (const char *const *)dirs->all,
                                                  .other_count = dirs->count};
    }
}

static void dirs_close(struct dirs *dirs)
{
    while (dirs->count > 0) {
        free(dirs->all[--dirs->count]);
    }
}

/* For a start: creates a missing directory, and closes one that other users can open. Changes
 * nothing if it has foreign files. The shm directory is created later, after all checks. */
static sl_err directory_prepare(const struct sl_node_dir_want *want, struct sl_error *why)
{
    struct sl_node_dir_seen seen;
    struct sl_error open = {0};
    if (want->place == SL_NODE_DIR_SHM && access(want->path, F_OK) != 0) {
        return SL_OK;
    }
    sl_err made = sl_dir_make(want->path, &open);
    sl_err err =
        made == SL_OK || made == SL_ERR_PERMISSION ? sl_node_dir_check(want, &seen, why) : made;
    if (err == SL_OK && made == SL_ERR_PERMISSION && seen.foreign[0] == '\0' &&
        chmod(want->path, 0700) == 0) {
        return sl_dir_make(want->path, why);
    }
    if (made != SL_OK && (err == SL_OK || err == made)) {
        *why = open;
        err = made;
    }
    return err;
}

sl_err ctl_dirs_check(const struct ctl *ctl, bool start, bool *holds, struct sl_error *why)
{
    struct dirs dirs;
    sl_err err =
        start ? sl_node_dirs_check_path(&ctl->paths, "shm_dir", ctl->paths.shm_dir, why) : SL_OK;
    dirs_open(ctl, &dirs);
    for (size_t i = 0; i < DIR_COUNT && err == SL_OK; i++) {
        struct sl_node_dir_seen seen = {0};
        err = sl_dir_check(dirs.want[i].path, why);
        if (err == SL_OK || (start && err == SL_ERR_PERMISSION)) {
            err = (start ? sl_node_dir_check : sl_node_dir_scan)(&dirs.want[i], &seen, why);
        }
        err = err == SL_ERR_NOT_FOUND || (!start && err == SL_ERR_EXISTS) ? SL_OK : err;
        *holds = i == SL_NODE_DIR_RUNTIME ? seen.holds : *holds;
    }
    for (size_t i = 0; i < DIR_COUNT && err == SL_OK && start; i++) {
        err = directory_prepare(&dirs.want[i], why);
    }
    dirs_close(&dirs);
    return err;
}

static int dirs_command(struct ctl *ctl, int argc, char **argv)
{
    static const struct {
        const char *what;
        enum sl_node_dir place;
        bool all;
    } clears[] = {{"memory", SL_NODE_DIR_SHM, false},
                  {"runtime", SL_NODE_DIR_RUNTIME, false},
                  {"logs", SL_NODE_DIR_LOG, false},
                  {"all", SL_NODE_DIR_RUNTIME, true}};
    int code;
    struct sl_error why = {0};
    struct dirs dirs;
    if (!ctl_parse(ctl, argc, argv, NULL, 0, &code)) {
        return code;
    }
    const char *verb = ctl->words[0];
    const char *what = ctl->word_count > 1 ? ctl->words[1] : "";
    size_t clear = 0;
    while (clear < SL_COUNT(clears) && strcmp(clears[clear].what, what) != 0) {
        clear++;
    }
    bool marks = strcmp(verb, "mark") == 0 && ctl->word_count == 1;
    bool takes = marks || (strcmp(verb, "take") == 0 && ctl->word_count == 1);
    if (!takes &&
        (strcmp(verb, "clear") != 0 || clear == SL_COUNT(clears) || ctl->word_count != 2)) {
        return ctl_usage_error(ctl, "expected: take, mark, or clear memory|runtime|logs|all");
    }
    sl_err err = SL_OK;
    dirs_open(ctl, &dirs);
    for (size_t i = 0; takes && err == SL_OK && i < DIR_COUNT; i++) {
        err = (marks ? sl_node_dir_mark : sl_node_dir_claim)(&dirs.want[i], &why);
    }
    if (!takes) {
        err = sl_node_dir_clear(&dirs.want[clears[clear].place], clears[clear].all, &why);
    }
    dirs_close(&dirs);
    return err == SL_OK ? CTL_SUCCESS : ctl_failed(ctl, &why);
}

/* clang-format off */
const struct ctl_command ctl_dirs = {
    .name = "dirs",
    .summary = "create, mark or clear the directories of a node (for sluice-node)",
    .help = "dirs take | dirs mark | dirs clear memory|runtime|logs|all [SETTINGS]\n"
            "\n"
            "take marks the directories of sockets, shared memory and logs as this node's, and creates missing ones.\n"
            "mark does the same for a running node, whose directories may have other files by now.\n"
            "clear removes the files that a stopped node left, by name, and no others. all: the runtime directory with\n"
            "its logs. A directory without the mark and with other files stays unchanged.",
    .run = dirs_command,
    .words_min = 1,
    .words_max = 2,
    .words = "expected: take, mark, or clear memory|runtime|logs|all",
};
/* clang-format on */
