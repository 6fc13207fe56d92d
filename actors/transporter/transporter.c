/* actors/transporter/transporter.c - the actor's entry points: opens fabric and control plane, and
 * dispatches messages of this node and frames of peers. */
#include "actors/transporter/transporter.h"

#include "actors/transporter/control/network.h"
#include "actors/transporter/handover/handover.h"
#include "actors/transporter/internal.h"
#include "actors/transporter/peers/peers.h"
#include "actors/transporter/publish/service.h"
#include "actors/transporter/pull/pull.h"
#include "actors/transporter/regions/pools.h"
#include "actors/transporter/regions/regions.h"
#include "ipc/msg/sl_cluster.h"
#include "runtime/net/fabric/core/movers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the fabric; off unless configured ---- */

static void fabric_done(void *context, const struct sl_fabric_done *done)
{
    if (!tr_take_read(context, done)) {
        tr_fetch_batch_read(context, done);
    }
}

void tr_fabric_granted(void *context, uint32_t grant, const void *key, uint32_t key_bytes,
                       const struct sl_error *why)
{
    const struct sl_bytes granted = {.at = key, .length = key_bytes};
    if (!tr_lend_granted(context, grant, &granted, why)) {
        tr_peers_granted(context, grant, &granted);
    }
}

void tr_fabric_grant_ended(void *context, uint32_t grant)
{
    if (!tr_lend_grant_ended(context, grant)) {
        tr_peers_grant_ended(context, grant);
    }
}

static void fabric_link(void *context, uint32_t peer, enum sl_fabric_link link,
                        const struct sl_error *why)
{
    struct transporter *self = context;
    tr_peers_link(self, peer, link, why);
    if (link == SL_FABRIC_DOWN && self->whole_arena) { /* verbs */
        tr_lend_link_lost(self, peer);
    }
}

static void fabric_registered(void *context, uint32_t memory, uint32_t region_index,
                              const struct sl_error *why)
{
    (void)region_index;
    if (!tr_pools_registered(context, memory, why)) {
        tr_memory_registered(context, memory, why);
    }
}

static void fabric_options(struct transporter *self, const char *kind,
                           struct sl_fabric_options *options)
{
    const struct sl_config *config = self->env->config;
    sl_fabric_options_init(options, kind);
    options->address = sl_config_text(config, SL_SET_fabric_address);
    options->nic = self->nic;
    options->lanes = (uint32_t)sl_config_u64(config, SL_SET_fabric_lanes);
    options->depth = (uint32_t)sl_config_u64(config, SL_SET_fabric_depth);
    options->unit_bytes = sl_config_u64(config, SL_SET_fabric_unit);
    options->peers_max = TR_PEERS_MAX;
    options->connections_max = (uint32_t)sl_config_u64(config, SL_SET_fabric_connections_max);
    options->unauthenticated_max =
        (uint32_t)sl_config_u64(config, SL_SET_fabric_unauthenticated_max);
    options->movers = sl_movers_count((uint32_t)sl_config_u64(config, SL_SET_fabric_io_threads));
    options->stall_ns = sl_config_u64(config, SL_SET_fabric_progress_timeout);
    options->clear = !sl_config_bool(config, SL_SET_fabric_encryption);
    options->region_bytes_max = self->limit.bytes;
    /* One key for each part of a hand-over, in addition to those for the arena. */
    uint32_t parts = (uint32_t)sl_config_u64(config, SL_SET_ticket_parts_max);
    options->grants_max = SL_MIN(options->grants_max + parts, SL_FABRIC_SLOTS_MAX);
    options->keys_max = SL_MIN(options->keys_max + parts, SL_FABRIC_SLOTS_MAX);
    bool pools = sl_config_bool(config, SL_SET_fabric_pools);
    uint32_t fetch_batches = (uint32_t)sl_config_u64(config, SL_SET_fetch_batches_max);
    options->memories_max = 1 + (pools ? TR_SPANS_MAX : 0);
    options->places_max = pools ? fetch_batches * TR_BATCH_PLACES_MAX + TR_HANDOVER_PLACES_MAX : 0;
    options->events = (struct sl_fabric_events){
        .context = self,
        .done = fabric_done,
        .registered = fabric_registered,
        .address = tr_fabric_address,
        .link = fabric_link,
        .granted = tr_fabric_granted,
        .grant_ended = tr_fabric_grant_ended,
        .may_read = tr_holder_may_read,
    };
    if (self->env->network != NULL) {
        options->backend = self->env->network->backend;
        options->backend_context = self->env->network->context;
    }
    self->fabric_name = kind;
    self->whole_arena = strcmp(kind, "verbs") == 0;
}

