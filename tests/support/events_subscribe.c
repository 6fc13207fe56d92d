/* tests/support/events_subscribe.c - see events_subscribe.h. */
#include "tests/support/events_subscribe.h"
#include "client/tools/events/publish.h"
#include "runtime/base/sl_clock.h"

#include <msgpack/object.h>
#include <msgpack/unpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#define SEQUENCE_BYTES 8u
#define MESSAGE_BYTES  (1024 * 1024)
#define QUEUE          64 /* messages of each socket; the publisher keeps those that do not fit */
#define ANSWER_NS      SL_NS_PER_S       /* without a part of the answer for this long: ask again */
#define SILENT_NS      (3 * SL_NS_PER_S) /* the publisher is not running */
#define ROUND          512u
#define TWICE_MAX      (UINT64_C(1) << 20) /* messages: more than all queues have */

/* ---- decoding ---- */

static bool is_text(const msgpack_object *object, const char *text)
{
    return object->type == MSGPACK_OBJECT_STR && object->via.str.size == strlen(text) &&
           memcmp(object->via.str.ptr, text, object->via.str.size) == 0;
}

static const msgpack_object *field(const msgpack_object *event, const char *name, uint32_t place)
{
    if (event->type == MSGPACK_OBJECT_ARRAY) {
        return place < event->via.array.size ? &event->via.array.ptr[place] : NULL;
    }
    for (uint32_t i = 0; i < event->via.map.size; i++) {
        if (is_text(&event->via.map.ptr[i].key, name)) {
            return &event->via.map.ptr[i].val;
        }
    }
    return NULL;
}

static bool hash_read(const msgpack_object *object, struct ev_hash *out)
{
    *out = (struct ev_hash){0};
    if (object->type == MSGPACK_OBJECT_POSITIVE_INTEGER) {
        out->number = object->via.u64;
        return true;
    }
    if (object->type == MSGPACK_OBJECT_NEGATIVE_INTEGER) {
        out->number = (uint64_t)object->via.i64;
        out->is_signed = true;
        return true;
    }
    if (object->type != MSGPACK_OBJECT_BIN || object->via.bin.size == 0 ||
        object->via.bin.size > sizeof(out->bytes)) {
        return false;
    }
    out->length = (uint8_t)object->via.bin.size;
    memcpy(out->bytes, object->via.bin.ptr, out->length);
    return true;
}

static void text_read(const msgpack_object *object, char *out, size_t room)
{
    bool text = object != NULL && object->type == MSGPACK_OBJECT_STR;
    (void)snprintf(out, room, "%.*s", text ? (int)SL_MIN(object->via.str.size, room) : 0,
                   text ? object->via.str.ptr : "");
}

static bool event_decode(const msgpack_object *event, struct ev_heard *heard, ev_heard_fn fn,
                         void *context)
{
    if (event->type != MSGPACK_OBJECT_ARRAY && event->type != MSGPACK_OBJECT_MAP) {
        return false;
    }
    const msgpack_object *type = field(event, "type", 0);
    if (type != NULL && is_text(type, "AllBlocksCleared")) {
        heard->type = EV_CLEARED;
        fn(context, heard);
        return true;
    }
    bool stored = type != NULL && is_text(type, "BlockStored");
    if (!stored && (type == NULL || !is_text(type, "BlockRemoved"))) {
        return false;
    }
    heard->type = stored ? EV_STORED : EV_REMOVED;
    const msgpack_object *hashes = field(event, "block_hashes", 1);
    const msgpack_object *parent = stored ? field(event, "parent_block_hash", 2) : NULL;
    const msgpack_object *group =
        event->type == MSGPACK_OBJECT_MAP ? field(event, "group_idx", 0) : NULL;
    text_read(field(event, "medium", stored ? 6 : 2), heard->medium, sizeof(heard->medium));
    text_read(event->type == MSGPACK_OBJECT_MAP ? field(event, "model", 0) : NULL, heard->model,
              sizeof(heard->model));
    heard->group_index = group != NULL && group->type == MSGPACK_OBJECT_POSITIVE_INTEGER
                             ? (uint32_t)group->via.u64
                             : SL_BLOCK_NO_GROUP;
    heard->has_parent = parent != NULL && parent->type != MSGPACK_OBJECT_NIL;
    if (hashes == NULL || hashes->type != MSGPACK_OBJECT_ARRAY ||
        (heard->has_parent && !hash_read(parent, &heard->parent))) {
        return false;
    }
    bool chain = heard->has_parent;
    for (uint32_t i = 0; i < hashes->via.array.size; i++) {
        if (!hash_read(&hashes->via.array.ptr[i], &heard->hash)) {
            return false;
        }
        fn(context, heard);
        if (chain) {
            heard->parent = heard->hash;
        }
    }
    return true;
}

