/* client/tools/events/listener.h - the publisher's ports: connections, topics and silence have
 * bounds here.
 *
 * ZeroMQ has no bounds of its own: it accepts until no descriptor is left, and keeps every topic
 * that a peer sends. So its sockets are bound where this process alone reaches them, and the
 * listener relays: a thread a connection, which looks at each frame of ZMTP 3 that arrives. */
#ifndef SL_CLIENT_EVENTS_LISTENER_H
#define SL_CLIENT_EVENTS_LISTENER_H

#include "runtime/base/sl_error.h"

#define EV_CONNECTIONS_MAX     256u /* of both ports */
#define EV_CONNECTIONS_OF_ONE  64u  /* from one address, and never more than are left */
#define EV_CONNECTIONS_LOCAL   32u  /* of all, for clients of this machine alone */
#define EV_TOPICS_MAX          16u  /* of a connection; more have no effect */
#define EV_TOPIC_BYTES_MAX     64u  /* unless the publisher's own begins with it */
#define EV_OWN_TOPIC_BYTES_MAX 200u
#define EV_FRAME_BYTES_MAX     256u /* of what arrives */
#define EV_REQUEST_FRAMES_MAX  4u
#define EV_LISTENER_PORTS_MAX  2u

struct ev_listener; /* opaque */
/* Each of the counters is written by any thread. */
struct ev_listener_stats {
    _Atomic uint64_t
        connections;         /* not accepted: over a bound, or no descriptor or thread is left */
    _Atomic uint64_t topics; /* over the bounds: not passed on */
    _Atomic uint64_t frames; /* connections that ended for what they sent */
    _Atomic uint64_t idle;   /* and those that ended since nothing went over them but a replay */
};

/* idle_ms: a connection ends when nothing was sent to it, or taken by it, for this long. */
sl_err ev_listener_create(uint32_t idle_ms, struct ev_listener **out, struct sl_error *why);
/* Relays between `where` (tcp://HOST:PORT or ipc://PATH, as ZeroMQ has it) and the socket at the
 * path inner, whose file it removes: this process reaches it all the same. topic: what is published
 * has it, and peers send topics and nothing else (borrowed); NULL: they send requests of less than
 * EV_REQUEST_FRAMES_MAX frames. To be called before ev_listener_start, EV_LISTENER_PORTS_MAX times
 * at most. Errors: SL_ERR_EXISTS (taken), SL_ERR_CONFIG, SL_ERR_OS, SL_ERR_PERMISSION. */
sl_err ev_listener_add(struct ev_listener *listener, const char *where, const char *inner,
                       const char *topic, struct sl_error *why);
sl_err ev_listener_start(struct ev_listener *listener, struct sl_error *why);
const struct ev_listener_stats *ev_listener_stats(const struct ev_listener *listener);
/* What ZeroMQ has sent before it was closed is passed on for 200 ms at most. */
void ev_listener_destroy(struct ev_listener **listener);

#endif
