/* ipc/msg/process_internal.h - the parts of a process that runs an actor: set-up, environment,
 * turns.
 */
#ifndef SL_PROCESS_INTERNAL_H
#define SL_PROCESS_INTERNAL_H

#include "ipc/msg/msg_internal.h"
#include "ipc/msg/sl_mailbox.h"
#include "ipc/msg/sl_process.h"
#include "runtime/base/sl_loop.h"
#include "runtime/disk/sl_disk.h"

#include <pthread.h>

/* Frames handled in one turn: 100 us or so, then timers, deaths and disks get theirs. */
#define SL_PROCESS_BATCH           256u
#define SL_PROCESS_DISKS_MAX       4u
#define SL_PROCESS_JOBS_MAX        16u
#define SL_PROCESS_JOB_THREADS_MAX 64u
#define SL_PROCESS_DRAIN_NS        (5 * SL_NS_PER_S)
/* Wait for jobs that still run when the process ends. */
#define SL_PROCESS_JOB_END_NS (2 * SL_NS_PER_S)
/* Frames that came while waiting awake, before disks and timers get their turn. */
#define SL_PROCESS_SPINS_MAX 16u
/* A HELLO that found no registrar is tried again after so long. */
#define SL_PROCESS_HELLO_RETRY_NS (10 * SL_NS_PER_MS)
/* An idle actor shows so often that its loop turns: who looks for hangs need not look sooner. */
#define SL_PROCESS_BEAT_NS (500 * SL_NS_PER_MS)
/* How often an actor looks how long it had no core, and how long is worth a line. */
#define SL_PROCESS_CORE_WAIT_EVERY_NS SL_NS_PER_S
#define SL_PROCESS_CORE_WAIT_NS       (SL_NS_PER_S / 2)

struct sl_process;

/* A system call met memory that is not there: shared memory was cut short by another process. Says
 * so and ends at once, with nothing more sent or written, as an access to such memory does; the
 * next process of the name begins with what is there. */
_Noreturn void sl_process_cut(struct sl_process *process);

struct sl_process_watch {
    struct sl_proc_id proc;
    uint64_t cookie;
    int pins_fd; /* of a client: sl_client_state's; else -1 */
};
/* The locks of clients are looked at so often, and so soon when a connection has ended: then a
 * process that dies has lost its locks, too. */
#define SL_PROCESS_CLIENTS_NS    (500 * SL_NS_PER_MS)
#define SL_PROCESS_DISCONNECT_NS (10 * SL_NS_PER_MS)

struct sl_process_completion {
    uint64_t cookie, bytes;
    int os_code;
};
/* A disk of the actor: completions are turned into messages. */
struct sl_process_disk {
    struct sl_disk_ops ops; /* first: the disk's own, but for destroy, and what it has for ops */
    void (*destroy)(struct sl_disk *disk); /* its own */
    struct sl_process *process;
    struct sl_disk *disk; /* NULL: a free slot */
    int event_fd;
    bool reaping;
    struct sl_process_completion *done;
    uint32_t done_count, done_capacity;
};

struct sl_process_job {
    struct sl_process *process;
    sl_err (*run)(void *context, uint32_t thread);
    void *context;
    uint64_t cookie;
    bool used;
    uint32_t thread_count;  /* started */
    uint32_t running_count; /* under process->jobs_lock */
    sl_err result;          /* under process->jobs_lock; of the lowest thread that failed */
    uint32_t failed_thread;
    struct sl_process_job_thread {
        struct sl_process_job *job;
        pthread_t thread;
        uint32_t number;
    } threads[SL_PROCESS_JOB_THREADS_MAX];
};

struct sl_process_metrics {
    sl_metric received, sent, refused, unreachable, limited, failed;
    sl_metric queue_sent, queue_received, doorbells, avoided;
    sl_metric unsupervised;
    sl_metric queues, queues_refused, queues_dropped, late_wakeups;
    struct sl_mailbox_stats shown; /* what the page has of the mailbox's counts */
    sl_histogram handle_ns;
};

struct sl_process {
    struct sl_env env; /* first: the environment's functions find the process by it */
    const struct sl_actor *actor;
    void *state;
    bool state_is_live; /* init was called, fini was not */
    char name[SL_NAME_BYTES_MAX + 1];
    struct sl_config *config;
    struct sl_paths paths;
    struct sl_loop *loop;
    struct sl_mailbox *mailbox;
    struct sl_codec *codec;
    struct sl_process_metrics counters;
    uint64_t tick_at_ns;
    uint64_t hello_at_ns; /* SL_NEVER_NS: the registrar itself */
    uint64_t drain_deadline_ns;
    uint64_t connects_seen;
    struct sl_proc_id supervisor;                /* pid 0: none is known */
    uint64_t supervisor_look_ns;                 /* SL_NEVER_NS: there is one, or there never was */
    uint64_t core_wait_at_ns, core_wait_seen_ns; /* when it is looked at next; what was seen last */
    bool draining, finished, failed;
    char failure[SL_METRICS_REASON_BYTES]; /* why it failed, for its page */
    struct sl_process_watch *watches;
    uint32_t watch_count, watch_count_max;
    uint64_t clients_at_ns; /* when their locks are looked at; SL_NEVER_NS: none is watched */
    struct sl_process_disk disks[SL_PROCESS_DISKS_MAX];
    pthread_mutex_t jobs_lock;
    struct sl_process_job *jobs; /* SL_PROCESS_JOBS_MAX */
};

/* env's functions (sl_process_env.c). */
extern const struct sl_env_ops sl_process_env_ops;
/* Looks which of the watched clients are gone. */
void sl_process_clients_look(struct sl_process *process, uint64_t now_ns);
/* The loop's fn after a helper thread ended a job: gives LOCAL_JOB messages for those that are
 * over. */
void sl_process_jobs_collect(void *process);
/* Waits for jobs that run. False: some run on after the limit, and their memory must stay. */
bool sl_process_jobs_end(struct sl_process *process);

/* sl_process_disk.c */
sl_err sl_process_disk_open(struct sl_env *env, const char *path, uint32_t queue_depth, bool direct,
                            struct sl_disk **out, struct sl_error *why);
void sl_process_disks_flush(struct sl_process *process);
void sl_process_disks_close(struct sl_process *process);

/* ---- process_supervised.c: whether somebody restarts what ends. A node outlives its supervisor.
 */
/* At the start: finds the supervisor, if there is one, and watches it. */
void sl_process_supervisor_find(struct sl_process *process);
/* While it is gone: another one may have taken the node over. */
void sl_process_supervisor_look(struct sl_process *process, uint64_t now_ns);

/* sl_process.c: gives the actor one message and judges its result. */
void sl_process_dispatch(struct sl_process *process, struct sl_msg *msg);
/* Ends the process with exit code 1; why is logged. */
void sl_process_fail(struct sl_process *process, const struct sl_error *why);

#endif
