/* client/gate/relay.c - see relay.h. One thread. It keeps no message: the client repeats what is not answered,
 * and actors take repeated requests for one. What is kept is which requests are under way, so that they have a
 * bound, and what came of registrations. */
#include "client/gate/relay.h"
#include "client/gate/node_client.h"
#include "client/gate/relay_check.h"
#include "client/lib/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Requests under way, of a client; those beside its ops are answered at once, or wait for one of them. */
#define OPS_MAX       256u
#define FENCES_MAX    16u
#define REGISTERS_MAX 4u
#define UNDER_WAY_MAX 1024u
/* Of a user: a part of what the node has. */
#define ENGINES_SHARE 4u
#define OPS_SHARE     4u
/* So long a request may be under way, whatever it says. */
#define UNDER_WAY_NS_MAX (3600 * SL_NS_PER_S)
/* An actor that takes nothing now is asked again. */
#define AGAIN_MS 2
/* Until then what has ended unseen is noticed. */
#define LOOK_MS 100
/* Messages of one turn. */
#define TURN_MAX 64u

struct under_way {
    uint64_t seq, until_ns;
    uint64_t memories; /* of a registration: bits */
    uint64_t engine;   /* of the end of one */
    uint32_t type;     /* 0: free */
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
    uint64_t ops_max, engines_max; /* of a user */
    struct under_way under_way[UNDER_WAY_MAX];
    uint32_t under_way_count;
    bool over; /* it has what it cannot end: all of it is to end */
    struct stalled stalled[ACTORS];
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
        err = sl_codec_create(sl_config_u64(options->config, SL_SET_message_bytes_max),
                              &self->codec, why);
    }
    if (err == SL_OK) {
        err = wire_open(self, socket_fd, why);
    }
    if (err == SL_OK) {
        err = node_client_open(NULL, options, 1, &self->client, why);
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

/* Whether there may be another one; takes the share of its user. */
static bool share_of(struct relay *self, uint32_t type)
{
    uint32_t same = 0;
    for (uint32_t i = 0; i < UNDER_WAY_MAX; i++) {
        uint32_t other = self->under_way[i].type;
        same += is_op(type) ? is_op(other) : other == type;
    }
    switch (type) {
    case SL_MSG_STORE:
    case SL_MSG_LOAD:
        return same < OPS_MAX && shares_take(&self->shares, SHARE_OPS, 1, self->ops_max, false);
    case SL_MSG_ENGINE_REGISTER:
        return same < REGISTERS_MAX &&
               shares_take(&self->shares, SHARE_ENGINES, 1, self->engines_max, false);
    case SL_MSG_OP_FENCED:
        return same < FENCES_MAX;
    default:
        return self->under_way_count < UNDER_WAY_MAX / 2;
    }
}

/* A request that comes again is the same. */
static sl_err under_way_note(struct relay *self, const struct sl_msg *msg, uint64_t memories,
                             uint64_t now_ns, struct sl_error *why)
{
    struct under_way *entry = under_way_find(self, msg->seq, msg->type);
    bool again = entry != NULL;
    for (uint32_t i = 0; i < UNDER_WAY_MAX && entry == NULL; i++) {
        entry = self->under_way[i].type == 0 ? &self->under_way[i] : NULL;
    }
    if (entry == NULL || (!again && !share_of(self, msg->type))) {
        return sl_fail(why, SL_ERR_LIMIT, "too many requests of this user: %s",
                       sl_msg_name(msg->type));
    }
    self->under_way_count += !again;
    *entry = (struct under_way){
        .seq = msg->seq,
        .type = msg->type,
        .until_ns = sl_deadline_ns(now_ns, SL_MIN(msg->budget_ns, UNDER_WAY_NS_MAX) + SL_NS_PER_S),
        .memories = memories,
        .engine = msg->type == SL_MSG_ENGINE_END ? msg->body.engine_end.engine_id : 0};
    return SL_OK;
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

static void engine_add(struct relay *self, uint64_t id, uint64_t memories)
{
    struct relay_engine *place = NULL;
    for (uint32_t i = 0; i < RELAY_ENGINES_MAX; i++) {
        struct relay_engine *engine = &self->engines[i];
        if (engine->id == id) { /* the same registration again */
            engine->memories |= memories == UINT64_MAX ? 0 : memories;
            return;
        }
        place = engine->id == 0 ? engine : place;
    }
    if (place == NULL) { /* it ends with all others, as nobody could end it */
        self->over = true;
    } else if (shares_take(&self->shares, SHARE_ENGINES, 1, UINT64_MAX, false)) {
        *place = (struct relay_engine){.id = id, .memories = memories};
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
        engine_add(self, reply->body.engine_register_reply.engine_id, UINT64_MAX);
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
        engine_add(self, reply->body.engine_register_reply.engine_id, was.memories);
    } else if (was.type == SL_MSG_ENGINE_END && reply->code == SL_OK) {
        engine_remove(self, was.engine);
    }
    answer_give(self, actor, reply);
}

/* ---- requests ---- */

/* To the actor, or to be tried again. */
static void request_send(struct relay *self, uint32_t actor, const void *frame, size_t length_bytes,
                         uint64_t until_ns)
{
    struct stalled *stalled = &self->stalled[actor];
    sl_err err = sl_mailbox_send(self->client->mailbox, actors[actor], frame, length_bytes, false);
    if (err == SL_ERR_UNREACHABLE || err == SL_ERR_LIMIT) {
        stalled->frame = malloc(length_bytes);
        stalled->length_bytes = length_bytes;
        stalled->until_ns = until_ns;
        if (stalled->frame != NULL) { /* else the client asks again */
            memcpy(stalled->frame, frame, length_bytes);
        }
    }
}

static void stalled_send(struct relay *self, uint64_t now_ns)
{
    for (uint32_t i = 0; i < ACTORS; i++) {
        struct stalled again = self->stalled[i];
        if (again.frame == NULL) {
            continue;
        }
        self->stalled[i].frame = NULL;
        if (now_ns < again.until_ns) {
            request_send(self, i, again.frame, again.length_bytes, again.until_ns);
        }
        free(again.frame);
    }
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

/* False: it is none. */
static bool request_take(struct relay *self, uint32_t actor,
                         const struct sl_gate_relay_event *event)
{
    struct sl_msg msg = {0};
    struct sl_error why = {0};
    struct relay_checked checked = {0};
    const void *frame = NULL;
    size_t length_bytes = 0;
    uint64_t now_ns = sl_clock_monotonic_ns();
    sl_err err = sl_codec_decode(self->codec, event->frame, event->length_bytes, &msg, &why);
    if (err != SL_OK || SL_MSG_IS_REPLY(msg.type) || msg.seq == 0) {
        return false;
    }
    err = relay_check(&self->rules, actors[actor], &msg, &checked, &why);
    if (err == SL_OK && msg.type == SL_MSG_ENGINE_REGISTER && engines_are_full(self)) {
        err = sl_fail(&why, SL_ERR_LIMIT, "a client of another user has %u engines at most",
                      RELAY_ENGINES_MAX);
    }
    if (err == SL_OK) {
        err = under_way_note(self, &msg, checked.memories, now_ns, &why);
    }
    if (err == SL_OK) {
        msg.sender = sl_text_of(self->client->name);
        err = sl_codec_encode(self->codec, &msg, &frame, &length_bytes, &why);
        if (err != SL_OK) {
            under_way_end(self, under_way_find(self, msg.seq, msg.type));
        }
    }
    if (err == SL_OK) {
        request_send(self, actor, frame, length_bytes, sl_deadline_ns(now_ns, msg.budget_ns));
    } else {
        answer_refuse(self, actor, &msg, err, &why);
    }
    relay_checked_free(&checked);
    return true;
}

/* False: it is over. */
static bool event_take(struct relay *self, struct sl_gate_relay_event *event)
{
    if (event->kind == SL_GATE_RELAY_MEMORY) {
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
                  : !takes_more(self)          ? AGAIN_MS
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
