/* actors/transporter/pull/pull.h - what is brought in from other nodes, and what they may read of
 * ours. */
#ifndef SL_TRANSPORTER_PULL_PULL_H
#define SL_TRANSPORTER_PULL_PULL_H

#include "actors/transporter/peers/peers.h"
#include "actors/transporter/regions/places.h"
#include "actors/transporter/regions/regions.h"

/* ---- fetch.c ---- */
sl_err tr_fetch_init(struct transporter *self, struct sl_error *why);
void tr_fetch_fini(struct transporter *self);
void tr_bring(struct transporter *self, const struct sl_msg *msg);
/* Answered later. items: where its keys go; NULL: into the arena. Errors, with
 * nothing begun: SL_ERR_INVALID, SL_ERR_LIMIT, SL_ERR_NO_MEMORY. */
sl_err tr_fetch_begin(struct transporter *self, const struct sl_msg *msg,
                      const struct tr_items *items, struct sl_error *why);
/* Units that nobody waits for any more leave the line. */
void tr_queue_expire(struct transporter *self);
/* The unit's fate is known: tells who waits, and frees it. It is in no trip. */
void tr_unit_end(struct transporter *self, struct tr_unit *unit, sl_err code);
static inline bool tr_unit_lives(const struct transporter *self, const struct tr_unit *unit)
{
    return unit->cancelled == SL_OK && unit->deadline_ns > self->env->now_ns;
}
/* It waits for a trip, at the end of the line. False: its time is over, and it has ended. */
bool tr_unit_queue(struct transporter *self, struct tr_unit *unit);
/* Starts trips, ends what is too late; gives when it wants to run again. */
uint64_t tr_fetch_step(struct transporter *self, uint64_t now_ns);
/* Those that are left for this unit. */
static inline uint64_t tr_unit_peers(struct transporter *self, const struct tr_unit *unit)
{
    uint64_t peers = tr_peers_with(self, unit->hash) & ~unit->asked;
    return unit->sure && (peers & unit->may) == 0 ? peers : peers & unit->may;
}

/* ---- finder.c ---- */
sl_err tr_finder_init(struct transporter *self, struct sl_error *why);
void tr_finder_fini(struct transporter *self);
/* The unit goes into the line as soon as it is known whom to ask, or ends when there is nobody: at
 * the latest after a share of its time. */
void tr_find(struct transporter *self, struct tr_unit *unit);
/* All units of a BRING were given to tr_find. */
void tr_find_flush(struct transporter *self);
/* The end of a look-up (directory.h). */
void tr_found(void *context, uint64_t cookie, sl_err code, const struct sl_directory_found *found,
              uint32_t count);

/* ---- trips.c ---- */
/* Takes units off the queue, the first one and those of the same BRING that the same peer may have.
 */
void tr_trip_start(struct transporter *self);
/* A PEER_PIN_REPLY that no trip waits for any more. */
void tr_trip_pinned_late(struct transporter *self, const struct tr_peer *peer,
                         const struct sl_msg *reply);
/* reply NULL: the registrar did not answer in time. */
void tr_trip_answered(struct transporter *self, uint32_t index, const struct sl_msg *reply);
void tr_trip_read(void *context, const struct sl_fabric_done *done);
/* The unit could not be had by this trip, which it has left: the next peer, if there is one and
 * time. It may be the same where the trip's time is over: that was what the first askers had, and
 * who joined them later may have more. False: it has ended. */
bool tr_unit_back(struct transporter *self, struct tr_unit *unit, const struct tr_trip *trip,
                  sl_err code);
/* Its bytes are there, and what lies in device memory was checked, or is now. */
void tr_trip_landed(struct transporter *self, struct tr_trip *trip);
/* Its units have gone elsewhere. */
void tr_trip_end(struct transporter *self, struct tr_trip *trip);
/* Closes the gaps of units that left. */
void tr_trip_close_up(struct tr_trip *trip);
/* Gives up reads into the claims that the FENCE names. Gives how many trips still read into them;
 * bit: of the fence, as of tr_handover_fence. */
uint32_t tr_trips_fence(struct transporter *self, const struct sl_msg *msg, uint64_t bit);

/* ---- straight.c: BRING straight into engines' pools ---- */
#define TR_TRIP_PLACES_MAX 16384u /* of the fabric, of one trip */
/* self->pools is made. Errors: SL_ERR_NO_MEMORY. */
sl_err tr_straight_init(struct transporter *self, struct sl_error *why);
void tr_straight_fini(struct transporter *self);
void tr_pull(struct transporter *self, const struct sl_msg *msg);
/* Where the piece goes, behind the *used places that others of the trip have. Errors: those of
 * tr_spot_places. */
sl_err tr_straight_piece(struct transporter *self, struct tr_target *target, uint32_t *used,
                         struct sl_fabric_piece *piece);
/* Copies parts that have come to the other ranks that have them, a bounded share; gives when it
 * wants to run again. */
uint64_t tr_straight_step(struct transporter *self);
/* Ends a BRING with this code, as soon as nothing is written for it any more. Gives the trips for
 * which something still may be, as tr_trips_fence. */
uint32_t tr_pull_cancel(struct transporter *self, struct tr_fetch *fetch, sl_err code,
                        uint64_t bit);
/* A FENCE without claims: ends such BRINGs of its op, or of its sender. Gives trips, likewise. */
uint32_t tr_pulls_fence(struct transporter *self, const struct sl_msg *msg, uint64_t bit);
void tr_pulls_engine_ends(struct transporter *self, uint64_t engine_id);

/* ---- check.c: what landed in device memory, before it counts ---- */
/* Asks the swapper of the next rank of the trip that has parts to be checked; false: none has. The
 * trip is in TR_CHECK then, or, where nobody could be asked, its units have ended. */
bool tr_check_next(struct transporter *self, struct tr_trip *trip);
/* reply NULL: none in time. Units whose bytes are not what was stored go to the next peer, those
 * that could not be checked end. */
void tr_check_answered(struct transporter *self, struct tr_trip *trip, const struct sl_msg *reply);

/* ---- holder.c ---- */
sl_err tr_holder_init(struct transporter *self, struct sl_error *why);
void tr_holder_fini(struct transporter *self);
/* Whether the peer of the cookie (tr_peer_cookie) has these bytes pinned now. */
bool tr_holder_may_read(void *context, uint64_t cookie, uint64_t offset_bytes,
                        uint64_t length_bytes);
void tr_holder_pin(struct transporter *self, struct tr_peer *peer, const struct sl_msg *msg);
void tr_holder_unpin(struct transporter *self, struct tr_peer *peer, const struct sl_msg *msg);
void tr_holder_promoted(struct transporter *self, uint32_t index, const struct sl_msg *reply);
/* Everything of the peer's earlier lives. */
void tr_holder_renewed(struct transporter *self, const struct tr_peer *peer);
/* Ends what has expired; gives when the next one does. */
uint64_t tr_holder_step(struct transporter *self, uint64_t now_ns);

/* ---- seek.c: what other nodes have, and its removal there ---- */
sl_err tr_seek_init(struct transporter *self, struct sl_error *why);
void tr_seek_fini(struct transporter *self);
void tr_seek(struct transporter *self, const struct sl_msg *msg);
/* A peer asks us. */
void tr_seek_asked(struct transporter *self, struct tr_peer *peer, const struct sl_msg *msg);
void tr_seek_removed(struct transporter *self, uint32_t index, const struct sl_msg *reply);

#endif
