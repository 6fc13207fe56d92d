/* client/tools/events/batch.c - packs events into messages; see batch.h. */
#include "client/tools/events/batch.h"

#include <msgpack/pack.h>
#include <msgpack/sbuffer.h>
#include <stdlib.h>
#include <string.h>

struct ev_batch {
    struct ev_form form;
    uint64_t incarnation;
    double time_s;
    ev_message_fn fn;
    void *context;
    msgpack_sbuffer events, hashes, message;
    msgpack_packer pack_events, pack_hashes, pack_message;
    uint32_t event_count, block_count; /* in the message */
    /* The event that still grows: only its hashes are packed. */
    struct ev_event open;
    struct ev_hash first_parent, last; /* copies */
    char *model;
    uint32_t hash_count; /* 0: no event is open */
    struct ev_batch_stats stats;
    bool failed; /* no memory for this message */
};

sl_err ev_batch_create(const struct ev_form *form, uint64_t incarnation, ev_message_fn fn,
                       void *context, struct ev_batch **out, struct sl_error *why)
{
    struct ev_batch *batch = calloc(1, sizeof(*batch));
    if (batch == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "batch of events");
    }
    batch->form = *form;
    batch->incarnation = incarnation;
    batch->fn = fn;
    batch->context = context;
    msgpack_packer_init(&batch->pack_events, &batch->events, msgpack_sbuffer_write);
    msgpack_packer_init(&batch->pack_hashes, &batch->hashes, msgpack_sbuffer_write);
    msgpack_packer_init(&batch->pack_message, &batch->message, msgpack_sbuffer_write);
    *out = batch;
    return SL_OK;
}

void ev_batch_destroy(struct ev_batch **batch)
{
    if (batch == NULL || *batch == NULL) {
        return;
    }
    msgpack_sbuffer_destroy(&(*batch)->events);
    msgpack_sbuffer_destroy(&(*batch)->hashes);
    msgpack_sbuffer_destroy(&(*batch)->message);
    free((*batch)->model);
    free(*batch);
    *batch = NULL;
}

/* ---- packing; it fails only for lack of memory ---- */

static void need(struct ev_batch *batch, int rc)
{
    batch->failed = batch->failed || rc != 0;
}

static void put_text(struct ev_batch *batch, const char *text)
{
    size_t length = strlen(text);
    need(batch, msgpack_pack_str(&batch->pack_events, length));
    need(batch, msgpack_pack_str_body(&batch->pack_events, text, length));
}

static void put_hash(struct ev_batch *batch, msgpack_packer *packer, const struct ev_hash *hash)
{
    if (batch->form.bytes) {
        need(batch, msgpack_pack_bin(packer, hash->length));
        need(batch, msgpack_pack_bin_body(packer, hash->bytes, hash->length));
    } else if (hash->is_signed) {
        need(batch, msgpack_pack_int64(packer, (int64_t)hash->number));
    } else {
        need(batch, msgpack_pack_uint64(packer, hash->number));
    }
}

/* Begins a field of an event: maps have its name, arrays only its position. */
static void field(struct ev_batch *batch, const char *name)
{
    if (!batch->form.array) {
        put_text(batch, name);
    }
}

static void put_begin(struct ev_batch *batch, const char *type, uint32_t map_fields,
                      uint32_t array_fields)
{
    if (batch->form.array) {
        need(batch, msgpack_pack_array(&batch->pack_events, array_fields));
    } else {
        need(batch, msgpack_pack_map(&batch->pack_events, map_fields));
        put_text(batch, "type");
    }
    put_text(batch, type);
}

static void put_hashes(struct ev_batch *batch)
{
    field(batch, "block_hashes");
    need(batch, msgpack_pack_array(&batch->pack_events, batch->hash_count));
    need(batch, msgpack_sbuffer_write(&batch->events, batch->hashes.data, batch->hashes.size));
}

static void put_medium(struct ev_batch *batch)
{
    field(batch, "medium");
    put_text(batch, batch->form.media[batch->open.medium]);
}

/* Number of fields that only maps have. */
static uint32_t more_fields(const struct ev_batch *batch)
{
    return (batch->open.group_index != SL_BLOCK_NO_GROUP ? 1u : 0u) + (batch->form.ours ? 1u : 0u);
}

static void put_more(struct ev_batch *batch)
{
    if (batch->form.array) {
        return;
    }
    if (batch->open.group_index != SL_BLOCK_NO_GROUP) {
        put_text(batch, "group_idx");
        need(batch, msgpack_pack_uint32(&batch->pack_events, batch->open.group_index));
    }
    if (batch->form.ours) {
        put_text(batch, "model");
        put_text(batch, batch->model != NULL ? batch->model : "");
    }
}

