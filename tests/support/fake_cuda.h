/* tests/support/fake_cuda.h - a fake libcuda.so.1 on ordinary memory, built as a shared library of
 * its own. Asynchronous work runs when a caller waits for it; kernels run the shared bodies. It is
 * strict: a copy must lie within one allocation of the device and one pinned range of the host, and
 * calls need a current context. Counters show objects that were not released.
 *
 * Threads may call it concurrently. It captures like the real driver (cuStreamBeginCapture_v2,
 * cuStreamEndCapture, which tests look up): an unsafe call invalidates the captures that forbid
 * it. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

struct fake_cuda {
    /* Objects that exist. */
    int contexts, modules, streams, events, allocations, host_allocations, registrations, ipc_opens,
        physicals, reservations, mappings;
    /* Calls so far. */
    uint64_t calls; /* that can fail */
    uint64_t copies, batches, launches, registered, queries;
    uintptr_t registered_by;  /* the thread that last registered memory */
    uint64_t registered_most; /* most bytes registered at once */
    uint64_t register_asked;  /* addresses passed to registration calls, of the first 64 */
    uint64_t register_again;  /* requests for one of those that had been requested before */
    uint64_t neighbours;      /* copies that start on the host where the previous one ended */
    uint64_t undone;          /* operations now in streams */
    uint64_t dry;             /* records of an event while no other stream had work */
    unsigned grid_max;
    int stream_priority;
    /* Faults to inject. */
    uint64_t fail_at;        /* the call of this number (from 1) fails; 0: none */
    uintptr_t fail_thread;   /* only this thread's calls are counted and fail; 0: all */
    int fail_code;           /* with this code */
    const char *fail_symbol; /* calls of this name ("fake_launch") fail with it */
    bool fail_sticks;        /* from then on every call fails */
    int stuck;               /* the sticky code of every call */
    uint64_t registered_max; /* number of registrations that succeed */
    bool foreign_context; /* memory belongs to another context of the process: our kernels end it */
    bool pooled;          /* memory is from a stream-ordered pool and has no IPC handle */
    bool hangs;           /* no work completes any more: a wait without a deadline never returns */
    uint64_t busy_queries; /* number of queries that report unfinished work */
    /* Properties of the device; 0: the environment's value, or else the default. */
    int number;       /* of the driver; FAKE_CUDA_NUMBER */
    int capability;   /* of its GPU, 90 is sm_90; FAKE_CUDA_CAPABILITY */
    int gpus;         /* 1; FAKE_CUDA_GPUS */
    int pointer_gpu;  /* the GPU that owns all memory */
    int uuid;         /* each byte of GPU 0's UUID, one more for the next GPU; FAKE_CUDA_UUID */
    int compute_mode; /* 2 prohibited, 3 exclusive; FAKE_CUDA_MODE */
    bool taken;       /* another process uses the GPU in exclusive mode */
    int mps;          /* 1: contexts go through MPS; -1: the driver does not know the attribute */
    bool no_host_pointers;   /* registered memory has a different address on the device */
    uint64_t kernel_queries; /* queries of an event after a kernel that find it unfinished */
    uint64_t event_queries;  /* the same, for each recorded event */
    bool no_dmabuf;          /* the GPU has none; FAKE_CUDA_NO_DMABUF */
};
#define FAKE_CUDA_SM         4
#define FAKE_CUDA_PRIORITY   5 /* the lowest */
#define FAKE_CUDA_DRIVER     13000
#define FAKE_CUDA_CAPABILITY 90
#define FAKE_CUDA_UUID       0xfa
/* An image made by a test: it has all kernels, and any driver loads it. Other images must be
 * loadable by a real driver of that number. */
#define FAKE_CUDA_IMAGE "image"

/* Exported under this name; one in the process. */
typedef struct fake_cuda *(*fake_cuda_state_fn)(void);

#endif
