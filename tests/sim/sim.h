/* tests/sim/sim.h - a whole node, or several, in one process under a simulated clock, replayed by a
 * seed.
 *
 * Every actor is the shipped code over an environment of its own. Messages go through the real
 * codec and arrive after a random delay: requests between two actors in their order, replies in
 * theirs, in any order otherwise. What an actor does takes no time by itself. Disk requests take
 * effect some time between their start and their end, also when their process has died meanwhile.
 * Shared memory is real (files under /dev/shm), pids are not: they lie above any real one. A killed
 * actor loses its heap and what is on its way to it; its mappings stay until the simulating process
 * ends, so a run belongs into a child process. */
#ifndef SL_TEST_SIM_H
#define SL_TEST_SIM_H

#include "ipc/msg/sl_msg.h"
#include "runtime/base/sl_actor.h"

struct sim; /* opaque; one thread */

#define SIM_NODES_MAX 256u /* processes, of all hosts */
#define SIM_HOSTS_MAX 4u   /* machines: what the design calls nodes */
/* A line of the log, when there is one. */
void sim_say(const struct sim *sim, const char *format, ...) SL_PRINTF(2, 3);
/* Ends the process: a run is a process of its own. */
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
        late_of; /* one message of so many comes up to 300 ms late, behind its resend; 0: none */
    bool log;    /* the actors' logs go to stderr */
};

#define SIM_DISKS 2u /* that tierers may use: tierer.0 the first */

/* What a disk does wrong, for a while. */
enum sim_fault {
    SIM_FAULT_READ,  /* reads fail with EIO */
    SIM_FAULT_WRITE, /* writes fail with EIO, a part of them may arrive */
    SIM_FAULT_SYNC,  /* syncs fail with EIO; what they were to make durable may be or not */
    SIM_FAULT_FULL,  /* no file can be made */
    SIM_FAULT_SHORT, /* requests move less than they were asked to */
    SIM_FAULT_SLOW,  /* requests take up to 2 s */
    SIM_FAULT_COUNT
};

/* Fails the running test on any trouble, like everything here. */
struct sim *sim_create(const struct sim_options *options);
/* Removes the directories. Actors that still run are dropped as by a kill. */
void sim_destroy(struct sim **sim);
/* Removes what a run of another process left that failed. */
void sim_sweep(uint32_t pid, uint64_t seed);
/* Another machine, with memory and disks of its own. What is started from now on is started there;
 * the first one has number 0. settings as above, kept. */
uint32_t sim_host_add(struct sim *sim, const char *const *settings);
/* What is started from now on is started there. */
void sim_host_use(struct sim *sim, uint32_t host);
uint64_t sim_now_ns(const struct sim *sim);
uint64_t sim_random(struct sim *sim);
uint64_t sim_random_below(struct sim *sim, uint64_t bound);
const char *sim_shm_dir(const struct sim *sim, uint32_t host);

/* Starts an actor under its role's name ("swapper.1" with a rank), or name when that is not NULL.
 * context is given to test actors (sim_context). Gives its number, which stays through restarts. */
uint32_t sim_start(struct sim *sim, const struct sl_actor *actor, uint32_t rank, const char *name,
                   void *context);
void *sim_context(struct sl_env *env);
struct sim *sim_of(struct sl_env *env);
/* A process that is no actor: it runs libsluice as shipped, on a stack of its own, and sleeps where
 * the real one would. Its calls for time, chance, sleep and the mailbox lead here (the linker wraps
 * them). Returning ends the process. */
uint32_t sim_start_program(struct sim *sim, void (*run)(void *context), void *context);
/* Of the program that calls: */
void sim_sleep(uint64_t ns);
void sim_brisk(void); /* from now on it does not dawdle */
struct sl_client;
/* Attaches the program to a host's node: op_timeout 2 s, and one setting more or NULL. */
sl_err sim_client_open_leasing(const struct sim *sim, uint32_t host, const char *setting,
                               bool leases, struct sl_client **out);
