/* client/tools/events/publish.c - sockets, kept messages, requests and snapshots; see publish.h. */
#include "client/tools/events/publish.h"
#include "client/tools/events/listener.h"
#include "ipc/msg/sl_curve.h"
#include "runtime/base/sl_array.h"
#include "runtime/base/sl_clock.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#define SEQUENCE_BYTES    8u
#define REQUEST_FRAMES    3u
#define ROUND_MESSAGES    256u
#define ROUND_REQUESTS    64u
#define STALLED_NS        (10 * SL_NS_PER_S) /* an answer ends if nothing is read for this time */
#define SNAPSHOT_FRESH_NS (500 * SL_NS_PER_MS)
#define REPLAY_QUEUE      16 /* messages of an answer that ZeroMQ queues */
#define HANDSHAKE_MS      2000
#define CLOSING_MS        200

struct message {
    uint64_t sequence;
    size_t length_bytes;
    void *payload;
};

/* All blocks as they were after the message `sequence`. */
struct snapshot {
    struct message *messages;
    uint32_t count, room;
    uint64_t sequence, made_ns;
    uint32_t users; /* answers that send it */
    bool whole;
};

struct answer {
    uint8_t identity[EV_IDENTITY_MAX];
    size_t identity_length;      /* 0: free */
    uint64_t asked, next, until; /* the kept messages next..until are to be sent */
    struct snapshot *snapshot;   /* NULL: none, or sent */
    uint32_t snapshot_at;
    uint64_t progress_ns;
};

struct ev_publisher {
    struct ev_publisher_options options;
    void *context, *publish, *replay;
    struct ev_listener *listener;
    struct message *kept; /* a ring of options.kept_messages */
    uint32_t kept_first, kept_count;
    struct snapshot snapshots[EV_SNAPSHOTS_MAX];
    struct snapshot *filling, *newest;
    struct answer answers[EV_REQUESTS_MAX];
    uint32_t answer_count;
    struct ev_publisher_stats stats;
};

/* ---- opening ---- */

static sl_err fail_zmq(struct sl_error *why, const char *what, const char *where)
{
    int code = zmq_errno();
    return sl_fail(why, code == ENOMEM ? SL_ERR_NO_MEMORY : SL_ERR_OS, "%s %.200s: %s", what, where,
                   zmq_strerror(code));
}

static bool set(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof(value)) == 0;
}

/* A socket that the listener's port at `where` relays to. */
static sl_err socket_open(struct ev_publisher *self, int type, const char *where, int queue,
                          void **out, struct sl_error *why)
{
    const int64_t bytes_max = EV_FRAME_BYTES_MAX;
    char inner[200];
    int length = snprintf(inner, sizeof(inner), "ipc://%s/events-%d.sock", self->options.directory,
                          (int)getpid());
    if (length < 0 || (size_t)length >= sizeof(inner)) {
        return sl_fail(why, SL_ERR_CONFIG, "'%.150s' is too long for a socket",
                       self->options.directory);
    }
    *out = zmq_socket(self->context, type);
    if (*out == NULL || !set(*out, ZMQ_LINGER, CLOSING_MS) || !set(*out, ZMQ_SNDHWM, queue) ||
        !set(*out, ZMQ_RCVHWM, (int)ROUND_REQUESTS) ||
        !set(*out, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS) ||
        zmq_setsockopt(*out, ZMQ_MAXMSGSIZE, &bytes_max, sizeof(bytes_max)) != 0 ||
        (type == ZMQ_ROUTER &&
         (!set(*out, ZMQ_ROUTER_MANDATORY, 1) || !set(*out, ZMQ_ROUTER_HANDOVER, 1)))) {
        return fail_zmq(why, "a socket for", where);
    }
    mode_t mask = umask(0177); /* for the file of an ipc socket */
    int failed = zmq_bind(*out, inner);
    (void)umask(mask);
    return failed == 0 ? ev_listener_add(self->listener, where, inner + strlen("ipc://"),
                                         type == ZMQ_PUB ? self->options.topic : NULL, why)
                       : fail_zmq(why, "listen at", inner);
}

