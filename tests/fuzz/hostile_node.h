/* tests/fuzz/hostile_node.h - arena and index of a node for actors that read them: valid records as
 * a registrar writes them, and random damage to them. */
#ifndef HOSTILE_NODE_H
#define HOSTILE_NODE_H

#include "ipc/shm/sl_index.h"
#include "tests/fuzz/hostile.h"

#define NODE_MODEL  "0123456789abcdef0123456789abcdef"
#define NODE_RANKS  2u
#define NODE_BLOCKS 4u
#define NODE_VALUE  128u
#define NODE_LAYERS 4u /* of it */

struct hostile_node {
    struct sl_arena *arena;
    struct sl_index *index;
    sl_ref refs[NODE_BLOCKS * NODE_RANKS]; /* parts; 0: removed */
    uint64_t next_offset;
    bool scribbled; /* the index is damaged in a way that would end its writer */
    int device_fd;  /* an engine's memory */
};
/* Makes blocks b0 .. b3 of two ranks and one pool; the last part of b3 is only on disk. */
void hostile_node_make(struct hostile_node *node, const char *shm_dir);
void hostile_node_end(struct hostile_node *node);
/* Removes entries, moves them to disk and back, adds claims, overwrites index and arena words. */
void hostile_node_change(struct hostile_node *node, struct hostile *hostile);
/* A claim for `length` bytes, as granted to `writer`. Returns 0 if no space is left. */
sl_ref hostile_node_claim(struct hostile_node *node, enum sl_record_kind kind, const char *key,
                          uint64_t length, struct sl_extent *extent);
/* A valid engine: one pool, one layer a rank, in memory of this process. */
void hostile_node_engine(const struct hostile_node *node, struct sl_body_engine_get_reply *out);

#endif
