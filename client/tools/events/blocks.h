/* client/tools/events/blocks.h - which blocks are whole in which tier, and what of that was told.
 *
 * Changes of the index come in by key. A key is a part of a block (runtime/keys/sl_block_names.h).
 * A block is whole in a tier when it has there every part that its family has anywhere: so what is
 * told follows from what lies in the index, and from nothing else. */
#ifndef SL_CLIENT_EVENTS_BLOCKS_H
#define SL_CLIENT_EVENTS_BLOCKS_H

#include "ipc/shm/sl_index_changes.h"
#include "runtime/keys/sl_block_names.h"

enum ev_medium { EV_MEMORY, EV_DISK, EV_MEDIUM_COUNT };
enum ev_type { EV_STORED, EV_REMOVED, EV_CLEARED };

/* What an event says of a block. Borrowed during the call. */
struct ev_hash {
    uint64_t number; /* sl_block_name_number */
    bool is_signed;
    uint8_t length;
    uint8_t bytes[SL_BLOCK_HASH_BYTES];
};
struct ev_event {
    enum ev_type type; /* of CLEARED nothing else is set */
    enum ev_medium medium;
    const struct ev_hash *hash;
    const struct ev_hash *parent; /* NULL: it has none, or it is not known */
    const char *model;            /* zero-terminated */
    uint32_t group_index;
    const void *family; /* the same for blocks of one family */
    uint64_t
        committed_ns; /* of one that came since the beginning: when it was stored; 0: not known */
};
typedef void (*ev_event_fn)(void *context, const struct ev_event *event);

struct ev_blocks; /* opaque; one thread */

/* model: blocks of other models are left out; "": all are told. Errors: SL_ERR_NO_MEMORY. */
sl_err ev_blocks_create(const char *model, struct ev_blocks **out, struct sl_error *why);
void ev_blocks_destroy(struct ev_blocks **blocks);

/* An sl_index_change_fn; context is the blocks. Takes every change. */
bool ev_blocks_change(void *context, const struct sl_index_change *change);
/* Nothing is there any more: another index, or the first. The next events begin with CLEARED. */
void ev_blocks_forget(struct ev_blocks *blocks);
/* Tells what is not as it was told last: first what went, then what came, parents before children.
 * When nothing is left, that is CLEARED. */
void ev_blocks_settle(struct ev_blocks *blocks, ev_event_fn fn, void *context);
/* Tells all that was told and still holds, behind CLEARED. */
void ev_blocks_all(struct ev_blocks *blocks, ev_event_fn fn, void *context);

struct ev_blocks_stats {
    uint64_t told[EV_MEDIUM_COUNT]; /* blocks */
    uint64_t families, parts, keys_other;
    bool no_memory; /* something was left out: begin anew */
};
void ev_blocks_stats(const struct ev_blocks *blocks, struct ev_blocks_stats *out);

#endif