sl_err ev_publisher_open(const struct ev_publisher_options *options, struct ev_publisher **out,
                         struct sl_error *why)
{
    struct ev_publisher *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "publisher of events");
    }
    self->options = *options;
    self->stats.sequence = options->incarnation;
    self->kept = calloc(options->kept_messages, sizeof(*self->kept));
    sl_err err = self->kept != NULL ? sl_zmq_context_open(&self->context, why)
                                    : sl_fail(why, SL_ERR_NO_MEMORY, "%u messages to keep",
                                              options->kept_messages);
    if (err == SL_OK) {
        err = ev_listener_create(options->idle_ms, &self->listener, why);
    }
    if (err == SL_OK) {
        err = socket_open(self, ZMQ_PUB, options->publish, (int)options->queue_messages,
                          &self->publish, why);
    }
    if (err == SL_OK) {
        err = socket_open(self, ZMQ_ROUTER, options->replay, REPLAY_QUEUE, &self->replay, why);
    }
    if (err == SL_OK) {
        err = ev_listener_start(self->listener, why);
    }
    if (err != SL_OK) {
        ev_publisher_close(&self);
        return err;
    }
    *out = self;
    return SL_OK;
}

static void snapshot_free(struct snapshot *snapshot)
{
    for (uint32_t i = 0; i < snapshot->count; i++) {
        free(snapshot->messages[i].payload);
    }
    free(snapshot->messages);
    *snapshot = (struct snapshot){0};
}

void ev_publisher_close(struct ev_publisher **publisher)
{
    struct ev_publisher *self = publisher != NULL ? *publisher : NULL;
    if (self == NULL) {
        return;
    }
    if (self->publish != NULL) {
        (void)zmq_close(self->publish);
    }
    if (self->replay != NULL) {
        (void)zmq_close(self->replay);
    }
    if (self->context != NULL) {
        (void)zmq_ctx_term(self->context);
    }
    ev_listener_destroy(&self->listener);
    for (uint32_t i = 0; i < EV_SNAPSHOTS_MAX; i++) {
        snapshot_free(&self->snapshots[i]);
    }
    for (uint32_t i = 0; self->kept != NULL && i < self->options.kept_messages; i++) {
        free(self->kept[i].payload);
    }
    free(self->kept);
    free(self);
    *publisher = NULL;
}

/* ---- publishing ---- */

static void sequence_write(uint64_t sequence, uint8_t out[SEQUENCE_BYTES])
{
    for (uint32_t i = 0; i < SEQUENCE_BYTES; i++) {
        out[i] = (uint8_t)(sequence >> (8 * (SEQUENCE_BYTES - 1 - i)));
    }
}

static void kept_drop(struct ev_publisher *self)
{
    struct message *oldest = &self->kept[self->kept_first];
    self->stats.kept_bytes -= oldest->length_bytes;
    free(oldest->payload);
    *oldest = (struct message){0};
    self->kept_first = (self->kept_first + 1) % self->options.kept_messages;
    self->kept_count--;
}

/* Sequence of the first kept message; if none is kept, of the next message. */
static uint64_t kept_begin(const struct ev_publisher *self)
{
    return self->stats.sequence - self->kept_count;
}

/* Keeps a copy of a message. Without memory it drops all kept ones: requests then get snapshots. */
static void keep(struct ev_publisher *self, const void *payload, size_t length_bytes)
{
    const struct ev_publisher_options *options = &self->options;
    void *copy = malloc(length_bytes);
    while (self->kept_count > 0 && (copy == NULL || self->kept_count == options->kept_messages ||
                                    self->stats.kept_bytes + length_bytes > options->kept_bytes)) {
        kept_drop(self);
    }
    if (copy == NULL || length_bytes > options->kept_bytes) {
        free(copy);
        return;
    }
    memcpy(copy, payload, length_bytes);
    self->kept[(self->kept_first + self->kept_count) % options->kept_messages] = (struct message){
        .sequence = self->stats.sequence, .length_bytes = length_bytes, .payload = copy};
    self->kept_count++;
    self->stats.kept_bytes += length_bytes;
}

