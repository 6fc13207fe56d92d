/* tests/fuzz/hostile_node.h - arena and index of a node, for actors that read them: what a
 * registrar would have written, and what somebody wrote over it. */
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
    sl_ref refs[NODE_BLOCKS * NODE_RANKS]; /* parts; 0: gone */
    uint64_t next_offset;
    bool scribbled; /* the writer of the index would not survive what stands there now */
    int device_fd;  /* memory of an engine */
};
/* Blocks b0 .. b3 of two ranks and one pool; the last part of the last one is on disk alone. */
void hostile_node_make(struct hostile_node *node, const char *shm_dir);
void hostile_node_end(struct hostile_node *node);
/* Entries go, move to disk, come back; claims appear; words of the index and the arena change. */
void hostile_node_change(struct hostile_node *node, struct hostile *hostile);
/* A claim for `length` bytes, as granted to `writer`. Gives 0 when there is no room. */
sl_ref hostile_node_claim(struct hostile_node *node, enum sl_record_kind kind, const char *key,
                          uint64_t length, struct sl_extent *extent);
/* An engine as it should be: one pool, one layer a rank, in memory of this process. */
void hostile_node_engine(const struct hostile_node *node, struct sl_body_engine_get_reply *out);

#endif
