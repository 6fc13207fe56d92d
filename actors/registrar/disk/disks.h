/* actors/registrar/disk/disks.h - which disks there are: paths, the tierers that serve them, and
 * who they lead to. */
#ifndef SL_REGISTRAR_DISK_DISKS_H
#define SL_REGISTRAR_DISK_DISKS_H

#include "actors/registrar/base/core.h"
#include "actors/registrar/disk/members.h"
#include "actors/registrar/disk/promote.h"
#include "actors/registrar/disk/reclaim.h"
#include "actors/registrar/disk/segments.h"

#define REG_DISK_CALL_NS                                                    \
    (30 * SL_NS_PER_S) /* a tierer that answers nothing for so long is slow \
                        */
#define REG_DISK_RETRY_NS (500 * SL_NS_PER_MS) /* pause after a disk error */
/* A promotion that gets no space for so long is told: what its reader has pinned may be what is in
 * the way. */
#define REG_PROMOTE_WAIT_NS (100 * SL_NS_PER_MS)
#define REG_DISK_BUSY_NS    (20 * SL_NS_PER_MS) /* pause after a tierer said that it has enough */
/* A tierer that is away for so long is taken for no disk at all: eviction goes on without it. */
#define REG_DISK_ABSENT_NS (5 * SL_NS_PER_S)
/* Parts of blocks that are not whole wait so long for a disk that is away: for a mount that comes
 * late, a log that is read. */
#define REG_DISK_LATE_NS (3600 * SL_NS_PER_S)
/* After the start, what another disk may know of one is waited for so long. */
#define REG_DISK_WITNESS_NS (20 * SL_NS_PER_S)
/* A node with a disk tier is ready when it knows what is there, when a tierer says that its log
 * takes a while, or after so long: what is not known yet is a miss. */
#define REG_DISK_SCAN_NS (10 * SL_NS_PER_S)
#define REG_DISK_LOOK_NS (100 * SL_NS_PER_MS) /* so often it is looked at what tierers say */

/* Slots of disks: those of the setting and those that were remembered from before it changed. The
 * last one stands for every disk that may be there and has not told yet who it is. */
#define REG_DISKS_MAX    16u
#define REG_DISK_UNKNOWN (REG_DISKS_MAX - 1)
enum reg_disk_state { REG_DISK_ABSENT, REG_DISK_SCANNING, REG_DISK_READY };
struct reg_path { /* an entry of disk_path: served by the tierer of this number */
    uint32_t peer;
    bool here;
    uint64_t absent_since_ns;              /* or has not told again what it holds */
    char trouble[SL_METRICS_REASON_BYTES]; /* what its tierer died of, as far as it said */
    uint64_t fence_seq;  /* FENCE of all that was asked of the tierer before, 0: acknowledged */
    uint64_t fenced_seq; /* the one that was acknowledged last */
    uint32_t disk;       /* slot; REG_NONE: the tierer has not told yet */
    struct reg_standing standing;
};
/* A disk. Its slot is the number that places name; it is kept in a note of the index, so that a
 * restart with the paths in another order finds everything. */
