/* ipc/msg/sl_mailbox.h - frames between processes of a node, over lanes (sl_lane.h).
 *
 * An actor listens at RUNTIME_DIR/NAME.sock. A process that talks to it offers it a lane there: a
 * pair of rings in shared memory, which carry its requests and the replies to them, in about a
 * microsecond when the other side is awake. A lane that ends is made anew by itself. Requests of
 * one process to another arrive in the order in which they were sent.
 *
 * Who sleeps has to say so, or the others do not ring: see sl_mailbox_sleep. One thread at a time.
 * Made after fork. */
#ifndef SL_MAILBOX_H
#define SL_MAILBOX_H

#include "runtime/base/sl_config.h"

#define SL_MAILBOX_LANES_MAX (1u << 17)

struct sl_mailbox_options {
    const char *runtime_dir;
    const char *name; /* at most 31 bytes */
    uint64_t message_bytes_max;
    uint64_t ring_bytes; /* of a lane, each way: a power of two in 4 KiB..64 MiB */
    uint32_t lanes_max;  /* actors: lanes that clients may have with this one; 0: a client */
    uint64_t spin_ns;    /* longest wait awake; see runtime/base/sl_spin.h for when there is any */
    bool spin_anyway;    /* always for spin_ns, whatever the rule says: measurements */
};
/* Fills bounds, rings and spinning from the settings. */
void sl_mailbox_options_from(const struct sl_config *config, struct sl_mailbox_options *options);
struct sl_mailbox; /* opaque */

/* What happened since it was opened. */
struct sl_mailbox_stats {
    uint64_t lane_sent, lane_received; /* frames */
    uint64_t doorbells;                /* sleepers that were woken */
    uint64_t wakeups_avoided;          /* frames that needed no doorbell */
    uint64_t lanes;                    /* that stand now */
    uint64_t lanes_ended;              /* by the other side */
    uint64_t lanes_refused;            /* offers of others that were not taken */
    uint64_t lanes_dropped;            /* for what the other side wrote, or did not do in time */
    uint64_t late_wakeups; /* frames that were found by looking again, not by a doorbell */
};

/* Errors: SL_ERR_EXISTS (another process serves this name), SL_ERR_INVALID, SL_ERR_NO_MEMORY,
 * SL_ERR_OS. A socket file that a dead actor left is replaced. */
sl_err sl_mailbox_open(const struct sl_mailbox_options *options, struct sl_mailbox **out,
                       struct sl_error *why);
/* Frames that were taken are read by the other side still. */
void sl_mailbox_close(struct sl_mailbox **mailbox);

/* Sends a copy. reply: to a peer that connected to us. Never blocks. Errors: SL_ERR_UNREACHABLE
 * (nobody is there), SL_ERR_BUSY (it has not accepted our lane yet: the first send to an actor says
 * so), SL_ERR_LIMIT (queue full, or it takes no more lanes), SL_ERR_VERSION (it does not know our
 * lanes), SL_ERR_PERMISSION (another user's), SL_ERR_INVALID (name, or larger than
 * message_bytes_max), SL_ERR_OS. */
sl_err sl_mailbox_send(struct sl_mailbox *mailbox, const char *to, const void *frame,
                       size_t length_bytes, bool reply);
/* Words what a send of requests to `to` answered. Gives code. */
sl_err sl_mailbox_fail(const struct sl_mailbox *mailbox, const char *to, sl_err code,
                       struct sl_error *why);
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
/* Whether a frame waits. */
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
 * sooner. True: loop_fd is readable. The caller receives until SL_ERR_NOT_FOUND next, and has
 * called sl_mailbox_sleep before. */
bool sl_mailbox_block(struct sl_mailbox *mailbox, uint64_t wait_ns);

#endif
