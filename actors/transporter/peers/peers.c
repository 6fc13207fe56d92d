/* actors/transporter/peers/peers.c - the table of known nodes: greetings, the right of each peer to
 * read our arena and ours to read its arena, and whether it should be asked. */
#include "actors/transporter/peers/peers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BACKOFF_GROWTH 32u
#define SILENT_BEATS   3u
#define FAILURES_MAX   3u                 /* in a row, before the back-off */
#define VACANT_NS      (60 * SL_NS_PER_S) /* after this time nothing of the peer is in progress */

/* ---- the table ---- */

struct tr_peer *tr_peer_find(struct transporter *self, const char *name)
{
    for (uint32_t i = 0; i < self->peer_count; i++) {
        if (strcmp(self->peers[i].name, name) == 0) {
            return &self->peers[i];
        }
    }
    return NULL;
}

static void peer_free(struct tr_peer *peer)
{
    free(peer->grant.key);
    free(peer->window.blob);
    free(peer->blob);
    *peer = (struct tr_peer){0};
}

struct tr_peer *tr_peer_get(struct transporter *self, const char *name, struct sl_error *why)
{
    struct tr_peer *peer = tr_peer_find(self, name);
    if (peer != NULL) {
        return peer;
    }
    uint32_t at = self->peer_count, fabric_peer = 0;
    for (uint32_t i = 0; at == TR_PEERS_MAX && i < at; i++) { /* reuse one of an expelled peer */
        peer = &self->peers[i];
        bool vacant = peer->expelled && !peer->configured && peer->pin_sets + peer->removals == 0 &&
                      self->env->now_ns >= sl_deadline_ns(peer->heard_ns, VACANT_NS);
        at = vacant ? i : at;
    }
    if (at == TR_PEERS_MAX) {
        (void)sl_fail(why, SL_ERR_LIMIT, "more than %u peers", TR_PEERS_MAX);
        return NULL;
    }
    if (sl_fabric_peer_add(self->fabric, &fabric_peer, why) != SL_OK) {
        return NULL;
    }
    peer = &self->peers[at];
    if (at < self->peer_count) { /* peers_file may list its old peer: apply it again */
        sl_missing_forget_peer(self->missing, at);
        self->peers_file_digest = 0;
    }
    peer_free(peer);
    peer->fabric_peer = fabric_peer;
    const struct sl_config *config = self->env->config;
    uint64_t beat_ns = sl_config_u64(config, SL_SET_peer_heartbeat);
    uint64_t backoff_ns = sl_config_u64(config, SL_SET_peer_backoff);
    const struct sl_peer_health_limits limits = {
        .silence_ns = SILENT_BEATS * SL_MAX(beat_ns, sl_config_u64(config, SL_SET_peer_timeout)),
        .failures_max = FAILURES_MAX,
        .backoff_min_ns = backoff_ns,
        .backoff_max_ns = BACKOFF_GROWTH * backoff_ns,
    };
    (void)snprintf(peer->name, sizeof(peer->name), "%s", name);
    sl_peer_health_init(&peer->health, &limits);
    self->peer_count = SL_MAX(self->peer_count, at + 1);
    return peer;
}

static sl_err peer_configure(struct transporter *self, const struct sl_cluster_peer *given,
                             struct sl_error *why)
{
    if (strcmp(given->name, self->node) == 0) {
        return SL_OK; /* all nodes may share one list */
    }
    if (tr_peer_find(self, given->name) != NULL) {
        return sl_fail(why, SL_ERR_CONFIG, "peers: '%s' is listed twice", given->name);
    }
    struct tr_peer *peer = tr_peer_get(self, given->name, why);
    if (peer == NULL) {
        return why != NULL && why->code != SL_OK ? why->code : SL_ERR_LIMIT;
    }
    memcpy(peer->address, given->address, sizeof(peer->address));
    peer->configured = true;
    struct sl_error no_key = {0};
    if (tr_peer_has_key(self, peer->name, &no_key) != SL_OK) {
        tr_peer_expel(self, peer, no_key.text); /* keys.c readmits it when its key exists */
        return SL_OK;
    }
    return self->control->ops->peer_add(self->control, peer->name, peer->address, why);
}

