/* actors/swapper/internal.h - state of the swapper, and functions that its files share. */
#ifndef SL_SWAPPER_INTERNAL_H
#define SL_SWAPPER_INTERNAL_H

#include "actors/swapper/engines.h"
#include "actors/swapper/exports.h"
#include "actors/swapper/jobs.h"
#include "actors/swapper/memory.h"
#include "actors/swapper/pools.h"

/* A part in a slice. */
struct sw_slice_part {
    uint32_t item; /* of the job */
    uint64_t bytes;
    struct sl_digest_span span; /* the requested hashes */
    uint64_t chunk_at;          /* where they are written */
};

/* Parts of one COPY that the device moves together. */
struct sw_slice {
    struct sw_job *job;
    bool check;      /* digests the device blocks instead: verify.c */
    uint64_t number; /* the device's number of it */
    uint32_t count;
    struct sl_move moves[SL_DEVICE_SLICE_MOVES_MAX]; /* the device uses them until it is done */
    struct sw_slice_part parts[SL_DEVICE_SLICE_MOVES_MAX];
};

struct swapper {
    struct sl_env *env; /* borrowed */
    uint64_t rank;
    struct sw_memory memory;
    struct sl_index_view *view; /* NULL until first needed: the registrar creates it */
    uint64_t paced_ns;          /* no slice earlier: swap_rate */
    uint64_t turns;             /* slices so far */
    struct sl_calls *calls;     /* ENGINE_GET, cookie = engine id; DAMAGED, cookie 0 */
    struct sw_engine *engines;  /* owned */
    uint32_t engine_count;
    struct sw_jobs *jobs;
    struct sw_pools pools;
    struct sw_exports *exports; /* owned; NULL: nothing was exported yet */
    bool draining;
    sl_err fatal; /* the device is lost: ends the actor */
    /* Slices in flight, a ring with the oldest at first_slice, and one that is being filled. */
    struct sw_slice slices[SL_DEVICE_SLICES_MAX + 1];
    uint32_t first_slice, slice_count;
    struct {
        bool automatic;     /* verifies all of a COPY if that is cheap, otherwise the share */
        uint32_t share;     /* verifies one of this many bytes; 0: none */
        uint64_t due_bytes; /* loaded since the last check */
    } verify;
    struct {
        sl_metric verified, verified_bytes, corrupt, damaged, looked, looked_bytes;
        sl_metric copies, refused, repeated, parts_out, parts_in, bytes_out, bytes_in, claims_gone,
            fences, queued, engines_mapped, pools_made, pool_bytes, exports;
    } metrics;
};

/* ---- registrations.c: the engines known here ---- */
struct sw_engine *sw_engine_find(struct swapper *self, uint64_t engine_id);
/* Gives a job its engine, or requests the engine. The job may end. */
void sw_engine_want(struct swapper *self, struct sw_job *job);
/* Gives the engine if it is mapped. Errors: SL_ERR_BUSY (it was requested: call again),
 * SL_ERR_LIMIT; those of sending. */
sl_err sw_engine_ready(struct swapper *self, uint64_t engine_id, uint64_t trace_id,
                       struct sw_engine **out, struct sl_error *why);
/* An ENGINE_GET_REPLY. A result other than SL_OK ends the actor: the device is lost. */
sl_err sw_engine_answered(struct swapper *self, const struct sl_msg *msg);
void sw_engine_died(struct swapper *self, const struct sl_body_local_died *died);
/* Its registration ended: ends its COPYs and unmaps its memory. */
void sw_engine_over(struct swapper *self, uint64_t engine_id);
/* The memory of this epoch was revoked: ends engines in it. */
void sw_engines_revoke(struct swapper *self, uint64_t epoch);
void sw_engines_gauge(struct swapper *self); /* publishes how many are mapped */
/* ENGINE_GETs without an answer: sent again while jobs wait, otherwise the engine is dropped. */
void sw_engines_unanswered(struct swapper *self, uint64_t now_ns);
/* A registration may end while its process lives: asks the registrar now and then about idle
 * engines, and about ranks of teams even if they are busy. */
void sw_engines_check(struct swapper *self, uint64_t now_ns);
void sw_engines_fini(struct swapper *self);

/* ---- copy.c: COPYs, slice by slice, and their FENCE ---- */
sl_err sw_copy(struct swapper *self, const struct sl_msg *msg);
sl_err sw_fence(struct swapper *self, const struct sl_msg *msg);
/* Ends the job, with the reason if there is one, and answers. */
void sw_job_answer(struct swapper *self, struct sw_job *job, sl_err code,
                   const struct sl_error *why);
/* Starts a slice of a job, and answers jobs that are done. A result but SL_OK ends the actor. */
sl_err sw_step(struct swapper *self);
/* Ends jobs whose deadline has passed; schedules the next. */
void sw_copies_tick(struct swapper *self, uint64_t now_ns);

/* ---- export.c: device memory for NICs ---- */
/* A result other than SL_OK ends the actor: the device is lost. */
sl_err sw_pool_export(struct swapper *self, const struct sl_msg *msg);
/* Closes exports that were not fetched in time; schedules the next. */
void sw_exports_tick(struct swapper *self);

/* ---- slices.c: slices in flight ---- */
/* NULL: the rank does not have it. Pools without part_count ignore the item's part. */
const struct sw_part *sw_item_part(const struct sw_engine *engine,
                                   const struct sl_item_piece *item);
/* The chunks that the item's range completes. */
struct sl_digest_span sw_item_span(const struct sw_engine *engine,
                                   const struct sl_item_piece *item);
/* A free slice, to be filled and sent. */
struct sw_slice *sw_slice_next(struct swapper *self);
/* Starts a filled slice of the job; nothing if it is empty. */
void sw_slice_send(struct swapper *self, struct sw_slice *slice, struct sw_job *job,
                   struct sl_error *why);
/* Starts the next slice of a checked job; gives its bytes. A device error is noted in each job that
 * lost parts by it, and in `fatal`. */
sl_err sw_slice_begin(struct swapper *self, struct sw_job *job, const struct sw_engine *engine,
                      uint64_t *bytes, struct sl_error *why);
/* Gives jobs the results of finished slices; err: of incomplete ones. Sends no answer. */
void sw_slices_over(struct swapper *self, sl_err err, const struct sl_error *why);
/* The same, after asking the device; wait: until no slice is in flight. */
void sw_slices_end(struct swapper *self, bool wait);

/* ---- verify.c: compares what arrived on the device with what was stored ---- */
void sw_verify_init(struct swapper *self);
/* Whether parts of a load are still to be verified before its answer. All parts have arrived, and
 * no slice that moves is in flight. */
bool sw_verify_left(struct swapper *self, struct sw_job *job);
/* Starts the next slice of these; gives the bytes that cross the bus for it. */
uint64_t sw_verify_begin(struct swapper *self, struct sw_job *job, const struct sw_engine *engine,
                         struct sl_error *why);
/* Such a slice is done. A wrong part is not done, and fails the job (SL_ERR_CORRUPT). */
void sw_verify_over(struct swapper *self, struct sw_slice *slice, sl_err err,
                    const struct sl_error *why);

/* ---- events.c: events of engines that COPYs wait for ---- */
/* Polls the events of waiting jobs; some may end. Gives when to poll again, or SL_NEVER_NS. A
 * result other than SL_OK ends the actor. */
sl_err sw_events_ask(struct swapper *self, uint64_t *again_ns);
/* The job waits for its event no longer. */
void sw_event_close(struct swapper *self, struct sw_job *job);
void sw_events_fini(struct swapper *self);

#endif
