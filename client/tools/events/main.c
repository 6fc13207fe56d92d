/* client/tools/events/main.c - the program sluice-events: publishes which blocks a node has.
 *
 * It reads only shared memory. The index itself is the source, so no event is lost when the
 * registrar is killed, and subscribers cannot delay an actor. Each run of this process is an
 * incarnation and begins with all present blocks.
 *
 * The first one of a node writes events.at (client/tools/metrics/at.h) and the page metrics.events.
 * Others, for another model or topic, may run at the same time. */
#include "client/tools/events/batch.h"
#include "client/tools/events/follow.h"
#include "client/tools/events/publish.h"
#include "client/tools/metrics/at.h"
#include "runtime/base/sl_address.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_config.h"
#include "runtime/base/sl_metrics.h"
#include "runtime/base/sl_parse.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* Delay at the start, in which subscribers of the last run reconnect: ZeroMQ tries every 100 ms. */
#define BEGIN_NS (300 * SL_NS_PER_MS)
/* Interval of empty messages while there are no events: by their sequence a subscriber notices that
 * it missed the last message. */
#define BEAT_NS       (500 * SL_NS_PER_MS)
#define ANSWER_NS     (2 * SL_NS_PER_MS) /* interval while answers are being sent */
#define METRICS_NS    (200 * SL_NS_PER_MS)
#define WALK_NS       (10 * SL_NS_PER_MS) /* pause between two walks over the index */
#define KEPT_BYTES    (64 * SL_MIB)       /* of messages kept for requests */
#define ADDRESS_BYTES 320u
#define IDLE_MS       60000u /* subscribers get a message every BEAT_NS */

enum { EXIT_FINE, EXIT_FAILED, EXIT_WRONG_USE };

struct events {
    struct sl_config *config;
    struct sl_paths paths;
    char publish[ADDRESS_BYTES], replay[ADDRESS_BYTES];
    bool own;  /* the first publisher of the node */
    bool page; /* metrics are on a page of the node */
    int signal_fd;
    struct ev_follow *follow;
    struct ev_publisher *publisher;
    struct ev_batch *live, *all; /* all: for snapshots */
    struct sl_metrics *metrics;
    uint64_t now_ns, sent_ns, measured_ns;
    struct {
        sl_metric messages, message_bytes, stored, removed, cleared, replays, snapshots, refused;
        sl_metric connections_refused, topics_refused, connections_ended;
        sl_metric keys_other, in_memory, on_disk, families, kept, kept_bytes, walks, walk_ns,
            indexes;
        sl_histogram report_ns;
    } metric;
};

/* ---- metrics ---- */

static const struct sl_metric_row metric_rows[] = {
    SL_METRIC_ROW(events, metric.messages, "messages"),
    SL_METRIC_ROW(events, metric.message_bytes, "message_bytes"),
    SL_METRIC_ROW(events, metric.stored, "blocks_stored"),
    SL_METRIC_ROW(events, metric.removed, "blocks_removed"),
    SL_METRIC_ROW(events, metric.cleared, "cleared"),
    SL_METRIC_ROW(events, metric.replays, "replays"),
    SL_METRIC_ROW(events, metric.snapshots, "snapshots"),
    SL_METRIC_ROW(events, metric.refused, "requests_refused"),
    SL_METRIC_ROW(events, metric.connections_refused, "connections_refused"),
    SL_METRIC_ROW(events, metric.topics_refused, "topics_refused"),
    SL_METRIC_ROW(events, metric.connections_ended, "connections_ended"),
    SL_METRIC_ROW(events, metric.keys_other, "keys_other"),
    SL_METRIC_ROW(events, metric.in_memory, "blocks_memory"),
    SL_METRIC_ROW(events, metric.on_disk, "blocks_disk"),
    SL_METRIC_ROW(events, metric.families, "families"),
    SL_METRIC_ROW(events, metric.kept, "kept_messages"),
    SL_METRIC_ROW(events, metric.kept_bytes, "kept_bytes"),
    SL_METRIC_ROW(events, metric.walks, "walks"),
    SL_METRIC_ROW(events, metric.walk_ns, "walk_ns"),
    SL_METRIC_ROW(events, metric.indexes, "indexes"),
    SL_HISTOGRAM_ROW(events, metric.report_ns, "report_ns"),
};