sl_err tr_peers_init(struct transporter *self, struct sl_error *why)
{
    struct sl_cluster_peer peer;
    self->peers = calloc(TR_PEERS_MAX, sizeof(*self->peers));
    if (self->peers == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u peers", TR_PEERS_MAX);
    }
    const char *at = sl_config_text(self->env->config, SL_SET_peers);
    sl_err err = sl_cluster_peer_next(&at, &peer, why);
    while (err == SL_OK && peer.name[0] != '\0') {
        err = peer_configure(self, &peer, why);
        err = err == SL_OK ? sl_cluster_peer_next(&at, &peer, why) : err;
    }
    return err;
}

void tr_peers_fini(struct transporter *self)
{
    for (uint32_t i = 0; self->peers != NULL && i < self->peer_count; i++) {
        peer_free(&self->peers[i]);
    }
    free(self->peers);
    self->peers = NULL;
    self->peer_count = 0;
}

/* ---- messages ---- */

enum way { ASK, ANSWER, REFUSE }; /* REFUSE: to the sender of the last request */

static sl_err peer_send(struct transporter *self, struct tr_peer *peer, struct sl_msg *msg,
                        enum way way)
{
    const void *frame = NULL;
    size_t length_bytes = 0;
    struct sl_error why = {0};
    msg->sender = sl_text_of(self->node);
    sl_err err = sl_codec_encode(self->codec_out, msg, &frame, &length_bytes, &why);
    if (err != SL_OK) {
        sl_log_write(self->env->log, SL_LOG_ERROR, msg->trace_id, "message to node %s: %s",
                     peer->name, why.text);
        return err;
    }
    err = way == REFUSE ? self->control->ops->refuse(self->control, frame, length_bytes)
                        : self->control->ops->send(self->control, peer->name, frame, length_bytes,
                                                   way == ANSWER);
    self->env->ops->wake_at(self->env, 0); /* a send may consume the event of a received frame */
    return err;
}

sl_err tr_peer_ask(struct transporter *self, struct tr_peer *peer, struct sl_msg *msg,
                   uint64_t *seq)
{
    msg->seq = self->next_seq++;
    sl_err err = peer_send(self, peer, msg, ASK);
    *seq = err == SL_OK ? msg->seq : 0;
    return err;
}

sl_err tr_peer_answer(struct transporter *self, struct tr_peer *peer, uint32_t type, uint64_t seq,
                      struct sl_msg *reply)
{
    reply->type = type + 1;
    reply->reply_to = seq;
    return peer_send(self, peer, reply, ANSWER);
}

void tr_peer_failed(struct transporter *self, struct tr_peer *peer)
{
    struct sl_env *env = self->env;
    bool was_broken = sl_peer_health_state(&peer->health, env->now_ns) == SL_PEER_BROKEN;
    peer->failures++;
    sl_metric_add(env->metrics, self->metric.peer_failures, 1);
    sl_peer_health_failed(&peer->health, env->now_ns, env->ops->random_u64(env));
    peer->hello_due_ns = 0; /* it may have restarted */
    if (!was_broken && sl_peer_health_state(&peer->health, env->now_ns) == SL_PEER_BROKEN) {
        sl_log_write(env->log, SL_LOG_WARN, 0,
                     "node %s failed %u times in a row: no requests for a while", peer->name,
                     peer->health.failures);
    }
}

uint64_t tr_peers_usable(const struct transporter *self)
{
    uint64_t peers = 0;
    for (uint32_t i = 0; i < self->peer_count; i++) {
        const struct tr_peer *peer = &self->peers[i];
        if (peer->address[0] != '\0' && sl_peer_health_usable(&peer->health, self->env->now_ns)) {
            peers |= UINT64_C(1) << i;
        }
    }
    return peers;
}

uint64_t tr_peers_with(struct transporter *self, uint64_t key_hash)
{
    return tr_peers_usable(self) & ~sl_missing_at(self->missing, key_hash, self->env->now_ns);
}

/* ---- greetings ---- */

