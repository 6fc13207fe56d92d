/* actors/swapper/memory.h - the device, and the arena as it is mapped here and known to it. */
#ifndef SL_SWAPPER_MEMORY_H
#define SL_SWAPPER_MEMORY_H

#include "cuda/sl_device.h"
#include "ipc/shm/sl_arena.h"
#include "runtime/base/sl_env.h"

#define SW_LEAVING_MAX 64u

struct sw_memory {
    struct sl_env *env; /* borrowed */
    struct sl_device *device;
    struct sl_arena *arena;                   /* NULL until first needed */
    struct sl_arena *leaving[SW_LEAVING_MAX]; /* the node has them no more: unpinned in steps */
    uint64_t look_ns;                         /* when the arena is looked at again */
    bool lent; /* slices on their way name the arena: none is unmapped */
    bool told; /* status shows which device it is */
    sl_metric pinned, bounced, copies, batches, kernels, drains, computes, threads;
};

/* Opens the device that the settings name, and says which it is. Errors: those of the device. */
sl_err sw_memory_open(struct sw_memory *memory, struct sl_env *env, uint64_t rank,
                      struct sl_error *why);
/* Unpins all first, with a sign of life after each step. Also one that is half open. */
void sw_memory_close(struct sw_memory *memory);

/* Maps the arena that the node has now. Errors: SL_ERR_UNREACHABLE (none is there), SL_ERR_LIMIT
 * (former ones are still pinned), those of segments and of the device. */
sl_err sw_arena(struct sw_memory *memory, struct sl_error *why);

/* When nothing is to be copied: a step of what makes copies fast (pinning, measuring), and asks to
 * be woken for the next. A result other than SL_OK ends the actor. */
sl_err sw_memory_idle(struct sw_memory *memory);
/* Whether an arena is to be let go: its step comes when no slice is on its way. */
bool sw_memory_leaves(struct sw_memory *memory);
/* Counters of the device. */
void sw_memory_publish(struct sw_memory *memory);

#endif
