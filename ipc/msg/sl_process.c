/* ipc/msg/sl_process.c - main() of every actor: set-up, loop, dispatch of messages, drain, exit. */
#include "ipc/msg/process_internal.h"
#include "runtime/base/sl_guard.h"
#include "runtime/base/sl_priority.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#define EXIT_FAILED    1
#define EXIT_WRONG_USE 2

#define LOG_LINES_PER_S 200u /* further lines are counted */
/* Lanes beyond clients_max, so that excess clients get a refusal. */
#define LANES_SPARE 256u

/* ---- messages ---- */

void sl_process_fail(struct sl_process *process, const struct sl_error *why)
{
    sl_log_write(process->env.log, SL_LOG_ERROR, 0, "%s ends: %s", process->name, why->text);
    process->failed = true;
    (void)snprintf(process->failure, sizeof(process->failure), "%s", why->text);
    sl_loop_stop(process->loop);
}

static void judge(struct sl_process *process, sl_err result, const char *what, uint64_t trace_id)
{
    if (result == SL_OK) {
        return;
    }
    sl_metric_add(process->env.metrics, process->counters.failed, 1);
    if (sl_err_class(result) == SL_CLASS_RESTART) {
        struct sl_error why = {0};
        const char *ending = process->env.ending;
        if (ending != NULL) {
            (void)sl_fail(&why, result, "%s", ending);
        } else {
            (void)sl_fail(&why, result, "%s: %s", what, sl_err_text(result));
        }
        sl_process_fail(process, &why);
        return;
    }
    enum sl_log_level level = sl_err_class(result) == SL_CLASS_ANSWER ? SL_LOG_DEBUG : SL_LOG_WARN;
    sl_log_write(process->env.log, level, trace_id, "%s: %s, the actor continues", what,
                 sl_err_text(result));
}

void sl_process_dispatch(struct sl_process *process, struct sl_msg *msg)
{
    struct sl_env *env = &process->env;
    env->now_ns = sl_clock_monotonic_ns();
    msg->received_ns = env->now_ns;
    sl_err result = process->actor->handle(process->state, msg);
    sl_histogram_add(env->metrics, process->counters.handle_ns,
                     sl_clock_monotonic_ns() - env->now_ns);
    judge(process, result, sl_msg_name(msg->type), msg->trace_id);
}

static void process_drain(struct sl_process *process, const char *because)
{
    if (process->draining) {
        return;
    }
    process->draining = true;
    process->env.now_ns = sl_clock_monotonic_ns();
    process->drain_deadline_ns = sl_deadline_ns(process->env.now_ns, SL_PROCESS_DRAIN_NS);
    sl_metrics_health(process->env.metrics, SL_HEALTH_DRAINING, because);
    sl_log_write(process->env.log, SL_LOG_INFO, 0, "draining: %s", because);
    if (process->actor->drain != NULL) {
        process->actor->drain(process->state);
    } else {
        process->env.ops->finish(&process->env);
    }
}

/* In the handler of a fault: call nothing that takes a lock. */
_Noreturn static void segment_cut(void)
{
    static const char line[] =
        "shared memory of this node was cut short by another process: the actor ends before it "
        "relies on what it reads\n";
    ssize_t wrote = write(STDERR_FILENO, line, sizeof(line) - 1);
    (void)wrote;
    _exit(EXIT_FAILED);
}

_Noreturn void sl_process_exit_truncated(struct sl_process *process)
{
    sl_log_write(process->env.log, SL_LOG_ERROR, 0,
                 "%s ends: shared memory of this node was cut short by another process",
                 process->name);
    segment_cut();
}

/* PING is answered here for every actor. */
static bool answered_here(struct sl_process *process, const struct sl_msg *msg)
{
    if (msg->type == SL_MSG_PING) {
        struct sl_msg reply = {.code = SL_OK};
        reply.body.pong.name = sl_text_of(process->name);
        reply.body.pong.pid = process->env.self.pid;
        reply.body.pong.draining = process->draining;
        reply.body.pong.start_time = process->env.self.start_time;
        sl_reply(&process->env, msg, &reply);
        return true;
    }
    return false;
}