static sl_err fabric_open(struct transporter *self, struct sl_error *why)
{
    struct sl_env *env = self->env;
    struct sl_fabric_options options;
    const char *kind = sl_config_text(env->config, SL_SET_fabric);
    if (strcmp(kind, "off") == 0) {
        return SL_OK;
    }
    fabric_options(self, kind, &options);
    if (env->ops->watch_fd == NULL) {
        return sl_fail(why, SL_ERR_UNSUPPORTED, "fabric: no descriptors in this environment");
    }
    sl_err err = sl_fabric_open(&options, &self->fabric, why);
    if (err == SL_OK) {
        err = env->ops->watch_fd(env, sl_fabric_fd(self->fabric), why);
    }
    if (err == SL_OK) {
        self->limit.bytes = sl_fabric_region_bytes_max(self->fabric); /* the device's bound */
        sl_log_write(env->log, SL_LOG_INFO, 0, "fabric: %s", sl_fabric_about(self->fabric));
        env->ops->wake_at(env, 0);
    }
    return err;
}

/* ---- other nodes; none unless configured ---- */

static const struct sl_metric_row metric_rows[] = {
    SL_METRIC_ROW(transporter, metric.fetches, "fetches"),
    SL_METRIC_ROW(transporter, metric.keys_requested, "keys_requested"),
    SL_METRIC_ROW(transporter, metric.keys_found, "keys_found"),
    SL_METRIC_ROW(transporter, metric.keys_missing, "keys_missing"),
    SL_METRIC_ROW(transporter, metric.values_read, "values_read"),
    SL_METRIC_ROW(transporter, metric.bytes_read, "bytes_read"),
    SL_METRIC_ROW(transporter, metric.fetch_batches, "batches"),
    SL_METRIC_ROW(transporter, metric.peers_alive, "peers_alive"),
    SL_METRIC_ROW(transporter, metric.peer_failures, "peer_failures"),
    SL_METRIC_ROW(transporter, metric.peer_timeouts, "peer_timeouts"),
    SL_METRIC_ROW(transporter, metric.frames_refused, "frames_refused"),
    SL_METRIC_ROW(transporter, metric.digests_bad, "digests_bad"),
    SL_METRIC_ROW(transporter, metric.unanswered, "lookups_unanswered"),
    SL_METRIC_ROW(transporter, metric.names_twice, "names_twice"),
    SL_METRIC_ROW(transporter, metric.pins_taken, "pins_taken"),
    SL_METRIC_ROW(transporter, metric.pins_expired, "pins_expired"),
    SL_METRIC_ROW(transporter, metric.pins_open, "pin_sets_open"),
    SL_METRIC_ROW(transporter, metric.values_served, "values_served"),
    SL_METRIC_ROW(transporter, metric.promoted, "values_promoted"),
    SL_METRIC_ROW(transporter, metric.fences, "fences"),
    SL_METRIC_ROW(transporter, metric.seeks, "seeks"),
    SL_METRIC_ROW(transporter, metric.keys_looked_up, "keys_looked_up"),
};

static sl_err control_open(struct transporter *self, struct sl_error *why)
{
    struct sl_env *env = self->env;
    const struct sl_control_options options = {
        .node = self->node,
        .listen = sl_config_text(env->config, SL_SET_cluster_listen),
        .keys = sl_config_text(env->config, SL_SET_cluster_keys),
        .plaintext = sl_config_bool(env->config, SL_SET_cluster_plaintext),
        .queue_messages = (uint32_t)sl_config_u64(env->config, SL_SET_queue_messages),
        .message_bytes_max = sl_config_u64(env->config, SL_SET_message_bytes_max),
        .unauthenticated_max = (uint32_t)sl_config_u64(env->config, SL_SET_fabric_connections_max),
        .of_address_max = (uint32_t)sl_config_u64(env->config, SL_SET_fabric_unauthenticated_max),
        .unauth = tr_unknown_node,
        .context = self,
    };
    const struct sl_network *network = env->network;
    sl_err err = network != NULL
                     ? network->control_open(network->context, &options, &self->control, why)
                     : sl_control_open(&options, &self->control, why);
    if (err == SL_OK) {
        err = env->ops->watch_fd(env, self->control->ops->fd(self->control), why);
    }
    if (err == SL_OK && options.plaintext) {
        sl_log_write(env->log, SL_LOG_WARN, 0,
                     "cluster_plaintext: any host that connects may read all of the memory");
    }
    return err;
}

