/* runtime/base/sl_env.h - the world as an actor sees it. The process gives it the real one
 * (ipc/msg/sl_process.c), the simulator a simulated one (tests/sim). An actor calls nothing
 * outside: no clock, socket, sleep, thread, signal or file but through here, the shared-memory
 * structures of ipc/ and the device interface.
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
    /* Sends one encoded frame. reply: back along the connection that the peer opened to us;
     * otherwise along ours to the actor `to`. Never blocks. Errors: SL_ERR_UNREACHABLE (nobody
     * there), SL_ERR_LIMIT (its queue is full). A frame that was taken may still be lost with its
     * receiver. */
    sl_err (*send)(struct sl_env *env, const char *to, const void *frame, size_t length_bytes,
                   bool reply);
    /* tick() is called at at_ns at the latest; the earliest wish since the last tick counts. */
    void (*wake_at)(struct sl_env *env, uint64_t at_ns);
    /* SL_MSG_LOCAL_DIED {proc, cookie} arrives once when the process or client is gone (at once if
     * it already is). Errors: SL_ERR_LIMIT, SL_ERR_OS. */
    sl_err (*watch)(struct sl_env *env, struct sl_proc_id proc, uint64_t cookie);
    void (*unwatch)(struct sl_env *env, struct sl_proc_id proc);
    bool (*alive)(struct sl_env *env, struct sl_proc_id proc);
    /* Whether a client has the lock that says that it lives (ipc/shm/sl_pins.h); true of a process.
     */
    bool (*locked)(struct sl_env *env, struct sl_proc_id proc);
    /* SIGKILL to exactly this process. */
    void (*kill)(struct sl_env *env, struct sl_proc_id proc);
    /* Opens the disk of an entry of disk_path; completions come as SL_MSG_LOCAL_IO. Gives *out. */
    sl_err (*disk_open)(struct sl_env *env, const char *path, uint32_t queue_depth, bool direct,
                        struct sl_disk **out, struct sl_error *why);
    /* Runs job(context) on helper threads (the simulator: inline); when all ended, SL_MSG_LOCAL_JOB
     * {cookie, result of the first that failed}. The context is lent until then. */
    sl_err (*job)(struct sl_env *env, uint32_t thread_count,
                  sl_err (*job)(void *context, uint32_t thread), void *context, uint64_t cookie);
    /* tick() is called whenever fd is readable; end the watch before closing fd. NULL where there
     * are no descriptors. Errors: SL_ERR_EXISTS, SL_ERR_LIMIT, SL_ERR_OS. */
    sl_err (*watch_fd)(struct sl_env *env, int fd, struct sl_error *why);
    void (*unwatch_fd)(struct sl_env *env, int fd);
    uint64_t (*random_u64)(struct sl_env *env);
    uint64_t (*wall_ns)(struct sl_env *env); /* since 1970; may jump, either way */
    /* The actor asks to end (drained): exit code 0, fini runs. */
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
    /* Set by init of an actor that does not serve yet when it returns: it says READY by itself,
     * and the registrar hears HELLO of it when this is false again. */
    bool starting;
    /* Set by an actor whose handler returns a fatal class: why it ends, for its page and its log.
     * NULL: the class says enough. */
    const char *ending;
    uint64_t next_seq; /* sequence of the messages sent; starts at the monotonic clock, so it grows
                          over restarts */
};

#endif
