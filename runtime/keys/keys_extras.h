/* runtime/keys/keys_extras.h - parses the extras of a request into flat nodes. Private to
 * runtime/keys. */
#ifndef SL_KEYS_EXTRAS_H
#define SL_KEYS_EXTRAS_H

#include "runtime/base/sl_error.h"

#include <jansson.h>

enum keys_node_kind {
    KEYS_NODE_NULL,
    KEYS_NODE_INT,
    KEYS_NODE_TEXT,
    KEYS_NODE_BYTES,
    KEYS_NODE_SAME,  /* same object as node `same`, a leaf that is not KEYS_NODE_SAME */
    KEYS_NODE_TUPLE, /* `count` elements follow, then KEYS_NODE_END */
    KEYS_NODE_NAMED, /* `count` pairs of KEYS_NODE_TEXT (name) and a leaf, then KEYS_NODE_END */
    KEYS_NODE_END,
};

struct keys_node {
    enum keys_node_kind kind;
    uint32_t memo; /* scratch of the pickle encoder: 1 + memo index, 0: not written yet */
    uint32_t same;
    uint32_t count;
    int64_t number;
    const unsigned char *at; /* points into the JSON tree, or into `bytes` */
    size_t length;
};

struct keys_span {
    uint32_t first, count; /* nodes of a block */
    uint32_t elements;     /* top-level elements of the block */
};

struct keys_extras {
    json_t *root; /* owned while parsed */
    struct keys_node *nodes;
    uint32_t node_count, node_capacity;
    struct keys_node spare; /* given instead of a new node when memory is out */
    bool failed;            /* memory was out: reported at the end */
    struct keys_span *spans;
    uint32_t span_count, span_capacity;
    unsigned char *bytes; /* decoded {"hex"}; sized before decoding, so it never moves */
    size_t bytes_used, bytes_capacity;
};

/* The extras that a format accepts. */
enum keys_extras_taken {
    KEYS_EXTRAS_NONE,      /* lmcache */
    KEYS_EXTRAS_NAMESPACE, /* sglang: one object in block 0 */
    KEYS_EXTRAS_OBJECTS,   /* python objects */
    KEYS_EXTRAS_NAMED,     /* also named elements */
};

/* Parses root (NULL: none) and takes it, also on failure. text_bytes: bound of its hex digits. */
sl_err keys_extras_parse(struct keys_extras *extras, json_t *root, size_t text_bytes,
                         uint64_t block_count, enum keys_extras_taken taken, struct sl_error *why);
/* Empties it; keeps its memory. */
void keys_extras_reset(struct keys_extras *extras);
void keys_extras_fini(struct keys_extras *extras);
struct keys_span keys_extras_of(const struct keys_extras *extras, uint64_t block);

#endif
