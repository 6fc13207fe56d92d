/* tests/fault/thrash_driver.h - the driver: a node, its workers, the faults, the final check. */
#ifndef SL_THRASH_DRIVER_H
#define SL_THRASH_DRIVER_H

#include "runtime/base/sl_metrics.h"
#include "tests/fault/thrash.h"

#define THRASH_ACTORS    7u
#define THRASH_STOPS_MAX 8u
#define THRASH_TIMES_MAX 4096u
#define THRASH_PATH      700u

/* The victim of a fault: an actor, or one of these. */
enum thrash_victim {
    THRASH_VICTIM_CLIENT = THRASH_ACTORS,
    THRASH_VICTIM_ENGINE,
    THRASH_VICTIM_SUPERVISOR,
    THRASH_VICTIM_COUNT
};
enum thrash_action { THRASH_KILL, THRASH_STOP, THRASH_RESTART, THRASH_ACTION_COUNT };

struct driver_options {
    uint64_t seconds, seed, clients, engines, deadline_ms, margin_ms;
    const char *mode, *memory, *disk, *directory, *node, *json_path;
    bool keep, verbose, upgrades;
};

struct driver_stop { /* a process that is stopped at present */
    int pidfd;
    struct thrash_worker *worker; /* NULL: an actor, or the supervisor */
    uint64_t since_ns, until_ns;
};

struct driver_times { /* of recoveries, for median and maximum */
    uint64_t ns[THRASH_TIMES_MAX];
    uint32_t count;
};

struct driver_actor {
    uint64_t hurt_ns; /* time of the last fault; 0: never */
    uint64_t descriptors_max, anon_kib_max;
    uint64_t descriptors_first, descriptors_last, anon_kib_last;
    uint64_t exits_odd; /* unexpected exits */
};

struct driver_upgrade {
    struct thrash_random random;
    char other_dir[THRASH_PATH + 16]; /* programs beside bin_dir */
    bool there, over;                 /* the node runs those programs; no more upgrades begin */
    pid_t pid;                        /* 0: none is running */
    int code;                         /* of the last one; -1: killed */
    uint64_t since_ns, kill_ns, next_ns;
    uint64_t done, cut,
        killed; /* upgrades that succeeded; that failed; of these, those that were killed */
};

struct driver {
    struct driver_options options;
    char directory[THRASH_PATH]; /* of this run */
    char run_dir[THRASH_PATH + 16], shm_dir[64], disk_dir[THRASH_PATH + 16],
        shared_path[THRASH_PATH + 16];
    char instance[32];
    char program[THRASH_PATH], bin_dir[THRASH_PATH];
    uint64_t memory_bytes, disk_bytes;
    struct thrash_shared *shared;
    struct thrash_random random;
    pid_t pids[THRASH_WORKERS_MAX]; /* 0: none */
    bool killed[THRASH_WORKERS_MAX];
    struct driver_stop stops[THRASH_STOPS_MAX];
    uint32_t stop_count;
    struct driver_actor actors[THRASH_ACTORS];
    uint64_t tally[THRASH_VICTIM_COUNT][THRASH_ACTION_COUNT];
    uint64_t squeezes, long_stops;
    struct driver_upgrade upgrade;
    struct driver_times whole[THRASH_VICTIM_COUNT]; /* kill to a working node */
    struct driver_times noticed;                    /* kill of a client to its release */
    uint64_t not_whole, hangs, crashes, leaks, leftovers;
    uint64_t sampled_ns;
    uint64_t used_bytes, live_bytes; /* at the end */
    uint64_t objects_at_end, blocks_at_end;
    uint64_t evicted, dropped, promoted, reclaimed;
    struct linear_result contest;
    bool failed; /* could not be carried out */
};

extern const char *const thrash_victim_names[THRASH_VICTIM_COUNT];

/* ---- thrash_node.c ---- */
/* Runs deploy/sluice-node with a command and the settings. Returns its exit code; -1: it did not
 * run. */
int driver_node(const struct driver *driver, const char *command, bool with_settings);
/* The same with these arguments instead of the settings, in a process group of its own, without
 * waiting. Returns its pid. */
pid_t driver_node_begin(const struct driver *driver, const char *command, const char *const *words,
                        uint32_t word_count);
/* The pidfd of an actor or of the supervisor; -1: it does not run. */
int driver_pidfd(const struct driver *driver, const char *name, uint32_t *pid);
bool driver_signal(int pidfd, int signal);
/* One gauge or counter of an actor's page; 0 if it does not exist. */
uint64_t driver_metric(const struct driver *driver, const char *actor, const char *metric);
void driver_sample(struct driver *driver);
/* Counts processes with the instance's name. note: reports each as running `after the stop`. */
uint32_t driver_leftovers(const struct driver *driver, bool note);
/* Counts the unexpected exits that the supervisor logged, and all lines logged as errors. */
void driver_read_logs(struct driver *driver);

/* ---- thrash_workers.c ---- */
void driver_workers_start(struct driver *driver);
/* Collects workers that ended, restarts them, and looks for calls that do not return. */
void driver_workers_tend(struct driver *driver);
/* Waits until all workers have ended by themselves; kills and counts those that do not. */
void driver_workers_end(struct driver *driver);
struct thrash_worker *driver_worker(struct driver *driver, enum thrash_role role, uint32_t number,
                                    pid_t *pid);

/* ---- thrash_faults.c ---- */
void driver_faults(struct driver *driver);
/* Does the driver's periodic work while it waits; returns after 2 ms. */
void driver_tend(struct driver *driver);

/* ---- thrash_upgrade.c ---- */
/* False: the programs could not be copied. */
bool driver_upgrade_prepare(struct driver *driver);
void driver_upgrade_tend(struct driver *driver);
/* Runs one last upgrade after all faults. It has to succeed. */
void driver_upgrade_end(struct driver *driver);

/* ---- thrash_audit.c ---- */
void driver_audit(struct driver *driver);

/* ---- thrash_contest.c ---- */
/* Judges the history of the contested keys. */
void driver_contest(struct driver *driver);

/* ---- thrash_report.c ---- */
bool driver_passed(const struct driver *driver);
void driver_report(const struct driver *driver);
sl_err driver_report_json(const struct driver *driver, const char *path, struct sl_error *why);

/* ---- thrash.c ---- */
bool driver_interrupted(void);

#endif
