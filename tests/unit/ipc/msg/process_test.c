/* tests/unit/ipc/msg/process_test.c - an actor as a real process: start, messages, completions,
 * drain, death. */
#include "ipc/msg/msg_internal.h"
#include "ipc/msg/sl_mailbox.h"
#include "ipc/msg/sl_process.h"
#include "runtime/disk/sl_disk.h"
#include "tests/support/mailbox_wait.h"

#include <check.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECOND SL_NS_PER_S

/* ------------------------------------------------ the actor
 * ------------------------------------------------ */

/* Answers FLUSH at once, POOLS at a tick, OP_FENCED when a job has ended, CANCEL when process
 * target_op has died, DISK_RECLAIM after a write and a read of the disk, BRING with the generation
 * of HELLO_REPLY; ends at ENGINE_END. */
struct echo {
    struct sl_env *env;
    struct sl_reply_route waiting; /* for a tick, a job, a death or the disk */
    struct sl_disk *disk;
    int file;
    unsigned char *page;
    uint64_t boot_generation;
    uint64_t finish_at_ns;
    bool stubborn; /* never drains */
    bool patient;  /* drains until a FLUSH arrives */
};

static sl_err echo_init(void *state, struct sl_env *env, struct sl_error *why)
{
    struct echo *self = state;
    self->env = env;
    self->finish_at_ns = SL_NEVER_NS;
    self->stubborn = strcmp(sl_config_text(env->config, SL_SET_nic), "stubborn") == 0;
    self->patient = strcmp(sl_config_text(env->config, SL_SET_nic), "patient") == 0;
    bool wrong = strcmp(sl_config_text(env->config, SL_SET_nic), "wrong") == 0;
    if (wrong || strcmp(sl_config_text(env->config, SL_SET_nic), "broken") == 0) {
        return sl_fail(why, wrong ? SL_ERR_CONFIG : SL_ERR_IO, "told to fail");
    }
    return SL_OK;
}

static sl_err echo_job(void *context, uint32_t thread)
{
    (void)context;
    return thread == 1 ? SL_ERR_NO_SPACE : thread == 2 ? SL_ERR_BUSY : SL_OK;
}

