/* client/gate/relay.c - see relay.h. One thread. It keeps no message: the client repeats what is not answered,
 * and actors take repeated requests for one. What is kept is which requests are under way, so that they have a
 * bound, and what came of registrations. */
#include "client/gate/relay.h"
#include "client/gate/node_client.h"
#include "client/gate/relay_check.h"
#include "client/lib/internal.h"
#include "ipc/gate_protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* With the client's uid: begins the name by which the node knows the process. No writer's, which have a decimal
 * number there: its pins are none that a client may read. */
#define RELAY_NAME SL_GATE_GUEST_NAME "e%" PRIx32
_Static_assert(sizeof(SL_GATE_GUEST_NAME "effffffff.4194304.262143") <=
                   sizeof(((struct sl_client *)NULL)->name),
               "the largest uid, pid and number fit into a name");
/* Requests under way, of a client; those beside its ops are answered at once, or wait for one of them. */
#define OPS_MAX       256u
#define FENCES_MAX    16u
#define STRANGERS_MAX 4u /* of its ops: of teams of which it has no rank */
#define UNDER_WAY_MAX 1024u
/* Of a user: a part of what the node has. */
#define ENGINES_SHARE 4u
#define OPS_SHARE     4u
#define DRAFT_SHARE   4u
/* Of a registration. */
#define REGISTER_BYTES_MAX (1 * SL_MIB)
/* A codec that has read more is made anew: it keeps as much. */
#define KEPT_BYTES (256 * SL_KIB)
/* An actor that takes nothing now is asked again, less and less often. */
#define AGAIN_MS_MIN 2u
#define AGAIN_MS_MAX 20u
/* Until then what has ended unseen is noticed. */
#define LOOK_MS 100
/* Messages of one turn. */
#define TURN_MAX 64u

struct under_way {
    uint64_t seq, until_ns;
    uint64_t op_id, target;         /* as relay_check.h */
    uint64_t memories, block_bytes; /* of a registration, likewise */
    uint64_t draft_bytes;           /* that it took of its user's */
    uint32_t type;                  /* 0: free */
    bool stranger;
};

/* A frame that its actor could not take yet. */
struct stalled {
    void *frame; /* owned; NULL: none */
    size_t length_bytes;
    uint64_t until_ns;
};

enum { TO_REGISTRAR, TO_COORDINATOR, ACTORS };
static const char *const actors[ACTORS] = {"registrar", "coordinator"};

struct relay {
    struct sl_client *client;
    struct sl_gate_relay *wire;
    struct sl_codec *codec; /* of what the client says, and hears */
    struct shares shares;
    struct relay_memories memories;
    struct relay_engine engines[RELAY_ENGINES_MAX];
    struct relay_rules rules;
    uint64_t ops_max, engines_max, draft_bytes_max; /* of a user */
    uint64_t message_bytes_max;
    struct under_way under_way[UNDER_WAY_MAX];
    uint32_t under_way_count;
    bool over; /* it has what it cannot end: all of it is to end */
    struct stalled stalled[ACTORS];
    uint32_t again_ms; /* until they are tried again */
};

/* ---- opening, closing ---- */

static void answer_take(void *context, const char *from, const struct sl_msg *reply);

/* Descriptors are those of the socket's stand-in: a copy of it is the relay's. */
static sl_err wire_open(struct relay *self, int socket_fd, struct sl_error *why)
{
    struct ucred peer = {0};
    socklen_t size = sizeof(peer);
    int copy = fcntl(socket_fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0 || getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
        if (copy >= 0) {
            (void)close(copy);
        }
        return sl_fail_os(why, errno, "the client's socket");
    }
    self->rules.uid = (uint32_t)peer.uid;
    return sl_gate_relay_open(copy, &self->wire, why);
}

static sl_err shares_open(struct relay *self, const struct sl_config *config, struct sl_error *why)
{
    uint64_t pool_bytes_max = sl_config_u64(config, SL_SET_clients_pool_bytes_max);
    uint64_t of_user = sl_config_u64(config, SL_SET_clients_of_user);
    self->engines_max = SL_MAX(sl_config_u64(config, SL_SET_engines_max) / ENGINES_SHARE, 1);
    self->ops_max = SL_MAX(sl_config_u64(config, SL_SET_queue_messages) / OPS_SHARE, 1);
    self->draft_bytes_max = sl_config_u64(config, SL_SET_memory) / DRAFT_SHARE;
    self->rules.op_timeout_ns = sl_config_u64(config, SL_SET_op_timeout);
    self->memories.shares = self->shares;
    self->memories.bytes_max =
        pool_bytes_max > 0 ? pool_bytes_max : sl_config_u64(config, SL_SET_memory);
    return shares_take(&self->shares, SHARE_RELAYS, 1, of_user, false)
               ? SL_OK
               : sl_fail(why, SL_ERR_LIMIT,
                         "too many clients of other users that have engines: %" PRIu64
                         " of each (clients_of_user)",
                         of_user);
}

