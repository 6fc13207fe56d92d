/* tests/fault/thrash.c - the thrasher: a real node under load while its processes are killed,
 * stopped and restarted, as a seed decides. Every byte that is read is verified against the history
 * of acknowledged puts. */
#include "runtime/base/sl_config.h"
#include "runtime/base/sl_parse.h"
#include "tests/fault/thrash_driver.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MARGIN_MS_DEFAULT 250u
#define STRICT_SHARE      2u /* puts use at most 1 / STRICT_SHARE of the disk */
#define RECENT_SHARE      4u

static volatile sig_atomic_t interrupted;

bool driver_interrupted(void)
{
    return interrupted != 0;
}

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

static void usage(FILE *to)
{
    (void)fputs(
        "thrash - hurts a node under load, and checks every byte it gives\n"
        "\n"
        "  thrash [--seconds N] [--seed N] [OPTIONS]\n"
        "\n"
        "  --seconds N      how long faults go on (default 60)\n"
        "  --seed N         which faults, in which order (default: from the clock; it is printed)\n"
        "  --mode NAME      strict: the disk holds all that is put, nothing may ever be missed\n"
        "                   overflow: memory and disk overflow, what is old may be evicted\n"
        "  --clients N      client processes, 1..16 (default 4)\n"
        "  --engines N      engines of 2 ranks, 1..4 (default 2)\n"
        "  --memory SIZE    arena (default 64MiB)\n"
        "  --disk SIZE      disk tier (default: 2GiB, in overflow 192MiB)\n"
        "  --deadline-ms N  of every call (default 2000)\n"
        "  --margin-ms N    a call that returns N ms after its deadline is late (default "
        "250)\n"
        "  --directory DIR  where the run's directory is made (default $TMPDIR or /tmp)\n"
        "  --node PATH      the supervisor script (default: deploy/sluice-node of the source "
        "tree)\n"
        "  --json FILE      the report as JSON; - is standard output\n"
        "  --upgrades       the node goes to a copy of its programs and back meanwhile, again and "
        "again\n"
        "  --keep           keep the run's directory with all logs; it is kept on a failure, too\n"
        "\n"
        "Exit codes: 0 nothing lost, nothing wrong, nothing hung; 1 something was; 2 wrong use.\n",
        to);
}

/* ---- options ---- */

static bool number_read(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || *text < '0' || *text > '9' || *end != '\0' || value < least || value > most) {
        return false;
    }
    *out = value;
    return true;
}

struct number_option {
    const char *name;
    uint64_t least, most;
    uint64_t *at;
};
struct text_option {
    const char *name;
    const char **at;
};

/* 0: fine; else the exit code + 1. */
static int options_read(struct driver_options *options, int argc, char **argv)
{
    const struct number_option numbers[] = {
        {"--seconds", 1, 86400, &options->seconds},
        {"--seed", 0, UINT64_MAX, &options->seed},
        {"--clients", 1, THRASH_CLIENTS_MAX, &options->clients},
        {"--engines", 1, THRASH_ENGINES_MAX, &options->engines},
        {"--deadline-ms", 100, 60000, &options->deadline_ms},
        {"--margin-ms", 1, 600000, &options->margin_ms},
    };
    const struct text_option texts[] = {
        {"--mode", &options->mode}, {"--memory", &options->memory},
        {"--disk", &options->disk}, {"--directory", &options->directory},
        {"--node", &options->node}, {"--json", &options->json_path},
    };
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        bool known = false;
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            usage(stdout);
            return 1;
        }
        if (strcmp(word, "--keep") == 0) {
            options->keep = true;
            continue;
        }
        if (strcmp(word, "--upgrades") == 0) {
            options->upgrades = true;
            continue;
        }
        for (size_t k = 0; k < SL_COUNT(numbers) && value != NULL; k++) {
            if (strcmp(word, numbers[k].name) == 0) {
                known = number_read(value, numbers[k].least, numbers[k].most, numbers[k].at);
            }
        }
        for (size_t k = 0; k < SL_COUNT(texts) && value != NULL; k++) {
            if (strcmp(word, texts[k].name) == 0) {
                *texts[k].at = value;
                known = true;
            }
        }
        if (!known) {
            (void)fprintf(stderr,
                          "thrash: '%s%s%s' is no option, or has no such value; see --help\n", word,
                          value == NULL ? "" : " ", value == NULL ? "" : value);
            return 3;
        }
        i++;
    }
    return 0;
}

