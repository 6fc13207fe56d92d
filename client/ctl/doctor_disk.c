/* client/ctl/doctor_disk.c - sluicectl doctor: the node that runs, and the disk tier: of that node
 * as it is, else whether there could be one. */
#include "client/ctl/doctor.h"

#include "runtime/config_file.h"
#include "runtime/sl_disk_place.h"
#include "runtime/sl_metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_BYTES 2048

/* ---- the node that runs ---- */

/* What the supervisor wrote down: lines of name=value. Errors: SL_ERR_NOT_FOUND, SL_ERR_CONFIG. */
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
            err = sl_fail(why, SL_ERR_CONFIG, "'%.150s': '%.40s' is no setting", path, line);
            break;
        }
        *equals = '\0';
        err = sl_setting_find(line, strlen(line), &setting)
                  ? sl_config_assign(config, setting, equals + 1, path, why)
                  : sl_fail(why, SL_ERR_CONFIG, "%s: unknown setting '%.64s'", path, line);
    }
    return err;
}

/* Says which node is meant, and nothing of how it is. */
static bool names_the_node(const char *name)
{
    return strcmp(name, "instance") == 0 || strcmp(name, "runtime_dir") == 0 ||
           strcmp(name, "shm_dir") == 0;
}

/* What stands on the command line wins: what would be, were the node started with that. */
static sl_err given_make(const struct ctl *ctl, struct doctor *doctor, struct sl_error *why)
{
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

void doctor_node(struct doctor *doctor)
{
    const struct ctl *ctl = doctor->ctl;
    struct sl_error why = {0};
    if (!doctor->running) {
        const char *instance = sl_config_text(doctor->config, SL_SET_instance);
        char dir[64];
        uint32_t owner = 0;
        bool of_other = sl_service_dir(instance, dir, &owner) && owner != geteuid();
        doctor_say(doctor, of_other ? DOCTOR_WARN : DOCTOR_OK, "node",
                   of_other ? "ask as that user, or as root" : "",
                   "none of this user runs under the name '%s'%s%s: the settings given here are "
                   "looked at",
                   instance, of_other ? ", and another user has " : "", of_other ? dir : "");
        return;
    }
    if (ctl->config_file != NULL) {
        doctor_say(doctor, DOCTOR_OK, "node", "", "one runs; the settings of '%s' are looked at",
                   ctl->config_file);
        return;
    }
    if (given_make(ctl, doctor, &why) != SL_OK) {
        doctor_say(doctor, DOCTOR_WARN, "node", "give its settings: --config FILE",
                   "one runs, and what it was given is not known (%s)", why.text);
        return;
    }
    doctor_say(doctor, DOCTOR_OK, "node", "", "one runs; what it was given is looked at%s",
               doctor->as_is ? "" : ", with the settings given here");
}

/* ---- disk ---- */

/* Whether a page can be written there past the cache. Errors: errno, 0 is none. */
static int direct_try(const char *directory)
{
    char path[1200];
    void *page = NULL;
    (void)snprintf(path, sizeof(path), "%s/.doctor-XXXXXX", directory);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0) {
        return errno;
    }
    int os_code = posix_memalign(&page, 4096, 4096);
    if (os_code == 0) {
        memset(page, 0, 4096);
        if (fcntl(fd, F_SETFL, O_DIRECT) != 0 || pwrite(fd, page, 4096, 0) != 4096) {
            os_code = errno == 0 ? EIO : errno;
        }
    }
    free(page);
    (void)unlink(path);
    (void)close(fd);
    return os_code;
}

static void disk_direct(struct doctor *doctor, const char *parent)
{
    int os_code = direct_try(parent);
    bool direct = sl_config_bool(doctor->config, SL_SET_disk_direct);
    if (os_code == 0) {
        doctor_say(doctor, DOCTOR_OK, "disk_direct", "", "O_DIRECT works at %s", parent);
    } else if (os_code == EINVAL) {
        doctor_say(doctor, direct ? DOCTOR_WARN : DOCTOR_OK, "disk_direct",
                   direct ? "put disk_path on ext4 or xfs" : "",
                   "no O_DIRECT at %s: the page cache is in the way", parent);
    } else {
        doctor_say(doctor, DOCTOR_FAIL, "disk_direct",
                   "give this user the directory, or set disk_path", "no page written at %s: %s",
                   parent, strerror(os_code));
    }
}