struct reg_disk {
    bool used;  /* a note or a record of the index names it, or its disk has told */
    bool gone;  /* no path leads there any more: its places are being forgotten */
    bool stale; /* what was removed may be there: its values go, also from memory */
    bool born;  /* it was blank when it came while this index was there */
    struct reg_disk_name name;
    sl_ref note;
    struct sl_proc_id proc; /* that served it last */
    uint32_t path;          /* REG_NONE: none that told so */
    uint32_t tierer;        /* peer, while it is not absent */
    enum reg_disk_state state;
    uint64_t absent_since_ns;
    bool failing; /* the last write failed */
    uint64_t failing_since_ns;
    uint32_t batch_items; /* of one DISK_WRITE: fewer when the tierer says that it is too much */
    uint64_t retry_ns;
    uint32_t writes; /* in flight */
    uint64_t write_bytes;
    /* what its tierer told that it may still be written, and when; 0: nothing yet */
    int64_t budget_left_bytes;
    uint64_t budget_told_ns;
    struct reg_arrival_queue arrivals[2]; /* wait for an extent: wanted, and ahead of use */
    uint32_t reads[2];                    /* in flight, likewise */
    uint64_t ahead_bytes;                 /* of those ahead of use */
    struct reg_reclaim reclaim;
    uint32_t chosen_segment; /* it was chosen what is kept of it, since this tierer came; 0: none */
    uint32_t gone_segment; /* its file has gone, and those of the ones before, since a scan began */
    /* what it holds */
    uint64_t scan_seq;
    struct sl_proc_id scan_proc;
    uint32_t scan_number; /* of the last that has begun; 0: none */
    bool scan_open;       /* it has not ended */
    bool scanned;         /* since this registrar started, the disk said once what it holds */
    bool missed;          /* it may hold what neither a record nor a tombstone had room for */
    bool asked_again;     /* its tierer is to tell of that again */
    /* A bit each record: it was found by the scan that began last, or got its place since. What has
     * a place here and was not found is swept at the scan's end. NULL: no memory for it, nothing
     * is. */
    uint64_t *found;
    bool sweeping;
    uint32_t sweep_segment, sweep_at; /* the next item of it */
    uint64_t place_count;
    /* tombstones on their way there */
    struct reg_forget *forget_first, *forget_last;
    uint32_t forget_count;
    uint64_t forget_seq; /* DISK_FORGET in flight, 0: none */
    uint64_t forget_retry_ns;
    bool forget_full; /* the last of them found no room on its file system */
    bool forget_held; /* of a removed block, some parts found no room: it is to be scanned again */
};
struct reg_tier { /* all disks together */
    bool on;
    bool settled;    /* every path has told which disk it leads to: there are no others */
    bool settle_due; /* likewise, but there was no room in the index to say so */
    uint32_t path_count;
    uint64_t batch_bytes_max;
    uint32_t reclaim_number;
    uint64_t scan_until_ns;   /* the first scan of this life is waited for so long; 0: it is over */
    uint64_t groups_until_ns; /* blocks whose parts are missing wait for absent disks; 0: none do */
    uint64_t place_count;
    struct reg_segment *segments; /* sorted by number */
    uint32_t segment_count, segment_capacity;
    struct reg_path paths[SL_DISK_PATHS_MAX];
    struct reg_disk disks[REG_DISKS_MAX];
    struct reg_members members;
    uint64_t witness_until_ns; /* lists of disks that have not come are waited for */
    uint64_t segment_bytes;    /* setting */
    uint64_t budget_bytes;     /* a disk may be written so much a day; 0: no limit */
    struct {
        sl_metric disk_object_count, disk_ready, segment_count, corrupt_count, rewritten_count;
    } metric;
};

/* Of the reclaim of the place's segment. */
static inline enum reg_reclaim_phase reg_reclaim_phase(const struct registrar *self,
                                                       const struct sl_disk_place *place)
{
    const struct reg_reclaim *reclaim = &self->tier->disks[place->disk].reclaim;
    bool there = place->valid != 0 && place->segment == self->units->going[place->disk];
    return there ? reclaim->phase : REG_RECLAIM_NONE;
}

#define REG_DISK_BIT(disk) ((uint16_t)(1u << (disk)))
uint16_t reg_disks_used(const struct registrar *self);               /* a bit each */
bool reg_disk_usable(const struct registrar *self, uint32_t disk);   /* for reads and writes now */
bool reg_disk_readable(const struct registrar *self, uint32_t disk); /* also while it is scanned */
bool reg_disk_away(const struct registrar *self, uint32_t disk);     /* nobody waits for it */
/* It is away, and no tierer is there that may yet tell that it is this one. */
bool reg_disk_lost(const struct registrar *self, uint32_t disk);
bool reg_tier_lost(const struct registrar *self);      /* no tierer is there, nor was one lately */
bool reg_disks_writable(const struct registrar *self); /* some disk takes writes now */
/* All of them have told what they hold; whole: and nothing of it was without room. */
bool reg_disks_scanned(const struct registrar *self, bool whole);
/* What a tierer says of its disk. */
void reg_disk_budget_told(struct registrar *self, uint32_t disk, uint64_t left_bytes,
                          uint64_t debt_bytes);
/* Bytes that may still be written to the disk; negative: a debt. Without a budget INT64_MAX. */
int64_t reg_disk_budget_left(const struct registrar *self, uint32_t disk);
/* Number of the path whose tierer sent it; REG_NONE: no tierer that said HELLO. */
uint32_t reg_path_of(const struct registrar *self, const struct sl_msg *msg);
void reg_path_fence(struct registrar *self, uint32_t path);
/* A scan of the path begins: which disk it leads to, and what that tells of others. Errors:
 * SL_ERR_CONFIG (another path has it too), SL_ERR_BUSY (other disks have not told yet, or it is
 * being emptied), SL_ERR_LIMIT (no slot), SL_ERR_NO_SPACE (no room for its note). */
sl_err reg_disk_told(struct registrar *self, uint32_t path, const struct sl_body_disk_found *found,
                     struct sl_error *why);
void reg_disk_swept(struct registrar *self, uint32_t disk);
/* What had no room is to be told again: a tierer that hears a FENCE of everything begins another
 * scan. */
void reg_disks_tell_again(struct registrar *self);

extern const struct reg_part reg_disks_part, reg_scan_part, reg_flushes_part, reg_damaged_part;

#endif