static sl_err echo_disk_begin(struct echo *self)
{
    uint64_t size_bytes = 0;
    sl_err err = SL_OK;
    if (self->disk == NULL) {
        err = self->env->ops->disk_open(self->env, self->env->paths->disk_paths[0], 8, true,
                                        &self->disk, NULL);
        if (err != SL_OK) {
            return err;
        }
        err = self->disk->ops->open(self->disk, "file", true, SL_PAGE_BYTES, &self->file,
                                    &size_bytes, NULL);
        self->page = aligned_alloc(SL_PAGE_BYTES, SL_PAGE_BYTES);
    }
    if (err != SL_OK || self->page == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    memset(self->page, 0x5a, SL_PAGE_BYTES);
    const struct sl_disk_request write = {.verb = SL_DISK_WRITE,
                                          .file = self->file,
                                          .memory = self->page,
                                          .length_bytes = SL_PAGE_BYTES,
                                          .cookie = SL_DISK_WRITE};
    err = self->disk->ops->submit(self->disk, &write, NULL);
    return err == SL_OK ? self->disk->ops->flush(self->disk, NULL) : err;
}

static sl_err echo_disk_next(struct echo *self, const struct sl_msg *msg)
{
    if (msg->code != SL_OK || msg->body.local_io.bytes != SL_PAGE_BYTES) {
        sl_reply_route_send(self->env, &self->waiting, &(struct sl_msg){.code = SL_ERR_IO});
        return SL_OK;
    }
    if (msg->body.local_io.cookie == SL_DISK_WRITE) {
        memset(self->page, 0, SL_PAGE_BYTES);
        const struct sl_disk_request read = {.verb = SL_DISK_READ,
                                             .file = self->file,
                                             .memory = self->page,
                                             .length_bytes = SL_PAGE_BYTES,
                                             .cookie = SL_DISK_READ};
        return self->disk->ops->submit(self->disk, &read, NULL);
    }
    sl_err code = self->page[SL_PAGE_BYTES - 1] == 0x5a ? SL_OK : SL_ERR_CORRUPT;
    sl_reply_route_send(self->env, &self->waiting, &(struct sl_msg){.code = code});
    return SL_OK;
}

static sl_err echo_watch(struct echo *self, uint64_t pid)
{
    struct sl_proc_id proc = {0};
    sl_err err = sl_proc_id_of((uint32_t)pid, &proc, NULL);
    if (err == SL_OK) {
        err = self->env->ops->watch(self->env, proc, 4711);
    }
    return err == SL_OK && !self->env->ops->alive(self->env, proc) ? SL_ERR_INTERNAL : err;
}

static void echo_say_boot(struct echo *self, const struct sl_msg *msg)
{
    struct sl_msg reply = {.code = SL_OK};
    reply.body.bring_reply.codes = (struct sl_u64s){.at = &self->boot_generation, .count = 1};
    sl_reply(self->env, msg, &reply);
}

static sl_err echo_handle(void *state, const struct sl_msg *msg)
{
    struct echo *self = state;
    struct sl_env *env = self->env;
    if (!SL_MSG_IS_REPLY(msg->type) && msg->type < SL_MSG_LOCAL_MIN) {
        sl_reply_route_keep(msg, &self->waiting);
    }
    switch (msg->type) {
    case SL_MSG_FLUSH:
        sl_reply_code(env, msg, SL_OK, NULL);
        if (self->patient) {
            env->ops->finish(env);
        }
        return SL_OK;
    case SL_MSG_POOLS:
        env->ops->wake_at(env, env->now_ns + 20 * SL_NS_PER_MS);
        return SL_OK;
    case SL_MSG_OP_FENCED:
        return env->ops->job(env, 4, echo_job, self, 11);
    case SL_MSG_LOCAL_JOB:
        sl_reply_route_send(env, &self->waiting, &(struct sl_msg){.code = msg->code});
        return SL_OK;
    case SL_MSG_CANCEL:
        return echo_watch(self, msg->body.cancel.target_op);
    case SL_MSG_LOCAL_DIED:
        sl_reply_route_send(env, &self->waiting,
                            &(struct sl_msg){.code = msg->body.local_died.cookie == 4711
                                                         ? SL_ERR_PEER_DIED
                                                         : SL_ERR_INTERNAL});
        return SL_OK;
    case SL_MSG_DISK_RECLAIM:
        return echo_disk_begin(self);
    case SL_MSG_LOCAL_IO:
        return echo_disk_next(self, msg);
    case SL_MSG_HELLO_REPLY:
        self->boot_generation = msg->body.hello_reply.boot_generation;
        return SL_OK;
    case SL_MSG_BRING:
        echo_say_boot(self, msg);
        return SL_OK;
    case SL_MSG_ENGINE_END:
        return SL_ERR_INTERNAL;
    default:
        sl_reply_code(env, msg, SL_ERR_UNSUPPORTED, NULL);
        return SL_ERR_UNSUPPORTED;
    }
}

static sl_err echo_tick(void *state, uint64_t now_ns)
{
    struct echo *self = state;
    if (now_ns >= self->finish_at_ns) {
        self->env->ops->finish(self->env);
    } else if (self->waiting.type == SL_MSG_POOLS) {
        sl_reply_route_send(self->env, &self->waiting, &(struct sl_msg){.code = SL_OK});
    }
    return SL_OK;
}

/* An operation is in flight, for another 30 ms. */
static void echo_drain(void *state)
{
    struct echo *self = state;
    if (!self->stubborn && !self->patient) {
        self->finish_at_ns = self->env->now_ns + 30 * SL_NS_PER_MS;
        self->env->ops->wake_at(self->env, self->finish_at_ns);
    }
}

static void echo_fini(void *state)
{
    struct echo *self = state;
    if (self->disk != NULL) {
        self->disk->ops->close(self->disk, self->file);
        self->disk->ops->destroy(self->disk);
    }
    free(self->page);
}

static const struct sl_actor echo_actor = {
    .role = "echo",
    .ranked = true,
    .state_bytes = sizeof(struct echo),
    .init = echo_init,
    .handle = echo_handle,
    .tick = echo_tick,
    .drain = echo_drain,
    .fini = echo_fini,
};
#define ECHO_NAME "echo.3"

/* ------------------------------------------------ its node
 * ------------------------------------------------ */

struct node {
    char directory[64];
    pid_t pid;
    struct sl_mailbox *client;
    struct sl_codec *codec;
    uint64_t seq;
    /* The next process. It is forked before this one has threads: in a child of a process with
     * threads a lock of malloc may stay held forever (AddressSanitizer's). */
    pid_t next;
    int next_gate, next_out;
};

/* gate: -1, or the child begins when a byte arrives there, and ends if none does. */
static pid_t echo_forked(struct node *node, int out, const char *nic, int gate)
{
    char runtime_option[96];
    char shm_option[96];
    char disk_option[96];
    (void)snprintf(runtime_option, sizeof(runtime_option), "--runtime-dir=%s", node->directory);
    (void)snprintf(shm_option, sizeof(shm_option), "--shm-dir=%s/shm", node->directory);
    (void)snprintf(disk_option, sizeof(disk_option), "--disk-path=%s/disk", node->directory);
    char *argv[] = {"sluice-echo",
                    runtime_option,
                    shm_option,
                    disk_option,
                    "--rank",
                    "3",
                    "--nic",
                    (char *)(uintptr_t)nic,
                    "--heartbeat=200ms",
                    "--trace-events=256",
                    NULL};
    int argc = (int)SL_COUNT(argv) - 1;
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        char go;
        if (gate >= 0 && read(gate, &go, 1) != 1) {
            _exit(0);
        }
        (void)alarm(30);
        (void)dup2(out, STDOUT_FILENO);
        exit(sl_process_main(&echo_actor, argc, argv));
    }
    return pid;
}

/* For the nodes made from now on; 0: none. */
static pid_t supervisor_pid;