/* Opens the page of metrics. They are in private memory while the node's shm directory does not
 * exist, or if another publisher has the page. */
static sl_err page_open(struct events *self, struct sl_error *why)
{
    char path[1100];
    struct sl_metrics *metrics = NULL;
    struct sl_metrics_options options = {.actor = "events", .trace_events = 64};
    (void)snprintf(path, sizeof(path), "%s/metrics.events", self->paths.shm_dir);
    options.path = self->own && access(self->paths.shm_dir, W_OK) == 0 ? path : NULL;
    sl_err err = sl_proc_id_of((uint32_t)getpid(), &options.self, why);
    if (err == SL_OK) {
        err = sl_metrics_open(&options, &metrics, why);
    }
    if (err == SL_OK) {
        sl_metrics_close(&self->metrics);
        self->metrics = metrics;
        self->page = options.path != NULL;
        sl_metrics_define(self->metrics, metric_rows, SL_COUNT(metric_rows), self);
        sl_metrics_health(self->metrics, SL_HEALTH_READY, "");
    }
    return err;
}

/* Adds the increase since the last call: counters on the page continue over runs. */
static void count_up(struct events *self, sl_metric metric, uint64_t *before, uint64_t now)
{
    sl_metric_add(self->metrics, metric, now - *before);
    *before = now;
}

static void page_write(struct events *self)
{
    static const struct ev_publisher_stats none;
    static struct ev_publisher_stats before;
    static struct ev_batch_stats batch_before;
    static struct ev_follow_stats follow_before;
    struct ev_publisher_stats now = none;
    struct ev_batch_stats batch;
    struct ev_follow_stats follow;
    ev_publisher_stats(self->publisher, &now);
    ev_batch_stats(self->live, &batch);
    ev_follow_stats(self->follow, &follow);
    count_up(self, self->metric.messages, &before.messages, now.messages);
    count_up(self, self->metric.message_bytes, &before.bytes, now.bytes);
    count_up(self, self->metric.replays, &before.replays, now.replays);
    count_up(self, self->metric.snapshots, &before.snapshots, now.snapshots);
    count_up(self, self->metric.refused, &before.refused, now.refused);
    count_up(self, self->metric.connections_refused, &before.connections_refused,
             now.connections_refused);
    count_up(self, self->metric.topics_refused, &before.topics_refused, now.topics_refused);
    count_up(self, self->metric.connections_ended, &before.connections_ended,
             now.connections_ended);
    count_up(self, self->metric.stored, &batch_before.blocks[EV_STORED], batch.blocks[EV_STORED]);
    count_up(self, self->metric.removed, &batch_before.blocks[EV_REMOVED],
             batch.blocks[EV_REMOVED]);
    count_up(self, self->metric.cleared, &batch_before.blocks[EV_CLEARED],
             batch.blocks[EV_CLEARED]);
    count_up(self, self->metric.walks, &follow_before.walks, follow.walks);
    count_up(self, self->metric.indexes, &follow_before.indexes, follow.indexes);
    count_up(self, self->metric.keys_other, &follow_before.blocks.keys_other,
             follow.blocks.keys_other);
    sl_metric_set(self->metrics, self->metric.in_memory, follow.blocks.announced[EV_MEMORY]);
    sl_metric_set(self->metrics, self->metric.on_disk, follow.blocks.announced[EV_DISK]);
    sl_metric_set(self->metrics, self->metric.families, follow.blocks.families);
    sl_metric_set(self->metrics, self->metric.kept, now.kept_messages);
    sl_metric_set(self->metrics, self->metric.kept_bytes, now.kept_bytes);
    sl_metric_set(self->metrics, self->metric.walk_ns, follow.walk_ns);
}

