/* client/tools/ctl/formats.c - sluicectl formats: versions of all formats that outlive or cross
 * processes, as this build reads and writes them, and those of the node's files. */
#include "client/tools/ctl/commands.h"
#include "ipc/msg/sl_lane.h"
#include "ipc/msg/sl_msg_table.h"
#include "ipc/shm/sl_shm_file.h"
#include "runtime/base/sl_proc.h"
#include "runtime/base/sl_recording.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define NAME_BYTES 256u
#define METRICS    "metrics."
/* Looks at the holder of a node's lock, and the pause between two of them. */
#define LOOKS_MAX 20u
#define LOOK_US   50000u

static const char *const kinds[SL_SHM_FILE_KINDS] = {
    [SL_SHM_FILE_ARENA] = "arena",     [SL_SHM_FILE_INDEX] = "index",
    [SL_SHM_FILE_PINS] = "pins",       [SL_SHM_FILE_LEASES] = "leases",
    [SL_SHM_FILE_SETTLED] = "settled", [SL_SHM_FILE_COUNTS] = "counts",
    [SL_SHM_FILE_LABELS] = "labels",   [SL_SHM_FILE_SEEN] = "seen",
    [SL_SHM_FILE_CHANGES] = "changes"};

/* Adds one format that this build writes and reads. */
static void format_add(json_t *formats, const char *name, uint32_t oldest, uint32_t written,
                       uint32_t newest)
{
    (void)json_array_append_new(
        formats, json_pack("{s:s, s:I, s:I, s:I}", "name", name, "written", (json_int_t)written,
                           "oldest_read", (json_int_t)oldest, "newest_read", (json_int_t)newest));
}

static json_t *formats_known(void)
{
    json_t *formats = json_array();
    format_add(formats, "messages", SL_WIRE_VERSION_MIN, SL_WIRE_VERSION, SL_WIRE_VERSION + 1);
    format_add(formats, "lanes", SL_LANE_VERSION, SL_LANE_VERSION, SL_LANE_VERSION);
    for (uint32_t kind = 1; kind < SL_SHM_FILE_KINDS; kind++) {
        struct sl_shm_file_layouts known = sl_shm_file_layouts((enum sl_shm_file_kind)kind);
        char name[40];
        (void)snprintf(name, sizeof name, "segment %s", kinds[kind]);
        format_add(formats, name, known.oldest, known.newest, known.newest);
    }
    format_add(formats, "pages of figures", SL_METRICS_PAGE_VERSION, SL_METRICS_PAGE_VERSION,
               SL_METRICS_PAGE_VERSION);
    format_add(formats, "recordings", SL_RECORDING_VERSION, SL_RECORDING_VERSION,
               SL_RECORDING_VERSION);
    return formats;
}

/* A text for people. If a file name in it is not UTF-8, '?' replaces all bytes beyond ASCII. */
static json_t *text_json(char *text)
{
    json_t *whole = json_string(text);
    for (char *at = text; whole == NULL && *at != '\0'; at++) {
        *at = (unsigned char)*at < 0x80 ? *at : '?';
    }
    return whole != NULL ? whole : json_string(text);
}

/* Adds one file of the shm directory. False: this build cannot read it and needs to. Metrics pages
 * of dead processes need not be readable. */