bool tr_blob_replace(void **to, uint32_t *to_bytes, const void *blob, uint32_t length_bytes)
{
    void *copy = malloc(SL_MAX(length_bytes, 1u));
    if (copy == NULL) {
        return false;
    }
    if (length_bytes > 0) {
        memcpy(copy, blob, length_bytes);
    }
    free(*to);
    *to = copy;
    *to_bytes = length_bytes;
    return true;
}

static struct sl_bytes blob_of(const struct tr_peer *peer)
{
    return (struct sl_bytes){.at = peer->blob, .length = peer->blob_bytes};
}

static void hello_send(struct transporter *self, struct tr_peer *peer, uint64_t now_ns)
{
    struct sl_msg msg = {.type = SL_MSG_PEER_HELLO};
    msg.budget_ns = sl_config_u64(self->env->config, SL_SET_peer_timeout);
    msg.body.peer_hello = (struct sl_body_peer_hello){
        .node = sl_text_of(self->node),
        .incarnation = self->incarnation,
        .fabric = sl_text_of(self->fabric_name),
        .address = blob_of(peer),
    };
    uint64_t seq = 0;
    if (tr_peer_ask(self, peer, &msg, &seq) == SL_OK) {
        peer->hello_seq = seq;
        peer->hello_sent_ns = now_ns;
        peer->hello_due_ns = now_ns + sl_config_u64(self->env->config, SL_SET_peer_heartbeat);
    } else {
        peer->hello_due_ns = now_ns + TR_HELLO_SOON_NS; /* no connection at present */
    }
}

uint64_t tr_peers_step(struct transporter *self, uint64_t now_ns)
{
    uint64_t next_ns = tr_members_step(self, now_ns), alive = 0;
    next_ns = SL_MIN(next_ns, tr_peers_file_step(self, now_ns));
    for (uint32_t i = 0; i < self->peer_count; i++) {
        struct tr_peer *peer = &self->peers[i];
        if (peer->address[0] == '\0') {
            continue;
        }
        if (peer->hello_due_ns <= now_ns) {
            hello_send(self, peer, now_ns);
        }
        alive += sl_peer_health_state(&peer->health, now_ns) == SL_PEER_ALIVE ? 1 : 0;
        next_ns = SL_MIN(next_ns, peer->hello_due_ns);
    }
    sl_metric_set(self->env->metrics, self->metric.peers_alive, alive);
    return next_ns;
}

/* Whether the message is of an earlier process: a later incarnation sent a greeting since. A clock
 * may be set back, so this counts only until the later one falls silent. */
static bool is_of_the_past(const struct transporter *self, const struct tr_peer *peer,
                           uint64_t incarnation)
{
    return incarnation < peer->incarnation &&
           self->env->now_ns < sl_deadline_ns(peer->heard_ns, peer->health.limits.silence_ns);
}

/* Handles a new incarnation: its old pins end, its old keys are void, its values may differ. */
static void peer_lives(struct transporter *self, struct tr_peer *peer, uint64_t incarnation)
{
    peer->heard_ns = self->env->now_ns;
    if (incarnation == peer->incarnation) {
        return;
    }
    sl_log_write(self->env->log, SL_LOG_INFO, 0, "node %s is present, incarnation %" PRIu64,
                 peer->name, incarnation);
    peer->incarnation = incarnation;
    peer->asked_ns = peer->answered_ns = 0;
    peer->twin = (struct tr_twin){0};
    peer->complained = false;
    self->events.peer_renewed(self, peer);
    sl_peer_health_renew(&peer->health);
    sl_missing_forget_peer(self->missing, tr_peer_number(self, peer));
}

static sl_err address_taken(struct transporter *self, struct tr_peer *peer,
                            const struct sl_text *fabric, const struct sl_bytes *address,
                            struct sl_error *why)
{
    if (fabric->length != strlen(self->fabric_name) ||
        memcmp(fabric->at, self->fabric_name, fabric->length) != 0) {
        return sl_fail(why, SL_ERR_UNSUPPORTED, "its fabric is '%.15s', ours '%s'",
                       fabric->length > 0 ? fabric->at : "", self->fabric_name);
    }
    if (address->length == 0) {
        return SL_OK; /* not known yet: a later greeting contains it */
    }
    return sl_fabric_peer_address(self->fabric, peer->fabric_peer, address->at,
                                  (uint32_t)address->length, why);
}