/* Counts and logs a frame that is not a valid message, and answers it if the envelope names sender
 * and request. */
static void refuse_frame(struct sl_process *process, const char *from, bool is_senders,
                         const struct sl_error *why)
{
    struct sl_msg envelope;
    sl_metric_add(process->env.metrics, process->counters.refused, 1);
    sl_log_write(process->env.log, SL_LOG_WARN, 0, "message from %s refused: %s", from, why->text);
    if (is_senders && sl_codec_last_envelope(process->codec, &envelope) &&
        !SL_MSG_IS_REPLY(envelope.type)) {
        envelope.received_ns = process->env.now_ns;
        sl_reply_code(&process->env, &envelope, why->code, why);
    }
}

static void process_frame(struct sl_process *process, const char *from, const void *frame,
                          size_t length_bytes)
{
    struct sl_msg msg;
    struct sl_error why = {0};
    process->env.now_ns = sl_clock_monotonic_ns();
    sl_metric_add(process->env.metrics, process->counters.received, 1);
    sl_err err = sl_codec_decode(process->codec, frame, length_bytes, &msg, &why);
    /* The transport knows the sender: an envelope with another name is an error or forged. */
    struct sl_msg envelope;
    bool is_senders =
        sl_codec_last_envelope(process->codec, &envelope) && strcmp(envelope.sender.at, from) == 0;
    if (err == SL_OK && !is_senders) {
        err = sl_fail(&why, SL_ERR_PROTOCOL, "envelope.sender: '%s' is not the peer's name",
                      envelope.sender.at);
    }
    if (err != SL_OK) {
        refuse_frame(process, from, is_senders, &why);
        return;
    }
    sl_msg_trace(&process->env, &msg, false, from);
    if (!answered_here(process, &msg)) {
        sl_process_dispatch(process, &msg);
    }
}

static void drain_mailbox(struct sl_process *process)
{
    for (uint32_t i = 0; i < SL_PROCESS_BATCH && !process->failed && !process->finished; i++) {
        const char *from = NULL;
        const void *frame = NULL;
        size_t length_bytes = 0;
        if (sl_mailbox_receive(process->mailbox, &from, &frame, &length_bytes) != SL_OK) {
            return;
        }
        process_frame(process, from, frame, length_bytes);
    }
}

/* The loop's wait: nearly all wake-ups of an actor are frames. */
static bool wait_at_mailbox(void *context, uint64_t wait_ns)
{
    struct sl_process *process = context;
    bool of_loop = sl_mailbox_block(process->mailbox, wait_ns);
    drain_mailbox(process);
    return of_loop;
}

/* ---- loop ---- */

static void say_hello(struct sl_process *process, uint64_t now_ns)
{
    struct sl_env *env = &process->env;
    char segment[SL_NAME_BYTES_MAX + 8];
    char path[sizeof(process->paths.shm_dir) + sizeof(segment) + 1];
    (void)snprintf(segment, sizeof(segment), "pins.%s", process->name);
    (void)snprintf(path, sizeof(path), "%s/%s", process->paths.shm_dir, segment);
    struct sl_msg hello = {.type = SL_MSG_HELLO};
    hello.body.hello.role = sl_text_of(process->actor->role);
    hello.body.hello.name = sl_text_of(process->name);
    hello.body.hello.pid = env->self.pid;
    hello.body.hello.start_time = env->self.start_time;
    /* The pin file of this name is the actor's, if it has created one. */
    hello.body.hello.segment = sl_text_of(access(path, F_OK) == 0 ? segment : "");
    uint64_t heartbeat_ns = sl_config_u64(process->config, SL_SET_heartbeat);
    sl_err err =
        env->starting ? SL_ERR_BUSY : sl_send(env, "registrar", &hello, NULL); /* not yet */
    process->hello_at_ns = err == SL_OK ? sl_clock_next_ns(now_ns, heartbeat_ns)
                                        : now_ns + SL_MIN(heartbeat_ns, SL_PROCESS_HELLO_RETRY_NS);
}