static void supervisor_named(const struct node *node, pid_t pid)
{
    char path[128];
    struct sl_proc_id id = {0};
    ck_assert_int_eq(sl_proc_id_of((uint32_t)pid, &id, NULL), SL_OK);
    (void)snprintf(path, sizeof(path), "%s/supervisor.pid", node->directory);
    FILE *file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_gt(fprintf(file, "%" PRIu32 " %" PRIu64 "\n", id.pid, id.start_time), 0);
    ck_assert_int_eq(fclose(file), 0);
}

/* The first line that the actor prints, within 5 s; empty when it ends before. */
static void line_read(int fd, char *line, size_t line_bytes)
{
    size_t at = 0;
    while (at + 1 < line_bytes) {
        struct pollfd waited = {.fd = fd, .events = POLLIN};
        if (poll(&waited, 1, 5000) != 1 || read(fd, line + at, 1) != 1 || line[at] == '\n') {
            break;
        }
        at++;
    }
    line[at] = '\0';
}

static void echo_start(struct node *node, const char *nic, char *line, size_t line_bytes)
{
    int out[2];
    ck_assert_int_eq(pipe(out), 0);
    node->pid = echo_forked(node, out[1], nic, -1);
    (void)close(out[1]);
    line_read(out[0], line, line_bytes);
    (void)close(out[0]);
}

static void next_fork(struct node *node, const char *nic)
{
    int out[2], gate[2];
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(gate, O_CLOEXEC), 0);
    node->next = echo_forked(node, out[1], nic, gate[0]);
    (void)close(out[1]);
    (void)close(gate[0]);
    node->next_gate = gate[1];
    node->next_out = out[0];
}

/* Starts the next process of a node that node_then made. */
static void next_start(struct node *node, char *line, size_t line_bytes)
{
    ck_assert_int_eq(write(node->next_gate, "g", 1), 1);
    (void)close(node->next_gate);
    node->pid = node->next;
    line_read(node->next_out, line, line_bytes);
    (void)close(node->next_out);
}

