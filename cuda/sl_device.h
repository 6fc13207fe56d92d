/* cuda/sl_device.h - one interface to device memory: `host` (shared or plain memory of processes,
 * for engines on CPUs, demo and tests) and `cuda` (loaded at run time; returns SL_ERR_UNSUPPORTED
 * with the reason without a driver).
 *
 * One thread per device. Memory given to a job must stay valid until its completion. */
#ifndef SL_DEVICE_H
#define SL_DEVICE_H

#include "runtime/base/sl_digest.h"
#include "runtime/base/sl_error.h"

/* How a handle names memory of another process. */
enum sl_memory_kind {
    SL_MEMORY_SHARED_FD = 1,  /* host: number fd in process pid, a memfd or file of the same uid */
    SL_MEMORY_CUDA_IPC = 2,   /* cudaIpcMemHandle_t of an allocation's base in ipc */
    SL_MEMORY_CUDA_FD = 3,    /* shareable descriptor, number fd in process pid */
    SL_MEMORY_CUDA_PARTS = 4, /* a range of many handles: struct sl_memory_name in ipc */
    SL_MEMORY_PROCESS = 5,    /* plain memory of process pid: offset_bytes is an address there */
};

/* Memory that process pid hands out as shareable descriptors, one per handle in the order of the
 * addresses (runtime/base/sl_descriptors.h). Offsets start at the first handle's memory. */
struct sl_memory_name {
    uint64_t number;                      /* of the socket */
    uint64_t address, length_bytes, life; /* the request */
};

struct sl_memory_handle {
    enum sl_memory_kind kind;
    uint32_t pid;
    int32_t fd;
    uint32_t device_index;
    unsigned char ipc[64];
    uint64_t inode;        /* SL_MEMORY_SHARED_FD: of the file; another file is refused. 0: any */
    uint64_t offset_bytes; /* of the memory within the named allocation */
    uint64_t start_time; /* with pid: process that has fd (struct sl_proc_id); 0 with our pid: this
                            process */
};
/* Gives a duplicate of the descriptor that the handle names, fetched from its process
 * (runtime/base/sl_descriptors.h). Errors: SL_ERR_INVALID (fd is negative), SL_ERR_UNSUPPORTED (no
 * runtime directory), those of sl_descriptors_fetch_file. */
sl_err sl_memory_descriptor(const char *runtime_dir, const struct sl_memory_handle *handle, int *fd,
                            struct sl_error *why);

/* Memory that a back end allocated for others to map. */
struct sl_device_memory {
    void *base; /* device address here; NULL: not mapped here, use map() as others do */
    uint64_t length_bytes;
    int fd; /* the descriptor for the handle; -1: none */
    void *private_data;
};

/* A mapping's memory for a NIC: it begins at offset_bytes of the dmabuf. */
struct sl_device_dmabuf {
    int fd; /* receiver closes it; it keeps the memory while it or an import of it exists */
    uint64_t offset_bytes, length_bytes; /* of the mapping; of the dmabuf: whole pages */
};

struct sl_device; /* base of the back ends */
struct sl_mapping {
    void *base;
    uint64_t length_bytes;
    void *private_data;
    uint32_t remote; /* not 0: not mapped here; moves use this number, base is NULL, and offsets are
                        addresses of the process */
};

/* One layer of a pool: block b starts at base + b * block_stride_bytes and has piece_bytes. These
 * are one run, or piece_bytes / fragment_bytes runs, one every fragment_stride_bytes, such as some
 * of the heads of each token. */
struct sl_layer {
    unsigned char *base; /* device address */
    uint64_t block_stride_bytes;
    uint64_t piece_bytes;
    uint64_t block_count;
    uint64_t fragment_bytes; /* divides piece_bytes; 0: one run. All layers of a table together
                                have at most SL_DEVICE_BLOCK_RUNS_MAX runs */
    uint64_t fragment_stride_bytes; /* at least fragment_bytes; the last run ends within the block's
                                       stride; 0 if fragment_bytes is */
    uint32_t remote;                /* of the mapping; equal in all layers of a table */
};

/* Moves one part between a device block and a value in host memory (an arena). The value is the
 * layers' pieces one after the other: value = [layer][piece_bytes of that layer]. A range of layers
 * is moved from or to its place in the value; the rest of the value is not touched. */
struct sl_move {
    unsigned char *host; /* start of the value, for any range */
    uint64_t device_block;
    uint32_t layers_index;           /* number of the layer table */
    uint32_t first_layer, layer_end; /* layers [first, end) of the table; 0, 0: all */
    uint32_t done;                   /* out: 1 when moved */
    struct sl_digest digest;         /* out, if moved to the host: digest of the moved bytes */
};

