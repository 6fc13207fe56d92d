/* runtime/net/fabric/tcp/internal.h - an io_uring and its connections; large values use the rings
 * of the movers.
 *
 * A connection is a lane (we ask, the peer serves) or served (the peer asks). Each has at most one
 * receive and one send in progress; the kernel uses their memory until completion. */
#ifndef SL_FABRIC_TCP_INTERNAL_H
#define SL_FABRIC_TCP_INTERNAL_H

#include "runtime/net/fabric/core/internal.h"
#include "runtime/net/fabric/core/movers.h"
#include "runtime/net/fabric/core/wire.h"
#include "runtime/net/fabric/tcp/handshake.h"

#include <netinet/in.h>

#define TCP_SEND_BATCH        16u          /* frames in one send */
#define TCP_SEND_BYTES        (2 * SL_MIB) /* bytes of values that fill a send */
#define TCP_SEND_PARTS        272u         /* of one send: frames with a head and 16 places */
#define TCP_HEADS_IN          16u          /* requests in one receive */
#define TCP_QUEUE_MAX         SL_FABRIC_DEPTH_MAX /* requests of a served connection */
#define TCP_DISCARD_BYTES     (64 * SL_KIB)
#define TCP_LARGE_BYTES       (4 * SL_KIB)    /* values from this size on use large stagings */
#define TCP_MOVE_BYTES        (128 * SL_KIB)  /* smaller values are not worth a mover's wake-up */
#define TCP_NS_PER_BYTE       UINT64_C(15259) /* 64 KiB/s: slower peers are disconnected */
#define TCP_ENDED_NS_PER_BYTE UINT64_C(60)    /* 16 MiB/s for each lane, after the end of a grant */
/* Additional places for connections that are being closed. */
#define TCP_PLACES_ENDING 32u
/* Connections that claim to be one peer and have not proved it: twice its lanes, which may be more
 * than ours. */
#define TCP_NAMED_MAX   (2 * SL_FABRIC_LANES_MAX)
#define TCP_BACKLOG     1024 /* kernel queue: floods of connections are accepted one by one */
#define TCP_ACCEPT_WAIT (100 * SL_NS_PER_MS) /* after accept has failed */

enum tcp_op { TCP_OP_ACCEPT = 1, TCP_OP_CONNECT, TCP_OP_RECV, TCP_OP_SEND, TCP_OP_CANCEL };
enum tcp_state { CONN_FREE, CONN_CONNECTING, CONN_GREETING, CONN_OPEN, CONN_CLOSING };
enum tcp_rx { RX_NONE, RX_HEAD, RX_VALUE, RX_DISCARD };

/* A request of a peer, whose answer waits or is being sent. */
struct tcp_served {
    uint8_t verb;
    uint8_t code;
    uint32_t sequence;
    uint32_t length_bytes; /* of the value */
    struct sl_runs value;
    uint32_t grant; /* index; FABRIC_NONE: none held */
    unsigned char head[SL_WIRE_ANSWER_BYTES];
};

/* Consecutive units of a lane that a mover receives, starting with the lane's oldest. The mover
 * uses all of them until they end. */
struct tcp_chain {
    uint32_t count, at; /* number of units; 0: no chain. Index of the current one */
    struct sl_mover_step steps[SL_MOVER_STEPS_MAX];
    struct sl_digest_stream digests[SL_MOVER_STEPS_MAX];
};

/* Credentials of a peer for connecting here: id and key, as reported by address(). */
struct tcp_credentials {
    uint32_t peer; /* handle; 0: free */
    uint8_t id[SL_WIRE_ID_BYTES], psk[SL_WIRE_PSK_BYTES];
};

/* TLS state of an open connection. */
struct tcp_secure {
    struct sl_handshake *handshake; /* NULL: complete */
    bool greeted;                   /* complete, but our last bytes must be sent */
    struct sl_records in;
    struct sl_records out;
    struct sl_seal_job job;
    bool receives;  /* our ring receives into the staging, or in the clear into `to` */
    bool cancelled; /* the wanted bytes are not wanted any more */
    /* The wanted bytes, while conn->recv_on and not received by a mover. */
    struct sl_runs to;
    uint32_t to_bytes;
    struct sl_digest_stream *digest;
    int32_t failed, send_failed; /* -errno of the socket, and of sealing */
    struct msghdr recv_message, send_message;
    struct iovec recv_parts[SL_OPENER_PARTS];
};

