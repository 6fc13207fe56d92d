/* actors/registrar/disk/disks.h - paths, the tierers that serve them, and the disk under each. */
#ifndef SL_REGISTRAR_DISK_DISKS_H
#define SL_REGISTRAR_DISK_DISKS_H

#include "actors/registrar/base/core.h"
#include "actors/registrar/disk/members.h"
#include "actors/registrar/disk/promote.h"
#include "actors/registrar/disk/reclaim.h"
#include "actors/registrar/disk/segments.h"

#define REG_DISK_CALL_NS \
    (30 * SL_NS_PER_S) /* a request that its tierer does not answer within this time fails */
#define REG_DISK_RETRY_NS (500 * SL_NS_PER_MS) /* pause after a disk error */
/* A BRING that gets no space for this long ends with SL_ERR_NO_SPACE: its sender's own pins may be
 * what fills the memory. */
#define REG_PROMOTE_WAIT_NS (100 * SL_NS_PER_MS)
#define REG_DISK_BUSY_NS    (20 * SL_NS_PER_MS) /* pause after a tierer refused a batch */
/* A disk whose tierer is absent this long counts as no disk: eviction continues without it. */
#define REG_DISK_ABSENT_NS (5 * SL_NS_PER_S)
/* Parts of incomplete blocks wait this long for an absent disk: its mount or the end of its log. */
#define REG_DISK_LATE_NS (3600 * SL_NS_PER_S)
/* A disk is accepted when all have reported what they know of it, or this long after the start. */
#define REG_DISK_WITNESS_NS (20 * SL_NS_PER_S)
/* A node with a disk tier is ready when its disks are scanned, when a tierer reports that its log
 * takes a while, or after this time. Values that are not known yet are misses. */
#define REG_DISK_SCAN_NS (10 * SL_NS_PER_S)
#define REG_DISK_POLL_NS (100 * SL_NS_PER_MS) /* how often tierers' metrics are read */

/* Slots of disks: those of the setting and those remembered from before it changed. The last slot
 * represents every disk that may exist and has not reported its name yet. */
#define REG_DISKS_MAX    16u
#define REG_DISK_UNKNOWN (REG_DISKS_MAX - 1)
enum reg_disk_state { REG_DISK_ABSENT, REG_DISK_SCANNING, REG_DISK_READY };
struct reg_path {             /* an entry of disk_path, served by the tierer of the same number */
    uint32_t peer;            /* the tierer */
    bool here;                /* the tierer is present */
    uint64_t absent_since_ns; /* or without progress of its scan */
    char trouble[SL_METRICS_REASON_BYTES]; /* why its tierer ended, as far as known */
    uint64_t fence_seq;  /* FENCE of all earlier requests to the tierer; 0: acknowledged */
    uint64_t fenced_seq; /* the last one acknowledged */
    uint32_t disk;       /* slot; REG_NONE: not reported yet */
    struct reg_membership membership;
};
/* A disk. Places name it by its slot. A note of the index keeps the slot, so a restart with the
 * paths in another order finds all values. */
struct reg_disk {
    bool used;  /* a note or record of the index names it, or it has reported */
    bool gone;  /* no path leads to it any more: its places are being cleared */
    bool stale; /* it may hold removed values: its values are dropped, also from memory */
    bool born;  /* it held no value when it first came to this index */
    struct reg_disk_name name;
    sl_ref note;
    struct sl_proc_id proc; /* of its last tierer */
    uint32_t path;          /* REG_NONE: none */
    uint32_t tierer;        /* its peer, while not absent */
    enum reg_disk_state state;
    uint64_t absent_since_ns;
    bool failing; /* the last write failed */
    uint64_t failing_since_ns;
    uint32_t batch_items; /* limit of one DISK_WRITE, lower after a tierer refused one */
    uint64_t retry_ns;
    uint32_t writes; /* in flight */
    uint64_t write_bytes;
    /* what its tierer reported may still be written, and when; 0: no report yet */
    int64_t budget_left_bytes;
    uint64_t budget_set_ns;
    struct reg_fetch_queue fetches[2]; /* wait for an extent: requested; prefetched */
    uint32_t reads[2];                 /* in flight, in the same order */
    uint64_t ahead_bytes;              /* of prefetches in flight */
    struct reg_reclaim reclaim;
    uint32_t chosen_segment;  /* log file with its kept values chosen; 0: none, or tierer left */
    uint32_t deleted_segment; /* log files up to this one were deleted since a scan began */
    /* its contents */
    uint64_t scan_seq;
    struct sl_proc_id scan_proc;
    uint32_t scan_number; /* of the last scan that began; 0: none */
    bool scan_open;       /* that scan has not ended */
    bool scanned;         /* a scan has ended since this registrar started */
    bool missed;          /* it may hold values for which the index or the tombstones had no room */
    bool rescan_asked;    /* its tierer was asked to scan again for these */
    /* A bit for each record: the scan that began last found it, or its place is newer. After the
     * scan, records with a place here and no bit are swept. NULL: no memory, none is swept. */
    uint64_t *found;
    bool sweeping;
    uint32_t sweep_segment, sweep_at; /* next item to sweep */
    uint64_t place_count;
    /* tombstones to be sent, or in flight */
    struct reg_tombstone *tombstone_first, *tombstone_last;
    uint32_t tombstone_count;
    uint64_t tombstone_seq; /* DISK_FORGET in flight, 0: none */
    uint64_t tombstone_retry_ns;
    bool tombstone_full; /* the last DISK_FORGET found no room in the file system */
    bool tombstone_held; /* a removed block's parts got no tombstones: to be scanned again */
};
struct reg_tier { /* state of all disks together */
    bool on;
    bool settled;    /* every path has reported its disk: there are no others */
    bool settle_due; /* the same, but the index has no room yet to note it */
    uint32_t path_count;
    uint64_t batch_bytes_max;
    uint32_t reclaim_number;
    uint64_t scan_until_ns;   /* until when startup waits for the first scan; 0: over */
    uint64_t groups_until_ns; /* until when incomplete blocks wait for disks; 0: none do */
    uint64_t place_count;
    struct reg_segment *segments; /* sorted by number */
    uint32_t segment_count, segment_capacity;
    struct reg_path paths[SL_DISK_PATHS_MAX];
    struct reg_disk disks[REG_DISKS_MAX];
    struct reg_members members;
    uint64_t witness_until_ns; /* until then a disk is accepted only when all have reported */
    uint64_t segment_bytes;    /* setting */
    uint64_t budget_bytes;     /* setting: bytes a day for each disk; 0: no limit */
    struct {
        sl_metric disk_object_count, disk_ready, segment_count, corrupt_count, rewritten_count;
    } metric;
};

