/* ipc/msg/process_internal.h - the parts of a process that runs an actor: set-up, environment,
 * loop. */
#ifndef SL_PROCESS_INTERNAL_H
#define SL_PROCESS_INTERNAL_H

#include "ipc/msg/msg_internal.h"
#include "ipc/msg/sl_mailbox.h"
#include "ipc/msg/sl_process.h"
#include "runtime/base/sl_loop.h"
#include "runtime/disk/sl_disk.h"

#include <pthread.h>

/* Frames handled in one iteration of the loop (about 100 us), before timers, deaths and disks. */
#define SL_PROCESS_BATCH           256u
#define SL_PROCESS_DISKS_MAX       4u
#define SL_PROCESS_JOBS_MAX        16u
#define SL_PROCESS_JOB_THREADS_MAX 64u
#define SL_PROCESS_DRAIN_NS        (5 * SL_NS_PER_S)
/* Wait for jobs that still run when the process ends. */
#define SL_PROCESS_JOB_END_NS (2 * SL_NS_PER_S)
/* Frames handled while spinning, before disks and timers are served. */
#define SL_PROCESS_SPINS_MAX 16u
/* Pause before HELLO is repeated when there was no registrar. */
#define SL_PROCESS_HELLO_RETRY_NS (10 * SL_NS_PER_MS)
/* Interval at which an idle actor shows that its loop runs. A hang cannot be detected faster. */
#define SL_PROCESS_BEAT_NS (500 * SL_NS_PER_MS)
/* How often an actor checks how long it had to wait for a core, and the wait that is logged. */
#define SL_PROCESS_CORE_WAIT_EVERY_NS SL_NS_PER_S
#define SL_PROCESS_CORE_WAIT_NS       (SL_NS_PER_S / 2)

struct sl_process;

/* Handles a system call that met unmapped memory, since another process truncated the shared
 * memory. Logs it and exits at once without sending or writing anything, as an access to such
 * memory does. The actor's next process continues with what remains. */
_Noreturn void sl_process_exit_truncated(struct sl_process *process);

struct sl_process_watch {
    struct sl_proc_id proc;
    uint64_t cookie;
    int pins_fd; /* for clients: of sl_client_state; else -1 */
};
/* How often the locks of clients are checked, and the delay after a connection ended: by then a
 * dying process has also lost its locks. */
#define SL_PROCESS_CLIENTS_NS    (500 * SL_NS_PER_MS)
#define SL_PROCESS_DISCONNECT_NS (10 * SL_NS_PER_MS)

struct sl_process_completion {
    uint64_t cookie, bytes;
    int os_code;
};
/* A disk of the actor. Its completions become messages. */
struct sl_process_disk {
    struct sl_disk_ops ops; /* first, as disk->ops points here; the disk's own but for destroy */
    void (*destroy)(struct sl_disk *disk); /* the disk's own */
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
    uint32_t thread_count;  /* threads that were started */
    uint32_t running_count; /* under process->jobs_lock */
    sl_err result; /* under process->jobs_lock; the result of the failed thread with the lowest
                      number */
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
    struct sl_mailbox_stats shown; /* the mailbox's counts that the metrics page has */
    sl_histogram handle_ns;
};

struct sl_process {
    struct sl_env env; /* first, so that the environment's functions find the process */
    const struct sl_actor *actor;
    void *state;
    bool state_is_live; /* init was called, fini was not yet */
    char name[SL_NAME_BYTES_MAX + 1];
    struct sl_config *config;
    struct sl_paths paths;
    struct sl_loop *loop;
    struct sl_mailbox *mailbox;
    struct sl_codec *codec;
    struct sl_process_metrics counters;
    uint64_t tick_at_ns;
    uint64_t hello_at_ns; /* SL_NEVER_NS in the registrar */
    uint64_t drain_deadline_ns;
    uint64_t connects_seen;
    struct sl_proc_id supervisor; /* pid 0: not known */
    uint64_t supervisor_look_ns;  /* SL_NEVER_NS: it is alive, or there never was one */
    uint64_t core_wait_at_ns, core_wait_seen_ns; /* next check; value at the last one */
    bool draining, finished, failed;
    char failure[SL_METRICS_REASON_BYTES]; /* why it failed, for its metrics page */
    struct sl_process_watch *watches;
    uint32_t watch_count, watch_count_max;
    uint64_t clients_at_ns; /* next check of clients' locks; SL_NEVER_NS: none watched */
    struct sl_process_disk disks[SL_PROCESS_DISKS_MAX];
    pthread_mutex_t jobs_lock;
    struct sl_process_job *jobs; /* SL_PROCESS_JOBS_MAX */
};

/* The functions of env (sl_process_env.c). */
extern const struct sl_env_ops sl_process_env_ops;
/* Checks which of the watched clients have died. */
void sl_process_clients_look(struct sl_process *process, uint64_t now_ns);
/* Called by the loop after a helper thread ended a job. Sends LOCAL_JOB for completed jobs. */
void sl_process_jobs_collect(void *process);
/* Waits for running jobs. False: some still run after the limit, and their memory must stay. */
bool sl_process_jobs_end(struct sl_process *process);

/* sl_process_disk.c */
sl_err sl_process_disk_open(struct sl_env *env, const char *path, uint32_t queue_depth, bool direct,
                            struct sl_disk **out, struct sl_error *why);
void sl_process_disks_flush(struct sl_process *process);
void sl_process_disks_close(struct sl_process *process);

/* ---- process_supervised.c: whether a supervisor restarts the processes of the node. A node
 * outlives its supervisor. */
/* Called at the start: finds the supervisor, if there is one, and watches it. */
void sl_process_supervisor_find(struct sl_process *process);
/* Called while there is none: another supervisor may have taken over the node. */
void sl_process_supervisor_look(struct sl_process *process, uint64_t now_ns);

/* sl_process.c: passes one message to the actor and handles its result. */
void sl_process_dispatch(struct sl_process *process, struct sl_msg *msg);
/* Logs why and ends the process with exit code 1. */
void sl_process_fail(struct sl_process *process, const struct sl_error *why);

#endif