/* Creates the peer's grant if there is none. Gives whether it is ready, with its key in *out. */
static bool window_of(struct transporter *self, struct tr_peer *peer, struct sl_item_window *out)
{
    struct tr_grant *grant = &peer->grant;
    struct sl_error why = {0};
    if (!self->arena.registered || (grant->used && grant->ending)) {
        return false;
    }
    uint64_t length_bytes = sl_arena_data_bytes(self->arena.arena);
    if (!grant->used) {
        const struct sl_fabric_grant want = {.memory = self->arena.memory,
                                             .peer = peer->fabric_peer,
                                             .length_bytes = length_bytes,
                                             .cookie = tr_peer_cookie(self, peer)};
        if (sl_fabric_grant_add(self->fabric, &want, &grant->handle, &why) != SL_OK) {
            sl_log_write(self->env->log, SL_LOG_WARN, 0, "the arena is not granted to node %s: %s",
                         peer->name, why.text);
            return false;
        }
        grant->used = true;
        grant->ready = false;
    }
    *out = (struct sl_item_window){.length_bytes = length_bytes,
                                   .key = {.at = grant->key, .length = grant->key_bytes}};
    return grant->ready;
}

void tr_peer_hello(struct transporter *self, struct tr_peer *peer, const struct sl_msg *msg,
                   const struct sl_control_frame *frame)
{
    const struct sl_body_peer_hello *hello = &msg->body.peer_hello;
    struct sl_item_window window;
    struct sl_msg reply = {.op_id = msg->op_id, .trace_id = msg->trace_id};
    struct sl_error why = {0};
    reply.code = tr_twin_check(self, peer, hello->incarnation, frame, &why);
    if (reply.code == SL_OK && is_of_the_past(self, peer, hello->incarnation)) {
        reply.code = sl_fail(&why, SL_ERR_STALE, "a later process of this node is known");
    }
    if (reply.code != SL_OK) {
        reply.type = SL_MSG_PEER_HELLO_REPLY;
        reply.reply_to = msg->seq;
        reply.text = sl_text_of(why.text);
        (void)peer_send(self, peer, &reply, REFUSE);
        return;
    }
    self->control->ops->heard(self->control, peer->name);
    peer_lives(self, peer, hello->incarnation);
    peer->asked_ns = self->env->now_ns;
    (void)snprintf(peer->from, sizeof(peer->from), "%s", frame->from);
    reply.code = address_taken(self, peer, &hello->fabric, &hello->address, &why);
    if (reply.code != SL_OK) {
        reply.text = sl_text_of(why.text);
    } else {
        reply.body.peer_hello_reply = (struct sl_body_peer_hello_reply){
            .node = sl_text_of(self->node),
            .incarnation = self->incarnation,
            .fabric = sl_text_of(self->fabric_name),
            .address = blob_of(peer),
        };
        reply.body.peer_hello_reply.windows.at = &window;
        reply.body.peer_hello_reply.windows.count = window_of(self, peer, &window);
    }
    (void)tr_peer_answer(self, peer, SL_MSG_PEER_HELLO, msg->seq, &reply);
}

/* ---- our access to a peer's arena ---- */

void tr_peer_window_close(struct transporter *self, struct tr_peer *peer)
{
    if (peer->window.used) {
        sl_fabric_key_close(self->fabric, peer->window.key);
    }
    free(peer->window.blob);
    peer->window = (struct tr_window){0};
}

static void window_open(struct transporter *self, struct tr_peer *peer,
                        const struct sl_item_window *item)
{
    struct tr_window *window = &peer->window;
    struct sl_error why = {0};
    if (window->used && window->blob_bytes == item->key.length &&
        memcmp(window->blob, item->key.at, item->key.length) == 0) {
        return;
    }
    tr_peer_window_close(self, peer);
    (void)tr_blob_replace(&window->blob, &window->blob_bytes, item->key.at,
                          (uint32_t)item->key.length);
    if (window->blob == NULL) {
        return; /* no memory: the next greeting tries again */
    }
    if (sl_fabric_key_open(self->fabric, peer->fabric_peer, window->blob, window->blob_bytes,
                           &window->key, &why) != SL_OK) {
        tr_peer_window_close(self, peer);
        sl_log_write(self->env->log, SL_LOG_WARN, 0, "key of node %s for its arena: %s", peer->name,
                     why.text);
        return;
    }
    window->used = true;
}

