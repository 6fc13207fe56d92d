/* ipc/gate_relay.c - see gate_relay.h. */
#include "ipc/gate_relay.h"
#include "ipc/gate_protocol.h"
#include "runtime/sl_base.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECE_BYTES  32768u
#define PACKET_BYTES (sizeof(struct sl_gate_relay_head) + PIECE_BYTES)
/* A frame is queued while less than this waits. */
#define WAITING_BYTES_MAX (UINT64_C(1) << 20)
/* Room for frames that is kept. */
#define KEPT_BYTES (UINT64_C(256) << 10)
/* Packets of one call: whoever sends without an end keeps nobody from other work. */
#define PACKETS_MAX 512u

static const char magic[8] = {'s', 'l', 'r', 'e', 'l', 'a', 'y', '\n'};

struct buffer {
    unsigned char *at;
    uint64_t from, end, room;
};

struct sl_gate_relay {
    int fd;
    bool gone;
    struct sl_gate_relay_head in; /* of the frame that comes; total_bytes 0: none */
    struct buffer frame;          /* end: so much of it is there */
    bool given;                   /* the frame is the caller's until the next call */
    struct buffer waiting;        /* packets, each behind its length */
    unsigned char packet[PACKET_BYTES];
};

sl_err sl_gate_relay_open(int socket_fd, struct sl_gate_relay **out, struct sl_error *why)
{
    struct sl_gate_relay *relay = calloc(1, sizeof(*relay));
    if (relay == NULL) {
        (void)close(socket_fd);
        return sl_fail(why, SL_ERR_NO_MEMORY, "relay");
    }
    relay->fd = socket_fd;
    *out = relay;
    return SL_OK;
}

void sl_gate_relay_close(struct sl_gate_relay **relay)
{
    struct sl_gate_relay *gone = *relay;
    *relay = NULL;
    if (gone != NULL) {
        (void)close(gone->fd);
        free(gone->frame.at);
        free(gone->waiting.at);
        free(gone);
    }
}

int sl_gate_relay_fd(const struct sl_gate_relay *relay)
{
    return relay->fd;
}

static bool buffer_room(struct buffer *buffer, uint64_t bytes)
{
    if (buffer->room - buffer->end >= bytes) {
        return true;
    }
    uint64_t room = SL_MAX(buffer->end + bytes, 2 * buffer->room);
    unsigned char *at = realloc(buffer->at, room);
    if (at == NULL) {
        return false;
    }
    buffer->at = at;
    buffer->room = room;
    return true;
}

static void buffer_empty(struct buffer *buffer)
{
    buffer->from = buffer->end = 0;
    if (buffer->room > KEPT_BYTES) {
        free(buffer->at);
        *buffer = (struct buffer){0};
    }
}

/* What has left makes room. */
static void buffer_compact(struct buffer *buffer)
{
    if (buffer->from > buffer->end / 2) {
        memmove(buffer->at, buffer->at + buffer->from, buffer->end - buffer->from);
        buffer->end -= buffer->from;
        buffer->from = 0;
    }
}

/* ---- sending ---- */

/* Gives 0 or errno. */
static int packet_send(const struct sl_gate_relay *relay, const void *packet, size_t length_bytes,
                       int fd)
{
    ssize_t sent = sl_gate_message_send(relay->fd, packet, length_bytes, fd, MSG_DONTWAIT);
    return sent >= 0 ? 0 : errno;
}

static bool is_short_of_room(int os_code)
{
    return os_code == EAGAIN || os_code == ENOBUFS || os_code == ENOMEM || os_code == ETOOMANYREFS;
}

bool sl_gate_relay_flush(struct sl_gate_relay *relay)
{
    struct buffer *waiting = &relay->waiting;
    while (!relay->gone && waiting->from < waiting->end) {
        uint32_t length_bytes = 0;
        memcpy(&length_bytes, waiting->at + waiting->from, sizeof(length_bytes));
        int os_code = packet_send(relay, waiting->at + waiting->from + sizeof(length_bytes),
                                  length_bytes, -1);
        if (is_short_of_room(os_code)) {
            return false;
        }
        relay->gone = relay->gone || os_code != 0;
        waiting->from += sizeof(length_bytes) + length_bytes;
    }
    buffer_empty(waiting);
    return true;
}

/* One packet, behind those that wait. False: no memory. */
static bool packet_queue(struct buffer *waiting, const struct sl_gate_relay_head *head,
                         const unsigned char *piece, uint32_t piece_bytes)
{
    uint32_t length_bytes = (uint32_t)sizeof(*head) + piece_bytes;
    if (!buffer_room(waiting, sizeof(length_bytes) + length_bytes)) {
        return false;
    }
    memcpy(waiting->at + waiting->end, &length_bytes, sizeof(length_bytes));
    memcpy(waiting->at + waiting->end + sizeof(length_bytes), head, sizeof(*head));
    if (piece_bytes > 0) {
        memcpy(waiting->at + waiting->end + sizeof(length_bytes) + sizeof(*head), piece,
               piece_bytes);
    }
    waiting->end += sizeof(length_bytes) + length_bytes;
    return true;
}