static sl_err client_open(struct relay *self, const struct writer_options *options,
                          struct sl_error *why)
{
    char name[24];
    (void)snprintf(name, sizeof(name), RELAY_NAME, self->rules.uid);
    return node_client_open(name, options, 1, &self->client, why);
}

sl_err relay_open(const struct writer_options *options, int socket_fd, struct relay **out,
                  struct sl_error *why)
{
    struct relay *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "relay");
    }
    self->shares = options->shares;
    self->rules = (struct relay_rules){
        .self = sl_proc_id_self(), .memories = self->memories.all, .engines = self->engines};
    sl_err err = shares_open(self, options->config, why);
    if (err == SL_OK) {
        err = relay_memories_open(&self->memories, why);
    }
    if (err == SL_OK) {
        self->message_bytes_max = sl_config_u64(options->config, SL_SET_message_bytes_max);
        err = sl_codec_create(self->message_bytes_max, &self->codec, why);
    }
    if (err == SL_OK) {
        err = wire_open(self, socket_fd, why);
    }
    if (err == SL_OK) {
        err = client_open(self, options, why);
    }
    if (err != SL_OK) {
        relay_close(&self);
        return err;
    }
    self->client->stray = answer_take;
    self->client->stray_context = self;
    *out = self;
    return SL_OK;
}

void relay_close(struct relay **self)
{
    struct relay *gone = *self;
    *self = NULL;
    if (gone == NULL) {
        return;
    }
    sl_client_close(&gone->client);
    sl_gate_relay_close(&gone->wire);
    sl_codec_destroy(&gone->codec);
    for (uint32_t i = 0; i < ACTORS; i++) {
        free(gone->stalled[i].frame);
    }
    share_empty(gone->shares.own, atomic_load(&gone->shares.own->uid));
    free(gone);
}

/* ---- what is under way ---- */

static struct under_way *under_way_find(struct relay *self, uint64_t seq, uint32_t type)
{
    for (uint32_t i = 0; i < UNDER_WAY_MAX; i++) {
        if (self->under_way[i].type == type && self->under_way[i].seq == seq) {
            return &self->under_way[i];
        }
    }
    return NULL;
}

static bool is_op(uint32_t type)
{
    return type == SL_MSG_STORE || type == SL_MSG_LOAD;
}

static uint64_t memories_in_use(const struct relay *self)
{
    uint64_t in_use = 0;
    for (uint32_t i = 0; i < RELAY_ENGINES_MAX; i++) {
        in_use |= self->engines[i].memories;
    }
    for (uint32_t i = 0; i < UNDER_WAY_MAX; i++) {
        in_use |= self->under_way[i].memories;
    }
    return in_use;
}

static void under_way_end(struct relay *self, struct under_way *entry)
{
    if (is_op(entry->type)) {
        shares_let(&self->shares, SHARE_OPS, 1);
    } else if (entry->type == SL_MSG_ENGINE_REGISTER) {
        shares_let(&self->shares, SHARE_ENGINES, 1);
    }
    shares_let(&self->shares, SHARE_DRAFT_BYTES, entry->draft_bytes);
    *entry = (struct under_way){0};
    self->under_way_count--;
}

static void under_way_expire(struct relay *self, uint64_t now_ns)
{
    for (uint32_t i = 0; i < UNDER_WAY_MAX && self->under_way_count > 0; i++) {
        if (self->under_way[i].type != 0 && now_ns >= self->under_way[i].until_ns) {
            under_way_end(self, &self->under_way[i]);
        }
    }
}

/* One that its client has not heard of, and registers again. The registrar, too, knows it by that number. */
static bool stands(const struct relay *self, uint64_t seq)
{
    for (uint32_t i = 0; i < RELAY_ENGINES_MAX; i++) {
        if (self->engines[i].id != 0 && self->engines[i].seq == seq) {
            return true;
        }
    }
    return false;
}

static bool engines_are_full(const struct relay *self)
{
    for (uint32_t i = 0; i < RELAY_ENGINES_MAX; i++) {
        if (self->engines[i].id == 0) {
            return false;
        }
    }
    return true;
}