static void engine_ends(struct transporter *self, uint64_t engine_id)
{
    tr_pulls_engine_ends(self, engine_id);
    tr_handover_engine_ends(self, engine_id);
}

static void peer_renewed(struct transporter *self, const struct tr_peer *peer)
{
    tr_holder_renewed(self, peer);
    tr_handover_peer_renewed(self, peer);
}

sl_err tr_cluster_init(struct transporter *self, struct sl_error *why)
{
    struct sl_env *env = self->env;
    uint64_t message_bytes_max = sl_config_u64(env->config, SL_SET_message_bytes_max);
    if (self->fabric == NULL) {
        return sl_fail(why, SL_ERR_CONFIG, "cluster_listen and peers need a fabric: set fabric");
    }
    sl_metrics_define(env->metrics, metric_rows, SL_COUNT(metric_rows), self);
    /* Taken from the wall clock, so that it grows with every start, also after a reboot. */
    self->incarnation = sl_clock_wall_ns();
    self->next_seq = SL_MAX(env->now_ns, UINT64_C(1));
    self->next_op_id = env->ops->random_u64(env) >> 1 | 1;
    sl_err err = sl_cluster_name(env->config, self->node, why);
    err = err == SL_OK ? sl_codec_create(message_bytes_max, &self->codec_in, why) : err;
    err = err == SL_OK ? sl_codec_create(message_bytes_max, &self->codec_out, why) : err;
    err = err == SL_OK && self->control == NULL ? control_open(self, why) : err;
    err = err == SL_OK ? tr_fetch_init(self, why) : err;
    err = err == SL_OK ? tr_holder_init(self, why) : err;
    err = err == SL_OK ? tr_seek_init(self, why) : err;
    if (err == SL_OK) { /* a fetch batch: one call, and an ABORT for each unit */
        uint32_t engines = (uint32_t)sl_config_u64(env->config, SL_SET_engines_max) + 1;
        uint32_t takes = (uint32_t)sl_config_u64(env->config, SL_SET_tickets_max);
        err = sl_calls_create(env,
                              TR_PIN_SETS_MAX + TR_SEEKS_MAX + self->fetch_batch_max * 8 + engines +
                                  takes + TR_HANDOVER_READS_MAX,
                              &self->calls, why);
    }
    err = err == SL_OK ? tr_pools_init(self, why) : err;
    err = err == SL_OK ? tr_pulls_init(self, why) : err;
    err = err == SL_OK ? tr_peers_init(self, why) : err;
    err = err == SL_OK ? tr_keys_init(self, why) : err;
    err = err == SL_OK ? tr_handover_init(self, why) : err;
    env->ops->wake_at(env, 0);
    return err;
}

void tr_cluster_fini(struct transporter *self)
{
    if (self->calls != NULL) {
        sl_calls_destroy(&self->calls);
    }
    self->questions = NULL;
    tr_handover_fini(self);
    tr_seek_fini(self);
    tr_holder_fini(self);
    tr_fetch_fini(self);
    tr_pulls_fini(self);
    tr_keys_fini(self);
    tr_peers_fini(self);
    sl_codec_destroy(&self->codec_in);
    sl_codec_destroy(&self->codec_out);
}

