/* client/tools/supervise/watch.c - watches actors by pidfds and by their metrics pages. */
#include "client/tools/supervise/watch.h"
#include "client/tools/supervise/exit_code.h"
#include "client/tools/supervise/hang.h"
#include "client/tools/supervise/names.h"
#include "client/tools/supervise/notify.h"
#include "runtime/base/sl_loop.h"
#include "runtime/base/sl_metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define WATCHED_MAX    512u
#define SUP_NAME_BYTES 32u   /* of an actor */
#define LINE_BYTES     2048u /* a path with its command */
#define KEPT_MAX       16u   /* paths of `keep` */
#define TICK_NS        SL_NS_PER_S
#define TICK_NS_MIN    (10 * SL_NS_PER_MS)
/* Ticks within the watchdog's limit, so that one late tick does not exceed it. */
#define WATCHDOG_TICKS 4u
/* Timers that are due within this time run together. */
#define TOGETHER_NS (100 * SL_NS_PER_MS)
/* A change of an actor's health in shared memory sends no wake-up, so actors that are not ready are
 * polled, often while they are young. */
#define YOUNG_NS      (2 * SL_NS_PER_S)
#define YOUNG_LOOK_NS (20 * SL_NS_PER_MS)
#define UNANSWERED_NS (10 * SL_NS_PER_S)
#define STATE_BYTES   4096u
#define STATUS_MAX    256u /* of the names in STATUS= */

struct watched {
    char name[SUP_NAME_BYTES];
    struct sl_proc_id proc;
    int pidfd;      /* for its exit code; -1: it had ended */
    bool is_helper; /* a helper: no metrics page, and `state` does not wait for it */
    bool adopted;   /* older than the script: all its files exist */
    struct sup_name names[SUP_ACTOR_NAMES];
    struct sl_metrics_view *view; /* NULL: it has no page yet */
    struct sup_hang hang;
    uint64_t since_ns;
    enum sl_health health; /* STARTING while it has no page */
};

struct kept {
    char *path; /* owned */
    struct sup_name name;
};

struct watcher {
    const struct sup_watch_options *options;
    struct sl_loop *loop;
    struct sup_notify notify;
    struct watched *all; /* WATCHED_MAX */
    uint32_t count;
    uint32_t commands; /* number of watch, mind and adopt */
    struct kept kept[KEPT_MAX];
    uint32_t kept_count;
    struct sup_name memory[SUP_MEMORY_NAMES]; /* of the present registrar */
    sl_loop_timer timer;
    uint64_t look_at_ns, tick_at_ns, tick_ns;
    uint64_t tick_sent_ns; /* time of a tick without an answer; 0: none */
    bool unanswered_reported, ended;
    char line[LINE_BYTES]; /* the start of an incomplete command */
    size_t line_bytes;
    char state[STATE_BYTES]; /* reported last */
    sl_err err;
    struct sl_error why;
};

/* ---------------------------------------------------------------- reports */

static void watcher_end(struct watcher *self, sl_err err)
{
    self->ended = true;
    self->err = err;
    sl_loop_stop(self->loop);
}

/* Writes a line to the script. If its pipe is full, after it was stopped for hours, the watcher
 * ends: the next one reports everything again. */
static void SL_PRINTF(2, 3) event_send(struct watcher *self, const char *format, ...)
{
    char text[STATE_BYTES + 16];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof(text) - 1, format, arguments);
    va_end(arguments);
    if (length < 0 || self->ended) {
        return;
    }
    size_t bytes = SL_MIN((size_t)length, sizeof(text) - 2);
    text[bytes++] = '\n';
    ssize_t wrote = write(STDOUT_FILENO, text, bytes);
    if (wrote != (ssize_t)bytes) {
        watcher_end(self,
                    sl_fail_os(&self->why, wrote < 0 ? errno : EAGAIN, "report to the script"));
    }
}

static void notify(struct watcher *self, const char *text)
{
    struct sl_error why = {0};
    if (sup_notify_send(&self->notify, text, &why) != SL_OK) {
        (void)fprintf(stderr, "sluice-supervise: %s\n", why.text);
    }
}

/* ---------------------------------------------------------------- looks */

static bool is_ready(const struct watched *at)
{
    return at->health == SL_HEALTH_READY || at->health == SL_HEALTH_DEGRADED;
}

