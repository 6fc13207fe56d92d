/* tests/sim/sim.h - a whole node, or several, in one process under a simulated clock, replayed by a
 * seed.
 *
 * Every actor is the shipped code over an environment of its own. Messages go through the real
 * codec and arrive after a random delay: requests between two actors in their order, replies in
 * theirs, in any order otherwise. Work inside an actor takes no time. A disk request takes effect
 * some time between its start and its end, even if its process has died meanwhile. Shared memory is
 * real (files under /dev/shm), pids are not: they are above any real one. A killed actor loses its
 * heap and the messages on their way to it; its mappings stay until the simulating process ends, so
 * a run belongs into a child process. */
#ifndef SL_TEST_SIM_H
#define SL_TEST_SIM_H

#include "ipc/msg/sl_msg.h"
#include "runtime/base/sl_actor.h"

struct sim; /* opaque; one thread */

#define SIM_NODES_MAX 256u /* processes, of all hosts */
#define SIM_HOSTS_MAX 4u   /* machines (called nodes in the documentation) */
/* Writes a line to the log if the run has one. */
void sim_log(const struct sim *sim, const char *format, ...) SL_PRINTF(2, 3);
/* Ends the process if the condition is false: each run has a process of its own. */
#define SIM_CHECK(condition, ...)  \
    do {                           \
        if (!(condition)) {        \
            sim_fail(__VA_ARGS__); \
        }                          \
    } while (0)
_Noreturn void sim_fail(const char *format, ...) SL_PRINTF(1, 2);

struct sim_options {
    uint64_t seed;
    const char *const *settings; /* of the first host: name, text, name, text, NULL */
    uint64_t delay_ns_max;       /* of a message; 0: 200 us */
    uint32_t
        late_of; /* one message in late_of arrives up to 300 ms late, after its resend; 0: none */
    bool log;    /* write the actors' logs to stderr */
};

#define SIM_DISKS 2u /* for tierers; tierer.0 has the first */

/* Temporary faults of a disk. */
enum sim_fault {
    SIM_FAULT_READ,  /* reads fail with EIO */
    SIM_FAULT_WRITE, /* writes fail with EIO and may be applied in part */
    SIM_FAULT_SYNC,  /* syncs fail with EIO; the data may be durable or not */
    SIM_FAULT_FULL,  /* no file can be created */
    SIM_FAULT_SHORT, /* requests transfer fewer bytes than requested */
    SIM_FAULT_SLOW,  /* requests take up to 2 s */
    SIM_FAULT_COUNT
};

/* Fails the running test on any error, as all functions here do. */
struct sim *sim_create(const struct sim_options *options);
/* Removes the directories. Actors that still run end as if killed. */
void sim_destroy(struct sim **sim);
/* Removes the files that the failed run of another process left. */
void sim_sweep(uint32_t pid, uint64_t seed);
/* Adds a machine with memory and disks of its own (the initial one is number 0), and makes it the
 * one in use. settings as above, kept. */
uint32_t sim_host_add(struct sim *sim, const char *const *settings);
/* Starts further processes on this host. */
void sim_host_use(struct sim *sim, uint32_t host);
uint64_t sim_now_ns(const struct sim *sim);
uint64_t sim_random(struct sim *sim);
uint64_t sim_random_below(struct sim *sim, uint64_t bound);
const char *sim_shm_dir(const struct sim *sim, uint32_t host);

/* Starts an actor under its role's name ("swapper.1" with a rank), or under `name` if that is not
 * NULL. context is for test actors (sim_context). Returns its number, which survives restarts. */
uint32_t sim_start(struct sim *sim, const struct sl_actor *actor, uint32_t rank, const char *name,
                   void *context);
void *sim_context(struct sl_env *env);
struct sim *sim_of(struct sl_env *env);
/* Starts a process that is not an actor: it runs libsluice as shipped, on a stack of its own, and
 * sleeps where the real one would. The linker wraps its calls for time, random bytes, sleep and the
 * mailbox, and they end up here. Returning ends the process. */
