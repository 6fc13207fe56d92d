/* cuda/cuda_internal.h - the parts of the cuda back end; private to cuda/cuda_*.c. */
#ifndef SL_CUDA_INTERNAL_H
#define SL_CUDA_INTERNAL_H

#include "cuda/device_internal.h"
#include "cuda/driver.h"
#include "cuda/sl_crossover.h"
#include "cuda/sl_kernels.h"
#include "cuda/sl_plan.h"

#define CUDA_SLOTS       SL_DEVICE_SLICES_MAX /* each slice on its way has one at least */
#define CUDA_SLOT_ITEMS  2048u /* values, or parts of values, that a slot has on their way */
#define CUDA_SLOT_COPIES 8192u
#define CUDA_DIRECT      UINT64_MAX /* not through the bounce memory */
#define CUDA_NO_HASH     UINT32_MAX
#define CUDA_TABLES_MAX  65536u
#define CUDA_MAPS_MAX    8192u
#define CUDA_HOSTS_MAX   64u
#define CUDA_PROBE_BYTES (16 * SL_MIB) /* moved at most for one figure of a measurement */
/* One registration of host memory: some milliseconds, since every page is looked up. */
#define CUDA_PIN_BYTES (32 * SL_MIB)
/* For a table of layers, or memory that is cleared: both take milliseconds. A swapper that says
 * nothing for a second is killed without a reason; so there is one before. */
#define CUDA_SHORT_WAIT_NS (800 * SL_NS_PER_MS)

struct cuda_table {
    struct sl_layer_table host; /* a free one has no layers */
    sl_cu_ptr device;           /* its layers, and one that stands for a contiguous block */
    bool hash_in_place;         /* no chunk of a value crosses layers on the device */
    bool words;                 /* sl_hash_runs_words */
    uint32_t plain_index;       /* host.remote: of the table on the device `host` */
};

/* What was opened once for several mappings. */
struct cuda_map {
    struct sl_memory_handle handle; /* without offset */
    sl_cu_ptr base;
    uint64_t length_bytes;
    sl_cu_handle physical;  /* SL_MEMORY_CUDA_FD */
    uint64_t *part_lengths; /* SL_MEMORY_CUDA_PARTS: mapped one after the other; owned */
    uint32_t part_count;
    uint32_t users; /* 0: free */
};

/* Added host memory: pinned from its start on, in slices. */
struct cuda_host {
    unsigned char *base; /* NULL: free */
    uint64_t length_bytes, ready_bytes, pinned_bytes;
    uint32_t slice_count;
    bool refused; /* pinning failed, and is undone in steps */
    bool leaving; /* is being removed, in steps */
    bool adopted; /* pinned by its maker, as a whole */
};

enum cuda_slot_state {
    CUDA_SLOT_FREE,
    CUDA_SLOT_FILLING,
    CUDA_SLOT_IN_FLIGHT, /* its memory is the GPU's until `done` */
};

/* A value, or a range of one, that is on its way. */
struct cuda_item {
    struct sl_move *move;
    uint64_t from_bytes, length_bytes; /* in the value */
    uint64_t bounce_offset_bytes;      /* or CUDA_DIRECT */
    uint32_t hash_index;               /* of its digest by the GPU, or CUDA_NO_HASH */
    bool last;                         /* of its move */
};

/* One half of the staging and all that belongs to what is in it. */
struct cuda_slot {
    enum cuda_slot_state state;
    bool to_host, digests;
    bool check;  /* digests of blocks: nothing is moved */
    bool failed; /* to be waited for */
    uint64_t sent_ns;
    uint64_t slice; /* whose moves are in it */
    sl_cu_stream stream;
    sl_cu_event done;
    sl_cu_ptr staging;     /* half_bytes on the device */
    unsigned char *bounce; /* as many, pinned */
    uint64_t *ring;        /* pinned: ids, then offsets of values; lent until `done` */
    sl_cu_ptr ring_device;
    uint64_t *hashes; /* pinned */
    sl_cu_ptr hashes_device;
    uint64_t used_bytes; /* of staging and bounce, or on their way past them */
    uint32_t item_count, copy_count, hash_count;
    struct sl_plan_range range; /* of each value that its items belong to */
    struct cuda_item items[CUDA_SLOT_ITEMS];
    sl_cu_ptr to[CUDA_SLOT_COPIES], from[CUDA_SLOT_COPIES];
    size_t lengths[CUDA_SLOT_COPIES];
};

/* Moves of the same layers of one table, in progress. */
struct cuda_job {
    const struct cuda_table *table;
    struct sl_plan_range range;
    struct sl_move *moves;
    uint32_t count, next;
    uint64_t next_bytes; /* of the next move's range, from here on */
    enum sl_way way;
    bool to_host, digests;
    bool copies_alone; /* no kernel, not even for digests */
    bool check;        /* digests of the blocks alone */
};

