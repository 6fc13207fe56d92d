/* actors/transporter/regions/places.h - where the part of a pool slot lies in memory, for the
 * fabric and for the CPU. Requires the setting fabric_pools.
 *
 * An engine may end in any turn. A transfer or grant that uses such places keeps their memory
 * registered and mapped until it ends; ENGINE_OVER waits for that. A walk of the CPU keeps nothing:
 * it must end in the turn in which it began, and longer work starts a new walk over the rest in
 * each turn. */
#ifndef SL_TRANSPORTER_REGIONS_PLACES_H
#define SL_TRANSPORTER_REGIONS_PLACES_H

#include "actors/transporter/regions/layout.h"
#include "actors/transporter/regions/pools.h"

struct tr_slot tr_slot_of(const struct sl_item_slot *item);

/* Errors of all these functions: SL_ERR_NOT_FOUND (the engine is unknown, not registered yet, or
 * ends), SL_ERR_UNSUPPORTED (the setting is off, or the memory is not registered: plain, refused,
 * or of a device), SL_ERR_INVALID (no such part, block or range). */

struct tr_slot_shape {
    uint64_t length_bytes; /* of the part */
    uint64_t places_max;   /* upper bound over all blocks */
    uint64_t block_count;  /* of the pool */
    /* Part of it is device memory. Such a slot is refused (SL_ERR_UNSUPPORTED) unless it has
     * `unseen`; walks and copies always refuse it. */
    bool device;
};
sl_err tr_slot_shape(struct transporter *self, const struct tr_slot *slot,
                     struct tr_slot_shape *out, struct sl_error *why);
/* Gives the places of the range in the order of the part, with adjacent ones merged.
 * place_max: 1..SL_FABRIC_PLACES_MAX. Also SL_ERR_LIMIT (too many places). */
sl_err tr_slot_places(struct transporter *self, const struct tr_slot *slot, struct tr_range range,
                      struct sl_fabric_place *places, uint32_t place_max, uint32_t *place_count,
                      struct sl_error *why);
/* Fills the destination of a transfer's piece, after the *used entries of `places`: places, rail,
 * and no digest for device memory, which only its swapper can read. */
sl_err tr_slot_piece(struct transporter *self, const struct tr_slot *slot, struct tr_range range,
                     struct sl_fabric_place *places, uint32_t place_max, uint32_t *used,
                     struct sl_fabric_piece *piece, struct sl_error *why);
/* Gives the layers [*first, *end) of the range, or 0, 0 for all layers, as in messages. Also
 * SL_ERR_INVALID (not whole layers). */
sl_err tr_slot_layers(struct transporter *self, const struct tr_slot *slot, struct tr_range range,
                      uint32_t *first, uint32_t *end, struct sl_error *why);

/* The parts that a BRING names, each with the slots that receive it. */
struct tr_item {
    uint32_t first, count; /* of its slots */
    uint32_t read_count;   /* 1: copied on from the first slot; all if a slot is device memory */
    bool device;           /* one of its slots is device memory */
    uint64_t length_bytes, places_max; /* places_max: of all its reads */
};
struct tr_items {
    struct tr_item *at;
    struct tr_slot *slots;
    uint32_t count, slot_count;
};
/* Reads the slots of items [0, count) from the message, in the order of the items, one or more
 * each. Gives *out, also on errors: tr_items_free. Errors: SL_ERR_NO_MEMORY, SL_ERR_INVALID (wrong
 * order, slots of different lengths), SL_ERR_LIMIT (a read has more than SL_FABRIC_PLACES_MAX
 * places). */
sl_err tr_items_take(struct transporter *self, const struct sl_body_bring *body, uint32_t count,
                     struct tr_items *out, struct sl_error *why);
void tr_items_free(struct tr_items *items);

struct tr_slot_walk {
    struct tr_pool_view view;
    struct tr_runs runs;
};
/* Begins a walk of the CPU over the range, in the order of the part. */
sl_err tr_slot_walk_begin(struct transporter *self, const struct tr_slot *slot,
                          struct tr_range range, struct tr_slot_walk *out, struct sl_error *why);
/* Gives the next piece of memory; false: the range is over. */
bool tr_slot_walk_next(struct tr_slot_walk *walk, unsigned char **at, uint64_t *length_bytes);
/* Feeds the range to the digest. */
sl_err tr_slot_digest(struct transporter *self, const struct tr_slot *slot, struct tr_range range,
                      struct sl_digest_stream *stream, struct sl_error *why);
/* Copies the range of one part to that of another of the same length. */
sl_err tr_slot_copy(struct transporter *self, const struct tr_slot *from, const struct tr_slot *to,
                    struct tr_range range, struct sl_error *why);

#endif