/* Sends a message of several frames, completely or not at all. */
static bool frames_send(void *socket, const void *const frames[], const size_t lengths[],
                        uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        int more = i + 1 < count ? ZMQ_SNDMORE : 0;
        if (zmq_send(socket, frames[i], lengths[i], ZMQ_DONTWAIT | more) < 0) {
            return false; /* only the first frame can fail */
        }
    }
    return true;
}

void ev_publisher_send(struct ev_publisher *publisher, const void *payload, size_t length_bytes)
{
    uint8_t sequence[SEQUENCE_BYTES];
    sequence_write(publisher->stats.sequence, sequence);
    const void *const frames[] = {publisher->options.topic, sequence, payload};
    const size_t lengths[] = {strlen(publisher->options.topic), sizeof(sequence), length_bytes};
    (void)frames_send(publisher->publish, frames, lengths,
                      3); /* PUB drops messages and never blocks */
    keep(publisher, payload, length_bytes);
    publisher->stats.sequence++;
    publisher->stats.messages++;
    publisher->stats.bytes += length_bytes;
}

/* ---- requests ---- */

struct ev_replay_plan ev_replay_plan(uint64_t asked, uint64_t first, uint64_t next)
{
    bool kept = asked >= first && asked <= next;
    return (struct ev_replay_plan){.snapshot = !kept, .from = asked};
}

bool ev_request_parse(const void *const frames[], const size_t lengths[], uint32_t count,
                      uint64_t *asked)
{
    if (count != REQUEST_FRAMES || lengths[0] == 0 || lengths[0] > EV_IDENTITY_MAX ||
        lengths[1] != 0 || lengths[2] != SEQUENCE_BYTES) {
        return false;
    }
    const uint8_t *bytes = frames[2];
    *asked = 0;
    for (uint32_t i = 0; i < SEQUENCE_BYTES; i++) {
        *asked = *asked << 8 | bytes[i];
    }
    return true;
}

void ev_publisher_snapshot_add(struct ev_publisher *publisher, const void *payload,
                               size_t length_bytes)
{
    struct snapshot *snapshot = publisher->filling;
    if (snapshot == NULL || !snapshot->whole) {
        return;
    }
    void *copy = malloc(length_bytes);
    snapshot->whole =
        copy != NULL && SL_ARRAY_ROOM(snapshot->messages, snapshot->room, snapshot->count + 1);
    if (!snapshot->whole) {
        free(copy);
        return;
    }
    memcpy(copy, payload, length_bytes);
    snapshot->messages[snapshot->count++] =
        (struct message){.length_bytes = length_bytes, .payload = copy};
}

/* The newest snapshot if it is fresh and all later messages are kept, else a new one. NULL: all are
 * in use, or no memory. */
static struct snapshot *snapshot_take(struct ev_publisher *self, uint64_t now_ns)
{
    struct snapshot *newest = self->newest;
    if (newest != NULL && now_ns < newest->made_ns + SNAPSHOT_FRESH_NS &&
        newest->sequence + 1 >= kept_begin(self)) {
        return newest;
    }
    struct snapshot *free_one = NULL;
    for (uint32_t i = 0; i < EV_SNAPSHOTS_MAX; i++) {
        free_one = self->snapshots[i].users == 0 ? &self->snapshots[i] : free_one;
    }
    if (free_one == NULL) {
        return NULL;
    }
    snapshot_free(free_one);
    self->newest = NULL;
    self->filling = free_one;
    free_one->whole = true;
    free_one->made_ns = now_ns;
    free_one->sequence = self->stats.sequence - 1;
    self->options.snapshot(self->options.context);
    free_one->made_ns = sl_clock_monotonic_ns(); /* making it may take long */
    self->filling = NULL;
    if (!free_one->whole || free_one->count == 0) {
        snapshot_free(free_one);
        return NULL;
    }
    self->stats.snapshots++;
    self->newest = free_one;
    return free_one;
}

