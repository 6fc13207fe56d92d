/* actors/transporter/regions/places.h - spots: where a part of a block lies in an engine's pool,
 * for the fabric and for the CPU. With the setting fabric_pools.
 *
 * The engine may end in any turn. A transfer or grant that was given places keeps their memory
 * registered and mapped until it ends; ENGINE_OVER waits for that. A walk of the CPU keeps nothing:
 * it must end in the turn in which it began, and what takes longer begins a walk of the rest in
 * each turn. */
#ifndef SL_TRANSPORTER_REGIONS_PLACES_H
#define SL_TRANSPORTER_REGIONS_PLACES_H

#include "actors/transporter/regions/layout.h"
#include "actors/transporter/regions/pools.h"

struct tr_spot tr_spot_of(const struct sl_item_spot *item);

/* Errors of all of them: SL_ERR_NOT_FOUND (the engine is not known, or not registered yet, or
 * ends), SL_ERR_UNSUPPORTED (without the setting; its memory is none of the fabric's: of a device,
 * plain, refused), SL_ERR_INVALID (it has no such part, block or range). */

struct tr_spot_shape {
    uint64_t length_bytes; /* of the part */
    uint64_t places_max;   /* that it lies at, in any block */
    uint64_t block_count;  /* of the pool */
    /* Some of it lies in device memory. Such a spot is refused (SL_ERR_UNSUPPORTED) unless it says
     * `unseen`, and by walks and copies always. */
    bool device;
};
sl_err tr_spot_shape(struct transporter *self, const struct tr_spot *spot,
                     struct tr_spot_shape *out, struct sl_error *why);
/* Gives the places of the range in the order of the part; adjacent ones are one. place_max:
 * 1..SL_FABRIC_PLACES_MAX. Also SL_ERR_LIMIT (it would be more). */
sl_err tr_spot_places(struct transporter *self, const struct tr_spot *spot, struct tr_range range,
                      struct sl_fabric_place *places, uint32_t place_max, uint32_t *place_count,
                      struct sl_error *why);
/* The same for a piece of a transfer that is read there, behind the *used places of `places`: its
 * places, its rail, and no digest where it is device memory, which nobody but its swapper can read.
 */
sl_err tr_spot_piece(struct transporter *self, const struct tr_spot *spot, struct tr_range range,
                     struct sl_fabric_place *places, uint32_t place_max, uint32_t *used,
                     struct sl_fabric_piece *piece, struct sl_error *why);
/* The layers [*first, *end) that the range is; all of them: 0, 0, as messages say it. Also
 * SL_ERR_INVALID (it begins or ends within a layer). */
sl_err tr_spot_layers(struct transporter *self, const struct tr_spot *spot, struct tr_range range,
                      uint32_t *first, uint32_t *end, struct sl_error *why);

/* What a BRING names: parts, each with the spots that all of it goes to. */
struct tr_item {
    uint32_t first, count;             /* spots */
    uint32_t read_count;               /* 1, it is copied on from the first; device memory: all */
    bool device;                       /* one of them is */
    uint64_t length_bytes, places_max; /* places_max: of all its reads */
};
struct tr_items {
    struct tr_item *at;
    struct tr_spot *spots;
    uint32_t count, spot_count;
};
/* Takes the spots of items [0, count), which come item by item, one or more each. Gives *out, also
 * on errors: tr_items_free. Errors: SL_ERR_NO_MEMORY, SL_ERR_INVALID (another order, spots of
 * different lengths), SL_ERR_LIMIT (a read goes to more than SL_FABRIC_PLACES_MAX places). */
sl_err tr_items_take(struct transporter *self, const struct sl_body_bring *body, uint32_t count,
                     struct tr_items *out, struct sl_error *why);
void tr_items_free(struct tr_items *items);

struct tr_spot_walk {
    struct tr_pool_view view;
    struct tr_runs runs;
};
/* For the CPU: begins a walk over the range, in the order of the part. */
sl_err tr_spot_walk_begin(struct transporter *self, const struct tr_spot *spot,
                          struct tr_range range, struct tr_spot_walk *out, struct sl_error *why);
/* False: the range is over. */
bool tr_spot_walk_next(struct tr_spot_walk *walk, unsigned char **at, uint64_t *length_bytes);
/* Feeds the range to the digest. */
sl_err tr_spot_digest(struct transporter *self, const struct tr_spot *spot, struct tr_range range,
                      struct sl_digest_stream *stream, struct sl_error *why);
/* Copies the range of one part to that of another of the same length. */
sl_err tr_spot_copy(struct transporter *self, const struct tr_spot *from, const struct tr_spot *to,
                    struct tr_range range, struct sl_error *why);

#endif
