/* ipc/sl_mailbox.h - frames between processes of a node, whichever transport carries them.
 *
 * Today: ZeroMQ. An actor binds a ROUTER at ipc://RUNTIME_DIR/NAME.sock; whoever talks to it
 * connects a DEALER whose routing id is its own name. Requests travel DEALER -> ROUTER, replies
 * come back the same way. Linger 0, immediate, bounded queues, maximum message size, reconnect
 * within 10 ms, hand-over of a routing id to a restarted peer. Shared-memory rings join behind the
 * same interface.
 *
 * One thread. Made after fork. */
#ifndef SL_MAILBOX_H
#define SL_MAILBOX_H

#include "runtime/sl_error.h"

struct sl_mailbox_options {
    const char *runtime_dir;
    const char *name;        /* own routing id, at most 31 bytes */
    bool bind;               /* actors: true; clients: false */
    uint32_t queue_messages; /* bound for each peer and direction */
    uint64_t message_bytes_max;
};
struct sl_mailbox; /* opaque */

/* Errors: SL_ERR_EXISTS (another process serves this name), SL_ERR_INVALID, SL_ERR_NO_MEMORY,
 * SL_ERR_OS. A socket file that a dead actor left is replaced. */
sl_err sl_mailbox_open(const struct sl_mailbox_options *options, struct sl_mailbox **out,
                       struct sl_error *why);
/* Frames that were taken get 20 ms at most to leave. */
void sl_mailbox_close(struct sl_mailbox **mailbox);

/* Sends a copy. reply: to a peer that connected to us. Never blocks. Errors: SL_ERR_UNREACHABLE (no
 * live connection now; one is being made: the first send to an actor always says so, unless
 * connected before), SL_ERR_LIMIT (queue full), SL_ERR_INVALID (name, or larger than
 * message_bytes_max), SL_ERR_OS. */
sl_err sl_mailbox_send(struct sl_mailbox *mailbox, const char *to, const void *frame,
                       size_t length_bytes, bool reply);
/* Takes the next frame: *from and *frame are borrowed until the next call. SL_ERR_NOT_FOUND: none.
 * Fair between peers. */
sl_err sl_mailbox_receive(struct sl_mailbox *mailbox, const char **from, const void **frame,
                          size_t *length_bytes);
/* Waits for a frame or until budget_ns has passed. SL_ERR_TIMEOUT. For clients without a loop. */
sl_err sl_mailbox_wait(struct sl_mailbox *mailbox, uint64_t budget_ns);
/* Makes the connection to an actor, if there is none, and waits until it stands or budget_ns has
 * passed. Errors: SL_ERR_UNREACHABLE, SL_ERR_INVALID (name), SL_ERR_LIMIT (peers), SL_ERR_OS. */
sl_err sl_mailbox_connect(struct sl_mailbox *mailbox, const char *to, uint64_t budget_ns);
/* Whether a frame may wait that no descriptor announces (a send may swallow the wake-up): a loop
 * receives before it sleeps when this says so. */
bool sl_mailbox_pending(const struct sl_mailbox *mailbox);
/* How often a connection to an actor came to stand: a change says that somebody was (re)started. */
uint64_t sl_mailbox_connect_count(const struct sl_mailbox *mailbox);
/* Frames that were refused here: unnamed senders, several parts. */
uint64_t sl_mailbox_dropped_count(const struct sl_mailbox *mailbox);
/* Descriptors for a loop (they change when a peer is added: ask again after a send): at most max;
 * readable is a hint, receive until SL_ERR_NOT_FOUND. */
uint32_t sl_mailbox_fds(struct sl_mailbox *mailbox, int *fds, uint32_t max);

#endif
