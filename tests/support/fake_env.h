/* tests/support/fake_env.h - an environment for one actor that a test steps by hand.
 *
 * Time advances only in fake_advance. Frames that the actor sends are kept and decoded when the
 * test takes them; messages to the actor pass encoder and decoder as on the wire. A process is
 * alive once fake_process_add was called for it. Jobs run at once, inline, or with job_held when
 * the test runs them. The directories belong to the fake, so an actor can be stopped and restarted
 * on the state it left. */
#ifndef FAKE_ENV_H
#define FAKE_JOBS_MAX 8u
#define FAKE_ENV_H

#include "ipc/msg/sl_msg.h"
#include "runtime/base/sl_actor.h"

#define FAKE_FRAMES_MAX  4096u
#define FAKE_PROCS_MAX   64u
#define FAKE_WATCHES_MAX 64u

struct fake_frame {
    char to[32];
    bool reply;
    bool taken;
    void *bytes;
    size_t length_bytes;
};

struct fake_env {
    struct sl_env env; /* first: the ops find the rest by it */
    const struct sl_actor *actor;
    void *state;
    struct sl_config *config;
    struct sl_paths paths;
    struct sl_codec *give_codec, *take_codec;
    struct fake_frame frames[FAKE_FRAMES_MAX];
    uint32_t frame_count;
    struct sl_proc_id living[FAKE_PROCS_MAX];
    struct sl_proc_id unlocked[FAKE_PROCS_MAX]; /* clients that have lost their locks */
    uint32_t unlocked_count;
    uint32_t living_count;
    struct sl_proc_id watches[FAKE_WATCHES_MAX];
    uint32_t watch_count;
    struct sl_proc_id killed[FAKE_PROCS_MAX];
    uint32_t killed_count;
    uint64_t wall_ahead_ns; /* of the clock since 1970, ahead of the monotonic one */
    char unreachable[32];   /* sends to this name fail */
    uint64_t wake_ns;
    uint64_t seq; /* of the messages sent to the actor */
    struct {
        uint64_t cookie;
        sl_err result;
    } jobs_ended[FAKE_JOBS_MAX]; /* not reported yet */
    uint32_t jobs_ended_count;
    uint64_t held_cookie;
    sl_err job_refused, job_fails; /* SL_OK; else jobs cannot start, or fail without running */
    uint32_t job_count;
    bool job_held; /* jobs wait for fake_job_run, one at a time */
    sl_err (*held_job)(void *context, uint32_t thread); /* NULL: none waits */
    void *held_context;
    uint32_t held_threads;
    bool finished;
};

/* Makes directories and settings: name, text, ..., NULL. Starts nothing. */
void fake_open(struct fake_env *fake, const struct sl_actor *actor, const char *const *settings);
/* Removes everything; a running actor is stopped first. */
void fake_close(struct fake_env *fake);
void fake_set(struct fake_env *fake, const char *name, const char *text);
/* Runs init. */
sl_err fake_start(struct fake_env *fake, struct sl_error *why);
/* Ends the actor like SIGKILL: fini changes nothing that outlives it. Drops frames, watches. */
void fake_stop(struct fake_env *fake);

void fake_process_add(struct fake_env *fake, struct sl_proc_id proc);
/* Ends the process and notifies the actor if it watches the process. */
void fake_process_end(struct fake_env *fake, struct sl_proc_id proc);
bool fake_is_watched(const struct fake_env *fake, struct sl_proc_id proc);

/* Gives the actor a message of `sender`; seq 0: the next number (written back), budget 0: 2 s;
 * version 0: the current one. */
void fake_give(struct fake_env *fake, const char *sender, struct sl_msg *msg);
#define FAKE_PREFETCH   (1u << 31) /* with BRING and DISK_READ: those that no request waits for */
#define FAKE_POOL_SLOTS (1u << 30) /* with BRING: those that read straight into pools */
#define FAKE_RAISE      (1u << 29) /* with DISK_READ: those that raise */
#define FAKE_GONE       (1u << 28) /* with DISK_RECLAIM: those past the end of the file */
/* Takes the oldest frame to `to` of this type (0: any), decoded; borrowed until the next take.
 * False if no frame matches. */
bool fake_take(struct fake_env *fake, const char *to, uint32_t type, struct sl_msg *out);
/* Takes the reply to the request with this number. */
bool fake_take_reply(struct fake_env *fake, const char *to, uint64_t seq, struct sl_msg *out);
/* Answers a request taken before: fills in type, reply_to, op id and sender. */
void fake_answer(struct fake_env *fake, const char *sender, const struct sl_msg *request,
                 struct sl_msg *reply);
/* Reports the ends of jobs, and of the jobs that these start in turn. */
void fake_jobs_report(struct fake_env *fake);
/* Runs the waiting job and advances time by took_ns before its end is reported. */
void fake_job_run(struct fake_env *fake, uint64_t took_ns);
/* Advances time; ticks the actor whenever it asked for that. */
void fake_advance(struct fake_env *fake, uint64_t ns);

#endif