static sl_err transporter_init(void *state, struct sl_env *env, struct sl_error *why)
{
    struct transporter *self = state;
    if (sl_config_u64(env->config, SL_SET_rank) != 0) {
        return sl_fail(why, SL_ERR_CONFIG, "rank: a node has one transporter, of rank 0");
    }
    self->env = env;
    self->events = (struct tr_events){
        .peer_renewed = peer_renewed,
        .peer_expelled = tr_handover_peer_expelled,
        .fences_over = tr_fences_over,
        .engine_ends = engine_ends,
    };
    const struct sl_directory_events events = {
        .context = self, .found = tr_holders_found, .members = tr_members_changed};
    sl_err err = tr_regions_init(self, why);
    err = err == SL_OK ? fabric_open(self, why) : err;
    err = err == SL_OK ? tr_service_open(self, &events, why) : err;
    if (err == SL_OK && sl_cluster_wanted(env->config)) {
        err = tr_cluster_init(self, why);
        err = err == SL_OK ? tr_service_join(self, why) : err;
    } else if (sl_cluster_name(env->config, self->node, NULL) != SL_OK) {
        (void)snprintf(self->node, sizeof(self->node), "local"); /* no peer sees it */
    }
    return err;
}

/* ---- frames of peers ---- */

static void frame_refused(struct transporter *self, const char *peer, const struct sl_error *why)
{
    sl_metric_add(self->env->metrics, self->metric.frames_refused, 1);
    sl_log_write(self->env->log, SL_LOG_WARN, 0, "frame of node %s refused: %s",
                 peer != NULL ? peer : "?", why->text);
}

static void answered(struct transporter *self, struct tr_peer *peer, const struct sl_msg *msg)
{
    if (!tr_question_answered(self, peer, msg) && msg->type == SL_MSG_PEER_PIN_REPLY) {
        tr_fetch_batch_pinned_late(self, peer, msg);
    }
}

/* Message types that peers may send; all others are refused. */
static const struct frame {
    uint32_t type;
    void (*handle)(struct transporter *self, struct tr_peer *peer,
                   const struct sl_msg *msg); /* NULL: tr_frame does all that is needed */
} frames[] = {
    {SL_MSG_PEER_HELLO, NULL},
    {SL_MSG_PEER_HELLO_REPLY, NULL}, /* see tr_frame */
    {SL_MSG_PEER_PIN, tr_holder_pin},
    {SL_MSG_PEER_PIN_REPLY, answered},
    {SL_MSG_PEER_UNPIN, tr_holder_unpin},
    {SL_MSG_PEER_UNPIN_REPLY, NULL},
    {SL_MSG_SEEK, tr_seek_asked},
    {SL_MSG_SEEK_REPLY, answered},
    {SL_MSG_HANDOVER_NOTIFY, tr_handover_notify_frame},
    {SL_MSG_HANDOVER_NOTIFY_REPLY, NULL},
    {SL_MSG_PEER_LEND, tr_take_announced},
    {SL_MSG_PEER_LEND_REPLY, tr_lend_answered},
};

/* Finds the row; NULL: peers may not send this type, or not in this direction. */
static const struct frame *frame_find(const struct sl_control_frame *frame,
                                      const struct sl_msg *msg)
{
    for (size_t i = 0; i < SL_COUNT(frames); i++) {
        if (frames[i].type == msg->type) {
            return frame->answer == SL_MSG_IS_REPLY(msg->type) ? &frames[i] : NULL;
        }
    }
    return NULL;
}

