/* runtime/keys/keys_encode.h - encoders of the subsets of pickle and CBOR that engines hash.
 * Private to runtime/keys.
 *
 * Writers do not fail in the middle: if memory runs out they set `failed`, which the caller checks
 * at the end. */
#ifndef SL_KEYS_ENCODE_H
#define SL_KEYS_ENCODE_H

#include "runtime/keys/keys_extras.h"

struct keys_buffer {
    unsigned char *at;
    size_t length, capacity;
    bool failed;
};
/* Makes room for `more` bytes; false: no memory (sticky). */
bool keys_buffer_reserve(struct keys_buffer *buffer, size_t more);
void keys_buffer_put(struct keys_buffer *buffer, const void *bytes, size_t length);
void keys_buffer_fini(struct keys_buffer *buffer);

/* The input of one block's hash. */
struct keys_block {
    const uint32_t *tokens;
    size_t token_count;
    const void *parent; /* bytes, or hex digits; length 0 with parent_is_text: "" */
    size_t parent_length;
    bool parent_is_text;
    struct keys_node *nodes;           /* extras of the block; `memo` is scratch */
    const struct keys_node *all_nodes; /* the array that `same` indexes */
    struct keys_span span;
};

/* These empty the buffer and write one whole stream. */
void keys_pickle_text(struct keys_buffer *out, uint32_t protocol, const char *text, size_t length);
/* (parent, (tokens), (extras) or None) */
void keys_pickle_triple(struct keys_buffer *out, uint32_t protocol, const struct keys_block *block);
/* ([tokens], [parent if its length is not 0, extras...]) */
void keys_pickle_lists(struct keys_buffer *out, uint32_t protocol, const struct keys_block *block);
void keys_cbor_text(struct keys_buffer *out, const char *text, size_t length);
void keys_cbor_triple(struct keys_buffer *out, const struct keys_block *block);
/* Appends the tagged extras of the format sluice. */
void keys_tagged_extras(struct keys_buffer *out, const struct keys_block *block);

#endif