/* A new connection may be to a new registrar: it gets a HELLO at once. */
static void note_connects(struct sl_process *process)
{
    uint64_t connects = sl_mailbox_connect_count(process->mailbox);
    if (connects != process->connects_seen && process->hello_at_ns != SL_NEVER_NS) {
        process->hello_at_ns = 0;
    }
    process->connects_seen = connects;
}

/* An actor that gets no core misses the deadlines of its requests: logged, since nothing else shows
 * it. */
static void note_core_wait(struct sl_process *process, uint64_t now_ns)
{
    uint64_t wait_ns = 0;
    uint64_t due_ns = process->core_wait_at_ns;
    if (now_ns < due_ns) {
        return;
    }
    process->core_wait_at_ns = now_ns + SL_PROCESS_CORE_WAIT_EVERY_NS;
    if (sl_core_wait_ns(process->env.self.pid, &wait_ns, NULL) != SL_OK) {
        return;
    }
    uint64_t since_ns = now_ns + SL_PROCESS_CORE_WAIT_EVERY_NS - due_ns;
    uint64_t more_ns = wait_ns - process->core_wait_seen_ns;
    if (due_ns != 0 && more_ns > SL_PROCESS_CORE_WAIT_NS) {
        sl_log_write(process->env.log, SL_LOG_WARN, 0,
                     "was ready to run and had no core for %.1f s of the last %.1f s: see "
                     "sluicectl doctor",
                     (double)more_ns / SL_NS_PER_S, (double)since_ns / SL_NS_PER_S);
    }
    process->core_wait_seen_ns = wait_ns;
}

static void run_due(struct sl_process *process, uint64_t now_ns)
{
    now_ns = SL_MAX(now_ns, process->env.now_ns); /* messages may have arrived since */
    process->env.now_ns = now_ns;
    note_core_wait(process, now_ns);
    if (process->clients_at_ns <= now_ns) {
        sl_process_clients_look(process, now_ns);
    }
    if (process->supervisor_look_ns <= now_ns) {
        sl_process_supervisor_look(process, now_ns);
    }
    if (process->tick_at_ns <= now_ns) {
        process->tick_at_ns = SL_NEVER_NS;
        if (process->actor->tick != NULL) {
            judge(process, process->actor->tick(process->state, now_ns), "tick", 0);
        }
    }
    note_connects(process);
    if (process->hello_at_ns <= now_ns) {
        say_hello(process, now_ns);
    }
    if (process->drain_deadline_ns <= now_ns && !process->finished) {
        struct sl_error why = {0};
        (void)sl_fail(&why, SL_ERR_TIMEOUT, "not drained within %" PRIu64 " s",
                      SL_PROCESS_DRAIN_NS / SL_NS_PER_S);
        process->drain_deadline_ns = SL_NEVER_NS;
        sl_process_fail(process, &why);
    }
}

/* The mailbox counts since its opening, the page over restarts. */
static void show_counters(struct sl_process *process)
{
    struct sl_mailbox_stats now;
    struct sl_process_metrics *counters = &process->counters;
    const struct sl_mailbox_stats *shown = &counters->shown;
    sl_mailbox_stats_get(process->mailbox, &now);
    const struct {
        sl_metric metric;
        uint64_t more;
    } rows[] = {
        {counters->queue_sent, now.lane_sent - shown->lane_sent},
        {counters->queue_received, now.lane_received - shown->lane_received},
        {counters->doorbells, now.doorbells - shown->doorbells},
        {counters->avoided, now.wakeups_avoided - shown->wakeups_avoided},
        {counters->queues_refused, now.lanes_refused - shown->lanes_refused},
        {counters->queues_dropped, now.lanes_dropped - shown->lanes_dropped},
        {counters->late_wakeups, now.late_wakeups - shown->late_wakeups},
    };
    for (uint32_t i = 0; i < SL_COUNT(rows); i++) {
        if (rows[i].more != 0) {
            sl_metric_add(process->env.metrics, rows[i].metric, rows[i].more);
        }
    }
    sl_metric_set(process->env.metrics, counters->queues, now.lanes);
    if (now.lanes_ended != shown->lanes_ended && process->clients_at_ns != SL_NEVER_NS) {
        process->clients_at_ns =
            SL_MIN(process->clients_at_ns, process->env.now_ns + SL_PROCESS_DISCONNECT_NS);
    }
    counters->shown = now;
}