sl_err sl_gate_relay_send(struct sl_gate_relay *relay, const struct sl_gate_relay_event *event)
{
    struct sl_gate_relay_head head = {.kind = (uint32_t)event->kind,
                                      .number = event->number,
                                      .total_bytes = (uint32_t)event->length_bytes};
    memcpy(head.magic, magic, sizeof(head.magic));
    if (event->length_bytes > SL_GATE_RELAY_FRAME_BYTES_MAX) {
        return SL_ERR_INVALID;
    }
    bool idle = sl_gate_relay_flush(relay);
    if (relay->gone) {
        return SL_ERR_UNREACHABLE;
    }
    buffer_compact(&relay->waiting);
    if (event->fd >= 0) {
        int os_code = idle ? packet_send(relay, &head, sizeof(head), event->fd) : EAGAIN;
        relay->gone = os_code != 0 && !is_short_of_room(os_code);
        return os_code == 0 ? SL_OK : relay->gone ? SL_ERR_UNREACHABLE : SL_ERR_LIMIT;
    }
    if (relay->waiting.end - relay->waiting.from > WAITING_BYTES_MAX) {
        return SL_ERR_LIMIT;
    }
    uint64_t end = relay->waiting.end;
    const unsigned char *frame = event->frame;
    do {
        uint32_t piece_bytes = SL_MIN(head.total_bytes - head.at_bytes, PIECE_BYTES);
        if (!packet_queue(&relay->waiting, &head, frame + head.at_bytes, piece_bytes)) {
            relay->waiting.end = end;
            return SL_ERR_NO_MEMORY;
        }
        head.at_bytes += piece_bytes;
    } while (head.at_bytes < head.total_bytes);
    (void)sl_gate_relay_flush(relay);
    return relay->gone ? SL_ERR_UNREACHABLE : SL_OK;
}

/* ---- receiving ---- */

/* Gives the packet's bytes; 0: none is there, or relay->gone. */
static size_t packet_take(struct sl_gate_relay *relay, struct sl_gate_relay_event *event)
{
    int flags = 0;
    ssize_t got = sl_gate_message_take(relay->fd, relay->packet, sizeof(relay->packet),
                                       MSG_DONTWAIT, &event->fd, &flags);
    event->cut = event->fd < 0 && (flags & MSG_CTRUNC) != 0;
    if (got < 0 && errno == EAGAIN) {
        return 0;
    }
    relay->gone = got < (ssize_t)sizeof(struct sl_gate_relay_head) || (flags & MSG_TRUNC) != 0;
    return relay->gone ? 0 : (size_t)got;
}

/* A piece of a frame behind those before it. False: it is none. */
static bool piece_add(struct sl_gate_relay *relay, const struct sl_gate_relay_head *head,
                      size_t piece_bytes)
{
    const struct sl_gate_relay_head *in = &relay->in;
    bool first = head->at_bytes == 0;
    bool fits = head->at_bytes == relay->frame.end &&
                head->total_bytes <= SL_GATE_RELAY_FRAME_BYTES_MAX && head->total_bytes > 0 &&
                piece_bytes > 0 && piece_bytes <= head->total_bytes - head->at_bytes &&
                (first || (in->kind == head->kind && in->total_bytes == head->total_bytes));
    if (!fits || !buffer_room(&relay->frame, piece_bytes)) {
        return false;
    }
    relay->in = *head;
    memcpy(relay->frame.at + relay->frame.end, relay->packet + sizeof(*head), piece_bytes);
    relay->frame.end += piece_bytes;
    return true;
}

/* What a packet is. Errors: SL_ERR_NOT_FOUND (more is to come), SL_ERR_UNREACHABLE (none). */
static sl_err packet_read(struct sl_gate_relay *relay, size_t length_bytes,
                          struct sl_gate_relay_event *event)
{
    struct sl_gate_relay_head head;
    memcpy(&head, relay->packet, sizeof(head));
    if (memcmp(head.magic, magic, sizeof(magic)) != 0) {
        return SL_ERR_UNREACHABLE;
    }
    event->kind = (enum sl_gate_relay_kind)head.kind;
    event->number = head.number;
    if (head.kind == SL_GATE_RELAY_MEMORY || head.kind == SL_GATE_RELAY_FORGET) {
        return relay->frame.end == 0 && length_bytes == sizeof(head) ? SL_OK : SL_ERR_UNREACHABLE;
    }
    if ((head.kind != SL_GATE_RELAY_REGISTRAR && head.kind != SL_GATE_RELAY_COORDINATOR) ||
        event->fd >= 0 || !piece_add(relay, &head, length_bytes - sizeof(head))) {
        return SL_ERR_UNREACHABLE;
    }
    if (relay->frame.end < head.total_bytes) {
        return SL_ERR_NOT_FOUND;
    }
    event->frame = relay->frame.at;
    event->length_bytes = relay->frame.end;
    relay->given = true;
    return SL_OK;
}

sl_err sl_gate_relay_receive(struct sl_gate_relay *relay, struct sl_gate_relay_event *event)
{
    sl_err err = SL_ERR_NOT_FOUND;
    if (relay->given) {
        relay->given = false;
        relay->in = (struct sl_gate_relay_head){0};
        buffer_empty(&relay->frame);
    }
    for (uint32_t i = 0; i < PACKETS_MAX && err == SL_ERR_NOT_FOUND && !relay->gone; i++) {
        *event = (struct sl_gate_relay_event){.fd = -1};
        size_t length_bytes = packet_take(relay, event);
        if (length_bytes == 0) {
            break;
        }
        err = packet_read(relay, length_bytes, event);
        relay->gone = err == SL_ERR_UNREACHABLE;
    }
    if (relay->gone) {
        if (event->fd >= 0) {
            (void)close(event->fd);
            event->fd = -1;
        }
        return SL_ERR_UNREACHABLE;
    }
    return err;
}
