/* tests/fault/thrash_node.c - the node of a run: started and stopped by deploy/sluice-node, and
 * observed from outside. */
#include "tests/fault/thrash_driver.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS_MAX   40
#define CODE_TERMINATED 143 /* by an upgrade's SIGTERM, before it was handled */
#define CODE_KILLED                                                               \
    137 /* SIGKILL as the supervisor sees it: ours, or its own of a stopped actor \
         */

const char *const thrash_victim_names[THRASH_VICTIM_COUNT] = {
    "registrar", "keyer",         "coordinator", "swapper.0", "swapper.1",
    "tierer.0",  "transporter.0", "client",      "engine",    "supervisor",
};

/* The smallest log files: a tierer that is killed abandons the rest of one. io_grace is short,
 * since the i/o of a killed process ends long before. */
static const char *const fixed_settings[] = {"--ranks",       "2",  "--disk-segment", "4MiB",
                                             "--io-grace",    "3s", "--trace-events", "8192",
                                             "--clients-max", "128"};

/* Starts it in a process group of its own, or in ours. */
static pid_t node_run(const struct driver *driver, const char *command, const char *const *words,
                      uint32_t word_count, bool own_group)
{
    const char *arguments[ARGUMENTS_MAX] = {driver->options.node, command,         "--instance",
                                            driver->instance,     "--runtime-dir", driver->run_dir,
                                            "--shm-dir",          driver->shm_dir};
    uint32_t count = 8;
    for (uint32_t i = 0; i < word_count; i++) {
        arguments[count++] = words[i];
    }
    arguments[count] = NULL;
    pid_t pid = fork();
    if (pid == 0) {
        char log[THRASH_PATH + 32];
        (void)snprintf(log, sizeof log, "%s/node.out", driver->directory);
        int fd = open(log, O_CREAT | O_WRONLY | O_APPEND, 0600);
        if (fd >= 0) {
            (void)dup2(fd, STDOUT_FILENO);
            (void)dup2(fd, STDERR_FILENO);
        }
        if (own_group) {
            (void)setpgid(0, 0);
        }
        (void)setenv("SLUICE_BIN", driver->bin_dir, 1);
        (void)execv(driver->options.node, (char *const *)(uintptr_t)arguments);
        _exit(127);
    }
    return pid;
}

pid_t driver_node_begin(const struct driver *driver, const char *command, const char *const *words,
                        uint32_t word_count)
{
    return node_run(driver, command, words, word_count, true);
}

int driver_node(const struct driver *driver, const char *command, bool with_settings)
{
    char memory[32];
    char disk[32];
    const char *words[ARGUMENTS_MAX] = {"--memory", memory,        "--disk",
                                        disk,       "--disk-path", driver->disk_dir};
    uint32_t count = 6;
    (void)snprintf(memory, sizeof memory, "%ju", (uintmax_t)driver->memory_bytes);
    (void)snprintf(disk, sizeof disk, "%ju", (uintmax_t)driver->disk_bytes);
    for (uint32_t i = 0; i < SL_COUNT(fixed_settings); i++) {
        words[count++] = fixed_settings[i];
    }
    int status = 0;
    pid_t pid = node_run(driver, command, words, with_settings ? count : 0, false);
    while (pid > 0 && waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return -1;
        }
    }
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int driver_pidfd(const struct driver *driver, const char *name, uint32_t *pid)
{
    char path[THRASH_PATH + 64];
    bool supervisor = strcmp(name, "supervisor") == 0;
    (void)snprintf(path, sizeof path, supervisor ? "%s/supervisor.pid" : "%s/pid/%s",
                   driver->run_dir, name);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return -1;
    }
    uintmax_t start_time = 0;
    unsigned number = 0;
    int read = fscanf(file, "%u %ju", &number, &start_time);
    (void)fclose(file);
    int pidfd = -1;
    const struct sl_proc_id id = {.pid = number, .start_time = start_time};
    if (read != 2 || sl_proc_open(id, &pidfd, NULL) != SL_OK) {
        return -1;
    }
    *pid = number;
    return pidfd;
}

bool driver_signal(int pidfd, int signal)
{
    return syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0) == 0;
}

uint64_t driver_metric(const struct driver *driver, const char *actor, const char *metric)
{
    char path[160];
    char name[SL_METRIC_NAME_BYTES];
    uint64_t value = 0;
    uint64_t found = 0;
    struct sl_metrics_view *view = NULL;
    struct sl_metrics_summary summary;
    (void)snprintf(path, sizeof path, "%s/metrics.%s", driver->shm_dir, actor);
    if (sl_metrics_view_open(path, &view, NULL) != SL_OK) {
        return 0;
    }
    sl_metrics_view_summary(view, &summary);
    for (uint32_t i = 0; i < summary.metric_count; i++) {
        if (sl_metrics_view_metric(view, i, name, &value) && strcmp(name, metric) == 0) {
            found = value;
        }
    }
    sl_metrics_view_close(&view);
    return found;
}