/* next: the nic of a later process; NULL: none. */
static struct node *node_then(const char *nic, const char *next)
{
    char line[64];
    struct node *node = calloc(1, sizeof(*node));
    ck_assert_ptr_nonnull(node);
    (void)snprintf(node->directory, sizeof(node->directory), "/tmp/sluice-process-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(node->directory));
    ck_assert_int_eq(sl_codec_create(SL_MIB, &node->codec, NULL), SL_OK);
    if (supervisor_pid != 0) {
        supervisor_named(node, supervisor_pid);
    }
    echo_start(node, nic, line, sizeof(line));
    ck_assert_str_eq(line, "ready " ECHO_NAME);
    if (next != NULL) {
        next_fork(node, next);
    }
    const struct sl_mailbox_options options = {.runtime_dir = node->directory,
                                               .name = "client.1.0",
                                               .message_bytes_max = SL_MIB,
                                               .ring_bytes = 512 * SL_KIB};
    ck_assert_int_eq(sl_mailbox_open(&options, &node->client, NULL), SL_OK);
    ck_assert_int_eq(mailbox_connect(node->client, ECHO_NAME, SECOND), SL_OK);
    return node;
}

static struct node *node_made(const char *nic)
{
    return node_then(nic, NULL);
}

/* Exit code, or 128 + signal. */
static int ended(struct node *node)
{
    int status = 0;
    ck_assert_int_eq(waitpid(node->pid, &status, 0), node->pid);
    node->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void node_freed(struct node *node)
{
    char command[128];
    if (node->pid != 0) {
        ck_assert_int_eq(kill(node->pid, SIGTERM), 0);
        ck_assert_int_eq(ended(node), 0);
    }
    sl_mailbox_close(&node->client);
    sl_codec_destroy(&node->codec);
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", node->directory);
    ck_assert_int_eq(system(command), 0); /* NOLINT: a path made here */
    free(node);
}

static void tell(struct node *node, struct sl_msg msg)
{
    const void *frame = NULL;
    size_t length_bytes = 0;
    struct sl_error why = {0};
    msg.sender = msg.sender.length > 0 ? msg.sender : sl_text_of("client.1.0");
    msg.seq = ++node->seq;
    sl_err err = sl_codec_encode(node->codec, &msg, &frame, &length_bytes, &why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
    ck_assert_int_eq(sl_mailbox_send(node->client, ECHO_NAME, frame, length_bytes, false), SL_OK);
}

/* Takes the next message for the client; false: none arrived in time. */
static bool heard(struct node *node, struct sl_msg *msg, uint64_t budget_ns)
{
    const char *from = NULL;
    const void *frame = NULL;
    size_t length_bytes = 0;
    if (mailbox_wait(node->client, budget_ns) != SL_OK) {
        return false;
    }
    ck_assert_int_eq(sl_mailbox_receive(node->client, &from, &frame, &length_bytes), SL_OK);
    ck_assert_int_eq(sl_codec_decode(node->codec, frame, length_bytes, msg, NULL), SL_OK);
    return true;
}

/* Waits for a connection newer than the first connect_count: until the client has noticed that the
 * old one has ended, it sends on that one. */
static void connected_again(struct node *node, uint64_t connect_count)
{
    uint64_t deadline_ns = sl_deadline_ns(sl_clock_monotonic_ns(), 5 * SECOND);
    while (sl_mailbox_connect_count(node->client) == connect_count) {
        ck_assert_uint_lt(sl_clock_monotonic_ns(), deadline_ns);
        (void)mailbox_wait(node->client, SL_NS_PER_MS); /* processes connection events */
    }
    ck_assert_int_eq(mailbox_connect(node->client, ECHO_NAME, SECOND), SL_OK);
}

static struct sl_msg asked(struct node *node, struct sl_msg msg)
{
    struct sl_msg reply;
    tell(node, msg);
    ck_assert(heard(node, &reply, 20 * SECOND));
    ck_assert_uint_eq(reply.reply_to, node->seq);
    ck_assert_uint_eq(reply.type, msg.type + 1);
    return reply;
}

static uint64_t metric_of(struct node *node, const char *name)
{
    char path[128];
    char found[SL_METRIC_NAME_BYTES];
    struct sl_metrics_view *view = NULL;
    uint64_t value = 0;
    (void)snprintf(path, sizeof(path), "%s/shm/metrics." ECHO_NAME, node->directory);
    ck_assert_int_eq(sl_metrics_view_open(path, &view, NULL), SL_OK);
    for (uint32_t i = 0; i < SL_METRICS_MAX; i++) {
        uint64_t here = 0;
        if (sl_metrics_view_metric(view, i, found, &here) && strcmp(found, name) == 0) {
            value = here;
        }
    }
    sl_metrics_view_close(&view);
    return value;
}

static struct sl_metrics_summary summary_of(struct node *node)
{
    char path[128];
    struct sl_metrics_view *view = NULL;
    struct sl_metrics_summary summary;
    (void)snprintf(path, sizeof(path), "%s/shm/metrics." ECHO_NAME, node->directory);
    ck_assert_int_eq(sl_metrics_view_open(path, &view, NULL), SL_OK);
    sl_metrics_view_summary(view, &summary);
    sl_metrics_view_close(&view);
    return summary;
}

/* ------------------------------------------------ tests
 * ------------------------------------------------ */

START_TEST(actor_says_ready_and_answers_ping)
    {
        struct node *node = node_made("");

        struct sl_msg pong = asked(node, (struct sl_msg){.type = SL_MSG_PING});

        ck_assert_str_eq(pong.body.pong.name.at, ECHO_NAME);
        ck_assert_uint_eq(pong.body.pong.pid, (uint64_t)node->pid);
        ck_assert(!pong.body.pong.draining);
        struct sl_metrics_summary summary = summary_of(node);
        ck_assert_int_eq(summary.health, SL_HEALTH_READY);
        ck_assert_uint_eq(summary.proc.pid, (uint64_t)node->pid);
        ck_assert_uint_gt(summary.last_beat_ns, 0);
        node_freed(node);
    }
END_TEST

/* Since when it has no supervisor, in ms since 1970. */
static uint64_t unsupervised_ms(const struct node *node)
{
    char path[128];
    char name[SL_METRIC_NAME_BYTES] = "";
    uint64_t value = UINT64_MAX;
    struct sl_metrics_view *view = NULL;
    (void)snprintf(path, sizeof(path), "%s/shm/metrics." ECHO_NAME, node->directory);
    ck_assert_int_eq(sl_metrics_view_open(path, &view, NULL), SL_OK);
    for (uint32_t i = 0; strcmp(name, SL_PROCESS_UNSUPERVISED) != 0; i++) {
        ck_assert(sl_metrics_view_metric(view, i, name, &value));
    }
    sl_metrics_view_close(&view);
    return value;
}

static bool unsupervised_within_s(const struct node *node, bool wanted, uint64_t seconds)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    uint64_t until_ns = sl_clock_monotonic_ns() + seconds * SECOND;
    while ((unsupervised_ms(node) != 0) != wanted && sl_clock_monotonic_ns() < until_ns) {
        (void)nanosleep(&pause, NULL);
    }
    return (unsupervised_ms(node) != 0) == wanted;
}

START_TEST(an_actor_says_since_when_its_supervisor_is_gone)
    {
        supervisor_pid = fork();
        ck_assert_int_ge(supervisor_pid, 0);
        if (supervisor_pid == 0) {
            (void)alarm(60);
            for (;;) {
                (void)pause();
            }
        }
        struct node *node = node_made("");
        ck_assert_uint_eq(unsupervised_ms(node), 0);
        uint64_t before_ms = sl_clock_wall_ns() / SL_NS_PER_MS;

        ck_assert_int_eq(kill(supervisor_pid, SIGKILL), 0);
        ck_assert(unsupervised_within_s(node, true, 10));
        ck_assert_uint_ge(unsupervised_ms(node), before_ms);
        ck_assert_int_eq(waitpid(supervisor_pid, NULL, 0), supervisor_pid);

        supervisor_named(node, getpid()); /* another one takes over */
        ck_assert(unsupervised_within_s(node, false, 10));
        node_freed(node);
    }
END_TEST

START_TEST(an_actor_without_a_supervisor_says_nothing)
    {
        struct node *node = node_made("");

        (void)asked(node, (struct sl_msg){.type = SL_MSG_PING});

        ck_assert_uint_eq(unsupervised_ms(node), 0);
        node_freed(node);
    }
END_TEST

/* If an actor holds a lease on a client's file, opening the file sends the actor a signal. */
START_TEST(signal_of_a_lease_does_not_end_an_actor)
    {
        struct node *node = node_made("");

        ck_assert_int_eq(kill(node->pid, SIGIO), 0);

        ck_assert_int_eq(asked(node, (struct sl_msg){.type = SL_MSG_FLUSH}).code, SL_OK);
        node_freed(node);
    }
END_TEST

static const int polite_signals[] = {SIGTERM, SIGINT};

START_TEST(signal_drains_and_exits_0)
    {
        char path[128];
        struct stat status;
        struct node *node = node_made("");
        ck_assert_int_eq(kill(node->pid, polite_signals[_i]), 0);

        ck_assert_int_eq(ended(node), 0);

        (void)snprintf(path, sizeof(path), "%s/" ECHO_NAME ".sock", node->directory);
        ck_assert_int_ne(stat(path, &status), 0);
        ck_assert_int_eq(summary_of(node).health, SL_HEALTH_STOPPED);
        node_freed(node);
    }
END_TEST

START_TEST(drain_lets_work_end_and_ping_tells_of_it)
    {
        struct node *node = node_made("patient");

        struct sl_msg reply = {0};

        ck_assert_int_eq(kill(node->pid, SIGTERM), 0);

        while (!reply.body.pong.draining) { /* the signal may arrive after the first of them */
            reply = asked(node, (struct sl_msg){.type = SL_MSG_PING});
            ck_assert_int_eq(reply.code, SL_OK);
        }
        tell(node, (struct sl_msg){.type = SL_MSG_FLUSH}); /* its reply may be lost: linger is 0 */
        ck_assert_int_eq(ended(node), 0);
        node_freed(node);
    }
END_TEST

START_TEST(drain_that_does_not_end_is_ended)
    {
        struct node *node = node_made("stubborn");
        uint64_t start_ns = sl_clock_monotonic_ns();
        ck_assert_int_eq(kill(node->pid, SIGTERM), 0);

        ck_assert_int_eq(ended(node), 1);

        uint64_t took_ns = sl_clock_monotonic_ns() - start_ns;
        ck_assert_uint_ge(took_ns, 4 * SECOND);
        ck_assert_uint_lt(took_ns, 30 * SECOND);
        node_freed(node);
    }
END_TEST

START_TEST(killed_actor_serves_again_after_a_restart)
    {
        char line[64];
        struct node *node = node_then("", "");
        (void)asked(node, (struct sl_msg){.type = SL_MSG_FLUSH});
        uint64_t incarnation = summary_of(node).incarnation;
        uint64_t connect_count = sl_mailbox_connect_count(node->client);
        ck_assert_int_eq(kill(node->pid, SIGKILL), 0);
        ck_assert_int_eq(ended(node), 128 + SIGKILL);
        uint64_t start_ns = sl_clock_monotonic_ns();

        next_start(node, line, sizeof(line));
        ck_assert_str_eq(line, "ready " ECHO_NAME);
        connected_again(node, connect_count);
        struct sl_msg reply = asked(node, (struct sl_msg){.type = SL_MSG_FLUSH});

        ck_assert_int_eq(reply.code, SL_OK);
        ck_assert_uint_eq(summary_of(node).incarnation, incarnation + 1);
        (void)printf("process: answers %" PRIu64 " ms after its restart\n",
                     (sl_clock_monotonic_ns() - start_ns) / SL_NS_PER_MS);
        node_freed(node);
    }
END_TEST

START_TEST(fatal_result_ends_the_process_with_1)
    {
        struct node *node = node_made("");
        struct sl_msg msg = {.type = SL_MSG_ENGINE_END};
        msg.body.engine_end.engine_id = 1;
        tell(node, msg);

        ck_assert_int_eq(ended(node), 1);
        node_freed(node);
    }
END_TEST

static const struct {
    const char *nic;
    int code;
} failed_inits[] = {
    {"broken", 1}, /* another attempt may help */
    {"wrong", 2},  /* none helps: the settings must be corrected */
};

START_TEST(failed_init_exits_without_saying_ready)
    {
        char line[64];
        struct node *node = node_then("", failed_inits[_i].nic);
        ck_assert_int_eq(kill(node->pid, SIGTERM), 0);
        ck_assert_int_eq(ended(node), 0);

        next_start(node, line, sizeof(line));

        ck_assert_str_eq(line, "");
        ck_assert_int_eq(ended(node), failed_inits[_i].code);
        node_freed(node);
    }
END_TEST

START_TEST(second_process_of_a_name_is_refused)
    {
        char line[64];
        struct node *node = node_then("", "");
        pid_t first = node->pid;

        next_start(node, line, sizeof(line));

        ck_assert_str_eq(line, "");
        ck_assert_int_eq(ended(node), 1);
        node->pid = first;
        ck_assert_int_eq(asked(node, (struct sl_msg){.type = SL_MSG_FLUSH}).code, SL_OK);
        node_freed(node);
    }
END_TEST

START_TEST(tick_comes_when_it_was_wished_for)
    {
        struct node *node = node_made("");
        uint64_t shortest_ns = UINT64_MAX; /* of several: a process may lose its core */
        for (uint32_t i = 0; i < 20 && shortest_ns >= 500 * SL_NS_PER_MS; i++) {
            uint64_t start_ns = sl_clock_monotonic_ns();

            struct sl_msg reply = asked(node, (struct sl_msg){.type = SL_MSG_POOLS});

            uint64_t took_ns = sl_clock_monotonic_ns() - start_ns;
            ck_assert_int_eq(reply.code, SL_OK);
            ck_assert_uint_ge(took_ns, 20 * SL_NS_PER_MS);
            shortest_ns = SL_MIN(shortest_ns, took_ns);
        }
        ck_assert_uint_lt(shortest_ns, 500 * SL_NS_PER_MS);
        node_freed(node);
    }
END_TEST

START_TEST(job_ends_with_the_result_of_its_first_failed_thread)
    {
        struct node *node = node_made("");
        struct sl_msg msg = {.type = SL_MSG_OP_FENCED};
        msg.body.op_fenced.target_op = 1;
        for (uint32_t i = 0; i < 20; i++) {
            ck_assert_int_eq(asked(node, msg).code, SL_ERR_NO_SPACE);
        }
        node_freed(node);
    }
END_TEST

START_TEST(death_of_a_watched_process_is_told)
    {
        struct node *node = node_made("");
        struct sl_msg reply;
        pid_t victim = fork();
        ck_assert_int_ge(victim, 0);
        if (victim == 0) {
            (void)alarm(20);
            (void)pause();
            _exit(0);
        }
        struct sl_msg msg = {.type = SL_MSG_CANCEL};
        msg.body.cancel.target_op = (uint64_t)victim;
        tell(node, msg);
        ck_assert(!heard(node, &reply, 50 * SL_NS_PER_MS));

        ck_assert_int_eq(kill(victim, SIGKILL), 0);

        ck_assert(heard(node, &reply, 20 * SECOND));
        ck_assert_int_eq(reply.code, SL_ERR_PEER_DIED);
        ck_assert_int_eq(waitpid(victim, NULL, 0), victim);
        node_freed(node);
    }
END_TEST

START_TEST(disk_completions_are_messages)
    {
        struct node *node = node_made("");
        for (uint32_t i = 0; i < 3; i++) {
            ck_assert_int_eq(asked(node, (struct sl_msg){.type = SL_MSG_DISK_RECLAIM}).code, SL_OK);
        }
        node_freed(node);
    }
END_TEST

static void tell_raw(struct node *node, const void *frame, size_t length_bytes)
{
    ck_assert_int_eq(sl_mailbox_send(node->client, ECHO_NAME, frame, length_bytes, false), SL_OK);
}

START_TEST(broken_message_is_counted_and_answered_where_possible)
    {
        /* FLUSH whose field `unused` is 9, then bytes that are no message. */
        static const unsigned char broken[] = {0x92, 0x9a, 0x06, 24,   0,    0,    0xaa, 'c',
                                               'l',  'i',  'e',  'n',  't',  '.',  '1',  '.',
                                               '0',  0x07, 0x00, 0x05, 0x00, 0xa0, 0x91, 9};
        struct node *node = node_made("");
        struct sl_msg reply;

        tell_raw(node, broken, sizeof(broken));
        ck_assert(heard(node, &reply, 20 * SECOND));
        ck_assert_uint_eq(reply.type, SL_MSG_FLUSH_REPLY);
        ck_assert_int_eq(reply.code, SL_ERR_LIMIT);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "unused"));
        tell_raw(node, "\xdd\xff\xff\xff\xff", 5);
        tell_raw(node, "", 0);
        ck_assert_int_eq(asked(node, (struct sl_msg){.type = SL_MSG_FLUSH}).code, SL_OK);

