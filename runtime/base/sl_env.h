/* runtime/base/sl_env.h - an actor's interface to the world. A process provides the real one
 * (ipc/msg/sl_process.c), the simulator a simulated one (tests/sim). An actor uses no clock,
 * socket, sleep, thread, signal or file except through env, the shared-memory structures of ipc/
 * and the device interface.
 *
 * One thread. All pointers are borrowed from the environment. */
#ifndef SL_ENV_H
#define SL_ENV_H

#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_config.h"
#include "runtime/base/sl_log.h"
#include "runtime/base/sl_metrics.h"

struct sl_env;
struct sl_disk;
struct sl_msg;     /* ipc/msg/sl_msg.h */
struct sl_network; /* actors/transporter/control/network.h */

struct sl_env_ops {
    /* Sends one encoded frame. reply: on the connection that the peer opened; otherwise on this
     * process's connection to the actor `to`. Never blocks. Errors: SL_ERR_UNREACHABLE (no such
     * actor listens), SL_ERR_LIMIT (its queue is full). An accepted frame may still be lost with
     * its receiver. */
    sl_err (*send)(struct sl_env *env, const char *to, const void *frame, size_t length_bytes,
                   bool reply);
    /* tick() is called at at_ns at the latest; the earliest request since the last tick counts. */
    void (*wake_at)(struct sl_env *env, uint64_t at_ns);
    /* SL_MSG_LOCAL_DIED {proc, cookie} arrives once, when the process or client has died
     * (immediately if it has already). Errors: SL_ERR_LIMIT, SL_ERR_OS. */
    sl_err (*watch)(struct sl_env *env, struct sl_proc_id proc, uint64_t cookie);
    void (*unwatch)(struct sl_env *env, struct sl_proc_id proc);
    bool (*alive)(struct sl_env *env, struct sl_proc_id proc);
    /* Whether a client holds the lock that shows it lives (ipc/shm/sl_pins.h); true for a
     * process. */
    bool (*locked)(struct sl_env *env, struct sl_proc_id proc);
    /* Sends SIGKILL to exactly this process. */
    void (*kill)(struct sl_env *env, struct sl_proc_id proc);
    /* Opens the disk of an entry of disk_path; completions are SL_MSG_LOCAL_IO. Gives *out. */
    sl_err (*disk_open)(struct sl_env *env, const char *path, uint32_t queue_depth, bool direct,
                        struct sl_disk **out, struct sl_error *why);
    /* Runs job(context) on helper threads (the simulator: inline). When all have ended,
     * SL_MSG_LOCAL_JOB {cookie, result of the first that failed} arrives. The context must stay
     * valid until then. */
    sl_err (*job)(struct sl_env *env, uint32_t thread_count,
                  sl_err (*job)(void *context, uint32_t thread), void *context, uint64_t cookie);
    /* tick() is called whenever fd is readable; end the watch before closing fd. NULL in a world
     * without descriptors. Errors: SL_ERR_EXISTS, SL_ERR_LIMIT, SL_ERR_OS. */
    sl_err (*watch_fd)(struct sl_env *env, int fd, struct sl_error *why);
    void (*unwatch_fd)(struct sl_env *env, int fd);
    uint64_t (*random_u64)(struct sl_env *env);
    uint64_t (*wall_ns)(struct sl_env *env); /* since 1970; may jump forward or backward */
    /* Ends the actor after a drain: fini runs, exit code 0. */
    void (*finish)(struct sl_env *env);
};

struct sl_env {
    const struct sl_env_ops *ops;
    const char *name; /* "registrar", "swapper.1", "client.4711.0" */
    struct sl_proc_id self;
    uint64_t now_ns; /* monotonic; taken once per message or tick */
    const struct sl_config *config;
    const struct sl_paths *paths;
    struct sl_log *log;               /* may be NULL */
    struct sl_metrics *metrics;       /* may be NULL */
    const struct sl_network *network; /* between nodes; NULL: the system's */
    /* Set by init of an actor that cannot serve yet when init returns. It announces READY by
     * itself; the registrar gets its HELLO once this is false again. */
    bool starting;
    /* Set by an actor whose handler returns a fatal class: the reason, for its metrics page and
     * log. NULL: the class says enough. */
    const char *ending;
    uint64_t next_seq; /* of the next message; starts at the monotonic clock, so it grows across
                          restarts */
};

#endif