/* Maps and reads the page of this process. False: there is only that of a predecessor, or none. */
static bool page_of(struct watcher *self, struct watched *at, struct sl_metrics_summary *out)
{
    if (at->view != NULL) {
        sl_metrics_view_summary(at->view, out);
        if (sl_proc_id_equal(out->proc, at->proc)) {
            return true;
        }
        sl_metrics_view_close(&at->view); /* a page of another size is a new file */
    }
    char path[1400];
    (void)snprintf(path, sizeof(path), "%s/metrics.%s", self->options->shm_dir, at->name);
    if (sl_metrics_view_open(path, &at->view, NULL) != SL_OK) {
        return false;
    }
    sl_metrics_view_summary(at->view, out);
    return sl_proc_id_equal(out->proc, at->proc);
}

/* The clock of /proc/uptime, which the script can read. */
static uint64_t uptime_ms(void)
{
    struct timespec now;
    SL_ASSERT(clock_gettime(CLOCK_BOOTTIME, &now) == 0);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / SL_NS_PER_MS;
}

static void hang_report(struct watcher *self, struct watched *at, const struct sup_seen *seen,
                        uint64_t now_ns)
{
    enum sup_verdict verdict = sup_hang_look(&at->hang, seen, now_ns);
    if (verdict != SUP_FINE) {
        event_send(self, "hung %s %" PRIu32 " %s %" PRIu64, at->name, at->proc.pid,
                   verdict == SUP_STOPPED ? "stopped" : "silent", uptime_ms());
    }
}

/* A look at a helper. Without a page there are no beats: only SIGSTOP can be seen. */
static uint64_t helper_look(struct watcher *self, struct watched *at, uint64_t now_ns)
{
    struct sup_seen seen = {.beat_ns = now_ns, .stopped = sl_proc_stopped(at->proc.pid)};
    hang_report(self, at, &seen, now_ns);
    return now_ns + (seen.stopped ? SUP_LOOK_NS : TICK_NS);
}

/* Looks at the files of a process. A young one may still be creating them. */
static void watched_names_look(struct watcher *self, struct watched *at, uint64_t now_ns)
{
    const struct sup_watch_options *options = self->options;
    char path[PATH_MAX], gone[64];
    bool young = now_ns < at->since_ns + YOUNG_NS;
    if (!is_ready(at) && (young || !(at->is_helper || at->adopted))) {
        return;
    }
    if (strcmp(at->name, "registrar") == 0 &&
        sup_memory_names_look(self->memory, options->shm_dir, gone)) {
        event_send(self, "memory %" PRIu32 "%s", at->proc.pid, gone);
        return;
    }
    const char *file = sup_actor_names_look(at->names, options->runtime_dir, options->shm_dir,
                                            at->name, !at->is_helper && !young, path);
    if (file != NULL) {
        event_send(self, "unnamed %s %" PRIu32 " %s", at->name, at->proc.pid, file);
    }
}

/* One look at one process. Gives the time of the next look. */
static uint64_t watched_look(struct watcher *self, struct watched *at, uint64_t now_ns)
{
    struct sl_metrics_summary summary = {0};
    struct sup_seen seen = {0};
    if (at->is_helper) {
        return helper_look(self, at, now_ns);
    }
    bool was_ready = is_ready(at);
    at->health = SL_HEALTH_STARTING;
    if (page_of(self, at, &summary)) {
        at->health = summary.health;
        seen.beat_ns = SL_MAX(summary.last_beat_ns, summary.started_ns);
    }
    seen.starting = at->health == SL_HEALTH_STARTING;
    seen.stopped = sup_is_late(&seen, now_ns) && sl_proc_stopped(at->proc.pid);
    hang_report(self, at, &seen, now_ns);
    if (!was_ready) { /* before `ready` is reported */
        watched_names_look(self, at, now_ns);
    }
    if (!is_ready(at)) {
        return now_ns + (now_ns < at->since_ns + YOUNG_NS ? YOUNG_LOOK_NS : SUP_LOOK_NS);
    }
    return sup_hang_next_ns(&at->hang, &seen, now_ns);
}