void tr_frame(struct transporter *self, const struct sl_control_frame *frame)
{
    struct sl_msg msg;
    struct sl_error why = {0};
    if (frame->bytes == NULL) {
        return; /* counted by the control plane */
    }
    sl_err err = sl_codec_decode(self->codec_in, frame->bytes, frame->length_bytes, &msg, &why);
    const struct frame *row = err == SL_OK ? frame_find(frame, &msg) : NULL;
    if (err == SL_OK && row == NULL) {
        err = sl_fail(&why, SL_ERR_PERMISSION, "peers may not send %s", sl_msg_name(msg.type));
    }
    const char *name = frame->peer != NULL ? frame->peer : err == SL_OK ? msg.sender.at : NULL;
    if (err == SL_OK &&
        (strcmp(msg.sender.at, name) != 0 || !sl_actor_name_is_clean(name, strlen(name)) ||
         strcmp(name, self->node) == 0)) {
        err = sl_fail(&why, SL_ERR_PERMISSION, "it calls itself '%.31s'", msg.sender.at);
    }
    struct tr_peer *peer = err == SL_OK ? tr_peer_find(self, name) : NULL;
    if (err == SL_OK && peer == NULL && msg.type == SL_MSG_PEER_HELLO) {
        peer = tr_peer_get(self, name, &why);
        err = peer == NULL ? why.code : SL_OK;
    }
    if (err == SL_OK && peer != NULL && peer->expelled) {
        err = sl_fail(&why, SL_ERR_PERMISSION, "its key was removed");
    }
    if (err == SL_OK && peer == NULL) {
        err = sl_fail(&why, SL_ERR_PERMISSION, "%s without a greeting", sl_msg_name(msg.type));
    }
    if (err == SL_OK && frame->other && msg.type != SL_MSG_PEER_HELLO &&
        tr_twin_lives(self, peer)) {
        err = sl_fail(&why, SL_ERR_PERMISSION, "%s", peer->twin.text);
    }
    if (err != SL_OK) {
        frame_refused(self, name, &why);
        return;
    }
    msg.received_ns = self->env->now_ns;
    SL_ASSERT(row != NULL);
    if (msg.type == SL_MSG_PEER_HELLO) {
        tr_peer_hello(self, peer, &msg, frame);
    } else if (msg.type == SL_MSG_PEER_HELLO_REPLY) {
        tr_peer_hello_answered(self, peer, &msg, frame);
    } else if (!frame->answer) {
        self->control->ops->heard(self->control, name);
    }
    if (row->handle != NULL) {
        row->handle(self, peer, &msg);
    }
}

/* Handles received frames, a bounded number. True: there may be more. */
static bool frames_take(struct transporter *self)
{
    struct sl_control_frame frame;
    for (uint32_t i = 0; i < TR_FRAMES_A_TURN; i++) {
        if (!self->control->ops->receive(self->control, &frame)) {
            return false;
        }
        tr_frame(self, &frame);
    }
    return true;
}

/* ---- messages from this node ---- */

void tr_calls_ended(struct transporter *self, const struct sl_call *call,
                    const struct sl_msg *reply)
{
    static void (*const ended[TR_CALLS])(struct transporter * self, uint32_t index,
                                         const struct sl_msg *reply) = {
        [TR_CALL_FETCH_BATCH] = tr_fetch_batch_answered,
        [TR_CALL_PROMOTE] = tr_holder_promoted,
        [TR_CALL_REMOVAL] = tr_seek_removed,
        [TR_CALL_ENGINES] = tr_pools_listed,
        [TR_CALL_ENGINE] = tr_pools_described,
        [TR_CALL_EXPORT] = tr_pools_exported,
        [TR_CALL_TAKE] = tr_take_opened,
        [TR_CALL_READ] = tr_read_answered};
    uint64_t kind = call->cookie >> 32;
    if (ended[kind] != NULL) { /* else the answer is ignored */
        ended[kind](self, (uint32_t)call->cookie, reply);
    }
}

static void reply_handle(struct transporter *self, const struct sl_msg *msg)
{
    struct sl_call call;
    if (self->calls == NULL) {
        return;
    }
    if (sl_calls_match(self->calls, msg, &call)) {
        tr_calls_ended(self, &call, msg);
    } else if (msg->type == SL_MSG_HELLO_REPLY && msg->code == SL_OK && !self->pins_known) {
        /* Our HELLO named the pin file, which exists since init. A registrar that starts later
         * opens the pin files that its predecessor knew before it serves. */
        self->pins_known = true;
        self->memory_due_ns = 0;
    }
}

static void bring_handle(struct transporter *self, const struct sl_msg *msg)
{
    (msg->body.bring.ticket.length > 0 ? tr_take : tr_bring)(self, msg);
}

static const struct {
    uint32_t type;
    bool cluster; /* only with a cluster configured */
    void (*handle)(struct transporter *self, const struct sl_msg *msg);
} requests[] = {
    {SL_MSG_BRING, true, bring_handle},
    {SL_MSG_SEEK, true, tr_seek},
    {SL_MSG_FENCE, false, tr_fence},
    {SL_MSG_NODES, false, tr_nodes},
    {SL_MSG_HANDOVER_NOTIFY, false, tr_handover_notify},
    {SL_MSG_LEND, false, tr_lend},
    {SL_MSG_ENGINE_OVER, false, tr_pools_over},
    {SL_MSG_ENGINE_ADDED, false, tr_pools_added},
};

