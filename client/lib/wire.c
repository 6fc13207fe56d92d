/* client/lib/wire.c - see wire.h. */
#include "client/lib/wire.h"

sl_err sl_wire_send(struct sl_client *client, const char *to, const void *frame,
                    size_t length_bytes)
{
    return client->guest != NULL ? sl_guest_relay_send(client, to, frame, length_bytes)
                                 : sl_mailbox_send(client->mailbox, to, frame, length_bytes, false);
}

sl_err sl_wire_receive(struct sl_client *client, const char **from, const void **frame,
                       size_t *length_bytes)
{
    return client->guest != NULL ? sl_guest_relay_receive(client, from, frame, length_bytes)
                                 : sl_mailbox_receive(client->mailbox, from, frame, length_bytes);
}

uint32_t sl_wire_fds(struct sl_client *client, int *fds, uint32_t max)
{
    if (client->guest == NULL) {
        return sl_mailbox_fds(client->mailbox, fds, max);
    }
    fds[0] = sl_guest_relay_poll_fd(client);
    return 1;
}

uint64_t sl_wire_sleep(struct sl_client *client, uint64_t now_ns)
{
    return client->guest != NULL ? SL_NEVER_NS : sl_mailbox_sleep(client->mailbox, now_ns);
}

bool sl_wire_spin(struct sl_client *client, uint64_t until_ns)
{
    return client->guest == NULL && sl_mailbox_spin(client->mailbox, until_ns);
}

uint64_t sl_wire_connect_count(const struct sl_client *client)
{
    return client->guest != NULL ? sl_guest_relay_sent(client)
                                 : sl_mailbox_connect_count(client->mailbox);
}

bool sl_wire_broke(struct sl_client *client)
{
    return client->guest != NULL && sl_guest_relay_broke(client);
}
