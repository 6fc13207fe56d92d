/* actors/swapper/internal.h - state of the swapper, and what its files ask of each other. */
#ifndef SL_SWAPPER_INTERNAL_H
#define SL_SWAPPER_INTERNAL_H

#include "actors/swapper/engines.h"
#include "actors/swapper/jobs.h"
#include "actors/swapper/memory.h"
#include "actors/swapper/pools.h"

struct swapper {
    struct sl_env *env; /* borrowed */
    uint64_t rank;
    struct sw_memory memory;
    struct sl_index_view *view; /* NULL until first needed: the registrar makes it */
    uint64_t paced_ns;          /* no slice before: swap_rate */
    uint64_t turns;             /* slices so far */
    struct sl_calls *calls;     /* ENGINE_GET, cookie = engine id */
    struct sw_engine *engines;  /* owned */
    uint32_t engine_count;
    struct sw_jobs *jobs;
    struct sw_pools pools;
    bool draining;
    /* Of the slice in progress. */
    struct sl_move moves[SL_DEVICE_SLICE_MOVES_MAX];
    uint32_t move_items[SL_DEVICE_SLICE_MOVES_MAX];
    uint64_t move_chunks[SL_DEVICE_SLICE_MOVES_MAX]; /* where their hashes go */
    struct {
        sl_metric copies, refused, repeated, parts_out, parts_in, bytes_out, bytes_in, claims_gone,
            fences, queued, engines_mapped, pools_made, pool_bytes;
    } metrics;
};

/* ---- registrations.c: engines that are known here ---- */
struct sw_engine *sw_engine_find(struct swapper *self, uint64_t engine_id);
/* Gives a job its engine, or asks for it. The job may end. */
void sw_engine_want(struct swapper *self, struct sw_job *job);
/* An ENGINE_GET_REPLY. A result other than SL_OK ends the actor: the device is lost. */
sl_err sw_engine_answered(struct swapper *self, const struct sl_msg *msg);
void sw_engine_died(struct swapper *self, const struct sl_body_local_died *died);
/* The memory of this epoch was revoked: engines in it end. */
void sw_engines_revoke(struct swapper *self, uint64_t epoch);
/* Questions about engines that nobody answered: asked again while jobs wait, else forgotten. */
void sw_engines_unanswered(struct swapper *self, uint64_t now_ns);
/* Registrations may end while their process lives on: idle engines are asked about now and then. */
void sw_engines_check(struct swapper *self, uint64_t now_ns);
void sw_engines_fini(struct swapper *self);

/* ---- copy.c: COPYs, slice by slice, and their FENCE ---- */
sl_err sw_copy(struct swapper *self, const struct sl_msg *msg);
sl_err sw_fence(struct swapper *self, const struct sl_msg *msg);
/* Ends the job, with the reason if there is one, and answers. */
void sw_job_answer(struct swapper *self, struct sw_job *job, sl_err code,
                   const struct sl_error *why);
/* One slice of one job. A result other than SL_OK ends the actor. */
sl_err sw_step(struct swapper *self);
/* Ends jobs whose deadline has passed; asks to be woken for the next one. */
void sw_copies_tick(struct swapper *self, uint64_t now_ns);

#endif