struct sl_device_ops {
    const char *name; /* "host" */
    /* Maps memory of another process. Errors: SL_ERR_PERMISSION, SL_ERR_NOT_FOUND, SL_ERR_INVALID
     * (shorter than length), SL_ERR_UNSUPPORTED (kind), SL_ERR_STALE (SL_MEMORY_PROCESS: no memory
     * at that address). */
    sl_err (*map)(struct sl_device *device, const struct sl_memory_handle *handle,
                  uint64_t length_bytes, struct sl_mapping *out, struct sl_error *why);
    void (*unmap)(struct sl_device *device, struct sl_mapping *mapping);
    /* See sl_device_dmabuf; NULL: not supported. */
    sl_err (*dmabuf)(struct sl_device *device, const struct sl_mapping *mapping,
                     struct sl_device_dmabuf *out, struct sl_error *why);
    /* Memory of pools that Sluice creates; all three NULL: not supported. Use
     * sl_device_memory_create and the functions after it. */
    sl_err (*memory_create)(struct sl_device *device, uint64_t length_bytes,
                            struct sl_device_memory *out, struct sl_error *why);
    sl_err (*memory_export)(struct sl_device *device, const struct sl_device_memory *memory,
                            struct sl_memory_handle *out, struct sl_error *why);
    void (*memory_free)(struct sl_device *device, struct sl_device_memory *memory);
    /* Registers a table of layers, which is copied; gives its number. */
    sl_err (*layers_add)(struct sl_device *device, const struct sl_layer *layers,
                         uint32_t layer_count, uint32_t *layers_index, struct sl_error *why);
    void (*layers_remove)(struct sl_device *device, uint32_t layers_index);
    /* Performs all moves, through bounded staging if the path needs it; a job larger than the
     * staging is pipelined. Blocks until completion, also on failure; each move's `done` is set.
     * digests: compute them (to host). Moves to the device must name different blocks. Errors:
     * SL_ERR_INVALID (before any byte was moved), SL_ERR_IO, SL_ERR_DEVICE. */
    sl_err (*move)(struct sl_device *device, struct sl_move *moves, uint32_t count, bool to_host,
                   bool digests, struct sl_error *why);
    /* Moves in slices, see sl_device_move_begin and _end. Both NULL: not supported. */
    sl_err (*move_begin)(struct sl_device *device, struct sl_move *moves, uint32_t count,
                         bool to_host, bool digests, struct sl_error *why);
    sl_err (*move_end)(struct sl_device *device, bool wait, struct sl_error *why);
    /* See sl_device_digest_begin; a back end without slices digests all at once. */
    sl_err (*digest_begin)(struct sl_device *device, struct sl_move *moves, uint32_t count,
                           struct sl_error *why);
    bool (*digests)(struct sl_device *device); /* see sl_device_digest_cheap; NULL: always false */
    /* Events of another process on this device: opens the event of an IPC handle, and asks whether
     * the work before it has ended. An opened event must be closed; the other process keeps it
     * until then. All three NULL: not supported. Errors: SL_ERR_INVALID (no such event: the text
     * names the handle), SL_ERR_DEVICE. */
    sl_err (*event_open)(struct sl_device *device, const unsigned char handle[64], void **out,
                         struct sl_error *why);
    sl_err (*event_ended)(struct sl_device *device, void *event, bool *over, struct sl_error *why);
    void (*event_close)(struct sl_device *device, void *event);
    /* NULL if there is nothing to do: see sl_device_host_add and the functions after it. */
    sl_err (*host_add)(struct sl_device *device, unsigned char *base, uint64_t length_bytes,
                       uint64_t ready_bytes, struct sl_error *why);
    bool (*host_remove)(struct sl_device *device, const unsigned char *base);
    sl_err (*work)(struct sl_device *device, bool *more, struct sl_error *why);
    void (*destroy)(struct sl_device *device);
};
struct sl_device_stats {
    uint64_t pinned_bytes;    /* of added host memory */
    uint64_t bounced_bytes;   /* moved through the device's own pinned memory */
    uint64_t copies;          /* single DMA copies */
    uint64_t batches;         /* calls that copy many pieces */
    uint64_t batches_refused; /* by the driver; done as single copies */
    uint64_t kernels;
    uint64_t waits;        /* for slots that had not ended at the first look */
    uint64_t drains;       /* waits for all slots: the GPU is idle until the next move */
    uint64_t copy_threads; /* that copy plain memory of processes; 0: none was mapped yet */
    uint64_t computes;     /* 1: another process computed on the GPU at the last look */
};
#define SL_DEVICE_SLICE_MOVES_MAX 1024u
/* Runs of a block in all layers of a table, and of the moves of a slice. A GPU without kernels
 * copies each run separately, in 2 us, and a swapper without a heartbeat for a second is killed. */