static bool is_over(const struct sl_process *process)
{
    return process->failed || process->finished;
}

static uint64_t next_due(const struct sl_process *process)
{
    uint64_t next_ns = SL_MIN(process->tick_at_ns, process->hello_at_ns);
    next_ns = SL_MIN(SL_MIN(next_ns, process->drain_deadline_ns), process->supervisor_look_ns);
    return SL_MIN(next_ns, process->clients_at_ns);
}

/* Handles what is due, frames that have arrived meanwhile, and disk requests. */
static void work(struct sl_process *process, uint64_t now_ns)
{
    run_due(process, now_ns);
    if (sl_mailbox_pending(process->mailbox)) {
        drain_mailbox(process);
    }
    sl_process_disks_flush(process);
}

/* Called before the loop sleeps. */
static uint64_t before_wait(void *context, uint64_t now_ns)
{
    struct sl_process *process = context;
    work(process, now_ns);
    for (uint32_t i = 0;
         i < SL_PROCESS_SPINS_MAX && !is_over(process) && !sl_mailbox_pending(process->mailbox) &&
         sl_mailbox_spin(process->mailbox, next_due(process));
         i++) {
        work(process, sl_clock_monotonic_ns());
    }
    sl_metrics_beat(process->env.metrics, now_ns);
    show_counters(process);
    if (is_over(process)) {
        return 0;
    }
    return SL_MIN(SL_MIN(sl_mailbox_sleep(process->mailbox, now_ns), next_due(process)),
                  sl_clock_next_ns(now_ns, SL_PROCESS_BEAT_NS));
}

static void got_signal(void *context, int signal_number)
{
    process_drain(context, signal_number == SIGINT ? "SIGINT" : "SIGTERM");
}

/* ---- set-up ---- */

static sl_err make_name(struct sl_process *process, struct sl_error *why)
{
    const char *role = process->actor->role;
    int length = process->actor->ranked
                     ? snprintf(process->name, sizeof(process->name), "%s.%" PRIu64, role,
                                sl_config_u64(process->config, SL_SET_rank))
                     : snprintf(process->name, sizeof(process->name), "%s", role);
    if (length < 0 || (size_t)length >= sizeof(process->name)) {
        return sl_fail(why, SL_ERR_INVALID, "name of actor '%s' is too long", role);
    }
    return SL_OK;
}

/* A lock on a directory keeps systemd-tmpfiles from cleaning what is below it. It is held until the
 * process ends; without it the supervisor creates again what a cleaner removed. */
static void place_hold(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0) {
        (void)close(fd);
    }
}

static sl_err make_places(struct sl_process *process, struct sl_error *why)
{
    sl_err err = sl_paths_from(process->config, &process->paths, why);
    const char *paths[] = {process->paths.runtime_dir, process->paths.shm_dir};
    for (size_t i = 0; err == SL_OK && i < SL_COUNT(paths); i++) {
        err = sl_dir_make(paths[i], why);
        if (err == SL_OK) {
            place_hold(paths[i]);
        }
    }
    return err;
}