        ck_assert_uint_eq(metric_of(node, "messages_refused"), 3);
        node_freed(node);
    }
END_TEST

START_TEST(message_of_a_later_release_is_refused_in_its_own_type)
    {
        /* Type 900, numbered 7, whose sender waits for 901. */
        static const unsigned char later[] = {0x92, 0x9a, 0x06, 0xcd, 0x03, 0x84, 0,   0,   0xaa,
                                              'c',  'l',  'i',  'e',  'n',  't',  '.', '1', '.',
                                              '0',  0x07, 0x00, 0x05, 0x00, 0xa0, 0x90};
        struct node *node = node_made("");
        const char *from = NULL;
        const void *frame = NULL;
        size_t length_bytes = 0;
        struct sl_msg reply = {0};

        tell_raw(node, later, sizeof(later));

        ck_assert_int_eq(mailbox_wait(node->client, 20 * SECOND), SL_OK);
        ck_assert_int_eq(sl_mailbox_receive(node->client, &from, &frame, &length_bytes), SL_OK);
        ck_assert_int_eq(sl_codec_decode(node->codec, frame, length_bytes, &reply, NULL),
                         SL_ERR_UNSUPPORTED); /* this test does not know it either */
        ck_assert_uint_eq(reply.type, 901);
        ck_assert_uint_eq(reply.reply_to, 7);
        ck_assert_int_eq(reply.code, SL_ERR_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "900"));
        node_freed(node);
    }