sl_err ev_message_decode(const void *payload, size_t length_bytes, uint64_t sequence, bool snapshot,
                         ev_heard_fn fn, void *context, struct ev_message *out,
                         struct sl_error *why)
{
    msgpack_unpacked unpacked;
    size_t offset = 0;
    bool good = false;
    msgpack_unpacked_init(&unpacked);
    *out = (struct ev_message){0};
    if (msgpack_unpack_next(&unpacked, payload, length_bytes, &offset) == MSGPACK_UNPACK_SUCCESS &&
        offset == length_bytes && unpacked.data.type == MSGPACK_OBJECT_ARRAY &&
        unpacked.data.via.array.size >= 2) {
        const msgpack_object *parts = unpacked.data.via.array.ptr;
        good =
            (parts[0].type == MSGPACK_OBJECT_FLOAT64 || parts[0].type == MSGPACK_OBJECT_FLOAT32) &&
            parts[0].via.f64 >= 0 && parts[0].via.f64 < 1e12 && /* excludes NaN */
            parts[1].type == MSGPACK_OBJECT_ARRAY;
        out->time_s = good ? parts[0].via.f64 : 0;
        out->event_count = good ? parts[1].via.array.size : 0;
        for (uint32_t i = 0; good && i < out->event_count; i++) {
            struct ev_heard heard = {
                .sequence = sequence, .time_s = out->time_s, .snapshot = snapshot};
            good = event_decode(&parts[1].via.array.ptr[i], &heard, fn, context);
        }
    }
    msgpack_unpacked_destroy(&unpacked);
    return good ? SL_OK
                : sl_fail(why, SL_ERR_PROTOCOL, "message %llu of %zu bytes is no batch of events",
                          (unsigned long long)sequence, length_bytes);
}

/* ---- sockets ---- */

struct ev_subscriber {
    void *context, *live, *replay;
    char *replay_address;
    bool asking;       /* an answer is in progress: live messages wait */
    uint64_t asked_ns; /* or when a part of the answer last arrived */
    uint64_t silent_since_ns;
    struct ev_subscriber_stats stats;
};

static bool set(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof(value)) == 0;
}

static sl_err socket_open(const struct ev_subscriber *self, int type, const char *where, void **out,
                          struct sl_error *why)
{
    int64_t bytes_max = MESSAGE_BYTES;
    *out = zmq_socket(self->context, type);
    if (*out == NULL || !set(*out, ZMQ_LINGER, 0) || !set(*out, ZMQ_RCVHWM, QUEUE) ||
        !set(*out, ZMQ_IPV6, 1) ||
        zmq_setsockopt(*out, ZMQ_MAXMSGSIZE, &bytes_max, sizeof(bytes_max)) != 0 ||
        (type == ZMQ_SUB && zmq_setsockopt(*out, ZMQ_SUBSCRIBE, "", 0) != 0) ||
        zmq_connect(*out, where) != 0) {
        return sl_fail(why, SL_ERR_OS, "connect to %.200s: %s", where, zmq_strerror(zmq_errno()));
    }
    return SL_OK;
}