static sl_err open_log(struct sl_process *process, struct sl_error *why)
{
    char path[sizeof(process->paths.log_dir) + SL_NAME_BYTES_MAX + 16];
    (void)snprintf(path, sizeof(path), "%s/%s.jsonl", process->paths.log_dir, process->name);
    struct sl_log_options options = {
        .path = path,
        .actor = process->name,
        .lines_per_s = LOG_LINES_PER_S,
        .bytes_max = sl_config_u64(process->config, SL_SET_log_bytes_max),
    };
    sl_err err =
        sl_log_level_parse(sl_config_text(process->config, SL_SET_log_level), &options.level, why);
    if (err == SL_OK && (sl_dir_make(process->paths.log_dir, why) != SL_OK ||
                         sl_log_open(&options, &process->env.log, why) != SL_OK)) {
        options.path = NULL; /* an actor works without its log file */
        err = sl_log_open(&options, &process->env.log, NULL);
        sl_log_write(process->env.log, SL_LOG_WARN, 0,
                     "%s: further lines are written to standard error", why->text);
    }
    place_hold(process->paths.log_dir);
    return err;
}

static sl_err open_metrics(struct sl_process *process, struct sl_error *why)
{
    char path[sizeof(process->paths.shm_dir) + SL_NAME_BYTES_MAX + 16];
    (void)snprintf(path, sizeof(path), "%s/metrics.%s", process->paths.shm_dir, process->name);
    const struct sl_metrics_options options = {
        .path = path,
        .actor = process->name,
        .self = process->env.self,
        .trace_events = (uint32_t)sl_config_u64(process->config, SL_SET_trace_events),
    };
    sl_err err = sl_metrics_open(&options, &process->env.metrics, why);
    if (err != SL_OK) {
        return err;
    }
    struct sl_metrics *metrics = process->env.metrics;
    process->counters = (struct sl_process_metrics){
        .received = sl_metric_define(metrics, "messages_received"),
        .sent = sl_metric_define(metrics, "messages_sent"),
        .refused = sl_metric_define(metrics, "messages_refused"),
        .unreachable = sl_metric_define(metrics, "sends_unreachable"),
        .limited = sl_metric_define(metrics, "sends_limited"),
        .failed = sl_metric_define(metrics, "handler_errors"),
        .queue_sent = sl_metric_define(metrics, "queue_frames_sent"),
        .queue_received = sl_metric_define(metrics, "queue_frames_received"),
        .doorbells = sl_metric_define(metrics, "doorbells_rung"),
        .avoided = sl_metric_define(metrics, "wakeups_avoided"),
        .queues = sl_metric_define(metrics, "queues_attached"),
        .queues_refused = sl_metric_define(metrics, "queues_refused"),
        .queues_dropped = sl_metric_define(metrics, "queues_dropped"),
        .late_wakeups = sl_metric_define(metrics, "late_wakeups"),
        .unsupervised = sl_metric_define(metrics, SL_PROCESS_UNSUPERVISED),
        .handle_ns = sl_histogram_define(metrics, "handle_ns"),
    };
    sl_metrics_health(metrics, SL_HEALTH_STARTING, "");
    return SL_OK;
}

static sl_err open_loop(struct sl_process *process, struct sl_error *why)
{
    static const int signals[] = {SIGTERM, SIGINT};
    process->watch_count_max = (uint32_t)sl_config_u64(process->config, SL_SET_clients_max) +
                               (uint32_t)sl_config_u64(process->config, SL_SET_engines_max);
    const struct sl_loop_options options = {
        .fds_max = 64,
        .timers_max = 16,
        .processes_max = SL_MIN(process->watch_count_max + 1, 65536u)}; /* 1: the supervisor */
    process->watches = calloc(process->watch_count_max, sizeof(*process->watches));
    process->jobs = calloc(SL_PROCESS_JOBS_MAX, sizeof(*process->jobs));
    if (process->watches == NULL || process->jobs == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the tables of a process");
    }
    sl_err err = sl_loop_create(&options, &process->loop, why);
    if (err != SL_OK) {
        return err;
    }
    sl_loop_before_wait(process->loop, before_wait, process);
    sl_loop_on_wake(process->loop, sl_process_jobs_collect, process);
    /* Before any thread is created, so that only the loop gets signals. */
    return sl_loop_signals(process->loop, signals, SL_COUNT(signals), got_signal, process, why);
}

