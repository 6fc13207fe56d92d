/* actors/registrar/disk/write_behind.h - writes committed values to disks in the background. */
#ifndef SL_REGISTRAR_DISK_WRITE_BEHIND_H
#define SL_REGISTRAR_DISK_WRITE_BEHIND_H

#include "actors/registrar/base/core.h"
#include "actors/registrar/records/units.h"
#include "runtime/base/sl_heap.h"

#define REG_WRITES_MAX      16u /* batches in flight to one disk */
#define REG_WRITES_YIELDING 2u  /* while the disk reads and nothing waits for writes; never 0 */
#define REG_WRITE_ITEMS_MAX 64u
#define REG_WRITE_BYTES_MAX (4 * SL_MIB)
struct reg_write {
    bool used;
    uint32_t disk;
    uint64_t bytes;
    uint64_t seq;
    uint32_t count;
    struct sl_heap_item items[REG_WRITE_ITEMS_MAX]; /* as in reg_writes.queue */
    uint64_t hashes[REG_WRITE_ITEMS_MAX];           /* of their keys */
};

struct reg_writes {
    /* Oldest first; grows as needed. id: the record; cookie: its generation; at_ns: time of its
     * commit, made unique: FLUSH waits for all commits before it. */
    struct sl_heap queue;
    uint32_t looked;  /* next item that queue_prune checks */
    bool more;        /* continue in the next turn */
    uint64_t next_ns; /* least at_ns of the next item */
    struct reg_write *all;
    uint32_t count;
    sl_ref group; /* block of the last value that was sent; 0: none */
    uint32_t disk;
    struct sl_item_spill *spills; /* scratch of one DISK_WRITE */
    struct {
        sl_metric write_behind_pending_count, write_behind_lag_ms, written_count, written_bytes,
            write_failed_count;
    } metric;
};

void reg_queue_add(struct registrar *self, sl_ref ref, uint64_t generation);
void reg_unit_queue(struct registrar *self, sl_ref unit); /* its parts that are not on disk */
/* Bytes in memory are wrong: reads the value from disk from now on, else drops it (damaged.c). */
void reg_memory_damaged(struct registrar *self, sl_ref ref);
/* at_ns of the oldest value that waits to be on disk; UINT64_MAX: none. */
uint64_t reg_writes_oldest(struct registrar *self);
/* Whether a write under a key of this hash is in flight to the disk. */
bool reg_write_runs(const struct registrar *self, uint64_t key_hash, uint32_t disk);
/* Whether values still have to be written to disk before they may leave memory. */
bool reg_writes_outstanding(struct registrar *self);

extern const struct reg_part reg_writes_part;

#endif
