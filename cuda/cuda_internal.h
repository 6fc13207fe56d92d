/* cuda/cuda_internal.h - internal interfaces of the cuda back end; private to cuda/cuda_*.c. */
#ifndef SL_CUDA_INTERNAL_H
#define SL_CUDA_INTERNAL_H

#include "cuda/device_internal.h"
#include "cuda/driver.h"
#include "cuda/sl_crossover.h"
#include "cuda/sl_kernels.h"
#include "cuda/sl_plan.h"

#define CUDA_SLOTS       SL_DEVICE_SLICES_MAX /* each slice in flight has at least one */
#define CUDA_SLOT_ITEMS  2048u                /* values, or parts of values, in flight in a slot */
#define CUDA_SLOT_COPIES 8192u
#define CUDA_DIRECT      UINT64_MAX /* not through the bounce memory */
#define CUDA_NO_HASH     UINT32_MAX
#define CUDA_TABLES_MAX  65536u
#define CUDA_MAPS_MAX    8192u
#define CUDA_HOSTS_MAX   64u
#define CUDA_PROBE_BYTES (16 * SL_MIB) /* most bytes moved for one figure of a measurement */
/* Bytes of one registration of host memory: it takes milliseconds, looking up every page. */
#define CUDA_PIN_BYTES (32 * SL_MIB)
/* Longest wait for uploading a table of layers or clearing memory; both take milliseconds. A
 * swapper without a heartbeat for a second is killed without a reason, so this is less. */
#define CUDA_SHORT_WAIT_NS (800 * SL_NS_PER_MS)

struct cuda_table {
    struct sl_layer_table host; /* a free table has no layers */
    sl_cu_ptr device;           /* its layers, and one that represents a contiguous block */
    bool hash_in_place;         /* no chunk of a value crosses layers on the device */
    bool words;                 /* sl_hash_runs_words */
    uint32_t plain_index;       /* with host.remote: number of the table on the device `host` */
};

/* Memory opened once for several mappings. */
struct cuda_map {
    struct sl_memory_handle handle; /* without offset */
    sl_cu_ptr base;
    uint64_t length_bytes;
    sl_cu_handle physical;  /* SL_MEMORY_CUDA_FD */
    uint64_t *part_lengths; /* SL_MEMORY_CUDA_PARTS: mapped in sequence; owned */
    uint32_t part_count;
    uint32_t users; /* 0: free */
};

/* Added host memory, pinned in slices from its start. */
struct cuda_host {
    unsigned char *base; /* NULL: free */
    uint64_t length_bytes, ready_bytes, pinned_bytes;
    uint32_t slice_count;
    bool refused; /* pinning failed; it is being unpinned in steps */
    bool leaving; /* being removed, in steps */
    bool adopted; /* pinned as a whole by its owner */
};

enum cuda_slot_state {
    CUDA_SLOT_FREE,
    CUDA_SLOT_FILLING,
    CUDA_SLOT_IN_FLIGHT, /* the GPU uses its memory until `done` */
};

/* A value, or a range of one, in flight. */
struct cuda_item {
    struct sl_move *move;
    uint64_t from_bytes, length_bytes; /* within the value */
    uint64_t bounce_offset_bytes;      /* or CUDA_DIRECT */
    uint32_t hash_index;               /* of the GPU's digests, or CUDA_NO_HASH */
    bool last;                         /* the last item of its move */
};

/* One half of the staging, with all that its contents need. */
struct cuda_slot {
    enum cuda_slot_state state;
    bool to_host, digests;
    bool check;  /* digests of blocks: nothing is moved */
    bool failed; /* must be waited for */
    uint64_t sent_ns;
    uint64_t slice; /* number of the slice that its moves belong to */
    sl_cu_stream stream;
    sl_cu_event done;
    sl_cu_ptr staging;     /* half_bytes, on the device */
    unsigned char *bounce; /* half_bytes, pinned */
    uint64_t *ring;        /* pinned: ids, then offsets of values; in use by the GPU until `done` */
    sl_cu_ptr ring_device;
    uint64_t *hashes; /* pinned */
    sl_cu_ptr hashes_device;
    uint64_t used_bytes; /* of staging and bounce, or moved without them */
    uint32_t item_count, copy_count, hash_count;
    struct sl_plan_range range; /* the range that its items move of each value */
    struct cuda_item items[CUDA_SLOT_ITEMS];
    sl_cu_ptr to[CUDA_SLOT_COPIES], from[CUDA_SLOT_COPIES];
    size_t lengths[CUDA_SLOT_COPIES];
};