/* Of slices that digest blocks. */
struct cuda_check {
    uint64_t *hashes; /* of a value whose hashes come in parts; owned */
    uint64_t hashes_max;
    struct sl_digest_stream stream; /* of one that the processor digests in parts */
    uint64_t over_ns;               /* when a slot was over last */
    int64_t room_ns;                /* what they may take: a twentieth of moves, less their own */
};

/* Whether another process computes. */
struct cuda_watch {
    bool on;
    bool sent; /* a kernel without work, and it was not over when it was looked at */
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
    struct sl_kernels kernels; /* without a module: copies alone */
    uint32_t sm_limit;
    bool mps; /* its kernels and those of other processes run at the same time */
    enum sl_beside beside;
    struct cuda_watch watch;
    struct cuda_check check;
    struct sl_device *plain; /* the device `host`; NULL: no plain memory was mapped */
    uint32_t copy_threads;   /* of that */
    bool host_pointers;      /* pinned memory has one address for both */
    bool batch_works;
    uint64_t half_bytes;
    uint64_t hash_count_max; /* chunks of a slot */
    struct cuda_slot *slots; /* CUDA_SLOTS of them */
    uint32_t next_slot;
    uint64_t wait_ns;     /* for what is on its way */
    struct sl_error late; /* of a slice that another call has waited for; its code is SL_OK: none */
    struct cuda_table *tables;
    uint32_t table_count, table_capacity;
    struct cuda_map *maps; /* CUDA_MAPS_MAX of them */
    bool hung;             /* the GPU may still write to what was made last: that stays as it is */
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
/* Gives a free slot, FILLING with what is of the slice that was begun last; ends what was in it. */
sl_err cuda_slot_take(struct cuda_device *cuda, const struct cuda_job *job, struct cuda_slot **out,
                      struct sl_error *why);
/* Whether something is on its way. */
bool cuda_slots_busy(const struct cuda_device *cuda);
/* Starts what is in the slot. */
sl_err cuda_slot_send(struct cuda_device *cuda, struct cuda_slot *slot, const struct cuda_job *job,
                      const struct sl_swap *swap, struct sl_error *why);
/* Runs a kernel in the slot's stream. */
sl_err cuda_slot_launch(struct cuda_device *cuda, struct cuda_slot *slot, sl_cu_function function,
                        void *argument, uint64_t workers, const char *name, struct sl_error *why);
/* The GPU gets the first so many words of the slot's ring. */
sl_err cuda_slot_ring(struct cuda_device *cuda, struct cuda_slot *slot, uint32_t words,
                      struct sl_error *why);
/* All of the slot was sent: it is IN_FLIGHT. */
sl_err cuda_slot_sent(struct cuda_device *cuda, struct cuda_slot *slot, struct sl_error *why);
/* Ends what is over, in its order; wait: waits for all. Moves of it are done. */
sl_err cuda_slots_finish(struct cuda_device *cuda, bool wait, struct sl_error *why);
/* After an error: waits, and nothing is on its way any more. What was sent before the failure is
 * done, nothing behind it. */
void cuda_slots_drop(struct cuda_device *cuda, sl_err *err, struct sl_error *why);
/* Waits for all, since memory that it touches goes; an error is kept for the next cuda_move_end. */
void cuda_slots_settle(struct cuda_device *cuda);

/* cuda_move.c */
sl_err cuda_move(struct sl_device *device, struct sl_move *moves, uint32_t count, bool to_host,
                 bool digests, struct sl_error *why);
sl_err cuda_move_begin(struct sl_device *device, struct sl_move *moves, uint32_t count,
                       bool to_host, bool digests, struct sl_error *why);
sl_err cuda_move_end(struct sl_device *device, bool wait, struct sl_error *why);
/* Moves, or digests of blocks alone (check). */
sl_err cuda_slice_begin(struct cuda_device *cuda, struct sl_move *moves, uint32_t count,
                        const struct cuda_job *like, struct sl_error *why);
/* The same, a known way. */
sl_err cuda_move_by(struct cuda_device *cuda, struct cuda_job *job, struct sl_error *why);
void cuda_ways(const struct cuda_device *cuda, const struct cuda_job *job, bool *possible);
/* Sets the fastest way of the job, all of which is still to be moved. */
void cuda_job_way(const struct cuda_device *cuda, struct cuda_job *job);

/* Whether the digest kernel can read the blocks of the job as runs of whole chunks: of a block in
 * one run only all of it. */
bool cuda_hash_where_it_lies(const struct cuda_job *job);

/* cuda_digest.c */
sl_err cuda_digest_begin(struct sl_device *device, struct sl_move *moves, uint32_t count,
                         struct sl_error *why);
bool cuda_digests(struct sl_device *device);
/* The job's blocks are digested by the GPU, or read and digested by the processor. */
sl_err cuda_check_by(struct cuda_device *cuda, struct cuda_job *job, struct sl_error *why);
/* What an item of such a slot has found. */
void cuda_check_finish(struct cuda_device *cuda, const struct cuda_slot *slot,
                       const struct cuda_item *item);
/* A slot is over: what it took is charged. */
void cuda_check_charge(struct cuda_device *cuda, const struct cuda_slot *slot);

/* cuda_plain.c */
/* Errors of all: those of the device `host`. */
sl_err cuda_plain_map(struct cuda_device *cuda, const struct sl_memory_handle *handle,
                      uint64_t length_bytes, struct sl_mapping *out, struct sl_error *why);
sl_err cuda_plain_layers_add(struct cuda_device *cuda, const struct sl_layer *layers,
                             struct cuda_table *table, struct sl_error *why);
void cuda_plain_layers_remove(struct cuda_device *cuda, const struct cuda_table *table);
/* Moves or digests all of the job, and has ended then. */
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
/* sl_fail_cuda of a call about another process's handle. The driver may give it a code that a lost
 * context has, too: while the context still answers, it is SL_ERR_IO and this call's alone. */
sl_err cuda_fail_foreign(struct cuda_device *cuda, struct sl_error *why, sl_cu_result result,
                         const char *doing);
/* Waits for what is in the stream, CUDA_SHORT_WAIT_NS at most. After that the GPU may still write,
 * and only the end of the process ends that: SL_ERR_DEVICE, the driver is lost, hung is set. */
sl_err cuda_stream_end(struct cuda_device *cuda, sl_cu_stream stream, const char *doing,
                       struct sl_error *why);
/* The granularity of physical memory. */
sl_err cuda_memory_unit(struct cuda_device *cuda, size_t *unit, struct sl_error *why);
sl_err cuda_host_add(struct sl_device *device, unsigned char *base, uint64_t length_bytes,
                     uint64_t ready_bytes, struct sl_error *why);
bool cuda_host_remove(struct sl_device *device, const unsigned char *base);
/* Pins a slice of what is not pinned yet, or unpins one of what could not be pinned as a whole;
 * *more when there was one. */
sl_err cuda_host_step(struct cuda_device *cuda, bool *more, struct sl_error *why);
/* How much from `at` on one copy may touch: up to the end of its slice; 0 when it is not pinned.
 * *starts: a slice starts there. */
uint64_t cuda_host_run(const struct cuda_device *cuda, const unsigned char *at, bool *starts);
/* Whether all of it is pinned. */
bool cuda_host_pinned(const struct cuda_device *cuda, const unsigned char *at,
                      uint64_t length_bytes);
/* The same for memory that the driver gave pinned. */
sl_err cuda_host_adopt(struct cuda_device *cuda, unsigned char *base, uint64_t length_bytes,
                       struct sl_error *why);
void cuda_host_forget(struct cuda_device *cuda, const unsigned char *base);
void cuda_memory_close(struct cuda_device *cuda);

/* cuda_parts.c */
/* Fetches the descriptors from the process that has the memory and maps all of it in one run of
 * addresses: map->base, length_bytes and parts. Errors: those of sl_descriptors_fetch, of the
 * driver; SL_ERR_PROTOCOL. */
sl_err cuda_parts_open(struct cuda_device *cuda, const struct sl_memory_handle *handle,
                       struct cuda_map *map, struct sl_error *why);
/* Also half of it. */
void cuda_parts_close(struct cuda_device *cuda, struct cuda_map *map);
/* cuda_dmabuf.c */
sl_err cuda_dmabuf(struct sl_device *device, const struct sl_mapping *mapping,
                   struct sl_device_dmabuf *out, struct sl_error *why);
/* cuda_event.c */
sl_err cuda_event_open(struct sl_device *device, const unsigned char handle[64], void **out,
                       struct sl_error *why);
sl_err cuda_event_over(struct sl_device *device, void *opened, bool *over, struct sl_error *why);
void cuda_event_close(struct sl_device *device, void *opened);

/* cuda_measure.c */
sl_err cuda_measure_step(struct cuda_device *cuda, bool *more, struct sl_error *why);
void cuda_measure_close(struct cuda_device *cuda);

/* cuda_watch.c */
/* Whether contexts on the GPU are shared through MPS. */
bool cuda_watch_mps(struct cuda_device *cuda);
sl_err cuda_watch_open(struct cuda_device *cuda, struct sl_error *why);
void cuda_watch_close(struct cuda_device *cuda); /* also one that is not open */
/* Whether kernels are to be avoided now. Looks anew ten times a second, for up to 150 us. */
bool cuda_watch_computes(struct cuda_device *cuda);

/* cuda_device.c */
sl_err cuda_layers_add(struct sl_device *device, const struct sl_layer *layers,
                       uint32_t layer_count, uint32_t *layers_index, struct sl_error *why);
void cuda_layers_remove(struct sl_device *device, uint32_t layers_index);
/* Makes the context this thread's; SL_ERR_DEVICE when it is lost. */
sl_err cuda_enter(struct cuda_device *cuda, struct sl_error *why);

#endif
