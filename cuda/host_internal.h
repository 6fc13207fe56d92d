/* cuda/host_internal.h - internal interfaces of the device `host`; private to cuda/host_*.c. */
#ifndef SL_HOST_INTERNAL_H
#define SL_HOST_INTERNAL_H

#include "cuda/device_internal.h"
#include "cuda/host_crew.h"
#include "cuda/sl_plan.h"

/* Most tables in use: engines x pools x parts of one rank. */
#define HOST_TABLES_MAX 65536u
/* Blocks per run of a kernel's body. */
#define HOST_BATCH_BLOCKS 256u
/* Processes whose plain memory can be copied: engines, and their successors. */
#define HOST_PROCESSES_MAX 4096u

struct host_process { /* pidfd -1: free */
    uint32_t pid;
    int pidfd; /* of the registered process */
};

struct host_batch; /* buffer of a call: runs on both sides */

struct host_device {
    struct sl_device base;
    struct sl_layer_table *tables; /* a free table has no layers */
    uint32_t table_count, table_capacity;
    unsigned char *staging; /* one half of staging_bytes, as a GPU uses halves */
    uint64_t half_bytes;
    uint64_t block_ids[HOST_BATCH_BLOCKS]; /* of the batch in the staging */
    /* Copy function of the current move into device blocks. */
    void (*copy_in)(void *to, const void *from, uint64_t length_bytes);
    struct host_process *processes; /* a mapping's number n is index n - 1 */
    uint32_t process_count, process_capacity;
    struct host_crew *crew;                    /* NULL until a process is opened */
    uint32_t copy_threads;                     /* including the caller */
    struct host_batch *batches[HOST_CREW_MAX]; /* one for each thread */
    uint64_t *hashes;                          /* of the chunks of a call's moves */
    uint64_t hash_capacity;
};

static inline struct host_device *host_of(struct sl_device *device)
{
    return (struct host_device *)device;
}

/* host_process.c */
/* Opens the handle's process: checks that it is the intended one and that it permits copies, by
 * reading a byte of its memory. Gives a mapping for it. Errors: SL_ERR_INVALID (pid or start time
 * is missing), SL_ERR_NOT_FOUND (it is dead), SL_ERR_PERMISSION (the text names the remedy),
 * SL_ERR_STALE (no memory at that address), SL_ERR_LIMIT, SL_ERR_NO_MEMORY, SL_ERR_OS. */
sl_err host_process_open(struct host_device *host, const struct sl_memory_handle *handle,
                         struct sl_mapping *out, struct sl_error *why);
void host_process_close(struct host_device *host, uint32_t number);
void host_processes_close(struct host_device *host);
/* Reads the first and the last byte of each layer. Errors: as above. */
sl_err host_process_probe(struct host_device *host, const struct sl_layer_table *table,
                          struct sl_error *why);
/* Performs moves of the same layers with all threads. Errors: as above; complete moves are done. */
sl_err host_process_move(struct host_device *host, const struct sl_layer_table *table,
                         const struct sl_plan_range *range, struct sl_move *moves, uint32_t count,
                         bool to_host, bool digests, struct sl_error *why);
/* Digests a move's block through the staging. Errors: as above. */
sl_err host_process_digest(struct host_device *host, const struct sl_layer_table *table,
                           const struct sl_plan_range *range, struct sl_move *move,
                           struct sl_error *why);

#endif
