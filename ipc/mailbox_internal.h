/* ipc/mailbox_internal.h - the two transports of a mailbox: ZeroMQ (sl_mailbox.c) and fast lanes
 * (mailbox_lanes.c).
 *
 * Order. Requests from one process to another stay in order over both transports, since a later one
 * may speak of an earlier one (OP_FENCED of a STORE):
 * - from a lane to ZeroMQ (the lane ended, or a frame is too long for it): a frame that comes by
 *   ZeroMQ is handed out after what its sender's lane holds at that moment;
 * - from ZeroMQ to a lane (it was just made, or after a frame that was too long): the sender adds a
 *   count to a ZeroMQ message (`struct sl_mailbox_sync`, a second part) and writes the same count
 * as a mark into the ring; the reader stops at a mark until that count has come. Replies need none
 * of that: each answers one request, is matched by its number, and speaks of no other. */
#ifndef SL_MAILBOX_INTERNAL_H
#define SL_MAILBOX_INTERNAL_H

#include "ipc/msg_internal.h"
#include "ipc/sl_lane.h"
#include "ipc/sl_mailbox.h"
#include "runtime/sl_spin.h"

#include <sys/un.h>
#include <zmq.h>

/* 64 swappers, the other actors, and room: who sends to more names than that has lost count of
 * them. */
#define SL_MAILBOX_PEERS_MAX 256u
/* "DIRECTORY/NAME.attach" with the longest name fits in a socket address. */
#define SL_SOCKET_PATH_BYTES sizeof(((struct sockaddr_un *)0)->sun_path)
#define SL_MAILBOX_DIRECTORY_BYTES_MAX \
    (SL_SOCKET_PATH_BYTES - sizeof("/.attach") - SL_NAME_BYTES_MAX)

struct sl_mailbox_source {
    void *socket;
    bool hot;
};
struct sl_mailbox_peer {
    char name[SL_NAME_BYTES_MAX + 1];
    struct sl_mailbox_source dealer;
    void *monitor;        /* tells whether the connection stands */
    bool connected;       /* the handshake is over */
    bool usable;          /* and the socket has taken note of it: EAGAIN now means a full queue */
    bool used;            /* frames went that way since it stands: a lane must not overtake them */
    uint32_t lane;        /* slot + 1 of our lane to it; 0: none */
    uint64_t offer_at_ns; /* when the next lane may be offered */
    uint64_t offer_pause_ns;
};

enum sl_mailbox_lane_state {
    SL_LANE_FREE,
    SL_LANE_OFFERED,  /* ours; the answer is to come */
    SL_LANE_ACCEPTED, /* theirs; the offer is to come */
    SL_LANE_STANDS,
    SL_LANE_ENDING, /* the other side has gone: what it left is read, then it is freed */
};
struct sl_mailbox_lane {
    struct sl_lane lane;
    enum sl_mailbox_lane_state state;
    bool ours;            /* we offered it: our requests, their replies; else the other way round */
    uint32_t peer;        /* ours: number of the peer + 1 */
    uint32_t after;       /* slot + 1 of an older one under the same name that is read first */
    uint64_t deadline_ns; /* OFFERED, ACCEPTED: until; else of the mark that is awaited */
    uint64_t end;         /* ENDING: position behind its last frame */
    bool holding;         /* a ZeroMQ frame of this peer waits until it is read so far: */
    uint64_t hold_until;
    /* Order of requests between the transports. */
    bool mark_due;         /* ours: ZeroMQ frames may be on their way still */
    bool sync_due;         /* ours: the last count may have been lost with its connection */
    uint64_t marks_sent;   /* ours */
    uint64_t mark_awaited; /* theirs; 0: none */
    uint64_t mark_come;
};
/* Second part of a ZeroMQ message. */
struct sl_mailbox_sync {
    uint64_t token;
    uint64_t count;
};

struct sl_mailbox {
    char directory[SL_MAILBOX_DIRECTORY_BYTES_MAX + 1];
    char name[SL_NAME_BYTES_MAX + 1];
    uint64_t message_bytes_max;
    int queue_messages;
    void *context;
    struct sl_mailbox_source router; /* socket NULL: a client */
    struct sl_mailbox_peer *peers;
    uint32_t peer_count;
    uint32_t turn; /* source that is asked first: 0 the router, then the peers, then the lanes */
    bool bound;
    bool polled; /* descriptors were asked since the last SL_ERR_NOT_FOUND */
    int epoll_fd;
    uint32_t frames_since_poll;
    zmq_msg_t frame;
    char from[SL_NAME_BYTES_MAX + 1];
    uint64_t connect_count;
    /* lanes */
    uint64_t ring_bytes; /* 0: none are made */
    int listen_fd;       /* -1: a client, or no lanes */
    uint32_t lanes_max;  /* that others may have with us */
    struct sl_mailbox_lane *lanes;
    uint32_t lane_count;   /* slots in use lie below */
    unsigned char *buffer; /* a frame off a ring */
    uint64_t buffer_bytes;
    uint64_t listen_again_ns; /* there were no descriptors: not watched until then; else 0 */
    uint64_t tick_at_ns;      /* earliest of all deadlines here; SL_NEVER_NS: none */
    uint64_t asked_at_ns;     /* when descriptors were last asked */
    uint64_t announced_at_ns;
    bool announced; /* `sleeping` is set on the lanes */
    uint64_t spin_wish_ns;
    bool spin_anyway;
    uint32_t spin_cores;
    struct sl_spin spin;
    /* A ZeroMQ frame that waits until its sender's lanes have been read as far as they were. */
    bool held;
    bool held_has_sync;
    struct sl_mailbox_sync held_sync;
    char held_from[SL_NAME_BYTES_MAX + 1];
    struct sl_mailbox_stats stats;
};

