/* tests/unit/messaging_support.h - messages made from the table by a seed, and a second, careless
 * encoder that can break any field of them. */
#ifndef SL_TESTS_MESSAGING_SUPPORT_H
#define SL_TESTS_MESSAGING_SUPPORT_H

#include "ipc/msg/msg_internal.h"

/* Memory of made messages; freed together. */
struct made {
    void *blocks[4096];
    uint32_t count;
    uint64_t random;
};
void made_free(struct made *made);
/* A message of this type whose fields are within the table's bounds and follow from the seed alone.
 */
struct sl_msg make_message(struct made *made, uint32_t type, uint64_t seed);
/* Whether both are the same to a reader (received_ns aside); names the first field that differs. */
bool messages_equal(const struct sl_msg *a, const struct sl_msg *b, char *difference,
                    size_t difference_bytes);

enum breakage {
    BREAK_NOTHING,
    BREAK_KIND,      /* nil where the table wants something */
    BREAK_TOO_LOW,   /* below the minimum; false when there is none */
    BREAK_TOO_HIGH,  /* above the maximum; false when there is none */
    BREAK_NOT_UTF8,  /* texts alone */
    BREAK_ZERO_BYTE, /* texts alone */
    BREAK_MISSING,   /* the array ends before the field */
    BREAK_COUNT,
};
/* Encodes without checking, with one field of the body (or of the first item of its list) broken.
 * Gives *frame (free). False: this breakage does not apply to the field. */
bool encode_broken(const struct sl_msg *msg, uint32_t field_index, int item_field_index,
                   enum breakage breakage, unsigned char **frame, size_t *length_bytes);

#endif