/* ---- addresses ---- */

static sl_err address_local(const struct events *self, const char *file, char out[ADDRESS_BYTES],
                            struct sl_error *why)
{
    int length = snprintf(out, ADDRESS_BYTES, "ipc://%s/%s", self->paths.runtime_dir, file);
    return length > 0 && length < 100 + 6
               ? SL_OK
               : sl_fail(why, SL_ERR_CONFIG, "'%.150s' is too long for a socket",
                         self->paths.runtime_dir);
}

static sl_err address_tcp(const char *text, uint16_t behind, char out[ADDRESS_BYTES],
                          struct sl_error *why)
{
    char host[256];
    uint16_t port = 0;
    if (!sl_address_parse(text, host, sizeof(host), &port) || port > UINT16_MAX - behind) {
        return sl_fail(why, SL_ERR_CONFIG, "'%.200s' is not IP:PORT%s", text,
                       behind > 0 ? " with a port below 65535" : "");
    }
    const char *of = strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;
    bool six = strchr(of, ':') != NULL;
    (void)snprintf(out, ADDRESS_BYTES, "tcp://%s%s%s:%u", six ? "[" : "", of, six ? "]" : "",
                   (unsigned)port + behind);
    return SL_OK;
}

static sl_err addresses_set(struct events *self, struct sl_error *why)
{
    const char *publish = sl_config_text(self->config, SL_SET_events_listen);
    const char *replay = sl_config_text(self->config, SL_SET_events_replay_listen);
    if (strcmp(publish, "off") == 0) {
        return sl_fail(why, SL_ERR_CONFIG, "events_listen is off: set it to local or IP:PORT");
    }
    bool local = strcmp(publish, "local") == 0, follows = strcmp(replay, "auto") == 0;
    sl_err err = local ? address_local(self, "events.pub", self->publish, why)
                       : address_tcp(publish, 0, self->publish, why);
    if (err != SL_OK) {
        return err;
    }
    if (strcmp(replay, "local") == 0 || (follows && local)) {
        return address_local(self, "events.replay", self->replay, why);
    }
    return address_tcp(follows ? publish : replay, follows ? 1 : 0, self->replay, why);
}

static sl_err form_set(const struct events *self, struct ev_form *form, struct sl_error *why)
{
    const char *rank = sl_config_text(self->config, SL_SET_events_rank);
    uint64_t number = 0;
    *form = (struct ev_form){
        .array = strcmp(sl_config_text(self->config, SL_SET_events_form), "array") == 0,
        .ours = strcmp(sl_config_text(self->config, SL_SET_events_form), "models") == 0,
        .bytes = strcmp(sl_config_text(self->config, SL_SET_events_hashes), "bytes") == 0,
        .block_size = (uint32_t)sl_config_u64(self->config, SL_SET_events_block_size),
        .rank = EV_NO_RANK,
        .media = {"CPU", "DISK"}};
    if (strcmp(rank, "none") == 0) {
        return SL_OK;
    }
    if (!sl_parse_within(rank, 0, UINT16_MAX, &number)) {
        return sl_fail(why, SL_ERR_CONFIG, "events_rank '%.16s' is neither none nor 0..%u", rank,
                       UINT16_MAX);
    }
    form->rank = (uint32_t)number;
    return SL_OK;
}

/* ---- messages ---- */

static void live_send(void *context, const void *payload, size_t length_bytes)
{
    struct events *self = context;
    ev_publisher_send(self->publisher, payload, length_bytes);
    self->sent_ns = self->now_ns;
}

static void all_send(void *context, const void *payload, size_t length_bytes)
{
    struct events *self = context;
    ev_publisher_snapshot_add(self->publisher, payload, length_bytes);
}

/* Ends the process if a message was lost for lack of memory: subscribers would not notice. The next
 * run begins with all present blocks. */