static uint32_t under_way_of(const struct relay *self, uint32_t type)
{
    uint32_t same = 0;
    for (uint32_t i = 0; i < UNDER_WAY_MAX; i++) {
        uint32_t other = self->under_way[i].type;
        same += is_op(type) ? is_op(other) : other == type;
    }
    return same;
}

static bool op_share(struct relay *self, const struct relay_checked *checked)
{
    uint32_t strangers = 0;
    for (uint32_t i = 0; i < UNDER_WAY_MAX; i++) {
        strangers += self->under_way[i].stranger;
    }
    return (!checked->stranger || strangers < STRANGERS_MAX) &&
           shares_take(&self->shares, SHARE_OPS, 1, self->ops_max, false);
}

/* Whether there may be another one; takes the share of its user. */
static bool share_of(struct relay *self, const struct sl_msg *msg,
                     const struct relay_checked *checked)
{
    switch (msg->type) {
    case SL_MSG_STORE:
    case SL_MSG_LOAD:
        return under_way_of(self, msg->type) < OPS_MAX && op_share(self, checked);
    case SL_MSG_ENGINE_REGISTER:
        return shares_take(&self->shares, SHARE_ENGINES, 1,
                           stands(self, msg->seq) ? UINT64_MAX : self->engines_max, false);
    case SL_MSG_ENGINE_END:
        return under_way_of(self, msg->type) < RELAY_ENGINES_MAX;
    case SL_MSG_OP_FENCED:
        return under_way_of(self, msg->type) < FENCES_MAX;
    default:
        return self->under_way_count < UNDER_WAY_MAX / 2;
    }
}

/* What a STORE by layers reserves, for as long as it likes; one alone may have more. */
static bool draft_share(struct relay *self, const struct relay_checked *checked,
                        uint64_t *draft_bytes)
{
    *draft_bytes = SL_MIN(checked->draft_bytes, self->draft_bytes_max);
    return *draft_bytes == 0 || shares_take(&self->shares, SHARE_DRAFT_BYTES, *draft_bytes,
                                            self->draft_bytes_max, false);
}

static sl_err under_way_add(struct relay *self, struct under_way *entry, const struct sl_msg *msg,
                            const struct relay_checked *checked, struct sl_error *why)
{
    uint64_t draft_bytes = 0;
    if (!share_of(self, msg, checked)) {
        return sl_fail(why, SL_ERR_LIMIT, "too many requests of this user: %s",
                       sl_msg_name(msg->type));
    }
    *entry = (struct under_way){.seq = msg->seq,
                                .type = msg->type,
                                .op_id = msg->op_id,
                                .target = checked->target,
                                .memories = checked->memories,
                                .block_bytes = checked->block_bytes,
                                .stranger = checked->stranger};
    self->under_way_count++;
    if (!draft_share(self, checked, &draft_bytes)) {
        under_way_end(self, entry);
        return sl_fail(why, SL_ERR_LIMIT,
                       "stores by layers of a user reserve %" PRIu64 " bytes at most",
                       self->draft_bytes_max);
    }
    entry->draft_bytes = draft_bytes;
    return SL_OK;
}

/* A request that comes again is the same: actors know it by other numbers than ours. Errors: SL_ERR_LIMIT,
 * SL_ERR_PROTOCOL (it is not). */
static sl_err under_way_note(struct relay *self, const struct sl_msg *msg,
                             const struct relay_checked *checked, uint64_t now_ns,
                             struct sl_error *why)
{
    struct under_way *entry = under_way_find(self, msg->seq, msg->type);
    sl_err err = SL_OK;
    if (entry != NULL && (entry->op_id != msg->op_id || entry->target != checked->target ||
                          entry->memories != checked->memories)) {
        return sl_fail(why, SL_ERR_PROTOCOL, "%s: another one has its number",
                       sl_msg_name(msg->type));
    }
    if (entry == NULL) {
        for (uint32_t i = 0; i < UNDER_WAY_MAX && entry == NULL; i++) {
            entry = self->under_way[i].type == 0 ? &self->under_way[i] : NULL;
        }
        err = entry == NULL ? sl_fail(why, SL_ERR_LIMIT, "too many requests of this client")
                            : under_way_add(self, entry, msg, checked, why);
    }
    if (err == SL_OK) { /* the actor counts from the first time on: not less than before */
        entry->until_ns =
            SL_MAX(entry->until_ns, sl_deadline_ns(now_ns, msg->budget_ns + SL_NS_PER_S));
    }
    return err;
}

