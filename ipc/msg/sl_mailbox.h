/* ipc/msg/sl_mailbox.h - frames between processes of a node, over lanes (sl_lane.h).
 *
 * An actor listens at RUNTIME_DIR/NAME.sock. A process that sends to it offers it a lane there: a
 * pair of rings in shared memory for its requests and the replies to them. A frame takes about a
 * microsecond if the receiver is awake. A lane that ended is replaced automatically. Requests from
 * one process to another arrive in the order in which they were sent.
 *
 * A process that sleeps must announce it, or others do not ring its doorbell: see sl_mailbox_sleep.
 * One thread at a time. Created after fork. */
#ifndef SL_MAILBOX_H
#define SL_MAILBOX_H

#include "runtime/base/sl_config.h"

#define SL_MAILBOX_LANES_MAX (1u << 17)

struct sl_mailbox_options {
    const char *runtime_dir;
    const char *name; /* at most 31 bytes */
    uint64_t message_bytes_max;
    uint64_t ring_bytes; /* of a lane, each way: a power of two in 4 KiB..64 MiB */
    uint32_t lanes_max;  /* actors: maximum of lanes from clients; 0: a client */
    uint64_t spin_ns;    /* longest spin; see runtime/base/sl_spin.h for when a process spins */
    bool spin_anyway;    /* always spin for spin_ns, for measurements */
};
/* Fills bounds, rings and spinning from the settings. */
void sl_mailbox_options_from(const struct sl_config *config, struct sl_mailbox_options *options);
struct sl_mailbox; /* opaque */

/* Counts since the mailbox was opened. */
struct sl_mailbox_stats {
    uint64_t lane_sent, lane_received; /* frames */
    uint64_t doorbells;                /* sleepers woken */
    uint64_t wakeups_avoided;          /* frames that needed no doorbell */
    uint64_t lanes;                    /* open now */
    uint64_t lanes_ended;              /* by the other side */
    uint64_t lanes_refused;            /* offers of other processes that were refused */
    uint64_t lanes_dropped; /* because the other side wrote invalid data or missed a deadline */
    uint64_t late_wakeups;  /* frames found by polling again instead of by a doorbell */
};

/* Opens a mailbox. Replaces the socket file of a dead actor. Errors: SL_ERR_EXISTS (another process
 * serves this name), SL_ERR_INVALID, SL_ERR_NO_MEMORY, SL_ERR_OS. */
sl_err sl_mailbox_open(const struct sl_mailbox_options *options, struct sl_mailbox **out,
                       struct sl_error *why);
/* Frames that are in the rings can still be read by the other side. */
void sl_mailbox_close(struct sl_mailbox **mailbox);

/* Sends a copy of the frame. reply: to a peer that connected to us. Never blocks. Errors:
 * SL_ERR_UNREACHABLE (the peer does not run), SL_ERR_BUSY (it has not accepted our lane yet, as
 * with the first send to an actor), SL_ERR_LIMIT (queue full, or it accepts no more lanes),
 * SL_ERR_VERSION (it does not know our lanes), SL_ERR_PERMISSION (another user's), SL_ERR_INVALID
 * (name, or larger than message_bytes_max), SL_ERR_OS. */
sl_err sl_mailbox_send(struct sl_mailbox *mailbox, const char *to, const void *frame,
                       size_t length_bytes, bool reply);
/* Writes the message for a code that sending requests to `to` returned. Returns code. */
sl_err sl_mailbox_fail(const struct sl_mailbox *mailbox, const char *to, sl_err code,
                       struct sl_error *why);
/* Receives the next frame: *from and *frame are borrowed until the next call. SL_ERR_NOT_FOUND:
 * none. Fair between peers. */
sl_err sl_mailbox_receive(struct sl_mailbox *mailbox, const char **from, const void **frame,
                          size_t *length_bytes);
/* Call this before each wait for the descriptors, after sl_mailbox_receive has returned all frames.
 * It announces to all lanes that we sleep, and polls once more. 0: there is a frame, do not sleep.
 * Otherwise the latest time (monotonic, ns) at which the wait must end; SL_NEVER_NS: no limit. The
 * next sl_mailbox_receive withdraws the announcement. */
uint64_t sl_mailbox_sleep(struct sl_mailbox *mailbox, uint64_t now_ns);
/* Spins for a frame on a lane, as long as that pays and until until_ns at most. True: there is
 * one. */
bool sl_mailbox_spin(struct sl_mailbox *mailbox, uint64_t until_ns);
/* Whether a frame waits. */
bool sl_mailbox_pending(const struct sl_mailbox *mailbox);
/* Number of connections to actors that were opened. A change means that an actor was
 * (re)started. */
uint64_t sl_mailbox_connect_count(const struct sl_mailbox *mailbox);
void sl_mailbox_stats_get(const struct sl_mailbox *mailbox, struct sl_mailbox_stats *out);
/* The descriptor for an event loop. It being readable is a hint: receive until SL_ERR_NOT_FOUND. */
int sl_mailbox_fd(const struct sl_mailbox *mailbox);
/* The reverse, for a loop whose wake-ups mostly come from the mailbox: it waits in
 * sl_mailbox_block, for the mailbox's descriptors and for its own, loop_fd. This needs one system
 * call per wake-up instead of two, and a doorbell does not pass through nested epolls. loop_fd is
 * an epoll or any level-triggered descriptor; borrowed, it stays open as long as the mailbox. Once
 * per mailbox. Errors: SL_ERR_OS. */
sl_err sl_mailbox_join(struct sl_mailbox *mailbox, int loop_fd, struct sl_error *why);
/* Waits until a descriptor is readable or wait_ns has passed (0: only polls); signals may end it
 * early. True: loop_fd is readable. The caller has called sl_mailbox_sleep before, and receives
 * until SL_ERR_NOT_FOUND afterwards. */
bool sl_mailbox_block(struct sl_mailbox *mailbox, uint64_t wait_ns);

#endif