/* Reports the node's state to the script and to systemd if it has changed. */
static void state_report(struct watcher *self)
{
    char names[STATE_BYTES - 64] = "";
    size_t bytes = 0;
    uint32_t actor_count = 0, ready_count = 0, degraded_count = 0;
    for (uint32_t i = 0; i < self->count; i++) {
        actor_count += self->all[i].is_helper ? 0 : 1;
        ready_count += is_ready(&self->all[i]) ? 1 : 0;
        degraded_count += self->all[i].health == SL_HEALTH_DEGRADED ? 1 : 0;
    }
    bool waiting = ready_count < actor_count;
    for (uint32_t i = 0; i < self->count && (waiting || degraded_count > 0); i++) {
        const struct watched *at = &self->all[i];
        bool named = waiting ? !at->is_helper && !is_ready(at) : at->health == SL_HEALTH_DEGRADED;
        size_t room = sizeof(names) - bytes;
        if (named && room > sizeof(at->name) + 1) {
            bytes += (size_t)snprintf(names + bytes, room, " %s", at->name);
        }
    }
    char state[STATE_BYTES];
    const char *how = waiting ? "waiting" : degraded_count > 0 ? "degraded" : "ready";
    (void)snprintf(state, sizeof(state), "%s %" PRIu32 "%s", how, self->commands, names);
    if (actor_count == 0 || strcmp(state, self->state) == 0) {
        return;
    }
    (void)snprintf(self->state, sizeof(self->state), "%s", state);
    event_send(self, "state %s", state);
    char status[STATUS_MAX + 64];
    (void)snprintf(status, sizeof(status),
                   "STATUS=%" PRIu32 " of %" PRIu32 " actors are ready%s%.*s", ready_count,
                   actor_count,
                   waiting              ? "; not yet:"
                   : degraded_count > 0 ? "; degraded:"
                                        : "",
                   (int)STATUS_MAX, names);
    notify(self, status);
}

static void all_look(struct watcher *self, uint64_t now_ns)
{
    self->look_at_ns = SL_NEVER_NS;
    for (uint32_t i = 0; i < self->count; i++) {
        self->look_at_ns = SL_MIN(self->look_at_ns, watched_look(self, &self->all[i], now_ns));
    }
    state_report(self);
}

/* ---------------------------------------------------------------- names */

/* Whether supervisor.pid still names the script. */
static bool is_ours(const struct watcher *self)
{
    char path[1400];
    struct sl_proc_id named = {0};
    (void)snprintf(path, sizeof(path), "%s/supervisor.pid", self->options->runtime_dir);
    return sl_proc_id_read(path, &named, NULL) == SL_OK && named.pid == self->options->script_pid;
}

static void names_look(struct watcher *self, uint64_t now_ns)
{
    bool lost = !is_ours(self);
    for (uint32_t i = 0; i < self->kept_count; i++) {
        lost |= !sup_name_look(&self->kept[i].name, self->kept[i].path, false);
    }
    if (lost) {
        event_send(self, "lost");
    }
    for (uint32_t i = 0; i < self->count; i++) {
        watched_names_look(self, &self->all[i], now_ns);
    }
}

/* ---------------------------------------------------------------- ticks */

static void tick(struct watcher *self, uint64_t now_ns)
{
    self->tick_at_ns = now_ns + self->tick_ns;
    names_look(self, now_ns);
    if (self->tick_sent_ns == 0) {
        self->tick_sent_ns = now_ns;
        self->unanswered_reported = false;
        event_send(self, "tick");
    } else if (!self->unanswered_reported && now_ns - self->tick_sent_ns > UNANSWERED_NS) {
        self->unanswered_reported = true;
        (void)fprintf(stderr,
                      "sluice-supervise: the supervisor %" PRIu32
                      " has not answered for over %" PRIu64 " s\n",
                      self->options->script_pid, UNANSWERED_NS / SL_NS_PER_S);
    }
}

static void due(void *context, uint64_t now_ns)
{
    struct watcher *self = context;
    if (self->tick_at_ns <= now_ns + TOGETHER_NS) {
        tick(self, now_ns);
    }
    if (self->look_at_ns <= now_ns + TOGETHER_NS) {
        all_look(self, now_ns);
    }
    sl_loop_timer_set(self->loop, self->timer, SL_MIN(self->look_at_ns, self->tick_at_ns));
}

static void look_soon(struct watcher *self)
{
    self->look_at_ns = sl_clock_monotonic_ns();
    sl_loop_timer_set(self->loop, self->timer, self->look_at_ns);
}

/* ---------------------------------------------------------------- commands */

static void watched_remove(struct watcher *self, struct watched *at)
{
    sl_loop_process_unwatch(self->loop, at->proc);
    sl_metrics_view_close(&at->view);
    if (at->pidfd >= 0) {
        (void)close(at->pidfd);
    }
    *at = self->all[--self->count];
}

/* Reports that a process ended: with its exit code if the kernel gives that to processes other than
 * its parent, else with 0 if its page reports that it drained. */
static void exit_report(struct watcher *self, struct watched *at)
{
    int code = 0;
    struct sl_metrics_summary summary;
    if (at->pidfd >= 0 && sup_exit_code(at->pidfd, &code)) {
        event_send(self, "gone %s %" PRIu32 " %d", at->name, at->proc.pid, code);
        return;
    }
    bool drained = page_of(self, at, &summary) && summary.health == SL_HEALTH_STOPPED &&
                   strcmp(summary.reason, "drained") == 0;
    event_send(self, "gone %s %" PRIu32 " %s", at->name, at->proc.pid, drained ? "0" : "unknown");
}

