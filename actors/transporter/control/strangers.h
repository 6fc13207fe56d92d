/* actors/transporter/control/strangers.h - connections of the control port: how many there may be.
 *
 * ZeroMQ accepts whoever comes, and keeps him until a handshake fails or takes too long. It tells
 * of each connection by its descriptor (a socket's monitor), so this part counts them. Who connects
 * is a stranger until a frame comes from him, which is when his key was proved. Strangers give way
 * to each other as runtime/net/sl_strangers.h has it. Of one key there are so many connections that
 * have spoken: the oldest makes room for the next. One thread. */
#ifndef SL_TRANSPORTER_CONTROL_STRANGERS_H
#define SL_TRANSPORTER_CONTROL_STRANGERS_H

#include "runtime/base/sl_error.h"

struct control_strangers; /* opaque */
struct control_strangers_options {
    uint32_t strangers_max;  /* in all, 1.. */
    uint32_t of_address_max; /* strangers of one address, 1.. */
    uint32_t keys_max;       /* keys that are told apart: 0..keys_max-1 */
    uint32_t of_key_max;     /* connections of one key that have spoken, 1.. */
};
/* Watches a bound ROUTER; context and router are borrowed. Errors: SL_ERR_NO_MEMORY, SL_ERR_OS. */
sl_err control_strangers_open(void *context, void *router,
                              const struct control_strangers_options *options,
                              struct control_strangers **out, struct sl_error *why);
/* Before the router is closed. */
void control_strangers_close(struct control_strangers **strangers);
/* Its descriptor (ZMQ_FD) says when there is something to step for. */
void *control_strangers_monitor(const struct control_strangers *strangers);
/* Takes what happened; gives how many connections were ended for it. */
uint32_t control_strangers_step(struct control_strangers *strangers);
/* A frame came over the connection with this descriptor, of this key. Gives how many were ended. */
uint32_t control_strangers_spoke(struct control_strangers *strangers, int fd, uint32_t key);
/* The key is nobody's any more: its connections end. Gives how many did. */
uint32_t control_strangers_key_ends(struct control_strangers *strangers, uint32_t key);

#endif
