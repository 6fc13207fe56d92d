/* client/lib/gpu_internal.h - internals of the copies of device memory; for client/lib/gpu*.c. */
#ifndef SL_CLIENT_LIB_GPU_INTERNAL_H
#define SL_CLIENT_LIB_GPU_INTERNAL_H

#include "client/lib/gpu.h"
#include "client/lib/gpu_pins.h"
#include "cuda/kernel_images.h"
#include "cuda/sl_crossover.h"
#include "cuda/sl_kernels.h"

#define GPU_HALVES 2u
/* 0.16 ms of PCIe 5, in which driver calls prepare the next half. Two of them are the device memory
 * that is taken from the engine. */
#define GPU_HALF_BYTES    (8 * SL_MIB)
#define GPU_HALF_SEGMENTS 4096u /* pieces, or parts of pieces */
#define GPU_HALF_COPIES   (2 * GPU_HALF_SEGMENTS)
#define GPU_HALF_HASHES   2048u
#define GPU_DIRECT        UINT64_MAX /* not through the bounce memory */
#define GPU_NO_HASH       UINT32_MAX

enum gpu_thing { GPU_NEW, GPU_READY, GPU_REFUSED };

/* The bytes in one run of an arena. */
struct gpu_part {
    unsigned char *host;
    uint64_t length_bytes;
    uint64_t used_bytes;   /* offset in staging */
    uint64_t bounce_bytes; /* offset in the bounce memory, or GPU_DIRECT */
    struct sl_gpu_value *value;
    uint32_t hash_first; /* first of its chunks that the GPU hashes, or GPU_NO_HASH */
};

/* A transfer that is in flight while the other half is filled or digested. */
struct gpu_half {
    sl_cu_stream stream;
    sl_cu_event done;
    unsigned char *bounce; /* GPU_HALF_BYTES, pinned; NULL: not needed yet */
    /* For the kernels, once they are ready: */
    sl_cu_ptr staging, table_device, hashes_device;
    struct sl_swap_layer *table; /* pinned: one row per segment */
    uint64_t *hashes;            /* pinned */
    bool in_flight;              /* the GPU uses its memory until `done` */
    uint64_t used_bytes, tile_count;
    uint32_t part_count, segment_count, copy_count, hash_count;
    uint32_t hash_end; /* of the hashes that kernels compute */
    struct gpu_part parts[GPU_HALF_SEGMENTS];
    sl_cu_ptr to[GPU_HALF_COPIES], from[GPU_HALF_COPIES];
    size_t lengths[GPU_HALF_COPIES];
};

struct gpu {
    pthread_mutex_t lock; /* guards all below */
    int number;
    sl_cu_device device;
    sl_cu_context context; /* NULL: not taken yet; then kept until the end */
    bool host_pointers;    /* pinned memory has the same address for both */
    bool batch_works;
    _Atomic bool stuck;           /* copies missed their deadline; read also without the lock */
    _Atomic uint64_t stuck_count; /* how often that happened */
    enum gpu_thing kernels;
    struct sl_kernels code;
    uint32_t capability;     /* 90: sm_90 */
    sl_cu_ptr room;          /* device memory for the kernels */
    void *control;           /* pinned memory for the kernels */
    struct gpu_half *halves; /* GPU_HALVES of them; NULL: not created yet */
};

/* Copies of one GPU in progress. */
struct gpu_job {
    struct sl_gpu_copies *copies;
    uint32_t next, end;
    uint64_t next_bytes; /* offset in the next copy */
    sl_cu_device device; /* its context pins arenas */
    enum sl_way way;
    bool to_host;
    uint64_t deadline_ns;
};

/* gpu.c */
extern struct sl_driver sl_gpu_driver; /* joined by sl_gpu_present */
/* Waits for the event (NULL: none), locks the device, executes the job. Errors: as
 * sl_gpu_copies_run. */
sl_err gpu_run(int number, struct gpu_job *job, void *event, struct sl_error *why);
/* Gives SL_ERR_DEVICE for any driver error; the message has its code. */
sl_err gpu_failed(struct sl_error *why, sl_cu_result result, const char *doing);

/* gpu_open.c: streams, buffers and kernels of a device. The context is current. */
sl_err gpu_halves_open(struct gpu *gpu, struct sl_error *why);
sl_err gpu_bounce_open(struct gpu_half *half, struct sl_error *why);
/* Whether kernels can be launched; loads them once. */
bool gpu_kernels_open(struct gpu *gpu);
/* Frees everything; the next copy creates it again. */
void gpu_reset(struct gpu *gpu);

/* gpu_pipe.c */
/* Executes the job. Nothing is in flight afterwards, unless gpu->stuck. */
sl_err gpu_pipe_run(struct gpu *gpu, struct gpu_job *job, struct sl_error *why);
/* Whether nothing is in flight any more; waits for that until the deadline. */
bool gpu_pipe_ended(struct gpu *gpu, uint64_t deadline_ns);

/* gpu_copies.c */
/* Bytes of the value up to end_bytes have arrived: hashes the complete chunks. */
void gpu_value_landed(struct sl_gpu_copies *copies, struct sl_gpu_value *value, uint64_t end_bytes);

#endif
