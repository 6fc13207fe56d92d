/* actors/transporter/peers/twins.c - detects two nodes with one name, and thus one key: a copied
 * key directory, or a cloned machine.
 *
 * A restarted peer has a new incarnation, and so has another node with its name. The difference:
 * when a peer has restarted, its former process and its connections have ended. So while the known
 * process answers and its connection exists, another incarnation is refused, regardless of which
 * clock is ahead. It is accepted when the first one is silent or its connection has ended. A late
 * message of an ended process does not count: the other node must be noticed twice.
 *
 * Both nodes are notified by an answer to PEER_HELLO (SL_ERR_EXISTS), which the first node gets
 * unasked. Each logs it, and is degraded for as long as the notices continue. */
#include "actors/transporter/peers/peers.h"
#include "actors/transporter/publish/service.h"

#include <stdio.h>
#include <string.h>

static bool is_recent(const struct transporter *self, const struct tr_peer *peer, uint64_t at_ns)
{
    return at_ns != 0 && self->env->now_ns < sl_deadline_ns(at_ns, peer->health.limits.silence_ns);
}

/* Whether the connection of the peer's last request still exists: sends an unexpected answer. */
static bool first_is_connected(struct transporter *self, struct tr_peer *peer)
{
    struct sl_msg nothing = {.code = SL_OK};
    return tr_peer_answer(self, peer, SL_MSG_PEER_UNPIN, 0, &nothing) == SL_OK;
}

/* Whether the known process of the peer is alive beside the sender of this frame. */
static bool first_is_alive(struct transporter *self, struct tr_peer *peer,
                           const struct sl_control_frame *frame)
{
    if (is_recent(self, peer, peer->asked_ns)) {
        return (frame->answer || frame->other) && first_is_connected(self, peer);
    }
    if (!frame->answer && is_recent(self, peer, peer->answered_ns)) {
        peer->hello_due_ns = 0; /* it never asks us: greet it at its address to find out soon */
        return true;
    }
    return false;
}

static const char *first_place(const struct tr_peer *peer)
{
    return peer->address[0] != '\0' ? peer->address : peer->from[0] != '\0' ? peer->from : "?";
}

bool tr_twin_lives(const struct transporter *self, const struct tr_peer *peer)
{
    return peer->twin.text[0] != '\0' && is_recent(self, peer, peer->twin.heard_ns);
}

/* Called when the other node was noticed a second time. */
static void twin_found(struct transporter *self, struct tr_peer *peer,
                       const struct sl_control_frame *frame)
{
    const char *place = frame->answer ? peer->address : frame->from;
    const char *first = frame->answer ? peer->from : first_place(peer);
    if (peer->twin.text[0] != '\0') {
        return;
    }
    (void)snprintf(
        peer->twin.text, sizeof(peer->twin.text),
        "two nodes are named '%s': the first, at %.64s, is kept; the one at %.64s is refused",
        peer->name, first[0] != '\0' ? first : "?", place[0] != '\0' ? place : "?");
    sl_log_write(self->env->log, SL_LOG_ERROR, 0, "%s", peer->twin.text);
}

sl_err tr_twin_check(struct transporter *self, struct tr_peer *peer, uint64_t incarnation,
                     const struct sl_control_frame *frame, struct sl_error *why)
{
    uint64_t now_ns = self->env->now_ns;
    if (peer->incarnation == 0 || incarnation == peer->incarnation ||
        !first_is_alive(self, peer, frame)) {
        return SL_OK;
    }
    if (peer->twin.incarnation != incarnation || !is_recent(self, peer, peer->twin.heard_ns)) {
        peer->twin = (struct tr_twin){.incarnation = incarnation, .since_ns = now_ns};
    }
    peer->twin.heard_ns = now_ns;
    uint64_t beat_ns = sl_config_u64(self->env->config, SL_SET_peer_heartbeat);
    if (now_ns < sl_deadline_ns(peer->twin.since_ns, beat_ns / 2)) {
        return sl_fail(why, SL_ERR_STALE, "another process of this node sent a greeting just now");
    }
    twin_found(self, peer, frame);
    struct sl_msg notice = {.code = SL_ERR_EXISTS, .text = sl_text_of(peer->twin.text)};
    (void)tr_peer_answer(self, peer, SL_MSG_PEER_HELLO, 0, &notice); /* delivered if it asked us */
    return sl_fail(why, SL_ERR_EXISTS, "%s", peer->twin.text);
}