static void memory_check(const struct events *self)
{
    struct ev_batch_stats live, all;
    ev_batch_stats(self->live, &live);
    ev_batch_stats(self->all, &all);
    if (live.no_memory || all.no_memory) {
        (void)fprintf(stderr, "sluice-events: out of memory for a message\n");
        exit(EXIT_FAILURE);
    }
}

static void snapshot(void *context)
{
    struct events *self = context;
    ev_batch_time(self->all, (double)sl_clock_wall_ns() / 1e9);
    ev_follow_report_all(self->follow, ev_batch_add, self->all);
    ev_batch_flush(self->all, true);
    memory_check(self);
}

static void event_take(void *context, const struct ev_event *event)
{
    struct events *self = context;
    if (event->type == EV_STORED && event->committed_ns != 0) {
        uint64_t now_ns = sl_clock_monotonic_ns();
        sl_histogram_add(self->metrics, self->metric.report_ns,
                         now_ns - SL_MIN(event->committed_ns, now_ns));
    }
    ev_batch_add(self->live, event);
}

/* ---- running ---- */

static sl_err open_all(struct events *self, struct sl_error *why)
{
    struct ev_form form;
    struct metrics_at at;
    sl_err err = addresses_set(self, why);
    if (err == SL_OK) {
        err = form_set(self, &form, why);
    }
    if (err != SL_OK) {
        return err;
    }
    bool other = helper_address_read(self->paths.runtime_dir, "events", &at);
    self->own = !other;
    if (other && (strncmp(self->publish, "ipc:", 4) == 0 ||
                  strncmp(self->replay, "ipc:", 4) ==
                      0)) { /* else it would replace the file of that socket */
        return sl_fail(why, SL_ERR_EXISTS, "process %" PRIu32 " publishes the node's events at %s",
                       at.proc.pid, at.address);
    }
    const struct ev_publisher_options options = {
        .publish = self->publish,
        .replay = self->replay,
        .directory = self->paths.runtime_dir,
        .idle_ms = IDLE_MS,
        .topic = sl_config_text(self->config, SL_SET_events_topic),
        .queue_messages = (uint32_t)sl_config_u64(self->config, SL_SET_events_queue),
        .kept_messages = (uint32_t)sl_config_u64(self->config, SL_SET_events_kept),
        .kept_bytes = KEPT_BYTES,
        .incarnation = sl_clock_wall_ns() / 1000,
        .snapshot = snapshot,
        .context = self};
    err = ev_publisher_open(&options, &self->publisher, why);
    if (err == SL_OK) {
        err = ev_batch_create(&form, options.incarnation, live_send, self, &self->live, why);
    }
    if (err == SL_OK) {
        err = ev_batch_create(&form, options.incarnation, all_send, self, &self->all, why);
    }
    if (err == SL_OK) {
        err =
            ev_follow_create(self->paths.shm_dir, sl_config_text(self->config, SL_SET_events_model),
                             WALK_NS, &self->follow, why);
    }
    if (err == SL_OK) {
        err = page_open(self, why);
    }
    if (err == SL_OK && self->own) {
        char text[2 * ADDRESS_BYTES + 1];
        (void)snprintf(text, sizeof(text), "%s %s", self->publish, self->replay);
        err = helper_address_write(self->paths.runtime_dir, "events", text, why);
    }
    return err;
}

static bool ended(const struct events *self)
{
    struct signalfd_siginfo info;
    return read(self->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info);
}