/* A path of the node that runs: as its tierer says. */
static void disk_running(struct doctor *doctor, uint32_t at, const char *place)
{
    char page[1200], a[32], b[32], c[32];
    struct sl_metrics_view *view = NULL;
    struct sl_metrics_summary summary = {0};
    (void)snprintf(page, sizeof page, "%s/metrics.tierer.%u", doctor->paths.shm_dir, at);
    if (sl_metrics_view_open(page, &view, NULL) == SL_OK) {
        sl_metrics_view_summary(view, &summary);
        sl_metrics_view_close(&view);
    }
    bool lives = summary.proc.pid != 0 && sl_proc_alive(summary.proc);
    const char *mend = "sluice-node status and logs; mend what it says: it starts by itself then";
    if (!lives) {
        doctor_say(doctor, DOCTOR_FAIL, "disk", mend,
                   "no disk tier at '%s': tierer.%u does not run%s%s", place, at,
                   summary.reason[0] != '\0' ? ": " : "", summary.reason);
        return;
    }
    bool fine = summary.health == SL_HEALTH_READY;
    uint64_t own = sl_dir_used_bytes(place), left = doctor_free_bytes(place);
    uint64_t want = sl_config_u64(doctor->config, SL_SET_disk) / doctor->paths.disk_count;
    bool enough = own + left >= want;
    doctor_say(doctor, fine && enough ? DOCTOR_OK : DOCTOR_WARN, "disk",
               !fine    ? mend
               : enough ? ""
                        : "free some, or start it with a lower disk",
               "tierer.%u serves '%s': %s there, %s free, its ceiling is %s%s%s", at, place,
               ctl_size_text(own, a), ctl_size_text(left, b), ctl_size_text(want, c),
               summary.reason[0] != '\0' ? ": " : "", summary.reason);
}

/* What the paths before this one still want of the same device. */
struct disk_wants {
    dev_t devices[SL_DISK_PATHS_MAX];
    uint64_t missing[SL_DISK_PATHS_MAX];
};

static void disk_planned(struct doctor *doctor, uint32_t at, const char *place,
                         struct disk_wants *wants)
{
    char parent[1100], a[32], b[32], c[32];
    struct stat status = {0};
    if (!doctor_parent(place, parent) || stat(parent, &status) != 0) {
        doctor_say(doctor, DOCTOR_FAIL, "disk", "make the directory, or set disk_path",
                   "nothing above '%s' exists", place);
        return;
    }
    /* split evenly */
    uint64_t want = sl_config_u64(doctor->config, SL_SET_disk) / doctor->paths.disk_count;
    uint64_t left = doctor_free_bytes(parent), own = sl_dir_used_bytes(place), others = 0;
    wants->devices[at] = status.st_dev;
    wants->missing[at] = want - SL_MIN(want, own);
    for (uint32_t j = 0; j < at; j++) {
        others += wants->devices[j] == wants->devices[at] ? wants->missing[j] : 0;
    }
    bool enough = left >= others && left - others >= wants->missing[at];
    doctor_say(doctor, enough ? DOCTOR_OK : DOCTOR_FAIL, "disk",
               enough ? "" : "free some, or set disk lower",
               "'%s': %s free, %s there already, this path wants %s%s", place,
               ctl_size_text(left, a), ctl_size_text(own, b), ctl_size_text(want, c),
               others > 0 ? ", others on the same device theirs" : "");
    disk_direct(doctor, parent);
}

void doctor_disk(struct doctor *doctor)
{
    struct disk_wants wants = {0};
    struct sl_disk_sizes sizes;
    struct sl_error why = {0};
    if (sl_config_u64(doctor->config, SL_SET_disk) == 0) {
        doctor_say(doctor, DOCTOR_OK, "disk", "", "no disk tier (disk = 0)");
        return;
    }
    if (sl_disk_sizes(doctor->config, &sizes, &why) != SL_OK) {
        doctor_say(doctor, DOCTOR_FAIL, "disk", "disk is 256 KiB to 8000 GiB for each path", "%s",
                   why.text);
        return;
    }
    for (uint32_t i = 0; i < doctor->paths.disk_count; i++) {
        char place[SL_DISK_PLACE_BYTES];
        const char *path = doctor->paths.disk_paths[i];
        bool found = sl_disk_place_find(path, place, &why) == SL_OK &&
                     sl_disk_format_check(place, &why) == SL_OK &&
                     sl_disk_place_free(&doctor->paths, place, &why) == SL_OK;
        if (doctor->given != NULL && doctor->as_is) {
            disk_running(doctor, i, found ? place : path);
        } else if (found) {
            disk_planned(doctor, i, place, &wants);
        } else {
            doctor_say(doctor, DOCTOR_FAIL, "disk", "set disk_path, or mend the directory", "%s",
                       why.text);
        }
    }
}
