/* client/tools/events/batch.h - packs events into messages of vLLM's KVEventBatch, in msgpack.
 *
 * A message is [time, [event...], data-parallel rank or nil]: Dynamo's decoder refuses a fourth
 * element. One event combines removed blocks of a medium, or stored blocks without a parent of a
 * medium (not a chain then), or a chain of stored blocks whose first has a parent. */
#ifndef SL_CLIENT_EVENTS_BATCH_H
#define SL_CLIENT_EVENTS_BATCH_H

#include "client/tools/events/blocks.h"

#define EV_BATCH_BLOCKS 512u /* in a message */
#define EV_BATCH_BYTES \
    14336u /* a message ends after this; one more event makes it at most 16 KiB */
#define EV_NO_RANK UINT32_MAX

struct ev_form {
    bool array; /* events are arrays, as in older vLLM; else maps */
    bool ours;  /* maps have model and incarnation, which vLLM's router refuses */
    bool bytes; /* hashes are bytes; else integers */
    uint32_t block_size;
    uint32_t rank; /* or EV_NO_RANK */
    const char *media[EV_MEDIUM_COUNT];
};
/* Borrowed during the call. */
typedef void (*ev_message_fn)(void *context, const void *payload, size_t length_bytes);

struct ev_batch; /* opaque; one thread */
/* Calls fn with each full message, and from ev_batch_flush. Errors: SL_ERR_NO_MEMORY. */
sl_err ev_batch_create(const struct ev_form *form, uint64_t incarnation, ev_message_fn fn,
                       void *context, struct ev_batch **out, struct sl_error *why);
void ev_batch_destroy(struct ev_batch **batch);
/* An ev_event_fn; context is the batch. */
void ev_batch_add(void *context, const struct ev_event *event);
/* The time of all messages until the next call, in s since 1970. */
void ev_batch_time(struct ev_batch *batch, double time_s);
/* Ends the message if it has events; with `empty` also if it has none. */
void ev_batch_flush(struct ev_batch *batch, bool empty);
struct ev_batch_stats {
    uint64_t blocks[EV_CLEARED + 1]; /* blocks added, by type; for CLEARED the events */
    bool no_memory;                  /* a message was lost */
};
void ev_batch_stats(const struct ev_batch *batch, struct ev_batch_stats *out);

#endif