#define SL_DEVICE_BLOCK_RUNS_MAX 262144u
#define SL_DEVICE_SLICE_RUNS_MAX 65536u /* of a slice with several moves */
#define SL_DEVICE_TEXT_BYTES     240u
#define SL_GPU_UUID_BYTES        16u /* of cuDeviceGetUuid_v2: with MIG that of the instance */
#define SL_GPU_TEXT_BYTES        41u
#define SL_DEVICE_SLICES_MAX     2u /* in flight at a time */
struct sl_device {
    const struct sl_device_ops *ops;
    const char *runtime_directory; /* from its options */
    uint64_t staging_bytes;
    uint64_t slice_bytes; /* moves of this size are worth the start; it takes about a millisecond */
    uint32_t slice_moves; /* likewise for small moves: at most SL_DEVICE_SLICE_MOVES_MAX */
    uint64_t slices_begun,
        slices_done;    /* slices end in order: number n has ended when slices_done >= n */
    bool moves_pending; /* lost, and the GPU may still use memory of moves: no completion may be
                     reported, only the end of the process ends that */
    struct sl_device_stats stats;
    bool reduced; /* something does not work here: text names it and the reason */
    unsigned char gpu[SL_GPU_UUID_BYTES]; /* which GPU; all zero: none */
    char text[SL_DEVICE_TEXT_BYTES];      /* what runs here, or why `auto` chose `host`: for logs */
};

/* Which methods are used while an engine computes on the same GPU. */
enum sl_beside {
    SL_BESIDE_WATCH,   /* no kernels while it computes, unless MPS lets both run at the same time */
    SL_BESIDE_KERNELS, /* always the fastest by itself */
    SL_BESIDE_COPIES,  /* never kernels */
};

struct sl_device_options {
    const char *name; /* "host", "cuda", or "auto": cuda where it can run, else host */
    uint32_t device_index;
    uint64_t staging_bytes;   /* from 64 KiB: bytes in flight, and device memory used */
    uint32_t multiprocessors; /* that a kernel may use; 0: all */
    enum sl_beside beside;
    uint64_t wait_ns; /* time limit for copies: a GPU that exceeds it is lost; 0: 10 s */
    /* Where processes hand out memory; NULL: memory cannot be fetched. Must outlive the device. */
    const char *runtime_directory;
    const char *cache_directory; /* where measured crossovers are kept; NULL: nowhere */
    bool measure;                /* measure them if they are missing, in sl_device_work */
    uint64_t probe_bytes;        /* moved per figure: a power of two from 1 MiB; 0: 16 MiB */
    /* host: threads that copy plain memory of processes, including the caller; up to 64. Others run
     * only within a move. 0: only the caller. */
    uint32_t copy_threads;
    const char *driver_path; /* tests: instead of libcuda.so.1 */
    const void *kernels;     /* tests: instead of the built-in images */
};
/* Opens a device. Errors: SL_ERR_UNSUPPORTED (not available, the text gives the reason; `auto` then
 * takes host), SL_ERR_INVALID, SL_ERR_NO_MEMORY; of the back end. SL_ERR_UNREACHABLE: the GPU is
 * not ready yet, another start may work. SL_ERR_CONFIG: the operator must free it, the text says
 * how. After SL_ERR_DEVICE from any call the context is lost and the process must end; SL_ERR_IO
 * concerns only the call. */
sl_err sl_device_open(const struct sl_device_options *options, struct sl_device **out,
                      struct sl_error *why);
/* Checks that the back end `name` has what this number of ranks needs: for cuda a driver, and a GPU
 * for each. Allocates nothing. Errors: SL_ERR_UNSUPPORTED and the other three of a driver's
 * start. */
sl_err sl_device_check(const char *name, uint32_t ranks, struct sl_error *why);
void sl_device_close(struct sl_device **device);
/* Formats a GPU's UUID as nvidia-smi -L does ("GPU-...") in out[SL_GPU_TEXT_BYTES]. Pure. */
void sl_gpu_text(const unsigned char *uuid, char *out);

