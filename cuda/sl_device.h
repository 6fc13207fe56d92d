/* cuda/sl_device.h - device memory behind one interface: `host` (ordinary shared memory; demo and
 * tests) and `cuda` (found at run time; says SL_ERR_UNSUPPORTED and why where there is no driver).
 *
 * One thread a device. Memory given to a job is lent until its completion. */
#ifndef SL_DEVICE_H
#define SL_DEVICE_H

#include "runtime/base/sl_digest.h"
#include "runtime/base/sl_error.h"

/* How another process names memory. */
enum sl_memory_kind {
    SL_MEMORY_SHARED_FD =
        1, /* host: descriptor fd of process pid, a memfd or file of the same uid */
    SL_MEMORY_CUDA_IPC = 2,   /* cudaIpcMemHandle_t of an allocation's base in ipc */
    SL_MEMORY_CUDA_FD = 3,    /* shareable descriptor, number fd in process pid */
    SL_MEMORY_CUDA_PARTS = 4, /* addresses of many handles: struct sl_memory_name in ipc */
    SL_MEMORY_PROCESS = 5,    /* plain memory of process pid: offset_bytes is an address there */
};

/* Memory that process pid hands out as shareable descriptors, one for each handle in the order of
 * the addresses (runtime/base/sl_descriptors.h). The first handle's memory is where offsets start.
 */
struct sl_memory_name {
    uint64_t number;                      /* of the socket */
    uint64_t address, length_bytes, life; /* what is asked for */
};

struct sl_memory_handle {
    enum sl_memory_kind kind;
    uint32_t pid;
    int32_t fd;
    uint32_t device_index;
    unsigned char ipc[64];
    uint64_t
        inode; /* SL_MEMORY_SHARED_FD: of the file; what is another by now is refused. 0: any */
    uint64_t offset_bytes; /* of the memory in the allocation that is named */
    uint64_t start_time;   /* with pid who has fd: struct sl_proc_id; 0 and our pid: this process */
};
/* Gives a copy of the descriptor that the handle names, which its process hands over
 * (runtime/base/sl_descriptors.h). Errors: SL_ERR_INVALID (fd is none), SL_ERR_UNSUPPORTED (no
 * runtime directory), those of sl_descriptors_fetch_file. */
sl_err sl_memory_descriptor(const char *runtime_dir, const struct sl_memory_handle *handle, int *fd,
                            struct sl_error *why);

/* Memory that a back end made for others to map. */
struct sl_device_memory {
    void *base; /* device address here; NULL: not mapped here, map() it as others do */
    uint64_t length_bytes;
    int fd; /* what the handle names; -1: none */
    void *private_data;
};

/* A mapping's memory for a NIC: from offset_bytes on in the dmabuf. */
struct sl_device_dmabuf {
    int fd; /* the taker's, to be closed; it keeps the memory while it, or what was made of it,
               lives */
    uint64_t offset_bytes, length_bytes; /* of the mapping in it; of all of it, whole pages */
};

struct sl_device; /* base of the back ends */
struct sl_mapping {
    void *base;
    uint64_t length_bytes;
    void *private_data;
    uint32_t remote; /* not 0: nothing is mapped here, moves reach it by this number; base is NULL,
                        and offsets are addresses there */
};

/* One layer of a pool: block b starts at base + b * block_stride_bytes, piece_bytes of it count.
 * These are one run, or piece_bytes / fragment_bytes runs of fragment_bytes, one every
 * fragment_stride_bytes, such as some of the heads of each token. */
struct sl_layer {
    unsigned char *base; /* device address */
    uint64_t block_stride_bytes;
    uint64_t piece_bytes;
    uint64_t block_count;
    uint64_t fragment_bytes;        /* divides piece_bytes; 0: one run. Of all layers of a table
                                       together up to SL_DEVICE_BLOCK_RUNS_MAX runs */
    uint64_t fragment_stride_bytes; /* from fragment_bytes on; the last run ends within the block's
                                       stride; 0 when fragment_bytes is */
    uint32_t remote;                /* of the mapping; the same in all layers of a table */
};

/* One part to move: device block <-> value at host (in an arena). The value is the layers' pieces
 * one after the other: value = [layer][piece_bytes of that layer]. A range of layers is moved from
 * and to its place in the value; the rest of the value is left alone. */
struct sl_move {
    unsigned char *host; /* of the value, whatever the range */
    uint64_t device_block;
    uint32_t layers_index;           /* which registered layer table */
    uint32_t first_layer, layer_end; /* layers [first, end) of the table; 0, 0: all */
    uint32_t done;                   /* out: 1 when moved */
    struct sl_digest digest;         /* out, device to host: of the bytes that were moved */
};

