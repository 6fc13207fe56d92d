/* ipc/msg/sl_lane.h - a lane between two processes of this node: two rings in a sealed memfd (one
 * per direction), two doorbells (pipes), and the socket over which these were passed.
 *
 * The offerer takes the first step: it creates all of them and connects to the other process's
 * socket RUNTIME_DIR/NAME.sock. It sends one message with its name, the protocol version and three
 * descriptors. The acceptor checks the kernel's credentials (uid), the message, the seals and the
 * size, maps the memory and answers. The socket stays open: its end shows each side that the other
 * has died, and it carries frames that are too long for a ring, each as a sealed memfd.
 *
 * Nothing here blocks, and every byte from the other side is treated as hostile. The two sides
 * share no open file except the memory. Each side opens the pipes again, so that no other process
 * can change O_NONBLOCK on the open file that its calls use. (An eventfd cannot be opened again: a
 * peer that cleared its O_NONBLOCK and filled its counter could block the writer.) One thread. */
#ifndef SL_LANE_H
#define SL_LANE_H

#include "ipc/msg/sl_queue.h"

/* version 1 had eventfds as doorbells, version 2 sent long frames by ZeroMQ */
#define SL_LANE_VERSION    3u
#define SL_LANE_NAME_BYTES 32u
/* Bound of long frames that the other side has not received. Each holds memory and a descriptor,
 * and Linux limits a user's descriptors in flight to RLIMIT_NOFILE. */
#define SL_LANE_LONG_MAX 64u

struct sl_lane {
    struct sl_queue_writer writer;
    struct sl_queue_reader reader;
    char name[SL_LANE_NAME_BYTES]; /* the other side's */
    void *memory;                  /* NULL: not mapped (yet) */
    uint64_t memory_bytes;
    int socket_fd;    /* -1: none. Readable: a frame to receive, or the end */
    int doorbell_fd;  /* our doorbell, on which we sleep; edge-triggered */
    int peer_bell_fd; /* the doorbell on which the other side sleeps */
    uint32_t rung;    /* rings since our doorbell was emptied */
    uint32_t pid;     /* of the process that connected to us; 0: we connected */
    struct {
        uint64_t position; /* position of its mark in the ring */
        uint64_t bytes;
    } untaken[SL_LANE_LONG_MAX]; /* long frames that were sent */
    uint32_t untaken_count;
};

/* Makes a lane that owns nothing, so that sl_lane_close is safe. */
void sl_lane_init(struct sl_lane *lane);
void sl_lane_close(struct sl_lane *lane);

/* Gives "RUNTIME_DIR/NAME.sock". Errors: SL_ERR_INVALID (too long for a socket). */
sl_err sl_lane_path(const char *runtime_dir, const char *name, char *out, size_t out_bytes);
/* Listens at path with mode 0600. Gives *fd. Replaces the socket of a dead process. Errors:
 * SL_ERR_EXISTS (a process listens there), SL_ERR_OS. */
sl_err sl_lane_listen(const char *path, int *fd, struct sl_error *why);

/* Connects, creates rings of ring_bytes each way and offers them under `name`. The lane is open
 * when sl_lane_answered returns SL_OK. Errors: SL_ERR_UNREACHABLE (no process listens), SL_ERR_BUSY
 * (too many at once), SL_ERR_PERMISSION (the listener has another uid), SL_ERR_VERSION (it uses
 * another version of lanes), SL_ERR_LIMIT (no descriptors or memory: errno). */
sl_err sl_lane_offer(struct sl_lane *lane, const char *path, const char *name, const char *peer,
                     uint64_t ring_bytes);
/* SL_OK: the lane is open. SL_ERR_NOT_FOUND: no answer yet. Other errors are final: the acceptor's
 * code (SL_ERR_LIMIT, SL_ERR_VERSION, ...), SL_ERR_PEER_DIED, SL_ERR_PROTOCOL. */
sl_err sl_lane_answered(struct sl_lane *lane);

/* Accepts one connection, whose offer follows. Errors: SL_ERR_NOT_FOUND (none waits),
 * SL_ERR_PERMISSION (another uid: it is closed), SL_ERR_LIMIT (no descriptors), SL_ERR_OS. */
sl_err sl_lane_accept(struct sl_lane *lane, int listen_fd);
/* Receives the offer, checks it and maps the memory. The lane then has its name, and is open after
 * sl_lane_confirm. Errors: SL_ERR_NOT_FOUND (nothing has arrived yet), SL_ERR_PEER_DIED,
 * SL_ERR_PROTOCOL, SL_ERR_VERSION, SL_ERR_LIMIT (no descriptors or memory). */
sl_err sl_lane_take_offer(struct sl_lane *lane);
/* Sends code to the offerer; SL_OK opens the lane. Errors: SL_ERR_PEER_DIED. */
sl_err sl_lane_confirm(struct sl_lane *lane, sl_err code);

/* Sends a frame of any length over the socket; the next frame of the ring is its mark. Errors:
 * SL_ERR_LIMIT (with the frames not yet received it exceeds SL_LANE_LONG_MAX or bytes_max; or no
 * descriptors or memory), SL_ERR_PEER_DIED. */
sl_err sl_lane_send_long(struct sl_lane *lane, const void *frame, size_t length_bytes,
                         uint64_t bytes_max);
/* Receives the next long frame, of at most bytes_max. Gives *frame, which no process can change;
 * release it with munmap. Errors: SL_ERR_PROTOCOL (there is none, or it is malformed), SL_ERR_LIMIT
 * (no descriptor: the frame is lost). */
sl_err sl_lane_take_long(const struct sl_lane *lane, uint64_t bytes_max, void **frame,
                         size_t *length_bytes);
/* Returns whether the other side still holds its end. */
bool sl_lane_holds(const struct sl_lane *lane);
/* Rings the other side's doorbell. */
void sl_lane_ring(const struct sl_lane *lane);
/* Counts a ring of our own doorbell, which is emptied now and then. */
void sl_lane_bell_drain(struct sl_lane *lane);

#endif