static void answer_end(struct ev_publisher *self, struct answer *answer)
{
    if (answer->snapshot != NULL) {
        answer->snapshot->users--;
    }
    *answer = (struct answer){0};
    self->answer_count--;
}

/* Starts the answer over with a snapshot. False: none is available now. */
static bool answer_snapshot(struct ev_publisher *self, struct answer *answer, uint64_t now_ns)
{
    struct snapshot *snapshot = snapshot_take(self, now_ns);
    if (snapshot == NULL) {
        return false;
    }
    snapshot->users++;
    answer->snapshot = snapshot;
    answer->snapshot_at = 0;
    answer->next = snapshot->sequence + 1;
    return true;
}

static void request_take(struct ev_publisher *self, const void *identity, size_t length,
                         uint64_t asked, uint64_t now_ns)
{
    struct answer *free_one = NULL;
    for (uint32_t i = 0; i < EV_REQUESTS_MAX; i++) {
        struct answer *answer = &self->answers[i];
        if (answer->identity_length == length &&
            memcmp(answer->identity, identity, length) == 0) { /* a new request replaces it */
            answer_end(self, answer);
        }
        free_one = answer->identity_length == 0 ? answer : free_one;
    }
    struct ev_replay_plan plan = ev_replay_plan(asked, kept_begin(self), self->stats.sequence);
    if (free_one == NULL) {
        self->stats.refused++;
        return;
    }
    *free_one = (struct answer){.identity_length = length,
                                .asked = asked,
                                .next = plan.from,
                                .until = self->stats.sequence,
                                .progress_ns = now_ns};
    memcpy(free_one->identity, identity, length);
    self->answer_count++;
    if (plan.snapshot && !answer_snapshot(self, free_one, now_ns)) {
        answer_end(self, free_one);
        self->stats.refused++;
        return;
    }
    self->stats.replays++;
}

static void requests_take(struct ev_publisher *self, uint64_t now_ns)
{
    for (uint32_t round = 0; round < ROUND_REQUESTS; round++) {
        zmq_msg_t parts[REQUEST_FRAMES];
        const void *frames[REQUEST_FRAMES];
        size_t lengths[REQUEST_FRAMES];
        uint32_t count = 0, kept = 0;
        bool more = true;
        while (more) { /* a message arrives completely or not at all */
            zmq_msg_t spare;
            zmq_msg_t *part = count < REQUEST_FRAMES ? &parts[count] : &spare;
            (void)zmq_msg_init(part);
            if (zmq_msg_recv(part, self->replay, ZMQ_DONTWAIT) < 0) {
                (void)zmq_msg_close(part);
                break;
            }
            more = zmq_msg_more(part) != 0;
            if (part == &spare) {
                (void)zmq_msg_close(part);
            } else {
                frames[kept] = zmq_msg_data(part);
                lengths[kept++] = zmq_msg_size(part);
            }
            count = SL_MIN(count + 1, REQUEST_FRAMES + 1);
        }
        uint64_t asked = 0;
        if (count > 0 && ev_request_parse(frames, lengths, count, &asked)) {
            request_take(self, frames[0], lengths[0], asked, now_ns);
        } else if (count > 0) {
            self->stats.refused++;
        }
        for (uint32_t i = 0; i < kept; i++) {
            (void)zmq_msg_close(&parts[i]);
        }
        if (count == 0) {
            return;
        }
    }
}

/* ---- answers ---- */

enum sent { SENT, SENT_LATER, SENT_NEVER };

static enum sent answer_send(struct ev_publisher *self, const struct answer *answer,
                             uint64_t sequence, const struct message *message)
{
    uint8_t number[SEQUENCE_BYTES];
    sequence_write(sequence, number);
    const char *topic = message != NULL ? self->options.topic : "";
    const void *const frames[] = {answer->identity, "", topic, number,
                                  message != NULL ? message->payload : ""};
    const size_t lengths[] = {answer->identity_length, 0, strlen(topic), sizeof(number),
                              message != NULL ? message->length_bytes : 0};
    if (frames_send(self->replay, frames, lengths, SL_COUNT(frames))) {
        return SENT;
    }
    return zmq_errno() == EAGAIN ? SENT_LATER : SENT_NEVER;
}

