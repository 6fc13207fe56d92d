/* actors/transporter/push/ticket.h - what a node that wants blocks hands to the one that has them,
 * by whichever way the engines talk. Whoever shows it, and is a peer, may write: keep it as a
 * secret.
 *
 * Bytes: magic u32, version u8, length of the name u8, 0 u16, incarnation u64, number u64, slot
 * u32, parts u32, secret 16 bytes, name, checksum u64 (low half of the digest of what is before
 * it). Integers are little-endian. */
#ifndef SL_TRANSPORTER_PUSH_TICKET_H
#define SL_TRANSPORTER_PUSH_TICKET_H

#include "runtime/sl_error.h"

#define SL_TICKET_BYTES_MAX    128u
#define SL_TICKET_SECRET_BYTES 16u
#define SL_TICKET_PARTS_MAX    4096u

struct sl_ticket {
    char node[32];        /* that gave it */
    uint64_t incarnation; /* of its transporter */
    uint64_t number;      /* never used again in that life */
    uint32_t slot, part_count;
    uint8_t secret[SL_TICKET_SECRET_BYTES];
};
/* Gives the length. */
uint32_t sl_ticket_write(const struct sl_ticket *ticket, unsigned char out[SL_TICKET_BYTES_MAX]);
/* Every byte is hostile. Errors: SL_ERR_INVALID, SL_ERR_VERSION. */
sl_err sl_ticket_read(const void *bytes, uint64_t length_bytes, struct sl_ticket *out,
                      struct sl_error *why);

#endif