/* A job in progress: moves of the same layers of one table. */
struct cuda_job {
    const struct cuda_table *table;
    struct sl_plan_range range;
    struct sl_move *moves;
    uint32_t count, next;
    uint64_t next_bytes; /* offset within the next move's range */
    enum sl_way way;
    bool to_host, digests;
    bool copies_only; /* no kernels, not even for digests */
    bool check;       /* digests blocks and moves nothing */
};

/* State of slices that digest blocks. */
struct cuda_check {
    uint64_t *hashes; /* of a value whose hashes arrive in parts; owned */
    uint64_t hashes_max;
    struct sl_digest_stream stream; /* for a value that the processor digests in parts */
    uint64_t ended_ns;              /* when the last slot ended */
    int64_t room_ns; /* time that digests may take: a twentieth of moves, less their own */
};

/* Detects whether another process computes on the GPU. */
struct cuda_watch {
    bool on;
    bool sent; /* a probe kernel is in flight, and had not ended at the last look */
    sl_cu_stream stream;
    sl_cu_event done;
    uint64_t next_ns, computes_until_ns;
};

struct cuda_probe; /* a measurement in progress */
struct cuda_device {
    struct sl_device base;
    struct sl_driver driver;
    sl_cu_device gpu;
    bool retained;
    sl_cu_context context;
    uint32_t capability; /* 90: sm_90 */
    int compute_mode;
    struct sl_kernels kernels; /* without a module: only copies */
    uint32_t sm_limit;
    bool mps; /* kernels of other processes run at the same time */
    enum sl_beside beside;
    struct cuda_watch watch;
    struct cuda_check check;
    struct sl_device *plain; /* the device `host`; NULL: no plain memory was mapped */
    uint32_t copy_threads;   /* for `plain` */
    bool host_pointers;      /* pinned memory has the same address on the device */
    bool batch_works;
    uint64_t half_bytes;
    uint64_t hash_count_max; /* chunks of a slot */
    struct cuda_slot *slots; /* CUDA_SLOTS slots */
    uint32_t next_slot;
    uint64_t wait_ns;     /* time limit for copies in flight */
    struct sl_error late; /* error of a slice that another call has waited for; code SL_OK: none */
    struct cuda_table *tables;
    uint32_t table_count, table_capacity;
    struct cuda_map *maps; /* CUDA_MAPS_MAX maps */
    bool hung;             /* the GPU may still write to slots, tables and host memory: not freed */
    struct cuda_host hosts[CUDA_HOSTS_MAX];
    struct sl_crossover crossover;
    char *cache_directory; /* owned; NULL: none */
    bool measuring;
    uint64_t probe_bytes; /* a power of two up to CUDA_PROBE_BYTES */
    struct cuda_probe *probe;
};

static inline struct cuda_device *cuda_of(struct sl_device *device)
{
    return (struct cuda_device *)device;
}

/* cuda_slots.c */
sl_err cuda_slots_open(struct cuda_device *cuda, struct sl_error *why);
void cuda_slots_close(struct cuda_device *cuda);
/* Gives a free slot, FILLING for the current slice. First waits for the slot's previous work. */
sl_err cuda_slot_take(struct cuda_device *cuda, const struct cuda_job *job, struct cuda_slot **out,
                      struct sl_error *why);
/* Whether a slot is in use. */
bool cuda_slots_busy(const struct cuda_device *cuda);
/* Starts the slot's copies and kernels. */
sl_err cuda_slot_send(struct cuda_device *cuda, struct cuda_slot *slot, const struct cuda_job *job,
                      const struct sl_swap *swap, struct sl_error *why);
/* Runs a kernel in the slot's stream. */
sl_err cuda_slot_launch(struct cuda_device *cuda, struct cuda_slot *slot, sl_cu_function function,
                        void *argument, uint64_t workers, const char *name, struct sl_error *why);
