/* runtime/net/sl_strangers.h - connections whose other side has not proved who it is, and which of
 * them goes when there are too many.
 *
 * A listener has places, by number. Who connects takes one as a stranger, until it has proved who
 * it is or is gone. A proof may take some turns; who began one goes last. Of one address there are
 * at most so many strangers: the oldest of them makes room for the next. When places run out, the
 * oldest stranger of the address with the most goes. So a flood pushes out itself, and nobody who
 * proved who it is. An address of IPv6 counts by its first 64 bits, since who has one has 2^64 of
 * them.
 *
 * One thread at a time. No clock: a listener gives each stranger a time to greet of its own. */
#ifndef SL_STRANGERS_H
#define SL_STRANGERS_H

#include "runtime/base/sl_error.h"

#include <sys/socket.h>

#define SL_STRANGERS_NONE       UINT32_MAX
#define SL_STRANGERS_PLACES_MAX (1u << 17)

struct sl_strangers; /* opaque */

/* For places 0..place_count-1 (1..SL_STRANGERS_PLACES_MAX), of_one_max (1 or more) from one
 * address. Errors: SL_ERR_INVALID, SL_ERR_NO_MEMORY. */
sl_err sl_strangers_create(uint32_t place_count, uint32_t of_one_max, struct sl_strangers **out,
                           struct sl_error *why);
void sl_strangers_destroy(struct sl_strangers **strangers);

/* Who connected from `from` has this place, which no stranger has. Gives the place of the stranger
 * that is to go for it, which is one no more; SL_STRANGERS_NONE: none has to. */
uint32_t sl_strangers_add(struct sl_strangers *strangers, uint32_t place,
                          const struct sockaddr_storage *from);
/* It has said a name that is known, and proves it next: it goes only when no other is left, and
 * does not count for its address. */
void sl_strangers_named(struct sl_strangers *strangers, uint32_t place);
/* It proved who it is, or is gone. Does nothing for a place without a stranger. */
void sl_strangers_remove(struct sl_strangers *strangers, uint32_t place);
/* Takes the stranger out that is to go when a place is wanted; SL_STRANGERS_NONE: there is none. */
uint32_t sl_strangers_push(struct sl_strangers *strangers);
/* Whether both count as one address. */
bool sl_strangers_same(const struct sockaddr_storage *one, const struct sockaddr_storage *other);

#endif
