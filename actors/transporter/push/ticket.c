/* actors/transporter/push/ticket.c - see ticket.h. */
#include "actors/transporter/push/ticket.h"

#include "ipc/sl_msg.h"
#include "runtime/fabric/core/wire.h"
#include "runtime/sl_digest.h"

#include <inttypes.h>
#include <string.h>

#define TICKET_MAGIC      UINT32_C(0x544b4c53) /* "SLKT" */
#define TICKET_VERSION    1u
#define TICKET_HEAD_BYTES 48u
#define TICKET_SUM_BYTES  8u

_Static_assert(TICKET_HEAD_BYTES + 31 + TICKET_SUM_BYTES <= SL_TICKET_BYTES_MAX,
               "the longest name");

uint32_t sl_ticket_write(const struct sl_ticket *ticket, unsigned char out[SL_TICKET_BYTES_MAX])
{
    uint32_t name_bytes = (uint32_t)strnlen(ticket->node, sizeof(ticket->node) - 1);
    uint32_t length = TICKET_HEAD_BYTES + name_bytes;
    sl_wire_put(out, TICKET_MAGIC, 4);
    sl_wire_put(out + 4, TICKET_VERSION, 1);
    sl_wire_put(out + 5, name_bytes, 1);
    sl_wire_put(out + 6, 0, 2);
    sl_wire_put(out + 8, ticket->incarnation, 8);
    sl_wire_put(out + 16, ticket->number, 8);
    sl_wire_put(out + 24, ticket->slot, 4);
    sl_wire_put(out + 28, ticket->part_count, 4);
    memcpy(out + 32, ticket->secret, SL_TICKET_SECRET_BYTES);
    memcpy(out + TICKET_HEAD_BYTES, ticket->node, name_bytes);
    sl_wire_put(out + length, sl_digest_of(out, length).low, TICKET_SUM_BYTES);
    return length + TICKET_SUM_BYTES;
}

sl_err sl_ticket_read(const void *from, uint64_t length_bytes, struct sl_ticket *out,
                      struct sl_error *why)
{
    const unsigned char *bytes = from;
    struct sl_ticket ticket = {0};
    if (length_bytes < TICKET_HEAD_BYTES + TICKET_SUM_BYTES || length_bytes > SL_TICKET_BYTES_MAX ||
        sl_wire_get(bytes, 4) != TICKET_MAGIC) {
        return sl_fail(why, SL_ERR_INVALID, "ticket: %" PRIu64 " bytes that are none",
                       length_bytes);
    }
    if (bytes[4] != TICKET_VERSION) {
        return sl_fail(why, SL_ERR_VERSION, "ticket: version %u", bytes[4]);
    }
    uint32_t name_bytes = bytes[5];
    uint64_t summed = length_bytes - TICKET_SUM_BYTES;
    if (summed != TICKET_HEAD_BYTES + (uint64_t)name_bytes ||
        sl_wire_get(bytes + summed, TICKET_SUM_BYTES) != sl_digest_of(bytes, summed).low) {
        return sl_fail(why, SL_ERR_INVALID, "ticket: damaged");
    }
    ticket.incarnation = sl_wire_get(bytes + 8, 8);
    ticket.number = sl_wire_get(bytes + 16, 8);
    ticket.slot = (uint32_t)sl_wire_get(bytes + 24, 4);
    ticket.part_count = (uint32_t)sl_wire_get(bytes + 28, 4);
    memcpy(ticket.secret, bytes + 32, SL_TICKET_SECRET_BYTES);
    if (name_bytes < sizeof(ticket.node)) {
        memcpy(ticket.node, bytes + TICKET_HEAD_BYTES, name_bytes);
    }
    if (name_bytes >= sizeof(ticket.node) || !sl_actor_name_is_clean(ticket.node, name_bytes) ||
        ticket.part_count > SL_TICKET_PARTS_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "ticket: no node, or %u parts", ticket.part_count);
    }
    *out = ticket;
    return SL_OK;
}