/* ---- descriptors and memory of the actors ---- */

static uint64_t descriptors_of(uint32_t pid)
{
    char path[64];
    uint64_t count = 0;
    (void)snprintf(path, sizeof path, "/proc/%u/fd", pid);
    DIR *directory = opendir(path);
    if (directory == NULL) {
        return 0;
    }
    while (readdir(directory) != NULL) {
        count++;
    }
    (void)closedir(directory);
    return count - 2;
}

static uint64_t anon_kib_of(uint32_t pid)
{
    char path[64];
    char line[256];
    uintmax_t kib = 0;
    (void)snprintf(path, sizeof path, "/proc/%u/status", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "RssAnon: %ju", &kib) == 1) {
            break;
        }
    }
    (void)fclose(file);
    return kib;
}

void driver_sample(struct driver *driver)
{
    for (uint32_t i = 0; i < THRASH_ACTORS; i++) {
        struct driver_actor *actor = &driver->actors[i];
        uint32_t pid = 0;
        SL_AUTO(close) int pidfd = driver_pidfd(driver, thrash_victim_names[i], &pid);
        if (pidfd < 0) {
            continue;
        }
        actor->descriptors_last = descriptors_of(pid);
        actor->anon_kib_last = anon_kib_of(pid);
        actor->descriptors_max = SL_MAX(actor->descriptors_max, actor->descriptors_last);
        actor->anon_kib_max = SL_MAX(actor->anon_kib_max, actor->anon_kib_last);
        if (actor->descriptors_first == 0) {
            actor->descriptors_first = actor->descriptors_last;
        }
    }
    driver->sampled_ns = sl_clock_monotonic_ns();
}

/* ---- leftovers ---- */

static bool belongs(const struct driver *driver, const char *pid, char *line, size_t room)
{
    char path[300];
    (void)snprintf(path, sizeof path, "/proc/%.20s/cmdline", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t length = read(fd, line, room - 1);
    (void)close(fd);
    if (length <= 0 || strtoul(pid, NULL, 10) == (unsigned long)getpid()) {
        return false;
    }
    line[length] = '\0';
    bool found = false;
    for (const char *word = line; word < line + length; word += strlen(word) + 1) {
        found = found || strcmp(word, driver->instance) == 0;
    }
    for (ssize_t i = 0; i + 1 < length; i++) {
        line[i] = line[i] == '\0' ? ' ' : line[i];
    }
    return found;
}

uint32_t driver_leftovers(const struct driver *driver, bool note)
{
    uint32_t count = 0;
    char line[400];
    DIR *directory = opendir("/proc");
    if (directory == NULL) {
        return 0;
    }
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9' &&
            belongs(driver, entry->d_name, line, sizeof line)) {
            count++;
            if (note) {
                thrash_note(driver->shared, "left over: process %s: %.150s", entry->d_name, line);
            }
        }
    }
    (void)closedir(directory);
    if (access(driver->shm_dir, F_OK) == 0) {
        count++;
        if (note) {
            thrash_note(driver->shared, "left over: %s", driver->shm_dir);
        }
    }
    return count;
}

/* ---- logs ---- */

static const char *line_text(json_t *line, const char *field)
{
    const char *text = json_string_value(json_object_get(line, field));
    return text == NULL ? "" : text;
}

static void exit_look(struct driver *driver, const char *text)
{
    for (uint32_t i = 0; i < THRASH_ACTORS; i++) {
        int code = 0;
        size_t length = strlen(thrash_victim_names[i]);
        if (strncmp(text, thrash_victim_names[i], length) == 0 &&
            sscanf(text + length, ": ended with code %d,", &code) == 1 && code != 0 &&
            code != CODE_KILLED && !(code == CODE_TERMINATED && driver->options.upgrades)) {
            driver->actors[i].exits_odd++;
            driver->crashes++;
            thrash_note(driver->shared, "crash: %s", text);
        }
    }
}

void driver_read_logs(struct driver *driver)
{
    char path[THRASH_PATH + 64];
    char text[4096];
    (void)snprintf(path, sizeof path, "%s/log/supervisor.jsonl", driver->run_dir);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(text, sizeof text, file) != NULL) {
        json_t *line = json_loads(text, 0, NULL);
        exit_look(driver, line_text(line, "msg"));
        json_decref(line);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}