sl_err sim_client_open(const struct sim *sim, uint32_t host, const char *setting,
                       struct sl_client **out);
extern bool sim_chance_same;      /* a mutant: 32 random bytes are always the same */
extern bool sim_copies_unchecked; /* a mutant: what programs copied counts, whatever came of it */
struct sl_proc_id sim_self(void);
uint64_t sim_stalled_ns(void); /* how long it was stopped or dawdled, in all of its life */
/* SIGKILL, and a restart after restart_ns (SL_NEVER_NS: none). */
void sim_kill(struct sim *sim, uint32_t node, uint64_t restart_ns);
/* SIGSTOP until duration_ns is over. */
void sim_stop(struct sim *sim, uint32_t node, uint64_t duration_ns);
/* SIGSTOP, and nobody continues it. */
void sim_hang(struct sim *sim, uint32_t node);
/* Before anything starts: actors that hang are killed, and start again. */
void sim_supervise(struct sim *sim);
uint64_t sim_supervisor_kills(const struct sim *sim); /* so far */
bool sim_alive(const struct sim *sim, uint32_t node);
uint64_t sim_incarnation(const struct sim *sim, uint32_t node);
uint64_t sim_metric(struct sim *sim, uint32_t node, const char *name); /* of this incarnation */
/* The machine is suspended: all clocks go on, nobody runs. */
void sim_suspend(struct sim *sim, uint64_t ns);
uint64_t sim_suspended_ns(const struct sim *sim); /* in all */
/* The wall clock is set by so much. */
void sim_set_wall(struct sim *sim, int64_t by_ns);
/* The power of a host fails: its processes die, its shared memory is gone, its disks keep what was
 * synced and parts of the rest. Actors start again within restart_ns. */
void sim_power_cut(struct sim *sim, uint32_t host, uint64_t restart_ns);
/* Of the first host. */
void sim_disk_fault(struct sim *sim, uint32_t disk, enum sim_fault fault, uint64_t duration_ns);
/* One segment of a disk of the first host is lost, or a page of it. While nobody uses the disk. */
void sim_disk_damage(struct sim *sim, uint32_t disk);
/* Of all disks of the first host, each at its own peak. */
uint64_t sim_disk_bytes_peak(const struct sim *sim);
/* Of the files on a disk of the first host, now. */
uint64_t sim_disk_bytes(const struct sim *sim, uint32_t disk);
/* Called after each event; NULL: nobody. */
void sim_observe(struct sim *sim, void (*seen)(void *context), void *context);
/* Between hosts: nothing gets from one to the other, or everything takes up to delay_ns_max. What
 * is on its way when a cut begins arrives; what is sent meanwhile arrives after it, if the
 * connection lasts so long. */
void sim_link_cut(struct sim *sim, uint32_t from, uint32_t to, uint64_t duration_ns);
void sim_link_slow(struct sim *sim, uint32_t from, uint32_t to, uint64_t delay_ns_max,
                   uint64_t duration_ns);
/* One read between hosts of so many comes slowly, 0: none does. */
void sim_reads_slow(struct sim *sim, uint32_t one_of);
/* One slice of what hosts read from or write to each other of so many arrives with a wrong bit, 0:
 * none does. */
void sim_reads_corrupt(struct sim *sim, uint32_t one_of);
/* From now on one message of so many comes late, as in sim_options. */
void sim_messages_late(struct sim *sim, uint32_t one_of);
/* When actors were last killed, stopped or continued, or links cut or mended. */
uint64_t sim_disturbed_ns(const struct sim *sim);
/* Handles what happens until then. */
void sim_run_until(struct sim *sim, uint64_t at_ns);
uint64_t sim_event_count(const struct sim *sim);
/* Of all events so far: two runs of a seed have the same. */
uint64_t sim_hash(const struct sim *sim);

#endif
