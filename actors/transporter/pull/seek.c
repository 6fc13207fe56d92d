/* actors/transporter/pull/seek.c - SEEK: which of these objects other nodes have, or their removal
 * there.
 *
 * Every living peer is asked at once, without the directory, unlike BRING: a value that was just
 * stored must be found, and a removed one must not. A peer that does not answer within peer_timeout
 * counts as not having the object; if it may have missed a removal, the code is SL_ERR_TIMEOUT. */
#include "actors/transporter/pull/pull.h"

#include "ipc/shm/sl_leases.h"

#include <stdlib.h>
#include <string.h>

#define ANSWER_NS_MAX (10 * SL_NS_PER_MS) /* time reserved for our answer */
#define LOOKED_COUNT  64u

sl_err tr_seek_init(struct transporter *self, struct sl_error *why)
{
    self->seeks = calloc(TR_SEEKS_MAX, sizeof(*self->seeks));
    self->removals = calloc(TR_SEEKS_MAX, sizeof(*self->removals));
    return self->seeks != NULL && self->removals != NULL
               ? SL_OK
               : sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the table of lookups at peers");
}

void tr_seek_fini(struct transporter *self)
{
    for (uint32_t i = 0; self->seeks != NULL && i < TR_SEEKS_MAX; i++) {
        free(self->seeks[i].items);
    }
    free(self->seeks);
    free(self->removals);
    self->seeks = NULL;
    self->removals = NULL;
}

/* ---- requests from this node's clients ---- */

static uint64_t key_hash(const struct sl_text *key)
{
    return sl_digest_of(key->at, key->length).low;
}

static void seek_answer(struct transporter *self, struct tr_seek *seek)
{
    struct sl_text names[TR_PEERS_MAX];
    struct sl_msg reply = {.code = SL_OK};
    for (uint32_t i = 0; i < self->peer_count; i++) {
        names[i] = sl_text_of(self->peers[i].name);
    }
    for (uint32_t i = 0; seek->remove && seek->missed && i < seek->count; i++) {
        if (seek->items[i].code == SL_ERR_NOT_FOUND || seek->items[i].code == SL_OK) {
            seek->items[i].code = SL_ERR_TIMEOUT; /* a silent peer may still have it */
        }
    }
    reply.body.seek_reply.items.at = seek->items;
    reply.body.seek_reply.items.count = seek->count;
    reply.body.seek_reply.nodes.at = names;
    reply.body.seek_reply.nodes.count = self->peer_count;
    sl_reply_route_send(self->env, &seek->back, &reply);
    free(seek->items);
    *seek = (struct tr_seek){0};
}

/* Rank of a code when several peers answer for a key: leased and busy keys were not removed, even
 * if other peers removed theirs. */
static uint32_t weight(uint64_t code)
{
    switch (code) {
    case SL_ERR_NOT_FOUND:
        return 0;
    case SL_OK:
        return 1;
    case SL_ERR_LEASED:
        return 3;
    default:
        return 2;
    }
}

static void seek_merge(struct tr_seek *seek, uint32_t peer, const struct sl_item_seen *items)
{
    for (uint32_t i = 0; i < seek->count; i++) {
        struct sl_item_seen *mine = &seek->items[i];
        uint64_t code = sl_err_received(items[i].code);
        bool better =
            mine->code == SL_OK && code == SL_OK && !mine->in_memory && items[i].in_memory;
        if (weight(code) > weight(mine->code) || better) {
            *mine = items[i];
            mine->code = code;
            mine->node = peer + 1;
        }
    }
}

static void seek_answered(struct transporter *self, struct tr_question *question, uint32_t number,
                          const struct sl_msg *reply)
{
    struct tr_seek *seek = (struct tr_seek *)question; /* its first member */
    struct sl_peer_health *health = &self->peers[number].health;
    sl_peer_health_over(health);
    if (reply != NULL && reply->code == SL_OK &&
        reply->body.seek_reply.items.count == seek->count) {
        sl_peer_health_worked(health);
        seek_merge(seek, number, reply->body.seek_reply.items.at);
    } else if (reply == NULL || reply->code != SL_ERR_PERMISSION) {
        seek->missed = true; /* not with PERMISSION: we may remove nothing there */
    }
    if (question->waited == 0) {
        seek_answer(self, seek);
    }
}

static struct tr_seek *seek_new(struct transporter *self, uint64_t count)
{
    for (uint32_t i = 0; i < TR_SEEKS_MAX; i++) {
        struct tr_seek *seek = &self->seeks[i];
        if (!seek->used) {
            struct sl_item_seen *items = calloc(SL_MAX(count, UINT64_C(1)), sizeof(*items));
            if (items == NULL) {
                return NULL;
            }
            *seek = (struct tr_seek){.question.answered = seek_answered,
                                     .used = true,
                                     .items = items,
                                     .count = (uint32_t)count};
            return seek;
        }
    }
    return NULL;
}

