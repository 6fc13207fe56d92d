/* client/tools/events/publish.h - the two sockets of the publisher: PUB for events, ROUTER for
 * requests of missed ones.
 *
 * A message of PUB is (topic, sequence, payload), the sequence as eight bytes, highest first. The
 * first sequence is the incarnation in microseconds since 1970, so that later runs have higher
 * ones.
 *
 * A request is (empty, sequence). The answer is (empty, topic, sequence, payload) for each kept
 * message from this sequence on, then (empty, empty, -1, empty). If a requested message is not kept
 * any more, or is of another run, the answer begins with a snapshot: AllBlocksCleared, then all
 * present blocks.
 *
 * Connections have bounds (listener.h). The publisher never waits: messages for a slow subscriber
 * are dropped, which it notices by the gap in the sequences; an answer continues when its receiver
 * reads. */
#ifndef SL_CLIENT_EVENTS_PUBLISH_H
#define SL_CLIENT_EVENTS_PUBLISH_H

#include "runtime/base/sl_error.h"

#define EV_REQUESTS_MAX  64u /* answers at a time; further requests are not answered */
#define EV_SNAPSHOTS_MAX 4u  /* in memory */
#define EV_IDENTITY_MAX  255u
#define EV_END_SEQUENCE  UINT64_MAX

struct ev_publisher_options {
    const char *publish, *replay; /* as ZeroMQ has addresses: tcp://IP:PORT, ipc://PATH */
    const char *directory;        /* for short-lived socket files */
    uint32_t idle_ms;             /* see listener.h */
    const char *topic;
    uint32_t queue_messages; /* queued for a slow subscriber */
    uint32_t kept_messages;  /* kept for requests, */
    uint64_t kept_bytes;     /* and their bytes at most */
    uint64_t incarnation;
    /* Passes all present blocks to ev_publisher_snapshot_add, message by message. */
    void (*snapshot)(void *context);
    void *context;
};
struct ev_publisher; /* opaque; one thread */

/* Errors: SL_ERR_OS (an address in use, ...), SL_ERR_NO_MEMORY. */
sl_err ev_publisher_open(const struct ev_publisher_options *options, struct ev_publisher **out,
                         struct sl_error *why);
void ev_publisher_close(struct ev_publisher **publisher);

/* Publishes a message and keeps a copy. */
void ev_publisher_send(struct ev_publisher *publisher, const void *payload, size_t length_bytes);
/* To be called only from options.snapshot. */
void ev_publisher_snapshot_add(struct ev_publisher *publisher, const void *payload,
                               size_t length_bytes);
/* Receives requests and continues answers. True: answers are unfinished, call it again soon. */
bool ev_publisher_serve(struct ev_publisher *publisher, uint64_t now_ns);
/* Waits up to wait_ns for a request, or until fd is readable. */
void ev_publisher_wait(struct ev_publisher *publisher, int fd, uint64_t wait_ns);

struct ev_publisher_stats {
    uint64_t sequence; /* of the next message */
    uint64_t messages, bytes;
    uint64_t kept_messages, kept_bytes;
    uint64_t replays, snapshots, refused;
    uint64_t connections_refused, topics_refused, connections_ended; /* by listener.h's bounds */
};
void ev_publisher_stats(const struct ev_publisher *publisher, struct ev_publisher_stats *out);

/* How an answer to a request for `asked` begins if messages first..next-1 are kept. */
struct ev_replay_plan {
    bool snapshot;
    uint64_t from; /* without a snapshot: the first message */
};
struct ev_replay_plan ev_replay_plan(uint64_t asked, uint64_t first, uint64_t next);
/* False: the frames are not a request. */
bool ev_request_parse(const void *const frames[], const size_t lengths[], uint32_t count,
                      uint64_t *asked);

#endif