static void request_handle(struct transporter *self, const struct sl_msg *msg)
{
    for (size_t i = 0; i < SL_COUNT(requests); i++) {
        if (requests[i].type == msg->type && (!requests[i].cluster || self->calls != NULL)) {
            requests[i].handle(self, msg);
            return;
        }
    }
    sl_reply_code(self->env, msg, SL_ERR_UNSUPPORTED, NULL);
}

/* Does everything that is due and requests the next wake-up. */
static void cluster_step(struct transporter *self, uint64_t now_ns)
{
    struct sl_env *env = self->env;
    struct sl_call call;
    uint64_t next_ns = frames_take(self) ? 0 : SL_NEVER_NS;
    while (sl_calls_expired(self->calls, now_ns, &call)) {
        tr_calls_ended(self, &call, NULL);
    }
    tr_memory_step(self, now_ns);
    next_ns = SL_MIN(next_ns, self->memory_due_ns);
    next_ns = SL_MIN(next_ns, tr_keys_step(self, now_ns));
    next_ns = SL_MIN(next_ns, tr_peers_step(self, now_ns));
    next_ns = SL_MIN(next_ns, tr_holder_step(self, now_ns));
    next_ns = SL_MIN(next_ns, tr_fetch_step(self, now_ns));
    next_ns = SL_MIN(next_ns, tr_pools_step(self, now_ns));
    env->ops->wake_at(env, next_ns);
}

static void fabric_wake(struct transporter *self)
{
    if (self->fabric != NULL) {
        self->env->ops->wake_at(self->env, sl_fabric_wake_at(self->fabric));
    }
}

static sl_err transporter_handle(void *state, const struct sl_msg *msg)
{
    struct transporter *self = state;
    if (SL_MSG_IS_REPLY(msg->type)) {
        reply_handle(self, msg);
    } else if (msg->type == SL_MSG_LOCAL_DIED) {
        tr_pools_died(self, &msg->body.local_died);
    } else if (msg->type < SL_MSG_LOCAL_IO) {
        request_handle(self, msg);
    }
    if (self->calls != NULL) {
        cluster_step(self, self->env->now_ns);
    }
    tr_handover_step(self, self->env->now_ns);
    return SL_OK;
}

static sl_err transporter_tick(void *state, uint64_t now_ns)
{
    struct transporter *self = state;
    if (self->fabric != NULL) {
        sl_fabric_step(self->fabric, now_ns);
    }
    if (self->calls != NULL) {
        cluster_step(self, now_ns);
    }
    tr_handover_step(self, now_ns);
    fabric_wake(self);
    tr_service_step(self, now_ns);
    tr_health_step(self);
    if (self->memory_replaced) { /* what this process and the peers know about it is void */
        sl_log_write(self->env->log, SL_LOG_WARN, 0, "the node's memory was recreated: restarting");
        return SL_ERR_INTERNAL;
    }
    return SL_OK;
}

static void transporter_drain(void *state)
{
    struct transporter *self = state;
    self->drained = true;
    self->env->ops->finish(self->env);
}

static void transporter_fini(void *state)
{
    struct transporter *self = state;
    tr_service_close(self);
    if (self->control != NULL) {
        self->env->ops->unwatch_fd(self->env, self->control->ops->fd(self->control));
        sl_control_close(&self->control);
    }
    if (self->fabric != NULL) { /* from here on nothing accesses the arena */
        self->env->ops->unwatch_fd(self->env, sl_fabric_fd(self->fabric));
        sl_fabric_close(&self->fabric);
    }
    tr_cluster_fini(self);
    tr_pools_fini(self);
    tr_memory_fini(self);
}

const struct sl_actor sl_transporter_actor = {
    .role = "transporter",
    .ranked = true,
    .state_bytes = sizeof(struct transporter),
    .init = transporter_init,
    .handle = transporter_handle,
    .tick = transporter_tick,
    .drain = transporter_drain,
    .fini = transporter_fini,
};