END_TEST

START_TEST(message_in_anothers_name_is_dropped)
    {
        struct node *node = node_made("");
        struct sl_msg reply;
        tell(node, (struct sl_msg){.type = SL_MSG_FLUSH, .sender = sl_text_of("coordinator")});

        ck_assert(!heard(node, &reply, 100 * SL_NS_PER_MS));

        ck_assert_int_eq(asked(node, (struct sl_msg){.type = SL_MSG_FLUSH}).code,
                         SL_OK); /* after it */
        ck_assert_uint_eq(metric_of(node, "messages_refused"), 1);
        node_freed(node);
    }
END_TEST

START_TEST(unsupported_request_is_answered_and_life_goes_on)
    {
        struct node *node = node_made("");

        ck_assert_int_eq(asked(node, (struct sl_msg){.type = SL_MSG_NODES}).code,
                         SL_ERR_UNSUPPORTED);
        ck_assert_int_eq(asked(node, (struct sl_msg){.type = SL_MSG_FLUSH}).code, SL_OK);
        ck_assert_uint_eq(metric_of(node, "handler_errors"), 1);
        node_freed(node);
    }
END_TEST

START_TEST(flight_recorder_shows_the_path)
    {
        char path[128];
        struct sl_metrics_view *view = NULL;
        struct sl_trace_record *records = NULL;
        size_t count = 0;
        struct node *node = node_made("");
        (void)asked(node, (struct sl_msg){.type = SL_MSG_FLUSH, .trace_id = 0xabc});
        (void)asked(node, (struct sl_msg){.type = SL_MSG_FLUSH, .trace_id = 0xdef});
        (void)snprintf(path, sizeof(path), "%s/shm/metrics." ECHO_NAME, node->directory);
        ck_assert_int_eq(sl_metrics_view_open(path, &view, NULL), SL_OK);

        ck_assert_int_eq(sl_metrics_view_events(view, 0xabc, &records, &count, NULL), SL_OK);

        ck_assert_uint_eq(count, 2);
        ck_assert_str_eq(records[0].what, "< flush");
        ck_assert_str_eq(records[0].peer, "client.1.0");
        ck_assert_str_eq(records[1].what, "> flush_reply");
        free(records);
        sl_metrics_view_close(&view);
        node_freed(node);
    }
