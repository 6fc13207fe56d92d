/* ipc/gate_protocol.h - what a client and its stand-in say to each other: packets of a fixed size, with
 * one descriptor or none. One question, one answer, in order.
 *
 * A client of another user that may write has a second connection, which begins with SL_GATE_WRITE. Its
 * stand-in has a *window*: a sealed memfd in slots of the same size. Whoever asks fills a slot first: items
 * from its start, then the bytes that they speak of. The answer comes when the slot is the client's again.
 *
 * One that registers engines has a third connection, which begins with SL_GATE_RELAY (gate_relay.h). */
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
    SL_GATE_BYE = 9,    /* no answer: the stand-in ends */
    /* The first one of a connection. Gives a: bytes of the window, b: slots, text: the pin segment of the
     * stand-in, which a client of the same user may OPEN to read; descriptor: the window */
    SL_GATE_WRITE = 10,
    /* Then these. a: slot, b: items, c: ns that it may take from when it is read on, SL_GATE_WAIT_NS_MAX at
     * most; the answer has the slot in a. Slots are served side by side: answers come in any order. A slot
     * with a question has no second one before the answer. */
    SL_GATE_PUT = 11,   /* items: key, value */
    SL_GATE_PIN = 12,   /* items: key. Gives place, length, arena, birth, number */
    SL_GATE_UNPIN = 13, /* a: number. No answer */
    /* One item: key, length, place: ns that the draft lives, SL_GATE_WAIT_NS_MAX at most; 0: so long. Gives
     * number, which no other draft of the connection has. SL_ERR_LIMIT: too many drafts, or bytes of them */
    SL_GATE_DRAFT = 14,
    /* Items: number (all the same), place in the value, value. SL_ERR_LIMIT: more than SL_GATE_RANGES_MAX */
    SL_GATE_FILL = 15,
    SL_GATE_COMMIT = 16, /* one item: number, which is over */
    SL_GATE_DROP = 17,   /* a: number of a draft. No slot, no answer; at once, as UNPIN */
    /* The first one of a connection. Packets of gate_relay.h follow, and no other question */
    SL_GATE_RELAY = 18
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
    char text[SL_GATE_TEXT_BYTES]; /* zero-terminated; of an error, but for WRITE */
};
/* Of a slot. What it points at lies in the slot, behind the items. */
struct sl_gate_item {
    uint64_t value_at, length_bytes;
    uint64_t key_at;
    uint64_t place; /* FILL: where in the value; DRAFT: ns; of PIN's answer: where in the arena */
    uint64_t birth; /* of that arena (sl_arena_birth_generation) */
    uint32_t key_length, arena;
    uint32_t number; /* of a view or a draft, from 1 on */
    uint32_t code;   /* of the answer: enum sl_err */
};
_Static_assert(sizeof(struct sl_gate_ask) == 104 && sizeof(struct sl_gate_answer) == 280 &&
                   sizeof(struct sl_gate_item) == 56,
               "wire layout");
#define SL_GATE_ITEMS_MAX 1024u /* of one question */
#define SL_GATE_SLOTS     4u
/* Of a slot: all items with their keys, and as much again. */
#define SL_GATE_SLOT_BYTES_MIN (UINT64_C(2) << 20)
#define SL_GATE_VIEWS_MAX      4096u /* that one client has pinned */
/* Of one question, and of a draft from DRAFT to the end of its COMMIT. */
#define SL_GATE_WAIT_NS_MAX (60 * UINT64_C(1000000000))
/* In so many ranges a draft may be written, where none touches the one before. */
#define SL_GATE_RANGES_MAX 4096u
#define SL_GATE_AT_ONCE    (UINT64_C(1) << 32) /* of a in PUT and DRAFT: sl_terms.at_once */
static const char sl_gate_ask_magic[8] = {'s', 'l', 'g', 'a', 't', 'e', '>', '\n'};
static const char sl_gate_answer_magic[8] = {'s', 'l', 'g', 'a', 't', 'e', '<', '\n'};

/* sendmsg of one packet, with the descriptor unless it is -1; and recvmsg: *fd is the caller's, -1 if none came,
 * *message_flags are the system's. Both go on behind a signal, and leave errno. */
ssize_t sl_gate_message_send(int socket_fd, const void *packet, size_t length_bytes, int fd,
                             int flags);
ssize_t sl_gate_message_take(int socket_fd, void *packet, size_t room_bytes, int flags, int *fd,
                             int *message_flags);
/* One packet of exactly length_bytes, with the descriptor unless it is -1. Gives 0 or errno. */
int sl_gate_packet_send(int socket_fd, const void *packet, size_t length_bytes, int fd);
/* The same the other way: *fd is the caller's, -1 if none came. EPIPE: the other side is gone;
 * EMFILE: the packet is whole, but this process could not take its descriptor; EPROTO: it is no packet of
 * this length. */
int sl_gate_packet_take(int socket_fd, void *packet, size_t length_bytes, int *fd);

#endif
