/* client/tools/events/listener.h - the publisher's ports, with bounds on connections, topics,
 * frames and idle time.
 *
 * ZeroMQ has no such bounds: it accepts until no descriptor is left, and keeps every topic that a
 * peer sends. So its sockets are bound where only this process can reach them, and the listener
 * relays: one thread for each connection checks every frame of ZMTP 3 that arrives. */
#ifndef SL_CLIENT_EVENTS_LISTENER_H
#define SL_CLIENT_EVENTS_LISTENER_H

#include "runtime/base/sl_error.h"

#define EV_CONNECTIONS_MAX     256u /* of both ports */
#define EV_CONNECTIONS_OF_ONE  64u  /* from one address, and never more than are free */
#define EV_CONNECTIONS_LOCAL   32u  /* of all, reserved for clients of this machine */
#define EV_TOPICS_MAX          16u  /* of a connection; further ones are ignored */
#define EV_TOPIC_BYTES_MAX     64u  /* unless it is a prefix of the publisher's topic */
#define EV_OWN_TOPIC_BYTES_MAX 200u
#define EV_FRAME_BYTES_MAX     256u /* of an arriving frame */
#define EV_REQUEST_FRAMES_MAX  4u
#define EV_LISTENER_PORTS_MAX  2u

struct ev_listener; /* opaque */
/* Any thread increments these counters. */
struct ev_listener_stats {
    _Atomic uint64_t connections; /* refused: a bound, or no descriptor or thread is left */
    _Atomic uint64_t topics;      /* refused by a bound */
    _Atomic uint64_t frames;      /* connections closed because of a frame */
    _Atomic uint64_t idle;        /* connections closed because they were idle */
};

/* idle_ms: a connection is closed after this time without traffic, or if its peer reads nothing. */
sl_err ev_listener_create(uint32_t idle_ms, struct ev_listener **out, struct sl_error *why);
/* Relays between `where` (ZeroMQ's tcp://HOST:PORT or ipc://PATH) and the socket at the path inner.
 * It removes that file, but can still connect to the socket. topic: that of all published messages;
 * peers may send only subscriptions (borrowed). NULL: peers send requests of less than
 * EV_REQUEST_FRAMES_MAX frames. Call it before ev_listener_start, at most EV_LISTENER_PORTS_MAX
 * times. Errors: SL_ERR_EXISTS (address in use), SL_ERR_CONFIG, SL_ERR_OS, SL_ERR_PERMISSION. */
sl_err ev_listener_add(struct ev_listener *listener, const char *where, const char *inner,
                       const char *topic, struct sl_error *why);
sl_err ev_listener_start(struct ev_listener *listener, struct sl_error *why);
const struct ev_listener_stats *ev_listener_stats(const struct ev_listener *listener);
/* Passes on what ZeroMQ sent before it was closed, for at most 200 ms. */
void ev_listener_destroy(struct ev_listener **listener);

#endif
