/* client/tools/events/publish.h - the two sockets of the publisher: PUB, and ROUTER for who missed
 * something.
 *
 * A message of PUB is (topic, sequence, payload), the sequence as eight bytes, highest first. The
 * first one is the incarnation: microseconds since 1970, so that another life has higher ones.
 *
 * A request is (empty, sequence). The answer is (empty, topic, sequence, payload) for each message
 * that is kept from this sequence on, then (empty, empty, -1, empty). When one is not kept any
 * more, or was of another life, the answer begins with a snapshot: AllBlocksCleared, and all blocks
 * that are there.
 *
 * Connections have bounds (listener.h). Nobody is waited for: of a subscriber that is slow messages
 * are dropped, as its gap in the sequences tells it; an answer goes on when its receiver takes
 * more. */
#ifndef SL_CLIENT_EVENTS_PUBLISH_H
#define SL_CLIENT_EVENTS_PUBLISH_H

#include "runtime/base/sl_error.h"

#define EV_REQUESTS_MAX  64u /* answers under way; more requests are not answered */
#define EV_SNAPSHOTS_MAX 4u  /* in memory */
#define EV_IDENTITY_MAX  255u
#define EV_END_SEQUENCE  UINT64_MAX

struct ev_publisher_options {
    const char *publish, *replay; /* as ZeroMQ has addresses: tcp://IP:PORT, ipc://PATH */
    const char *directory;        /* for a moment there are sockets in it */
    uint32_t idle_ms;             /* see listener.h */
    const char *topic;
    uint32_t queue_messages; /* kept for a subscriber that does not take them */
    uint32_t kept_messages;  /* for requests, */
    uint64_t kept_bytes;     /* and at most so many bytes */
    uint64_t incarnation;
    /* Gives all that there is to ev_publisher_snapshot_add, message by message. */
    void (*snapshot)(void *context);
    void *context;
};
struct ev_publisher; /* opaque; one thread */

/* Errors: SL_ERR_OS (an address that is taken, ...), SL_ERR_NO_MEMORY. */
sl_err ev_publisher_open(const struct ev_publisher_options *options, struct ev_publisher **out,
                         struct sl_error *why);
void ev_publisher_close(struct ev_publisher **publisher);

/* Sends, and keeps a copy. */
void ev_publisher_send(struct ev_publisher *publisher, const void *payload, size_t length_bytes);
/* During a call of snapshot alone. */
void ev_publisher_snapshot_add(struct ev_publisher *publisher, const void *payload,
                               size_t length_bytes);
/* Takes requests, and goes on with answers. True: some are under way; soon again. */
bool ev_publisher_serve(struct ev_publisher *publisher, uint64_t now_ns);
/* Waits for a request, or until fd has something, so long. */
void ev_publisher_wait(struct ev_publisher *publisher, int fd, uint64_t wait_ns);

struct ev_publisher_stats {
    uint64_t sequence; /* of the next message */
    uint64_t messages, bytes;
    uint64_t kept_messages, kept_bytes;
    uint64_t replays, snapshots, refused;
    uint64_t connections_refused, topics_refused, connections_ended; /* by listener.h's bounds */
};
void ev_publisher_stats(const struct ev_publisher *publisher, struct ev_publisher_stats *out);

/* Where an answer to a request for `asked` begins, when messages first..next-1 are kept. */
struct ev_replay_plan {
    bool snapshot;
    uint64_t from; /* else: the first message */
};
struct ev_replay_plan ev_replay_plan(uint64_t asked, uint64_t first, uint64_t next);
/* False: frames that are no request. */
bool ev_request_parse(const void *const frames[], const size_t lengths[], uint32_t count,
                      uint64_t *asked);

#endif
