/* ipc/msg/sl_ticket.h - the ticket that decode passes to prefill through the engines: it names the
 * node that wants the blocks of a hand-over. A peer that presents it may supply bytes for that
 * hand-over, so keep it secret. */
#ifndef SL_TICKET_H
#define SL_TICKET_H

#include "ipc/msg/sl_msg.h"

#include <string.h>

#define SL_TICKET_BYTES_MAX 64u

struct sl_ticket_fields { /* only the bytes up to the end of the name are written */
    uint64_t number;      /* assigned by decode's coordinator, not 0 */
    uint8_t secret[16];
    char node[32]; /* decode's node */
};
static inline uint32_t sl_ticket_write(const struct sl_ticket_fields *ticket,
                                       unsigned char out[SL_TICKET_BYTES_MAX])
{
    memcpy(out, ticket, sizeof(*ticket));
    return (uint32_t)(offsetof(struct sl_ticket_fields, node) + strlen(ticket->node));
}
/* Reads a ticket; every byte is hostile. Errors: SL_ERR_INVALID. */
static inline sl_err sl_ticket_read(const void *bytes, uint64_t length_bytes,
                                    struct sl_ticket_fields *out, struct sl_error *why)
{
    struct sl_ticket_fields ticket = {0};
    memcpy(&ticket, bytes, SL_MIN(length_bytes, sizeof(ticket)));
    if (length_bytes < sizeof(ticket) && ticket.number != 0 &&
        sl_actor_name_is_clean(ticket.node, strlen(ticket.node))) {
        *out = ticket;
        return SL_OK;
    }
    return sl_fail(why, SL_ERR_INVALID, "ticket: it names no node, or no hand-over");
}
#endif
