/* client/lib/gpu.h - device memory of this process: distinguishing it from host memory, and copies
 * between it and arenas. The driver is used only if the process has loaded it. */
#ifndef SL_CLIENT_LIB_GPU_H
#define SL_CLIENT_LIB_GPU_H

#include "client/lib/internal.h"

struct sl_driver;

/* Whether this process may have device memory. Takes about 50 ns and waits for earlier stores, so
 * it is called once per call, before anything is copied. Any thread. */
bool sl_gpu_present(void);
/* Returns the driver that the process uses until its end; NULL: none. Any thread; call it only in
 * relaxed mode (cuda/cuda_relaxed.h). */
struct sl_driver *sl_gpu_joined(void);
/* The kind of memory at `at`, as the driver knows it: plain, pinned or device memory (of *gpu). */
enum sl_place sl_gpu_place(const void *at, int *gpu);

#define SL_GPUS_MAX     16
#define SL_GPU_NO_VALUE UINT32_MAX
struct sl_gpu_copy {
    unsigned char *host; /* in the arena */
    uint64_t device;
    uint64_t length_bytes;
    const struct sl_arena *arena;
    int gpu;
    uint32_t value; /* set by sl_gpu_copies_add: the latest value, or SL_GPU_NO_VALUE */
};
/* Bytes in an arena whose digest is computed when all of them have arrived. */
struct sl_gpu_value {
    const unsigned char *host;
    uint64_t length_bytes;
    uint64_t hash_first;   /* index into the list's hashes */
    uint64_t hashed_bytes; /* hashed so far: complete chunks from its start, or all */
    bool on_gpu;           /* all of it is from one GPU */
    struct sl_digest digest;
};
/* Copies of one direction that are executed together. One owner; starts zeroed. */
struct sl_gpu_copies {
    struct sl_gpu_copy *at;
    struct sl_gpu_value *values;
    uint64_t *hashes;
    uint32_t count, room, value_count, value_room;
    uint64_t hash_count, hash_room;
    /* Result of a run: the GPU may still read or write the host memory of these copies. That memory
     * must not be released before sl_gpu_copies_unfinished returns false. */
    bool unfinished;
    int unfinished_gpu;
    uint64_t unfinished_count; /* from 1 on */
};
/* Whether that GPU may still access memory of the run with that count. Never waits: if another
 * thread is using the GPU, the answer is yes. Any thread. */
bool sl_gpu_copies_unfinished(int gpu, uint64_t unfinished_count);
/* Starts a value, to which copies added from here on belong, in its order. Errors:
 * SL_ERR_NO_MEMORY. */
sl_err sl_gpu_copies_value(struct sl_gpu_copies *copies, const unsigned char *host,
                           uint64_t length_bytes);
/* Errors: SL_ERR_NO_MEMORY. */
sl_err sl_gpu_copies_add(struct sl_gpu_copies *copies, const struct sl_gpu_copy *copy);
/* Removes what was added after the first `count` copies and `value_count` values. */
void sl_gpu_copies_cut(struct sl_gpu_copies *copies, uint32_t count, uint32_t value_count);

struct sl_gpu_order {
    bool to_host;
    uint64_t deadline_ns; /* monotonic */
    void *event;          /* CUevent that must complete before the copies; NULL: none */
};
/* Executes all copies, waits for them, computes the digests of the values and empties the list; the
 * values can still be read. Nothing begins before the event has completed. Errors: SL_ERR_DEVICE,
 * with the driver's code; the state of the copied bytes is then unknown. SL_ERR_TIMEOUT: the event
 * did not complete by the deadline, or other copies were in the way; nothing was begun. Copies that
 * do not end by the deadline, or within a second, give SL_ERR_DEVICE and set `unfinished`; this
 * process does not use that GPU until they have ended. Any thread; keeps the current context. */
sl_err sl_gpu_copies_run(struct sl_gpu_copies *copies, const struct sl_gpu_order *order,
                         struct sl_error *why);
/* Empties the list for reuse. */
void sl_gpu_copies_clear(struct sl_gpu_copies *copies);
void sl_gpu_copies_free(struct sl_gpu_copies *copies);

/* Unpins the arena, which is about to be unmapped. */
void sl_gpu_forget(const struct sl_arena *arena);
/* Releases everything to the driver, for tests that count. No thread may copy meanwhile. */
void sl_gpu_end(void);
/* Uses this image of kernels instead of the built-in one; for tests, before the first copy. */
void sl_gpu_kernels(const void *image);

#endif
