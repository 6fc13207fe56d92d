/* actors/transporter/control/control.h - frames between transporters of different nodes: ZeroMQ
 * over TCP, encrypted and authenticated by CURVE.
 *
 * One ROUTER for peers that ask us (when there is an address to listen at), one DEALER for each
 * peer that we ask. Who asks is known by the key that its connection proved to have, never by what
 * it says: a key that is no NAME.pub of the directory gets no connection. Requests go DEALER ->
 * ROUTER, answers come back the same way. Nothing blocks; one thread. */
#ifndef SL_TRANSPORTER_CONTROL_CONTROL_H
#define SL_TRANSPORTER_CONTROL_CONTROL_H

#include "ipc/msg/sl_cluster.h"

struct sl_control;

/* A frame that came. Borrowed until the next receive. */
struct sl_control_frame {
    const char *peer; /* authenticated name; plaintext: NULL, the envelope's word is taken */
    bool answer;      /* along our connection to it */
    bool other;       /* no answer, and not along the connection on which the peer was heard last */
    const char *from; /* IP:PORT of the other end, for people; "": not known */
    const void *bytes; /* NULL: what came was nobody's, or no frame, and was dropped */
    size_t length_bytes;
};

/* Tests have one of their own. */
struct sl_control_ops {
    /* From here on the peer can be asked, there and nowhere else. address: HOST:PORT. Errors:
     * SL_ERR_CONFIG (its key, the address), SL_ERR_LIMIT, SL_ERR_OS. */
    sl_err (*peer_add)(struct sl_control *control, const char *name, const char *address,
                       struct sl_error *why);
    /* Sends a copy. Errors: SL_ERR_UNREACHABLE (no connection now, or never heard of), SL_ERR_LIMIT
     * (queue full), SL_ERR_INVALID (too long). */
    sl_err (*send)(struct sl_control *control, const char *peer, const void *frame,
                   size_t length_bytes, bool answer);
    /* The next frame; false: none. Fair between sockets. */
    bool (*receive)(struct sl_control *control, struct sl_control_frame *out);
    /* The request received last was this peer's: answers to the name go where it came from. */
    void (*heard)(struct sl_control *control, const char *peer);
    /* Answers the request received last, which changes nothing for the peer of that name. */
    sl_err (*refuse)(struct sl_control *control, const void *frame, size_t length_bytes);
    /* The key of a peer is this one from now on; NULL: it has none. What comes over connections
     * that were made with another key is dropped, and nothing is sent over them. The peer is asked
     * again after peer_add. */
    void (*peer_key)(struct sl_control *control, const char *name, const char *public_text);
    /* Readable: a frame may have come. After a send it may be so without the descriptor saying it:
     * receive until false. */
    int (*fd)(const struct sl_control *control);
    void (*close)(struct sl_control *control);
};
struct sl_control {
    const struct sl_control_ops *ops;
    uint64_t refused; /* connections and frames of nobody we know */
};

struct sl_control_options {
    const char *node;   /* our name */
    const char *listen; /* HOST:PORT; "": nowhere */
    const char *keys;   /* directory (ipc/msg/sl_curve.h) */
    bool plaintext;     /* no keys at all */
    uint32_t queue_messages;
    uint64_t message_bytes_max;
    /* Connections that nothing was heard of, in all and of one address; 0: not bounded. */
    uint32_t strangers_max, of_address_max;
    /* Each connection that is refused for its key. */
    void (*stranger)(void *context, const char *ip, const char *key);
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
