/* ipc/msg/sl_lane.h - a lane between two processes of this node: two rings in a sealed memfd, one
 * each way, two doorbells (pipes), and the socket over which they were handed over.
 *
 * The offerer, which takes the first step, makes all of it and connects to the other's socket
 * RUNTIME_DIR/NAME.sock. It sends one message with its name, the protocol version and three
 * descriptors. The acceptor checks the kernel's credentials (uid), the message, the seals and the
 * size, maps the memory and answers. The socket then stays open: its end is how each side learns of
 * the other's death, and it carries frames that are too long for a ring, each as a sealed memfd.
 *
 * Nothing here blocks, and every byte that comes from the other side is hostile. No open file is
 * shared but the memory: each side opens the pipes anew, so that nobody else's O_NONBLOCK is what
 * its calls wait by. (An eventfd cannot be opened anew: who cleared its O_NONBLOCK and filled its
 * counter stopped whoever rang it.) One thread. */
#ifndef SL_LANE_H
#define SL_LANE_H

#include "ipc/msg/sl_queue.h"

/* 1 had eventfds as doorbells, 2 sent long frames by ZeroMQ. */
#define SL_LANE_VERSION    3u
#define SL_LANE_NAME_BYTES 32u
/* Long frames that the other side has not taken: each holds a descriptor of this user, of which
 * Linux lets RLIMIT_NOFILE be on their way, and memory. */
#define SL_LANE_LONG_MAX 64u

struct sl_lane {
    struct sl_queue_writer writer;
    struct sl_queue_reader reader;
    char name[SL_LANE_NAME_BYTES]; /* the other side's */
    void *memory;                  /* NULL: not mapped (yet) */
    uint64_t memory_bytes;
    int socket_fd;    /* -1: none. Readable: something to take, or the end */
    int doorbell_fd;  /* we sleep on it; edge-triggered */
    int peer_bell_fd; /* the other side sleeps on it */
    uint32_t rung;    /* since our doorbell was emptied */
    uint32_t pid;     /* of the process that connected to us; 0: we connected */
    struct {
        uint64_t position; /* of its mark in the ring */
        uint64_t bytes;
    } untaken[SL_LANE_LONG_MAX]; /* long frames that we sent */
    uint32_t untaken_count;
};

/* A lane that owns nothing. close() is safe from here on. */
void sl_lane_init(struct sl_lane *lane);
void sl_lane_close(struct sl_lane *lane);

/* "RUNTIME_DIR/NAME.sock". Errors: SL_ERR_INVALID (too long for a socket). */
sl_err sl_lane_path(const char *runtime_dir, const char *name, char *out, size_t out_bytes);
/* Listens at path, 0600. Gives *fd. A socket that a dead process left is replaced.
 * Errors: SL_ERR_EXISTS (a process listens there), SL_ERR_OS. */
sl_err sl_lane_listen(const char *path, int *fd, struct sl_error *why);

/* Connects, makes rings of ring_bytes each way, offers them under `name`. The lane stands when
 * sl_lane_answered says so. Errors: SL_ERR_UNREACHABLE (nobody listens), SL_ERR_BUSY (too many at
 * once), SL_ERR_PERMISSION (the listener is of another uid), SL_ERR_VERSION (it
 * knows other lanes), SL_ERR_LIMIT (no descriptors, no memory:
 * errno). */
sl_err sl_lane_offer(struct sl_lane *lane, const char *path, const char *name, const char *peer,
                     uint64_t ring_bytes);
/* SL_OK: the lane stands. SL_ERR_NOT_FOUND: no answer yet. Others: there will be none: the
 * acceptor's code (SL_ERR_LIMIT, SL_ERR_VERSION, ...), SL_ERR_PEER_DIED, SL_ERR_PROTOCOL. */
sl_err sl_lane_answered(struct sl_lane *lane);

/* Accepts one connection whose offer is still to come. Errors: SL_ERR_NOT_FOUND (none waits),
 * SL_ERR_PERMISSION (another uid: it is closed), SL_ERR_LIMIT (no descriptors), SL_ERR_OS. */
sl_err sl_lane_accept(struct sl_lane *lane, int listen_fd);
/* Takes the offer, checks and maps it; the lane has its name, and stands after sl_lane_confirm.
 * Errors: SL_ERR_NOT_FOUND (nothing came yet), SL_ERR_PEER_DIED, SL_ERR_PROTOCOL, SL_ERR_VERSION,
 * SL_ERR_LIMIT (no descriptors, no memory). */
sl_err sl_lane_take_offer(struct sl_lane *lane);
/* Tells the offerer code; SL_OK makes the lane stand. Errors: SL_ERR_PEER_DIED. */
sl_err sl_lane_confirm(struct sl_lane *lane, sl_err code);

/* Hands over a frame of any length by the socket, beside the ring, whose next frame is its mark.
 * Errors: SL_ERR_LIMIT (it and what the other side has not taken are more than SL_LANE_LONG_MAX, or
 * than bytes_max; no descriptors, no memory), SL_ERR_PEER_DIED. */
sl_err sl_lane_send_long(struct sl_lane *lane, const void *frame, size_t length_bytes,
                         uint64_t bytes_max);
/* Takes the next one, of bytes_max at most: gives *frame, which nobody can change, for munmap.
 * Errors: SL_ERR_PROTOCOL (there is none, or it is not what it has to be), SL_ERR_LIMIT (no
 * descriptor: that frame is lost). */
sl_err sl_lane_take_long(const struct sl_lane *lane, uint64_t bytes_max, void **frame,
                         size_t *length_bytes);
/* Whether the other side still holds its end. */
bool sl_lane_holds(const struct sl_lane *lane);
/* Rings the other side's doorbell. */
void sl_lane_ring(const struct sl_lane *lane);
/* Our own doorbell rang: now and then it is emptied. */
void sl_lane_rung(struct sl_lane *lane);

#endif
