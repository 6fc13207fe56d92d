/* tests/support/events_subscribe.h - a subscriber for tests that stays in sync: it takes a snapshot
 * first and then live events.
 *
 * It subscribes before it requests the snapshot, so a live event whose sequence is at or below the
 * snapshot's is already included. After a gap in the sequences, or a restart of the publisher, it
 * requests the missing events. The publisher replies with them, or with a snapshot if it no longer
 * has them. */
#ifndef SL_TESTS_SUPPORT_EVENTS_SUBSCRIBE_H
#define SL_TESTS_SUPPORT_EVENTS_SUBSCRIBE_H

#include "client/tools/events/blocks.h"

#define EV_TEXT_BYTES 1100u

/* An event about one block, as received; for CLEARED only the type. */
struct ev_heard {
    enum ev_type type;
    uint64_t sequence;
    double time_s;
    struct ev_hash hash, parent; /* length 0: an integer, in number */
    bool has_parent;
    char medium[64], model[EV_TEXT_BYTES];
    uint32_t group_index; /* SL_BLOCK_NO_GROUP: none */
    bool snapshot;        /* from the answer to a request */
};
struct ev_message {
    double time_s;
    uint32_t event_count;
};
typedef void (*ev_heard_fn)(void *context, const struct ev_heard *heard);
/* Calls fn for each block of each event of a payload. Errors: SL_ERR_PROTOCOL; fn may have been
 * called before. */
sl_err ev_message_decode(const void *payload, size_t length_bytes, uint64_t sequence, bool snapshot,
                         ev_heard_fn fn, void *context, struct ev_message *out,
                         struct sl_error *why);

struct ev_subscriber; /* opaque; one thread */
/* Errors: SL_ERR_OS, SL_ERR_NO_MEMORY. */
sl_err ev_subscriber_open(const char *publish, const char *replay, struct ev_subscriber **out,
                          struct sl_error *why);
void ev_subscriber_close(struct ev_subscriber **subscriber);
/* Waits up to wait_ns for messages and passes each to fn in order. SL_OK also when none arrived.
 * Errors: SL_ERR_PROTOCOL (a message is no event), SL_ERR_UNREACHABLE (the publisher has not
 * answered a request for 3 s). */
sl_err ev_subscriber_step(struct ev_subscriber *subscriber, uint64_t wait_ns, ev_heard_fn fn,
                          void *context, struct sl_error *why);
struct ev_subscriber_stats {
    bool exact; /* a snapshot and all events since have arrived */
    uint64_t sequence, gaps, messages;
};
void ev_subscriber_stats(const struct ev_subscriber *subscriber, struct ev_subscriber_stats *out);

#endif