static sl_err driver_prepare(struct driver *driver, struct sl_error *why)
{
    struct driver_options *options = &driver->options;
    bool strict = strcmp(options->mode, "strict") == 0;
    if (!strict && strcmp(options->mode, "overflow") != 0) {
        return sl_fail(why, SL_ERR_INVALID, "--mode %s: strict or overflow", options->mode);
    }
    const char *disk = options->disk != NULL ? options->disk : strict ? "2GiB" : "192MiB";
    sl_err err = sl_parse_size(options->memory, &driver->memory_bytes, why);
    if (err == SL_OK) {
        err = sl_parse_size(disk, &driver->disk_bytes, why);
    }
    if (err != SL_OK) {
        return err;
    }
    const char *parent = options->directory != NULL ? options->directory : getenv("TMPDIR");
    (void)snprintf(driver->instance, sizeof driver->instance, "thrash-%d", getpid());
    (void)snprintf(driver->directory, sizeof driver->directory, "%.500s/%s",
                   parent == NULL || *parent == '\0' ? "/tmp" : parent, driver->instance);
    (void)snprintf(driver->run_dir, sizeof driver->run_dir, "%s/run", driver->directory);
    (void)snprintf(driver->disk_dir, sizeof driver->disk_dir, "%s/disk", driver->directory);
    (void)snprintf(driver->shared_path, sizeof driver->shared_path, "%s/history",
                   driver->directory);
    (void)snprintf(driver->shm_dir, sizeof driver->shm_dir, "/dev/shm/%s", driver->instance);
    ssize_t length = readlink("/proc/self/exe", driver->program, sizeof driver->program - 1);
    if (length <= 0) {
        return sl_fail_os(why, errno, "where this program is");
    }
    (void)snprintf(driver->bin_dir, sizeof driver->bin_dir, "%s", driver->program);
    *strrchr(driver->bin_dir, '/') = '\0';
    if (mkdir(driver->directory, 0700) != 0) {
        return sl_fail_os(why, errno, "make '%s'", driver->directory);
    }
    err = thrash_shared_create(driver->shared_path, &driver->shared, why);
    if (err != SL_OK) {
        return err;
    }
    struct thrash_shared *shared = driver->shared;
    (void)snprintf(shared->events_path, sizeof shared->events_path, "%s/events", driver->directory);
    shared->seed = options->seed;
    shared->seconds = options->seconds;
    shared->timeout_ns = options->deadline_ms * SL_NS_PER_MS;
    shared->margin_ns = options->margin_ms * SL_NS_PER_MS;
    shared->clients = (uint32_t)options->clients;
    shared->engines = (uint32_t)options->engines;
    shared->strict = strict;
    shared->put_budget_bytes = strict ? driver->disk_bytes / STRICT_SHARE : 0;
    shared->recent_bytes = driver->disk_bytes / RECENT_SHARE;
    driver->random.state = options->seed;
    return SL_OK;
}

/* ---- the run ---- */

static void directory_remove(const char *path)
{
    pid_t pid = fork();
    if (pid == 0) {
        (void)execlp("rm", "rm", "-rf", "--", path, (char *)NULL);
        _exit(127);
    }
    int status;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
}

static void run(struct driver *driver)
{
    if (!driver_upgrade_prepare(driver)) {
        driver->failed = true;
        thrash_note(driver->shared, "no copy of the programs could be made in %s",
                    driver->directory);
        return;
    }
    if (driver_node(driver, "start", true) != 0) {
        driver->failed = true;
        thrash_note(driver->shared, "the node did not start; see %s/node.out", driver->directory);
        (void)driver_node(driver, "stop", false);
        return;
    }
    driver->shared->started_ns = sl_clock_monotonic_ns();
    driver_workers_start(driver);
    driver_faults(driver);
    driver_workers_end(driver);
    if (!driver_interrupted()) {
        driver_audit(driver);
        driver_contest(driver);
    }
    driver->evicted = driver_metric(driver, "registrar", "evicted_count");
    driver->dropped = driver_metric(driver, "registrar", "dropped_count");
    driver->promoted = driver_metric(driver, "registrar", "promoted_count");
    driver->reclaimed = driver_metric(driver, "tierer.0", "reclaimed_segments");
    if (driver->shared->strict && driver->reclaimed > 0) {
        driver->failed = true; /* a missing value may have been dropped legitimately */
        thrash_note(driver->shared,
                    "the disk was too small for mode strict: %ju segments reclaimed",
                    (uintmax_t)driver->reclaimed);
    }
    if (driver_node(driver, "stop", false) != 0) {
        driver->not_whole++;
        thrash_note(driver->shared, "sluice-node stop failed; see %s/node.out", driver->directory);
    }
    driver->leftovers = driver_leftovers(driver, true);
    driver_read_logs(driver);
}