uint32_t sim_start_program(struct sim *sim, void (*run)(void *context), void *context);
/* For the calling program: */
void sim_sleep(uint64_t ns);
void sim_dawdle_never(void); /* it does not dawdle from now on */
struct sl_client;
/* Attaches the program to a host's node: op_timeout 2 s, and one more setting or NULL. */
sl_err sim_client_open_leasing(const struct sim *sim, uint32_t host, const char *setting,
                               bool leases, struct sl_client **out);
sl_err sim_client_open(const struct sim *sim, uint32_t host, const char *setting,
                       struct sl_client **out);
extern bool sim_random_constant;  /* mutant: 32 random bytes are always the same */
extern bool sim_copies_unchecked; /* mutant: copies that failed count as successful */
struct sl_proc_id sim_self(void);
uint64_t sim_stalled_ns(void); /* how long it was stopped or dawdled, in total */
/* SIGKILL, and a restart after restart_ns (SL_NEVER_NS: none). */
void sim_kill(struct sim *sim, uint32_t node, uint64_t restart_ns);
/* SIGSTOP for duration_ns. */
void sim_stop(struct sim *sim, uint32_t node, uint64_t duration_ns);
/* SIGSTOP without a later SIGCONT. */
void sim_hang(struct sim *sim, uint32_t node);
/* Makes a supervisor kill and restart actors that hang. Call it before anything starts. */
void sim_supervise(struct sim *sim);
uint64_t sim_supervisor_kills(const struct sim *sim); /* so far */
bool sim_alive(const struct sim *sim, uint32_t node);
uint64_t sim_incarnation(const struct sim *sim, uint32_t node);
uint64_t sim_metric(struct sim *sim, uint32_t node, const char *name); /* of this incarnation */
/* Suspends the machine: all clocks advance, no process runs. */
void sim_suspend(struct sim *sim, uint64_t ns);
uint64_t sim_suspended_ns(const struct sim *sim); /* in total */
/* Moves the wall clock by by_ns. */
void sim_set_wall(struct sim *sim, int64_t by_ns);
/* Cuts a host's power: its processes die, its shared memory is lost, its disks keep all synced data
 * and parts of the rest. Actors start again within restart_ns. */
void sim_power_cut(struct sim *sim, uint32_t host, uint64_t restart_ns);
/* Injects the fault into a disk of the first host. */
void sim_disk_fault(struct sim *sim, uint32_t disk, enum sim_fault fault, uint64_t duration_ns);
/* Destroys one log file of a disk of the first host, or a page of it. Call it only while no process
 * uses the disk. */
void sim_disk_damage(struct sim *sim, uint32_t disk);
/* The sum over all disks of the first host of each disk's peak. */
uint64_t sim_disk_bytes_peak(const struct sim *sim);
/* Bytes of the files on a disk of the first host, now. */
uint64_t sim_disk_bytes(const struct sim *sim, uint32_t disk);
/* Has `seen` called after each event; NULL: nothing is called. */
void sim_observe(struct sim *sim, void (*seen)(void *context), void *context);
/* Cuts or slows the link between two hosts: no packet passes, or each takes up to delay_ns_max.
 * Packets in flight when a cut begins arrive; packets sent during it arrive after it, if the
 * connection lasts that long. */
void sim_link_cut(struct sim *sim, uint32_t from, uint32_t to, uint64_t duration_ns);
void sim_link_slow(struct sim *sim, uint32_t from, uint32_t to, uint64_t delay_ns_max,
                   uint64_t duration_ns);
/* Makes one in one_of reads between hosts slow; 0: none. */
void sim_reads_slow(struct sim *sim, uint32_t one_of);
/* Flips a bit in one in one_of slices that hosts read from or write to each other; 0: none. */
void sim_reads_corrupt(struct sim *sim, uint32_t one_of);
/* Delays one in one_of messages from now on, as in sim_options. */
void sim_messages_late(struct sim *sim, uint32_t one_of);
/* When an actor was last killed, stopped or continued, or a link cut or restored. */
uint64_t sim_disturbed_ns(const struct sim *sim);
/* Handles all events until then. */
void sim_run_until(struct sim *sim, uint64_t at_ns);
uint64_t sim_event_count(const struct sim *sim);
/* Hash of all events so far: two runs of a seed have the same. */
uint64_t sim_hash(const struct sim *sim);

#endif
