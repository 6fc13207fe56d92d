/* actors/registrar/disk/segments.h - which records have a place in which log file. */
#ifndef SL_REGISTRAR_DISK_SEGMENTS_H
#define SL_REGISTRAR_DISK_SEGMENTS_H

#include "actors/registrar/base/core.h"

struct reg_segment {
    uint64_t number; /* disk << 32 | log file */
    struct reg_segment_item {
        sl_ref ref;       /* a record that had a place here when it was noted */
        uint32_t version; /* low half of its version: another record has another */
    } * items;
    uint32_t count, capacity, looked; /* looked: next item to check (segment_prune) */
    uint32_t live;                    /* records that have their place here */
};

/* Notes that the record has this place. fresh: a new place, not taken over from an old record. */
void reg_segment_note(struct registrar *self, sl_ref ref, const struct sl_disk_place *place,
                      bool fresh);
/* Of the log file that the disk reclaims: returns record `number` (from 0), which may have lost its
 * place since; 0: no more. Numbers do not change during a reclaim. */
sl_ref reg_segment_ref(const struct registrar *self, uint32_t disk, uint32_t number);
/* Removes the last record from that list and returns it; 0: none. */
sl_ref reg_segment_take(struct registrar *self, uint32_t disk);
/* Steps through the items of all log files of the disk. False: no more. entry->ref is 0 if the
 * item's record has no place there any more. */
bool reg_segments_sweep(const struct registrar *self, uint32_t disk, struct sl_entry *entry);
/* Whether the disk's scan has found the record; reg_segment_find sets it. */
bool reg_segment_found(const struct registrar *self, uint32_t disk, sl_ref ref);
void reg_segment_find(struct registrar *self, uint32_t disk, sl_ref ref, bool found);
/* Whether the record exists and has its place in the log file being reclaimed; then reads it. */
bool reg_segment_has(const struct registrar *self, uint32_t disk, sl_ref ref,
                     struct sl_entry *entry);

extern const struct reg_part reg_segments_part;

#endif
