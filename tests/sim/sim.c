/* tests/sim/sim.c - the queue of events in simulated time, and the actors' environment on it. */
#include "tests/sim/sim_internal.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_PID         5000000u /* above any pid_max */
#define DELAY_NS_STANDARD (200 * SL_NS_PER_US)
#define DIED_DELAY_NS     (2 * SL_NS_PER_MS)
#define LATE_NS_MAX       (300 * SL_NS_PER_MS) /* of a late message: after its resend */
#define KILL_RESTART_NS   (20 * SL_NS_PER_MS)  /* the supervisor's restart after a kill */
#define BACK_OFF_NS       (100 * SL_NS_PER_MS)
#define AT_ONCE_MAX       100000u /* events without progress of time: a loop */

static struct sim_node *node_of(struct sl_env *env)
{
    return (struct sim_node *)env;
}

uint32_t sim_number(const struct sim_node *node)
{
    return (uint32_t)(node - node->sim->nodes);
}

_Noreturn void sim_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)fprintf(stderr, "at %.6f s: ", sim_world != NULL ? (double)sim_world->now_ns / 1e9 : 0.0);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it is begun above */
    (void)vfprintf(stderr, format, arguments);
    (void)fprintf(stderr, "\n");
    va_end(arguments);
    _exit(EXIT_FAILURE);
}

void sim_log(const struct sim *sim, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it is begun above */
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    sl_log_write(sim->log, SL_LOG_INFO, 0, "%llu: %s", (unsigned long long)sim->now_ns, text);
}

