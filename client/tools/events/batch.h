/* client/tools/events/batch.h - events as the messages of vLLM's KVEventBatch, in msgpack.
 *
 * A message is [time, [event...], data-parallel rank or nil], and nothing more: Dynamo's decoder
 * refuses a fourth. Events that go together are put together: what went, by medium; what
 * came without a parent, likewise (its hashes are then no chain); and a chain whose first has one.
 */
#ifndef SL_CLIENT_EVENTS_BATCH_H
#define SL_CLIENT_EVENTS_BATCH_H

#include "client/tools/events/blocks.h"

#define EV_BATCH_BLOCKS 512u /* of a message at most */
#define EV_BATCH_BYTES \
    14336u /* begins a new one behind so many; one event more makes it 16 KiB at most */
#define EV_NO_RANK UINT32_MAX

struct ev_form {
    bool array; /* events are arrays, as of vLLM before they were maps */
    bool ours;  /* maps have the model and the incarnation, which vLLM's router refuses */
    bool bytes; /* hashes are bytes; else integers */
    uint32_t block_size;
    uint32_t rank; /* or EV_NO_RANK */
    const char *media[EV_MEDIUM_COUNT];
};
/* Borrowed during the call. */
typedef void (*ev_message_fn)(void *context, const void *payload, size_t length_bytes);

struct ev_batch; /* opaque; one thread */
/* Messages go to fn as they get full, and by ev_batch_flush. Errors: SL_ERR_NO_MEMORY. */
sl_err ev_batch_create(const struct ev_form *form, uint64_t incarnation, ev_message_fn fn,
                       void *context, struct ev_batch **out, struct sl_error *why);
void ev_batch_destroy(struct ev_batch **batch);
/* An ev_event_fn; context is the batch. */
void ev_batch_add(void *context, const struct ev_event *event);
/* Ends the message, if it has events; or with `empty` also if it has none. time_s: since 1970; of
 * all messages until the next call. */
void ev_batch_time(struct ev_batch *batch, double time_s);
void ev_batch_flush(struct ev_batch *batch, bool empty);
struct ev_batch_stats {
    uint64_t blocks[EV_CLEARED + 1]; /* by type, told; of CLEARED events */
    bool no_memory;                  /* a message was lost */
};
void ev_batch_stats(const struct ev_batch *batch, struct ev_batch_stats *out);

#endif
