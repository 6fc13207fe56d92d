/* ipc/gate_protocol.h - what a client and its stand-in say to each other: packets of a fixed size, with
 * one descriptor or none. One question, one answer, in order. */
#ifndef SL_GATE_PROTOCOL_H
#define SL_GATE_PROTOCOL_H

#include "runtime/sl_error.h"

#include <sys/types.h>

#define SL_GATE_SOCKET     "gate.attach"
#define SL_GATE_VERSION    1u
#define SL_GATE_NAME_BYTES 64u
#define SL_GATE_TEXT_BYTES 240u

enum sl_gate_question {
    SL_GATE_HELLO = 1,  /* descriptor: own pidfd, or none. Gives pid, start time, pid space */
    SL_GATE_OPEN = 2,   /* name, a: to write. Gives a descriptor */
    SL_GATE_LOOK = 3,   /* name. Gives device, inode */
    SL_GATE_REMOVE = 4, /* name: of own pins */
    SL_GATE_PINS = 5,   /* name, a: slots, b: accesses */
    SL_GATE_LEND = 6,   /* descriptor. Gives its number there */
    SL_GATE_UNLEND = 7, /* a: number */
    SL_GATE_FETCH = 8,  /* a: pid, b: start time, c: number. Gives a descriptor */
    SL_GATE_BYE = 9     /* no answer: the stand-in ends */
};

struct sl_gate_ask {
    char magic[8];
    uint32_t version, question;
    uint64_t a, b, c;
    char name[SL_GATE_NAME_BYTES]; /* zero-terminated */
};
struct sl_gate_answer {
    char magic[8];
    uint32_t version, code; /* enum sl_err */
    uint64_t a, b, c;
    char text[SL_GATE_TEXT_BYTES]; /* zero-terminated; of an error */
};
_Static_assert(sizeof(struct sl_gate_ask) == 104 && sizeof(struct sl_gate_answer) == 280,
               "wire layout");
static const char sl_gate_ask_magic[8] = {'s', 'l', 'g', 'a', 't', 'e', '>', '\n'};
static const char sl_gate_answer_magic[8] = {'s', 'l', 'g', 'a', 't', 'e', '<', '\n'};

/* One packet of exactly length_bytes, with the descriptor unless it is -1. Gives 0 or errno. */
int sl_gate_packet_send(int socket_fd, const void *packet, size_t length_bytes, int fd);
/* The same the other way: *fd is the caller's, -1 if none came. EPIPE: the other side is gone;
 * EMFILE: the packet is whole, but this process could not take its descriptor; EPROTO: it is no packet of
 * this length. */
int sl_gate_packet_take(int socket_fd, void *packet, size_t length_bytes, int *fd);

#endif
