/* client/tools/events/blocks.h - turns changes of the index into events about whole blocks.
 *
 * Changes arrive by key. A key is a part of a block (runtime/keys/sl_block_names.h). A block is
 * whole in a tier if it has there every part that any block of its family has anywhere. So the
 * reported blocks depend only on the contents of the index. */
#ifndef SL_CLIENT_EVENTS_BLOCKS_H
#define SL_CLIENT_EVENTS_BLOCKS_H

#include "ipc/shm/sl_index_changes.h"
#include "runtime/keys/sl_block_names.h"

enum ev_medium { EV_MEMORY, EV_DISK, EV_MEDIUM_COUNT };
enum ev_type { EV_STORED, EV_REMOVED, EV_CLEARED };

/* The hash of a block. Borrowed during the call. */
struct ev_hash {
    uint64_t number; /* sl_block_name_number */
    bool is_signed;
    uint8_t length;
    uint8_t bytes[SL_BLOCK_HASH_BYTES];
};
struct ev_event {
    enum ev_type type; /* with CLEARED nothing else is set */
    enum ev_medium medium;
    const struct ev_hash *hash;
    const struct ev_hash *parent; /* NULL: none, or unknown */
    const char *model;            /* zero-terminated */
    uint32_t group_index;
    const void *family;    /* identifies the block's family */
    uint64_t committed_ns; /* commit time of a block that is new since the start; 0: unknown */
};
typedef void (*ev_event_fn)(void *context, const struct ev_event *event);

struct ev_blocks; /* opaque; one thread */

/* model: only its blocks are reported; "": those of all models. Errors: SL_ERR_NO_MEMORY. */
sl_err ev_blocks_create(const char *model, struct ev_blocks **out, struct sl_error *why);
void ev_blocks_destroy(struct ev_blocks **blocks);

/* An sl_index_change_fn; context is the blocks. Always gives true. */
bool ev_blocks_change(void *context, const struct sl_index_change *change);
/* Forgets all blocks, for a new index. The next events begin with CLEARED. */
void ev_blocks_clear(struct ev_blocks *blocks);
/* Reports differences from the last report: first removed blocks, then stored ones, parents before
 * children. If no block is left, it reports CLEARED instead. */
void ev_blocks_settle(struct ev_blocks *blocks, ev_event_fn fn, void *context);
/* Reports CLEARED and then all blocks that are reported as stored. */
void ev_blocks_report_all(struct ev_blocks *blocks, ev_event_fn fn, void *context);

struct ev_blocks_stats {
    uint64_t announced[EV_MEDIUM_COUNT]; /* blocks reported as stored */
    uint64_t families, parts, keys_other;
    bool no_memory; /* a change was lost: the caller starts over */
};
void ev_blocks_stats(const struct ev_blocks *blocks, struct ev_blocks_stats *out);

#endif
