/* client/lib/wire.h - how frames of a client travel: by its mailbox, or where the node is another user's, by its
 * stand-in. Under the client's lock; as the functions of ipc/sl_mailbox.h. */
#ifndef SL_CLIENT_LIB_WIRE_H
#define SL_CLIENT_LIB_WIRE_H

#include "client/lib/guest_relay.h"

sl_err sl_wire_send(struct sl_client *client, const char *to, const void *frame,
                    size_t length_bytes);
sl_err sl_wire_receive(struct sl_client *client, const char **from, const void **frame,
                       size_t *length_bytes);
uint32_t sl_wire_fds(struct sl_client *client, int *fds, uint32_t max);
uint64_t sl_wire_sleep(struct sl_client *client, uint64_t now_ns);
bool sl_wire_spin(struct sl_client *client, uint64_t until_ns);
uint64_t sl_wire_connect_count(const struct sl_client *client);
/* Whether what was sent is not answered any more, asked once. */
bool sl_wire_broke(struct sl_client *client);

#endif
