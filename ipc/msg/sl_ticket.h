/* ipc/msg/sl_ticket.h - what decode hands to prefill, by whichever way the engines talk: which node
 * wants the blocks of a hand-over. A peer that shows it may name bytes for that hand-over: keep it
 * as a secret. */
#ifndef SL_TICKET_H
#define SL_TICKET_H

#include "ipc/msg/sl_msg.h"

#include <string.h>

#define SL_TICKET_BYTES_MAX 64u

struct sl_ticket_fields { /* the bytes that write counts: up to the name's end */
    uint64_t number;      /* of decode's coordinator, not 0 */
    uint8_t secret[16];
    char node[32]; /* decode's */
};
static inline uint32_t sl_ticket_write(const struct sl_ticket_fields *ticket,
                                       unsigned char out[SL_TICKET_BYTES_MAX])
{
    memcpy(out, ticket, sizeof(*ticket));
    return (uint32_t)(offsetof(struct sl_ticket_fields, node) + strlen(ticket->node));
}
/* Every byte is hostile. Errors: SL_ERR_INVALID. */
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
