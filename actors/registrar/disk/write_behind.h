/* actors/registrar/disk/write_behind.h - what is committed goes to disk. */
#ifndef SL_REGISTRAR_DISK_WRITE_BEHIND_H
#define SL_REGISTRAR_DISK_WRITE_BEHIND_H

#include "actors/registrar/base/core.h"
#include "actors/registrar/records/units.h"
#include "runtime/base/sl_heap.h"

#define REG_WRITES_MAX      16u /* to one disk at a time */
#define REG_WRITES_YIELDING 2u  /* while it reads, and nobody waits for writes: never none */
#define REG_WRITE_ITEMS_MAX 64u
#define REG_WRITE_BYTES_MAX (4 * SL_MIB)
struct reg_write {
    bool used;
    uint32_t disk;
    uint64_t bytes;
    uint64_t seq;
    uint32_t count;
    struct sl_heap_item items[REG_WRITE_ITEMS_MAX]; /* as in the queue */
    uint64_t hashes[REG_WRITE_ITEMS_MAX];           /* of their keys */
};

struct reg_writes {
    /* Oldest first; grows with what is committed. id: the record; cookie: its generation; at_ns:
     * when it was committed, each one later than the one before: what FLUSH waits for. */
    struct sl_heap queue;
    uint32_t looked; /* items of the queue, since all were looked at */
    bool more;       /* the next turn goes on with the queue */
    uint64_t next_ns;
    struct reg_write *all;
    uint32_t count;
    sl_ref group; /* block of the last value that was sent to a disk, 0: none */
    uint32_t disk;
    struct sl_item_spill *spills; /* scratch of one DISK_WRITE */
    struct {
        sl_metric write_behind_pending_count, write_behind_lag_ms, written_count, written_bytes,
            write_failed_count;
    } metric;
};

void reg_queue_add(struct registrar *self, sl_ref ref, uint64_t generation);
void reg_unit_queue(struct registrar *self, sl_ref unit);
/* Bytes in memory are not what was stored: read from disk from now on, else dropped (damaged.c). */
void reg_memory_damaged(struct registrar *self, sl_ref ref);
/* Order of the oldest value that is not on disk yet; UINT64_MAX: all are. */
uint64_t reg_writes_oldest(struct registrar *self);
/* Whether something under a key of this hash is on its way to the disk. */
bool reg_write_runs(const struct registrar *self, uint64_t key_hash, uint32_t disk);
/* Values stand in memory alone that the disk is to have: with each of them room may come. */
bool reg_writes_come(struct registrar *self);

extern const struct reg_part reg_writes_part;

#endif