static sl_err open_mailbox(struct sl_process *process, struct sl_error *why)
{
    struct sl_mailbox_options options = {
        .runtime_dir = process->paths.runtime_dir,
        .name = process->name,
        .lanes_max = (uint32_t)sl_config_u64(process->config, SL_SET_clients_max) + LANES_SPARE,
    };
    sl_mailbox_options_from(process->config, &options);
    sl_err err = sl_codec_create(options.message_bytes_max, &process->codec, why);
    if (err == SL_OK) {
        err = sl_mailbox_open(&options, &process->mailbox, why);
    }
    if (err == SL_OK) {
        err = sl_mailbox_join(process->mailbox, sl_loop_fd(process->loop), why);
    }
    if (err == SL_OK) {
        sl_loop_set_wait(process->loop, wait_at_mailbox, process);
    }
    return err;
}

/* A node works even if its actors get no priority. */
static void take_priority(struct sl_process *process)
{
    struct sl_error why = {0};
    uint32_t levels = (uint32_t)sl_config_u64(process->config, SL_SET_priority);
    if (sl_priority_raise(levels, &why) != SL_OK) {
        sl_log_write(
            process->env.log, SL_LOG_INFO, 0,
            "priority over other processes is not fully set: %s (CAP_SYS_NICE or RLIMIT_NICE "
            "allows it)",
            why.text);
    }
}

static sl_err process_open(struct sl_process *process, struct sl_error *why)
{
    process->clients_at_ns = SL_NEVER_NS;
    atomic_store_explicit(&sl_guard_cut_hook, segment_cut, memory_order_release);
    /* Numbers increase from one process of a name to the next: a FENCE covers what its predecessor
     * sent. */
    process->env.next_seq = sl_clock_monotonic_ns();
    sl_err err = sl_proc_id_self(&process->env.self, why);
    if (err == SL_OK) {
        err = make_name(process, why);
    }
    if (err == SL_OK) {
        err = make_places(process, why);
    }
    if (err == SL_OK) {
        err = open_log(process, why);
    }
    if (err == SL_OK) {
        take_priority(process);
        err = open_metrics(process, why);
    }
    if (err == SL_OK) {
        err = open_loop(process, why);
    }
    if (err == SL_OK) {
        sl_process_supervisor_find(process);
        err = open_mailbox(process, why);
    }
    return err;
}

/* ---- life ---- */

static sl_err actor_start(struct sl_process *process, struct sl_error *why)
{
    process->state = calloc(1, SL_MAX(process->actor->state_bytes, (size_t)1));
    if (process->state == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the state of '%s'", process->name);
    }
    process->env.now_ns = sl_clock_monotonic_ns();
    process->state_is_live = true;
    sl_err err = process->actor->init(process->state, &process->env, why);
    if (err != SL_OK) {
        return err;
    }
    sl_metrics_beat(process->env.metrics, process->env.now_ns);
    if (!process->env.starting) {
        sl_metrics_health(process->env.metrics, SL_HEALTH_READY, "");
    }
    sl_log_write(process->env.log, SL_LOG_INFO, 0, "ready, version %s", SL_VERSION);
    (void)printf("ready %s\n", process->name);
    (void)fflush(stdout);
    return SL_OK;
}

static void process_close(struct sl_process *process)
{
    if (!sl_process_jobs_end(process)) {
        /* Helper threads still use the actor's memory: the kernel frees it when the process
         * ends. */
        sl_log_write(process->env.log, SL_LOG_WARN, 0,
                     "helper threads still run at the end: exit without clean-up");
        sl_metrics_health(process->env.metrics, SL_HEALTH_STOPPED,
                          "exit with running helper threads");
        _exit(process->failed ? EXIT_FAILED : 0);
    }
    if (process->state_is_live && process->actor->fini != NULL) {
        process->actor->fini(process->state);
    }
    free(process->state);
    sl_process_disks_close(process);
    sl_mailbox_close(&process->mailbox);
    sl_codec_destroy(&process->codec);
    sl_loop_destroy(&process->loop);
    sl_metrics_health(process->env.metrics, SL_HEALTH_STOPPED,
                      process->failed ? process->failure : "drained");
    sl_metrics_close(&process->env.metrics);
    sl_log_close(&process->env.log);
    free(process->watches);
    free(process->jobs);
    (void)pthread_mutex_destroy(&process->jobs_lock);
    sl_config_destroy(&process->config);
}