struct sl_device_ops {
    const char *name; /* "host" */
    /* Maps memory of another process. Errors: SL_ERR_PERMISSION, SL_ERR_NOT_FOUND, SL_ERR_INVALID
     * (shorter than length), SL_ERR_UNSUPPORTED (kind), SL_ERR_STALE (SL_MEMORY_PROCESS: nothing is
     * at that address). */
    sl_err (*map)(struct sl_device *device, const struct sl_memory_handle *handle,
                  uint64_t length_bytes, struct sl_mapping *out, struct sl_error *why);
    void (*unmap)(struct sl_device *device, struct sl_mapping *mapping);
    /* See sl_device_dmabuf; NULL: it has none. */
    sl_err (*dmabuf)(struct sl_device *device, const struct sl_mapping *mapping,
                     struct sl_device_dmabuf *out, struct sl_error *why);
    /* The memory of a pool that Sluice creates; NULL: the back end has none of the three. Use
     * sl_device_memory_create and its siblings. */
    sl_err (*memory_create)(struct sl_device *device, uint64_t length_bytes,
                            struct sl_device_memory *out, struct sl_error *why);
    sl_err (*memory_export)(struct sl_device *device, const struct sl_device_memory *memory,
                            struct sl_memory_handle *out, struct sl_error *why);
    void (*memory_free)(struct sl_device *device, struct sl_device_memory *memory);
    /* Makes a table of layers known once; gives its number. The layers are copied. */
    sl_err (*layers_add)(struct sl_device *device, const struct sl_layer *layers,
                         uint32_t layer_count, uint32_t *layers_index, struct sl_error *why);
    void (*layers_remove)(struct sl_device *device, uint32_t layers_index);
    /* Moves all, through bounded staging where the path wants it; a job larger than the staging is
     * a pipeline. Blocking up to completion, also when it fails; each move says whether it is done.
     * digests: compute them (to host). No device block comes twice when moving to the device.
     * Errors: SL_ERR_INVALID (before a byte moved), SL_ERR_IO, SL_ERR_DEVICE. */
    sl_err (*move)(struct sl_device *device, struct sl_move *moves, uint32_t count, bool to_host,
                   bool digests, struct sl_error *why);
    /* A move in slices: see sl_device_move_begin and sl_device_move_end. NULL, both: none here. */
    sl_err (*move_begin)(struct sl_device *device, struct sl_move *moves, uint32_t count,
                         bool to_host, bool digests, struct sl_error *why);
    sl_err (*move_end)(struct sl_device *device, bool wait, struct sl_error *why);
    /* See sl_device_digest_begin; a back end without slices digests all at once. */
    sl_err (*digest_begin)(struct sl_device *device, struct sl_move *moves, uint32_t count,
                           struct sl_error *why);
    bool (*digests)(struct sl_device *device); /* see sl_device_digests; NULL: never */
    /* Work of another process on this device: opens the event that its IPC handle names, and asks
     * whether the work before it is over. Close what was opened; the other process keeps the event
     * until then. NULL, all three: the back end knows no events. Errors: SL_ERR_INVALID (no such
     * event: the text names the handle), SL_ERR_DEVICE. */
    sl_err (*event_open)(struct sl_device *device, const unsigned char handle[64], void **out,
                         struct sl_error *why);
    sl_err (*event_over)(struct sl_device *device, void *event, bool *over, struct sl_error *why);
    void (*event_close)(struct sl_device *device, void *event);
    /* NULL where nothing is to be done: see sl_device_host_add and the functions below it. */
    sl_err (*host_add)(struct sl_device *device, unsigned char *base, uint64_t length_bytes,
                       uint64_t ready_bytes, struct sl_error *why);
    bool (*host_remove)(struct sl_device *device, const unsigned char *base);
    sl_err (*work)(struct sl_device *device, bool *more, struct sl_error *why);
    void (*destroy)(struct sl_device *device);
};
struct sl_device_stats {
    uint64_t pinned_bytes;    /* of added host memory */
    uint64_t bounced_bytes;   /* moved through pinned memory of the device's own */
    uint64_t copies;          /* single DMA copies */
    uint64_t batches;         /* calls that copy many pieces */
    uint64_t batches_refused; /* by the driver; done as single copies */
    uint64_t kernels;
    uint64_t waits;        /* for what was on its way, and not over when it was looked at */
    uint64_t drains;       /* waits for all of it: the GPU has nothing to do until the next move */
    uint64_t copy_threads; /* that copy plain memory of processes; 0: none was there yet */
    uint64_t computes;     /* 1: another process was seen to compute on the GPU just now */
};
#define SL_DEVICE_SLICE_MOVES_MAX 1024u
/* Runs of a block in all layers of a table, and of the moves of a slice. A GPU without kernels
 * copies each by itself, 2 us a run, and a swapper that says nothing for a second is killed. */
