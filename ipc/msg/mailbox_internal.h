/* ipc/msg/mailbox_internal.h - internals of a mailbox: its peers and event loop calls
 * (sl_mailbox.c), and its lanes (mailbox_lanes.c). */
#ifndef SL_MAILBOX_INTERNAL_H
#define SL_MAILBOX_INTERNAL_H

#include "ipc/msg/msg_internal.h"
#include "ipc/msg/sl_lane.h"
#include "ipc/msg/sl_mailbox.h"
#include "runtime/base/sl_spin.h"

#include <sys/un.h>

/* 64 swappers, the other actors, and a reserve; sends to more names than that are refused. */
#define SL_MAILBOX_PEERS_MAX 256u
/* "DIRECTORY/NAME.sock" with the longest name must fit in a socket address */
#define SL_SOCKET_PATH_BYTES           sizeof(((struct sockaddr_un *)0)->sun_path)
#define SL_MAILBOX_DIRECTORY_BYTES_MAX (SL_SOCKET_PATH_BYTES - sizeof("/.sock") - SL_NAME_BYTES_MAX)

struct sl_mailbox_peer {
    char name[SL_NAME_BYTES_MAX + 1];
    uint32_t lane;        /* slot + 1 of our lane to this peer; 0: none */
    sl_err refused;       /* result of a send while there is no lane */
    int os_code;          /* errno if this process could not make a lane; 0: another reason */
    uint64_t offer_at_ns; /* when the next lane may be offered */
    uint64_t offer_pause_ns;
};

enum sl_mailbox_lane_state {
    SL_LANE_FREE,
    SL_LANE_OFFERED,  /* ours; waiting for the answer */
    SL_LANE_ACCEPTED, /* the peer's; waiting for the offer */
    SL_LANE_STANDS,
    SL_LANE_ENDING, /* the peer has closed it: its frames are read, then it is freed */
};
struct sl_mailbox_lane {
    struct sl_lane lane;
    enum sl_mailbox_lane_state state;
    bool ours;      /* offered by us, for our requests and their replies; false: by the peer */
    uint32_t peer;  /* if ours: number of the peer + 1 */
    uint32_t after; /* slot + 1 of an older lane of the same name, which is read first */
    uint64_t deadline_ns; /* ACCEPTED: deadline of the handshake */
    uint64_t end;         /* ENDING: position after its last frame */
};

struct sl_mailbox {
    char directory[SL_MAILBOX_DIRECTORY_BYTES_MAX + 1];
    char name[SL_NAME_BYTES_MAX + 1];
    uint64_t message_bytes_max;
    struct sl_mailbox_peer *peers;
    uint32_t peer_count;
    bool polled; /* descriptors were polled since the last SL_ERR_NOT_FOUND */
    int epoll_fd;
    uint32_t frames_since_poll;
    uint64_t connect_count;
    uint64_t ring_bytes;
    int listen_fd;      /* -1: a client */
    int spare_fd;       /* closed while the descriptor of a long frame is received, so that there is
                           always one for it */
    uint32_t lanes_max; /* from clients; actors have SL_MAILBOX_PEERS_MAX more */
    struct sl_mailbox_lane *lanes;
    uint32_t lane_count; /* all slots in use are below this */
    uint32_t turn;       /* slot that is checked first */
    char from[SL_NAME_BYTES_MAX + 1];
    unsigned char *buffer; /* the frame last copied from a ring */
    uint64_t buffer_bytes;
    void *long_frame; /* mapped until the next frame is taken; NULL: none */
    size_t long_bytes;
    uint64_t listen_again_ns; /* when to listen again after descriptors ran out; else 0 */
    uint64_t tick_at_ns;      /* earliest of all deadlines here; SL_NEVER_NS: none */
    uint64_t asked_at_ns;     /* when descriptors were last polled */
    uint64_t announced_at_ns;
    bool announced; /* `sleeping` is set on the lanes */
    uint64_t spin_wish_ns;
    bool spin_anyway;
    uint32_t spin_cores;
    struct sl_spin spin;
    struct sl_mailbox_stats stats;
};

/* Data of an epoll event: a kind in the upper half, a number in the lower. */
enum sl_mailbox_tag {
    SL_TAG_LISTEN,
    SL_TAG_LANE,
    SL_TAG_BELL,
    SL_TAG_LOOP /* the descriptor of the loop (sl_mailbox_join) */
};

/* ---- sl_mailbox.c ---- */
/* Gives the peer of this name, and creates it on first use. Errors: SL_ERR_LIMIT. */
sl_err sl_mailbox_peer_of(struct sl_mailbox *mailbox, const char *name,
                          struct sl_mailbox_peer **out);
/* Returns 0, or -1 with errno. */
int sl_mailbox_watch(const struct sl_mailbox *mailbox, int fd, enum sl_mailbox_tag tag,
                     uint32_t number, uint32_t events);

/* ---- mailbox_lanes.c ---- */
sl_err sl_mailbox_lanes_open(struct sl_mailbox *mailbox, const struct sl_mailbox_options *options,
                             struct sl_error *why);
void sl_mailbox_lanes_close(struct sl_mailbox *mailbox);
/* Handles an event with any tag but SL_TAG_LOOP. */
void sl_mailbox_lanes_event(struct sl_mailbox *mailbox, enum sl_mailbox_tag tag, uint32_t number);
/* Sends the offers that are due and ends handshakes that took too long. */
void sl_mailbox_lanes_tick(struct sl_mailbox *mailbox, uint64_t now_ns);
/* Offers a lane to the peer if it is time. */
void sl_mailbox_lane_offer(struct sl_mailbox *mailbox, struct sl_mailbox_peer *peer,
                           uint64_t now_ns);
sl_err sl_mailbox_lane_request(struct sl_mailbox *mailbox, struct sl_mailbox_peer *peer,
                               const void *frame, size_t length_bytes);
sl_err sl_mailbox_lane_reply(struct sl_mailbox *mailbox, const char *to, const void *frame,
                             size_t length_bytes);
/* Takes a frame off this lane if it has one. It is borrowed until the next one is taken. */
bool sl_mailbox_lane_take(struct sl_mailbox *mailbox, uint32_t slot, const void **frame,
                          size_t *length_bytes);
/* Clears `sleeping` on the lanes if it is set. */
void sl_mailbox_lanes_awake(struct sl_mailbox *mailbox);

#endif
