/* client/mooncake/daemons/node_run.c - starting, adopting and ending the node. */
#include "client/mooncake/daemons/node.h"
#include "runtime/sl_clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define STOP_NS     (45 * SL_NS_PER_S) /* longer than sluice-node lets its actors drain */
#define SPAWN_WORDS 12
#define ENVIRON_MAX 4096u
#define WORDS_BYTES 2048

/* ---- the supervisor's process ---- */

/* The supervisor that runs, by its pid file. */
static bool supervisor_find(const struct mc_node *node, struct sl_proc_id *out)
{
    char path[1100];
    unsigned pid = 0;
    uint64_t started = 0;
    (void)snprintf(path, sizeof path, "%s/supervisor.pid", node->paths.runtime_dir);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    int got = fscanf(file, "%u %" SCNu64, &pid, &started); /* NOLINT(cert-err34-c): checked below */
    (void)fclose(file);
    struct sl_proc_id now;
    if (got != 2 || pid == 0 || sl_proc_id_of(pid, &now, NULL) != SL_OK ||
        now.start_time != started) {
        return false;
    }
    *out = now;
    return true;
}

/* Waits until the process is gone; false: it is still there. */
static bool proc_wait(struct sl_proc_id proc, uint64_t wait_ns)
{
    int fd = -1;
    if (sl_proc_open(proc, &fd, NULL) != SL_OK) {
        return !sl_proc_alive(proc);
    }
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    uint64_t until_ns = sl_clock_monotonic_ns() + wait_ns, now_ns = 0;
    int got = 0;
    do {
        now_ns = sl_clock_monotonic_ns();
        got = poll(&wait, 1, now_ns < until_ns ? (int)((until_ns - now_ns) / SL_NS_PER_MS) + 1 : 0);
    } while (got < 0 && errno == EINTR);
    (void)close(fd);
    return got > 0;
}

/* ---- running sluice-node ---- */

/* The environment without secrets, which the node's processes do not need, and with
 * SLUICE_BIN, when the actors lie beside this program. To be freed, its texts are not. */
static char **environment_make(const struct mc_node *node, char *bin, size_t bin_bytes)
{
    char path[1100];
    (void)snprintf(path, sizeof path, "%s/sluice-registrar", node->program_dir);
    bool beside = access(path, X_OK) == 0 && getenv("SLUICE_BIN") == NULL;
    char **list = calloc(ENVIRON_MAX + 2, sizeof *list);
    size_t count = 0;
    if (list == NULL) {
        return NULL;
    }
    static const char secret[] = "MOONCAKE_CLUSTER_SECRET=", token[] = "MOONCAKE_ADMIN_TOKEN=";
    for (char **at = environ; *at != NULL && count < ENVIRON_MAX; at++) {
        if (strncmp(*at, secret, sizeof secret - 1) != 0 &&
            strncmp(*at, token, sizeof token - 1) != 0) {
            list[count++] = *at;
        }
    }
    if (beside) {
        (void)snprintf(bin, bin_bytes, "SLUICE_BIN=%s", node->program_dir);
        list[count++] = bin;
    }
    return list;
}

static long said_bytes(const struct mc_node *node)
{
    char path[1200];
    struct stat status;
    (void)snprintf(path, sizeof path, "%s/supervisor.out", node->paths.log_dir);
    return stat(path, &status) == 0 ? (long)status.st_size : 0;
}

/* Runs sluice-node in a session of its own, so that a Ctrl-C at the terminal ends this process
 * alone, which then ends the node in order. It says what it says to supervisor.out. */
