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

#define SL_GPUS_MAX     16
#define SL_GPU_NO_VALUE UINT32_MAX
struct sl_gpu_copy {
    unsigned char *host; /* in the arena */
    uint64_t device;
    uint64_t length_bytes;
    const struct sl_arena *arena;
    int gpu;
    uint32_t value; /* set by add: the last one begun, or SL_GPU_NO_VALUE */
};
/* Bytes in an arena whose digest is wanted, once all of them are there. */
struct sl_gpu_value {
    const unsigned char *host;
    uint64_t length_bytes;
    uint64_t hash_first;   /* of the list's hashes */
    uint64_t hashed_bytes; /* whole chunks from its start, or all */
    bool on_gpu;           /* all of it comes from one GPU */
    struct sl_digest digest;
};
/* Copies of one direction that are carried out together. One owner; starts zeroed. */
struct sl_gpu_copies {
    struct sl_gpu_copy *at;
    struct sl_gpu_value *values;
    uint64_t *hashes;
    uint32_t count, room, value_count, value_room;
    uint64_t hash_count, hash_room;
    /* Out of a run: the GPU may still write to or read from the host memory of these copies. What
     * holds that memory for this process must not be given back before sl_gpu_lent says so. */
    bool lent;
    int lent_gpu;
    uint64_t lent_count; /* from 1 on */
};
/* Whether that GPU may still touch what was lent to it then. Never waits: where another thread is
 * at that GPU, it may. Any thread. */
bool sl_gpu_lent(int gpu, uint64_t lent_count);
/* The copies that are added from here on belong to a value; they come in its order. Errors:
 * SL_ERR_NO_MEMORY. */
sl_err sl_gpu_copies_value(struct sl_gpu_copies *copies, const unsigned char *host,
                           uint64_t length_bytes);
/* Errors: SL_ERR_NO_MEMORY. */
sl_err sl_gpu_copies_add(struct sl_gpu_copies *copies, const struct sl_gpu_copy *copy);
/* Takes back what was added behind so many copies and values. */
void sl_gpu_copies_cut(struct sl_gpu_copies *copies, uint32_t count, uint32_t value_count);

struct sl_gpu_order {
    bool to_host;
    uint64_t deadline_ns; /* monotonic */
    void *event;          /* CUevent that the copies come after; NULL: none */
};
/* Carries all of them out, waits for them, digests the values and empties the list; the values
 * stay to be read. Nothing begins before the event is over. Errors: SL_ERR_DEVICE, with the
 * driver's code; what was copied by then nobody knows. SL_ERR_TIMEOUT: the event was not over by
 * the deadline, or other copies were in the way; nothing was begun. Copies that do not end by the
 * deadline, or within a second, are SL_ERR_DEVICE, and lent; this process does not use that GPU any
 * more until they did.
 * Any thread; the caller's current context is the same afterwards. */
sl_err sl_gpu_copies_run(struct sl_gpu_copies *copies, const struct sl_gpu_order *order,
                         struct sl_error *why);
/* For the next list. */
void sl_gpu_copies_clear(struct sl_gpu_copies *copies);
void sl_gpu_copies_free(struct sl_gpu_copies *copies);

/* The arena is about to be unmapped: what was pinned of it is let go. */
void sl_gpu_forget(const struct sl_arena *arena);
/* Gives everything back to the driver, for tests that count. Nobody copies meanwhile. */
void sl_gpu_end(void);
/* An image of kernels instead of the one that is built in; for tests, before the first copy. */
void sl_gpu_kernels(const void *image);

#endif