static int process_run(struct sl_process *process)
{
    struct sl_error why = {0};
    sl_err err = process_open(process, &why);
    if (err == SL_OK) {
        err = actor_start(process, &why);
    }
    if (err != SL_OK) {
        (void)fprintf(stderr, "sluice-%s: %s\n", process->actor->role, why.text);
        sl_log_write(process->env.log, SL_LOG_ERROR, 0, "not started: %s", why.text);
        process->failed = true;
        (void)snprintf(process->failure, sizeof(process->failure), "%s", why.text);
        return err == SL_ERR_CONFIG ? EXIT_WRONG_USE : EXIT_FAILED; /* a retry would not help */
    }
    process->hello_at_ns = strcmp(process->actor->role, "registrar") == 0 ? SL_NEVER_NS : 0;
    while (!process->finished && !process->failed) {
        err = sl_loop_run(process->loop, &why);
        if (err != SL_OK) {
            sl_process_fail(process, &why);
        }
    }
    return process->failed ? EXIT_FAILED : 0;
}

static void print_help(const struct sl_actor *actor)
{
    (void)printf(
        "usage: sluice-%s [--config FILE] [--SETTING VALUE ...]\n\n"
        "Runs the actor '%s' of a Sluice node until SIGTERM. Normally sluice-node starts it.\n\n",
        actor->role, actor->role);
    sl_config_print_help(stdout);
}

/* Reads the settings. Returns true if the process is to run, otherwise sets its exit code. */
static bool settings_read(struct sl_process *process, int argc, char **argv, int *exit_code)
{
    struct sl_error why = {0};
    sl_err err = sl_config_create(&process->config, &why);
    if (err == SL_OK) {
        err = sl_config_load(process->config, NULL, argc, argv, NULL, &why);
    }
    err = err == SL_OK ? sl_config_check_access(process->config, &why) : err;
    if (err == SL_OK) {
        process->env.config = process->config;
        return true;
    }
    *exit_code = EXIT_WRONG_USE;
    if (err == SL_ERR_CANCELLED) {
        *exit_code = 0;
        if (strstr(why.text, "version") != NULL) {
            (void)printf("sluice-%s %s\n", process->actor->role, SL_VERSION);
        } else {
            print_help(process->actor);
        }
        return false;
    }
    (void)fprintf(stderr, "sluice-%s: %s\n", process->actor->role, why.text);
    return false;
}

int sl_process_main(const struct sl_actor *actor, int argc, char **argv)
{
    struct sl_process process = {
        .env = {.ops = &sl_process_env_ops},
        .actor = actor,
        .tick_at_ns = SL_NEVER_NS,
        .hello_at_ns = SL_NEVER_NS,
        .drain_deadline_ns = SL_NEVER_NS,
        .supervisor_look_ns = SL_NEVER_NS,
        .jobs_lock = PTHREAD_MUTEX_INITIALIZER,
    };
    process.env.name = process.name;
    process.env.paths = &process.paths;
    int exit_code = 0;
    (void)signal(SIGXFSZ, SIG_IGN); /* a file that may not grow gives an error, not a signal */
    (void)signal(SIGPIPE, SIG_IGN); /* a peer that closes is an error of a call, not a signal */
    (void)signal(SIGIO, SIG_IGN);   /* a process may open a client's file while we test its lease */
    sl_proc_descriptors_raise();    /* three per lane, one per watched process */
    if (settings_read(&process, argc, argv, &exit_code)) {
        exit_code = process_run(&process);
    }
    process_close(&process);
    return exit_code;
}