/* Gives whether the reply had a key for the arena. */
static bool window_taken(struct transporter *self, struct tr_peer *peer,
                         const struct sl_body_peer_hello_reply *reply)
{
    for (uint64_t i = 0; i < reply->windows.count; i++) {
        if (reply->windows.at[i].arena == 0) {
            window_open(self, peer, &reply->windows.at[i]);
            return true;
        }
    }
    tr_peer_window_close(self, peer);
    return false;
}

void tr_peer_hello_answered(struct transporter *self, struct tr_peer *peer,
                            const struct sl_msg *reply, const struct sl_control_frame *frame)
{
    const struct sl_body_peer_hello_reply *body = &reply->body.peer_hello_reply;
    uint64_t now_ns = self->env->now_ns;
    struct sl_error why = {0};
    sl_err err = reply->code;
    if (err == SL_ERR_EXISTS) {
        tr_name_reported(self, peer,
                         reply->text.length > 0 ? reply->text.at : "another node has our name");
        return;
    }
    if (err != SL_OK) {
        (void)sl_fail(&why, err, "%s", reply->text.length > 0 ? reply->text.at : sl_err_text(err));
    } else if (body->node.length != strlen(peer->name) ||
               memcmp(body->node.at, peer->name, body->node.length) != 0) {
        err = sl_fail(&why, SL_ERR_PROTOCOL, "it calls itself '%.31s'", body->node.at);
    } else if (tr_twin_check(self, peer, body->incarnation, frame, NULL) != SL_OK ||
               is_of_the_past(self, peer, body->incarnation)) {
        return;
    } else {
        peer_lives(self, peer, body->incarnation);
        peer->answered_ns = now_ns;
        err = address_taken(self, peer, &body->fabric, &body->address, &why);
    }
    if (err != SL_OK) {
        if (!peer->complained) {
            sl_log_write(self->env->log, SL_LOG_WARN, 0, "node %s cannot be used: %s", peer->name,
                         why.text);
        }
        peer->complained = true;
        return;
    }
    if (reply->reply_to == peer->hello_seq) {
        peer->round_trip_ns = now_ns - peer->hello_sent_ns;
    }
    if (window_taken(self, peer, body)) {
        sl_peer_health_heard(&peer->health, now_ns);
    } else { /* that node is starting and has nothing to read yet */
        peer->hello_due_ns = SL_MIN(peer->hello_due_ns, now_ns + TR_HELLO_SOON_NS);
    }
}

/* ---- callbacks of the fabric ---- */

void tr_fabric_address(void *context, uint32_t fabric_peer, const void *blob, uint32_t length_bytes)
{
    struct transporter *self = context;
    for (uint32_t i = 0; i < self->peer_count; i++) {
        struct tr_peer *peer = &self->peers[i];
        if (peer->fabric_peer != fabric_peer) {
            continue;
        }
        bool same = peer->blob_bytes == length_bytes && peer->blob != NULL &&
                    memcmp(peer->blob, blob, length_bytes) == 0;
        if (!same) {
            (void)tr_blob_replace(&peer->blob, &peer->blob_bytes, blob, length_bytes);
            peer->hello_due_ns = 0;
        }
        return;
    }
}

/* Logs the reason of a link failure once, until the link is up again. */
void tr_peers_link(struct transporter *self, uint32_t fabric_peer, enum sl_fabric_link link,
                   const struct sl_error *why)
{
    for (uint32_t i = 0; i < self->peer_count; i++) {
        struct tr_peer *peer = &self->peers[i];
        if (peer->fabric_peer != fabric_peer) {
            continue;
        }
        if (link == SL_FABRIC_DOWN && !peer->link_logged) {
            sl_log_write(self->env->log, SL_LOG_INFO, 0, "node %s: no link for values: %s",
                         peer->name, why->text);
        }
        peer->link_logged =
            link == SL_FABRIC_UP ? false : peer->link_logged || link == SL_FABRIC_DOWN;
        return;
    }
}

