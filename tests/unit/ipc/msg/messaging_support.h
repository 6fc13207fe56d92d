/* tests/unit/ipc/msg/messaging_support.h - makes messages from the table by seed; a second encoder
 * without checks can break any field of them. */
#ifndef SL_TESTS_MESSAGING_SUPPORT_H
#define SL_TESTS_MESSAGING_SUPPORT_H

#include "ipc/msg/msg_internal.h"

/* Memory of messages that make_message made; freed together. */
struct made {
    void *blocks[4096];
    uint32_t count;
    uint64_t random;
};
void made_free(struct made *made);
/* Makes a message of this type; its fields are within the table's bounds, chosen by seed. */
struct sl_msg make_message(struct made *made, uint32_t type, uint64_t seed);
/* Whether a reader would see the same message twice (received_ns aside); otherwise names the first
 * field that differs. */
bool messages_equal(const struct sl_msg *a, const struct sl_msg *b, char *difference,
                    size_t difference_bytes);

enum breakage {
    BREAK_NOTHING,
    BREAK_KIND,      /* nil where the table requires a value */
    BREAK_TOO_LOW,   /* below the minimum; false when there is none */
    BREAK_TOO_HIGH,  /* above the maximum; false when there is none */
    BREAK_NOT_UTF8,  /* texts only */
    BREAK_ZERO_BYTE, /* texts only */
    BREAK_MISSING,   /* the array ends before the field */
    BREAK_COUNT,
};
/* Encodes without checks, with one field of the body (or of the first item of its list) broken.
 * Gives *frame (free). False: this kind of breakage does not apply to the field. */
bool encode_broken(const struct sl_msg *msg, uint32_t field_index, int item_field_index,
                   enum breakage breakage, unsigned char **frame, size_t *length_bytes);

#endif