/* Sequence of a snapshot's next message. They rise to the snapshot's own, and none is lower than
 * the requested one, so that a subscriber that compares sequences accepts all of them. */
static uint64_t snapshot_number(const struct answer *answer)
{
    const struct snapshot *snapshot = answer->snapshot;
    uint64_t number = snapshot->sequence - (snapshot->count - 1 - answer->snapshot_at);
    return answer->asked <= snapshot->sequence ? SL_MAX(number, answer->asked) : number;
}

/* Sends the next message of an answer. SENT: it was sent, or a snapshot was begun instead. */
static enum sent answer_step(struct ev_publisher *self, struct answer *answer, uint64_t now_ns,
                             bool *ended)
{
    enum sent sent;
    if (answer->snapshot != NULL) {
        struct snapshot *snapshot = answer->snapshot;
        sent = answer_send(self, answer, snapshot_number(answer),
                           &snapshot->messages[answer->snapshot_at]);
        if (sent == SENT && ++answer->snapshot_at == snapshot->count) {
            snapshot->users--;
            answer->snapshot = NULL;
        }
        return sent;
    }
    uint64_t first = kept_begin(self);
    if (answer->next < first &&
        answer->next < answer->until) { /* messages were dropped meanwhile */
        answer->asked = answer->next;
        return answer_snapshot(self, answer, now_ns) ? SENT : SENT_LATER;
    }
    if (answer->next >= answer->until) {
        sent = answer_send(self, answer, EV_END_SEQUENCE, NULL);
        *ended = sent == SENT;
        return sent;
    }
    uint64_t at = (self->kept_first + (answer->next - first)) % self->options.kept_messages;
    sent = answer_send(self, answer, answer->next, &self->kept[at]);
    answer->next += sent == SENT;
    return sent;
}

bool ev_publisher_serve(struct ev_publisher *publisher, uint64_t now_ns)
{
    requests_take(publisher, now_ns);
    for (uint32_t i = 0; publisher->answer_count > 0 && i < EV_REQUESTS_MAX; i++) {
        struct answer *answer = &publisher->answers[i];
        bool ended = false;
        enum sent sent = answer->identity_length > 0 ? SENT : SENT_LATER;
        for (uint32_t n = 0; n < ROUND_MESSAGES && sent == SENT && !ended; n++) {
            sent = answer_step(publisher, answer, now_ns, &ended);
            answer->progress_ns = sent == SENT ? now_ns : answer->progress_ns;
        }
        if (answer->identity_length > 0 &&
            (ended || sent == SENT_NEVER || now_ns - answer->progress_ns > STALLED_NS)) {
            answer_end(publisher, answer);
        }
    }
    return publisher->answer_count > 0;
}

void ev_publisher_wait(struct ev_publisher *publisher, int fd, uint64_t wait_ns)
{
    zmq_pollitem_t items[] = {{.socket = publisher->replay, .events = ZMQ_POLLIN},
                              {.fd = fd, .events = ZMQ_POLLIN}};
    long wait_ms = (long)((wait_ns + SL_NS_PER_MS - 1) / SL_NS_PER_MS);
    (void)zmq_poll(items, SL_COUNT(items), wait_ms);
}

void ev_publisher_stats(const struct ev_publisher *publisher, struct ev_publisher_stats *out)
{
    const struct ev_listener_stats *bounds = ev_listener_stats(publisher->listener);
    *out = publisher->stats;
    out->connections_refused = atomic_load(&bounds->connections);
    out->topics_refused = atomic_load(&bounds->topics);
    out->connections_ended = atomic_load(&bounds->frames) + atomic_load(&bounds->idle);
    out->kept_messages = publisher->kept_count;
}