/* Begins a slice of moves, and returns while it and the previous slice may still be in flight, so
 * that the device is never idle. Its number is then slices_begun. Moves and host memory must stay
 * valid until slices_done reaches that number or the device is closed; each move's `done` is set. A
 * device block that a slice writes must not be in another slice in flight. All other calls that
 * touch memory of moves (unmap, layers_remove, host_remove) first wait for slices in flight. Back
 * ends without slices move all at once. Errors: those of move, also of earlier slices. After an
 * error nothing is in flight; complete moves are done. */
sl_err sl_device_move_begin(struct sl_device *device, struct sl_move *moves, uint32_t count,
                            bool to_host, bool digests, struct sl_error *why);
/* Completes slices that have ended; wait: waits for all. Errors: as above, also of slices that
 * another call has waited for. */
sl_err sl_device_move_end(struct sl_device *device, bool wait, struct sl_error *why);
/* Begins a slice that moves nothing: each move's digest becomes that of its value (of its layers)
 * as now stored in the device block; `host` is ignored. All writes to the blocks must have ended.
 * Numbered and completed like a slice of moves; errors as above. */
sl_err sl_device_digest_begin(struct sl_device *device, struct sl_move *moves, uint32_t count,
                              struct sl_error *why);
/* Whether such slices are cheap now: the device itself digests, no bytes are copied to the host,
 * and all such slices have taken less than a twentieth of the time of moves to the device. False:
 * no kernels, an engine computes, or that share is used up. */
bool sl_device_digest_cheap(struct sl_device *device);
/* Whether a slice with these moves and bytes is full; one more move has next_bytes. */
static inline bool sl_device_slice_full(const struct sl_device *device, uint32_t moves,
                                        uint64_t bytes, uint64_t next_bytes)
{
    return moves >= device->slice_moves || (bytes > 0 && bytes + next_bytes > device->slice_bytes);
}

/* Gives *out a descriptor with which NICs register the memory of a mapping; it covers whole host
 * pages. Errors: SL_ERR_UNSUPPORTED (the back end, the GPU, the driver, or this memory has none;
 * the text says which), SL_ERR_IO, SL_ERR_DEVICE. */
sl_err sl_device_dmabuf(struct sl_device *device, const struct sl_mapping *mapping,
                        struct sl_device_dmabuf *out, struct sl_error *why);

/* Gives *out zero-filled memory that other processes can map; free it before the device is closed.
 * Errors: SL_ERR_INVALID (0 bytes), SL_ERR_NO_MEMORY, SL_ERR_OS, SL_ERR_DEVICE, SL_ERR_UNSUPPORTED
 * (by the back end). */
sl_err sl_device_memory_create(struct sl_device *device, uint64_t length_bytes,
                               struct sl_device_memory *out, struct sl_error *why);
/* Gives the handle by which others map it. A handle of a descriptor (SL_MEMORY_SHARED_FD,
 * SL_MEMORY_CUDA_FD) is valid as long as the process in it has the descriptor. The memory lives as
 * long as any process has a descriptor or a mapping of it, so the death of its maker loses nothing
 * that others have. A handle of SL_MEMORY_CUDA_IPC ends with its maker. Errors: SL_ERR_DEVICE,
 * SL_ERR_UNSUPPORTED. */
sl_err sl_device_memory_export(struct sl_device *device, const struct sl_device_memory *memory,
                               struct sl_memory_handle *out, struct sl_error *why);
/* Accepts zeroed and freed memory. */
void sl_device_memory_free(struct sl_device *device, struct sl_device_memory *memory);

/* Adds memory of this process (an arena) that moves will use; borrowed until host_remove returns
 * true, which must precede the unmapping. Its first ready_bytes exist; later calls with the same
 * base report its growth. sl_device_work pins it in slices. Until then, and if pinning fails (which
 * sl_device_work reports once), moves take an additional copy. Errors: SL_ERR_INVALID,
 * SL_ERR_NO_MEMORY. */
sl_err sl_device_host_add(struct sl_device *device, unsigned char *base, uint64_t length_bytes,
                          uint64_t ready_bytes, struct sl_error *why);
/* Removes it. Unpinning takes as long as pinning, so each call does one step of some milliseconds.
 * True: all of it is unpinned and may be unmapped; also for unknown memory. False: call again.
 * Moves may use the memory until the first call. */
bool sl_device_host_remove(struct sl_device *device, const unsigned char *base);
/* Does one step, some milliseconds, of the work beside the moves: pins a slice, measures a path.
 * *more: there is another step. */
sl_err sl_device_work(struct sl_device *device, bool *more, struct sl_error *why);

#endif