static struct tr_grant *grant_of(struct transporter *self, uint32_t handle)
{
    for (uint32_t i = 0; i < self->peer_count; i++) {
        struct tr_grant *grant = &self->peers[i].grant;
        if (grant->used && grant->handle == handle) {
            return grant;
        }
    }
    return NULL;
}

/* The key travels in the next answer to a greeting. */
void tr_peers_granted(struct transporter *self, uint32_t handle, const struct sl_bytes *key)
{
    struct tr_grant *grant = grant_of(self, handle);
    if (grant != NULL) {
        grant->ready = key->length > 0 && tr_blob_replace(&grant->key, &grant->key_bytes, key->at,
                                                          (uint32_t)key->length);
        grant->ending = !grant->ready; /* no memory: the next greeting makes a new grant */
        if (grant->ending) {
            (void)sl_fabric_grant_end(self->fabric, handle);
        }
    }
}

void tr_peers_grant_ended(struct transporter *self, uint32_t handle)
{
    struct tr_grant *grant = grant_of(self, handle);
    if (grant != NULL) {
        grant->used = grant->ready = grant->ending = false; /* a greeting makes a new one */
    }
}

/* ---- sluicectl nodes ---- */

static const char *state_text(const struct transporter *self, const struct tr_peer *peer,
                              uint64_t now_ns)
{
    static const char *const texts[] = {"away", "alive", "broken"};
    return peer->expelled              ? "no key"
           : tr_twin_lives(self, peer) ? "twice"
           : peer->address[0] == '\0'  ? "asks"
                                       : texts[sl_peer_health_state(&peer->health, now_ns)];
}

/* Adds members of the directory that are no peers, up to the limit. Gives the new count. */
static uint32_t members_list(struct transporter *self, uint32_t count)
{
    const struct sl_directory_member *members = NULL;
    uint32_t member_count =
        self->guide.members != NULL ? self->guide.members(self->guide.context, &members) : 0;
    for (uint32_t i = 0; i < member_count && count < TR_PEERS_MAX; i++) {
        const struct sl_directory_member *member = &members[i];
        if (strlen(member->name) < TR_NAME_BYTES && tr_peer_find(self, member->name) == NULL) {
            self->nodes[count++] = (struct sl_item_node){
                .name = sl_text_of(member->name),
                .address = sl_text_of(member->control),
                .state = sl_text_of(tr_member_state(self, member)),
                .link = sl_text_of("down"),
                .source = sl_text_of("directory"),
            };
        }
    }
    return count;
}

void tr_nodes(struct transporter *self, const struct sl_msg *msg)
{
    static const char *const links[] = {"connecting", "up", "down"};
    struct sl_msg reply = {.code = SL_OK};
    struct sl_body_nodes_reply *body = &reply.body.nodes_reply;
    uint64_t now_ns = self->env->now_ns;
    for (uint32_t i = 0; i < self->peer_count; i++) {
        const struct tr_peer *peer = &self->peers[i];
        self->nodes[i] = (struct sl_item_node){
            .name = sl_text_of(peer->name),
            .address = sl_text_of(peer->expelled ? peer->kept : peer->address),
            .state = sl_text_of(state_text(self, peer, now_ns)),
            .incarnation = peer->incarnation,
            .round_trip_ns = peer->round_trip_ns,
            .last_seen_ago_ns = peer->heard_ns == 0 ? 0 : now_ns - peer->heard_ns,
            .read_bytes = peer->read_bytes,
            .read_values = peer->read_values,
            .failures = peer->failures,
            .pinned_values = peer->pinned,
            .link = sl_text_of(links[sl_fabric_peer_link(self->fabric, peer->fabric_peer)]),
            .source = sl_text_of(peer->configured           ? "peers"
                                 : peer->address[0] != '\0' ? "directory"
                                                            : ""),
        };
    }
    body->name = sl_text_of(self->node);
    body->listen = sl_text_of(sl_config_text(self->env->config, SL_SET_cluster_listen));
    body->fabric = sl_text_of(self->fabric != NULL ? sl_fabric_about(self->fabric) : "off");
    body->nodes.at = self->nodes;
    body->nodes.count = members_list(self, self->peer_count);
    sl_reply(self->env, msg, &reply);
}