/* ---- answers ---- */

/* One that the client does not take now is lost: it asks again. */
static void answer_give(struct relay *self, uint32_t actor, const struct sl_msg *reply)
{
    const void *frame = NULL;
    size_t length_bytes = 0;
    if (sl_codec_encode(self->codec, reply, &frame, &length_bytes, NULL) == SL_OK) {
        const struct sl_gate_relay_event event = {
            .kind = actor == TO_REGISTRAR ? SL_GATE_RELAY_REGISTRAR : SL_GATE_RELAY_COORDINATOR,
            .frame = frame,
            .length_bytes = length_bytes,
            .fd = -1};
        (void)sl_gate_relay_send(self->wire, &event);
    }
}

static void answer_refuse(struct relay *self, uint32_t actor, const struct sl_msg *msg, sl_err code,
                          const struct sl_error *why)
{
    const struct sl_msg reply = {.type = msg->type + 1,
                                 .sender = sl_text_of(actors[actor]),
                                 .seq = 1,
                                 .reply_to = msg->seq,
                                 .code = code,
                                 .text = sl_text_of(why->text)};
    answer_give(self, actor, &reply);
}

static void engine_add(struct relay *self, uint64_t id, const struct under_way *was)
{
    struct relay_engine *place = NULL;
    for (uint32_t i = 0; i < RELAY_ENGINES_MAX; i++) {
        struct relay_engine *engine = &self->engines[i];
        if (engine->id == id) { /* the same registration again */
            engine->memories |= was->memories == UINT64_MAX ? 0 : was->memories;
            return;
        }
        place = engine->id == 0 ? engine : place;
    }
    if (place == NULL) { /* it ends with all others, as nobody could end it */
        self->over = true;
    } else if (shares_take(&self->shares, SHARE_ENGINES, 1, UINT64_MAX, false)) {
        *place = (struct relay_engine){.id = id,
                                       .memories = was->memories,
                                       .team = was->target,
                                       .block_bytes = was->block_bytes,
                                       .seq = was->seq};
    }
}

static void engine_remove(struct relay *self, uint64_t id)
{
    for (uint32_t i = 0; i < RELAY_ENGINES_MAX; i++) {
        if (self->engines[i].id == id) {
            self->engines[i] = (struct relay_engine){0};
            shares_let(&self->shares, SHARE_ENGINES, 1);
        }
    }
    relay_memories_let(&self->memories, memories_in_use(self));
}

/* Under the client's lock, of this thread. */
static void answer_take(void *context, const char *from, const struct sl_msg *reply)
{
    struct relay *self = context;
    uint32_t actor = strcmp(from, actors[TO_REGISTRAR]) == 0 ? TO_REGISTRAR : TO_COORDINATOR;
    struct under_way *entry = under_way_find(self, reply->reply_to, reply->type - 1);
    if (entry == NULL && reply->type == SL_MSG_ENGINE_REGISTER_REPLY && reply->code == SL_OK) {
        /* It was given up, and stands all the same: with memory of which nobody knows any more which. */
        const struct under_way lost = {
            .seq = reply->reply_to, .memories = UINT64_MAX, .block_bytes = UINT64_MAX};
        engine_add(self, reply->body.engine_register_reply.engine_id, &lost);
    }
    if (entry == NULL || strcmp(from, actors[actor]) != 0) {
        return; /* of one that was answered, or is over */
    }
    const struct under_way was = *entry;
    if (reply->code == SL_ERR_DRAINING) { /* its successor will do it */
        answer_give(self, actor, reply);
        return;
    }
    under_way_end(self, entry);
    if (was.type == SL_MSG_ENGINE_REGISTER && reply->code == SL_OK) {
        engine_add(self, reply->body.engine_register_reply.engine_id, &was);
    } else if (was.type == SL_MSG_ENGINE_END && reply->code == SL_OK) {
        engine_remove(self, was.target);
    }
    answer_give(self, actor, reply);
}

/* ---- requests ---- */

static bool is_stalled(sl_err err)
{
    return err == SL_ERR_UNREACHABLE || err == SL_ERR_LIMIT;
}