static void ask(struct ev_subscriber *self, uint64_t from)
{
    uint8_t bytes[SEQUENCE_BYTES];
    if (self->asking) { /* the rest of an earlier answer must not be taken for this one's */
        (void)zmq_close(self->replay);
        (void)socket_open(self, ZMQ_DEALER, self->replay_address, &self->replay, NULL);
    }
    for (uint32_t i = 0; i < SEQUENCE_BYTES; i++) {
        bytes[i] = (uint8_t)(from >> (8 * (SEQUENCE_BYTES - 1 - i)));
    }
    if (zmq_send(self->replay, "", 0, ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0) {
        (void)zmq_send(self->replay, bytes, sizeof(bytes), ZMQ_DONTWAIT);
    }
    self->asking = true;
    self->stats.exact = false;
    self->asked_ns = sl_clock_monotonic_ns();
}

sl_err ev_subscriber_open(const char *publish, const char *replay, struct ev_subscriber **out,
                          struct sl_error *why)
{
    struct ev_subscriber *self = calloc(1, sizeof(*self));
    if (self == NULL || (self->context = zmq_ctx_new()) == NULL) {
        free(self);
        return sl_fail(why, SL_ERR_NO_MEMORY, "subscriber of events");
    }
    self->replay_address = strdup(replay);
    sl_err err = self->replay_address != NULL
                     ? socket_open(self, ZMQ_SUB, publish, &self->live, why)
                     : sl_fail(why, SL_ERR_NO_MEMORY, "subscriber of events");
    if (err == SL_OK) {
        err = socket_open(self, ZMQ_DEALER, replay, &self->replay, why);
    }
    if (err != SL_OK) {
        ev_subscriber_close(&self);
        return err;
    }
    self->silent_since_ns = sl_clock_monotonic_ns();
    ask(self, 0);
    *out = self;
    return SL_OK;
}

void ev_subscriber_close(struct ev_subscriber **subscriber)
{
    struct ev_subscriber *self = subscriber != NULL ? *subscriber : NULL;
    if (self == NULL) {
        return;
    }
    if (self->live != NULL) {
        (void)zmq_close(self->live);
    }
    if (self->replay != NULL) {
        (void)zmq_close(self->replay);
    }
    (void)zmq_ctx_term(self->context);
    free(self->replay_address);
    free(self);
    *subscriber = NULL;
}

/* Reads the last two frames: a sequence after its payload. False: no message waits. */
static bool take(void *socket, zmq_msg_t *payload, uint64_t *sequence, bool *good)
{
    uint8_t number[SEQUENCE_BYTES];
    size_t number_length = 0;
    uint32_t count = 0;
    bool more = true;
    (void)zmq_msg_init(payload);
    while (more) {
        if (count > 0) { /* the frame before */
            number_length = zmq_msg_size(payload);
            memcpy(number, zmq_msg_data(payload), SL_MIN(number_length, sizeof(number)));
        }
        if (zmq_msg_recv(payload, socket, ZMQ_DONTWAIT) < 0) {
            (void)zmq_msg_close(payload);
            return false;
        }
        more = zmq_msg_more(payload) != 0;
        count++;
    }
    *good = count >= 3 && number_length == SEQUENCE_BYTES;
    *sequence = 0;
    for (uint32_t i = 0; *good && i < SEQUENCE_BYTES; i++) {
        *sequence = *sequence << 8 | number[i];
    }
    return true;
}

static sl_err tell(struct ev_subscriber *self, zmq_msg_t *payload, uint64_t sequence,
                   ev_heard_fn fn, void *context, struct sl_error *why)
{
    struct ev_message message;
    sl_err err = ev_message_decode(zmq_msg_data(payload), zmq_msg_size(payload), sequence,
                                   self->asking, fn, context, &message, why);
    self->stats.messages++;
    if (err == SL_OK) {
        self->stats.sequence = sequence;
    }
    return err;
}

static sl_err answers_take(struct ev_subscriber *self, ev_heard_fn fn, void *context,
                           struct sl_error *why)
{
    zmq_msg_t payload;
    uint64_t sequence = 0;
    bool good = false;
    sl_err err = SL_OK;
    while (err == SL_OK && take(self->replay, &payload, &sequence, &good)) {
        self->asked_ns = self->silent_since_ns = sl_clock_monotonic_ns();
        if (!good) {
            err = sl_fail(why, SL_ERR_PROTOCOL, "an answer has other frames");
        } else if (!self->asking) {
            /* a late end, of a request that was given up */
        } else if (sequence == EV_END_SEQUENCE) {
            self->asking = false;
            self->stats.exact = true;
        } else {
            err = tell(self, &payload, sequence, fn, context, why);
        }
        (void)zmq_msg_close(&payload);
    }
    return err;
}

/* Whether the publisher restarted with its clock set back: its sequences, which begin with
 * microseconds, are then lower than before. A message that was received both live and in an answer
 * is at most TWICE_MAX behind. */
static bool is_other_life(const struct ev_subscriber *self, uint64_t sequence)
{
    return sequence + TWICE_MAX < self->stats.sequence;
}

static sl_err live_take(struct ev_subscriber *self, ev_heard_fn fn, void *context,
                        struct sl_error *why)
{
    zmq_msg_t payload;
    uint64_t sequence = 0;
    bool good = false;
    sl_err err = SL_OK;
    for (uint32_t n = 0; n < ROUND && err == SL_OK && !self->asking; n++) {
        if (!take(self->live, &payload, &sequence, &good)) {
            break;
        }
        self->silent_since_ns = sl_clock_monotonic_ns();
        uint64_t next = self->stats.sequence + 1;
        if (!good) {
            err = sl_fail(why, SL_ERR_PROTOCOL, "a message has other frames");
        } else if (sequence > next) {
            self->stats.gaps++;
            ask(self, next); /* the answer includes this message */
        } else if (sequence == next) {
            err = tell(self, &payload, sequence, fn, context, why);
        } else if (is_other_life(self, sequence)) {
            self->stats.gaps++;
            ask(self, 0);
        }
        (void)zmq_msg_close(&payload);
    }
    return err;
}

sl_err ev_subscriber_step(struct ev_subscriber *subscriber, uint64_t wait_ns, ev_heard_fn fn,
                          void *context, struct sl_error *why)
{
    zmq_pollitem_t items[] = {{.socket = subscriber->replay, .events = ZMQ_POLLIN},
                              {.socket = subscriber->live, .events = ZMQ_POLLIN}};
    int count = subscriber->asking ? 1 : 2; /* live messages wait for the answer */
    (void)zmq_poll(items, count, (long)(wait_ns / SL_NS_PER_MS));
    sl_err err = answers_take(subscriber, fn, context, why);
    if (err == SL_OK && !subscriber->asking) {
        err = live_take(subscriber, fn, context, why);
    }
    uint64_t now_ns = sl_clock_monotonic_ns();
    if (err == SL_OK && now_ns - subscriber->silent_since_ns > SILENT_NS) {
        return sl_fail(why, SL_ERR_UNREACHABLE, "the publisher says nothing");
    }
    if (err == SL_OK && subscriber->asking && now_ns - subscriber->asked_ns > ANSWER_NS) {
        ask(subscriber, 0); /* after a broken answer it is unknown what is missing */
    }
    return err;
}

void ev_subscriber_stats(const struct ev_subscriber *subscriber, struct ev_subscriber_stats *out)
{
    *out = subscriber->stats;
}
