/* tests/support/fake_cuda.h - a stand-in for libcuda.so.1 on ordinary memory, as a shared library
 * of its own: what is asynchronous is done when somebody waits for it, kernels run the shared
 * bodies. It is strict: a copy must lie within one allocation of the device and one pinned range of
 * the host, and calls want a current context. Counters say what is not given back.
 *
 * Threads may call it at once. It captures as the real one (cuStreamBeginCapture_v2,
 * cuStreamEndCapture, for tests to look up): an unsafe call spoils the captures that forbid it. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

struct fake_cuda {
    /* What lives. */
    int contexts, modules, streams, events, allocations, host_allocations, registrations, ipc_opens,
        physicals, reservations, mappings;
    /* What was done. */
    uint64_t calls; /* that can fail */
    uint64_t copies, batches, launches, registered, queries;
    uintptr_t registered_by;  /* the thread that registered memory last */
    uint64_t registered_most; /* bytes, at once */
    uint64_t register_asked;  /* addresses that somebody wanted to register, of the first 64 */
    uint64_t register_again;  /* asks for one of those that was asked for before */
    uint64_t neighbours;      /* copies that go on on the host where the one before ended */
    uint64_t undone;          /* that are in streams now */
    uint64_t dry;             /* records of an event while no other stream had something to do */
    unsigned grid_max;
    int stream_priority;
    /* What shall happen. */
    uint64_t fail_at;        /* the call of this number (from 1) fails; 0: none */
    uintptr_t fail_thread;   /* only this thread's calls are counted and fail; 0: all */
    int fail_code;           /* with this code */
    const char *fail_symbol; /* calls of this name ("fake_launch") fail with it */
    bool fail_sticks;        /* from then on everything does */
    int stuck;               /* the sticky code that everything fails with */
    uint64_t registered_max; /* so many registrations work */
    bool foreign_context; /* memory is of another context of the process: kernels of ours end it */
    bool pooled;          /* memory comes from a stream-ordered pool: it has no IPC handle */
    bool hangs; /* nothing gets done any more: who waits without a deadline waits for ever */
    uint64_t busy_queries; /* so many queries find the work not done */
    /* What it is; 0: as the environment says, else the usual. */
    int number;       /* of the driver; FAKE_CUDA_NUMBER */
    int capability;   /* of its GPU, 90 is sm_90; FAKE_CUDA_CAPABILITY */
    int gpus;         /* 1; FAKE_CUDA_GPUS */
    int pointer_gpu;  /* which of them all memory lies on */
    int uuid;         /* each byte of the UUID of GPU 0, the next has one more; FAKE_CUDA_UUID */
    int compute_mode; /* 2 prohibited, 3 exclusive; FAKE_CUDA_MODE */
    bool taken;       /* in exclusive mode, by another process */
    int mps;          /* 1: contexts go through MPS; -1: the driver does not know the attribute */
    bool no_host_pointers; /* registered memory has another address on the device */
    uint64_t
        kernel_queries; /* so many of an event behind a kernel that is not done: others compute */
    uint64_t event_queries; /* so many queries of each event that was recorded */
    bool no_dmabuf;         /* the GPU has none; FAKE_CUDA_NO_DMABUF */
};
#define FAKE_CUDA_SM         4
#define FAKE_CUDA_PRIORITY   5 /* the least */
#define FAKE_CUDA_DRIVER     13000
#define FAKE_CUDA_CAPABILITY 90
#define FAKE_CUDA_UUID       0xfa
/* An image of a test's own, which has all kernels and any driver takes. Others must be what a real
 * driver of that number takes. */
#define FAKE_CUDA_IMAGE "image"

/* Exported under this name; one for the process. */
typedef struct fake_cuda *(*fake_cuda_state_fn)(void);

#endif