/* To the actor, or to be tried again. */
static void request_send(struct relay *self, uint32_t actor, const void *frame, size_t length_bytes,
                         uint64_t until_ns)
{
    struct stalled *stalled = &self->stalled[actor];
    sl_err err = sl_mailbox_send(self->client->mailbox, actors[actor], frame, length_bytes, false);
    if (is_stalled(err)) {
        stalled->frame = malloc(length_bytes);
        stalled->length_bytes = length_bytes;
        stalled->until_ns = until_ns;
        self->again_ms = AGAIN_MS_MIN;
        if (stalled->frame != NULL) { /* else the client asks again */
            memcpy(stalled->frame, frame, length_bytes);
        }
    }
}

static void stalled_send(struct relay *self, uint64_t now_ns)
{
    for (uint32_t i = 0; i < ACTORS; i++) {
        struct stalled *again = &self->stalled[i];
        if (again->frame == NULL) {
            continue;
        }
        self->again_ms = SL_MIN(2 * self->again_ms, AGAIN_MS_MAX);
        if (now_ns >= again->until_ns ||
            !is_stalled(sl_mailbox_send(self->client->mailbox, actors[i], again->frame,
                                        again->length_bytes, false))) {
            free(again->frame);
            again->frame = NULL;
        }
    }
}

/* Of one of another user: what keeps the registrar busy. */
static sl_err register_may(struct relay *self, const struct sl_msg *msg, size_t length_bytes,
                           struct sl_error *why)
{
    if (length_bytes > REGISTER_BYTES_MAX) {
        return sl_fail(why, SL_ERR_LIMIT,
                       "a registration of %zu bytes: of a client of another user it has %" PRIu64
                       " at most",
                       length_bytes, (uint64_t)REGISTER_BYTES_MAX);
    }
    bool is_new = under_way_find(self, msg->seq, msg->type) == NULL && !stands(self, msg->seq);
    return is_new && engines_are_full(self)
               ? sl_fail(why, SL_ERR_LIMIT, "a client of another user has %u engines at most",
                         RELAY_ENGINES_MAX)
               : SL_OK;
}

/* One registration at a time: the client asks again for those that are not answered. */
static bool waits_its_turn(struct relay *self, const struct sl_msg *msg)
{
    return msg->type == SL_MSG_ENGINE_REGISTER && under_way_of(self, msg->type) > 0 &&
           under_way_find(self, msg->seq, msg->type) == NULL;
}

/* Says it, or why not. False: the connection is over. */
static bool request_pass(struct relay *self, uint32_t actor, struct sl_msg *msg,
                         size_t length_bytes, struct relay_checked *checked)
{
    struct sl_error why = {0};
    const void *frame = NULL;
    uint64_t now_ns = sl_clock_monotonic_ns();
    sl_err err = relay_check(&self->rules, actors[actor], msg, checked, &why);
    if (err == SL_OK && msg->type == SL_MSG_ENGINE_REGISTER) {
        err = register_may(self, msg, length_bytes, &why);
    }
    if (err == SL_OK && waits_its_turn(self, msg)) {
        return true;
    }
    if (err == SL_OK) {
        err = under_way_note(self, msg, checked, now_ns, &why);
    }
    if (err == SL_ERR_PROTOCOL) {
        return false;
    }
    if (err == SL_OK) {
        msg->sender = sl_text_of(self->client->name);
        err = sl_codec_encode(self->codec, msg, &frame, &length_bytes, &why);
        if (err != SL_OK) {
            under_way_end(self, under_way_find(self, msg->seq, msg->type));
        }
    }
    if (err == SL_OK) {
        request_send(self, actor, frame, length_bytes, sl_deadline_ns(now_ns, msg->budget_ns));
    } else {
        answer_refuse(self, actor, msg, err, &why);
    }
    return true;
}

/* Without memory for another one, this one stays. */
static void codec_renew(struct relay *self)
{
    struct sl_codec *fresh = NULL;
    if (sl_codec_create(self->message_bytes_max, &fresh, NULL) == SL_OK) {
        sl_codec_destroy(&self->codec);
        self->codec = fresh;
    }
}

/* False: it is none. */
static bool request_take(struct relay *self, uint32_t actor,
                         const struct sl_gate_relay_event *event)
{
    struct sl_msg msg = {0};
    struct relay_checked checked = {0};
    struct sl_error why = {0};
    const enum sl_msg_type *types = NULL;
    uint32_t type_count = relay_types(actors[actor], &types);
    sl_err err = sl_codec_decode_of(self->codec, types, type_count, event->frame,
                                    event->length_bytes, &msg, NULL);
    if ((err != SL_OK && err != SL_ERR_PERMISSION) || SL_MSG_IS_REPLY(msg.type) || msg.seq == 0) {
        return false;
    }
    bool goes_on = true;
    if (err == SL_ERR_PERMISSION) {
        (void)sl_fail(&why, err, "%s is nothing that another user may ask", sl_msg_name(msg.type));
        answer_refuse(self, actor, &msg, err, &why);
    } else {
        goes_on = request_pass(self, actor, &msg, event->length_bytes, &checked);
        relay_checked_free(&checked);
    }
    if (event->length_bytes > KEPT_BYTES) {
        codec_renew(self);
    }
    return goes_on;
}