/* Sends the question to all peers. */
static void peers_ask(struct transporter *self, struct tr_seek *seek, const struct sl_msg *msg)
{
    uint64_t now_ns = self->env->now_ns, usable = tr_peers_usable(self);
    for (uint32_t i = 0; i < self->peer_count; i++) {
        if ((usable >> i & 1) == 0) {
            seek->missed |= sl_peer_health_state(&self->peers[i].health, now_ns) != SL_PEER_AWAY;
            continue;
        }
        struct sl_msg ask = {.type = SL_MSG_SEEK, .trace_id = msg->trace_id};
        ask.body.seek = msg->body.seek;
        seek->missed |= tr_question_ask(self, &seek->question, i, &ask) != SL_OK;
    }
}

void tr_seek(struct transporter *self, const struct sl_msg *msg)
{
    const struct sl_body_seek *body = &msg->body.seek;
    struct tr_seek *seek = seek_new(self, body->keys.count);
    struct sl_error why = {0};
    if (seek == NULL) {
        (void)sl_fail(&why, SL_ERR_LIMIT, "%u lookups at peers are in progress", TR_SEEKS_MAX);
        sl_reply_code(self->env, msg, why.code, &why);
        return;
    }
    sl_reply_route_keep(msg, &seek->back);
    seek->remove = body->remove;
    uint64_t left_ns = sl_budget_ns(self->env->now_ns, seek->back.deadline_ns);
    left_ns -= SL_MIN(left_ns / 4, ANSWER_NS_MAX);
    tr_question_begin(self, &seek->question, left_ns);
    for (uint32_t i = 0; i < seek->count; i++) {
        seek->items[i].code = SL_ERR_NOT_FOUND;
    }
    sl_metric_add(self->env->metrics, self->metric.seeks, 1);
    sl_metric_add(self->env->metrics, self->metric.keys_looked_up, seek->count);
    if (seek->count > 0) {
        peers_ask(self, seek, msg);
    }
    if (body->remove == false) { /* peers are asked now, so remembered misses are void */
        for (uint32_t i = 0; i < seek->count; i++) {
            sl_missing_forget_key(self->missing, key_hash(&body->keys.at[i]));
        }
    }
    if (seek->question.waited == 0) {
        seek_answer(self, seek);
    }
}

/* ---- requests from peers ---- */

/* Opened for each request: peers ask rarely, and a recreated index has new leases. */
static struct sl_leases *leases_open(struct transporter *self, bool wanted)
{
    struct sl_leases *leases = NULL;
    struct sl_error why = {0};
    if (wanted && sl_index_view_lease_ttl(self->view) != 0 &&
        sl_leases_open(self->env->paths->shm_dir, self->view, &leases, &why) != SL_OK) {
        sl_log_write(self->env->log, SL_LOG_WARN, 0, "a peer's lookup gets no leases: %s",
                     why.text);
    }
    return leases;
}

static void objects_look(struct transporter *self, const struct sl_texts *keys, bool lease,
                         struct sl_item_seen *items)
{
    struct sl_leases *leases = leases_open(self, lease);
    for (uint64_t first = 0; first < keys->count; first += LOOKED_COUNT) {
        struct sl_key sought[LOOKED_COUNT];
        struct sl_entry found[LOOKED_COUNT];
        sl_err codes[LOOKED_COUNT];
        uint32_t share = (uint32_t)SL_MIN(keys->count - first, (uint64_t)LOOKED_COUNT);
        for (uint32_t i = 0; i < share; i++) {
            sought[i] = (struct sl_key){.at = keys->at[first + i].at,
                                        .length = (uint32_t)keys->at[first + i].length};
        }
        if (leases != NULL) {
            sl_leases_find_batch(leases, sought, share, self->env->now_ns, found, NULL, codes);
        } else {
            sl_index_find_batch(self->view, sought, share, found, codes);
        }
        for (uint32_t i = 0; i < share; i++) {
            struct sl_item_seen *item = &items[first + i];
            if (codes[i] != SL_OK || found[i].group != 0) { /* parts count only with their block */
                item->code = codes[i] != SL_OK ? codes[i] : SL_ERR_NOT_FOUND;
                continue;
            }
            *item = (struct sl_item_seen){.code = SL_OK,
                                          .length_bytes = found[i].extent.length_bytes,
                                          .in_memory = found[i].extent.generation != 0,
                                          .on_disk = found[i].disk.valid != 0};
        }
    }
    sl_leases_close(&leases);
}

