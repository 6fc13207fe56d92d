/* client/lib/gpu.h - device memory of this process: telling it from host memory, and copies
 * between it and arenas. The driver is used only when this process has it loaded. */
#ifndef SL_CLIENT_LIB_GPU_H
#define SL_CLIENT_LIB_GPU_H

#include "client/lib/internal.h"

struct sl_driver;

/* Whether this process may have device memory at all. Some 50 ns, and it waits for the stores
 * before it: asked once a call, before anything is copied. Any thread. */
bool sl_gpu_present(void);
/* The driver that the process uses, to the end of the process; NULL: none. Any thread; who calls it
 * stands in relaxed mode (cuda/cuda_relaxed.h). */
struct sl_driver *sl_gpu_joined(void);
/* Where `at` lies, as the driver knows it: plain, pinned or device memory (*gpu: which one). */
enum sl_place sl_gpu_place(const void *at, int *gpu);

struct sl_gpu_copy {
    unsigned char *host; /* in the arena */
    uint64_t device;
    uint64_t length_bytes;
    const struct sl_arena *arena;
    int gpu;
};
/* Copies of one direction that are carried out together. One owner; starts zeroed. */
struct sl_gpu_copies {
    struct sl_gpu_copy *at;
    uint32_t count, room;
};
/* Errors: SL_ERR_NO_MEMORY. */
sl_err sl_gpu_copies_add(struct sl_gpu_copies *copies, const struct sl_gpu_copy *copy);
/* Carries all of them out, waits for them and empties the list. Errors: SL_ERR_DEVICE, with the
 * driver's code; what was copied by then nobody knows. Any thread; the caller's current context is
 * the same afterwards. */
sl_err sl_gpu_copies_run(struct sl_gpu_copies *copies, bool to_host, struct sl_error *why);
void sl_gpu_copies_free(struct sl_gpu_copies *copies);
/* The arena is about to be unmapped: what was pinned of it is let go. */
void sl_gpu_forget(const struct sl_arena *arena);
/* Gives everything back to the driver, for tests that count. Nobody copies meanwhile. */
void sl_gpu_end(void);

#endif