/* ---- reports about this node's own name ---- */

void tr_name_reported(struct transporter *self, const struct tr_peer *peer, const char *text)
{
    struct tr_name_report *twice = &self->twice;
    if (self->env->now_ns >= twice->until_ns ||
        strncmp(twice->text, text, sizeof(twice->text) - 1) != 0) {
        sl_log_write(self->env->log, SL_LOG_ERROR, 0, "node %s reports: %s", peer->name, text);
    }
    (void)snprintf(twice->text, sizeof(twice->text), "%s", text);
    twice->until_ns = sl_deadline_ns(self->env->now_ns, 2 * peer->health.limits.silence_ns);
}

/* ---- nodes whose key is unknown ---- */

static const struct tr_peer *peer_at(const struct transporter *self, const char *ip, size_t length)
{
    for (uint32_t i = 0; i < self->peer_count; i++) {
        const struct tr_peer *peer = &self->peers[i];
        const char *address = peer->expelled ? peer->kept : peer->address;
        size_t v6 = address[0] == '['; /* [IP]:PORT */
        if (strncmp(address + v6, ip, length) == 0 && address[v6 + length] == (v6 ? ']' : ':')) {
            return peer;
        }
    }
    return NULL;
}

/* Logs a refused connection. Anyone who reaches the port can cause this: at most one line a second,
 * and the same line once a minute. Only a connection from a peer's address degrades this node; the
 * line is then logged at once. */
void tr_unknown_node(void *context, const char *ip, const char *key)
{
    struct transporter *self = context;
    struct tr_unknown_node *seen = &self->unknown;
    uint64_t now_ns = self->env->now_ns;
    char text[sizeof(seen->said)];
    const struct tr_peer *peer = peer_at(self, ip, strlen(ip));
    bool at_once = peer != NULL && now_ns >= seen->until_ns;
    (void)snprintf(
        text, sizeof(text),
        "a node at %.45s with key %.40s%s%s is refused: no NAME.pub in cluster_keys has it", ip,
        key, peer != NULL ? ", the address of node " : "", peer != NULL ? peer->name : "");
    if (peer != NULL) {
        seen->until_ns = now_ns + 10 * SL_NS_PER_S;
        memcpy(seen->trouble, text, sizeof(text));
    }
    uint64_t pause_ns = (strcmp(seen->said, text) == 0 ? 60 : 1) * SL_NS_PER_S;
    if (at_once || seen->said_ns == 0 || now_ns - seen->said_ns >= pause_ns) {
        sl_log_write(self->env->log, SL_LOG_WARN, 0, "%s", text);
        seen->said_ns = now_ns;
        memcpy(seen->said, text, sizeof(text));
    }
}

/* Gives the first problem; "": none. *twins: number of duplicate names. */
static const char *trouble_of(const struct transporter *self, uint32_t *twins)
{
    bool reported = self->env->now_ns < self->twice.until_ns;
    const char *text = reported ? self->twice.text : tr_service_twin(self);
    *twins = text[0] != '\0' ? 1 : 0;
    for (uint32_t i = 0; i < self->peer_count; i++) {
        if (tr_twin_lives(self, &self->peers[i])) {
            text = *twins == 0 ? self->peers[i].twin.text : text;
            *twins += 1;
        }
    }
    return *twins > 0                                   ? text
           : self->env->now_ns < self->unknown.until_ns ? self->unknown.trouble
                                                        : tr_service_trouble(self);
}

void tr_health_step(struct transporter *self)
{
    uint32_t twins = 0;
    const char *text = trouble_of(self, &twins);
    sl_metric_set(self->env->metrics, self->metric.names_twice, twins);
    if (strncmp(text, self->trouble, sizeof(self->trouble) - 1) == 0) {
        return;
    }
    (void)snprintf(self->trouble, sizeof(self->trouble), "%s", text);
    if (text == tr_service_twin(self) && text[0] != '\0') {
        sl_log_write(self->env->log, SL_LOG_ERROR, 0, "%s", text);
    }
    sl_metrics_health(self->env->metrics, text[0] == '\0' ? SL_HEALTH_READY : SL_HEALTH_DEGRADED,
                      self->trouble);
}
