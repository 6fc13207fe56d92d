/* actors/swapper/memory.h - the device, and the arena mapped for it. */
#ifndef SL_SWAPPER_MEMORY_H
#define SL_SWAPPER_MEMORY_H

#include "cuda/sl_device.h"
#include "ipc/shm/sl_arena.h"
#include "runtime/base/sl_env.h"

#define SW_FORMER_ARENAS_MAX 64u

struct sw_memory {
    struct sl_env *env; /* borrowed */
    struct sl_device *device;
    struct sl_arena *arena;                               /* NULL until first needed */
    struct sl_arena *former_arenas[SW_FORMER_ARENAS_MAX]; /* of the node: unpinned in steps */
    uint64_t look_ns;                                     /* next check of the arena */
    bool slices_use_arena; /* slices in flight use the arena: it must not be unmapped */
    bool announced;        /* the health text names the device */
    sl_metric pinned, bounced, copies, batches, kernels, drains, computes, threads;
};

/* Opens the device of the settings and logs which it is. Errors: those of the device. */
sl_err sw_memory_open(struct sw_memory *memory, struct sl_env *env, uint64_t rank,
                      struct sl_error *why);
/* Unpins everything first, with a heartbeat after each step. Accepts a half-open one. */
void sw_memory_close(struct sw_memory *memory);

/* Maps the node's present arena. Errors: SL_ERR_UNREACHABLE (there is none), SL_ERR_LIMIT (former
 * ones are still pinned), those of shm files and of the device. */
sl_err sw_arena(struct sw_memory *memory, struct sl_error *why);

/* For idle moments: one step of pinning or measuring, which make copies fast; schedules the next. A
 * result other than SL_OK ends the actor. */
sl_err sw_memory_idle(struct sw_memory *memory);
/* Whether a former arena is to be unpinned, when no slice is in flight. */
bool sw_memory_unpin_due(struct sw_memory *memory);
/* Publishes the device's counters. */
void sw_memory_publish(struct sw_memory *memory);

#endif