#define SL_DEVICE_BLOCK_RUNS_MAX 262144u
#define SL_DEVICE_SLICE_RUNS_MAX 65536u /* if there are several moves in it */
#define SL_DEVICE_TEXT_BYTES     240u
#define SL_GPU_UUID_BYTES        16u /* as cuDeviceGetUuid_v2 gives it: with MIG of the instance */
#define SL_GPU_TEXT_BYTES        41u
#define SL_DEVICE_SLICES_MAX     2u /* on their way at a time */
struct sl_device {
    const struct sl_device_ops *ops;
    const char *runtime_directory; /* as its options have it */
    uint64_t staging_bytes;
    uint64_t slice_bytes; /* a move of so many is worth its start, and takes about a millisecond */
    uint32_t slice_moves; /* likewise, of small ones: at most SL_DEVICE_SLICE_MOVES_MAX */
    uint64_t slices_begun, slices_done; /* they end in their order: number n when done >= n */
    bool unended; /* lost, and nothing proves that the GPU is done with memory of moves: nobody may
                     be told so, only the end of the process ends it */
    struct sl_device_stats stats;
    bool reduced; /* not all that it could do works here: text says what, and why */
    unsigned char gpu[SL_GPU_UUID_BYTES]; /* which GPU; all zero: none */
    char text[SL_DEVICE_TEXT_BYTES]; /* what runs here, or for `auto` why it is `host`: for logs */
};

/* What is done beside an engine that computes on the same GPU. */
enum sl_beside {
    SL_BESIDE_WATCH,   /* no kernels while it computes, unless MPS lets both run at a time */
    SL_BESIDE_KERNELS, /* whatever is fastest by itself */
    SL_BESIDE_COPIES,  /* no kernels, ever */
};

struct sl_device_options {
    const char *name; /* "host", "cuda", or "auto": cuda where it can run, else host */
    uint32_t device_index;
    uint64_t staging_bytes;   /* from 64 KiB: the bytes in flight, and the device memory taken */
    uint32_t multiprocessors; /* that a kernel may use; 0: all */
    enum sl_beside beside;
    uint64_t wait_ns; /* for copies: a GPU that has not ended them then is lost; 0: 10 s */
    /* Where processes hand out memory; NULL: none can be asked. Outlives the device. */
    const char *runtime_directory;
    const char *cache_directory; /* where measured crossovers are kept; NULL: nowhere */
    bool measure;                /* find them when they are not there, in sl_device_work */
    uint64_t probe_bytes;        /* moved for a figure: a power of two from 1 MiB; 0: 16 MiB */
    /* host: threads that copy plain memory of processes, the caller of a move among them; up to 64.
     * Those besides it run only within a move. 0: the caller alone. */
    uint32_t copy_threads;
    const char *driver_path; /* tests: instead of libcuda.so.1 */
    const void *kernels;     /* tests: instead of the images that are built in */
};
/* Errors: SL_ERR_UNSUPPORTED (there is none here, the text says why; `auto` takes host then),
 * SL_ERR_INVALID, SL_ERR_NO_MEMORY; of the back end. SL_ERR_UNREACHABLE: the GPU is not ready yet,
 * another start may do. SL_ERR_CONFIG: a person has to set it free, the text says how. After
 * SL_ERR_DEVICE, from here or from any call, the context is lost: the process must end;
 * SL_ERR_IO was this call's alone. */
sl_err sl_device_open(const struct sl_device_options *options, struct sl_device **out,
                      struct sl_error *why);
/* Whether the back end `name` has what so many ranks need: for cuda a driver, and a GPU for each;
 * nothing is taken. Errors: SL_ERR_UNSUPPORTED and the other three of a driver's start. */
sl_err sl_device_check(const char *name, uint32_t ranks, struct sl_error *why);
void sl_device_close(struct sl_device **device);
/* A GPU's UUID for people, as nvidia-smi -L prints it ("GPU-...", 40 characters), in
 * out[SL_GPU_TEXT_BYTES]. Pure. */
void sl_gpu_text(const unsigned char *uuid, char *out);