struct tcp_conn {
    struct fabric_rail *rail;
    uint32_t index;
    int fd;
    uint8_t state; /* enum tcp_state */
    uint8_t rx;    /* enum tcp_rx */
    bool recv_on, send_on, recv_cancelled;
    bool recv_moves, send_moves; /* by a mover */
    bool in_head;                /* a chain ended between two values */
    bool listed;                 /* is in tcp->ready */
    struct tcp_secure *secure;   /* NULL: not connected */
    uint32_t ops_out;            /* submissions that use the descriptor */
    struct sl_low_water low;

    unsigned char heads_in[TCP_HEADS_IN * SL_WIRE_REQUEST_BYTES]; /* heads being received */
    uint32_t heads_bytes, heads_taken;
    struct sl_runs value; /* destination for the rest of the value */
    uint32_t value_left;
    struct tcp_chain *chain; /* lane with movers: values received together */
    uint64_t rx_due_ns;

    struct msghdr message;
    struct iovec parts[TCP_SEND_PARTS];
    uint8_t part_heads[TCP_SEND_PARTS]; /* 1: a frame's head */
    struct sl_runs rest;                /* remaining value bytes, when `parts` is full */
    uint32_t rest_bytes;
    uint64_t tx_due_ns;

    /* lanes only */
    struct fabric_lane *lane; /* NULL: served */
    unsigned char *heads;     /* depth requests, indexed by unit number */
    uint64_t progress_ns, progress_mark;

    /* served only */
    uint32_t asker; /* handle of the peer whose id it sent, proved in CONN_OPEN; 0: none yet */
    struct tcp_served *queue;
    /* Positions in the queue: head..out were sent, out..sent are being sent, sent..tail wait. */
    uint64_t head_number, out_number, sent_number, tail_number;
};

struct tcp {
    struct io_uring ring;
    struct sl_movers *movers; /* NULL: none */
    bool ring_open, accept_on;
    int listen_fd, event_fd;
    struct sl_wire_address address;
    struct tcp_conn *conns; /* lanes of all peers, then served ones */
    uint32_t lane_count, conn_count;
    struct sl_unauth *unauth; /* of served ones; NULL: not listening */
    uint32_t served_count;    /* served ones that are not closing */
    uint32_t *ready;          /* ring of conn_count: connections that may have bytes */
    uint32_t ready_head, ready_count;
    struct sl_tls *tls;
    struct tcp_credentials *credentials; /* by peer index */
    unsigned char *heads;
    struct tcp_chain *chains; /* of the lanes; NULL: no movers */
    struct tcp_served *queues;
    unsigned char *discard;
    uint64_t accept_at_ns;
    uint64_t due_ns; /* lower bound of the times of all connections */
};

static inline struct tcp *tcp_of(const struct fabric_rail *rail)
{
    return rail->backend;
}

/* ---- tcp.c ---- */
/* The kernel, a mover or secure.c has completed the operation. */
void tcp_recv_done(struct tcp_conn *conn, int result);
void tcp_send_done(struct tcp_conn *conn, int result);
/* NULL: unknown id. */
const struct tcp_credentials *tcp_credentials_find(const struct fabric_rail *rail,
                                                   const uint8_t id[SL_WIRE_ID_BYTES]);
/* ---- secure.c ---- */
/* Errors: SL_ERR_NO_MEMORY. */
sl_err tcp_secure_begin(struct tcp_conn *conn, struct sl_error *why);
void tcp_secure_end(struct tcp_conn *conn); /* without operations; accepts a closed one */
/* Handles received bytes of the handshake; 0 bytes: starts it. */
void tcp_secure_greet(struct tcp_conn *conn, const void *bytes, uint32_t length_bytes);
/* Requests bytes; tcp_recv_done gets them in parts. On lanes a low-water mark saves wake-ups. */
void tcp_secure_want(struct tcp_conn *conn, struct sl_runs to, uint32_t length_bytes,
                     struct sl_digest_stream *digest);