static sl_err supervisor_spawn(const struct mc_node *node, char *const *words, pid_t *pid,
                               struct sl_error *why)
{
    char out[1200];
    char bin[1100];
    (void)snprintf(out, sizeof out, "%s/supervisor.out", node->paths.log_dir);
    SL_AUTO(free) char **environment = environment_make(node, bin, sizeof bin);
    if (environment == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "start sluice-node");
    }
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigset_t standard;
    (void)sigemptyset(&none);
    (void)sigfillset(&standard);
    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawnattr_init(&attributes);
    int code = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    code = code == 0 ? posix_spawn_file_actions_addopen(&files, 1, out,
                                                        O_WRONLY | O_CREAT | O_APPEND, 0600)
                     : code;
    code = code == 0 ? posix_spawn_file_actions_adddup2(&files, 1, 2) : code;
    code = code == 0
               ? posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
                                                           POSIX_SPAWN_SETSIGDEF)
               : code;
    code = code == 0 ? posix_spawnattr_setsigmask(&attributes, &none) : code;
    code = code == 0 ? posix_spawnattr_setsigdefault(&attributes, &standard) : code;
    code = code == 0
               ? posix_spawn(pid, node->supervisor_path, &files, &attributes, words, environment)
               /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): environment has its clean-up */
               : code;
    (void)posix_spawn_file_actions_destroy(&files);
    (void)posix_spawnattr_destroy(&attributes);
    return code == 0 ? SL_OK : sl_fail_os(why, code, "start '%.150s'", node->supervisor_path);
}

/* ---- start ---- */

static bool settings_same(const struct mc_node *node)
{
    size_t length = strlen(node->settings);
    FILE *file = fopen(node->config_path, "re");
    if (file == NULL) {
        return false;
    }
    SL_AUTO(free) char *text = malloc(length + 2);
    size_t got = text != NULL ? fread(text, 1, length + 1, file) : 0;
    (void)fclose(file);
    return text != NULL && got == length && memcmp(text, node->settings, length) == 0;
}

/* The first line that differs, for people. */
static void settings_difference(const struct mc_node *node, char *out, size_t out_bytes)
{
    char line[1200];
    const char *want = node->settings;
    (void)snprintf(out, out_bytes, "it was not started by a mooncake_master");
    FILE *file = fopen(node->config_path, "re");
    if (file == NULL) {
        return;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        size_t length = strcspn(want, "\n");
        line[strcspn(line, "\n")] = '\0';
        if (strlen(line) != length || memcmp(line, want, length) != 0) {
            (void)snprintf(out, out_bytes, "it has '%.80s', asked is '%.*s'", line,
                           (int)SL_MIN(length, (size_t)80), want);
            break;
        }
        want += length + (want[length] == '\n' ? 1 : 0);
    }
    (void)fclose(file);
}

static sl_err settings_save(const struct mc_node *node, struct sl_error *why)
{
    char fresh[1200];
    (void)snprintf(fresh, sizeof fresh, "%s.new", node->config_path);
    SL_AUTO(close)
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    size_t length = strlen(node->settings);
    if (fd < 0 || write(fd, node->settings, length) != (ssize_t)length ||
        rename(fresh, node->config_path) != 0) {
        return sl_fail_os(why, errno, "write '%.150s'", fresh);
    }
    return SL_OK;
}

/* Memory and processes that a killed node of other settings left. */
static sl_err leftovers_end(const struct mc_node *node, struct sl_error *why)
{
    char *const words[] = {(char *)(uintptr_t)node->supervisor_path, (char *)(uintptr_t) "stop",
                           (char *)(uintptr_t) "--instance", (char *)(uintptr_t)node->instance,
                           NULL};
    pid_t pid = 0;
    int status = 0;
    sl_err err = supervisor_spawn(node, words, &pid, why);
    if (err != SL_OK) {
        return err;
    }
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return sl_fail_os(why, errno, "wait for sluice-node stop");
        }
    }
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return code == 0 || code == 3 ? SL_OK /* 3: no supervisor ran, which was known */
                                  : sl_fail(why, SL_ERR_OS,
                                            "what an earlier node '%s' left could not be removed: "
                                            "sluice-node stop ended with code %d",
                                            node->instance, code);
}

static bool arena_is_there(const struct mc_node *node)
{
    char path[1100];
    (void)snprintf(path, sizeof path, "%s/arena.0", node->paths.shm_dir);
    return access(path, F_OK) == 0;
}

