/* client/ctl/doctor.c - sluicectl doctor: whether this machine can run the node that the settings
 * describe, and how to mend what is in the way. It changes nothing but for a file of one page that
 * it makes and removes in the directory of the disk tier. */
#include "client/ctl/doctor.h"
#include "client/command/supervision.h"
#include "client/ctl/commands.h"
#include "client/ctl/nics.h"
#include "client/ctl/rights.h"

#include "cuda/sl_device.h"
#include "ipc/sl_huge.h"
#include "runtime/sl_clock.h"
#include "runtime/sl_limits.h"
#include "runtime/sl_metrics.h"
#include "runtime/sl_priority.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Actors that wait so long, and so much of their lives (a part in so many), are kept from working.
 */
#define CORE_WAIT_NS    (2 * SL_NS_PER_S)
#define CORE_WAIT_SHARE 20u

static const char *const level_names[] = {"ok", "warn", "fail"};

void doctor_say(struct doctor *doctor, enum doctor_level level, const char *check, const char *mend,
                const char *format, ...)
{
    char text[SL_LIMITS_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    doctor->count[level]++;
    if (doctor->ctl->json) {
        (void)json_array_append_new(doctor->lines,
                                    json_pack("{s:s, s:s, s:o, s:s}", "check", check, "level",
                                              level_names[level], "text",
                                              ctl_json_bytes(text, strlen(text)), "mend", mend));
        return;
    }
    (void)printf("%-5s%-14s", level_names[level], check);
    ctl_print_bytes(stdout, text, strlen(text));
    (void)printf("\n");
    if (mend[0] != '\0') {
        (void)printf("%19s-> %s\n", "", mend);
    }
}

/* ---- helpers ---- */

bool doctor_parent(const char *path, char out[1100])
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

uint64_t doctor_free_bytes(const char *path)
{
    struct statvfs status;
    return statvfs(path, &status) == 0 ? (uint64_t)status.f_bavail * status.f_frsize : 0;
}

/* ---- who restarts what ends ---- */

static void doctor_supervisor(struct doctor *doctor)
{
    struct supervision supervision;
    char text[200], mend[200];
    supervision_look(doctor->ctl, &supervision);
    if (supervision.state == SUPERVISION_NONE) {
        return;
    }
    supervision_text(doctor->ctl, &supervision, text, mend);
    if (supervision.state == SUPERVISION_FINE) {
        doctor_say(doctor, DOCTOR_OK, "supervisor", "", "process %" PRIu32, supervision.pid);
    } else {
        doctor_say(doctor, DOCTOR_WARN, "supervisor", mend, "%s", text);
    }
}

/* ---- memory ---- */

static void doctor_memory(struct doctor *doctor)
{
    char parent[1100], a[32], b[32], c[32];
    const char *shm_dir = doctor->ctl->paths.shm_dir;
    uint64_t memory =
        sl_config_u64(doctor->config, SL_SET_memory) + sl_limits_pages_bytes(doctor->config);
    uint64_t want = memory + sl_config_index_memory(doctor->config);
    uint64_t least = memory + sl_config_u64(doctor->config, SL_SET_index_memory);
    if (!doctor_parent(shm_dir, parent)) {
        doctor_say(doctor, DOCTOR_FAIL, "memory", "mount a tmpfs there, or set shm_dir",
                   "no directory above '%s' exists", shm_dir);
        return;
    }
    uint64_t own = sl_dir_used_bytes(shm_dir), left = doctor_free_bytes(parent);
    bool enough = left + own >= want;
    /* The index's own ceiling is far more than large values need. */
    doctor_say(
        doctor,
        enough                ? DOCTOR_OK
        : left + own >= least ? DOCTOR_WARN
                              : DOCTOR_FAIL,
        "memory",
        enough ? "" : "mount -o remount,size=N /dev/shm, or set memory or index_memory lower",
        "%s free at %s, %s there already, memory, index_memory, trace_events want %s at most",
        ctl_size_text(left, a), parent, ctl_size_text(own, b), ctl_size_text(want, c));
}

static void doctor_huge_pages(struct doctor *doctor)
{
    char parent[1100], why[SL_HUGE_TEXT_BYTES] = "";
    if (!doctor_parent(doctor->ctl->paths.shm_dir, parent)) {
        return;
    }
    bool huge = sl_huge_pages(parent, why);
    doctor_say(doctor, huge ? DOCTOR_OK : DOCTOR_WARN, "huge_pages",
               huge ? ""
                    : "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled, or mount "
                      "the tmpfs with huge=advise",
               "%s", why);
}

/* ---- cores: how long the actors of the node that runs were kept waiting for one ---- */

struct core_waits {
    uint32_t actor_count;
    bool late; /* the worst one: any that is late is worse than those that are not */
    char worst[32];
    uint64_t worst_ns, worst_life_ns;
};

static bool core_wait_of(void *context, struct sl_metrics_view *view)
{
    struct core_waits *waits = context;
    struct sl_metrics_summary summary = {0};
    uint64_t wait_ns = 0;
    sl_metrics_view_summary(view, &summary);
    if (summary.proc.pid == 0 || !sl_proc_alive(summary.proc) ||
        strncmp(summary.actor, "client.", 7) == 0 ||
        sl_core_wait_ns(summary.proc.pid, &wait_ns, NULL) != SL_OK) {
        return true;
    }
    uint64_t life_ns = sl_clock_monotonic_ns() - summary.started_ns;
    waits->actor_count++;
    bool late = wait_ns > CORE_WAIT_NS && wait_ns > life_ns / CORE_WAIT_SHARE;
    if (late > waits->late || (late == waits->late && wait_ns >= waits->worst_ns)) {
        waits->late = late;
        (void)snprintf(waits->worst, sizeof(waits->worst), "%s", summary.actor);
        waits->worst_ns = wait_ns;
        waits->worst_life_ns = life_ns;
    }
    return true;
}

static void doctor_cores(struct doctor *doctor)
{
    struct core_waits waits = {0};
    (void)ctl_pages(doctor->ctl, core_wait_of, &waits);
    if (waits.actor_count == 0) {
        return;
    }
    bool late = waits.late;
    doctor_say(doctor, late ? DOCTOR_WARN : DOCTOR_OK, "cores",
               late ? "leave the node a core, raise its CPU limit, start it with CAP_SYS_NICE or "
                      "LimitNICE=, or sysctl kernel.sched_autogroup_enabled=0"
                    : "",
               "%s was ready to run and had no core for %.2f s of its %.2f s", waits.worst,
               (double)waits.worst_ns / SL_NS_PER_S, (double)waits.worst_life_ns / SL_NS_PER_S);
}

/* ---- limits ---- */

static void doctor_device(struct doctor *doctor)
{
    const char *name = sl_config_text(doctor->config, SL_SET_device);
    struct sl_error why = {0};
    sl_err err = sl_device_check(name, (uint32_t)sl_config_u64(doctor->config, SL_SET_ranks), &why);
    doctor_say(doctor, err == SL_OK ? DOCTOR_OK : DOCTOR_FAIL, "device",
               err == SL_OK ? "" : "device = host, or a driver and a GPU for each rank", "%s",
               err == SL_OK ? name : why.text);
}

static void doctor_limits(struct doctor *doctor)
{
    static const enum doctor_level levels[] = {[SL_LIMITS_FINE] = DOCTOR_OK,
                                               [SL_LIMITS_TIGHT] = DOCTOR_WARN,
                                               [SL_LIMITS_BROKEN] = DOCTOR_FAIL};
    struct sl_limits limits;
    struct sl_limits_case at = {doctor->config, &limits, doctor->running, ""};
    sl_limits_read("", ctl_registrar_pid(doctor->paths.shm_dir), &limits);
    for (size_t i = 0; i < SL_LIMITS_CHECKS; i++) {
        const struct sl_limits_check *row = &sl_limits_checks[i];
        enum sl_limits_level level = row->check(&at);
        doctor_say(doctor, levels[level], row->name, level == SL_LIMITS_FINE ? "" : row->mend, "%s",
                   at.text);
    }
}

/* ---- files with secrets or rights ---- */

static void doctor_key_files(struct doctor *doctor)
{
    struct ctl_right right;
    bool any = false;
    for (uint32_t at = 0; ctl_right_next(doctor->config, &at, &right); any = true) {
        if (right.err == SL_OK) {
            doctor_say(doctor, DOCTOR_OK, "key_files", "", "%s: '%s'", right.name, right.path);
        } else {
            doctor_say(doctor, DOCTOR_FAIL, "key_files",
                       right.err == SL_ERR_NOT_FOUND ? "make it, or correct the setting"
                                                     : "chown or chmod it, or ask as its own user",
                       "%s: %s", right.name, right.why.text);
        }
    }
    if (!any) {
        doctor_say(doctor, DOCTOR_OK, "key_files", "", "none is configured");
    }
}

/* ---- what earlier nodes left ---- */

static void doctor_leftovers(struct doctor *doctor)
{
    char base[1100], path[1400], a[32];
    uint32_t found = 0;
    (void)snprintf(base, sizeof(base), "/dev/shm/sluice-%u", (unsigned)getuid());
    SL_AUTO(closedir) DIR *directory = opendir(base);
    for (struct dirent *entry = directory == NULL ? NULL : readdir(directory); entry != NULL;
         entry = readdir(directory)) {
        (void)snprintf(path, sizeof(path), "%s/%s", base, entry->d_name);
        if (entry->d_name[0] == '.' || sl_dir_used_bytes(path) == 0 || ctl_registrar_lives(path)) {
            continue;
        }
        found++;
        doctor_say(doctor, DOCTOR_WARN, "leftovers",
                   "start this instance to use it again, or remove the directory",
                   "'%s' holds %s, and no registrar of it lives", path,
                   ctl_size_text(sl_dir_used_bytes(path), a));
    }
    if (found == 0) {
        doctor_say(doctor, DOCTOR_OK, "leftovers", "", "none in %s", base);
    }
}

static int doctor_command(struct ctl *ctl, int argc, char **argv)
{
    static void (*const checks[])(struct doctor *) = {
        doctor_node,      doctor_supervisor, doctor_memory,    doctor_huge_pages, doctor_cores,
        doctor_limits,    doctor_device,     doctor_disk,      doctor_verbs,      doctor_ports,
        doctor_metrics,   doctor_events,     doctor_key_files, doctor_cluster,    doctor_directory,
        doctor_leftovers, doctor_logout,
    };
    int code;
    const char *sysfs = SL_SYSFS;
    const struct ctl_option options[] = {{.name = "sysfs", .text = &sysfs}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    struct doctor doctor = {.ctl = ctl,
                            .config = ctl->config,
                            .paths = ctl->paths,
                            .lines = json_array(),
                            .sysfs = sysfs};
    doctor.running = ctl_registrar_lives(ctl->paths.shm_dir);
    (void)ctl_memory_fit(ctl);
    for (uint32_t i = 0; i < SL_COUNT(checks); i++) {
        checks[i](&doctor);
    }
    sl_config_destroy(&doctor.given);
    bool fine = doctor.count[DOCTOR_FAIL] == 0;
    if (ctl->json) {
        ctl_print_json(json_pack("{s:b, s:b, s:o}", "ok", fine, "running", doctor.running, "checks",
                                 doctor.lines));
    } else {
        json_decref(doctor.lines);
        (void)printf("%u ok, %u to look at, %u in the way\n", doctor.count[DOCTOR_OK],
                     doctor.count[DOCTOR_WARN], doctor.count[DOCTOR_FAIL]);
    }
    return fine ? CTL_FINE : CTL_NO;
}

/* clang-format off */
const struct ctl_command ctl_doctor = {
    .name = "doctor",
    .summary = "check the machine for the node that the settings describe",
    .help = "doctor [--sysfs DIR]\n"
            "\n"
            "One line a check: the node's supervisor, memory, huge pages, limits, io_uring, disk, NICs, ports, /metrics, events,\n"
            "key files, keys and names of nodes, the directory, leftovers, whether a logout removes shared memory\n"
            "(RemoveIPC of systemd); ok, warn or fail, and how to mend it. Needs no node. Code 0 when nothing failed. Changes nothing.\n"
            "\n"
            "  --sysfs DIR       look for NICs below DIR (default /sys)\n"
            CTL_HELP_COMMON,
    .run = doctor_command,
};
/* clang-format on */