/* False: it is over. */
static bool event_take(struct relay *self, struct sl_gate_relay_event *event)
{
    if (event->kind == SL_GATE_RELAY_MEMORY) {
        if (event->fd < 0) {
            sl_client_warn(self->client,
                           event->cut
                               ? "memory of an engine came without its descriptor: this process "
                                 "may not have more open (RLIMIT_NOFILE); the client's engines end"
                               : "memory of an engine came without its descriptor: the client "
                                 "sent none; its engines end");
        }
        return relay_memory_lend(&self->memories, event->number, event->fd);
    }
    if (event->fd >= 0) {
        (void)close(event->fd);
    }
    if (event->kind == SL_GATE_RELAY_FORGET) {
        relay_memory_forget(&self->memories, event->number, memories_in_use(self));
        return true;
    }
    return request_take(
        self, event->kind == SL_GATE_RELAY_REGISTRAR ? TO_REGISTRAR : TO_COORDINATOR, event);
}

static bool takes_more(const struct relay *self)
{
    return self->stalled[TO_REGISTRAR].frame == NULL && self->stalled[TO_COORDINATOR].frame == NULL;
}

/* False: it is over. */
static bool events_take(struct relay *self, bool *more)
{
    *more = false;
    for (uint32_t i = 0; i < TURN_MAX && takes_more(self); i++) {
        struct sl_gate_relay_event event;
        sl_err err = sl_gate_relay_receive(self->wire, &event);
        if (err != SL_OK) {
            return err == SL_ERR_NOT_FOUND;
        }
        if (!event_take(self, &event)) {
            return false;
        }
        *more = i + 1 == TURN_MAX;
    }
    return true;
}

/* ---- serving ---- */

/* Waits until there is something to do. False: it is over. */
static bool work_await(struct relay *self, const struct writer_client *client, bool more,
                       uint64_t due_ns)
{
    enum { SOCKET, SIGNAL, CLIENT, NODE, COUNT = NODE + 4 };
    int fds[COUNT - NODE];
    bool flushed = sl_gate_relay_flush(self->wire);
    struct pollfd polled[COUNT] = {
        [SOCKET] = {.fd = sl_gate_relay_fd(self->wire),
                    .events = (short)((takes_more(self) ? POLLIN : 0) | (flushed ? 0 : POLLOUT))},
        [SIGNAL] = {.fd = client->signal_fd, .events = POLLIN},
        [CLIENT] = {.fd = client->pidfd, .events = POLLIN}};
    uint32_t count = sl_mailbox_fds(self->client->mailbox, fds, COUNT - NODE);
    for (uint32_t i = 0; i < count; i++) {
        polled[NODE + i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    }
    uint64_t left_ns = sl_budget_ns(sl_clock_monotonic_ns(), due_ns);
    int wait_ms = more                         ? 0
                  : !takes_more(self)          ? (int)self->again_ms
                  : self->under_way_count == 0 ? -1 /* nothing is awaited from the node */
                                               : (int)SL_MIN(left_ns / SL_NS_PER_MS + 1, LOOK_MS);
    if (poll(polled, NODE + count, wait_ms) < 0) {
        return errno == EINTR;
    }
    return polled[SIGNAL].revents == 0 && polled[CLIENT].revents == 0 &&
           (polled[SOCKET].revents & (POLLHUP | POLLERR | POLLNVAL)) == 0;
}

void relay_serve(struct relay *self, const struct writer_client *client)
{
    bool goes_on = true, more = false;
    while (goes_on) {
        uint64_t now_ns = sl_clock_monotonic_ns();
        under_way_expire(self, now_ns);
        stalled_send(self, now_ns);
        goes_on = events_take(self, &more);
        (void)pthread_mutex_lock(&self->client->lock);
        more = sl_client_pump(self->client) || more;
        uint64_t due_ns = sl_mailbox_sleep(self->client->mailbox, now_ns);
        (void)pthread_mutex_unlock(&self->client->lock);
        goes_on = goes_on && !self->over && work_await(self, client, more || due_ns == 0, due_ns);
    }
}