/* Begins a slice of moves, and returns while its end, and that of the slice before, may still be on
 * their way: what the device does next needs no pause. Its number is slices_begun then. Moves and
 * host memory are lent until slices_done has reached that number, or the device is closed; each
 * move says whether it is done. No device block of a slice that goes to the device is in another
 * one on its way. All other calls that touch memory of moves (unmap, layers_remove, host_remove)
 * first wait for what is on its way. Back ends without slices move all at once.
 * Errors: those of move, also of slices before. After one nothing is on its way; what was whole is
 * done. */
sl_err sl_device_move_begin(struct sl_device *device, struct sl_move *moves, uint32_t count,
                            bool to_host, bool digests, struct sl_error *why);
/* Ends the slices that are over; wait: waits for all. Errors: as above; also those of slices that
 * another call has waited for. */
sl_err sl_device_move_end(struct sl_device *device, bool wait, struct sl_error *why);
/* Begins a slice that moves nothing: each move's digest becomes that of its value (of its layers)
 * as it lies in the device block now; `host` is not looked at. Whatever writes to the blocks is
 * over before. Numbered and ended as a slice of moves; errors as above. */
sl_err sl_device_digest_begin(struct sl_device *device, struct sl_move *moves, uint32_t count,
                              struct sl_error *why);
/* Whether such slices cost little now: the device digests its memory by itself, no byte comes to
 * the host, and all of them together have taken less than a twentieth of the time of moves to the
 * device. False: without kernels, beside an engine that computes, or over that share. */
bool sl_device_digests(struct sl_device *device);
/* Whether a slice that has so much is full: one more move has next_bytes. */
static inline bool sl_device_slice_full(const struct sl_device *device, uint32_t moves,
                                        uint64_t bytes, uint64_t next_bytes)
{
    return moves >= device->slice_moves || (bytes > 0 && bytes + next_bytes > device->slice_bytes);
}

/* Gives *out a descriptor by which NICs register the memory of a mapping, as far as whole pages of
 * the host hold it. Errors: SL_ERR_UNSUPPORTED (the back end, the GPU, the driver, or this memory
 * has none; the text says which), SL_ERR_IO, SL_ERR_DEVICE. */
sl_err sl_device_dmabuf(struct sl_device *device, const struct sl_mapping *mapping,
                        struct sl_device_dmabuf *out, struct sl_error *why);

/* Gives *out zero-filled memory that other processes can map; free it before the device is closed.
 * Errors: SL_ERR_INVALID (0 bytes), SL_ERR_NO_MEMORY, SL_ERR_OS, SL_ERR_DEVICE, SL_ERR_UNSUPPORTED
 * (the back end makes none; the text says so). */
sl_err sl_device_memory_create(struct sl_device *device, uint64_t length_bytes,
                               struct sl_device_memory *out, struct sl_error *why);
/* How others map it. The handle of a descriptor (SL_MEMORY_SHARED_FD, SL_MEMORY_CUDA_FD) is good as
 * long as the process in it has the descriptor; the memory itself lives as long as anybody has a
 * descriptor or a mapping of it, so a death of its maker loses nothing that others have. That of
 * SL_MEMORY_CUDA_IPC ends with its maker. Errors: SL_ERR_DEVICE, SL_ERR_UNSUPPORTED. */
sl_err sl_device_memory_export(struct sl_device *device, const struct sl_device_memory *memory,
                               struct sl_memory_handle *out, struct sl_error *why);
/* Accepts what is all zero or was freed. */
void sl_device_memory_free(struct sl_device *device, struct sl_device_memory *memory);

/* Memory of this process (an arena) that moves will name; borrowed until host_remove says
 * true, which comes before it is unmapped. Its first ready_bytes are there, later calls with the
 * same base say how far it has grown. It is pinned in slices, by sl_device_work; until then, and
 * where pinning fails (sl_device_work says so once), moves take a copy more. Errors:
 * SL_ERR_INVALID, SL_ERR_NO_MEMORY.
 */
sl_err sl_device_host_add(struct sl_device *device, unsigned char *base, uint64_t length_bytes,
                          uint64_t ready_bytes, struct sl_error *why);
/* Ends that. Unpinning takes as long as pinning, so a call does one step of it, some milliseconds.
 * True: all of it is unpinned, and may be unmapped. False: call again. Moves may name the memory
 * until the first call. Memory that is not known is gone: true. */
bool sl_device_host_remove(struct sl_device *device, const unsigned char *base);
/* Does one step, some milliseconds, of what is to be done beside the moves: pins a slice, measures
 * a path. *more: there is another one. */
sl_err sl_device_work(struct sl_device *device, bool *more, struct sl_error *why);

#endif