static void run(struct events *self)
{
    uint64_t begin_ns = sl_clock_monotonic_ns() + BEGIN_NS;
    while (!ended(self)) {
        self->now_ns = sl_clock_monotonic_ns();
        bool answers = ev_publisher_serve(self->publisher, self->now_ns);
        uint64_t wake_ns = begin_ns;
        if (self->now_ns >= begin_ns) {
            ev_batch_time(self->live, (double)sl_clock_wall_ns() / 1e9);
            if (ev_follow_step(self->follow, self->now_ns, event_take, self)) {
                ev_batch_flush(self->live, false);
            }
            if (self->now_ns - self->sent_ns >= BEAT_NS) {
                ev_batch_flush(self->live, true);
            }
            wake_ns = SL_MIN(ev_follow_wake_at(self->follow), self->sent_ns + BEAT_NS);
        }
        if (self->now_ns - self->measured_ns >= METRICS_NS) {
            self->measured_ns = self->now_ns;
            if (self->own && !self->page) {
                (void)page_open(self, NULL);
            }
            page_write(self);
            memory_check(self);
            sl_metrics_beat(self->metrics, self->now_ns);
        }
        wake_ns = answers ? SL_MIN(wake_ns, self->now_ns + ANSWER_NS) : wake_ns;
        wake_ns = SL_MIN(wake_ns, self->now_ns + METRICS_NS);
        ev_publisher_wait(self->publisher, self->signal_fd,
                          sl_budget_ns(sl_clock_monotonic_ns(), wake_ns));
    }
    page_write(self);
}

static sl_err serve(struct events *self, struct sl_error *why)
{
    sigset_t signals;
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &signals, NULL); /* before ZeroMQ's threads */
    self->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (self->signal_fd < 0) {
        return sl_fail_os(why, errno, "signalfd");
    }
    sl_err err = open_all(self, why);
    if (err == SL_OK) {
        (void)printf("sluice-events: events of node '%s' at %s, missed events at %s\n",
                     sl_config_text(self->config, SL_SET_instance), self->publish, self->replay);
        (void)fflush(stdout);
        run(self);
        sl_metrics_health(self->metrics, SL_HEALTH_STOPPED, "");
    }
    helper_address_remove(self->paths.runtime_dir, "events");
    ev_publisher_close(&self->publisher);
    ev_batch_destroy(&self->live);
    ev_batch_destroy(&self->all);
    ev_follow_destroy(&self->follow);
    sl_metrics_close(&self->metrics);
    (void)close(self->signal_fd);
    return err;
}

static void usage(FILE *out)
{
    (void)fputs(
        "usage: sluice-events [SETTINGS]\n\n"
        "Publishes which blocks a node of this user has, as KV events in vLLM's format over ZeroMQ, "
        "until SIGTERM.\nIt waits for a node that does not run yet.\n\n"
        "  --events-listen IP:PORT  address, or local: events.pub in the runtime directory, only for "
        "this user.\n"
        "                           Anyone who reaches an address can read hashes of blocks and "
        "names of models\n"
        "  --events-replay-listen, --events-topic, --events-model and other settings: sluicectl "
        "config --help\n"
        "  --instance NAME, --runtime-dir DIR, --shm-dir DIR, --config FILE: as sluicectl\n\n"
        "Exit codes: 0 success, 1 failed, 2 wrong use.\n",
        out);
}

int main(int argc, char **argv)
{
    struct events self = {.signal_fd = -1};
    struct sl_error why = {0};
    sl_err err = sl_config_create(&self.config, &why);
    if (err == SL_OK) {
        err = sl_config_load(self.config, NULL, argc, argv, NULL, &why);
    }
    err = err == SL_OK ? sl_config_check_access(self.config, &why) : err;
    if (err == SL_ERR_CANCELLED) {
        bool help = strstr(why.text, "help") != NULL;
        help ? usage(stdout) : (void)printf("sluice-events %s\n", SL_VERSION);
        sl_config_destroy(&self.config);
        return EXIT_FINE;
    }
    if (err == SL_OK) {
        err = sl_paths_from(self.config, &self.paths, &why);
    }
    if (err == SL_OK) {
        err = serve(&self, &why);
    }
    if (err != SL_OK) {
        (void)fprintf(stderr, "sluice-events: %s\n", why.text);
    }
    sl_config_destroy(&self.config);
    return err == SL_OK ? EXIT_FINE : err == SL_ERR_CONFIG ? EXIT_WRONG_USE : EXIT_FAILED;
}
