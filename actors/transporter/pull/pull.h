/* actors/transporter/pull/pull.h - reads from other nodes, and their reads from this node. */
#ifndef SL_TRANSPORTER_PULL_PULL_H
#define SL_TRANSPORTER_PULL_PULL_H

#include "actors/transporter/peers/peers.h"
#include "actors/transporter/regions/places.h"
#include "actors/transporter/regions/regions.h"

/* ---- fetch.c ---- */
sl_err tr_fetch_init(struct transporter *self, struct sl_error *why);
void tr_fetch_fini(struct transporter *self);
void tr_bring(struct transporter *self, const struct sl_msg *msg);
/* Starts a fetch, which is answered later. items: destinations in pools; NULL: the arena. Errors,
 * with nothing started: SL_ERR_INVALID, SL_ERR_LIMIT, SL_ERR_NO_MEMORY. */
sl_err tr_fetch_begin(struct transporter *self, const struct sl_msg *msg,
                      const struct tr_items *items, struct sl_error *why);
/* Ends queued units that were cancelled or whose time is over. */
void tr_queue_expire(struct transporter *self);
/* Ends a unit with this result: reports to all waiting requests and frees it. The unit must be in
 * no fetch batch. */
void tr_unit_end(struct transporter *self, struct tr_unit *unit, sl_err code);
static inline bool tr_unit_alive(const struct transporter *self, const struct tr_unit *unit)
{
    return unit->cancelled == SL_OK && unit->deadline_ns > self->env->now_ns;
}
/* Appends the unit to the queue for fetch batches. False: it was cancelled or too late, and has
 * ended. */
bool tr_unit_queue(struct transporter *self, struct tr_unit *unit);
/* Starts fetch batches and ends overdue requests. Gives when to call again. */
uint64_t tr_fetch_step(struct transporter *self, uint64_t now_ns);
/* Bit mask of the peers that can still be asked for this unit. */
static inline uint64_t tr_unit_peers(struct transporter *self, const struct tr_unit *unit)
{
    uint64_t peers = tr_peers_with(self, unit->hash) & ~unit->asked;
    return unit->sure && (peers & unit->may) == 0 ? peers : peers & unit->may;
}

/* ---- finder.c ---- */
sl_err tr_finder_init(struct transporter *self, struct sl_error *why);
void tr_finder_fini(struct transporter *self);
/* Looks up which peers to ask, then queues the unit, or ends it if there is none. The lookup takes
 * at most a share of the unit's time. */
void tr_holders_find(struct transporter *self, struct tr_unit *unit);
/* Call after all units of a BRING were passed to tr_holders_find. */
void tr_holders_flush(struct transporter *self);
/* Callback for a completed lookup (directory.h). */
void tr_holders_found(void *context, uint64_t cookie, sl_err code,
                      const struct sl_directory_found *found, uint32_t count);

/* ---- batches.c ---- */
/* Starts a batch: the first unit of the queue, and units of the same BRING that the same peer may
 * have. */
void tr_fetch_batch_start(struct transporter *self);
/* Handles a PEER_PIN_REPLY that arrived after its fetch batch ended: unpins. */
void tr_fetch_batch_pinned_late(struct transporter *self, const struct tr_peer *peer,
                                const struct sl_msg *reply);
/* reply NULL: the registrar did not answer in time. */
void tr_fetch_batch_answered(struct transporter *self, uint32_t index, const struct sl_msg *reply);
void tr_fetch_batch_read(void *context, const struct sl_fabric_done *done);
/* Retries a unit that this batch could not deliver and that has left it: the next peer is asked, if
 * there is one and time is left. After a timeout of the batch the same peer may be asked again: a
 * request that joined the unit later may have more time. False: the unit has ended. */
bool tr_unit_retry(struct transporter *self, struct tr_unit *unit,
                   const struct tr_fetch_batch *fetch_batch, sl_err code);