END_TEST

/* ------------------------------------------------ the registrar
 * ------------------------------------------------ */

static struct sl_mailbox *registrar_opened(struct node *node)
{
    struct sl_mailbox *registrar = NULL;
    struct sl_error why = {0};
    const struct sl_mailbox_options options = {.runtime_dir = node->directory,
                                               .name = "registrar",
                                               .message_bytes_max = SL_MIB,
                                               .ring_bytes = 512 * SL_KIB,
                                               .lanes_max = 8};
    sl_err err = sl_mailbox_open(&options, &registrar, &why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
    return registrar;
}

/* Waits for a HELLO and answers it. Returns how long it took. */
static uint64_t hello_answered(struct node *node, struct sl_mailbox *registrar, uint64_t boot)
{
    const char *from = NULL;
    const void *frame = NULL;
    size_t length_bytes = 0;
    struct sl_msg msg;
    uint64_t start_ns = sl_clock_monotonic_ns();
    ck_assert_int_eq(mailbox_wait(registrar, 20 * SECOND), SL_OK);
    uint64_t took_ns = sl_clock_monotonic_ns() - start_ns;
    ck_assert_int_eq(sl_mailbox_receive(registrar, &from, &frame, &length_bytes), SL_OK);
    ck_assert_str_eq(from, ECHO_NAME);
    ck_assert_int_eq(sl_codec_decode(node->codec, frame, length_bytes, &msg, NULL), SL_OK);
    ck_assert_uint_eq(msg.type, SL_MSG_HELLO);
    ck_assert_str_eq(msg.body.hello.role.at, "echo");
    ck_assert_str_eq(msg.body.hello.name.at, ECHO_NAME);
    ck_assert_uint_eq(msg.body.hello.pid, (uint64_t)node->pid);
    ck_assert_uint_gt(msg.body.hello.start_time, 0);
    ck_assert_uint_eq(msg.body.hello.segment.length, 0);
    struct sl_msg reply = {
        .type = SL_MSG_HELLO_REPLY, .sender = sl_text_of("registrar"), .reply_to = msg.seq};
    reply.body.hello_reply.boot_generation = boot;
    ck_assert_int_eq(sl_codec_encode(node->codec, &reply, &frame, &length_bytes, NULL), SL_OK);
    ck_assert_int_eq(sl_mailbox_send(registrar, ECHO_NAME, frame, length_bytes, true), SL_OK);
    return took_ns;
}

/* Returns the generation that the actor has, once it has reached `boot`. */
static bool boot_reached(struct node *node, uint64_t boot)
{
    for (uint32_t i = 0; i < 200; i++) {
        struct sl_msg reply = asked(node, (struct sl_msg){.type = SL_MSG_BRING});
        if (reply.body.bring_reply.codes.at[0] == boot) {
            return true;
        }
        const struct timespec pause = {.tv_nsec = 5000000};
        (void)nanosleep(&pause, NULL);
    }
    return false;
}

START_TEST(registrar_hears_hello_and_its_answer_reaches_the_actor)
    {
        struct node *node = node_made("");
        struct sl_mailbox *registrar = registrar_opened(node);

        (void)hello_answered(node, registrar, 100);
        ck_assert(boot_reached(node, 100));
        (void)hello_answered(node, registrar, 101); /* the next heartbeat */

        ck_assert(boot_reached(node, 101));
        sl_mailbox_close(&registrar);
        node_freed(node);
    }
END_TEST

START_TEST(restarted_registrar_hears_hello_at_once)
    {
        struct node *node = node_made("");
        struct sl_mailbox *registrar = registrar_opened(node);
        (void)hello_answered(node, registrar, 100);
        uint64_t shortest_ns = UINT64_MAX; /* of several: a process may lose its core */
        for (uint64_t boot = 200; boot < 205 && shortest_ns >= SECOND; boot++) {
            sl_mailbox_close(&registrar);
            registrar = registrar_opened(node);
            uint64_t took_ns = hello_answered(node, registrar, boot);
            ck_assert(boot_reached(node, boot));
            shortest_ns = SL_MIN(shortest_ns, took_ns);
        }
        ck_assert_uint_lt(shortest_ns, SECOND);
        (void)printf("process: a new registrar gets HELLO after %" PRIu64 " ms\n",
                     shortest_ns / SL_NS_PER_MS);
        sl_mailbox_close(&registrar);
        node_freed(node);
    }
END_TEST

/* ------------------------------------------------ command line
 * ------------------------------------------------ */

static const struct {
    const char *option;
    int exit_code;
} options[] = {
    {"--help", 0}, {"--version", 0}, {"--no-such-setting=1", 2}, {"--rank=x", 2}, {"stray", 2},
};

START_TEST(command_line_decides_the_exit_code)
    {
        struct node node = {0};
        node.pid = fork();
        ck_assert_int_ge(node.pid, 0);
        if (node.pid == 0) {
            char *argv[] = {"sluice-echo", (char *)(uintptr_t)options[_i].option, NULL};
            ck_assert_ptr_nonnull(freopen("/dev/null", "w", stdout));
            ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr));
            exit(sl_process_main(&echo_actor, 2, argv));
        }

        ck_assert_int_eq(ended(&node), options[_i].exit_code);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("process");
    TCase *life = tcase_create("life");
    tcase_set_timeout(life, 30);
    tcase_add_test(life, actor_says_ready_and_answers_ping);
    tcase_add_test(life, signal_of_a_lease_does_not_end_an_actor);
    tcase_add_loop_test(life, signal_drains_and_exits_0, 0, SL_COUNT(polite_signals));
    tcase_add_test(life, drain_lets_work_end_and_ping_tells_of_it);
    tcase_add_test(life, drain_that_does_not_end_is_ended);
    tcase_add_test(life, killed_actor_serves_again_after_a_restart);
    tcase_add_test(life, fatal_result_ends_the_process_with_1);
    tcase_add_loop_test(life, failed_init_exits_without_saying_ready, 0, SL_COUNT(failed_inits));
    tcase_add_test(life, second_process_of_a_name_is_refused);
    tcase_add_loop_test(life, command_line_decides_the_exit_code, 0, SL_COUNT(options));
    suite_add_tcase(suite, life);
    TCase *world = tcase_create("world");
    tcase_set_timeout(world, 30);
    tcase_add_test(world, tick_comes_when_it_was_wished_for);
    tcase_add_test(world, job_ends_with_the_result_of_its_first_failed_thread);
    tcase_add_test(world, death_of_a_watched_process_is_told);
    tcase_add_test(world, disk_completions_are_messages);
    tcase_add_test(world, broken_message_is_counted_and_answered_where_possible);
    tcase_add_test(world, message_of_a_later_release_is_refused_in_its_own_type);
    tcase_add_test(world, message_in_anothers_name_is_dropped);
    tcase_add_test(world, unsupported_request_is_answered_and_life_goes_on);
    tcase_add_test(world, flight_recorder_shows_the_path);
    tcase_add_test(world, registrar_hears_hello_and_its_answer_reaches_the_actor);
    tcase_add_test(world, restarted_registrar_hears_hello_at_once);
    tcase_add_test(world, an_actor_says_since_when_its_supervisor_is_gone);
    tcase_add_test(world, an_actor_without_a_supervisor_says_nothing);
    suite_add_tcase(suite, world);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
