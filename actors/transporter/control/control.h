/* actors/transporter/control/control.h - message frames between the transporters of different
 * nodes: ZeroMQ over TCP, encrypted and authenticated with CURVE.
 *
 * There is one ROUTER for peers that ask us (if there is an address to listen at) and one DEALER
 * for each peer that we ask. A sender is identified by the key that its connection has proved,
 * never by the content of a frame. A key that is no NAME.pub of the key directory gets no
 * connection. Requests travel from DEALER to ROUTER, answers the opposite way. Nothing blocks. One
 * thread. */
#ifndef SL_TRANSPORTER_CONTROL_CONTROL_H
#define SL_TRANSPORTER_CONTROL_CONTROL_H

#include "ipc/msg/sl_cluster.h"

struct sl_control;

/* A received frame. Borrowed until the next receive. */
struct sl_control_frame {
    const char *peer;  /* authenticated name; NULL with plaintext: trust the frame's sender */
    bool answer;       /* received on our own connection to the peer */
    bool other;        /* a request on another connection than the peer's latest one */
    const char *from;  /* IP:PORT of the sender, for log lines; "": unknown */
    const void *bytes; /* NULL: the frame had no valid sender or form and was dropped */
    size_t length_bytes;
};

/* Tests supply their own implementation. */
struct sl_control_ops {
    /* Connects to the peer at `address` (HOST:PORT), replacing an earlier address. Errors:
     * SL_ERR_CONFIG (its key, the address), SL_ERR_LIMIT, SL_ERR_OS. */
    sl_err (*peer_add)(struct sl_control *control, const char *name, const char *address,
                       struct sl_error *why);
    /* Sends a copy. Errors: SL_ERR_UNREACHABLE (no connection now, or none ever), SL_ERR_LIMIT
     * (queue full), SL_ERR_INVALID (too long). */
    sl_err (*send)(struct sl_control *control, const char *peer, const void *frame,
                   size_t length_bytes, bool answer);
    /* Gives the next frame; false: none. Fair between sockets. */
    bool (*receive)(struct sl_control *control, struct sl_control_frame *out);
    /* Assigns the last request's connection to this peer: answers to the name are sent there. */
    void (*heard)(struct sl_control *control, const char *peer);
    /* Answers the last request without assigning its connection to a peer. */
    sl_err (*refuse)(struct sl_control *control, const void *frame, size_t length_bytes);
    /* Sets the peer's key; NULL: it has none. Frames on connections that were made with another key
     * are dropped, and nothing is sent there. To ask the peer again, call peer_add. */
    void (*peer_key)(struct sl_control *control, const char *name, const char *public_text);
    /* Readable: a frame may have arrived. A send can consume that event, so after a send call
     * receive until it returns false. */
    int (*fd)(const struct sl_control *control);
    void (*close)(struct sl_control *control);
};
struct sl_control {
    const struct sl_control_ops *ops;
    uint64_t refused; /* refused connections and frames of unknown senders */
};

struct sl_control_options {
    const char *node;   /* our name */
    const char *listen; /* HOST:PORT; "": do not listen */
    const char *keys;   /* key directory (ipc/msg/sl_curve.h) */
    bool plaintext;     /* no encryption, no keys */
    uint32_t queue_messages;
    uint64_t message_bytes_max;
    /* Unauthenticated connections, in all and from one address; 0: unlimited. */
    uint32_t unauthenticated_max, of_address_max;
    /* Called for each connection that is refused because of its key. */
    void (*unauth)(void *context, const char *ip, const char *key);
    void *context;
};
/* Errors: SL_ERR_CONFIG (keys, address), SL_ERR_EXISTS (address in use), SL_ERR_NO_MEMORY,
 * SL_ERR_OS. */
sl_err sl_control_open(const struct sl_control_options *options, struct sl_control **out,
                       struct sl_error *why);

static inline void sl_control_close(struct sl_control **control)
{
    if (*control != NULL) {
        (*control)->ops->close(*control);
        *control = NULL;
    }
}

#endif