/* Continues a pull after its read: checks device memory, then copies to other ranks. */
void tr_fetch_batch_landed(struct transporter *self, struct tr_fetch_batch *fetch_batch);
/* Frees the batch, which must have no units left. */
void tr_fetch_batch_end(struct transporter *self, struct tr_fetch_batch *fetch_batch);
/* Removes empty entries from the batch's units. */
void tr_fetch_batch_compact(struct tr_fetch_batch *fetch_batch);
/* Cancels reads into the claims that the FENCE names. Gives the number of batches that still read;
 * bit: of the fence, as in tr_handover_fence. */
uint32_t tr_fetch_batches_fence(struct transporter *self, const struct sl_msg *msg, uint64_t bit);

/* ---- straight.c: pulls, that is BRING straight into engines' pools ---- */
#define TR_BATCH_PLACES_MAX 16384u /* memory ranges of one fetch batch */
/* Call after self->pools exists. Errors: SL_ERR_NO_MEMORY. */
sl_err tr_pulls_init(struct transporter *self, struct sl_error *why);
void tr_pulls_fini(struct transporter *self);
void tr_pull(struct transporter *self, const struct sl_msg *msg);
/* Fills the destination of a piece, after the *used places that the batch already has. Errors:
 * those of tr_slot_places. */
sl_err tr_pull_piece(struct transporter *self, struct tr_target *target, uint32_t *used,
                     struct sl_fabric_piece *piece);
/* Copies a bounded number of bytes to other ranks that have the part. Gives when to call again. */
uint64_t tr_pulls_step(struct transporter *self);
/* Ends a pull with this code once nothing is written for it any more. Gives the number of batches
 * that still write, as tr_fetch_batches_fence. */
uint32_t tr_pull_cancel(struct transporter *self, struct tr_fetch *fetch, sl_err code,
                        uint64_t bit);
/* Handles a FENCE without claims: cancels the pulls of its op or of its sender. Gives batches,
 * likewise. */
uint32_t tr_pulls_fence(struct transporter *self, const struct sl_msg *msg, uint64_t bit);
void tr_pulls_engine_ends(struct transporter *self, uint64_t engine_id);

/* ---- check.c: verifies what was read into device memory ---- */
/* Asks the swapper of the next rank that has unverified parts; false: there is none. If true, the
 * batch is in TR_CHECK, or its units have ended because the swapper could not be asked. */
bool tr_check_next(struct transporter *self, struct tr_fetch_batch *fetch_batch);
/* reply NULL: no answer in time. Units with a wrong digest are requested from the next peer, units
 * that could not be checked end. */
void tr_check_answered(struct transporter *self, struct tr_fetch_batch *fetch_batch,
                       const struct sl_msg *reply);

/* ---- holder.c ---- */
sl_err tr_holder_init(struct transporter *self, struct sl_error *why);
void tr_holder_fini(struct transporter *self);
/* Whether the peer of the cookie (tr_peer_cookie) has these bytes pinned now. */
bool tr_holder_may_read(void *context, uint64_t cookie, uint64_t offset_bytes,
                        uint64_t length_bytes);
void tr_holder_pin(struct transporter *self, struct tr_peer *peer, const struct sl_msg *msg);
void tr_holder_unpin(struct transporter *self, struct tr_peer *peer, const struct sl_msg *msg);
void tr_holder_promoted(struct transporter *self, uint32_t index, const struct sl_msg *reply);
/* Releases everything of the peer's earlier incarnations. */
void tr_holder_renewed(struct transporter *self, const struct tr_peer *peer);
/* Releases expired pins. Gives the next expiry. */
uint64_t tr_holder_step(struct transporter *self, uint64_t now_ns);

/* ---- seek.c: lookups and removals on other nodes ---- */
sl_err tr_seek_init(struct transporter *self, struct sl_error *why);
void tr_seek_fini(struct transporter *self);
void tr_seek(struct transporter *self, const struct sl_msg *msg);
/* Handles SEEK of a peer. */
void tr_seek_asked(struct transporter *self, struct tr_peer *peer, const struct sl_msg *msg);
void tr_seek_removed(struct transporter *self, uint32_t index, const struct sl_msg *reply);

#endif