/* Copies the first `words` words of the slot's ring to the GPU. */
sl_err cuda_slot_send_ids(struct cuda_device *cuda, struct cuda_slot *slot, uint32_t words,
                          struct sl_error *why);
/* Records the end of the slot's work: it is IN_FLIGHT. */
sl_err cuda_slot_sent(struct cuda_device *cuda, struct cuda_slot *slot, struct sl_error *why);
/* Completes slots that have ended, in order; wait: waits for all. Their moves are done. */
sl_err cuda_slots_finish(struct cuda_device *cuda, bool wait, struct sl_error *why);
/* After an error: waits until no slot is in flight. Only moves sent before the failure are done. */
void cuda_slots_drop(struct cuda_device *cuda, sl_err *err, struct sl_error *why);
/* Waits for all slots before their memory is released; keeps an error for cuda_move_end. */
void cuda_slots_wait_all(struct cuda_device *cuda);

/* cuda_move.c */
sl_err cuda_move(struct sl_device *device, struct sl_move *moves, uint32_t count, bool to_host,
                 bool digests, struct sl_error *why);
sl_err cuda_move_begin(struct sl_device *device, struct sl_move *moves, uint32_t count,
                       bool to_host, bool digests, struct sl_error *why);
sl_err cuda_move_end(struct sl_device *device, bool wait, struct sl_error *why);
/* Begins a slice of moves or, with check, of digests of blocks. */
sl_err cuda_slice_begin(struct cuda_device *cuda, struct sl_move *moves, uint32_t count,
                        const struct cuda_job *like, struct sl_error *why);
/* Moves a job with its given way. */
sl_err cuda_move_by(struct cuda_device *cuda, struct cuda_job *job, struct sl_error *why);
void cuda_ways(const struct cuda_device *cuda, const struct cuda_job *job, bool *possible);
/* Sets the fastest way for a job that has not started. */
void cuda_job_way(const struct cuda_device *cuda, struct cuda_job *job);

/* Whether the digest kernel can read the job's blocks as runs of whole chunks. A contiguous block
 * must then be digested as a whole. */
bool cuda_hash_in_place_ok(const struct cuda_job *job);

/* cuda_digest.c */
sl_err cuda_digest_begin(struct sl_device *device, struct sl_move *moves, uint32_t count,
                         struct sl_error *why);
bool cuda_digests(struct sl_device *device);
/* Digests the job's blocks on the GPU, or copies them and digests on the processor. */
sl_err cuda_check_by(struct cuda_device *cuda, struct cuda_job *job, struct sl_error *why);
/* Stores the result of one item of such a slot. */
void cuda_check_finish(struct cuda_device *cuda, const struct cuda_slot *slot,
                       const struct cuda_item *item);
/* Charges the time of a slot that has ended. */
void cuda_check_charge(struct cuda_device *cuda, const struct cuda_slot *slot);

/* cuda_plain.c */
/* Errors of all: those of the device `host`. */
sl_err cuda_plain_map(struct cuda_device *cuda, const struct sl_memory_handle *handle,
                      uint64_t length_bytes, struct sl_mapping *out, struct sl_error *why);
sl_err cuda_plain_layers_add(struct cuda_device *cuda, const struct sl_layer *layers,
                             struct cuda_table *table, struct sl_error *why);
void cuda_plain_layers_remove(struct cuda_device *cuda, const struct cuda_table *table);
/* Moves or digests the whole job; blocking. */
sl_err cuda_plain_by(struct cuda_device *cuda, const struct cuda_job *job, struct sl_error *why);

/* cuda_memory.c */
sl_err cuda_map(struct sl_device *device, const struct sl_memory_handle *handle,
                uint64_t length_bytes, struct sl_mapping *out, struct sl_error *why);
void cuda_unmap(struct sl_device *device, struct sl_mapping *mapping);
sl_err cuda_memory_create(struct sl_device *device, uint64_t length_bytes,
                          struct sl_device_memory *out, struct sl_error *why);
sl_err cuda_memory_export(struct sl_device *device, const struct sl_device_memory *memory,
                          struct sl_memory_handle *out, struct sl_error *why);