/* What epoll gives: a kind in the upper half, a number in the lower. */
enum sl_mailbox_tag {
    SL_TAG_SOURCE,
    SL_TAG_MONITOR,
    SL_TAG_LISTEN,
    SL_TAG_LANE,
    SL_TAG_BELL,
    SL_TAG_LOOP /* not ours: of the loop that waits at our descriptors */
};

/* ---- sl_mailbox.c ---- */
/* The peer of this name, made on its first use. Errors: SL_ERR_LIMIT, SL_ERR_OS. */
sl_err sl_mailbox_peer_of(struct sl_mailbox *mailbox, const char *name,
                          struct sl_mailbox_peer **out);
/* Takes what its monitor says; the last word counts. */
void sl_mailbox_peer_hear(struct sl_mailbox *mailbox, struct sl_mailbox_peer *peer);
/* A request by ZeroMQ; sync may be NULL. frame may be empty when there is a sync. */
sl_err sl_mailbox_zmq_request(struct sl_mailbox *mailbox, struct sl_mailbox_peer *peer,
                              const void *frame, size_t length_bytes,
                              const struct sl_mailbox_sync *sync);
/* 0 or -1 with errno. */
int sl_mailbox_watch(const struct sl_mailbox *mailbox, int fd, enum sl_mailbox_tag tag,
                     uint32_t number, uint32_t events);

/* ---- mailbox_lanes.c ---- */
sl_err sl_mailbox_lanes_open(struct sl_mailbox *mailbox, const struct sl_mailbox_options *options,
                             struct sl_error *why);
void sl_mailbox_lanes_close(struct sl_mailbox *mailbox);
/* Begins to listen, after the name was found to be free. */
sl_err sl_mailbox_lanes_listen(struct sl_mailbox *mailbox, struct sl_error *why);
/* An event of one of the lanes' tags. */
void sl_mailbox_lanes_event(struct sl_mailbox *mailbox, enum sl_mailbox_tag tag, uint32_t number);
/* What is due: offers, handshakes and marks that took too long. */
void sl_mailbox_lanes_tick(struct sl_mailbox *mailbox, uint64_t now_ns);
/* Offers a lane to the peer, when it is time. */
void sl_mailbox_lane_offer(struct sl_mailbox *mailbox, struct sl_mailbox_peer *peer,
                           uint64_t now_ns);
/* Sends over the peer's lane. SL_ERR_UNSUPPORTED: it has none, ZeroMQ it is. */
sl_err sl_mailbox_lane_request(struct sl_mailbox *mailbox, struct sl_mailbox_peer *peer,
                               const void *frame, size_t length_bytes);
sl_err sl_mailbox_lane_reply(struct sl_mailbox *mailbox, const char *to, const void *frame,
                             size_t length_bytes);
/* Whether a frame may be taken off this lane now. */
bool sl_mailbox_lane_ready(const struct sl_mailbox *mailbox, uint32_t slot);
bool sl_mailbox_lanes_ready(const struct sl_mailbox *mailbox);
/* Takes one into mailbox->buffer; false: there was none after all (marks, a hostile peer). */
bool sl_mailbox_lane_take(struct sl_mailbox *mailbox, uint32_t slot, size_t *length_bytes);
/* A ZeroMQ request of `from` came: what its lanes hold now comes first. */
void sl_mailbox_lanes_hold(struct sl_mailbox *mailbox, const char *from);
/* A lane that has to be read first still, slot + 1; 0: none. */
uint32_t sl_mailbox_lanes_held(const struct sl_mailbox *mailbox);
/* The frame was handed out. */
void sl_mailbox_lanes_unhold(struct sl_mailbox *mailbox);
/* A connection to the peer stands: what went by an earlier one may be lost, a count too. */
void sl_mailbox_lane_reconnected(struct sl_mailbox *mailbox, const struct sl_mailbox_peer *peer);
void sl_mailbox_lane_sync(struct sl_mailbox *mailbox, const char *from,
                          const struct sl_mailbox_sync *sync);
/* Takes the announcements back, if there are any. */
void sl_mailbox_lanes_awake(struct sl_mailbox *mailbox);

#endif