static void gone(void *context, struct sl_proc_id proc)
{
    struct watcher *self = context;
    for (uint32_t i = 0; i < self->count; i++) {
        struct watched *at = &self->all[i];
        if (sl_proc_id_equal(at->proc, proc)) {
            exit_report(self, at);
            watched_remove(self, at);
            look_soon(self);
            return;
        }
    }
}

/* Starts to watch a process: proc, is_helper and adopted are those of want. */
static sl_err watch_begin(struct watcher *self, const char *name, const struct watched *want)
{
    for (uint32_t i = 0; i < self->count; i++) {
        if (strcmp(self->all[i].name, name) == 0) {
            watched_remove(self, &self->all[i]);
            break;
        }
    }
    if (self->count == WATCHED_MAX) {
        return sl_fail(&self->why, SL_ERR_LIMIT, "more than %u actors", WATCHED_MAX);
    }
    struct watched *at = &self->all[self->count];
    *at = *want;
    at->pidfd = -1;
    at->since_ns = sl_clock_monotonic_ns();
    (void)snprintf(at->name, sizeof(at->name), "%s", name);
    (void)sl_proc_open(at->proc, &at->pidfd, NULL); /* if it has ended, the loop reports it */
    sl_err err = sl_loop_process_watch(self->loop, at->proc, gone, self, &self->why);
    if (strcmp(name, "registrar") == 0) {
        memset(self->memory, 0, sizeof(self->memory));
    }
    if (err == SL_OK) {
        self->count++;
        self->commands++; /* so that the state is reported again */
        look_soon(self);
    } else if (at->pidfd >= 0) {
        (void)close(at->pidfd);
    }
    return err;
}

static sl_err command_watch(struct watcher *self, const char *words, struct watched want)
{
    char name[SUP_NAME_BYTES];
    uint32_t pid = 0;
    uint64_t start_time = 0;
    int end = -1;
    /* NOLINTNEXTLINE(cert-err34-c): a script's numbers, and the end is compared */
    int got =
        sscanf(words, "%31[a-z0-9.] %" SCNu32 " %" SCNu64 "%n", name, &pid, &start_time, &end);
    if (got != 3 || end < 0 || words[end] != '\0' || pid == 0) {
        return sl_fail(&self->why, SL_ERR_INVALID,
                       "'%.80s': expected NAME PID START after watch, mind or adopt", words);
    }
    want.proc = (struct sl_proc_id){.pid = pid, .start_time = start_time};
    return watch_begin(self, name, &want);
}

/* A path that was kept before is kept with its present file. */
static sl_err command_keep(struct watcher *self, const char *path)
{
    uint32_t i = 0;
    while (i < self->kept_count && strcmp(self->kept[i].path, path) != 0) {
        i++;
    }
    if (i == self->kept_count) {
        char *copy = i < KEPT_MAX ? strdup(path) : NULL;
        if (copy == NULL) {
            return i < KEPT_MAX ? sl_fail_os(&self->why, ENOMEM, "keep '%.80s'", path)
                                : sl_fail(&self->why, SL_ERR_LIMIT, "more than %u names", KEPT_MAX);
        }
        self->kept[self->kept_count++].path = copy;
    }
    self->kept[i].name = (struct sup_name){0};
    (void)sup_name_look(&self->kept[i].name, path, false);
    return SL_OK;
}

static sl_err command_run(struct watcher *self, const char *line)
{
    if (strncmp(line, "watch ", 6) == 0) {
        return command_watch(self, line + 6, (struct watched){0});
    }
    if (strncmp(line, "adopt ", 6) == 0) {
        return command_watch(self, line + 6, (struct watched){.adopted = true});
    }
    if (strncmp(line, "keep ", 5) == 0) {
        return command_keep(self, line + 5);
    }
    if (strncmp(line, "mind ", 5) == 0) {
        return command_watch(self, line + 5, (struct watched){.is_helper = true});
    }
    if (strcmp(line, "alive") == 0) {
        self->tick_sent_ns = 0;
        if (self->notify.watchdog_ns != 0) {
            notify(self, "WATCHDOG=1");
        }
        return SL_OK;
    }
    if (strncmp(line, "notify ", 7) == 0) {
        notify(self, line + 7);
        return SL_OK;
    }
    if (strcmp(line, "nudge") == 0) {
        event_send(self, "nudge");
        return SL_OK;
    }
    return sl_fail(&self->why, SL_ERR_INVALID, "'%.80s' is not a command", line);
}

