/* actors/swapper/internal.h - state of the swapper, and what its files ask of each other. */
#ifndef SL_SWAPPER_INTERNAL_H
#define SL_SWAPPER_INTERNAL_H

#include "actors/swapper/engines.h"
#include "actors/swapper/exports.h"
#include "actors/swapper/jobs.h"
#include "actors/swapper/memory.h"
#include "actors/swapper/pools.h"

/* Of a part that is in a slice. */
struct sw_slice_part {
    uint32_t item; /* of the job */
    uint64_t bytes;
    struct sl_digest_span span; /* of the hashes that are asked for */
    uint64_t chunk_at;          /* where they go */
};

/* Parts of one COPY that are moved together. */
struct sw_slice {
    struct sw_job *job;
    bool check;      /* what lies in the blocks is digested: verify.c */
    uint64_t number; /* the device's */
    uint32_t count;
    struct sl_move moves[SL_DEVICE_SLICE_MOVES_MAX]; /* lent to the device until it is over */
    struct sw_slice_part parts[SL_DEVICE_SLICE_MOVES_MAX];
};

struct swapper {
    struct sl_env *env; /* borrowed */
    uint64_t rank;
    struct sw_memory memory;
    struct sl_index_view *view; /* NULL until first needed: the registrar makes it */
    uint64_t paced_ns;          /* no slice before: swap_rate */
    uint64_t turns;             /* slices so far */
    struct sl_calls *calls;     /* ENGINE_GET, cookie = engine id; DAMAGED, cookie 0 */
    struct sw_engine *engines;  /* owned */
    uint32_t engine_count;
    struct sw_jobs *jobs;
    struct sw_pools pools;
    struct sw_exports *exports; /* owned; NULL: nothing was handed out yet */
    bool draining;
    sl_err fatal; /* the device is lost: ends the actor */
    /* Slices on their way, a ring with the oldest at first_slice, and one that is being filled. */
    struct sw_slice slices[SL_DEVICE_SLICES_MAX + 1];
    uint32_t first_slice, slice_count;
    struct {
        bool automatic;     /* all of a COPY where that is cheap, else the share */
        uint32_t share;     /* one byte of so many is read again; 0: none */
        uint64_t due_bytes; /* loaded since */
    } verify;
    struct {
        sl_metric verified, verified_bytes, corrupt, damaged, looked, looked_bytes;
        sl_metric copies, refused, repeated, parts_out, parts_in, bytes_out, bytes_in, claims_gone,
            fences, queued, engines_mapped, pools_made, pool_bytes, exports;
    } metrics;
};

/* ---- registrations.c: engines that are known here ---- */
struct sw_engine *sw_engine_find(struct swapper *self, uint64_t engine_id);
/* Gives a job its engine, or asks for it. The job may end. */
void sw_engine_want(struct swapper *self, struct sw_job *job);
/* Gives the engine when it is mapped. Errors: SL_ERR_BUSY (it is asked for: come again),
 * SL_ERR_LIMIT; of the question. */
sl_err sw_engine_ready(struct swapper *self, uint64_t engine_id, uint64_t trace_id,
                       struct sw_engine **out, struct sl_error *why);
/* An ENGINE_GET_REPLY. A result other than SL_OK ends the actor: the device is lost. */
sl_err sw_engine_answered(struct swapper *self, const struct sl_msg *msg);
void sw_engine_died(struct swapper *self, const struct sl_body_local_died *died);
/* Its registration ended: its COPYs end, and its memory is unmapped. */
void sw_engine_over(struct swapper *self, uint64_t engine_id);
/* The memory of this epoch was revoked: engines in it end. */
void sw_engines_revoke(struct swapper *self, uint64_t epoch);
void sw_engines_gauge(struct swapper *self); /* how many are mapped, on the page */
/* Questions about engines that nobody answered: asked again while jobs wait, else forgotten. */
void sw_engines_unanswered(struct swapper *self, uint64_t now_ns);
/* Registrations may end while their process lives on: idle engines are asked about now and then,
 * ranks of teams always. */
void sw_engines_check(struct swapper *self, uint64_t now_ns);
void sw_engines_fini(struct swapper *self);

/* ---- copy.c: COPYs, slice by slice, and their FENCE ---- */
sl_err sw_copy(struct swapper *self, const struct sl_msg *msg);
sl_err sw_fence(struct swapper *self, const struct sl_msg *msg);
/* Ends the job, with the reason if there is one, and answers. */
void sw_job_answer(struct swapper *self, struct sw_job *job, sl_err code,
                   const struct sl_error *why);
/* One slice of one job, and the answers to what is over. A result other than SL_OK ends the actor.
 */
sl_err sw_step(struct swapper *self);
/* Ends jobs whose deadline has passed; asks to be woken for the next one. */
void sw_copies_tick(struct swapper *self, uint64_t now_ns);

/* ---- export.c: device memory for NICs ---- */
/* A result other than SL_OK ends the actor: the device is lost. */
sl_err sw_pool_export(struct swapper *self, const struct sl_msg *msg);
/* Closes what nobody fetched; asks to be woken for the next. */
void sw_exports_tick(struct swapper *self);

/* ---- slices.c: what is on its way ---- */
/* NULL: the rank does not have it. In pools without part_count the item's part says nothing. */
const struct sw_part *sw_item_part(const struct sw_engine *engine,
                                   const struct sl_item_piece *item);
/* The chunks that are whole with what the item is of. */
struct sl_digest_span sw_item_span(const struct sw_engine *engine,
                                   const struct sl_item_piece *item);
/* A free slice, to be picked into and sent. */
struct sw_slice *sw_slice_next(struct swapper *self);
/* Begins what was picked for the job; nothing when that is nothing. */
void sw_slice_send(struct swapper *self, struct sw_slice *slice, struct sw_job *job,
                   struct sl_error *why);
/* Begins the next slice of a job that was checked; its bytes. An error of the device is noted in
 * each job that lost something by it, and in `fatal`. */
sl_err sw_slice_begin(struct swapper *self, struct sw_job *job, const struct sw_engine *engine,
                      uint64_t *bytes, struct sl_error *why);
/* Gives jobs what slices have done that are over; err: of those that did not do all. Answers none.
 */
void sw_slices_over(struct swapper *self, sl_err err, const struct sl_error *why);
/* The same, and asks the device first; wait: until nothing is on its way. */
void sw_slices_end(struct swapper *self, bool wait);

/* ---- verify.c: what arrived on the device is what was stored ---- */
void sw_verify_init(struct swapper *self);
/* Whether parts of a load are to be read again before it is answered. All of them are there, and no
 * slice that moves is on its way. */
bool sw_verify_left(struct swapper *self, struct sw_job *job);
/* Begins the next slice of these; the bytes that come over the bus for it. */
uint64_t sw_verify_begin(struct swapper *self, struct sw_job *job, const struct sw_engine *engine,
                         struct sl_error *why);
/* Such a slice is over. A part that is wrong is not done, and fails the job (SL_ERR_CORRUPT). */
void sw_verify_over(struct swapper *self, struct sw_slice *slice, sl_err err,
                    const struct sl_error *why);

/* ---- events.c: events of engines that COPYs come after ---- */
/* Asks for those of waiting jobs; some may end. Gives when to ask again, or SL_NEVER_NS. A result
 * other than SL_OK ends the actor. */
sl_err sw_events_ask(struct swapper *self, uint64_t *again_ns);
/* The job does not wait for its event any more. */
void sw_event_close(struct swapper *self, struct sw_job *job);
void sw_events_fini(struct swapper *self);

#endif