static sl_err removal_begin(struct transporter *self, struct tr_peer *peer,
                            const struct sl_msg *msg, struct sl_error *why)
{
    if (!sl_config_bool(self->env->config, SL_SET_peer_removes)) {
        return sl_fail(why, SL_ERR_PERMISSION, "node %s lets peers remove nothing (peer_removes)",
                       self->node);
    }
    if (!tr_share_allows(peer->removals, 1, self->removals_open, TR_SEEKS_MAX)) {
        return sl_fail(why, SL_ERR_LIMIT, "node %s has %u of the %u removals in progress",
                       peer->name, peer->removals, self->removals_open);
    }
    struct tr_removal *removal = self->removals;
    while (removal->used) { /* tr_share_allows guarantees a free entry */
        removal++;
    }
    struct sl_msg remove = {.type = SL_MSG_REMOVE, .trace_id = msg->trace_id};
    remove.body.remove.keys = msg->body.seek.keys;
    remove.body.remove.respect_leases = msg->body.seek.respect_leases;
    sl_err err = sl_calls_send(
        self->calls, "registrar", &remove, sl_deadline_ns(self->env->now_ns, msg->budget_ns),
        tr_cookie(TR_CALL_REMOVAL, (uint32_t)(removal - self->removals)), NULL);
    if (err != SL_OK) {
        return sl_fail(why, err, "the registrar cannot be asked");
    }
    peer->removals++;
    self->removals_open++;
    *removal = (struct tr_removal){.used = true,
                                   .peer = tr_peer_number(self, peer),
                                   .count = (uint32_t)msg->body.seek.keys.count,
                                   .incarnation = peer->incarnation,
                                   .seq = msg->seq,
                                   .op_id = msg->op_id,
                                   .trace_id = msg->trace_id};
    return SL_OK;
}

void tr_seek_asked(struct transporter *self, struct tr_peer *peer, const struct sl_msg *msg)
{
    struct sl_error why = {0};
    struct sl_msg reply = {.op_id = msg->op_id, .trace_id = msg->trace_id};
    uint64_t count = msg->body.seek.keys.count;
    struct sl_item_seen *items = NULL;
    if (peer->incarnation == 0) {
        reply.code = sl_fail(&why, SL_ERR_PERMISSION, "send PEER_HELLO first");
    } else if (!sl_index_view_ready(self->env, &self->view)) {
        reply.code = sl_fail(&why, SL_ERR_BUSY, "the node is starting");
    } else if (msg->body.seek.remove) {
        reply.code = removal_begin(self, peer, msg, &why);
        if (reply.code == SL_OK) {
            return; /* tr_seek_removed answers the peer */
        }
    } else if ((items = calloc(SL_MAX(count, UINT64_C(1)), sizeof(*items))) == NULL) {
        reply.code = sl_fail(&why, SL_ERR_NO_MEMORY, "%u keys", (unsigned)count);
    } else {
        objects_look(self, &msg->body.seek.keys, msg->body.seek.lease, items);
        reply.body.seek_reply.items.at = items;
        reply.body.seek_reply.items.count = count;
    }
    reply.text = sl_text_of(why.text);
    tr_peer_answer(self, peer, SL_MSG_SEEK, msg->seq, &reply);
    free(items);
}

void tr_seek_removed(struct transporter *self, uint32_t index, const struct sl_msg *answer)
{
    struct tr_removal *removal = &self->removals[index];
    struct tr_peer *peer = &self->peers[removal->peer];
    struct sl_msg reply = {.op_id = removal->op_id, .trace_id = removal->trace_id};
    removal->used = false;
    peer->removals--;
    self->removals_open--;
    if (peer->incarnation != removal->incarnation) {
        return; /* the peer has restarted */
    }
    struct sl_item_seen *items = calloc(SL_MAX(removal->count, 1u), sizeof(*items));
    bool answered = answer != NULL && answer->code == SL_OK &&
                    answer->body.remove_reply.codes.count == removal->count;
    if (!answered || items == NULL) {
        reply.code = answer == NULL          ? SL_ERR_TIMEOUT
                     : answer->code != SL_OK ? answer->code
                     : items == NULL         ? SL_ERR_NO_MEMORY
                                             : SL_ERR_PROTOCOL;
    }
    for (uint32_t i = 0; reply.code == SL_OK && i < removal->count; i++) {
        items[i].code = (uint64_t)sl_err_received(answer->body.remove_reply.codes.at[i]);
    }
    reply.body.seek_reply.items.at = items;
    reply.body.seek_reply.items.count = reply.code == SL_OK ? removal->count : 0;
    tr_peer_answer(self, peer, SL_MSG_SEEK, removal->seq, &reply);
    free(items);
}