void cuda_memory_free(struct sl_device *device, struct sl_device_memory *memory);
/* Like sl_fail_cuda for a call with another process's handle. The driver may return a code that
 * also a lost context has; if the context still answers, the error is SL_ERR_IO of this call
 * only. */
sl_err cuda_fail_foreign(struct cuda_device *cuda, struct sl_error *why, sl_cu_result result,
                         const char *doing);
/* Waits for the stream, at most CUDA_SHORT_WAIT_NS. After that the GPU may still write, which only
 * the end of the process stops: SL_ERR_DEVICE, the driver is lost, and hung is set. */
sl_err cuda_stream_end(struct cuda_device *cuda, sl_cu_stream stream, const char *doing,
                       struct sl_error *why);
/* The granularity of physical memory. */
sl_err cuda_memory_unit(struct cuda_device *cuda, size_t *unit, struct sl_error *why);
sl_err cuda_host_add(struct sl_device *device, unsigned char *base, uint64_t length_bytes,
                     uint64_t ready_bytes, struct sl_error *why);
bool cuda_host_remove(struct sl_device *device, const unsigned char *base);
/* Pins the next slice, or unpins one of memory that cannot be pinned whole. *more: there was
 * one. */
sl_err cuda_host_step(struct cuda_device *cuda, bool *more, struct sl_error *why);
/* How many bytes from `at` one copy may touch: up to the end of the slice; 0 if it is not pinned.
 * *starts: a slice starts at `at`. */
uint64_t cuda_host_run(const struct cuda_device *cuda, const unsigned char *at, bool *starts);
/* Whether the whole range is pinned. */
bool cuda_host_pinned(const struct cuda_device *cuda, const unsigned char *at,
                      uint64_t length_bytes);
/* Adds memory that the driver allocated pinned. */
sl_err cuda_host_adopt(struct cuda_device *cuda, unsigned char *base, uint64_t length_bytes,
                       struct sl_error *why);
void cuda_host_forget(struct cuda_device *cuda, const unsigned char *base);
void cuda_memory_close(struct cuda_device *cuda);

/* cuda_parts.c */
/* Fetches the descriptors from the memory's process and maps all of it into one range of addresses:
 * map->base, length_bytes and parts. Errors: those of sl_descriptors_fetch and of the driver;
 * SL_ERR_PROTOCOL. */
sl_err cuda_parts_open(struct cuda_device *cuda, const struct sl_memory_handle *handle,
                       struct cuda_map *map, struct sl_error *why);
/* Also half made. */
void cuda_parts_close(struct cuda_device *cuda, struct cuda_map *map);
/* cuda_dmabuf.c */
sl_err cuda_dmabuf(struct sl_device *device, const struct sl_mapping *mapping,
                   struct sl_device_dmabuf *out, struct sl_error *why);
/* cuda_event.c */
sl_err cuda_event_open(struct sl_device *device, const unsigned char handle[64], void **out,
                       struct sl_error *why);
sl_err cuda_event_ended(struct sl_device *device, void *opened, bool *over, struct sl_error *why);
void cuda_event_close(struct sl_device *device, void *opened);

/* cuda_measure.c */
sl_err cuda_measure_step(struct cuda_device *cuda, bool *more, struct sl_error *why);
void cuda_measure_close(struct cuda_device *cuda);

/* cuda_watch.c */
/* Whether contexts on the GPU are shared through MPS. */
bool cuda_watch_mps(struct cuda_device *cuda);
sl_err cuda_watch_open(struct cuda_device *cuda, struct sl_error *why);
void cuda_watch_close(struct cuda_device *cuda); /* also if it is not open */
/* Whether kernels are to be avoided now. Probes again ten times a second, for up to 150 us. */
bool cuda_watch_computes(struct cuda_device *cuda);

/* cuda_device.c */
sl_err cuda_layers_add(struct sl_device *device, const struct sl_layer *layers,
                       uint32_t layer_count, uint32_t *layers_index, struct sl_error *why);
void cuda_layers_remove(struct sl_device *device, uint32_t layers_index);
/* Makes the context current for this thread; SL_ERR_DEVICE if it is lost. */
sl_err cuda_enter(struct cuda_device *cuda, struct sl_error *why);

#endif