/* Phase of the reclaim of the place's log file. */
static inline enum reg_reclaim_phase reg_reclaim_phase(const struct registrar *self,
                                                       const struct sl_disk_place *place)
{
    const struct reg_reclaim *reclaim = &self->tier->disks[place->disk].reclaim;
    bool there = place->valid != 0 && place->segment == self->units->going[place->disk];
    return there ? reclaim->phase : REG_RECLAIM_NONE;
}

#define REG_DISK_BIT(disk) ((uint16_t)(1u << (disk)))
uint16_t reg_disks_used(const struct registrar *self);               /* a bit for each slot */
bool reg_disk_usable(const struct registrar *self, uint32_t disk);   /* for reads and writes now */
bool reg_disk_readable(const struct registrar *self, uint32_t disk); /* also during its scan */
/* A disk is unreachable after REG_DISK_ABSENT_NS, unless a tierer has yet to report its disk. It is
 * lost if its slot is also in use; REG_DISK_UNKNOWN, if all paths that may lead there are
 * absent. */
bool reg_disk_unreachable(const struct registrar *self, uint32_t disk);
bool reg_disk_lost(const struct registrar *self, uint32_t disk);
bool reg_tier_lost(const struct registrar *self);      /* all tierers are absent for that long */
bool reg_disks_writable(const struct registrar *self); /* some disk takes writes now */
/* All disks were scanned; whole: and all that was found had room. */
bool reg_disks_scanned(const struct registrar *self, bool whole);
/* Stores what the tierer reported about its budget. */
void reg_disk_budget_set(struct registrar *self, uint32_t disk, uint64_t left_bytes,
                         uint64_t debt_bytes);
/* Bytes that may still be written to the disk; negative: a debt. INT64_MAX: no budget is set. */
int64_t reg_disk_budget_left(const struct registrar *self, uint32_t disk);
/* Number of the path whose tierer sent msg; REG_NONE: the sender is no tierer that sent HELLO. */
uint32_t reg_path_of(const struct registrar *self, const struct sl_msg *msg);
/* Fences all earlier requests to the tierer; fence_seq becomes 0 when they have ended. */
void reg_path_fence(struct registrar *self, uint32_t path);
/* A scan of the path begins: binds the path to the disk that `found` names, and judges which disks
 * missed removals. Errors: SL_ERR_CONFIG (another path has the same disk), SL_ERR_BUSY (other disks
 * have not reported yet, or the disk is being emptied), SL_ERR_LIMIT (no slot), SL_ERR_NO_SPACE (no
 * room for its note). */
sl_err reg_disk_identify(struct registrar *self, uint32_t path,
                         const struct sl_body_disk_found *found, struct sl_error *why);
/* The sweep of the disk has ended: frees `found`, and the slot of a disk that is gone. */
void reg_disk_swept(struct registrar *self, uint32_t disk);
/* Asks disks on which values had no room for another scan, by a FENCE of everything. */
void reg_disks_rescan(struct registrar *self);

extern const struct reg_part reg_disks_part, reg_scan_part, reg_flushes_part, reg_damaged_part;

#endif