/* What the node's processes will have: the file's settings, and what wins over them. */
static sl_err config_reload(struct mc_node *node, struct sl_error *why)
{
    struct sl_config *config = NULL;
    sl_err err = sl_config_create(&config, why);
    err = err == SL_OK ? sl_config_load(config, node->config_path, 0, NULL, NULL, why) : err;
    err = err == SL_OK ? sl_config_set(config, "instance", node->instance, "mooncake_master", why)
                       : err;
    err = err == SL_OK ? sl_paths_from(config, &node->paths, why) : err;
    if (err != SL_OK) {
        sl_config_destroy(&config);
        return err;
    }
    sl_config_destroy(&node->config);
    node->config = config;
    return SL_OK;
}

static sl_err node_spawn(struct mc_node *node, struct sl_error *why)
{
    char *const words[SPAWN_WORDS] = {
        (char *)(uintptr_t)node->supervisor_path, (char *)(uintptr_t) "start",
        (char *)(uintptr_t) "--foreground",       (char *)(uintptr_t) "--config",
        (char *)(uintptr_t)node->config_path,     (char *)(uintptr_t) "--instance",
        (char *)(uintptr_t)node->instance,        NULL};
    pid_t pid = 0;
    node->said_bytes = said_bytes(node);
    sl_err err = supervisor_spawn(node, words, &pid, why);
    if (err != SL_OK) {
        return err;
    }
    node->child = true;
    if (sl_proc_id_of((uint32_t)pid, &node->supervisor, NULL) != SL_OK) {
        node->supervisor = (struct sl_proc_id){.pid = (uint32_t)pid}; /* it has ended already */
    }
    return SL_OK;
}

sl_err mc_node_start(struct mc_node *node, struct sl_error *why)
{
    struct sl_proc_id running = {0}; /* not ours, and not ours to end, before it is adopted */
    bool runs = supervisor_find(node, &running);
    bool same = settings_same(node);
    sl_err err = SL_OK;
    if (runs && !same) {
        char difference[200];
        settings_difference(node, difference, sizeof difference);
        return sl_fail(why, SL_ERR_CONFIG,
                       "node '%s' runs, and %s; end it: sluice-node stop --instance %s",
                       node->instance, difference, node->instance);
    }
    if (!same) {
        err = arena_is_there(node) ? leftovers_end(node, why) : SL_OK;
        err = err == SL_OK ? settings_save(node, why) : err;
    }
    err = err == SL_OK ? config_reload(node, why) : err;
    if (err != SL_OK) {
        return err;
    }
    node->adopted = runs;
    node->supervisor = running;
    return runs ? SL_OK : node_spawn(node, why);
}

void mc_node_last_words(const struct mc_node *node, char *out, size_t out_bytes)
{
    char path[1200];
    out[0] = '\0';
    (void)snprintf(path, sizeof path, "%s/supervisor.out", node->paths.log_dir);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return;
    }
    if (fseek(file, 0, SEEK_END) == 0) {
        long end = ftell(file);
        long from = SL_MAX(node->said_bytes, end - ((long)out_bytes - 1));
        if (fseek(file, from, SEEK_SET) == 0) {
            out[fread(out, 1, out_bytes - 1, file)] = '\0';
        }
    }
    (void)fclose(file);
}

/* ---- stop ---- */

sl_err mc_node_stop(struct mc_node *node, struct sl_error *why)
{
    sl_err err = SL_OK;
    if (node->supervisor.pid == 0) {
        return SL_OK;
    }
    if (sl_proc_alive(node->supervisor)) {
        (void)kill((pid_t)node->supervisor.pid, SIGTERM);
        (void)kill((pid_t)node->supervisor.pid, SIGCONT);
        if (!proc_wait(node->supervisor, STOP_NS)) {
            err = sl_fail(why, SL_ERR_TIMEOUT, "supervisor %u of node '%s' did not end: killed",
                          node->supervisor.pid, node->instance);
            (void)kill((pid_t)node->supervisor.pid, SIGKILL);
            (void)proc_wait(node->supervisor, SL_NS_PER_S);
        }
    }
    if (node->child) {
        (void)waitpid((pid_t)node->supervisor.pid, NULL, 0);
    }
    node->supervisor = (struct sl_proc_id){0};
    return err;
}