static bool file_add(const struct ctl *ctl, const char *name, json_t *found)
{
    struct sl_shm_file_found segment = {0};
    struct sl_error why = {0};
    bool figures = strncmp(name, METRICS, sizeof(METRICS) - 1) == 0;
    sl_err err = SL_OK;
    bool left = false;
    if (figures) {
        char path[sizeof(ctl->paths.shm_dir) + NAME_BYTES + 1];
        struct sl_metrics_view *view = NULL;
        (void)snprintf(path, sizeof path, "%s/%s", ctl->paths.shm_dir, name);
        err = sl_metrics_view_open(path, &view, &why);
        if (err == SL_OK) {
            sl_metrics_view_close(&view);
        }
        left = err == SL_ERR_VERSION && sl_metrics_page_is_orphan(path);
    } else {
        err = sl_shm_file_look(ctl->paths.shm_dir, name, &segment, &why);
    }
    if (err != SL_OK && err != SL_ERR_VERSION) {
        return true; /* removed, or not ours: opening it reports that */
    }
    char said[sizeof(why.text) + sizeof(ctl->paths.shm_dir) + NAME_BYTES + 80];
    (void)snprintf(said, sizeof said, "%s", why.text);
    if (err != SL_OK && segment.kind == SL_SHM_FILE_PINS) {
        /* Its owner is named in the part that cannot be read. */
        (void)snprintf(said, sizeof said, "%s; if the process that made it has ended: rm '%s/%s'",
                       why.text, ctl->paths.shm_dir, name);
    }
    if (left) {
        (void)snprintf(said, sizeof said,
                       "'%s': metrics of a process that has ended, in a format that this "
                       "program does not know: ignored",
                       name);
    }
    (void)json_array_append_new(
        found,
        json_pack("{s:o, s:s, s:I, s:o, s:b, s:b, s:o}", "file", ctl_json_text(name), "kind",
                  figures                                                ? "figures"
                  : segment.kind > 0 && segment.kind < SL_SHM_FILE_KINDS ? kinds[segment.kind]
                                                                         : "unknown",
                  "version", (json_int_t)(figures ? 0 : segment.layout), "maker",
                  ctl_json_text(segment.maker), "readable", (int)(err == SL_OK), "left_out",
                  (int)left, "why", text_json(said)));
    return err == SL_OK || left;
}

/* Adds all files of the shm directory, if it exists. *readable: this build can read all of them. */
static sl_err files_add(const struct ctl *ctl, json_t *found, bool *readable, struct sl_error *why)
{
    *readable = true;
    SL_AUTO(closedir) DIR *all = opendir(ctl->paths.shm_dir);
    if (all == NULL) {
        return errno == ENOENT ? SL_OK
                               : sl_fail_os(why, errno, "look into '%s'", ctl->paths.shm_dir);
    }
    for (const struct dirent *entry; (entry = readdir(all)) != NULL;) {
        if (entry->d_name[0] != '.') {
            *readable &= file_add(ctl, entry->d_name, found);
        }
    }
    return SL_OK;
}

/* Fails if the node's processes are in another pid namespace: file_add() could then not tell pages
 * and pins of dead processes. The holder of the node's lock writes its pid into the lock file; if
 * no process here has that pid although the lock is held, the node runs elsewhere. */
static sl_err processes_seen(const struct ctl *ctl, struct sl_error *why)
{
    char path[sizeof(ctl->paths.runtime_dir) + 32];
    (void)snprintf(path, sizeof path, "%s/supervisor.lock", ctl->paths.runtime_dir);
    for (uint32_t tries = 0; tries < LOOKS_MAX; tries++) { /* it may just be taken or released */
        struct sl_proc_id holder;
        SL_AUTO(close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0 || (sl_proc_id_read(path, &holder, NULL) == SL_OK && sl_proc_alive(holder)) ||
            flock(fd, LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK) {
            return SL_OK;
        }
        (void)usleep(LOOK_US);
    }
    return sl_fail(why, SL_ERR_UNSUPPORTED,
                   "node '%s' runs in another pid namespace, from which its processes are not "
                   "visible here: run this command there",
                   sl_config_text(ctl->config, SL_SET_instance));
}

static int formats_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    if (!ctl_parse(ctl, argc, argv, NULL, 0, &code)) {
        return code;
    }
    struct sl_error why = {0};
    if (processes_seen(ctl, &why) != SL_OK) {
        return ctl_failed(ctl, &why);
    }
    json_t *formats = formats_known(), *found = json_array();
    bool readable = true;
    if (files_add(ctl, found, &readable, &why) != SL_OK) {
        json_decref(formats);
        json_decref(found);
        return ctl_failed(ctl, &why);
    }
    code = ctl_answer(ctl, json_pack("{s:s, s:b, s:o, s:o}", "version", SL_VERSION, "readable",
                                     (int)readable, "formats", formats, "found", found));
    return code == CTL_SUCCESS && !readable ? CTL_NO : code;
}

/* clang-format off */
const struct ctl_command ctl_formats = {
    .name = "formats",
    .summary = "print the versions of shared memory and messages that this build reads",
    .help = "formats\n"
            "\n"
            "Prints the version of each format that this build writes, and the versions that it reads; then the names of files in the\n"
            "node's shared memory that it cannot read (exit code 1; metrics of ended processes are ignored). Opens nothing for writing.\n"
            "ipc/README.md has the table of all formats, including those on disk.\n"
            CTL_HELP_COMMON,
    .run = formats_command,
};
/* clang-format on */
