/* ipc/gate_relay.h - messages between a client of another user and its stand-in that relays them, which began
 * with SL_GATE_RELAY (gate_protocol.h): packets with a head, each with a piece of a frame. Both sides use this.
 *
 * The client lends memory by number, and registrations of engines name that number where others name a
 * descriptor. What is to be sent is queued, and nothing here waits. One thread at a time. */
#ifndef SL_GATE_RELAY_H
#define SL_GATE_RELAY_H

#include "runtime/sl_error.h"

#include <stddef.h>

#define SL_GATE_RELAY_MEMORIES_MAX    64u /* that a client may lend at a time */
#define SL_GATE_RELAY_FRAME_BYTES_MAX (UINT64_C(8) << 20)

enum sl_gate_relay_kind {
    SL_GATE_RELAY_REGISTRAR = 1,   /* a frame to or from it */
    SL_GATE_RELAY_COORDINATOR = 2, /* likewise */
    SL_GATE_RELAY_MEMORY = 3, /* number, with a descriptor: what the number means from now on */
    SL_GATE_RELAY_FORGET = 4  /* number: means nothing any more */
};
struct sl_gate_relay_head {
    char magic[8];
    uint32_t kind, number;
    uint32_t total_bytes, at_bytes; /* of the frame, and where in it this packet's bytes belong */
};
_Static_assert(sizeof(struct sl_gate_relay_head) == 24, "wire layout");

struct sl_gate_relay; /* opaque */
struct sl_gate_relay_event {
    enum sl_gate_relay_kind kind;
    uint32_t number;
    const void *frame; /* borrowed until the next one is received */
    size_t length_bytes;
    int fd;   /* the caller's; -1: none */
    bool cut; /* of what is received: it had one, and this process may not have more open */
};

/* Takes the socket (SOCK_SEQPACKET, non-blocking), also on failure. Errors: SL_ERR_NO_MEMORY. */
sl_err sl_gate_relay_open(int socket_fd, struct sl_gate_relay **out, struct sl_error *why);
void sl_gate_relay_close(struct sl_gate_relay **relay);
int sl_gate_relay_fd(const struct sl_gate_relay *relay);
/* Frames are copied. fd (borrowed) is -1, or a descriptor of MEMORY. Errors: SL_ERR_LIMIT (too much waits to
 * leave, or something before a descriptor: flush, and try again), SL_ERR_INVALID (too long), SL_ERR_NO_MEMORY,
 * SL_ERR_UNREACHABLE (the other side is gone). */
sl_err sl_gate_relay_send(struct sl_gate_relay *relay, const struct sl_gate_relay_event *event);
/* Sends what waits, as far as the socket takes it. True: nothing waits any more. */
bool sl_gate_relay_flush(struct sl_gate_relay *relay);
/* The next event. Errors: SL_ERR_NOT_FOUND (none is whole), SL_ERR_UNREACHABLE (the other side is gone, or sent
 * what is none). */
sl_err sl_gate_relay_receive(struct sl_gate_relay *relay, struct sl_gate_relay_event *event);

#endif