static int driver_main(int argc, char **argv)
{
    struct driver *driver = calloc(1, sizeof *driver);
    struct sl_error why = {0};
    if (driver == NULL) {
        return 1;
    }
    driver->options = (struct driver_options){.seconds = 60,
                                              .seed = sl_clock_wall_ns() % 1000000,
                                              .mode = "strict",
                                              .clients = 4,
                                              .engines = 2,
                                              .memory = "64MiB",
                                              .deadline_ms = 2000,
                                              .margin_ms = MARGIN_MS_DEFAULT,
                                              .node = THRASH_NODE};
    int code = options_read(&driver->options, argc, argv);
    if (code != 0) {
        free(driver);
        return code - 1;
    }
    sl_err err = driver_prepare(driver, &why);
    if (err != SL_OK) {
        (void)fprintf(stderr, "thrash: %s\n", why.text);
        free(driver);
        return 2;
    }
    struct sigaction action = {.sa_handler = on_signal};
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)printf("thrash: seed %ju, %ju s, mode %s, %ju clients, %ju engines, memory %ju MiB, disk "
                 "%ju MiB, deadline %ju ms; logs in %s\n",
                 (uintmax_t)driver->options.seed, (uintmax_t)driver->options.seconds,
                 driver->options.mode, (uintmax_t)driver->options.clients,
                 (uintmax_t)driver->options.engines, (uintmax_t)(driver->memory_bytes >> 20),
                 (uintmax_t)(driver->disk_bytes >> 20), (uintmax_t)driver->options.deadline_ms,
                 driver->directory);
    (void)fflush(stdout);
    run(driver);
    bool passed = driver_passed(driver);
    if (driver->options.json_path != NULL &&
        driver_report_json(driver, driver->options.json_path, &why) != SL_OK) {
        (void)fprintf(stderr, "thrash: %s\n", why.text);
        passed = false;
    }
    directory_remove(driver->disk_dir);
    if (passed && !driver->options.keep) {
        directory_remove(driver->directory);
    }
    driver_report(driver);
    free(driver);
    return passed ? 0 : 1;
}

/* ---- a worker ---- */

/* thrash --role R --number N --index I --shared FILE, and the node's directories; for the
 * driver. */
static int worker_main(int argc, char **argv)
{
    static const char *const names[] = {"--role",     "--number",      "--index",  "--shared",
                                        "--instance", "--runtime-dir", "--shm-dir"};
    const char *values[SL_COUNT(names)] = {0};
    char settings_text[3][THRASH_PATH + 64];
    struct sl_error why = {0};
    uint64_t number = 0;
    uint64_t index = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        for (size_t k = 0; k < SL_COUNT(names); k++) {
            values[k] = strcmp(argv[i], names[k]) == 0 ? argv[i + 1] : values[k];
        }
    }
    for (size_t k = 0; k < SL_COUNT(names); k++) {
        if (values[k] == NULL) {
            return 2;
        }
    }
    struct thrash thrash = {.scratch = malloc(THRASH_VALUE_BYTES),
                            .value = malloc(THRASH_VALUE_BYTES)};
    if (!number_read(values[1], 0, THRASH_WORKERS_MAX - 1, &number) ||
        !number_read(values[2], 0, THRASH_WORKERS_MAX - 1, &index) || thrash.scratch == NULL ||
        thrash.value == NULL || thrash_shared_open(values[3], &thrash.shared, &why) != SL_OK) {
        (void)fprintf(stderr, "thrash: %s\n", why.text);
        return 2;
    }
    (void)snprintf(settings_text[0], sizeof settings_text[0], "instance=%s", values[4]);
    (void)snprintf(settings_text[1], sizeof settings_text[1], "runtime_dir=%s", values[5]);
    (void)snprintf(settings_text[2], sizeof settings_text[2], "shm_dir=%s", values[6]);
    const char *const settings[] = {settings_text[0], settings_text[1], settings_text[2], NULL};
    thrash.settings = settings;
    thrash.number = (uint32_t)number;
    thrash.self = &thrash.shared->workers[index];
    uint64_t life = atomic_load_explicit(&thrash.self->lives, memory_order_relaxed);
    thrash.random.state = thrash.shared->seed * 1000003 + index * 1009 + life;
    int code = strcmp(values[0], "client") == 0   ? thrash_client_main(&thrash)
               : strcmp(values[0], "engine") == 0 ? thrash_engine_main(&thrash)
                                                  : thrash_probe_main(&thrash);
    free(thrash.scratch);
    free(thrash.value);
    return code;
}

int main(int argc, char **argv)
{
    return argc > 1 && strcmp(argv[1], "--role") == 0 ? worker_main(argc, argv)
                                                      : driver_main(argc, argv);
}
