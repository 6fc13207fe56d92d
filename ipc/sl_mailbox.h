/* ipc/sl_mailbox.h - frames between processes of a node, whichever transport carries them.
 *
 * ZeroMQ: an actor binds a ROUTER at ipc://RUNTIME_DIR/NAME.sock; a process that talks to it
 * connects a DEALER whose routing id is its own name. Requests travel DEALER -> ROUTER, replies
 * come back the same way. Linger 0, immediate, bounded queues, maximum message size, reconnect
 * within 10 ms, hand-over of a routing id to a restarted peer.
 *
 * Fast lanes (sl_lane.h): a process that talks to an actor also offers it a pair of rings in shared
 * memory at RUNTIME_DIR/NAME.attach. While a lane stands it carries the frames that fit, in about a
 * microsecond when the other side is awake; ZeroMQ carries everything before that, what is too
 * long, and everything again when a lane has ended. Lanes are made anew by themselves. Requests of
 * one process to another arrive in the order in which they were sent, over both transports
 * (replies: those of one transport).
 *
 * Who sleeps has to say so, or the others do not ring: see sl_mailbox_sleep. One thread at a time.
 * Made after fork. */
#ifndef SL_MAILBOX_H
#define SL_MAILBOX_H

#include "runtime/sl_config.h"

struct sl_mailbox_options {
    const char *runtime_dir;
    const char *name;        /* own routing id, at most 31 bytes */
    bool bind;               /* actors: true; clients: false */
    uint32_t queue_messages; /* bound for each peer and direction */
    uint64_t message_bytes_max;
    uint64_t ring_bytes; /* of a lane, each way: a power of two in 4 KiB..64 MiB; 0: ZeroMQ alone */
    uint32_t lanes_max;  /* actors: lanes that others may have with this one, 0..65535 */
    uint64_t spin_ns;    /* longest wait awake; see runtime/sl_spin.h for when there is any */
    bool spin_anyway;    /* always for spin_ns, whatever the rule says: measurements */
};
/* Fills bounds, rings and spinning from the settings. */
void sl_mailbox_options_from(const struct sl_config *config, struct sl_mailbox_options *options);
struct sl_mailbox; /* opaque */

/* What happened since it was opened. */
struct sl_mailbox_stats {
    uint64_t lane_sent, lane_received;     /* frames by shared memory */
    uint64_t socket_sent, socket_received; /* frames by ZeroMQ */
    uint64_t doorbells;                    /* sleepers that were woken */
    uint64_t wakeups_avoided;              /* frames by shared memory that needed no doorbell */
    uint64_t lanes;                        /* that stand now */
    uint64_t lanes_ended;                  /* by the other side */
    uint64_t lanes_refused;                /* offers of others that were not taken */
    uint64_t lanes_dropped; /* for what the other side wrote, or did not do in time */
    uint64_t late_wakeups;  /* frames that were found by looking again, not by a doorbell */
    uint64_t dropped;       /* frames that were refused here: unnamed senders, several parts */
};

/* A context of ZeroMQ. Its first socket makes threads and descriptors, and libzmq aborts the process
 * that cannot have them: so they are tried here first. Gives it for zmq_ctx_term.
 * Errors: SL_ERR_LIMIT (no more descriptors or threads for this process), SL_ERR_OS. */
sl_err sl_zmq_context_open(void **out, struct sl_error *why);

/* Errors: SL_ERR_EXISTS (another process serves this name), SL_ERR_INVALID, SL_ERR_NO_MEMORY,
 * SL_ERR_LIMIT (as above), SL_ERR_OS. A socket file that a dead actor left is replaced. */
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
/* To be called before every wait at the descriptors, when sl_mailbox_receive has given all: tells
 * the lanes' other sides that we sleep, and looks once more. 0: a frame is there, do not sleep.
 * Else the time (monotonic, ns) at which the wait must end at the latest, SL_NEVER_NS without
 * lanes. The next sl_mailbox_receive says that we are awake. */
uint64_t sl_mailbox_sleep(struct sl_mailbox *mailbox, uint64_t now_ns);
/* Waits awake for a frame on a lane, as long as it pays and not beyond until_ns: true when there is
 * one. */
bool sl_mailbox_spin(struct sl_mailbox *mailbox, uint64_t until_ns);
/* Whether a frame may wait that no descriptor announces (a send may swallow the wake-up): a loop
 * receives before it sleeps when this says so. */
bool sl_mailbox_pending(const struct sl_mailbox *mailbox);
/* How often a connection to an actor came to stand: a change says that an actor was (re)started. */
uint64_t sl_mailbox_connect_count(const struct sl_mailbox *mailbox);
void sl_mailbox_stats_get(const struct sl_mailbox *mailbox, struct sl_mailbox_stats *out);
/* The descriptor for a loop: readable is a hint, receive until SL_ERR_NOT_FOUND. */
int sl_mailbox_fd(const struct sl_mailbox *mailbox);
/* The other way round, for a loop most of whose wake-ups are the mailbox's: it waits in
 * sl_mailbox_block, at the mailbox's descriptors and at its own one, loop_fd. One system call a
 * wake-up instead of two, and no epoll inside another for a doorbell to pass. loop_fd (borrowed,
 * stays open as long as the mailbox) is an epoll, or anything level-triggered. Once a mailbox.
 * Errors: SL_ERR_OS. */
sl_err sl_mailbox_join(struct sl_mailbox *mailbox, int loop_fd, struct sl_error *why);
/* Waits until a descriptor is readable, or wait_ns (0: only asks) has passed; signals may end it
 * sooner. True: loop_fd is readable. The caller receives until SL_ERR_NOT_FOUND next, and has called
 * sl_mailbox_sleep before. */
bool sl_mailbox_block(struct sl_mailbox *mailbox, uint64_t wait_ns);

#endif