void sim_mix(struct sim *sim, uint64_t word)
{
    sim->hash = (sim->hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    sim->hash ^= sim->hash >> 29;
}

static void mix_bytes(struct sim *sim, const void *bytes, size_t length_bytes)
{
    const unsigned char *at = bytes;
    uint64_t word = 0;
    for (; length_bytes >= sizeof(word); length_bytes -= sizeof(word), at += sizeof(word)) {
        memcpy(&word, at, sizeof(word));
        sim_mix(sim, word);
    }
    word = 0;
    memcpy(&word, at, length_bytes);
    sim_mix(sim, word);
}

/* ---- chance: splitmix64 ---- */

uint64_t sim_random(struct sim *sim)
{
    uint64_t x = sim->rng += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t sim_random_below(struct sim *sim, uint64_t bound)
{
    return bound == 0 ? 0 : sim_random(sim) % bound;
}

/* ---- events: a heap by time, then by chance ---- */

static bool event_before(const struct sim_event *a, const struct sim_event *b)
{
    if (a->at_ns != b->at_ns) {
        return a->at_ns < b->at_ns;
    }
    return a->tie != b->tie ? a->tie < b->tie : a->number < b->number;
}

static void event_push(struct sim *sim, struct sim_event event)
{
    if (sim->event_count == sim->event_capacity) {
        sim->event_capacity = sim->event_capacity == 0 ? 1024 : 2 * sim->event_capacity;
        sim->heap = realloc(sim->heap, sim->event_capacity * sizeof(*sim->heap));
        SIM_CHECK(sim->heap != NULL, "out of memory");
    }
    event.number = sim->event_number++;
    uint32_t at = sim->event_count++;
    while (at > 0 && event_before(&event, &sim->heap[(at - 1) / 2])) {
        sim->heap[at] = sim->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    sim->heap[at] = event;
}

void sim_event_add(struct sim *sim, struct sim_event event)
{
    event.tie = sim_random(sim);
    event_push(sim, event);
}

static struct sim_event event_pop(struct sim *sim)
{
    struct sim_event first = sim->heap[0];
    struct sim_event last = sim->heap[--sim->event_count];
    uint32_t at = 0;
    for (uint32_t child = 1; child < sim->event_count; child = 2 * at + 1) {
        if (child + 1 < sim->event_count &&
            event_before(&sim->heap[child + 1], &sim->heap[child])) {
            child++;
        }
        if (!event_before(&sim->heap[child], &last)) {
            break;
        }
        sim->heap[at] = sim->heap[child];
        at = child;
    }
    sim->heap[at] = last;
    return first;
}

struct sim_event sim_event_for(const struct sim_node *node, enum sim_event_kind kind,
                               uint64_t at_ns)
{
    return (struct sim_event){
        .at_ns = at_ns, .kind = kind, .node = sim_number(node), .incarnation = node->incarnation};
}

/* ---- the environment ---- */

struct sim_node *sim_node_named(const struct sim_host *host, struct sim *sim, const char *name)
{
    for (uint32_t i = 0; i < sim->node_count; i++) {
        struct sim_node *node = &sim->nodes[i];
        if (node->alive && node->host == host && strcmp(node->name, name) == 0) {
            return node;
        }
    }
    return NULL;
}

/* A client is identified by the number of its process, which is unique. */
static bool is_of(struct sl_proc_id process, struct sl_proc_id proc)
{
    return sl_proc_id_is_client(proc) ? process.pid == proc.pid : sl_proc_id_equal(process, proc);
}

static struct sim_node *node_with_proc(struct sim *sim, struct sl_proc_id proc)
{
    for (uint32_t i = 0; i < sim->node_count; i++) {
        if (sim->nodes[i].alive && is_of(sim->nodes[i].env.self, proc)) {
            return &sim->nodes[i];
        }
    }
    return NULL;
}

sl_err sim_env_send(struct sl_env *env, const char *to, const void *frame, size_t length_bytes,
                    bool reply)
{
    struct sim_node *node = node_of(env);
    struct sim *sim = node->sim;
    struct sim_node *target = sim_node_named(node->host, sim, to);
    if (target == NULL) {
        return SL_ERR_UNREACHABLE;
    }
    /* A name leads to its present owner (routing ids are handed over). Requests use our connection,
     * replies theirs: each keeps its order, but not relative to the other. */
    uint64_t *pair_ns = &node->pair_ns[reply][sim_number(target)];
    uint64_t delay_ns = sim->delay_ns_max;
    if (sim->late_of != 0 && sim_random_below(sim, sim->late_of) == 0) {
        delay_ns = LATE_NS_MAX;
        sim->disturbed_ns = SL_MAX(sim->disturbed_ns, sim->now_ns + delay_ns);
    }
    uint64_t at_ns = sim->now_ns + 1 + sim_random_below(sim, delay_ns);
    *pair_ns = SL_MAX(at_ns, *pair_ns + 1);
    struct sim_event event = sim_event_for(target, EVENT_MESSAGE, *pair_ns);
    event.frame = malloc(length_bytes);
    SIM_CHECK(event.frame != NULL, "out of memory");
    memcpy(event.frame, frame, length_bytes);
    event.frame_bytes = length_bytes;
    event.cookie = sim_number(node);
    sim_event_add(sim, event);
    return SL_OK;
}

void sim_env_wake_at(struct sl_env *env, uint64_t at_ns)
{
    struct sim_node *node = node_of(env);
    at_ns = SL_MAX(at_ns, node->sim->now_ns);
    if (at_ns < node->wake_ns) {
        node->wake_ns = at_ns;
        sim_event_add(node->sim, sim_event_for(node, EVENT_TICK, at_ns));
    }
}

static void died_tell(struct sim *sim, const struct sim_watch *watch)
{
    struct sim_event event = sim_event_for(&sim->nodes[watch->node], EVENT_DIED,
                                           sim->now_ns + sim_random_below(sim, DIED_DELAY_NS));
    event.incarnation = watch->incarnation;
    event.proc = watch->proc;
    event.cookie = watch->cookie;
    sim_event_add(sim, event);
}

static sl_err env_watch(struct sl_env *env, struct sl_proc_id proc, uint64_t cookie)
{
    struct sim_node *node = node_of(env);
    struct sim *sim = node->sim;
    struct sim_watch watch = {
        .node = sim_number(node), .incarnation = node->incarnation, .cookie = cookie, .proc = proc};
    if (node_with_proc(sim, proc) == NULL) {
        died_tell(sim, &watch);
        return SL_OK;
    }
    for (uint32_t i = 0; i < sim->watch_count; i++) { /* replaces an old watch */
        struct sim_watch *old = &sim->watches[i];
        if (old->node == watch.node && old->incarnation == watch.incarnation &&
            sl_proc_id_equal(old->proc, proc)) {
            *old = watch;
            return SL_OK;
        }
    }
    SIM_CHECK(sim->watch_count < SIM_WATCHES_MAX, "too many watches");
    sim->watches[sim->watch_count++] = watch;
    return SL_OK;
}

static void env_unwatch(struct sl_env *env, struct sl_proc_id proc)
{
    struct sim_node *node = node_of(env);
    struct sim *sim = node->sim;
    for (uint32_t i = 0; i < sim->watch_count; i++) {
        if (sim->watches[i].node == sim_number(node) &&
            sl_proc_id_equal(sim->watches[i].proc, proc)) {
            sim->watches[i--] = sim->watches[--sim->watch_count];
        }
    }
}

static bool env_alive(struct sl_env *env, struct sl_proc_id proc)
{
    return node_with_proc(node_of(env)->sim, proc) != NULL;
}

static void env_kill(struct sl_env *env, struct sl_proc_id proc)
{
    struct sim *sim = node_of(env)->sim;
    struct sim_node *target = node_with_proc(sim, proc);
    if (target != NULL && target != node_of(env)) {
        bool actor = !target->fixed_name;
        sim_kill(sim, sim_number(target),
                 actor ? sim_random_below(sim, KILL_RESTART_NS) : SL_NEVER_NS);
    }
}

static sl_err env_job(struct sl_env *env, uint32_t thread_count,
                      sl_err (*job)(void *context, uint32_t thread), void *context, uint64_t cookie)
{
    struct sim_node *node = node_of(env);
    struct sim_event event = sim_event_for(
        node, EVENT_JOB, node->sim->now_ns + sim_random_below(node->sim, SL_NS_PER_MS));
    for (uint32_t i = 0; i < thread_count; i++) {
        sl_err err = job(context, i);
        event.result = event.result == SL_OK ? err : event.result;
    }
    event.cookie = cookie;
    sim_event_add(node->sim, event);
    return SL_OK;
}

static uint64_t env_random(struct sl_env *env)
{
    return sim_random(node_of(env)->sim);
}

static uint64_t env_wall_ns(struct sl_env *env)
{
    return UINT64_C(1700000000) * SL_NS_PER_S + env->now_ns;
}

static void env_finish(struct sl_env *env)
{
    node_of(env)->finished = true;
}

/* No descriptors exist here: arrivals wake the actor by themselves. */
static sl_err env_watch_fd(struct sl_env *env, int fd, struct sl_error *why)
{
    (void)env, (void)fd, (void)why;
    return SL_OK;
}

static void env_unwatch_fd(struct sl_env *env, int fd)
{
    (void)env, (void)fd;
}

static const struct sl_env_ops sim_ops = {
    .send = sim_env_send,
    .wake_at = sim_env_wake_at,
    .watch = env_watch,
    .unwatch = env_unwatch,
    .alive = env_alive,
    .locked = env_alive,
    .kill = env_kill,
    .disk_open = sim_disk_open,
    .job = env_job,
    .watch_fd = env_watch_fd,
    .unwatch_fd = env_unwatch_fd,
    .random_u64 = env_random,
    .wall_ns = env_wall_ns,
    .finish = env_finish,
};

/* ---- processes ---- */

static void sim_note(struct sim *sim, const char *what, const struct sim_node *node, uint64_t ns)
{
    sl_log_write(sim->log, SL_LOG_INFO, 0, "%llu: %s %s of host %u for %llu us",
                 (unsigned long long)sim->now_ns, what, node->name, sim_host_number(node),
                 (unsigned long long)(ns / SL_NS_PER_US));
}

static void node_boot(struct sim *sim, struct sim_node *node)
{
    struct sl_error why = {0};
    struct sl_metrics_options page = {.actor = node->name, .trace_events = 64};
    node->incarnation++;
    node->wake_ns = SL_NEVER_NS;
    node->stopped_until_ns = 0;
    node->finished = false;
    node->state = calloc(1, node->actor->state_bytes);
    SIM_CHECK(node->state != NULL, "out of memory");
    node->env = (struct sl_env){
        .ops = &sim_ops,
        .name = node->name,
        .self = {.pid = sim->next_pid++, .start_time = 1000 + sim->next_pid},
        .now_ns = sim->now_ns,
        .config = node->config,
        .paths = &node->host->paths,
        .log = sim->log,
        .network = &node->network,
        .next_seq = sim->now_ns, /* as the real process does */
    };
    page.self = node->env.self;
    SIM_CHECK(sl_metrics_open(&page, &node->env.metrics, &why) == SL_OK, "%s", why.text);
    node->alive = true;
    sim_network_boot(node);
    sim_supervisor_boot(sim, node);
    sl_err err = node->actor->init(node->state, &node->env, &why);
    if (err == SL_ERR_IO || err == SL_ERR_OS) { /* the disk fails: the supervisor tries again */
        SIM_CHECK(strcmp(node->actor->role, "tierer") == 0, "%s did not start: %s", node->name,
                  why.text);
        sim_note(sim, why.text, node, 0);
        sim_kill(sim, sim_number(node), BACK_OFF_NS);
        return;
    }
    SIM_CHECK(err == SL_OK, "%s did not start: %s: %s", node->name, sl_err_name(err), why.text);
    if (strcmp(node->actor->role, "registrar") != 0) {
        sim_event_add(sim, sim_event_for(node, EVENT_HELLO, sim->now_ns));
    }
}

/* Tables sized for the few clients that exist at a time. An actor that starts touches all of its
 * tables, and one starts at every turn here: with the default sizes (20 MB a coordinator), the
 * kernel took half of the time of all runs. */
static const char *const small[] = {"queue_messages", "128", "handovers_max", "256", NULL};

/* settings: names and values alternating, then NULL; NULL is none. */
static void settings_set(struct sl_config *config, const char *const *settings)
{
    struct sl_error why = {0};
    for (size_t i = 0; settings != NULL && settings[i] != NULL; i += 2) {
        SIM_CHECK(sl_config_set(config, settings[i], settings[i + 1], "sim", &why) == SL_OK, "%s",
                  why.text);
    }
}

uint32_t sim_start(struct sim *sim, const struct sl_actor *actor, uint32_t rank, const char *name,
                   void *context)
{
    SIM_CHECK(sim->node_count < SIM_NODES_MAX, "too many processes");
    struct sim_node *node = &sim->nodes[sim->node_count++];
    struct sl_error why = {0};
    char rank_text[16];
    struct sim_host *host = &sim->hosts[sim->host];
    *node = (struct sim_node){
        .sim = sim, .host = host, .actor = actor, .context = context, .fixed_name = name != NULL};
    (void)snprintf(rank_text, sizeof(rank_text), "%u", rank);
    if (name != NULL) {
        (void)snprintf(node->name, sizeof(node->name), "%s", name);
    } else if (actor->ranked) {
        (void)snprintf(node->name, sizeof(node->name), "%s.%s", actor->role, rank_text);
    } else {
        (void)snprintf(node->name, sizeof(node->name), "%s", actor->role);
    }
    SIM_CHECK(sl_config_create(&node->config, &why) == SL_OK, "%s", why.text);
    settings_set(node->config, small);
    settings_set(node->config, host->settings);
    SIM_CHECK(sl_config_set(node->config, "rank", rank_text, "sim", &why) == SL_OK, "%s", why.text);
    node_boot(sim, node);
    return sim_number(node);
}

/* Releases the locks of a dead process, as the kernel would. */
static void close_lock(const struct sim_host *host)
{
    char lock[1100], path[64], target[1100];
    (void)snprintf(lock, sizeof(lock), "%s/registrar.lock", host->paths.runtime_dir);
    DIR *all = opendir("/proc/self/fd");
    for (struct dirent *one; all != NULL && (one = readdir(all)) != NULL;) {
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%.20s", one->d_name);
        ssize_t length = readlink(path, target, sizeof(target) - 1);
        if (length > 0 && (size_t)length == strlen(lock) &&
            memcmp(target, lock, (size_t)length) == 0) {
            (void)close((int)strtol(one->d_name, NULL, 10));
        }
    }
    if (all != NULL) {
        (void)closedir(all);
    }
}

static void node_drop(struct sim *sim, struct sim_node *node)
{
    node->died_ns = sim->now_ns;
    struct sl_proc_id proc = node->env.self;
    node->alive = false;
    sim->disturbed_ns = SL_MAX(sim->disturbed_ns, sim->now_ns);
    if (node->program != NULL) {
        sim_program_drop(node);
    } else {
        sl_metrics_close(&node->env.metrics);
        if (strcmp(node->actor->role, "registrar") == 0) {
            close_lock(node->host);
        }
    }
    sim_network_drop(node);
    node->state = NULL; /* its heap is lost with the simulating process */
    uint32_t kept = 0;
    for (uint32_t i = 0; i < sim->watch_count; i++) {
        struct sim_watch watch = sim->watches[i];
        if (watch.node == sim_number(node)) {
            continue;
        }
        if (is_of(proc, watch.proc)) {
            died_tell(sim, &watch);
            continue;
        }
        sim->watches[kept++] = watch;
    }
    sim->watch_count = kept;
}

void sim_kill(struct sim *sim, uint32_t number, uint64_t restart_ns)
{
    struct sim_node *node = &sim->nodes[number];
    if (!node->alive) {
        return;
    }
    sim_note(sim, "kill", node, restart_ns);
    node_drop(sim, node);
    if (restart_ns != SL_NEVER_NS) {
        sim_event_add(sim, sim_event_for(node, EVENT_RESTART, sim->now_ns + restart_ns));
    }
}

void sim_stop(struct sim *sim, uint32_t node, uint64_t duration_ns)
{
    sim_note(sim, "stop", &sim->nodes[node], duration_ns);
    sim_network_stopped(&sim->nodes[node], duration_ns);
    uint64_t until_ns = sim->now_ns + duration_ns;
    uint64_t from_ns = SL_MAX(sim->nodes[node].stopped_until_ns, sim->now_ns);
    sim->nodes[node].stopped_ns = from_ns > sim->now_ns ? sim->nodes[node].stopped_ns : sim->now_ns;
    if (until_ns > from_ns) {
        sim->nodes[node].stalled_ns += until_ns - from_ns;
        sim->nodes[node].stopped_until_ns = until_ns;
    }
    sim->disturbed_ns = SL_MAX(sim->disturbed_ns, sim->now_ns + duration_ns);
}

void sim_hang(struct sim *sim, uint32_t number)
{
    struct sim_node *node = &sim->nodes[number];
    SIM_CHECK(sim->supervisor != NULL && node->program == NULL, "no process would end it");
    if (node->alive && node->stopped_until_ns <= sim->now_ns) {
        sim_note(sim, "hang", node, 0);
        node->stopped_ns = sim->now_ns;
        node->stopped_until_ns = SL_NEVER_NS;
        sim->disturbed_ns = SL_MAX(sim->disturbed_ns, sim->now_ns);
    }
}

bool sim_alive(const struct sim *sim, uint32_t node)
{
    return sim->nodes[node].alive;
}

uint64_t sim_incarnation(const struct sim *sim, uint32_t node)
{
    return sim->nodes[node].incarnation;
}

uint64_t sim_metric(struct sim *sim, uint32_t number, const char *name)
{
    struct sl_metrics *page = sim->nodes[number].env.metrics;
    return sl_metric_get(page, sl_metric_define(page, name));
}

void sim_messages_late(struct sim *sim, uint32_t one_of)
{
    sim->late_of = one_of;
}

uint64_t sim_disturbed_ns(const struct sim *sim)
{
    return sim->disturbed_ns;
}

void *sim_context(struct sl_env *env)
{
    return node_of(env)->context;
}

struct sim *sim_of(struct sl_env *env)
{
    return node_of(env)->sim;
}

/* ---- the process around an actor (ipc/msg/sl_process.c) ---- */

static void node_hello(struct sim *sim, struct sim_node *node)
{
    char path[1200], segment[64];
    struct sl_msg hello = {.type = SL_MSG_HELLO};
    (void)snprintf(segment, sizeof(segment), "pins.%s", node->name);
    (void)snprintf(path, sizeof(path), "%s/%s", node->host->paths.shm_dir, segment);
    hello.body.hello = (struct sl_body_hello){
        .role = sl_text_of(node->actor->role),
        .name = sl_text_of(node->name),
        .pid = node->env.self.pid,
        .start_time = node->env.self.start_time,
        .segment = sl_text_of(access(path, F_OK) == 0 ? segment : ""),
    };
    sl_err err = sl_send(&node->env, "registrar", &hello, NULL);
    uint64_t heartbeat_ns = sl_config_u64(node->config, SL_SET_heartbeat);
    sim_event_add(sim,
                  sim_event_for(node, EVENT_HELLO,
                                sim->now_ns + (err == SL_OK ? heartbeat_ns : 10 * SL_NS_PER_MS)));
}

static sl_err node_message(struct sim *sim, struct sim_node *node, const struct sim_event *event)
{
    struct sl_msg msg;
    struct sl_error why = {0};
    sl_err err = sl_codec_decode(sim->codec, event->frame, event->frame_bytes, &msg, &why);
    SIM_CHECK(err == SL_OK, "to %s: %s: %s", node->name, sl_err_name(err), why.text);
    if (msg.type != SL_MSG_ENGINE_REGISTER && msg.type != SL_MSG_ENGINE_GET_REPLY) {
        mix_bytes(sim, event->frame, event->frame_bytes); /* those two contain real descriptors */
    }
    msg.received_ns = sim->now_ns;
    if (msg.type == SL_MSG_PING) {
        struct sl_msg pong = {.code = SL_OK};
        pong.body.pong.name = sl_text_of(node->name);
        pong.body.pong.pid = node->env.self.pid;
        pong.body.pong.start_time = node->env.self.start_time;
        sl_reply(&node->env, &msg, &pong);
        return SL_OK;
    }
    return node->actor->handle(node->state, &msg);
}

static sl_err node_local(struct sim_node *node, uint32_t type, const struct sim_event *event)
{
    struct sl_msg msg = {.type = type, .received_ns = node->sim->now_ns};
    if (type == SL_MSG_LOCAL_DIED) {
        msg.body.local_died = (struct sl_body_local_died){
            .cookie = event->cookie, .pid = event->proc.pid, .start_time = event->proc.start_time};
    } else if (type == SL_MSG_LOCAL_IO) {
        msg.body.local_io = (struct sl_body_local_io){
            .cookie = event->cookie, .bytes = event->io_bytes, .os_code = (uint64_t)event->os_code};
    } else {
        msg.code = event->result;
        msg.body.local_job.cookie = event->cookie;
    }
    return node->actor->handle(node->state, &msg);
}

static sl_err node_event(struct sim *sim, struct sim_node *node, struct sim_event *event)
{
    if (node->program != NULL) {
        if (event->kind == EVENT_MESSAGE) {
            mix_bytes(sim, event->frame, event->frame_bytes);
            sim_program_message(node, event);
        } else if (event->kind == EVENT_TICK && node->wake_ns <= sim->now_ns) {
            sim_program_resume(node);
        }
        return SL_OK;
    }
    switch (event->kind) {
    case EVENT_MESSAGE:
        return node_message(sim, node, event);
    case EVENT_TICK:
        if (node->wake_ns > sim->now_ns) {
            return SL_OK; /* a tick in between served this wake-up */
        }
        node->wake_ns = SL_NEVER_NS;
        return node->actor->tick(node->state, sim->now_ns);
    case EVENT_DIED:
        return node_local(node, SL_MSG_LOCAL_DIED, event);
    case EVENT_JOB:
        sim_disk_job_ended(node);
        return node_local(node, SL_MSG_LOCAL_JOB, event);
    case EVENT_IO:
        return node_local(node, SL_MSG_LOCAL_IO, event);
    case EVENT_HELLO:
        node_hello(sim, node);
        return SL_OK;
    case EVENT_NETWORK:
        return sim_network_event(node, event);
    case EVENT_STREAM:
        return node->actor->tick(node->state, sim->now_ns);
    case EVENT_BEAT:
        sim_supervisor_beat(sim, node);
        return SL_OK;
    case EVENT_RESTART:
    case EVENT_REDIS:
    case EVENT_SUPERVISOR:
        break;
    }
    return SL_OK;
}

static void event_run(struct sim *sim, struct sim_event *event)
{
    struct sim_node *node = &sim->nodes[event->node];
    if (event->kind == EVENT_REDIS) {
        sim_redis_event(sim, event);
        return;
    }
    if (event->kind == EVENT_RESTART) {
        if (!node->alive && node->incarnation == event->incarnation) {
            node_boot(sim, node);
            sim->disturbed_ns = SL_MAX(sim->disturbed_ns, sim->now_ns);
        }
        return;
    }
    bool gone = !node->alive || node->incarnation != event->incarnation;
    if (event->kind == EVENT_IO && !event->applied && !sim_disk_apply(sim, event, gone)) {
        sim_event_add(sim, *event);
        return;
    }
    if (gone) {
        return;
    }
    if (event->kind == EVENT_SUPERVISOR) { /* even if the process is stopped */
        sim_supervisor_look(sim, node);
        return;
    }
    sim_mix(sim, sim->now_ns);
    sim_mix(sim, (uint64_t)event->kind << 32 | event->node);
    if (node->stopped_until_ns > sim->now_ns) {
        struct sim_event later = *event;
        event->frame = NULL;
        later.at_ns = node->stopped_until_ns;
        if (event->tie >= node->deferred) { /* else it is waiting already */
            later.tie = node->deferred++;   /* in the order of arrival, ahead of later arrivals */
        }
        event_push(sim, later);
        return;
    }
    node->env.now_ns = sim->now_ns;
    node->beat_ns = sim->now_ns;
    sim->turn = node;
    sl_err err = node_event(sim, node, event);
    sim->turn = NULL;
    bool over = strcmp(node->name, SIM_DOOR) == 0 && err == SL_ERR_INTERNAL; /* new memory */
    if (err == SL_ERR_DEVICE || over) { /* its process ends, the supervisor starts another */
        sim_kill(sim, sim_number(node), BACK_OFF_NS);
        return;
    }
    SIM_CHECK(err == SL_OK || sl_err_class(err) != SL_CLASS_RESTART, "%s gave up: %s", node->name,
              sl_err_name(err));
    if (node->finished) {
        node_drop(sim, node);
    }
}

void sim_run_until(struct sim *sim, uint64_t at_ns)
{
    while (sim->event_count > 0 && sim->heap[0].at_ns <= at_ns) {
        struct sim_event event = event_pop(sim);
        sim->at_once = event.at_ns > sim->now_ns ? 0 : sim->at_once + 1;
        SIM_CHECK(sim->at_once < AT_ONCE_MAX,
                  "%s never rests: event kind %d at %llu ns again and again",
                  sim->nodes[event.node].name, (int)event.kind, (unsigned long long)sim->now_ns);
        sim->now_ns = SL_MAX(sim->now_ns, event.at_ns);
        sim->events_done++;
        event_run(sim, &event);
        free(event.frame);
        if (sim->seen != NULL) {
            sim->seen(sim->seen_context);
        }
    }
    sim->now_ns = SL_MAX(sim->now_ns, at_ns);
}

void sim_observe(struct sim *sim, void (*seen)(void *context), void *context)
{
    sim->seen = seen;
    sim->seen_context = context;
}

uint64_t sim_event_count(const struct sim *sim)
{
    return sim->events_done;
}

uint64_t sim_now_ns(const struct sim *sim)
{
    return sim->now_ns;
}

const char *sim_shm_dir(const struct sim *sim, uint32_t host)
{
    return sim->hosts[host].paths.shm_dir;
}

/* ---- a run ---- */

static void run_directory(char *path, size_t room, uint32_t pid, uint64_t seed, uint32_t host)
{
    (void)snprintf(path, room, "/dev/shm/sluice-sim-%u-%llu-%u", pid, (unsigned long long)seed,
                   host);
}

static void directory_empty(const char *path)
{
    DIR *directory = opendir(path);
    if (directory == NULL) {
        return;
    }
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        char file[1300];
        (void)snprintf(file, sizeof(file), "%.1000s/%.255s", path, entry->d_name);
        (void)unlink(file);
    }
    (void)closedir(directory);
    (void)rmdir(path);
}

void sim_suspend(struct sim *sim, uint64_t ns)
{
    sl_log_write(sim->log, SL_LOG_INFO, 0, "%llu: suspended for %llu us",
                 (unsigned long long)sim->now_ns, (unsigned long long)(ns / SL_NS_PER_US));
    /* Some actors read the clock before they read arrived messages. */
    for (uint32_t i = 0; i < sim->node_count; i++) {
        struct sim_node *node = &sim->nodes[i];
        if (node->alive && node->wake_ns != SL_NEVER_NS && sim_random_below(sim, 2) == 0) {
            struct sim_event event = sim_event_for(node, EVENT_TICK, sim->now_ns);
            sim_event_add(sim, event);
            node->wake_ns = sim->now_ns;
        }
        node->stalled_ns += ns;
    }
    sim->now_ns += ns;
    sim->suspended_ns += ns;
    sim->disturbed_ns = SL_MAX(sim->disturbed_ns, sim->now_ns);
    sim_supervisor_resumed(sim);
}

uint64_t sim_suspended_ns(const struct sim *sim)
{
    return sim->suspended_ns;
}

void sim_set_wall(struct sim *sim, int64_t by_ns)
{
    sim->wall_offset_ns += by_ns;
}

void sim_power_cut(struct sim *sim, uint32_t number, uint64_t restart_ns)
{
    struct sim_host *host = &sim->hosts[number];
    sl_log_write(sim->log, SL_LOG_INFO, 0, "%llu: power cut of host %u",
                 (unsigned long long)sim->now_ns, number);
    for (uint32_t i = 0; i < sim->node_count; i++) {
        struct sim_node *node = &sim->nodes[i];
        if (node->host != host) {
            continue;
        }
        bool actor = !node->fixed_name;
        bool away = actor && !node->alive; /* will be started anyway */
        sim_kill(sim, i, actor ? sim_random_below(sim, restart_ns) : SL_NEVER_NS);
        node->stopped_until_ns = away ? node->stopped_until_ns : 0;
    }
    uint32_t kept = 0; /* messages in flight are lost */
    struct sim_event *all = sim->heap;
    uint32_t count = sim->event_count;
    sim->heap = NULL;
    sim->event_count = 0;
    sim->event_capacity = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool others = all[i].kind == EVENT_RESTART || all[i].kind == EVENT_REDIS;
        if (others || sim->nodes[all[i].node].host != host) {
            event_push(sim, all[i]);
            kept++;
        } else {
            free(all[i].frame);
        }
    }
    free(all);
    SIM_CHECK(kept > 0, "no actor starts again");
    for (uint32_t i = 0; i < SIM_DISKS; i++) {
        mem_disk_crash(&host->disks[i], sim_random(sim));
    }
    directory_empty(host->paths.shm_dir);
    SIM_CHECK(mkdir(host->paths.shm_dir, 0700) == 0, "no directory");
}

uint64_t sim_hash(const struct sim *sim)
{
    return sim->hash;
}

uint32_t sim_host_add(struct sim *sim, const char *const *settings)
{
    SIM_CHECK(sim->host_count < SIM_HOSTS_MAX, "too many hosts");
    struct sim_host *host = &sim->hosts[sim->host_count];
    struct sl_paths *paths = &host->paths;
    host->settings = settings;
    char base[128];
    run_directory(base, sizeof(base), (uint32_t)getpid(), sim->seed, sim->host_count);
    (void)snprintf(paths->runtime_dir, sizeof(paths->runtime_dir), "%s", base);
    (void)snprintf(paths->shm_dir, sizeof(paths->shm_dir), "%s/shm", base);
    (void)snprintf(paths->log_dir, sizeof(paths->log_dir), "%s/log", base);
    for (uint32_t i = 0; i < SL_DISK_PATHS_MAX; i++) {
        (void)snprintf(paths->disk_paths[i], sizeof(paths->disk_paths[i]), "%s/disk%u", base, i);
    }
    for (uint32_t i = 0; i < SIM_DISKS; i++) {
        mem_disk_init(&host->disks[i]);
        host->disks[i].names_lost = true;
    }
    SIM_CHECK(mkdir(paths->runtime_dir, 0700) == 0 && mkdir(paths->shm_dir, 0700) == 0,
              "no directory %s", paths->runtime_dir);
    sim->host = sim->host_count++;
    return sim->host;
}

void sim_host_use(struct sim *sim, uint32_t host)
{
    SIM_CHECK(host < sim->host_count, "no host %u", host);
    sim->host = host;
}

struct sim *sim_create(const struct sim_options *options)
{
    struct sim *sim = calloc(1, sizeof(*sim));
    struct sl_error why = {0};
    SIM_CHECK(sim != NULL, "out of memory");
    sim->seed = sim->rng = options->seed;
    sim->now_ns = 1000 * SL_NS_PER_S;
    sim->next_pid = FIRST_PID;
    sim->delay_ns_max = options->delay_ns_max != 0 ? options->delay_ns_max : DELAY_NS_STANDARD;
    SIM_CHECK(sl_codec_create(SL_MIB * 64, &sim->codec, &why) == SL_OK, "%s", why.text);
    (void)sim_host_add(sim, options->settings);
    sim->late_of = options->late_of;
    sim->hash = options->seed;
    sim_world = sim;
    if (options->log) {
        struct sl_log_options log = {.actor = "sim", .level = SL_LOG_DEBUG, .lines_per_s = 1000000};
        SIM_CHECK(sl_log_open(&log, &sim->log, &why) == SL_OK, "%s", why.text);
    }
    return sim;
}

void sim_sweep(uint32_t pid, uint64_t seed)
{
    char path[128], shm[140];
    for (uint32_t host = 0; host < SIM_HOSTS_MAX; host++) {
        run_directory(path, sizeof(path), pid, seed, host);
        (void)snprintf(shm, sizeof(shm), "%s/shm", path);
        directory_empty(shm);
        directory_empty(path);
    }
}

static void events_drop(struct sim *sim)
{
    while (sim->event_count > 0) {
        free(event_pop(sim).frame);
    }
}

void sim_destroy(struct sim **self)
{
    struct sim *sim = *self;
    events_drop(sim);
    for (uint32_t i = 0; i < sim->node_count; i++) {
        if (sim->nodes[i].alive) {
            node_drop(sim, &sim->nodes[i]);
        }
        free(sim->nodes[i].program);
        sl_config_destroy(&sim->nodes[i].config);
    }
    events_drop(sim);
    for (uint32_t h = 0; h < sim->host_count; h++) {
        struct sim_host *host = &sim->hosts[h];
        directory_empty(host->paths.shm_dir);
        directory_empty(host->paths.runtime_dir);
        for (uint32_t i = 0; i < SIM_DISKS; i++) {
            mem_disk_fini(&host->disks[i]);
        }
    }
    sim_redis_end(sim);
    sim_supervisor_end(sim);
    sl_codec_destroy(&sim->codec);
    sl_log_close(&sim->log);
    free(sim->heap);
    free(sim);
    sim_world = NULL;
    *self = NULL;
}