void tcp_secure_cancel(struct tcp_conn *conn);
void tcp_secure_received(struct tcp_conn *conn, int result);
/* Sends conn->message. */
void tcp_secure_send(struct tcp_conn *conn);
void tcp_secure_sent(struct tcp_conn *conn, int result);
void tcp_secure_turn(struct tcp *tcp);
/* ---- conn.c ---- */
void tcp_tag(struct io_uring_sqe *sqe, uint32_t conn, enum tcp_op op);
void tcp_recv_cancel(struct tcp_conn *conn);
/* Whether values of this size use a mover. */
bool tcp_moves(const struct tcp_conn *conn, uint64_t value_bytes);
/* Receives the rest of the value and of its chain, or the next slice, or bytes to discard. digest:
 * fed with the bytes; NULL: none. */
void tcp_recv_value(struct tcp_conn *conn, struct sl_digest_stream *digest);
/* Sends conn->message, which has value_bytes of values; sets its deadline. */
void tcp_send(struct tcp_conn *conn, uint64_t value_bytes);
void tcp_send_more(struct tcp_conn *conn);
socklen_t tcp_sockaddr(const struct sl_wire_address *address, struct sockaddr_storage *out);
void tcp_socket_options(const struct fabric_rail *rail, int fd);
void tcp_connect(struct tcp_conn *conn, const struct sl_wire_address *address);
void tcp_close(struct tcp_conn *conn);
/* Closes the descriptor and frees the connection; no operation may be in progress. */
void tcp_closed(struct tcp_conn *conn);
void tcp_due(struct tcp_conn *conn, uint64_t *due_ns, uint64_t at_ns);
void tcp_part(struct tcp_conn *conn, const void *at, size_t length_bytes);
/* Empties the message. */
void tcp_message_begin(struct tcp_conn *conn);
/* Whether another frame with a value fits in the message. */
bool tcp_message_has_room(const struct tcp_conn *conn);
/* Adds a value; what does not fit is sent by further sends of the message. */
void tcp_part_value(struct tcp_conn *conn, struct sl_runs value, uint32_t length_bytes);
/* ---- lane.c ---- */
sl_err tcp_peer_start(struct fabric_peer *peer, struct sl_error *why);
sl_err tcp_peer_address(struct fabric_peer *peer, const void *blob, uint32_t length_bytes,
                        struct sl_error *why);
void tcp_peer_stop(struct fabric_peer *peer, bool last);
void tcp_lane_push(struct fabric_lane *lane);
void tcp_lane_cancel(struct fabric_lane *lane);
void tcp_lane_connected(struct tcp_conn *conn, int result);
/* The handshake is complete. */
void tcp_lane_hello(struct tcp_conn *conn);
void tcp_lane_received(struct tcp_conn *conn, int result);
/* A value of a chain is complete; the next is being received. */
void tcp_lane_chained(struct tcp_conn *conn);
void tcp_lane_sent(struct tcp_conn *conn, int result);
void tcp_lane_closed(struct tcp_conn *conn);
/* Fails the peer if there is no progress; gives the time of the next check. */
uint64_t tcp_lane_look(struct tcp_conn *conn);
/* ---- unauth.c ---- */
sl_err tcp_unauth_open(struct tcp *tcp, const struct sl_fabric_options *options,
                       struct sl_error *why);
/* Registers an accepted connection. It, or another one, is closed if there are too many. */
void tcp_unauth_add(struct tcp_conn *conn);
/* The connection has sent an id, which it must prove; it is displaced after those without one. */
void tcp_unauth_named(struct tcp_conn *conn);
void tcp_unauth_proved(struct tcp_conn *conn); /* authenticated: not displaced any more */
void tcp_unauth_remove(struct tcp_conn *conn); /* a served connection closes */
/* ---- serve.c ---- */
void tcp_accepted(struct fabric_rail *rail, int fd);
void tcp_served_secured(struct tcp_conn *conn);
/* Closes the peer's connections to this node. */
void tcp_served_forget(struct fabric_rail *rail, uint32_t peer);
void tcp_served_received(struct tcp_conn *conn, int result);
void tcp_served_sent(struct tcp_conn *conn, int result);
void tcp_served_closed(struct tcp_conn *conn);
uint64_t tcp_served_look(struct tcp_conn *conn);
void tcp_grant_end(struct fabric_rail *rail, struct fabric_grant *grant);

#endif
