/* runtime/net/sl_unauth.h - unauthenticated connections of a listener, and which of them is
 * closed when there are too many.
 *
 * A listener has numbered places. A connection occupies one as unauthenticated, until it is
 * authenticated or closed. Each address has a limited number of them: a new one displaces the
 * oldest. When places run out, the oldest connection of the address with the most is displaced. So
 * a flood displaces itself and never an authenticated peer. Authentication may take several turns;
 * connections that have begun it are displaced last. IPv6 addresses count by their first 64 bits,
 * because a client usually controls 2^64 of them.
 *
 * One thread at a time. No clock: the listener limits the time of each connection. */
#ifndef SL_UNAUTH_H
#define SL_UNAUTH_H

#include "runtime/base/sl_error.h"

#include <sys/socket.h>

#define SL_UNAUTH_NONE       UINT32_MAX
#define SL_UNAUTH_PLACES_MAX (1u << 17)

struct sl_unauth; /* opaque */

/* For places 0..place_count-1 (1..SL_UNAUTH_PLACES_MAX), and of_one_max (1 or more) connections
 * from one address. Errors: SL_ERR_INVALID, SL_ERR_NO_MEMORY. */
sl_err sl_unauth_create(uint32_t place_count, uint32_t of_one_max, struct sl_unauth **out,
                        struct sl_error *why);
void sl_unauth_destroy(struct sl_unauth **unauth);

/* Adds a connection from `from` in a place that must be free. Gives the place of a connection that
 * it displaces and the caller must close; SL_UNAUTH_NONE: none. */
uint32_t sl_unauth_add(struct sl_unauth *unauth, uint32_t place,
                       const struct sockaddr_storage *from);
/* Marks a connection that has sent a known name and will prove it next: it is displaced last and
 * does not count for its address. */
void sl_unauth_named(struct sl_unauth *unauth, uint32_t place);
/* The connection was authenticated or closed. Does nothing for a free place. */
void sl_unauth_remove(struct sl_unauth *unauth, uint32_t place);
/* Removes the connection to displace if a place is needed, and gives its place; SL_UNAUTH_NONE:
 * none. */
uint32_t sl_unauth_displace(struct sl_unauth *unauth);
/* Whether both count as one address. */
bool sl_unauth_same_address(const struct sockaddr_storage *one,
                            const struct sockaddr_storage *other);

#endif