static void put_stored(struct ev_batch *batch)
{
    msgpack_packer *packer = &batch->pack_events;
    put_begin(batch, "BlockStored", 8 + more_fields(batch), 8);
    put_hashes(batch);
    field(batch, "parent_block_hash");
    if (batch->open.parent != NULL) {
        put_hash(batch, packer, &batch->first_parent);
    } else {
        need(batch, msgpack_pack_nil(packer));
    }
    field(batch, "token_ids");
    need(batch, msgpack_pack_array(packer, 0));
    field(batch, "block_size");
    need(batch, msgpack_pack_uint32(packer, batch->form.block_size));
    field(batch, "lora_id");
    need(batch, msgpack_pack_nil(packer));
    put_medium(batch);
    field(batch, "lora_name");
    need(batch, msgpack_pack_nil(packer));
    put_more(batch);
}

static void put_removed(struct ev_batch *batch)
{
    put_begin(batch, "BlockRemoved", 3 + more_fields(batch), 3);
    put_hashes(batch);
    put_medium(batch);
    put_more(batch);
}

/* ---- joining blocks to events ---- */

static void event_close(struct ev_batch *batch)
{
    if (batch->hash_count == 0) {
        return;
    }
    batch->open.type == EV_STORED ? put_stored(batch) : put_removed(batch);
    batch->event_count++;
    batch->hash_count = 0;
    msgpack_sbuffer_clear(&batch->hashes);
}

void ev_batch_time(struct ev_batch *batch, double time_s)
{
    batch->time_s = time_s;
}

void ev_batch_flush(struct ev_batch *batch, bool empty)
{
    msgpack_packer *packer = &batch->pack_message;
    event_close(batch);
    if (batch->event_count == 0 && !empty) {
        return;
    }
    msgpack_sbuffer_clear(&batch->message);
    need(batch, msgpack_pack_array(packer, 3));
    need(batch, msgpack_pack_double(packer, batch->time_s));
    need(batch, msgpack_pack_array(packer, batch->event_count));
    if (batch->events.size > 0) {
        need(batch, msgpack_sbuffer_write(&batch->message, batch->events.data, batch->events.size));
    }
    if (batch->form.rank != EV_NO_RANK) {
        need(batch, msgpack_pack_uint32(packer, batch->form.rank));
    } else {
        need(batch, msgpack_pack_nil(packer));
    }
    if (!batch->failed) {
        batch->fn(batch->context, batch->message.data, batch->message.size);
    }
    batch->stats.no_memory = batch->stats.no_memory || batch->failed;
    batch->failed = false;
    batch->event_count = batch->block_count = 0;
    msgpack_sbuffer_clear(&batch->events);
}

static bool hash_same(const struct ev_hash *one, const struct ev_hash *other)
{
    return one->length == other->length && memcmp(one->bytes, other->bytes, one->length) == 0;
}

/* Whether the block can be added to the open event. */
static bool joins(const struct ev_batch *batch, const struct ev_event *event)
{
    const struct ev_event *open = &batch->open;
    if (batch->hash_count == 0 || open->type != event->type || open->medium != event->medium ||
        open->family != event->family) {
        return false;
    }
    if (event->type == EV_REMOVED || (event->parent == NULL && open->parent == NULL)) {
        return true;
    }
    return event->parent != NULL && open->parent != NULL && hash_same(event->parent, &batch->last);
}

static void event_open(struct ev_batch *batch, const struct ev_event *event)
{
    event_close(batch);
    if (batch->model == NULL || strcmp(batch->model, event->model) != 0) {
        free(batch->model);
        batch->model = strdup(event->model);
        batch->failed = batch->failed || batch->model == NULL;
    }
    batch->open = *event;
    if (event->parent != NULL) {
        batch->first_parent = *event->parent;
    }
}

void ev_batch_add(void *context, const struct ev_event *event)
{
    struct ev_batch *batch = context;
    batch->stats.blocks[event->type]++;
    if (event->type == EV_CLEARED) {
        event_close(batch);
        put_begin(batch, "AllBlocksCleared", batch->form.ours ? 2 : 1, 1);
        if (batch->form.ours) {
            put_text(batch, "incarnation");
            need(batch, msgpack_pack_uint64(&batch->pack_events, batch->incarnation));
        }
        batch->event_count++;
        return;
    }
    if (batch->block_count >= EV_BATCH_BLOCKS ||
        batch->events.size + batch->hashes.size >= EV_BATCH_BYTES) {
        ev_batch_flush(batch, false);
    }
    if (!joins(batch, event)) {
        event_open(batch, event);
    }
    put_hash(batch, &batch->pack_hashes, event->hash);
    batch->last = *event->hash;
    batch->hash_count++;
    batch->block_count++;
}

void ev_batch_stats(const struct ev_batch *batch, struct ev_batch_stats *out)
{
    *out = batch->stats;
}