/* Runs the complete lines that were read. */
static sl_err lines_run(struct watcher *self)
{
    char *from = self->line;
    char *end = self->line + self->line_bytes;
    sl_err err = SL_OK;
    for (char *newline;
         err == SL_OK && (newline = memchr(from, '\n', (size_t)(end - from))) != NULL;
         from = newline + 1) {
        *newline = '\0';
        err = command_run(self, from);
    }
    self->line_bytes = (size_t)(end - from);
    memmove(self->line, from, self->line_bytes);
    if (err == SL_OK && self->line_bytes == sizeof(self->line)) {
        err = sl_fail(&self->why, SL_ERR_INVALID, "a command of over %u bytes", LINE_BYTES);
    }
    return err;
}

static void input(void *context, int fd, uint32_t events)
{
    struct watcher *self = context;
    (void)events;
    ssize_t got = read(fd, self->line + self->line_bytes, sizeof(self->line) - self->line_bytes);
    if (got == 0) {
        watcher_end(self, SL_OK);
        return;
    }
    if (got < 0) {
        if (errno != EAGAIN && errno != EINTR) {
            watcher_end(self, sl_fail_os(&self->why, errno, "read commands"));
        }
        return;
    }
    self->line_bytes += (size_t)got;
    sl_err err = lines_run(self);
    if (err != SL_OK) {
        watcher_end(self, err);
    }
}

/* ---------------------------------------------------------------- life */

static sl_err watcher_open(struct watcher *self, struct sl_error *why)
{
    const struct sl_loop_options options = {
        .fds_max = 2, .timers_max = 1, .processes_max = WATCHED_MAX + 1};
    self->all = calloc(WATCHED_MAX, sizeof(*self->all));
    if (self->all == NULL) {
        return sl_fail_os(why, ENOMEM, "the table of actors");
    }
    sl_err err = sl_loop_create(&options, &self->loop, why);
    if (err == SL_OK && sup_notify_open(self->options->script_pid, &self->notify, why) != SL_OK) {
        /* A node serves also without reports to systemd. */
        (void)fprintf(stderr, "sluice-supervise: %s\n", why->text);
    }
    if (err == SL_OK) {
        err = sl_loop_timer_create(self->loop, due, self, &self->timer, why);
    }
    if (err == SL_OK) {
        err = sl_loop_fd_add(self->loop, STDIN_FILENO, SL_LOOP_READ, input, self, why);
    }
    self->tick_ns = TICK_NS;
    if (self->notify.watchdog_ns != 0) {
        self->tick_ns = SL_MIN(TICK_NS, self->notify.watchdog_ns / WATCHDOG_TICKS);
        self->tick_ns = SL_MAX(self->tick_ns, TICK_NS_MIN);
    }
    self->look_at_ns = SL_NEVER_NS;
    return err;
}

/* Makes its ends of the script's pipes non-blocking; no other process uses them. */
static void pipes_unblock(void)
{
    static const int fds[] = {STDIN_FILENO, STDOUT_FILENO};
    for (size_t i = 0; i < SL_COUNT(fds); i++) {
        int flags = fcntl(fds[i], F_GETFL);
        if (flags >= 0) {
            (void)fcntl(fds[i], F_SETFL, flags | O_NONBLOCK);
        }
    }
}

sl_err sup_watch(const struct sup_watch_options *options, struct sl_error *why)
{
    struct watcher self = {.options = options, .notify = {.fd = -1}};
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGINT, SIG_IGN); /* a Ctrl-C is for the script, which ends this process */
    /* Otherwise it would survive a killed script while another process has the script's pipe. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || (uint32_t)getppid() != options->script_pid) {
        return sl_fail(why, SL_ERR_INVALID, "process %" PRIu32 " is not the parent",
                       options->script_pid);
    }
    pipes_unblock();
    sl_err err = watcher_open(&self, why);
    if (err == SL_OK) {
        due(&self, sl_clock_monotonic_ns()); /* the first tick: it is ready for commands */
    }
    while (err == SL_OK && !self.ended) {
        err = sl_loop_turn(self.loop, SL_NEVER_NS, why);
    }
    if (self.ended && self.err != SL_OK) {
        err = self.err;
        *why = self.why;
    }
    while (self.count > 0) {
        watched_remove(&self, &self.all[0]);
    }
    while (self.kept_count > 0) {
        free(self.kept[--self.kept_count].path);
    }
    sup_notify_close(&self.notify);
    sl_loop_destroy(&self.loop);
    free(self.all);
    return err;
}
